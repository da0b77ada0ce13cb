/* Filters, as Jinja has them. a: the arguments by the names in the table. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_text.h"

#define FILTER_FN(name)                                                                            \
    static jinja_value name(jinja *j, jinja_value v, const jinja_value *a,                         \
                            const jinja_arguments *all)
#define UNUSED (void)j, (void)v, (void)a, (void)all

static jinja_value iterator_of(jinja *j, jinja_value list) {
    jinja_value out = jinja_list(j, SEQ_ITERATOR, 0);
    out.sequence->at = list.sequence->at, out.sequence->n = list.sequence->n;
    return out;
}

/* ---- members by name ------------------------------------------------------------------------- */

/* "a.b" and 0, as the arguments called `attribute` have it. */
static jinja_value attribute_of(jinja *j, jinja_value v, jinja_value path) {
    if (path.kind == J_INT) return jinja_item(j, v, path);
    if (path.kind != J_STRING) jinja_fail(j, "an attribute must be a name or a number");
    const jinja_string *s = path.string;
    for (size_t begin = 0; begin <= s->n;) {
        const char *dot = memchr(s->at + begin, '.', s->n - begin);
        const size_t end = dot ? (size_t)(dot - s->at) : s->n;
        jinja_value key = jinja_part_value(j, s, begin, end);
        const size_t digits = strspn(s->at + begin, "0123456789");
        if (end > begin && digits >= end - begin && end - begin < 10)
            key = jinja_int(strtol(s->at + begin, NULL, 10));
        v = jinja_item(j, v, key);
        begin = end + 1;
    }
    return v;
}

static jinja_value folded(jinja *j, jinja_value v, jinja_value case_sensitive) {
    if (v.kind != J_STRING || jinja_true(case_sensitive)) return v;
    return jinja_cased(j, v.string, CASE_LOWER);
}

static jinja_value key_of(jinja *j, jinja_value v, jinja_value attribute,
                          jinja_value case_sensitive) {
    if (attribute.kind != J_ABSENT && attribute.kind != J_NONE) v = attribute_of(j, v, attribute);
    return folded(j, v, case_sensitive);
}

/* ---- sequences ------------------------------------------------------------------------------- */

FILTER_FN(length) {
    UNUSED;
    return jinja_int(jinja_length(j, v));
}

FILTER_FN(list) {
    UNUSED;
    const jinja_value all_of = jinja_elements(j, v);
    jinja_value out = jinja_list(j, SEQ_LIST, all_of.sequence->n);
    if (all_of.sequence->n)
        memcpy(out.sequence->at, all_of.sequence->at, all_of.sequence->n * sizeof v);
    return out;
}

FILTER_FN(first) {
    UNUSED;
    if (v.kind == J_SEQUENCE && v.sequence->kind == SEQ_ITERATOR)
        return v.sequence->next < v.sequence->n ? v.sequence->at[v.sequence->next++]
                                                : jinja_undefined("there is no first item");
    const jinja_value e = jinja_elements(j, v);
    return e.sequence->n ? e.sequence->at[0] : jinja_undefined("there is no first item");
}

FILTER_FN(last) {
    UNUSED;
    if (v.kind == J_SEQUENCE && v.sequence->kind == SEQ_ITERATOR)
        jinja_fail(j, "a generator has no last item: a list of it has (|list)");
    const jinja_value e = jinja_elements(j, v);
    return e.sequence->n ? e.sequence->at[e.sequence->n - 1]
                         : jinja_undefined("there is no last item");
}

FILTER_FN(reverse) {
    UNUSED;
    const jinja_value e = jinja_elements(j, v);
    const size_t n = e.sequence->n;
    jinja_value out = jinja_list(j, SEQ_ITERATOR, n);
    for (size_t i = 0; i < n; i++)
        out.sequence->at[i] = e.sequence->at[n - 1 - i];
    if (v.kind != J_STRING) return out;
    jinja_output text = {0};
    for (size_t i = 0; i < n; i++)
        jinja_put(j, &text, out.sequence->at[i].string);
    return jinja_of(jinja_taken(j, &text));
}

FILTER_FN(join) { /* d attribute */
    UNUSED;
    const jinja_value e = jinja_elements(j, v);
    const jinja_string *between = a[0].kind == J_ABSENT ? NULL : jinja_str(j, a[0]);
    jinja_output out = {0};
    for (size_t i = 0; i < e.sequence->n; i++) {
        if (i && between) jinja_put(j, &out, between);
        const jinja_value one =
            a[1].kind == J_ABSENT ? e.sequence->at[i] : attribute_of(j, e.sequence->at[i], a[1]);
        jinja_put(j, &out, jinja_str(j, one));
    }
    return jinja_of(jinja_taken(j, &out));
}

static jinja_arguments without(const jinja_arguments *all, size_t n) {
    jinja_arguments out = *all;
    out.at += n, out.n -= n;
    return out;
}

/* map, select and others give nothing for what is false, whatever it is. */
static jinja_value elements_if_true(jinja *j, jinja_value v) {
    return jinja_true(v) ? jinja_elements(j, v) : jinja_list(j, SEQ_LIST, 0);
}

FILTER_FN(map) {
    UNUSED;
    const jinja_value e = elements_if_true(j, v);
    jinja_value out = jinja_list(j, SEQ_ITERATOR, e.sequence->n), attribute = {0}, otherwise = {0};
    for (size_t i = 0; i < all->n_named; i++) {
        const jinja_string *name = all->names[i];
        if (name->n == 9 && memcmp(name->at, "attribute", 9) == 0) attribute = all->named[i];
        if (name->n == 7 && memcmp(name->at, "default", 7) == 0) otherwise = all->named[i];
    }
    if (all->n == 0 && attribute.kind == J_ABSENT)
        jinja_fail(j, "map takes a filter, or attribute=");
    for (size_t i = 0; i < e.sequence->n; i++) {
        if (all->n == 0) {
            const jinja_value got = attribute_of(j, e.sequence->at[i], attribute);
            out.sequence->at[i] =
                got.kind == J_UNDEFINED && otherwise.kind != J_ABSENT ? otherwise : got;
            continue;
        }
        const jinja_arguments rest = without(all, 1);
        if (all->at[0].kind != J_STRING) jinja_fail(j, "map takes the name of a filter");
        out.sequence->at[i] = jinja_filter(j, all->at[0].string, e.sequence->at[i], &rest);
    }
    return out;
}

/* select, reject, and by an attribute. */
static jinja_value selected(jinja *j, jinja_value v, const jinja_arguments *all, bool wanted,
                            bool by) {
    const jinja_value e = elements_if_true(j, v);
    jinja_value out = jinja_list(j, SEQ_ITERATOR, e.sequence->n);
    size_t k = 0;
    if (by && all->n == 0) jinja_fail(j, "the name of an attribute is missing");
    for (size_t i = 0; i < e.sequence->n; i++) {
        jinja_value one = e.sequence->at[i];
        if (by) one = attribute_of(j, one, all->at[0]);
        bool passes;
        if (all->n > (size_t)by) {
            const jinja_arguments rest = without(all, (size_t)by + 1);
            if (all->at[by].kind != J_STRING) jinja_fail(j, "a test is given by its name");
            passes = jinja_test(j, all->at[by].string, one, &rest);
        } else {
            passes = jinja_true(one);
        }
        if (passes == wanted) out.sequence->at[k++] = e.sequence->at[i];
    }
    out.sequence->n = k;
    return out;
}

FILTER_FN(select_) {
    UNUSED;
    return selected(j, v, all, true, false);
}
FILTER_FN(reject_) {
    UNUSED;
    return selected(j, v, all, false, false);
}
FILTER_FN(selectattr) {
    UNUSED;
    return selected(j, v, all, true, true);
}
FILTER_FN(rejectattr) {
    UNUSED;
    return selected(j, v, all, false, true);
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct keyed {
    jinja_value key, value;
} keyed;

/* Sorts by merging; equal keys keep their order, also in reverse. */
static void merge_sort(jinja *j, keyed *at, keyed *spare, size_t n, bool reverse) {
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t begin = 0; begin < n; begin += 2 * width) {
            const size_t middle = begin + width < n ? begin + width : n,
                         end = begin + 2 * width < n ? begin + 2 * width : n;
            size_t x = begin, y = middle;
            for (size_t k = begin; k < end; k++) {
                jinja_step(j, 1);
                const int order = x < middle && y < end ? jinja_order(j, at[y].key, at[x].key) : 0;
                const bool second = x >= middle || (y < end && (reverse ? order > 0 : order < 0));
                spare[k] = second ? at[y++] : at[x++];
            }
        }
        memcpy(at, spare, n * sizeof *at);
    }
}

static jinja_value sorted(jinja *j, jinja_value v, jinja_value attribute,
                          jinja_value case_sensitive, bool reverse, keyed **keys) {
    const jinja_value e = jinja_elements(j, v);
    const size_t n = e.sequence->n;
    keyed *at = jinja_alloc(j, n, sizeof *at), *spare = jinja_alloc(j, n, sizeof *at);
    for (size_t i = 0; i < n; i++)
        at[i] = (keyed){key_of(j, e.sequence->at[i], attribute, case_sensitive), e.sequence->at[i]};
    merge_sort(j, at, spare, n, reverse);
    jinja_value out = jinja_list(j, SEQ_LIST, n);
    for (size_t i = 0; i < n; i++)
        out.sequence->at[i] = at[i].value;
    if (keys) *keys = at;
    return out;
}

FILTER_FN(sort) { /* reverse case_sensitive attribute */
    UNUSED;
    return sorted(j, v, a[2], a[1], jinja_true(a[0]), NULL);
}

FILTER_FN(unique) { /* case_sensitive attribute */
    UNUSED;
    const jinja_value e = jinja_elements(j, v);
    const jinja_value seen = jinja_new_dict(j);
    jinja_value out = jinja_list(j, SEQ_ITERATOR, e.sequence->n);
    size_t k = 0;
    for (size_t i = 0; i < e.sequence->n; i++) {
        const jinja_value key = key_of(j, e.sequence->at[i], a[1], a[0]);
        if (jinja_find(j, seen.dict, key)) continue;
        jinja_assign(j, seen.dict, key, jinja_none());
        out.sequence->at[k++] = e.sequence->at[i];
    }
    out.sequence->n = k;
    return out;
}

static jinja_value extreme(jinja *j, jinja_value v, const jinja_value *a, int sign) {
    const jinja_value e = jinja_elements(j, v);
    if (e.sequence->n == 0) return jinja_undefined("there is no item in an empty sequence");
    size_t best = 0;
    for (size_t i = 1; i < e.sequence->n; i++)
        if (sign * jinja_order(j, key_of(j, e.sequence->at[i], a[1], a[0]),
                               key_of(j, e.sequence->at[best], a[1], a[0])) >
            0)
            best = i;
    return e.sequence->at[best];
}

FILTER_FN(min) { /* case_sensitive attribute */
    UNUSED;
    return extreme(j, v, a, -1);
}
FILTER_FN(max) {
    UNUSED;
    return extreme(j, v, a, 1);
}

FILTER_FN(sum) { /* attribute start */
    UNUSED;
    const jinja_value e = jinja_elements(j, v);
    jinja_value out = a[1].kind == J_ABSENT ? jinja_int(0) : a[1];
    for (size_t i = 0; i < e.sequence->n; i++) {
        const jinja_value one = a[0].kind == J_ABSENT || a[0].kind == J_NONE
                                    ? e.sequence->at[i]
                                    : attribute_of(j, e.sequence->at[i], a[0]);
        out = jinja_operate(j, OPERATOR('+', 0), out, one);
    }
    return out;
}

static jinja_value pair(jinja *j, jinja_value x, jinja_value y) {
    jinja_value out = jinja_list(j, SEQ_TUPLE, 2);
    out.sequence->at[0] = x, out.sequence->at[1] = y;
    return out;
}

FILTER_FN(groupby) { /* attribute! default case_sensitive */
    UNUSED;
    keyed *at;
    const jinja_value order = sorted(j, v, a[0], a[2], false, &at);
    const size_t n = order.sequence->n;
    jinja_value out = jinja_list(j, SEQ_LIST, n);
    size_t groups = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && jinja_equal(j, at[end].key, at[i].key);)
            end++;
        jinja_value members = jinja_list(j, SEQ_LIST, end - i);
        for (size_t k = i; k < end; k++)
            members.sequence->at[k - i] = at[k].value;
        out.sequence->at[groups++] = pair(j, attribute_of(j, at[i].value, a[0]), members);
    }
    out.sequence->n = groups;
    return out;
}

FILTER_FN(batch) { /* linecount! fill_with */
    UNUSED;
    const jinja_value e = jinja_elements(j, v);
    const int64_t size = jinja_integer(j, a[0], "the size of a batch");
    if (size < 1) jinja_fail(j, "the size of a batch must be 1 or more");
    const size_t n = e.sequence->n, per = (size_t)size, count = n / per + (n % per != 0);
    jinja_value out = jinja_list(j, SEQ_ITERATOR, count);
    for (size_t i = 0; i < count; i++) {
        const size_t left = n - i * per, real = left < per ? left : per;
        const bool fills = a[1].kind != J_ABSENT && a[1].kind != J_NONE;
        jinja_value part = jinja_list(j, SEQ_LIST, fills ? per : real);
        for (size_t k = 0; k < part.sequence->n; k++)
            part.sequence->at[k] = k < real ? e.sequence->at[i * per + k] : a[1];
        out.sequence->at[i] = part;
    }
    return out;
}

/* ---- dicts ----------------------------------------------------------------------------------- */

jinja_value jinja_items(jinja *j, jinja_value v, sequence_kind kind) {
    jinja_value out = jinja_list(j, kind, v.dict->n);
    for (size_t i = 0; i < v.dict->n; i++)
        out.sequence->at[i] = pair(j, v.dict->keys[i], v.dict->values[i]);
    return out;
}

FILTER_FN(items) {
    UNUSED;
    if (v.kind == J_UNDEFINED) return jinja_list(j, SEQ_ITERATOR, 0);
    if (v.kind != J_DICT) jinja_fail(j, "only a dict has items, not a %s", jinja_type(v));
    return jinja_items(j, v, SEQ_ITERATOR);
}

FILTER_FN(dictsort) { /* case_sensitive by reverse */
    UNUSED;
    if (v.kind != J_DICT) jinja_fail(j, "dictsort takes a dict, not a %s", jinja_type(v));
    const jinja_string *by = a[1].kind == J_STRING ? a[1].string : NULL;
    const bool by_value = by && by->n == 5 && memcmp(by->at, "value", 5) == 0;
    return sorted(j, jinja_items(j, v, SEQ_LIST), jinja_int(by_value), a[0], jinja_true(a[2]),
                  NULL);
}

/* ---- text ------------------------------------------------------------------------------------ */

FILTER_FN(string_) {
    UNUSED;
    return jinja_of(jinja_str(j, v));
}

FILTER_FN(trim) { /* chars */
    UNUSED;
    const jinja_string *s = jinja_str(j, v), *set = a[0].kind == J_STRING ? a[0].string : NULL;
    jinja_step(j, set ? (s->n / 64 + 1) * (set->n / 8 + 1) : s->n / 64);
    const jinja_string out = jinja_strip(s, set, true, true);
    return jinja_part_value(j, s, (size_t)(out.at - s->at), (size_t)(out.at - s->at) + out.n);
}

FILTER_FN(upper) {
    UNUSED;
    return jinja_cased(j, jinja_str(j, v), CASE_UPPER);
}
FILTER_FN(lower) {
    UNUSED;
    return jinja_cased(j, jinja_str(j, v), CASE_LOWER);
}
FILTER_FN(capitalize) {
    UNUSED;
    return jinja_cased(j, jinja_str(j, v), CASE_CAPITAL);
}
FILTER_FN(title) {
    UNUSED;
    return jinja_cased(j, jinja_str(j, v), CASE_TITLE_FILTER);
}

FILTER_FN(replace) { /* old! new! count */
    UNUSED;
    const int64_t most =
        a[2].kind == J_ABSENT || a[2].kind == J_NONE ? -1 : jinja_integer(j, a[2], "count");
    return jinja_replaced(j, jinja_str(j, v), jinja_str(j, a[0]), jinja_str(j, a[1]), most);
}

FILTER_FN(indent) { /* width first blank */
    UNUSED;
    jinja_string by = {"    ", 4, NULL, false};
    if (a[0].kind == J_STRING)
        by = *a[0].string;
    else if (a[0].kind != J_ABSENT)
        by = *jinja_operate(j, OPERATOR('*', 0), jinja_literal(j, " "),
                            jinja_int(jinja_integer(j, a[0], "width")))
                  .string;
    jinja_output text = {0}, out = {0};
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (v.kind != J_STRING) jinja_fail(j, "indent takes a str, not a %s", jinja_type(v));
    jinja_put(j, &text, v.string);
    jinja_put_text(j, &text, "\n", 1, false);
    const jinja_value lines = jinja_lines(j, jinja_taken(j, &text), false);
    if (jinja_true(a[1])) jinja_put(j, &out, &by);
    for (size_t i = 0; i < lines.sequence->n; i++) {
        const jinja_string *line = lines.sequence->at[i].string;
        if (i) jinja_put_text(j, &out, "\n", 1, false);
        if (i && (line->n || jinja_true(a[2]))) jinja_put(j, &out, &by);
        jinja_put(j, &out, line);
    }
    return jinja_of(jinja_taken(j, &out));
}

FILTER_FN(escape) {
    UNUSED;
    static const char *const names[][2] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    const jinja_string *s = jinja_str(j, v);
    jinja_output out = {0};
    jinja_step(j, s->n / 8);
    for (size_t i = 0; i < s->n; i++) {
        const jinja_string one = jinja_part(s, i, i + 1);
        size_t k = 0;
        while (k < 5 && names[k][0][0] != s->at[i])
            k++;
        if (k < 5)
            jinja_put_text(j, &out, names[k][1], strlen(names[k][1]), jinja_content(&one));
        else
            jinja_put(j, &out, &one);
    }
    return jinja_of(jinja_taken(j, &out));
}

FILTER_FN(format) {
    UNUSED;
    jinja_value values = jinja_list(j, SEQ_TUPLE, all->n);
    if (all->n) memcpy(values.sequence->at, all->at, all->n * sizeof v);
    if (all->n_named) {
        values = jinja_new_dict(j);
        for (size_t i = 0; i < all->n_named; i++)
            jinja_assign(j, values.dict, jinja_of(all->names[i]), all->named[i]);
    }
    return jinja_percent(j, jinja_str(j, v), values);
}

FILTER_FN(wordcount) {
    UNUSED;
    const jinja_string *s = jinja_str(j, v);
    int64_t n = 0;
    bool inside = false;
    jinja_step(j, s->n / 8);
    for (size_t i = 0; i < s->n; i += (size_t)hd_utf8(s->at + i, s->n - i)) {
        const uint32_t c = hd_utf8_code(s->at + i);
        const bool word = is_word_character(c) || c == '_';
        n += word && !inside;
        inside = word;
    }
    return jinja_int(n);
}

FILTER_FN(safe) {
    UNUSED;
    return v.kind == J_UNDEFINED ? jinja_literal(j, "") : jinja_of(jinja_str(j, v));
}

/* ---- numbers and others ---------------------------------------------------------------------- */

FILTER_FN(int_) { /* default base */
    UNUSED;
    const int64_t base = a[1].kind == J_ABSENT ? 10 : jinja_integer(j, a[1], "base");
    int64_t n;
    double d;
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (v.kind == J_BOOL) return jinja_int(v.truth);
    if (v.kind == J_INT) return v;
    if (v.kind == J_STRING && jinja_read_int(v.string, base, &n)) return jinja_int(n);
    const bool read = v.kind == J_FLOAT ? (d = v.real, true)
                                        : v.kind == J_STRING && jinja_read_real(v.string, &d);
    if (read && isinf(d)) jinja_fail(j, "infinity is not a whole number");
    if (read && fabs(d) < 9.2e18) return jinja_int((int64_t)d);
    if (read && !isnan(d)) jinja_fail(j, "a number is too large");
    return a[0].kind == J_ABSENT ? jinja_int(0) : a[0];
}

FILTER_FN(float_) { /* default */
    UNUSED;
    double d;
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (jinja_is_number(v)) return jinja_real(jinja_double(v));
    if (v.kind == J_STRING && jinja_read_real(v.string, &d)) return jinja_real(d);
    return a[0].kind == J_ABSENT ? jinja_real(0) : a[0];
}

FILTER_FN(abs_) {
    UNUSED;
    if (v.kind == J_FLOAT) return jinja_real(fabs(v.real));
    const int64_t n = jinja_integer(j, v, "the argument of abs");
    if (n == INT64_MIN) jinja_fail(j, "a number is too large");
    return jinja_int(n < 0 ? -n : n);
}

static double rounded(jinja *j, double d, int64_t places) {
    char text[512];
    if (places < 0 || places > 300) jinja_fail(j, "precision must be from 0 to 300");
    if (!isfinite(d) || fabs(d) > 1e16) return d;
    snprintf(text, sizeof text, "%.*f", (int)places, d); /* exact, and ties to even, as in Python */
    return strtod(text, NULL);
}

FILTER_FN(round_) { /* precision method */
    UNUSED;
    const int64_t places = a[0].kind == J_ABSENT ? 0 : jinja_integer(j, a[0], "precision");
    const char *method = a[1].kind == J_ABSENT ? "common" : jinja_chars(j, jinja_str(j, a[1]));
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (!jinja_is_number(v)) jinja_fail(j, "a %s cannot be rounded", jinja_type(v));
    if (strcmp(method, "common") == 0) {
        if (v.kind == J_FLOAT) return jinja_real(rounded(j, v.real, places));
        return jinja_int(jinja_integer(j, v, "the number"));
    }
    const bool up = strcmp(method, "ceil") == 0;
    if (!up && strcmp(method, "floor") != 0) jinja_fail(j, "the method is common, ceil or floor");
    const double power = pow(10, (double)places), d = jinja_double(v) * power;
    return jinja_real((up ? ceil(d) : floor(d)) / power);
}

FILTER_FN(default_) { /* default_value boolean */
    UNUSED;
    if (v.kind != J_UNDEFINED && !(jinja_true(a[1]) && !jinja_true(v))) return v;
    return a[0].kind == J_ABSENT ? jinja_literal(j, "") : a[0];
}

FILTER_FN(tojson) { /* ensure_ascii indent separators sort_keys */
    UNUSED;
    return jinja_tojson(j, v, a);
}

FILTER_FN(iterated_slice) { /* slices! fill_with */
    UNUSED;
    const jinja_value e = jinja_elements(j, v);
    const int64_t slices = jinja_integer(j, a[0], "the number of slices");
    if (slices < 1) jinja_fail(j, "the number of slices must be 1 or more");
    jinja_step(j, (uint64_t)slices);
    const size_t n = e.sequence->n, count = (size_t)slices, per = n / count, more = n % count;
    jinja_value out = jinja_list(j, SEQ_LIST, count);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t size = per + (i < more);
        const bool fills = a[1].kind != J_ABSENT && a[1].kind != J_NONE && i >= more;
        jinja_value part = jinja_list(j, SEQ_LIST, size + fills);
        for (size_t k = 0; k < size; k++)
            part.sequence->at[k] = e.sequence->at[at++];
        if (fills) part.sequence->at[size] = a[1];
        out.sequence->at[i] = part;
    }
    return iterator_of(j, out);
}

static const jinja_builtin filters[] = {
    {"abs", abs_, ""},
    {"batch", batch, "linecount! fill_with"},
    {"capitalize", capitalize, ""},
    {"count", length, ""},
    {"d", default_, "default_value boolean"},
    {"default", default_, "default_value boolean"},
    {"dictsort", dictsort, "case_sensitive by reverse"},
    {"e", escape, ""},
    {"escape", escape, ""},
    {"first", first, ""},
    {"float", float_, "default"},
    {"forceescape", escape, ""},
    {"format", format, "*"},
    {"groupby", groupby, "attribute! default case_sensitive"},
    {"indent", indent, "width first blank"},
    {"int", int_, "default base"},
    {"items", items, ""},
    {"join", join, "d attribute"},
    {"last", last, ""},
    {"length", length, ""},
    {"list", list, ""},
    {"lower", lower, ""},
    {"map", map, "*"},
    {"max", max, "case_sensitive attribute"},
    {"min", min, "case_sensitive attribute"},
    {"reject", reject_, "*"},
    {"rejectattr", rejectattr, "*"},
    {"replace", replace, "old! new! count"},
    {"reverse", reverse, ""},
    {"round", round_, "precision method"},
    {"safe", safe, ""},
    {"select", select_, "*"},
    {"selectattr", selectattr, "*"},
    {"slice", iterated_slice, "slices! fill_with"},
    {"sort", sort, "reverse case_sensitive attribute"},
    {"string", string_, ""},
    {"sum", sum, "attribute start"},
    {"title", title, ""},
    {"tojson", tojson, "ensure_ascii indent separators sort_keys"},
    {"trim", trim, "chars"},
    {"unique", unique, "case_sensitive attribute"},
    {"upper", upper, ""},
    {"wordcount", wordcount, ""},
};

const jinja_builtin *jinja_find_builtin(const jinja_builtin *table, size_t n,
                                        const jinja_string *name) {
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == name->n && memcmp(table[i].name, name->at, name->n) == 0)
            return &table[i];
    return NULL;
}

const jinja_builtin *jinja_filter_named(const jinja_string *name) {
    return jinja_find_builtin(filters, sizeof filters / sizeof *filters, name);
}
