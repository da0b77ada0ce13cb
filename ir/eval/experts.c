/* Evaluator rules of selection (topk, to_ids, pick, mark) and of contractions with selected
 * matrices. */
#include <math.h>

#include "ir/eval/private.h"

/* Does a come before b in the order of topk? NaN comes last; equal elements keep their order. */
static bool is_larger(double a, double b) {
    if (isnan(a)) return false;
    return isnan(b) || a > b;
}

static int64_t last_dim(const hir_array *x) {
    return x->type.dim[x->type.rank - 1];
}

bool eval_topk(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)op;
    const int64_t n = last_dim(x[0]), k = last_dim(y);
    bool *taken = hd_new_array(c->scratch, bool, (size_t)n);
    for (int64_t row = 0; row * k < y->n; row++) {
        const double *at = x[0]->at + row * n;
        for (int64_t i = 0; i < n; i++)
            taken[i] = false;
        for (int64_t j = 0; j < k; j++) {
            int64_t best = -1;
            for (int64_t i = 0; i < n; i++)
                if (!taken[i] && (best < 0 || is_larger(at[i], at[best]))) best = i;
            taken[best] = true;
            y->at[row * k + j] = (double)best;
        }
    }
    return true;
}

bool eval_to_ids(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    for (int64_t i = 0; i < y->n; i++)
        y->at[i] = trunc(x[0]->at[i]);
    return true;
}

bool eval_pick(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    const int64_t n = last_dim(x[0]);
    int64_t stride[HIR_MAX_RANK], own[HIR_MAX_RANK], index[HIR_MAX_RANK] = {0};
    eval_strides(x[0]->type, own);
    eval_stretched_strides(x[0]->type, y->type, stride);
    for (int64_t i = 0; i < y->n; i++) {
        const double id = x[1]->at[i];
        int64_t at = 0;
        for (uint32_t d = 0; d + 1 < y->type.rank; d++)
            at += index[d] * stride[d];
        y->at[i] = id >= 0 && id < (double)n ? x[0]->at[at + (int64_t)id] : 0;
        for (uint32_t d = y->type.rank; d-- > 0;) {
            if (++index[d] < y->type.dim[d]) break;
            index[d] = 0;
        }
    }
    return true;
}

bool eval_mark(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    const int64_t k = last_dim(x[0]), n = last_dim(y);
    for (int64_t i = 0; i < x[0]->n; i++)
        if (x[0]->at[i] >= 0 && x[0]->at[i] < (double)n)
            y->at[i / k * n + (int64_t)x[0]->at[i]] = 1;
    return true;
}

bool eval_expert_linear(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    const int64_t experts = x[1]->type.dim[0], n = x[1]->type.dim[1], k = x[1]->type.dim[2];
    const int64_t slots = x[2]->n, each = x[0]->type.rank == 2 ? x[2]->type.dim[1] : 1;
    for (int64_t slot = 0; slot < slots; slot++) {
        const double id = x[2]->at[slot], *row = x[0]->at + slot / each * k;
        if (!(id >= 0 && id < (double)experts)) continue;
        const int64_t e = (int64_t)id;
        for (int64_t j = 0; j < n; j++)
            y->at[slot * n + j] =
                eval_dot(row, x[1]->at + (e * n + j) * k, k) + (x[3] ? x[3]->at[e * n + j] : 0);
    }
    return true;
}
