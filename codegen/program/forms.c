/* The forms of kernels and what code generation does for each (forms.h). */
#include "codegen/program/forms.h"
#include "codegen/program/contraction.h"
#include "codegen/emit/emit.h"

const hcg_form hcg_form_row_program = {.emit = hcg_emit_row};
const hcg_form hcg_form_contraction = {.emit = hcg_emit_contract,
                                       .columns = hcg_contraction_columns};

const hcg_form hcg_form_experts = {.emit = hcg_emit_experts, .columns = hcg_expert_columns};

static bool emit_comm(hcg_emit *e, const hcg_kernel *k) {
    hd_err(e->diags, HD_E_UNSUPPORTED, hir_op_at(e->p->m, k->op)->loc,
           "exchanges between ranks are steps of the runtime, and have no code");
    return false;
}
const hcg_form hcg_form_comm = {.emit = emit_comm};

static const hcg_form *const forms[HIR_KERNEL_FORMS] = {
#define K(id, name, several, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    [HIR_FORM_##id] = &hcg_form_##name,
#include "ir/kernels.def"
#undef K
#undef F
};

/* NULL: the kernel has no op that makes a form. */
static const hcg_form *form_of(const hir_module *m, hir_id kernel) {
    const hir_kernel_form form = hir_form_of(m, kernel);
    return form == HIR_KERNEL_FORMS ? NULL : forms[form];
}

bool hcg_emit_kernel(hcg_emit *e, const hcg_kernel *k) {
    const hcg_form *form = form_of(e->p->m, k->op);
    if (form) return form->emit(e, k);
    const hir_op *op = hir_op_at(e->p->m, k->op);
    hd_err(e->diags, HD_E_INTERNAL, op->loc,
           "%s cannot be emitted: it has no op that looks along the sequence",
           hir_info(op->code)->name);
    return false;
}

int64_t hcg_columns(const hir_module *m, hir_id kernel) {
    const hcg_form *form = form_of(m, kernel);
    return form && form->columns ? form->columns(m, kernel) : 1;
}

void hcg_list_rows(const hir_module *m, hir_id kernel, hrt_step *step) {
    const hcg_form *form = form_of(m, kernel);
    if (form && form->list) form->list(m, kernel, step);
}

uint32_t hcg_cached_matrices(const hir_module *m, hir_id kernel) {
    const hcg_form *form = form_of(m, kernel);
    return form && form->cached ? form->cached(m, kernel) : 0;
}

void hcg_shared_bytes(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hcg_form *form = form_of(m, kernel);
    *counters = *range = 0;
    if (form && form->shared) form->shared(m, kernel, counters, range);
}
