/* A model with gradients made by hand: kernels in C, tables as codegen/module/describe.c would
 * write them. All numbers are small and whole, so that sums are exact in any order. With the
 * parameters e [WORDS] and w [COLUMNS, WORDS], of which v is the transpose, packed,
 *
 *   x[t]       = e[token t]                                rows
 *   y[t, j]    = sum_k x[t] v[j, k]          \             cols
 *   losses[t]  = y[t, target t], or 0        | of tiles    rows
 *   d[t, j]    = [j = target t]              |             the same kernel
 *   dw[k, j]  += sum_t x[t] d[t, j]          |             channels
 *   dx[t]      = sum_jk d[t, j] v[j, k]      /             rows
 *   de[i]     += sum_t dx[t] [token t = i]                 channels
 *   loss       = sum_t losses[t] + s                       one thread
 *   s          = 1000, a carry: 0 again where the next sequence begins
 */
#ifndef TEST_TRAINER_TOY_H
#define TEST_TRAINER_TOY_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tools/muon_products.h"
#include "tests/unit/runtime/runtime_toy.h"

enum { WORDS = 7, COLUMNS = 3, LONGEST = 40, E_BYTES = 64, W_BYTES = 128 };

static inline void t_look_up(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                             int64_t c0, int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const int32_t *tokens = args[0];
    const float *e = args[1];
    for (int64_t t = r0; t < r1; t++)
        ((float *)args[2])[t] = e[tokens[t]];
}

static inline void t_logits(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                            int64_t c0, int64_t c1) {
    const float *x = args[0], *v = args[1];
    float *y = args[2], *mine = f->scratch;
    for (int64_t t = r0; t < r1; t++)
        for (int64_t j = c0; j < c1; j++) {
            mine[j] = 0;
            for (int k = 0; k < COLUMNS; k++)
                mine[j] += x[t] * v[j * COLUMNS + k];
            y[t * WORDS + j] = mine[j];
        }
}

static inline void t_losses(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                            int64_t c0, int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const float *y = args[0];
    const int32_t *targets = args[1];
    float *losses = args[2], *d = args[3];
    for (int64_t t = r0; t < r1; t++) {
        losses[t] = targets[t] < 0 ? 0 : y[t * WORDS + targets[t]];
        for (int32_t j = 0; j < WORDS; j++)
            d[t * WORDS + j] = j == targets[t];
    }
}

static inline void t_grad_w(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                            int64_t c0, int64_t c1) {
    (void)f;
    const float *x = args[0], *d = args[1];
    float *dw = args[2];
    for (int64_t j = c0; j < c1; j++)
        for (int64_t t = r0; t < r1; t++)
            for (int k = 0; k < COLUMNS; k++)
                dw[k * WORDS + j] += x[t] * d[t * WORDS + j];
}

static inline void t_grad_x(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                            int64_t c0, int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const float *d = args[0], *v = args[1];
    float *dx = args[2];
    for (int64_t t = r0; t < r1; t++) {
        dx[t] = 0;
        for (int j = 0; j < WORDS; j++)
            for (int k = 0; k < COLUMNS; k++)
                dx[t] += d[t * WORDS + j] * v[j * COLUMNS + k];
    }
}

static inline void t_grad_e(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                            int64_t c0, int64_t c1) {
    (void)f;
    const float *dx = args[0];
    const int32_t *tokens = args[1];
    float *de = args[2];
    for (int64_t t = r0; t < r1; t++)
        if (tokens[t] >= c0 && tokens[t] < c1) de[tokens[t]] += dx[t];
}

static inline void t_sum(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                         int64_t c1) {
    (void)f, (void)c0, (void)c1;
    float *loss = args[1], *carry = args[2];
    *loss = *carry;
    for (int64_t t = r0; t < r1; t++)
        *loss += ((const float *)args[0])[t];
    *carry = 1000;
}

static hrt_kernel *const t_kernels[] = {t_look_up, t_logits, t_losses, t_grad_w,
                                        t_grad_x,  t_grad_e, t_sum,    muon_products};
static const hrt_level t_levels[] = {{.name = "plain", .kernels = t_kernels}};

/* Rows of logits lie in the area of tiles, or in the arena behind x, losses and dx. */
#define ROWS_OF(place, offset)                                                                     \
    { HRT_##place, 0, offset, 4 * WORDS, 0, 0, 0 }
#define WEIGHT_AT(offset)                                                                          \
    { HRT_WEIGHT, 0, offset, 0, 0, 0, 0 }
#define IDS(input)                                                                                 \
    { HRT_INPUT, input, 0, 4, 0, 0, 0 }
#define GRADIENT_OF(output)                                                                        \
    { HRT_OUTPUT, output, 0, 0, 0, 0, 0 }
#define CARRY                                                                                      \
    { HRT_STATE, 0, 0, 0, 0, 0, 0 }
#define OPERANDS_WITH(y, d)                                                                        \
    {                                                                                              \
        IDS(0), WEIGHT_AT(0), ARENA(0, 4),                /* 0 look_up */                          \
            ARENA(0, 4), WEIGHT_AT(E_BYTES + W_BYTES), y, /* 3 logits */                           \
            y, IDS(1), ARENA(4, 4), d,                    /* 6 losses */                           \
            ARENA(0, 4), d, GRADIENT_OF(2),               /* 10 grad_w */                          \
            d, WEIGHT_AT(E_BYTES + W_BYTES), ARENA(8, 4), /* 13 grad_x */                          \
            ARENA(8, 4), IDS(0), GRADIENT_OF(1),          /* 16 grad_e */                          \
            ARENA(4, 4), GRADIENT_OF(0), CARRY,           /* 19 sum */                             \
    }
static const hrt_operand whole_operands[] =
    OPERANDS_WITH(ROWS_OF(ARENA, 12), ROWS_OF(ARENA, 12 + 4 * WORDS));
static const hrt_operand tile_operands[] =
    OPERANDS_WITH(ROWS_OF(TILE, 0), ROWS_OF(TILE, 4 * WORDS));
static const hrt_step t_steps[] = {
    STEP(0, 0, 3, NONE, ROWS, 0, 0, 1),  STEP(1, 3, 3, COLS, COLS, 0, 0, WORDS),
    STEP(2, 6, 4, NONE, ROWS, 0, 0, 1),  STEP(3, 10, 3, CHANNELS, CHANNELS, 0, 0, WORDS),
    STEP(4, 13, 3, NONE, ROWS, 0, 0, 1), STEP(5, 16, 3, CHANNELS, CHANNELS, 0, 0, WORDS),
    STEP(6, 19, 3, NONE, NONE, 0, 0, 1),
};
static const hrt_tiled_steps t_tiled[] = {{1, 5}};
static const hrt_tensor_info t_inputs[] = {{"tokens", "i32[T]", 4, 0, 1},
                                           {"targets", "i32[T]", 4, 0, 1}};
static const hrt_tensor_info t_outputs[] = {
    {"loss", "f32[]", 4, 0, 0},
    {"grad.e", "f32[7]", 4 * WORDS, 0, 0},
    {"grad.w", "f32[3, 7]", 4 * COLUMNS *WORDS, E_BYTES, 0},
};
static const hrt_state_info t_states[] = {{"s", HRT_STATE_CARRY, 1, 1, 4}};
static const hrt_parameter t_parameters[] = {
    {.name = "e", .type = "f32[7]", .elements = WORDS},
    {.name = "w", .type = "f32[3, 7]", .offset = E_BYTES, .elements = COLUMNS * WORDS},
};
static const hrt_packing t_packings[] = {{.from = E_BYTES,
                                          .to = E_BYTES + W_BYTES,
                                          .rows = WORDS,
                                          .columns = COLUMNS,
                                          .panel = 1,
                                          .depth = 1,
                                          .transposed = 1}};

/* tile: tokens of a tile; 0: the tokens of a call are done at once. */
static inline hrt_model trainer_model(int64_t tile) {
    return (hrt_model){
        .version = HRT_VERSION,
        .name = "toy",
        .vocab = WORDS,
        .targets = WORDS,
        .chunk = LONGEST,
        .arena_per_token = tile ? 12 : 12 + 8 * WORDS,
        .tile_per_token = tile ? 8 * WORDS : 0,
        .tile_tokens = tile,
        .n_tiled = tile ? 1 : 0,
        .tiled = t_tiled,
        .scratch_bytes = 4 * WORDS,
        .weights_bytes = E_BYTES + 2 * W_BYTES,
        .parameters_bytes = E_BYTES + W_BYTES,
        .muon_offset = E_BYTES + W_BYTES,
        .moments_bytes = 2 * (E_BYTES + W_BYTES),
        .n_steps = sizeof t_steps / sizeof *t_steps,
        .n_operands = sizeof whole_operands / sizeof *whole_operands,
        .n_levels = 1,
        .n_inputs = 2,
        .n_outputs = 3,
        .n_kernels = sizeof t_kernels / sizeof *t_kernels,
        .n_parameters = 2,
        .n_packings = 1,
        .n_states = 1,
        .states = t_states,
        .steps = t_steps,
        .operands = tile ? tile_operands : whole_operands,
        .levels = t_levels,
        .inputs = t_inputs,
        .outputs = t_outputs,
        .parameters = t_parameters,
        .packings = t_packings,
        .options = "{}",
        .ops = "",
    };
}

/* ---- a trainer ------------------------------------------------------------------------------- */
typedef struct trainer {
    hrt_trainer *t;
    const hrt_parameter_view *e, *w;
} trainer;

/* Filled with 0xff (NaNs): nothing may count on zeros. Memory that it must not touch follows. */
static inline trainer open_trainer(const hrt_model *m, int64_t longest, int threads) {
    enum { BEYOND = 64 };
    const size_t own = hrt_trainer_size(m, longest), all = own + TOY_THREADS * 4096;
    cr_assert_gt(own, 0);
    cr_assert_eq(own % HRT_ALIGN, 0);
    char *memory = aligned_alloc(64, all + BEYOND);
    memset(memory, 0xff, all + BEYOND);
    trainer x = {0};
    size_t n = 0;
    cr_assert_eq(hrt_trainer_init(m, memory, all, longest, &x.t), HRT_OK);
    use_threads((hrt_session *)x.t, threads);
    const hrt_parameter_view *views = hrt_trainer_parameters(x.t, &n);
    cr_assert_eq(n, 2);
    x.e = &views[0], x.w = &views[1];
    cr_assert_str_eq(x.e->name, "e");
    cr_assert_str_eq(x.w->type, "f32[3, 7]");
    cr_assert_eq(x.w->elements, COLUMNS * WORDS);
    for (size_t i = 0; i < x.e->elements; i++)
        cr_assert(x.e->values[i] == 0 && x.e->gradient[i] == 0, "not zeros at the beginning");
    for (size_t i = 0; i < x.e->elements; i++)
        x.e->values[i] = (float)(2 * (int)i - 5);
    for (size_t i = 0; i < x.w->elements; i++)
        x.w->values[i] = (float)((5 * (int)i) % 11 - 4);
    return x;
}

typedef struct call { /* of any number of sequences */
    int32_t tokens[LONGEST], targets[LONGEST];
    int64_t lengths[LONGEST], sequences;
    double sum;
    int64_t count;
} call;

static inline call a_call(int64_t sequences, const int64_t *lengths) {
    call c = {.sequences = sequences, .sum = -1, .count = -1};
    for (int i = 0; i < LONGEST; i++) {
        c.tokens[i] = (3 * i + i / 5) % WORDS;
        c.targets[i] = (5 * i + 2) % (WORDS + 2) - 2;
    }
    for (int64_t i = 0; i < sequences; i++)
        c.lengths[i] = lengths[i];
    return c;
}

static inline call of_one(int64_t length) {
    return a_call(1, &length);
}

static inline int make(const trainer *x, call *c) {
    return hrt_gradients(x->t, c->tokens, c->targets, c->lengths, c->sequences, &c->sum, &c->count);
}

#endif
