/* Facts about modules and the memory plan as a table. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <string.h>

#include "inspect/facts.h"
#include "inspect/views.h"
#include "tests/unit/arena_fixture.h"

TestSuite(inspect, .init = open_arena, .fini = close_arena);

static const char graph_text[] =
    "hir 1 graph @tiny\n\n"
    "option layers = \"1\"\n\n"
    "weight @embed : f32[20, 8]\n"
    "weight @w : f32[20, 8]\n"
    "weight @gain : f32[8]\n"
    "weight @rest : f32[1000] unused\n\n"
    "state $k : f32[C, 1, 4]\n"
    "state $v : f32[C, 1, 6]\n\n"
    "func(%ids: i32[T]) {\n"
    "  %0 = gather @embed, %ids : f32[T, 8]\n"
    "  %1 = rmsnorm %0, @gain {eps = 0.01} : f32[T, 8]\n"
    "  %2 = reshape %1 {shape = [T, 2, 4]} : f32[T, 2, 4]\n"
    "  %3 = slice %2 {axis = 1, start = 0, length = 1} : f32[T, 1, 4]\n"
    "  %4 = slice %1 {axis = 1, start = 0, length = 6} : f32[T, 6]\n"
    "  %5 = reshape %4 {shape = [T, 1, 6]} : f32[T, 1, 6]\n"
    "  %6 = cache_append %3, $k : f32[C, 1, 4]\n"
    "  %7 = cache_append %5, $v : f32[C, 1, 6]\n"
    "  %8 = attention %2, %6, %7 {scale = 0.5} : f32[T, 2, 6]\n"
    "  %9 = slice %8 {axis = 2, start = 0, length = 4} : f32[T, 2, 4]\n"
    "  %10 = reshape %9 {shape = [T, 8]} : f32[T, 8]\n"
    "  %11 = linear %10, @w, _ : f32[T, 20]\n"
    "  output %11 {name = \"logits\"}\n"
    "}\n";

#define KERNEL(kind, name)                                                                         \
    "kernel." kind " {name = \"" name                                                              \
    "\", rows = \"all\", split_decode = \"none\", split_prefill = \"rows\"} : "
static const char kernel_text[] =
    "hir 1 kernel @tiny\n\n"
    "arena 128 per token\n"
    "fixed 64\n\n"
    "weight @embed : f32[20, 8]\n"
    "weight @w : bf16[20, 8] panel\n"
    "weight @gain : f32[8]\n\n"
    "func(%ids: i32[T] in input[0]) {\n"
    "  %h = " KERNEL(
        "row",
        "row0") "f32[T, 8] in arena[0] {\n"
                "    %a = gather @embed, %ids : f32[T, 8]\n"
                "    yield %a\n"
                "  }\n"
                "  %0 = " KERNEL(
                    "row",
                    "row1") "f32[8] in fixed[0] {\n"
                            "    %1 = mul @gain, @gain : f32[8]\n"
                            "    yield %1\n"
                            "  }\n"
                            "  %2, %x = " KERNEL(
                                "row",
                                "row2") "f32[T, 8] in arena[32], f32[T, 8] in arena[64] {\n"
                                        "    %3 = add %h, %0 : f32[T, 8]\n"
                                        "    %4 = neg %3 : f32[T, 8]\n"
                                        "    yield %3, %4\n"
                                        "  }\n"
                                        "  %5 = " KERNEL(
                                            "row",
                                            "row3") "f32[T, 8] in arena[0] {\n"
                                                    "    %6 = add %2, %x : f32[T, 8]\n"
                                                    "    yield %6\n"
                                                    "  }\n"
                                                    "  %7 = " KERNEL(
                                                        "contract",
                                                        "contract0") "f32[T, 20] in output[0] {\n"
                                                                     "    %8 = linear %5, @w, _ : "
                                                                     "f32[T, 20]\n"
                                                                     "    yield %8\n"
                                                                     "  }\n"
                                                                     "  output %7 {name = "
                                                                     "\"logits\"}\n"
                                                                     "}\n";

static hir_module *parse(const char *text) {
    hir_module *m = hir_parse(arena, &diags, "test.hir", text);
    cr_assert_not_null(m, "%s", said());
    return m;
}

static const char *inspect(const hir_module *graph, const hir_module *now, bool json) {
    hd_text out;
    hd_text_init(&out, arena);
    const inspect_subject subject = {
        .arena = arena, .diags = &diags, .graph = graph, .now = now ? now : graph};
    const void *data = inspect_collect(INSPECT_FACTS, &subject);
    cr_assert_not_null(data);
    cr_assert(inspect_write(INSPECT_FACTS, json ? INSPECT_JSON : INSPECT_TEXT, data, &out));
    return out.at;
}

#define HAS(text, part)                                                                            \
    cr_assert_not_null(strstr((text), (part)), "no '%s' in:\n%s", (part), (text))

Test(inspect, facts_follow_from_the_ir) {
    module_facts f;
    facts_count(parse(graph_text), &f);
    cr_assert_eq(f.parameters, 20 * 8 + 20 * 8 + 8);
    cr_assert_eq(f.tensors, 3);
    cr_assert_eq(f.unused, 1);
    cr_assert_eq(f.weight_bytes, 4 * 328);
    cr_assert_eq(f.state_bytes, 4 * 10);
    cr_assert_eq(f.linear_flops, 2 * 20 * 8);
    cr_assert_eq(f.attention_flops, 2 * 2 * (4 + 6));
    cr_assert_eq(f.ops[HIR_SLICE_OP], 3);
    cr_assert_eq(f.total_ops, 13);
    facts_count(parse(kernel_text), &f);
    cr_assert_eq(f.weight_bytes, 4 * 168 + 2 * 32 * 8, "20 rows are two panels of 16");
    cr_assert_eq(f.ops[HIR_KERNEL_ROW_OP], 4);
    cr_assert_eq(f.total_ops, 12);
    cr_assert_eq(f.linear_flops, 2 * 20 * 8, "linear ops in bodies");
}

Test(inspect, linears_on_more_rows_than_tokens_count_all_rows) {
    module_facts f;
    facts_count(parse("hir 1 graph @t\n\nweight @w : f32[5, 4]\n\n"
                      "func(%x: f32[T, 3, 4], %y: f32[4]) {\n"
                      "  %a = linear %x, @w, _ : f32[T, 3, 5]\n"
                      "  %b = linear %y, @w, _ : f32[5]\n"
                      "  output %a {name = \"a\"}\n"
                      "  output %b {name = \"b\"}\n}\n"),
                &f);
    cr_assert_eq(f.linear_flops, 2 * 3 * 5 * 4, "and what has no T is no work of a token");
}

Test(inspect, sums_of_sizes_do_not_wrap) {
    hir_module *m = hir_module_new(arena, "big");
    hir_type huge = hir_make_type(HIR_F32, 2, (int64_t[]){INT32_MAX, INT32_MAX});
    for (int i = 0; i < 5; i++)
        hir_add_weight(m, hd_printf(arena, "w%d", i), huge, HD_NOWHERE);
    module_facts f;
    facts_count(m, &f);
    cr_assert_eq(f.parameters, UINT64_MAX);
    cr_assert_eq(f.weight_bytes, UINT64_MAX);
}

Test(inspect, text_is_for_people) {
    const char *text = inspect(parse(graph_text), NULL, false);
    HAS(text, "tiny\n");
    HAS(text, "layers = 1");
    HAS(text, "ids i32[T]");
    HAS(text, "logits f32[T, 20]");
    HAS(text, "328 in 3 tensors (1 more is read by no op)");
    HAS(text, "1.28 KiB (1312)");
    HAS(text, "40 bytes per position");
    HAS(text, "320 FLOP in linear ops, 40 FLOP per position");
    HAS(text, "1024 positions: 41.3 kFLOP");
    HAS(text, "ops at the graph stage: 13");
    cr_assert_null(strstr(text, "memory plan"));
    text = inspect(parse(graph_text), parse(kernel_text), false);
    HAS(text, "ops at the kernel stage: 12");
    HAS(text, "kernel.contract");
    HAS(text, "128 bytes per token, 128 without reuse");
    HAS(text, "5, leaving 6 values");
}

static json_t *load(const char *text) {
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert_not_null(root, "%s at %d:%d in\n%s", error.text, error.line, error.column, text);
    return root;
}

Test(inspect, json_holds_the_same_numbers) {
    json_t *root = load(inspect(parse(graph_text), parse(kernel_text), true));
    cr_assert_str_eq(json_string_value(json_object_get(root, "name")), "tiny");
    cr_assert_eq(json_integer_value(json_object_get(root, "parameters")), 328);
    json_t *weights = json_object_get(root, "weights");
    cr_assert_eq(json_integer_value(json_object_get(weights, "bytes")), 4 * 168 + 2 * 32 * 8);
    json_t *flops = json_object_get(root, "flops_per_token");
    cr_assert_eq(json_integer_value(json_object_get(flops, "linear")), 320);
    cr_assert_eq(json_integer_value(json_object_get(flops, "attention_per_position")), 40);
    cr_assert_eq(json_array_size(json_object_get(root, "stages")), 2);
    json_t *plan = json_object_get(root, "plan");
    cr_assert_eq(json_integer_value(json_object_get(plan, "arena_bytes_per_token")), 128);
    cr_assert_eq(json_integer_value(json_object_get(plan, "fixed_bytes")), 64);
    json_decref(root);
    root = load(inspect(parse(graph_text), NULL, true));
    cr_assert(json_is_null(json_object_get(root, "plan")));
    json_decref(root);
}

Test(inspect, json_escapes_what_people_write_in_options) {
    hir_module *m = parse(graph_text);
    hir_set_option(m, "note", "a \"quoted\" back\\slash\n\x01 and \xc3\xa9");
    json_t *root = load(inspect(m, NULL, true));
    json_t *options = json_object_get(root, "options");
    cr_assert_str_eq(json_string_value(json_object_get(options, "note")),
                     "a \"quoted\" back\\slash\n\x01 and \xc3\xa9");
    json_decref(root);
}

/* ---- the table of views ---------------------------------------------------------------------- */

Test(inspect, views_reject_forms_that_they_do_not_have) {
    hd_text out;
    hd_text_init(&out, arena);
    const hir_module *m = parse(graph_text);
    const hir_compile_options options = {.chunk = 512};
    const inspect_subject subject = {
        .arena = arena, .diags = &diags, .graph = m, .now = m, .pass_options = &options};
    inspect_numbers numbers;
    for (int v = 0; v < INSPECT_VIEWS; v++) {
        const inspect_view view = (inspect_view)v;
        if (inspect_needs(view) != INSPECT_NEEDS_MODULE) continue;
        const void *data = inspect_collect(view, &subject);
        cr_assert_not_null(data, "view %d", v);
        cr_expect(inspect_write(view, INSPECT_TEXT, data, &out), "view %d", v);
        cr_expect_not(inspect_write(view, INSPECT_SVG, data, &out), "view %d", v);
        cr_expect_not(inspect_write(view, INSPECT_FOLDED, data, &out), "view %d", v);
        cr_expect_not(inspect_numbers_of(view, data, &numbers), "view %d", v);
    }
    inspect_form form;
    cr_expect(inspect_find_form("folded", &form) && form == INSPECT_FOLDED);
    cr_expect_not(inspect_find_form("pdf", &form));
    cr_expect_not(inspect_find_form("", &form));
}

/* A collected view is data: writing it twice gives the same, and in JSON as in text. */
Test(inspect, data_are_collected_once_and_written_in_any_form) {
    const hir_compile_options options = {.chunk = 512};
    const hir_module *m = parse(graph_text);
    const inspect_subject subject = {
        .arena = arena, .diags = &diags, .graph = m, .now = m, .pass_options = &options};
    const void *data = inspect_collect(INSPECT_FACTS, &subject);
    hd_text first, json, second;
    hd_text_init(&first, arena), hd_text_init(&json, arena), hd_text_init(&second, arena);
    cr_assert(inspect_write(INSPECT_FACTS, INSPECT_TEXT, data, &first));
    cr_assert(inspect_write(INSPECT_FACTS, INSPECT_JSON, data, &json));
    cr_assert(inspect_write(INSPECT_FACTS, INSPECT_TEXT, data, &second));
    cr_expect_str_eq(first.at, second.at);
    HAS(first.at, "328 in 3 tensors");
    HAS(json.at, "\"parameters\": 328");
}

/* ---- the plan -------------------------------------------------------------------------------- */

Test(inspect, plan_gives_lives_and_reuse) {
    memory_plan plan;
    hir_module *m = parse(kernel_text);
    memory_plan_find(m, arena, &plan);
    cr_assert(plan.placed);
    cr_assert_eq(plan.kernels, 5);
    cr_assert_eq(plan.rows.n, 6);
    cr_assert_eq(plan.unshared, 4 * 32);
    const memory_plan_row *r = plan.rows.at;
    const uint32_t life[][2] = {{0, 2}, {1, 2}, {2, 3}, {2, 3}, {3, 4}, {4, 4}};
    for (int i = 0; i < 6; i++) {
        cr_assert_eq(r[i].first, life[i][0], "row %d", i);
        cr_assert_eq(r[i].last, life[i][1], "row %d: %u", i, r[i].last);
        cr_assert_eq(r[i].over, i == 4 ? r[0].value : HIR_NONE, "row %d", i);
        cr_assert_eq(r[i].leaves, i == 5);
    }
    cr_assert_eq(r[1].bytes, 32);
    cr_assert_eq(r[5].bytes, 80);
}

Test(inspect, plan_text_is_a_table_that_names_values_as_the_ir_does) {
    hd_text out;
    hd_text_init(&out, arena);
    memory_plan plan;
    memory_plan_find(parse(kernel_text), arena, &plan);
    memory_plan_text(&plan, &out);
    HAS(out.at, "tiny: arena 128 bytes per token (128 without reuse), fixed 64 bytes, 5 kernels\n");
    HAS(out.at, "value  kernel     bytes    place      life  over\n"
                "%h     row0       32       arena[0]   0-2\n"
                "%0     row1       32 once  fixed[0]   1-2\n"
                "%2     row2       32       arena[32]  2-3\n"
                "%x     row2       32       arena[64]  2-3\n"
                "%5     row3       32       arena[0]   3-4   %h\n"
                "%7     contract0  80       output[0]  4-\n");
}

Test(inspect, no_plan_before_plan_memory) {
    hd_text out;
    hd_text_init(&out, arena);
    memory_plan plan;
    memory_plan_find(parse(graph_text), arena, &plan);
    memory_plan_text(&plan, &out);
    HAS(out.at, "tiny: no memory plan yet (graph stage)");
}
