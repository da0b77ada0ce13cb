/* Sums that are taken for some tokens only.
 *
 *     %1 = when %c, %x      %2 = reduce_sum %1          %c: one number, %2: one number
 *
 * is 0 unless c > 0, and then the loop over x is skipped. Its nest holds only such sums of one c
 * and what they alone read (schedule/nests.c), inside a branch. c > 0 is mostly the same from token
 * to token, so that the branch is predicted well.
 */
#include "codegen/rowwise/emit/run.h"

row_branch row_when_begin(row_run *r) {
    hcg_emit *e = r->e;
    row_branch b = {0};
    if (!r->nest->when) return b;
    LLVMValueRef c = row_read(r, r->nest->when, r->loops).v[0];
    c = LLVMBuildFCmp(e->b, LLVMRealOGT, c, LLVMConstReal(e->f32, 0), "when");
    b.from = LLVMGetInsertBlock(e->b);
    b.past = LLVMAppendBasicBlockInContext(e->cx, e->fn, "summed");
    LLVMBasicBlockRef sums = LLVMAppendBasicBlockInContext(e->cx, e->fn, "sums");
    LLVMBuildCondBr(e->b, c, sums, b.past);
    LLVMPositionBuilderAtEnd(e->b, sums);
    b.scope = row_scope_begin(r);
    return b;
}

void row_when_end(row_run *r, const row_branch *b) {
    hcg_emit *e = r->e;
    if (!b->past) return;
    row_scope_end(r, b->scope);
    LLVMBasicBlockRef last = LLVMGetInsertBlock(e->b);
    LLVMBuildBr(e->b, b->past);
    LLVMPositionBuilderAtEnd(e->b, b->past);
    LLVMBasicBlockRef from[] = {b->from, last};
    for (size_t i = 0; i < r->nest->roots.n; i++) {
        row_made *made = &r->made[r->nest->roots.at[i]];
        if (!row_when(row_at(r->g, r->nest->roots.at[i]))) continue;
        LLVMValueRef sums[] = {LLVMConstReal(e->f32, 0), made->scalar};
        made->scalar = LLVMBuildPhi(e->b, e->f32, "sum");
        LLVMAddIncoming(made->scalar, sums, from, 2);
    }
    for (size_t i = 0; i < r->nest->roots.n; i++) { /* stores, behind all joins */
        const row_node *n = row_at(r->g, r->nest->roots.at[i]);
        row_pack p = {.uniform = true, .v = {row_made_of(r, n)->scalar}};
        if (row_when(n) && n->buffer != ROW_NO_BUFFER) row_write(r, n, r->loops, &p);
    }
}
