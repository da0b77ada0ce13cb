#!/bin/sh
# Batched decoding of one model against its sessions alone, and a prompt cut into calls (check.c).
#
#   run.sh HADAL CASE WORK_FOLDER
#
# CASE: a folder with weights (the golden ones), or a spec, which gets random weights
set -eu
hadal=$1 case=$2 out=$3/$(basename "$2") here=$(dirname "$0")
mkdir -p "$out"
weights=
case $case in
    *.hadal)
        weights="--weights $out/random.safetensors"
        "$hadal" init-weights "$case" -o "$out/random.safetensors"
        ;;
esac
"$hadal" compile "$case" $weights --target-cpu native -o "$out/model"
# what is linked with a sanitized library must be sanitized too
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -std=c11 -O1 -Wall -Wextra -Werror "$here/check.c" -I"$out" -L"$out" \
    -Wl,-rpath,"$out" -lmodel -lm -o "$out/check"
"$out/check" "$out/model.weights"
