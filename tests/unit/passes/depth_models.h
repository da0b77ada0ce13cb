/* Attention over depth in its naive form, written in many ways, for tests of the depth passes. */
#ifndef TEST_DEPTH_MODELS_H
#define TEST_DEPTH_MODELS_H

#include "ir/eval/random.h"
#include "tests/unit/passes/pass_models.h"

typedef enum depth_norm {
    NO_NORM,
    NORM_OP,      /* rmsnorm without gain */
    NORM_GAIN,    /* rmsnorm with gain */
    NORM_WRITTEN, /* x * rsqrt(mean(x^2) + eps) * gain */
    NORM_DIVIDED, /* x / sqrt(sum(x^2) * 1/d + eps) * gain */
    NORM_BEHIND,  /* (q . x) * rsqrt(mean(x^2) + eps) */
    NORM_KINDS
} depth_norm;

typedef enum depth_sum { SUM_REDUCE, SUM_LEFT, SUM_RIGHT, SUM_BALANCED, SUM_KINDS } depth_sum;
typedef enum depth_bias { BIAS_NONE, BIAS_VECTOR, BIAS_LAST, BIAS_MINUS, BIAS_KINDS } depth_bias;
typedef enum depth_query { QUERY_WEIGHT, QUERY_INPUT, QUERY_NONE, QUERY_KINDS } depth_query;

typedef struct depth_style {
    bool sigmoid, gain_in_query, dot_written, one_by_one, softmax_written, weights_first;
    bool show; /* the weights are outputs */
    depth_norm norm;
    depth_sum sum;
    depth_bias bias;
    depth_query query;
    bool varied;       /* each mix has an eps and a scale of its own */
    double scale;      /* 0: none */
    bool scale_before; /* on the keys, not on the scores */
    int heads;         /* 0: one */
    int d, sublayers, block, window;
} depth_style;

/* Any way of writing it; nothing shown, no window. */
static inline depth_style depth_random_style(hir_random *r, int d) {
    depth_style s = {
        .sigmoid = hir_random_below(r, 4) == 0,
        .gain_in_query = hir_random_below(r, 2),
        .dot_written = hir_random_below(r, 2),
        .one_by_one = hir_random_below(r, 2),
        .softmax_written = hir_random_below(r, 3) == 0,
        .weights_first = hir_random_below(r, 2),
        .norm = (depth_norm)hir_random_below(r, NORM_KINDS),
        .sum = (depth_sum)hir_random_below(r, SUM_KINDS),
        .bias = (depth_bias)hir_random_below(r, BIAS_KINDS),
        .query =
            hir_random_below(r, 4) ? QUERY_WEIGHT : (depth_query)hir_random_below(r, QUERY_KINDS),
        .scale = hir_random_below(r, 2) ? 0.25 : 0,
        .scale_before = hir_random_below(r, 2),
        .heads = hir_random_below(r, 3) ? 1 : 3,
        .d = d,
        .sublayers = 3 + (int)hir_random_below(r, 8),
        .block = 1 + (int)hir_random_below(r, 4),
    };
    s.varied = hir_random_below(r, 2);
    if (s.query == QUERY_NONE) s.heads = 1;
    return s;
}

typedef struct depth_writer {
    hir_builder b;
    hir_module *m;
    hd_arena *arena;
    depth_style s;
    int mixes;         /* of two sources or more */
    double eps, scale; /* of the mix that is written */
} depth_writer;

static const double depth_eps = 1e-3;

/* ---- short ways to build --------------------------------------------------------------------- */
static inline hir_ref dw_op(depth_writer *w, hir_opcode code, hir_ref a, hir_ref b) {
    return hir_emit2(&w->b, code, a, b);
}

static inline hir_ref dw_axis(depth_writer *w, hir_opcode code, hir_ref x, int axis) {
    hir_attr at = hir_int(HIR_A_AXIS, axis);
    return hir_emit(&w->b, code, &x, 1, &at, 1);
}

static inline hir_ref dw_join(depth_writer *w, hir_opcode code, const hir_ref *x, int n, int axis) {
    hir_attr at = hir_int(HIR_A_AXIS, axis);
    return hir_emit(&w->b, code, x, (uint32_t)n, &at, 1);
}

static inline hir_ref dw_slice(depth_writer *w, hir_ref x, int axis, int start) {
    hir_attr at[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, start),
                     hir_int(HIR_A_LENGTH, 1)};
    return hir_emit(&w->b, HIR_SLICE_OP, &x, 1, at, 3);
}

static inline hir_ref dw_shape(depth_writer *w, hir_ref x, int rank, const int64_t *dims) {
    hir_attr shape = hir_ints(HIR_A_SHAPE, dims, (uint32_t)rank);
    return hir_emit(&w->b, HIR_RESHAPE_OP, &x, 1, &shape, 1);
}
#define SHAPE(w, x, n, ...) dw_shape((w), (x), (n), (int64_t[]){__VA_ARGS__})

static inline hir_ref dw_weight(depth_writer *w, const char *name, int rank, int64_t a, int64_t b) {
    int64_t dims[] = {a, b};
    return hir_weight_ref(
        hir_add_weight(w->m, name, hir_make_type(HIR_F32, (uint32_t)rank, dims), HD_NOWHERE));
}

static inline hir_ref dw_norm(depth_writer *w, hir_ref x, hir_ref gain) {
    hir_attr eps = hir_float(HIR_A_EPS, w->eps);
    return hir_emit(&w->b, HIR_RMSNORM_OP, (hir_ref[]){x, gain}, 2, &eps, 1);
}

static inline int dw_rank(depth_writer *w, hir_ref x) {
    return (int)hir_ref_type(w->m, x).rank;
}

/* mean(x^2) + eps over the last axis, which stays as a 1 */
static inline hir_ref dw_mean_square(depth_writer *w, hir_ref x, bool as_sum) {
    hir_type keep = hir_ref_type(w->m, x);
    int last = (int)keep.rank - 1;
    double n = (double)keep.dim[last];
    keep.dim[last] = 1;
    hir_ref s = dw_axis(w, as_sum ? HIR_REDUCE_SUM_OP : HIR_REDUCE_MEAN_OP,
                        dw_op(w, HIR_MUL_OP, x, x), last);
    if (as_sum) s = dw_op(w, HIR_MUL_OP, s, hir_emit_const(&w->b, 1 / n));
    s = dw_op(w, HIR_ADD_OP, s, hir_emit_const(&w->b, w->eps));
    return dw_shape(w, s, (int)keep.rank, keep.dim);
}

/* ---- scores ---------------------------------------------------------------------------------- */
/* x [T, d] or [T, n, d] to scores [T] or [T, n], with heads [T, H] or [T, n, H]. */
static inline hir_ref dw_scores(depth_writer *w, hir_ref x, hir_ref q, hir_ref gain) {
    const depth_style *s = &w->s;
    hir_ref keys = x;
    bool gained = gain.kind != HIR_REF_NONE, in_query = s->gain_in_query && gained;
    if (s->norm == NORM_OP) keys = dw_norm(w, x, hir_no_ref());
    if (s->norm == NORM_GAIN) keys = dw_norm(w, x, in_query ? hir_no_ref() : gain);
    if (s->norm == NORM_WRITTEN)
        keys = dw_op(w, HIR_MUL_OP, x, hir_emit1(&w->b, HIR_RSQRT_OP, dw_mean_square(w, x, false)));
    if (s->norm == NORM_DIVIDED)
        keys = dw_op(w, HIR_DIV_OP, x, hir_emit1(&w->b, HIR_SQRT_OP, dw_mean_square(w, x, true)));
    if (s->norm != NORM_GAIN && gained && !in_query) keys = dw_op(w, HIR_MUL_OP, gain, keys);
    if (in_query) {
        hir_type t = hir_ref_type(w->m, q);
        q = dw_op(w, HIR_MUL_OP, t.dim[0] == HIR_T ? q : SHAPE(w, q, 1, s->d), gain);
    }
    if (s->scale && s->scale_before)
        keys = dw_op(w, HIR_MUL_OP, hir_emit_const(&w->b, w->scale), keys);
    hir_ref y;
    int rank = dw_rank(w, x), heads = s->heads ? s->heads : 1;
    bool one_each = hir_ref_type(w->m, q).dim[0] == HIR_T;
    if (heads > 1 || s->dot_written || one_each) {
        int64_t dims[4], n = 0;
        for (; n < rank - 1; n++)
            dims[n] = hir_ref_type(w->m, x).dim[n];
        if (heads > 1) dims[n++] = heads;
        dims[n++] = s->d / heads;
        int64_t query[4] = {HIR_T, 1, heads, s->d / heads},
                short_query[] = {HIR_T, heads, s->d / heads};
        if (one_each && rank == 3)
            q = heads > 1 ? dw_shape(w, q, 4, query) : SHAPE(w, q, 3, HIR_T, 1, s->d);
        else if (one_each)
            q = heads > 1 ? dw_shape(w, q, 3, short_query) : q;
        else
            q = heads > 1 ? dw_shape(w, q, 2, short_query + 1) : SHAPE(w, q, 1, s->d);
        y = dw_op(w, HIR_MUL_OP, dw_shape(w, keys, (int)n, dims), q);
        y = dw_axis(w, HIR_REDUCE_SUM_OP, y, (int)n - 1);
    } else {
        if (in_query) q = SHAPE(w, q, 2, 1, s->d);
        y = hir_emit(&w->b, HIR_LINEAR_OP, (hir_ref[]){keys, q, hir_no_ref()}, 3, NULL, 0);
        y = dw_shape(w, y, rank - 1, hir_ref_type(w->m, x).dim);
    }
    if (s->norm == NORM_BEHIND) {
        hir_ref r = hir_emit1(&w->b, HIR_RSQRT_OP, dw_mean_square(w, x, false));
        if (heads == 1) r = dw_shape(w, r, rank - 1, hir_ref_type(w->m, x).dim);
        y = dw_op(w, HIR_MUL_OP, r, y);
    }
    if (s->scale && !s->scale_before) y = dw_op(w, HIR_MUL_OP, y, hir_emit_const(&w->b, w->scale));
    return y;
}

static inline hir_ref dw_biased(depth_writer *w, hir_ref y, int n, const char *name) {
    hir_ref bias;
    if (w->s.bias == BIAS_NONE) return y;
    if (w->s.bias == BIAS_LAST) {
        hir_attr zero[] = {hir_ints(HIR_A_SHAPE, (int64_t[]){n - 1}, 1), hir_float(HIR_A_VALUE, 0)};
        hir_ref parts[] = {hir_emit(&w->b, HIR_CONST_OP, NULL, 0, zero, 2),
                           dw_weight(w, hd_printf(w->arena, "%s.recency", name), 1, 1, 0)};
        bias = dw_join(w, HIR_CONCAT_OP, parts, 2, 0);
    } else
        bias = dw_weight(w, hd_printf(w->arena, "%s.bias", name), 1, n, 0);
    if (w->s.heads > 1) bias = SHAPE(w, bias, 2, n, 1);
    return dw_op(w, w->s.bias == BIAS_MINUS ? HIR_SUB_OP : HIR_ADD_OP, y, bias);
}

static inline hir_ref dw_softmax(depth_writer *w, hir_ref x, int axis) {
    if (!w->s.softmax_written) return dw_axis(w, HIR_SOFTMAX_OP, x, axis);
    hir_type keep = hir_ref_type(w->m, x);
    keep.dim[axis] = 1;
    hir_ref max = dw_shape(w, dw_axis(w, HIR_REDUCE_MAX_OP, x, axis), (int)keep.rank, keep.dim);
    hir_ref e = hir_emit1(&w->b, HIR_EXP_OP, dw_op(w, HIR_SUB_OP, x, max));
    hir_ref sum = dw_shape(w, dw_axis(w, HIR_REDUCE_SUM_OP, e, axis), (int)keep.rank, keep.dim);
    return dw_op(w, HIR_DIV_OP, e, sum);
}

/* ---- the mix --------------------------------------------------------------------------------- */
static inline hir_ref dw_times(depth_writer *w, hir_ref a, hir_ref x) {
    return w->s.weights_first ? dw_op(w, HIR_MUL_OP, a, x) : dw_op(w, HIR_MUL_OP, x, a);
}

static inline hir_ref dw_chain(depth_writer *w, hir_ref *p, int n) {
    if (n == 1) return p[0];
    int left = w->s.sum == SUM_LEFT ? n - 1 : w->s.sum == SUM_RIGHT ? 1 : n / 2;
    hir_ref a = dw_chain(w, p, left), b = dw_chain(w, p + left, n - left);
    return dw_op(w, HIR_ADD_OP, a, b);
}

/* a [T, n(, H)] or [n], x_i [T, d] */
static inline hir_ref dw_weighted(depth_writer *w, hir_ref a, const hir_ref *x, int n) {
    int64_t d = w->s.d, h = w->s.heads > 1 ? w->s.heads : 1;
    bool has_t = hir_ref_type(w->m, a).dim[0] == HIR_T;
    hir_ref p[64], y;
    if (w->s.sum == SUM_REDUCE) {
        hir_ref v = dw_join(w, HIR_STACK_OP, x, n, 1);
        if (h > 1) v = SHAPE(w, v, 4, HIR_T, n, h, d / h);
        if (h > 1)
            a = has_t ? SHAPE(w, a, 4, HIR_T, n, h, 1) : SHAPE(w, a, 3, n, h, 1);
        else
            a = has_t ? SHAPE(w, a, 3, HIR_T, n, 1) : SHAPE(w, a, 2, n, 1);
        y = dw_axis(w, HIR_REDUCE_SUM_OP, dw_times(w, a, v), 1);
    } else {
        for (int i = 0; i < n; i++) {
            hir_ref ai = dw_slice(w, a, has_t, i), xi = x[i];
            if (h > 1) xi = SHAPE(w, xi, 3, HIR_T, h, d / h);
            if (h > 1)
                ai = SHAPE(w, ai, 3, HIR_T, h, 1);
            else
                ai = has_t ? SHAPE(w, ai, 2, HIR_T, 1) : ai;
            p[i] = dw_times(w, ai, xi);
        }
        y = dw_chain(w, p, n);
    }
    return h > 1 ? SHAPE(w, y, 2, HIR_T, d) : y;
}

static inline hir_ref dw_query(depth_writer *w, const hir_ref *x, int n, const char *name) {
    int d = w->s.d;
    if (w->s.query == QUERY_INPUT) {
        hir_ref proj = dw_weight(w, hd_printf(w->arena, "%s.proj", name), 2, d, d);
        return hir_emit(&w->b, HIR_LINEAR_OP, (hir_ref[]){x[n - 1], proj, hir_no_ref()}, 3, NULL,
                        0);
    }
    return dw_weight(w, hd_printf(w->arena, "%s.proj", name), 2, 1, d);
}

static inline hir_ref dw_mix(depth_writer *w, const hir_ref *x, int n, const char *name) {
    static const double eps[] = {1e-3, 0.25, 1e-6};
    const depth_style *s = &w->s;
    hir_ref a, gain = hir_no_ref();
    if (n == 1) return x[0];
    w->eps = s->varied ? eps[w->mixes % 3] : depth_eps;
    w->scale = s->varied ? s->scale * (1 + w->mixes % 2) : s->scale;
    w->mixes++;
    if (s->query == QUERY_NONE)
        a = dw_weight(w, hd_printf(w->arena, "%s.logits", name), 1, n, 0);
    else {
        hir_ref q = dw_query(w, x, n, name);
        if (s->norm != NO_NORM && s->norm != NORM_OP)
            gain = dw_weight(w, hd_printf(w->arena, "%s.gain", name), 1, s->d, 0);
        if (s->one_by_one) {
            hir_ref each[64];
            for (int i = 0; i < n; i++)
                each[i] = dw_scores(w, x[i], q, gain);
            a = dw_join(w, HIR_STACK_OP, each, n, 1);
        } else
            a = dw_scores(w, dw_join(w, HIR_STACK_OP, x, n, 1), q, gain);
        a = dw_biased(w, a, n, name);
    }
    int axis = s->query != QUERY_NONE;
    a = s->sigmoid ? hir_emit1(&w->b, HIR_SIGMOID_OP, a) : dw_softmax(w, a, axis);
    if (s->show) {
        hir_attr shown = hir_string(HIR_A_NAME, hd_printf(w->arena, "weights.%s", name));
        hir_emit(&w->b, HIR_OUTPUT_OP, &a, 1, &shown, 1);
    }
    return dw_weighted(w, a, x, n);
}

/* ---- the model ------------------------------------------------------------------------------- */
static inline hir_ref dw_sublayer(depth_writer *w, hir_ref h, int k) {
    hir_ref gain = dw_weight(w, hd_printf(w->arena, "%d.norm", k), 1, w->s.d, 0);
    hir_ref f = dw_weight(w, hd_printf(w->arena, "%d.f", k), 2, w->s.d, w->s.d);
    w->eps = depth_eps;
    h = dw_norm(w, h, gain);
    h = hir_emit(&w->b, HIR_LINEAR_OP, (hir_ref[]){h, f, hir_no_ref()}, 3, NULL, 0);
    return hir_emit1(&w->b, HIR_TANH_OP, h);
}

/* The sources with a window: the first and the last `window`. */
static inline int dw_sources(const depth_writer *w, const hir_ref *bank, int n_bank, hir_ref live,
                             hir_ref *x) {
    int n = 0, from = 0;
    int all = n_bank + (live.kind != HIR_REF_NONE);
    if (w->s.window && all > w->s.window + 1) from = all - w->s.window;
    for (int i = 0; i < n_bank; i++)
        if (i == 0 || i >= from) x[n++] = bank[i];
    if (live.kind != HIR_REF_NONE) x[n++] = live;
    return n;
}

/* AttnRes with sublayers f(x) = tanh(W rmsnorm(x)); a plain function of %x. */
static inline depth_writer depth_model(hd_arena *a, hd_diags *d, depth_style style) {
    depth_writer w = {.m = hir_module_new(a, "depth"), .arena = a, .s = style};
    hir_ref bank[64], x[64], live;
    int n_bank = 0;
    live = hir_value_ref(
        hir_add_input(w.m, "x", hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, style.d})));
    w.b = hir_at_end(w.m, d);
    for (int k = 0; k <= style.sublayers; k++) {
        int n = dw_sources(&w, bank, n_bank, live, x);
        hir_ref h = dw_mix(&w, x, n, hd_printf(a, "%d", k));
        if (k == style.sublayers) {
            hir_attr name = hir_string(HIR_A_NAME, "y");
            hir_emit(&w.b, HIR_OUTPUT_OP, &h, 1, &name, 1);
            break;
        }
        if (k % style.block == 0) {
            bank[n_bank++] = live;
            live = hir_no_ref();
        }
        hir_ref y = dw_sublayer(&w, h, k);
        live = live.kind == HIR_REF_NONE ? y : dw_op(&w, HIR_ADD_OP, live, y);
    }
    return w;
}

#endif
