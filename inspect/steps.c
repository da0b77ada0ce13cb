#include "inspect/steps.h"

#include <math.h>
#include <stdbool.h>

#include "runtime/hadal_rt.h"

/* The sum, over the first n rows of a sequence, of the positions that a row attends to: min(i + 1,
 * window) for row i. */
static double positions_seen(double n, double window) {
    return n <= window ? n * (n + 1) / 2 : window * (window + 1) / 2 + (n - window) * window;
}

/* The same sum for the last `rows` rows of past + T; window 0: a row attends to all positions
 * before it. */
static double pairs(const hd_info_step *k, int64_t T, int64_t past, int64_t rows) {
    const double end = (double)(past + T), window = k->window ? (double)k->window : end;
    return positions_seen(end, window) - positions_seen(end - (double)rows, window);
}

/* Positions that at least one of the rows attends to. */
static double positions(const hd_info_step *k, int64_t T, int64_t past, int64_t rows) {
    const double all = (double)(past + T), seen = (double)k->window + (double)rows - 1;
    return k->window && seen < all ? seen : all;
}

double step_share_touched(uint64_t experts, uint64_t chosen, int64_t rows) {
    if (!experts) return 0;
    return 1 - pow(1 - (double)chosen / (double)experts, (double)rows);
}

void step_work_add(step_work *sum, step_work w) {
    sum->flops += w.flops;
    sum->bytes += w.bytes;
    sum->state_bytes += w.state_bytes;
    sum->touched += w.touched;
    sum->untouched += w.untouched;
}

/* Does the step lie on a conditional path that such a call does not take? */
static bool is_left_out(const hd_info_step *k, int64_t rows, int64_t length) {
    const hrt_condition c = {.when = (uint32_t)k->when,
                             .forms = {.window = (int64_t)k->window,
                                       .few_pair = (int64_t)k->few_pair,
                                       .many_pair = (int64_t)k->many_pair,
                                       .few_row = (int64_t)k->few_row,
                                       .many_position = (int64_t)k->many_position,
                                       .most = (int64_t)k->many_most}};
    return !hrt_runs(&c, rows, length);
}

step_work step_work_of(const hd_info_step *k, int64_t T, int64_t past, int64_t asked) {
    const int64_t rows = k->last_rows ? asked : T;
    if (rows == 0 || is_left_out(k, rows, past + T)) return (step_work){0};
    const double cached = (double)k->position_bytes * positions(k, T, past, rows);
    const double chosen = (double)k->expert_bytes * step_share_touched(k->experts, k->chosen, rows);
    return (step_work){
        .flops =
            (double)k->row_flops * (double)rows + (double)k->pair_flops * pairs(k, T, past, rows),
        .bytes = (double)k->pass_bytes + (double)k->row_bytes * (double)rows + cached + chosen,
        .state_bytes = (double)k->state_bytes + cached,
        .touched = chosen,
        .untouched = (double)k->expert_bytes - chosen,
    };
}
