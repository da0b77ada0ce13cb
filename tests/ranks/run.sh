#!/bin/sh
# run.sh HADAL COMPARE CASE OUT RANKS..: a golden case compiled for so many ranks, which are threads, against
# the undivided library: prompt at once, in pieces and token by token. Rows are divided from as few tokens on as there
# are ranks, and once where the compiler finds that it pays. Logits may differ by 1e-5 of the largest: sums over ranks
# are taken in another order (seen 4e-6; a wrong row or head moves them by 1e-2 and more).
set -eu
hadal=$1 compare=$2 case=$3 out=$4
shift 4
name=$(basename "$case" | tr -c 'a-zA-Z0-9\n' _)
out=$out/$name
mkdir -p "$out"
weights=
[ ! -e "$case/model.safetensors" ] || weights="--weights $case/model.safetensors"
common="$case $weights --march native --chunk 16"
"$hadal" compile $common -o "$out/m_whole"
compare() { # RANKS, options
    ranks=$1
    shift
    "$hadal" compile $common --ranks "$ranks" "$@" -o "$out/m_$ranks"
    "$compare" "$out/libm_whole.so" "$out/m_whole.weights" "$out/libm_$ranks.so" "$ranks" 37 > "$out/said"
    grep -v ^sent "$out/said"
    # bytes that crossed are those of the ledger
    "$hadal" inspect $case $weights --chunk 16 --ranks "$ranks" "$@" --ledger=json > "$out/ledger.json"
    grep ^sent "$out/said" | python3 -c '
import json, sys
told = json.load(open(sys.argv[1]))["exchanges"]["sent"]
for line in sys.stdin:
    rank, token, chunk = map(int, line.split()[1:])
    if (token, chunk) != (told[rank]["token"], told[rank]["chunk"]):
        sys.exit(f"rank {rank} sent {token} and {chunk} bytes, the ledger has {told[rank]}")
' "$out/ledger.json"
}
[ $# = 1 ] || compare 2
for ranks in "$@"; do
    compare "$ranks" --divide-from "$ranks"
done
