#!/usr/bin/env python3
"""Published families compiled by Hadal beside llama.cpp with the same weights, in turn.

Shapes are those of bench/specs (gpt_oss, qwen3_moe, gemma3n, ling), with random weights in bf16 from
which both are packed. Each family is first built at a small size in f32, and the logits of both
compared: a file that is another model ends the run. Then rounds as compare.py has them: each model has
a process of its own, all but the one whose turn it is are stopped; a prefill, then single tokens
behind it; figures are medians of rounds, ratios those of a round. Each round ends with the limits of
the machine, and what a token reads of weights in each program is held against the read limit.

  families.py --hadal build/release/bin/hadal --families gpt_oss,ling --types bf16,q4
  families.py --types bf16 --compile= --compile='--activations int8,bf16'
  PYTHONPATH=.../llama-cpp-python:.../gguf-py python3 families.py --work DIR --json out.json
"""
import argparse
import filecmp
import json
import os
import re
import shlex
import shutil
import statistics
import tempfile

import compare
import family_gguf
import models
from checkpoint import Missing

SPECS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "specs")
FORMS = {"f32": "f32", "bf16": "bf16", "q4": "q4_0", "q8": "q8_0"}

# Logits of the small models in f32, root mean square of the difference over that of the logits, and the tokens before them:
# llama.cpp's caches are f16. Gemma 3n does not scale its scores, which are large with random weights, so that rounded keys move
# them, more with each token that is seen (1 token: 0.003, 4: 0.006, 64: 0.16, 512: 0.51); models that have nothing to do with
# each other are at 1.4.
SAME = {"gpt_oss": (0.02, 512), "qwen3_moe": (0.02, 512), "gemma3n": (0.02, 4), "ling": (0.02, 512)}

# For each family: what config.json leaves to its defaults, what the peer has as constants (Gemma 3n: caches are shared from
# layer 20 on, the first 10 layers are sparse, embeddings for layers have 256 entries), and the small model.
SHAPES = {
    "gpt_oss": {"more": {"rms_norm_eps": 1e-5},
                "small": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                          "intermediate_size": 96, "vocab_size": 256}},
    "qwen3_moe": {"more": {"rms_norm_eps": 1e-6},
                  "small": {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
                            "moe_intermediate_size": 64, "num_experts": 8, "num_experts_per_tok": 2, "vocab_size": 256}},
    "gemma3n": {"more": {"rms_norm_eps": 1e-6, "rope_theta": 1e6, "num_hidden_layers": 25, "num_kv_shared_layers": 5,
                         "activation_sparsity_pattern": None},
                "small": {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
                          "intermediate_size": 4096, "vocab_size": 256, "vocab_size_per_layer_input": 256}},
}

# Parameters of the Ling-like spec, with the names that config.json has for them.
LING = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "head_dim": "head_dim",
        "latent": "kv_lora_rank", "q_rank": "q_lora_rank", "experts": "num_experts", "chosen": "num_experts_per_tok",
        "width": "moe_intermediate_size", "ff": "intermediate_size", "vocab": "vocab_size", "theta": "rope_theta",
        "eps": "rms_norm_eps"}
LING_SHAPE = dict(layers=8, hidden=1536, heads=16, head_dim=128, latent=512, q_rank=256, experts=128, chosen=8, width=512,
                  ff=4608, vocab=157184, theta=6e6, eps=1e-6)
LING_SMALL = dict(layers=4, hidden=128, heads=2, latent=64, q_rank=64, experts=16, chosen=4, width=64, ff=128, vocab=256)


class Subject:
    """A family at one size: what Hadal's library and the GGUF file are made from, in one directory."""

    def __init__(self, a, family, small):
        self.a, self.family = a, family
        self.folder = os.path.join(a.work, f"{family}-{'small' if small else 'full'}")
        os.makedirs(self.folder, exist_ok=True)
        if family == "ling":
            shape = {**LING_SHAPE, **(LING_SMALL if small else {"layers": a.ling_layers})}
            self.spec = [os.path.join(SPECS, "ling.hadal"), *(x for k, v in shape.items() for x in ("-D", f"{k}={v}"))]
            self.config = {LING[k]: v for k, v in shape.items()}
            self.config["key_length"] = shape["latent"] + 64
        else:
            with open(os.path.join(SPECS, family, "config.json"), encoding="utf-8") as f:
                config = json.load(f)
            config.update(SHAPES[family]["more"])
            config.update(SHAPES[family]["small"] if small else {})
            with open(os.path.join(self.folder, "config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f, indent=1)
            self.spec, self.config = [self.folder], config
        self.shape = Tokens(self.config["vocab_size"])

    def gguf(self, form):
        return gguf_path(self.folder, self.family, form)

    def weights(self):
        path = os.path.join(self.folder, "weights.bf16.st")  # not the name of a model folder's own weights
        if not os.path.exists(path):
            compare.run([self.a.hadal, "init-weights", "--draw-all", *self.spec, "--weights-dtype", "bf16", "-q", "-o", f"{path}.part"])
            os.replace(f"{path}.part", path)
        return path

    def library(self, kind, options=""):
        """The library; compiled again if hadal is newer. Most options do not change the weights, so these files are kept
        once."""
        name = re.sub(r"[\W_]+", "_", f"{self.family}_{kind}_{options}").strip("_")
        path, plain = (os.path.join(self.folder, x) for x in (name, f"{self.family}_{kind}"))
        made = os.path.join(self.folder, f"lib{name}.so")
        if not os.path.exists(made) or os.path.getmtime(made) < os.path.getmtime(shutil.which(self.a.hadal)):
            compare.run([self.a.hadal, "compile", *self.spec, "-w", self.weights(), "--weights-dtype", kind, "--target-cpu",
                         "native", "-q", *shlex.split(options), "-o", path])
            ours, first = f"{path}.weights", f"{plain}.weights"
            if path != plain and os.path.exists(first) and filecmp.cmp(ours, first, shallow=False):
                os.link(first, f"{ours}.part")
                os.replace(f"{ours}.part", ours)
        return path


def gguf_path(folder, family, form):
    return os.path.join(folder, f"{family}-{form}.gguf")


class Tokens:
    def __init__(self, vocab):
        self.vocab = vocab

    def token(self, position):
        return (7919 * position + 11) % self.vocab


class Onward:
    """Tokens after a prefix continue from where the last call ended, since the state of a recurrence cannot be shortened."""

    length = 0

    def forward(self, past, n):
        start = self.length if past else 0
        super().forward(start, n)
        self.length = start + n


class HadalFamily(Onward, models.Hadal):
    pass


class LlamaFamily(Onward, models.Llama):
    """llama.cpp on a family's file; `weights` is what the file is made from."""

    def file(self, form, weights, folder, threads):
        family, config, checkpoint = weights
        source, path = (gguf_path(folder, family, x) for x in ("bf16", form))
        if not os.path.exists(source):
            family_gguf.write(family, config, checkpoint, source)
        if not os.path.exists(path):
            self.quantise(source, path, form, threads)
        return path


def open_all(a, subject, kind, ways, entries):
    """Starts Hadal's processes, one for each way to compile, then llama.cpp's; raises Missing."""
    capacity = a.prefill + a.decode + 1
    for path, options in [(subject.library(kind, options), options) for options in ways]:
        entries.append(compare.Entry(options, True, HadalFamily, path, "Hadal", subject.shape, a.threads, capacity))
    made_of = (subject.family, subject.config, subject.weights())
    entries.append(compare.Entry("llama.cpp", True, LlamaFamily, FORMS[kind], made_of, subject.shape, a.threads, capacity,
                                 subject.folder))


def difference(entries, n):
    """The difference of the last entry's rows, after a prefill of n tokens and after one more, from those of the first entry:
    root mean square over that of the first entry's rows."""
    rows = [e.worker.logits(0, n) + e.worker.logits(n, 1) for e in entries]
    ours, theirs = rows[0], rows[-1]
    return (sum((x - y) ** 2 for x, y in zip(ours, theirs)) / sum(x * x for x in ours)) ** 0.5


def with_all(a, subject, kind, ways, then):
    """The result of then(entries), with all entries open."""
    entries = []
    try:
        open_all(a, subject, kind, ways, entries)
        return then(entries)
    finally:
        for e in entries:
            e.worker.close()


def check_same(a, family):
    most, tokens = SAME[family]
    off = with_all(a, Subject(a, family, True), "f32", [""], lambda entries: difference(entries, min(tokens, a.prefill)))
    if not off < most:
        compare.fail(f"{family}: Hadal and llama.cpp do not compute the same small model: logits differ by {off:.2g} of "
                     f"their size, more than {most}")
    return off


def limits(a, library):
    """FLOP/s and bytes/s of the machine at this moment, and the bytes that the first token of a sequence reads in this
    library."""
    row = json.loads(compare.run([a.hadal, "bench", library, "--json", "--rounds", "1", "--threads", str(a.threads),
                                  "--prefill", "1", "--decode", ""]))["rows"][0]
    return {"fma": row["fma_limit"], "read": row["read_limit"], "bytes": row["bytes"]}


def measured(a, subject, kind, entries):
    """A row for each way to compile."""
    *ours, llama = entries
    difference(entries, a.prefill)  # warms up as well
    libraries, seen = [subject.library(kind, e.name) for e in ours], []
    theirs = family_gguf.read_by_a_token(subject.gguf(FORMS[kind]), subject.config)
    read = [{"hadal": limits(a, x)["bytes"], "llama": theirs} for x in libraries]
    for r in range(a.rounds):
        for e in entries if r % 2 == 0 else reversed(entries):
            compare.measure(e, a)
        seen.append(limits(a, libraries[0]))
    return [row_of(a, e, llama, x, seen) for e, x in zip(ours, read)]


def row_of(a, hadal, llama, read, seen):
    row = {"compile": hadal.name, "bytes": read, "limits": seen}
    for phase in a.phases:
        times = {"hadal": hadal.times[phase], "llama": llama.times[phase]}
        ratios = [y / x for x, y in zip(times["hadal"], times["llama"])]
        n = a.prefill if phase == "prefill" else 1
        row[phase] = {who: n / statistics.median(times[who]) for who in times}
        row[phase]["ratio"] = compare.quartiles(ratios)
        if phase == "decode":
            row[phase]["share"] = {who: statistics.median(read[who] / t / x["read"] for t, x in zip(times[who], seen))
                                   for who in times}
    return row


def text_of(row, a):
    text = f"{row['family']:10s} {row['type']:5s}" + (f" {row['compile']}" if row["compile"] else "")
    for phase in a.phases:
        r, q = row[phase], row[phase]["ratio"]
        text += (f"  {phase} {r['hadal']:8.1f} and {r['llama']:8.1f} tok/s, "
                 f"{q['median']:.2f} ({q['low']:.2f} .. {q['high']:.2f}) times as fast")
    read, share, limit = row["bytes"], row["decode"]["share"], [x["read"] for x in row["limits"]]
    return text + (f"; a token reads {read['hadal'] * 1e-6:.0f} and {read['llama'] * 1e-6:.0f} MB of weights, "
                   f"{share['hadal']:.2f} and {share['llama']:.2f} of read ({min(limit) * 1e-9:.1f} .. "
                   f"{max(limit) * 1e-9:.1f} GB/s)")


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hadal", default="hadal", metavar="PATH", help="the compiler (hadal)")
    p.add_argument("--families", default=",".join(family_gguf.FAMILIES), metavar="LIST")
    p.add_argument("--types", default="bf16,q4", metavar="LIST", help="f32, bf16, q8, q4 (bf16,q4)")
    p.add_argument("--compile", action="append", metavar="OPTIONS",
                   help="options of hadal compile for Hadal's models; several times: more models, a line for each")
    p.add_argument("--threads", type=compare.number, default=2, metavar="N")
    p.add_argument("--prefill", type=compare.number, default=512, metavar="N", help="tokens, up to 512 (512)")
    p.add_argument("--decode", type=compare.number, default=8, metavar="N", help="tokens a round (8)")
    p.add_argument("--rounds", type=compare.number, default=5, metavar="N")
    p.add_argument("--ling-layers", type=compare.number, default=24, metavar="N", help="of 24, in steps of 4")
    p.add_argument("--check", action="store_true", help="compare the small models alone")
    p.add_argument("--prepare", action="store_true", help="make the files of all models in --work, measure nothing")
    p.add_argument("--work", metavar="DIR", help="keep files here for the next run, 10 GB a family (a temporary folder)")
    p.add_argument("--json", metavar="FILE", help="write all figures here")
    a = p.parse_args()
    a.families = compare.listed(a.families, list(family_gguf.FAMILIES), "family")
    a.types = compare.listed(a.types, list(FORMS), "type")
    a.compile = a.compile or [""]
    a.phases = ("prefill", "decode")
    if a.prefill > 512:
        compare.fail(f"a prefill of {a.prefill}: up to 512")
    if not shutil.which(a.hadal):
        compare.fail(f"there is no {a.hadal}; --hadal PATH names the compiler")
    return a


def main():
    a = arguments()
    rows, left_out = [], []
    with tempfile.TemporaryDirectory(prefix="hadal-peers-") as folder:
        a.work = a.work or folder
        for family in a.families:
            try:
                print(f"{family}: small models differ by {check_same(a, family):.1e}", flush=True)
                for kind in a.types if not a.check else ():
                    subject = Subject(a, family, False)
                    if a.prepare:
                        with_all(a, subject, kind, a.compile, lambda entries: None)
                        continue
                    for row in with_all(a, subject, kind, a.compile, lambda entries: measured(a, subject, kind, entries)):
                        rows.append({"family": family, "type": kind, **row})
                        print(text_of(rows[-1], a), flush=True)
            except Missing as e:
                left_out.append({"family": family, "reason": str(e)})
                print(f"{family} is left out: {e}", flush=True)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-family-peers-1", "threads": a.threads, "prefill": a.prefill, "rounds": a.rounds,
                       "rows": rows, "left_out": left_out}, f, indent=1)


if __name__ == "__main__":
    main()
