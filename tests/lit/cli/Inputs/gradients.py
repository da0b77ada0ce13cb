"""gradients.py make OUT [DTYPE [LAST]]: the weights of hand.hadal; LAST: the second numbers of embedding 0 and of head row 1.
gradients.py check FILE: its gradients, as docs/learning.md has them."""
import array
import json
import math
import struct
import sys


def write(path, dtype="F32", last=None):
    rows = {"embed.weight": [1.0, float(last or 2), 7.0, 7.0], "lm_head.weight": [1.0, 0.0, 0.0, float(last or 1)]}
    header, data = {}, b""
    for name, x in rows.items():
        part = array.array("f", x).tobytes() if dtype == "F32" else b"".join(struct.pack("<f", v)[2:] for v in x)
        header[name] = {"dtype": dtype, "shape": [2, 2], "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def check(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    got = {n: list(array.array("f", data[slice(*x["data_offsets"])])) for n, x in header.items() if n != "__metadata__"}
    p = 1 / (1 + math.e)
    want = {"loss": [-math.log(1 - p)], "grad.embed.weight": [p, -p, 0, 0], "grad.lm_head.weight": [p, 2 * p, -p, -2 * p]}
    assert got.keys() == want.keys(), got.keys()
    for name, numbers in want.items():
        assert len(got[name]) == len(numbers)
        assert all(abs(a - b) < 1e-7 for a, b in zip(got[name], numbers)), (name, got[name], numbers)
    assert header["grad.embed.weight"]["dtype"] == "F32" and header["grad.embed.weight"]["shape"] == [2, 2]


if sys.argv[1] == "make":
    write(*sys.argv[2:])
else:
    check(sys.argv[2])
