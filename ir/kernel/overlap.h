/* Which kernels may go tile by tile beside the exchanges between them.
 *
 * Between two ops that look along the sequence, a row of what kernels make depends on the same row
 * of what they read. So the rows of a chunk can be cut into tiles: while one tile is exchanged, the
 * kernel in front of the exchange makes the next one, or the kernel behind it works on the one
 * before. The runtime does that (runtime/overlap.c); plan-memory keeps apart what it then has in
 * use at once. */
#ifndef HIR_OVERLAP_H
#define HIR_OVERLAP_H

#include "ir/ir.h"

/* Kernels by number, in the order of the text without outputs: those of each part are [its number,
 * the next part's number), and a part may have none. */
typedef struct hir_overlap {
    uint32_t front;   /* makes partial sums of all rows: one kernel or none */
    uint32_t scatter; /* comm.reduce_scatter of them: one or none */
    uint32_t middle;  /* of the rows of a rank */
    uint32_t gather;  /* comm.all_gather of rows that the middle makes: one or none */
    uint32_t back;    /* of all rows */
    uint32_t end;
} hir_overlap;

typedef struct hir_overlaps {
    HD_VEC(hir_overlap) list; /* in order; none has a kernel of another */
} hir_overlaps;

/* Of a module of kernel IR with names, splits and rows (the schedule pass). */
hir_overlaps hir_find_overlaps(hd_arena *a, const hir_module *m);

#endif
