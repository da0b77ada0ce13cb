#include "support/json.h"

#include <string.h>

const char *hd_json_fault(hd_arena *a, const json_error_t *e) {
    switch (json_error_code(e)) { /* two whose words are about the parser's own options */
    case json_error_null_character: return "a string holds the character \\u0000";
    case json_error_null_byte_in_key: return "a name holds the character \\u0000";
    default: break;
    }
    char *words = hd_strdup(a, e->text);
    for (char *p = words; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    return words;
}

/* Does a number that JSON does not have stand where the text is not legal? */
static bool is_number_of_python(const char *text, size_t n, const json_error_t *e) {
    enum { AROUND = 9 }; /* as long as -Infinity */
    if (json_error_code(e) != json_error_invalid_syntax) return false;
    const size_t at = e->position > 0 && (size_t)e->position < n ? (size_t)e->position : n;
    const size_t from = at > AROUND ? at - AROUND : 0, to = n - at > AROUND ? at + AROUND : n;
    return memmem(text + from, to - from, "Infinity", 8) ||
           memmem(text + from, to - from, "NaN", 3);
}

json_t *hd_json_parse(hd_diags *d, const char *what, const char *file, const char *text, size_t n) {
    json_error_t error;
    hd_diags_source(d, file, text);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (root) return root;
    const hd_loc at = {file, (uint32_t)error.line, (uint32_t)error.column, 0};
    hd_diag *g = hd_err(d, HD_E_SYNTAX, at, "the %s is not legal JSON: %s", what,
                        hd_json_fault(d->arena, &error));
    if (is_number_of_python(text, n, &error))
        g->hint = "Python writes Infinity and NaN, which JSON does not have: give a number or null";
    return NULL;
}

/* ---- places -------------------------------------------------------------------------------- */

const char *hd_json_skip_space(const char *p) {
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

const char *hd_json_member(const char *p, const char *name, const char **value) {
    size_t n = strlen(name);
    if (*p != '{') return NULL;
    for (p = hd_json_skip_space(p + 1); *p == '"'; p = hd_json_skip_space(p)) {
        const char *key = p;
        p = hd_json_skip_space(skip_string(p));
        if (*p != ':') return NULL;
        *value = p = hd_json_skip_space(p + 1);
        if (strncmp(key + 1, name, n) == 0 && key[n + 1] == '"') return key;
        p = hd_json_skip_space(skip_value(p));
        if (*p == ',') p++;
    }
    return NULL;
}

const char *hd_json_item(const char *p, size_t i) {
    for (p = hd_json_skip_space(p + 1); i > 0 && *p && *p != ']'; i--) {
        p = hd_json_skip_space(skip_value(p));
        if (*p == ',') p = hd_json_skip_space(p + 1);
    }
    return p;
}

hd_loc hd_json_place(const char *file, const char *text, const char *value) {
    hd_loc loc = {file, 1, 1, 0};
    for (const char *p = text; p < value; p++) {
        loc.column++;
        if (*p == '\n') loc.line++, loc.column = 1;
    }
    const char *end = skip_value(value), *line_end = value + strcspn(value, "\n");
    loc.end_column = loc.column + (uint32_t)((end < line_end ? end : line_end) - value);
    return loc;
}

const char *hd_json_show(hd_arena *a, const json_t *value) {
    enum { MOST = 60 }; /* bytes of a value in a message */
    char *text = hd_alloc(a, MOST + 4, 1);
    const size_t flags = JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(6);
    const size_t n = json_dumpb(value, text, MOST, flags);
    if (n > MOST) strcpy(text + MOST, "...");
    return text;
}
