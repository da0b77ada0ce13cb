/* What rounds of planted clocks say, and that the clock of this machine is one. */
#include <criterion/criterion.h>
#include <math.h>

#include "api/machine_clock.h"

enum { ROUNDS = 9 };

typedef struct rounds_of_clocks {
    samples hertz[CLOCK_LOADS];
} rounds_of_clocks;

/* Rounds at 3 GHz, drifting by some per cent a round; a load that has no share is not there. */
static rounds_of_clocks planted(const double share[CLOCK_LOADS], double drift) {
    rounds_of_clocks r = {0};
    for (int i = 0; i < ROUNDS; i++)
        for (int l = 0; l < CLOCK_LOADS; l++)
            if (share[l] > 0) sample(&r.hertz[l], 3e9 * (1 + drift * i) * share[l]);
    return r;
}

static bool near(double x, double y) {
    return fabs(x - y) < 1e-9 * (1 + fabs(y));
}

Test(machine_clock, of_a_cpu_that_lowers_it) {
    const double share[CLOCK_LOADS] = {1, 1, 0.99, 0.9, 0.8};
    const rounds_of_clocks r = planted(share, 0);
    const machine_clock c = machine_clock_of(r.hertz);
    cr_expect(near(c.hertz, 3e9) && c.moved < 1e-9);
    for (int l = 0; l < CLOCK_LOADS; l++)
        cr_expect(near(c.share[l], share[l]), "%s", machine_clock_name((clock_load)l));
    cr_expect_eq(machine_throttled_by(&c, CLOCK_OF_4), 0);
    cr_expect_eq(machine_throttled_by(&c, CLOCK_OF_8), 0, "1 %% is noise");
    cr_expect(near(machine_throttled_by(&c, CLOCK_OF_16), 0.1));
    cr_expect(near(machine_throttled_by(&c, CLOCK_TILES), 0.2));
}

/* What matters is the clock of one load beside that of the others in the same round. */
Test(machine_clock, that_goes_up_and_down_for_all_loads) {
    const double share[CLOCK_LOADS] = {1, 1, 1, 0.9, 0};
    const rounds_of_clocks r = planted(share, 0.05);
    const machine_clock c = machine_clock_of(r.hertz);
    cr_expect(near(c.hertz, 3e9 * (1 + 0.05 * (ROUNDS / 2))));
    cr_expect(near(machine_throttled_by(&c, CLOCK_OF_16), 0.1));
    cr_expect(c.share[CLOCK_TILES] == 0 && machine_throttled_by(&c, CLOCK_TILES) == 0);
}

/* Two rounds of nine in which something else was at work. */
Test(machine_clock, some_rounds_are_disturbed) {
    const double share[CLOCK_LOADS] = {1, 1, 1, 1, 0};
    rounds_of_clocks r = planted(share, 0);
    r.hertz[CLOCK_OF_16].at[2] *= 0.5, r.hertz[CLOCK_SCALAR].at[5] *= 0.6;
    const machine_clock c = machine_clock_of(r.hertz);
    cr_expect(near(c.hertz, 3e9));
    cr_expect_eq(machine_throttled_by(&c, CLOCK_OF_16), 0);
}

Test(machine_clock, is_not_known_where_it_moves) {
    const double share[CLOCK_LOADS] = {1, 1, 1, 0.8, 0};
    rounds_of_clocks r = planted(share, 0);
    for (int i = 0; i < ROUNDS; i++)
        r.hertz[CLOCK_OF_16].at[i] *= i % 2 ? 1 : 1.1;
    const machine_clock c = machine_clock_of(r.hertz);
    cr_expect_eq(c.hertz, 0);
    cr_expect_gt(c.moved, 0.02);
    cr_expect_eq(machine_throttled_by(&c, CLOCK_OF_16), 0);
}

Test(machine_clock, of_this_machine) {
    const bool scalar[CLOCK_LOADS] = {[CLOCK_SCALAR] = true};
    const machine_clock c = machine_measure_clock(1, scalar);
    cr_expect_eq(c.share[CLOCK_SCALAR], 1);
    cr_expect(c.hertz > 1e8 && c.hertz < 1e10, "%g", c.hertz);
    cr_expect_eq(c.share[CLOCK_OF_4], 0);
}
