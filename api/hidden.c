/* The final hidden rows: the input of the linear op that makes the logits. */
#include "api/hidden.h"

static const hir_op *maker_of(const hir_module *m, hir_ref r) {
    if (r.kind != HIR_REF_VALUE) return NULL;
    const hir_id op = hir_value_at(m, r.index)->op;
    return op == HIR_NONE ? NULL : hir_op_at(m, op);
}

/* The linear op whose outputs `r` shows, however they are scaled, capped or reshaped afterwards;
 * NULL: there is no such op, or several. */
static const hir_op *head_of(const hir_module *m, hir_ref r) {
    for (const hir_op *o; (o = maker_of(m, r)) != NULL;) {
        if (o->code == HIR_LINEAR_OP) return o;
        if (!hir_has_trait(o->code, HIR_ELEMENTWISE) && !hir_has_trait(o->code, HIR_MOVE))
            return NULL;
        uint32_t of_tokens = 0;
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (!hir_type_has_t(hir_ref_type(m, o->args[i]))) continue;
            if (of_tokens++ > 0 && !hir_ref_equal(r, o->args[i])) return NULL;
            r = o->args[i];
        }
        if (of_tokens == 0) return NULL;
    }
    return NULL;
}

static hir_ref first_output(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_op_at(m, op)->code == HIR_OUTPUT_OP) return hir_op_at(m, op)->args[0];
    return (hir_ref){0};
}

bool api_add_hidden(hir_module *m, hd_diags *d) {
    if (m->stage == HIR_STAGE_KERNEL) {
        hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s is kernel IR: it has no room for hidden rows",
               m->name)
            ->hint = "take the spec";
        return false;
    }
    const hir_op *head = head_of(m, first_output(m));
    if (!head || !hir_type_has_t(hir_ref_type(m, head->args[0]))) {
        hd_diag *g = hd_err(d, HD_E_UNSUPPORTED, HD_NOWHERE, "%s has no head", m->name);
        g->cause = "hidden rows are what the linear op reads that its first output is made by";
        g->hint = "make them an output of the spec: output hidden = ...";
        return false;
    }
    const hir_attr name = hir_string(HIR_A_NAME, API_HIDDEN);
    hir_builder b = hir_at_end(m, d);
    b.loc = *head->loc;
    const hir_ref x = head->args[0];
    return hir_build(&b, HIR_OUTPUT_OP, &x, 1, &name, 1) != HIR_NONE;
}
