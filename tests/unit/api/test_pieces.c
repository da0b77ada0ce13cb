/* The time of a call in pieces, some of whose runs were disturbed. */
#include <criterion/criterion.h>

#include "api/pieces.h"

enum { LAYERS = 12, N = 2 * LAYERS + 1, ROUNDS = 5 };

/* A call of layers of two kernels, of 3 and 1 ms, and a rest. */
static const size_t *kinds(void) {
    static size_t kind[N];
    for (size_t i = 0; i < N; i++)
        kind[i] = i < 2 * LAYERS ? i % 2 : i;
    return kind;
}

static double own(size_t i) {
    return i == N - 1 ? 1e-4 : i % 2 ? 1e-3 : 3e-3;
}

/* Every `nth` run is as it would be alone, all others are disturbed. */
static pieces measured(hd_arena *a, size_t nth, double disturbed) {
    pieces p;
    pieces_begin(&p, a, N);
    for (size_t r = 0; r < ROUNDS; r++) {
        double at[N];
        for (size_t i = 0; i < N; i++)
            at[i] = own(i) * (i == N - 1 || (r * N + i) % nth == 0 ? 1 : disturbed);
        pieces_add(&p, at);
    }
    return p;
}

static const double ALONE = LAYERS * 4e-3 + 1e-4;

Test(pieces, what_is_never_disturbed_is_the_call) {
    hd_arena *a = hd_arena_new();
    const pieces p = measured(a, 1, 1);
    cr_assert_float_eq(pieces_seconds(&p, kinds(), PIECES_LEAST), ALONE, 1e-12);
    cr_assert_float_eq(pieces_seconds(&p, kinds(), PIECES_MORE), ALONE, 1e-12);
    hd_arena_free(a);
}

Test(pieces, disturbed_runs_do_not_count_while_a_tenth_is_undisturbed) {
    hd_arena *a = hd_arena_new();
    const pieces most = measured(a, 7, 1.5), nearly_all = measured(a, 40, 1.5);
    cr_assert_float_eq(pieces_seconds(&most, kinds(), PIECES_LEAST), ALONE, 1e-12);
    cr_assert_gt(pieces_seconds(&most, kinds(), PIECES_MORE), 1.4 * ALONE, "and the quarter tells");
    cr_assert_gt(pieces_seconds(&nearly_all, kinds(), PIECES_LEAST), 1.4 * ALONE);
    hd_arena_free(a);
}

Test(pieces, the_fastest_run_never_counts_alone) {
    hd_arena *a = hd_arena_new();
    const size_t kind[] = {0, 1};
    pieces p;
    pieces_begin(&p, a, 2);
    const double rounds[][2] = {{4, 1}, {2, 1}, {3, 1}, {5, 1}};
    pieces_add(&p, rounds[0]);
    cr_assert_eq(pieces_seconds(&p, kind, PIECES_LEAST), 5, "one run is all there is");
    pieces_add(&p, rounds[1]);
    cr_assert_eq(pieces_seconds(&p, kind, PIECES_LEAST), 4, "of two the median");
    pieces_add(&p, rounds[2]);
    pieces_add(&p, rounds[3]);
    cr_assert_float_eq(pieces_seconds(&p, kind, PIECES_LEAST), 4, 1e-12, "the second of four");
    hd_arena_free(a);
}

Test(pieces, no_round_has_no_time) {
    hd_arena *a = hd_arena_new();
    pieces p;
    pieces_begin(&p, a, N);
    cr_assert_eq(pieces_seconds(&p, kinds(), PIECES_LEAST), 0);
    hd_arena_free(a);
}
