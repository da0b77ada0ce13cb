/* Numbers that published programs draw when they make a model: those of numpy 2.4, and primes. */
#include <criterion/criterion.h>

#include "frontend/config/numbers.h"

Test(numbers, drawn_as_by_numpy) {
    enum { MOST = 12 };
    static const struct {
        uint64_t seed;
        int64_t below, want[MOST];
        size_t n;
    } cases[] = {
        {10007,
         INT64_MAX / 99092 / 2,
         {38316048023122, 2419938046656, 17979836159674, 36993668729195},
         4},
        {140098,
         INT64_MAX / 99092 / 2,
         {33858405369630, 25755403400457, 15460673601360, 41309613242795},
         4},
        {0, 10, {8, 6, 5, 2, 3, 0, 0, 0}, 8}, /* of 32 bits, halves of one of 64 */
        {(UINT64_C(1) << 40) + 5,
         INT64_C(1) << 32,
         {60812779, 20355823, 1932608278, 1600238596, 3933126263},
         5},
        {7, (INT64_C(1) << 32) + 1, {2684764586, 3853503933, 3331544672, 967257516}, 4},
        {123,
         3 * (INT64_C(1) << 30), /* some are drawn again */
         {49737561, 2198009202, 1910018522, 173369636, 2928373744, 709828834, 821700867, 593903172,
          1074653344},
         9},
        {5, 1, {0, 0, 0}, 3},
        {9, INT64_MAX, {8026632172992807823, 2645421825986888207, 5563059781266264542}, 3},
        {UINT64_C(1) << 33, 6, {5, 0, 1, 2, 1, 3, 5, 0, 2, 0, 0, 1}, 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t got[MOST];
        hfe_draw_integers(cases[i].seed, cases[i].below, cases[i].n, got);
        for (size_t k = 0; k < cases[i].n; k++)
            cr_expect_eq(got[k], cases[i].want[k], "seed %llu, number %zu: %lld",
                         (unsigned long long)cases[i].seed, k, (long long)got[k]);
    }
}

static int64_t next_by_division(int64_t n) {
    for (n++;; n++) {
        bool prime = n > 1;
        for (int64_t d = 2; d * d <= n && prime; d++)
            prime = n % d != 0;
        if (prime) return n;
    }
}

Test(numbers, primes) {
    for (int64_t n = 0; n < 3000; n++)
        cr_assert_eq(hfe_prime_after(n), next_by_division(n), "after %lld", (long long)n);
    static const int64_t far[] = {15999999, 2147483647, 4294967291, 999999999988};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++)
        cr_expect_eq(hfe_prime_after(far[i]), next_by_division(far[i]), "%lld", (long long)far[i]);
    cr_expect_eq(hfe_prime_after(3215031750), 3215031767); /* 3215031751 passes 2, 3, 5 and 7 */
    cr_expect_eq(hfe_prime_after((INT64_C(1) << 61) - 2), (INT64_C(1) << 61) - 1);
}
