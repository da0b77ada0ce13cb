#include "api/next.h"

#include <math.h>
#include <stdlib.h>

static int by_logit(const void *x, const void *y, void *context) {
    const float *logits = context;
    const int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    if (logits[a] != logits[b]) return logits[a] > logits[b] ? -1 : 1;
    return (a > b) - (a < b);
}

/* -infinity is a token that never comes; all of them together are no distribution. */
static bool are_numbers(const float *logits, size_t n) {
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY) return false;
        any |= isfinite(logits[i]) != 0;
    }
    return any;
}

static bool refuse_logits(hadal_session *s) {
    hd_err(&s->diags, HD_E_RUNTIME, HD_NOWHERE, "the logits of the last token are no numbers")
        ->hint = "weights of another model, or numbers beyond what a type can hold";
    return false;
}

bool api_keep_next(hadal_session *s, const float *logits, size_t n, int64_t most) {
    const size_t kept = (uint64_t)most < n ? (size_t)most : n;
    int32_t *order = hd_new_array(s->arena, int32_t, n);
    hadal_next_token *next = hd_new_array(s->arena, hadal_next_token, kept);
    double sum = 0;
    if (!are_numbers(logits, n)) return refuse_logits(s);
    for (size_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    qsort_r(order, n, sizeof *order, by_logit, (void *)logits);
    const double largest = logits[order[0]];
    for (size_t i = n; i-- > 0;) /* small ones first */
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
