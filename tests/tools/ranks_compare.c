/* A divided library against the undivided one of the same model:
 *
 *     ranks_compare WHOLE.so WHOLE.weights DIVIDED.so RANKS TOKENS [LIMIT [LOGITS [EXACT.npy]]]
 *     ranks_compare --tokens WHOLE.so TOKENS           the prompt that is read
 *
 * DIVIDED with a %d in its name and RANKS such as 2x3 are a pipeline of 3 stages of 2 ranks, a
 * library for each stage, of which the last has logits. Ranks are threads of this process. Prompts
 * are read at once, in pieces, and token by token, and sessions of several lengths get two tokens
 * more in batches; each row of logits may differ by LIMIT (1e-5) of the largest logit, or of 1.
 * With EXACT, what the evaluator says of the prompt, it may differ by LIMIT more than the undivided
 * row does from that: where sums are badly conditioned, either is as good as the other. All ranks
 * must have the same bits, and so must a prompt at once and in calls of a chunk each. What the
 * transport has counted is printed; a last line for each rank, "sent RANK TOKEN CHUNK", has the
 * bytes that it sent in a call of one token and in one of a chunk, of which the last row of logits
 * was asked for. LOGITS: a file for all logits of the divided model, as they are; "-": none.
 *
 * Libraries with NAME_loss give the losses of the prompt, too, at once and by chunks, on several
 * threads: each within 1e-6 (1 + loss) of the undivided one's, and within LIMIT of the largest
 * logit, by which the rows that it is made of may differ; the same bits however it is computed. */
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hadal/hadal_threads.h"
#include "tests/tools/model_library.h"

/* Cases: five ways to read a prompt, and sessions in batches. */
enum { MOST_RANKS = 8, PROMPTS = 5, CASES = 6, SESSIONS = 5, STEPS = 2 };
static const int64_t lengths[SESSIONS] = {0, 3, 11, 1, 20}; /* what sessions of a batch hold */
static int64_t n_tokens, row; /* of the prompt; floats of a row of logits */
static int32_t *tokens;

/* Calls of case k: at once; some and the rest; some, then one by one; the same with the last row of
 * each call alone; chunk by chunk. */
enum { AT_ONCE = 0, BY_CHUNKS = 4 };
static int64_t next_call(const library *l, int k, int64_t done) {
    const info *facts = l->info();
    const int64_t left = n_tokens - done, chunk = (int64_t)facts->max_chunk;
    if (k == AT_ONCE) return left;
    if (k == BY_CHUNKS) return left < chunk ? left : chunk;
    if (k == 1) return done == 0 && left > 7 ? 7 : left;
    return done == 0 ? (left + 1) / 2 : 1;
}

static int read_prompt(const library *l, void *session, int k, float *logits) {
    int code = l->rewind(session, 0);
    for (int64_t done = 0, n; done < n_tokens && !code; done += n) {
        n = next_call(l, k, done);
        const int64_t rows = k == 3 ? 1 : n;
        code = l->forward(session, tokens + done, n, logits + (done + n - rows) * row, rows);
    }
    return code;
}

/* ---- losses ---------------------------------------------------------------------------------- */
enum { WAYS = 3 }; /* at once, on more threads, by chunks */
static int32_t *targets;

/* A stage without logits takes neither targets nor losses. */
static int take_losses(const library *l, void *session, int way, float *losses) {
    int code = l->set_threads(session, way == 1 ? 3 : 1);
    if (!code) code = l->rewind(session, 0);
    for (int64_t done = 0, n; done < n_tokens && !code; done += n) {
        n = way == 2 ? next_call(l, BY_CHUNKS, done) : n_tokens;
        code = l->loss(session, tokens + done, losses ? targets + done : NULL, n,
                       losses ? losses + done : NULL);
    }
    return code;
}

static int compare_losses(const float *want, const float *have, double limit) {
    for (int64_t i = 0; i < n_tokens; i++) {
        const double error = fabs((double)want[i] - (double)have[i]);
        if (error <= 1e-6 * (1 + fabs((double)want[i])) + limit) continue;
        return fprintf(stderr, "loss %lld: %.9g, not %.9g\n", (long long)i, (double)have[i],
                       (double)want[i]);
    }
    return 0;
}

/* Steps of a batch, a row of logits for each session. */
static int read_batch(const library *l, void *const *sessions, float *logits) {
    int code = 0;
    int32_t next[SESSIONS];
    for (int i = 0; i < SESSIONS && !code; i++)
        if (lengths[i] > 0) code = l->forward(sessions[i], tokens, lengths[i], NULL, 0);
    for (int step = 0; step < STEPS && !code; step++, logits += SESSIONS * row) {
        for (int i = 0; i < SESSIONS; i++)
            next[i] = tokens[lengths[i] + step];
        code = l->batch(sessions, next, SESSIONS, logits);
    }
    return code;
}

/* A session on `comm`, or of an undivided library. */
static int open_session(const library *l, const void *weights, const hadal_comm *comm,
                        void **memory, void **session) {
    const size_t size = l->session_size(n_tokens);
    *memory = aligned_alloc(64, size);
    return comm ? l->session_init_on(*memory, size, weights, n_tokens, comm,
                                     60 * INT64_C(1000000000), session)
                : l->session_init(*memory, size, weights, n_tokens, session);
}

static int open_and_read_batch(const library *l, const void *weights, const hadal_comm *comm,
                               float *logits) {
    void *memory[SESSIONS] = {0}, *sessions[SESSIONS] = {0};
    int code = 0;
    for (int i = 0; i < SESSIONS && !code; i++)
        code = open_session(l, weights, comm, &memory[i], &sessions[i]);
    if (!code) code = read_batch(l, sessions, logits);
    for (int i = 0; i < SESSIONS; i++)
        free(memory[i]);
    return code;
}

/* ---- ranks ----------------------------------------------------------------------------------- */
typedef struct rank {
    const library *l;
    hadal_threads *group;
    int32_t number, ranks;
    char share[4096];
    bool last; /* it is of the last stage */
    float *logits[CASES], *losses[WAYS];
    hadal_comm_traffic traffic[HADAL_COMM_EXCHANGE_COUNT];
    unsigned long long sent[2]; /* in a call of one token, of a chunk */
    int64_t chunk;
    int code;
    char why[300];
} rank;

/* What the ranks tell each other before a call is not the model's. */
enum { CALL_WORD = 64 };

static unsigned long long bytes_sent(const hadal_comm *comm) {
    hadal_comm_traffic t[HADAL_COMM_EXCHANGE_COUNT];
    unsigned long long sum = 0;
    comm->count(comm->context, t);
    for (int i = 0; i < HADAL_COMM_EXCHANGE_COUNT; i++)
        sum += t[i].sent;
    return sum;
}

static int count_call(rank *r, const hadal_comm *comm, void *session, int64_t n,
                      unsigned long long *sent) {
    const unsigned long long before = bytes_sent(comm);
    int code = r->l->rewind(session, 0);
    if (!code) code = r->l->forward(session, tokens, n, r->logits[0], 1);
    *sent = bytes_sent(comm) - before - CALL_WORD * (unsigned long long)(comm->size - 1);
    return code;
}

static void run(rank *r) {
    void *weights = NULL, *session = NULL, *memory = NULL;
    const hadal_comm *comm = hadal_threads_comm(r->group, r->number);
    r->code = r->l->weights_open(r->share, &weights);
    if (!r->code) r->code = open_session(r->l, weights, comm, &memory, &session);
    if (!r->code) r->code = r->l->set_threads(session, 1 + r->ranks % 2);
    const int64_t calls[2] = {1, r->chunk < n_tokens ? r->chunk : n_tokens};
    for (int k = 0; k < 2 && !r->code; k++)
        r->code = count_call(r, comm, session, calls[k], &r->sent[k]);
    for (int k = 0; k < PROMPTS && !r->code; k++)
        r->code = read_prompt(r->l, session, k, r->logits[k]);
    for (int way = 0; way < WAYS && r->l->loss && !r->code; way++)
        r->code = take_losses(r->l, session, way, r->last ? r->losses[way] : NULL);
    if (!r->code) r->code = open_and_read_batch(r->l, weights, comm, r->logits[PROMPTS]);
    if (r->code)
        snprintf(r->why, sizeof r->why, "%s; %s; %s", r->l->strerror(r->code),
                 session ? r->l->message(session) : "", comm->message(comm->context));
    comm->count(comm->context, r->traffic);
    if (weights) r->l->weights_close(weights);
    free(memory);
}

static void *run_thread(void *argument) {
    rank *r = argument;
    run(r);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

static int run_ranks(const library *stages, const char *path, int32_t per, int32_t n, rank *all) {
    pthread_t threads[MOST_RANKS];
    hadal_threads *group;
    if (hadal_threads_open(n, &group)) return 1;
    const char *slash = strrchr(path, '/');
    for (int32_t i = 0; i < n; i++) {
        const library *l = &stages[i / per];
        const info *facts = l->info();
        all[i] = (rank){.l = l, .group = group, .number = i, .ranks = n};
        all[i].chunk = (int64_t)facts->max_chunk;
        snprintf(all[i].share, sizeof all[i].share, "%.*s%s.r%dof%d.weights",
                 slash ? (int)(slash - path) + 1 : 0, path, l->prefix, i, n);
        all[i].last = i >= n - per;
        for (int k = 0; k < CASES; k++)
            all[i].logits[k] = calloc((size_t)(n_tokens * row), sizeof(float));
        for (int way = 0; way < WAYS; way++)
            all[i].losses[way] = calloc((size_t)n_tokens, sizeof(float));
        pthread_create(&threads[i], NULL, run_thread, &all[i]);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    hadal_threads_close(group);
    int failed = 0;
    for (int32_t i = 0; i < n; i++)
        if (all[i].code) failed = fprintf(stderr, "rank %d of %d: %s\n", i, n, all[i].why);
    return failed != 0;
}

/* ---- comparing ------------------------------------------------------------------------------- */
static const float *exact[2]; /* of prompts, of batches; NULL: not given */

static double difference(const float *a, const float *b, double scale, int64_t *at) {
    double worst = 0;
    for (int64_t i = 0; i < n_tokens * row; i++) {
        const double error = fabs((double)a[i] - (double)b[i]) / scale;
        if (!(error <= worst)) worst = error, *at = i; /* what is no number is worst */
    }
    return worst;
}

static int compare(const float *want, const float *have, const char *what, int k, double limit) {
    double scale = 1;
    int64_t at = 0;
    const float *const held = exact[k == PROMPTS];
    for (int64_t i = 0; i < n_tokens * row; i++)
        if (fabs(want[i]) > scale) scale = fabs(want[i]);
    const double between = difference(want, have, scale, &at);
    const double whole = held ? difference(held, want, scale, &at) : 0;
    const double worst = held ? difference(held, have, scale, &at) : between;
    if (held && k == 0)
        printf("from the evaluator's: undivided %.2e, %s %.2e; ", whole, what, worst);
    if (k == 0) printf("%s: largest difference %.2e of %.3g\n", what, between, scale);
    if (worst <= limit + whole) return 0;
    return fprintf(stderr, "%s, case %d: row %lld, logit %lld: %g, not %g: %.2e\n", what, k,
                   (long long)(at / row), (long long)(at % row), have[at], want[at], worst);
}

/* The rows of a .npy of f32, as many as the prompt has tokens; NULL: they are not there. */
static float *read_exact(const char *path) {
    unsigned char head[10];
    float *rows = calloc((size_t)(n_tokens * row), sizeof *rows);
    const size_t n = (size_t)(n_tokens * row);
    FILE *f = fopen(path, "rb");
    bool good = f && rows && fread(head, 1, sizeof head, f) == sizeof head;
    good = good && fseek(f, head[8] + 256L * head[9], SEEK_CUR) == 0;
    good = good && fread(rows, sizeof *rows, n, f) == n && fgetc(f) == EOF;
    if (f) fclose(f);
    if (!good) free(rows);
    return good ? rows : NULL;
}

/* A session of a batch has read the beginning of the prompt. */
static bool take_exact(const char *path) {
    const float *all = read_exact(path);
    float *rows = calloc((size_t)(n_tokens * row), sizeof *rows);
    exact[0] = all, exact[1] = rows;
    if (!all || !rows)
        return fprintf(stderr, "%s has not the logits of %lld tokens\n", path,
                       (long long)n_tokens) < 0;
    for (int step = 0; step < STEPS; step++)
        for (int i = 0; i < SESSIONS; i++, rows += row)
            memcpy(rows, all + (lengths[i] + step) * row, (size_t)row * sizeof *rows);
    return true;
}

static int write_logits(const char *path, float *const *logits) {
    FILE *f = fopen(path, "wb");
    const size_t n = (size_t)(n_tokens * row);
    int failed = !f;
    for (int k = 0; k < CASES && !failed; k++)
        failed = fwrite(logits[k], sizeof(float), n, f) != n;
    if (f && fclose(f)) failed = 1;
    return failed ? fprintf(stderr, "%s cannot be written\n", path) : 0;
}

static void print_traffic(const rank *r) {
#define E(id, name)                                                                                \
    if (r->traffic[HADAL_COMM_##id].calls)                                                         \
        printf("rank %d: %s %llu calls, %llu bytes sent, %llu received\n", r->number, name,        \
               (unsigned long long)r->traffic[HADAL_COMM_##id].calls,                              \
               (unsigned long long)r->traffic[HADAL_COMM_##id].sent,                               \
               (unsigned long long)r->traffic[HADAL_COMM_##id].received);
    HADAL_COMM_EXCHANGES(E)
#undef E
    printf("sent %d %llu %llu\n", r->number, r->sent[0], r->sent[1]);
}

/* `pattern` with the number in the place of %d. */
static void path_of_stage(const char *pattern, int stage, char *out, size_t size) {
    const char *at = strstr(pattern, "%d");
    if (at)
        snprintf(out, size, "%.*s%d%s", (int)(at - pattern), pattern, stage, at + 2);
    else
        snprintf(out, size, "%s", pattern);
}

static void make_tokens(const library *l) {
    const info *facts = l->info();
    uint64_t state = 12345;
    tokens = calloc((size_t)n_tokens, sizeof *tokens);
    for (int64_t i = 0; i < n_tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % (facts->vocab ? facts->vocab : 1));
    }
}

/* What the tokens cost; `row` is known. */
static void make_targets(void) {
    targets = calloc((size_t)n_tokens, sizeof *targets);
    for (int64_t i = 0; i < n_tokens; i++) /* some are not counted, one is the last logit */
        targets[i] = i % 11 == 5 ? -1
                     : i == 7    ? (int32_t)row - 1 /* a vocabulary may have ids without logits */
                                 : tokens[(i + 1) % n_tokens] % (int32_t)row;
    for (int64_t ranks = 2; ranks <= 6 && ranks + 10 < n_tokens; ranks++)
        targets[ranks + 10] = (int32_t)((row + ranks - 1) / ranks); /* where their shares meet */
}

/* For others that read the same prompt. */
static int print_tokens(const char *path, const char *n) {
    static library whole;
    if (open_library(&whole, path)) return 1;
    n_tokens = atoll(n);
    make_tokens(&whole);
    for (int64_t i = 0; i < n_tokens; i++)
        printf(i ? ",%d" : "%d", tokens[i]);
    printf("\n");
    free(tokens);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--tokens") == 0) return print_tokens(argv[2], argv[3]);
    if (argc < 6) return fprintf(stderr, "usage: see the head of this file\n"), 2;
    static library whole, divided[MOST_RANKS];
    static rank ranks[MOST_RANKS];
    const char *times = strchr(argv[4], 'x');
    const int32_t per = atoi(argv[4]), stages = times ? atoi(times + 1) : 1, n = per * stages;
    const double limit = argc > 6 ? atof(argv[6]) : 1e-5;
    n_tokens = atoll(argv[5]);
    if (per < 1 || stages < 1 || n > MOST_RANKS || n_tokens < lengths[SESSIONS - 1] + STEPS)
        return 2;
    if (open_library(&whole, argv[1])) return 1;
    for (int i = 0; i < stages; i++) {
        char path[4096];
        path_of_stage(argv[3], i, path, sizeof path);
        if (open_library(&divided[i], path)) return 1;
        if (!whole.session_init || !divided[i].session_init_on)
            return fprintf(stderr, "one is to be undivided, the other divided\n"), 1;
    }
    const info *facts = whole.info();
    row = 1;
    for (const char *c = strchr(facts->outputs[0][1], ','); c; c = strchr(c + 1, ','))
        row *= atoll(c + 1);
    make_tokens(&whole);
    make_targets();
    if (argc > 8 && !take_exact(argv[8])) return 1;
    void *weights, *session, *memory = NULL;
    float *want[CASES];
    int code = whole.weights_open(argv[2], &weights);
    if (!code) code = open_session(&whole, weights, NULL, &memory, &session);
    for (int k = 0; k < CASES && !code; k++) {
        want[k] = calloc((size_t)(n_tokens * row), sizeof(float));
        code = k < PROMPTS ? read_prompt(&whole, session, k, want[k])
                           : open_and_read_batch(&whole, weights, NULL, want[k]);
    }
    float *losses = calloc((size_t)n_tokens, sizeof *losses);
    if (!code && whole.loss) code = take_losses(&whole, session, 0, losses);
    if (code) return fprintf(stderr, "undivided: %s\n", whole.strerror(code)), 1;
    double largest = 1;
    for (int64_t i = 0; i < n_tokens * row; i++)
        if (fabs((double)want[0][i]) > largest) largest = fabs((double)want[0][i]);

    int failed = run_ranks(divided, argv[3], per, n, ranks);
    const int32_t first = n - per; /* of the last stage */
    for (int k = 0; k < CASES && !failed; k++) {
        failed = compare(want[k], ranks[first].logits[k], "divided", k, limit);
        for (int32_t i = first + 1; i < n && !failed; i++)
            if (memcmp(ranks[first].logits[k], ranks[i].logits[k],
                       (size_t)(n_tokens * row) * sizeof(float)) != 0)
                failed = fprintf(stderr, "rank %d has other bits than rank %d\n", i, first);
    }
    /* chunks of a call in flight at once, as against one after the other */
    if (!failed && memcmp(ranks[first].logits[AT_ONCE], ranks[first].logits[BY_CHUNKS],
                          (size_t)(n_tokens * row) * sizeof(float)) != 0)
        failed = fprintf(stderr, "a call of several chunks has other bits than calls of one\n");
    for (int32_t i = first; i < n && whole.loss && divided[0].loss && !failed; i++) {
        failed = compare_losses(losses, ranks[i].losses[0], 2 * limit * largest);
        for (int way = 0; way < WAYS && !failed; way++)
            if (memcmp(ranks[first].losses[0], ranks[i].losses[way],
                       (size_t)n_tokens * sizeof *losses) != 0)
                failed = fprintf(stderr, "rank %d, way %d: losses of other bits\n", i, way);
    }
    if (argc > 7 && strcmp(argv[7], "-") != 0 && !failed)
        failed = write_logits(argv[7], ranks[first].logits);
    for (int32_t i = 0; i < n && !failed; i++)
        print_traffic(&ranks[i]);
    for (int k = 0; k < CASES; k++) {
        free(want[k]);
        for (int32_t i = 0; i < n; i++)
            free(ranks[i].logits[k]);
    }
    for (int32_t i = 0; i < n; i++)
        for (int way = 0; way < WAYS; way++)
            free(ranks[i].losses[way]);
    free(losses);
    whole.weights_close(weights);
    free(memory);
    free(tokens);
    free(targets);
    for (int i = 0; i < 2; i++)
        free((void *)(uintptr_t)exact[i]);
    return failed != 0;
}
