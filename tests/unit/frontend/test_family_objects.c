/* Configs whose fields lie in objects, have two names, or share out the layers; tensors beside a
 * config, and those of other parts of a checkpoint. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "ir/text/text.h"
#include "support/tensorfile.h"

#define FOLDER "/tmp/hadal-objects-XXXXXX"
#include "tests/unit/folder_fixture.h"

TestSuite(family_objects, .init = open_folder, .fini = close_folder, .timeout = 60);

#define STD TEST_DATA "/../frontend/std"

/* A family with a list for each kind of layer, wrapped as the text part of another. */
static const char inner_page[] =
    "use \"layers\"\n"
    "config inner {\n"
    "    use sizes\n"
    "}\n"
    "config sizes {\n"
    "    field prefix_lm = bool(\"prefix_lm\", \"m\", default: false)\n"
    "    param layers = int(\"num_hidden_layers\", \"m\", most: 1000)\n"
    "    param vocab = int(\"vocab_size\", \"m\")\n"
    "    param k = int(\"num_experts_per_token\", \"m\", also: \"num_experts_per_tok\", default: "
    "1)\n"
    "    field kinds = record(\"kinds\", \"m\", of: kinds, default: none, null: true)\n"
    "    param linear = if kinds != none { kinds.is_linear } else { [true for l in 0..layers] }\n"
    "    only(\"model_type\", \"m\", \"inner\")\n"
    "    below = \"\"\n"
    "    others = []\n"
    "}\n"
    "config kinds(layers) {\n"
    "    field linear_layers = ints(\"linear_layers\", \"m\")\n"
    "    field full_layers = ints(\"full_layers\", \"m\")\n"
    "    each_once(\"layer\", 1, layers, \"linear_layers\", \"full_layers\")\n"
    "    linear = linear_layers\n"
    "    is_linear = [sum([1 for i in linear if i == l + 1]) == 1 for l in 0..layers]\n"
    "}\n"
    "model inner() {\n"
    "    for name in others {\n"
    "        unused_weights(name)\n"
    "    }\n"
    "    at below {\n"
    "        h = embed(\"embed\", vocab, k)\n"
    "        for l in 0..layers {\n"
    "            at \"layers.{l}\" {\n"
    "                if linear[l] {\n"
    "                    h = linear_map(h)\n"
    "                } else {\n"
    "                    h = silu(h)\n"
    "                }\n"
    "            }\n"
    "        }\n"
    "    }\n"
    "    output logits = h\n"
    "}\n"
    "fn linear_map(x) {\n"
    "    return linear(x, \"w\", dim(x, -1))\n"
    "}\n";

static const char outer_page[] = "use \"inner\"\n"
                                 "config outer {\n"
                                 "    ignored(\"of the whole\", \"media_token\")\n"
                                 "    ignored(\"the other tower\", \"vision_config\")\n"
                                 "    use sizes in \"text_config\"\n"
                                 "    below = \"language_model\"\n"
                                 "    others = [\"vision_tower.\", \"projector.\"]\n"
                                 "}\n";

static void write_text(const char *name, const char *text) {
    cr_assert(hd_write_file(arena, &diags, in_folder(name), text, strlen(text)), "%s", said());
}

static char *import(const char *config) {
    const char *dirs[] = {folder};
    const hfe_options options = {.std_dir = STD, .include_dirs = dirs, .n_include_dirs = 1};
    hd_diags_init(&diags, arena);
    write_text("inner.hadal", inner_page);
    write_text("outer.hadal", outer_page);
    write_text("config.json", config);
    return hfe_import(arena, &diags, folder, &options);
}

static hir_module *load(const char *spec) {
    const char *dirs[] = {folder};
    const hfe_options options = {.std_dir = STD, .include_dirs = dirs, .n_include_dirs = 1};
    hir_module *m = hfe_load_spec_text(arena, &diags, "spec.hadal", spec, &options);
    cr_assert(m, "%s\n%s", spec, said());
    return m;
}

#define INNER "{\"model_type\": \"inner\", \"vocab_size\": 9, "
#define OUTER                                                                                      \
    "{\"model_type\": \"outer\",\n \"media_token\": 3,\n \"vision_config\": {\"a\": 1},\n "

/* ---- lists of layers ------------------------------------------------------------------------- */

Test(family_objects, lists_that_count_from_one_become_kinds_of_layers) {
    const char *spec = import(INNER "\"num_hidden_layers\": 4,\n \"kinds\": {\"linear_layers\": "
                                    "[4, 1, 2], \"full_layers\": [3]}}");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "linear = [true, true, false, true]"), "%s", spec);
    const hir_module *m = load(spec);
    cr_expect_neq(hir_find_weight(m, "layers.0.w.weight"), HIR_NONE);
    cr_expect_eq(hir_find_weight(m, "layers.2.w.weight"), HIR_NONE);
    cr_expect(import(INNER "\"num_hidden_layers\": 2, \"kinds\": {\"linear_layers\": [], "
                           "\"full_layers\": [1, 2]}}"),
              "%s", said());
}

Test(family_objects, every_layer_stands_in_one_list_once) {
    static const struct {
        const char *lists, *error;
        uint32_t column; /* in the second line, which begins with `"linear_layers": ` */
    } cases[] = {
        {"[1, 2, 2], \"full_layers\": [3, 4]", "kinds.linear_layers: layer 2 stands here twice",
         25},
        {"[1, 2], \"full_layers\": [2, 3, 4]",
         "kinds.full_layers: layer 2 stands in linear_layers, too", 42},
        {"[1, 2], \"full_layers\": [4]", "kinds.linear_layers: layer 3 is missing", 18},
        {"[], \"full_layers\": [4]", "kinds.linear_layers: layers 1, 2, 3 are missing", 18},
        {"[1, 2, 3, 4, 5], \"full_layers\": []", "kinds.linear_layers: there is no layer 5", 31},
        {"[1, 2, 3, 4, 2147483647], \"full_layers\": []",
         "kinds.linear_layers: there is no layer 2147483647", 31},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_null(import(hd_printf(arena,
                                        INNER "\"num_hidden_layers\": 4, \"kinds\": {\n"
                                              "\"linear_layers\": %s}}",
                                        cases[i].lists)));
        const hd_diag *g = find_message(cases[i].error);
        cr_assert(g, "no '%s' in: %s", cases[i].error, said());
        cr_expect_eq(g->loc.line, 2);
        cr_expect_eq(g->loc.column, cases[i].column, "%s: column %u", cases[i].lists,
                     g->loc.column);
        cr_expect(g->cause || strstr(cases[i].error, "twice"), "%s", g->message);
    }
}

/* All faults of both lists in one run; what follows from them is silent. */
Test(family_objects, all_faults_of_the_lists_are_said_at_once) {
    cr_expect_null(import(INNER "\"num_hidden_layers\": 30, \"kinds\": {\"linear_layers\": [1, 1, "
                                "31], \"full_layers\": [2, 1]}}"));
    cr_expect(find_message("layer 1 stands here twice"), "%s", said());
    cr_expect(find_message("there is no layer 31"), "%s", said());
    cr_expect(find_message("layer 1 stands in linear_layers, too"), "%s", said());
    cr_expect(find_message("layers 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 18 more are missing"), "%s",
              said());
    cr_expect_eq(diags.errors, 4, "%s", said());
}

Test(family_objects, layers_from_zero_are_an_error_where_they_count_from_one) {
    cr_expect_null(import(INNER "\"num_hidden_layers\": 2, \"kinds\": {\"linear_layers\": [0], "
                                "\"full_layers\": [1]}}"));
    cr_expect(find_message("kinds.linear_layers: must be a list of whole numbers from 1"), "%s",
              said());
    cr_expect(find_message("there is no layer 0"), "%s", said());
    cr_expect(find_message("layer 2 is missing"), "%s", said());
}

Test(family_objects, lists_of_other_things_are_rejected_once) {
    static const char *const wrong[] = {"[1.5, 2]", "[\"1\", 2]", "[null]", "{}", "3", "null"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_expect_null(import(hd_printf(arena,
                                        INNER "\"num_hidden_layers\": 2, \"kinds\": "
                                              "{\"linear_layers\": %s, \"full_layers\": [1, 2]}}",
                                        wrong[i])));
        cr_expect(find_message("kinds.linear_layers: must be a list of whole numbers"), "%s: %s",
                  wrong[i], said());
    }
    cr_expect_null(
        import(INNER "\"num_hidden_layers\": 2, \"kinds\": {\"linear_layers\": [1, 2]}}"));
    cr_expect(find_message("kinds: the field 'full_layers' is missing"), "%s", said());
    cr_expect_eq(diags.errors, 1, "%s", said());
}

/* ---- two names of a field -------------------------------------------------------------------- */

Test(family_objects, a_field_has_the_names_of_both_generations) {
    const char *const either[] = {"\"num_experts_per_token\": 4", "\"num_experts_per_tok\": 4",
                                  "\"num_experts_per_tok\": 4, \"num_experts_per_token\": 4"};
    for (int i = 0; i < 3; i++) {
        const char *spec =
            import(hd_printf(arena, INNER "\"num_hidden_layers\": 1, %s}", either[i]));
        cr_assert(spec, "%s", said());
        cr_expect(strstr(spec, "k = 4"), "%s", spec);
    }
    cr_expect_null(import(INNER "\"num_hidden_layers\": 1, \"num_experts_per_token\": 4, "
                                "\"num_experts_per_tok\": 3}"));
    cr_expect(find_message("num_experts_per_tok: contradicts num_experts_per_token"), "%s", said());
    cr_expect_null(import(INNER "\"num_hidden_layers\": 1, \"num_experts_per_tok\": -1}"));
    cr_expect(find_message("num_experts_per_tok: must be a whole number"), "%s", said());
    cr_expect_null(import(INNER "\"num_hidden_layers\": 1, \"num_experts_per_toke\": 1}"));
    cr_expect(find_message("unknown field 'num_experts_per_toke'"), "%s", said());
}

/* ---- wrapped configs ------------------------------------------------------------------------- */

Test(family_objects, the_text_part_of_a_wrapped_config) {
    const char *spec = import(OUTER "\"text_config\": {\"model_type\": \"inner\", \"vocab_size\": "
                                    "9, \"num_hidden_layers\": 1}}");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "    at \"language_model\" {\n"), "%s", spec);
    const hir_module *m = load(spec);
    cr_expect_neq(hir_find_weight(m, "language_model.layers.0.w.weight"), HIR_NONE);
    cr_assert_eq(m->unused_below.n, 2);
    cr_expect_str_eq(m->unused_below.at[0], "vision_tower.");
    const char *plain = import(INNER "\"num_hidden_layers\": 1}");
    cr_assert(plain, "%s", said());
    cr_expect_not(strstr(plain, "at \"\""), "a scope without a name is none:\n%s", plain);
    cr_expect_not(strstr(plain, "unused_weights"), "nothing is left out:\n%s", plain);
}

Test(family_objects, faults_of_a_wrapped_config) {
    static const struct {
        const char *rest, *error;
    } cases[] = {
        {"\"x\": 1}", "the field 'text_config' is missing"},
        {"\"text_config\": null}", "text_config: must be an object, not null"},
        {"\"text_config\": [1]}", "text_config: must be an object, not [1]"},
        {"\"text_config\": {}}", "text_config: the field 'vocab_size' is missing"},
        {"\"text_config\": {\"vocab_size\": 9, \"num_hidden_layers\": 1, \"hidden\": 3}}",
         "unknown field 'text_config.hidden'"},
        {"\"text_config\": {\"vocab_size\": \"9\", \"num_hidden_layers\": 1}}",
         "text_config.vocab_size: must be a whole number"},
        {"\"text_config\": {\"vocab_size\": 9, \"num_hidden_layers\": 1, \"model_type\": \"a\"}}",
         "text_config.model_type: \"a\" cannot be honoured"},
        {"\"text_config\": {\"vocab_size\": 9, \"num_hidden_layers\": 2, \"kinds\": "
         "{\"linear_layers\": [1], \"full_layers\": [1]}}}",
         "text_config.kinds.full_layers: layer 1 stands in linear_layers, too"},
        {"\"text_config\": {\"vocab_size\": 9, \"num_hidden_layers\": 1}, \"vocab_size\": 9}",
         "unknown field 'vocab_size'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_null(import(hd_printf(arena, OUTER "%s", cases[i].rest)), "%s", cases[i].rest);
        cr_expect(find_message(cases[i].error), "no '%s' in: %s", cases[i].error, said());
    }
}

Test(family_objects, pages_that_wrap_wrongly) {
    static const char *const pages[][2] = {
        {"config page {\n    use other in 7\n}\nconfig other {\n}\nmodel page() {\n}\n",
         "named by a plain string"},
        {"config page {\n    a = \"x\"\n    use other in \"{a}\"\n}\nconfig other {\n}\nmodel "
         "page() "
         "{\n}\n",
         "named by a plain string"},
        {"config page {\n    field a = int(\"a\", \"m\", also: 3)\n}\nmodel page() {\n}\n",
         "the other name of a field is a plain string"},
        {"config page {\n    each_once(\"layer\", 1, 3)\n}\nmodel page() {\n}\n",
         "too few arguments for 'each_once'"},
        {"config page {\n    a = \"x\"\n    each_once(\"layer\", 1, 3, a)\n}\nmodel page() {\n}\n",
         "fields are named by plain strings"},
    };
    const char *dirs[] = {folder};
    const hfe_options options = {.std_dir = STD, .include_dirs = dirs, .n_include_dirs = 1};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        hd_diags_init(&diags, arena);
        write_text("page.hadal", pages[i][0]);
        write_text("config.json", "{\"model_type\": \"page\"}");
        cr_expect_null(hfe_import(arena, &diags, folder, &options), "%s", pages[i][0]);
        cr_expect(find_message(pages[i][1]), "no '%s' in: %s", pages[i][1], said());
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void write_tensor(const char *name, uint32_t rank, int64_t n, int64_t m) {
    static const float zeros[64];
    hd_tensor t = {.name = name, .dtype = HD_T_F32, .rank = rank, .shape = {n, m}};
    t.data = (const uint8_t *)zeros;
    cr_assert(hd_tensor_measure(&t));
    cr_assert(hd_safetensors_write(arena, &diags, in_folder("model.safetensors"), &t, 1));
}

static const char stored_page[] = "use \"layers\"\n"
                                  "config page {\n"
                                  "    shape = stored(\"a.weight\")\n"
                                  "    biased = stored(\"a.bias\") != none\n"
                                  "}\n"
                                  "model page() {\n"
                                  "    w = weight(\"a.weight\", shape ?? [4, 4])\n"
                                  "    output logits = gather(w, input(\"tokens\"))\n"
                                  "}\n";

Test(family_objects, a_page_asks_for_the_shape_of_a_tensor) {
    const char *dirs[] = {folder};
    const hfe_options options = {.std_dir = STD, .include_dirs = dirs, .n_include_dirs = 1};
    write_text("page.hadal", stored_page);
    write_text("config.json", "{\"model_type\": \"page\"}");
    const char *spec = hfe_import(arena, &diags, folder, &options);
    cr_assert(spec && strstr(spec, "weight(\"a.weight\", [4, 4])"), "without tensors: %s", spec);
    write_tensor("a.weight", 2, 5, 3);
    spec = hfe_import(arena, &diags, folder, &options);
    cr_assert(spec && strstr(spec, "weight(\"a.weight\", [5, 3])"), "%s", spec);
    write_tensor("other", 2, 5, 3);
    spec = hfe_import(arena, &diags, folder, &options);
    cr_assert(spec && strstr(spec, "weight(\"a.weight\", [4, 4])"), "%s", spec);
    write_text("model.safetensors", "no tensors at all");
    spec = hfe_import(arena, &diags, folder, &options);
    cr_assert(spec && diags.errors == 0, "faults of the file are said when it is read: %s", said());
}

/* A weight has its name and shape in whatever form it is stored: pages look for names by which
 * programs differ. */
Test(family_objects, a_page_asks_for_the_shape_of_a_quantised_weight) {
    static const uint8_t bytes[5 * 32] = {0};
    const char *dirs[] = {folder};
    const hfe_options options = {.std_dir = STD, .include_dirs = dirs, .n_include_dirs = 1};
    hd_tensor parts[] = {
        {.name = "a.weight_packed", .dtype = HD_T_U8, .rank = 2, .shape = {5, 16}, .data = bytes},
        {.name = "a.weight_scale", .dtype = HD_T_U8, .rank = 2, .shape = {5, 1}, .data = bytes},
    };
    write_text("page.hadal", stored_page);
    write_text("config.json", "{\"model_type\": \"page\"}");
    for (int i = 0; i < 2; i++)
        cr_assert(hd_tensor_measure(&parts[i]));
    cr_assert(hd_safetensors_write(arena, &diags, in_folder("model.safetensors"), parts, 2));
    const char *spec = hfe_import(arena, &diags, folder, &options);
    cr_assert(spec && strstr(spec, "weight(\"a.weight\", [5, 32])"), "%s", spec);
    cr_assert(hd_safetensors_write(arena, &diags, in_folder("model.safetensors"), parts, 1));
    spec = hfe_import(arena, &diags, folder, &options);
    cr_assert(spec && diags.errors == 0, "faults of the file are said when it is read: %s", said());
}

/* ---- other parts of a checkpoint ------------------------------------------------------------- */

static const char parts[] = "hir 1 graph @m\n\n"
                            "weight @text.w : f32[4, 2]\n\n"
                            "weights \"vision.\" unused\nweights \"text.draft.\" unused\n\n"
                            "func(%tokens: i32[T]) {\n"
                            "  %0 = gather @text.w, %tokens : f32[T, 2]\n"
                            "  output %0 {name = \"logits\"}\n}\n";

static bool check_names_of(const char *module, const char *const *names, size_t n) {
    static const float zeros[8];
    hir_module *m = hir_parse(arena, &diags, "m.hir", module);
    hd_tensors tensors = {0};
    cr_assert(m, "%s", said());
    for (size_t i = 0; i < n; i++) {
        hd_tensor t = {.name = names[i], .dtype = HD_T_F32, .rank = 2, .shape = {4, 2}};
        t.data = (const uint8_t *)zeros;
        cr_assert(hd_tensor_measure(&t));
        hd_push(arena, &tensors.list, t);
    }
    const bool fit = hcg_check_weights(m, &diags, &tensors);
    if (fit) hcg_warn_of_absent(m, &diags, &tensors);
    return fit;
}

static bool check_names(const char *const *names, size_t n) {
    return check_names_of(parts, names, n);
}

Test(family_objects, tensors_of_other_parts_are_counted_and_left_out) {
    const char *const names[] = {"text.draft.a", "text.w", "vision.a", "vision.b"};
    cr_assert(check_names(names, 4), "%s", said());
    cr_expect(find_message("2 tensors below 'vision.' (64 bytes) belong to another part"), "%s",
              said());
    cr_expect(find_message("1 tensor below 'text.draft.' (32 bytes) belongs to another part"), "%s",
              said());
}

#define MODULE(parts)                                                                              \
    "hir 1 graph @m\n\nweight @w : f32[4, 2]\n\n" parts "\nfunc(%tokens: i32[T]) {\n"              \
    "  %0 = gather @w, %tokens : f32[T, 2]\n  output %0 {name = \"logits\"}\n}\n"

Test(family_objects, a_star_stands_for_a_number) {
    static const char module[] = MODULE("weights \"layers.*.draft.*.\" unused\n");
    const char *const names[] = {"layers.0.draft.7.a", "layers.12.draft.34.b", "w"};
    cr_assert(check_names_of(module, names, 3), "%s", said());
    cr_expect(find_message("2 tensors below 'layers.*.draft.*.' (64 bytes) belong"), "%s", said());
    const char *const others[] = {"layers..draft.7.a", "layers.1.draft.7", "layers.1a.draft.7.b",
                                  "layers.x.draft.7.c", "w"};
    hd_diags_init(&diags, arena);
    cr_expect_not(check_names_of(module, others, 5));
    cr_expect_eq(diags.errors, 4, "%s", said());
}

/* Beginnings that differ in numbers alone are one part; a single one keeps its number. */
Test(family_objects, parts_of_one_pattern_are_counted_together) {
    static const char module[] =
        MODULE("weights \"layers.0.scale\" unused\nweights \"layers.1.scale\" unused\n"
               "weights \"layers.12.scale\" unused\nweights \"layers.3.tail.\" unused\n"
               "weights \"layers.4.tail.\" unused\nweights \"v2.0a.\" unused\n"
               "weights \"v2.1a.\" unused\n");
    const char *const names[] = {"layers.0.scale", "layers.12.scale", "layers.4.tail.x",
                                 "v2.0a.x",        "v2.1a.x",         "w"};
    cr_assert(check_names_of(module, names, 6), "%s", said());
    cr_expect(find_message("2 tensors below 'layers.*.scale' (64 bytes) belong"), "%s", said());
    cr_expect(find_message("1 tensor below 'layers.4.tail.' (32 bytes) belongs"), "%s", said());
    cr_expect(find_message("1 tensor below 'v2.0a.'"), "%s", said());
    cr_expect_eq(diags.list.n, 4, "%s", said());
}

/* Of many parts there is one note. */
Test(family_objects, many_parts_are_counted_together) {
    static const char module[] =
        MODULE("weights \"a.\" unused\nweights \"b.\" unused\nweights \"c.\" unused\n"
               "weights \"d.\" unused\nweights \"e.\" unused\nweights \"f.\" unused\n"
               "weights \"g.\" unused\nweights \"h.\" unused\nweights \"i.\" unused\n"
               "weights \"j.\" unused\n");
    const char *const names[] = {"b.0", "b.1", "c.0", "d.0", "e.0", "f.0",
                                 "g.0", "h.0", "i.0", "j.0", "w"};
    cr_assert(check_names_of(module, names, 11), "%s", said());
    cr_expect(find_message("10 tensors below 'b.' and 8 other beginnings of names (320 bytes)"),
              "%s", said());
    cr_expect_eq(diags.list.n, 1, "%s", said());
}

Test(family_objects, a_tensor_of_no_part_is_an_error) {
    const char *const names[] = {"text.w", "text.x", "vision"};
    cr_expect_not(check_names(names, 3));
    cr_expect_eq(diags.errors, 2, "%s", said());
    const char *const none[] = {"vision.a"};
    hd_diags_init(&diags, arena);
    cr_expect_not(check_names(none, 1), "the model's own weight is missing");
}

Test(family_objects, the_text_form_keeps_the_parts) {
    hir_module *m = hir_parse(arena, &diags, "m.hir", parts);
    cr_assert(m, "%s", said());
    hd_text out;
    hd_text_init(&out, arena);
    hir_print(hir_module_clone(m, arena), (hir_print_options){0}, &out);
    cr_expect(strstr(out.at, "weights \"vision.\" unused\nweights \"text.draft.\" unused\n\nfunc("),
              "%s", out.at);
    static const char *const wrong[][2] = {
        {"weights \"\" unused\n", "all names begin with nothing"},
        {"weights \"a.\"\n", "'unused'"},
        {"weights @a unused\n", "the beginning of names in quotes"},
        {"weights \"a.\" unused\nweights \"a.b.\" unused\n", "are unused already"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        hd_diags_init(&diags, arena);
        const char *text = hd_printf(arena, "hir 1 graph @m\n\n%sfunc() {\n}\n", wrong[i][0]);
        cr_expect_null(hir_parse(arena, &diags, "m.hir", text));
        cr_expect(find_message(wrong[i][1]), "no '%s' in: %s", wrong[i][1], said());
    }
}
