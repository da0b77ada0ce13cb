/* The exchanges (comm/collective.c) and the transport of threads: every scenario with 1 to 5 ranks.
 * With MPI they run in comm/ranks.c. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "hadal/hadal_threads.h"
#include "support/clock.h"
#include "tests/comm/scenarios.h"
#include "tests/tools/full.h"

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

/* Bits per second and nanoseconds of a link; 0: as fast as memory. */
typedef struct link_of {
    double bits_per_second;
    int64_t latency_ns;
} link_of;

static void run_scenario(const scenario *s, int32_t ranks, link_of link) {
    hadal_threads *group = NULL;
    rank_of all[MOST] = {0};
    pthread_t threads[MOST];
    cr_assert_eq(hadal_threads_open(ranks, &group), HADAL_COMM_OK);
    if (link.bits_per_second > 0)
        cr_assert_eq(hadal_threads_slow(group, link.bits_per_second, link.latency_ns),
                     HADAL_COMM_OK);
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

#if defined(__SANITIZE_THREAD__)
enum { OF = 5 }; /* ten times as slow: each scenario with one number of ranks */
#else
enum { OF = 1 };
#endif

/* Scenarios that need somebody else begin with two ranks. */
static void every_scenario(int32_t ranks) {
    for (int k = 0; k < n_scenarios; k++)
        if ((ranks > 1 || scenarios[k].ends_well) && has_turn((uint64_t)(k + ranks), OF))
            run_scenario(&scenarios[k], ranks, (link_of){0});
}

/* A test for each number of ranks: scenarios wait for deadlines most of the time, and Criterion runs
 * several tests at once. */
Test(comm, every_scenario_with_a_thread) {
    every_scenario(1);
}
Test(comm, every_scenario_with_2_threads) {
    every_scenario(2);
}
Test(comm, every_scenario_with_3_threads) {
    every_scenario(3);
}
Test(comm, every_scenario_with_4_threads) {
    every_scenario(4);
}
Test(comm, every_scenario_with_5_threads) {
    every_scenario(MOST);
}

/* ---- slow links ------------------------------------------------------------------------------ */

Test(comm, every_scenario_over_a_slow_link) {
    for (int k = 0; k < n_scenarios; k++)
        if (has_turn((uint64_t)k, OF)) run_scenario(&scenarios[k], 3, (link_of){10e9, 50000});
}

enum { MANY = 100000 }; /* elements from each rank to each other */
static const double bits = 1e9;
static const int64_t latency = 2000000;

enum { TRIES = 5 };

/* What a rank measures of the slow link, in nanoseconds. */
typedef struct timed {
    const hadal_comm *c;
    int64_t few[TRIES], many[TRIES], beside[TRIES];
    bool failed;
} timed;

static float in[2 * MANY], gathered[2][2 * MANY];
static const uint64_t counts[] = {MANY, MANY}, starts[] = {0, MANY};
static const int64_t patient = INT64_C(20000000000);

static int sum_of_one(timed *t) {
    float x = 1, y;
    return t->c->all_reduce(t->c->context, (hadal_comm_group){0, 2}, HADAL_COMM_F32, &x, &y, 1,
                            patient);
}

static int gather(timed *t) {
    return t->c->all_gather(t->c->context, (hadal_comm_group){0, 2}, HADAL_COMM_F32, in,
                            gathered[t->c->rank], counts, patient);
}

/* Started, left alone for longer than it takes, and then at an end at once. */
static int gather_beside(timed *t) {
    const hadal_comm *c = t->c;
    const int rc = c->start(c->context, HADAL_COMM_ALL_GATHER, (hadal_comm_group){0, 2},
                            HADAL_COMM_F32, in, gathered[c->rank], counts, starts, patient);
    if (rc) return rc;
    const int64_t begun = hd_nanoseconds();
    for (int over = 0; hd_nanoseconds() - begun < 40000000;) {
        const int failed = c->advance(c->context, &over);
        if (failed) return failed;
        if (over) break; /* busy with something else until then */
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return c->finish(c->context);
}

static void measure(timed *t, int (*collective)(timed *), int64_t *taken) {
    for (int i = 0; i < TRIES; i++) {
        t->failed |= sum_of_one(t) != 0; /* both begin together */
        const int64_t begun = hd_nanoseconds();
        t->failed |= collective(t) != 0;
        taken[i] = hd_nanoseconds() - begun;
    }
}

/* Of the rank that was there first, which waits for the whole of the link; the least of several
 * tries, since others use the CPU. */
static int64_t least(const int64_t *one, const int64_t *other) {
    int64_t best = INT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        const int64_t longer = one[i] > other[i] ? one[i] : other[i];
        if (longer < best) best = longer;
    }
    return best;
}

/* The pieces of 128 KB that threads cut 400 KB into have a latency each. */
enum { PIECES = 4 };
static const int64_t wire = (int64_t)(MANY * 4 * 8);

static void *time_rank(void *argument) {
    timed *t = argument;
    measure(t, sum_of_one, t->few);
    measure(t, gather, t->many);
    measure(t, gather_beside, t->beside);
    return NULL;
}

static bool time_link(void) {
    hadal_threads *group;
    timed all[2] = {0};
    pthread_t threads[2];
    cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    cr_assert_eq(hadal_threads_slow(group, bits, latency), HADAL_COMM_OK);
    for (int32_t r = 0; r < 2; r++) {
        all[r].c = hadal_threads_comm(group, r);
        cr_assert_eq(pthread_create(&threads[r], NULL, time_rank, &all[r]), 0);
    }
    for (int32_t r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    hadal_threads_close(group);
    cr_assert(!all[0].failed && !all[1].failed);
    const int64_t few = least(all[0].few, all[1].few), many = least(all[0].many, all[1].many),
                  beside = least(all[0].beside, all[1].beside);
    const int64_t expected = wire + PIECES * latency;
    cr_assert(few >= latency, "a message takes %lld ns, its latency is %lld", (long long)few,
              (long long)latency);
    cr_assert(many >= expected * 3 / 4, "many messages take %lld ns, not %lld", (long long)many,
              (long long)expected);
    cr_assert(beside >= expected * 3 / 4, "beside others they take %lld ns, not %lld",
              (long long)beside, (long long)expected);
    return few < 3 * latency && many < 2 * expected && beside < 3 * expected;
}

/* They never take less; that they take no more is seen in one of many tries, since others use the
 * CPUs. */
Test(comm, messages_take_as_long_as_the_link) {
    int tries = 30;
    while (!time_link() && tries > 0)
        tries--;
    cr_assert(tries > 0, "messages take much longer than the link, always");
}

/* ---- deadlines ------------------------------------------------------------------------------- */
/* An exchange of several messages, and of two halves, has one deadline: of four messages, 40 ms
 * apart, two have come at 80 ms, and at 100 ms time is up. Were it counted from each message or half
 * anew, nobody would give up before 180 ms. */
enum { PIECE = (128 << 10) / 4, FOUR = 4 * PIECE }; /* elements: a message of threads; four */
static const int64_t message_ns = 40000000, limit_ns = 100000000, too_long_ns = 150000000;

static float four_in[2 * FOUR], four_out[2][2 * FOUR];
static const uint64_t fours[] = {FOUR, FOUR}, four_starts[] = {0, FOUR};
static const hadal_comm_group both = {0, 2};

static int
four_reduced(const hadal_comm *c) { /* two messages for the sums, two for what they are */
    return c->all_reduce(c->context, both, HADAL_COMM_F32, four_in, four_out[c->rank], FOUR,
                         limit_ns);
}

static int four_gathered(const hadal_comm *c) {
    return c->all_gather(c->context, both, HADAL_COMM_F32, four_in, four_out[c->rank], fours,
                         limit_ns);
}

static int four_scattered(const hadal_comm *c) {
    return c->reduce_scatter(c->context, both, HADAL_COMM_F32, four_in, four_out[c->rank], fours,
                             limit_ns);
}

static int four_received(const hadal_comm *c) {
    if (c->rank == 0) return c->send(c->context, 1, four_in, FOUR * sizeof(float), limit_ns);
    return c->recv(c->context, 0, four_out[1], FOUR * sizeof(float), limit_ns);
}

static int four_started(const hadal_comm *c) {
    const int rc = c->start(c->context, HADAL_COMM_ALL_GATHER, both, HADAL_COMM_F32, four_in,
                            four_out[c->rank], fours, four_starts, limit_ns);
    return rc ? rc : c->finish(c->context);
}

typedef struct limited {
    const hadal_comm *c;
    int (*exchange)(const hadal_comm *);
    int code;
    int64_t took;
} limited;

static void *run_limited(void *argument) {
    limited *l = argument;
    const int64_t begun = hd_nanoseconds();
    l->code = l->exchange(l->c);
    l->took = hd_nanoseconds() - begun;
    return NULL;
}

static uint64_t received(const hadal_comm *c) {
    hadal_comm_traffic t[HADAL_COMM_EXCHANGE_COUNT];
    uint64_t sum = 0;
    c->count(c->context, t);
    for (int i = 0; i < HADAL_COMM_EXCHANGE_COUNT; i++)
        sum += t[i].received;
    return sum;
}

/* Rank 1 has got two messages, and has given up not much later than its deadline. */
static bool gives_up_in_time(int (*exchange)(const hadal_comm *)) {
    hadal_threads *group;
    limited all[2];
    pthread_t threads[2];
    cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    cr_assert_eq(hadal_threads_slow(group, 1e15, message_ns), HADAL_COMM_OK);
    for (int32_t r = 0; r < 2; r++) {
        all[r] = (limited){.c = hadal_threads_comm(group, r), .exchange = exchange};
        cr_assert_eq(pthread_create(&threads[r], NULL, run_limited, &all[r]), 0);
    }
    for (int32_t r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    const uint64_t bytes = received(all[1].c);
    hadal_threads_close(group);
    return (all[1].code == HADAL_COMM_TIMEOUT || all[1].code == HADAL_COMM_LOST) &&
           bytes >= 2 * PIECE * sizeof(float) && all[1].took < too_long_ns;
}

/* In one of some tries: where others use the CPUs, ranks may be late themselves. */
Test(comm, messages_and_halves_have_one_deadline) {
    static const struct {
        const char *name;
        int (*exchange)(const hadal_comm *);
    } all[] = {{"all_reduce", four_reduced},
               {"all_gather", four_gathered},
               {"reduce_scatter", four_scattered},
               {"send and recv", four_received},
               {"started all_gather", four_started}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int tries = 20;
        while (tries > 0 && !gives_up_in_time(all[i].exchange))
            tries--;
        cr_assert(tries > 0, "%s: with a deadline of 100 ms none gives up before 150 ms",
                  all[i].name);
    }
}

Test(comm, links_that_cannot_be) {
    hadal_threads *group;
    cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    cr_assert_eq(hadal_threads_slow(NULL, 1e9, 0), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, 0, 0), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, -1e9, 0), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, 0.0 / 0.0, 0), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, 1.0 / 0.0, 0), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, 1e9, -1), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, 1e9, INT64_MAX), HADAL_COMM_ARGUMENT);
    cr_assert_eq(hadal_threads_slow(group, 1e9, 0), HADAL_COMM_OK);
    cr_assert_eq(hadal_threads_slow(group, 1e9, 0), HADAL_COMM_ARGUMENT, "twice");
    hadal_threads_close(group);
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
