/* A program made by hand that keeps state of every kind, for tests of the runtime. With x[t] twice
 * the token's id:
 *   k[p] of head 0 = x, of head 1 = -x       cache of two heads
 *   w[p] of head 0 = x, of head 1 = 10 x     window of three rows, two heads
 *   s              = s / 2 + x               carry
 *   out[t] = {sum of head 0 of k, sum of head 1 of k, sum of head 0 of w, sum of head 1, s}
 */
#ifndef TEST_RUNTIME_STATES_H
#define TEST_RUNTIME_STATES_H

#include "tests/unit/runtime/runtime_toy.h"

enum { KEEP_OUT = 5, KEEP_WINDOW = 3, KEEP_K = 0, KEEP_W = 1, KEEP_S = 2 };

static void k_keep(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)c0, (void)c1;
    const float *x = args[0];
    float *k = args[1], *w = args[2], *s = args[3], *out = args[4];
    for (int64_t t = r0; t < r1; t++) {
        const int64_t p = f->C - f->T + t;
        float *o = out + KEEP_OUT * t;
        k[p] = x[t];
        k[f->cap + p] = -x[t];
        w[p % KEEP_WINDOW] = x[t];
        w[KEEP_WINDOW + p % KEEP_WINDOW] = 10 * x[t];
        s[0] = s[0] / 2 + x[t];
        o[0] = o[1] = o[2] = o[3] = 0;
        for (int64_t i = 0; i <= p; i++)
            o[0] += k[i], o[1] += k[f->cap + i];
        for (int i = 0; i < KEEP_WINDOW; i++)
            o[2] += w[i], o[3] += w[KEEP_WINDOW + i];
        o[4] = s[0];
    }
}

static void k_show(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                   int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const float *from = args[0];
    float *to = args[1];
    for (int64_t i = KEEP_OUT * r0; i < KEEP_OUT * r1; i++)
        to[i] = from[i];
}

static hrt_kernel *const keep_kernels[] = {k_embed, k_keep, k_show};
static const hrt_level keep_levels[] = {
    {"plain", 0, keep_kernels, {.line = 64, .l1 = 32 << 10, .l2 = 1 << 20, .l3 = 16 << 20}}};
static const hrt_operand keep_operands[] = {
    {HRT_INPUT, 0, 0, 4, 0, 0, 0},
    {HRT_WEIGHT, 0, 64, 0, 0, 0, 0},
    ARENA(0, 4), /* 0 embed */
    ARENA(0, 4),
    {HRT_STATE, KEEP_K, 0, 0, 0, 0, 0},
    {HRT_STATE, KEEP_W, 0, 0, 0, 0, 0},
    {HRT_STATE, KEEP_S, 0, 0, 0, 0, 0},
    ARENA(8, 4 * KEEP_OUT), /* 3 keep */
    ARENA(8, 4 * KEEP_OUT),
    {HRT_OUTPUT, 0, 0, 4 * KEEP_OUT, 0, 0, 0}, /* 8 show */
};
static const hrt_step keep_steps[] = {
    STEP(0, 0, 3, NONE, ROWS, 0, 0, 1),
    STEP(1, 3, 5, NONE, NONE, 0, 1, 1),
    STEP(2, 8, 2, NONE, ROWS, 1, 0, 1),
};
static const hrt_state_info keep_states[] = {{"k", HRT_STATE_CACHE, 2, 0, 8},
                                             {"w", HRT_STATE_WINDOW, 2, KEEP_WINDOW, 8},
                                             {"s", HRT_STATE_CARRY, 1, 1, 4}};
static const hrt_tensor_info keep_outputs[] = {{"logits", "f32[T, 5]", 4 * KEEP_OUT, 0, 1}};
static const hrt_model keep_model = {
    .version = HRT_VERSION,
    .name = "keep",
    .digest = {1, 2, 3},
    .build = {4, 5, 6},
    .vocab = VOCAB,
    .chunk = CHUNK,
    .arena_per_token = 8 + 4 * KEEP_OUT,
    .weights_bytes = 128,
    .n_steps = 3,
    .n_operands = 10,
    .n_levels = 1,
    .n_states = 3,
    .n_inputs = 1,
    .n_outputs = 1,
    .n_weights = 1,
    .n_kernels = 3,
    .steps = keep_steps,
    .operands = keep_operands,
    .levels = keep_levels,
    .states = keep_states,
    .inputs = inputs,
    .outputs = keep_outputs,
    .weights = weight_infos,
    .options = "{}",
    .ops = "",
};

/* The row of the token at position `last`, after ids[0 .. last]. */
static inline void keep_expected(const int32_t *ids, int64_t last, float *row) {
    memset(row, 0, KEEP_OUT * sizeof *row);
    for (int64_t p = 0; p <= last; p++) {
        const float x = 2 * (float)ids[p];
        row[0] += x, row[1] -= x;
        if (p > last - KEEP_WINDOW) row[2] += x, row[3] += 10 * x;
        row[4] = row[4] / 2 + x;
    }
}

static inline void keep_expect(const int32_t *ids, int64_t end, int64_t rows, const float *out) {
    static const char *const of[KEEP_OUT] = {"the cache", "the cache, negated", "the window",
                                             "the window, by ten", "the carry"};
    for (int64_t r = 0; r < rows; r++) {
        float row[KEEP_OUT];
        keep_expected(ids, end - rows + r, row);
        for (int i = 0; i < KEEP_OUT; i++)
            cr_assert_float_eq(out[KEEP_OUT * r + i], row[i], 1e-3,
                               "sum of %s at position %ld, row %ld of %ld of a call: %g, not %g",
                               of[i], (long)(end - rows + r), (long)r, (long)rows,
                               out[KEEP_OUT * r + i], row[i]);
    }
}

/* n tokens more, of ids; all rows are looked at. */
static inline void keep_read(hrt_session *s, const int32_t *ids, int64_t n) {
    float out[KEEP_OUT * N], *outs[1] = {out};
    const int64_t at = hrt_session_length(s);
    cr_assert_eq(hrt_forward(s, ids + at, n, outs, n), HRT_OK, "%s", hrt_session_message(s));
    keep_expect(ids, at + n, n, out);
}

#endif
