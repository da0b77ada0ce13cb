/* The runtime of a divided model: results, tiles, and what ranks have to agree on. */
#include "tests/unit/ranks_toy.h"

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
                make_toy(&t, ranks, ranks);
                t.model.tiles = tiles[i];
                run_ranks(&t, threads, all_calls);
            }
}

/* Over exchanges that cannot go on by themselves all rows go at once. */
static void without_start(rank *r) {
    hadal_comm interface = *hadal_threads_comm(r->group, r->number);
    interface.start = NULL;
    interface.advance = NULL;
    interface.finish = NULL;
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    r->init_code = hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                                       &interface, r->timeout_ns, &r->session);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
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
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    r->init_code = hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                                       &interface, r->timeout_ns, &r->session);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
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
static int64_t tiles_for(toy *t, hrt_figures f, int64_t tokens) {
    static hadal_threads *group;
    if (!group) cr_assert_eq(hadal_threads_open(2, &group), HADAL_COMM_OK);
    const hrt_side side = {.comm = hadal_threads_comm(group, 0), .group = {0, 2}};
    int code = -1;
    const int64_t n = hrt_choose_tiles(&t->model, &side, &f, tokens, &code);
    cr_assert_eq(code, HADAL_COMM_OK);
    return n;
}

Test(ranks, as_many_tiles_as_pay) {
    static toy t;
    const int64_t ms = 1000000;
    make_toy(&t, 2, 2);
    t.model.tiles = 0;
    hrt_figures f = {.chunks = 2, .tokens = 512, .agreed = true, .latency_ns = ms / 100};
    f.compute_ns = 100 * ms;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* nothing to hide */
    f.exchange_ns = ms;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* less than weights read once more */
    f.exchange_ns = 60 * ms;
    const int64_t some = tiles_for(&t, f, 512);
    cr_assert(some >= 2 && some <= 16, "%ld", (long)some);
    const int64_t more = tiles_for(&t, f, 8192); /* with more rows a tile costs less */
    cr_assert(more > some, "%ld of 8192 rows, %ld of 512", (long)more, (long)some);
    cr_assert_eq(tiles_for(&t, f, 2), 1); /* of one row each is */
    f.latency_ns = 30 * ms;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* a message more takes longer than it hides */
    cr_assert_eq(tiles_for(&t, f, 1), 1);   /* not divided */
    f.latency_ns = 0;
    t.model.n_overlaps = 0;
    cr_assert_eq(tiles_for(&t, f, 512), 1);
    t.model.n_overlaps = 2;
    t.model.tiles = 7;
    cr_assert_eq(tiles_for(&t, f, 512), 7); /* as it was told */
    f.agreed = false;
    f.chunks = 1;
    t.model.tiles = 0;
    cr_assert_eq(tiles_for(&t, f, 512), 1); /* not measured yet */
}

/* ---- sessions that cannot be ----------------------------------------------------------------- */
static int expected;
static void expect_init(rank *r) {
    open_session(r);
    EXPECT(r, r->init_code == expected, "code %d", r->init_code);
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

static void other_build(rank *r) {
    static toy another;
    if (r->number == 2) {
        another = *r->t;
        another.model.build[5] = 1;
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
    run_ranks(&t, 1, other_share);
    run_ranks(&t, 1, other_length);
    run_ranks(&t, 1, other_packing);
    run_ranks(&t, 1, other_build);
    expected = HRT_SIZE;
    run_ranks(&t, 1, no_memory);
    expected = HRT_EXCHANGE;
    run_ranks(&t, 1, absent);
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
    EXPECT(r, hrt_session_length(r->session) == 0, "a refused call has changed the session");
    check_call(r, 9, 3); /* nothing is lost */
}

Test(ranks, a_call_that_differs_is_refused_and_changes_nothing) {
    static toy t;
    make_toy(&t, 3, 4);
    run_ranks(&t, 2, bad_calls);
}
