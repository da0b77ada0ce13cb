/* hrt_gradients on a program made by hand: kernels in C, tables as codegen/module/describe.c would
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
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/runtime/runtime_toy.h"

enum { WORDS = 7, COLUMNS = 3, LONGEST = 40, E_BYTES = 64, W_BYTES = 128 };

static void t_look_up(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                      int64_t c1) {
    (void)f, (void)c0, (void)c1;
    const int32_t *tokens = args[0];
    const float *e = args[1];
    for (int64_t t = r0; t < r1; t++)
        ((float *)args[2])[t] = e[tokens[t]];
}

static void t_logits(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
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

static void t_losses(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
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

static void t_grad_w(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
    (void)f;
    const float *x = args[0], *d = args[1];
    float *dw = args[2];
    for (int64_t j = c0; j < c1; j++)
        for (int64_t t = r0; t < r1; t++)
            for (int k = 0; k < COLUMNS; k++)
                dw[k * WORDS + j] += x[t] * d[t * WORDS + j];
}

static void t_grad_x(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
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

static void t_grad_e(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                     int64_t c1) {
    (void)f;
    const float *dx = args[0];
    const int32_t *tokens = args[1];
    float *de = args[2];
    for (int64_t t = r0; t < r1; t++)
        if (tokens[t] >= c0 && tokens[t] < c1) de[tokens[t]] += dx[t];
}

static void t_sum(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1, int64_t c0,
                  int64_t c1) {
    (void)f, (void)c0, (void)c1;
    float *loss = args[1], *carry = args[2];
    *loss = *carry;
    for (int64_t t = r0; t < r1; t++)
        *loss += ((const float *)args[0])[t];
    *carry = 1000;
}

static hrt_kernel *const t_kernels[] = {t_look_up, t_logits, t_losses, t_grad_w,
                                        t_grad_x,  t_grad_e, t_sum};
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
static hrt_model trainer_model(int64_t tile) {
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
static trainer open_trainer(const hrt_model *m, int64_t longest, int threads) {
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

static call a_call(int64_t sequences, const int64_t *lengths) {
    call c = {.sequences = sequences, .sum = -1, .count = -1};
    for (int i = 0; i < LONGEST; i++) {
        c.tokens[i] = (3 * i + i / 5) % WORDS;
        c.targets[i] = (5 * i + 2) % (WORDS + 2) - 2;
    }
    for (int64_t i = 0; i < sequences; i++)
        c.lengths[i] = lengths[i];
    return c;
}

static call of_one(int64_t length) {
    return a_call(1, &length);
}

static int make(const trainer *x, call *c) {
    return hrt_gradients(x->t, c->tokens, c->targets, c->lengths, c->sequences, &c->sum, &c->count);
}

/* What the formulas above give for the first n tokens. */
static void expect(const trainer *x, const call *c, int64_t n) {
    float de[WORDS] = {0}, dw[COLUMNS * WORDS] = {0};
    double sum = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < n; t++) {
        const int32_t to = c->targets[t], word = c->tokens[t];
        if (to < 0) continue;
        count++;
        for (int k = 0; k < COLUMNS; k++) {
            sum += (double)(x->e->values[word] * x->w->values[k * WORDS + to]);
            dw[k * WORDS + to] += x->e->values[word];
            de[word] += x->w->values[k * WORDS + to];
        }
    }
    cr_assert_eq(c->sum, sum);
    cr_assert_eq(c->count, count);
    cr_assert(memcmp(x->e->gradient, de, sizeof de) == 0);
    cr_assert(memcmp(x->w->gradient, dw, sizeof dw) == 0);
}

/* ---- what a call does ------------------------------------------------------------------------ */
Test(trainer, gradients_are_those_of_the_formula_whatever_the_threads_and_tiles) {
    static const int threads[] = {1, 2, 16};
    for (int64_t tile = 0; tile <= 11; tile++)
        for (int i = 0; i < 3; i++)
            for (int64_t n = 1; n <= LONGEST; n += n < 14 ? 1 : 13) {
                const hrt_model m = trainer_model(tile);
                trainer x = open_trainer(&m, LONGEST, threads[i]);
                call c = of_one(n);
                cr_assert_eq(make(&x, &c), HRT_OK);
                expect(&x, &c, n);
                free(x.t);
            }
}

Test(trainer, a_call_of_sequences_is_a_call_of_each_and_calls_add) {
    static const int64_t lengths[] = {1, 9, 17, 2, 11};
    for (int64_t tile = 0; tile <= 4; tile += 4) {
        const hrt_model m = trainer_model(tile);
        trainer x = open_trainer(&m, 17, 3);
        call c = a_call(5, lengths);
        cr_assert_eq(make(&x, &c), HRT_OK);
        expect(&x, &c, LONGEST);
        const float before = x.w->gradient[3];
        const double sum = c.sum;
        cr_assert_eq(make(&x, &c), HRT_OK);
        cr_assert_eq(x.w->gradient[3], 2 * before);
        cr_assert_eq(c.sum, sum, "the sum is that of the last call");
        free(x.t);
    }
}

Test(trainer, nothing_counts_where_no_target_does) {
    const hrt_model m = trainer_model(3);
    trainer x = open_trainer(&m, LONGEST, 2);
    call c = of_one(LONGEST);
    for (int i = 0; i < LONGEST; i++)
        c.targets[i] = i % 2 ? -1 : INT32_MIN;
    cr_assert_eq(make(&x, &c), HRT_OK);
    expect(&x, &c, LONGEST);
    cr_assert_eq(c.count, 0);
    free(x.t);
}

Test(trainer, parameters_may_change_between_calls) {
    const hrt_model m = trainer_model(0);
    trainer x = open_trainer(&m, LONGEST, 2);
    call c = of_one(LONGEST);
    cr_assert_eq(make(&x, &c), HRT_OK);
    for (size_t i = 0; i < x.w->elements; i++)
        x.w->values[i] = (float)i, x.w->gradient[i] = 0;
    memset(x.e->gradient, 0, x.e->elements * sizeof *x.e->gradient);
    cr_assert_eq(make(&x, &c), HRT_OK);
    expect(&x, &c, LONGEST);
    free(x.t);
}

Test(trainer, its_steps_are_timed_once_a_call_however_many_tiles_there_are) {
    for (int64_t tile = 0; tile <= 6; tile += 6) {
        const hrt_model m = trainer_model(tile);
        hrt_profile_step profile[7] = {{0}};
        trainer x = open_trainer(&m, LONGEST, 2);
        cr_assert_eq(hrt_session_profile((hrt_session *)x.t, profile, 7), HRT_OK);
        call c = of_one(LONGEST);
        cr_assert_eq(make(&x, &c), HRT_OK);
        cr_assert_eq(make(&x, &c), HRT_OK);
        for (int i = 0; i < 7; i++)
            cr_assert_eq(profile[i].calls, 2, "step %d: %lu", i, (unsigned long)profile[i].calls);
        free(x.t);
    }
}

/* ---- what is rejected ------------------------------------------------------------------------ */
static void expect_rejected(const trainer *x, call *c, int code, const char *said) {
    const float before = x->w->gradient[5];
    cr_assert_eq(make(x, c), code, "%s", said);
    cr_assert(strstr(hrt_session_message((const hrt_session *)x->t), said) != NULL, "%s: %s", said,
              hrt_session_message((const hrt_session *)x->t));
    cr_assert(c->sum == -1 && c->count == -1);
    cr_assert_eq(x->w->gradient[5], before, "a rejected call has changed gradients");
}

Test(trainer, a_wrong_call_is_rejected_by_its_code_and_changes_nothing) {
    const hrt_model m = trainer_model(3);
    trainer x = open_trainer(&m, 9, 2);
    call good = of_one(9), c = good;
    cr_assert_eq(make(&x, &good), HRT_OK);
    c.lengths[0] = 10;
    expect_rejected(&x, &c, HRT_FULL, "sequence 0 has 10 tokens");
    c.lengths[0] = 0;
    expect_rejected(&x, &c, HRT_ARGUMENT, "sequence 0 has 0 tokens");
    c.sequences = 0;
    expect_rejected(&x, &c, HRT_ARGUMENT, "0 sequences");
    c = of_one(9), c.tokens[8] = WORDS;
    expect_rejected(&x, &c, HRT_TOKEN, "token 8 is 7");
    c = of_one(9), c.tokens[0] = -1;
    expect_rejected(&x, &c, HRT_TOKEN, "token 0 is -1");
    c = of_one(9), c.targets[2] = WORDS;
    expect_rejected(&x, &c, HRT_TOKEN, "target 2 is 7");
    c = of_one(9);
    const float whole = x.w->values[20];
    x.w->values[20] = (float)NAN;
    expect_rejected(&x, &c, HRT_FINITE, "element 20 of parameter w is ");
    x.w->values[20] = whole, x.e->values[0] = (float)-INFINITY;
    expect_rejected(&x, &c, HRT_FINITE, "element 0 of parameter e is -inf");
    x.e->values[0] = -5;

    void *const t = x.t;
    cr_assert_eq(hrt_gradients(NULL, c.tokens, c.targets, c.lengths, 1, &c.sum, &c.count),
                 HRT_ARGUMENT);
    cr_assert_eq(hrt_gradients(t, NULL, c.targets, c.lengths, 1, &c.sum, &c.count), HRT_ARGUMENT);
    cr_assert_eq(hrt_gradients(t, c.tokens, NULL, c.lengths, 1, &c.sum, &c.count), HRT_ARGUMENT);
    cr_assert_eq(hrt_gradients(t, c.tokens, c.targets, NULL, 1, &c.sum, &c.count), HRT_ARGUMENT);
    cr_assert_eq(hrt_gradients(t, c.tokens, c.targets, c.lengths, 1, NULL, &c.count), HRT_ARGUMENT);
    cr_assert_eq(hrt_gradients(t, c.tokens, c.targets, c.lengths, 1, &c.sum, NULL), HRT_ARGUMENT);
    cr_assert_str_eq(hrt_session_message(t), "the count are a null pointer");

    memset(x.e->gradient, 0, x.e->elements * sizeof *x.e->gradient);
    memset(x.w->gradient, 0, x.w->elements * sizeof *x.w->gradient);
    cr_assert_eq(make(&x, &c), HRT_OK);
    cr_assert_str_eq(hrt_session_message(t), "");
    expect(&x, &c, 9);
    free(t);
}

Test(trainer, a_loss_that_is_not_finite_is_an_error) {
    const hrt_model m = trainer_model(0);
    trainer x = open_trainer(&m, LONGEST, 1);
    static const int64_t lengths[] = {3, 1};
    call c = a_call(2, lengths);
    for (size_t i = 0; i < x.w->elements; i++)
        x.w->values[i] = 3e38F;
    cr_assert_eq(make(&x, &c), HRT_FINITE);
    cr_assert(strstr(hrt_session_message((const hrt_session *)x.t), "the loss of sequence 0 is ") !=
              NULL);
    free(x.t);
}

Test(trainer, memory_has_to_be_as_it_says) {
    const hrt_model m = trainer_model(3);
    hrt_model plain = m;
    plain.parameters_bytes = 0;
    cr_assert_eq(hrt_trainer_size(NULL, 1), 0);
    cr_assert_eq(hrt_trainer_size(&plain, 1), 0, "it has no gradients");
    static const int64_t wrong[] = {0, -1, LONGEST + 1, INT64_MAX};
    const size_t size = hrt_trainer_size(&m, LONGEST);
    char *at = aligned_alloc(64, 2 * size + 64);
    hrt_trainer *t = NULL;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(hrt_trainer_size(&m, wrong[i]), 0);
        cr_assert_eq(hrt_trainer_init(&m, at, size, wrong[i], &t), HRT_ARGUMENT);
    }
    cr_assert_gt(size, hrt_trainer_size(&m, 1));
    struct {
        const hrt_model *m;
        void *at;
        size_t size;
        hrt_trainer **out;
        int code;
    } bad[] = {
        {&m, at, size - 1, &t, HRT_SIZE},   {&m, at + 4, size, &t, HRT_ALIGNMENT},
        {&m, NULL, size, &t, HRT_ARGUMENT}, {NULL, at, size, &t, HRT_ARGUMENT},
        {&m, at, size, NULL, HRT_ARGUMENT}, {&plain, at, size, &t, HRT_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t = (hrt_trainer *)at;
        cr_assert_eq(hrt_trainer_init(bad[i].m, bad[i].at, bad[i].size, LONGEST, bad[i].out),
                     bad[i].code, "%zu", i);
        if (bad[i].out) cr_assert_null(t);
    }
    /* exactly so much memory will do, and the trainer stays where it was made */
    memset(at, 0xff, 2 * size + 64);
    cr_assert_eq(hrt_trainer_init(&m, at, size, LONGEST, &t), HRT_OK);
    call c = of_one(LONGEST);
    trainer x = {.t = t};
    cr_assert_eq(make(&x, &c), HRT_OK);
    for (int i = 0; i < 64; i++)
        cr_assert_eq((unsigned char)at[size + (size_t)i], 0xff, "written behind its memory");
    memcpy(at + size, at, size);
    x.t = (hrt_trainer *)(at + size);
    size_t n = 7;
    cr_assert_eq(make(&x, &c), HRT_MOVED);
    cr_assert_null(hrt_trainer_parameters(x.t, &n));
    cr_assert_eq(n, 0);
    cr_assert_null(hrt_trainer_parameters(NULL, NULL));
    free(at);
}
