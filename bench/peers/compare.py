#!/usr/bin/env python3
"""Compiled models beside peers on the same shape (bench/specs/qwen3.hadal), in one process, in turn.

    compare.py [--hadal PATH] [--threads 2] [--prefill 512] [--rounds 3] [--peers torch,onnx,llama]
               [--gguf DIR] NAME=TYPE...

NAME: DIR/NAME as given to `hadal compile -o`, TYPE: how its weights are stored (f32, f16, bf16, q8,
q4). Each round runs all models of a type after each other, prefill and decode, forwards and
backwards in turn; figures are medians of the rounds. The limits come from `hadal bench` on the same
library, right before. A peer that is not installed, or has no such type, says so and is left out.
"""
import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import time

LAYERS, D, HEADS, GROUPS, HEAD, FF, VOCAB = 28, 1024, 16, 8, 128, 3072, 32000
MATRIX = LAYERS * D * (2 * HEADS * HEAD + 2 * GROUPS * HEAD + 3 * FF) + VOCAB * D
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "q8": 34 / 32, "q4": 18 / 32}  # as peers store them


class Missing(Exception):
    pass


class Hadal:
    """A library, through its C interface."""

    def __init__(self, path, threads, room):
        folder, self.name = os.path.split(path)
        self.label = self.name
        self.lib = ctypes.CDLL(os.path.join(folder or ".", f"lib{self.name}.so"))
        weights, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.call("weights_open")(f"{path}.weights".encode(), ctypes.byref(weights)))
        size = self.call("session_size", ctypes.c_size_t)(ctypes.c_int64(room))
        self.memory = ctypes.create_string_buffer(size + 64)
        start = (ctypes.addressof(self.memory) + 63) // 64 * 64
        self.check(self.call("session_init")(ctypes.c_void_p(start), ctypes.c_size_t(size), weights,
                                             ctypes.c_int64(room), ctypes.byref(self.session)))
        self.check(self.call("session_set_threads")(self.session, threads))
        self.logits = (ctypes.c_float * VOCAB)()

    def call(self, name, result=ctypes.c_int):
        f = getattr(self.lib, f"{self.name}_{name}")
        f.restype = result
        return f

    def check(self, code):
        if code:
            sys.exit(f"{self.name}: {self.call('strerror', ctypes.c_char_p)(code).decode()}")

    def forward(self, past, n):
        ids = (ctypes.c_int32 * n)(*[(7919 * i + 11) % VOCAB for i in range(n)])
        self.check(self.call("session_rewind")(self.session, ctypes.c_int64(past)))
        self.check(self.call("forward")(self.session, ids, ctypes.c_int64(n), self.logits,
                                        ctypes.c_int64(1)))


class Torch:
    """Eager PyTorch: the standard residual, fused attention, q/k/v and gate/up as one product."""

    def __init__(self, kind, threads, room):
        try:
            import torch
        except ImportError:
            raise Missing("there is no torch for this python3 (pip install torch)")
        if kind not in ("f32", "bf16", "f16"):
            raise Missing(f"no {kind} here")
        self.t, self.label = torch, f"PyTorch {torch.__version__}"
        torch.set_num_threads(threads)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[kind]
        make = lambda *shape: (0.02 * torch.randn(shape)).to(dtype)
        self.embed = make(VOCAB, D)
        kv = GROUPS * HEAD
        self.layers = [(make(HEADS * HEAD + 2 * kv, D), make(D, HEADS * HEAD), make(2 * FF, D),
                        make(D, FF)) for _ in range(LAYERS)]
        self.ones, self.head_ones = torch.ones(D, dtype=dtype), torch.ones(HEAD, dtype=dtype)
        self.k = [torch.zeros(1, GROUPS, room, HEAD, dtype=dtype) for _ in range(LAYERS)]
        self.v = [torch.zeros(1, GROUPS, room, HEAD, dtype=dtype) for _ in range(LAYERS)]
        angle = torch.outer(torch.arange(room), 1e6 ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.cos, self.sin = (torch.cat([f(angle)] * 2, -1).to(dtype) for f in (torch.cos, torch.sin))

    def rope(self, x, past, n):
        a, b = x.chunk(2, -1)
        return x * self.cos[past:past + n] + self.t.cat([-b, a], -1) * self.sin[past:past + n]

    def forward(self, past, n):
        t, F = self.t, self.t.nn.functional
        with t.inference_mode():
            x = self.embed[(7919 * t.arange(n) + 11) % VOCAB]
            for i, (qkv, o, gate_up, down) in enumerate(self.layers):
                h = F.linear(F.rms_norm(x, (D,), self.ones, 1e-6), qkv).view(1, n, -1, HEAD)
                q, k, v = h.transpose(1, 2).split([HEADS, GROUPS, GROUPS], 1)
                q = self.rope(F.rms_norm(q, (HEAD,), self.head_ones, 1e-6), past, n)
                k = self.rope(F.rms_norm(k, (HEAD,), self.head_ones, 1e-6), past, n)
                self.k[i][:, :, past:past + n], self.v[i][:, :, past:past + n] = k, v
                y = F.scaled_dot_product_attention(
                    q, self.k[i][:, :, :past + n], self.v[i][:, :, :past + n], is_causal=n > 1,
                    enable_gqa=True)
                x = x + F.linear(y.transpose(1, 2).reshape(n, HEADS * HEAD), o)
                g, u = F.linear(F.rms_norm(x, (D,), self.ones, 1e-6), gate_up).chunk(2, -1)
                x = x + F.linear(F.silu(g) * u, down)
            return F.linear(F.rms_norm(x[-1:], (D,), self.ones, 1e-6), self.embed)


class Onnx:
    """ONNX Runtime: the products of the model alone (q/k/v, output, gate/up, down, head) on one
    chain, without attention, norms and caches: less work than the model, so a bound that favours
    the peer."""

    def __init__(self, kind, threads, room):
        try:
            import numpy as np
            import onnx
            import onnxruntime as ort
        except ImportError as e:
            raise Missing(f"{e} (pip install onnx onnxruntime)")
        if kind != "f32":
            raise Missing(f"no {kind} here")
        self.np, self.label = np, f"ONNX Runtime {ort.__version__}, products alone"
        helper, FLOAT = onnx.helper, onnx.TensorProto.FLOAT
        nodes, weights = [], []
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "1")
        rng = np.random.default_rng(1)

        def product(x, y, k, n):
            name = f"w{len(weights)}"
            w = np.tile((0.02 * rng.standard_normal((64, n))).astype(np.float32), (k // 64, 1))
            weights.append(onnx.numpy_helper.from_array(w, name))
            nodes.append(helper.make_node("MatMul", [x, name], [y]))

        def part(x, y, end, layer):
            nodes.append(helper.make_node("Slice", [x, "zero", end, "axis"], [y], name=y + str(layer)))

        x = "x"
        for i in range(LAYERS):
            product(x, f"h{i}", D, (HEADS + 2 * GROUPS) * HEAD)
            part(f"h{i}", f"q{i}", "heads", i)
            product(f"q{i}", f"o{i}", HEADS * HEAD, D)
            product(f"o{i}", f"m{i}", D, 2 * FF)
            part(f"m{i}", f"g{i}", "ff", i)
            product(f"g{i}", f"d{i}", FF, D)
            x = f"d{i}"
        nodes.append(helper.make_node("Slice", [x, "last", "far", "first"], ["tail"]))
        product("tail", "y", D, VOCAB)
        constants = {"zero": 0, "axis": 1, "heads": HEADS * HEAD, "ff": FF, "last": -1,
                     "far": 1 << 30, "first": 0}
        tensors = [helper.make_tensor(n, onnx.TensorProto.INT64, [1], [v]) for n, v in constants.items()]
        graph = helper.make_graph(nodes, "products",
                                  [helper.make_tensor_value_info("x", FLOAT, ["T", D])],
                                  [helper.make_tensor_value_info("y", FLOAT, [1, VOCAB])],
                                  tensors + weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 9
        self.session = ort.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])

    def forward(self, past, n):
        self.session.run(None, {"x": self.np.full((n, D), 0.01, self.np.float32)})


class Llama:
    """llama.cpp through llama-cpp-python, on a random GGUF file."""

    def __init__(self, kind, threads, room, folder):
        try:
            import llama_cpp
        except ImportError:
            raise Missing("there is no llama_cpp for this python3 (pip install llama-cpp-python)")
        path = os.path.join(folder, f"qwen3-{kind}.gguf")
        if not os.path.exists(path):
            try:
                import random_gguf
                random_gguf.write(kind, path)
            except ImportError as e:
                raise Missing(f"{e} (pip install gguf)")
        l = self.l = llama_cpp
        self.label = f"llama-cpp-python {l.__version__}"
        self.quiet = l.llama_log_callback(lambda level, text, data: None)
        l.llama_log_set(self.quiet, ctypes.c_void_p(0))
        l.llama_backend_init()
        self.model = l.llama_load_model_from_file(path.encode(), l.llama_model_default_params())
        if not self.model:
            raise Missing(f"{path} cannot be loaded")
        p = l.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = room, 512, 512, threads, threads
        self.context = l.llama_new_context_with_model(self.model, p)
        self.batch = l.llama_batch_init(512, 0, 1)

    def forward(self, past, n):
        l, b = self.l, self.batch
        l.llama_memory_seq_rm(l.llama_get_memory(self.context), 0, past, -1)
        b.n_tokens = n
        for i in range(n):
            b.token[i], b.pos[i], b.n_seq_id[i] = (7919 * i + 11) % VOCAB, past + i, 1
            b.seq_id[i][0], b.logits[i] = 0, i == n - 1
        if l.llama_decode(self.context, b):
            sys.exit("llama_decode failed")


def limits(hadal, path, threads, tokens):
    out = subprocess.run([hadal, "bench", path, "--json", "--rounds", "2", "--threads", str(threads),
                          "--prefill", str(tokens), "--decode", "0"], capture_output=True, text=True)
    if out.returncode:
        sys.exit(out.stderr)
    rows = json.loads(out.stdout)["rows"]
    row = {r["phase"]: r for r in rows}
    return row["prefill"], row["decode"]


def seconds(model, past, n):
    start = time.perf_counter()
    model.forward(past, n)
    return time.perf_counter() - start


def open_all(kind, paths, a, room):
    models = [Hadal(p, a.threads, room) for p in paths]
    for name in a.peers.split(","):
        try:
            if name == "llama":
                models.append(Llama(kind, a.threads, room, a.gguf))
            elif name in ("torch", "onnx"):
                models.append({"torch": Torch, "onnx": Onnx}[name](kind, a.threads, room))
        except Missing as e:
            print(f"{kind}: {name} is left out: {e}", flush=True)
    return models


def compare(kind, paths, a):
    prefill, decode = limits(a.hadal, paths[0], a.threads, a.prefill)
    models = open_all(kind, paths, a, a.prefill + 8)
    times = {m: ([], []) for m in models}
    for m in models:
        m.forward(0, a.prefill), m.forward(a.prefill, 1)
    for r in range(a.rounds):
        for m in models if r % 2 == 0 else reversed(models):
            times[m][0].append(seconds(m, 0, a.prefill))
            times[m][1].append(min(seconds(m, a.prefill, 1) for _ in range(3)))
    weights = MATRIX * BYTES[kind]
    for m in models:
        p, d = (statistics.median(t) for t in times[m])
        print(f"{kind:5s} {m.label:44s} {a.prefill / p:9.1f} {prefill['flops'] / p / prefill['fma_limit']:7.2f}"
              f" {1 / d:9.1f} {weights / d / decode['read_limit']:7.2f}", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hadal", default="hadal")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--prefill", type=int, default=512)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peers", default="torch,onnx,llama")
    p.add_argument("--gguf", default="/tmp")
    p.add_argument("models", nargs="+", metavar="NAME=TYPE")
    a = p.parse_args()
    kinds = {}
    for m in a.models:
        path, _, kind = m.rpartition("=")
        if kind not in BYTES or not path:
            sys.exit(f'"{m}" is not NAME=TYPE with a type of {", ".join(BYTES)}')
        kinds.setdefault(kind, []).append(path)
    print(f"type  {'model':44s} prefill/s  of fma  decode/s of read  ({a.prefill} tokens, "
          f"{a.threads} threads; decode behind them, weights alone)")
    for kind, paths in kinds.items():
        compare(kind, paths, a)


if __name__ == "__main__":
    main()
