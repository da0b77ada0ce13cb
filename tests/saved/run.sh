#!/bin/sh
# Sessions of one golden model, saved and restored (check.c); and a build of the same model with another type of caches,
# whose weights file is the same, does not take what the first has saved.
#
#   run.sh HADAL CASE WORK_FOLDER
set -eu
hadal=$1 case=$2 out=$3/$(basename "$2") here=$(dirname "$0")
# what is linked with a sanitized library must be sanitized too
build() {
    mkdir -p "$out/$1"
    "$hadal" compile "$case" --target-cpu native --cache-dtype "$1" -o "$out/$1/model"
    ${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -std=c11 -O1 -Wall -Wextra -Werror "$here/check.c" -I"$out/$1" \
        -L"$out/$1" -Wl,-rpath,"$out/$1" -lmodel -o "$out/$1/check"
}
build f32
build bf16
"$out/f32/check" "$out/f32/model.weights" save "$out/f32/saved"
"$out/bf16/check" "$out/bf16/model.weights" save "$out/bf16/saved"
cmp -i 4096 "$out/f32/model.weights" "$out/bf16/model.weights" # behind the header, which names the build
"$out/bf16/check" "$out/bf16/model.weights" refuse "$out/f32/saved"
