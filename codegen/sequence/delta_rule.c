/* The form delta_rule of kernel.sequence. */
#include "codegen/emit/arithmetic.h"
#include "codegen/forms.h"
#include "codegen/library/library.h"

static bool emit_delta_rule(hcg_emit *e, const hcg_kernel *k) {
    hd_err(e->diags, HD_E_UNSUPPORTED, hir_op_at(e->p->m, k->op)->loc,
           "kernels of form delta_rule are not emitted yet");
    return false;
}

const hcg_form hcg_form_delta_rule = {.emit = emit_delta_rule};
