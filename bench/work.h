/* What a compiled program must do, summed over its kernels: codegen/program/step_work.c counts
 * each. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "ir/ir.h"

typedef struct work {
    double flops;        /* of contractions and attention; 2 for a multiplication and an addition */
    double row_flops;    /* of row programs: one for each element of an elementwise op, and for each
                            that a reduction takes in, whatever the instruction takes */
    double matrix_bytes; /* what contractions read once a pass: their weights */
    double row_bytes;    /* values with T that row programs read and write */
    double contract_bytes; /* the same of contractions, and of attention but for the caches */
    uint32_t rows, contracts, sequences; /* kernels */
} work;

/* T tokens behind `past` others, of which the last `asked` are asked for; T at most one chunk. */
work count_work(const hir_module *m, int64_t T, int64_t past, int64_t asked);

#endif
