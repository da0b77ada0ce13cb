"""A library of gradients, called through ctypes as a program would call it."""
import ctypes as c
import json
import os
import re
import subprocess

import projections

OK, ARGUMENT, TOKEN, FULL, SIZE, ALIGNMENT, CPU, SAVED, BUILD, MOVED, FINITE, COUNT = 0, 1, 2, 3, 4, 5, 10, 16, 17, 21, 22, 23
ALIGN = 64


class Parameter(c.Structure):
    _fields_ = [("name", c.c_char_p), ("type", c.c_char_p), ("values", c.POINTER(c.c_float)),
                ("gradient", c.POINTER(c.c_float)), ("elements", c.c_size_t), ("update", c.c_char_p)]


class Options(c.Structure):
    """NAME_step_options, with the defaults of the header"""
    _fields_ = [("step", c.c_int64)] + [(name, c.c_double) for name in ("learning_rate", "weight_decay", "clip", "beta1", "beta2", "eps", "momentum")]

    def __init__(self, step, **numbers):
        super().__init__(step, **{**dict(learning_rate=0.001, weight_decay=0.1, clip=1, beta1=0.9, beta2=0.95, eps=1e-8, momentum=0.95), **numbers})


def memory(size):
    raw = c.create_string_buffer(size + ALIGN)
    return raw, (c.addressof(raw) + ALIGN - 1) // ALIGN * ALIGN


class Model:
    def __init__(self, hadal, folder, work, case, *options):
        # symbols begin with the name: what two libraries have in common is translated once (HADAL_CODE_CACHE)
        self.name, work = "model", os.path.join(work, re.sub(r"\W", "_", "_".join((case, *options))))
        self.header = os.path.join(work, "model.h")
        os.makedirs(work, exist_ok=True)
        self.config, weights = {"vocab_size": 7}, os.path.join(work, "sizes.safetensors")
        if case.endswith(".hadal"):  # a spec beside this file
            folder = os.path.dirname(os.path.abspath(__file__))
            subprocess.run([hadal, "init-weights", os.path.join(folder, case), "-o", weights, "-q"], check=True)
        else:
            weights = os.path.join(folder, case, "model.safetensors")
            with open(os.path.join(folder, case, "config.json"), encoding="utf-8") as f:
                self.config = json.load(f)
        done = subprocess.run([hadal, "compile", os.path.join(folder, case), "--gradients", *options, "-o", os.path.join(work, self.name), "-q"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert not os.path.exists(os.path.join(work, self.name + ".weights"))
        self.lib = c.CDLL(os.path.join(work, f"lib{self.name}.so"))
        self.weights = projections.read_numbers(weights)
        for f, result, *arguments in (
                ("trainer_size", c.c_size_t, c.c_int64), ("trainer_init", c.c_int, c.c_void_p, c.c_size_t, c.c_int64, c.c_void_p),
                ("trainer_size_on", c.c_size_t, c.c_int64, c.c_void_p),
                ("trainer_init_on", c.c_int, c.c_void_p, c.c_size_t, c.c_int64, c.c_void_p, c.c_int64, c.c_void_p),
                ("trainer_parameters", c.POINTER(Parameter), c.c_void_p, c.c_void_p),
                ("trainer_set_threads", c.c_int, c.c_void_p, c.c_int), ("trainer_set_cpu", c.c_int, c.c_void_p, c.c_char_p),
                ("trainer_message", c.c_char_p, c.c_void_p), ("trainer_cpu", c.c_char_p, c.c_void_p), ("strerror", c.c_char_p, c.c_int),
                ("gradients", c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p),
                ("trainer_loss", c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64, c.c_void_p, c.c_void_p),
                ("trainer_step", c.c_int, c.c_void_p, c.c_void_p, c.c_void_p), ("trainer_steps", c.c_int64, c.c_void_p),
                ("trainer_clear", c.c_int, c.c_void_p), ("trainer_save_size", c.c_size_t, c.c_void_p),
                ("trainer_save", c.c_int, c.c_void_p, c.c_void_p, c.c_size_t), ("trainer_restore", c.c_int, c.c_void_p, c.c_void_p, c.c_size_t)):
            function = getattr(self.lib, f"{self.name}_{f}")
            function.restype, function.argtypes = result, arguments
            setattr(self, f, function)


class Trainer:
    def __init__(self, model, longest=40, comm=None):
        """comm: of ranks that share the trainer"""
        self.m, self.size = model, model.trainer_size_on(longest, comm) if comm else model.trainer_size(longest)
        assert self.size > 0 and self.size % ALIGN == 0
        self.raw, self.at = memory(self.size)
        out, n = c.c_void_p(), c.c_size_t()
        if comm:
            assert model.trainer_init_on(self.at, self.size, longest, comm, 30 * 10**9, c.byref(out)) == OK
        else:
            assert model.trainer_init(self.at, self.size, longest, c.byref(out)) == OK
        self.t = out.value
        p = model.trainer_parameters(self.t, c.byref(n))
        self.parameters = [p[i] for i in range(n.value)]
        assert {x.name.decode() for x in self.parameters} == set(model.weights), "parameters are the tensors of the checkpoint"
        for x in self.parameters:
            w = model.weights[x.name.decode()]
            assert len(w) == x.elements and not any(x.gradient[i] for i in range(x.elements))
            c.memmove(x.values, (c.c_float * x.elements)(*w), 4 * x.elements)

    def call(self, sequences, alone=False):
        flat = [(t, g) for s in sequences for t, g in s]
        tokens, targets = ((c.c_int32 * len(flat))(*(x[i] for x in flat)) for i in (0, 1))
        total, count = c.c_double(-1), c.c_int64(-1)
        function = self.m.trainer_loss if alone else self.m.gradients
        code = function(self.t, tokens, targets, (c.c_int64 * len(sequences))(*map(len, sequences)), len(sequences),
                        c.byref(total), c.byref(count))
        return code, total.value, count.value

    def message(self):
        return self.m.trainer_message(self.t).decode()

    def gradients(self):
        return b"".join(c.string_at(x.gradient, 4 * x.elements) for x in self.parameters)

    def floats(self):
        return [x.gradient[:x.elements] for x in self.parameters]

    def values(self):
        return b"".join(c.string_at(x.values, 4 * x.elements) for x in self.parameters)

    def step(self, options):
        norm = c.c_float(-1)
        return self.m.trainer_step(self.t, c.byref(options), c.byref(norm)), norm.value
