/* Kernels that add rows of tokens, against the evaluator at every CPU level of this machine: sums of
 * all tokens. */
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
