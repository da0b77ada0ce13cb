/* The prologue or epilogue of a contraction as a row program: some ops of the kernel's body, run
 * over rows that lie in scratch while they are in the caches. */
#ifndef HCG_ROW_STAGE_H
#define HCG_ROW_STAGE_H

#include "codegen/emit/emit.h"
#include "codegen/rowwise/graph/graph.h"

typedef struct hcg_row_block { /* f32: row i is the elements from base[i ld] on */
    LLVMValueRef base, ld;
} hcg_row_block;

typedef struct hcg_row_stage {
    row_stage_ops of;
    hcg_row_block given, left; /* where of.given and of.left lie */
    LLVMValueRef row, rows;    /* first token, and how many */
    LLVMValueRef head, end;    /* heads of the block, from .. to; unused without heads */
} hcg_row_stage;

/* Whether the code of such an op, in a row program or a prologue, may call a shared function. */
bool hcg_op_calls_shared(hir_opcode code);

bool hcg_emit_row_stage(hcg_emit *e, const hcg_kernel *k, const hcg_row_stage *stage);

#endif
