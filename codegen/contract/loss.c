/* cross_entropy.parts: the end of an epilogue whose logits are not stored.
 *
 * A part is a unit of the group's panels. A thread has whole units, so that parts do not depend on
 * the number of threads, nor on how many panels lie between two epilogues. The logits of a row are
 * in scratch, in the place of their sums: a first pass over a part finds the largest, a second one
 * sums the powers, both a vector at a time. A row program merges the parts (passes/kernels/
 * fuse_loss.c). */
#include <float.h>
#include <math.h>

#include "codegen/contract/epilogue.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

/* The largest of the n logits at `at`, a scalar; at least -FLT_MAX, so that differences from it are
 * numbers also where all logits are -inf. */
static LLVMValueRef largest(hcg_emit *e, LLVMValueRef at, LLVMValueRef n) {
    LLVMValueRef most = hcg_splat(e, -FLT_MAX), lanes = hcg_i64(e, e->level->lanes);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, lanes, "largest", 1, &most);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, at, l.index), NULL);
    most = hcg_max(e, l.carried[0], v);
    hcg_loop_end(e, &l, &most);
    return hcg_max_lanes(e, l.carried[0]);
}

static LLVMValueRef sum_of_powers(hcg_emit *e, LLVMValueRef at, LLVMValueRef n, LLVMValueRef most) {
    LLVMValueRef sum = hcg_splat(e, 0), lanes = hcg_i64(e, e->level->lanes);
    most = hcg_splat_value(e, most);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, lanes, "powers", 1, &sum);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, at, l.index), NULL);
    v = hcg_exp_not_positive(e, hcg_fsub(e, v, most));
    sum = hcg_fadd(e, l.carried[0], v);
    hcg_loop_end(e, &l, &sum);
    return hcg_sum_lanes(e, l.carried[0]);
}

/* Where part number `part` of the row has its value `i`. */
static void store(hcg_emit *e, LLVMValueRef base, LLVMValueRef row, int64_t parts, int64_t i,
                  LLVMValueRef part, LLVMValueRef x) {
    LLVMValueRef at = hcg_mul_const(e, row, HIR_LOSS_PARTS * parts);
    at = hcg_add(e, at, hcg_add(e, part, hcg_i64(e, i * parts)));
    LLVMSetAlignment(LLVMBuildStore(e->b, x, hcg_at(e, e->f32, base, at)), 4);
}

static const hir_op *parts_op(const hcg_emit *e, const hcg_column_group *g) {
    return hir_op_at(e->p->m, hir_value_at(e->p->m, g->parts.index)->op);
}

/* The number of logits of the ranks before this one. */
static LLVMValueRef logits_before(hcg_emit *e, const hcg_column_group *g) {
    return hcg_mul_const(e, hcg_frame_rank(e), g->n);
}

LLVMValueRef hcg_own_logits(hcg_emit *e, const hcg_column_group *g) {
    const int64_t whole = hir_attr_int(parts_op(e, g), HIR_A_WHOLE, 0);
    return whole ? hcg_sub(e, hcg_i64(e, whole), logits_before(e, g)) : NULL;
}

void hcg_emit_loss_parts(hcg_emit *e, const hcg_kernel *k, const hcg_block *b, LLVMValueRef row,
                         LLVMValueRef logits) {
    const hcg_column_group *g = b->group;
    const hir_id id = hir_value_at(e->p->m, g->parts.index)->op;
    const hir_op *op = hir_op_at(e->p->m, id);
    const int64_t length = g->unit * HIR_PANEL, parts = (g->n + length - 1) / length;
    hcg_at_op(e, id);
    LLVMValueRef zero = hcg_i64(e, 0), unit = hcg_i64(e, g->unit);
    LLVMValueRef out = hcg_arg(e, k, hir_value_ref(g->parts_result));
    LLVMValueRef none = LLVMConstReal(e->f32, 0), one = LLVMConstReal(e->f32, 1);
    LLVMValueRef targets = hcg_arg(e, k, op->args[1]);
    LLVMValueRef target = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, targets, row), "target");
    LLVMSetAlignment(target, 4);
    target = LLVMBuildSExt(e->b, target, e->i64, "");
    const bool shared = hir_attr_int(op, HIR_A_WHOLE, 0) != 0;
    if (shared) target = hcg_sub(e, target, logits_before(e, g));

    hcg_loop l = hcg_loop_begin(e, zero, b->panels, unit, "part", 0, NULL);
    LLVMValueRef panel = hcg_add(e, b->panel, l.index);
    LLVMValueRef at = hcg_at(e, e->f32, logits, hcg_mul_const(e, l.index, HIR_PANEL));
    LLVMValueRef panels = hcg_smaller(e, hcg_sub(e, b->panels, l.index), unit);
    LLVMValueRef n = hcg_mul_const(e, panels, HIR_PANEL);
    LLVMValueRef part = LLVMBuildUDiv(e->b, panel, unit, "number");
    LLVMValueRef most = largest(e, at, n);
    store(e, out, row, parts, HIR_LOSS_MOST, part, most);
    store(e, out, row, parts, HIR_LOSS_SUM, part, sum_of_powers(e, at, n, most));

    LLVMValueRef column = hcg_sub(e, target, hcg_mul_const(e, panel, HIR_PANEL));
    if (shared) { /* what follows the last column is of the next rank */
        LLVMValueRef own = hcg_sub(e, hcg_i64(e, g->n), hcg_mul_const(e, panel, HIR_PANEL));
        n = hcg_smaller(e, n, own);
    }
    LLVMValueRef here = LLVMBuildICmp(e->b, LLVMIntULT, column, n, "here");
    column = LLVMBuildSelect(e->b, here, column, zero, "");
    LLVMValueRef logit = hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, at, column));
    store(e, out, row, parts, HIR_LOSS_TARGET, part, LLVMBuildSelect(e->b, here, logit, none, ""));
    store(e, out, row, parts, HIR_LOSS_COUNTED, part, LLVMBuildSelect(e->b, here, one, none, ""));
    hcg_loop_end(e, &l, NULL);
}
