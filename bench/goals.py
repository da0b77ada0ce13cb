#!/usr/bin/env python3
"""The goals that are set for Hadal's speed, each beside what this machine makes of it now.

  goals.py [--bin build/release/bin] [--only NAME]... [--rounds 5] [--quick] [--work DIR] [--packed FROM:TO]... [--json FILE]

Runs the benchmark programs (build them with the target `bench`), reads what they print, and prints
a table: goal, measured, met or not. A figure is a median of rounds, a share is one of a limit
measured in the same run. It counts as not measured where it is above 1.02 of a limit that nothing can exceed, or where the limit
moved by more than 10 % in that run: then something else was at work. --only: some groups of the table GROUPS below; those of
LARGE, which write gigabytes to --work (a temporary directory), run only if they are named. --quick: small shapes and
one round, to see that everything runs; its figures mean nothing. Exits with 0 whatever is met: on
a busy machine nothing is. --level: code of that CPU level, with its limits and, where LEVEL_GOALS (goals_common.py) has some, its
goals; any machine that runs the level will do.
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
from goals_common import (AT_LEAST, AT_MOST, FMA, MODEL, MOVED, READ, SMALL, SPECS, TRIAD, Share, bench, bench_libraries, busy, by_kind,
                          command, compiled, cores_of, defines, giga, goal_of, lines, not_measured, of_fma, of_level, of_read,
                          overhead_by_profile, run, share_of, target, tokens, undisturbed_of_fma, undisturbed_over, verdict)
from goals_unit import matrix_unit, matrix_unit_models
from training import training

# ---- groups: each runs programs and yields goals as (what, sense, goal, measured, remark); for a figure without a goal, sense
# and goal are None ----


LOADS = ("--weights-load", "mmap,read")  # weights as a map of their file, and read into memory in huge pages


def of_decode(row, what, goal):
    huge = row["huge_page_bytes"] / row["resident_bytes"] if row["resident_bytes"] else 0
    return (f"decode, {what}, {row['weights_load']}: share of read", AT_LEAST, goal, of_read(row),
            f"{row['tokens_per_second']:.1f} tok/s at {giga(row, 'read_limit')} GB/s, {100 * huge:.0f} % in huge pages{busy(row)}")


def decode(a):
    for dtype, goal in (("f32", 0.97), ("bf16", 0.92), ("f16", 0.92), ("q8", 0.88), ("q4", 0.85), ("nvfp4", 0.85)):
        for row in bench(a, dtype, *LOADS, prefill="", decode="0")["rows"]:
            yield of_decode(row, dtype, goal)


def prefill(a):
    """Shares of multiply-add, and the types that are compared in turn, pair by pair. A prompt takes seconds, in which other guests
    of the machine come and go, so the figure is that of undisturbed kernels; the plain one, of whole calls, stands beside it."""
    for row in bench(a, "f32,bf16,f16", prefill=tokens(a, 512), decode="")["rows"]:
        limits = [giga(row, x) for x in ("fma_limit", "undisturbed_fma_limit") if x in row]
        yield (f"prefill 512, {row['weights_dtype']}: share of multiply-add", AT_LEAST, goal_of(a, "prefill", 0.70),
               undisturbed_of_fma(a, row), f"whole calls {row['fma_fraction']:.3f}, {row['tokens_per_second']:.0f} tok/s at "
               f"{', undisturbed '.join(limits)} GFLOP/s{busy(row)}")
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        libraries = compiled(a, folder, ("f32", "q8", "q4", "mxfp4", "nvfp4"))
        for slow, dtype, goal in (("f32", "q8", goal_of(a, "prefill q8", 1.6)), ("f32", "q4", goal_of(a, "prefill q4", 1.6)),
                                  ("mxfp4", "nvfp4", goal_of(a, "prefill nvfp4", 0.95))):
            rows = bench_libraries(a, libraries[slow], libraries[dtype], prefill=tokens(a, 512), decode="")["rows"]
            yield (f"prefill 512, {dtype}: tokens/s over {slow}'s", AT_LEAST, goal, undisturbed_over(*rows),
                   f"whole calls {rows[0]['time_ratio']:.3f} (quartiles {rows[0]['time_ratio_low']:.3f} .. "
                   f"{rows[0]['time_ratio_high']:.3f}), {rows[1]['tokens_per_second']:.0f} tok/s{busy(rows[1])}")


def loss(a):
    """NAME_loss, of which hadal eval is made, over a prefill of as many tokens that asks for the last row of logits alone, in
    turn and in one process, plus what the other rows need at the rate of that prefill: the products of the head, and of the
    last layer all but keys and values, which such a prefill computes for one row (the figure without them is told)."""
    T, shape = int(tokens(a, 512)), ["-D", "system=attnres", *(x for d in SMALL.split(",") if a.quick for x in ("-D", d))]
    hidden, vocab, ff, heads = (64, 256, 128, 2048) if a.quick else (1024, 32000, 3072, 2048)
    last_layer = 4 * hidden * heads + 6 * hidden * ff + 4 * heads * (T + 1) / 2  # q, o; feed-forward; attention
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        weights, model = (os.path.join(folder, x) for x in ("random.safetensors", "m"))
        run(a, "hadal", "init-weights", MODEL, *shape, "-q", "-o", weights)
        run(a, "hadal", "compile", MODEL, *shape, "-w", weights, "--loss", "--emit=so,weights,python", "--target-cpu", target(a),
            "-q", "-o", model)
        row = json.loads(run(a, "hadal", "bench", model, "--prefill", T, "--decode", "", "--threads", a.threads, "--rounds", 1,
                             "--json", *of_level(a, "--cpu-level")))["rows"][0]
        line = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "loss_in_turn.py"), model,
                *map(str, (T, vocab, a.threads, max(a.rounds, 2 if a.quick else 8)))]
        seconds = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    head, other_rows = ((T - 1) * (2 * hidden * vocab + more) / row["flops"] for more in (0, last_layer))
    low, ratio, high = (x / (1 + other_rows) for x in statistics.quantiles(
        [loss / prefill for loss, prefill in zip(seconds["loss"], seconds["prefill"])], n=4))
    yield ("loss 512, f32: time over prefill, and head and last layer of the other rows", AT_MOST, 1.03, ratio,
           f"quartiles {low:.3f} .. {high:.3f}; {ratio * (1 + other_rows) / (1 + head):.3f} over prefill and head; "
           f"{T / statistics.median(seconds['loss']):.0f} tok/s{busy(row)}")


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
    """The model divided over processes of one machine, which share its threads, compared with the same model undivided: in
    turn, with messages through shared memory. Then the same over a link on which messages are delayed, beside what `hadal
    plan` predicts for two such hosts. Yields nothing where there is no MPI."""
    if not shutil.which("mpirun"):
        print("  there is no mpirun")
        return
    shape = ["-D", "system=attnres", *(x for d in SMALL.split(",") for x in ("-D", d))] if a.quick else ["-D", "system=attnres"]
    count = 2
    for dtype in ("f32", "q4"):
        with tempfile.TemporaryDirectory(dir=a.work) as folder:
            weights, whole, shared = (os.path.join(folder, x) for x in ("random.safetensors", "whole", "shared"))
            run(a, "hadal", "init-weights", "--draw-all", MODEL, *shape, "--weights-dtype", "bf16", "-q", "-o", weights)
            for out, more in ((whole, ()), (shared, ("--ranks", count))):
                run(a, "hadal", "compile", MODEL, *shape, "-w", weights, "--weights-dtype", dtype, "--target-cpu", target(a), "-q",
                    *more, "-o", os.path.join(out, "m"))
            os.remove(weights)
            turns = [(one_of_all(a, whole, 1), one_of_all(a, shared, count)) for _ in range(a.rounds)]
            if a.level == "best":
                slowed = [one_of_all(a, shared, count, *links.held_back(LINK)) for _ in range(a.rounds)]
                host = json.loads(links.Shared().mpirun(count, *command(a, "machine", "--threads", str(max(1, a.threads // count)), "--json")))
        for phase, what in (("prefill", "prefill 512"), ("decode", "decode")):
            ratio = statistics.median(many[phase]["seconds"] / one[phase]["seconds"] for one, many in turns)
            ms = (1e3 * statistics.median(x[i][phase]["seconds"] for x in turns) for i in (0, 1))
            yield (f"{what}, {dtype}: time of {count} ranks over that of {count} threads", AT_MOST, 1.10, ratio,
                   "{0:.2f} ms on threads, {1:.2f} on ranks".format(*ms) + busy(turns[-1][0][phase]))
        if a.level == "best":
            yield from over_link(a, shape, dtype, count, slowed, host)
        else:
            print(f"  plans are for the best level, not for {a.level}")


LINK = "10G/50us"


def over_link(a, shape, dtype, count, slowed, host):
    """Rounds over the link, each beside the plan for a host that was measured in the same round."""
    for phase, what in (("prefill", "prefill 512"), ("decode", "decode")):
        rows = [{"type": dtype, "ranks": count, "prefill": tokens(a, 512), "decode": 0, "phase": phase,
                 "facts": links.facts_of_host(host, LINK, x[phase])} for x in slowed]
        plans = [links.plan_of(command(a)[0], shape, row)["all"] for row in rows]
        ratio = statistics.median(p / x[phase]["seconds"] for p, x in zip(plans, slowed))
        ms = (1e3 * statistics.median(x[phase]["seconds"] for x in slowed), 1e3 * statistics.median(plans))
        yield (f"{what}, {dtype}: plan over {count} ranks at 10 Gbit/s, 50 us, off by", AT_MOST, 0.25, abs(ratio - 1),
               "{0:.2f} ms measured, {1:.2f} planned".format(*ms) + busy(slowed[-1][phase]))


def one_of_all(a, folder, count, *more):
    """{phase: row} of one round; the processes share the threads."""
    start = ["mpirun", "-n", str(count)] if count > 1 else []
    line = [*start, *command(a, "bench", os.path.join(folder, "m"), "--prefill", tokens(a, 512), "--decode", "0", "--threads",
                             max(1, a.threads // count), "--rounds", 1, "--json", *of_level(a, "--cpu-level"), *more)]
    out = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **links.AS_ROOT})
    if out.returncode:
        sys.exit(f"goals.py: {' '.join(line)}:\n{out.stdout}{out.stderr}")
    return {row["phase"]: row for row in json.loads(out.stdout)["rows"]}


def contractions(a):
    for T, K, N, goal in ((512, 1024, 3072, 0.88), (512, 3072, 1024, 0.88), (2048, 512, 1536, 0.88), (512, 128, 384, 0.75),
                          *((T, *of, goal_of(a, "few rows", 0.85)) for T in (16, 4) for of in ((1024, 3072), (3072, 1024)))):
        shape = (T, K, N) if not a.quick else (16, 128, 128)
        text = run(a, "bench_contract", a.level, a.threads, *shape, "f32")
        words = text.split()
        peak, read = (share_of(a, limit, float(words[words.index(x) - 2]), text) for x, limit in (("peak", FMA), ("read", READ)))
        value, of = (peak, "multiply-add") if T > 16 else (max(read, peak), "its roof")
        yield f"contraction {T} x {K} x {N}, f32: share of {of}", AT_LEAST, goal, value, ""
    if a.level == "avx2":
        yield from products_of_bytes(a)


def products_of_bytes(a):
    """Prompts with weights in groups, where no instruction adds four products: over f32, in turn."""
    for K, N in ((1024, 3072), (3072, 1024)):
        shape = (16, 128, 128) if a.quick else (512, K, N)
        speeds, cores = {dtype: [] for dtype in ("f32", "q8", "q4", "mxfp4")}, []
        for _ in range(a.rounds):
            for dtype, found in speeds.items():
                text = run(a, "bench_contract", a.level, a.threads, *shape, dtype, "rounded", 5)
                words = text.split()
                found.append(float(words[words.index("GFLOP/s") - 1]))
                cores.append(cores_of(text))
        for dtype in ("q8", "q4", "mxfp4"):
            yield (f"contraction 512 x {K} x {N}, {dtype}: speed over f32's", AT_LEAST, goal_of(a, f"products {dtype}", 1.6),
                   Share(statistics.median(x / f32 for x, f32 in zip(speeds[dtype], speeds["f32"])), bounded=False,
                         cores=statistics.median(cores)), "")


def experts(a):
    shape = (128, 8, 512, 1536) if not a.quick else (16, 2, 32, 64)

    def rows(T, dtype):
        text = run(a, "bench_experts", a.level, a.threads, a.rounds, T, *shape, dtype)
        found = [x.split() for x in text.splitlines()]
        return text, [x for x in found if len(x) > 3 and x[1] in ("up", "down")]

    for dtype, goal in (("bf16", 0.90), ("q8", 0.85), ("q4", 0.80)):
        text, found = rows(1, dtype)
        for x in found:
            yield (f"experts, one token, {x[1]}, {dtype}: share of read", AT_LEAST, goal,
                   share_of(a, READ, float(x[x.index("read") - 2]), text), f"{x[x.index('us') - 1]} us")
    at, cores = {}, 1.0
    for dtype in ("f32", "q8", "q4"):
        text, found = rows(int(tokens(a, 512)), dtype)
        cores = min(cores, cores_of(text))
        for x in found:
            at[x[1], dtype] = float(x[x.index("us") - 1])
            if dtype == "f32":
                yield (f"experts, prefill 512, {x[1]}, f32: share of multiply-add", AT_LEAST, goal_of(a, "experts", 0.70),
                       share_of(a, FMA, float(x[x.index("multiply-add") - 2]), text), f"{x[x.index('us') - 1]} us")
            else:
                yield (f"experts, prefill 512, {x[1]}, {dtype}: speed over f32's", AT_LEAST,
                       goal_of(a, f"experts {dtype}", 1.5),
                       Share(at[x[1], "f32"] / at[x[1], dtype], bounded=False, cores=cores), "")


# The numbers of heads in shapes of bench/latent.c. The multiply-adds of many heads take longer than reading the rows, whatever
# the kernel does: the goal is a share of the limit that takes longer, and the shares of both are printed.
LATENT_HEADS = {0: 32, 10: 16, 2: 8}


def latent(a):
    def shares(dtype, shape):
        T = "T=512" if shape in (8, 9) else "T=1"
        text = run(a, "bench_latent", a.level, a.threads, dtype, a.rounds, shape)
        words = lines(text, T)[0]
        limits = {"read": READ, "multiply-add": FMA}
        return {word: share_of(a, limits[word], float(words[i - 2]), text) for i, word in enumerate(words)
                if i > 1 and words[i - 1] == "of" and word in limits}

    for dtype in ("bf16", "f32"):
        for shape, heads in {1: 32}.items() if a.quick else LATENT_HEADS.items():
            share = shares(dtype, shape)
            yield (f"latent attention, one token, {heads} heads, {dtype} cache: share of the harder limit", AT_LEAST, 0.80,
                   max(share["read"], share["multiply-add"]),
                   f"{share['read']:.2f} of read, {share['multiply-add']:.2f} of multiply-add")
    for shape, behind in ((8, "alone"), (9, "behind 4096")) if not a.quick else ():
        yield (f"latent attention, prefill 512 {behind}, keys and values that are made: share of multiply-add", AT_LEAST,
               goal_of(a, "latent prefill", 0.70),
               shares("f32", shape)["multiply-add"], "")


# Shapes of bench/sequence.c: tokens and the size of a head.
PROMPTS = {7: (512, 64), 5: (512, 128), 27: (512, 256), 26: (4096, 64), 20: (4096, 128), 28: (4096, 256)}


def attention(a):
    """Prompts. What counts as arithmetic are the pairs of a query and a key that it sees: work above the diagonal, up to 4 % more
    at 512 tokens, lowers the share."""
    goal = goal_of(a, "attention", None)
    for shape, (T, n) in {21: (64, 32)}.items() if a.quick else PROMPTS.items():
        text = run(a, "bench_sequence", a.level, a.threads, "f32", a.rounds, shape)
        words = lines(text, f"T={T}")[0]
        yield (f"attention, prompt of {T}, heads of {n}: share of multiply-add", goal and AT_LEAST, goal,
               share_of(a, FMA, float(words[words.index("multiply-add") - 2]), text), f"{words[words.index('us') - 1]} us")


def mechanism(a):
    shape = "16,8,2048" if not a.quick else "4,2,64"
    for T, threads in ((512, 2), (512, 1), (1, 1)):
        text = run(a, "bench_depth", "--shape", shape, "--tokens", tokens(a, T), "--threads", threads,
                   "--rounds", a.rounds, *of_level(a, "--level"))
        rows = {x[5]: x for x in lines(text, *shape.split(","), tokens(a, T), threads)}
        of = {name: float(rows[name][13]) for name in ("two-phase", "bf16")}
        where = f"mechanism, T = {T}, {threads} thread{'s' * (threads > 1)}"
        yield (f"{where}: time over naive", AT_MOST, 0.62 if T > 1 else 1.0, of["two-phase"],
               f"own {rows['two-phase'][7]} ns, bytes {rows['two-phase'][8]} d")
        if T > 1:
            yield (f"{where}: phase 1 in bf16, over naive", AT_MOST, 0.52, of["bf16"], "")
            yield (f"{where}: share of triad", AT_LEAST, 0.9, share_of(a, TRIAD, float(rows["two-phase"][12]), text), "")


def residuals(a):
    hidden = "1024,2048" if not a.quick else "64"
    text = run(a, "bench_residuals", "--hidden", hidden, "--tokens", tokens(a, 512), "--threads",
               a.threads, "--rounds", a.rounds, "--compile", "no", *of_level(a, "--level"))
    printed = [*text.splitlines(), ""]
    for line, below in zip(printed, printed[1:]):  # the line below a row says which limits moved in its rounds
        words, moved = line.split(), below if below.startswith(MOVED) else ""
        if len(words) != 14 or words[9] != "GB/s":
            continue
        name, d, share, binds = words[0], words[1], share_of(a, TRIAD, float(words[10]), moved), words[12]
        note = f"own {words[5]} ns" + (", its time is arithmetic" if binds == "flops" else "")
        yield f"{name}, d = {d}: share of triad", AT_LEAST, 0.8, share, note
        if name == "mhc":
            yield f"mhc, d = {d}: time over that of its bytes", AT_MOST, 1.3, share_of(a, TRIAD, 1 / share, moved), ""


def compiling(a):
    some = ("--systems", "standard,attnres") if a.quick else ()
    for words in lines_of_compile(run(a, "bench_residuals", "--compile", "only", *some, *of_level(a, "--level"))):
        yield f"compiling {words[0]}, {target(a)}, s", AT_MOST, 0.5, float(words[1]), ""
        yield f"compiling {words[0]}, all levels, s", AT_MOST, 1.5, float(words[3]), ""


def compiling_kimi(a):
    """Compiles 27 layers of Kimi Linear with AttnRes and 256 experts to a library for this CPU."""
    spec, what = os.path.join(SPECS, "kimi.hadal"), "compiling Kimi Linear, 27 layers, 256 experts"
    with tempfile.TemporaryDirectory() as folder:
        def compiled(*options):
            line = command(a, "compile", spec, "-o", os.path.join(folder, "kimi"), "--target-cpu", target(a),
                           "--time-passes", *options)
            start = time.perf_counter()
            out = subprocess.run(line, capture_output=True, text=True)
            if out.returncode:
                sys.exit(f"goals.py: {' '.join(line)}:\n{out.stderr}")
            return time.perf_counter() - start, functions(out.stderr)

        times = [compiled() for _ in range(a.rounds)]
        few = compiled(*defines(layers=7, experts=16))[1]
    yield f"{what}, {target(a)}, s", AT_MOST, 0.7, statistics.median(t for t, _ in times), ""
    yield (f"{what}: functions over those of 7 layers, 16 experts", AT_MOST, 1.1, times[0][1] / few,
           f"{times[0][1]} and {few}")


def functions(text):
    """Rows of the table of --time-passes: LEVEL, what (words), functions, instructions, bytes, ms, ms."""
    rows = [x.split() for x in text.split("code, in CPU time")[1].splitlines()[1:]]
    return sum(int(x[-5]) for x in rows if len(x) > 6 and x[-5].isdigit())


def kimi_overhead(a):
    """8 layers of Kimi Linear at full width in blocks of 2, 8 experts: each layer does the work that it does in the model of
    27 layers."""
    small = dict(layers=8, block=2, experts=8, hidden=64, heads=2, head_dim=16, latent=32, width=32, ff=64, vocab=256)
    yield from overhead_by_profile(a, "Kimi at d = 2304, bf16", os.path.join(SPECS, "kimi.hadal"), "bf16", small if a.quick else dict(layers=8, block=2, experts=8, vocab=32000))


def qwen3_overhead(a):
    """The model of `overhead`. Pairs of whole calls say how long a user waits, and for decoding only to a few per cent of it;
    the profile here says where that time is spent."""
    small = dict(d.split("=") for d in SMALL.split(","))
    yield from overhead_by_profile(a, "d = 1024, f32", MODEL, "f32", small if a.quick else {})


def ling(a):
    """Ling 3.0 tiny, 7.9 billion parameters of which 1.3 billion are active: packed with random weights in q4, then decoding.
    Needs 16 GB for the checkpoint and 5 GB for weights in --work."""
    spec = os.path.join(SPECS, "ling.hadal")
    shape = defines(layers=4, hidden=64, heads=2, head_dim=16, latent=32, q_rank=32, experts=16, width=32, ff=64,
                    vocab=256) if a.quick else []
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        weights, out = os.path.join(folder, "ling.safetensors"), os.path.join(folder, "ling")
        run(a, "hadal", "init-weights", "--draw-all", spec, *shape, "--weights-dtype", "bf16", "-o", weights, "-q")
        own = peak_of_own(command(a, "compile", spec, *shape, "-w", weights, "--weights-dtype", "q4", "--target-cpu",
                                  target(a), "-o", out, "-q"))
        os.remove(weights)
        yield "packing Ling 3.0 tiny in q4: memory of its own, MB", AT_MOST, 300, own * 1e-6, "mapped input aside"
        report = json.loads(run(a, "hadal", "bench", out, "--prefill", "", "--decode", "0,512", "--threads",
                                a.threads, "--rounds", a.rounds, "--json", *LOADS))
    for row in report["rows"]:
        yield of_decode(row, f"Ling 3.0 tiny in q4, behind {row['cache']}", 0.80)


PACKED = (("f32", "f32"), ("f32", "q4"), ("bf16", "bf16"), ("bf16", "q8"), ("bf16", "q4"), ("f16", "f16"), ("f16", "q4"),
          ("mxfp4", "mxfp4"), ("nvfp4", "nvfp4"), ("fp8", "q8"), ("mxfp8", "q8"), ("int4", "q4"), ("int8", "q8"), ("w8a8", "q8"), ("gptq", "q4"),
          ("gptq", "bf16"), ("awq", "q4"), ("awq", "bf16"))
PLAIN = ("f32", "bf16", "f16")
MEMORY = "/dev/shm"


def packed_pair(text):
    pair = tuple(text.split(":"))
    if len(pair) != 2 or pair[0] not in (*PLAIN, *stored.FORMS):
        raise argparse.ArgumentTypeError(f"'{text}' is not FROM:TO with FROM among {', '.join((*PLAIN, *stored.FORMS))}")
    return pair


def packing(a):
    """Bytes per second read and written while a checkpoint is packed, over those of a copy of the same file, one after the
    other. The checkpoint has 0.25 G weights and takes 5 GB in --work; the test is repeated in memory if there is enough. Both
    files are synced to the disk. --packed: only some storage formats; --place: only one of the two places."""
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
                    run(a, "hadal", "init-weights", "--draw-all", MODEL, *shape, "--weights-dtype", dtype, "-q", "-o", path[dtype])
            for form in forms & stored.FORMS.keys():
                stored.write(path["bf16"], path[form], form)
            for form, dtype in pairs:
                stored.write_config(folder, form)
                share, rate = pack_and_copy(a, shape, path[form], dtype, os.path.join(folder, "out"))
                yield (f"packing {form} as {dtype}, {place}: rate over that of a copy", AT_LEAST, 0.5, share,
                       f"{rate * 1e-9:.2f} GB/s read and written")


def pack_and_copy(a, shape, path, dtype, out):
    """Medians of the packing rate over that of a copy, and of the packing rate."""
    asked = f"*_proj={dtype}" if dtype in ("mxfp4", "nvfp4") else dtype
    ratios, rates = [], []
    for _ in range(a.rounds):
        copied = timed(lambda: copy_and_sync(path, f"{out}.copy"))
        os.remove(f"{out}.copy")
        packed = timed(lambda: run(a, "hadal", "compile", MODEL, *shape, "-w", path, "--weights-dtype", asked,
                                   "--target-cpu", target(a), "--emit=weights", "-q", "-o", out))
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


def family(a, name, decode=(("bf16", 0.90), ("q4", 0.80)), prefill=0.65):
    """A published family at full width with few layers and random weights, in the types that it is run in: 7 GB of checkpoint
    and as much of weights in --work, and of memory where weights are read and not mapped. Decoding reads the part of the weights
    that a token needs. decode: types and goals; prefill: the goal in f32."""
    folder = os.path.join(SPECS, name)
    if a.quick:
        folder = os.path.join(SPECS, "..", "..", "tests", "published", name)
    types = ",".join(("f32", *(dtype for dtype, _ in decode)))
    report = json.loads(run(a, "hadal", "bench", folder, "--weights-dtype", types, "--prefill", tokens(a, 512),
                            "--decode", "0", "--threads", a.threads, "--rounds", a.rounds, "--json", *LOADS, *of_level(a, "--cpu-level")))
    for dtype, goal in decode:
        for row in report["rows"]:
            if row["phase"] == "decode" and row["weights_dtype"] == dtype:
                yield of_decode(row, f"{name}, {dtype}", goal)
    row = next(r for r in report["rows"] if r["phase"] == "prefill" and r["weights_dtype"] == "f32")
    yield (f"prefill 512, {name}, f32: share of multiply-add", AT_LEAST, prefill, of_fma(a, row),
           f"{row['tokens_per_second']:.0f} tok/s at {giga(row, 'fma_limit')} GFLOP/s{busy(row)}")


def gemma3n(a):
    yield from family(a, "gemma3n")


def inkling2(a):
    yield from family(a, "inkling2")


def inkling2_loop(a):
    """Inkling 2 Mini's shape with fewer layers and experts, half of its layers in a core that is run three times."""
    yield from family(a, "inkling2_loop", (("bf16", 0.88), ("nvfp4", 0.80)), 0.70)


def loop_overhead(a):
    """What a looped core adds to its layers, by profile: layers of Inkling 2 Mini's shape, four of them in a core that is run
    three times, and sixteen that are run once. Both run sixteen, with the same sources a block."""
    spec = os.path.join(SPECS, "inkling2_loop")
    if a.quick:
        spec = os.path.join(SPECS, "..", "..", "tests", "published", "inkling2_loop_text")
    with open(os.path.join(spec, "config.json"), encoding="utf-8") as f:
        config = {**json.load(f), "n_layers_per_attn_res_block": 2, "layer_types": None, "mlp_layer_types": None}
    config = {k: v for k, v in config.items() if v is not None and not k.startswith("loop_")}
    if not a.quick:
        config.update(n_routed_experts=4, vocab_size=8192, unpadded_vocab_size=8192)
    tokens_of = {"prefill": 16, "decode": 4} if a.quick else {"prefill": 512, "decode": 16}
    part = {}
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        for name, layers, passes in (("looped", 8, 3), ("once", 16, 1)):
            config["num_hidden_layers"] = layers
            config["loop_config"] = {"core_start": 2, "core_end": 6, "num_passes": passes, "gate_rank": 64}
            os.makedirs(os.path.join(folder, name))
            with open(os.path.join(folder, name, "config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)
            part[name] = by_kind(a, os.path.join(folder, name), {}, "bf16", tokens_of, folder, ())
    for phase in ("prefill", "decode"):
        looped, once = part["looped"][phase], part["once"][phase]
        yield (f"{phase}, a core run three times: row programs beside those of layers run once, of the whole", None, None,
               (looped["row"] - once["row"]) / looped["all"],
               f"{1e-6 * looped['row']:.1f} and {1e-6 * once['row']:.1f} of {1e-6 * looped['all']:.0f} ms; all kernels "
               f"{looped['all'] / once['all']:.3f}")


def gpt_oss(a):
    yield from family(a, "gpt_oss")


def qwen3_moe(a):
    yield from family(a, "qwen3_moe")


def peak_of_own(line):
    """The most memory of the process that belongs to no file, as /proc shows it every 20 ms."""
    process, most = subprocess.Popen(line), 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="utf-8") as f:
                own = [x.split()[1] for x in f if x.startswith("RssAnon:")]
            most = max([most, *(1024 * int(x) for x in own)])
        except OSError:
            pass  # the process has just ended
        time.sleep(0.02)
    if process.returncode:
        sys.exit(f"goals.py: {' '.join(line)} failed")
    return most


def recurrence(a):
    decode, prefill = (9, 10) if a.quick else (0, 1)
    for shape, goal, limit, what in ((decode, 0.85, READ, "delta rule, decode, 32 heads of 128: share of read"),
                                     (prefill, 0.45, FMA, "delta rule, prefill 512: share of multiply-add")):
        text = run(a, "bench_recurrence", a.level, a.threads, "f32", a.rounds, shape)
        for line in lines(text, "delta_rule"):
            yield what, AT_LEAST, goal, share_of(a, limit, float(line[line.index("of") - 1]), text), f"{line[line.index('us') - 1]} us"


GROUPS = (decode, prefill, start, loss, overhead, ranks, contractions, matrix_unit, matrix_unit_models, experts, attention, latent, recurrence, mechanism, residuals,
          training, compiling, compiling_kimi, packing, kimi_overhead, qwen3_overhead, ling, gemma3n, inkling2, inkling2_loop, loop_overhead, gpt_oss, qwen3_moe)
LARGE = (packing, kimi_overhead, qwen3_overhead, ling, gemma3n, inkling2, inkling2_loop, loop_overhead, gpt_oss, qwen3_moe)

# ---- parts of the report ---------------------------------------------------------------------------


def host():
    """The CPU and the number of CPUs: a share of limits is a fact of one machine."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as f:
            of = {x.split(":")[0].strip(): x.split(":", 1)[1].strip() for x in f if ":" in x}
    except OSError:
        of = {}
    name = of.get("model name", "an unknown CPU")
    number = f", family {of['cpu family']} model {of['model']}" if "cpu family" in of else ""
    return f"{len(os.sched_getaffinity(0))} x {name}{number}"


def lines_of_compile(text):
    """Rows of the table of compile times: name, wall and CPU seconds for one level, wall and CPU seconds for all levels."""
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
    parser.add_argument("--level", default="best", help="code and limits of this CPU level (hadal machine lists them), which has goals of its own; best: of this CPU")
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
        os.environ["TMPDIR"] = a.work  # temporary files of hadal bench
    rows = []
    print(host() + ("" if a.level == "best" else f", level {a.level}"))
    for group in GROUPS:
        if group.__name__ not in a.only if a.only else group in LARGE:
            continue
        print(f"\n{group.__name__}", flush=True)
        for what, sense, goal, value, note in group(a):
            answer, why = verdict(sense, goal, value), not_measured(sense, goal, value)
            rows.append({"group": group.__name__, "what": what, "sense": sense, "goal": goal, "measured": value,
                         "met": {"met": True, "MISSED": False}.get(answer), "not_measured": why, "note": note})
            wanted = f"{sense} {goal:<6g}" if sense else "no goal        "
            print(f"  {what:56} {wanted} {value:8.3f}  {answer or '':6}  {'; '.join(x for x in (why, note) if x)}", flush=True)
    goals = [r for r in rows if r["goal"] is not None]
    missing = sum(r["not_measured"] is not None for r in goals)
    print(f"\n{sum(r['met'] is True for r in goals)} of {len(goals)} met" + (f", {missing} not measured" if missing else ""))
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-goals-1", "host": host(), "level": a.level, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
