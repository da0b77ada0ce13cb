#!/bin/sh
# Options of attention through the whole compiler and the runtime: compiled code against the evaluator on the graph as
# written, 300 tokens, in one call on one thread, and on two threads in two calls and then token by token. Options take turns with the
# levels; with HADAL_FULL=1 all are compiled at all levels.
#
#   run.sh HADAL TENSOR_COMPARE SPEC WORK_FOLDER
#
# e = max |got - expected| / max |expected|: 1e-7 to 2e-6 measured (three layers in f32, sums of up to 300 terms); limit 2e-5.
set -eu
hadal=$1 compare=$2 spec=$3 work=$4
mkdir -p "$work"
tokens=$(awk 'BEGIN { for (i = 0; i < 300; i++) printf "%s%d", i ? "," : "", (i * 29 + i * i / 7) % 64 }')
levels=baseline
! grep -q avx2 /proc/cpuinfo || levels="avx2 $levels"
! grep -q avx512vl /proc/cpuinfo || levels="avx512 $levels"
number=0 out=$work/options library=$work/options-library/model
for options in \
    "" \
    "window=1" \
    "window=7 sink=1" \
    "window=128 sink=2 extent=20" \
    "window=257 extent=300 softcap=1.5" \
    "window=100 extent=1 n=7 m=33 rotary=6 sink=1 softcap=0.5" \
    "sink=2 heads=5 kv_heads=5 rotary=4 pairs=adjacent start=3" \
    "extent=64 heads=7 kv_heads=1 pairs=adjacent" \
    "grow=2" \
    "window=290 sink=1 rotary=20" \
    "carried=1 sink=2" \
    "carried=1 window=140 narrower=7 sink=1 heads=7 kv_heads=1 m=33" \
    "carried=1 heads=5 kv_heads=5 rotary=4"; do
    model="$spec -D window=0 -D extent=0 -D softcap=0.0 -D sink=0"
    for o in $options; do model="$model -D $o"; done
    # shellcheck disable=SC2086 # words
    {
        "$hadal" init-weights --draw-all $model -o "$out.safetensors" --quiet
        "$hadal" run $model -w "$out.safetensors" --tokens "$tokens" --logits "$out-expected.npy" --interpret
        number=$((number + 1))
        these=$levels
        [ "${HADAL_FULL:-}" = 1 ] || these=$(echo $levels $levels $levels | cut -d' ' -f $((number % 3 + 1)))
        for level in $these; do
            "$hadal" compile $model -w "$out.safetensors" --target-cpu $level -o "$library" -q
            for way in "--threads 1" "--threads 2 --split 131,159"; do
                "$hadal" run "$library" --tokens "$tokens" --logits "$out.npy" $way
                echo "$options, $level $way"
                "$compare" "$out.npy" "$out-expected.npy" 2e-5
            done
        done
    }
done
