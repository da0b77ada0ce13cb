/* What computing beside exchanges takes, cut into tiles of rows. The runtime chooses by it
 * (tiles.c), of what it has measured; `hadal plan` predicts with it.
 *
 * Of C, what the steps of the overlaps take all rows at once, and X, what their exchanges take, n
 * tiles leave
 *
 *     C(n) + X(n) - (1 - 1/n) min(C(n), X(n))
 *
 * since the first tile has nothing to compute beside. More tiles cost: C(n) has the weights read
 * once for each part of the rows (grid.c), X(n) a latency for each message more. */
#ifndef HRT_TILE_TIME_H
#define HRT_TILE_TIME_H

#include <stdint.h>

typedef struct hrt_beside { /* of a chunk, all rows at once; times in one unit */
    int64_t tokens, ranks;
    double compute, exchange; /* of the steps of all overlaps */
    double latency;           /* of a message */
    int64_t exchanges;        /* of all overlaps */
} hrt_beside;

typedef struct hrt_tiled {
    double compute, exchange; /* C(n), X(n) */
    double hidden;            /* of both, what goes on at once */
} hrt_tiled;

hrt_tiled hrt_in_tiles(const hrt_beside *b, int64_t n);
/* The number of tiles that takes least; 1, all rows at once, where none saves a fiftieth. */
int64_t hrt_best_tiles(const hrt_beside *b);

#endif
