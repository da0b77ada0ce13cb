"""calls.py REPORT DUMP: places and calls of the ops as loaded are those of the dump."""
import json
import re
import sys

with open(sys.argv[1]) as f:
    report = json.load(f)
with open(sys.argv[2]) as f:
    dump = re.findall(r'^  .*? loc "([^"]*)":(\d+):(\d+)(?: from "([^"]*)":(\d+):(\d+))?$', f.read(), re.M)
h = report["history"]
calls = {op: [h["strings"][file], line, column] for op, file, line, column in zip(*[iter(h["calls"])] * 4)}
(new, first, n), = zip(*[iter(h["stages"][0]["rows"])] * 3)
forms = [f for f in h["forms"][first:first + n] if f[3]]
shown = [(h["strings"][f[3]], *f[4:6], *calls.get(f[0], ("", "", ""))) for f in forms]
assert [tuple(map(str, x)) for x in shown] == dump, (shown[:3], dump[:3])
assert sum(bool(x[3]) for x in dump) > 20
paths = {f["path"] for f in report["files"]}
assert {x[0] for x in dump} | {x[3] for x in dump if x[3]} <= paths, paths
assert any(r.get("call") for r in report["remarks"])
