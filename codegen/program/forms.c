/* The forms of kernels and what code generation does for each (forms.h). */
#include "codegen/program/forms.h"

const hcg_form hcg_form_comm = {0}; /* steps of the runtime, without code */

static const hcg_form *const forms[HIR_KERNEL_FORMS] = {
#define K(id, name, noun, doc)
#define F(id, name, kind, op, decode, prefill, may_decode, may_prefill, phases, traits, column,    \
          doc)                                                                                     \
    [HIR_FORM_##id] = &hcg_form_##name,
#include "ir/kernel/kernels.def"
#undef K
#undef F
};

const hcg_form *hcg_form_of(const hir_module *m, hir_id kernel) {
    const hir_kernel_form form = hir_form_of(m, kernel);
    return form == HIR_KERNEL_FORMS ? NULL : forms[form];
}

int64_t hcg_columns(const hir_module *m, hir_id kernel) {
    const hcg_form *form = hcg_form_of(m, kernel);
    return form && form->columns ? form->columns(m, kernel) : 1;
}

void hcg_list_rows(const hir_module *m, hir_id kernel, hrt_step *step) {
    const hcg_form *form = hcg_form_of(m, kernel);
    if (form && form->list) form->list(m, kernel, step);
}

uint32_t hcg_cached_matrices(const hir_module *m, hir_id kernel) {
    const hcg_form *form = hcg_form_of(m, kernel);
    return form && form->cached ? form->cached(m, kernel) : 0;
}

void hcg_shared_bytes(const hir_module *m, hir_id kernel, uint64_t *counters, uint64_t *range) {
    const hcg_form *form = hcg_form_of(m, kernel);
    *counters = *range = 0;
    if (form && form->shared) form->shared(m, kernel, counters, range);
}
