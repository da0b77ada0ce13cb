/* Row programs that sum over tokens, against the evaluator at every CPU level of this machine: rows,
 * products of two rows, sums of both, beside results that have a row for each token. However the parts
 * of the tokens are divided, the bits are the same. */
#include "tests/unit/codegen/gradient/gradient_harness.h"

#define ROW_KERNEL                                                                                 \
    "kernel.row {name = \"r\", rows = \"all\", split_decode = \"channels\", split_prefill = "      \
    "\"channels\"}"

/* A gain's gradient, those of `s` queries from two sources, and a few numbers. */
static const char *text_of(hd_arena *a, int64_t s, int64_t n, const char *name) {
    const char *sn = hd_printf(a, "f32[%ld, %ld]", s, n), *row = hd_printf(a, "f32[T, %ld]", n);
    hd_text t;
    hd_text_init(&t, a);
    hd_text_f(&t, "hir 1 kernel @r\nfunc(%%e: f32[T, %ld], %%x: %s, %%y: %s) {\n", s, row, row);
    hd_text_f(&t, "  %%r, %%g, %%q, %%b = " ROW_KERNEL " : %s, f32[%ld], f32[%ld], f32[%ld] {\n",
              row, n, s * n, s);
    hd_text_f(&t, "    %%1 = mul %%x, %%y : %s\n    %%2 = sum_tokens %%1 : f32[%ld]\n", row, n);
    hd_text_f(&t, "    %%3 = mul %%e, %%e : f32[T, %ld]\n    %%4 = linear_grad %%3, %%x : %s\n", s,
              sn);
    hd_text_f(&t, "    %%5 = add %%1, %%y : %s\n    %%6 = linear_grad %%e, %%5 : %s\n", row, sn);
    hd_text_f(&t, "    %%7 = add %%4, %%6 : %s\n", sn);
    hd_text_f(&t, "    %%8 = reshape %%7 {shape = [%ld]} : f32[%ld]\n", s * n, s * n);
    hd_text_f(&t, "    %%9 = sum_tokens %%3 : f32[%ld]\n    yield %%5, %%2, %%8, %%9\n  }\n", s);
    hd_text_f(&t, "  output %%r {name = \"rows\"}\n  output %%g {name = \"%sg\"}\n", name);
    hd_text_f(&t, "  output %%q {name = \"%sq\"}\n  output %%b {name = \"b\"}\n}\n", name);
    return t.at;
}

Test(emit_row_sums, rows_and_products) {
    static const int64_t cases[][3] = {{1, 1, 1},  {1, 3, 40},   {2, 1, 17},  {31, 5, 64},
                                       {33, 2, 7}, {64, 16, 48}, {65, 9, 31}, {300, 3, 100}};
    hd_arena *a = hd_arena_new();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        gradient_check(text_of(a, cases[i][1], cases[i][2], i % 2 ? "" : "grad."), cases[i][0], 1,
                       i, 1e-6);
    hd_arena_free(a);
}

/* More tokens than the parts have at least. */
Test(emit_row_sums, many_tokens) {
    hd_arena *a = hd_arena_new();
    gradient_check(text_of(a, 2, 20, "grad."), 2100, 1, 1, 1e-6);
    hd_arena_free(a);
}

/* As of a block with so many sources that what a token adds is added up in several steps. */
Test(emit_row_sums, many_sources) {
    enum { SOURCES = 35, N = 24 };
    hd_arena *a = hd_arena_new();
    hd_text t;
    hd_text_init(&t, a);
    hd_text_f(&t,
              "hir 1 kernel @r\nfunc(%%e: f32[T, 4], %%x: f32[T, %d]) {\n  %%q = " ROW_KERNEL
              " : f32[4, %d] {\n    %%p0 = linear_grad %%e, %%x : f32[4, %d]\n",
              N, N, N);
    for (int i = 1; i < SOURCES; i++)
        hd_text_f(
            &t,
            "    %%c%d = const {shape = [], value = %d} : f32[]\n"
            "    %%e%d = mul %%e, %%c%d : f32[T, 4]\n    %%s%d = linear_grad %%e%d, %%x : f32[4, "
            "%d]\n    %%p%d = add %%p%d, %%s%d : f32[4, %d]\n",
            i, i % 5 - 2, i, i, i, i, N, i, i - 1, i, N);
    hd_text_f(&t, "    yield %%p%d\n  }\n  output %%q {name = \"grad.q\"}\n}\n", SOURCES - 1);
    gradient_check(t.at, 70, 1, 3, 1e-6);
    hd_arena_free(a);
}
