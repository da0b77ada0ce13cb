#include "runtime/tile_time.h"

#include "runtime/grid.h"
#include "runtime/hadal_rt.h"

/* Where less than this part of the time is saved, all rows go at once. */
static const double least_gain = 0.02;

hrt_tiled hrt_in_tiles(const hrt_beside *b, int64_t n) {
    const int64_t calls = n > 1 ? n * b->ranks : 1;
    const double more = hrt_cost_of_calls(b->tokens, calls) / hrt_cost_of_calls(b->tokens, 1);
    hrt_tiled t = {.compute = b->compute * more,
                   .exchange = b->exchange + (double)((n - 1) * b->exchanges) * b->latency};
    const double least = t.compute < t.exchange ? t.compute : t.exchange;
    t.hidden = (1 - 1.0 / (double)n) * least;
    return t;
}

static double time_of(hrt_tiled t) {
    return t.compute + t.exchange - t.hidden;
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
