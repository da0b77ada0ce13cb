#!/bin/sh
# A small folder of a published family through `hadal run`, against the logits that transformers computed in float64.
#
#   run.sh HADAL TENSOR_COMPARE FOLDER LEVEL WORK_FOLDER
#
# LEVEL: interpret (the float64 evaluator), or a CPU level of the compiled code. In one call, and cut: five tokens and then
# one by one. e = max |got - expected| / max |expected|, at most 1e-6 for the evaluator (the expected logits are float32)
# and 1e-4 compiled. Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 case=$3 level=$4 work=$5
expected=$case/expected.safetensors
out=$work/$(basename "$case")-$level
mkdir -p "$work"

. "$(dirname "$0")/../tools/level.sh"

for cut in "" "--split 5"; do
    # shellcheck disable=SC2086 # words
    "$hadal" run "$case" --tokens "$expected:tokens" --logits "$out.npy" $flags $cut
    "$compare" "$out.npy" "$expected:logits" $limit
done
