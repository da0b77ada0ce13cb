/* fuse: what goes into which kernel, and what is stored. */
#include <criterion/criterion.h>

#include "tests/unit/passes/pass_models.h"

/* x, y: f32[T, 32]; v: f32[32]; weights a, b, c: f32[32, 32], wide: f32[48, 32], g: f32[32]. */
static const char *function(hd_arena *a, const char *body) {
    return hd_printf(a,
                     "hir 1 graph @f\n\nweight @a : f32[32, 32]\nweight @b : f32[32, 32]\n"
                     "weight @c : f32[32, 32]\nweight @wide : f32[48, 32]\nweight @g : f32[32]\n"
                     "weight @taps : f32[32, 4]\nstate $tail : window f32[3, 32]\n\n"
                     "func(%%x: f32[T, 32], %%y: f32[T, 32], %%v: f32[32]) {\n%s}\n",
                     body);
}

static bench fused(const char *body) {
    static const hir_pass_id passes[] = {HIR_PASS_FUSE};
    hd_arena *a = hd_arena_new();
    bench b = new_bench(function(a, body));
    cr_assert(b.m);
    cr_assert(run_list(&b, passes, 1, true, NULL), "%s", errors_of(&b));
    hd_arena_free(a);
    return b;
}

/* The kernels in order, each as its kind with the ops of its body: "row(neg mul) contract(linear)".
 */
static const char *kernels_of(bench *b) {
    hd_text t;
    hd_text_init(&t, b->arena);
    hd_text_add(&t, "");
    HIR_EACH(b->m, k, b->m->first) {
        const hir_op *o = hir_op_at(b->m, k);
        if (o->code == HIR_OUTPUT_OP) continue;
        hd_text_f(&t, "%s%s(", t.n ? " " : "", hir_info(o->code)->name + strlen("kernel."));
        HIR_EACH(b->m, op, o->body_first) {
            hir_opcode code = hir_op_at(b->m, op)->code;
            if (code != HIR_YIELD_OP)
                hd_text_f(&t, "%s%s", op == o->body_first ? "" : " ", hir_info(code)->name);
        }
        hd_text_f(&t, ")%u", o->n_results);
    }
    return t.at;
}

static void expect_kernels(const char *body, const char *expected) {
    bench b = fused(body);
    cr_expect_str_eq(kernels_of(&b), expected, "%s\n%s", kernels_of(&b), text_of(&b));
    hd_arena_free(b.arena);
}

/* ---- contractions ---------------------------------------------------------------------------- */
Test(fuse, linears_of_one_x_share_a_kernel) {
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = linear %x, @wide, _ : f32[T, 48]\n"
                   "  %2 = linear %y, @b, _ : f32[T, 32]\n"
                   "  output %0 {name = \"o\"}\n"
                   "  output %1 {name = \"p\"}\n"
                   "  output %2 {name = \"q\"}\n",
                   "contract(linear linear)2 contract(linear)1");
}

Test(fuse, views_of_one_value_are_one_x) {
    bench b = fused("  %0 = reshape %x {shape = [T, 4, 8]} : f32[T, 4, 8]\n"
                    "  %1 = neg %0 : f32[T, 4, 8]\n"
                    "  %2 = reshape %1 {shape = [T, 32]} : f32[T, 32]\n"
                    "  %3 = linear %2, @a, _ : f32[T, 32]\n"
                    "  %4 = reshape %1 {shape = [T, 32]} : f32[T, 32]\n"
                    "  %5 = linear %4, @b, _ : f32[T, 32]\n"
                    "  %6 = mul %3, %5 : f32[T, 32]\n"
                    "  output %6 {name = \"o\"}\n");
    cr_expect_str_eq(kernels_of(&b), "contract(reshape neg reshape linear linear mul)1", "%s",
                     kernels_of(&b));
    hd_arena_free(b.arena);
}

Test(fuse, gated_mlp_with_bias_and_residual) {
    expect_kernels("  %0 = linear %x, @a, @g : f32[T, 32]\n"
                   "  %1 = silu %0 : f32[T, 32]\n"
                   "  %2 = linear %x, @b, _ : f32[T, 32]\n"
                   "  %3 = mul %1, %2 : f32[T, 32]\n"
                   "  %4 = linear %3, @c, _ : f32[T, 32]\n"
                   "  %5 = mul %4, @g : f32[T, 32]\n"
                   "  %6 = add %x, %5 : f32[T, 32]\n"
                   "  output %6 {name = \"o\"}\n",
                   "contract(linear linear silu mul)1 contract(linear mul add)1");
}

Test(fuse, epilogue_reads_columns_and_numbers) {
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = add %0, %v : f32[T, 32]\n"
                   "  %2 = const {shape = [], value = 3} : f32[]\n"
                   "  %3 = mul %1, %2 : f32[T, 32]\n"
                   "  output %3 {name = \"o\"}\n",
                   "contract(linear add const mul)1");
}

Test(fuse, no_epilogue_with_a_number_per_row) {
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = reduce_sum %y {axis = 1} : f32[T]\n"
                   "  %2 = reshape %1 {shape = [T, 1]} : f32[T, 1]\n"
                   "  %3 = mul %0, %2 : f32[T, 32]\n"
                   "  output %3 {name = \"o\"}\n",
                   "contract(linear)1 row(reduce_sum reshape mul)1");
}

Test(fuse, epilogue_operand_made_by_a_row_program_is_stored_in_its_shape) {
    bench b = fused("  %0 = reshape %y {shape = [T, 4, 8]} : f32[T, 4, 8]\n"
                    "  %1 = softmax %0 {axis = 2} : f32[T, 4, 8]\n"
                    "  %2 = reshape %1 {shape = [T, 32]} : f32[T, 32]\n"
                    "  %3 = linear %x, @a, _ : f32[T, 32]\n"
                    "  %4 = mul %3, %2 : f32[T, 32]\n"
                    "  output %4 {name = \"o\"}\n");
    cr_expect_str_eq(kernels_of(&b), "row(reshape softmax reshape)1 contract(linear mul)1", "%s",
                     kernels_of(&b));
    hd_arena_free(b.arena);
}

/* The second sum waits for both contractions: it is the epilogue of the later one. */
Test(fuse, sum_of_two_contractions) {
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = linear %y, @b, _ : f32[T, 32]\n"
                   "  %2 = add %0, %1 : f32[T, 32]\n"
                   "  %3 = add %2, %x : f32[T, 32]\n"
                   "  output %3 {name = \"o\"}\n",
                   "contract(linear)1 contract(linear add add)1");
}

/* An epilogue whose result only one row program reads, and whose operand it reads anyway. */
Test(fuse, epilogue_op_moves_to_its_users) {
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = tanh %0 : f32[T, 32]\n"
                   "  %2 = rmsnorm %0, _ {eps = 1e-06} : f32[T, 32]\n"
                   "  %3 = mul %1, %2 : f32[T, 32]\n"
                   "  output %3 {name = \"o\"}\n",
                   "contract(linear)1 row(tanh rmsnorm mul)1");
}

/* ---- row programs ---------------------------------------------------------------------------- */
Test(fuse, everything_between_contractions_is_one_row_program) {
    expect_kernels("  %0 = add %x, %y : f32[T, 32]\n"
                   "  %1 = rmsnorm %0, @g {eps = 1e-06} : f32[T, 32]\n"
                   "  %2 = softmax %y {axis = 1} : f32[T, 32]\n"
                   "  %3 = linear %1, @a, _ : f32[T, 32]\n"
                   "  %4 = add %3, %2 : f32[T, 32]\n"
                   "  output %4 {name = \"o\"}\n",
                   "row(add rmsnorm softmax)2 contract(linear add)1");
}

/* What only a later row program reads is made there: nothing is stored in between. */
Test(fuse, late_rows_sink) {
    expect_kernels("  %0 = mul %y, @g : f32[T, 32]\n"
                   "  %1 = tanh %0 : f32[T, 32]\n"
                   "  %2 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %3 = softmax %2 {axis = 1} : f32[T, 32]\n"
                   "  %4 = mul %3, %1 : f32[T, 32]\n"
                   "  output %4 {name = \"o\"}\n",
                   "contract(linear)1 row(mul tanh softmax mul)1");
}

/* A small result of large operands stays where the operands are read. */
Test(fuse, reductions_stay_early) {
    expect_kernels("  %0 = rmsnorm %x, _ {eps = 1e-06} : f32[T, 32]\n"
                   "  %1 = mul %x, %y : f32[T, 32]\n"
                   "  %2 = reduce_sum %1 {axis = 1} : f32[T]\n"
                   "  %3 = reshape %2 {shape = [T, 1]} : f32[T, 1]\n"
                   "  %4 = linear %0, @a, _ : f32[T, 32]\n"
                   "  %5 = softmax %4 {axis = 1} : f32[T, 32]\n"
                   "  %6 = mul %5, %3 : f32[T, 32]\n"
                   "  output %6 {name = \"o\"}\n",
                   "row(rmsnorm mul reduce_sum)2 contract(linear)1 row(softmax reshape mul)1");
}

Test(fuse, an_output_does_not_sink) {
    expect_kernels("  %0 = tanh %x : f32[T, 32]\n"
                   "  %1 = linear %0, @a, _ : f32[T, 32]\n"
                   "  %2 = softmax %1 {axis = 1} : f32[T, 32]\n"
                   "  output %0 {name = \"o\"}\n"
                   "  output %2 {name = \"p\"}\n",
                   "row(tanh)1 contract(linear)1 row(softmax)1");
}

/* A linear that reads an early value late does not make its result early. */
Test(fuse, late_linear_of_an_early_value) {
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = softmax %0 {axis = 1} : f32[T, 32]\n"
                   "  %2 = linear %1, @b, _ : f32[T, 32]\n"
                   "  %3 = softmax %2 {axis = 1} : f32[T, 32]\n"
                   "  %4 = linear %x, @c, _ : f32[T, 32]\n"
                   "  %5 = softmax %4 {axis = 1} : f32[T, 32]\n"
                   "  %6 = add %3, %5 : f32[T, 32]\n"
                   "  output %6 {name = \"o\"}\n",
                   "contract(linear)1 contract(softmax linear)1 contract(linear)1 "
                   "row(softmax softmax add)1");
}

Test(fuse, what_nobody_reads_goes) {
    expect_kernels("  %0 = tanh %x : f32[T, 32]\n"
                   "  %1 = linear %0, @a, _ : f32[T, 32]\n"
                   "  %2 = neg %y : f32[T, 32]\n"
                   "  output %2 {name = \"o\"}\n",
                   "row(neg)1");
}

/* ---- values without T ------------------------------------------------------------------------ */
Test(fuse, cheap_values_without_tokens_are_made_where_they_are_used) {
    expect_kernels("  %0 = const {shape = [], value = 1} : f32[]\n"
                   "  %1 = add @g, %0 : f32[32]\n"
                   "  %2 = rmsnorm %x, %1 {eps = 1e-06} : f32[T, 32]\n"
                   "  %3 = softmax %v {axis = 0} : f32[32]\n"
                   "  %4 = mul %2, %3 : f32[T, 32]\n"
                   "  output %4 {name = \"o\"}\n",
                   "row(const add rmsnorm softmax mul)1");
}

Test(fuse, costly_values_without_tokens_run_once) {
    expect_kernels("  %0 = mul @a, @b : f32[32, 32]\n"
                   "  %1 = reduce_sum %0 {axis = 1} : f32[32]\n"
                   "  %2 = mul %x, %1 : f32[T, 32]\n"
                   "  output %2 {name = \"o\"}\n",
                   "row(mul reduce_sum)1 row(mul)1");
}

Test(fuse, an_output_without_tokens) {
    expect_kernels("  %0 = const {shape = [3], value = 1} : f32[3]\n"
                   "  %1 = neg %v : f32[32]\n"
                   "  %2 = reshape @g {shape = [4, 8]} : f32[4, 8]\n"
                   "  output %0 {name = \"o\"}\n"
                   "  output %1 {name = \"p\"}\n"
                   "  output %2 {name = \"q\"}\n",
                   "row(const neg reshape)3");
}

/* ---- state ----------------------------------------------------------------------------------- */
Test(fuse, a_layer_is_six_kernels) {
    static const hir_pass_id passes[] = {HIR_PASS_CANONICALISE, HIR_PASS_CSE, HIR_PASS_DCE,
                                         HIR_PASS_SPLIT_SMALL, HIR_PASS_FUSE};
    hd_arena *a = hd_arena_new();
    decoder d = small_decoder;
    d.layers = 1;
    bench b = new_bench(decoder_text(a, &d));
    cr_assert(run_list(&b, passes, 5, true, NULL), "%s", errors_of(&b));
    cr_expect_str_eq(
        kernels_of(&b),
        "row(gather rmsnorm rope_table)3 "
        "contract(linear linear linear reshape rmsnorm rope reshape rmsnorm rope cache_append "
        "reshape cache_append)3 "
        "sequence(attention)1 contract(reshape linear add)1 "
        "contract(rmsnorm linear linear silu mul)1 contract(linear add)1 "
        "contract(rmsnorm linear)1",
        "%s", kernels_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* ---- sequences ------------------------------------------------------------------------------- */
Test(fuse, elementwise_ops_follow_a_convolution) {
    expect_kernels("  %0 = short_conv %x, @taps, _, $tail : f32[T, 32]\n"
                   "  %1 = silu %0 : f32[T, 32]\n"
                   "  %2 = mul %y, %1 : f32[T, 32]\n"
                   "  %3 = linear %2, @a, _ : f32[T, 32]\n"
                   "  output %3 {name = \"o\"}\n",
                   "sequence(short_conv silu mul)1 contract(linear)1");
    expect_kernels("  %0 = linear %x, @a, _ : f32[T, 32]\n"
                   "  %1 = linear %x, @b, _ : f32[T, 32]\n"
                   "  %2 = short_conv %0, @taps, _, $tail : f32[T, 32]\n"
                   "  %3 = mul %1, %2 : f32[T, 32]\n"
                   "  output %2 {name = \"o\"}\n"
                   "  output %3 {name = \"p\"}\n",
                   "contract(linear linear)2 sequence(short_conv mul)2");
}

/* What has another shape in between, or is made later, stays outside. */
Test(fuse, what_cannot_follow_a_convolution) {
    expect_kernels("  %0 = short_conv %x, @taps, _, $tail : f32[T, 32]\n"
                   "  %1 = reshape %0 {shape = [T, 2, 16]} : f32[T, 2, 16]\n"
                   "  %2 = silu %1 : f32[T, 2, 16]\n"
                   "  output %2 {name = \"o\"}\n",
                   "sequence(short_conv)1 row(reshape silu)1");
    expect_kernels("  %0 = short_conv %x, @taps, _, $tail : f32[T, 32]\n"
                   "  %1 = reduce_sum %0 {axis = 1} : f32[T]\n"
                   "  %2 = reshape %1 {shape = [T, 1]} : f32[T, 1]\n"
                   "  %3 = mul %0, %2 : f32[T, 32]\n"
                   "  output %3 {name = \"o\"}\n",
                   "sequence(short_conv)1 row(reduce_sum reshape mul)1");
}

Test(fuse, traces_are_lowered_before) {
    static const hir_pass_id fuse = HIR_PASS_FUSE;
    hd_arena *a = hd_arena_new();
    bench b = new_bench(function(a, "  trace %x {name = \"t\"}\n  output %x {name = \"o\"}\n"));
    cr_assert(b.m);
    cr_expect_not(run_list(&b, &fuse, 1, false, NULL));
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_UNSUPPORTED);
    cr_expect(strstr(errors_of(&b), "lower-traces before"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* State that nobody reads in this call is written all the same. */
Test(fuse, effects_stay) {
    hd_arena *a = hd_arena_new();
    static const hir_pass_id fuse = HIR_PASS_FUSE;
    bench b = new_bench("hir 1 graph @f\n\nstate $k : f32[C, 1, 8]\n\nfunc(%x: f32[T, 1, 8]) {\n"
                        "  %0 = cache_append %x, $k : f32[C, 1, 8]\n"
                        "  output %x {name = \"o\"}\n}\n");
    cr_assert(run_list(&b, &fuse, 1, true, NULL), "%s", errors_of(&b));
    cr_expect_str_eq(kernels_of(&b), "row(cache_append)1");
    hd_arena_free(b.arena);
    hd_arena_free(a);
}
