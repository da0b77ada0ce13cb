/* The backward half of a module with gradients: which of its values are the mechanism's, and what
 * they cost. Whole systems are in tests/depth/backward.py. */
#include <criterion/criterion.h>

#include "passes/analysis/backward_ledger.h"
#include "passes/pass.h"
#include "tests/unit/arena_fixture.h"

TestSuite(backward_ledger, .init = open_arena, .fini = close_arena);

enum { ROW = 16 * 4 }; /* bytes */

#define HEAD                                                                                       \
    "hir 1 graph @m\n\n"                                                                           \
    "weight @embed : f32[20, 16]\n"                                                                \
    "weight @f1 : f32[16, 16]\n"                                                                   \
    "weight @f2 : f32[16, 16]\n"                                                                   \
    "weight @gate : f32[16, 16]\n"                                                                 \
    "weight @g : f32[16]\n\n"                                                                      \
    "func(%tokens: i32[T]) {\n"                                                                    \
    "  %e = gather @embed, %tokens : f32[T, 16]\n"                                                 \
    "  %x1 = rmsnorm %e, @g {eps = 1e-06} : f32[T, 16]\n"                                          \
    "  %y1 = linear %x1, @f1, _ : f32[T, 16]\n"

#define TAIL(h1)                                                                                   \
    "  %x2 = rmsnorm " h1 ", @g {eps = 1e-06} : f32[T, 16]\n"                                      \
    "  %y2 = linear %x2, @f2, _ : f32[T, 16]\n"                                                    \
    "  %h2 = add " h1 ", %y2 : f32[T, 16]\n"                                                       \
    "  %xo = rmsnorm %h2, @g {eps = 1e-06} : f32[T, 16]\n"                                         \
    "  %logits = linear %xo, @embed, _ : f32[T, 20]\n"                                             \
    "  output %logits {name = \"logits\"}\n}\n"

typedef struct step { /* a training step of a model, op by op */
    hir_module *m;
    hir_ledger forward;
    hir_back_ledger back;
} step;

static step step_of(const char *text) {
    static const hir_pass_id passes[] = {HIR_PASS_DIFFERENTIATE, HIR_PASS_CSE, HIR_PASS_DCE};
    const hir_run run = {.passes = passes, .n_passes = 3, .stop_after = HIR_PASS_COUNT};
    const hir_compile_options options = {0};
    step s = {.m = hir_parse(arena, &diags, "test.hir", text)};
    cr_assert(s.m && hir_add_loss(s.m, &diags));
    cr_assert(hir_run_passes(s.m, &run, &options, NULL, &diags));
    hir_ledger_find(s.m, arena, &s.forward);
    hir_back_ledger_find(s.m, &s.forward, arena, &s.back);
    return s;
}

/* The old gradient of the stream and that of the norm are read, and their sum is written. */
static void expect_standard(const step *s, const char *what) {
    cr_expect_eq(s->forward.sublayers, 2, "%s", what);
    cr_expect_eq(s->back.counted.read, 2 * 2 * ROW, "%s: %llu", what,
                 (unsigned long long)s->back.counted.read);
    cr_expect_eq(s->back.counted.written, 2 * ROW, "%s", what);
}

Test(backward_ledger, a_standard_residual_has_three_rows) {
    const step s = step_of(HEAD "  %h1 = add %e, %y1 : f32[T, 16]\n" TAIL("%h1"));
    expect_standard(&s, "plain");
    cr_expect_eq(s.back.phase[HIR_BACK_PHASE_SUMS].written, 2 * ROW);
    cr_expect_gt(s.back.phase[HIR_BACK_PHASE_NORM].read, 0);
    cr_expect_gt(s.back.phase[HIR_BACK_PHASE_GAINS].read, 0);
    cr_expect_eq(s.back.phase[HIR_BACK_PHASE_WEIGHTS].read, 0);
    cr_expect_eq(s.back.phase[HIR_BACK_PHASE_BLOCKS].read, 0);
}

Test(backward_ledger, the_forward_half_is_that_of_the_model_alone) {
    const char *text = HEAD "  %h1 = add %e, %y1 : f32[T, 16]\n" TAIL("%h1");
    const step s = step_of(text);
    hir_ledger alone;
    hir_ledger_find(hir_parse(arena, &diags, "test.hir", text), arena, &alone);
    cr_expect_eq(s.forward.sublayers, alone.sublayers);
    cr_expect_eq(s.forward.total.read, alone.total.read);
    cr_expect_eq(s.forward.total.written, alone.total.written);
}

Test(backward_ledger, a_model_without_gradients_has_no_backward_half) {
    hir_module *m =
        hir_parse(arena, &diags, "test.hir", HEAD "  %h1 = add %e, %y1 : f32[T, 16]\n" TAIL("%h1"));
    hir_ledger l;
    hir_back_ledger back;
    hir_ledger_find(m, arena, &l);
    hir_back_ledger_find(m, &l, arena, &back);
    cr_expect_eq(back.back.program.n, 0);
    cr_expect_eq(back.total.read + back.total.written, 0);
}

/* Behind the output of a sublayer its gradient is the sublayer's, also where the two share a value:
 * that of tanh reads the output itself. */
Test(backward_ledger, the_inside_of_a_sublayer_is_not_charged) {
    static const char *const inside[][2] = {
        {"an activation", HEAD "  %a = tanh %y1 : f32[T, 16]\n"
                               "  %h1 = add %e, %a : f32[T, 16]\n" TAIL("%h1")},
        {"a gate of its own", HEAD "  %z = linear %x1, @gate, _ : f32[T, 16]\n"
                                   "  %s = silu %z : f32[T, 16]\n"
                                   "  %a = mul %y1, %s : f32[T, 16]\n"
                                   "  %h1 = add %e, %a : f32[T, 16]\n" TAIL("%h1")},
    };
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        const step s = step_of(inside[i][1]);
        expect_standard(&s, inside[i][0]);
    }
}

/* A highway: h = e + c (y - e). What multiplies dh with c is the mechanism's; what goes on through
 * the sigmoid that made c is not. */
Test(backward_ledger, gates_are_of_the_mechanism_and_what_makes_them_is_not) {
    const step s = step_of(HEAD "  %z = linear %x1, @gate, _ : f32[T, 16]\n"
                                "  %c = sigmoid %z : f32[T, 16]\n"
                                "  %d = sub %y1, %e : f32[T, 16]\n"
                                "  %p = mul %c, %d : f32[T, 16]\n"
                                "  %h1 = add %e, %p : f32[T, 16]\n" TAIL("%h1"));
    const hir_backward *b = &s.back.back;
    hir_id gate = HIR_NONE;
    for (hir_id v = 0; v < s.m->values.n; v++) {
        const hir_id op = hir_value_at(s.m, v)->op;
        if (op != HIR_NONE && hir_op_at(s.m, op)->code == HIR_SIGMOID_OP) gate = v;
    }
    cr_assert_neq(gate, HIR_NONE);
    uint32_t mine = 0, others = 0;
    for (size_t k = 0; k < b->program.n; k++) {
        const hir_op *o = hir_op_at(s.m, b->program.at[k]);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE && o->args[i].index == gate)
                *(hir_backward_has(b, o) ? &mine : &others) += 1;
    }
    cr_expect_eq(mine, 1, "%u", mine);
    cr_expect_gt(others, 0);
    cr_expect_eq(s.forward.sublayers, 2);
}

/* Where two contractions read one input, the sum of what they give back is inside the sublayer. */
Test(backward_ledger, parts_of_an_inputs_gradient_are_the_sublayers) {
    const step s = step_of(HEAD "  %z = linear %x1, @gate, _ : f32[T, 16]\n"
                                "  %a = mul %y1, %z : f32[T, 16]\n"
                                "  %h1 = add %e, %a : f32[T, 16]\n" TAIL("%h1"));
    expect_standard(&s, "two contractions");
}
