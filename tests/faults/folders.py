#!/usr/bin/env python3
"""Folders as people have them: what is no fault gives the logits of `base`, what is one is said in one message.

    folders.py HADAL WORK_FOLDER

Each case changes tensors, fields or files of tests/faults/base, a Llama of two layers with random weights.
"""
import array
import json
import os
import shutil
import struct
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import checkpoint  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = os.path.join(HERE, "base")
HADAL, WORK = sys.argv[1:]


def write(folder, tensors, config):
    os.makedirs(folder, exist_ok=True)
    checkpoint.write(os.path.join(folder, "model.safetensors"), tensors)
    with open(os.path.join(folder, "config.json"), "w") as f:
        f.write(config if isinstance(config, str) else json.dumps(config))


TENSORS = checkpoint.read(os.path.join(BASE, "model.safetensors"))
with open(os.path.join(BASE, "config.json")) as f:
    CONFIG = json.load(f)
EMBEDDING = TENSORS["model.embed_tokens.weight"]
HEAD = "lm_head.weight"
TIED = dict(tie_word_embeddings=True)


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


def as_integers(tensor, bits, by=1.0):
    """lm_head as compressed-tensors stores it: integers with a scale for a row (8 bits, in bytes) or for 32 (4 bits, 8 in a word)"""
    rows, columns = tensor[1]
    group, most = (columns, 127) if bits == 8 else (32, 7)
    values, codes, scales = array.array("f", tensor[2]), [], []
    for at in range(0, len(values), group):
        line = [x * by for x in values[at:at + group]]
        scale = struct.unpack("<f", struct.pack("<f", max(map(abs, line)) / most))[0]
        scales.append(scale)
        codes += [round(x / scale) for x in line]
    scale = ("F32", [rows, columns // group], struct.pack(f"<{len(scales)}f", *scales))
    if bits == 8:
        return {"lm_head.weight": ("I8", [rows, columns], struct.pack(f"<{len(codes)}b", *codes)), "lm_head.weight_scale": scale}
    words = [sum((c + 8) << (4 * k) for k, c in enumerate(codes[at:at + 8])) for at in range(0, len(codes), 8)]
    return {"lm_head.weight_packed": ("I32", [rows, columns // 8], struct.pack(f"<{len(words)}I", *words)), "lm_head.weight_scale": scale,
            "lm_head.weight_shape": ("I64", [2], struct.pack("<2q", rows, columns))}


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
E4M3 = [(1 + u % 8 / 8) * 2.0 ** (u // 8 - 7) if u >= 8 else u / 8 * 2.0 ** -6 for u in range(127)]


def nearest(numbers, x):
    return min(range(len(numbers)), key=lambda i: abs(numbers[i] - x))


def as_nvfp4(tensor):
    """lm_head as ModelOpt stores it: two codes in a byte, a scale for 16, and a factor"""
    rows, columns = tensor[1]
    values = array.array("f", tensor[2])
    factor = struct.unpack("<f", struct.pack("<f", max(map(abs, values)) / (6 * 448)))[0]
    codes, scales = [], []
    for at in range(0, len(values), 16):
        line = values[at:at + 16]
        scales.append(nearest(E4M3, max(map(abs, line)) / 6 / factor))
        codes += [nearest(E2M1, abs(x) / (E4M3[scales[-1]] * factor)) + 8 * (x < 0) for x in line]
    return {"lm_head.weight": ("U8", [rows, columns // 2], bytes(a | b << 4 for a, b in zip(codes[::2], codes[1::2]))), "lm_head.weight_scale": ("F8_E4M3", [rows, columns // 16], bytes(scales)),
            "lm_head.weight_scale_2": ("F32", [], struct.pack("<f", factor))}


def tied_nvfp4(tensor):
    return {**without(HEAD), **as_nvfp4(tensor)}, config(tie_word_embeddings=True, quantization_config=dict(quant_method="modelopt", quant_algo="W4A16_NVFP4", ignore=[]))


def quantised_head(bits):
    weights = dict(num_bits=bits, type="int", symmetric=True, dynamic=False, strategy="channel" if bits == 8 else "group", group_size=None if bits == 8 else 32)
    groups = dict(group_0=dict(targets=["re:.*lm_head"], weights=weights, input_activations=None, output_activations=None))
    return dict(quant_method="compressed-tensors", quantization_status="compressed", format="int-quantized" if bits == 8 else "pack-quantized", ignore=[], config_groups=groups)


def tied_integers(bits, tensor, by=1.0):
    return {**without(HEAD), **as_integers(tensor, bits, by)}, config(tie_word_embeddings=True, quantization_config=quantised_head(bits))


def scaled(tensor, by):
    values = array.array("f", tensor[2])
    return tensor[0], tensor[1], struct.pack(f"<{len(values)}f", *[x * by for x in values])


def config(**changes):
    return {**CONFIG, **changes}


def without(*names):
    return {name: t for name, t in TENSORS.items() if not any(part in name for part in names)}


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
    "masks-elsewhere": (with_tensors(model__causal_mask=mask(8), model__layers__0__self_attn__tril=mask(8), model__layers__0__rotary__cos=floats(8, 8)), CONFIG, SAME, ["note: 3 tensors"]),
    "a-cosine": (in_layers(mlp__cos=floats(8)), CONFIG, None, ["mlp.cos\""]),
    "one-table": (with_tensors(freqs_cis=floats(8, 2)), CONFIG, SAME, ["note: 1 tensor, such as 'freqs_cis', holds"]),
    "a-bias": (in_layers(self_attn__bias=floats(64)), CONFIG, None, ["is no weight of the model", "1 more of this kind"]),
    "frequencies-of-nothing": (with_tensors(model__freqs=floats(8)), CONFIG, None, ["\"model.freqs\""]),
    # a head that is the embedding
    "tied-and-stored": (with_tensors(lm_head__weight=EMBEDDING), config(**TIED), TIED_SAME, ["note: the head is tied to 'model.embed_tokens.weight'", "the same numbers"]),
    "tied-in-bf16": (with_tensors(lm_head__weight=bf16(EMBEDDING)), config(**TIED), TIED_SAME, ["the same numbers"]),
    "tied-elsewhere": ({**without(HEAD), "model.lm_head.weight": EMBEDDING}, config(**TIED), TIED_SAME, ["'model.lm_head.weight'"]),
    "tied-as-head": ({**{k: t for k, t in TENSORS.items() if k != "model.embed_tokens.weight"}, HEAD: EMBEDDING}, config(**TIED), TIED_SAME, ["the head is tied to 'model.embed_tokens.weight', which is stored as 'lm_head.weight'"]),
    "tied-as-head-without-prefix": ({**{k.removeprefix("model."): t for k, t in TENSORS.items() if k != "model.embed_tokens.weight"}, HEAD: EMBEDDING}, config(**TIED), TIED_SAME, ["which is stored as 'lm_head.weight'"]),
    "tied-as-short-head": ({**{k: t for k, t in TENSORS.items() if k != "model.embed_tokens.weight"}, HEAD: (EMBEDDING[0], [63, 64], EMBEDDING[2][:-256])}, config(**TIED), None, ["weight 'model.embed_tokens.weight' [64, 64] is missing"]),
    "tied-and-other": (TENSORS, config(**TIED), None, ["tensor 'lm_head.weight' is not equal to 'model.embed_tokens.weight'", "tie_word_embeddings to false"]),
    "tied-and-scaled": (with_tensors(lm_head__weight=scaled(EMBEDDING, 1.0001)), config(**TIED), None, ["is not equal"]),
    "tied-and-short": (with_tensors(lm_head__weight=(EMBEDDING[0], [63, 64], EMBEDDING[2][:-256])), config(**TIED), None, ["is not equal"]),
    "tied-in-8-bits": (*tied_integers(8, EMBEDDING), TIED_SAME, ["'lm_head.weight', the same in a quantised form, is left out"]),
    "tied-in-4-bits": (*tied_integers(4, EMBEDDING), TIED_SAME, ["the same in a quantised form"]),
    "tied-and-other-in-8-bits": (*tied_integers(8, TENSORS[HEAD]), None, ["is not equal", "rounding to its codes makes one of about"]),
    "tied-and-other-in-4-bits": (*tied_integers(4, TENSORS[HEAD]), None, ["is not equal"]),
    "tied-in-nvfp4": (*tied_nvfp4(EMBEDDING), TIED_SAME, ["'lm_head.weight', the same in a quantised form, is left out"]),
    "tied-and-other-in-nvfp4": (*tied_nvfp4(TENSORS[HEAD]), None, ["is not equal", "rounding to its codes makes one of about"]),
    "tied-and-scaled-in-8-bits": (*tied_integers(8, EMBEDDING, 1.03), None, ["is not equal", "the difference is 0.03"]),
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


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 4976\n"
WEIGHTS = "model.safetensors"
LORA = ["holds", "an adapter (LoRA), and no model", "merge_and_unload"]
# name: files of base that are others, or (None) not there; what is said
OTHER_FILES = {
    "pointer-config": ({"config.json": POINTER}, ["config.json:1:7: error", "git lfs pull"]),
    "pointer-weights": ({WEIGHTS: POINTER}, ["model.safetensors: error", "git lfs pull"]),
    "pointer-index": ({WEIGHTS: None, "model.safetensors.index.json": POINTER}, ["index.json:1:7: error", "git lfs pull"]),
    "pointer-shard": ({WEIGHTS: None, "1.safetensors": POINTER, "model.safetensors.index.json": '{"weight_map": {"a": "1.safetensors"}}'}, ["git lfs pull"]),
    "adapter-weights": ({WEIGHTS: None, "adapter_model.safetensors": ""}, LORA),
    "adapter": ({WEIGHTS: None, "config.json": None, "adapter_model.safetensors": "", "adapter_config.json": "{}"}, LORA),
    "adapter-config": ({WEIGHTS: None, "config.json": None, "adapter_config.json": "{}"}, LORA),
    "pickled": ({WEIGHTS: None, "pytorch_model.bin": ""}, ["pickled checkpoints are not read"]),
    "nothing": ({WEIGHTS: None}, ["is the download complete?"]),
}
for name, (_, said) in OTHER_FILES.items():
    CASES[name] = (TENSORS, CONFIG, None, said)


def put_files(folder, files):
    for file, text in files.items():
        path = os.path.join(folder, file)
        if text is None:
            os.remove(path)
        else:
            with open(path, "w") as f:
                f.write(text)


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
        shutil.rmtree(folder, ignore_errors=True)
        write(folder, tensors, fields)
        put_files(folder, OTHER_FILES.get(name, ({}, []))[0])
        done, logits[name] = run(folder)
        faults = [f"'{part}' is not said" for part in said if part not in done.stderr]
        if whose is None and done.returncode not in (1, 3):         # 3: of reading files
            faults.append(f"exit code {done.returncode}")
        elif whose is not None and (logits[name] is None or logits[name] != logits[whose]):
            faults.append(f"the logits are not those of {whose}")
        if whose is None and done.stderr.count("error: ") > 4:
            faults.append(f"{done.stderr.count('error: ')} errors for faults of one kind")
        if faults:
            wrong += 1
            print(f"{name}: {'; '.join(faults)}\n{done.stderr}")
    sys.exit(1 if wrong else 0)


main()
