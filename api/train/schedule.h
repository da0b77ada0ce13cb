/* The learning rate of each step of a run (docs/training.md). */
#ifndef API_TRAIN_SCHEDULE_H
#define API_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

/* How the learning rate goes on after the warmup: S(ENUM, "name", "what it does") */
#define TRAIN_SCHEDULES(S)                                                                         \
    S(COSINE, "cosine", "half a cosine, down to a tenth at the last step")                         \
    S(WSD, "wsd", "constant, and in the last fifth of the steps down to nothing in a line")        \
    S(CONSTANT, "constant", "constant")

typedef enum train_schedule_kind {
#define S(id, name, does) TRAIN_##id,
    TRAIN_SCHEDULES(S)
#undef S
        TRAIN_SCHEDULE_COUNT
} train_schedule_kind;

typedef struct train_schedule {
    train_schedule_kind kind;
    double lr;             /* the largest rate */
    int64_t steps, warmup; /* at least 1; at least 0 */
} train_schedule;

bool train_schedule_named(const char *name, train_schedule_kind *out);
/* The rate of a step, 1 .. steps. It grows in a line to `lr` in the first `warmup` steps: step
 * `warmup`, or step 1 without a warmup, has `lr`. No step has the rate 0. */
double train_rate(const train_schedule *s, int64_t step);

#endif
