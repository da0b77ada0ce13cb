/* Configs of published models as they are on the hub (tests/hub): all of their fields are known,
 * and other values of those that are taken for one value alone are refused. */
#include <dirent.h>

#define FOLDER "/tmp/hadal-hub-XXXXXX"
#include "tests/unit/frontend/import_fixture.h"

TestSuite(import_hub, .init = open_folder, .fini = close_folder, .timeout = 300);

static char *hub_file(const char *name) {
    return hd_printf(arena, "%s/hub/%s", TEST_DATA, name);
}

static char *import_hub(const char *name) {
    size_t n;
    char *text = hd_read_text(arena, &diags, hub_file(name), 1 << 20, &n);
    cr_assert(text, "%s: %s", name, said());
    return import_text(text);
}

/* What hashes of its tables are made with stands in its tensors. */
#define NEEDS_TENSORS "Qwen3.8-Flash-Next.json"
/* Numbers of tokens are made of its tokenizer. */
#define NEEDS_TOKENIZER "DeepSeek-V4.1-Flash.json"
enum { FEW = 30 };

Test(import_hub, every_field_of_every_config_is_known) {
    DIR *files = opendir(hub_file(""));
    size_t n = 0;
    cr_assert(files);
    for (const struct dirent *f = readdir(files); f; f = readdir(files)) {
        if (!hd_ends_with(f->d_name, ".json") || !strcmp(f->d_name, NEEDS_TENSORS) ||
            !strcmp(f->d_name, NEEDS_TOKENIZER))
            continue;
        hd_diags_init(&diags, arena);
        cr_expect(import_hub(f->d_name), "%s: %s", f->d_name, said());
        n++;
    }
    closedir(files);
    cr_expect_geq(n, 40);
}

Test(import_hub, hashes_need_the_tensors_that_say_them) {
    cr_expect_null(import_hub(NEEDS_TENSORS));
    cr_expect_eq(diags.errors, 1, "%s", said());
    const hd_diag *g = find_message("the folder has no tables for layer 2, counted from 1");
    cr_assert(g && g->hint && g->cause, "%s", said());
    cr_expect(strstr(g->cause, ".layers.1.ple.ple_embedding.layer_multipliers, "), "%s", g->cause);
    cr_expect(strstr(g->hint, "importing this family needs the .safetensors files"), "%s", g->hint);
}

/* The file with a field set: FIELD, or OBJECT.FIELD. */
static char *import_hub_with(const char *name, const char *path, const char *value) {
    json_error_t error;
    json_t *root = json_load_file(hub_file(name), 0, &error);
    cr_assert(root, "%s", name);
    hd_diags_init(&diags, arena);
    if (strcmp(name, NEEDS_TOKENIZER) == 0) /* of a tokenizer of few tokens */
        json_object_set_new(json_object_get(root, "text_config"), "engram_compressed_vocab_size",
                            json_integer(FEW));
    return import_changed(root, path, value);
}

/* A tokenizer.json whose n tokens are all different. */
static void write_tokenizer(int n) {
    hd_text text;
    hd_text_init(&text, arena);
    hd_text_add(&text, "{\"model\": {\"type\": \"BPE\", \"vocab\": {");
    for (int i = 0; i < n; i++)
        hd_text_f(&text, "%s\"t%d\": %d", i ? ", " : "", i, i);
    hd_text_add(&text, "}, \"merges\": []}}");
    cr_assert(hd_write_file(arena, &diags, in_folder("tokenizer.json"), text.at, text.n));
    hd_diags_init(&diags, arena);
}

Test(import_hub, n_grams_need_the_tokenizer) {
    cr_expect_null(import_hub(NEEDS_TOKENIZER));
    cr_expect_eq(diags.errors, 1, "%s", said());
    const hd_diag *g = find_message("engram_pad_token_id: the folder has no tokenizer.json");
    cr_assert(g && g->hint, "%s", said());
    cr_expect(strstr(g->hint, "put the tokenizer.json of the model beside"), "%s", g->hint);
    write_tokenizer(FEW);
    cr_expect_null(import_hub(NEEDS_TOKENIZER));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect(find_message("tokens of the folder's tokenizer.json share 30 numbers, not 99092"));
    write_tokenizer(2);
    cr_expect_null(import_hub(NEEDS_TOKENIZER));
    cr_expect(find_message("no tokenizer.json with a token 2"), "%s", said());
    cr_assert(hd_write_file(arena, &diags, in_folder("tokenizer.json"), "{", 1));
    hd_diags_init(&diags, arena);
    cr_expect_null(import_hub(NEEDS_TOKENIZER));
    cr_expect_eq(diags.errors, 1, "%s", said());
}

/* Numbers that neither the config nor the checkpoint holds are those of the release. */
Test(import_hub, numbers_of_n_grams) {
    write_tokenizer(99092);
    const char *t = import_hub(NEEDS_TOKENIZER);
    expect_has(t, "[76632096046245, 4839876093313, 35959672319349, 73987337458391]");
    expect_has(t, "[67716810739261, 51510806800915, 30921347202721, 82619226485591]");
    expect_has(t, "table_sizes = [none, 384006168, none");
    expect_has(t, "none, 384016682, none");
}

/* Specs of some kinds, elaborated: names below the wrapper, gates that differ by layer. */
Test(import_hub, specs_elaborate) {
    static const char *const names[] = {"Kimi-K2.5.json", "Ling-3.0-flash.json", "Phi-4-mini.json",
                                        "GLM-5.3-Flash.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *text = import_hub(names[i]);
        cr_assert(text, "%s: %s", names[i], said());
        cr_expect(hfe_load_spec_text(arena, &diags, "hub.hadal", text, &options), "%s: %s",
                  names[i], said());
    }
}

Test(import_hub, what_fields_come_to) {
    char *t = import_hub("Ling-3.0-flash.json");
    expect_has(t, "gate: gate_within(expert_limits[l])");
    expect_has(t, "shared_gate: gate_within(shared_limits[l])");
    cr_expect(find_message("transformers does not read the two fields"));
    expect_lacks(import_hub("Ling-3.0-tiny.json"), "gate_within");
    t = import_hub("Kimi-K2.5.json");
    expect_has(t, "at \"language_model\" {");
    expect_has(t, "for name in [\"vision_tower.\", \"mm_projector.\"] {");
    t = import_hub("Kimi-K2-Instruct.json");
    expect_lacks(t, "language_model");
    expect_has(t, "beta_fast = 1.0");
    expect_has(import_hub("GLM-5.3-Flash.json"), "lower_bound = -5.0");
    t = import_hub("DeepSeek-R1-0528-Qwen3-8B.json");
    expect_has(t, "attention_factor = 1.138629");
    cr_expect(find_message("transformers reads attention_factor"));
}

/* ---- other values ---------------------------------------------------------------------------- */

static const struct changed {
    const char *file, *path, *value, *error;
} rejected[] = {
    {"Qwen3-Coder-480B-A35B", "qkv_bias", "true", "qkv_bias: true cannot be honoured"},
    {"Qwen3-Coder-480B-A35B", "use_qk_norm", "false", "use_qk_norm: false cannot be honoured"},
    {"Qwen3-Coder-480B-A35B", "shared_expert_intermediate_size", "512",
     "shared_expert_intermediate_size: 512 cannot be honoured"},
    {"Phi-4-mini", "full_attn_mod", "2", "full_attn_mod: 2 cannot be honoured"},
    {"Phi-4-mini", "interpolate_factor", "2", "interpolate_factor: 2 cannot be honoured"},
    {"Phi-4-mini", "lm_head_bias", "true", "lm_head_bias: true cannot be honoured"},
    {"Phi-4-mini", "mlp_bias", "true", "mlp_bias: true cannot be honoured"},
    {"Qwen3-Next-80B-A3B", "use_sliding_window", "true", "use_sliding_window: true cannot be"},
    {"Nanbeige4.2-3B", "kv_channels", "64", "kv_channels: 64 is not head_dim, 128"},
    {"Nanbeige4.2-3B", "loop_loss_weights", "[0.5]", "loop_loss_weights: "},
    {"Ling-3.0-tiny", "no_kda_lora", "false", "no_kda_lora: false cannot be honoured"},
    {"Ling-3.0-tiny", "use_kda_lora", "true", "use_kda_lora: true cannot be honoured"},
    {"Ling-3.0-tiny", "gated_attention_proj_granularity_type", "\"element_wise\"",
     "gated_attention_proj_granularity_type: \"element_wise\" cannot be honoured"},
    {"Ling-3.0-tiny", "moe_shared_expert_intermediate_size", "256",
     "256 is neither moe_intermediate_size, 512, nor num_shared_experts times that"},
    {"Ling-3.0-tiny", "moe_router_enable_expert_bias", "false",
     "moe_router_enable_expert_bias: false cannot be honoured"},
    {"Ling-3.0-tiny", "rope_interleave", "false", "rope_interleave: false cannot be honoured"},
    {"Ling-3.0-tiny", "rotary_dim", "32", "rotary_dim: 32 is not qk_rope_head_dim, 64"},
    {"Ling-3.0-tiny", "linear_silu", "false", "linear_silu: false cannot be honoured"},
    {"Ling-3.0-tiny", "router_dtype", "\"bf16\"", "router_dtype: \"bf16\" cannot be honoured"},
    {"Ling-3.0-tiny", "group_norm_size", "4", "group_norm_size: 4 cannot be honoured"},
    {"Ling-3.0-tiny", "scale_router_input", "true", "scale_router_input: true cannot be honoured"},
    {"Ling-3.0-tiny", "use_bias", "true", "use_bias: true cannot be honoured"},
    {"Ling-3.0-tiny", "use_qkv_bias", "true", "use_qkv_bias: true cannot be honoured"},
    {"Ling-3.0-tiny", "use_mla_nope", "true", "use_mla_nope: true cannot be honoured"},
    {"Ling-3.0-tiny", "use_nGPT", "true", "use_nGPT: true cannot be honoured"},
    {"Ling-3.0-tiny", "up_proj_norm", "true", "up_proj_norm: true cannot be honoured"},
    {"Ling-3.0-tiny", "value_norm", "true", "value_norm: true cannot be honoured"},
    {"Ling-3.0-tiny", "num_kv_heads_for_linear_attn", "4",
     "num_kv_heads_for_linear_attn: 4 cannot be honoured"},
    {"Ling-3.0-flash", "expert_swiglu_limit_list", "[4]", "has 1 entry for 42 layers"},
    {"Ling-3.0-flash", "share_expert_swiglu_limit_list", "5", "must be a list of numbers"},
    {"Ling-3.0-flash", "rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 4096}",
     "partial_rotary_factor: 0.5 cannot be honoured"},
    {"GLM-5.3-Flash", "text_config.mla_use_nope", "false", "mla_use_nope: false cannot be"},
    {"GLM-5.3-Flash", "text_config.mhc", "false", "mhc: false cannot be honoured"},
    {"GLM-5.3-Flash", "text_config.index_kpool_compress", "false", "index_kpool_compress: false"},
    {"GLM-5.3-Flash", "text_config.moe_router_dtype", "\"bfloat16\"",
     "moe_router_dtype: \"bfloat16\" cannot be honoured"},
    {"GLM-5.3-Flash", "text_config.linear_attn_config.kda_layers", "[0]", "are missing"},
    {"GLM-5.3-Flash", "text_config.layer_types", "null", NULL}, /* every fourth, as the lists */
    {"Hy4-preview", "enable_ihc", "false", "enable_ihc: false cannot be honoured"},
    {"Hy4-preview", "gated_mla", "false", "gated_mla: false cannot be honoured"},
    {"Hy4-preview", "gating_type", "\"headwise\"", "gating_type: \"headwise\" cannot be honoured"},
    {"Hy4-preview", "learnable_sink", "false", "learnable_sink: false cannot be honoured"},
    {"Hy4-preview", "use_dsa", "false", "use_dsa: false cannot be honoured"},
    {"Step-3.7-Flash", "text_config.zero_centered", "false", "zero_centered: false cannot be"},
    {"SmolLM2-135M", "rope_interleaved", "true", "rope_interleaved: true cannot be honoured"},
    {"SmolLM2-135M", "quantization", "{\"bits\": 4}", "quantization: {\"bits\": 4} cannot be"},
    {"Falcon3-7B", "activation", "\"relu\"", "activation: \"relu\" cannot be honoured"},
    {"MiniMax-Text-01-hf", "postnorm", "false", "postnorm: false cannot be honoured"},
    {"MiniMax-Text-01-hf", "shared_intermediate_size", "8", "shared_intermediate_size: 8 cannot"},
    {"Kimi-K2.5", "text_config.num_key_value_heads", "8", "num_key_value_heads: 8 cannot"},
    {"Kimi-K2.5", "tie_word_embeddings", "true", "contradicts that of text_config"},
    {"Kimi-K2-Instruct", "rope_scaling.beta_slow", "2", "beta_slow must not be above beta_fast"},
    {"Kimi-K2-Instruct", "scoring_func", "\"softmax\"", "scoring_func: \"softmax\" cannot"},
    {"BerryLM-OS", "kda_safe_gate", "true", "kda_safe_gate: true cannot be honoured"},
    {"BerryLM-OS", "kda_gate_lower_bound", "-5", "kda_gate_lower_bound: -5 cannot be honoured"},
    {"BerryLM-OS", "kda_output_gate_act", "\"sigmoid\"", "kda_output_gate_act: \"sigmoid\" cannot"},
    {"BerryLM-OS", "kda_insert", "false", "kda_insert: false cannot be honoured"},
    {"BerryLM-OS", "hidden_act", "\"gelu\"", "hidden_act: \"gelu\" cannot be honoured"},
    {"BerryLM-OS", "attn_output_gate", "false", "attn_output_gate: false cannot be honoured"},
    {"BerryLM-OS", "attn_res_block_size", "-1", "attn_res_block_size: must be"},
    {"BerryLM-OS", "attn_res_block_size", "2.5", "attn_res_block_size: must be"},
    {"BerryLM-OS", "attn_res_gated", "1", "attn_res_gated: must be"},
    {"BerryLM-OS", "attn_res_eps", "0", "attn_res_eps: must be"},
    {"BerryLM-OS", "linear_num_value_heads", "24", "16 does not divide the number of heads of v, 24"},
    {"BerryLM-OS", "num_experts_per_tok", "129", "129 is more than the number of experts, 128"},
    {"BerryLM-OS", "kda_gate_bottleneck", "0", "kda_gate_bottleneck: must be"},
    {"BerryLM-OS", "layer_types", "[\"full_attention\"]", "layer_types: has 1 entry for 40 layers"},
    {"BerryLM-OS", "rope_parameters",
     "{\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 1e7}",
     "a scaling \"linear\" cannot be honoured"},
    {"BerryLM-OS", "rope_parameters.partial_rotary_factor", "0.005", "1 of 256 entries"},
#define V41         "DeepSeek-V4.1-Flash"
#define TEXT(field) "text_config." field
    {V41, TEXT("compress_ratios"), "[0, 2]", "compress_ratios: its length is 2, and the number of layers 40, with those that draft 43"},
    {V41, TEXT("compress_ratios"), "[-1]", "compress_ratios"},
    {V41, TEXT("num_nextn_predict_layers"), "2", "its length is 43, and the number of layers 40, with those that draft 42"},
    {V41, TEXT("kv_source_layer_ids"), "[1, 2, 8, 14, 20]", "layer 1 has a window alone"},
    {V41, TEXT("kv_source_layer_ids"), "[2, 8, 14, 40]", "there is no layer 40"},
    {V41, TEXT("kv_source_layer_ids"), "[8, 14, 20]", "layer 2 has entries, and no layer up to it"},
    {V41, TEXT("kv_source_layer_ids"), "[2, 8, 14]", "layer 20 has entries of 1 positions, and"},
    {V41, TEXT("index_source_layer_ids"), "[2, 8, 20]",
     "layer 14 makes entries and does not choose"},
    {V41, TEXT("index_source_layer_ids"), "[0, 2, 8, 14, 20]", "layer 0 has a window alone"},
    {V41, TEXT("candidate_source_layer_id"), "21", "layer 21 does not choose among entries"},
    {V41, TEXT("candidate_source_layer_id"), "14", "layer 20 after it makes entries of its own"},
    {V41, TEXT("candidate_block_size"), "0", "candidate_block_size: must be"},
    {V41, TEXT("qk_rope_head_dim"), "65", "65 of 512 entries cannot be rotated"},
    {V41, TEXT("index_head_dim"), "32", "heads of 32 entries are narrower than the 64"},
    {V41, TEXT("o_groups"), "7", "7 does not divide the 32768 entries"},
    {V41, TEXT("gate_temp"), "0", "gate_temp: must be"},
    {V41, TEXT("swiglu_limit"), "-1", "swiglu_limit: must be"},
    {V41, TEXT("scoring_func"), "\"tanh\"", "scoring_func"},
    {V41, TEXT("num_key_value_heads"), "2", "num_key_value_heads: 2 cannot be honoured"},
    {V41, TEXT("tie_word_embeddings"), "true", "tie_word_embeddings: true cannot be honoured"},
    {V41, "tie_word_embeddings", "true", "tie_word_embeddings: true cannot be honoured"},
    {V41, TEXT("rope_scaling.rope_type"), "\"linear\"", "a scaling \"linear\" cannot be honoured"},
    {V41, TEXT("engram_layer_ids"), "[1, 40]", "there is no layer 40"},
    {V41, TEXT("engram_layer_ids"), "[1, 1]", "layer 1 stands here twice"},
    {V41, TEXT("engram_layer_ids"), "[1]", "engram_num_embeddings: its length is 2, that of engram_layer_ids 1"},
    {V41, TEXT("engram_num_embeddings"), "[384006167, 384016682]",
     "384006167 rows are fewer than the 384006168 that the tables of layer 1"},
    {V41, TEXT("engram_max_ngram_size"), "1", "engram_max_ngram_size: must be"},
    {V41, TEXT("engram_n_heads"), "1000", "are more than 2048 in all"},
    {V41, TEXT("engram_pad_id"), "3", "engram_pad_"},
    {"ZAYA1-8B", "cca", "true", "this config is that of the first upload of ZAYA1"},
    {"ZAYA1-8B", "rope_scaling", "{\"factor\": 2}", "rope_scaling: {\"factor\": 2} cannot be"},
    /* and such as change nothing, or are honoured */
    {V41, TEXT("kv_source_layer_ids"), "null", NULL},
    {V41, TEXT("index_source_layer_ids"), "null", NULL},
    {V41, TEXT("compress_ratios"), "null", NULL},
    {V41, TEXT("candidate_source_layer_id"), "null", NULL},
    {V41, TEXT("candidate_source_layer_id"), "-1", NULL},
    {V41, TEXT("candidate_source_layer_id"), "36", NULL}, /* none chooses after it */
    {V41, TEXT("engram_layer_ids"), "null", "engram_num_embeddings: its length is 2, that of engram_layer_ids 0"},
    {V41, TEXT("engram_num_embeddings"), "null", NULL},
    {V41, TEXT("engram_num_embeddings"), "[384006169, 384016682]", NULL},
    {V41, TEXT("layer_types"), "[\"sliding_attention\"]", NULL},
    {V41, TEXT("swiglu_limit"), "0", NULL},
    {V41, TEXT("index_topk"), "1048576", NULL},
    {V41, TEXT("rope_scaling"), "null", NULL},
    {V41, TEXT("rope_scaling.attention_factor"), "1.2", NULL},
    {V41, TEXT("norm_topk_prob"), "false", NULL},
    {V41, TEXT("n_shared_experts"), "2", NULL},
    {V41, "vision_config", "null", NULL},
    {"BerryLM-OS", "attn_res_block_size", "0", NULL},
    {"BerryLM-OS", "attn_res_gated", "false", NULL},
    {"BerryLM-OS", "attn_res_block_size", "64", NULL}, /* the embedding alone is finished */
    {"BerryLM-OS", "rope_parameters", "null", NULL},
    {"BerryLM-OS", "rope_scaling", "{\"rope_type\": \"default\"}", NULL},
    {"BerryLM-OS", "attention_bias", "true", NULL},
    {"BerryLM-OS", "norm_topk_prob", "false", NULL},
    {"BerryLM-OS", "tie_word_embeddings", "true", NULL},
    {"Kimi-K2.5", "projection_hidden_size", "1152", NULL}, /* as transformers 5.24 writes it */
    {"Kimi-K2.5", "projection_layer_norm_eps", "1e-5", NULL},
    {"SmolLM2-135M", "prefix", "null", NULL},
    {"SmolLM2-135M", "prefix", "4", "prefix: must be a string, not 4"},
    {"SmolLM2-135M", "pretraining_tp", "2", NULL},
    {"SmolLM2-135M", "neftune_noise_alpha", "5", NULL},
    {"Ling-3.0-tiny", "moe_shared_expert_intermediate_size", "512", NULL},
    {"Ling-3.0-tiny", "expert_swiglu_limit_list", "null", NULL},
    {"Nanbeige4.2-3B", "loop_loss_weights", "null", NULL},
    {"Qwen3-Coder-480B-A35B", "shared_expert_intermediate_size", "null", NULL},
    {"gemma-3n-E2B-it", "text_config.query_pre_attn_scalar", "17", NULL},
    {"Qwen3-0.6B", "unsloth_version", "\"2025.1\"", NULL},
};

Test(import_hub, other_values) {
    write_tokenizer(FEW); /* of DeepSeek-V4.1; others do not read it */
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
        const struct changed *c = &rejected[i];
        const char *text = import_hub_with(hd_printf(arena, "%s.json", c->file), c->path, c->value);
        cr_expect_eq(text != NULL, c->error == NULL, "%s: %s = %s: %s", c->file, c->path, c->value,
                     said());
        cr_expect_eq(diags.errors, c->error ? 1 : 0, "%s = %s: %s", c->path, c->value, said());
        cr_expect(!c->error || find_message(c->error), "%s = %s: no '%s' in: %s", c->path, c->value,
                  c->error, said());
    }
}

/* A pipeline of transformers puts it before a prompt. Hadal does not, and says so. */
Test(import_hub, a_prefix_is_noted) {
    static const char note[] = "prefix is not put before prompts";
    cr_expect(import_hub_with("SmolLM2-135M.json", "prefix", "\"Once \"") && find_message(note),
              "%s", said());
    cr_expect(import_hub_with("gemma-3n-E2B-it.json", "text_config.prefix", "\"Once \"") &&
                  find_message(note),
              "%s", said());
    cr_expect(import_hub_with("SmolLM2-135M.json", "prefix", "\"\"") && !find_message(note), "%s",
              said());
}

Test(import_hub, an_adapter_next_to_a_model_is_noted) {
    static const char note[] = "the adapter (LoRA) next to the model is not applied";
    cr_expect(import_hub("SmolLM2-135M.json") && !find_message(note), "%s", said());
    cr_assert(hd_write_file(arena, &diags, in_folder("adapter_config.json"), "{}", 2));
    cr_expect(import_hub("SmolLM2-135M.json") && find_message(note), "%s", said());
    cr_expect_eq(diags.errors, 0, "%s", said());
}

/* The lists of linear attention and layer_types must agree. */
Test(import_hub, lists_of_layers_agree) {
    enum { LAYERS = 45 };
    hd_text all;
    hd_text_init(&all, arena);
    for (int l = 0; l < LAYERS; l++)
        hd_text_f(&all, "%s\"linear_attention\"", l ? ", " : "[");
    hd_text_add(&all, "]");
    cr_expect_null(import_hub_with("GLM-5.3-Flash.json", "text_config.layer_types", all.at));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect(find_message("full_attn_layers: contradicts layer_types"), "%s", said());
    cr_expect_null(import_hub_with("GLM-5.3-Flash.json",
                                   "text_config.linear_attn_config.full_attn_layers", "null"));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect(find_message("the field 'full_attn_layers' is missing"), "%s", said());
}
