/* The gradients of attention over selected rows, of a token whose few query heads share keys
 * (selected_few.c). */
#ifndef HCG_SELECTED_FEW_H
#define HCG_SELECTED_FEW_H

#include "codegen/attention/selection.h"
#include "codegen/gradient/attention_parts.h"

enum { HCG_FEW_HEADS = 4 }; /* the most that share keys */

typedef struct hcg_few {
    const hcg_attention *a;
    const hcg_selection *rows;
    LLVMValueRef q, dy; /* [T][H][n], [T][H][m] */
    LLVMValueRef dq;    /* the same; NULL: not wanted */
    const hcg_gathered *k, *v, *entry;
    /* Of the present token: */
    LLVMValueRef
        dsink; /* by token; by head, of the group's heads, and added to; NULL in `begin`: not
                           wanted */
    LLVMValueRef group, row;
    hcg_sight seen;
    /* The rest is set by the functions below. Scratch: */
    LLVMValueRef scaled, dqs;             /* [head][n]: scale q, and dq without scale */
    LLVMValueRef scores, slopes, factors; /* [head][ld]: l, then p; e, then dl; of a soft cap */
    int64_t ld;
} hcg_few;

/* Takes scratch. */
void hcg_few_begin(hcg_emit *e, hcg_few *f);
void hcg_few_token(hcg_emit *e, const hcg_few *f);

#endif
