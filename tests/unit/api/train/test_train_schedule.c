/* Learning rates, at the corners of schedules above all. */
#include <criterion/criterion.h>
#include <math.h>

#include "api/train/schedule.h"

static double rate(train_schedule_kind kind, int64_t steps, int64_t warmup, int64_t step) {
    const train_schedule s = {.kind = kind, .lr = 2, .steps = steps, .warmup = warmup};
    return train_rate(&s, step);
}

#define EXPECT(x, want) cr_expect_float_eq(x, want, 1e-12, "%g, not %g", x, (double)(want))

Test(train_schedule, warmup_is_a_line_to_the_whole_rate) {
    for (int k = 0; k < TRAIN_SCHEDULE_COUNT; k++) {
        EXPECT(rate(k, 100, 10, 1), 0.2);
        EXPECT(rate(k, 100, 10, 9), 1.8);
        EXPECT(rate(k, 100, 10, 10), 2);
        EXPECT(rate(k, 100, 0, 1), 2);
        EXPECT(rate(k, 100, 1, 1), 2);
    }
}

Test(train_schedule, cosine_ends_at_a_tenth) {
    EXPECT(rate(TRAIN_COSINE, 101, 0, 51), 1.1);
    EXPECT(rate(TRAIN_COSINE, 101, 0, 101), 0.2);
    EXPECT(rate(TRAIN_COSINE, 110, 10, 60), 1.1);
    EXPECT(rate(TRAIN_COSINE, 110, 10, 110), 0.2);
    for (int64_t i = 2; i <= 101; i++)
        cr_expect_lt(rate(TRAIN_COSINE, 101, 0, i), rate(TRAIN_COSINE, 101, 0, i - 1));
}

Test(train_schedule, wsd_decays_in_the_last_fifth) {
    EXPECT(rate(TRAIN_WSD, 100, 10, 80), 2);
    EXPECT(rate(TRAIN_WSD, 100, 10, 81), 2 * 20.0 / 21);
    EXPECT(rate(TRAIN_WSD, 100, 10, 100), 2 / 21.0);
    EXPECT(rate(TRAIN_WSD, 4, 0, 4), 2); /* a fifth is less than a step */
    /* what the warmup leaves, where that is less than a fifth */
    EXPECT(rate(TRAIN_WSD, 100, 98, 98), 2);
    EXPECT(rate(TRAIN_WSD, 100, 98, 99), 2 * 2.0 / 3);
    EXPECT(rate(TRAIN_WSD, 100, 98, 100), 2 / 3.0);
}

Test(train_schedule, one_step_and_a_warmup_without_an_end) {
    for (int k = 0; k < TRAIN_SCHEDULE_COUNT; k++) {
        EXPECT(rate(k, 1, 0, 1), 2);
        EXPECT(rate(k, 1, 1, 1), 2);
        EXPECT(rate(k, 3, 3, 3), 2);
        EXPECT(rate(k, 3, 50, 3), 2 * 3.0 / 50);
    }
    EXPECT(rate(TRAIN_CONSTANT, 1000, 0, 1000), 2);
}

Test(train_schedule, names) {
    train_schedule_kind kind;
    cr_expect(train_schedule_named("wsd", &kind) && kind == TRAIN_WSD);
    cr_expect(train_schedule_named("constant", &kind) && kind == TRAIN_CONSTANT);
    cr_expect_not(train_schedule_named("linear", &kind));
    cr_expect_not(train_schedule_named("", &kind));
}
