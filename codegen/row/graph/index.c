/* Affine index maps. A view (reshape, slice, transpose, broadcast) of a value is a map from the
 * view's dims to the value's; maps compose, so a chain of views costs nothing at run time. */
#include "codegen/row/graph/index.h"

row_index row_var(unsigned v) {
    row_index i = {0};
    i.by[v] = 1;
    return i;
}

row_index row_fixed(int64_t c) {
    return (row_index){.constant = c};
}

bool row_index_equal(const row_index *a, const row_index *b) {
    bool same = a->constant == b->constant;
    for (unsigned v = 0; v < ROW_VARS; v++)
        same &= a->by[v] == b->by[v];
    return same;
}

row_index row_scaled_sum(row_index a, int64_t scale, const row_index *b) {
    a.constant += scale * b->constant;
    for (unsigned v = 0; v < ROW_VARS; v++)
        a.by[v] += scale * b->by[v];
    return a;
}

row_index row_substitute(const row_index *f, const row_index *g) {
    row_index sum = row_fixed(f->constant);
    for (unsigned v = 0; v < ROW_VARS; v++)
        if (f->by[v]) sum = row_scaled_sum(sum, f->by[v], &g[v]);
    return sum;
}

int64_t row_elements(const row_shape *s) {
    int64_t n = 1; /* fits: the type rules checked the product */
    for (uint32_t i = 0; i < s->rank; i++)
        n *= s->dim[i];
    return n;
}

bool row_shape_equal(const row_shape *a, const row_shape *b) {
    bool same = a->rank == b->rank;
    for (uint32_t i = 0; same && i < a->rank; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

row_index row_major(const row_shape *s) {
    row_index at = {0};
    int64_t stride = 1;
    for (uint32_t i = s->rank; i-- > 0;) {
        at.by[i] = stride;
        stride *= s->dim[i];
    }
    return at;
}

row_shape row_squeeze(hir_type type, int *place) {
    row_shape s = {0};
    for (uint32_t i = 0; i < type.rank; i++) {
        bool kept = type.dim[i] > 1;
        if (place) place[i] = kept ? (int)s.rank : -1;
        if (kept) s.dim[s.rank++] = type.dim[i];
    }
    return s;
}

/* ---- reshape --------------------------------------------------------------------------------- */

/* The dims of both shapes fall into groups of equal size, in order. One group: dims [o0, o1) of
 * `old` and [n0, n1) of `new`. Advances to the next; false at the end. */
typedef struct group {
    uint32_t o0, o1, n0, n1;
} group;

static bool next_group(const row_shape *old, const row_shape *new, group *g) {
    g->o0 = g->o1;
    g->n0 = g->n1;
    if (g->o0 == old->rank || g->n0 == new->rank) return false;
    int64_t a = old->dim[g->o1++], b = new->dim[g->n1++];
    while (a != b) {
        if (a < b && g->o1 < old->rank)
            a *= old->dim[g->o1++];
        else if (b < a && g->n1 < new->rank)
            b *= new->dim[g->n1++];
        else
            break; /* unequal element counts: not a reshape */
    }
    return true;
}

/* Element number within a group, over the dims of `new`. */
static row_index number_in_group(const row_shape *new, const group *g) {
    row_index at = {0};
    int64_t stride = 1;
    for (uint32_t i = g->n1; i-- > g->n0;) {
        at.by[i] = stride;
        stride *= new->dim[i];
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
            if (f->by[i] != f->by[i + 1] * old->dim[i + 1]) return false;
        row_index number = number_in_group(new, &g);
        *out = row_scaled_sum(*out, f->by[g.o1 - 1], &number);
    }
    return true;
}
