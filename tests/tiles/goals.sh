#!/bin/sh
# The groups of bench/goals.py that need a matrix unit, by programs whose unit is emulated, small shapes and one round: what they
# run and read is there, so that the figures of a machine with the unit are not the first that meet a mistake.
#
#   goals.sh PYTHON GOALS FOLDER_OF_EMULATED_PROGRAMS WORK_FOLDER
#
# Exit code 77: no CPU with AVX-512 and its bf16.
set -eu
python=$1 goals=$2 programs=$3 work=$4
grep -q avx512_bf16 /proc/cpuinfo || exit 77
mkdir -p "$work"
# libraries that are linked from now on have the unit too
export CC="${CC:-cc} -Wl,-z,muldefs -Wl,-u,hrt_cpuid_here $HADAL_BUILD/lib/libhadal_amx_machine.a -lm"
"$python" -B "$goals" --bin "$programs" --quick --threads 1 --only matrix_unit --only matrix_unit_models --work "$work" \
    --json "$work/goals.json"
# a row of each kind
while read -r what; do
    grep -q "$what" "$work/goals.json" || { echo "no row says: $what" >&2; exit 1; }
done <<END
bf16: share of the unit
f32 weights: over multiply-add
f32 activations: over multiply-add
q8: share of the unit
by products of bytes: speed over that of bf16
q4: speed over q8's
attention, prefill 4096, bf16 cache, rounded
attention, prefill 4096, f32 cache, exact
experts of 4 rows, q8
prefill 512, q4: tokens/s over q8's
time of AttnRes over the standard residual's
AttnRes in row programs, of the whole
step of 8 sessions, q8, activations int8
END
