#!/bin/sh
# run.sh HADAL COMPARE CASE OUT NUMBER [more | more-full]: a golden case divided over ranks, which are threads, against the
# undivided library: on 2, 3 and 4 ranks, over 2 stages of 2 runs of layers each, and over 2 stages of 2 ranks. Cases that follow
# each other by NUMBER take one of the numbers of ranks after the other, and of four cases two one of the pipelines; with HADAL_FULL=1 each has all. Prompts
# at once (3 chunks), in calls that are a chunk or less, and token by token; and batches of sessions. At once and chunk
# by chunk are the same bits. Of each fourth case losses as well. Rows are divided from as
# few tokens on as there are ranks. With `more`: where the compiler finds that it pays, and other pipelines;
# with `more-full` the same where HADAL_FULL=1.
# All libraries have one name, by which their symbols begin: what they have in common is translated once (HADAL_CODE_CACHE).
# Logits may differ by 1e-5 of the largest: sums over ranks are taken in another order (seen 7e-6; a wrong row or head moves
# them by 1e-2 and more). Three cases are badly conditioned for these tokens: in the float64 evaluator a random last bit of
# each weight moves their logits by 7e-6 (kimi-linear-attnres), 1.2e-5 (attnres-inputquery) and 3e-5 (attnres-swa), where it
# moves others by 1e-6 to 3e-6, and undivided they are as far from the evaluator's: 1.5e-5, 6e-6, 1.7e-5. They are
# held against the evaluator, from which the divided logits may be 1e-5 further away than the undivided, and those of
# attnres-swa by the 3e-5 of a last bit (seen 1.4e-5). inkling2_loop_text runs its middle layers three times, and a last bit grows to 3e-5 on the way (torch in f32 is as far from float64).
set -eu
hadal=$1 compare=$2 case=$3 out=$4 number=$5 more=${6:-}
if [ "$more" = more-full ]; then
    more=
    [ "${HADAL_FULL:-}" != 1 ] || more=more
fi
name=$(basename "$case" | tr -c 'a-zA-Z0-9\n' _)
out=$out/$name
rm -rf "$out"
mkdir -p "$out"
weights= limit=1e-5 exact= tokens=37
[ ! -e "$case/model.safetensors" ] || weights="--weights $case/model.safetensors"
common="$case $weights --march native --chunk 16" loss=
if [ -n "$more" ] || [ $((number % 4)) = 2 ] || [ "${HADAL_FULL:-}" = 1 ]; then loss=--loss; fi
"$hadal" compile $common $loss -o "$out/whole/model"
case $name in
    attnres_inputquery | attnres_swa | kimi_linear_attnres)
        # the tokens that the program reads
        list=$("$compare" --tokens "$out/whole/libmodel.so" $tokens)
        "$hadal" run $case $weights --interpret --tokens "$list" --logits "$out/exact.npy"
        exact=$out/exact.npy
        [ "$name" != attnres_swa ] || limit=3e-5
        ;;
    inkling2_loop_text) limit=1e-4 ;;
esac

same() { # DIVIDED.so, RANKS, file for logits
    "$compare" "$out/whole/libmodel.so" "$out/whole/model.weights" "$1" "$2" $tokens $limit "$3" $exact > "$out/said"
    grep -v ^sent "$out/said"
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

tensor() { # RANKS, options
    ranks=$1
    shift
    "$hadal" compile $common $loss --ranks "$ranks" "$@" -o "$out/$ranks/model"
    "$hadal" inspect $case $weights --chunk 16 --ranks "$ranks" "$@" --ledger=json > "$out/ledger.0.json"
    same "$out/$ranks/libmodel.so" "$ranks" "$out/logits"
    check_bytes 1 "$ranks"
}

# Stages of a pipeline, a library each; the last has the logits.
pipeline() { # RANKS of each stage, STAGES, runs of layers of each
    divide="--stages $2 --virtual-stages $3" stage=0
    [ "$1" = 1 ] || divide="$divide --ranks $1 --divide-from $1"
    "$hadal" compile $common $loss $divide -o "$out/$1x$2x$3/model"
    while [ "$stage" -lt "$2" ]; do
        "$hadal" inspect $case $weights --chunk 16 $divide --stage "$stage" --ledger=json > "$out/ledger.$stage.json"
        stage=$((stage + 1))
    done
    same "$out/$1x$2x$3/libmodel_s%d.so" "$1x$2" -
    check_bytes "$2" "$1"
}

# In tiles of a row or none, beside which others cross; the bits are those of all rows at once. Chunks are of 16, 16 and 5 rows.
turn() { # NUMBER of OF: whether it is this case's
    [ $((number % $2)) = "$1" ] || [ -n "$more" ] || [ "${HADAL_FULL:-}" = 1 ]
}
for ranks in 2 3 4; do
    turn $((ranks - 2)) 3 || continue
    tensor $ranks --divide-from $ranks --overlap 3
    [ $ranks = 3 ] || [ -n "$more" ] || continue
    mv "$out/logits" "$out/tiles"
    tensor $ranks --divide-from $ranks --overlap off
    cmp "$out/logits" "$out/tiles"
done
! turn 0 4 || pipeline 1 2 2
! turn 1 4 || pipeline 2 2 1
if [ -n "$more" ]; then
    tensor 2
    pipeline 1 2 1
    pipeline 2 2 2
fi
rm -rf "$out"
