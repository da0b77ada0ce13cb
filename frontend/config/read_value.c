/* Reads one field of config.json by its declaration: from JSON to a value of the language. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/config/family.h"

hd_diag *hfe_field_error(hfe_json *j, const hfe_field *f, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *what = hd_vprintf(j->arena, format, args);
    va_end(args);
    return hd_err(j->diags, HD_E_CONFIG, hfe_json_value(j, f), "%s: %s", hfe_json_path(j, f), what);
}

static hfe_value expected(hfe_elab *e, const hfe_field *f, const char *what) {
    hfe_json *j = e->import->json;
    hfe_field_error(j, f, "must be %s, not %s", what, hfe_json_show(j, hfe_json_get(j, f)));
    return hfe_poison();
}

/* ---- numbers ------------------------------------------------------------------------------- */

/* Evaluates an end of a range; a fault in the page's own expression is reported. */
static bool read_end(hfe_elab *e, const hfe_declaration *d, hfe_aspect aspect, double *out) {
    const hfe_expr *x = d->aspect[aspect];
    if (!x) return true;
    const hfe_value v = hfe_eval(e, x);
    if (!hfe_is_number(v)) {
        if (!hfe_is(v, HFE_POISON))
            hfe_fail(e, HD_E_TYPE, x->loc, NULL, NULL, "the end of a range is a number");
        return false;
    }
    *out = hfe_as_number(v);
    return true;
}

static hfe_value read_int(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                          const hfe_field *f) {
    double least = 1, most = INT32_MAX;
    if (!read_end(e, d, HFE_ASPECT_least, &least) || !read_end(e, d, HFE_ASPECT_most, &most))
        return hfe_poison();
    const double x = json_is_integer(v) ? (double)json_integer_value(v) : NAN;
    if (!(x >= least && x <= most)) {
        const char *what = d->kind == HFE_KIND_INTS ? "a list of whole numbers" : "a whole number";
        return expected(e, f, hd_printf(e->arena, "%s from %.0f to %.0f", what, least, most));
    }
    return hfe_int(json_integer_value(v));
}

static hfe_value read_float(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                            const hfe_field *f) {
    double least = -FLT_MAX, most = FLT_MAX, above = -INFINITY;
    if (!read_end(e, d, HFE_ASPECT_least, &least) || !read_end(e, d, HFE_ASPECT_most, &most) ||
        !read_end(e, d, HFE_ASPECT_above, &above))
        return hfe_poison();
    const double x = json_number_value(v);
    /* also as f32, since a divisor must not become 0 */
    const bool is_above = x > above && (fabs(x) > FLT_MAX || (double)(float)x > above);
    if (json_is_number(v) && fabs(x) <= FLT_MAX && x >= least && x <= most && is_above)
        return hfe_float(x);
    const bool list = d->kind == HFE_KIND_FLOATS;
    const char *range = "";
    if (!(x > above))
        return expected(e, f,
                        hd_printf(e->arena, "%s above %g", list ? "numbers" : "a number", above));
    if (!is_above)
        range = hd_printf(e->arena, ", above %g", above);
    else if (least > -FLT_MAX && most < FLT_MAX)
        range = hd_printf(e->arena, ", from %g to %g", least, most);
    else if (least > -FLT_MAX)
        range = hd_printf(e->arena, ", %g or above", least);
    return expected(
        e, f, hd_printf(e->arena, "%s that f32 holds%s", list ? "numbers" : "a number", range));
}

/* ---- words --------------------------------------------------------------------------------- */

/* Reads a string of the file; bytes that a message or a name could not show are rejected. */
static hfe_value read_text(hfe_elab *e, const json_t *v, const hfe_field *f, const char *what) {
    if (!json_is_string(v)) return expected(e, f, what);
    return hfe_new_string(e, HD_NOWHERE, json_string_value(v), strlen(json_string_value(v)));
}

static hfe_value reject_word(hfe_elab *e, const hfe_declaration *d, const hfe_field *f,
                             const hfe_list *words) {
    hfe_json *j = e->import->json;
    const char *shown = hfe_json_show(j, hfe_json_get(j, f)),
               *noun = hfe_literal(d->aspect[HFE_ASPECT_noun]);
    hd_text list;
    hd_text_init(&list, e->arena);
    for (size_t i = 0; i < words->n; i++)
        hd_text_f(&list, "%s%s", i > 0 ? ", " : "", hfe_item(words, i).string);
    hd_diag *g = noun ? hfe_field_error(j, f, "the %s %s is not known", noun, shown)
                      : hfe_field_error(j, f, "%s cannot be honoured by this version", shown);
    g->cause = hd_printf(e->arena, "allowed: %s", list.at ? list.at : "nothing");
    return hfe_poison();
}

static hfe_value read_word(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                           const hfe_field *f) {
    const hfe_value words = hfe_eval(e, d->aspect[HFE_ASPECT_one_of]);
    if (!hfe_is(words, HFE_LIST))
        return hfe_is(words, HFE_POISON) ? words
                                         : hfe_fail(e, HD_E_TYPE, d->aspect[HFE_ASPECT_one_of]->loc,
                                                    NULL, NULL, "one_of is a list of strings");
    for (size_t i = 0; i < words.list->n; i++) {
        const hfe_value w = hfe_item(words.list, i);
        if (!hfe_is(w, HFE_STRING))
            return hfe_fail(e, HD_E_TYPE, d->aspect[HFE_ASPECT_one_of]->loc, NULL, NULL,
                            "one_of is a list of strings");
        if (json_is_string(v) && strcmp(json_string_value(v), w.string) == 0) return w;
    }
    if (!json_is_string(v) && d->aspect[HFE_ASPECT_noun]) return expected(e, f, "a string");
    return reject_word(e, d, f, words.list);
}

/* ---- lists --------------------------------------------------------------------------------- */

/* Returns the length that a declaration requires, or poison if that is no number. */
static hfe_value declared_length(hfe_elab *e, const hfe_expr *x) {
    const hfe_value n = hfe_eval(e, x);
    return hfe_is(n, HFE_INT) || hfe_is(n, HFE_POISON)
               ? n
               : hfe_fail(e, HD_E_TYPE, x->loc, NULL, NULL, "a length is an int");
}

/* Sets `count` to the entries of a list that are used; returns false if there are too few or too
 * many. */
static bool has_length(hfe_elab *e, const hfe_declaration *d, const json_t *list,
                       const hfe_field *f, size_t *count) {
    const hfe_expr *x = d->aspect[HFE_ASPECT_length], *follow = d->aspect[HFE_ASPECT_more];
    *count = json_array_size(list);
    if (!x) return true;
    const hfe_value n = declared_length(e, x);
    const hfe_value more = follow ? declared_length(e, follow) : hfe_int(0);
    if (!hfe_is(n, HFE_INT) || !hfe_is(more, HFE_INT)) return false;
    const size_t size = *count;
    *count = n.integer >= 0 ? (size_t)n.integer : 0;
    if (n.integer >= 0 && (size == *count || size == *count + (size_t)more.integer)) return true;
    hfe_field_error(e->import->json, f, "has %zu entr%s for %lld %s", size, size == 1 ? "y" : "ies",
                    (long long)n.integer, x->kind == HFE_X_NAME ? x->name : "places");
    return false;
}

/* Reads "3,4,5" as [3, 4, 5]; NULL for other text. Blanks, and places without a number, are
 * skipped, as in transformers. */
static json_t *split_numbers(const char *text) {
    json_t *list = json_array();
    while (list) {
        text += strspn(text, " ");
        const size_t digits = strspn(text, "0123456789");
        if (digits > 9) break;
        if (digits > 0) json_array_append_new(list, json_integer(strtol(text, NULL, 10)));
        text += digits;
        text += strspn(text, " ");
        if (!*text) return list;
        if (*text++ != ',') break;
    }
    json_decref(list);
    return NULL;
}

static hfe_value read_element(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                              const hfe_field *f) {
    switch (d->kind) {
    case HFE_KIND_INTS: return read_int(e, d, v, f);
    case HFE_KIND_FLOATS: return read_float(e, d, v, f);
    case HFE_KIND_BOOLS:
        return json_is_boolean(v) ? hfe_bool(json_is_true(v))
                                  : expected(e, f, "a list of true and false");
    default: return read_text(e, v, f, "a list of strings");
    }
}

/* Uses one value for every place of a list. */
static hfe_value repeat_value(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                              const hfe_field *f) {
    const hfe_value n = declared_length(e, d->aspect[HFE_ASPECT_length]);
    const hfe_value item = read_element(e, d, v, f);
    if (!hfe_is(n, HFE_INT) || hfe_is(item, HFE_POISON)) return hfe_poison();
    hfe_value list = hfe_new_list(e, HD_NOWHERE, NULL, 0);
    for (int64_t i = 0; i < n.integer && hfe_is(list, HFE_LIST); i++)
        list = hfe_append(e, HD_NOWHERE, list.list, item);
    return list;
}

static hfe_value read_list(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                           const hfe_field *f) {
    static const char *const what[] = {
#define KIND(id, word, what) [HFE_KIND_##id] = what,
#include "frontend/config/config.def"
    };
    if (json_is_string(v) && d->kind == HFE_KIND_INTS && d->aspect[HFE_ASPECT_joined]) {
        json_t *list = split_numbers(json_string_value(v));
        const hfe_value value =
            list ? read_list(e, d, list, f)
                 : expected(e, f, "a list of whole numbers, or a string of them with commas");
        json_decref(list);
        return value;
    }
    if (!json_is_array(v))
        return d->aspect[HFE_ASPECT_each] && d->aspect[HFE_ASPECT_length]
                   ? repeat_value(e, d, v, f)
                   : expected(e, f, what[d->kind]);
    size_t count;
    if (!has_length(e, d, v, f, &count)) return hfe_poison();
    hfe_value list = hfe_new_list(e, HD_NOWHERE, NULL, 0);
    for (size_t i = 0; i < count && hfe_is(list, HFE_LIST); i++) {
        const hfe_value item = read_element(e, d, json_array_get(v, i), f);
        if (hfe_is(item, HFE_POISON)) return item;
        list = hfe_append(e, HD_NOWHERE, list.list, item);
    }
    return list;
}

/* ---- objects ------------------------------------------------------------------------------- */

/* Returns the number that a field's name is, if it is below n, else -1. */
static int64_t numbered_field(const char *name, int64_t n) {
    int64_t number = 0;
    for (const char *c = name; *c; c++) {
        if (*c < '0' || *c > '9' || number >= n) return -1;
        number = 10 * number + (*c - '0');
    }
    const bool padded = !name[0] || (name[0] == '0' && name[1]);
    return padded || number >= n ? -1 : number;
}

/* Reads {"2": {...}, "5": {...}} as a list, with an object or none for each number. */
static hfe_value read_numbered(hfe_elab *e, const hfe_declaration *d, const json_t *v,
                               hfe_field *f) {
    const hfe_def *config = hfe_find_config(e->frame->def->file, d->aspect[HFE_ASPECT_of]->name);
    const hfe_value n = declared_length(e, d->aspect[HFE_ASPECT_length]);
    if (!json_is_object(v)) return expected(e, f, "an object");
    if (!hfe_is(n, HFE_INT) || n.integer < 0 || !config) return hfe_poison();
    hfe_value *items = hd_new_array(e->arena, hfe_value, (size_t)n.integer + 1);
    for (int64_t i = 0; i < n.integer; i++)
        items[i] = hfe_none();
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)v, name, value) {
        hfe_field *item = hd_new(e->arena, hfe_field);
        *item = (hfe_field){f, hd_printf(e->arena, "%s", name)};
        const int64_t i = numbered_field(name, n.integer);
        if (i < 0 || !json_is_object(value)) {
            hfe_field_error(e->import->json, item,
                            i < 0 ? "is no number from 0 to %lld" : "must be an object",
                            (long long)n.integer - 1);
            return hfe_poison();
        }
        items[i] = hfe_run_config(e, config, item, NULL);
    }
    return hfe_new_list(e, HD_NOWHERE, items, (size_t)n.integer);
}

static hfe_value read_object(hfe_elab *e, const hfe_declaration *d, const json_t *v, hfe_field *f) {
    const hfe_expr *of = d->aspect[HFE_ASPECT_of];
    const hfe_def *config = hfe_find_config(e->frame->def->file, of->name);
    if (!json_is_object(v))
        return expected(e, f, d->aspect[HFE_ASPECT_null] ? "null or an object" : "an object");
    return config ? hfe_run_config(e, config, f, NULL) : hfe_poison();
}

/* True for a name of letters that cannot lead out of the directory of pages. */
static bool is_page_name(const char *s) {
    return *s && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == strlen(s);
}

static const hfe_def *config_of_page(hfe_elab *e, const char *folder, const char *name) {
    const hfe_file *page =
        is_page_name(name) ? hfe_read_page(e->p, hd_printf(e->arena, "%s/%s", folder, name)) : NULL;
    return page ? hfe_page_config(e->p, page, name) : NULL;
}

static hfe_value reject_system(hfe_elab *e, const hfe_field *type, const char *folder) {
    hfe_json *j = e->import->json;
    const json_t *v = hfe_json_get(j, type);
    hfe_candidates pages = {0};
    hfe_pages_in(e->p, folder, &pages);
    hd_diag *g =
        hfe_field_error(j, type, "%s cannot be honoured by this version", hfe_json_show(j, v));
    const char *near =
        json_is_string(v) ? hd_nearest(json_string_value(v), pages.list.at, pages.list.n) : NULL;
    g->cause = hd_printf(e->arena, "it is a page of %s/ that has a config of its name", folder);
    g->hint = near ? hd_printf(e->arena, "did you mean '%s'?", near)
                   : "other systems can be written in the model language";
    return hfe_poison();
}

/* Sets the name of a system, if its config has a variable for it. */
static hfe_value named(hfe_elab *e, hfe_value system, const char *type) {
    const hfe_object *o = hfe_is(system, HFE_OBJECT) ? system.object : NULL;
    for (size_t i = 0; o && i < o->def->n_locals; i++)
        if (strcmp(o->def->locals[i].name, "type") == 0)
            o->fields[i] = hfe_string(hd_strdup(e->arena, type));
    return system;
}

/* Reads {"type": "page", ...}, whose fields are those of the page's config. */
static hfe_value read_system(hfe_elab *e, const hfe_declaration *d, const json_t *v, hfe_field *f) {
    hfe_json *j = e->import->json;
    const char *folder = hfe_literal(d->aspect[HFE_ASPECT_pages]);
    const hfe_field type = {f, "type"};
    const json_t *name = hfe_json_get(j, &type);
    if (!json_is_object(v)) return expected(e, f, "an object");
    if (!name) {
        hfe_field_error(j, f, "the field 'type' is missing");
        return hfe_poison();
    }
    const size_t errors = e->diags->errors;
    const hfe_def *config =
        json_is_string(name) ? config_of_page(e, folder, json_string_value(name)) : NULL;
    if (!config) return e->diags->errors > errors ? hfe_poison() : reject_system(e, &type, folder);
    return named(e, hfe_run_config(e, config, f, "type"), json_string_value(name));
}

/* Reads the system of a file that names none: the config of the default page runs on no fields. */
static hfe_value default_system(hfe_elab *e, const hfe_declaration *d, hfe_field *f) {
    const hfe_value type = hfe_eval(e, d->aspect[HFE_ASPECT_type]);
    if (!hfe_is(type, HFE_STRING)) return hfe_poison();
    const hfe_def *config =
        config_of_page(e, hfe_literal(d->aspect[HFE_ASPECT_pages]), type.string);
    return config ? named(e, hfe_run_config(e, config, f, "type"), type.string)
                  : hfe_fail(e, HD_E_NAME, d->aspect[HFE_ASPECT_type]->loc, NULL, NULL,
                             "there is no page '%s' with a config", type.string);
}

/* Scalars become values and everything else becomes none, since the config itself checks what it
 * needs. */
static hfe_value read_any(hfe_elab *e, const json_t *v) {
    switch (json_typeof(v)) {
    case JSON_TRUE:
    case JSON_FALSE: return hfe_bool(json_is_true(v));
    case JSON_INTEGER: return hfe_int(json_integer_value(v));
    case JSON_REAL: return hfe_float(json_real_value(v));
    case JSON_STRING:
        return hfe_new_string(e, HD_NOWHERE, json_string_value(v), json_string_length(v));
    default: return hfe_none();
    }
}

/* ---- all ----------------------------------------------------------------------------------- */

static hfe_value read_absent(hfe_elab *e, const hfe_declaration *d, hfe_field *f) {
    hfe_json *j = e->import->json;
    if (d->kind == HFE_KIND_SYSTEM) return default_system(e, d, f);
    if (d->aspect[HFE_ASPECT_default]) return hfe_eval(e, d->aspect[HFE_ASPECT_default]);
    if (f->object)
        hfe_field_error(j, f->object, "the field '%s' is missing: %s", d->name, d->meaning);
    else
        hd_err(j->diags, HD_E_CONFIG, (hd_loc){.file = j->file}, "the field '%s' is missing: %s",
               d->name, d->meaning);
    return hfe_poison();
}

hfe_value hfe_read_value(hfe_elab *e, const hfe_declaration *d, hfe_field *f) {
    const json_t *v = hfe_json_get(e->import->json, f);
    const hfe_expr *null = d->aspect[HFE_ASPECT_null];
    const bool as_absent = null && null->kind == HFE_X_BOOL && null->boolean;
    if (!v || (json_is_null(v) && as_absent)) return read_absent(e, d, f);
    if (json_is_null(v) && null) return hfe_eval(e, null);
    switch (d->kind) {
    case HFE_KIND_INT: return read_int(e, d, v, f);
    case HFE_KIND_FLOAT: return read_float(e, d, v, f);
    case HFE_KIND_BOOL:
        return json_is_boolean(v) ? hfe_bool(json_is_true(v)) : expected(e, f, "true or false");
    case HFE_KIND_TEXT: return read_text(e, v, f, "a string");
    case HFE_KIND_WORD: return read_word(e, d, v, f);
    case HFE_KIND_INTS:
    case HFE_KIND_FLOATS:
    case HFE_KIND_BOOLS:
    case HFE_KIND_WORDS: return read_list(e, d, v, f);
    case HFE_KIND_OBJECT: return read_object(e, d, v, f);
    case HFE_KIND_NUMBERED: return read_numbered(e, d, v, f);
    case HFE_KIND_SYSTEM: return read_system(e, d, v, f);
    default: return read_any(e, v);
    }
}
