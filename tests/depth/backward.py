#!/usr/bin/env python3
"""The backward half of a step in the ledger: each kernel's bytes against a count by another road (count_backward.py), for pages of
std/residual; the forward half against count.py; kernel IR that is loaded alone says the same; and what is known in advance: a
standard residual has exactly 3 d, attention over depth the closed forms as far as today's kernels come to them.

usage: backward.py HADAL SOURCE OUT

With HADAL_FULL=1 all pages, the golden cases, systems that are drawn at random, and Full AttnRes of 128 sublayers.
"""
import glob
import json
import os
import re
import subprocess
import sys

from count import Count
from count_backward import Backward
import random_systems

hadal, source, out = sys.argv[1:4]
sys.path.insert(0, os.path.join(source, "tests/residuals"))
import variations       # noqa: E402

full = os.environ.get("HADAL_FULL") == "1"
SAMPLE = {"attnres", "highway", "laurel-lr", "mhc", "mrla", "denseformer", "gated-streams"}     # of pages, in the short set
OWN = "sublayer's own"      # not charged
failed = 0


def run(*arguments):
    done = subprocess.run([hadal, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def expect(what, holds):
    global failed
    if not holds:
        failed += 1
        print(what)


def both(traffic):
    return [traffic["read_bytes"], traffic["written_bytes"]]


def inspect(*spec):
    return json.loads(run("inspect", *spec, "-q", "--gradients", "--ledger=json"))


def check(name, *spec):
    base = os.path.join(out, "kernels")
    run("compile", *spec, "-q", "--gradients", "--emit=kernel", "-o", base)
    forward = Count(open(base + ".kernel.hir").read())
    mine, ledger = Backward(forward), inspect(*spec)
    alone = json.loads(run("inspect", base + ".kernel.hir", "-q", "--ledger=json"))
    back = ledger["backward"]["kernels"]
    expect(f"{name}: {ledger['sublayers']} sublayers, counted {len(forward.outputs)}", ledger["sublayers"] == len(forward.outputs))
    expect(f"{name}: forward {both(ledger['kernels']['total'])}, counted {[forward.read, forward.written]}",
           both(ledger["kernels"]["total"]) == [forward.read, forward.written])
    expect(f"{name}: backward {both(back['total'])}, counted {[mine.read, mine.written]}", both(back["total"]) == [mine.read, mine.written])
    expect(f"{name}: the kernel IR loaded alone has {alone['backward']['kernels']['total']}", alone["backward"]["kernels"]["total"] == back["total"])
    kernels = {}
    for access in back["accesses"]:
        if access["phase"] != OWN:
            kernels.setdefault(access["line"], [0, 0])[access["access"] == "write"] += access["bytes"]
    for line in sorted(set(kernels) | set(mine.kernels)):
        expect(f"{name}: kernel at line {line}: {kernels.get(line)} bytes read and written, counted {mine.kernels.get(line)}",
               kernels.get(line, [0, 0]) == mine.kernels.get(line, [0, 0]))
    for way in ("read_bytes", "written_bytes"):
        expect(f"{name}: sum of phases, {way}", sum(t[way] for p, t in back["phases"].items() if p != OWN) == back["total"][way])
    expect(f"{name}: {both(back['total'])} after the last pass {both(ledger['backward']['passes'][-1]['total'])}",
           both(ledger["backward"]["passes"][-1]["total"]) == both(back["total"]))


def check_again(case):
    """As little memory as possible: most of the forward half is computed again."""
    bound = ["--gradients", "--chunk", "512", "--memory"]
    done = subprocess.run([hadal, "compile", case, *bound, "1K", "--emit=kernel", "-q", "-o", os.path.join(out, "none")], capture_output=True, text=True)
    least = int(re.search(r"they take (\d+) bytes", done.stderr).group(1))
    for bytes_ in (least * 1001 // 1000, least * 115 // 100) if full else (least * 1001 // 1000,):
        check(f"{case} in {bytes_} bytes", case, "--chunk", "512", "--memory", str(bytes_))


def check_pages():
    seen, folder = set(), os.path.join(out, "page")
    os.makedirs(folder, exist_ok=True)
    for config in (c for group in variations.GROUPS.values() for c in group):
        residual = config["residual"]
        key = (residual["type"], residual.get("form"), residual.get("query"))
        # kernels of so few channels have row operations in the place of contractions
        if key in seen or min(config["hidden_size"], config["intermediate_size"]) <= 8 or not (full or key[0] in SAMPLE):
            continue
        seen.add(key)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        check(json.dumps(residual), folder)


def paper(system, *more):
    spec = [os.path.join(source, "bench/specs/paper.hadal"), "-D", f"system={system}", *more]
    back = inspect(*spec)["backward"]
    figures = {}
    for key in ("ops", "naive_kernels", "kernels"):
        figures[key] = back[key]["as_closed_forms_count"]["total"]
        figures[key, "weights"] = back[key]["phases"]["weights"]["total"]
    return back, figures


def between(what, figure, least, most):
    expect(f"{what}: {figure}, expected {least} to {most}", least <= figure <= most)


os.makedirs(out, exist_ok=True)
check("standard", os.path.join(source, "tests/golden/standard"))
check("bias", os.path.join(source, "tests/golden/llama3-sharded"))
check("router of few experts", os.path.join(source, "tests/golden/kimi-linear-attnres"))
check_pages()
for case in ("attnres-block", "standard", "mhc", "highway", "laurel-lr", "kimi-linear-attnres") if full else ("attnres-block",):
    check_again(os.path.join(source, "tests/golden", case))

back, d = paper("standard")
for key in ("ops", "naive_kernels", "kernels"):
    between(f"standard residual, {key}", d[key], 3, 3)
between("standard residual, rows above its own", back["kept"]["rows_above_standard"], 0, 1)     # the sum before the output's norm
back, d = paper("block")    # the forms have no reads of their own for sums over tokens
forms = back["forms"]
between("3N/S + 6", forms["block"], 7.5, 7.5)
between("3N + 4", forms["block_single"], 28, 28)
between("Block, one at a time", d["naive_kernels"] - d["naive_kernels", "weights"], 17, forms["block_single_exact"])
between("Block, two phases", d["kernels"], forms["block_exact"] - 0.5, forms["block_exact"])
between("Block, two phases, rows that sums over tokens alone read", d["kernels", "weights"], 0, 0)
between("Block, rows kept above a standard residual's", back["kept"]["rows_above_standard"], 9, 128 + 8 + 1)
back, d = paper("block", "--chunk", "512", "--memory", "3383M")     # phase 1 again, once for a block
between("Block, phase 1 again", d["kernels"], forms["block_exact"], 10)
between("Block, phase 1 again, rows kept above a standard residual's", back["kept"]["rows_above_standard"], 0, 8 + 1)
if full:
    back, d = paper("full")
    between("Full, one at a time", d["naive_kernels"] - d["naive_kernels", "weights"], 192, 196)
    between("Full, two phases", d["kernels"], 30, 34)
    for path in sorted(glob.glob(os.path.join(source, "tests/golden/*/config.json"))):
        check(path, os.path.dirname(path))
    for seed in range(1, 21):
        what, text = random_systems.spec(seed)
        path = os.path.join(out, "drawn.hadal")
        with open(path, "w") as f:
            f.write(text)
        check(f"drawn {seed}: {what}", path)
sys.exit(1 if failed else 0)
