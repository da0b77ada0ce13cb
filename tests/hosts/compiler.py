"""compiler.py LIBHADALC SPEC FOLDER: a host that has settings of its own and compiles with libhadalc: it loads the library by a relative
name, changes its working directory, and has a umask and a small
stack."""
import ctypes
import os
import shutil
import stat
import sys
import threading

library, spec, folder = map(os.path.abspath, sys.argv[1:4])
shutil.rmtree(folder, ignore_errors=True)
for name in ("elsewhere", "out"):
    os.makedirs(f"{folder}/{name}")

os.chdir(os.path.dirname(library))
hadal = ctypes.CDLL("./" + os.path.basename(library))
os.chdir(folder + "/elsewhere")
hadal.hadal_open.restype = hadal.hadal_build_open.restype = ctypes.c_void_p
hadal.hadal_diagnostic_text.restype = ctypes.c_char_p
hadal.hadal_diagnostics.restype = ctypes.c_size_t
small = ((b"layers", b"1"), (b"hidden", b"16"), (b"ff", b"16"), (b"heads", b"2"))
WORD = ctypes.sizeof(ctypes.c_size_t)
target = (ctypes.c_char_p * 3)()  # struct_size, triple, cpu
ctypes.cast(target, ctypes.POINTER(ctypes.c_size_t))[0] = 3 * WORD
target[2] = b"baseline"
defaults = (ctypes.c_size_t * 1)(WORD)  # a struct of options that ends behind its size
KINDS = {"so": "libm.so", "header": "m.h", "weights": "m.weights"}


class Session:
    def __init__(self):
        self.s = ctypes.c_void_p(hadal.hadal_open())
        for name, value in small:
            self.do("define", name, value)

    def do(self, function, *arguments):
        code = getattr(hadal, "hadal_" + function)(self.s, *arguments)
        assert code == 0, [hadal.hadal_diagnostic_text(self.s, ctypes.c_size_t(i), 0) for i in range(hadal.hadal_diagnostics(self.s))]

    def compile(self, weights=None):
        self.do("load", spec.encode(), b"m")
        if weights:
            self.do("weights", weights.encode())
        self.do("run_passes", defaults)

    def close(self):
        hadal.hadal_close(self.s)


def modes(where):
    return {name: stat.S_IMODE(os.stat(f"{where}/{name}").st_mode) for name in sorted(os.listdir(where))}


# pages of the library and the runtime are found from where the library was loaded
s = Session()
s.do("load", spec.encode(), b"m")
s.do("init_weights", ctypes.c_uint64(1), None, f"{folder}/w.safetensors".encode())
s.compile(f"{folder}/w.safetensors")

# names of a build are of the folder in which it was written, wherever it is published
build = ctypes.c_void_p(hadal.hadal_build_open())
os.chdir(folder + "/out")
hadal.hadal_build_in(s.s, build)
assert hadal.hadal_build_replaces(build, b"m.weights") == 0
for kind, name in KINDS.items():
    s.do("emit", target, kind.encode(), name.encode())
assert not [name for name in os.listdir(".") if not name.startswith(".hadal-")]
os.chdir(folder + "/elsewhere")
s.do("build_publish", build)
assert modes(folder + "/out").keys() == set(KINDS.values()), modes(folder + "/out")
assert not os.listdir(".")
hadal.hadal_build_in(s.s, None)
hadal.hadal_build_close(build)

# modes go by the umask, and the process keeps it
for mask in (0o022, 0o077, 0o007, 0o027):
    where = f"{folder}/out-{mask:03o}"
    os.mkdir(where)
    os.umask(mask)
    for kind, name in KINDS.items():
        s.do("emit", target, kind.encode(), f"{where}/{name}".encode())
    expected = {name: (0o777 if name.endswith(".so") else 0o666) & ~mask for name in sorted(KINDS.values())}
    assert modes(where) == expected, (oct(mask), modes(where))
    assert os.umask(0o022) == mask
s.close()

# on a thread with a stack of 1 MiB: a model, and a text that nests as deeply as it may
threading.stack_size(1 << 20)
worked = []


def on_small_stack():
    s = Session()
    s.compile(f"{folder}/w.safetensors")
    s.do("emit", target, b"so", f"{folder}/out/libm.so".encode())
    s.close()
    with open(f"{folder}/deep.hadal", "w") as f:
        f.write("fn f(x) { return " + "(1 + " * 90 + "f(x)" + ")" * 90 + " }\nmodel m() { f(1) }\n")
    s = Session()
    assert hadal.hadal_load(s.s, f"{folder}/deep.hadal".encode(), b"m") != 0
    s.close()
    worked.append(True)


thread = threading.Thread(target=on_small_stack)
thread.start()
thread.join()
assert worked
