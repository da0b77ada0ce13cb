/* Families that run a part of their layers several times: the two forms in which a config says it,
 * which of them counts, and values that are no loop. */
#define FOLDER "/tmp/hadal-loops-XXXXXX"
#include "import_fixture.h"

TestSuite(import_loops, .init = open_folder, .fini = close_folder, .timeout = 120);

static json_t *config_of(const char *name) {
    json_error_t error;
    json_t *root =
        json_load_file(hd_printf(arena, "%s/published/%s/config.json", TEST_DATA, name), 0, &error);
    cr_assert(root, "%s", name);
    hd_diags_init(&diags, arena);
    return root;
}

static char *published_with(const char *name, const char *path, const char *value) {
    return import_changed(config_of(name), path, value);
}

static const struct changed {
    const char *folder, *path, *value, *error; /* NULL: it imports */
} values[] = {
    {"inkling2_loop_text", "loop_layer_index_start", "0", "loop_layer_index_start: "},
    {"inkling2_loop_text", "loop_layer_index_start", "3",
     "the core begins at layer 3, which is no"},
    {"inkling2_loop_text", "loop_layer_index_end", "5",
     "the core ends before layer 5, which is no"},
    {"inkling2_loop_text", "loop_layer_index_end", "2", "and begins at 2: no layer is in it"},
    {"inkling2_loop_text", "loop_layer_index_end", "10", "ends before layer 10, of 8 layers"},
    {"inkling2_loop_text", "loop_layer_index_end", "8", NULL},
    {"inkling2_loop_text", "loop_num_passes", "0", "loop_num_passes: "},
    {"inkling2_loop_text", "loop_num_passes", "257", "loop_num_passes: "},
    {"inkling2_loop_text", "loop_num_passes", "1", NULL},
    {"inkling2_loop_text", "loop_gate_rank", "0", "loop_gate_rank: "},
    {"inkling2_loop_text", "loop_config", "null", NULL},
    {"inkling2_loop_text", "loop_config", "{}", NULL},
    {"inkling2_loop_text", "loop_config", "3", "loop_config: must be null or an object, not 3"},
    {"inkling2_loop_text", "loop_config.core_start", "3",
     "loop_config: the core begins at layer 3"},
    {"inkling2_loop_text", "loop_config.core_end", "7",
     "loop_config: the core ends before layer 7"},
    {"inkling2_loop_text", "loop_config.num_passes", "null", "num_passes: "},
    {"inkling2_loop_text", "loop_config.gate_rank", "0.5", "gate_rank: "},
    {"inkling2_loop_text", "loop_config.core", "1", "core"},
    {"inkling2_loop", "text_config.loop_config.core_end", "12", "before layer 12, of 10 layers"},
    {"inkling2_loop", "text_config.n_layers_per_attn_res_block", "2", "core begins at layer 3"},
    {"dory", "n_recurrent_loops", "0", "n_recurrent_loops: "},
    {"dory", "n_recurrent_loops", "1", NULL},
    {"dory", "n_recurrent_loops", "256", NULL},
    {"dory", "n_recurrent_loops", "257", "n_recurrent_loops: "},
    {"dory", "num_hidden_layers", "11", "layer_types: "},
    {"dory", "num_hidden_layers", "0", "num_hidden_layers: "},
    {"dory", "n_input_layers", "3", "n_input_layers: counts blocks"},
    {"dory", "n_input_layers", "0", "n_recurrent_layers: 0 layers before the loop, 3 in it and 1"},
    {"dory", "n_output_layers", "40", "are not 6"},
    {"dory", "n_recurrent_layers", "null", NULL},
    {"dory", "n_recurrent_layers", "0",
     "2 layers before the loop, 0 in it and 1 after it are not 6"},
    {"dory", "recurrent_kv_cache_mode", "\"first_loop\"", "recurrent_kv_cache_mode: "},
    {"dory", "layer_types",
     "[\"mlp\", \"full_attention\", \"mlp\", \"full_attention\", \"mlp\", \"full_attention\", "
     "\"mlp\", "
     "\"full_attention\", \"mlp\", \"full_attention\", \"mlp\", \"full_attention\"]",
     "block 1 is \"full_attention\", and must be \"mlp\""},
    {"dory", "head_dim", "9", "heads of 9 entries cannot be rotated"},
    {"dory", "num_key_value_heads", "3", "3 does not divide the number of query heads, 4"},
    {"dory", "initializer_range", "0", "initializer_range: "},
    {"dory", "ngpt_alpha_init", "null", "ngpt_alpha_init: "},
    {"dory", "rope_parameters", "null", NULL},
    {"dory", "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 5.0}", "rope_type"},
    {"dory", "rope_parameters", "{\"full_attention\": {\"rope_type\": \"default\"}}",
     "rope_parameters: must have an object for each kind of layer"},
    {"dory", "rope_parameters.full_attention.rope_type", "\"dynamic\"", "rope_type: "},
    /* fields of older files, which must agree with the others */
    {"dory", "attention_head_dim", "12", NULL},
    {"dory", "attention_head_dim", "14", "attention_head_dim"},
    {"dory", "swa_window_size", "7", "swa_window_size"},
    {"dory", "init_method_std", "0.02", "init_method_std"},
    {"dory", "mlp_hidden_act", "\"gelu\"", "mlp_hidden_act: contradicts hidden_act"},
    {"dory", "hybrid_layer_pattern", "\"S-S-S-*-S-S-\"", NULL},
    {"dory", "hybrid_layer_pattern", "\"S-S-*-*-S-S-\"", "contradicts layer_types"},
    {"dory", "hybrid_layer_pattern", "\"S-S-S-*-S-\"", "its length is 10, and num_hidden_layers 12"},
    {"dory", "hybrid_layer_pattern", "\"S-S-S-*-S-Sx\"", "hybrid_layer_pattern: "},
    {"dory", "attention_output_gate_logit_scale_init", "6.324555320336759", NULL},
    {"dory", "attention_output_gate_logit_scale_init", "8", "8 cannot be honoured"},
    {"dory", "rope_profile_layers", "[1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1]", NULL},
    {"dory", "rope_profile_layers", "[2, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1]",
     "rope_profile_layers: layers of"},
    {"dory", "rope_profile_layers", "[1, 1, 1, 1, 1, 1, 3, 2, 1, 1, 1, 1]",
     "rope_profile_layers: "},
    {"dory", "rope_theta_2", "10000000", NULL},
    {"dory", "rope_theta_2", "500000", "rope_theta_2: 500000 is of no layer"},
    {"dory", "dory_format_version", "1", NULL},
    {"dory", "dory_format_version", "2", "dory_format_version: 2 cannot be honoured"},
    {"dory", "initial_state", "\"random\"", "initial_state: "},
    {"dory", "input_transform", "\"residual\"", NULL},
    {"dory", "output_transform", "\"add\"", "output_transform: "},
};

Test(import_loops, values) {
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        const struct changed *c = &values[i];
        const char *text = published_with(c->folder, c->path, c->value);
        cr_expect_eq(text != NULL, c->error == NULL, "%s: %s = %s: %s", c->folder, c->path,
                     c->value, said());
        cr_expect(!c->error || find_message(c->error), "%s = %s: no '%s' in: %s", c->path, c->value,
                  c->error, said());
    }
}

/* loop_config counts, field by field; where a field beside it says something else, a note does. */
Test(import_loops, the_hubs_form_counts) {
    char *t = published_with("inkling2_loop_text", "loop_config", "{\"core_end\": 4}");
    expect_has(t, "    core_start = 2,\n    core_end = 4,\n    passes = 3,\n    gate_rank = 5,\n");
    cr_expect(find_message("loop_config counts, as in transformers: layers 2 to 3, 3 times"), "%s",
              said());
    expect_has(t, "    loop pass in 0..passes {\n");
    t = published_with("inkling2_loop_text", "loop_config", "{\"core_end\": 6, \"gate_rank\": 5}");
    cr_expect(t && !find_message("loop_config counts"), "%s", said());
    t = published_with("inkling2_loop_text", "loop_num_passes", "1");
    expect_lacks(t, "loop pass");
    expect_has(t, "unused_weights(\"model.llm.layers.*.controllers.\")");
}

/* The older files say the layers by letters, and positions by profiles; they count blocks. */
Test(import_loops, older_exports) {
    char *t = published_with("dory", "rope_parameters", "null");
    json_error_t error;
    json_t *root = config_of("dory");
    static const char *const newer[] = {"layer_types", "rope_parameters",   "head_dim",
                                        "hidden_act",  "initializer_range", "sliding_window"};
    for (size_t i = 0; i < sizeof newer / sizeof *newer; i++)
        json_object_del(root, newer[i]);
    json_t *older = json_loads(
        "{\"hybrid_layer_pattern\": \"S-S-S-*-S-S-\", \"attention_head_dim\": 12, "
        "\"mlp_hidden_act\": \"silu\", \"init_method_std\": 0.0177, \"swa_window_size\": 6, "
        "\"rope_theta\": 10000.0, \"rope_theta_2\": 10000000.0, "
        "\"attention_output_gate_logit_scale_init\": null, \"initial_state\": \"input_copy\", "
        "\"rope_profile_layers\": [1, 1, 1, 1, 1, 1, 2, 2, 1, 1, 1, 1]}",
        0, &error);
    cr_assert(older, "%s", error.text);
    json_object_update(root, older);
    json_decref(older);
    cr_expect_str_eq(t, import_changed(root, "dory_format_version", "1"), "%s", said());
}

/* Two ways to count, and two ways to name tensors, which the tensors themselves say. */
Test(import_loops, blocks_and_pairs) {
    char *blocks = published_with("dory", "use_cache", "true");
    json_t *root = config_of("dory");
    static const char *const halved[] = {"num_hidden_layers", "n_input_layers",
                                         "n_recurrent_layers", "n_output_layers"};
    for (size_t i = 0; i < sizeof halved / sizeof *halved; i++)
        json_object_set_new(root, halved[i],
                            json_integer(json_integer_value(json_object_get(root, halved[i])) / 2));
    cr_expect_str_eq(
        blocks,
        import_changed(root, "layer_types",
                       "[\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                       "\"full_attention\", \"sliding_attention\", \"sliding_attention\"]"));
    expect_lacks(blocks, "by_block");
    expect_has(blocks, "loop pass in 0..loops {");
}

Test(import_loops, caches_of_the_last_loop_alone_are_noted) {
    static const char note[] =
        "recurrent_kv_cache_mode last_loop has no effect: each of the 4 loops";
    cr_expect(published_with("dory-loops", "use_cache", "true") && find_message(note), "%s",
              said());
    cr_expect(published_with("dory-loops", "n_recurrent_loops", "1") &&
                  !find_message("recurrent_kv_cache_mode"),
              "%s", said());
    cr_expect(published_with("dory", "use_cache", "true") && !find_message(note), "%s", said());
}
