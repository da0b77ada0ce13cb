/* A divided library against the undivided one of the same model:
 *
 *     ranks_compare WHOLE.so WHOLE.weights DIVIDED.so RANKS TOKENS [LIMIT [LOGITS]]
 *
 * DIVIDED with a %d in its name and RANKS such as 2x3 are a pipeline of 3 stages of 2 ranks, a
 * library for each stage, of which the last has logits. Ranks are threads of this process. Prompts
 * are read at once, in pieces, and token by token; each row of logits may differ by LIMIT (1e-5) of
 * the largest logit, or of 1. All ranks must have the same bits. What the transport has counted is
 * printed; a last line for each rank, "sent RANK TOKEN CHUNK", has the bytes that it sent in a call
 * of one token and in one of a chunk, of which the last row of logits was asked for. LOGITS: a file
 * for all logits of the divided model, as they are. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hadal/hadal_threads.h"

/* Of the info that every library tells (its header): the first output's type, and vocab. */
typedef struct info {
    size_t struct_size;
    const char *version, *name, *digest, *options, *ops;
    size_t weights_size, max_chunk, n_levels;
    const char *const *levels;
    size_t n_inputs;
    const char *const (*inputs)[2];
    size_t n_outputs;
    const char *const (*outputs)[2];
    size_t vocab;
} info;

typedef struct library {
    void *handle;
    char prefix[200];
    int (*weights_open)(const char *path, void **out);
    void (*weights_close)(void *w);
    size_t (*session_size)(int64_t max);
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max, void **out);
    int (*session_init_on)(void *mem, size_t size, const void *w, int64_t max,
                           const hadal_comm *comm, int64_t timeout_ns, void **out);
    int (*set_threads)(void *s, int threads);
    int (*rewind)(void *s, int64_t length);
    int (*forward)(void *s, const int32_t *tokens, int64_t n, float *logits, int64_t rows);
    const char *(*message)(const void *s);
    const char *(*strerror)(int code);
    const void *(*info)(void);
} library;

enum { MOST_RANKS = 8, CASES = 4 };
static int64_t n_tokens, row; /* of the prompt; floats of a row of logits */
static int32_t *tokens;

static void *symbol(library *l, const char *name) {
    char full[300];
    snprintf(full, sizeof full, "%s_%s", l->prefix, name);
    return dlsym(l->handle, full);
}

static int open_library(library *l, const char *path) {
    const char *file = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle) return fprintf(stderr, "%s\n", dlerror()), 1;
    snprintf(l->prefix, sizeof l->prefix, "%.*s", (int)(strlen(file) - 6), file + 3);
#define FIND(field, name)                                                                          \
    do {                                                                                           \
        void *at = symbol(l, name);                                                                \
        memcpy(&l->field, &at, sizeof at);                                                         \
    } while (0)
    FIND(weights_open, "weights_open");
    FIND(weights_close, "weights_close");
    FIND(session_size, "session_size");
    FIND(session_init, "session_init");
    FIND(session_init_on, "session_init_on");
    FIND(set_threads, "session_set_threads");
    FIND(rewind, "session_rewind");
    FIND(forward, "forward");
    FIND(message, "session_message");
    FIND(strerror, "strerror");
    FIND(info, "info");
    return l->forward ? 0 : (fprintf(stderr, "%s is no model\n", path), 1);
}

/* Calls of case k: at once; some and the rest; some, then one by one; the same with the last row of
 * each call alone. */
static int64_t next_call(int k, int64_t done) {
    const int64_t left = n_tokens - done;
    if (k == 0) return left;
    if (k == 1) return done == 0 && left > 7 ? 7 : left;
    return done == 0 ? (left + 1) / 2 : 1;
}

static int read_prompt(const library *l, void *session, int k, float *logits) {
    int code = l->rewind(session, 0);
    for (int64_t done = 0, n; done < n_tokens && !code; done += n) {
        n = next_call(k, done);
        const int64_t rows = k == 3 ? 1 : n;
        code = l->forward(session, tokens + done, n, logits + (done + n - rows) * row, rows);
    }
    return code;
}

/* ---- ranks ----------------------------------------------------------------------------------- */
typedef struct rank {
    const library *l;
    hadal_threads *group;
    int32_t number, ranks;
    char share[4096];
    float *logits[CASES];
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
    void *weights = NULL, *session = NULL;
    const hadal_comm *comm = hadal_threads_comm(r->group, r->number);
    const size_t size = r->l->session_size(n_tokens);
    void *memory = aligned_alloc(64, size);
    r->code = r->l->weights_open(r->share, &weights);
    if (!r->code)
        r->code = r->l->session_init_on(memory, size, weights, n_tokens, comm,
                                        60 * INT64_C(1000000000), &session);
    if (!r->code) r->code = r->l->set_threads(session, 1 + r->ranks % 2);
    const int64_t calls[2] = {1, r->chunk < n_tokens ? r->chunk : n_tokens};
    for (int k = 0; k < 2 && !r->code; k++)
        r->code = count_call(r, comm, session, calls[k], &r->sent[k]);
    for (int k = 0; k < CASES && !r->code; k++)
        r->code = read_prompt(r->l, session, k, r->logits[k]);
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
        for (int k = 0; k < CASES; k++)
            all[i].logits[k] = calloc((size_t)(n_tokens * row), sizeof(float));
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
static int compare(const float *want, const float *have, const char *what, int k, double limit) {
    double scale = 1, worst = 0;
    int64_t at = 0;
    for (int64_t i = 0; i < n_tokens * row; i++)
        if (fabs(want[i]) > scale) scale = fabs(want[i]);
    for (int64_t i = 0; i < n_tokens * row; i++) {
        const double error = fabs((double)want[i] - (double)have[i]) / scale;
        if (!(error <= worst)) worst = error, at = i; /* what is no number is worst */
    }
    if (k == 0) printf("%s: largest difference %.2e of %.3g\n", what, worst, scale);
    if (worst <= limit) return 0;
    return fprintf(stderr, "%s, cut %d: token %lld, logit %lld: %g, not %g\n", what, k,
                   (long long)(at / row), (long long)(at % row), have[at], want[at]);
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

int main(int argc, char **argv) {
    if (argc < 6) return fprintf(stderr, "usage: see the head of this file\n"), 2;
    static library whole, divided[MOST_RANKS];
    static rank ranks[MOST_RANKS];
    const char *times = strchr(argv[4], 'x');
    const int32_t per = atoi(argv[4]), stages = times ? atoi(times + 1) : 1, n = per * stages;
    const double limit = argc > 6 ? atof(argv[6]) : 1e-5;
    n_tokens = atoll(argv[5]);
    if (per < 1 || stages < 1 || n > MOST_RANKS || n_tokens < 1) return 2;
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
    tokens = calloc((size_t)n_tokens, sizeof *tokens);
    uint64_t state = 12345;
    for (int64_t i = 0; i < n_tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        tokens[i] = (int32_t)((state >> 33) % (facts->vocab ? facts->vocab : 1));
    }

    void *weights, *session;
    float *want[CASES];
    const size_t size = whole.session_size(n_tokens);
    void *memory = aligned_alloc(64, size);
    int code = whole.weights_open(argv[2], &weights);
    if (!code) code = whole.session_init(memory, size, weights, n_tokens, &session);
    for (int k = 0; k < CASES && !code; k++) {
        want[k] = calloc((size_t)(n_tokens * row), sizeof(float));
        code = read_prompt(&whole, session, k, want[k]);
    }
    if (code) return fprintf(stderr, "undivided: %s\n", whole.strerror(code)), 1;

    int failed = run_ranks(divided, argv[3], per, n, ranks);
    const int32_t first = n - per; /* of the last stage */
    for (int k = 0; k < CASES && !failed; k++) {
        failed = compare(want[k], ranks[first].logits[k], "divided", k, limit);
        for (int32_t i = first + 1; i < n && !failed; i++)
            if (memcmp(ranks[first].logits[k], ranks[i].logits[k],
                       (size_t)(n_tokens * row) * sizeof(float)) != 0)
                failed = fprintf(stderr, "rank %d has other bits than rank %d\n", i, first);
    }
    if (argc > 7 && !failed) failed = write_logits(argv[7], ranks[first].logits);
    for (int32_t i = 0; i < n && !failed; i++)
        print_traffic(&ranks[i]);
    for (int k = 0; k < CASES; k++) {
        free(want[k]);
        for (int32_t i = 0; i < n; i++)
            free(ranks[i].logits[k]);
    }
    whole.weights_close(weights);
    free(memory);
    free(tokens);
    return failed != 0;
}
