#!/bin/sh
# Sessions in several threads on one weights object, with the runtime under ThreadSanitizer.
#
#   tsan.sh HADAL SOURCE_FOLDER WORK_FOLDER
#
# Sessions run single-threaded here (set_threads 1), so that OpenMP's own synchronisation, which the
# sanitizer does not see, takes no part.
set -eu
hadal=$1 source=$2 out=$3
mkdir -p "$out"
"$hadal" compile "$source/examples/jargon/jargon.hadal" --weights "$source/examples/jargon/model.safetensors" \
    --emit=obj,header,weights -o "$out/jargon"
${CC:-cc} -std=gnu17 -g -O1 -fsanitize=thread -fopenmp -D_GNU_SOURCE -I"$source" -I"$out" "$source"/runtime/*.c \
    "$source/examples/threads/sessions.c" "$out/jargon.o" -o "$out/sessions" -pthread
"$out/sessions" "$out/jargon.weights" 8
