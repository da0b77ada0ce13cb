"""A training step, forward and backward, and the step of the optimizer: a library of `hadal compile --gradients`, called by ctypes.

SHAPES are the models of docs/learning.md, with the standard residual and with AttnRes. A step is the gradients of `sequences`
sequences of `tokens` tokens. Its work is 6 FLOPs for each token and each weight that is multiplied (the head counts, looking up
the embedding does not), and 6 T d for each token and layer of causal attention over T tokens; what AttnRes adds, at most 1.5 %,
is not counted. The optimizer, Muon, has its share of a step of 8192 tokens.

The mechanism alone is the backward half of depth_training.hadal, a step less its forward half, above that of the same sublayers
without a residual: with mixes in two phases, and as they are written, by the passes of NAIVE. KDA is a step of a layer of Kimi Linear,
kda_training.hadal, and beside it what bench_recurrence measures of it: the delta rule with a decay for each key channel, and the kernel
of all its gradients.
"""
import ctypes
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

from goals_common import AT_LEAST, AT_MOST, FMA, MODEL, SMALL, SPECS, Share, command, defines, lines, of_level, run, share_of, target

SHAPES = {
    "small": dict(hidden=512, layers=8, heads=8, kv_heads=8, head_dim=64, ff=1536, vocab=4096, block=4),
    "deep": dict(hidden=128, layers=24, heads=2, kv_heads=2, head_dim=64, ff=384, vocab=256, block=6),
    "quick": dict(hidden=32, layers=2, heads=2, kv_heads=2, head_dim=16, ff=48, vocab=64, block=2),
}
BATCHES = {"small": (4, 512), "deep": (16, 256), "quick": (2, 16)}  # sequences, tokens of each
GOALS = {"small": {"standard": 0.70, "attnres": 0.68}, "deep": {"standard": 0.55, "attnres": 0.52}, "quick": {"standard": 0, "attnres": 0}}
WITH_ADAMW = {"small": 0.67, "deep": 0.50, "quick": 0}  # the step of the optimizer counted in the time
ROUNDED = {"small": 0.5, "deep": 0.7, "quick": 100}  # the time of products of bf16
OVER_STANDARD = {"small": 1.04, "deep": 1.06, "quick": 100}  # the time of AttnRes
MUON, MUON_TOKENS = {"small": 0.22, "deep": 0.06, "quick": 1}, 8192
SYSTEMS = ("standard", "attnres")
MECHANISM = {"full": (dict(hidden=2048, sublayers=128, block=16), 512), "quick": (dict(hidden=64, sublayers=8, block=4), 16)}
KDA = {"full": (dict(layers=1, hidden=2304, heads=32, head_dim=128), (1, 512)), "quick": (dict(layers=1, hidden=32, heads=2, head_dim=16), (1, 16))}
# The passes of gradients, but those of depth.
NAIVE = ("canonicalise,fold-constants,cse,dce,cache-made-rows,dce,differentiate,lower-traces,canonicalise,cse,fold-weights,dce,"
         "split-small-contractions,rematerialise,fuse,expand,layout,schedule,tile-logits,plan-memory")


class Parameter(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("type", ctypes.c_char_p), ("values", ctypes.POINTER(ctypes.c_float)),
                ("gradient", ctypes.POINTER(ctypes.c_float)), ("elements", ctypes.c_size_t), ("update", ctypes.c_char_p)]


class Options(ctypes.Structure):
    _fields_ = [("step", ctypes.c_int64)] + [(name, ctypes.c_double) for name in (
        "learning_rate", "weight_decay", "clip", "beta1", "beta2", "eps", "momentum")]


class Trainer:
    """A trainer with random parameters: matrices as drawn by most models, vectors of norms 1, queries 0."""

    def __init__(self, library, name, shape, batch, threads):
        self.lib, self.name, (self.sequences, self.tokens) = ctypes.CDLL(library), name, batch
        size = self.call("trainer_size", ctypes.c_int64(self.tokens), result=ctypes.c_size_t)
        self.memory = ctypes.create_string_buffer(size + 64)
        self.bytes, self.at = size, ctypes.c_void_p()
        at = (ctypes.addressof(self.memory) + 63) // 64 * 64
        self.check(self.call("trainer_init", ctypes.c_void_p(at), ctypes.c_size_t(size), ctypes.c_int64(self.tokens),
                             ctypes.byref(self.at)))
        self.check(self.call("trainer_set_threads", self.at, ctypes.c_int(threads)))
        draw = random.Random(1)
        self.multiplied = sum(self.fill(p, draw) for p in self.parameters())
        n = self.sequences * self.tokens
        ids = [draw.randrange(shape["vocab"]) for _ in range(n + 1)]
        self.ids, self.targets = (ctypes.c_int32 * n)(*ids[:n]), (ctypes.c_int32 * n)(*ids[1:])
        self.lengths = (ctypes.c_int64 * self.sequences)(*[self.tokens] * self.sequences)
        self.work = n * (6 * self.multiplied + 6 * shape["layers"] * shape["heads"] * shape["head_dim"] * self.tokens)

    def call(self, function, *arguments, result=ctypes.c_int):
        f = getattr(self.lib, f"{self.name}_{function}")
        f.restype = result
        return f(*arguments)

    def check(self, code):
        if code:
            sys.exit(f"training.py: {self.name}: {self.call('strerror', ctypes.c_int(code), result=ctypes.c_char_p).decode()}")

    def parameters(self):
        n = ctypes.c_size_t()
        at = self.call("trainer_parameters", self.at, ctypes.byref(n), result=ctypes.POINTER(Parameter))
        return at[:n.value]

    @staticmethod
    def fill(p, draw):
        """Sets the values; gives the number of weights that are multiplied."""
        dims = p.type.decode().partition("[")[2].rstrip("]").split(",")
        if len(dims) == 2:
            some = [draw.gauss(0, 0.02) for _ in range(4099)]  # a prime: rows differ
            values = (some * (p.elements // len(some) + 1))[:p.elements]
        else:
            values = [0.0 if p.name.decode().endswith(("_res.weight", "query", "_query.weight")) else 1.0] * p.elements
        ctypes.memmove(p.values, (ctypes.c_float * p.elements)(*values), 4 * p.elements)
        return p.elements if len(dims) == 2 else 0

    def step(self, function="gradients"):
        """Seconds of the gradients of all sequences; of the losses alone by the function "trainer_loss"."""
        total, count = ctypes.c_double(), ctypes.c_int64()
        start = time.perf_counter()
        code = self.call(function, self.at, self.ids, self.targets, self.lengths, ctypes.c_int64(self.sequences),
                         ctypes.byref(total), ctypes.byref(count))
        seconds = time.perf_counter() - start
        self.check(code)
        self.loss, self.count = total.value, count.value
        return seconds

    def update(self):
        """Seconds of a step of the optimizer by those gradients."""
        number = self.call("trainer_steps", self.at, result=ctypes.c_int64) + 1
        options = Options(number, 1e-3, 0.1, 1, 0.9, 0.95, 1e-8, 0.95)
        start = time.perf_counter()
        code = self.call("trainer_step", self.at, ctypes.byref(options), None)
        seconds = time.perf_counter() - start
        self.check(code)
        return seconds


def library(a, folder, shape, system, model=MODEL, name=None, *options):
    """Compiles the model; gives the path of the library and the seconds that took."""
    name = name or system
    start, out = time.perf_counter(), os.path.join(folder, name)
    parameters = {**shape, "system": system} if system else shape
    run(a, "hadal", "compile", model, *defines(**parameters), "--gradients", "--target-cpu", target(a), "-q", "-o", out, *options)
    return os.path.join(folder, f"lib{name}.so"), time.perf_counter() - start


def multiply_add(a):
    """The limit of f32 multiply-adds, FLOP/s, as hadal bench measures it beside a small model."""
    small = [x for d in SMALL.split(",") for x in ("-D", d)]
    return json.loads(run(a, "hadal", "bench", MODEL, *small, "--weights-dtype", "f32", "--prefill", 16, "--decode", "", "--threads",
                          a.threads, "--rounds", 1, "--json", *of_level(a, "--cpu-level")))["rows"][0]["fma_limit"]


class Rounds:
    """Seconds of one system: of gradients and of AdamW's step in each round, of Muon's step, of compiling; and the trainer."""

    def __init__(self, a, folder, name, system):
        shape, batch = SHAPES[name], BATCHES[name]
        path, self.compiled = library(a, folder, shape, system)
        self.trainer = Trainer(path, system, shape, batch, a.threads)
        path, _ = library(a, folder, shape, system, MODEL, f"{system}_muon", "--optimizer", "muon")
        self.muon_trainer = Trainer(path, f"{system}_muon", shape, (1, batch[1]), a.threads)  # its time depends on no tokens
        self.gradients, self.adamw, self.muon = [], [], []

    def run(self):
        self.gradients.append(self.trainer.step())
        self.adamw.append(self.trainer.update())

    def run_muon(self):
        self.muon_trainer.step()
        self.muon.append(self.muon_trainer.update())

    def share(self, seconds, limits):
        """Of the limit as it is around each round, since it moves from minute to minute on a machine with other guests; the drift is
        what it moves within rounds."""
        around = list(zip(limits, limits[1:]))
        shares = [self.trainer.work / t / ((x + y) / 2) for t, (x, y) in zip(seconds, around)]
        return Share(statistics.median(shares), statistics.median(abs(x / y - 1) for x, y in around))


def in_turn(a, name, folder):
    """({system: its rounds}, limits before the first round and after each): systems and the limit in turn."""
    systems, limits = {s: Rounds(a, folder, name, s) for s in SYSTEMS}, []
    for r in systems.values():  # touches memory
        r.run()
        r.run_muon()
        r.gradients, r.adamw, r.muon = [], [], []
    limits.append(multiply_add(a))
    for i in range(a.rounds):
        for r in systems.values():
            r.run()
        limits.append(multiply_add(a))
        for r in systems.values():
            r.run_muon()
    return systems, limits


def mechanism_backward(a):
    """The time of the mechanism's backward half in two phases over that as it is written."""
    shape, tokens = MECHANISM["quick" if a.quick else "full"]
    libraries = {"none": ("none", "default"), "two": ("attnres", "default"), "naive": ("attnres", NAIVE)}
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        trainers = {name: Trainer(library(a, folder, shape, system, os.path.join(SPECS, "depth_training.hadal"), name, "--chunk", tokens,
                                          "--passes", passes)[0], name, dict(vocab=16, layers=0, heads=0, head_dim=0), (1, tokens), a.threads)
                    for name, (system, passes) in libraries.items()}
        backward = {name: [] for name in libraries}
        for i in range(a.rounds + 1):  # the first round touches memory
            for name, t in trainers.items():
                forward = t.step("trainer_loss")
                backward[name].append(t.step() - forward)
    least = {name: min(x[1:]) for name, x in backward.items()}
    yield ("training, mechanism alone, backward: time over its naive form", AT_MOST, 100 if a.quick else 0.40,
           (least["two"] - least["none"]) / (least["naive"] - least["none"]),
           f"{least['two'] - least['none']:.3f} s of {least['two']:.3f}, T = {tokens}, d = {shape['hidden']}, {shape['sublayers']} sublayers, "
           f"blocks of {shape['block']}; {trainers['two'].bytes * 1e-9:.2f} GB, naive {trainers['naive'].bytes * 1e-9:.2f}")


def half_kept(a):
    """A trainer's memory, and the time of a step when half of what is kept is computed again."""
    name = "quick" if a.quick else "deep"
    shape, (_, tokens) = SHAPES[name], BATCHES[name]
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        weights, system = os.path.join(folder, "w.safetensors"), defines(**shape, system="attnres")
        run(a, "hadal", "init-weights", MODEL, *system, "-q", "-o", weights)
        plan = json.loads(run(a, "hadal", "gradients", MODEL, *system, "-w", weights, "--tokens", 1, "--targets", 1, "--chunk", tokens, "--json",
                              "-q", "-o", os.path.join(folder, "g.safetensors")))["memory"]
        bound = plan["all"] - plan["kept"] // 2
        options = {"all": (), "half": ("--memory", bound)}
        trainers = {x: Trainer(library(a, folder, shape, "attnres", MODEL, x, "--chunk", tokens, *options[x])[0], x, shape, BATCHES[name],
                               a.threads) for x in options}
        seconds = {x: [] for x in options}
        for i in range(a.rounds + 1):  # the first round touches memory
            for x, t in trainers.items():
                seconds[x].append(t.step())
    yield (f"training, {name}, attnres: memory of a trainer, GB", AT_MOST, 0.3, plan["all"] * 1e-9,
           f"{plan['kept'] * 1e-6:.1f} MB kept from the forward half to the backward half")
    yield (f"training, {name}, attnres: time with half of that kept, over all kept", AT_MOST, 100 if a.quick else 1.10,
           statistics.median(x / y for x, y in zip(seconds["half"][1:], seconds["all"][1:])), f"--memory {bound}")


def kda(a):
    """A step of KDA layers, and the delta rule alone: 7 n m FLOPs for a token and a head of n x m forward, three times that backward."""
    shape, (sequences, tokens) = KDA["quick" if a.quick else "full"]
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        path, _ = library(a, folder, shape, None, os.path.join(SPECS, "kda_training.hadal"), "kda", "--chunk", tokens)
        t = Trainer(path, "kda", dict(vocab=16, layers=0, heads=0, head_dim=0), (sequences, tokens), a.threads)
        seconds, limits = [], []
        for i in range(a.rounds + 1):  # the first round touches memory
            seconds.append(t.step())
            limits.append(multiply_add(a))
    delta = 28 * sequences * tokens * shape["layers"] * shape["heads"] * shape["head_dim"] ** 2
    least, limit, half = statistics.median(seconds[1:]), statistics.median(limits), len(limits) // 2
    drift = abs(statistics.median(limits[:half]) / statistics.median(limits[half:]) - 1)
    yield ("training, KDA layer, 32 heads of 128: share of multiply-add", AT_LEAST, 0 if a.quick else 0.40,
           Share((t.work + delta) / least / limit, drift), f"{least:.3f} s a step of {tokens} tokens, d = {shape['hidden']}; the delta rule is "
           f"{delta / (t.work + delta):.2f} of the work")
    spent = of = drift = 0.0
    for shape, op in ((10, "delta_rule"), (13, "delta_rule_grad")) if a.quick else ((1, "delta_rule"), (11, "delta_rule_grad")):
        text = run(a, "bench_recurrence", a.level, a.threads, "f32", a.rounds, shape)
        line = lines(text, op)[0]
        us, share = float(line[line.index("us") - 1]), share_of(a, FMA, float(line[line.index("of") - 1]), text)
        spent, of, drift = spent + us, of + us * share, max(drift, share.drift)
    yield ("training, delta rule alone, 32 heads of 128: share of multiply-add", None, None, Share(of / spent, drift),
           f"{spent - us:.0f} us forward, {us:.0f} us backward")


def multiplies_bf16(a):
    """Does the level have what --matmul-dtype bf16 is for?"""
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        line = command(a, "compile", MODEL, *defines(**SHAPES["quick"]), "--gradients", "--matmul-dtype", "bf16", "--target-cpu", target(a),
                       "-q", "-o", os.path.join(folder, "x"))
        return subprocess.run(line, capture_output=True).returncode == 0


def rounded(a):
    """A step whose products round both operands to bf16, over one in f32, in turn."""
    for name in (("quick",) if a.quick else ("small", "deep")) if multiplies_bf16(a) else ():
        for s in SYSTEMS:
            with tempfile.TemporaryDirectory(dir=a.work) as folder:
                trainers = {x: Trainer(library(a, folder, SHAPES[name], s, MODEL, x, "--matmul-dtype", x)[0], x, SHAPES[name], BATCHES[name],
                                       a.threads) for x in ("f32", "bf16")}
                seconds = {x: [] for x in trainers}
                for i in range(a.rounds + 1):  # the first round touches memory
                    for x, t in trainers.items():
                        seconds[x].append(t.step())
            yield (f"training, {name}, {s}: time with products of bf16, over f32", AT_MOST, ROUNDED[name],
                   statistics.median(x / y for x, y in zip(seconds["bf16"][1:], seconds["f32"][1:])),
                   f"{statistics.median(seconds['bf16'][1:]):.3f} s a step, {trainers['bf16'].bytes * 1e-9:.2f} GB")


def training(a):
    for name in (("quick",) if a.quick else ("small", "deep")):
        with tempfile.TemporaryDirectory(dir=a.work) as folder:
            systems, limits = in_turn(a, name, folder)
        limit = statistics.median(limits)
        for s, r in systems.items():
            t, work = statistics.median(r.gradients), r.trainer.work
            yield (f"training, {name}, {s}: share of multiply-add", AT_LEAST, GOALS[name][s], r.share(r.gradients, limits),
                   f"{t:.3f} s a step, {work / t * 1e-9:.0f} of {limit * 1e-9:.0f} GFLOP/s, {r.trainer.bytes * 1e-9:.2f} GB, "
                   f"compiled in {r.compiled:.2f} s")
        for s, r in systems.items():
            yield (f"training, {name}, {s}: the same with AdamW's step", AT_LEAST, WITH_ADAMW[name],
                   r.share([x + y for x, y in zip(r.gradients, r.adamw)], limits), f"AdamW {statistics.median(r.adamw):.4f} s")
        for s, r in systems.items():
            update = statistics.median(r.muon)
            rest = statistics.median(r.gradients) * MUON_TOKENS / (r.trainer.sequences * r.trainer.tokens)
            yield (f"training, {name}, {s}: Muon's share of a step of {MUON_TOKENS} tokens", AT_MOST, MUON[name], update / (update + rest),
                   f"{update:.4f} s")
        yield (f"training, {name}: time of AttnRes over the standard residual's", AT_MOST, OVER_STANDARD[name],
               statistics.median(x / y for x, y in zip(systems["attnres"].gradients, systems["standard"].gradients)), "")
    yield from rounded(a)
    yield from half_kept(a)
    yield from mechanism_backward(a)
    yield from kda(a)
