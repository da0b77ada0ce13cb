/* Panels of a contraction of many rows, dealt to threads as they come.
 *
 * Where each thread has a share of the columns, the slowest decides when a step is done. A kernel
 * that is offered the work of all threads (hrt_frame.deal) cuts it into tickets: a block of rows,
 * some panels between two epilogues. Tickets are numbered block after block, and within a block
 * group after group. A thread takes the next number from a counter that all share, and prepares x
 * of a block when it comes to its first ticket of it. No sum depends on who computes it.
 *
 * A thread takes a ticket while it works on the one before, so that the panels can be prefetched.
 * So at the end one may be two tickets behind the others: work of few tickets is not dealt, and
 * each thread does the share that it was called for.
 */
#ifndef HCG_DEAL_H
#define HCG_DEAL_H

#include "codegen/emit/emit.h"

typedef struct hcg_dynamic {
    LLVMValueRef on;             /* i1: panels are dealt. NULL: a kernel without dealing */
    LLVMValueRef r0, r1, c0, c1; /* what is dealt, or this thread's share */
    LLVMValueRef each;           /* rows of a block */
    LLVMValueRef of_block;       /* tickets of a block */
    LLVMValueRef counter, hand;  /* of all threads; i64[2]: this thread's ticket and its next one */
    LLVMValueRef first;          /* ticket of the group at hand in the block at hand */
} hcg_dynamic;

/* What is offered, if anything is: r0 .. c1. */
void hcg_dynamic_offer(hcg_emit *e, hcg_dynamic *d);
/* Takes it or not: `each` and `of_block` are those of what is offered, `own_each` of the share. */
void hcg_dynamic_begin(hcg_emit *e, hcg_dynamic *d, LLVMValueRef each, LLVMValueRef of_block,
                       LLVMValueRef own_each);

/* i1: this thread has nothing to do in the block of rows that begins at `row`. */
LLVMValueRef hcg_dynamic_passes(hcg_emit *e, hcg_dynamic *d, LLVMValueRef row);
/* Panels of a group, `most` to a ticket: the thread's first, and the one behind those at `panel`;
 * beyond the group if it has no more of them. `from`: where its share begins. */
LLVMValueRef hcg_dynamic_first(hcg_emit *e, const hcg_dynamic *d, LLVMValueRef from,
                               LLVMValueRef most);
LLVMValueRef hcg_dynamic_next(hcg_emit *e, const hcg_dynamic *d, LLVMValueRef panel,
                              LLVMValueRef most);
/* A ticket is done. */
void hcg_dynamic_done(hcg_emit *e, const hcg_dynamic *d);
/* A group of `panels` is. */
void hcg_dynamic_group(hcg_emit *e, hcg_dynamic *d, LLVMValueRef panels, LLVMValueRef most);

#endif
