#!/usr/bin/env python3
"""The JSON of `hadal report` against what other commands say.

    data.py HADAL SOURCE OUT"""
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zlib

hadal, source, out = sys.argv[1:4]
shutil.rmtree(out, ignore_errors=True)
os.makedirs(out)
TINY = "examples/tiny/tiny.hadal"


def run(*arguments, code=0):
    done = subprocess.run([hadal, *arguments], capture_output=True, text=True, cwd=source)
    assert done.returncode == code, f"hadal {arguments}: {done.returncode}\n{done.stderr}"
    return done.stdout


def said(*arguments):
    return subprocess.run([hadal, *arguments], capture_output=True, text=True, cwd=source, check=True).stderr


def at(name):
    return os.path.join(out, name)


def each(runs):
    return [first + k for first, n in zip(runs[::2], runs[1::2]) for k in range(n)]


def unpack(history):
    """Forms of the rows of each stage that changed something."""
    rows, out = [], []
    for stage in history["stages"]:
        if stage["changed"]:
            before, rows = rows, []
            for new, first, n in zip(*[iter(stage["rows"])] * 3):
                assert n > 0 and (new or first + n <= len(before)), (stage["pass"], first, n)
                rows += range(first, first + n) if new else before[first:first + n]
            assert all(r < len(history["forms"]) for r in rows)
            out.append((stage, rows))
    return out


def check_history(history):
    strings, stages = history["strings"], unpack(history)
    before = None
    for stage, rows in stages:
        ops = [history["forms"][r][0] for r in rows]
        assert len(set(ops)) == len(ops), f"{stage['pass']}: an op stands twice"
        made = set(history["inputs"])
        kernels = {op for op in ops}
        for r in rows:
            f = history["forms"][r]
            assert f[0] < history["ops"] and all(w < len(strings) for w in f[1:4]), f
            assert f[6] == 0 or f[6] - 1 in kernels, f"{stage['pass']}: {f} is in no kernel"
            made.update(f[8 + 3 * k] for k in range(f[7]))
        for r in rows:
            f = history["forms"][r]
            for w in f[8 + 3 * f[7]:]:
                assert w & 3 != 1 or w >> 2 in made, f"{stage['pass']}: {f} reads what nothing makes"
                assert w & 3 < 2 or w >> 2 < len(strings), f
        if before is not None:
            # yields are no ops for `hadal diff`: new and gone ones are marked with their kernels, and not counted
            def counted(numbers, forms):
                return sum(strings[history["forms"][forms[i]][1]] != "yield" for i in numbers)
            gone = {history["forms"][before[i]][0] for i in each(stage["removed"])}
            assert gone == {history["forms"][r][0] for r in before} - set(ops), stage["pass"]
            new = {ops[i] for i in each(stage["added"])}
            assert new == set(ops) - {history["forms"][r][0] for r in before}, stage["pass"]
            assert counted(each(stage["added"]), rows) <= stage["counts"]["added"]
            assert counted(each(stage["removed"]), before) <= stage["counts"]["removed"]
            for old, heir in zip(stage["heirs"][::2], stage["heirs"][1::2]):
                assert old in gone and heir in ops, (stage["pass"], old, heir)
        before = rows
    return stages


# ---- one model, in all the ways that lead to a report ----------------------------------------------
text = run("report", TINY, "--json")
r = json.loads(text)
assert r["schema"] == "hadal-report-1" and r["made_of"] == "model" and r["name"] == "tiny" and r["diagnostics"] == []
stages = check_history(r["history"])
assert [f["path"] for f in r["files"]] == [TINY]
with open(os.path.join(source, TINY)) as f:
    assert r["files"][0]["text"] == f.read()

# views are those of other commands
assert r["facts"] == json.loads(run("inspect", TINY, "--json"))
assert r["ledger"] == json.loads(run("inspect", TINY, "--ledger=json"))
assert [s["pass"] for s in r["history"]["stages"][1:]] == re.findall(r"^ *\d+ +(\S+)", said("opt", TINY, "--passes=default", "--time-passes", "-o", at("tiny.hir")), re.M)
remarks = [json.loads(line) for line in said("opt", TINY, "--passes=default", "--remarks=json", "-o", at("tiny.hir")).splitlines()]
told = [(x["pass"], x["taken"], x["text"], x.get("op"), x.get("line", 0)) for x in remarks if not x["text"].startswith("ledger: ")]
assert told == [(x["pass"], x["taken"], x["text"], x["code"], x["line"]) for x in r["remarks"]]



# ---- sums of the ledger ------------------------------------------------------------------------------
def charged(phases):
    """What is in the total: what producers write is charged where it is made."""
    return [p for name, p in phases.items() if not name.startswith("producer")]


def check_sums(part):
    """A part of the ledger: its total is the sum of its phases, each phase the sum of the accesses in it, and each in d is in bytes."""
    unit = r["ledger"]["d"] * 4 * r["ledger"]["sublayers"]
    for key in ("read", "written"):
        assert part["total"][key + "_bytes"] == sum(p[key + "_bytes"] for p in charged(part["phases"])), key
    for name, x in [("total", part["total"]), *part["phases"].items()]:
        assert x["read"] == x["read_bytes"] / unit and x["written"] == x["written_bytes"] / unit, (name, x)
        assert x["total"] == x["read"] + x["written"], (name, x)
    for name, x in part["phases"].items() if "accesses" in part else ():
        for key, access in (("read_bytes", "read"), ("written_bytes", "write")):
            assert x[key] == sum(a["bytes"] for a in part["accesses"] if a["phase"] == name and a["access"] == access), (name, key)


for part in ("ops", "naive_kernels", "kernels"):
    check_sums(r["ledger"][part])
for stage, _ in stages:
    l = stage["ledger"]
    assert l["total"] == [sum(column) for column in zip(*charged(l["phases"]))], (stage["pass"], l)
    assert l["unit"] == r["ledger"]["d"] * 4 and l["sublayers"] == r["ledger"]["sublayers"], (stage["pass"], l)


def pairs(part):
    return [[x["read_bytes"], x["written_bytes"]] for x in [part["total"], *part["phases"].values()]]


for (stage, _), part in ((stages[0], "ops"), (stages[-1], "kernels")):
    assert [stage["ledger"]["total"], *stage["ledger"]["phases"].values()] == pairs(r["ledger"][part]), stage["pass"]

# what the compiler was told
assert r["settings"] == {"weights-dtype": "f32", "bank-dtype": "f32", "phase1-dtype": "f32", "merge-norm": "dots", "chunk": "512"}, r["settings"]
told = json.loads(run("report", TINY, "--json", "--code", "none", "--weights-dtype", "q4,lm_head=q8", "--phase1-dtype", "bf16", "--cache-dtype", "f16", "--chunk", "64"))["settings"]
assert told == {**r["settings"], "weights-dtype": "q4,lm_head=q8", "phase1-dtype": "bf16", "chunk": "64", "cache-dtype": "f16"}, told

# counts are the last line of hadal diff
run("opt", TINY, "--passes=default", "--dump-ir=" + at("dumps"), "-o", at("tiny.hir"))
paths = [at(f"dumps/{s['index']:02d}-{s['pass']}.hir") for s, _ in stages]
for (stage, _), a, b in zip(stages[1:], paths, paths[1:]):
    last = run("diff", a, b, code=1).splitlines()[-1]
    c = stage["counts"]
    assert last == f"{c['added']} added, {c['removed']} removed, {c['changed']} changed, {c['moved']} moved, {c['same']} the same", (stage["pass"], last, c)

# so is the place of each op as it was written, in the order of the lines
with open(paths[0]) as f:
    places = [[int(n) for n in x] for x in re.findall(r'^ +.* loc "[^"]*":(\d+):(\d+)', f.read(), re.M)]
forms = [r["history"]["forms"][i] for i in unpack(r["history"])[0][1]]
assert places and places == [form[4:6] for form in forms if form[4]], "places of ops"

# the ledger of each stage is that of its dump, op by op or, from kernels on, of kernels
for (stage, _), path in zip(stages, paths):
    l = json.loads(run("inspect", path, "--ledger=json"))
    assert [stage["ledger"]["total"], *stage["ledger"]["phases"].values()] == pairs(l["kernels" if stage["ir"] == "kernel" else "ops"]), stage["pass"]

# a report of the dumps has the same history, but for what dumps do not hold
d = json.loads(run("report", at("dumps"), "--json", "--code", "none"))
assert d["made_of"] == "dumps" and d["remarks"] == [] and d["files"] == []


def without(history):
    return {**history, "stages": [{k: v for k, v in s.items() if k != "seconds"} for s in history["stages"]]}


assert without(d["history"]) == without(r["history"])
for view in ("facts", "depth", "memory"):
    assert d[view] == r[view], view

# steps and kernels, functions and listings
kernels = {x[2] for x in r["memory"]["rows"]}
functions = {f["name"]: f for f in r["code"]["functions"]}
assert kernels <= {s["line"] for s in r["code"]["steps"]}
for step in r["code"]["steps"]:
    assert all(f in functions for f in step["functions"]), step
last = stages[-1][0]["first_line"]
for f in functions.values():
    for form in ("llvm", "assembly"):
        listing = zlib.decompress(base64.b64decode(f[form]["text"])).decode()
        lines = [n for n in f[form]["lines"][1::2]]
        assert sum(lines) == listing.count("\n") + 1, f["name"]
        assert all(line == 0 or line >= last for line in f[form]["lines"][::2]), f["name"]
    assert f["bytes"] > 0, f["name"]
# ranges of machine code: whole, in order, and at the lines of the listing that have the same line of the IR
for f in functions.values():
    ranges = list(zip(*[iter(f["ranges"])] * 4))
    if not ranges:
        assert not any(f["assembly"]["lines"][::2]), f"{f['name']} has lines, and no ranges"
        continue
    listed = [line for line, n in zip(f["assembly"]["lines"][::2], f["assembly"]["lines"][1::2]) for _ in range(n)]
    so_far = 0
    for line, first, n, where in ranges:
        assert first == so_far and n > 0 and line == listed[where], (f["name"], line, first, n, where)
        so_far += n
    assert so_far == f["bytes"], f["name"]
    assert {line for line, *_ in ranges} == set(listed), f["name"]

# and they are what binutils read from the line table of the object that `hadal compile` makes
if shutil.which("objdump") and shutil.which("nm"):
    run("compile", TINY, "-g", "--emit=obj", "--target-cpu", "native", "-o", at("tiny"))
    begins = {name: int(address, 16) for address, kind, name in (x.split() for x in subprocess.run(["nm", at("tiny.o")], capture_output=True, text=True, check=True).stdout.splitlines() if len(x.split()) == 3)}
    decoded = subprocess.run(["objdump", "--dwarf=decodedline", at("tiny.o")], capture_output=True, text=True, check=True).stdout
    table = [(int(x[2], 16), x[1]) for x in (line.split() for line in decoded.splitlines()) if len(x) >= 3 and x[0] == "tiny.kernel.hir" and re.fullmatch(r"0x[0-9a-f]+|0", x[2])]
    of_address = {}
    for address, line in table:  # of rows at one address the last one counts
        of_address[address] = line
    compared = 0
    for f in functions.values():
        for line, first, n, _ in zip(*[iter(f["ranges"])] * 4):
            told = of_address.get(begins[f["name"]] + first)
            assert told == str(line), (f["name"], line, first, told)
            compared += 1
    assert compared > 500, compared
own = [functions[f] for s in r["code"]["steps"] for f in s["functions"]]
assert all(any(f["assembly"]["lines"][::2]) for f in own), "functions without lines of the kernel IR"

# the same input, the same bytes, but for times
assert re.sub(r'"seconds": [0-9.]+', "", run("report", TINY, "--json")) == re.sub(r'"seconds": [0-9.]+', "", text)

# ---- other models ----------------------------------------------------------------------------------
for spec in ("examples/own-residual/model.hadal", "examples/plain-function/swiglu_gate.hir", "tests/golden/muddformer", "tests/recurrence/recurrence.hadal", "tests/latent/latent.hadal"):
    x = json.loads(run("report", spec, "--json", "--code", "none", *(["-I", "examples/own-residual"] if "own" in spec else [])))
    check_history(x["history"])
kernel = json.loads(run("report", paths[-1], "--json", "--code", "none"))
assert len(kernel["history"]["stages"]) == 1 and kernel["memory"] == r["memory"]

# without reuse all results of the arenas would lie side by side, those of all rows and those of a rank
run("opt", TINY, "--passes=default", "--ranks", "2", "-o", at("ranks.hir"))
for m in (kernel["memory"], json.loads(run("report", at("ranks.hir"), "--json", "--code", "none"))["memory"]):
    sizes = {place: sum(row[3] for row in m["rows"] if row[5] == place) for place in ("arena", "local")}
    assert sum(sizes.values()) == m["arena_bytes_per_token_without_reuse"], (sizes, m["arena_bytes_per_token_without_reuse"])
assert sizes["arena"] > 0 and sizes["local"] > 0, sizes

print(f"{len(r['history']['forms'])} forms, {len(stages)} stages, {len(functions)} functions")
