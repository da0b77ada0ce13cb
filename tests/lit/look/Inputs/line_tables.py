"""line_tables.py LIBRARY.so KERNEL.hir LEVEL[=OTHER]..: holds the line tables against the kernel IR.

The variant of each CPU level must have, for the kinds of op that do most of the work, lines on which such
ops stand; and no line may be one on which no op stands. A level may have functions of an OTHER, whose code is equal. Kernels whose bodies are equal share their
code, so not every line of the IR has some."""
import bisect
import re
import subprocess
import sys

library, ir, levels = sys.argv[1], sys.argv[2], dict(x.partition("=")[::2] for x in sys.argv[3:])
name = ir.split("/")[-1]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


symbols = [line.split() for line in output("nm", "-n", library).splitlines()]
symbols = [(int(s[0], 16), s[2]) for s in symbols if len(s) == 3]
addresses = [s[0] for s in symbols]

tables = {level: set() for level in levels}
for line in output("readelf", "--debug-dump=decodedline", library).splitlines():
    row = re.match(re.escape(name) + r" +(\d+) +(0x[0-9a-f]+)", line)
    if row and row[1] != "0":
        function = symbols[bisect.bisect_right(addresses, int(row[2], 16)) - 1][1]
        tables[function.split("_")[-1]].add(int(row[1]))

for level, other in levels.items():
    assert tables[level], f"{level} has no code of its own"
    tables[level] |= tables[other] if other else set()

lines = open(ir).read().splitlines()
func = next(i for i, l in enumerate(lines, 1) if l.startswith("func("))
op_of = {}
for i, l in enumerate(lines, 1):
    m = re.match(r"\s+(?:%[^=]*= )?([a-z_.0-9]+)", l)
    if i > func and m:
        op_of[i] = m[1]

for level, table in tables.items():
    strangers = table - op_of.keys()
    assert not strangers, f"lines on which no op stands: {sorted(strangers)}"
    ops = {op_of[i] for i in table}
    assert {"gather", "linear", "attention", "reduce_sum"} <= ops, f"{level}: ops with lines: {sorted(ops)}"
# The same ops have code at every level.
for op in ("gather", "linear", "attention"):
    where = [{i for i in t if op_of[i] == op} for t in tables.values()]
    assert all(w == where[0] for w in where), f"{op}: {where}"
