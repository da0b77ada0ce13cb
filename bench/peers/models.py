"""The models of a comparison: compiled by Hadal, in PyTorch (eager, and compiled by torch.compile),
llama.cpp, ONNX Runtime and OpenVINO.

Each has label, weight_bytes (what a token reads of weights), forward(past, n): n tokens behind
`past` that earlier calls left, the last row of logits asked for; and logits(), that row. All raise
Missing where they cannot take part.
"""
import ctypes
import os

import levels
from checkpoint import EPS, Checkpoint, Missing, write_gguf


def tokens(shape, past, n):
    return [shape.token(i) for i in range(past, past + n)]


class Hadal:
    """A library that `hadal compile -o PATH` has written, through its C interface."""

    def __init__(self, path, label, shape, threads, capacity):
        folder, self.name = os.path.split(path)
        self.label, self.shape = label, shape
        self.weight_bytes = os.path.getsize(f"{path}.weights")
        self.lib = ctypes.CDLL(os.path.join(folder or ".", f"lib{self.name}.so"))
        weights, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.call("weights_open")(f"{path}.weights".encode(), ctypes.byref(weights)))
        size = self.call("session_size", ctypes.c_size_t)(ctypes.c_int64(capacity))
        self.memory = ctypes.create_string_buffer(size + 64)
        start = (ctypes.addressof(self.memory) + 63) // 64 * 64
        self.check(self.call("session_init")(ctypes.c_void_p(start), ctypes.c_size_t(size), weights,
                                             ctypes.c_int64(capacity), ctypes.byref(self.session)))
        self.check(self.call("session_set_threads")(self.session, threads))
        self.row = (ctypes.c_float * shape.vocab)()

    def call(self, name, result=ctypes.c_int):
        f = getattr(self.lib, f"{self.name}_{name}")
        f.restype = result
        return f

    def check(self, code):
        if code:
            raise Missing(self.call("strerror", ctypes.c_char_p)(code).decode())

    def forward(self, past, n):
        ids = (ctypes.c_int32 * n)(*tokens(self.shape, past, n))
        self.check(self.call("session_rewind")(self.session, ctypes.c_int64(past)))
        self.check(self.call("forward")(self.session, ids, ctypes.c_int64(n), self.row,
                                        ctypes.c_int64(1)))

    def logits(self):
        return list(self.row)


class Torch:
    """Eager PyTorch: fused attention, q/k/v and gate/up as one product each, caches allocated beforehand."""

    def __init__(self, kind, weights, shape, threads, capacity):
        try:
            import torch
        except ImportError:
            raise Missing("there is no torch for this python3 (pip install torch)")
        if kind not in ("f32", "bf16", "f16"):
            raise Missing(f"eager PyTorch has no {kind}")
        if not hasattr(torch.nn.functional, "rms_norm"):
            raise Missing(f"torch {torch.__version__} has no rms_norm: 2.5 or later is needed")
        self.t, self.s, self.label = torch, shape, f"PyTorch {torch.__version__.split('+')[0]}"
        torch.set_num_threads(threads)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[kind]
        checkpoint = Checkpoint(weights)

        def tensor(*parts):
            return torch.cat([torch.tensor(p) for p in parts]).to(dtype)

        self.embed = tensor(checkpoint["model.embed_tokens.weight"])
        self.norm = tensor(checkpoint["model.norm.weight"])
        self.layers = [self.layer(checkpoint, i, tensor) for i in range(shape.layers)]
        cache = (shape.layers, 1, shape.kv_heads, capacity, shape.head_dim)
        self.k, self.v = torch.zeros(cache, dtype=dtype), torch.zeros(cache, dtype=dtype)
        angle = torch.outer(torch.arange(capacity), self.frequencies())
        self.cos, self.sin = (torch.cat([f(angle)] * 2, -1).to(dtype) for f in (torch.cos, torch.sin))
        every = [self.embed, self.norm] + [t for layer in self.layers for t in layer]
        self.weight_bytes = sum(t.numel() * t.element_size() for t in every)

    @staticmethod
    def layer(c, i, tensor):
        return (tensor(c.layer(i, "input_layernorm")), tensor(*c.qkv(i)),
                tensor(c.layer(i, "self_attn.q_norm")), tensor(c.layer(i, "self_attn.k_norm")),
                tensor(c.layer(i, "self_attn.o_proj")), tensor(c.layer(i, "post_attention_layernorm")),
                tensor(c.layer(i, "mlp.gate_proj"), c.layer(i, "mlp.up_proj")),
                tensor(c.layer(i, "mlp.down_proj")))

    def frequencies(self):
        d = self.s.head_dim
        return self.s.theta ** (-self.t.arange(0, d, 2) / d)

    def rope(self, x, past, n):
        a, b = x.chunk(2, -1)
        return x * self.cos[past:past + n] + self.t.cat([-b, a], -1) * self.sin[past:past + n]

    def attention(self, i, h, q_norm, k_norm, past, n):
        F, s, end = self.t.nn.functional, self.s, past + n
        h = h.view(1, n, -1, s.head_dim).transpose(1, 2)
        q, k, v = h.split([s.heads, s.kv_heads, s.kv_heads], 1)
        q = self.rope(F.rms_norm(q, (s.head_dim,), q_norm, EPS), past, n)
        k = self.rope(F.rms_norm(k, (s.head_dim,), k_norm, EPS), past, n)
        self.k[i][:, :, past:end], self.v[i][:, :, past:end] = k, v
        y = F.scaled_dot_product_attention(q, self.k[i][:, :, :end], self.v[i][:, :, :end],
                                           is_causal=n > 1, enable_gqa=True)
        return y.transpose(1, 2).reshape(n, s.heads * s.head_dim)

    def forward(self, past, n):
        assert past == 0 or n == 1, "is_causal speaks of square masks"
        with self.t.inference_mode():
            self.row = self.step(self.t.tensor(tokens(self.s, past, n)), past, n)

    def step(self, ids, past, n):
        """The last row of logits."""
        F, d = self.t.nn.functional, (self.s.hidden,)
        x = self.embed[ids]
        for i, (norm, qkv, q_norm, k_norm, o, mlp_norm, gate_up, down) in enumerate(self.layers):
            h = F.linear(F.rms_norm(x, d, norm, EPS), qkv)
            x = x + F.linear(self.attention(i, h, q_norm, k_norm, past, n), o)
            gate, up = F.linear(F.rms_norm(x, d, mlp_norm, EPS), gate_up).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[-1:], d, self.norm, EPS), self.embed)

    def logits(self):
        return self.row[0].float().tolist()


class TorchCompiled(Torch):
    """The same through torch.compile (inductor), compiled once for each prompt length and each position after it."""

    def __init__(self, kind, weights, shape, threads, capacity):
        super().__init__(kind, weights, shape, threads, capacity)
        self.label = self.label.replace("PyTorch", "torch.compile")
        levels.hold_inductor()
        self.step = self.t.compile(self.step, dynamic=False)


class Onnx:
    """ONNX Runtime on the graph of onnx_model.py, caches in buffers that it writes in place."""

    def __init__(self, kind, weights, shape, threads, capacity, folder):
        try:
            import numpy as np
            import onnxruntime as ort

            import onnx_model
        except ImportError as e:
            raise Missing(f"{e} (pip install numpy onnx onnxruntime)")
        if levels.held() != "best":
            raise Missing(f"ONNX Runtime chooses its kernels by the CPU, and cannot be held to {levels.held()}")
        if kind not in onnx_model.KINDS:
            raise Missing(f"ONNX Runtime has no kernels for {kind} on CPUs")
        self.np, self.ort, self.s = np, ort, shape
        self.label = f"ONNX Runtime {ort.__version__}"
        path = onnx_model.write(kind, Checkpoint(weights), shape, capacity, folder)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        try:
            self.session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as e:  # an exception type of onnxruntime
            raise Missing(str(e).splitlines()[0])
        self.weight_bytes = int(self.session.get_modelmeta().custom_metadata_map["weight_bytes"])
        self.binding = self.session.io_binding()
        cache = (1, shape.kv_heads, capacity, shape.head_dim)
        self.caches = []
        for i in range(shape.layers):
            for x in "kv":
                value = ort.OrtValue.ortvalue_from_numpy(np.zeros(cache, np.float32))
                self.caches.append(value)
                self.binding.bind_ortvalue_input(f"past_{x}{i}", value)
                self.binding.bind_ortvalue_output(f"present_{x}{i}", value)
        self.binding.bind_output("logits")

    def forward(self, past, n):
        np = self.np
        inputs = {"ids": np.array([tokens(self.s, past, n)], np.int64),
                  "last": np.array([past + n - 1], np.int32), "total": np.array(past + n, np.int32)}
        for name, value in inputs.items():
            self.binding.bind_cpu_input(name, value)
        self.session.run_with_iobinding(self.binding)

    def logits(self):
        return self.binding.get_outputs()[-1].numpy().reshape(-1).tolist()


class OpenVino:
    """OpenVINO on the graph of openvino_model.py. The state of the prompt is restored before each token after it."""

    def __init__(self, kind, weights, shape, threads, capacity):
        try:
            import openvino

            import openvino_model
        except ImportError as e:
            raise Missing(f"{e} (pip install numpy openvino)")
        if kind not in openvino_model.KINDS:
            raise Missing(f"OpenVINO has no {kind} on CPUs")
        self.s, self.label = shape, f"OpenVINO {openvino.__version__.split('-')[0]}"
        if kind == "f32" and levels.held() != "best":
            self.label += ", AVX-512 in products"  # its gemm_mlas looks at the CPU alone
        try:
            self.runner = openvino_model.Runner(kind, Checkpoint(weights), shape, threads)
        except RuntimeError as e:  # raised by OpenVINO: places in its source, then what is wrong
            raise Missing(next((x for x in str(e).splitlines() if x and not x.startswith("Exception from")), str(e)))
        self.weight_bytes = self.runner.weight_bytes

    def prepare(self, past):
        self.runner.prepare(past)

    def forward(self, past, n):
        self.runner.forward(tokens(self.s, past, n), past)

    def logits(self):
        self.runner.keep()
        return self.runner.row.tolist()


LLAMA_FORMATS = {"f32": "ALL_F32", "f16": "MOSTLY_F16", "bf16": "MOSTLY_BF16", "q8_0": "MOSTLY_Q8_0",
                 "q4_0": "MOSTLY_Q4_0", "q4_1": "MOSTLY_Q4_1", "q4_k": "MOSTLY_Q4_K_S"}


class Llama:
    """llama.cpp through llama-cpp-python, with its defaults: caches in f16, flash attention where llama.cpp chooses it. Every
    matrix has the same format, the head's as well."""

    def __init__(self, form, weights, shape, threads, capacity, folder):
        try:
            import llama_cpp
        except ImportError:
            raise Missing("there is no llama_cpp for this python3 (pip install llama-cpp-python)")
        l, self.s = llama_cpp, shape
        self.l, self.label = l, f"llama.cpp ({l.__version__}) {form}"
        self.quiet = l.llama_log_callback(lambda level, text, data: None)
        l.llama_log_set(self.quiet, ctypes.c_void_p(0))
        l.llama_backend_init()
        wider = [x for x in levels.WIDER.get(levels.held(), ()) if f"{x} = 1" in l.llama_print_system_info().decode()]
        if wider:
            raise Missing(f"this build of llama.cpp uses {', '.join(wider)}: for {levels.held()} it needs GGML_NATIVE=OFF")
        path = self.file(form, weights, folder, threads)
        self.weight_bytes = os.path.getsize(path)
        self.model = l.llama_load_model_from_file(path.encode(), l.llama_model_default_params())
        if not self.model:
            raise Missing(f"{path} cannot be loaded")
        p = l.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch, p.n_threads, p.n_threads_batch = capacity, 512, 512, threads, threads
        self.context = l.llama_new_context_with_model(self.model, p)
        if not self.context:
            raise Missing(f"no context for {capacity} tokens")
        self.batch = l.llama_batch_init(512, 0, 1)

    def file(self, form, weights, folder, threads):
        source, path = (os.path.join(folder, f"qwen3-{x}.gguf") for x in ("f32", form))
        if not os.path.exists(source) and not os.path.exists(path):
            write_gguf(Checkpoint(weights), self.s, source)
        if not os.path.exists(path):
            self.quantise(source, path, form, threads)
        return path

    def quantise(self, source, path, form, threads):
        p = self.l.llama_model_quantize_default_params()
        p.nthread, p.pure = threads, True
        p.ftype = getattr(self.l, f"LLAMA_FTYPE_{LLAMA_FORMATS[form]}")
        if self.l.llama_model_quantize(source.encode(), f"{path}.part".encode(), ctypes.byref(p)):
            raise Missing(f"llama.cpp cannot store this model as {form}")
        os.replace(f"{path}.part", path)

    def forward(self, past, n):
        l, b = self.l, self.batch
        assert n <= 512, "one batch"
        l.llama_memory_seq_rm(l.llama_get_memory(self.context), 0, past, -1)
        b.n_tokens = n
        for i, token in enumerate(tokens(self.s, past, n)):
            b.token[i], b.pos[i], b.n_seq_id[i] = token, past + i, 1
            b.seq_id[i][0], b.logits[i] = 0, i == n - 1
        if l.llama_decode(self.context, b):
            raise Missing("llama_decode failed")

    def logits(self):
        return self.l.llama_get_logits_ith(self.context, -1)[:self.s.vocab]
