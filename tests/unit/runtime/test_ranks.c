/* The runtime of a divided model: results, tiles, and what ranks have to agree on. */
#include "tests/unit/runtime/ranks_toy.h"

static void all_calls(rank *r) {
    static const int64_t sizes[][2] = {{1, 1},  {2, 1},   {3, 3},   {4, 0},   {5, 2},
                                       {11, 7}, {12, 12}, {13, 13}, {25, 14}, {40, 40}};
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes && !r->why; k++) {
        (void)hrt_session_rewind(r->session, 0);
        check_call(r, sizes[k][0], sizes[k][1]);
    }
    (void)hrt_session_rewind(r->session, 0);
    for (int k = 0; k < 6 && !r->why; k++) /* prefill in pieces, then token by token */
        check_call(r, k < 3 ? 7 : 1, 1);
}

Test(ranks, results_are_those_of_the_formula) {
    static toy t;
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int threads = 1; threads <= 3; threads++)
            for (int64_t from = ranks; from <= 2 * CHUNK; from += 5) {
                if (!is_tried((uint64_t)(threads + from))) continue;
                make_toy(&t, ranks, from);
                run_ranks(&t, threads, all_calls);
            }
}

/* Chunks of CHUNK rows and less: of 5 tiles of 4 ranks many have rows of some ranks alone, and of
 * 20 some have none at all. */
Test(ranks, results_do_not_depend_on_tiles) {
    static const uint32_t tiles[] = {0, 2, 3, 5, 20};
    static toy t;
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int threads = 1; threads <= 3; threads++)
            for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
                if (!is_tried(ranks + (unsigned)threads + i)) continue;
                make_toy(&t, ranks, ranks);
                t.model.tiles = tiles[i];
                run_ranks(&t, threads, all_calls);
            }
}

/* A session over a transport other than that of the group's threads. */
static void open_over(rank *r, const hadal_comm *transport) {
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    r->init_code = hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                                       transport, r->timeout_ns, &r->session);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
}

/* Over exchanges that cannot go on by themselves all rows go at once. */
static void without_start(rank *r) {
    hadal_comm interface = *hadal_threads_comm(r->group, r->number);
    interface.start = NULL;
    interface.advance = NULL;
    interface.finish = NULL;
    open_over(r, &interface);
    check_call(r, 25, 14);
}

Test(ranks, a_transport_need_not_overlap) {
    static toy t;
    make_toy(&t, 3, 3);
    t.model.tiles = 3;
    run_ranks(&t, 1, without_start);
}

static hadal_comm_traffic traffic[MOST_RANKS][HADAL_COMM_EXCHANGE_COUNT];
static void count_one_call(rank *r) {
    const hadal_comm *c = hadal_threads_comm(r->group, r->number);
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    check_call(r, 25, 14);
    c->count(c->context, traffic[r->number]);
}

Test(ranks, tiles_cross_in_more_messages_of_the_same_bytes) {
    static toy t;
    static hadal_comm_traffic whole[MOST_RANKS][HADAL_COMM_EXCHANGE_COUNT];
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++) {
        make_toy(&t, ranks, ranks);
        run_ranks(&t, 1, count_one_call);
        memcpy(whole, traffic, sizeof whole);
        t.model.tiles = 3;
        run_ranks(&t, 2, count_one_call);
        for (uint32_t r = 0; r < ranks; r++)
            for (int k = 0; k < HADAL_COMM_EXCHANGE_COUNT; k++) {
                cr_assert_eq(traffic[r][k].sent, whole[r][k].sent);
                cr_assert_eq(traffic[r][k].received, whole[r][k].received);
            }
        /* chunks of 12 and 12; what is left, 1, is not divided */
        const int scatter = HADAL_COMM_REDUCE_SCATTER;
        cr_assert_eq(whole[0][scatter].calls, 2);
        cr_assert_eq(traffic[0][scatter].calls, 6);
    }
}

/* ---- what a message takes -------------------------------------------------------------------- */
static _Thread_local int (*gather)(void *, hadal_comm_group, hadal_comm_type, const void *, void *,
                                   const uint64_t *, int64_t);
static _Thread_local int gathers;

/* Rank 1 loses its CPU for 50 ms in front of the second exchange of the session. */
static int gather_late(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                       void *out, const uint64_t *counts, int64_t timeout_ns) {
    const bool late = ++gathers == 2 && ((const hadal_comm *)context)->rank == 1;
    if (late) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return gather(context, group, type, in, out, counts, timeout_ns);
}

static int64_t latencies[2];
static void init_with_a_late_rank(rank *r) {
    const hadal_comm *c = hadal_threads_comm(r->group, r->number);
    hadal_comm interface = *c;
    gathers = 0;
    gather = c->all_gather;
    interface.all_gather = gather_late;
    open_over(r, &interface);
    latencies[r->number] = r->session->figures.latency_ns;
}

/* Or no tile would ever pay in this session. */
Test(ranks, a_rank_that_was_late_once_is_no_latency) {
    static toy t;
    make_toy(&t, 2, 2);
    run_ranks(&t, 1, init_with_a_late_rank);
    for (int i = 0; i < 2; i++)
        cr_assert(latencies[i] < 25000000, "rank %d: %ld ns", i, (long)latencies[i]);
}

/* ---- how many tiles -------------------------------------------------------------------------- */
static const int64_t ms = 1000000;

/* Of a side that has nobody to tell. */
static hrt_side alone(void) {
    static hadal_threads *group;
    if (!group) cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    return (hrt_side){.comm = hadal_threads_comm(group, 0), .group = {0, 1}};
}

static int64_t tiles_for(toy *t, hrt_figures f, int64_t tokens) {
    const hrt_side side = alone();
    int code = -1;
    const int64_t n = hrt_choose_tiles(&t->model, &side, &f, tokens, true, &code);
    cr_assert_eq(code, HADAL_COMM_OK);
    return n;
}

static hrt_figures measured(int64_t compute_ns, int64_t collective_ns, int64_t latency_ns) {
    const hrt_whole whole = {compute_ns, collective_ns, compute_ns + collective_ns};
    return (hrt_figures){.tokens = 512, .whole = whole, .latency_ns = latency_ns};
}

Test(ranks, as_many_tiles_as_pay) {
    static toy t;
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    cr_assert_eq(tiles_for(&t, (hrt_figures){0}, 512), 1, "not measured yet");
    cr_assert_eq(tiles_for(&t, measured(100 * ms, 0, ms / 100), 512), 1, "nothing to hide");
    cr_assert_eq(tiles_for(&t, measured(100 * ms, ms, ms / 100), 512), 1,
                 "less than weights read once more");
    const hrt_figures f = measured(100 * ms, 60 * ms, ms / 100);
    const int64_t some = tiles_for(&t, f, 512);
    cr_assert(some >= 2 && some <= 16, "%ld", (long)some);
    const int64_t more = tiles_for(&t, f, 8192); /* with more rows a tile costs less */
    cr_assert(more > some, "%ld of 8192 rows, %ld of 512", (long)more, (long)some);
    cr_assert_eq(tiles_for(&t, f, 2), 1, "of one row each");
    cr_assert_eq(tiles_for(&t, measured(100 * ms, 60 * ms, 30 * ms), 512), 1,
                 "a message more takes longer than it hides");
    cr_assert_eq(tiles_for(&t, f, 1), 1, "not divided");
    t.model.n_overlaps = 0;
    cr_assert_eq(tiles_for(&t, f, 512), 1);
    t.model.n_overlaps = 2;
    t.model.tiles = 7;
    cr_assert_eq(tiles_for(&t, f, 512), 7, "as it was told");
}

/* A session on ranks of which this one measures: all rows at once 100 ms of computing and 60 of
 * exchanges, in tiles so much altogether. The tiles of each chunk; *f goes on. */
enum { CHUNKS = 40 };
static void follow(toy *t, const hrt_side *side, hrt_figures *f, int64_t tiled_ns, int64_t tokens,
                   int64_t *tiles, int n) {
    for (int i = 0; i < n; i++) {
        int code = -1;
        tiles[i] = hrt_choose_tiles(&t->model, side, f, tokens, true, &code);
        if (code) tiles[i] = -1;
        if (!hrt_times_chunk(f)) continue;
        const bool whole = tiles[i] == 1;
        f->compute_ns = (whole ? 100 * ms : tiled_ns) * tokens / 512;
        f->collective_ns = whole ? 60 * ms * tokens / 512 : 0;
        f->taken = true;
    }
}

/* Chunks 0 and 2 go all rows at once, 1 in tiles; then as took less, but for those that are timed
 * to see that it is still so. */
static void check_choices(const int64_t *tiles, bool pays) {
    cr_assert_gt(tiles[1], 1);
    for (int i = 0; i < CHUNKS; i++) {
        const bool other = i == 17 || i == 33;
        const bool cut = i < 3 ? i == 1 : pays != other;
        cr_assert_eq(tiles[i], cut ? tiles[1] : 1, "chunk %d: %ld", i, (long)tiles[i]);
    }
}

Test(ranks, tiles_that_take_longer_are_given_up) {
    static toy t;
    int64_t tiles[CHUNKS];
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    const hrt_side side = alone();
    hrt_figures f = {.latency_ns = ms / 100};
    follow(&t, &side, &f, 110 * ms, 512, tiles, CHUNKS);
    check_choices(tiles, true);
    cr_assert_eq(f.chunks, CHUNKS);
    f = (hrt_figures){.latency_ns = ms / 100};
    follow(&t, &side, &f, 161 * ms, 512, tiles, CHUNKS);
    check_choices(tiles, false);
    follow(&t, &side, &f, 110 * ms, 512, tiles, CHUNKS); /* chunks 40 to 79: a CPU is free again */
    for (int i = 0; i < CHUNKS; i++)
        cr_assert_eq(tiles[i] > 1, i + CHUNKS > 64, "chunk %d", i + CHUNKS);
}

Test(ranks, chunks_are_compared_with_others_as_long) {
    static toy t;
    int64_t tiles[CHUNKS];
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    const hrt_side side = alone();
    hrt_figures f = {.latency_ns = ms / 100};
    follow(&t, &side, &f, 161 * ms, 256, tiles, 5);
    cr_assert(tiles[1] > 1 && tiles[3] == 1 && tiles[4] == 1);
    follow(&t, &side, &f, 110 * ms, 512, tiles, 5); /* tried at once, on what 256 have taken */
    cr_assert(tiles[0] > 1 && tiles[1] == 1 && tiles[2] > 1 && tiles[3] == tiles[2]);
    const int64_t chunks = f.chunks;
    follow(&t, &side, &f, 110 * ms, 300, tiles, 3); /* shorter ones go by it, and tell nothing */
    cr_assert(tiles[0] > 1 && tiles[2] == tiles[0] && f.chunks == chunks && !f.timed);
}

/* To one rank tiles seem to pay, the other waits in them. */
static int64_t chosen[2][CHUNKS];
static void measure_differently(rank *r) {
    const hrt_side side = {.comm = hadal_threads_comm(r->group, r->number),
                           .timeout_ns = r->timeout_ns,
                           .group = {0, 2},
                           .rank = r->number};
    hrt_figures f = {.latency_ns = (r->number + 1) * ms / 100};
    follow(r->t, &side, &f, (r->number ? 250 : 80) * ms, 512, chosen[r->number], CHUNKS);
}

Test(ranks, all_ranks_choose_the_same_tiles) {
    static toy t;
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    run_ranks(&t, 1, measure_differently);
    check_choices(chosen[0], false); /* 330 ms of both, and 320 all at once */
    cr_assert_eq(memcmp(chosen[0], chosen[1], sizeof chosen[0]), 0);
}

static int64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * SECOND + t.tv_nsec;
}

static void sleep_until(int64_t ns) {
    const int64_t left = ns - clock_ns();
    if (left > 0) nanosleep(&(struct timespec){left / SECOND, left % SECOND}, NULL);
}

/* Kernels and exchanges that sleep: what the first makes of a row takes a millisecond, an exchange
 * all rows at once 40, that of a tile so many, and words that ranks tell each other one. */
static int tile_ms;
static _Thread_local int64_t late; /* that the last sleep was too long: the next one is shorter */

KERNEL(k_slow) {
    const int64_t end = clock_ns() + (r1 - r0) * ms - late;
    sleep_until(end);
    late = clock_ns() - end;
    k_partial(f, args, r0, r1, c0, c1);
}

static _Thread_local const hadal_comm *fast;
static _Thread_local int64_t until;
static _Thread_local int started;

static int slow_scatter(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                        float *out, const uint64_t *counts, int64_t timeout_ns) {
    sleep_until(clock_ns() + 40 * ms);
    return fast->reduce_scatter(context, group, type, in, out, counts, timeout_ns);
}

static int slow_gather(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                       void *out, const uint64_t *counts, int64_t timeout_ns) {
    sleep_until(clock_ns() + (type == HADAL_COMM_BYTES ? 1 : 40) * ms);
    return fast->all_gather(context, group, type, in, out, counts, timeout_ns);
}

static int slow_start(void *context, hadal_comm_exchange what, hadal_comm_group group,
                      hadal_comm_type type, const void *in, void *out, const uint64_t *counts,
                      const uint64_t *starts, int64_t timeout_ns) {
    started++;
    until = clock_ns() + tile_ms * ms;
    return fast->start(context, what, group, type, in, out, counts, starts, timeout_ns);
}

static int slow_advance(void *context, int *over) {
    const int code = fast->advance(context, over);
    if (clock_ns() < until) *over = 0;
    return code;
}

static int slow_finish(void *context) {
    sleep_until(until);
    return fast->finish(context);
}

/* Exchanges of tiles in each of six calls of a chunk. */
static int collectives[2][6];
static void call_six_times(rank *r) {
    fast = hadal_threads_comm(r->group, r->number);
    hadal_comm slow = *fast;
    slow.reduce_scatter = slow_scatter;
    slow.all_gather = slow_gather;
    slow.start = slow_start;
    slow.advance = slow_advance;
    slow.finish = slow_finish;
    open_over(r, &slow);
    for (int i = 0; i < 6 && !r->why; i++) {
        started = 0;
        (void)hrt_session_rewind(r->session, 0);
        check_call(r, r->t->model.chunk, 1);
        collectives[r->number][i] = started;
    }
}

/* Chunk 0 and 2 all rows at once, 1 in tiles. Exchanges of tiles in the last one. */
static int last_of_six(toy *t, int ms_of_a_tile) {
    const int *n = collectives[0];
    tile_ms = ms_of_a_tile;
    run_ranks(t, 1, call_six_times);
    cr_assert_eq(memcmp(n, collectives[1], sizeof collectives[1]), 0);
    cr_assert(n[0] == 0 && n[1] > 0 && n[2] == 0, "%d, %d, %d", n[0], n[1], n[2]);
    return n[5];
}

/* The same as above with clocks: a session that times its own chunks. What sleeps beside programs
 * that compute may wake late, in tiles more often than in whole chunks: then it is tried again. */
Test(ranks, a_session_finds_out_whether_tiles_pay) {
    enum { TRIES = 8 };
    static toy t;
    static hrt_kernel *slow_kernels[sizeof kernels / sizeof *kernels];
    const hrt_level slow[] = {{.name = "plain", .kernels = slow_kernels}};
    memcpy(slow_kernels, kernels, sizeof kernels);
    slow_kernels[0] = k_slow;
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    t.model.levels = slow;
    t.model.chunk = 12 * CHUNK; /* in fewer rows no tile would pay */
    cr_assert_eq(last_of_six(&t, 100), 0, "kept, though they take longer");
    int kept = 0;
    for (int i = 0; i < TRIES && !kept; i++)
        kept = last_of_six(&t, 1);
    cr_assert_gt(kept, 0, "given up, though they take less");
}

/* ---- sessions that cannot be ----------------------------------------------------------------- */
static int expected;
static const char *expected_why; /* in the message of a rank that could make a session */
static void expect_init(rank *r) {
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    open_session(r);
    EXPECT(r, r->init_code == expected, "code %d", r->init_code);
    const char *why = hrt_session_message(r->session);
    EXPECT(r, strstr(why, expected_why), "message: %s", why);
    if (!r->session) return;
    EXPECT(r, hrt_forward(r->session, (const int32_t[]){1}, 1, outs, 1) == expected,
           "a refused session is called");
}

static void other_share(rank *r) {
    if (r->number == 1) open_weights(r, 0);
    expect_init(r);
}

static void no_memory(rank *r) {
    if (r->number == 2) {
        _Alignas(64) char little[64];
        hrt_session *s;
        const int code = hrt_session_init_on(&r->t->model, little, sizeof little, r->weights, 8,
                                             hadal_threads_comm(r->group, 2), SECOND, &s);
        EXPECT(r, code == HRT_SIZE && !s, "code %d", code);
    } else {
        expect_init(r);
    }
}

static void other_length(rank *r) {
    r->max_tokens += r->number;
    expect_init(r);
}

static void other_packing(rank *r) {
    if (r->number == 0) r->weights->set[3] = 1;
    expect_init(r);
}

/* Rank 2 has a library of its own. */
static toy another;
static void other_library(rank *r) {
    if (r->number == 2) {
        r->t = &another;
        open_weights(r, 2);
    }
    expect_init(r);
}

static void absent(rank *r) {
    r->timeout_ns = SECOND / 5;
    if (r->number != 1) expect_init(r);
    if (r->number == 1) nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
}

Test(ranks, all_ranks_get_the_same_error_if_they_do_not_fit_together) {
    static toy t;
    make_toy(&t, 3, 4);
    expected = HRT_RANKS;
    expected_why = "rank 1 has the weights of rank 0 of its stage";
    run_ranks(&t, 1, other_share);
    expected_why = "max_tokens: rank 1 has 161, rank 0 has 160";
    run_ranks(&t, 1, other_length);
    expected_why = "rank 1 has another packing of the weights than rank 0";
    run_ranks(&t, 1, other_packing);
    another = t;
    another.model.build[5] = 1;
    expected_why = "rank 2 has another build of the library than rank 0";
    run_ranks(&t, 1, other_library);
    another.model.chunk = 2 * CHUNK;
    expected_why = "most tokens of a chunk: rank 2 has 24, rank 0 has 12";
    run_ranks(&t, 1, other_library);
    another.model.ranks = 4;
    expected_why = "ranks of a stage: rank 2 has 4, rank 0 has 3";
    run_ranks(&t, 1, other_library);
    expected = HRT_SIZE;
    expected_why = "rank 2: the memory given is smaller";
    run_ranks(&t, 1, no_memory);
    expected = HRT_COLLECTIVE;
    expected_why = "rank 1";
    run_ranks(&t, 1, absent);
}

static toy of_four;

static void too_few(rank *r) {
    r->t = &of_four;
    open_weights(r, (uint32_t)r->number);
    expect_init(r);
}

Test(ranks, a_job_of_too_few_ranks_is_told_how_many) {
    static toy t;
    make_toy(&t, 3, 4);
    make_toy(&of_four, 4, 4);
    expected = HRT_RANKS;
    expected_why = "there are 3 ranks, and the model is for 4";
    run_ranks(&t, 1, too_few);
}

/* ---- CPU levels ------------------------------------------------------------------------------ */
/* Levels that some ranks cannot run: they ask for a feature that no CPU has. */
#define NO_CPU (UINT64_C(1) << 63)
enum { LEVELS = 3 };
static hrt_level some_levels[MOST_RANKS][LEVELS];
static toy rank_toys[MOST_RANKS];
static uint64_t asked_for[MOST_RANKS][LEVELS];

static void of_own_machine(rank *r) {
    static const char *const names[LEVELS] = {"best", "good", "plain"};
    toy *t = &rank_toys[r->number];
    *t = *r->t;
    for (int i = 0; i < LEVELS; i++)
        some_levels[r->number][i] =
            (hrt_level){.name = names[i], .kernels = kernels, .features = asked_for[r->number][i]};
    t->model.levels = some_levels[r->number];
    t->model.n_levels = LEVELS;
    /* as after make_toy */
    t->model.steps = t->steps, t->model.operands = t->operands;
    t->model.collectives = t->collectives, t->model.overlaps = t->overlaps;
    t->model.inputs = t->inputs, t->model.outputs = t->outputs;
    r->t = t;
    open_weights(r, (uint32_t)r->number % t->model.ranks);
}

static const char *wanted_level[MOST_RANKS], *wanted_reason;
static void with_levels(rank *r) {
    of_own_machine(r);
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    const char *level = hrt_session_cpu(r->session), *wanted = wanted_level[r->number];
    EXPECT(r, strcmp(level, wanted) == 0, "level %s", level);
    EXPECT(r, strstr(hrt_session_machine(r->session), wanted_reason), "machine: %s",
           hrt_session_machine(r->session));
    check_call(r, 13, 2);
    EXPECT(r, hrt_session_set_cpu(r->session, "plain") == HRT_OK, "plain");
    if (!r->why) check_call(r, 3, 1);
    EXPECT(r, hrt_session_set_cpu(r->session, NULL) == HRT_OK, "the best");
    EXPECT(r, strcmp(hrt_session_cpu(r->session), wanted) == 0, "not what all can run");
    if (!r->why) check_call(r, 1, 1);
}

/* Ranks 0 to 2 of one stage; whatever it can run better, rank 0 takes what all of them can. */
Test(ranks, the_level_is_the_best_that_all_ranks_can_run) {
    static toy t;
    make_toy(&t, 3, 4);
    memset(asked_for, 0, sizeof asked_for);
    for (int r = 0; r < 3; r++)
        wanted_level[r] = "best";
    wanted_reason = "{\"level\": \"best\"";
    run_ranks(&t, 1, with_levels);
    asked_for[1][0] = asked_for[2][1] = NO_CPU; /* rank 2 has the best and not the second */
    for (int r = 0; r < 3; r++)
        wanted_level[r] = "plain";
    wanted_reason = "\"passed_over\": {\"best\": \"";
    run_ranks(&t, 1, with_levels);
    asked_for[2][1] = 0;
    for (int r = 0; r < 3; r++)
        wanted_level[r] = "good";
    run_ranks(&t, 1, with_levels);
    asked_for[1][0] = 0;
    asked_for[0][0] = asked_for[2][0] = NO_CPU;
    run_ranks(&t, 1, with_levels);
}

static void reason_of_another(rank *r) {
    of_own_machine(r);
    open_session(r);
    const char *machine = hrt_session_machine(r->session);
    const char *reason = r->number == 1 ? "the CPU lacks" : "rank 1 cannot run it";
    EXPECT(r, strstr(machine, reason), "machine: %s", machine);
}

Test(ranks, a_level_is_passed_over_for_a_rank_that_is_named) {
    static toy t;
    make_toy(&t, 3, 4);
    memset(asked_for, 0, sizeof asked_for);
    asked_for[1][0] = NO_CPU;
    run_ranks(&t, 1, reason_of_another);
}

static void without_level(rank *r) {
    of_own_machine(r);
    expect_init(r);
}

Test(ranks, ranks_without_a_level_in_common_are_rejected) {
    static toy t;
    make_toy(&t, 2, 4);
    memset(asked_for, 0, sizeof asked_for);
    asked_for[0][0] = asked_for[0][2] = asked_for[1][1] = NO_CPU;
    asked_for[1][2] = NO_CPU;
    expected = HRT_CPU;
    expected_why = "there is no CPU level that all ranks of stage 0 can run";
    run_ranks(&t, 1, without_level);
}

/* A level that is set on one rank alone is refused by the next call. */
static void one_level_set(rank *r) {
    const int32_t good[3] = {1, 2, 3};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    of_own_machine(r);
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    if (r->number == 1) (void)hrt_session_set_cpu(r->session, "plain");
    EXPECT(r, hrt_forward(r->session, good, 3, outs, 1) == HRT_PEER, "another level");
    EXPECT(r, strstr(hrt_session_message(r->session), "was called with another CPU level"),
           "message: %s", hrt_session_message(r->session));
    (void)hrt_session_set_cpu(r->session, "plain");
    check_call(r, 13, 2);
}

Test(ranks, a_level_is_set_on_all_ranks) {
    static toy t;
    make_toy(&t, 3, 4);
    memset(asked_for, 0, sizeof asked_for);
    run_ranks(&t, 1, one_level_set);
}

static void without_others(rank *r) {
    hrt_session *s = (void *)r;
    const size_t size = hrt_session_size(&r->t->model, 8);
    r->memory = aligned_alloc(64, size);
    EXPECT(r, hrt_session_init(&r->t->model, r->memory, size, r->weights, 8, &s) == HRT_RANKS && !s,
           "session_init of a divided model");
    EXPECT(r,
           hrt_session_init_on(&r->t->model, r->memory, size, r->weights, 8, NULL, SECOND, &s) ==
               HRT_ARGUMENT,
           "no exchanges");
    hadal_comm other = *hadal_threads_comm(r->group, r->number);
    other.version++;
    EXPECT(r,
           hrt_session_init_on(&r->t->model, r->memory, size, r->weights, 8, &other, SECOND, &s) ==
               HRT_ARGUMENT,
           "exchanges of another version");
}

Test(ranks, a_divided_model_needs_ranks) {
    static toy t;
    make_toy(&t, 2, 2);
    run_ranks(&t, 1, without_others);
}

/* ---- calls that are not the same on all ranks ------------------------------------------------ */
/* Losses on one rank, logits on the other; a target that there is not, and others. */
static void bad_losses(rank *r, bool odd) {
    const int32_t good[3] = {1, 2, 3}, bad[3] = {1, 2, UNITS}, other[3] = {1, 2, 4};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    int code =
        odd ? hrt_loss(r->session, good, good, 3, out) : hrt_forward(r->session, good, 3, outs, 3);
    EXPECT(r, code == HRT_PEER, "another function: code %d", code);
    EXPECT(r, strstr(hrt_session_message(r->session), "was called with another function"), "%s",
           hrt_session_message(r->session));
    code = hrt_loss(r->session, good, odd ? bad : good, 3, out);
    EXPECT(r, code == (odd ? HRT_TOKEN : HRT_PEER), "a bad target: code %d", code);
    code = hrt_loss(r->session, good, odd ? other : good, 3, out);
    EXPECT(r, code == HRT_PEER, "other targets: code %d", code);
    EXPECT(r, strstr(hrt_session_message(r->session), "was called with other targets"), "%s",
           hrt_session_message(r->session));
}

static void bad_calls(rank *r) {
    const int32_t good[3] = {1, 2, 3}, bad[3] = {1, VOCAB, 3}, other[3] = {1, 2, 4};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    const bool odd = r->number == 1;
    int code = hrt_forward(r->session, odd ? bad : good, 3, outs, 1);
    EXPECT(r, code == (odd ? HRT_TOKEN : HRT_PEER), "a bad token: code %d", code);
    code = hrt_forward(r->session, odd ? other : good, 3, outs, 1);
    EXPECT(r, code == HRT_PEER, "other tokens: code %d", code);
    code = hrt_forward(r->session, good, odd ? 2 : 3, outs, 1);
    EXPECT(r, code == HRT_PEER, "fewer tokens: code %d", code);
    code = hrt_forward(r->session, good, 3, outs, odd ? 2 : 1);
    EXPECT(r, code == HRT_PEER, "other rows: code %d", code);
    bad_losses(r, odd);
    EXPECT(r, hrt_session_length(r->session) == 0, "a refused call has changed the session");
    check_call(r, 9, 3); /* nothing is lost */
}

Test(ranks, a_call_that_differs_is_rejected_and_changes_nothing) {
    static toy t;
    make_toy(&t, 3, 4);
    run_ranks(&t, 2, bad_calls);
}
