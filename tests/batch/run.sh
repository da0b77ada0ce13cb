#!/bin/sh
# Batched decoding of one model against its sessions alone, and a prompt cut into calls (check.c).
#
#   run.sh HADAL CASE WORK_FOLDER [LEVEL]
#
# CASE: a folder with weights (the golden ones), or a spec, which gets random weights
# LEVEL: of the CPU; else that of this machine. Exit code 77: this machine cannot run it
set -eu
hadal=$1 case=$2 level=${4:-native} out=$3/$(basename "$2")-${4:-native} here=$(dirname "$0") cc=${CC:-cc}
mkdir -p "$out"
[ "$level" = native ] || . "$here/../tools/level.sh"
weights=
case $case in
    *.hadal)
        weights="--weights $out/random.safetensors"
        "$hadal" init-weights --draw-all "$case" -o "$out/random.safetensors"
        ;;
esac
"$hadal" compile "$case" $weights --target-cpu "$level" -o "$out/model"
# what is linked with a sanitized library must be sanitized too
$cc ${SANITIZE:+-fsanitize=$SANITIZE} -std=c11 -O1 -Wall -Wextra -Werror "$here/check.c" -I"$out" -L"$out" \
    -Wl,-rpath,"$out" -lmodel -lm -o "$out/check"
"$out/check" "$out/model.weights"
