/* From a folder to numbers: golden cases and configs of transformers are imported, elaborated, and
 * run through the reference evaluator in float64; what comes out is compared with the results
 * stored beside them.
 *
 * e = max |got - expected| / max |expected| over a tensor. 1e-6: the expected values are rounded to
 * float32 (6e-8), and everything else is float64. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "ir/eval/eval.h"
#include "tests/unit/arena_fixture.h"

#define TOLERANCE 1e-6

TestSuite(import_golden, .init = open_arena, .fini = close_arena, .timeout = 120);

static hir_module *elaborate(const char *folder) {
    const hfe_options options = {.std_dir = TEST_DATA "/../frontend/std"};
    const char *text = hfe_import(arena, &diags, folder, &options);
    cr_assert(text, "%s", said());
    hir_module *m =
        hfe_load_spec_text(arena, &diags, hd_printf(arena, "%s.hadal", folder), text, &options);
    cr_assert(m, "%s\n%s", said(), text);
    return m;
}

/* ---- golden cases -------------------------------------------------------------------------- */

typedef struct golden {
    hir_module *m;
    hd_tensors weights, expected;
    double *tokens;
    int64_t T, split;
} golden;

static const hd_tensor *expected(const golden *g, const char *name) {
    return hd_tensors_find(&g->expected, name);
}

static golden open_case(const char *name) {
    golden g = {0};
    const char *folder = hd_printf(arena, "%s/golden/%s", TEST_DATA, name);
    g.m = elaborate(folder);
    cr_assert(hd_safetensors_open(arena, &diags, folder, &g.weights), "%s", said());
    cr_assert(hcg_check_weights(g.m, &diags, &g.weights), "%s", said());
    cr_assert(hd_safetensors_open(
        arena, &diags, hd_path_join(arena, folder, "expected.safetensors"), &g.expected));
    const hd_tensor *tokens = expected(&g, "tokens");
    g.T = tokens->shape[0];
    g.split = (int64_t)hd_tensor_get(expected(&g, "split"), 0);
    g.tokens = hd_new_array(arena, double, (size_t)g.T);
    for (int64_t i = 0; i < g.T; i++)
        g.tokens[i] = hd_tensor_get(tokens, (uint64_t)i);
    return g;
}

/* Error of rows [first, first + tokens) of a result, relative to the whole expected tensor. */
static double error_of(const hir_array *got, const hd_tensor *want, int64_t first) {
    double error = 0, largest = 0;
    int64_t row = (int64_t)want->elements / want->shape[0];
    for (uint64_t i = 0; i < want->elements; i++)
        largest = fmax(largest, fabs(hd_tensor_get(want, i)));
    cr_assert(got->n > 0 && got->n % row == 0);
    for (int64_t i = 0; i < got->n; i++) {
        double e = fabs(got->at[i] - hd_tensor_get(want, (uint64_t)(first * row + i)));
        error = e <= error ? error : e; /* a NaN stays */
    }
    return error / largest;
}

/* Evaluates tokens [first, first + n) and compares logits and depth weights. */
static void check_call(hir_eval *eval, const golden *g, int64_t first, int64_t n) {
    hir_results r = {0};
    const double *tokens = g->tokens + first;
    cr_assert(hir_eval_call(eval, arena, &diags, n, &tokens, &r, NULL, NULL), "%s", said());
    cr_assert_eq(r.outputs.n, 1);
    double e = error_of(&r.outputs.at[0], expected(g, "logits"), first);
    cr_expect(e <= TOLERANCE, "logits of tokens %ld..: e = %g", (long)first, e);
    for (size_t i = 0; i < r.traces.n; i++) {
        const hd_tensor *want = expected(g, r.traces.at[i].name);
        cr_assert(want, "%s is not expected", r.traces.at[i].name);
        e = error_of(&r.traces.at[i], want, first);
        cr_expect(e <= TOLERANCE, "%s of tokens %ld..: e = %g", want->name, (long)first, e);
    }
    const char *next = hd_printf(arena, "depth_weights.%zu", r.traces.n);
    cr_expect_null(expected(g, next), "%s is missing", next);
}

static void check_case(const char *name) {
    golden g = open_case(name);
    hir_eval *eval = hir_eval_new(arena, g.m, hcg_weight_source, &g.weights);
    check_call(eval, &g, 0, g.T);
    hir_eval_rewind(eval, 0);
    check_call(eval, &g, 0, g.split);
    for (int64_t t = g.split; t < g.T; t++)
        check_call(eval, &g, t, 1);
    cr_expect_eq(hir_eval_length(eval), g.T);
}

Test(import_golden, standard) {
    check_case("standard");
}
Test(import_golden, standard_llama) {
    check_case("standard-llama");
}
Test(import_golden, attnres_block) {
    check_case("attnres-block");
}
Test(import_golden, attnres_block_odd) {
    check_case("attnres-block-odd");
}
Test(import_golden, attnres_full) {
    check_case("attnres-full");
}
Test(import_golden, qwen2_with_biases_and_a_tied_head) {
    check_case("qwen2");
}
Test(import_golden, llama3_scaling_in_shards) {
    check_case("llama3-sharded");
}
Test(import_golden, llama_with_gelu_and_linear_scaling) {
    check_case("llama-gelu-linear");
}

/* ---- what transformers wrote --------------------------------------------------------------- */

static int64_t dim_of(const hir_module *m, const char *name, int i) {
    uint32_t w = hir_find_weight(m, name);
    return w == HIR_NONE ? -1 : m->weights.at[w].type.dim[i];
}

#define ATTN "model.layers.1.self_attn."

Test(import_golden, weights_of_the_families) {
    hir_module *m = elaborate(TEST_DATA "/import/transformers-4/qwen2");
    cr_expect_eq(dim_of(m, ATTN "q_proj.bias", 0), 48);
    cr_expect_eq(dim_of(m, ATTN "k_proj.bias", 0), 24);
    cr_expect_eq(dim_of(m, ATTN "v_proj.weight", 1), 48);
    cr_expect_eq(dim_of(m, ATTN "o_proj.bias", 0), -1);
    cr_expect_eq(dim_of(m, "lm_head.weight", 0), -1, "the head is tied");
    m = elaborate(TEST_DATA "/import/transformers-5/qwen3");
    cr_expect_eq(dim_of(m, ATTN "q_norm.weight", 0), 16);
    cr_expect_eq(dim_of(m, ATTN "o_proj.weight", 1), 64);
    cr_expect_eq(dim_of(m, ATTN "q_proj.bias", 0), -1);
    cr_expect_eq(dim_of(m, "lm_head.weight", 0), 96);
    m = elaborate(TEST_DATA "/import/transformers-5/llama3");
    cr_expect_eq(dim_of(m, ATTN "o_proj.bias", 0), 48);
    cr_expect_eq(dim_of(m, "model.layers.3.mlp.down_proj.bias", 0), 48);
    cr_expect_eq(dim_of(m, ATTN "q_norm.weight", 0), -1);
    m = elaborate(TEST_DATA "/import/transformers-4/llama-default");
    cr_expect_eq(dim_of(m, "model.layers.1.mlp.gate_proj.weight", 0), 80);
    cr_expect_eq(dim_of(m, "model.layers.2.mlp.gate_proj.weight", 0), -1);
}

static const hir_op *rope_table_of(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_op_at(m, op)->code == HIR_ROPE_TABLE_OP) return hir_op_at(m, op);
    return NULL;
}

Test(import_golden, rotary_scaling_reaches_the_graph) {
    const hir_op *op = rope_table_of(elaborate(TEST_DATA "/import/transformers-4/llama3"));
    cr_assert(op);
    cr_expect_str_eq(hir_attr_string(op, HIR_A_SCALING, ""), "llama3");
    cr_expect_eq(hir_attr_float(op, HIR_A_THETA, 0), 500000);
    cr_expect_eq(hir_attr_float(op, HIR_A_FACTOR, 0), 8);
    cr_expect_eq(hir_attr_float(op, HIR_A_HIGH_FREQ, 0), 4);
    cr_expect_eq(hir_attr_int(op, HIR_A_ORIGINAL, 0), 128);
    op = rope_table_of(elaborate(TEST_DATA "/import/transformers-5/llama-linear"));
    cr_expect_str_eq(hir_attr_string(op, HIR_A_SCALING, ""), "linear");
    cr_expect_eq(hir_attr_float(op, HIR_A_FACTOR, 0), 2);
}

/* Every activation and every bias is a spec that elaborates. */
Test(import_golden, generated_specs_elaborate) {
    static const char *const extras[] = {
        "\"hidden_act\": \"gelu\"",
        "\"hidden_act\": \"gelu_new\", \"mlp_bias\": true",
        "\"hidden_act\": \"relu\", \"attention_bias\": true",
        "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 1e20}",
        "\"attn_res_block_size\": 3",
        "\"residual\": {\"type\": \"attnres\", \"block_size_sublayers\": 100}",
    };
    char folder[] = "/tmp/hadal-golden-XXXXXX";
    cr_assert(mkdtemp(folder));
    const char *path = hd_path_join(arena, folder, "config.json");
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        const char *json = hd_printf(arena,
                                     "{\"model_type\": \"llama\", \"vocab_size\": 9, "
                                     "\"hidden_size\": 8, \"intermediate_size\": 5, "
                                     "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
                                     "\"rms_norm_eps\": 1, %s}",
                                     extras[i]);
        cr_assert(hd_write_file(arena, &diags, path, json, strlen(json)));
        elaborate(folder);
    }
    unlink(path);
    rmdir(folder);
}
