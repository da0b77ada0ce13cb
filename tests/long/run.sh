#!/bin/sh
# A model with 700 tokens: more than a chunk of a call (512), several blocks of keys and of recurrences, windows that are full, runs of
# entries. Compiled code against the evaluator, whole on two threads, and cut into calls around those sizes on one.
#
#   run.sh HADAL TENSOR_COMPARE CASE LEVEL WORK_FOLDER
#
# CASE: a folder with weights, or a spec, which gets random weights.
# e = max |got - expected| / max |expected|: 2e-7 to 2e-5 measured against the evaluator (sums over up to 700 positions in f32), 1e-5
# between the cuts of k3. Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 case=$3 level=$4 work=$5
out=$work/$(basename "$case")-$level
mkdir -p "$work"

. "$(dirname "$0")/../tools/level.sh"

weights=
case $case in
    *.hadal)
        "$hadal" init-weights --draw-all "$case" -o "$out.safetensors" --quiet
        weights="-w $out.safetensors"
        ;;
esac
tokens=$(awk 'BEGIN { for (i = 0; i < 700; i++) printf "%s%d", i ? "," : "", (i * 29 + i * i / 7) % 32 }')
# shellcheck disable=SC2086 # two words
"$hadal" run "$case" $weights --tokens "$tokens" --interpret --logits "$out-exact.npy"
# shellcheck disable=SC2086
"$hadal" compile "$case" $weights --target-cpu "$level" -o "$out-library/model" -q
"$hadal" run "$out-library/model" --tokens "$tokens" --threads 2 --logits "$out.npy"
"$compare" "$out.npy" "$out-exact.npy" 1e-4
# the last ten go one by one
"$hadal" run "$out-library/model" --tokens "$tokens" --threads 1 --split 1,258,300,131 --logits "$out-cut.npy"
"$compare" "$out-cut.npy" "$out.npy" 2e-5
