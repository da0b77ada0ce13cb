/* Evaluator rules of language models: contractions, tokens, positions, attention over the cache. */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"
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
        if (id >= (double)rows) id = (double)hir_attr_int(op, HIR_A_BEYOND, (int64_t)id);
        if (!(id >= 0 && id < (double)rows)) {
            hd_diag *diag = hd_err(c->d, HD_E_VALUE, *op->loc, "token %lld of the call is %.0f",
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

/* Short wavelengths are kept, long ones stretched, those between blended (Llama 3.1). */
static double llama3(const hir_op *op, double f, double factor) {
    double low = hir_attr_float(op, HIR_A_LOW_FREQ, 1);
    double high = hir_attr_float(op, HIR_A_HIGH_FREQ, 1);
    double turns = (double)hir_attr_int(op, HIR_A_ORIGINAL, 1) * f / (2 * M_PI); /* o / w */
    if (turns > high) return f;
    if (turns < low) return f / factor;
    double s = (turns - low) / (high - low);
    return (1 - s) * f / factor + s * f;
}

/* The number j, a fraction, of the frequency that turns `times` times within the original positions
 * (Peng et al. 2023, "YaRN", arXiv 2309.00071). */
static double turns_often(const hir_op *op, double times) {
    double half = (double)hir_attr_int(op, HIR_A_LENGTH, 0) / 2;
    double positions = (double)hir_attr_int(op, HIR_A_ORIGINAL, 1);
    return half * log(positions / (2 * M_PI * times)) / log(hir_attr_float(op, HIR_A_THETA, 0));
}

static double yarn(const hir_op *op, int64_t j, double f, double factor) {
    double low = turns_often(op, hir_attr_float(op, HIR_A_BETA_FAST, 32));
    double high = turns_often(op, hir_attr_float(op, HIR_A_BETA_SLOW, 1));
    if (hir_attr_int(op, HIR_A_TRUNCATE, 1)) low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)hir_attr_int(op, HIR_A_LENGTH, 0) - 1);
    if (high == low) high += 0.001;
    double r = fmin(fmax(((double)j - low) / (high - low), 0), 1);
    return f * (1 - r) + f / factor * r;
}

/* f_j of the table at position p, 0 <= j < length / 2 */
static double frequency(const hir_op *op, int64_t j, int64_t p) {
    double length = (double)hir_attr_int(op, HIR_A_LENGTH, 0);
    if (j >= hir_attr_int(op, HIR_A_ROTATING, INT64_MAX)) return 0;
    double f = pow(hir_attr_float(op, HIR_A_THETA, 0), -2 * (double)j / length);
    const char *scaling = hir_attr_string(op, HIR_A_SCALING, "");
    double factor = hir_attr_float(op, HIR_A_FACTOR, 1);
    if (!strcmp(scaling, "linear")) return f / factor;
    if (!strcmp(scaling, "llama3")) return llama3(op, f, factor);
    if (!strcmp(scaling, "yarn")) return yarn(op, j, f, factor);
    if (!strcmp(scaling, "longrope")) {
        bool beyond = p >= hir_attr_int(op, HIR_A_ORIGINAL, 1);
        hir_attr_id factors = beyond ? HIR_A_LONG_FACTORS : HIR_A_SHORT_FACTORS;
        return f / hir_find_attr(op, factors)->floats[j];
    }
    return f;
}

bool eval_rope_table(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)x;
    int64_t length = y->type.dim[y->type.rank - 1], half = length / 2;
    double by = hir_attr_float(op, HIR_A_ATTENTION_FACTOR, 1);
    for (int64_t t = 0; t < c->T; t++)
        for (int64_t j = 0; j < half; j++) {
            int64_t p = c->C - c->T + t + hir_attr_int(op, HIR_A_OFFSET, 0);
            double angle = (double)p * frequency(op, j, p);
            y->at[t * length + j] = by * cos(angle);
            y->at[t * length + half + j] = by * sin(angle);
        }
    return true;
}

bool eval_rope(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    int64_t n = x[0]->type.dim[2], heads = x[0]->type.dim[1];
    int64_t m = x[1]->type.dim[1], half = m / 2, start = hir_attr_int(op, HIR_A_START, 0);
    bool adjacent = !strcmp(hir_attr_string(op, HIR_A_PAIRS, "halves"), "adjacent");
    int64_t step = adjacent ? 2 : 1, apart = adjacent ? 1 : half;
    memcpy(y->at, x[0]->at, (size_t)y->n * sizeof *y->at);
    for (int64_t row = 0; row * n < y->n; row++) {
        const double *cosine = x[1]->at + row / heads * m, *sine = cosine + half;
        for (int64_t j = 0; j < half; j++) {
            int64_t at = row * n + start + j * step;
            double a = x[0]->at[at], b = x[0]->at[at + apart];
            y->at[at] = a * cosine[j] - b * sine[j];
            y->at[at + apart] = b * cosine[j] + a * sine[j];
        }
    }
    return true;
}

/* ---- state over time ------------------------------------------------------------------------- */

bool eval_cache_append(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const hir_type state = hir_ref_type(c->m, op->args[1]);
    const int64_t row = x[0]->n / c->T, rate = hir_rate(state.dim[0]), past = c->C - c->T;
    for (int64_t t = 0; t < c->T; t++) { /* of the positions of one row, the last one writes it */
        if ((past + t + 1) % rate != 0) continue;
        for (int64_t i = 0; i < row; i++)
            x[1]->at[(past + t) / rate * row + i] = hir_rounded(state.dtype, x[0]->at[t * row + i]);
    }
    y->at = x[1]->at;
    y->n = x[1]->n;
    return true;
}

/* One query head of one token, at position p, over the positions first .. p. Rows of k and v are
 * `k_row` and `v_row` elements apart. */
typedef struct head {
    const double *q, *k, *v;
    int64_t n, m, k_row, v_row, p, first;
    double scale, softcap;
    double sink; /* -inf: none */
    const double *bias;
    int64_t extent;  /* 0: no bias */
    double *carried; /* by position: scores of earlier layers; NULL: none */
    double factor;   /* of the sums */
    bool begins;
} head;

static double logit(const head *a, int64_t s) {
    double l = a->scale * eval_dot(a->q, a->k + s * a->k_row, a->n);
    if (a->carried) {
        a->carried[s] = a->begins ? l : a->carried[s] + l;
        return a->factor * a->carried[s];
    }
    if (a->softcap > 0) l = a->softcap * tanh(l / a->softcap);
    if (a->p - s >= a->extent) return l;
    hd_known(a->bias);
    return l + a->bias[a->p - s];
}

static void attend(const head *a, double *l, double *o) {
    double max = a->sink;
    for (int64_t s = a->first; s <= a->p; s++) {
        l[s] = logit(a, s);
        if (l[s] > max) max = l[s];
    }
    double sum = a->sink > -INFINITY ? exp(a->sink - max) : a->sink == -INFINITY ? 0 : NAN;
    for (int64_t s = a->first; s <= a->p; s++) {
        double weight = exp(l[s] - max);
        sum += weight;
        for (int64_t i = 0; i < a->m; i++)
            o[i] += weight * a->v[s * a->v_row + i];
    }
    for (int64_t i = 0; i < a->m; i++)
        o[i] /= sum;
}

/* The attributes of the op for head h of token t, and its sink and bias; without q, k and v. */
static head head_of(const eval_call *c, const hir_op *op, const hir_array *const *options,
                    int64_t heads, int64_t h, int64_t t) {
    const int64_t window = hir_attr_int(op, HIR_A_WINDOW, c->C), p = c->C - c->T + t;
    const hir_array *sink = options[0], *bias = options[1];
    head a = {.p = p, .first = p >= window ? p - window + 1 : 0, .sink = -INFINITY};
    a.scale = hir_attr_float(op, HIR_A_SCALE, 1);
    a.softcap = hir_attr_float(op, HIR_A_SOFTCAP, 0);
    if (sink) a.sink = sink->at[sink->type.rank == 2 ? t * heads + h : h];
    if (bias) a.extent = bias->type.dim[2], a.bias = bias->at + (t * heads + h) * a.extent;
    return a;
}

bool eval_attention(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    int64_t tokens = x[0]->type.dim[0], heads = x[0]->type.dim[1], n = x[0]->type.dim[2];
    int64_t groups = x[1]->type.dim[1], m = x[2]->type.dim[2];
    double *l = hd_new_array(c->scratch, double, (size_t)c->C);
    for (int64_t h = 0; h < heads; h++) /* outermost, so that one head of k and v stays in cache */
        for (int64_t t = 0; t < tokens; t++) {
            int64_t g = h / (heads / groups);
            head a = head_of(c, op, x + 3, heads, h, t);
            a.q = x[0]->at + (t * heads + h) * n, a.n = n, a.m = m;
            a.k = x[1]->at + g * n, a.k_row = groups * n;
            a.v = x[2]->at + g * m, a.v_row = groups * m;
            attend(&a, l, y->at + (t * heads + h) * m);
        }
    return true;
}

/* The state is [T][H][C]. Positions before a window are carried, too: a later op may see them. */
bool eval_attention_carried(eval_call *c, const hir_op *op, const hir_array *const *x,
                            hir_array *y) {
    const int64_t tokens = x[0]->type.dim[0], heads = x[0]->type.dim[1], n = x[0]->type.dim[2];
    const int64_t groups = x[1]->type.dim[1], m = x[2]->type.dim[2];
    double *l = hd_new_array(c->scratch, double, (size_t)c->C);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t g = h / (heads / groups);
            head a = head_of(c, op, (const hir_array *const[]){x[3], NULL}, heads, h, t);
            a.q = x[0]->at + (t * heads + h) * n, a.n = n, a.m = m;
            a.k = x[1]->at + g * n, a.k_row = groups * n;
            a.v = x[2]->at + g * m, a.v_row = groups * m;
            a.carried = x[4]->at + (t * heads + h) * c->C;
            a.factor = hir_attr_float(op, HIR_A_FACTOR, 1);
            a.begins = hir_attr_int(op, HIR_A_BEGIN, 0);
            for (int64_t s = 0; s < a.first; s++)
                logit(&a, s);
            attend(&a, l, y->at + (t * heads + h) * m);
        }
    return true;
}

/* ---- latent attention ------------------------------------------------------------------------ */
/* c and p of each position, of one of the heads that are cached. */
typedef struct latent_rows {
    const double *c, *p;
    int64_t r, m, c_row, p_row;
} latent_rows;

/* x: rows, q_shared, shared */
static latent_rows rows_of(const hir_op *op, const hir_array *const *x, int64_t r, int64_t group) {
    const int64_t n = x[0]->type.dim[2], start = hir_attr_int(op, HIR_A_START, 0);
    latent_rows l = {.r = r, .m = x[1] ? x[1]->type.dim[2] : 0, .c_row = n * x[0]->type.dim[1]};
    l.c = x[0]->at + group * n + start;
    l.p = x[2] ? x[2]->at + group * l.m : x[0]->at + group * n + (start ? 0 : r);
    l.p_row = x[2] ? l.m * x[2]->type.dim[1] : l.c_row;
    return l;
}

/* k[C][n + m]: w c, or c itself, followed by p. */
static double *keys_of(const eval_call *c, const latent_rows *l, const double *w, int64_t n) {
    double *k = hd_new_array(c->scratch, double, (size_t)(c->C * (n + l->m)));
    for (int64_t s = 0; s < c->C; s++) {
        double *row = k + s * (n + l->m);
        for (int64_t i = 0; i < n; i++)
            row[i] = w ? eval_dot(w + i * l->r, l->c + s * l->c_row, l->r) : l->c[s * l->c_row + i];
        for (int64_t i = 0; i < l->m; i++)
            row[n + i] = l->p[s * l->p_row + i];
    }
    return k;
}

/* Attends with all tokens of head h: q [T, H, n] and x[0] [T, H, m], which multiplies the shared
 * part; a has k and v. */
static void attend_tokens(eval_call *c, const hir_op *op, head a, const hir_array *q,
                          const hir_array *shared, const hir_array *const *options, int64_t h,
                          hir_array *y) {
    const int64_t heads = q->type.dim[1], n = q->type.dim[2], m = a.n - n;
    double *l = hd_new_array(c->scratch, double, (size_t)c->C);
    double *both = hd_new_array(c->scratch, double, (size_t)a.n);
    for (int64_t t = 0; t < q->type.dim[0]; t++) {
        head at = head_of(c, op, options, heads, h, t);
        at.k = a.k, at.v = a.v, at.n = a.n, at.m = a.m, at.k_row = a.k_row, at.v_row = a.v_row;
        memcpy(both, q->at + (t * heads + h) * n, (size_t)n * sizeof *both);
        if (m) memcpy(both + n, shared->at + (t * heads + h) * m, (size_t)m * sizeof *both);
        at.q = both;
        attend(&at, l, y->at + (t * heads + h) * a.m);
    }
}

bool eval_attention_latent(eval_call *c, const hir_op *op, const hir_array *const *x,
                           hir_array *y) {
    const int64_t heads = x[0]->type.dim[1], r = x[0]->type.dim[2], groups = x[1]->type.dim[1];
    for (int64_t g = 0; g < groups; g++) {
        const latent_rows l = rows_of(op, x + 1, r, g);
        const head a = {.k = keys_of(c, &l, NULL, r),
                        .n = r + l.m,
                        .k_row = r + l.m,
                        .v = l.c,
                        .m = r,
                        .v_row = l.c_row};
        for (int64_t h = g * (heads / groups); h < (g + 1) * (heads / groups); h++)
            attend_tokens(c, op, a, x[0], x[2], x + 4, h, y);
    }
    return true;
}

/* Compares the results of the two ways, which compute the same function: where they differ there is
 * no value. Their matrices may be stored in different types, so they have to agree only as far as
 * numbers of 8 bits do. */
static void compare_forms(const hir_array *other, hir_array *y) {
    double most = 0, apart = 0;
    for (int64_t i = 0; i < y->n; i++) {
        const double d = fabs(y->at[i] - other->at[i]);
        if (isnan(y->at[i]) && isnan(other->at[i])) continue;
        most = fmax(most, fabs(y->at[i]));
        apart = d <= apart ? apart : isnan(d) ? INFINITY : d;
    }
    for (int64_t i = 0; i < y->n && apart > 0.02 * most; i++)
        y->at[i] = NAN;
}

bool eval_attention_expanded(eval_call *c, const hir_op *op, const hir_array *const *x,
                             hir_array *y) {
    const hir_array *q = x[1], *w_k = x[5], *w_v = x[6];
    const int64_t heads = w_k->type.dim[0], n = w_k->type.dim[1], r = w_k->type.dim[2];
    const int64_t per_head = q->type.dim[1] / heads, m = w_v->type.dim[1];
    for (int64_t j = 0; j < heads; j++) {
        const latent_rows l = rows_of(op, x + 2, r, j / (heads / x[2]->type.dim[1]));
        latent_rows alone = l;
        alone.m = 0;
        const head a = {.k = keys_of(c, &l, w_k->at + j * n * r, n),
                        .n = n + l.m,
                        .k_row = n + l.m,
                        .v = keys_of(c, &alone, w_v->at + j * m * r, m),
                        .m = m,
                        .v_row = m};
        for (int64_t h = j * per_head; h < (j + 1) * per_head; h++)
            attend_tokens(c, op, a, q, x[3], x + 7, h, y);
    }
    if (c->C <= hir_attr_int(op, HIR_A_MOST, c->C)) return compare_forms(x[0], y), true;
    memcpy(y->at, x[0]->at, (size_t)y->n * sizeof *y->at);
    return true;
}
