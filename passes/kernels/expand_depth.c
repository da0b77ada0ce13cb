/* Attention over depth as row operations.
 *
 * A few sources are unrolled, so that code generation can fuse their dot products into one loop
 * over the channels, which reads each query once for all of them, and their weighted sum into
 * another, which needs no intermediate. More are stacked: a loop over sources is compact however
 * many there are, and one function serves any number of them (codegen/program/row_family.h). A mix
 * of more than a PAIR of sources whose weights are the same for all tokens is stacked too: it has
 * no dot products to fuse.
 *
 *     scores   [T, n, S(, H)]: s_i = sum_c x_i[c] q_s[c], times scale and inverse RMS, plus bias
 *     mix      sum_i w_i x_i
 *     merge    partial + sigmoid(score - lse) (live - partial)
 */
#include "passes/depth/depth.h"

enum { PAIR = 2 };

typedef struct maker {
    hir_builder *b;
    hir_module *m;
    hd_arena *scratch;
    hir_id op;
    uint32_t first, n; /* operands that are sources */
    bool in_loops;     /* loop over stacked sources; false: unrolled */
    int64_t d, heads;
} maker;

static hir_type type_of(uint32_t rank, const int64_t *dims) {
    return hir_make_type(HIR_F32, rank, dims);
}

static hir_ref source(const maker *k, uint32_t i) {
    return pass_arg(k->m, k->op, k->first + i);
}

/* Weight i, shaped to broadcast over the channels: [T, 1], [T, H, 1], without T [1] or [H, 1]. */
static hir_ref weight(maker *k, hir_ref w, uint32_t i) {
    uint32_t has_t = hir_type_has_t(hir_ref_type(k->m, w));
    w = depth_element(k->b, w, has_t, i);
    if (!depth_is_given(w)) return w;
    hir_type t = hir_ref_type(k->m, w);
    return pass_reshape(k->b, w, pass_with_one(t, t.rank));
}

/* The sources stacked: [T, n, d] */
static hir_ref stacked(maker *k) {
    hir_ref *x = hd_new_array(k->scratch, hir_ref, k->n);
    for (uint32_t i = 0; i < k->n; i++)
        x[i] = source(k, i);
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    return hir_emit(k->b, HIR_STACK_OP, x, k->n, &axis, 1);
}

/* ---- scores -------------------------------------------------------------------------------- */
typedef struct queries {
    hir_ref q;     /* [S, d], [T, d] or [d]; with heads the channels are two dims */
    int64_t n;     /* S */
    bool one_each; /* a query for each token */
} queries;

static queries get_queries(maker *k) {
    hir_ref q = pass_arg(k->m, k->op, 0);
    hir_type t = hir_ref_type(k->m, q);
    queries y = {.one_each = hir_type_has_t(t)};
    y.n = y.one_each ? 1 : t.dim[0];
    int64_t group = k->d / k->heads, dims[] = {t.dim[0], k->heads, group};
    uint32_t skip = !y.one_each && y.n == 1; /* one query: a vector */
    if (k->heads == 1) {
        dims[1] = k->d;
        y.q = pass_reshape(k->b, q, type_of(2 - skip, dims + skip));
    } else
        y.q = pass_reshape(k->b, q, type_of(3 - skip, dims + skip));
    return y;
}

/* x [T(, n), d] against all queries: [T(, n)(, S)(, H)] */
static hir_ref dots(maker *k, hir_ref x, const queries *q, bool many_sources) {
    int64_t dims[HIR_MAX_RANK] = {hir_ref_type(k->m, x).dim[0]};
    uint32_t rank = 1;
    hir_ref table = q->q;
    if (many_sources) dims[rank++] = k->n;
    if (q->n > 1) dims[rank++] = 1;
    if (k->heads > 1) dims[rank++] = k->heads;
    dims[rank++] = k->d / k->heads;
    if (q->one_each && many_sources) { /* [T, 1, ..] */
        hir_type t = pass_with_one(hir_ref_type(k->m, table), 1);
        table = pass_reshape(k->b, table, t);
    }
    hir_ref product =
        hir_emit2(k->b, HIR_MUL_OP, pass_reshape(k->b, x, type_of(rank, dims)), table);
    return depth_is_given(product) ? pass_reduce(k->b, HIR_REDUCE_SUM_OP, product, rank - 1)
                                   : product;
}

/* Source i, times its inverse RMS if given: [T, d] */
static hir_ref one_key(maker *k, uint32_t i, hir_ref inverse) {
    hir_ref x = source(k, i);
    if (!depth_is_given(inverse)) return x;
    hir_ref r = weight(k, inverse, i);
    return depth_is_given(r) ? hir_emit2(k->b, HIR_MUL_OP, x, r) : r;
}

/* The same for all sources: [T, n, d] */
static hir_ref all_keys(maker *k, hir_ref inverse) {
    hir_ref x = stacked(k);
    if (!depth_is_given(x) || !depth_is_given(inverse)) return x;
    hir_type t = hir_ref_type(k->m, inverse);
    return hir_emit2(k->b, HIR_MUL_OP, x, pass_reshape(k->b, inverse, pass_with_one(t, t.rank)));
}

/* [T, n, S(, H)] without scale and bias, and with the norm only if `inverse` is given */
static hir_ref products(maker *k, const queries *q, hir_ref inverse) {
    hir_type y = pass_result_type(k->m, k->op);
    if (k->in_loops || k->n == 1) {
        hir_ref x = k->n == 1 ? one_key(k, 0, inverse) : all_keys(k, inverse);
        hir_ref s = depth_is_given(x) ? dots(k, x, q, k->n > 1) : x;
        return depth_is_given(s) ? pass_reshape(k->b, s, y) : s;
    }
    hir_ref s[DEPTH_FEW];
    hir_type one = y;
    one.dim[1] = 1;
    for (uint32_t i = 0; i < k->n; i++) {
        hir_ref x = one_key(k, i, inverse);
        s[i] = depth_is_given(x) ? dots(k, x, q, false) : x;
        if (!depth_is_given(s[i])) return s[i];
        s[i] = pass_reshape(k->b, s[i], one);
    }
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    return hir_emit(k->b, HIR_CONCAT_OP, s, k->n, &axis, 1);
}

/* [T, n] or [n, S], reshaped to broadcast over the other dims of the scores */
static hir_ref aligned(maker *k, hir_ref x, bool has_t) {
    hir_type y = pass_result_type(k->m, k->op), t = hir_ref_type(k->m, x);
    int64_t dims[] = {y.dim[0], t.dim[has_t], has_t ? 1 : t.dim[1], 1};
    uint32_t skip = !has_t;
    return pass_reshape(k->b, x, type_of(y.rank - skip, dims + skip));
}

/* A query that is the same for all tokens is of ordinary size: the inverse RMS is multiplied with
 * the dot product, one multiplication per score. A query computed from a source is as large as that
 * source, so that x . q may overflow where the normed x times q does not. */
static hir_ref scores(maker *k) {
    hir_ref bias = pass_arg(k->m, k->op, 1), inverse = pass_arg(k->m, k->op, 2);
    double scale = hir_attr_float(hir_op_at(k->m, k->op), HIR_A_SCALE, 1);
    queries q = get_queries(k);
    hir_ref first = q.one_each ? inverse : hir_no_ref();
    hir_ref y = depth_is_given(q.q) ? products(k, &q, first) : q.q;
    if (depth_is_given(y) && depth_is_given(inverse) && !q.one_each)
        y = hir_emit2(k->b, HIR_MUL_OP, y, aligned(k, inverse, true));
    if (depth_is_given(y) && scale != 1)
        y = hir_emit2(k->b, HIR_MUL_OP, y, hir_emit_const(k->b, scale));
    if (depth_is_given(y) && depth_is_given(bias))
        y = hir_emit2(k->b, HIR_ADD_OP, y, aligned(k, bias, false));
    return y;
}

/* ---- mix ----------------------------------------------------------------------------------- */
/* [T, d], or its channels by head */
static hir_type by_head(const maker *k) {
    const int64_t rows = pass_result_type(k->m, k->op).dim[0];
    int64_t dims[] = {rows, k->heads, k->d / k->heads}, row[] = {rows, k->d};
    return k->heads > 1 ? type_of(3, dims) : type_of(2, row);
}

static hir_ref mix_few(maker *k, hir_ref w) {
    hir_ref sum = hir_no_ref();
    for (uint32_t i = 0; i < k->n; i++) {
        hir_ref wi = weight(k, w, i);
        if (!depth_is_given(wi)) return wi;
        hir_ref x = pass_reshape(k->b, source(k, i), by_head(k));
        hir_ref y = hir_emit2(k->b, HIR_MUL_OP, x, wi);
        sum = i == 0 ? y : hir_emit2(k->b, HIR_ADD_OP, sum, y);
        if (!depth_is_given(sum)) return sum;
    }
    return sum;
}

static hir_ref mix_many(maker *k, hir_ref w) {
    hir_type t = hir_ref_type(k->m, w);
    hir_ref x = stacked(k);
    if (!depth_is_given(x)) return x;
    hir_type rows = pass_with_one(by_head(k), 1);
    rows.dim[1] = k->n;
    x = pass_reshape(k->b, x, rows);
    x = hir_emit2(k->b, HIR_MUL_OP, x, pass_reshape(k->b, w, pass_with_one(t, t.rank)));
    return depth_is_given(x) ? pass_reduce(k->b, HIR_REDUCE_SUM_OP, x, 1) : x;
}

static hir_ref mix(maker *k) {
    hir_ref w = pass_arg(k->m, k->op, 0);
    const bool alone = !hir_type_has_t(hir_ref_type(k->m, w)); /* from scores */
    hir_ref y = k->in_loops || (alone && k->n > PAIR) ? mix_many(k, w) : mix_few(k, w);
    return depth_is_given(y) ? pass_reshape(k->b, y, pass_result_type(k->m, k->op)) : y;
}

/* ---- merge --------------------------------------------------------------------------------- */
static hir_ref merge(maker *k) {
    hir_ref difference =
        hir_emit2(k->b, HIR_SUB_OP, pass_arg(k->m, k->op, 3), pass_arg(k->m, k->op, 1));
    hir_ref share = hir_emit1(k->b, HIR_SIGMOID_OP, difference);
    if (!depth_is_given(share)) return share;
    hir_type t = hir_ref_type(k->m, share);
    if (k->heads > 1) share = pass_reshape(k->b, share, pass_with_one(t, t.rank));
    hir_ref partial = pass_reshape(k->b, pass_arg(k->m, k->op, 0), by_head(k));
    hir_ref live = pass_reshape(k->b, pass_arg(k->m, k->op, 2), by_head(k));
    hir_ref step = hir_emit2(k->b, HIR_MUL_OP, hir_emit2(k->b, HIR_SUB_OP, live, partial), share);
    hir_ref y = hir_emit2(k->b, HIR_ADD_OP, partial, step);
    return depth_is_given(y) ? pass_reshape(k->b, y, pass_result_type(k->m, k->op)) : y;
}

hir_ref depth_expand(hir_builder *b, hd_arena *scratch, hir_id op, uint32_t one_by_one) {
    hir_module *m = b->m;
    const hir_op *o = hir_op_at(m, op);
    maker k = {.b = b, .m = m, .scratch = scratch, .op = op};
    k.heads = hir_attr_int(o, HIR_A_HEADS, 1);
    k.first = o->code == HIR_DEPTH_SCORES_OP ? 3 : o->code == HIR_DEPTH_MIX_OP ? 1 : 0;
    k.n = o->n_args - k.first;
    k.in_loops = k.n > 1 && k.n > one_by_one;
    k.d = hir_ref_type(m, o->args[k.first]).dim[1];
    switch ((int)o->code) {
    case HIR_DEPTH_SCORES_OP: return scores(&k);
    case HIR_DEPTH_MIX_OP: return mix(&k);
    case HIR_DEPTH_MERGE_OP: return merge(&k);
    default: return hir_no_ref();
    }
}
