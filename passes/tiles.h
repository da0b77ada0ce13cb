/* When a run of kernels may go tile by tile: what form-blocks expects and tile-tokens decides. */
#ifndef HIR_PASSES_TILES_H
#define HIR_PASSES_TILES_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TILE_LOCAL_BYTES = 512 << 10, /* of the L2 of one core */
    TILE_WEIGHT_BYTES =
        8 << 20,            /* of the shared cache: what one thread gets of it on shared hosts */
    TILE_HIDDEN_FLOPS = 48, /* per byte of weights: 5 GB/s beside 250 GFLOP/s of one core */
    TILE_ROW_STEP = 48,     /* tiles of whole slabs, for slabs of 2, 6, 8 and 12 rows */
    TILE_MOST_ROWS = 4 * TILE_ROW_STEP, /* more would gain nothing: panels are read often enough */
};

/* Tokens of a tile of which `alive` bytes a token are kept at once; 0: too many bytes. */
static inline int64_t tile_rows(uint64_t alive) {
    int64_t rows =
        (int64_t)(TILE_LOCAL_BYTES / (alive ? alive : 1)) / TILE_ROW_STEP * TILE_ROW_STEP;
    return rows > TILE_MOST_ROWS ? TILE_MOST_ROWS : rows;
}

/* Reading the weights again for each tile costs nothing. */
static inline bool tile_hides(int64_t rows, uint64_t elements, uint64_t bytes) {
    return bytes <= TILE_WEIGHT_BYTES || 2 * (uint64_t)rows * elements >= TILE_HIDDEN_FLOPS * bytes;
}

#endif
