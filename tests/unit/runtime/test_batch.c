/* hrt_forward_batch on a program made by hand: every row is that of its session, and a bad batch
 * changes nothing. That compiled models do the same is tests/batch. */
#include "tests/tools/full.h"
#include "tests/unit/runtime/runtime_toy.h"

enum { MOST = 30 };

typedef struct batch {
    hrt_weights *weights;
    hrt_session *sessions[MOST];
    int32_t tokens[MOST], past[MOST][N]; /* the next token of each; what it has read */
    float logits[2 * MOST], all[MOST];
} batch;

static int64_t length_of(int i) {
    return (i * 11 + 3) % (N - 8);
}

/* Sessions of different lengths and sizes, filled by hrt_forward. The first holds `capacity`
 * tokens. */
static batch *open_batch(int count, int64_t capacity, int threads) {
    batch *b = calloc(1, sizeof *b);
    b->weights = toy_weights(&model);
    for (int i = 0; i < count; i++) {
        float *none[2] = {NULL, NULL};
        int64_t n = i == 0 && capacity < length_of(0) ? capacity - 1 : length_of(i);
        b->sessions[i] = open_session(&model, b->weights, i == 0 ? capacity : N - i % 3);
        use_threads(b->sessions[i], threads);
        for (int k = 0; k < N; k++)
            b->past[i][k] = (i * 5 + k * 7) % VOCAB;
        b->tokens[i] = b->past[i][n];
        if (n > 0) cr_assert_eq(hrt_forward(b->sessions[i], b->past[i], n, none, 0), HRT_OK);
        b->logits[2 * i] = b->logits[2 * i + 1] = b->all[i] = -7;
    }
    return b;
}

static void close_batch(batch *b) {
    for (int i = 0; i < MOST; i++)
        free(b->sessions[i]);
    hrt_weights_close(b->weights);
    free(b);
}

static int forward(batch *b, int64_t count) {
    float *outs[2] = {b->logits, b->all};
    return hrt_forward_batch(b->sessions, b->tokens, count, outs);
}

/* Row i is what the session alone would have said. */
static void expect_row(const batch *b, int i) {
    int64_t n = hrt_session_length(b->sessions[i]);
    expect_rows(b->past[i], n, 1, &b->logits[2 * i]);
    cr_assert_float_eq(b->all[i], prefix_sum(b->past[i], n - 1), 1e-3);
}

Test(batch, each_row_is_that_of_its_session) {
    const int counts[] = {1, 2, 3, 7, 8, 9, 17, 30};
    const int64_t capacities[] = {1, 4,
                                  N}; /* rows that the first session's arena holds: 1, 4, CHUNK */
    for (int threads = 1; threads <= 5; threads++)
        for (size_t r = 0; r < sizeof capacities / sizeof *capacities; r++)
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                if (!has_turn((unsigned)threads + r + k, 3)) continue;
                batch *b = open_batch(counts[k], capacities[r], threads);
                cr_assert_eq(forward(b, counts[k]), HRT_OK);
                for (int i = 0; i < counts[k]; i++)
                    expect_row(b, i);
                close_batch(b);
            }
}

Test(batch, goes_on_and_mixes_with_single_calls) {
    batch *b = open_batch(5, N, 2);
    for (int round = 0; round < 6; round++) {
        for (int i = 0; i < 5; i++)
            b->tokens[i] = b->past[i][hrt_session_length(b->sessions[i])];
        if (round == 3) {
            float *outs[2] = {b->logits, b->all};
            cr_assert_eq(hrt_forward(b->sessions[0], b->tokens, 1, outs, 1), HRT_OK);
            expect_row(b, 0);
        } else {
            cr_assert_eq(forward(b, 5), HRT_OK);
            for (int i = 0; i < 5; i++)
                expect_row(b, i);
        }
    }
    close_batch(b);
}

Test(batch, unwanted_outputs_may_be_null) {
    batch *b = open_batch(9, N, 2);
    float *none[2] = {NULL, NULL}, *logits[2] = {b->logits, NULL}, *all[2] = {NULL, b->all};
    cr_assert_eq(hrt_forward_batch(b->sessions, b->tokens, 9, none), HRT_OK);
    for (int i = 0; i < 9; i++) {
        cr_assert_eq(hrt_session_length(b->sessions[i]), length_of(i) + 1);
        cr_assert_eq(hrt_session_rewind(b->sessions[i], length_of(i)), HRT_OK);
    }
    cr_assert_eq(hrt_forward_batch(b->sessions, b->tokens, 9, all), HRT_OK);
    for (int i = 0; i < 9; i++) {
        cr_assert_eq(b->logits[2 * i], -7);
        cr_assert_eq(hrt_session_rewind(b->sessions[i], length_of(i)), HRT_OK);
    }
    cr_assert_eq(hrt_forward_batch(b->sessions, b->tokens, 9, logits), HRT_OK);
    for (int i = 0; i < 9; i++)
        expect_row(b, i);
    close_batch(b);
}

/* No session has advanced, no output is written, and all sessions are free again. */
static void expect_untouched(batch *b, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        cr_assert_eq(b->logits[2 * i], -7);
        cr_assert_eq(b->all[i], -7);
        cr_assert_eq(hrt_session_length(b->sessions[i]), length_of((int)i));
        cr_assert_eq(hrt_session_set_threads(b->sessions[i], 2), HRT_OK, "session left in use");
    }
}

static void expect_rejected(batch *b, int64_t count, int code, const char *message) {
    cr_assert_eq(forward(b, count), code);
    cr_assert_str_eq(hrt_session_message(b->sessions[0]), message);
}

Test(batch, bad_batches_change_nothing) {
    batch *b = open_batch(6, N, 2);
    hrt_session *third = b->sessions[3];
    float *outs[2] = {b->logits, b->all};
    cr_assert_eq(hrt_forward_batch(NULL, b->tokens, 6, outs), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward_batch(b->sessions, NULL, 6, outs), HRT_ARGUMENT);
    cr_assert_eq(hrt_forward_batch(b->sessions, b->tokens, 6, NULL), HRT_ARGUMENT);
    cr_assert_eq(forward(b, 0), HRT_ARGUMENT);
    cr_assert_eq(forward(b, -1), HRT_ARGUMENT);
    b->sessions[3] = NULL;
    cr_assert_eq(forward(b, 6), HRT_ARGUMENT);
    b->sessions[3] = b->sessions[1];
    expect_rejected(b, 6, HRT_TWICE, "sessions 1 and 3 of the batch are the same");
    b->sessions[3] = b->sessions[0];
    expect_rejected(b, 6, HRT_TWICE, "sessions 0 and 3 of the batch are the same");
    b->sessions[3] = third;
    b->tokens[4] = VOCAB;
    expect_rejected(b, 6, HRT_TOKEN, "token 4 is 50: ids are 0 .. 49 (vocabulary of 50)");
    b->tokens[4] = -1;
    expect_rejected(b, 6, HRT_TOKEN, "token 4 is -1: ids are 0 .. 49 (vocabulary of 50)");
    b->tokens[4] = 0;
    expect_untouched(b, 6);
    close_batch(b);
}

Test(batch, one_full_session_stops_all) {
    batch *b = open_batch(6, N, 2);
    hrt_session *whole = b->sessions[4];
    float *none[2] = {NULL, NULL};
    b->sessions[4] = open_session(&model, b->weights, length_of(4));
    cr_assert_eq(hrt_forward(b->sessions[4], b->past[4], length_of(4), none, 0), HRT_OK);
    expect_rejected(b, 6, HRT_FULL, "session 4 of the batch is full: it holds 15 tokens");
    expect_untouched(b, 6);
    free(whole);
    close_batch(b);
}

Test(batch, sessions_of_other_weights_are_rejected) {
    static weights_file other_bytes;
    hrt_weights *other = NULL;
    batch *b = open_batch(4, N, 1);
    fill_weights(&other_bytes);
    cr_assert_eq(hrt_weights_from_memory(&model, &other_bytes, sizeof other_bytes, &other), HRT_OK);
    hrt_session *mine = b->sessions[2];
    b->sessions[2] = open_session(&model, other, N);
    expect_rejected(b, 4, HRT_MIXED, "session 2 of the batch has other weights than session 0");
    hrt_model build = model; /* the same weights fit another build of the model */
    free(b->sessions[2]);
    b->sessions[2] = open_session(&build, b->weights, N);
    expect_rejected(b, 4, HRT_MIXED, "session 2 of the batch has other weights than session 0");
    free(b->sessions[2]);
    b->sessions[2] = mine;
    expect_untouched(b, 4);
    hrt_weights_close(other);
    close_batch(b);
}

Test(batch, a_busy_session_stops_all) {
    batch *b = open_batch(3, N, 1);
    cr_assert(hrt_enter(b->sessions[2]));
    expect_rejected(b, 3, HRT_BUSY, "session 2 of the batch is in a call");
    hrt_leave(b->sessions[2], HRT_OK);
    cr_assert(hrt_enter(b->sessions[0]));
    cr_assert_eq(forward(b, 3), HRT_BUSY);
    hrt_leave(b->sessions[0], HRT_OK);
    expect_untouched(b, 3);
    close_batch(b);
}
