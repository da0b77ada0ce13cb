"""Compiled gradients against those of the evaluator, for families that the files of references do not have, and for a sequence
longer than a range of 256 positions, by one thread and by three, which must give the same bits.

    evaluator.py HADAL TESTS WORK [CASE[:TOKENS]..]     TESTS/CASE: the model; full set: all of CASES, else the first

Tolerance: 1e-4 of the tensor's largest element, or twice the change that moving each weight by its last digit makes (last_digit.py). Seen:
9e-5, of a tensor whose gradient is far below the others', and 2e-5 in most."""
import math
import os
import subprocess
import sys

import last_digit
import projections

hadal, folder, work, *chosen = sys.argv[1:]
LIMIT, ZERO, LAST_DIGIT = 1e-4, 1e-12, 2.0**-23
CASES = ["published/qwen4_exp_text:37", "golden/kimi-linear:300", "published/deepseek_v41:37", "published/minimax:50",
         "published/bailing_hybrid:20", "published/qwen3_5_text:37", "published/glm5_next_text:20", "published/kimi_k3:20"]


def run(model, name, count, *how):
    out = os.path.join(work, name + ".safetensors")
    tokens = ",".join(str((7 * i + i * i) % 23 + 1) for i in range(count))
    targets = ",".join(str((5 * i + 3 * i * i) % 19 + 1 if i % 7 else -1) for i in range(count))
    done = subprocess.run([hadal, "gradients", model, "--tokens", tokens, "--targets", targets, "-o", out,
                           "-q", *how], capture_output=True, text=True)
    assert done.returncode == 0, f"{model}: {done.stderr}"
    return projections.read_numbers(out)


def largest(x):
    return max((abs(a) if a == a else math.inf for a in x), default=0.0)


def check(case, count):
    model = os.path.join(folder, case)
    got, again = (run(model, f"threads{n}", count, "--threads", str(n)) for n in (1, 3))
    want = run(model, "evaluator", count, "--interpret")
    assert got == again, f"{case}: three threads give other bits than one"
    assert got.keys() == want.keys(), f"{case}: {got.keys() ^ want.keys()}"
    most = max(largest(x) for name, x in want.items() if name.startswith("grad."))

    def distances(other):
        out = {}
        for name, x in want.items():
            own = largest(x)
            scale = LAST_DIGIT / LIMIT * most if own < ZERO * most else max(own, 1e-6 * most)
            out[name] = largest(a - b for a, b in zip(other[name], x)) / scale
        return out

    off, may = distances(got), {}
    if max(off.values()) > LIMIT:
        for each in last_digit.moved(model, os.path.join(work, "moved")):
            may = {name: max(x, may.get(name, 0)) for name, x in distances(run(each, "moved", count, "--interpret")).items()}
    for name, x in off.items():
        limit = max(LIMIT, last_digit.MANY * may.get(name, 0))
        assert x <= limit, f"{case}: {name} is off by {x:.2g} of its largest element, which may be {limit:.2g}"
    print(f"{case}, {count} tokens: {len(want)} tensors, off by {max(off.values()):.1g} at most")


os.makedirs(work, exist_ok=True)
for each in chosen or (CASES if os.environ.get("HADAL_FULL") == "1" else CASES[:1]):
    path, _, tokens = each.partition(":")
    check(path, int(tokens or 37))
