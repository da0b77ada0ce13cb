/* What the depth passes share about depth.attend. */
#include <string.h>

#include "passes/depth.h"

bool depth_is_softmax(const hir_module *m, hir_id attend) {
    return !strcmp(hir_attr_string(hir_op_at(m, attend), HIR_A_NORMALIZATION, ""), "softmax");
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
