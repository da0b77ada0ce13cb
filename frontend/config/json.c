/* JSON with places. The parsing library does not report where a value stood, so the text is scanned
 * again for the one field that a diagnostic is about (support/json.h). */
#include "frontend/config/json.h"

#include <string.h>

#include "support/file.h"
#include "support/json.h"

enum {
    MAX_CONFIG = 16 << 20, /* bytes of a config file */
};

static void drop(void *what) {
    hfe_json *j = what;
    json_decref(j->root);
    j->root = NULL;
}

hfe_json *hfe_json_open(hd_arena *a, hd_diags *d, const char *path) {
    size_t n;
    hfe_json *j = hd_new(a, hfe_json);
    *j = (hfe_json){.arena = a, .diags = d, .file = hd_strdup(a, path)};
    hd_arena_defer(a, drop, j);
    j->text = hd_read_text(a, d, path, MAX_CONFIG, &n);
    if (!j->text) return NULL;
    j->root = hd_json_parse(d, "file", j->file, j->text, n);
    if (!j->root) return NULL;
    if (json_is_object(j->root)) return j;
    hd_err(d, HD_E_CONFIG, (hd_loc){.file = j->file, .line = 1, .column = 1},
           "the config is not a JSON object");
    return NULL;
}

const char *const hfe_language_parts[HFE_LANGUAGE_PARTS] = {"text_config", "llm_config",
                                                            "language_config"};

json_t *hfe_json_get(const hfe_json *j, const hfe_field *f) {
    return f ? json_object_get(hfe_json_get(j, f->object), f->name) : j->root;
}

const char *hfe_json_path(const hfe_json *j, const hfe_field *f) {
    hd_text t; /* names in a file may contain any character, so they are escaped */
    hd_text_init(&t, j->arena);
    hd_text_quoted(&t, f->name);
    const char *name = hd_strndup(j->arena, t.at + 1, t.n - 2);
    return f->object ? hd_printf(j->arena, "%s.%s", hfe_json_path(j, f->object), name) : name;
}

/* ---- places -------------------------------------------------------------------------------- */

/* Returns where the value of a field begins, with its name in *key, or NULL if it cannot be
 * found. */
static const char *find_field(const hfe_json *j, const hfe_field *f, const char **key) {
    const char *value = NULL;
    if (!f) return hd_json_skip_space(j->text);
    const char *object = find_field(j, f->object, key);
    *key = object ? hd_json_member(object, f->name, &value) : NULL;
    return *key ? value : NULL;
}

hd_loc hfe_json_key(const hfe_json *j, const hfe_field *f) {
    const char *key = NULL;
    if (!find_field(j, f, &key) || !key) return (hd_loc){.file = j->file};
    return hd_json_place(j->file, j->text, key);
}

hd_loc hfe_json_value(const hfe_json *j, const hfe_field *f) {
    const char *key = NULL, *value = find_field(j, f, &key);
    if (!value || !key) return (hd_loc){.file = j->file};
    return hd_json_place(j->file, j->text, value);
}

hd_loc hfe_json_element(const hfe_json *j, const hfe_field *f, size_t i) {
    const char *key = NULL, *p = find_field(j, f, &key);
    if (!p || !key || *p != '[') return hfe_json_value(j, f);
    return hd_json_place(j->file, j->text, hd_json_item(p, i));
}

const char *hfe_json_show(const hfe_json *j, const json_t *value) {
    return hd_json_show(j->arena, value);
}
