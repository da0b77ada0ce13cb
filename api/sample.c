/* Sampling as include/hadal/hadal.h describes it. Only ids that may be chosen are sorted: with V
 * logits, all ids whose share is below (1 - p) / V have less than 1 - p together, so that none of
 * them is needed for a sum of p. */
#include "api/sample.h"

#include <math.h>
#include <stdlib.h>

sampler api_sampler(hd_arena *a, const hadal_generate_options *o, size_t n) {
    return (sampler){.temperature = o->temperature,
                     .top_p = o->top_p,
                     .top_k = (size_t)o->top_k < n ? (size_t)o->top_k : 0,
                     .random = hir_random_stream(o->seed, "generate"),
                     .n = n,
                     .weight = hd_new_array(a, double, n),
                     .order = hd_new_array(a, int32_t, n)};
}

static int32_t largest(const float *logits, size_t n) {
    int32_t best = -1;
    for (size_t i = 0; i < n; i++)
        if (best < 0 ? logits[i] >= -INFINITY : logits[i] > logits[best]) best = (int32_t)i;
    return best >= 0 && isfinite(logits[best]) ? best : -1;
}

static int by_weight(const void *x, const void *y, void *context) {
    const double *weight = context;
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    if (weight[a] != weight[b]) return weight[a] > weight[b] ? -1 : 1;
    return (a > b) - (a < b);
}

static double sum(const sampler *s) {
    double all = 0;
    for (size_t i = 0; i < s->n; i++)
        all += s->weight[i];
    return all;
}

/* Sorts the ids whose weight is at least `least`; the result is their number. */
static size_t sort_from(sampler *s, double least) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->weight[i] > 0 && s->weight[i] >= least) s->order[n++] = (int32_t)i;
    qsort_r(s->order, n, sizeof *s->order, by_weight, s->weight);
    return n;
}

/* Keeps the first `kept` ids of the order; all others get the weight 0. */
static void keep(sampler *s, size_t kept) {
    double *at = s->weight;
    for (size_t i = 0; i < kept; i++)
        at[s->order[i]] = -at[s->order[i]];
    for (size_t i = 0; i < s->n; i++)
        at[i] = at[i] < 0 ? -at[i] : 0;
}

/* The k-th largest weight, found by halving the interval that it lies in until few ids are left. */
static double weight_of_rank(const sampler *s, size_t k) {
    double low = 0, high = 1; /* the largest weight is 1: at least k are >= low, fewer are > high */
    for (int i = 0; i < 40; i++) {
        const double middle =
            i < 30 ? sqrt((low > 1e-300 ? low : 1e-300) * high) : (low + high) / 2;
        size_t n = 0;
        for (size_t j = 0; j < s->n; j++)
            n += s->weight[j] >= middle;
        if (n >= k && n <= 2 * k) return middle;
        *(n >= k ? &low : &high) = middle;
    }
    return low;
}

static void keep_top_k(sampler *s) {
    const size_t n = sort_from(s, weight_of_rank(s, s->top_k));
    keep(s, n < s->top_k ? n : s->top_k);
}

static void keep_top_p(sampler *s) {
    const double all = sum(s), wanted = s->top_p * all;
    const size_t n = sort_from(s, (1 - s->top_p) * all / (double)s->n);
    double have = 0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || have < wanted))
        have += s->weight[s->order[kept++]];
    keep(s, kept);
}

static int32_t draw(sampler *s) {
    const double u = (double)(hir_random_next(&s->random) >> 11) * 0x1p-53, bound = u * sum(s);
    double running = 0;
    int32_t last = -1;
    for (size_t i = 0; i < s->n; i++) {
        if (s->weight[i] == 0) continue;
        last = (int32_t)i;
        running += s->weight[i];
        if (running > bound) break;
    }
    return last;
}

int32_t api_sample(sampler *s, const float *logits) {
    const int32_t best = largest(logits, s->n);
    if (best < 0 || s->temperature <= 0) return best;
    for (size_t i = 0; i < s->n; i++) {
        const double l = ((double)logits[i] - logits[best]) / s->temperature;
        s->weight[i] = l <= 0 ? exp(l) : 0; /* NaN is left out */
    }
    if (s->top_k) keep_top_k(s);
    if (s->top_p < 1) keep_top_p(s);
    return draw(s);
}

/* ---- the likeliest next tokens --------------------------------------------------------------- */

static int by_logit(const void *x, const void *y, void *context) {
    const float *logits = context;
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    if (logits[a] != logits[b]) return logits[a] > logits[b] ? -1 : 1;
    return (a > b) - (a < b);
}

/* Are the logits numbers? -infinity stands for a token that never comes; if all of them are, there
 * is no distribution. */
static bool are_numbers(const float *logits, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return false;
        any |= isfinite(logits[i]) != 0;
    }
    return any;
}

static bool reject_logits(hadal_session *s) {
    hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "the logits of the last token are no numbers")
        ->hint = "weights of another model, or numbers beyond what a type can hold";
    return false;
}

bool api_keep_next(hadal_session *s, const float *logits, size_t n, int64_t most) {
    const size_t kept = (uint64_t)most < n ? (size_t)most : n;
    int32_t *order = hd_new_array(s->arena, int32_t, n);
    hadal_next_token *next = hd_new_array(s->arena, hadal_next_token, kept);
    double sum = 0;
    if (!are_numbers(logits, n)) return reject_logits(s);
    for (size_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    qsort_r(order, n, sizeof *order, by_logit, (void *)logits);
    const double largest = logits[order[0]];
    for (size_t i = n; i-- > 0;) /* sums small numbers first */
        sum += exp(logits[order[i]] - largest);
    for (size_t i = 0; i < kept; i++) {
        const float logit = logits[order[i]];
        next[i] = (hadal_next_token){order[i], logit, exp(logit - largest) / sum};
    }
    s->next = next, s->n_next = kept;
    return true;
}

const hadal_next_token *hadal_next_tokens(const hadal_session *s, size_t *n) {
    *n = s->n_next;
    return s->next;
}
