/* The passes on the graph: what each takes and what it leaves alone. Every case is checked by the
 * evaluator too. */
#include <criterion/criterion.h>

#include "tests/unit/passes/pass_models.h"

/* A function of x, y: f32[T, 8], v: f32[8], with weights w: f32[8], m: f32[16, 8], one body. */
static const char *function(hd_arena *a, const char *body) {
    return hd_printf(a,
                     "hir 1 graph @f\n\nweight @w : f32[8]\nweight @m : f32[16, 8]\n\n"
                     "func(%%x: f32[T, 8], %%y: f32[T, 8], %%v: f32[8]) {\n%s}\n",
                     body);
}

static bench run_one(const char *body, hir_pass_id pass) {
    bench b = {0};
    hd_arena *a = hd_arena_new();
    b = new_bench(function(a, body));
    cr_assert(b.m);
    cr_assert(run_list(&b, &pass, 1, true, NULL), "%s", errors_of(&b));
    hd_arena_free(a);
    return b;
}

/* The ops of the function after the pass, without the declarations. */
static void expect_body(const char *body, hir_pass_id pass, const char *expected) {
    bench b = run_one(body, pass);
    const char *text = strstr(text_of(&b), "{\n");
    cr_assert(text);
    char *got = hd_strdup(b.arena, text + 2);
    got[strlen(got) - 2] = 0; /* "}\n" */
    cr_expect_str_eq(got, expected, "%s", got);
    hd_arena_free(b.arena);
}

/* ---- lower-traces ---------------------------------------------------------------------------- */
static const char traced[] = "  trace %x {name = \"t\"}\n"
                             "  trace %x {name = \"u\"}\n"
                             "  trace %y {name = \"t\"}\n"
                             "  output %x {name = \"o\"}\n";

Test(lower_traces, drops_them) {
    expect_body(traced, HIR_PASS_LOWER_TRACES, "  output %x {name = \"o\"}\n");
}

Test(lower_traces, numbers_them_behind_the_outputs) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(function(a, traced));
    hir_compile_options keep = {.keep_traces = true};
    hir_pass_id pass = HIR_PASS_LOWER_TRACES;
    cr_assert(run_list(&b, &pass, 1, true, &keep), "%s", errors_of(&b));
    cr_expect(strstr(text_of(&b), "  output %x {name = \"o\"}\n"
                                  "  output %x {name = \"t.0\"}\n"
                                  "  output %x {name = \"u.0\"}\n"
                                  "  output %y {name = \"t.1\"}\n"),
              "%s", text_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

Test(lower_traces, rejects_a_name_that_is_taken) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(function(a, "  trace %x {name = \"t\"}\n  output %x {name = \"t.0\"}\n"));
    hir_compile_options keep = {.keep_traces = true};
    hir_pass_id pass = HIR_PASS_LOWER_TRACES;
    cr_expect_not(run_list(&b, &pass, 1, false, &keep));
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_NAME);
    cr_expect(strstr(errors_of(&b), "lower-traces"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* ---- canonicalise ---------------------------------------------------------------------------- */
#define CANON(body, expected) expect_body(body, HIR_PASS_CANONICALISE, expected)

Test(canonicalise, identities) {
    CANON("  %0 = const {shape = [], value = 1} : f32[]\n"
          "  %1 = mul %x, %0 : f32[T, 8]\n"
          "  %2 = div %1, %0 : f32[T, 8]\n"
          "  %3 = const {shape = [], value = 0} : f32[]\n"
          "  %4 = add %3, %2 : f32[T, 8]\n"
          "  %5 = sub %4, %3 : f32[T, 8]\n"
          "  %6 = neg %5 : f32[T, 8]\n"
          "  %7 = neg %6 : f32[T, 8]\n"
          "  output %7 {name = \"o\"}\n",
          "  %0 = const {shape = [], value = 1} : f32[]\n"
          "  %1 = const {shape = [], value = 0} : f32[]\n"
          "  %2 = neg %x : f32[T, 8]\n"
          "  output %x {name = \"o\"}\n");
}

Test(canonicalise, an_identity_that_stretches_stays) {
    const char *body = "  %0 = const {shape = [1, 1, 8], value = 1} : f32[1, 1, 8]\n"
                       "  %1 = mul %v, %0 : f32[1, 1, 8]\n"
                       "  output %1 {name = \"o\"}\n";
    CANON(body, body);
}

Test(canonicalise, reshapes) {
    CANON("  %0 = reshape %x {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
          "  %1 = reshape %0 {shape = [T, 4, 2]} : f32[T, 4, 2]\n"
          "  %2 = reshape %1 {shape = [T, 8]} : f32[T, 8]\n"
          "  output %1 {name = \"o\"}\n"
          "  output %2 {name = \"p\"}\n",
          "  %0 = reshape %x {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
          "  %1 = reshape %x {shape = [T, 4, 2]} : f32[T, 4, 2]\n"
          "  output %1 {name = \"o\"}\n"
          "  output %x {name = \"p\"}\n");
}

Test(canonicalise, joins_and_slices) {
    CANON("  %0 = stack %x {axis = 1} : f32[T, 1, 8]\n"
          "  %1 = concat %0 {axis = 2} : f32[T, 1, 8]\n"
          "  %2 = stack %x, %y {axis = 1} : f32[T, 2, 8]\n"
          "  %3 = slice %2 {axis = 1, start = 1, length = 1} : f32[T, 1, 8]\n"
          "  %4 = slice %y {axis = 1, start = 0, length = 8} : f32[T, 8]\n"
          "  %5 = slice %y {axis = 1, start = 2, length = 6} : f32[T, 6]\n"
          "  %6 = slice %5 {axis = 1, start = 1, length = 2} : f32[T, 2]\n"
          "  output %1 {name = \"a\"}\n"
          "  output %3 {name = \"b\"}\n"
          "  output %4 {name = \"c\"}\n"
          "  output %6 {name = \"d\"}\n",
          "  %0 = reshape %x {shape = [T, 1, 8]} : f32[T, 1, 8]\n"
          "  %1 = stack %x, %y {axis = 1} : f32[T, 2, 8]\n"
          "  %2 = reshape %y {shape = [T, 1, 8]} : f32[T, 1, 8]\n"
          "  %3 = slice %y {axis = 1, start = 2, length = 6} : f32[T, 6]\n"
          "  %4 = slice %y {axis = 1, start = 3, length = 2} : f32[T, 2]\n"
          "  output %0 {name = \"a\"}\n"
          "  output %2 {name = \"b\"}\n"
          "  output %y {name = \"c\"}\n"
          "  output %4 {name = \"d\"}\n");
}

Test(canonicalise, a_slice_of_a_concat_is_its_operand) {
    CANON("  %0 = concat %x, %y {axis = 1} : f32[T, 16]\n"
          "  %1 = slice %0 {axis = 1, start = 8, length = 8} : f32[T, 8]\n"
          "  %2 = slice %0 {axis = 1, start = 4, length = 8} : f32[T, 8]\n"
          "  output %1 {name = \"a\"}\n"
          "  output %2 {name = \"b\"}\n",
          "  %0 = concat %x, %y {axis = 1} : f32[T, 16]\n"
          "  %1 = slice %0 {axis = 1, start = 4, length = 8} : f32[T, 8]\n"
          "  output %y {name = \"a\"}\n"
          "  output %1 {name = \"b\"}\n");
}

Test(canonicalise, transposes) {
    CANON("  %0 = reshape %x {shape = [T, 1, 2, 4]} : f32[T, 1, 2, 4]\n"
          "  %1 = transpose %0 {perm = [0, 2, 3, 1]} : f32[T, 2, 4, 1]\n"
          "  %2 = transpose %1 {perm = [0, 3, 1, 2]} : f32[T, 1, 2, 4]\n"
          "  %3 = transpose %1 {perm = [0, 2, 1, 3]} : f32[T, 4, 2, 1]\n"
          "  output %2 {name = \"a\"}\n"
          "  output %3 {name = \"b\"}\n",
          "  %0 = reshape %x {shape = [T, 1, 2, 4]} : f32[T, 1, 2, 4]\n"
          "  %1 = reshape %x {shape = [T, 2, 4, 1]} : f32[T, 2, 4, 1]\n"
          "  %2 = reshape %x {shape = [T, 1, 2, 4]} : f32[T, 1, 2, 4]\n"
          "  %3 = transpose %1 {perm = [0, 2, 1, 3]} : f32[T, 4, 2, 1]\n"
          "  output %2 {name = \"a\"}\n"
          "  output %3 {name = \"b\"}\n");
    CANON("  %0 = reshape %x {shape = [T, 2, 2, 2]} : f32[T, 2, 2, 2]\n"
          "  %1 = transpose %0 {perm = [0, 2, 3, 1]} : f32[T, 2, 2, 2]\n"
          "  %2 = transpose %1 {perm = [0, 3, 1, 2]} : f32[T, 2, 2, 2]\n"
          "  output %2 {name = \"a\"}\n",
          "  %0 = reshape %x {shape = [T, 2, 2, 2]} : f32[T, 2, 2, 2]\n"
          "  %1 = transpose %0 {perm = [0, 2, 3, 1]} : f32[T, 2, 2, 2]\n"
          "  output %0 {name = \"a\"}\n");
}

Test(canonicalise, one_form_of_arithmetic) {
    CANON("  %0 = const {shape = [], value = 3} : f32[]\n"
          "  %1 = sub %x, %0 : f32[T, 8]\n"
          "  %2 = neg %y : f32[T, 8]\n"
          "  %3 = add %1, %2 : f32[T, 8]\n"
          "  output %3 {name = \"o\"}\n",
          "  %0 = const {shape = [], value = 3} : f32[]\n"
          "  %1 = const {shape = [], value = -3} : f32[]\n"
          "  %2 = add %x, %1 : f32[T, 8]\n"
          "  %3 = neg %y : f32[T, 8]\n"
          "  %4 = sub %2, %y : f32[T, 8]\n"
          "  output %4 {name = \"o\"}\n");
}

Test(canonicalise, divides_by_powers_of_two_only) {
    CANON("  %0 = const {shape = [], value = 8} : f32[]\n"
          "  %1 = div %x, %0 : f32[T, 8]\n"
          "  %2 = const {shape = [], value = 3} : f32[]\n"
          "  %3 = div %1, %2 : f32[T, 8]\n"
          "  %4 = const {shape = [], value = 0} : f32[]\n"
          "  %5 = div %3, %4 : f32[T, 8]\n"
          "  output %5 {name = \"o\"}\n",
          "  %0 = const {shape = [], value = 8} : f32[]\n"
          "  %1 = const {shape = [], value = 0.125} : f32[]\n"
          "  %2 = mul %x, %1 : f32[T, 8]\n"
          "  %3 = const {shape = [], value = 3} : f32[]\n"
          "  %4 = div %2, %3 : f32[T, 8]\n"
          "  %5 = const {shape = [], value = 0} : f32[]\n"
          "  %6 = div %4, %5 : f32[T, 8]\n"
          "  output %6 {name = \"o\"}\n");
}

Test(canonicalise, broadcasts_that_an_op_does_itself) {
    CANON("  %0 = broadcast %v {shape = [T, 8]} : f32[T, 8]\n"
          "  %1 = mul %0, %x : f32[T, 8]\n"
          "  %2 = mul %0, @w : f32[T, 8]\n"
          "  output %1 {name = \"o\"}\n"
          "  output %2 {name = \"p\"}\n",
          "  %0 = broadcast %v {shape = [T, 8]} : f32[T, 8]\n"
          "  %1 = mul %v, %x : f32[T, 8]\n"
          "  %2 = mul %0, @w : f32[T, 8]\n"
          "  output %1 {name = \"o\"}\n"
          "  output %2 {name = \"p\"}\n");
}

Test(canonicalise, reductions_of_one) {
    CANON("  %0 = reshape %x {shape = [T, 8, 1]} : f32[T, 8, 1]\n"
          "  %1 = reduce_mean %0 {axis = 2} : f32[T, 8]\n"
          "  %2 = reduce_sum %0 {axis = 1} : f32[T, 1]\n"
          "  output %1 {name = \"o\"}\n"
          "  output %2 {name = \"p\"}\n",
          "  %0 = reshape %x {shape = [T, 8, 1]} : f32[T, 8, 1]\n"
          "  %1 = reduce_sum %0 {axis = 1} : f32[T, 1]\n"
          "  output %x {name = \"o\"}\n"
          "  output %1 {name = \"p\"}\n");
}

/* A weight is no value: what an output names stays an op. */
Test(canonicalise, keeps_a_weight_a_value) {
    const char *body = "  %0 = reshape @w {shape = [8]} : f32[8]\n"
                       "  output %0 {name = \"o\"}\n";
    CANON(body, body);
}

Test(canonicalise, leaves_norms_and_contractions) {
    const char *body = "  %0 = rmsnorm %x, @w {eps = 1e-06} : f32[T, 8]\n"
                       "  %1 = linear %0, @m, _ : f32[T, 16]\n"
                       "  %2 = softmax %1 {axis = 1} : f32[T, 16]\n"
                       "  output %2 {name = \"o\"}\n";
    CANON(body, body);
}

/* ---- fold-constants -------------------------------------------------------------------------- */
#define FOLD(body, expected) expect_body(body, HIR_PASS_FOLD_CONSTANTS, expected)

Test(fold_constants, numbers) {
    FOLD("  %0 = const {shape = [], value = 2} : f32[]\n"
         "  %1 = sqrt %0 : f32[]\n"
         "  %2 = mul %1, %1 : f32[]\n"
         "  %3 = const {shape = [4], value = 2} : f32[4]\n"
         "  %4 = reduce_sum %3 {axis = 0} : f32[]\n"
         "  %5 = add %4, %0 : f32[]\n"
         "  %6 = add %x, %5 : f32[T, 8]\n"
         "  output %6 {name = \"o\"}\n",
         "  %0 = const {shape = [], value = 2} : f32[]\n"
         "  %1 = const {shape = [], value = 1.4142135623730951} : f32[]\n"
         "  %2 = const {shape = [], value = 2.0000000000000004} : f32[]\n"
         "  %3 = const {shape = [4], value = 2} : f32[4]\n"
         "  %4 = const {shape = [], value = 8} : f32[]\n"
         "  %5 = const {shape = [], value = 10} : f32[]\n"
         "  %6 = add %x, %5 : f32[T, 8]\n"
         "  output %6 {name = \"o\"}\n");
}

Test(fold_constants, leaves_what_is_not_finite) {
    const char *body = "  %0 = const {shape = [], value = -1} : f32[]\n"
                       "  %1 = sqrt %0 : f32[]\n"
                       "  %2 = const {shape = [], value = 100} : f32[]\n"
                       "  %3 = exp %2 : f32[]\n"
                       "  %4 = add %1, %3 : f32[]\n"
                       "  %5 = add %x, %4 : f32[T, 8]\n"
                       "  output %5 {name = \"o\"}\n";
    FOLD(body, body);
}

Test(fold_constants, merges_factors_that_are_exact) {
    FOLD("  %0 = const {shape = [], value = 0.5} : f32[]\n"
         "  %1 = mul %x, %0 : f32[T, 8]\n"
         "  %2 = mul %1, %0 : f32[T, 8]\n"
         "  %3 = const {shape = [], value = 0.3} : f32[]\n"
         "  %4 = mul %2, %3 : f32[T, 8]\n"
         "  output %4 {name = \"o\"}\n",
         "  %0 = const {shape = [], value = 0.5} : f32[]\n"
         "  %1 = mul %x, %0 : f32[T, 8]\n"
         "  %2 = const {shape = [], value = 0.25} : f32[]\n"
         "  %3 = mul %x, %2 : f32[T, 8]\n"
         "  %4 = const {shape = [], value = 0.3} : f32[]\n"
         "  %5 = mul %3, %4 : f32[T, 8]\n"
         "  output %5 {name = \"o\"}\n");
}

/* Rows of one number are numbers, unless the result has its shape of them. */
Test(fold_constants, drops_shapes_that_nobody_needs) {
    FOLD("  %0 = const {shape = [8], value = 1} : f32[8]\n"
         "  %1 = mul %x, %0 : f32[T, 8]\n"
         "  %2 = const {shape = [8], value = 0} : f32[8]\n"
         "  %3 = sub %2, %1 : f32[T, 8]\n"
         "  %4 = reduce_sum %3 {axis = 1} : f32[T]\n"
         "  %5 = reshape %4 {shape = [T, 1]} : f32[T, 1]\n"
         "  %6 = mul %5, %0 : f32[T, 8]\n"
         "  output %6 {name = \"o\"}\n",
         "  %0 = const {shape = [8], value = 1} : f32[8]\n"
         "  %1 = const {shape = [], value = 1} : f32[]\n"
         "  %2 = mul %x, %1 : f32[T, 8]\n"
         "  %3 = const {shape = [8], value = 0} : f32[8]\n"
         "  %4 = const {shape = [], value = 0} : f32[]\n"
         "  %5 = sub %4, %2 : f32[T, 8]\n"
         "  %6 = reduce_sum %5 {axis = 1} : f32[T]\n"
         "  %7 = reshape %6 {shape = [T, 1]} : f32[T, 1]\n"
         "  %8 = mul %7, %0 : f32[T, 8]\n"
         "  output %8 {name = \"o\"}\n");
}

/* ---- cse ------------------------------------------------------------------------------------- */
#define CSE(body, expected) expect_body(body, HIR_PASS_CSE, expected)

Test(cse, equal_trees) {
    CSE("  %0 = mul %x, %y : f32[T, 8]\n"
        "  %1 = mul %y, %x : f32[T, 8]\n"
        "  %2 = rmsnorm %0, @w {eps = 1e-06} : f32[T, 8]\n"
        "  %3 = rmsnorm %1, @w {eps = 1e-06} : f32[T, 8]\n"
        "  output %2 {name = \"o\"}\n"
        "  output %3 {name = \"p\"}\n",
        "  %0 = mul %x, %y : f32[T, 8]\n"
        "  %1 = rmsnorm %0, @w {eps = 1e-06} : f32[T, 8]\n"
        "  output %1 {name = \"o\"}\n"
        "  output %1 {name = \"p\"}\n");
}

Test(cse, what_differs_stays) {
    const char *body = "  %0 = sub %x, %y : f32[T, 8]\n"
                       "  %1 = sub %y, %x : f32[T, 8]\n"
                       "  %2 = rmsnorm %0, @w {eps = 1e-06} : f32[T, 8]\n"
                       "  %3 = rmsnorm %0, @w {eps = 1e-05} : f32[T, 8]\n"
                       "  %4 = rmsnorm %0, _ {eps = 1e-05} : f32[T, 8]\n"
                       "  output %1 {name = \"o\"}\n"
                       "  output %2 {name = \"p\"}\n"
                       "  output %3 {name = \"q\"}\n"
                       "  output %4 {name = \"r\"}\n";
    CSE(body, body);
}

Test(cse, keeps_a_name) {
    CSE("  %0 = neg %x : f32[T, 8]\n"
        "  %h = neg %x : f32[T, 8]\n"
        "  output %h {name = \"o\"}\n",
        "  %h = neg %x : f32[T, 8]\n"
        "  output %h {name = \"o\"}\n");
}

/* ---- dce ------------------------------------------------------------------------------------- */
Test(dce, ops_and_tables) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench("hir 1 graph @f\n\n"
                        "weight @never : f32[8]\nweight @dead : f32[8]\nweight @live : f32[8]\n"
                        "weight @spare : f32[8] unused\n\n"
                        "state $gone : f32[C, 2, 4]\nstate $kept : f32[C, 2, 4]\n\n"
                        "func(%x: f32[T, 8]) {\n"
                        "  %0 = mul %x, @dead : f32[T, 8]\n"
                        "  %1 = neg %0 : f32[T, 8]\n"
                        "  %2 = mul %x, @live : f32[T, 8]\n"
                        "  %3 = reshape %2 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
                        "  %4 = cache_append %3, $kept : f32[C, 2, 4]\n"
                        "  output %2 {name = \"o\"}\n"
                        "}\n");
    hir_pass_id pass = HIR_PASS_DCE;
    cr_assert(run_list(&b, &pass, 1, true, NULL), "%s", errors_of(&b));
    cr_expect_str_eq(text_of(&b),
                     "hir 1 graph @f\n\n"
                     "weight @never : f32[8] unused\nweight @dead : f32[8] unused\n"
                     "weight @live : f32[8]\n"
                     "weight @spare : f32[8] unused\n\n"
                     "state $kept : f32[C, 2, 4]\n\n"
                     "func(%x: f32[T, 8]) {\n"
                     "  %0 = mul %x, @live : f32[T, 8]\n"
                     "  %1 = reshape %0 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
                     "  %2 = cache_append %1, $kept : f32[C, 2, 4]\n"
                     "  output %0 {name = \"o\"}\n"
                     "}\n",
                     "%s", text_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* ---- split-small-contractions ---------------------------------------------------------------- */
static size_t count(const bench *b, hir_opcode code) {
    size_t n = 0;
    for (size_t i = 0; i < b->m->ops.n; i++)
        n += !b->m->ops.at[i].erased && b->m->ops.at[i].code == code;
    return n;
}

/* linear of x: f32[T, dims..] with @w: f32[n, k]; `left`: linear ops that remain */
static bench split(const char *x, const char *w, const char *y, const char *extra) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(hd_printf(a,
                                  "hir 1 graph @f\n\nweight @w : %s\n\nfunc(%%x: %s) {\n"
                                  "  %%0 = linear %%x, @w, _ : %s\n"
                                  "  output %%0 {name = \"o\"}\n%s}\n",
                                  w, x, y, extra));
    hir_pass_id pass = HIR_PASS_SPLIT_SMALL;
    cr_assert(b.m);
    cr_assert(run_list(&b, &pass, 1, true, NULL), "%s", errors_of(&b));
    hd_arena_free(a);
    return b;
}

Test(split_small, pseudo_query) {
    bench b = split("f32[T, 5, 64]", "f32[1, 64]", "f32[T, 5, 1]", "");
    cr_expect_eq(count(&b, HIR_LINEAR_OP), 0);
    cr_expect_eq(count(&b, HIR_MUL_OP), 1);
    cr_expect_eq(count(&b, HIR_REDUCE_SUM_OP), 1);
    cr_expect_eq(b.remarks.list.n, 1);
    cr_expect(strstr(text_of(&b), "mul %x, %0 : f32[T, 5, 64]"), "%s", text_of(&b));
    hd_arena_free(b.arena);
}

/* What becomes row operations leaves no linear op. The layout of a weight is one: read by elements,
 * it cannot be panels. */
Test(split_small, what_becomes_row_operations) {
    static const struct {
        const char *x, *w, *y, *extra;
        size_t linear, stacks, remarks;
    } cases[] = {
        {"f32[T, 64]", "f32[8, 64]", "f32[T, 8]", "", 0, 0, 1},   /* few columns */
        {"f32[T, 64]", "f32[9, 64]", "f32[T, 9]", "", 1, 0, 0},   /* a contraction stays */
        {"f32[3, 64]", "f32[40, 64]", "f32[3, 40]", "", 0, 0, 1}, /* no tokens */
        /* a large weight of a stack goes slice by slice, a small one not */
        {"f32[T, 2, 3, 160]", "f32[128, 160]", "f32[T, 2, 3, 128]", "", 6, 1, 1},
        {"f32[T, 2, 3, 16]", "f32[12, 16]", "f32[T, 2, 3, 12]", "", 0, 0, 1},
        {"f32[T, 64]", "f32[32, 64]", "f32[T, 32]",
         "  %1 = neg @w : f32[32, 64]\n  output %1 {name = \"p\"}\n", 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b = split(cases[i].x, cases[i].w, cases[i].y, cases[i].extra);
        cr_expect_eq(count(&b, HIR_LINEAR_OP), cases[i].linear, "case %zu", i);
        cr_expect_eq(count(&b, HIR_STACK_OP), cases[i].stacks, "case %zu", i);
        cr_expect_eq(b.remarks.list.n, cases[i].remarks, "case %zu: %zu remarks", i,
                     b.remarks.list.n);
        hd_arena_free(b.arena);
    }
}

Test(split_small, matrix_and_bias_that_are_no_weights) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench("hir 1 graph @f\n\nweight @w : f32[32, 8]\nweight @b : f32[32]\n\n"
                        "func(%x: f32[T, 8]) {\n"
                        "  %0 = tanh @b : f32[32]\n"
                        "  %1 = linear %x, @w, %0 : f32[T, 32]\n"
                        "  %2 = neg @w : f32[32, 8]\n"
                        "  %3 = linear %x, %2, _ : f32[T, 32]\n"
                        "  output %1 {name = \"o\"}\n"
                        "  output %3 {name = \"p\"}\n"
                        "}\n");
    hir_pass_id pass = HIR_PASS_SPLIT_SMALL;
    cr_assert(run_list(&b, &pass, 1, true, NULL), "%s", errors_of(&b));
    cr_expect_eq(count(&b, HIR_LINEAR_OP), 0, "@w is read by element, too");
    cr_expect_eq(count(&b, HIR_ADD_OP), 1);
    hd_arena_free(b.arena);
    hd_arena_free(a);
}
