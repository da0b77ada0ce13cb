/* Helpers of the depth passes for depth.attend. */
#include <string.h>

#include "passes/depth/depth.h"

hir_opcode depth_code(const hir_module *m, hir_ref r) {
    const hir_id op = pass_def(m, r);
    return op == HIR_NONE ? HIR_OPCODE_COUNT : hir_op_at(m, op)->code;
}

const char *depth_normalization(const hir_module *m, hir_id attend) {
    return hir_attr_string(hir_op_at(m, attend), HIR_A_NORMALIZATION, "");
}

bool depth_is_softmax(const hir_module *m, hir_id attend) {
    return !strcmp(depth_normalization(m, attend), "softmax");
}

bool depth_query_has_t(const hir_module *m, hir_id attend) {
    return hir_type_has_t(hir_ref_type(m, pass_arg(m, attend, ATTEND_QUERY)));
}

hir_ref depth_element(hir_builder *b, hir_ref x, uint32_t axis, int64_t i) {
    hir_type t = hir_ref_type(b->m, x);
    if (t.dim[axis] > 1) {
        hir_attr at[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, i),
                         hir_int(HIR_A_LENGTH, 1)};
        x = hir_emit(b, HIR_SLICE_OP, &x, 1, at, 3);
        if (x.kind == HIR_REF_NONE) return x;
    }
    for (uint32_t k = axis; k + 1 < t.rank; k++)
        t.dim[k] = t.dim[k + 1];
    t.rank--;
    return pass_reshape(b, x, t);
}

static bool same_attr(const hir_op *a, const hir_op *b, hir_attr_id id) {
    const hir_attr *x = hir_find_attr(a, id), *y = hir_find_attr(b, id);
    return !x == !y && (!x || hir_same_attr(x, y));
}

bool depth_same_kind(const hir_module *m, hir_id a, hir_id b) {
    const hir_op *x = hir_op_at(m, a), *y = hir_op_at(m, b);
    return !strcmp(depth_normalization(m, a), depth_normalization(m, b)) &&
           depth_is_given(x->args[ATTEND_QUERY]) == depth_is_given(y->args[ATTEND_QUERY]) &&
           same_attr(x, y, HIR_A_EPS) && same_attr(x, y, HIR_A_SCALE) &&
           same_attr(x, y, HIR_A_HEADS) &&
           hir_type_equal(hir_ref_type(m, depth_source(m, a, 0)),
                          hir_ref_type(m, depth_source(m, b, 0)));
}

/* The inverse norm of a source is computed once, by its first reader, and stored if there are
 * others. */
depth_cost depth_cost_of(const hir_module *m, hir_id attend, const hir_compile_options *o) {
    const hir_op *op = hir_op_at(m, attend);
    const int64_t d = hir_ref_type(m, depth_source(m, attend, 0)).dim[1];
    const int64_t number = (int64_t)hir_dtype_bytes(HIR_F32);
    const int64_t norm = hir_find_attr(op, HIR_A_EPS) ? number : 0;
    const int64_t heads = hir_attr_int(op, HIR_A_HEADS, 1);
    const int64_t lse = depth_is_softmax(m, attend) ? heads * number : 0;
    const int64_t row = d * number;
    const int64_t again = o->gradients ? row * (depth_is_given(op->args[ATTEND_QUERY]) ? 4 : 3) : 0;
    return (depth_cost){
        .row = row,
        .live = row + again,
        .banked = d * (int64_t)hir_dtype_bytes(o->bank_dtype) + norm + again,
        .norm = norm,
        .result = 2 * (d * (int64_t)hir_dtype_bytes(o->phase1_dtype) + lse) +
                  (o->gradients ? 2 * row : 0),
    };
}

uint32_t depth_copy_attrs(const hir_module *m, hir_id attend, hir_attr out[2]) {
    static const hir_attr_id ids[] = {HIR_A_SCALE, HIR_A_HEADS};
    uint32_t n = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const hir_attr *a = hir_find_attr(hir_op_at(m, attend), ids[i]);
        if (a) out[n++] = *a;
    }
    return n;
}
