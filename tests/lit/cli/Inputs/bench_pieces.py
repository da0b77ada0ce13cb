"""bench_pieces.py SHORT LONG: what is not measured in pieces, a short prompt and one of one thread, and what is."""
import json
import sys


def rows(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)["rows"]


(short,), (alone, long) = map(rows, sys.argv[1:])
assert not [key for row in (short, alone) for key in row if key.startswith("undisturbed")], (short, alone)
assert long["seconds"] > 0.05, long
# On a machine with other work whole calls take a few times as long as undisturbed kernels. Steps that were left out or counted twice
# would be further off, and so would those of the last layer, which has one row, if they counted as runs of the other layers' kernels.
assert 0.2 < long["undisturbed_seconds"] / long["seconds"] < 1.5, long
assert long["undisturbed_spread"] >= 0, long
for share, plain in (("undisturbed_fma_fraction", "fma_fraction"), ("undisturbed_read_fraction", "read_fraction"),
                     ("undisturbed_tokens_per_second", "tokens_per_second")):
    assert abs(long[share] * long["undisturbed_seconds"] / (long[plain] * long["seconds"]) - 1) < 1e-6, long
