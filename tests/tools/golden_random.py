#!/usr/bin/env python3
"""Random golden models, of shapes and options that no stored case has, against the numpy computation (golden_reference.py).

    golden_random.py HADAL WORK_FOLDER [--first SEED] [--count N] [KIND ...]

A kind is a residual system on Qwen3 or Llama layers, or on those of Kimi Linear and K3 (kimi-..., k3), or a family
that transformers does not have (kimi_k3, nanbeige), with its config and names as published. Drawn are all fields of the
config, the weights, their types and order in the file, the tokens and where the prompt is cut. Models that float32
itself cannot hold, as the computation in float32 shows, and those with experts that are almost tied are drawn again.

Each is evaluated, at once and cut, and compiled for a level: logits, final rows and weights of depth mixes. By the seed
some are compiled with every pass checked, in chunks, or divided over ranks and stages (ranks_compare, which a build with
tests has beside HADAL). Each that is right is spoilt in ways that must be refused (golden_spoilt.py). A folder stays
where something is wrong. Needs numpy; 1.5 s of CPU time a model.
"""
import json
import os
import shutil
import subprocess

import numpy as np

from golden_reference import Model, distance, load, save
from golden_residuals import SYSTEMS
from golden_spoilt import spoilt
from model_search import COMPILED, EVALUATOR, Draw, errors_of, npy, said_of, search

FLOAT32 = 3e-5                              # what a plain evaluation in float32 stays below in golden models
TIE = 1e-3                                  # least distance between the last expert picked and the next
TRIES = 40
ACROSS, LONG = "1e-5", "37"                 # ranks and stages against the undivided library, and their tokens, as in tests/ranks/run.sh


# ---- configs ---------------------------------------------------------------------------------

def attnres(r, c):
    d, layers = c["hidden_size"], c["num_hidden_layers"]
    query = r.of("learned", "learned", "input", "none")
    size = r.of(1, 1, 2, 3, 4, 5, 6, r.randrange(1, 2 * layers + 3))
    out = {"block_size_sublayers": size, "normalization": r.of("softmax", "softmax", "sigmoid"), "key_norm": query != "none" and r.some(0.7),
           "window": r.randrange(1, 2 * layers + 3) if size == 1 and r.some(0.4) else None,
           "num_heads": r.divisor(d) if query == "learned" and r.some(0.4) else 1, "query": query}
    if size % 2 == 0 and r.some(0.7):
        c["attn_res_block_size"] = size // 2
    return out


def depth_attention(r, c):
    n = c["num_hidden_layers"]
    return {"stride": r.randrange(1, n + 2), "recent_window": r.randrange(0, n + 1), "loops": r.of(1, 1, 2, 3),
            "k_norm_after_rope": c["model_type"] == "qwen3" and r.some()}


def ddl(r, c):
    columns = r.randrange(1, 7)
    out = {"value_channels": columns, "k_eps": r.of(0.2, 0.05, 1, 0.5), "v_sigmoid_scale": r.of(4.0, 1, 0.7)}
    return {**out, "conv_kernel": r.randrange(1, columns + 1)} if columns > 1 else out


def dreamer(r, c):
    theta = r.of(None, 50.0, 10000, 3.5)
    return {"num_heads": r.randrange(1, 7), "head_dim": 2 * r.randrange(1, 9) - (theta is None and r.some()), "loops": r.of(1, 1, 2, 3), "depth_rope_theta": theta}


def hybridnorm(r, c):
    c["model_type"] = "qwen3"                               # which has norms of q and k
    return {"first_block": r.of("hybrid", "pre")}


# The parameters of a residual system; a draw may add a field to the config.
PARAMETERS = {name: (lambda r, c: {}) for name in SYSTEMS}
PARAMETERS.update({
    "deepnorm": lambda r, c: {"alpha": r.of(1.68, 2.5, 1, 3)},
    "keel": lambda r, c: {"alpha": r.of(1.68, 2.5, 1, 3)},
    "siamesenorm": lambda r, c: {"depth_scale": r.some(), "input_norm": r.some()},
    "laurel-lr": lambda r, c: {"rank": r.randrange(1, c["hidden_size"] + 1)},
    "value-residual": lambda r, c: {"lambda_first": r.of(0.5, 1, 0.25, -0.3), "lambda_own": r.of(0.5, 1, 0, 1.5)},
    "denseformer": lambda r, c: {"dilation": r.randrange(1, c["num_hidden_layers"] + 2), "period": r.randrange(1, c["num_hidden_layers"] + 2)},
    "muddformer": lambda r, c: {"expand_last": r.some(), "round64": r.some(0.4)},
    "hyper-connections": lambda r, c: {"num_streams": r.randrange(1, 7)},
    "mhc": lambda r, c: {"num_streams": r.randrange(1, 7), "sinkhorn_iters": r.randrange(1, 9), "hc_eps": r.of(0.002, 1e-6, 0.05),
                         "post_mult": r.of(2.0, 1, 0.7)},
    "mhc-lite": lambda r, c: {"num_streams": r.of(1, 2, 3, 4, 4, 5)},
    "ddl": ddl, "attnres": attnres, "depth-attention": depth_attention, "dreamer": dreamer,
    "mrla": lambda r, c: {"form": r.of("table", "base", "light"), "num_heads": r.divisor(c["hidden_size"])},
    "ancre": lambda r, c: {"unit": r.of("sublayer", "layer"), "temperature": r.of(0.2, 0.01, 1, 3)},
    "mgr": lambda r, c: {"num_streams": r.of(1, 2, 3, 4, 4, 8, 30)},
    "hybridnorm": hybridnorm, "realformer": lambda r, c: {"norm": r.of("post", "pre"), "scores": r.of("sum", "mean")},
})


def frame(r, model_type):
    out = {"model_type": model_type, "vocab_size": r.of(r.randrange(2, 131), 300), "hidden_size": r.of(4, 8, 16, 20, 24, 27, 30, 32, 35, 40, 48, 50, 56, 64, 72, 96, 129),
           "intermediate_size": r.of(r.randrange(1, 100), 200), "num_hidden_layers": r.of(1, 2, 3, 4, 5, 6, 7, 8, 9),
           "hidden_act": "silu", "rms_norm_eps": r.of(0.01, 0.005, 1e-3, 1e-5, 1e-6, 0.1, 1), "tie_word_embeddings": r.some(0.4)}
    # what has no influence
    out.update(r.maybe("architectures", ["Qwen3ForCausalLM"], ["SomethingElse"]), **r.maybe("torch_dtype", "float32", "bfloat16"), **r.maybe("max_position_embeddings", 512, 8))
    if r.some(0.2):
        situ(r, out)
    return out


def situ(r, c):
    c.update(hidden_act="situ", activation_situ_beta=r.of(2.0, 1, 0.5), activation_situ_linear_beta=r.of(3.0, 1, None))


def grouped(r):
    heads = r.randrange(1, 9)
    return {**frame(r, r.of("qwen3", "llama")), "num_attention_heads": heads, "num_key_value_heads": r.divisor(heads), "head_dim": 2 * r.randrange(1, 13),
            "rope_theta": r.of(10000.0, 500000, 77.5, 3), "attention_bias": False}


def kimi(r, is_k3=False):
    c = frame(r, "kimi_linear")
    layers, heads = c["num_hidden_layers"], r.randrange(1, 6)
    full = sorted(r.sample(range(1, layers + 1), r.randrange(0, layers + 1)))
    linear = {"kda_layers": [l for l in range(1, layers + 1) if l not in full], "full_attn_layers": full,
              "num_heads": r.randrange(1, 6), "head_dim": r.randrange(1, 17), "short_conv_kernel_size": r.of(2, 3, 4, 4, 5)}
    linear.update(**r.maybe("use_full_rank_gate", True, False, share=0.6), **r.maybe("gate_lower_bound", -5.0, -1, -0.3, share=0.9 if is_k3 else 0.3))
    count = r.randrange(1, 10)
    c.update(linear_attn_config=linear, num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=r.of(None, 5, 8, 24), kv_lora_rank=r.of(3, 8, 16, 21),
             qk_nope_head_dim=r.randrange(1, 13), qk_rope_head_dim=r.randrange(1, 9), v_head_dim=r.randrange(1, 17), mla_use_nope=True)
    c.update(num_experts=count, num_experts_per_token=r.randrange(1, min(count, 5) + 1), num_shared_experts=r.of(1, 1, 2, 3), moe_intermediate_size=r.of(7, 8, 12, 16),
             moe_router_activation_func="sigmoid", moe_renormalize=r.some(0.7), routed_scaling_factor=r.of(1.7, 1, 0.4), use_grouped_topk=True, num_expert_group=1, topk_group=1,
             first_k_dense_replace=r.randrange(0, layers + 1), moe_layer_freq=r.of(1, 1, 2, 3))
    c.update(**r.maybe("mla_norm_eps", 0.002, 0.01, 1e-5, share=0.7), **r.maybe("mla_use_output_gate", True, False, share=0.6))
    if is_k3 or r.some(0.3):
        c["routed_expert_hidden_size"] = r.of(5, 12, 20)
        c.update(r.maybe("latent_moe_use_norm", True, False, share=0.8))
    elif r.some(0.3):
        c["routed_expert_hidden_size"] = None
    if is_k3:
        situ(r, c)
    return c


def nanbeige(r):
    c = {name: value for name, value in grouped(r).items() if not name.startswith("activation_situ_")}
    c.update(model_type="nanbeige", hidden_act="silu", num_loops=r.of(1, 2, 2, 3, 4), **r.maybe("skip_loop_final_norm", True, False, share=0.7))
    for name in ("mlp_bias", "qk_layernorm", "enable_hyper_connection", "enable_mhc", "enable_h_res_identity", "enable_depth_attention", "enable_double_loop_split", "loop_share_kv"):
        c.update(r.maybe(name, False, share=0.3))
    c.update(**r.maybe("loop_middle_layers", None, [], share=0.3), **r.maybe("emb_neighbor_num", None, 0, share=0.3))
    return c


def config(r, kind):
    if kind == "nanbeige":
        return {**nanbeige(r), "residual": {"type": "standard"}}
    if kind == "kimi_k3":                                    # what is published has blocks of whole layers, and nothing else of Attention Residuals
        c = kimi(r, is_k3=True)
        layers = r.randrange(1, c["num_hidden_layers"] + 2)
        return {**c, "attn_res_block_size": layers, "residual": {"type": "attnres", "block_size_sublayers": 2 * layers, "normalization": "softmax", "key_norm": True,
                                                                  "window": None, "num_heads": 1, "query": "learned"}}
    if kind.startswith("kimi-"):
        c, system = kimi(r), kind[len("kimi-"):]
        system = r.of(*KIMI_SYSTEMS) if system == "others" else system
    elif kind == "k3":
        c, system = kimi(r, is_k3=True), "attnres"
    else:
        c, system = grouped(r), kind
    c["residual"] = {"type": system, **PARAMETERS[system](r, c)}
    if c["model_type"] == "kimi_linear" and system == "dreamer":
        c["residual"]["loops"] = 1
    items = list(c.items())
    r.shuffle(items)
    return dict(items)


# Systems that change what attention reads are defined for grouped-query attention alone.
KIMI_SYSTEMS = [name for name in SYSTEMS if name not in ("value-residual", "depth-attention", "muddformer", "standard", "attnres", "hybridnorm", "lime", "realformer")]
KINDS = [*SYSTEMS, "kimi-standard", "kimi-attnres", "k3", "kimi-others", "kimi_k3", "nanbeige"]

FAMILIES = ["kimi_k3", "nanbeige"]         # published without an object `residual`


def published(r, kind, c):
    """The config as it is stored, and what the names of tensors begin with"""
    if kind not in FAMILIES:
        return c, ""
    c = {name: value for name, value in c.items() if name != "residual"}
    if kind == "nanbeige":
        return c, ""
    outer = {"model_type": "kimi_k3", "text_config": c, **r.maybe("architectures", ["KimiK3ForConditionalGeneration"]), **r.maybe("dtype", "bfloat16"),
             **r.maybe("vision_config", {"model_type": "kimi_k3_vision", "vt_hidden_size": 8}), **r.maybe("media_placeholder_token_id", 1), **r.maybe("ignore_index", -100),
             **r.maybe("tie_word_embeddings", c["tie_word_embeddings"])}
    items = list(outer.items())
    r.shuffle(items)
    return dict(items), "language_model."


# ---- weights ---------------------------------------------------------------------------------

KEPT_F32 = ("conv1d.weight", "A_log", "dt_bias", "o_norm.weight", "e_score_correction_bias")


class Drawn:
    """Weights that are drawn when they are asked for, so their list is the computation's own. Sizes keep a model lively:
    no gate shut, no softmax on one source alone, rows of about the size of their input."""

    def __init__(self, r, config):
        self.r, self.c, self.numbers = r, config, np.random.default_rng(r.randrange(2 ** 32))
        self.share = r.of(0, 0, 0.5, 1)                     # of tensors in bf16
        self.gain, self.queries = r.of(0.7, 1.0, 1.4), r.of(0.5, 1.0, 2.0)
        self.rows = r.of(0, 1, 0.5)                         # share of A_log that are rows, perhaps padded, and not [1, 1, H, 1]
        self.tensors, self.bf16 = {}, set()

    def sized(self, name, shape):
        part = name.split(".")[-1] if not name.endswith(".weight") else name.split(".")[-2]
        bell = self.numbers.standard_normal(shape)
        if part.endswith("norm") or part.startswith("input_layernorm_") or (part == "norm" and len(shape) == 1):
            return 1 + 0.3 * bell
        if part == "logits" and self.c["residual"]["type"] == "ancre":
            return bell * self.c["residual"]["temperature"]
        if part == "A_log":
            return np.log(self.numbers.uniform(0.5, 4, shape))
        if part == "e_score_correction_bias":
            return 0.2 * bell
        if part in ("scale", "alpha", "gamma", "lambda") or part.endswith("_scale"):
            return 0.5 * bell
        if part.endswith("conv1d") or part == "conv":
            return 1.5 * bell / shape[-1] ** 0.5
        if part == "alpha_static":
            return 0.4 * bell + np.eye(shape[0], shape[1], 1)
        if part.endswith("res_proj"):                       # of attention residuals: [1, d] or [d, d]
            return self.queries * bell / shape[-1] ** (0.5 if shape[0] == 1 else 1)
        if len(shape) == 2 and part not in ("embed_tokens", "bias"):
            return self.gain * bell / shape[-1] ** 0.5
        return bell

    def __call__(self, name, *shape):
        if name not in self.tensors:
            if isinstance(shape[0], tuple):                 # A_log: one of its shapes, the second of any length that suffices
                shape = (shape[0][2] + self.r.of(0, 1, 4),) if self.r.some(self.rows) else shape[0]
            t = self.sized(name, shape).astype(np.float32)
            if self.r.some(self.share) and not name.endswith(KEPT_F32):
                t = (t.view("<u4") & np.uint32(0xffff0000)).view("<f4")
                self.bf16.add(name)
            self.tensors[name] = t
        return self.tensors[name]

    def saved(self, path, prefix):
        """With `prefix` before each name, and among tensors of a tower that is not read, where there is one"""
        names = list(self.tensors)
        others = {"vision_tower.patch_embed.weight": np.zeros((2, 3), np.float32), "mm_projector.bias": np.ones(4, np.float32)} if prefix and self.r.some() else {}
        names += others
        self.r.shuffle(names)
        save(path, {(name if name in others else prefix + name): {**self.tensors, **others}[name] for name in names}, {prefix + name for name in self.bf16})


def made(kind, seed, folder):
    """Makes the folder; draws again what float32 cannot hold"""
    reasons = []
    for attempt in range(TRIES):
        r = Draw(f"{kind} {seed} {attempt}")
        c = config(r, kind)
        weights = Drawn(r, c)
        t = r.randrange(1, 41)
        tokens = np.array([r.randrange(c["vocab_size"]) for _ in range(t)], np.int32)
        model = Model(c, weights)
        with np.errstate(all="ignore"):
            exact = {name: a.astype(np.float32) for name, a in model(tokens).items()}
            single = Model(c, weights, np.float32)(tokens)
        if model.margins and min(model.margins) < TIE:
            reasons.append("experts are almost tied")
            continue
        error = max(distance(single[name], a) if np.isfinite(a).all() else np.inf for name, a in exact.items())
        if not error <= FLOAT32:
            reasons.append(f"float32 is off by {error:.1e}")
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        stored, prefix = published(r, kind, c)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(stored, f, indent=2)
        weights.saved(os.path.join(folder, "model.safetensors"), prefix)
        split = np.array([p := r.randrange(1, t + 1), t - p], np.int32)
        save(os.path.join(folder, "expected.safetensors"), {"tokens": tokens, **exact, "split": split})
        return c, [f"T {t}", f"float32 {error:.0e}"]
    raise RuntimeError(f"no draw of {TRIES} is a model to compare; the last: {reasons[-1]}")


# ---- hadal -----------------------------------------------------------------------------------

class Case:
    """A folder, and what hadal says of it"""

    def __init__(self, hadal, folder):
        self.hadal, self.folder = hadal, folder
        self.expected = load(self.at("expected.safetensors"))
        self.split = str(self.expected["split"][0])
        self.tokens = self.at("expected.safetensors") + ":tokens"
        self.results = []

    def at(self, *names):
        return os.path.join(self.folder, *names)

    def call(self, what, command, *arguments):
        """Whether it worked; what was said otherwise is a result"""
        done = subprocess.run([self.hadal, command, *arguments], capture_output=True, text=True)
        if done.returncode:
            self.results.append((what, 0, f"{done.returncode} {errors_of(done)}"))
        return done.returncode == 0

    def logits(self, what, limit, model, *flags):
        """Whether there were any; how far off they are is a result"""
        worked = self.call(what, "run", model, "--tokens", self.tokens, "--logits", self.at("logits.npy"), *flags)
        if worked:
            self.results.append((what, limit, flat_distance(npy(self.at("logits.npy")), self.expected["logits"])))
        return worked

    def everything(self, what, limit, *flags):
        """Logits, what the head reads, and weights of depth mixes, which are to be those expected and no others"""
        hidden, trace = self.at("hidden.npy"), self.at("trace.safetensors")
        wanted = {name for name in self.expected if name.startswith("depth_weights.")}
        traced = ["--trace-depth", trace] if wanted else []
        if not self.logits(what, limit, self.folder, "--hidden", hidden, *traced, *flags):
            return
        self.results.append((what + " hidden", limit, flat_distance(npy(hidden), self.expected["hidden_final"])))
        if wanted:
            got = load(trace)
            differ = sorted(wanted ^ set(got))
            error = f"{differ} are not in both" if differ else max(distance(got[name], self.expected[name]) for name in wanted)
            self.results.append((what + " mixes", limit, error))


def flat_distance(flat, expected):
    return distance(np.asarray(flat), expected.ravel()) if len(flat) == expected.size else f"{len(flat)} numbers, not {expected.size}"


def divided(case, r, options):
    """On ranks or stages, which are threads, against the undivided library, for tokens that ranks_compare makes up"""
    compare = os.path.join(os.path.dirname(case.hadal), "..", "tests", "ranks_compare")
    if not os.path.exists(compare):
        return
    stages = 2 if case.config["num_hidden_layers"] >= 2 and r.some(0.4) else 1
    ranks = r.of(1, 2) if stages > 1 else r.of(2, 3)
    what = f"{ranks} ranks, {stages} stages"
    options = [*options, "--chunk", "16"]
    parts = [*(["--ranks", str(ranks), "--divide-from", str(ranks)] if ranks > 1 else []), *(["--stages", str(stages)] if stages > 1 else [])]
    if not (case.call("whole", "compile", case.folder, "-o", case.at("out", "whole"), *options)
            and case.call(what, "compile", case.folder, "-o", case.at("out", "parts"), *options, *parts)):
        return
    tokens = subprocess.run([compare, "--tokens", case.at("out", "libwhole.so"), LONG], capture_output=True, text=True, check=True).stdout.strip()
    if not case.call("exact", "run", case.folder, "--interpret", "--tokens", tokens, "--logits", case.at("exact.npy")):
        return
    library, shape = ("libparts_s%d.so", f"{ranks}x{stages}") if stages > 1 else ("libparts.so", str(ranks))
    done = subprocess.run([compare, case.at("out", "libwhole.so"), case.at("out", "whole.weights"), case.at("out", library), shape, LONG, ACROSS, "-", case.at("exact.npy")],
                          capture_output=True, text=True)
    case.results.append((what, 0, 0.0 if done.returncode == 0 else f"{done.returncode} {done.stdout[-300:]} {done.stderr[-300:]}"))


def checked(hadal, folder):
    r = Draw("how " + os.path.basename(folder))
    case = Case(os.path.abspath(hadal), folder)
    with open(case.at("config.json")) as f:
        case.config = json.load(f)
    case.config = case.config.get("text_config", case.config)
    os.makedirs(case.at("out"), exist_ok=True)
    case.everything("evaluator", EVALUATOR, "--interpret")
    if not isinstance(case.results[0][2], float):
        return [("refused", "WRONG " + str(case.results[0][2]))]
    case.logits("evaluator, cut", EVALUATOR, folder, "--interpret", "--split", case.split)
    level = r.of("baseline", "avx2", "avx2")
    if r.some(0.35):
        case.everything(level + ", traced", COMPILED, "--cpu-level", level, "--threads", r.of("1", "2"), *(["--check-passes"] if r.some() else []))
    else:
        library = case.at("out", "lib")
        options = ["--target-cpu", level, *(["--check-passes"] if r.some(0.25) else []), *(["--chunk", r.of("1", "3", "8")] if r.some(0.25) else [])]
        if case.call("compile", "compile", folder, "-o", library, *options):
            for what, flags in (("one call", []), ("by token", ["--split", "1"]), ("cut", ["--split", case.split])):
                case.logits(f"{level}, {what}", COMPILED, library, *flags, "--threads", r.of("1", "2"))
    if r.some(0.15):
        divided(case, r, ["--target-cpu", level])
    results = said_of(case.results)
    if not any("WRONG" in text for _, text in results):
        results += spoilt(case, r) if "residual" in case.config else []
        shutil.rmtree(folder)
    return results


if __name__ == "__main__":
    search(made, RuntimeError, KINDS, "", checked)
