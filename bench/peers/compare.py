#!/usr/bin/env python3
"""A model compiled by Hadal beside peers with the same weights, in turn.

The model is bench/specs/qwen3.hadal with random weights. Hadal has it with the standard residual
and with AttnRes, peers with the standard residual. Each model has a process of its own, and all but
the one whose turn it is are stopped. A round runs all models after each other, forwards and
backwards in turn (A B C, C B A): one prefill, then single tokens behind it. Figures are medians of
rounds, ratios those of a round, and each round ends with the limits of the machine (`hadal bench`).
Logits of everything with the standard residual are compared first. A peer that is not installed,
or has no such type, is left out, and the reason is printed. --level avx2: all models, and the limits, have the vectors of that CPU level;
what cannot be held to it is left out (levels.py).

  compare.py --hadal build/release/bin/hadal --types f32,bf16
  compare.py --hadal hadal --types bf16 --compile= --compile='--activations int8,bf16' --json out.json
"""
import argparse
import json
import math
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

import levels
import models
from checkpoint import Missing, Shape
from worker import Worker

SPEC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "specs", "qwen3.hadal")
SYSTEMS = ("attnres", "standard")
PEERS = ("torch", "compile", "onnx", "openvino", "llama")
# The types of llama.cpp for those of Hadal.
LLAMA_FORMATS = {"f32": ["f32"], "bf16": ["bf16"], "f16": ["f16"], "q8": ["q8_0"],
                 "q4": ["q4_0", "q4_1", "q4_k"]}
# Root mean square of the difference of logits from Hadal's standard residual over that of its logits:
# storage rounds differently, in q4 by much; models that have nothing to do with each other are at 1.4.
SAME = {"f32": 0.01, "f16": 0.05, "bf16": 0.15, "q8": 0.15, "q4": 1.1}


def fail(text):
    sys.exit(f"{os.path.basename(sys.argv[0])}: {text}")


def run(command):
    out = subprocess.run(command, capture_output=True, text=True)
    if out.returncode:
        fail(f"{shlex.join(command)}:\n{out.stderr}")
    return out.stdout


# ---- files -----------------------------------------------------------------------------------------


class Files:
    """The files that models are made from, in one directory; made once for each shape, compiled for each hadal."""

    def __init__(self, a):
        self.a = a
        self.folder = os.path.join(a.work, ",".join(a.define) or "qwen3")
        os.makedirs(self.folder, exist_ok=True)

    def defines(self, system):
        return [x for d in [f"system={system}", *self.a.define] for x in ("-D", d)]

    def weights(self, system="standard"):
        """Random weights in f32, by system, since the models of the systems do not have the same tensors."""
        path = os.path.join(self.folder, f"{system}.safetensors")
        if not os.path.exists(path):
            part = os.path.join(self.folder, "part.safetensors")
            run([self.a.hadal, "init-weights", "--draw-all", SPEC, *self.defines(system), "-o", part])
            os.replace(part, path)
        return path

    def library(self, system, kind, options):
        """A library for this machine; compiled again if hadal, the spec or the weights are newer."""
        name = re.sub(r"\W+", "_", f"{system}_{kind}_{self.a.level}_{options}").strip("_")
        path = os.path.join(self.folder, name)
        made = os.path.join(self.folder, f"lib{name}.so")
        weights = self.weights(system)
        sources = (shutil.which(self.a.hadal), weights, SPEC)
        if not os.path.exists(made) or os.path.getmtime(made) < max(map(os.path.getmtime, sources)):
            run([self.a.hadal, "compile", SPEC, *self.defines(system), "-w", weights, "--quiet",
                 "--target-cpu", "native" if self.a.level == "best" else self.a.level, "--weights-dtype", kind, *shlex.split(options), "-o", path])
        return path


# ---- models ----------------------------------------------------------------------------------------


class Entry:
    """A model of the comparison: its process and its times, one of each kind a round."""

    def __init__(self, name, standard, make, *arguments):
        self.name, self.standard = name, standard
        self.worker = Worker(make, *arguments)
        self.times = {"prefill": [], "decode": []}
        self.difference = None


def candidates(kind, a, files, shape, capacity):
    """(name, has the standard residual, class, arguments) of all models that might take part. The files that Hadal makes
    exist once the first of them is used."""
    paths = {(s, o): files.library(s, kind, o) for o in a.compile for s in a.systems}
    for options in a.compile:
        for system in a.systems:
            label = f"Hadal, {system}" + (f", {options}" if options else "")
            yield label, system == "standard", models.Hadal, (paths[system, options], label, shape,
                                                              a.threads, capacity)
    common = (files.weights(), shape, a.threads, capacity)
    if "torch" in a.peers:
        yield "torch", True, models.Torch, (kind, *common)
    if "compile" in a.peers:
        yield "torch.compile", True, models.TorchCompiled, (kind, *common)
    if "onnx" in a.peers:
        yield "onnx", True, models.Onnx, (kind, *common, files.folder)
    if "openvino" in a.peers:
        yield "openvino", True, models.OpenVino, (kind, *common)
    if "llama" in a.peers:
        for form in LLAMA_FORMATS[kind]:
            yield f"llama {form}", True, models.Llama, (form, *common, files.folder)


def open_all(entries, kind, a, files, shape, left_out):
    for name, standard, make, arguments in candidates(kind, a, files, shape, a.prefill + a.decode):
        try:
            entries.append(Entry(name, standard, make, *arguments))
        except Missing as e:
            left_out.append({"type": kind, "model": name, "reason": str(e)})
            print(f"{kind}: {name} is left out: {e}", flush=True)


def compare_logits(kind, entries, a):
    """Compares the rows after a prefill and after one more token with those of the first standard model."""
    rows = {e: e.worker.logits(0, a.prefill) + e.worker.logits(a.prefill, 1) for e in entries}
    same = [e for e in entries if e.standard]
    if not same:
        return
    wanted = rows[same[0]]
    square = math.fsum(x * x for x in wanted)
    for e in same[1:]:
        off = math.fsum((x - y) ** 2 for x, y in zip(rows[e], wanted))
        e.difference = math.sqrt(off / square)
        if not e.difference < SAME[kind]:
            fail(f"{kind}: {e.name} and {same[0].name} do not compute the same model: logits differ "
                 f"by {e.difference:.2g} of their size, more than {SAME[kind]}")


# ---- rounds ----------------------------------------------------------------------------------------


def measure(e, a):
    if "prefill" in a.phases:
        e.times["prefill"].append(e.worker.seconds(0, a.prefill)[0])
    if "decode" in a.phases:
        seconds = e.worker.seconds(a.prefill, 1, 1 + a.decode)
        e.times["decode"].append(statistics.median(seconds[1:]))  # the first one wakes threads


def limits(a, library):
    """FLOP/s and bytes/s at this moment, one of each a round."""
    report = json.loads(run([a.hadal, "bench", library, "--json", "--rounds", "1", "--threads",
                             str(a.threads), "--prefill", "1", "--decode", "",
                             *(() if a.level == "best" else ("--cpu-level", a.level))]))
    row = report["rows"][0]
    return row["fma_limit"], row["read_limit"]


def quartiles(values):
    if len(values) < 2:
        return {"median": values[0], "low": values[0], "high": values[0]}
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return {"median": middle, "low": low, "high": high}


def row_of(kind, e, first, a, shape, fma, read):
    row = {"type": kind, "model": e.name, "label": e.worker.label, "weight_bytes": e.worker.weight_bytes,
           "logits_difference": e.difference}
    for phase in a.phases:
        seconds = statistics.median(e.times[phase])
        n = a.prefill if phase == "prefill" else 1
        share = (shape.flops(n) / seconds / fma if phase == "prefill"
                 else e.worker.weight_bytes / seconds / read)
        ratios = [x / y for x, y in zip(e.times[phase], first.times[phase])]
        row[phase] = {"seconds": e.times[phase], "tokens_per_second": n / seconds,
                      "share_of_limit": share, "time_over_first": quartiles(ratios)}
    return row


def print_row(row, a):
    text = f"{row['type']:5s} {row['label']:48s}"
    for phase in a.phases:
        r, q = row[phase], row[phase]["time_over_first"]
        text += (f" {r['tokens_per_second']:8.1f} {r['share_of_limit']:5.2f} {q['median']:5.2f}"
                 f" ({q['low']:.2f} .. {q['high']:.2f})")
    off = row["logits_difference"]
    print(text + ("" if off is None else f"  {off:.1e}"), flush=True)


def compare(kind, a, files, shape, left_out):
    entries = []
    try:
        open_all(entries, kind, a, files, shape, left_out)
        compare_logits(kind, entries, a)  # warms up as well
        seen = []
        for r in range(a.rounds):
            for e in entries if r % 2 == 0 else reversed(entries):
                measure(e, a)
            seen.append(limits(a, files.library(a.systems[0], kind, a.compile[0])))
        fma, read = (statistics.median(x) for x in zip(*seen))
        print(f"{kind:5s} limits: multiply-add {fma * 1e-9:.0f} GFLOP/s, read {read * 1e-9:.1f} GB/s "
              f"({min(x for _, x in seen) * 1e-9:.1f} .. {max(x for _, x in seen) * 1e-9:.1f})")
        rows = [row_of(kind, e, entries[0], a, shape, fma, read) for e in entries]
        for row in rows:
            print_row(row, a)
        return rows, [{"fma": x, "read": y} for x, y in seen]
    except Missing as e:
        fail(f"{kind}: a model that ran before: {e}")
    finally:
        for e in entries:
            e.worker.close()


# ---- arguments -------------------------------------------------------------------------------------


def listed(text, known, what):
    items = [x for x in text.split(",") if x]
    for x in items:
        if x not in known:
            fail(f'"{x}" is no {what}: {", ".join(known)}')
    return items


def number(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("from 1")
    return value


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hadal", default="hadal", metavar="PATH", help="the compiler (hadal)")
    p.add_argument("--types", default="f32", metavar="LIST", help="f32, bf16, f16, q8, q4 (f32)")
    p.add_argument("--systems", default=",".join(SYSTEMS), metavar="LIST", help="of Hadal's models")
    p.add_argument("--peers", default=",".join(PEERS), metavar="LIST", help='"": none')
    p.add_argument("--compile", action="append", metavar="OPTIONS",
                   help="options of hadal compile for Hadal's models; several times: more models")
    p.add_argument("-D", "--define", action="append", default=[], metavar="NAME=VALUE",
                   help="another shape, as a parameter of the spec")
    p.add_argument("--level", default="best", choices=levels.LEVELS, help="CPU level of all models (best: of this CPU)")
    p.add_argument("--threads", type=number, default=2, metavar="N")
    p.add_argument("--prefill", type=number, default=512, metavar="N", help="tokens, up to 512 (512)")
    p.add_argument("--decode", type=number, default=8, metavar="N", help="tokens a round (8)")
    p.add_argument("--phases", default="prefill,decode", metavar="LIST", help="what is timed")
    p.add_argument("--rounds", type=number, default=5, metavar="N")
    p.add_argument("--work", metavar="DIR", help="keep files here for the next run, 13 GB for all "
                                                 "types (a temporary folder)")
    p.add_argument("--json", metavar="FILE", help="write all times here")
    a = p.parse_args()
    a.types = listed(a.types, list(LLAMA_FORMATS), "type")
    a.systems = listed(a.systems, SYSTEMS, "system")
    a.peers = listed(a.peers, PEERS, "peer")
    a.phases = listed(a.phases, ("prefill", "decode"), "phase")
    a.compile = a.compile or [""]
    levels.hold(a.level)
    for name in ("types", "systems", "phases"):
        if not getattr(a, name):
            fail(f"--{name} is empty")
    if a.prefill > 512:
        fail(f"a prefill of {a.prefill}: up to 512")
    if not shutil.which(a.hadal):
        fail(f"there is no {a.hadal}; --hadal PATH names the compiler")
    return a


def shape_of(defines):
    """Defaults of the spec with -D items, which must be its parameters that Shape has."""
    values = {}
    for d in defines:
        name, _, value = d.partition("=")
        default = getattr(Shape, name, None) if name in Shape.__dataclass_fields__ else None
        try:
            values[name] = type(default)(value)
        except (TypeError, ValueError):
            fail(f'-D {d}: NAME=VALUE with a name of {", ".join(Shape.__dataclass_fields__)}')
    return Shape(**values)


def main():
    a = arguments()
    shape = shape_of(a.define)
    left_out, rows, seen = [], [], {}
    columns = {"prefill": "prefill/s    fma  time/first ", "decode": "decode/s   read  time/first "}
    with tempfile.TemporaryDirectory(prefix="hadal-peers-") as folder:
        a.work = a.work or folder
        files = Files(a)
        print(f"{a.prefill} tokens, {a.threads} threads, level {a.level}, {a.rounds} rounds; decode behind the prefill; "
              f"shares of the limits; time over that of the first model (quartiles); logits' difference")
        print(f"type  {'model':46s} " + "        ".join(columns[x] for x in a.phases), flush=True)
        for kind in a.types:
            more, seen[kind] = compare(kind, a, files, shape, left_out)
            rows += more
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"schema": "hadal-peers-1", "threads": a.threads, "level": a.level, "prefill": a.prefill,
                       "rounds": a.rounds, "define": a.define, "limits": seen, "rows": rows,
                       "left_out": left_out}, f, indent=1)


if __name__ == "__main__":
    main()
