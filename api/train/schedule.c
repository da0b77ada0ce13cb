#include "api/train/schedule.h"

#include <math.h>
#include <string.h>

static const char *const names[TRAIN_SCHEDULE_COUNT] = {
#define S(id, name, does) name,
    TRAIN_SCHEDULES(S)
#undef S
};

bool train_schedule_named(const char *name, train_schedule_kind *out) {
    for (int i = 0; i < TRAIN_SCHEDULE_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (train_schedule_kind)i;
            return true;
        }
    return false;
}

/* From 1 at the peak to a tenth at the last step. */
static double cosine(const train_schedule *s, int64_t step, int64_t peak) {
    static const double least = 0.1, pi = 3.14159265358979323846;
    if (s->steps <= peak) return 1;
    const double done = (double)(step - peak) / (double)(s->steps - peak);
    return least + (1 - least) * (1 + cos(pi * done)) / 2;
}

/* The last fifth of the steps, without those of the warmup, each have 1 / (n + 1) less, n of them. */
static double stable_then_decay(const train_schedule *s, int64_t step, int64_t peak) {
    const int64_t fifth = s->steps / 5, after = s->steps > peak ? s->steps - peak : 0;
    const int64_t n = fifth < after ? fifth : after, left = s->steps + 1 - step;
    return left > n ? 1 : (double)left / (double)(n + 1);
}

double train_rate(const train_schedule *s, int64_t step) {
    const int64_t peak = s->warmup > 1 ? s->warmup : 1;
    if (step < peak) return s->lr * (double)step / (double)peak;
    switch (s->kind) {
    case TRAIN_COSINE: return s->lr * cosine(s, step, peak);
    case TRAIN_WSD: return s->lr * stable_then_decay(s, step, peak);
    default: return s->lr;
    }
}
