/* Gradients of matrices (codegen/contract/weight_grad.c) against the evaluator, at every CPU level of
 * this machine: odd sizes, few rows, few columns, one token and many, groups, experts with many rows
 * and with none.
 *
 * Tolerance 5e-6 of the largest element: f32 rounding (6e-8) over sums of up to 600 products.
 *
 * With --matmul-dtype bf16 the same holds for the rounded factors, and what they are rounded to is
 * known: the nearest bf16. So factors that are rounded beforehand give the same bits, and a product is
 * off by |dy x| (2^-8 + 2^-18) at most, 2^-9 for each factor. */
#include "support/halves.h"
#include "tests/unit/codegen/gradient/gradient_harness.h"

typedef struct layer {
    int64_t n, k;
    int64_t matrices; /* groups, or experts */
    int64_t slots;    /* choices of a token; of linear_grad, rows of a token, 0: it is one */
    bool each;        /* a row of x for each choice */
} layer;

static const double TOLERANCE = 5e-6;

/* A kernel with the op `op` of operands with these dims after T, and result dims `y`; `rest`: more
 * operands and the attributes. */
static const char *text_of(hd_arena *a, const char *op, const char *dy, const char *x,
                           const char *y, const char *input, const char *rest) {
    static unsigned turn; /* of setting and adding */
    return hd_printf(a,
                     "hir 1 kernel @g\nfunc(%%dy: f32[T, %s], %%x: f32[T, %s]%s) {\n"
                     "  %%y = " GRADIENT_KERNEL " : f32[%s] {\n"
                     "    %%1 = %s %%dy, %%x%s : f32[%s]\n    yield %%1\n  }\n"
                     "  output %%y {name = \"%s\"}\n}\n",
                     dy, x, input, y, op, rest, y, turn++ % 2 ? "y" : "grad.w");
}

static const char *dims(hd_arena *a, int64_t first, int64_t second) {
    if (!first) return hd_printf(a, "%ld", (long)second);
    return hd_printf(a, "%ld, %ld", (long)first, (long)second);
}

/* ---- rounded factors ------------------------------------------------------------------------- */
static void round_inputs(gradient_problem *p) {
    for (size_t i = 0; i < p->b.m->inputs.n; i++) {
        const hir_type t = hir_value_at(p->b.m, p->b.m->inputs.at[i])->type;
        for (size_t k = 0; t.dtype == HIR_F32 && k < gradient_elements(p, t); k++)
            p->in[i][k] = hd_bf16_to_f32(hd_bf16_from_f32(p->in[i][k]));
    }
}

/* The result of the kernel before its inputs are rounded. */
static float *unrounded(gradient_problem *p, const hcg_level *level) {
    float *out[GRADIENT_OPERANDS];
    compiled c;
    const hir_kernel_kind kind = hir_kind_of(hir_op_at(p->b.m, p->kernel)->code);
    cr_assert(compile_kernel(&p->b, kind, p->kernel, p->t == 1, level, &c), "%s: %s", level->name,
              bench_errors(&p->b));
    gradient_run(p, &c, false, out);
    compiled_free(&c);
    return out[0];
}

static void check_rounded(const char *text, int64_t tokens, int64_t ids, uint64_t seed,
                          const hcg_level *level) {
    gradient_problem p;
    gradient_open(&p, text, tokens, ids, seed);
    p.b.matmul = HIR_BF16;
    float *exact = unrounded(&p, level);
    round_inputs(&p);
    float *rounded = unrounded(&p, level);
    const hir_id y = hir_op_at(p.b.m, p.kernel)->results[0];
    const size_t n = gradient_elements(&p, hir_value_at(p.b.m, y)->type);
    cr_assert_eq(memcmp(exact, rounded, n * sizeof *exact), 0,
                 "%s: factors are not rounded to the nearest bf16", level->name);
    guarded_free(exact), guarded_free(rounded);
    gradient_evaluate(&p);
    gradient_check_level(&p, level, TOLERANCE);
    gradient_close(&p);
}

/* In f32 at each level, and rounded at each that gains by it, a matrix unit among them. */
static void check(const char *text, int64_t tokens, int64_t ids, uint64_t seed) {
    const hcg_level *levels;
    hcg_level tiles;
    const size_t n = hcg_levels(&levels);
    gradient_check(text, tokens, ids, seed, TOLERANCE);
    for (size_t i = 0; i < n; i++)
        if (level_runs(&levels[i]) && hcg_multiplies_bf16(&levels[i]))
            check_rounded(text, tokens, ids, seed, &levels[i]);
    if (level_with_tiles(&tiles) && strcmp(tiles.name, "emulated") == 0 &&
        hcg_multiplies_bf16(&tiles))
        check_rounded(text, tokens, ids, seed, &tiles);
}

/* A level without such products has none to emit, and says so before LLVM sees any. */
Test(emit_weight_grad, not_rounded_where_nothing_multiplies_bf16) {
    const hcg_level *levels;
    const size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++) {
        if (!level_runs(&levels[i]) || hcg_multiplies_bf16(&levels[i])) continue;
        hd_arena *a = hd_arena_new();
        gradient_problem p;
        gradient_open(&p, text_of(a, "linear_grad", "16", "16", "16, 16", "", ""), 2, 1, 1);
        p.b.matmul = HIR_BF16;
        compiled c;
        const hir_kernel_kind kind = hir_kind_of(hir_op_at(p.b.m, p.kernel)->code);
        cr_expect_not(compile_kernel(&p.b, kind, p.kernel, false, &levels[i], &c));
        cr_expect(strstr(bench_errors(&p.b), "cannot be rounded to bf16"), "%s: %s", levels[i].name,
                  bench_errors(&p.b));
        gradient_close(&p);
        hd_arena_free(a);
    }
}

static void check_linear(layer l, int64_t tokens) {
    hd_arena *a = hd_arena_new();
    check(text_of(a, "linear_grad", dims(a, l.slots, l.n), dims(a, l.slots, l.k), dims(a, l.n, l.k),
                  "", ""),
          tokens, 1, (uint64_t)(l.n + l.k));
    hd_arena_free(a);
}

static void check_groups(layer l, int64_t tokens) {
    hd_arena *a = hd_arena_new();
    check(text_of(a, "block_linear_grad", dims(a, l.matrices, l.n), dims(a, l.matrices, l.k),
                  hd_printf(a, "%ld, %s", (long)l.matrices, dims(a, l.n, l.k)), "", ""),
          tokens, 1, (uint64_t)l.n);
    hd_arena_free(a);
}

/* Ids are from -2 to one more than there are experts. */
static void check_experts(layer l, int64_t tokens) {
    hd_arena *a = hd_arena_new();
    const char *ids = hd_printf(a, ", %%ids: i32[T, %ld]", (long)l.slots);
    const char *rest = hd_printf(a, ", %%ids {length = %ld}", (long)l.matrices);
    check(text_of(a, "expert_linear_grad", dims(a, l.slots, l.n),
                  dims(a, l.each ? l.slots : 0, l.k),
                  hd_printf(a, "%ld, %s", (long)l.matrices, dims(a, l.n, l.k)), ids, rest),
          tokens, l.matrices + 2, (uint64_t)l.k);
    hd_arena_free(a);
}

Test(emit_weight_grad, linear) {
    check_linear((layer){.n = 1, .k = 1}, 3);
    check_linear((layer){.n = 37, .k = 19}, 129);
    check_linear((layer){.n = 64, .k = 48}, 128);
    check_linear((layer){.n = 100, .k = 310}, 1);
    check_linear((layer){.n = 33, .k = 300}, 300);
    check_linear((layer){.n = 31, .k = 17, .slots = 2}, 100); /* [T, 2, N] */
}

/* One row of y and few; few columns, which are made as a transpose. */
Test(emit_weight_grad, narrow) {
    check_linear((layer){.n = 1, .k = 600}, 130);
    check_linear((layer){.n = 9, .k = 290}, 3);
    check_linear((layer){.n = 3, .k = 2}, 1);
    check_linear((layer){.n = 600, .k = 1}, 130);
    check_linear((layer){.n = 293, .k = 7}, 3);
    check_linear((layer){.n = 40, .k = 15}, 1);
    check_linear((layer){.n = 291, .k = 16}, 257);
}

/* More rows than a block of y has at any level, and more tokens than a block of a matrix unit. */
Test(emit_weight_grad, several_blocks) {
    check_linear((layer){.n = 900, .k = 33}, 140);
    check_linear((layer){.n = 50, .k = 40}, 531);
}

Test(emit_weight_grad, groups) {
    check_groups((layer){.n = 20, .k = 33, .matrices = 3}, 129);
    check_groups((layer){.n = 33, .k = 5, .matrices = 2}, 3);
    check_groups((layer){.n = 16, .k = 16, .matrices = 1}, 1);
}

/* With few tokens some experts have none. */
Test(emit_weight_grad, experts) {
    check_experts((layer){.n = 40, .k = 50, .matrices = 5, .slots = 2}, 150);
    check_experts((layer){.n = 40, .k = 50, .matrices = 5, .slots = 2}, 1);
    check_experts((layer){.n = 17, .k = 300, .matrices = 3, .slots = 2, .each = true}, 200);
    check_experts((layer){.n = 33, .k = 6, .matrices = 9, .slots = 3}, 3);
    check_experts((layer){.n = 33, .k = 6, .matrices = 3, .slots = 2, .each = true}, 129);
    check_experts((layer){.n = 8, .k = 20, .matrices = 1, .slots = 1}, 300);
}

/* A cache has its rows head by head, and only f32 is read. */
Test(emit_weight_grad, factors_that_are_rejected) {
    static const struct {
        const char *state, *says;
    } cases[] = {{"f32", "needs rows of tokens"}, {"bf16", "a factor is not f32"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b = bench_new();
        bench_start(&b);
        const char *state = cases[i].state;
        b.m = hir_parse(
            b.arena, &b.diags, "test.hir",
            hd_printf(b.arena,
                      "hir 1 kernel @g\nstate $k : %s[C, 1, 8]\nfunc(%%x: f32[T, 1, 8]) {\n"
                      "  %%c = kernel.row {name = \"row0\", rows = \"all\", split_decode = "
                      "\"none\", split_prefill = \"rows\"} : %s[C, 1, 8] {\n"
                      "    %%1 = cache_append %%x, $k : %s[C, 1, 8]\n    yield %%1\n  }\n"
                      "  %%y = " GRADIENT_KERNEL " : f32[8, 8] {\n"
                      "    %%2 = linear_grad %%c, %%c : f32[8, 8]\n    yield %%2\n  }\n"
                      "  output %%y {name = \"y\"}\n}\n",
                      state, state, state));
        cr_assert(b.m, "%s", bench_errors(&b));
        cr_expect_not(hir_verify_kernels(b.m, &b.diags));
        cr_expect(strstr(bench_errors(&b), cases[i].says), "%s", bench_errors(&b));
        bench_free(&b);
    }
}
