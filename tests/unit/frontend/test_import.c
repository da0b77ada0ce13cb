/* The importer: configs as transformers 4 and 5 write them (tests/import/ holds the files that
 * their save_pretrained wrote), and every kind of config that must be refused, by name. */
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

#define ATTNRES(size)                                                                              \
    "{\"type\": \"attnres\", \"block_size_sublayers\": " size ", \"normalization\": \"softmax\","  \
    " \"key_norm\": true, \"window\": null, \"num_heads\": 1, \"query\": \"learned\"}"

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
        {"{\"type\": \"mgr\", \"num_streams\": 9}", "vocab, hidden), streams, eps: eps)\n"},
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

/* ---- refused ------------------------------------------------------------------------------- */

Test(import, rejected_parameters_of_residual_systems) {
    static const struct {
        const char *type, *fields, *error;
    } cases[] = {
        {"attnres", "\"block_size_sublayers\": 1, \"normalization\": \"soft\"",
         "residual.normalization: \"soft\" cannot be honoured"},
        {"attnres", "\"block_size_sublayers\": 1, \"normalization\": null", "normalization: null"},
        {"attnres", "\"block_size_sublayers\": 1, \"key_norm\": 1", "must be true or false"},
        {"attnres", "\"block_size_sublayers\": 2, \"window\": 3",
         "needs a block_size_sublayers of 1"},
        {"attnres", "\"block_size_sublayers\": 1, \"window\": 0", "residual.window: must be"},
        {"attnres", "\"block_size_sublayers\": 1, \"num_heads\": 0", "residual.num_heads: must be"},
        {"attnres", "\"block_size_sublayers\": 1, \"num_heads\": 5",
         "5 does not divide the hidden"},
        {"attnres", "\"block_size_sublayers\": 1, \"num_heads\": 2, \"query\": \"input\"",
         "several heads need a learned query"},
        {"attnres", "\"block_size_sublayers\": 1, \"query\": \"none\", \"key_norm\": true",
         "key_norm must be false"},
        {"attnres", "\"block_size_sublayers\": 1, \"query\": \"none\"", "key_norm must be false"},
        {"attnres", "\"block_size_sublayers\": 1, \"query\": \"no\"", "query: \"no\" cannot be"},
        {"rezero", "\"alpha\": 1", "unknown field 'residual.alpha'"},
        {"deepnorm", "\"beta\": 1", "the field 'alpha' is missing"},
        {"deepnorm", "\"alpha\": \"2\"", "residual.alpha: must be a number that f32 holds"},
        {"keel", "\"alpha\": null", "residual.alpha: must be a number that f32 holds"},
        {"siamesenorm", "\"depth_scale\": true", "the field 'input_norm' is missing"},
        {"siamesenorm", "\"depth_scale\": 0, \"input_norm\": true", "must be true or false, not 0"},
        {"mrla", "\"form\": \"heavy\", \"num_heads\": 2", "form: \"heavy\" cannot be"},
        {"mrla", "\"form\": \"base\", \"num_heads\": 5", "5 does not divide the hidden_size"},
        {"ancre", "\"unit\": \"layer\", \"temperature\": 0", "residual.temperature: must be"},
        {"ancre", "\"temperature\": 1", "the field 'unit' is missing"},
        {"dreamer", "\"num_heads\": 1, \"head_dim\": 3, \"depth_rope_theta\": 2",
         "heads of 3 entries cannot be rotated"},
        {"dreamer", "\"num_heads\": 1, \"head_dim\": 3, \"loops\": 0", "residual.loops: must be"},
        {"densenet", "\"growth\": 1", "unknown field 'residual.growth'"},
        {"mgr", "\"num_streams\": 0", "residual.num_streams: must be a whole number from 1"},
        {"mgr", "\"num_streams\": 1025", "must be a whole number from 1 to 1024"},
        {"mgr", "\"num_streams\": true", "residual.num_streams: must be a whole number"},
        {"mgr", "\"streams\": 4", "unknown field 'residual.streams'"},
        {"realformer", "\"norm\": \"both\", \"scores\": \"sum\"",
         "norm: \"both\" cannot be honoured"},
        {"realformer", "\"norm\": \"pre\", \"scores\": \"max\"",
         "scores: \"max\" cannot be honoured"},
        {"realformer", "\"norm\": \"pre\", \"scores\": null", "residual.scores: null"},
        {"realformer", "\"norm\": \"pre\"", "the field 'scores' is missing"},
        {"realformer", "\"scores\": \"sum\"", "the field 'norm' is missing"},
        {"realformer", "\"norm\": \"pre\", \"scores\": \"sum\", \"alpha\": 1",
         "unknown field 'residual.alpha'"},
        {"lime", "\"heads\": 4", "unknown field 'residual.heads'"},
        {"hybridnorm", "\"first_block\": \"post\"", "first_block: \"post\" cannot be honoured"},
        {"hybridnorm", "\"first_block\": null", "first_block: null"},
        {"hybridnorm", "\"norm\": \"pre\"", "the field 'first_block' is missing"},
        {"hybridnorm", "\"first_block\": \"pre\"", "queries and keys have no norm in this family"},
        {"laurel-lr", "\"rank\": 0", "residual.rank: must be a whole number from 1"},
        {"value-residual", "\"lambda_first\": 1", "the field 'lambda_own' is missing"},
        {"denseformer", "\"dilation\": 0, \"period\": 1", "residual.dilation: must be"},
        {"denseformer", "\"dilation\": 1, \"period\": 0", "residual.period: must be"},
        {"muddformer", "\"expand_last\": true", "the field 'round64' is missing"},
        {"hyper-connections", "\"num_streams\": 0", "residual.num_streams: must be"},
        {"hyper-connections", "\"num_streams\": 2.5", "not 2.5"},
        {"hyper-connections", "\"num_stream\": 2", "unknown field 'residual.num_stream'"},
        {"mhc", "\"num_streams\": 2, \"sinkhorn_iters\": 0, \"hc_eps\": 0, \"post_mult\": 1",
         "residual.sinkhorn_iters: must be"},
        {"mhc", "\"num_streams\": 2, \"sinkhorn_iters\": 1, \"hc_eps\": -1, \"post_mult\": 1",
         "residual.hc_eps: must be a number that f32 holds, 0 or above"},
        {"mhc-lite", "\"num_streams\": -4", "residual.num_streams: must be"},
        {"mhc-lite", "\"num_streams\": 7", "more than 6 streams"},
        {"ddl", "\"value_channels\": 0, \"k_eps\": 1, \"v_sigmoid_scale\": 1",
         "value_channels: must"},
        {"ddl", "\"value_channels\": 2, \"k_eps\": 1, \"v_sigmoid_scale\": 1",
         "the field 'conv_kernel' is missing"},
        {"ddl", "\"value_channels\": 2, \"conv_kernel\": 3, \"k_eps\": 1, \"v_sigmoid_scale\": 1",
         "3 is more than the 2 value channels"},
        {"ddl", "\"value_channels\": 1, \"conv_kernel\": 1, \"k_eps\": 1, \"v_sigmoid_scale\": 1",
         "a single value channel has no convolution"},
        {"depth-attention", "\"stride\": 1, \"recent_window\": 0, \"loops\": 257",
         "residual.loops: must be a whole number from 1 to 256, not 257"},
        {"mhc", "\"num_streams\": 4, \"sinkhorn_iters\": 100000, \"hc_eps\": 0, \"post_mult\": 2",
         "residual.sinkhorn_iters: must be a whole number from 1 to 1000, not 100000"},
        {"mhc", "\"num_streams\": 4, \"sinkhorn_iters\": 2, \"hc_eps\": 1e300, \"post_mult\": 2",
         "residual.hc_eps: must be a number that f32 holds, 0 or above, not 1e300"},
        {"hyper-connections", "\"num_streams\": 1025", "must be a whole number from 1 to 1024"},
        {"ddl",
         "\"value_channels\": 1025, \"conv_kernel\": 2, \"k_eps\": 0, \"v_sigmoid_scale\": 1",
         "must be a whole number from 1 to 1024"},
        {"depth-attention", "\"stride\": 0, \"recent_window\": 0", "residual.stride: must be"},
        {"depth-attention", "\"stride\": 1, \"recent_window\": -1",
         "residual.recent_window: must be a whole number from 0"},
        {"depth-attention", "\"stride\": 1, \"recent_window\": 0, \"loops\": 0", "loops: must be"},
        {"depth-attention", "\"stride\": 1, \"recent_window\": 0, \"k_norm_after_rope\": true",
         "keys have no norm in this family"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        const char *value =
            hd_printf(arena, "{\"type\": \"%s\", %s}", cases[i].type, cases[i].fields);
        cr_expect_null(import_with("llama", "residual", value), "%s", value);
        const hd_diag *g = find_message(cases[i].error);
        cr_expect(g, "no '%s' in: %s", cases[i].error, said());
        cr_expect(!g || (g->code == HD_E_CONFIG && g->loc.line > 0));
    }
    hd_diags_init(&diags, arena);
    cr_expect_null(import_text(
        BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": {\"type\": \"elmo\"}}"));
    cr_expect(find_message("contradicts the residual type elmo"));
}

/* Which families there are, and the page that knows most of the fields. */
Test(import, families_that_cannot_be_imported) {
    static const struct {
        const char *family, *hint;
        bool strange; /* a field that no page knows: then nothing is close */
    } cases[] = {
        {"mamba2", NULL, true},
        {"mistal", NULL, true},
        {"mistal", "did you mean 'mistral'? By its fields ", false},
        {"gpt_neox", "a page of your own in a folder DIR is found with -I DIR", false},
        {"qwen33", "did you mean 'qwen3'?", false},
        {"../families/llama", "the closest page is families/llama: it knows all fields;", false},
        {"common/decoder", "the closest page is families/llama", false},
        {"decoder", "the closest page is families/llama", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(hd_printf(
            arena,
            "{\"model_type\": \"%s\", %s\"vocab_size\": 96, \"hidden_size\": 48, "
            "\"intermediate_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
            "\"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-6}",
            cases[i].family, cases[i].strange ? "\"state_size\": 1, " : "")));
        cr_assert_eq(diags.list.n, 1, "fields of another family are not complained of: %s", said());
        const hd_diag *g = &diags.list.at[0];
        cr_expect_eq(g->loc.line, 1);
        cr_expect(strstr(g->cause, "`hadal families` lists those that there are"), "%s", g->cause);
        if (cases[i].hint)
            cr_expect(strstr(g->hint, cases[i].hint), "%s", g->hint);
        else
            cr_expect_null(g->hint, "%s", g->hint);
    }
}

#define GEMMA2                                                                                     \
    "\"vocab_size\": 256000, \"hidden_size\": 2304, \"intermediate_size\": 9216, "                 \
    "\"num_hidden_layers\": 26, \"num_attention_heads\": 8, \"num_key_value_heads\": 4, "          \
    "\"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", \"rms_norm_eps\": 1e-6, "    \
    "\"query_pre_attn_scalar\": 256, \"sliding_window\": 4096, \"rope_scaling\": null"

/* Gemma 3n knows all of these fields, too, but none of its own is there: those of its streams. */
Test(import, gemma_2_is_close_to_gemma_3_and_not_to_gemma_3n) {
    static const char *const configs[] = {
        "{\"model_type\": \"gemma2\", " GEMMA2 "}",
        "{\"model_type\": \"paligemma2\", \"text_config\": {\"model_type\": \"gemma2\", " GEMMA2
        "}, \"vision_config\": {}, \"projection_dim\": 256}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(configs[i]));
        cr_assert_eq(diags.list.n, 1, "%s", said());
        const char *hint = diags.list.at[0].hint;
        cr_expect(hint && strstr(hint, "the closest page is families/gemma3_text"), "%s", hint);
    }
}

/* Names that are spelled nearly as that of a page, or nothing like it, with fields that do not fit
 * any page: no page is named. */
Test(import, no_page_is_close_to_a_model_of_another_kind) {
    static const char *const configs[] = {
        "{\"model_type\": \"gemma3_txt\", \"streams\": 4, " GEMMA2 "}",
        "{\"model_type\": \"bart\", \"vocab_size\": 50265, \"d_model\": 768, "
        "\"num_hidden_layers\": 6, \"decoder_layers\": 6, \"is_encoder_decoder\": true}",
        "{\"model_type\": \"bert\", \"vocab_size\": 30522, \"hidden_size\": 768, "
        "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, \"intermediate_size\": 3072, "
        "\"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, \"layer_norm_eps\": 1e-12, "
        "\"type_vocab_size\": 2}",
        "{\"model_type\": \"llama4\", \"text_config\": 7, \"num_hidden_layers\": 4}",
        "{\"model_type\": \"llama_\"}", /* what every page needs is absent */
    };
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(configs[i]));
        cr_assert_eq(diags.list.n, 1, "%s", said());
        cr_expect_null(diags.list.at[0].hint, "%s\n%s", configs[i], diags.list.at[0].hint);
    }
}

/* A config whose model_type nobody knows is closest to its own family, by its fields and the names
 * of the folder's tensors. */
Test(import, a_family_is_closest_to_itself, .timeout = 300) {
    static const struct {
        const char *folder, *family;
    } cases[] = {{"llama", NULL},
                 {"qwen2", NULL},
                 {"qwen3", NULL},
                 {"mistral", NULL},
                 {"mixtral", NULL},
                 {"qwen3_moe", NULL},
                 {"olmo2", NULL},
                 {"olmo3", NULL},
                 {"granite", NULL},
                 {"phi3", NULL},
                 {"gpt_oss", NULL},
                 {"glm4_moe", NULL},
                 {"smollm3", NULL},
                 {"deepseek_v3", NULL},
                 {"gemma3_text", NULL},
                 {"gemma4", NULL},
                 {"zaya", NULL},
                 {"beam", NULL},
                 {"inkling2_text", NULL},
                 {"hy_v4", NULL},
                 {"kimi_linear", NULL},
                 {"qwen3_next", NULL},
                 {"qwen3_5_text", NULL},
                 {"longcat_flash", NULL},
                 {"minimax", NULL},
                 {"muse_spark", NULL},
                 {"step3p7", NULL},
                 {"mimo_v2_flash", NULL},
                 {"bailing_hybrid", NULL},
                 {"deepseek_v4", NULL},
                 {"berrylm", NULL},
                 {"inkling2_loop_text", NULL},
                 {"deepseek_v41_text", NULL},
                 {"dory", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *of = cases[i].family ? cases[i].family : cases[i].folder;
        char *path = hd_printf(arena, "%s/published/%s", TEST_DATA, cases[i].folder);
        json_error_t error;
        json_t *config = json_load_file(hd_path_join(arena, path, "config.json"), 0, &error);
        cr_assert(config, "%s", path);
        json_object_set_new(config, "model_type", json_string("nobody_knows_it"));
        char *text = json_dumps(config, 0);
        unlink(in_folder("model.safetensors"));
        cr_assert_eq(
            symlink(hd_path_join(arena, path, "model.safetensors"), in_folder("model.safetensors")),
            0);
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(text));
        free(text);
        json_decref(config);
        const hd_diag *g = find_message("cannot be imported by this version");
        cr_assert(g && g->hint, "%s: %s", of, said());
        const char *want = hd_printf(arena, "closest page is families/%s: it knows all fields", of);
        cr_expect(strstr(g->hint, want), "%s: %s", of, g->hint);
    }
    unlink(in_folder("model.safetensors"));
}

/* A page that knows the fields and not what they say is a beginning of a page, and no other name of
 * the family. */
Test(import, a_page_that_does_not_take_all_values) {
#define DEEPSEEK(scores)                                                                           \
    "{\"model_type\": \"deepseek_v2\", \"vocab_size\": 96, \"hidden_size\": 48, "                  \
    "\"intermediate_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "            \
    "\"num_key_value_heads\": 4, \"q_lora_rank\": null, \"kv_lora_rank\": 16, "                    \
    "\"qk_nope_head_dim\": 16, \"qk_rope_head_dim\": 8, \"v_head_dim\": 16, "                      \
    "\"n_routed_experts\": 8, \"n_shared_experts\": 2, \"num_experts_per_tok\": 2, "               \
    "\"moe_intermediate_size\": 32, \"first_k_dense_replace\": 1, \"n_group\": 1, "                \
    "\"topk_group\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 1.0, "                \
    "\"scoring_func\": \"" scores "\"}"
    cr_expect_null(import_text(DEEPSEEK("softmax")));
    cr_expect(strstr(diags.list.at[0].hint,
                     "the closest page is families/deepseek_v3: it knows all "
                     "fields, though not each value;"),
              "%s", said());
    cr_expect_not(strstr(diags.list.at[0].hint, "did you mean"), "%s", said());
    hd_diags_init(&diags, arena);
    cr_expect_null(import_text(DEEPSEEK("sigmoid")));
    cr_expect(strstr(diags.list.at[0].hint, "did you mean 'deepseek_v3'?"), "%s", said());
}

/* Where the language model lies in an object, its fields are compared; a name that is nearly so
 * does not hide the page that the fields are closest to. */
Test(import, the_closest_family_of_a_wrapped_model) {
    static const struct {
        const char *config, *hint;
    } cases[] = {
        {"{\"model_type\": \"qwen3_vl\", \"vision_config\": {\"depth\": 2}, \"text_config\": "
         "{\"model_type\": \"qwen3_vl_text\", \"vocab_size\": 96, \"hidden_size\": 48, "
         "\"intermediate_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
         "\"head_dim\": 16, \"rope_theta\": 5e6, \"rope_scaling\": {\"rope_type\": \"default\"}, "
         "\"use_sliding_window\": false, \"max_window_layers\": 4}}",
         "the closest page is families/qwen3: it knows all fields of text_config;"},
        {"{\"model_type\": \"gemma5\", \"vision_config\": {}, \"audio_token_id\": 3, "
         "\"text_config\": {\"model_type\": \"gemma5_text\", \"vocab_size\": 96, "
         "\"hidden_size\": 48, \"intermediate_size\": 64, \"num_hidden_layers\": 4, "
         "\"num_attention_heads\": 4, \"altup_num_inputs\": 4, \"laurel_rank\": 8}}",
         "the closest page is families/gemma3n: it knows all fields"},
        {"{\"model_type\": \"mixtral2\", \"vocab_size\": 96, \"hidden_size\": 48, "
         "\"intermediate_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
         "\"num_key_value_heads\": 2, \"num_local_experts\": 4, \"router_jitter_noise\": 0}",
         "did you mean 'mixtral'? Its page is the closest by its fields, too: families/mixtral"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(cases[i].config));
        cr_assert_eq(diags.list.n, 1, "%s", said());
        cr_expect(strstr(diags.list.at[0].hint, cases[i].hint), "%s", diags.list.at[0].hint);
    }
}

/* Without tensors the fields decide, and of equals the plainest family. */
Test(import, the_plainest_family_of_equals) {
    static const struct {
        const char *fields, *family;
    } cases[] = {
        {"", "llama"},
        {", \"head_dim\": 12, \"num_key_value_heads\": 2, \"rope_theta\": 1e6", "llama"},
        {", \"num_key_value_heads\": 2, \"num_local_experts\": 4, \"num_experts_per_tok\": 2",
         "mixtral"},
        {", \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, "
         "\"v_head_dim\": 8, \"n_routed_experts\": 64, \"moe_intermediate_size\": 8",
         "deepseek_v3"},
        {", \"attn_res_block_size\": 2", "llama"},
        {", \"embedding_multiplier\": 2.0, \"logits_scaling\": 2.0", "granite"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(hd_printf(
            arena,
            "{\"model_type\": \"nobody_knows_it\", \"vocab_size\": 96, \"hidden_size\": 48, "
            "\"intermediate_size\": 64, \"num_hidden_layers\": 4, \"num_attention_heads\": 4, "
            "\"rms_norm_eps\": 1e-6%s}",
            cases[i].fields)));
        const hd_diag *g = find_message("cannot be imported by this version");
        const char *want = hd_printf(arena, "families/%s: it knows all fields;", cases[i].family);
        cr_expect(g && g->hint && strstr(g->hint, want), "%s: %s", cases[i].family,
                  g && g->hint ? g->hint : said());
    }
}

/* The largest numbers that are taken. */
Test(import, numbers_with_an_end) {
    expect_has(import_with("qwen3", "num_hidden_layers", "10000"), "    layers = 10000,\n");
    expect_has(import_with("qwen3", "residual",
                           "{\"type\": \"depth-attention\", \"stride\": 4, \"recent_window\": 99, "
                           "\"loops\": 256}"),
               "    stride = 4,\n");
    cr_expect_eq(diags.list.n, 0, "%s", said());
    expect_has(import_with("qwen3", "residual",
                           "{\"type\": \"depth-attention\", \"stride\": 5, "
                           "\"recent_window\": 0}"),
               "    stride = 5,\n");
    cr_expect(strstr(said(), "residual.stride = 5 is beyond the 4 layers"), "%s", said());
    expect_has(import_with("qwen3", "residual",
                           "{\"type\": \"mhc\", \"num_streams\": 1024, \"sinkhorn_iters\": 1000, "
                           "\"hc_eps\": 3e38, \"post_mult\": -3e38}"),
               "    sinkhorn_iters = 1000,\n");
}

Test(import, rejected_values_are_named) {
    static const struct {
        const char *family, *path, *value, *error;
    } cases[] = {
        {"mamba", "use_cache", "true", "model_type: \"mamba\" cannot be imported"},
        {"llama", "model_type", "7", "model_type: 7 cannot be imported"},
        {"llama", "vocab_size", "0", "vocab_size: must be a whole number from 1 to 2147483647"},
        {"llama", "vocab_size", "-1", "vocab_size: must be a whole number"},
        {"llama", "vocab_size", "4294967296", "vocab_size: must be a whole number"},
        {"llama", "vocab_size", "96.0", "not 96.0"},
        {"llama", "vocab_size", "\"96\"", "not \"96\""},
        {"llama", "vocab_size", "true", "not true"},
        {"llama", "vocab_size", "null", "not null"},
        {"llama", "hidden_size", "[48]", "not [48]"},
        {"llama", "intermediate_size", "0", "intermediate_size: must be"},
        {"llama", "num_hidden_layers", "0", "num_hidden_layers: must be"},
        {"llama", "num_hidden_layers", "1000000",
         "num_hidden_layers: 1000000 layers are more than"},
        {"llama", "rms_norm_eps", "1e300", "rms_norm_eps: must be a number that f32 holds"},
        {"llama", "num_attention_heads", "5", "5 does not divide the hidden_size 48"},
        {"llama", "num_attention_heads", "16", "heads of 3 entries cannot be rotated"},
        {"llama", "num_key_value_heads", "3", "3 does not divide the 4 query heads"},
        {"llama", "num_key_value_heads", "0", "num_key_value_heads: must be"},
        {"llama", "head_dim", "7", "head_dim: heads of 7 entries cannot be rotated"},
        {"llama", "head_dim", "2147483646", "are more than 2147483647 in all"},
        {"llama", "rms_norm_eps", "0", "rms_norm_eps: must be a number above 0"},
        {"llama", "rms_norm_eps", "-1e-6", "rms_norm_eps: must be a number above 0"},
        {"llama", "rms_norm_eps", "\"1e-6\"", "rms_norm_eps: must be a number above 0"},
        {"llama", "hidden_act", "\"mish\"", "hidden_act: the activation \"mish\" is not known"},
        {"llama", "hidden_act", "3", "hidden_act: must be a string"},
        {"qwen2", "hidden_act", "\"situ\"", "hidden_act: the activation \"situ\" is not known"},
        {"qwen2", "activation_situ_beta", "2", "unknown field 'activation_situ_beta'"},
        {"llama", "tie_word_embeddings", "1", "tie_word_embeddings: must be true or false"},
        {"llama", "attention_bias", "null", "attention_bias: must be true or false"},
        {"llama", "mlp_bias", "\"no\"", "mlp_bias: must be true or false"},
        {"llama", "rope_theta", "0", "rope_theta: must be a number above 0"},
        {"llama", "rope_theta", "\"x\"", "rope_theta: must be a number above 0"},
        {"llama", "rope_theta", "1e-320", "rope_theta: must be a number that f32 holds, above 0"},
        {"llama", "rope_scaling", "2.0", "rope_scaling: must be null or an object"},
        {"llama", "rope_scaling.type", "\"dynamic\"", "rope_scaling.type: \"dynamic\" cannot be"},
        {"llama", "rope_scaling.rope_type", "\"ntk\"", "rope_scaling.rope_type: \"ntk\" cannot"},
        {"nanbeige", "rope_scaling.rope_type", "\"yarn\"",
         "the field 'max_position_embeddings' is missing: yarn goes by it"},
        {"nanbeige", "rope_scaling",
         "{\"rope_type\": \"yarn\", \"original_max_position_embeddings\": 64}",
         "'max_position_embeddings' is missing: yarn goes by it, where it has no factor"},
        {"llama", "rope_scaling",
         "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 64, "
         "\"beta_fast\": 0.5}",
         "rope_scaling.beta_fast: beta_slow must not be above beta_fast"},
        {"llama", "rope_scaling",
         "{\"rope_type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 64, "
         "\"attention_factor\": 0}",
         "rope_scaling.attention_factor: must be a number above 0"},
        {"llama", "rope_scaling",
         "{\"rope_type\": \"longrope\", \"factor\": 4, \"original_max_position_embeddings\": 64, "
         "\"short_factor\": [1]}",
         "rope_scaling: the field 'long_factor' is missing"},
        {"phi3", "rope_scaling",
         "{\"type\": \"su\", \"factor\": 4, \"original_max_position_embeddings\": 64, "
         "\"short_factor\": [1, 1, 1, 1, 1, 1], \"long_factor\": [1, 2]}",
         "rope_scaling.long_factor: 2 factors for 12 entries of a head that rotate"},
        {"phi3", "sliding_window", "0", "sliding_window: must be a whole number"},
        {"phi3", "sliding_window", "2.5", "sliding_window: must be a whole number"},
        {"phi3", "layer_types",
         "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]",
         "layer_types: \"sliding_attention\" of layer 1 cannot be honoured"},
        {"qwen2", "layer_types",
         "[\"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"]",
         "layer_types: layers of the kind \"sliding_attention\" need a window"},
        {"qwen2", "max_window_layers", "-1", "max_window_layers: must be a whole number from 0"},
        {"olmo3", "layer_types",
         "[\"full_attention\", \"chunked_attention\", \"full_attention\", \"full_attention\"]",
         "layer_types: \"chunked_attention\" of layer 1 cannot be honoured"},
        {"llama", "rope_parameters.full_attention", "{\"rope_type\": \"default\"}",
         "rope_parameters.full_attention: positions by kind of layer cannot be honoured"},
        {"olmo3", "rope_parameters", "{\"sliding_attention\": {\"rope_type\": \"linear\"}}",
         "rope_parameters.sliding_attention: the field 'factor' is missing"},
        {"olmo3", "rope_parameters",
         "{\"sliding_attention\": {\"rope_type\": \"yarn\", \"factor\": 4}}",
         "rope_parameters.sliding_attention: the rope_type \"yarn\" cannot be honoured"},
        {"olmo3", "rope_parameters", "{\"sliding\": {\"rope_type\": \"default\"}}",
         "unknown field 'rope_parameters.sliding'"},
        {"olmo3", "rope_parameters", "{\"full_attention\": {\"rope_theta\": 1}, \"rope\": 1}",
         "unknown field 'rope_parameters.rope'"},
        {"llama", "rope_scaling.rope_type", "\"linear\"", "the field 'factor' is missing"},
        {"llama", "rope_scaling", "{\"rope_type\": \"linear\", \"factor\": -2}",
         "rope_scaling.factor: must be a number above 0"},
        {"llama", "rope_scaling",
         "{\"rope_type\": \"linear\", \"type\": \"llama3\", \"factor\": 2}",
         "rope_scaling.type: contradicts rope_type"},
        {"llama", "rope_scaling",
         "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
         "\"high_freq_factor\": 1, \"original_max_position_embeddings\": 8192}",
         "rope_scaling.low_freq_factor: must be below"},
        {"llama", "rope_scaling",
         "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
         "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192.5}",
         "rope_scaling.original_max_position_embeddings: must be a whole number"},
        {"llama", "rope_scaling.factor", "2", "rope_scaling: the field 'rope_type' is missing"},
        {"llama", "rope_parameters.mrope_sections", "[1]",
         "unknown field 'rope_parameters.mrope_sections'"},
        {"llama", "rope_theta", "null", "rope_theta: must be a number above 0"},
        {"llama", "rope_parameters.partial_rotary_factor", "0.5",
         "rope_parameters.partial_rotary_factor: 0.5 cannot be honoured"},
        {"llama", "rope_parameters.attention_factor", "1.5", "attention_factor: 1.5 cannot be"},
        {"llama", "rope_parameters.rope_theta", "-1", "rope_parameters.rope_theta: must be"},
        {"llama", "partial_rotary_factor", "0.5", "partial_rotary_factor: 0.5 cannot be honoured"},
        {"llama", "layer_types", "[\"full_attention\"]", "has 1 entry for 4 layers"},
        {"llama", "layer_types", "\"full_attention\"", "layer_types: must be a list"},
        {"llama", "layer_types",
         "[\"full_attention\", \"chunked_attention\", \"full_attention\", \"full_attention\"]",
         "layer_types: \"chunked_attention\" of layer 1 cannot be honoured"},
        {"llama", "rope_interleaved", "true", "rope_interleaved: true cannot be honoured"},
        {"llama", "quantization_config", "{\"bits\": 4}",
         "quantization_config: the field 'quant_method' is missing"},
        {"llama", "is_encoder_decoder", "true", "is_encoder_decoder: true cannot be honoured"},
        {"llama", "sliding_window", "128", "unknown field 'sliding_window'"},
        {"qwen2", "mlp_bias", "true", "unknown field 'mlp_bias'"},
        {"qwen3", "mlp_bias", "true", "unknown field 'mlp_bias'"},
        {"qwen2", "use_mrope", "true", "use_mrope: true cannot be honoured"},
        {"llama", "num_experts", "8", "unknown field 'num_experts'"},
        {"llama", "attn_res_block_size", "0", "attn_res_block_size: must be a whole number"},
        {"llama", "attn_res_block_size", "1.5", "attn_res_block_size: must be a whole number"},
        {"llama", "residual", "\"attnres\"", "residual: must be an object"},
        {"llama", "residual", "{}", "residual: the field 'type' is missing"},
        {"llama", "residual.type", "\"anarchy\"",
         "residual.type: \"anarchy\" cannot be honoured by this version"},
        {"llama", "residual.type", "7", "residual.type: 7 cannot be honoured by this version"},
        {"llama", "residual.type", "\"attnres\"", "'block_size_sublayers' is missing"},
        {"llama", "residual", "{\"type\": \"standard\", \"alpha\": 2}",
         "unknown field 'residual.alpha'"},
        {"llama", "residual", "{\"type\": \"attnres\", \"block_size_sublayers\": 0}",
         "residual.block_size_sublayers: must be a whole number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_with(cases[i].family, cases[i].path, cases[i].value), "%s = %s",
                       cases[i].path, cases[i].value);
        const hd_diag *g = find_message(cases[i].error);
        cr_expect(g, "no '%s' in: %s", cases[i].error, said());
        cr_expect(!g || g->code == HD_E_CONFIG);
        cr_expect_eq(diags.errors, 1, "cascade: %s", said());
    }
}

Test(import, contradictions) {
    cr_expect_null(
        import_text(BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": " ATTNRES("3") "}"));
    cr_expect(find_message("3 sublayers contradict an attn_res_block_size of 2 layers"));
    cr_expect_null(import_text(
        BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": {\"type\": \"standard\"}}"));
    cr_expect(find_message("attn_res_block_size: contradicts the residual type standard"));
    cr_expect_null(import_text(
        BASE("llama") ", \"rope_theta\": 10000, \"rope_parameters\": {\"rope_theta\": 5000}}"));
    cr_expect(find_message("rope_parameters.rope_theta: contradicts the rope_theta outside"));
    cr_expect_null(import_text(
        BASE("llama") ", \"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": "
                      "{\"rope_type\": \"linear\", \"factor\": 2}}"));
    cr_expect(find_message("rope_scaling: differs from rope_parameters"));
}

Test(import, missing_fields_are_all_listed) {
    cr_expect_null(import_text("{}"));
    static const char *const required[] = {"model_type",        "vocab_size",
                                           "hidden_size",       "intermediate_size",
                                           "num_hidden_layers", "num_attention_heads"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        cr_expect(find_message(hd_printf(arena, "the field '%s' is missing", required[i])));
    cr_expect_eq(diags.errors, sizeof required / sizeof *required, "%s", said());
    /* nor is there a spec where the family alone is missing */
    cr_expect_null(
        import_text("{\"vocab_size\": 96, \"hidden_size\": 48, \"intermediate_size\": 64, "
                    "\"num_hidden_layers\": 2, \"num_attention_heads\": 4}"));
    cr_expect_eq(diags.errors, 1 + sizeof required / sizeof *required, "%s", said());
}

/* Hub configs leave out what is as in the family. */
Test(import, absent_fields_have_the_default_of_their_family) {
    static const char *const cases[][2] = {
        {"llama", "    eps = 1e-06,\n    theta = 10000.0,\n"},
        {"qwen2", "    eps = 1e-06,\n"},
        {"mistral", "    kv_heads = 8,\n"},
        {"olmo2", "    eps = 1e-05,\n"},
        {"phi3", "    eps = 1e-05,\n"},
        {"granite", "    logits_scaling = 1.0,\n"},
        {"smollm3", "    theta = 2000000.0,\n    rotates = [true, true, true, false, true],\n"},
        {"smollm3", "tied_head("},
        {"qwen3", "    head_dim = 128,\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_has(import_text(hd_printf(arena,
                                         "{\"model_type\": \"%s\", \"vocab_size\": 96, "
                                         "\"hidden_size\": 64, \"intermediate_size\": 64, "
                                         "\"num_hidden_layers\": 5, \"num_attention_heads\": 8%s}",
                                         cases[i][0], i == 2 ? ", \"sliding_window\": null" : "")),
                   cases[i][1]);
}

/* null is a value where transformers has one for it, which need not be that of an absent field. */
Test(import, null_is_not_absent) {
    cr_expect_null(import_text(BASE("mistral") "}"));
    cr_expect(find_message("8 does not divide the 4 query heads"));
    hd_diags_init(&diags, arena);
    char *t = import_text(BASE("mistral") ", \"num_key_value_heads\": null}");
    expect_lacks(t, "kv_heads = 8");
    t = import_text(BASE("qwen3") "}");
    expect_has(t, "head_dim = 128");
    t = import_with("qwen3", "head_dim", "null");
    expect_lacks(t, "head_dim = 128");
}

Test(import, all_faults_with_their_places) {
    cr_expect_null(import_text("{\n"
                               "  \"model_type\": \"qwen3\",\n"
                               "  \"vocab_sise\": 96,\n"
                               "  \"vocab_size\": -1, \"hidden_size\": 48,\n"
                               "  \"intermediate_size\": 80,\n"
                               "  \"num_hidden_layers\": 4,\n"
                               "  \"num_attention_heads\": 4,\n"
                               "  \"rms_norm_eps\": 1e-6,\n"
                               "  \"architectures\": [\"a}\\\"]\", {\"x\": [1]}],\n"
                               "  \"residual\": {\"type\": \"attnres\",\n"
                               "               \"block_size_sublayers\": 4,\n"
                               "               \"key_nrom\": true}\n"
                               "}\n"));
    cr_expect_eq(diags.errors, 3);
    const hd_diag *g = find_message("unknown field 'vocab_sise'");
    cr_assert(g && g->hint);
    cr_expect_str_eq(g->hint, "did you mean 'vocab_size'?");
    cr_expect(g->loc.line == 3 && g->loc.column == 3 && g->loc.end_column == 15);
    cr_expect_str_eq(g->source_line, "  \"vocab_sise\": 96,");
    g = find_message("vocab_size: must be");
    cr_assert(g);
    cr_expect(g->loc.line == 4 && g->loc.column == 17 && g->loc.end_column == 19);
    g = find_message("unknown field 'residual.key_nrom'");
    cr_assert(g && g->hint);
    cr_expect(g->loc.line == 12 && g->loc.column == 16);
}

Test(import, thirty_faults_are_thirty_messages) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, BASE("llama"));
    for (int i = 0; i < 30; i++)
        hd_text_f(&t, ", \"zz%d\": 1", i);
    hd_text_add(&t, "}");
    cr_expect_null(import_text(t.at));
    cr_expect_eq(diags.list.n, 30);
}

Test(import, other_families_bring_one_error) {
    cr_expect_null(import_text(BASE("llamma") ", \"num_experts\": 8, \"q_lora_rank\": 3}"));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect_null(diags.list.at[0].hint);
    hd_diags_init(&diags, arena);
    cr_expect_null(import_text(BASE("llamma") "}"));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect(strstr(diags.list.at[0].hint, "did you mean 'llama'? Its page is the closest"));
}

/* Slips of the keyboard are told from names that share words. */
Test(import, names_that_are_near) {
    static const struct {
        const char *field, *hint;
    } cases[] = {{"vocab_sise", "did you mean 'vocab_size'?"},
                 {"rope_thtea", "did you mean 'rope_theta'?"},
                 {"hidden_bias", NULL},
                 {"num_query_groups", NULL},
                 {"num_attention_groups", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(hd_printf(arena, BASE("llama") ", \"%s\": 1}", cases[i].field)));
        const hd_diag *g = find_message(hd_printf(arena, "unknown field '%s'", cases[i].field));
        cr_assert(g, "%s", said());
        cr_expect((g->hint == NULL) == (cases[i].hint == NULL), "%s", said());
        cr_expect(!g->hint || strcmp(g->hint, cases[i].hint) == 0, "%s", g->hint);
    }
}

/* What Python writes and JSON does not have, and numbers of any size: they stop no field that is not
 * read, and are no numbers for one that is. */
Test(import, numbers_of_python) {
    static const char *const numbers[] = {"NaN",
                                          "Infinity",
                                          "-Infinity",
                                          "1e999",
                                          "-1e999",
                                          "1000000000000000019884624838656",
                                          "[0.0, Infinity, -9223372036854775809]"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        hd_diags_init(&diags, arena);
        cr_expect(import_text(hd_printf(arena, BASE("llama") ", \"transformers_version\": %s}",
                                        numbers[i])),
                  "%s: %s", numbers[i], said());
        cr_expect_null(import_text(
            hd_printf(arena, BASE("llama") ", \"num_key_value_heads\": %s}", numbers[i])));
        const hd_diag *g = find_message("num_key_value_heads");
        cr_assert(g, "%s: %s", numbers[i], said());
        cr_expect_eq(g->loc.line, 1);
    }
    cr_expect_null(import_text("{\"a\": NaN,\n \"b\": 1e999, Infinite}"));
    const hd_diag *g = find_message("not legal JSON");
    cr_assert(g, "%s", said());
    cr_expect_eq(g->loc.line, 2);
    static const char *const wrong[] = {"{\"a\": NaNs}",
                                        "{\"a\": 01111111111111111111111}",
                                        "{\"a\": 1e999e}",
                                        "{\"a\": -}",
                                        "[NaN",
                                        "{NaN: 1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(wrong[i]), "%s", wrong[i]);
        cr_expect(find_message("not legal JSON"), "%s: %s", wrong[i], said());
    }
}

Test(import, files_that_are_no_config) {
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "not legal JSON"},
        {"{", "not legal JSON"},
        {"{\"model_type\":\"a\\u0000b\"}", "not legal JSON: a string holds the character \\u0000"},
        {"[]", "not a JSON object"},
        {BASE("llama") ", \"vocab_size\": 7}", "duplicate object key"},
        {BASE("llama") ", \"head_dim\": 99999999999999999999}", "head_dim: must be a whole number"},
        {BASE("llama") ", \"rope_theta\": 1e999}",
         "rope_theta: must be a number above 0, not \"1e999\""},
        {BASE("llama") ", \"rope_theta\": NaN}",
         "rope_theta: must be a number above 0, not \"NaN\""},
        {BASE("llama") ", \"\\u001b[31m\": 1}", "unknown field '\\x1b[31m'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(cases[i].text));
        cr_expect(find_message(cases[i].error), "%s", said());
    }
    char *deep = hd_alloc(arena, 100001, 1);
    memset(deep, '[', 100000);
    hd_diags_init(&diags, arena);
    cr_expect_null(import_text(deep));
    cr_expect(find_message("depth"), "%s", said());
    hd_diags_init(&diags, arena);
    unlink(in_folder("config.json"));
    cr_expect_null(import_folder(folder));
    cr_expect(find_message("holds no config.json"));
    cr_expect_null(import_folder("/nonexistent"));
    cr_expect_eq(diags.errors, 2);
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
