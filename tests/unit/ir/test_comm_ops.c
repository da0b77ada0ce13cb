/* What crosses between ranks: how a dim and rows are divided, the type rules, and the evaluator,
 * which runs all ranks side by side, against the same program on one machine. */
#include "tests/unit/ir/support_eval.h"

TestSuite(comm_ops, .init = open_arena, .fini = close_arena);

/* ---- shares ---------------------------------------------------------------------------------- */

static void each_unit_has_its_owner(const hd_share *s) {
    const int64_t units = s->groups * s->units, local = hd_local_groups(s) * hd_local_units(s);
    for (int64_t unit = 0; unit < units; unit++) {
        int64_t at = -1;
        const int64_t rank = hd_owner_of(s, unit, &at);
        cr_assert(rank >= 0 && rank < s->ranks && at >= 0 && at < local);
        cr_assert_eq(hd_unit_of(s, rank, at), unit, "%lld ranks, %lld x %lld: unit %lld",
                     (long long)s->ranks, (long long)s->groups, (long long)s->units,
                     (long long)unit);
    }
}

/* Without repeats a unit is on one rank only, so that sums over ranks count it once. */
static void no_unit_is_counted_twice(const hd_share *s) {
    int64_t seen[64] = {0};
    for (int64_t r = 0; r < s->ranks; r++)
        for (int64_t i = 0; i < hd_local_groups(s) * hd_local_units(s); i++) {
            const int64_t unit = hd_unit_of(s, r, i);
            if (unit >= 0) seen[unit]++;
        }
    for (int64_t unit = 0; unit < s->groups * s->units; unit++)
        cr_assert_eq(seen[unit], 1);
}

Test(comm_ops, every_unit_is_on_one_rank) {
    for (int64_t ranks = 2; ranks < 9; ranks++)
        for (int64_t groups = 1; groups < 8; groups++)
            for (int64_t units = 1; units < 8; units++) {
                const hd_share zero = {ranks, 2 * groups * units, groups, units, false};
                const hd_share repeat = {ranks, 2 * groups * units, groups, units, true};
                cr_assert_null(hir_why_no_share(&zero));
                cr_assert_eq(hd_local_elements(&zero), hd_local_elements(&repeat));
                each_unit_has_its_owner(&zero);
                each_unit_has_its_owner(&repeat);
                no_unit_is_counted_twice(&zero);
            }
}

Test(comm_ops, ranks_of_a_group_repeat_its_only_unit) {
    const hd_share kv = {4, 2 * 16, 2, 1, true}, q = {4, 8 * 16, 2, 4, true};
    const int64_t want_kv[] = {0, 0, 1, 1}, want_q[] = {0, 2, 4, 6};
    cr_assert_eq(hd_local_elements(&kv), 16);
    cr_assert_eq(hd_local_elements(&q), 32);
    for (int64_t r = 0; r < 4; r++) {
        cr_assert_eq(hd_unit_of(&kv, r, 0), want_kv[r]);
        cr_assert_eq(hd_unit_of(&q, r, 0), want_q[r]);
        cr_assert_eq(hd_unit_of(&q, r, 1), want_q[r] + 1);
    }
}

Test(comm_ops, rows_are_divided_without_gaps) {
    for (int64_t ranks = 1; ranks < 7; ranks++)
        for (int64_t tokens = 1; tokens < 40; tokens++) {
            int64_t next = 0;
            for (int64_t r = 0; r < ranks; r++) {
                cr_assert_eq(hd_first_row(tokens, r, ranks, ranks), tokens < ranks ? 0 : next);
                next = hd_end_row(tokens, r, ranks, ranks);
                cr_assert(tokens < ranks || next > hd_first_row(tokens, r, ranks, ranks));
            }
            cr_assert_eq(next, tokens);
        }
}

/* ---- type rules ------------------------------------------------------------------------------ */

static const char *with_op(const char *ranks, const char *op) {
    return hd_printf(
        arena,
        "hir 1 depth @m\n%s\nweight @w : f32[4, 8]\nstate $c : f32[C, 2, 4]\n"
        "func(%%x: f32[T, 8], %%i: i32[T], %%v: f32[8]) {\n  %%p = neg %%x\n%s"
        "  %%result = %s\n  output %%x {name = \"x\"}\n}\n",
        ranks, *ranks ? "  %l = comm.part %x\n  %h = reshape %l {shape = [T/3, 2, 4]}\n" : "", op);
}
#define THREE "ranks 3, rows divided from 3 tokens"

static const struct {
    const char *op, *type;
} accepted[] = {
    {"comm.part %x", "f32[T/3, 8]"},
    {"comm.part %i", "i32[T/3]"},
    {"comm.part %x {axis = 1, groups = 4, units = 1}", "f32[T, 4]"},
    {"comm.part %v {axis = 0, groups = 1, units = 8, pad = \"repeat\"}", "f32[3]"},
    {"comm.all_reduce %x", "f32[T, 8]"},
    {"comm.reduce_scatter %x {dtype = \"bf16\"}", "f32[T/3, 8]"},
    {"comm.all_gather %l", "f32[T, 8]"},
    {"comm.all_gather %h", "f32[T, 2, 4]"},
    {"comm.all_gather %x {axis = 1, length = 22, groups = 11, units = 1}", "f32[T, 22]"},
    {"comm.recv {from = 0, shape = [T/3, 5]}", "f32[T/3, 5]"},
    {"add %l, %v", "f32[T/3, 8]"},
    {"linear %l, @w", "f32[T/3, 4]"},
    {"rmsnorm %l {eps = 1e-5}", "f32[T/3, 8]"},
    {"depth.inverse_rms %l {eps = 0}", "f32[T/3, 1]"},
    {"topk %l {k = 2}", "i32[T/3, 2]"},
    {"const {shape = [T/3, 2], value = 1}", "f32[T/3, 2]"},
};

Test(comm_ops, accepted) {
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        hir_module *m = hir_parse(arena, &diags, "t.hir", with_op(THREE, accepted[i].op));
        cr_assert_not_null(m, "%s\n%s", accepted[i].op, said());
        hd_text t;
        hd_text_init(&t, arena);
        hir_print_type(&t, hir_value_at(m, (hir_id)m->values.n - 1)->type);
        cr_assert_str_eq(t.at, accepted[i].type, "%s", accepted[i].op);
    }
}

static const struct {
    const char *ranks, *op, *message;
} rejected[] = {
    {"", "comm.part %x", "the module is for one machine"},
    {"", "comm.all_reduce %x", "the module is for one machine"},
    {"", "reshape %x {shape = [T/3, 8]}", "the rows of a rank of 3, but the module is for 1"},
    {THREE, "reshape %l {shape = [T/2, 8]}", "the rows of a rank of 2, but the module is for 3"},
    {THREE, "reshape %l {shape = [T, 8]}", "have the rows of different ranks"},
    {THREE, "add %l, %x", "do not broadcast"},
    {THREE, "comm.part %l", "operand x must be [T, ..], not f32[T/3, 8]"},
    {THREE, "comm.part @w", "operand x must be a value"},
    {THREE, "comm.part %x {groups = 3, units = 1}", "'groups' means nothing without 'axis'"},
    {THREE, "comm.part %x {axis = 0, groups = 3, units = 1}", "axis 0 of f32[T, 8]"},
    {THREE, "comm.part %x {axis = 1, groups = 3, units = 1}", "do not divide the dim"},
    {THREE, "comm.part %x {axis = 1, groups = 0, units = 1}", "count from 1"},
    {THREE, "comm.part %x {axis = 1, groups = 4, units = 1, pad = \"one\"}", "'pad' is \"one\""},
    {THREE, "comm.all_reduce %l", "operand x must be [T, ..], not f32[T/3, 8]"},
    {THREE, "comm.reduce_scatter %i", "operand x must be f32, not i32[T]"},
    {THREE, "comm.reduce_scatter %x {dtype = \"q8\"}", "'dtype' is \"q8\""},
    {THREE, "comm.all_gather %x", "operand x must be [T/3, ..], not f32[T, 8]"},
    {THREE, "comm.all_gather %x {axis = 1, length = 24, groups = 24, units = 2}", "do not divide"},
    {THREE, "comm.all_gather %x {axis = 1, length = 30, groups = 30, units = 1}",
     "a rank's share of 30 is 10, so x is not f32[T, 8]"},
    {THREE, "comm.all_gather %l {length = 8}", "'length' means nothing without 'axis'"},
    {THREE, "comm.recv {from = -1, shape = [T]}", "'from' is -1"},
    {THREE, "comm.recv {from = 1, shape = [4]}", "'shape' must begin with T"},
    {THREE, "cache_append %h, $c", "operand x is f32[T/3, 2, 4], the rows of one rank"},
    {THREE, "depth.merge %l, %v, %x, %v", "operand partial must be of the same rows as live"},
};

Test(comm_ops, rejected) {
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
        hd_diags_init(&diags, arena);
        hir_module *m =
            hir_parse(arena, &diags, "t.hir", with_op(rejected[i].ranks, rejected[i].op));
        cr_assert_null(m, "%s", rejected[i].op);
        cr_assert_not_null(strstr(said(), rejected[i].message), "%s\n%s", rejected[i].op, said());
    }
}

static const struct {
    const char *text, *message;
} bad_tables[] = {
    {"ranks 1, rows divided from 1 tokens\n", "there are 2 to 4096 ranks"},
    {"ranks 4, rows divided from 3 tokens\n", "there are 2 to 4096 ranks"},
    {"ranks 4\n", "expected ','"},
    {"ranks 4, rows from 4 tokens\n", "expected 'rows divided from N tokens'"},
    {THREE "\n" THREE "\n", "'ranks' is given twice"},
    {"weight @a : f32[4]\n" THREE "\n", "'ranks' stands before all weights"},
    {"weight @a : f32[4] shard {dim = 0, groups = 4, units = 1, pad = \"zero\"}\n",
     "but the module is for one machine"},
    {THREE "\nweight @a : f32[4] shard {dim = 1, groups = 4, units = 1, pad = \"zero\"}\n",
     "dim 1 is none of the weight's 1"},
    {THREE "\nweight @a : f32[4] shard {dim = 0, groups = 3, units = 1, pad = \"zero\"}\n",
     "do not divide the dim"},
    {THREE "\nweight @a : f32[4] shard {dim = 0, groups = 4, units = 1, pad = \"none\"}\n",
     "expected \"zero\" or \"repeat\""},
    {THREE "\nweight @a : f32[4] shard {groups = 4}\n", "expected 'dim'"},
};

Test(comm_ops, rejected_tables) {
    for (size_t i = 0; i < sizeof bad_tables / sizeof *bad_tables; i++) {
        hd_diags_init(&diags, arena);
        const char *text = hd_printf(arena, "hir 1 depth @m\n%sfunc() {\n}\n", bad_tables[i].text);
        cr_assert_null(hir_parse(arena, &diags, "t.hir", text), "%s", text);
        cr_assert_not_null(strstr(said(), bad_tables[i].message), "%s\n%s", text, said());
    }
}

/* ---- the evaluator ---------------------------------------------------------------------------
 * Sums over ranks are added in another order than those of one machine, so that results agree to
 * some roundings of a double: 1e-13 relative to the largest. */
#define FEED_FORWARD                                                                               \
    "weight @up : f32[10, 6]%s\nweight @down : f32[6, 10]%s\nweight @g : f32[6]\n"                 \
    "func(%%x: f32[T, 6]) {\n"

static const char alone[] = "  %0 = rmsnorm %x, @g {eps = 1e-06}\n"
                            "  %1 = linear %0, @up, _\n  %2 = silu %1\n  %3 = linear %2, @down, _\n"
                            "  %4 = add %x, %3\n  output %4 {name = \"y\"}\n}\n";

static const char sharded[] =
    "  %x0 = comm.part %x\n  %0 = rmsnorm %x0, @g {eps = 1e-06}\n"
    "  %rows = comm.all_gather %0\n  %1 = linear %rows, @up, _\n  %2 = silu %1\n"
    "  %3 = linear %2, @down, _\n  %mine = comm.reduce_scatter %3\n  %4 = add %x0, %mine\n"
    "  %5 = comm.all_gather %4\n  output %5 {name = \"y\"}\n}\n";

static hir_module *feed_forward_of(int ranks, int from) {
    if (ranks == 1)
        return parse(hd_printf(arena, "hir 1 depth @m\n" FEED_FORWARD "%s", "", "", alone));
    const char *head = hd_printf(arena, "hir 1 depth @m\nranks %d, rows divided from %d tokens\n%s",
                                 ranks, from, FEED_FORWARD "%s");
    return parse(hd_printf(arena, head, " shard {dim = 0, groups = 5, units = 1, pad = \"repeat\"}",
                           " shard {dim = 1, groups = 5, units = 1, pad = \"zero\"}", sharded));
}

Test(comm_ops, ranks_side_by_side_give_what_one_machine_gives) {
    for (int ranks = 2; ranks <= 7; ranks++)
        for (int from = ranks; from <= ranks + 4; from += 4)
            for (uint64_t seed = 1; seed < 4; seed++)
                cr_assert(hir_same_answer(feed_forward_of(1, 0), feed_forward_of(ranks, from),
                                          1e-13, seed, &diags),
                          "%d ranks, from %d: %s", ranks, from, said());
}

Test(comm_ops, what_crosses_as_bf16_is_rounded_once) {
    const char *text =
        "hir 1 depth @m\nranks 2, rows divided from 2 tokens\nfunc(%x: f32[T, 1]) {\n"
        "  %0 = comm.all_reduce %x {dtype = \"bf16\"}\n  %1 = comm.part %x\n"
        "  %2 = comm.all_gather %1 {dtype = \"bf16\"}\n"
        "  output %0 {name = \"sum\"}\n  output %2 {name = \"all\"}\n}\n";
    hir_eval *e = hir_eval_new(arena, parse(text), NULL, NULL);
    hir_results out = call(e, 2, INPUTS(NUMBERS(1.00390625, 3)));
    EXPECT(out.outputs.at[0], "sum", 2, 6); /* 1 + 2^-8 is a tie, and goes to even: 1 */
    EXPECT(out.outputs.at[1], "all", 1, 3);
    out = call(e, 1, INPUTS(NUMBERS(1.00390625)));
    EXPECT(out.outputs.at[1], "nothing crosses where all ranks have all rows", 1.00390625);
}

Test(comm_ops, ranks_that_differ_are_an_error) {
    const char *text =
        "hir 1 depth @m\nranks 2, rows divided from 2 tokens\nfunc(%x: f32[T, 4]) {\n"
        "  %0 = comm.part %x {axis = 1, groups = 2, units = 1}\n"
        "  output %0 {name = \"y\"}\n}\n";
    hir_eval *e = hir_eval_new(arena, parse(text), NULL, NULL);
    hir_results out;
    cr_assert_not(
        hir_eval_call(e, arena, &diags, 1, INPUTS(NUMBERS(1, 2, 3, 4)), &out, NULL, NULL));
    cr_assert_not_null(strstr(said(), "output 'y' differs between ranks"));
    cr_assert_eq(hir_eval_length(e), 0);
}

/* ---- pipelines ------------------------------------------------------------------------------- */

static hir_eval *two_stages(const char *first, const char *second) {
    const char *frame = "hir 1 depth @m\nfunc(%%x: f32[T, 2]) {\n%s}\n";
    const hir_module *stages[] = {parse(hd_printf(arena, frame, first)),
                                  parse(hd_printf(arena, frame, second))};
    return hir_eval_new_pipeline(arena, stages, 2, NULL, NULL);
}

Test(comm_ops, stages_wait_for_each_other) {
    hir_eval *e = two_stages("  %0 = neg %x\n  %s = comm.send %0 {to = 1}\n"
                             "  %1 = comm.recv {from = 1, shape = [T, 2]}\n"
                             "  output %1 {name = \"y\"}\n",
                             "  %0 = comm.recv {from = 0, shape = [T, 2]}\n  %1 = add %0, %0\n"
                             "  %s = comm.send %1 {to = 0}\n  output %0 {name = \"z\"}\n");
    hir_results out = call(e, 2, INPUTS(NUMBERS(1, 2, 3, 4)));
    EXPECT(out.outputs.at[0], "y", -2, -4, -6, -8);
    EXPECT(out.outputs.at[1], "z", -1, -2, -3, -4);
    cr_assert_eq(hir_eval_length(e), 2);
}

static const struct {
    const char *first, *second, *message;
} bad_pipelines[] = {
    {"  %0 = comm.recv {from = 1, shape = [T, 2]}\n  output %0 {name = \"y\"}\n",
     "  %0 = comm.recv {from = 0, shape = [T, 2]}\n  output %0 {name = \"z\"}\n",
     "every stage waits for another"},
    {"  %s = comm.send %x {to = 2}\n", "  output %x {name = \"z\"}\n", "there is no stage 2"},
    {"  %s = comm.send %x {to = 0}\n", "  output %x {name = \"z\"}\n", "there is no stage 0"},
    {"  %s = comm.send %x {to = 1}\n", "  %0 = comm.recv {from = 0, shape = [T, 3]}\n",
     "stage 0 sent 2 elements, but 3 are expected"},
};

Test(comm_ops, pipelines_that_cannot_run_are_errors) {
    for (size_t i = 0; i < sizeof bad_pipelines / sizeof *bad_pipelines; i++) {
        hd_diags_init(&diags, arena);
        hir_eval *e = two_stages(bad_pipelines[i].first, bad_pipelines[i].second);
        hir_results out;
        cr_assert_not(hir_eval_call(e, arena, &diags, 1, INPUTS(NUMBERS(1, 2)), &out, NULL, NULL));
        cr_assert_not_null(strstr(said(), bad_pipelines[i].message), "%s", said());
    }
}
