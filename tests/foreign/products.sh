#!/bin/sh
# Products with bf16 weights and activations on aarch64, by dot products (one token) and by products of 2 x 4 and 4 x 2 (many), in an emulator.
#
#   products.sh HADAL TENSOR_COMPARE WORK_FOLDER
#
# Sizes: K even and odd, in one block of steps and in several, whole numbers of fours and not; outputs that fill panels and do not; every
# number of tokens of a tile, and more. x is exact in bf16 (product.hadal), so that the logits are those of the evaluator but for the order
# of sums and what additions lose, up to 2^-23 of each sum so far: 1e-5 of the largest logit, where one lost product of 600 would be 1e-2.
# The same library on a CPU without these instructions rounds nothing: the same limit.
# Exit code 77: the cross compiler or the emulator is not there.
set -eu
hadal=$1 compare=$2 out=$3/products arch=aarch64
cc=$arch-linux-gnu-gcc
for tool in "$cc" "qemu-$arch"; do
    command -v "$tool" >/dev/null || { echo "$tool is not there"; exit 77; }
done
here=$(dirname "$0")
rm -rf "$out"
mkdir -p "$out"

check() { # SPLIT CPU LEVEL; the tokens, their logits: $tokens, want.npy
    # shellcheck disable=SC2046 # words
    LD_LIBRARY_PATH= QEMU_CPU=$2 "qemu-$arch" -L "/usr/$arch-linux-gnu" -E "LD_LIBRARY_PATH=$out:/usr/$arch-linux-gnu/lib" \
        "$out/logits" "$out/model.weights" "$1" 1 "$out/got.npy" $(echo "$tokens" | tr , ' ') >"$out/level"
    [ "$(cat "$out/level")" = "$3" ] || { echo "level $(cat "$out/level") ran on $2, not $3"; exit 1; }
    distance=$("$compare" "$out/got.npy" "$out/want.npy" 1e-5) ||
        { echo "$size, $rows tokens, $1 in a call, $3: $distance, too far"; exit 1; }
}

sizes="4x48 6x63 37x28 601x44" # a whole number of fours, an even and two odd ones, one in several blocks
[ "${HADAL_FULL:-}" != 1 ] || sizes="1x16 2x30 $sizes 128x50 1030x16"
for size in $sizes; do
    k=${size%x*} n=${size#*x}
    defines="-D hidden=$k -D outputs=$n"
    # shellcheck disable=SC2086 # words
    "$hadal" init-weights --draw-all "$here/product.hadal" $defines -o "$out/random.safetensors" --quiet
    stored="--weights $out/random.safetensors --weights-dtype bf16 --quiet"
    # shellcheck disable=SC2086 # words
    "$hadal" compile "$here/product.hadal" $defines -o "$out/model" --target "$arch-linux-gnu" --activations int8,bf16 $stored
    "$cc" -O2 -Wall -Wextra -Werror -I"$out" "$here/logits.c" -o "$out/logits" -L"$out" -lmodel
    for rows in 2 3 4 5 7 64; do
        tokens=$(seq -s , 0 $((rows - 1)))
        # shellcheck disable=SC2086 # words
        "$hadal" run "$here/product.hadal" $defines --interpret --tokens "$tokens" --logits "$out/want.npy" $stored
        check "$rows" max neonbf16
    done
    check 64 cortex-a53 neon
    check 1 max neonbf16 # one by one
    if (export LEVEL=neonbf16 && check 64 cortex-a53 neonbf16) >"$out/refused" 2>&1; then echo "a level that the CPU lacks ran"; exit 1; fi
    grep -q "the CPU lacks dotprod bf16" "$out/refused" || { cat "$out/refused"; exit 1; }
    echo "$size: $distance"
done
