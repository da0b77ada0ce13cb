#!/bin/sh
# One golden case through `hadal run`, as a user would start it.
#
#   run.sh HADAL TENSOR_COMPARE CASE_FOLDER LEVEL WORK_FOLDER NUMBER [whole]
#
# LEVEL: interpret (the float64 evaluator), or a CPU level of the compiled code. Cases of even NUMBER have caches of bf16, others of f16; both with
# HADAL_FULL=1.
# Tolerances, e = max |got - expected| / max |expected|:
#   evaluator 1e-6   float64 throughout; the expected values are stored as float32 (6e-8)
#   compiled  1e-4   a plain float32 evaluation stays below 3e-5, an error in the maths moves logits by 2e-4 and more
#   split     1e-5   prefill and decode of the same code differ in the order of sums only
#   caches of bf16, f16, best level and amx: against the evaluator with the same cache 1e-2, 2e-3 (where an element is so close
#             to the middle of two that float32 rounds it the other way; seen 2e-3, 6e-4, without such an element 1e-6),
#             against the expected logits 0.1, 0.03 (what the rounding itself does to these random models; seen 0.06, 0.015)
# Every level is run with a prefill and single tokens; the evaluator, the best level of the machine and, if `whole`, amx in one
# call as well, with hidden rows and depth weights (a call costs a compilation, and the split run has both kinds of code in it).
# Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 case=$3 level=$4 work=$5 number=$6
name=$(basename "$case")
expected=$case/expected.safetensors
mkdir -p "$work"
out=$work/$name-$level

. "$(dirname "$0")/../tools/level.sh"

check() {
    echo "$name $level: $1"
    shift
    "$compare" "$@"
}

tokens=$expected:tokens
first=$("$compare" --print "$expected:split" | cut -d' ' -f1)
"$hadal" run "$case" --tokens "$tokens" --logits "$out-split.npy" --split "$first" $flags
check "logits, $first tokens and then one by one" "$out-split.npy" "$expected:logits" $limit

[ "$level" = interpret ] || [ "$level" = $best ] || [ "${7:-}" = whole ] || exit 0

"$hadal" run "$case" --tokens "$tokens" --logits "$out.npy" --hidden "$out-hidden.npy" --trace-depth "$out.depth" $flags --threads 2
check "logits, one call" "$out.npy" "$expected:logits" $limit
check "final hidden rows" "$out-hidden.npy" "$expected:hidden_final" $limit
check "split against one call" "$out-split.npy" "$out.npy" 1e-5

cache() { # TYPE, distance to the evaluator with the same cache, to the expected logits
    "$hadal" run "$case" --tokens "$tokens" --logits "$out-$1.npy" --split "$first" $flags --cache-dtype "$1" --threads 2
    "$hadal" run "$case" --tokens "$tokens" --logits "$out-$1-exact.npy" --split "$first" --interpret --cache-dtype "$1"
    check "logits, cache of $1" "$out-$1.npy" "$out-$1-exact.npy" "$2"
    check "cache of $1 against f32" "$out-$1.npy" "$expected:logits" "$3"
}
if [ "$level" != interpret ]; then
    [ $((number % 2)) = 1 ] && [ "${HADAL_FULL:-}" != 1 ] || cache bf16 1e-2 0.1
    [ $((number % 2)) = 0 ] && [ "${HADAL_FULL:-}" != 1 ] || cache f16 2e-3 0.03
fi

mix=0
while "$compare" --print "$expected:depth_weights.$mix" >/dev/null 2>&1; do
    check "depth_weights.$mix" "$out.depth:depth_weights.$mix" "$expected:depth_weights.$mix" $limit
    mix=$((mix + 1))
done
