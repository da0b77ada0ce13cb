/* kernel.row: all that is local to one token's row, token by token. */
#include "codegen/row/row.h"

static bool plan(hcg_emit *e, const hcg_kernel *k, bool apart, row_graph *g) {
    *g = (row_graph){.arena = e->arena,
                     .diags = e->diags,
                     .m = k->any ? k->any : e->p->m,
                     .whole = e->p->m,
                     .k = k,
                     .lanes = e->level->lanes,
                     .apart = apart};
    if (!row_build(g)) return false;
    row_plan(g);
    return true;
}

bool hcg_emit_row(hcg_emit *e, const hcg_kernel *k) {
    row_graph g;
    size_t errors = e->diags->errors;
    if (!plan(e, k, false, &g)) return false;
    if (!row_may_be_in_place(e->level, &g) && !plan(e, k, true, &g)) return false;
    row_emit_loops(e, &g);
    return e->diags->errors == errors;
}
