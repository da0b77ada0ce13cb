#!/bin/sh
# Systems at a width where maps of few outputs are narrow, their norms wait behind them, and streams
# are updated in place, which golden models are too small for.
#
#   wide.sh HADAL TENSOR_COMPARE SPEC WORK_FOLDER
#
# e = max |got - expected| / max |expected|, compiled code against the evaluator on the graph as
# written, 21 tokens, whole and in two calls: 1e-7 to 6e-6 measured (sums of 768 to 3072 terms and
# four layers in f32); limit 5e-5.
set -eu
hadal=$1 compare=$2 spec=$3 work=$4
tokens=3,1,4,1,5,9,2,6,5,3,5,8,9,7,9,3,2,3,8,4,6
levels=baseline
! grep -q avx2 /proc/cpuinfo || levels="avx2 $levels"
! grep -q avx512vl /proc/cpuinfo || levels="avx512 $levels"
mkdir -p "$work"
number=0
for system in mhc mhc-lite muddformer hyper-dynamic ddl-4 laurel-lr attnres-full attnres; do
    model="$spec -D system=$system -D hidden=768 -D layers=4"
    # blocks of so many sublayers that results of phase 1 go in groups
    [ $system != attnres ] || model="$spec -D system=attnres -D hidden=768 -D layers=24 -D block=12"
    out=$work/wide-$system library=$work/wide-library/model
    "$hadal" init-weights --draw-all $model -o "$out.safetensors" --quiet
    case $system in
    mhc-lite)
        "$hadal" opt $model --passes=default --remarks -o "$out.hir" 2>&1 | grep -q "applied after the linear ops" ||
            { echo "$system: no norm is deferred"; exit 1; } ;;
    esac
    "$hadal" run $model -w "$out.safetensors" --tokens $tokens --logits "$out-expected.npy" --interpret
    number=$((number + 1)) # each system at two of three levels, and with HADAL_FULL=1 at all
    these=$levels
    [ "${HADAL_FULL:-}" = 1 ] || [ "$(echo $levels | wc -w)" = 1 ] || these=$(echo $levels $levels | cut -d' ' -f $((number % 3 + 1)),$((number % 3 + 2)))
    for level in $these; do
        "$hadal" compile $model -w "$out.safetensors" --target-cpu $level -o "$library" -q
        for way in "" "--split 20"; do
            "$hadal" run "$library" --tokens $tokens --logits "$out.npy" --threads 2 $way
            echo "$system, $level $way"
            "$compare" "$out.npy" "$out-expected.npy" 5e-5
        done
    done
    rm -rf "$out.safetensors" "$work/wide-library"
done
