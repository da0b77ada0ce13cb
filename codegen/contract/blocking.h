/* Sizes of a contraction's blocks, from those of the caches that a level may count on
 * (hcg_level.machine). Three quarters of a cache are for a block, the rest for what passes by. */
#ifndef HCG_BLOCKING_H
#define HCG_BLOCKING_H

#include "codegen/emit/emit.h"

/* Rows of x that a kernel computes together, while panels pass: rows of `row_bytes` stay in the L2,
 * and the sums of `panels` panels in the L1. */
int64_t hcg_block_rows(const hcg_level *level, int64_t row_bytes, int64_t panels);
/* Steps of k, of 64 bytes in each of `panels` panels, over which all rows of a block run before the
 * next: those panels stay in the L1. */
int64_t hcg_block_steps(const hcg_level *level, int64_t panels);
/* How far ahead of its use a stream is prefetched: `bytes`, which is what memory owes a thread
 * (latency times bandwidth), if an L1 keeps that until it is used. */
int64_t hcg_prefetch_distance(const hcg_level *level, int64_t bytes);

#endif
