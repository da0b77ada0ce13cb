#include "tests/comm/scenarios.h"
#include "support/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND INT64_C(1000000000)
enum { PATIENT = 20, MOST_RANKS = 8 };

static _Thread_local char text[256];
#define EXPECT(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            snprintf(text, sizeof text, __VA_ARGS__);                                              \
            *why = text;                                                                           \
            return false;                                                                          \
        }                                                                                          \
    } while (0)
#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        const int code_ = (call);                                                                  \
        EXPECT(code_ == HADAL_COMM_OK, "line %d: code %d: %s", __LINE__, code_,                    \
               c->message(c->context));                                                            \
    } while (0)

static void sleep_ms(int ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* ---- values ----------------------------------------------------------------------------------
 * Element i of rank r: a bf16 number, whose sums over ranks depend on the order in f32. */
static float value(int r, uint64_t i) {
    const uint32_t mixed = (uint32_t)(i * 2654435761u + (uint64_t)r * 40503u);
    const uint32_t bits =
        (r % 2 ? 0x4b800000u : 0x3f800000u) | (mixed & 0x007f0000u) | (mixed & 0x80000000u);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float sum_of(hadal_comm_group g, uint64_t i) {
    float sum = value(g.first, i);
    for (int r = g.first + 1; r < g.first + g.count; r++)
        sum += value(r, i);
    return sum;
}

static void *values(int r, uint64_t n, hadal_comm_type type) {
    const size_t size = type == HADAL_COMM_F32 ? 4 : 2;
    uint8_t *out = malloc((size_t)n * size + 1);
    for (uint64_t i = 0; out && i < n; i++) {
        const float x = value(r, i);
        if (size == 4)
            memcpy(out + 4 * i, &x, 4);
        else
            memcpy(out + 2 * i, (const char *)&x + 2, 2); /* little endian: upper half */
    }
    return out;
}

static uint64_t row_counts(int64_t rows, uint64_t width, hadal_comm_group g, uint64_t *counts) {
    uint64_t sum = 0;
    for (int32_t i = 0; i < g.count; i++) {
        counts[i] = (uint64_t)(hadal_comm_first_row(rows, i + 1, g.count) -
                               hadal_comm_first_row(rows, i, g.count)) *
                    width;
        sum += counts[i];
    }
    return sum;
}

/* ---- the exchanges --------------------------------------------------------------------------- */
typedef struct shape {
    int64_t rows;
    uint64_t width;
} shape;
/* No row, fewer rows than ranks, rows that do not divide, more than one message holds: of each of
 * five ranks. ThreadSanitizer looks at each element, so that there it is not many times as much. */
#if defined(__SANITIZE_THREAD__)
#define LARGEST                                                                                    \
    { 401, 450 }
enum { LONG_MESSAGE = 300001 };
#else
#define LARGEST                                                                                    \
    { 1001, 700 }
enum { LONG_MESSAGE = 3000001 };
#endif
static const shape shapes[] = {{0, 64}, {1, 1},  {1, 3000}, {2, 5},
                               {3, 64}, {7, 33}, {64, 16},  LARGEST};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static bool try_reduce_scatter(const hadal_comm *c, hadal_comm_group g, shape s,
                               hadal_comm_type type, const char **why) {
    uint64_t counts[MOST_RANKS], start = 0;
    const uint64_t n = row_counts(s.rows, s.width, g, counts);
    const int self = c->rank - g.first;
    void *in = values(c->rank, n, type);
    float *out = malloc((size_t)counts[self] * sizeof *out + 4);
    EXPECT_OK(c->reduce_scatter(c->context, g, type, in, out, counts, PATIENT * SECOND));
    for (int i = 0; i < self; i++)
        start += counts[i];
    for (uint64_t i = 0; i < counts[self]; i++)
        EXPECT(out[i] == sum_of(g, start + i), "reduce_scatter of %lld rows: element %llu is %g",
               (long long)s.rows, (unsigned long long)i, out[i]);
    if (type == HADAL_COMM_F32) { /* to where this rank's block is */
        float *own = (float *)in + start;
        EXPECT_OK(c->reduce_scatter(c->context, g, type, in, own, counts, PATIENT * SECOND));
        EXPECT(memcmp(own, out, (size_t)counts[self] * 4) == 0, "reduce_scatter in place differs");
    }
    free(in);
    free(out);
    return true;
}

static bool try_all_gather(const hadal_comm *c, hadal_comm_group g, shape s, hadal_comm_type type,
                           const char **why) {
    uint64_t counts[MOST_RANKS], start = 0;
    const uint64_t n = row_counts(s.rows, s.width, g, counts);
    const size_t size = type == HADAL_COMM_F32 ? 4 : 2;
    uint8_t *mine = values(c->rank, counts[c->rank - g.first], type);
    uint8_t *out = malloc((size_t)n * size + 1);
    EXPECT_OK(c->all_gather(c->context, g, type, mine, out, counts, PATIENT * SECOND));
    for (int i = 0; i < g.count; start += counts[i++]) {
        uint8_t *theirs = values(g.first + i, counts[i], type);
        EXPECT(memcmp(out + start * size, theirs, (size_t)counts[i] * size) == 0,
               "all_gather of %lld rows: the block of rank %d", (long long)s.rows, g.first + i);
        if (g.first + i == c->rank) { /* from where it belongs */
            memset(out, 0, (size_t)start * size);
            EXPECT_OK(c->all_gather(c->context, g, type, out + start * size, out, counts,
                                    PATIENT * SECOND));
        }
        free(theirs);
    }
    uint8_t *first = values(g.first, counts[0], type);
    EXPECT(memcmp(out, first, (size_t)counts[0] * size) == 0, "all_gather in place differs");
    free(first);
    free(mine);
    free(out);
    return true;
}

static bool try_all_reduce(const hadal_comm *c, hadal_comm_group g, shape s, hadal_comm_type type,
                           const char **why) {
    const uint64_t n = (uint64_t)s.rows * s.width;
    void *in = values(c->rank, n, type);
    float *out = malloc((size_t)n * sizeof *out + 4);
    EXPECT_OK(c->all_reduce(c->context, g, type, in, out, n, PATIENT * SECOND));
    for (uint64_t i = 0; i < n; i++)
        EXPECT(out[i] == sum_of(g, i), "all_reduce of %lld rows: element %llu is %g",
               (long long)s.rows, (unsigned long long)i, out[i]);
    if (type == HADAL_COMM_F32) {
        EXPECT_OK(c->all_reduce(c->context, g, type, in, in, n, PATIENT * SECOND));
        EXPECT(memcmp(in, out, (size_t)n * 4) == 0, "all_reduce in place differs");
    }
    free(in);
    free(out);
    return true;
}

/* ---- beside computing ------------------------------------------------------------------------ */
/* Part `i` of `n` of each rank's rows: counts and starts in elements. */
static void tile_counts(const uint64_t *whole, uint64_t width, hadal_comm_group g, uint64_t i,
                        uint64_t n, uint64_t *counts, uint64_t *starts) {
    uint64_t start = 0;
    for (int r = 0; r < g.count; start += whole[r++]) {
        const uint64_t rows = whole[r] / width, from = rows * i / n;
        counts[r] = (rows * (i + 1) / n - from) * width;
        starts[r] = start + from * width;
    }
}

/* Some ranks look after the exchange now and then, some wait for it. */
static int go_through(const hadal_comm *c) {
    int over = 0, code = HADAL_COMM_OK;
    for (int k = 0; c->rank % 2 && !code && !over && k < 1000; k++)
        code = c->advance(c->context, &over);
    return code || over ? code : c->finish(c->context);
}

enum { TILES = 3 };

static bool try_started_sums(const hadal_comm *c, hadal_comm_group g, shape s, hadal_comm_type type,
                             const char **why) {
    uint64_t whole[MOST_RANKS], counts[MOST_RANKS], starts[MOST_RANKS];
    const uint64_t n = row_counts(s.rows, s.width, g, whole);
    const int self = c->rank - g.first;
    void *in = values(c->rank, n, type);
    float *out = malloc((size_t)n * sizeof *out + 4);
    for (uint64_t t = 0; t < TILES; t++) {
        tile_counts(whole, s.width, g, t, TILES, counts, starts);
        EXPECT_OK(c->start(c->context, HADAL_COMM_REDUCE_SCATTER, g, type, in, out + starts[self],
                           counts, starts, PATIENT * SECOND));
        EXPECT_OK(go_through(c));
        for (uint64_t i = starts[self]; i < starts[self] + counts[self]; i++)
            EXPECT(out[i] == sum_of(g, i), "a tile of %lld rows: sum %llu is %g", (long long)s.rows,
                   (unsigned long long)i, out[i]);
    }
    free(in);
    free(out);
    return true;
}

static bool try_started_gather(const hadal_comm *c, hadal_comm_group g, shape s,
                               hadal_comm_type type, const char **why) {
    uint64_t whole[MOST_RANKS], counts[MOST_RANKS], starts[MOST_RANKS], at = 0;
    const uint64_t n = row_counts(s.rows, s.width, g, whole);
    const size_t size = type == HADAL_COMM_F32 ? 4 : 2;
    const int self = c->rank - g.first;
    for (int r = 0; r < self; r++)
        at += whole[r];
    uint8_t *mine = values(c->rank, whole[self], type), *out = calloc((size_t)n + 1, size);
    for (uint64_t t = 0; t < TILES; t++) {
        tile_counts(whole, s.width, g, t, TILES, counts, starts);
        EXPECT_OK(c->start(c->context, HADAL_COMM_ALL_GATHER, g, type,
                           mine + (starts[self] - at) * size, out, counts, starts,
                           PATIENT * SECOND));
        EXPECT_OK(go_through(c));
    }
    at = 0;
    for (int r = 0; r < g.count; at += whole[r++]) {
        uint8_t *theirs = values(g.first + r, whole[r], type);
        EXPECT(memcmp(out + at * size, theirs, (size_t)whole[r] * size) == 0,
               "tiles of %lld rows: the block of rank %d", (long long)s.rows, g.first + r);
        free(theirs);
    }
    free(mine);
    free(out);
    return true;
}

/* Ranks that start an exchange meet ranks that make it at once. */
static bool try_one_each(const hadal_comm *c, hadal_comm_group g, const char **why) {
    uint64_t counts[MOST_RANKS], starts[MOST_RANKS];
    const uint64_t n = row_counts(7, 33, g, counts);
    tile_counts(counts, 33, g, 0, 1, counts, starts);
    const int self = c->rank - g.first;
    void *in = values(c->rank, n, HADAL_COMM_F32);
    float *out = malloc((size_t)n * sizeof *out + 4);
    int over = 0;
    if (self % 2) {
        EXPECT_OK(
            c->reduce_scatter(c->context, g, HADAL_COMM_F32, in, out, counts, PATIENT * SECOND));
    } else {
        EXPECT_OK(c->start(c->context, HADAL_COMM_REDUCE_SCATTER, g, HADAL_COMM_F32, in, out,
                           counts, starts, PATIENT * SECOND));
        EXPECT_OK(c->finish(c->context));
    }
    for (uint64_t i = 0; i < counts[self]; i++)
        EXPECT(out[i] == sum_of(g, starts[self] + i), "sum %llu", (unsigned long long)i);
    EXPECT_OK(c->advance(c->context, &over));
    EXPECT(over == 1, "none is under way, and none is over");
    EXPECT_OK(c->finish(c->context));
    free(in);
    free(out);
    return true;
}

static bool started(const hadal_comm *c, const char **why) {
    static const hadal_comm_type types[] = {HADAL_COMM_F32, HADAL_COMM_BF16};
    const int first = c->rank / 2 * 2;
    const hadal_comm_group groups[] = {
        {0, c->size}, {c->rank, 1}, {first, c->size - first < 2 ? 1 : 2}};
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < SHAPES * 2; k++)
            if (!try_started_sums(c, groups[i], shapes[k / 2], types[k % 2], why) ||
                !try_started_gather(c, groups[i], shapes[k / 2], types[k % 2], why))
                return false;
        if (!try_one_each(c, groups[i], why)) return false;
    }
    return true;
}

static bool try_all(const hadal_comm *c, hadal_comm_group g, const char **why) {
    static const hadal_comm_type types[] = {HADAL_COMM_F32, HADAL_COMM_BF16};
    for (int k = 0; k < SHAPES; k++)
        for (int t = 0; t < 2; t++)
            if (!try_reduce_scatter(c, g, shapes[k], types[t], why) ||
                !try_all_gather(c, g, shapes[k], types[t], why) ||
                !try_all_reduce(c, g, shapes[k], types[t], why))
                return false;
    return true;
}

static bool collectives(const hadal_comm *c, const char **why) {
    return try_all(c, (hadal_comm_group){0, c->size}, why);
}

/* Each rank by itself, then neighbours in pairs: groups that do not know of each other. */
static bool groups(const hadal_comm *c, const char **why) {
    const int first = c->rank / 2 * 2, count = c->size - first < 2 ? 1 : 2;
    return try_all(c, (hadal_comm_group){c->rank, 1}, why) &&
           try_all(c, (hadal_comm_group){first, count}, why);
}

static bool is_ring_message(const uint8_t *data, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        if (data[i] != (uint8_t)(i * 7 % 251)) return false;
    return true;
}

/* Round the ring, through all ranks; more than one message holds. */
static bool ring(const hadal_comm *c, const char **why) {
    const uint64_t n = LONG_MESSAGE;
    const int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    uint8_t *data = malloc(n);
    for (uint64_t i = 0; i < n; i++)
        data[i] = c->rank == 0 ? (uint8_t)(i * 7 % 251) : 0;
    if (c->rank == 0 && c->size > 1) {
        EXPECT_OK(c->send(c->context, next, data, n, PATIENT * SECOND));
        memset(data, 0, n);
    }
    if (c->size > 1) EXPECT_OK(c->recv(c->context, before, data, n, PATIENT * SECOND));
    EXPECT(is_ring_message(data, n), "the message is not what rank 0 has sent");
    if (c->rank > 0) EXPECT_OK(c->send(c->context, next, data, n, PATIENT * SECOND));
    free(data);
    return true;
}

/* ---- what is counted ------------------------------------------------------------------------- */
static bool counters(const hadal_comm *c, const char **why) {
    enum { ROWS = 7, WIDTH = 33, N = ROWS * WIDTH, MANY = 5000 };
    const hadal_comm_group g = {0, c->size};
    const uint64_t others = (uint64_t)c->size - 1;
    uint64_t counts[MOST_RANKS];
    hadal_comm_traffic before[HADAL_COMM_EXCHANGE_COUNT], t[HADAL_COMM_EXCHANGE_COUNT];
    static const uint8_t zeros[MANY * 4];
    float *out = malloc(MANY * 4);
    row_counts(ROWS, WIDTH, g, counts);
    c->count(c->context, before);
    EXPECT_OK(c->reduce_scatter(c->context, g, HADAL_COMM_F32, zeros, out, counts, SECOND * 9));
    EXPECT_OK(c->all_gather(c->context, g, HADAL_COMM_BF16, zeros, out, counts, SECOND * 9));
    EXPECT_OK(c->all_reduce(c->context, g, HADAL_COMM_F32, zeros, out, 10, SECOND * 9));
    c->count(c->context, t);
    const uint64_t own = counts[c->rank];
    const hadal_comm_traffic *rs = &t[HADAL_COMM_REDUCE_SCATTER], *ag = &t[HADAL_COMM_ALL_GATHER];
    const hadal_comm_traffic *ar = &t[HADAL_COMM_ALL_REDUCE];
    EXPECT(rs->calls - before[HADAL_COMM_REDUCE_SCATTER].calls == 1, "reduce_scatter: calls");
    EXPECT(rs->sent - before[HADAL_COMM_REDUCE_SCATTER].sent == 4 * (N - own), "sent: %llu",
           (unsigned long long)rs->sent);
    EXPECT(rs->received - before[HADAL_COMM_REDUCE_SCATTER].received == 4 * others * own,
           "received: %llu", (unsigned long long)rs->received);
    EXPECT(ag->sent - before[HADAL_COMM_ALL_GATHER].sent == 2 * others * own, "all_gather: sent");
    EXPECT(ag->received - before[HADAL_COMM_ALL_GATHER].received == 2 * (N - own),
           "all_gather: received");
    const uint64_t direct = ar->sent - before[HADAL_COMM_ALL_REDUCE].sent;
    EXPECT(direct == 4 * others * 10, "all_reduce: sent");
    /* beyond hadal_comm_is_direct: this rank's part of the sums, and the parts of the others */
    EXPECT_OK(c->all_reduce(c->context, g, HADAL_COMM_F32, zeros, out, MANY, SECOND * 9));
    const uint64_t part = (uint64_t)(hadal_comm_first_row(MANY, c->rank + 1, c->size) -
                                     hadal_comm_first_row(MANY, c->rank, c->size));
    c->count(c->context, t);
    EXPECT(ar->calls - before[HADAL_COMM_ALL_REDUCE].calls == 2, "all_reduce: calls");
    EXPECT(ar->sent - before[HADAL_COMM_ALL_REDUCE].sent - direct ==
               4 * (MANY - part) + 4 * others * part,
           "all_reduce in parts: sent %llu", (unsigned long long)ar->sent);
    free(out);
    return true;
}

/* ---- ranks that are late, stall, leave, or do something else --------------------------------- */
static int sum_one(const hadal_comm *c, int64_t timeout_ns) {
    float x = 1, y = 0;
    return c->all_reduce(c->context, (hadal_comm_group){0, c->size}, HADAL_COMM_F32, &x, &y, 1,
                         timeout_ns);
}

static bool late(const hadal_comm *c, const char **why) {
    for (int i = 0; i < c->size; i++) {
        if (c->rank == i) sleep_ms(60);
        EXPECT_OK(sum_one(c, PATIENT * SECOND));
    }
    return true;
}

/* All that follow an error give it back at once. */
static bool stays_broken(const hadal_comm *c, int code, const char **why) {
    float x[4] = {0};
    uint64_t counts[MOST_RANKS] = {1};
    const hadal_comm_group g = {0, c->size};
    const int64_t begun = hd_nanoseconds();
    EXPECT(c->message(c->context)[0] != '\0', "there is no message");
    EXPECT(sum_one(c, SECOND) == code, "all_reduce after an error");
    EXPECT(c->reduce_scatter(c->context, g, HADAL_COMM_F32, x, x, counts, SECOND) == code,
           "reduce_scatter after an error");
    EXPECT(c->all_gather(c->context, g, HADAL_COMM_F32, x, x, counts, SECOND) == code,
           "all_gather after an error");
    EXPECT(c->send(c->context, (c->rank + 1) % c->size, x, 4, SECOND) == code,
           "send after an error");
    EXPECT(c->recv(c->context, (c->rank + 1) % c->size, x, 4, SECOND) == code,
           "recv after an error");
    EXPECT(c->start(c->context, HADAL_COMM_ALL_GATHER, g, HADAL_COMM_F32, x, x, counts, counts,
                    SECOND) == code,
           "start after an error");
    EXPECT(hd_nanoseconds() - begun < SECOND / 2, "calls after an error wait");
    return true;
}

/* Rank 1 sleeps for longer than the others wait: they give up in time, and it learns of it. */
static bool stall(const hadal_comm *c, const char **why) {
    enum { LIMIT_MS = 300, SLEEP_MS = 2000 };
    EXPECT_OK(sum_one(c, PATIENT * SECOND));
    if (c->rank == 1) sleep_ms(SLEEP_MS);
    const int64_t begun = hd_nanoseconds();
    const int code = sum_one(c, LIMIT_MS * SECOND / 1000);
    const int64_t took = hd_nanoseconds() - begun;
    /* it has not heard from the others, which have answered all the same before they gave up */
    if (c->rank == 1) {
        EXPECT(code == HADAL_COMM_OK || code == HADAL_COMM_LOST || code == HADAL_COMM_TIMEOUT,
               "the stalled rank: code %d", code);
        const int next = code ? code : sum_one(c, LIMIT_MS * SECOND / 1000);
        EXPECT(next == HADAL_COMM_LOST || next == HADAL_COMM_TIMEOUT,
               "the stalled rank goes on: code %d", next);
        return stays_broken(c, next, why);
    }
    EXPECT(code == HADAL_COMM_TIMEOUT || code == HADAL_COMM_LOST, "code %d", code);
    EXPECT(took < SLEEP_MS * SECOND / 1000 - SECOND / 4, "gave up after %.3f s",
           (double)took / 1e9);
    return stays_broken(c, code, why);
}

/* Rank 0 sums another number of elements than the rest. */
static bool mismatch(const hadal_comm *c, const char **why) {
    float x[2] = {1, 2}, y[2];
    const int code = c->all_reduce(c->context, (hadal_comm_group){0, c->size}, HADAL_COMM_F32, x, y,
                                   c->rank == 0 ? 2 : 1, PATIENT * SECOND);
    /* ranks that meet only ranks of their kind first learn of it from those that do not */
    EXPECT(code == HADAL_COMM_MISMATCH || code == HADAL_COMM_LOST, "code %d", code);
    return stays_broken(c, code, why);
}

/* Rank 0 gathers what the others sum. */
static bool other_collective(const hadal_comm *c, const char **why) {
    float x[MOST_RANKS] = {0}, y[MOST_RANKS];
    uint64_t counts[MOST_RANKS];
    const hadal_comm_group g = {0, c->size};
    for (int i = 0; i < MOST_RANKS; i++)
        counts[i] = 1;
    const int code =
        c->rank == 0 ? c->all_gather(c->context, g, HADAL_COMM_F32, x, y, counts, PATIENT * SECOND)
                     : c->all_reduce(c->context, g, HADAL_COMM_F32, x, y, 1, PATIENT * SECOND);
    EXPECT(code == HADAL_COMM_MISMATCH || code == HADAL_COMM_LOST, "code %d", code);
    return stays_broken(c, code, why);
}

/* The last rank goes away; the runner closes its side. */
static bool leave(const hadal_comm *c, const char **why) {
    EXPECT_OK(sum_one(c, PATIENT * SECOND));
    if (c->rank == c->size - 1) return true;
    const int64_t begun = hd_nanoseconds();
    const int code = sum_one(c, PATIENT * SECOND);
    EXPECT(code == HADAL_COMM_LOST, "code %d", code);
    EXPECT(hd_nanoseconds() - begun < PATIENT * SECOND / 2,
           "the loss was seen only after the deadline");
    return stays_broken(c, code, why);
}

/* The sum of one element for rank 0, begun. */
static int start_one(const hadal_comm *c, int64_t timeout_ns) {
    static const float x[1] = {1};
    static _Thread_local float y[1];
    static const uint64_t counts[MOST_RANKS] = {1}, starts[MOST_RANKS];
    return c->start(c->context, HADAL_COMM_REDUCE_SCATTER, (hadal_comm_group){0, c->size},
                    HADAL_COMM_F32, x, y, counts, starts, timeout_ns);
}

/* The others go away while rank 0, which computes and looks now and then, needs it. */
static bool leave_started(const hadal_comm *c, const char **why) {
    EXPECT_OK(sum_one(c, PATIENT * SECOND));
    if (c->rank > 0) return true;
    const int64_t begun = hd_nanoseconds();
    int code = start_one(c, PATIENT * SECOND), over = 0;
    while (!code && !over) {
        sleep_ms(5);
        code = c->advance(c->context, &over);
    }
    EXPECT(code == HADAL_COMM_LOST, "code %d", code);
    EXPECT(hd_nanoseconds() - begun < PATIENT * SECOND / 2,
           "the loss was seen only after the deadline");
    EXPECT(c->finish(c->context) == code, "finish after an error");
    return stays_broken(c, code, why);
}

/* Nobody else makes the exchange: the deadline counts from its start. */
static bool stall_started(const hadal_comm *c, const char **why) {
    enum { LIMIT_MS = 300, SLEEP_MS = 1500 };
    EXPECT_OK(sum_one(c, PATIENT * SECOND));
    if (c->rank > 0) {
        sleep_ms(SLEEP_MS);
        const int code = sum_one(c, LIMIT_MS * SECOND / 1000);
        EXPECT(code != HADAL_COMM_OK, "an exchange with a rank that gave up");
        return stays_broken(c, code, why);
    }
    int over = 0;
    EXPECT_OK(start_one(c, LIMIT_MS * SECOND / 1000));
    EXPECT_OK(c->advance(c->context, &over));
    EXPECT(!over, "it is over without the others");
    sleep_ms(LIMIT_MS + 20);
    const int code = c->rank % 2 ? c->finish(c->context) : c->advance(c->context, &over);
    EXPECT(code == HADAL_COMM_TIMEOUT, "code %d", code);
    return stays_broken(c, code, why);
}

/* ---- arguments ------------------------------------------------------------------------------- */
/* Each is refused by all ranks alike; one a scenario, since an error is the end of a group. */
static bool rejected(const hadal_comm *c, int code, const char **why) {
    EXPECT(code == HADAL_COMM_ARGUMENT, "code %d", code);
    return stays_broken(c, code, why);
}

static bool bad_group(const hadal_comm *c, const char **why) {
    float x = 0, y;
    return rejected(c,
                    c->all_reduce(c->context, (hadal_comm_group){0, c->size + 1}, HADAL_COMM_F32,
                                  &x, &y, 1, SECOND),
                    why);
}

static bool bad_rank(const hadal_comm *c, const char **why) {
    float x = 0;
    return rejected(c, c->send(c->context, c->rank, &x, 4, SECOND), why);
}

static bool bad_type(const hadal_comm *c, const char **why) {
    float x = 0, y;
    return rejected(c,
                    c->all_reduce(c->context, (hadal_comm_group){0, c->size}, HADAL_COMM_BYTES, &x,
                                  &y, 1, SECOND),
                    why);
}

static bool bad_pointer(const hadal_comm *c, const char **why) {
    float y;
    return rejected(c,
                    c->all_reduce(c->context, (hadal_comm_group){0, c->size}, HADAL_COMM_F32, NULL,
                                  &y, 1, SECOND),
                    why);
}

static bool bad_counts(const hadal_comm *c, const char **why) {
    float x = 0, y;
    uint64_t counts[MOST_RANKS];
    for (int i = 0; i < MOST_RANKS; i++)
        counts[i] = UINT64_MAX / 2;
    return rejected(c,
                    c->all_gather(c->context, (hadal_comm_group){0, c->size}, HADAL_COMM_F32, &x,
                                  &y, counts, SECOND),
                    why);
}

/* Another exchange before the one that was started is over. */
static bool bad_second(const hadal_comm *c, const char **why) {
    EXPECT_OK(sum_one(c, PATIENT * SECOND));
    if (c->rank > 0) {
        sleep_ms(300);
        const int code = sum_one(c, PATIENT * SECOND); /* rank 0 never makes it */
        EXPECT(code == HADAL_COMM_LOST, "code %d", code);
        return stays_broken(c, code, why);
    }
    const int code = start_one(c, PATIENT * SECOND);
    if (!code) return rejected(c, sum_one(c, SECOND), why);
    EXPECT(code == HADAL_COMM_MISMATCH, "code %d",
           code); /* held up: the others are there already */
    return stays_broken(c, code, why);
}

static bool bad_start(const hadal_comm *c, const char **why) {
    static const uint64_t lists[MOST_RANKS];
    const int code = c->start(c->context, HADAL_COMM_ALL_REDUCE, (hadal_comm_group){0, c->size},
                              HADAL_COMM_F32, lists, NULL, lists, lists, SECOND);
    return rejected(c, code, why);
}

static bool bad_starts(const hadal_comm *c, const char **why) {
    static const uint64_t lists[MOST_RANKS];
    const int code = c->start(c->context, HADAL_COMM_ALL_GATHER, (hadal_comm_group){0, c->size},
                              HADAL_COMM_F32, lists, NULL, lists, NULL, SECOND);
    return rejected(c, code, why);
}

const scenario scenarios[] = {
    {"exchanges", collectives, true},
    {"groups", groups, true},
    {"ring", ring, true},
    {"started", started, true},
    {"counters", counters, true},
    {"late", late, true},
    {"stall", stall, false},
    {"mismatch", mismatch, false},
    {"other_exchange", other_collective, false},
    {"leave", leave, false},
    {"leave_started", leave_started, false},
    {"stall_started", stall_started, false},
    {"bad_group", bad_group, false},
    {"bad_rank", bad_rank, false},
    {"bad_type", bad_type, false},
    {"bad_pointer", bad_pointer, false},
    {"bad_counts", bad_counts, false},
    {"bad_second", bad_second, false},
    {"bad_start", bad_start, false},
    {"bad_starts", bad_starts, false},
};
const int n_scenarios = sizeof scenarios / sizeof *scenarios;

const scenario *find_scenario(const char *name) {
    for (int i = 0; i < n_scenarios; i++)
        if (strcmp(scenarios[i].name, name) == 0) return &scenarios[i];
    return NULL;
}
