/* A trainer that ranks share (runtime/trainer_ranks.c), which are threads here: the program made by hand
 * of trainer_toy.h, whose sums are exact as long as its parameters are whole numbers. */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "hadal/hadal_threads.h"
#include "runtime/trainer.h"
#include "tests/unit/runtime/trainer_toy.h"

enum { MOST_RANKS = 5, SAVED = 4096, PATIENT = 20 };
#define SECOND INT64_C(1000000000)

typedef struct rank rank;
struct rank {
    const hrt_model *m;
    hadal_threads *group;
    int32_t number, ranks;
    void (*body)(rank *r);
    int64_t longest, timeout_ns;
    trainer x;
    void *memory;
    float norm, parameters[WORDS + COLUMNS * WORDS];
    char saved[SAVED]; /* of rank 0 */
    char why[200];     /* what was wrong */
};

#define EXPECT(r, condition, ...)                                                                  \
    do {                                                                                           \
        if (condition) break;                                                                      \
        const int n_ = snprintf((r)->why, sizeof(r)->why, "line %d: ", __LINE__);                  \
        snprintf((r)->why + n_, sizeof(r)->why - (size_t)n_, __VA_ARGS__);                         \
        return;                                                                                    \
    } while (0)

static const char *said(const rank *r) {
    return hrt_session_message((const hrt_session *)r->x.t);
}
#define EXPECT_CODE(r, got, wanted, text)                                                          \
    do {                                                                                           \
        const int code_ = (got);                                                                   \
        EXPECT(r, code_ == (wanted), "code %d, not %d: %.120s", code_, wanted, said(r));           \
        EXPECT(r, strstr(said(r), text), "\"%s\" is not in \"%.120s\"", text, said(r));            \
    } while (0)

/* ---- ranks as threads ------------------------------------------------------------------------ */
static int open_on(rank *r) {
    const hadal_comm *c = hadal_threads_comm(r->group, r->number);
    const size_t own = hrt_trainer_size_on(r->m, r->longest, c), all = own + TOY_THREADS * 4096;
    size_t n = 0;
    r->memory = aligned_alloc(64, all);
    memset(r->memory, 0xff, all);
    const int code =
        hrt_trainer_init_on(r->m, r->memory, all, r->longest, c, r->timeout_ns, &r->x.t);
    const hrt_parameter_view *views = code ? NULL : hrt_trainer_parameters(r->x.t, &n);
    if (code) return code;
    r->x.e = &views[0], r->x.w = &views[1];
    for (size_t i = 0; i < r->x.e->elements; i++)
        r->x.e->values[i] = (float)(2 * (int)i - 5);
    for (size_t i = 0; i < r->x.w->elements; i++)
        r->x.w->values[i] = (float)((5 * (int)i) % 11 - 4);
    return hrt_session_set_threads((hrt_session *)r->x.t, 1 + r->number % 2);
}

static void keep_parameters(rank *r) {
    memcpy(r->parameters, r->x.e->values, WORDS * sizeof(float));
    memcpy(r->parameters + WORDS, r->x.w->values, COLUMNS * WORDS * sizeof(float));
}

static void *run_rank(void *argument) {
    rank *r = argument;
    r->body(r);
    hadal_threads_leave(r->group, r->number);
    return NULL;
}

static rank all[MOST_RANKS];

static void start_ranks(const hrt_model *m, int32_t n, const char *saved, void (*body)(rank *r)) {
    hadal_threads *group;
    pthread_t started[MOST_RANKS];
    cr_assert_eq(hadal_threads_open(n, &group), HADAL_COMM_OK);
    for (int32_t i = 0; i < n; i++) {
        all[i] = (rank){.m = m,
                        .group = group,
                        .number = i,
                        .ranks = n,
                        .body = body,
                        .longest = LONGEST,
                        .timeout_ns = PATIENT * SECOND};
        if (saved) memcpy(all[i].saved, saved, SAVED);
        cr_assert_eq(pthread_create(&started[i], NULL, run_rank, &all[i]), 0);
    }
    for (int32_t i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    for (int32_t i = 0; i < n; i++) {
        cr_expect_null(all[i].why[0] ? all[i].why : NULL, "rank %d of %d: %s", i, n, all[i].why);
        free(all[i].memory);
    }
    hadal_threads_close(group);
}

/* ---- models and calls ------------------------------------------------------------------------ */
static hrt_parameter muon_parameters[2];

static hrt_model model_with(bool muon) {
    hrt_model m = trainer_model(0);
    if (!muon) return m;
    memcpy(muon_parameters, t_parameters, sizeof muon_parameters);
    muon_parameters[1].update = HRT_UPDATE_MUON;
    muon_parameters[1].rows = COLUMNS, muon_parameters[1].columns = WORDS;
    m.parameters = muon_parameters;
    m.muon_offset = E_BYTES;
    m.moments_bytes = 2 * E_BYTES + W_BYTES;
    m.muon_bytes = 512;
    m.products = m.n_kernels - 1;
    return m;
}

static const int64_t lengths[] = {1, 9, 17, 2, 11};
enum { SEQUENCES = 5 };

/* Of the sequences those that a rank reads: each ranks-th one. */
static call part_of(int32_t number, int32_t ranks) {
    const call whole = a_call(SEQUENCES, lengths);
    call c = {.sum = -1, .count = -1};
    int64_t from = 0, to = 0;
    for (int i = 0; i < SEQUENCES; from += lengths[i++]) {
        if (i % ranks != number) continue;
        memcpy(c.tokens + to, whole.tokens + from, (size_t)lengths[i] * sizeof *c.tokens);
        memcpy(c.targets + to, whole.targets + from, (size_t)lengths[i] * sizeof *c.targets);
        c.lengths[c.sequences++] = lengths[i];
        to += lengths[i];
    }
    return c;
}

static hrt_step_options options_of(int64_t step) {
    hrt_step_options o = {
        .step = step,
#define O(name, value, least, most, meaning) .name = (value),
#include "runtime/step_options.def"
#undef O
    };
    o.learning_rate = 0.01;
    return o;
}

static int take_step(const trainer *x, call *c, float *norm) {
    const hrt_step_options o = options_of(hrt_trainer_steps(x->t) + 1);
    const int code = make(x, c);
    return code ? code : hrt_trainer_step(x->t, &o, norm);
}

/* ---- one rank's results ---------------------------------------------------------------------- */
static call one_call;
static int n_steps;

static void takes_steps(rank *r) {
    EXPECT_CODE(r, open_on(r), HRT_OK, "");
    for (int i = 0; i < n_steps; i++) {
        call c = part_of(r->number, r->ranks);
        EXPECT_CODE(r, take_step(&r->x, &c, &r->norm), HRT_OK, "");
        EXPECT(r, i || (c.sum == one_call.sum && c.count == one_call.count), "sum %g of %lld",
               c.sum, (long long)c.count);
        for (size_t k = 0; k < r->x.w->elements; k++)
            EXPECT(r, r->x.w->gradient[k] == 0, "a step leaves gradients");
    }
    keep_parameters(r);
    const size_t n = hrt_trainer_save_size(r->x.t);
    EXPECT(r, n <= SAVED, "%zu bytes", n);
    EXPECT_CODE(r, hrt_trainer_save(r->x.t, r->number ? NULL : r->saved, r->number ? 0 : n), HRT_OK,
                "");
}

/* The largest difference between parameters of two ranks, or trainers. */
static float difference(const float *x, const float *y) {
    float most = 0;
    for (int i = 0; i < WORDS + COLUMNS * WORDS; i++)
        most = fmaxf(most, fabsf(x[i] - y[i]));
    return most;
}

Test(trainer_ranks, a_step_is_that_of_one_rank_and_all_have_the_same_bits) {
    for (int muon = 0; muon < 2; muon++)
        for (n_steps = 1; n_steps <= 4; n_steps += 3) {
            const hrt_model m = model_with(muon);
            trainer one = open_trainer(&m, LONGEST, 2);
            float norm = 0, parameters[WORDS + COLUMNS * WORDS];
            char saved[SAVED] = {0};
            for (int i = 0; i < n_steps; i++) {
                call c = a_call(SEQUENCES, lengths);
                cr_assert_eq(take_step(&one, &c, &norm), HRT_OK);
                if (i == 0) one_call = c;
            }
            const size_t n = hrt_trainer_save_size(one.t);
            cr_assert_eq(hrt_trainer_save(one.t, saved, n), HRT_OK);
            memcpy(parameters, one.e->values, WORDS * sizeof(float));
            memcpy(parameters + WORDS, one.w->values, COLUMNS * WORDS * sizeof(float));
            for (int32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
                start_ranks(&m, ranks, NULL, takes_steps);
                for (int32_t i = 1; i < ranks; i++)
                    cr_assert(memcmp(all[i].parameters, all->parameters, sizeof parameters) == 0);
                /* sums are exact in the first step alone */
                cr_assert_leq(difference(parameters, all->parameters), n_steps == 1 ? 0 : 1e-5F);
                cr_assert(n_steps > 1 || memcmp(saved, all->saved, n) == 0, "%d ranks", ranks);
                cr_assert_leq(fabsf(all->norm - norm), n_steps == 1 ? 0 : 1e-5F * norm);
            }
            free(one.t);
        }
}

/* ---- what is kept ---------------------------------------------------------------------------- */
static void goes_on(rank *r) {
    EXPECT_CODE(r, open_on(r), HRT_OK, "");
    const size_t n = hrt_trainer_save_size(r->x.t);
    char again[SAVED];
    memset(r->x.w->values, 0, r->x.w->elements * sizeof(float)); /* what is there does not matter */
    if (r->number == 0) {
        const char kept = r->saved[70];
        r->saved[70] = (char)(kept ^ 1);
        EXPECT_CODE(r, hrt_trainer_restore(r->x.t, r->saved, n), HRT_SAVED, "damaged");
        r->saved[70] = kept;
        EXPECT_CODE(r, hrt_trainer_restore(r->x.t, r->saved, n), HRT_OK, "");
        EXPECT_CODE(r, hrt_trainer_save(r->x.t, again, n - 1), HRT_SIZE, "are needed");
        EXPECT_CODE(r, hrt_trainer_save(r->x.t, again, n), HRT_OK, "");
        EXPECT(r, memcmp(again, r->saved, n) == 0, "it is saved in another way");
    } else {
        EXPECT_CODE(r, hrt_trainer_restore(r->x.t, NULL, 0), HRT_PEER, "rank 0 rejected the call");
        EXPECT_CODE(r, hrt_trainer_restore(r->x.t, NULL, 0), HRT_OK, "");
        EXPECT_CODE(r, hrt_trainer_save(r->x.t, NULL, 0), HRT_PEER, "rank 0 rejected the call");
        EXPECT_CODE(r, hrt_trainer_save(r->x.t, NULL, 0), HRT_OK, "");
    }
    EXPECT(r, hrt_trainer_steps(r->x.t) == n_steps, "the steps are not those that were taken");
    call c = part_of(r->number, r->ranks);
    EXPECT_CODE(r, take_step(&r->x, &c, &r->norm), HRT_OK, "");
    keep_parameters(r);
}

Test(trainer_ranks, what_is_kept_goes_on_with_any_number_of_ranks) {
    const hrt_model m = model_with(true);
    float before[WORDS + COLUMNS * WORDS] = {0};
    static char saved[SAVED];
    n_steps = 2;
    {
        trainer one = open_trainer(&m, LONGEST, 1);
        one_call = a_call(SEQUENCES, lengths);
        cr_assert_eq(make(&one, &one_call), HRT_OK);
        free(one.t);
    }
    start_ranks(&m, 3, NULL, takes_steps);
    memcpy(saved, all->saved, SAVED);
    for (int32_t ranks = 1; ranks <= MOST_RANKS; ranks++) {
        start_ranks(&m, ranks, saved, goes_on);
        for (int32_t i = 1; i < ranks; i++)
            cr_assert(memcmp(all[i].parameters, all->parameters, sizeof before) == 0);
        if (ranks > 1) cr_assert_leq(difference(before, all->parameters), 1e-5F);
        memcpy(before, all->parameters, sizeof before);
    }
}

/* ---- what is rejected ------------------------------------------------------------------------ */
static void rejects(rank *r) {
    EXPECT_CODE(r, open_on(r), HRT_OK, "");
    const bool odd = r->number == 1; /* this one does what is wrong */
    hrt_step_options o = options_of(1);
    call c = part_of(r->number, r->ranks);
    if (odd) c.tokens[0] = WORDS;
    EXPECT_CODE(r, make(&r->x, &c), odd ? HRT_TOKEN : HRT_PEER,
                odd ? "token 0" : "rank 1 rejected");
    EXPECT(r, c.sum == -1 && r->x.w->gradient[5] == 0, "a rejected call has changed something");
    if (odd) c.tokens[0] = 0, c.sequences = -1;
    EXPECT_CODE(r, make(&r->x, &c), odd ? HRT_ARGUMENT : HRT_PEER,
                odd ? "-1 sequences" : "rank 1 rejected");
    /* nobody has a sequence: nothing counts */
    c.sequences = 0;
    EXPECT_CODE(r, make(&r->x, &c), HRT_OK, "");
    EXPECT(r, c.sum == 0 && c.count == 0, "something counts");
    EXPECT_CODE(r, hrt_trainer_step(r->x.t, &o, NULL), HRT_COUNT, "no target");
    /* parameters that differ */
    c = part_of(r->number, r->ranks);
    if (odd) r->x.w->values[3] += 1;
    EXPECT_CODE(r, make(&r->x, &c), HRT_PEER, "other parameters");
    if (odd) r->x.w->values[3] -= 1;
    /* another call */
    const int code = odd ? hrt_trainer_step(r->x.t, &o, NULL) : make(&r->x, &c);
    EXPECT(r, code == (odd ? HRT_COUNT : HRT_PEER), "code %d", code);
    EXPECT_CODE(r, make(&r->x, &c), HRT_OK, "");
    /* options, step, and gradients that one rank clears */
    o.learning_rate = odd ? 0.02 : 0.01;
    EXPECT_CODE(r, hrt_trainer_step(r->x.t, &o, NULL), HRT_PEER, "has other options");
    o.learning_rate = 0.01;
    if (odd) o.step = 2;
    EXPECT_CODE(r, hrt_trainer_step(r->x.t, &o, NULL), odd ? HRT_ARGUMENT : HRT_PEER,
                odd ? "cannot be step 2" : "rank 1 rejected");
    o.step = 1;
    if (odd) EXPECT_CODE(r, hrt_trainer_clear(r->x.t), HRT_OK, "");
    EXPECT(r, hrt_trainer_step(r->x.t, &o, NULL) == (odd ? HRT_COUNT : HRT_PEER), "%s", said(r));
    EXPECT_CODE(r, hrt_trainer_clear(r->x.t), HRT_OK, "");
    /* a gradient that is not finite is named on all ranks, and gradients are spoilt */
    EXPECT_CODE(r, make(&r->x, &c), HRT_OK, "");
    if (odd) r->x.w->gradient[20] = INFINITY;
    EXPECT_CODE(r, hrt_trainer_step(r->x.t, &o, NULL), HRT_FINITE,
                "element 20 of the gradient of w is inf");
    EXPECT_CODE(r, hrt_trainer_step(r->x.t, &o, NULL), HRT_FINITE, "trainer_clear");
    EXPECT_CODE(r, hrt_trainer_clear(r->x.t), HRT_OK, "");
    /* so are those of a loss that is not finite on any rank */
    for (size_t i = 0; i < r->x.w->elements; i++)
        r->x.w->values[i] = 3e38F;
    call few = c;
    if (!odd) few.sequences = 0;
    EXPECT_CODE(r, make(&r->x, &few), HRT_FINITE, odd ? "the loss of sequence 0" : "rank 1: ");
    for (size_t i = 0; i < r->x.w->elements; i++)
        r->x.w->values[i] = 1;
    EXPECT_CODE(r, make(&r->x, &c), HRT_OK, "");
    EXPECT_CODE(r, hrt_trainer_step(r->x.t, &o, NULL), HRT_FINITE, "trainer_clear");
    EXPECT_CODE(r, hrt_trainer_clear(r->x.t), HRT_OK, "");
    EXPECT_CODE(r, take_step(&r->x, &c, &r->norm), HRT_OK, "");
    EXPECT(r, hrt_trainer_steps(r->x.t) == 1, "not the first step");
}

Test(trainer_ranks, what_one_rank_rejects_is_an_error_of_all_and_changes_nothing) {
    const hrt_model m = model_with(false);
    start_ranks(&m, 3, NULL, rejects);
}

static void differs(rank *r) {
    if (r->number == 1) r->longest = LONGEST - 1;
    const int code = open_on(r);
    EXPECT(r, code == HRT_RANKS, "code %d", code);
    EXPECT(r, strstr(said(r), "max_tokens: rank 1 has 39, rank 0 has 40"), "%s", said(r));
    call c = part_of(r->number, r->ranks);
    EXPECT_CODE(r, make(&r->x, &c), HRT_RANKS, "rejected when it was made");
}

static void lacks_memory(rank *r) {
    const hadal_comm *c = hadal_threads_comm(r->group, r->number);
    const size_t size = hrt_trainer_size_on(r->m, LONGEST, c);
    r->memory = r->number == 1 ? NULL : aligned_alloc(64, size);
    const int code = hrt_trainer_init_on(r->m, r->memory, size, LONGEST, c, r->timeout_ns, &r->x.t);
    EXPECT(r, code == HRT_ARGUMENT && !r->x.t == (r->number == 1), "code %d", code);
}

Test(trainer_ranks, they_agree_on_a_trainer) {
    const hrt_model m = model_with(false);
    start_ranks(&m, 3, NULL, differs);
    start_ranks(&m, 3, NULL, lacks_memory);
    hrt_trainer *t = NULL;
    cr_assert_eq(hrt_trainer_size_on(&m, 1, NULL), 0);
    cr_assert_eq(hrt_trainer_init_on(&m, NULL, 0, 1, NULL, 0, &t), HRT_ARGUMENT);
}

/* ---- a rank that goes ------------------------------------------------------------------------ */
static int goes_at; /* call: gradients, step, save, restore */

static void one_goes(rank *r) {
    struct timespec begun, end;
    char saved[SAVED];
    call c = part_of(r->number, r->ranks);
    const hrt_step_options o = options_of(1);
    EXPECT_CODE(r, open_on(r), HRT_OK, "");
    if (goes_at > 0) EXPECT_CODE(r, make(&r->x, &c), HRT_OK, "");
    if (r->number == 2) return;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (int k = 0; k < 2; k++) { /* again at once */
        const int code = goes_at == 0   ? make(&r->x, &c)
                         : goes_at == 1 ? hrt_trainer_step(r->x.t, &o, NULL)
                         : goes_at == 2 ? hrt_trainer_save(r->x.t, saved, SAVED)
                                        : hrt_trainer_restore(r->x.t, NULL, 0);
        EXPECT_CODE(r, code, HRT_COLLECTIVE, "");
        EXPECT(r, said(r)[0], "there is no message");
        if (goes_at == 3 && r->number == 0) break; /* which rejects the call by itself, too */
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    EXPECT(r, end.tv_sec - begun.tv_sec < PATIENT / 2, "the others learn of it late");
    EXPECT(r, hrt_trainer_steps(r->x.t) == 0, "a step was taken");
}

Test(trainer_ranks, a_rank_that_goes_is_an_error_on_the_others) {
    const hrt_model m = model_with(true);
    for (goes_at = 0; goes_at < 4; goes_at++)
        start_ranks(&m, 3, NULL, one_goes);
}

/* ---- shares ---------------------------------------------------------------------------------- */
enum { TENSORS = 40 };

/* Shares follow each other, hold everything, cut no matrix, and have as much work but for one. */
Test(trainer_ranks, shares_are_ranges_of_equal_work) {
    hrt_parameter p[TENSORS] = {{0}};
    hrt_model m = {.parameters = p, .n_parameters = TENSORS};
    for (unsigned seed = 1; seed <= 40; seed++) {
        double whole = 0, largest = 0;
        uint64_t end = 0;
        unsigned x = seed;
        for (int i = 0; i < TENSORS; i++) {
            x = x * 1103515245 + 12345;
            const bool muon = i >= TENSORS / 2 && seed % 7;
            const uint64_t n = muon ? 1 + x / 65536 % 3 : 1;
            p[i] = (hrt_parameter){.offset = end,
                                   .rows = 2 + x / 1024 % 60,
                                   .columns = 2 + x / 4096 % 90,
                                   .update = muon ? HRT_UPDATE_MUON : HRT_UPDATE_MATRIX};
            p[i].elements = n * p[i].rows * p[i].columns;
            end = hrt_aligned(end + p[i].elements * sizeof(float));
            if (!muon) m.muon_offset = end;
            const double a = (double)p[i].rows, b = (double)p[i].columns;
            const double work = muon ? fmin(a, b) * a * b : 0;
            whole += work * (double)n, largest = fmax(largest, work);
        }
        m.parameters_bytes = end;
        for (int32_t ranks = 1; ranks <= 70; ranks += 1 + ranks / 3) {
            int64_t at[HRT_PARTS] = {0, (int64_t)(m.muon_offset / sizeof(float))};
            for (int32_t r = 0; r < ranks; r++) {
                hrt_trainer t;
                double work = 0;
                hrt_divide(&m, r, ranks, t.mine);
                for (int part = 0; part < HRT_PARTS; part++) {
                    cr_assert_eq(t.mine[part].from, at[part]);
                    at[part] = t.mine[part].to;
                }
                const int64_t most = (int64_t)(m.muon_offset / sizeof(float)) / ranks;
                cr_assert_leq(t.mine[0].to - t.mine[0].from, most + 2 * HRT_ALIGN / 4);
                for (int i = 0; i < TENSORS; i++) {
                    const hrt_span mine = hrt_mine_of(&t, &p[i]);
                    const double a = (double)p[i].rows, b = (double)p[i].columns;
                    if (p[i].update != HRT_UPDATE_MUON) continue;
                    cr_assert_eq(mine.from % (int64_t)(p[i].rows * p[i].columns), 0);
                    cr_assert_eq(mine.to % (int64_t)(p[i].rows * p[i].columns), 0);
                    work += fmin(a, b) * (double)(mine.to - mine.from);
                }
                cr_assert_leq(work, whole / ranks + largest * (1 + 1e-9));
            }
            cr_assert_eq(at[HRT_ELEMENTS], (int64_t)(m.muon_offset / sizeof(float)));
            cr_assert_eq(at[HRT_MATRICES], (int64_t)(end / sizeof(float)));
        }
    }
}
