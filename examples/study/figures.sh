#!/bin/sh
# The table of README.md: figures.sh HADAL, from this folder.
set -eu
hadal=${1:-hadal}
echo '| sharpness | ops, one at a time | kernels, no depth passes | compiled | blocks in two phases | arena, bytes a token | kernels |'
echo '|---|---|---|---|---|---|---|'
for sharpness in none place token; do
    "$hadal" report model.hadal -D sharpness=$sharpness --code none --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
l, m = r["ledger"], r["memory"]
print("|", " | ".join([sys.argv[1]] + ["%.3f d" % l[k]["total"]["total"] for k in ("ops", "naive_kernels", "kernels")]
    + ["%d of %d" % (sum(b["kernel"] is not None for b in r["depth"]["phase_1"]), r["depth"]["blocks"]),
       "%d" % m["arena_bytes_per_token"], "%d" % m["kernels"]]), "|")' $sharpness
done
