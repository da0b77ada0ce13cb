#!/usr/bin/env python3
"""Spills of vector registers in the innermost loops of compiled code, at the levels with 16 of them: there are none but those of
allowed.txt.

usage: spills.py HADAL SOURCE OUT [MODEL...]

Models at their published widths are compiled to assembly, which no CPU has to run. A spill is a slot of the stack to which an
innermost loop moves a vector: sums and operands of the loop did not fit into the registers. Slots that a loop only reads hold what
does not change in it. Row programs may have those (an exponential has more constants than there are registers, and a constant on the
stack costs what one in memory costs), functions that multiply matrices may not. Loops that call functions are not innermost ones.

An entry of allowed.txt names functions (MODEL/FUNCTION, a pattern), the most vector moves from and to the stack that one of their loops has, and why. A loop with
more is an error. With HADAL_FULL=1 more models are compiled, and an entry that allows more than there is, is an error, too: the list
only shrinks.
"""
import fnmatch
import os
import platform
import re
import subprocess
import sys

QWEN3, KIMI = ("qwen3.hadal", "layers=2", "system=attnres", "block=2"), ("kimi.hadal", "layers=4", "experts=16")
SYSTEMS = ("rezero layerscale highway deepnorm keel siamesenorm elmo denseformer laurel-lr muddformer hyper-static hyper-dynamic mhc mhc-lite "
           "ddl ddl-4 attnres-full attnres-sigmoid attnres-heads attnres-static attnres-window value-residual depth-attention").split()
# name: spec of bench/specs with its parameters, options of the command
MODELS = {
    "f32": (QWEN3, ""),  # contractions, attention, AttnRes
    "q8": (QWEN3, "--weights-dtype q8"),
    "q4": (QWEN3, "--weights-dtype q4"),
    "kimi": (KIMI, "--weights-dtype bf16"),  # delta rule, latent attention, experts
    "training": (QWEN3, "--gradients --optimizer muon"),
}
MORE = {
    "bf16": (QWEN3, "--weights-dtype bf16 --cache-dtype bf16 --phase1-dtype bf16"),
    "f16": (QWEN3, "--weights-dtype f16 --cache-dtype f16"),
    "mxfp4": (QWEN3, "--weights-dtype mxfp4"),
    "nvfp4": (QWEN3, "--weights-dtype nvfp4"),
    **{f"{dtype}-exact": (QWEN3, f"--weights-dtype {dtype} --activations f32") for dtype in ("q8", "q4", "mxfp4", "nvfp4")},
    "kimi-f32": (KIMI, ""),
    "kimi-q8": (KIMI, "--weights-dtype q8"),
    "kimi-q4": (KIMI, "--weights-dtype q4"),
    "ling": (("ling.hadal", "layers=4"), ""),
    "k3": (("k3.hadal",), ""),
    "kda-training": (("kda_training.hadal",), "--gradients"),
    **{folder: ((folder,), "") for folder in ("gpt_oss", "gemma3n", "inkling2", "inkling2_loop", "qwen3_moe")},
    "gpt_oss-q4": (("gpt_oss",), "--weights-dtype q4"),
    **{f"residual-{system}": (("residuals.hadal", f"system={system}"), "") for system in SYSTEMS},
    "q8-avxvnni": (QWEN3, "--weights-dtype q8 --target-cpu avxvnni"),
    "q4-avxvnni": (QWEN3, "--weights-dtype q4 --target-cpu avxvnni"),
}
ROW_PROGRAM = re.compile(r"(row\d+|[xy]_\d+(_of\d+)?|contract\d+(_decode|_prefill)?)$")

LABEL = re.compile(r'"?([A-Za-z_.$][^\s:"]*)"?:')
JUMP = re.compile(r"\tj[a-z]+\t(\.L\S+)")
SLOT = {frame: re.compile(rf"(-?\d*\(%r{frame}\))(\s*$)?") for frame in ("sp", "[sb]p")}


def functions(text):
    """(name, lines) of each function."""
    name, lines = None, []
    for line in text.splitlines():
        label = LABEL.match(line)
        if label and label[1].startswith(".Lfunc_end"):
            if name:
                yield name, lines
            name = None
        elif label and not label[1].startswith(".L"):
            name, lines = label[1], []
        elif name:
            lines.append(line.split("#")[0].rstrip())


def innermost(lines):
    """Instructions of each loop that contains none: from a label to the last jump back to it."""
    at, last = {}, {}
    for i, line in enumerate(lines):
        label, jump = LABEL.match(line), JUMP.match(line)
        if label:
            at[label[1]] = i
        elif jump and jump[1] in at:
            last[at[jump[1]]] = i
    for first, end in last.items():
        if any((a, b) != (first, end) and first <= a and b <= end for a, b in last.items()):
            continue
        loop = [x for x in lines[first:end + 1] if x.startswith("\t") and not x.startswith("\t.")]
        if not any(x.startswith("\tcall") for x in loop):
            yield loop


def spills(loop, frame, reads_count):
    """Moves of vectors from and to slots that the loop writes, or with reads_count from and to all. frame: registers that point to slots."""
    moves = [(m[1], m[2] is not None) for m in (SLOT[frame].search(x) for x in loop if "mm" in x) if m]
    written = {slot for slot, writes in moves if writes}
    return sum(reads_count or slot in written for slot, _ in moves)


def found_in(text):
    """{function without the model's name and the level's: the most spills of one of its loops, or 0}."""
    found = {}
    for name, lines in functions(text):
        name = re.sub(r"^m[._]|_[^_]*$", "", name)
        reads_count, frame = not ROW_PROGRAM.match(name), "[sb]p" if "\tmovq\t%rsp, %rbp" in lines else "sp"
        found[name] = max([found.get(name, 0), *(spills(x, frame, reads_count) for x in innermost(lines))])
    return found


def allowed():
    """[functions, spills, seen so far] of the list."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "allowed.txt"), encoding="utf-8") as f:
        entries = [x.split(None, 2) for x in f if x.strip() and x[0] not in "# "]
    for entry in entries:
        assert len(entry) == 3, f"allowed.txt: functions, a number and a reason, not {entry}"
    return [[functions, int(n), 0] for functions, n, _ in entries]


def assembly(hadal, source, out, spec, options):
    page, *defines = spec
    options = ["--target-cpu", "avx2", *options.split()]  # the last one counts
    line = [hadal, "compile", os.path.join(source, "bench", "specs", page), *(x for d in defines for x in ("-D", d)), *options,
            "--emit=asm", "-q", "-o", os.path.join(out, "m")]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(line)}: {done.stderr}")
    with open(os.path.join(out, "m.s"), encoding="utf-8") as f:
        return f.read()


PLANTED = """
m.tile_x_avx2:
\tvmovaps\t96(%rsp), %ymm1
.LBB0_1:
\tvmovups\t%ymm3, -32(%rsp)
.LBB0_2:
\tvmovups\t64(%rsp), %ymm3
\tvaddps\t32(%rsp), %ymm3, %ymm3
\tvmovups\t%ymm3, 32(%rsp)
\tmovq\t8(%rsp), %rax
\tvmovups\t(%rsp,%rax), %ymm4
\tjne\t.LBB0_2
\tjne\t.LBB0_1
.LBB0_3:
\tvmovups\t%ymm3, 32(%rsp)
\tcallq\tm.f_avx2
\tjne\t.LBB0_3
.Lfunc_end0:
m_row0_avx2:
.LBB1_1:
\tvaddps\t32(%rsp), %ymm3, %ymm3
\tjne\t.LBB1_1
.LBB1_2:
\tvmovups\t%ymm3, 64(%rsp)
\tvaddps\t64(%rsp), %ymm3, %ymm3
\tjmp\t.LBB1_2
.Lfunc_end1:
m.gemv_x_avx2:
\tvmovaps\t96(%rsp), %ymm1
.Lfunc_end2:
"""


def main():
    hadal, source, out, *chosen = sys.argv[1:]
    if platform.machine() != "x86_64":
        sys.exit(77)
    full = os.environ.get("HADAL_FULL") == "1"
    os.makedirs(out, exist_ok=True)
    assert found_in(PLANTED) == {"tile_x": 3, "row0": 2, "gemv_x": 0}, found_in(PLANTED)
    entries, failed, total = allowed(), 0, 0
    every = {**MODELS, **MORE}
    for model in chosen or (every if full else MODELS):
        found = found_in(assembly(hadal, source, out, *every[model]))
        total += len(found)
        for name, n in found.items():
            entry = next((x for x in entries if fnmatch.fnmatchcase(f"{model}/{name}", x[0])), None)
            if entry:
                entry[2] = max(entry[2], n)
            if n > (entry[1] if entry else 0):
                print(f"{model}/{name} moves vectors from and to the stack {n} times in a loop; {entry[1] if entry else 'none'} allowed")
                failed += 1
    for functions, n, seen in entries if full and not chosen else ():
        if seen < n:
            print(f"allowed.txt: {functions} has {seen} now: lower the {n}" if seen else f"allowed.txt: {functions} has none now: remove it")
            failed += 1
    assert total > 0
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
