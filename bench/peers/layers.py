#!/usr/bin/env python3
"""Layers alone beside what others have for them, in turn: experts (bench_experts) and the delta rule of KDA
(bench_recurrence) beside ggml, the library of llama.cpp, and eager PyTorch.

  layers.py --bin build/release/bin [--ggml DIR[,BUILD]] [--python PATH] [--only experts|delta] [--tokens 1,512]
            [--types bf16,q8,q4,f32] [--shape E,K,WIDTH,D] [--threads 2] [--turns 3] [--json FILE]

--ggml is a tree of ggml's sources, BUILD where it was built (DIR/build): in it

  cmake -B build -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DBUILD_SHARED_LIBS=ON -DGGML_BUILD_TESTS=OFF \\
        -DGGML_BUILD_EXAMPLES=OFF && cmake --build build --target ggml ggml-cpu

The folder ggml of llama.cpp is such a tree. ggml_layers.c is compiled against it ($CC, cc). --python is an interpreter
with PyTorch, for kda_torch.py. A peer that is not given is left out. A turn runs all of them one after the other,
A B C, the next one C B A; figures are medians of turns, ratios those of a turn (median and quartiles): how many times longer
a peer takes. q8 and q4 are ggml's q8_0 (8.5 bits a weight, as here) and q4_0 (4.5; q4 here has 5).
"""
import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

from compare import fail, number, quartiles

HERE = os.path.dirname(os.path.abspath(__file__))
THEIR_TYPES = {"q8": "q8_0", "q4": "q4_0"}


def run(command):
    try:
        out = subprocess.run([str(x) for x in command], capture_output=True, text=True)
    except OSError as e:
        fail(f"{command[0]}: {e.strerror}")
    if out.returncode:
        fail(f"{' '.join(map(str, command))}:\n{out.stdout}{out.stderr}")
    return out.stdout


def lines(text):
    return [x.split() for x in text.splitlines() if x.split()]


def before(words, unit):
    return float(words[words.index(unit) - 1])


# ---- contestants: each gives {what: microseconds} -------------------------------------------------


def our_experts(a, T, dtype):
    text = run([os.path.join(a.bin, "bench_experts"), "best", a.threads, a.rounds, T, *a.shape, dtype])
    return {w[1]: before(w, "us") for w in lines(text) if len(w) > 3 and w[1] in ("up", "down")}


def our_delta(a, T):
    shape = {1: 0, 512: 1}.get(T)  # line of bench_recurrence's table
    if shape is None:
        fail("bench_recurrence has the delta rule of 1 and 512 tokens")
    text = run([os.path.join(a.bin, "bench_recurrence"), "best", a.threads, "f32", a.rounds, shape])
    return {"": before(next(w for w in lines(text) if w[0] == "delta_rule"), "us")}


def build_ggml(a, folder):
    source, _, build = a.ggml.partition(",")
    libraries = os.path.join(build or os.path.join(source, "build"), "src")
    program = os.path.join(folder, "ggml_layers")
    run([*shlex.split(os.environ.get("CC", "cc")), "-O2", "-o", program, os.path.join(HERE, "ggml_layers.c"),
         "-I" + os.path.join(source, "include"), "-L" + libraries, "-Wl,-rpath," + os.path.abspath(libraries),
         "-lggml", "-lggml-base", "-lggml-cpu", "-lm"])
    return program


def ggml(program, a, *arguments):
    text = lines(run([program, a.threads, a.rounds, *arguments]))
    return {"" if w[0] == "delta" else w[0]: float(w[1]) for w in text if w[0] in ("up", "down", "delta")}


def torch(a, T):
    report = json.loads(run([a.python, os.path.join(HERE, "kda_torch.py"), "--json", "--tokens", T, "--threads",
                             a.threads, "--rounds", a.rounds]))
    if "missing" in report:
        fail(f"{a.python}: {report['missing']}")
    return {r["system"]: r["us"] for r in report["rows"]}


# ---- in turn -----------------------------------------------------------------------------------


def subjects(a, program):
    """(what, {who: measure}); Hadal is the first of them."""
    for T in a.tokens:
        for dtype in a.types if a.only != "delta" else ():
            who = {"Hadal": lambda T=T, d=dtype: our_experts(a, T, d)}
            if program:
                theirs = THEIR_TYPES.get(dtype, dtype)
                who["ggml"] = lambda T=T, d=theirs: ggml(program, a, "experts", T, *a.shape, d)
            yield f"experts, {dtype}, T = {T}", who
        if a.only != "experts":
            who = {"Hadal": lambda T=T: our_delta(a, T)}
            if program:
                who["ggml"] = lambda T=T: ggml(program, a, "delta", T, 32, 128)
            if a.python:
                who["PyTorch"] = lambda T=T: torch(a, T)
            yield f"delta rule, T = {T}", who


def measure(a, what, who):
    turns = {name: [] for name in who}
    for turn in range(a.turns):
        for name in who if turn % 2 == 0 else reversed(who):
            turns[name].append(who[name]())
    ours = turns["Hadal"]
    for name in who:
        for part in turns[name][0]:
            us = [t[part] for t in turns[name]]
            base = [t.get(part, t.get("")) for t in ours]
            yield {"what": what, "who": name, "part": part, "us": us,
                   "ratio": quartiles([x / y for x, y in zip(us, base)])}


def words(text):
    return text.split(",")


def numbers(text):
    return [number(x) for x in words(text)]


def shape(text):
    if len(numbers(text)) != 4:
        raise argparse.ArgumentTypeError("four numbers")
    return numbers(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bin", default="build/release/bin", metavar="DIR")
    p.add_argument("--ggml", metavar="DIR[,BUILD]")
    p.add_argument("--python", metavar="PATH")
    p.add_argument("--only", choices=("experts", "delta"))
    p.add_argument("--tokens", type=numbers, default="1,512", metavar="LIST")
    p.add_argument("--types", type=words, default="bf16,q8,q4,f32", metavar="LIST")
    p.add_argument("--shape", type=shape, default="128,8,512,1536", metavar="E,K,WIDTH,D")
    p.add_argument("--threads", type=number, default=2)
    p.add_argument("--turns", type=number, default=3)
    p.add_argument("--rounds", type=number, default=3, help="of each program in a turn")
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    if not a.ggml and not a.python:
        sys.exit("layers.py: neither --ggml nor --python: there is nobody to compare with")
    rows = []
    print("what                      who     part              us   times Hadal's (quartiles)")
    with tempfile.TemporaryDirectory() as folder:
        for what, who in subjects(a, build_ggml(a, folder) if a.ggml else None):
            for r in measure(a, what, who):
                rows.append(r)
                q = r["ratio"]
                print(f"{what:25s} {r['who']:7s} {r['part']:10s} {statistics.median(r['us']):10.1f} {q['median']:8.2f}"
                      f" ({q['low']:.2f} .. {q['high']:.2f})", flush=True)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-layers-1", "threads": a.threads, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
