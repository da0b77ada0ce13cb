#!/usr/bin/env python3
"""Every field of every published family with other values, one at a time: what transformers computes, and what hadal makes of it.

    published_fields.py HADAL WORK_FOLDER [--compiled] [--field NAME] [FAMILY ...]

The fields are those of the folder's config.json, those that transformers writes for it, and those of objects in them; the values go by the type of a field's value: others of
the type, 0, null, a list in another order, no field at all, every activation, every kind of positions. A value with which transformers computes numbers is either computed by hadal, to
the limits of tests/published/run.sh, or refused; which refusals are right is for the reader to say: the last lines list them by family and field. What transformers
cannot make says nothing and is counted. Under transformers 5.24 all families have been run: no difference but those of EXPLAINED.
"""
import argparse
import contextlib
import io
import json
import math
import os
import re
import sys

import torch

import transformers
from make_published import DROP, PUBLISHED, make
from model_search import COMPILED, EVALUATOR, hadal_run, tensor
from safetensors.torch import load_file

# What no model of these families computes with: names of other programs, training, sampling. The importer ignores them by name.
ASIDE = re.compile(r"^(architectures|auto_map|transformers_version|torch_dtype|dtype|_.*|.*_token_id|.*token_index|id2label|label2id|problem_type|return_dict|output_.*states|output_attentions|"
                   r"use_cache|chunk_size_feed_forward|is_encoder_decoder|initializer_range|model_type|vision_config|audio_config|quantization_config)$")
# Indexers are given so many heads, if they have any: a few often give equal scores, 0.
HEADS = ("index_n_heads", "indexer_n_heads")
# Differences that are right: a selection has to choose among equals, of which transformers does not say which it takes.
EXPLAINED = (
    ("index_n_heads", lambda value: value < 4, "a few heads often give equal scores, 0"),
    ("indexer_n_heads", lambda value: value < 4, "the same"),
    ("index_head_dim", lambda value: value == 1, "a layer norm over one entry makes all keys equal"),
    ("vocab_size", lambda value: value < 18, "tokens that stand twice have equal biases (Doge)"),
)
# What the code that was published with a model reads, and transformers does not: a note says that it is honoured.
PUBLISHED_CODE = {"mimo_v2_flash": ("layernorm_epsilon", "partial_rotary_factor", "rope_theta", "swa_rope_theta"),
                  "phimoe": ("original_max_position_embeddings", "rope_scaling.original_max_position_embeddings")}
# Configs that transformers 5.24 has no language model for (Kimi K2.5: one with a tower of full size), or that have the model of another folder in a wrapper
LEFT_OUT = ("berrylm", "deepseek_v41", "deepseek_v41_text", "kimi_k2", "kimi_k25", "kimi_k3", "nanbeige", "glm5_next_text", "qwen3_5", "qwen3_5_moe", "qwen4_exp", "gemma3", "gemma3n", "gemma4", "inkling2", "inkling2_loop")
ACTS = "silu swish gelu gelu_new gelu_fast gelu_python gelu_pytorch_tanh gelu_10 gelu_accurate quick_gelu relu relu2 relu6 leaky_relu laplace linear mish prelu sigmoid tanh xielu clipped_gelu".split()
WORDS = {"scoring_func": ["softmax", "sigmoid", "sqrtsoftplus"], "score_function": ["softmax", "sigmoid"], "topk_method": ["greedy", "noaux_tc", "group_limited_greedy"], "output_gate_type": ["sigmoid", "silu", "swish"],
         "rope_type": ["default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional", "su"]}
DENSE = dict(factor=4.0, original_max_position_embeddings=8, low_freq_factor=1.0, high_freq_factor=4.0, beta_fast=4.0, beta_slow=1.0)


def scalings(width):
    factors = dict(short_factor=[1.0 + 0.1 * i for i in range(width)], long_factor=[1.5 + 0.2 * i for i in range(width)])
    yield dict(rope_type="default")
    yield dict(rope_type="linear", factor=2.5)
    yield dict(rope_type="dynamic", factor=2.0)
    yield dict(rope_type="llama3", **{k: DENSE[k] for k in ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")})
    yield dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8)
    yield dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, mscale=0.8, mscale_all_dim=0.5, beta_fast=6, beta_slow=1, truncate=False)
    yield dict(rope_type="yarn", factor=4.0, attention_factor=1.3)
    yield dict(rope_type="longrope", original_max_position_embeddings=64, factor=2.0, **factors)
    yield dict(rope_type="default", partial_rotary_factor=0.5)
    yield dict(rope_type="proportional", partial_rotary_factor=0.5)


def other_values(name, value, head_dim):
    """Values for a field that has this one"""
    yield DROP
    yield None
    if name in WORDS:
        yield from WORDS[name]
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (0, 1, 2, 3, value + 1, value * 2, value // 2, value * 1.0)
    elif isinstance(value, float):
        yield from (0.0, 1.0, 0.5, value * 2, -value, 2)
    elif isinstance(value, str) and ("act" in name or value in ACTS):
        yield from ACTS
    elif isinstance(value, list) and value:
        yield from (value[::-1], value[1:] + value[:1], [value[0]] * len(value), [value[-1]] * len(value), value[:-1], value + value[-1:], [])
        if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in value):
            yield [v + 1 for v in value]
    elif value is None:
        yield from (True, False, 0, 1, 2, 4, 0.5, [])
    if name in ("rope_scaling", "rope_parameters"):
        for scaling in scalings(head_dim // 2):
            yield {**scaling, "rope_theta": 300.0}
            if name == "rope_scaling":
                yield scaling


def fields(config, written, path=""):
    """(path, name, value) of the config's fields and of those that transformers writes beside them"""
    for name in sorted({**written, **config}):
        if ASIDE.match(name):
            continue
        value = config[name] if name in config else written[name]
        inside = isinstance(value, dict) and value
        if name != "text_config":
            yield path + name, name, value
        if inside and name in config:
            below = written.get(name)
            yield from fields(value, below if isinstance(below, dict) else {}, path + name + ".")


def cases(family):
    with open(os.path.join(PUBLISHED, family, "config.json")) as f:
        config = json.load(f)
    written = transformers.AutoConfig.from_pretrained(os.path.join(PUBLISHED, family)).to_dict()
    text = config.get("text_config", config)
    head_dim = text.get("qk_rope_head_dim") or text.get("head_dim") or text.get("hidden_size", 64) // text.get("num_attention_heads", 1)
    for path, name, value in fields(config, written):
        seen = [value]
        for other in other_values(name, value, head_dim):
            if not any(type(other) is type(v) and other == v for v in seen):
                seen.append(other)
                yield path, other


def many_heads(family):
    with open(os.path.join(PUBLISHED, family, "config.json")) as f:
        config = json.load(f)
    if config["model_type"] == "dory":      # gains and rates are stored by the size of new weights, which make_published does not know
        return {"initializer_range": 0.3, "ngpt_alpha_init": 0.2}
    where = "text_config." if "text_config" in config else ""
    return {where + name: 12 for name in HEADS if name in config.get("text_config", config)}


def one(hadal, family, path, value, folder, compiled):
    """made (False: transformers makes nothing of it), and the results"""
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            make(family, folder, {**many_heads(family), path: value}, seed=3, length=18, read_back=False)
    except Exception as error:                  # whatever transformers raises: it is no finding about hadal
        return False, [("not made", f"{type(error).__name__} {str(error)[:100]!r}")]
    logits = load_file(os.path.join(folder, "expected.safetensors"))["logits"]
    if not bool(torch.isfinite(logits).all()) or not bool(logits.any()):
        return False, [("not made", "not finite, or nothing but 0")]
    expected = tensor(os.path.join(folder, "expected.safetensors"), "logits")
    results = []
    for what, limit, flags in (("evaluator", EVALUATOR, ["--interpret"]), ("compiled", COMPILED, ["--split", "5,2"]))[:2 if compiled else 1]:
        e = hadal_run(hadal, folder, folder, expected, *flags)
        if not isinstance(e, float):
            refused = isinstance(e, list) and what == "evaluator"
            return True, [("refused" if refused else "WRONG", " | ".join(e) if isinstance(e, list) else e)]
        results.append((what, f"{e:.1e}" if e <= limit and not math.isnan(e) else f"WRONG {e:.2e}"))
    return True, results


def is_explained(family, path, value):
    return path in PUBLISHED_CODE.get(family, ()) or any(path.split(".")[-1] == name and isinstance(value, (int, float)) and of(value) for name, of, _ in EXPLAINED)


def said(value):
    return "DROP" if value is DROP else json.dumps(value)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("hadal")
    p.add_argument("work")
    p.add_argument("--compiled", action="store_true")
    p.add_argument("--field")
    p.add_argument("families", nargs="*")
    a = p.parse_intermixed_args()
    torch.set_num_threads(1)
    wrong, counts, refusals = 0, {}, {}
    for family in a.families or sorted(f for f in os.listdir(PUBLISHED) if os.path.exists(os.path.join(PUBLISHED, f, "config.json")) and "-" not in f and f not in LEFT_OUT):
        for path, value in cases(family):
            if a.field and a.field not in path:
                continue
            made_, results = one(a.hadal, family, path, value, os.path.join(a.work, family), a.compiled)
            bad = any("WRONG" in w or "WRONG" in r for w, r in results)
            explained = bad and is_explained(family, path, value)
            wrong += bad and not explained
            kind = "explained" if explained else "FAIL" if bad else "unmade" if not made_ else "refused" if results[0][0] == "refused" else "ok"
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "refused":
                refusals.setdefault((family, path), []).append((said(value), results[0][1]))
            print(kind, family, path, said(value), *(f"{w} {r}" for w, r in results), flush=True)
    for (family, path), values in refusals.items():
        print("refusals:", family, path, ", ".join(v for v, _ in values), "--", values[-1][1])
    print(", ".join(f"{n} {kind}" for kind, n in sorted(counts.items())))
    sys.exit(1 if wrong else 0)
