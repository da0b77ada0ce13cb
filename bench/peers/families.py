#!/usr/bin/env python3
"""Published families compiled by Hadal beside llama.cpp with the same weights, in turn.

Shapes are those of bench/specs (gpt_oss, qwen3_moe, gemma3n, ling), with random weights in bf16 from
which both are packed. Each family is first built at a small size in f32, and the logits of both
compared: a file that is another model ends the run. Then rounds as compare.py has them: each model has
a process of its own, all but the one whose turn it is are stopped; a prefill, then single tokens
behind it; figures are medians of rounds, ratios those of a round.

  families.py --hadal build/release/bin/hadal --families gpt_oss,ling --types bf16,q4
  PYTHONPATH=.../llama-cpp-python:.../gguf-py python3 families.py --work DIR --json out.json
"""
import argparse
import json
import os
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

# Of each family: what config.json leaves to its defaults, what the peer has as constants (Gemma 3n: caches are shared from
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

# The Ling-like spec takes parameters; names of config.json beside them.
LING = {"layers": "num_hidden_layers", "hidden": "hidden_size", "heads": "num_attention_heads", "head_dim": "head_dim",
        "latent": "kv_lora_rank", "q_rank": "q_lora_rank", "experts": "num_experts", "chosen": "num_experts_per_tok",
        "width": "moe_intermediate_size", "ff": "intermediate_size", "vocab": "vocab_size", "theta": "rope_theta",
        "eps": "rms_norm_eps"}
LING_SHAPE = dict(layers=8, hidden=1536, heads=16, head_dim=128, latent=512, q_rank=256, experts=128, chosen=8, width=512,
                  ff=4608, vocab=157184, theta=6e6, eps=1e-6)
LING_SMALL = dict(layers=4, hidden=128, heads=2, latent=64, q_rank=64, experts=16, chosen=4, width=64, ff=128, vocab=256)


class Subject:
    """A family at a size: what Hadal and the GGUF file are made of, in a folder."""

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

    def weights(self):
        path = os.path.join(self.folder, "weights.bf16.st")  # not the name of a folder's own weights
        if not os.path.exists(path):
            compare.run([self.a.hadal, "init-weights", *self.spec, "--weights-dtype", "bf16", "-q", "-o", f"{path}.part"])
            os.replace(f"{path}.part", path)
        return path

    def library(self, kind):
        path = os.path.join(self.folder, f"{self.family}_{kind}")
        if not os.path.exists(f"{path}.weights"):
            compare.run([self.a.hadal, "compile", *self.spec, "-w", self.weights(), "--weights-dtype", kind, "--target-cpu",
                         "native", "-q", "-o", path])
        return path


class Tokens:
    def __init__(self, vocab):
        self.vocab = vocab

    def token(self, position):
        return (7919 * position + 11) % self.vocab


class Onward:
    """Tokens behind others go on from where the last call ended: the state of a recurrence cannot be shortened."""

    length = 0

    def forward(self, past, n):
        start = self.length if past else 0
        super().forward(start, n)
        self.length = start + n


class HadalFamily(Onward, models.Hadal):
    pass


class LlamaFamily(Onward, models.Llama):
    """llama.cpp on a family's file; `weights` is what the file is made of."""

    def file(self, form, weights, folder, threads):
        family, config, checkpoint = weights
        source, path = (os.path.join(folder, f"{family}-{x}.gguf") for x in ("bf16", form))
        if not os.path.exists(source):
            family_gguf.write(family, config, checkpoint, source)
        if not os.path.exists(path):
            self.quantise(source, path, form, threads)
        return path


def open_pair(a, subject, kind, entries):
    """Hadal's process, then llama.cpp's; raises Missing."""
    capacity = a.prefill + a.decode + 1
    entries.append(compare.Entry("Hadal", True, HadalFamily, subject.library(kind), "Hadal", subject.shape, a.threads, capacity))
    made_of = (subject.family, subject.config, subject.weights())
    entries.append(compare.Entry("llama.cpp", True, LlamaFamily, FORMS[kind], made_of, subject.shape, a.threads, capacity,
                                 subject.folder))


def difference(entries, n):
    """Of rows after a prefill of n tokens and after one more, root mean square over that of Hadal's."""
    ours, theirs = (e.worker.logits(0, n) + e.worker.logits(n, 1) for e in entries)
    return (sum((x - y) ** 2 for x, y in zip(ours, theirs)) / sum(x * x for x in ours)) ** 0.5


def in_pair(a, family, kind, small, then):
    """then(entries) with both open; what it gives."""
    entries = []
    try:
        open_pair(a, Subject(a, family, small), kind, entries)
        return then(entries)
    finally:
        for e in entries:
            e.worker.close()


def check_same(a, family):
    most, tokens = SAME[family]
    off = in_pair(a, family, "f32", True, lambda entries: difference(entries, min(tokens, a.prefill)))
    if not off < most:
        compare.fail(f"{family}: Hadal and llama.cpp do not compute the same small model: logits differ by {off:.2g} of "
                     f"their size, more than {most}")
    return off


def measured(a, entries):
    difference(entries, a.prefill)  # also the runs that warm up
    for r in range(a.rounds):
        for e in entries if r % 2 == 0 else reversed(entries):
            compare.measure(e, a)
    ours, theirs = entries
    row = {}
    for phase in a.phases:
        ratios = [y / x for x, y in zip(ours.times[phase], theirs.times[phase])]
        n = a.prefill if phase == "prefill" else 1
        row[phase] = {"hadal": n / statistics.median(ours.times[phase]), "llama": n / statistics.median(theirs.times[phase]),
                      "ratio": compare.quartiles(ratios)}
    return row


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hadal", default="hadal", metavar="PATH", help="the compiler (hadal)")
    p.add_argument("--families", default=",".join(family_gguf.FAMILIES), metavar="LIST")
    p.add_argument("--types", default="bf16,q4", metavar="LIST", help="f32, bf16, q8, q4 (bf16,q4)")
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
    a.phases = ("prefill", "decode")
    if a.prefill > 512:
        compare.fail(f"a prefill of {a.prefill}: up to 512")
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
                    if a.prepare:
                        in_pair(a, family, kind, False, lambda entries: None)
                        continue
                    row = in_pair(a, family, kind, False, lambda entries: measured(a, entries))
                    rows.append({"family": family, "type": kind, **row})
                    text = f"{family:10s} {kind:5s}"
                    for phase in a.phases:
                        r, q = row[phase], row[phase]["ratio"]
                        text += (f"  {phase} {r['hadal']:8.1f} and {r['llama']:8.1f} tok/s, "
                                 f"{q['median']:.2f} ({q['low']:.2f} .. {q['high']:.2f}) times as fast")
                    print(text, flush=True)
            except Missing as e:
                left_out.append({"family": family, "reason": str(e)})
                print(f"{family} is left out: {e}", flush=True)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-family-peers-1", "threads": a.threads, "prefill": a.prefill, "rounds": a.rounds,
                       "rows": rows, "left_out": left_out}, f, indent=1)


if __name__ == "__main__":
    main()
