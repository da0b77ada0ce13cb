#!/bin/sh
# run.sh HADAL CHECK PRELOAD EXAMPLE FOLDER: a model with all kinds of steps, with 2 to 64 threads on the CPUs that there are, and one
# whose panels are dealt to them. The library counts 64 of them (many_cpus.c).
set -e
export OMP_WAIT_POLICY=passive # threads of the pool that have nothing to do do not spin
hadal=$1 check=$2 preload=$3 example=$4 folder=$5
rm -rf "$folder" && mkdir -p "$folder"
full() { [ "${HADAL_FULL:-}" = 1 ]; } # else types take turns with numbers of threads
for kind in f32 q8; do
    numbers="2 33"
    [ $kind = f32 ] || numbers="16 64"
    ! full || numbers="2 16 33 64"
    "$hadal" compile "$example/jargon.hadal" -w "$example" --weights-dtype $kind --target-cpu native -o "$folder/m" -q
    for threads in $numbers; do
        HADAL_TEST_CPUS=64 LD_PRELOAD=$preload "$check" "$folder/libm.so" m "$folder/m.weights" $threads
    done
done
wide=$(dirname "$0")/wide.hadal
"$hadal" init-weights --draw-all "$wide" -o "$folder/wide.safetensors" -q
for kind in f32 bf16 q8; do
    "$hadal" compile "$wide" -w "$folder/wide.safetensors" --weights-dtype $kind --target-cpu native -o "$folder/m" -q
    numbers="3 16"
    [ $kind = q8 ] || numbers=2
    ! full || numbers="2 3 16"
    for threads in $numbers; do
        HADAL_TEST_CPUS=64 LD_PRELOAD=$preload "$check" "$folder/libm.so" m "$folder/m.weights" $threads
    done
done
