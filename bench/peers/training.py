#!/usr/bin/env python3
"""A training step, forward and backward, compiled by Hadal beside PyTorch, in turn.

  training.py --hadal build/release/bin/hadal [--shapes small,deep] [--systems standard,attnres] [--peers torch,compile] [--rounds 5] [--level avx2]

Shapes are those of bench/training.py (docs/learning.md), in f32. Each model has a process of its own, and all but the one whose turn
it is are stopped. A round runs all models after each other, A B C, the next one C B A: a step each; and ends with the limit of
multiply-adds (`hadal bench`). Figures are medians of rounds, ratios those of a round. First all models take a step from the same
weights, and what they compute is compared: the loss, and the norms of the gradients. A peer that is not installed is left out, and
the reason is printed. AttnRes is written in two ways for PyTorch (trainers.py). --level avx2 compiles for that level, measures its
limit, and has PyTorch and the libraries in it (MKL, oneDNN) use no wider vectors.
"""
import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time

import levels
import trainers
from checkpoint import Missing
from compare import fail, listed, number, quartiles, run
from trainers import training
from worker import Worker

PEERS = {"torch": trainers.Torch, "compile": trainers.TorchCompiled}
FORMS = {"standard": ("standard",), "attnres": ("stacked", "apart")}
SAME = 1e-3  # of the loss and of the norms: f32 sums in different orders


class Entry:
    def __init__(self, name, make, *arguments):
        self.name, self.seconds = name, []
        self.worker = Worker(make, *arguments)
        start = time.perf_counter()
        self.figures = self.worker.logits(0, 0)
        self.first = time.perf_counter() - start  # torch.compile compiles in it


def candidates(a, folder, name, system):
    shape, batch = training.SHAPES[name], training.BATCHES[name]
    weights = os.path.join(folder, f"{name}-{system}.safetensors")
    run([a.hadal, "init-weights", "--draw-all", training.MODEL, *training.defines(**shape, system=system), "-q", "-o", weights])
    start = time.perf_counter()
    training.library(a, folder, shape, system)
    print(f"{name:6s} {system:9s} Hadal compiles it in {time.perf_counter() - start:.1f} s", flush=True)
    yield "Hadal", trainers.Hadal, (os.path.join(folder, system), "Hadal", weights, shape, batch, a.threads)
    for peer in a.peers:
        for form in FORMS[system]:
            yield f"{peer}, {form}", PEERS[peer], (form, weights, shape, batch, a.threads)


def work_of(name):
    """FLOPs of a step, as bench/training.py counts them: 6 a weight that is multiplied and a token, and those of causal attention."""
    s, (sequences, length) = training.SHAPES[name], training.BATCHES[name]
    q, kv = s["heads"] * s["head_dim"], s["kv_heads"] * s["head_dim"]
    weights = s["layers"] * s["hidden"] * (2 * q + 2 * kv + 3 * s["ff"]) + s["vocab"] * s["hidden"]
    return sequences * length * (6 * weights + 6 * s["layers"] * q * length)


def check_same(entries):
    wanted = entries[0].figures
    for e in entries[1:]:
        off = max(abs(x - y) / abs(y) for x, y in zip(e.figures, wanted))
        if not off < SAME:
            fail(f"{e.name} and {entries[0].name} do not compute the same step: loss and norms {e.figures} and {wanted}")


def measure(a, folder, name, system, left_out):
    entries, limits = [], []
    try:
        for who, make, arguments in candidates(a, folder, name, system):
            try:
                entries.append(Entry(who, make, *arguments))
            except Missing as e:
                if not entries:
                    fail(f"{who}: {e}")
                left_out.append({"shape": name, "system": system, "model": who, "reason": str(e)})
                print(f"{name:6s} {system:9s} {who} is left out: {e}", flush=True)
        check_same(entries)
        for r in range(a.rounds):
            for e in entries if r % 2 == 0 else reversed(entries):
                e.seconds += e.worker.seconds(0, 0)
            limits.append(training.multiply_add(a))
    except Missing as e:
        fail(f"a model that ran before: {e}")
    finally:
        for e in entries:
            e.worker.close()
    limit = statistics.median(limits)
    return [{"shape": name, "system": system, "model": e.name, "label": e.worker.label, "seconds": e.seconds, "limit": limit,
             "share_of_limit": work_of(name) / statistics.median(e.seconds) / limit, "first_step": e.first,
             "time_over_first": quartiles([x / y for x, y in zip(e.seconds, entries[0].seconds)])} for e in entries]


def print_row(r):
    q = r["time_over_first"]
    print(f"{r['shape']:6s} {r['system']:9s} {r['label']:32s} {statistics.median(r['seconds']):8.3f} {r['share_of_limit']:6.2f} {q['median']:7.2f}"
          f" ({q['low']:.2f} .. {q['high']:.2f}) {r['first_step']:8.1f}", flush=True)


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hadal", default="hadal", metavar="PATH", help="the compiler (hadal)")
    p.add_argument("--shapes", default="small,deep", metavar="LIST", help=", ".join(training.SHAPES))
    p.add_argument("--systems", default=",".join(training.SYSTEMS), metavar="LIST")
    p.add_argument("--peers", default=",".join(PEERS), metavar="LIST", help='"": none')
    p.add_argument("--level", default="best", choices=levels.LEVELS, help="CPU level of all models")
    p.add_argument("--threads", type=number, default=2, metavar="N")
    p.add_argument("--rounds", type=number, default=5, metavar="N")
    p.add_argument("--work", metavar="DIR", help="where models are compiled (a temporary folder)")
    p.add_argument("--json", metavar="FILE", help="write all times here")
    a = p.parse_args()
    a.shapes = listed(a.shapes, training.SHAPES, "shape")
    a.systems = listed(a.systems, training.SYSTEMS, "system")
    a.peers = listed(a.peers, PEERS, "peer")
    found = shutil.which(a.hadal)
    if not found:
        fail(f"there is no {a.hadal}; --hadal PATH names the compiler")
    a.hadal = os.path.abspath(found)
    a.bin = os.path.dirname(a.hadal)  # of bench/training.py
    levels.hold(a.level)
    return a


def main():
    a = arguments()
    rows, left_out = [], []
    print(f"forward and backward of a step, f32, {a.threads} threads, level {a.level}, {a.rounds} rounds; share of multiply-add; time over Hadal's (quartiles)\n"
          f"shape  system    model                                s  share  over Hadal            first step, s", flush=True)
    with tempfile.TemporaryDirectory(prefix="hadal-peers-", dir=a.work) as folder:
        for name in a.shapes:
            for system in a.systems:
                more = measure(a, folder, name, system, left_out)
                rows += more
                for r in more:
                    print_row(r)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-training-peers-1", "threads": a.threads, "level": a.level, "rounds": a.rounds, "rows": rows, "left_out": left_out},
                      f, indent=1)


if __name__ == "__main__":
    main()
