/* Which rows of a call belong to which expert. */
#ifndef HCG_EXPERT_ROWS_H
#define HCG_EXPERT_ROWS_H

#include "codegen/emit/emit.h"

/* Slots sorted by the expert that they have chosen, in scratch. Entry j of token t is slot t k + j.
 *
 *     list[end[e - 1] .. end[e])   slots of expert e, in order; those of ids outside come last, as
 *                                  if they had chosen expert E
 *     weight                       sum over experts with rows of (their rows + HCG_PANEL_ROWS)
 *
 * Every thread sorts for itself, which takes less time than a barrier of all threads and leaves
 * nothing for them to share. It is a counting sort, so the same ids give the same list. */
typedef struct hcg_expert_rows {
    LLVMValueRef list, end; /* i32 */
    LLVMValueRef weight;    /* i64 */
} hcg_expert_rows;

/* Reading a panel for some rows costs as much as multiplying so many more rows. */
enum { HCG_PANEL_ROWS = 8 };

/* Sorts the slots from .. to, at most `most` of them. */
hcg_expert_rows hcg_sort_by_expert(hcg_emit *e, LLVMValueRef ids, LLVMValueRef from,
                                   LLVMValueRef to, int64_t most, int64_t experts);
/* from, to: where the slots of expert `expert` (i64) begin and end in the list. */
void hcg_rows_of_expert(hcg_emit *e, const hcg_expert_rows *s, LLVMValueRef expert,
                        LLVMValueRef *from, LLVMValueRef *to);
/* out[i][k] = x[list[from + i] / each][k], i < n: rows of x side by side. */
void hcg_gather_rows(hcg_emit *e, LLVMValueRef x, LLVMValueRef list, LLVMValueRef from,
                     LLVMValueRef n, int64_t each, int64_t k, LLVMValueRef out);
/* Element i of ids as i64; beyond experts - 1, or negative: `experts`. */
LLVMValueRef hcg_chosen_expert(hcg_emit *e, LLVMValueRef ids, LLVMValueRef i, LLVMValueRef experts);

#endif
