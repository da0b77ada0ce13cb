#!/bin/sh
# calls.sh HADAL HOST SPEC FOLDER: a generated library in processes that have been forked, that cannot make threads, or that are
# started with SIGCHLD ignored, and a compile in such a one.
set -eu
hadal=$1 host=$2 spec=$3 dir=$4
rm -rf "$dir" && mkdir -p "$dir"
"$hadal" init-weights "$spec" -o "$dir/w.safetensors"
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
try moved
