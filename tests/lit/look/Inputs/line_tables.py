"""line_tables.py LIBRARY.so KERNEL.hir LEVELS: holds the line tables against the kernel IR.

A body is compiled in pieces with a table each, those of a CPU level one after the other. The tables
of each level together must name, for every kind of op that does work
in every kernel that has code, a line on which such an op stands. A kernel whose body equals that of
an earlier one shares its code, so only the lines of the first are asked for."""
import re
import subprocess
import sys

library, ir, levels = sys.argv[1], sys.argv[2], int(sys.argv[3])
text = subprocess.run(["readelf", "--debug-dump=decodedline", library], check=True, capture_output=True,
                      text=True).stdout
name = ir.split("/")[-1]
tables = []
for line in text.splitlines():
    if re.fullmatch(r"(CU: )?" + re.escape(name) + ":", line):  # a unit: a piece of a level's body
        tables.append(set())
    row = re.match(re.escape(name) + r" +(\d+) +0x", line)
    if row and tables and row[1] != "0":
        tables[-1].add(int(row[1]))

lines = open(ir).read().splitlines()
func = next(i for i, l in enumerate(lines, 1) if l.startswith("func("))
op_of = {}
for i, l in enumerate(lines, 1):
    m = re.match(r"\s+(?:%[^=]*= )?([a-z_.0-9]+)", l)
    if i > func and m:
        op_of[i] = m[1]

assert tables and len(tables) % levels == 0, f"{len(tables)} line tables, {levels} levels"
pieces = len(tables) // levels
tables = [set().union(*tables[i * pieces:(i + 1) * pieces]) for i in range(levels)]
for table in tables:
    strangers = table - op_of.keys()
    assert not strangers, f"lines on which no op stands: {sorted(strangers)}"
    ops = {op_of[i] for i in table}
    assert {"gather", "linear", "attention", "exp"} <= ops, f"ops with lines: {sorted(ops)}"
# The same ops have code at every level.
for op in ("gather", "linear", "attention"):
    where = [{i for i in t if op_of[i] == op} for t in tables]
    assert all(w == where[0] for w in where), f"{op}: {where}"
print("lines of", len(tables), "levels")
