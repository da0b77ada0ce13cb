/* Pages of families: what their declarations promise, held against every field of every page; pages
 * of one's own; pages with faults. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "frontend/config/family.h"
#include "frontend/frontend.h"

#define FOLDER "/tmp/hadal-pages-XXXXXX"
#include "tests/tools/full.h"
#include "tests/unit/folder_fixture.h"

TestSuite(family_pages, .init = open_folder, .fini = close_folder, .timeout = 300);

#define STD TEST_DATA "/../frontend/std"

static const hfe_options library = {.std_dir = STD};

/* ---- hostile values for every declared field ------------------------------------------------- */

static const char *const hostile[] = {
    "0",      "-1",       "1",     "2147483647", "2147483648",   "9223372036854775807", "0.5",
    "-1e300", "1e308",    "1e-40", "\"\"",       "\"\\u001b[\"", "\"full_attention\"",  "true",
    "false",  "null",     "[]",    "[null]",     "[1]",          "[0, -1, 1e300]",      "[\"x\"]",
    "{}",     "{\"a\":1}"};
enum { N_HOSTILE = sizeof hostile / sizeof *hostile };

static json_t *load(const char *text) {
    json_error_t error;
    json_t *v = json_loads(text, JSON_DECODE_ANY, &error);
    cr_assert(v, "%s", text);
    return v;
}

/* A list of more elements than a model has layers at most, 10000, for fields that count them. */
static json_t *long_list(void) {
    json_t *list = json_array();
    for (int i = 0; i < 10001; i++)
        json_array_append_new(list, json_integer(i % 2));
    return list;
}

/* A program that has read its pages, for so many imports: reading them takes longer than a config.
 */
static hfe_program *reader(size_t bytes) {
    enum { IMPORTS = 64, LARGE = 1 << 16 };
    static hfe_program p;
    static int left;
    if (left-- <= 0) {
        if (p.arena) hd_arena_free(p.arena);
        p = (hfe_program){.arena = hd_arena_new(), .options = &library};
        left = IMPORTS - 1;
    }
    if (bytes > LARGE) left = 0; /* what it leaves behind is large, too */
    return &p;
}

/* Thousands of files, none of which has to outlive a power cut: hd_write_file waits for the disk.
 */
static void write_config(const char *text) {
    FILE *f = fopen(in_folder("config.json"), "w");
    cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Imports; a spec comes with no error, and no spec with one. Small models are elaborated too. */
static void try_config(const json_t *config, const char *what, bool elaborate) {
    hd_arena *a = hd_arena_new();
    hd_diags d;
    hd_diags_init(&d, a);
    char *text = json_dumps(config, JSON_COMPACT);
    write_config(text);
    hfe_program *p = reader(strlen(text));
    free(text);
    p->diags = &d;
    const char *spec = hfe_import_with(p, folder);
    cr_expect_eq(spec != NULL, d.errors == 0, "%s", what);
    for (size_t i = 0; i < d.list.n; i++) {
        hd_text shown;
        hd_text_init(&shown, a);
        hd_diag_render(&d.list.at[i], false, &shown);
        cr_expect_not(strchr(shown.at, '\x1b'), "%s: a terminal would obey this", what);
    }
    if (spec && elaborate) {
        const size_t errors = d.errors;
        const bool made = hfe_load_spec_text(a, &d, "imported.hadal", spec, &library) != NULL;
        cr_expect_eq(made, d.errors == errors, "%s", what);
    }
    hd_arena_free(a);
}

/* Many families include the same configs. Their fields get every value once, and few values from
 * then on: what a family does with them may differ, how they are read does not. */
static bool first_time(const hfe_known_field *f) {
    static HD_VEC(const char *) seen;
    const char *key = hd_printf(arena, "%s.%s", f->config ? f->config->name : "", f->name);
    for (size_t i = 0; i < seen.n; i++)
        if (strcmp(seen.at[i], key) == 0) return false;
    hd_push(arena, &seen, key);
    return true;
}

static void try_field(json_t *config, json_t *object, const char *name, const char *family,
                      int step) {
    json_t *kept = json_incref(json_object_get(object, name));
    static unsigned number; /* of the field, by which values take turns */
    number++;
    for (int i = 0; i <= N_HOSTILE; i += step) {
        if (!has_turn((unsigned)(i / step) + number, step == 1 ? 8 : 2)) continue;
        json_object_set_new(object, name, i < N_HOSTILE ? load(hostile[i]) : long_list());
        try_config(
            config,
            hd_printf(arena, "%s.%s = %s", family, name, i < N_HOSTILE ? hostile[i] : "long"),
            i == 0 || i == 2 || i == 6);
    }
    if (kept)
        json_object_set_new(object, name, kept);
    else
        json_object_del(object, name);
}

static void try_fields(json_t *config, json_t *object, const hfe_def *def, const char *family) {
    hfe_known_fields fields;
    hfe_list_fields(arena, def, &fields);
    cr_assert(fields.list.n > 0);
    for (size_t i = 0; i < fields.list.n; i++) {
        const hfe_known_field *f = &fields.list.at[i];
        if (f->declared || f->only || f->alias_of || f->inside)
            try_field(config, object, f->name, family, first_time(f) ? 1 : 6);
        if (f->inside && json_is_object(json_object_get(object, f->name)))
            try_fields(config, json_object_get(object, f->name), f->inside, f->name);
        if (!f->declared || f->declaration.kind != HFE_KIND_OBJECT) continue;
        json_t *kept = json_incref(json_object_get(object, f->name)), *inner = json_object();
        json_object_set_new(object, f->name, inner);
        const hfe_expr *of = f->declaration.aspect[HFE_ASPECT_of];
        try_fields(config, inner, hfe_find_config(f->config->file, of->name), f->name);
        if (kept)
            json_object_set_new(object, f->name, kept);
        else
            json_object_del(object, f->name);
    }
}

/* Some configs need the tokenizer of their folder. */
static void link_tokenizer(const char *family) {
    const char *file = hd_printf(arena, "%s/published/%s/tokenizer.json", TEST_DATA, family);
    unlink(in_folder("tokenizer.json"));
    if (hd_exists(file)) cr_assert_eq(symlink(file, in_folder("tokenizer.json")), 0);
}

static void try_family(const char *name) {
    link_tokenizer(name);
    hfe_program p = {.arena = arena, .diags = &diags, .options = &library};
    const hfe_file *page = hfe_read_page(&p, hd_printf(arena, "families/%s", name));
    cr_assert(page, "%s", said());
    char path[512];
    snprintf(path, sizeof path, "%s/published/%s/config.json", TEST_DATA, name);
    json_error_t error;
    json_t *config = json_load_file(path, 0, &error);
    cr_assert(config, "%s: every family has a folder in tests/published", path);
    try_config(config, name, true);
    try_fields(config, config, hfe_page_config(&p, page, name), name);
    json_decref(config);
}

Test(family_pages, every_field_of_every_family_with_hostile_values) {
    hfe_program p = {.arena = arena, .diags = &diags, .options = &library};
    hfe_candidates pages = {0};
    hfe_pages_in(&p, "families", &pages);
    cr_assert_geq(pages.list.n, 8);
    for (size_t i = 0; i < pages.list.n; i++)
        try_family(pages.list.at[i]);
}

/* The same for the fields of every residual system. */
Test(family_pages, every_field_of_every_residual_system_with_hostile_values) {
    hfe_program p = {.arena = arena, .diags = &diags, .options = &library};
    hfe_candidates pages = {0};
    hfe_pages_in(&p, "residual", &pages);
    for (size_t i = 0; i < pages.list.n; i++) {
        const char *name = pages.list.at[i];
        const hfe_file *page = hfe_read_page(&p, hd_printf(arena, "residual/%s", name));
        const hfe_def *def = page ? hfe_page_config(&p, page, name) : NULL;
        hfe_known_fields fields = {0};
        if (def) hfe_list_fields(arena, def, &fields);
        if (fields.list.n == 0) continue;
        json_t *config = load("{\"model_type\": \"qwen3\", \"vocab_size\": 9, \"hidden_size\": 8, "
                              "\"intermediate_size\": 5, \"num_hidden_layers\": 2, "
                              "\"num_attention_heads\": 2, \"head_dim\": 4}");
        json_t *object = json_object();
        json_object_set_new(config, "residual", object);
        json_object_set_new(object, "type", json_string(name));
        for (size_t k = 0; k < fields.list.n; k++) /* the other fields have a value that is legal */
            if (!fields.list.at[k].declaration.aspect[HFE_ASPECT_default])
                json_object_set_new(object, fields.list.at[k].name,
                                    fields.list.at[k].declaration.kind == HFE_KIND_BOOL
                                        ? json_true()
                                        : json_integer(1));
        try_config(config, name, true);
        try_fields(config, object, def, name);
        json_decref(config);
    }
}

/* ---- what a field is that is absent ---------------------------------------------------------- */

/* The spec of a config, without what it says behind #. */
static const char *spec_of(const json_t *config, const char *what) {
    hd_diags d;
    hd_diags_init(&d, arena);
    char *text = json_dumps(config, JSON_COMPACT);
    write_config(text);
    hfe_program *p = reader(strlen(text));
    free(text);
    p->diags = &d;
    const char *spec = hfe_import_with(p, folder);
    cr_assert(spec, "%s: %s", what, d.list.n ? d.list.at[0].message : "");
    char *plain = hd_strdup(arena, spec), *to = plain;
    for (bool skip = false; *spec; spec++) {
        skip = *spec != '\n' && (skip || *spec == '#');
        if (!skip) *to++ = *spec;
    }
    *to = '\0';
    return plain;
}

/* tests/published/defaults.json has every default a second time, as transformers has it: the spec of
 * a config without the field is that of the config that states it. (Values that show in no spec,
 * whatever they are, are left out.) tests/tools/published_defaults.py asks transformers itself. */
Test(family_pages, fields_that_are_absent_are_what_transformers_takes) {
    json_error_t error;
    json_t *families = json_load_file(TEST_DATA "/published/defaults.json", 0, &error), *of;
    const char *family, *field;
    size_t compared = 0;
    cr_assert(families, "%s", error.text);
    json_object_foreach(families, family, of) {
        if (!json_is_object(of)) continue;
        json_t *config = json_load_file(
            hd_printf(arena, "%s/published/%s/config.json", TEST_DATA, family), 0, &error);
        json_t *text = json_object_get(config, "text_config"), *value;
        json_t *object = json_is_object(text) ? text : config;
        json_object_foreach(json_object_get(of, "defaults"), field, value) {
            const char *what = hd_printf(arena, "%s.%s", family, field);
            json_t *kept = json_incref(json_object_get(object, field));
            json_object_del(object, field);
            const char *without = spec_of(config, what);
            json_object_set(object, field, value);
            char *shown = json_dumps(value, JSON_ENCODE_ANY);
            cr_expect_str_eq(without, spec_of(config, what),
                             "%s: absent, it is not %s, as in transformers' %s", what, shown,
                             json_string_value(json_object_get(of, "class")));
            free(shown);
            json_object_del(object, field);
            if (kept) json_object_set_new(object, field, kept);
            compared++;
        }
        json_decref(config);
    }
    cr_assert_gt(compared, 450, "only %zu fields", compared);
    json_decref(families);
}

/* ---- pages of one's own ---------------------------------------------------------------------- */

static void write_page(const char *name, const char *text) {
    char *path = in_folder(name);
    mkdir(hd_path_dir(arena, path), 0700);
    cr_assert(hd_write_file(arena, &diags, path, text, strlen(text)), "%s", said());
}

static char *import_with_pages(const char *config) {
    const char *dirs[] = {folder};
    const hfe_options options = {.std_dir = STD, .include_dirs = dirs, .n_include_dirs = 1};
    cr_assert(hd_write_file(arena, &diags, in_folder("config.json"), config, strlen(config)));
    return hfe_import(arena, &diags, folder, &options);
}

#define SIZES                                                                                      \
    "\"vocab_size\": 9, \"hidden_size\": 8, \"intermediate_size\": 5, \"num_hidden_layers\": 2, "  \
    "\"num_attention_heads\": 2"

Test(family_pages, a_page_of_ones_own_is_found_in_an_include_folder) {
    write_page("llama_scaled.hadal",
               "use \"layers\"\n"
               "use \"families/common/decoder\"\n"
               "config llama_scaled {\n"
               "    title = \"scaled Llama\"\n"
               "    use skeleton\n"
               "    param gain = float(\"gain\", \"of everything\", default: 2.0)\n"
               "}\n"
               "fn times(x, by) {\n"
               "    return by * x\n"
               "}\n"
               "model llama_scaled() {\n"
               "    output logits = headed(times(embedded(), gain))\n"
               "}\n");
    const char *spec =
        import_with_pages("{\"model_type\": \"llama_scaled\", \"gain\": 3, " SIZES "}");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "# A scaled Llama model, from its config.json."), "%s", spec);
    cr_expect(strstr(spec, "use \"llama_scaled\"\n"), "%s", spec);
    cr_expect(strstr(spec, "    gain = 3.0,\n"), "%s", spec);
    cr_expect(
        strstr(spec, "head(times(embed(\"model.embed_tokens\", vocab, hidden), gain), vocab)"),
        "%s", spec);
    cr_expect_not(strstr(spec, "layers = "), "what nothing uses is left out:\n%s", spec);
}

/* A word of a config is text in the spec that is made of it, whatever stands in it. */
Test(family_pages, braces_in_a_word_begin_no_expression) {
    write_page("marked.hadal",
               "use \"layers\"\n"
               "config marked {\n"
               "    title = \"marked\"\n"
               "    param mark = word(\"mark\", \"of a weight\", one_of: [\"{{1 + x}}\"])\n"
               "}\n"
               "model marked() {\n"
               "    output y = weight(\"of {mark}\", [3]) * 2\n"
               "}\n");
    const char *spec = import_with_pages("{\"model_type\": \"marked\", \"mark\": \"{1 + x}\"}");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "mark = \"{{1 + x}}\""), "%s", spec);
    cr_expect(hfe_load_spec_text(arena, &diags, "imported.hadal", spec, &library), "%s", said());
}

/* A page in an include folder stands before the library's of the same name, and can build on it. */
Test(family_pages, a_page_of_ones_own_can_build_on_the_page_of_the_same_name) {
    write_page("families/llama.hadal", "use \"families/llama\"\n"
                                       "config llama {\n"
                                       "    use decoder\n"
                                       "    title = \"my Llama\"\n"
                                       "    ignored(\"ours\", \"our_field\")\n"
                                       "}\n");
    cr_expect_null(import_with_pages("{\"model_type\": \"llama\", \"our_field\": 1, " SIZES "}"));
    cr_expect(find_message("there is no config 'decoder'"), "%s", said());
    hd_diags_init(&diags, arena);
    write_page("families/llama.hadal", "use \"families/common/decoder\"\n"
                                       "config llama {\n"
                                       "    use decoder\n"
                                       "    title = \"my Llama\"\n"
                                       "    ignored(\"ours\", \"our_field\")\n"
                                       "}\n");
    const char *spec =
        import_with_pages("{\"model_type\": \"llama\", \"our_field\": 1, " SIZES "}");
    cr_assert(spec, "%s", said());
    cr_expect(strstr(spec, "# A my Llama model"), "%s", spec);
}

/* What a page says of a value of one field; no error: it is taken. */
typedef struct value_case {
    const char *value, *error;
} value_case;

static void expect_values(const char *field, const value_case *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        hd_diags_init(&diags, arena);
        import_with_pages(
            hd_printf(arena, "{\"model_type\": \"page\", \"%s\": %s}", field, cases[i].value));
        const bool fine = cases[i].error ? find_message(cases[i].error) != NULL : diags.errors == 0;
        cr_expect(fine, "%s: %s", cases[i].value, said());
    }
}

/* A list with a length may be one value, if the page says so; what is neither is refused. */
Test(family_pages, one_value_stands_for_every_place_of_a_list) {
    write_page("page.hadal",
               "config page {\n"
               "    param widths = ints(\"widths\", \"m\", length: 3, each: true)\n"
               "    with = \"{sum(widths)}\"\n"
               "    if sum(widths) != 6 {\n        refuse(\"widths\", \"sum\")\n    }\n"
               "}\nmodel page() {\n    output logits = input(\"tokens\")\n}\n");
    static const value_case cases[] = {{"2", NULL},
                                       {"[1, 2, 3]", NULL},
                                       {"3", "sum"},
                                       {"[2, 4]", "has 2 entries for 3 places"},
                                       {"\"2\"", "a list of whole numbers"},
                                       {"0", "widths"},
                                       {"{}", "widths"}};
    expect_values("widths", cases, sizeof cases / sizeof *cases);
}

/* A list may go on, if the page says for how long: what follows is left out. */
Test(family_pages, lists_that_go_on) {
    write_page(
        "page.hadal",
        "config page {\n"
        "    field some = ints(\"some\", \"m\", length: 3, more: 2)\n"
        "    if sum(some) != 6 or len(some) != 3 {\n        refuse(\"some\", \"sum\")\n    }\n"
        "}\nmodel page() {\n    output logits = input(\"tokens\")\n}\n");
    static const value_case cases[] = {{"[1, 2, 3]", NULL},
                                       {"[1, 2, 3, 9, 9]", NULL},
                                       {"[1, 2, 3, 9]", "has 4 entries for 3 places"},
                                       {"[1, 2]", "has 2 entries for 3 places"},
                                       {"[1, 2, 3, 9, 9, 9]", "has 6 entries for 3 places"},
                                       {"[1, 2, 4]", "sum"},
                                       {"3", "a list of whole numbers"}};
    expect_values("some", cases, sizeof cases / sizeof *cases);
}

/* A string of numbers is a list, if the page says so. */
Test(family_pages, lists_that_are_strings) {
    write_page("page.hadal",
               "config page {\n"
               "    field some = ints(\"some\", \"m\", least: 0, most: 99, joined: true)\n"
               "    if sum(some) != 15 {\n        refuse(\"some\", \"sum\")\n    }\n"
               "}\nmodel page() {\n    output logits = input(\"tokens\")\n}\n");
    static const value_case cases[] = {{"\"3,12\"", NULL},
                                       {"\"15\"", NULL},
                                       {"[3, 12]", NULL},
                                       {"\"3,4\"", "sum"},
                                       {"\"\"", "sum"},
                                       {"\"3, 12 \"", NULL},
                                       {"\"3,,12,\"", NULL},
                                       {"\"3,x\"", "a string of them with commas"},
                                       {"\"3 12\"", "a string of them with commas"},
                                       {"\"3,-1\"", "a string of them with commas"},
                                       {"\"3,100\"", "from 0 to 99"},
                                       {"\"99999999999999999999\"", "a string of them with commas"},
                                       {"15", "a list of whole numbers"}};
    expect_values("some", cases, sizeof cases / sizeof *cases);
}

/* An object whose fields are numbers is a list; numbers outside of it are refused. */
Test(family_pages, objects_by_number) {
    write_page("page.hadal",
               "config part {\n    field x = int(\"x\", \"m\", default: 7)\n}\n"
               "config page {\n    field parts = numbered(\"parts\", \"m\", of: part, length: 3)\n"
               "    if sum([if p == none { 0 } else { p.x } for p in parts]) != 12 {\n"
               "        refuse(\"parts\", \"sum\")\n    }\n}\n"
               "model page() {\n    output logits = input(\"tokens\")\n}\n");
    static const value_case cases[] = {
        {"{\"0\": {\"x\": 5}, \"2\": {}}", NULL},
        {"{}", "sum"},
        {"{\"3\": {}}", "is no number from 0 to 2"},
        {"{\"-1\": {}}", "is no number from 0 to 2"},
        {"{\"01\": {}}", "is no number from 0 to 2"},
        {"{\"99999999999999999999\": {}}", "is no number from 0 to 2"},
        {"{\"1\": 12}", "must be an object"},
        {"{\"1\": {\"y\": 12}}", "unknown field 'parts.1.y'"},
        {"[]", "must be an object"}};
    expect_values("parts", cases, sizeof cases / sizeof *cases);
}

/* A family page is no model by itself. */
Test(family_pages, a_page_is_not_compiled_by_itself) {
    cr_expect_null(hfe_load_spec(arena, &diags, STD "/families/llama.hadal", &library));
    cr_expect(find_message("this is the page of a family, not a model"), "%s", said());
}

/* ---- pages with faults ----------------------------------------------------------------------- */

Test(family_pages, faults_of_pages_have_places) {
    static const struct {
        const char *body, *error;
        uint32_t line;
    } cases[] = {
        {"    field a = whole(\"a\", \"m\")\n", "this is no kind of field", 2},
        {"    field a = 7\n", "this is no kind of field", 2},
        {"    field a = int(\"a\")\n", "a field has a name and a meaning", 2},
        {"    field a = int(name, \"m\")\n", "a field has a name and a meaning", 2},
        {"    field a = int(\"a\", \"m\", 7)\n", "aspects of a field are named", 2},
        {"    field a = int(\"a\", \"m\", maximum: 7)\n", "fields have no such aspect", 2},
        {"    field a = word(\"a\", \"m\")\n", "a word needs one_of", 2},
        {"    field a = record(\"a\", \"m\")\n", "a record needs of", 2},
        {"    field a = record(\"a\", \"m\", of: nobody)\n", "there is no config 'nobody'", 2},
        {"    field a = system(\"a\", \"m\")\n", "a system needs pages", 2},
        {"    field a, b = int(\"a\", \"m\")\n", "one variable is declared", 2},
        {"    use nobody\n", "there is no config 'nobody'", 2},
        {"    use \"layers\"\n", "'use' in a config names another config", 2},
        {"    use page(x: 1)\n", "takes named arguments", 2},
        {"    refuse(\"a\")\n", "too few arguments for 'refuse'", 2},
        {"    refuse(message: \"a\", field: \"b\")\n", "'refuse' has no named arguments", 2},
        {"    ignored(\"why\", name)\n", "fields are named by plain strings", 2},
        {"    refus(\"a\", \"b\")\n", "unknown name 'refus'", 2},
        {"    x = nothing + 1\n", "unknown name 'nothing'", 2},
        {"    x = 1 + none\n", "'+' does not take", 2},
        {"    field a = int(\"vocab_size\", \"m\", most: \"x\")\n",
         "the end of a range is a number", 2},
        {"    field a = ints(\"list\", \"m\", length: \"x\")\n", "a length is an int", 2},
        {"    field a = word(\"hidden_act\", \"m\", one_of: [1])\n", "one_of is a list of strings",
         2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hd_diags_init(&diags, arena);
        write_page("page.hadal",
                   hd_printf(arena, "config page {\n%s}\nmodel page() {\n}\n", cases[i].body));
        cr_expect_null(import_with_pages("{\"model_type\": \"page\", \"vocab_size\": 3, "
                                         "\"hidden_act\": \"x\", \"list\": [1]}"),
                       "%s", cases[i].body);
        const hd_diag *g = find_message(cases[i].error);
        cr_expect(g, "no '%s' in: %s", cases[i].error, said());
        cr_expect(!g || g->loc.line == cases[i].line, "%s: line %u", cases[i].body, g->loc.line);
    }
}

/* Includes in a circle, and models that cannot be written out, end with an error. */
Test(family_pages, pages_that_cannot_be_read_to_the_end) {
    static const char *const pages[][2] = {
        {"config page {\n    use page\n}\nmodel page() {\n}\n", "this config cannot be included"},
        {"config page {\n    x = 1\n}\n", "the family 'page' has no model"},
        {"config page {\n    x = 1\n}\nmodel page() {\n    xs = [1]\n    xs[0] = 2\n"
         "    output logits = input(\"tokens\")\n}\n",
         "cannot stand in the model of a family"},
        {"config page {\n    x = 1\n    fn f() {\n        y = 1\n        return y\n    }\n}\n"
         "model page() {\n    output logits = f()\n}\n",
         "a function of a config is one return"},
        {"config page {\n    fn f() {\n        return g()\n    }\n    fn g() {\n        return "
         "f()\n    }\n}\n"
         "model page() {\n    output logits = f()\n}\n",
         "a function of a config that calls itself has no end"},
        {"config page {\n    f = none\n}\nfn f(x) {\n    return x\n}\n"
         "model page() {\n    output logits = f(input(\"tokens\"))\n}\n",
         "'f' is none here, and cannot be called"},
    };
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        hd_diags_init(&diags, arena);
        write_page("page.hadal", pages[i][0]);
        cr_expect_null(import_with_pages("{\"model_type\": \"page\"}"), "%s", pages[i][0]);
        cr_expect(find_message(pages[i][1]), "no '%s' in: %s", pages[i][1], said());
    }
}
