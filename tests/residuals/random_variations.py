#!/usr/bin/env python3
"""Residual systems with everything drawn at random, against the independent computation (reference.py).

    random_variations.py HADAL WORK_FOLDER SEED COUNT

Draws COUNT variations from SEED on: system, its parameters, sizes, heads, depth, eps, a tied head, and how the compiled code is run
(CPU level, threads, split, chunk, tiles of tokens, norm of merges). Each goes the way of variations.py, with its tolerances, and the
gradients of each second one, in the full set of each, through the pipeline with --check-passes. The test runs a few from one seed; a long search is a larger COUNT by hand:

    tests/residuals/random_variations.py build/release/bin/hadal /tmp/random 1000 500

A variation depends on its own seed alone, so that SEED N, COUNT 1 repeats what failed at N. Made-up weights may magnify the
rounding of float32: where only compiled code is off, by little more than its limit and at every level, look at that first.
"""
import os
import random
import subprocess
import sys

from variations import attnres, check_variation, ddl, depth, dreamer, ihc, levels, mhc, model, mrla


def draw_attnres(rng, hidden, layers):
    size = rng.choice([1, 1, 2, 3, 4, 5, 2 * layers, 50])
    query = rng.choice(["learned", "learned", "learned", "input", "none"])
    divisors = [n for n in range(1, hidden + 1) if hidden % n == 0]
    return attnres(size, query=query, normalization=rng.choice(["softmax", "softmax", "sigmoid"]),
                   key_norm=query != "none" and rng.random() < 0.75,
                   window=rng.choice([None, 1, 2, 4]) if size == 1 else None,
                   num_heads=rng.choice([1, rng.choice(divisors)]) if query == "learned" else 1)


def draw_ddl(rng):
    channels = rng.choice([1, 2, 3, 4, 6])
    return ddl(channels, rng.randint(1, channels) if channels > 1 else None, rng.choice([0.01, 0.2]), rng.choice([1, 4.0]))


def draw_residual(rng, hidden, layers, family):
    def flag():
        return rng.random() < 0.5

    systems = {
        "attnres": lambda: draw_attnres(rng, hidden, layers),
        "attnres-normed": lambda: dict(type="attnres-normed", block_size_sublayers=rng.randint(1, 7), eps=rng.choice([1e-6, 0.1])),
        "attnres-gated": lambda: dict(type="attnres-gated", block_size_layers=rng.randint(1, 4), gated=flag(), eps=rng.choice([1e-6, 0.1])),
        "ddl": lambda: draw_ddl(rng),
        "deepnorm": lambda: dict(type="deepnorm", alpha=rng.uniform(-2, 3)),
        "denseformer": lambda: dict(type="denseformer", dilation=rng.randint(1, 4), period=rng.randint(1, 3)),
        "depth-attention": lambda: depth(rng.randint(1, layers), rng.randint(0, 3), rng.randint(1, 3), family == "qwen3" and flag()),
        "hyper-connections": lambda: dict(type="hyper-connections", num_streams=rng.randint(1, 9)),
        "keel": lambda: dict(type="keel", alpha=rng.uniform(-2, 3)),
        "laurel-lr": lambda: dict(type="laurel-lr", rank=rng.randint(1, 24)),
        "mhc": lambda: mhc(rng.randint(1, 6), rng.randint(1, 6), rng.choice([1e-6, 0.002, 0.1]), rng.choice([1, 2.0])),
        "mhc lagged": lambda: {**mhc(rng.randint(1, 6), rng.randint(1, 6), rng.choice([1e-6, 0.1]), rng.choice([1, 2.0])), "lagged": True},
        "ihc": lambda: ihc(rng.randint(1, 6), rng.choice([0, 1e-6, 0.1]), rng.choice([1, 2.0])),
        "gated-streams": lambda: dict(type="gated-streams", num_streams=rng.randint(1, 6), rank=rng.randint(1, 30)),
        "mhc-lite": lambda: dict(type="mhc-lite", num_streams=rng.randint(1, 4)),
        "mgr": lambda: dict(type="mgr", num_streams=rng.randint(1, 9)),
        "realformer": lambda: dict(type="realformer", norm=rng.choice(["pre", "post"]), scores=rng.choice(["sum", "mean"])),
        "lime": lambda: dict(type="lime"),
        **({"hybridnorm": lambda: dict(type="hybridnorm", first_block=rng.choice(["hybrid", "pre"]))} if family == "qwen3" else {}),
        "mrla": lambda: mrla(rng.choice(["table", "base", "light"]), rng.choice([n for n in range(1, hidden + 1) if hidden % n == 0])),
        "dreamer": lambda: dreamer(rng.randint(1, 4), 2 * rng.randint(1, 9), rng.randint(1, 3), rng.choice([None, 3, 1000.0])),
        "ancre": lambda: dict(type="ancre", unit=rng.choice(["sublayer", "layer"]), temperature=rng.choice([0.1, 1, 2.5])),
        "muddformer": lambda: dict(type="muddformer", expand_last=flag(), round64=flag()),
        "siamesenorm": lambda: dict(type="siamesenorm", depth_scale=flag(), input_norm=flag()),
        "value-residual": lambda: dict(type="value-residual", lambda_first=rng.uniform(-1, 2), lambda_own=rng.uniform(-1, 2)),
        **{name: lambda name=name: dict(type=name) for name in ["standard", "rezero", "layerscale", "highway", "elmo", "affine", "gain", "running-mean", "preserving-gate", "normed-residual", "densenet"]},
    }
    often = ["attnres"] * 6 + ["depth-attention"] * 2
    return systems[rng.choice(often + list(systems))]()


def draw_config(rng):
    family = rng.choice(["qwen3", "qwen3", "llama"])
    hidden, layers, groups = rng.choice([1, 3, 8, 16, 17, 20, 24, 32, 33, 37]), rng.randint(1, 4), rng.randint(1, 3)
    return model(draw_residual(rng, hidden, layers, family), model_type=family, hidden_size=hidden, num_hidden_layers=layers,
                 num_key_value_heads=groups, num_attention_heads=groups * rng.randint(1, 4), head_dim=2 * rng.randint(1, 9),
                 intermediate_size=rng.choice([1, 7, 16, 27, 40]), vocab_size=rng.choice([2, 17, 23, 32]),
                 rms_norm_eps=rng.choice([0.1, 0.01, 1e-5]), rope_theta=rng.choice([2, 100.0, 10000.0]),
                 tie_word_embeddings=rng.random() < 0.3)


def draw_flags(rng, known):
    flags = rng.choice(known) + ["--threads", str(rng.randint(1, 3))]
    for option in (["--merge-norm", "row"], ["--chunk", str(rng.randint(1, 8))]):
        flags = flags + option if rng.random() < 0.3 else flags
    return flags


def check_gradients(hadal, folder):
    done = subprocess.run([hadal, "opt", folder, "--gradients", "--passes=default", "--check-passes", "-o", os.devnull], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    program, work, first, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    wrong, known = 0, levels("deep")
    for seed in range(first, first + count):
        rng = random.Random(seed)
        config = draw_config(rng)
        flags, split = draw_flags(rng, known), rng.randint(1, 8)
        what = f"{seed} split {split} {' '.join(flags)} {config}"
        folder = os.path.join(work, f"random-{seed}")
        try:
            e = check_variation(program, folder, config, seed, [flags], split)
            if seed % 2 or os.environ.get("HADAL_FULL") == "1":
                check_gradients(program, os.path.join(folder, "model"))
            print(f"ok {what}: " + ", ".join(f"{x:.1g}" for x in e), flush=True)
        except AssertionError as error:
            wrong += 1
            print(f"FAIL {what}\n{error}", flush=True)
    sys.exit(1 if wrong else 0)
