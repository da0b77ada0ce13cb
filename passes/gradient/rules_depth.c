/* Gradients of attention over depth in two phases, as split-merge leaves it.
 *
 * The mixes of a phase 1 read the same sources, each with its own part of one table of weights. The
 * walk goes through all of their users, the members of the block, before it comes to the first of
 * them; only then do their gradients go back to the sources and to the table, of all mixes at once. So
 * the backward pass reads a source once for a block, as the forward pass does, and the blocks are
 * the same. What is particular to a member, its merge with sources of its own, goes back at once,
 * next to the gradients of its sublayer.
 *
 * Kept from the forward pass are, besides sources and mixes, scores, weights and inverse RMS: a few
 * numbers for each token, sublayer and source. Nothing holds the sources of a block side by side.
 */
#include <stdlib.h>

#include "passes/depth/depth.h"
#include "passes/gradient/gradient.h"

static hir_ref arg(const gradient *g, hir_id op, uint32_t i) {
    return pass_arg(g->m, op, i);
}

static hir_type type_of(uint32_t rank, const int64_t *dims) {
    return hir_make_type(HIR_F32, rank, dims);
}

/* Element i of x along an axis, which is dropped. */
static hir_ref element(gradient *g, hir_ref x, uint32_t axis, int64_t i) {
    if (g->failed) return hir_no_ref();
    const hir_ref y = depth_element(&g->b, x, axis, i);
    g->failed = y.kind == HIR_REF_NONE;
    return y;
}

/* ---- rows and heads -------------------------------------------------------------------------- */
/* Rows [T, d] whose channels are in heads. */
typedef struct rows {
    int64_t t, d, heads;
} rows;

static rows rows_of(const gradient *g, hir_id op, hir_ref x) {
    const hir_type t = grad_type(g, x);
    return (rows){t.dim[0], t.dim[1], hir_attr_int(hir_op_at(g->m, op), HIR_A_HEADS, 1)};
}

/* x [.., d] as [.., heads, d / heads]; as it is where there is one head. */
static hir_ref by_head(gradient *g, hir_ref x, const rows *r) {
    if (g->failed || r->heads == 1) return x;
    hir_type t = grad_type(g, x);
    t.dim[t.rank - 1] = r->heads;
    t.dim[t.rank++] = r->d / r->heads;
    return grad_reshape(g, x, t);
}

/* by_head back to [T, d]. */
static hir_ref whole(gradient *g, hir_ref x, const rows *r) {
    return grad_reshape(g, x, type_of(2, (int64_t[]){r->t, r->d}));
}

/* w, a number for each head, [T(, H)] or [(H)], times x, [T, d] or [d]: [T, d]. */
static hir_ref times_rows(gradient *g, hir_ref w, hir_ref x, const rows *r) {
    if (g->failed) return w;
    const hir_type t = grad_type(g, w);
    const bool has_t = hir_type_has_t(t);
    const int64_t dims[] = {r->t, r->heads, 1};
    const uint32_t first = has_t ? 0 : 1, rank = (r->heads > 1 ? 3 : 2) - first;
    const int64_t one_head[] = {r->t, 1};
    w = grad_reshape(g, w, type_of(rank, r->heads > 1 ? dims + first : one_head + first));
    return whole(g, grad_mul(g, by_head(g, x, r), w), r);
}

/* The sums over the channels of each head of a times b: [T, H]. */
static hir_ref dots(gradient *g, hir_ref a, hir_ref b, const rows *r) {
    const hir_ref p = by_head(g, grad_mul(g, a, b), r);
    if (g->failed) return p;
    const hir_ref y = grad_reduce(g, HIR_REDUCE_SUM_OP, p, grad_type(g, p).rank - 1);
    return grad_reshape(g, y, type_of(2, (int64_t[]){r->t, r->heads}));
}

/* The products of row x with each of the n rows y, [T, n(, H)]. */
static hir_ref products(gradient *g, hir_ref x, const hir_ref *y, uint32_t n, const rows *r) {
    hir_ref *args = hd_new_array(g->c->scratch, hir_ref, 3 + n);
    const hir_attr heads = hir_int(HIR_A_HEADS, r->heads);
    args[0] = x;
    args[1] = args[2] = hir_no_ref();
    for (uint32_t i = 0; i < n; i++)
        args[3 + i] = y[i];
    const hir_ref s = grad_op(g, HIR_DEPTH_SCORES_OP, args, 3 + n, &heads, r->heads > 1);
    return grad_reshape(g, s, type_of(2 + (r->heads > 1), (int64_t[]){r->t, n, r->heads}));
}

/* sum_i w_i x_i */
static hir_ref mix(gradient *g, hir_ref w, const hir_ref *x, uint32_t n, const rows *r) {
    hir_ref *args = hd_new_array(g->c->scratch, hir_ref, 1 + n);
    const hir_attr heads = hir_int(HIR_A_HEADS, r->heads);
    args[0] = w;
    for (uint32_t i = 0; i < n; i++)
        args[1 + i] = x[i];
    return grad_op(g, HIR_DEPTH_MIX_OP, args, 1 + n, &heads, r->heads > 1);
}

static hir_ref *operands(gradient *g, hir_id op, uint32_t first, uint32_t *n) {
    *n = hir_op_at(g->m, op)->n_args - first;
    hir_ref *x = hd_new_array(g->c->scratch, hir_ref, *n);
    for (uint32_t i = 0; i < *n; i++)
        x[i] = arg(g, op, first + i);
    return x;
}

/* ---- inverse RMS ----------------------------------------------------------------------------- */
/* r = (mean x^2 + eps)^-1/2: dx = -dr r^3 x / d, in an order in which no factor is far from 1 where x
 * is: a key's score does not depend on its size, so that dr is as large as x. */
bool vjp_depth_inverse_rms(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref x = arg(g, op, 0), r = grad_result(g, op);
    const double d = (double)grad_type(g, x).dim[1];
    const hir_ref by = grad_mul(g, grad_mul(g, dy, r), grad_times(g, r, -1 / d));
    grad_give(g, op, 0, grad_mul(g, grad_mul(g, x, r), by));
    return true;
}

/* ---- scores ---------------------------------------------------------------------------------- */
enum { SCORE_QUERIES, SCORE_BIAS, SCORE_INVERSE, SCORE_SOURCES };

/* What the rule of depth.scores goes by: y [T, n, S(, H)] = scale r_i q_s . x_i + bias */
typedef struct scores {
    hir_id op;
    rows r;
    uint32_t n;   /* sources */
    int64_t s;    /* queries */
    bool of_t;    /* a query for each token */
    hir_ref *x;   /* sources */
    hir_ref each; /* the gradients of the products q_s . x_i, [T, n, S(, H)] */
} scores;

/* x, which has a dim for heads if there are several, summed over them. */
static hir_ref over_heads(gradient *g, hir_ref x, const rows *r) {
    if (g->failed || r->heads == 1) return x;
    const hir_attr axis = hir_int(HIR_A_AXIS, grad_type(g, x).rank - 1);
    return grad_op(g, HIR_REDUCE_SUM_OP, &x, 1, &axis, 1);
}

/* ds = dy (s - bias) / r, summed over the queries */
static void give_inverse(gradient *g, const scores *k, hir_ref dy) {
    const hir_ref bias = arg(g, k->op, SCORE_BIAS), inverse = arg(g, k->op, SCORE_INVERSE);
    hir_ref s = grad_result(g, k->op);
    if (bias.kind != HIR_REF_NONE) {
        const int64_t dims[] = {k->n, k->s, 1};
        s = grad_sub(g, s, grad_reshape(g, bias, type_of(2 + (k->r.heads > 1), dims)));
    }
    const hir_ref p = over_heads(g, grad_mul(g, dy, s), &k->r);
    const hir_ref sum = grad_reduce(g, HIR_REDUCE_SUM_OP, p, 2);
    const hir_ref row = grad_reshape(g, sum, type_of(2, (int64_t[]){k->r.t, k->n}));
    grad_give(g, k->op, SCORE_INVERSE, grad_2(g, HIR_DIV_OP, row, inverse));
}

/* sum_s each[i, s] q_s, of source i */
static hir_ref of_source(gradient *g, const scores *k, hir_ref each) {
    const hir_ref q = arg(g, k->op, SCORE_QUERIES);
    const rows *r = &k->r;
    if (k->s == 1) {
        const hir_ref one = k->of_t ? q : grad_reshape(g, q, type_of(1, &r->d));
        return times_rows(g, each, one, r);
    }
    if (g->failed) return each;
    const hir_type t = grad_type(g, each);
    const hir_ref p =
        grad_mul(g, grad_reshape(g, each, pass_with_one(t, t.rank)), by_head(g, q, r));
    const hir_attr axis = hir_int(HIR_A_AXIS, 1);
    return whole(g, grad_op(g, HIR_REDUCE_SUM_OP, &p, 1, &axis, 1), r);
}

/* sum over tokens of each[i, s] x_i: [S, d] */
static hir_ref of_queries(gradient *g, const scores *k, hir_ref each, hir_ref x) {
    const rows *r = &k->r;
    if (r->heads == 1)
        return grad_2(g, HIR_LINEAR_GRAD_OP,
                      grad_reshape(g, each, type_of(2, (int64_t[]){r->t, k->s})), x);
    const hir_ref rows = grad_transpose(g, each, 1, 2); /* [T, H, S] */
    const hir_ref y = grad_2(g, HIR_BLOCK_LINEAR_GRAD_OP, rows, by_head(g, x, r));
    return grad_reshape(g, grad_transpose(g, y, 0, 1), type_of(2, (int64_t[]){k->s, r->d}));
}

static void give_queries(gradient *g, const scores *k) {
    if (k->of_t) {
        const int64_t dims[] = {k->r.t, k->n, k->r.heads};
        const hir_ref w = grad_reshape(g, k->each, type_of(2 + (k->r.heads > 1), dims));
        grad_give(g, k->op, SCORE_QUERIES, mix(g, w, k->x, k->n, &k->r));
        return;
    }
    for (uint32_t i = 0; i < k->n; i++)
        grad_give(g, k->op, SCORE_QUERIES, of_queries(g, k, element(g, k->each, 1, i), k->x[i]));
}

bool vjp_depth_scores(gradient *g, hir_id op, hir_ref dy) {
    const double scale = hir_attr_float(hir_op_at(g->m, op), HIR_A_SCALE, 1);
    const hir_type q = grad_type(g, arg(g, op, SCORE_QUERIES));
    const hir_ref inverse = arg(g, op, SCORE_INVERSE);
    scores k = {.op = op, .of_t = hir_type_has_t(q), .each = dy};
    k.s = k.of_t ? 1 : q.dim[0];
    k.x = operands(g, op, SCORE_SOURCES, &k.n);
    k.r = rows_of(g, op, k.x[0]);
    if (grad_wants(g, op, SCORE_BIAS)) grad_give(g, op, SCORE_BIAS, over_heads(g, dy, &k.r));
    if (inverse.kind != HIR_REF_NONE) {
        const int64_t dims[] = {k.r.t, k.n, 1, 1};
        k.each = grad_mul(g, dy, grad_reshape(g, inverse, type_of(3 + (k.r.heads > 1), dims)));
        if (grad_wants(g, op, SCORE_INVERSE)) give_inverse(g, &k, dy);
    }
    if (scale != 1) k.each = grad_times(g, k.each, scale);
    for (uint32_t i = 0; i < k.n; i++)
        if (grad_wants(g, op, SCORE_SOURCES + i))
            grad_give(g, op, SCORE_SOURCES + i, of_source(g, &k, element(g, k.each, 1, i)));
    if (grad_wants(g, op, SCORE_QUERIES)) give_queries(g, &k);
    return !g->failed;
}

/* ---- merges ---------------------------------------------------------------------------------- */
/* y = o + a (x - o), a = sigmoid(s - l): with D = dy . (x - y), ds = a D = -dl, which needs no o. */
bool vjp_depth_merge(gradient *g, hir_id op, hir_ref dy) {
    enum { PARTIAL, LSE, LIVE, SCORE };
    const hir_ref lse = arg(g, op, LSE), live = arg(g, op, LIVE), score = arg(g, op, SCORE);
    const rows r = rows_of(g, op, live);
    const hir_ref share = grad_1(g, HIR_SIGMOID_OP, grad_sub(g, score, lse));
    if (grad_wants(g, op, PARTIAL)) {
        const hir_ref rest = grad_1(g, HIR_SIGMOID_OP, grad_sub(g, lse, score));
        grad_give(g, op, PARTIAL, times_rows(g, rest, dy, &r));
    }
    if (grad_wants(g, op, LIVE)) grad_give(g, op, LIVE, times_rows(g, share, dy, &r));
    if (!grad_wants(g, op, LSE) && !grad_wants(g, op, SCORE)) return true;
    const hir_ref d = dots(g, dy, grad_sub(g, live, grad_result(g, op)), &r);
    const hir_ref ds = grad_mul(g, share, d);
    if (grad_wants(g, op, SCORE)) grad_give(g, op, SCORE, ds);
    if (grad_wants(g, op, LSE)) grad_give(g, op, LSE, grad_neg(g, ds));
    return true;
}

/* ---- mixes ----------------------------------------------------------------------------------- */
/* The mixes of a phase 1: element k of the table, along `axis`, are the weights of mix k. */
typedef struct phase1_grads {
    hir_id first; /* mix, in the program */
    uint32_t axis, n;
    hir_ref *dy; /* of mix k; the none ref: nothing reaches it */
    bool *has;   /* is there a mix k? */
    bool is_one; /* all mixes have the same sources */
} phase1_grads;

/* The table of which the weights of a mix are an element, *k; the none ref: of none. */
static hir_ref table_of(const gradient *g, hir_id op, uint32_t *axis, int64_t *k) {
    const hir_ref w = arg(g, op, 0);
    const hir_id shaped = pass_def_if(g->m, w, HIR_RESHAPE_OP);
    const hir_id slice =
        shaped == HIR_NONE ? HIR_NONE : pass_def_if(g->m, arg(g, shaped, 0), HIR_SLICE_OP);
    if (slice == HIR_NONE) return hir_no_ref();
    const hir_op *o = hir_op_at(g->m, slice);
    const hir_ref table = o->args[0];
    hir_type t = grad_type(g, table);
    *axis = (uint32_t)hir_attr_int(o, HIR_A_AXIS, 0);
    *k = hir_attr_int(o, HIR_A_START, 0);
    if (table.kind != HIR_REF_VALUE || *axis != (hir_type_has_t(t) ? 2 : 0) ||
        hir_attr_int(o, HIR_A_LENGTH, 0) != 1)
        return hir_no_ref();
    for (uint32_t i = *axis; i + 1 < t.rank; i++)
        t.dim[i] = t.dim[i + 1];
    t.rank--;
    return hir_type_equal(t, grad_type(g, w)) ? table : hir_no_ref();
}

static bool same_sources(const gradient *g, hir_id a, hir_id b) {
    const hir_op *x = hir_op_at(g->m, a), *y = hir_op_at(g->m, b);
    bool same = x->n_args == y->n_args &&
                hir_attr_int(x, HIR_A_HEADS, 1) == hir_attr_int(y, HIR_A_HEADS, 1);
    for (uint32_t i = 1; same && i < x->n_args; i++)
        same = hir_ref_equal(x->args[i], y->args[i]);
    return same;
}

static phase1_grads *phase_of(const gradient *g, hir_id op, int64_t *k) {
    uint32_t axis;
    const hir_ref table = table_of(g, op, &axis, k);
    return table.kind == HIR_REF_NONE ? NULL : &g->phases[table.index];
}

/* A table of which a part is used twice, or by mixes of other sources, is none of a phase 1. */
void grad_find_phases(gradient *g) {
    g->phases = hd_new_array(g->c->scratch, phase1_grads, g->n_values);
    HIR_EACH(g->m, op, g->m->first) {
        uint32_t axis;
        int64_t k;
        if (hir_op_at(g->m, op)->code != HIR_DEPTH_MIX_OP) continue;
        const hir_ref table = table_of(g, op, &axis, &k);
        if (table.kind == HIR_REF_NONE) continue;
        phase1_grads *p = &g->phases[table.index];
        if (!p->n) {
            *p = (phase1_grads){.first = op, .axis = axis, .is_one = true};
            p->n = (uint32_t)grad_type(g, table).dim[axis];
            p->dy = hd_new_array(g->c->scratch, hir_ref, p->n);
            p->has = hd_new_array(g->c->scratch, bool, p->n);
        }
        p->is_one &= !p->has[k] && same_sources(g, p->first, op);
        p->has[k] = true;
    }
}

/* dx_i = a_i dy, da_i = dy . x_i */
static void through_mix(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref w = arg(g, op, 0);
    const hir_type t = grad_type(g, w);
    uint32_t n;
    const hir_ref *x = operands(g, op, 1, &n);
    const rows r = rows_of(g, op, x[0]);
    for (uint32_t i = 0; i < n; i++)
        if (grad_wants(g, op, 1 + i))
            grad_give(g, op, 1 + i, times_rows(g, element(g, w, hir_type_has_t(t), i), dy, &r));
    if (grad_wants(g, op, 0)) grad_give(g, op, 0, products(g, dy, x, n, &r));
}

bool vjp_depth_mix(gradient *g, hir_id op, hir_ref dy) {
    int64_t k;
    phase1_grads *p = phase_of(g, op, &k);
    if (p && p->is_one)
        p->dy[k] = dy;
    else
        through_mix(g, op, dy);
    return true;
}

/* dx_i = sum_k a_ik dy_k, da_ik = dy_k . x_i, for all sources i of the mixes k. The da, which all
 * gradients of scores need, come first: of many sources fuse makes several row programs, and what
 * the first of them has can be added up in the one that makes the dx (fuse_groups.c). */
static void through_phase(gradient *g, const phase1_grads *p, hir_ref table) {
    uint32_t n;
    const hir_ref *x = operands(g, p->first, 1, &n);
    const rows r = rows_of(g, p->first, x[0]);
    const uint32_t has_t = hir_type_has_t(grad_type(g, table));
    hir_ref *da = hd_new_array(g->c->scratch, hir_ref, n);
    const hir_attr axis = hir_int(HIR_A_AXIS, has_t ? 1 : 2);
    for (uint32_t i = 0; i < n && grad_wants_of(g, table); i++)
        da[i] = products(g, x[i], p->dy, p->n, &r);
    if (grad_wants_of(g, table)) grad_give_to(g, table, grad_op(g, HIR_STACK_OP, da, n, &axis, 1));
    for (uint32_t i = 0; i < n; i++)
        if (grad_wants(g, p->first, 1 + i))
            grad_give(g, p->first, 1 + i, mix(g, element(g, table, 1, i), p->dy, p->n, &r));
}

bool grad_end_phase(gradient *g, hir_id op) {
    int64_t k;
    if (hir_op_at(g->m, op)->code != HIR_DEPTH_MIX_OP) return true;
    const phase1_grads *p = phase_of(g, op, &k);
    bool any = false;
    if (!p || !p->is_one || p->first != op) return true;
    for (uint32_t i = 0; i < p->n; i++)
        any |= p->dy[i].kind != HIR_REF_NONE;
    if (!any) return true;
    g->b.loc = *hir_op_at(g->m, op)->loc;
    for (uint32_t i = 0; i < p->n; i++)
        if (p->dy[i].kind == HIR_REF_NONE) p->dy[i] = grad_zeros(g, pass_result_type(g->m, op));
    uint32_t axis;
    through_phase(g, p, table_of(g, op, &axis, &k));
    return !g->failed;
}
