/* Row programs whose results overwrite what they replace (codegen/rowwise/schedule/in_place.c),
 * against the evaluator at every CPU level of this machine: what may be overwritten as it is read,
 * and all that may not.
 *
 * Tolerance 1e-5 of a result's largest element: f32 rounding (6e-8) over sums of up to a few
 * hundred terms. What is read too late would be off by as much as the numbers are large. */
#include <criterion/criterion.h>

#include "tests/unit/codegen/rowwise/row_harness.h"

static const double tolerance = 1e-5;

/* Kernel 0 makes %a of n rows of d elements in arena[0], %b of d in arena[BEHIND]; kernel 1 has the
 * body and results given. #d in them is d, #n is n. */
#define BEHIND "65536"
static void check_over(int n, int d, const char *results, const char *body) {
    const char *const parts[] = {
        "hir 1 kernel @t\narena 1048576 per token\nfixed 0\nweight @w : f32[#n, #n]\n"
        "func(%x: f32[T, #n, #d] in input[0], %z: f32[T, #d] in input[1]) {\n"
        "  %a, %b = " KERNEL(
            "row0") " : f32[T, #n, #d] in arena[0], f32[T, #d] in arena[" BEHIND
                    "] {\n    %x1 = neg %x : f32[T, #n, #d]\n    %z1 = neg %z : f32[T, #d]\n"
                    "    yield %x1, %z1\n  }\n",
        results,
        body,
        "  %out = " KERNEL("row2") " : f32[T, #n, #d] in output[0] {\n"
                                   "    %o = abs %r : f32[T, #n, #d]\n    yield %o\n  }\n"
                                   "  output %out {name = \"y\"}\n}\n",
    };
    hd_text t;
    hd_arena *a = hd_arena_new();
    hd_text_init(&t, a);
    for (int i = 0; i < 4; i++)
        add_filled(&t, parts[i], "nd", (const int[]){n, d});
    check_text(t.at, tolerance);
    hd_arena_free(a);
}

static const int widths[] = {3, 40, 130};
static const int streams[] = {2, 4, 9}; /* 9: more than one iteration takes */

static void check_all(const char *results, const char *body) {
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++)
        for (size_t j = 0; j < sizeof widths / sizeof widths[0]; j++)
            check_over(streams[i], widths[j], results, body);
}

#define ROW1(results) "  " results " = " KERNEL("row1")

Test(emit_row_place, elements_of_their_own) {
    check_all(ROW1("%r") " : f32[T, #n, #d] in arena[0] {\n",
              "    %s = mul %a, %a : f32[T, #n, #d]\n"
              "    %q = reduce_sum %s {axis = 2} : f32[T, #n]\n"
              "    %q1 = reshape %q {shape = [T, #n, 1]} : f32[T, #n, 1]\n"
              "    %b1 = reshape %b {shape = [T, 1, #d]} : f32[T, 1, #d]\n"
              "    %v = mul %b1, %q1 : f32[T, #n, #d]\n"
              "    %y = add %a, %v : f32[T, #n, #d]\n    yield %y\n  }\n");
}

/* Streams mixed by a matrix. */
Test(emit_row_place, columns) {
    check_all(ROW1("%r") " : f32[T, #n, #d] in arena[0] {\n",
              "    %w1 = reshape @w {shape = [#n, #n, 1]} : f32[#n, #n, 1]\n"
              "    %a1 = reshape %a {shape = [T, #n, 1, #d]} : f32[T, #n, 1, #d]\n"
              "    %p = mul %a1, %w1 : f32[T, #n, #n, #d]\n"
              "    %y = reduce_sum %p {axis = 1} : f32[T, #n, #d]\n    yield %y\n  }\n");
}

/* What is needed for a result that is made later: a sum of the old rows and of the new. */
Test(emit_row_place, both_old_and_new) {
    check_all(ROW1("%r, %t") " : f32[T, #n, #d] in arena[0], f32[T, #d] in arena[" BEHIND "] {\n",
              "    %b1 = reshape %b {shape = [T, 1, #d]} : f32[T, 1, #d]\n"
              "    %y = mul %a, %b1 : f32[T, #n, #d]\n"
              "    %u = reduce_sum %y {axis = 2} : f32[T, #n]\n"
              "    %u1 = reshape %u {shape = [T, #n, 1]} : f32[T, #n, 1]\n"
              "    %v = mul %a, %u1 : f32[T, #n, #d]\n"
              "    %s = reduce_sum %v {axis = 1} : f32[T, #d]\n"
              "    %t1 = add %s, %b : f32[T, #d]\n    yield %y, %t1\n  }\n");
}

/* Rows in another order: each is overwritten before it has been read. */
Test(emit_row_place, rows_change_places) {
    static const char results[] = ROW1("%r") " : f32[T, #n, #d] in arena[0] {\n";
    for (size_t i = 0; i < sizeof streams / sizeof streams[0]; i++) {
        const int n = streams[i];
        hd_text body;
        hd_arena *a = hd_arena_new();
        hd_text_init(&body, a);
        for (int s = 0; s < n; s++)
            hd_text_f(&body,
                      "    %%s%d = slice %%a {axis = 1, start = %d, length = 1} : f32[T, 1, #d]\n",
                      s, n - 1 - s);
        hd_text_add(&body, "    %y = concat ");
        for (int s = 0; s < n; s++)
            hd_text_f(&body, "%s%%s%d", s ? ", " : "", s);
        hd_text_add(&body, " {axis = 1} : f32[T, #n, #d]\n    yield %y\n  }\n");
        check_over(n, 40, results, body.at);
        check_over(n, 5, results, body.at);
        hd_arena_free(a);
    }
}

/* The element at the other end of a row; a matrix and its transpose. */
Test(emit_row_place, transposed) {
    static const int sizes[] = {2, 4, 5, 16, 33};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_over(sizes[i], sizes[i], ROW1("%r") " : f32[T, #n, #d] in arena[0] {\n",
                   "    %t = transpose %a {perm = [0, 2, 1]} : f32[T, #d, #n]\n"
                   "    yield %t\n  }\n");
}

/* Two results, each over what the other is made of. */
Test(emit_row_place, crosswise) {
    for (size_t j = 0; j < sizeof widths / sizeof widths[0]; j++)
        check_over(1, widths[j],
                   ROW1("%r, %t") " : f32[T, #n, #d] in arena[0], f32[T, #d] in arena[" BEHIND
                                  "] {\n",
                   "    %b1 = reshape %b {shape = [T, 1, #d]} : f32[T, 1, #d]\n"
                   "    %a1 = reshape %a {shape = [T, #d]} : f32[T, #d]\n"
                   "    %y = exp %b1 : f32[T, 1, #d]\n"
                   "    %t1 = exp %a1 : f32[T, #d]\n"
                   "    %m = reduce_max %t1 {axis = 1} : f32[T]\n"
                   "    %m1 = reshape %m {shape = [T, 1]} : f32[T, 1]\n"
                   "    %t2 = sub %t1, %m1 : f32[T, #d]\n    yield %y, %t2\n  }\n");
}

/* A contraction over what its epilogue adds, for tiles of rows, one row, and columns cut among
 * threads; columns that fill no panel too. */
Test(emit_row_place, sums_of_a_contraction) {
    static const char text[] =
        "hir 1 kernel @t\narena 65536 per token\nfixed 0\nweight @w : f32[#n, 24] panel\n"
        "func(%x: f32[T, 24] in input[0], %z: f32[T, #n] in input[1]) {\n"
        "  %a = " KERNEL(
            "row0") " : f32[T, #n] in arena[0] {\n"
                    "    %z1 = neg %z : f32[T, #n]\n    yield %z1\n  }\n"
                    "  %r = kernel.contract {name = \"c\", rows = \"all\", split_decode = "
                    "\"cols\", "
                    "split_prefill = \"cols\"} : f32[T, #n] in arena[0] {\n"
                    "    %l = linear %x, @w, _ : f32[T, #n]\n    %s = add %a, %l : f32[T, "
                    "#n]\n"
                    "    yield %s\n  }\n"
                    "  %out = " KERNEL("row2") " : f32[T, #n] in output[0] {\n"
                                               "    %o = abs %r : f32[T, #n]\n    yield %o\n  "
                                               "}\n  output %out {name = \"y\"}\n}\n";
    static const int columns[] = {7, 16, 100, 400};
    const hcg_level *levels;
    hd_arena *a = hd_arena_new();
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++)
        for (size_t i = 0; vectors_run(&levels[l]) && i < 4; i++)
            for (int threads = 1; threads <= 3; threads++) {
                bench *b = open_text(filled(a, text, "n", &columns[i]));
                rows r;
                uint64_t seed = 5 + l;
                cr_assert(rows_open(&r, b, &levels[l], seed), "%s", bench_errors(b));
                r.threads = threads;
                rows_expect(&r, 40, 0, &seed, tolerance);
                rows_expect(&r, 1, 0, &seed, tolerance);
                rows_close(&r);
                close_text(b);
            }
    hd_arena_free(a);
}
