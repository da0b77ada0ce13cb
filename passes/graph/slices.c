/* Finds sums of slices (slices.h).
 *
 *     X[:, 0] w[:, 0] + X[:, 1] w[:, 1] + ..        is the sum over axis 1 of X w
 *
 * A slice has one element along its axis, which a reshape has dropped. The other factor may be made
 * for each summand by itself, such as a number for each stream: then these are stacked. Only sums
 * that depend on the token are looked at, as expressions of weights are derived when weights are
 * packed.
 */
#include "passes/graph/slices.h"

#include <string.h>

enum { MOST = 64 }; /* summands: more streams are not written one by one */

typedef struct one_slice { /* of: the value; op: the slice */
    hir_ref of;
    int64_t axis, start, n;
} one_slice;

static bool read_slice(const hir_module *m, hir_ref x, one_slice *out) {
    const hir_id op = pass_def_if(m, hir_through_reshapes(m, x), HIR_SLICE_OP);
    if (op == HIR_NONE) return false;
    const hir_op *o = hir_op_at(m, op);
    out->of = o->args[0];
    out->axis = hir_attr_int(o, HIR_A_AXIS, 0);
    out->start = hir_attr_int(o, HIR_A_START, 0);
    out->n = hir_ref_type(m, out->of).dim[out->axis];
    return hir_attr_int(o, HIR_A_LENGTH, 0) == 1 && out->n > 1 && out->n <= MOST;
}

static bool is_summand(const hir_module *m, hir_ref x) {
    one_slice s;
    if (read_slice(m, x, &s)) return true;
    const hir_id product = pass_def_if(m, x, HIR_MUL_OP);
    return product != HIR_NONE && (read_slice(m, pass_arg(m, product, 0), &s) ||
                                   read_slice(m, pass_arg(m, product, 1), &s));
}

/* ---- summands -------------------------------------------------------------------------------- */
typedef struct summands {
    hir_ref at[MOST];
    uint32_t n;
} summands;

/* Collects what a tree of adds adds up. False: something in it is no summand. */
static bool collect(const hir_module *m, hir_id add, hir_type t, summands *s) {
    hir_id pending[MOST];
    uint32_t n = 0;
    pending[n++] = add;
    while (n) {
        const hir_id op = pending[--n];
        for (uint32_t i = 0; i < 2; i++) {
            const hir_ref x = pass_arg(m, op, i);
            if (!hir_type_equal(hir_ref_type(m, x), t)) return false;
            const hir_id inner = pass_def_if(m, x, HIR_ADD_OP);
            if (inner == HIR_NONE ? s->n == MOST || !is_summand(m, x) : n == MOST) return false;
            if (inner == HIR_NONE)
                s->at[s->n++] = x;
            else
                pending[n++] = inner;
        }
    }
    return true;
}

/* Puts summands in the order of the slices of `of` among `x`, each slice once. `x` has for each
 * summand its candidates: itself, or the two factors; `other` gets what stands beside the slice. */
static bool in_order(const hir_module *m, hir_ref (*x)[2], uint32_t n, const one_slice *of,
                     hir_ref *slice, hir_ref *other) {
    bool seen[MOST] = {false};
    if (of->n != n) return false;
    for (uint32_t i = 0; i < n; i++) {
        one_slice s;
        uint32_t k = 0;
        while (k < 2 && !(read_slice(m, x[i][k], &s) && hir_ref_equal(s.of, of->of) &&
                          s.axis == of->axis && !seen[s.start]))
            k++;
        if (k == 2) return false;
        seen[s.start] = true;
        slice[s.start] = x[i][k];
        other[s.start] = x[i][1 - k];
    }
    return true;
}

/* ---- factors --------------------------------------------------------------------------------- */
static int64_t elements_from(hir_type t, int64_t axis) {
    int64_t n = 1;
    for (int64_t i = axis; i < t.rank; i++)
        n *= t.dim[i]; /* divides a row, whose size was checked; T comes first */
    return n;
}

static hir_type with_dim(hir_type t, int64_t axis, int64_t n) {
    hir_type y = pass_with_one(t, (uint32_t)axis);
    y.dim[axis] = n;
    return y;
}

/* Is `axis` of t, where the slices are to be put side by side, where they were in the value? */
static bool is_place(const hir_module *m, const one_slice *s, hir_type t, int64_t axis) {
    return axis >= hir_type_has_t(t) && axis <= t.rank && t.rank < HIR_MAX_RANK &&
           elements_from(t, axis) == elements_from(hir_ref_type(m, s->of), s->axis + 1);
}

static bool are_the_same(const hir_ref *x, uint32_t n) {
    bool same = true;
    for (uint32_t i = 1; i < n; i++)
        same &= hir_ref_equal(x[i], x[0]);
    return same;
}

/* Is x[i] slice number i of one value, for all i? */
static bool are_slices(const hir_module *m, const hir_ref *x, uint32_t n, one_slice *first) {
    one_slice s;
    if (!read_slice(m, x[0], first) || first->n != n) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!read_slice(m, x[i], &s) || !hir_ref_equal(s.of, first->of) || s.axis != first->axis ||
            s.start != i)
            return false;
    return true;
}

/* The factor of which summand i has x[i]. `axis`: that of the sum, in a product of this rank without
 * it. `rows`: x are rows where the slices are numbers, such as the sources of a mix: they are not
 * stacked. */
static bool find_factor(const hir_module *m, const hir_ref *x, uint32_t n, bool rows, uint32_t rank,
                        uint32_t axis, slice_factor *out) {
    const hir_type t = hir_ref_type(m, x[0]);
    const int64_t at = (int64_t)axis - rank + t.rank;
    one_slice first;
    for (uint32_t i = 1; i < n; i++)
        if (!hir_type_equal(hir_ref_type(m, x[i]), t)) return false;
    *out = (slice_factor){.whole = hir_no_ref(), .type = t, .part_axis = -1};
    if (t.rank == HIR_MAX_RANK) return false;
    if (are_the_same(x, n)) {
        out->whole = x[0];
        if (at > 0) out->type = pass_with_one(t, (uint32_t)at);
        return at > 0 || !hir_type_has_t(t);
    }
    if (are_slices(m, x, n, &first) && is_place(m, &first, t, at)) {
        out->whole = first.of;
        out->type = with_dim(t, at, n);
        return true;
    }
    out->part_axis = at;
    return at >= hir_type_has_t(t) && !rows;
}

static bool find_products(const hir_module *m, hd_arena *a, hir_type t, const one_slice *of,
                          const hir_ref *slice, const hir_ref *other, slice_sum *out) {
    const hir_type one = hir_ref_type(m, slice[0]), x = hir_ref_type(m, other[0]);
    const bool rows = hir_type_has_t(x) && pass_elements(x) >= pass_elements(one);
    out->n_factors = 2;
    for (uint32_t axis = 1; axis <= t.rank && t.rank < HIR_MAX_RANK; axis++) { /* T comes first */
        out->axis = axis;
        if (!is_place(m, of, one, (int64_t)axis - t.rank + one.rank) ||
            !find_factor(m, slice, out->n, false, t.rank, axis, &out->factor[0]) ||
            !find_factor(m, other, out->n, rows, t.rank, axis, &out->factor[1]))
            continue;
        out->factor[1].parts = hd_new_array(a, hir_ref, out->n);
        memcpy(out->factor[1].parts, other, out->n * sizeof *other);
        return true;
    }
    return false;
}

/* ---- the sum --------------------------------------------------------------------------------- */
static bool find_plain(const hir_module *m, const summands *s, slice_sum *out) {
    hir_ref x[MOST][2], slice[MOST], other[MOST];
    one_slice first;
    for (uint32_t i = 0; i < s->n; i++) {
        x[i][0] = s->at[i];
        x[i][1] = hir_no_ref();
    }
    if (!read_slice(m, s->at[0], &first) || !in_order(m, x, s->n, &first, slice, other))
        return false;
    out->axis = (uint32_t)first.axis;
    out->n_factors = 1;
    out->factor[0] =
        (slice_factor){.whole = first.of, .type = hir_ref_type(m, first.of), .part_axis = -1};
    return true;
}

bool pass_find_slice_sum(const hir_module *m, hd_arena *a, hir_id add, slice_sum *out) {
    const hir_type t = pass_result_type(m, add);
    summands s = {.n = 0};
    if (!hir_type_has_t(t) || !collect(m, add, t, &s) || s.n == 0) return false;
    *out = (slice_sum){.n = s.n};
    if (find_plain(m, &s, out)) return true;
    hir_ref x[MOST][2], slice[MOST], other[MOST];
    for (uint32_t i = 0; i < s.n; i++) {
        const hir_id product = pass_def_if(m, s.at[i], HIR_MUL_OP);
        if (product == HIR_NONE) return false;
        x[i][0] = pass_arg(m, product, 0);
        x[i][1] = pass_arg(m, product, 1);
    }
    for (uint32_t k = 0; k < 2; k++) {
        one_slice first;
        if (read_slice(m, x[0][k], &first) && in_order(m, x, s.n, &first, slice, other) &&
            find_products(m, a, t, &first, slice, other, out))
            return true;
    }
    return false;
}
