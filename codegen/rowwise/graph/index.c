/* Affine index maps. A view (reshape, slice, transpose, broadcast) of a value is a map from the
 * view's dims to the value's; maps compose, so a chain of views costs nothing at run time. */
#include "codegen/rowwise/graph/index.h"

bool row_size_less(row_size x, row_size y) {
    return x.b != y.b ? x.b < y.b : x.a < y.a;
}

row_size row_size_add(row_size x, row_size y) {
    return (row_size){x.a + y.a, x.b + y.b, x.not_affine || y.not_affine};
}

row_size row_size_scale(row_size x, int64_t by) {
    return (row_size){x.a * by, x.b * by, x.not_affine};
}

row_size row_size_mul(row_size x, row_size y) {
    row_size z = {x.a * y.a, x.a * y.b + x.b * y.a, x.not_affine || y.not_affine};
    z.not_affine |= x.b && y.b;
    return z;
}

bool row_size_divisible(row_size x, row_size y) {
    if (y.b == 0) return y.a != 0 && x.a % y.a == 0 && x.b % y.a == 0;
    return x.b % y.b == 0 && x.a == x.b / y.b * y.a;
}

row_index row_var(unsigned v) {
    row_index i = {0};
    i.by[v] = row_int(1);
    return i;
}

row_index row_fixed(row_size c) {
    return (row_index){.constant = c};
}

bool row_index_equal(const row_index *a, const row_index *b) {
    bool same = row_size_equal(a->constant, b->constant);
    for (unsigned v = 0; v < ROW_VARS; v++)
        same &= row_size_equal(a->by[v], b->by[v]);
    return same;
}

row_index row_scaled_sum(row_index a, row_size scale, const row_index *b) {
    a.constant = row_size_add(a.constant, row_size_mul(scale, b->constant));
    for (unsigned v = 0; v < ROW_VARS; v++)
        a.by[v] = row_size_add(a.by[v], row_size_mul(scale, b->by[v]));
    return a;
}

row_index row_substitute(const row_index *f, const row_index *g) {
    row_index sum = row_fixed(f->constant);
    for (unsigned v = 0; v < ROW_VARS; v++)
        if (!row_size_is(f->by[v], 0)) sum = row_scaled_sum(sum, f->by[v], &g[v]);
    return sum;
}

row_size row_elements(const row_shape *s) {
    return row_elements_without(s, s->rank);
}

row_size row_elements_without(const row_shape *s, uint32_t dim) {
    row_size n = row_int(1); /* fits: the type rules checked the product */
    for (uint32_t i = 0; i < s->rank; i++)
        if (i != dim) n = row_size_mul(n, s->dim[i]);
    return n;
}

bool row_shape_equal(const row_shape *a, const row_shape *b) {
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++)
        same = row_size_equal(a->dim[i], b->dim[i]);
    return same;
}

row_index row_major(const row_shape *s) {
    row_index at = {0};
    row_size stride = row_int(1);
    for (uint32_t i = s->rank; i-- > 0;) {
        at.by[i] = stride;
        stride = row_size_mul(stride, s->dim[i]);
    }
    return at;
}

/* ---- reshape --------------------------------------------------------------------------------- */

/* The dims of both shapes fall into groups of equal size, in order. One group:
 * dims [o0, o1) of `old` and [n0, n1) of `new`. Advances to the next; false at
 * the end. */
typedef struct group {
    uint32_t o0, o1, n0, n1;
} group;

static bool next_group(const row_shape *old, const row_shape *new, group *g) {
    g->o0 = g->o1;
    g->n0 = g->n1;
    if (g->o0 == old->rank || g->n0 == new->rank) return false;
    row_size a = old->dim[g->o1++], b = new->dim[g->n1++];
    while (!row_size_equal(a, b)) {
        if (row_size_less(a, b) && g->o1 < old->rank)
            a = row_size_mul(a, old->dim[g->o1++]);
        else if (row_size_less(b, a) && g->n1 < new->rank)
            b = row_size_mul(b, new->dim[g->n1++]);
        else
            break; /* unequal element counts: not a reshape */
    }
    return true;
}

/* Number of an element within a group, as a function of the dims of `new`. */
static row_index number_in_group(const row_shape *new, const group *g) {
    row_index at = {0};
    row_size stride = row_int(1);
    for (uint32_t i = g->n1; i-- > g->n0;) {
        at.by[i] = stride;
        stride = row_size_mul(stride, new->dim[i]);
    }
    return at;
}

bool row_split(const row_shape *old, const row_shape *new, row_index *out) {
    group g = {0};
    while (next_group(old, new, &g)) {
        if (g.o1 - g.o0 > 1) return false;
        out[g.o0] = number_in_group(new, &g);
    }
    return true;
}

bool row_reshape(const row_index *f, const row_shape *old, const row_shape *new, row_index *out) {
    group g = {0};
    *out = row_fixed(f->constant);
    while (next_group(old, new, &g)) {
        for (uint32_t i = g.o0; i + 1 < g.o1; i++)
            if (!row_size_equal(f->by[i], row_size_mul(f->by[i + 1], old->dim[i + 1])))
                return false;
        row_index number = number_in_group(new, &g);
        *out = row_scaled_sum(*out, f->by[g.o1 - 1], &number);
    }
    return true;
}
