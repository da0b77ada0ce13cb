#!/bin/sh
# One model compiled for another architecture, linked by its cross compiler, and run in an emulator.
#
#   run.sh HADAL TENSOR_COMPARE ARCH MODEL_FOLDER WORK_FOLDER TYPE...
#
# TYPE: of the weights; one that begins with + is done with HADAL_FULL=1 alone. bf16 and f16 also of caches. f32 is held against the expected logits of a golden case, others (and models without
# expected ones) against the evaluator with the same storage. Tolerances, e = max |got - expected| / max |expected|, as in golden/run.sh and
# weights.sh, where the reasons stand: 1e-4; with caches of bf16 1e-2, of f16 2e-3; split against one call 1e-5 for f32.
# q8, q4, mxfp4 and nvfp4: with activations in f32 1e-4; rounded to bytes, where the CPU has dot products of them, 0.6 for golden cases of random
# weights and 0.05 for a trained model (0.011 was measured), whose text moves far less. The same library on a CPU without: 1e-4 again.
# Weights are packed to the same bytes whatever the architecture.
# Exit code 77: the cross compiler or the emulator is not there.
set -eu
hadal=$1 compare=$2 arch=$3 model=$4 out=$5/$(basename "$4")-$3
shift 5
cc=$arch-linux-gnu-gcc
for tool in "$cc" "qemu-$arch"; do
    command -v "$tool" >/dev/null || { echo "$tool is not there"; exit 77; }
done
here=$(dirname "$0") expected=$model/expected.safetensors rounding=0.05
rm -rf "$out"
mkdir -p "$out/here"
if [ -f "$expected" ]; then
    rounding=0.6
    tokens=$("$compare" --print "$expected:tokens")
    first=$("$compare" --print "$expected:split" | cut -d' ' -f1)
else
    tokens=$(seq -s ' ' 65 106) first=33
fi
count=$(echo "$tokens" | wc -w)
list=$(echo $tokens | tr ' ' ,)

logits() { # SPLIT THREADS OUT; QEMU_CPU: the CPU
    # shellcheck disable=SC2086 # words
    LD_LIBRARY_PATH= "qemu-$arch" -L "/usr/$arch-linux-gnu" -E "LD_LIBRARY_PATH=$out:/usr/$arch-linux-gnu/lib" \
        "$out/logits" "$out/model.weights" "$1" "$2" "$out/$3" $tokens >"$out/level"
}

check() { # WHAT GOT EXPECTED LIMIT
    distance=$("$compare" "$2" "$3" "$4") || { echo "$type, $1: $distance, too far"; exit 1; }
    echo "$type, $1: $distance"
}

# Activations rounded to bytes, by a CPU that has dot products of them; without them nothing is rounded.
bytes() {
    "$hadal" compile "$model" -o "$out/model" --target "$arch-linux-gnu" --weights-dtype "$type" --quiet
    logits "$first" 1 split.npy
    logits "$count" 2 whole.npy
    "$hadal" run "$model" --tokens "$list" --split "$first" --logits "$out/x86.npy" --weights-dtype "$type" --quiet
    check "bytes, $first tokens and then one by one" "$out/split.npy" "$want" $rounding
    check "bytes, one call" "$out/whole.npy" "$want" $rounding
    check "bytes, split against this machine's" "$out/split.npy" "$out/x86.npy" $rounding
    QEMU_CPU=cortex-a53 logits "$count" 1 plain.npy
    check "a CPU without them" "$out/plain.npy" "$want" 1e-4
}

# Activations rounded to bf16, by a CPU that has products of it: 0.15, as on x86 (weights.sh). Without them nothing is rounded.
halves() {
    rounded="--weights-dtype bf16 --activations int8,bf16 --quiet"
    # shellcheck disable=SC2086 # words
    "$hadal" compile "$model" -o "$out/model" --target "$arch-linux-gnu" $rounded
    "$hadal" run "$model" --interpret --tokens "$list" --split "$first" --logits "$out/exact.npy" --weights-dtype bf16 --quiet
    logits "$first" 1 split.npy
    logits "$count" 2 whole.npy
    check "rounded, $first tokens and then one by one" "$out/split.npy" "$out/exact.npy" 0.15
    check "rounded, one call" "$out/whole.npy" "$out/exact.npy" 0.15
    [ "$(cat "$out/level")" = neonbf16 ] || { echo "bf16: level $(cat "$out/level") ran"; exit 1; }
    QEMU_CPU=cortex-a53 logits "$count" 1 plain.npy
    check "a CPU without them" "$out/plain.npy" "$out/exact.npy" 1e-4
}

for type; do
    case $type in +*)
        [ "${HADAL_FULL:-}" = 1 ] || continue
        type=${type#+} ;;
    esac
    cache=f32 limit=1e-4 exact=
    case $type in
    q8 | q4 | mxfp4 | nvfp4) exact="--activations f32" ;;
    bf16) cache=bf16 limit=1e-2 ;;
    f16) cache=f16 limit=2e-3 ;;
    esac
    stored="--weights-dtype $type --cache-dtype $cache --quiet"
    "$hadal" compile "$model" -o "$out/model" --target "$arch-linux-gnu" $stored $exact
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
    case $type in
    q8 | q4 | mxfp4 | nvfp4) bytes ;;
    bf16) halves ;;
    esac
done
