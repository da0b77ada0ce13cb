/* Order statistics of benchmarks. */
#include <criterion/criterion.h>

#include "api/stats.h"

static samples of(const double *at, size_t n) {
    samples s = {0};
    for (size_t i = 0; i < n; i++)
        sample(&s, at[i]);
    return s;
}
#define OF(...)                                                                                    \
    of((const double[]){__VA_ARGS__}, sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

Test(stats, medians_and_spread) {
    samples s = OF(3, 1, 2, 5, 4);
    cr_assert_eq(median(&s), 3);
    cr_assert_eq(quantile(&s, 0), 1);
    cr_assert_eq(quantile(&s, 1), 5);
    cr_assert_float_eq(spread(&s), 1.0 / 3, 1e-12);
    samples none = {0};
    cr_assert_eq(median(&none), 0);
}

Test(stats, drift_is_between_first_and_second_half) {
    samples still = OF(10, 12, 11, 10, 12, 11);
    cr_assert_eq(drift(&still), 0, "what moves to and fro does not drift");
    samples up = OF(10, 10, 10, 12, 12), down = OF(12, 12, 10, 10);
    cr_assert_float_eq(drift(&up), 0.2, 1e-12);
    cr_assert_float_eq(drift(&down), 0.2, 1e-12, "either way");
    samples one = OF(10), none = {0};
    cr_assert_eq(drift(&one), 0);
    cr_assert_eq(drift(&none), 0);
}

Test(stats, rounds_that_do_not_count_are_forgotten) {
    samples s = OF(1, 2, 3, 4);
    keep_samples(&s, (const bool[]){true, false, true, false}, 4);
    cr_assert_eq(s.n, 2);
    cr_assert(s.at[0] == 1 && s.at[1] == 3);
}
