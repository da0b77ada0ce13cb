/* hir_reducer: what is left when a property must stay true. */
#include "tests/unit/ir/ir_fixture.h"

#include "ir/compare/reduce.h"

TestSuite(reduce, .init = open_arena, .fini = close_arena, .timeout = 60);

typedef bool property(const hir_module *m);

static size_t count_ops(const hir_module *m, hir_opcode code) {
    size_t n = 0;
    for (size_t i = 0; i < m->ops.n; i++)
        n += !m->ops.at[i].erased && m->ops.at[i].code == code;
    return n;
}

static size_t all_ops(const hir_module *m) {
    size_t n = 0;
    for (size_t i = 0; i < m->ops.n; i++)
        n += !m->ops.at[i].erased;
    return n;
}

static size_t proposals;

/* Every proposal must be legal, and print to text that parses to the same. */
static const hir_module *reduce(const hir_module *m, property *holds) {
    hir_reducer *r = hir_reducer_new(m, arena, &diags);
    cr_assert_not_null(r);
    proposals = 0;
    for (const hir_module *next; (next = hir_reducer_next(r)); proposals++) {
        cr_assert_lt(proposals, 5000, "it does not end");
        hd_diags d;
        hd_diags_init(&d, arena);
        cr_assert(hir_verify(next, &d));
        const char *text = print(next, false);
        hir_module *again = parse(text);
        cr_assert_not_null(again, "%s\n%s", said(), text);
        cr_expect_str_eq(print(again, false), text);
        hir_reducer_answer(r, holds(next));
    }
    return hir_reducer_best(r);
}

static const char model[] =
    "hir 1 graph @m\n\noption layers = \"2\"\n\nweight @e : f32[40, 16]\nweight @w : f32[16, 16]\n"
    "weight @g : f32[16]\nweight @left : f32[7] unused\n\nstate $k : f32[C, 2, 8]\n\n"
    "func(%t: i32[T], %extra: f32[T, 3]) {\n"
    "  %0 = gather @e, %t : f32[T, 16]\n"
    "  %1 = rmsnorm %0, @g {eps = 1e-06} : f32[T, 16]\n"
    "  %2 = linear %1, @w : f32[T, 16]\n"
    "  %3 = reshape %2 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
    "  %4 = cache_append %3, $k : f32[C, 2, 8]\n"
    "  %5 = attention %3, %4, %4 {scale = 0.5} : f32[T, 2, 8]\n"
    "  %6 = reshape %5 {shape = [T, 16]} : f32[T, 16]\n"
    "  %7 = add %0, %6 : f32[T, 16]\n"
    "  %8 = softmax %7 {axis = 1} : f32[T, 16]\n"
    "  %9 = exp %extra : f32[T, 3]\n"
    "  output %8 {name = \"a\"}\n"
    "  output %9 {name = \"b\"}\n"
    "}\n";

static bool always(const hir_module *m) {
    (void)m;
    return true;
}

static bool never(const hir_module *m) {
    (void)m;
    return false;
}

static bool has_softmax(const hir_module *m) {
    return count_ops(m, HIR_SOFTMAX_OP) > 0;
}

static bool has_attention(const hir_module *m) {
    return count_ops(m, HIR_ATTENTION_OP) > 0;
}

static bool is_output_b(const hir_module *m) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP && strcmp(hir_attr_string(o, HIR_A_NAME, ""), "b") == 0)
            return true;
    }
    return false;
}

/* A dim of 16 that is wider than 4: halving must stop at 8. */
static bool wide_softmax(const hir_module *m) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_SOFTMAX_OP && hir_value_at(m, o->results[0])->type.dim[1] > 4)
            return true;
    }
    return false;
}

Test(reduce, to_nothing) {
    const hir_module *m = reduce(parse(model), always);
    cr_expect_eq(all_ops(m), 0, "%s", print(m, false));
    cr_expect_eq(m->weights.n + m->states.n + m->inputs.n + m->options.n, 0);
}

Test(reduce, nothing_taken) {
    hir_module *m = parse(model);
    const char *before = print(m, false);
    const hir_module *best = reduce(m, never);
    cr_expect_str_eq(print(best, false), before);
    cr_expect_gt(proposals, 20);
}

Test(reduce, to_one_op) {
    const hir_module *m = reduce(parse(model), has_softmax);
    cr_expect_leq(all_ops(m), 2, "%s", print(m, false));
    cr_expect_eq(m->weights.n + m->states.n + m->inputs.n, 0, "%s", print(m, false));
}

Test(reduce, what_an_op_needs_stays) {
    const hir_module *m = reduce(parse(model), has_attention);
    cr_expect_leq(all_ops(m), 3, "%s", print(m, false)); /* a constant, the cache, attention */
    cr_expect_eq(m->states.n, 1);
}

Test(reduce, outputs) {
    const hir_module *m = reduce(parse(model), is_output_b);
    cr_expect_eq(count_ops(m, HIR_OUTPUT_OP), 1);
    cr_expect_leq(all_ops(m), 2, "%s", print(m, false));
}

Test(reduce, dims) {
    const hir_module *m = reduce(parse(model), wide_softmax);
    cr_expect(strstr(print(m, false), "f32[T, 8]"), "%s", print(m, false));
}

Test(reduce, the_same_twice) {
    const char *once = print(reduce(parse(model), has_attention), false);
    cr_expect_str_eq(print(reduce(parse(model), has_attention), false), once);
}

/* ---- kernels --------------------------------------------------------------------------------- */
#define ROW "{name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\"}"
static const char kernels[] =
    "hir 1 kernel @m\n\narena 128 per token\nfixed 64\n\nweight @g : f32[8]\n"
    "weight @a : f32[4]\nweight @b : f32[4]\nweight @made : f32[2, 4] = @a, @b\n\n"
    "state $k : f32[C, 1, 8]\nstate $v : f32[C, 1, 8]\n\nfunc(%x: f32[T, 8] in input[0]) {\n"
    "  %0, %1 = kernel.row " ROW " : f32[T, 8] in arena[0], f32[T, 8] in arena[32] {\n"
    "    %2 = silu %x : f32[T, 8]\n    %3 = exp %2 : f32[T, 8]\n    yield %2, %3\n  }\n"
    "  %4, %5 = kernel.row " ROW " : f32[C, 1, 8] in state[1], f32[T, 8] in arena[64] {\n"
    "    %6 = reshape %1 {shape = [T, 1, 8]} : f32[T, 1, 8]\n"
    "    %7 = cache_append %6, $v : f32[C, 1, 8]\n    %8 = mul %0, @g : f32[T, 8]\n"
    "    yield %7, %8\n  }\n"
    "  %9 = kernel.row " ROW " : f32[T, 8] in output[0] {\n"
    "    %10 = add %5, %1 : f32[T, 8]\n    yield %10\n  }\n"
    "  %11 = kernel.row " ROW " : f32[T, 2] in output[1] {\n"
    "    %12 = const {shape = [T, 4], value = 2} : f32[T, 4]\n"
    "    %13 = linear %12, @made : f32[T, 2]\n    yield %13\n  }\n"
    "  output %9 {name = \"a\"}\n  output %11 {name = \"b\"}\n}\n";

static bool yields_state(const hir_module *m) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        for (uint32_t i = 0; i < o->n_results; i++)
            if (hir_value_at(m, o->results[i])->place == HIR_PLACE_STATE) return true;
    }
    return false;
}

static bool has_linear(const hir_module *m) {
    return count_ops(m, HIR_LINEAR_OP) > 0;
}

static bool writes_output(const hir_module *m) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->n_results && hir_value_at(m, o->results[0])->place == HIR_PLACE_OUTPUT &&
            hir_type_equal(hir_value_at(m, o->results[0])->type, type_of("f32[T, 2]")))
            return true;
    }
    return false;
}

Test(reduce, states_keep_their_places) {
    const hir_module *m = reduce(parse(kernels), yields_state);
    cr_expect_eq(m->states.n, 1);
    cr_expect(strstr(print(m, false), "in state[0]"), "%s", print(m, false));
    cr_expect_eq(count_ops(m, HIR_KERNEL_ROW_OP), 1, "%s", print(m, false));
}

Test(reduce, outputs_keep_their_places) {
    const hir_module *m = reduce(parse(kernels), writes_output);
    cr_expect_eq(count_ops(m, HIR_OUTPUT_OP), 1);
    cr_expect(strstr(print(m, false), "in output[0]"), "%s", print(m, false));
}

Test(reduce, made_weights_keep_what_they_are_made_of) {
    const hir_module *m = reduce(parse(kernels), has_linear);
    cr_expect_eq(m->weights.n, 3, "%s", print(m, false));
}
