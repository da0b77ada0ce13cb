/* Canonical forms of bodies (ir/kernel/canonical.h): which kernels have equal forms, and which do not. */
#include <criterion/criterion.h>

#include "ir/kernel/canonical.h"
#include "tests/unit/passes/pass_models.h"

#define ATTRS "{name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\"}"

static const char head[] = "hir 1 kernel @f\n\nweight @g : f32[16]\nweight @h : f32[16]\n"
                           "weight @n : f32[8]\nweight @w : f32[16, 16] panel\n"
                           "weight @v : f32[16, 16]\n\n"
                           "func(%x: f32[T, 16], %y: f32[T, 16], %z: f32[T, 8]) {\n";

/* Checks whether two kernels with these bodies have equal forms. */
static void expect(const char *a, const char *b, bool equal) {
    hd_arena *arena = hd_arena_new();
    bench t = new_bench(hd_printf(arena,
                                  "%s  %%a = kernel.row " ATTRS " : %s  %%b = kernel.row " ATTRS
                                  " : %s  output %%a {name = \"a\"}\n"
                                  "  output %%b {name = \"b\"}\n}\n",
                                  head, a, b));
    cr_assert_not_null(t.m, "%s%s%s", a, b, errors_of(&t));
    hir_canonical *c = hir_canonical_new(arena, t.m);
    hir_canonical_set set = {.arena = arena};
    hir_canonical_body(c, t.m->first);
    cr_expect_eq(hir_canonical_index(&set, c), 0);
    hir_canonical_body(c, hir_op_at(t.m, t.m->first)->next);
    cr_expect_eq(hir_canonical_index(&set, c), equal ? 0 : 1, "%s%s", a, b);
    cr_expect_eq(set.keys.n, equal ? 1 : 2);
    hd_arena_free(t.arena);
    hd_arena_free(arena);
}

#define BODY(type, ...) type " {\n" __VA_ARGS__ "  }\n"

Test(canonical, other_tensors_are_the_same_form) {
    expect(BODY("f32[T, 16]", "    %1 = mul %x, @g : f32[T, 16]\n    yield %1\n"),
           BODY("f32[T, 16]", "    %2 = mul %y, @h : f32[T, 16]\n    yield %2\n"), true);
}

Test(canonical, which_operands_are_one_counts) {
    expect(BODY("f32[T, 16]", "    %1 = mul %x, %y : f32[T, 16]\n    yield %1\n"),
           BODY("f32[T, 16]", "    %2 = mul %x, %x : f32[T, 16]\n    yield %2\n"), false);
    expect(BODY("f32[T, 16]", "    %1 = mul %x, %y : f32[T, 16]\n"
                              "    %2 = add %1, %x : f32[T, 16]\n    yield %2\n"),
           BODY("f32[T, 16]", "    %3 = mul %x, %y : f32[T, 16]\n"
                              "    %4 = add %3, %y : f32[T, 16]\n    yield %4\n"),
           false);
    expect(BODY("f32[T, 16]", "    %1 = mul %x, %y : f32[T, 16]\n"
                              "    %2 = add %1, %x : f32[T, 16]\n    yield %2\n"),
           BODY("f32[T, 16]", "    %3 = mul %y, %x : f32[T, 16]\n"
                              "    %4 = add %3, %y : f32[T, 16]\n    yield %4\n"),
           true);
}

Test(canonical, ops_attributes_types_and_results_count) {
    static const char one[] = BODY("f32[T]", "    %1 = reduce_sum %x {axis = 1} : f32[T]\n"
                                             "    yield %1\n");
    expect(one, BODY("f32[T]", "    %2 = reduce_max %x {axis = 1} : f32[T]\n    yield %2\n"),
           false);
    expect(one, BODY("f32[T]", "    %2 = reduce_sum %z {axis = 1} : f32[T]\n    yield %2\n"),
           false);
    expect(one, BODY("f32[T]", "    %2 = reduce_sum %y {axis = 1} : f32[T]\n    yield %2\n"), true);
    expect(BODY("f32[T, 16]", "    %1 = const {value = 1, shape = []} : f32[]\n"
                              "    %2 = add %x, %1 : f32[T, 16]\n    yield %2\n"),
           BODY("f32[T, 16]", "    %3 = const {value = 2, shape = []} : f32[]\n"
                              "    %4 = add %x, %3 : f32[T, 16]\n    yield %4\n"),
           false);
    expect(BODY("f32[T, 16]", "    %1 = neg %x : f32[T, 16]\n    %2 = abs %1 : f32[T, 16]\n"
                              "    yield %1\n"),
           BODY("f32[T, 16]", "    %3 = neg %x : f32[T, 16]\n    %4 = abs %3 : f32[T, 16]\n"
                              "    yield %4\n"),
           false);
}

/* How a weight is stored decides what code reads it. */
Test(canonical, layouts_count) {
    expect(BODY("f32[T, 16]", "    %1 = linear %x, @w, _ : f32[T, 16]\n    yield %1\n"),
           BODY("f32[T, 16]", "    %2 = linear %x, @v, _ : f32[T, 16]\n    yield %2\n"), false);
}

static hir_type without_dims(const hir_module *m, hir_ref of, hir_type t) {
    (void)m, (void)of;
    t.rank = 0;
    return t;
}

/* What of a type counts is the policy of whoever asks. */
Test(canonical, types_that_do_not_count) {
    hd_arena *arena = hd_arena_new();
    bench t = new_bench(hd_printf(arena,
                                  "%s  %%a = kernel.row " ATTRS
                                  " : f32[T, 16] {\n    %%1 = neg %%x : f32[T, 16]\n"
                                  "    yield %%1\n  }\n  %%b = kernel.row " ATTRS " : f32[T, 8] {\n"
                                  "    %%2 = neg %%z : f32[T, 8]\n    yield %%2\n  }\n"
                                  "  output %%a {name = \"a\"}\n  output %%b {name = \"b\"}\n}\n",
                                  head));
    cr_assert_not_null(t.m, "%s", errors_of(&t));
    hir_canonical *c = hir_canonical_new(arena, t.m);
    for (int free_types = 0; free_types < 2; free_types++) {
        hir_canonical_set set = {.arena = arena};
        c->type = free_types ? without_dims : NULL;
        hir_canonical_body(c, t.m->first);
        hir_canonical_index(&set, c);
        hir_canonical_body(c, hir_op_at(t.m, t.m->first)->next);
        cr_expect_eq(hir_canonical_index(&set, c), free_types ? 0 : 1);
    }
    hd_arena_free(t.arena);
    hd_arena_free(arena);
}

/* A form is the same when numbering starts behind ops that are not part of it. */
Test(canonical, a_part_of_a_body) {
    hd_arena *arena = hd_arena_new();
    bench t = new_bench(
        hd_printf(arena,
                  "%s  %%a = kernel.row " ATTRS " : f32[T, 16] {\n    %%1 = neg %%x : f32[T, 16]\n"
                  "    %%2 = mul %%1, @g : f32[T, 16]\n    %%3 = add %%y, @h : f32[T, 16]\n"
                  "    yield %%3\n  }\n  %%b = kernel.row " ATTRS " : f32[T, 16] {\n"
                  "    %%4 = add %%x, @g : f32[T, 16]\n    yield %%4\n  }\n"
                  "  output %%a {name = \"a\"}\n  output %%b {name = \"b\"}\n}\n",
                  head));
    cr_assert_not_null(t.m, "%s", errors_of(&t));
    hir_canonical *c = hir_canonical_new(arena, t.m);
    hir_canonical_set set = {.arena = arena};
    for (hir_id kernel = t.m->first, k = 0; k < 2; kernel = hir_op_at(t.m, kernel)->next, k++) {
        hir_id op = hir_op_at(t.m, kernel)->body_first;
        hir_canonical_begin(c, kernel);
        for (int i = 0; k == 0 && i < 2; i++, op = hir_op_at(t.m, op)->next)
            hir_canonical_op(c, op, 0);
        hir_canonical_continue(c);
        for (; op != HIR_NONE; op = hir_op_at(t.m, op)->next)
            hir_canonical_op(c, op, 0);
        hir_canonical_operand_types(c, c->first_operand);
        cr_expect_eq(hir_canonical_index(&set, c), 0, "kernel %u", k);
    }
    hd_arena_free(t.arena);
    hd_arena_free(arena);
}

/* A set with more forms than its first size keeps them apart and finds each again. */
Test(canonical, sets_grow) {
    hd_arena *arena = hd_arena_new();
    bench t = new_bench(hd_printf(arena,
                                  "%s  %%a = kernel.row " ATTRS " : f32[T, 16] {\n"
                                  "    %%1 = neg %%x : f32[T, 16]\n    yield %%1\n  }\n"
                                  "  output %%a {name = \"a\"}\n}\n",
                                  head));
    cr_assert_not_null(t.m, "%s", errors_of(&t));
    hir_canonical *c = hir_canonical_new(arena, t.m);
    hir_canonical_set set = {.arena = arena};
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 1000; i++) {
            hir_canonical_begin(c, t.m->first);
            hir_canonical_number(c, i);
            cr_assert_eq(hir_canonical_index(&set, c), i);
        }
    cr_expect_eq(set.keys.n, 1000);
    hd_arena_free(t.arena);
    hd_arena_free(arena);
}
