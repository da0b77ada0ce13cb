/* Nests of a few elements (codegen/rowwise/emit/small.c) against the evaluator, at every CPU level
 * of this machine: below and above the sizes that stay in registers, every view between them, and
 * that they do stay there.
 *
 * Tolerance 1e-5 of a result's largest element: f32 rounding (6e-8) through chains of up to thirty
 * operations, and functions of a few ulp. */
#include <criterion/criterion.h>

#include "tests/unit/codegen/rowwise/row_harness.h"

static const double tolerance = 1e-5;
enum { TEXT = 1 << 14 };
#define ADD(...) at += (size_t)snprintf(text + at, TEXT - at, __VA_ARGS__)

/* Three of Sinkhorn's iterations on an n x n matrix of a token; what is left, its transpose, and
 * its product with n rows of 20. */
static const char *sinkhorn(char *text, int n) {
    size_t at = 0;
    ADD("hir 1 kernel @t\narena 65536 per token\nfixed 0\n"
        "func(%%m: f32[T, %d] in input[0], %%x: f32[T, %d, 20] in input[1]) {\n"
        "  %%y, %%c, %%t = " KERNEL("row0") " : f32[T, %d, 20] in output[0], ",
        n * n, n, n);
    ADD("f32[T, %d, %d] in arena[0], f32[T, %d, %d] in arena[32768] {\n", n, n, n, n);
    ADD("    %%e = const {shape = [], value = 1e-06} : f32[]\n"
        "    %%m2 = reshape %%m {shape = [T, %d, %d]} : f32[T, %d, %d]\n"
        "    %%m3 = reduce_max %%m2 {axis = 2} : f32[T, %d]\n",
        n, n, n, n, n);
    ADD("    %%m4 = reshape %%m3 {shape = [T, %d, 1]} : f32[T, %d, 1]\n"
        "    %%m5 = sub %%m2, %%m4 : f32[T, %d, %d]\n"
        "    %%a0 = exp %%m5 : f32[T, %d, %d]\n",
        n, n, n, n, n, n);
    for (int i = 0; i < 6; i++) {
        const bool rows = i % 2 == 0;
        const int a = rows ? n : 1, b = rows ? 1 : n;
        ADD("    %%s%d = reduce_sum %%a%d {axis = %d} : f32[T, %d]\n"
            "    %%r%d = reshape %%s%d {shape = [T, %d, %d]} : f32[T, %d, %d]\n",
            i, i, rows ? 2 : 1, n, i, i, a, b, a, b);
        ADD("    %%d%d = add %%r%d, %%e : f32[T, %d, %d]\n"
            "    %%a%d = div %%a%d, %%d%d : f32[T, %d, %d]\n",
            i, i, a, b, i + 1, i, i, n, n);
    }
    ADD("    %%t0 = transpose %%a6 {perm = [0, 2, 1]} : f32[T, %d, %d]\n"
        "    %%a7 = reshape %%a6 {shape = [T, %d, %d, 1]} : f32[T, %d, %d, 1]\n",
        n, n, n, n, n, n);
    ADD("    %%x1 = reshape %%x {shape = [T, 1, %d, 20]} : f32[T, 1, %d, 20]\n"
        "    %%x2 = mul %%a7, %%x1 : f32[T, %d, %d, 20]\n"
        "    %%x3 = reduce_sum %%x2 {axis = 2} : f32[T, %d, 20]\n",
        n, n, n, n, n);
    ADD("    yield %%x3, %%a6, %%t0\n  }\n  output %%y {name = \"y\"}\n}\n");
    return text;
}

Test(emit_row_small, sinkhorn) {
    char text[TEXT];
    for (int n = 2; n <= 9; n++)
        check_text(sinkhorn(text, n), tolerance);
}

/* Sums, means and maxima over n elements, last and first, read by each of them, by a row of
 * another shape and element by element. */
static const char *reductions(char *text, int n, const char *op) {
    size_t at = 0;
    ADD("hir 1 kernel @t\narena 65536 per token\nfixed 0\nweight @w : f32[%d]\nweight @g : f32[3]\n"
        "func(%%x: f32[T, 3, %d] in input[0], %%z: f32[T, %d, 3] in input[1]) {\n",
        n, n, n);
    ADD("  %%a, %%b, %%c = " KERNEL("row0") " : f32[T, 3, %d] in output[0], f32[T, %d] in "
                                            "arena[0], f32[T] in arena[4096] {\n"
                                            "    %%x1 = mul %%x, @w : f32[T, 3, %d]\n",
        n, n, n);
    ADD("    %%l = %s %%x1 {axis = 2} : f32[T, 3]\n"
        "    %%l1 = mul %%l, @g : f32[T, 3]\n"
        "    %%l2 = reshape %%l1 {shape = [T, 3, 1]} : f32[T, 3, 1]\n"
        "    %%y = add %%x1, %%l2 : f32[T, 3, %d]\n",
        op, n);
    ADD("    %%f = %s %%z {axis = 1} : f32[T, 3]\n"
        "    %%f1 = slice %%f {axis = 1, start = 1, length = 1} : f32[T, 1]\n"
        "    %%v = %s %%z {axis = 2} : f32[T, %d]\n"
        "    %%v1 = mul %%v, %%f1 : f32[T, %d]\n"
        "    %%o = %s %%v1 {axis = 1} : f32[T]\n",
        op, op, n, n, op);
    ADD("    yield %%y, %%v1, %%o\n  }\n  output %%a {name = \"y\"}\n}\n");
    return text;
}

Test(emit_row_small, reductions) {
    static const char *const ops[] = {"reduce_sum", "reduce_mean", "reduce_max"};
    static const int sizes[] = {2, 3, 4, 5, 6, 7, 9, 11, 16, 17, 21, 22};
    char text[TEXT];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int j = 0; j < 3; j++)
            check_text(reductions(text, sizes[i], ops[j]), tolerance);
}

/* A maximum over any number of elements is NaN where one of them is, and -inf of none above. */
Test(emit_row_small, nan_and_infinity) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l])) continue;
        bench *b = open_text(
            "hir 1 kernel @t\narena 400 per token\nfixed 400\n"
            "func(%x: f32[T, 2, 7] in input[0]) {\n"
            "  %a, %s = " KERNEL("row0") " : f32[T, 2] in output[0], f32[T, 2] in arena[0] {\n"
                                         "    %1 = reduce_max %x {axis = 2} : f32[T, 2]\n"
                                         "    %2 = reduce_sum %x {axis = 2} : f32[T, 2]\n"
                                         "    yield %1, %2\n  }\n"
                                         "  output %a {name = \"a\"}\n}\n");
        rows r;
        cr_assert(rows_open(&r, b, &levels[l], 1), "%s", bench_errors(b));
        for (int at = 0; at < 7; at++) {
            double x[14];
            for (int i = 0; i < 14; i++)
                x[i] = i < 7 ? i : -INFINITY;
            x[at] = NAN;
            rows_call(&r, 1, 0, (const double *const[]){x});
            const hir_op *k = hir_op_at(b->m, b->m->first);
            const float *most = r.values[k->results[0]], *sum = r.values[k->results[1]];
            cr_assert(isnan(most[0]) && isnan(sum[0]), "%s, element %d", levels[l].name, at);
            cr_assert(most[1] == -INFINITY && sum[1] == -INFINITY, "%s: %g %g", levels[l].name,
                      (double)most[1], (double)sum[1]);
        }
        rows_close(&r);
        close_text(b);
    }
}

/* Functions of 2 to 5 elements become no calls at any level, this machine's or not. */
Test(emit_row_small, no_calls_at_any_level) {
    static const char *const functions[] = {"exp",      "log",  "tanh",  "sigmoid",
                                            "silu",     "gelu", "sqrt",  "gelu_tanh",
                                            "softplus", "erf",  "rsqrt", "recip"};
    char text[TEXT];
    for (int n = 2; n <= 5; n++) {
        size_t at = 0;
        ADD("hir 1 kernel @t\narena 400 per token\nfixed 400\n"
            "func(%%f0: f32[T, %d] in input[0]) {\n"
            "  %%out = " KERNEL("row0") " : f32[T, %d] in output[0] {\n",
            n, n);
        const int last = sizeof functions / sizeof functions[0];
        for (int i = 0; i < last; i++)
            ADD("    %%f%d = %s %%f%d : f32[T, %d]\n", i + 1, functions[i], i, n);
        ADD("    yield %%f%d\n  }\n  output %%out {name = \"y\"}\n}\n", last);
        check_no_calls(text);
    }
}

/* From the first division to the last a 4 x 4 matrix touches no memory where it fills one register.
 */
Test(emit_row_small, stays_in_registers) {
    const hcg_level *levels;
    size_t l = 0, n = hcg_levels(&levels);
    while (l < n && strcmp(levels[l].name, "avx512") != 0)
        l++;
    cr_assert(l < n);
    char text[TEXT];
    bench *b = open_text(sinkhorn(text, 4));
    const char *code = assemble_kernel(b, HIR_KERNEL_ROW, b->m->first, false, &levels[l]);
    cr_assert(code, "%s", bench_errors(b));
    int divisions = 0;
    for (const char *at = code, *next; (next = strstr(at, "vdivps")); at = next + 6, divisions++) {
        const char *memory = divisions ? strstr(at, "(%r") : NULL;
        cr_assert(!memory || memory > next, "%s", code);
    }
    cr_assert_gt(divisions, 1, "%s", code);
    close_text(b);
}
