/* Kernels that add rows of tokens, against the evaluator at every CPU level of this machine: sums of
 * all tokens, and of those whose id is the same. */
#include "tests/unit/codegen/gradient/gradient_harness.h"

static const char *sum_text(hd_arena *a, int64_t heads, int64_t n, const char *name) {
    return hd_printf(a,
                     "hir 1 kernel @s\nfunc(%%x: f32[T, %ld, %ld]) {\n  %%y = " GRADIENT_KERNEL
                     " : f32[%ld] {\n    %%1 = sum_tokens %%x : f32[%ld, %ld]\n"
                     "    %%2 = reshape %%1 {shape = [%ld]} : f32[%ld]\n    yield %%2\n  }\n"
                     "  output %%y {name = \"%s\"}\n}\n",
                     heads, n, heads * n, heads, n, heads * n, heads * n, name);
}

Test(emit_sums, sum_tokens) {
    static const int64_t shapes[][3] = {{1, 1, 1},   {1, 3, 7},     {17, 1, 64}, {64, 2, 24},
                                        {65, 5, 31}, {200, 1, 300}, {3, 4, 128}, {129, 1, 15}};
    hd_arena *a = hd_arena_new();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        gradient_check(sum_text(a, shapes[i][1], shapes[i][2], i % 2 ? "y" : "grad.w"),
                       shapes[i][0], 1, i, 1e-6);
    hd_arena_free(a);
}

/* Ids of each token, one or several; some name no row. */
static const char *scatter_text(hd_arena *a, int64_t slots, int64_t n, int64_t length,
                                const char *beyond, const char *name) {
    const char *x = slots > 1 ? hd_printf(a, "T, %ld, %ld", slots, n) : hd_printf(a, "T, %ld", n);
    const char *ids = slots > 1 ? hd_printf(a, "T, %ld", slots) : "T";
    return hd_printf(a,
                     "hir 1 kernel @s\nfunc(%%x: f32[%s], %%ids: i32[%s]) {\n  %%y = "
                     "" GRADIENT_KERNEL " : f32[%ld, %ld] {\n"
                     "    %%1 = scatter_rows %%x, %%ids {length = %ld%s} : f32[%ld, %ld]\n"
                     "    yield %%1\n  }\n  output %%y {name = \"%s\"}\n}\n",
                     x, ids, length, n, length, beyond, length, n, name);
}

Test(emit_sums, scatter_rows) {
    static const struct {
        int64_t t, slots, n, length, ids;
        const char *beyond;
    } cases[] = {{1, 1, 1, 1, 1, ""},
                 {1, 1, 40, 7, 7, ""},
                 {30, 1, 64, 5, 9, ""},
                 {50, 3, 17, 11, 11, ""},
                 {70, 2, 100, 4, 20, ", beyond = 2"}};
    hd_arena *a = hd_arena_new();
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++)
        gradient_check(scatter_text(a, cases[i / 2].slots, cases[i / 2].n, cases[i / 2].length,
                                    cases[i / 2].beyond, i % 2 ? "y" : "grad.w"),
                       cases[i / 2].t, cases[i / 2].ids, i, 1e-6);
    hd_arena_free(a);
}
