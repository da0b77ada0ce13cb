#!/usr/bin/env python3
"""A small folder of a published family with random weights, and the logits that transformers computes for it in float64.

    make_published.py FAMILY OUT [--seed N] [--tokens N] [--set PATH=JSON ...] [--drop PATH ...]

FAMILY is a folder with a config.json: a path, or the name of one in tests/published. OUT gets its config.json (with the changes of
--set and --drop; PATH is a field, or fields of objects: text_config.head_dim), model.safetensors (f32, under the names that transformers
writes, which are those of the hub but for a few families), and expected.safetensors with `tokens` and `logits`, as
tests/published/run.sh reads them. Needs transformers 5 and torch, which nothing else of the project does.

float64 throughout: while a model is made and run, the names float32 and float of torch and the method float of tensors mean float64, so
the places where transformers computes in float32 whatever the model's type is do so in float64. Weights are numbers that float32 holds. All
are random, also those that begin as 0 or 1 (gains, gates, biases, queries), so that everything shows. The folder is read back by
transformers and must give the same logits.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import sys

import torch

import transformers
from safetensors.torch import load_file, save_file

FLOAT32, IN_FLOAT32 = torch.float32, torch.Tensor.float
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

PUBLISHED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "published")
DROP = object()
TOWERS = ("model.vision", "model.audio", "vision_", "vit_")        # tensors of other parts of a model, of which one is kept
DERIVED = ("slope_rate", "query_decay", "key_decay", "diagonal_decay")  # stored, but made from the config: not random
HUB_NAMES = {       # names that transformers 5.23 writes, and those that the hub has: by model_type, in this order
    "deepseek_v4": [(r"^model\.", ""), (r"^embed_tokens\.", "embed."), (r"^lm_head\.", "head."), (r"^hc_head\.hc_", "hc_head_"), (r"\.attn\.norm\.", ".attn.kv_norm.")],
    "hy_v4": [(r"\bhc_pre\.(hc_attn_layer|hc_mlp_layer)\.", r"\1.hc_pre."), (r"\bhc_pre\.hc_head\.", "hc_head."), (r"\.(mlp|shared_experts)\.linear_gate\.", r".\1.gate_proj.")],
    **dict.fromkeys(("qwen3_5", "qwen3_5_moe"), [(r"^model\.(?!language_model\.)", "model.language_model.")]),
    "qwen4_exp": [(r"^model\.(?!language_model\.)", "model.language_model.")],
}
PARTS = [f"{part}_conv1d.weight" for part in "qkv"]      # of one tensor in transformers 5.24, which writes it in thirds
AGREE = 1e-12       # of the logits of the folder read back, of their largest


class Unlike(Exception):
    """transformers lacks the family, or does not read what it wrote."""


@contextlib.contextmanager
def float64_throughout():
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    yield
    torch.float32 = torch.float = FLOAT32
    torch.Tensor.float = IN_FLOAT32
    torch.set_default_dtype(FLOAT32)


# changes: path -> value; DROP: the field is left out
def changed_config(folder, changes):
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    for path, value in changes.items():
        *outer, last = path.split(".")
        at = config
        for name in outer:
            at = at[name]
        if value is DROP:
            at.pop(last, None)
        else:
            at[last] = value
    return config


def empty_model(folder):
    config = transformers.AutoConfig.from_pretrained(folder)
    text = config.get_text_config()
    for one in (config, text):
        one.dtype = torch.float64
        one._attn_implementation = one._experts_implementation = "eager"
    for auto in (transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText):
        if type(config) in auto._model_mapping:
            with float64_throughout():
                return auto.from_config(config, attn_implementation="eager").to(torch.float64).eval(), text
    raise Unlike(f"transformers {transformers.__version__} has no language model for {config.model_type}")


def randomise(model, seed):
    torch.manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if name.endswith("tid2eid"):        # the experts of each token: different ones
            experts = model.config.get_text_config().n_routed_experts
            tensor.copy_(torch.stack([torch.randperm(experts)[:tensor.shape[1]] for _ in range(tensor.shape[0])]))
        if not tensor.is_floating_point() or name.endswith(DERIVED):
            continue
        noise = torch.randn(tensor.shape)
        matrix = tensor.dim() >= 2 and tensor.shape[-1] > 1 and tensor.shape[-2] > 1
        if matrix:
            value = noise * (1.5 / tensor.shape[-1] ** 0.5)
        else:
            value = torch.nan_to_num(tensor) + 0.3 * noise
        tensor.copy_(value.to(FLOAT32).to(torch.float64))


def logits_of(model, tokens):
    with torch.no_grad(), float64_throughout():
        return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]


def write(model, config, folder):
    model.to(FLOAT32).save_pretrained(folder)
    with_names_and_parts_of_hub(os.path.join(folder, "model.safetensors"), HUB_NAMES.get(config["model_type"], []))
    with contextlib.suppress(FileNotFoundError):
        os.remove(os.path.join(folder, "generation_config.json"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)


# The language model is what is computed: of what lies beside it one tensor shows that it is there.
def with_names_and_parts_of_hub(path, names):
    tensors = load_file(path)
    towers = sorted(name for name in tensors if name.startswith(TOWERS))
    for name in towers[1:]:
        del tensors[name]
    for of_transformers, of_hub in names:
        tensors = {re.sub(of_transformers, of_hub, name): tensor for name, tensor in tensors.items()}
    uneven = [name[:-len(PARTS[0])] for name, tensor in tensors.items() if name.endswith(PARTS[0])]
    for begin in uneven:                                    # as long as the rows of the maps before them
        rows = [tensors[f"{begin}{part}_proj.weight"].shape[0] for part in "qkv"]
        whole = torch.cat([tensors[begin + part] for part in PARTS])
        tensors.update({begin + part: piece.contiguous() for part, piece in zip(PARTS, whole.split(rows))})
    if names or uneven or len(towers) > 1:
        save_file(tensors, path, metadata={"format": "pt"})


# Buffers that are made from the config (frequencies, decays) are those of a model that was made in float64: tensors are copied into one.
def check_read_back(folder, tokens, logits):
    again, _ = empty_model(folder)
    stored = type(again).from_pretrained(folder, dtype=FLOAT32).state_dict()
    for name, tensor in again.state_dict().items():
        if not name.endswith(DERIVED):
            tensor.copy_(stored[name])
    error = ((logits_of(again, tokens) - logits).abs().max() / logits.abs().max()).item()
    if error > AGREE:
        raise Unlike(f"read back, the logits differ by {error:.2g} of their largest")


def make(family, out, changes, seed=0, length=20, read_back=True):
    config = changed_config(family if os.path.isdir(family) else os.path.join(PUBLISHED, family), changes)
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    torch.manual_seed(seed)     # what is not overwritten below begins as transformers draws it
    model, text = empty_model(out)
    randomise(model, seed)
    # no token twice, where there are enough: in the first layer a selection would have to choose among equals
    order = torch.randperm(text.vocab_size, generator=torch.Generator().manual_seed(seed)).repeat(length // text.vocab_size + 1)
    tokens = order[:length].tolist()
    logits = logits_of(model, tokens)
    write(model, config, out)
    save_file({"tokens": torch.tensor(tokens, dtype=torch.int32), "logits": logits.to(FLOAT32).contiguous()},
              os.path.join(out, "expected.safetensors"))
    if read_back:
        check_read_back(out, tokens, logits)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("family")
    p.add_argument("out")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--tokens", type=int, default=20)
    p.add_argument("--set", action="append", default=[], metavar="PATH=JSON")
    p.add_argument("--drop", action="append", default=[], metavar="PATH")
    p.add_argument("--no-read-back", action="store_true", help="for families whose names transformers does not read back")
    a = p.parse_args()
    new = {path: json.loads(value) for path, value in (change.split("=", 1) for change in a.set)}
    try:
        make(a.family, a.out, {**new, **{path: DROP for path in a.drop}}, a.seed, a.tokens, not a.no_read_back)
    except Unlike as error:
        sys.exit(str(error))
