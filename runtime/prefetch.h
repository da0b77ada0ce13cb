/* Prefetch of weights by threads that wait.
 *
 * With one token, contractions run at the rate of memory, and memory is idle between them: while
 * one thread runs a row program, and while threads wait for each other. Which panels a thread reads
 * in the next contraction is known in advance (hrt_operand.col_bytes), so a waiting thread
 * prefetches the first ones of its share into its L2. It does so a few lines at a time and checks
 * in between whether the wait is over. The amount is bounded, so that the cache keeps the values
 * that it already holds. */
#ifndef HRT_PREFETCH_H
#define HRT_PREFETCH_H

#include <stdbool.h>

#include "runtime/hadal_rt.h"

enum {
    HRT_PREFETCH_BLOCK = 256,  /* bytes at a time: four lines, some 30 ns of one thread's reading */
    HRT_PREFETCH_MATRICES = 8, /* of a step, at most; further ones are not prefetched */
};

typedef struct hrt_prefetch {
    uint32_t step;      /* the step to prefetch for; UINT32_MAX: none yet */
    uint32_t n, matrix; /* matrices of the step; the next bytes are of this one, column `col`, */
    int64_t col, to;    /* (to: the end of the thread's columns) */
    uint64_t at;        /* `at` bytes into its panel */
    int64_t left;       /* bytes to prefetch; 0: no more */
    const hrt_operand *of[HRT_PREFETCH_MATRICES];
    const uint8_t *weights;
} hrt_prefetch;

/* The most bytes to prefetch for a step: a quarter of the L2; the rest keeps values. */
static inline int64_t hrt_prefetch_most(uint32_t l2) {
    return l2 / 4;
}
/* Sets the prefetch to columns [from, to) of step `step`, at most `most` bytes of them. If it is
 * set to them already, it continues where it is. */
void hrt_prefetch_aim(hrt_prefetch *a, const hrt_model *m, const uint8_t *weights, uint32_t step,
                      int64_t from, int64_t to, int64_t most);
/* The next HRT_PREFETCH_BLOCK bytes to prefetch, the last of which may lie beyond a panel's end.
 * NULL: there are no more. */
const uint8_t *hrt_prefetch_next(hrt_prefetch *a);

#endif
