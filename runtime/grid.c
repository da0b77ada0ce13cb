/* How a contraction is cut into cells: the grid whose slowest thread finishes first.
 *
 * For each step along k, a cell of r rows and c columns costs
 *
 *     r c           multiply-adds of 16 outputs
 *     64 c + 4 r    bytes of weights and of activations to bring to the core
 *
 * and the cores that were measured load 8 bytes in the time of one such multiply-add. A few threads
 * cut columns alone where the columns divide evenly among them: each weight is then read by one
 * thread. Rows are cut, too, where cutting columns alone would leave threads without work or with
 * unequal shares, and where there are so many threads that each would get few columns for many
 * rows. In the latter case the weights, which are read once for each part of the rows, limit into
 * how many parts the rows are cut. */
#include "runtime/grid.h"

#include "runtime/hadal_rt.h"

static int64_t divide_up(int64_t n, int64_t by) {
    return (n + by - 1) / by;
}

static double cost(int64_t rows, int64_t cols) {
    const double r = (double)rows, c = (double)cols;
    return r * c + (64 * c + 4 * r) / 8;
}

hrt_grid hrt_cut(int64_t rows, int64_t cols, int threads) {
    hrt_grid best = {1, 1};
    double least = 0;
    for (int64_t r = 1; r <= threads && r <= rows; r++) {
        int64_t c = threads / r < cols ? threads / r : cols;
        double slowest = cost(divide_up(rows, r), divide_up(cols, c));
        if (r > 1 && slowest >= least) continue;
        least = slowest;
        best = (hrt_grid){(int)r, (int)c};
    }
    return best;
}

double hrt_cost_of_calls(int64_t rows, int64_t calls) {
    const double cols = 1e6;
    return cost(rows, (int64_t)cols) / cols + (double)(calls - 1) * cost(0, (int64_t)cols) / cols;
}

/* ---- tiles of rows, alongside collectives ---------------------------------------------------- */

/* Where tiles save less than this fraction of the time, all rows are done at once. */
static const double least_gain = 0.02;

hrt_tiled hrt_in_tiles(const hrt_beside *b, int64_t n) {
    const int64_t calls = n > 1 ? n * b->ranks : 1;
    const double more = hrt_cost_of_calls(b->tokens, calls) / hrt_cost_of_calls(b->tokens, 1);
    hrt_tiled t = {.compute = b->compute * more,
                   .collective = b->collective + (double)((n - 1) * b->collectives) * b->latency};
    const double least = t.compute < t.collective ? t.compute : t.collective;
    t.hidden = (1 - 1.0 / (double)n) * least;
    return t;
}

static double time_of(hrt_tiled t) {
    return t.compute + t.collective - t.hidden;
}

int64_t hrt_best_tiles(const hrt_beside *b) {
    double least = time_of(hrt_in_tiles(b, 1)) * (1 - least_gain);
    int64_t best = 1;
    for (int64_t n = 2; n <= HRT_MOST_TILES && n * b->ranks <= b->tokens; n++) {
        const double time = time_of(hrt_in_tiles(b, n));
        if (time >= least) continue;
        least = time;
        best = n;
    }
    return best;
}
