"""odd_names.py HADAL FOLDER: paths and names of weights with characters that mean something to formats, shells, compilers, linkers,
C, JSON and HTML. They are nothing but names: what is made runs, and what is printed has them as they are."""
import json
import os
import shutil
import subprocess
import sys

hadal, folder = map(os.path.abspath, sys.argv[1:3])
shutil.rmtree(folder, ignore_errors=True)
os.makedirs(folder)
os.chdir(folder)
WEIGHT = "q%s%n%5$s*/ ??/ $(touch pwned) `id`;<script>&\\\\'{{0}}|é"  # as the spec has it
NAME = WEIGHT.replace("\\\\", "\\").replace("{{", "{").replace("}}", "}") + ".weight"
MODEL = f"""use "layers"
model m(hidden = 8, vocab = 16) {{
    x = embed("e%d", vocab, hidden)
    y = x + linear(rmsnorm(x, "n%"), "{WEIGHT}", hidden)
    output logits = linear(rmsnorm(y, "n%%"), "h%", vocab)
}}
"""
# of folders: an option, a file of arguments, a sysroot, a format, a shell's words, a linker's list, a byte that is not UTF-8
FOLDERS = ["-shared", "@args", "=x", "%s%n%d", "$(touch pwned) `id`;'\"", "a,b:c=d", "*?[x]{y}", "line\nbreak", os.fsdecode(b"sp\xe4t")]


def run(*command, fails=False):
    done = subprocess.run([hadal, *command], capture_output=True)
    assert (done.returncode != 0) == fails, (command, done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout, done.stderr


with open("m.hadal", "w") as f:
    f.write(MODEL)
run("init-weights", "m.hadal", "-o", "w.safetensors")
expected, _ = run("run", "m.hadal", "--weights", "w.safetensors", "--interpret", "--tokens", "1,2,3", "--top", "2")
for name in FOLDERS:
    os.mkdir(name)
    shutil.copy("m.hadal", f"./{name}/m.hadal")
    shutil.copy("w.safetensors", f"./{name}/w%s.safetensors")
    run("compile", f"./{name}/m.hadal", f"--weights={name}/w%s.safetensors", "--march", "baseline", "-q", f"-o{name}/m")
    assert sorted(os.listdir(name)) == ["libm.so", "m.h", "m.hadal", "m.weights", "w%s.safetensors"], (name, os.listdir(name))
    got, _ = run("run", f"./{name}/m", "--tokens", "1,2,3", "--top", "2")
    assert got.split()[0] == expected.split()[0], (name, got, expected)
    _, said = run("run", f"./{name}/m.hadal", "--weights", f"./{name}/none%s", "--tokens", "1", fails=True)
    assert os.fsencode(name) + b"/none%s" in said or b"\\n" in said, (name, said)

# the header is one comment and C
subprocess.run(["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c", "-"], input=b'#include "%s%n%d/m.h"\n', check=True)
# names in what is printed
kernels, _ = run("opt", "m.hadal", "--passes=default")
assert NAME.replace("\\", "\\\\").encode() in kernels, kernels
json.loads(run("inspect", "m.hadal", "--json")[0])
_, said = run("run", "m.hadal", "-D", "hidden=16", "--weights", "w.safetensors", "--tokens", "1", fails=True)
assert NAME.encode() in said, said
run("report", "m.hadal", "--weights", "w.safetensors", "-o", "r.html")
page = open("r.html", encoding="utf-8").read()
assert "<script>&" not in page
assert not os.path.exists("pwned")
