#!/usr/bin/env python3
"""A GGUF file of the shape of bench/specs/qwen3.hadal with random weights, for llama.cpp.

    random_gguf.py f32|f16|bf16|q8|q4 OUT.gguf

q8 is Q8_0, q4 is Q4_0: groups of 32 with one f16 scale. Norms stay f32. Needs `pip install gguf`.
"""
import os
import sys

import numpy as np

LAYERS, D, HEADS, GROUPS, HEAD, FF, VOCAB, CONTEXT = 28, 1024, 16, 8, 128, 3072, 32000, 8192


def write(kind, path):
    import gguf

    stored = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16,
              "bf16": gguf.GGMLQuantizationType.BF16, "q8": gguf.GGMLQuantizationType.Q8_0,
              "q4": gguf.GGMLQuantizationType.Q4_0}[kind]
    rng = np.random.default_rng(1)
    w = gguf.GGUFWriter(path + ".part", "qwen3")
    w.add_block_count(LAYERS)
    w.add_context_length(CONTEXT)
    w.add_embedding_length(D)
    w.add_feed_forward_length(FF)
    w.add_head_count(HEADS)
    w.add_head_count_kv(GROUPS)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_freq_base(1e6)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_vocab_size(VOCAB)
    w.add_tokenizer_model("no_vocab")

    def matrix(name, rows, columns):
        # one random block over and over: values do not matter, how they are spread does
        block = (0.02 * rng.standard_normal((64, columns))).astype(np.float32)
        data = np.tile(gguf.quants.quantize(block, stored), (rows // 64, 1))
        w.add_tensor(name, data, raw_dtype=stored)

    def gain(name, n):
        w.add_tensor(name, np.ones(n, dtype=np.float32))

    matrix("token_embd.weight", VOCAB, D)
    gain("output_norm.weight", D)
    for layer in range(LAYERS):
        b = f"blk.{layer}."
        gain(b + "attn_norm.weight", D)
        matrix(b + "attn_q.weight", HEADS * HEAD, D)
        matrix(b + "attn_k.weight", GROUPS * HEAD, D)
        matrix(b + "attn_v.weight", GROUPS * HEAD, D)
        matrix(b + "attn_output.weight", D, HEADS * HEAD)
        gain(b + "attn_q_norm.weight", HEAD)
        gain(b + "attn_k_norm.weight", HEAD)
        gain(b + "ffn_norm.weight", D)
        matrix(b + "ffn_gate.weight", FF, D)
        matrix(b + "ffn_up.weight", FF, D)
        matrix(b + "ffn_down.weight", D, FF)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(path + ".part", path)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("f32", "f16", "bf16", "q8", "q4"):
        sys.exit(__doc__)
    write(sys.argv[1], sys.argv[2])
