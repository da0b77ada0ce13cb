/* Sizes as code: a + b N, with N from the arguments, computed once at the start of the function. */
#include "codegen/rowwise/emit/run.h"

/* Computes it in the entry block, behind the load of N. */
static LLVMValueRef computed_at_entry(row_run *r, row_size s) {
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

LLVMValueRef row_i64(row_run *r, row_size size) {
    if (size.not_affine)
        hd_err(r->e->diags, HD_E_INTERNAL, HD_NOWHERE,
               "a row program multiplies two sizes that are not known");
    if (!row_is_dynamic(size)) return hcg_i64(r->e, size.a);
    for (size_t i = 0; i < r->sizes.n; i++)
        if (row_size_equal(r->sizes.at[i].size, size)) return r->sizes.at[i].value;
    row_size_value s = {size, computed_at_entry(r, size)};
    hd_push(r->g->arena, &r->sizes, s);
    return s.value;
}

LLVMValueRef row_scratch(row_run *r, row_size bytes) {
    return hcg_scratch(r->e, (uint64_t)row_most(r->g, bytes));
}
