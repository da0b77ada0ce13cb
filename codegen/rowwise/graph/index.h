/* Affine index maps and shapes of a row program. All shapes here are shapes of one token's row:
 * without T, and without dims of size 1. */
#ifndef HCG_ROW_INDEX_H
#define HCG_ROW_INDEX_H

#include "codegen/program/program.h"

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Sizes, strides and offsets may depend on one number N that is not known at compile time: a + b N.
 * A type has at most one such dim, so that sizes which depend on N are never multiplied with each
 * other. If that should happen, the product is marked not_affine, and emission rejects it. */
typedef struct row_size {
    int64_t a, b;
    bool not_affine;
} row_size;

static inline row_size row_int(int64_t a) {
    return (row_size){.a = a};
}
static inline bool row_is_dynamic(row_size x) {
    return x.b != 0;
}
static inline bool row_size_is(row_size x, int64_t a) {
    return x.a == a && x.b == 0;
}
static inline bool row_size_equal(row_size x, row_size y) {
    return x.a == y.a && x.b == y.b;
}
/* For comparisons: a size that depends on N counts as larger than any number. */
static inline int64_t row_bound(row_size x) {
    return x.b ? (x.b > 0 ? INT64_C(1) << 60 : -(INT64_C(1) << 60)) : x.a;
}
bool row_size_less(row_size x, row_size y);
row_size row_size_add(row_size x, row_size y);
row_size row_size_scale(row_size x, int64_t by);
row_size row_size_mul(row_size x, row_size y);
/* Is x a multiple of y, whatever N is? */
bool row_size_divisible(row_size x, row_size y);

/* ---- maps ------------------------------------------------------------------------------------ */

/* Variables: 0 .. HIR_MAX_RANK - 1 run over dims, ROW_INNER over a reduction inside a loop. */
enum { ROW_INNER = HIR_MAX_RANK, ROW_VARS = HIR_MAX_RANK + 1 };

typedef struct row_index { /* constant + sum of by[v] * variable v */
    row_size constant, by[ROW_VARS];
} row_index;

typedef struct row_shape {
    uint32_t rank;
    row_size dim[HIR_MAX_RANK];
} row_shape;

row_index row_var(unsigned v);
row_index row_fixed(row_size c);
bool row_index_equal(const row_index *a, const row_index *b);
row_index row_scaled_sum(row_index a, row_size scale, const row_index *b); /* a + scale b */
row_index row_substitute(const row_index *f, const row_index *g);          /* f(g[0], g[1], ...) */
row_size row_elements(const row_shape *s);
row_size row_elements_without(const row_shape *s, uint32_t dim); /* per index of that dim */
bool row_shape_equal(const row_shape *a, const row_shape *b);
row_index row_major(const row_shape *s); /* element number of (v0, v1, ...) in row-major order */
/* The indices over `old` as affine functions of the indices over `new`, a reshape of it. False
 * where one of them would be a quotient or a remainder. */
bool row_split(const row_shape *old, const row_shape *new, row_index *out);
/* f, affine over the dims of `old`, as a function of the dims of `new`, a reshape of it; false
 * where that function is not affine. */
bool row_reshape(const row_index *f, const row_shape *old, const row_shape *new, row_index *out);

#endif
