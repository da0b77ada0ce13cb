/* The text of values: str and repr of Python, and JSON as transformers writes it in templates. Text
 * that is made of a message's strings and of other characters is the message's as a whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/jinja_tree.h"

typedef struct shower {
    jinja *j;
    jinja_output *out;
    bool content;
} shower;

static void put(shower *s, const char *text) {
    jinja_put_text(s->j, s->out, text, strlen(text), s->content);
}

static void put_n(shower *s, const char *text, size_t n) {
    jinja_put_text(s->j, s->out, text, n, s->content);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* repr of a float: the shortest digits that read back to it, and an exponent where the number is
 * below 1e-4 or from 1e16 on. */
static const char *real_text(hd_arena *a, double d) {
    char digits[40];
    if (isnan(d)) return "nan";
    if (isinf(d)) return d > 0 ? "inf" : "-inf";
    for (int n = 1; n <= 17; n++) {
        snprintf(digits, sizeof digits, "%.*e", n - 1, d);
        if (strtod(digits, NULL) == d) break;
    }
    char *e = strchr(digits, 'e');
    const int exponent = atoi(e + 1);
    *e = 0;
    const char *sign = digits[0] == '-' ? "-" : "", *first = digits + (digits[0] == '-');
    if (exponent < -4 || exponent >= 16)
        return hd_printf(a, "%s%se%c%02d", sign, first, exponent < 0 ? '-' : '+', abs(exponent));
    char plain[32];
    int n = 0;
    for (const char *p = first; *p; p++)
        if (*p != '.') plain[n++] = *p;
    plain[n] = 0;
    if (exponent < 0) return hd_printf(a, "%s0.%.*s%s", sign, -exponent - 1, "0000", plain);
    if (n <= exponent + 1)
        return hd_printf(a, "%s%s%.*s.0", sign, plain, exponent + 1 - n, "0000000000000000");
    return hd_printf(a, "%s%.*s.%s", sign, exponent + 1, plain, plain + exponent + 1);
}

void jinja_put_real(jinja *j, jinja_output *o, double d) {
    const char *text = real_text(j->arena, d);
    jinja_put_text(j, o, text, strlen(text), false);
}

static void put_number(shower *s, jinja_value v) {
    char text[32];
    if (v.kind == J_FLOAT)
        put(s, real_text(s->j->arena, v.real));
    else
        put_n(s, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)v.number));
}

/* ---- repr ------------------------------------------------------------------------------------ */

static bool is_printable(uint32_t code) {
    switch (utf8proc_category((utf8proc_int32_t)code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return code == ' ';
    default: return true;
    }
}

static void put_quoted_character(shower *s, const char *at, size_t n, char quote) {
    const uint32_t code = hd_utf8_code(at);
    char text[16];
    int length = 0;
    if (code == '\n' || code == '\r' || code == '\t')
        length = snprintf(text, sizeof text, "\\%c", code == '\n' ? 'n' : code == '\r' ? 'r' : 't');
    else if (code == '\\' || code == (uint32_t)quote)
        length = snprintf(text, sizeof text, "\\%c", (char)code);
    else if (!is_printable(code))
        length = snprintf(text, sizeof text,
                          code < 0x100     ? "\\x%02x"
                          : code < 0x10000 ? "\\u%04x"
                                           : "\\U%08x",
                          (unsigned)code);
    if (length)
        put_n(s, text, (size_t)length);
    else
        put_n(s, at, n);
}

static void put_quoted(shower *s, const jinja_string *string) {
    const bool single = memchr(string->at, '\'', string->n) != NULL,
               twice = memchr(string->at, '"', string->n) != NULL;
    const char quote = single && !twice ? '"' : '\'';
    jinja_step(s->j, string->n / 8);
    put_n(s, &quote, 1);
    for (size_t i = 0; i < string->n;) {
        const size_t n = (size_t)hd_utf8(string->at + i, string->n - i);
        put_quoted_character(s, string->at + i, n, quote);
        i += n;
    }
    put_n(s, &quote, 1);
}

static void put_repr(shower *s, jinja_value v);

static void put_elements(shower *s, const jinja_sequence *q, const char *open, const char *close) {
    put(s, open);
    for (size_t i = 0; i < q->n; i++) {
        if (i) put(s, ", ");
        put_repr(s, q->at[i]);
    }
    put(s, q->kind == SEQ_TUPLE && q->n == 1 ? "," : "");
    put(s, close);
}

static void put_dict(shower *s, const jinja_dict *d) {
    put(s, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i) put(s, ", ");
        put_repr(s, d->keys[i]);
        put(s, ": ");
        put_repr(s, d->values[i]);
    }
    put(s, "}");
}

static void put_sequence(shower *s, const jinja_sequence *q) {
    switch (q->kind) {
    case SEQ_LIST: put_elements(s, q, "[", "]"); return;
    case SEQ_TUPLE: put_elements(s, q, "(", ")"); return;
    case SEQ_VIEW: put_elements(s, q, "dict_items([", "])"); return;
    case SEQ_ITERATOR: jinja_fail(s->j, "a generator has no text: a list of it has (|list)");
    }
}

static void put_repr(shower *s, jinja_value v) {
    jinja_enter(s->j);
    switch (v.kind) {
    case J_ABSENT:
    case J_UNDEFINED: put(s, "Undefined"); break;
    case J_NONE: put(s, "None"); break;
    case J_BOOL: put(s, v.truth ? "True" : "False"); break;
    case J_INT:
    case J_FLOAT: put_number(s, v); break;
    case J_STRING: put_quoted(s, v.string); break;
    case J_SEQUENCE: put_sequence(s, v.sequence); break;
    case J_DICT: put_dict(s, v.dict); break;
    case J_NAMESPACE:
    case J_LOOP:
    case J_CALLABLE: jinja_fail(s->j, "a %s has no text", jinja_type(v));
    }
    jinja_leave(s->j);
}

/* Is any string within the value a message's? */
static bool has_content(jinja *j, jinja_value v) {
    bool found = false;
    jinja_enter(j);
    if (v.kind == J_STRING) found = jinja_content(v.string);
    if (v.kind == J_SEQUENCE)
        for (size_t i = 0; !found && i < v.sequence->n; i++)
            found = has_content(j, v.sequence->at[i]);
    if (v.kind == J_DICT)
        for (size_t i = 0; !found && i < v.dict->n; i++)
            found = has_content(j, v.dict->keys[i]) || has_content(j, v.dict->values[i]);
    jinja_leave(j);
    return found;
}

const jinja_string *jinja_repr(jinja *j, jinja_value v) {
    jinja_output out = {0};
    shower s = {j, &out, has_content(j, v)};
    put_repr(&s, v);
    return jinja_taken(j, &out);
}

const jinja_string *jinja_str(jinja *j, jinja_value v) {
    static const jinja_string empty = {"", 0, NULL, false};
    if (v.kind == J_STRING) return v.string;
    if (v.kind == J_UNDEFINED || v.kind == J_ABSENT) return &empty;
    return jinja_repr(j, v);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

typedef struct json_writer {
    shower s;
    const jinja_string *indent; /* NULL: one line */
    const jinja_string *comma, *colon;
    bool ascii, sorted;
} json_writer;

static void json_put(json_writer *w, jinja_value v, size_t level);

static void put_json_string(json_writer *w, const jinja_string *s) {
    static const char escapes[][2] = {"\"\"", "\\\\", "\nn", "\rr", "\tt", "\ff", "\bb"};
    char text[16];
    jinja_step(w->s.j, s->n / 8);
    put(&w->s, "\"");
    for (size_t i = 0, n; i < s->n; i += n) {
        const uint32_t code = hd_utf8_code(s->at + i);
        n = (size_t)hd_utf8(s->at + i, s->n - i);
        size_t k = 0;
        while (k < 7 && (uint32_t)escapes[k][0] != code)
            k++;
        if (k < 7)
            put_n(&w->s, (char[]){'\\', escapes[k][1]}, 2);
        else if (code >= 0x10000 && w->ascii)
            put_n(&w->s, text,
                  (size_t)snprintf(text, sizeof text, "\\u%04x\\u%04x",
                                   (unsigned)(0xd7c0 + (code >> 10)),
                                   (unsigned)(0xdc00 + (code & 0x3ff))));
        else if (code < 0x20 || (code > 0x7e && w->ascii && code != 0x7f))
            put_n(&w->s, text, (size_t)snprintf(text, sizeof text, "\\u%04x", (unsigned)code));
        else
            put_n(&w->s, s->at + i, n);
    }
    put(&w->s, "\"");
}

static void json_line(json_writer *w, size_t level) {
    if (!w->indent) return;
    put(&w->s, "\n");
    for (size_t i = 0; i < level; i++)
        put_n(&w->s, w->indent->at, w->indent->n);
}

static void json_list(json_writer *w, const jinja_sequence *q, size_t level) {
    if (q->kind > SEQ_TUPLE)
        jinja_fail(w->s.j, "a %s is not JSON", "generator or a view of a dict");
    put(&w->s, "[");
    for (size_t i = 0; i < q->n; i++) {
        if (i) put_n(&w->s, w->comma->at, w->comma->n);
        json_line(w, level + 1);
        json_put(w, q->at[i], level + 1);
    }
    if (q->n) json_line(w, level);
    put(&w->s, "]");
}

static void json_key(json_writer *w, jinja_value key) {
    switch (key.kind) {
    case J_STRING: put_json_string(w, key.string); return;
    case J_NONE: put(&w->s, "\"null\""); return;
    case J_BOOL: put(&w->s, key.truth ? "\"true\"" : "\"false\""); return;
    case J_INT:
    case J_FLOAT:
        put(&w->s, "\"");
        json_put(w, key, 0);
        put(&w->s, "\"");
        return;
    default: jinja_fail(w->s.j, "a %s cannot be a key in JSON", jinja_type(key));
    }
}

static void sort_keys(jinja *j, const jinja_dict *d, size_t *order) {
    for (size_t i = 0; i < d->n; i++) {
        size_t k = i;
        jinja_step(j, i);
        for (; k > 0 && jinja_order(j, d->keys[i], d->keys[order[k - 1]]) < 0; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

static void json_dict(json_writer *w, const jinja_dict *d, size_t level) {
    size_t *order = jinja_alloc(w->s.j, d->n, sizeof *order);
    for (size_t i = 0; i < d->n; i++)
        order[i] = i;
    if (w->sorted) sort_keys(w->s.j, d, order);
    put(&w->s, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i) put_n(&w->s, w->comma->at, w->comma->n);
        json_line(w, level + 1);
        json_key(w, d->keys[order[i]]);
        put_n(&w->s, w->colon->at, w->colon->n);
        json_put(w, d->values[order[i]], level + 1);
    }
    if (d->n) json_line(w, level);
    put(&w->s, "}");
}

static void json_put(json_writer *w, jinja_value v, size_t level) {
    jinja_enter(w->s.j);
    switch (v.kind) {
    case J_NONE: put(&w->s, "null"); break;
    case J_BOOL: put(&w->s, v.truth ? "true" : "false"); break;
    case J_INT: put_number(&w->s, v); break;
    case J_FLOAT:
        if (isfinite(v.real))
            put_number(&w->s, v);
        else
            put(&w->s, isnan(v.real) ? "NaN" : v.real > 0 ? "Infinity" : "-Infinity");
        break;
    case J_STRING: put_json_string(w, v.string); break;
    case J_SEQUENCE: json_list(w, v.sequence, level); break;
    case J_DICT: json_dict(w, v.dict, level); break;
    case J_UNDEFINED: jinja_fail(w->s.j, "%s, and is not JSON", v.why);
    default: jinja_fail(w->s.j, "a %s is not JSON", jinja_type(v));
    }
    jinja_leave(w->s.j);
}

/* separators: a list of two strings. */
static void read_separators(jinja *j, jinja_value v, json_writer *w) {
    if (v.kind != J_SEQUENCE || v.sequence->n != 2 || v.sequence->at[0].kind != J_STRING ||
        v.sequence->at[1].kind != J_STRING)
        jinja_fail(j, "separators must be two strings");
    w->comma = v.sequence->at[0].string, w->colon = v.sequence->at[1].string;
}

/* a: ensure_ascii, indent, separators, sort_keys. */
jinja_value jinja_tojson(jinja *j, jinja_value v, const jinja_value *a) {
    static const jinja_string comma = {",", 1, NULL, false}, spaced = {", ", 2, NULL, false},
                              colon = {": ", 2, NULL, false};
    jinja_output out = {0};
    json_writer w = {.s = {j, &out, has_content(j, v)}, .ascii = jinja_true(a[0]), .colon = &colon};
    if (a[1].kind == J_STRING) {
        w.indent = a[1].string;
    } else if (a[1].kind != J_ABSENT && a[1].kind != J_NONE) {
        const int64_t n = jinja_integer(j, a[1], "indent");
        if (n > 1000) jinja_fail(j, "indent is larger than 1000");
        char *blanks = jinja_alloc(j, n > 0 ? (size_t)n + 1 : 1, 1);
        if (n > 0) memset(blanks, ' ', (size_t)n);
        w.indent = jinja_text(j, blanks, n > 0 ? (size_t)n : 0, false).string;
    }
    w.comma = w.indent ? &comma : &spaced;
    if (a[2].kind != J_ABSENT && a[2].kind != J_NONE) read_separators(j, a[2], &w);
    w.sorted = jinja_true(a[3]);
    json_put(&w, v, 0);
    return jinja_of(jinja_taken(j, &out));
}
