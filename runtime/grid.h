/* How a step is cut, by formulas of what that takes: among threads, into a grid of cells of rows
 * and columns; and into tiles of rows, where it goes on beside exchanges. */
#ifndef HRT_GRID_H
#define HRT_GRID_H

#include <stdint.h>

typedef struct hrt_grid {
    int rows, cols; /* parts of each; rows * cols <= threads, and no part is empty */
} hrt_grid;

/* For a contraction: a row is a token, a column a panel of 16 outputs. rows, cols, threads > 0. The
 * same for the same numbers, so that a thread meets the same panels in every call. */
hrt_grid hrt_cut(int64_t rows, int64_t cols, int threads);

/* What a contraction of many columns takes for `rows` rows in `calls` calls, in rows: each call
 * reads the weights. */
double hrt_cost_of_calls(int64_t rows, int64_t calls);

/* ---- tiles ----------------------------------------------------------------------------------- */

/* What computing beside exchanges takes, cut into tiles of rows. The runtime chooses by it
 * (tiles.c), of what it has measured; `hadal plan` predicts with it.
 *
 * Of C, what the steps of the overlaps take all rows at once, and X, what their exchanges take, n
 * tiles leave
 *
 *     C(n) + X(n) - (1 - 1/n) min(C(n), X(n))
 *
 * since the first tile has nothing to compute beside. More tiles cost: C(n) has the weights read
 * once for each part of the rows, X(n) a latency for each message more. */
typedef struct hrt_beside { /* of a chunk, all rows at once; times in one unit */
    int64_t tokens, ranks;
    double compute, collective; /* of the steps of all overlaps */
    double latency;             /* of a message */
    int64_t collectives;        /* of all overlaps */
} hrt_beside;

typedef struct hrt_tiled {
    double compute, collective; /* C(n), X(n) */
    double hidden;              /* of both, what goes on at once */
} hrt_tiled;

hrt_tiled hrt_in_tiles(const hrt_beside *b, int64_t n);
/* The number of tiles that takes least; 1, all rows at once, where none saves a fiftieth. */
int64_t hrt_best_tiles(const hrt_beside *b);

#endif
