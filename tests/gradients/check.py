"""Gradients by the evaluator, or compiled, against those of independent float64 references, of which golden.json and published.json hold
projections (projections.py).

    check.py HADAL EXPECTED.json FOLDER WORK [--compiled [OPTION..]] [CASE..]
                         FOLDER/CASE: the models; no case: all that have a folder (full set), or each FEW-th
                         --compiled: by a library, with these options of hadal gradients besides

Tolerance of the evaluator: 1e-6 of the tensor's largest element, or of 1e-6 of the largest of all gradients of the case, in each element: the
sums of n elements may be off by sqrt n of it. Seen: 2e-7, from the references being stored as float32.
Of libraries, which compute in float32, 1e-4, or twice the change that moving each weight by its last digit makes (last_digit.py); true
zeros, whose terms cancel, may be a last digit of the largest of all. Seen: 2e-4, which is less than the change, and 8e-8."""
import json
import math
import os
import subprocess
import sys

import last_digit
import projections

hadal, expected, folder, work, *rest = sys.argv[1:]
compiled = "--compiled" in rest
options = [x for x in rest if x.startswith("--") and x != "--compiled"]
chosen = [x for x in rest if not x.startswith("--")]
LIMIT = 1e-4 if compiled else 1e-6
ZERO = 1e-12
LAST_DIGIT = 2.0**-23
FEW = 9 if compiled else 5
# attention over depth is an addition to the stream here, and no sublayer in the references
COUNTED_OTHERWISE = ("dreamer", "dreamer-looped", "mrla-base", "mrla-light")


def run(case, want, model, *how):
    out = os.path.join(work, f"{case}.safetensors")
    tokens = projections.read_numbers(os.path.join(folder, case, "expected.safetensors"))["tokens"]
    listed = [",".join(map(str, x)) for x in (tokens, want["targets"])]
    done = subprocess.run([hadal, "gradients", model, "--tokens", listed[0], "--targets", listed[1], "-o", out, "-q", *how],
                          capture_output=True, text=True)
    assert done.returncode == 0, f"{case}: {done.stderr}"
    return projections.read_numbers(out)


def distance(name, g, numbers, scale):
    off = [abs(a - b) for a, b in zip(projections.project("grad." + name, g), numbers)]
    return max(off) / scale / math.sqrt(len(g)) if math.isfinite(sum(off)) else math.inf


def changes(case, want, scales):
    """By tensor, in the measure of distance."""
    most = dict.fromkeys(scales, 0.0)
    for model in last_digit.moved(os.path.join(folder, case), os.path.join(work, case + ".moved")):
        got = run(case, want, model, "--interpret")
        for name, numbers in want["gradients"].items():
            most[name] = max(most[name], distance(name, got["grad." + name], numbers, scales[name]))
    return most


def check(case, want):
    how = options if compiled else ["--interpret"] + (["--by-depth"] if "out_rms" in want else [])
    model = os.path.join(folder, case)
    if compiled:  # under one name, with which symbols begin: what two cases have in common is translated once (HADAL_CODE_CACHE)
        model = os.path.join(work, case, "model")
        os.makedirs(os.path.dirname(model), exist_ok=True)
        if not os.path.islink(model):
            os.symlink(os.path.abspath(os.path.join(folder, case)), model)
    got = run(case, want, model, *how)
    assert abs(got["loss"][0] - want["loss"]) <= (1e-5 if compiled else 1e-6) * abs(want["loss"]), f"{case}: loss {got['loss'][0]}, not {want['loss']}"
    largest = max(numbers[0] for numbers in want["gradients"].values())
    scales, off = {}, {}
    for name, numbers in want["gradients"].items():
        g = got.get("grad." + name)
        assert g is not None, f"{case}: there is no grad.{name}"
        scales[name] = max(numbers[0], 1e-6 * largest)
        if compiled and numbers[0] < ZERO * largest:
            scales[name] = LAST_DIGIT / LIMIT * largest
        off[name] = distance(name, g, numbers, scales[name])
    worst = max(off, key=off.get)
    may = changes(case, want, scales) if compiled and off[worst] > LIMIT else {}
    for name, x in off.items():
        limit = max(LIMIT, last_digit.MANY * may.get(name, 0))
        assert x <= limit, f"{case}: grad.{name} is off by {x:.2g} of its largest element, which may be {limit:.2g}"
    for name in ("out_rms", "out_grad_rms"):
        if compiled or name not in want or case in COUNTED_OTHERWISE:
            continue
        assert len(got[name]) == len(want[name]), f"{case}: {name} has {len(got[name])} entries, not {len(want[name])}"
        for a, b in zip(got[name], want[name]):
            assert abs(a - b) <= 1e-6 * max(want[name]), f"{case}: {name} {a}, not {b}"
    for name in got:
        known = name in want or name[5:] in want["gradients"] or name.endswith("layer_scalar")  # a buffer of gemma4 that multiplies
        assert known or not any(got[name]), f"{case}: {name}, which only chooses, has a gradient"
    print(f"{case}: {len(want['gradients'])} gradients, off by {off[worst]:.2g} at most ({worst})" +
          (f", a last digit of weights by {may[worst]:.2g}" if may else ""))


os.makedirs(work, exist_ok=True)
with open(expected) as f:
    cases = {case: want for case, want in json.load(f).items() if os.path.exists(os.path.join(folder, case, "config.json"))}
if os.environ.get("HADAL_FULL") != "1" and not chosen:
    cases = dict(list(cases.items())[::FEW])
for case in chosen or cases:
    check(case, cases[case])
assert chosen or len(cases) > 2
