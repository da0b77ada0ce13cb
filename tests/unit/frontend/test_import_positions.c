/* Windows and rotary positions of published configs: each way of saying them. */
#define FOLDER "/tmp/hadal-positions-XXXXXX"
#include "tests/unit/frontend/import_fixture.h"

TestSuite(import_positions, .init = open_folder, .fini = close_folder);

/* Which layers have a window, by each way of saying it. */
Test(import_positions, windows) {
    static const char sliding[] = ", \"use_sliding_window\": true, \"sliding_window\": 16";
    char *t = import_folder(saved(4, "qwen2-sliding"));
    expect_has(t, "slides = [false, false, true, true]");
    expect_has(t, "window = 128");
    expect_has(t, "window: if slides[l] { window } else { none })");
    t = import_text(hd_printf(arena, "%s%s, \"max_window_layers\": 3}", BASE("qwen2"), sliding));
    expect_has(t, "slides = [false, false, false, true]");
    expect_has(t, "window = 16");
    t = import_text(hd_printf(arena, "%s%s, \"max_window_layers\": 0}", BASE("qwen3"), sliding));
    expect_has(t, "window: window)"); /* all layers */
    expect_lacks(t, "slides");
    t = import_text(hd_printf(arena, "%s%s}", BASE("qwen3"), sliding)); /* from layer 28 on */
    expect_lacks(t, "window");
    t = import_text(BASE("mistral") ", \"num_key_value_heads\": 2}");
    expect_has(t, "window = 4096");
    t = import_text(BASE("mistral") ", \"num_key_value_heads\": 2, \"sliding_window\": null}");
    expect_lacks(t, "window");
    t = import_text(BASE("olmo3") "}");
    expect_has(t, "slides = [true, true, true, false]");
}

/* Gemma 3 says which layers have a window by a number or by a list, and the positions of each kind
 * in fields of transformers 4 or in objects of transformers 5. */
Test(import_positions, gemma3) {
    char *t = import_text(BASE("gemma3_text") ", \"sliding_window_pattern\": 3, \"rope_theta\": "
                                              "5000, \"rope_local_base_freq\": 70, "
                                              "\"rope_scaling\": {\"rope_type\": \"linear\", "
                                              "\"factor\": 8.0}, \"query_pre_attn_scalar\": 168}");
    expect_has(t, "slides = [true, true, false, true]");
    expect_has(t, "window = 4096");
    expect_has(t, "theta = 5000.0");
    expect_has(t, "factor = 8.0");
    expect_has(t, "window_theta = 70.0");
    expect_has(t, "scalar = 168.0");
    t = import_text(BASE("gemma3_text") ", \"rope_scaling\": {\"type\": \"linear\", "
                                        "\"factor\": 8.0}, \"attn_logit_softcapping\": 50}");
    expect_lacks(t, "linear_scaling");
    expect_has(t, "# rope_scaling has no effect");
    expect_has(t, "# attn_logit_softcapping = 50 has no effect");
    static const struct {
        const char *fields, *error;
    } rejected[] = {
        {"\"sliding_window\": null", "\"sliding_attention\" need a window"},
        {"\"sliding_window_pattern\": 0", "sliding_window_pattern: "},
        {"\"query_pre_attn_scalar\": 0", "query_pre_attn_scalar: "},
        {"\"use_bidirectional_attention\": true", "use_bidirectional_attention: "},
        {"\"hidden_activation\": \"silu\"", "hidden_activation: "},
        {"\"final_logit_softcapping\": 0", "final_logit_softcapping: "},
        {"\"rope_local_base_freq\": 0", "rope_local_base_freq: "},
        {"\"layer_types\": [\"full_attention\", \"full_attention\", \"full_attention\", "
         "\"linear_attention\"]",
         "\"linear_attention\" of layer 3"},
        {"\"rope_parameters\": {\"sliding_attention\": {\"rope_type\": \"yarn\", \"factor\": 2}}",
         "the rope_type \"yarn\" cannot be honoured"},
        {"\"rope_scaling\": {\"rope_type\": \"dynamic\", \"factor\": 2}", "\"dynamic\""},
        {"\"num_key_value_heads\": 3", "num_key_value_heads: "},
    };
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(
            import_text(hd_printf(arena, "%s, %s}", BASE("gemma3_text"), rejected[i].fields)));
        cr_expect(find_message(rejected[i].error), "no '%s' in: %s", rejected[i].error, said());
    }
}

/* Qwen3.5: a quarter of each head rotates, sections of an image's positions say nothing, and what
 * another model would be is rejected. */
Test(import_positions, qwen3_5) {
    char *t = import_text(
        BASE("qwen3_5_text") ", \"head_dim\": 16, \"output_gate_type\": "
                             "\"swish\", \"rope_parameters\": {\"mrope_section\": "
                             "[1, 1], \"rope_theta\": 500}, \"num_key_value_heads\": 2}");
    cr_expect_eq(diags.list.n, 0, "%s", said());
    expect_has(t, "rotary_dim = 4");
    expect_has(t, "theta = 500.0");
    expect_has(t, "linear_layers = [true, true, true, false]");
    static const struct {
        const char *family, *fields, *error;
    } rejected[] = {
        {"qwen3_5_text", "\"output_gate_type\": \"sigmoid\"", "output_gate_type: "},
        {"qwen3_5_text", "\"attn_output_gate\": false", "attn_output_gate: "},
        {"qwen3_5_text", "\"hidden_act\": \"gelu\"", "hidden_act: "},
        {"qwen3_5_text", "\"full_attention_interval\": 0", "full_attention_interval: "},
        {"qwen3_5_text", "\"partial_rotary_factor\": 0.3", "partial_rotary_factor: 19 of 64"},
        {"qwen3_5_text", "\"linear_num_key_heads\": 5", "does not divide the number of heads of v, 32"},
        {"qwen3_5_text", "\"num_experts\": 4", "unknown field 'num_experts'"},
        {"qwen3_5_text", "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [3, 3, 2]}",
         "\"mrope\""},
        {"qwen3_5_moe_text", "\"num_experts\": 2, \"num_experts_per_tok\": 3", "3 is more than the number of experts, 2"},
        {"qwen3_5_moe_text", "\"norm_topk_prob\": false", "norm_topk_prob: "},
        {"qwen3_5_moe_text", "\"mlp_only_layers\": [1]", "mlp_only_layers: "},
        {"qwen3_5_moe_text", "\"decoder_sparse_step\": 2", "decoder_sparse_step: "},
    };
    for (size_t i = 0; i < sizeof rejected / sizeof *rejected; i++) {
        hd_diags_init(&diags, arena);
        cr_expect_null(import_text(
            hd_printf(arena, BASE("%s") ", \"head_dim\": 64, \"num_key_value_heads\": 2, %s}",
                      rejected[i].family, rejected[i].fields)));
        cr_expect(find_message(rejected[i].error), "no '%s' in: %s", rejected[i].error, said());
    }
}

#define STRETCHED ", \"max_position_embeddings\": 256, \"rope_scaling\": {\"rope_type\": "
Test(import_positions, yarn) {
    /* 0.1 ln 4 + 1 */
    char *t =
        import_text(BASE("llama") STRETCHED "\"yarn\", \"original_max_position_embeddings\": 64}}");
    expect_has(t, "factor = 4.0");
    expect_has(t, "attention_factor = 1.138629436111989");
    expect_has(t, "original_positions = 64");
    expect_has(t, "beta_fast = 32.0");
    t = import_text(BASE("llama") STRETCHED "\"yarn\", \"factor\": 40, \"mscale\": 1, "
                                            "\"mscale_all_dim\": 1, \"truncate\": false}}");
    expect_has(t, "attention_factor = 1.0");
    expect_has(t, "original_positions = 256");
    expect_has(t, "truncate: false");
    /* (0.0707 ln 40 + 1) / (0.1 ln 40 + 1) */
    t = import_text(BASE("llama") STRETCHED "\"yarn\", \"factor\": 40, \"mscale\": 0.707, "
                                            "\"mscale_all_dim\": 1.0}}");
    expect_has(t, "attention_factor = 0.92104235");
    /* in OLMo 3 only layers without a window are stretched */
    t = import_text(BASE("olmo3") STRETCHED "\"yarn\", \"factor\": 8}}");
    expect_has(t, "rope_scaling: if slides[l] { none } else { scaling }");
    /* where kinds of layers differ, transformers does not find `truncate` */
    t = import_text(BASE("olmo3") STRETCHED "\"yarn\", \"factor\": 8, \"truncate\": false}}");
    expect_lacks(t, "truncate: false");
    expect_has(t, "# truncate is taken for true");
}

/* transformers 5 writes positions of each kind of layer in an object of its own. */
#define KINDS ", \"max_position_embeddings\": 256, \"rope_parameters\": "
Test(import_positions, positions_by_kind_of_layer) {
    char *t = import_text(BASE("olmo3") KINDS
                          "{\"full_attention\": {\"rope_type\": \"yarn\", \"factor\": 8, "
                          "\"rope_theta\": 20000}, \"sliding_attention\": {\"rope_type\": "
                          "\"default\", \"rope_theta\": 777}}}");
    cr_expect_eq(diags.list.n, 0, "%s", said());
    expect_has(t, "theta = 20000.0");
    expect_has(t, "window_theta = 777.0");
    expect_has(t, "theta: if slides[l] { window_theta } else { theta }");
    expect_has(t, "rope_scaling: if slides[l] { none } else { scaling }");
    /* a theta that is not there is that of the family, also beside one outside */
    t = import_text(BASE("olmo3") KINDS "{\"full_attention\": null, \"sliding_attention\": "
                                        "{\"rope_type\": \"linear\", \"factor\": 3}}, "
                                        "\"rope_theta\": 1000}");
    expect_has(t, "theta = 1000.0");
    expect_has(t, "window_theta = 500000.0");
    expect_has(t, "if slides[l] { linear_scaling(window_factor) } else { none }");
    /* outside alone it is that of layers without a window, which is said */
    t = import_text(BASE("olmo3") ", \"rope_theta\": 1000}");
    expect_has(t, "window_theta = 500000.0");
    expect_has(t, "# rope_theta = 1000 is that of layers without a window");
    const size_t notes = diags.list.n;
    t = import_text(BASE("olmo3") ", \"rope_theta\": 500000}");
    expect_lacks(t, "theta: if");
    cr_expect_eq(diags.list.n, notes, "%s", said());
}

Test(import_positions, longrope) {
    static const char factors[] =
        "\"short_factor\": [1, 1, 1, 1, 1, 1.5], \"long_factor\": [1, 2, 3, 4, 5, 6]";
    char *t = import_text(hd_printf(arena, "%s%s\"longrope\", %s}, %s}", BASE("phi3"), STRETCHED,
                                    factors, "\"original_max_position_embeddings\": 64"));
    expect_has(t, "attention_factor = 1.1547005"); /* sqrt(1 + ln 4 / ln 64) */
    expect_has(t, "original_positions = 64");
    expect_has(t, "long_factors = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]");
    /* the names of the first files */
    t = import_text(hd_printf(arena, "%s%s\"su\", %s}, %s}", BASE("phi3"), STRETCHED, factors,
                              "\"original_max_position_embeddings\": 64"));
    expect_has(t, "longrope_scaling(");
    t = import_text(hd_printf(arena, "%s%s\"yarn\", %s}, %s}", BASE("phi3"), STRETCHED, factors,
                              "\"original_max_position_embeddings\": 256"));
    expect_has(t, "attention_factor = 1.0"); /* not longer than in training */
}

/* Phi-3.5-MoE states the factor of cos and sin itself, one for all lengths. */
#define PHIMOE                                                                                     \
    BASE("phimoe")                                                                                 \
    ", \"num_key_value_heads\": 2" STRETCHED                                                       \
    "\"longrope\", \"original_max_position_embeddings\": 64, \"short_mscale\": 1.25, "             \
    "\"long_mscale\": 1.25, \"short_factor\": [1, 1, 1, 1, 1, 1.5], "                              \
    "\"long_factor\": [1, 2, 3, 4, 5, 6]}}"
Test(import_positions, a_factor_of_longrope_that_is_stated) {
    char *t = import_text(PHIMOE);
    expect_has(t, "attention_factor = 1.25");
    expect_has(t, "# positions from 64 on are rotated by long_factor");
    static const struct {
        const char *path, *value, *error;
    } cases[] = {
        {"rope_scaling.long_mscale", "1.5",
         "rope_scaling.long_mscale: 1.5 cannot be honoured beside a short_mscale of 1.25"},
        {"rope_scaling.long_mscale", "null", "rope_scaling: the field 'long_mscale' is missing"},
        {"rope_scaling.short_mscale", "null", "rope_scaling: the field 'short_mscale' is missing"},
        {"rope_scaling.short_factor", "[1, 2]",
         "rope_scaling.short_factor: 2 factors for heads of 12 entries"},
        {"rope_scaling.long_factor", "[1]", "rope_scaling.long_factor: 1 factors for heads of 12"},
        {"rope_scaling", "{\"rope_type\": \"linear\", \"factor\": 4}",
         "rope_scaling: \"linear\" cannot be honoured by this version"},
        {"model_type", "\"phi3\"", "rope_scaling.short_mscale: 1.25 cannot be honoured"},
        {"num_experts_per_tok", "1", "num_experts_per_tok: 1 cannot be honoured"},
        {"num_local_experts", "1", "num_local_experts: must be a whole number from 2"},
        {"router_jitter_noise", "-0.5", "router_jitter_noise: must not be below 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_error_t error;
        const size_t before = diags.list.n;
        import_changed(json_loads(PHIMOE, 0, &error), cases[i].path, cases[i].value);
        bool found = false;
        for (size_t d = before; d < diags.list.n; d++)
            found |= strstr(diags.list.at[d].message, cases[i].error) != NULL;
        cr_expect(found, "%s = %s: %s", cases[i].path, cases[i].value, said());
    }
}

/* Two lengths of training: the one outside of the scaling comes first, and one is the family's. */
Test(import_positions, lengths_of_training) {
#define YARN_OF(n)                                                                                 \
    ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, "                                \
    "\"original_max_position_embeddings\": " #n "}"
    char *t = import_text(BASE("llama") YARN_OF(64) "}");
    expect_has(t, "original_positions = 64");
    t = import_text(BASE("llama") YARN_OF(64) ", \"original_max_position_embeddings\": 32}");
    expect_has(t, "original_positions = 32");
    cr_expect_eq(diags.list.n, 1, "%s", said());
    expect_has(t, "# original_max_position_embeddings is 32, as outside");
    t = import_text(BASE("llama") ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}");
    expect_has(t, "original_positions = 2048");
    t = import_with("llama", "rope_scaling",
                    "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
                    "\"high_freq_factor\": 4}");
    expect_has(t, "2048");
}

/* What transformers writes beside rope_parameters, it does not read. */
Test(import_positions, a_theta_beside_the_one_that_is_read) {
    char *t = import_text("{\"model_type\": \"deepseek_v4\", \"vocab_size\": 96, \"hidden_size\": "
                          "48, \"num_hidden_layers\": 4"
                          ", \"rope_theta\": 10000, \"compress_rope_theta\": 160000, "
                          "\"rope_parameters\": {\"main\": {\"rope_type\": "
                          "\"default\", \"rope_theta\": 500}, \"compress\": "
                          "{\"rope_type\": \"default\", \"rope_theta\": 900}}}");
    expect_has(t, "theta = 500.0");
    expect_has(t, "compress_theta = 900.0");
    expect_has(t, "# rope_theta is 500, as in rope_parameters.main");
}

/* An object without a base has the one that transformers fills in, which is not the one that the
 * family has without the object. */
Test(import_positions, an_object_without_a_theta) {
#define MUSE                                                                                       \
    "{\"model_type\": \"muse_spark\", \"text_config\": {\"model_type\": \"muse_spark_text\", "     \
    "\"vocab_size\": 96, \"hidden_size\": 48, \"num_hidden_layers\": 2, \"intermediate_size\": "   \
    "64, "                                                                                         \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 4"
    expect_has(import_text(MUSE "}}"), "theta = 500000.0");
    char *t = import_text(MUSE ", \"rope_theta\": 700}}");
    expect_has(t, "theta = 500000.0");
    expect_has(t, "# rope_theta = 700 has no effect");
    expect_has(import_text(MUSE ", \"rope_parameters\": {\"rope_type\": \"default\"}}}"),
               "theta = 10000.0");
    t = import_text(MUSE ", \"rope_theta\": 700, \"rope_parameters\": {\"rope_type\": "
                         "\"default\"}}}");
    expect_has(t, "theta = 700.0");
#undef MUSE
#define DEEPSEEK                                                                                   \
    "{\"model_type\": \"deepseek_v4\", \"vocab_size\": 96, \"hidden_size\": 48, "                  \
    "\"num_hidden_layers\": 4, \"rope_parameters\": {\"main\": {\"rope_type\": \"default\", "      \
    "\"rope_theta\": 500}, \"compress\": {\"rope_type\": \"default\"}}"
    expect_has(import_text(DEEPSEEK "}"), "compress_theta = 10000.0");
    t = import_text(DEEPSEEK ", \"rope_theta\": 700, \"compress_rope_theta\": 160000}");
    expect_has(t, "compress_theta = 700.0");
    expect_has(t, "# compress_rope_theta = 160000 has no effect");
#undef DEEPSEEK
}

/* It is for so many entries that transformers makes frequencies. */
Test(import_positions, a_head_of_latent_attention_is_what_rotates) {
#define LATENT                                                                                     \
    BASE("deepseek_v3")                                                                            \
    ", \"kv_lora_rank\": 8, \"qk_nope_head_dim\": 8, \"qk_rope_head_dim\": 4, \"v_head_dim\": 8, " \
    "\"moe_intermediate_size\": 16"
    import_text(LATENT ", \"head_dim\": 4}");
    cr_expect_null(import_text(LATENT ", \"head_dim\": 3}"));
    cr_expect(find_message("head_dim: 3 is not qk_rope_head_dim, 4"));
#undef LATENT
}

Test(import_positions, llama3_scaling_needs_all_its_fields) {
    cr_expect_null(
        import_with("llama", "rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}"));
    cr_expect(find_message("rope_scaling: the field 'low_freq_factor' is missing"));
    cr_expect(find_message("rope_scaling: the field 'high_freq_factor' is missing"));
    cr_expect_eq(diags.errors, 2, "the length of training is that of the family");
}

/* What rotates where nothing says it: a quarter of a head in Qwen3-Next, half in GLM 4.5, and all
 * of it in Qwen4-Exp, as in transformers 5.24. A field outside of rope_parameters is a way of
 * saying. */
#define QWEN4                                                                                      \
    "{\"model_type\": \"qwen4_exp_text\", \"vocab_size\": 64, \"hidden_size\": 32, "               \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 4, \"head_dim\": 16, "                     \
    "\"indexer_n_heads\": 4, "                                                                     \
    "\"indexer_head_dim\": 16, \"indexer_budget\": 6, \"indexer_compress_ratio\": 3"
Test(import_positions, share_of_a_head_that_rotates) {
    expect_lacks(import_text(QWEN4 "}"), "rotary_dim");
    expect_lacks(import_text(QWEN4 ", \"rope_parameters\": null}"), "rotary_dim");
    expect_lacks(import_text(QWEN4 ", \"rope_parameters\": {\"rope_type\": \"default\", "
                                   "\"rope_theta\": 100.0}}"),
                 "rotary_dim");
    expect_has(import_text(QWEN4 ", \"rope_parameters\": {\"rope_type\": \"default\", "
                                 "\"partial_rotary_factor\": 0.25}}"),
               "rotary_dim = 4");
    expect_has(import_text(QWEN4 ", \"partial_rotary_factor\": 0.5}"), "rotary_dim = 8");
}

/* A share that is null is said: the whole of a head, not the family's default. */
Test(import_positions, share_of_a_head_that_is_null) {
    static const struct {
        const char *family, *absent;
    } cases[] = {{"qwen3_next", "rotary_dim = 4"}, {"glm4_moe", "rotary_dim = 8"}};
    for (size_t i = 0; i < 2; i++) {
        const char *file =
            hd_printf(arena, "%s/published/%s/config.json", TEST_DATA, cases[i].family);
        json_t *config = json_load_file(file, 0, NULL);
        cr_assert(config, "%s", file);
        json_object_del(config, "partial_rotary_factor");
        char *text = json_dumps(config, 0);
        expect_has(import_text(text), cases[i].absent);
        free(text);
        json_object_set_new(config, "partial_rotary_factor", json_null());
        text = json_dumps(config, 0);
        expect_lacks(import_text(text), "rotary_dim");
        free(text);
        json_decref(config);
    }
}
