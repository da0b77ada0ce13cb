"""The model as an OpenVINO graph: caches as state, attention as one operator, as its exporter for
language models leaves them.

Weights are constants in f32, which its CPU plugin brings into bf16 where that is the precision of
inference; q8 and q4 by nncf's compression of weights, activations rounded to int8 in groups of 32 where the
CPU level has products of bytes.
"""
import contextlib
import io
import logging

import numpy as np
import openvino as ov
from openvino import opset13 as op

import levels
from checkpoint import EPS, Missing

KINDS = ("f32", "bf16", "q8", "q4")
BYTES = {"f32": 4, "bf16": 2, "q8": 1, "q4": 0.5 + 2 / 32}  # per weight; a scale for each group, or each row of q8


def constant(values, kind=np.int64):
    return op.constant(np.array(values, kind))


class Graph:
    def __init__(self, checkpoint, shape):
        self.c, self.s, self.assigned = checkpoint, shape, []
        self.read = 0  # elements of matrices that one token reads

    def product(self, x, *parts):
        w = np.concatenate([np.array(p) for p in parts])
        self.read += w.size
        return op.matmul(x, op.constant(w), False, True)

    def norm(self, x, gain):
        mean = op.reduce_mean(op.multiply(x, x), constant([-1]), True)
        scale = op.divide(op.constant(np.float32(1)), op.sqrt(op.add(mean, op.constant(np.float32(EPS)))))
        return op.multiply(op.multiply(x, scale), op.constant(np.array(gain)))

    def heads(self, x, n):
        return op.reshape(x, constant([0, 0, n, self.s.head_dim]), True)

    def rope(self, x):
        low, high = op.split(x, constant(3), 2).outputs()
        turned = op.concat([op.negative(high), low], 3)
        return op.add(op.multiply(x, self.cos), op.multiply(turned, self.sin))

    def cached(self, x, name):
        """x appended to what earlier calls left."""
        shape = ov.PartialShape([1, self.s.kv_heads, -1, self.s.head_dim])
        info = ov.op.util.VariableInfo()
        info.data_shape, info.data_type, info.variable_id = shape, ov.Type.f32, name
        variable = ov.op.util.Variable(info)
        empty = op.constant(np.zeros((1, self.s.kv_heads, 0, self.s.head_dim), np.float32))
        all_rows = op.concat([ov.op.read_value(empty, variable), x], 2)
        self.assigned.append(ov.op.assign(all_rows, variable))
        return all_rows

    def each_query(self, x):
        """Repeats the heads of keys or values for each query that attends to them."""
        s, each = self.s, self.s.heads // self.s.kv_heads
        wide = op.broadcast(op.unsqueeze(x, constant(2)), constant([1, 1, each, 1, 1]), broadcast_spec="BIDIRECTIONAL")
        return op.reshape(wide, constant([0, s.heads, -1, s.head_dim]), True)

    def attention(self, x, i):
        s, c = self.s, self.c
        turn = constant([0, 2, 1, 3])
        q, k, v = (self.product(x, w) for w in c.qkv(i))
        q = op.transpose(self.norm(self.heads(q, s.heads), c.layer(i, "self_attn.q_norm")), turn)
        k = op.transpose(self.norm(self.heads(k, s.kv_heads), c.layer(i, "self_attn.k_norm")), turn)
        k = self.cached(self.rope(k), f"k{i}")
        v = self.cached(op.transpose(self.heads(v, s.kv_heads), turn), f"v{i}")
        y = op.scaled_dot_product_attention(self.rope(q), self.each_query(k), self.each_query(v), self.mask)
        y = op.reshape(op.transpose(y, turn), constant([0, 0, s.heads * s.head_dim]), True)
        return self.product(y, c.layer(i, "self_attn.o_proj"))

    def model(self):
        s, c = self.s, self.c
        ids = op.parameter([1, -1], ov.Type.i64, "ids")
        self.mask = op.parameter([1, 1, -1, -1], ov.Type.f32, "mask")
        self.cos, self.sin = (op.parameter([1, 1, -1, s.head_dim], ov.Type.f32, x) for x in ("cos", "sin"))
        embed = np.array(c["model.embed_tokens.weight"])
        x = op.gather(op.constant(embed), ids, constant(0))
        for i in range(s.layers):
            x = op.add(x, self.attention(self.norm(x, c.layer(i, "input_layernorm")), i))
            h = self.norm(x, c.layer(i, "post_attention_layernorm"))
            gate = self.product(h, c.layer(i, "mlp.gate_proj"))
            up = self.product(h, c.layer(i, "mlp.up_proj"))
            x = op.add(x, self.product(op.multiply(op.swish(gate), up), c.layer(i, "mlp.down_proj")))
        last = op.gather(x, constant([-1]), constant(1))
        logits = self.product(self.norm(last, c["model.norm.weight"]), embed)
        inputs = [ids, self.mask, self.cos, self.sin]
        return ov.Model([op.result(logits)], self.assigned, inputs, "qwen3")


def compress(model, kind):
    try:
        import nncf
    except ImportError:
        raise Missing("there is no nncf for this python3 (pip install nncf)")
    logging.getLogger("nncf").setLevel(logging.ERROR)
    modes = nncf.CompressWeightsMode
    if kind == "q8":
        return nncf.compress_weights(model, mode=modes.INT8_SYM)
    return nncf.compress_weights(model, mode=modes.INT4_SYM, group_size=32, ratio=1.0, all_layers=True)


def rounds_activations(kind):
    """With AVX2 alone OpenVINO has no products of bytes, and rejects the model if they are requested."""
    return kind in ("q8", "q4") and levels.held() != "avx2"


class Runner:
    """One compiled model and its state."""

    def __init__(self, kind, checkpoint, shape, threads):
        graph = Graph(checkpoint, shape)
        model = graph.model()
        if kind in ("q8", "q4"):
            with contextlib.redirect_stdout(io.StringIO()):  # a progress bar
                model = compress(model, kind)
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "KV_CACHE_PRECISION": "f32",
                   "INFERENCE_PRECISION_HINT": "bf16" if kind == "bf16" else "f32",
                   "DYNAMIC_QUANTIZATION_GROUP_SIZE": "32" if rounds_activations(kind) else "0"}
        self.weight_bytes = int(graph.read * BYTES[kind])
        self.request = ov.Core().compile_model(model, "CPU", options).create_infer_request()
        self.s, self.kept = shape, {}

    def prepare(self, past):
        """Restores the state of the first `past` tokens; the last call was the whole prompt."""
        self.request.reset_state()
        for state in self.request.query_state() if past else ():
            state.state = ov.Tensor(np.ascontiguousarray(self.kept[state.name][:, :, :past]))

    def forward(self, ids, past):
        n, s = len(ids), self.s
        angle = np.outer(np.arange(past, past + n), s.theta ** (-np.arange(0, s.head_dim, 2) / s.head_dim))
        rows = np.arange(n)[:, None] + past
        mask = np.where(np.arange(past + n)[None] <= rows, 0, -np.inf).astype(np.float32)
        cos, sin = (np.concatenate([f(angle)] * 2, -1).astype(np.float32)[None, None] for f in (np.cos, np.sin))
        inputs = [np.array([ids], np.int64), mask[None, None], cos, sin]
        self.row = self.request.infer(inputs, share_outputs=False)[0].reshape(-1)

    def keep(self):
        """Keeps the state after a prompt, for calls that continue it."""
        self.kept = {state.name: state.state.data.copy() for state in self.request.query_state()}
