#!/bin/sh
# One golden case with its weights stored in another type, at the best CPU level of this machine or at LEVEL.
#
#   weights.sh HADAL TENSOR_COMPARE CASE_FOLDER WORK_FOLDER NUMBER [LEVEL]
#
# Cases that follow each other by NUMBER take one type after the other: with a third of 40 cases each type meets two or three of them, which differ. All six, of
# each case, with HADAL_FULL=1, and always with NUMBER all.
#
# Tolerances, e = max |got - expected| / max |expected|, against the evaluator with the same stored weights:
#   activations in f32     1e-4  as for f32 weights (run.sh)
#   activations in int8    0.6   rows of x are rounded to bytes (2^-8 of the largest of 32 neighbours). These models are
#                                of random weights, with sharp softmaxes, and forget nothing: 0.53 was measured at most;
#                                logits that have nothing in common are 1 apart
#   activations in bf16    0.15  2^-8 of each number at most; 0.068 was measured at most, about what storing weights in
#                                bf16 does to these models
#   Kimi, activations      2     a rounded score of a router is another expert, and of two experts with random weights
#   rounded                      nothing is alike: 1.34 was measured. Only that results are numbers of the right size
# The text of a trained model moves far less: tests/weights/jargon_loss.py. What kernels make of rounded rows is checked
# to 1e-5 in tests/unit/codegen/contract/test_emit_contract.c. The last number of a line is the distance to the case's own logits: what
# storage in this type does to it, for reading (docs/weight-types.md).
set -eu
hadal=$1 compare=$2 case=$3 work=$4 number=$5 level=${6:-}
name=$(basename "$case")
expected=$case/expected.safetensors
mkdir -p "$work"
out=$work/$name-weights$level flags=
[ -z "$level" ] || . "$(dirname "$0")/../tools/level.sh"
. "$(dirname "$0")/../tools/named.sh"
named "$case" "$out-named"

distance() { # WHAT GOT EXPECTED LIMIT
    what=$1
    shift
    e=$("$compare" "$@") || { echo "$name, weights in $type, $what: too far: $e" >&2; exit 1; }
    echo "$name $type: $what $e"
}

int8=0.6 bf16=0.15
case $name in kimi-* | k3) int8=2 bf16=2 ;; esac

types="bf16 f16 q8 q4 mxfp4 nvfp4"
if [ "$number" != all ] && [ "${HADAL_FULL:-}" != 1 ]; then
    types=$(echo $types | cut -d' ' -f $((number % 6 + 1)))
fi
for type in $types; do
    # shellcheck disable=SC2086 # options of several words
    run() { "$hadal" run "$model" --tokens "$expected:tokens" --weights-dtype "$type" $flags "$@"; }
    "$hadal" run "$case" --tokens "$expected:tokens" --weights-dtype "$type" --interpret --logits "$out.want.npy"
    run --activations f32 --logits "$out.f32.npy"
    distance exact "$out.f32.npy" "$out.want.npy" 1e-4
    distance storage "$out.want.npy" "$expected:logits" 10
    case $type in q8 | q4 | mxfp4 | nvfp4)
        run --activations int8 --logits "$out.int8.npy"
        distance int8 "$out.int8.npy" "$out.want.npy" $int8 ;;
    bf16)
        run --activations bf16 --logits "$out.bf16.npy"
        distance bf16 "$out.bf16.npy" "$out.want.npy" $bf16
        case $name in standard | kimi-linear) # rounded activations have to be asked for, whatever the model is
            run --logits "$out.plain.npy"
            cmp "$out.plain.npy" "$out.f32.npy" ;;
        esac ;;
    esac
done
