#!/usr/bin/env python3
"""Reading across depth alone: bench_depth beside attnres_torch.py, in turn.

  mechanism.py --bench build/release/bin/bench_depth [--python /usr/bin/python3]... [--shape S,N,d]...
               [--tokens 1,16,128,512] [--threads 1,2] [--turns 3] [--json FILE]

Each --python is an interpreter whose PyTorch takes part; one without is left out, and says why. A
turn runs bench_depth and then every PyTorch, or the other way round (A B, B A), each for a few
rounds of its own; figures are medians of turns of the time per token and sublayer less that of the
stand-ins (*own*), ratios those of a turn: how many times longer PyTorch takes than the default
schedule (two-phase, f32). One thread: CPU time; several: time on the wall.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from compare import fail, number, quartiles

PEER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attnres_torch.py")
OURS = ("standard", "naive", "two-phase", "bf16")
THEIRS = ("standard", "figure", "stacked", "lean")


def run(command):
    try:
        out = subprocess.run(command, capture_output=True, text=True)
    except OSError as e:
        fail(f"{command[0]}: {e.strerror}")
    if out.returncode:
        fail(f"{' '.join(command)}:\n{out.stdout}{out.stderr}")
    return out.stdout


def ours(a, shape, tokens, threads):
    """{system: own ns} from the table of bench_depth."""
    text = run([a.bench, "--shape", shape, "--tokens", str(tokens), "--threads", str(threads),
                "--rounds", str(a.rounds)])
    start = [*shape.split(","), str(tokens), str(threads)]
    own = {}
    for line in text.splitlines():
        cells = line.split()
        if cells[:5] == start:
            name = next((x for x in OURS if cells[5] == x), None)
            if name:
                own[name] = float(cells[7])
    if "two-phase" not in own or "naive" not in own:
        fail(f"{a.bench} printed no line of two-phase for {shape}, {tokens} tokens:\n{text}")
    return own


def theirs(a, python, shape, tokens, threads):
    report = json.loads(run([python, PEER, "--json", "--shape", shape, "--tokens", str(tokens),
                             "--threads", str(threads), "--rounds", str(a.rounds)]))
    return {r["system"]: r["own"] for r in report["rows"]}


def versions(pythons):
    """{python: PyTorch's version} of those interpreters that have one."""
    found = {}
    for python in pythons:
        report = json.loads(run([python, PEER, "--json", "--shape", "1,1,8", "--tokens", "1",
                                 "--threads", "1", "--rounds", "1"]))
        if "missing" in report:
            print(f"{python} is left out: {report['missing']}", flush=True)
        else:
            found[python] = f"PyTorch {report['torch']}"
    return found


def measure(a, torches, shape, tokens, threads):
    """Rows of one shape: {who, system, own: ns of each turn, ratio: to two-phase}."""
    makers = {"Hadal": lambda: ours(a, shape, tokens, threads)}
    for python, version in torches.items():
        makers[version] = lambda python=python: theirs(a, python, shape, tokens, threads)
    turns = {who: [] for who in makers}
    for turn in range(a.turns):
        for who in makers if turn % 2 == 0 else reversed(makers):
            turns[who].append(makers[who]())
    base = [t["two-phase"] for t in turns["Hadal"]]
    rows = []
    for who in makers:
        for system in OURS if who == "Hadal" else THEIRS:
            own = [t[system] for t in turns[who] if system in t]
            if own:
                rows.append({"shape": shape, "tokens": tokens, "threads": threads, "who": who,
                             "system": system, "own": own,
                             "ratio": quartiles([x / y for x, y in zip(own, base)])})
    return rows


def print_row(r):
    q = r["ratio"]
    print(f"{r['shape']:10s} {r['tokens']:4d} {r['threads']:2d}  {r['who']:16s} {r['system']:10s}"
          f" {statistics.median(r['own']):9.0f} {q['median']:8.2f} ({q['low']:.2f} .. {q['high']:.2f})",
          flush=True)


def numbers(text):
    return [number(x) for x in text.split(",")]


def shape(text):
    if len(numbers(text)) != 3:
        raise argparse.ArgumentTypeError("three numbers")
    return text


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--bench", default="bench_depth", metavar="PATH")
    p.add_argument("--python", action="append", metavar="PATH")
    p.add_argument("--shape", action="append", type=shape, metavar="S,N,d")
    p.add_argument("--tokens", type=numbers, default="1,16,128,512", metavar="LIST")
    p.add_argument("--threads", type=numbers, default="1,2", metavar="LIST")
    p.add_argument("--turns", type=number, default=3, metavar="N")
    p.add_argument("--rounds", type=number, default=3, metavar="N", help="of each program in a turn")
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    torches = versions(a.python or [sys.executable])
    rows = []
    print("S,N,d         T th  who              system        ns own  over two-phase (quartiles)")
    for s in a.shape or ["16,8,1024", "16,8,2048", "6,9,1024", "6,9,2048"]:
        for threads in a.threads:
            for tokens in a.tokens:
                more = measure(a, torches, s, tokens, threads)
                rows += more
                for r in more:
                    print_row(r)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"schema": "hadal-mechanism-1", "turns": a.turns, "rounds": a.rounds,
                       "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
