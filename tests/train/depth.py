"""Magnitudes by depth and weights of mixes in the log of a run, against the evaluator; the run is the same without them.

    depth.py HADAL TESTS WORK     TESTS: the folder with golden/

Each golden case is trained for two steps on drawn ids with --depth-every. What the log has of the second step are the magnitudes that
hadal gradients --by-depth takes of the checkpoint, of the same two windows, and the weights of mixes that hadal inspect --heatmap takes.
Without the option the losses and the weights are the same to the bit. With --memory, of every second case, both trainers together hold
the bound: the run has the least of which an error tells (in the full set one byte less is that error). One case; all of them in the
full set."""
import glob
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from checkpoint import read_numbers  # noqa: E402

hadal, tests, work = sys.argv[1:]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
CONTEXT, BATCH, STEPS, MOST = 11, 2, 2, 3e-4
folders = [os.path.dirname(c) for c in sorted(glob.glob(os.path.join(tests, "golden", "*", "config.json")))]
FULL = os.environ.get("HADAL_FULL") == "1"
if not FULL:
    folders = [f for f in folders if os.path.basename(f) == "attnres-block"]
assert folders


def run(*command):
    done = subprocess.run([hadal, *command, "-q"], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stderr


def rejected(*command):
    done = subprocess.run([hadal, *command], capture_output=True, text=True)
    assert done.returncode != 0, command
    return done.stderr


def least_memory(options):
    """Bytes with which both trainers fit; the trainer of the steps alone fits with less."""
    alone = re.search(r"they take (\d+) bytes", rejected(*options, "--memory", "1"))[1]
    told = rejected(*options, "--memory", alone)
    assert f"fit in {alone} bytes beside the trainer of the steps" in told, told
    least = int(re.search(r"the least for both is (\d+) bytes", told)[1])
    if FULL:
        assert f"the least for both is {least} bytes" in rejected(*options, "--memory", str(least - 1))
    return str(least)


def numbers(path):
    """The rows of an .npy file of doubles."""
    with open(path, "rb") as f:
        f.read(8)
        head = eval(f.read(struct.unpack("<H", f.read(2))[0]))
        rows, columns = head["shape"]
        assert head["descr"] == "<f8", head
        flat = struct.unpack(f"<{rows * columns}d", f.read())
    return [flat[i * columns:(i + 1) * columns] for i in range(rows)]


def read(*names):
    with open(os.path.join(work, *names), "rb") as f:
        return f.read()


def mean_square(lists):
    return [math.sqrt(sum(x * x for x in column) / len(column)) for column in zip(*lists)]


def compare(got, want, what, most=MOST):
    assert len(got) == len(want), f"{len(got)} {what}, not {len(want)}"
    size = max(map(abs, want))
    for i, (x, y) in enumerate(zip(got, want)):
        assert abs(x - y) <= most * size, f"{what} of sublayer {i + 1}: {x}, not {y}"


def check(folder):
    name = os.path.basename(folder)
    data, to, plain = (os.path.join(work, name + x) for x in (".i32", "", "-plain"))
    draw = random.Random(name)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        vocab = json.load(f)["vocab_size"]
    ids = [draw.randrange(vocab) for _ in range(60)]
    with open(data, "wb") as f:
        f.write(struct.pack("<60i", *ids))
    options = ["train", folder, "--data", data, "--context", str(CONTEXT), "--batch", str(BATCH), "--steps", str(STEPS), "--warmup", "0"]
    if folders.index(folder) % 2 == 0:
        options += ["--memory", least_memory([*options, "--depth-every", "1", "-o", to])]
    run(*options, "-o", plain)
    run(*options, "--depth-every", "1", "-o", to)
    log = read(name, "log.jsonl").splitlines(keepends=True)
    assert b"".join(line for line in log if b"out_rms" not in line) == read(name + "-plain", "log.jsonl"), "steps differ with --depth-every"
    for file in ("model.safetensors", "trainer.state"):
        assert read(name, "checkpoint-2", file) == read(name + "-plain", "checkpoint-2", file), f"{file} differs with --depth-every"

    checkpoint, found, maps = os.path.join(to, "checkpoint-2"), [], []
    line, described = json.loads(log[-1]), json.loads(read(name, "depth.json"))
    assert line["step"] == STEPS and len(described["sublayers"]) == len(line["out_rms"])
    for i in range(BATCH):
        window = ids[i * (CONTEXT + 1):][:CONTEXT + 1]
        tokens, targets = ",".join(map(str, window[:-1])), ",".join(map(str, window[1:]))
        run("gradients", checkpoint, "--tokens", tokens, "--targets", targets, "--by-depth", "-o", os.path.join(work, "g.safetensors"))
        found.append({k: v for k, v in read_numbers(os.path.join(work, "g.safetensors")).items() if k.startswith("out_")})
        if described["mixes"]:
            run("inspect", checkpoint, "--tokens", tokens, "--heatmap", os.path.join(work, "h.npy"))
            maps.append(numbers(os.path.join(work, "h.npy")))
    compare(line["out_rms"], mean_square([f["out_rms"] for f in found]), "out_rms")
    # the mean is over the targets of both windows
    compare(line["out_grad_rms"], [x / BATCH for x in mean_square([f["out_grad_rms"] for f in found])], "out_grad_rms")
    if described["mixes"] is None:
        assert "mixes" not in line
        return f"{len(line['out_rms'])} sublayers"
    rows = described["mixes"]["rows"]
    assert len(rows) == len(line["mixes"]) == len(maps[0])
    for i, (row, weights) in enumerate(zip(rows, line["mixes"])):
        assert len(row["columns"]) == len(weights)
        got = [math.nan] * len(described["mixes"]["columns"])
        for column, x in zip(row["columns"], weights):
            got[column] = x + (0 if math.isnan(got[column]) else got[column])
        for x, *there in zip(got, *(m[i] for m in maps)):
            want = sum(there) / BATCH
            assert math.isnan(x) == math.isnan(want) and not abs(x - want) > 1e-4 * max(1, abs(want)), f"mix of {row['label']}: {x}, not {want}"
    return f"{len(line['out_rms'])} sublayers, {len(rows)} mixes"


for folder in folders:
    try:
        print(f"{os.path.basename(folder)}: {check(folder)}", flush=True)
    except AssertionError as e:
        sys.exit(f"{os.path.basename(folder)}: {e}")
