#!/bin/sh
# A model with convolutions over the tokens and delta rules, compiled, against the evaluator.
#
#   run.sh HADAL TENSOR_COMPARE SPEC LEVEL WORK_FOLDER
#
# A prefill and then tokens one by one, other cuts of the same tokens, weights and caches of other types. Tolerances,
# e = max |got - expected| / max |expected|:
#   1e-5   a plain float32 evaluation stays below 3e-6
#   0      one thread and two give the same bytes
# Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 spec=$3 level=$4 work=$5
out=$work/$level library=$work/$level-library/model
mkdir -p "$work"

. "$(dirname "$0")/../tools/level.sh"

tokens=$(seq -s, 1 40),$(seq -s, 3 30)
"$hadal" init-weights --draw-all "$spec" -o "$out.safetensors"

number=0 turn=0
case $level in avx2) turn=1 ;; esac
check() {
    number=$((number + 1)) # options take turns with the levels, after the first
    [ $number = 1 ] || [ $((number % 2)) = $turn ] || [ "${HADAL_FULL:-}" = 1 ] || return 0
    echo "$level: $1 $2"
    # shellcheck disable=SC2086 # options of several words
    "$hadal" run "$spec" ${2%--activations *} -w "$out.safetensors" -t "$tokens" --split 33 --interpret --logits "$out-exact.npy"
    # shellcheck disable=SC2086
    "$hadal" compile "$spec" $2 -w "$out.safetensors" --target-cpu "$level" -o "$library" -q
    for threads in 1 2; do
        "$hadal" run "$library" -t "$tokens" --split 33 --threads $threads --logits "$out-$threads.npy"
    done
    "$compare" "$out-1.npy" "$out-exact.npy" "$1"
    cmp "$out-1.npy" "$out-2.npy"
}

[ "$level" = interpret ] && exit 77
check 1e-5 ""
for split in 1 7 68; do
    "$hadal" run "$library" -t "$tokens" --split $split --logits "$out-cut.npy"
    "$compare" "$out-cut.npy" "$out-1.npy" 1e-5
done
check 1e-5 "--weights-dtype bf16 --activations f32"
check 1e-2 "--cache-dtype bf16"
check 1e-2 "--carry-dtype bf16"
check 2e-3 "--carry-dtype f16"
