/* Evaluator rules of the loss. */
#include <float.h>
#include <math.h>

#include "ir/eval/private.h"

static bool check_targets(eval_call *c, const hir_op *op, const hir_array *targets, int64_t vocab) {
    for (int64_t t = 0; t < targets->n; t++) {
        if (targets->at[t] < (double)vocab) continue;
        hd_err(c->d, HD_E_VALUE, *op->loc, "target %lld of the call is %.0f", (long long)t,
               targets->at[t])
            ->cause = hd_printf(c->d->arena, "targets are 0 to %lld, or below 0: not counted",
                                (long long)(vocab - 1));
        return false;
    }
    return true;
}

/* The largest of n elements, without those that are NaN: they make the sum NaN. */
static double largest(const double *x, int64_t n) {
    double most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > most) most = x[i];
    return most;
}

/* sum_i e^(x[i] - most). Where all elements are -inf, so is `most`, and the sum is 0. */
static double sum_of_powers(const double *x, int64_t n, double most) {
    double sum = 0;
    if (most == -INFINITY) most = -DBL_MAX;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - most);
    return sum;
}

bool eval_cross_entropy(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t vocab = x[0]->type.dim[1];
    if (!check_targets(c, op, x[1], vocab)) return false;
    for (int64_t t = 0; t < y->n; t++) {
        const double *row = x[0]->at + t * vocab, most = largest(row, vocab);
        if (x[1]->at[t] >= 0)
            y->at[t] = log(sum_of_powers(row, vocab, most)) + (most - row[(int64_t)x[1]->at[t]]);
    }
    return true;
}

bool eval_cross_entropy_parts(eval_call *c, const hir_op *op, const hir_array *const *x,
                              hir_array *y) {
    const int64_t vocab = x[0]->type.dim[1], parts = y->type.dim[2];
    const int64_t length = hir_attr_int(op, HIR_A_LENGTH, 1);
    const int64_t whole = hir_attr_int(op, HIR_A_WHOLE, 0); /* 0: all of it is here */
    const int64_t own = whole ? c->e->rank * vocab : 0, end = whole ? whole - own : vocab;
    if (!check_targets(c, op, x[1], whole ? whole : vocab)) return false;
    for (int64_t i = 0; i < x[1]->n * parts; i++) {
        const int64_t t = i / parts, part = i % parts, first = part * length;
        const int64_t left = (end < vocab ? end : vocab) - first;
        const int64_t n = left < 0 ? 0 : left < length ? left : length;
        const double *at = x[0]->at + t * vocab + first;
        const double target = x[1]->at[t] - (double)(own + first);
        double *out = y->at + t * HIR_LOSS_PARTS * parts + part;
        const bool here = target >= 0 && target < (double)n;
        out[HIR_LOSS_MOST * parts] = largest(at, n);
        out[HIR_LOSS_SUM * parts] = sum_of_powers(at, n, out[HIR_LOSS_MOST * parts]);
        out[HIR_LOSS_TARGET * parts] = here ? at[(int64_t)target] : 0;
        out[HIR_LOSS_COUNTED * parts] = here;
    }
    return true;
}

bool eval_cross_entropy_merge(eval_call *c, const hir_op *op, const hir_array *const *x,
                              hir_array *y) {
    const int64_t parts = x[0]->type.dim[2];
    (void)c, (void)op;
    for (int64_t t = 0; t < y->n; t++) {
        const double *row = x[0]->at + t * HIR_LOSS_PARTS * parts;
        const double *m = row + HIR_LOSS_MOST * parts, *s = row + HIR_LOSS_SUM * parts;
        const double most = largest(m, parts);
        double sum = 0, target = 0, counted = 0;
        for (int64_t i = 0; i < parts; i++) {
            sum += s[i] * exp(m[i] - most);
            target += row[HIR_LOSS_TARGET * parts + i];
            counted += row[HIR_LOSS_COUNTED * parts + i];
        }
        if (counted > 0) y->at[t] = log(sum) + (most - target);
    }
    return true;
}

bool eval_cross_entropy_grad(eval_call *c, const hir_op *op, const hir_array *const *x,
                             hir_array *y) {
    const int64_t vocab = x[0]->type.dim[1];
    if (!check_targets(c, op, x[1], vocab)) return false;
    for (int64_t t = 0; t < x[1]->n; t++) {
        const double *row = x[0]->at + t * vocab, most = largest(row, vocab);
        const double sum = sum_of_powers(row, vocab, most), dy = x[2]->at[t];
        if (x[1]->at[t] < 0) continue;
        for (int64_t j = 0; j < vocab; j++)
            y->at[t * vocab + j] = dy * (exp(row[j] - most) / sum);
        y->at[t * vocab + (int64_t)x[1]->at[t]] -= dy;
    }
    return true;
}
