#!/bin/sh
# A small folder of a published family through `hadal run`, against the logits that transformers computed in float64.
#
#   run.sh HADAL TENSOR_COMPARE FOLDER LEVEL WORK_FOLDER NUMBER [whole]
#
# LEVEL: interpret (the float64 evaluator), or a CPU level of the compiled code. The evaluator, the best level of the
# machine and, if `whole`, amx in one call, and cut in calls of 5, 7, 1 and then one by one; other levels, one token first, five, most of the rest,
# and the last ones one by one. Where there are two runs the folder is compiled once for both. e = max |got - expected| / max |expected|, at most
# 1e-6 for the evaluator (the expected logits are float32) and 1e-4 compiled. Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 case=$3 level=$4 work=$5
expected=$case/expected.safetensors
out=$work/$(basename "$case")-$level
mkdir -p "$work"

. "$(dirname "$0")/../tools/level.sh"
. "$(dirname "$0")/../tools/named.sh"
model=$case
[ "$level" = interpret ] || named "$case" "$out-named"

run() {
    "$hadal" run "$@" --tokens "$expected:tokens" --logits "$out.npy"
    "$compare" "$out.npy" "$expected:logits" $limit
}

# shellcheck disable=SC2086 # $flags: words
if [ "$level" = interpret ]; then
    run "$case" $flags
    run "$case" $flags --split 5,7,1
elif [ "$level" = $best ] || [ "${7:-}" = whole ]; then
    "$hadal" compile "$case" --target-cpu "$level" -o "$out/model" -q
    run "$out/model"
    run "$out/model" --split 5,7,1
    rm -r "$out"
else
    tokens=$("$compare" --print "$expected:tokens" | wc -w)
    run "$model" $flags --split 1,5,$((tokens > 12 ? tokens - 10 : 1))
fi
