"""Checkpoints of published families as llama.cpp reads them: GGUF files in bf16, written from the
bf16 .safetensors of `hadal init-weights`, tensor by tensor, so that a model of any size fits.

FAMILIES has each with its architecture there, what its file says of the model, and what becomes of
its tensors; names are mapped by the tables of the package `gguf`.
"""
import math
import os
import statistics

from checkpoint import CONTEXT, Checkpoint, Missing


def widened(x):
    import numpy as np

    return (x.astype(np.uint32) << 16).view(np.float32)


class Tensor:
    """A tensor of the file: its name in the tables of gguf, its shape, and how to make it: bf16 as numbers of 16 bits, or
    f32."""

    def __init__(self, name, shape, make, f32=False):
        self.name, self.shape, self.make = name, tuple(shape), make
        self.f32 = f32 or len(self.shape) == 1


def plain(c, name, to=None, **more):
    return Tensor(to or name, c.tensors[name]["shape"], lambda: c[name], **more)


def stacked(c, names, to):
    import numpy as np

    shape = c.tensors[names[0]]["shape"]
    return Tensor(to, (len(names), *shape), lambda: np.stack([c[n] for n in names]))


def experts_of(c, layer, count):
    """The three stacks of experts of a layer whose experts have tensors of their own."""
    at = f"model.layers.{layer}.mlp.experts"
    for part in ("gate_proj", "up_proj", "down_proj"):
        yield stacked(c, [f"{at}.{i}.{part}.weight" for i in range(count)], f"{at}.{part}.weight")


def is_expert(name):
    return ".mlp.experts." in name


# ---- families: tensors, and what the file says of the model -----------------------------------------


def gpt_oss_tensors(c, config):
    for name, entry in c.tensors.items():
        shape = entry["shape"]
        if name.endswith("experts.gate_up_proj"):  # [E, in, 2 width], columns alternate
            e, d, both = shape
            for part, first in (("gate_proj", 0), ("up_proj", 1)):
                yield Tensor(name.replace("gate_up_proj", f"{part}.weight"), (e, both // 2, d),
                             lambda n=name, i=first: c[n].transpose(0, 2, 1)[:, i::2])
        elif name.endswith("experts.gate_up_proj_bias"):
            for part, first in (("gate_proj", 0), ("up_proj", 1)):
                yield Tensor(name.replace("gate_up_proj_bias", f"{part}.bias"), (shape[0], shape[1] // 2),
                             lambda n=name, i=first: c[n][:, i::2], f32=True)
        elif name.endswith("experts.down_proj"):
            yield Tensor(f"{name}.weight", (shape[0], shape[2], shape[1]), lambda n=name: c[n].transpose(0, 2, 1))
        elif name.endswith("experts.down_proj_bias"):
            yield plain(c, name, name.replace("_bias", ".bias"), f32=True)
        else:
            yield plain(c, name, f"{name}.weight" if name.endswith("sinks") else name, f32="router" in name)


def gpt_oss_header(w, config, gguf):
    scaling = config["rope_scaling"]
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_expert_feed_forward_length(config["intermediate_size"])
    w.add_expert_count(config["num_local_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    w.add_sliding_window(config["sliding_window"])
    w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    w.add_rope_scaling_factor(scaling["factor"])
    w.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    w.add_rope_scaling_yarn_beta_fast(scaling["beta_fast"])
    w.add_rope_scaling_yarn_beta_slow(scaling["beta_slow"])
    w.add_rope_dimension_count(config["head_dim"])


def qwen3_moe_tensors(c, config):
    for name in c.tensors:
        if not is_expert(name):
            yield plain(c, name, f32=name.endswith("mlp.gate.weight"))
    for layer in range(config["num_hidden_layers"]):
        yield from experts_of(c, layer, config["num_experts"])


def qwen3_moe_header(w, config, _gguf):
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    w.add_expert_count(config["num_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])


def gemma3n_tensors(c, config):
    for kind in ("altup_projections", "altup_unembed_projections"):
        names = [f"model.{kind}.{i}.weight" for i in range(config["altup_num_inputs"] - 1)]
        yield stacked(c, names, f"model.{kind}.weight")
    for name in c.tensors:
        if "altup_projections" in name or "altup_unembed_projections" in name:
            continue
        to = f"{name}.weight" if name.endswith("_scale") else name
        yield plain(c, name, to, f32="altup." in name or "laurel" in name)
    import numpy as np

    layers, sharing = config["num_hidden_layers"], config["num_kv_shared_layers"]
    for layer in range(layers - sharing, layers):  # published files contain what these layers do not read
        for part in ("k_proj", "v_proj", "k_norm"):
            shape = c.tensors[f"model.layers.0.self_attn.{part}.weight"]["shape"]
            yield Tensor(f"model.layers.{layer}.self_attn.{part}.weight", shape, lambda s=shape: np.zeros(s, np.uint16))


def gemma3n_header(w, config, _gguf):
    layers = config["num_hidden_layers"]
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_sliding_window(config["sliding_window"])
    w.add_sliding_window_pattern([(i + 1) % 5 != 0 for i in range(layers)])
    w.add_shared_kv_layers(config["num_kv_shared_layers"])
    w.add_altup_active_idx(0)
    w.add_altup_num_inputs(config["altup_num_inputs"])
    w.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    quantile = statistics.NormalDist().inv_cdf(0.95)
    w.add_activation_sparsity_scale([quantile if i < 10 else -math.inf for i in range(layers)])
    w.add_rope_freq_base_swa(10000.0)
    w.add_final_logit_softcapping(30.0)


def ling_tensors(c, config):
    import numpy as np

    heads = config["num_attention_heads"]
    for name, entry in c.tensors.items():
        if is_expert(name):
            continue
        at, full = name.rpartition(".attention.")[0], (int(name.split(".")[2]) % 4 == 3 if ".layers." in name else False)
        block = f"blk.{name.split('.')[2]}" if ".layers." in name else ""
        if "conv1d" in name:
            n, _, taps = entry["shape"]
            yield Tensor(name, (1, n, 1, taps), lambda n_=name, s=(1, n, 1, taps): c[n_].reshape(s), f32=True)
        elif name.endswith("A_log"):
            yield Tensor(name, (entry["shape"][0], 1), lambda n_=name: np.exp(widened(c[n_])).reshape(-1, 1), f32=True)
        elif name.endswith("dt_bias"):
            yield plain(c, name, f"{at}.attention.dt_proj.bias")
        elif name.endswith("attention.f_proj.weight"):
            yield plain(c, name, f"{block}.ssm_f_a.weight")
        elif name.endswith("attention.g_proj.weight"):
            yield plain(c, name, f"{block}.attn_gate.weight" if full else f"{block}.ssm_g_a.weight")
        elif name.endswith("kv_b_proj.weight"):
            rows, rank = entry["shape"]
            half = rows // heads // 2  # as many columns for keys as for values
            yield Tensor(f"{block}.attn_k_b.weight", (heads, rank, half),
                         lambda n_=name, s=(heads, 2 * half, rank), h=half: c[n_].reshape(s)[:, :h].transpose(0, 2, 1))
            yield Tensor(f"{block}.attn_v_b.weight", (heads, half, rank),
                         lambda n_=name, s=(heads, 2 * half, rank), h=half: c[n_].reshape(s)[:, h:])
        elif name.endswith("expert_bias"):
            yield plain(c, name, f"{name}.bias")
        else:
            yield plain(c, name, f32=name.endswith("mlp.gate.weight"))
    for layer in range(1, config["num_hidden_layers"]):
        yield from experts_of(c, layer, config["num_experts"])


def ling_header(w, config, gguf):
    layers = config["num_hidden_layers"]
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count_kv([1 if i % 4 == 3 else 0 for i in range(layers)])
    w.add_ssm_conv_kernel(4)
    w.add_kda_head_dim(config["head_dim"])
    w.add_kda_safe_gate(True)
    w.add_kda_gate_lower_bound(-5.0)
    w.add_q_lora_rank(config["q_lora_rank"])
    w.add_kv_lora_rank(config["kv_lora_rank"])
    w.add_rope_dimension_count(64)
    w.add_key_length_mla(128 + 64)
    w.add_value_length_mla(128)
    w.add_expert_count(config["num_experts"])
    w.add_expert_used_count(config["num_experts_per_tok"])
    w.add_expert_group_count(8)
    w.add_expert_group_used_count(4)
    w.add_expert_feed_forward_length(config["moe_intermediate_size"])
    w.add_expert_shared_feed_forward_length(config["moe_intermediate_size"])
    w.add_expert_shared_count(1)
    w.add_leading_dense_block_count(1)
    w.add_expert_weights_scale(2.5)
    w.add_expert_weights_norm(True)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


# Alternative fields of config.json; each config has one of them or none.
CHOSEN = ("num_experts_per_tok",)
COUNT = ("num_local_experts", "num_experts")

# name: architecture of gguf, tensors, header
FAMILIES = {
    "gpt_oss": ("GPT_OSS", gpt_oss_tensors, gpt_oss_header),
    "qwen3_moe": ("QWEN3MOE", qwen3_moe_tensors, qwen3_moe_header),
    "gemma3n": ("GEMMA3N", gemma3n_tensors, gemma3n_header),
    "ling": ("BAILINGMOE3", ling_tensors, ling_header),
}

# ---- files -----------------------------------------------------------------------------------------


def common_header(w, config):
    w.add_block_count(config["num_hidden_layers"])
    w.add_context_length(CONTEXT)
    w.add_embedding_length(config["hidden_size"])
    w.add_head_count(config["num_attention_heads"])
    if "num_key_value_heads" in config:
        w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(config.get("key_length", config["head_dim"]))
    w.add_value_length(config.get("value_length", config["head_dim"]))
    w.add_rope_freq_base(config["rope_theta"])
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_vocab_size(config["vocab_size"])
    w.add_tokenizer_model("no_vocab")


def write(family, config, checkpoint, path):
    """Writes a file that appears whole or not at all."""
    try:
        import gguf
        import numpy as np
    except ImportError as e:
        raise Missing(f"{e} (pip install gguf)")
    name, tensors_of, header = FAMILIES[family]
    arch = getattr(gguf.MODEL_ARCH, name, None)
    if arch is None:
        raise Missing(f"this gguf has no {name}: take the one beside llama.cpp's source (gguf-py)")
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    w = gguf.GGUFWriter(path + ".part", gguf.MODEL_ARCH_NAMES[arch])
    common_header(w, config)
    header(w, config, gguf)
    every = list(tensors_of(Checkpoint(checkpoint, "BF16"), config))
    for t in every:
        to = t.name if t.name.startswith("blk.") else names.get_name(t.name, try_suffixes=(".weight", ".bias"))
        if to is None:
            raise Missing(f"gguf has no name for {t.name}")
        n = math.prod(t.shape)
        if t.f32:
            w.add_tensor_info(to, t.shape, np.dtype(np.float32), 4 * n)
        else:
            w.add_tensor_info(to, t.shape, np.dtype(np.float16), 2 * n, raw_dtype=gguf.GGMLQuantizationType.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    for t in every:
        x = t.make()
        if t.f32 and x.dtype != np.float32:
            x = widened(x)
        w.write_tensor_data(np.ascontiguousarray(x))
    w.close()
    os.replace(path + ".part", path)


def read_by_a_token(path, config):
    """Bytes of weights of a file that one token reads: all but rows of embeddings, and of experts only those that a token
    uses."""
    import gguf

    total = 0
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    chosen, count = (next((config[k] for k in keys if k in config), 1) for keys in (CHOSEN, COUNT))
    for name, t in tensors.items():
        if name.startswith("per_layer_token_embd") or (name.startswith("token_embd") and "output.weight" in tensors):
            continue
        total += int(t.n_bytes) * (chosen if "_exps" in name else count) // count
    return total
