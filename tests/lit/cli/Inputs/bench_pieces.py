"""bench_pieces.py SHORT LONG: what is not measured in pieces, a short prompt and one of one thread, and what is."""
import json
import sys


def rows(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)["rows"]


(short,), (alone, long) = map(rows, sys.argv[1:])
assert not [key for row in (short, alone) for key in row if key.startswith("undisturbed")], (short, alone)
assert long["seconds"] > 0.05, long
# On a machine with other work whole calls may take many times as long as undisturbed kernels. Steps that were counted twice would take
# longer than that; if those of the last layer, which has one row, counted as runs of the other layers' kernels, these would be ten times as
# fast as the limit.
assert long["undisturbed_seconds"] < 1.8 * long["seconds"] and long["undisturbed_fma_fraction"] < 2, long
assert long["undisturbed_spread"] >= 0, long
assert long["undisturbed_fma_limit"] >= long["fma_limit"] and long["undisturbed_read_limit"] >= long["read_limit"], long
for amount, share, limit in (("flops", "undisturbed_fma_fraction", "undisturbed_fma_limit"),
                             ("bytes", "undisturbed_read_fraction", "undisturbed_read_limit"),
                             ("tokens", "undisturbed_tokens_per_second", None)):
    expected = long[amount] / long["undisturbed_seconds"] / (long[limit] if limit else 1)
    assert abs(long[share] / expected - 1) < 1e-6, (share, long)
