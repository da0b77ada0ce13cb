/* The parts of a step of an optimizer, and the work of one of them. */
#ifndef HRT_STEP_PARTS_H
#define HRT_STEP_PARTS_H

#include <stdint.h>

enum {
#define P(id, name, reads, writes, flops, meaning) HRT_STEP_##id,
#include "runtime/step_parts.def"
#undef P
    HRT_STEP_PARTS
};

enum { HRT_MUON_ROUNDS = 5 };

/* FLOPs of the products of a matrix in muon.c: in each round a = x x^T and a^2, of which half is made,
 * and a x. */
static inline double hrt_muon_flops(uint64_t rows, uint64_t columns) {
    const double n = (double)(rows < columns ? rows : columns);
    const double k = (double)(rows < columns ? columns : rows);
    return HRT_MUON_ROUNDS * (3 * n * n * k + n * n * n);
}

#endif
