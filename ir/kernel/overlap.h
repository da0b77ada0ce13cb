/* Which kernels may run tile by tile while the collectives between them are under way.
 *
 * Between two ops that read other tokens of the sequence, a row of what kernels compute depends on
 * the same row of what they read. So the rows of a chunk can be cut into tiles: while the
 * collective of one tile is under way, the kernel before it computes the next tile, or the kernel
 * after it works on the previous one. The runtime does that (runtime/overlap.c); plan-memory gives
 * disjoint places to what is then in use at the same time. */
#ifndef HIR_OVERLAP_H
#define HIR_OVERLAP_H

#include "ir/ir.h"

/* Kernels by number, in the order of the text without outputs. A part consists of the kernels from
 * its number up to the next part's, and may be empty. */
typedef struct hir_overlap {
    uint32_t front;   /* makes partial sums of all rows: one kernel or none */
    uint32_t scatter; /* comm.reduce_scatter of them: one or none */
    uint32_t middle;  /* works on the rows of one rank */
    uint32_t gather;  /* comm.all_gather of rows that the middle computes: one or none */
    uint32_t back;    /* works on all rows */
    uint32_t end;
} hir_overlap;

typedef struct hir_overlaps {
    HD_VEC(hir_overlap) list; /* in order; no two share a kernel */
} hir_overlaps;

/* Requires kernel IR with names, splits and rows (the schedule pass). */
hir_overlaps hir_find_overlaps(hd_arena *a, const hir_module *m);

#endif
