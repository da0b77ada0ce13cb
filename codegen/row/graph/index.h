/* Affine index maps and shapes of a row program. All shapes here are shapes of one token's row:
 * without T, and without dims of size 1. */
#ifndef HCG_ROW_INDEX_H
#define HCG_ROW_INDEX_H

#include "ir/ir.h"

/* Variables: 0 .. HIR_MAX_RANK-1 run over dims, ROW_INNER over a reduction inside a loop. */
enum { ROW_INNER = HIR_MAX_RANK, ROW_VARS = HIR_MAX_RANK + 1 };

typedef struct row_index { /* constant + sum of by[v] * variable v */
    int64_t constant, by[ROW_VARS];
} row_index;

typedef struct row_shape {
    uint32_t rank;
    int64_t dim[HIR_MAX_RANK];
} row_shape;

row_index row_var(unsigned v);
row_index row_fixed(int64_t c);
bool row_index_equal(const row_index *a, const row_index *b);
row_index row_scaled_sum(row_index a, int64_t scale, const row_index *b); /* a + scale b */
row_index row_substitute(const row_index *f, const row_index *g);         /* f(g[0], g[1], ...) */
int64_t row_elements(const row_shape *s);
bool row_shape_equal(const row_shape *a, const row_shape *b);
row_index row_major(const row_shape *s); /* element number of (v0, v1, ...) */
/* `old` dims as functions of the dims `new` of a reshape. False where one dim of `old` would be a
 * quotient or remainder. */
bool row_split(const row_shape *old, const row_shape *new, row_index *out);
/* f, affine over the dims `old`, as a function of the dims `new` of a reshape; false when it is not
 * affine there. */
bool row_reshape(const row_index *f, const row_shape *old, const row_shape *new, row_index *out);

/* Row shape of a type; place[i] is the row dim of type dim i, or -1 (T, or size 1). */
row_shape row_squeeze(hir_type type, int *place);

#endif
