"""What groups of goals.py have in common: how they run programs, and how they report goals."""
import functools
import json
import os
import re
import subprocess
import sys
import tempfile

SPECS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "specs")
MODEL = os.path.join(SPECS, "qwen3.hadal")
SMALL = "hidden=64,layers=2,ff=128,vocab=256"  # options of the model, for --quick
AT_LEAST, AT_MOST = "at least", "at most"


def run(a, program, *arguments):
    return output(a.bin, program, *arguments)


def output(folder, program, *arguments):
    line = [os.path.join(folder, program), *map(str, arguments)]
    try:
        out = subprocess.run(line, capture_output=True, text=True)
    except OSError as e:
        sys.exit(f"goals.py: {line[0]}: {e.strerror}")
    if out.returncode:
        sys.exit(f"goals.py: {' '.join(line)}:\n{out.stdout}{out.stderr}")
    return out.stdout


def of_level(a, option):
    """For programs that run the best level unless another is named."""
    return [] if a.level == "best" else [option, a.level]


def target(a):
    """What to compile for."""
    return "native" if a.level == "best" else a.level


# Goals of one CPU level where they are not those of all. On AVX2 alone products of bytes take several instructions for what others
# do in one; those of q8 and nvfp4 follow from what their instructions allow, computed in docs/experiments.md ("Contractions with
# AVX2 alone").
LEVEL_GOALS = {"avx2": {"prefill": 0.83, "prefill q8": 1.3, "prefill q4": 1.4, "prefill nvfp4": 0.87, "products q8": 1.35,
                        "few rows": 0.88, "experts": 0.78, "experts q8": 1.3, "latent prefill": 0.75, "attention": 0.75}}


def goal_of(a, what, usual):
    return LEVEL_GOALS.get(a.level, {}).get(what, usual)


def command(a, *arguments):
    return [os.path.join(a.bin, "hadal"), *map(str, arguments)]


def defines(**values):
    return [x for name, value in values.items() for x in ("-D", f"{name}={value}")]


def lines(text, *start):
    """The lines that begin with these words, each split into words."""
    found = [x.split() for x in text.splitlines()]
    return [x for x in found if x[:len(start)] == [str(s) for s in start]]


def tokens(a, T):
    return str(min(T, 16) if a.quick else T)


def shape_options(a):
    define = "system=attnres" + ("," + SMALL if a.quick else "")
    return [x for d in define.split(",") for x in ("-D", d)]


def bench_of(a, *what, **phases):
    options = [x for name, value in phases.items() for x in (f"--{name}", value)]
    return json.loads(run(a, "hadal", "bench", *what, "--threads", a.threads, "--rounds", a.rounds, "--json",
                          *of_level(a, "--cpu-level"), *options))


def bench(a, dtypes, *more, **phases):
    return bench_of(a, MODEL, *shape_options(a), "--weights-dtype", dtypes, *more, **phases)


def bench_libraries(a, first, second, **phases):
    """Two libraries that were compiled before, in turn."""
    return bench_of(a, first, "--against", second, **phases)


def compiled(a, folder, dtypes):
    """{type of weights: library in the folder} of the model of bench(), all with the same random weights."""
    weights, libraries = os.path.join(folder, "random.safetensors"), {x: os.path.join(folder, x) for x in dtypes}
    run(a, "hadal", "init-weights", MODEL, *shape_options(a), "-q", "-o", weights)
    for dtype, library in libraries.items():
        run(a, "hadal", "compile", MODEL, *shape_options(a), "-w", weights, "--weights-dtype", dtype, "--target-cpu", target(a), "-q", "-o",
            library)
    return libraries


class Share(float):
    """A share of a limit of the machine that was measured in the same run. drift: how far the limit moved from the earlier to
    the later samples; bounded: nothing is faster than the limit, so a share above 1 shows that the limit was measured while
    something else ran; cores: the share of its cores that the process had then; spread: how far the fastest quarter of the runs of
    kernels is from the fastest tenth, where the figure is of that tenth: less than a tenth may have been undisturbed."""

    def __new__(cls, value, drift=0.0, bounded=True, cores=1.0, spread=0.0):
        share = super().__new__(cls, value)
        share.drift, share.bounded, share.cores, share.spread = drift, bounded, cores, spread
        return share


MOST_SHARE, MOST_DRIFT, LEAST_CORES, MOST_SPREAD = 1.02, 0.10, 0.90, 0.04


def reached(sense, goal, value):
    return value >= goal if sense == AT_LEAST else value <= goal


def not_measured(sense, goal, value):
    """Why a figure means nothing; None: it means something. What is reached with a part of the cores is reached."""
    if not isinstance(value, Share):
        return None
    if value.drift > MOST_DRIFT:
        return f"its limit moved by {100 * value.drift:.0f} %"
    if value.bounded and value > MOST_SHARE:
        return "more than its limit"
    if value.cores < LEAST_CORES and not (sense and reached(sense, goal, value)):
        return f"other work left {value.cores:.2f} of the cores"
    if value.spread > MOST_SPREAD and not (sense and reached(sense, goal, value)):
        return f"kernels were disturbed: their fastest quarter took {100 * value.spread:.0f} % more than their fastest tenth"
    return None


def verdict(sense, goal, value):
    """met, MISSED or not measured; None: no goal is set, and the figure is one."""
    if not_measured(sense, goal, value):
        return "not measured"
    if sense is None:
        return None
    return "met" if reached(sense, goal, value) else "MISSED"


@functools.lru_cache(maxsize=None)
def unit_runs(folder):
    """Does hadal in this directory find a matrix unit that it may use? Products by the unit may exceed the rate of
    multiply-adds."""
    levels = json.loads(output(folder, "hadal", "machine", "--json", "--threads", 0))["levels"]
    return any(level["name"] == "amx" and level["runs"] for level in levels)


def unit_used(a):
    """Do products of the level run on a matrix unit?"""
    return a.level in ("best", "amx") and unit_runs(a.bin)


def of_read(row):
    """The share of the read limit in a row of hadal bench."""
    return Share(row["read_fraction"], row["read_limit_drift"], cores=row["of_cores"])


def of_fma(a, row):
    return Share(row["fma_fraction"], row["fma_limit_drift"], not unit_used(a), row["of_cores"])


def undisturbed_of_fma(a, row):
    """The same of kernels that nothing disturbed; that of whole calls where they are too short to be taken apart."""
    if "undisturbed_seconds" not in row:
        return of_fma(a, row)
    return Share(row["undisturbed_fma_fraction"], row["fma_limit_drift"], not unit_used(a), spread=row["undisturbed_spread"])


def undisturbed_over(slow, fast):
    """The speed of a model over that of another, measured in turn, likewise: no share of a limit, but other work changes it."""
    if "undisturbed_seconds" not in slow or "undisturbed_seconds" not in fast:
        return Share(slow["time_ratio"], bounded=False, cores=min(slow["of_cores"], fast["of_cores"]))
    return Share(slow["undisturbed_seconds"] / fast["undisturbed_seconds"], bounded=False,
                 spread=max(slow["undisturbed_spread"], fast["undisturbed_spread"]))


READ, FMA, TRIAD, TILES = "memory read", "f32 multiply-add", "memory triad", "bf16 tile products"
MOVED = "limits that moved"


def drifts(text):
    """{limit: drift} from the output of the programs of bench/: limits that moved (bench/machine.h); limits that did not are
    absent."""
    found = {}
    for line in text.splitlines():
        for name, percent in re.findall(r"[:,] ([a-z0-9 -]+?) (\d+) %", line.partition(MOVED)[2]):
            found[name] = max(found.get(name, 0), int(percent) / 100)
    return found


def cores_of(text):
    """The least share of the cores that programs of bench/ say was left to them (bench/machine.c)."""
    return min([1.0, *map(float, re.findall(r"part of the cores: ([0-9.]+) was left", text))])


def share_of(a, limit, value, text):
    """A share that a program of bench/ has printed. A copy of what caches hold is faster than the triad."""
    bounded = limit in (READ, TILES) or (limit == FMA and not unit_used(a))
    return Share(value, drifts(text).get(limit, 0.0), bounded, cores_of(text))


def giga(row, key):
    return f"{row[key] * 1e-9:.0f}"


def busy(row):
    return ", the machine was busy" if row["busy"] else ""


def overhead_by_profile(a, title, spec, dtype, shape, goals=(("prefill", 0.006), ("decode", 0.002)), options=()):
    """By profile: the time of row programs with AttnRes minus that of those without, as a share of the total, with and
    without the waits for them, in which threads prefetch the next weights (runtime/prefetch.h). goals: by phase; options: of
    hadal run."""
    tokens_of = {"prefill": 16, "decode": 4} if a.quick else {"prefill": 512, "decode": 16}
    with tempfile.TemporaryDirectory(dir=a.work) as folder:
        part = {system: by_kind(a, spec, {**shape, "system": system}, dtype, tokens_of, folder, options)
                for system in ("attnres", "standard")}
    for phase, goal in goals:
        ours, theirs = part["attnres"][phase], part["standard"][phase]
        yield (f"{phase}, {title}: AttnRes in row programs, of the whole", AT_MOST, goal,
               (ours["row"] - theirs["row"]) / ours["all"],
               f"{1e-6 * ours['row']:.1f} and {1e-6 * theirs['row']:.1f} of {1e-6 * ours['all']:.0f} ms; without waits "
               f"{(ours['row work'] - theirs['row work']) / ours['all']:.4f}; "
               f"{(ours['row'] - theirs['row']) / tokens_of[phase] / a.rounds:.0f} ns a token")


def by_kind(a, spec, shape, dtype, tokens_of, folder, options):
    """{phase: {kind of kernel, "all": ns}} of a profile: the first thread, all rounds together, with random weights."""
    profile, ids = os.path.join(folder, "p.json"), range(sum(tokens_of.values()))
    weights = os.path.join(folder, "random.safetensors")
    run(a, "hadal", "init-weights", "--draw-all", spec, *defines(**shape), "--weights-dtype", "bf16", "-o", weights, "-q")
    run(a, "hadal", "run", spec, *defines(**shape), "-w", weights, "--weights-dtype", dtype, "--tokens",
        ",".join(map(str, ids)), "--split", tokens_of["prefill"], "--threads", a.threads, "--rounds", a.rounds,
        f"--profile={profile}", "-q", *of_level(a, "--cpu-level"), *options)
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
