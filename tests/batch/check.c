/* A compiled model called `model`: rows of model_forward_batch against model_forward of each
 * session alone, and a prompt in one call against the same cut into calls.
 *
 *   check model.weights
 *
 * e = max |batch - alone| / max |alone| over the logits of all rows (and over each other output)
 * stays below 1e-4, as for compiled code elsewhere (golden/run.sh): the two differ in the order of
 * sums only, but of a hundred sequences the worst counts. Prefill and decode of the same sequences
 * differ by up to 3.6e-5; a row that meets another's position or cache is off by 1e-2 and more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

enum { MOST = 100, LONG = 600, STEPS = 2 };
static const double LIMIT = 1e-4;

static model_session *sessions[MOST];
static void *saved[MOST]; /* what each held at first */
static size_t saved_size[MOST];
static float *batch[MODEL_OUTPUTS], *alone[MODEL_OUTPUTS]; /* [MOST rows] of each output */
static size_t width[MODEL_OUTPUTS];
static int failed;

static void need(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "%s: %s (%s)\n", what, model_strerror(code),
            sessions[0] ? model_session_message(sessions[0]) : "");
    exit(1);
}

/* Whether output k has a row for each session; otherwise it is there once. */
static int has_rows(size_t k) {
    return strstr(model_info()->outputs[k].type, "[T") != NULL;
}

/* Floats of "f32[4, 2]", or of a row of "f32[T, 4, 2]": 8. */
static size_t floats(const char *type) {
    size_t n = 1;
    for (const char *c = strpbrk(type, "[,"); c; c = strchr(c + 1, ','))
        if (c[1] != 'T') n *= (size_t)strtoul(c + 1, NULL, 10);
    return n;
}

static int32_t token(int i, int64_t at) {
    return (int32_t)((i * 13 + at * 7 + 1) % MODEL_VOCAB);
}

static int64_t length_of(int i) { /* 0 .. 15, and two that are long */
    return i == 1 ? LONG / 2 : i == 2 ? LONG : i * 5 % 16;
}

static void open_sessions(const model_weights *weights) {
    for (int i = 0; i < MOST; i++) {
        const int64_t room = length_of(i) + STEPS + i % 5 * 8; /* caches of different size */
        const size_t size = model_session_size(room);
        void *memory = aligned_alloc(MODEL_ALIGN, size);
        if (!memory) exit(1);
        memset(memory, 0xff, size); /* NaNs: nothing may be read before it is written */
        need(model_session_init(memory, size, weights, room, &sessions[i]), "session_init");
        int32_t past[LONG];
        for (int64_t t = 0; t < length_of(i); t++)
            past[t] = token(i, t);
        if (length_of(i)) need(model_forward(sessions[i], past, length_of(i), NULL, 0), "forward");
        saved_size[i] = model_session_save_size(sessions[i]);
        saved[i] = malloc(saved_size[i]);
        need(saved[i] ? model_session_save(sessions[i], saved[i], saved_size[i]) : MODEL_MEMORY,
             "save");
    }
}

static int forward_alone(int i, const int32_t *next) {
    float *outs[MODEL_OUTPUTS];
    for (size_t k = 0; k < MODEL_OUTPUTS; k++)
        outs[k] = alone[k] + (has_rows(k) ? (size_t)i * width[k] : 0);
#if MODEL_OUTPUTS > 1
    return model_forward_outputs(sessions[i], next, 1, outs, 1);
#else
    return model_forward(sessions[i], next, 1, outs[0], 1);
#endif
}

static int forward_batch(const int32_t *next, int count) {
#if MODEL_OUTPUTS > 1
    return model_forward_batch_outputs(sessions, next, count, batch);
#else
    return model_forward_batch(sessions, next, count, batch[0]);
#endif
}

static void compare(int count, int threads) {
    for (size_t k = 0; k < MODEL_OUTPUTS; k++) {
        const size_t n = has_rows(k) ? (size_t)count * width[k] : width[k];
        double worst = 0, largest = 0;
        for (size_t i = 0; i < n; i++) {
            const double difference = fabs((double)batch[k][i] - alone[k][i]);
            if (!(difference <= worst)) worst = difference; /* NaN counts as worst */
            if (fabs(alone[k][i]) > largest) largest = fabs(alone[k][i]);
        }
        if (worst <= LIMIT * largest && largest > 0) continue;
        fprintf(stderr, "%d sessions, %d threads, output %zu: e = %.3g\n", count, threads, k,
                worst / largest);
        failed = 1;
    }
}

/* Back to the length that a session had at first. State that cannot be shortened, such as that of a
 * recurrence, is taken from what was saved there. */
static void go_back(int i) {
    const int code = model_session_rewind(sessions[i], length_of(i));
    if (code != MODEL_REWIND) {
        need(code, "rewind");
        return;
    }
    need(model_session_restore(sessions[i], saved[i], saved_size[i]), "restore");
}

/* STEPS tokens more in batches, and back; the same by each session alone, and back. */
static void check(int count, int threads) {
    int32_t next[MOST];
    need(model_session_set_threads(sessions[0], threads), "set_threads");
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < count; i++)
            next[i] = token(i, length_of(i) + step);
        need(forward_batch(next, count), "forward_batch");
    }
    for (int i = 0; i < count; i++) {
        go_back(i);
        for (int step = 0; step < STEPS; step++) {
            next[i] = token(i, length_of(i) + step);
            need(forward_alone(i, &next[i]), "forward");
        }
        go_back(i);
    }
    compare(count, threads);
}

/* ---- cuts ------------------------------------------------------------------------------------ */
enum { PROMPT = 24 };

/* Logits of all tokens of the prompt, in calls of these lengths, the last one for the rest. */
static void read_prompt(const model_weights *weights, const int64_t *calls, int threads,
                        float *logits) {
    const size_t size = model_session_size(PROMPT);
    void *memory = aligned_alloc(MODEL_ALIGN, size);
    model_session *session;
    int32_t tokens[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = token(5, i);
    if (!memory) exit(1);
    need(model_session_init(memory, size, weights, PROMPT, &session), "init");
    need(model_session_set_threads(session, threads), "set_threads");
    for (int64_t at = 0, n; at < PROMPT; at += n) {
        n = *calls && *calls < PROMPT - at ? *calls++ : PROMPT - at;
        need(model_forward(session, tokens + at, n, logits + at * MODEL_LOGITS, n), "forward");
    }
    free(memory);
}

/* e stays below LIMIT however the prompt is cut: a call of one token takes its sums in another
 * order. Two threads give the bytes of one. */
static void check_cuts(const model_weights *weights) {
    static const int64_t cuts[][4] = {{PROMPT}, {1}, {7}, {7, 1}, {3, 1, 11}};
    static float whole[PROMPT * MODEL_LOGITS], one[PROMPT * MODEL_LOGITS],
        two[PROMPT * MODEL_LOGITS];
    read_prompt(weights, cuts[0], 1, whole);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        double worst = 0, largest = 0;
        read_prompt(weights, cuts[c], 1, one);
        read_prompt(weights, cuts[c], 2, two);
        for (size_t i = 0; i < sizeof whole / sizeof *whole; i++) {
            const double difference = fabs((double)one[i] - whole[i]);
            if (!(difference <= worst)) worst = difference;
            if (fabs(whole[i]) > largest) largest = fabs(whole[i]);
        }
        if (worst <= LIMIT * largest && largest > 0 && !memcmp(one, two, sizeof one)) continue;
        fprintf(stderr, "cut %zu: e = %.3g, threads %s\n", c, worst / largest,
                memcmp(one, two, sizeof one) ? "differ" : "agree");
        failed = 1;
    }
}

static void expect_code(int code, int wanted, const char *what) {
    if (code == wanted) return;
    fprintf(stderr, "%s: code %d instead of %d\n", what, code, wanted);
    failed = 1;
}

static void check_rejections(void) {
    const int32_t next[3] = {0, 1 % MODEL_VOCAB, MODEL_VOCAB};
    model_session *twice[2] = {sessions[1], sessions[1]};
    expect_code(model_forward_batch(twice, next, 2, batch[0]), MODEL_TWICE, "one session twice");
    expect_code(model_forward_batch(sessions, next, 3, batch[0]), MODEL_TOKEN, "a token too large");
    expect_code(model_forward_batch(sessions, next, 0, batch[0]), MODEL_ARGUMENT, "no session");
    for (int i = 0; i < 3; i++)
        expect_code(model_session_length(sessions[i]) != length_of(i), 0,
                    "a refused batch counted");
}

int main(int argc, char **argv) {
    static const int counts[] = {1, 2, 3, 17, MOST};
    model_weights *weights;
    if (argc != 2) return 2;
    need(model_weights_open(argv[1], &weights), argv[1]);
    for (size_t k = 0; k < MODEL_OUTPUTS; k++) {
        width[k] = floats(model_info()->outputs[k].type);
        batch[k] = malloc(MOST * width[k] * sizeof(float));
        alone[k] = malloc(MOST * width[k] * sizeof(float));
    }
    open_sessions(weights);
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++)
        for (int threads = 1; threads <= 4; threads += 1 + (counts[k] > 3))
            check(counts[k], threads);
    check_rejections();
    check_cuts(weights);
    for (int i = 0; i < MOST; i++)
        free(sessions[i]), free(saved[i]);
    for (size_t k = 0; k < MODEL_OUTPUTS; k++)
        free(batch[k]), free(alone[k]);
    model_weights_close(weights);
    if (!failed) printf("batches agree with single calls, and calls however they are cut\n");
    return failed;
}
