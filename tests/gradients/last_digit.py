"""What float32 can say of a gradient: by how much it changes, in exact arithmetic, where each weight is moved by its last digit.

Compiled code rounds every value of the forward half, and some of them often: the gradient of a model that magnifies such changes cannot be
nearer to the exact one, whatever the order of sums in the backward half."""
import array
import glob
import os
import random
import shutil
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import checkpoint  # noqa: E402

DRAWS, MANY = 8, 2  # moves that are tried; what may be off, as a multiple of the largest change
TO_FLOAT = {"F32": lambda raw: array.array("f", raw), "F16": lambda raw: array.array("f", struct.unpack(f"<{len(raw) // 2}e", raw)),
            "BF16": lambda raw: array.array("f", array.array("I", (x << 16 for x in array.array("H", raw))).tobytes())}


def move(path, draw, by):
    tensors = checkpoint.read(path)
    for name, (dtype, shape, data) in tensors.items():
        if dtype in TO_FLOAT:  # each number but 0 up or down, as float32
            bits = array.array("I", TO_FLOAT[dtype](data).tobytes())
            data = array.array("I", (b + draw.choice((-by, by)) if b & 0x7F800000 else b for b in bits)).tobytes()
            tensors[name] = "F32", shape, data
    checkpoint.write(path, tensors)


def moved(folder, to, by=1, draws=DRAWS):
    """Copies of the folder with weights that are moved by so many last digits, one after the other at `to`."""
    for seed in range(draws):
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(folder, to, ignore=shutil.ignore_patterns("expected*"))
        for path in glob.glob(os.path.join(to, "*.safetensors")):
            move(path, random.Random(seed), by)
        yield to
