#!/usr/bin/env python3
"""Trains the residual systems of systems.hadal, and makes the tables and figures of README.md of what they learn.

    learning.py run TIER       the runs whose result is not there yet, one after the other
    learning.py plan TIER      all runs, and which have a result
    learning.py data TIER      the data alone
    learning.py table TIER     the table of losses, in Markdown
    learning.py pairs TIER     systems beside each other, in Markdown
    learning.py depth TIER     what the figures say, as numbers, in Markdown
    learning.py figure5 TIER   loss, outputs and gradients by depth, as SVG
    learning.py figure8 TIER   the mixes that were learned, as SVG

A result is a file of results/TIER/, made by one run of `hadal train`. Whatever ends the script, the same command goes on where it
stood, and results are the same to the byte (for one build of Hadal and one CPU level)."""
import argparse
import gzip
import hashlib
import json
import math
import os
import signal
import statistics
import struct
import subprocess
import sys
import time

import figures

HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEMS = {
    "prenorm": ("PreNorm", 0.0),  # the name in the paper, and its loss in Table 4 less that of PreNorm (1.766)
    "denseformer": ("DenseFormer", 0.001),
    "mhc": ("mHC", -0.019),
    "full": ("AttnRes Full", -0.029),
    "input": ("Full, input-dependent query", -0.035),
    "static": ("Full, input-independent mixing", -0.017),
    "sigmoid": ("Full, sigmoid", -0.025),
    "unnormed": ("Full, keys not normed", -0.023),
    "window": ("Full, window of 1 + 8", -0.002),
    "block": ("AttnRes Block (S = 4)", -0.020),
    "heads": ("Block, several heads", -0.014),
}
BASELINE = "prenorm"
PAIRS = [("input", "full"), ("static", "full"), ("sigmoid", "full"), ("unnormed", "full"), ("window", "full"), ("block", "full"), ("mhc", "full"),
         ("denseformer", "static"), ("heads", "block")]  # what the text compares beside the baseline
DRAWN = ("prenorm", "block", "full")  # whose magnitudes, gradients and mixes by depth are kept

# Texts from packages of Debian: package, file, and the digest of what is in it. None: the pages of this folder.
TEXTS = {
    "pages": None,
    "jargon": [("dict-jargon", "usr/share/dictd/jargon.dict.dz",
                "6c8118c277d0b00736d406d4941b77b69932d6ab125f7179ff88fe12939cc19e")],
    "dictionaries": [("dict-gcide", "usr/share/dictd/gcide.dict.dz",
                      "802beb667e1fb666203e750f1faea60d5c202ac5430c2083c4180494609f10a7"),
                     ("dict-wn", "usr/share/dictd/wn.dict.dz",
                      "1a8b6fe11b6c845ea66246c54e3c33303b2243d3fb3f8d6402ef64e6400f675a")],
}
PIECE = 2048  # bytes of a piece that is held out

# What a tier trains. `held_out`: pieces, spread over the text; `rates`: learning rates that the baseline tries, with seeds of their own.
TIERS = {
    "tiny": dict(text="pages", model=dict(layers=2, hidden=16, heads=2, ff=32), context=32, batch=2, steps=20, warmup=4, evals=2,
                 held_out=2, rates=[0.01], seeds=[1], systems=["prenorm", "block"], about="a test of this script"),
    "quick": dict(text="jargon", model=dict(layers=32, hidden=32, heads=2, ff=64), context=128, batch=4, steps=512, warmup=64,
                  evals=4, held_out=8, rates=[0.003, 0.006, 0.012, 0.024], seeds=[1, 2, 3, 4, 5, 6], systems=list(SYSTEMS),
                  about="the Jargon File"),
    "full": dict(text="dictionaries", model=dict(layers=32, hidden=64, heads=2, ff=128), context=256, batch=8, steps=1000, warmup=100,
                 evals=8, held_out=32, rates=[0.002, 0.004, 0.008], seeds=[1, 2, 3], systems=list(SYSTEMS),
                 about="two dictionaries"),
}
TUNING_SEEDS = (0, 10, 20)
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571}  # Student's t for 95 %, by the number of seeds


def fail(message):
    sys.exit(f"learning.py: {message}")


# ---- the data ----


def packed_file(package, path, work):
    """The path of a file of a package: the one that is installed, or from the package, which is downloaded."""
    if os.path.exists("/" + path):
        return "/" + path
    folder = os.path.join(work, "packages", package)
    if not os.path.exists(os.path.join(folder, path)):
        os.makedirs(folder, exist_ok=True)
        try:
            subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package], cwd=folder, check=True)
            (deb,) = [n for n in os.listdir(folder) if n.endswith(".deb")]
            subprocess.run(["dpkg-deb", "-x", deb, "."], cwd=folder, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            fail(f"{package} is not installed and cannot be downloaded: {error}; try `apt-get install {package}`")
    return os.path.join(folder, path)


def text_of(name, work):
    if TEXTS[name] is None:
        paths = [os.path.join(HERE, n) for n in ("README.md", "expected.md", "learning.py")]
        return b"".join(open(path, "rb").read() for path in paths)
    parts = []
    for package, path, digest in TEXTS[name]:
        with gzip.open(packed_file(package, path, work)) as f:
            parts.append(f.read())
        found = hashlib.sha256(parts[-1]).hexdigest()
        if found != digest:
            fail(f"the text of {package} has the digest {found}, not {digest}: another version of the package")
    return b"".join(parts)


def make_data(tier, work):
    """(path of what is learned, path of what is held out): pieces at equal distances are held out."""
    folder = os.path.join(work, "data")
    names = [os.path.join(folder, f"{tier['text']}-{kind}-{tier['held_out']}.txt") for kind in ("train", "eval")]
    if not all(map(os.path.exists, names)):
        os.makedirs(folder, exist_ok=True)
        text = text_of(tier["text"], work)
        n = tier["held_out"]
        starts = [(2 * i + 1) * len(text) // (2 * n) - PIECE // 2 for i in range(n)]
        ends = [start + PIECE for start in starts]
        out = (b"".join(text[a:b] for a, b in zip([0] + ends, starts + [len(text)])), b"".join(text[a:b] for a, b in zip(starts, ends)))
        for name, part in zip(names, out):
            with open(name + ".new", "wb") as f:
                f.write(part)
            os.replace(name + ".new", name)
    return names


# ---- the plan ----


def result_path(a, name):
    return os.path.join(a.results, a.tier, name + ".json")


def load_result(a, name):
    try:
        with open(result_path(a, name)) as f:
            return json.load(f)
    except FileNotFoundError:
        return None


def tuning_runs(tier):
    """Runs of the baseline that choose the learning rate."""
    return [(f"rate-{rate}-{seed}", BASELINE, seed, rate) for seed in TUNING_SEEDS for rate in tier["rates"]]


def tried_rates(a, tier):
    """(mean loss, learning rate, losses) of each rate that all tuning seeds have tried."""
    for rate in tier["rates"]:
        runs = [load_result(a, name) for name, _, _, r in tuning_runs(tier) if r == rate]
        if all(runs):
            losses = [r["loss"] for r in runs]
            yield statistics.fmean(losses), rate, losses


def chosen_rate(a, tier):
    """The learning rate of least mean loss; None before all of them were tried."""
    tried = list(tried_rates(a, tier))
    return min(tried)[1] if len(tried) == len(tier["rates"]) else None


def plan(a, tier):
    """(name, system, seed, rate) of each run in its order: seed by seed, so that what is there can be compared."""
    yield from tuning_runs(tier)
    for seed in tier["seeds"]:
        for system in tier["systems"]:
            yield f"{system}-{seed}", system, seed, chosen_rate(a, tier)


# ---- runs ----


def call(a, command, deadline=None, **how):
    """Runs a command; at the deadline it is asked to end, and so is the script."""
    env = dict(os.environ, HADAL_CODE_CACHE=os.environ.get("HADAL_CODE_CACHE", os.path.join(a.work, "code-cache")))
    process = subprocess.Popen([a.hadal, *command], env=env, **how)
    try:
        process.wait(max(0, deadline - time.time()) if deadline else None)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    except KeyboardInterrupt:
        try:
            process.wait(2)  # it has the signal as well, where it comes from a terminal
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    code = process.wait()
    if code == 130:
        print("stopped; the same command goes on", flush=True)
        sys.exit(0 if deadline and time.time() >= deadline else 130)
    if code:
        fail(f"`{' '.join(command)}` ended with {code}")


def definitions(tier, system):
    return [word for name, value in dict(system=system, **tier["model"]).items() for word in ("-D", f"{name}={value}")]


def train(a, tier, data, name, system, seed, rate):
    """Trains, or goes on; returns the folder of the last checkpoint."""
    run = os.path.join(a.work, a.tier, name)
    steps = tier["steps"]
    numbers = dict(context=tier["context"], batch=tier["batch"], steps=steps, warmup=tier["warmup"], lr=rate, seed=seed,
                   eval_every=steps // tier["evals"], save_every=max(1, steps // 10), keep=1)
    options = [word for key, value in numbers.items() for word in ("--" + key.replace("_", "-"), str(value))]
    threads = ["--threads", str(a.threads)] if a.threads else []
    call(a, ["train", os.path.join(HERE, "model.hadal"), *definitions(tier, system), "--data", data[0], "--eval-data", data[1],
             *options, *threads, "-q", "-o", run], a.deadline, stdout=subprocess.DEVNULL)
    return run, os.path.join(run, f"checkpoint-{steps}")


def read_tensors(path):
    """float32 tensors of a safetensors file by name, each a list of numbers."""
    with open(path, "rb") as f:
        blob = f.read()
    n = struct.unpack_from("<Q", blob)[0]
    out = {}
    for name, t in json.loads(blob[8:8 + n]).items():
        if name != "__metadata__" and t["dtype"] == "F32":
            begin, end = t["data_offsets"]
            out[name] = struct.unpack_from(f"<{(end - begin) // 4}f", blob, 8 + n + begin)
    return out


def read_npy(path):
    """Rows of a float .npy file of two dims; NaN is None."""
    with open(path, "rb") as f:
        blob = f.read()
    n = struct.unpack_from("<H", blob, 8)[0]
    header = blob[10:10 + n].decode("latin-1")
    kind = "d" if "<f8" in header else "f"
    rows, columns = (int(x) for x in header.split("'shape': (")[1].split(")")[0].split(",")[:2])
    numbers = struct.unpack_from(f"<{rows * columns}{kind}", blob, 10 + n)
    return [[None if math.isnan(x) else x for x in numbers[i * columns:(i + 1) * columns]] for i in range(rows)]


def rounded(x, digits):
    """Numbers of lists in lists with so many significant digits."""
    if isinstance(x, (list, tuple)):
        return [rounded(y, digits) for y in x]
    return None if x is None else float(f"{x:.{digits}g}")


def by_depth(a, tier, data, mixes, checkpoint):
    """Magnitudes of outputs and of their gradients by sublayer, and the weights of mixes, on the first held-out window."""
    with open(data[1], "rb") as f:
        window = list(f.read(tier["context"] + 1))
    ids, targets = (",".join(map(str, part)) for part in (window[:-1], window[1:]))
    path = os.path.join(os.path.dirname(checkpoint), "by-depth")
    call(a, ["gradients", checkpoint, "--tokens", ids, "--targets", targets, "--interpret", "--by-depth", "-q", "-o",
             path + ".safetensors"],
         stdout=subprocess.DEVNULL)
    gradients = read_tensors(path + ".safetensors")
    out = {"outputs": rounded(gradients["out_rms"], 4), "gradients": rounded(gradients["out_grad_rms"], 4)}
    os.remove(path + ".safetensors")
    if mixes:
        call(a, ["inspect", checkpoint, "--tokens", ids, "--heatmap", path + ".npy", "-q"], stdout=subprocess.DEVNULL)
        out["mixes"] = rounded(read_npy(path + ".npy"), 3)
        os.remove(path + ".npy")
    return out


def means(losses, parts):
    """[[step, mean loss of the steps up to it]], so many."""
    size = max(1, len(losses) // parts)
    return [[i + size, round(statistics.fmean(losses[i:i + size]), 4)] for i in range(0, len(losses) - size + 1, size)]


def result_of(a, tier, data, name, system, seed, rate):
    run, checkpoint = train(a, tier, data, name, system, seed, rate)
    with open(os.path.join(run, "run.json")) as f:
        record = json.load(f)
    with open(os.path.join(run, "log.jsonl")) as f:
        log = [json.loads(line) for line in f]
    losses = [x["loss"] for x in log if "loss" in x]
    held_out = [[x["step"], round(x["eval_loss"], 5)] for x in log if "eval_loss" in x]
    out = {"system": system, "seed": seed, "rate": rate, "loss": held_out[-1][1], "first_loss": round(losses[0], 5),
           "parameters": sum(map(len, read_tensors(os.path.join(checkpoint, "model.safetensors")).values())),
           "tokens": tier["steps"] * tier["batch"] * tier["context"], "held_out": held_out, "learned": means(losses, 40),
           "run": {key: record[key] for key in ("hadal", "cpu_level", "model", "data", "eval_data")}}
    if system in DRAWN and seed in tier["seeds"]:
        out["by_depth"] = by_depth(a, tier, data, system != BASELINE and seed == tier["seeds"][0], checkpoint)
    return out


def command_run(a, tier):
    data = make_data(tier, a.work)
    for i in range(len(list(plan(a, tier)))):
        name, system, seed, rate = list(plan(a, tier))[i]
        if load_result(a, name) or (a.only and system not in a.only and not name.startswith("rate-")):
            continue
        begun = time.time()
        result = result_of(a, tier, data, name, system, seed, rate)
        path = result_path(a, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".new", "w") as f:
            f.write("{" + ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()) + "}\n")
        os.replace(path + ".new", path)
        print(f"{name}: {result['loss']:.4f} nats ({time.time() - begun:.0f} s)", flush=True)
        if a.deadline and time.time() >= a.deadline:
            print("no time is left; the same command goes on", flush=True)
            return


def command_plan(a, tier):
    for name, _, _, rate in plan(a, tier):
        result = load_result(a, name)
        rate = result["rate"] if result else rate or "to be chosen"
        print(f"{name:16} learning rate {rate:<12} {result['loss'] if result else '-'}")


def command_data(a, tier):
    for path in make_data(tier, a.work):
        with open(path, "rb") as f:
            text = f.read()
        print(f"{path}: {len(text)} bytes, sha256 {hashlib.sha256(text).hexdigest()}")


# ---- what they say ----


def results(a, tier):
    """Results by system and seed."""
    out = {}
    for name, system, seed, _ in plan(a, tier):
        result = load_result(a, name)
        if result and seed in tier["seeds"]:
            out.setdefault(system, {})[seed] = result
    if BASELINE not in out:
        fail(f"there is no result of {BASELINE} in {os.path.join(a.results, a.tier)}")
    return out


def expectations():
    """(least, most) of the expected difference by system, from expected.md."""
    out = {}
    with open(os.path.join(HERE, "expected.md")) as f:
        for line in f:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 6 and cells[0] in SYSTEMS and cells[4]:
                out[cells[0]] = float(cells[4]), float(cells[5])
    return out


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else math.nan


def difference(of, base):
    """Mean of the paired differences of two systems and half of its 95 % interval."""
    pairs = [of[seed]["loss"] - base[seed]["loss"] for seed in of if seed in base]
    if not pairs:
        return math.nan, math.nan
    return statistics.fmean(pairs), T_95.get(len(pairs), math.nan) * spread(pairs) / math.sqrt(len(pairs))


def signed(x):
    return "" if math.isnan(x) else f"{x:+.4f}"


def number(x):
    return "" if math.isnan(x) else f"{x:.4f}"


def command_table(a, tier):
    found, expected = results(a, tier), expectations()
    print("| system | parameters | seeds | loss | spread | beside PreNorm | 95 % | told apart | expected | as expected | paper |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for system in tier["systems"]:
        if system not in found:
            continue
        of = found[system]
        losses = [r["loss"] for r in of.values()]
        cells = [SYSTEMS[system][0], f"{next(iter(of.values()))['parameters']}", f"{len(of)}", f"{statistics.fmean(losses):.4f}",
                 number(spread(losses))]
        if system == BASELINE:
            cells += ["", "", "", "", "", ""]
        else:
            mean, half = difference(of, found[BASELINE])
            low, high = expected[system]
            cells += [signed(mean), "± " + number(half) if number(half) else "", told_apart(mean, half), f"{low:g} .. {high:g}",
                      "yes" if low <= mean <= high else "**no**", f"{SYSTEMS[system][1]:+.3f}"]
        print("| " + " | ".join(cells) + " |")
    runs = [r for of in found.values() for r in of.values()]
    print(f"\n{len(runs)} runs of {runs[0]['tokens']} bytes of {tier['about']}, seeds {', '.join(map(str, sorted(found[BASELINE])))}, learning rate "
          f"{runs[0]['rate']:g}; losses of the held-out text in nats a byte.")
    print("Learning rates that PreNorm tried, with seeds of their own: " +
          ", ".join(f"{rate:g}: {mean:.4f} ({', '.join(f'{x:.4f}' for x in losses)})" for mean, rate, losses in tried_rates(a, tier)) + ".")


def told_apart(mean, half):
    return "" if math.isnan(half) else "better" if mean < -half else "worse" if mean > half else "no"


def command_pairs(a, tier):
    found = results(a, tier)
    print("| system | beside | difference | 95 % | told apart | paper |")
    print("|---|---|---|---|---|---|")
    for one, other in PAIRS:
        if one in found and other in found:
            mean, half = difference(found[one], found[other])
            print(f"| {SYSTEMS[one][0]} | {SYSTEMS[other][0]} | {signed(mean)} | {'± ' + number(half) if number(half) else ''} | "
                  f"{told_apart(mean, half)} | {SYSTEMS[one][1] - SYSTEMS[other][1]:+.3f} |")


def quarters(values):
    """Means of the four quarters of a list."""
    n = len(values)
    return [statistics.fmean(values[n * i // 4:n * (i + 1) // 4]) for i in range(4)]


def ratios(found, key, over, under):
    """Mean over seeds of one quarter of a list over another one, and all of them."""
    q = [quarters(r["by_depth"][key]) for _, r in sorted(found.items()) if "by_depth" in r]
    x = [v[over] / v[under] for v in q]
    return f"{statistics.fmean(x):.2f} ({', '.join(f'{v:.2f}' for v in x)})" if x else ""


def command_depth(a, tier):
    found = results(a, tier)
    print("| system | outputs, last quarter over second | gradients, first quarter over last | newest source largest | embedding above an equal share |")
    print("|---|---|---|---|---|")
    for s in (s for s in DRAWN if s in found):
        mixes = [r["by_depth"]["mixes"] for r in found[s].values() if "mixes" in r.get("by_depth", {})]
        rows = [[w for w in row if w is not None] for row in mixes[0]] if mixes else []
        newest, attention = sum(max(row) == row[-1] for row in rows), rows[1:-1:2]
        print(f"| {SYSTEMS[s][0]} | {ratios(found[s], 'outputs', 3, 1)} | {ratios(found[s], 'gradients', 0, 3)} | " +
              (f"{newest} of {len(rows)} mixes | {sum(row[0] > 1 / len(row) for row in attention)} of {len(attention)} of attention |" if rows else "| |"))


def command_figure5(a, tier):
    found = results(a, tier)
    drawn = [s for s in DRAWN[:2] if s in found]
    curves = {SYSTEMS[s][0]: [r["learned"] for r in found[s].values()] for s in drawn}
    depth = {SYSTEMS[s][0]: [r["by_depth"] for r in found[s].values() if "by_depth" in r] for s in drawn}
    print(figures.by_depth(curves, {s: [d["outputs"] for d in x] for s, x in depth.items()},
                           {s: [d["gradients"] for d in x] for s, x in depth.items()}), end="")


def command_figure8(a, tier):
    found = results(a, tier)
    mixes = {}
    for s in ("full", "block"):
        for seed, r in sorted(found.get(s, {}).items()):
            if "mixes" in r.get("by_depth", {}):
                mixes[s] = (f"{SYSTEMS[s][0]}, seed {seed}", r["by_depth"]["mixes"])
    if not mixes:
        fail("there is no result with mixes yet")
    print(figures.mixes(list(mixes.values())), end="")


COMMANDS = {name[len("command_"):]: f for name, f in list(globals().items()) if name.startswith("command_")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("--hadal", default="hadal", help="the command (hadal)")
    parser.add_argument("--work", default=os.path.join(HERE, "out"), help="where data and runs are (out/)")
    parser.add_argument("--results", default=os.path.join(HERE, "results"), help="where results are (results/)")
    parser.add_argument("--threads", type=int, help="of a run; results do not depend on it")
    parser.add_argument("--minutes", type=float, help="stop after so many; the same command goes on")
    parser.add_argument("--only", action="append", metavar="SYSTEM", choices=SYSTEMS, help="runs of these systems alone; several times")
    a = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where a shell has started this in the background
    a.work = os.path.abspath(a.work)
    a.deadline = time.time() + 60 * a.minutes if a.minutes else None
    COMMANDS[a.command](a, TIERS[a.tier])


main()
