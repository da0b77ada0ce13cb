/* One rank of a divided model under mpirun:
 *
 *     MODEL=DIR/libNAME.so EACH=2 mpirun -n 2 model batch OUT
 *     MODEL=DIR/libNAME_s%d.so EACH=1 mpirun -n 3 model kill OUT
 *     MODEL=DIR/libNAME_s%d.so EACH=1 mpirun -n 2 model builds OUT
 *
 * EACH: ranks of a stage, whose number stands in the place of %d. What came out goes to OUT.<rank>,
 * "ok" or what was wrong.
 *
 *   batch  sessions of several lengths read tokens in batches, and others read the same one by one:
 *          rows of logits differ by 1e-5 of the largest at most (sums over other shapes of work)
 *   kill   rank 1 kills itself at one of its messages to another stage, in the middle of a call:
 * all others get an error by the deadline, and again at once, and can be closed
 *   builds rank 1 has a library of another build, with chunks of 64 tokens: both are told so at
 * once
 */
#include <mpi.h>

#include "hadal/hadal_mpi.h"
#include "support/clock.h"

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/tools/model_library.h"

#define SECOND INT64_C(1000000000)
enum {
    RANKS = 18,
    COLLECTIVE = 19,
    SESSIONS = 3,
    STEPS = 3,
    TOKENS = 120,
    DEADLINE = 2,
    LAST_MESSAGE = 7
};

static char why[400];
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (condition) break;                                                                      \
        snprintf(why, sizeof why, __VA_ARGS__);                                                    \
        return false;                                                                              \
    } while (0)

static library model;
static const hadal_comm *comm;
static int64_t row; /* floats of a row of logits; 0: this stage has none */
static void *weights;
static int32_t tokens[TOKENS];

static bool open_model(void) {
    char path[4096], share[4200];
    const char *pattern = getenv("MODEL"), *at = strstr(pattern, "%d");
    const int stage = comm->rank / atoi(getenv("EACH"));
    snprintf(path, sizeof path, "%s", pattern);
    if (at) snprintf(path, sizeof path, "%.*s%d%s", (int)(at - pattern), pattern, stage, at + 2);
    EXPECT(open_library(&model, path) == 0, "%.300s cannot be opened", path);
    snprintf(share, sizeof share, "%.*s%s.r%dof%d.weights", (int)(strrchr(path, '/') + 1 - path),
             path, model.prefix, comm->rank, comm->size);
    const int code = model.weights_open(share, &weights);
    EXPECT(code == 0, "%.200s: %.100s", share, model.strerror(code));
    const info *facts = model.info();
    for (const char *c = facts->n_outputs ? strchr(facts->outputs[0][1], ',') : NULL; c;
         c = strchr(c + 1, ','))
        row = (row ? row : 1) * atoll(c + 1);
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = i * 7 % 61;
    return true;
}

static bool open_session(const hadal_comm *on, int64_t timeout_ns, void **session) {
    const size_t size = model.session_size(TOKENS);
    void *memory = aligned_alloc(64, size);
    const int code = model.session_init_on(memory, size, weights, TOKENS, on, timeout_ns, session);
    EXPECT(code == 0, "session: %.200s", model.strerror(code));
    EXPECT(model.set_threads(*session, 1) == 0, "threads");
    return true;
}

/* ---- batches --------------------------------------------------------------------------------- */
static bool same_rows(const float *a, const float *b, int session, int step) {
    double largest = 1, worst = 0;
    for (int64_t i = 0; i < row; i++)
        largest = fabs((double)b[i]) > largest ? fabs((double)b[i]) : largest;
    for (int64_t i = 0; i < row; i++)
        if (!(fabs((double)a[i] - (double)b[i]) <= worst))
            worst = fabs((double)a[i] - (double)b[i]);
    EXPECT(worst <= 1e-5 * largest, "session %d, step %d: logits differ by %g of %g", session, step,
           worst, largest);
    return true;
}

static bool batch(void) {
    static const int64_t lengths[SESSIONS] = {0, 3, 40};
    void *together[SESSIONS], *alone[SESSIONS];
    float *logits = calloc((size_t)(SESSIONS * row + 1), sizeof *logits);
    float *one = calloc((size_t)row + 1, sizeof *one);
    for (int i = 0; i < SESSIONS; i++) {
        if (!open_session(comm, 20 * SECOND, &together[i])) return false;
        if (!open_session(comm, 20 * SECOND, &alone[i])) return false;
        if (!lengths[i]) continue;
        EXPECT(model.forward(together[i], tokens, lengths[i], logits, 0) == 0, "a prompt");
        EXPECT(model.forward(alone[i], tokens, lengths[i], logits, 0) == 0, "a prompt");
    }
    for (int step = 0; step < STEPS; step++) {
        int32_t next[SESSIONS];
        for (int i = 0; i < SESSIONS; i++)
            next[i] = tokens[lengths[i] + step];
        const int code = model.batch(together, next, SESSIONS, logits);
        EXPECT(code == 0, "batch: %.100s; %.200s", model.strerror(code),
               model.message(together[0]));
        for (int i = 0; i < SESSIONS; i++) {
            EXPECT(model.forward(alone[i], &next[i], 1, one, 1) == 0, "a token");
            if (row && !same_rows(logits + i * row, one, i, step)) return false;
        }
    }
    int32_t wrong[SESSIONS] = {1, -1, 1}; /* one rank has a token that is none: all refuse */
    if (comm->rank != 1) wrong[1] = 1;
    EXPECT(model.batch(together, wrong, SESSIONS, logits) != 0, "a wrong token was not refused");
    EXPECT(model.batch(together, tokens, SESSIONS, logits) == 0, "the next batch");
    return true;
}

/* ---- a rank that dies ------------------------------------------------------------------------ */
static int messages; /* until the end */

static int fatal_send(void *context, int32_t to, const void *data, uint64_t bytes,
                      int64_t timeout_ns) {
    if (--messages == 0) kill(getpid(), SIGKILL);
    return comm->send(context, to, data, bytes, timeout_ns);
}

static int fatal_recv(void *context, int32_t from, void *data, uint64_t bytes, int64_t timeout_ns) {
    if (--messages == 0) kill(getpid(), SIGKILL);
    return comm->recv(context, from, data, bytes, timeout_ns);
}

static bool survive(void) {
    hadal_comm fatal = *comm;
    void *session;
    float *logits = calloc((size_t)row + 1, sizeof *logits);
    fatal.send = fatal_send;
    fatal.recv = fatal_recv;
    if (!open_session(comm->rank == 1 ? &fatal : comm, DEADLINE * SECOND, &session)) return false;
    EXPECT(model.forward(session, tokens, TOKENS / 2, logits, 1) == 0, "before rank 1 is killed");
    messages = LAST_MESSAGE;
    for (int k = 0; k < 2; k++) {
        const int64_t begun = hd_nanoseconds();
        const int code = model.forward(session, tokens, TOKENS / 2, logits, 1);
        EXPECT(code == COLLECTIVE, "call %d: code %d", k, code);
        EXPECT(model.message(session)[0], "there is no message");
        EXPECT(hd_nanoseconds() - begun < (k ? SECOND / 10 : (DEADLINE + 1) * SECOND),
               "the error came long after the deadline");
    }
    return true;
}

/* ---- two builds ------------------------------------------------------------------------------ */
static bool differ(void) {
    const size_t size = model.session_size(TOKENS);
    void *memory = aligned_alloc(64, size), *session = NULL;
    const int64_t begun = hd_nanoseconds();
    const int code =
        model.session_init_on(memory, size, weights, TOKENS, comm, 20 * SECOND, &session);
    EXPECT(hd_nanoseconds() - begun < 5 * SECOND, "the error came late");
    EXPECT(code == RANKS, "code %d", code);
    EXPECT(session && strstr(model.message(session),
                             "most tokens of a chunk: rank 1 has 64, rank 0 has 512"),
           "message: %.200s", session ? model.message(session) : "none");
    float *logits = calloc((size_t)row + 1, sizeof *logits);
    EXPECT(model.forward(session, tokens, 1, logits, 1) == RANKS, "a refused session is called");
    return true;
}

static int report(const char *out, const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s.%d", out, comm->rank);
    FILE *f = fopen(path, "w");
    if (!f || fprintf(f, "%s\n", what) < 0 || fclose(f)) return 1;
    return strcmp(what, "ok") != 0;
}

int main(int argc, char **argv) {
    hadal_mpi *group = NULL;
    int provided;
    if (argc != 3 || !getenv("MODEL") || !getenv("EACH"))
        return fprintf(stderr, "usage: see the head of this file\n"), 2;
    const bool dies = strcmp(argv[1], "kill") == 0;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
    const int code = hadal_mpi_open(MPI_COMM_WORLD, 20 * SECOND, &group);
    if (code) return fprintf(stderr, "opening: code %d\n", code), 1;
    comm = hadal_mpi_comm(group);
    const bool builds = strcmp(argv[1], "builds") == 0;
    const bool well = open_model() && (dies ? survive() : builds ? differ() : batch());
    const char *what = well ? "ok" : why;
    if (dies) {
        const int32_t rank = comm->rank;
        if (well && hadal_mpi_close(group, SECOND)) what = "closed well after an error";
        _exit(rank == 1 ? 1 : report(argv[2], what));
    }
    const int failed = report(argv[2], what);
    if (!hadal_mpi_close(group, 5 * SECOND)) return 1;
    return MPI_Finalize() != MPI_SUCCESS || failed;
}
