/* kernel.row: all that is local to one token's row, token by token. Graph, schedule, code. */
#include "codegen/program/forms.h"
#include "codegen/rowwise/emit/emit_row.h"

static bool emit(hcg_emit *e, const hcg_kernel *k) {
    const row_target target = row_target_of(e->level);
    const size_t errors = e->diags->errors;
    row_graph g;
    row_schedule s;
    if (!row_schedule_kernel(e->arena, e->diags, e->p->m, k, &target, &g, &s)) return false;
    row_emit(e, &s, NULL);
    return e->diags->errors == errors;
}

const hcg_form hcg_form_row_program = {.emit = emit};
