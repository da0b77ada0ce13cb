/* Random numbers that never change, random weights, and the comparison of two modules. */
#include "ir/eval/random.h"
#include "support/tensorfile.h"
#include "tests/unit/ir/support_eval.h"

TestSuite(eval_compare, .init = open_arena, .fini = close_arena);

/* ---- random numbers -------------------------------------------------------------------------- */

Test(eval_compare, streams_are_pinned) {
    /* computed by a separate program from the definitions of FNV-1a, splitmix64 and xoshiro256** */
    hir_random r = hir_random_stream(42, "model.norm.weight");
    uint64_t want[] = {0xb4c9211651b3ab3cu, 0x8c5c9b6b367413deu, 0x20a2da83809abe5cu,
                       0x4fc0b74d3b827c83u};
    for (int i = 0; i < 4; i++)
        cr_assert_eq(hir_random_next(&r), want[i], "number %d", i);
    r = hir_random_stream(0, "");
    cr_assert_eq(hir_random_next(&r), 0x1e28178eedbf0f30u);
    r = hir_random_stream(42, "model.norm.weight");
    double normal = hir_random_normal(&r);
    cr_assert_float_eq(normal, -0.8950303059751269, 1e-15);
    cr_assert_eq(hir_random_below(&r, 1000), 127);
}

Test(eval_compare, normal_numbers_have_their_moments) {
    hir_random r = hir_random_stream(1, "moments");
    enum { COUNT = 200000 };
    double sum[5] = {0};
    for (int i = 0; i < COUNT; i++) {
        double x = hir_random_normal(&r), power = 1;
        cr_assert_leq(fabs(x), 4.9);
        for (int k = 0; k < 5; k++, power *= x)
            sum[k] += power;
    }
    cr_assert_float_eq(sum[1] / COUNT, 0, 0.01);
    cr_assert_float_eq(sum[2] / COUNT, 1, 0.02);
    cr_assert_float_eq(sum[3] / COUNT, 0, 0.03);
    cr_assert_float_eq(sum[4] / COUNT, 2.85, 0.05); /* 3 - 6/5/8: of eight uniforms */
}

Test(eval_compare, below_reaches_every_number) {
    hir_random r = hir_random_stream(1, "below");
    int seen[7] = {0};
    for (int i = 0; i < 7000; i++)
        seen[hir_random_below(&r, 7)]++; /* beyond the end: the sanitizer's */
    for (int i = 0; i < 7; i++)
        cr_assert(seen[i] > 800 && seen[i] < 1200, "%d: %d", i, seen[i]);
    for (int i = 0; i < 100; i++)
        cr_assert_eq(hir_random_below(&r, 1), 0);
}

static double *weight(const hir_module *m, const char *name, uint64_t seed) {
    uint32_t w = hir_find_weight(m, name);
    double *out = hd_new_array(arena, double, (size_t)hir_type_row_elements(m->weights.at[w].type));
    cr_assert(hir_random_weights(&seed, m, w, out, &diags));
    return out;
}

Test(eval_compare, weights_follow_seed_and_name_alone) {
    hir_module *a = hir_module_new(arena, "a"), *b = hir_module_new(arena, "b");
    hir_type vector = hir_make_type(HIR_F32, 1, (int64_t[]){1000});
    hir_type matrix = hir_make_type(HIR_F32, 2, (int64_t[]){50, 100});
    hir_type narrow = hir_make_type(HIR_BF16, 2, (int64_t[]){50, 100});
    hir_add_weight(a, "v", vector, HD_NOWHERE);
    hir_add_weight(a, "w", matrix, HD_NOWHERE);
    hir_add_weight(b, "w", narrow, HD_NOWHERE);
    hir_add_weight(b, "u", matrix, HD_NOWHERE);
    double *w = weight(a, "w", 5);
    cr_assert_arr_eq(w, weight(b, "w", 5), 5000 * sizeof *w, "another place and storage dtype");
    cr_assert_neq(w[0], weight(a, "w", 6)[0]);
    cr_assert_neq(w[0], weight(b, "u", 5)[0]);

    double square = 0, mean = 0;
    for (int i = 0; i < 5000; i++) {
        cr_assert_eq(w[i], hd_bf16_to_f32(hd_bf16_from_f32((float)w[i])), "exact in bf16");
        square += w[i] * w[i];
    }
    cr_assert_float_eq(square / 5000, 0.01, 0.001, "1 / fan in");
    double *v = weight(a, "v", 5);
    for (int i = 0; i < 1000; i++)
        mean += v[i] / 1000;
    cr_assert_float_eq(mean, 1, 0.02);
}

/* ---- comparing modules ----------------------------------------------------------------------- */

#define TABLES                                                                                     \
    "weight @embed : f32[9, 8]\nweight @small : f32[4, 8]\nweight @w : f32[6, 8]\n\n"              \
    "state $k : f32[C, 1, 8]\n"
#define HEAD                                                                                       \
    "  %h = gather @embed, %ids : f32[T, 8] loc \"m.hadal\":3:1\n"                                 \
    "  %e = gather @small, %ids : f32[T, 8]\n"                                                     \
    "  %s = add %h, %e : f32[T, 8] loc \"m.hadal\":4:5\n"                                          \
    "  %q = reshape %s {shape = [T, 1, 8]} : f32[T, 1, 8]\n"                                       \
    "  %c = cache_append %q, $k : f32[C, 1, 8]\n"                                                  \
    "  %a = attention %q, %c, %c {scale = 0.3} : f32[T, 1, 8] loc \"m.hadal\":5:7\n"               \
    "  %f = reshape %a {shape = [T, 8]} : f32[T, 8]\n"                                             \
    "  trace %f {name = \"mix\"}\n"
#define TAIL                                                                                       \
    "  %l = linear %n, @w, _ : f32[T, 6] loc \"m.hadal\":9:3\n"                                    \
    "  output %l {name = \"logits\"}"

static hir_module *with_norm(const char *norm) {
    return graph(TABLES, "%ids: i32[T]", hd_printf(arena, "%s%s%s", HEAD, norm, TAIL));
}
static hir_module *original(void) {
    return with_norm("  %n = rmsnorm %f, _ {eps = 0.1} : f32[T, 8] loc \"m.hadal\":8:2\n");
}

static bool same(const hir_module *a, const hir_module *b) {
    hd_diags_init(&diags, arena);
    return hir_same_answer(a, b, 1e-9, 3, &diags);
}
static void expect_text(const char *part) {
    cr_assert_not_null(strstr(said(), part), "'%s' is not in:\n%s", part, said());
}

/* n = f (large + 1) - f large, whose terms cancel. */
static hir_module *with_large(const char *large, const char *and_one) {
    return with_norm(hd_printf(arena,
                               "  %%large = const {value = %s, shape = []} : f32[]\n"
                               "  %%more = const {value = %s, shape = []} : f32[]\n"
                               "  %%p = mul %%f, %%more : f32[T, 8]\n"
                               "  %%b = mul %%f, %%large : f32[T, 8]\n"
                               "  %%n = sub %%p, %%b : f32[T, 8]\n",
                               large, and_one));
}

/* Where a result is rounding to 1e-8 it may change by that; an exact one may not. */
Test(eval_compare, rounding_that_is_magnified_is_no_difference) {
    hir_module *exact = with_large("0", "1"), *cancels = with_large("1e8", "100000001");
    cr_expect(same(cancels, exact), "%s", said());
    cr_expect_not(same(exact, cancels));
    cr_expect_not(same(cancels, with_large("0", "1.00001")));
}

Test(eval_compare, a_module_is_the_same_as_itself_in_other_words) {
    hir_module *m = original();
    cr_assert(same(m, hir_module_clone(m, arena)), "%s", said());
    cr_assert_eq(diags.list.n, 0);
    hir_module *spelled = with_norm("  %s2 = mul %f, %f : f32[T, 8]\n"
                                    "  %m = reduce_mean %s2 {axis = 1} : f32[T]\n"
                                    "  %eps = const {value = 0.1, shape = []} : f32[]\n"
                                    "  %me = add %m, %eps : f32[T]\n"
                                    "  %i = rsqrt %me : f32[T]\n"
                                    "  %i1 = reshape %i {shape = [T, 1]} : f32[T, 1]\n"
                                    "  %n = mul %f, %i1 : f32[T, 8]\n");
    cr_assert(same(m, spelled), "%s", said());
    cr_assert(same(spelled, m), "%s", said());
    spelled->weights.at[hir_find_weight(spelled, "w")].type.dtype = HIR_BF16;
    spelled->weights.at[hir_find_weight(spelled, "embed")].type.dtype = HIR_BF16;
    cr_assert(same(m, spelled), "narrower storage changes nothing: %s", said());
}

Test(eval_compare, a_small_change_is_seen_and_named) {
    hir_module *m = original();
    hir_module *changed = hir_module_clone(m, arena);
    HIR_EACH(changed, op, changed->first)
    if (hir_op_at(changed, op)->code == HIR_RMSNORM_OP)
        hir_set_attr(changed, op, hir_float(HIR_A_EPS, 0.1001));
    cr_assert_not(same(m, changed));
    cr_assert_eq(hd_diags_first(&diags), HD_E_PASS);
    expect_text("output 'logits' differs by");
    expect_text("m.hadal:9:3"); /* the op that makes the output */
    expect_text("linear");
    expect_text("m.hadal:8:2"); /* the earliest that is wrong */
    expect_text("rmsnorm");
    hir_difference x;
    cr_assert(hir_first_difference(m, changed, 1e-9, 3, &diags, &x));
    cr_assert(x.found);
    cr_assert_eq(x.call, 0);
    cr_assert_eq(hir_op_at(changed, x.first_op)->code, HIR_RMSNORM_OP);
    cr_assert(x.error > 1e-9 && x.error < 1e-2);
    cr_assert(hir_first_difference(m, changed, 0.1, 3, &diags, &x));
    cr_assert_not(x.found, "within this tolerance");
}

/* x, and something added to it that is zero while sin(position / 100) is at most `from`. */
static hir_module *late(double from) {
    return graph("", "%x: f32[T, 1]",
                 hd_printf(arena,
                           "  %%r = rope_table {length = 2, theta = 10, scaling = \"linear\", "
                           "factor = 100} : f32[T, 2]\n"
                           "  %%s = slice %%r {axis = 1, start = 1, length = 1} : f32[T, 1]\n"
                           "  %%c = const {value = %g, shape = []} : f32[]\n"
                           "  %%d = sub %%s, %%c : f32[T, 1]\n"
                           "  %%e = relu %%d : f32[T, 1]\n"
                           "  %%y = add %%x, %%e : f32[T, 1]\n"
                           "  output %%y {name = \"y\"}",
                           from));
}

Test(eval_compare, what_only_shows_in_later_calls_is_seen) {
    hir_module *never = late(0.5);
    static const struct {
        double from;
        int call, tokens;
    } cases[] = {{0.035, 0, 5}, {0.045, 1, 1}, {0.055, 2, 3}, {0.075, 2, 3}};
    for (int i = 0; i < 4; i++) {
        hir_difference x;
        cr_assert(hir_first_difference(never, late(cases[i].from), 1e-9, 3, &diags, &x));
        cr_assert(x.found, "case %d", i);
        cr_assert_eq(x.call, cases[i].call, "case %d: %d", i, x.call);
        cr_assert_eq(x.tokens, cases[i].tokens);
    }
    cr_assert(same(never, late(0.085)), "nine tokens in all: %s", said());
}

Test(eval_compare, traces_may_be_dropped_but_not_changed) {
    hir_module *m = original(), *dropped = hir_module_clone(m, arena);
    HIR_EACH(dropped, op, dropped->first)
    if (hir_op_at(dropped, op)->code == HIR_TRACE_OP) hir_erase(dropped, op);
    cr_assert(same(m, dropped), "%s", said());

    hir_module *kept = graph(TABLES, "%ids: i32[T]",
                             HEAD "  %n = rmsnorm %f, _ {eps = 0.1} : f32[T, 8]\n" TAIL
                                  "\n  output %f {name = \"mix.0\"}");
    cr_assert(same(m, kept), "a trace may become an output: %s", said());
    hir_module *other = graph(TABLES, "%ids: i32[T]",
                              HEAD "  %n = rmsnorm %f, _ {eps = 0.1} : f32[T, 8]\n" TAIL
                                   "\n  output %n {name = \"mix.0\"}");
    cr_assert_not(same(m, other));
    expect_text("'mix.0'");
}

Test(eval_compare, results_that_come_or_go_are_reported) {
    hir_module *m = original();
    hir_module *more = graph(TABLES, "%ids: i32[T]",
                             HEAD "  %n = rmsnorm %f, _ {eps = 0.1} : f32[T, 8]\n" TAIL
                                  "\n  output %n {name = \"extra\"}");
    cr_assert_not(same(m, more));
    expect_text("'extra' was not there before");
    cr_assert_not(same(more, m));
    expect_text("'extra' is gone");
    hir_module *other = graph("", "%x: f32[T]", "  output %x {name = \"logits\"}");
    cr_assert_not(same(m, other));
    expect_text("same inputs");
}

Test(eval_compare, a_result_of_another_shape_is_reported) {
    hir_module *a = graph("", "%x: f32[T, 4]", "  output %x {name = \"y\"}");
    hir_module *b = graph("", "%x: f32[T, 4]",
                          "  %y = reshape %x {shape = [T, 2, 2]} : f32[T, 2, 2]\n"
                          "  output %y {name = \"y\"}");
    cr_assert_not(same(a, b));
    expect_text("another shape");
}

Test(eval_compare, infinities_and_nan_count) {
    hir_module *a = graph("", "%x: f32[T, 4]",
                          "  %y = sub %x, %x : f32[T, 4]\n"
                          "  %z = div %y, %y : f32[T, 4]\n"
                          "  output %z {name = \"y\"}");
    hir_module *b = graph("", "%x: f32[T, 4]",
                          "  %y = sub %x, %x : f32[T, 4]\n"
                          "  %z = add %y, %y : f32[T, 4]\n"
                          "  output %z {name = \"y\"}");
    cr_assert(same(a, a), "NaN in both: %s", said());
    cr_assert_not(same(a, b), "NaN before");
    cr_assert_not(same(b, a), "NaN after");
    hir_module *c = graph("", "%x: f32[T, 4]",
                          "  %y = const {value = 1e-300, shape = [1]} : f32[1]\n"
                          "  %z = sub %x, %x : f32[T, 4]\n"
                          "  %w = add %z, %y : f32[T, 4]\n"
                          "  output %w {name = \"y\"}");
    cr_assert_not(same(b, c), "against zeros every difference is too large");
}

Test(eval_compare, what_cannot_be_evaluated_is_no_agreement) {
    hir_module *m = graph("", "%x: f32[T, 1, 1]",
                          "  %y = broadcast %x {shape = [T, 2000000, 40000]} : "
                          "f32[T, 2000000, 40000]\n"
                          "  output %y {name = \"y\"}");
    cr_assert_not(same(m, m));
    cr_assert_eq(hd_diags_first(&diags), HD_E_LIMIT);
}
