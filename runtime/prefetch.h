/* What a thread reads next, asked for while it has nothing to do.
 *
 * With one token, contractions run at the rate of memory, and memory rests between them: while one
 * thread does a row program, and while threads wait for each other. Which panels a thread meets in
 * the next contraction is known before (hrt_operand.col_bytes), so a thread that waits brings the
 * first of its own share into its L2. It asks for a few lines at a time and looks
 * in between whether the wait is over; how much it asks for is bounded, so that what the cache
 * holds of values stays. */
#ifndef HRT_PREFETCH_H
#define HRT_PREFETCH_H

#include <stdbool.h>

#include "runtime/hadal_rt.h"

enum {
    HRT_PREFETCH_BLOCK = 256,  /* bytes at a time: four lines, some 30 ns of one thread's reading */
    HRT_PREFETCH_MATRICES = 8, /* of a step; more are left alone */
};

typedef struct hrt_prefetch {
    uint32_t step;      /* the one it is for; UINT32_MAX: none yet */
    uint32_t n, matrix; /* matrices of the step; where it is: column col of this one, */
    int64_t col, to;    /* (to: the end of the thread's columns) */
    uint64_t at;        /* and so many bytes into its panel */
    int64_t left;       /* bytes; 0: nothing more to ask for */
    const hrt_operand *of[HRT_PREFETCH_MATRICES];
    const uint8_t *weights;
} hrt_prefetch;

/* Bytes for one step, of an L2 of so many: what it holds of values stays. */
static inline int64_t hrt_prefetch_most(uint32_t l2) {
    return l2 / 4;
}
/* Columns [from, to) of the step come next, at most `most` bytes of them; goes on where it was if
 * that is so already. */
void hrt_prefetch_aim(hrt_prefetch *a, const hrt_model *m, const uint8_t *weights, uint32_t step,
                      int64_t from, int64_t to, int64_t most);
/* The next HRT_PREFETCH_BLOCK bytes to ask for, maybe some beyond a panel's end. NULL: there are
 * none.
 */
const uint8_t *hrt_prefetch_next(hrt_prefetch *a);

#endif
