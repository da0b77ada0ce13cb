#include "frontend/config/generation.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#include "frontend/config/json.h"
#include "support/file.h"

/* ---- tokens that end a text ------------------------------------------------------------------ */

static bool add_stop(hfe_json *j, const hfe_field *f, const json_t *v, hfe_token_ids *out) {
    const json_int_t id = json_integer_value(v);
    if (json_is_integer(v) && id >= 0 && id <= INT32_MAX) {
        hd_push(j->arena, out, (int32_t)id);
        return true;
    }
    hd_err(j->diags, HD_E_CONFIG, hfe_json_value(j, f), "%s: must be token ids, not %s",
           hfe_json_path(j, f), hfe_json_show(j, v));
    return false;
}

/* Reads a token, a list of tokens, or null. *found: the field is present and names tokens. */
static bool read_stops(hfe_json *j, const hfe_field *f, hfe_token_ids *out, bool *found) {
    const json_t *v = hfe_json_get(j, f);
    *found = v && !json_is_null(v);
    if (!*found) return true;
    if (!json_is_array(v)) return add_stop(j, f, v, out);
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!add_stop(j, f, json_array_get(v, i), out)) return false;
    return true;
}

/* Reads eos_token_id of a file, or of the object of its language model. */
static bool stops_of(hfe_json *j, hfe_token_ids *out, bool *found) {
    const hfe_field eos = {NULL, "eos_token_id"};
    if (!read_stops(j, &eos, out, found)) return false;
    for (size_t i = 0; i < HFE_LANGUAGE_PARTS && !*found; i++) {
        const hfe_field part = {NULL, hfe_language_parts[i]}, inner = {&part, "eos_token_id"};
        if (!read_stops(j, &inner, out, found)) return false;
    }
    return true;
}

/* ---- settings that are not applied ----------------------------------------------------------- */

typedef enum group {
#define GROUP(id, happens) id,
#include "frontend/config/generation.def"
} group;

/* A value requests nothing if it is null, false, an empty list or object, or the number `nothing`. */
static const struct setting {
    const char *name;
    group group;
    double nothing;
} settings[] = {
#define FIELD(group, name, nothing) {#name, group, nothing},
#include "frontend/config/generation.def"
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static bool is_setting(const char *name) {
    for (size_t i = 0; i < SETTINGS; i++)
        if (strcmp(settings[i].name, name) == 0) return true;
    return false;
}

/* Finds a field of the file, or else of its language model; *f is where it stands. */
static const json_t *setting_of(const hfe_json *j, const char *name, hfe_field *part,
                                hfe_field *f) {
    *f = (hfe_field){NULL, name};
    const json_t *v = hfe_json_get(j, f);
    for (size_t i = 0; i < HFE_LANGUAGE_PARTS && json_is_null(v ? v : json_null()); i++) {
        *part = (hfe_field){NULL, hfe_language_parts[i]}, *f = (hfe_field){part, name};
        v = hfe_json_get(j, f);
    }
    return v;
}

static bool asks(const json_t *v, double nothing) {
    if (!v || json_is_null(v) || json_is_false(v)) return false;
    if (json_is_number(v)) return json_number_value(v) != nothing;
    return !(json_is_array(v) || json_is_object(v)) || json_array_size(v) || json_object_size(v);
}

/* The value requests what is not applied here. `draws`: the file has tokens sampled. */
static bool is_missed(const struct setting *s, const json_t *v, bool draws) {
    const char *word = json_string_value(v);
    switch (s->group) {
    case ASK: return asks(v, s->nothing);
    case ASK_DRAWN: return draws && asks(v, s->nothing);
    case ASK_CACHE: return word && strcmp(word, "quantized") == 0;
    default: return false;
    }
}

typedef struct field_names { /* for one note, which stands at the first field */
    hd_text text;
    hd_loc first;
} field_names;

static void add_name(hfe_json *j, field_names *names, const hfe_field *f) {
    if (!names->text.n) names->first = hfe_json_key(j, f);
    hd_text_f(&names->text, "%s%s", names->text.n ? ", " : "", f->name);
}

static void note_settings(hfe_json *j, bool draws) {
    field_names missed = {0};
    hfe_field part, f;
    hd_text_init(&missed.text, j->arena);
    for (size_t i = 0; i < SETTINGS; i++)
        if (is_missed(&settings[i], setting_of(j, settings[i].name, &part, &f), draws))
            add_name(j, &missed, &f);
    if (missed.text.n)
        hd_note(j->diags, missed.first, "%s: nothing here does what this asks for", missed.text.at);
}

/* A field that the table lacks may be one of a later version, or of code that comes with a model. */
static void note_unknown(hfe_json *j) {
    field_names unknown = {0};
    const char *name;
    json_t *v;
    hd_text_init(&unknown.text, j->arena);
    json_object_foreach(j->root, name, v) {
        const hfe_field f = {NULL, name};
        if (!is_setting(name) && asks(v, NAN)) add_name(j, &unknown, &f);
    }
    if (unknown.text.n)
        hd_note(j->diags, unknown.first, "%s: not known, and not applied", unknown.text.at);
}

/* transformers samples where do_sample is true; here only the user's options decide that. */
static bool note_drawing(hfe_json *j) {
    static const struct {
        const char *name, *option;
        double usual; /* default where the file has no number */
        double most;  /* legal values go from 0 to this */
    } numbers[] = {{"temperature", "--temperature", 1, INFINITY},
                   {"top_k", "--top-k", 50, INT_MAX},
                   {"top_p", "--top-p", 1, 1}};
    hfe_field part, f;
    hd_text options;
    hd_text_init(&options, j->arena);
    if (!json_is_true(setting_of(j, "do_sample", &part, &f))) return false;
    const hd_loc loc = hfe_json_key(j, &f);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const json_t *v = setting_of(j, numbers[i].name, &part, &f);
        double x = json_is_number(v) ? json_number_value(v) : numbers[i].usual;
        if (!(x >= 0 && x <= numbers[i].most)) {
            hd_note(j->diags, hfe_json_key(j, &f), "%s: no token can be drawn with %g", f.name, x);
            x = numbers[i].usual;
        }
        if (i == 0 && x == 0) return false; /* greedy selection, which is the default here too */
        hd_text_f(&options, "%s%s %g", i ? " " : "", numbers[i].option, x);
    }
    hd_note(j->diags, loc, "do_sample: tokens are drawn only where options say so: %s", options.at);
    return true;
}

bool hfe_read_generation(hd_arena *a, hd_diags *d, const char *folder, hfe_token_ids *stops) {
    static const char *const files[] = {"generation_config.json", "config.json"};
    bool found = false, noted = false;
    for (size_t i = 0; i < sizeof files / sizeof *files && !found; i++) {
        const char *path = hd_path_join(a, folder, files[i]);
        if (!hd_exists(path)) continue;
        hfe_json *j = hfe_json_open(a, d, path);
        if (!j || !stops_of(j, stops, &found)) return false;
        if (!noted) note_settings(j, note_drawing(j));
        if (i == 0) note_unknown(j);
        noted = true; /* transformers reads config.json only where the other file is absent */
    }
    return true;
}
