/* Values of templates, as Python has them: truth, equality, order, length, elements; and the parts
 * of strings, which keep the mask of what a message says. */
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "text/jinja_tree.h"

/* ---- bounds ---------------------------------------------------------------------------------- */

void jinja_fail(jinja *j, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!j->error->message)
        *j->error = (jinja_error){.message = hd_vprintf(j->arena, format, args)};
    va_end(args);
    j->error->line = j->line;
    longjmp(j->entry, 1);
}

void jinja_exceed(jinja *j, const char *what) {
    j->error->limit = true;
    j->error->message = hd_printf(j->arena, "the template takes more than %s", what);
    jinja_fail(j, "%s", what);
}

void jinja_step(jinja *j, uint64_t n) {
    j->steps = hd_capped_add(j->steps, n);
    if (j->steps > j->limits.steps)
        jinja_exceed(j, hd_printf(j->arena, "%llu steps", (unsigned long long)j->limits.steps));
}

void *jinja_alloc(jinja *j, size_t n, size_t size) {
    const uint64_t bytes = hd_capped_add(hd_capped_mul(n, size), 16);
    j->memory = hd_capped_add(j->memory, bytes);
    if (j->memory > j->limits.memory)
        jinja_exceed(
            j, hd_printf(j->arena, "%llu bytes of memory", (unsigned long long)j->limits.memory));
    return hd_alloc(j->arena, n, size);
}

void jinja_enter(jinja *j) {
    jinja_step(j, 1);
    if (++j->depth > j->limits.depth)
        jinja_exceed(j, hd_printf(j->arena, "%u expressions, blocks and macros in each other",
                                  j->limits.depth));
}

/* ---- output ---------------------------------------------------------------------------------- */

static void reserve(jinja *j, jinja_output *o, size_t n, bool masked) {
    if (o->n + n > o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 64;
        while (capacity < o->n + n)
            capacity *= 2;
        char *at = jinja_alloc(j, capacity, 1);
        if (o->n) memcpy(at, o->at, o->n);
        if (o->mask) {
            uint8_t *mask = jinja_alloc(j, capacity, 1);
            if (o->n) memcpy(mask, o->mask, o->n);
            o->mask = mask;
        }
        o->at = at, o->capacity = capacity;
    }
    if (masked && !o->mask) o->mask = jinja_alloc(j, o->capacity, 1);
}

void jinja_put(jinja *j, jinja_output *o, const jinja_string *s) {
    if (s->n == 0) return;
    jinja_step(j, s->n / 64);
    reserve(j, o, s->n, s->mask || s->content);
    memcpy(o->at + o->n, s->at, s->n);
    if (s->mask)
        memcpy(o->mask + o->n, s->mask, s->n);
    else if (o->mask)
        memset(o->mask + o->n, s->content, s->n);
    o->n += s->n;
}

void jinja_put_text(jinja *j, jinja_output *o, const char *text, size_t n, bool content) {
    jinja_put(j, o, &(jinja_string){text, n, NULL, content});
}

const jinja_string *jinja_taken(jinja *j, jinja_output *o) {
    jinja_string *s = jinja_alloc(j, 1, sizeof *s);
    *s = (jinja_string){o->n ? o->at : "", o->n, o->mask, false};
    return s;
}

/* ---- making values --------------------------------------------------------------------------- */

jinja_value jinja_none(void) {
    return (jinja_value){.kind = J_NONE};
}

jinja_value jinja_bool(bool b) {
    return (jinja_value){.kind = J_BOOL, .truth = b};
}

jinja_value jinja_int(int64_t n) {
    return (jinja_value){.kind = J_INT, .number = n};
}

jinja_value jinja_real(double d) {
    return (jinja_value){.kind = J_FLOAT, .real = d};
}

jinja_value jinja_undefined(const char *why) {
    return (jinja_value){.kind = J_UNDEFINED, .why = why};
}

jinja_value jinja_of(const jinja_string *s) {
    return (jinja_value){.kind = J_STRING, .string = s};
}

jinja_value jinja_text(jinja *j, const char *text, size_t n, bool content) {
    jinja_string *s = jinja_alloc(j, 1, sizeof *s);
    char *at = jinja_alloc(j, n + 1, 1);
    if (n) memcpy(at, text, n);
    *s = (jinja_string){at, n, NULL, content};
    return jinja_of(s);
}

jinja_value jinja_literal(jinja *j, const char *text) {
    jinja_string *s = jinja_alloc(j, 1, sizeof *s);
    *s = (jinja_string){text, strlen(text), NULL, false};
    return jinja_of(s);
}

jinja_value jinja_list(jinja *j, sequence_kind kind, size_t n) {
    jinja_sequence *s = jinja_alloc(j, 1, sizeof *s);
    *s = (jinja_sequence){.kind = kind, .at = jinja_alloc(j, n, sizeof *s->at), .n = n};
    return (jinja_value){.kind = J_SEQUENCE, .sequence = s};
}

void jinja_append(jinja *j, jinja_sequence *s, size_t *capacity, jinja_value v) {
    if (s->n == *capacity) {
        *capacity = *capacity ? 2 * *capacity : 8;
        jinja_value *at = jinja_alloc(j, *capacity, sizeof *at);
        if (s->n) memcpy(at, s->at, s->n * sizeof *at);
        s->at = at;
    }
    s->at[s->n++] = v;
}

jinja_value jinja_new_dict(jinja *j) {
    return (jinja_value){.kind = J_DICT, .dict = jinja_alloc(j, 1, sizeof(jinja_dict))};
}

/* Only values that never change can be keys. */
static void check_key(jinja *j, jinja_value key) {
    const bool list = key.kind == J_SEQUENCE && key.sequence->kind != SEQ_TUPLE;
    if (key.kind == J_DICT || key.kind == J_NAMESPACE || list)
        jinja_fail(j, "a %s cannot be a key", jinja_type(key));
}

const jinja_value *jinja_find(jinja *j, const jinja_dict *d, jinja_value key) {
    check_key(j, key);
    jinja_step(j, d->n / 8);
    for (size_t i = 0; i < d->n; i++)
        if (d->keys[i].kind == J_STRING && key.kind == J_STRING
                ? d->keys[i].string->n == key.string->n &&
                      memcmp(d->keys[i].string->at, key.string->at, key.string->n) == 0
                : jinja_equal(j, d->keys[i], key))
            return &d->values[i];
    return NULL;
}

void jinja_assign(jinja *j, jinja_dict *d, jinja_value key, jinja_value v) {
    const jinja_value *old = jinja_find(j, d, key);
    if (old) {
        d->values[old - d->values] = v;
        return;
    }
    if (d->n == d->capacity) {
        d->capacity = d->capacity ? 2 * d->capacity : 8;
        jinja_value *keys = jinja_alloc(j, d->capacity, sizeof *keys),
                    *values = jinja_alloc(j, d->capacity, sizeof *values);
        if (d->n) memcpy(keys, d->keys, d->n * sizeof *keys);
        if (d->n) memcpy(values, d->values, d->n * sizeof *values);
        d->keys = keys, d->values = values;
    }
    d->keys[d->n] = key, d->values[d->n++] = v;
}

/* A role such as "user" is part of what the template writes: some build control tokens of it. Other
 * characters make it text. */
static bool is_plain_name(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '-'))
            return false;
    }
    return n > 0;
}

static jinja_value dict_from_json(jinja *j, const json_t *v, bool content) {
    jinja_value out = jinja_new_dict(j);
    const char *name;
    json_t *member;
    jinja_dict *d = out.dict;
    const size_t n = json_object_size(v);
    d->keys = jinja_alloc(j, n, sizeof *d->keys);
    d->values = jinja_alloc(j, n, sizeof *d->values);
    d->capacity = n;
    json_object_foreach((json_t *)(uintptr_t)v, name, member) {
        const char *text = json_string_value(member);
        const bool plain =
            text && strcmp(name, "role") == 0 && is_plain_name(text, json_string_length(member));
        d->keys[d->n] = jinja_text(j, name, strlen(name), content); /* JSON has no equal keys */
        d->values[d->n++] = jinja_from_json(j, member, content && !plain);
    }
    return out;
}

jinja_value jinja_from_json(jinja *j, const json_t *v, bool content) {
    jinja_value out = jinja_none();
    jinja_enter(j);
    switch (json_typeof(v)) {
    case JSON_NULL: break;
    case JSON_TRUE:
    case JSON_FALSE: out = jinja_bool(json_is_true(v)); break;
    case JSON_INTEGER: out = jinja_int(json_integer_value(v)); break;
    case JSON_REAL: out = jinja_real(json_real_value(v)); break;
    case JSON_STRING:
        out = jinja_text(j, json_string_value(v), json_string_length(v), content);
        break;
    case JSON_ARRAY:
        out = jinja_list(j, SEQ_LIST, json_array_size(v));
        for (size_t i = 0; i < json_array_size(v); i++)
            out.sequence->at[i] = jinja_from_json(j, json_array_get(v, i), content);
        break;
    case JSON_OBJECT: out = dict_from_json(j, v, content); break;
    }
    jinja_leave(j);
    return out;
}

/* ---- what values are ------------------------------------------------------------------------- */

const char *jinja_type(jinja_value v) {
    static const char *const sequences[] = {"list", "tuple", "dict_view", "generator"};
    switch (v.kind) {
    case J_ABSENT:
    case J_UNDEFINED: return "Undefined";
    case J_NONE: return "NoneType";
    case J_BOOL: return "bool";
    case J_INT: return "int";
    case J_FLOAT: return "float";
    case J_STRING: return "str";
    case J_SEQUENCE: return sequences[v.sequence->kind];
    case J_DICT: return "dict";
    case J_NAMESPACE: return "Namespace";
    case J_LOOP: return "LoopContext";
    case J_CALLABLE: return "function";
    }
    return "";
}

bool jinja_true(jinja_value v) {
    switch (v.kind) {
    case J_ABSENT:
    case J_UNDEFINED:
    case J_NONE: return false;
    case J_BOOL: return v.truth;
    case J_INT: return v.number != 0;
    case J_FLOAT: return v.real != 0;
    case J_STRING: return v.string->n > 0;
    case J_SEQUENCE: return v.sequence->kind == SEQ_ITERATOR || v.sequence->n > 0;
    case J_DICT: return v.dict->n > 0;
    default: return true;
    }
}

bool jinja_is_number(jinja_value v) {
    return v.kind == J_BOOL || v.kind == J_INT || v.kind == J_FLOAT;
}

double jinja_double(jinja_value v) {
    return v.kind == J_FLOAT ? v.real : v.kind == J_BOOL ? (double)v.truth : (double)v.number;
}

int64_t jinja_integer(jinja *j, jinja_value v, const char *what) {
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (v.kind != J_INT && v.kind != J_BOOL)
        jinja_fail(j, "%s must be a whole number, not a %s", what, jinja_type(v));
    return v.kind == J_INT ? v.number : v.truth;
}

/* Compares an int with a float without rounding the int. */
static int order_of_numbers(jinja_value x, jinja_value y) {
    if (x.kind != J_FLOAT && y.kind != J_FLOAT) {
        const int64_t a = x.kind == J_INT ? x.number : x.truth,
                      b = y.kind == J_INT ? y.number : y.truth;
        return (a > b) - (a < b);
    }
    const long double a = x.kind == J_FLOAT ? (long double)x.real
                          : x.kind == J_INT ? (long double)x.number
                                            : (long double)x.truth,
                      b = y.kind == J_FLOAT ? (long double)y.real
                          : y.kind == J_INT ? (long double)y.number
                                            : (long double)y.truth;
    return (a > b) - (a < b);
}

static bool is_nan(jinja_value v) {
    return v.kind == J_FLOAT && isnan(v.real);
}

static bool equal_sequences(jinja *j, const jinja_sequence *x, const jinja_sequence *y) {
    if (x == y) return true;
    if (x->kind != y->kind || x->kind == SEQ_ITERATOR || x->n != y->n) return false;
    for (size_t i = 0; i < x->n; i++)
        if (!jinja_equal(j, x->at[i], y->at[i])) return false;
    return true;
}

static bool equal_dicts(jinja *j, const jinja_dict *x, const jinja_dict *y) {
    if (x->n != y->n) return false;
    for (size_t i = 0; i < x->n; i++) {
        const jinja_value *other = jinja_find(j, y, x->keys[i]);
        if (!other || !jinja_equal(j, x->values[i], *other)) return false;
    }
    return true;
}

static bool equal_of_a_kind(jinja *j, jinja_value x, jinja_value y) {
    switch (x.kind) {
    case J_STRING:
        jinja_step(j, x.string->n / 64);
        return x.string->n == y.string->n && memcmp(x.string->at, y.string->at, x.string->n) == 0;
    case J_SEQUENCE: return equal_sequences(j, x.sequence, y.sequence);
    case J_DICT: return equal_dicts(j, x.dict, y.dict);
    case J_NAMESPACE: return x.dict == y.dict;
    case J_LOOP: return x.loop == y.loop;
    case J_CALLABLE: return x.callable == y.callable;
    default: return true; /* undefined and none */
    }
}

bool jinja_equal(jinja *j, jinja_value x, jinja_value y) {
    if (jinja_is_number(x) && jinja_is_number(y))
        return !is_nan(x) && !is_nan(y) && order_of_numbers(x, y) == 0;
    if (x.kind != y.kind) return false;
    jinja_enter(j);
    const bool equal = equal_of_a_kind(j, x, y);
    jinja_leave(j);
    return equal;
}

static int order_of_strings(const jinja_string *x, const jinja_string *y) {
    const size_t n = x->n < y->n ? x->n : y->n;
    const int order = n ? memcmp(x->at, y->at, n) : 0; /* as by code points, in UTF-8 */
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

int jinja_order(jinja *j, jinja_value x, jinja_value y) {
    if (x.kind == J_UNDEFINED) jinja_fail(j, "%s", x.why);
    if (y.kind == J_UNDEFINED) jinja_fail(j, "%s", y.why);
    if (jinja_is_number(x) && jinja_is_number(y)) return order_of_numbers(x, y);
    if (x.kind == J_STRING && y.kind == J_STRING) return order_of_strings(x.string, y.string);
    if (x.kind != J_SEQUENCE || y.kind != J_SEQUENCE || x.sequence->kind != y.sequence->kind ||
        x.sequence->kind > SEQ_TUPLE)
        jinja_fail(j, "a %s and a %s have no order", jinja_type(x), jinja_type(y));
    const jinja_sequence *a = x.sequence, *b = y.sequence;
    int order = 0;
    jinja_enter(j);
    for (size_t i = 0; !order && i < a->n && i < b->n; i++)
        if (!jinja_equal(j, a->at[i], b->at[i])) order = jinja_order(j, a->at[i], b->at[i]);
    jinja_leave(j);
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

bool jinja_contains(jinja *j, jinja_value whole, jinja_value part) {
    if (whole.kind == J_STRING) {
        if (part.kind == J_UNDEFINED) jinja_fail(j, "%s", part.why);
        if (part.kind != J_STRING)
            jinja_fail(j, "'in' takes a str for a str, not a %s", jinja_type(part));
        jinja_step(j, whole.string->n / 64);
        return jinja_search(whole.string, part.string, 0) >= 0;
    }
    if (whole.kind == J_DICT) return jinja_find(j, whole.dict, part) != NULL;
    const jinja_value all = jinja_elements(j, whole);
    jinja_step(j, all.sequence->n);
    for (size_t i = 0; i < all.sequence->n; i++)
        if (jinja_equal(j, all.sequence->at[i], part)) return true;
    return false;
}

int64_t jinja_length(jinja *j, jinja_value v) {
    switch (v.kind) {
    case J_UNDEFINED: return 0;
    case J_STRING: jinja_step(j, v.string->n / 64); return (int64_t)jinja_characters(v.string);
    case J_DICT: return (int64_t)v.dict->n;
    case J_LOOP: return (int64_t)v.loop->n;
    case J_SEQUENCE:
        if (v.sequence->kind != SEQ_ITERATOR) return (int64_t)v.sequence->n;
        break;
    default: break;
    }
    jinja_fail(j, "a %s has no length", jinja_type(v));
}

static jinja_value characters(jinja *j, const jinja_string *s) {
    jinja_value out = jinja_list(j, SEQ_LIST, jinja_characters(s));
    jinja_step(j, s->n);
    for (size_t i = 0, k = 0; i < s->n; k++) {
        const size_t n = (size_t)hd_utf8(s->at + i, s->n - i);
        out.sequence->at[k] = jinja_part_value(j, s, i, i + n);
        i += n;
    }
    return out;
}

jinja_value jinja_elements(jinja *j, jinja_value v) {
    jinja_value out;
    switch (v.kind) {
    case J_UNDEFINED: return jinja_list(j, SEQ_LIST, 0);
    case J_STRING: return characters(j, v.string);
    case J_DICT:
        out = jinja_list(j, SEQ_LIST, v.dict->n);
        if (v.dict->n) memcpy(out.sequence->at, v.dict->keys, v.dict->n * sizeof *v.dict->keys);
        return out;
    case J_SEQUENCE:
        if (v.sequence->kind != SEQ_ITERATOR) return v;
        out = jinja_list(j, SEQ_LIST, 0);
        out.sequence->at = v.sequence->at + v.sequence->next;
        out.sequence->n = v.sequence->n - v.sequence->next;
        v.sequence->next = v.sequence->n;
        return out;
    default: jinja_fail(j, "a %s has no elements", jinja_type(v));
    }
}

/* ---- strings --------------------------------------------------------------------------------- */

jinja_string jinja_part(const jinja_string *s, size_t begin, size_t end) {
    return (jinja_string){s->at + begin, end - begin, s->mask ? s->mask + begin : NULL, s->content};
}

jinja_value jinja_part_value(jinja *j, const jinja_string *s, size_t begin, size_t end) {
    jinja_string *out = jinja_alloc(j, 1, sizeof *out);
    *out = jinja_part(s, begin, end);
    return jinja_of(out);
}

bool jinja_content(const jinja_string *s) {
    return s->mask ? memchr(s->mask, 1, s->n) != NULL : s->content && s->n > 0;
}

size_t jinja_characters(const jinja_string *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += ((uint8_t)s->at[i] & 0xc0) != 0x80;
    return n;
}

size_t jinja_offset(const jinja_string *s, size_t index) {
    size_t i = 0;
    for (; i < s->n && index > 0; index--)
        i += (size_t)hd_utf8(s->at + i, s->n - i);
    return i;
}

int64_t jinja_search(const jinja_string *s, const jinja_string *part, size_t from) {
    if (from > s->n) return -1;
    if (part->n == 0) return (int64_t)from;
    const char *at = memmem(s->at + from, s->n - from, part->at, part->n);
    return at ? at - s->at : -1;
}

int64_t jinja_search_last(const jinja_string *s, const jinja_string *part, size_t end) {
    if (part->n > end) return -1;
    for (size_t i = end - part->n + 1; i-- > 0;)
        if (part->n == 0 || memcmp(s->at + i, part->at, part->n) == 0) return (int64_t)i;
    return -1;
}

bool jinja_is_space(uint32_t code) {
    return is_space(code) || (code >= 0x1c && code <= 0x1f);
}

uint32_t jinja_before(const char *at, size_t n, size_t *begin) {
    size_t i = n - 1;
    while (i > 0 && ((uint8_t)at[i] & 0xc0) == 0x80)
        i--;
    *begin = i;
    return hd_utf8_code(at + i);
}

static bool is_in(uint32_t code, const jinja_string *set) {
    if (!set) return jinja_is_space(code);
    for (size_t i = 0; i < set->n; i += (size_t)hd_utf8(set->at + i, set->n - i))
        if (hd_utf8_code(set->at + i) == code) return true;
    return false;
}

jinja_string jinja_strip(const jinja_string *s, const jinja_string *set, bool left, bool right) {
    size_t begin = 0, end = s->n, before;
    while (left && begin < end && is_in(hd_utf8_code(s->at + begin), set))
        begin += (size_t)hd_utf8(s->at + begin, end - begin);
    while (right && end > begin && is_in(jinja_before(s->at, end, &before), set))
        end = before;
    return jinja_part(s, begin, end);
}
