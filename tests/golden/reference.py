#!/usr/bin/env python3
"""Makes the golden cases that this project computed itself: a second, independent implementation.

    reference.py OUT_FOLDER

A plain numpy decoder in float64 (needs numpy, nothing else), from the formulas of Llama and Qwen2:
biases, tied heads, multi-query attention, linear and llama3 scaling of rotary positions, GELU, and
weights in shards. Folders, configs and tensors are those that transformers' save_pretrained writes. The
results depend on the seed alone.
"""
import json
import math
import os
import struct
import sys

import numpy as np

COMMON = {"attention_dropout": 0.0, "initializer_range": 0.02, "use_cache": True, "bos_token_id": 1,
          "eos_token_id": 2, "pad_token_id": None, "max_position_embeddings": 512}

CASES = {
    "qwen2": (dict(  # transformers 5: biases of q, k, v; tied head
        architectures=["Qwen2ForCausalLM"], model_type="qwen2", dtype="bfloat16", transformers_version="5.0.0",
        vocab_size=80, hidden_size=48, intermediate_size=72, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, hidden_act="silu", rms_norm_eps=1e-2, tie_word_embeddings=True,
        rope_parameters={"rope_theta": 1000000.0, "rope_type": "default"}, use_sliding_window=False,
        sliding_window=None, max_window_layers=28, layer_types=["full_attention"] * 3), "BF16", 1),
    "llama3-sharded": (dict(  # transformers 4: llama3 scaling; biases everywhere; three shards
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float32", transformers_version="4.46.0",
        vocab_size=70, hidden_size=40, intermediate_size=56, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, hidden_act="silu", rms_norm_eps=1e-2, tie_word_embeddings=False,
        attention_bias=True, mlp_bias=True, pretraining_tp=1, rope_theta=100.0,
        rope_scaling={"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                      "original_max_position_embeddings": 64, "rope_type": "llama3"}), "F32", 3),
    "llama-gelu-linear": (dict(  # multi-query attention, GELU in the tanh form, linear scaling, F16
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float16", transformers_version="4.40.0",
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, hidden_act="gelu_pytorch_tanh", rms_norm_eps=1e-2, tie_word_embeddings=False,
        attention_bias=False, mlp_bias=False, pretraining_tp=1, rope_theta=10000.0,
        rope_scaling={"type": "linear", "factor": 2.5}), "F16", 1),
}


# ---- weights ---------------------------------------------------------------------------------

def shapes(c):
    d, f, v, n_heads = c["hidden_size"], c["intermediate_size"], c["vocab_size"], c["num_attention_heads"]
    hd = c.get("head_dim") or d // n_heads
    q, kv = n_heads * hd, c["num_key_value_heads"] * hd
    qkv_bias = c["model_type"] == "qwen2" or c.get("attention_bias")
    out = {"model.embed_tokens.weight": (v, d), "model.norm.weight": (d,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (v, d)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        out[p + "input_layernorm.weight"] = out[p + "post_attention_layernorm.weight"] = (d,)
        linears = [("self_attn.q_proj", q, d, qkv_bias), ("self_attn.k_proj", kv, d, qkv_bias),
                   ("self_attn.v_proj", kv, d, qkv_bias), ("self_attn.o_proj", d, q, c.get("attention_bias")),
                   ("mlp.gate_proj", f, d, c.get("mlp_bias")), ("mlp.up_proj", f, d, c.get("mlp_bias")),
                   ("mlp.down_proj", d, f, c.get("mlp_bias"))]
        for name, n, k, bias in linears:
            out[f"{p}{name}.weight"] = (n, k)
            if bias:
                out[f"{p}{name}.bias"] = (n,)
    return out


def rounded(x, dtype):
    """The values that the stored dtype holds, as float64, and their bytes."""
    x = x.astype(np.float32)
    if dtype == "F16":
        return x.astype(np.float16).astype(np.float64), x.astype("<f2").tobytes()
    if dtype == "BF16":
        bits = x.view(np.uint32)
        bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64), bits.tobytes()
    return x.astype(np.float64), x.astype("<f4").tobytes()


def make_weights(c, dtype, rng):
    values, data = {}, {}
    for name, shape in shapes(c).items():
        if len(shape) == 2:
            x = rng.standard_normal(shape) * 1.5 / math.sqrt(shape[1])
        else:
            x = (1 if "norm" in name else 0) + 0.3 * rng.standard_normal(shape)
        values[name], raw = rounded(x, dtype)
        data[name] = (dtype, shape, raw)
    return values, data


# ---- the model -------------------------------------------------------------------------------

def rmsnorm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def frequencies(c, hd):
    rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
    theta = c.get("rope_theta") or rope["rope_theta"]
    f = theta ** (-np.arange(0, hd, 2) / hd)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "linear":
        return f / rope["factor"]
    if kind == "llama3":
        old, low, high = rope["original_max_position_embeddings"], rope["low_freq_factor"], rope["high_freq_factor"]
        wavelength = 2 * np.pi / f
        smooth = (old / wavelength - low) / (high - low)
        blend = (1 - smooth) * f / rope["factor"] + smooth * f
        return np.where(wavelength < old / high, f, np.where(wavelength > old / low, f / rope["factor"], blend))
    return f


def rotate(x, angle):  # x [T, heads, hd]
    a, b = np.split(x, 2, axis=-1)
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def forward(c, w, tokens):
    eps, heads, groups = c["rms_norm_eps"], c["num_attention_heads"], c["num_key_value_heads"]
    hd = c.get("head_dim") or c["hidden_size"] // heads
    n = len(tokens)
    angle = np.arange(n)[:, None] * frequencies(c, hd)[None]
    act = {"silu": lambda x: x / (1 + np.exp(-x)),
           "gelu_pytorch_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))}
    act = act[c["hidden_act"]]

    def linear(x, name):
        return x @ w[name + ".weight"].T + w.get(name + ".bias", 0)

    h = w["model.embed_tokens.weight"][tokens]
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        x = rmsnorm(h, w[p + "input_layernorm.weight"], eps)
        q = rotate(linear(x, p + "self_attn.q_proj").reshape(n, heads, hd), angle)
        k = rotate(linear(x, p + "self_attn.k_proj").reshape(n, groups, hd), angle)
        v = linear(x, p + "self_attn.v_proj").reshape(n, groups, hd)
        o = np.zeros((n, heads, hd))
        for i in range(heads):
            g = i // (heads // groups)
            score = q[:, i] @ k[:, g].T / math.sqrt(hd)
            score[np.triu_indices(n, 1)] = -np.inf
            a = np.exp(score - score.max(-1, keepdims=True))
            o[:, i] = a / a.sum(-1, keepdims=True) @ v[:, g]
        h = h + linear(o.reshape(n, heads * hd), p + "self_attn.o_proj")
        x = rmsnorm(h, w[p + "post_attention_layernorm.weight"], eps)
        h = h + linear(act(linear(x, p + "mlp.gate_proj")) * linear(x, p + "mlp.up_proj"), p + "mlp.down_proj")
    h = rmsnorm(h, w["model.norm.weight"], eps)
    return h, h @ w["model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"].T


# ---- files -----------------------------------------------------------------------------------

def write_safetensors(path, data):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, raw) in sorted(data.items()):
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(raw for _, (_, _, raw) in sorted(data.items())))


def write_weights(folder, data, shards):
    if shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), data)
        return
    names, where = sorted(data), {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i * len(names) // shards:(i + 1) * len(names) // shards]
        where.update({name: file for name in part})
        write_safetensors(os.path.join(folder, file), {name: data[name] for name in part})
    total = sum(len(raw) for _, _, raw in data.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


def make_case(folder, c, dtype, shards, seed):
    os.makedirs(folder, exist_ok=True)
    rng = np.random.default_rng(seed)
    values, data = make_weights(c, dtype, rng)
    tokens = rng.integers(0, c["vocab_size"], 24 + seed)
    hidden, logits = forward(c, values, tokens)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(json.dumps({**COMMON, **c}, indent=2, sort_keys=True) + "\n")
    write_weights(folder, data, shards)
    split = np.array([13 + seed, len(tokens) - 13 - seed])
    write_safetensors(os.path.join(folder, "expected.safetensors"), {
        "tokens": ("I32", tokens.shape, tokens.astype("<i4").tobytes()),
        "split": ("I32", (2,), split.astype("<i4").tobytes()),
        "logits": ("F32", logits.shape, logits.astype("<f4").tobytes()),
        "hidden_final": ("F32", hidden.shape, hidden.astype("<f4").tobytes())})


if __name__ == "__main__":
    for seed, (name, (config, dtype, shards)) in enumerate(CASES.items()):
        make_case(os.path.join(sys.argv[1], name), config, dtype, shards, seed)
