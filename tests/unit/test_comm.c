/* The exchanges (comm/exchange.c) and the transport of threads: every scenario with 1 to 5 ranks.
 * With MPI they run in comm/ranks.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>

#include "hadal/hadal_threads.h"
#include "tests/comm/scenarios.h"

enum { MOST = 5 };

typedef struct rank_of {
    hadal_threads *group;
    const scenario *scenario;
    int32_t rank;
    const char *why;
    char text[256];
} rank_of;

static void *run_rank(void *argument) {
    rank_of *r = argument;
    const hadal_comm *c = hadal_threads_comm(r->group, r->rank);
    if (!r->scenario->run(c, &r->why)) {
        snprintf(r->text, sizeof r->text, "%s", r->why);
        r->why = r->text; /* what it pointed to ends with the thread */
    }
    hadal_threads_leave(r->group, r->rank);
    return NULL;
}

static void run_scenario(const scenario *s, int32_t ranks) {
    hadal_threads *group = NULL;
    rank_of all[MOST] = {0};
    pthread_t threads[MOST];
    cr_assert_eq(hadal_threads_open(ranks, &group), HADAL_COMM_OK);
    for (int32_t i = 0; i < ranks; i++) {
        all[i] = (rank_of){.group = group, .scenario = s, .rank = i};
        cr_assert_eq(pthread_create(&threads[i], NULL, run_rank, &all[i]), 0);
    }
    for (int32_t i = 0; i < ranks; i++)
        pthread_join(threads[i], NULL);
    for (int32_t i = 0; i < ranks; i++)
        cr_assert_null(all[i].why, "%s, rank %d of %d: %s", s->name, i, ranks, all[i].why);
    hadal_threads_close(group);
}

/* Those that need somebody else begin with two ranks. */
Test(comm, every_scenario_with_threads) {
    for (int k = 0; k < n_scenarios; k++)
        for (int32_t ranks = scenarios[k].ends_well ? 1 : 2; ranks <= MOST; ranks++)
            run_scenario(&scenarios[k], ranks);
}

Test(comm, groups_of_threads_that_cannot_be) {
    hadal_threads *group = (void *)&group;
    cr_assert_eq(hadal_threads_open(0, &group), HADAL_COMM_ARGUMENT);
    cr_assert_null(group);
    cr_assert_eq(hadal_threads_open(HADAL_COMM_MAX_RANKS + 1, &group), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_open(2, NULL), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    cr_assert_null(hadal_threads_comm(group, 2));
    cr_assert_null(hadal_threads_comm(group, -1));
    cr_assert_null(hadal_threads_comm(NULL, 0));
    hadal_threads_leave(group, 7);
    hadal_threads_leave(NULL, 0);
    hadal_threads_close(group);
    hadal_threads_close(NULL);
}

Test(comm, rows_are_shared_out_without_gap_or_overlap) {
    const int64_t rows[] = {0, 1, 2, 3, 7, 64, 511, 1000003, INT64_MAX / 2};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int32_t size = 1; size <= 9; size++) {
            cr_assert_eq(hadal_comm_first_row(rows[k], 0, size), 0);
            cr_assert_eq(hadal_comm_first_row(rows[k], size, size), rows[k]);
            for (int32_t r = 0; r < size; r++) {
                const int64_t n = hadal_comm_first_row(rows[k], r + 1, size) -
                                  hadal_comm_first_row(rows[k], r, size);
                cr_assert(n == rows[k] / size || n == rows[k] / size + 1);
                cr_assert_eq(hadal_comm_first_row(rows[k], r, size),
                             (int64_t)((__int128)rows[k] * r / size));
            }
        }
}
