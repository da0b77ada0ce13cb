"""A checkpoint in F32 to two of the same numbers: its matrices as compressed-tensors packs MXFP4, and unpacked.

    to_mxfp4.py IN.safetensors PACKED.safetensors PLAIN.safetensors [NAME PART]

Matrices whose name holds NAME PART, or all, become codes of E2M1 (each the number's own bits, so that all occur) and powers
of two.
"""
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
import checkpoint  # noqa: E402

NUMBERS = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def codes_of(floats, n, k):
    """Codes and exponents: some of the number's bits, so that they are as random as it is."""
    words = [struct.unpack("<I", struct.pack("<f", x))[0] for x in floats]
    codes = [w >> 9 & 15 for w in words]
    scales = [121 + (words[32 * i] >> 14) % 4 for i in range(n * k // 32)]
    return codes, scales


def main(source, packed_path, plain_path, part=""):
    packed, plain = {}, {}
    for name, (dtype, shape, raw) in checkpoint.read(source).items():
        if len(shape) != 2 or shape[1] % 32 or part not in name or not name.endswith(".weight"):
            packed[name] = plain[name] = dtype, shape, raw
            continue
        n, k = shape
        codes, scales = codes_of(struct.unpack(f"<{n * k}f", raw), n, k)
        numbers = [(-1 if c & 8 else 1) * NUMBERS[c & 7] * 2.0 ** (scales[i // 32] - 127) for i, c in enumerate(codes)]
        pairs = bytes(codes[i] | codes[i + 1] << 4 for i in range(0, n * k, 2))
        packed[f"{name}_packed"] = "U8", [n, k // 2], pairs
        packed[f"{name}_scale"] = "U8", [n, k // 32], bytes(scales)
        plain[name] = dtype, shape, struct.pack(f"<{n * k}f", *numbers)
    checkpoint.write(packed_path, packed)
    checkpoint.write(plain_path, plain)


main(*sys.argv[1:])
