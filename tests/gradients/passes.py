"""The pipeline of gradients by the float64 evaluator: differentiate against differences of the loss, and each pass after it against what
there was before (--check-passes).

    passes.py HADAL TESTS WORK [CASE..]     TESTS/CASE: the models; no case: all that have gradients (full set), or FEW

Weights that are stored as codes have no gradients, and are rejected."""
import glob
import os
import subprocess
import sys

hadal, tests, work, *chosen = sys.argv[1:]
FEW = ["published/hrm_text-hub", "golden/attnres-block"]  # one with `detach`, one in two phases
os.makedirs(work, exist_ok=True)


def check(case):
    done = subprocess.run([hadal, "opt", os.path.join(tests, case), "--gradients", "--passes=default", "--check-passes", "-o",
                           os.path.join(work, "out.hir")], capture_output=True, text=True)
    if done.returncode and "is quantised: it has no gradient" in done.stderr:
        return False
    assert done.returncode == 0, f"{case}: {done.stderr}"
    return True


cases = chosen or FEW
if os.environ.get("HADAL_FULL") == "1" and not chosen:
    cases = sorted(os.path.relpath(os.path.dirname(c), tests) for kind in ("golden", "published")
                   for c in glob.glob(os.path.join(tests, kind, "*", "config.json")))
with_gradients = sum(map(check, cases))
print(f"{with_gradients} models, {len(cases) - with_gradients} in codes")
assert with_gradients > len(cases) // 2
