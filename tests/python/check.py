#!/usr/bin/env python3
"""The class that `hadal compile --emit=python` writes, without numpy and, where it is installed, with it.

    check.py HADAL TESTS OUT

What each call gives is what the command gives for the same library, or what the formula says; each error is an exception
with the library's message. The script runs itself with `use OUT` under `python -S -I`, which finds no numpy.
"""
import copy
import importlib.util
import math
import os
import pickle
import subprocess
import sys
import threading

TOKENS = [5, 17, 900, 3, 3, 1002, 44, 8, 15, 16, 23, 42]


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True)


def made(*command):
    done = run(*command)
    assert not done.returncode, done.stderr
    return done.stdout


def rejected(words, *command):
    done = run(*command)
    assert done.returncode and words in done.stderr, (command, done.stderr)


def compile_all(hadal, tests, out):
    spec, w = os.path.join(tests, "loss", "heads.hadal"), os.path.join(out, "w.safetensors")
    shape = ["-D", "vocab=1003", "-D", "bias=true"]
    made(hadal, "init-weights", "--draw-all", spec, *shape, "-o", w, "-q")
    common = [hadal, "compile", spec, *shape, "-w", w, "--target-cpu", "native", "--chunk", 8, "-q"]
    made(*common, "--loss", "--emit=so,header,weights,python", "-o", os.path.join(out, "heads"))
    made(*common, "--emit=so,weights,python", "-o", os.path.join(out, "plain"))
    made(hadal, "run", os.path.join(out, "heads"), "--tokens", ",".join(map(str, TOKENS)), "--logits", os.path.join(out, "l.npy"), "-q")
    rejected("both write NAME.py", *common, "--emit=python,torch", "-o", os.path.join(out, "both"))
    rejected("no class of Python is written for a model that is divided over machines", *common, "--ranks", 2, "--emit=python", "-o",
             os.path.join(out, "two"))
    rejected('no class of Python is written for a model called "lambda"', *common, "--emit=python", "-o", os.path.join(out, "lambda"))
    rejected("no class of Python is written for a plain function", hadal, "compile",
             os.path.join(tests, "..", "examples", "plain-function", "swiglu_gate.hir"), "--emit=python", "-o", os.path.join(out, "gate"))


# ---- with the class ---------------------------------------------------------------------------------


def load(path, name, change=None):
    spec = importlib.util.spec_from_file_location(name, os.path.join(path, f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    if not change:
        spec.loader.exec_module(module)
        return module
    with open(spec.origin) as f:
        text = f.read()
    assert change[0] in text
    module.__file__ = spec.origin
    exec(compile(text.replace(*change), spec.origin, "exec"), module.__dict__)
    return module


def rows_of_npy(path, row):
    import array
    with open(path, "rb") as f:
        data = f.read()
    flat = array.array("f", data[10 + int.from_bytes(data[8:10], "little"):])
    return [list(flat[i:i + row]) for i in range(0, len(flat), row)]


def numbers(rows):
    return [[float(x) for x in row] for row in rows]


def near(a, b, limit=1e-5):
    assert len(a) == len(b) and all(abs(x - y) <= limit * (1 + abs(y)) for x, y in zip(a, b)), (a, b)


def fails(kind, words, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as e:
        assert words in str(e), e
        return e
    raise AssertionError(f"{call} did not fail")


def check_results(m, heads, out):
    want = rows_of_npy(os.path.join(out, "l.npy"), heads.LOGITS)
    got = m.forward(TOKENS, rows=len(TOKENS))
    assert numbers(got) == want and len(m) == len(TOKENS)
    kept = m.save()
    m.reset()
    assert len(m) == 0
    m.reset()
    near(numbers(m.forward(TOKENS[:7]))[0], want[6])
    near(numbers(m.forward(tuple(TOKENS[7:8])))[0], want[7])
    m.restore(kept)
    assert len(m) == len(TOKENS)
    m.reset(7)
    near(numbers(m.forward(TOKENS[7:], rows=5))[-1], want[-1])
    m.reset()
    assert m.forward(TOKENS, rows=0) is not None and len(m) == len(TOKENS)
    m.reset()
    losses = [float(x) for x in m.loss(TOKENS, [*TOKENS[1:], -1])]
    for t, row in enumerate(want[:-1]):
        most = max(row)
        cost = math.log(math.fsum(math.exp(x - most) for x in row)) + most - row[TOKENS[t + 1]]
        assert abs(losses[t] - cost) <= 1e-6 * (1 + cost), (t, losses[t], cost)
    assert losses[-1] == 0
    m.reset()
    both = m.outputs(TOKENS, rows=2)
    assert list(both) == ["logits", "rows"] and numbers(both["logits"]) == want[-2:]
    assert len(both["rows"]) == len(TOKENS) and len(both["rows"][0]) == 64
    return want


def check_batch(m, heads, want):
    m.reset()
    a, b = m.another(), m.another(32)
    m.forward(TOKENS[:3])
    a.forward(TOKENS[:6])
    got = numbers(heads.Model.batch([m, a, b], [TOKENS[3], TOKENS[6], TOKENS[0]]))
    for row, t in zip(got, (3, 6, 0)):
        near(row, want[t])
    assert [len(x) for x in (m, a, b)] == [4, 7, 1] and b.max_tokens == 32
    fails(heads.Error, "stands twice", heads.Model.batch, [a, a], [1, 1])
    with heads.Model.open(max_tokens=8) as other:
        assert fails(heads.Error, "one weights object", heads.Model.batch, [a, other], [1, 1]).name == "MIXED"
    fails(ValueError, "2 sequences and 1 tokens", heads.Model.batch, [a, b], [1])
    m.close()  # the weights stay for the others
    near(numbers(b.forward(TOKENS[1:2]))[0], want[1])
    a.close(), b.close()


def check_errors(m, heads, out):
    e = fails(heads.Error, "token 1 is 1003: ids are 0 .. 1002", m.forward, [1, 1003])
    assert e.code == 2 and e.name == "TOKEN" and len(m) == 0
    assert fails(heads.Error, "no room for 41 more tokens", m.forward, [1] * 41).name == "FULL"
    assert fails(heads.Error, "target 0 is 1003", m.loss, [1], [1003]).name == "TOKEN"
    assert fails(heads.Error, "cannot rewind to 5", m.reset, 5).name == "LENGTH"
    assert fails(heads.Error, "", m.restore, b"x" * 200).name == "SAVED"
    assert fails(heads.Error, "", m.set_cpu, "z80").name == "CPU"
    assert fails(heads.Error, "", m.set_threads, 0).name == "ARGUMENT"
    fails(heads.Error, "at least one is needed", m.forward, [], 0)
    fails(ValueError, "3 rows of 2 tokens", m.forward, [1, 2], 3)
    fails(ValueError, "2 tokens and 1 targets", m.loss, [1, 2], [1])
    fails(OverflowError, "", m.forward, [2**31])
    for wrong in ("text", [1.5], [None], 7):
        fails(TypeError, "", m.forward, wrong)
    fails(heads.Error, "absent", heads.Model.open, os.path.join(out, "absent"))
    fails(ValueError, "a sequence of 0 tokens cannot be", heads.Model.open, None, 0)
    fails(ValueError, "a sequence of 0 tokens cannot be", m.another, 0)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):     # two objects would close one sequence
        fails(TypeError, "neither copied nor pickled", copied, m)
    fails(ImportError, "is of build", load, out, "heads", (heads.BUILD_ID, "0"))
    m.close()
    m.close()
    for call in (len, lambda x: x.forward([1]), lambda x: x.save(), lambda x: x.another(), lambda x: x.cpu, lambda x: x.__enter__()):
        fails(ValueError, "the model is closed", call, m)


def check_threads(heads, want):
    with heads.Model.open(max_tokens=40) as m:
        models, got = [m.another() for _ in range(4)], {}

        def work(i):
            models[i].set_threads(1)
            got[i] = numbers(models[i].forward(TOKENS))[0]
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert all(got[i] == want[-1] for i in range(4))


def check_numpy(heads):
    import numpy as np
    with heads.Model.open(max_tokens=40) as m:
        one = m.forward(np.array(TOKENS, dtype=np.int64))
        assert one.dtype == np.float32 and one.shape == (1, 1003)
        m.reset()
        again = m.forward(np.array(TOKENS, dtype=np.uint16)[::1])
        assert again is not one and (again == one).all() and m.forward([1], rows=0).shape == (0, 1003)
        assert m.loss([1], np.array([2], dtype=np.int8)).shape == (1,)
        for wrong in (np.array([1.0]), np.array([[1]]), np.array(["a"])):
            fails(TypeError, "ids are whole numbers [n]", m.forward, wrong)
        fails(OverflowError, "an id does not fit 32 bits", m.forward, np.array([2**40]))


def use(out, numpy):
    heads, plain = load(out, "heads"), load(out, "plain")
    assert (heads.numpy is not None) == numpy
    assert heads.VOCAB == heads.LOGITS == 1003 and heads.MAX_CHUNK == 8
    assert hasattr(heads.Model, "loss") and not hasattr(plain.Model, "loss") and hasattr(plain.Model, "outputs")
    assert all(f.__doc__ for f in vars(heads.Model).values() if callable(f) and not f.__name__.startswith("_"))
    with heads.Model.open(max_tokens=40) as m:
        assert m.machine["level"] == m.cpu and bool(m)
        want = check_results(m, heads, out)
        check_batch(m, heads, want)
    with heads.Model.open(os.path.join(out, "heads.weights"), 40) as m:
        check_errors(m, heads, out)
    with heads.Model.open(max_tokens=40, load="read") as m:
        assert numbers(m.forward(TOKENS))[0] == want[-1]
    assert fails(heads.Error, "absent", heads.Model.open, os.path.join(out, "absent"), load="read").name == "OPEN"
    fails(ValueError, "not by 'copy'", heads.Model.open, load="copy")
    check_threads(heads, want)
    if numpy:
        check_numpy(heads)


def main():
    if sys.argv[1] == "use":
        use(sys.argv[2], False)
        return
    hadal, tests, out = (os.path.abspath(x) for x in sys.argv[1:4])
    os.makedirs(out, exist_ok=True)
    compile_all(hadal, tests, out)
    made(sys.executable, "-S", "-I", __file__, "use", out)
    if importlib.util.find_spec("numpy"):
        use(out, True)
    else:
        print("numpy is not installed")


main()
