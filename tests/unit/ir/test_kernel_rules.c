/* hir_verify_kernels: kernels written by hand, one rule broken at a time. */
#include <criterion/criterion.h>

#include "tests/unit/passes/pass_models.h"

static const char head[] = "weight @e : f32[40, 16]\nweight @w : f32[16, 16] panel\n"
                           "weight @w2 : f32[16, 16] panel\nweight @rows : f32[16, 16]\n"
                           "weight @g : f32[16]\nweight @two : f32[2]\nweight @half : bf16[2]\n\n"
                           "weight @taps : f32[16, 4]\n\n"
                           "state $k : f32[C, 2, 8]\nstate $tail : window f32[3, 16]\n\n";

#define ROW "{name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\"}"
#define ROW_LAST                                                                                   \
    "{name = \"r\", rows = \"last\", split_decode = \"none\", split_prefill = \"rows\"}"
#define ONCE     "{name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = \"none\"}"
#define CONTRACT "{name = \"c\", rows = \"all\", split_decode = \"cols\", split_prefill = \"cols\"}"
#define SEQUENCE                                                                                   \
    "{name = \"s\", rows = \"all\", split_decode = \"keys\", split_prefill = \"cyclic\", grain = " \
    "16}"

/* NULL: accepted; else what the message must hold. */
static void expect_in(const char *start, const char *body, const char *message) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(hd_printf(a, "hir 1 kernel @f\n\n%s%s%s}\n", head, start, body));
    cr_assert(b.m, "%s", body);
    bool ok = hir_verify_kernels(b.m, &b.diags);
    if (!message) {
        cr_expect(ok, "%s\n%s", body, errors_of(&b));
    } else {
        cr_expect_not(ok, "%s", body);
        cr_expect(strstr(errors_of(&b), message), "%s\n%s", body, errors_of(&b));
    }
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

static void expect(const char *body, const char *message) {
    expect_in("func(%x: f32[T, 16], %y: f32[T, 16]) {\n", body, message);
}

static void expect_model(const char *body, const char *message) {
    expect_in("func(%t: i32[T]) {\n", body, message);
}

#define OUT "  output %o {name = \"o\"}\n"

/* ---- top level ------------------------------------------------------------------------------- */
Test(kernel_rules, ops_stand_in_kernels) {
    expect("  %o = neg %x : f32[T, 16]\n" OUT, "outside of a kernel");
}

Test(kernel_rules, stage) {
    bench b = new_bench("hir 1 graph @f\n\nfunc(%x: f32[T, 8]) {\n  output %x {name = \"o\"}\n}\n");
    cr_expect_not(hir_verify_kernels(b.m, &b.diags));
    hd_arena_free(b.arena);
}

Test(kernel_rules, an_output_is_a_result) {
    expect("  output %x {name = \"o\"}\n", "result of a kernel");
}

/* ---- exchanges ------------------------------------------------------------------------------- */
#define COMM "{name = \"e\", rows = \"all\", split_decode = \"none\", split_prefill = \"none\"}"

static void expect_collective(const char *body, const char *message) {
    hd_arena *a = hd_arena_new();
    bench b = new_bench(hd_printf(a,
                                  "hir 1 kernel @f\n\nranks 2, rows divided from 2 tokens\n\n"
                                  "func(%%x: f32[T, 16]) {\n  %%o = kernel.comm " COMM
                                  " : f32[T, 16] {\n%s  }\n"
                                  "  output %%o {name = \"o\"}\n}\n",
                                  body));
    cr_assert(b.m, "%s", errors_of(&b));
    const bool ok = hir_verify_kernels(b.m, &b.diags);
    cr_expect_eq(ok, !message, "%s\n%s", body, errors_of(&b));
    if (message) cr_expect(strstr(errors_of(&b), message), "%s\n%s", body, errors_of(&b));
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

Test(kernel_rules, stages_send_all_rows) {
    expect_model("  %r = kernel.comm {name = \"e\", rows = \"last\", split_decode = \"none\", "
                 "split_prefill = \"none\"} : f32[T, 16] {\n"
                 "    %a = comm.recv {shape = [T, 16], from = 1} : f32[T, 16]\n    yield %a\n  }\n"
                 "  %o = kernel.row " ROW_LAST " : f32[T, 16] {\n    %b = neg %r : f32[T, 16]\n"
                 "    yield %b\n  }\n" OUT,
                 "stages send each other all rows");
}

Test(kernel_rules, collectives_have_one_op) {
    expect_collective("    %a = comm.all_reduce %x : f32[T, 16]\n    yield %a\n", NULL);
    expect_collective("    %a = comm.all_reduce %x : f32[T, 16]\n"
                      "    %b = comm.all_reduce %a : f32[T, 16]\n    yield %b\n",
                      "a collective has one op");
    expect_collective("    %a = neg %x : f32[T, 16]\n    yield %a\n",
                      "does not cross between ranks");
}

/* ---- contractions ---------------------------------------------------------------------------- */
Test(kernel_rules, contraction_accepted) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 2, 8] {\n"
           "    %a = linear %x, @w, @g : f32[T, 16]\n"
           "    %b = linear %x, @w2, _ : f32[T, 16]\n"
           "    %2 = const {shape = [], value = 2} : f32[]\n"
           "    %3 = mul %a, %2 : f32[T, 16]\n"
           "    %4 = silu %b : f32[T, 16]\n"
           "    %5 = mul %3, %4 : f32[T, 16]\n"
           "    %6 = add %5, %y : f32[T, 16]\n"
           "    %7 = mul %6, @g : f32[T, 16]\n"
           "    %8 = reshape %7 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
           "    yield %8\n  }\n" OUT,
           NULL);
}

Test(kernel_rules, contraction_has_one_x) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = linear %y, @w2, _ : f32[T, 16]\n"
           "    %c = add %a, %b : f32[T, 16]\n"
           "    yield %c\n  }\n" OUT,
           "one x");
}

Test(kernel_rules, contraction_has_a_linear) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = neg %x : f32[T, 16]\n    yield %a\n  }\n" OUT,
           "has a linear op");
}

Test(kernel_rules, contraction_order) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = neg %a : f32[T, 16]\n"
           "    %c = linear %x, @w2, _ : f32[T, 16]\n"
           "    %d = add %b, %c : f32[T, 16]\n"
           "    yield %d\n  }\n" OUT,
           "the order in a contraction");
}

Test(kernel_rules, contraction_prologue) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = linear %a, @w2, _ : f32[T, 16]\n"
           "    yield %b\n  }\n" OUT,
           "the linear ops of a kernel have one x");
}

/* The prologue computes x only, and several threads run it. */
Test(kernel_rules, contraction_prologue_is_read_by_linear_ops) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = neg %x : f32[T, 16]\n"
           "    %b = linear %a, @w, _ : f32[T, 16]\n"
           "    %c = mul %b, %a : f32[T, 16]\n"
           "    yield %c\n  }\n" OUT,
           "used after the linear ops");
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = neg %x : f32[T, 16]\n"
           "    %b = linear %a, @w, _ : f32[T, 16]\n"
           "    yield %a\n  }\n" OUT,
           "used after the linear ops");
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = rope_table {length = 16, theta = 10000} : f32[T, 16]\n"
           "    %b = linear %a, @w, _ : f32[T, 16]\n"
           "    yield %b\n  }\n" OUT,
           "cannot stand in a contraction");
}

/* A per-head epilogue reads one head at a time, and no linear op has both kinds of epilogue. */
Test(kernel_rules, contraction_riders) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 4] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = reshape %a {shape = [T, 4, 4]} : f32[T, 4, 4]\n"
           "    %c = reduce_sum %b {axis = 1} : f32[T, 4]\n"
           "    yield %c\n  }\n" OUT,
           "it goes across heads");
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 4] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = reshape %a {shape = [T, 4, 4]} : f32[T, 4, 4]\n"
           "    %c = reduce_sum %b {axis = 2} : f32[T, 4]\n"
           "    %d = neg %a : f32[T, 16]\n"
           "    %e = reduce_sum %d {axis = 1} : f32[T]\n"
           "    yield %c\n  }\n" OUT,
           "has a per-head epilogue");
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 4] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = linear %x, @w2, _ : f32[T, 16]\n"
           "    %c = reshape %a {shape = [T, 4, 4]} : f32[T, 4, 4]\n"
           "    %d = reshape %b {shape = [T, 4, 4]} : f32[T, 4, 4]\n"
           "    %e = mul %c, %d : f32[T, 4, 4]\n"
           "    %f = reduce_sum %e {axis = 2} : f32[T, 4]\n"
           "    yield %f\n  }\n" OUT,
           "comes from another linear op");
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 4] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = reshape %a {shape = [T, 4, 4]} : f32[T, 4, 4]\n"
           "    %c = reduce_sum %b {axis = 2} : f32[T, 4]\n"
           "    %d = reshape %a {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
           "    %e = reduce_max %d {axis = 2} : f32[T, 2]\n"
           "    yield %c\n  }\n" OUT,
           "other heads");
}

Test(kernel_rules, contraction_holds_no_norm) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = linear %x, @w, _ : f32[T, 16]\n"
           "    %b = rmsnorm %a, @g {eps = 1e-06} : f32[T, 16]\n"
           "    yield %b\n  }\n" OUT,
           "cannot stand in a contraction");
}

Test(kernel_rules, contraction_panels) {
    expect("  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %a = linear %x, @rows, _ : f32[T, 16]\n    yield %a\n  }\n" OUT,
           "not stored in panels");
}

Test(kernel_rules, epilogue_operands) {
    expect("  %r = kernel.row " ROW " : f32[T, 1] {\n"
           "    %a = reduce_sum %y {axis = 1} : f32[T]\n"
           "    %b = reshape %a {shape = [T, 1]} : f32[T, 1]\n    yield %b\n  }\n"
           "  %o = kernel.contract " CONTRACT " : f32[T, 16] {\n"
           "    %c = linear %x, @w, _ : f32[T, 16]\n"
           "    %d = mul %c, %r : f32[T, 16]\n    yield %d\n  }\n" OUT,
           "not a [T, N], [N] or scalar");
}

/* ---- sequences ------------------------------------------------------------------------------- */
#define APPEND                                                                                     \
    "  %q, %c = kernel.row " ROW " : f32[T, 16], f32[C, 2, 8] {\n"                                 \
    "    %q0 = neg %x : f32[T, 16]\n"                                                              \
    "    %k0 = reshape %y {shape = [T, 2, 8]} : f32[T, 2, 8]\n"                                    \
    "    %k1 = cache_append %k0, $k : f32[C, 2, 8]\n"                                              \
    "    yield %q0, %k1\n  }\n"

Test(kernel_rules, sequence_accepted) {
    expect(APPEND "  %o = kernel.sequence " SEQUENCE " : f32[T, 16] {\n"
                  "    %a = reshape %q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                  "    %b = attention %a, %c, %c {scale = 1} : f32[T, 2, 8]\n"
                  "    %d = reshape %b {shape = [T, 16]} : f32[T, 16]\n"
                  "    yield %d\n  }\n" OUT,
           NULL);
}

#define ATTEND(options)                                                                            \
    APPEND "  %o = kernel.sequence " SEQUENCE " : f32[T, 2, 8] {\n"                                \
           "    %a = reshape %q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"                              \
           "    %r = reshape %y {shape = [T, 2, 8]} : f32[T, 2, 8]\n"                              \
           "    %b = attention %a, %c, %c, " options " {scale = 1, window = 3} : f32[T, 2, 8]\n"   \
           "    yield %b\n  }\n" OUT

Test(kernel_rules, options_of_attention_are_in_memory) {
    expect(ATTEND("@two, %r"), NULL);
    expect(ATTEND("_, %a"), NULL);
    expect(ATTEND("@half, %r"), "reads elements of a weight that is not stored as f32 rows");
}

Test(kernel_rules, sequence_holds_attention_only) {
    expect(APPEND "  %o = kernel.sequence " SEQUENCE " : f32[T, 2, 8] {\n"
                  "    %a = reshape %q {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                  "    %b = attention %a, %c, %c {scale = 1} : f32[T, 2, 8]\n"
                  "    %d = neg %b : f32[T, 2, 8]\n"
                  "    yield %d\n  }\n" OUT,
           "cannot stand in a sequence kernel");
}

#define CONVOLVE(after)                                                                            \
    "  %o = kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"channels\", "          \
    "split_prefill = \"channels\"} : f32[T, 16] {\n"                                               \
    "    %a = short_conv %x, @taps, _, $tail : f32[T, 16]\n" after "  }\n" OUT

Test(kernel_rules, elementwise_ops_follow_a_convolution) {
    expect(CONVOLVE("    %b = silu %a : f32[T, 16]\n    yield %b\n"), NULL);
    expect(CONVOLVE("    %b = const {shape = [], value = 2} : f32[]\n"
                    "    %c = mul %a, %b : f32[T, 16]\n    %d = add %y, %c : f32[T, 16]\n"
                    "    %e = mul %d, @g : f32[T, 16]\n    yield %e\n"),
           NULL);
    expect(CONVOLVE("    %b = const {shape = [16], value = 2} : f32[16]\n"
                    "    %c = mul %a, %b : f32[T, 16]\n    yield %c\n"),
           "a constant in an epilogue is not a scalar");
    expect(CONVOLVE("    %b = reshape %a {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                    "    %c = reshape %b {shape = [T, 16]} : f32[T, 16]\n"
                    "    %d = neg %c : f32[T, 16]\n    yield %d\n"),
           "the order in a sequence kernel is");
    expect(CONVOLVE("    %b = reduce_sum %a {axis = 1} : f32[T]\n    yield %a\n"),
           "cannot stand in a sequence kernel");
}

/* ---- row programs ---------------------------------------------------------------------------- */
Test(kernel_rules, rows_hold_primitives) {
    expect("  %o = kernel.row " ROW " : f32[T, 16] {\n"
           "    %a = rmsnorm %x, @g {eps = 1e-06} : f32[T, 16]\n    yield %a\n  }\n" OUT,
           "the expand pass replaces it by its parts");
}

Test(kernel_rules, rows_read_f32_rows) {
    expect("  %o = kernel.row " ROW " : f32[T, 16, 16] {\n"
           "    %a = reshape %x {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
           "    %b = mul %a, @w : f32[T, 16, 16]\n    yield %b\n  }\n" OUT,
           "not stored as f32 rows");
}

Test(kernel_rules, gather_reads_panels_too) {
    expect_model("  %o = kernel.row " ROW_LAST " : f32[T, 16] {\n"
                 "    %a = gather @w, %t : f32[T, 16]\n    yield %a\n  }\n" OUT,
                 NULL);
}

Test(kernel_rules, tokens_or_not) {
    expect("  %o, %p = kernel.row " ROW " : f32[T, 16], f32[16] {\n"
           "    %a = neg %x : f32[T, 16]\n"
           "    %b = neg @g : f32[16]\n    yield %a, %b\n  }\n" OUT,
           "kernels of their own");
}

Test(kernel_rules, what_runs_once_has_one_thread) {
    expect("  %o = kernel.row " ROW " : f32[16] {\n"
           "    %b = neg @g : f32[16]\n    yield %b\n  }\n" OUT,
           "runs on one thread");
    expect("  %o = kernel.row " ONCE " : f32[16] {\n"
           "    %b = neg @g : f32[16]\n    yield %b\n  }\n" OUT,
           NULL);
}

Test(kernel_rules, yields_are_made_in_the_kernel) {
    expect("  %o = kernel.row " ROW " : f32[T, 16] {\n    yield %x\n  }\n" OUT,
           "not computed in the kernel");
}

/* ---- rows and threads ------------------------------------------------------------------------ */
Test(kernel_rules, splits) {
    expect(
        "  %o = kernel.row {name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = "
        "\"cols\"} : f32[T, 16] {\n    %a = neg %x : f32[T, 16]\n    yield %a\n  }\n" OUT,
        "cannot be split");
}

Test(kernel_rules, last_rows_are_for_models) {
    expect("  %o = kernel.row " ROW_LAST " : f32[T, 16] {\n"
           "    %a = neg %x : f32[T, 16]\n    yield %a\n  }\n" OUT,
           "only kernels of a model");
}

Test(kernel_rules, logits_are_last_rows) {
    expect_model("  %o = kernel.row " ROW " : f32[T, 16] {\n"
                 "    %a = gather @e, %t : f32[T, 16]\n    yield %a\n  }\n" OUT,
                 "the first output of a model");
}

Test(kernel_rules, last_rows_do_not_feed_all_rows) {
    expect_model("  %a = kernel.row " ROW_LAST " : f32[T, 16] {\n"
                 "    %0 = gather @e, %t : f32[T, 16]\n    yield %0\n  }\n"
                 "  %b = kernel.row " ROW " : f32[T, 16] {\n"
                 "    %1 = neg %a : f32[T, 16]\n    yield %1\n  }\n"
                 "  %o = kernel.row " ROW_LAST " : f32[T, 16] {\n"
                 "    %2 = neg %b : f32[T, 16]\n    yield %2\n  }\n" OUT,
                 "only exist for the last tokens");
}

Test(kernel_rules, state_is_written_for_all_rows) {
    expect_model("  %o, %c = kernel.row " ROW_LAST " : f32[T, 16], f32[C, 2, 8] {\n"
                 "    %0 = gather @e, %t : f32[T, 16]\n"
                 "    %1 = reshape %0 {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
                 "    %2 = cache_append %1, $k : f32[C, 2, 8]\n"
                 "    yield %0, %2\n  }\n" OUT,
                 "state is written for all rows");
}

/* ---- losses ---------------------------------------------------------------------------------- */
#define LOSS "{name = \"c\", rows = \"loss\", split_decode = \"cols\", split_prefill = \"cols\"}"
#define ROW_LOSS                                                                                   \
    "{name = \"r\", rows = \"loss\", split_decode = \"none\", split_prefill = \"rows\"}"
#define LOGITS                                                                                     \
    "  %x = kernel.row " ROW_LAST " : f32[T, 16] {\n"                                              \
    "    %0 = gather @e, %t : f32[T, 16]\n    yield %0\n  }\n"                                     \
    "  %o = kernel.row " ROW_LAST " : f32[T, 16] {\n"                                              \
    "    %1 = neg %x : f32[T, 16]\n    yield %1\n  }\n"
#define MERGE                                                                                      \
    "  %l = kernel.row " ROW_LOSS " : f32[T] {\n    %5 = slice %p {axis = 1, start = 0, length = " \
    "1} : f32[T, 1, 1]\n    %6 = reshape %5 {shape = [T]} : f32[T]\n    %7 = neg %6 : f32[T]\n"    \
    "    yield %7\n  }\n" OUT "  output %l {name = \"losses\"}\n"

static void expect_loss(const char *parts, const char *rest, const char *message) {
    hd_arena *a = hd_arena_new();
    expect_in("func(%t: i32[T], %targets: i32[T]) {\n" LOGITS, hd_printf(a, "%s%s", parts, rest),
              message);
    hd_arena_free(a);
}

static const char parts_kernel[] =
    "  %p = kernel.contract " LOSS " : f32[T, 4, 1] {\n    %2 = linear %x, @w, _ : f32[T, 16]\n"
    "    %3 = neg %2 : f32[T, 16]\n"
    "    %4 = cross_entropy.parts %3, %targets {length = 256} : f32[T, 4, 1]\n    yield %4\n  }\n";

Test(kernel_rules, a_loss_ends_an_epilogue) {
    expect_loss(parts_kernel, MERGE, NULL);
    expect_loss("  %p, %q = kernel.contract " LOSS " : f32[T, 4, 1], f32[T, 16] {\n"
                "    %2 = linear %x, @w, _ : f32[T, 16]\n"
                "    %4 = cross_entropy.parts %2, %targets {length = 256} : f32[T, 4, 1]\n"
                "    yield %4, %2\n  }\n",
                MERGE, "yields its result and nothing else");
    expect_loss("  %p = kernel.contract " LOSS " : f32[T, 4, 1] {\n"
                "    %2 = linear %x, @w, _ : f32[T, 16]\n    %3 = linear %x, @w2, _ : f32[T, 16]\n"
                "    %4 = cross_entropy.parts %2, %targets {length = 256} : f32[T, 4, 1]\n"
                "    yield %4\n  }\n",
                MERGE, "its kernel has one linear op");
    expect_loss("  %p = kernel.contract " LOSS " : f32[T, 4, 1] {\n"
                "    %2 = linear %x, @w, _ : f32[T, 16]\n"
                "    %4 = cross_entropy.parts %x, %targets {length = 256} : f32[T, 4, 1]\n"
                "    yield %4\n  }\n",
                MERGE, "the logits are not made in the kernel itself");
    expect_loss("  %p = kernel.row " ROW_LOSS " : f32[T, 4, 1] {\n    %2 = neg %x : f32[T, 16]\n"
                "    %4 = cross_entropy.parts %2, %targets {length = 256} : f32[T, 4, 1]\n"
                "    yield %4\n  }\n",
                MERGE, "it cannot stand in a row program");
}

Test(kernel_rules, rows_of_a_loss_are_for_losses) {
    const char *late = "  %z = kernel.row " ROW_LAST " : f32[T] {\n    %8 = slice %p {axis = 1, "
                       "start = 0, length = 1} : f32[T, 1, 1]\n    %9 = reshape %8 {shape = [T]} : "
                       "f32[T]\n    %10 = neg %9 : f32[T]\n    yield %10\n  }\n" MERGE;
    expect_loss(parts_kernel, late, "only exist in calls of NAME_loss");
    expect_loss("",
                "  %l = kernel.row " ROW_LAST " : f32[T] {\n    %2 = reduce_sum %x {axis = 1} : "
                "f32[T]\n    yield %2\n  }\n" OUT "  output %l {name = \"losses\"}\n",
                "the losses come from a kernel with rows = \"loss\"");
}

/* ---- memory ---------------------------------------------------------------------------------- */
static void expect_plan(const char *a, const char *b, const char *message) {
    char text[1024] = "hir 1 kernel @f\n\narena 128 per token\nfixed 0\n\n"
                      "func(%x: f32[T, 16] in input[0]) {\n";
    const char *parts[] = {"  %a = kernel.row " ROW " : f32[T, 16]",
                           a,
                           " {\n    %0 = neg %x : f32[T, 16]\n    yield %0\n  }\n",
                           "  %b = kernel.row " ROW " : f32[T, 16]",
                           b,
                           " {\n    %1 = neg %a : f32[T, 16]\n    yield %1\n  }\n",
                           "  %o = kernel.row " ROW " : f32[T, 16] in output[0] {\n",
                           "    %2 = neg %b : f32[T, 16]\n    yield %2\n  }\n" OUT "}\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        strcat(text, parts[i]);
    bench t = new_bench(text);
    cr_assert(t.m);
    bool ok = hir_verify_kernels(t.m, &t.diags);
    cr_expect_eq(ok, !message, "%s", errors_of(&t));
    if (message) cr_expect(strstr(errors_of(&t), message), "%s", errors_of(&t));
    hd_arena_free(t.arena);
}

Test(kernel_rules, memory) {
    expect_plan(" in arena[0]", " in arena[64]", NULL);
    expect_plan(" in arena[0]", " in arena[60]", "still live");
    expect_plan(" in arena[0]", "", "has no place");
}

/* A row program's result where its operand lies. `place` is that of %b; `reader` what the last
 * kernel reads beside it; `second` another result of the second kernel. */
static void expect_over(const char *second, const char *place, const char *reader,
                        const char *message) {
    char text[2048];
    snprintf(
        text, sizeof text,
        "hir 1 kernel @f\n\narena 256 per token\nfixed 0\n\n"
        "func(%%x: f32[T, 16] in input[0]) {\n"
        "  %%a = kernel.row " ROW " : f32[T, 16] in arena[0] {\n"
        "    %%0 = neg %%x : f32[T, 16]\n    yield %%0\n  }\n"
        "  %%b, %%c = kernel.row " ROW " : f32[T, 16] in %s, f32[T, 16] in %s {\n"
        "    %%1 = neg %%a : f32[T, 16]\n    %%2 = abs %%a : f32[T, 16]\n"
        "    yield %%1, %%2\n  }\n"
        "  %%o = kernel.row " ROW " : f32[T, 16] in output[0] {\n"
        "    %%3 = add %%b, %s : f32[T, 16]\n    yield %%3\n  }\n  output %%o {name = \"o\"}\n}\n",
        place, second, reader);
    bench t = new_bench(text);
    cr_assert(t.m, "%s", errors_of(&t));
    bool ok = hir_verify_kernels(t.m, &t.diags);
    cr_expect_eq(ok, !message, "%s\n%s", errors_of(&t), text);
    if (message) cr_expect(strstr(errors_of(&t), message), "%s", errors_of(&t));
    hd_arena_free(t.arena);
}

Test(kernel_rules, results_over_operands) {
    expect_over("arena[64]", "arena[0]", "%c", NULL);
    expect_over("arena[0]", "arena[128]", "%c", NULL);
    expect_over("arena[64]", "arena[0]", "%a", "still live");  /* read by a later kernel */
    expect_over("arena[0]", "arena[0]", "%c", "still live");   /* two over one */
    expect_over("arena[64]", "arena[32]", "%c", "still live"); /* half of it */
}

/* A contraction in place of %a, which its body reads as `body` says. */
static void expect_contraction_over(const char *body, const char *message) {
    char text[2048];
    snprintf(text, sizeof text,
             "hir 1 kernel @f\n\narena 128 per token\nfixed 0\n\n"
             "weight @w : f32[16, 16] panel\n\n"
             "func(%%x: f32[T, 16] in input[0]) {\n"
             "  %%a = kernel.row " ROW " : f32[T, 16] in arena[0] {\n"
             "    %%8 = neg %%x : f32[T, 16]\n    yield %%8\n  }\n"
             "  %%b = kernel.contract {name = \"c\", rows = \"all\", split_decode = \"cols\", "
             "split_prefill = \"cols\"} : f32[T, 16] in arena[0] {\n%s  }\n"
             "  %%o = kernel.row " ROW " : f32[T, 16] in output[0] {\n"
             "    %%9 = neg %%b : f32[T, 16]\n    yield %%9\n  }\n  output %%o {name = \"o\"}\n}\n",
             body);
    bench t = new_bench(text);
    cr_assert(t.m, "%s\n%s", errors_of(&t), text);
    cr_expect_eq(hir_verify_kernels(t.m, &t.diags), !message, "%s\n%s", errors_of(&t), text);
    if (message) cr_expect(strstr(errors_of(&t), message), "%s", errors_of(&t));
    hd_arena_free(t.arena);
}

/* Columns are cut among threads, and rows are read by many: only what the epilogue reads, element
 * by element, may be overwritten. */
Test(kernel_rules, contractions_overwrite_what_they_add) {
#define LINEAR(name, x, w) "    " name " = linear " x ", @" w ", _ : f32[T, 16]\n"
    expect_contraction_over(LINEAR("%1", "%x", "w") "    %2 = add %1, %a : f32[T, 16]\n"
                                                    "    yield %2\n",
                            NULL);
    expect_contraction_over(LINEAR("%1", "%a", "w") "    yield %1\n", "still live");
    expect_contraction_over(LINEAR("%1", "%a", "w") "    %2 = add %1, %a : f32[T, 16]\n"
                                                    "    yield %2\n",
                            "still live");
    expect_contraction_over("    %0 = exp %a : f32[T, 16]\n" LINEAR(
                                "%1", "%0", "w") "    %2 = add %1, %a : f32[T, 16]\n"
                                                 "    yield %2\n",
                            "still live");
}

/* ---- tiles ----------------------------------------------------------------------------------- */
/* %a, %b, %c and %o, each made of the one before; where %a to %c lie, and the tiles of the four
 * kernels, 0: none. */
static void expect_tiled(const char *const *places, const int *tiles, const char *message) {
    hd_text text;
    hd_arena *a = hd_arena_new();
    hd_text_init(&text, a);
    hd_text_add(&text, "hir 1 kernel @f\n\narena 128 per token\ntile 128 per token\nfixed 0\n\n"
                       "func(%x: f32[T, 16] in input[0]) {\n");
    for (int i = 0; i < 4; i++) {
        hd_text_f(&text,
                  "  %%%c = kernel.row {name = \"r\", rows = \"all\", split_decode = \"none\", "
                  "split_prefill = \"rows\"",
                  "abco"[i]);
        if (tiles[i]) hd_text_f(&text, ", tile = %d", tiles[i]);
        hd_text_f(&text,
                  "} : f32[T, 16] in %s {\n    %%%d = neg %%%c : f32[T, 16]\n    yield %%%d\n  }\n",
                  i < 3 ? places[i] : "output[0]", i, "xabc"[i], i);
    }
    hd_text_add(&text, "  output %o {name = \"o\"}\n}\n");
    bench t = new_bench(text.at);
    cr_assert(t.m, "%s", errors_of(&t));
    cr_expect_eq(hir_verify_kernels(t.m, &t.diags), !message, "%s\n%s", errors_of(&t), text.at);
    if (message) cr_expect(strstr(errors_of(&t), message), "%s", errors_of(&t));
    hd_arena_free(t.arena);
    hd_arena_free(a);
}

#define TILED(message, a, b, c, ...)                                                               \
    expect_tiled((const char *const[]){a, b, c}, (const int[]){__VA_ARGS__}, message)

Test(kernel_rules, what_lies_in_the_area_of_a_tile_stays_among_its_kernels) {
    TILED(NULL, "tile[0]", "arena[0]", "arena[64]", 4, 4, 0, 0);
    TILED(NULL, "tile[0]", "tile[64]", "tile[0]", 4, 4, 4, 4);
    TILED("another kernel reads it", "tile[0]", "tile[64]", "arena[0]", 4, 4, 0, 0);
    TILED("another kernel reads it", "tile[0]", "arena[0]", "arena[64]", 0, 4, 4, 0);
    TILED("another kernel reads it", "tile[0]", "arena[0]", "arena[64]", 4, 0, 0, 0);
    TILED("its tiles are not those of other kernels", "tile[0]", "arena[0]", "arena[64]", 4, 6, 0,
          0);
}

/* The rows of the next tile are still to be read. */
Test(kernel_rules, no_tile_overwrites_what_the_next_one_reads) {
    TILED(NULL, "arena[0]", "arena[64]", "arena[0]", 0, 0, 0, 0);
    TILED(NULL, "arena[0]", "arena[64]", "arena[0]", 4, 4, 0, 0);
    TILED(NULL, "arena[0]", "arena[0]", "arena[0]", 4, 4, 4, 4); /* row by row in place */
    TILED("still live", "arena[0]", "arena[64]", "arena[0]", 0, 4, 4, 4);
    TILED("still live", "arena[0]", "arena[64]", "arena[0]", 4, 4, 4, 0);
}

Test(kernel_rules, what_needs_all_tokens_has_no_tiles) {
#define TILE_OF_2                                                                                  \
    "{name = \"r\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\", tile = 2}"
    expect("  %o = kernel.row " TILE_OF_2 " : f32[T, 16] {\n    %0 = neg %x : f32[T, 16]\n"
           "    yield %0\n  }\n" OUT,
           NULL);
    expect("  %c = kernel.row " TILE_OF_2 " : f32[C, 2, 8] {\n"
           "    %0 = reshape %x {shape = [T, 2, 8]} : f32[T, 2, 8]\n"
           "    %1 = cache_append %0, $k : f32[C, 2, 8]\n    yield %1\n  }\n"
           "  %o = kernel.row " ROW " : f32[T, 16] {\n    %2 = neg %x : f32[T, 16]\n"
           "    yield %2\n  }\n" OUT,
           "cannot be done tile by tile");
    expect("  %o = kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"channels\", "
           "split_prefill = \"channels\", tile = 2} : f32[16] {\n"
           "    %0 = sum_tokens %x : f32[16]\n    yield %0\n  }\n" OUT,
           "cannot be done tile by tile");
    expect("  %o = kernel.sequence {name = \"s\", rows = \"all\", split_decode = \"channels\", "
           "split_prefill = \"channels\", tile = 2} : f32[16] {\n"
           "    %0 = sum_tokens %x : f32[16]\n    yield %0\n  }\n  output %o {name = \"grad.g\"}\n",
           NULL);
}
