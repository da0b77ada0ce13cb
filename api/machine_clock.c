#include "api/machine_clock.h"

#include <omp.h>
#include <stdint.h>

#include "api/machine.h"

static const struct {
    const char *name;
    unsigned lanes;
} loads[CLOCK_LOADS] = {
#define C(id, name, lanes) [CLOCK_##id] = {name, lanes},
    MACHINE_CLOCKS(C)
#undef C
};

const char *machine_clock_name(clock_load l) {
    return loads[l].name;
}

unsigned machine_clock_lanes(clock_load l) {
    return loads[l].lanes;
}

/* ---- one load -------------------------------------------------------------------------------- */

/* Additions that wait for each other. The amount is in a register: some CPUs add constants without
 * taking a cycle. Returns how many there are. */
static double chain(void) {
    enum { TURNS = 3000, ADDITIONS = 16 };
    uint64_t sum = 0, amount = 1;
    __asm__ volatile("" : "+r"(amount));
#define ADD                                                                                        \
    sum += amount;                                                                                 \
    __asm__ volatile("" : "+r"(sum));
#define ADD_4 ADD ADD ADD ADD
    for (int i = 0; i < TURNS; i++) {
        ADD_4 ADD_4 ADD_4 ADD_4
    }
#undef ADD_4
#undef ADD
    return (double)TURNS * ADDITIONS;
}

static void work(clock_load l, double seconds) {
    enum { TURNS = 2000 };
    const double begun = now(ON_THE_WALL);
    do {
        if (l == CLOCK_SCALAR)
            chain();
        else if (l == CLOCK_TILES)
            machine_tile_products(false, TURNS / 10);
        else
            machine_multiply_adds((int)loads[l].lanes, TURNS);
    } while (now(ON_THE_WALL) - begun < seconds);
}

/* The clock of this thread's CPU: the median of chains, of which a few were interrupted. */
static double hertz_here(clock_load l) {
    enum { CHAINS = 9 };
    const double first = 4e-3, between = 3e-4; /* seconds */
    samples found = {0};
    work(l, first);
    for (int i = 0; i < CHAINS; i++) {
        work(l, between);
        const double begun = now(ON_THE_WALL);
        const double cycles = chain();
        sample(&found, cycles / (now(ON_THE_WALL) - begun));
    }
    return median(&found);
}

/* The mean clock of the threads, all of which do the same. */
static double hertz_with(clock_load l, int threads) {
    double sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
#pragma omp barrier
        sum += hertz_here(l);
    }
    return sum / threads;
}

machine_clock machine_measure_clock(int threads, const bool may_use[CLOCK_LOADS]) {
    enum { ROUNDS = 9 };
    samples hertz[CLOCK_LOADS] = {0};
    for (int r = 0; r < ROUNDS; r++)
        for (int l = 0; l < CLOCK_LOADS; l++)
            if (may_use[l]) sample(&hertz[l], hertz_with((clock_load)l, threads));
    return machine_clock_of(hertz);
}

/* ---- what rounds say ------------------------------------------------------------------------- */

machine_clock machine_clock_of(const samples hertz[CLOCK_LOADS]) {
    const double most = 0.02;
    machine_clock c = {.hertz = median(&hertz[CLOCK_SCALAR])};
    for (int l = 0; l < CLOCK_LOADS; l++) {
        samples shares = {0};
        for (size_t i = 0; i < hertz[l].n && i < hertz[CLOCK_SCALAR].n; i++)
            sample(&shares, hertz[l].at[i] / hertz[CLOCK_SCALAR].at[i]);
        c.share[l] = median(&shares);
        if (spread(&shares) > c.moved) c.moved = spread(&shares);
    }
    if (c.moved > most) c.hertz = 0;
    return c;
}

double machine_throttled_by(const machine_clock *c, clock_load l) {
    const double least = 0.03, by = 1 - c->share[l];
    return c->hertz > 0 && c->share[l] > 0 && by >= least ? by : 0;
}
