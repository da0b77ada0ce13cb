#!/usr/bin/env python3
"""The golden models in numpy, from the text that defines them: an implementation of its own, for comparison.

    golden_reference.py FOLDER ...

Reads config.json and model.safetensors of each folder, computes logits, hidden_final and depth_weights.M in
float64 for the tokens of its expected.safetensors, and prints how far they are from what is stored there.
Exits with 1 where one is further than float32 rounds (LIMIT). Needs numpy, nothing else.

This file reads folders and has what every model shares: its norms, names, embedding and head. Attention, MLP and
experts are in golden_layers.py, the residual systems in golden_residuals.py. Nothing here knows Hadal, its pages or
its evaluator. Numbers in parentheses are the formulas' in the text that came with the golden cases; what they say
stands in the code.
"""
import json
import os
import struct
import sys

import numpy as np

import golden_layers
import golden_residuals

LIMIT = 2e-7                                # expected tensors are rounded to float32: 2^-24, and the sums' own order


# ---- safetensors -----------------------------------------------------------------------------

def load(path):
    """Name to array: F32 and I32 as they are, BF16 as the float32 of the same value"""
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, entry in json.loads(data[8:8 + n]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + n + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data[begin:end], "<u2").astype("<u4") << 16).view("<f4")
        else:
            values = np.frombuffer(data[begin:end], {"F32": "<f4", "I32": "<i4"}[entry["dtype"]])
        out[name] = values.reshape(entry["shape"])
    return out


def save(path, tensors, bf16=()):
    """Arrays of float32 or int32; those named in `bf16`, which must have such values, in two bytes"""
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, t in tensors.items():
        dtype = "BF16" if name in bf16 else {"f": "F32", "i": "I32"}[t.dtype.kind]
        t = np.ascontiguousarray(t)
        blob = (t.view("<u4") >> 16).astype("<u2").tobytes() if dtype == "BF16" else t.tobytes()
        header[name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [at, at + len(blob)]}
        blobs.append(blob)
        at += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- the parts of a model --------------------------------------------------------------------

class Stored:
    """The tensors of a file. Each is asked for by name and shape; `unused` are those nobody asked for."""

    def __init__(self, path):
        self.tensors = load(path)
        self.unused = set(self.tensors)

    def __call__(self, name, *shape):
        t = self.tensors[name]
        shapes = shape if shape and isinstance(shape[0], tuple) else [shape]
        if not any(len(s) == len(t.shape) and all(n in (None, m) for n, m in zip(s, t.shape)) for s in shapes):
            raise ValueError(f"{name}: {t.shape}, not {shapes}")
        self.unused.discard(name)
        return t


class Model:
    """One pass over a sequence. `weights(name, *shape)` gives a tensor; `dtype` is what everything is computed in."""

    def __init__(self, config, weights, dtype=np.float64):
        self.c, self.weights, self.dtype = config, weights, dtype
        self.residual = config["residual"]
        self.d, self.layers, self.eps = config["hidden_size"], config["num_hidden_layers"], config["rms_norm_eps"]
        self.depth = []                     # depth_weights.M
        self.margins = []                   # between the last expert picked and the first left out

    def w(self, name, *shape):
        return self.weights(name, *shape).astype(self.dtype)

    def norm(self, x, gain=None, eps=None):
        """(1.1): x / sqrt(mean(x^2) + eps) * gain, over the last axis"""
        y = x / np.sqrt((x * x).mean(-1, keepdims=True) + (self.eps if eps is None else eps))
        return y if gain is None else y * gain

    def gained(self, x, name):
        return self.norm(x, self.w(name, x.shape[-1]))

    # names: of sublayer k, of a whole layer, of the model
    def at(self, k, name, *shape):
        return self.w(f"model.layers.{k // 2}.{('attn', 'mlp')[k % 2]}_residual.{name}", *shape)

    def of_layer(self, layer, name, *shape):
        return self.w(f"model.layers.{layer}.residual.{name}", *shape)

    def of_model(self, name, *shape):
        return self.w(f"model.residual.{name}", *shape)

    def pre_norm(self, k, x):
        return self.gained(x, f"model.layers.{k // 2}.{('input', 'post_attention')[k % 2]}_layernorm.weight")

    def sublayer(self, k, x, **attention):
        """f_k of an input that is normed already"""
        return golden_layers.mlp(self, k // 2, x) if k % 2 else golden_layers.attention(self, k // 2, x, **attention)

    def normed(self, k, x):
        """f_k(RMSNorm(x; g_k))"""
        return self.sublayer(k, self.pre_norm(k, x))

    def mixed(self, weights):
        """Keeps the weights of a depth mix, [T, ..., sources]; those that are the same for all tokens as [sources]"""
        if weights.ndim == 1:
            weights = np.broadcast_to(weights, (self.length, len(weights)))
        self.depth.append(weights)

    def __call__(self, tokens):
        self.length = len(tokens)
        table = self.w("model.embed_tokens.weight", self.c["vocab_size"], self.d)
        hidden, runs = table[tokens], self.c.get("num_loops", 1)                             # Nanbeige runs all layers several times
        for run in range(runs):
            hidden = golden_residuals.SYSTEMS[self.residual["type"]](self, hidden)
            if run == runs - 1 or not self.c.get("skip_loop_final_norm", False):
                hidden = self.gained(hidden, "model.norm.weight")                           # (1.3)
        head = table if self.c["tie_word_embeddings"] else self.w("lm_head.weight", *table.shape)
        out = {"logits": golden_layers.linear(head, hidden), "hidden_final": hidden}
        out.update((f"depth_weights.{m}", a) for m, a in enumerate(self.depth))
        return out


def distance(got, expected):
    """max |got - expected| / max |expected|; infinite where the shapes differ"""
    if got.shape != expected.shape:
        return np.inf
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def compare(folder):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    weights = Stored(os.path.join(folder, "model.safetensors"))
    expected = load(os.path.join(folder, "expected.safetensors"))
    results = Model(config, weights)(expected["tokens"])
    wanted = {name for name in expected if name not in ("tokens", "split")}
    errors = {name: distance(results[name], expected[name]) for name in wanted & set(results)}
    said = [f"not in the file: {sorted(set(results) - wanted)}"] if set(results) - wanted else []
    said += [f"not computed: {sorted(wanted - set(results))}"] if wanted - set(results) else []
    said += [f"not used: {sorted(weights.unused)}"] if weights.unused else []
    return max(errors.values()), said


if __name__ == "__main__":
    bad = 0
    for folder in sys.argv[1:]:
        error, said = compare(folder)
        wrong = error > LIMIT or bool(said)
        bad += wrong
        print("FAIL" if wrong else "ok", os.path.basename(os.path.normpath(folder)), f"{error:.1e}", *said)
    sys.exit(1 if bad else 0)
