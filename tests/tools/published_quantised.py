#!/usr/bin/env python3
"""Random variations of all published families whose weights are stored quantised, in random mixes of the forms that are published.

    published_quantised.py HADAL WORK_FOLDER [--first SEED] [--count N] [FAMILY ...]

A folder as published_random.py draws it, some of its matrices wider than a tile of fp8, stored in the forms of quantised_forms.py: which matrices are quantised, and how, is drawn group by group of the config and then tensor by
tensor; the rest is bf16, or f32 where the hub has f32. Configs are of every method that is read, at the top or in the part that is the language model, or there is none; groups have classes, patterns or names as targets, in any order, and may differ
in nothing but their sizes. Experts lie one by one or stacked, the parts of a weight perhaps in different files.

The logits are those that transformers computes in float64 from exactly the numbers that the files say. Where each element of a file belongs in the model is found by storing a model whose elements count themselves, so families that
transformers does not read back are here, too. Checked are the evaluator, the library with weights as they are and in f32 (limits of tests/published/run.sh), and the library in a narrower type against the evaluator in that type.
"""
import contextlib
import json
import os
import re
import shutil
import subprocess

import torch

from make_published import DERIVED, empty_model, logits_of, write
from model_search import COMPILED, Draw, checked, distance, errors_of, npy, said_of, search
from published_random import FAMILIES, WRAPPERS, in_files, made, stack_experts
from quantised_forms import (WEIGHT, compressed_form, e4m3, integers, module_of, mxfp4_blocks, mxfp4_packed, mxfp4_pairs, nvfp4_experts, nvfp4_modelopt, nvfp4_packed)
from safetensors.torch import load_file, save_file

# Tensors that checkpoints keep as they are: ends of the model, norms, routers, what is no matrix of a linear map
PLAIN = re.compile(r"embed|lm_head|norm|conv|router|mlp\.gate\.|ffn\.gate\.|\.gate\.weight$|altup|laurel|hc_|hyper|ape$|bias|indexer|weights_proj|shared_expert_gate|ple\.|per_layer|scale$|A_log|dt_bias|balancing|^head|compressor|_queries|output_query|rel_logits|b_proj|zero")
FULL = re.compile(r"slope_rate|_decay$|A_log|dt_bias|e_score_correction_bias|sink|hc_|scale$|ape$")     # f32 on the hub, too
NEVER = re.compile(r"norm|conv|visual|vision|audio")
STACK = re.compile(r"experts\.(gate_up_proj|down_proj|w\d+_weight)$|\.moe\.(gate|up|down)_proj\.weight$")
SELF_CHECK = 1e-6       # the stored logits are f32
DRAWS = 12
TYPES = ("q8", "q4", "bf16", "f16", "mxfp4", "nvfp4")


# ---- where the elements of a file are in the model

def of_config(name, tensor):
    """Made from the config; hash multipliers would not even fit a float64"""
    return name.endswith(DERIVED) or not (tensor.is_floating_point() or name.endswith("tid2eid"))


def counted(folder, config):
    """The file of a model whose elements are 0, 1, 2 .. in the order of its state"""
    model, _ = empty_model(folder)
    at = 0
    for name, tensor in model.state_dict().items():
        if not of_config(name, tensor):
            tensor.copy_(torch.arange(at, at + tensor.numel()).reshape(tensor.shape))
        at += tensor.numel()
    if at >= 2 ** 24:
        raise ValueError("more elements than f32 counts")
    beside = os.path.join(folder, "counted")
    write(model, config, beside)
    places = load_file(os.path.join(beside, "model.safetensors"))
    shutil.rmtree(beside)
    return places


class Tie(Exception):
    """Scores of a selection so close that arithmetic decides"""


@contextlib.contextmanager
def without_ties(smallest=1e-4):
    """Nothing that is chosen inside is chosen by a smaller gap (masked scores do not count)"""
    def wide(topk):
        def of(x, k, *rest, **named):
            dim = rest[0] if rest else named.get("dim", -1)
            if k < x.shape[dim]:
                edge = x.transpose(dim, -1).sort(-1, descending=True).values[..., k - 1:k + 1]
                if (edge[..., 0] - edge[..., 1])[(edge > -1e30).all(-1)].lt(smallest).any():
                    raise Tie("a selection is decided by a gap below 1e-4")
            return topk(x, k, *rest, **named)
        return of
    kept = torch.topk, torch.Tensor.topk
    torch.topk, torch.Tensor.topk = wide(kept[0]), wide(kept[1])
    try:
        yield
    finally:
        torch.topk, torch.Tensor.topk = kept


def computed(folder, places, numbers, tokens):
    model, _ = empty_model(folder)
    state = model.state_dict()
    flat = torch.cat([t.double().reshape(-1) for t in state.values()])
    for name, value in numbers.items():
        if name in places and not of_config(name, value):
            flat[places[name].long().reshape(-1)] = value.double().reshape(-1)
    at = 0
    for name, tensor in state.items():
        if not of_config(name, tensor):
            tensor.copy_(flat[at:at + tensor.numel()].reshape(tensor.shape))
        at += tensor.numel()
    return logits_of(model, tokens)


# ---- configs

def pattern_of(r, modules, others):
    """A regular expression for all of these modules and none of those, as Python's match takes it; None: no simple one"""
    last = sorted({m.rsplit(".", 1)[-1] for m in modules})
    tries = [f"re:.*({'|'.join(last)})$", f"re:.*\\.({'|'.join(last)})", "re:.*self_attn.*", "re:.*(attn|attention).*", "re:.*mlp.*", "re:.*experts\\.\\d+\\..*", "re:.*layers\\.[0-9]+\\.mlp\\.(gate|up)_proj$"]
    able = [t for t in tries if all(re.match(t[3:], m) for m in modules) and not any(re.match(t[3:], m) for m in others)]
    return r.choice(able) if able else None


def split(r, modules):
    """Groups of modules, and the targets that a config has for each: names go before patterns, and those before classes"""
    if r.some(0.3) or len(modules) < 3:
        return [(modules, ["Linear"])]
    kind = r.of("kinds", "last", "any")
    if kind == "any":
        chosen = set(r.sample(modules, r.randrange(1, len(modules))))
    elif kind == "last":
        ends = sorted({m.rsplit(".", 1)[-1] for m in modules})
        some = set(r.sample(ends, r.randrange(1, len(ends) + 1)))
        chosen = {m for m in modules if m.rsplit(".", 1)[-1] in some}
    else:
        kinds = [p for p in (r"attn|attention", r"experts\.\d", r"experts", r"mlp|ffn") if any(re.search(p, m) for m in modules)] or [r"."]
        pattern = r.choice(kinds)
        chosen = {m for m in modules if re.search(pattern, m)}
    first, rest = [m for m in modules if m in chosen], [m for m in modules if m not in chosen]
    pattern = pattern_of(r, first, rest)
    groups = [(first, [pattern] if pattern and r.some(0.8) else first)]
    if rest:
        pattern = pattern_of(r, rest, first)
        groups.append((rest, r.of(["Linear"], ["Linear"], [pattern] if pattern else rest, rest)))
    r.shuffle(groups)
    return groups


def ignored(r, plain, quantised):
    """A list of what stays as it is, as configs have it: by name, by pattern, with things that are not there"""
    out = []
    if r.some(0.5):
        out += r.sample(plain, r.randrange(0, len(plain) + 1))
    for text in ("lm_head", "re:.*lm_head", "re:.*norm.*", "re:.*mlp.gate$", "re:.*router.*", "re:^(?!model|layers|language_model).*", "re:visual.*", "model.vision_tower.blocks.0.mlp", "re:.*gate\\.$", "LlamaRMSNorm"):
        text_ = text[3:] if text.startswith("re:") else re.escape(text)
        if r.some(0.2) and not any(re.match(text_, m) for m in quantised):
            out.append(text)
    return out


def compressed(r, modules):
    groups = [(names, targets, compressed_form(r)) for names, targets in split(r, modules)]
    form_of = {m: form for names, _, form in groups for m in names}
    formats = {form.group["format"] for _, _, form in groups}
    config = {"quant_method": "compressed-tensors", "format": formats.pop() if len(formats) == 1 else "mixed-precision", "quantization_status": "compressed",
              "config_groups": {f"group_{i}": {**form.group, "targets": targets} for i, (_, targets, form) in enumerate(groups)}}
    if config["format"] != "mixed-precision" and r.some():
        for group in config["config_groups"].values():
            del group["format"]
    if r.some(0.4):
        config.update(kv_cache_scheme=None, sparsity_config={}, transform_config={}, global_compression_ratio=None, version="0.13.0")
    return form_of, config, "ignore", [f"{form.word}: {len(names)} as {targets if len(targets) == 1 else 'names'}" for names, targets, form in groups]


def fp8(r, modules):
    tile = r.of((128, 128), (128, 128), (128, 128), (16, 16), (24, 40), (64, 32), (1, 32), None, None)
    scales, suffix = r.of("f32", "f32", "bf16", "e8m0"), r.of("_scale_inv", "_scale_inv", "_scale", ".scale")
    config = {"quant_method": "fp8", "activation_scheme": r.of("dynamic", "static")}
    if r.some():
        config["fmt"] = "e4m3"
    if scales == "e8m0" and r.some():
        config["scale_fmt"] = "ue8m0"
    if tile:
        main = e4m3(r, tile, scales, suffix)
        if tile != (128, 128) or r.some(0.7):
            config["weight_block_size"] = list(tile)
    else:
        single = r.of(None, [], [1])
        main = e4m3(r, (1, 0) if single is None else (0, 0), r.of("f32", "bf16"), suffix, single)
        if r.some(0.3):
            config["weight_block_size"] = None
    pairs = mxfp4_pairs(r) if r.some(0.3) else None
    form_of = {m: pairs if pairs and "experts" in m else main for m in modules}
    return form_of, config, "modules_to_not_convert", [main.word] + (["pairs"] if pairs else [])


def mxfp8(r, modules):
    form = e4m3(r, (1, 32), r.of("u8", "e8m0"), r.of("_scale", "_scale_inv"))
    return {m: form for m in modules}, {"quant_method": "mxfp8"}, "modules_to_not_convert", [form.word]


def mxfp4(r, modules):
    form = mxfp4_blocks(r)
    return {m: form for m in modules}, {"quant_method": "mxfp4"}, "modules_to_not_convert", [form.word]


def modelopt(r, modules):
    """NVFP4, or some modules in it and others in FP8 with a scale for each matrix"""
    four, eight = nvfp4_modelopt(r), e4m3(r, (0, 0), "f32", "_scale", [])
    form_of = {m: eight if mixed and r.some(0.4) else four for mixed in [r.some(0.3)] for m in modules}
    config = {"quant_method": "modelopt", "quant_algo": r.of("NVFP4", "NVFP4", "W4A16_NVFP4"), "producer": {"name": "modelopt", "version": "0.47.0"}}
    if eight in form_of.values():
        config["quant_algo"] = "MIXED_PRECISION"
        config["quantized_layers"] = {m: {"quant_algo": "FP8"} if f is eight else {"quant_algo": "NVFP4", "group_size": 16} for m, f in form_of.items()}
    elif r.some():
        config["config_groups"] = {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": False}, "targets": ["Linear"]}}
    if r.some():
        config["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    return form_of, config, "ignore", [config["quant_algo"]]


def without(r, modules):
    """No config: forms that say themselves what they are"""
    forms = [e4m3(r, (128, 128), "f32", "_scale_inv"), e4m3(r, (1, 32), "u8", "_scale"), e4m3(r, (1, 0), "bf16", "_scale"), mxfp4_packed(r), mxfp4_pairs(r), mxfp4_blocks(r), nvfp4_packed(r), nvfp4_modelopt(r), nvfp4_experts(r)]
    forms += [form._replace(fits=lambda name, shape, of=form.fits: of(name, shape) and shape[-1] > 4) for form in (integers(r, r.of(4, 8), r.of(8, 16, 32, 64, None), r.some(), torch.bfloat16) for _ in range(2))]
    some = r.sample(forms, r.randrange(1, 4))
    return {m: r.choice(some) for m in modules}, None, None, ["no config:"] + [f.word for f in some]


# ---- folders

def quantised(r, family, tensors):
    """What is stored, what it is, the config's object, and a word for it"""
    able = lambda n, w: w.is_floating_point() and min(w.shape) > 1 and not NEVER.search(n) and ((w.dim() == 2 and n.endswith(WEIGHT)) or (w.dim() == 3 and STACK.search(n)))
    everything = r.some(0.2)
    names = [n for n, w in tensors.items() if w.dim() > 1 and able(n, w) and (everything or not PLAIN.search(n))]
    # only the gpt_oss of transformers has its experts as the blocks of MXFP4 have them
    blocks = family == "gpt_oss"
    how = r.of(compressed, compressed, compressed, fp8, fp8, mxfp8, modelopt, modelopt, without, *([mxfp4] * 4 if blocks else []))
    stores = lambda form, name: form.fits(name, tensors[name].shape) and (blocks or "blocks" not in form.word)
    for _ in range(DRAWS):      # forms that most of these matrices can have
        form_of, config, list_name, said = how(r, [module_of(n) for n in names])
        if sum(stores(form_of[module_of(n)], n) for n in names) > len(names) // 2:
            break
    share = r.of(1.0, 0.85, 0.4)
    stored, numbers, kept = {}, {}, []
    for name, w in tensors.items():
        form = form_of.get(module_of(name)) if name in names else None
        if form and stores(form, name) and r.some(share):
            parts, numbers[name] = form.store(name, w.double())
            stored.update({n: t.contiguous() for n, t in parts.items()})
            if how is fp8 and name.endswith(WEIGHT) and r.some(0.1):
                stored[module_of(name) + ".input_scale"] = torch.tensor(0.37)
            continue
        if name.endswith(WEIGHT) and w.dim() == 2:
            kept.append(module_of(name))
        if w.is_floating_point() and not FULL.search(name):
            stored[name] = w.to(torch.bfloat16)
            numbers[name] = stored[name].double()
        else:
            stored[name], numbers[name] = w, w.double() if w.is_floating_point() else w
    done = [module_of(n) for n in names if stored.get(n) is None or stored[n].dtype != torch.bfloat16]
    if config is not None and r.some(0.8):
        config[list_name] = ignored(r, kept, done)
    return stored, numbers, config, said + (["everything"] if everything else []) + [f"{len(done)} of {len(names)}"]


def larger(r, changes, where, family):
    """Widths with a tile of fp8 and more, and of whole groups"""
    fixed = ("phi3", "olmo_hybrid", "muse_spark", "qwen2")       # whose width follows from their heads, or from towers
    for name in ("hidden_size", "intermediate_size", "moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "shared_expert_intermediate_size", "share_expert_dim"):
        old = changes.get(where + name)
        if r.some(0.6) and (name != "hidden_size" or family not in fixed) and isinstance(old, int):
            changes[where + name] = r.of(32, 64, 64, 96, 128, 136, 160, 200, 256)


def made_quantised(family, seed, folder):
    for again in range(DRAWS):
        with contextlib.suppress(Tie):
            return made_once(family, seed + again * 10 ** 6, folder)
    raise ValueError("every draw has ties")


def made_once(family, seed, folder):
    changes, said = made(family, seed, folder, plain=True, also=larger)
    r = Draw(f"quantised {family} {seed}")
    torch.manual_seed(seed)
    weights = os.path.join(folder, "model.safetensors")
    expected = load_file(os.path.join(folder, "expected.safetensors"))
    tokens = expected["tokens"].tolist()
    with open(os.path.join(folder, "config.json")) as f:
        config = json.load(f)
    tensors, places = load_file(weights), counted(folder, config)
    again = computed(folder, places, tensors, tokens)
    if (again - expected["logits"]).abs().max() > SELF_CHECK * expected["logits"].abs().max():
        raise ValueError("the model is not that of its file")
    if r.some(0.3) and stack_experts(places) and stack_experts(tensors):
        said.append("experts stacked")
    stored, numbers, quantisation, words = quantised(r, family, tensors)
    with without_ties():
        logits = computed(folder, places, numbers, tokens)
    if family in WRAPPERS and r.some(0.4):
        stored, quantisation, config = wrapped(family, stored, quantisation, config)
        words.append("wrapped")
    outer = config if "text_config" not in config or r.some(0.5) else config["text_config"]
    if quantisation is not None:
        outer["quantization_config"] = quantisation
        if "text_config" in config and r.some(0.3):
            config["quantization_config"] = config["text_config"]["quantization_config"] = quantisation
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(config, f, indent=2)
    save_file(stored, weights, metadata={"format": "pt"})
    save_file({"tokens": expected["tokens"], "logits": logits.float().contiguous()}, os.path.join(folder, "expected.safetensors"))
    if r.some(0.3):
        in_files(folder, r)
        words.append("in files")
    return changes, said + words


def wrapped(family, stored, quantisation, config):
    """As a part of a multimodal checkpoint; names in the config follow"""
    outer, inside, below = WRAPPERS[family]
    rename = lambda name: below + name[len(inside):] if name.startswith(inside) else name
    tower = "model.vision_tower.patch_embed.weight" if outer.startswith("gemma") else "model.visual.patch_embed.weight"
    stored = {**{rename(n): t for n, t in stored.items()}, tower: torch.zeros(8, 3)}
    if quantisation is not None:
        text = json.dumps(quantisation)
        quantisation = json.loads(text.replace('"' + inside, '"' + below)) if inside else quantisation
    return stored, quantisation, {"model_type": outer, "text_config": config, "vision_config": {"hidden_size": 8}}


def in_type(hadal, folder, what):
    """The library in a narrower type against the evaluator in it"""
    tokens, at, library = (os.path.join(folder, n) for n in ("expected.safetensors", "typed.npy", "out/typed"))
    flags = ["--weights-dtype", what]
    run = lambda args: subprocess.run([hadal, *args], capture_output=True, text=True)
    done = run(["run", folder, "--interpret", *flags, "--tokens", tokens + ":tokens", "--logits", at])
    if done.returncode:
        return [("in " + what, f"WRONG {errors_of(done)}")]
    expected = npy(at)
    done = run(["compile", folder, "-o", library, "--target-cpu", "native", "--activations", "f32", *flags])
    if done.returncode:
        return [("compile in " + what, f"WRONG {errors_of(done)}")]
    out = []
    for cut in ([], ["--split", "5,2"]):
        done = run(["run", library, "--tokens", tokens + ":tokens", "--logits", at, *cut])
        out.append(("in " + what, COMPILED, errors_of(done) if done.returncode else distance(npy(at), expected)))
    return said_of(out)


def check(hadal, folder):
    r = Draw(os.path.basename(folder))
    results = checked(hadal, folder, *r.of([], ["--weights-dtype", "f32"]))
    return results if results[0][0] == "refused" else results + in_type(hadal, folder, r.choice(TYPES))


if __name__ == "__main__":
    search(made_quantised, Exception, FAMILIES, "q", check)
