"""The contract of NAME_gradients, called through ctypes as a program would call it.

    trainer.py HADAL FOLDER WORK     FOLDER: golden cases

Bits: a call of eight sequences is eight calls; 1, 2 and 16 threads. Each CPU level of this machine against the best one. Edges: no
target counts, one token, a sequence as long as the trainer. Arguments: each one that is wrong is rejected by its code, with a
message, and nothing has changed."""
import ctypes as c
import os
import random
import re
import subprocess
import sys

import projections
from library import ALIGNMENT, ARGUMENT, CPU, FINITE, FULL, MOVED, OK, SIZE, TOKEN, Model, Trainer, memory

hadal, folder, work = sys.argv[1:]
os.makedirs(work, exist_ok=True)
LONGEST = 40


def sequence(n, counted=0.8):
    return [(random.randrange(VOCAB), random.randrange(VOCAB) if random.random() < counted else -1) for _ in range(n)]


def fails(t, code, sequences, said):
    before = t.gradients()
    got = t.call(sequences)
    assert got == (code, -1, -1), f"{got}, not {code}: {t.message()}"
    assert said in t.message(), t.message()
    assert t.gradients() == before, "a rejected call has changed gradients"


def check_bits(m):
    eight = [sequence(n) for n in (1, 7, LONGEST, 16, 2, 33, 5, 12)]
    whole = Trainer(m)
    code, total, count = whole.call(eight)
    assert code == OK, whole.message()
    assert count == sum(g >= 0 for s in eight for _, g in s) and total > 0
    one_by_one, total2 = Trainer(m), 0.0
    for s in eight:
        code, part, _ = one_by_one.call([s])
        assert code == OK
        total2 += part
    assert total == total2 and whole.gradients() == one_by_one.gradients(), "eight calls give other bits"
    for threads in (1, 2, 16):
        t = Trainer(m)
        assert m.trainer_set_threads(t.t, threads) == OK and t.call(eight)[:2] == (OK, total)
        assert t.gradients() == whole.gradients(), f"{threads} threads give other bits"
    levels = 0
    want = whole.floats()
    largest = max(abs(x) for g in want for x in g)
    for level in LEVELS:
        t = Trainer(m)
        code = m.trainer_set_cpu(t.t, level.encode())
        assert code in (OK, CPU)
        if code != OK:
            continue
        levels += 1
        assert t.call(eight)[0] == OK and m.trainer_cpu(t.t).decode() == level
        for p, a, b in zip(t.parameters, t.floats(), want):
            scale = max(max(map(abs, b)), 1e-6 * largest)
            assert all(abs(x - y) <= 2e-4 * scale for x, y in zip(a, b)), f"{level}: {p.name.decode()} differs"
    assert levels > 0
    twice = Trainer(m)
    assert twice.call(eight)[0] == OK and twice.call(eight)[0] == OK
    assert all(abs(y - 2 * x) <= 1e-4 * largest for a, b in zip(want, twice.floats()) for x, y in zip(a, b)), "calls add"


def check_edges(m):
    t = Trainer(m)
    assert t.call([sequence(9, counted=0)]) == (OK, 0, 0)
    assert not any(t.gradients()), "nothing counts, and there is a gradient"
    assert t.call([sequence(1, counted=1)])[0] == OK and any(t.gradients())
    assert t.call([sequence(LONGEST)])[0] == OK


def check_rejected(m):
    t = Trainer(m)
    fails(t, FULL, [sequence(3), sequence(LONGEST + 1)], f"sequence 1 has {LONGEST + 1} tokens")
    fails(t, ARGUMENT, [sequence(3), []], "sequence 1 has 0 tokens")
    fails(t, ARGUMENT, [], "0 sequences")
    fails(t, TOKEN, [sequence(2) + [(VOCAB, 0)]], f"token 2 is {VOCAB}")
    fails(t, TOKEN, [[(-1, 0)]], "token 0 is -1")
    fails(t, TOKEN, [sequence(2), [(0, VOCAB)]], f"target 2 is {VOCAB}")
    p = t.parameters[-1]
    before = p.values[1]
    for value in ("nan", "inf", "-inf"):
        p.values[1] = float(value)
        fails(t, FINITE, [sequence(3)], f"element 1 of parameter {p.name.decode()} is ")
    p.values[1] = before
    assert t.call([sequence(3)])[0] == OK and t.message() == ""
    assert m.gradients(None, None, None, None, 1, None, None) == ARGUMENT
    assert m.gradients(t.t, None, None, None, 1, None, None) == ARGUMENT and "tokens are a null" in t.message()
    assert m.trainer_set_threads(t.t, 0) == ARGUMENT and m.trainer_set_threads(t.t, 257) == ARGUMENT
    assert m.trainer_set_cpu(t.t, b"none") == CPU and "there is no level" in t.message()
    out, n = c.c_void_p(1), c.c_size_t(1)
    for longest in (0, -1, 1 << 40):
        assert m.trainer_size(longest) == 0
    size = m.trainer_size(8)
    raw, at = memory(2 * size)
    for code, arguments in ((SIZE, (at, size - 1, 8)), (ALIGNMENT, (at + 4, size, 8)), (ARGUMENT, (None, size, 8)), (ARGUMENT, (at, size, 0))):
        out.value = 1
        assert m.trainer_init(*arguments, c.byref(out)) == code and out.value is None
    assert m.trainer_init(at, size, 8, None) == ARGUMENT
    assert m.trainer_init(at, size, 8, c.byref(out)) == OK
    c.memmove(at + size, at, size)
    assert m.gradients(at + size, None, None, None, 1, None, None) == MOVED
    assert not m.trainer_parameters(at + size, c.byref(n)) and n.value == 0
    assert b"finite" in m.strerror(FINITE)


def check_header(m):
    """What the header shows compiles, as C and as C++ where there is one."""
    text = open(m.header, encoding="utf-8").read()
    example = [line[7:] for line in text.split("*/")[0].splitlines() if line.startswith(" *     ")]
    end = next(i for i, line in enumerate(example) if line == "}")
    with open(os.path.join(work, "example.c"), "w", encoding="utf-8") as f:
        f.write("\n".join(example[:end + 1]) + "\n")
    done = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-but-set-variable", "-I", os.path.dirname(m.header), "-c",
                           os.path.join(work, "example.c"), "-o", os.path.join(work, "example.o")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search("_MAX_CHUNK +4096 ", text), "sequences of 4096 tokens are promised where --chunk is not given"


random.seed(11)
done = subprocess.run([hadal, "machine", "--threads", "0"], capture_output=True, text=True)
LEVELS = re.findall(r"(\S+) +runs$", done.stdout, re.MULTILINE)
for case in ("standard", "attnres-block"):
    model = Model(hadal, folder, work, case)
    VOCAB = len(projections.read_numbers(os.path.join(folder, case, "expected.safetensors"))["logits"]) // len(
        projections.read_numbers(os.path.join(folder, case, "expected.safetensors"))["tokens"])
    check_bits(model)
    check_edges(model)
    if case == "standard":
        check_rejected(model)
        check_header(model)
    print(f"{case}: as promised")
