#!/usr/bin/env python3
"""Attention over depth written in many ways comes to the same ops over depth, with the same answers.

usage: rewritings.py HADAL
"""
import os
import re
import subprocess
import sys
import tempfile

hadal = sys.argv[1]
spec = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rewritings.hadal")
ways = ["norms of each", "norm by hand", "norm by a root", "gain on the query", "norm behind the product",
        "scores of each", "linear", "einsum", "softmax by hand", "log of the sum", "adds", "adds in a tree",
        "gain on the weights", "stack and single", "columns", "mean of products"]
kinds = ["raw", "normed", "gained", "plain", "sigmoid", "static", "heads", "varied", "input", "static-sigmoid", "tempered",
         "scaled", "window", "heads-sigmoid", "heads-plain"]
of_each = ["norms of each", "norm by hand", "norm by a root", "norm behind the product", "scores of each"]  # ways that differ in the norm
passes = "canonicalise,fold-constants,cse,dce,recognise-depth-attention,dce,form-blocks,batch-queries,dce"
failed = 0


def run(*args):
    done = subprocess.run([hadal, *args], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None, done.stderr


def found(of, way, folder):
    """The sources of each mix, and what the phases 1 of blocks read."""
    base = os.path.join(folder, "m")
    text, error = run("compile", spec, "-D", f"of={of}", "-D", f"way={way}", "-q", "--emit=graph", "-o", base)
    if text is not None:
        text, error = run("opt", base + ".graph.hir", "--check-passes", "--passes=" + passes)
    if text is None:
        return error
    blocks = [len(x.split(",")) - 3 for x in re.findall(r"depth\.scores ([^{\n]*?) (?:\{|:)", text)]
    mixes = re.findall(r"depth\.(attend|mix) ([^{\n]*?) (?:\{|:)", text)
    return {"blocks": blocks, "mixes": sorted((op, len(x.split(","))) for op, x in mixes)}


full = os.environ.get("HADAL_FULL") == "1"
for number, of in enumerate(kinds):
    with tempfile.TemporaryDirectory() as folder:
        expected = found(of, "as in std", folder)
    if isinstance(expected, str) or len(expected["mixes"]) < 5:
        print(f"{of}: as in std: {expected}")
        failed += 1
        continue
    for turn, way in enumerate(of_each if of == "varied" else ways):
        if not full and (turn + number) % 3:  # each way meets several kinds, each kind several ways
            continue
        with tempfile.TemporaryDirectory() as folder:
            got = found(of, way, folder)
        if got != expected:
            print(f"{of}: {way}: {got}, as in std {expected}")
            failed += 1
sys.exit(1 if failed else 0)
