#!/usr/bin/env python3
"""The ledger against a count by another road (count.py): for every page of std/residual, systems that people have brought, and
systems that are drawn. Each kernel's bytes are compared, and the number of sublayers, which kernel IR that is loaded alone says
as well. Drawn systems, in the short set half of them, are compiled and compared with
the evaluator, too.

usage: counts.py HADAL SOURCE OUT

With HADAL_FULL=1 all variations of tests/residuals, the golden cases, published families, and a hundred drawn systems.
"""
import array
import glob
import json
import os
import struct
import subprocess
import sys

from count import Count
import random_systems

hadal, source, out = sys.argv[1:4]
sys.path.insert(0, os.path.join(source, "tests/residuals"))
import variations       # noqa: E402

full = os.environ.get("HADAL_FULL") == "1"
PARTS = {"streams", "heads", "system"}      # of other pages
LIMIT = 5e-5        # compiled code against the evaluator, of max |expected|
UNCHARGED = {"producer's sum", "producer's output"}
failed = 0


def run(*arguments):
    done = subprocess.run([hadal, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def fail(text):
    global failed
    failed += 1
    print(text)


def check(name, *spec, sublayers=None, kernels=True):
    base = os.path.join(out, "kernels")
    run("compile", *spec, "-q", "--emit=kernel", "-o", base)
    mine = Count(open(base + ".kernel.hir").read())
    ledger = json.loads(run("inspect", *spec, "-q", "--ledger=json"))
    if sublayers is not None and ledger["sublayers"] != sublayers:
        fail(f"{name}: {ledger['sublayers']} sublayers, not {sublayers}")
    if not kernels:
        return ledger
    if ledger["sublayers"] != len(mine.outputs):
        fail(f"{name}: {ledger['sublayers']} sublayers, counted {len(mine.outputs)}")
    alone = json.loads(run("inspect", base + ".kernel.hir", "-q", "--ledger=json"))
    for key in ("d", "sublayers"):
        if alone[key] != ledger[key]:
            fail(f"{name}: {key} of the kernel IR loaded alone is {alone[key]}, of the model {ledger[key]}")
    if "kernels" not in ledger:
        return ledger
    if alone["kernels"]["total"] != ledger["kernels"]["total"]:
        fail(f"{name}: the kernel IR loaded alone has {alone['kernels']['total']}, the model {ledger['kernels']['total']}")
    total = ledger["kernels"]["total"]
    if (total["read_bytes"], total["written_bytes"]) != (mine.read, mine.written):
        fail(f"{name}: {total['read_bytes']} bytes read and {total['written_bytes']} written of a token, "
             f"counted {mine.read} and {mine.written}")
    kernels = {}
    for access in ledger["kernels"]["accesses"]:
        if access["phase"] not in UNCHARGED:
            kernels.setdefault(access["line"], [0, 0])[access["access"] == "write"] += access["bytes"]
    for line in sorted(set(kernels) | set(mine.kernels)):
        if kernels.get(line, [0, 0]) != mine.kernels.get(line, [0, 0]):
            fail(f"{name}: kernel at line {line}: {kernels.get(line)} bytes read and written, counted {mine.kernels.get(line)}")
    return ledger


def numbers(path):
    data = open(path, "rb").read()
    start = 10 + struct.unpack("<H", data[8:10])[0]
    return array.array("d" if b"f8" in data[:start] else "f", data[start:])


def compare(name, spec):
    """Compiled code against the evaluator."""
    base = os.path.join(out, "drawn")
    tokens = "3,1,4,1,5,9,2,6"
    run("init-weights", spec, "-q", "-o", base + ".safetensors")
    run("run", spec, "-w", base + ".safetensors", "--tokens", tokens, "--logits", base + "-expected.npy", "--interpret")
    run("run", spec, "-w", base + ".safetensors", "--tokens", tokens, "--logits", base + ".npy", "--split", "5")
    got, expected = numbers(base + ".npy"), numbers(base + "-expected.npy")
    most = max(abs(x) for x in expected)
    error = max((abs(x - y) for x, y in zip(got, expected)), default=0) / most if most else float("inf")
    if len(got) != len(expected) or not error <= LIMIT:
        fail(f"{name}: compiled code is off by {error}")


def expected(config):
    """Attention and MLP of each layer, and what some systems add to the stream themselves."""
    residual, layers = config["residual"], config["num_hidden_layers"] * config["residual"].get("loops", 1)
    if residual["type"] == "dreamer" or residual.get("num_heads") == config["hidden_size"]:
        return None     # a score of heads of one channel is a product like any other
    if residual.get("form") in ("base", "light") or (residual["type"] == "laurel-lr" and residual["rank"] > 8):
        return 3 * layers
    return 2 * layers


def check_pages():
    """The first variation of each page that a config names, or all."""
    seen = set()
    folder = os.path.join(out, "page")
    os.makedirs(folder, exist_ok=True)
    for config in (c for group in variations.GROUPS.values() for c in group):
        page = config["residual"]["type"]
        key = (page, config["residual"].get("form"), config["residual"].get("query"))
        if key in seen and not full:
            continue
        seen.add(key)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(config, f)
        # kernels of so few channels have row operations in the place of contractions
        wide = min(config["hidden_size"], config["intermediate_size"]) > 8
        check(json.dumps(config["residual"]), folder, sublayers=expected(config), kernels=wide)
    return {key[0] for key in seen}


os.makedirs(out, exist_ok=True)
seen = check_pages() | {"standard", "highway", "altup"}
check("standard", os.path.join(source, "tests/golden/standard"), sublayers=8)
check("highway", os.path.join(source, "tests/golden/highway"), sublayers=8)
check("altup", os.path.join(source, "tests/published/gemma3n_text"))
check("inkling2_loop", os.path.join(source, "bench/specs/inkling2_loop"), sublayers=48)    # gates of rank 64 are no sublayers
pages = {os.path.basename(p)[:-len(".hadal")] for p in glob.glob(os.path.join(source, "frontend/std/residual/*.hadal"))}
for page in sorted(pages - PARTS - seen):
    fail(f"frontend/std/residual/{page}.hadal: no variation of it is in tests/residuals/variations.py")
specs = os.path.join(source, "tests/depth/specs")
for name, sublayers, defines in [
        ("matrix-stream", 2, []), ("matrix-model", 8, []), ("matrix-model", 8, ["ranks=16", "width=16", "keys=64"]),
        ("projected-embedding", 4, []), ("embeddings", 4, ["how=0"]), ("embeddings", 4, ["how=1"]), ("embeddings", 4, ["how=2"]),
        ("embeddings", 4, ["how=3"]), ("no-residual", 0, []), ("one-source", 6, []), ("normed-stack", 16, []),
        ("low-rank-model", 8, []), ("convolutions", 6, []), ("two-classes", 6, []), ("running-start", 6, []), ("streams-of-nine", 4, []), ("listed-streams", 4, [])]:
    check(f"{name} {' '.join(defines)}", os.path.join(specs, name + ".hadal"), *(x for d in defines for x in ("-D", d)), sublayers=sublayers)
# whatever layers add to is made of, the mechanism moves the same
ways = ["plain", "norm", "map", "normed projection and position", "gated", "norm and map"]
ways += ["norm by hand and map", "multiple", "layernorm", "sum", "blend", "normed sum", "squashed", "chain", "by hand", "projection and position"] if full else []
totals = {}
for how in ways:
    ledger = check(f"before the stream: {how}", os.path.join(specs, "before-the-stream.hadal"), "-D", f"how={how}", sublayers=4)
    totals[how] = ledger["kernels"]["total"]["total"]
    if totals[how] != totals["plain"]:
        fail(f"before the stream: {how}: {totals[how]} d, plain {totals['plain']}")
check("before the stream: normed stream", os.path.join(specs, "before-the-stream.hadal"), "-D", "how=normed stream", sublayers=4)
for seed in range(1, 101 if full else 11):
    what, text = random_systems.spec(seed)
    path = os.path.join(out, "drawn.hadal")
    with open(path, "w") as f:
        f.write(text)
    check(f"drawn {seed}: {what}", path, sublayers=2 * random_systems.LAYERS)
    if full or seed % 2:
        compare(f"drawn {seed}: {what}", path)
if full:
    for path in sorted(glob.glob(os.path.join(source, "tests/golden/*/config.json")) + glob.glob(os.path.join(source, "tests/published/*/config.json"))):
        check(path, os.path.dirname(path))
sys.exit(1 if failed else 0)
