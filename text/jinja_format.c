/* "%s of %d" % values, and "{} of {x:.2f}".format(..), for what templates use of both. */
#include <string.h>

#include "text/jinja_text.h"

typedef struct field_spec {
    bool left, zero, plus, blank, centre, has_places;
    int width, places;
    char kind;
} field_spec;

enum { MOST_WIDTH = 1000 };

static int read_size(jinja *j, const jinja_string *s, size_t *i) {
    int n = 0;
    for (; *i < s->n && s->at[*i] >= '0' && s->at[*i] <= '9'; ++*i)
        if ((n = 10 * n + s->at[*i] - '0') > MOST_WIDTH)
            jinja_fail(j, "a width is larger than %d", MOST_WIDTH);
    return n;
}

/* Writes text of a value at its place in a field of some width. */
static void put_padded(jinja *j, jinja_output *out, const field_spec *f, const jinja_string *text) {
    const int n = (int)jinja_characters(text), more = f->width > n ? f->width - n : 0;
    const int before = f->left ? 0 : f->centre ? more / 2 : more;
    for (int i = 0; i < before; i++)
        jinja_put_text(j, out, " ", 1, false);
    jinja_put(j, out, text);
    for (int i = before; i < more; i++)
        jinja_put_text(j, out, " ", 1, false);
}

static void put_number(jinja *j, jinja_output *out, const field_spec *f, jinja_value v) {
    char format[32], text[MOST_WIDTH + 400];
    const bool whole = strchr("diuxXo", f->kind) != NULL;
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (!jinja_is_number(v)) jinja_fail(j, "a %s is not a number to format", jinja_type(v));
    if (f->places > 300) jinja_fail(j, "a precision is larger than 300");
    snprintf(format, sizeof format, "%%%s%s%s%s*%s%s%c", f->left ? "-" : "", f->plus ? "+" : "",
             f->blank ? " " : "", f->zero && !f->left ? "0" : "", f->has_places ? ".*" : "",
             whole ? "ll" : "", f->kind == 'i' || f->kind == 'u' ? 'd' : f->kind);
    if (whole) {
        if (v.kind == J_FLOAT && (v.real != v.real || v.real > 9e18 || v.real < -9e18))
            jinja_fail(j, "a number is too large to format");
        const long long n =
            v.kind == J_FLOAT ? (long long)v.real : jinja_integer(j, v, "the number");
        if (f->has_places)
            snprintf(text, sizeof text, format, f->width, f->places, n);
        else
            snprintf(text, sizeof text, format, f->width, n);
    } else if (f->has_places) {
        snprintf(text, sizeof text, format, f->width, f->places, jinja_double(v));
    } else {
        snprintf(text, sizeof text, format, f->width, jinja_double(v));
    }
    jinja_put_text(j, out, text, strlen(text), false);
}

static void put_text(jinja *j, jinja_output *out, const field_spec *f, const jinja_string *s) {
    jinja_string text = *s;
    if (f->has_places) text = jinja_part(s, 0, jinja_offset(s, (size_t)f->places));
    put_padded(j, out, f, &text);
}

/* ---- % --------------------------------------------------------------------------------------- */

static size_t read_percent(jinja *j, const jinja_string *s, size_t i, field_spec *f) {
    for (; i < s->n && strchr("-0+ #", s->at[i]) && s->at[i]; i++) {
        f->left |= s->at[i] == '-', f->zero |= s->at[i] == '0';
        f->plus |= s->at[i] == '+', f->blank |= s->at[i] == ' ';
        if (s->at[i] == '#') jinja_fail(j, "the flag # of a format is not known here");
    }
    f->width = read_size(j, s, &i);
    if (i < s->n && s->at[i] == '.') {
        i++;
        f->has_places = true, f->places = read_size(j, s, &i);
    }
    if (i >= s->n) jinja_fail(j, "a format ends after %%");
    f->kind = s->at[i];
    return i + 1;
}

static jinja_value percent_value(jinja *j, const jinja_string *s, size_t *i, jinja_value values,
                                 size_t *taken) {
    if (*i < s->n && s->at[*i] == '(') {
        const char *end = memchr(s->at + *i, ')', s->n - *i);
        if (!end || values.kind != J_DICT) jinja_fail(j, "a format with names takes a dict");
        const size_t close = (size_t)(end - s->at);
        const jinja_value *found =
            jinja_find(j, values.dict, jinja_part_value(j, s, *i + 1, close));
        if (!found) jinja_fail(j, "the dict of a format lacks a name");
        *i = close + 1;
        *taken = SIZE_MAX;
        return *found;
    }
    const bool tuple = values.kind == J_SEQUENCE && values.sequence->kind == SEQ_TUPLE;
    const size_t n = tuple ? values.sequence->n : 1;
    if (*taken >= n) return (jinja_value){.kind = J_ABSENT};
    return tuple ? values.sequence->at[(*taken)++] : (++*taken, values);
}

jinja_value jinja_percent(jinja *j, const jinja_string *s, jinja_value values) {
    jinja_output out = {0};
    size_t taken = 0;
    jinja_step(j, s->n / 8);
    for (size_t i = 0; i < s->n;) {
        const char *sign = memchr(s->at + i, '%', s->n - i);
        const size_t end = sign ? (size_t)(sign - s->at) : s->n;
        const jinja_string plain = jinja_part(s, i, end);
        field_spec f = {0};
        jinja_put(j, &out, &plain);
        if (!sign) break;
        i = end + 1;
        if (i < s->n && s->at[i] == '%') {
            jinja_put_text(j, &out, "%", 1, false);
            i++;
            continue;
        }
        const bool by_name = i < s->n && s->at[i] == '(';
        jinja_value v = {0};
        if (by_name) v = percent_value(j, s, &i, values, &taken);
        i = read_percent(j, s, i, &f);
        if (!by_name) v = percent_value(j, s, &i, values, &taken);
        if (v.kind == J_ABSENT) jinja_fail(j, "a format has more fields than values");
        if (f.kind == 's')
            put_text(j, &out, &f, jinja_str(j, v));
        else if (f.kind == 'r')
            put_text(j, &out, &f, jinja_repr(j, v));
        else if (f.kind && strchr("diufFeEgGxXo", f.kind))
            put_number(j, &out, &f, v);
        else
            jinja_fail(j, "a format has a field of no known kind");
    }
    const bool tuple = values.kind == J_SEQUENCE && values.sequence->kind == SEQ_TUPLE,
               mapping = values.kind == J_DICT || values.kind == J_UNDEFINED ||
                         (values.kind == J_SEQUENCE && !tuple);
    if (!mapping && taken < (tuple ? values.sequence->n : 1))
        jinja_fail(j, "a format has fewer fields than values");
    return jinja_of(jinja_taken(j, &out));
}

/* ---- str.format ------------------------------------------------------------------------------ */

/* The value of a field such as "", "0", "name", "0.role" or "name[key]". */
static jinja_value braces_value(jinja *j, const jinja_string *name, const jinja_arguments *a,
                                size_t *next) {
    size_t end = 0;
    while (end < name->n && name->at[end] != '.' && name->at[end] != '[')
        end++;
    const jinja_string first = jinja_part(name, 0, end);
    jinja_value v = {0};
    int64_t at;
    if (end == 0)
        at = (int64_t)(*next)++;
    else if (!jinja_read_int(&first, 10, &at))
        at = -1;
    if (at >= 0 && at < (int64_t)a->n) v = a->at[at];
    for (size_t i = 0; at < 0 && i < a->n_named; i++)
        if (a->names[i]->n == first.n && memcmp(a->names[i]->at, first.at, first.n) == 0)
            v = a->named[i];
    if (v.kind == J_ABSENT) jinja_fail(j, "format: a field has no value");
    while (end < name->n) {
        const bool item = name->at[end] == '[';
        const size_t begin = ++end;
        while (end < name->n &&
               (item ? name->at[end] != ']' : name->at[end] != '.' && name->at[end] != '['))
            end++;
        const jinja_value key = jinja_part_value(j, name, begin, end);
        int64_t number;
        v = item ? jinja_item(j, v,
                              jinja_read_int(key.string, 10, &number) ? jinja_int(number) : key)
                 : jinja_attribute(j, v, key.string);
        if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
        end += item;
    }
    return v;
}

static void put_braces(jinja *j, jinja_output *out, jinja_value v, const jinja_string *spec) {
    field_spec f = {0};
    size_t i = 0;
    const bool number = jinja_is_number(v) && v.kind != J_BOOL;
    bool aligned = false;
    if (i < spec->n && strchr("<>^", spec->at[i])) {
        f.left = spec->at[i] == '<', f.centre = spec->at[i] == '^', aligned = true;
        i++;
    }
    if (i < spec->n && spec->at[i] == '+') f.plus = true, i++;
    if (i < spec->n && spec->at[i] == '0') f.zero = number, i++;
    f.width = read_size(j, spec, &i);
    if (i < spec->n && spec->at[i] == '.') {
        i++;
        f.has_places = true, f.places = read_size(j, spec, &i);
    }
    f.kind = i < spec->n ? spec->at[i++] : 0;
    if (i < spec->n)
        jinja_fail(j, "a format is not known here: '%.*s'", (int)(spec->n < 40 ? spec->n : 40),
                   spec->at);
    if (f.kind && strchr("dfFeEgGxXo", f.kind) && !f.centre) {
        put_number(j, out, &f, v);
    } else if (!f.kind || f.kind == 's') {
        if (f.has_places && number) jinja_fail(j, "a precision needs a kind here, such as f");
        if (!aligned) f.left = !number;
        put_text(j, out, &f, jinja_str(j, v));
    } else {
        jinja_fail(j, "a format is not known here: '%.*s'", (int)(spec->n < 40 ? spec->n : 40),
                   spec->at);
    }
}

jinja_value jinja_braces(jinja *j, const jinja_string *s, const jinja_arguments *a) {
    jinja_output out = {0};
    size_t next = 0;
    jinja_step(j, s->n / 8);
    for (size_t i = 0; i < s->n;) {
        const char c = s->at[i];
        const bool twice = i + 1 < s->n && s->at[i + 1] == c;
        if ((c == '{' || c == '}') && twice) {
            const jinja_string one = jinja_part(s, i, i + 1);
            jinja_put(j, &out, &one);
            i += 2;
        } else if (c == '{') {
            const char *close = memchr(s->at + i, '}', s->n - i);
            if (!close) jinja_fail(j, "format: a field does not end");
            const size_t end = (size_t)(close - s->at);
            const jinja_string field = jinja_part(s, i + 1, end);
            const char *colon = memchr(field.at, ':', field.n);
            const size_t n = colon ? (size_t)(colon - field.at) : field.n;
            const bool repr = n >= 2 && field.at[n - 2] == '!';
            if (repr && field.at[n - 1] != 'r' && field.at[n - 1] != 's')
                jinja_fail(j, "format: !%c is not known here", field.at[n - 1]);
            const jinja_string name = jinja_part(&field, 0, repr ? n - 2 : n),
                               spec = jinja_part(&field, colon ? n + 1 : n, field.n);
            jinja_value v = braces_value(j, &name, a, &next);
            if (repr) v = jinja_of(field.at[n - 1] == 'r' ? jinja_repr(j, v) : jinja_str(j, v));
            put_braces(j, &out, v, &spec);
            i = end + 1;
        } else if (c == '}') {
            jinja_fail(j, "format: a '}' without a '{'");
        } else {
            const size_t n = (size_t)hd_utf8(s->at + i, s->n - i);
            const jinja_string one = jinja_part(s, i, i + n);
            jinja_put(j, &out, &one);
            i += n;
        }
    }
    return jinja_of(jinja_taken(j, &out));
}
