#!/bin/sh
# Which level a library runs at on a machine whose matrix unit is there, refused by the system, or not saved by it, and what it
# says of it. The unit and the system are made up (tests/tools/amx_machine.c), the instructions emulated.
#
#   run.sh HADAL SPEC WORK_FOLDER
#
# Exit code 77: no CPU with AVX-512 and its bf16.
set -eu
hadal=$1 spec=$2 out=$3 here=$(dirname "$0")
grep -q avx512_bf16 /proc/cpuinfo || exit 77
mkdir -p "$out"
"$hadal" init-weights --draw-all "$spec" -o "$out/random.safetensors"
CC="${CC:-cc} -Wl,-z,muldefs -Wl,-u,hrt_cpuid_here $HADAL_BUILD/lib/libhadal_amx_machine.a -lm" \
    "$hadal" compile "$spec" --weights "$out/random.safetensors" --weights-dtype bf16 --activations int8,bf16 -o "$out/model"
# what is linked with a sanitized library must be sanitized too
${CC:-cc} ${SANITIZE:+-fsanitize=$SANITIZE} -std=c11 -O1 -Wall -Wextra -Werror "$here/check.c" -I"$out" -L"$out" \
    -Wl,-rpath,"$out" -lmodel -lm -o "$out/check"
for unit in granted refused unsaved; do
    HADAL_TEST_UNIT=$unit "$out/check" "$out/model.weights" $unit
done
