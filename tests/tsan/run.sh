#!/bin/sh
# The runtime under ThreadSanitizer.
#
#   run.sh HADAL SOURCE_FOLDER WORK_FOLDER
#
# 1 The runtime's unit tests: kernels in C, so that every access of a kernel is seen, with up to 17 threads in a
#   region. The sanitizer does not know OpenMP's own synchronisation, and needs not to: what orders the threads of a call
#   are atomics of the runtime (runtime/run.c: crew).
# 2 Exchanges between ranks that are threads, and the calls of a divided model.
# 3 Compiled models: sessions in threads of their own on one weights object, and gradients.
set -eu
hadal=$1 source=$2 out=$3
mkdir -p "$out"
tsan="${CC:-cc} -std=gnu17 -g -O1 -fsanitize=thread -fopenmp -D_GNU_SOURCE -I$source -I$source/include -I$out"
export TSAN_OPTIONS="halt_on_error=1 $(printf %s "${TSAN_OPTIONS:-}")"
# once for all of them
rm -rf "$out/runtime" "$out/comm"
mkdir "$out/runtime" "$out/comm"
(cd "$out/runtime" && $tsan -c "$source/runtime/"*.c "$source/support/quota.c") # as the archive of the build
(cd "$out/comm" && $tsan -c "$source"/comm/collective.c "$source"/comm/slow_link.c "$source"/comm/threads.c "$source/tests/comm/scenarios.c")
build() { # FOLDER/TEST
    $tsan -I"$source/tests/tsan" "$source/tests/unit/$1.c" "$out/runtime/"*.o "$out/comm/"*.o -o "$out/$(basename $1)" -lm -pthread
}
# scenarios of a transport wait for deadlines most of the time: the other programs run meanwhile
build comm/test_comm
"$out/test_comm" > "$out/test_comm.log" 2>&1 &
comm=$!
trap 'kill $comm 2> /dev/null || :' EXIT
for test in runtime/test_threads runtime/test_batch runtime/test_trainer runtime/test_trainer_ranks runtime/test_ranks runtime/test_ranks_batch runtime/test_ranks_lost runtime/test_ranks_turns; do
    build $test
    "$out/$(basename $test)"
done

"$hadal" compile "$source/examples/jargon/jargon.hadal" --weights "$source/examples/jargon/model.safetensors" \
    --march native --emit=obj,header,weights -o "$out/jargon"
$tsan "$source/examples/threads/sessions.c" "$out/jargon.o" "$out/runtime/"*.o -o "$out/sessions" -lm -pthread
"$out/sessions" "$out/jargon.weights" 8
"$hadal" compile "$source/tests/golden/attnres-block" --gradients --march native --emit=obj,header -o "$out/attnres" -q
$tsan "$source/tests/tsan/gradients.c" "$out/attnres.o" "$out/runtime/"*.o -o "$out/gradients" -lm -pthread
"$out/gradients"
wait $comm || { cat "$out/test_comm.log"; exit 1; }
