/* The loss: cross_entropy against numbers by hand, its parts against it, what models have one. */
#include "tests/unit/ir/support_eval.h"

TestSuite(loss, .init = open_arena, .fini = close_arena);

static hir_array losses(const double *logits, const double *targets, int64_t tokens, int vocab) {
    return run_one(graph("", hd_printf(arena, "%%x: f32[T, %d], %%t: i32[T]", vocab),
                         "  %y = cross_entropy %x, %t\n  output %y {name = \"y\"}"),
                   tokens, INPUTS(logits, targets));
}

Test(loss, is_what_the_target_costs) {
    hir_array y = losses(NUMBERS(0, 0, 0, 0, log(2), 0, log(5), log(0.5), 1, 2, 3, 4),
                         NUMBERS(3, 2, 0), 3, 4);
    EXPECT(y, "ln 4; -ln 5/8.5; the others by the formula", log(4), log(8.5 / 5),
           log(exp(0.) + exp(1) + exp(2) + exp(3)));
}

Test(loss, does_not_overflow) {
    hir_array y = losses(NUMBERS(1e300, 0, -1e300, -800, 0, -800), NUMBERS(0, 0), 2, 3);
    EXPECT(y, "the largest logit is taken out first", 0, 800);
    y = losses(NUMBERS(-INFINITY, -INFINITY, 7, -INFINITY), NUMBERS(0, 0), 2, 2);
    cr_assert(isnan(y.at[0]), "a row without any logit has no loss");
    y = losses(NUMBERS(-INFINITY, 3, NAN, 3), NUMBERS(0, 1), 2, 2);
    cr_assert(isinf(y.at[0]) && isnan(y.at[1]), "a target without a chance, and NaN");
}

Test(loss, does_not_count_targets_below_0) {
    hir_array y = losses(NUMBERS(1, 2, 3, 4, NAN, NAN), NUMBERS(-1, -100, -1), 3, 2);
    EXPECT(y, "0", 0, 0, 0);
}

Test(loss, rejects_targets_outside_of_the_vocabulary) {
    const uint64_t seed = 1;
    const hir_module *m = graph("", "%x: f32[T, 2], %t: i32[T]",
                                "  %y = cross_entropy %x, %t\n  output %y {name = \"y\"}");
    hir_eval *e = hir_eval_new(arena, m, hir_random_weights, (void *)&seed);
    hir_results out;
    cr_assert_not(hir_eval_call(e, arena, &diags, 2, INPUTS(NUMBERS(1, 2, 3, 4), NUMBERS(1, 2)),
                                &out, NULL, NULL));
    cr_assert(strstr(said(), "target 1 of the call is 2"), "%s", said());
}

Test(loss, parts_of_16_make_the_whole) {
    enum { VOCAB = 37, TOKENS = 3, PARTS = 3 };
    double x[TOKENS * VOCAB], t[] = {0, 36, -1};
    for (int i = 0; i < TOKENS * VOCAB; i++)
        x[i] = sin(i * i) * 20;
    const hir_module *m = graph("", "%x: f32[T, 37], %t: i32[T]",
                                "  %y = cross_entropy %x, %t\n  output %y {name = \"y\"}");
    const hir_array whole = run_one(m, TOKENS, INPUTS(x, t));
    hir_module *of_parts = parse("hir 1 depth @t\n\nfunc(%x: f32[T, 37], %t: i32[T]) {\n"
                                 "  %p = cross_entropy.parts %x, %t {length = 16}\n"
                                 "  %y = cross_entropy.merge %p\n"
                                 "  output %p {name = \"p\"}\n  output %y {name = \"y\"}\n}\n");
    hir_results out;
    const uint64_t seed = 1;
    hir_eval *e = hir_eval_new(arena, of_parts, hir_random_weights, (void *)&seed);
    cr_assert(hir_eval_call(e, arena, &diags, TOKENS, INPUTS(x, t), &out, NULL, NULL), "%s",
              said());
    cr_assert_eq(out.outputs.at[0].n, TOKENS * HIR_LOSS_PARTS * PARTS);
    for (int row = 0; row < TOKENS; row++) {
        const double *at = out.outputs.at[0].at + row * HIR_LOSS_PARTS * PARTS;
        for (int part = 0; part < PARTS; part++) {
            const int first = 16 * part, n = part + 1 < PARTS ? 16 : VOCAB - first;
            const bool here = t[row] >= first && t[row] < first + n;
            double most = -INFINITY, sum = 0;
            for (int i = first; i < first + n; i++)
                most = fmax(most, x[row * VOCAB + i]);
            for (int i = first; i < first + n; i++)
                sum += exp(x[row * VOCAB + i] - most);
            cr_expect_eq(at[HIR_LOSS_MOST * PARTS + part], most);
            cr_expect_float_eq(at[HIR_LOSS_SUM * PARTS + part], sum, 1e-13);
            cr_expect_eq(at[HIR_LOSS_COUNTED * PARTS + part], here);
            cr_expect_eq(at[HIR_LOSS_TARGET * PARTS + part],
                         here ? x[row * VOCAB + (int)t[row]] : 0);
        }
        cr_expect_float_eq(out.outputs.at[1].at[row], whole.at[row], 1e-13);
    }
}

/* Three ranks have 16 logits each, of which the last has 5, and 11 of padding. All ranks must give
 * the same losses: the evaluator says so otherwise. */
Test(loss, ranks_merge_the_parts_of_all) {
    enum { VOCAB = 37, TOKENS = 2 };
    double x[TOKENS * 48], whole[TOKENS * VOCAB], t[] = {36, 17};
    for (int i = 0; i < TOKENS * 48; i++)
        x[i] = i % 48 < VOCAB ? sin(i * i) * 20 : 1000;
    for (int i = 0; i < TOKENS * VOCAB; i++)
        whole[i] = x[i / VOCAB * 48 + i % VOCAB];
    const hir_array want = losses(whole, t, TOKENS, VOCAB);
    hir_module *m = parse("hir 1 depth @t\n\nranks 3, rows divided from 3 tokens\n\n"
                          "func(%x: f32[T, 48], %t: i32[T]) {\n"
                          "  %own = comm.part %x {axis = 1, groups = 3}\n"
                          "  %p = cross_entropy.parts %own, %t {length = 16, whole = 37}\n"
                          "  %all = comm.all_gather %p {axis = 2, length = 3, groups = 3}\n"
                          "  %y = cross_entropy.merge %all\n  output %y {name = \"y\"}\n}\n");
    const hir_array got = run_one(m, TOKENS, INPUTS(x, t));
    for (int row = 0; row < TOKENS; row++)
        cr_expect_float_eq(got.at[row], want.at[row], 1e-12);
}

/* What ops of parts reject. */
Test(loss, parts_that_do_not_fit_are_rejected) {
    static const char *const wrong[][4] = {
        {"", "f32[T, 48]", "cross_entropy.parts %x, %t {length = 16, whole = 37}",
         "the module is for one machine"},
        {"ranks 3, rows divided from 3 tokens\n\n", "f32[T, 16]",
         "cross_entropy.parts %x, %t {length = 16, whole = 49}",
         "'whole' is 49, of which 3 ranks cannot have 16 each"},
        {"", "f32[T, 48]", "cross_entropy.parts %x, %t {length = 20}", "it must be a multiple of"},
        {"", "f32[T, 3, 48]", "cross_entropy.merge %x", "operand parts must be [T, 4, n]"},
        {"", "f32[T, 48]", "cross_entropy.merge %x", "operand parts"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *text = hd_printf(arena,
                                     "hir 1 depth @t\n\n%sfunc(%%x: %s, %%t: i32[T]) {\n"
                                     "  %%y = %s\n  output %%y {name = \"y\"}\n}\n",
                                     wrong[i][0], wrong[i][1], wrong[i][2]);
        cr_assert_null(hir_parse(arena, &diags, "test.hir", text), "%s", text);
        cr_assert(strstr(said(), wrong[i][3]), "%s", said());
    }
}

/* ---- models ---------------------------------------------------------------------------------- */
static hir_module *model(const char *inputs, const char *outputs) {
    return graph("weight @e : f32[9, 4]\nweight @w : f32[9, 4]\n", inputs,
                 hd_printf(arena,
                           "  %%x = gather @e, %%tokens\n  %%y = linear %%x, @w\n"
                           "  output %%y {name = \"logits\"}\n%s",
                           outputs));
}

Test(loss, of_a_model_is_an_input_and_an_output) {
    hir_module *m = model("%tokens: i32[T]", "  output %x {name = \"rows\"}");
    cr_assert(hir_is_model(m) && hir_loss_output(m) == HIR_NONE);
    cr_assert(hir_add_loss(m, &diags), "%s", said());
    cr_assert(hir_verify(m, &diags), "%s", said());
    cr_assert(hir_is_model(m));
    cr_assert_str_eq(hir_attr_string(hir_op_at(m, hir_loss_output(m)), HIR_A_NAME, ""), "losses");
    const size_t n = m->ops.n;
    cr_assert(hir_add_loss(m, &diags) && m->ops.n == n, "it has one already");
}

/* A pipeline stage before the last keeps the input, which nothing reads there. */
Test(loss, is_known_to_a_stage_that_sends) {
    const char *both = "%tokens: i32[T], %targets: i32[T]";
    hir_module *m = parse(hd_printf(arena,
                                    "hir 1 depth @t\n\nweight @e : f32[9, 4]\n\nfunc(%s) {\n"
                                    "  %%x = gather @e, %%tokens\n"
                                    "  %%s = comm.send %%x {to = 1}\n}\n",
                                    both));
    cr_assert(hir_has_loss(m) && hir_is_model(m) && hir_loss_output(m) == HIR_NONE);
    m = model(both, "");
    cr_assert_not(hir_has_loss(m), "it sends nothing");
    m = model("%tokens: i32[T]", "");
    cr_assert(hir_add_loss(m, &diags) && hir_has_loss(m), "%s", said());
}

Test(loss, is_not_for_every_module) {
    const char *same = "  %l = cross_entropy %y, %targets\n  output %l {name = \"losses\"}";
    cr_assert(hir_is_model(model("%tokens: i32[T], %targets: i32[T]", same)));
    cr_assert_not(hir_is_model(model("%tokens: i32[T], %others: i32[T]", "")), "a plain function");
    cr_assert_not(hir_is_model(model("%tokens: i32[T], %targets: i32[T]", "")), "no losses");
    hir_module *m = model("%tokens: i32[T]", "  output %x {name = \"losses\"}");
    cr_assert_not(hir_add_loss(m, &diags));
    cr_assert(strstr(said(), "t has no loss"), "%s", said());
    cr_assert(strstr(said(), "another output called \"losses\""), "%s", said());
    m = model("%tokens: i32[T], %x2: f32[T, 4]", "");
    cr_assert_not(hir_add_loss(m, &diags));
    cr_assert(strstr(said(), "it is a plain function"), "%s", said());
    m = graph("weight @e : f32[9, 4]\n", "%tokens: i32[T]",
              "  %x = gather @e, %tokens\n  %y = reshape %x {shape = [T, 2, 2]}\n"
              "  output %y {name = \"y\"}");
    cr_assert_not(hir_add_loss(m, &diags));
    cr_assert(strstr(said(), "its first output is no logits"), "%s", said());
}
