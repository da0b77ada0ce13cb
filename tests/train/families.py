"""Checkpoints of runs are models: hadal train and hadal eval agree about what a run has made.

    families.py HADAL TESTS WORK     TESTS: the folder with golden/ and published/

Of each golden case and published family a folder is trained for two steps on drawn ids. The last evaluation, by the parameters in the
trainer, is the loss that hadal eval takes of the checkpoint, by the names, shapes and numbers that are in its files. Weights that are
stored as codes are rejected. Two folders; all of them in the full set."""
import glob
import json
import os
import random
import shutil
import struct
import subprocess
import sys

hadal, tests, work = sys.argv[1:]
shutil.rmtree(work, ignore_errors=True)
os.makedirs(work)
folders = [os.path.dirname(c) for c in sorted(glob.glob(os.path.join(tests, "golden", "*", "config.json")) +
                                              glob.glob(os.path.join(tests, "published", "*", "config.json")))]
if os.environ.get("HADAL_FULL") != "1":
    folders = [f for f in folders if os.path.basename(f) in ("attnres-block", "qwen4_exp")]
assert folders


def run(*command):
    return subprocess.run([hadal, *command, "-q"], capture_output=True, text=True)


def vocabulary(folder):
    with open(os.path.join(folder, "expected.safetensors"), "rb") as f:
        return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))["logits"]["shape"][1]


def check(folder):
    name = os.path.basename(os.path.dirname(folder)) + "-" + os.path.basename(folder)
    data, to = os.path.join(work, name + ".i32"), os.path.join(work, name)
    draw, vocab = random.Random(name), vocabulary(folder)
    with open(data, "wb") as f:
        f.write(struct.pack("<60i", *(draw.randrange(vocab) for _ in range(60))))
    done = run("train", folder, "--data", data, "--eval-data", data, "--context", "11", "--batch", "2", "--steps", "2", "--warmup", "0", "-o", to)
    if "is quantised: it has no gradient" in done.stderr:
        assert done.returncode == 1 and not os.path.exists(to)
        return "codes"
    assert done.returncode == 0, done.stderr
    with open(os.path.join(to, "log.jsonl"), encoding="ascii") as f:
        want = json.loads(f.readlines()[-1])["eval_loss"]
    done = run("eval", os.path.join(to, "checkpoint-2"), "--data", data, "--context", "12", "--json")
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)["loss"]
    assert abs(got - want) <= 2e-5 * (1 + want), f"{want} in the run, {got} of its checkpoint"
    return "as promised"


for folder in folders:
    try:
        print(f"{os.path.basename(folder)}: {check(folder)}", flush=True)
    except AssertionError as e:
        sys.exit(f"{os.path.basename(folder)}: {e}")
