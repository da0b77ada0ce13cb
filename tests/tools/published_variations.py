#!/usr/bin/env python3
"""Variations of the published families, made by transformers (make_published.py) and run by hadal.

    published_variations.py HADAL WORK_FOLDER [FAMILY ...]

Each family of tests/published with other options: biases, tied heads, shapes of heads, layer types, windows shorter than the prompt, routing, both
generations of configs. Evaluated and compiled, in one call and token by token behind the fifth, with the limits of tests/published/run.sh.
Not a test of ctest: it needs transformers. What it finds becomes a folder of tests/published.
"""
import os
import sys
import traceback

from make_published import DROP, make
from model_search import COMPILED, EVALUATOR, hadal_run, said_of, tensor

NEW_ROPE = dict(rope_theta=DROP, rope_scaling=DROP)


def rope(**parameters):
    return {**NEW_ROPE, "rope_parameters": parameters}


def old_rope(theta, scaling=None):
    return dict(rope_parameters=DROP, rope_theta=theta, rope_scaling=scaling)


OLD_YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=1.0)
YARN = dict(OLD_YARN, rope_theta=300.0)
LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8)
S, F, L = "sliding_attention", "full_attention", "linear_attention"
EQUAL = dict(linear_key_head_dim=6, linear_value_head_dim=6)
TEXT = "text_config."
LIKE_NEW = dict(initializer_range=0.3, ngpt_alpha_init=0.2)     # as large as what make_published adds: rates and gains are stored by it, and gains squared

MIMO_LISTS = ("hybrid_layer_pattern", "moe_layer_freq")
MIMO_V5 = {name: DROP for name in (*MIMO_LISTS, "partial_rotary_factor", "rope_theta", "sliding_window_size", "swa_rope_theta", "swa_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads", "swa_v_head_dim")}

VARIATIONS = {
    "llama": [
        dict(attention_bias=False, mlp_bias=True, tie_word_embeddings=False, num_key_value_heads=1, rope_scaling=DROP),
        dict(head_dim=14, num_key_value_heads=2, hidden_act="gelu", **rope(**LLAMA3)), dict(rms_norm_eps=0.01, hidden_size=40, head_dim=6, **old_rope(77.0, OLD_YARN)),
        dict(hidden_act="relu", vocab_size=33, intermediate_size=17, **rope(rope_type="linear", rope_theta=50.0, factor=2.0)),
    ],
    "mistral": [
        dict(sliding_window=None, head_dim=DROP), dict(sliding_window=1), dict(sliding_window=3, tie_word_embeddings=True, num_key_value_heads=4),
        dict(sliding_window=19, hidden_act="gelu_pytorch_tanh", **old_rope(123.0)),
    ],
    "qwen2": [
        dict(use_sliding_window=True, sliding_window=4, max_window_layers=2), dict(tie_word_embeddings=False, num_key_value_heads=1, **rope(**YARN)),
        dict(layer_types=[S, F, F, S], use_sliding_window=True, sliding_window=2), dict(use_sliding_window=True, sliding_window=6, max_window_layers=0, hidden_act="gelu"),
    ],
    "qwen3": [
        dict(attention_bias=False, tie_word_embeddings=False, head_dim=10, num_key_value_heads=2), dict(use_sliding_window=True, sliding_window=5, max_window_layers=3),
        dict(layer_types=[F, S, S, F, S], use_sliding_window=True, sliding_window=3, num_key_value_heads=1), dict(**rope(**LLAMA3), rms_norm_eps=0.1),
    ],
    "mixtral": [
        dict(sliding_window=4), dict(num_experts_per_tok=1, tie_word_embeddings=True), dict(num_local_experts=7, num_experts_per_tok=7, head_dim=10, hidden_act="gelu"),
        dict(**rope(rope_type="default", rope_theta=300.0), num_key_value_heads=1, num_experts_per_tok=3),
    ],
    "qwen3_moe": [
        dict(norm_topk_prob=False, decoder_sparse_step=2), dict(mlp_only_layers=[1, 3], num_experts_per_tok=3), dict(use_sliding_window=True, sliding_window=4, max_window_layers=0),
        dict(norm_topk_prob=DROP, attention_bias=True, tie_word_embeddings=True), dict(num_local_experts=DROP, num_experts=6, num_experts_per_tok=1, **old_rope(99.0)),
    ],
    "phi3": [
        dict(sliding_window=None, tie_word_embeddings=True), dict(**old_rope(500.0), partial_rotary_factor=0.5, num_key_value_heads=4),
        dict(max_position_embeddings=64, original_max_position_embeddings=8, **old_rope(100.0, dict(type="longrope", short_factor=[1.0, 1.1, 1.3, 1.5, 2.0, 3.0], long_factor=[2.0, 2.5, 3.0, 4.0, 5.0, 9.0]))) | dict(length=8),
        dict(max_position_embeddings=64, original_max_position_embeddings=32, sliding_window=4, **old_rope(100.0, dict(type="su", original_max_position_embeddings=32, short_factor=[1.0, 1.1, 1.3, 1.5, 2.0, 3.0], long_factor=[2.0, 2.5, 3.0, 4.0, 5.0, 9.0]))),
    ],
    "phimoe": [
        dict(attention_bias=False, lm_head_bias=False, router_jitter_noise=0.02, sliding_window=None, tie_word_embeddings=True), dict(tie_word_embeddings=True, router_jitter_noise=1.0, **old_rope(50.0)),
        dict(num_local_experts=2, router_jitter_noise=0.0, hidden_act="gelu", num_key_value_heads=1, sliding_window=3), dict(num_local_experts=7, router_jitter_noise=DROP, rms_norm_eps=0.05, **rope(
            rope_type="longrope", rope_theta=100.0, short_factor=[1.0, 1.1, 1.3, 1.5, 2.0, 3.0], long_factor=[2.0, 2.5, 3.0, 4.0, 5.0, 9.0], short_mscale=0.8, long_mscale=0.8, original_max_position_embeddings=20)),
    ],
    "granite": [
        dict(attention_bias=False, mlp_bias=False, tie_word_embeddings=True), dict(residual_multiplier=DROP, logits_scaling=DROP, embedding_multiplier=DROP, attention_multiplier=DROP),
        dict(**old_rope(50.0, dict(type="linear", factor=3.0)), num_key_value_heads=1, logits_scaling=7.5),
    ],
    "granitemoe": [
        dict(attention_bias=True, tie_word_embeddings=False), dict(residual_multiplier=DROP, logits_scaling=DROP, embedding_multiplier=DROP, attention_multiplier=DROP),
        dict(num_local_experts=3, num_experts_per_tok=1, hidden_act="gelu", **old_rope(50.0, dict(type="linear", factor=3.0))),
    ],
    "minimax_m2": [
        dict(rotary_dim=DROP, **old_rope(50.0), tie_word_embeddings=True), dict(rotary_dim=12, num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=3),
        dict(rotary_dim=DROP, partial_rotary_factor=0.5, hidden_act="gelu", rms_norm_eps=0.05),
    ],
    "mimo_v2_flash": [
        dict(MIMO_V5, layer_types=[S, F, F], mlp_layer_types=["sparse", "dense", "sparse"], sliding_window=3, attention_bias=True, tie_word_embeddings=True), dict(MIMO_V5, sliding_window=1, layer_types=[S, S, S]),
        dict(n_group=2, topk_group=1, routed_scaling_factor=2.5, norm_topk_prob=False, hidden_act="gelu", attention_value_scale=None), dict(num_hidden_layers=7, **{name: DROP for name in MIMO_LISTS}),
        dict(MIMO_V5, layer_types=[F, S, F], rope_parameters={F: dict(YARN, partial_rotary_factor=0.5), S: dict(rope_type="default", rope_theta=90.0, partial_rotary_factor=1.0)}),
        dict(MIMO_V5, head_dim=6, v_head_dim=14, num_attention_heads=6, num_key_value_heads=3, rms_norm_eps=1e-5, rope_parameters={F: dict(rope_type="linear", rope_theta=50.0, factor=2.0), S: dict(rope_type="default", rope_theta=90.0)}),
    ],
    "smollm3": [
        dict(no_rope_layers=DROP, no_rope_layer_interval=2), dict(no_rope_layers=[0, 0, 1, 1, 0, 1], tie_word_embeddings=False, attention_bias=True),
        dict(use_sliding_window=True, sliding_window=4, layer_types=[S, F, S, S, F, F]), dict(mlp_bias=True, **old_rope(1000.0, OLD_YARN)),
        dict(use_sliding_window=True, sliding_window=4, layer_types=DROP),
    ],
    "olmo2": [dict(attention_bias=True, tie_word_embeddings=True), dict(num_key_value_heads=1, **old_rope(77.0)), dict(rms_norm_eps=0.05, hidden_act="gelu", num_key_value_heads=4)],
    "olmo3": [
        dict(sliding_window=3, layer_types=[F, S, F, S]), dict(**old_rope(300.0, OLD_YARN), tie_word_embeddings=True),
        dict(attention_bias=True, num_key_value_heads=4, sliding_window=1), dict(num_hidden_layers=5, **rope(full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=80.0))),
        dict(**rope(full_attention=dict(rope_type="default", rope_theta=60.0), sliding_attention=dict(rope_type="default", rope_theta=60.0))),
    ],
    "gpt_oss": [
        dict(sliding_window=2, num_experts_per_tok=1, swiglu_limit=7.0), dict(rope_scaling=DROP, num_key_value_heads=4), dict(layer_types=[F, F, S, S], num_local_experts=3, num_experts_per_tok=3),
        dict(**rope(**YARN, truncate=True), tie_word_embeddings=True), dict(swiglu_limit=0.5, head_dim=10, rms_norm_eps=0.01),
    ],
    "glm4_moe": [
        dict(use_qk_norm=False, attention_bias=False), dict(n_group=1, topk_group=1, num_experts_per_tok=3, norm_topk_prob=False), dict(first_k_dense_replace=0, n_shared_experts=2),
        dict(n_group=4, topk_group=2, partial_rotary_factor=0.25, tie_word_embeddings=True), dict(first_k_dense_replace=4, **rope(rope_type="default", rope_theta=90.0, partial_rotary_factor=0.5)),
    ],
    "deepseek_v3": [
        dict(q_lora_rank=None, rope_scaling=None), dict(n_group=1, topk_group=1, num_experts_per_tok=2, norm_topk_prob=False), dict(rope_interleave=False, first_k_dense_replace=0),
        dict(attention_bias=True, n_shared_experts=1, **rope(**YARN, mscale=0.5, mscale_all_dim=0.5)), dict(rope_scaling=dict(type="yarn", factor=4.0, beta_fast=4.0, beta_slow=1.0, original_max_position_embeddings=16), tie_word_embeddings=True),
    ],
    "qwen3_5_text": [
        dict(layer_types=[F, L, F, L], attention_bias=True, linear_num_key_heads=4), dict(full_attention_interval=DROP, linear_conv_kernel_dim=2, tie_word_embeddings=True, partial_rotary_factor=DROP, num_key_value_heads=1),
        dict(**rope(**YARN, partial_rotary_factor=0.5, mrope_section=[2, 1, 1]), partial_rotary_factor=DROP, output_gate_type="swish"), dict(**old_rope(99.0), partial_rotary_factor=1.0, linear_num_key_heads=1, rms_norm_eps=0.01),
    ],
    "qwen3_5_moe_text": [dict(layer_types=DROP, num_hidden_layers=5, num_experts_per_tok=1), dict(num_experts_per_tok=4, tie_word_embeddings=True, attention_bias=True), dict(full_attention_interval=2, layer_types=DROP, rope_parameters=DROP, rope_theta=77.0)],
    "qwen3_5": [{TEXT + "layer_types": DROP, TEXT + "full_attention_interval": 3}, {TEXT + "tie_word_embeddings": False, "tie_word_embeddings": False}],
    "qwen3_5_moe": [{TEXT + "num_experts_per_tok": 5, TEXT + "linear_num_key_heads": 4}],
    "qwen3_next": [
        dict(full_attention_interval=2, num_experts_per_tok=1), dict(layer_types=[F, L, L, F], norm_topk_prob=False), dict(mlp_only_layers=[0, 2], linear_num_key_heads=4),
        dict(decoder_sparse_step=2, attention_bias=True, linear_conv_kernel_dim=2), dict(tie_word_embeddings=True, partial_rotary_factor=0.5, linear_num_key_heads=1),
    ],
    "olmo_hybrid": [
        # transformers 5.23 cuts the convolutions in three equal parts on saving: keys are as wide as values here
        dict(layer_types=[F, L, F, L], **EQUAL), dict(linear_allow_neg_eigval=False, tie_word_embeddings=True, **EQUAL), dict(rope_parameters=None, num_key_value_heads=4, **EQUAL),
        dict(rope_parameters=dict(rope_type="default", rope_theta=None), **EQUAL), dict(rope_parameters=DROP, rope_theta=None, **EQUAL), dict(**old_rope(70.0), **EQUAL),
        dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=6, attention_bias=True, linear_conv_kernel_dim=2),
    ],
    "bailing_hybrid": [
        dict(kda_safe_gate=False), dict(num_expert_group=1, topk_group=1, moe_renormalize=False), dict(first_k_dense_replace=0, mlp_layer_types=["sparse"] * 6),
        dict(kda_lower_bound=-2.0, num_shared_experts=2, tie_word_embeddings=True), dict(layer_group_size=2, layer_types=[L, F] * 3, linear_head_dim=6),
    ],
    "zaya": [
        dict(num_experts=2, attention_bias=True), dict(cca_time0=3, cca_time1=2), dict(tie_word_embeddings=False, num_key_value_heads=4),
        dict(sliding_window=4, layer_types=["hybrid", "hybrid_sliding", "hybrid_sliding", "hybrid"]), dict(num_key_value_heads=1, num_attention_heads=6, lm_head_bias=True),
    ],
    "beam": [
        dict(n_group=1, topk_group=1, norm_topk_prob=False), dict(layer_types=[F] * 6, tie_word_embeddings=True), dict(layer_types=[S] * 6, mlp_layer_types=["sparse"] * 6, sliding_window=2),
        dict(mlp_layer_types=["dense"] * 6, num_key_value_heads=1), dict(final_logit_softcapping=None, attention_bias=True),
    ],
    "gemma3_text": [
        dict(rope_scaling=None, sliding_window_pattern=DROP, num_hidden_layers=7), dict(rope_scaling=OLD_YARN, sliding_window=1, rope_local_base_freq=DROP, rope_theta=DROP), dict(sliding_window_pattern=1, query_pre_attn_scalar=DROP),
        dict(layer_types=[S, F, S, S], final_logit_softcapping=2.0, tie_word_embeddings=False, attention_bias=True), dict(rope_scaling=dict(type="linear", factor=2.0), attn_logit_softcapping=1.0, num_key_value_heads=1),
        dict(**rope(rope_type="linear", factor=2.0, rope_theta=50.0), rope_local_base_freq=DROP), dict(**rope(full_attention=YARN, sliding_attention=dict(rope_type="linear", factor=3.0, rope_theta=80.0)), rope_local_base_freq=DROP),
        dict(**rope(full_attention=dict(rope_type="default"), sliding_attention=None), rms_norm_eps=0.01),
    ],
    "gemma3": [{TEXT + "tie_word_embeddings": True, "tie_word_embeddings": True, TEXT + "attention_bias": False}, {TEXT + "layer_types": DROP, TEXT + "rope_parameters": DROP, TEXT + "rope_scaling": dict(rope_type="linear", factor=8.0), TEXT + "final_logit_softcapping": None}],
    "gemma3n_text": [
        dict(num_kv_shared_layers=0, altup_num_inputs=2), dict(altup_correct_scale=False, activation_sparsity_pattern=[0.0] * 6), dict(final_logit_softcapping=2.0, altup_active_idx=1),
        dict(altup_num_inputs=3, laurel_rank=1, sliding_window=2, num_kv_shared_layers=3), dict(tie_word_embeddings=False, num_key_value_heads=1, layer_types=[F, S, F, S, F, S]),
    ],
    "gemma4_text": [
        dict(num_kv_shared_layers=0, use_double_wide_mlp=False), dict(hidden_size_per_layer_input=0, num_kv_shared_layers=0), dict(final_logit_softcapping=None, tie_word_embeddings=False),
        dict(attention_k_eq_v=True, num_kv_shared_layers=0), dict(layer_types=[S, F, S, F, S, F], per_layer_config=DROP, global_head_dim=12, sliding_window=2),
        dict(per_layer_config=None, global_head_dim=12),
        dict(attention_bias=True),
    ],
    "gemma4-experts": [dict(top_k_experts=1), dict(attention_k_eq_v=False, top_k_experts=6), dict(hidden_size_per_layer_input=8, vocab_size_per_layer_input=64, num_experts=3)],
    "inkling2_text": [
        dict(n_layers_per_attn_res_block=1), dict(n_layers_per_attn_res_block=4, layer_types=["hybrid"] * 6), dict(layer_types=["hybrid_sliding"] * 6, n_layers_per_attn_res_block=3, sliding_window_size=2),
        dict(conv_kernel_size=2, unpadded_vocab_size=90, num_experts_per_tok=1), dict(rel_extent=3, log_scaling_n_floor=1000, num_key_value_heads=4, swa_num_key_value_heads=6),
        dict(layer_types=DROP, num_hidden_layers=7, n_layers_per_attn_res_block=6),
    ],
    "inkling2_loop_text": [         # the core: one block, without messages, without layers after it, of five blocks, said twice
        dict(loop_layer_index_end=4), dict(loop_num_passes=1), dict(loop_layer_index_end=8, rms_norm_eps=0.01, loop_num_passes=2),
        dict(n_layers_per_attn_res_block=1, loop_layer_index_start=1, rms_norm_eps=1e-3, loop_num_passes=2), dict(n_layers_per_attn_res_block=1, loop_layer_index_start=1, loop_layer_index_end=8, loop_num_passes=2, loop_gate_rank=12),
        dict(loop_config=dict(core_end=4, num_passes=2), loop_gate_rank=3, layer_types=["hybrid"] * 8), dict(layer_types=["hybrid_sliding"] * 8, sliding_window_size=2, loop_layer_index_start=4, loop_config=dict(core_start=2)),
        dict(layer_types=DROP, conv_kernel_size=2, num_experts_per_tok=1, n_layers_per_attn_res_block=4, loop_layer_index_start=4, loop_layer_index_end=8, loop_config=None),
    ],
    "dory": [dict(LIKE_NEW, **changes) for changes in (     # blocks and pairs, one loop and four, parts that have no layer
        dict(n_recurrent_loops=1), dict(n_recurrent_loops=4, recurrent_kv_cache_mode="last_loop", hidden_act="gelu"), dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True, n_recurrent_loops=3),
        dict(n_input_layers=0, n_output_layers=6), dict(n_output_layers=0, n_recurrent_layers=8, num_key_value_heads=4), dict(n_input_layers=6, n_recurrent_layers=0, n_output_layers=6),
        dict(layer_types=[S, F, S, F, F, S], num_hidden_layers=6, n_input_layers=2, n_recurrent_layers=None, n_output_layers=1, rope_parameters=DROP, sliding_window=1),
        dict(layer_types=DROP, num_hidden_layers=6, n_input_layers=1, n_recurrent_layers=2, n_output_layers=3, initializer_range=0.5, ngpt_alpha_init=-0.2, head_dim=6),
        dict(rope_parameters={F: dict(YARN), S: dict(rope_type="linear", rope_theta=50.0, factor=2.0)}), dict(rope_parameters={F: dict(LLAMA3), S: dict(YARN, truncate=False)}, length=30),
        dict(rope_parameters={F: dict(rope_type="yarn", factor=4.0, rope_theta=100.0), S: dict(rope_type="default", rope_theta=33.0)}, max_position_embeddings=16),
    )],
    "kimi_linear": [
        {"num_expert_group": 4, "topk_group": 2}, {"moe_renormalize": False, "num_shared_experts": 2}, {"q_lora_rank": 10}, {"first_k_dense_replace": 2, "linear_attn_config.short_conv_kernel_size": 2},
        {"linear_attn_config.full_attn_layers": [1, 3, 5], "linear_attn_config.kda_layers": [2, 4]},
    ],
    "hrm_text": [
        dict(H_cycles=1, L_cycles=3, num_hidden_layers=8, L_bp_cycles=[3]), dict(mlp_bias=True, tie_word_embeddings=True), dict(attention_bias=True, num_key_value_heads=2),
        dict(num_layers_per_stack=DROP, num_hidden_layers=2, embedding_scale=DROP, initializer_range=0.5, L_bp_cycles=DROP, L_cycles=DROP, H_cycles=DROP),
        dict(H_cycles=3, L_cycles=1, num_hidden_layers=12, L_bp_cycles=[1]),
    ],
}

# Lists by layer of Step 3.7 go on for the layers that draft tokens: one here.
STEP_V5 = {TEXT + k: DROP for k in ("num_attention_groups", "attention_other_setting", "rope_theta", "partial_rotary_factors", "rope_scaling", "moe_layers_enum", "moe_num_experts", "moe_top_k")}
STEP_V5.update({TEXT + k: v for k, v in dict(
    num_key_value_heads=1, num_sliding_attention_heads=5, per_layer_config={"1": dict(num_attention_heads=5), "2": dict(num_attention_heads=5), "4": dict(num_attention_heads=5)},
    rope_parameters=dict(full_attention=dict(rope_type="yarn", rope_theta=500.0, partial_rotary_factor=0.5, factor=4.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=1.0),
                         sliding_attention=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=1.0)),
    n_routed_experts=5, num_experts_per_tok=3, mlp_layer_types=["dense", "sparse", "dense", "sparse", "sparse"], layer_types=[F, S, S, F, S], num_nextn_predict_layers=0,
    swiglu_limits=None, swiglu_limits_shared=[0.0, 0.5, 0.0, 0.0, 0.2], query_pre_attn_scalar=5).items()})
VARIATIONS.update({
    "minimax": [
        dict(layer_types=DROP, block_size=3), dict(layer_types=[F, F, L, L], sliding_window=4, tie_word_embeddings=True, num_key_value_heads=6),
        dict(layer_types=[L] * 4, hidden_act="gelu", num_attention_heads=4, head_dim=10, length=30, block_size=256),
        dict(**old_rope(77.0, OLD_YARN), num_experts_per_tok=1, full_attn_beta_factor=0.25, rms_norm_eps=0.1), dict(layer_types=[F] * 4, num_hidden_layers=4, head_dim=DROP, num_attention_heads=4),
        {k: DROP for k in ("full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor", "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor")},
    ],
    "longcat_flash": [
        dict(zero_expert_num=0, tie_word_embeddings=True), dict(zero_expert_num=9, moe_topk=6, attention_bias=True), dict(zero_expert_num=2, n_routed_experts=2, moe_topk=2, hidden_act="gelu"),
        dict(rope_theta=DROP, rope_parameters=dict(**YARN, mscale=0.5, mscale_all_dim=0.7), num_layers=DROP, num_hidden_layers=4), dict(qk_rope_head_dim=10, head_dim=10, v_head_dim=4, qk_nope_head_dim=3, num_attention_heads=5, q_lora_rank=7, router_bias=True),
        dict(num_layers=2, zero_expert_num=1, routed_scaling_factor=1.0, moe_topk=2),
    ],
    "step3p7": [
        STEP_V5, {TEXT + "swiglu_limits": DROP, TEXT + "swiglu_limits_shared": DROP, TEXT + "moe_layers_enum": [0, 4], TEXT + "attention_bias": True, TEXT + "mlp_bias": True},
        {TEXT + "attention_other_setting": DROP, TEXT + "rope_scaling": DROP, TEXT + "partial_rotary_factors": DROP, TEXT + "rope_theta": 300.0, TEXT + "moe_layers_enum": DROP, TEXT + "share_expert_dim": 7, "tie_word_embeddings": True, TEXT + "tie_word_embeddings": True},
        {TEXT + "layer_types": DROP, TEXT + "rope_theta": DROP, TEXT + "partial_rotary_factors": DROP, TEXT + "rope_scaling": DROP},
        {TEXT + "rope_scaling": dict(type="llama3", factor=2.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16), TEXT + "sliding_window": 1, TEXT + "head_dim": 12, TEXT + "attention_other_setting": dict(attention_type=S, num_attention_heads=2)},
    ],
    "muse_spark": [
        {TEXT + "layer_types": DROP, TEXT + "layer_rope_theta": DROP, TEXT + "mlp_layer_types": DROP, TEXT + "attention_bias": True}, {TEXT + "mlp_layer_types": ["dense"] * 5, TEXT + "residual_gate_temperature": 0.05, TEXT + "sliding_window": 1},
        {TEXT + "rope_parameters": DROP, TEXT + "layer_rope_theta": [1.0, 0, 5, 0, 0], TEXT + "num_key_value_heads": 4, TEXT + "hidden_act": "gelu"}, {TEXT + "num_experts_per_tok": 6, TEXT + "moe_hidden_size": 10, TEXT + "post_norm_eps": 0.1, TEXT + "rms_norm_eps": 0.01, TEXT + "output_multiplier": 3.0, TEXT + "final_logit_softcapping": 1.5},
        {TEXT + "rope_parameters": YARN, TEXT + "head_dim": 14, TEXT + "tie_word_embeddings": True, TEXT + "layer_types": [S] * 5, TEXT + "layer_rope_theta": [7.0] * 5},
        {TEXT + "rope_parameters": DROP, TEXT + "rope_theta": 77.0}, {TEXT + "rope_parameters": DROP, TEXT + "rope_theta": 77.0, TEXT + "rope_scaling": dict(rope_type="linear", factor=2.0)},
    ],
})

C, H, I = "compressed_sparse_attention", "heavily_compressed_attention", "indexed_attention"
# More tokens than indexers choose, windows see and blocks hold. Indexers have many heads: where all of few are below 0 scores are equal, and which
# of equal ones transformers chooses is not said.
VARIATIONS.update({
    "deepseek_v4": [
        dict(layer_types=[C, C, C, S, H], index_topk=1, sliding_window=2, length=40), dict(compress_rates={C: 4, H: 3}, index_topk=5, o_groups=1, o_lora_rank=3, hc_mult=2, hc_sinkhorn_iters=3, length=45),
        dict(mlp_layer_types=["moe"] * 5, scoring_func="sigmoid", swiglu_limit=10.0, index_n_heads=8, index_head_dim=16, num_experts_per_tok=4, length=33),
        dict(layer_types=[S] * 5, tie_word_embeddings=True, sliding_window=1, length=12), dict(layer_types=[H] * 5, compress_rates={C: 2, H: 7}, sliding_window=40, hc_mult=3, hc_eps=1e-3, num_attention_heads=6, o_groups=3, length=30),
        dict(layer_types=DROP, compress_rates=DROP, mlp_layer_types=DROP, compress_ratios=[0, 4, 128, 4, 4, 0], num_hash_layers=2, partial_rotary_factor=DROP, rope_parameters=DROP, rope_theta=500.0, compress_rope_theta=900.0,
             rope_scaling=dict(type="yarn", factor=8, original_max_position_embeddings=8, beta_fast=4, beta_slow=1), index_topk=4, index_n_heads=12, length=60),
    ],
    "deepseek_v4-yarn": [dict(compress_ratios=[4, 4, 0, 4, 4, 0], index_topk=2, num_hash_layers=0, length=60), dict(compress_ratios=[4, 128, 4, 0], swiglu_limit=0.4, hc_mult=2, index_topk=8, length=64)],
    "qwen4_exp": [
        {TEXT + "indexer_budget": 3, "length": 40}, {TEXT + "indexer_compress_ratio": 1, TEXT + "indexer_budget": 7, TEXT + "num_key_value_heads": 2, TEXT + "output_gate_type": None, "length": 40},
        {TEXT + "layer_types": ["full_attention", L, "full_attention", L, L, I], TEXT + "ple_layer_ids": [2, 5], TEXT + "indexer_budget": 8, TEXT + "indexer_compress_ratio": 4, TEXT + "hc_count": 2, TEXT + "hc_lowrank": 3, "length": 50},
        {TEXT + "ple_layer_ids": [], TEXT + "attention_bias": True, TEXT + "linear_num_value_heads": 4, TEXT + "rope_parameters": dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5), TEXT + "indexer_head_dim": 14, TEXT + "indexer_n_heads": 6, "length": 37},
        {TEXT + "ngram_size": 4, TEXT + "heads_per_ngram": 1, TEXT + "ple_embed_dim": 12, TEXT + "ple_conv_kernel_size": 2, TEXT + "split_ngram_parts": 2, TEXT + "hc_count": 5, TEXT + "norm_topk_prob": False, "length": 30},
    ],
    "hy_v4": [
        dict(index_topk=2, length=40), dict(indexer_types=["full"] * 6, index_topk=9, index_n_heads=9, index_head_dim=6, hc_mult=2, hc_magnitude=1.5, length=40), dict(indexer_types=DROP, mlp_layer_types=DROP, index_topk=1, n_group=4, topk_group=2, num_experts_per_tok=4, length=25),
        dict(mlp_layer_types=["sparse"] * 6, n_shared_experts=2, norm_topk_prob=False, swiglu_limit=0.2, tie_word_embeddings=True, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=0.7), length=30),
        dict(indexer_types=["full", "shared", "shared", "shared", "shared", "shared"], qk_rope_head_dim=6, qk_nope_head_dim=2, qk_head_dim=DROP, v_head_dim=9, head_dim=6, num_attention_heads=3, num_key_value_heads=3, hc_eps=0.01, rms_norm_eps=1e-3, length=40),
    ],
    "glm5_next": [
        {TEXT + "index_topk": 3, "length": 40}, {TEXT + "index_kpool": 1, TEXT + "index_topk": 5, TEXT + "indexer_types": ["full"] * 5, "length": 40},
        {TEXT + "index_kpool": 4, TEXT + "index_topk": 8, TEXT + "layer_types": [I] * 5, TEXT + "linear_lower_bound": None, TEXT + "hc_mult": 2, TEXT + "hc_sinkhorn_iters": 2, "length": 45},
        {TEXT + "layer_types": DROP, TEXT + "mlp_layer_types": DROP, TEXT + "indexer_types": DROP, TEXT + "linear_lower_bound": -1.5, TEXT + "n_group": 3, TEXT + "topk_group": 2, TEXT + "norm_topk_prob": False, TEXT + "linear_conv_kernel_dim": 2, "length": 30},
        {TEXT + "layer_types": [L] * 5, TEXT + "swiglu_limit": 10.0, TEXT + "n_shared_experts": 2, TEXT + "linear_num_heads": 3, TEXT + "tie_word_embeddings": True, "tie_word_embeddings": True},
    ],
    "doge": [
        dict(keep_window_size=3, length=40), dict(keep_window_size=1, num_key_value_heads=4, tie_word_embeddings=True, length=15), dict(keep_window_size=64, attention_bias=True, mlp_bias=True, length=30),
        dict(keep_window_size=5, sliding_window=9, num_key_value_heads=1, hidden_act="gelu", length=30), dict(keep_window_size=11, **old_rope(300.0, OLD_YARN), num_attention_heads=6, num_key_value_heads=3, length=40),
    ],
})

# The names that transformers 5 writes for these are not what it reads: they are checked as the hub has them.
NOT_READ_BACK = {"deepseek_v4", "deepseek_v4-yarn", "hy_v4", "qwen4_exp", "kimi_linear", "bailing_hybrid", "olmo_hybrid", "inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text", "zaya"}


def check(hadal, family, number, changes, folder):
    changes = dict(changes)
    length = changes.pop("length", 20)
    try:
        make(family, folder, changes, seed=number + 1, length=length, read_back=family not in NOT_READ_BACK)
    except Exception as error:                  # whatever transformers raises: it is no finding about hadal
        return [("made", f"{type(error).__name__}: {str(error)[:200]} {traceback.extract_tb(error.__traceback__)[-1].name}")]
    expected = tensor(os.path.join(folder, "expected.safetensors"), "logits")
    return said_of([(what, limit, hadal_run(hadal, folder, folder, expected, *flags))
                    for what, limit, flags in (("evaluator", EVALUATOR, ["--interpret"]), ("compiled", COMPILED, []), ("cut", COMPILED, ["--split", "5"]))])


if __name__ == "__main__":
    hadal, work, *families = sys.argv[1:]
    wrong = 0
    for family in families or VARIATIONS:
        for number, changes in enumerate(VARIATIONS[family]):
            results = check(hadal, family, number, changes, os.path.join(work, f"{family}-{number}"))
            bad = any("WRONG" in r or w == "made" for w, r in results)
            wrong += bad
            print("FAIL" if bad else "ok", family, number, {k: v if v is not DROP else "DROP" for k, v in changes.items()}, *(f"{w} {r}" for w, r in results), flush=True)
    sys.exit(1 if wrong else 0)
