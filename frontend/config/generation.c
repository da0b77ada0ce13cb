#include "frontend/config/generation.h"

#include <string.h>

#include "frontend/config/json.h"
#include "support/file.h"

static const char *const parts[] = {"text_config", "llm_config"}; /* parts with language models */
enum { PARTS = sizeof parts / sizeof *parts };

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
    for (size_t i = 0; i < PARTS && !*found; i++) {
        const hfe_field part = {NULL, parts[i]}, inner = {&part, "eos_token_id"};
        if (!read_stops(j, &inner, out, found)) return false;
    }
    return true;
}

/* ---- settings that are not applied ----------------------------------------------------------- */

/* Settings that change the generated text in transformers 5.24, and are not applied here. A value
 * requests nothing if it is null, false, an empty list or object, or the number `nothing`. */
static const struct {
    const char *name;
    double nothing;
    bool drawing; /* matters only where tokens are sampled */
} settings[] = {
    {"repetition_penalty", 1, false},
    {"encoder_repetition_penalty", 1, false},
    {"no_repeat_ngram_size", 0, false},
    {"encoder_no_repeat_ngram_size", 0, false},
    {"suppress_tokens", 0, false},
    {"begin_suppress_tokens", 0, false},
    {"bad_words_ids", 0, false},
    {"force_words_ids", 0, false},
    {"constraints", 0, false},
    {"forced_bos_token_id", -1, false},
    {"forced_eos_token_id", -1, false},
    {"sequence_bias", 0, false},
    {"token_healing", 0, false},
    {"min_length", 0, false},
    {"min_new_tokens", 0, false},
    {"max_time", -1, false},
    {"stop_strings", 0, false},
    {"num_beams", 1, false},
    {"guidance_scale", 1, false},
    {"penalty_alpha", 0, false},
    {"dola_layers", -1, false},
    {"watermarking_config", 0, false},
    {"exponential_decay_length_penalty", 0, false},
    {"min_p", 0, true},
    {"top_h", 1, true},
    {"typical_p", 1, true},
    {"epsilon_cutoff", 0, true},
    {"eta_cutoff", 0, true},
};

/* Finds a field of the file, or else of its language model; *f is where it stands. */
static const json_t *setting_of(const hfe_json *j, const char *name, hfe_field *part,
                                hfe_field *f) {
    *f = (hfe_field){NULL, name};
    const json_t *v = hfe_json_get(j, f);
    for (size_t i = 0; i < PARTS && json_is_null(v ? v : json_null()); i++) {
        *part = (hfe_field){NULL, parts[i]}, *f = (hfe_field){part, name};
        v = hfe_json_get(j, f);
    }
    return v;
}

static bool asks(const json_t *v, double nothing) {
    if (!v || json_is_null(v) || json_is_false(v)) return false;
    if (json_is_number(v)) return json_number_value(v) != nothing;
    return !(json_is_array(v) || json_is_object(v)) || json_array_size(v) || json_object_size(v);
}

static void note_settings(hfe_json *j, bool draws) {
    hd_text names;
    hfe_field part, f, first = {0}, of_first = {0};
    hd_text_init(&names, j->arena);
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if ((settings[i].drawing && !draws) ||
            !asks(setting_of(j, settings[i].name, &part, &f), settings[i].nothing))
            continue;
        if (!names.n) {
            of_first = part, first = f;
            if (f.object) first.object = &of_first;
        }
        hd_text_f(&names, "%s%s", names.n ? ", " : "", settings[i].name);
    }
    if (names.n)
        hd_note(j->diags, hfe_json_key(j, &first), "%s: nothing here does what this asks for",
                names.at);
}

/* transformers samples where do_sample is true; here only the user's options decide that. */
static bool note_drawing(hfe_json *j) {
    static const struct {
        const char *name, *option;
        double usual; /* default where the file has no number */
    } numbers[] = {
        {"temperature", "--temperature", 1}, {"top_k", "--top-k", 50}, {"top_p", "--top-p", 1}};
    hfe_field part, f;
    hd_text options;
    hd_text_init(&options, j->arena);
    if (!json_is_true(setting_of(j, "do_sample", &part, &f))) return false;
    const hd_loc loc = hfe_json_key(j, &f);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const json_t *v = setting_of(j, numbers[i].name, &part, &f);
        const double x = json_is_number(v) ? json_number_value(v) : numbers[i].usual;
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
        noted = true; /* transformers reads config.json only where the other file is absent */
    }
    return true;
}
