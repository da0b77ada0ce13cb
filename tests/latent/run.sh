#!/bin/sh
# Latent attention compiled, against the evaluator of the naive form.
#
#   run.sh HADAL TENSOR_COMPARE SPEC LEVEL WORK_FOLDER
#
# A prefill that several threads share and then tokens one by one, other cuts of the same tokens (which are done in one form
# or in the other), parameters that give other forms, options of attention, caches and weights of other types. Tolerances, e = max |got - expected| / max |expected|:
#   1e-5   both round caches and weights alike; a plain float32 evaluation stays below 2e-6. With caches of 16 bits an
#          element in the middle of two may fall to the other side: 1e-2 (bf16), 2e-3 (f16), as in golden/run.sh
#   0      one thread and two give the same bytes
# In the short set a level has each second set of options, and with HADAL_FULL=1 all. Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 spec=$3 level=$4 work=$5
out=$work/$level library=$work/$level-library/model
mkdir -p "$work"

. "$(dirname "$0")/../tools/level.sh"

tokens=$(seq -s, 1 40),$(seq -s, 3 30)

number=0 turn=0
case $level in amx | avx2) turn=1 ;; esac
check() {
    number=$((number + 1)) # options take turns with the levels, after the first
    [ $number = 1 ] || [ $((number % 2)) = $turn ] || [ "${HADAL_FULL:-}" = 1 ] || return 0
    echo "$level: $1 $2 $3"
    # shellcheck disable=SC2086 # options of several words
    "$hadal" init-weights --draw-all "$spec" $2 -o "$out.safetensors"
    # shellcheck disable=SC2086
    "$hadal" run "$spec" $2 ${3%--activations *} -w "$out.safetensors" -t "$tokens" --split 33 --interpret --logits "$out-exact.npy"
    # shellcheck disable=SC2086
    "$hadal" compile "$spec" $2 $3 -w "$out.safetensors" --target-cpu "$level" -o "$library" -q
    for threads in 1 2; do
        "$hadal" run "$library" -t "$tokens" --split 33 --threads $threads --logits "$out-$threads.npy"
    done
    "$compare" "$out-1.npy" "$out-exact.npy" "$1"
    cmp "$out-1.npy" "$out-2.npy"
}

[ "$level" = interpret ] && exit 77
check 1e-5 "" ""
for split in 1 5 68; do
    "$hadal" run "$library" -t "$tokens" --split $split --logits "$out-cut.npy"
    "$compare" "$out-cut.npy" "$out-1.npy" 1e-5
done
check 1e-5 "-D rotated=false -D gate=heads" "--weights-dtype bf16 --activations f32"
check 1e-5 "-D rotated=false -D rope=0" "--weights-dtype f16"
check 1e-5 "-D window=9 -D sink=true -D softcap=3.0" ""
check 1e-2 "-D gate=none" "--cache-dtype bf16"
# rounded queries and weights: 2^-8 of each, through two layers of softmaxes; 5e-3 seen
check 2e-2 "-D gate=none -D latent=32" "--cache-dtype bf16 --activations bf16"
check 2e-3 "" "--cache-dtype f16 --weights-dtype q8 --activations f32"
