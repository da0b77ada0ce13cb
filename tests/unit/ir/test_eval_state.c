/* State of the evaluator: what is kept from call to call, gone back to, and left alone by a call
 * that fails, for each kind. No op writes windows and carries yet, so the test does. */
#include "ir/eval/private.h"
#include "tests/unit/ir/support_eval.h"

TestSuite(eval_state, .init = open_arena, .fini = close_arena);

enum { ROW = 2, WINDOW = 3 * 4, CARRY = 5 };

static hir_eval *new_eval(const char *states) {
    const char *append = strstr(states, "$k") ? "  %c = cache_append %x, $k\n" : "";
    return hir_eval_new(
        arena,
        graph(states, "%x: f32[T, 1, 2], %ids: i32[T]",
              hd_printf(arena, "%s  %%y = neg %%x\n  output %%y {name = \"y\"}", append)),
        NULL, NULL);
}

static const char all_kinds[] =
    "state $k : f32[C, 1, 2]\nstate $w : window f32[3, 4]\nstate $s : carry f32[5]\n";

static double rows[64];
static double ids[64];

static void step(hir_eval *e, int64_t tokens) {
    for (int i = 0; i < 64; i++)
        rows[i] = (double)(i + 1 + (int)hir_eval_length(e) * ROW);
    call(e, tokens, INPUTS(rows, ids));
}

static void expect_all(const hir_eval *e, uint32_t state, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++)
        cr_assert_eq(e->states[state].at[i], value, "state %u, element %ld: %g", state, (long)i,
                     e->states[state].at[i]);
}

static void fill(hir_eval *e, uint32_t state, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++)
        e->states[state].at[i] = value;
}

static void expect_cache(const hir_eval *e) {
    for (int64_t i = 0; i < hir_eval_length(e) * ROW; i++)
        cr_assert_eq(e->states[0].at[i], (double)i + 1);
}

Test(eval_state, begins_as_zeros_and_stays) {
    hir_eval *e = new_eval(all_kinds);
    step(e, 4);
    expect_all(e, 1, WINDOW, 0);
    expect_all(e, 2, CARRY, 0);
    fill(e, 1, WINDOW, 7);
    fill(e, 2, CARRY, -3);
    step(e, 9);
    step(e, 1);
    expect_all(e, 1, WINDOW, 7);
    expect_all(e, 2, CARRY, -3);
    expect_cache(e);
    cr_assert_eq(hir_eval_length(e), 14);
}

Test(eval_state, a_failed_call_changes_no_kind) {
    static const double bad[64] = {0.5}; /* no id */
    hir_eval *e = new_eval(all_kinds);
    hir_results out;
    step(e, 4);
    fill(e, 1, WINDOW, 7);
    fill(e, 2, CARRY, -3);
    cr_assert_not(hir_eval_call(e, arena, &diags, 2, INPUTS(rows, bad), &out, NULL, NULL));
    cr_assert_eq(hir_eval_length(e), 4);
    expect_all(e, 1, WINDOW, 7);
    expect_all(e, 2, CARRY, -3);
    expect_cache(e);
}

/* The observer plays the op that has written its state when a later op of the call fails. */
static void scribble(void *context, const hir_module *m, hir_id op, hir_id value,
                     const hir_array *a) {
    (void)m, (void)op, (void)value, (void)a;
    fill(context, 1, WINDOW, 99);
    fill(context, 2, CARRY, 99);
}

Test(eval_state, what_a_failed_call_wrote_is_undone) {
    static const double tables[4] = {0}, far[64] = {9};
    givens none = {NULL, 0};
    hir_module *m = graph(all_kinds, "%x: f32[T, 1, 2], %t: f32[2, 2], %ids: i32[T]",
                          "  %y = neg %x\n  %r = gather %t, %ids\n  output %y {name = \"y\"}\n"
                          "  output %r {name = \"r\"}");
    hir_eval *e = hir_eval_new(arena, m, given_weights, &none);
    hir_results out;
    call(e, 2, INPUTS(rows, tables, ids));
    fill(e, 1, WINDOW, 7);
    fill(e, 2, CARRY, -3);
    cr_assert_not(hir_eval_call(e, arena, &diags, 1, INPUTS(rows, tables, far), &out, scribble, e));
    expect_all(e, 1, WINDOW, 7);
    expect_all(e, 2, CARRY, -3);
    cr_assert_eq(out.outputs.n, 0);
    cr_assert(hir_eval_call(e, arena, &diags, 1, INPUTS(rows, tables, ids), &out, scribble, e));
    expect_all(e, 1, WINDOW, 99);
    expect_all(e, 2, CARRY, 99);
}

Test(eval_state, caches_rewind_to_any_length) {
    hir_eval *e = new_eval("state $k : f32[C, 1, 2]\n");
    step(e, 6);
    cr_assert(hir_eval_rewind(e, 6));
    cr_assert(hir_eval_rewind(e, 2));
    step(e, 3);
    expect_cache(e);
    cr_assert_eq(hir_eval_length(e), 5);
}

static void expect_cleared_only(const char *states, int64_t n) {
    hir_eval *e = new_eval(states);
    cr_assert(hir_eval_rewind(e, 0), "nothing has happened");
    step(e, 6);
    fill(e, 0, n, 7);
    cr_assert_not(hir_eval_rewind(e, 2));
    cr_assert_not(hir_eval_rewind(e, 7));
    cr_assert_not(hir_eval_rewind(e, -1));
    cr_assert_eq(hir_eval_length(e), 6);
    cr_assert(hir_eval_rewind(e, 6));
    expect_all(e, 0, n, 7);
    cr_assert(hir_eval_rewind(e, 0));
    cr_assert_eq(hir_eval_length(e), 0);
    expect_all(e, 0, n, 0);
}

Test(eval_state, windows_and_carries_can_only_be_cleared) {
    expect_cleared_only("state $w : window f32[3, 4]\n", WINDOW);
    expect_cleared_only("state $s : carry f32[5]\n", CARRY);
}
