#!/usr/bin/env python3
"""Families that transformers 5.24 does not have, once more in numpy: berrylm and deepseek_v41. It shares nothing with Hadal's pages.

    numpy_families.py FOLDER...                                   folders with expected.safetensors: the largest difference over the largest logit
    numpy_families.py HADAL WORK --first 100 --count 20 KIND      draws configs and weights of a KIND, and compares `hadal run --interpret`: 1e-6

A KIND and a number always give the same folder in WORK, which stays where the two differ. Needs numpy, safetensors and tokenizers.
"""
import json
import os
import random
import shutil
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

from make_folded import numbers as folded_numbers

PUBLISHED = os.path.join(os.path.dirname(__file__), "../published")


def unit(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def best(scores, k):
    """The k largest, of equal ones the lower number"""
    return np.argsort(-scores, kind="stable")[:k]


class Folder:
    def __init__(self, path):
        with open(os.path.join(path, "config.json")) as f:
            config = json.load(f)
        self.path, self.config = path, config.get("text_config", config)
        self.weights = {name: w.astype(np.float64) for name, w in load_file(os.path.join(path, "model.safetensors")).items()}

    def get(self, field, default):
        value = self.config.get(field)
        return default if value is None else value

    def map(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights.get(name + ".bias", 0)

    def norm(self, x, name, eps, one=0):
        return unit(x, eps) * (one + self.weights[name + ".weight"])


# ---- berrylm ---------------------------------------------------------------------------------------

def delta_attention(m, x, at, eps):
    c, T = m.config, len(x)
    keys, heads, n, width = (c["linear_" + f] for f in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    y, taps = m.map(x, at + "in_proj_qkv"), m.weights[at + "conv1d.weight"][:, 0]
    before = np.concatenate([np.zeros((taps.shape[1] - 1, y.shape[1])), y])
    y = silu(sum(before[j:j + T] * taps[:, j] for j in range(taps.shape[1])))
    q, k, v = (part.reshape(T, -1, size) for part, size in zip(np.split(y, [keys * n, 2 * keys * n], 1), (n, n, width)))
    q, k = (a / np.sqrt((a * a).sum(-1, keepdims=True) + 1e-6) for a in (q, k))
    f = m.map(m.map(x, at + "f_down_proj"), at + "f_up_proj") + m.weights[at + "dt_bias"]
    decay = np.exp(-np.exp(m.weights[at + "A_log"])[:, None] * np.logaddexp(0, f.reshape(T, heads, n)))
    beta, state, o = sigmoid(m.map(x, at + "in_proj_b")), np.zeros((heads, n, width)), np.zeros((T, heads, width))
    for t in range(T):
        for h in range(heads):
            key = k[t, h * keys // heads]
            state[h] *= decay[t, h][:, None]
            state[h] += beta[t, h] * np.outer(key, v[t, h] - state[h].T @ key)
            o[t, h] = state[h].T @ q[t, h * keys // heads] / np.sqrt(n)
    o = m.norm(o, at + "norm", eps) * silu(m.map(x, at + "in_proj_z").reshape(o.shape))
    return m.map(o.reshape(T, -1), at + "out_proj")


def gated_attention(m, x, at, eps):
    c, T = m.config, len(x)
    heads, groups, n = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    positions = {**c, **(c.get("rope_parameters") or {})}
    turning = int(n * positions.get("partial_rotary_factor", 0.25))
    angles = np.arange(T)[:, None] * positions.get("rope_theta", 1e7) ** (-2 * np.arange(turning // 2) / turning)

    def turned(y):
        a, b, rest = np.split(y, [turning // 2, turning], -1)
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)

    both = m.map(x, at + "q_proj").reshape(T, heads, 2 * n)
    q, gate = turned(m.norm(both[..., :n], at + "q_norm", eps, 1)), both[..., n:].reshape(T, -1)
    k = turned(m.norm(m.map(x, at + "k_proj").reshape(T, groups, n), at + "k_norm", eps, 1))
    v = m.map(x, at + "v_proj").reshape(T, groups, n)
    o = np.zeros((T, heads, n))
    for t in range(T):
        for h in range(heads):
            g = h * groups // heads
            o[t, h] = softmax(k[:t + 1, g] @ q[t, h] / np.sqrt(n)) @ v[:t + 1, g]
    return m.map(o.reshape(T, -1) * sigmoid(gate), at + "o_proj")


def berry_experts(m, x, at):
    gate_up, down, p = m.weights[at + "experts.gate_up_proj"], m.weights[at + "experts.down_proj"], softmax(m.map(x, at + "gate"))
    shared = at + "shared_expert."
    y = sigmoid(m.map(x, at + "shared_expert_gate")) * m.map(silu(m.map(x, shared + "gate_proj")) * m.map(x, shared + "up_proj"), shared + "down_proj")
    for t, row in enumerate(p):
        chosen = best(row, m.config["num_experts_per_tok"])
        total = row[chosen].sum() if m.get("norm_topk_prob", True) else 1
        for e in chosen:
            g, u = np.split(gate_up[e] @ x[t], 2)
            y[t] += row[e] / total * (down[e] @ (silu(g) * u))
    return y


def berrylm(m, ids):
    eps, block = m.get("rms_norm_eps", 1e-6), m.get("attn_res_block_size", 8)
    layers, interval = m.config["num_hidden_layers"], m.get("full_attention_interval", 4)
    kinds = m.get("layer_types", ["linear_attention" if (l + 1) % interval else "full_attention" for l in range(layers)])
    h = m.weights["model.embed_tokens.weight"][ids]
    done = [h]
    for l in range(layers):
        at = f"model.layers.{l}."
        if block and l:     # in the first layer all sources are the embedding
            sources = np.stack(done + [h])
            a = softmax(unit(sources, m.get("attn_res_eps", 1e-6)) @ m.weights[at + "attn_res.pseudo_query"], 0)
            mix = (a[..., None] * sources).sum(0)
            h = h + np.tanh(m.weights[at + "attn_res.gate"].reshape(())) * (mix - h) if m.get("attn_res_gated", True) else mix
        x = m.norm(h, at + "input_layernorm", eps, 1)
        linear = at + ("kda." if at + "kda.A_log" in m.weights else "linear_attn.")
        h = h + (delta_attention(m, x, linear, eps) if kinds[l] == "linear_attention" else gated_attention(m, x, at + "self_attn.", eps))
        h = h + berry_experts(m, m.norm(h, at + "post_attention_layernorm", eps, 1), at + "mlp.")
        if block and (l + 1) % block == 0:
            done.append(h)
    return m.map(m.norm(h, "model.norm", eps, 1), "model.embed_tokens" if m.get("tie_word_embeddings", False) else "lm_head")


# ---- deepseek_v41: numbers of few bits -------------------------------------------------------------

def nearest(x, digits, least, most):
    size = np.minimum(abs(x), most)
    step = 2.0 ** (np.floor(np.log2(np.maximum(size, least))) - digits)
    return np.sign(x) * np.round(size / step) * step


def e4m3(x):
    return nearest(x, 3, 2.0 ** -6, 448)


def e2m1(x):
    return nearest(x, 1, 1.0, 6)


def power_above(x):
    digits, exponent = np.frexp(x)
    return 2.0 ** np.where(digits == 0.5, exponent - 1, exponent)


def in_blocks(x, block, code, scale_of):
    if x.shape[-1] % block:
        return x
    y = x.reshape(*x.shape[:-1], -1, block)
    scale = scale_of(abs(y).max(-1, keepdims=True))
    return (code(y / scale) * scale).reshape(x.shape)


def as_keys(x):
    return in_blocks(x, 32, e4m3, lambda a: power_above(np.maximum(a, 1e-4) / 448))


def as_entries(x):
    return in_blocks(x, 16, e2m1, lambda a: e4m3(np.maximum(a, 6 * 2.0 ** -9) / 6))


def as_index(x):
    return in_blocks(x, 32, e2m1, lambda a: power_above(np.maximum(a, 6 * 2.0 ** -126) / 6))


# ---- deepseek_v41: attention -----------------------------------------------------------------------

def frequencies(n, theta, scaling):
    f = theta ** (-2 * np.arange(n // 2) / n)
    if not scaling:
        return f
    length, factor = scaling["original_max_position_embeddings"], scaling["factor"]

    def place(turns):
        return n * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(theta))

    low, high = max(np.floor(place(scaling.get("beta_fast", 32))), 0), min(np.ceil(place(scaling.get("beta_slow", 1))), n - 1)
    r = np.clip((np.arange(n // 2) - low) / (high - low if high > low else 0.001), 0, 1)
    return (1 - r) * f + r * f / factor


def turned(x, positions, f, sign=1):
    """The last entries of x [T, h, n], neighbours against each other"""
    angles = sign * np.asarray(positions, float)[:, None] * f
    cos, sin, start, y = np.cos(angles)[:, None], np.sin(angles)[:, None], x.shape[-1] - 2 * len(f), x.copy()
    a, b = x[..., start::2], x[..., start + 1::2]
    y[..., start::2], y[..., start + 1::2] = a * cos - b * sin, b * cos + a * sin
    return y


class Entries:
    """What layers share: entries and index keys, the choice among them for each token, and the blocks to choose from"""
    def __init__(self, m):
        self.m, self.eps = m, m.get("rms_norm_eps", 1e-20)
        self.rate, self.entries, self.keys, self.chosen, self.candidates = 1, None, None, None, None

    def make(self, x, at, rate, f):
        m, n = self.m, len(x) // rate
        a, self.rate, first = m.map(x, at + "compressor.wkv"), rate, np.arange(n) * rate
        if rate > 1:
            gate = m.map(x, at + "compressor.wgate")[:n * rate].reshape(n, rate, -1)
            a = (softmax(gate, 1) * a[:n * rate].reshape(gate.shape)).sum(1)
        latent = m.norm(a, at + "compressor.norm", self.eps)
        key = m.norm(m.map(latent, at + "indexer.wk"), at + "indexer.k_norm", self.eps)
        self.entries, self.keys = as_entries(turned(latent[:, None], first, f))[:, 0], as_index(turned(key[:, None], first, f))[:, 0]

    def choose(self, x, u, at, f, proposes):
        m, T = self.m, len(x)
        q = as_index(turned(m.map(u, at + "indexer.wq_b").reshape(T, m.config["index_n_heads"], -1), np.arange(T), f))
        scores = (m.map(x, at + "indexer.weights_proj")[..., None] * np.maximum(q @ self.keys.T, 0)).sum(1)
        size = m.get("candidate_block_size", 8)
        blocks, chosen = [], []
        for t, row in enumerate(scores):
            seen = (t + 1) // self.rate
            allowed = np.array([s for s in range(seen) if self.candidates is None or s // size in self.candidates[t]], int)
            chosen.append(np.sort(allowed[best(row[allowed], m.config["index_topk"])]))
            of_blocks = np.array([row[b:min(b + size, seen)].max() for b in range(0, seen, size)])
            if seen:
                of_blocks[-1] = np.inf
            blocks.append(set(best(of_blocks, m.get("candidate_topk_blocks", 2048))))
        self.chosen = chosen
        if proposes:
            self.candidates = blocks


def shared_attention(m, x, at, l, plan, entries):
    c, T, eps = m.config, len(x), entries.eps
    heads, n, groups, rate, positions = c["num_attention_heads"], c["head_dim"], c["o_groups"], plan["rates"][l], np.arange(len(x))
    f = plan["far"] if rate else plan["near"]
    u = m.norm(m.map(x, at + "wq_a"), at + "q_norm", eps)
    q = turned(m.map(u, at + "wq_b").reshape(T, heads, n), positions, f)
    kv = as_keys(turned(m.norm(m.map(x, at + "wkv"), at + "kv_norm", eps)[:, None], positions, f))[:, 0]
    if l in plan["makes"]:
        entries.make(x, at, rate, f)
    if l in plan["chooses"]:
        entries.choose(x, u, at, f, l == plan["proposes"])
    o = np.zeros((T, heads, n))
    for t in range(T):
        rows = kv[max(0, t + 1 - c["sliding_window"]):t + 1]
        if rate:
            rows = np.concatenate([rows, entries.entries[entries.chosen[t]]])
        logits = np.concatenate([q[t] @ rows.T / np.sqrt(n), m.weights[at + "attn_sink"][:, None]], 1)
        o[t] = softmax(logits)[:, :-1] @ rows
    low = np.einsum("tgi,goi->tgo", turned(o, positions, f, -1).reshape(T, groups, -1), m.weights[at + "wo_a.weight"].reshape(groups, c["o_lora_rank"], -1))
    return m.map(low.reshape(T, -1), at + "wo_b")


# ---- deepseek_v41: tables, experts, streams --------------------------------------------------------

def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1))


def rows_of_ngrams(m, ids):
    """By layer: the rows of its table for each token"""
    c, layers, used, out = m.config, m.get("engram_layer_ids", []), set(), {}
    if not layers:
        return out
    number, order, size = folded_numbers(os.path.join(m.path, "tokenizer.json")), c["engram_max_ngram_size"], c["engram_compressed_vocab_size"]
    pad = number[m.get("engram_pad_id", m.get("engram_pad_token_id", 2))]
    for l in layers:
        sizes = []
        for _ in range(order - 1):
            prime = c["engram_vocab_size"] - 1
            for _ in range(c["engram_n_heads"]):
                prime = next(p for p in range(prime + 1, 1 << 40) if p not in used and is_prime(p))
                used.add(prime)
                sizes.append(prime)
        drawn = np.random.default_rng(10007 * l).integers(0, max(1, (2 ** 63 - 1) // size // 2), order, dtype=np.int64)
        factors = [2 * int(v) + 1 for v in drawn]
        rows = []
        for t in range(len(ids)):
            context = [number[ids[t - s]] if t >= s else pad for s in range(order)]
            hashed, of_token = context[0] * factors[0], []
            for j, prime in enumerate(sizes):
                if j % c["engram_n_heads"] == 0:
                    s = j // c["engram_n_heads"] + 1
                    hashed ^= context[s] * factors[s]
                of_token.append(hashed % prime + sum(sizes[:j]))
            rows.append(of_token)
        out[l] = np.array(rows)
    return out


def engram(m, X, at, rows, eps):
    T, n, d = X.shape
    kv = m.map(m.weights[at + "embed.weight"][rows].reshape(T, -1), at + "wkv")
    key, query = kv[:, :n * d].reshape(T, n, d), unit(X, eps) * m.weights[at + "q_weight"] * m.weights[at + "k_weight"]
    a = (query * unit(key, eps)).sum(-1) / np.sqrt(d)
    return sigmoid(np.copysign(np.sqrt(np.maximum(abs(a), 1e-6)), a))[..., None] * kv[:, None, n * d:]


def clamped_experts(m, x, at):
    limit, k = m.get("swiglu_limit", 10.0), m.config["num_experts_per_tok"]

    def mlp(y, name):
        g, u = m.map(y, name + "w1"), m.map(y, name + "w3")
        if limit:
            g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
        return m.map(silu(g) * u, name + "w2")

    score = {"softmax": softmax, "sigmoid": sigmoid, "sqrtsoftplus": lambda z: np.sqrt(np.logaddexp(0, z))}[m.get("scoring_func", "sqrtsoftplus")]
    y = mlp(x, at + "shared_experts.")
    for t, row in enumerate(score(x @ m.weights[at + "gate.weight"].T / m.get("gate_temp", 1.0))):
        chosen = best(row + m.weights[at + "gate.bias"], k)
        total = row[chosen].sum() + 1e-20 if m.get("norm_topk_prob", True) and k > 1 else 1
        for e in chosen:
            y[t] += row[e] / total * m.get("routed_scaling_factor", 1.5) * mlp(x[t], at + f"experts.{e}.")
    return y


def mixes(m, X, at, eps):
    T, n, d = X.shape
    hc_eps, scale, base = m.get("hc_eps", 1e-6), m.weights[at + "scale"], m.weights[at + "base"]
    z = unit(X.reshape(T, n * d), eps) @ m.weights[at + "fn"].T
    pre, post = sigmoid(scale[0] * z[:, :n] + base[:n]) + hc_eps, 2 * sigmoid(scale[1] * z[:, n:2 * n] + base[n:2 * n])
    c = softmax((scale[2] * z[:, 2 * n:] + base[2 * n:]).reshape(T, n, n)) + hc_eps
    c = c / (c.sum(1, keepdims=True) + hc_eps)
    for _ in range(m.get("hc_sinkhorn_iters", 20) - 1):
        c = c / (c.sum(2, keepdims=True) + hc_eps)
        c = c / (c.sum(1, keepdims=True) + hc_eps)
    return pre, post, c


def plan_of(m):
    c, n = m.config, m.config["qk_rope_head_dim"]
    rates = c["compress_ratios"][:c["num_hidden_layers"]]
    makes = m.get("kv_source_layer_ids", [l for l, r in enumerate(rates) if r and (l == 0 or rates[l - 1] != r)])
    kinds = m.get("rope_parameters", {"main": {}, "compress": m.get("rope_scaling", {})})
    far = kinds["compress"] if kinds["compress"].get("rope_type", "default") == "yarn" else None
    return dict(rates=rates, makes=makes, chooses=m.get("index_source_layer_ids", makes), proposes=m.get("candidate_source_layer_id", makes[-1] if makes else -1),
                near=frequencies(n, kinds["main"].get("rope_theta", m.get("rope_theta", 1e4)), None),
                far=frequencies(n, kinds["compress"].get("rope_theta", m.get("compress_rope_theta", 160000.0)), far))


def deepseek_v41(m, ids):
    plan, entries, rows, n = plan_of(m), Entries(m), rows_of_ngrams(m, ids), m.get("hc_mult", 4)
    X = np.repeat(m.weights["embed.weight"][ids][:, None], n, 1)
    now = np.eye(n)[np.zeros(len(ids), int)]
    for l in range(m.config["num_hidden_layers"]):
        at = f"layers.{l}."
        if l in rows:
            X = X + engram(m, X, at + "engram.", rows[l], entries.eps)
        for part in "attn", "ffn":
            pre, post, c = mixes(m, X, at + f"hc_{part}_", entries.eps)
            x = m.norm((now[..., None] * X).sum(1), at + part + "_norm", entries.eps)
            y = shared_attention(m, x, at + "attn.", l, plan, entries) if part == "attn" else clamped_experts(m, x, at + "ffn.")
            X, now = post[..., None] * y[:, None] + np.einsum("tjk,tjd->tkd", c, X), pre
    return m.map(m.norm((now[..., None] * X).sum(1), "norm", entries.eps), "head")


# ---- folders that are drawn ------------------------------------------------------------------------

def draw_berrylm(r):
    keys = r.randint(1, 3)
    return dict(
        model_type="berrylm", vocab_size=70, hidden_size=r.choice([16, 24, 33]), num_hidden_layers=r.randint(1, 9), num_attention_heads=4,
        num_key_value_heads=r.choice([1, 2, 4]), head_dim=r.choice([8, 16]), linear_num_key_heads=keys, linear_num_value_heads=keys * r.randint(1, 3),
        linear_key_head_dim=r.choice([4, 7]), linear_value_head_dim=r.choice([5, 8]), linear_conv_kernel_dim=r.randint(2, 5), num_experts=r.randint(2, 6),
        num_experts_per_tok=r.randint(1, 2), moe_intermediate_size=8, shared_expert_intermediate_size=12, attn_res_block_size=r.choice([0, 1, 2, 3, 20]),
        attn_res_gated=r.random() < 0.6, attention_bias=r.random() < 0.5, norm_topk_prob=r.random() < 0.5, tie_word_embeddings=r.random() < 0.5,
        kda_gate_bottleneck=r.randint(1, 9), full_attention_interval=r.randint(1, 4), partial_rotary_factor=r.choice([0.25, 0.5, 1.0]))


def draw_deepseek_v41(r):
    layers, turning = r.randint(2, 8), r.choice([2, 4, 8])
    rates = [0] * r.randint(0, 2)
    while len(rates) < layers:
        rates += [r.choice([1, 1, 2, 3, 4])] * r.randint(1, 4) + [0] * (r.random() < 0.2)
    rates, makes, last = rates[:layers], [], None
    for l, rate in enumerate(rates):
        if rate and (rate != last or r.random() < 0.2):
            makes, last = makes + [l], rate
    chooses = sorted(set(makes) | {l for l in range(layers) if makes and l > makes[0] and rates[l] and r.random() < 0.4})
    late = [l for l in chooses if l >= makes[-1]]
    c = dict(
        model_type="deepseek_v41_text", vocab_size=80, hidden_size=r.choice([16, 24, 40]), num_hidden_layers=layers, num_attention_heads=r.choice([2, 4]),
        head_dim=r.choice([10, 18, 24, 32, 48, 64]), q_lora_rank=r.choice([7, 12]), qk_rope_head_dim=turning, sliding_window=r.randint(1, 9), compress_ratios=rates,
        kv_source_layer_ids=makes, index_source_layer_ids=chooses, candidate_source_layer_id=r.choice([-1, None, r.choice(late)] if late else [-1, None]),
        candidate_topk_blocks=r.randint(1, 4), candidate_block_size=r.randint(1, 6), index_n_heads=r.choice([4, 8, 16, 20]), index_head_dim=r.choice([12, 20, 32, 64]),
        index_topk=r.randint(1, 9), o_groups=r.choice([1, 2]), o_lora_rank=r.choice([3, 8]), moe_intermediate_size=r.choice([6, 16]), n_routed_experts=r.randint(2, 6),
        num_experts_per_tok=r.randint(1, 2), scoring_func=r.choice(["softmax", "sigmoid", "sqrtsoftplus"]), gate_temp=r.choice([1, 0.7]), norm_topk_prob=r.random() < 0.6,
        swiglu_limit=r.choice([0, 1.0, 10]), hc_mult=r.randint(1, 5), hc_sinkhorn_iters=r.randint(1, 5), rms_norm_eps=r.choice([1e-20, 1e-6]), num_nextn_predict_layers=0)
    if r.random() < 0.5:
        c["rope_scaling"] = dict(rope_type="yarn", factor=4, original_max_position_embeddings=16)
    if r.random() < 0.6:
        c.update(engram_layer_ids=r.sample(range(layers), r.randint(1, 2)), engram_max_ngram_size=r.randint(2, 4), engram_n_heads=r.randint(1, 3), engram_head_dim=r.choice([3, 8]),
                 engram_vocab_size=r.randint(2, 60), engram_compressed_vocab_size=52, engram_pad_id=r.randint(0, 79))
    return c if r.random() < 0.5 else {"model_type": "deepseek_v41", "text_config": c, "vision_config": {}}


def draw_weights(name, w, seed):
    """Gains near what says nothing, shapes as checkpoints have them"""
    g = np.random.default_rng(seed + len(name))
    if name.endswith("norm.weight"):
        plain = name.startswith("layers.") or name == "norm.weight" or ".kda." in name
        return (plain + 0.2 * g.standard_normal(w.shape)).astype(np.float32)
    if name.endswith("attn_res.gate"):
        return np.float32(g.standard_normal()).reshape(())
    return w.reshape(-1, w.shape[-1]) if name.endswith("wo_a.weight") else w


FAMILIES = {"berrylm": (berrylm, draw_berrylm), "deepseek_v41": (deepseek_v41, draw_deepseek_v41)}


def logits_of(path, ids):
    m = Folder(path)
    return FAMILIES["berrylm" if m.config["model_type"] == "berrylm" else "deepseek_v41"][0](m, ids)


def distance(got, expected):
    return abs(got - expected).max() / abs(expected).max()


def check_drawn(hadal, work, kind, seed):
    r, path = random.Random(f"{kind} {seed}"), os.path.join(work, f"{kind}-{seed}")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(FAMILIES[kind][1](r), f, indent=2)
    shutil.copy(os.path.join(PUBLISHED, "deepseek_v41/tokenizer.json"), path)
    weights, logits = os.path.join(path, "model.safetensors"), os.path.join(path, "logits.npy")
    subprocess.run([hadal, "init-weights", path, "--draw-all", "-q", "--seed", str(seed), "-o", weights], check=True)
    renamed = kind == "berrylm" and seed % 3 == 0
    tensors = {name.replace(".kda.", ".linear_attn.") if renamed else name: draw_weights(name, w, seed) for name, w in load_file(weights).items()}
    tensors.pop("engram.token_map", None)
    save_file({name: np.asarray(w) for name, w in tensors.items()}, weights)
    ids = [r.randrange(70) for _ in range(34)]
    subprocess.run([hadal, "run", path, "--interpret", "-q", "--tokens", ",".join(map(str, ids)), "--logits", logits], check=True, capture_output=True)
    error = distance(np.load(logits), logits_of(path, ids))
    print(f"{'ok  ' if error < 1e-6 else 'FAIL'} {path}: {error:.1e}", flush=True)
    if error < 1e-6:
        shutil.rmtree(path)
    return error < 1e-6


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--first" in arguments:
        hadal, work, _, first, _, count, kind = arguments
        sys.exit(0 if all([check_drawn(hadal, work, kind, seed) for seed in range(int(first), int(first) + int(count))]) else 1)
    for folder in arguments:
        stored = load_file(os.path.join(folder, "expected.safetensors"))
        print(f"{folder}: {distance(logits_of(folder, [int(i) for i in stored['tokens']]), stored['logits']):.1e}")
