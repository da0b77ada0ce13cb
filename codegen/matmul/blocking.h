/* Sizes of a contraction's blocks, from those of the caches that a level may count on
 * (hcg_level.machine). A block gets three quarters of a cache, data that is used once the rest. */
#ifndef HCG_BLOCKING_H
#define HCG_BLOCKING_H

#include "codegen/emit/emit.h"

/* Rows of x in a block: rows of `row_bytes` stay in the L2 while panels are streamed past them, and
 * the sums of `panels` panels in the L1. */
int64_t hcg_block_rows(const hcg_level *level, int64_t row_bytes, int64_t panels);
/* Steps of k, of 64 bytes in each of `panels` panels, over which all rows of a block run before the
 * next: those panels stay in the L1. */
int64_t hcg_block_steps(const hcg_level *level, int64_t panels);

#endif
