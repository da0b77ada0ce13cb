/* Batches of sessions of a divided model. */
#include "tests/unit/runtime/ranks_toy.h"

/* ---- batches --------------------------------------------------------------------------------- */
enum { BATCH = 7 };
typedef struct batch {
    hrt_session *sessions[BATCH];
    void *memory[BATCH];
    int32_t next[BATCH];
} batch;

/* Sessions of different lengths, and the next token of each. */
static void open_batch(rank *r, batch *b) {
    open_session(r);
    for (int i = 0; i < BATCH; i++) {
        const size_t size = session_bytes(r);
        float *const none[2] = {NULL, NULL};
        int32_t ids[MOST_TOKENS];
        const int64_t n = i * 5 % 13;
        b->memory[i] = aligned_alloc(64, size);
        int code = hrt_session_init_on(&r->t->model, b->memory[i], size, r->weights, r->max_tokens,
                                       hadal_threads_comm(r->group, r->number), r->timeout_ns,
                                       &b->sessions[i]);
        for (int64_t k = 0; k <= n; k++)
            ids[k] = token(k);
        if (!code && n > 0) code = hrt_forward(b->sessions[i], ids, n, none, 0);
        b->next[i] = ids[n];
        EXPECT(r, code == HRT_OK, "session %d: code %d", i, code);
    }
}

static void close_batch(batch *b) {
    for (int i = 0; i < BATCH; i++)
        free(b->memory[i]);
}

/* Rows are not divided, whatever their number, so that none is rounded on its way. */
static void check_batch(rank *r, batch *b, int64_t count) {
    float out[BATCH * UNITS], back[BATCH * 2];
    float *const outs[2] = {out, back};
    const int code = hrt_forward_batch(b->sessions, b->next, count, outs);
    EXPECT(r, code == HRT_OK, "%ld sessions: code %d: %s", (long)count, code,
           hrt_session_message(b->sessions[0]));
    for (int64_t i = 0; i < count; i++) {
        const int64_t p = hrt_session_length(b->sessions[i]) - 1;
        for (int u = 0; u < UNITS; u++) {
            const float want = 10 * gathered(r, p, 0) + gathered(r, p, 1) + 1000 * (float)u;
            EXPECT(r, out[i * UNITS + u] == want, "session %ld of %ld, unit %d: %g, not %g",
                   (long)i, (long)count, u, out[i * UNITS + u], want);
        }
        for (int j = 0; j < 2; j++)
            EXPECT(r, back[2 * i + j] == gathered(r, p, j), "session %ld: trace %g", (long)i,
                   back[2 * i + j]);
        b->next[i] = token(p + 1);
    }
}

static void all_batches(rank *r) {
    batch b = {0};
    open_batch(r, &b);
    for (int64_t count = BATCH; count > 0 && !r->why; count--)
        check_batch(r, &b, count);
    close_batch(&b);
}

Test(ranks, rows_of_a_batch_are_their_sessions) {
    static toy t;
    for (uint32_t ranks = 2; ranks <= MOST_RANKS; ranks++)
        for (int threads = 1; threads <= 3; threads++)
            for (int64_t from = ranks; from <= 2 * CHUNK; from += 5) {
                if (!is_tried(ranks + (unsigned)threads + (uint64_t)from / 5)) continue;
                make_toy(&t, ranks, from);
                run_ranks(&t, threads, all_batches);
            }
}

typedef enum difference {
    BAD_TOKEN,
    OTHER_TOKEN,
    OTHER_ORDER,
    FEWER,
    TWICE,
    NO_OUTPUT,
    NO_POINTER,
    DIFFERENCES,
} difference;
static const int difference_code[DIFFERENCES] = {
    [BAD_TOKEN] = HRT_TOKEN,     [OTHER_TOKEN] = HRT_PEER, [OTHER_ORDER] = HRT_PEER,
    [FEWER] = HRT_PEER,          [TWICE] = HRT_TWICE,      [NO_OUTPUT] = HRT_PEER,
    [NO_POINTER] = HRT_ARGUMENT,
};

static int call_batch(batch b, difference d, float *const *outs) {
    hrt_session *second = b.sessions[1];
    if (d == BAD_TOKEN) b.next[2] = VOCAB;
    if (d == OTHER_TOKEN) b.next[3]++;
    if (d == OTHER_ORDER) b.sessions[1] = b.sessions[2], b.sessions[2] = second;
    if (d == TWICE) b.sessions[4] = second;
    if (d == NO_POINTER) b.sessions[3] = NULL;
    const int64_t count = d == FEWER ? BATCH - 1 : BATCH;
    float *const none[2] = {NULL, outs[1]};
    return hrt_forward_batch(b.sessions, b.next, count, d == NO_OUTPUT ? none : outs);
}

static void bad_batches(rank *r) {
    batch b = {0};
    float out[BATCH * UNITS], back[BATCH * 2];
    float *const outs[2] = {out, back};
    open_batch(r, &b);
    const bool odd = r->number == 1;
    for (int d = 0; d < DIFFERENCES && !r->why; d++) {
        const int code = call_batch(b, odd ? (difference)d : DIFFERENCES, outs);
        const int want = odd ? difference_code[d] : HRT_PEER;
        EXPECT(r, code == want, "difference %d: code %d", d, code);
    }
    for (int i = 0; i < BATCH; i++)
        EXPECT(r, hrt_session_length(b.sessions[i]) == i * 5 % 13, "session %d has changed", i);
    check_batch(r, &b, BATCH); /* nothing is lost */
    close_batch(&b);
}

Test(ranks, a_batch_that_differs_is_rejected_and_changes_nothing) {
    static toy t;
    make_toy(&t, 3, 4);
    run_ranks(&t, 2, bad_batches);
}

/* What the others have written of this token is not whole: none of the sessions goes on. */
static void leaves_a_batch(rank *r) {
    batch b = {0};
    float out[BATCH * UNITS];
    float *const outs[2] = {out, NULL};
    open_batch(r, &b);
    for (int i = 0; i < BATCH && !r->why; i++)
        b.sessions[i]->side.timeout_ns = SECOND;
    if (r->number != 2 && !r->why) {
        int code = hrt_forward_batch(b.sessions, b.next, BATCH, outs);
        EXPECT(r, code == HRT_COLLECTIVE, "code %d", code);
        code = hrt_forward(b.sessions[3], b.next, 1, outs, 1);
        EXPECT(r, code == HRT_COLLECTIVE, "another session: code %d", code);
    }
    close_batch(&b);
}

Test(ranks, a_rank_that_leaves_a_batch_is_an_error_on_the_others) {
    static toy t;
    make_toy(&t, 3, 4);
    run_ranks(&t, 2, leaves_a_batch);
}
