/* A whole layer of experts, router, choice, experts and their weighted sum, at every CPU level
 * against the evaluator, where choices are at their limits: experts that no token chooses, all
 * tokens on the same ones, as many as there are, and rows of NaN and infinities.
 *
 * Every array that kernels see ends in front of a page that cannot be read, so that a number of an
 * expert outside of 0 .. E-1 that is followed ends the test. What a row of NaN gives is defined:
 * NaN is smaller than all else, and of equal scores the lower number is first (topk), so its
 * experts are 0 .. k-1, its result is NaN, and no other row knows of it.
 *
 * Tolerance 2e-5 of a result's largest element, as in test_emit_experts. */
#include <criterion/criterion.h>
#include <math.h>

#include "passes/pass.h"
#include "tests/unit/codegen/rowwise/row_harness.h"

enum { D = 24, WIDTH = 20, TOKENS = 21 };
typedef struct layer {
    int experts, chosen;
    const char *dtype;
} layer;

/* As `route` of the page `experts` has it, with sigmoid scores; %b decides the choice alone. */
static const char graph[] =
    "hir 1 graph @layer\n"
    "weight @gate : f32[#E, #D]\nweight @g : f32[#E, #W, #D]\nweight @u : f32[#E, #W, #D]\n"
    "weight @d : f32[#E, #D, #W]\n"
    "func(%x: f32[T, #D], %b: f32[#E]) {\n"
    "  %l = linear %x, @gate, _ : f32[T, #E]\n  %s = sigmoid %l : f32[T, #E]\n"
    "  %c = add %s, %b : f32[T, #E]\n  %ids = topk %c {k = #K} : i32[T, #K]\n"
    "  %p = pick %s, %ids : f32[T, #K]\n  %sum = reduce_sum %p {axis = 1} : f32[T]\n"
    "  %col = reshape %sum {shape = [T, 1]} : f32[T, 1]\n  %w = div %p, %col : f32[T, #K]\n"
    "  %1 = expert_linear %x, @g, %ids, _ : f32[T, #K, #W]\n"
    "  %2 = expert_linear %x, @u, %ids, _ : f32[T, #K, #W]\n"
    "  %3 = silu %1 : f32[T, #K, #W]\n  %4 = mul %3, %2 : f32[T, #K, #W]\n"
    "  %5 = expert_linear %4, @d, %ids, _ : f32[T, #K, #D]\n"
    "  %6 = reshape %w {shape = [T, #K, 1]} : f32[T, #K, 1]\n"
    "  %7 = mul %5, %6 : f32[T, #K, #D]\n  %y = reduce_sum %7 {axis = 1} : f32[T, #D]\n"
    "  output %y {name = \"y\"}\n}\n";

static bench *open_layer(const layer *l) {
    hd_arena *a = hd_arena_new();
    const int numbers[] = {l->experts, l->chosen, D, WIDTH};
    bench *b = open_text(filled(a, graph, "EKDW", numbers));
    hir_compile_options options = {.chunk = 512};
    if (l->dtype) cr_assert(hir_value_dtype_by_name(l->dtype, &options.matrix_dtype));
    const hir_run run = {.passes = hir_pipeline(), .stop_after = HIR_PASS_COUNT};
    hir_run whole = run;
    while (whole.passes[whole.n_passes] != HIR_PASS_COUNT)
        whole.n_passes++;
    cr_assert(hir_run_passes(b->m, &whole, &options, NULL, &b->diags), "%s", bench_errors(b));
    hd_arena_free(a);
    return b;
}

typedef enum limit {
    ANYTHING,
    NEVER_ONE,
    SAME,
    NAN_ROW,
    ONE_NAN,
    INFINITIES,
    ALL_NAN,
    LIMITS
} limit;

static const double *const *inputs_at(bench *b, const layer *l, limit at, int64_t tokens,
                                      uint64_t *seed) {
    double **all = hd_new_array(b->arena, double *, 2);
    double *x = all[0] = hd_new_array(b->arena, double, (size_t)(tokens * D));
    double *bias = all[1] = hd_new_array(b->arena, double, (size_t)l->experts);
    double *row = x + tokens / 2 * D;
    for (int64_t i = 0; i < tokens * D; i++)
        x[i] = (double)(2 * random_float(seed));
    if (at == NEVER_ONE) bias[l->experts / 2] = -8; /* the score is at most 1 */
    for (int i = 0; i < l->chosen && at == SAME; i++)
        bias[l->experts - 1 - i] = 8;
    for (int i = 0; i < D; i++) {
        if (at == NAN_ROW) row[i] = NAN;
        if (at == INFINITIES) row[i] = i % 3 ? INFINITY : -INFINITY;
    }
    if (at == ONE_NAN) row[3] = NAN;
    for (int64_t i = 0; i < tokens * D && at == ALL_NAN; i++)
        x[i] = NAN;
    return (const double *const *)all;
}

/* The last result of the layer, as compiled code has left it. */
static const float *result(const rows *r) {
    for (hir_id op = r->b->m->first; op != HIR_NONE; op = hir_op_at(r->b->m, op)->next)
        if (hir_op_at(r->b->m, op)->code == HIR_OUTPUT_OP)
            return r->values[hir_op_at(r->b->m, op)->args[0].index];
    return NULL;
}

static void check_rows(const rows *r, limit at, int64_t tokens, const char *level) {
    const float *y = result(r);
    for (int64_t i = 0; i < tokens * D; i++) {
        const bool bad = at == ALL_NAN || (at >= NAN_ROW && i / D == tokens / 2);
        cr_assert_eq(isnan(y[i]) != 0, bad, "%s, limit %d, token %ld: %g", level, at, (long)(i / D),
                     (double)y[i]);
    }
}

static void check(layer l) {
    static const int64_t calls[] = {1, 2, TOKENS};
    const hcg_level *levels;
    hcg_level tiles;
    const bool with_tiles = level_with_tiles(&tiles);
    for (size_t i = 0, n = hcg_levels(&levels); i <= n; i++) {
        const hcg_level *level = i < n ? &levels[i] : &tiles;
        if (i < n ? !vectors_run(level) || hcg_has_feature(level, "amx-tile") : !with_tiles)
            continue;
        bench *b = open_layer(&l);
        rows r;
        uint64_t seed = 5;
        b->exact = HCG_ROUND_ALL;
        cr_assert(rows_open(&r, b, level, seed), "%s", bench_errors(b));
        for (limit at = ANYTHING; at < LIMITS; at++)
            for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
                r.threads = 1 + (int)c;
                const double e = rows_call(&r, calls[c], 0, inputs_at(b, &l, at, calls[c], &seed));
                cr_assert_lt(e, 2e-5, "%s, %d of %d experts, limit %d, %ld tokens: %g %s",
                             level->name, l.chosen, l.experts, at, (long)calls[c], e,
                             bench_errors(b));
                check_rows(&r, at, calls[c], level->name);
            }
        rows_close(&r);
        close_text(b);
    }
}

Test(expert_layer, some_of_many) {
    check((layer){.experts = 20, .chosen = 3});
}

Test(expert_layer, as_many_as_there_are) {
    check((layer){.experts = 5, .chosen = 5});
    check((layer){.experts = 12, .chosen = 12, .dtype = "bf16"});
}

Test(expert_layer, one_of_a_few) {
    check((layer){.experts = 4, .chosen = 1, .dtype = "bf16"}); /* a router of row operations */
}
