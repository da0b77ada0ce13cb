/* Ranks and stages of a divided model that go, are late, or fail in an exchange. */
#include "tests/unit/runtime/ranks_toy.h"

/* ---- ranks that go --------------------------------------------------------------------------- */
/* A rank that goes away: the others return in time, and again at once. */
static void one_leaves(rank *r) {
    int32_t ids[9] = {1};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    open_session(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    check_call(r, 9, 3);
    if (r->number == 2) return;
    for (int k = 0; k < 2; k++) {
        const int code = hrt_forward(r->session, ids, 9, outs, 1);
        EXPECT(r, code == HRT_COLLECTIVE, "code %d", code);
        EXPECT(r, hrt_session_message(r->session)[0], "there is no message");
    }
    EXPECT(r, hrt_session_length(r->session) == 9, "the length has changed");
}

Test(ranks, a_rank_that_leaves_is_an_error_on_the_others) {
    static toy t;
    make_toy(&t, 3, 4);
    for (int threads = 1; threads <= 3; threads++)
        run_ranks(&t, threads, one_leaves);
}

/* ---- an exchange that fails in the middle of a call ------------------------------------------ */
typedef struct flaky { /* over the exchanges of a rank: the one of a number fails */
    hadal_comm interface;
    const hadal_comm *real;
    int left;
    bool later; /* one that is started fails not at once, but while it is under way */
    int64_t sleep_ns;
} flaky;

static int flaky_gather(void *context, hadal_comm_group group, hadal_comm_type type, const void *in,
                        void *out, const uint64_t *counts, int64_t timeout_ns) {
    flaky *f = context;
    if (f->left-- <= 0) return HADAL_COMM_TIMEOUT;
    return f->real->all_gather(f->real->context, group, type, in, out, counts, timeout_ns);
}

static int flaky_scatter(void *context, hadal_comm_group group, hadal_comm_type type,
                         const void *in, float *out, const uint64_t *counts, int64_t timeout_ns) {
    flaky *f = context;
    if (f->left-- <= 0) return HADAL_COMM_TIMEOUT;
    return f->real->reduce_scatter(f->real->context, group, type, in, out, counts, timeout_ns);
}

static int flaky_start(void *context, hadal_comm_exchange what, hadal_comm_group group,
                       hadal_comm_type type, const void *in, void *out, const uint64_t *counts,
                       const uint64_t *starts, int64_t timeout_ns) {
    flaky *f = context;
    if (f->left-- <= 0 && !f->later) {
        nanosleep(
            &(struct timespec){.tv_sec = f->sleep_ns / SECOND, .tv_nsec = f->sleep_ns % SECOND},
            NULL);
        return HADAL_COMM_TIMEOUT;
    }
    return f->real->start(f->real->context, what, group, type, in, out, counts, starts, timeout_ns);
}

static int flaky_advance(void *context, int *over) {
    flaky *f = context;
    if (f->left < 0) return HADAL_COMM_TIMEOUT;
    return f->real->advance(f->real->context, over);
}

static int flaky_finish(void *context) {
    flaky *f = context;
    if (f->left < 0) return HADAL_COMM_TIMEOUT;
    return f->real->finish(f->real->context);
}

static const char *flaky_message(void *context) {
    (void)context;
    return "made to fail";
}

static void make_flaky(flaky *f, const hadal_comm *real, bool later) {
    *f = (flaky){.interface = *real, .real = real, .left = 1000, .later = later};
    f->interface.context = f;
    f->interface.all_gather = flaky_gather;
    f->interface.reduce_scatter = flaky_scatter;
    f->interface.start = flaky_start;
    f->interface.advance = flaky_advance;
    f->interface.finish = flaky_finish;
    f->interface.message = flaky_message;
}

static void open_flaky(rank *r, flaky *f) {
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    r->init_code = hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                                       &f->interface, r->timeout_ns, &r->session);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    (void)hrt_session_set_threads(r->session, r->threads);
    r->session->processors = HRT_MAX_THREADS;
}

static int fail_at;
static bool fail_later;
static void fails_inside(rank *r) {
    int32_t ids[30] = {1};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    flaky f;
    make_flaky(&f, hadal_threads_comm(r->group, r->number), fail_later);
    open_flaky(r, &f);
    if (r->why) return;
    f.left = fail_at; /* on all ranks, so that none waits for another */
    const int code = hrt_forward(r->session, ids, 30, outs, 1);
    EXPECT(r, code == HRT_COLLECTIVE, "failing at %d: code %d", fail_at, code);
    EXPECT(r, strstr(hrt_session_message(r->session), "made to fail"), "message: %s",
           hrt_session_message(r->session));
}

Test(ranks, threads_leave_the_call_wherever_an_collective_fails) {
    static toy t;
    make_toy(&t, 2, 4);
    for (int threads = 1; threads <= 4; threads += 3)
        for (fail_at = 0; fail_at < 9; fail_at++) /* the call's word, then those of three chunks */
            run_ranks(&t, threads, fails_inside);
    t.model.tiles = 3;
    for (int threads = 1; threads <= 4; threads += 3)
        for (int later = 0; later < 2; later++)
            for (fail_at = 1; fail_at < 22; fail_at++) {
                fail_later = later;
                run_ranks(&t, threads, fails_inside);
            }
}

/* One rank fails in an exchange of tiles and goes away, or stalls there: the others learn of it. */
static int64_t sleeps_ns;
static void one_fails_inside(rank *r) {
    int32_t ids[30] = {1};
    float out[3 * UNITS];
    float *const outs[2] = {out, NULL};
    flaky f;
    struct timespec begun, end;
    make_flaky(&f, hadal_threads_comm(r->group, r->number), false);
    open_flaky(r, &f);
    if (r->why) return;
    if (sleeps_ns) r->session->side.timeout_ns = SECOND / 5;
    if (r->number == 1) {
        f.left = fail_at;
        f.sleep_ns = sleeps_ns;
    }
    clock_gettime(CLOCK_MONOTONIC, &begun);
    const int code = hrt_forward(r->session, ids, 30, outs, 1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT(r, code == HRT_COLLECTIVE, "code %d", code);
    EXPECT(r, end.tv_sec - begun.tv_sec < PATIENT / 2, "%ld s until the others knew",
           (long)(end.tv_sec - begun.tv_sec));
    EXPECT(r, hrt_forward(r->session, ids, 30, outs, 1) == HRT_COLLECTIVE, "the session goes on");
}

Test(ranks, a_rank_that_fails_in_a_tile_is_an_error_on_the_others) {
    static toy t;
    make_toy(&t, 3, 3);
    t.model.tiles = 3;
    for (int threads = 1; threads <= 3; threads++)
        for (fail_at = 1; fail_at < 12; fail_at += 3) {
            sleeps_ns = 0;
            run_ranks(&t, threads, one_fails_inside);
            sleeps_ns = SECOND;
            if (fail_at == 4) run_ranks(&t, threads, one_fails_inside);
        }
}

/* ---- stages of a pipeline -------------------------------------------------------------------- */
/* The first sends partial (a rank's own), the second has it as its output. */
static void make_stages(toy *stages, uint32_t ranks) {
    for (uint32_t i = 0; i < 2; i++) {
        toy *t = &stages[i];
        make_toy(t, ranks, 2);
        t->n_steps = t->n_operands = t->n_collectives = 0;
        if (i == 0) {
            operand(t, HRT_INPUT, 0, 0, 4);
            operand(t, HRT_WEIGHT, 0, 0, 0);
            operand(t, HRT_ARENA, 0, PARTIAL, 8);
            step(t, 0, 3, HRT_SPLIT_COLS)->cols = 2;
            operand(t, HRT_ARENA, 0, PARTIAL, 8);
            collective(t, (hrt_collective){.kind = HRT_SEND, .element = 4, .row = 2, .peer = 1});
            t->steps[1].n_operands = 1;
            t->steps[1].first_operand = 3;
        } else {
            operand(t, HRT_ARENA, 0, ALL, 8);
            collective(t, (hrt_collective){.kind = HRT_RECV, .element = 4, .row = 2, .peer = 0});
            t->steps[0].n_operands = 1;
            t->steps[0].first_operand = 0;
            operand(t, HRT_ARENA, 0, ALL, 8);
            operand(t, HRT_OUTPUT, 0, 0, 8);
            step(t, 4, 2, HRT_SPLIT_ROWS);
            t->outputs[0] = (hrt_tensor_info){"back", "f32[T, 2]", 8, 0, 1};
        }
        t->model.n_steps = t->n_steps, t->model.n_operands = t->n_operands;
        t->model.n_collectives = t->n_collectives, t->model.n_outputs = i;
        t->model.n_overlaps = 0;
        t->model.vocab = i == 0 ? VOCAB : 0;
        t->model.digest[0] = (uint8_t)(i + 1); /* models of their own */
        t->model.stage = i, t->model.stages = 2;
    }
}

/* Calls on a stage: that of the second with the first's numbers. */
static int call_stage(rank *r, int64_t n) {
    int32_t ids[MOST_TOKENS];
    float out[2 * MOST_TOKENS] = {0};
    float *const outs[1] = {out};
    for (int64_t i = 0; i < n; i++)
        ids[i] = token(i);
    const int code = hrt_forward(r->session, ids, n, outs, n);
    const float rank = (float)(r->number % (int32_t)r->t->model.ranks);
    for (int64_t i = 0; !code && r->t->model.stage == 1 && i < 2 * n; i++)
        if (out[i] != (rank + 1) * (float)ids[i / 2] * (float)(i % 2 + 1)) return -1;
    return code;
}

static void open_stage(rank *r) {
    r->file.at[offsetof(hrt_weights_header, digest)] = r->t->model.digest[0];
    if (r->weights) hrt_weights_close(r->weights);
    r->weights = NULL;
    (void)hrt_weights_from_memory(&r->t->model, &r->file, sizeof r->file, &r->weights);
    open_session(r);
}

static int lost_stage; /* -1: none */
static enum { LEAVES, IS_LATE } loss;

static void in_stages(rank *r) {
    const bool lost = (int)r->t->model.stage == lost_stage;
    open_stage(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    const int first = call_stage(r, 30); /* of three chunks */
    EXPECT(r, first == HRT_OK, "code %d: %s", first, hrt_session_message(r->session));
    if (lost_stage >= 0) r->session->side.timeout_ns = SECOND / 4;
    if (lost && loss == LEAVES) return;
    if (lost && loss == IS_LATE) nanosleep(&(struct timespec){.tv_nsec = 600000000}, NULL);
    for (int k = 0; k < 2; k++) {
        const int code = call_stage(r, 5), want = lost_stage < 0 ? HRT_OK : HRT_COLLECTIVE;
        EXPECT(r, code == want, "call %d: code %d, not %d", k, code, want);
    }
}

Test(ranks, stages_and_what_is_lost_of_them) {
    static toy stages[2];
    for (uint32_t ranks = 1; ranks <= 2; ranks++)
        for (int threads = 1; threads <= 2; threads++) {
            make_stages(stages, ranks);
            lost_stage = -1;
            run_ranks(stages, threads, in_stages);
            for (lost_stage = 0; lost_stage < 2; lost_stage++)
                for (loss = LEAVES; loss <= IS_LATE; loss++)
                    run_ranks(stages, threads, in_stages);
        }
}

/* The message that another stage waits for does not come, in the middle of a call. */
static int fail_send(void *context, int32_t to, const void *data, uint64_t bytes,
                     int64_t timeout_ns) {
    (void)context, (void)to, (void)data, (void)bytes, (void)timeout_ns;
    return HADAL_COMM_LOST;
}

static void sends_nothing(rank *r) {
    const hadal_comm *real = hadal_threads_comm(r->group, r->number);
    hadal_comm broken = *real;
    open_stage(r);
    EXPECT(r, r->init_code == HRT_OK, "init: code %d", r->init_code);
    r->session->side.timeout_ns = SECOND / 4;
    broken.send = fail_send;
    if (r->t->model.stage == 0) r->session->side.comm = &broken;
    for (int k = 0; k < 2; k++) {
        const int code = call_stage(r, 30);
        EXPECT(r, code == HRT_COLLECTIVE, "call %d: code %d", k, code);
    }
    EXPECT(r, hrt_session_length(r->session) == 0, "the length has changed");
}

Test(ranks, a_stage_that_waits_for_nothing_returns_by_the_deadline) {
    static toy stages[2];
    for (uint32_t ranks = 1; ranks <= 2; ranks++) {
        make_stages(stages, ranks);
        run_ranks(stages, 1, sends_nothing);
    }
}

/* Each stage is a model of its own; a pipeline of others is not taken for it. */
static void other_stages(rank *r) {
    open_stage(r);
    EXPECT(r, r->init_code == HRT_RANKS, "code %d", r->init_code);
}

Test(ranks, stages_that_do_not_stand_in_order_are_rejected) {
    static toy stages[2];
    make_stages(stages, 2);
    stages[0].model.stage = 1; /* the second twice */
    run_ranks(stages, 1, other_stages);
    make_stages(stages, 2);
    stages[1].model.stages = 3;
    run_ranks(stages, 1, other_stages);
}

/* Stages fit together in shape, but are of other models or other checkpoints. */
static void other_checkpoint(rank *r) {
    if (r->t->model.stage == 1) r->file.at[offsetof(hrt_weights_header, source)] = 1;
    other_stages(r);
}

Test(ranks, stages_of_different_models_are_rejected) {
    static toy stages[2];
    make_stages(stages, 2);
    stages[1].model.whole[9] = 1;
    run_ranks(stages, 1, other_stages);
    make_stages(stages, 2);
    run_ranks(stages, 1, other_checkpoint);
}
