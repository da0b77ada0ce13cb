/* topk, to_ids, pick, mark and scatter in row programs against the evaluator, at every CPU level of this
 * machine. Ids are exact: what is compared is marks, and elements of the input itself. */
#include <criterion/criterion.h>

#include "tests/unit/codegen/rowwise/row_harness.h"

static void check(const char *text) {
    check_text(text, 1e-6);
}

/* `body` on rows of n elements of which k are chosen; %s is what it chooses by. */
static void choose(const char *scores, int n, int k) {
    hd_arena *a = hd_arena_new();
    check(hd_printf(a,
                    "hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
                    "func(%%x: f32[T, %d] in input[0]) {\n"
                    "  %%p, %%m = " KERNEL(
                        "row0") " : f32[T, %d] in output[0], f32[T, %d] in output[1] {\n"
                                "%s"
                                "    %%ids = topk %%s {k = %d} : i32[T, %d]\n"
                                "    %%2 = pick %%x, %%ids : f32[T, %d]\n"
                                "    %%3 = mark %%ids {length = %d} : f32[T, %d]\n"
                                "    yield %%2, %%3\n  }\n"
                                "  output %%p {name = \"p\"}\n  output %%m {name = \"m\"}\n}\n",
                    n, k, n, scores, k, k, k, n, n));
    hd_arena_free(a);
}

static const int sizes[][2] = {{1, 1},   {2, 1},   {2, 2},   {7, 3},   {8, 8},
                               {15, 4},  {16, 16}, {17, 5},  {64, 6},  {100, 33},
                               {130, 8}, {256, 8}, {257, 1}, {384, 10}};
enum { SIZES = sizeof sizes / sizeof *sizes };

#define SCORES(text) "    %%0 = const {value = 0, shape = []} : f32[]\n" text

Test(emit_selection, largest_first) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < SIZES; i++) {
        const int n = sizes[i][0];
        choose(hd_printf(a, SCORES("    %%s = add %%x, %%0 : f32[T, %d]\n"), n), n, sizes[i][1]);
    }
    hd_arena_free(a);
}

/* Half of the elements are 0: the lower index wins. */
Test(emit_selection, equals_in_order) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < SIZES; i++) {
        const int n = sizes[i][0];
        choose(hd_printf(a, SCORES("    %%s = max %%x, %%0 : f32[T, %d]\n"), n), n, sizes[i][1]);
        choose(hd_printf(a, SCORES("    %%s = mul %%x, %%0 : f32[T, %d]\n"), n), n, sizes[i][1]);
    }
    hd_arena_free(a);
}

/* NaN where x < 0 (sqrt), infinities where it is not (log 0 and 1/0), alone and together. */
Test(emit_selection, nan_and_infinity) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < SIZES; i++) {
        const int n = sizes[i][0], k = sizes[i][1];
        choose(hd_printf(a, SCORES("    %%s = sqrt %%x : f32[T, %d]\n"), n), n, k);
        choose(hd_printf(a,
                         SCORES("    %%1 = max %%x, %%0 : f32[T, %d]\n"
                                "    %%s = log %%1 : f32[T, %d]\n"),
                         n, n),
               n, k);
        choose(hd_printf(a,
                         SCORES("    %%1 = max %%x, %%0 : f32[T, %d]\n"
                                "    %%4 = recip %%1 : f32[T, %d]\n"
                                "    %%5 = sqrt %%x : f32[T, %d]\n"
                                "    %%6 = mul %%0, %%5 : f32[T, %d]\n"
                                "    %%s = add %%4, %%6 : f32[T, %d]\n"),
                         n, n, n, n, n),
               n, k);
        choose(hd_printf(a,
                         SCORES("    %%1 = abs %%x : f32[T, %d]\n    %%4 = neg %%1 : f32[T, %d]\n"
                                "    %%s = sqrt %%4 : f32[T, %d]\n"),
                         n, n, n),
               n, k); /* a row of NaN */
    }
    hd_arena_free(a);
}

/* Ids from 0 to 4 times n, some beyond the row, for rows of every size. */
Test(emit_selection, numbers_as_ids) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < SIZES; i++) {
        const int n = sizes[i][0];
        check(
            hd_printf(a,
                      "hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
                      "func(%%x: f32[T, %d] in input[0]) {\n"
                      "  %%p = " KERNEL("row0") " : f32[T, %d] in output[0] {\n"
                                                "    %%0 = const {value = %d, shape = []} : f32[]\n"
                                                "    %%1 = mul %%x, %%0 : f32[T, %d]\n"
                                                "    %%2 = to_ids %%1 : i32[T, %d]\n"
                                                "    %%3 = pick %%x, %%2 : f32[T, %d]\n"
                                                "    yield %%3\n  }\n"
                                                "  output %%p {name = \"p\"}\n}\n",
                      n, n, n, n, n, n));
    }
    hd_arena_free(a);
}

/* The way back of pick, with ids that come several times and some beyond the row; and pad, whose zeros
 * and x lie side by side, as expand writes it. */
Test(emit_selection, scatter) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < SIZES; i++) {
        const int n = sizes[i][0], length = 1 + n / 2;
        check(
            hd_printf(a,
                      "hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
                      "func(%%x: f32[T, 3, %d] in input[0], %%w: f32[T, 3, %d] in input[1]) {\n"
                      "  %%p, %%q = " KERNEL(
                          "row0") " : f32[T, 3, %d] in output[0], f32[T, 3, %d] in output[1] {\n"
                                  "    %%0 = const {value = %d, shape = []} : f32[]\n"
                                  "    %%1 = mul %%x, %%0 : f32[T, 3, %d]\n"
                                  "    %%2 = to_ids %%1 : i32[T, 3, %d]\n"
                                  "    %%3 = exp %%w : f32[T, 3, %d]\n"
                                  "    %%4 = scatter %%3, %%2 {length = %d} : f32[T, 3, %d]\n"
                                  "    %%5 = const {value = 0, shape = [T, 3, 5]} : f32[T, 3, 5]\n"
                                  "    %%6 = concat %%5, %%3 {axis = 2} : f32[T, 3, %d]\n"
                                  "    yield %%4, %%6\n  }\n"
                                  "  output %%p {name = \"p\"}\n  output %%q {name = \"q\"}\n}\n",
                      n, n, length, n + 5, n, n, n, n, length, length, n + 5));
    }
    hd_arena_free(a);
}

/* Choices of groups, and what a choice is made of: other choices, weights, slices, stretched rows.
 */
Test(emit_selection, groups) {
    check(
        "hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
        "weight @b : f32[24]\n"
        "func(%x: f32[T, 24] in input[0]) {\n"
        "  %w, %m = " KERNEL("row0") " : f32[T, 5] in output[0], f32[T, 24] in output[1] {\n"
                                     "    %1 = sigmoid %x : f32[T, 24]\n"
                                     "    %2 = add %1, @b : f32[T, 24]\n"
                                     "    %3 = reshape %2 {shape = [T, 6, 4]} : f32[T, 6, 4]\n"
                                     "    %4 = topk %3 {k = 2} : i32[T, 6, 2]\n"
                                     "    %5 = pick %3, %4 : f32[T, 6, 2]\n"
                                     "    %6 = reduce_sum %5 {axis = 2} : f32[T, 6]\n"
                                     "    %7 = topk %6 {k = 3} : i32[T, 3]\n"
                                     "    %8 = mark %7 {length = 6} : f32[T, 6]\n"
                                     "    %9 = reshape %8 {shape = [T, 6, 1]} : f32[T, 6, 1]\n"
                                     "    %10 = log %9 : f32[T, 6, 1]\n"
                                     "    %11 = add %3, %10 : f32[T, 6, 4]\n"
                                     "    %12 = reshape %11 {shape = [T, 24]} : f32[T, 24]\n"
                                     "    %13 = topk %12 {k = 5} : i32[T, 5]\n"
                                     "    %14 = pick %1, %13 : f32[T, 5]\n"
                                     "    %15 = reduce_sum %14 {axis = 1} : f32[T]\n"
                                     "    %16 = reshape %15 {shape = [T, 1]} : f32[T, 1]\n"
                                     "    %17 = div %14, %16 : f32[T, 5]\n"
                                     "    %18 = mark %13 {length = 24} : f32[T, 24]\n"
                                     "    yield %17, %18\n  }\n"
                                     "  output %w {name = \"w\"}\n  output %m {name = \"m\"}\n}\n");
}

Test(emit_selection, operands_of_every_sort) {
    check("hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
          "weight @b : f32[9]\nweight @c : f32[2, 9]\n"
          "func(%x: f32[T, 2, 9] in input[0], %u: f32[T, 1, 9] in input[1]) {\n"
          "  %a, %b, %c, %d = " KERNEL(
              "row0") " : f32[T, 2, 3] in output[0], f32[T, 2, 3] in output[1], f32[T, 2, 3] in "
                      "output[2], f32[T, 9, 2] in output[3] {\n"
                      "    %1 = topk %x {k = 3} : i32[T, 2, 3]\n"
                      "    %2 = pick @b, %1 : f32[T, 2, 3]\n"
                      "    %3 = pick @c, %1 : f32[T, 2, 3]\n"
                      "    %4 = pick %u, %1 : f32[T, 2, 3]\n"
                      "    %5 = transpose %x {perm = [0, 2, 1]} : f32[T, 9, 2]\n"
                      "    %6 = topk %5 {k = 1} : i32[T, 9, 1]\n"
                      "    %7 = mark %6 {length = 2} : f32[T, 9, 2]\n"
                      "    yield %2, %3, %4, %7\n  }\n"
                      "  output %a {name = \"a\"}\n  output %b {name = \"b\"}\n"
                      "  output %c {name = \"c\"}\n  output %d {name = \"d\"}\n}\n");
}

/* A choice in front of all tokens. */
Test(emit_selection, of_weights) {
    check("hir 1 kernel @t\narena 0 per token\nfixed 1024\n"
          "weight @b : f32[9]\n"
          "func(%x: f32[T, 9] in input[0]) {\n"
          "  %y = " KERNEL("row0") " : f32[T, 9] in output[0] {\n"
                                   "    %1 = topk @b {k = 3} : i32[3]\n"
                                   "    %2 = mark %1 {length = 9} : f32[9]\n"
                                   "    %3 = mul %x, %2 : f32[T, 9]\n"
                                   "    yield %3\n  }\n"
                                   "  output %y {name = \"y\"}\n}\n");
}

/* Ids that pass from kernel to kernel. */
Test(emit_selection, ids_between_kernels) {
    check("hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
          "func(%x: f32[T, 40] in input[0]) {\n"
          "  %i = " KERNEL("row0") " : i32[T, 3] in arena[0] {\n"
                                   "    %1 = topk %x {k = 3} : i32[T, 3]\n"
                                   "    yield %1\n  }\n"
                                   "  %y = " KERNEL("row1") " : f32[T, 3] in output[0] {\n"
                                                            "    %2 = pick %x, %i : f32[T, 3]\n"
                                                            "    yield %2\n  }\n"
                                                            "  output %y {name = \"y\"}\n}\n");
}
