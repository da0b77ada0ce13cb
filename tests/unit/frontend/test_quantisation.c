/* `quantization_config`: the forms that checkpoints have, and everything about them that must be
 * refused at its place. */
#include <jansson.h>

#include "frontend/config/quantisation.h"

#define FOLDER "/tmp/hadal-quantisation-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(quantisation, .init = open_folder, .fini = close_folder);

static bool read_text(const char *json, hd_quantisation *out) {
    diags.errors = diags.list.n = 0;
    cr_assert(hd_write_file(arena, &diags, in_folder("config.json"), json, strlen(json)));
    return hfe_quantisation_of(arena, &diags, folder, out);
}

static hd_quantisation read(const char *config) {
    hd_quantisation q;
    const char *json = hd_printf(arena, "{\n \"quantization_config\": %s\n}", config);
    cr_assert(read_text(json, &q), "%s", said());
    cr_expect(q.given);
    return q;
}

static void reject(const char *config, const char *part) {
    hd_quantisation q;
    const char *json = hd_printf(arena, "{\n \"quantization_config\": %s\n}", config);
    cr_assert_not(read_text(json, &q), "no fault: %s", part);
    cr_expect(strstr(said(), part), "'%s' is not in:\n%s", part, said());
    cr_expect(strstr(said(), "config.json:2:"), "%s", said());
}

/* ---- ModelOpt ----------------------------------------------------------------------------------
 */

#define MODELOPT "{\"quant_method\": \"modelopt\", \"quant_algo\": "
#define WEIGHTS_OF(what)                                                                           \
    ", \"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"input_activations\": "       \
    "{\"dynamic\": false, \"num_bits\": 4, \"type\": \"float\", \"group_size\": 16}, "             \
    "\"weights\": {\"dynamic\": false, " what "}}}}"

static void expect_nvfp4(const hd_quantisation *q, bool rounds_activations) {
    const hd_quant_group *g = hd_find_group(q, HD_PACKING_NVFP4, "model.layers.1.mlp.up_proj");
    cr_assert(g);
    cr_expect(g->tile_known && g->tile.rows == 1 && g->tile.cols == 16);
    cr_expect_eq(q->rounds_activations, rounds_activations);
}

Test(quantisation, nvfp4_of_modelopt) {
    hd_quantisation q =
        read(MODELOPT
             "\"NVFP4\", \"kv_cache_scheme\": {\"dynamic\": false, \"num_bits\": 8, \"type\": "
             "\"float\"}, \"producer\": {\"name\": \"modelopt\", \"version\": \"0.47.0\"}, "
             "\"ignore\": [\"model.layers.0.self_attn*\", \"model.layers.*.mlp.gate\", "
             "\"lm_head\"]" WEIGHTS_OF("\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16"));
    expect_nvfp4(&q, true);
    cr_expect(q.rounds_cache);
    cr_expect(hd_find_modules(&q.ignore, "model.layers.0.self_attn.q_proj"));
    cr_expect(hd_find_modules(&q.ignore, "model.layers.7.mlp.gate"));
    cr_expect_not(hd_find_modules(&q.ignore, "model.layers.7.mlp.gate_proj"));
    cr_expect_not(hd_find_modules(&q.ignore, "model.layers.1.self_attn.q_proj"));
    q = read("{\"quant_algo\": \"W4A16_NVFP4\", \"group_size\": 16}");
    expect_nvfp4(&q, false);
    q = read(MODELOPT "\"MIXED_PRECISION\", \"quantized_layers\": {\"a\": {\"quant_algo\": "
                      "\"FP8\"}, \"b\": {\"quant_algo\": \"NVFP4\", \"group_size\": 16}}}");
    expect_nvfp4(&q, true);
    cr_expect(hd_find_group(&q, HD_PACKING_E4M3, "a"));
    q = read(MODELOPT "\"FP8\"" WEIGHTS_OF("\"num_bits\": 8, \"type\": \"float\""));
    cr_expect(hd_find_group(&q, HD_PACKING_E4M3, "a"));
    cr_expect_not(hd_find_group(&q, HD_PACKING_NVFP4, "a"));
    q = read(MODELOPT "\"NVFP4\", \"moe_quant_algo\": \"W4A16_NVFP4\"}");
    expect_nvfp4(&q, true);
}

/* One error that names the format, whatever else stands beside it. */
Test(quantisation, formats_of_modelopt) {
    reject(MODELOPT "\"NVFP4_AWQ\", \"awq_block_size\": 16, \"config_groups\": {}}",
           "quantization_config.quant_algo: \"NVFP4_AWQ\", a format of ModelOpt, is not read");
    cr_expect_eq(diags.errors, 1, "%s", said());
    reject("{\"quant_algo\": \"NVFP4_SVD\"}", "\"NVFP4_SVD\", a format of ModelOpt, is not read");
    reject(MODELOPT "\"W4A8_AWQ\"}",
           "formats of ModelOpt that are read: \"NVFP4\", \"W4A16_NVFP4\"");
    reject("{\"quant_method\": \"fp8\", \"quant_algo\": \"MIXED_PRECISION\", \"moe_quant_algo\": "
           "\"NVFP4\", \"group_size\": 16, \"ignore\": [], \"producer\": {}, \"quantized_layers\": "
           "{}}",
           "\"MIXED_PRECISION\", a format of ModelOpt, is not read with quant_method \"fp8\"");
    cr_expect_eq(diags.errors, 1, "%s", said());
    reject("{\"quant_method\": \"modelopt\"}", "an object without 'quant_algo'");
    reject("{\"quant_method\": \"fp8\", \"quant_algo\": 3}", "unknown field");
}

Test(quantisation, modelopt_rejected) {
    reject(MODELOPT "\"NVFP4\", \"group_size\": 32}", "group_size: 32 cannot be honoured");
    reject(MODELOPT "\"NVFP4\", \"something\": 1}", "unknown field");
    reject(MODELOPT "\"NVFP4\", \"moe_quant_algo\": \"INT4_AWQ\"}", "\"INT4_AWQ\", a format of");
    reject(MODELOPT "\"NVFP4\", \"has_zero_point\": true}", "has_zero_point: true cannot be");
    reject(MODELOPT "\"NVFP4\", \"pre_quant_scale\": true}", "pre_quant_scale: true cannot be");
    reject(MODELOPT "\"NVFP4\", \"ignore\": [1]}", "a list of strings");
    reject(MODELOPT "\"NVFP4\", \"config_groups\": []}", "must be an object");
    reject(MODELOPT "\"NVFP4\"" WEIGHTS_OF("\"num_bits\": 4, \"type\": \"float\", \"group_size\": "
                                           "32"),
           "weights of 4 bits, groups of 32 and type float are no format that is read");
    reject(MODELOPT "\"NVFP4\"" WEIGHTS_OF("\"num_bits\": 4, \"type\": \"int\", \"group_size\": "
                                           "16"),
           "type int are no format");
    reject(MODELOPT "\"NVFP4\"" WEIGHTS_OF("\"num_bits\": 4, \"group_size\": 16, \"symmetric\": "
                                           "false"),
           "symmetric: false cannot be honoured");
    reject(MODELOPT "\"NVFP4\"" WEIGHTS_OF("\"num_bits\": 4, \"rotated\": true"), "unknown field");
    reject(MODELOPT "\"MIXED_PRECISION\"}", "'quantized_layers' must be an object");
    reject(MODELOPT "\"MIXED_PRECISION\", \"quantized_layers\": {\"a\": {\"quant_algo\": "
                    "\"W4A8_AWQ\"}}}",
           "quantized_layers.a.quant_algo: \"W4A8_AWQ\", a format of ModelOpt, is not read");
    reject(MODELOPT "\"MIXED_PRECISION\", \"quantized_layers\": {\"a\": {\"quant_algo\": "
                    "\"NVFP4\", \"group_size\": 64}}}",
           "group_size: 64 cannot be honoured");
    reject(MODELOPT "\"MIXED_PRECISION\", \"quantized_layers\": {\"a\": 3}}", "must be an object");
}

static bool read_beside(const char *config, const char *beside, hd_quantisation *q) {
    char *path = in_folder("hf_quant_config.json");
    cr_assert(hd_write_file(arena, &diags, path, beside, strlen(beside)));
    return read_text(config, q);
}

static void reject_beside(const char *config, const char *beside, const char *part) {
    hd_quantisation q;
    cr_expect_not(read_beside(config, beside, &q), "no fault: %s", part);
    cr_expect(strstr(said(), part), "'%s' is not in:\n%s", part, said());
    cr_expect(strstr(said(), "hf_quant_config.json:1:"), "%s", said());
}

/* A folder whose config.json says nothing may have the format in a file of its own. */
Test(quantisation, a_format_in_a_file_beside) {
    hd_quantisation q;
    cr_assert(read_beside("{}",
                          "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": "
                          "{\"quant_algo\": \"NVFP4\", \"group_size\": 16, "
                          "\"kv_cache_quant_algo\": \"FP8\", \"exclude_modules\": [\"lm_head\"]}}",
                          &q),
              "%s", said());
    cr_expect(q.given && q.rounds_cache);
    expect_nvfp4(&q, true);
    cr_expect(strstr(q.loc.file, "hf_quant_config.json"));
    cr_expect(hd_find_modules(&q.ignore, "lm_head"));
    cr_expect_str_eq(q.ignore_field, "quantization.exclude_modules");
    cr_assert(read_beside("{\"quantization_config\": null}",
                          "{\"quantization\": {\"quant_algo\": \"W4A16_NVFP4\", \"group_size\": "
                          "16, \"kv_cache_quant_algo\": null}}",
                          &q));
    expect_nvfp4(&q, false);
    cr_expect_not(q.rounds_cache);
    cr_expect(read_beside("{}", "{\"quantization\": {\"quant_algo\": null}}", &q), "%s", said());
    cr_expect_not(q.given);
    cr_expect(read_beside("{\"quantization_config\": {\"quant_method\": \"mxfp4\"}}",
                          "{\"quantization\": {\"quant_algo\": \"FP8\"}}", &q),
              "config.json is the last word: %s", said());
    reject_beside("{}", "{\"quantization\": {\"quant_algo\": \"NVFP4_AWQ\"}}",
                  "\"NVFP4_AWQ\", a format of ModelOpt, is not read");
    reject_beside("{}", "{\"quantization\": {\"quant_algo\": \"NVFP4\", \"group_size\": 32}}",
                  "quantization.group_size: 32 cannot be honoured");
    reject_beside("{}", "{\"quantization\": {\"quant_algo\": \"NVFP4\", \"rotation\": 1}}",
                  "unknown field");
    reject_beside("{\"quantization_config\": " MODELOPT "\"NVFP4\"}}",
                  "{\"quantization\": {\"quant_algo\": \"FP8\"}}",
                  "this is not what config.json says: \"NVFP4\"");
    cr_expect_not(read_beside("{\"quantization_config\": null}", "{,}", &q));
    cr_expect(strstr(said(), "is not legal JSON"), "%s", said());
}

/* ---- NVFP4 of compressed-tensors --------------------------------------------------------------
 */

#define NVFP4(what, more)                                                                          \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\", "            \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"num_bits\": 4, " \
    "\"type\": \"float\", " what "}" more "}}}"

Test(quantisation, nvfp4_of_compressed_tensors) {
    hd_quantisation q =
        read(NVFP4("\"group_size\": 16, \"strategy\": \"tensor_group\", \"symmetric\": true, "
                   "\"dynamic\": false, \"scale_dtype\": \"torch.float8_e4m3fn\"",
                   ", \"input_activations\": {\"num_bits\": 4, \"type\": \"float\", "
                   "\"group_size\": 16, \"strategy\": \"tensor_group\", \"dynamic\": \"local\"}"));
    expect_nvfp4(&q, true);
    q = read(NVFP4("\"group_size\": 16, \"strategy\": \"tensor_group\"",
                   ", \"input_activations\": null, \"format\": \"nvfp4-pack-quantized\""));
    expect_nvfp4(&q, false);
    reject(NVFP4("\"group_size\": 32, \"strategy\": \"tensor_group\"", ""),
           "group_size: 32 cannot be honoured");
    reject(NVFP4("\"group_size\": 32", ""), "group_size: 32 cannot be honoured");
    reject(NVFP4("\"strategy\": \"tensor_group\"", ""), "the field 'group_size' is missing");
    reject(NVFP4("\"group_size\": 16, \"strategy\": \"channel\"", ""), "what shares a scale");
    reject(NVFP4("\"group_size\": 16, \"symmetric\": false, \"strategy\": \"tensor_group\"", ""),
           "has no zero points");
    reject(NVFP4("\"group_size\": 16, \"dynamic\": \"local\"", ""), "quantised at run time");
}

/* ---- FP8 and MXFP4 ------------------------------------------------------------------------- */

Test(quantisation, fp8) {
    hd_quantisation q =
        read("{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"activation_scheme\": "
             "\"dynamic\", \"weight_block_size\": [128, 64], \"scale_fmt\": \"ue8m0\", "
             "\"modules_to_not_convert\": [\"lm_head\", \"model.embed_tokens\"]}");
    cr_assert_eq(q.groups.n, 2);
    cr_expect_eq(q.groups.at[1].packing, HD_PACKING_MXFP4, "of experts, beside fp8");
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_E4M3);
    cr_expect(q.groups.at[0].tile_known);
    cr_expect_eq(q.groups.at[0].tile.rows, 128);
    cr_expect_eq(q.groups.at[0].tile.cols, 64);
    cr_expect(hd_find_modules(&q.ignore, "lm_head"));
    cr_expect_str_eq(q.ignore_field, "quantization_config.modules_to_not_convert");
    q = read("{\"quant_method\": \"fp8\", \"modules_to_not_convert\": null}");
    cr_expect_not(q.groups.at[0].tile_known);
}

Test(quantisation, fp8_rejected) {
#define FP8 "{\"quant_method\": \"fp8\", "
    reject(FP8 "\"fmt\": \"e5m2\"}", "quantization_config.fmt: \"e5m2\" cannot be honoured");
    reject(FP8 "\"weight_block_size\": [128]}", "must be a list of two sizes");
    reject(FP8 "\"weight_block_size\": [128, 0]}", "0 is no size of a group");
    reject(FP8 "\"weight_block_size\": [128, -1]}", "-1 is no size of a group");
    reject(FP8 "\"weight_block_size\": [128, 1e3]}", "1000.0 is no size of a group");
    reject(FP8 "\"weight_block_size\": [128, 99999999999]}", "99999999999 is no size of a group");
    reject(FP8 "\"weight_block_size\": 128}", "must be a list of two sizes");
    reject(FP8 "\"scale_fmt\": \"e5m3\"}", "allowed: \"ue8m0\", \"float\"");
    reject(FP8 "\"modules_to_not_convert\": \"lm_head\"}", "it must be a list of strings");
    reject(FP8 "\"modules_to_not_convert\": [1]}", "it must be a list of strings");
    reject(FP8 "\"bits\": 4}", "unknown field 'quantization_config.bits'");
}

Test(quantisation, mxfp4_in_blocks) {
    const hd_quantisation q = read("{\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": "
                                   "[\"model.layers.*.self_attn\"]}");
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_MXFP4);
    cr_expect(hd_find_modules(&q.ignore, "model.layers.3.self_attn.q_proj"));
    cr_expect(hd_find_group(&q, HD_PACKING_MXFP4, "model.layers.3.mlp.experts.down_proj"));
    cr_expect_not(hd_find_group(&q, HD_PACKING_INT4, "model.layers.3.mlp.experts.down_proj"));
    reject("{\"quant_method\": \"mxfp4\", \"fmt\": 1}", "unknown field");
}

Test(quantisation, mxfp8) {
    const hd_quantisation q = read("{\"quant_method\": \"mxfp8\"}");
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_E4M3);
    cr_expect_eq(q.groups.at[0].tile.cols, 32);
}

Test(quantisation, methods) {
    reject("{\"quant_method\": \"hqq\", \"bits\": 4}",
           "quantization_config.quant_method: \"hqq\" is not read");
    reject("{\"quant_method\": 4}", "4 is not read");
    reject("{\"bits\": 4}", "the field 'quant_method' is missing");
    reject("4", "this must be an object");
    reject("[]", "this must be an object");
    hd_quantisation q;
    cr_expect(read_text("{\"quantization_config\": null}", &q));
    cr_expect_not(q.given);
}

/* ---- compressed-tensors -------------------------------------------------------------------- */

#define WEIGHTS(more)                                                                              \
    "{\"num_bits\": 4, \"type\": \"int\", \"dynamic\": false, \"observer\": \"minmax\", "          \
    "\"observer_kwargs\": {}, " more "}"
#define GROUP(weights)                                                                             \
    "{\"targets\": [\"Linear\"], \"input_activations\": null, \"output_activations\": null, "      \
    "\"weights\": " weights "}"
#define COMPRESSED(group, more)                                                                    \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "                  \
    "\"quantization_status\": \"compressed\", \"kv_cache_scheme\": null, "                         \
    "\"global_compression_ratio\": null, \"config_groups\": {\"group_0\": " group "}" more "}"
#define BY_GROUP "\"strategy\": \"group\", \"group_size\": 32"

Test(quantisation, compressed_integers) {
    hd_quantisation q =
        read(COMPRESSED(GROUP(WEIGHTS(BY_GROUP ", \"symmetric\": false, \"actorder\": \"weight\"")),
                        ", \"ignore\": [\"lm_head\", \"re:.*gate$\"]"));
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_INT4);
    cr_expect_eq(q.groups.at[0].tile.rows, 1);
    cr_expect_eq(q.groups.at[0].tile.cols, 32);
    cr_expect_not(q.groups.at[0].symmetric);
    cr_expect(hd_find_modules(&q.ignore, "mlp.gate"));
    q = read(COMPRESSED(
        GROUP(WEIGHTS("\"strategy\": \"channel\", \"group_size\": null, \"symmetric\": true")),
        ""));
    cr_expect(q.groups.at[0].tile_known);
    cr_expect_eq(q.groups.at[0].tile.cols, 0);
    cr_expect(q.groups.at[0].symmetric);
}

Test(quantisation, widths_of_integers) {
    hd_quantisation q = read(COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ""));
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_INT4);
    q = read(COMPRESSED(GROUP("{\"num_bits\": 8, \"type\": \"int\", " BY_GROUP "}"), ""));
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_INT8);
    cr_expect_eq(q.groups.at[0].tile.cols, 32);
}

/* As Kimi K3 has it: in the part that is the language model, and with patterns. */
Test(quantisation, inside_the_language_model) {
    static const char inner[] =
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", "
        "\"config_groups\": {\"group_0\": {\"format\": \"mxfp4-pack-quantized\", \"targets\": "
        "[\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\", \"group_size\": 32, "
        "\"strategy\": \"group\", \"symmetric\": true, \"dynamic\": false, \"actorder\": null, "
        "\"block_structure\": null, \"observer\": \"minmax\", \"observer_kwargs\": {}, "
        "\"scale_dtype\": \"torch.uint8\", \"zp_dtype\": null}}}, "
        "\"ignore\": [\"re:.*self_attn.*\", \"re:.*mlp\\\\.(gate|up)_proj.*\"]}";
    hd_quantisation q;
    cr_assert(
        read_text(hd_printf(arena, "{\"text_config\": {\"quantization_config\": %s}}", inner), &q),
        "%s", said());
    cr_assert(q.given);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_MXFP4);
    cr_expect(hd_find_modules(&q.ignore, "model.layers.0.mlp.up_proj"));
    cr_expect(read_text(hd_printf(arena,
                                  "{\"quantization_config\": %s, \"text_config\": "
                                  "{\"quantization_config\": %s}}",
                                  inner, inner),
                        &q),
              "the same twice: %s", said());
    cr_expect_not(read_text(hd_printf(arena,
                                      "{\"quantization_config\": {\"quant_method\": \"fp8\"}, "
                                      "\"text_config\": {\"quantization_config\": %s}}",
                                      inner),
                            &q));
    cr_expect(strstr(said(), "this is not what 'quantization_config' says"), "%s", said());
}

Test(quantisation, several_forms) {
    const hd_quantisation q =
        read("{\"quant_method\": \"compressed-tensors\", \"format\": \"mixed-precision\", "
             "\"config_groups\": {"
             "\"a\": {\"format\": \"float-quantized\", \"targets\": [\"re:.*self_attn.*\"], "
             "\"weights\": "
             "{\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"block\", \"block_structure\": "
             "[64, 32]}}, "
             "\"b\": {\"format\": \"pack-quantized\", \"targets\": [\"re:.*mlp.*\"], \"weights\": "
             "{\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"channel\"}}, "
             "\"c\": {\"targets\": [\"Linear\"], \"weights\": null, \"input_activations\": "
             "{\"num_bits\": 8}}}}");
    cr_assert_eq(q.groups.n, 2);
    cr_expect(hd_find_group(&q, HD_PACKING_E4M3, "l.0.self_attn.q_proj"));
    cr_expect_not(hd_find_group(&q, HD_PACKING_E4M3, "l.0.mlp.up_proj"));
    cr_expect(hd_find_group(&q, HD_PACKING_INT4, "l.0.mlp.up_proj"));
    cr_expect_eq(q.groups.at[0].tile.rows, 64);
}

#define INTEGERS(weights, more)                                                                    \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"int-quantized\", "                   \
    "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": " weights           \
    ", \"input_activations\": {\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"token\", "      \
    "\"dynamic\": true}}}" more "}"

/* As llm-compressor writes W8A8, with and without a quantised cache. */
Test(quantisation, bytes_of_integers) {
    hd_quantisation q = read(INTEGERS("{\"num_bits\": 8, \"type\": \"int\", \"symmetric\": true, "
                                      "\"group_size\": null, \"strategy\": \"channel\", "
                                      "\"block_structure\": null, \"dynamic\": false, "
                                      "\"actorder\": null, \"observer\": \"minmax\", "
                                      "\"observer_kwargs\": {}}",
                                      ""));
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_PLAIN8);
    cr_expect(q.groups.at[0].symmetric && q.groups.at[0].tile.cols == 0);
    cr_expect_eq(q.groups.at[0].tile.rows, 1);
    cr_expect_not(q.rounds_cache);
    q = read(INTEGERS("{\"num_bits\": 4, \"type\": \"int\", \"symmetric\": false, "
                      "\"strategy\": \"tensor\"}",
                      ", \"kv_cache_scheme\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": "
                      "\"tensor\", \"dynamic\": false, \"symmetric\": true}"));
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_PLAIN8);
    cr_expect_eq(q.groups.at[0].tile.rows, 0);
    cr_expect(q.rounds_cache);
    q = read("{\"quant_method\": \"compressed-tensors\", \"format\": \"naive-quantized\", "
             "\"config_groups\": {\"a\": {\"weights\": {\"num_bits\": 8, \"type\": \"int\"}}}}");
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_PLAIN8);
    q = read("{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", "
             "\"kv_cache_scheme\": \"static\", \"ignored_layers\": [\"lm_head\"]}");
    cr_expect(q.rounds_cache, "as AutoFP8 has it");
    q = read(COMPRESSED(GROUP(WEIGHTS(BY_GROUP ", \"actorder\": \"group\"")), ""));
    cr_expect_eq(q.groups.n, 1);
}

/* ---- GPTQ and AWQ --------------------------------------------------------------------------- */

/* As TheBloke's Llama-2-7B-Chat-GPTQ has it (quoted in Intel's neural-compressor). */
Test(quantisation, gptq) {
    hd_quantisation q =
        read("{\"bits\": 4, \"group_size\": 128, \"damp_percent\": 0.01, \"desc_act\": true, "
             "\"sym\": true, \"true_sequential\": true, \"model_name_or_path\": null, "
             "\"model_file_base_name\": \"model\", \"quant_method\": \"gptq\"}");
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_GPTQ4);
    cr_expect(q.groups.at[0].zeros_less_one, "the first format, which has no name");
    cr_expect_eq(q.groups.at[0].tile.cols, 128);
    q = read("{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": -1, "
             "\"checkpoint_format\": \"gptq_v2\", \"meta\": {\"quantizer\": [\"gptqmodel:2.0\"]}, "
             "\"pack_dtype\": \"int32\", \"lm_head\": false, \"dynamic\": null}");
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_GPTQ8);
    cr_expect_not(q.groups.at[0].zeros_less_one);
    cr_expect(q.groups.at[0].tile_known && q.groups.at[0].tile.cols == 0);
    static const char *const cases[][2] = {
        {"\"bits\": 3, \"group_size\": 128", "GPTQ is read with 4 or 8 bits"},
        {"\"group_size\": 128", "an object without 'bits'"},
        {"\"bits\": 4", "the field 'group_size' is missing"},
        {"\"bits\": 4, \"group_size\": 0", "0 is no size of a group"},
        {"\"bits\": 4, \"group_size\": -2", "-2 is no size of a group"},
        {"\"bits\": 4, \"group_size\": 128, \"checkpoint_format\": \"marlin\"",
         "checkpoint_format: \"marlin\" cannot be honoured"},
        {"\"bits\": 4, \"group_size\": 128, \"is_marlin_format\": true",
         "as Marlin's kernels want them"},
        {"\"bits\": 4, \"group_size\": 128, \"dynamic\": {\"-:x\": {}}", "another form"},
        {"\"bits\": 4, \"group_size\": 128, \"pack_dtype\": \"int16\"", "allowed: \"int32\""},
        {"\"bits\": 4, \"group_size\": 128, \"sym\": 1", "it must be true or false"},
        {"\"bits\": 4, \"group_size\": 128, \"colour\": 1", "unknown field"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        reject(hd_printf(arena, "{\"quant_method\": \"gptq\", %s}", cases[i][0]), cases[i][1]);
}

Test(quantisation, awq) {
    const hd_quantisation q =
        read("{\"bits\": 4, \"group_size\": 128, \"modules_to_not_convert\": [\"visual\"], "
             "\"quant_method\": \"awq\", \"version\": \"gemm\", \"zero_point\": true}");
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_AWQ);
    cr_expect_eq(q.groups.at[0].tile.cols, 128);
    cr_expect(hd_find_modules(&q.ignore, "visual.blocks.0.mlp"));
    static const char *const cases[][2] = {
        {"\"bits\": 8, \"group_size\": 128", "AWQ is read with 4 bits"},
        {"\"bits\": 4, \"group_size\": 128, \"version\": \"gemv\"",
         "version: \"gemv\" cannot be honoured"},
        {"\"bits\": 4, \"group_size\": 128, \"backend\": \"llm-awq\"",
         "backend: \"llm-awq\" cannot be honoured"},
        {"\"bits\": 4, \"group_size\": 128, \"zero_point\": false", "AWQ is read with zero points"},
        {"\"bits\": 4, \"version\": \"gemm\"", "the field 'group_size' is missing"},
        {"\"w_bit\": 4, \"group_size\": 128", "unknown field 'quantization_config.w_bit'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        reject(hd_printf(arena, "{\"quant_method\": \"awq\", %s}", cases[i][0]), cases[i][1]);
}

Test(quantisation, compressed_rejected) {
    static const char *const cases[][2] = {
        {COMPRESSED(GROUP("{\"num_bits\": 3, \"type\": \"int\", " BY_GROUP "}"), ""),
         "pack-quantized is read with num_bits 4 or 8"},
        {COMPRESSED(GROUP("{\"num_bits\": \"8\", \"type\": \"int\", " BY_GROUP "}"), ""),
         "num_bits: \"8\" cannot be honoured"},
        {COMPRESSED(GROUP("{\"type\": \"int\", " BY_GROUP "}"), ""), "weights without 'num_bits'"},
        {COMPRESSED(GROUP("{\"num_bits\": 4, \"type\": \"float\", " BY_GROUP "}"), ""),
         "allowed: \"int\""},
        {COMPRESSED(GROUP(WEIGHTS("\"strategy\": \"tensor\"")), ""),
         "allowed: \"group\", \"channel\""},
        {COMPRESSED(GROUP(WEIGHTS("\"strategy\": \"group\"")), ""),
         "the field 'group_size' is missing"},
        {COMPRESSED(GROUP(WEIGHTS("\"strategy\": \"group\", \"group_size\": 0")), ""),
         "0 is no size of a group"},
        {COMPRESSED(GROUP(WEIGHTS("\"strategy\": \"group\", \"group_size\": \"32\"")), ""),
         "\"32\" is no size"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP ", \"actorder\": \"column\"")), ""),
         "actorder: \"column\" cannot be honoured"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP ", \"symmetric\": 1")), ""), "it must be true or false"},
        {COMPRESSED(GROUP("{\"num_bits\": 4, \"type\": \"int\", \"dynamic\": true, " BY_GROUP "}"),
                    ""),
         "quantised at run time"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP ", \"rotation\": 1")), ""),
         "unknown field 'quantization_config.config_groups.group_0.weights.rotation'"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ", \"ignore\": \"lm_head\""),
         "it must be a list of strings"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ", \"transform_config\": {\"a\": 1}"),
         "stored rotated"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP)),
                    ", \"sparsity_config\": {\"format\": \"sparse-24-bitmask\"}"),
         "how zeros are stored; allowed: \"dense\""},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ", \"sparsity_config\": {\"targets\": []}"),
         "without their zeros"},
        {COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ", \"colour\": 1"),
         "unknown field 'quantization_config.colour'"},
        {COMPRESSED("4", ""), "config_groups.group_0: this must be an object"},
        {COMPRESSED("{\"weights\": 4}", ""),
         "config_groups.group_0.weights: this must be an object"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"marlin-24\", "
         "\"config_groups\": {\"a\": " GROUP(WEIGHTS(BY_GROUP)) "}}",
         "\"marlin-24\" is no format that is read"},
        {INTEGERS("{\"num_bits\": 6, \"type\": \"int\", \"strategy\": \"channel\"}", ""),
         "int-quantized is read with num_bits 8 or 4"},
        {INTEGERS("{\"num_bits\": {\"mlp\": 8}, \"type\": \"int\"}", ""),
         "int-quantized is read with num_bits 8 or 4"},
        {INTEGERS("{\"num_bits\": 8, \"type\": \"float\", \"strategy\": \"channel\"}", ""),
         "codes of int-quantized; allowed: \"int\""},
        {INTEGERS("{\"num_bits\": 8, \"type\": \"int\", \"strategy\": \"token\"}", ""),
         "allowed: \"block\", \"channel\", \"tensor\", \"group\""},
        {"{\"quant_method\": \"compressed-tensors\", \"config_groups\": {\"a\": " GROUP(
             WEIGHTS(BY_GROUP)) "}}",
         "a config without 'format' is no format"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\"}",
         "'config_groups' must be an object"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "
         "\"quantization_status\": \"calibration\", \"config_groups\": {}}",
         "\"calibration\" cannot be honoured"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", "
         "\"config_groups\": {\"a\": " GROUP("{\"num_bits\": 4, \"type\": \"float\", \"strategy\": "
                                             "\"group\", \"group_size\": 16}") "}}",
         "mxfp4-pack-quantized is read with group_size 32"},
        {"{\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", "
         "\"config_groups\": {\"a\": " GROUP(
             "{\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", \"group_size\": 32, "
             "\"symmetric\": false}") "}}",
         "has no zero points"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        reject(cases[i][0], cases[i][1]);
}

/* As the first programs that wrote the format have it. */
Test(quantisation, older_words) {
    hd_quantisation q =
        read("{\"quant_method\": \"compressed-tensors\", \"format\": \"naive-quantized\", "
             "\"quantization_status\": \"frozen\", \"ignore\": [\"lm_head\"], "
             "\"sparsity_config\": {\"format\": \"dense\", \"global_sparsity\": 0.14, "
             "\"sparsity_structure\": \"unstructured\", \"targets\": [\"Linear\"]}, "
             "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": "
             "{\"num_bits\": 8, \"strategy\": \"tensor\", \"type\": \"float\"}}}}");
    cr_assert_eq(q.groups.n, 1);
    cr_expect_eq(q.groups.at[0].packing, HD_PACKING_E4M3);
    q = read("{\"quant_method\": \"fp8\", \"activation_scheme\": \"static\", "
             "\"ignored_layers\": [\"lm_head\"]}");
    cr_expect(hd_find_modules(&q.ignore, "lm_head"));
    cr_expect_str_eq(q.ignore_field, "quantization_config.ignored_layers");
    reject("{\"quant_method\": \"mxfp8\", \"ignored_layers\": [\"lm_head\"], "
           "\"modules_to_not_convert\": []}",
           "this is not what 'quantization_config.modules_to_not_convert' says");
    reject("{\"quant_method\": \"fp8\", \"ignored_layers\": \"lm_head\"}",
           "it must be a list of strings");
}

/* Several groups of one form: names go before expressions, and those before classes, in whatever
 * order they stand; of two expressions the first in the alphabet counts. */
Test(quantisation, the_closest_group) {
#define FOUR(size) WEIGHTS("\"strategy\": \"group\", \"group_size\": " #size)
#define FOR(name, target, size)                                                                    \
    "\"" name "\": {\"targets\": [" target "], \"weights\": " FOUR(size) "}"
#define OF(groups)                                                                                 \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"pack-quantized\", "                  \
    "\"config_groups\": {" groups "}}"
    static const char *const configs[] = {
        OF(FOR("a", "\"Linear\"", 32) ", " FOR("b", "\"re:.*mlp.*\"", 16) ", " FOR(
            "c", "\"l.0.mlp.up\"", 8) ", " FOR("d", "\"re:.*.mlp.*\"", 64)),
        OF(FOR("c", "\"l.0.mlp.up\"", 8) ", " FOR("d", "\"re:.*.mlp.*\"", 64) ", " FOR(
            "b", "\"re:.*mlp.*\"", 16) ", " FOR("a", "\"Linear\"", 32)),
    };
    for (int i = 0; i < 2; i++) {
        const hd_quantisation q = read(configs[i]);
        cr_expect_eq(hd_find_group(&q, HD_PACKING_INT4, "l.0.attn.q")->tile.cols, 32);
        cr_expect_eq(hd_find_group(&q, HD_PACKING_INT4, "l.0.mlp.up")->tile.cols, 8);
        cr_expect_eq(hd_find_group(&q, HD_PACKING_INT4, "l.1.mlp.up")->tile.cols, 64);
    }
}

/* Lists of what is left out may name classes, of norms for example; no tensor is known to be of
 * one. */
Test(quantisation, classes_that_are_left_out) {
    const hd_quantisation q =
        read(COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ", \"ignore\": [\"LlamaRMSNorm\", \"lm_head\"]"));
    cr_expect_not(hd_find_modules(&q.ignore, "model.layers.0.mlp.up_proj"));
    cr_expect(hd_find_modules(&q.ignore, "lm_head"));
}

/* A pattern that cannot be read is told, and takes nothing away. */
Test(quantisation, patterns_that_are_not_read) {
    const hd_quantisation q =
        read(COMPRESSED(GROUP(WEIGHTS(BY_GROUP)), ", \"ignore\": [\"re:(?!x).*\", \"lm_head\"]"));
    cr_expect(strstr(said(), "\"re:(?!x).*\" is not held against the tensors"), "%s", said());
    cr_expect(strstr(said(), "it has a group that looks around"), "%s", said());
    cr_expect_eq(q.ignore.list.n, 1);
}

/* ---- the page ----------------------------------------------------------------------------------
 *
 * docs/quantised-checkpoints.md and the table that configs are read by say the same. */

static const struct {
    const char *name, *object;
} methods[] = {
#define METHOD(name, object, read) {name, #object},
#include "frontend/config/quantisation.def"
};

static const struct {
    const char *objects, *name, *kind, *words[5];
} fields[] = {
#define FIELD(objects, name, kind, why, ...) {#objects, #name, #kind, {__VA_ARGS__}},
#include "frontend/config/quantisation.def"
};

static const struct {
    const char *name, *type, *strategies[5];
} formats[] = {
#define FORMAT(name, packing, bits, type, group_size, zeros, ...) {name, type, {__VA_ARGS__}},
#include "frontend/config/quantisation.def"
};

enum {
    N_METHODS = sizeof methods / sizeof *methods,
    N_FIELDS = sizeof fields / sizeof *fields,
    N_FORMATS = sizeof formats / sizeof *formats,
};

static const char *const algorithms[] = {
#define ALGORITHM(name, ...) name,
#include "frontend/config/quantisation.def"
    "MIXED_PRECISION", NULL};

/* Those of compressed-tensors and of ModelOpt have more objects in them. */
static bool is_field_of(size_t field, const char *object) {
    static const char *const inner[][3] = {{"COMPRESSED", "GROUP", "WEIGHTS"},
                                           {"MODELOPT", "QUANTIZATION", "LAYER"}};
    const char *objects = fields[field].objects;
    bool is = strstr(objects, object);
    for (int i = 0; i < 2; i++)
        if (strcmp(object, inner[i][0]) == 0)
            is = is || strstr(objects, inner[i][1]) || strstr(objects, inner[i][2]);
    return is;
}

/* Does a value of it change how weights are read, or bring an error? */
static bool counts(size_t field) {
    static const char *const kinds = "READ LIST WORD ONLY_FALSE ONLY_TRUE ONLY_EMPTY";
    return strstr(kinds, fields[field].kind) && strcmp(fields[field].name, "quant_method") != 0;
}

static bool in_row(const char *row, const char *word) {
    return strstr(row, hd_printf(arena, "`%s`", word));
}

static char *row_of(const char *page, const char *method) {
    for (const char *line = page; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *end = strncmp(line, "| `", 3) == 0 ? strstr(line, "` | ") : NULL;
        if (end && in_row(hd_strndup(arena, line, (size_t)(end - line) + 1), method))
            return hd_strndup(arena, end, strcspn(end, "\n"));
    }
    return NULL;
}

static bool is_one_of(const char *word, const char *const *words) {
    for (; *words; words++)
        if (strcmp(word, *words) == 0) return true;
    return false;
}

static bool is_in_table(const char *word, const char *object) {
    for (size_t i = 0; i < N_FIELDS; i++)
        if (is_field_of(i, object) &&
            (strcmp(word, fields[i].name) == 0 || is_one_of(word, fields[i].words)))
            return true;
    if (strcmp(object, "MODELOPT") == 0 && is_one_of(word, algorithms)) return true;
    for (size_t i = 0; strcmp(object, "COMPRESSED") == 0 && i < N_FORMATS; i++)
        if (strcmp(word, formats[i].name) == 0 || strcmp(word, formats[i].type) == 0 ||
            is_one_of(word, formats[i].strategies))
            return true;
    return strcmp(word, "dense") == 0; /* of sparsity_config */
}

Test(quantisation, the_page_has_what_the_table_has) {
    const char *page =
        hd_read_text(arena, &diags, TEST_DATA "/../docs/quantised-checkpoints.md", 1 << 20, NULL);
    cr_assert(page);
    for (size_t m = 0; m < N_METHODS; m++) {
        const char *object = methods[m].object, *row = row_of(page, methods[m].name);
        cr_assert(row, "there is no row of %s", methods[m].name);
        for (size_t i = 0; i < N_FIELDS; i++) {
            if (!is_field_of(i, object) || !counts(i)) continue;
            cr_expect(in_row(row, fields[i].name), "%s: no %s", methods[m].name, fields[i].name);
            for (size_t k = 0; fields[i].words[k]; k++)
                cr_expect(in_row(row, fields[i].words[k]), "%s: no %s", fields[i].name,
                          fields[i].words[k]);
        }
        for (const char *at = strchr(row + 1, '`'), *end; at; at = strchr(end + 1, '`')) {
            end = strchr(at + 1, '`');
            char *word = hd_strndup(arena, at + 1, (size_t)(end - at) - 1);
            cr_expect(is_in_table(word, object), "%s: %s is not read", methods[m].name, word);
        }
    }
    for (size_t i = 0; i < N_FORMATS; i++)
        cr_expect(in_row(page, formats[i].name), "no format %s", formats[i].name);
}
