/* The parts of emit_contract.c: what a tile of results goes through before it is stored. */
#ifndef HCG_CONTRACT_H
#define HCG_CONTRACT_H

#include "codegen/contraction.h"
#include "codegen/emit.h"

/* A block of finished sums of one column group, in scratch. */
typedef struct hcg_block {
    const hcg_contraction *plan;
    const hcg_column_group *group;
    LLVMValueRef row, rows;     /* first token, and how many */
    LLVMValueRef panel, panels; /* first panel of the group, and how many */
    LLVMValueRef *sums;         /* per linear of the group: f32 [rows][ld], column 0 is `panel` */
    LLVMValueRef ld;
    LLVMValueRef n; /* output features of the group; n % 16 is that of group->n */
} hcg_block;

/* bias, the ops of the group, and the stores of what it yields. A block of a group with heads holds
 * whole ones: it begins at a multiple of group.unit panels. */
bool hcg_emit_epilogue(hcg_emit *e, const hcg_kernel *k, const hcg_block *b);

#endif
