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
