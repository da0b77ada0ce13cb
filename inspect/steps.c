#include "inspect/steps.h"

#include <math.h>

/* Row t of T looks at past + t + 1 positions. */
static double pairs(int64_t T, int64_t past, int64_t rows) {
    const double n = (double)rows;
    return n * (double)(past + T) - n * (n - 1) / 2;
}

/* Expected bytes of experts that one of the rows has chosen, if all are chosen alike. */
static double touched(const step_info *k, int64_t rows) {
    if (!k->experts) return 0;
    const double missed = 1 - (double)k->chosen / (double)k->experts;
    return (double)k->expert_bytes * (1 - pow(missed, (double)rows));
}

step_work step_work_of(const step_info *k, int64_t T, int64_t past, int64_t asked) {
    const int64_t rows = k->last_rows ? asked : T;
    if (rows == 0) return (step_work){0};
    return (step_work){
        .flops = (double)k->row_flops * (double)rows + (double)k->pair_flops * pairs(T, past, rows),
        .bytes = (double)k->pass_bytes + (double)k->row_bytes * (double)rows +
                 (double)k->position_bytes * (double)(past + T) + touched(k, rows),
    };
}
