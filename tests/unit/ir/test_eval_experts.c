/* The evaluator's rules of experts, each against numbers worked out by hand. */
#include "tests/unit/ir/support_eval.h"

TestSuite(eval_experts, .init = open_arena, .fini = close_arena);

static hir_array one_op(const char *tables, const char *inputs, const char *line, int64_t tokens,
                        const double *const *at) {
    return run_one(graph(tables, inputs, hd_printf(arena, "%s\n  output %%y {name = \"y\"}", line)),
                   tokens, at);
}

/* Ids cannot leave a program: what is picked of 0 1 2 .. with them is what they are. */
static hir_array choice(int64_t n, int64_t k, int64_t tokens, const double *x) {
    hd_text text;
    hd_text_init(&text, arena);
    hd_text_f(&text, "  %%ids = topk %%x {k = %lld}\n", (long long)k);
    for (int64_t i = 0; i < n; i++)
        hd_text_f(&text, "  %%c%lld = const {value = %lld, shape = [1]}\n", (long long)i,
                  (long long)i);
    hd_text_add(&text, "  %places = concat ");
    for (int64_t i = 0; i < n; i++)
        hd_text_f(&text, "%s%%c%lld", i ? ", " : "", (long long)i);
    hd_text_add(&text, " {axis = 0}\n  %y = pick %places, %ids");
    return one_op("", hd_printf(arena, "%%x: f32[T, %lld]", (long long)n), text.at, tokens,
                  INPUTS(x));
}

Test(eval_experts, topk_gives_the_largest_first_and_the_lower_of_equals) {
    hir_array y = choice(5, 3, 2, NUMBERS(1, 5, 3, 5, -2, 0, -0.0, 0, -1, -3));
    EXPECT(y, "topk", 1, 3, 2, 0, 1, 2);
    y = choice(4, 4, 1, NUMBERS(-INFINITY, NAN, INFINITY, NAN));
    EXPECT(y, "NaN is smaller than -inf", 2, 0, 1, 3);
    y = choice(3, 1, 2, NUMBERS(NAN, NAN, NAN, NAN, -1, NAN));
    EXPECT(y, "a row of NaN", 0, 1);
    y = choice(1, 1, 1, NUMBERS(7));
    EXPECT(y, "one of one", 0);
}

Test(eval_experts, to_ids_makes_ids_of_whole_numbers) {
    hir_array y =
        one_op("", "%x: f32[T, 3], %row: f32[4]", "  %ids = to_ids %x\n  %y = pick %row, %ids", 2,
               INPUTS(NUMBERS(2, 0, 3, -1, 4, 1.75), NUMBERS(10, 11, 12, 13)));
    EXPECT(y, "a fraction is cut off, ids outside give 0", 12, 10, 13, 0, 0, 11);
}

Test(eval_experts, topk_runs_over_the_last_axis) {
    hir_array y = one_op("", "%x: f32[T, 2, 3]", "  %ids = topk %x {k = 2}\n  %y = pick %x, %ids",
                         1, INPUTS(NUMBERS(1, 3, 2, 6, 4, 5)));
    EXPECT(y, "by rows", 3, 2, 6, 5);
}

Test(eval_experts, pick_reads_and_mark_writes_at_ids) {
    hir_array y = one_op("", "%x: f32[T, 3], %ids: i32[T, 2]", "  %y = pick %x, %ids", 2,
                         INPUTS(NUMBERS(10, 11, 12, 20, 21, 22), NUMBERS(2, 0, -1, 3)));
    EXPECT(y, "ids outside give 0", 12, 10, 0, 0);
    y = one_op("", "%x: f32[3], %ids: i32[T, 2]", "  %y = pick %x, %ids", 2,
               INPUTS(NUMBERS(10, 11, 12), NUMBERS(2, 0, 1, 1)));
    EXPECT(y, "one row for all tokens", 12, 10, 11, 11);
    y = one_op("", "%x: f32[T, 1, 3], %ids: i32[T, 2, 1]", "  %y = pick %x, %ids", 1,
               INPUTS(NUMBERS(10, 11, 12), NUMBERS(2, 0)));
    EXPECT(y, "a dim of 1 stretches", 12, 10);
    y = one_op("", "%ids: i32[T, 2]", "  %y = mark %ids {length = 4}", 2,
               INPUTS(NUMBERS(3, 1, 4, -1)));
    EXPECT(y, "ids outside mark nothing", 0, 1, 0, 1, 0, 0, 0, 0);
}

Test(eval_experts, expert_linear_multiplies_with_the_chosen) {
    const double w[] = {1, 2, 3, 4, /* expert 1: */ 10, 20, 30, 40, /* 2: */ -1, 0, 0, -1};
    const double bias[] = {0.5, 0.25, 1, 2, 3, 4};
    const given list[] = {{"w", w}, {"b", bias}};
    givens weights = {list, 2};
    hir_module *m =
        graph("weight @w : f32[3, 2, 2]\nweight @b : f32[3, 2]", "%x: f32[T, 2], %ids: i32[T, 2]",
              "  %y = expert_linear %x, @w, %ids, @b\n  output %y {name = \"y\"}");
    hir_eval *e = hir_eval_new(arena, m, given_weights, &weights);
    hir_results out = call(e, 2, INPUTS(NUMBERS(1, 2, 3, 4), NUMBERS(1, 0, 2, 7)));
    EXPECT(out.outputs.at[0], "one row for both", 51, 112, 5.5, 11.25, 0, 0, 0, 0);
    m = graph("weight @w : f32[3, 2, 2]", "%x: f32[T, 2, 2], %ids: i32[T, 2]",
              "  %y = expert_linear %x, @w, %ids\n  output %y {name = \"y\"}");
    e = hir_eval_new(arena, m, given_weights, &weights);
    out = call(e, 1, INPUTS(NUMBERS(1, 2, 3, 4), NUMBERS(2, -1)));
    EXPECT(out.outputs.at[0], "a row for each", -1, -2, 0, 0);
}
