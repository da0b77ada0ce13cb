"""Gradients in few numbers: what the tests keep of the gradients of a model.

Of each tensor g of n elements, in float64: the largest |g[i]|, and the sums of g[i] c[i] for DIRECTIONS sequences c[i] of
numbers in -1 .. 1 that depend on the tensor's name. A gradient that is off by d in any element is off by about d in the sums.

    projections.py FOLDER OUT.json      of FOLDER/CASE/gradients.safetensors of all cases, by independent float64 references
"""
import glob
import json
import os
import sys
import zlib

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checkpoint import read_numbers  # noqa: E402

DIRECTIONS = 2
NAMES = {"gemma3n": "gemma3n_text", "gemma4": "gemma4_text", "inkling2": "inkling2_text", "inkling2_loop": "inkling2_loop_text"}
OTHERS = ("llama", "qwen3")  # those that have these names here are other folders


def coefficients(name, which, n):
    """xorshift32: the same numbers on every machine."""
    x = zlib.crc32(f"{which} {name}".encode()) or 1
    out = []
    for _ in range(n):
        x ^= x << 13 & 0xFFFFFFFF
        x ^= x >> 17
        x ^= x << 5 & 0xFFFFFFFF
        out.append(x / 2147483648.0 - 1.0)
    return out


def project(name, g):
    most = max(max(g), -min(g)) if len(g) else 0.0
    return [most] + [sum(map(float.__mul__, map(float, g), coefficients(name, k, len(g)))) for k in range(DIRECTIONS)]


def main(folder, out):
    cases = {}
    for path in sorted(glob.glob(os.path.join(folder, "*", "gradients.safetensors"))):
        all_ = read_numbers(path)
        case = {"targets": list(all_["targets"]), "loss": all_["loss"][0]}
        for name in ("out_rms", "out_grad_rms"):
            if name in all_:
                case[name] = [float(f"{x:.8g}") for x in all_[name]]
        case["gradients"] = {n[5:]: [float(f"{x:.8g}") for x in project(n, g)] for n, g in all_.items() if n.startswith("grad.")}
        name = os.path.basename(os.path.dirname(path)).removesuffix("-0")
        if name not in OTHERS:
            cases[NAMES.get(name, name)] = case  # as the folder is called here
    with open(out, "w") as f:
        f.write("{\n" + ",\n".join(f"{json.dumps(n)}: {json.dumps(c)}" for n, c in cases.items()) + "\n}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
