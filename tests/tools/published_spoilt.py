#!/usr/bin/env python3
"""Quantised folders with one thing wrong: each must be refused with the tensor or the field, or have the logits that it had.

    published_spoilt.py HADAL WORK_FOLDER FOLDER ... [--first SEED] [--count N]

FOLDER is a folder of a quantised checkpoint with `expected.safetensors`, as in tests/published. A seed draws a fault and a weight for it: parts that are missing, there twice, of another shape or dtype, under another name; scales
and codes that are no numbers; zero points and shapes that contradict; bytes where numbers should be; configs that say another form, tile, width, list. What is refused must say the tensor or the place in the config; what is
taken must be as before (a list that was changed where nothing depends on it). Other logits are the worst that can be found here. One line for each that is wrong, and a table of the faults at the end.
"""
import argparse
import json
import os
import re
import shutil
import struct
import subprocess
import sys

from model_search import EVALUATOR, Draw, checkpoint, distance, npy, tensor

BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "BF16": 2, "F16": 2, "I16": 2, "U16": 2}
PACKED = re.compile(r"(\.weight_packed|_blocks|\.qweight)$")
FACTORS = ("_global_scale", "_scale_2")
SCALE_ENDS = ("_scale_inv", "_scale", "_scales", ".scale")


def read_folder(folder):
    out = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors") and name != "expected.safetensors":
            out.update({k: list(v) for k, v in checkpoint.read(os.path.join(folder, name)).items()})
    return out


def width(dtype):
    return BYTES.get(dtype, 1)


def weights_of(tensors):
    """(codes, scales) of quantised weights, by name"""
    for name, (dtype, _, _) in tensors.items():
        if not (dtype == "F8_E4M3" or PACKED.search(name) or (dtype in ("I8", "U8") and name.endswith(".weight"))):
            continue
        stem = name[:-len("_packed")] if name.endswith("_packed") else name[:-len("_blocks")] if name.endswith("_blocks") else name
        stem = stem[:-len("qweight")] + "weight" if stem.endswith(".qweight") else stem
        module = stem[:-len(".weight")] if stem.endswith(".weight") else stem
        scales = [n for n in [stem + end for end in SCALE_ENDS] + [module + ".scale", module + ".scales"] if n in tensors]
        if scales:
            yield name, scales[0], stem


def resized(t, shape):
    """The tensor in another shape: bytes are cut or said again"""
    n = width(t[0])
    for d in shape:
        n *= d
    return [t[0], shape, (t[2] * (n // max(len(t[2]), 1) + 1))[:n]]


def patched(t, at, data):
    at *= len(data)
    return [t[0], t[1], t[2][:at] + data + t[2][at + len(data):]]


NO_NUMBERS = {"F32": [struct.pack("<f", x) for x in (float("nan"), float("inf"), -float("inf"))], "BF16": [b"\xc0\x7f", b"\x80\x7f", b"\x80\xff"], "F16": [b"\x00\x7e", b"\x00\x7c", b"\x00\xfc"],
              "U8": [b"\xff"], "F8_E8M0": [b"\xff"], "F8_E4M3": [b"\x7f", b"\xff"]}


# ---- faults: each changes tensors or config and says which; None: it is not for this weight

def missing_scales(r, t, config, codes, scales, stem):
    del t[scales]
    return "no " + scales


def missing_codes(r, t, config, codes, scales, stem):
    del t[codes]
    return "no " + codes


def missing_shape(r, t, config, codes, scales, stem):
    return t.pop(stem + "_shape", None) and t[codes][0] == "I32" and "no shape"


def other_shape(r, t, config, codes, scales, stem):
    which = r.of(scales, scales, codes)
    shape = list(t[which][1])
    i = r.randrange(len(shape)) if shape else None
    how = r.of(1, -1, 0, "double", "swap", "rank", "flat")
    if how == "swap" and len(shape) > 1 and shape[-1] != shape[-2]:
        shape[-1], shape[-2] = shape[-2], shape[-1]
    elif how == "rank":
        shape = shape + [1] if r.some() else [1] + shape
    elif how == "flat" and len(shape) > 1 and t[which][1] != [1, 1]:
        shape = shape[:-2] + [shape[-1] * shape[-2]]
    elif how == "double" and shape:
        shape[i] *= 2
    elif isinstance(how, int) and shape and shape[i] + how >= 0:
        shape[i] = shape[i] + how if how else 0
    if shape == t[which][1]:
        return None
    t[which] = resized(t[which], shape)
    return f"{which} as {shape}"


def other_dtype(r, t, config, codes, scales, stem):
    which = r.of(scales, scales, codes)
    same = [d for d in (*BYTES, "BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0") if width(d) == width(t[which][0]) and d != t[which][0]]
    # E8M0 is U8 by another name, and bytes of pairs are I8 or U8; a scale of 16 bits has no other sign that it is not of the other kind
    alike = [{"U8", "F8_E8M0"}, {"U8", "I8"}, {"BF16", "F16"}]
    same = [d for d in same if {d, t[which][0]} not in alike[which == codes:3 - (which == codes)]]
    if not same:
        return None
    dtype = r.choice(same)
    t[which] = [dtype, t[which][1], t[which][2]]
    return f"{which} as {dtype}"


def wider_dtype(r, t, config, codes, scales, stem):
    shape = t[scales][1]
    dtype = r.of("F64", "I64", "I32", "U32", "I16", "BOOL")
    if dtype == t[scales][0]:
        return None
    t[scales] = resized([dtype, shape, b"\x01"], shape)
    return f"{scales} as {dtype}"


def no_number(r, t, config, codes, scales, stem):
    which = r.of(scales, scales, codes)
    values = NO_NUMBERS.get(t[which][0])
    if not values or not t[which][2] or (which == codes and t[which][0] != "F8_E4M3"):
        return None
    value = r.choice(values)
    t[which] = patched(t[which], r.randrange(len(t[which][2]) // len(value)), value)
    return f"{value.hex()} in {which}"


def huge_scale(r, t, config, codes, scales, stem):
    """Scales with which weights are beyond what f32 holds"""
    big = {"F32": struct.pack("<f", 3e38), "BF16": b"\x7f\x7f", "U8": b"\xfe", "F8_E8M0": b"\xfe"}.get(t[scales][0])
    if not big:
        return None
    t[scales] = [t[scales][0], t[scales][1], big * (len(t[scales][2]) // len(big))]
    return f"all {big.hex()} in {scales}"


def zeros(r, t, config, codes, scales, stem):
    """Without a config a weight with zero points is as good as one without"""
    name = stem + "_zero_point"
    if name in t:
        how = r.of("dtype", "rows", "groups", "flat", *["missing"] * (quantisation_of(config) is not None))
        if how == "missing":
            del t[name]
        elif how == "dtype":
            t[name][0] = r.of("F32", "U32")
        elif how == "flat" and len(t[name][1]) > 1:
            t[name] = resized(t[name], [t[name][1][0] * t[name][1][1]])
        else:
            shape = list(t[name][1])
            shape[how == "groups"] += r.of(1, shape[how == "groups"])
            t[name] = resized(t[name], shape)
        return f"{name} {how}"
    if t[codes][0] != "I32" or quantisation_of(config) is None:
        return None
    shape = [(t[codes][1][0] + 7) // 8, t[scales][1][-1]]
    t[name] = resized(["I32", shape, b"\x77\x66"], shape)
    return f"{name} is there"


def other_weight_shape(r, t, config, codes, scales, stem):
    name = stem + "_shape"
    if name not in t:
        return None
    rows, cols = (int.from_bytes(t[name][2][i * width(t[name][0]):(i + 1) * width(t[name][0])], "little", signed=True) for i in (0, 1))
    rows, cols = r.of((cols, rows), (rows + 1, cols), (rows, cols * 2), (rows, cols * 9), (rows, -cols), (0, cols), (rows, 0), (2 ** 62, 2 ** 62), (rows, 1), (rows, -(2 ** 63)), (rows * 2, cols))
    if cols == rows or (rows, cols) == (t[codes][1][0], cols) and rows == cols:
        return None
    t[name] = ["I64", [2], struct.pack("<qq", rows, cols)]
    return f"{name} = {rows}, {cols}"


def spoilt_weight_shape(r, t, config, codes, scales, stem):
    name = stem + "_shape"
    if name not in t:
        return None
    t[name] = r.of(["F32", [2], struct.pack("<ff", *t[codes][1])], resized(t[name], [3]), resized(t[name], [1]), resized(t[name], [1, 2]), resized(t[name], []), resized(t[name], [0]))
    return f"{name} as {t[name][:2]}"


def order(r, t, config, codes, scales, stem):
    if t[codes][0] != "I32":
        return None
    n = t[scales][1][-1] * 8 + 1
    t[stem + "_g_idx"] = ["I32", [n], b"\0\0\0\0" * n]
    return "g_idx"


def twice(r, t, config, codes, scales, stem):
    if codes != stem:
        t[stem] = ["F32", [4, 4], bytes(64)]
        return f"{stem} is there as well"
    end = r.choice([e for e in ("_scale_inv", "_scale") if stem + e != scales])
    t[stem + end] = list(t[scales])
    return f"{scales} and {end}"


def other_prefix(r, t, config, codes, scales, stem):
    which = r.of(scales, codes)
    name = r.of("model." + which, which.replace("model.", "", 1), which.replace("layers.0", "layers.00"), which + " ", which.upper(), "language_model." + which)
    if name == which or name in t:
        return None
    t[name] = t.pop(which)
    return f"{which} as {name}"


def left_out(r, t, config, codes, scales, stem):
    q = quantisation_of(config)
    if q is None:
        return None
    module = stem[:-len(".weight")] if stem.endswith(".weight") else stem
    name = "ignore" if q["quant_method"] == "compressed-tensors" else r.of("modules_to_not_convert", "modules_to_not_convert", "ignored_layers")
    if name == "ignored_layers" and "modules_to_not_convert" in q:
        name = "modules_to_not_convert"
    q[name] = (q.get(name) or []) + [r.of(module, module.split(".")[-1], "re:" + re.escape(module) if name == "ignore" else module, "*" + module[3:])]
    return f"{name} has {q[name][-1]}"


def other_method(r, t, config, codes, scales, stem):
    q = quantisation_of(config)
    if q is None:
        return None
    outer = config if "quantization_config" in config else config["text_config"]
    if outer.get("text_config", {}).get("quantization_config"):
        return None
    outer["quantization_config"] = {**q, "quant_method": r.of("gptq", "awq", "bitsandbytes", "fbgemm_fp8", "modelopt", "auto-round", "", None, 4)} if r.some() else r.of({"quant_method": "mxfp4"}, [], 7, "fp8", {})
    if outer["quantization_config"] == {"quant_method": "mxfp4"} and (PACKED.search(codes) and t[codes][0] == "U8"):
        return None
    return f"method {json.dumps(outer['quantization_config'])[:60]}"


def other_numbers(r, t, config, codes, scales, stem):
    """A group of the config says another width, size or kind"""
    q = quantisation_of(config)
    if q is None:
        return None
    if q["quant_method"] == "fp8":
        q["weight_block_size"] = r.of([64, 64], [1, 32], [128], [128, 0], "128", [7, 9])
        return f"tiles {q['weight_block_size']}"
    groups = [g["weights"] for g in q.get("config_groups", {}).values() if g.get("weights")]
    if not groups:
        return None
    w = r.choice(groups)
    how = r.of({"num_bits": 3}, {"num_bits": 8 if w.get("num_bits") == 4 else 4}, {"group_size": 24}, {"group_size": 7}, {"symmetric": not w.get("symmetric", True)}, {"actorder": "group"}, {"type": "float" if w.get("type") == "int" else "int"}, {"strategy": "attn_head"},
               {"strategy": "tensor_group"}, {"num_bits": None}, {"dynamic": True}, {"group_size": -1})
    if "group_size" in how and w.get("strategy") != "group":
        return None
    w.update(how)
    return f"weights {how}"


def raw_bytes(r, t, config, codes, scales, stem):
    """Codes as bytes that may be taken for numbers, as other programs store them"""
    if t[codes][0] != "F8_E4M3":
        return None
    how = r.of("int8", "uint8", "bnb")
    t[codes] = ["U8" if how == "uint8" else "I8", t[codes][1], t[codes][2]]
    if how == "bnb":
        rows = t[codes][1][0]
        t[stem.replace(".weight", ".SCB")] = ["F32", [rows], struct.pack("<f", 1.0) * rows]
        del t[scales]
    if r.some(0.4):
        config.pop("quantization_config", None)
        config.get("text_config", {}).pop("quantization_config", None)
    return f"{stem} {how}" + ("" if quantisation_of(config) else ", no config")


def nvfp4(r, t, config, codes, scales, stem):
    """Factors of matrices, also where there are none, and scales with a sign"""
    factor = next((stem + end for end in FACTORS if stem + end in t), None)
    if not factor and not codes.endswith("_packed"):
        return None
    if not factor:
        t[stem + "_global_scale"] = ["F32", [1], struct.pack("<f", 3.0)]
        return "global scale"
    how = r.of("missing", "dtype", "rows", "number", "number", "sign")
    if how == "missing":
        del t[factor]
    elif how == "dtype":
        t[factor] = r.of(["BF16", [1], b"\x40\x40"], ["F64", [1], struct.pack("<d", 3.0)], ["I32", [1], bytes(4)])
    elif how == "rows":
        t[factor] = resized(["F32", [1], struct.pack("<f", 3.0)], r.of([t[codes][1][0]], [1, 1], [0], [2]))
    elif how == "number":
        t[factor] = ["F32", t[factor][1], struct.pack("<f", r.of(-3.0, float("nan"), float("inf"), -float("inf"), *[0.0] * factor.endswith("_global_scale")))]
    else:
        t[scales] = patched(t[scales], r.randrange(len(t[scales][2])), b"\xb8")
    return f"{factor} {how}"


FAULTS = (missing_scales, missing_codes, missing_shape, other_shape, other_shape, other_shape, other_dtype, other_dtype, wider_dtype, no_number, no_number, huge_scale, zeros, zeros, other_weight_shape, other_weight_shape, spoilt_weight_shape, order,
          twice, other_prefix, other_prefix, left_out, other_method, other_numbers, other_numbers, raw_bytes, nvfp4, nvfp4, nvfp4)


def quantisation_of(config):
    q = config.get("quantization_config") or config.get("text_config", {}).get("quantization_config")
    return q if isinstance(q, dict) else None


# ---- runs

def outcome(hadal, folder, expected):
    at = os.path.join(folder, "logits.npy")
    tokens = os.path.join(folder, "expected.safetensors") + ":tokens"
    done = subprocess.run([hadal, "run", folder, "--interpret", "--tokens", tokens, "--logits", at], capture_output=True, text=True, errors="replace", timeout=120)
    if done.returncode < 0 or done.returncode > 2:
        return f"WRONG ends with {done.returncode}: {done.stderr[-300:]}", ""
    if done.returncode:
        return ("refused" if "error: " in done.stderr else "WRONG refused without a word"), done.stderr
    far = distance(npy(at), expected)
    return ("same" if isinstance(far, float) and far <= EVALUATOR else f"WRONG taken, and other logits: {far}"), done.stderr


def is_told(said, words, codes, stem):
    """Do the messages name a part of the weight, or a place in the config?"""
    module = stem[:-len(".weight")] if stem.endswith(".weight") else stem
    return any(w in said for w in (codes, stem, module, "config.json:")) or any(w in said for w in words.split())


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("hadal")
    p.add_argument("work")
    p.add_argument("folders", nargs="+")
    p.add_argument("--first", type=int, default=1)
    p.add_argument("--count", type=int, default=20)
    p.add_argument("--show", action="store_true", help="every fault, with the first message")
    a = p.parse_intermixed_args()
    wrong, table = 0, {}
    for folder in (f for f in a.folders if os.path.exists(os.path.join(f, "expected.safetensors"))):
        tensors = read_folder(folder)
        weights = list(weights_of(tensors))
        with open(os.path.join(folder, "config.json")) as f:
            config_text = f.read()
        expected = tensor(os.path.join(folder, "expected.safetensors"), "logits")
        out = os.path.join(a.work, "spoilt")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        shutil.copy(os.path.join(folder, "expected.safetensors"), out)
        for seed in range(a.first, a.first + a.count) if weights else ():
            r = Draw(f"spoilt {os.path.basename(os.path.normpath(folder))} {seed}")
            words = None
            while not words:
                t, config = {n: list(x) for n, x in tensors.items()}, json.loads(config_text)
                fault, (codes, scales, stem) = r.choice(FAULTS), r.choice(weights)
                words = fault(r, t, config, codes, scales, stem)
            checkpoint.write(os.path.join(out, "model.safetensors"), t)
            with open(os.path.join(out, "config.json"), "w") as f:
                json.dump(config, f, indent=1)
            what, said = outcome(a.hadal, out, expected)
            if what == "refused" and not is_told(said, words, codes, stem):
                what = "WRONG: the message names neither tensor nor place"
            wrong += "WRONG" in what
            row = table.setdefault(fault.__name__, {})
            row[what.split(":")[0]] = row.get(what.split(":")[0], 0) + 1
            if "WRONG" in what or a.show or what == "same":
                print("FAIL" if "WRONG" in what else what, folder, seed, fault.__name__, words, what, (said if "WRONG" in what else "\n".join(said.splitlines()[:1]))[:700] if said else "", flush=True)
    for fault, row in sorted(table.items()):
        print(f"{fault:20}", ", ".join(f"{n} {what}" for what, n in sorted(row.items())))
    sys.exit(1 if wrong else 0)
