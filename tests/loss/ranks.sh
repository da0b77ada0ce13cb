#!/bin/sh
# ranks.sh HADAL COMPARE OUT: losses of a model whose vocabulary does not divide, on ranks that are threads and on stages, against
# those of the undivided library. Of 1003 logits three ranks have 335, 335 and 333, and the last two of padding; of 70 and of 7, which are
# few, each makes its own, or all make all. Threads and chunks change no bit (ranks_compare.c).
set -eu
hadal=$1 compare=$2 out=$3 spec=$(dirname "$0")/heads.hadal
rm -rf "$out"
mkdir -p "$out"
losses() { # RANKS STAGES, options of the model
    ranks=$1 stages=$2
    shift 2
    common="$spec $* --weights $out/w.safetensors --march native --chunk 16 --loss -q"
    "$hadal" init-weights --draw-all "$spec" "$@" -o "$out/w.safetensors" -q
    "$hadal" compile $common -o "$out/whole/model"
    "$hadal" compile $common --ranks "$ranks" --divide-from "$ranks" --stages "$stages" -o "$out/many/model"
    library=libmodel.so
    [ "$stages" = 1 ] || library=libmodel_s%d.so
    "$compare" "$out/whole/libmodel.so" "$out/whole/model.weights" "$out/many/$library" "${ranks}x$stages" 37 1e-5 > "$out/said"
    rm -rf "$out/whole" "$out/many"
}
losses 3 1 -D vocab=1003 -D cap=7.5 -D bias=true
losses 4 1 -D vocab=70 -D tied=true -D scale=8.0
[ "${HADAL_FULL:-}" = 1 ] || exit 0
losses 2 1 -D vocab=7
losses 2 2 -D vocab=1003
