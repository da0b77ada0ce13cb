/* Prefetches, and loops over weights that are read from memory once: a loop over steps, and around
 * it a loop over the pages that they lie in, which prefetches a line of a page further on.
 *
 * Lines are prefetched a few kilobytes ahead (codegen/target/prefetch_distance.h). In pages of 4 KB
 * that alone is not enough: all lines of a new page wait until its address is translated, and
 * whatever else is to be prefetched waits after them. One line of each page, prefetched some pages
 * ahead, has the address translated in time (docs/decisions/memory-access.md).
 *
 *   hcg_stream s = hcg_stream_begin(e, &where, "k", n, init);  ... s.step.index, s.step.carried[i]
 *   hcg_stream_end(e, &s, next);   then s.page.carried[i] are the final values
 *
 * Where all steps lie in a page or two, a loop over pages costs more instructions than it saves:
 * `pages` says so, and then there is only the loop over steps, after one prefetch for each page. */
#ifndef HCG_STREAM_H
#define HCG_STREAM_H

#include "codegen/emit/emit.h"

/* Prefetches the cache line `bytes` after p; beyond the end of memory it does nothing. */
void hcg_prefetch(hcg_emit *e, LLVMValueRef p, int64_t bytes);
/* Keeps LLVM from loading early what the code after it reads: where registers are for the operands
 * of one step, those of later steps would be spilled. It is no instruction. A prefetch has the same
 * effect. */
void hcg_keep_order(hcg_emit *e);
/* As hcg_prefetch, but not into the L1. */
void hcg_prefetch_l2(hcg_emit *e, LLVMValueRef p, int64_t bytes);
/* Passes vectors through what LLVM cannot look into, which is no instruction: all of them are computed
 * before anything that uses what it leaves. */
enum { HCG_MOST_TOGETHER = 16 };
void hcg_keep_together(hcg_emit *e, LLVMValueRef *x, unsigned n);

typedef struct hcg_streamed {
    LLVMValueRef from;  /* where step 0 reads */
    LLVMValueRef steps; /* how many steps there are: a multiple of `each` */
    int64_t each;       /* steps in an iteration */
    int64_t bytes;      /* bytes that a step reads */
    int64_t pages;      /* pages of all steps (hcg_stream_pages); 0: not known, or more */
} hcg_streamed;

/* How many pages `bytes` bytes take if a loop over pages does not pay for them, else 0. */
int64_t hcg_stream_pages(int64_t bytes);

typedef struct hcg_stream {
    hcg_loop page, step; /* page is step where there is no loop over pages */
    int64_t pages;
} hcg_stream;

hcg_stream hcg_stream_begin(hcg_emit *e, const hcg_streamed *w, const char *name, unsigned n,
                            const LLVMValueRef *init);
void hcg_stream_end(hcg_emit *e, hcg_stream *s, const LLVMValueRef *next);

/* Prefetches a line of each page that the bytes at `at` lie in, for readers that prefetch the
 * other lines while they compute. A prefetch waits for its page's address as a load does, and the
 * instructions after it soon wait, too. Page by page that would be one wait for each page; all
 * pages together take as many walks of the page tables at once as the CPU can do. */
void hcg_translate_pages(hcg_emit *e, LLVMValueRef at, LLVMValueRef bytes);

#endif
