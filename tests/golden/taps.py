#!/usr/bin/env python3
"""Taps of compiled golden cases: the values of all taps against those of the evaluator, and the magnitudes of outputs against
out_rms.safetensors. (test_taps checks the evaluator's.)

    taps.py HADAL GOLDEN_FOLDER WORK_FOLDER CASE..

With HADAL_FULL=1 all cases that have expected magnitudes. Tolerance 1e-4 of the largest element: float32 (seen 7e-6)."""
import array
import json
import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import checkpoint  # noqa: E402

hadal, golden, work, *cases = sys.argv[1:]
LIMIT = 1e-4
KINDS = ["input", "normed", "output", "stream", "source", "mix"]


def tensors(path):
    return {name: (shape, array.array("f", data)) for name, (_, shape, data) in checkpoint.read(path).items()}


def run(case, *more, fails=False):
    tokens = os.path.join(golden, case, "expected.safetensors") + ":tokens"
    done = subprocess.run([hadal, "run", os.path.join(golden, case), "--tokens", tokens, *more], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{case}: {done.returncode}\n{done.stderr}"
    return done.stderr if fails else done.stdout


def kinds_of(case):
    """What the model has, as the hint of an error tells."""
    told = run(case, "--taps", "source.9999", "--taps-out", "none", "--interpret", fails=True)
    return [kind for kind in KINDS if f"{kind}." in told.split("there are", 1)[1]]


def distance(got, wanted):
    assert len(got) == len(wanted)
    return max(map(lambda x, y: abs(x - y), got, wanted)) / max(max(map(abs, wanted)), 1e-30)


def check(case, expected):
    where = {way: os.path.join(work, f"{case}-{way}.safetensors") for way in ("compiled", "exact")}
    taps = ["--taps", ",".join(kinds_of(case)), "--by-depth=json"]
    table = json.loads(run(case, *taps, "--taps-out", where["compiled"], "--threads", "2"))
    exact = json.loads(run(case, *taps, "--taps-out", where["exact"], "--interpret"))
    values = [tensors(where[way]) for way in ("compiled", "exact")]
    assert list(values[0]) == list(values[1])
    for name, (shape, rows) in values[0].items():
        assert shape == values[1][name][0], f"{case} {name}: {shape}"
        off = distance(rows, values[1][name][1])
        assert off <= LIMIT, f"{case} {name}: {off:.3g}"
    outputs = [row["output"] for row in table["rows"][:-1]]
    assert distance(outputs, [row["output"] for row in exact["rows"][:-1]]) <= LIMIT
    assert [len(row["stream"]) for row in table["rows"]] == [len(row["stream"]) for row in exact["rows"]]
    if len(outputs) == len(expected):  # where attention over depth is a third addition, test_taps knows which it is
        for k, (got, wanted) in enumerate(zip(outputs, expected)):
            assert abs(got - wanted) <= LIMIT * wanted, f"{case}: output {k + 1} is {got}, not {wanted}"
    else:
        assert 2 * len(outputs) == 3 * len(expected)
    print(f"{case}: {len(values[0])} taps")


os.makedirs(work, exist_ok=True)
all_expected = tensors(os.path.join(golden, "out_rms.safetensors"))
if os.environ.get("HADAL_FULL") == "1":
    cases = [c for c in all_expected if os.path.exists(os.path.join(golden, c, "config.json"))]
for case in cases:
    check(case, all_expected[case][1])
