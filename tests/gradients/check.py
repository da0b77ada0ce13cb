"""Gradients by the evaluator, or compiled, against those of independent float64 references, of which golden.json and published.json hold
projections (projections.py).

    check.py HADAL EXPECTED.json FOLDER WORK [--compiled [OPTION..]] [CASE..]
                         FOLDER/CASE: the models; no case: all that have a folder (full set), or each FEW-th
                         --compiled: by a library, with these options of hadal gradients besides

Tolerance of the evaluator: 1e-6 of the tensor's largest element, or of 1e-6 of the largest of all gradients of the case, in each element: the
sums of n elements may be off by sqrt n of it. Seen: 2e-7, from the references being stored as float32.
Of libraries, which add in float32, 1e-4; true zeros may be 1e-7 of the largest of all. Seen: 9e-5, and 8e-8. A sum whose terms cancel
(CANCELS) is off by more."""
import json
import math
import os
import subprocess
import sys

import projections

hadal, expected, folder, work, *rest = sys.argv[1:]
compiled = "--compiled" in rest
options = [x for x in rest if x.startswith("--") and x != "--compiled"]
chosen = [x for x in rest if not x.startswith("--")]
LIMIT = 1e-4 if compiled else 1e-6
ZERO = 1e-12
CANCELS = {  # the size of the terms over tokens over that of their sum is 43: PyTorch in float32 is off by 3e-5 to 6e-5, levels by 4e-5 to 1.8e-4
    ("hyper-connections", "model.layers.1.mlp_residual.alpha_scale"): 3,
}
FEW = 9 if compiled else 5
# attention over depth is an addition to the stream here, and no sublayer in the references
COUNTED_OTHERWISE = ("dreamer", "dreamer-looped", "mrla-base", "mrla-light")


def run(case, want):
    out = os.path.join(work, f"{case}.safetensors")
    tokens = projections.tensors(os.path.join(folder, case, "expected.safetensors"))["tokens"]
    listed = [",".join(map(str, x)) for x in (tokens, want["targets"])]
    how = options if compiled else ["--interpret"] + (["--by-depth"] if "out_rms" in want else [])
    model = os.path.join(folder, case)
    if compiled:  # under one name, with which symbols begin: what two cases have in common is translated once (HADAL_CODE_CACHE)
        model = os.path.join(work, case, "model")
        os.makedirs(os.path.dirname(model), exist_ok=True)
        if not os.path.islink(model):
            os.symlink(os.path.abspath(os.path.join(folder, case)), model)
    done = subprocess.run([hadal, "gradients", model, "--tokens", listed[0], "--targets", listed[1],
                           "-o", out, "-q", *how], capture_output=True, text=True)
    assert done.returncode == 0, f"{case}: {done.stderr}"
    return projections.tensors(out)


def check(case, want):
    got = run(case, want)
    assert abs(got["loss"][0] - want["loss"]) <= (1e-5 if compiled else 1e-6) * abs(want["loss"]), f"{case}: loss {got['loss'][0]}, not {want['loss']}"
    largest = max(numbers[0] for numbers in want["gradients"].values())
    worst = 0.0, ""
    for name, numbers in want["gradients"].items():
        g = got.get("grad." + name)
        assert g is not None, f"{case}: there is no grad.{name}"
        scale = max(numbers[0], 1e-6 * largest)
        if compiled and numbers[0] < ZERO * largest:  # summands that cancel leave their rounding
            scale = 1e-3 * largest
        if compiled:
            scale *= CANCELS.get((case, name), 1)
        for a, b in zip(projections.project("grad." + name, g), numbers):
            off = abs(a - b) / scale / math.sqrt(len(g))
            assert off <= LIMIT, f"{case}: grad.{name} is off by {off:.2g} of its largest element"
            worst = max(worst, (off, name))
    for name in ("out_rms", "out_grad_rms"):
        if compiled or name not in want or case in COUNTED_OTHERWISE:
            continue
        assert len(got[name]) == len(want[name]), f"{case}: {name} has {len(got[name])} entries, not {len(want[name])}"
        for a, b in zip(got[name], want[name]):
            assert abs(a - b) <= 1e-6 * max(want[name]), f"{case}: {name} {a}, not {b}"
    for name in got:
        known = name in want or name[5:] in want["gradients"] or name.endswith("layer_scalar")  # a buffer of gemma4 that multiplies
        assert known or not any(got[name]), f"{case}: {name}, which only chooses, has a gradient"
    print(f"{case}: {len(want['gradients'])} gradients, off by {worst[0]:.1g} at most ({worst[1]})")


os.makedirs(work, exist_ok=True)
with open(expected) as f:
    cases = {case: want for case, want in json.load(f).items() if os.path.exists(os.path.join(folder, case, "config.json"))}
if os.environ.get("HADAL_FULL") != "1" and not chosen:
    cases = dict(list(cases.items())[::FEW])
for case in chosen or cases:
    check(case, cases[case])
assert chosen or len(cases) > 2
