/* The importer: configs as transformers 4 and 5 write them (tests/import/ holds the files that
 * their save_pretrained wrote), and the spec that is made of them. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/config/family.h"
#include "frontend/frontend.h"
#define FOLDER "/tmp/hadal-import-XXXXXX"
#include "tests/unit/frontend/import_fixture.h"

TestSuite(import, .init = open_folder, .fini = close_folder);

/* ---- accepted ------------------------------------------------------------------------------ */

static const char *const families[] = {"llama", "llama-default", "llama3",    "llama-linear",
                                       "qwen2", "qwen3",         "qwen3-bias"};
enum { N_FAMILIES = sizeof families / sizeof *families };

Test(import, both_versions_of_transformers_say_the_same) {
    for (int i = 0; i < N_FAMILIES; i++) {
        char *before = import_folder(saved(4, families[i]));
        char *now = import_folder(saved(5, families[i]));
        cr_assert(before && now, "%s: %s", families[i], said());
        cr_expect_str_eq(before, now);
    }
    cr_expect_eq(diags.list.n, 0);
}

Test(import, llama) {
    char *t = import_folder(saved(5, "llama"));
    expect_has(t, "model llama(\n    layers = 4,\n    hidden = 48,\n    heads = 4,\n"
                  "    kv_heads = 2,\n    head_dim = 12,\n    ff = 80,\n    vocab = 96,\n"
                  "    eps = 1e-06,\n    theta = 10000.0,\n) {\n");
    expect_has(t, "r = standard(embed(\"model.embed_tokens\", vocab, hidden))");
    expect_has(t, "attention(x, heads, kv_heads, head_dim, theta: theta)\n");
    expect_has(t, "r.write(swiglu(x, ff))");
    expect_has(t, "output logits = head(h, vocab)");
    t = import_folder(saved(4, "llama-default"));
    expect_has(t, "kv_heads = 4,");
}

Test(import, llama_with_everything) {
    char *t = import_folder(saved(4, "llama3"));
    expect_has(t, "    theta = 500000.0,\n    factor = 8.0,\n    low_freq_factor = 1.0,\n"
                  "    high_freq_factor = 4.0,\n    original_positions = 128,\n");
    expect_has(t, "rope_scaling: scaling, qkv_bias: true,\n                o_bias: true)");
    expect_has(t, "swiglu(x, ff, bias: true)");
    expect_has(t, "tied_head(h, vocab)");
    t = import_folder(saved(4, "llama-linear"));
    expect_has(t, "scaling = linear_scaling(factor)");
    expect_has(t, "factor = 2.0");
}

Test(import, qwen) {
    char *t = import_folder(saved(4, "qwen2"));
    expect_has(t, "theta: theta, qkv_bias: true)\n"); /* q, k, v always; o never */
    expect_has(t, "theta = 1000000.0");
    t = import_folder(saved(5, "qwen3"));
    expect_has(t, "head_dim = 16");
    expect_has(t, "theta: theta, qk_norm: true, eps: eps)\n");
    t = import_folder(saved(5, "qwen3-bias"));
    expect_has(t, "qk_norm: true, eps: eps, qkv_bias: true,\n                o_bias: true)");
}

Test(import, fields_that_change_nothing) {
    static const char *const cases[][3] = {
        {"qwen2", "sliding_window", "4096"},
        {"qwen2", "max_window_layers", "2"},
        {"qwen3", "use_sliding_window", "true"}, /* 4 layers; windows begin at layer 28 */
        {"qwen3", "layer_types",
         "[\"full_attention\", \"full_attention\", \"full_attention\", \"full_attention\"]"},
        {"qwen3", "layer_types", "null"},
        {"llama", "rope_scaling", "null"},
        {"llama", "rope_scaling", "{\"type\": \"default\"}"},
        {"llama", "rope_scaling", "{\"type\": \"default\", \"rope_type\": \"default\"}"},
        {"llama", "rope_parameters", "{\"rope_theta\": 10000}"},
        {"llama", "rope_parameters",
         "{\"rope_type\": \"default\", \"partial_rotary_factor\": 1.0}"},
        {"llama", "num_key_value_heads", "null"},
        {"llama", "head_dim", "null"},
        {"llama", "pretraining_tp", "1"},
        {"llama", "torch_dtype", "\"bfloat16\""},
        {"llama", "eos_token_id", "[1, 2]"},
        {"llama", "pad_token_id", "null"},
        {"llama", "transformers_version", "\"4.57.3\""},
        {"llama", "attention_dropout", "0.1"},
        {"llama", "hidden_act", "\"swish\""},
        {"llama", "residual", "{\"type\": \"standard\"}"},
        {"llama", "attn_res_block_size", "null"},
        {"llama", "pruned_heads", "{}"},
        {"llama", "quantization_config", "null"},
        {"llama", "is_decoder", "false"},
    };
    const char *plain[3] = {NULL};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int f = !strcmp(cases[i][0], "llama") ? 0 : !strcmp(cases[i][0], "qwen2") ? 1 : 2;
        if (!plain[f]) plain[f] = import_text(hd_printf(arena, BASE("%s") "}", cases[i][0]));
        char *t = import_with(cases[i][0], cases[i][1], cases[i][2]);
        cr_assert(t && plain[f], "%s: %s", cases[i][1], said());
        cr_expect_str_eq(t, plain[f], "%s", cases[i][1]);
    }
    cr_expect_eq(diags.list.n, 0, "%s", said());
}

Test(import, activations) {
    expect_has(import_with("llama", "hidden_act", "\"gelu\""), "gated_mlp(x, ff, gelu)");
    expect_has(import_with("llama", "hidden_act", "\"gelu_pytorch_tanh\""), "x, ff, gelu_tanh)");
    expect_has(import_with("llama", "hidden_act", "\"relu\""), "gated_mlp(x, ff, relu)");
    expect_has(import_with("llama", "hidden_act", "\"relu2\""), "gated_mlp(x, ff, squared_relu)");
    expect_has(import_with("llama", "hidden_act", "\"quick_gelu\""), "x, ff, quick_gelu)");
    expect_has(import_with("llama", "hidden_act", "\"gelu_python\""), "x, ff, gelu)");
    expect_has(import_with("llama", "hidden_act", "\"gelu_fast\""), "x, ff, gelu_tanh)");
    for (int i = 0; i < 2; i++)
        expect_has(import_with(i ? "llama" : "qwen3", "hidden_act", "\"situ\""),
                   "shared_mlp(x, ff, gate: soft_capped(1.0, none), name: \"mlp\")");
    expect_has(import_with("llama", "hidden_act", "\"gelu_new\""),
               "r.write(gated_mlp(x, ff, gelu_tanh))");
}

Test(import, ablations_of_attention_residuals) {
    char *t = import_with("qwen3", "residual",
                          "{\"type\": \"attnres\", \"block_size_sublayers\": 1, \"window\": 3,"
                          " \"normalization\": \"sigmoid\"}");
    expect_has(t, "    normalization = \"sigmoid\",\n    window = 3,\n) {");
    expect_has(t,
               "vocab, hidden), normalization: normalization, window: window,\n        eps: eps)");
    t = import_with("qwen3", "residual",
                    "{\"type\": \"attnres\", \"block_size_sublayers\": 3, \"num_heads\": 6}");
    expect_has(t, "    depth_heads = 6,\n) {");
    expect_has(t, "block_sublayers: block_sublayers, heads: depth_heads,");
    t = import_with("qwen3", "residual",
                    "{\"type\": \"attnres\", \"block_size_sublayers\": 1, \"query\": \"none\","
                    " \"key_norm\": false}");
    expect_has(t, "    key_norm = false,\n    query = \"none\",\n) {");
}

/* The residual object, a line of the spec that it gives, and what the pages need around it. */
Test(import, residual_systems) {
    static const char *const cases[][2] = {
        {"{\"type\": \"rezero\"}", "    x = r.read(\"residual\")\n"},
        {"{\"type\": \"layerscale\"}", "r = layerscale(embed("},
        {"{\"type\": \"highway\"}",
         "rmsnorm(r.read(\"mlp_residual\"), \"post_attention_layernorm\""},
        {"{\"type\": \"deepnorm\", \"alpha\": 2}", "    alpha = 2.0,\n"},
        {"{\"type\": \"keel\", \"alpha\": -0.5}", "hidden), alpha: alpha, eps: eps)"},
        {"{\"type\": \"siamesenorm\", \"depth_scale\": true, \"input_norm\": false}",
         "    depth_scale = true,\n    input_norm = false,\n"},
        {"{\"type\": \"laurel-lr\", \"rank\": 3}", "            r.write(y, x)\n"},
        {"{\"type\": \"value-residual\", \"lambda_first\": 0, \"lambda_own\": 1}",
         "    values = value_residual(first: first, own: own)\n"},
        {"{\"type\": \"realformer\", \"norm\": \"post\", \"scores\": \"mean\"}",
         "    r = realformer(embed(\"model.embed_tokens\", vocab, hidden), scores: \"mean\", eps: "
         "eps)\n"},
        {"{\"type\": \"realformer\", \"norm\": \"post\", \"scores\": \"sum\"}",
         "            x = r.read(\"attn_residual\")\n"},
        {"{\"type\": \"realformer\", \"norm\": \"pre\", \"scores\": \"sum\"}",
         "            x = rmsnorm(r.read(\"mlp_residual\"), \"post_attention_layernorm\", eps: "
         "eps)\n"},
        {"{\"type\": \"realformer\", \"norm\": \"pre\", \"scores\": \"sum\"}", "scores: r)\n"},
        {"{\"type\": \"lime\"}", "    memory = lime(\"attn_residual\")\n    for l in 0..layers {"},
        {"{\"type\": \"lime\"}", "eps: eps, memory: memory)\n"},
        {"{\"type\": \"hybridnorm\", \"first_block\": \"hybrid\"}",
         "            x = r.read(\"attn_residual\")\n"},
        {"{\"type\": \"hybridnorm\", \"first_block\": \"hybrid\"}", "eps: eps, values: r)\n"},
        {"{\"type\": \"hybridnorm\", \"first_block\": \"pre\"}",
         "x = if l == 0 { rmsnorm(r.read(\"attn_residual\"), "},
        {"{\"type\": \"mgr\", \"num_streams\": 9}",
         "vocab, hidden), streams, layers: layers, eps: eps)\n"},
        {"{\"type\": \"densenet\"}", "r = densenet(embed("},
        {"{\"type\": \"mrla\", \"form\": \"base\", \"num_heads\": 2}",
         "hidden), heads: layer_heads, eps: eps)"},
        {"{\"type\": \"mrla\", \"form\": \"table\", \"num_heads\": 2}",
         "r.read(\"attn_residual\")"},
        {"{\"type\": \"ancre\", \"unit\": \"layer\", \"temperature\": 0.5}",
         "r = ancre_layers(embed("},
        {"{\"type\": \"dreamer\", \"num_heads\": 2, \"head_dim\": 4, \"loops\": 2, "
         "\"depth_rope_theta\": 9}",
         "    loops = 2,\n    depth_theta = 9.0,\n"},
        {"{\"type\": \"elmo\"}", "r.result(\"model.residual\")"},
        {"{\"type\": \"denseformer\", \"dilation\": 3, \"period\": 2}", "    dilation = 3,\n"},
        {"{\"type\": \"muddformer\", \"expand_last\": false, \"round64\": true}",
         "            q, k, v = r.read_ways(\"input_layernorm\")\n"},
        {"{\"type\": \"hyper-connections\", \"num_streams\": 2}", "streams: streams, eps: eps)"},
        {"{\"type\": \"mhc\", \"num_streams\": 3, \"sinkhorn_iters\": 20, \"hc_eps\": 0, "
         "\"post_mult\": 1}",
         "    sinkhorn_iters = 20,\n    hc_eps = 0.0,\n    post_mult = 1.0,\n"},
        {"{\"type\": \"mhc-lite\", \"num_streams\": 3}", "use \"residual/mhc-lite\"\n"},
        {"{\"type\": \"ddl\", \"value_channels\": 1, \"k_eps\": 1e-5, \"v_sigmoid_scale\": 4}",
         "            r.write(swiglu(x, ff), x)\n"},
        {"{\"type\": \"ddl\", \"value_channels\": 3, \"conv_kernel\": 2, \"k_eps\": 1e-5, "
         "\"v_sigmoid_scale\": 4}",
         "    conv_kernel = 2,\n"},
        {"{\"type\": \"depth-attention\", \"stride\": 2, \"recent_window\": 0}",
         "values = depth_attention(layers, stride: stride, recent_window: recent_window)\n"
         "    for l in 0..layers {"},
        {"{\"type\": \"depth-attention\", \"stride\": 2, \"recent_window\": 0, \"loops\": 3, "
         "\"k_norm_after_rope\": true}",
         "    loop pass in 0..loops {\n        for l in 0..layers {\n            at \"model"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_has(import_with("qwen3", "residual", cases[i][0]), cases[i][1]);
    expect_has(import_with("qwen3", "residual", cases[sizeof cases / sizeof *cases - 1][0]),
               "eps: eps, k_norm_last: true,\n");
}

Test(import, attention_residuals) {
    char *t = import_with("qwen3", "attn_res_block_size", "2");
    expect_has(t, "use \"residual/attnres\"");
    expect_has(t, "    block_layers = 2,\n");
    expect_has(t, "attnres_block(embed(\"model.embed_tokens\", vocab, hidden), block_layers: "
                  "block_layers, eps: eps)");
    expect_has(t, "r.read(\"self_attention_res\")");
    expect_has(t, "r.result(\"model.output_attn_res\")");
    expect_has(import_with("qwen3", "residual", ATTNRES("3")), "    block_sublayers = 3,\n");
    expect_has(import_with("qwen3", "residual", ATTNRES("1")), "r = attnres_full(embed(");
    t = import_text(BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": " ATTNRES("4") "}");
    expect_has(t, "block_layers = 2");
}

Test(import, names_of_models) {
    static const char *const names[][2] = {{"good_Name2", "model good_Name2("},
                                           {"Qwen3-0.6B", "model Qwen3_0_6B("},
                                           {"7b", "model m_7b("},
                                           {"model", "model model_model("},
                                           {"standard", "model standard_model("},

                                           {"\xc3\xa9t\xc3\xa9", "model m___t__("}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *model = in_folder(names[i][0]);
        mkdir(model, 0700);
        const char *json = BASE("llama") "}";
        hd_write_file(arena, &diags, hd_path_join(arena, model, "config.json"), json, strlen(json));
        expect_has(import_folder(model), names[i][1]);
        cr_expect(hfe_is_folder_model(model));
    }
    cr_expect_not(hfe_is_folder_model(folder));
    cr_expect_not(hfe_is_folder_model(TEST_DATA "/import/transformers-4/llama/config.json"));
}

/* ---- documentation ------------------------------------------------------------------------- */

Test(import, families_are_documented) {
    hd_text made;
    hd_text_init(&made, arena);
    const char *doc = hd_read_text(arena, &diags, TEST_DATA "/../docs/families.md", 1 << 20, NULL);
    hfe_families_text(arena, &diags, &options, &made);
    cr_assert(doc && diags.errors == 0, "%s", said());
    cr_expect_str_eq(doc, made.at, "run: hadal families > docs/families.md");
}
