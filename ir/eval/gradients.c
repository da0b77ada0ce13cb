/* Evaluator rules of gradients that move elements or sum over tokens. */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

bool eval_from_the_start(eval_call *c, const hir_op *op) {
    if (c->C == c->T) return true;
    hd_err(c->d, HD_E_VALUE, *op->loc, "%s at position %lld: gradients are of whole sequences",
           hir_info(op->code)->name, (long long)(c->C - c->T))
        ->hint = "begin with an empty state";
    return false;
}

double *eval_wanted(const hir_op *op, const char *operand, const hir_array *y) {
    return strcmp(hir_attr_string(op, HIR_A_OF, ""), operand) ? NULL : y->at;
}

/* ---- moving ---------------------------------------------------------------------------------- */

bool eval_pad(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    const int64_t axis = hir_attr_int(op, HIR_A_AXIS, 0), start = hir_attr_int(op, HIR_A_START, 0);
    const eval_cut from = eval_cut_at(x[0]->type, axis), to = eval_cut_at(y->type, axis);
    for (int64_t o = 0; o < from.outer; o++)
        memcpy(y->at + (o * to.n + start) * to.inner, x[0]->at + o * from.n * from.inner,
               (size_t)(from.n * from.inner) * sizeof *y->at);
    return true;
}

bool eval_scatter(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    const int64_t k = x[1]->type.dim[x[1]->type.rank - 1], n = y->type.dim[y->type.rank - 1];
    for (int64_t i = 0; i < x[1]->n; i++) {
        const double id = x[1]->at[i];
        if (id >= 0 && id < (double)n) y->at[i / k * n + (int64_t)id] += x[0]->at[i];
    }
    return true;
}

bool eval_cache_rows(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    const int64_t rate = hir_rate(hir_ref_type(c->m, op->args[0]).dim[0]), row = y->n / c->T;
    for (int64_t t = 0; t < c->T; t++) {
        const int64_t p = c->C - c->T + t;
        if ((p + 1) % rate == 0)
            memcpy(y->at + t * row, x[0]->at + p / rate * row, (size_t)row * sizeof *y->at);
    }
    return true;
}

bool eval_after(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    memcpy(y->at, x[0]->at, (size_t)y->n * sizeof *y->at);
    return true;
}

/* ---- sums over tokens ------------------------------------------------------------------------ */

bool eval_sum_tokens(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    for (int64_t i = 0; i < x[0]->n; i++)
        y->at[i % y->n] += x[0]->at[i];
    return true;
}

bool eval_scatter_rows(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    const int64_t rows = y->type.dim[0], width = y->n / rows;
    const hir_attr *beyond = hir_find_attr(op, HIR_A_BEYOND);
    for (int64_t i = 0; i < x[1]->n; i++) {
        double id = x[1]->at[i];
        if (beyond && id >= (double)rows) id = (double)beyond->i;
        if (!(id >= 0 && id < (double)rows)) continue;
        for (int64_t j = 0; j < width; j++)
            y->at[(int64_t)id * width + j] += x[0]->at[i * width + j];
    }
    return true;
}

/* y[n][k] += dy[n] x[k] */
static void add_outer(const double *dy, const double *x, int64_t n, int64_t k, double *y) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            y[i * k + j] += dy[i] * x[j];
}

bool eval_linear_grad(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    const int64_t n = y->type.dim[0], k = y->type.dim[1];
    for (int64_t row = 0; row * n < x[0]->n; row++)
        add_outer(x[0]->at + row * n, x[1]->at + row * k, n, k, y->at);
    return true;
}

bool eval_block_linear_grad(eval_call *c, const hir_op *op, const hir_array *const *x,
                            hir_array *y) {
    (void)c, (void)op;
    const int64_t groups = y->type.dim[0], n = y->type.dim[1], k = y->type.dim[2];
    for (int64_t row = 0; row * n < x[0]->n; row++) /* of one group of one token */
        add_outer(x[0]->at + row * n, x[1]->at + row * k, n, k, y->at + row % groups * n * k);
    return true;
}

bool eval_expert_linear_grad(eval_call *c, const hir_op *op, const hir_array *const *x,
                             hir_array *y) {
    (void)c, (void)op;
    const int64_t experts = y->type.dim[0], n = y->type.dim[1], k = y->type.dim[2];
    const int64_t each = x[1]->type.rank == 2 ? x[2]->type.dim[1] : 1;
    for (int64_t slot = 0; slot < x[2]->n; slot++) {
        const double e = x[2]->at[slot];
        if (e >= 0 && e < (double)experts)
            add_outer(x[0]->at + slot * n, x[1]->at + slot / each * k, n, k,
                      y->at + (int64_t)e * n * k);
    }
    return true;
}
