#!/bin/sh
# A small folder of a published family through `hadal run`, against the logits that transformers computed in float64.
#
#   run.sh HADAL TENSOR_COMPARE FOLDER LEVEL WORK_FOLDER
#
# LEVEL: interpret (the float64 evaluator), or a CPU level of the compiled code. The evaluator, the best level of the
# machine and amx in one call, and cut in calls of 5, 7, 1 and then one by one; other levels, where each further cut is a compilation,
# one token first, five, most of the rest, and the last ones one by one. e = max |got - expected| / max |expected|, at most
# 1e-6 for the evaluator (the expected logits are float32) and 1e-4 compiled. Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 case=$3 level=$4 work=$5
expected=$case/expected.safetensors
out=$work/$(basename "$case")-$level
mkdir -p "$work"

. "$(dirname "$0")/../tools/level.sh"

run() {
    "$hadal" run "$case" --tokens "$expected:tokens" --logits "$out.npy" $flags "$@"
    "$compare" "$out.npy" "$expected:logits" $limit
}

if [ "$level" = interpret ] || [ "$level" = $best ] || [ "$level" = amx ]; then
    run
    run --split 5,7,1
else
    tokens=$("$compare" --print "$expected:tokens" | wc -w)
    run --split 1,5,$((tokens > 12 ? tokens - 10 : 1))
fi
