#include "support/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/file.h"
#include "support/text.h"

const char *hd_json_fault(hd_arena *a, const json_error_t *e) {
    switch (json_error_code(e)) { /* jansson's texts for these two are about its own options */
    case json_error_null_character: return "a string holds the character \\u0000";
    case json_error_null_byte_in_key: return "a name holds the character \\u0000";
    default: break;
    }
    char *words = hd_strdup(a, e->text);
    for (char *p = words; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    return words;
}

/* ---- numbers that JSON does not have, or the parser cannot hold ------------------------------ */

/* The length of the token at p if Python writes it for a number that JSON does not have, or if it
 * is a number too large for a double; 0 if it is neither. */
static size_t odd_number(const char *p, bool *integer) {
    static const char *const words[] = {"NaN", "Infinity", "-Infinity"};
    *integer = false;
    for (size_t i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(p, words[i], n) == 0 && strchr(",]} \t\r\n", p[n])) return n;
    }
    const size_t sign = *p == '-', digits = strspn(p + sign, "0123456789");
    const size_t n = sign + strspn(p + sign, "0123456789.eE+-");
    if (digits == 0) return 0;
    double value = INFINITY; /* stays for a text that is too long to be read as a double */
    if (!hd_read_double(p, n, &value) && n < 512) return 0;
    if (isinf(value)) return n;
    *integer = n == sign + digits;
    if (!*integer) return 0;
    errno = 0;
    (void)strtoll(p, NULL, 10);
    return errno == ERANGE ? n : 0;
}

/* Writes the text with such numbers in legal JSON: integers as reals, the others as strings, which
 * every field that expects a number rejects. Stops when `out` has `most` bytes; returns how many
 * bytes of `text` it has read. */
static size_t rewrite(const char *text, size_t n, size_t most, hd_text *out) {
    bool inside = false, integer;
    size_t i = 0;
    while (i < n && out->n < most) {
        const bool begins = !inside && (i == 0 || strchr(":[, \t\r\n", text[i - 1]));
        const size_t odd = begins ? odd_number(text + i, &integer) : 0;
        if (odd) {
            hd_text_f(out, integer ? "%.*se0" : "\"%.*s\"", (int)odd, text + i);
            i += odd;
            continue;
        }
        if (text[i] == '"') inside = !inside;
        const size_t bytes = inside && text[i] == '\\' && i + 1 < n ? 2 : 1;
        hd_text_add_n(out, text + i, bytes);
        i += bytes;
    }
    return i < n ? i : n;
}

static hd_loc place_at(const char *file, const char *text, size_t at) {
    hd_loc loc = {.file = file, .line = 1, .column = 1};
    for (size_t i = 0; i < at; i++) {
        loc.column++;
        if (text[i] == '\n') loc.line++, loc.column = 1;
    }
    return loc;
}

json_t *hd_json_parse(hd_diags *d, const char *what, const char *file, const char *text, size_t n) {
    json_error_t error;
    hd_diags_source(d, file, text);
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (root) return root;
    hd_loc at = {.file = file, .line = (uint32_t)error.line, .column = (uint32_t)error.column};
    hd_text again;
    hd_text_init(&again, d->arena);
    if (rewrite(text, n, SIZE_MAX, &again) == n && again.n != n) {
        root = json_loadb(again.at, again.n, JSON_REJECT_DUPLICATES, &error);
        if (root) return root;
        again.n = 0;
        at = place_at(file, text, rewrite(text, n, (size_t)error.position, &again));
    }
    hd_diag *g = hd_err(d, HD_E_SYNTAX, at, "the %s is not legal JSON: %s", what,
                        hd_json_fault(d->arena, &error));
    g->hint = hd_pointer_hint(text, n);
    return NULL;
}

/* ---- places -------------------------------------------------------------------------------- */

const char *hd_json_skip_space(const char *p) {
    return p + strspn(p, " \t\r\n");
}

/* p points at the opening quote; returns the place after the closing one. */
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
    hd_loc loc = {.file = file, .line = 1, .column = 1};
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
