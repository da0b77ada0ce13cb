/* How the work of a step is divided, by formulas of its time: among threads, into a grid of cells
 * of rows and columns; and into tiles of rows, where the step runs while collectives are under way.
 */
#ifndef HRT_GRID_H
#define HRT_GRID_H

#include <stdint.h>

typedef struct hrt_grid {
    int rows, cols; /* parts of the rows and of the columns; rows * cols <= threads, and no part is
                     * empty */
} hrt_grid;

/* The grid of a contraction: a row is a token, a column a panel of 16 outputs. rows, cols, threads
 * > 0. The result depends on these numbers alone, so that a thread reads the same panels in every
 * call. */
hrt_grid hrt_cut(int64_t rows, int64_t cols, int threads);

/* The time that a contraction of many columns takes for `rows` rows in `calls` calls, in the time
 * of one row: each call reads the weights again. */
double hrt_cost_of_calls(int64_t rows, int64_t calls);

/* ---- tiles ----------------------------------------------------------------------------------- */

/* The time of computing that overlaps with collectives, cut into tiles of rows. The runtime chooses
 * the number of tiles by it (tiles.c), from what it has measured; `hadal plan` predicts with it.
 *
 * C is the time of the steps of the overlaps and X the time of their collectives, all rows at once.
 * With n tiles they take
 *
 *     C(n) + X(n) - (1 - 1/n) min(C(n), X(n))
 *
 * since the first tile has no computing to overlap with. More tiles cost more: C(n) includes
 * reading the weights once for each tile, X(n) one more latency for each further message. */
typedef struct hrt_beside { /* of a chunk, all rows at once; times in one unit */
    int64_t tokens, ranks;
    double compute, collective; /* of the steps of all overlaps */
    double latency;             /* of a message */
    int64_t collectives;        /* of all overlaps */
} hrt_beside;

typedef struct hrt_tiled {
    double compute, collective; /* C(n), X(n) */
    double hidden;              /* time in which both run at once */
} hrt_tiled;

hrt_tiled hrt_in_tiles(const hrt_beside *b, int64_t n);
/* The number of tiles that takes least; 1, all rows at once, where none saves a fiftieth. */
int64_t hrt_best_tiles(const hrt_beside *b);

#endif
