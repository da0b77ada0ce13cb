"""Golden folders spoilt in one place, each of which a program must refuse: a field that it does not know, a value that it does not
support, a tensor that is missing, has another shape, or is not used. Used by golden_random.py."""
import copy
import json
import os
import subprocess

import numpy as np

from golden_reference import load, save

FORMS = 6                                   # of a folder that are tried


def changed(where, name, value):
    def spoil(config, tensors):
        part = config
        for step in where:
            part = part[step]
        part[name] = value
    return f"{'.'.join([*where, name])} = {json.dumps(value)}", spoil


def without(name):
    return f"no residual.{name}", lambda config, tensors: config["residual"].pop(name)


def each(where, **fields):
    """A change for each value of each field"""
    return [changed(where, name, value) for name, values in fields.items() for value in values]


def of_config(c):
    """Every change of this config that makes it one to refuse"""
    p = c["residual"]
    out = each([], hidden_sizes=[4], use_rope=[True], model_type=["qwen33"], tie_word_embeddings=["yes"], attention_bias=[True], hidden_act=["swish2"], num_hidden_layers=[0, 2.5],
                  hidden_size=[-c["hidden_size"]], rms_norm_eps=["small"], vocab_size=[str(c["vocab_size"])], residual=[None, "standard"])
    out += each(["residual"], block_size=[2], type=["residual"])
    for name in p:
        if name != "type":
            out += [changed(["residual"], name, value) for value in ("none of them", [], {})]
            # parameters of attnres have defaults, a published config has but attn_res_block_size; so have loops
            out += [without(name)] if p["type"] != "attnres" and name != "loops" else []
    return out + (of_kimi(c) if c["model_type"] == "kimi_linear" else of_grouped(c)) + (of_attnres(c, p) if p["type"] == "attnres" else of_system(p))


def of_grouped(c):
    return each([], head_dim=[c["head_dim"] + 1], num_key_value_heads=[c["num_attention_heads"] + 1], linear_attn_config=[{}], num_experts=[4], kv_lora_rank=[4])


def of_kimi(c):
    layers = c["num_hidden_layers"]
    kda, full = c["linear_attn_config"]["kda_layers"], c["linear_attn_config"]["full_attn_layers"]
    out = each([], moe_router_activation_func=["softmax"], mla_use_nope=[False], num_key_value_heads=[c["num_attention_heads"] + 1],
                  num_experts_per_token=[c["num_experts"] + 1], use_grouped_topk=[False], num_expert_group=[c["num_experts"] + 1], topk_group=[2])
    return out + each(["linear_attn_config"], gate_upper_bound=[1.0], gate_lower_bound=[0.5], short_conv_kernel_size=[0], full_attn_layers=[full + [0], full + [99]],
                         kda_layers=[kda + [layers + 1], kda[1:] if kda else [1], kda + (full or kda)[:1]])


def of_attnres(c, p):
    out = each(["residual"], block_size_sublayers=[0], normalization=["tanh"], query=["random"], num_heads=[c["hidden_size"] + 1], window=[-1], key_norm=[1])
    out += each([], attn_res_block_size=[p["block_size_sublayers"] // 2 + 1])
    out += each(["residual"], window=[2]) if p["block_size_sublayers"] > 1 else []
    out += each(["residual"], num_heads=[2]) if p["query"] != "learned" else []
    return out + (each(["residual"], key_norm=[True]) if p["query"] == "none" else [])


def of_system(p):
    least_one = ("value_channels", "loops", "num_heads", "stride", "num_streams", "sinkhorn_iters", "period", "dilation", "rank", "head_dim", "conv_kernel")
    out = each([], attn_res_block_size=[2]) + [changed(["residual"], name, 0) for name in least_one if name in p]
    wrong = {"mrla": {"form": ["heavy"]}, "ancre": {"unit": ["block"], "temperature": [0, -0.2]}, "ddl": {"conv_kernel": [p.get("value_channels", 1) + 1]},
             "dreamer": {"depth_rope_theta": ["ten"]}, "depth-attention": {"recent_window": [-1]}, "hybridnorm": {"first_block": ["post", True]}, "realformer": {"norm": ["none", None], "scores": ["max", 1]}}
    out += each(["residual"], **wrong.get(p["type"], {}))
    if p["type"] == "dreamer" and p["depth_rope_theta"] is not None:
        out.append(changed(["residual"], "head_dim", p["head_dim"] + 1))
    return out


def of_tensors(r, tensors):
    """A change of the tensors, drawn"""
    name = r.choice(sorted(tensors))
    t = tensors[name]
    kind = r.of("missing", "extra", "longer", "another rank", "transposed", "renamed")
    if kind == "transposed" and (t.ndim < 2 or t.shape == t.T.shape):
        kind = "missing"
    if kind == "missing":
        return f"no {name}", lambda config, tensors: tensors.pop(name)
    if kind == "extra":
        new = r.of("lm_head.weight" if "lm_head.weight" not in tensors else "lm_head.bias", "model.layers.0.self_attn.k_proj.bias", "model.layers.99.mlp.up_proj.weight", "model.residual.other", "model.layers.0.residual.delta", "visual.weight")
        return f"another {new}", lambda config, tensors: tensors.update({new: np.ones((2, 3), np.float32)})
    if kind == "renamed":
        return f"{name} renamed", lambda config, tensors: tensors.update({name + "s": tensors.pop(name)})
    if name.endswith("A_log") and t.ndim == 1:              # a row may be longer
        kind = "another rank"
    new = t.T if kind == "transposed" else t[None] if kind == "another rank" else np.concatenate([t, t[-1:]])
    return f"{name} {list(new.shape)}, not {list(t.shape)}", lambda config, tensors: tensors.update({name: np.ascontiguousarray(new)})


def spoilt(case, r):
    """Some forms of a folder that was accepted: (what, what was said), WRONG where it was not refused with an error or left logits behind"""
    config, tensors = case.config, load(case.at("model.safetensors"))
    out = []
    for _ in range(FORMS):
        what, spoil = r.choice(of_config(config)) if r.some(0.65) else of_tensors(r, tensors)
        folder = case.at("spoilt")
        os.makedirs(folder, exist_ok=True)
        c, t = copy.deepcopy(config), dict(tensors)
        spoil(c, t)
        if c == config and t.keys() == tensors.keys() and all(t[name] is tensors[name] for name in t):
            continue
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(c, f)
        save(os.path.join(folder, "model.safetensors"), t)
        logits = os.path.join(folder, "logits.npy")
        done = subprocess.run([case.hadal, "run", folder, "--tokens", case.tokens, "--interpret", "--logits", logits], capture_output=True, text=True)
        if done.returncode != 1 or "error: " not in done.stderr or os.path.exists(logits):
            out.append((f"spoilt by {what}", f"WRONG {done.returncode} {done.stderr[-300:]}"))
            if os.path.exists(logits):
                os.remove(logits)
    return out + [("spoilt", str(FORMS))]
