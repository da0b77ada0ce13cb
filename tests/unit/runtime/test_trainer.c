/* hrt_gradients on a program made by hand (trainer_toy.h). */
#include "runtime/step_parts.h"
#include "runtime/trainer.h"
#include "tests/unit/runtime/trainer_toy.h"

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

/* ---- packed weights -------------------------------------------------------------------------- */
/* Behind the toy's own parameters and panels: a matrix of numbers, and room for its panels. */
enum {
    MATRIX = E_BYTES + 2 * W_BYTES,
    CELLS = 40 * 150,
    PANELS = MATRIX + 4 * CELLS,
    ROOM = 16384
};

static uint64_t cell_of(const hrt_packing *p, uint64_t row, uint64_t column) {
    const uint64_t lines = (p->columns + p->depth - 1) / p->depth, at = p->first + row;
    return at / p->panel * lines * p->panel * p->depth + column / p->depth * p->panel * p->depth +
           at % p->panel * p->depth + column % p->depth;
}

static void expect_panels(const trainer *x, const hrt_packing *p) {
    static float expected[ROOM];
    const float *matrix = (const void *)(x->t->weights + p->from);
    memset(expected, 0, sizeof expected);
    for (uint64_t i = 0; i < p->rows; i++)
        for (uint64_t k = 0; k < p->columns; k++)
            expected[cell_of(p, i, k)] =
                p->transposed ? matrix[k * p->rows + i] : matrix[i * p->columns + k];
    cr_assert(memcmp(x->t->weights + p->to, expected, sizeof expected) == 0,
              "panels of %u, %u deep: %lu x %lu, first %lu, transposed %u", p->panel, p->depth,
              (unsigned long)p->rows, (unsigned long)p->columns, (unsigned long)p->first,
              p->transposed);
}

/* Rows and columns that are no multiple of four or of the panel, rows that begin within a panel. */
Test(trainer, panels_are_made_of_every_element_of_a_matrix) {
    static const uint64_t sizes[][2] = {{1, 1},   {3, 9},   {4, 4},    {16, 64},
                                        {17, 66}, {40, 13}, {33, 150}, {32, 128}};
    static const uint64_t firsts[] = {0, 4, 13, 16};
    static const uint32_t panels[][2] = {{16, 1}, {16, 2}, {1, 1}, {6, 1}, {32, 1}};
    for (int i = 0; i < 8 * 4 * 5 * 2 * 2; i++) {
        hrt_packing p[] = {t_packings[0],
                           {.from = MATRIX,
                            .to = PANELS,
                            .first = firsts[i / 8 % 4],
                            .rows = sizes[i % 8][0],
                            .columns = sizes[i % 8][1],
                            .panel = panels[i / 32 % 5][0],
                            .depth = panels[i / 32 % 5][1],
                            .transposed = i / 160 % 2}};
        hrt_model m = trainer_model(3);
        m.parameters_bytes = PANELS, m.weights_bytes = PANELS + 4 * ROOM;
        m.packings = p, m.n_packings = 2;
        trainer x = open_trainer(&m, LONGEST, 1 + i / 320 * 2);
        float *matrix = (void *)(x.t->weights + MATRIX);
        for (int k = 0; k < CELLS; k++)
            matrix[k] = (float)(k + 1);
        call c = of_one(5);
        cr_assert_eq(make(&x, &c), HRT_OK);
        expect(&x, &c, 5);
        expect_panels(&x, &p[1]);
        free(x.t);
    }
}

Test(trainer, every_element_of_a_parameter_is_looked_at) {
    const hrt_model m = trainer_model(3);
    for (size_t i = 0; i < (size_t)COLUMNS * WORDS; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            trainer x = open_trainer(&m, LONGEST, threads);
            call c = of_one(5);
            x.w->values[i] = i % 2 ? NAN : -INFINITY;
            cr_assert_eq(make(&x, &c), HRT_FINITE, "element %zu", i);
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

enum { ALL_STEPS = 7 + HRT_STEP_PARTS }; /* of the model, and of the optimizer */

Test(trainer, its_steps_are_timed_once_a_call_however_many_tiles_there_are) {
    for (int64_t tile = 0; tile <= 6; tile += 6) {
        const hrt_model m = trainer_model(tile);
        hrt_profile_step profile[ALL_STEPS] = {{0}};
        trainer x = open_trainer(&m, LONGEST, 2);
        cr_assert_eq(hrt_trainer_profile(x.t, profile, ALL_STEPS), HRT_OK);
        call c = of_one(LONGEST);
        cr_assert_eq(make(&x, &c), HRT_OK);
        cr_assert_eq(make(&x, &c), HRT_OK);
        for (int i = 0; i < 7; i++)
            cr_assert_eq(profile[i].calls, 2, "step %d: %lu", i, (unsigned long)profile[i].calls);
        free(x.t);
    }
}

Test(trainer, parts_of_its_steps_are_timed_after_those_of_the_model) {
    const hrt_model m = trainer_model(0);
    for (int threads = 1; threads <= 2; threads++) {
        hrt_profile_step profile[ALL_STEPS] = {{0}};
        hrt_step_options o = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .clip = 1};
        trainer x = open_trainer(&m, LONGEST, threads);
        call c = of_one(LONGEST);
        cr_assert_eq(hrt_trainer_profile(x.t, profile, ALL_STEPS), HRT_OK);
        for (o.step = 1; o.step <= 2; o.step++) {
            cr_assert_eq(make(&x, &c), HRT_OK);
            cr_assert_eq(hrt_trainer_step(x.t, &o, NULL), HRT_OK);
        }
        for (int i = 0; i < 7 + HRT_STEP_MUON; i++)
            cr_assert_eq(profile[i].calls, 2, "entry %d", i);
        cr_assert_eq(profile[7 + HRT_STEP_MUON].calls, 0, "it has no matrices for Muon");
        cr_assert_gt(profile[7 + HRT_STEP_NORM].work_ns + profile[7 + HRT_STEP_ADAMW].work_ns, 0);
        cr_assert_eq(hrt_trainer_profile(x.t, NULL, 0), HRT_OK);
        cr_assert_eq(make(&x, &c), HRT_OK);
        cr_assert_eq(hrt_trainer_step(x.t, &o, NULL), HRT_OK);
        cr_assert_eq(profile[7 + HRT_STEP_ADAMW].calls, 2, "it is off");
        cr_assert_eq(hrt_trainer_profile(x.t, profile, 7), HRT_ARGUMENT);
        cr_assert(strstr(hrt_session_message((const hrt_session *)x.t),
                         "a profile of 7 steps: the model has 10"));
        free(x.t);
    }
    cr_assert_eq(hrt_trainer_profile(NULL, NULL, 0), HRT_ARGUMENT);
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
