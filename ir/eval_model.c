/* Evaluator rules of language models: contractions, tokens, positions, attention over the cache. */
#include <math.h>
#include <string.h>

#include "ir/eval_private.h"
#include "support/tensorfile.h"

double eval_dot(const double *a, const double *b, int64_t n) {
    double sum[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    double rest = 0;
    for (; i < n; i++)
        rest += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7])) + rest;
}

/* ---- contraction ----------------------------------------------------------------------------- */

bool eval_linear(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    enum { BLOCK = 32 }; /* rows of w that stay in cache over all rows of x */
    int64_t n = x[1]->type.dim[0], k = x[1]->type.dim[1], rows = x[0]->n / k;
    for (int64_t n0 = 0; n0 < n; n0 += BLOCK)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t j = n0; j < n0 + BLOCK && j < n; j++)
                y->at[r * n + j] =
                    eval_dot(x[0]->at + r * k, x[1]->at + j * k, k) + (x[2] ? x[2]->at[j] : 0);
    return true;
}

bool eval_block_linear(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    const int64_t groups = x[1]->type.dim[0], n = x[1]->type.dim[1], k = x[1]->type.dim[2];
    for (int64_t row = 0; row * k < x[0]->n; row++) /* of one group of one token */
        for (int64_t j = 0; j < n; j++)
            y->at[row * n + j] =
                eval_dot(x[0]->at + row * k, x[1]->at + (row % groups * n + j) * k, k);
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

bool eval_gather(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    int64_t rows = x[0]->type.dim[0], width = x[0]->n / rows;
    for (int64_t t = 0; t < x[1]->n; t++) {
        double id = x[1]->at[t];
        if (!(id >= 0 && id < (double)rows)) {
            hd_diag *diag = hd_err(c->d, HD_E_VALUE, op->loc, "token %lld of the call is %.0f",
                                   (long long)t, id);
            diag->cause =
                hd_printf(c->d->arena, "ids of this table are 0 to %lld", (long long)(rows - 1));
            return false;
        }
        memcpy(y->at + t * width, x[0]->at + (int64_t)id * width, (size_t)width * sizeof *y->at);
    }
    return true;
}

/* ---- positions ------------------------------------------------------------------------------- */

/* f_j of the table, 0 <= j < length / 2 */
static double frequency(const hir_op *op, int64_t j) {
    double length = (double)hir_attr_int(op, HIR_A_LENGTH, 0);
    double f = pow(hir_attr_float(op, HIR_A_THETA, 0), -2 * (double)j / length);
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, NULL);
    if (!scaling) return f;
    double factor = hir_attr_float(op, HIR_A_FACTOR, 1);
    if (!strcmp(scaling, "linear")) return f / factor;

    /* llama3: short wavelengths are kept, long ones stretched, those between interpolated */
    double low = hir_attr_float(op, HIR_A_LOW_FREQ, 1);
    double high = hir_attr_float(op, HIR_A_HIGH_FREQ, 1);
    double turns = (double)hir_attr_int(op, HIR_A_ORIGINAL, 1) * f / (2 * M_PI); /* o / w */
    if (turns > high) return f;
    if (turns < low) return f / factor;
    double s = (turns - low) / (high - low);
    return (1 - s) * f / factor + s * f;
}

bool eval_rope_table(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)x;
    int64_t length = y->type.dim[y->type.rank - 1], half = length / 2;
    for (int64_t j = 0; j < half; j++) {
        double f = frequency(op, j);
        for (int64_t t = 0; t < c->T; t++) {
            double angle = (double)(c->C - c->T + t) * f;
            y->at[t * length + j] = cos(angle);
            y->at[t * length + half + j] = sin(angle);
        }
    }
    return true;
}

bool eval_rope(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    int64_t n = x[1]->type.dim[1], half = n / 2, heads = x[0]->type.dim[1];
    for (int64_t row = 0; row * n < y->n; row++) {
        const double *a = x[0]->at + row * n, *b = a + half;
        const double *cosine = x[1]->at + row / heads * n, *sine = cosine + half;
        for (int64_t j = 0; j < half; j++) {
            y->at[row * n + j] = a[j] * cosine[j] - b[j] * sine[j];
            y->at[row * n + half + j] = b[j] * cosine[j] + a[j] * sine[j];
        }
    }
    return true;
}

/* ---- state over time ------------------------------------------------------------------------- */

bool eval_cache_append(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    hir_dtype dtype = hir_ref_type(c->m, op->args[1]).dtype;
    double *to = x[1]->at + (c->C - c->T) * (x[0]->n / c->T);
    for (int64_t i = 0; i < x[0]->n; i++)
        to[i] = hir_rounded(dtype, x[0]->at[i]);
    y->at = x[1]->at;
    y->n = x[1]->n;
    return true;
}

/* One query head of one token over `length` positions. Rows of k and v are `k_row` and `v_row`
 * elements apart. */
typedef struct head {
    const double *q, *k, *v;
    int64_t n, m, k_row, v_row, length;
    double scale;
} head;

static void attend(const head *a, double *p, double *o) {
    double max = -INFINITY, sum = 0;
    for (int64_t s = 0; s < a->length; s++) {
        p[s] = a->scale * eval_dot(a->q, a->k + s * a->k_row, a->n);
        if (p[s] > max) max = p[s];
    }
    for (int64_t s = 0; s < a->length; s++) {
        double weight = exp(p[s] - max);
        sum += weight;
        for (int64_t i = 0; i < a->m; i++)
            o[i] += weight * a->v[s * a->v_row + i];
    }
    for (int64_t i = 0; i < a->m; i++)
        o[i] /= sum;
}

bool eval_attention(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    int64_t tokens = x[0]->type.dim[0], heads = x[0]->type.dim[1], n = x[0]->type.dim[2];
    int64_t groups = x[1]->type.dim[1], m = x[2]->type.dim[2];
    double *p = hd_new_array(c->scratch, double, (size_t)c->C);
    for (int64_t h = 0; h < heads; h++) /* outermost, so that one head of k and v stays in cache */
        for (int64_t t = 0; t < tokens; t++) {
            int64_t g = h / (heads / groups);
            head a = {
                .q = x[0]->at + (t * heads + h) * n,
                .k = x[1]->at + g * n,
                .v = x[2]->at + g * m,
                .n = n,
                .m = m,
                .k_row = groups * n,
                .v_row = groups * m,
                .length = c->C - c->T + t + 1,
                .scale = hir_attr_float(op, HIR_A_SCALE, 1),
            };
            attend(&a, p, y->at + (t * heads + h) * m);
        }
    return true;
}

/* ---- latent attention ------------------------------------------------------------------------ */

/* One query head of one token: scores of c and of p, which may lie in the same row. */
typedef struct latent_head {
    const double *q, *q_p, *c, *p;
    int64_t r, m, c_row, p_row, length;
    double scale;
} latent_head;

static void attend_latent(const latent_head *a, double *p, double *o) {
    double max = -INFINITY, sum = 0;
    for (int64_t s = 0; s < a->length; s++) {
        p[s] = eval_dot(a->q, a->c + s * a->c_row, a->r);
        if (a->m) p[s] += eval_dot(a->q_p, a->p + s * a->p_row, a->m);
        p[s] *= a->scale;
        if (p[s] > max) max = p[s];
    }
    for (int64_t s = 0; s < a->length; s++) {
        const double weight = exp(p[s] - max);
        sum += weight;
        for (int64_t i = 0; i < a->r; i++)
            o[i] += weight * a->c[s * a->c_row + i];
    }
    for (int64_t i = 0; i < a->r; i++)
        o[i] /= sum;
}

bool eval_attention_latent(eval_call *c, const hir_op *op, const hir_array *const *x,
                           hir_array *y) {
    const int64_t tokens = x[0]->type.dim[0], heads = x[0]->type.dim[1], r = x[0]->type.dim[2];
    const int64_t n = x[1]->type.dim[2], start = hir_attr_int(op, HIR_A_START, 0);
    double *p = hd_new_array(c->scratch, double, (size_t)c->C);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens; t++) {
            latent_head a = {.q = x[0]->at + (t * heads + h) * r, .c = x[1]->at + start, .r = r};
            a.c_row = n, a.length = c->C - c->T + t + 1;
            a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
            a.m = x[2] ? x[2]->type.dim[2] : 0;
            a.q_p = a.m ? x[2]->at + (t * heads + h) * a.m : NULL;
            a.p = x[3] ? x[3]->at : x[1]->at + (start ? 0 : r);
            a.p_row = x[3] ? a.m : n;
            attend_latent(&a, p, y->at + (t * heads + h) * r);
        }
    return true;
}
