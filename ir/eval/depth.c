/* Evaluator rules of attention over depth: each computes its formula in ir/ops.def, token by
 * token. */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

/* Row t of an array whose first dim may be T; the array itself where it has no T. */
static const double *row_of(const hir_array *a, uint32_t rank_with_t, int64_t t) {
    return a->type.rank == rank_with_t ? a->at + t * (a->n / a->type.dim[0]) : a->at;
}

static double inverse_rms(const double *x, int64_t d, double eps) {
    return 1 / sqrt(eval_dot(x, x, d) / (double)d + eps);
}

static double score(const double *q, const double *x, int64_t d, int64_t h, double factor) {
    return q ? factor * eval_dot(q + h * d, x + h * d, d) : 0;
}

/* ---- attend -------------------------------------------------------------------------------- */
enum { QUERY, BIAS, INVERSE, PARTIAL, LSE, SOURCES };

typedef struct mixing {
    const hir_op *op;
    const hir_array *const *x;
    uint32_t n;
    int64_t d, heads, group; /* channels, heads, channels of a head */
    bool softmax, sigmoid;
} mixing;

/* Scores of one head of one token. */
static void attend_scores(const mixing *m, int64_t t, int64_t h, double *s) {
    double scale = hir_attr_float(m->op, HIR_A_SCALE, 1), eps = hir_attr_float(m->op, HIR_A_EPS, 0);
    const double *q = m->x[QUERY] ? row_of(m->x[QUERY], 2, t) : NULL;
    for (uint32_t i = 0; i < m->n; i++) {
        const double *x = m->x[SOURCES + i]->at + t * m->d;
        double r = 1;
        if (m->x[INVERSE]) r = m->x[INVERSE]->at[t * m->n + i];
        if (hir_find_attr(m->op, HIR_A_EPS)) r = inverse_rms(x, m->d, eps);
        s[i] = score(q, x, m->group, h, scale * r) + (m->x[BIAS] ? m->x[BIAS]->at[i] : 0);
    }
}

/* Replaces the scores in s by the weights of the sources; returns the weight of the partial mix. */
static double weights_of(const mixing *m, const double *lse, double *s) {
    if (!m->softmax) {
        for (uint32_t i = 0; m->sigmoid && i < m->n; i++)
            s[i] = 1 / (1 + exp(-s[i]));
        return 1;
    }
    double max = lse ? *lse : -INFINITY, sum = 0;
    for (uint32_t i = 0; i < m->n; i++)
        if (s[i] > max || isnan(s[i])) max = s[i];
    for (uint32_t i = 0; i < m->n; i++)
        sum += s[i] = exp(s[i] - max);
    double partial = lse ? exp(*lse - max) : 0;
    sum += partial;
    for (uint32_t i = 0; i < m->n; i++)
        s[i] /= sum;
    return partial / sum;
}

static mixing mixing_of(const hir_op *op, const hir_array *const *x) {
    mixing m = {.op = op, .x = x, .n = op->n_args - SOURCES, .d = x[SOURCES]->type.dim[1]};
    m.heads = hir_attr_int(op, HIR_A_HEADS, 1);
    m.group = m.d / m.heads;
    const char *normalization = hir_attr_string(op, HIR_A_NORMALIZATION, "");
    m.softmax = !strcmp(normalization, "softmax");
    m.sigmoid = !strcmp(normalization, "sigmoid");
    return m;
}

bool eval_depth_attend(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const mixing m = mixing_of(op, x);
    double *s = hd_new_array(c->scratch, double, m.n);
    for (int64_t t = 0; t < y->type.dim[0]; t++)
        for (int64_t h = 0; h < m.heads; h++) {
            attend_scores(&m, t, h, s);
            double partial = weights_of(&m, x[LSE] ? row_of(x[LSE], 2, t) + h : NULL, s);
            for (int64_t k = t * m.d + h * m.group; k < t * m.d + (h + 1) * m.group; k++) {
                y->at[k] = x[PARTIAL] ? partial * x[PARTIAL]->at[k] : 0;
                for (uint32_t i = 0; i < m.n; i++)
                    y->at[k] += s[i] * x[SOURCES + i]->at[k];
            }
        }
    return true;
}

bool eval_depth_weights(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const mixing m = mixing_of(op, x);
    double *s = hd_new_array(c->scratch, double, m.n);
    for (int64_t t = 0; t < y->type.dim[0]; t++)
        for (int64_t h = 0; h < m.heads; h++) {
            attend_scores(&m, t, h, s);
            weights_of(&m, x[LSE] ? row_of(x[LSE], 2, t) + h : NULL, s);
            for (uint32_t i = 0; i < m.n; i++)
                y->at[(t * m.n + i) * m.heads + h] = s[i];
        }
    return true;
}

/* ---- inverse RMS, scores, mix, merge --------------------------------------------------------- */
bool eval_depth_inverse_rms(eval_call *c, const hir_op *op, const hir_array *const *x,
                            hir_array *y) {
    int64_t d = x[0]->type.dim[1];
    (void)c;
    for (int64_t t = 0; t < y->type.dim[0]; t++)
        y->at[t] = inverse_rms(x[0]->at + t * d, d, hir_attr_float(op, HIR_A_EPS, 0));
    return true;
}

enum { SCORE_QUERIES, SCORE_BIAS, SCORE_INVERSE, SCORE_SOURCES }; /* operands of depth.scores */

/* out[heads]: source i of token t by one query, without the bias. */
static void score_source(const hir_op *op, const hir_array *const *x, int64_t t, int64_t i,
                         int64_t query, double *out) {
    const int64_t n = op->n_args - SCORE_SOURCES, heads = hir_attr_int(op, HIR_A_HEADS, 1);
    const int64_t d = x[SCORE_SOURCES]->type.dim[1];
    double factor = hir_attr_float(op, HIR_A_SCALE, 1);
    if (x[SCORE_INVERSE]) factor *= x[SCORE_INVERSE]->at[t * n + i];
    for (int64_t h = 0; h < heads; h++)
        out[h] = score(x[SCORE_QUERIES]->at + query * d, x[SCORE_SOURCES + i]->at + t * d,
                       d / heads, h, factor);
}

bool eval_depth_scores(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t n = op->n_args - SCORE_SOURCES, queries = y->type.dim[2];
    const int64_t heads = hir_attr_int(op, HIR_A_HEADS, 1);
    const bool own_query = hir_type_has_t(hir_ref_type(c->m, op->args[SCORE_QUERIES]));
    double *out = y->at;
    for (int64_t t = 0; t < y->type.dim[0]; t++)
        for (int64_t i = 0; i < n; i++)
            for (int64_t s = 0; s < queries; s++, out += heads) {
                const double bias = x[SCORE_BIAS] ? x[SCORE_BIAS]->at[i * queries + s] : 0;
                score_source(op, x, t, i, own_query ? t : s, out);
                for (int64_t h = 0; h < heads; h++)
                    out[h] += bias;
            }
    return true;
}

bool eval_depth_mix(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    int64_t n = op->n_args - 1, heads = hir_attr_int(op, HIR_A_HEADS, 1), d = y->type.dim[1];
    (void)c;
    for (int64_t t = 0; t < y->type.dim[0]; t++) {
        const double *w = row_of(x[0], heads > 1 ? 3 : 2, t);
        for (int64_t i = 0; i < n; i++)
            for (int64_t k = 0; k < d; k++)
                y->at[t * d + k] += w[i * heads + k / (d / heads)] * x[1 + i]->at[t * d + k];
    }
    return true;
}

bool eval_depth_merge(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    enum { PARTIAL_MIX, MIX_LSE, LIVE, SCORE };
    int64_t heads = hir_attr_int(op, HIR_A_HEADS, 1), d = y->type.dim[1];
    (void)c;
    for (int64_t t = 0; t < y->type.dim[0]; t++)
        for (int64_t k = 0; k < d; k++) {
            int64_t h = k / (d / heads);
            double difference = row_of(x[SCORE], 2, t)[h] - row_of(x[MIX_LSE], 2, t)[h];
            double o = x[PARTIAL_MIX]->at[t * d + k], live = x[LIVE]->at[t * d + k];
            y->at[t * d + k] = o + (live - o) / (1 + exp(-difference));
        }
    return true;
}
