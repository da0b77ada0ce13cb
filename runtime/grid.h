/* How the threads share a step that may be cut both ways: a grid of cells of rows and columns. */
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

#endif
