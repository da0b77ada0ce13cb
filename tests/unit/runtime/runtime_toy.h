/* A program made by hand for tests of the runtime: kernels in C, tables as
 * codegen/module/describe.c would write them. */
#ifndef TEST_RUNTIME_TOY_H
#define TEST_RUNTIME_TOY_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/internal.h"

/* ---- the program --------------------------------------------------------------------------------
 *   a[t]    = weight * token[t]                            rows
 *   k[p]    = a[t] at position p                           rows, into the state
 *   s[t]    = sum of k over positions <= that of t         cyclic
 *   c[t, j] = s[t] + j, j < 5                              cols
 *   f       = 10                                           none, without T
 *   out[t]  = {sum_j c[t, j] + f, position}                rows, only the last asked for
 *   all[t]  = s[t]                                         rows, a trace
 */
enum { VOCAB = 50, CHUNK = 8, COLS = 5, GRAIN = 3, TOY_THREADS = 20 };

static void k_embed(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const int32_t *ids = args[0];
    const float *weight = args[1];
    float *a = args[2];
    for (int64_t t = r0; t < r1; t++)
        a[t] = weight[1] * (float)ids[t];
}

static void k_append(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
    (void)c0, (void)c1;
    const float *a = args[0];
    float *state = args[1];
    for (int64_t t = r0; t < r1; t++)
        state[f->C - f->T + t] = a[t];
}

static void k_sum(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                  int64_t c1) {
    (void)c0, (void)c1;
    const float *state = args[0];
    float *s = args[1];
    for (int64_t t = r0; t < r1; t++) {
        s[t] = 0;
        for (int64_t p = 0; p <= f->C - f->T + t; p++)
            s[t] += state[p];
    }
}

static void k_cols(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    const float *s = args[0];
    float *c = args[1], *mine = f->scratch;
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = c0; j < c1; j++) {
            mine[j] = s[t] + (float)j;
            c[t * COLS + j] = mine[j];
        }
}

static void k_fixed(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                    int64_t c1) {
    (void)f, (void)r0, (void)r1, (void)c0, (void)c1;
    ((float *)args[0])[0] = 10;
}

static void k_out(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                  int64_t c1) {
    (void)c0, (void)c1;
    const float *c = args[0], *fixed = args[1];
    float *out = args[2];
    for (int64_t t = r0; t < r1; t++) {
        out[2 * t] = fixed[0];
        for (int j = 0; j < COLS; j++)
            out[2 * t] += c[t * COLS + j];
        out[2 * t + 1] = (float)(f->C - f->T + t);
    }
}

static void k_copy(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)f, (void)c0, (void)c1;
    for (int64_t t = r0; t < r1; t++)
        ((float *)args[1])[t] = ((const float *)args[0])[t];
}

static hrt_kernel *const kernels[] = {k_embed, k_append, k_sum, k_cols, k_fixed, k_out, k_copy};
static const hrt_level levels[] = {
    {.name = "impossible", .features = UINT64_C(1) << 63, .kernels = kernels},
    {.name = "plain", .kernels = kernels},
};

/* offset in the arena and size of a row, both in bytes per token */
#define ARENA(offset, row)                                                                         \
    { HRT_ARENA, 0, offset, row, 0, 0, 0 }
#define FIXED                                                                                      \
    { HRT_FIXED, 0, 64, 0, 0, 0, 0 }
#define STATE                                                                                      \
    { HRT_STATE, 1, 0, 0, 0, 0, 0 }
static const hrt_operand operands[] = {
    {HRT_INPUT, 0, 0, 4, 0, 0, 0},
    {HRT_WEIGHT, 0, 64, 0, 0, 0, 0},
    ARENA(0, 4), /* 0 embed */
    ARENA(0, 4),
    STATE, /* 3 append */
    STATE,
    ARENA(4, 4), /* 5 sum */
    ARENA(4, 4),
    ARENA(8, 4 * COLS), /* 7 cols */
    FIXED,              /* 9 fixed */
    ARENA(8, 4 * COLS),
    FIXED,
    {HRT_OUTPUT, 0, 0, 8, 0, 0, 0}, /* 10 out */
    ARENA(4, 4),
    {HRT_OUTPUT, 1, 0, 4, 0, 0, 0}, /* 13 copy */
};
#define STEP(k, first, n, one, many, last, row, columns)                                           \
    {                                                                                              \
        .kernel_decode = k, .kernel_prefill = k, .first_operand = first, .n_operands = n,          \
        .split_decode = HRT_SPLIT_##one, .split_prefill = HRT_SPLIT_##many, .grain = GRAIN,        \
        .last_rows = last, .by_row = row, .cols = columns, .name = #k                              \
    }
static const hrt_step steps[] = {
    STEP(0, 0, 3, NONE, ROWS, 0, 0, 1),    STEP(1, 3, 2, NONE, ROWS, 0, 1, 1),
    STEP(4, 9, 1, NONE, NONE, 0, 0, 1),    STEP(2, 5, 2, COLS, CYCLIC, 0, 1, 1),
    STEP(3, 7, 2, COLS, COLS, 0, 0, COLS), STEP(5, 10, 3, ROWS, ROWS, 1, 1, 1),
    STEP(6, 13, 2, NONE, ROWS, 0, 0, 1),
};
static const hrt_state_info states[] = {{"unused", HRT_STATE_CACHE, 1, 0, 12},
                                        {"k", HRT_STATE_CACHE, 1, 0, 4}};
static const hrt_tensor_info inputs[] = {{"tokens", "i32[T]", 4, 0, 1}};
static const hrt_tensor_info outputs[] = {{"logits", "f32[T, 2]", 8, 0, 1},
                                          {"all", "f32[T]", 4, 0, 1}};
static const hrt_tensor_info weight_infos[] = {{"w", "f32[2]", 8, 64, 0}};

#define MODEL(level_table, count)                                                                  \
    {                                                                                              \
        .version = HRT_VERSION, .name = "toy", .digest = {1, 2, 3}, .vocab = VOCAB,                \
        .chunk = CHUNK, .arena_per_token = 4 * (2 + COLS), .fixed_bytes = 128,                     \
        .scratch_bytes = 4 * COLS, .weights_bytes = 128, .n_steps = 7, .n_operands = 15,           \
        .n_levels = count, .n_states = 2, .n_inputs = 1, .n_outputs = 2, .n_weights = 1,           \
        .n_kernels = 7, .steps = steps, .operands = operands, .levels = level_table,               \
        .states = states, .inputs = inputs, .outputs = outputs, .weights = weight_infos,           \
        .options = "{}", .ops = ""                                                                 \
    }
static const hrt_model model = MODEL(levels, 2);

/* ---- helpers --------------------------------------------------------------------------------- */
typedef struct weights_file {
    _Alignas(64) unsigned char at[HRT_WEIGHTS_DATA + 128];
} weights_file;

static inline void fill_weights(weights_file *f) {
    memset(f, 0, sizeof *f);
    hrt_weights_header h = {.magic = HRT_WEIGHTS_MAGIC,
                            .version = HRT_VERSION,
                            .digest = {1, 2, 3},
                            .data_offset = HRT_WEIGHTS_DATA,
                            .data_bytes = 128};
    memcpy(h.magic, HRT_WEIGHTS_MAGIC, 8);
    memcpy(f->at, &h, sizeof h);
    float two[2] = {0, 2};
    memcpy(f->at + HRT_WEIGHTS_DATA + 64, two, sizeof two);
}

static weights_file file_bytes;

static inline hrt_weights *toy_weights(const hrt_model *m) {
    hrt_weights *w = NULL;
    fill_weights(&file_bytes);
    cr_assert_eq(hrt_weights_from_memory(m, &file_bytes, sizeof file_bytes, &w), HRT_OK);
    return w;
}

/* Filled with 0xff (NaNs): nothing may count on zeros. */
static inline hrt_session *open_session(const hrt_model *m, const hrt_weights *w,
                                        int64_t max_tokens) {
    size_t size = hrt_session_size(m, max_tokens);
    cr_assert_gt(size, 0);
    size += TOY_THREADS * 4096; /* workspace for that many threads */
    void *mem = aligned_alloc(64, size);
    memset(mem, 0xff, size);
    hrt_session *s = NULL;
    cr_assert_eq(hrt_session_init(m, mem, size, w, max_tokens, &s), HRT_OK);
    cr_assert_eq((void *)s, mem, "the session stands at the start of its memory");
    return s;
}

/* That many threads run, however few CPUs this machine has. */
static inline void use_threads(hrt_session *s, int threads) {
    cr_assert_eq(hrt_session_set_threads(s, threads), HRT_OK);
    s->processors = HRT_MAX_THREADS;
}

static inline float prefix_sum(const int32_t *ids, int64_t last) {
    float sum = 0;
    for (int64_t i = 0; i <= last; i++)
        sum += 2 * (float)ids[i];
    return sum;
}

static inline void expect_rows(const int32_t *ids, int64_t end, int64_t rows, const float *out) {
    for (int64_t r = 0; r < rows; r++) {
        int64_t p = end - rows + r;
        cr_assert_float_eq(out[2 * r], COLS * prefix_sum(ids, p) + 10 + 10, 1e-3,
                           "row %ld of %ld: %g", (long)r, (long)rows, out[2 * r]);
        cr_assert_eq(out[2 * r + 1], (float)p);
    }
}

enum { N = 40 };
static inline void fill_ids(int32_t *ids) {
    for (int i = 0; i < N; i++)
        ids[i] = (i * 7 + 3) % VOCAB;
}

#endif
