/* Prologues and per-head epilogues of contractions of random shapes at every CPU level: a norm as
 * prologue, and norms by heads, rotation of all or part of a head, sums with old values and the
 * write to a cache as epilogues, cut among random numbers of threads, against the evaluator.
 *
 * Bound: values pass a sum of at most 200 products and two norms, all in f32: 2e-5 of the largest
 * element leaves a factor of ten. What is rounded to a cache of bf16 or f16 may fall to the other
 * side of the middle of two: 2^-8 and 2^-11 of an element (docs/testing.md). */
#include <criterion/criterion.h>
#include <criterion/theories.h>

#include "passes/pass.h"
#include "tests/unit/codegen/rowwise/row_harness.h"

typedef struct shape {
    int64_t k, heads, groups, n, rotated;
    int norm;      /* 0: none, 1: rmsnorm, 2: layernorm */
    int64_t start; /* of what rotates */
    bool bias, old, prologue;
    bool cut;      /* what rotates is cut out of the head and put back */
    bool adjacent; /* the pairs */
    hir_dtype cache, weights;
    double scale; /* of x */
} shape;

static shape random_shape(uint64_t *seed) {
    static const int64_t heads[] = {2, 4, 6, 8, 12, 16, 24, 40, 64, 100, 128, 256};
    static const hir_dtype caches[] = {HIR_F32, HIR_BF16, HIR_F16};
    static const hir_dtype weights[] = {HIR_F32, HIR_BF16, HIR_F16, HIR_Q8};
    static const double scales[] = {1, 1, 1e18, 1e-18};
    shape s = {.k = 1 + random_below(seed, 200), .n = heads[random_below(seed, 12)]};
    s.groups = 1 + random_below(seed, 3);
    s.heads = s.groups * (1 + random_below(seed, 3));
    s.rotated = random_below(seed, 3) ? s.n : s.n / 2 / 2 * 2;
    s.norm =
        (int)random_below(seed, s.n < 8 ? 2 : 3); /* of two elements a layernorm keeps a sign */
    s.bias = random_below(seed, 2), s.old = random_below(seed, 2);
    s.prologue = random_below(seed, 3);
    s.cache = caches[random_below(seed, 3)];
    s.weights = weights[random_below(seed, 4)];
    s.scale = s.prologue ? scales[random_below(seed, 4)] : 1;
    s.cut = s.rotated < s.n && random_below(seed, 2), s.adjacent = random_below(seed, 2);
    if (!s.cut) s.start = random_below(seed, s.n - s.rotated + 1);
    return s;
}

/* One of q, k, v from %x as %NAME; `h` heads. */
static void project(hd_text *t, const shape *s, const char *name, int64_t h, bool rotate) {
    const long n = (long)s->n, r = (long)s->rotated, hn = (long)h;
    const char *last = "1";
    hd_text_f(t, "  %%%s0 = linear %%n, @%s, ", name, name);
    hd_text_f(t, s->bias ? "@%s.bias" : "_", name);
    hd_text_f(t, " : f32[T, %ld]\n", hn * n);
    hd_text_f(t, "  %%%s1 = reshape %%%s0 {shape = [T, %ld, %ld]} : f32[T, %ld, %ld]\n", name, name,
              hn, n, hn, n);
    if (s->norm && rotate) {
        hd_text_f(
            t, s->norm == 1 ? "  %%%s2 = rmsnorm %%%s1, @g" : "  %%%s2 = layernorm %%%s1, @g, @g",
            name, name);
        hd_text_f(t, " {eps = 1e-06} : f32[T, %ld, %ld]\n", hn, n);
        last = "2";
    }
    if (!rotate || r == 0) {
        hd_text_f(t, "  %%%s = mul %%%s%s, @one : f32[T, %ld, %ld]\n", name, name, last, hn, n);
    } else if (!s->cut) {
        hd_text_f(
            t, "  %%%s = rope %%%s%s, %%table {start = %ld, pairs = \"%s\"} : f32[T, %ld, %ld]\n",
            name, name, last, (long)s->start, s->adjacent ? "adjacent" : "halves", hn, n);
    } else {
        hd_text_f(t,
                  "  %%%s3 = slice %%%s%s {axis = 2, start = 0, length = %ld} : f32[T, %ld, %ld]\n",
                  name, name, last, r, hn, r);
        hd_text_f(t, "  %%%s4 = rope %%%s3, %%table : f32[T, %ld, %ld]\n", name, name, hn, r);
        hd_text_f(
            t, "  %%%s5 = slice %%%s%s {axis = 2, start = %ld, length = %ld} : f32[T, %ld, %ld]\n",
            name, name, last, r, n - r, hn, n - r);
        hd_text_f(t, "  %%%s = concat %%%s4, %%%s5 {axis = 2} : f32[T, %ld, %ld]\n", name, name,
                  name, hn, n);
    }
}

static const char *text_of(hd_arena *a, const shape *s) {
    static const char *const names[] = {"q", "k", "v"};
    const long n = (long)s->n, g = (long)s->groups, h = (long)s->heads, k = (long)s->k;
    const char *cache = hir_dtype_name(s->cache);
    hd_text t;
    hd_text_init(&t, a);
    hd_text_f(&t, "hir 1 graph @f\n\nweight @g : f32[%ld]\nweight @one : f32[1]\n", n);
    hd_text_f(&t, "weight @in : f32[%ld]\n", k);
    for (int i = 0; i < 3; i++) {
        const long columns = (i ? g : h) * n;
        hd_text_f(&t, "weight @%s : f32[%ld, %ld]\nweight @%s.bias : f32[%ld]\n", names[i], columns,
                  k, names[i], columns);
    }
    hd_text_f(&t, "\nstate $k : %s[C, %ld, %ld]\nstate $v : %s[C, %ld, %ld]\n\n", cache, g, n,
              cache, g, n);
    hd_text_f(&t, "func(%%x: f32[T, %ld], %%table: f32[T, %ld], %%old: f32[T, %ld, %ld]) {\n", k,
              (long)(s->rotated ? s->rotated : 2), g, n);
    hd_text_f(&t,
              s->prologue ? "  %%n = rmsnorm %%x, @in {eps = 1e-06} : f32[T, %ld]\n"
                          : "  %%n = neg %%x : f32[T, %ld]\n",
              k);
    project(&t, s, "q", h, true);
    project(&t, s, "k", g, true);
    project(&t, s, "v", g, false);
    if (s->old) hd_text_f(&t, "  %%w = add %%v, %%old : f32[T, %ld, %ld]\n", g, n);
    hd_text_f(&t, "  %%kc = cache_append %%k, $k : %s[C, %ld, %ld]\n", cache, g, n);
    hd_text_f(&t, "  %%vc = cache_append %%%s, $v : %s[C, %ld, %ld]\n", s->old ? "w" : "v", cache,
              g, n);
    hd_text_add(&t, "  output %q {name = \"q\"}\n}\n");
    return t.at;
}

/* Kernels, and whether one of them is a row program. */
static bool make_kernels(bench *b, const shape *s, size_t *rows) {
    hir_compile_options options = {.matrix_dtype = s->weights, .chunk = 512};
    hir_run run = {.passes = hir_pipeline(), .stop_after = HIR_PASS_COUNT, .verify = true};
    while (run.passes[run.n_passes] != HIR_PASS_COUNT)
        run.n_passes++;
    const char *text = text_of(b->arena, s);
    b->m = hir_parse(b->arena, &b->diags, "head_epilogue.hir", hd_strdup(b->arena, text));
    if (!b->m || !hir_run_passes(b->m, &run, &options, NULL, &b->diags)) return false;
    *rows = 0;
    HIR_EACH(b->m, op, b->m->first)
    *rows += hir_op_at(b->m, op)->code == HIR_KERNEL_ROW_OP;
    return true;
}

static double *random_input(bench *b, uint64_t *seed, hir_type t, int64_t tokens, double scale) {
    int64_t n = hir_type_row_elements(t) * tokens;
    double *x = hd_new_array(b->arena, double, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)(float)((double)random_float(seed) * scale);
    return x;
}

static double bound(const shape *s) {
    return s->cache == HIR_BF16 ? 1e-2 : s->cache == HIR_F16 ? 2e-3 : 2e-5;
}

static void check_level(const hcg_level *level, uint64_t seed) {
    bench *b = malloc(sizeof *b);
    *b = bench_new();
    bench_start(b);
    b->exact = HCG_ROUND_ALL;
    uint64_t random = seed * 2654435761u + 1;
    for (int i = 0; i < 8; i++)
        random_bits(&random);
    shape s = random_shape(&random);
    size_t row_programs;
    cr_assert(make_kernels(b, &s, &row_programs), "%s", bench_errors(b));
    bool wide = hir_head_panels(s.n) > HIR_HEAD_PANELS;
    bool small = s.groups * s.n <= 8; /* no contraction: split-small-contractions */
    cr_expect(small || row_programs == (wide ? 1 : 0), "n = %ld: %zu row programs", (long)s.n,
              row_programs);
    rows r;
    cr_assert(rows_open(&r, b, level, seed), "%s: %s", level->name, bench_errors(b));
    for (int64_t call = 0; call < 4; call++) {
        int64_t tokens = call == 1 ? 1 : 1 + random_below(&random, 15);
        const double *in[3];
        for (size_t i = 0; i < 3; i++)
            in[i] = random_input(b, &random, hir_value_at(b->m, b->m->inputs.at[i])->type, tokens,
                                 i ? 1 : s.scale);
        r.threads = 1 + (int)random_below(&random, 9);
        double worst = rows_call(&r, tokens, 0, in);
        cr_assert_leq(worst, bound(&s), "%s: %.3g with %d threads, %ld tokens\n%s", level->name,
                      worst, r.threads, (long)tokens, text_of(b->arena, &s));
    }
    rows_close(&r);
    bench_free(b);
    free(b);
}

TheoryDataPoints(head_epilogue, random_shapes) = {
    DataPoints(uint64_t, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
};

Theory((uint64_t seed), head_epilogue, random_shapes) {
    const hcg_level *levels;
    size_t n = hcg_levels(&levels);
    for (size_t i = 0; i < n; i++)
        if (products_run(&levels[i], HCG_ROUND_ALL, HIR_F32, HIR_LAYOUT_PANEL) &&
            has_turn(seed + levels[i].lanes / 8, 2))
            check_level(&levels[i], seed * 5 + i);
}
