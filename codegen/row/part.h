/* A row program inside of another kernel: some ops of its body, run over rows that lie in scratch
 * while they are warm. With `heads`, every value of the part is [T, heads, ..] or [T, heads n]
 * (ir/heads.c), and the ops run for one head after the other: a block holds some of them. */
#ifndef HCG_EMIT_ROW_PART_H
#define HCG_EMIT_ROW_PART_H

#include "codegen/contract/contraction.h"
#include "codegen/emit/emit.h"

typedef struct hcg_row_block { /* f32: of row i the elements from base[i ld] on */
    hir_id value;
    LLVMValueRef base, ld;
} hcg_row_block;

typedef struct hcg_row_part {
    const hir_id *ops; /* in order */
    size_t n_ops;
    hcg_row_block given;     /* a value that the ops read */
    hcg_row_block left;      /* one that they leave in scratch; value HIR_NONE: none */
    const hcg_yield *yields; /* those that leave the kernel */
    size_t n_yields;
    int64_t heads;          /* 0: rows are not cut */
    LLVMValueRef row, rows; /* first token, and how many */
    LLVMValueRef head, end; /* heads of the block, from .. to; unused without heads */
} hcg_row_part;

bool hcg_emit_row_part(hcg_emit *e, const hcg_kernel *k, const hcg_row_part *part);

#endif
