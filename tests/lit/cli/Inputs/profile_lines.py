"""Each line of a profile is the line of that kernel in the kernel IR, and nothing is counted twice."""
import json
import sys

profile = json.load(open(sys.argv[1]))
text = open(sys.argv[2]).read().split("\n")
for phase in profile["phases"]:
    assert phase["lines"]
    for line in phase["lines"]:
        shown = text[line["line"] - 1]
        assert f'{{name = "{line["kernel"]}"' in shown, (line, shown)
        assert f'kernel.{line["kind"]} ' in shown, (line, shown)
    for key in ("calls", "work_ns", "wait_ns", "flops", "bytes"):
        assert sum(k[key] for k in phase["kernels"]) == sum(k[key] for k in phase["lines"]), key
    spent = sum(k["work_ns"] + k["wait_ns"] for k in phase["kernels"])
    assert 0 < spent <= phase["seconds"] * 1e9
