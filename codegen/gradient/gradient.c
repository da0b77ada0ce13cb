/* What the kernels of gradients share (gradient.h). */
#include "codegen/gradient/gradient.h"

#include <string.h>

hcg_gradient_result hcg_find_gradient(hcg_emit *e, const hcg_kernel *k, hir_id op) {
    const hir_ref r = op == HIR_NONE ? hir_no_ref() : hcg_result_of(e->p->m, k->op, op);
    if (r.kind == HIR_REF_NONE) return (hcg_gradient_result){0};
    return (hcg_gradient_result){
        .at = hcg_arg(e, k, r),
        .adds = hir_value_at(e->p->m, r.index)->place == HIR_PLACE_GRADIENT,
    };
}

hir_id hcg_gradient_of(const hir_module *m, hir_id kernel, const char *of) {
    HIR_EACH(m, id, hir_op_at(m, kernel)->body_first) {
        const hir_op *o = hir_op_at(m, id);
        if (hir_has_trait(o->code, HIR_REDUCES_TOKENS) &&
            strcmp(hir_attr_string(o, HIR_A_OF, ""), of) == 0)
            return id;
    }
    return HIR_NONE;
}

hcg_gradient_result hcg_take_gradient(hcg_emit *e, const hcg_kernel *k, const char *of) {
    return hcg_find_gradient(e, k, hcg_gradient_of(e->p->m, k->op, of));
}

LLVMValueRef hcg_gradient_operand(hcg_emit *e, const hcg_kernel *k, const hir_op *op, uint32_t i) {
    if (i >= op->n_args || op->args[i].kind == HIR_REF_NONE) return NULL;
    return hcg_arg(e, k, hir_through_reshapes(e->p->m, op->args[i]));
}

LLVMValueRef hcg_sum_begins(hcg_emit *e, const hcg_gradient_result *r, LLVMValueRef p,
                            LLVMValueRef n) {
    return r->adds ? hcg_load(e, HIR_F32, p, n) : hcg_splat(e, 0);
}
