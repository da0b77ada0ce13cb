"""The model as an ONNX graph of the operators that ONNX Runtime's own exporter uses.

Weights lie in a file beside the graph: f32 for MatMul, or q8 and q4 for MatMulNBits: groups of 32
along the inputs, an f32 scale, symmetric, activations rounded to int8 (accuracy level 4).
"""
import math
import os

import numpy as np
import onnx
from onnx import TensorProto, helper

from checkpoint import EPS

KINDS = ("f32", "q8", "q4")
GROUP = 32
OPSET, MICROSOFT = 17, "com.microsoft"


def quantise(w, bits):
    """[N, K] to bytes [N, K/32, 32 bits/8], low nibbles first, and scales [N, K/32]: the value of largest magnitude of a
    group becomes -2^(bits-1); stored values are larger by 2^(bits-1)."""
    half = 1 << (bits - 1)
    groups = w.reshape(w.shape[0], -1, GROUP)
    most = np.take_along_axis(groups, np.abs(groups).argmax(-1)[..., None], -1)
    scale = most / -half
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    q = np.clip(np.rint(groups * inverse) + half, 0, 2 * half - 1).astype(np.uint8)
    return (q if bits == 8 else q[..., 0::2] | q[..., 1::2] << 4), scale[..., 0]


class Graph:
    """Nodes, and tensors whose bytes go to `file`."""

    def __init__(self, kind, file):
        self.kind, self.file, self.nodes, self.tensors = kind, file, [], []
        self.read = 0  # bytes of weights that one token reads

    def node(self, op, inputs, outputs, domain="", **attributes):
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    def tensor(self, name, array, read=True):
        t = TensorProto(name=name, dims=array.shape, data_location=TensorProto.EXTERNAL,
                        data_type=helper.np_dtype_to_tensor_dtype(array.dtype))
        where = {"location": os.path.basename(self.file.name), "offset": self.file.tell(),
                 "length": array.nbytes}
        for key, value in where.items():
            t.external_data.add(key=key, value=str(value))
        self.file.write(np.ascontiguousarray(array).tobytes())
        self.file.write(bytes(-self.file.tell() % 4096))  # aligns the next tensor to a page
        self.tensors.append(t)
        self.read += array.nbytes if read else 0
        return name

    def small(self, name, kind, values):
        shape = [len(values)]
        self.tensors.append(helper.make_tensor(name, kind, shape, values))
        return name

    def product(self, x, w, y):
        """y = x w^T with w [outputs, inputs]."""
        if self.kind == "f32":
            return self.node("MatMul", [x, self.tensor(f"{y}.w", w.T)], [y])
        bits = int(self.kind[1:])
        q, scale = quantise(w, bits)
        inputs = [x, self.tensor(f"{y}.w", q), self.tensor(f"{y}.s", scale.reshape(-1))]
        return self.node("MatMulNBits", inputs, [y], MICROSOFT, K=w.shape[1], N=w.shape[0],
                         bits=bits, block_size=GROUP, accuracy_level=4)

    def norm(self, x, gain, y):
        return self.node("SimplifiedLayerNormalization", [x, self.tensor(f"{y}.g", gain)], [y],
                         axis=-1, epsilon=EPS)

    def add_and_norm(self, x, y, gain, out):
        """(norm(x + y), x + y)"""
        outputs = [out, "", "", f"{out}.sum"]
        self.node("SkipSimplifiedLayerNormalization", [x, y, self.tensor(f"{out}.g", gain)], outputs,
                  MICROSOFT, epsilon=EPS)
        return out, f"{out}.sum"

    def head_norm(self, x, gain, heads, d, y):
        split = self.small(f"{y}.split", TensorProto.INT64, [0, 0, heads, d])
        join = self.small(f"{y}.join", TensorProto.INT64, [0, 0, heads * d])
        rows = self.node("Reshape", [x, split], [f"{y}.heads"])
        return self.node("Reshape", [self.norm(rows, gain, f"{y}.normed"), join], [y])

    def swiglu(self, x, checkpoint, i):
        gate = self.product(x, checkpoint.layer(i, "mlp.gate_proj"), f"gate{i}")
        up = self.product(x, checkpoint.layer(i, "mlp.up_proj"), f"up{i}")
        sigmoid = self.node("Sigmoid", [gate], [f"sigmoid{i}"])
        silu = self.node("Mul", [gate, sigmoid], [f"silu{i}"])
        return self.product(self.node("Mul", [silu, up], [f"act{i}"]),
                            checkpoint.layer(i, "mlp.down_proj"), f"down{i}")


def attention(g, x, c, s, i):
    wq, wk, wv = c.qkv(i)
    q = g.head_norm(g.product(x, wq, f"q{i}"), c.layer(i, "self_attn.q_norm"), s.heads, s.head_dim,
                    f"qn{i}")
    k = g.head_norm(g.product(x, wk, f"k{i}"), c.layer(i, "self_attn.k_norm"), s.kv_heads, s.head_dim,
                    f"kn{i}")
    v = g.product(x, wv, f"v{i}")
    inputs = [q, k, v, f"past_k{i}", f"past_v{i}", "last", "total", "cos", "sin"]
    y = g.node("GroupQueryAttention", inputs, [f"att{i}", f"present_k{i}", f"present_v{i}"],
               MICROSOFT, num_heads=s.heads, kv_num_heads=s.kv_heads, do_rotary=1,
               scale=1 / math.sqrt(s.head_dim))
    return g.product(y, c.layer(i, "self_attn.o_proj"), f"o{i}")


def nodes(g, c, s, capacity):
    embed = c["model.embed_tokens.weight"]
    angle = np.outer(np.arange(capacity), s.theta ** (-np.arange(0, s.head_dim, 2) / s.head_dim))
    g.tensor("cos", np.cos(angle).astype(np.float32), read=False)
    g.tensor("sin", np.sin(angle).astype(np.float32), read=False)
    x = g.node("Gather", [g.tensor("embed", embed, read=False), "ids"], ["embedded"])
    h = g.norm(x, c.layer(0, "input_layernorm"), "h0")
    for i in range(s.layers):
        y = attention(g, h, c, s, i)
        h, x = g.add_and_norm(x, y, c.layer(i, "post_attention_layernorm"), f"m{i}")
        y = g.swiglu(h, c, i)
        last = i + 1 == s.layers
        gain = c["model.norm.weight"] if last else c.layer(i + 1, "input_layernorm")
        h, x = g.add_and_norm(x, y, gain, f"h{i + 1}")
    INT64 = TensorProto.INT64
    ends = [g.small("begin", INT64, [-1]), g.small("end", INT64, [1 << 30]), g.small("axis", INT64, [1])]
    g.product(g.node("Slice", [h] + ends, ["tail"]), embed, "logits")


def write(kind, checkpoint, shape, capacity, folder):
    """Writes FOLDER/qwen3-KIND-CAPACITY.onnx, for caches of `capacity` tokens, and its weights, if they do not exist; returns
    the path. Its metadata have `weight_bytes`, the bytes of weights that a token reads."""
    path = os.path.join(folder, f"qwen3-{kind}-{capacity}.onnx")
    if os.path.exists(path):
        return path
    with open(f"{path}.weights", "wb") as file:
        g = Graph(kind, file)
        nodes(g, checkpoint, shape, capacity)
    value, FLOAT = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [value("ids", TensorProto.INT64, [1, "n"]), value("last", TensorProto.INT32, [1]),
              value("total", TensorProto.INT32, [])]
    outputs = []
    cache = [1, shape.kv_heads, capacity, shape.head_dim]
    for i in range(shape.layers):
        inputs += [value(f"past_{x}{i}", FLOAT, cache) for x in "kv"]
        outputs += [value(f"present_{x}{i}", FLOAT, cache) for x in "kv"]
    outputs.append(value("logits", FLOAT, [1, 1, shape.vocab]))
    graph = helper.make_graph(g.nodes, "qwen3", inputs, outputs, g.tensors)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = 9
    helper.set_model_props(model, {"weight_bytes": str(g.read)})
    with open(f"{path}.part", "wb") as file:
        file.write(model.SerializeToString())
    os.replace(f"{path}.part", path)
    return path
