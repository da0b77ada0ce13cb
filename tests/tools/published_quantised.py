#!/usr/bin/env python3
"""Random variations of the published families whose weights are stored quantised, in random mixes of the forms that are published.

    published_quantised.py HADAL WORK_FOLDER [--first SEED] [--count N] [FAMILY ...]

A folder as published_random.py draws it, with its matrices stored quantised: fp8 in tiles, MXFP8, MXFP4 (packed as compressed-tensors has it), integers of 4 and 8 bits in groups or by row,
symmetric or with zero points; those of a family that has a form of its own (gpt_oss: MXFP4 in blocks, inkling2: MXFP8) in that. Which matrices are quantised, and how, is drawn
by kind of module and then tensor by tensor; the rest is bf16, or f32 where the hub has f32. The logits are those that transformers computes in float64 from exactly the numbers that the files say
(docs/quantised-checkpoints.md; the arithmetic here is a second one). Parts of a weight may lie in different files.
"""
import json
import os
import re

import torch

from make_published import DERIVED, empty_model, logits_of
from model_search import Draw, search
from published_random import in_files, made
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.float64)
# Tensors that checkpoints keep as they are: ends of the model, norms, routers, convolutions, what is no matrix of a linear map
PLAIN = re.compile(r"embed|lm_head|norm|conv|router|mlp\.gate\.|ffn\.gate\.|\.gate\.weight$|altup|laurel|hc_|hyper|ape$|bias|indexer|weights_proj|shared_expert_gate|ple\.|per_layer|scale$|A_log|dt_bias|balancing|^head|compressor|_queries|output_query|rel_logits|b_proj|zero")
FULL = re.compile(r"slope_rate|_decay$|A_log|dt_bias|e_score_correction_bias|sink|hc_|scale$|ape$")     # f32 on the hub, too


def e8m0(r, largest, top):
    k = torch.ceil(torch.log2(torch.clamp(largest, min=1e-30) / top)).clamp(-127, 127)
    return (k + 127).to(torch.uint8), torch.exp2(k.double())


def spread(scale, rows, cols, tr, tc):
    return scale.repeat_interleave(tr, 0).repeat_interleave(tc, 1)[:rows, :cols]


def tiles_of(w, tr, tc):
    rows, cols = w.shape
    return torch.stack([torch.stack([w[i:i + tr, j:j + tc].abs().max() for j in range(0, cols, tc)]) for i in range(0, rows, tr)])


# Each gives the tensors that are stored, by the end of their names, and the matrix that they are, in float64.
def fp8(r, w, tile):
    largest = tiles_of(w, *tile).double()
    scale = (largest / 448 * r.uniform(0.9, 1.1)).float().clamp(min=1e-12)
    each = spread(scale.double(), *w.shape, *tile)
    codes = (w.double() / each).clamp(-448, 448).float().to(torch.float8_e4m3fn)
    return {".weight": codes, ".weight_scale_inv": scale}, codes.double() * each


def mxfp4(r, w):
    rows, cols = w.shape
    lines = w.double().reshape(rows, cols // 32, 32)
    byte, scale = e8m0(r, lines.abs().amax(-1), 6.0)
    x = lines / scale[..., None]
    code = (x.abs()[..., None] - E2M1).abs().argmin(-1)
    value = torch.where(x < 0, -1.0, 1.0) * E2M1[code] * scale[..., None]
    half = (code + 8 * (x < 0)).to(torch.uint8).reshape(rows, cols)
    return {".weight_packed": half[:, ::2] | half[:, 1::2] << 4, ".weight_scale": byte}, value.reshape(rows, cols)


def words(q, bits):
    """Rows of whole numbers as words, n of them in each, the first in the lowest bits; bits beyond the end are random"""
    n = 32 // bits
    rows, cols = q.shape
    full = torch.randint(0, 2 ** bits, (rows, -(-cols // n) * n), dtype=torch.int64)
    full[:, :cols] = q
    word = (full.reshape(rows, -1, n) << (bits * torch.arange(n))).sum(-1)
    return torch.where(word >= 2 ** 31, word - 2 ** 32, word).to(torch.int32)


def integers(r, w, bits, group, symmetric, dtype):
    rows, cols = w.shape
    g = w.double().reshape(rows, -1, group)
    middle, most = 2 ** (bits - 1), 2 ** bits - 1
    if symmetric:
        scale = (g.abs().amax(-1) / (middle - 0.5)).to(dtype)
        zero = torch.full(scale.shape, middle, dtype=torch.int64)
    else:
        low, high = g.amin(-1).clamp(max=0), g.amax(-1).clamp(min=0)
        scale = ((high - low) / most).to(dtype)
        zero = (-low / scale.double().clamp(min=1e-30)).round().clamp(0, most).to(torch.int64)
    s = scale.double().clamp(min=1e-30)
    q = (g / s[..., None] + zero[..., None]).round().clamp(0, most).to(torch.int64)
    value = (q - zero[..., None]).double() * scale.double()[..., None]
    stored = {".weight_packed": words(q.reshape(rows, cols), bits), ".weight_scale": scale, ".weight_shape": torch.tensor([rows, cols])}
    if not symmetric:
        stored[".weight_zero_point"] = words(zero.T.contiguous(), bits).T.contiguous()
    return stored, value.reshape(rows, cols)


def compressed_group(r, form, targets):
    """A group of the config and the function that stores a matrix so; None: it cannot be"""
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "dynamic": False, "observer": "minmax", "observer_kwargs": {}, "actorder": r.of(None, "weight")}
    if form == "mxfp4":
        weights.update(type="float", strategy="group", group_size=32, scale_dtype="torch.uint8", actorder=None)
        return "mxfp4-pack-quantized", weights, lambda w: mxfp4(r, w) if w.shape[1] % 32 == 0 else None
    if form == "float":
        tile = r.of((32, 64), (128, 128), (8, 16))
        weights.update(num_bits=8, type="float", strategy="block", block_structure=list(tile), actorder=None)

        def blocks(w):
            stored, value = fp8(r, w, tile)
            return {".weight": stored[".weight"], ".weight_scale": stored[".weight_scale_inv"]}, value
        return "float-quantized", weights, blocks
    bits = 4 if form == "int4" else 8
    symmetric, group = r.some(), r.of(8, 16, 32, None)
    weights.update(num_bits=bits, symmetric=symmetric, strategy="group" if group else "channel", group_size=group)
    dtype = r.of(torch.bfloat16, torch.bfloat16, torch.float16, torch.float32)
    return "pack-quantized", weights, lambda w: integers(r, w, bits, group or w.shape[1], symmetric, dtype) if w.shape[1] % (group or 1) == 0 else None


KINDS = (("attention", re.compile(r"attn|attention|linear_attn")), ("experts", re.compile(r"experts\.\d")), ("others", re.compile(r"")))


def kind_of(name):
    return next(kind for kind, pattern in KINDS if pattern.search(name))


def quantised(r, tensors):
    """What is stored, what it is, the config's object, and a word for it"""
    names = [n for n, w in tensors.items() if n.endswith(".weight") and w.dim() == 2 and min(w.shape) > 1 and not PLAIN.search(n)]
    stored, numbers, said = {}, {}, []
    if r.some(0.35):
        tile = r.of((128, 128), (128, 128), (16, 16), (24, 40))
        config = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": list(tile)}
        if tile == (128, 128) and r.some(0.3):
            del config["weight_block_size"]
        store = {kind: (lambda w: fp8(r, w, tile)) for kind, _ in KINDS}
        said.append(f"fp8 {tile}")
    else:
        forms = {kind: r.of("int4", "int4", "int8", "mxfp4", "float", None) for kind, _ in KINDS}
        if all(form is None for form in forms.values()):
            forms["others"] = "int4"
        store, groups = {}, {}
        patterns = {"attention": "re:.*(attn|attention).*", "experts": "re:.*experts\\.\\d.*", "others": "Linear"}
        for kind, form in forms.items():
            if form:
                fmt, weights, store[kind] = compressed_group(r, form, None)
                groups[f"group_{len(groups)}"] = {"format": fmt, "targets": [patterns[kind]], "weights": weights, "input_activations": None, "output_activations": None}
                said.append(f"{kind} {form} {weights.get('group_size')} {'' if weights['symmetric'] else 'asymmetric'}")
        config = {"quant_method": "compressed-tensors", "format": "mixed-precision" if len(groups) > 1 else next(iter(groups.values()))["format"], "quantization_status": "compressed", "config_groups": groups, "ignore": r.of([], ["lm_head"])}
    for name, w in tensors.items():
        parts = None
        if name in names and kind_of(name) in store and r.some(0.85):
            parts = store[kind_of(name)](w)
        if parts:
            of, numbers[name] = parts
            stored.update({name[:-len(".weight")] + end: t.contiguous() for end, t in of.items()})
        elif w.is_floating_point() and not FULL.search(name):
            stored[name] = w.to(torch.bfloat16)
            numbers[name] = stored[name].double()
        else:
            stored[name], numbers[name] = w, w.double() if w.is_floating_point() else w
    return stored, numbers, config, said


def computed(folder, numbers, tokens, config):
    """The logits of these numbers; transformers reads them from a plain folder in float64"""
    plain = os.path.join(folder, "plain")
    os.makedirs(plain, exist_ok=True)
    with open(os.path.join(plain, "config.json"), "w") as f:
        json.dump(config, f)
    save_file({k: t.contiguous() for k, t in numbers.items()}, os.path.join(plain, "model.safetensors"), metadata={"format": "pt"})
    model, _ = empty_model(plain)
    of_file = type(model).from_pretrained(plain, dtype=torch.float64).state_dict()
    for name, tensor in model.state_dict().items():
        if not name.endswith(DERIVED):
            tensor.copy_(of_file[name])
    return logits_of(model, tokens)


def made_quantised(family, seed, folder):
    changes, said = made(family, seed, folder, plain=True)
    r = Draw(f"quantised {family} {seed}")
    torch.manual_seed(seed)
    weights = os.path.join(folder, "model.safetensors")
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    stored, numbers, quantisation, words_ = quantised(r, load_file(weights))
    logits = computed(folder, numbers, expected["tokens"].tolist(), config)
    inside = config.get("text_config") if r.some(0.3) else None
    (config if inside is None else inside)["quantization_config"] = quantisation
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    save_file(stored, weights, metadata={"format": "pt"})
    save_file({"tokens": expected["tokens"], "logits": logits.float().contiguous()}, os.path.join(folder, "expected.safetensors"))
    if r.some(0.3):
        in_files(folder, r)
        words_.append("in files")
    return changes, said + words_


# Families whose names transformers does not read back as the hub has them cannot be computed from other numbers so.
FAMILIES = "llama mistral qwen2 qwen3 mixtral qwen3_moe phi3 granite smollm3 olmo2 olmo3 glm4_moe deepseek_v3 qwen3_next beam minimax longcat_flash hrm_text doge step3p7".split()

if __name__ == "__main__":
    search(made_quantised, Exception, FAMILIES, "q")
