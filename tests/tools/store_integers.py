#!/usr/bin/env python3
"""A folder whose integers are packed by compressed-tensors ("pack-quantized"), stored in another of the layouts that checkpoints have.

    store_integers.py FOLDER gptq|gptq_v2|awq|bytes OUT

The numbers are the same, so that the expected logits are. gptq and gptq_v2 name their groups in an order of their own (desc_act), which g_idx tells;
bytes is "int-quantized" with static activations and a quantised cache, whose scales mean nothing for the numbers. Needs nothing but Python.
"""
import json
import os
import shutil
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import checkpoint  # noqa: E402

AWQ = (0, 2, 4, 6, 1, 3, 5, 7)


def words(numbers, bits):
    """Rows of whole numbers in words, the first in the lowest bits"""
    n, out = 32 // bits, bytearray()
    for row in numbers:
        assert len(row) % n == 0
        for at in range(0, len(row), n):
            out += struct.pack("<I", sum(x << bits * i for i, x in enumerate(row[at:at + n])))
    return bytes(out)


def unpacked(tensor, bits, cols):
    _, (rows, across), data = tensor
    word, n = struct.unpack(f"<{rows * across}I", data), 32 // bits
    return [[word[r * across + c // n] >> bits * (c % n) & 2 ** bits - 1 for c in range(cols)] for r in range(rows)]


def turned(rows):
    return [list(x) for x in zip(*rows)]


class Weight:
    """Codes [out][in], zero points [out][groups], scales as they are stored, two bytes each"""

    def __init__(self, tensors, module, bits):
        rows, cols = struct.unpack("<qq", tensors.pop(module + ".weight_shape")[2])
        self.q = unpacked(tensors.pop(module + ".weight_packed"), bits, cols)
        self.dtype, (_, groups), data = tensors.pop(module + ".weight_scale")
        self.s = [[data[2 * (r * groups + g):][:2] for g in range(groups)] for r in range(rows)]
        zeros = tensors.pop(module + ".weight_zero_point", None)
        if zeros:       # packed along the rows
            turned_zeros = words_along_rows(zeros, bits, rows)
            self.z = [[turned_zeros[g][r] for g in range(groups)] for r in range(rows)]
        else:
            self.z = [[2 ** (bits - 1)] * groups for _ in range(rows)]
        self.asymmetric = zeros is not None
        self.rows, self.cols, self.groups = rows, cols, groups


def words_along_rows(tensor, bits, rows):
    _, (down, groups), data = tensor
    word, n = struct.unpack(f"<{down * groups}I", data), 32 // bits
    return [[word[r // n * groups + g] >> bits * (r % n) & 2 ** bits - 1 for r in range(rows)] for g in range(groups)]


def gptq(w, module, bits, less):
    names = list(range(w.groups))[::-1]         # group g of the columns is called names[g]
    z, s = turned(w.z), turned(w.s)
    yield ".qweight", "I32", [w.cols * bits // 32, w.rows], b"".join(
        words([[w.q[r][c] for c in range(at, at + 32 // bits)] for r in range(w.rows)], bits) for at in range(0, w.cols, 32 // bits))
    yield ".qzeros", "I32", [w.groups, w.rows * bits // 32], words([[x - less for x in z[names[g]]] for g in range(w.groups)], bits)
    yield ".scales", w.dtype, [w.groups, w.rows], b"".join(b"".join(s[names[g]]) for g in range(w.groups))
    yield ".g_idx", "I32", [w.cols], struct.pack(f"<{w.cols}i", *(names[c * w.groups // w.cols] for c in range(w.cols)))


def awq(w, module):
    ordered = lambda row: [row[at + i] for at in range(0, len(row), 8) for i in AWQ]
    yield ".qweight", "I32", [w.cols, w.rows // 8], words([ordered(row) for row in turned(w.q)], 4)
    yield ".qzeros", "I32", [w.groups, w.rows // 8], words([ordered(row) for row in turned(w.z)], 4)
    yield ".scales", w.dtype, [w.groups, w.rows], b"".join(b"".join(row) for row in turned(w.s))


def plain(w, module, bits):
    middle = 2 ** (bits - 1)
    yield ".weight", "I8", [w.rows, w.cols], b"".join(struct.pack(f"<{w.cols}b", *(q - middle for q in row)) for row in w.q)
    yield ".weight_scale", w.dtype, [w.rows, w.groups], b"".join(b"".join(row) for row in w.s)
    if w.asymmetric:
        yield ".weight_zero_point", "I8", [w.rows, w.groups], b"".join(struct.pack(f"<{w.groups}b", *(z - middle for z in row)) for row in w.z)
    yield ".input_scale", "BF16", [1], b"\x00\x3d"
    if module.endswith("k_proj"):       # of the attention module
        for name in ("k_scale", "v_scale"):
            yield "../" + name, "BF16", [1], b"\x80\x3d"


def config_of(form, old, bits):
    group = next(iter(old["config_groups"].values()))["weights"]
    size = group["group_size"] or -1
    if form == "awq":
        return {"bits": 4, "group_size": size, "modules_to_not_convert": None, "quant_method": "awq", "version": "gemm", "zero_point": True}
    if form != "bytes":
        said = {"bits": bits, "damp_percent": 0.01, "desc_act": True, "group_size": size, "model_file_base_name": "model", "model_name_or_path": None,
                "quant_method": "gptq", "static_groups": False, "sym": group["symmetric"], "true_sequential": True}
        return {**said, "checkpoint_format": form, "meta": {"quantizer": ["gptqmodel:2.2.0"]}, "pack_dtype": "int32"} if form == "gptq_v2" else said
    activations = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "tensor", "dynamic": False}
    groups = {name: {**g, "input_activations": activations} for name, g in old["config_groups"].items()}
    return {**old, "format": "int-quantized", "config_groups": groups, "kv_cache_scheme": {**activations, "type": "float"}}


if __name__ == "__main__":
    folder, form, out = sys.argv[1:]
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    tensors = checkpoint.read(os.path.join(folder, "model.safetensors"))
    old = config["quantization_config"]
    bits = next(iter(old["config_groups"].values()))["weights"]["num_bits"]
    for module in [n[:-len(".weight_packed")] for n in tensors if n.endswith(".weight_packed")]:
        w = Weight(tensors, module, bits)
        parts = awq(w, module) if form == "awq" else plain(w, module, bits) if form == "bytes" else gptq(w, module, bits, form == "gptq")
        for suffix, dtype, shape, data in parts:
            name = module.rsplit(".", 1)[0] + "." + suffix[3:] if suffix.startswith("../") else module + suffix
            tensors[name] = (dtype, shape, data)
    config["quantization_config"] = config_of(form, old, bits)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    checkpoint.write(os.path.join(out, "model.safetensors"), tensors)
    shutil.copy(os.path.join(folder, "expected.safetensors"), out)
