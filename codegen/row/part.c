/* Parts of row programs in other kernels (row/part.h). */
#include "codegen/row/row.h"

/* All that is made in the kernel, but constants; and what others made of as many heads. */
bool row_is_by_head(const row_graph *g, hir_ref r) {
    if (!g->part || !g->part->heads || r.kind != HIR_REF_VALUE) return false;
    hir_type t = hir_ref_type(g->m, r);
    hir_id op = hir_value_at(g->m, r.index)->op;
    bool made_here = op != HIR_NONE && hir_op_at(g->m, op)->parent == g->k->op;
    return made_here ? t.rank >= 2 : hir_is_by_heads(t, g->part->heads);
}

hir_type row_type_of(const row_graph *g, hir_ref r) {
    hir_type t = hir_ref_type(g->m, r);
    if (row_is_by_head(g, r)) t.dim[1] /= g->part->heads;
    return t;
}

bool hcg_emit_row_part(hcg_emit *e, const hcg_kernel *k, const hcg_row_part *part) {
    row_graph g = {.arena = e->arena,
                   .diags = e->diags,
                   .m = e->p->m,
                   .whole = e->p->m,
                   .k = k,
                   .part = part,
                   .lanes = e->level->lanes};
    size_t errors = e->diags->errors;
    if (!row_build(&g)) return false;
    row_plan(&g);
    row_emit_loops(e, &g);
    return e->diags->errors == errors;
}
