/* The form short_conv of kernel.sequence. */
#include "codegen/emit/arithmetic.h"
#include "codegen/forms.h"
#include "codegen/library/library.h"

static bool emit_short_conv(hcg_emit *e, const hcg_kernel *k) {
    hd_err(e->diags, HD_E_UNSUPPORTED, hir_op_at(e->p->m, k->op)->loc,
           "kernels of form short_conv are not emitted yet");
    return false;
}

const hcg_form hcg_form_short_conv = {.emit = emit_short_conv};
