/* The runtime of a divided model, on a program made by hand: kernels in C, ranks as threads.
 *
 *   partial[t, j] = (rank + 1) token (j + 1), j < 2      all rows, of each rank its own
 *   sums[t, j]    = the sum of partial over ranks        reduce-scatter: rows of the rank
 *   local[t, j]   = sums + position                      rows of the rank
 *   all[t, j]     = local                                gather
 *   copy[t, j]    = all
 *   mine[t, i]    = 10 copy[t, 0] + copy[t, 1] + 1000 u  units u of the rank, of 5
 *   out[t, u]     = mine                                 gather of units, last rows
 *   back[t, j]    = part of all, gathered in bf16        part, gather: the trace
 *
 * The first five, and the last gather with its copy to the trace, may go tile by tile. */
#ifndef TEST_RANKS_TOY_H
#define TEST_RANKS_TOY_H

#include <criterion/criterion.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hadal/hadal_threads.h"
#include "runtime/internal.h"
#include "tests/tools/full.h"

enum { VOCAB = 50, CHUNK = 12, UNITS = 5, MOST_RANKS = 4, MOST_TOKENS = 160, PATIENT = 20 };
#define SECOND INT64_C(1000000000)

/* Whether a combination is tried: all are, but under ThreadSanitizer, which is ten times as slow, each eighth of
 * them in the short set. */
static inline bool is_tried(uint64_t number) {
#if defined(__SANITIZE_THREAD__)
    return has_turn(number, 8);
#else
    (void)number;
    return true;
#endif
}

#define KERNEL(name)                                                                               \
    static inline void name(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,         \
                            int64_t c0, int64_t c1)
KERNEL(k_partial) {
    (void)f;
    const int32_t *ids = args[0];
    const float *rank = args[1];
    float *y = args[2];
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = c0; j < c1; j++)
            y[2 * t + j] = (rank[0] + 1) * (float)ids[t] * (float)(j + 1);
}

KERNEL(k_local) {
    (void)c0, (void)c1;
    const float *x = args[0];
    float *y = args[1];
    for (int64_t t = r0; t < r1; t++)
        for (int j = 0; j < 2; j++)
            y[2 * t + j] = x[2 * t + j] + (float)(f->C - f->T + t);
}

KERNEL(k_mine) {
    (void)f, (void)c0, (void)c1;
    const float *x = args[0], *rank = args[1];
    const int64_t local = (int64_t)rank[1]; /* units of a rank */
    float *y = args[2];
    for (int64_t t = r0; t < r1; t++)
        for (int64_t i = 0; i < local; i++)
            y[local * t + i] = 10 * x[2 * t] + x[2 * t + 1] + 1000 * (rank[0] * rank[1] + (float)i);
}

KERNEL(k_out) {
    (void)f, (void)c0, (void)c1;
    for (int64_t t = r0; t < r1; t++)
        memcpy((float *)args[1] + UNITS * t, (const float *)args[0] + UNITS * t, UNITS * 4);
}

KERNEL(k_back) {
    (void)f, (void)c0, (void)c1;
    for (int64_t t = r0; t < r1; t++)
        memcpy((float *)args[1] + 2 * t, (const float *)args[0] + 2 * t, 8);
}

KERNEL(k_copy) {
    (void)f;
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = c0; j < c1; j++)
            ((float *)args[1])[2 * t + j] = ((const float *)args[0])[2 * t + j];
}

static hrt_kernel *const kernels[] = {k_partial, k_local, k_mine, k_out, k_back, k_copy};
static const hrt_level levels[] = {{.name = "plain", .kernels = kernels}};

/* ---- the tables, for so many ranks ----------------------------------------------------------- */
typedef struct toy {
    hrt_model model;
    hrt_step steps[12];
    hrt_operand operands[32];
    hrt_collective collectives[8];
    hrt_overlap overlaps[2];
    hrt_tensor_info inputs[1], outputs[2];
    uint32_t n_operands, n_steps, n_collectives;
} toy;

/* Offsets in bytes per token: of all rows, and of a rank's. */
enum { PARTIAL = 0, ALL = 64, MINE = 128, OUT = 192, BACK = 256, COPY = 320, ARENA = 384 };
enum { SUMS = 0, LOCAL = 64, PART = 128, LOCALS = 192 };

static inline void operand(toy *t, hrt_base base, uint32_t index, uint64_t offset, uint64_t row) {
    t->operands[t->n_operands++] =
        (hrt_operand){.base = base, .index = index, .offset = offset, .row_bytes = row};
}

static inline hrt_step *step(toy *t, uint32_t kernel, uint32_t n_operands, hrt_split split) {
    hrt_step *s = &t->steps[t->n_steps++];
    *s = (hrt_step){.kernel_decode = kernel,
                    .kernel_prefill = kernel,
                    .first_operand = t->n_operands - n_operands,
                    .n_operands = n_operands,
                    .split_decode = HRT_SPLIT_NONE,
                    .split_prefill = split,
                    .grain = 1,
                    .cols = 1,
                    .name = "k"};
    return s;
}

static inline hrt_step *collective(toy *t, hrt_collective e) {
    hrt_step *s = step(t, 0, 2, HRT_SPLIT_NONE);
    t->collectives[t->n_collectives++] = e;
    s->collective = t->n_collectives;
    return s;
}

static inline void make_toy(toy *t, uint32_t ranks, int64_t divide_from) {
    memset(t, 0, sizeof *t);
    const uint64_t mine = (UNITS + ranks - 1) / ranks * 4;
    operand(t, HRT_INPUT, 0, 0, 4);
    operand(t, HRT_WEIGHT, 0, 0, 0);
    operand(t, HRT_ARENA, 0, PARTIAL, 8);
    step(t, 0, 3, HRT_SPLIT_COLS)->cols = 2;
    operand(t, HRT_ARENA, 0, PARTIAL, 8);
    operand(t, HRT_LOCAL, 0, SUMS, 8);
    collective(t, (hrt_collective){.kind = HRT_REDUCE_SCATTER, .element = 4, .row = 2});
    operand(t, HRT_LOCAL, 0, SUMS, 8);
    operand(t, HRT_LOCAL, 0, LOCAL, 8);
    hrt_step *positions = step(t, 1, 2, HRT_SPLIT_ROWS);
    positions->local = positions->by_row = 1;
    operand(t, HRT_LOCAL, 0, LOCAL, 8);
    operand(t, HRT_ARENA, 0, ALL, 8);
    collective(t, (hrt_collective){.kind = HRT_GATHER_ROWS, .element = 4, .row = 2});
    operand(t, HRT_ARENA, 0, ALL, 8);
    operand(t, HRT_ARENA, 0, COPY, 8);
    step(t, 5, 2, HRT_SPLIT_COLS)->cols = 2;
    operand(t, HRT_ARENA, 0, COPY, 8);
    operand(t, HRT_WEIGHT, 0, 0, 0);
    operand(t, HRT_ARENA, 0, MINE, mine);
    step(t, 2, 3, HRT_SPLIT_ROWS)->last_rows = 1;
    operand(t, HRT_ARENA, 0, MINE, mine);
    operand(t, HRT_ARENA, 0, OUT, 4 * UNITS);
    collective(t, (hrt_collective){.kind = HRT_GATHER_UNITS,
                                   .element = 4,
                                   .row = mine / 4,
                                   .outer = 1,
                                   .unit = 1,
                                   .groups = 1,
                                   .units = UNITS})
        ->last_rows = 1;
    operand(t, HRT_ARENA, 0, OUT, 4 * UNITS);
    operand(t, HRT_OUTPUT, 0, 0, 4 * UNITS);
    step(t, 3, 2, HRT_SPLIT_ROWS)->last_rows = 1;
    operand(t, HRT_ARENA, 0, ALL, 8);
    operand(t, HRT_LOCAL, 0, PART, 8);
    collective(t, (hrt_collective){.kind = HRT_PART_ROWS, .element = 4, .row = 2});
    operand(t, HRT_LOCAL, 0, PART, 8);
    operand(t, HRT_ARENA, 0, BACK, 8);
    collective(t, (hrt_collective){.kind = HRT_GATHER_ROWS, .narrow = 1, .element = 4, .row = 2});
    operand(t, HRT_ARENA, 0, BACK, 8);
    operand(t, HRT_OUTPUT, 1, 0, 8);
    step(t, 4, 2, HRT_SPLIT_ROWS);
    t->overlaps[0] = (hrt_overlap){0, 1, 2, 3, 4, 5};
    t->overlaps[1] = (hrt_overlap){9, 9, 9, 9, 10, 11};
    t->inputs[0] = (hrt_tensor_info){"tokens", "i32[T]", 4, 0, 1};
    t->outputs[0] = (hrt_tensor_info){"logits", "f32[T, 5]", 4 * UNITS, 0, 1};
    t->outputs[1] = (hrt_tensor_info){"back", "f32[T, 2]", 8, 0, 1};
    t->model = (hrt_model){.version = HRT_VERSION,
                           .name = "toy",
                           .digest = {1, 2, 3},
                           .vocab = VOCAB,
                           .chunk = CHUNK,
                           .arena_per_token = ARENA,
                           .local_per_token = LOCALS,
                           .weights_bytes = 64,
                           .n_steps = t->n_steps,
                           .n_operands = t->n_operands,
                           .n_levels = 1,
                           .n_inputs = 1,
                           .n_outputs = 2,
                           .n_kernels = 6,
                           .steps = t->steps,
                           .operands = t->operands,
                           .levels = levels,
                           .inputs = t->inputs,
                           .outputs = t->outputs,
                           .options = "{}",
                           .ops = "",
                           .ranks = ranks,
                           .stages = 1,
                           .n_collectives = t->n_collectives,
                           .divide_from = divide_from,
                           .collectives = t->collectives,
                           .n_overlaps = 2,
                           .tiles = 1,
                           .overlaps = t->overlaps};
}

/* ---- ranks as threads ------------------------------------------------------------------------ */
typedef struct weights_file {
    _Alignas(64) unsigned char at[HRT_WEIGHTS_DATA + 64];
} weights_file;

typedef struct rank rank;
struct rank {
    toy *t;
    hadal_threads *group;
    int32_t number;
    void (*body)(rank *r);
    weights_file file;
    hrt_weights *weights;
    hrt_session *session;
    void *memory;
    int init_code;
    int64_t max_tokens, timeout_ns;
    int threads;
    const char *why; /* what was wrong */
    char text[160];
};

#define EXPECT(r, condition, ...)                                                                  \
    do {                                                                                           \
        if (condition) break;                                                                      \
        snprintf((r)->text, sizeof(r)->text, __VA_ARGS__);                                         \
        (r)->why = (r)->text;                                                                      \
        return;                                                                                    \
    } while (0)

static inline void open_weights(rank *r, uint32_t share) {
    const uint32_t ranks = r->t->model.ranks;
    hrt_weights_header h = {.version = HRT_VERSION,
                            .rank = share,
                            .digest = {1, 2, 3},
                            .data_offset = HRT_WEIGHTS_DATA,
                            .data_bytes = 64,
                            .set = {7}};
    const float numbers[2] = {(float)share, (float)((UNITS + ranks - 1) / ranks)};
    memcpy(h.magic, HRT_WEIGHTS_MAGIC, 8);
    memset(&r->file, 0, sizeof r->file);
    memcpy(r->file.at, &h, sizeof h);
    memcpy(r->file.at + HRT_WEIGHTS_DATA, numbers, sizeof numbers);
    if (r->weights) hrt_weights_close(r->weights);
    r->weights = NULL;
    (void)hrt_weights_from_memory(&r->t->model, &r->file, sizeof r->file, &r->weights);
}

/* With workspace for a few threads more than there are CPUs. */
static inline size_t session_bytes(const rank *r) {
    return hrt_session_size(&r->t->model, r->max_tokens) + 8 * 4096;
}

static inline void open_session(rank *r) {
    const size_t size = session_bytes(r);
    r->memory = aligned_alloc(64, size);
    memset(r->memory, 0xff, size); /* nothing may count on zeros */
    r->init_code =
        hrt_session_init_on(&r->t->model, r->memory, size, r->weights, r->max_tokens,
                            hadal_threads_comm(r->group, r->number), r->timeout_ns, &r->session);
    if (r->init_code || r->threads == 1) return;
    (void)hrt_session_set_threads(r->session, r->threads);
    r->session->processors = HRT_MAX_THREADS;
}

static inline void *run_rank(void *argument) {
    rank *r = argument;
    r->body(r);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

/* Stages stand one behind the other. */
static inline void run_ranks(toy *stages, int threads, void (*body)(rank *r)) {
    static rank all[MOST_RANKS];
    const int32_t each = (int32_t)stages->model.ranks, n = each * (int32_t)stages->model.stages;
    hadal_threads *group;
    pthread_t started[MOST_RANKS];
    cr_assert_eq(hadal_threads_open(n, &group), HADAL_COMM_OK);
    for (int32_t i = 0; i < n; i++) {
        all[i] = (rank){.t = &stages[i / each],
                        .group = group,
                        .number = i,
                        .body = body,
                        .max_tokens = MOST_TOKENS,
                        .timeout_ns = PATIENT * SECOND,
                        .threads = threads};
        open_weights(&all[i], (uint32_t)(i % each));
        cr_assert_eq(pthread_create(&started[i], NULL, run_rank, &all[i]), 0);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    for (int32_t i = 0; i < n; i++) {
        cr_expect_null(all[i].why, "rank %d of %d: %s", i, n, all[i].why);
        hrt_weights_close(all[i].weights);
        free(all[i].memory);
    }
    hadal_threads_close(group);
}

/* ---- results --------------------------------------------------------------------------------- */
static inline int32_t token(int64_t position) {
    return (int32_t)((position * 7 + 3) % VOCAB);
}

static inline float gathered(const rank *r, int64_t position, int j) {
    const float ranks = (float)r->t->model.ranks;
    return ranks * (ranks + 1) / 2 * (float)token(position) * (float)(j + 1) + (float)position;
}

static inline float rounded(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* One call of n tokens behind those there are, with the last `rows` rows. */
static inline void check_call(rank *r, int64_t n, int64_t rows) {
    int32_t ids[MOST_TOKENS];
    float out[MOST_TOKENS * UNITS], back[MOST_TOKENS * 2];
    const int64_t start = hrt_session_length(r->session);
    float *const outs[2] = {out, back};
    for (int64_t i = 0; i < n; i++)
        ids[i] = token(start + i);
    const int code = hrt_forward(r->session, ids, n, outs, rows);
    EXPECT(r, code == HRT_OK, "%ld tokens: code %d: %s", (long)n, code,
           hrt_session_message(r->session));
    for (int64_t k = 0; k < rows; k++)
        for (int u = 0; u < UNITS; u++) {
            const int64_t p = start + n - rows + k;
            const float want = 10 * gathered(r, p, 0) + gathered(r, p, 1) + 1000 * (float)u;
            EXPECT(r, out[k * UNITS + u] == want, "%ld tokens from %ld: row %ld, unit %d: %g",
                   (long)n, (long)start, (long)k, u, out[k * UNITS + u]);
        }
    for (int64_t i = 0; i < n; i++) {
        const int64_t chunk = i / CHUNK == n / CHUNK ? n % CHUNK : CHUNK;
        const bool divided = chunk >= r->t->model.divide_from; /* or nothing crosses */
        for (int j = 0; j < 2; j++) {
            const float x = gathered(r, start + i, j), want = divided ? rounded(x) : x;
            EXPECT(r, back[2 * i + j] == want, "%ld tokens from %ld: trace %ld: %g", (long)n,
                   (long)start, (long)i, back[2 * i + j]);
        }
    }
}

#endif
