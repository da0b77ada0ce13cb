/* Evaluator rules of ops that only move elements. */
#include <string.h>

#include "ir/eval/private.h"

/* ---- indices --------------------------------------------------------------------------------- */

void eval_strides(hir_type x, int64_t stride[HIR_MAX_RANK]) {
    int64_t step = 1;
    for (uint32_t i = x.rank; i-- > 0;) {
        stride[i] = step;
        step *= x.dim[i];
    }
}

void eval_stretched_strides(hir_type x, hir_type y, int64_t stride[HIR_MAX_RANK]) {
    int64_t own[HIR_MAX_RANK] = {0};
    eval_strides(x, own);
    uint32_t lead = y.rank - x.rank; /* dims of y that x does not have */
    for (uint32_t i = 0; i < y.rank; i++)
        stride[i] = i < lead || x.dim[i - lead] == 1 ? 0 : own[i - lead];
}

void eval_copy_strided(const double *x, const int64_t *stride, hir_array *y) {
    int64_t index[HIR_MAX_RANK] = {0};
    for (int64_t i = 0; i < y->n; i++) {
        y->at[i] = *x;
        for (uint32_t k = y->type.rank; k-- > 0;) {
            x += stride[k];
            if (++index[k] < y->type.dim[k]) break;
            x -= stride[k] * index[k];
            index[k] = 0;
        }
    }
}

eval_cut eval_cut_at(hir_type t, int64_t axis) {
    eval_cut cut = {1, t.dim[axis], 1};
    for (int64_t i = 0; i < t.rank; i++) {
        if (i < axis) cut.outer *= t.dim[i];
        if (i > axis) cut.inner *= t.dim[i];
    }
    return cut;
}

/* ---- rules ----------------------------------------------------------------------------------- */

bool eval_reshape(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    y->at = x[0]->at;
    return true;
}

bool eval_transpose(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    int64_t own[HIR_MAX_RANK] = {0}, stride[HIR_MAX_RANK] = {0};
    const int64_t *perm = hir_find_attr(op, HIR_A_PERM)->ints;
    eval_strides(x[0]->type, own);
    for (uint32_t i = 0; i < y->type.rank; i++)
        stride[i] = own[perm[i]];
    eval_copy_strided(x[0]->at, stride, y);
    return true;
}

bool eval_broadcast(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    int64_t stride[HIR_MAX_RANK] = {0};
    eval_stretched_strides(x[0]->type, y->type, stride);
    eval_copy_strided(x[0]->at, stride, y);
    return true;
}

/* For stack and concat: for every outer index, `width` consecutive elements of each operand in
 * turn. */
static void side_by_side(const hir_op *op, const hir_array *const *x, int64_t outer, hir_array *y) {
    double *to = y->at;
    for (int64_t o = 0; o < outer; o++)
        for (uint32_t i = 0; i < op->n_args; i++) {
            int64_t width = x[i]->n / outer;
            memcpy(to, x[i]->at + o * width, (size_t)width * sizeof *to);
            to += width;
        }
}

bool eval_stack(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    side_by_side(op, x, eval_cut_at(y->type, hir_attr_int(op, HIR_A_AXIS, 0)).outer, y);
    return true;
}

bool eval_concat(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    side_by_side(op, x, eval_cut_at(y->type, hir_attr_int(op, HIR_A_AXIS, 0)).outer, y);
    return true;
}

bool eval_slice(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    int64_t stride[HIR_MAX_RANK] = {0};
    eval_strides(x[0]->type, stride);
    int64_t axis = hir_attr_int(op, HIR_A_AXIS, 0), start = hir_attr_int(op, HIR_A_START, 0);
    eval_copy_strided(x[0]->at + start * stride[axis], stride, y);
    return true;
}
