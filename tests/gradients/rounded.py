"""Gradients by products of bf16 (--matmul-dtype bf16): how far they are off, their bits, and who rejects them.

    rounded.py HADAL FOLDER WORK [CASE..]     FOLDER: golden cases; no case: each FEW-th that has gradients (full set: all)

Both operands of a product are off by 2^-9 of themselves at most, as a weight is that moves by half a digit of bf16. What such moves of
all weights change in the exact gradient is the measure: a matrix is an operand of two of the three products of its layer, and the other
four operands are off by as much. So a tensor may be off by MANY of the largest change in DRAWS draws, and by SELF of its norm, which is
the rounding of the last product alone, of dy and x. Norms are those of vectors. Seen: 1.8 of the change, in one model 3.7 of a small one. Models that choose experts
are left out: another choice is no small change."""
import math
import os
import random
import subprocess
import sys

import last_digit
import projections
from library import OK, Model, Trainer

hadal, folder, work, *chosen = sys.argv[1:]
HALF_A_DIGIT = 1 << 15  # of bf16, in last digits of float32
DRAWS, MANY, SELF = 2, 4, 2.0**-8
FEW = 24
CHOOSE = ("k3", "kimi-linear", "kimi-linear-attnres")
ZERO = 1e-6  # of the model's largest norm: a gradient whose terms cancel
OPTION = ("--matmul-dtype", "bf16")
os.makedirs(work, exist_ok=True)


def command(case, model, *how):
    expected = projections.read_numbers(os.path.join(folder, case, "expected.safetensors"))
    tokens = list(expected["tokens"])
    out = os.path.join(work, f"{case}.safetensors")
    listed = [",".join(map(str, x)) for x in (tokens, tokens[1:] + [-1])]
    return subprocess.run([hadal, "gradients", model, "--tokens", listed[0], "--targets", listed[1], "-o", out, "-q", *how],
                          capture_output=True, text=True), out


def gradients(case, model, *how):
    done, out = command(case, model, *how)
    assert done.returncode == 0, f"{case}: {done.stderr}"
    return {n: g for n, g in projections.read_numbers(out).items() if n.startswith("grad.")}


def norm(x):
    return math.sqrt(sum(a * a for a in x))


def apart(x, y):
    return norm([a - b for a, b in zip(x, y)])


def check(case):
    model = os.path.join(folder, case)
    exact = gradients(case, model, "--interpret")
    change = dict.fromkeys(exact, 0.0)
    for other in last_digit.moved(model, os.path.join(work, case + ".moved"), HALF_A_DIGIT, DRAWS):
        for name, g in gradients(case, other, "--interpret").items():
            change[name] = max(change[name], apart(g, exact[name]))
    got = gradients(case, model, *OPTION)
    least = ZERO * max(map(norm, exact.values()))
    most = 0.0
    for name, g in exact.items():
        off, may = apart(got[name], g), MANY * change[name] + SELF * norm(g) + least
        assert off <= may, f"{case}: {name} is off by {off / norm(g):.2g} of itself, which may be {may / norm(g):.2g}"
        most = max(most, off / (change[name] + least))
    every = [[x for g in all_.values() for x in g] for all_ in (exact, got)]
    off = apart(*every) / norm(every[0])
    print(f"{case}: off by {off:.2g}, {most:.2g} of what the weights' half digits change")
    assert got != exact
    return off


def check_bits(case):
    """A call of several sequences is as many calls, and threads change nothing; of the sizes of a spec, which are odd, gradients are near
    those of f32: an element in the wrong place is off by all of itself."""
    model = Model(hadal, folder, work, case, *OPTION, "--target-cpu", "native")
    random.seed(5)
    several = [[(random.randrange(model.config["vocab_size"]), random.randrange(model.config["vocab_size"])) for _ in range(n)] for n in (1, 7, 40, 33)]
    whole, parts = Trainer(model), Trainer(model)
    assert whole.call(several)[0] == OK, whole.message()
    for s in several:
        assert parts.call([s])[0] == OK
    assert whole.gradients() == parts.gradients(), "several calls give other bits"
    for threads in (1, 2, 16):
        t = Trainer(model)
        assert model.trainer_set_threads(t.t, threads) == OK and t.call(several)[0] == OK
        assert t.gradients() == whole.gradients(), f"{threads} threads give other bits"
    if case.endswith(".hadal"):
        exact = Trainer(Model(hadal, folder, work, case, "--target-cpu", "native"))
        assert exact.call(several)[0] == OK
        for p, x, y in zip(whole.parameters, whole.floats(), exact.floats()):
            assert apart(x, y) <= 0.05 * norm(y), f"{case}: {p.name.decode()} is off by {apart(x, y) / norm(y):.2g} of itself"


cases = chosen or sorted(c for c in os.listdir(folder) if os.path.exists(os.path.join(folder, c, "config.json"))
                         and c not in CHOOSE)
if os.environ.get("HADAL_FULL") != "1" and not chosen:
    cases = cases[::FEW]
tried = command("standard", os.path.join(folder, "standard"), *OPTION)[0]
if tried.returncode:
    assert "--matmul-dtype bf16 is not for" in tried.stderr, tried.stderr
    print("this machine multiplies no bf16")
    sys.exit()
off = sorted(check(case) for case in cases)
print(f"{len(off)} models, off by {off[len(off) // 2]:.2g}, {off[-1]:.2g} at most")
for case in ("attnres-block", "sizes.hadal"):
    check_bits(case)
