#!/bin/sh
# One golden case through `hadal run`, as a user would start it.
#
#   run.sh HADAL TENSOR_COMPARE CASE_FOLDER LEVEL WORK_FOLDER NUMBER [whole]
#
# LEVEL: interpret (the float64 evaluator), or a CPU level of the compiled code. Compiled, what costs a translation of its own takes turns by
# NUMBER, and all have all of it with HADAL_FULL=1: caches of bf16 or f16, one case in six each, losses, one in five, and weights of depth
# mixes, one in four.
# Tolerances, e = max |got - expected| / max |expected|:
#   evaluator 1e-6   float64 throughout; the expected values are stored as float32 (6e-8)
#   compiled  1e-4   a plain float32 evaluation stays below 3e-5, an error in the maths moves logits by 2e-4 and more
#   losses    as logits, against the log-softmax of the expected logits in double precision
#   split     1e-5   prefill and decode of the same code differ in the order of sums only
#   caches of bf16, f16, best level and amx: against the evaluator with the same cache 1e-2, 2e-3 (where an element is so close
#             to the middle of two that float32 rounds it the other way; seen 2e-3, 6e-4, without such an element 1e-6),
#             against the expected logits 0.1, 0.03 (what the rounding itself does to these random models; seen 0.06, 0.015)
# Every level is run with a prefill and single tokens; the evaluator, the best level of the machine and, if `whole`, amx in one
# call as well, with hidden rows and depth weights.
# Exit code 77: this machine cannot run the level.
set -eu
hadal=$1 compare=$2 case=$3 level=$4 work=$5 number=$6
name=$(basename "$case")
expected=$case/expected.safetensors
mkdir -p "$work"
out=$work/$name-$level

. "$(dirname "$0")/../tools/level.sh"
. "$(dirname "$0")/../tools/named.sh"
model=$case
[ "$level" = interpret ] || named "$case" "$out-named"

check() {
    echo "$name $level: $1"
    shift
    "$compare" "$@"
}

tokens=$expected:tokens
first=$("$compare" --print "$expected:split" | cut -d' ' -f1)
"$hadal" run "$model" --tokens "$tokens" --logits "$out-split.npy" --split "$first" $flags
check "logits, $first tokens and then one by one" "$out-split.npy" "$expected:logits" $limit

[ "$level" = interpret ] || [ "$level" = $best ] || [ "${7:-}" = whole ] || exit 0

turn() { # NUMBER of OF: whether it is this case's
    [ $((number % $2)) = "$1" ] || [ "${HADAL_FULL:-}" = 1 ]
}

depth= threads="--threads 2"
if [ "$level" = interpret ]; then threads=; fi
if [ "$level" = interpret ] || turn 0 4; then depth="--trace-depth $out.depth"; fi
"$hadal" run "$model" --tokens "$tokens" --logits "$out.npy" --hidden "$out-hidden.npy" $depth $flags $threads
check "logits, one call" "$out.npy" "$expected:logits" $limit
check "final hidden rows" "$out-hidden.npy" "$expected:hidden_final" $limit
check "split against one call" "$out-split.npy" "$out.npy" 1e-5

# the loss of compiled code costs a compilation
if [ "$level" = interpret ] || turn 0 5; then
    "$hadal" eval "$model" --data "$tokens" --losses "$out-losses.npy" --context 4096 $flags >/dev/null
    check "losses" --losses "$out-losses.npy" "$expected:logits" "$tokens" $limit
fi

cache() { # TYPE, distance to the evaluator with the same cache, to the expected logits
    "$hadal" run "$model" --tokens "$tokens" --logits "$out-$1.npy" --split "$first" $flags --cache-dtype "$1" --threads 2
    "$hadal" run "$case" --tokens "$tokens" --logits "$out-$1-exact.npy" --split "$first" --interpret --cache-dtype "$1"
    check "logits, cache of $1" "$out-$1.npy" "$out-$1-exact.npy" "$2"
    check "cache of $1 against f32" "$out-$1.npy" "$expected:logits" "$3"
}
if [ "$level" != interpret ]; then
    ! turn 0 6 || cache bf16 1e-2 0.1
    ! turn 3 6 || cache f16 2e-3 0.03
fi

[ -n "$depth" ] || exit 0
mix=0
while "$compare" --print "$expected:depth_weights.$mix" >/dev/null 2>&1; do
    check "depth_weights.$mix" "$out.depth:depth_weights.$mix" "$expected:depth_weights.$mix" $limit
    mix=$((mix + 1))
done
