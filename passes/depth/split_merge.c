/* split-merge: phase 2, and attends outside of blocks, become scores and mixes.
 *
 * Needs    depth.attend, with or without a partial mix (batch-queries).
 * Does     With a partial mix o of log-sum-exp l and one source x of its own, the softmax over both
 *          is one sigmoid, because e^s / (e^l + e^s) = sigmoid(s - l):
 *              h = o + sigmoid(s - l) (x - o)                  depth.merge
 *          With more sources: softmax over (l, s_1, ..), mix of (o, x_1, ..). Weights that are not
 *          normalised over the sources (sigmoid, or given) just add up:
 *              h = o + sum_i sigmoid(s_i) x_i
 *          Without a partial mix: softmax or sigmoid, and mix.
 *          depth.weights, which traces read, is lowered in the same way.
 * Leaves   nothing: there is no depth.attend afterwards.
 *
 * Numbers. The merge is an interpolation from o to x with a weight between 0 and 1, so it is exact
 * where one of them dominates, however large the scores; if s - l overflows, the weight is 0 or 1
 * as it should be.
 */
#include <string.h>

#include "passes/depth/depth.h"

typedef struct splitter {
    hir_pass_context *c;
    hir_module *m;
    hir_builder b;
    hir_id op;
    uint32_t n; /* sources */
    int64_t heads;
    pass_forward forward;
} splitter;

static hir_ref arg(const splitter *s, uint32_t i) {
    return pass_arg(s->m, s->op, i);
}

static hir_ref concat(splitter *s, const hir_ref *parts, uint32_t n, int64_t axis) {
    hir_attr at = hir_int(HIR_A_AXIS, axis);
    return n == 1 ? parts[0] : hir_emit(&s->b, HIR_CONCAT_OP, parts, n, &at, 1);
}

/* ---- scores -------------------------------------------------------------------------------- */
/* The type of n scores, [T, n, H]; without H for one head. */
static hir_type scores_type(const splitter *s, int64_t n) {
    return hir_make_type(HIR_F32, 2 + (s->heads > 1), (int64_t[]){HIR_T, n, s->heads});
}

static hir_ref inverses(splitter *s) {
    const hir_attr *eps = hir_find_attr(hir_op_at(s->m, s->op), HIR_A_EPS);
    if (!eps) return arg(s, ATTEND_INVERSE);
    hir_attr attr = *eps;
    hir_ref *r = hd_new_array(s->c->scratch, hir_ref, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        hir_ref x = depth_source(s->m, s->op, i);
        r[i] = hir_emit(&s->b, HIR_DEPTH_INVERSE_RMS_OP, &x, 1, &attr, 1);
    }
    return concat(s, r, s->n, 1);
}

static hir_ref scores(splitter *s) {
    hir_ref query = arg(s, ATTEND_QUERY), bias = arg(s, ATTEND_BIAS);
    if (!depth_is_given(query)) return bias; /* weights [n] */
    hir_type q = hir_ref_type(s->m, query);
    hir_ref *args = hd_new_array(s->c->scratch, hir_ref, 3 + s->n);
    int64_t row[] = {1, q.dim[0]}, column[] = {s->n, 1};
    args[0] = q.rank == 1 ? pass_reshape(&s->b, query, hir_make_type(HIR_F32, 2, row)) : query;
    args[1] =
        depth_is_given(bias) ? pass_reshape(&s->b, bias, hir_make_type(HIR_F32, 2, column)) : bias;
    args[2] = inverses(s);
    for (uint32_t i = 0; i < s->n; i++)
        args[3 + i] = depth_source(s->m, s->op, i);
    hir_attr attrs[2];
    uint32_t n = depth_copy_attrs(s->m, s->op, attrs);
    hir_ref y = hir_emit(&s->b, HIR_DEPTH_SCORES_OP, args, 3 + s->n, attrs, n);
    return depth_is_given(y) ? pass_reshape(&s->b, y, scores_type(s, s->n)) : y;
}

/* ---- mixes --------------------------------------------------------------------------------- */
static hir_ref mix(splitter *s, hir_ref weights, hir_ref partial) {
    hir_ref *args = hd_new_array(s->c->scratch, hir_ref, 2 + s->n);
    uint32_t n = 0;
    args[n++] = weights;
    if (depth_is_given(partial)) args[n++] = partial;
    for (uint32_t i = 0; i < s->n; i++)
        args[n++] = depth_source(s->m, s->op, i);
    hir_attr heads = hir_int(HIR_A_HEADS, s->heads);
    return hir_emit(&s->b, HIR_DEPTH_MIX_OP, args, n, &heads, s->heads > 1);
}

static hir_ref softmax(splitter *s, hir_ref x) {
    if (!depth_is_given(x)) return x;
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    return hir_emit(&s->b, HIR_SOFTMAX_OP, &x, 1, &axis, 1);
}

/* Weights that are not normalised over the sources: the sigmoids of the scores, or the given
 * weights. */
static hir_ref added_up(splitter *s, hir_ref x) {
    const bool sigmoid = !strcmp(depth_normalization(s->m, s->op), "sigmoid");
    return sigmoid ? hir_emit1(&s->b, HIR_SIGMOID_OP, x) : x;
}

static hir_ref merge(splitter *s, hir_ref score) {
    hir_ref lse = arg(s, ATTEND_LSE);
    hir_attr heads = hir_int(HIR_A_HEADS, s->heads);
    hir_type t = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, s->heads});
    hir_ref args[] = {arg(s, ATTEND_PARTIAL), lse, depth_source(s->m, s->op, 0),
                      pass_reshape(&s->b, score, t)};
    hir_remark_add(s->c, true, s->op, "phase 2 is one dot product, one sigmoid and one blend");
    return hir_emit(&s->b, HIR_DEPTH_MERGE_OP, args, 4, &heads, s->heads > 1);
}

/* Takes the softmax over the log-sum-exp of the partial mix and the scores, and mixes. */
static hir_ref mix_with_partial(splitter *s, hir_ref x) {
    hir_ref lse = arg(s, ATTEND_LSE);
    hir_ref all[] = {pass_reshape(&s->b, lse, scores_type(s, 1)), x};
    hir_remark_add(s->c, true, s->op, "phase 2 mixes the result of phase 1 and %u source%s", s->n,
                   hd_s(s->n));
    return mix(s, softmax(s, concat(s, all, 2, 1)), arg(s, ATTEND_PARTIAL));
}

static hir_ref split(splitter *s) {
    hir_ref partial = arg(s, ATTEND_PARTIAL), x = scores(s);
    if (!depth_is_given(x)) return x;
    if (!depth_is_softmax(s->m, s->op)) {
        hir_ref y = mix(s, added_up(s, x), hir_no_ref());
        return depth_is_given(partial) ? hir_emit2(&s->b, HIR_ADD_OP, partial, y) : y;
    }
    if (!depth_is_given(partial)) return mix(s, softmax(s, x), hir_no_ref());
    return s->n == 1 ? merge(s, x) : mix_with_partial(s, x);
}

/* Lowers depth.weights: the weights of the sources, without the weight of the partial mix. */
static hir_ref weights(splitter *s) {
    hir_ref lse = arg(s, ATTEND_LSE), x = scores(s);
    if (!depth_is_given(x)) return x;
    if (!depth_is_softmax(s->m, s->op)) return added_up(s, x);
    if (!depth_is_given(lse)) return softmax(s, x);
    hir_ref all[] = {pass_reshape(&s->b, lse, scores_type(s, 1)), x};
    hir_ref y = softmax(s, concat(s, all, 2, 1));
    hir_attr at[] = {hir_int(HIR_A_AXIS, 1), hir_int(HIR_A_START, 1), hir_int(HIR_A_LENGTH, s->n)};
    return depth_is_given(y) ? hir_emit(&s->b, HIR_SLICE_OP, &y, 1, at, 3) : y;
}

bool pass_split_merge(hir_pass_context *c) {
    splitter s = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    HIR_EACH(s.m, op, s.m->first) {
        pass_forward_args(&s.forward, s.m, op);
        hir_opcode code = hir_op_at(s.m, op)->code;
        if (code != HIR_DEPTH_ATTEND_OP && code != HIR_DEPTH_WEIGHTS_OP) continue;
        s.op = op;
        s.n = depth_sources(s.m, op);
        s.heads = hir_attr_int(hir_op_at(s.m, op), HIR_A_HEADS, 1);
        s.b = hir_before(s.m, c->diags, op);
        hir_ref y = code == HIR_DEPTH_ATTEND_OP ? split(&s) : weights(&s);
        if (!depth_is_given(y)) return false;
        pass_forward_op(&s.forward, s.m, op, y);
        c->changed = true;
    }
    pass_forward_finish(&s.forward, s.m);
    return true;
}
