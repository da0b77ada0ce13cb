/* Row programs against the evaluator, at every CPU level of this machine: the programs of a
 * decoder, depth mixes, caches, tables, odd sizes, and refusals.
 *
 * Tolerance 1e-5 of a result's largest element: f32 rounding (6e-8) over sums of up to a few
 * thousand terms, split over lanes, and functions of a few ulp. */
#include <criterion/criterion.h>

#include "tests/unit/row_harness.h"

static const double tolerance = 1e-5;

static bench *open_text(const char *text) {
    bench *b = malloc(sizeof *b);
    *b = bench_new();
    bench_start(b);
    b->m = hir_parse(b->arena, &b->diags, "test.hir", text);
    cr_assert(b->m, "%s\n%s", bench_errors(b), text);
    return b;
}

static void close_text(bench *b) {
    bench_free(b);
    free(b);
}

static const double *const *random_inputs(bench *b, int64_t tokens, int64_t vocab, uint64_t *seed) {
    double **all = hd_new_array(b->arena, double *, b->m->inputs.n + 1);
    for (size_t i = 0; i < b->m->inputs.n; i++) {
        hir_type t = hir_value_at(b->m, b->m->inputs.at[i])->type;
        int64_t n = hir_type_row_elements(t) * (hir_type_has_t(t) ? tokens : 1);
        all[i] = hd_new_array(b->arena, double, (size_t)n);
        for (int64_t j = 0; j < n; j++)
            all[i][j] = t.dtype == HIR_I32 ? (double)random_below(seed, vocab)
                                           : (double)(2 * random_float(seed));
    }
    return (const double *const *)all;
}

/* A prefill, cut in two as by threads, and a token after it, at all levels. */
static void check(const char *text) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!level_runs(&levels[l])) continue;
        bench *b = open_text(text);
        rows r;
        uint64_t seed = 7 + l;
        cr_assert(rows_open(&r, b, &levels[l], seed), "%s", bench_errors(b));
        bool tokens = b->m->inputs.n > 0 || b->m->states.n > 0;
        double e = rows_call(&r, 5, tokens ? 2 : 0, random_inputs(b, 5, 19, &seed));
        cr_assert(e < tolerance, "%s: error %g\n%s\n%s", levels[l].name, e, text, bench_errors(b));
        e = rows_call(&r, 1, 0, random_inputs(b, 1, 19, &seed));
        cr_assert(e < tolerance, "%s: error %g at a later token\n%s", levels[l].name, e, text);
        rows_close(&r);
        close_text(b);
    }
}

#define KERNEL(name)                                                                               \
    "kernel.row {name = \"" name "\", rows = \"all\", split_one = \"none\", split_many = "         \
    "\"rows\"}"

static char *print(char *to, size_t n, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(to, n, format, args);
    va_end(args);
    return to;
}

static const int64_t widths[] = {1, 3, 4, 8, 15, 16, 17, 48, 96, 130, 300};
enum { N_WIDTHS = sizeof widths / sizeof widths[0] };

Test(emit_row, residual_and_rmsnorm) {
    char text[4096];
    for (int i = 0; i < N_WIDTHS; i++) {
        int d = (int)widths[i];
        check(print(
            text, sizeof text,
            "hir 1 kernel @t\narena %d per token\nfixed 0\n"
            "weight @g : f32[%d]\n"
            "func(%%x: f32[T, %d] in input[0], %%y: f32[T, %d] in input[1]) {\n"
            "  %%0, %%1 = " KERNEL("row0") " : f32[T, %d] in arena[0], f32[T, %d] in output[0] {\n"
                                           "    %%2 = add %%x, %%y : f32[T, %d]\n"
                                           "    %%3 = mul %%2, %%2 : f32[T, %d]\n"
                                           "    %%4 = reduce_mean %%3 {axis = 1} : f32[T]\n"
                                           "    %%5 = const {value = 1e-06, shape = []} : f32[]\n"
                                           "    %%6 = add %%4, %%5 : f32[T]\n"
                                           "    %%7 = rsqrt %%6 : f32[T]\n"
                                           "    %%8 = reshape %%7 {shape = [T, 1]} : f32[T, 1]\n"
                                           "    %%9 = mul %%2, %%8 : f32[T, %d]\n"
                                           "    %%10 = mul %%9, @g : f32[T, %d]\n"
                                           "    yield %%2, %%10\n  }\n"
                                           "  output %%1 {name = \"y\"}\n}\n",
            d * 4, d, d, d, d, d, d, d, d, d));
    }
}

/* softmax over sources of <rmsnorm(source), query>, then the mix of the raw sources, and the norm
 * of the next sublayer: one stack of n rows, never copied. */
static void depth_mix(int n, int d) {
    static char text[65536];
    size_t at = 0;
#define ADD(...) at += (size_t)snprintf(text + at, sizeof text - at, __VA_ARGS__)
    ADD("hir 1 kernel @t\narena %d per token\nfixed 0\nweight @q : f32[%d]\nweight @g : f32[%d]\n",
        d * 4, d, d);
    ADD("func(");
    for (int i = 0; i < n; i++)
        ADD("%s%%x%d: f32[T, %d] in input[%d]", i ? ", " : "", i, d, i);
    ADD(") {\n  %%mix, %%out = " KERNEL(
            "row0") " : f32[T, %d] in arena[0], f32[T, %d] in output[0] {\n",
        d, d);
    ADD("    %%live = add %%x0, %%x%d : f32[T, %d]\n", n - 1, d);
    ADD("    %%v = stack ");
    for (int i = 0; i < n; i++)
        ADD("%%x%d, ", i);
    ADD("%%live {axis = 1} : f32[T, %d, %d]\n", n + 1, d);
    int s = n + 1;
    ADD("    %%sq = mul %%v, %%v : f32[T, %d, %d]\n", s, d);
    ADD("    %%ms = reduce_mean %%sq {axis = 2} : f32[T, %d]\n", s);
    ADD("    %%eps = const {value = 1e-06, shape = []} : f32[]\n");
    ADD("    %%me = add %%ms, %%eps : f32[T, %d]\n", s);
    ADD("    %%rs = rsqrt %%me : f32[T, %d]\n", s);
    ADD("    %%rs1 = reshape %%rs {shape = [T, %d, 1]} : f32[T, %d, 1]\n", s, s);
    ADD("    %%k = mul %%v, %%rs1 : f32[T, %d, %d]\n", s, d);
    ADD("    %%kq = mul %%k, @q : f32[T, %d, %d]\n", s, d);
    ADD("    %%l = reduce_sum %%kq {axis = 2} : f32[T, %d]\n", s);
    ADD("    %%m = reduce_max %%l {axis = 1} : f32[T]\n");
    ADD("    %%m1 = reshape %%m {shape = [T, 1]} : f32[T, 1]\n");
    ADD("    %%c = sub %%l, %%m1 : f32[T, %d]\n", s);
    ADD("    %%e = exp %%c : f32[T, %d]\n", s);
    ADD("    %%z = reduce_sum %%e {axis = 1} : f32[T]\n");
    ADD("    %%z1 = reshape %%z {shape = [T, 1]} : f32[T, 1]\n");
    ADD("    %%p = div %%e, %%z1 : f32[T, %d]\n", s);
    ADD("    %%p1 = reshape %%p {shape = [T, %d, 1]} : f32[T, %d, 1]\n", s, s);
    ADD("    %%pv = mul %%p1, %%v : f32[T, %d, %d]\n", s, d);
    ADD("    %%h = reduce_sum %%pv {axis = 1} : f32[T, %d]\n", d);
    ADD("    %%hh = mul %%h, %%h : f32[T, %d]\n    %%hm = reduce_mean %%hh {axis = 1} : f32[T]\n",
        d);
    ADD("    %%he = add %%hm, %%eps : f32[T]\n    %%hr = rsqrt %%he : f32[T]\n");
    ADD("    %%hr1 = reshape %%hr {shape = [T, 1]} : f32[T, 1]\n");
    ADD("    %%hn = mul %%h, %%hr1 : f32[T, %d]\n    %%hg = mul %%hn, @g : f32[T, %d]\n", d, d);
    ADD("    yield %%h, %%hg\n  }\n  output %%out {name = \"y\"}\n}\n");
#undef ADD
    check(text);
}

Test(emit_row, depth_mix) {
    for (int i = 0; i < N_WIDTHS; i++)
        if (widths[i] > 1) depth_mix(1 + i % 4, (int)widths[i]);
    depth_mix(30, 96);
}
