/* Passes with mistakes that the checks of the pass manager are to find. */
#include "passes/util.h"

bool pass_forget_eps(hir_pass_context *c) {
    HIR_EACH(c->m, op, c->m->first) {
        if (hir_op_at(c->m, op)->code != HIR_RMSNORM_OP) continue;
        hir_set_attr(c->m, op, hir_float(HIR_A_EPS, 0));
        c->changed = true;
        hir_remark_add(c, true, op, "its eps is forgotten");
    }
    return true;
}

bool pass_cut_operand(hir_pass_context *c) {
    HIR_EACH(c->m, op, c->m->first) {
        if (hir_op_at(c->m, op)->code != HIR_RMSNORM_OP) continue;
        hir_op_at(c->m, op)->args[0] = hir_value_ref(hir_result(c->m, op));
        c->changed = true;
        return true;
    }
    return true;
}

bool pass_say_nothing(hir_pass_context *c) {
    (void)c;
    return false;
}
