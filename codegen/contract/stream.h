/* Loops over weights that are read from memory once: a loop over steps, and around it one over the
 * pages that they lie in, which asks for a line of a page further on.
 *
 * Lines are prefetched a few kilobytes ahead. In pages of 4 KB that alone is not enough: all lines
 * of a new page wait until its address is translated, and whatever else was to be asked for waits
 * behind them. One line of each page, asked for some pages ahead, has it translated in time
 * (docs/decisions/prefetch-weights.md).
 *
 *   hcg_stream s = hcg_stream_begin(e, &where, "k", n, init);  ... s.step.index, s.step.carried[i]
 *   hcg_stream_end(e, &s, next);   then s.page.carried[i] are the final values */
#ifndef HCG_STREAM_H
#define HCG_STREAM_H

#include "codegen/emit/emit.h"

typedef struct hcg_streamed {
    LLVMValueRef from;  /* where step 0 reads */
    LLVMValueRef steps; /* how many there are: a multiple of `each` */
    int64_t each;       /* of them in an iteration */
    int64_t bytes;      /* that one reads */
} hcg_streamed;

typedef struct hcg_stream {
    hcg_loop page, step;
} hcg_stream;

hcg_stream hcg_stream_begin(hcg_emit *e, const hcg_streamed *w, const char *name, unsigned n,
                            const LLVMValueRef *init);
void hcg_stream_end(hcg_emit *e, hcg_stream *s, const LLVMValueRef *next);

#endif
