/* Sizes of blocks from sizes of caches (matmul/blocking.h). */
#include "codegen/matmul/blocking.h"

enum {
    MOST_ROWS = 128,   /* beyond, reading panels less often gains nothing beside the arithmetic */
    FEWEST_ROWS = 32,  /* however long they are: panels are read once for each block */
    MOST_STEPS = 128,  /* a sum's rounding error grows with the steps of a block, not with K */
    FEWEST_STEPS = 16, /* each block reads and writes all sums */
    LINE = HIR_PANEL * (int)sizeof(float), /* of a panel: a step, or a row's sums */
};

static int64_t most_of(uint32_t cache) {
    return (int64_t)cache / 4 * 3;
}

static int64_t clamp(int64_t n, int64_t low, int64_t high) {
    return n < low ? low : n > high ? high : n;
}

int64_t hcg_block_rows(const hcg_level *level, int64_t row_bytes, int64_t panels) {
    const int64_t in_l2 = most_of(level->machine.l2) / row_bytes;
    const int64_t in_l1 = most_of(level->machine.l1) / (LINE * panels);
    return clamp(in_l2 < in_l1 ? in_l2 : in_l1, FEWEST_ROWS, MOST_ROWS);
}

int64_t hcg_block_steps(const hcg_level *level, int64_t panels) {
    return clamp(most_of(level->machine.l1) / (LINE * panels), FEWEST_STEPS, MOST_STEPS);
}
