"""What groups of goals.py have in common: programs that they run, and how these are answered."""
import json
import os
import subprocess
import sys
import tempfile

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


def overhead_by_profile(a, title, spec, dtype, shape, goals=(("prefill", 0.006), ("decode", 0.002)), options=()):
    """Row programs with AttnRes less those without, of the whole, by profile; waits for them included, in which threads fetch the
    next weights ahead (runtime/prefetch.h), and without. goals: of phases; options: of hadal run."""
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
    """{phase: {kind of kernel, "all": ns}} of a profile, the first thread, all rounds together, with random weights."""
    profile, ids = os.path.join(folder, "p.json"), range(sum(tokens_of.values()))
    weights = os.path.join(folder, "random.safetensors")
    run(a, "hadal", "init-weights", spec, *defines(**shape), "--weights-dtype", "bf16", "-o", weights, "-q")
    run(a, "hadal", "run", spec, *defines(**shape), "-w", weights, "--weights-dtype", dtype, "--tokens",
        ",".join(map(str, ids)), "--split", tokens_of["prefill"], "--threads", a.threads, "--rounds", a.rounds,
        f"--profile={profile}", "-q", *options)
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
