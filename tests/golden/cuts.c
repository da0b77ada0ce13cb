/* A golden case compiled as `model`, at every CPU level of its library that this machine has: the
 * expected logits, however the prompt is cut into calls, and in batches, on one thread and on two.
 *
 *   cuts model.weights tokens.txt logits.txt
 *
 * e = max |got - expected| / max |expected| stays below 1e-4, as in run.sh: a plain float32
 * evaluation stays below 3e-5. Two threads give the bytes of one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static const double LIMIT = 1e-4;
enum { MOST = 256 };

typedef struct prompt {
    int32_t tokens[MOST];
    int64_t n;
    float *logits;   /* [n][MODEL_LOGITS], expected */
    double *largest; /* one number */
} prompt;

static int failed;

static void need(int code, const char *what) {
    if (!code) return;
    fprintf(stderr, "%s: %s\n", what, model_strerror(code));
    exit(1);
}

/* Numbers of a text file; gives how many. */
static int64_t read_numbers(const char *path, double *to, int64_t most) {
    FILE *f = fopen(path, "r");
    int64_t n = 0;
    if (!f) exit(2);
    while (n < most && fscanf(f, "%lf", &to[n]) == 1)
        n++;
    fclose(f);
    return n;
}

static prompt read_prompt(const char *tokens, const char *logits) {
    static double numbers[MOST * MODEL_LOGITS], largest;
    prompt p = {.n = read_numbers(tokens, numbers, MOST), .largest = &largest};
    for (int64_t i = 0; i < p.n; i++)
        p.tokens[i] = (int32_t)numbers[i];
    const int64_t n = read_numbers(logits, numbers, MOST * MODEL_LOGITS);
    p.logits = malloc((size_t)n * sizeof(float));
    if (!p.logits || p.n < 9 || n != p.n * MODEL_LOGITS) {
        fprintf(stderr, "%ld tokens and %ld logits do not fit\n", (long)p.n, (long)n);
        exit(2);
    }
    for (int64_t i = 0; i < n; i++) {
        p.logits[i] = (float)numbers[i];
        if (fabs(numbers[i]) > largest) largest = fabs(numbers[i]);
    }
    return p;
}

static double error_of(const prompt *p, const float *got, int64_t at, int64_t rows) {
    double worst = 0;
    for (int64_t i = 0; i < rows * MODEL_LOGITS; i++) {
        const double difference = fabs((double)got[i] - p->logits[at * MODEL_LOGITS + i]);
        if (!(difference <= worst)) worst = difference; /* NaN counts as worst */
    }
    return worst / *p->largest;
}

typedef struct opened {
    void *memory;
    model_session *s; /* NULL: this machine lacks the level */
} opened;

static opened open_session(const model_weights *weights, const prompt *p, const char *level,
                           int threads) {
    const size_t size = model_session_size(p->n);
    opened o = {.memory = aligned_alloc(MODEL_ALIGN, size)};
    if (!o.memory) exit(1);
    memset(o.memory, 0xff, size); /* NaNs: nothing may be read before it is written */
    need(model_session_init(o.memory, size, weights, p->n, &o.s), "init");
    need(model_session_set_threads(o.s, threads), "set_threads");
    const int code = model_session_set_cpu(o.s, level);
    if (code == MODEL_CPU)
        o.s = NULL;
    else
        need(code, level);
    return o;
}

/* Calls of `first` tokens, then of `next` until there are no more. */
static void check_cut(const model_weights *weights, const prompt *p, const char *level,
                      int64_t first, int64_t next) {
    float *got[2];
    for (int threads = 1; threads <= 2; threads++) {
        float *to = got[threads - 1] = malloc((size_t)p->n * MODEL_LOGITS * sizeof(float));
        const opened o = open_session(weights, p, level, threads);
        if (!to || !o.s) exit(1);
        for (int64_t at = 0, n = first; at < p->n; at += n, n = next) {
            if (n > p->n - at) n = p->n - at;
            need(model_forward(o.s, p->tokens + at, n, to + at * MODEL_LOGITS, n), "forward");
        }
        free(o.memory);
    }
    const double e = error_of(p, got[0], 0, p->n);
    const int same = !memcmp(got[0], got[1], (size_t)p->n * MODEL_LOGITS * sizeof(float));
    if (!(e <= LIMIT) || !same) {
        fprintf(stderr, "%s, %ld and then %ld: e = %.3g, threads %s\n", level, (long)first,
                (long)next, e, same ? "agree" : "differ");
        failed = 1;
    }
    free(got[0]), free(got[1]);
}

/* Sessions that have come to different tokens of the prompt take the next one together. */
static void check_batch(const model_weights *weights, const prompt *p, const char *level,
                        int threads) {
    enum { SESSIONS = 5, STEPS = 2 };
    static float got[SESSIONS * MODEL_LOGITS];
    model_session *s[SESSIONS];
    void *memory[SESSIONS];
    int64_t at[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        const opened o = open_session(weights, p, level, threads);
        s[i] = o.s, memory[i] = o.memory;
        if (!s[i]) exit(1);
        at[i] = i * (p->n - STEPS) / (SESSIONS - 1);
        if (at[i]) need(model_forward(s[i], p->tokens, at[i], NULL, 0), "forward");
    }
    for (int step = 0; step < STEPS; step++) {
        int32_t next[SESSIONS];
        for (int i = 0; i < SESSIONS; i++)
            next[i] = p->tokens[at[i]];
        need(model_forward_batch(s, next, SESSIONS, got), "forward_batch");
        for (int i = 0; i < SESSIONS; i++, at[i - 1]++) {
            const double e = error_of(p, got + i * MODEL_LOGITS, at[i], 1);
            if (e <= LIMIT) continue;
            fprintf(stderr, "%s, %d threads, batch, token %ld: e = %.3g\n", level, threads,
                    (long)at[i], e);
            failed = 1;
        }
    }
    for (int i = 0; i < SESSIONS; i++)
        free(memory[i]);
}

int main(int argc, char **argv) {
    model_weights *weights;
    if (argc != 4) return 2;
    need(model_weights_open(argv[1], &weights), argv[1]);
    const prompt p = read_prompt(argv[2], argv[3]);
    const int64_t cuts[][2] = {{p.n, p.n}, {1, p.n}, {7, p.n}, {1, 1}, {7, 1}, {5, 3}};
    int levels = 0;
    for (size_t i = 0; i < model_info()->n_levels; i++) {
        const char *level = model_info()->levels[i];
        const opened o = open_session(weights, &p, level, 1);
        free(o.memory);
        if (!o.s) continue;
        levels++;
        for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
            check_cut(weights, &p, level, cuts[c][0], cuts[c][1]);
        for (int threads = 1; threads <= 2; threads++)
            check_batch(weights, &p, level, threads);
        printf("%s\n", level);
    }
    free(p.logits);
    model_weights_close(weights);
    if (!levels) fprintf(stderr, "no level of the library runs here\n");
    return failed || !levels;
}
