/* Configs of the Kimi family: the two forms in which they are written, what is refused, and the
 * text part of Kimi K3. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/frontend.h"
#include "support/tensorfile.h"

#define FOLDER "/tmp/hadal-kimi-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(import_kimi, .init = open_folder, .fini = close_folder, .timeout = 60);

static const hfe_options library = {.std_dir = TEST_DATA "/../frontend/std"};

static json_t *load(const char *text) {
    json_error_t error;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &error);
    cr_assert(v, "%s: %s", text, error.text);
    return v;
}

static json_t *config_of(const char *family) {
    json_error_t error;
    char path[512];
    snprintf(path, sizeof path, "%s/published/%s/config.json", TEST_DATA, family);
    json_t *config = json_load_file(path, 0, &error);
    cr_assert(config, "%s: %s", path, error.text);
    return config;
}

/* "a.b": the object a of the config, and b. */
static json_t *object_at(json_t *config, const char *path, const char **name) {
    const char *dot;
    while ((dot = strchr(path, '.'))) {
        config = json_object_get(config, hd_strndup(arena, path, (size_t)(dot - path)));
        path = dot + 1;
    }
    *name = path;
    cr_assert(json_is_object(config), "%s", path);
    return config;
}

/* "a.b = VALUE; c = VALUE; -d" */
static void change(json_t *config, const char *changes) {
    char *rest = hd_strdup(arena, changes), *each, *next;
    for (each = strtok_r(rest, ";", &next); each; each = strtok_r(NULL, ";", &next)) {
        const char *name;
        while (*each == ' ')
            each++;
        char *equals = strstr(each, " = ");
        if (*each == '-') {
            json_t *object = object_at(config, each + 1, &name);
            cr_assert_eq(json_object_del(object, name), 0, "%s", each);
            continue;
        }
        cr_assert(equals, "%s", each);
        *equals = '\0';
        json_t *object = object_at(config, each, &name);
        json_object_set_new(object, name, load(equals + 3));
    }
}

static const char *import(const char *family, const char *changes) {
    json_t *config = config_of(family);
    change(config, changes);
    char *text = json_dumps(config, JSON_INDENT(1));
    hd_diags_init(&diags, arena);
    cr_assert(hd_write_file(arena, &diags, in_folder("config.json"), text, strlen(text)));
    free(text);
    json_decref(config);
    return hfe_import(arena, &diags, folder, &library);
}

/* The same model as transformers 5 writes it: no lists that count from 1. */
#define RESAVED                                                                                    \
    "-linear_attn_config; linear_num_heads = 4; linear_head_dim = 8; linear_conv_kernel_dim = 4; " \
    "layer_types = [\"linear_attention\", \"linear_attention\", \"linear_attention\", "            \
    "\"full_attention\", \"full_attention\"]; -head_dim; -rope_theta; -mla_use_nope"

Test(import_kimi, both_forms_give_one_spec) {
    const char *hub = import("kimi_linear", "vocab_size = 80");
    cr_assert(hub, "%s", said());
    const char *resaved = import("kimi_linear", RESAVED);
    cr_assert(resaved, "%s", said());
    cr_expect_str_eq(hub, resaved);
    const char *renamed = import(
        "kimi_linear", RESAVED
        "; -num_experts; n_routed_experts = 8; -num_experts_per_token; num_experts_per_tok = "
        "2; -num_shared_experts; n_shared_experts = 1; -num_expert_group; n_group = 1; "
        "-moe_renormalize; norm_topk_prob = true");
    cr_assert(renamed, "%s", said());
    cr_expect_str_eq(hub, renamed);
}

Test(import_kimi, what_a_config_changes_in_the_spec) {
    static const struct {
        const char *changes, *part;
    } cases[] = {
        {"linear_attn_config.kda_layers = [1]; linear_attn_config.full_attn_layers = [5, 2, 4, 3]",
         "linear_layers = [true, false, false, false, false],"},
        {"linear_attn_config.full_attn_layers = []; linear_attn_config.kda_layers = [5,4,3,2,1]",
         "linear_layers = [true, true, true, true, true],"},
        {"linear_attn_config.use_full_rank_gate = true", "decay_rank: kda_head_dim, a_log: "},
        {"linear_attn_config.gate_lower_bound = -3.5", "lower_bound: -3.5"},
        {"hidden_act = \"situ\"", "gate = soft_capped(1.0, none)"},
        {"hidden_act = \"situ\"; activation_situ_beta = 4; activation_situ_linear_beta = 25",
         "gate = soft_capped(4.0, 25.0)"},
        {"mla_use_output_gate = true", "gate: \"elements\""},
        {"q_lora_rank = 6", "q_rank: q_rank"},
        {"mla_norm_eps = 0.5", "mla_eps = 0.5,"},
        {"mla_use_nope = true", "mla_eps = 1e-06,"},
        {"attn_res_block_size = 2", "attnres_block(embed(\"model.embed_tokens\", vocab, hidden), "
                                    "block_layers: block_layers, eps: eps)"},
        {"residual = {\"type\": \"mhc-lite\", \"num_streams\": 2}", "mhc_lite(embed("},
        {"num_shared_experts = 0",
         "kimi_experts(x, experts, chosen, expert_width, gate: gate, scale"},
        {"num_shared_experts = 3", "shared: 3"},
        {"num_experts = null", "y = shared_mlp(x, ff, gate: gate, name: \"mlp\")"},
        {"first_k_dense_replace = 0; moe_layer_freq = 2",
         "if l >= first_sparse and l % sparse_every == 0 {"},
        {"-first_k_dense_replace; -moe_layer_freq; mlp_layer_types = [\"sparse\", \"dense\", "
         "\"dense\", \"sparse\", \"dense\"]",
         "sparse_layers = [true, false, false, true, false],"},
        {"num_expert_group = 4; topk_group = 2", "top_groups: top_groups"},
        {"routed_expert_hidden_size = 6; latent_moe_use_norm = true", "latent_norm: true"},
        {"moe_renormalize = false", "normalise = false,"},
        {"-routed_scaling_factor", "shared: 1, scale: 2.446"},
        {"-rms_norm_eps", "eps = 1e-05,"},
        {"num_nextn_predict_layers = 2",
         "for name in [\"model.layers.5.\", \"model.layers.6.\"] {"},
        {"tie_word_embeddings = true", "output logits = tied_head(h, vocab)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *spec = import("kimi_linear", cases[i].changes);
        cr_assert(spec, "%s: %s", cases[i].changes, said());
        cr_expect(strstr(spec, cases[i].part), "%s: no '%s' in\n%s", cases[i].changes,
                  cases[i].part, spec);
        hfe_load_spec_text(arena, &diags, "spec.hadal", spec, &library);
        cr_expect_eq(diags.errors, 0, "%s: %s", cases[i].changes, said());
    }
}

Test(import_kimi, what_is_rejected) {
    static const struct {
        const char *changes, *error;
    } cases[] = {
        {"-linear_attn_config", "the field 'linear_attn_config' is missing"},
        {"linear_attn_config = 3", "linear_attn_config: must be null or an object, not 3"},
        {"-linear_attn_config.kda_layers", "linear_attn_config: the field 'kda_layers' is missing"},
        {"linear_attn_config.kda_layers = [0, 1, 2]",
         "linear_attn_config.kda_layers: there is no layer 0"},
        {"linear_attn_config.kda_layers = [1, 2, 3, 6]",
         "linear_attn_config.kda_layers: there is no layer 6"},
        {"linear_attn_config.kda_layers = [1, 2]",
         "linear_attn_config.kda_layers: layer 3 is missing"},
        {"linear_attn_config.kda_layers = [1, 2, 3, 4]",
         "linear_attn_config.full_attn_layers: layer 4 stands in kda_layers, too"},
        {"linear_attn_config.kda_layers = [1, 2, 3, 3]",
         "linear_attn_config.kda_layers: layer 3 stands here twice"},
        {"linear_attn_config.num_head = 4", "unknown field 'linear_attn_config.num_head'"},
        {"linear_attn_config.short_conv_kernel_size = 1",
         "short_conv_kernel_size: must be a whole number from 2"},
        {"linear_attn_config.gate_lower_bound = 5", "gate_lower_bound: must be below 0"},
        {"linear_attn_config.gate_lower_bound = 0", "gate_lower_bound: must be below 0"},
        {"linear_num_heads = 5", "linear_num_heads: contradicts linear_attn_config.num_heads"},
        {"layer_types = [\"full_attention\", \"full_attention\", \"full_attention\", "
         "\"full_attention\", \"full_attention\"]",
         "contradicts the lists of linear_attn_config"},
        {RESAVED "; -linear_num_heads", "the field 'linear_num_heads' is missing"},
        {RESAVED "; -linear_conv_kernel_dim", "the field 'linear_conv_kernel_dim' is missing"},
        {RESAVED "; layer_types = [\"linear_attention\"]", "layer_types: has 1 entry for 5"},
        {RESAVED "; layer_types = [\"linear_attention\", \"mamba\", \"linear_attention\", "
                 "\"full_attention\", \"full_attention\"]",
         "layer_types: \"mamba\" of layer 1 cannot be honoured"},
        {"mla_use_nope = false", "mla_use_nope: false cannot be honoured"},
        {"moe_router_activation_func = \"softmax\"", "\"softmax\" cannot be honoured"},
        {"use_grouped_topk = false", "use_grouped_topk: false cannot be honoured"},
        {"num_key_value_heads = 2", "num_key_value_heads: 2 cannot be honoured"},
        {"qk_head_dim = 13", "qk_head_dim: 13 is not qk_nope_head_dim + qk_rope_head_dim, 12"},
        {"num_experts_per_token = 9", "9 is more than the number of experts, 8"},
        {"-num_experts_per_token; num_experts_per_tok = 9",
         "num_experts_per_tok: 9 is more than the number of experts, 8"}, /* by the name in the file */
        {"num_expert_group = 3", "3 does not divide the number of experts, 8"},
        {"num_expert_group = 4; topk_group = 5", "5 is more than the number of groups, 4"},
        {"num_expert_group = 8; topk_group = 1", "groups that stay, 1 of 8, have fewer experts than are chosen, 2"},
        {"-num_experts_per_token", "the field 'num_experts_per_token' is missing"},
        {"num_experts_per_tok = 3", "num_experts_per_tok: contradicts num_experts_per_token"},
        {"mlp_layer_types = [\"sparse\", \"sparse\", \"sparse\", \"sparse\", \"sparse\"]",
         "\"sparse\" of layer 0 contradicts first_k_dense_replace"},
        {"latent_moe_use_norm = true", "latent_moe_use_norm: there is no latent to norm"},
        {"residual = {\"type\": \"value-residual\"}",
         "residual.type: \"value-residual\" cannot be honoured"},
        {"residual = {\"type\": \"lime\"}", "residual.type: \"lime\" cannot be honoured"},
        {"residual = {\"type\": \"realformer\", \"norm\": \"pre\", \"scores\": \"sum\"}",
         "residual.type: \"realformer\" cannot be honoured"},
        {"residual = {\"type\": \"hybridnorm\", \"first_block\": \"pre\"}",
         "\"hybridnorm\" cannot be honoured: queries and keys have no norm in this family"},
        {"attn_res_block_size = 2; residual = {\"type\": \"standard\"}",
         "attn_res_block_size: contradicts the residual type standard"},
        {"sliding_window = 4", "unknown field 'sliding_window'"},
        {"model_type = \"kimi_lineal\"", "model_type: \"kimi_lineal\" cannot be imported"},
        {"hidden_act = \"gelu\"", "the activation \"gelu\" is not known"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_null(import("kimi_linear", cases[i].changes), "%s", cases[i].changes);
        const hd_diag *g = find_message(cases[i].error);
        cr_expect(g, "%s: no '%s' in: %s", cases[i].changes, cases[i].error, said());
        cr_expect_leq(diags.errors, 3, "what follows from a fault is silent: %s", said());
    }
}

/* A bound in a config that is otherwise that of the 48B model, whose code does not know it. */
Test(import_kimi, a_bound_of_the_decay_where_nothing_else_speaks_of_k3) {
    const char *spec = import("kimi_linear", "linear_attn_config.gate_lower_bound = -5.0");
    cr_assert(spec, "%s", said());
    cr_expect(find_message("gate_lower_bound = -5 is honoured"), "%s", said());
    cr_expect(strstr(spec, "# gate_lower_bound = -5 is honoured"), "%s", spec);
    cr_assert(import("kimi_linear", "linear_attn_config.gate_lower_bound = -5.0; "
                                    "linear_attn_config.use_full_rank_gate = true"));
    cr_expect_eq(diags.list.n, 0, "%s", said());
    cr_assert(import("kimi_k3", "pad_token_id = 1"));
    cr_expect_eq(diags.list.n, 0, "%s", said());
}

/* A tensor of zeros, of rank 4 with n entries in one column. */
static hd_tensor zeros(const char *name, uint32_t rank, int64_t n, int64_t m) {
    static const float data[64];
    hd_tensor t = {.name = name, .dtype = HD_T_F32, .rank = rank, .shape = {n, m}};
    if (rank == 4) t.shape[0] = t.shape[1] = t.shape[3] = 1, t.shape[2] = n;
    t.data = (const uint8_t *)data;
    cr_assert(hd_tensor_measure(&t));
    return t;
}

/* A folder with these tensors, with one. */
static void write_tensors(const hd_tensor *tensors, int n) {
    cr_assert(hd_safetensors_write(arena, &diags, in_folder("model.safetensors"), tensors, n), "%s",
              said());
}

static void write_tensor(const char *name, uint32_t rank, int64_t n, int64_t m) {
    const hd_tensor t = zeros(name, rank, n, m);
    write_tensors(&t, 1);
}

/* What differs between checkpoints without a field that says so. */
Test(import_kimi, what_the_tensors_say) {
    write_tensor("model.layers.0.self_attn.A_log", 1, 4, 0);
    cr_expect(strstr(import("kimi_linear", "vocab_size = 80"), "a_log: [4]"), "%s", said());
    write_tensor("model.layers.0.self_attn.A_log", 1, 8, 0);
    const char *spec = import("kimi_linear", "vocab_size = 80");
    cr_assert(spec && strstr(spec, "a_log: [8]"), "entries behind the last head: %s", spec);
    cr_expect(hfe_load_spec_text(arena, &diags, "spec.hadal", spec, &library), "%s", said());
    write_tensor("model.layers.0.self_attn.A_log", 4, 4, 0);
    cr_expect(strstr(import("kimi_linear", "vocab_size = 80"), "a_log: [1, 1, 4, 1]"));
    static const struct {
        uint32_t rank;
        int64_t n, m;
        const char *error;
    } wrong[] = {{1, 3, 0, "A_log has 3 entries for 4 heads"},
                 {2, 1, 4, "A_log is neither a row of numbers nor [1, 1, 4, 1]"},
                 {4, 5, 0, "A_log is neither a row of numbers nor [1, 1, 4, 1]"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_tensor("model.layers.0.self_attn.A_log", wrong[i].rank, wrong[i].n, wrong[i].m);
        spec = import("kimi_linear", "vocab_size = 80");
        cr_assert(spec);
        cr_expect_null(hfe_load_spec_text(arena, &diags, "spec.hadal", spec, &library));
        cr_expect(find_message(wrong[i].error), "%s", said());
    }
    const hd_tensor of_two[] = {zeros("model.layers.0.self_attn.A_log", 4, 4, 0),
                                zeros("model.layers.1.self_attn.A_log", 1, 8, 0)};
    write_tensors(of_two, 2);
    spec = import("kimi_linear", "vocab_size = 80");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "a_log: [[1, 1, 4, 1], [8], none, none, none][l] ?? [1, 1, 4, 1]"),
              "the layers' own: %s", spec);
    cr_expect(hfe_load_spec_text(arena, &diags, "spec.hadal", spec, &library), "%s", said());
    write_tensor("model.layers.0.block_sparse_moe.gate_proj.weight", 2, 4, 4);
    cr_expect(strstr(import("kimi_linear", "vocab_size = 80"),
                     "shared_mlp(x, ff, gate: gate, name: \"block_sparse_moe\")"));
    write_tensor("lm_head.weight", 2, 4, 4);
    cr_expect(strstr(import("kimi_linear", "tie_word_embeddings = true"), "= head(h, vocab)"));
    cr_expect(find_message("there is a head of its own"), "%s", said());
    write_tensor("language_model.model.layers.0.self_attn.A_log", 1, 9, 0);
    cr_expect(strstr(import("kimi_k3", "ignore_index = 1"), "a_log: [9]"));
}

/* Tensors of linear attention in BerryLM have one of two names, throughout a checkpoint. */
Test(import_kimi, the_names_of_berrylm) {
    const char *spec = import("berrylm", "vocab_size = 80");
    cr_assert(spec, "%s", said());
    cr_expect_not(strstr(spec, "linear_attn\""), "%s", spec);
    write_tensor("model.layers.3.linear_attn.A_log", 1, 4, 0);
    spec = import("berrylm", "vocab_size = 80");
    cr_expect(spec && strstr(spec, "name: \"linear_attn\")"), "%s", said());
    const hd_tensor of_two[] = {zeros("model.layers.0.kda.A_log", 1, 4, 0),
                                zeros("model.layers.3.linear_attn.A_log", 1, 4, 0)};
    write_tensors(of_two, 2);
    cr_expect_null(import("berrylm", "vocab_size = 80"));
    const hd_diag *g = find_message("tensors of linear attention have two names in this folder");
    cr_assert(g && g->cause, "%s", said());
    cr_expect(strstr(g->cause, "those of layer 0 are called kda, those of layer 3 linear_attn"));
}

Test(import_kimi, the_text_part_of_k3) {
    const char *spec = import("kimi_k3", "media_placeholder_token_id = 163605");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "# A Kimi K3 model with Block Attention Residuals"), "%s", spec);
    cr_expect(strstr(spec, "at \"language_model\" {"), "%s", spec);
    static const struct {
        const char *changes, *error;
    } cases[] = {
        {"-text_config", "the field 'text_config' is missing"},
        {"text_config = null", "text_config: must be an object, not null"},
        {"text_config.model_type = \"llama\"", "text_config.model_type: \"llama\""},
        {"text_config.vocab_size = 0", "text_config.vocab_size: must be a whole number"},
        {"text_config.linear_attn_config.kda_layers = [1, 2, 3, 5]",
         "text_config.linear_attn_config.kda_layers: layer 6 is missing"},
        {"text_config.linear_attn_config.gate = 1",
         "unknown field 'text_config.linear_attn_config.gate'"},
        {"text_config.hiden_size = 1", "unknown field 'text_config.hiden_size'"},
        {"hidden_size = 40", "unknown field 'hidden_size'"},
        {"tie_word_embeddings = true", "tie_word_embeddings: contradicts that of text_config"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_null(import("kimi_k3", cases[i].changes), "%s", cases[i].changes);
        cr_expect(find_message(cases[i].error), "%s: no '%s' in: %s", cases[i].changes,
                  cases[i].error, said());
    }
}
