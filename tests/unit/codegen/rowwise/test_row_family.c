/* Row programs that differ in one size share a function with that size as argument
 * (codegen/program/row_family.h): many of each form, by the code that they share, against the
 * evaluator, as a prefill that two threads would cut and as a token after it, at every CPU level of
 * this machine; and which of them share none.
 *
 * Tolerance 1e-5 of a result's largest element: f32 rounding (6e-8) over sums of up to a few
 * hundred terms. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/unit/codegen/rowwise/row_harness.h"

TestSuite(row_family, .timeout = 120);

static const double tolerance = 1e-5;

/* One row, a vector and less, several vectors, with tails and without. */
static const int sizes[] = {2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 50};
enum { SIZES = sizeof sizes / sizeof sizes[0], MOST = 50 };

/* Texts with
 *   #i number of the kernel  #n size  #p n + 1  #m n - 1  #q 4 n  #d elements of a row
 *   #s n n  #h d / 2  #X %x0, %x1, ..: n rows of d  #Z n rows %z0, ..  #Y %y0, ..: n - 1 rows of 1
 *   #V %v0, ..: those of #X as two heads each, by reshapes  #W n rows of these */
typedef struct form {
    const char *weights, *inputs, *kernel; /* of every kernel; `inputs` begins with a comma */
    const char *before;                    /* kernels in front, one a source */
    const char *row;                       /* type of a row behind its T: "#d" */
    int d[2];                              /* elements of a row; 0: none */
    size_t functions;                      /* of all kernels; 0: two, one of them for the last */
} form;

static void add_rows(hd_text *t, char name, int n) {
    for (int i = 0; i < n; i++)
        hd_text_f(t, "%s%%%c%d", i ? ", " : "", name, i);
}

static void add_views(hd_text *t, int i, int n, int d) {
    for (int k = 0; k < n; k++)
        hd_text_f(t, "    %%v%dof_%d = reshape %%x%d {shape = [T, 2, %d]} : f32[T, 2, %d]\n", k, i,
                  k, d / 2, d / 2);
}

static void add_viewed(hd_text *t, int i, int n) {
    for (int k = 0; k < n; k++)
        hd_text_f(t, "%s%%v%dof_%d", k ? ", " : "", k, i);
}

static void expand(hd_text *t, const char *text, int i, int n, int d) {
    for (const char *c = text ? text : ""; *c; c++) {
        if (*c != '#') {
            hd_text_add_n(t, c, 1);
            continue;
        }
        const int numbers[] = {['i'] = i,     ['n'] = n,     ['p'] = n + 1, ['m'] = n - 1,
                               ['q'] = 4 * n, ['s'] = n * n, ['d'] = d,     ['h'] = d / 2};
        c++;
        if (*c == 'V')
            add_views(t, i, n, d);
        else if (*c == 'W')
            add_viewed(t, i, n);
        else if (strchr("XYZ", *c))
            add_rows(t, *c == 'X' ? 'x' : *c == 'Y' ? 'y' : 'z', *c == 'Y' ? n - 1 : n);
        else
            hd_text_f(t, "%d", numbers[(unsigned char)*c]);
    }
}

/* Each of them gets its place. */
static void add_inputs(hd_text *t, const char *text, int i, int n, int d, int *place) {
    for (const char *end; *text; text = end) {
        end = strchr(text, ']') + 1;
        char one[64];
        snprintf(one, sizeof one, "%.*s", (int)(end - text), text);
        expand(t, one, i, n, d);
        hd_text_f(t, " in input[%d]", (*place)++);
    }
}

static const char *module_of(hd_arena *a, const form *f, const int *n, int count, int d) {
    hd_text t;
    hd_text_init(&t, a);
    int inputs = 2 * MOST;
    hd_text_add(&t, "hir 1 kernel @t\narena 1048576 per token\nfixed 0\n");
    for (int i = 0; i < count; i++)
        expand(&t, f->weights, i, n[i], d);
    hd_text_add(&t, "func(");
    for (int i = 0; i < MOST; i++) {
        hd_text_f(&t, "%s%%x%d: f32[T, ", i ? ", " : "", i);
        expand(&t, f->row, i, 0, d);
        hd_text_f(&t, "] in input[%d], %%y%d: f32[T, 1] in input[%d]", 2 * i, i, 2 * i + 1);
    }
    for (int i = 0; f->inputs && i < count; i++)
        add_inputs(&t, f->inputs, i, n[i], d, &inputs);
    hd_text_add(&t, ") {\n");
    for (int i = 0; i < MOST; i++)
        expand(&t, f->before, i, 0, d);
    for (int i = 0; i < count; i++)
        expand(&t, f->kernel, i, n[i], d);
    hd_text_f(&t, "  %%out = " KERNEL(
                      "last") " : f32[T, 1] in output[0] {\n    %%o = neg %%y0 : f32[T, 1]\n"
                              "    yield %%o\n  }\n  output %%out {name = \"y\"}\n}\n");
    return t.at;
}

static bench *open_shared(const form *f, const int *n, int count, int d) {
    hd_arena *a = hd_arena_new();
    bench *b = open_text(module_of(a, f, n, count, d));
    hd_arena_free(a);
    b->shared = true;
    return b;
}

/* All sizes by one function, with another for the kernel at the end. */
static void check_shared(const form *f, int d) {
    const hcg_level *levels;
    for (size_t l = 0, n = hcg_levels(&levels); l < n; l++) {
        if (!vectors_run(&levels[l])) continue;
        bench *b = open_shared(f, sizes, SIZES, d);
        rows r;
        uint64_t seed = 7 + l;
        cr_assert(rows_open(&r, b, &levels[l], seed), "%s", bench_errors(b));
        cr_assert_eq(r.p.kernels.n, f->functions ? f->functions : 2, "%zu functions\n%s",
                     r.p.kernels.n, f->kernel);
        rows_expect(&r, 5, 2, &seed, tolerance);
        rows_expect(&r, 1, 0, &seed, tolerance);
        rows_close(&r);
        close_text(b);
    }
}

static size_t functions_of(const form *f, const int *n, int count, int d) {
    bench *b = open_shared(f, n, count, d);
    hcg_program p = {.arena = b->arena, .m = b->m, .chunk = 512};
    p.op_lines = hd_new_array(b->arena, uint32_t, b->m->ops.n + 1);
    cr_assert(hcg_plan_contractions(&p, &b->diags));
    hcg_share_kernels(&p);
    const size_t functions = p.kernels.n;
    close_text(b);
    return functions - 1; /* the one at the end */
}

/* ---- what is shared -------------------------------------------------------------------------- */

/* A mix by learned weights, with the norm of what comes out (DenseFormer). */
static const form learned = {
    .weights = "weight @a#i : f32[#n]\n",
    .row = "#d",
    .kernel = "  %h#i, %g#i = " KERNEL(
        "k#i") " : f32[T, #d] in arena[#i0000], f32[T, #d] in arena[#i5000] {\n"
               "    %s#i = stack #X {axis = 1} : f32[T, #n, #d]\n"
               "    %w#i = reshape @a#i {shape = [#n, 1]} : f32[#n, 1]\n"
               "    %p#i = mul %s#i, %w#i : f32[T, #n, #d]\n"
               "    %r#i = reduce_sum %p#i {axis = 1} : f32[T, #d]\n"
               "    %q#i = mul %r#i, %r#i : f32[T, #d]\n"
               "    %e#i = reduce_mean %q#i {axis = 1} : f32[T]\n"
               "    %f#i = reshape %e#i {shape = [T, 1]} : f32[T, 1]\n"
               "    %t#i = mul %r#i, %f#i : f32[T, #d]\n"
               "    yield %r#i, %t#i\n  }\n",
    .d = {40, 130},
};

/* Weights of a token, four mixes of the same rows (MUDDFormer). A row of them has 4 n numbers. */
static const form four_mixes = {
    .weights = "weight @b#i : f32[4, #n]\n",
    .inputs = ", %c#i: f32[T, #q]",
    .row = "#d",
    .kernel = "  %h#i, %g#i, %z#i = " KERNEL(
        "k#i") " : f32[T, #d] in arena[#i0000], f32[T, #d] in arena[#i5000], f32[T, 4, #n] in "
               "arena[#i7000] {\n"
               "    %ce_#i = reshape %c#i {shape = [T, 4, #n]} : f32[T, 4, #n]\n"
               "    %a#i = add %ce_#i, @b#i : f32[T, 4, #n]\n"
               "    %s#i = stack #X {axis = 1} : f32[T, #n, #d]\n"
               "    %l#i = slice %a#i {axis = 1, start = 1, length = 1} : f32[T, 1, #n]\n"
               "    %w#i = reshape %l#i {shape = [T, #n, 1]} : f32[T, #n, 1]\n"
               "    %p#i = mul %s#i, %w#i : f32[T, #n, #d]\n"
               "    %r#i = reduce_sum %p#i {axis = 1} : f32[T, #d]\n"
               "    %ld_#i = slice %a#i {axis = 1, start = 3, length = 1} : f32[T, 1, #n]\n"
               "    %wd_#i = reshape %ld_#i {shape = [T, #n, 1]} : f32[T, #n, 1]\n"
               "    %pd_#i = mul %s#i, %wd_#i : f32[T, #n, #d]\n"
               "    %rd_#i = reduce_sum %pd_#i {axis = 1} : f32[T, #d]\n"
               "    yield %r#i, %rd_#i, %a#i\n  }\n",
    .d = {40, 130},
};

/* Scores against one query, softmax over the sources, the mix; inverse norms of all sources but the
 * last come from others, that of the last is made here. */
static const form attended = {
    .functions = 3, /* one %y is no run */
    .weights = "weight @q#i : f32[#d]\n",
    .inputs = ", %live#i: f32[T, #d]",
    .row = "#d",
    .kernel =
        "  %h#i = " KERNEL("k#i") " : f32[T, #d] in arena[#i0000] {\n"
                                  "    %v#i = mul %live#i, %live#i : f32[T, #d]\n"
                                  "    %u#i = reduce_mean %v#i {axis = 1} : f32[T]\n"
                                  "    %ub_#i = reshape %u#i {shape = [T, 1]} : f32[T, 1]\n"
                                  "    %n#i = concat #Y, %ub_#i {axis = 1} : f32[T, #n]\n"
                                  "    %s#i = stack #X {axis = 1} : f32[T, #n, #d]\n"
                                  "    %p#i = mul %s#i, @q#i : f32[T, #n, #d]\n"
                                  "    %d#i = reduce_sum %p#i {axis = 2} : f32[T, #n]\n"
                                  "    %e#i = mul %d#i, %n#i : f32[T, #n]\n"
                                  "    %m#i = reduce_max %e#i {axis = 1} : f32[T]\n"
                                  "    %mb_#i = reshape %m#i {shape = [T, 1]} : f32[T, 1]\n"
                                  "    %f#i = sub %e#i, %mb_#i : f32[T, #n]\n"
                                  "    %g#i = exp %f#i : f32[T, #n]\n"
                                  "    %z#i = reduce_sum %g#i {axis = 1} : f32[T]\n"
                                  "    %zb_#i = reshape %z#i {shape = [T, 1]} : f32[T, 1]\n"
                                  "    %w#i = div %g#i, %zb_#i : f32[T, #n]\n"
                                  "    %wb_#i = reshape %w#i {shape = [T, #n, 1]} : f32[T, #n, 1]\n"
                                  "    %x#i_ = mul %s#i, %wb_#i : f32[T, #n, #d]\n"
                                  "    %r#i = reduce_sum %x#i_ {axis = 1} : f32[T, #d]\n"
                                  "    yield %r#i\n  }\n",
    .d = {40, 130},
};

/* Six queries meet all sources in one nest of sums; their softmax is over the sources. */
static const form many_queries = {
    .weights = "weight @q#i : f32[6, #d]\n",
    .row = "#d",
    .kernel = "  %h#i, %l#i = " KERNEL(
        "k#i") " : f32[T, #n, 6] in arena[#i0000], f32[T, 6] in arena[#i5000] {\n"
               "    %s#i = stack #X {axis = 1} : f32[T, #n, #d]\n"
               "    %sb_#i = reshape %s#i {shape = [T, #n, 1, #d]} : f32[T, #n, 1, #d]\n"
               "    %p#i = mul %sb_#i, @q#i : f32[T, #n, 6, #d]\n"
               "    %d#i = reduce_sum %p#i {axis = 3} : f32[T, #n, 6]\n"
               "    %m#i = reduce_max %d#i {axis = 1} : f32[T, 6]\n"
               "    yield %d#i, %m#i\n  }\n",
    .d = {40, 3000}, /* in one block, and in several */
};

/* More queries than go together: sources go by fours, with five queries, five and three. */
static const form more_queries = {
    .weights = "weight @q#i : f32[13, #d]\n",
    .row = "#d",
    .kernel = "  %h#i, %l#i = " KERNEL(
        "k#i") " : f32[T, #n, 13] in arena[#i0000], f32[T, 13] in arena[#i5000] {\n"
               "    %s#i = stack #X {axis = 1} : f32[T, #n, #d]\n"
               "    %sb_#i = reshape %s#i {shape = [T, #n, 1, #d]} : f32[T, #n, 1, #d]\n"
               "    %p#i = mul %sb_#i, @q#i : f32[T, #n, 13, #d]\n"
               "    %d#i = reduce_sum %p#i {axis = 3} : f32[T, #n, 13]\n"
               "    %m#i = reduce_max %d#i {axis = 1} : f32[T, 13]\n"
               "    yield %d#i, %m#i\n  }\n",
    .d = {40, 3000},
};

/* Heads of values, some of them rows of another shape; the mean overwrites the first source and is
 * appended to a state (Depth-Attention). */
static const form heads = {
    .weights = "state $s#i : f32[C, 3, #d]\n",
    .inputs = ", %flat#i: f32[T, 3, #d]",
    .row = "3, #d",
    .functions = 3,
    .kernel = "  %first#i = " KERNEL(
        "f#i") " : f32[T, 3, #d] in arena[#i0000] {\n"
               "    %y#i_ = neg %flat#i : f32[T, 3, #d]\n    yield %y#i_\n  }\n"
               "  %h#i, %k#i = " KERNEL(
                   "k#i") " : f32[T, 3, #d] in arena[#i0000], f32[C, 3, #d] in state[#i] {\n"
                          "    %o#i = reshape %first#i {shape = [T, 3, #d]} : f32[T, 3, #d]\n"
                          "    %s#i = stack %o#i, #X {axis = 2} : f32[T, 3, #p, #d]\n"
                          "    %r#i = reduce_mean %s#i {axis = 2} : f32[T, 3, #d]\n"
                          "    %a#i = cache_append %r#i, $s#i : f32[C, 3, #d]\n"
                          "    yield %r#i, %a#i\n  }\n",
    .d = {20},
};

/* Rows of a projection, seen as heads: there is a reshape for each of them. */
static const form seen_as_heads = {
    .weights = "weight @q#i : f32[2, 1, #h]\n",
    .row = "#d",
    .kernel = "  %h#i, %g#i = " KERNEL(
        "k#i") " : f32[T, 2, #n] in arena[#i0000], f32[T, 2, #h] in arena[#i5000] {\n#V"
               "    %s#i = stack #W {axis = 2} : f32[T, 2, #n, #h]\n"
               "    %p#i = mul %s#i, @q#i : f32[T, 2, #n, #h]\n"
               "    %d#i = reduce_sum %p#i {axis = 3} : f32[T, 2, #n]\n"
               "    %w#i = reshape %d#i {shape = [T, 2, #n, 1]} : f32[T, 2, #n, 1]\n"
               "    %m#i = mul %s#i, %w#i : f32[T, 2, #n, #h]\n"
               "    %r#i = reduce_sum %m#i {axis = 2} : f32[T, 2, #h]\n"
               "    yield %d#i, %r#i\n  }\n",
    .d = {8, 80}, /* rows that are copied, and pointers to rows */
};

/* A view that is read by itself, too, is no part of a list alone. */
static const form seen_twice = {
    .row = "#d",
    .kernel = "  %h#i, %g#i = " KERNEL(
        "k#i") " : f32[T, 2, #h] in arena[#i0000], f32[T, 2, #h] in arena[#i5000] {\n#V"
               "    %s#i = stack #W {axis = 2} : f32[T, 2, #n, #h]\n"
               "    %r#i = reduce_sum %s#i {axis = 2} : f32[T, 2, #h]\n"
               "    %g#i_ = neg %v0of_#i : f32[T, 2, #h]\n"
               "    yield %r#i, %g#i_\n  }\n",
    .d = {80},
};

/* A result overwrites one of many sources, all of which are read again later: it must come last. */
static const form read_again = {
    .row = "#d",
    .functions = 3,
    .kernel = "  %first#i = " KERNEL(
        "f#i") " : f32[T, #d] in arena[#i0000] {\n"
               "    %y#i_ = neg %x1 : f32[T, #d]\n    yield %y#i_\n  }\n"
               "  %h#i, %g#i = " KERNEL(
                   "k#i") " : f32[T, #d] in arena[#i0000], f32[T, #d] in arena[#i5000] {\n"
                          "    %s#i = stack #X, %first#i {axis = 1} : f32[T, #p, #d]\n"
                          "    %r#i = reduce_sum %s#i {axis = 1} : f32[T, #d]\n"
                          "    %q#i = mul %r#i, %r#i : f32[T, #d]\n"
                          "    %e#i = reduce_mean %q#i {axis = 1} : f32[T]\n"
                          "    %f#i = reshape %e#i {shape = [T, 1, 1]} : f32[T, 1, 1]\n"
                          "    %t#i = mul %s#i, %f#i : f32[T, #p, #d]\n"
                          "    %u#i = reduce_max %t#i {axis = 1} : f32[T, #d]\n"
                          "    yield %r#i, %u#i\n  }\n",
    .d = {40, 130},
};

/* No stack: rows of 4 n numbers; a slice that begins at n; elements that do not lie in line. */
static const form rows_of_numbers = {
    .weights = "weight @b#i : f32[#n, 3]\n",
    .inputs = ", %c#i: f32[T, #q]",
    .row = "#d",
    .kernel = "  %h#i, %g#i, %k#i = " KERNEL(
        "k#i") " : f32[T, #n] in arena[#i0000], f32[T, 3, #n] in arena[#i5000], f32[T, #n, 3] in "
               "arena[#i7000] {\n"
               "    %e#i = silu %c#i : f32[T, #q]\n"
               "    %l#i = slice %e#i {axis = 1, start = #n, length = #n} : f32[T, #n]\n"
               "    %t#i = transpose @b#i {perm = [1, 0]} : f32[3, #n]\n"
               "    %lb_#i = reshape %l#i {shape = [T, 1, #n]} : f32[T, 1, #n]\n"
               "    %a#i = mul %lb_#i, %t#i : f32[T, 3, #n]\n"
               "    %b#i_ = transpose %a#i {perm = [0, 2, 1]} : f32[T, #n, 3]\n"
               "    %m#i = reduce_mean %c#i {axis = 1} : f32[T]\n"
               "    %mb_#i = reshape %m#i {shape = [T, 1]} : f32[T, 1]\n"
               "    %y#i_ = mul %l#i, %mb_#i : f32[T, #n]\n"
               "    yield %y#i_, %a#i, %b#i_\n  }\n",
    .d = {1},
};

/* Halves beyond the end of a row are left alone too. */
static const form halves = {
    .inputs = ", %c#i: f32[T, #n]",
    .row = "#d",
    .kernel = "  %h#i = " KERNEL("k#i") " : bf16[T, #n] in arena[#i0000] {\n"
                                        "    %e#i = neg %c#i : f32[T, #n]\n"
                                        "    %f#i = convert %e#i {dtype = \"bf16\"} : bf16[T, "
                                        "#n]\n    yield %f#i\n  }\n",
    .d = {1},
};

/* Sources that are stored as bf16. */
static const form half_sources = {
    .before = "  %z#i = " KERNEL("b") " : bf16[T, #d] in arena[7#i00] {\n"
                                      "    %x#i_ = convert %x#i {dtype = \"bf16\"} : bf16[T, "
                                      "#d]\n    yield %x#i_\n  }\n",
    .row = "#d",
    .kernel = "  %h#i = " KERNEL(
        "k#i") " : f32[T, #d] in arena[#i0000] {\n"
               "    %s#i = stack #Z {axis = 1} : f32[T, #n, #d]\n"
               "    %r#i = reduce_sum %s#i {axis = 1} : f32[T, #d]\n    yield %r#i\n  }\n",
    .functions = 3,
    .d = {40},
};

static const form *const shared[] = {
    &learned,    &four_mixes,      &attended, &many_queries, &more_queries,  &heads,
    &read_again, &rows_of_numbers, &halves,   &half_sources, &seen_as_heads, &seen_twice,
};
enum { SHARED = sizeof shared / sizeof shared[0] };

ParameterizedTestParameters(row_family, sizes_of_a_form_share_a_function) {
    static size_t number[SHARED];
    for (size_t i = 0; i < SHARED; i++)
        number[i] = i;
    return cr_make_param_array(size_t, number, SHARED);
}

ParameterizedTest(const size_t *number, row_family, sizes_of_a_form_share_a_function) {
    const form *f = shared[*number];
    for (int i = 0; i < 2 && f->d[i]; i++)
        check_shared(f, f->d[i]);
}

/* ---- what is not ----------------------------------------------------------------------------- */

Test(row_family, few_forms_have_functions_of_their_own) {
    static const int few[] = {2, 3, 4, 5}, equal[] = {7, 7, 7, 7, 7, 7};
    cr_expect_eq(functions_of(&learned, few, 4, 40), 4);
    cr_expect_eq(functions_of(&learned, equal, 6, 40), 1);
    cr_expect_eq(functions_of(&learned, sizes, SIZES, 40), 1);
}

Test(row_family, a_source_alone_is_no_stack) {
    static const int n[] = {1, 2, 3, 4, 5, 6};
    cr_expect_eq(functions_of(&learned, n, 6, 40), 2);
}

/* One op on one value of this type. */
#define NEG_OF(type)                                                                               \
    {                                                                                              \
        .inputs = ", %c#i: " type, .row = "#d",                                                    \
        .kernel = "  %h#i = " KERNEL("k#i") " : " type " in arena[#i0000] {\n"                     \
                                            "    %r#i = neg %c#i : " type "\n"                     \
                                            "    yield %r#i\n  }\n",                               \
    }

/* [n, n]: elements are no a + b n. */
static const form square = NEG_OF("f32[T, #n, #n]");

/* Pointers to long rows are arguments in a row only if nothing else is stacked with them. */
static const form mixed = {
    .row = "#d",
    .kernel = "  %h#i = " KERNEL(
        "k#i") " : f32[T, #d] in arena[#i0000] {\n"
               "    %o#i = neg %x0 : f32[T, #d]\n"
               "    %s#i = stack #X, %o#i {axis = 1} : f32[T, #p, #d]\n"
               "    %r#i = reduce_sum %s#i {axis = 1} : f32[T, #d]\n    yield %r#i\n  }\n",
};

/* Rows as wide as a model are no such size, though everything else is equal. */
static const form wide = NEG_OF("f32[T, #n000]");

/* n and n^2: no family has more than two. */
static const form squares = {
    .inputs = ", %c#i: f32[T, #n], %e#i: f32[T, #s]",
    .row = "#d",
    .kernel = "  %h#i, %g#i = " KERNEL(
        "k#i") " : f32[T, #n] in arena[#i0000], f32[T, #s] in arena[#i5000] {\n"
               "    %r#i = neg %c#i : f32[T, #n]\n    %t#i = neg %e#i : f32[T, #s]\n"
               "    yield %r#i, %t#i\n  }\n",
};

Test(row_family, sizes_of_other_forms_have_functions_of_their_own) {
    static const int widths[] = {5, 6, 7, 8, 9, 10};
    cr_expect_eq(functions_of(&square, sizes, SIZES, 1), SIZES);
    cr_expect_eq(functions_of(&mixed, sizes, SIZES, 40), SIZES);
    cr_expect_eq(functions_of(&wide, widths, 6, 1), 6);
    cr_expect_eq(functions_of(&squares, sizes, SIZES, 1), SIZES);
}
