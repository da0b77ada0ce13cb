/* Prologues and epilogues of contractions as row programs (rowwise/stage.h). */
#include "codegen/rowwise/stage.h"

#include "codegen/rowwise/emit/emit_row.h"

bool hcg_emit_row_stage(hcg_emit *e, const hcg_kernel *k, const hcg_row_stage *stage) {
    row_graph g = {.arena = e->arena,
                   .diags = e->diags,
                   .m = e->p->m,
                   .whole = e->p->m,
                   .k = k,
                   .stage = &stage->of};
    const row_target target = row_target_of(e->level);
    row_schedule s;
    size_t errors = e->diags->errors;
    if (!row_build(&g)) return false;
    row_make_schedule(&g, &target, &s);
    row_emit(e, &s, stage);
    return e->diags->errors == errors;
}
