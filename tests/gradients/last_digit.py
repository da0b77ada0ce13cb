"""What float32 can say of a gradient: by how much it changes, in exact arithmetic, where each weight is moved by its last digit.

Compiled code rounds every value of the forward half, and some of them often: the gradient of a model that magnifies such changes cannot be
nearer to the exact one, whatever the order of sums in the backward half."""
import array
import glob
import json
import os
import random
import shutil
import struct

DRAWS, MANY = 8, 2  # moves that are tried; what may be off, as a multiple of the largest change
TO_FLOAT = {"F32": lambda raw: array.array("f", raw), "F16": lambda raw: array.array("f", struct.unpack(f"<{len(raw) // 2}e", raw)),
            "BF16": lambda raw: array.array("f", array.array("I", (x << 16 for x in array.array("H", raw))).tobytes())}


def move(path, draw, by):
    with open(path, "rb") as f:
        header, data = json.loads(f.read(struct.unpack("<Q", f.read(8))[0])), f.read()
    out, parts, at = {}, [], 0
    for name, x in header.items():
        if name == "__metadata__":
            continue
        raw = data[slice(*x["data_offsets"])]
        dtype = x["dtype"]
        if dtype in TO_FLOAT:  # each number but 0 up or down, as float32
            bits = array.array("I", TO_FLOAT[dtype](raw).tobytes())
            raw, dtype = array.array("I", (b + draw.choice((-by, by)) if b & 0x7F800000 else b for b in bits)).tobytes(), "F32"
        out[name] = {"dtype": dtype, "shape": x["shape"], "data_offsets": [at, at + len(raw)]}
        parts.append(raw)
        at += len(raw)
    text = json.dumps(out).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(parts))


def moved(folder, to, by=1, draws=DRAWS):
    """Copies of the folder with weights that are moved by so many last digits, one after the other at `to`."""
    for seed in range(draws):
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(folder, to, ignore=shutil.ignore_patterns("expected*"))
        for path in glob.glob(os.path.join(to, "*.safetensors")):
            move(path, random.Random(seed), by)
        yield to
