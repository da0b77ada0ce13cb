#!/bin/sh
# One model compiled for another architecture, linked by its cross compiler, and run in an emulator.
#
#   run.sh HADAL TENSOR_COMPARE ARCH MODEL_FOLDER WORK_FOLDER TYPE...
#
# TYPE: of the weights; bf16 and f16 also of caches. f32 is held against the expected logits of a golden case, others (and models without
# expected ones) against the evaluator with the same storage. Tolerances, e = max |got - expected| / max |expected|, as in golden/run.sh and
# weights.sh, where the reasons stand: 1e-4; with caches of bf16 1e-2, of f16 2e-3; split against one call 1e-5 for f32.
# Weights are packed to the same bytes whatever the architecture.
# Exit code 77: the cross compiler or the emulator is not there.
set -eu
hadal=$1 compare=$2 arch=$3 model=$4 out=$5/$(basename "$4")-$3
shift 5
cc=$arch-linux-gnu-gcc
for tool in "$cc" "qemu-$arch"; do
    command -v "$tool" >/dev/null || { echo "$tool is not there"; exit 77; }
done
here=$(dirname "$0") expected=$model/expected.safetensors
rm -rf "$out"
mkdir -p "$out/here"
if [ -f "$expected" ]; then
    tokens=$("$compare" --print "$expected:tokens")
    first=$("$compare" --print "$expected:split" | cut -d' ' -f1)
else
    tokens=$(seq -s ' ' 65 106) first=33
fi
count=$(echo "$tokens" | wc -w)
list=$(echo $tokens | tr ' ' ,)

logits() { # SPLIT THREADS OUT
    # shellcheck disable=SC2086 # words
    LD_LIBRARY_PATH= "qemu-$arch" -L "/usr/$arch-linux-gnu" -E "LD_LIBRARY_PATH=$out:/usr/$arch-linux-gnu/lib" \
        "$out/logits" "$out/model.weights" "$1" "$2" "$out/$3" $tokens
}

check() { # WHAT GOT EXPECTED LIMIT
    distance=$("$compare" "$2" "$3" "$4") || { echo "$type, $1: $distance, too far"; exit 1; }
    echo "$type, $1: $distance"
}

for type; do
    cache=f32 limit=1e-4
    case $type in
    bf16) cache=bf16 limit=1e-2 ;;
    f16) cache=f16 limit=2e-3 ;;
    esac
    stored="--weights-dtype $type --cache-dtype $cache --quiet"
    "$hadal" compile "$model" -o "$out/model" --target "$arch-linux-gnu" $stored
    "$hadal" compile "$model" -o "$out/here/model" --emit=weights $stored
    cmp "$out/model.weights" "$out/here/model.weights"
    "$cc" -O2 -Wall -Wextra -Werror -I"$out" "$here/logits.c" -o "$out/logits" -L"$out" -lmodel
    logits "$first" 1 split.npy
    logits "$count" 2 whole.npy
    want=$expected:logits
    if [ "$type" != f32 ] || [ ! -f "$expected" ]; then
        want=$out/want.npy
        "$hadal" run "$model" --interpret --tokens "$list" --split "$first" --logits "$want" $stored
    fi
    check "$first tokens and then one by one" "$out/split.npy" "$want" $limit
    check "one call, two threads" "$out/whole.npy" "$want" $limit
    [ "$type" != f32 ] || check "split against one call" "$out/split.npy" "$out/whole.npy" 1e-5
done
