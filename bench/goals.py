#!/usr/bin/env python3
"""The goals that are set for Hadal's speed, each beside what this machine makes of it now.

  goals.py [--bin build/release/bin] [--only NAME]... [--rounds 5] [--quick] [--work DIR] [--packed FROM:TO]... [--json FILE]

Runs the benchmark programs (build them with the target `bench`), reads what they print, and prints
a table: goal, measured, met or not. A figure is a median of rounds, a share that of a limit
measured in the same run. --only: some groups of the table GROUPS below; those of LARGE, which write
gigabytes to --work (a temporary folder), run only if they are named. --quick: small shapes and
one round, to see that everything runs; its figures mean nothing. Exits with 0 whatever is met: on
a busy machine nothing is.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import links
import stored

SPECS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "specs")
MODEL = os.path.join(SPECS, "qwen3.hadal")
SMALL = "hidden=64,layers=2,ff=128,vocab=256"  # of MODEL, for --quick
AT_LEAST, AT_MOST = "at least", "at most"


def run(a, program, *arguments):
    line = [os.path.join(a.bin, program), *map(str, arguments)]
    try:
        out = subprocess.run(line, capture_output=True, text=True)
    except OSError as e:
        sys.exit(f"goals.py: {line[0]}: {e.strerror}")
    if out.returncode:
        sys.exit(f"goals.py: {' '.join(line)}:\n{out.stdout}{out.stderr}")
    return out.stdout


def command(a, *arguments):
    return [os.path.join(a.bin, "hadal"), *map(str, arguments)]


def defines(**values):
    return [x for name, value in values.items() for x in ("-D", f"{name}={value}")]


def lines(text, *start):
    """Lines that begin with these words, as words."""
    found = [x.split() for x in text.splitlines()]
    return [x for x in found if x[:len(start)] == [str(s) for s in start]]


# ---- groups: what a group runs, and the goals it answers as (what, sense, goal, measured, remark) --


def decode(a):
    for dtype, goal in (("f32", 0.97), ("bf16", 0.92), ("f16", 0.92), ("q8", 0.88), ("q4", 0.85)):
        row = bench(a, dtype, prefill="", decode="0")["rows"][0]
        yield (f"decode, {dtype}: share of read", AT_LEAST, goal, row["read_fraction"],
               f"{row['tokens_per_second']:.1f} tok/s at {giga(row, 'read_limit')} GB/s{busy(row)}")


def prefill(a):
    report = bench(a, "f32,bf16,f16,q8,q4", prefill=tokens(a, 512), decode="")
    rows = {r["weights_dtype"]: r for r in report["rows"]}
    for dtype in ("f32", "bf16", "f16"):
        row = rows[dtype]
        yield (f"prefill 512, {dtype}: share of multiply-add", AT_LEAST, 0.70, row["fma_fraction"],
               f"{row['tokens_per_second']:.0f} tok/s at {giga(row, 'fma_limit')} GFLOP/s{busy(row)}")
    for dtype in ("q8", "q4"):
        yield (f"prefill 512, {dtype}: tokens/s over f32's", AT_LEAST, 1.6,
               rows["f32"]["seconds"] / rows[dtype]["seconds"],
               f"{rows[dtype]['tokens_per_second']:.0f} tok/s{busy(rows[dtype])}")


def start(a):
    report = bench(a, "f32", prefill=tokens(a, 16), decode="")
    model, row = report["models"][0], report["rows"][0]
    yield ("opening weights and a session, ms", AT_MOST, 10,
           1e3 * (model["weights_open_seconds"] + model["session_init_seconds"]), "")
    yield ("memory over weights, caches and arena, MB", AT_MOST, 10,
           (row["resident_bytes"] - model["weights_bytes"]) * 1e-6, "after a prefill of 16 tokens")


def overhead(a):
    for what, goal, T, options in (("prefill 512", 1.006, 512, ("--decode", "")),
                                   ("decode", 1.002, 1, ("--prefill", "", "--decode", "0"))):
        if T > 1:
            options += ("--prefill", tokens(a, T))
        row = bench(a, "f32", *options, "--against-define", "system=standard")["rows"][0]
        yield (f"{what}: time of AttnRes over the standard residual's", AT_MOST, goal,
               row["time_ratio"], f"quartiles {row['time_ratio_low']:.3f} .. {row['time_ratio_high']:.3f}")


def ranks(a):
    """The model divided over processes of one machine, with the threads of one process shared out, over the same model undivided:
    in turn, with messages through shared memory. Then the same over a link that such messages are held back for, beside what `hadal
    plan` says of two such hosts. Nothing where there is no MPI."""
    if not shutil.which("mpirun"):
        print("  there is no mpirun")
        return
    shape = ["-D", "system=attnres", *(x for d in SMALL.split(",") for x in ("-D", d))] if a.quick else ["-D", "system=attnres"]
    count = 2
    for dtype in ("f32", "q4"):
        with tempfile.TemporaryDirectory(dir=a.work) as folder:
            weights, whole, shared = (os.path.join(folder, x) for x in ("random.safetensors", "whole", "shared"))
            run(a, "hadal", "init-weights", MODEL, *shape, "--weights-dtype", "bf16", "-q", "-o", weights)
            for out, more in ((whole, ()), (shared, ("--ranks", count))):
                run(a, "hadal", "compile", MODEL, *shape, "-w", weights, "--weights-dtype", dtype, "--target-cpu", "native", "-q",
                    *more, "-o", os.path.join(out, "m"))
            os.remove(weights)
            turns = [(one_of_all(a, whole, 1), one_of_all(a, shared, count)) for _ in range(a.rounds)]
            slowed = [one_of_all(a, shared, count, *links.held_back(LINK)) for _ in range(a.rounds)]
            host = json.loads(links.Shared().mpirun(count, *command(a, "machine", "--threads", str(max(1, a.threads // count)), "--json")))
        for phase, what in (("prefill", "prefill 512"), ("decode", "decode")):
            ratio = statistics.median(many[phase]["seconds"] / one[phase]["seconds"] for one, many in turns)
            ms = (1e3 * statistics.median(x[i][phase]["seconds"] for x in turns) for i in (0, 1))
            yield (f"{what}, {dtype}: time of {count} ranks over that of {count} threads", AT_MOST, 1.10, ratio,
                   "{0:.2f} ms on threads, {1:.2f} on ranks".format(*ms) + busy(turns[-1][0][phase]))
        yield from over_link(a, shape, dtype, count, slowed, host)


LINK = "10G/50us"


def over_link(a, shape, dtype, count, slowed, host):
    """Rounds over the link, each beside the plan for a host as it was measured in the same round."""
    for phase, what in (("prefill", "prefill 512"), ("decode", "decode")):
        rows = [{"type": dtype, "ranks": count, "prefill": tokens(a, 512), "decode": 0, "phase": phase,
                 "facts": links.facts_of_host(host, LINK, x[phase])} for x in slowed]
        plans = [links.plan_of(command(a)[0], shape, row)["all"] for row in rows]
        ratio = statistics.median(p / x[phase]["seconds"] for p, x in zip(plans, slowed))
        ms = (1e3 * statistics.median(x[phase]["seconds"] for x in slowed), 1e3 * statistics.median(plans))
        yield (f"{what}, {dtype}: plan over {count} ranks at 10 Gbit/s, 50 us, off by", AT_MOST, 0.25, abs(ratio - 1),
               "{0:.2f} ms measured, {1:.2f} planned".format(*ms) + busy(slowed[-1][phase]))


def one_of_all(a, folder, count, *more):
    """{phase: row} of one round; the threads are shared out."""
    start = ["mpirun", "-n", str(count)] if count > 1 else []
    line = [*start, *command(a, "bench", os.path.join(folder, "m"), "--prefill", tokens(a, 512), "--decode", "0", "--threads",
                             max(1, a.threads // count), "--rounds", 1, "--json", *more)]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # of Open MPI, which refuses otherwise
    out = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **root})
    if out.returncode:
        sys.exit(f"goals.py: {' '.join(line)}:\n{out.stdout}{out.stderr}")
    return {row["phase"]: row for row in json.loads(out.stdout)["rows"]}


def contractions(a):
    for T, K, N in ((512, 1024, 3072), (512, 3072, 1024), (16, 1024, 3072), (16, 3072, 1024)):
        shape = (T, K, N) if not a.quick else (16, 128, 128)
        words = run(a, "bench_contract", a.level, a.threads, *shape, "f32").split()
        peak, read = (float(words[words.index(x) - 2]) for x in ("peak", "read"))
        bound = (peak, 0.88, "multiply-add") if T > 16 else (max(read, peak), 0.85, "its roof")
        yield (f"contraction {T} x {K} x {N}, f32: share of {bound[2]}", AT_LEAST, bound[1], bound[0], "")


def has_unit(a):
    levels = json.loads(run(a, "hadal", "machine", "--json", "--threads", 0))["levels"]
    return any(level["name"] == "amx" and level["runs"] for level in levels)


def matrix_unit(a):
    """Nothing where there is none that this process may use."""
    if not has_unit(a):
        return
    for T, K, N, goal in ((512, 1024, 3072, 0.50), (512, 3072, 1024, 0.50), (128, 1024, 3072, 0.45), (32, 1024, 3072, 0.30)):
        shape = (T, K, N) if not a.quick else (16, 128, 128)
        words = run(a, "bench_contract", "amx", a.threads, *shape, "bf16").split()
        yield (f"contraction {T} x {K} x {N}, bf16: share of the unit", AT_LEAST, goal,
               float(words[words.index("unit") - 2]), f"{words[words.index('GFLOP/s') - 1]} GFLOP/s")
        if T < 512:
            continue
        words = run(a, "bench_contract", "amx", a.threads, *shape, "f32").split()
        yield ("the same, f32 weights: over multiply-add", AT_LEAST, 1.5,
               float(words[words.index("peak") - 2]), f"{words[words.index('GFLOP/s') - 1]} GFLOP/s")
        words = run(a, "bench_contract", "amx", a.threads, *shape, "bf16", "exact").split()
        yield ("the same, f32 activations: over multiply-add", AT_LEAST, 4.0,
               float(words[words.index("peak") - 2]), f"{words[words.index('GFLOP/s') - 1]} GFLOP/s")


# Weights, way to compile, phase of the model: over what of the same run, and the goal. The peers are those of bench/peers.
SERVER_GOALS = (("bf16", "--activations int8,bf16", "torch.compile", 1.7, "bf16, activations rounded"),
                ("bf16", "", "torch.compile", 0.9, "bf16, exact activations"),
                ("q8", "", "OpenVINO", 2.0, "q8"))


def matrix_unit_models(a):
    """Whole models on the matrix unit beside peers that use it too; those that are not installed are left out."""
    if not has_unit(a):
        return
    for kind in ("bf16", "q8"):
        of_kind = [g for g in SERVER_GOALS if g[0] == kind]
        rows = compared(a, kind, [g[1] for g in of_kind])
        for _, options, peer, goal, what in of_kind:
            ours = [r for r in rows if r["label"] == "Hadal, standard" + (f", {options}" if options else "")]
            theirs = [r for r in rows if r["label"].startswith(peer)]
            if ours and theirs:
                mine, other = (x[0]["prefill"]["tokens_per_second"] for x in (ours, theirs))
                yield (f"prefill 512, {what}: tokens/s over {peer}'s", AT_LEAST, goal, mine / other,
                       f"{mine:.0f} and {other:.0f} tok/s")
    report = bench(a, "q8,q4", prefill=tokens(a, 512), decode="")
    q8, q4 = (next(r for r in report["rows"] if r["weights_dtype"] == x) for x in ("q8", "q4"))
    yield ("prefill 512, q4: tokens/s over q8's", AT_LEAST, 0.95, q8["seconds"] / q4["seconds"], busy(q4))
    row = bench(a, "bf16", "--activations", "int8,bf16", "--prefill", tokens(a, 512), "--decode", "",
                "--against-define", "system=standard")["rows"][0]
    yield ("prefill 512, bf16: time of AttnRes over the standard residual's", AT_MOST, 1.015, row["time_ratio"],
           f"quartiles {row['time_ratio_low']:.3f} .. {row['time_ratio_high']:.3f}")


def compared(a, kind, ways):
    """Rows of bench/peers/compare.py."""
    compare = os.path.join(os.path.dirname(SPECS), "peers", "compare.py")
    small = [x for d in ("layers=2", "hidden=64", "heads=2", "kv_heads=1", "head_dim=32", "ff=128", "vocab=96")
             for x in ("-D", d)] if a.quick else []
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        out = os.path.join(folder, "peers.json")
        line = [sys.executable, compare, "--hadal", os.path.join(a.bin, "hadal"), "--types", kind, "--systems", "standard",
                "--peers", "compile,openvino", "--phases", "prefill", "--prefill", tokens(a, 512), "--threads",
                str(a.threads), "--rounds", str(a.rounds), "--work", folder, "--json", out, *small]
        done = subprocess.run(line + [f"--compile={w}" for w in ways], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"goals.py: {' '.join(line)}:\n{done.stdout}{done.stderr}")
        with open(out, encoding="utf-8") as f:
            report = json.load(f)
    for x in report["left_out"]:
        print(f"  {x['model']} is left out: {x['reason']}")
    return report["rows"]


def experts(a):
    shape = (128, 8, 512, 1536) if not a.quick else (16, 2, 32, 64)

    def rows(T, dtype):
        text = run(a, "bench_experts", "best", a.threads, a.rounds, T, *shape, dtype)
        found = [x.split() for x in text.splitlines()]
        return [x for x in found if len(x) > 3 and x[1] in ("up", "down")]

    for dtype, goal in (("bf16", 0.90), ("q8", 0.85), ("q4", 0.80)):
        for x in rows(1, dtype):
            yield (f"experts, one token, {x[1]}, {dtype}: share of read", AT_LEAST, goal,
                   float(x[x.index("read") - 2]), f"{x[x.index('us') - 1]} us")
    at = {}
    for dtype in ("f32", "q8", "q4"):
        for x in rows(int(tokens(a, 512)), dtype):
            at[x[1], dtype] = float(x[x.index("us") - 1])
            if dtype == "f32":
                yield (f"experts, prefill 512, {x[1]}, f32: share of multiply-add", AT_LEAST, 0.70,
                       float(x[x.index("multiply-add") - 2]), f"{x[x.index('us') - 1]} us")
            else:
                yield (f"experts, prefill 512, {x[1]}, {dtype}: speed over f32's", AT_LEAST, 1.5,
                       at[x[1], "f32"] / at[x[1], dtype], "")


# Of shapes of bench/latent.c, the numbers of heads. Multiply-adds of many heads take longer than reading the rows, whatever
# the kernel does: the goal is the share of the harder limit, and the share of both stands beside it.
LATENT_HEADS = {0: 32, 10: 16, 2: 8}


def latent(a):
    def shares(dtype, shape):
        T = "T=512" if shape in (8, 9) else "T=1"
        words = lines(run(a, "bench_latent", a.level, a.threads, dtype, a.rounds, shape), T)[0]
        return {word: float(words[i - 2]) for i, word in enumerate(words) if i > 1 and words[i - 1] == "of"}

    for dtype in ("bf16", "f32"):
        for shape, heads in {1: 32}.items() if a.quick else LATENT_HEADS.items():
            share = shares(dtype, shape)
            yield (f"latent attention, one token, {heads} heads, {dtype} cache: share of the harder limit", AT_LEAST, 0.80,
                   max(share["read"], share["multiply-add"]),
                   f"{share['read']:.2f} of read, {share['multiply-add']:.2f} of multiply-add")
    for shape, behind in ((8, "alone"), (9, "behind 4096")) if not a.quick else ():
        yield (f"latent attention, prefill 512 {behind}, keys and values that are made: share of multiply-add", AT_LEAST, 0.70,
               shares("f32", shape)["multiply-add"], "")


def mechanism(a):
    shape = "16,8,2048" if not a.quick else "4,2,64"
    for T, threads in ((512, 2), (512, 1), (1, 1)):
        text = run(a, "bench_depth", "--shape", shape, "--tokens", tokens(a, T), "--threads", threads,
                   "--rounds", a.rounds)
        rows = {x[5]: x for x in lines(text, *shape.split(","), tokens(a, T), threads)}
        of = {name: float(rows[name][13]) for name in ("two-phase", "bf16")}
        where = f"mechanism, T = {T}, {threads} thread{'s' * (threads > 1)}"
        yield (f"{where}: time over naive", AT_MOST, 0.62 if T > 1 else 1.0, of["two-phase"],
               f"own {rows['two-phase'][7]} ns, bytes {rows['two-phase'][8]} d")
        if T > 1:
            yield (f"{where}: phase 1 in bf16, over naive", AT_MOST, 0.52, of["bf16"], "")
            yield (f"{where}: share of triad", AT_LEAST, 0.9, float(rows["two-phase"][12]), "")


def residuals(a):
    hidden = "1024,2048" if not a.quick else "64"
    text = run(a, "bench_residuals", "--hidden", hidden, "--tokens", tokens(a, 512), "--threads",
               a.threads, "--rounds", a.rounds, "--compile", "no")
    for words in (x.split() for x in text.splitlines()):
        if len(words) != 14 or words[9] != "GB/s":
            continue
        name, d, share, binds = words[0], words[1], float(words[10]), words[12]
        note = f"own {words[5]} ns" + (", its time is arithmetic" if binds == "flops" else "")
        yield f"{name}, d = {d}: share of triad", AT_LEAST, 0.8, share, note
        if name == "mhc":
            yield f"mhc, d = {d}: time over that of its bytes", AT_MOST, 1.3, 1 / share, ""


def compiling(a):
    some = ("--systems", "standard,attnres") if a.quick else ()
    for words in lines_of_compile(run(a, "bench_residuals", "--compile", "only", *some)):
        yield f"compiling {words[0]}, native, s", AT_MOST, 0.5, float(words[1]), ""
        yield f"compiling {words[0]}, all levels, s", AT_MOST, 1.5, float(words[3]), ""


def compiling_kimi(a):
    """27 layers of Kimi Linear with AttnRes and 256 experts, to a library for this CPU."""
    spec, what = os.path.join(SPECS, "kimi.hadal"), "compiling Kimi Linear, 27 layers, 256 experts"
    with tempfile.TemporaryDirectory() as folder:
        def compiled(*options):
            line = command(a, "compile", spec, "-o", os.path.join(folder, "kimi"), "--target-cpu", "native",
                           "--time-passes", *options)
            start = time.perf_counter()
            out = subprocess.run(line, capture_output=True, text=True)
            if out.returncode:
                sys.exit(f"goals.py: {' '.join(line)}:\n{out.stderr}")
            return time.perf_counter() - start, functions(out.stderr)

        times = [compiled() for _ in range(a.rounds)]
        few = compiled(*defines(layers=7, experts=16))[1]
    yield f"{what}, native, s", AT_MOST, 0.7, statistics.median(t for t, _ in times), ""
    yield (f"{what}: functions over those of 7 layers, 16 experts", AT_MOST, 1.1, times[0][1] / few,
           f"{times[0][1]} and {few}")


def functions(text):
    """Of the table of --time-passes: LEVEL, what (words), functions, instructions, bytes, ms, ms."""
    rows = [x.split() for x in text.split("code, in CPU time")[1].splitlines()[1:]]
    return sum(int(x[-5]) for x in rows if len(x) > 6 and x[-5].isdigit())


def kimi_overhead(a):
    """8 layers of Kimi Linear at full width in blocks of 2, 8 experts: what a token meets is as in the model of 27 layers."""
    small = dict(layers=8, block=2, experts=8, hidden=64, heads=2, head_dim=16, latent=32, width=32, ff=64, vocab=256)
    yield from overhead_by_profile(a, "Kimi at d = 2304, bf16", os.path.join(SPECS, "kimi.hadal"), "bf16", small if a.quick else dict(layers=8, block=2, experts=8, vocab=32000))


def qwen3_overhead(a):
    """The model of `overhead`. Pairs of whole calls say what a user waits, and in decoding no more than a few per cent of it; this says
    where that is spent."""
    small = dict(d.split("=") for d in SMALL.split(","))
    yield from overhead_by_profile(a, "d = 1024, f32", MODEL, "f32", small if a.quick else {})


def overhead_by_profile(a, title, spec, dtype, shape):
    """Row programs with AttnRes less those without, of the whole, by profile; waits for them included, in which threads fetch the
    next weights ahead (runtime/prefetch.h), and without."""
    tokens_of = {"prefill": 16, "decode": 4} if a.quick else {"prefill": 512, "decode": 16}
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        part = {system: by_kind(a, spec, {**shape, "system": system}, dtype, tokens_of, folder)
                for system in ("attnres", "standard")}
    for phase, goal in (("prefill", 0.006), ("decode", 0.002)):
        ours, theirs = part["attnres"][phase], part["standard"][phase]
        yield (f"{phase}, {title}: AttnRes in row programs, of the whole", AT_MOST, goal,
               (ours["row"] - theirs["row"]) / ours["all"],
               f"{1e-6 * ours['row']:.1f} and {1e-6 * theirs['row']:.1f} of {1e-6 * ours['all']:.0f} ms; without waits "
               f"{(ours['row work'] - theirs['row work']) / ours['all']:.4f}")


def by_kind(a, spec, shape, dtype, tokens_of, folder):
    """{phase: {kind of kernel, "all": ns}} of a profile, with random weights."""
    profile, ids = os.path.join(folder, "p.json"), range(sum(tokens_of.values()))
    weights = os.path.join(folder, "random.safetensors")
    run(a, "hadal", "init-weights", spec, *defines(**shape), "--weights-dtype", "bf16", "-o", weights, "-q")
    run(a, "hadal", "run", spec, *defines(**shape), "-w", weights, "--weights-dtype", dtype, "--tokens",
        ",".join(map(str, ids)), "--split", tokens_of["prefill"], "--threads", a.threads, "--rounds", a.rounds,
        f"--profile={profile}", "-q")
    with open(profile, encoding="utf-8") as f:
        report = json.load(f)
    found = {}
    for phase in report["phases"]:
        of = found.setdefault(phase["phase"], {"all": 0, "row": 0, "row work": 0})
        for k in phase["kernels"]:
            spent = k["work_ns"] + k["wait_ns"]
            of["all"] += spent
            of[k["kind"]] = of.get(k["kind"], 0) + spent
            of["row work"] += k["work_ns"] if k["kind"] == "row" else 0
    return found


def ling(a):
    """Ling 3.0 tiny, 7.9 billion parameters of which 1.3 are active: packed with random weights in q4, decoded. 16 GB of
    checkpoint and 5 of weights in --work."""
    spec = os.path.join(SPECS, "ling.hadal")
    shape = defines(layers=4, hidden=64, heads=2, head_dim=16, latent=32, q_rank=32, experts=16, width=32, ff=64,
                    vocab=256) if a.quick else []
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        weights, out = os.path.join(folder, "ling.safetensors"), os.path.join(folder, "ling")
        run(a, "hadal", "init-weights", spec, *shape, "--weights-dtype", "bf16", "-o", weights, "-q")
        own = peak_of_own(command(a, "compile", spec, *shape, "-w", weights, "--weights-dtype", "q4", "--target-cpu",
                                  "native", "-o", out, "-q"))
        os.remove(weights)
        yield "packing Ling 3.0 tiny in q4: memory of its own, MB", AT_MOST, 300, own * 1e-6, "mapped input aside"
        report = json.loads(run(a, "hadal", "bench", out, "--prefill", "", "--decode", "0,512", "--threads",
                                a.threads, "--rounds", a.rounds, "--json"))
    for row in report["rows"]:
        yield (f"decode, Ling 3.0 tiny in q4, behind {row['cache']}: share of read", AT_LEAST, 0.80,
               row["read_fraction"],
               f"{row['tokens_per_second']:.1f} tok/s at {giga(row, 'read_limit')} GB/s{busy(row)}")


PACKED = (("f32", "f32"), ("f32", "q4"), ("bf16", "bf16"), ("bf16", "q8"), ("bf16", "q4"), ("f16", "f16"), ("f16", "q4"),
          ("mxfp4", "mxfp4"), ("fp8", "q8"), ("mxfp8", "q8"), ("int4", "q4"), ("int8", "q8"), ("w8a8", "q8"), ("gptq", "q4"),
          ("gptq", "bf16"), ("awq", "q4"), ("awq", "bf16"))
PLAIN = ("f32", "bf16", "f16")
MEMORY = "/dev/shm"


def packed_pair(text):
    pair = tuple(text.split(":"))
    if len(pair) != 2 or pair[0] not in (*PLAIN, *stored.FORMS):
        raise argparse.ArgumentTypeError(f"'{text}' is not FROM:TO with FROM among {', '.join((*PLAIN, *stored.FORMS))}")
    return pair


def packing(a):
    """Bytes read and written while a checkpoint is packed, over those of a copy of the same file, one after the other; 0.25 G
    weights, 5 GB in --work, and again in memory where there is room. Both are brought to the disk. --packed: some forms alone,
    with --place in one of the two places."""
    shape = defines(layers=14) if not a.quick else defines(hidden=64, layers=2, ff=128, vocab=256)
    places = [("the disk", a.work)] if a.place != "memory" else []
    if a.place != "disk" and os.path.isdir(MEMORY) and shutil.disk_usage(MEMORY).free > 7e9:
        places.append(("memory", MEMORY))
    pairs = a.packed or PACKED
    for place, work in places:
        with tempfile.TemporaryDirectory(dir=work) as folder:
            forms = {form for form, _ in pairs}
            path = {form: os.path.join(folder, f"{form}.safetensors") for form in (*PLAIN, *stored.FORMS)}
            for dtype in PLAIN:
                if dtype in forms or (dtype == "bf16" and forms & stored.FORMS.keys()):
                    run(a, "hadal", "init-weights", MODEL, *shape, "--weights-dtype", dtype, "-q", "-o", path[dtype])
            for form in forms & stored.FORMS.keys():
                stored.write(path["bf16"], path[form], form)
            for form, dtype in pairs:
                stored.write_config(folder, form)
                share, rate = pack_and_copy(a, shape, path[form], dtype, os.path.join(folder, "out"))
                yield (f"packing {form} as {dtype}, {place}: rate over that of a copy", AT_LEAST, 0.5, share,
                       f"{rate * 1e-9:.2f} GB/s read and written")


def pack_and_copy(a, shape, path, dtype, out):
    """Medians of the packing rate over that of a copy, and of the packing rate."""
    asked = f"*_proj={dtype}" if dtype == "mxfp4" else dtype
    ratios, rates = [], []
    for _ in range(a.rounds):
        copied = timed(lambda: copy_and_sync(path, f"{out}.copy"))
        os.remove(f"{out}.copy")
        packed = timed(lambda: run(a, "hadal", "compile", MODEL, *shape, "-w", path, "--weights-dtype", asked,
                                   "--target-cpu", "native", "--emit=weights", "-q", "-o", out))
        size = os.path.getsize(path)
        rates.append((size + os.path.getsize(f"{out}.weights")) / packed)
        ratios.append(rates[-1] / (2 * size / copied))
        os.remove(f"{out}.weights")
    return statistics.median(ratios), statistics.median(rates)


def copy_and_sync(path, to):
    shutil.copyfile(path, to)
    with open(to, "rb") as f:
        os.fsync(f.fileno())


def timed(what):
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def family(a, name):
    """A published family at full width with few layers and random weights, in the types that it is run in: 7 GB of checkpoint
    and as much of weights in --work. Decoding reads what a token needs of them."""
    folder = os.path.join(SPECS, name)
    if a.quick:
        folder = os.path.join(SPECS, "..", "..", "tests", "published", name)
    report = json.loads(run(a, "hadal", "bench", folder, "--weights-dtype", "f32,bf16,q4", "--prefill", tokens(a, 512),
                            "--decode", "0", "--threads", a.threads, "--rounds", a.rounds, "--json"))
    rows = {(r["phase"], r["weights_dtype"]): r for r in report["rows"]}
    for dtype, goal in (("bf16", 0.90), ("q4", 0.80)):
        row = rows["decode", dtype]
        yield (f"decode, {name}, {dtype}: share of read", AT_LEAST, goal, row["read_fraction"],
               f"{row['tokens_per_second']:.1f} tok/s at {giga(row, 'read_limit')} GB/s{busy(row)}")
    row = rows["prefill", "f32"]
    yield (f"prefill 512, {name}, f32: share of multiply-add", AT_LEAST, 0.65, row["fma_fraction"],
           f"{row['tokens_per_second']:.0f} tok/s at {giga(row, 'fma_limit')} GFLOP/s{busy(row)}")


def gemma3n(a):
    yield from family(a, "gemma3n")


def inkling2(a):
    yield from family(a, "inkling2")


def gpt_oss(a):
    yield from family(a, "gpt_oss")


def qwen3_moe(a):
    yield from family(a, "qwen3_moe")


def peak_of_own(line):
    """Most bytes that are no file's while it runs, as /proc sees it every 20 ms."""
    process, most = subprocess.Popen(line), 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as f:
                own = [x.split()[1] for x in f if x.startswith("RssAnon:")]
            most = max([most, *(1024 * int(x) for x in own)])
        except OSError:
            pass  # it has just ended
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"goals.py: {' '.join(line)} failed")
    return most


def recurrence(a):
    decode, prefill = (9, 10) if a.quick else (0, 1)
    for shape, goal, what in ((decode, 0.85, "delta rule, decode, 32 heads of 128: share of read"),
                              (prefill, 0.45, "delta rule, prefill 512: share of multiply-add")):
        for line in lines(run(a, "bench_recurrence", "best", a.threads, "f32", a.rounds, shape), "delta_rule"):
            yield what, AT_LEAST, goal, float(line[line.index("of") - 1]), f"{line[line.index('us') - 1]} us"


GROUPS = (decode, prefill, start, overhead, ranks, contractions, matrix_unit, matrix_unit_models, experts, latent, recurrence, mechanism, residuals,
          compiling, compiling_kimi, packing, kimi_overhead, qwen3_overhead, ling, gemma3n, inkling2, gpt_oss, qwen3_moe)
LARGE = (packing, kimi_overhead, qwen3_overhead, ling, gemma3n, inkling2, gpt_oss, qwen3_moe)

# ---- parts of the report ---------------------------------------------------------------------------


def host():
    """The CPU and how many of them: a share of limits is a fact of one machine."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            of = {x.split(":")[0].strip(): x.split(":", 1)[1].strip() for x in f if ":" in x}
    except OSError:
        of = {}
    name = of.get("model name", "an unknown CPU")
    number = f", family {of['cpu family']} model {of['model']}" if "cpu family" in of else ""
    return f"{len(os.sched_getaffinity(0))} x {name}{number}"


def tokens(a, T):
    return str(min(T, 16) if a.quick else T)


def bench(a, dtypes, *more, **phases):
    options = [x for name, value in phases.items() for x in (f"--{name}", value)]
    define = "system=attnres" + ("," + SMALL if a.quick else "")
    defines = [x for d in define.split(",") for x in ("-D", d)]
    return json.loads(run(a, "hadal", "bench", MODEL, *defines, "--weights-dtype", dtypes, "--threads",
                          a.threads, "--rounds", a.rounds, "--json", *options, *more))


def giga(row, key):
    return f"{row[key] * 1e-9:.0f}"


def busy(row):
    return ", the machine was busy" if row["busy"] else ""


def lines_of_compile(text):
    """name, wall and CPU seconds for one level, wall and CPU for all."""
    for words in (x.split() for x in text.splitlines()):
        try:
            if len(words) == 5 and [float(x) for x in words[1:]]:
                yield words
        except ValueError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=os.path.dirname(shutil.which("hadal") or "") or "build/release/bin",
                        help="folder of hadal and the benchmark programs: where PATH has hadal")
    parser.add_argument("--only", action="append", choices=[g.__name__ for g in GROUPS])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--level", default="best", help="of the groups that take a kernel alone: best, or a level of hadal machine")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--work", metavar="DIR", help="where LARGE groups write, a temporary folder")
    parser.add_argument("--packed", metavar="FROM:TO", action="append", type=packed_pair,
                        help="of packing: from this form of checkpoint to this type of weights, and no others")
    parser.add_argument("--place", choices=("disk", "memory"), help="of packing: there alone")
    parser.add_argument("--json")
    a = parser.parse_args()
    a.rounds = 1 if a.quick else a.rounds
    if a.work:
        os.makedirs(a.work, exist_ok=True)
        os.environ["TMPDIR"] = a.work  # of hadal bench
    rows = []
    print(host())
    for group in GROUPS:
        if group.__name__ not in a.only if a.only else group in LARGE:
            continue
        print(f"\n{group.__name__}", flush=True)
        for what, sense, goal, value, note in group(a):
            met = value >= goal if sense == AT_LEAST else value <= goal
            rows.append({"group": group.__name__, "what": what, "sense": sense, "goal": goal,
                         "measured": value, "met": met, "note": note})
            print(f"  {what:56} {sense} {goal:<6g} {value:8.3f}  {'met' if met else 'MISSED':6}  {note}",
                  flush=True)
    print(f"\n{sum(r['met'] for r in rows)} of {len(rows)} met")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-goals-1", "host": host(), "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
