/* The importer: which family is closest to a config whose model_type nobody knows, by its name, its
 * fields and the names of its tensors, and where no family is close. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "frontend/frontend.h"
#define FOLDER "/tmp/hadal-import-closest-XXXXXX"
#include "tests/unit/frontend/import_fixture.h"

TestSuite(import_closest, .init = open_folder, .fini = close_folder);

/* Which families there are, and the page that knows most of the fields. */
Test(import_closest, families_that_cannot_be_imported) {
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
Test(import_closest, gemma_2_is_close_to_gemma_3_and_not_to_gemma_3n) {
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
Test(import_closest, no_page_is_close_to_a_model_of_another_kind) {
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
Test(import_closest, a_family_is_closest_to_itself, .timeout = 300) {
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
Test(import_closest, a_page_that_does_not_take_all_values) {
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
Test(import_closest, the_closest_family_of_a_wrapped_model) {
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
Test(import_closest, the_plainest_family_of_equals) {
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

Test(import_closest, other_families_bring_one_error) {
    cr_expect_null(import_text(BASE("llamma") ", \"num_experts\": 8, \"q_lora_rank\": 3}"));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect_null(diags.list.at[0].hint);
    hd_diags_init(&diags, arena);
    cr_expect_null(import_text(BASE("llamma") "}"));
    cr_expect_eq(diags.errors, 1, "%s", said());
    cr_expect(strstr(diags.list.at[0].hint, "did you mean 'llama'? Its page is the closest"));
}
