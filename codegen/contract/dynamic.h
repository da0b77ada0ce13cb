/* Panels of a contraction of many rows, scheduled dynamically among threads.
 *
 * Where each thread has a fixed share of the columns, the slowest thread decides when a step is
 * done. A kernel that is offered the work of all threads (hrt_dynamic in its frame) cuts it into
 * work items: one block of rows times the panels between two epilogues. A thread prepares x of a
 * block when it comes to its first item of that block. No sum depends on which thread computes it.
 *
 * There is a queue of blocks for each thread, or as many as there are blocks, and at most
 * HRT_QUEUES. Queue q of n has the blocks q, q + n, q + 2 n .., whose items are numbered block after
 * block, and within a block group after group. Threads take the next number from the queue's
 * counter: each from its own queue first, then from the next ones (work stealing). So most blocks are done
 * by one thread, which prepares x once and reads weights in long stretches; if all threads took
 * items of one block in turn, each would prepare it, and would often begin a panel in pages that are
 * not translated yet.
 *
 * A thread takes its next item while it works on the present one, so that the next panels can be
 * prefetched. So at the end one thread may have two items left when the others have none: work of
 * few items is not scheduled dynamically, and each thread computes the share that it was called
 * for.
 */
#ifndef HCG_DYNAMIC_H
#define HCG_DYNAMIC_H

#include "codegen/emit/emit.h"

typedef struct hcg_dynamic {
    LLVMValueRef on;             /* i1: scheduling is dynamic. NULL: it never is in this kernel */
    LLVMValueRef r0, r1, c0, c1; /* all threads' work, or this thread's share */
    LLVMValueRef each;           /* rows of a block */
    LLVMValueRef of_block;       /* work items of a block */
    LLVMValueRef offer;          /* the address of the hrt_dynamic */
    LLVMValueRef queues;         /* how many there are; 1 if scheduling is not dynamic */
    LLVMValueRef counter, hand;  /* of the queue; i64[2]: this thread's item and its next one */
    LLVMValueRef row, step;      /* of the queue: its first row, and from block to block */
    LLVMValueRef first;          /* first item of the present group in the present block */
} hcg_dynamic;

/* Reads the offered work, or else the thread's share, into r0 .. c1. */
void hcg_dynamic_offer(hcg_emit *e, hcg_dynamic *d);
/* Decides between the offer and the share. `each` (rows of a block) and `of_block` (items of a
 * block) apply to the offered work, `own_each` is `each` of the share. */
void hcg_dynamic_begin(hcg_emit *e, hcg_dynamic *d, LLVMValueRef each, LLVMValueRef of_block,
                       LLVMValueRef own_each);
/* Goes to the i-th queue that this thread takes items of; i < queues. */
void hcg_dynamic_queue(hcg_emit *e, hcg_dynamic *d, LLVMValueRef i);

/* i1: this thread has nothing to do in the block of the queue that begins at `row`. */
LLVMValueRef hcg_dynamic_passes(hcg_emit *e, hcg_dynamic *d, LLVMValueRef row);
/* A work item is `most` panels of a group. These give the first panel of the thread's first item
 * in the group, and of its item after the one at `panel`: a panel beyond the group if it has no
 * more items there. `from`: where the thread's own share begins. */
LLVMValueRef hcg_dynamic_first(hcg_emit *e, const hcg_dynamic *d, LLVMValueRef from,
                               LLVMValueRef most);
LLVMValueRef hcg_dynamic_next(hcg_emit *e, const hcg_dynamic *d, LLVMValueRef panel,
                              LLVMValueRef most);
/* To be called after each work item: the thread goes on to its next one. */
void hcg_dynamic_done(hcg_emit *e, const hcg_dynamic *d);
/* To be called after each group, which has `panels` panels. */
void hcg_dynamic_group(hcg_emit *e, hcg_dynamic *d, LLVMValueRef panels, LLVMValueRef most);

#endif
