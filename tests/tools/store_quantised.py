#!/usr/bin/env python3
"""A folder of make_published.py with its weights stored as the hub has DeepSeek-V4, and the logits of exactly those numbers.

    store_quantised.py FOLDER OUT

Matrices of attention and shared experts become fp8 (E4M3) in tiles of 128 x 128 with scales that are powers of two, those of routed experts
pairs of E2M1 in a byte with a scale for 32, the ends of the model, norms and routers bf16; all else stays f32. OUT gets config.json with the
quantization_config of the hub, model.safetensors, and expected.safetensors with the tokens of FOLDER and the logits that transformers
computes in float64 from the numbers that the file holds. Needs transformers 5 and torch.
"""
import json
import os
import re
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

from make_published import FLOAT32, empty_model, logits_of

FP8 = re.compile(r"\.attn\.(wq_a|wq_b|wkv|wo_a|wo_b|indexer\.wq_b)\.weight$|\.shared_experts\.w[123]\.weight$")
FP4 = re.compile(r"\.experts\.\d+\.w[123]\.weight$")
HALF = re.compile(r"(norm|embed|head|gate|wgate|wkv|weights_proj)\.weight$")
TILE, LINE = 128, 32
E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def power_of_two(largest, top):
    """The smallest 2^k with largest <= top 2^k, as the byte of E8M0 (k + 127) and as a number"""
    k = torch.ceil(torch.log2(torch.clamp(largest, min=1e-30) / top)).clamp(-127, 127)
    return (k + 127).to(torch.uint8), torch.exp2(k)


def fp8(w):
    rows, columns = w.shape
    largest = torch.stack([torch.stack([w[r:r + TILE, c:c + TILE].abs().max() for c in range(0, columns, TILE)]) for r in range(0, rows, TILE)])
    byte, scale = power_of_two(largest, 448.0)
    each = scale.repeat_interleave(TILE, 0).repeat_interleave(TILE, 1)[:rows, :columns]
    codes = (w / each).to(torch.float8_e4m3fn)
    return codes, byte.view(torch.float8_e8m0fnu), codes.to(FLOAT32) * each


def fp4(w):
    rows, columns = w.shape
    lines = w.reshape(rows, columns // LINE, LINE)
    byte, scale = power_of_two(lines.abs().amax(-1), 6.0)
    x = lines / scale[:, :, None]
    code = (x.abs()[..., None] - E2M1).abs().argmin(-1)
    value = torch.sign(x) * E2M1[code] * scale[:, :, None]
    half = (code + 8 * (x < 0)).to(torch.uint8).reshape(rows, columns)
    return (half[:, ::2] | half[:, 1::2] << 4).view(torch.int8), byte.view(torch.float8_e8m0fnu), value.reshape(rows, columns)


def stored_and_read(tensors):
    stored, read = {}, {}
    for name, w in tensors.items():
        quantise = fp8 if FP8.search(name) else fp4 if FP4.search(name) else None
        if quantise:
            stored[name], stored[name.replace(".weight", ".scale")], read[name] = (t.contiguous() for t in quantise(w))
        elif HALF.search(name) and w.is_floating_point():
            stored[name] = w.to(torch.bfloat16)
            read[name] = stored[name].to(FLOAT32)
        else:
            stored[name] = read[name] = w
    return stored, read


def logits_of_folder(folder, tokens):
    model, _ = empty_model(folder)
    of_file = type(model).from_pretrained(folder, dtype=FLOAT32).state_dict()
    for name, tensor in model.state_dict().items():
        tensor.copy_(of_file[name])
    return logits_of(model, tokens)


if __name__ == "__main__":
    folder, out = sys.argv[1:]
    stored, read = stored_and_read(load_file(os.path.join(folder, "model.safetensors")))
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    with tempfile.TemporaryDirectory() as plain:
        shutil.copy(os.path.join(folder, "config.json"), plain)
        save_file(read, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
        logits = logits_of_folder(plain, expected["tokens"].tolist())
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    config["quantization_config"] = dict(quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", scale_fmt="ue8m0", weight_block_size=[TILE, TILE])
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    save_file(stored, os.path.join(out, "model.safetensors"), metadata={"format": "pt"})
    save_file({"tokens": expected["tokens"], "logits": logits.to(FLOAT32).contiguous()}, os.path.join(out, "expected.safetensors"))
