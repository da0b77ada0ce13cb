/* Evaluator rules of ops that pass a state of fixed size from token to token. The state is rounded
 * to its storage type wherever it is read again, also within a call, so that it does not matter how
 * a prompt is cut into calls. */
#include <string.h>

#include "ir/eval/private.h"

static hir_dtype state_type(const eval_call *c, const hir_op *op, uint32_t i) {
    return hir_ref_type(c->m, op->args[i]).dtype;
}

/* ---- short convolution ----------------------------------------------------------------------- */

/* Channel i of an earlier row of x: of this call, of the window, or before the start. */
static double earlier(const eval_call *c, const hir_array *x, const hir_array *window,
                      hir_dtype dtype, int64_t position, int64_t i) {
    const int64_t channels = x->type.dim[1], rows = window->type.dim[0], past = c->C - c->T;
    if (position < 0) return 0;
    if (position < past) return window->at[position % rows * channels + i];
    return hir_rounded(dtype, x->at[(position - past) * channels + i]);
}

bool eval_short_conv(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const hir_type taps = x[1]->type;
    const bool own = hir_type_has_t(hir_ref_type(c->m, op->args[1]));
    const int64_t n = taps.dim[taps.rank - 1], groups = taps.dim[taps.rank - 2];
    const int64_t channels = x[0]->type.dim[1], past = c->C - c->T;
    const int64_t apart = hir_attr_int(op, HIR_A_DILATION, 1), kept = (n - 1) * apart;
    const hir_dtype dtype = state_type(c, op, 3);
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t i = 0; i < channels; i++) {
            const double *w = x[1]->at + ((own ? t * groups : 0) + i / (channels / groups)) * n;
            double sum = w[n - 1] * x[0]->at[t * channels + i];
            for (int64_t j = 0; j < n - 1; j++)
                sum += w[j] * earlier(c, x[0], x[3], dtype, past + t - (n - 1 - j) * apart, i);
            y->at[t * channels + i] = sum + (x[2] ? x[2]->at[i] : 0);
        }
    for (int64_t t = c->T > kept ? c->T - kept : 0; t < c->T; t++)
        for (int64_t i = 0; i < channels; i++)
            x[3]->at[(past + t) % kept * channels + i] =
                hir_rounded(dtype, x[0]->at[t * channels + i]);
    return true;
}

/* ---- delta rule ------------------------------------------------------------------------------ */

/* One head and token. S is [n][m]; decay has n elements, or one for all rows. */
typedef struct head {
    const double *q, *k, *v, *decay;
    double *s;
    int64_t n, m;
    bool one_decay, additive;
    double beta, scale;
    hir_dtype dtype;
} head;

static void decay_state(const head *a) {
    for (int64_t i = 0; i < a->n && a->decay; i++)
        for (int64_t j = 0; j < a->m; j++)
            a->s[i * a->m + j] *= a->decay[a->one_decay ? 0 : i];
}

/* sum_i x[i] S[i][j] */
static double column_dot(const head *a, const double *x, int64_t j) {
    double sum = 0;
    for (int64_t i = 0; i < a->n; i++)
        sum += x[i] * a->s[i * a->m + j];
    return sum;
}

static void delta_token(const head *a, double *o) {
    decay_state(a);
    for (int64_t j = 0; j < a->m; j++) {
        const double held = a->additive ? 0 : column_dot(a, a->k, j);
        const double change = a->beta * (a->v[j] - held);
        for (int64_t i = 0; i < a->n; i++)
            a->s[i * a->m + j] += a->k[i] * change;
        o[j] = a->scale * column_dot(a, a->q, j);
    }
    for (int64_t i = 0; i < a->n * a->m; i++)
        a->s[i] = hir_rounded(a->dtype, a->s[i]);
}

bool eval_delta_rule(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t groups = x[0]->type.dim[1], n = x[0]->type.dim[2];
    const int64_t heads = x[2]->type.dim[1], m = x[2]->type.dim[2];
    const int64_t decays = x[3] ? x[3]->type.dim[2] : 0;
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t h = 0; h < heads; h++) {
            const int64_t g = t * groups + h / (heads / groups), at = t * heads + h;
            const head a = {
                .q = x[0]->at + g * n,
                .k = x[1]->at + g * n,
                .v = x[2]->at + at * m,
                .decay = x[3] ? x[3]->at + at * decays : NULL,
                .s = x[5]->at + h * n * m,
                .n = n,
                .m = m,
                .one_decay = decays == 1,
                .additive = hir_is_additive(op),
                .beta = x[4] ? x[4]->at[at] : 1,
                .scale = hir_attr_float(op, HIR_A_SCALE, 1),
                .dtype = state_type(c, op, 5),
            };
            delta_token(&a, y->at + at * m);
        }
    return true;
}
