"""gradients.py make OUT [DTYPE [LAST]]: the weights of hand.hadal; LAST: the second numbers of embedding 0 and of head row 1.
gradients.py check FILE: its gradients, as docs/learning.md has them."""
import array
import math
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
import checkpoint  # noqa: E402


def write(path, dtype="F32", last=None):
    rows = {"embed.weight": [1.0, float(last or 2), 7.0, 7.0], "lm_head.weight": [1.0, 0.0, 0.0, float(last or 1)]}
    checkpoint.write(path, {name: (dtype, [2, 2], array.array("f", x).tobytes() if dtype == "F32" else b"".join(struct.pack("<f", v)[2:] for v in x))
                            for name, x in rows.items()})


def check(path):
    tensors = checkpoint.read(path)
    got = {name: list(array.array("f", data)) for name, (_, _, data) in tensors.items()}
    p = 1 / (1 + math.e)
    want = {"loss": [-math.log(1 - p)], "grad.embed.weight": [p, -p, 0, 0], "grad.lm_head.weight": [p, 2 * p, -p, -2 * p]}
    assert got.keys() == want.keys(), got.keys()
    for name, numbers in want.items():
        assert len(got[name]) == len(numbers)
        assert all(abs(a - b) < 1e-7 for a, b in zip(got[name], numbers)), (name, got[name], numbers)
    assert tensors["grad.embed.weight"][:2] == ("F32", [2, 2])


if sys.argv[1] == "make":
    write(*sys.argv[2:])
else:
    check(sys.argv[2])
