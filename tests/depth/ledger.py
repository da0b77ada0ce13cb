#!/usr/bin/env python3
"""Every figure of the ledger of a residual system is one count: bytes over d, tokens and sublayers. The head, the table
of passes, the phases, the accesses of kernels, JSON and the report say the same, and passes over depth cost nothing.

usage: ledger.py HADAL SOURCE OUT
"""
import json
import os
import re
import subprocess
import sys

hadal, source, out = sys.argv[1:4]
here = os.path.dirname(os.path.abspath(__file__))
os.makedirs(out, exist_ok=True)
UNCHARGED = {"producer's sum", "producer's output"}
failed = 0


def run(*arguments):
    done = subprocess.run([hadal, *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr}")
    return done.stdout


def expect(what, got, expected):
    global failed
    if abs(got - expected) > 1e-9 * max(1, abs(expected)):
        print(f"{what}: {got}, expected {expected}")
        failed += 1


def both(traffic):
    return traffic["read_bytes"] + traffic["written_bytes"]


def check(name, spec, sublayers=None):
    ledger = json.loads(run("inspect", *spec, "--ledger=json"))
    text = run("inspect", *spec, "--ledger")
    count = ledger["sublayers"]
    if sublayers is not None:
        expect(f"{name}: sublayers", count, sublayers)
    if not count:
        return
    row = 4 * ledger["d"] * count
    for key in ("ops", "naive_kernels", "kernels"):
        if key not in ledger:
            continue
        one = ledger[key]
        for label, t in [("total", one["total"]), ("paper", one["as_the_paper_counts"]), *one["phases"].items()]:
            expect(f"{name}: {key}, {label}: total", t["total"], both(t) / row)
            expect(f"{name}: {key}, {label}: read", t["read"], t["read_bytes"] / row)
            expect(f"{name}: {key}, {label}: written", t["written"], t["written_bytes"] / row)
        for way in ("read", "written"):
            parts = sum(t[way + "_bytes"] for p, t in one["phases"].items() if p not in UNCHARGED)
            expect(f"{name}: {key}: phases, {way}", parts, one["total"][way + "_bytes"])
            if "accesses" in one:
                parts = sum(a["bytes"] for a in one["accesses"]
                            if a["phase"] not in UNCHARGED and (a["access"] == "write") == (way == "written"))
                expect(f"{name}: {key}: accesses, {way}", parts, one["total"][way + "_bytes"])
    table = ledger.get("table_1")
    if table and "kernels" in table["lines"][0] and "kernels" in ledger:  # its lines lead to the total
        phases = ledger["kernels"]["phases"]
        inside = {"layer input"} if table["row"] == "full" else set()
        rest = sum(phases[p]["total"] for p in ("norm", "layer input", "output") if p not in inside)
        expect(f"{name}: table 1 and what it leaves out", table["kernels"]["total"] + rest - phases["producer's sum"]["total"],
               ledger["kernels"]["total"]["total"])
    if not ledger["sources"]["mixes"]:
        for p in ("phase 1", "phase 2"):
            expect(f"{name}: {p} without a mix", both(ledger["kernels"]["phases"][p]), 0)
        expect(f"{name}: closed forms", len(set(ledger["paper"]["forms"]) - {"standard"}), 0)
    last = ledger["passes"][-1]["total"]
    expect(f"{name}: plan-memory", last["total"], ledger["kernels"]["total"]["total"])
    expect(f"{name}: with passes over depth, more than without",
           max(0, both(ledger["kernels"]["total"]) - both(ledger["naive_kernels"]["total"])), 0)
    head = re.search(r"kernels, as compiled +([\d.]+|-) +([\d.]+|-) +([\d.]+) +(\d+)", text)
    end = re.search(r"plan-memory +([\d.]+|-) +([\d.]+|-) +([\d.]+) +(\d+)", text)
    if not head or not end or head.groups() != end.groups():
        expect(f"{name}: head {head and head.group(0)!r}, plan-memory {end and end.group(0)!r}", 0, 1)
    else:
        expect(f"{name}: head", float(head.group(3)), round(both(last) / row, 3))
    for remark in json_remarks(spec):
        told = re.match(r"ledger: ([\d.]+) d instead", remark["text"])
        if told and remark["pass"] in ("fuse",):
            expect(f"{name}: remark of fuse", float(told.group(1)),
                   round(next(p["total"]["total"] for p in ledger["passes"] if p["pass"] == "fuse"), 3))
    report = json.loads(run("report", *spec, "--code", "none", "--json", "-o", "-"))
    stages = [s["ledger"] for s in report["history"]["stages"] if "ledger" in s]
    for stage in stages:
        expect(f"{name}: report, sublayers", stage["sublayers"], count)
        expect(f"{name}: report, unit", stage["unit"], 4 * ledger["d"])
        for i in range(2):
            parts = sum(v[i] for p, v in stage["phases"].items() if p not in UNCHARGED)
            expect(f"{name}: report, sum of phases", stage["total"][i], parts)
    expect(f"{name}: report, last stage", sum(stages[-1]["total"]), both(last))


def json_remarks(spec):
    done = subprocess.run([hadal, "compile", *spec, "-q", "--emit=kernel", "--remarks=json", "-o", os.path.join(out, "m")],
                          capture_output=True, text=True)
    return [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


specs = os.path.join(here, "specs")
cases = [("matrix stream", ["matrix-stream.hadal"], 2),
         ("matrix model", ["matrix-model.hadal", "-D", "ranks=16", "-D", "width=16", "-D", "keys=64"], 8),
         ("narrow matrix model", ["matrix-model.hadal"], None),
         ("projected embedding", ["projected-embedding.hadal"], 4),
         ("embeddings side by side", ["embeddings.hadal", "-D", "how=0"], 4),
         ("embedding behind layers", ["embeddings.hadal", "-D", "how=1"], 4),
         ("embedding behind a gated layer", ["embeddings.hadal", "-D", "how=2"], 4),
         ("embeddings projected together", ["embeddings.hadal", "-D", "how=3"], 4),
         ("a normed embedding", ["before-the-stream.hadal", "-D", "how=norm"], 4),
         ("an activation of a mapped embedding", ["before-the-stream.hadal", "-D", "how=map"], 4),
         ("a sum of two embeddings", ["before-the-stream.hadal", "-D", "how=sum"], 4),
         ("no residual", ["no-residual.hadal"], 0),
         ("mix of one source", ["one-source.hadal"], 6),
         ("norm of a stack", ["normed-stack.hadal"], 16),
         ("queries of low rank", ["low-rank-model.hadal"], 8),
         ("queries of low rank, long", ["low-rank-model.hadal", "-D", "layers=12", "-D", "hidden=512", "-D", "heads=8",
                                       "-D", "ff=1024"], 24)]
for name, spec, sublayers in cases:
    check(name, [os.path.join(specs, spec[0]), *spec[1:]], sublayers)
# rows of which coefficients alone are made are no partial mixes
listed = json.loads(run("inspect", os.path.join(specs, "listed-streams.hadal"), "--ledger=json"))["kernels"]
for p in ("phase 1", "phase 2"):
    expect(f"streams in a list: {p}", both(listed["phases"][p]), 0)
# streams that are written one by one are mixed where they are written, as those of one value are
whole = json.loads(run("inspect", os.path.join(specs, "listed-streams.hadal"), "-D", "list=false", "--ledger=json"))["kernels"]
expect("streams in a list move more than streams in one value", max(0, both(listed["total"]) - both(whole["total"])), 0)
for case in ("attnres-block", "attnres-full", "mhc", "denseformer", "siamesenorm", "standard"):
    check(case, [os.path.join(source, "tests/golden", case)])
# divided models: both columns are of all ranks, or of one stage
for name, spec in [("normed-stack", [os.path.join(specs, "normed-stack.hadal")]),
                   ("low-rank", [os.path.join(specs, "low-rank-model.hadal"), "-D", "layers=12", "-D", "hidden=512", "-D", "heads=8", "-D", "ff=1024"]),
                   *((case, [os.path.join(source, "tests/golden", case)]) for case in ("attnres-block", "mhc"))]:
    for how in (["--ranks", "2"], ["--ranks", "4", "--divide-from", "8"], ["--stages", "2", "--stage", "1"]):
        ledger = json.loads(run("inspect", *spec, *how, "--ledger=json"))
        expect(f"{name} {' '.join(how)}: with passes over depth, more than without",
               max(0, both(ledger["kernels"]["total"]) - both(ledger["naive_kernels"]["total"])), 0)
        if name == "mhc":  # it has no attention over depth
            expect(f"{name} {' '.join(how)}: passes over depth have nothing to do", both(ledger["kernels"]["total"]),
                   both(ledger["naive_kernels"]["total"]))
sys.exit(1 if failed else 0)
