#!/bin/sh
# One golden case with its weights stored in every type, at the best CPU level of this machine or at LEVEL.
#
#   weights.sh HADAL TENSOR_COMPARE CASE_FOLDER WORK_FOLDER [LEVEL]
#
# Tolerances, e = max |got - expected| / max |expected|, against the evaluator with the same stored weights:
#   activations in f32     1e-4  as for f32 weights (run.sh)
#   activations in int8    0.6   rows of x are rounded to bytes (2^-8 of the largest of 32 neighbours). These models are
#                                of random weights, with sharp softmaxes, and forget nothing: 0.37 was measured at most;
#                                logits that have nothing in common are 1 apart
#   activations in bf16    0.15  2^-8 of each number at most; 0.068 was measured at most, about what storing weights in
#                                bf16 does to these models
# The text of a trained model moves far less: tests/weights/jargon_loss.py. What kernels make of rounded rows is checked
# to 1e-5 in tests/unit/test_emit_contract.c. The last number of a line is the distance to the case's own logits: what
# storage in this type does to it, for reading (docs/weight-types.md).
set -eu
hadal=$1 compare=$2 case=$3 work=$4 level=${5:-}
name=$(basename "$case")
expected=$case/expected.safetensors
mkdir -p "$work"
out=$work/$name-weights$level flags=
[ -z "$level" ] || . "$(dirname "$0")/../tools/level.sh"

distance() { # GOT EXPECTED LIMIT
    "$compare" "$@" || { echo "$name, weights in $type: too far" >&2; exit 1; }
}

for type in bf16 f16 q8 q4 mxfp4; do
    # shellcheck disable=SC2086 # options of several words
    run() { "$hadal" run "$case" --tokens "$expected:tokens" --weights-dtype "$type" $flags "$@"; }
    "$hadal" run "$case" --tokens "$expected:tokens" --weights-dtype "$type" --interpret --logits "$out.want.npy"
    run --activations f32 --logits "$out.f32.npy"
    echo "$name $type: $(distance "$out.f32.npy" "$out.want.npy" 1e-4)"
    echo "$name $type: storage $(distance "$out.want.npy" "$expected:logits" 10)"
    case $type in q8 | q4 | mxfp4)
        run --activations int8 --logits "$out.int8.npy"
        echo "$name $type: int8 $(distance "$out.int8.npy" "$out.want.npy" 0.6)" ;;
    bf16)
        run --activations bf16 --logits "$out.bf16.npy"
        echo "$name $type: bf16 $(distance "$out.bf16.npy" "$out.want.npy" 0.15)"
        case $name in standard | kimi-linear) # rounded activations have to be asked for, whatever the model is
            run --logits "$out.plain.npy"
            cmp "$out.plain.npy" "$out.f32.npy" ;;
        esac ;;
    esac
done
