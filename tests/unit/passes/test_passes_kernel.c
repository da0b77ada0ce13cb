/* The passes on kernels: expand, layout, schedule, plan-memory. */
#include <criterion/criterion.h>
#include <math.h>

#include "support/arena_rows.h"
#include "tests/unit/passes/pass_models.h"

static const hir_pass_id to_expand[] = {HIR_PASS_FUSE, HIR_PASS_EXPAND};
static const hir_pass_id to_layout[] = {HIR_PASS_FUSE, HIR_PASS_EXPAND, HIR_PASS_LAYOUT};
static const hir_pass_id to_end[] = {HIR_PASS_FUSE, HIR_PASS_EXPAND, HIR_PASS_LAYOUT,
                                     HIR_PASS_SCHEDULE, HIR_PASS_PLAN_MEMORY};

static bench run(const char *text, const hir_pass_id *passes, size_t n,
                 const hir_compile_options *options) {
    bench b = new_bench(text);
    cr_assert(b.m);
    cr_assert(run_list(&b, passes, n, true, options), "%s", errors_of(&b));
    return b;
}

static size_t count(const bench *b, hir_opcode code) {
    size_t n = 0;
    for (size_t i = 0; i < b->m->ops.n; i++)
        n += !b->m->ops.at[i].erased && b->m->ops.at[i].code == code;
    return n;
}

static const char *attr(const bench *b, size_t kernel, hir_attr_id id) {
    HIR_EACH(b->m, op, b->m->first)
    if (kernel-- == 0) return hir_attr_string(hir_op_at(b->m, op), id, "?");
    return "none";
}

/* ---- expand ---------------------------------------------------------------------------------- */
Test(expand, composites) {
    bench b = run("hir 1 graph @f\n\nweight @g : f32[8]\nweight @b : f32[8]\n\n"
                  "func(%x: f32[T, 3, 8]) {\n"
                  "  %0 = rmsnorm %x, @g {eps = 1e-06} : f32[T, 3, 8]\n"
                  "  %1 = layernorm %0, @g, @b {eps = 1e-06} : f32[T, 3, 8]\n"
                  "  %2 = layernorm %1, _, _ {eps = 1e-06} : f32[T, 3, 8]\n"
                  "  %3 = softmax %2 {axis = 1} : f32[T, 3, 8]\n"
                  "  %last = softmax %3 {axis = 2} : f32[T, 3, 8]\n"
                  "  output %last {name = \"o\"}\n}\n",
                  to_expand, 2, NULL);
    HIR_EACH(b.m, op, hir_op_at(b.m, b.m->first)->body_first)
    cr_expect_not(hir_has_trait(hir_op_at(b.m, op)->code, HIR_COMPOSITE));
    cr_expect_eq(count(&b, HIR_EXP_OP), 2);
    cr_expect_eq(count(&b, HIR_RSQRT_OP), 3);
    cr_expect_eq(count(&b, HIR_REDUCE_MAX_OP), 2);
    hd_arena_free(b.arena);
}

Test(expand, linear_remainders) {
    bench b = run("hir 1 graph @f\n\nweight @w : f32[12, 8]\nweight @b : f32[12]\n\n"
                  "func(%x: f32[T, 3, 8], %v: f32[8]) {\n"
                  "  %0 = linear %x, @w, @b : f32[T, 3, 12]\n"
                  "  %1 = linear %v, @w, _ : f32[12]\n"
                  "  output %0 {name = \"o\"}\n"
                  "  output %1 {name = \"p\"}\n}\n",
                  to_expand, 2, NULL);
    cr_expect_eq(count(&b, HIR_LINEAR_OP), 0);
    hd_arena_free(b.arena);
}

/* What generated code computes in f32 must not overflow or lose the small ones: here in numbers
 * that reach the limits, on the expanded ops. */
static double first_output(bench *b, const double *x, int64_t at) {
    uint64_t seed = 1;
    hir_eval *e = hir_eval_new(b->arena, b->m, hir_random_weights, &seed);
    hir_results r = {0};
    cr_assert(hir_eval_call(e, b->arena, &b->diags, 1, &x, &r, NULL, NULL), "%s", errors_of(b));
    return r.outputs.at[0].at[at];
}

Test(expand, softmax_of_large_and_infinite_logits) {
    bench b = run("hir 1 graph @f\n\nfunc(%x: f32[T, 4]) {\n"
                  "  %0 = softmax %x {axis = 1} : f32[T, 4]\n"
                  "  output %0 {name = \"o\"}\n}\n",
                  to_expand, 2, NULL);
    const double large[] = {10000, 9999, -10000, 10000}, masked[] = {-INFINITY, 0, 0, -INFINITY};
    cr_expect_float_eq(first_output(&b, large, 0), 1 / (2 + exp(-1)), 1e-12);
    cr_expect_eq(first_output(&b, large, 2), 0);
    cr_expect_eq(first_output(&b, masked, 0), 0);
    cr_expect_eq(first_output(&b, masked, 1), 0.5);
    hd_arena_free(b.arena);
}

Test(expand, norm_of_nothing_is_nothing) {
    bench b = run("hir 1 graph @f\n\nfunc(%x: f32[T, 2]) {\n"
                  "  %0 = rmsnorm %x, _ {eps = 1e-06} : f32[T, 2]\n"
                  "  output %0 {name = \"o\"}\n}\n",
                  to_expand, 2, NULL);
    const double zero[] = {0, 0}, tiny[] = {1e-20, 0};
    cr_expect_eq(first_output(&b, zero, 0), 0);
    cr_expect_float_eq(first_output(&b, tiny, 0), 1e-17, 1e-22);
    hd_arena_free(b.arena);
}

/* ---- layout ---------------------------------------------------------------------------------- */
static const char layouts[] = "hir 1 graph @f\n\n"
                              "weight @tied : f32[40, 16]\nweight @table : f32[40, 16]\n"
                              "weight @matrix : f32[16, 16]\nweight @bias : f32[16]\n"
                              "weight @gain : f32[16]\nweight @scores : f32[2, 16]\n"
                              "weight @spare : f32[4, 4] unused\n\n"
                              "func(%t: i32[T]) {\n"
                              "  %0 = gather @tied, %t : f32[T, 16]\n"
                              "  %1 = gather @table, %t : f32[T, 16]\n"
                              "  %2 = mul %0, @gain : f32[T, 16]\n"
                              "  %3 = linear %2, @matrix, @bias : f32[T, 16]\n"
                              "  %4 = add %3, %1 : f32[T, 16]\n"
                              "  %5 = linear %4, @tied, _ : f32[T, 40]\n"
                              "  %6 = reshape %1 {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
                              "  %7 = mul %6, @scores : f32[T, 2, 16]\n"
                              "  output %5 {name = \"o\"}\n"
                              "  output %7 {name = \"p\"}\n}\n";

Test(layout, by_use) {
    hir_compile_options bf16 = {.matrix_dtype = HIR_BF16};
    bench b = run(layouts, to_layout, 3, &bf16);
    const char *text = text_of(&b);
    cr_expect(strstr(text, "weight @tied : bf16[40, 16] panel\n"
                           "weight @table : bf16[40, 16]\n"
                           "weight @matrix : bf16[16, 16] panel\n"
                           "weight @bias : f32[16]\n"
                           "weight @gain : f32[16]\n"
                           "weight @scores : f32[2, 16]\n"
                           "weight @spare : f32[4, 4] unused\n"),
              "%s", text);
    hd_arena_free(b.arena);
}

Test(layout, f32_and_again) {
    bench b = run(layouts, to_layout, 3, NULL);
    const char *text = text_of(&b);
    cr_expect(strstr(text, "weight @tied : f32[40, 16] panel\nweight @table : f32[40, 16]\n"), "%s",
              text);
    cr_expect(run_list(&b, &to_layout[2], 1, true, NULL));
    cr_expect_str_eq(text_of(&b), text);
    hd_arena_free(b.arena);
}

Test(layout, rejects_two_layouts_of_one_weight) {
    bench b = new_bench("hir 1 graph @f\n\nweight @w : f32[16, 16]\n\nfunc(%x: f32[T, 16]) {\n"
                        "  %0 = linear %x, @w, _ : f32[T, 16]\n"
                        "  %1 = reshape %0 {shape = [T, 1, 16]} : f32[T, 1, 16]\n"
                        "  %2 = mul %1, @w : f32[T, 16, 16]\n"
                        "  output %2 {name = \"o\"}\n}\n");
    cr_expect_not(run_list(&b, to_layout, 3, false, NULL));
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_UNSUPPORTED);
    cr_expect(strstr(errors_of(&b), "weight 'w' is wanted in two layouts"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}

/* ---- schedule -------------------------------------------------------------------------------- */
Test(schedule, rows_and_threads_of_a_model) {
    hd_arena *a = hd_arena_new();
    bench b = run(decoder_text(a, &small_decoder), to_end, 5, NULL);
    size_t n = 0, last = 0;
    HIR_EACH(b.m, op, b.m->first) {
        const hir_op *o = hir_op_at(b.m, op);
        if (o->code == HIR_OUTPUT_OP) continue;
        n++;
        last += !strcmp(hir_attr_string(o, HIR_A_ROWS, ""), "last");
        const char *many = hir_attr_string(o, HIR_A_SPLIT_PREFILL, "");
        cr_expect_str_eq(many, o->code == HIR_KERNEL_ROW_OP        ? "rows"
                               : o->code == HIR_KERNEL_CONTRACT_OP ? "cols"
                                                                   : "cyclic");
    }
    /* of the last layer: attention, o, norm with gate and up, down; the final norm with the head */
    cr_expect_eq(last, 5);
    cr_expect_eq(n, 1 + 3 * 5 + 1, "%zu", n); /* the first norm stands with the embedding */
    hd_arena_free(b.arena);
    hd_arena_free(a);
}

/* However deep: a first row program and the layers' kernels, each counted once. */
Test(schedule, equal_layers_have_equal_names) {
    size_t different[2], kernels[2];
    for (int i = 0; i < 2; i++) {
        hd_arena *a = hd_arena_new();
        decoder d = small_decoder;
        d.layers = i ? 12 : 4;
        bench b = run(decoder_text(a, &d), to_end, 5, NULL);
        const char *names[64];
        different[i] = kernels[i] = 0;
        HIR_EACH(b.m, op, b.m->first) {
            const char *name = hir_attr_string(hir_op_at(b.m, op), HIR_A_NAME, "");
            size_t k = 0;
            while (k < different[i] && strcmp(names[k], name) != 0)
                k++;
            if (hir_op_at(b.m, op)->code == HIR_OUTPUT_OP) continue;
            if (k == different[i]) names[different[i]++] = hd_strdup(a, name);
            kernels[i]++;
        }
        hd_arena_free(b.arena);
        hd_arena_free(a);
    }
    cr_expect_eq(different[0], different[1]);
    cr_expect_eq(kernels[1] - kernels[0], 8 * 5);
}

Test(schedule, copies_for_outputs) {
    bench b = run("hir 1 graph @f\n\nfunc(%x: f32[T, 8]) {\n"
                  "  %0 = neg %x : f32[T, 8]\n"
                  "  output %x {name = \"a\"}\n"
                  "  output %0 {name = \"b\"}\n"
                  "  output %0 {name = \"c\"}\n}\n",
                  to_end, 5, NULL);
    cr_expect_eq(count(&b, HIR_KERNEL_ROW_OP), 3);
    cr_expect(strstr(text_of(&b), "output[0]") && strstr(text_of(&b), "output[1]") &&
              strstr(text_of(&b), "output[2]"));
    hd_arena_free(b.arena);
}

/* Logits that another output shows too: that one has all rows, the first has its last rows copied.
 */
Test(schedule, logits_that_are_shown_twice) {
    bench b = run("hir 1 graph @f\n\nweight @e : f32[16, 8]\n\nfunc(%t: i32[T]) {\n"
                  "  %0 = gather @e, %t : f32[T, 8]\n"
                  "  output %0 {name = \"logits\"}\n"
                  "  output %0 {name = \"again\"}\n}\n",
                  to_end, 5, NULL);
    cr_expect_str_eq(attr(&b, 0, HIR_A_ROWS), "all");
    cr_expect_str_eq(attr(&b, 1, HIR_A_ROWS), "last");
    cr_expect(strstr(text_of(&b), "f32[T, 8] in output[1]"), "%s", text_of(&b));
    hd_arena_free(b.arena);
}

Test(schedule, a_plain_function_has_all_rows) {
    bench b = run("hir 1 graph @f\n\nweight @w : f32[16, 8]\n\nfunc(%x: f32[T, 8]) {\n"
                  "  %0 = linear %x, @w, _ : f32[T, 16]\n"
                  "  output %0 {name = \"o\"}\n}\n",
                  to_end, 5, NULL);
    cr_expect_str_eq(attr(&b, 0, HIR_A_ROWS), "all");
    hd_arena_free(b.arena);
}

Test(schedule, rejects_logits_without_tokens) {
    bench b = new_bench("hir 1 graph @f\n\nweight @e : f32[16]\n\nfunc(%t: i32[T]) {\n"
                        "  %0 = neg @e : f32[16]\n  output %0 {name = \"logits\"}\n}\n");
    cr_expect_not(run_list(&b, to_end, 5, false, NULL));
    cr_expect_eq(hd_diags_first(&b.diags), HD_E_UNSUPPORTED);
    hd_arena_free(b.arena);
}

/* Two branches whose large values need not be alive together. */
Test(schedule, order_lowers_the_peak) {
    bench b = run("hir 1 graph @f\n\nweight @up : f32[512, 16]\nweight @down : f32[16, 512]\n"
                  "weight @up2 : f32[512, 16]\nweight @down2 : f32[16, 512]\n\n"
                  "func(%x: f32[T, 16], %y: f32[T, 16]) {\n"
                  "  %0 = linear %x, @up, _ : f32[T, 512]\n"
                  "  %1 = linear %y, @up2, _ : f32[T, 512]\n"
                  "  %2 = linear %0, @down, _ : f32[T, 16]\n"
                  "  %3 = linear %1, @down2, _ : f32[T, 16]\n"
                  "  %4 = softmax %2 {axis = 1} : f32[T, 16]\n"
                  "  %5 = mul %4, %3 : f32[T, 16]\n"
                  "  output %5 {name = \"o\"}\n}\n",
                  to_end, 5, NULL);
    cr_expect_leq(b.m->arena_per_token, 512 * 4 + 64 + 2 * 64, "%llu",
                  (unsigned long long)b.m->arena_per_token);
    hd_arena_free(b.arena);
}

/* ---- plan-memory ----------------------------------------------------------------------------- */
Test(plan_memory, is_near_the_bound) {
    for (int block = 0; block < 4; block++) {
        hd_arena *a = hd_arena_new();
        decoder d = small_decoder;
        d.layers = 9;
        d.block = block;
        bench b = run(decoder_text(a, &d), to_end, 5, NULL);
        unsigned long long peak = 0, bound = 0;
        size_t buffers;
        for (size_t i = 0; i < b.remarks.list.n; i++)
            sscanf(b.remarks.list.at[i].text,
                   "arena per token: %zu buffers in %llu bytes (most live at once %llu", &buffers,
                   &peak, &bound);
        cr_expect(bound > 0 && peak <= bound + bound / 8, "%llu of %llu", peak, bound);
        cr_expect_eq(b.m->arena_per_token, peak);
        hd_arena_free(b.arena);
        hd_arena_free(a);
    }
}

Test(plan_memory, fixed_values_share_too) {
    bench b = run("hir 1 graph @f\n\nweight @w : f32[64, 64]\n\nfunc(%x: f32[T, 64]) {\n"
                  "  %0 = reduce_sum @w {axis = 0} : f32[64]\n"
                  "  %1 = mul %x, %0 : f32[T, 64]\n"
                  "  output %1 {name = \"o\"}\n}\n",
                  to_end, 5, NULL);
    cr_expect_eq(b.m->fixed_bytes, 256);
    cr_expect_str_eq(attr(&b, 0, HIR_A_SPLIT_PREFILL), "none");
    hd_arena_free(b.arena);
}

/* Equal columns of two values are neither the same line of a page nor side by side. */
static void check_apart(int width) {
    char text[2048];
    snprintf(text, sizeof text,
             "hir 1 graph @f\n\nweight @u : f32[64, %1$d]\nweight @v : f32[%1$d, 64]\n\n"
             "func(%%x: f32[T, %1$d]) {\n"
             "  %%0 = softmax %%x {axis = 1} : f32[T, %1$d]\n"
             "  %%1 = linear %%0, @u, _ : f32[T, 64]\n"
             "  %%2 = linear %%1, @v, _ : f32[T, %1$d]\n"
             "  %%3 = softmax %%2 {axis = 1} : f32[T, %1$d]\n"
             "  %%4 = linear %%3, @u, _ : f32[T, 64]\n"
             "  %%5 = linear %%4, @v, _ : f32[T, %1$d]\n"
             "  %%6 = add %%0, %%3 : f32[T, %1$d]\n"
             "  %%7 = add %%5, %%6 : f32[T, %1$d]\n"
             "  %%8 = softmax %%7 {axis = 1} : f32[T, %1$d]\n"
             "  output %%8 {name = \"o\"}\n}\n",
             width);
    bench b = run(text, to_end, 5, NULL);
    uint64_t rows[64], n = 0;
    for (size_t i = 0; i < b.m->values.n && n < 64; i++) {
        const hir_value *v = &b.m->values.at[i];
        if (v->place == HIR_PLACE_ARENA && hir_type_row_elements(v->type) == width)
            rows[n++] = v->offset;
    }
    cr_assert(n > 2, "%llu", (unsigned long long)n);
    for (int64_t tokens = 64; tokens <= 1024; tokens *= 2)
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < i; j++) {
                const uint64_t bytes = (rows[i] - rows[j]) * hd_arena_rows((uint64_t)tokens);
                const uint64_t lines = bytes / 64 % HD_PAGE_LINES;
                cr_expect(rows[i] == rows[j] ||
                              (lines >= HD_LINES_APART && lines <= HD_PAGE_LINES - HD_LINES_APART),
                          "%d columns, %ld tokens: %d lines apart", width, (long)tokens,
                          (int)lines);
            }
    hd_arena_free(b.arena);
}

Test(plan_memory, rows_lie_apart) {
    static const int widths[] = {512, 640, 768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 4096};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        check_apart(widths[i]);
}

/* A row stays where it is, if a row program makes it, or a contraction that adds to it; not if a
 * contraction has it as x: in front of that the second softmax stands where nothing else reads it.
 */
Test(plan_memory, long_rows_stay_in_place) {
    static const char *const last[] = {"%0", "%4"};
    for (int again = 0; again < 2; again++) {
        char text[2048];
        snprintf(text, sizeof text,
                 "hir 1 graph @f\n\nweight @u : f32[64, 1024]\nweight @v : f32[1024, 64]\n\n"
                 "func(%%x: f32[T, 1024]) {\n"
                 "  %%0 = softmax %%x {axis = 1} : f32[T, 1024]\n"
                 "  %%1 = linear %%0, @u, _ : f32[T, 64]\n"
                 "  %%2 = linear %%1, @v, _ : f32[T, 1024]\n"
                 "  %%3 = mul %%2, %%0 : f32[T, 1024]\n"
                 "  %%4 = softmax %%3 {axis = 1} : f32[T, 1024]\n"
                 "  %%5 = linear %%4, @u, _ : f32[T, 64]\n"
                 "  %%6 = linear %%5, @v, _ : f32[T, 1024]\n"
                 "  %%7 = add %%6, %s : f32[T, 1024]\n"
                 "  %%8 = softmax %%7 {axis = 1} : f32[T, 1024]\n"
                 "  output %%8 {name = \"o\"}\n}\n",
                 last[!again]);
        bench b = run(text, to_end, 5, NULL);
        uint32_t over = 0;
        HIR_EACH(b.m, op, b.m->first) {
            const hir_id *all = hir_in_place(b.m, op, b.arena);
            for (uint32_t i = 0; i < hir_op_at(b.m, op)->n_results; i++) {
                const hir_id of = hir_in_place_of(b.m, op, i);
                over += of != HIR_NONE;
                cr_expect_eq(all[i], of, "%u and %u", all[i], of);
            }
        }
        cr_expect_eq(over, again ? 1 : 3, "%u", over);
        hd_arena_free(b.arena);
    }
}

Test(plan_memory, needs_schedule) {
    static const hir_pass_id passes[] = {HIR_PASS_FUSE, HIR_PASS_PLAN_MEMORY};
    bench b = new_bench("hir 1 graph @f\n\nfunc(%x: f32[T, 8]) {\n  output %x {name = \"o\"}\n}\n");
    cr_expect_not(run_list(&b, passes, 2, false, NULL));
    cr_expect(strstr(errors_of(&b), "run schedule first"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}

Test(plan_memory, kernels_first) {
    static const hir_pass_id plan = HIR_PASS_PLAN_MEMORY;
    bench b = new_bench("hir 1 graph @f\n\nfunc(%x: f32[T, 8]) {\n  output %x {name = \"o\"}\n}\n");
    cr_expect_not(run_list(&b, &plan, 1, false, NULL));
    cr_expect(strstr(errors_of(&b), "run fuse first"), "%s", errors_of(&b));
    hd_arena_free(b.arena);
}
