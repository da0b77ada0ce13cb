/* What a step has to do, held against numbers worked out by hand from the shapes of the toy model:
 * d = 64, 2 heads of 32 on one key/value head of 32, a vocabulary of 40. */
#include <criterion/criterion.h>

#include "inspect/steps.h"
#include "tests/unit/arena_fixture.h"
#include "tests/unit/codegen/toy_model.h"

TestSuite(step_work, .init = open_arena, .fini = close_arena);

static hcg_program *lower(const char *text) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    hcg_program *p = m ? hcg_lower(arena, &diags, m, NULL) : NULL;
    if (!p) cr_assert_fail("%s\n%s", diags.list.at[0].message, text);
    return p;
}

static const hcg_step_work *work_of(const hcg_program *p, const char *step) {
    for (size_t i = 0; i < p->steps.n; i++)
        if (!strcmp(p->steps.at[i].name, step)) return &p->work.at[i];
    cr_assert_fail("there is no step %s", step);
    return NULL;
}

static void expect(const hcg_program *p, const char *step, const char *scope, hcg_step_work want) {
    const hcg_step_work *w = work_of(p, step);
    cr_assert_str_eq(w->scope, scope, "%s: scope \"%s\"", step, w->scope);
#define SAME(field)                                                                                \
    cr_assert_eq(w->field, want.field, "%s: " #field " %llu", step, (unsigned long long)w->field)
    SAME(row_flops);
    SAME(pair_flops);
    SAME(pass_bytes);
    SAME(row_bytes);
    SAME(position_bytes);
#undef SAME
}

Test(step_work, the_toy_model_by_hand) {
    hcg_program *p = lower(toy_model(arena, "toy", 2, 40));
    /* sigmoid of a weight, without tokens: both 64 floats once a pass */
    expect(p, "gain", "", (hcg_step_work){.pass_bytes = 2 * 256});
    /* a row of the table, the id, the row written; the gain once a pass */
    expect(p, "embed", "", (hcg_step_work){.pass_bytes = 256, .row_bytes = 256 + 4 + 256});
    /* 64 to 64 + 32 + 32, with a bias of 32 */
    expect(p, "qkv1", "l1",
           (hcg_step_work){.row_flops = 2 * 64 * 128,
                           .pass_bytes = 4 * (64 * 128 + 32),
                           .row_bytes = 4 * (64 + 128)});
    expect(p, "append1", "l1", (hcg_step_work){.row_bytes = 2 * 4 * (32 + 32)});
    /* 2 heads: a dot product of 32 and a sum of 32, each for one position */
    expect(p, "attention1", "l1",
           (hcg_step_work){.pair_flops = 2 * 2 * (32 + 32),
                           .row_bytes = 4 * (64 + 64),
                           .position_bytes = 2 * 4 * 32});
    /* bf16 weights; the output is added to h */
    expect(p, "out1", "l1",
           (hcg_step_work){.row_flops = 2 * 64 * 64,
                           .pass_bytes = 2 * 64 * 64,
                           .row_bytes = 4 * (64 + 64 + 64)});
    expect(p, "head", "",
           (hcg_step_work){
               .row_flops = 2 * 64 * 40, .pass_bytes = 4 * 48 * 64, .row_bytes = 4 * (64 + 40)});
}

Test(step_work, lines_are_those_of_the_printed_module) {
    hcg_program *p = lower(toy_model(arena, "toy", 2, 40));
    hd_text text;
    hd_text_init(&text, arena);
    hir_print(p->m, (hir_print_options){0}, &text);
    for (size_t i = 0; i < p->steps.n; i++) {
        const char *line = text.at;
        for (uint32_t n = 1; n < p->work.at[i].line; n++)
            line = strchr(line, '\n') + 1;
        const char *name = hd_printf(arena, "{name = \"%s\"", p->steps.at[i].name);
        const char *end = strchr(line, '\n'), *at = strstr(line, name);
        cr_assert(at && at < end, "%s is not in line %u", name, p->work.at[i].line);
    }
}

/* A plain function: one row kernel of x [T, 8] with this body. */
static hcg_step_work of_body(const char *tables, const char *body) {
    hcg_program *p = lower(
        hd_printf(arena,
                  "hir 1 kernel @f\n\narena 0 per token\nfixed 0\n\n%s\nfunc(%%x: f32[T, 8] in "
                  "input[0]) {\n  %%y = kernel.row {name = \"k\", rows = \"all\", split_decode = "
                  "\"none\", split_prefill = \"rows\"} : f32[T, 4] in output[0] {\n%s  }\n"
                  "  output %%y {name = \"y\"}\n}\n",
                  tables, body));
    return p->work.at[0];
}

/* ---- what a call does ------------------------------------------------------------------------ */
/* Row by row: the last `rows` of past + T look at all positions up to theirs, or the last ones. */
static step_work by_rows(const hd_info_step *k, int64_t T, int64_t past, int64_t rows) {
    step_work w = {.bytes = (double)k->pass_bytes + (double)(rows * (int64_t)k->row_bytes),
                   .flops = (double)(rows * (int64_t)k->row_flops)};
    int64_t first = past + T; /* position that some row looks at */
    for (int64_t p = past + T - rows; p < past + T; p++) {
        const int64_t window = (int64_t)k->window, all = p + 1;
        const int64_t seen = window && window < all ? window : all;
        w.flops += (double)(seen * (int64_t)k->pair_flops);
        if (p + 1 - seen < first) first = p + 1 - seen;
    }
    w.state_bytes = (double)((past + T - first) * (int64_t)k->position_bytes);
    w.bytes += w.state_bytes;
    return w;
}

Test(step_work, a_window_is_looked_at_and_no_more) {
    static const uint64_t windows[] = {0, 1, 7, 128, 1000};
    static const int64_t calls[][3] = {{1, 0, 1},     {1, 127, 1},   {1, 128, 1},
                                       {1, 9000, 1},  {5, 0, 5},     {5, 0, 2},
                                       {200, 0, 200}, {200, 900, 1}, {8, 6, 8}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
            const int64_t T = calls[c][0], past = calls[c][1], rows = calls[c][2];
            const hd_info_step k = {.last_rows = rows < T,
                                    .row_flops = 3,
                                    .pair_flops = 5,
                                    .pass_bytes = 7,
                                    .row_bytes = 11,
                                    .position_bytes = 13,
                                    .window = windows[i]};
            const step_work got = step_work_of(&k, T, past, rows),
                            want = by_rows(&k, T, past, rows);
            cr_expect_eq(got.flops, want.flops, "window %zu, call %zu: %g FLOPs, not %g", i, c,
                         got.flops, want.flops);
            cr_expect_eq(got.bytes, want.bytes, "window %zu, call %zu: %g bytes, not %g", i, c,
                         got.bytes, want.bytes);
            cr_expect_eq(got.state_bytes, want.state_bytes);
        }
}

/* 8 of 32 experts for each of n rows: of each expert the share 1 - (3/4)^n. A token touches a
 * quarter, a call with one expert for all still no more than there is. */
Test(step_work, experts_that_are_touched) {
    const hd_info_step k = {
        .expert_bytes = 3200, .experts = 32, .chosen = 8, .state_bytes = 40, .pass_bytes = 50};
    const hd_info_step all = {.expert_bytes = 3200, .experts = 32, .chosen = 32};
    step_work w = step_work_of(&k, 1, 9, 1);
    cr_expect_eq(w.touched, 800);
    cr_expect_eq(w.untouched, 2400);
    cr_expect_eq(w.bytes, 850);
    cr_expect_eq(w.state_bytes, 40);
    w = step_work_of(&k, 2, 0, 2);
    cr_expect_eq(w.touched, 3200 * (1 - 0.75 * 0.75));
    w = step_work_of(&k, 512, 0, 512);
    cr_expect_float_eq(w.touched, 3200, 1e-6);
    w = step_work_of(&all, 3, 0, 3);
    cr_expect_eq(w.touched, 3200);
    cr_expect_eq(w.untouched, 0);
}

Test(step_work, equal_slices_are_read_once) {
    hcg_step_work w =
        of_body("", "    %a = slice %x {axis = 1, start = 0, length = 4} : f32[T, 4]\n"
                    "    %b = slice %x {axis = 1, start = 0, length = 4} : f32[T, 4]\n"
                    "    %c = add %a, %b : f32[T, 4]\n    yield %c\n");
    cr_assert_eq(w.row_bytes, 4 * (4 + 4));
    /* distinct ones that overlap: never more than there is */
    w = of_body("", "    %a = slice %x {axis = 1, start = 0, length = 4} : f32[T, 4]\n"
                    "    %b = slice %x {axis = 1, start = 2, length = 4} : f32[T, 4]\n"
                    "    %d = slice %x {axis = 1, start = 4, length = 4} : f32[T, 4]\n"
                    "    %c = add %a, %b : f32[T, 4]\n"
                    "    %e = add %c, %d : f32[T, 4]\n    yield %e\n");
    cr_assert_eq(w.row_bytes, 4 * (8 + 4));
}

Test(step_work, scopes_are_whole_components) {
    const char *body = "    %%a = slice %%x {axis = 1, start = 0, length = 4} : f32[T, 4]\n"
                       "    %%b = mul %%a, @%s : f32[T, 4]\n"
                       "    %%c = mul %%b, @%s : f32[T, 4]\n    yield %%c\n";
    static const char *const cases[][3] = {
        {"m.layers.1.gain", "m.layers.1.bias", "m.layers.1"},
        {"m.layers.1.gain", "m.layers.11.gain", "m.layers"},
        {"m.layers.1.a.gain", "m.layers.1.b.gain", "m.layers.1"},
        {"m.layers.1.a.gain", "m.layers.1", "m.layers"},
        {"a", "b", ""},
        {"m.a", "n.a", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *a = cases[i][0], *b = cases[i][1];
        hcg_step_work w =
            of_body(hd_printf(arena, "weight @%s : f32[4]\nweight @%s : f32[4]\n", a, b),
                    hd_printf(arena, body, a, b));
        cr_assert_str_eq(w.scope, cases[i][2], "%s and %s: \"%s\"", a, b, w.scope);
    }
}
