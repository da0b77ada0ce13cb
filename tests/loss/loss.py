#!/usr/bin/env python3
"""NAME_loss of compiled libraries against the logits of NAME_forward, by the formula in double precision.

    loss.py HADAL WORK [CASE ..]

Heads of several kinds and sizes, at every CPU level of this machine: a loss may be off by 1e-6 (1 + loss), and the mean by 1e-6 of
it; the bits are the same for any number of threads. Then what a caller may get wrong.
"""
import ctypes, math, pathlib, random, subprocess, sys

TOKENS, CHUNK = 45, 16
HERE = pathlib.Path(__file__).parent
# defines, weights, activations. 1003 logits: four parts, the last of a panel that is not full; 256: one whole part.
CASES = [
    ("vocab=1003 cap=7.5 bias=true scale=0.25", "f32", "f32"),
    ("vocab=256", "bf16", "bf16"),
    ("vocab=40 tied=true scale=8.0", "f32", "f32"),
    ("vocab=523 bias=true", "q8", "int8"),
    ("vocab=4097 cap=20.0", "q4", "int8"),
    ("vocab=272", "f16", "f32"),
    ("vocab=7 cap=5.0", "f32", "f32"),  # no matrix kernel makes so few logits: they are stored
]
TOKEN, FULL, ARGUMENT, BUSY = 2, 3, 1, 12


def run(*command):
    subprocess.run([str(c) for c in command], check=True)


class Library:
    def __init__(self, folder, name, vocab):
        self.name, self.vocab = name, vocab
        self.lib = ctypes.CDLL(str(folder / f"lib{name}.so"))
        weights, self.session = ctypes.c_void_p(), ctypes.c_void_p()
        self.get("session_size").restype = ctypes.c_size_t
        self.get("session_length").restype = ctypes.c_int64
        self.get("session_message").restype = ctypes.c_char_p
        assert self.get("weights_open")(str(folder / f"{name}.weights").encode(), ctypes.byref(weights)) == 0
        size = self.get("session_size")(ctypes.c_int64(TOKENS))
        self.memory = ctypes.create_string_buffer(size + 64)
        at = ctypes.c_void_p((ctypes.addressof(self.memory) + 63) // 64 * 64)
        assert self.get("session_init")(at, ctypes.c_size_t(size), weights, ctypes.c_int64(TOKENS), ctypes.byref(self.session)) == 0

    def get(self, function):
        return getattr(self.lib, f"{self.name}_{function}")

    def call(self, function, *arguments):
        return self.get(function)(self.session, *arguments)

    def rewind(self):
        assert self.call("session_rewind", ctypes.c_int64(0)) == 0

    def logits(self, tokens):
        n = len(tokens)
        out = (ctypes.c_float * (n * self.vocab))()
        assert self.call("forward", (ctypes.c_int32 * n)(*tokens), ctypes.c_int64(n), out, ctypes.c_int64(n)) == 0
        return [out[t * self.vocab:(t + 1) * self.vocab] for t in range(n)]

    def losses(self, tokens, targets, expected=0):
        n = len(tokens)
        out = (ctypes.c_float * n)(*[-7.0] * n)
        code = self.call("loss", (ctypes.c_int32 * n)(*tokens), (ctypes.c_int32 * len(targets))(*targets), ctypes.c_int64(n), out)
        assert code == expected, (code, self.call("session_message"))
        return list(out)


def formula(row, target):
    if target < 0:
        return 0.0
    most = max(row)
    return math.log(math.fsum(math.exp(x - most) for x in row)) + (most - row[target])


def check(what, got, expected):
    worst = max(abs(g - e) / (1 + abs(e)) for g, e in zip(got, expected))
    mean = abs(math.fsum(got) - math.fsum(expected)) / math.fsum(expected)
    print(f"{what}: worst {worst:.2g}, mean {mean:.2g}")
    assert worst < 1e-6 and mean < 1e-6, (got, expected)


def check_level(lib, what, tokens, targets):
    lib.rewind()
    expected = [formula(row, t) for row, t in zip(lib.logits(tokens), targets)]
    first = None
    for threads in (1, 2, 3, 7):
        lib.rewind()
        assert lib.call("session_set_threads", threads) == 0
        got = lib.losses(tokens, targets)
        first = got if first is None else first
        assert got == first, f"{what}: other bits with {threads} threads"
    check(f"{what}, one call", first, expected)
    parts = ((3, 4), (4, 10), (10, 11), (11, len(tokens)))  # one token, a few, more than a chunk
    lib.rewind()
    lib.logits(tokens[:3])
    expected = [formula(row, t) for a, b in parts for row, t in zip(lib.logits(tokens[a:b]), targets[a:b])]
    lib.rewind()
    assert lib.call("forward", (ctypes.c_int32 * 3)(*tokens[:3]), ctypes.c_int64(3), None, ctypes.c_int64(0)) == 0
    check(f"{what}, several calls", [x for a, b in parts for x in lib.losses(tokens[a:b], targets[a:b])], expected)
    assert lib.call("session_length") == len(tokens)


def check_errors(lib, tokens, targets):
    lib.rewind()
    whole = lib.losses(tokens, targets)
    lib.rewind()
    wrong = list(targets)
    wrong[5] = lib.vocab
    untouched = [-7.0] * len(tokens)
    assert lib.losses(tokens, wrong, TOKEN) == untouched
    assert f"target 5 is {lib.vocab}: targets are 0 .. {lib.vocab - 1}" in lib.call("session_message").decode()
    bad = list(tokens)
    bad[2] = -1
    assert lib.losses(bad, targets, TOKEN) == untouched
    assert lib.losses(tokens + [0], targets + [0], FULL)[0] == -7.0
    one, nothing, n = (ctypes.c_int32 * 1)(0), None, ctypes.c_int64(1)
    out = (ctypes.c_float * 1)()
    for arguments in ((nothing, one, n, out), (one, nothing, n, out), (one, one, n, nothing), (one, one, ctypes.c_int64(0), out)):
        assert lib.call("loss", *arguments) == ARGUMENT
    assert lib.get("loss")(nothing, one, one, n, out) == ARGUMENT
    assert lib.call("session_length") == 0
    assert lib.losses(tokens, targets) == whole  # nothing had changed


def main():
    hadal, work, chosen = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), [int(n) for n in sys.argv[3:]]
    for number, (defines, weights, activations) in enumerate(CASES):
        if chosen and number not in chosen:
            continue
        rng = random.Random(number)
        name, out = "model", work / f"loss{number}"  # symbols begin with the name: what heads have in common is translated once
        out.mkdir(parents=True, exist_ok=True)
        settings = [word for define in defines.split() for word in ("-D", define)]
        vocab = int(defines.split()[0].split("=")[1])
        run(hadal, "init-weights", "--draw-all", HERE / "heads.hadal", *settings, "-o", out / "w.safetensors", "-q")
        run(hadal, "compile", HERE / "heads.hadal", *settings, "-w", out / "w.safetensors", "--loss", "--chunk", CHUNK, "-q", "-o",
            out / name, "--weights-dtype", weights, "--activations", activations)
        lib = Library(out, name, vocab)
        tokens = [rng.randrange(vocab) for _ in range(TOKENS)]
        targets = tokens[1:] + [vocab - 1]
        targets[0], targets[7], targets[20] = 0, -1, -100
        for level in ("amx", "avx512bf16", "avx512vnni", "avx512", "avxvnni", "avx2", "baseline"):
            if lib.call("session_set_cpu", level.encode()) == 0:
                check_level(lib, f"{defines}, {weights}/{activations}, {level}", tokens, targets)
        check_errors(lib, tokens, targets)


main()
