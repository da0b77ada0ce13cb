#!/usr/bin/env python3
"""Random divisions of random models, against the undivided library (ranks_compare).

    divided_random.py HADAL WORK_FOLDER [--first SEED] [--count N] [FAMILY ...]

A family is `residual`, a random residual system with odd sizes on Llama or Qwen3 layers (tests/residuals), or a folder of
tests/published, with the recurrences, latents, experts and shared caches that it has. Drawn are the numbers of ranks, of
stages and of their runs of layers, from how many tokens on rows are divided, chunks, tiles beside exchanges, and how many
tokens: so heads, features, vocabulary and tokens that ranks do not divide, and ranks without any. Weights are f32: shares of
matrices this small fall into other groups, or are read by row programs, which have them in f32, so that rounding differs.

Prompts at once and in pieces, single tokens and batches may differ by 1e-5 of the largest logit more from the evaluator's
logits than the undivided library's do, as in tests/ranks/run.sh. Where sums are so badly conditioned that last bits of the
weights move logits by more, the line says by how much (`shaken`), and the limit is four times that: it is one draw of such
bits, of the weights alone. A wrong row or head moves logits by 1e-2. Too few layers for so many
runs are `refused`. A folder stays where something is wrong. Some 3 s of CPU time a model.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "residuals"))

from model_search import Draw, distance, errors_of, npy, search  # noqa: E402
from random_variations import draw_config  # noqa: E402
from reference import Model  # noqa: E402
from variations import write_weights  # noqa: E402

LIMIT = 1e-5
MOST_RANKS = 8                              # of ranks_compare
REFUSED = ("the layers cannot be cut into", "makes nothing that the next one needs")
LATE = 1.2e-7                               # a last bit of f32


def published():
    return sorted(p.name for p in (TESTS / "published").iterdir() if (p / "config.json").exists())


def make(family, seed, folder):
    os.makedirs(folder, exist_ok=True)
    r = Draw(f"{family} {seed}")
    if family == "residual":
        config = draw_config(r)
        config["num_hidden_layers"] = r.randrange(1, 7)
        config["vocab_size"] = r.of(2, 17, 23, 32, 61)
        model = Model(config, seed)
        model.run([0, 1])                   # weights are made up where they are first read
        write_weights(f"{folder}/model.safetensors", model.weights)
        Path(folder, "config.json").write_text(json.dumps(config))
        return config, [config["residual"]["type"]]
    for path in (TESTS / "published" / family).iterdir():
        shutil.copy(path, folder)
    return {}, []


def draw_division(r):
    stages = r.of(1, 1, 2, 2, 3, 4)
    ranks = r.randrange(2 if stages == 1 else 1, min(7, MOST_RANKS // stages) + 1)
    runs = r.of(1, 1, 2, 3) if stages > 1 else 1
    flags = []
    if ranks > 1:
        flags += ["--ranks", str(ranks), "--divide-from", str(r.of(ranks, ranks, 1, 2, ranks + 1, 100))]
        flags += r.of([], [], ["--overlap", "off"], ["--overlap", str(r.randrange(2, 6))])
    if stages > 1:
        flags += ["--stages", str(stages), "--virtual-stages", str(runs)]
    return ranks, stages, flags


class Work:
    def __init__(self, hadal, folder):
        self.hadal, self.folder = hadal, folder

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def call(self, *arguments):
        return subprocess.run([self.hadal, *arguments], capture_output=True, text=True)

    def exact(self, tokens, name, *flags):
        done = self.call("run", self.folder, "--interpret", "--tokens", tokens, "--logits", self.at(name), *flags)
        assert done.returncode == 0, errors_of(done)
        return self.at(name)


def shaken(work, tokens, seed):
    """How far random last bits of the weights move the evaluator's logits"""
    import struct

    source = work.at("model.safetensors")
    data = bytearray(Path(source).read_bytes())
    n = struct.unpack("<Q", data[:8])[0]
    head, r = json.loads(data[8:8 + n]), Draw(seed)
    for name, entry in head.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        a, b = (8 + n + x for x in entry["data_offsets"])
        values = struct.unpack(f"<{(b - a) // 4}f", data[a:b])
        data[a:b] = struct.pack(f"<{len(values)}f", *(x * (1 + r.choice((-1, 1)) * LATE) for x in values))
    os.makedirs(work.at("shaken"), exist_ok=True)
    shutil.copy(work.at("config.json"), work.at("shaken"))
    Path(work.at("shaken", "model.safetensors")).write_bytes(data)
    other = Work(work.hadal, work.at("shaken"))
    return distance(npy(other.exact(tokens, "exact.npy")), npy(work.at("exact.npy")))


def checked(hadal, folder):
    r, work = Draw("how " + os.path.basename(folder)), Work(os.path.abspath(hadal), folder)
    compare = os.path.join(os.path.dirname(work.hadal), "..", "tests", "ranks_compare")
    os.makedirs(work.at("out"), exist_ok=True)
    ranks, stages, division = draw_division(r)
    n = str(r.randrange(22, 61))
    common = [folder, "--chunk", str(r.of(1, 3, 5, 8, 16, 16, 512)), "--target-cpu", "native"]
    what = " ".join([f"{ranks}x{stages}", n, *division, *common[1:3]])
    whole = work.call("compile", *common, "-o", work.at("out", "whole"))
    assert whole.returncode == 0, errors_of(whole)
    parts = work.call("compile", *common, *division, "-o", work.at("out", "parts"))
    if parts.returncode and any(text in parts.stderr for text in REFUSED):
        shutil.rmtree(folder)
        return [("refused", what)]
    assert parts.returncode == 0, (what, errors_of(parts))
    tokens = subprocess.run([compare, "--tokens", work.at("out", "libwhole.so"), n], capture_output=True, text=True, check=True).stdout.strip()
    exact = work.exact(tokens, "exact.npy")
    library, shape = ("libparts_s%d.so", f"{ranks}x{stages}") if stages > 1 else ("libparts.so", str(ranks))

    def across(limit):
        return subprocess.run([compare, work.at("out", "libwhole.so"), work.at("out", "whole.weights"), work.at("out", library), shape, n, str(limit), "-", exact],
                              capture_output=True, text=True, timeout=300)
    limit, said = LIMIT, ""
    done = across(limit)
    if done.returncode:
        moved = shaken(work, tokens, os.path.basename(folder))
        limit, said = max(LIMIT, 4 * moved), f", shaken {moved:.1e}"
        done = across(limit)
    if done.returncode:
        return [(what, f"WRONG {done.returncode} {done.stdout[:200]} {done.stderr[-300:]}{said}")]
    shutil.rmtree(folder)
    return [(what, done.stdout.splitlines()[0].split("; ")[-1] + said)]


if __name__ == "__main__":
    search(make, (AssertionError, subprocess.SubprocessError), ["residual", *published()], "divided-", checked)
