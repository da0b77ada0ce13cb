"""For every golden case whose residual system has weights: the case without one of them is refused by name.

usage: missing.py HADAL GOLDEN WORK
A tensor is taken away by giving its entry in the header another name of the same length.
"""
import json
import os
import re
import struct
import subprocess
import sys

hadal, golden, work = sys.argv[1:]
WITHOUT = {"standard", "standard-llama", "value-residual", "depth-attention", "depth-attention-looped",
           "depth-attention-published", "realformer-pre", "qwen2", "llama-gelu-linear", "llama3-sharded", "kimi-linear"}


def weights_of(header):
    """Tensors that belong to the residual system: by the names that the contract gives them."""
    own = re.compile(r"residual|_res_(proj|norm|logits)|layernorm_[qkv]")
    unused = re.compile(r"layers\.0\.self_attention_res|layers\.0\.attn_residual\.res_|mlp_residual\.res_")
    return sorted(n for n in header if own.search(n) and not unused.search(n))


cases = 0
for case in sorted(os.listdir(golden)):
    source = os.path.join(golden, case)
    if case in WITHOUT or not os.path.exists(os.path.join(source, "model.safetensors")):
        continue
    data = open(os.path.join(source, "model.safetensors"), "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    names = weights_of(json.loads(data[8:8 + size]))
    assert names, f"{case} has no weights of its own"
    name = names[len(names) // 2]
    header = data[8:8 + size].replace(b'"' + name.encode() + b'"', b'"' + name[:-1].encode() + b'~"')
    target = os.path.join(work, case)
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "model.safetensors"), "wb") as f:
        f.write(data[:8] + header + data[8 + size:])
    with open(os.path.join(target, "config.json"), "w") as f:
        f.write(open(os.path.join(source, "config.json")).read())
    for command in (["run", target, "--interpret", "--tokens", "1,2", "--logits", os.path.join(work, "l.npy")],
                    ["compile", target, "--emit=weights", "-o", os.path.join(work, "out/m")]):
        got = subprocess.run([hadal] + command, capture_output=True, text=True)
        message = f"error: weight '{name}'"
        assert got.returncode != 0 and message in got.stderr and "is missing from the checkpoint" in got.stderr, \
            f"{case}: {command[0]}: {got.returncode}: {got.stderr}"
    cases += 1
print(cases, "systems refuse a checkpoint without their weights")
