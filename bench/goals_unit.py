"""The groups of goals.py for machines with a matrix unit. tests/tiles/goals.sh runs them with the unit
emulated."""
import json
import os
import subprocess
import sys
import tempfile

from goals_common import (AT_LEAST, AT_MOST, FMA, MODEL, READ, SMALL, SPECS, TILES, bench, busy, defines, lines, overhead_by_profile,
                          run, share_of, tokens, unit_used)


def has_unit(a):
    if unit_used(a):
        return True
    print("  there is no matrix unit that this process may use" if a.level in ("best", "amx") else f"  {a.level} has no matrix unit")
    return False


def number_before(words, word, back=2):
    """The number before a word, in a line like `... 0.41 of unit ...`."""
    return float(words[words.index(word) - back])


def share(a, words, limit, word):
    return share_of(a, limit, number_before(words, word), " ".join(words))


# ---- kernels alone ---------------------------------------------------------------------------------


def matrix_unit(a):
    if not has_unit(a):
        return
    for what in (contractions, contractions_of_groups, attention, experts):
        yield from what(a)


def contraction(a, shape, *more):
    """Figures of a line: GFLOP/s, shares of peak (multiply-add) and of unit, and the limit of the line."""
    if a.quick:
        shape, more = (16, 128, 128), (*more, 1)
    return run(a, "bench_contract", "amx", a.threads, *shape, *more).split()


def speed(words):
    return f"{number_before(words, 'GFLOP/s', 1):.0f} GFLOP/s, the unit's limit {number_before(words, 'Gop/s', 1):.0f}"


def contractions(a):
    for T, K, N, goal in ((512, 1024, 3072, 0.50), (512, 3072, 1024, 0.50), (128, 1024, 3072, 0.45), (32, 1024, 3072, 0.30)):
        words = contraction(a, (T, K, N), "bf16", "rounded")
        yield (f"contraction {T} x {K} x {N}, bf16: share of the unit", AT_LEAST, goal, share(a, words, TILES, "unit"), speed(words))
        if T < 512:
            continue
        words = contraction(a, (T, K, N), "f32", "rounded")
        yield "the same, f32 weights: over multiply-add", AT_LEAST, 1.5, share(a, words, FMA, "peak"), speed(words)
        words = contraction(a, (T, K, N), "bf16", "exact")
        yield "the same, f32 activations: over multiply-add", AT_LEAST, 4.0, share(a, words, FMA, "peak"), speed(words)
        if a.quick:
            return


LEAST_RATE = 0.1  # GFLOP/s: the last digit printed


def contractions_of_groups(a):
    """q8 and q4 multiplied as bf16, as libraries do, and as bytes (`--machine unit_bytes=1`), whose limit is twice as high:
    bf16 was predicted to be faster, and this measures it. The only goal is that q4 is as fast as q8."""
    for T, K, N in ((512, 1024, 3072), (512, 3072, 1024))[:1 if a.quick else 2]:
        rate = {}
        for dtype in ("q8", "q4"):
            words = contraction(a, (T, K, N), dtype, "rounded")
            rate[dtype] = number_before(words, "GFLOP/s", 1)
            yield f"contraction {T} x {K} x {N}, {dtype}: share of the unit", None, None, share(a, words, TILES, "unit"), speed(words)
            yield "the same: over multiply-add", None, None, share(a, words, FMA, "peak"), ""
            words = contraction(a, (T, K, N), dtype, "bytes")
            yield "the same by products of bytes: speed over that of bf16", AT_MOST, 1, \
                number_before(words, "GFLOP/s", 1) / max(rate[dtype], LEAST_RATE), speed(words)
        yield f"contraction {T} x {K} x {N}, q4: speed over q8's", AT_LEAST, 0.95, rate["q4"] / max(rate["q8"], LEAST_RATE), ""


# Lines of the table in bench/sequence.c: a prefill of 4096 tokens, and a small one.
LONG, SMALL_PREFILL = 20, 21


def attention(a):
    """q.k and p.v of a long prefill, all in one kernel."""
    forms = (("bf16", "rounded"), ("f32", "exact"), ("bf16", "exact"), ("f32", "rounded"))
    for dtype, form in forms[:2 if a.quick else 4]:
        text = run(a, "bench_sequence", "amx", a.threads, dtype, a.rounds, SMALL_PREFILL if a.quick else LONG, form)
        words = next(x for x in lines(text) if x and x[0].startswith("T="))
        yield (f"attention, prefill 4096, {dtype} cache, {form}: over multiply-add", None, None,
               share_of(a, FMA, number_before(words, "multiply-add"), text),
               f"{number_before(words, 'GFLOP/s', 1):.0f} GFLOP/s, {number_before(words, 'unit'):.2f} of the unit")


def experts(a):
    """For each number of rows per expert, the level with the matrix unit compared with vectors: it is at least as fast from
    the number on at which the unit is chosen (unit_rows of support/machine.h), and below it, where both levels use
    vectors."""
    E, chosen, width, d = (128, 8, 512, 1536) if not a.quick else (16, 2, 32, 64)
    for dtype in ("bf16", "q8"):
        for rows in (1, 2, 4, 8, 32) if not a.quick else (4,):
            T = rows * E // chosen
            us = {}
            for level in ("amx", "avx512bf16"):
                found = lines(run(a, "bench_experts", level, a.threads, a.rounds, T, E, chosen, width, d, dtype), level)
                us[level] = sum(number_before(x, "us", 1) for x in found)
            yield (f"experts of {rows} rows, {dtype}: speed over that of vectors", AT_LEAST, 0.95, us["avx512bf16"] / us["amx"],
                   f"{us['amx']:.0f} us up and down, {us['avx512bf16']:.0f} by vectors")


# ---- whole models ----------------------------------------------------------------------------------

# Type of the weights, options of compilation, phase of the model: what it is compared with in the same run, and the goal. The
# peers are those of bench/peers.
SERVER_GOALS = (("bf16", "--activations int8,bf16", "torch.compile", 1.7, "bf16, activations rounded"),
                ("bf16", "", "torch.compile", 0.9, "bf16, exact activations"),
                ("q8", "", "OpenVINO", 2.0, "q8"))


def matrix_unit_models(a):
    """Whole models on the matrix unit, also beside peers that use it; peers that are not installed are left out."""
    if not has_unit(a):
        return
    yield from beside_peers(a)
    report = bench(a, "q8,q4", prefill=tokens(a, 512), decode="")
    q8, q4 = (next(r for r in report["rows"] if r["weights_dtype"] == x) for x in ("q8", "q4"))
    yield ("prefill 512, q4: tokens/s over q8's", AT_LEAST, 0.95, q8["seconds"] / q4["seconds"], busy(q4))
    row = bench(a, "bf16", "--activations", "int8,bf16", "--prefill", tokens(a, 512), "--decode", "",
                "--against-define", "system=standard")["rows"][0]
    yield ("prefill 512, bf16: time of AttnRes over the standard residual's", AT_MOST, 1.015, row["time_ratio"],
           f"quartiles {row['time_ratio_low']:.3f} .. {row['time_ratio_high']:.3f}")
    small = dict(d.split("=") for d in SMALL.split(","))
    yield from overhead_by_profile(a, "d = 1024, bf16 rounded", MODEL, "bf16", small if a.quick else {}, goals=(("prefill", 0.015),),
                                   options=("--activations", "int8,bf16"))
    yield from batches(a)


def beside_peers(a):
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


def batches(a):
    """A decoding step of many sessions: rows fill tiles, and weights are read once, so a step should take no longer than
    reading."""
    shape = defines(system="attnres", **(dict(d.split("=") for d in SMALL.split(",")) if a.quick else {}))
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        weights, model = os.path.join(folder, "random.safetensors"), os.path.join(folder, "out", "m")
        run(a, "hadal", "init-weights", "--draw-all", MODEL, *shape, "--weights-dtype", "bf16", "-q", "-o", weights)
        forms = (("q8", "int8"), ("bf16", "bf16"), ("bf16", "f32"))
        for dtype, activations in forms[:1 if a.quick else 3]:
            run(a, "hadal", "compile", MODEL, *shape, "-w", weights, "--weights-dtype", dtype, "--activations", activations,
                "--target-cpu", "native", "--emit", "so,header,weights,kernel", "-q", "-o", model)
            text = run(a, "bench_batch", "--batch", "1,8" if a.quick else "1,8,32,64", "--past", 16, "--threads", a.threads,
                       "--rounds", a.rounds, model)
            for words in lines(text, "m", a.threads):
                if words[3] != "1":
                    yield (f"step of {words[3]} sessions, {dtype}, activations {activations}: share of read", None, None,
                           share_of(a, READ, float(words[-1]), text), f"{words[4]} ms, {number_before(words, 'tok/s', 1):.0f} tok/s")
