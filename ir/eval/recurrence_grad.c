/* Evaluator rules of the gradients of pool, short_conv and delta_rule, of sequences that begin with
 * an empty state. */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

/* ---- pool ------------------------------------------------------------------------------------ */

typedef struct pooling {
    const hir_array *x, *gate, *place;
    double *dx, *dgate, *dplace; /* NULL: not wanted */
    int64_t length, channels;
    double *weight; /* of each position of a window */
} pooling;

/* Channel i of the window of positions from .. p; those before `half` use channel i, the others
 * channel i + shift. */
static void pool_channel(const pooling *a, int64_t from, int64_t half, int64_t shift, int64_t p,
                         int64_t i, double dy) {
    double max = -INFINITY, sum = 0, y = 0;
    for (int64_t s = from; s <= p; s++) {
        const int64_t at = s < half ? i : i + shift;
        double *w = &a->weight[s - from];
        *w = a->gate->at[s * a->channels + at];
        if (a->place) *w += a->place->at[s % a->length * a->channels + at];
        max = fmax(max, *w);
    }
    for (int64_t s = from; s <= p; s++)
        sum += a->weight[s - from] = exp(a->weight[s - from] - max);
    for (int64_t s = from; s <= p; s++) {
        a->weight[s - from] /= sum;
        y += a->weight[s - from] * a->x->at[s * a->channels + (s < half ? i : i + shift)];
    }
    for (int64_t s = from; s <= p; s++) {
        const int64_t at = s < half ? i : i + shift, row = s * a->channels + at;
        const double w = a->weight[s - from], dlogit = w * (a->x->at[row] - y) * dy;
        if (a->dx) a->dx[row] += w * dy;
        if (a->dgate) a->dgate[row] += dlogit;
        if (a->dplace) a->dplace[s % a->length * a->channels + at] += dlogit;
    }
}

bool eval_pool_grad(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t length = hir_attr_int(op, HIR_A_LENGTH, 2), n = x[3]->type.dim[1];
    const bool halves = hir_attr_int(op, HIR_A_HALVES, 0) != 0;
    const pooling a = {.x = x[0],
                       .gate = x[1],
                       .place = x[2],
                       .dx = eval_wanted(op, "x", y),
                       .dgate = eval_wanted(op, "gate", y),
                       .dplace = eval_wanted(op, "place", y),
                       .length = length,
                       .channels = x[0]->type.dim[1],
                       .weight = hd_new_array(c->scratch, double, (size_t)(2 * length))};
    if (!eval_from_the_start(c, op)) return false;
    for (int64_t p = length - 1; p < c->T; p += length) {
        const int64_t half = p - length + 1, from = halves && half >= length ? half - length : half;
        for (int64_t i = 0; i < n; i++)
            pool_channel(&a, from, half, halves ? n : 0, p, i, x[3]->at[p * n + i]);
    }
    return true;
}

/* ---- short convolution ----------------------------------------------------------------------- */

bool eval_short_conv_grad(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const hir_type taps = x[1]->type;
    const bool own = hir_type_has_t(hir_ref_type(c->m, op->args[1]));
    const int64_t n = taps.dim[taps.rank - 1], groups = taps.dim[taps.rank - 2];
    const int64_t channels = x[0]->type.dim[1], distance = hir_attr_int(op, HIR_A_DILATION, 1);
    double *dx = eval_wanted(op, "x", y), *dtaps = eval_wanted(op, "taps", y);
    if (!eval_from_the_start(c, op)) return false;
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t i = 0; i < channels; i++) {
            const int64_t w = ((own ? t * groups : 0) + i / (channels / groups)) * n;
            const double dy = x[2]->at[t * channels + i];
            for (int64_t j = 0; j < n; j++) {
                const int64_t from = t - (n - 1 - j) * distance;
                if (from < 0) continue;
                if (dx) dx[from * channels + i] += x[1]->at[w + j] * dy;
                if (dtaps) dtaps[w + j] += x[0]->at[from * channels + i] * dy;
            }
        }
    return true;
}

/* ---- delta rule ------------------------------------------------------------------------------ */

/* One head. The states before each token are kept. */
typedef struct head {
    int64_t n, m, heads, groups, h, g, decays;
    const double *q, *k, *v, *decay, *beta, *dy;
    double *dq, *dk, *dv, *ddecay, *dbeta; /* NULL: not wanted */
    double scale;
    bool additive;
    double *states; /* [T + 1][n][m] */
    double *r;      /* the gradient of the state, [n][m] */
    double *e, *de; /* [m] */
} head;

static double decay_of(const head *a, int64_t t, int64_t i) {
    if (!a->decay) return 1;
    return a->decay[(t * a->heads + a->h) * a->decays + (a->decays == 1 ? 0 : i)];
}

/* e = v - S'^T k, with S' the state after the decay. */
static void change(const head *a, int64_t t) {
    const double *s = a->states + t * a->n * a->m, *k = a->k + (t * a->groups + a->g) * a->n;
    for (int64_t j = 0; j < a->m; j++) {
        a->e[j] = a->v[(t * a->heads + a->h) * a->m + j];
        for (int64_t i = 0; i < a->n && !a->additive; i++)
            a->e[j] -= decay_of(a, t, i) * s[i * a->m + j] * k[i];
    }
}

static void forward(const head *a, int64_t t) {
    const double *s = a->states + t * a->n * a->m, *k = a->k + (t * a->groups + a->g) * a->n;
    double *next = a->states + (t + 1) * a->n * a->m;
    const double beta = a->beta ? a->beta[t * a->heads + a->h] : 1;
    change(a, t);
    for (int64_t i = 0; i < a->n; i++)
        for (int64_t j = 0; j < a->m; j++)
            next[i * a->m + j] = decay_of(a, t, i) * s[i * a->m + j] + beta * k[i] * a->e[j];
}

static void add_to(double *at, int64_t i, double x) {
    if (at) at[i] += x;
}

/* The change at t: R is the gradient of the state after it, and becomes that of the state before
 * it. */
static void backward_change(const head *a, int64_t t) {
    const double *s = a->states + t * a->n * a->m, *k = a->k + (t * a->groups + a->g) * a->n;
    const int64_t at = t * a->heads + a->h, at_k = (t * a->groups + a->g) * a->n;
    const double beta = a->beta ? a->beta[at] : 1;
    change(a, t);
    memset(a->de, 0, (size_t)a->m * sizeof *a->de);
    for (int64_t i = 0; i < a->n; i++) {
        const double re = eval_dot(a->r + i * a->m, a->e, a->m);
        add_to(a->dbeta, at, k[i] * re);
        add_to(a->dk, at_k + i, beta * re);
        for (int64_t j = 0; j < a->m; j++)
            a->de[j] += beta * k[i] * a->r[i * a->m + j];
    }
    for (int64_t j = 0; j < a->m; j++)
        add_to(a->dv, at * a->m + j, a->de[j]);
    for (int64_t i = 0; i < a->n; i++) {
        const double decay = decay_of(a, t, i);
        const double *row = s + i * a->m;
        double *r = a->r + i * a->m;
        if (!a->additive) add_to(a->dk, at_k + i, -decay * eval_dot(row, a->de, a->m));
        for (int64_t j = 0; j < a->m && !a->additive; j++)
            r[j] -= k[i] * a->de[j];
        add_to(a->ddecay, at * a->decays + (a->decays == 1 ? 0 : i), eval_dot(r, row, a->m));
        for (int64_t j = 0; j < a->m; j++)
            r[j] *= decay;
    }
}

static void backward(const head *a, int64_t t) {
    const double *after = a->states + (t + 1) * a->n * a->m;
    const double *q = a->q + (t * a->groups + a->g) * a->n;
    const double *dy = a->dy + (t * a->heads + a->h) * a->m;
    for (int64_t i = 0; i < a->n; i++) {
        add_to(a->dq, (t * a->groups + a->g) * a->n + i,
               a->scale * eval_dot(after + i * a->m, dy, a->m));
        for (int64_t j = 0; j < a->m; j++)
            a->r[i * a->m + j] += a->scale * q[i] * dy[j];
    }
    backward_change(a, t);
}

bool eval_delta_rule_grad(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    head a = {.n = x[0]->type.dim[2],
              .m = x[2]->type.dim[2],
              .heads = x[2]->type.dim[1],
              .groups = x[0]->type.dim[1],
              .decays = x[3] ? x[3]->type.dim[2] : 0,
              .q = x[0]->at,
              .k = x[1]->at,
              .v = x[2]->at,
              .decay = x[3] ? x[3]->at : NULL,
              .beta = x[4] ? x[4]->at : NULL,
              .dy = x[5]->at,
              .dq = eval_wanted(op, "q", y),
              .dk = eval_wanted(op, "k", y),
              .dv = eval_wanted(op, "v", y),
              .ddecay = eval_wanted(op, "decay", y),
              .dbeta = eval_wanted(op, "beta", y),
              .scale = hir_attr_float(op, HIR_A_SCALE, 1),
              .additive = hir_is_additive(op)};
    if (!eval_from_the_start(c, op)) return false;
    a.states = eval_take(c, (c->T + 1) * a.n * a.m);
    if (!a.states) return eval_too_large(c, *op->loc, "the states of delta_rule", x[2]->type);
    a.r = hd_new_array(c->scratch, double, (size_t)(a.n * a.m));
    a.e = hd_new_array(c->scratch, double, (size_t)a.m);
    a.de = hd_new_array(c->scratch, double, (size_t)a.m);
    for (a.h = 0; a.h < a.heads; a.h++) {
        a.g = a.h / (a.heads / a.groups);
        memset(a.states, 0, (size_t)(a.n * a.m) * sizeof *a.states);
        memset(a.r, 0, (size_t)(a.n * a.m) * sizeof *a.r);
        for (int64_t t = 0; t < c->T; t++)
            forward(&a, t);
        for (int64_t t = c->T; t-- > 0;)
            backward(&a, t);
    }
    return true;
}
