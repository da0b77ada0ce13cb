#!/usr/bin/env python3
"""Folders as people have them: what is no fault gives the logits of `base`, what is one is said in one message.

    folders.py HADAL WORK_FOLDER

Each case changes tensors or fields of tests/faults/base, a Llama of two layers with random weights.
"""
import array
import json
import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = os.path.join(HERE, "base")
HADAL, WORK = sys.argv[1:]


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in header.items()}


def write(folder, tensors, config):
    os.makedirs(folder, exist_ok=True)
    header, at = {}, 0
    for name in tensors:
        dtype, shape, data = tensors[name]
        header[name] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(data)])
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(tensors[name][2] for name in tensors))
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(config if isinstance(config, str) else json.dumps(config))


TENSORS = read(os.path.join(BASE, "model.safetensors"))
with open(os.path.join(BASE, "config.json")) as f:
    CONFIG = json.load(f)
EMBEDDING = TENSORS["model.embed_tokens.weight"]


def floats(*shape):
    n = 1
    for dim in shape:
        n *= dim
    return "F32", list(shape), struct.pack(f"<{n}f", *[0.5] * n)


def mask(n):
    return "BOOL", [1, 1, n, n], bytes(n * n)


def with_tensors(**more):
    return {**TENSORS, **{name.replace("__", "."): t for name, t in more.items()}}


def renamed(change):
    return {change(name): t for name, t in TENSORS.items()}


def in_layers(**named):
    """The tensors once for each layer, below model.layers.L."""
    return {**TENSORS, **{f"model.layers.{l}.{name.replace('__', '.')}": t for l in range(2) for name, t in named.items()}}


def bf16(tensor):
    values = array.array("f", tensor[2])
    bits = [struct.unpack("<I", struct.pack("<f", x))[0] for x in values]
    return "BF16", tensor[1], b"".join(struct.pack("<H", (b + 0x7FFF + (b >> 16 & 1)) >> 16) for b in bits)


def scaled(tensor, by):
    values = array.array("f", tensor[2])
    return tensor[0], tensor[1], struct.pack(f"<{len(values)}f", *[x * by for x in values])


def config(**changes):
    return {**CONFIG, **changes}


def without(*names):
    return {name: t for name, t in TENSORS.items() if not any(part in name for part in names)}


TIED = dict(tie_word_embeddings=True)
HEAD = "lm_head.weight"
SAME, TIED_SAME = "base", "tied"    # whose logits they are
# name: tensors, config, whose logits or None, what is said
CASES = {
    "base": (TENSORS, CONFIG, SAME, []),
    "tied": (without(HEAD), config(**TIED), TIED_SAME, []),
    # tables that a model makes itself
    "rotary": (in_layers(self_attn__rotary_emb__inv_freq=floats(8)), CONFIG, SAME, ["note: 2 tensors, such as 'model.layers.0.self_attn.rotary_emb.inv_freq'"]),
    "tables": (in_layers(self_attn__rotary_emb__cos_cached=floats(1, 1, 8, 8), self_attn__rotary_emb__sin_cached=floats(1, 1, 8, 8), self_attn__bias=mask(8),
                         self_attn__masked_bias=floats()), CONFIG, SAME, ["note: 8 tensors"]),
    "tables-elsewhere": (with_tensors(rope__freqs=floats(8), model__rotary_emb__inv_freq=floats(8), model__rotary_emb__original_inv_freq=floats(8),
                                      model__position_ids=("I64", [1, 4], bytes(32))), CONFIG, SAME, ["note: 4 tensors"]),
    "one-table": (with_tensors(freqs_cis=floats(8, 2)), CONFIG, SAME, ["note: 1 tensor, such as 'freqs_cis', holds"]),
    "a-bias": (in_layers(self_attn__bias=floats(64)), CONFIG, None, ["is no weight of the model", "1 more of this kind"]),
    "frequencies-of-nothing": (with_tensors(model__freqs=floats(8)), CONFIG, None, ["\"model.freqs\""]),
    # a head that is the embedding
    "tied-and-stored": (with_tensors(lm_head__weight=EMBEDDING), config(**TIED), TIED_SAME, ["note: the head is tied to 'model.embed_tokens.weight'", "the same numbers"]),
    "tied-in-bf16": (with_tensors(lm_head__weight=bf16(EMBEDDING)), config(**TIED), TIED_SAME, ["the same numbers"]),
    "tied-elsewhere": ({**without(HEAD), "model.lm_head.weight": EMBEDDING}, config(**TIED), TIED_SAME, ["'model.lm_head.weight'"]),
    "tied-and-other": (TENSORS, config(**TIED), None, ["tensor 'lm_head.weight' is not equal to 'model.embed_tokens.weight'", "tie_word_embeddings to false"]),
    "tied-and-scaled": (with_tensors(lm_head__weight=scaled(EMBEDDING, 1.0001)), config(**TIED), None, ["is not equal"]),
    "tied-and-short": (with_tensors(lm_head__weight=(EMBEDDING[0], [63, 64], EMBEDDING[2][:-256])), config(**TIED), None, ["is not equal"]),
    "no-head": (without(HEAD), CONFIG, None, ["weight 'lm_head.weight' [64, 64] is missing", '"tie_word_embeddings": true']),
    # other beginnings of names
    "no-prefix": (renamed(lambda name: name.removeprefix("model.")), CONFIG, SAME, ["note: 20 tensors of the checkpoint have no prefix where the model has the prefix 'model.'"]),
    "long-prefix": (renamed(lambda name: "base_model.model." + name), CONFIG, SAME, ["note: 21 tensors", "the prefix 'base_model.model.' where the model has no prefix"]),
    "other-prefix": (renamed(lambda name: name.replace("model.", "transformer.")), CONFIG, SAME, ["the prefix 'transformer.' where the model has the prefix 'model.'"]),
    "tied-without-prefix": ({**{k.removeprefix("model."): t for k, t in TENSORS.items()}, HEAD: EMBEDDING}, config(**TIED), TIED_SAME, ["the same numbers"]),
    "tables-without-prefix": ({k.removeprefix("model."): t for k, t in in_layers(self_attn__rotary_emb__inv_freq=floats(8)).items()}, CONFIG, SAME, ["note: 2 tensors", "note: 20 tensors"]),
    "two-prefixes": ({**renamed(lambda name: "a." + name), **renamed(lambda name: "b." + name)}, CONFIG, None, ["2 others explain them"]),
    # one message for all layers
    "no-norms": (without("input_layernorm"), CONFIG, None, ["weight 'model.layers.0.input_layernorm.weight'", "1 more of this kind, the last: weight 'model.layers.1"]),
    "integers": (in_layers(mlp__up_proj__weight=("I32", TENSORS["model.layers.0.mlp.up_proj.weight"][1], TENSORS["model.layers.0.mlp.up_proj.weight"][2])), CONFIG, None,
                 ["has the dtype I32, which cannot be converted to f32", "quantization_config", "1 more of this kind"]),
    # fields that say nothing
    "empty-scaling": (TENSORS, config(rope_scaling={}), SAME, []),
    "finetuned": (TENSORS, config(rope_scaling=dict(finetuned=True)), SAME, []),
    "finetuned-default": (TENSORS, config(rope_scaling=dict(type="default", finetuned=False)), SAME, []),
    "factor-alone": (TENSORS, config(rope_scaling=dict(factor=2.0)), None, ["the field 'rope_type' is missing"]),
    "large-number": (TENSORS, json.dumps(config(transformers_version=0)).replace('"transformers_version": 0', '"transformers_version": 1000000000000000019884624838656'), SAME, []),
    "infinite": (TENSORS, json.dumps(config(transformers_version=float("-inf"))), SAME, []),
    "not-a-number": (TENSORS, json.dumps(config(rms_norm_eps=float("nan"))), None, ["rms_norm_eps"]),
}


def run(folder):
    out = os.path.join(folder, "logits.npy")
    done = subprocess.run([HADAL, "run", folder, "--interpret", "--tokens", "1,5,9,30,7,2", "--logits", out], capture_output=True, text=True, check=False)
    logits = None
    if done.returncode == 0:
        with open(out, "rb") as f:
            logits = f.read()
    return done, logits


def main():
    logits, wrong = {}, 0
    for name, (tensors, fields, whose, said) in CASES.items():
        folder = os.path.join(WORK, name)
        write(folder, tensors, fields)
        done, logits[name] = run(folder)
        faults = [f"'{part}' is not said" for part in said if part not in done.stderr]
        if whose is None and done.returncode != 1:
            faults.append(f"exit code {done.returncode}, not 1")
        elif whose is not None and (logits[name] is None or logits[name] != logits[whose]):
            faults.append(f"the logits are not those of {whose}")
        if whose is None and done.stderr.count("error: ") > 4:
            faults.append(f"{done.stderr.count('error: ')} errors for faults of one kind")
        if faults:
            wrong += 1
            print(f"{name}: {'; '.join(faults)}\n{done.stderr}")
    sys.exit(1 if wrong else 0)


main()
