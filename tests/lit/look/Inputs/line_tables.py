"""line_tables.py LIBRARY.so KERNEL.hir LEVELS: holds the line tables against the kernel IR.

Every line must be one on which an op stands, every kind of op that does work must have lines, and
each of them as many places in the code as there are CPU levels. A kernel whose body equals that of
an earlier one shares its code, so only the lines of the first are asked for."""
import re
import subprocess
import sys

library, ir, levels = sys.argv[1], sys.argv[2], int(sys.argv[3])
text = subprocess.run(["readelf", "--debug-dump=decodedline", library], check=True, capture_output=True,
                      text=True).stdout
name = ir.split("/")[-1]
places = {}  # line of the IR: addresses
for row in re.finditer(r"^" + re.escape(name) + r" +(\d+) +(0x[0-9a-f]+)", text, re.M):
    if row[1] != "0":
        places.setdefault(int(row[1]), set()).add(row[2])

lines = open(ir).read().splitlines()
func = next(i for i, l in enumerate(lines, 1) if l.startswith("func("))
op_of = {}
for i, l in enumerate(lines, 1):
    m = re.match(r"\s+(?:%[^=]*= )?([a-z_.0-9]+)", l)
    if i > func and m:
        op_of[i] = m[1]

strangers = places.keys() - op_of.keys()
assert not strangers, f"lines on which no op stands: {sorted(strangers)}"
ops = {op_of[i] for i in places}
assert {"gather", "linear", "attention", "exp"} <= ops, f"ops with lines: {sorted(ops)}"
# The same ops have code at every level.
for op in ("gather", "linear", "attention"):
    for line in (i for i in places if op_of[i] == op):
        assert len(places[line]) >= levels, f"{op}, line {line}: {len(places[line])} places"
print("lines of", levels, "levels")
