#!/bin/sh
# run.sh HADAL COMPARE CASE OUT RANKS..: a golden case compiled for so many ranks, which are threads, against
# the undivided library: prompt at once, in pieces and token by token. Rows are divided from as few tokens on as there
# are ranks, and once where the compiler finds that it pays. Logits may differ by 1e-5 of the largest: sums over ranks
# are taken in another order (seen 4e-6; a wrong row or head moves them by 1e-2 and more). Of three cases by 3e-5: their undivided
# logits are themselves 6e-6 to 2e-5 from the evaluator's for these tokens, and so are the divided ones.
set -eu
hadal=$1 compare=$2 case=$3 out=$4
shift 4
name=$(basename "$case" | tr -c 'a-zA-Z0-9\n' _)
out=$out/$name
mkdir -p "$out"
case $name in attnres_inputquery | attnres_swa | kimi_linear_attnres) limit=3e-5 ;; *) limit=1e-5 ;; esac
weights=
[ ! -e "$case/model.safetensors" ] || weights="--weights $case/model.safetensors"
common="$case $weights --march native --chunk 16"
"$hadal" compile $common -o "$out/m_whole"
compare() { # RANKS, options
    ranks=$1
    shift
    "$hadal" compile $common --ranks "$ranks" "$@" -o "$out/m_$ranks"
    "$compare" "$out/libm_whole.so" "$out/m_whole.weights" "$out/libm_$ranks.so" "$ranks" 37 "$limit" "$out/logits" > "$out/said"
    grep -v ^sent "$out/said"
    "$hadal" inspect $case $weights --chunk 16 --ranks "$ranks" "$@" --ledger=json > "$out/ledger.0.json"
    check_bytes 1 "$ranks"
}

check_bytes() { # STAGES, RANKS of each: bytes that crossed are those of the ledger
    grep ^sent "$out/said" | python3 -c '
import json, sys
told = []
for path in sys.argv[2:]: # a stage that sends nothing has no list
    nothing = {"sent": [{"token": 0, "chunk": 0}] * int(sys.argv[1])}
    told += json.load(open(path)).get("exchanges", nothing)["sent"]
for line in sys.stdin:
    rank, token, chunk = map(int, line.split()[1:])
    if (token, chunk) != (told[rank]["token"], told[rank]["chunk"]):
        sys.exit(f"rank {rank} sent {token} and {chunk} bytes, the ledger has {told[rank]}")
' "$2" $(seq -f "$out/ledger.%g.json" 0 $(($1 - 1)))
}

# Stages of a pipeline, a library each; the last has the logits.
pipeline() { # RANKS of each stage, STAGES, runs of layers of each
    divide= stage=0
    [ "$1" = 1 ] || divide="--ranks $1 --divide-from $1"
    while [ "$stage" -lt "$2" ]; do
        "$hadal" compile $common $divide --stages "$2" --virtual-stages "$3" --stage "$stage" -o "$out/s_$stage"
        "$hadal" inspect $case $weights --chunk 16 $divide --stages "$2" --virtual-stages "$3" --stage "$stage" \
            --ledger=json > "$out/ledger.$stage.json"
        stage=$((stage + 1))
    done
    "$compare" "$out/libm_whole.so" "$out/m_whole.weights" "$out/libs_%d.so" "$1x$2" 37 > "$out/said"
    grep -v ^sent "$out/said"
    check_bytes "$2" "$1"
}
[ $# = 1 ] || compare 2
# In tiles of a row or none, beside which others cross; the bits are those of all rows at once. Chunks are of 16, 16 and 5 rows.
for ranks in "$@"; do
    compare "$ranks" --divide-from "$ranks" --overlap 3
    [ $# != 1 ] || continue
    mv "$out/logits" "$out/tiles"
    compare "$ranks" --divide-from "$ranks" --overlap off
    cmp "$out/logits" "$out/tiles"
done
[ $# = 1 ] || { pipeline 1 2 1; pipeline 1 2 2; pipeline 2 2 1; pipeline 2 2 2; }
