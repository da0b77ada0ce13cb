#!/usr/bin/env python3
"""Random variations of the published families, made by transformers (make_published.py) and run by hadal.

    published_random.py HADAL WORK_FOLDER [--first SEED] [--count N] [FAMILY ...]

What published_variations.py has chosen by hand is drawn here: shapes, heads, biases, tied ends, windows, kinds of layers, rotary positions, counts of experts and groups,
scales, caps, absent fields. A seed is one variation of a family; half of them have their config saved again by transformers (all fields, in the form of version 5),
some their tensors in several files or their experts as transformers holds them, two tensors a layer. A combination that transformers cannot make is drawn again.
Evaluated and compiled, in one call, token by token, and cut 5 + 7 + 1 + the rest; the limits are those of tests/published/run.sh. One line for each; refusals are listed with their reason: whether they are
right is for the reader to say.
"""
import json
import os
import re

import torch

import transformers
from make_published import DROP, PUBLISHED, make
from model_search import Draw, search
from published_variations import NOT_READ_BACK
from safetensors.torch import load_file, save_file

S, F, L, I = "sliding_attention", "full_attention", "linear_attention", "indexed_attention"
C, H = "compressed_sparse_attention", "heavily_compressed_attention"
TRIES = 12


def eps(r):
    return r.maybe("rms_norm_eps", 1e-5, 1e-6, 1e-3, 0.05, share=0.4)


def sizes(r, hidden=(16, 24, 30, 32, 40, 48, 56, 64, 72)):
    return {"vocab_size": r.randrange(34, 130), "hidden_size": r.choice(hidden), **eps(r)}


def heads(r, most=8, head_dim=True):
    n = r.randrange(1, most + 1)
    out = {"num_attention_heads": n, "num_key_value_heads": r.divisor(n)}
    if head_dim:
        out["head_dim"] = r.of(2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 32)
    return out


def scaling(r, head_dim=None):
    kind = r.of("linear", "llama3", "yarn", "yarn")
    if kind == "linear":
        return {"rope_type": kind, "factor": r.of(1.0, 2.0, 3.5, 8.0)}
    if kind == "llama3":
        return {"rope_type": kind, "factor": r.of(2.0, 4.0, 8.0), "low_freq_factor": r.of(1.0, 0.5), "high_freq_factor": r.of(2.0, 4.0), "original_max_position_embeddings": r.of(8, 16, 64)}
    out = {"rope_type": kind, "factor": r.of(2.0, 4.0, 32.0), "original_max_position_embeddings": r.of(8, 16, 64)}
    for name, values in (("beta_fast", (4.0, 16.0, 32.0)), ("beta_slow", (1.0, 2.0)), ("attention_factor", (0.7, 1.3)), ("mscale", (0.5, 1.0)), ("mscale_all_dim", (0.5, 1.0)), ("truncate", (True, False))):
        out.update(r.maybe(name, *values, share=0.35))
    return out


def rope(r, allow_scaling=True, **more):
    theta = r.of(10.0, 77.0, 500.0, 10000.0, 1e6)
    scaled = scaling(r) if allow_scaling and r.some(0.6) else None
    if r.some():
        return {"rope_theta": DROP, "rope_scaling": DROP, "rope_parameters": {"rope_type": "default", **(scaled or {}), "rope_theta": theta, **more}}
    if scaled and r.some():
        scaled = {"type": scaled.pop("rope_type"), **scaled}
    return {"rope_parameters": DROP, "rope_theta": theta, "rope_scaling": scaled if scaled or r.some() else DROP, **more}


def layers(r, least=2, most=6):
    return r.randrange(least, most + 1)


ACTS = ("silu", "gelu", "gelu_pytorch_tanh", "relu")


def plain(r, acts=ACTS, **options):
    n = layers(r)
    return {**sizes(r), **heads(r), **rope(r, **options), "num_hidden_layers": n, "intermediate_size": r.of(17, 24, 48, 64, 80, 96),
            "tie_word_embeddings": r.some(), **r.maybe("hidden_act", *acts, share=0.3)}


def windows(r, c):
    if r.some(0.4):
        return {"use_sliding_window": False, "sliding_window": None, "layer_types": DROP}
    out = {"use_sliding_window": True, "sliding_window": r.of(1, 2, 3, 5, 8, 13, 19, 40), "max_window_layers": r.randrange(0, c["num_hidden_layers"] + 1), "layer_types": DROP}
    if r.some(0.4):
        out["layer_types"] = r.list_of(c["num_hidden_layers"], S, F)
    return out


def experts(r, count="num_local_experts", chosen="num_experts_per_tok", most=9):
    n = r.randrange(2, most)
    return {count: n, chosen: r.randrange(1, min(n, 4) + 1)}


def grouped(r, count="n_routed_experts", chosen="num_experts_per_tok", groups="n_group", top="topk_group", norm="norm_topk_prob"):
    g = r.of(1, 1, 2, 3, 4)
    each = r.of(2, 3, 4)
    stay = r.randrange(1, g + 1)
    return {count: g * each, groups: g, top: stay, chosen: r.randrange(1, min(4, stay * each) + 1), norm: r.some(0.7), "routed_scaling_factor": r.of(0.5, 1.0, 2.446, 2.5)}


def llama(r):
    return {**plain(r), "attention_bias": r.some(), "mlp_bias": r.some()}


def mistral(r):
    return {**plain(r), "sliding_window": r.of(None, 1, 3, 7, 12, 40)}


def qwen2(r):
    c = {**plain(r), "head_dim": DROP}
    n = r.of(1, 2, 3, 4, 6)
    c.update(num_attention_heads=n, num_key_value_heads=r.divisor(n), hidden_size=n * r.of(4, 6, 8, 12, 16))
    return {**c, **windows(r, c)}


def qwen3(r):
    c = {**plain(r), "attention_bias": r.some()}
    return {**c, **windows(r, c)}


def mixtral(r):
    return {**plain(r), **experts(r), "sliding_window": r.of(None, None, 2, 6), **r.maybe("head_dim", DROP, share=0.0)}


def qwen3_moe(r):
    c = plain(r)
    n = c["num_hidden_layers"]
    e = experts(r)
    if r.some():
        e["num_experts"] = e.pop("num_local_experts")
        e["num_local_experts"] = DROP
    return {**c, **e, "moe_intermediate_size": r.of(8, 15, 24, 40), "norm_topk_prob": r.of(True, False, DROP), "decoder_sparse_step": r.of(1, 1, 2, 3),
            "mlp_only_layers": sorted(r.sample(range(n), r.randrange(0, n))) if r.some(0.4) else [], "attention_bias": r.some(0.3),
            **(dict(use_sliding_window=True, sliding_window=r.of(2, 5, 9), max_window_layers=r.of(0, 2)) if r.some(0.4) else {})}


def phi3(r):
    c = {**plain(r, allow_scaling=False), "sliding_window": r.of(None, 3, 9, 40), "head_dim": DROP}
    n = r.of(1, 2, 4)
    head = r.of(4, 8, 12, 16)
    c.update(num_attention_heads=n, num_key_value_heads=r.divisor(n), hidden_size=n * head)
    share = r.of(1.0, 0.5) if head % 4 == 0 else 1.0
    m = int(head * share)
    c.update(rope_parameters=DROP, rope_theta=r.of(50.0, 10000.0), partial_rotary_factor=share)
    if r.some(0.6):
        original = r.of(8, 64)
        factors = dict(short_factor=[round(1 + 0.3 * r.random(), 3) for _ in range(m // 2)], long_factor=[round(1 + 5 * r.random(), 3) for _ in range(m // 2)])
        c.update(rope_scaling={"type": r.of("longrope", "su"), **factors}, max_position_embeddings=256, original_max_position_embeddings=original, length=8 if original == 8 else 24)
    else:
        c.update(rope_scaling=None)
    return c


def phimoe(r):
    c = {**phi3(r), "partial_rotary_factor": DROP, "original_max_position_embeddings": DROP, "num_local_experts": r.of(2, 3, 5, 8), "router_jitter_noise": r.of(0.0, 0.01, 0.2, 1.0, DROP),
         "attention_bias": r.some(), "lm_head_bias": r.some()}
    if c["rope_scaling"]:
        pairs = c["hidden_size"] // c["num_attention_heads"] // 2
        scale = r.of(0.7, 1.2431)
        factors = {name: [round(1 + 5 * r.random(), 3) for _ in range(pairs)] for name in ("short_factor", "long_factor")}
        c["rope_scaling"] = {"type": "longrope", **factors, "short_mscale": scale, "long_mscale": scale, "original_max_position_embeddings": c["length"]}
    return c


def granite(r):
    return {**plain(r), "attention_bias": r.some(), "mlp_bias": r.some(), **r.maybe("attention_multiplier", 0.1, 1.0, 0.0156, DROP), **r.maybe("embedding_multiplier", 12.0, DROP),
            **r.maybe("residual_multiplier", 0.22, DROP), **r.maybe("logits_scaling", 8.0, DROP)}


def granitemoe(r):
    c = {k: v for k, v in granite(r).items() if k != "mlp_bias"}
    experts = r.of(3, 5, 8)
    return {**c, "num_local_experts": experts, "num_experts_per_tok": r.of(*range(1, min(experts, 4)))}


def minimax_m2(r):
    c = {**plain(r), **heads(r)}
    experts = r.of(3, 5, 8)
    return {**c, "num_local_experts": experts, "num_experts_per_tok": r.of(*range(1, min(experts, 4))), **({"rotary_dim": r.of(2, c["head_dim"])} if c.get("head_dim") else {})}


# The fields of the hub that transformers does not read are left out.
def mimo_v2_flash(r):
    c = sizes(r)
    n, kv = layers(r), r.of(1, 2, 3)
    kinds = r.list_of(n, F, S)
    c.update(dict.fromkeys("hybrid_layer_pattern moe_layer_freq partial_rotary_factor rope_theta swa_rope_theta swa_head_dim swa_num_attention_heads swa_num_key_value_heads swa_v_head_dim layernorm_epsilon".split(), DROP))
    full = {"rope_type": "default", "rope_theta": r.of(50.0, 5e6), "partial_rotary_factor": r.of(0.334, 0.5, 1.0)}
    if r.some(0.3):
        full.update(scaling(r))
    c.update(num_hidden_layers=n, layer_types=kinds, mlp_layer_types=r.list_of(n, "dense", "sparse"), intermediate_size=r.of(17, 24, 48), num_key_value_heads=kv, num_attention_heads=2 * kv * r.of(1, 2), head_dim=r.of(8, 12, 24),
             v_head_dim=r.of(3, 8, 14), sliding_window=r.of(1, 4, 9), sliding_window_size=r.of(DROP, 1, 4), attention_value_scale=r.of(DROP, None, 0.4, 1.0), attention_bias=r.some(), tie_word_embeddings=r.some(),
             rope_parameters={F: full, S: {"rope_type": "default", "rope_theta": 90.0, "partial_rotary_factor": r.of(0.5, 1.0)}})
    return {**c, **grouped(r), "moe_intermediate_size": r.of(8, 15, 24), "rms_norm_eps": r.of(1e-5, 0.01)}


def smollm3(r):
    c = {**plain(r), "attention_bias": r.some(0.3), "mlp_bias": r.some(0.3)}
    n = c["num_hidden_layers"]
    c.update(no_rope_layers=r.list_of(n, 0, 1) if r.some() else DROP, no_rope_layer_interval=r.of(2, 3, 4))
    return {**c, **windows(r, c)}


def olmo2(r):
    return {**plain(r), "attention_bias": r.some(0.3)}


def olmo3(r):
    c = {**plain(r), "attention_bias": r.some(0.3), "sliding_window": r.of(1, 3, 6, 15)}
    c["layer_types"] = r.list_of(c["num_hidden_layers"], S, F) if r.some() else DROP
    if r.some(0.3):
        c.update(rope_theta=DROP, rope_scaling=DROP, rope_parameters={F: {**scaling(r), "rope_theta": 400.0}, S: {"rope_type": "default", "rope_theta": r.of(400.0, 90.0)}})
    return c


def gpt_oss(r):
    c = {**plain(r), **experts(r), "sliding_window": r.of(1, 2, 5, 9), **r.maybe("swiglu_limit", 0.5, 1.0, 7.0, DROP)}
    c["layer_types"] = r.list_of(c["num_hidden_layers"], S, F) if r.some() else DROP
    return c


def glm4_moe(r):
    c = plain(r)
    c["head_dim"] = r.of(8, 16, 24)
    share = r.of(0.5, 0.25, 1.0, 0.75)
    n = c["num_hidden_layers"]
    c.update(rope_theta=DROP, rope_scaling=DROP, rope_parameters={"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": share})
    if r.some():
        c.update(rope_parameters=DROP, rope_theta=900.0, rope_scaling=None, partial_rotary_factor=share)
    return {**c, **grouped(r), "use_qk_norm": r.some(), "attention_bias": r.some(), "first_k_dense_replace": r.randrange(0, n + 1), "n_shared_experts": r.of(1, 1, 2, 3), "moe_intermediate_size": r.of(8, 15, 24)}


def latent(r, q_null=True):
    n = r.randrange(1, 7)
    return {"num_attention_heads": n, "num_key_value_heads": n, "kv_lora_rank": r.of(4, 7, 12, 16, 33), "qk_nope_head_dim": r.of(2, 5, 8, 12), "qk_rope_head_dim": r.of(2, 4, 6, 8), "v_head_dim": r.of(3, 6, 8, 14),
            "q_lora_rank": None if q_null and r.some(0.3) else r.of(6, 16, 20)}


def deepseek_v3(r):
    n = layers(r)
    return {**sizes(r), **latent(r), **rope(r), **grouped(r), "num_hidden_layers": n, "first_k_dense_replace": r.randrange(0, n + 1), "n_shared_experts": r.of(1, 2), "moe_intermediate_size": r.of(8, 15, 24),
            "attention_bias": r.some(0.3), "tie_word_embeddings": r.some(0.3), **r.maybe("rope_interleave", True, False), "head_dim": DROP, "qk_head_dim": DROP}


def linear(r):
    hk = r.of(1, 2, 3, 4)
    return {"linear_key_head_dim": r.of(4, 8, 12), "linear_value_head_dim": r.of(3, 6, 8, 16), "linear_num_key_heads": hk, "linear_num_value_heads": hk * r.of(1, 2, 3), "linear_conv_kernel_dim": r.of(2, 3, 4)}


def qwen3_next(r):
    c = {**plain(r, allow_scaling=False), **linear(r), "head_dim": r.of(8, 16, 24), **experts(r, "num_experts"), "attention_bias": r.some(0.3)}
    n = c["num_hidden_layers"]
    return {**c, "layer_types": r.list_of(n, F, L) if r.some() else DROP, "full_attention_interval": r.of(2, 3, 4), "partial_rotary_factor": r.of(0.25, 0.5, 1.0, DROP), "rope_parameters": DROP, "rope_theta": 700.0, "rope_scaling": DROP,
            "moe_intermediate_size": r.of(8, 15), "shared_expert_intermediate_size": r.of(8, 21), "decoder_sparse_step": r.of(1, 2), "norm_topk_prob": r.some()}


def qwen3_5(r):
    c = qwen3_next(r)
    for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size", "decoder_sparse_step", "norm_topk_prob"):
        c.pop(name, None)
    return c


def qwen3_5_moe(r):
    c = qwen3_next(r)
    return {name: value for name, value in c.items() if name not in ("intermediate_size", "decoder_sparse_step", "norm_topk_prob")}


def olmo_hybrid(r):
    c = plain(r, allow_scaling=False)
    n = c["num_hidden_layers"]
    width = r.of(4, 6, 8, 12)
    k = r.of(1, 2, 4)
    c["head_dim"] = DROP
    m = r.of(1, 2, 4)
    c.update(num_attention_heads=m, num_key_value_heads=r.divisor(m), hidden_size=m * r.of(8, 12, 16))
    return {**c, "layer_types": r.list_of(n - 1, F, L) + [F], "linear_key_head_dim": width, "linear_value_head_dim": width, "linear_num_key_heads": k, "linear_num_value_heads": k, "linear_conv_kernel_dim": r.of(2, 4),
            "linear_allow_neg_eigval": r.some(), "attention_bias": r.some(0.3)}


def kimi_linear(r):
    n = layers(r, 3)
    full = sorted(r.sample(range(1, n + 1), r.randrange(1, n)))
    g = grouped(r, "num_experts", "num_experts_per_token", "num_expert_group", "topk_group", "moe_renormalize")
    return {**sizes(r), **latent(r), **g, "num_hidden_layers": n, "first_k_dense_replace": r.randrange(0, n), "num_shared_experts": r.of(1, 2), "moe_intermediate_size": r.of(8, 15, 24), "head_dim": DROP,
            "linear_attn_config": {"full_attn_layers": full, "kda_layers": [l for l in range(1, n + 1) if l not in full], "head_dim": r.of(4, 6, 8, 16), "num_heads": r.of(1, 3, 4), "short_conv_kernel_size": r.of(2, 3, 4)}}


def bailing_hybrid(r):
    n = layers(r, 3)
    g = grouped(r, "num_experts", "num_experts_per_token", "num_expert_group", "topk_group", "moe_renormalize")
    c = {**sizes(r), **latent(r), **g, "num_hidden_layers": n, "layer_types": r.list_of(n - 1, L, F) + [F], "mlp_layer_types": r.list_of(n, "dense", "sparse"), "first_k_dense_replace": 1, "num_shared_experts": r.of(1, 2),
         "linear_head_dim": r.of(4, 6, 8), "linear_num_heads": r.of(1, 3, 4), "kda_safe_gate": r.some(), "kda_lower_bound": r.of(-5.0, -1.0), "moe_intermediate_size": r.of(8, 15), "tie_word_embeddings": r.some(0.3), "q_lora_rank": DROP,
         "qk_head_dim": DROP}
    c["head_dim"] = c["qk_rope_head_dim"]
    c["rope_theta"] = DROP
    c["rope_parameters"] = {"rope_type": "default", "rope_theta": r.of(6e6, 100.0)}
    return c


def zaya(r):
    n = layers(r)
    c = {**sizes(r), "num_hidden_layers": n, "cca_time0": r.of(1, 2, 3), "cca_time1": r.of(1, 2, 3), "num_experts": r.randrange(1, 7), "router_hidden_size": r.of(6, 12, 17), "moe_intermediate_size": r.of(8, 15, 24),
         "attention_bias": r.some(), "lm_head_bias": r.some(), "tie_word_embeddings": r.some()}
    g = r.of(1, 2, 4)
    c.update(num_key_value_heads=g, num_attention_heads=g * r.of(1, 2, 3), head_dim=r.of(4, 8, 12))
    if r.some():
        c.update(sliding_window=r.of(1, 2, 5, 11), layer_types=r.list_of(n, "hybrid", "hybrid_sliding"))
    else:
        c.update(layer_types=r.of(DROP, ["hybrid"] * n), sliding_window=None)
    return c


def beam(r):
    n = layers(r)
    c = {**sizes(r), **heads(r), **grouped(r, "num_experts"), "num_hidden_layers": n, "layer_types": r.list_of(n, S, F) if r.some() else DROP, "mlp_layer_types": r.list_of(n, "dense", "sparse") if r.some() else DROP,
         "sliding_window": r.of(1, 3, 6, 12), "attention_bias": r.some(), "tie_word_embeddings": r.some(), "final_logit_softcapping": r.of(None, 2.0, 30.0), "moe_intermediate_size": r.of(8, 15, 24)}
    return c


def gemma3(r):
    n = layers(r)
    c = {**sizes(r), **heads(r), "num_hidden_layers": n, "layer_types": r.list_of(n, S, F) if r.some() else DROP, "sliding_window_pattern": r.of(1, 2, 3, DROP), "sliding_window": r.of(1, 4, 9), "query_pre_attn_scalar": r.of(1, 7, 168),
         "final_logit_softcapping": r.of(2.0, 30.0, None), "attn_logit_softcapping": r.of(1.0, None, None), "tie_word_embeddings": r.some(), "attention_bias": r.some(0.3), "rope_local_base_freq": r.of(50.0, 10000.0, DROP)}
    return c


def gemma3n(r):
    n = layers(r, 3)
    kinds = r.list_of(n - 1, S, F)
    kinds = [S, F] + kinds[:n - 2] if n > 2 else [S, F]
    own = r.randrange(2, n + 1)
    c = {**sizes(r), **heads(r, 6), "num_hidden_layers": n, "layer_types": kinds, "num_kv_shared_layers": n - own, "altup_num_inputs": r.of(2, 3, 4), "laurel_rank": r.of(1, 4, 9), "sliding_window": r.of(2, 5, 9),
         "hidden_size_per_layer_input": r.of(4, 7, 8), "activation_sparsity_pattern": r.list_of(n, 0.0, 0.5, 0.95), "altup_correct_scale": r.some(), "final_logit_softcapping": r.of(2.0, 30.0, None), "attention_bias": r.some(0.3),
         "intermediate_size": [r.of(32, 64)] * n, "tie_word_embeddings": r.some()}
    c["altup_active_idx"] = r.randrange(0, c["altup_num_inputs"])
    c["vocab_size_per_layer_input"] = c["vocab_size"] - r.of(0, 0, 6)
    return c


def gemma4(r):
    n = layers(r, 3)
    kinds = [S, F] + r.list_of(n - 3, S, F) + [F]
    own = r.randrange(2, n + 1)
    c = {**sizes(r), **heads(r, 6), "num_hidden_layers": n, "layer_types": kinds, "num_kv_shared_layers": r.of(0, n - own), "sliding_window": r.of(2, 5, 9), "final_logit_softcapping": r.of(2.0, 30.0, None), "tie_word_embeddings": r.some(),
         "use_double_wide_mlp": r.some(), "attention_bias": r.some(0.3), "hidden_size_per_layer_input": r.of(0, 6, 8)}
    c["vocab_size_per_layer_input"] = c["vocab_size"]
    c.update(per_layer_config=DROP, global_head_dim=r.of(8, 16, 24))
    if r.some(0.4):
        c.update(attention_k_eq_v=True, num_global_key_value_heads=r.of(c["num_key_value_heads"], 1), num_kv_shared_layers=0)
    if r.some():
        e = experts(r, "num_experts", "top_k_experts")
        c.update(enable_moe_block=True, moe_intermediate_size=r.of(8, 15, 24), use_double_wide_mlp=False, **e)
    return c


def inkling2(r):
    n = layers(r, 2, 8)
    g, w = r.of(1, 2, 3), r.of(1, 2, 3)
    e = experts(r, "n_routed_experts")
    c = {**sizes(r), **e, "num_hidden_layers": n, "layer_types": r.list_of(n, "hybrid", "hybrid_sliding") if r.some(0.7) else DROP, "n_layers_per_attn_res_block": r.randrange(1, n + 1), "num_key_value_heads": g,
         "num_attention_heads": g * r.of(1, 2, 3), "head_dim": r.of(4, 8, 12), "swa_num_key_value_heads": w, "swa_num_attention_heads": w * r.of(1, 2), "swa_head_dim": r.of(4, 8, 10), "sliding_window_size": r.of(1, 3, 6, 15),
         "rel_extent": r.of(2, 9, 30), "d_rel": r.of(2, 4, 5), "conv_kernel_size": r.of(2, 3, 4), "log_scaling_n_floor": r.of(3, 6, 1000), "log_scaling_alpha": r.of(0.1, 0.5), "moe_intermediate_size": r.of(8, 15, 24),
         "mlp_gate_softcap": r.of(1.0, 4.0), "mlp_up_softcap": r.of(1.5, 25.0), "final_logit_softcapping": r.of(4.0, 30.0), "qk_l2_clip_threshold": r.of(1.0, 3.0, 22.6), "rel_l2_clip_threshold": r.of(0.5, 8.0), "route_scale": r.of(1.0, 8.0)}
    c["unpadded_vocab_size"] = c["vocab_size"] - r.of(0, 5, 7)
    return c


# A core of one to three blocks, two or three times: more of both is badly conditioned in f32 (docs/testing.md)
def inkling2_loop(r):
    c = inkling2(r)
    block, core = r.of(1, 1, 2, 3), r.of(1, 2, 3)
    start = block * r.of(1, 1, 2)
    end = start + block * core
    n = end + r.of(0, 1, 2)
    said = dict(core_start=start, core_end=end, num_passes=r.of(1, 2, 2, 3), gate_rank=r.of(3, 8, 12))
    beside = dict(loop_layer_index_start=start, loop_layer_index_end=end, loop_num_passes=said["num_passes"], loop_gate_rank=said["gate_rank"])
    c.update(num_hidden_layers=n, n_layers_per_attn_res_block=block, layer_types=r.list_of(n, "hybrid", "hybrid_sliding") if r.some(0.7) else DROP)
    c.update({**{name: DROP for name in beside}, "loop_config": said} if r.some() else {**beside, "loop_config": r.of(DROP, None)})
    return c


# Rates and gains are stored by initializer_range: as large as what make_published adds
def dory(r):
    before, looped, after, g = r.of(0, 1, 2), r.of(0, 1, 2, 3), r.of(0, 1, 2), r.of(1, 2, 3)
    n = max(before + looped + after, 1)
    looped = n - before - after
    each = r.list_of(n, F, S) if r.some(0.8) else None
    unit = 2 if each and r.some() else 1        # blocks, or layers
    c = {**sizes(r), "intermediate_size": r.of(16, 24, 40), "num_hidden_layers": unit * n, "layer_types": [b for kind in each for b in (kind, "mlp")] if unit == 2 else each, "n_input_layers": unit * before,
         "n_recurrent_layers": r.of(unit * looped, None), "n_output_layers": unit * after, "n_recurrent_loops": r.of(1, 2, 3), "recurrent_kv_cache_mode": r.of("per_loop", "last_loop"), "num_key_value_heads": g,
         "num_attention_heads": g * r.of(1, 2, 3), "head_dim": r.of(4, 8, 12), "sliding_window": r.of(1, 3, 6, 15), "initializer_range": r.of(0.3, 0.5), "ngpt_alpha_init": r.of(0.1, 0.3), "tie_word_embeddings": r.some(0.3),
         "attention_bias": r.some(0.3), "mlp_bias": r.some(0.3), "hidden_act": r.of("silu", "silu", "gelu")}
    kinds = {F: r.of(dict(rope_type="default", rope_theta=500.0), dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=8)), S: r.of(dict(rope_type="default", rope_theta=33.0), dict(rope_type="linear", rope_theta=50.0, factor=2.0))}
    c["rope_parameters"] = r.of(None, kinds)
    c.pop("rms_norm_eps", None)     # it is 1e-6
    return c


def deepseek_v4(r):
    n = layers(r)
    k = r.of(1, 2, 4)
    length = r.of(20, 33, 45)
    c = {**sizes(r, (16, 24, 32, 48)), "num_hidden_layers": n, "num_attention_heads": k * r.of(1, 2), "o_groups": k, "o_lora_rank": r.of(3, 6, 8), "head_dim": r.of(8, 16, 24), "q_lora_rank": r.of(8, 20), "sliding_window": r.of(1, 2, 5, 12, 50),
         "index_n_heads": r.of(6, 9, 12), "index_head_dim": r.of(8, 16), "index_topk": r.of(1, 2, 3, 8), "hc_mult": r.of(2, 3, 4), "hc_sinkhorn_iters": r.of(1, 2, 20), "hc_eps": r.of(1e-6, 1e-3), "scoring_func": r.of("sqrtsoftplus", "sqrtsoftplus", "softmax", "sigmoid"),
         "routed_scaling_factor": r.of(1.0, 1.5), "swiglu_limit": r.of(0.4, 10.0), **experts(r, "n_routed_experts"), "moe_intermediate_size": r.of(8, 20, 15), "tie_word_embeddings": r.some(0.2), "length": length}
    share = r.of(0.5, 0.25)
    scaled = r.of(None, dict(type="yarn", factor=r.of(4, 16), original_max_position_embeddings=r.of(8, 64), beta_fast=r.of(4, 32), beta_slow=1))
    if r.some():
        c.update(layer_types=r.list_of(n, S, C, H), compress_rates={C: r.of(2, 3, 4), H: r.of(4, 5, 8)}, mlp_layer_types=r.list_of(n, "hash_moe", "moe"), partial_rotary_factor=share, qk_rope_head_dim=DROP)
        c["rope_parameters"] = {"main": dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=share), "compress": dict(rope_type="default", rope_theta=900.0, partial_rotary_factor=share)}
        c.update(rope_theta=500.0, compress_rope_theta=900.0)
    else:
        c.update(layer_types=DROP, compress_rates=DROP, mlp_layer_types=DROP, rope_parameters=DROP, partial_rotary_factor=DROP, compress_ratios=r.list_of(n + r.of(0, 1), 0, 4, 128), num_hash_layers=r.randrange(0, n + 1), qk_rope_head_dim=int(c["head_dim"] * share),
                 rope_theta=500.0, compress_rope_theta=900.0, rope_scaling=scaled)
    return c


def qwen4_exp(r):
    n = layers(r, 3)
    kinds = r.list_of(n, I, "full_attention", L)
    able = [l + 1 for l, k in enumerate(kinds) if k == L]
    g = r.of(1, 2)
    c = {**sizes(r, (16, 24, 32, 40)), **linear(r), **experts(r, "num_experts"), "num_hidden_layers": n, "layer_types": kinds, "ple_layer_ids": sorted(r.sample(able, r.randrange(0, min(2, len(able)) + 1))), "num_key_value_heads": g, "num_attention_heads": g * r.of(1, 2, 4),
         "head_dim": r.of(8, 16), "indexer_n_heads": r.of(6, 8), "indexer_head_dim": r.of(8, 12), "indexer_budget": r.of(2, 6, 9), "indexer_compress_ratio": r.of(1, 2, 3), "hc_count": r.of(2, 3, 4), "hc_lowrank": r.of(3, 10), "ple_embed_dim": r.of(12, 24),
         "ple_conv_kernel_size": r.of(2, 3, 4), "ngram_size": r.of(2, 3, 4), "heads_per_ngram": r.of(1, 2), "split_ngram_parts": r.of(1, 2, 4), "output_gate_type": r.of("sigmoid", "silu", None), "norm_topk_prob": r.some(), "attention_bias": r.some(0.3),
         "moe_intermediate_size": r.of(8, 15), "shared_expert_intermediate_size": r.of(8, 21), "length": 40}
    c["indexer_budget"] *= c["indexer_compress_ratio"]
    c["rope_parameters"] = dict(rope_type="default", rope_theta=r.of(100.0, 1e4), partial_rotary_factor=r.of(1.0, 0.5, 0.25))
    return c


def hy_v4(r):
    n = layers(r)
    return {**sizes(r, (16, 24, 32, 48)), **latent(r, q_null=False), **grouped(r), "num_hidden_layers": n, "index_topk": r.of(1, 2, 6, 40), "index_n_heads": r.of(6, 9), "index_head_dim": r.of(10, 16), "indexer_types": ["full"] + r.list_of(n - 1, "full", "shared") if r.some(0.7) else DROP,
            "mlp_layer_types": r.list_of(n, "dense", "sparse") if r.some() else DROP, "hc_mult": r.of(2, 3, 4), "hc_magnitude": r.of(1.0, 2.0), "n_shared_experts": r.of(1, 2), "swiglu_limit": r.of(0.3, 10.0), "layer_types": DROP, "head_dim": DROP, "qk_head_dim": DROP,
            "rope_parameters": {**(scaling(r) if r.some() else {"rope_type": "default"}), "rope_theta": r.of(100.0, 1e4)}, "tie_word_embeddings": r.some(0.3), "length": 36}


def glm5_next(r):
    n = layers(r, 3)
    kinds = r.list_of(n, L, I)
    firsts, shared_ok = [], False
    for l, kind in enumerate(kinds):
        below = l > 0 and kinds[l - 1] == I and kind == I
        firsts.append("shared" if below and r.some(0.4) else "full")
    out = {**sizes(r, (16, 24, 32, 48)), **latent(r, q_null=False), **grouped(r), "num_hidden_layers": n, "layer_types": kinds, "indexer_types": firsts, "mlp_layer_types": r.list_of(n, "dense", "sparse"), "index_kpool": r.of(1, 2, 3, 4), "index_n_heads": r.of(6, 9),
           "index_head_dim": r.of(8, 12), "linear_lower_bound": r.of(-5.0, None, -1.0), "linear_head_dim": r.of(4, 8), "linear_num_heads": r.of(1, 2, 3), "linear_conv_kernel_dim": r.of(2, 4), "hc_mult": r.of(2, 4), "hc_sinkhorn_iters": r.of(2, 20), "swiglu_limit": r.of(0.4, 10.0),
           "n_shared_experts": r.of(1, 2), "head_dim": DROP, "qk_head_dim": DROP, "qk_rope_head_dim": 0, "length": 40}
    out["index_topk"] = out["index_kpool"] * r.of(1, 2, 4)
    return out


def doge(r):
    return {**plain(r), "keep_window_size": r.of(1, 3, 8, 50), "sliding_window": r.of(None, None, 9), "attention_bias": r.some(0.4), "mlp_bias": r.some(0.4), "length": 36}


def hrm_text(r):
    stack, h, l = r.of(1, 2), r.of(1, 2, 3), r.of(1, 2, 3)
    c = {**plain(r, acts=("silu",)), "H_cycles": h, "L_cycles": l, "L_bp_cycles": [1] * h, "num_layers_per_stack": stack, "attention_bias": r.some(0.3), "mlp_bias": r.some(0.3), "embedding_scale": r.of(1.0, 3.0, DROP)}
    c["num_hidden_layers"] = stack * h * (l + 1)
    return c


def minimax(r):
    c = {**plain(r), **experts(r), "block_size": r.of(1, 3, 8, 256), "sliding_window": r.of(None, None, 4)}
    c["layer_types"] = r.list_of(c["num_hidden_layers"], L, F) if r.some(0.7) else DROP
    for kind in ("full_attn", "linear_attn", "mlp"):
        c.update(r.maybe(kind + "_alpha_factor", 1, 3.5, 0.5, DROP), **r.maybe(kind + "_beta_factor", 1, 0.25, 1.5, DROP))
    return c


def longcat_flash(r):
    c = {**sizes(r), **latent(r, q_null=False), **rope(r), "num_layers": r.of(1, 2, 3), "n_routed_experts": r.of(2, 4, 6), "zero_expert_num": r.of(0, 1, 3, 8), "routed_scaling_factor": r.of(1.0, 2.5, 6.0), "ffn_hidden_size": r.of(24, 40), "expert_ffn_hidden_size": r.of(8, 13),
         "attention_bias": r.some(0.3), "router_bias": r.some(0.2), "tie_word_embeddings": r.some(0.3), "num_key_value_heads": DROP, "qk_head_dim": DROP}
    c["head_dim"] = c["qk_rope_head_dim"]
    c["moe_topk"] = r.randrange(1, min(4, c["n_routed_experts"] + c["zero_expert_num"]) + 1)
    return c


# In Muse Spark and Step 3.7 the tokens from 96 on stand for images.
def step3p7(r):
    n = layers(r)
    full, sliding = r.of(1, 2), r.of(1, 2)
    draft = r.of(0, 1)
    kinds = r.list_of(n + draft, F, S)
    head = r.of(8, 12, 16)
    c = {**sizes(r), "num_hidden_layers": n, "num_nextn_predict_layers": draft, "layer_types": kinds, "head_dim": head, "num_attention_groups": full, "num_attention_heads": full * r.of(1, 2, 3), "sliding_window": r.of(1, 4, 9),
         "attention_other_setting": {"attention_type": S, "num_attention_groups": full, "num_attention_heads": full * r.of(1, 2, 3), "head_dim": head, "true_head_dim": head}, "rope_theta": [r.of(500.0) if k == F else 90.0 for k in kinds],
         "partial_rotary_factors": [0.5 if k == F else 1.0 for k in kinds], "rope_scaling": r.of(None, DROP, {"rope_type": "llama3", "factor": 2.0, "original_max_position_embeddings": 16, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
         "moe_layers_enum": ",".join(str(l) for l in range(n) if r.some(0.7)), "moe_num_experts": r.of(3, 6), "moe_top_k": r.of(1, 2, 3), "moe_intermediate_size": r.of(8, 15), "share_expert_dim": r.of(8, 15, 20),
         "swiglu_limits": r.list_of(n + draft, 0.0, 0.5, 7.0), "swiglu_limits_shared": r.list_of(n + draft, 0.0, 0.4, 16.0), "moe_router_scaling_factor": r.of(1.0, 3.0), "tie_word_embeddings": False}
    c["vocab_size"] = min(c["vocab_size"], 96)
    return c


def muse_spark(r):
    n = layers(r)
    c = {**sizes(r), **heads(r), "num_hidden_layers": n, "layer_types": r.list_of(n, F, S) if r.some(0.7) else DROP, "layer_rope_theta": r.list_of(n, 0, 100.0, 10000.0) if r.some(0.7) else DROP, "mlp_layer_types": r.list_of(n, "dense", "sparse") if r.some(0.7) else DROP,
         **experts(r), "moe_hidden_size": r.of(10, 24, 32), "moe_intermediate_size": r.of(8, 15), "residual_gate_temperature": r.of(0.1, 0.3, 1.0), "post_norm_eps": r.of(1e-8, 1e-5), "qk_scale_factor": r.of(1.0, 2.5, 5.47), "output_multiplier": r.of(0.2, 0.6),
         "final_logit_softcapping": r.of(2.0, 20.0), "sliding_window": r.of(1, 3, 6), "attention_bias": r.some(0.3), "routed_scaling_factor": r.of(1.0, 1.7)}
    n = r.of(1, 2, 4, 8)
    c["vocab_size"] = min(c["vocab_size"], 96)
    c.update(hidden_size=32, num_attention_heads=n, num_key_value_heads=r.divisor(n))      # the width is that of the towers beside it
    return c


# A family: its draw, and where the fields stand
FAMILIES = {name: (globals()[name.split("-")[0]], "") for name in (
    "llama mistral qwen2 qwen3 mixtral qwen3_moe phi3 phimoe granite granitemoe minimax_m2 mimo_v2_flash smollm3 olmo2 olmo3 gpt_oss glm4_moe deepseek_v3 qwen3_next olmo_hybrid kimi_linear bailing_hybrid zaya beam "
    "deepseek_v4 hy_v4 doge hrm_text minimax longcat_flash").split()}
FAMILIES.update({name: (globals()[name], "text_config.") for name in "qwen4_exp glm5_next step3p7 muse_spark".split()})
FAMILIES.update(qwen3_5_text=(qwen3_5, ""), qwen3_5_moe_text=(qwen3_5_moe, ""), gemma3_text=(gemma3, ""), gemma3n_text=(gemma3n, ""), gemma4_text=(gemma4, ""), inkling2_text=(inkling2, ""), inkling2_loop_text=(inkling2_loop, ""), dory=(dory, ""))
# Text parts that stand in a multimodal checkpoint, too: its model_type, and what the names of its tensors begin with instead
WRAPPERS = {"qwen3_5_text": ("qwen3_5", "model.", "model.language_model."), "qwen3_5_moe_text": ("qwen3_5_moe", "model.", "model.language_model."), "gemma3n_text": ("gemma3n", "model.", "model.language_model."), "gemma4_text": ("gemma4", "model.", "model.language_model."), "inkling2_text": ("inkling2", "", ""), "inkling2_loop_text": ("inkling2_loop", "", "")}
KEPT_OUTSIDE = ("length",)
# Fields with defaults under which a model stays small; any may be absent.
OPTIONAL = ("rms_norm_eps hidden_act hidden_activation rope_theta tie_word_embeddings norm_topk_prob moe_renormalize routed_scaling_factor route_scale sliding_window n_group topk_group attention_bias mlp_bias swiglu_limit hc_eps "
            "hc_sinkhorn_iters hc_magnitude final_logit_softcapping output_multiplier qk_scale_factor post_norm_eps residual_gate_temperature router_bias block_size mla_scale_q_lora mla_scale_kv_lora embedding_scale use_qk_norm "
            "altup_coef_clip altup_correct_scale altup_active_idx activation_sparsity_pattern num_kv_shared_layers use_double_wide_mlp enable_moe_block kda_safe_gate kda_lower_bound linear_lower_bound rope_interleave max_position_embeddings "
            "log_scaling_alpha log_scaling_n_floor mlp_gate_softcap mlp_up_softcap qk_l2_clip_threshold rel_l2_clip_threshold use_sliding_window max_window_layers decoder_sparse_step mlp_only_layers no_rope_layer_interval linear_allow_neg_eigval "
            "scoring_func compress_rope_theta output_gate_type moe_router_scaling_factor cca_time0 cca_time1 lm_head_bias").split()


def absent(r, config):
    """Some optional fields of the language model, as changes that leave them out, and perhaps one that is null"""
    where = "text_config." if "text_config" in config else ""
    part = config.get("text_config", config)
    out = {where + name: DROP for name in OPTIONAL if name in part and r.some(0.12)}
    if r.some(0.3):
        out[where + r.choice([name for name in sorted(part) if name != "model_type"])] = None
    return out


def placed(changes, where):
    return {name if name in KEPT_OUTSIDE else where + name: value for name, value in changes.items()}


def saved_again(folder):
    """The config as transformers writes it: every field, in the form of version 5"""
    config = transformers.AutoConfig.from_pretrained(folder)
    config.save_pretrained(folder)


def in_files(folder, r):
    tensors = load_file(os.path.join(folder, "model.safetensors"))
    n = r.randrange(2, 5)
    names = list(tensors)
    r.shuffle(names)
    where = {name: f"model-{i % n + 1:05d}-of-{n:05d}.safetensors" for i, name in enumerate(names)}
    for file in sorted(set(where.values())):
        save_file({name: tensors[name].contiguous() for name in names if where[name] == file}, os.path.join(folder, file), metadata={"format": "pt"})
    os.remove(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": sum(t.numel() * 4 for t in tensors.values())}, "weight_map": where}, f)


EXPERT = re.compile(r"^(.*mlp\.experts)\.(\d+)\.(gate|up|down)_proj\.weight$")


def stack_experts(tensors):
    """Experts one by one become the two tensors that transformers 5 holds in memory; False, and nothing is changed, where there are none, or not three matrices of each (LongCat-Flash as transformers saves it)"""
    found = {}
    for name in tensors:
        m = EXPERT.match(name)
        if m:
            found.setdefault(m[1], {})[int(m[2]), m[3]] = tensors[name]
    if any(len(parts) != 3 * (1 + max(i for i, _ in parts)) for parts in found.values()):
        return False
    for name in [name for name in tensors if EXPERT.match(name)]:
        del tensors[name]
    for prefix, parts in found.items():
        n = 1 + max(i for i, _ in parts)
        tensors[prefix + ".gate_up_proj"] = torch.stack([torch.cat([parts[i, "gate"], parts[i, "up"]]) for i in range(n)])
        tensors[prefix + ".down_proj"] = torch.stack([parts[i, "down"] for i in range(n)])
    return bool(found)


def stacked(folder):
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    if not stack_experts(tensors):
        return False
    save_file({k: t.contiguous() for k, t in tensors.items()}, path, metadata={"format": "pt"})
    return True


def wrapped(folder, family):
    outer, inside, below = WRAPPERS[family]
    config, weights = os.path.join(folder, "config.json"), os.path.join(folder, "model.safetensors")
    with open(config) as f:
        text = json.load(f)
    with open(config, "w") as f:
        json.dump({"model_type": outer, "text_config": text, "vision_config": {"hidden_size": 8}}, f, indent=2)
    tensors = {below + name[len(inside):] if name.startswith(inside) else name: t for name, t in load_file(weights).items()}
    tensors["model.vision_tower.patch_embed.weight" if outer.startswith("gemma") else "model.visual.patch_embed.weight"] = torch.zeros(8, 3)
    save_file(tensors, weights, metadata={"format": "pt"})


def made(family, seed, folder, plain=False, also=None):
    """Makes the folder and returns what it is, in words; draws again what transformers cannot make. plain: stored as make_published.py does. also: changes the draw"""
    draw, where = FAMILIES[family]
    reason = ""
    for attempt in range(TRIES):
        r = Draw(f"{family} {seed} {attempt}")
        changes = placed(draw(r), where)
        with open(os.path.join(PUBLISHED, family, "config.json")) as f:
            changes.update(absent(r, {**json.load(f), **changes} if not where else json.load(f)))
        if also:
            also(r, changes, where, family)
        length = changes.pop("length", r.of(14, 20, 27))
        try:
            make(family, folder, changes, seed=seed, length=length, read_back=family not in NOT_READ_BACK)
        except Exception as error:                      # whatever transformers raises: it is no finding about hadal
            reason = f"{type(error).__name__}: {str(error)[:300]}"
            continue
        said = []
        if plain:
            return {k: "DROP" if v is DROP else v for k, v in changes.items()}, said
        if r.some(0.4):
            saved_again(folder)
            said.append("saved again")
        if family in WRAPPERS and r.some(0.4):
            wrapped(folder, family)
            said.append("wrapped")
        if r.some(0.3) and stacked(folder):
            said.append("experts stacked")
        if r.some(0.3):
            in_files(folder, r)
            said.append("in files")
        return {k: "DROP" if v is DROP else v for k, v in changes.items()}, said
    raise RuntimeError(f"transformers made none of {TRIES} draws; the last: {reason}")


if __name__ == "__main__":
    search(made, RuntimeError, FAMILIES, "")
