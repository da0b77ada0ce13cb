/* The evaluator's rules that compute and move, each against numbers worked out apart from it (by
 * hand, or with Python's math module in another form of the same formula). */
#include "tests/unit/ir/support_eval.h"

TestSuite(eval_ops, .init = open_arena, .fini = close_arena);

/* ---- constants and elementwise --------------------------------------------------------------- */

Test(eval_ops, constants_fill_their_shape) {
    hir_module *m = graph("", "%x: f32[T]",
                          "  %a = const {value = 0.1, shape = []} : f32[]\n"
                          "  %b = const {value = -2, shape = [2, 3]} : f32[2, 3]\n"
                          "  %c = add %x, %a : f32[T]\n"
                          "  output %b {name = \"b\"}\n"
                          "  output %c {name = \"c\"}");
    hir_eval *e = hir_eval_new(arena, m, NULL, NULL);
    hir_results out = call(e, 2, INPUTS(NUMBERS(1, 2)));
    EXPECT(out.outputs.at[0], "shape", -2, -2, -2, -2, -2, -2);
    EXPECT(out.outputs.at[1], "scalar", 1.1, 2.1);
    cr_assert_str_eq(out.outputs.at[1].name, "c");
    cr_assert_eq(out.outputs.at[1].type.dim[0], 2, "T is a number in results");
}

static const double any_points[] = {-2.5, -0.3, 0, 0.7, 3};
static const double positive_points[] = {0.25, 0.5, 1, 2, 7.5};

static const struct {
    const char *op;
    const double *x;
    double y[5];
} unary_cases[] = {
    {"neg", any_points, {2.5, 0.3, 0, -0.7, -3}},
    {"abs", any_points, {2.5, 0.3, 0, 0.7, 3}},
    {"exp",
     any_points,
     {0.0820849986238988, 0.7408182206817179, 1, 2.0137527074704766, 20.085536923187668}},
    {"tanh",
     any_points,
     {-0.9866142981514303, -0.2913126124515909, 0, 0.6043677771171636, 0.9950547536867305}},
    {"sigmoid",
     any_points,
     {0.07585818002124355, 0.425557483188341, 0.5, 0.6681877721681662, 0.9525741268224334}},
    {"silu",
     any_points,
     {-0.18964545005310887, -0.1276672449565023, 0, 0.46773144051771626, 2.8577223804673}},
    {"gelu",
     any_points,
     {-0.015524163314440348, -0.1146265733433142, 0, 0.5306254434438489, 2.99595030590511}},
    {"gelu_tanh",
     any_points,
     {-0.01508426608999857, -0.11462907645724074, 0, 0.5305701347051167, 2.9963626079182273}},
    {"relu", any_points, {0, 0, 0, 0.7, 3}},
    {"softplus",
     any_points,
     {0.07888973429254956, 0.554355244468527, 0.6931471805599453, 1.103186048885458,
      3.048587351573742}},
    {"erf",
     any_points,
     {-0.999593047982555, -0.3286267594591274, 0, 0.6778011938374184, 0.9999779095030014}},
    {"sign", any_points, {-1, -1, 1, 1, 1}},
    {"round_e4m3", any_points, {-2.5, -0.3125, 0, 0.6875, 3}},
    {"round_e2m1", any_points, {-2, -0.5, 0, 0.5, 3}},
    {"power_above", positive_points, {0.25, 0.5, 1, 2, 8}},
    {"sqrt", positive_points, {0.5, 0.7071067811865476, 1, 1.4142135623730951, 2.7386127875258306}},
    {"rsqrt", positive_points, {2, 1.4142135623730951, 1, 0.7071067811865476, 0.3651483716701107}},
    {"recip", positive_points, {4, 2, 1, 0.5, 0.13333333333333333}},
    {"log",
     positive_points,
     {-1.3862943611198906, -0.6931471805599453, 0, 0.6931471805599453, 2.0149030205422647}},
};

static hir_array one_op(const char *line, int64_t tokens, const char *inputs,
                        const double *const *at) {
    return run_one(
        graph("", inputs, hd_printf(arena, "  %%y = %s\n  output %%y {name = \"y\"}", line)),
        tokens, at);
}

Test(eval_ops, every_unary_op) {
    size_t seen = 0;
    for (size_t i = 0; i < sizeof unary_cases / sizeof *unary_cases; i++) {
        hir_array y = one_op(hd_printf(arena, "%s %%x : f32[T]", unary_cases[i].op), 5,
                             "%x: f32[T]", INPUTS(unary_cases[i].x));
        expect(y, 5, unary_cases[i].y, unary_cases[i].op);
        seen++;
    }
    /* the table has no elementwise op of one operand that is not tested */
    for (int code = 0; code < HIR_OPCODE_COUNT; code++)
        if (hir_has_trait(code, HIR_ELEMENTWISE) && !strcmp(hir_info(code)->operands, "x")) seen--;
    cr_assert_eq(seen + 1, 0); /* convert, below */
}

/* Halfway to the even code; least numbers, and what is beyond the largest. */
Test(eval_ops, codes_of_few_bits) {
    static const double x[] = {17,     19,     -0x1p-10, 3 * 0x1p-10, 447,  464, -1e300,
                               0x1p-9, 0.0625, 1.03125,  NAN,         -0.0, 240, 1e-300};
    static const double e4m3[] = {16,     20,     -0.0, 0x1p-8, 448,  448, -448,
                                  0x1p-9, 0.0625, 1,    NAN,    -0.0, 240, 0};
    static const double e2m1[] = {6, 6, -0.0, 0, 6, 6, -6, 0, 0, 1, NAN, -0.0, 6, 0};
    enum { N = sizeof x / sizeof *x };
    const hir_array y = one_op("round_e4m3 %x : f32[T]", N, "%x: f32[T]", INPUTS(x));
    const hir_array z = one_op("round_e2m1 %x : f32[T]", N, "%x: f32[T]", INPUTS(x));
    for (int i = 0; i < N; i++) {
        cr_expect(y.at[i] == e4m3[i] || isnan(x[i]), "%g: %g", x[i], y.at[i]);
        cr_expect(z.at[i] == e2m1[i] || isnan(x[i]), "%g: %g", x[i], z.at[i]);
        cr_expect_eq(isnan(y.at[i]) + isnan(z.at[i]), 2 * isnan(x[i]));
        cr_expect_eq(signbit(y.at[i]) != 0, signbit(x[i]) != 0);
    }
    static const double few[] = {0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -5};
    EXPECT(one_op("round_e2m1 %x : f32[T]", 8, "%x: f32[T]", INPUTS(few)), "e2m1", 0, 1, 1, 2, 2, 4,
           4, -4);
    static const double powers[] = {1, 1 + 0x1p-52, 3, 0x1p-126, 0x1p-130, 0, -5};
    EXPECT(one_op("power_above %x : f32[T]", 7, "%x: f32[T]", INPUTS(powers)), "power_above", 1, 2,
           4, 0x1p-126, 0x1p-126, 0x1p-126, 0x1p-126);
}

static hir_array converted(const char *type, int64_t n, const double *x) {
    const char *text = hd_printf(arena,
                                 "hir 1 depth @t\n\nfunc(%%x: f32[T]) {\n"
                                 "  %%y = convert %%x {dtype = \"%s\"} : %s[T]\n"
                                 "  output %%y {name = \"y\"}\n}\n",
                                 type, type);
    return run_one(parse(text), n, INPUTS(x));
}

/* Nearest, to even between two: 1 + 2^-8 lies between 1 and 1 + 2^-7, 1 + 3 2^-8 between that and
 * 1 + 2^-6. Once and not by way of f32: 1 + 2^-8 + 2^-40 is above the middle. */
Test(eval_ops, convert_rounds_once) {
    const double x[] = {1, 1 + 0x1p-8, 1 + 3 * 0x1p-8, 1 + 0x1p-8 + 0x1p-40, -1e30, NAN, INFINITY};
    hir_array y = converted("bf16", 7, x);
    const double want[] = {1, 1, 1 + 0x1p-6, 1 + 0x1p-7};
    for (int i = 0; i < 4; i++)
        cr_expect_eq(y.at[i], want[i], "%d: %.17g", i, y.at[i]);
    cr_expect_lt(fabs(y.at[4] + 1e30), 1e30 * 0x1p-9);
    cr_expect(isnan(y.at[5]) && isinf(y.at[6]));
    cr_expect_eq(converted("f16", 2, (double[]){1 + 0x1p-11, 1e6}).at[0], 1);
    cr_expect_eq(converted("f32", 1, (double[]){1 + 0x1p-40}).at[0], 1 + 0x1p-40);
}

Test(eval_ops, tails_stay_finite) {
    const double far[] = {-1e4, 1e4};
    EXPECT(one_op("softplus %x : f32[T]", 2, "%x: f32[T]", INPUTS(far)), "softplus", 0, 1e4);
    EXPECT(one_op("sigmoid %x : f32[T]", 2, "%x: f32[T]", INPUTS(far)), "sigmoid", 0, 1);
    EXPECT(one_op("silu %x : f32[T]", 2, "%x: f32[T]", INPUTS(far)), "silu", 0, 1e4);
    EXPECT(one_op("gelu %x : f32[T]", 2, "%x: f32[T]", INPUTS(far)), "gelu", 0, 1e4);
}

Test(eval_ops, every_binary_op) {
    static const struct {
        const char *op;
        double y[4];
    } cases[] = {
        {"add", {3, -1, 0.75, 8}},  {"sub", {-1, -5, 0.25, 0}}, {"mul", {2, -6, 0.125, 16}},
        {"div", {0.5, -1.5, 2, 1}}, {"max", {2, 2, 0.5, 4}},    {"min", {1, -3, 0.25, 4}},
    };
    const double a[] = {1, -3, 0.5, 4}, b[] = {2, 2, 0.25, 4};
    size_t seen = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, seen++)
        expect(one_op(hd_printf(arena, "%s %%a, %%b : f32[T]", cases[i].op), 4,
                      "%a: f32[T], %b: f32[T]", INPUTS(a, b)),
               4, cases[i].y, cases[i].op);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++)
        if (hir_has_trait(code, HIR_ELEMENTWISE) && !strcmp(hir_info(code)->operands, "a b"))
            seen--;
    cr_assert_eq(seen, 0);
}

/* Above 0 it is x, whatever else c is; else 0, whatever x is. */
Test(eval_ops, when) {
    const double c[] = {1e-300, -1, 0, NAN, INFINITY, -1}, x[] = {3, 3, 3, 3, NAN, NAN};
    hir_array y = one_op("when %c, %x : f32[T]", 6, "%c: f32[T], %x: f32[T]", INPUTS(c, x));
    const double want[] = {3, 0, 0, 0, NAN, 0};
    for (int i = 0; i < 6; i++)
        cr_assert(y.at[i] == want[i] || (isnan(y.at[i]) && isnan(want[i])), "%d: %g", i, y.at[i]);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++) /* the only one with such operands */
        cr_assert(code == HIR_WHEN_OP || strcmp(hir_info(code)->operands, "c x") != 0);
}

Test(eval_ops, nan_is_never_hidden) {
    const double a[] = {NAN, 1}, b[] = {1, NAN};
    for (int i = 0; i < 2; i++) {
        hir_array y = one_op(i ? "max %a, %b : f32[T]" : "min %a, %b : f32[T]", 2,
                             "%a: f32[T], %b: f32[T]", INPUTS(a, b));
        cr_assert(isnan(y.at[0]) && isnan(y.at[1]));
    }
    hir_array y =
        one_op("reduce_max %x {axis = 1} : f32[T]", 1, "%x: f32[T, 3]", INPUTS(NUMBERS(1, NAN, 2)));
    cr_assert(isnan(y.at[0]));
}

Test(eval_ops, operands_stretch_like_numpy) {
    const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}; /* [2, 2, 3] */
    EXPECT(one_op("add %x, %v : f32[T, 2, 3]", 2, "%x: f32[T, 2, 3], %v: f32[3]",
                  INPUTS(x, NUMBERS(100, 200, 300))),
           "vector", 101, 202, 303, 104, 205, 306, 107, 208, 309, 110, 211, 312);
    EXPECT(one_op("mul %x, %v : f32[T, 2, 3]", 2, "%x: f32[T, 2, 3], %v: f32[T, 2, 1]",
                  INPUTS(x, NUMBERS(1, 10, 100, 1000))),
           "column", 1, 2, 3, 40, 50, 60, 700, 800, 900, 10000, 11000, 12000);
    EXPECT(one_op("sub %v, %w : f32[T, 3]", 2, "%v: f32[T, 1], %w: f32[1, 3]",
                  INPUTS(NUMBERS(10, 20), NUMBERS(1, 2, 3))),
           "both", 9, 8, 7, 19, 18, 17);
    EXPECT(one_op("div %s, %v : f32[T]", 2, "%s: f32[], %v: f32[T]",
                  INPUTS(NUMBERS(8), NUMBERS(2, 4))),
           "scalar", 4, 2);
}

/* ---- over an axis ---------------------------------------------------------------------------- */

static const double cube[] = {1, -2, 3, 4, 5, -6, 0.5, 8, -9, 10, 1, 12}; /* [2, 2, 3] */

Test(eval_ops, reductions) {
    const char *in = "%x: f32[T, 2, 3]";
    EXPECT(one_op("reduce_sum %x {axis = 2} : f32[T, 2]", 2, in, INPUTS(cube)), "sum", 2, 3, -0.5,
           23);
    EXPECT(one_op("reduce_sum %x {axis = 1} : f32[T, 3]", 2, in, INPUTS(cube)),
           "sum of a middle axis", 5, 3, -3, 10.5, 9, 3);
    EXPECT(one_op("reduce_mean %x {axis = 1} : f32[T, 3]", 2, in, INPUTS(cube)), "mean", 2.5, 1.5,
           -1.5, 5.25, 4.5, 1.5);
    EXPECT(one_op("reduce_max %x {axis = 2} : f32[T, 2]", 2, in, INPUTS(cube)), "max", 3, 5, 8, 12);
    EXPECT(one_op("reduce_max %x {axis = 1} : f32[T, 1]", 1, "%x: f32[T, 2, 1]",
                  INPUTS(NUMBERS(-3, -2))),
           "max of negative numbers", -2);
}

Test(eval_ops, softmax_over_any_axis) {
    /* weights 1 : 2 : 5 are softmax of their logarithms, whatever is added to all */
    const double l2 = 0.6931471805599453, l5 = 1.6094379124341003;
    EXPECT(one_op("softmax %x {axis = 1} : f32[T, 3]", 2, "%x: f32[T, 3]",
                  INPUTS(NUMBERS(0, l2, l5, 0, l2, l5))),
           "last", 0.125, 0.25, 0.625, 0.125, 0.25, 0.625);
    EXPECT(one_op("softmax %x {axis = 1} : f32[T, 3, 2]", 1, "%x: f32[T, 3, 2]",
                  INPUTS(NUMBERS(0, l5, l2, l2, l5, 0))),
           "middle", 0.125, 0.625, 0.25, 0.25, 0.625, 0.125);
    EXPECT(one_op("softmax %x {axis = 1} : f32[T, 2]", 1, "%x: f32[T, 2]",
                  INPUTS(NUMBERS(-5000, 5000))),
           "far apart", 0, 1);
}

/* ---- normalisation --------------------------------------------------------------------------- */

static hir_array norm(const char *line, const double *x, const double *gain, const double *bias) {
    hir_module *m =
        graph("weight @g : f32[4]\nweight @b : f32[4]\n", "%x: f32[T, 4]",
              hd_printf(arena, "  %%y = %s : f32[T, 4]\n  output %%y {name = \"y\"}", line));
    givens all = {(given[]){{"g", gain}, {"b", bias}}, 2};
    return call(hir_eval_new(arena, m, given_weights, &all), 2, INPUTS(x)).outputs.at[0];
}

Test(eval_ops, rmsnorm_divides_by_the_root_of_mean_square_plus_eps) {
    /* mean squares 25 / 4 and 3; eps makes them 9 and 5.75 */
    const double x[] = {0, 3, -4, 0, 1, 1, 1, 3}, g[] = {1, 2, 3, 4}, b[] = {0, 0, 0, 0};
    const double r = 2.3979157616563596; /* sqrt 5.75 */
    EXPECT(norm("rmsnorm %x, _ {eps = 2.75}", x, g, b), "no gain", 0, 1, -4.0 / 3, 0, 1 / r, 1 / r,
           1 / r, 3 / r);
    EXPECT(norm("rmsnorm %x, @g {eps = 2.75}", x, g, b), "gain", 0, 2, -4, 0, 1 / r, 2 / r, 3 / r,
           12 / r);
}

Test(eval_ops, layernorm_centres_and_uses_the_biased_variance) {
    /* means 2 and -1; variances 4.5 and 0; eps makes them 6.25 and 1.75 */
    const double x[] = {-1, 2, 2, 5, -1, -1, -1, -1}, g[] = {1, 2, 3, 4}, b[] = {10, 20, 30, 40};
    EXPECT(norm("layernorm %x, _, _ {eps = 1.75}", x, g, b), "plain", -1.2, 0, 0, 1.2, 0, 0, 0, 0);
    EXPECT(norm("layernorm %x, @g, @b {eps = 1.75}", x, g, b), "gain and bias", 8.8, 20, 30, 44.8,
           10, 20, 30, 40);
    EXPECT(norm("layernorm %x, _, @b {eps = 1.75}", x, g, b), "bias alone", 8.8, 20, 30, 41.2, 10,
           20, 30, 40);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static const double dozen[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}; /* [2, 2, 3] */

Test(eval_ops, reshape_keeps_the_order) {
    hir_array y =
        one_op("reshape %x {shape = [T, 6]} : f32[T, 6]", 2, "%x: f32[T, 2, 3]", INPUTS(dozen));
    expect(y, 12, dozen, "reshape");
    cr_assert_eq(y.type.rank, 2);
}

Test(eval_ops, transpose) {
    EXPECT(one_op("transpose %x {perm = [0, 2, 1]} : f32[T, 3, 2]", 2, "%x: f32[T, 2, 3]",
                  INPUTS(dozen)),
           "swap", 0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11);
    /* y[i, j, k] = x[j, k, i] of a [2, 2, 3] */
    EXPECT(one_op("transpose %x {perm = [2, 0, 1]} : f32[3, 2, 2]", 1, "%x: f32[2, 2, 3]",
                  INPUTS(dozen)),
           "cycle", 0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11);
}

Test(eval_ops, broadcast) {
    EXPECT(one_op("broadcast %x {shape = [2, 3]} : f32[2, 3]", 1, "%x: f32[2, 1]",
                  INPUTS(NUMBERS(1, 2))),
           "column", 1, 1, 1, 2, 2, 2);
    EXPECT(
        one_op("broadcast %x {shape = [T, 2]} : f32[T, 2]", 3, "%x: f32[2]", INPUTS(NUMBERS(1, 2))),
        "over tokens", 1, 2, 1, 2, 1, 2);
}

Test(eval_ops, stack_makes_an_axis) {
    const double a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
    const char *in = "%a: f32[T, 2], %b: f32[T, 2]";
    EXPECT(one_op("stack %a, %b {axis = 1} : f32[T, 2, 2]", 2, in, INPUTS(a, b)), "axis 1", 1, 2, 5,
           6, 3, 4, 7, 8);
    EXPECT(one_op("stack %a, %b, %a {axis = 2} : f32[T, 2, 3]", 2, in, INPUTS(a, b)), "axis 2", 1,
           5, 1, 2, 6, 2, 3, 7, 3, 4, 8, 4);
}

Test(eval_ops, concat_joins_unequal_widths) {
    EXPECT(one_op("concat %a, %b {axis = 1} : f32[T, 3]", 2, "%a: f32[T, 1], %b: f32[T, 2]",
                  INPUTS(NUMBERS(1, 2), NUMBERS(3, 4, 5, 6))),
           "last axis", 1, 3, 4, 2, 5, 6);
    EXPECT(one_op("concat %a, %b {axis = 1} : f32[T, 3, 2]", 1,
                  "%a: f32[T, 1, 2], %b: f32[T, 2, 2]", INPUTS(NUMBERS(1, 2), NUMBERS(3, 4, 5, 6))),
           "middle axis", 1, 2, 3, 4, 5, 6);
}

Test(eval_ops, slice) {
    EXPECT(one_op("slice %x {axis = 2, start = 1, length = 2} : f32[T, 2, 2]", 2,
                  "%x: f32[T, 2, 3]", INPUTS(dozen)),
           "last axis", 1, 2, 4, 5, 7, 8, 10, 11);
    EXPECT(one_op("slice %x {axis = 1, start = 1, length = 1} : f32[T, 1, 3]", 2,
                  "%x: f32[T, 2, 3]", INPUTS(dozen)),
           "middle axis", 3, 4, 5, 9, 10, 11);
}

/* ---- contraction and tokens ------------------------------------------------------------------ */

Test(eval_ops, linear_multiplies_by_rows_of_w) {
    const double w[] = {1, 2, 3, 0, -1, 1}, bias[] = {100, 200}; /* [2, 3] */
    hir_module *m = graph("weight @w : f32[2, 3]\nweight @b : f32[2]\n", "%x: f32[T, 3]",
                          "  %y = linear %x, @w, _ : f32[T, 2]\n"
                          "  %z = linear %x, @w, @b : f32[T, 2]\n"
                          "  output %y {name = \"y\"}\n"
                          "  output %z {name = \"z\"}");
    givens all = {(given[]){{"w", w}, {"b", bias}}, 2};
    hir_results out =
        call(hir_eval_new(arena, m, given_weights, &all), 2, INPUTS(NUMBERS(1, 1, 1, 2, 0, -1)));
    EXPECT(out.outputs.at[0], "no bias", 6, 0, -1, -1);
    EXPECT(out.outputs.at[1], "bias", 106, 200, 99, 199);
}

Test(eval_ops, linear_of_odd_sizes_against_plain_loops) {
    enum { T = 3, G = 2, K = 37, N = 71 }; /* neither a multiple of a block nor of the unrolling */
    hir_module *m = graph("weight @w : f32[71, 37]\n", "%x: f32[T, 2, 37]",
                          "  %y = linear %x, @w, _ : f32[T, 2, 71]\n  output %y {name = \"y\"}");
    static double w[N * K], x[T * G * K], want[T * G * N];
    for (int i = 0; i < N * K; i++)
        w[i] = sin(i);
    for (int i = 0; i < T * G * K; i++)
        x[i] = cos(0.7 * i);
    for (int r = 0; r < T * G; r++)
        for (int k = K - 1; k >= 0; k--) /* another order of summation */
            for (int n = 0; n < N; n++)
                want[r * N + n] += w[n * K + k] * x[r * K + k];
    givens all = {(given[]){{"w", w}}, 1};
    hir_array y = call(hir_eval_new(arena, m, given_weights, &all), T, INPUTS(x)).outputs.at[0];
    cr_assert_eq(y.n, T * G * N);
    expect_near(y.at, want, y.n, 1e-13, "linear");
}

Test(eval_ops, block_linear_has_a_matrix_for_each_group) {
    enum { T = 3, G = 2, K = 37, N = 71 };
    hir_module *m = graph("weight @w : f32[2, 71, 37]\n", "%x: f32[T, 2, 37]",
                          "  %y = block_linear %x, @w : f32[T, 2, 71]\n  output %y {name = \"y\"}");
    static double w[G * N * K], x[T * G * K], want[T * G * N];
    for (int i = 0; i < G * N * K; i++)
        w[i] = sin(i);
    for (int i = 0; i < T * G * K; i++)
        x[i] = cos(0.7 * i);
    for (int t = 0; t < T; t++)
        for (int k = K - 1; k >= 0; k--) /* another order of summation */
            for (int g = 0; g < G; g++)
                for (int n = 0; n < N; n++)
                    want[(t * G + g) * N + n] += w[(g * N + n) * K + k] * x[(t * G + g) * K + k];
    givens all = {(given[]){{"w", w}}, 1};
    hir_array y = call(hir_eval_new(arena, m, given_weights, &all), T, INPUTS(x)).outputs.at[0];
    cr_assert_eq(y.n, T * G * N);
    expect_near(y.at, want, y.n, 1e-13, "block_linear");
}

Test(eval_ops, gather_picks_rows) {
    const double table[] = {1, 2, 10, 20, 100, 200};
    hir_module *m = graph("weight @e : f32[3, 2]\n", "%ids: i32[T]",
                          "  %y = gather @e, %ids : f32[T, 2]\n  output %y {name = \"y\"}");
    givens all = {(given[]){{"e", table}}, 1};
    hir_array y = call(hir_eval_new(arena, m, given_weights, &all), 4, INPUTS(NUMBERS(2, 0, 2, 1)))
                      .outputs.at[0];
    EXPECT(y, "rows", 100, 200, 1, 2, 100, 200, 10, 20);
}

Test(eval_ops, gather_has_a_row_for_ids_behind_the_last) {
    const double table[] = {1, 2, 10, 20, 100, 200};
    hir_module *m =
        graph("weight @e : f32[3, 2]\n", "%ids: i32[T]",
              "  %y = gather @e, %ids {beyond = 1} : f32[T, 2]\n  output %y {name = \"y\"}");
    givens all = {(given[]){{"e", table}}, 1};
    hir_array y = call(hir_eval_new(arena, m, given_weights, &all), 4, INPUTS(NUMBERS(2, 3, 0, 99)))
                      .outputs.at[0];
    EXPECT(y, "rows", 100, 200, 10, 20, 1, 2, 10, 20);
}
