#!/bin/sh
# A golden case as a library with all CPU levels, its prompt cut into calls and in batches (cuts.c).
#
#   cuts.sh HADAL TENSOR_COMPARE CASE_FOLDER WORK_FOLDER
set -eu
hadal=$1 compare=$2 case=$3 here=$(dirname "$0")
out=$4/$(basename "$case")-cuts
mkdir -p "$out"
for what in tokens logits; do
    "$compare" --print "$case/expected.safetensors:$what" > "$out/$what.txt"
done
"$hadal" compile "$case" -o "$out/model" -q
# what is linked with a sanitized library must be sanitized too
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -std=c11 -O1 -Wall -Wextra -Werror "$here/cuts.c" -I"$out" -L"$out" \
    -Wl,-rpath,"$out" -lmodel -lm -o "$out/cuts"
"$out/cuts" "$out/model.weights" "$out/tokens.txt" "$out/logits.txt"
