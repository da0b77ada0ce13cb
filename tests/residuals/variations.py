#!/usr/bin/env python3
"""Residual systems with many parameters, against an independent computation (reference.py).

    variations.py HADAL WORK_FOLDER GROUP

Every variation is a folder with a config and weights made up for it. It is run through the reference evaluator, and
compiled, as a prefill and single tokens, at the CPU level of this machine (the group "deep": at all that it can run). Of three variations the short
set evaluates two and compiles one, and of deep ones it does all, at levels in turn; with HADAL_FULL=1 all are. The weights of every depth mix are compared too. Sizes are odd on purpose. Needs Python only.
"""
import array
import json
import os
import struct
import subprocess
import sys

from reference import Model

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import checkpoint  # noqa: E402

EVALUATOR, COMPILED = 1e-6, 1e-4     # max |got - expected| / max |expected|; see tests/golden/run.sh


def model(residual, **changes):
    c = dict(model_type="qwen3", vocab_size=23, hidden_size=20, intermediate_size=27, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=6, hidden_act="silu", rms_norm_eps=0.01, rope_theta=100.0,
             tie_word_embeddings=False)
    return {**c, **changes, "residual": residual}


def attnres(size, **changes):
    return {**dict(type="attnres", block_size_sublayers=size, normalization="softmax", key_norm=True, window=None,
                   num_heads=1, query="learned"), **changes}


def depth(stride, window, loops=1, after=False):
    return dict(type="depth-attention", stride=stride, recent_window=window, loops=loops, k_norm_after_rope=after)


def mhc(n, iters, eps, mult):
    return dict(type="mhc", num_streams=n, sinkhorn_iters=iters, hc_eps=eps, post_mult=mult)


def ihc(n, eps, magnitude):
    return dict(type="ihc", num_streams=n, hc_eps=eps, magnitude=magnitude)


def ddl(channels, kernel=None, eps=0.2, scale=4.0):
    r = dict(type="ddl", value_channels=channels, k_eps=eps, v_sigmoid_scale=scale)
    return {**r, "conv_kernel": kernel} if kernel else r


def mrla(form, heads):
    return dict(type="mrla", form=form, num_heads=heads)


def dreamer(heads, head_dim, loops=1, theta=None):
    return dict(type="dreamer", num_heads=heads, head_dim=head_dim, loops=loops, depth_rope_theta=theta)


LLAMA = dict(model_type="llama", num_attention_heads=3, num_key_value_heads=1, head_dim=4)

GROUPS = {
    "attnres": [
        model(attnres(100)), model(attnres(5), hidden_size=17), model(attnres(2, normalization="sigmoid")),
        model(attnres(3, num_heads=5, normalization="sigmoid")), model(attnres(1, num_heads=20, key_norm=False)),
        model(attnres(1, window=1), num_hidden_layers=2), model(attnres(1, window=2, query="input"), hidden_size=13),
        model(attnres(1, window=2, query="none", key_norm=False)),
        model(attnres(3, query="none", key_norm=False, normalization="sigmoid")),
        model(attnres(4, query="input", key_norm=False, normalization="sigmoid"), **LLAMA),
        model(attnres(1, window=50, num_heads=2), num_hidden_layers=1),
        *(model(dict(type="attnres-normed", block_size_sublayers=n, eps=0.03), hidden_size=d) for n, d in [(1, 20), (2, 17), (4, 33), (9, 20)]),
        model(dict(type="attnres-normed", block_size_sublayers=3, eps=0.2), num_hidden_layers=5, **LLAMA),
        *(model(dict(type="attnres-gated", block_size_layers=n, eps=0.03), hidden_size=d, num_hidden_layers=l) for n, d, l in [(1, 20, 3), (2, 17, 5), (9, 33, 2)]),
        model(dict(type="attnres-gated", block_size_layers=2, gated=False, eps=0.2), num_hidden_layers=5, **LLAMA),
    ],
    "stream": [
        model(dict(type="rezero"), hidden_size=17, **LLAMA), model(dict(type="layerscale"), hidden_size=33),
        model(dict(type="affine"), hidden_size=17), model(dict(type="affine"), num_hidden_layers=1, **LLAMA),
        model(dict(type="gain"), hidden_size=17), model(dict(type="gain"), num_hidden_layers=2, **LLAMA),
        model(dict(type="running-mean"), hidden_size=13), model(dict(type="running-mean"), num_hidden_layers=5, **LLAMA),
        model(dict(type="preserving-gate", temperature=0.7), hidden_size=17), model(dict(type="preserving-gate"), num_hidden_layers=2, **LLAMA),
        model(dict(type="preserving-gate", temperature=0.01), hidden_size=9),
        model(dict(type="normed-residual", alpha=2.5, beta=0.5), hidden_size=15), model(dict(type="normed-residual"), num_hidden_layers=4, **LLAMA),
        model(dict(type="highway"), hidden_size=7, num_hidden_layers=2), model(dict(type="deepnorm", alpha=0.5), hidden_size=19),
        model(dict(type="keel", alpha=1)), model(dict(type="siamesenorm", depth_scale=True, input_norm=False), **LLAMA),
        model(dict(type="siamesenorm", depth_scale=False, input_norm=True), hidden_size=15),
        model(dict(type="laurel-lr", rank=1)), model(dict(type="laurel-lr", rank=19), hidden_size=21),
        model(dict(type="value-residual", lambda_first=-0.25, lambda_own=1.5), **LLAMA),
        model(dict(type="value-residual", lambda_first=1, lambda_own=0)),
    ],
    "states": [
        model(dict(type="elmo"), hidden_size=18, num_hidden_layers=1), model(dict(type="elmo"), num_hidden_layers=6),
        model(dict(type="denseformer", dilation=3, period=1), num_hidden_layers=5),
        model(dict(type="denseformer", dilation=1, period=3), num_hidden_layers=4),
        model(dict(type="denseformer", dilation=9, period=2), num_hidden_layers=2),
        model(dict(type="denseformer", dilation=2, period=9), num_hidden_layers=2),
        model(dict(type="muddformer", expand_last=False, round64=False), hidden_size=11),
        model(dict(type="muddformer", expand_last=True, round64=True), num_hidden_layers=2, **LLAMA),
        model(dict(type="muddformer", expand_last=False, round64=True), num_hidden_layers=1),
    ],
    "streams": [
        *(model(dict(type="hyper-connections", num_streams=n), hidden_size=d, num_hidden_layers=2) for n, d in [(1, 9), (2, 20), (3, 17), (8, 16)]),
        model(mhc(1, 1, 0, 2.0), num_hidden_layers=2), model(mhc(2, 2, 0.01, 1.0), hidden_size=13),
        model(mhc(3, 20, 1e-6, 2.0), num_hidden_layers=2, **LLAMA), model(mhc(5, 3, 0.002, 0.7), num_hidden_layers=1),
        model(mhc(8, 2, 0.001, 2), num_hidden_layers=1, hidden_size=9),
        *(model({**mhc(n, 2, 0.01, 1.5), "collapse": "mean"}, hidden_size=d, num_hidden_layers=2) for n, d in [(1, 9), (3, 20)]),
        *(model({**mhc(n, i, 0.01, f), "lagged": True}, hidden_size=d, num_hidden_layers=2) for n, i, f, d in [(1, 1, 2.0, 9), (2, 3, 1.0, 20), (4, 20, 2.0, 17)]),
        *(model(ihc(n, e, f), hidden_size=d, num_hidden_layers=2) for n, e, f, d in [(1, 0, 2.0, 9), (2, 0.01, 1.0, 20), (5, 1e-6, 0.7, 17)]),
        model(ihc(3, 1e-6, 2.0), num_hidden_layers=1, **LLAMA),
        *(model(dict(type="mhc-lite", num_streams=n), hidden_size=d, num_hidden_layers=2) for n, d in [(1, 9), (2, 15), (3, 20)]),
        model(dict(type="mhc-lite", num_streams=5), num_hidden_layers=1, hidden_size=10),
        *(model(dict(type="gated-streams", num_streams=n, rank=r), hidden_size=d, num_hidden_layers=2) for n, r, d in [(1, 1, 9), (2, 5, 20), (4, 13, 17)]),
        model(dict(type="gated-streams", num_streams=7, rank=40), num_hidden_layers=1, **LLAMA),
        *(model(dict(type="mgr", num_streams=n), hidden_size=d, num_hidden_layers=m) for n, d, m in [(1, 9, 2), (2, 20, 3), (5, 17, 4), (6, 13, 3), (7, 20, 3)]),
        model(dict(type="mgr", num_streams=50), num_hidden_layers=2, **LLAMA), model(dict(type="mgr", num_streams=3), num_hidden_layers=1, **LLAMA),
    ],
    "inside": [
        *(model(dict(type="realformer", norm=norm, scores=scores), **changes) for norm, scores, changes in [
            ("post", "sum", {}), ("pre", "mean", dict(num_hidden_layers=4, num_attention_heads=6)), ("post", "mean", LLAMA), ("pre", "sum", dict(num_hidden_layers=1))]),
        model(dict(type="hybridnorm", first_block="hybrid"), hidden_size=17), model(dict(type="hybridnorm", first_block="pre"), num_hidden_layers=1),
        model(dict(type="hybridnorm", first_block="pre"), num_hidden_layers=4, num_key_value_heads=4),
        model(dict(type="lime"), hidden_size=13), model(dict(type="lime"), num_hidden_layers=5, **LLAMA), model(dict(type="lime"), num_hidden_layers=1),
        model(dict(type="lime"), num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=6, head_dim=4),
    ],
    "ddl": [
        model(ddl(1, eps=0, scale=1), hidden_size=13, **LLAMA), model(ddl(2, 1), num_hidden_layers=2), model(ddl(3, 2), hidden_size=17, num_hidden_layers=2),
        model(ddl(3, 3, 1e-5, 2.5), num_hidden_layers=2), model(ddl(7, 4), num_hidden_layers=1), model(ddl(5, 5), num_hidden_layers=1),
    ],
    "depth-attention": [
        model(depth(1, 0)), model(depth(1, 0, after=True), num_attention_heads=6), model(depth(4, 0), num_hidden_layers=4),
        model(depth(5, 2), num_hidden_layers=5), model(depth(2, 50), **LLAMA), model(depth(2, 1, loops=2), num_hidden_layers=2),
        model(depth(1, 0, loops=3), num_hidden_layers=1), model(depth(2, 1, loops=2, after=True), head_dim=10),
    ],
    "layers": [
        model(dict(type="densenet"), hidden_size=19), model(dict(type="densenet"), num_hidden_layers=1, **LLAMA),
        model(mrla("table", 20)), model(mrla("table", 1), hidden_size=13, num_hidden_layers=2), model(mrla("base", 4)),
        model(mrla("base", 17), hidden_size=17, num_hidden_layers=1), model(mrla("base", 3), hidden_size=33, num_hidden_layers=5, **LLAMA),
        model(mrla("light", 5)), model(mrla("light", 1), hidden_size=11, num_hidden_layers=1, **LLAMA),
        model(dict(type="ancre", unit="layer", temperature=0.05), hidden_size=17), model(dict(type="ancre", unit="layer", temperature=3), num_hidden_layers=1),
        model(dict(type="ancre", unit="sublayer", temperature=1), num_hidden_layers=5, **LLAMA),
        model(dreamer(3, 5)), model(dreamer(1, 2, loops=2, theta=7), hidden_size=13), model(dreamer(2, 10, loops=3, theta=10000.0), num_hidden_layers=1),
        model(dreamer(5, 1, loops=2), num_hidden_layers=2, **LLAMA),
    ],
    # So many sizes of matrices, and numbers of sources, that functions are shared between them. Most deep
    # MUDDFormers with made-up weights magnify the rounding of float32 a thousandfold; this one does not.
    "deep": [
        model(dict(type="denseformer", dilation=1, period=1), num_hidden_layers=11),
        model(dict(type="muddformer", expand_last=False, round64=False), num_hidden_layers=20, hidden_size=11),
        model(attnres(3, query="none", key_norm=False), num_hidden_layers=12, hidden_size=17),
        model(attnres(2), num_hidden_layers=15), model(depth(1, 0), num_hidden_layers=10),
        model(attnres(1), num_hidden_layers=24, hidden_size=33), model(dict(type="realformer", norm="pre", scores="mean"), num_hidden_layers=14),
    ],
}


# ---- files ------------------------------------------------------------------------------------------

def write_weights(path, tensors):
    """{name: (shape, array of floats)}."""
    checkpoint.write(path, {name: ("F32", shape, flat.tobytes()) for name, (shape, flat) in tensors.items()})


def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


def read_mixes(path):
    mixes = {int(name.split(".")[-1]): numbers for name, numbers in checkpoint.read_numbers(path).items()}
    return [mixes[i] for i in range(len(mixes))]


# ---- comparison -------------------------------------------------------------------------------------

def flatten(rows):
    return [x for row in rows for x in row]


def check(what, got, expected, limit):
    assert len(got) == len(expected), f"{what}: {len(got)} numbers instead of {len(expected)}"
    largest = max(abs(x) for x in expected)
    e = max(abs(a - b) for a, b in zip(got, expected)) / largest
    assert e <= limit, f"{what}: e = {e:.2g}, allowed {limit}"
    return e


def run(hadal, folder, tokens, *flags):
    command = [hadal, "run", folder, "--tokens", ",".join(map(str, tokens)), "--logits", f"{folder}/logits.npy", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}"
    return read_npy(f"{folder}/logits.npy")


def levels(group):
    if group != "deep":
        return [[]]
    with open("/proc/cpuinfo") as f:
        flags = f.read()
    needs = {"avx512": "avx512vl", "avx2": "avx2", "baseline": ""}
    return [["--cpu-level", level] for level, flag in needs.items() if flag in flags]


def check_variation(hadal, folder, config, seed, levels, split=4):
    folder = f"{folder}/model"  # whose name symbols begin with: what two variations have in common is translated once (HADAL_CODE_CACHE)
    os.makedirs(folder, exist_ok=True)
    reference = Model(config, seed)
    tokens = [(7 * t * t + 3 * t + seed) % config["vocab_size"] for t in range(9)]
    logits, mixes = reference.run(tokens)
    expected = flatten(logits)
    with open(f"{folder}/config.json", "w") as f:
        json.dump(config, f)
    write_weights(f"{folder}/model.safetensors", reference.weights)
    depth_file = f"{folder}/depth.safetensors"
    errors = [check("evaluator", run(hadal, folder, tokens, "--interpret", "--trace-depth", depth_file), expected, EVALUATOR)]
    if mixes:
        got = read_mixes(depth_file)
        assert len(got) == len(mixes), f"{len(got)} mixes instead of {len(mixes)}"
        for i, mix in enumerate(mixes):
            check(f"depth mix {i}", got[i], flatten(mix), EVALUATOR)
    for level in levels:
        errors.append(check(f"compiled {level}", run(hadal, folder, tokens, "--split", str(split), *level), expected, COMPILED))
    return errors


if __name__ == "__main__":
    program, work, group = sys.argv[1:]
    wrong = 0
    for number, variation in enumerate(GROUPS[group]):
        try:
            every = levels(group)
            if os.environ.get("HADAL_FULL") != "1":
                if group != "deep" and number % 6 in (1, 5):
                    continue
                every = every[number % len(every):][:1] if group == "deep" or number % 3 == 0 else []
            e = check_variation(program, os.path.join(work, f"{group}-{number}"), variation, number, every)
            print(f"ok {number} {json.dumps(variation['residual'])}: " + ", ".join(f"{x:.1g}" for x in e))
        except AssertionError as error:
            wrong += 1
            print(f"FAIL {number} {json.dumps(variation)}\n{error}")
    sys.exit(1 if wrong else 0)
