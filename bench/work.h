/* The work of a compiled program, summed over its kernels; codegen/program/step_work.c counts each
 * of them. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "ir/ir.h"

typedef struct work {
    double flops; /* of contractions and attention; a multiply-add counts as 2 */
    /* of row programs: one for each element of an elementwise op, and one for each element that a
     * reduction reads, whatever the instruction takes */
    double row_flops;
    double matrix_bytes;   /* what contractions read once per pass: their weights */
    double row_bytes;      /* values with dimension T that row programs read and write */
    double contract_bytes; /* the same for contractions, and for attention except its caches */
    uint32_t rows, contracts, sequences; /* number of kernels of each kind */
} work;

/* Counts the work of T tokens with `past` before them, of which the last `asked` need logits; T is
 * at most one chunk. */
work count_work(const hir_module *m, int64_t T, int64_t past, int64_t asked);

#endif
