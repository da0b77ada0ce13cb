/* The importer: configs as transformers 4 and 5 write them (tests/import/ holds the files that
 * their save_pretrained wrote), and every kind of config that must be refused, by name. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/import.h"
#include "support/file.h"

static hd_arena *a;
static hd_diags d;
static char dir[] = "/tmp/hadal-import-XXXXXX";

static void setup(void) {
    a = hd_arena_new();
    hd_diags_init(&d, a);
    strcpy(dir + sizeof dir - 7, "XXXXXX");
    cr_assert(mkdtemp(dir));
}

static void teardown(void) {
    hd_arena_free(a);
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(import, .init = setup, .fini = teardown);

static char *saved(int version, const char *name) {
    return hd_printf(a, "%s/import/transformers-%d/%s", TEST_DATA, version, name);
}

static char *import_text(const char *json) {
    cr_assert(hd_write_file(a, &d, hd_path_join(a, dir, "config.json"), json, strlen(json)));
    return hfe_import(a, &d, dir);
}

static const char *messages(void) {
    hd_text t;
    hd_text_init(&t, a);
    for (size_t i = 0; i < d.list.n; i++)
        hd_diag_render(&d.list.at[i], false, &t);
    return t.at ? t.at : "(none)";
}

static const hd_diag *find_error(const char *part) {
    for (size_t i = 0; i < d.list.n; i++)
        if (strstr(d.list.at[i].message, part)) return &d.list.at[i];
    return NULL;
}

static void expect_has(const char *text, const char *part) {
    cr_assert(text, "%s", messages());
    cr_expect(strstr(text, part), "'%s' is not in:\n%s", part, text);
}

/* ---- accepted ------------------------------------------------------------------------------ */

static const char *const families[] = {"llama", "llama-default", "llama3",    "llama-linear",
                                       "qwen2", "qwen3",         "qwen3-bias"};
enum { N_FAMILIES = sizeof families / sizeof *families };

Test(import, both_versions_of_transformers_say_the_same) {
    for (int i = 0; i < N_FAMILIES; i++) {
        char *before = hfe_import(a, &d, saved(4, families[i]));
        char *now = hfe_import(a, &d, saved(5, families[i]));
        cr_assert(before && now, "%s: %s", families[i], messages());
        cr_expect_str_eq(before, now);
    }
    cr_expect_eq(d.list.n, 0);
}

Test(import, llama) {
    char *t = hfe_import(a, &d, saved(5, "llama"));
    expect_has(t, "model llama(\n    layers = 4,\n    hidden = 48,\n    heads = 4,\n"
                  "    kv_heads = 2,\n    head_dim = 12,\n    ff = 80,\n    vocab = 96,\n"
                  "    eps = 1e-06,\n    theta = 10000.0,\n) {\n");
    expect_has(t, "r = standard(embed(\"model.embed_tokens\", vocab, hidden))");
    expect_has(t, "attention(x, heads, kv_heads, head_dim, theta: theta)\n");
    expect_has(t, "r.write(swiglu(x, ff))");
    expect_has(t, "output logits = head(h, vocab)");
    t = hfe_import(a, &d, saved(4, "llama-default"));
    expect_has(t, "kv_heads = 4,");
}

Test(import, llama_with_everything) {
    char *t = hfe_import(a, &d, saved(4, "llama3"));
    expect_has(t, "    theta = 500000.0,\n    factor = 8.0,\n    low_freq_factor = 1.0,\n"
                  "    high_freq_factor = 4.0,\n    original_positions = 128,\n");
    expect_has(t, "rope_scaling: scaling,\n                qkv_bias: true, o_bias: true)");
    expect_has(t, "swiglu(x, ff, bias: true)");
    expect_has(t, "tied_head(h, vocab)");
    t = hfe_import(a, &d, saved(4, "llama-linear"));
    expect_has(t, "scaling = linear_scaling(factor)");
    expect_has(t, "factor = 2.0");
}

Test(import, qwen) {
    char *t = hfe_import(a, &d, saved(4, "qwen2"));
    expect_has(t, "theta: theta, qkv_bias: true)\n"); /* q, k, v always; o never */
    expect_has(t, "theta = 1000000.0");
    t = hfe_import(a, &d, saved(5, "qwen3"));
    expect_has(t, "head_dim = 16");
    expect_has(t, "theta: theta, qk_norm: true, eps: eps)\n");
    t = hfe_import(a, &d, saved(5, "qwen3-bias"));
    expect_has(t, "qk_norm: true, eps: eps, qkv_bias: true, o_bias: true)");
}

#define BASE(family)                                                                               \
    "{\"model_type\": \"" family "\", \"vocab_size\": 96, \"hidden_size\": 48,"                    \
    " \"intermediate_size\": 80, \"num_hidden_layers\": 4, \"num_attention_heads\": 4,"            \
    " \"rms_norm_eps\": 1e-6"

/* A small legal config with one field set; the path is FIELD or OBJECT.FIELD. */
static char *import_with(const char *family, const char *path, const char *value) {
    json_error_t error;
    json_t *root = json_loads(hd_printf(a, BASE("%s") "}", family), 0, &error);
    json_t *v = json_loads(value, JSON_DECODE_ANY, &error), *object = root;
    cr_assert(root && v, "%s", value);
    const char *dot = strchr(path, '.');
    if (dot) {
        char *name = hd_strndup(a, path, (size_t)(dot - path));
        object = json_object();
        json_object_set_new(root, name, object);
        path = dot + 1;
    }
    json_object_set_new(object, path, v);
    char *text = json_dumps(root, JSON_INDENT(2)), *kept = hd_strdup(a, text);
    free(text);
    json_decref(root);
    return import_text(kept);
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
        if (!plain[f]) plain[f] = import_text(hd_printf(a, BASE("%s") "}", cases[i][0]));
        char *t = import_with(cases[i][0], cases[i][1], cases[i][2]);
        cr_assert(t && plain[f], "%s: %s", cases[i][1], messages());
        cr_expect_str_eq(t, plain[f], "%s", cases[i][1]);
    }
    cr_expect_eq(d.list.n, 0, "%s", messages());
}

Test(import, activations) {
    expect_has(import_with("llama", "hidden_act", "\"gelu\""), "gate = gelu(linear(");
    expect_has(import_with("llama", "hidden_act", "\"gelu_pytorch_tanh\""), "gelu_tanh(linear(");
    expect_has(import_with("llama", "hidden_act", "\"relu\""), "gate = relu(linear(");
    expect_has(import_with("llama", "hidden_act", "\"gelu_new\""), "r.write(gated_mlp(x, ff))");
}

#define ATTNRES(size)                                                                              \
    "{\"type\": \"attnres\", \"block_size_sublayers\": " size ", \"normalization\": \"softmax\","  \
    " \"key_norm\": true, \"window\": null, \"num_heads\": 1, \"query\": \"learned\"}"

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
        char *folder = hd_path_join(a, dir, names[i][0]);
        mkdir(folder, 0700);
        const char *json = BASE("llama") "}";
        hd_write_file(a, &d, hd_path_join(a, folder, "config.json"), json, strlen(json));
        expect_has(hfe_import(a, &d, folder), names[i][1]);
        cr_expect(hfe_is_folder_model(folder));
    }
    cr_expect_not(hfe_is_folder_model(dir));
    cr_expect_not(hfe_is_folder_model(TEST_DATA "/import/transformers-4/llama/config.json"));
}

/* ---- refused ------------------------------------------------------------------------------- */

Test(import, refused_values_are_named) {
    static const struct {
        const char *family, *path, *value, *error;
    } cases[] = {
        {"mistral", "use_cache", "true", "model_type: \"mistral\" cannot be imported"},
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
        {"llama", "tie_word_embeddings", "1", "tie_word_embeddings: must be true or false"},
        {"llama", "attention_bias", "null", "attention_bias: must be true or false"},
        {"llama", "mlp_bias", "\"no\"", "mlp_bias: must be true or false"},
        {"llama", "rope_theta", "0", "rope_theta: must be a number above 0"},
        {"llama", "rope_theta", "\"x\"", "rope_theta: must be a number above 0"},
        {"llama", "rope_scaling", "2.0", "rope_scaling: must be null or an object"},
        {"llama", "rope_scaling.type", "\"dynamic\"", "rope_scaling.type: \"dynamic\" cannot be"},
        {"llama", "rope_scaling.rope_type", "\"yarn\"", "rope_scaling.rope_type: \"yarn\" cannot"},
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
        {"llama", "rope_parameters.mrope_section", "[1]",
         "unknown field 'rope_parameters.mrope_section'"},
        {"llama", "rope_parameters.partial_rotary_factor", "0.5",
         "rope_parameters.partial_rotary_factor: 0.5 cannot be honoured"},
        {"llama", "rope_parameters.attention_factor", "1.5", "attention_factor: 1.5 cannot be"},
        {"llama", "rope_parameters.rope_theta", "-1", "rope_parameters.rope_theta: must be"},
        {"llama", "partial_rotary_factor", "0.5", "partial_rotary_factor: 0.5 cannot be honoured"},
        {"llama", "layer_types", "[\"full_attention\"]", "has 1 entries for 4 layers"},
        {"llama", "layer_types", "\"full_attention\"", "layer_types: must be a list"},
        {"llama", "layer_types",
         "[\"full_attention\", \"chunked_attention\", \"full_attention\", \"full_attention\"]",
         "layer_types: \"chunked_attention\" of layer 1 cannot be honoured"},
        {"llama", "pretraining_tp", "2", "pretraining_tp: 2 cannot be honoured"},
        {"llama", "quantization_config", "{\"bits\": 4}",
         "quantization_config: {\"bits\": 4} cannot"},
        {"llama", "is_encoder_decoder", "true", "is_encoder_decoder: true cannot be honoured"},
        {"llama", "sliding_window", "128", "unknown field 'sliding_window'"},
        {"qwen2", "attention_bias", "true", "unknown field 'attention_bias'"},
        {"qwen3", "mlp_bias", "true", "unknown field 'mlp_bias'"},
        {"qwen2", "use_mrope", "true", "use_mrope: true cannot be honoured"},
        {"llama", "num_experts", "8", "unknown field 'num_experts'"},
        {"llama", "attn_res_block_size", "0", "attn_res_block_size: must be a whole number"},
        {"llama", "attn_res_block_size", "1.5", "attn_res_block_size: must be a whole number"},
        {"llama", "residual", "\"attnres\"", "residual: must be an object"},
        {"llama", "residual", "{}", "residual: the field 'type' is missing"},
        {"llama", "residual.type", "\"hyper-connections\"",
         "residual.type: \"hyper-connections\" cannot be honoured by this version"},
        {"llama", "residual.type", "\"attnres\"", "'block_size_sublayers' is missing"},
        {"llama", "residual", "{\"type\": \"standard\", \"alpha\": 2}",
         "unknown field 'residual.alpha'"},
        {"llama", "residual", "{\"type\": \"attnres\", \"block_size_sublayers\": 0}",
         "residual.block_size_sublayers: must be a whole number"},
        {"llama", "residual",
         "{\"type\": \"attnres\", \"block_size_sublayers\": 2, "
         "\"normalization\": \"sigmoid\"}",
         "residual.normalization: \"sigmoid\" cannot be honoured by this version"},
        {"llama", "residual",
         "{\"type\": \"attnres\", \"block_size_sublayers\": 2, \"key_norm\": false}",
         "residual.key_norm: false cannot be honoured"},
        {"llama", "residual", "{\"type\": \"attnres\", \"block_size_sublayers\": 1, \"window\": 3}",
         "residual.window: 3 cannot be honoured"},
        {"llama", "residual",
         "{\"type\": \"attnres\", \"block_size_sublayers\": 2, \"num_heads\": 4}",
         "residual.num_heads: 4 cannot be honoured"},
        {"llama", "residual",
         "{\"type\": \"attnres\", \"block_size_sublayers\": 2, \"query\": \"input\"}",
         "residual.query: \"input\" cannot be honoured"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&d, a);
        cr_expect_null(import_with(cases[i].family, cases[i].path, cases[i].value), "%s = %s",
                       cases[i].path, cases[i].value);
        const hd_diag *g = find_error(cases[i].error);
        cr_expect(g, "no '%s' in: %s", cases[i].error, messages());
        cr_expect(!g || g->code == HD_E_CONFIG);
        cr_expect_eq(d.errors, 1, "cascade: %s", messages());
    }
}

Test(import, llama3_scaling_needs_all_its_fields) {
    cr_expect_null(
        import_with("llama", "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}"));
    cr_expect(find_error("rope_scaling: the field 'low_freq_factor' is missing"));
    cr_expect(find_error("rope_scaling: the field 'high_freq_factor' is missing"));
    cr_expect(find_error("rope_scaling: the field 'original_max_position_embeddings' is missing"));
    cr_expect_eq(d.errors, 3);
}

Test(import, contradictions) {
    cr_expect_null(
        import_text(BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": " ATTNRES("3") "}"));
    cr_expect(find_error("3 sublayers contradict an attn_res_block_size of 2 layers"));
    cr_expect_null(import_text(
        BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": {\"type\": \"standard\"}}"));
    cr_expect(find_error("attn_res_block_size: contradicts the residual type standard"));
    cr_expect_null(import_text(
        BASE("llama") ", \"rope_theta\": 10000, \"rope_parameters\": {\"rope_theta\": 5000}}"));
    cr_expect(find_error("rope_parameters.rope_theta: contradicts the rope_theta outside"));
    cr_expect_null(import_text(
        BASE("llama") ", \"rope_scaling\": {\"type\": \"default\"}, \"rope_parameters\": "
                      "{\"rope_type\": \"linear\", \"factor\": 2}}"));
    cr_expect(find_error("rope_scaling: differs from rope_parameters"));
    cr_expect_null(import_text(BASE("qwen2") ", \"use_sliding_window\": true, \"sliding_window\": "
                                             "16, \"max_window_layers\": 2}"));
    cr_expect(find_error("use_sliding_window: true cannot be honoured"));
    cr_expect_null(hfe_import(a, &d, saved(4, "qwen2-sliding")));
    cr_expect(find_error("\"sliding_attention\" of layer 2 cannot be honoured"));
}

Test(import, missing_fields_are_all_listed) {
    cr_expect_null(import_text("{}"));
    static const char *const required[] = {
        "model_type",        "vocab_size",          "hidden_size", "intermediate_size",
        "num_hidden_layers", "num_attention_heads", "rms_norm_eps"};
    for (size_t i = 0; i < sizeof required / sizeof *required; i++)
        cr_expect(find_error(hd_printf(a, "the field '%s' is missing", required[i])));
    cr_expect_eq(d.errors, sizeof required / sizeof *required, "%s", messages());
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
    cr_expect_eq(d.errors, 3);
    const hd_diag *g = find_error("unknown field 'vocab_sise'");
    cr_assert(g && g->hint);
    cr_expect_str_eq(g->hint, "did you mean 'vocab_size'?");
    cr_expect(g->loc.line == 3 && g->loc.column == 3 && g->loc.end_column == 15);
    cr_expect_str_eq(g->source_line, "  \"vocab_sise\": 96,");
    g = find_error("vocab_size: must be");
    cr_assert(g);
    cr_expect(g->loc.line == 4 && g->loc.column == 17 && g->loc.end_column == 19);
    g = find_error("unknown field 'residual.key_nrom'");
    cr_assert(g && g->hint);
    cr_expect(g->loc.line == 12 && g->loc.column == 16);
}

Test(import, thirty_faults_are_thirty_messages) {
    hd_text t;
    hd_text_init(&t, a);
    hd_text_add(&t, BASE("llama"));
    for (int i = 0; i < 30; i++)
        hd_text_f(&t, ", \"zz%d\": 1", i);
    hd_text_add(&t, "}");
    cr_expect_null(import_text(t.at));
    cr_expect_eq(d.list.n, 30);
}

Test(import, other_families_bring_one_error) {
    cr_expect_null(import_text(BASE("llamma") ", \"num_experts\": 8, \"q_lora_rank\": 3}"));
    cr_expect_eq(d.errors, 1, "%s", messages());
    cr_expect_str_eq(d.list.at[0].hint, "did you mean 'llama'?");
}

Test(import, files_that_are_no_config) {
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "not legal JSON"},
        {"{", "not legal JSON"},
        {"[]", "not a JSON object"},
        {BASE("llama") ", \"vocab_size\": 7}", "duplicate object key"},
        {BASE("llama") ", \"head_dim\": 99999999999999999999}", "too big integer"},
        {BASE("llama") ", \"rope_theta\": 1e999}", "real number overflow"},
        {BASE("llama") ", \"rope_theta\": NaN}", "not legal JSON"},
        {BASE("llama") ", \"\\u001b[31m\": 1}", "unknown field '\\x1b[31m'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&d, a);
        cr_expect_null(import_text(cases[i].text));
        cr_expect(find_error(cases[i].error), "%s", messages());
    }
    char *deep = hd_alloc(a, 100001, 1);
    memset(deep, '[', 100000);
    hd_diags_init(&d, a);
    cr_expect_null(import_text(deep));
    cr_expect(find_error("depth"), "%s", messages());
    hd_diags_init(&d, a);
    unlink(hd_path_join(a, dir, "config.json"));
    cr_expect_null(hfe_import(a, &d, dir));
    cr_expect(find_error("holds no config.json"));
    cr_expect_null(hfe_import(a, &d, "/nonexistent"));
    cr_expect_eq(d.errors, 2);
}

/* ---- documentation ------------------------------------------------------------------------- */

Test(import, every_field_is_documented) {
    static const char *const names[] = {
#define F(name, families, kind, member, need, allowed, meaning) "`" name "`",
#include "frontend/import_fields.def"
#undef F
    };
    const char *doc = hd_read_text(a, &d, TEST_DATA "/../docs/importing.md", 1 << 20, NULL);
    cr_assert(doc);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        cr_expect(strstr(doc, names[i]), "%s is not in docs/importing.md", names[i]);
}
