#include "text/field.h"

#include <string.h>

#include "support/file.h"

enum { MAX_FILE = 256 << 20 }; /* published files have up to 35 MB */

static void drop(void *what) {
    json_file *file = what;
    json_decref(file->root);
    file->root = NULL;
}

bool field_open(hd_arena *a, hd_diags *d, const char *what, const char *path, field *out) {
    json_file *file = hd_new(a, json_file);
    size_t n;
    *file = (json_file){.arena = d->arena, .diags = d, .file = hd_strdup(d->arena, path)};
    hd_arena_defer(a, drop, file);
    file->text = hd_read_text(a, d, path, MAX_FILE, &n);
    if (file->text) file->root = hd_json_parse(d, what, file->file, file->text, n);
    *out = (field){.json = file, .value = file->root};
    return file->root != NULL;
}

void field_close(const field *whole) {
    drop((json_file *)whole->json);
}

field field_get(const field *object, const char *name) {
    return (field){.json = object->json,
                   .in = object,
                   .name = name,
                   .value = json_object_get(object->value, name)};
}

field field_element(const field *list, size_t i) {
    return (field){
        .json = list->json, .in = list, .index = i, .value = json_array_get(list->value, i)};
}

/* Returns where the value begins, or, if it is absent, where the object that lacks it begins; NULL
 * if that cannot be found. */
static const char *find(const field *f) {
    if (!f->in) return hd_json_skip_space(f->json->text);
    const char *p = find(f->in), *value = NULL;
    if (!p || !f->value) return p;
    if (f->name) return hd_json_member(p, f->name, &value) ? value : NULL;
    return *p == '[' ? hd_json_item(p, f->index) : NULL;
}

static void add_path(const field *f, hd_text *out) {
    if (f->in) add_path(f->in, out);
    if (!f->in) return;
    if (!f->name) {
        hd_text_f(out, "[%zu]", f->index);
        return;
    }
    hd_text name; /* names in a file may contain any character, so they are escaped */
    hd_text_init(&name, out->arena);
    hd_text_quoted(&name, f->name);
    hd_text_f(out, "%s%.*s", out->n ? "." : "", (int)name.n - 2, name.at + 1);
}

/* Returns the place of the value, and its path as "PATH: ". */
static hd_loc place_of(const field *f, const char **path) {
    const json_file *j = f->json;
    const char *at = find(f);
    hd_text text;
    hd_text_init(&text, j->arena);
    add_path(f, &text);
    if (text.n) hd_text_add(&text, ": ");
    *path = text.n ? text.at : "";
    return at ? hd_json_place(j->file, j->text, at) : (hd_loc){.file = j->file};
}

hd_diag *field_error(const field *f, hd_error code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *path, *what = hd_vprintf(f->json->arena, format, args);
    va_end(args);
    const hd_loc loc = place_of(f, &path);
    return hd_err(f->json->diags, code, loc, "%s%s", path, what);
}

hd_diag *field_note(const field *f, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *path, *what = hd_vprintf(f->json->arena, format, args);
    va_end(args);
    const hd_loc loc = place_of(f, &path);
    return hd_note(f->json->diags, loc, "%s%s", path, what);
}

static bool must_be(const field *f, const char *what) {
    if (!f->value)
        field_error(f, HD_E_FORMAT, "is missing");
    else
        field_error(f, HD_E_FORMAT, "must be %s, not %s", what,
                    hd_json_show(f->json->arena, f->value));
    return false;
}

bool field_is_object(const field *f) {
    return json_is_object(f->value) || must_be(f, "an object");
}

bool field_is_list(const field *f) {
    return json_is_array(f->value) || must_be(f, "a list");
}

bool field_string(const field *f, const char **out) {
    if (!json_is_string(f->value)) return must_be(f, "a string");
    *out = json_string_value(f->value);
    return true;
}

bool field_bool(const field *f, bool *out) {
    if (!json_is_boolean(f->value)) return must_be(f, "true or false");
    *out = json_is_true(f->value);
    return true;
}

bool field_integer(const field *f, int64_t least, int64_t most, int64_t *out) {
    const json_int_t v = json_integer_value(f->value);
    if (!json_is_integer(f->value)) return must_be(f, "a whole number");
    if (v < least || v > most) {
        field_error(f, HD_E_FORMAT, "must be from %lld to %lld, not %lld", (long long)least,
                    (long long)most, (long long)v);
        return false;
    }
    *out = v;
    return true;
}

bool field_is_null(const field *f) {
    return !f->value || json_is_null(f->value);
}

bool field_optional_bool(const field *object, const char *name, bool *out) {
    const field f = field_get(object, name);
    return field_is_null(&f) || field_bool(&f, out);
}

static bool is_among(const char *name, const char *names) {
    const size_t n = strlen(name);
    for (const char *at = names; *at; at += strspn(at, " ")) {
        const size_t k = strcspn(at, " ");
        if (k == n && memcmp(at, name, n) == 0) return true;
        at += k;
    }
    return false;
}

bool field_known(const field *object, const char *names) {
    const char *name;
    json_t *value;
    if (!field_is_object(object)) return false;
    json_object_foreach(object->value, name, value) {
        if (is_among(name, names)) continue;
        const field f = field_get(object, name);
        field_error(&f, HD_E_UNSUPPORTED, "a field that is not known")->hint =
            "what it would change is not known, so it cannot be left out of account";
        /* one error is enough: finding places takes time, and a file may have thousands */
        return false;
    }
    return true;
}
