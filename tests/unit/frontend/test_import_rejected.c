/* The importer: configs that are rejected, each with a diagnostic that names the field, its place and
 * what may be there. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"
#define FOLDER "/tmp/hadal-import-rejected-XXXXXX"
#include "tests/unit/frontend/import_fixture.h"

TestSuite(import_rejected, .init = open_folder, .fini = close_folder);

Test(import_rejected, rejected_parameters_of_residual_systems) {
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

/* The largest numbers that are taken. */
Test(import_rejected, numbers_with_an_end) {
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
    cr_expect(strstr(said(), "residual.stride = 5 is beyond the number of layers, 4"), "%s", said());
    expect_has(import_with("qwen3", "residual",
                           "{\"type\": \"mhc\", \"num_streams\": 1024, \"sinkhorn_iters\": 1000, "
                           "\"hc_eps\": 3e38, \"post_mult\": -3e38}"),
               "    sinkhorn_iters = 1000,\n");
}

Test(import_rejected, rejected_values_are_named) {
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
        {"llama", "num_key_value_heads", "3", "3 does not divide the number of query heads, 4"},
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

Test(import_rejected, contradictions) {
    cr_expect_null(
        import_text(BASE("llama") ", \"attn_res_block_size\": 2, \"residual\": " ATTNRES("3") "}"));
    cr_expect(find_message("3 contradicts attn_res_block_size = 2, in layers"));
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

Test(import_rejected, missing_fields_are_all_listed) {
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
Test(import_rejected, absent_fields_have_the_default_of_their_family) {
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
Test(import_rejected, null_is_not_absent) {
    cr_expect_null(import_text(BASE("mistral") "}"));
    cr_expect(find_message("8 does not divide the number of query heads, 4"));
    hd_diags_init(&diags, arena);
    char *t = import_text(BASE("mistral") ", \"num_key_value_heads\": null}");
    expect_lacks(t, "kv_heads = 8");
    t = import_text(BASE("qwen3") "}");
    expect_has(t, "head_dim = 128");
    t = import_with("qwen3", "head_dim", "null");
    expect_lacks(t, "head_dim = 128");
}

Test(import_rejected, all_faults_with_their_places) {
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

Test(import_rejected, thirty_faults_are_thirty_messages) {
    hd_text t;
    hd_text_init(&t, arena);
    hd_text_add(&t, BASE("llama"));
    for (int i = 0; i < 30; i++)
        hd_text_f(&t, ", \"zz%d\": 1", i);
    hd_text_add(&t, "}");
    cr_expect_null(import_text(t.at));
    cr_expect_eq(diags.list.n, 30);
}

/* Slips of the keyboard are told from names that share words. */
Test(import_rejected, names_that_are_near) {
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
Test(import_rejected, numbers_of_python) {
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

Test(import_rejected, files_that_are_no_config) {
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
