/* Rates that ranks measure together: threads in the place of processes. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "api/machine_ranks.h"
#include "hadal/hadal_threads.h"

enum { RANKS = 4 };
#define PATIENT INT64_C(20000000000)

typedef struct rank {
    hadal_threads *group;
    int32_t number;
    uint64_t cpus;
    double rate, slowest;
    int code;
} rank;

static void *measure(void *argument) {
    rank *r = argument;
    r->code = machine_slowest_of_ranks(hadal_threads_comm(r->group, r->number), PATIENT, r->cpus,
                                       r->rate, &r->slowest);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

/* All ranks have the same. */
static double slowest(const uint64_t *cpus, const double *rates) {
    static rank all[RANKS];
    pthread_t started[RANKS];
    hadal_threads *group;
    cr_assert_eq(hadal_threads_open(RANKS, &group), HADAL_COMM_OK);
    for (int32_t i = 0; i < RANKS; i++) {
        all[i] = (rank){.group = group, .number = i, .cpus = cpus[i], .rate = rates[i]};
        cr_assert_eq(pthread_create(&started[i], NULL, measure, &all[i]), 0);
    }
    for (int32_t i = 0; i < RANKS; i++)
        pthread_join(started[i], NULL);
    for (int32_t i = 0; i < RANKS; i++)
        cr_assert(all[i].code == HADAL_COMM_OK && all[i].slowest == all[0].slowest);
    hadal_threads_close(group);
    return all[0].slowest;
}

/* One had a CPU for itself, three another one: a quarter of both each. */
Test(machine_ranks, turns_on_the_same_cpus_are_shared_out) {
    cr_assert_eq(slowest((uint64_t[]){7, 7, 7, 7}, (double[]){120, 40, 40, 40}), 60);
}

Test(machine_ranks, all_wait_for_the_slowest_machine) {
    cr_assert_eq(slowest((uint64_t[]){1, 1, 2, 2}, (double[]){100, 50, 60, 70}), 65);
    cr_assert_eq(slowest((uint64_t[]){1, 2, 3, 4}, (double[]){100, 50, 60, 70}), 50);
}

/* A unit that one of them lacks is none. */
Test(machine_ranks, what_one_lacks_nobody_has) {
    cr_assert_eq(slowest((uint64_t[]){1, 1, 1, 1}, (double[]){100, 0, 100, 100}), 0);
    cr_assert_eq(slowest((uint64_t[]){1, 1, 1, 2}, (double[]){100, 100, 100, 0}), 0);
}

static void *measure_links(void *argument) {
    const rank *r = argument;
    machine_links *out = calloc(1, sizeof *out);
    const hadal_comm *c = hadal_threads_comm(r->group, r->number);
    if (out && machine_measure_links(c, PATIENT, out) != HADAL_COMM_OK) out->ranks = 0;
    hadal_threads_leave(r->group, r->number);
    return out;
}

/* Of links that are held back a rate is at most the links', and so is what is left of the time when
 * two latencies as measured, which may be too long, are taken off: that is what the links bound. */
Test(machine_ranks, links_that_are_held_back_are_no_faster, .timeout = 60) {
    enum { TWO = 2 };
    const double rate = 100e6, latency = 5e-3, bits = 2 * 8 * 2.0 * (1 << 20);
    static rank all[TWO];
    pthread_t started[TWO];
    hadal_threads *group;
    cr_assert_eq(hadal_threads_open(TWO, &group), HADAL_COMM_OK);
    cr_assert_eq(hadal_threads_slow(group, rate, (int64_t)(latency * 1e9)), HADAL_COMM_OK);
    for (int32_t i = 0; i < TWO; i++) {
        all[i] = (rank){.group = group, .number = i};
        cr_assert_eq(pthread_create(&started[i], NULL, measure_links, &all[i]), 0);
    }
    for (int32_t i = 0; i < TWO; i++) {
        void *got;
        pthread_join(started[i], &got);
        const machine_links *l = got;
        cr_assert(l && l->ranks == TWO);
        cr_assert(l->latency >= latency && l->latency < 1, "%g s", l->latency);
        cr_assert_geq(bits / l->network + 2 * l->latency, (bits / rate + 2 * latency) * 0.999,
                      "%g bits/s, %g s", l->network, l->latency);
        free(got);
    }
    hadal_threads_close(group);
}

Test(machine_ranks, processes_of_one_machine_have_the_same_cpus) {
    cr_assert_eq(machine_cpus_here(), machine_cpus_here());
    cpu_set_t mine, fewer;
    cr_assert_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    const uint64_t all = machine_cpus_here();
    if (CPU_COUNT(&mine) < 2) return; /* there are no fewer */
    CPU_ZERO(&fewer);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&fewer) == 0; i++)
        if (CPU_ISSET(i, &mine)) CPU_SET(i, &fewer);
    cr_assert_eq(sched_setaffinity(0, sizeof fewer, &fewer), 0);
    cr_assert_neq(machine_cpus_here(), all);
}
