/* Prologue and epilogue of a contraction kernel: the ops that make x, and those from sums to stored
 * results. */
#ifndef HCG_EPILOGUE_H
#define HCG_EPILOGUE_H

#include "codegen/emit/emit.h"
#include "codegen/program/contraction.h"

/* A block of finished sums of one column group, in scratch. */
typedef struct hcg_block {
    const hcg_contraction *plan;
    const hcg_column_group *group;
    LLVMValueRef row, rows;     /* first token, and how many */
    LLVMValueRef panel, panels; /* first panel of the group, and how many */
    LLVMValueRef *sums;         /* per linear of the group: f32 [rows][ld], column 0 is `panel` */
    int64_t sum_bytes;          /* bytes from one linear's sums to the next */
    LLVMValueRef ld;
    LLVMValueRef n; /* output features of the group; n % 16 is that of group->n */
    /* Of experts: */
    LLVMValueRef row_of; /* i32: `row` and the numbers after it are entries of this list, which say
                            where results lie; NULL: they are rows of results */
    LLVMValueRef expert; /* whose biases are added; NULL: one bias for all rows */
    bool without_bias;
} hcg_block;

/* Emits the bias, the ops of the group, and the stores of what it yields. A block of a group with
 * heads holds whole heads: it begins at a multiple of group.unit panels. */
bool hcg_emit_epilogue(hcg_emit *e, const hcg_kernel *k, const hcg_block *b);

/* The columns of this rank's share that are logits, of cross_entropy.parts with `whole`; more than
 * it has where none is padding. NULL: there is one rank. */
LLVMValueRef hcg_own_logits(hcg_emit *e, const hcg_column_group *g);
/* cross_entropy.parts of one row of the block, whose logits lie where the sums were (loss.c). */
void hcg_emit_loss_parts(hcg_emit *e, const hcg_kernel *k, const hcg_block *b, LLVMValueRef row,
                         LLVMValueRef logits);

/* Entry i of a list of rows, i64. */
LLVMValueRef hcg_row_number(hcg_emit *e, LLVMValueRef row_of, LLVMValueRef i);

/* ---- contract/epilogue.c ------------------------------------------------------------------------
 * Prologue and epilogue are functions of their own that the kernel calls for each block. Their
 * scratch begins after the kernel's, so the kernel must take no more scratch after the first
 * call. */
/* Makes `rows` rows of x, from token `row` on, at x; rows are ld floats apart. */
bool hcg_call_prologue(hcg_emit *e, const hcg_kernel *k, LLVMValueRef row, LLVMValueRef rows,
                       LLVMValueRef x, LLVMValueRef ld);
/* hcg_emit_epilogue in the outlined function, which finds b->n itself. */
bool hcg_call_epilogue(hcg_emit *e, const hcg_kernel *k, const hcg_block *b);

#endif
