"""Steps of libraries of gradients, and what goes with them.

    steps.py HADAL FOLDER WORK     FOLDER: golden cases

AdamW and Muon against the formulas in float64, from the library's gradients (a step may be off by 1e-5 and 2e-4 of the learning rate,
and the norm by 1e-6 of it). Which parameters are whose, and which decay. Bits: 1, 2 and 16 threads; a state that is saved and restored goes on as if nothing had been.
The loss alone is that of gradients, to the bit. Arguments: each one that is wrong is rejected by its code, with a message, and
nothing has changed."""
import ctypes as c
import math
import os
import random
import re
import subprocess
import sys

from library import ARGUMENT, BUILD, COUNT, FINITE, OK, SAVED, SIZE, Model, Options, Trainer

hadal, folder, work = sys.argv[1:]
os.makedirs(work, exist_ok=True)
MOST = 2e-4  # of the learning rate: sums of float32, of which five rounds enlarge the errors of small singular values
DEFAULTS = {name: getattr(Options(1), name) for name, _ in Options._fields_}


def batch(m, *lengths):
    vocab = m.config["vocab_size"]
    return [[(random.randrange(vocab), random.randrange(vocab) if random.random() < 0.8 else -1) for _ in range(n)] for n in lengths]


def gather(t, sequences):
    code, _, count = t.call(sequences)
    assert code == OK, t.message()
    return count


class AdamW:
    """In float64."""

    def __init__(self, t):
        self.moments = [([0.0] * p.elements, [0.0] * p.elements) for p in t.parameters]

    def step(self, t, count, o):
        """The norm, and for each parameter what its values become."""
        gradients = [[x / count for x in p.gradient[:p.elements]] for p in t.parameters]
        norm = math.sqrt(sum(x * x for g in gradients for x in g))
        scale = min(1, o.clip / norm)
        first, second = 1 - o.beta1**o.step, 1 - o.beta2**o.step
        values = []
        for p, g, (m, v) in zip(t.parameters, gradients, self.moments):
            w = p.values[:p.elements]
            keep = 1 - (o.learning_rate * o.weight_decay if p.update == b"adamw" else 0)
            for i, x in enumerate(g):
                m[i] = o.beta1 * m[i] + (1 - o.beta1) * scale * x
                v[i] = o.beta2 * v[i] + (1 - o.beta2) * (scale * x)**2
                w[i] = w[i] * keep - o.learning_rate * m[i] / first / (math.sqrt(v[i] / second) + o.eps)
            values.append(w)
        return norm, values


def check_adamw(m):
    t = Trainer(m)
    formula = AdamW(t)
    for step, numbers in enumerate((dict(clip=math.inf), dict(clip=0.01, learning_rate=0.1, weight_decay=0.5),
                                    dict(beta1=0.5, beta2=0.75, eps=1e-3, learning_rate=0.03)), 1):
        count = gather(t, batch(m, 9, 17)) + gather(t, batch(m, 3))  # a step divides by what all calls have counted
        o = Options(step, **numbers)
        norm, values = formula.step(t, count, o)
        code, got = t.step(o)
        assert code == OK and m.trainer_steps(t.t) == step, t.message()
        assert abs(got - norm) <= 1e-6 * norm, f"step {step}: the norm is {got}, not {norm}"
        assert not any(t.gradients()), "a step leaves gradients"
        for p, wanted in zip(t.parameters, values):
            name, got = p.name.decode(), p.values[:p.elements]
            for x, y in zip(got, wanted):
                assert abs(x - y) <= 1e-5 * o.learning_rate + 1e-6 * abs(y), f"step {step}: {name} is {x}, not {y}"


def reference():
    """muon.c, compiled."""
    path = os.path.join(work, "libmuon_reference.so")
    done = subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-shared", "-fPIC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "muon.c"),
                           "-o", path, "-lm"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    function = c.CDLL(path).muon
    function.argtypes = [c.c_void_p] * 3 + [c.c_long] * 2 + [c.c_double] * 3
    return function


def parts_of(p):
    """The rows of the matrices that are joined in a parameter, as its update tells them; none: it is one."""
    return [int(n) for n in p.update.decode().partition(", by rows: ")[2].split(", ") if n]


class Muon:
    """In float64, of the parameters that are its."""

    def __init__(self, t):
        self.momentum = {p.name: (c.c_double * p.elements)() for p in t.parameters if p.update.startswith(b"muon")}

    def step(self, t, count, o):
        values = {}
        for p in t.parameters:
            if not p.update.startswith(b"muon"):
                continue
            w, g = ((c.c_double * p.elements)(*x[:p.elements]) for x in (p.values, p.gradient))
            for i in range(p.elements):
                g[i] /= count
            rows, columns = map(int, p.type.decode()[4:-1].split(","))
            at = 0
            for n in parts_of(p) or [rows]:  # joined matrices, each by itself
                MUON(*(c.byref(x, 8 * at) for x in (w, self.momentum[p.name], g)), n, columns, o.learning_rate, o.weight_decay, o.momentum)
                at += n * columns
            assert at == p.elements
            values[p.name] = w
        return values


def check_values(t, values, most, what):
    for p in t.parameters:
        for x, y in zip(p.values[:p.elements], values.get(p.name, ())):
            assert abs(x - y) <= most, f"{what}: {p.name.decode()} is {x}, not {y}"


def check_muon(m):
    t = Trainer(m)
    formula = Muon(t)
    for step in (1, 2):
        count = gather(t, batch(m, 9, 17))
        o = Options(step, learning_rate=0.05, clip=math.inf)
        values = formula.step(t, count, o)
        assert t.step(o)[0] == OK, t.message()
        assert not any(t.gradients()), "a step leaves gradients"
        check_values(t, values, MOST * o.learning_rate, f"step {step}")


def check_sizes(m):
    """Random gradients of matrices of odd sizes, at every level."""
    numbers = [random.gauss(0, 1) for _ in range(10007)]
    o, values = Options(1, learning_rate=0.05, clip=math.inf), None
    for level in LEVELS:
        t = Trainer(m)
        if m.trainer_set_cpu(t.t, level.encode()) != OK:
            continue
        assert gather(t, [[(1, 2)]]) == 1
        for k, p in enumerate(t.parameters):
            for i in range(p.elements):
                p.gradient[i] = numbers[(i + 977 * k) % len(numbers)]
        values = values or Muon(t).step(t, 1, o)
        assert t.step(o)[0] == OK, t.message()
        check_values(t, values, MOST * o.learning_rate, level)
    assert len(values) == 6
    assert {p.name: parts_of(p) for p in t.parameters if parts_of(p)} == {b"joined.weight": [30, 11, 4]}


def check_updates(m, vectors, tables=(), matrix=b"adamw"):
    """`vectors`, `tables`: texts in the names of what does not decay, and of what AdamW changes."""
    t = Trainer(m)
    for p in t.parameters:
        name = p.name.decode()
        wanted = b"adamw, no decay" if any(x in name for x in vectors) else b"adamw" if any(x in name for x in tables) else matrix
        assert p.update == wanted, f"{name} is {p.update.decode()}"


def train(t, m, steps):
    """Steps as they come: the batches depend on the number of a step alone."""
    for _ in range(steps):
        step = m.trainer_steps(t.t) + 1
        random.seed(step)
        gather(t, batch(m, 12, 5))
        assert t.step(Options(step, learning_rate=0.01 / step, clip=0.5))[0] == OK, t.message()


def check_bits(m):
    whole = Trainer(m)
    train(whole, m, 3)
    for threads in (1, 2, 16):
        t = Trainer(m)
        assert m.trainer_set_threads(t.t, threads) == OK
        train(t, m, 3)
        assert t.values() == whole.values(), f"{threads} threads give other bits"


def kept(t):
    size = t.m.trainer_save_size(t.t)
    data = c.create_string_buffer(size)
    assert t.m.trainer_save(t.t, data, size) == OK, t.message()
    return data


def check_resumed(m, other):
    whole = Trainer(m)
    train(whole, m, 2)
    data = kept(whole)
    train(whole, m, 3)
    t = Trainer(m, longest=20)
    train(t, m, 1)
    gather(t, batch(m, 5))  # belongs to no step
    assert m.trainer_restore(t.t, data, len(data)) == OK, t.message()
    assert m.trainer_steps(t.t) == 2 and not any(t.gradients())
    assert kept(t).raw == data.raw
    train(t, m, 3)
    assert t.values() == whole.values(), "what was restored goes on otherwise"

    def fails(code, said, at, size=None):
        before = t.values()
        assert m.trainer_restore(t.t, at, len(at) if size is None else size) == code, t.message()
        assert said in t.message() and t.values() == before and m.trainer_steps(t.t) == 5, t.message()

    another = Trainer(other)
    foreign = kept(another)
    fails(SIZE, "bytes are given", data, len(data) - 1)
    fails(SIZE, "bytes are given", data, 40)
    fails(SAVED, "no saved trainer", c.create_string_buffer(len(data)))
    fails(BUILD, "saved by another " + ("build" if other.config == m.config else "model"), foreign)
    for at in range(0, 72, 7):
        damaged = c.create_string_buffer(data.raw, len(data))
        damaged[at] = bytes([damaged.raw[at] ^ 4])
        fails(SAVED if at < 8 or at > 11 else BUILD, "", damaged)
    assert m.trainer_restore(t.t, None, 0) == ARGUMENT and m.trainer_save(t.t, None, 0) == ARGUMENT
    assert m.trainer_save(t.t, data, len(data) - 1) == SIZE and "are needed" in t.message()
    assert m.trainer_save_size(None) == 0 and m.trainer_save(None, data, len(data)) == ARGUMENT


def check_loss(m):
    t, sequences = Trainer(m), batch(m, 11, 1, 40)
    gradients = t.call(sequences)
    before = t.gradients()
    assert gradients[0] == OK and t.call(sequences, alone=True) == gradients, "the loss alone is another"
    assert t.gradients() == before, "the loss alone has changed gradients"
    assert m.trainer_clear(t.t) == OK and not any(t.gradients())
    assert t.call(sequences, alone=True) == gradients and t.step(Options(1))[0] == COUNT


def check_rejected(m):
    t = Trainer(m)

    def fails(code, said, o):
        before = t.values(), t.gradients(), m.trainer_steps(t.t)
        assert t.step(o) == (code, -1), t.message()
        assert said in t.message(), t.message()
        assert (t.values(), t.gradients(), m.trainer_steps(t.t)) == before, "a rejected step has changed something"

    fails(COUNT, "no target has counted", Options(1))
    assert t.call([[(1, -1), (2, -1)]]) == (OK, 0, 0)
    fails(COUNT, "no target has counted", Options(1))
    gather(t, batch(m, 7))
    for step in (0, -1, 2):
        fails(ARGUMENT, f"this cannot be step {step}: the next one is 1", Options(step))
    for name in DEFAULTS:
        for wrong in (math.nan, -1.0, -math.inf) if name != "step" else ():
            fails(ARGUMENT, f"{name} is {wrong:g}", Options(1, **{name: wrong}))
    for name, wrong in (("clip", 0), ("eps", 0), ("beta1", 1), ("beta2", 1), ("momentum", 1), ("learning_rate", math.inf), ("weight_decay", math.inf)):
        fails(ARGUMENT, f"{name} is {wrong:g}", Options(1, **{name: wrong}))
    assert m.trainer_step(t.t, None, None) == ARGUMENT and "options are a null" in t.message()
    p = t.parameters[3]
    before, p.gradient[2] = p.gradient[2], math.inf
    fails(FINITE, f"element 2 of the gradient of {p.name.decode()} is inf", Options(1))
    p.gradient[2] = before
    assert m.trainer_step(t.t, c.byref(Options(1)), None) == OK
    fails(COUNT, "no target has counted", Options(2))
    assert m.trainer_step(None, None, None) == ARGUMENT and m.trainer_clear(None) == ARGUMENT and m.trainer_steps(None) == 0
    assert b"counted" in m.strerror(COUNT)
    # a loss that is not finite spoils gradients until they are cleared
    norm = next(x for x in t.parameters if x.name == b"model.norm.weight")
    keep = norm.values[:norm.elements]
    for i in range(norm.elements):
        norm.values[i] = 3e38
    code, _, _ = t.call(batch(m, 4), alone=True)
    assert code == FINITE and "spoilt" not in t.message()
    code, _, _ = t.call(batch(m, 4))
    assert code == FINITE and "spoilt" in t.message(), t.message()
    for i, x in enumerate(keep):
        norm.values[i] = x
    assert t.call(batch(m, 4))[0] == OK
    code, _ = t.step(Options(2))
    assert code == FINITE and "trainer_clear" in t.message()
    assert m.trainer_clear(t.t) == OK
    gather(t, batch(m, 4))
    assert t.step(Options(2))[0] == OK


def check_experts(m):
    """An expert without tokens decays as the others do."""
    t = Trainer(m)
    assert t.call([[(5, 7)]])[0] == OK
    idle = [p for p in t.parameters if ".experts." in p.name.decode() and not any(p.gradient[:p.elements])]
    assert idle
    before = [p.values[:p.elements] for p in idle]
    o = Options(1, learning_rate=0.1)
    assert t.step(o)[0] == OK
    for p, old in zip(idle, before):
        assert all(abs(x - 0.99 * y) <= 1e-6 * abs(y) for x, y in zip(p.values[:p.elements], old)), p.name.decode()


random.seed(5)
NATIVE = "--target-cpu", "native"
MUON = reference()
LEVELS = re.findall(r"(\S+) +runs$", subprocess.run([hadal, "machine", "--threads", "0"], capture_output=True, text=True).stdout, re.MULTILINE)
standard, tied = Model(hadal, folder, work, "standard", *NATIVE), Model(hadal, folder, work, "lime-llama", *NATIVE, "--optimizer", "muon")
check_adamw(standard)
check_updates(standard, ["norm"])
check_updates(tied, ["norm", "router"], ["embed"], b"muon")
check_updates(Model(hadal, folder, work, "attnres-block", *NATIVE), ["norm", "_res_proj"])
check_bits(standard)
check_resumed(standard, tied)
matrices = Model(hadal, folder, work, "standard", *NATIVE, "--optimizer", "muon")
check_updates(matrices, ["norm"], ["embed", "lm_head"], b"muon")
check_muon(matrices)
check_sizes(Model(hadal, folder, work, "sizes.hadal", "--optimizer", "muon"))
check_bits(matrices)
check_resumed(matrices, Model(hadal, folder, work, "standard", *NATIVE, "--optimizer", "muon", "--chunk", "64"))
check_loss(standard)
check_rejected(standard)
experts = Model(hadal, folder, work, "kimi-linear", *NATIVE, "--optimizer", "muon")
check_experts(experts)
check_loss(experts)
print("as promised")
