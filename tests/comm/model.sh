#!/bin/sh
# model.sh HADAL MPIRUN FLAVOUR PROGRAM SPEC OUT: a compiled model with MPI (comm/model.c). Batches of sessions, on 2 ranks
# and on 2 stages; a pipeline of 3 stages of 2 runs, 8 chunks in a call, in which a process is killed;
# and two ranks of different builds.
set -eu
hadal=$1 mpirun=$2 flavour=$3 program=$4 spec=$5 out=$6
here=$(dirname "$0")
rm -rf "$out"
mkdir -p "$out"
compile() { # NAME, layers, options
    name=$1 layers=$2
    shift 2
    "$hadal" init-weights --draw-all "$spec" -D layers="$layers" -o "$out/w.safetensors"
    "$hadal" compile "$spec" -D layers="$layers" --weights "$out/w.safetensors" --march native "$@" -o "$out/$name"
}
scenario() { # LIBRARY, ranks of a stage, ranks, scenario
    MODEL=$out/$1 EACH=$2 "$here/run.sh" "$mpirun" "$flavour" "$program" "$out" "$3" "$4"
}
compile two 4 --ranks 2 --divide-from 2
scenario libtwo.so 2 2 batch
compile stages 4 --stages 2 --virtual-stages 2 --chunk 8
scenario libstages_s%d.so 1 2 batch
compile line 6 --stages 3 --virtual-stages 2 --chunk 8
scenario libline_s%d.so 1 3 kill
compile build_s0 4 --ranks 2
compile build_s1 4 --ranks 2 --chunk 64
scenario libbuild_s%d.so 1 2 builds
rm -rf "$out"
