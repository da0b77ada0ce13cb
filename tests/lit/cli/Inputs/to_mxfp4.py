"""A checkpoint in F32 to two of the same numbers: its matrices as compressed-tensors packs MXFP4, and unpacked.

    to_mxfp4.py IN.safetensors PACKED.safetensors PLAIN.safetensors [NAME PART]

Matrices whose name holds NAME PART, or all, become codes of E2M1 (each the number's own bits, so that all occur) and powers
of two.
"""
import json
import struct
import sys

NUMBERS = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def read(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    for name, t in header.items():
        if name != "__metadata__":
            yield name, t["dtype"], t["shape"], data[slice(*t["data_offsets"])]


def write(path, tensors):
    header, data = {}, b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def codes_of(floats, n, k):
    """Codes and exponents: some of the number's bits, so that they are as random as it is."""
    words = [struct.unpack("<I", struct.pack("<f", x))[0] for x in floats]
    codes = [w >> 9 & 15 for w in words]
    scales = [121 + (words[32 * i] >> 14) % 4 for i in range(n * k // 32)]
    return codes, scales


def main(source, packed_path, plain_path, part=""):
    packed, plain = [], []
    for name, dtype, shape, raw in read(source):
        if len(shape) != 2 or shape[1] % 32 or part not in name or not name.endswith(".weight"):
            packed.append((name, dtype, shape, raw))
            plain.append((name, dtype, shape, raw))
            continue
        n, k = shape
        codes, scales = codes_of(struct.unpack(f"<{n * k}f", raw), n, k)
        numbers = [(-1 if c & 8 else 1) * NUMBERS[c & 7] * 2.0 ** (scales[i // 32] - 127) for i, c in enumerate(codes)]
        pairs = bytes(codes[i] | codes[i + 1] << 4 for i in range(0, n * k, 2))
        packed.append((f"{name}_packed", "U8", [n, k // 2], pairs))
        packed.append((f"{name}_scale", "U8", [n, k // 32], bytes(scales)))
        plain.append((name, dtype, shape, struct.pack(f"<{n * k}f", *numbers)))
    write(packed_path, packed)
    write(plain_path, plain)


main(*sys.argv[1:])
