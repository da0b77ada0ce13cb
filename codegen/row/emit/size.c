/* Sizes that a row program is told (program.h: HCG_ANY).
 *
 * Shapes, strides and offsets are numbers a + b HCG_ANY all through planning, where HCG_ANY is
 * simply a size larger than any. Here they become code: a + b N, with N from the arguments,
 * computed once at the start of the function. */
#include "codegen/row/emit/run.h"

/* Behind N, which is loaded first of all. */
static LLVMValueRef computed_at_entry(row_run *r, row_sum s) {
    hcg_emit *e = r->e;
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef entry = LLVMGetEntryBasicBlock(e->fn);
    if (!r->n) r->n = hcg_size_arg(e, r->g->k, HCG_N);
    LLVMValueRef next = LLVMIsAInstruction(r->n) ? LLVMGetNextInstruction(r->n) : NULL;
    if (next)
        LLVMPositionBuilderBefore(e->b, next);
    else
        LLVMPositionBuilderAtEnd(e->b, entry);
    LLVMValueRef v = LLVMBuildMul(e->b, r->n, hcg_i64(e, s.b), "");
    v = LLVMBuildAdd(e->b, v, hcg_i64(e, s.a), "size");
    LLVMPositionBuilderAtEnd(e->b, here);
    return v;
}

LLVMValueRef row_i64(row_run *r, int64_t number) {
    if (!row_is_dynamic(r->g, number)) return hcg_i64(r->e, number);
    for (size_t i = 0; i < r->sizes.n; i++)
        if (r->sizes.at[i].number == number) return r->sizes.at[i].value;
    row_size s = {number, computed_at_entry(r, row_sum_of(number))};
    hd_push(r->g->arena, &r->sizes, s);
    return s.value;
}

LLVMValueRef row_scratch(row_run *r, int64_t bytes) {
    return hcg_scratch(r->e, (uint64_t)row_most(r->g, bytes));
}
