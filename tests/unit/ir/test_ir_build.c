/* Builder, tables, attributes, and changes to op lists. */
#include "tests/unit/ir/ir_fixture.h"

static hir_module *m;
static hir_builder b;
static hir_ref x;

static void start(void) {
    open_arena();
    m = hir_module_new(arena, "built");
    x = hir_value_ref(hir_add_input(m, "x", hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, 8})));
    b = hir_at_end(m, &diags);
}
TestSuite(building, .init = start, .fini = close_arena);

static const char *body(void) { /* the function's text */
    return strstr(print(m, false), "{\n") + 2;
}

Test(building, ops_get_types_and_places_in_the_list) {
    hir_ref y = hir_emit1(&b, HIR_NEG_OP, x);
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    hir_ref s = hir_emit(&b, HIR_REDUCE_SUM_OP, &y, 1, &axis, 1);
    hir_builder front = hir_before(m, &diags, m->first);
    hir_emit2(&front, HIR_ADD_OP, x, hir_emit_const(&front, 2.5));
    hir_attr name = hir_string(HIR_A_NAME, "sum");
    cr_assert_neq(hir_build(&b, HIR_OUTPUT_OP, &s, 1, &name, 1), HIR_NONE);
    cr_assert_str_eq(body(), "  %0 = const {shape = [], value = 2.5} : f32[]\n"
                             "  %1 = add %x, %0 : f32[T, 8]\n"
                             "  %2 = neg %x : f32[T, 8]\n"
                             "  %3 = reduce_sum %2 {axis = 1} : f32[T]\n"
                             "  output %3 {name = \"sum\"}\n}\n");
    cr_assert(hir_verify(m, &diags), "%s", said());
}

Test(building, optional_operands_are_filled_and_attributes_sorted) {
    hir_attr eps = hir_float(HIR_A_EPS, 1e-5);
    hir_id norm = hir_build(&b, HIR_LAYERNORM_OP, &x, 1, &eps, 1);
    cr_assert_eq(hir_op_at(m, norm)->n_args, 3);
    cr_assert_eq(hir_op_at(m, norm)->args[2].kind, HIR_REF_NONE);
    hir_attr attrs[] = {hir_int(HIR_A_LENGTH, 2), hir_int(HIR_A_START, 1), hir_int(HIR_A_AXIS, 1)};
    hir_id slice = hir_build(&b, HIR_SLICE_OP, &x, 1, attrs, 3);
    for (uint32_t i = 1; i < 3; i++)
        cr_assert_lt(hir_op_at(m, slice)->attrs[i - 1].id, hir_op_at(m, slice)->attrs[i].id);
    cr_assert_eq(hir_attr_int(hir_op_at(m, slice), HIR_A_LENGTH, 0), 2);
    cr_assert_eq(hir_attr_int(hir_op_at(m, slice), HIR_A_GRAIN, 7), 7);
}

Test(building, an_illegal_op_is_rejected_once_and_its_users_quietly) {
    b.loc = (hd_loc){"spec", 3, 4, 0, NULL};
    hir_ref bad = hir_emit2(&b, HIR_ADD_OP, x, hir_no_ref());
    cr_assert_eq(bad.kind, HIR_REF_NONE);
    hir_ref worse = hir_emit1(&b, HIR_NEG_OP, bad);
    cr_assert_eq(worse.kind, HIR_REF_NONE);
    cr_assert_eq(diags.errors, 1);
    cr_assert_eq(diags.list.at[0].loc.line, 3);
    cr_assert_eq(m->ops.n, 0);
    cr_assert_eq(hir_build(&b, HIR_KERNEL_ROW_OP, NULL, 0, NULL, 0), HIR_NONE);
    hir_attr twice[] = {hir_float(HIR_A_EPS, 0), hir_float(HIR_A_EPS, 0)};
    cr_assert_eq(hir_build(&b, HIR_RMSNORM_OP, &x, 1, twice, 2), HIR_NONE);
    cr_assert_not_null(strstr(said(), "'eps' is given twice"));
}

static hir_id kernel(hir_type type) {
    hir_attr attrs[] = {hir_string(HIR_A_SPLIT_PREFILL, "rows"), hir_string(HIR_A_NAME, "k"),
                        hir_string(HIR_A_ROWS, "all"), hir_string(HIR_A_SPLIT_DECODE, "none")};
    m->stage = HIR_STAGE_KERNEL;
    return hir_build_kernel(&b, HIR_KERNEL_ROW_OP, attrs, 4, &type, 1);
}

Test(building, kernels_hold_bodies) {
    hir_type type = hir_ref_type(m, x);
    hir_id k = kernel(type);
    hir_builder in = hir_in_body(m, &diags, k);
    hir_ref y = hir_emit1(&in, HIR_EXP_OP, x);
    cr_assert_neq(hir_build(&in, HIR_YIELD_OP, &y, 1, NULL, 0), HIR_NONE);
    cr_assert(hir_verify(m, &diags), "%s", said());
    cr_assert_eq(hir_op_at(m, y.index == 1 ? 0 : hir_value_at(m, y.index)->op)->parent, k);
    hir_uses u = hir_compute_uses(m, arena);
    cr_assert_eq(u.count[x.index], 1);
    hir_erase(m, k);
    cr_assert_eq(m->first, HIR_NONE);
    cr_assert(hir_op_at(m, hir_value_at(m, y.index)->op)->erased);
    cr_assert(hir_verify(m, &diags), "%s", said());
}

Test(building, ops_move_between_lists) {
    hir_ref one = hir_emit1(&b, HIR_NEG_OP, x), two = hir_emit1(&b, HIR_EXP_OP, x);
    hir_ref three = hir_emit1(&b, HIR_ABS_OP, x);
    hir_id first = hir_value_at(m, one.index)->op, second = hir_value_at(m, two.index)->op,
           third = hir_value_at(m, three.index)->op;
    hir_move_before(m, third, HIR_NONE, first);
    hir_move_before(m, first, HIR_NONE, HIR_NONE);
    hir_move_before(m, second, HIR_NONE, second);
    cr_assert_str_eq(body(), "  %0 = abs %x : f32[T, 8]\n  %1 = exp %x : f32[T, 8]\n"
                             "  %2 = neg %x : f32[T, 8]\n}\n");
    hir_id k = kernel(hir_ref_type(m, x));
    hir_move_before(m, second, k, HIR_NONE);
    hir_builder in = hir_in_body(m, &diags, k);
    hir_build(&in, HIR_YIELD_OP, &two, 1, NULL, 0);
    cr_assert_eq(hir_op_at(m, second)->parent, k);
    cr_assert(hir_verify(m, &diags), "%s", said());
    hir_move_before(m, second, HIR_NONE, k);
    cr_assert(hir_verify(m, &diags), "%s", said());
}

Test(building, uses_are_listed_in_program_order) {
    hir_ref y = hir_emit1(&b, HIR_NEG_OP, x);
    hir_ref z = hir_emit2(&b, HIR_MUL_OP, y, y);
    hir_builder front = hir_before(m, &diags, hir_value_at(m, z.index)->op);
    hir_ref w = hir_emit1(&front, HIR_EXP_OP, y);
    hir_uses u = hir_compute_uses(m, arena);
    cr_assert_eq(u.count[y.index], 3, "mul counts twice");
    cr_assert_eq(u.user[u.first[y.index]], hir_value_at(m, w.index)->op);
    cr_assert_eq(u.user[u.first[y.index] + 2], hir_value_at(m, z.index)->op);
    cr_assert_eq(u.count[z.index], 0);
}

Test(building, attributes_are_added_and_replaced) {
    hir_attr axis = hir_int(HIR_A_AXIS, 1);
    hir_ref y = hir_emit(&b, HIR_SOFTMAX_OP, &x, 1, &axis, 1);
    hir_id op = hir_value_at(m, y.index)->op;
    hir_set_attr(m, op, hir_int(HIR_A_AXIS, 0));
    cr_assert_eq(hir_op_at(m, op)->n_attrs, 1);
    cr_assert_not(hir_verify(m, &diags));
    hir_set_attr(m, op, hir_int(HIR_A_AXIS, 1));
    hir_set_attr(m, op, hir_float(HIR_A_EPS, 1));
    cr_assert_eq(hir_op_at(m, op)->n_attrs, 2);
    hd_diags_init(&diags, arena);
    cr_assert_not(hir_verify(m, &diags));
    cr_assert_not_null(strstr(said(), "there is no attribute 'eps'"), "%s", said());
}

Test(building, tables) {
    uint32_t w = hir_add_weight(m, "w", type_of("f32[4, 8]"), HD_NOWHERE);
    uint32_t s = hir_add_state(m, "s", HIR_STATE_CACHE,
                               hir_make_type(HIR_F32, 2, (int64_t[]){HIR_C, 3}), HD_NOWHERE);
    cr_assert_eq(hir_find_weight(m, "w"), w);
    cr_assert_eq(hir_find_weight(m, "v"), HIR_NONE);
    cr_assert_eq(hir_find_state(m, "s"), s);
    cr_assert_eq(hir_find_state(m, "w"), HIR_NONE);
    hir_set_option(m, "a", "1");
    hir_set_option(m, "b", "2");
    hir_set_option(m, "a", "3");
    cr_assert_eq(m->options.n, 2);
    cr_assert_str_eq(m->options.at[0].value, "3");
}

Test(building, types) {
    cr_assert_eq(hir_type_row_elements(type_of("f32[T, 3, 4]")), 12);
    cr_assert_eq(hir_type_row_elements(type_of("f32[]")), 1);
    int64_t huge[] = {HIR_MAX_DIM, HIR_MAX_DIM, HIR_MAX_DIM, 4};
    cr_assert_eq(hir_type_row_elements(hir_make_type(HIR_F32, 4, huge)), -1);
    cr_assert(hir_type_has_t(type_of("f32[T]")));
    cr_assert_not(hir_type_has_t(type_of("f32[2]")));
    cr_assert(hir_type_equal(type_of("f32[2]"), type_of("f32[2]")));
    cr_assert_not(hir_type_equal(type_of("f32[2]"), type_of("f32[2, 1]")));
}

/* ---- what only a defective pass can make ----------------------------------------------------- */
static bool broken(const char *message) {
    hd_diags_init(&diags, arena);
    bool ok = hir_verify(m, &diags);
    return !ok && strstr(said(), message);
}

Test(building, the_verifier_sees_broken_modules) {
    hir_ref y = hir_emit1(&b, HIR_NEG_OP, x), z = hir_emit1(&b, HIR_EXP_OP, y);
    hir_id first = m->first, second = hir_value_at(m, z.index)->op;
    hir_move_before(m, second, HIR_NONE, first);
    cr_assert(broken("exp: operand 0 is a value that is not defined before it"), "%s", said());
    hir_move_before(m, first, HIR_NONE, second);
    hir_value_at(m, y.index)->type = type_of("f32[T, 9]");
    cr_assert(broken("neg: the result is f32[T, 9], but its operands give f32[T, 8]"));
    hir_value_at(m, y.index)->type = hir_ref_type(m, x);
    hir_op_at(m, second)->next = first;
    cr_assert(broken("the op list is broken"), "%s", said());
    hir_op_at(m, second)->next = 77;
    cr_assert(broken("the op list is broken at op 77"), "%s", said());
    hir_op_at(m, second)->next = HIR_NONE;
    hir_op_at(m, second)->results[0] = y.index;
    cr_assert(broken("exp: its results are not its own"), "%s", said());
    hir_op_at(m, second)->results[0] = z.index;
    hir_op_at(m, second)->args[0] = hir_value_ref(1000);
    cr_assert(broken("exp: operand 0 is a value that is not defined"), "%s", said());
    hir_op_at(m, second)->args[0] = hir_weight_ref(0);
    cr_assert(broken("operand x points outside the module"), "%s", said());
    hir_op_at(m, second)->args[0] = y;
    hir_value_at(m, z.index)->place = HIR_PLACE_ARENA;
    cr_assert(broken("exp: only results of kernels have places"), "%s", said());
    hir_value_at(m, z.index)->place = HIR_PLACE_NONE;
    hir_value_at(m, z.index)->name = "x";
    cr_assert(broken("there are two values %x"), "%s", said());
    hir_value_at(m, z.index)->name = NULL;
    m->name = "two words";
    cr_assert(broken("'two words' is no C identifier"), "%s", said());
    m->name = "built";
    hd_diags_init(&diags, arena);
    cr_assert(hir_verify(m, &diags), "%s", said());
}
