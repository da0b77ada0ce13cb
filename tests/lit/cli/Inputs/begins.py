"""begins.py BEGUN DRAWN: how each tensor is spread; begins.py WEIGHTS TRACES means: weights of mixes are all 1 / n."""
import array
import math
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
import checkpoint  # noqa: E402


def read(path):
    return {name: (shape, tuple(array.array("f", data))) for name, (_, shape, data) in checkpoint.read(path).items()}


def is_near(values, mean, deviation):
    m = sum(values) / len(values)
    d = math.sqrt(sum((x - m) ** 2 for x in values) / len(values))
    return abs(m - mean) < 4 * deviation / math.sqrt(len(values)) + 1e-9 and abs(d - deviation) < 0.3 * deviation + 1e-9


first, second = (read(path) for path in sys.argv[1:3])
if len(sys.argv) > 3:
    queries = [v for name, (_, v) in first.items() if name.endswith("_res_proj.weight")]
    assert queries and any(not any(q) for q in queries)
    for name, (shape, v) in second.items():
        assert "depth_weights" not in name or all(abs(x - 1 / shape[1]) < 1e-6 for x in v), name
    assert any("depth_weights" in name for name in second)
else:
    # docs/formats.md: before training gains are one and biases zero; drawn for tests they are around that
    for name, mean, deviation in (("q", 0, 0), ("o", 1, 0), ("g", 1, 0), ("bias", 0, 0), ("n", 0, 0.02), ("m", 0, 1 / math.sqrt(3))):
        assert is_near(first[name][1], mean, deviation), name
    for name, mean, deviation in (("q", 1, 0.1), ("o", 0, 1 / 8), ("g", 1, 0.1), ("bias", 0, 0.1), ("n", 1, 0.1), ("m", 0, 1 / math.sqrt(3))):
        assert is_near(second[name][1], mean, deviation), name
    assert first["m"] == second["m"]
    # lists of numbers are these, rounded to f32
    assert first["l"][1] == struct.unpack("<4f", struct.pack("<4f", 1, 0, -0.1, 3)) and first["c"][1] == (0.25,) * 4
    assert not set(first["l"][1]) & set(second["l"][1])
