#!/bin/sh
# The examples of docs/layers.md: each is evaluated in one call and cut, and compiled code agrees with that.
#
#   layers.sh HADAL TENSOR_COMPARE DOCS_FOLDER WORK_FOLDER
#
# Evaluator, cut against one call: 1e-6 (float64, stored as float32). Compiled against the evaluator: 1e-5 (float32; small
# models whose sums are short).
set -eu
hadal=$1 compare=$2 docs=$3 work=$4
tokens=3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3
rm -rf "$work"
mkdir -p "$work"

awk -v to="$work" '/^```/ { if (!on) n++; on = !on; next } on { print > (to "/example" n ".hadal") }' "$docs/layers.md"
[ "$(ls "$work" | wc -l)" -eq 5 ]
for spec in "$work"/*.hadal; do
    out=${spec%.hadal} library=${spec%.hadal}-library/model
    "$hadal" init-weights --draw-all "$spec" -o "$out.safetensors"
    model="$spec --weights $out.safetensors --tokens $tokens"
    # shellcheck disable=SC2086 # words
    {
        "$hadal" run $model --interpret --logits "$out.npy"
        "$hadal" run $model --interpret --split 7 --logits "$out-cut.npy"
        "$compare" "$out-cut.npy" "$out.npy" 1e-6
        "$hadal" compile "$spec" --weights "$out.safetensors" --march native -o "$library" -q
        "$hadal" run "$library" --tokens $tokens --threads 1 --logits "$out-compiled.npy"
        "$compare" "$out-compiled.npy" "$out.npy" 1e-5
        "$hadal" run "$library" --tokens $tokens --threads 2 --split 7 --logits "$out-compiled-cut.npy"
        "$compare" "$out-compiled-cut.npy" "$out.npy" 1e-5
    }
done
