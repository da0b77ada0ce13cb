/* kernel.row: all that is local to one token's row, token by token. */
#include "codegen/emit_row.h"

bool hcg_emit_row(hcg_emit *e, const hcg_kernel *k) {
    row_graph g = {
        .arena = e->arena, .diags = e->diags, .m = e->p->m, .k = k, .lanes = e->level->lanes};
    size_t errors = e->diags->errors;
    if (!row_build(&g)) return false;
    row_plan(&g);
    row_emit_loops(e, &g);
    return e->diags->errors == errors;
}
