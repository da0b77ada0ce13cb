"""begins.py CONFIG FOLDER: with the weights that a training begins with, these residual systems compute what the standard one does."""
import array
import json
import os
import struct
import subprocess
import sys

MHC = dict(type="mhc", num_streams=4, sinkhorn_iters=20, hc_eps=1e-6, post_mult=2.0)
SYSTEMS = [
    dict(type="denseformer", dilation=1, period=1),
    dict(type="denseformer", dilation=2, period=1),
    dict(type="muddformer", expand_last=True, round64=False),
    dict(type="lime"),
    dict(type="hyper-connections", num_streams=3),
    MHC,
    dict(MHC, num_streams=3, lagged=True),
    dict(type="ihc", num_streams=4, magnitude=2.0, hc_eps=1e-6),
]
config, folder = sys.argv[1:3]


def logits(residual):
    with open(config) as f:
        model = dict(json.load(f), residual=residual, rms_norm_eps=1e-6)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(model, f)
    weights, out = (os.path.join(folder, name) for name in ("begun.safetensors", "logits.npy"))
    subprocess.run(["hadal", "init-weights", folder, "-o", weights, "-q"], check=True)
    subprocess.run(["hadal", "run", folder, "-w", weights, "--tokens", "1,2,3", "--interpret", "--logits", out, "-q"], check=True)
    with open(out, "rb") as f:
        data = f.read()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


standard = logits(dict(type="standard"))
assert max(map(abs, standard)) > 1
for system in SYSTEMS:
    off = max(abs(x - y) for x, y in zip(logits(system), standard, strict=True))
    assert off < 1e-4, (system, off)
