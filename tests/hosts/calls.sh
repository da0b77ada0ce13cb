#!/bin/sh
# calls.sh HADAL HOST SPEC FOLDER OPENMP_HOST MANY_CPUS: a generated library in processes that have been forked, that cannot make threads, or that are
# started with SIGCHLD ignored, and a compile in such a one.
set -eu
hadal=$1 host=$2 spec=$3 dir=$4 openmp=$5 many=$6
rm -rf "$dir" && mkdir -p "$dir"
"$hadal" init-weights --draw-all "$spec" -o "$dir/w.safetensors"
# the parent ignores SIGCHLD, which is inherited
(trap '' CHLD; exec "$hadal" compile "$spec" -w "$dir/w.safetensors" --march baseline -q -o "$dir/m")
try() { # WHAT [NAME=VALUE..]
    what=$1; shift
    code=0
    env "$@" timeout 60 "$host" "$dir/libm.so" "$dir/m.weights" "$what" > "$dir/said" 2>&1 || code=$?
    [ $code = 0 ] && [ ! -s "$dir/said" ] || { echo "$what $*: exit code $code"; cat "$dir/said"; exit 1; }
}
try fork OMP_NUM_THREADS=2
try stack OMP_STACKSIZE=9000G
try stack OMP_STACKSIZE=4096000000k
try nproc OMP_NUM_THREADS=2
try thread OMP_NUM_THREADS=2
"$hadal" compile "$spec" -w "$dir/w.safetensors" --march native -q -o "$dir/native/m"
small=$dir dir=$dir/native
try thread OMP_NUM_THREADS=2 OMP_STACKSIZE=64k
dir=$small
try moved
try affinity
# processes with regions of their own, that believe to have eight CPUs
host=$openmp
for what in inside settings shrunk fewer; do
    try $what LD_PRELOAD="$many" HADAL_TEST_CPUS=8
done
try inside LD_PRELOAD="$many" HADAL_TEST_CPUS=8 OMP_THREAD_LIMIT=4
try settings LD_PRELOAD="$many" HADAL_TEST_CPUS=8 OMP_THREAD_LIMIT=3
for what in nested nested-limit; do
    try $what LD_PRELOAD="$many" HADAL_TEST_CPUS=8 OMP_MAX_ACTIVE_LEVELS=2
done
