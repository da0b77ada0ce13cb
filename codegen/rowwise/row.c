/* Whole kernels, kernel.row, and prologues and epilogues of contractions (stage.h) as row programs:
 * graph, schedule, code. */
#include "codegen/program/forms.h"
#include "codegen/rowwise/emit/emit_row.h"
#include "codegen/rowwise/stage.h"

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
const hcg_form hcg_form_row_sums = {
    .emit = emit, .columns = row_sum_columns, .shared = row_sum_shared};

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

bool hcg_op_calls_shared(hir_opcode code) {
    return code == HIR_GATHER_OP || code == HIR_TOPK_OP || code == HIR_PICK_OP ||
           code == HIR_TO_IDS_OP || code == HIR_MARK_OP || code == HIR_SCATTER_OP;
}
