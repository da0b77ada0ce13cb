"""Checkpoints in the published formats of quantised weights, with random codes, for measuring how fast they are read."""
import json
import math
import os
import struct

PIECE = 1 << 24  # bytes written at a time


def header_of(path):
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        return json.loads(f.read(size)), 8 + size


def random_bytes(f, n, table=None):
    for at in range(0, n, PIECE):
        x = os.urandom(min(PIECE, n - at))
        f.write(x.translate(table) if table else x)


def constants(f, n, byte):
    for at in range(0, n, PIECE):
        f.write(bytes([byte]) * min(PIECE, n - at))


# the bytes of E4M3 that are finite numbers
E4M3 = bytes(x & 0xFE if x & 0x7F == 0x7F else x for x in range(256))


# all integer bytes but the least one
INT8 = bytes(x if x != 0x80 else 0x81 for x in range(256))


def mxfp4(name, rows, cols):
    stem = name.removesuffix(".weight")
    yield f"{stem}.weight_packed", "U8", [rows, cols // 2], lambda f: random_bytes(f, rows * cols // 2)
    yield f"{stem}.weight_scale", "U8", [rows, cols // 32], lambda f: constants(f, rows * cols // 32, 120)


# the bytes of E4M3 from 2^-6 to 1.875, without a sign
SCALES = bytes(8 + x % 56 for x in range(256))


def nvfp4(name, rows, cols):
    stem = name.removesuffix(".weight")
    yield f"{stem}.weight_packed", "U8", [rows, cols // 2], lambda f: random_bytes(f, rows * cols // 2)
    yield f"{stem}.weight_scale", "F8_E4M3", [rows, cols // 16], lambda f: random_bytes(f, rows * cols // 16, SCALES)
    yield f"{stem}.weight_global_scale", "F32", [1], lambda f: f.write(struct.pack("<f", 2.0**6))


def fp8(name, rows, cols):
    scales = [math.ceil(rows / 128), math.ceil(cols / 128)]
    yield name, "F8_E4M3", [rows, cols], lambda f: random_bytes(f, rows * cols, E4M3)
    yield f"{name}_scale_inv", "F32", scales, lambda f: f.write(struct.pack("<f", 2.0**-12) * (scales[0] * scales[1]))


def mxfp8(name, rows, cols):
    yield name, "F8_E4M3", [rows, cols], lambda f: random_bytes(f, rows * cols, E4M3)
    yield f"{name}_scale", "U8", [rows, cols // 32], lambda f: constants(f, rows * cols // 32, 115)


def integers(bits, name, rows, cols):
    stem, groups = name.removesuffix(".weight"), max(cols // 128, 1)
    yield f"{stem}.weight_packed", "I32", [rows, cols * bits // 32], lambda f: random_bytes(f, rows * cols * bits // 8)
    yield f"{stem}.weight_scale", "BF16", [rows, groups], lambda f: f.write(b"\x80\x3c" * (rows * groups))  # 2^-6
    yield f"{stem}.weight_shape", "I64", [2], lambda f: f.write(struct.pack("<qq", rows, cols))


def int4(name, rows, cols):
    yield from integers(4, name, rows, cols)


def int8(name, rows, cols):
    yield from integers(8, name, rows, cols)


def w8a8(name, rows, cols):
    yield name, "I8", [rows, cols], lambda f: random_bytes(f, rows * cols, INT8)
    yield f"{name}_scale", "BF16", [rows, 1], lambda f: f.write(b"\x80\x3c" * rows)


def gptq(name, rows, cols):
    stem, groups = name.removesuffix(".weight"), max(cols // 128, 1)
    yield f"{stem}.qweight", "I32", [cols // 8, rows], lambda f: random_bytes(f, rows * cols // 2)
    yield f"{stem}.qzeros", "I32", [groups, rows // 8], lambda f: constants(f, groups * rows // 2, 0x77)
    yield f"{stem}.scales", "F16", [groups, rows], lambda f: f.write(b"\x00\x24" * (rows * groups))  # 2^-6
    yield f"{stem}.g_idx", "I32", [cols], lambda f: f.write(struct.pack(f"<{cols}i", *(c // 128 for c in range(cols))))


def awq(name, rows, cols):
    stem, groups = name.removesuffix(".weight"), max(cols // 128, 1)
    yield f"{stem}.qweight", "I32", [cols, rows // 8], lambda f: random_bytes(f, rows * cols // 2)
    yield f"{stem}.qzeros", "I32", [groups, rows // 8], lambda f: random_bytes(f, groups * rows // 2)
    yield f"{stem}.scales", "F16", [groups, rows], lambda f: f.write(b"\x00\x24" * (rows * groups))


GROUPS = {"group_size": 128, "desc_act": False}
# formats that only a config describes
CONFIGS = {"gptq": {"quant_method": "gptq", "bits": 4, **GROUPS}, "awq": {"quant_method": "awq", "bits": 4, **GROUPS}}
FORMS = {"mxfp4": mxfp4, "nvfp4": nvfp4, "fp8": fp8, "mxfp8": mxfp8, "int4": int4, "int8": int8, "w8a8": w8a8, "gptq": gptq, "awq": awq}
BYTES = {"U8": 1, "I8": 1, "F16": 2, "F8_E4M3": 1, "F32": 4, "BF16": 2, "I32": 4, "I64": 8}


def write_config(folder, form):
    """Writes the config for the checkpoints of a directory, if the format needs one."""
    path = os.path.join(folder, "config.json")
    if form in CONFIGS:
        with open(path, "w") as f:
            json.dump({"quantization_config": CONFIGS[form]}, f)
    elif os.path.exists(path):
        os.remove(path)


def write(source, path, form):
    """Writes the checkpoint `source` with its projections in one of FORMS."""
    tensors, start = header_of(source)
    listed = []
    for name, t in tensors.items():
        if len(t["shape"]) == 2 and name.endswith("_proj.weight"):
            listed += FORMS[form](name, *t["shape"])
        else:
            begin, end = t["data_offsets"]
            listed.append((name, t["dtype"], t["shape"], (start + begin, end - begin)))
    header, at = {}, 0
    for name, dtype, shape, _ in listed:
        n = BYTES[dtype] * math.prod(shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(source, "rb") as old, open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, what in listed:
            if callable(what):
                what(f)
                continue
            old.seek(what[0])
            f.write(old.read(what[1]))
