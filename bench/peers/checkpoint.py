"""The shape of bench/specs/qwen3.hadal, and its weights in the forms that peers read.

All models of a comparison carry the weights of one .safetensors file (`hadal init-weights`), so
their logits can be compared. Needs numpy for everything but Shape; gguf for write_gguf.
"""
import dataclasses
import json
import os
import struct

EPS = 1e-6  # of all norms
CONTEXT = 8192  # tokens that a GGUF file claims to be trained on


class Missing(Exception):
    """A peer cannot take part; the text says why."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """Parameters of the spec, by its names, with its defaults."""

    layers: int = 28
    hidden: int = 1024
    heads: int = 16
    kv_heads: int = 8
    head_dim: int = 128
    ff: int = 3072
    vocab: int = 32000
    theta: float = 1e6

    def flops(self, n):
        """FLOPs of a prefill of n tokens that requests the last row of logits: 2 for a product and its addition, in
        contractions and in attention over the pairs that the causal mask leaves."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = self.hidden * (2 * q + 2 * kv + 3 * self.ff)
        pairs = n * (n + 1) // 2
        return 2 * (n * self.layers * layer + self.vocab * self.hidden + 2 * self.layers * q * pairs)

    def token(self, position):
        return (7919 * position + 11) % self.vocab


VIEWS = {"F32": "<f4", "BF16": "<u2"}  # bf16: numpy has none; the upper halves of f32


class Checkpoint:
    """The tensors of a .safetensors file by name, mapped, all of one type; matrices are [outputs,
    inputs]."""

    def __init__(self, path, dtype="F32"):
        try:
            import numpy as np
        except ImportError:
            raise Missing("there is no numpy for this python3 (pip install numpy)")
        with open(path, "rb") as f:
            (size,) = struct.unpack("<Q", f.read(8))
            self.tensors = json.loads(f.read(size))
        self.data = np.memmap(path, np.uint8, "r", 8 + size)
        self.dtype = dtype

    def __getitem__(self, name):
        entry = self.tensors[name]
        if entry["dtype"] != self.dtype:
            raise Missing(f"{name} is {entry['dtype']}, not {self.dtype}")
        begin, end = entry["data_offsets"]
        return self.data[begin:end].view(VIEWS[self.dtype]).reshape(entry["shape"])

    def layer(self, i, name):
        return self[f"model.layers.{i}.{name}.weight"]

    def qkv(self, i):
        return [self.layer(i, f"self_attn.{x}_proj") for x in "qkv"]


GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def write_gguf(checkpoint, shape, path):
    """Writes a file of architecture qwen3 in f32, without a tokenizer. The file appears whole or not at all."""
    try:
        import gguf
    except ImportError:
        raise Missing("there is no gguf for this python3 (pip install gguf)")
    w = gguf.GGUFWriter(path + ".part", "qwen3")
    w.add_block_count(shape.layers)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(shape.hidden)
    w.add_feed_forward_length(shape.ff)
    w.add_head_count(shape.heads)
    w.add_head_count_kv(shape.kv_heads)
    w.add_key_length(shape.head_dim)
    w.add_value_length(shape.head_dim)
    w.add_rope_freq_base(shape.theta)
    w.add_layer_norm_rms_eps(EPS)
    w.add_vocab_size(shape.vocab)
    w.add_tokenizer_model("no_vocab")
    w.add_tensor("token_embd.weight", checkpoint["model.embed_tokens.weight"])
    w.add_tensor("output_norm.weight", checkpoint["model.norm.weight"])
    for i in range(shape.layers):
        for name, source in GGUF_NAMES.items():
            w.add_tensor(f"blk.{i}.{name}.weight", checkpoint.layer(i, source))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(path + ".part", path)
