/* How threads share rows and columns of a contraction (runtime/grid.h). */
#include <criterion/criterion.h>
#include <criterion/theories.h>

#include "runtime/grid.h"

static int64_t most_in_part(int64_t n, int parts) {
    return (n + parts - 1) / parts;
}

TheoryDataPoints(grid, fits_and_never_loses_to_columns_alone) = {
    DataPoints(int64_t, 1, 2, 7, 8, 9, 16, 33, 128, 512, 100000),
    DataPoints(int64_t, 1, 2, 3, 4, 5, 17, 64, 192, 2000, 1000000),
    DataPoints(int, 1, 2, 3, 4, 6, 16, 17, 64, 255, 256),
};

/* No part is empty, no thread is asked for that is not there, and the largest cell is at most as
 * much arithmetic as the largest share of columns. */
Theory((int64_t rows, int64_t cols, int threads), grid, fits_and_never_loses_to_columns_alone) {
    hrt_grid g = hrt_cut(rows, cols, threads);
    cr_assert(g.rows >= 1 && g.cols >= 1 && g.rows <= rows && g.cols <= cols);
    cr_assert_leq(g.rows * g.cols, threads);
    int alone = threads < cols ? threads : (int)cols;
    double cell = (double)most_in_part(rows, g.rows) * (double)most_in_part(cols, g.cols);
    double bytes = 8 * (double)most_in_part(cols, alone) + (double)rows / 2;
    cr_assert_leq(cell, (double)rows * (double)most_in_part(cols, alone) + bytes);
}

static void expect(int64_t rows, int64_t cols, int threads, int row_parts, int col_parts) {
    hrt_grid g = hrt_cut(rows, cols, threads);
    cr_assert(g.rows == row_parts && g.cols == col_parts,
              "%ld x %ld on %d threads is %d x %d, not %d x %d", (long)rows, (long)cols, threads,
              g.rows, g.cols, row_parts, col_parts);
}

Test(grid, columns_where_they_go_round) {
    expect(512, 64, 2, 1, 2);
    expect(512, 192, 4, 1, 4);
    expect(16, 192, 16, 1, 16);
    expect(1, 64, 16, 1, 16); /* one token */
}

Test(grid, rows_where_columns_are_few) {
    expect(512, 1, 2, 2, 1);  /* 16 outputs */
    expect(512, 3, 2, 2, 1);  /* 2 + 1 columns would be a third slower */
    expect(512, 4, 16, 8, 2); /* a low-rank projection */
    expect(512, 64, 48, 6, 8);
}

Test(grid, threads_without_work_stay_out) {
    expect(1, 2, 16, 1, 2);
    expect(2, 1, 16, 2, 1);
}
