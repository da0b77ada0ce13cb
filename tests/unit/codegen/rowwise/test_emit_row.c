/* Row programs against the evaluator, at every CPU level of this machine: the programs of a
 * decoder, depth mixes, caches, tables, odd sizes, and refusals.
 *
 * Tolerance 1e-5 of a result's largest element: f32 rounding (6e-8) over sums of up to a few
 * thousand terms, split over lanes, and functions of a few ulp. */
#include <criterion/criterion.h>

#include "tests/unit/codegen/rowwise/row_harness.h"

static const double tolerance = 1e-5;

static void check(const char *text) {
    check_text(text, tolerance);
}

static char *print(char *to, size_t n, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(to, n, format, args);
    va_end(args);
    return to;
}

static const int64_t widths[] = {1, 3, 4, 8, 15, 16, 17, 48, 96, 130, 300};
enum { N_WIDTHS = sizeof widths / sizeof widths[0] };

/* `text` of rows of #d elements. */
static void check_widths(const char *text) {
    hd_arena *a = hd_arena_new();
    for (int i = 0; i < N_WIDTHS; i++)
        check(filled(a, text, "d", (const int[]){(int)widths[i]}));
    hd_arena_free(a);
}

Test(emit_row, residual_and_rmsnorm) {
    check_widths(
        "hir 1 kernel @t\narena 2048 per token\nfixed 0\n"
        "weight @g : f32[#d]\n"
        "func(%x: f32[T, #d] in input[0], %y: f32[T, #d] in input[1]) {\n"
        "  %0, %1 = " KERNEL("row0") " : f32[T, #d] in arena[0], f32[T, #d] in output[0] {\n"
                                     "    %2 = add %x, %y : f32[T, #d]\n"
                                     "    %3 = mul %2, %2 : f32[T, #d]\n"
                                     "    %4 = reduce_mean %3 {axis = 1} : f32[T]\n"
                                     "    %5 = const {value = 1e-06, shape = []} : f32[]\n"
                                     "    %6 = add %4, %5 : f32[T]\n"
                                     "    %7 = rsqrt %6 : f32[T]\n"
                                     "    %8 = reshape %7 {shape = [T, 1]} : f32[T, 1]\n"
                                     "    %9 = mul %2, %8 : f32[T, #d]\n"
                                     "    %10 = mul %9, @g : f32[T, #d]\n"
                                     "    yield %2, %10\n  }\n"
                                     "  output %1 {name = \"y\"}\n}\n");
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

/* ---- positions, caches, tables --------------------------------------------------------------- */

/* k of a decoder: norm per head, rope, cache; v straight to the cache. */
Test(emit_row, rope_and_cache) {
    static const int shapes[][2] = {{1, 2}, {3, 8}, {2, 32}, {1, 40}, {5, 64}, {2, 48}, {1, 66}};
    static const char text[] =
        "hir 1 kernel @t\narena 4096 per token\nfixed 0\nweight @g : f32[#n]\n"
        "state $k : f32[C, #h, #n]\nstate $v : f32[C, #h, #n]\n"
        "func(%x: f32[T, #k] in input[0]) {\n"
        "  %tab = " KERNEL(
            "row0") " : f32[T, #n] in arena[0] {\n"
                    "    %t0 = rope_table {length = #n, theta = 10000} : f32[T, #n]\n    yield "
                    "%t0\n  }\n"
                    "  %kc, %vc, %q = " KERNEL(
                        "row1") " : f32[C, #h, #n] in state[0], "
                                "f32[C, #h, #n] in state[1], f32[T, #h, #n] in output[0] {\n"
                                "    %x3 = reshape %x {shape = [T, #h, #n]} : f32[T, #h, #n]\n"
                                "    %sq = mul %x3, %x3 : f32[T, #h, #n]\n"
                                "    %ms = reduce_mean %sq {axis = 2} : f32[T, #h]\n"
                                "    %eps = const {value = 1e-06, shape = []} : f32[]\n"
                                "    %me = add %ms, %eps : f32[T, #h]\n"
                                "    %rs = rsqrt %me : f32[T, #h]\n"
                                "    %r1 = reshape %rs {shape = [T, #h, 1]} : f32[T, #h, 1]\n"
                                "    %xn = mul %x3, %r1 : f32[T, #h, #n]\n"
                                "    %xg = mul %xn, @g : f32[T, #h, #n]\n"
                                "    %ro = rope %xg, %tab : f32[T, #h, #n]\n"
                                "    %kk = cache_append %ro, $k : f32[C, #h, #n]\n"
                                "    %vv = cache_append %x3, $v : f32[C, #h, #n]\n"
                                "    yield %kk, %vv, %ro\n  }\n  output %q {name = \"q\"}\n}\n";
    hd_arena *a = hd_arena_new();
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check(filled(a, text, "hnk",
                     (const int[]){shapes[i][0], shapes[i][1], shapes[i][0] * shapes[i][1]}));
    hd_arena_free(a);
}

Test(emit_row, rope_in_one_kernel) {
    static const char *const scalings[] = {
        "", ", scaling = \"linear\", factor = 4",
        (", scaling = \"llama3\", factor = 8, low_freq_factor = 1, high_freq_factor = 4, "
         "original_positions = 64")};
    char text[4096];
    for (int i = 0; i < 3; i++)
        check(print(text, sizeof text,
                    "hir 1 kernel @t\narena 4096 per token\nfixed 0\n"
                    "func(%%x: f32[T, 3, 24] in input[0]) {\n"
                    "  %%q = " KERNEL(
                        "row1") " : f32[T, 72] in output[0] {\n"
                                "    %%t = rope_table {length = 24, theta = 100%s} : f32[T, 24]\n"
                                "    %%r = rope %%x, %%t : f32[T, 3, 24]\n"
                                "    %%f = reshape %%r {shape = [T, 72]} : f32[T, 72]\n"
                                "    yield %%f\n  }\n"
                                "  output %%q {name = \"q\"}\n}\n",
                    scalings[i]));
}

/* The embedding: rows and panels, of every type, as the first source of a mix. */
Test(emit_row, gather) {
    static const char *const layouts[] = {
        "f32[19, 40]", "bf16[19, 40]",      "f32[19, 40] panel", "bf16[19, 40] panel",
        "f16[19, 40]", "f16[19, 40] panel", "q8[19, 40] panel",  "q4[19, 40] panel"};
    char text[4096];
    for (int i = 0; i < 8; i++)
        check(print(text, sizeof text,
                    "hir 1 kernel @t\narena 4096 per token\nfixed 0\n"
                    "weight @e : %s\nweight @w : f32[40]\n"
                    "func(%%ids: i32[T] in input[0], %%y: f32[T, 40] in input[1]) {\n"
                    "  %%x, %%s, %%z = " KERNEL(
                        "row0") " : f32[T, 40] in arena[0], f32[T, 3] in output[0], f32[T, 40] in "
                                "arena[160] {\n"
                                "    %%0 = gather @e, %%ids : f32[T, 40]\n"
                                "    %%w2 = broadcast @w {shape = [T, 40]} : f32[T, 40]\n"
                                "    %%1 = stack %%0, %%y, %%w2 {axis = 1} : f32[T, 3, 40]\n"
                                "    %%2 = reduce_sum %%1 {axis = 2} : f32[T, 3]\n"
                                "    %%3 = reduce_max %%1 {axis = 1} : f32[T, 40]\n"
                                "    yield %%0, %%2, %%3\n  }\n"
                                "  output %%s {name = \"s\"}\n}\n",
                    layouts[i]));
}

/* A kernel without T runs once; what it makes is read by one with T. */
Test(emit_row, token_free) {
    check("hir 1 kernel @t\narena 400 per token\nfixed 400\n"
          "weight @a : f32[20]\nweight @b : bf16[20, 20]\n"
          "func(%x: f32[T, 20] in input[0]) {\n"
          "  %f = " KERNEL(
              "row0") " : f32[20] in fixed[0] {\n"
                      "    %0 = mul @b, @a : f32[20, 20]\n"
                      "    %1 = reduce_sum %0 {axis = 0} : f32[20]\n"
                      "    %2 = sigmoid %1 : f32[20]\n    yield %2\n  }\n"
                      "  %y = " KERNEL(
                          "row1") " : f32[T, 20] in output[0] {\n"
                                  "    %3 = exp @a : f32[20]\n    %4 = mul %3, %f : f32[20]\n"
                                  "    %5 = mul %x, %4 : f32[T, 20]\n    yield %5\n  }\n"
                                  "  output %y {name = \"y\"}\n}\n");
}

/* The same value yielded twice, an input yielded, a view yielded. */
Test(emit_row, yields_of_every_sort) {
    check("hir 1 kernel @t\narena 400 per token\nfixed 400\n"
          "func(%x: f32[T, 20] in input[0]) {\n"
          "  %a, %b, %c, %d, %e = " KERNEL(
              "row0") " : f32[T, 20] in output[0], f32[T, 4, 5] in arena[0], f32[T, 20] in "
                      "arena[80], "
                      "f32[T, 5, 4] in arena[160], f32[T, 7] in arena[240] {\n"
                      "    %1 = silu %x : f32[T, 20]\n"
                      "    %2 = reshape %1 {shape = [T, 4, 5]} : f32[T, 4, 5]\n"
                      "    %3 = transpose %2 {perm = [0, 2, 1]} : f32[T, 5, 4]\n"
                      "    %4 = slice %x {axis = 1, start = 3, length = 7} : f32[T, 7]\n"
                      "    yield %1, %2, %x, %3, %4\n  }\n"
                      "  output %a {name = \"a\"}\n}\n");
}

/* Sinkhorn-like steps on small matrices, a sum over a middle axis. */
Test(emit_row, small_matrices) {
    check(
        "hir 1 kernel @t\narena 400 per token\nfixed 400\n"
        "func(%m: f32[T, 4, 4] in input[0], %x: f32[T, 4, 20] in input[1]) {\n"
        "  %y = " KERNEL("row0") " : f32[T, 4, 20] in output[0] {\n"
                                 "    %0 = sigmoid %m : f32[T, 4, 4]\n"
                                 "    %1 = reduce_sum %0 {axis = 2} : f32[T, 4]\n"
                                 "    %2 = reshape %1 {shape = [T, 4, 1]} : f32[T, 4, 1]\n"
                                 "    %3 = div %0, %2 : f32[T, 4, 4]\n"
                                 "    %4 = reduce_sum %3 {axis = 1} : f32[T, 4]\n"
                                 "    %5 = reshape %4 {shape = [T, 1, 4]} : f32[T, 1, 4]\n"
                                 "    %6 = div %3, %5 : f32[T, 4, 4]\n"
                                 "    %7 = reshape %6 {shape = [T, 4, 4, 1]} : f32[T, 4, 4, 1]\n"
                                 "    %8 = reshape %x {shape = [T, 1, 4, 20]} : f32[T, 1, 4, 20]\n"
                                 "    %9 = mul %7, %8 : f32[T, 4, 4, 20]\n"
                                 "    %10 = reduce_sum %9 {axis = 2} : f32[T, 4, 20]\n"
                                 "    yield %10\n  }\n"
                                 "  output %y {name = \"y\"}\n}\n");
}

enum { WIDE_TEXT = 1 << 16 };
#define ADD(...) at += (size_t)snprintf(text + at, WIDE_TEXT - at, __VA_ARGS__)

/* Results of d elements: result r is x0 (r + 1) + x1 (r + 2) + .., of `sources` inputs, and where
 * `half` is a type, rounded to it. */
static const char *mixes(hd_arena *a, int results, int sources, int d, int norms,
                         const char *half) {
    char *text = hd_new_array(a, char, WIDE_TEXT);
    size_t at = 0;
    const char *type = half ? half : "f32";
    ADD("hir 1 kernel @t\narena %d per token\nfixed 0\nfunc(", results * d * 4);
    for (int s = 0; s < sources; s++)
        ADD("%s%%x%d: f32[T, %d] in input[%d]", s ? ", " : "", s, d, s);
    ADD(") {\n  ");
    for (int i = 0; i < results; i++)
        ADD("%s%%r%d", i ? ", " : "", i);
    ADD(" = " KERNEL("row0") " : ");
    for (int i = 0; i < results; i++)
        ADD("%s%s[T, %d] in arena[%d]", i ? ", " : "", type, d, i * d * 4);
    ADD(" {\n");
    for (int i = 0; i < results; i++) {
        for (int s = 0; s < sources; s++) {
            ADD("    %%c%d_%d = const {shape = [], value = %d} : f32[]\n", i, s, i + s + 1);
            ADD("    %%%c%d_%d = mul %%x%d, %%c%d_%d : f32[T, %d]\n", s ? 'm' : 's', i, s, s, i, s,
                d);
            if (s)
                ADD("    %%s%d_%d = add %%s%d_%d, %%m%d_%d : f32[T, %d]\n", i, s, i, s - 1, i, s,
                    d);
        }
        if (i < norms) {
            ADD("    %%z%d = mul %%s%d_%d, %%c0_0 : f32[T, %d]\n", i, i, sources - 1, d);
            ADD("    %%q%d = mul %%z%d, %%z%d : f32[T, %d]\n", i, i, i, d);
            ADD("    %%e%d = reduce_mean %%q%d {axis = 1} : f32[T]\n", i, i);
            ADD("    %%v%d = reshape %%e%d {shape = [T, 1]} : f32[T, 1]\n", i, i);
            ADD("    %%n%d = mul %%s%d_%d, %%v%d : f32[T, %d]\n", i, i, sources - 1, i, d);
        }
        if (half)
            ADD("    %%h%d = convert %%s%d_%d {dtype = \"%s\"} : %s[T, %d]\n", i, i, sources - 1,
                half, half, d);
    }
    ADD("    yield ");
    for (int i = 0; i < results; i++)
        if (half)
            ADD("%s%%h%d", i ? ", " : "", i);
        else if (i < norms)
            ADD("%s%%n%d", i ? ", " : "", i);
        else
            ADD("%s%%s%d_%d", i ? ", " : "", i, sources - 1);
    ADD("\n  }\n  output %%r%d {name = \"y\"}\n}\n", results - 1);
    cr_assert(at < WIDE_TEXT);
    return text;
}

static const char *plain_mixes(hd_arena *a, int results, int sources, int d) {
    return mixes(a, results, sources, d, 0, NULL);
}

static const char *normed_mixes(hd_arena *a, int results, int norms, int d) {
    return mixes(a, results, 3, d, norms, NULL);
}

/* Sums over d elements of each of `sources` rows times each of `queries`, and the largest. */
static const char *dots(hd_arena *a, int sources, int queries, int d) {
    char *text = hd_new_array(a, char, WIDE_TEXT);
    size_t at = 0;
    ADD("hir 1 kernel @t\narena %d per token\nfixed 0\n", 64 * 4 * (sources + 1));
    ADD("func(%%q: f32[T, %d, %d] in input[0]", queries, d);
    for (int s = 0; s < sources; s++)
        ADD(", %%x%d: f32[T, 1, %d] in input[%d]", s, d, s + 1);
    ADD(") {\n  ");
    for (int s = 0; s <= sources; s++)
        ADD("%s%%r%d", s ? ", " : "", s);
    ADD(" = " KERNEL("row0") " : ");
    for (int s = 0; s <= sources; s++)
        ADD("%sf32[T, %d] in arena[%d]", s ? ", " : "", queries, 64 * 4 * s);
    ADD(" {\n    %%most = reduce_max %%q {axis = 2} : f32[T, %d]\n", queries);
    for (int s = 0; s < sources; s++)
        ADD("    %%m%d = mul %%q, %%x%d : f32[T, %d, %d]\n"
            "    %%s%d = reduce_sum %%m%d {axis = 2} : f32[T, %d]\n",
            s, s, queries, d, s, s, queries);
    ADD("    yield %%most");
    for (int s = 0; s < sources; s++)
        ADD(", %%s%d", s);
    ADD("\n  }\n  output %%r0 {name = \"y\"}\n}\n");
    cr_assert(at < WIDE_TEXT);
    return text;
}

/* Up to the stack %v of n rows of d; a weight @w of [results, k], results in the arena. Gives the
 * length of the text. */
static size_t begin_mixes(char *text, int n, int results, int k, int d) {
    size_t at = 0;
    ADD("hir 1 kernel @t\narena %d per token\nfixed 0\nweight @w : f32[%d, %d]\nfunc(",
        results * d * 4, results, k);
    for (int i = 0; i < n; i++)
        ADD("%s%%x%d: f32[T, %d] in input[%d]", i ? ", " : "", i, d, i);
    ADD(") {\n  ");
    for (int i = 0; i < results; i++)
        ADD("%s%%y%d", i ? ", " : "", i);
    ADD(" = " KERNEL("row0") " : ");
    for (int i = 0; i < results; i++)
        ADD("%sf32[T, %d] in arena[%d]", i ? ", " : "", d, i * d * 4);
    ADD(" {\n    %%v = stack ");
    for (int i = 0; i < n; i++)
        ADD("%s%%x%d", i ? ", " : "", i);
    ADD(" {axis = 1} : f32[T, %d, %d]\n", n, d);
    return at;
}

/* Phase 1 of a block: `sources` rows side by side meet `queries`, and are mixed by what comes out,
 * once for each query; the first mix is normed. */
static const char *phase_one(hd_arena *a, int sources, int queries, int d) {
    char *text = hd_new_array(a, char, WIDE_TEXT);
    const int n = sources;
    size_t at = begin_mixes(text, n, queries, d, d);
    ADD("    %%v1 = reshape %%v {shape = [T, %d, 1, %d]} : f32[T, %d, 1, %d]\n", n, d, n, d);
    ADD("    %%vw = mul %%v1, @w : f32[T, %d, %d, %d]\n", n, queries, d);
    ADD("    %%s = reduce_sum %%vw {axis = 3} : f32[T, %d, %d]\n", n, queries);
    for (int i = 0; i < queries; i++)
        ADD("    %%p%d = slice %%s {axis = 2, start = %d, length = 1} : f32[T, %d, 1]\n"
            "    %%m%d = mul %%v, %%p%d : f32[T, %d, %d]\n"
            "    %%r%d = reduce_sum %%m%d {axis = 1} : f32[T, %d]\n",
            i, i, n, i, i, n, d, i, i, d);
    ADD("    %%q = mul %%r0, %%r0 : f32[T, %d]\n    %%ms = reduce_mean %%q {axis = 1} : f32[T]\n"
        "    %%i = rsqrt %%ms : f32[T]\n    %%i1 = reshape %%i {shape = [T, 1]} : f32[T, 1]\n"
        "    %%z = mul %%r0, %%i1 : f32[T, %d]\n    yield %%z",
        d, d);
    for (int i = 1; i < queries; i++)
        ADD(", %%r%d", i);
    ADD("\n  }\n  output %%y0 {name = \"y\"}\n}\n");
    cr_assert(at < WIDE_TEXT);
    return text;
}

/* `mixes` sums of `sources` rows side by side, by weights that are the same for all tokens. */
static const char *given_mixes(hd_arena *a, int sources, int mixes, int d) {
    char *text = hd_new_array(a, char, WIDE_TEXT);
    const int n = sources;
    size_t at = begin_mixes(text, n, mixes, n, d);
    for (int i = 0; i < mixes; i++)
        ADD("    %%s%d = slice @w {axis = 0, start = %d, length = 1} : f32[1, %d]\n"
            "    %%p%d = reshape %%s%d {shape = [%d, 1]} : f32[%d, 1]\n"
            "    %%m%d = mul %%v, %%p%d : f32[T, %d, %d]\n"
            "    %%r%d = reduce_sum %%m%d {axis = 1} : f32[T, %d]\n",
            i, i, n, i, i, n, n, i, i, n, d, i, i, d);
    ADD("    yield ");
    for (int i = 0; i < mixes; i++)
        ADD("%s%%r%d", i ? ", " : "", i);
    ADD("\n  }\n  output %%y0 {name = \"y\"}\n}\n");
    cr_assert(at < WIDE_TEXT);
    return text;
}
#undef ADD

typedef const char *maker(hd_arena *a, int x, int y, int d);

static void check_made(maker *make, const int (*shapes)[3], size_t n) {
    hd_arena *a = hd_arena_new();
    for (size_t i = 0; i < n; i++)
        check(make(a, shapes[i][0], shapes[i][1], shapes[i][2]));
    hd_arena_free(a);
}
#define CHECK_MADE(make, ...)                                                                      \
    check_made(make, (const int[][3])__VA_ARGS__,                                                  \
               sizeof((const int[][3])__VA_ARGS__) / sizeof(int[3]))

/* Dot products of rows that the L1 does not hold are computed block by block: 7 sums and a largest
 * element in exactly two blocks, then in one and a rest of vectors and lanes; two of each, where
 * the last has three vectors per iteration. */
Test(emit_row, sums_in_blocks) {
    CHECK_MADE(dots, {{7, 9, 2048}, {7, 17, 1100}, {2, 9, 2736}});
}

/* As many queries as one iteration takes, one more, and a number without a divisor; sources that
 * are and are not a multiple of those of an iteration; rows in whole blocks, with a rest of vectors
 * and lanes, and without blocks; loops over few queries and all sources (7, 16 and 5, 17), and over
 * few sources and all queries (13, 11). */
Test(emit_row, sources_meet_queries) {
    CHECK_MADE(phase_one, {{9, 8, 4096},
                           {4, 9, 2200},
                           {13, 11, 1100},
                           {7, 16, 2048},
                           {5, 17, 1100},
                           {5, 3, 2048},
                           {24, 2, 48}});
}

/* Rows of whole vectors, with a rest of vectors and of lanes, shorter than twice the distance; of
 * sources that go four or two at a time each rest, and so many mixes that they go one by one. */
Test(emit_row, given_mixes_of_many_rows) {
    CHECK_MADE(given_mixes,
               {{9, 1, 2048}, {6, 2, 1100}, {7, 3, 300}, {8, 4, 1100}, {17, 8, 600}, {5, 24, 48}});
}

/* More results than registers: computed in groups, each block of all groups before the next block.
 * One block, two and a rest, a rest of vectors and of lanes; a last group of one result. */
Test(emit_row, many_results_of_the_same_rows) {
    CHECK_MADE(
        plain_mixes,
        {{9, 1, 24}, {10, 1, 1024}, {11, 1, 1100}, {9, 8, 24}, {10, 8, 1024}, {11, 8, 1100}});
}

/* With sums of squares of some results: such a sum is carried from block to block, in the group
 * that makes its row. */
Test(emit_row, many_results_and_sums_of_them) {
    CHECK_MADE(normed_mixes,
               {{5, 1, 24}, {5, 1, 1024}, {5, 1, 1100}, {9, 6, 24}, {10, 6, 1024}, {11, 6, 1100}});
}

static bool prefetches(const char *text, const hcg_level *level) {
    bench *b = open_text(text);
    const char *assembly = assemble_kernel(b, HIR_KERNEL_ROW, b->m->first, false, level);
    cr_assert(assembly, "%s", bench_errors(b));
    const bool found = strstr(assembly, "prefetcht0") != NULL;
    close_text(b);
    return found;
}

/* Rows are prefetched where an iteration loads half a cache line of each or more: in dot products
 * of sources and queries, and in several mixes of rows that no nest has read before; not for a
 * single mix or short rows. */
/* A sum of what is made once for the nest, which is made before that sum, though groups of results
 * make their inner sums first. */
Test(emit_row, many_results_of_which_some_read_one) {
    check("hir 1 kernel @t\narena 1024 per token\nfixed 0\n"
          "func(%s: f32[T, 1] in input[0], %x: f32[T, 48] in input[1], %y: f32[T, 48] in input[2], "
          "%z: f32[T, 4, 48] in input[3]) {\n"
          "  %a, %b, %c, %d, %e = " KERNEL(
              "row0") " : f32[T, 1, 48] in output[0], f32[T, 48] in output[1], f32[T, 48] in "
                      "output[2], f32[T, 48] in output[3], f32[T, 48] in output[4] {\n"
                      "    %0 = slice %z {axis = 1, start = 0, length = 1} : f32[T, 1, 48]\n"
                      "    %1 = mul %s, %x : f32[T, 48]\n    %2 = add %1, %1 : f32[T, 48]\n"
                      "    %3 = add %2, %y : f32[T, 48]\n    %4 = add %x, %y : f32[T, 48]\n"
                      "    %5 = sub %x, %y : f32[T, 48]\n    %6 = mul %s, %y : f32[T, 48]\n"
                      "    yield %0, %3, %4, %5, %6\n  }\n"
                      "  output %a {name = \"a\"}\n  output %b {name = \"b\"}\n"
                      "  output %c {name = \"c\"}\n  output %d {name = \"d\"}\n"
                      "  output %e {name = \"e\"}\n}\n");
}

Test(emit_row, sources_are_prefetched) {
    const hcg_level *levels;
    hd_arena *a = hd_arena_new();
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (strcmp(levels[l].arch, "x86_64") != 0) continue;
        const hcg_level *level = &levels[l];
        const bool wide = level->lanes >= 8;
        cr_expect_eq(prefetches(phase_one(a, 12, 8, 1024), level), wide, "%s", level->name);
        cr_expect(prefetches(given_mixes(a, 9, 4, 1024), level), "%s", level->name);
        cr_expect_not(prefetches(given_mixes(a, 9, 1, 1024), level), "%s", level->name);
        cr_expect_not(prefetches(given_mixes(a, 9, 4, 256), level), "%s", level->name);
    }
    hd_arena_free(a);
}

/* Has the kernel a version with non-temporal stores? */
static void expect_streaming(bench *b, const hcg_level *level, bool expected) {
    const char *assembly = assemble_kernel(b, HIR_KERNEL_ROW, b->m->first, false, level);
    cr_assert(assembly, "%s", bench_errors(b));
    cr_assert_eq(strstr(assembly, "movntps") != NULL, expected, "%s", level->name);
    cr_assert_eq(strstr(assembly, "sfence") != NULL, expected, "%s", level->name);
}

/* Calls of first .. last tokens, `step` apart, of a kernel with non-temporal stores. */
static void check_streaming(const char *text, const hcg_level *level, int first, int last,
                            int step) {
    bench *b = open_text(text);
    expect_streaming(b, level, true);
    rows r;
    uint64_t seed = 5 + level->lanes;
    cr_assert(rows_open(&r, b, level, seed), "%s", bench_errors(b));
    for (int tokens = first; tokens <= last; tokens += step)
        rows_expect(&r, tokens, 20, &seed, tolerance);
    rows_close(&r);
    close_text(b);
}

/* Rows as many and as long as phase 1 leaves them: 17 of 16 KB for a token, 16 MB from 61 tokens
 * on. There the stores are non-temporal, unless the rows do not begin on a line. Of bf16 they
 * have twice the elements; where rounding to f32 makes a tie of it, the other of the two nearest
 * comes out, 2^-7 of the value. */
static void check_nontemporal(const hcg_level *level, const char *half, int d, double most) {
    enum { ROWS = 17, FEW = 60, MANY = 62 };
    hd_arena *a = hd_arena_new();
    bench *b = open_text(mixes(a, ROWS, 1, d, 0, half));
    expect_streaming(b, level, true);
    rows r;
    uint64_t seed = 3 + level->lanes;
    cr_assert(rows_open(&r, b, level, seed), "%s", bench_errors(b));
    rows_expect(&r, FEW, 20, &seed, most);
    rows_expect(&r, MANY, 20, &seed, most);
    const hir_op *kernel = hir_op_at(b->m, b->m->first);
    for (uint32_t i = 0; i < ROWS; i++) /* not all 64 rows are used */
        r.values[kernel->results[i]] = (float *)r.values[kernel->results[i]] + 1;
    rows_expect(&r, MANY, 20, &seed, most); /* not on a line */
    for (uint32_t i = 0; i < ROWS; i++)
        r.values[kernel->results[i]] = (float *)r.values[kernel->results[i]] - 1;
    rows_close(&r);
    close_text(b);
    hd_arena_free(a);
}

Test(emit_row, nontemporal_stores) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l])) continue;
        check_nontemporal(&levels[l], NULL, 4096, tolerance);
        if (levels[l].lanes >= 8) check_nontemporal(&levels[l], "bf16", 8192, 0x1p-7);
    }
}

/* Four results of 32 KB are not 16 MB before 128 tokens; with the 17 sources that they are made of
 * 49 tokens touch 32 MB, 48 do not. */
Test(emit_row, mixes_that_touch_more_than_the_caches_hold) {
    enum { SOURCES = 17, MIXES = 4, D = 8192, FEW = 48, MANY = 50 };
    const hcg_level *levels;
    hd_arena *a = hd_arena_new();
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l]) || levels[l].lanes < 8) continue;
        check_streaming(given_mixes(a, SOURCES, MIXES, D), &levels[l], FEW, MANY, 1);
    }
    hd_arena_free(a);
}

/* A sum along the lanes of a row that is stored non-temporally scales a row of another nest: both
 * forms of the first nest make it. 62 tokens of 17 rows of 16 KB are more than 16 MB, 60 are less.
 * All rows of a call of 512 tokens are more than 32 MB, so the other nest has two forms too, at
 * every level: its vectors side by side fill a line. */
Test(emit_row, sums_beside_nontemporal_stores) {
    enum { ROWS = 17, D = 4096, FEW = 60, MANY = 62 };
    static char text[16384];
    size_t at = 0;
#define PUT(...) at += (size_t)snprintf(text + at, sizeof text - at, __VA_ARGS__)
    PUT("hir 1 kernel @t\narena %d per token\nfixed 0\n", (ROWS + 1) * D * 4);
    PUT("func(%%x: f32[T, %d] in input[0]) {\n  %%z", D);
    for (int i = 0; i < ROWS; i++)
        PUT(", %%r%d", i);
    PUT(" = " KERNEL("row0") " : ");
    for (int i = 0; i <= ROWS; i++)
        PUT("%sf32[T, %d] in arena[%d]", i ? ", " : "", D, i * D * 4);
    PUT(" {\n");
    for (int i = 0; i < ROWS; i++)
        PUT("    %%c%d = const {shape = [], value = %d} : f32[]\n"
            "    %%y%d = mul %%x, %%c%d : f32[T, %d]\n",
            i, i + 1, i, i, D);
    PUT("    %%s = reduce_mean %%y1 {axis = 1} : f32[T]\n    %%s1 = reshape %%s {shape = [T, 1]} : "
        "f32[T, 1]\n    %%scaled = mul %%x, %%s1 : f32[T, %d]\n    yield %%scaled",
        D);
    for (int i = 0; i < ROWS; i++)
        PUT(", %%y%d", i);
    PUT("\n  }\n  output %%z {name = \"y\"}\n}\n");
#undef PUT
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++)
        if (vectors_run(&levels[l])) check_streaming(text, &levels[l], FEW, MANY, MANY - FEW);
}

/* NaN and infinities come out where the evaluator has them. */
Test(emit_row, nan_and_infinity) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l])) continue;
        bench *b = open_text("hir 1 kernel @t\narena 400 per token\nfixed 400\n"
                             "func(%x: f32[T, 20] in input[0], %y: f32[T, 20] in input[1]) {\n"
                             "  %a, %b, %c, %d = " KERNEL(
                                 "row0") " : f32[T, 20] in output[0], f32[T, 20] in arena[0], "
                                         "f32[T] in arena[80], f32[T, 20] in arena[84] {\n"
                                         "    %1 = max %x, %y : f32[T, 20]\n"
                                         "    %2 = min %x, %y : f32[T, 20]\n"
                                         "    %3 = reduce_max %x {axis = 1} : f32[T]\n"
                                         "    %4 = exp %x : f32[T, 20]\n"
                                         "    yield %1, %2, %3, %4\n  }\n"
                                         "  output %a {name = \"a\"}\n}\n");
        rows r;
        cr_assert(rows_open(&r, b, &levels[l], 1), "%s", bench_errors(b));
        double x[40], y[40];
        for (int i = 0; i < 40; i++)
            x[i] = i * 0.1, y[i] = 2 - i * 0.1;
        x[3] = NAN, y[5] = NAN, x[9] = -INFINITY, x[24] = INFINITY, y[30] = -INFINITY;
        rows_call(&r, 2, 0, (const double *const[]){x, y});
        const float *max = r.values[b->m->ops.n ? hir_op_at(b->m, b->m->first)->results[0] : 0];
        const float *min = r.values[hir_op_at(b->m, b->m->first)->results[1]];
        const float *most = r.values[hir_op_at(b->m, b->m->first)->results[2]];
        const float *e = r.values[hir_op_at(b->m, b->m->first)->results[3]];
        cr_assert(isnan(max[3]) && isnan(min[3]) && isnan(max[5]) && isnan(min[5]));
        cr_assert(isnan(most[0]) && most[1] == INFINITY, "%g %g", (double)most[0], (double)most[1]);
        cr_assert(isnan(e[3]) && e[9] == 0 && e[24] == INFINITY && min[30] == -INFINITY);
        rows_close(&r);
        close_text(b);
    }
}

/* Sums that one number decides about: left out for some tokens, for all, or for none; what they sum
 * is made for them alone, or is read by others too; by one number of several; of few elements; a
 * number of all tokens. Summands have one sign: the error of a sum that cancels is no share of it.
 */
Test(emit_row, sums_for_some_tokens) {
    check_widths(
        "hir 1 kernel @t\n"
        "arena 2048 per token\n"
        "fixed 64\n"
        "func(%x: f32[T, #d] in input[0], %c: f32[T, 3] in input[1], %g: f32[1] in input[2]) {\n"
        "  %a, %b, %e, %k, %o = " KERNEL(
            "row0") " : f32[T] in arena[0], f32[T] in arena[4], f32[T] in arena[8], f32[T, #d] in "
                    "arena[12], f32[T, 1] in output[0] {\n"
                    "    %c0 = slice %c {axis = 1, start = 0, length = 1} : f32[T, 1]\n"
                    "    %c1 = slice %c {axis = 1, start = 1, length = 1} : f32[T, 1]\n"
                    "    %h = sigmoid %x : f32[T, #d]\n"
                    "    %own = add %x, %x : f32[T, #d]\n"
                    "    %square = mul %own, %own : f32[T, #d]\n"
                    "    %w0 = when %c0, %square : f32[T, #d]\n"
                    "    %s0 = reduce_mean %w0 {axis = 1} : f32[T]\n"
                    "    %w1 = when %c0, %h : f32[T, #d]\n"
                    "    %s1 = reduce_sum %w1 {axis = 1} : f32[T]\n"
                    "    %w2 = when %c1, %h : f32[T, #d]\n"
                    "    %s2 = reduce_sum %w2 {axis = 1} : f32[T]\n"
                    "    %w3 = when %g, %h : f32[T, #d]\n"
                    "    %s3 = reduce_sum %w3 {axis = 1} : f32[T]\n"
                    "    %s4 = reshape %s3 {shape = [T, 1]} : f32[T, 1]\n"
                    "    %w5 = when %s4, %w2 : f32[T, #d]\n"
                    "    %s5 = reduce_sum %w5 {axis = 1} : f32[T]\n"
                    "    %s6 = reshape %s5 {shape = [T, 1]} : f32[T, 1]\n"
                    "    yield %s0, %s1, %s2, %h, %s6\n"
                    "  }\n"
                    "  output %o {name = \"o\"}\n"
                    "}\n");
}

/* Sums of one row that are read at different times: those that need nothing but the row are taken
 * together, in the first loop over it; those behind a sum that they need, or that a number decides
 * about, are not taken before. */
Test(emit_row, sums_of_one_row_go_together) {
    check_widths(
        "hir 1 kernel @t\n"
        "arena 2048 per token\n"
        "fixed 64\n"
        "func(%x: f32[T, #d] in input[0], %q: f32[T, #d] in input[1]) {\n"
        "  %a, %b, %o = " KERNEL("row0") " : f32[T] in arena[0], f32[T] in arena[4], f32[T, #d] in "
                                         "output[0] {\n"
                                         "    %xx = mul %x, %x : f32[T, #d]\n"
                                         "    %s0 = reduce_mean %xx {axis = 1} : f32[T]\n"
                                         "    %r0 = reshape %s0 {shape = [T, 1]} : f32[T, 1]\n"
                                         "    %y = mul %x, %r0 : f32[T, #d]\n"
                                         "    %yq = mul %y, %q : f32[T, #d]\n"
                                         "    %s1 = reduce_sum %yq {axis = 1} : f32[T]\n"
                                         "    %r1 = reshape %s1 {shape = [T, 1]} : f32[T, 1]\n"
                                         "    %w1 = when %r1, %xx : f32[T, #d]\n"
                                         "    %s2 = reduce_sum %w1 {axis = 1} : f32[T]\n"
                                         "    %r2 = reshape %s2 {shape = [T, 1]} : f32[T, 1]\n"
                                         "    %xq = mul %x, %q : f32[T, #d]\n"
                                         "    %s3 = reduce_sum %xq {axis = 1} : f32[T]\n"
                                         "    %r3 = reshape %s3 {shape = [T, 1]} : f32[T, 1]\n"
                                         "    %qq = mul %q, %q : f32[T, #d]\n"
                                         "    %s4 = reduce_max %qq {axis = 1} : f32[T]\n"
                                         "    %c = add %r2, %r3 : f32[T, 1]\n"
                                         "    %z = mul %x, %c : f32[T, #d]\n"
                                         "    yield %s3, %s4, %z\n"
                                         "  }\n"
                                         "  output %o {name = \"o\"}\n"
                                         "}\n");
}

/* A chain longer than a stack of calls should be, each value read twice and kept small. */
Test(emit_row, long_chain) {
    enum { LENGTH = 3000 };
    size_t capacity = 1 << 20, at = 0;
    char *text = malloc(capacity);
    at += (size_t)snprintf(text, capacity,
                           "hir 1 kernel @t\narena 400 per token\nfixed 400\n"
                           "func(%%v0: f32[T, 20] in input[0]) {\n"
                           "  %%out = " KERNEL("row0") " : f32[T, 20] in output[0] {\n");
    for (int i = 0; i < LENGTH; i++)
        at +=
            (size_t)snprintf(text + at, capacity - at, "    %%v%d = %s %%v%d, %%v%d : f32[T, 20]\n",
                             i + 1, i % 2 ? "max" : "sub", i, i % 3 ? i : i / 2);
    snprintf(text + at, capacity - at, "    yield %%v%d\n  }\n  output %%out {name = \"y\"}\n}\n",
             LENGTH);
    check(text);
    free(text);
}

/* ---- other machines -------------------------------------------------------------------------- */

/* Every function of the table at levels that this machine need not have: no call remains. */
Test(emit_row, no_calls_at_any_level) {
    static const char *const functions[] = {"exp",      "log",  "tanh",  "sigmoid",
                                            "silu",     "gelu", "sqrt",  "gelu_tanh",
                                            "softplus", "erf",  "rsqrt", "recip"};
    char text[8192];
    size_t at = 0;
    at += (size_t)snprintf(
        text + at, sizeof text - at,
        "hir 1 kernel @t\narena 400 per token\nfixed 400\n"
        "weight @e : bf16[19, 21]\n"
        "func(%%ids: i32[T] in input[0]) {\n"
        "  %%out = " KERNEL("row0") " : f32[T, 21] in output[0] {\n"
                                    "    %%t = rope_table {length = 18, theta = 100} : f32[T, 18]\n"
                                    "    %%u = reduce_max %%t {axis = 1} : f32[T]\n"
                                    "    %%u1 = reshape %%u {shape = [T, 1]} : f32[T, 1]\n"
                                    "    %%x = gather @e, %%ids : f32[T, 21]\n    %%f0 = mul %%x, "
                                    "%%u1 : f32[T, 21]\n");
    int n = sizeof functions / sizeof functions[0];
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "    %%f%d = %s %%f%d : f32[T, 21]\n",
                               i + 1, functions[i], i);
    snprintf(text + at, sizeof text - at,
             "    yield %%f%d\n  }\n  output %%out {name = \"y\"}\n}\n", n);
    check_no_calls(text);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void reject(const char *tables, const char *body, const char *words) {
    bench *b = malloc(sizeof *b);
    *b = bench_new();
    bench_start(b);
    char text[2048];
    b->m = hir_parse(
        b->arena, &b->diags, "test.hir",
        print(text, sizeof text,
              "hir 1 kernel @t\narena 400 per token\nfixed 400\n%s"
              "func(%%x: f32[T, 20] in input[0]) {\n"
              "  %%a = " KERNEL("row0") " : f32[T, 20] in output[0] {\n%s"
                                        "    yield %%y\n  }\n  output %%a {name = \"a\"}\n}\n",
              tables, body));
    cr_assert(b->m, "%s", bench_errors(b));
    const hcg_level *levels;
    hcg_levels(&levels);
    compiled c;
    cr_assert(!compile_kernel(b, HIR_KERNEL_ROW, b->m->first, false, &levels[2], &c),
              "not refused: %s", body);
    cr_assert_eq(hd_diags_first(&b->diags), HD_E_UNSUPPORTED);
    cr_assert(strstr(bench_errors(b), words), "%s", bench_errors(b));
    close_text(b);
}

Test(emit_row, what_does_not_belong_is_rejected) {
    reject("", "    %y = softmax %x {axis = 1} : f32[T, 20]\n", "softmax in a row program");
    reject("", "    %y = rmsnorm %x, _ {eps = 1e-06} : f32[T, 20]\n", "rmsnorm in a row program");
    reject("weight @w : f32[20, 20]\n", "    %y = linear %x, @w, _ : f32[T, 20]\n",
           "linear in a row program");
    reject("weight @w : f32[20, 20] panel\n",
           "    %s = reduce_sum @w {axis = 0} : f32[20]\n    %y = mul %x, %s : f32[T, 20]\n",
           "this one is packed");
}
