/* JSON with places. The library that parses does not say where a value stood, so the text is
 * scanned again for the one field that a diagnostic is about; it is known to be legal by then. */
#include "frontend/import_json.h"

#include <string.h>

#include "support/file.h"
#include "support/json.h"

enum {
    MAX_CONFIG = 16 << 20, /* bytes of a config file */
    MAX_SHOWN = 60,        /* bytes of a value in a message */
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
    hd_err(d, HD_E_CONFIG, (hd_loc){j->file, 1, 1, 0}, "the config is not a JSON object");
    return NULL;
}

json_t *hfe_json_get(const hfe_json *j, const hfe_field *f) {
    return f ? json_object_get(hfe_json_get(j, f->object), f->name) : j->root;
}

const char *hfe_json_path(const hfe_json *j, const hfe_field *f) {
    hd_text t; /* names in a file may hold anything: escape them */
    hd_text_init(&t, j->arena);
    hd_text_quoted(&t, f->name);
    const char *name = hd_strndup(j->arena, t.at + 1, t.n - 2);
    return f->object ? hd_printf(j->arena, "%s.%s", hfe_json_path(j, f->object), name) : name;
}

/* ---- places -------------------------------------------------------------------------------- */

static const char *skip_space(const char *p) {
    return p + strspn(p, " \t\r\n");
}

/* p at the opening quote; the place behind the closing one. */
static const char *skip_string(const char *p) {
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1]) p++;
    return *p ? p + 1 : p;
}

static const char *skip_value(const char *p) {
    size_t depth = 0;
    do {
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if (*p == '}' || *p == ']')
            depth--;
        else if (depth == 0)
            return p + strcspn(p, ",]} \t\r\n");
        p++;
    } while (depth > 0 && *p);
    return p;
}

/* The member `name` of the object that begins at p: places of key and value, NULL if it cannot be
 * found (a key written with escapes). */
static const char *find_member(const char *p, const char *name, const char **value) {
    size_t n = strlen(name);
    if (*p != '{') return NULL;
    for (p = skip_space(p + 1); *p == '"'; p = skip_space(p)) {
        const char *key = p;
        p = skip_space(skip_string(p));
        if (*p != ':') return NULL;
        *value = p = skip_space(p + 1);
        if (strncmp(key + 1, name, n) == 0 && key[n + 1] == '"') return key;
        p = skip_space(skip_value(p));
        if (*p == ',') p++;
    }
    return NULL;
}

static hd_loc place(const hfe_json *j, const char *from, const char *to) {
    hd_loc loc = {j->file, 1, 1, 0};
    for (const char *p = j->text; p < from; p++) {
        loc.column++;
        if (*p == '\n') loc.line++, loc.column = 1;
    }
    const char *line_end = from + strcspn(from, "\n");
    loc.end_column = loc.column + (uint32_t)((to < line_end ? to : line_end) - from);
    return loc;
}

/* Where the value of a field begins, and its name; NULL if it cannot be found. */
static const char *find_field(const hfe_json *j, const hfe_field *f, const char **key) {
    const char *value = NULL;
    if (!f) return skip_space(j->text);
    const char *object = find_field(j, f->object, key);
    *key = object ? find_member(object, f->name, &value) : NULL;
    return *key ? value : NULL;
}

hd_loc hfe_json_key(const hfe_json *j, const hfe_field *f) {
    const char *key = NULL;
    if (!find_field(j, f, &key) || !key) return (hd_loc){.file = j->file};
    return place(j, key, skip_string(key));
}

hd_loc hfe_json_value(const hfe_json *j, const hfe_field *f) {
    const char *key = NULL, *value = find_field(j, f, &key);
    if (!value || !key) return (hd_loc){.file = j->file};
    return place(j, value, skip_value(value));
}

hd_loc hfe_json_element(const hfe_json *j, const hfe_field *f, size_t i) {
    const char *key = NULL, *p = find_field(j, f, &key);
    if (!p || !key || *p != '[') return hfe_json_value(j, f);
    for (p = skip_space(p + 1); i > 0 && *p && *p != ']'; i--) {
        p = skip_space(skip_value(p));
        if (*p == ',') p = skip_space(p + 1);
    }
    return place(j, p, skip_value(p));
}

const char *hfe_json_show(const hfe_json *j, const json_t *value) {
    char *text = hd_alloc(j->arena, MAX_SHOWN + 4, 1);
    size_t flags = JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6);
    size_t n = json_dumpb(value, text, MAX_SHOWN, flags);
    if (n > MAX_SHOWN) strcpy(text + MAX_SHOWN, "...");
    return text;
}
