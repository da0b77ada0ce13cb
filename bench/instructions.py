#!/usr/bin/env python3
"""Instructions that one token takes, by callgrind: figures that a busy machine does not change.

  instructions.py [--hadal PATH] [--against PATH] [--types f32,bf16,q8,q4] [--systems standard,attnres]
                  [-D NAME=VALUE]... [--cpu avx2] [--most 1.02] [--json FILE]

Compiles bench/specs/qwen3.hadal in a small shape with random weights, and calls NAME_forward with one
token at a time, on one thread, under `valgrind --tool=callgrind`; what is counted is inside of these
calls. Two runs of different length are subtracted, so that a first call does not count. With
--against (another build of the compiler) both are counted and the ratio is printed; then it exits
with 1 if a ratio is above --most. The level is avx2, since valgrind knows no AVX-512.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

SPEC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "specs", "qwen3.hadal")
SHAPE = ["layers=4", "hidden=256", "heads=4", "kv_heads=2", "head_dim=64", "ff=512", "vocab=512"]
FEW, MANY = 4, 20  # numbers of tokens of the two runs
MAIN = """
#include <stdlib.h>
#include "m.h"
int main(int argc, char **argv) {
    m_weights *w;
    m_session *s;
    static float logits[M_VOCAB];
    const int n = argc > 1 ? atoi(argv[1]) : 0;
    if (m_weights_open("m.weights", &w)) return 1;
    const size_t size = (m_session_size(64) + M_ALIGN - 1) / M_ALIGN * M_ALIGN;
    void *memory = aligned_alloc(M_ALIGN, size);
    if (!memory || m_session_init(memory, size, w, 64, &s)) return 1;
    if (m_session_set_threads(s, 1)) return 1;
    for (int32_t i = 0; i < n; i++)
        if (m_forward(s, &i, 1, logits, 1)) return 1;
    m_weights_close(w);
    free(memory);
    return 0;
}
"""


def fail(text):
    sys.exit(f"instructions.py: {text}")


def run(line, folder):
    try:
        out = subprocess.run(line, capture_output=True, text=True, cwd=folder)
    except OSError as e:
        fail(f"{line[0]}: {e.strerror}")
    if out.returncode:
        fail(f"{' '.join(line)}:\n{out.stdout}{out.stderr}")
    return out.stderr


def build(hadal, a, system, kind, folder):
    defines = [x for d in [f"system={system}", *SHAPE, *a.define] for x in ("-D", d)]
    if not os.path.exists(os.path.join(folder, "random.safetensors")):
        run([hadal, "init-weights", "--draw-all", SPEC, *defines, "-o", "random.safetensors", "-q"], folder)
    run([hadal, "compile", SPEC, *defines, "-w", "random.safetensors", "--weights-dtype", kind, "--target-cpu", a.cpu,
         "-o", "m", "-q"], folder)
    with open(os.path.join(folder, "main.c"), "w", encoding="utf-8") as f:
        f.write(MAIN)
    run([os.environ.get("CC", "cc"), "-O1", "main.c", "-I.", "-o", "main", "libm.so",
         "-Wl,-rpath,$ORIGIN"], folder)


def collected(tokens, folder):
    text = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=m_forward", "./main",
                str(tokens)], folder)
    found = re.search(r"Collected : (\d+)", text)
    if not found:
        fail(f"valgrind counted nothing:\n{text}")
    return int(found.group(1))


def per_token(hadal, a, system, kind, folder):
    build(hadal, a, system, kind, folder)
    return (collected(MANY, folder) - collected(FEW, folder)) / (MANY - FEW)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--hadal", default="hadal")
    p.add_argument("--against", metavar="PATH", help="another build of the compiler")
    p.add_argument("--types", default="f32,bf16,q8,q4")
    p.add_argument("--systems", default="standard,attnres")
    p.add_argument("-D", "--define", action="append", default=[])
    p.add_argument("--cpu", default="avx2")
    p.add_argument("--most", type=float, default=1.02)
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    builds = [shutil.which(x) or fail(f"there is no {x}") for x in (a.hadal, a.against) if x]
    builds = [os.path.abspath(x) for x in builds]
    if not shutil.which("valgrind"):
        fail("there is no valgrind (Debian: valgrind)")
    rows, worst = [], 0.0
    print(f"instructions for one token, {a.cpu}" + (", and over those of --against" if a.against else ""))
    for system in a.systems.split(","):
        for kind in a.types.split(","):
            with tempfile.TemporaryDirectory(prefix="hadal-instructions-") as folder:
                counts = [per_token(x, a, system, kind, folder) for x in builds]
            row = {"system": system, "type": kind, "instructions": counts[0]}
            text = f"{system:10} {kind:5} {counts[0]:12.0f}"
            if a.against:
                row["ratio"] = counts[0] / counts[1]
                worst = max(worst, row["ratio"])
                text += f" {row['ratio']:8.4f}"
            rows.append(row)
            print(text, flush=True)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "hadal-instructions-1", "cpu": a.cpu, "rows": rows}, f, indent=1)
    sys.exit(worst > a.most)


if __name__ == "__main__":
    main()
