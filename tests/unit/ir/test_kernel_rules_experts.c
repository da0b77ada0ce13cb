/* hir_verify_kernels: contractions of experts written by hand, one rule broken at a time. */
#include <criterion/criterion.h>

#include "tests/unit/passes/pass_models.h"

#define EXPERTS                                                                                    \
    "{name = \"c\", rows = \"all\", split_decode = \"cols\", split_prefill = \"channels\"}"
#define OUT "  output %%o {name = \"o\"}\n"

static const char head[] =
    "hir 1 kernel @f\n\nweight @w : f32[4, 16, 16] panel\nweight @v : f32[4, 8, 16] panel\n"
    "weight @rows : f32[4, 16, 16]\nweight @m : f32[16, 16] panel\nweight @b : f32[4, 16]\n"
    "weight @g : f32[16]\n\n"
    "func(%x: f32[T, 16], %y: f32[T, 2, 16], %i: i32[T, 2], %j: i32[T, 2]) {\n";

/* A kernel of this body and result; NULL: accepted, else what the message must hold. */
static void expect(const char *attrs, const char *result, const char *body, const char *message) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(hd_printf(a, "%s  %%o = kernel.contract %s : %s {\n%s  }\n" OUT "}\n", head,
                                  attrs, result, body));
    cr_assert(b.m, "%s\n%s", body, errors_of(&b));
    const bool ok = hir_verify_kernels(b.m, &b.diags);
    cr_expect_eq(ok, message == NULL, "%s\n%s", body, errors_of(&b));
    if (message) cr_expect(strstr(errors_of(&b), message), "%s\n%s", body, errors_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

#define TILE "f32[T, 2, 16]"
#define P(n, x, w, ids, bias)                                                                      \
    "    %" n " = expert_linear " x ", " w ", " ids ", " bias " : " TILE "\n"

Test(kernel_rules_experts, accepted) {
    expect(EXPERTS, TILE, P("1", "%x", "@w", "%i", "_") "    yield %1\n", NULL);
    expect(EXPERTS, TILE, P("1", "%y", "@w", "%i", "@b") "    yield %1\n", NULL);
    expect(EXPERTS, TILE,
           P("1", "%x", "@w", "%i", "_")
               P("2", "%x", "@w", "%i",
                 "@b") "    %3 = silu %1 : " TILE "\n    %4 = mul %3, %2 : " TILE "\n"
                       "    %5 = const {value = 2, shape = []} : f32[]\n    %6 = mul %4, %5 : " TILE
                       "\n"
                       "    %7 = mul %6, @g : " TILE "\n    %8 = add %7, %y : " TILE
                       "\n    yield %8\n",
           NULL);
    expect(EXPERTS, TILE,
           "    %1 = reshape %y {shape = [T, 2, 16]} : " TILE
           "\n" P("2", "%1", "@w", "%i", "_") "    yield %2\n",
           NULL);
}

Test(kernel_rules_experts, one_x_choice_and_size) {
    expect(EXPERTS, TILE,
           P("1", "%x", "@w", "%i", "_") P("2", "%y", "@w", "%i", "_") "    yield %2\n",
           "one x, one selection and one size");
    expect(EXPERTS, TILE,
           P("1", "%x", "@w", "%i", "_") P("2", "%x", "@w", "%j", "_") "    yield %2\n",
           "one x, one selection and one size");
    expect(EXPERTS, TILE,
           P("1", "%x", "@w", "%i",
             "_") "    %2 = expert_linear %x, @v, %i, _ : f32[T, 2, 8]\n    yield %1\n",
           "one x, one selection and one size");
}

Test(kernel_rules_experts, weights) {
    expect(EXPERTS, TILE, P("1", "%x", "@rows", "%i", "_") "    yield %1\n",
           "the matrix is not stored in panels");
}

Test(kernel_rules_experts, what_may_stand_there) {
    expect(EXPERTS, "f32[T, 16]",
           P("1", "%x", "@w", "%i",
             "_") "    %2 = reduce_sum %1 {axis = 1} : f32[T, 16]\n    yield %2\n",
           "it cannot stand in a contraction of experts");
    expect(
        EXPERTS, TILE,
        "    %1 = linear %x, @m, _ : f32[T, 16]\n" P("2", "%x", "@w", "%i", "_") "    yield %2\n",
        "it cannot stand in a contraction of experts");
    expect(EXPERTS, TILE,
           "    %1 = topk %x {k = 2} : i32[T, 2]\n" P("2", "%x", "@w", "%1", "_") "    yield %2\n",
           "it cannot stand in a contraction of experts");
    expect(EXPERTS, TILE,
           "    %1 = neg %y : " TILE "\n" P("2", "%x", "@w", "%i", "_") "    yield %2\n",
           "the order in a contraction of experts is");
}

Test(kernel_rules_experts, epilogues) {
    expect(EXPERTS, TILE,
           "    %1 = reshape %x {shape = [T, 1, 16]} : f32[T, 1, 16]\n" P(
               "2", "%x", "@w", "%i", "_") "    %3 = add %2, %1 : " TILE "\n    yield %3\n",
           "an operand is not a [T, k, N], [N] or scalar");
    expect(EXPERTS, TILE,
           P("1", "%x", "@w", "%i", "_") "    %2 = const {value = 1, shape = [16]} : f32[16]\n"
                                         "    %3 = add %1, %2 : " TILE "\n    yield %3\n",
           "a constant in an epilogue is not a scalar");
}

Test(kernel_rules_experts, splits) {
    expect("{name = \"c\", rows = \"all\", split_decode = \"keys\", split_prefill = \"channels\"}",
           TILE, P("1", "%x", "@w", "%i", "_") "    yield %1\n", "one of: none, cols");
    expect("{name = \"c\", rows = \"all\", split_decode = \"cols\", split_prefill = \"rows\"}",
           TILE, P("1", "%x", "@w", "%i", "_") "    yield %1\n", "one of: none, channels");
}
