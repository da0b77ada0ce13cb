/* Contractions of experts against the evaluator, at every CPU level of this machine: types of
 * weights, odd sizes, one x for all slots and one each, choices of every sort, shares of threads,
 * the last rows alone.
 *
 * Tolerance 2e-5 of a result's largest element: f32 rounding (6e-8) over sums of up to 300 products
 * in several orders, with activations that stay f32 (bench.exact). Where activations are rounded to
 * bytes the error of x is up to 1/254 of the largest of 32: 2e-2 of the largest element. */
#include <criterion/criterion.h>
#include <stdarg.h>

#include "tests/unit/codegen/rowwise/row_harness.h"
#include "tests/unit/codegen/tiles_fixture.h"

enum { MOST_TOKENS = 40 };

typedef struct layer {
    const char *dtype;
    int experts, slots, k, n;
    bool each; /* a row of x for each slot */
    bool bias;
    const char *second; /* the type of the second matrix; NULL: that of the first */
} layer;

/* gate and up with an epilogue, both also given out, then nothing: one kernel. */
static const char *text_of(hd_arena *a, const layer *l) {
    hd_text t;
    hd_text_init(&t, a);
    const char *x =
        l->each ? hd_printf(a, "f32[T, %d, %d]", l->slots, l->k) : hd_printf(a, "f32[T, %d]", l->k);
    const char *y = hd_printf(a, "f32[T, %d, %d]", l->slots, l->n);
    hd_text_f(&t, "hir 1 kernel @t\narena 0 per token\nfixed 0\n");
    hd_text_f(&t, "weight @g : %s[%d, %d, %d] panel\nweight @u : %s[%d, %d, %d] panel\n", l->dtype,
              l->experts, l->n, l->k, l->second ? l->second : l->dtype, l->experts, l->n, l->k);
    hd_text_f(&t, "weight @b : f32[%d, %d]\nweight @s : f32[%d]\n", l->experts, l->n, l->n);
    hd_text_f(&t, "func(%%x: %s in input[0], %%ids: i32[T, %d] in input[1]) {\n", x, l->slots);
    hd_text_f(&t,
              "  %%h, %%r = kernel.contract {name = \"contract0\", rows = \"all\", split_decode = "
              "\"cols\", split_prefill = \"channels\"} : %s in output[0], %s in output[1] {\n",
              y, y);
    hd_text_f(&t, "    %%1 = expert_linear %%x, @g, %%ids, %s : %s\n", l->bias ? "@b" : "_", y);
    hd_text_f(&t, "    %%2 = expert_linear %%x, @u, %%ids, _ : %s\n", y);
    hd_text_f(&t, "    %%3 = silu %%1 : %s\n    %%4 = mul %%3, %%2 : %s\n", y, y);
    hd_text_f(
        &t, "    %%5 = const {value = 1.5, shape = []} : f32[]\n    %%6 = add %%4, %%5 : %s\n", y);
    hd_text_f(&t, "    %%7 = mul %%6, @s : %s\n    yield %%7, %%1\n  }\n", y);
    hd_text_add(&t, "  output %h {name = \"h\"}\n  output %r {name = \"r\"}\n}\n");
    return t.at;
}

typedef enum choice { ANY, ONE, DIFFERENT, OUTSIDE, NEVER_FIRST, CHOICES } choice;

static double choose(choice how, const layer *l, int64_t t, int64_t j, uint64_t *seed) {
    switch (how) {
    case ONE: return l->experts - 1;                       /* all tokens on one expert */
    case DIFFERENT: return (double)((t + j) % l->experts); /* as topk chooses */
    case OUTSIDE: return (double)random_below(seed, 3 * l->experts) - l->experts;
    case NEVER_FIRST: return l->experts > 1 ? 1 + (double)random_below(seed, l->experts - 1) : 0;
    default: return (double)random_below(seed, l->experts);
    }
}

static const double *const *inputs_of(bench *b, const layer *l, choice how, int64_t tokens,
                                      uint64_t *seed) {
    double **all = hd_new_array(b->arena, double *, 2);
    const int64_t n = tokens * (l->each ? l->slots : 1) * l->k;
    all[0] = hd_new_array(b->arena, double, (size_t)n);
    all[1] = hd_new_array(b->arena, double, (size_t)(tokens * l->slots));
    for (int64_t i = 0; i < n; i++)
        all[0][i] = (double)(2 * random_float(seed));
    for (int64_t i = 0; i < tokens * l->slots; i++)
        all[1][i] = choose(how, l, i / l->slots, i % l->slots, seed);
    return (const double *const *)all;
}

static void check_calls(const layer *l, const hcg_level *level, unsigned exact, double tolerance) {
    static const int64_t calls[] = {1, 2, 7, MOST_TOKENS};
    hd_arena *a = hd_arena_new();
    bench *b = open_text(text_of(a, l));
    rows r;
    uint64_t seed = 11;
    b->exact = exact;
    cr_assert(rows_open(&r, b, level, seed), "%s", bench_errors(b));
    for (choice how = ANY; how < CHOICES; how++)
        for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
            r.threads = 1 + (int)(2 * i + how) % 5;
            const double e = rows_call(&r, calls[i], 0, inputs_of(b, l, how, calls[i], &seed));
            cr_assert_lt(e, tolerance,
                         "%s, %s, E %d k %d K %d N %d, choice %d, %ld tokens, %d threads: %g %s",
                         level->name, l->dtype, l->experts, l->slots, l->k, l->n, how,
                         (long)calls[i], r.threads, e, bench_errors(b));
        }
    rows_close(&r);
    close_text(b);
    hd_arena_free(a);
}

static hir_dtype dtype_of(const char *name) {
    hir_dtype dtype = 0;
    while (strcmp(hir_dtype_name(dtype), name) != 0)
        dtype++;
    return dtype;
}

static void check(const layer *l) {
    const hcg_level *levels;
    const hir_dtype dtype = dtype_of(l->dtype);
    static unsigned turn; /* layers take turns with levels */
    for (size_t i = 0, n = hcg_levels(&levels); i < n; i++) {
        if (products_run(&levels[i], HCG_ROUND_ALL, dtype, HIR_LAYOUT_PANEL) && has_turn(turn++, 2))
            check_calls(l, &levels[i], HCG_ROUND_ALL, 2e-5);
        if (l->dtype[0] != 'f' && products_run(&levels[i], 0, dtype, HIR_LAYOUT_PANEL) &&
            has_turn(turn++, 2))
            check_calls(l, &levels[i], 0, 2e-2);
    }
}

static const char *const dtypes[] = {"f32", "bf16", "f16", "q8", "q4"};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* f32, and every `step`-th of the others. */
static void check_types(layer l, int step) {
    for (int i = 0; i < DTYPES; i += step) {
        l.dtype = dtypes[i];
        check(&l);
    }
}

Test(emit_experts, some_of_some) {
    check_types((layer){.experts = 6, .slots = 3, .k = 64, .n = 48, .bias = true}, 1);
}

Test(emit_experts, odd_sizes) {
    check_types((layer){.experts = 5, .slots = 2, .k = 37, .n = 19}, 1);
}

Test(emit_experts, wide) {
    check_types((layer){.experts = 3, .slots = 2, .k = 300, .n = 130, .bias = true}, 3);
}

Test(emit_experts, a_row_for_each_slot) {
    check_types((layer){.experts = 4, .slots = 3, .k = 50, .n = 33, .each = true}, 2);
    check(&(layer){.dtype = "q8", .experts = 4, .slots = 3, .k = 96, .n = 33, .each = true});
}

/* Rows are rounded where they lie for q8 and q4, and side by side beside f32, which reads them. */
Test(emit_experts, two_types) {
    check(&(layer){.dtype = "q8", .second = "q4", .experts = 4, .slots = 3, .k = 70, .n = 33});
    check(&(layer){.dtype = "q8", .second = "f32", .experts = 4, .slots = 3, .k = 64, .n = 33});
}

Test(emit_experts, one_of_one) {
    check_types((layer){.experts = 1, .slots = 1, .k = 16, .n = 16}, 4);
    check(&(layer){.dtype = "f32", .experts = 1, .slots = 1, .k = 1, .n = 1});
}

Test(emit_experts, all_of_all) {
    check(&(layer){.dtype = "f32", .experts = 4, .slots = 4, .k = 40, .n = 20, .bias = true});
    check(&(layer){.dtype = "q8", .experts = 4, .slots = 4, .k = 40, .n = 20});
}

Test(emit_experts, one_of_many) {
    check(&(layer){.dtype = "bf16", .experts = 70, .slots = 1, .k = 18, .n = 17});
    check(&(layer){.dtype = "f32", .experts = 300, .slots = 4, .k = 8, .n = 16});
}

/* Neither the tokens beside it, nor how a call is cut among threads, nor that only the last rows
 * are wanted changes a bit of a token's result (in calls of two tokens or more, whose kernels
 * differ from those of one). */
static void run(const compiled *c, void *const *args, int64_t T, int64_t r0, int threads,
                int64_t columns) {
    char *scratch = guarded((c->scratch + 63) / 64 * 64);
    hrt_frame frame = {.T = T, .C = T, .cap = T, .scratch = scratch};
    for (int i = 0; i < threads; i++) {
        memset(scratch, 0xff, c->scratch);
        c->call(&frame, args, r0, T, columns * i / threads, columns * (i + 1) / threads);
    }
    guarded_free(scratch);
}

static void same_bits(const layer *l, const hcg_level *level) {
    enum { T = 24 };
    hd_arena *a = hd_arena_new();
    bench *b = open_text(text_of(a, l));
    const hir_id op = b->m->first;
    const int64_t columns = hcg_columns(b->m, op);
    const size_t n = (size_t)(l->slots * l->n), k = (size_t)l->k;
    rows r;
    uint64_t seed = 3;
    cr_assert(rows_open(&r, b, level, seed), "%s", bench_errors(b));
    float *x = random_floats(&seed, T * k), *y[3], *s[3];
    int32_t *ids = guarded((size_t)(T * l->slots) * 4);
    for (int i = 0; i < T * l->slots; i++)
        ids[i] = (int32_t)random_below(&seed, l->experts);
    for (int i = 0; i < 3; i++)
        y[i] = guarded(T * n * 4), s[i] = guarded(T * n * 4), memset(y[i], 0, T * n * 4);
    void *weights[] = {r.weights[0], r.weights[1], r.weights[2], r.weights[3]};
    for (int i = 0; i < 3; i++) {
        void *args[8], *outs[] = {y[i], s[i]};
        size_t at = 0, out = 0;
        for (size_t j = 0; j < r.kernels[op].k.operands.n; j++) {
            const hir_ref ref = r.kernels[op].k.operands.at[j];
            args[at++] = ref.kind == HIR_REF_WEIGHT        ? weights[ref.index]
                         : ref.index == b->m->inputs.at[0] ? (void *)x
                         : ref.index == b->m->inputs.at[1] ? (void *)ids
                                                           : outs[out++];
        }
        if (i == 0) run(&r.kernels[op], args, T, 0, 1, columns);
        if (i == 1) run(&r.kernels[op], args, T, 0, 7, columns);
        if (i == 2) run(&r.kernels[op], args, T, T - 2, 2, columns);
    }
    cr_expect_eq(memcmp(y[0], y[1], T * n * 4), 0, "%s %s: threads", level->name, l->dtype);
    cr_expect_eq(memcmp(y[0] + (T - 2) * n, y[2] + (T - 2) * n, 2 * n * 4), 0, "%s %s: last rows",
                 level->name, l->dtype);
    for (size_t i = 0; i < (T - 2) * n; i++)
        cr_assert_eq(y[2][i], 0, "rows that are not wanted are not written");
    for (int i = 0; i < 3; i++)
        guarded_free(y[i]), guarded_free(s[i]);
    guarded_free(x), guarded_free(ids);
    rows_close(&r);
    close_text(b);
    hd_arena_free(a);
}

/* The matrix unit, emulated where there is none: experts of few rows go by vectors, those of many
 * by tiles, and a row's bits do not depend on which it was. */
Test(emit_experts, tiles) {
    static const char *const types[] = {"f32", "bf16", "q8", "q4", "mxfp4", "nvfp4"};
    const hcg_level level = with_tiles();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const layer l = {.dtype = types[i], .experts = 4, .slots = 3, .k = 70, .n = 100};
        check_calls(&l, &level, HCG_ROUND_ALL, 2e-5);
        check_calls(&l, &level, 0, 2e-2);
        same_bits(&l, &level);
    }
    expect_emulated(&level);
}

Test(emit_experts, threads_and_neighbours_change_nothing) {
    const hcg_level *levels;
    for (size_t i = 0, n = hcg_levels(&levels); i < n; i++)
        for (int d = 0; d < DTYPES; d++)
            if (has_turn(i + (unsigned)d, 2) &&
                products_run(&levels[i], 0, dtype_of(dtypes[d]), HIR_LAYOUT_PANEL))
                same_bits(&(layer){.dtype = dtypes[d], .experts = 7, .slots = 3, .k = 70, .n = 100},
                          &levels[i]);
}
