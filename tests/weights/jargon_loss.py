#!/usr/bin/env python3
"""Held-out loss of the jargon example for every weight type, through compiled libraries.

    jargon_loss.py HADAL EXAMPLES WORK

The text (heldout.txt: 7936 bytes of the Jargon File, public domain, which the model never saw) is read in windows of
256 bytes; the loss is the mean of -log p(next byte), in nats. f32 must be at most 1.5 (bytes drawn by frequency: 3.2),
each other type within its bound of f32. Prints a line for each. Rounded weights with activations in f32 are in the full set alone
(HADAL_FULL=1): where activations are rounded as well there are both.
"""
import ctypes, math, os, pathlib, subprocess, sys

WINDOW, VOCAB = 256, 256
F32_BOUND = 1.5
# (weights, activations, most that the loss may differ from f32's): about twice what was measured. Activations rounded to int8 jump
# by a step where a sum before them differs in its last bit, so that CPU levels differ: q8 was 1.3e-4 off with AVX-512 and 4.0e-4
# with AVX2.
TYPES = [
    ("f32", "int8", 0.0),
    ("bf16", "f32", 1e-6),  # the checkpoint is bf16: nothing is lost
    ("bf16", "bf16", 1e-4),
    ("f16", "int8", 1e-5),
    ("q8", "f32", 3e-4),
    ("q8", "int8", 8e-4),
    ("q4", "f32", 2.5e-2),
    ("q4", "int8", 2.5e-2),
    ("mxfp4", "f32", 7e-2),
    ("mxfp4", "int8", 7e-2),
    ("nvfp4", "f32", 2.8e-2),
    ("nvfp4", "int8", 2.8e-2),
]


def compile_model(hadal, folder, out, weights, activations):
    subprocess.run([hadal, "compile", folder / "jargon.hadal", "--weights", folder / "model.safetensors", "-o",
                    out / "jargon", "--weights-dtype", weights, "--activations", activations, "--target-cpu=native", "-q"],
                   check=True)


class Model:
    def __init__(self, folder):
        self.lib = lib = ctypes.CDLL(str(folder / "libjargon.so"))
        lib.jargon_session_size.restype = ctypes.c_size_t
        lib.jargon_session_size.argtypes = [ctypes.c_int64]
        lib.jargon_session_init.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int64,
                                            ctypes.c_void_p]
        lib.jargon_forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p,
                                       ctypes.c_int64]
        weights, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        assert lib.jargon_weights_open(str(folder / "jargon.weights").encode(), ctypes.byref(weights)) == 0
        size = lib.jargon_session_size(WINDOW)
        self.memory = ctypes.create_string_buffer(size + 64)
        at = (ctypes.addressof(self.memory) + 63) // 64 * 64
        assert lib.jargon_session_init(at, size, weights, WINDOW, ctypes.byref(self.session)) == 0
        lib.jargon_session_rewind.argtypes = [ctypes.c_void_p, ctypes.c_int64]

    def logits(self, window):
        n = len(window)
        tokens, out = (ctypes.c_int32 * n)(*window), (ctypes.c_float * (n * VOCAB))()
        assert self.lib.jargon_session_rewind(self.session, 0) == 0
        assert self.lib.jargon_forward(self.session, tokens, n, out, n) == 0
        return out


def loss_of(model, text):
    total, count = 0.0, 0
    for first in range(0, len(text), WINDOW):
        window = text[first:first + WINDOW]
        out = model.logits(window)
        for t in range(min(len(window), len(text) - first - 1)):
            row = out[t * VOCAB:(t + 1) * VOCAB]
            total += math.log(sum(map(math.exp, row))) - row[text[first + t + 1]]  # logits of some tens at most
            count += 1
    return total / count


def main():
    hadal, examples, work = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    text = pathlib.Path(__file__).with_name("heldout.txt").read_bytes()
    base, failed = None, False
    full = os.environ.get("HADAL_FULL") == "1"
    for weights, activations, bound in TYPES:
        if activations == "f32" and not full:
            continue
        out = work / f"{weights}-{activations}"
        out.mkdir(parents=True, exist_ok=True)
        compile_model(hadal, examples / "jargon", out, weights, activations)
        loss = loss_of(Model(out), text)
        base = loss if base is None else base
        wrong = abs(loss - base) > bound or loss > F32_BOUND + bound
        failed |= wrong
        size = (out / "jargon.weights").stat().st_size
        print(f"weights {weights:4}  activations {activations:4}  {size:8} bytes  loss {loss:.5f}  "
              f"{loss - base:+.5f} (bound {bound}){'  TOO FAR' if wrong else ''}")
    return failed


sys.exit(main())
