/* Methods of strings, lists and dicts, as Python has them; those that would change a value are
 * denied to templates. And the functions that a template sees. */
#include <string.h>

#include "text/jinja_text.h"

#define METHOD_FN(name)                                                                            \
    static jinja_value name(jinja *j, jinja_value v, const jinja_value *a,                         \
                            const jinja_arguments *all)
#define UNUSED (void)j, (void)v, (void)a, (void)all

static const jinja_string *string_at(jinja *j, jinja_value v, const char *what) {
    if (v.kind == J_UNDEFINED) jinja_fail(j, "%s", v.why);
    if (v.kind != J_STRING) jinja_fail(j, "%s must be a str, not a %s", what, jinja_type(v));
    return v.string;
}

/* NULL for an argument that is absent or None. */
static const jinja_string *optional_string(jinja *j, jinja_value v, const char *what) {
    return v.kind == J_ABSENT || v.kind == J_NONE ? NULL : string_at(j, v, what);
}

static int64_t optional_int(jinja *j, jinja_value v, int64_t otherwise) {
    return v.kind == J_ABSENT || v.kind == J_NONE ? otherwise : jinja_integer(j, v, "the argument");
}

/* ---- stripping and case ---------------------------------------------------------------------- */

static jinja_value stripped(jinja *j, jinja_value v, jinja_value chars, bool left, bool right) {
    const jinja_string *s = v.string, *set = optional_string(j, chars, "the characters to strip");
    jinja_step(j, set ? (s->n / 64 + 1) * (set->n / 8 + 1) : s->n / 64);
    const jinja_string out = jinja_strip(s, set, left, right);
    const size_t begin = (size_t)(out.at - s->at);
    return jinja_part_value(j, s, begin, begin + out.n);
}

METHOD_FN(strip) {
    UNUSED;
    return stripped(j, v, a[0], true, true);
}
METHOD_FN(lstrip) {
    UNUSED;
    return stripped(j, v, a[0], true, false);
}
METHOD_FN(rstrip) {
    UNUSED;
    return stripped(j, v, a[0], false, true);
}
METHOD_FN(upper) {
    UNUSED;
    return jinja_cased(j, v.string, CASE_UPPER);
}
METHOD_FN(lower) {
    UNUSED;
    return jinja_cased(j, v.string, CASE_LOWER);
}
METHOD_FN(capitalize) {
    UNUSED;
    return jinja_cased(j, v.string, CASE_CAPITAL);
}
METHOD_FN(title) {
    UNUSED;
    return jinja_cased(j, v.string, CASE_TITLE);
}
METHOD_FN(swapcase) {
    UNUSED;
    return jinja_cased(j, v.string, CASE_SWAPPED);
}

/* ---- beginnings and ends --------------------------------------------------------------------- */

static bool has_end(const jinja_string *s, const jinja_string *part, bool at_end) {
    return part->n <= s->n &&
           memcmp(at_end ? s->at + s->n - part->n : s->at, part->at, part->n) == 0;
}

static bool has_any_end(jinja *j, jinja_value v, jinja_value parts, bool at_end) {
    if (parts.kind != J_SEQUENCE || parts.sequence->kind != SEQ_TUPLE)
        return has_end(v.string, string_at(j, parts, "the beginning or end"), at_end);
    for (size_t i = 0; i < parts.sequence->n; i++)
        if (has_end(v.string, string_at(j, parts.sequence->at[i], "the beginning or end"), at_end))
            return true;
    return false;
}

METHOD_FN(startswith) {
    UNUSED;
    return jinja_bool(has_any_end(j, v, a[0], false));
}
METHOD_FN(endswith) {
    UNUSED;
    return jinja_bool(has_any_end(j, v, a[0], true));
}
METHOD_FN(removeprefix) {
    UNUSED;
    const jinja_string *s = v.string, *part = string_at(j, a[0], "the beginning");
    return has_end(s, part, false) ? jinja_part_value(j, s, part->n, s->n) : v;
}
METHOD_FN(removesuffix) {
    UNUSED;
    const jinja_string *s = v.string, *part = string_at(j, a[0], "the end");
    return has_end(s, part, true) ? jinja_part_value(j, s, 0, s->n - part->n) : v;
}

/* ---- searching ------------------------------------------------------------------------------- */

/* The part of the string between two indices in characters, as in find(part, start, end). */
static void bounds_of(jinja *j, const jinja_string *s, const jinja_value *a, size_t *begin,
                      size_t *end) {
    const int64_t n = (int64_t)jinja_characters(s);
    int64_t from = optional_int(j, a[1], 0), to = optional_int(j, a[2], n);
    from = from < 0 ? (from + n < 0 ? 0 : from + n) : from;
    to = to < 0 ? (to + n < 0 ? 0 : to + n) : to > n ? n : to;
    *end = jinja_offset(s, (size_t)to);
    *begin = from > n ? s->n + 1 : jinja_offset(s, (size_t)from);
}

static int64_t place_of(jinja *j, jinja_value v, const jinja_value *a, bool last) {
    const jinja_string *s = v.string, *part = string_at(j, a[0], "what to find");
    size_t begin, end;
    bounds_of(j, s, a, &begin, &end);
    jinja_step(j, last ? hd_capped_mul(s->n / 16 + 1, part->n / 64 + 1) : s->n / 32);
    if (begin > end) return -1;
    const jinja_string within = jinja_part(s, 0, end);
    const int64_t at =
        last ? jinja_search_last(&within, part, end) : jinja_search(&within, part, begin);
    if (at < (int64_t)begin) return -1;
    const jinja_string before = jinja_part(s, 0, (size_t)at);
    return (int64_t)jinja_characters(&before);
}

METHOD_FN(find) {
    UNUSED;
    return jinja_int(place_of(j, v, a, false));
}
METHOD_FN(rfind) {
    UNUSED;
    return jinja_int(place_of(j, v, a, true));
}
METHOD_FN(index_) {
    UNUSED;
    const int64_t at = place_of(j, v, a, false);
    if (at < 0) jinja_fail(j, "index: the text is not there");
    return jinja_int(at);
}
METHOD_FN(rindex_) {
    UNUSED;
    const int64_t at = place_of(j, v, a, true);
    if (at < 0) jinja_fail(j, "rindex: the text is not there");
    return jinja_int(at);
}
METHOD_FN(count) {
    UNUSED;
    const jinja_string *s = v.string, *part = string_at(j, a[0], "what to count");
    size_t begin, end;
    int64_t n = 0, at;
    bounds_of(j, s, a, &begin, &end);
    jinja_step(j, s->n / 16);
    if (begin > end) return jinja_int(0);
    const jinja_string within = jinja_part(s, 0, end);
    if (part->n == 0) {
        const jinja_string middle = jinja_part(s, begin, end);
        return jinja_int((int64_t)jinja_characters(&middle) + 1);
    }
    for (; (at = jinja_search(&within, part, begin)) >= 0; n++)
        begin = (size_t)at + part->n;
    return jinja_int(n);
}

/* ---- cutting and joining --------------------------------------------------------------------- */

static size_t space_at(const jinja_string *s, size_t i) {
    if (i >= s->n || !jinja_is_space(hd_utf8_code(s->at + i))) return 0;
    return (size_t)hd_utf8(s->at + i, s->n - i);
}

static jinja_value split_words(jinja *j, const jinja_string *s, int64_t most) {
    jinja_value out = jinja_list(j, SEQ_LIST, 0);
    size_t capacity = 0, i = 0, k;
    for (;; most--) {
        while ((k = space_at(s, i)))
            i += k;
        if (i == s->n) return out;
        const size_t begin = i;
        if (most == 0) {
            jinja_append(j, out.sequence, &capacity, jinja_part_value(j, s, begin, s->n));
            return out;
        }
        while (i < s->n && !space_at(s, i))
            i += (size_t)hd_utf8(s->at + i, s->n - i);
        jinja_append(j, out.sequence, &capacity, jinja_part_value(j, s, begin, i));
    }
}

METHOD_FN(split) { /* sep maxsplit */
    UNUSED;
    const jinja_string *s = v.string, *by = optional_string(j, a[0], "the separator");
    int64_t most = optional_int(j, a[1], -1), at;
    size_t capacity = 0, begin = 0;
    jinja_step(j, s->n / 16);
    if (!by) return split_words(j, s, most);
    if (by->n == 0) jinja_fail(j, "split: the separator is empty");
    jinja_value out = jinja_list(j, SEQ_LIST, 0);
    for (; most != 0 && (at = jinja_search(s, by, begin)) >= 0; most--) {
        jinja_append(j, out.sequence, &capacity, jinja_part_value(j, s, begin, (size_t)at));
        begin = (size_t)at + by->n;
    }
    jinja_append(j, out.sequence, &capacity, jinja_part_value(j, s, begin, s->n));
    return out;
}

/* The parts of rsplit, the last one first. */
static void split_from_end(jinja *j, const jinja_string *s, const jinja_string *by, int64_t most,
                           jinja_sequence *out) {
    size_t capacity = 0, end = s->n, before;
    for (; most != 0; most--) {
        int64_t at;
        size_t begin;
        if (by) {
            at = jinja_search_last(s, by, end);
            if (at < 0) break;
            begin = (size_t)at + by->n;
            jinja_step(j, hd_capped_mul((end - begin) / 16 + 1, by->n / 64 + 1));
        } else {
            while (end > 0 && jinja_is_space(jinja_before(s->at, end, &before)))
                end = before;
            if (end == 0) return;
            for (begin = end; begin > 0 && !jinja_is_space(jinja_before(s->at, begin, &before));)
                begin = before;
            at = (int64_t)begin;
        }
        jinja_append(j, out, &capacity, jinja_part_value(j, s, begin, end));
        end = (size_t)at;
    }
    if (!by) {
        while (end > 0 && jinja_is_space(jinja_before(s->at, end, &before)))
            end = before;
        if (end == 0) return;
    }
    jinja_append(j, out, &capacity, jinja_part_value(j, s, 0, end));
}

METHOD_FN(rsplit) { /* sep maxsplit */
    UNUSED;
    const jinja_string *s = v.string, *by = optional_string(j, a[0], "the separator");
    if (by && by->n == 0) jinja_fail(j, "rsplit: the separator is empty");
    jinja_value out = jinja_list(j, SEQ_LIST, 0);
    jinja_step(j, s->n / 16);
    split_from_end(j, s, by, optional_int(j, a[1], -1), out.sequence);
    for (size_t i = 0; i < out.sequence->n / 2; i++) {
        const jinja_value one = out.sequence->at[i];
        out.sequence->at[i] = out.sequence->at[out.sequence->n - 1 - i];
        out.sequence->at[out.sequence->n - 1 - i] = one;
    }
    return out;
}

static jinja_value partitioned(jinja *j, jinja_value v, jinja_value by, bool last) {
    const jinja_string *s = v.string, *part = string_at(j, by, "the separator");
    jinja_value out = jinja_list(j, SEQ_TUPLE, 3);
    if (part->n == 0) jinja_fail(j, "partition: the separator is empty");
    jinja_step(j, hd_capped_mul(s->n / 16 + 1, part->n / 64 + 1));
    const int64_t at = last ? jinja_search_last(s, part, s->n) : jinja_search(s, part, 0);
    const size_t begin = at >= 0 ? (size_t)at
                         : last  ? 0
                                 : s->n,
                 end = at >= 0 ? begin + part->n : begin;
    out.sequence->at[0] = jinja_part_value(j, s, 0, begin);
    out.sequence->at[1] = jinja_part_value(j, s, begin, end);
    out.sequence->at[2] = jinja_part_value(j, s, end, s->n);
    return out;
}

METHOD_FN(partition) {
    UNUSED;
    return partitioned(j, v, a[0], false);
}
METHOD_FN(rpartition) {
    UNUSED;
    return partitioned(j, v, a[0], true);
}
METHOD_FN(splitlines) { /* keepends */
    UNUSED;
    return jinja_lines(j, v.string, jinja_true(a[0]));
}
METHOD_FN(join) {
    UNUSED;
    const jinja_value e = jinja_elements(j, a[0]);
    jinja_output out = {0};
    for (size_t i = 0; i < e.sequence->n; i++) {
        if (i) jinja_put(j, &out, v.string);
        jinja_put(j, &out, string_at(j, e.sequence->at[i], "each item of join"));
    }
    return jinja_of(jinja_taken(j, &out));
}
METHOD_FN(replace) { /* old! new! count */
    UNUSED;
    return jinja_replaced(j, v.string, string_at(j, a[0], "what is replaced"),
                          string_at(j, a[1], "what replaces it"), optional_int(j, a[2], -1));
}
METHOD_FN(format) {
    UNUSED;
    return jinja_braces(j, v.string, all);
}

/* ---- padding --------------------------------------------------------------------------------- */

static jinja_value padded(jinja *j, jinja_value v, const jinja_value *a, int side) {
    static const jinja_string blank = {" ", 1, NULL, false};
    const jinja_string *s = v.string, *fill = optional_string(j, a[1], "what fills");
    const int64_t width = jinja_integer(j, a[0], "the width"), n = (int64_t)jinja_characters(s);
    if (fill && jinja_characters(fill) != 1) jinja_fail(j, "what fills must be one character");
    if (width <= n) return v;
    const int64_t more = width - n, left = side < 0   ? 0
                                           : side > 0 ? more
                                                      : more / 2 + (more & width & 1);
    jinja_output out = {0};
    jinja_step(j, (uint64_t)more);
    for (int64_t i = 0; i < more; i++) {
        if (i == left) jinja_put(j, &out, s);
        jinja_put(j, &out, fill ? fill : &blank);
    }
    if (left == more) jinja_put(j, &out, s);
    return jinja_of(jinja_taken(j, &out));
}

METHOD_FN(ljust) {
    UNUSED;
    return padded(j, v, a, -1);
}
METHOD_FN(rjust) {
    UNUSED;
    return padded(j, v, a, 1);
}
METHOD_FN(center) {
    UNUSED;
    return padded(j, v, a, 0);
}
METHOD_FN(zfill) {
    UNUSED;
    const jinja_string *s = v.string;
    const size_t sign = s->n && (s->at[0] == '-' || s->at[0] == '+');
    const jinja_value digits = jinja_part_value(j, s, sign, s->n),
                      b[] = {jinja_int(jinja_integer(j, a[0], "the width") - (int64_t)sign),
                             jinja_literal(j, "0")};
    return jinja_operate(j, OPERATOR('+', 0), jinja_part_value(j, s, 0, sign),
                         padded(j, digits, b, 1));
}

/* ---- classes of characters ------------------------------------------------------------------- */

typedef bool character_class(uint32_t c);

static bool is_decimal(uint32_t c) {
    return c >= '0' && c <= '9';
}
static bool is_ascii_letter(uint32_t c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool is_alphabetic(uint32_t c) {
    return c < 0x80 ? is_ascii_letter(c) : is_word_character(c) && !jinja_is_space(c);
}
static bool is_alphanumeric(uint32_t c) {
    return is_alphabetic(c) || is_decimal(c);
}

static jinja_value all_are(jinja *j, const jinja_string *s, character_class *is) {
    jinja_step(j, s->n / 8);
    for (size_t i = 0; i < s->n; i += (size_t)hd_utf8(s->at + i, s->n - i))
        if (!is(hd_utf8_code(s->at + i))) return jinja_bool(false);
    return jinja_bool(s->n > 0);
}

METHOD_FN(isdigit_) {
    UNUSED;
    return all_are(j, v.string, is_decimal);
}
METHOD_FN(isalpha_) {
    UNUSED;
    return all_are(j, v.string, is_alphabetic);
}
METHOD_FN(isalnum_) {
    UNUSED;
    return all_are(j, v.string, is_alphanumeric);
}
METHOD_FN(isspace_) {
    UNUSED;
    return all_are(j, v.string, jinja_is_space);
}

/* Has the string letters with a case, all of this one? */
static jinja_value is_cased(jinja *j, jinja_value v, jinja_case to) {
    const jinja_value same = jinja_cased(j, v.string, to),
                      other = jinja_cased(j, v.string, to == CASE_UPPER ? CASE_LOWER : CASE_UPPER);
    return jinja_bool(jinja_equal(j, v, same) && !jinja_equal(j, v, other));
}

METHOD_FN(isupper_) {
    UNUSED;
    return is_cased(j, v, CASE_UPPER);
}
METHOD_FN(islower_) {
    UNUSED;
    return is_cased(j, v, CASE_LOWER);
}

/* ---- dicts and lists ------------------------------------------------------------------------- */

METHOD_FN(items) {
    UNUSED;
    return jinja_items(j, v, SEQ_VIEW);
}
METHOD_FN(keys) {
    UNUSED;
    jinja_value out = jinja_list(j, SEQ_VIEW, v.dict->n);
    if (v.dict->n) memcpy(out.sequence->at, v.dict->keys, v.dict->n * sizeof v);
    return out;
}
METHOD_FN(values) {
    UNUSED;
    jinja_value out = jinja_list(j, SEQ_VIEW, v.dict->n);
    if (v.dict->n) memcpy(out.sequence->at, v.dict->values, v.dict->n * sizeof v);
    return out;
}
METHOD_FN(get) { /* key! default */
    UNUSED;
    const jinja_value *got = jinja_find(j, v.dict, a[0]);
    return got ? *got : a[1].kind == J_ABSENT ? jinja_none() : a[1];
}
METHOD_FN(copy_dict) {
    UNUSED;
    jinja_value out = jinja_new_dict(j);
    for (size_t i = 0; i < v.dict->n; i++)
        jinja_assign(j, out.dict, v.dict->keys[i], v.dict->values[i]);
    return out;
}
METHOD_FN(copy_list) {
    UNUSED;
    return jinja_operate(j, OPERATOR('*', 0), v, jinja_int(1));
}
METHOD_FN(index_of) {
    UNUSED;
    jinja_step(j, v.sequence->n);
    for (size_t i = 0; i < v.sequence->n; i++)
        if (jinja_equal(j, v.sequence->at[i], a[0])) return jinja_int((int64_t)i);
    jinja_fail(j, "index: the item is not there");
}
METHOD_FN(count_of) {
    UNUSED;
    int64_t n = 0;
    jinja_step(j, v.sequence->n);
    for (size_t i = 0; i < v.sequence->n; i++)
        n += jinja_equal(j, v.sequence->at[i], a[0]);
    return jinja_int(n);
}

/* ---- loops ----------------------------------------------------------------------------------- */

METHOD_FN(cycle) {
    UNUSED;
    if (all->n == 0) jinja_fail(j, "cycle: there are no items");
    return all->at[v.loop->i % all->n];
}
METHOD_FN(changed) {
    UNUSED;
    jinja_value now = jinja_list(j, SEQ_TUPLE, all->n);
    if (all->n) memcpy(now.sequence->at, all->at, all->n * sizeof v);
    const bool same = v.loop->changed.kind != J_ABSENT && jinja_equal(j, v.loop->changed, now);
    v.loop->changed = now;
    return jinja_bool(!same);
}

static const jinja_builtin of_strings[] = {
    {"capitalize", capitalize, ""},
    {"casefold", lower, ""},
    {"center", center, "width! fillchar"},
    {"count", count, "sub! start end"},
    {"endswith", endswith, "suffix!"},
    {"find", find, "sub! start end"},
    {"format", format, "*"},
    {"index", index_, "sub! start end"},
    {"isalnum", isalnum_, ""},
    {"isalpha", isalpha_, ""},
    {"isdecimal", isdigit_, ""},
    {"isdigit", isdigit_, ""},
    {"islower", islower_, ""},
    {"isnumeric", isdigit_, ""},
    {"isspace", isspace_, ""},
    {"isupper", isupper_, ""},
    {"join", join, "iterable!"},
    {"ljust", ljust, "width! fillchar"},
    {"lower", lower, ""},
    {"lstrip", lstrip, "chars"},
    {"partition", partition, "sep!"},
    {"removeprefix", removeprefix, "prefix!"},
    {"removesuffix", removesuffix, "suffix!"},
    {"replace", replace, "old! new! count"},
    {"rfind", rfind, "sub! start end"},
    {"rindex", rindex_, "sub! start end"},
    {"rjust", rjust, "width! fillchar"},
    {"rpartition", rpartition, "sep!"},
    {"rsplit", rsplit, "sep maxsplit"},
    {"rstrip", rstrip, "chars"},
    {"split", split, "sep maxsplit"},
    {"splitlines", splitlines, "keepends"},
    {"startswith", startswith, "prefix!"},
    {"strip", strip, "chars"},
    {"swapcase", swapcase, ""},
    {"title", title, ""},
    {"upper", upper, ""},
    {"zfill", zfill, "width!"},
};

static const jinja_builtin of_dicts[] = {
    {"copy", copy_dict, ""}, {"get", get, "key! default"}, {"items", items, ""},
    {"keys", keys, ""},      {"values", values, ""},
};

static const jinja_builtin of_lists[] = {
    {"copy", copy_list, ""},
    {"count", count_of, "value!"},
    {"index", index_of, "value!"},
};

static const jinja_builtin of_loops[] = {{"changed", changed, "*"}, {"cycle", cycle, "*"}};

static const char *const changing_lists[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"},
                         *const changing_dicts[] = {"clear", "pop", "popitem", "setdefault",
                                                    "update"};

static void find_unsafe(const char *const *names, size_t n, const jinja_string *name,
                        const char **unsafe) {
    for (size_t i = 0; i < n; i++)
        if (strlen(names[i]) == name->n && memcmp(names[i], name->at, name->n) == 0)
            *unsafe = names[i];
}

#define IN(table) table, sizeof(table) / sizeof *(table), name
const jinja_builtin *jinja_method(jinja_value v, const jinja_string *name, const char **unsafe) {
    switch (v.kind) {
    case J_STRING: return jinja_find_builtin(IN(of_strings));
    case J_DICT: find_unsafe(IN(changing_dicts), unsafe); return jinja_find_builtin(IN(of_dicts));
    case J_LOOP: return jinja_find_builtin(IN(of_loops));
    case J_SEQUENCE:
        if (v.sequence->kind > SEQ_TUPLE) return NULL;
        if (v.sequence->kind == SEQ_LIST) find_unsafe(IN(changing_lists), unsafe);
        return jinja_find_builtin(IN(of_lists));
    default: return NULL;
    }
}

/* ---- functions ------------------------------------------------------------------------------- */

METHOD_FN(range) {
    UNUSED;
    enum { MOST = 100000 }; /* as in Jinja's sandbox */
    const int64_t first = jinja_integer(j, a[0], "the argument of range"),
                  begin = a[1].kind == J_ABSENT ? 0 : first,
                  end =
                      a[1].kind == J_ABSENT ? first : jinja_integer(j, a[1], "the end of a range"),
                  step = a[2].kind == J_ABSENT ? 1 : jinja_integer(j, a[2], "the step of a range");
    if (step == 0) jinja_fail(j, "the step of a range is 0");
    jinja_value out = jinja_list(j, SEQ_LIST, 0);
    size_t capacity = 0;
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
        if (out.sequence->n == MOST) jinja_fail(j, "a range has more than %d numbers", MOST);
        jinja_append(j, out.sequence, &capacity, jinja_int(i));
        if (__builtin_add_overflow(i, step, &i)) break;
    }
    jinja_step(j, out.sequence->n);
    return out;
}

static void fill(jinja *j, jinja_dict *d, const jinja_arguments *all) {
    if (all->n > 1) jinja_fail(j, "dict and namespace take one argument without a name");
    if (all->n == 1 && all->at[0].kind == J_DICT) {
        for (size_t i = 0; i < all->at[0].dict->n; i++)
            jinja_assign(j, d, all->at[0].dict->keys[i], all->at[0].dict->values[i]);
    } else if (all->n == 1) {
        const jinja_value e = jinja_elements(j, all->at[0]);
        for (size_t i = 0; i < e.sequence->n; i++) {
            const jinja_value pair = jinja_elements(j, e.sequence->at[i]);
            if (pair.sequence->n != 2) jinja_fail(j, "a dict is made of pairs");
            jinja_assign(j, d, pair.sequence->at[0], pair.sequence->at[1]);
        }
    }
    for (size_t i = 0; i < all->n_named; i++)
        jinja_assign(j, d, jinja_of(all->names[i]), all->named[i]);
}

METHOD_FN(dict) {
    UNUSED;
    jinja_value out = jinja_new_dict(j);
    fill(j, out.dict, all);
    return out;
}

METHOD_FN(namespace_) {
    UNUSED;
    jinja_value out = jinja_new_dict(j);
    out.kind = J_NAMESPACE;
    fill(j, out.dict, all);
    for (size_t i = 0; i < out.dict->n; i++)
        if (out.dict->keys[i].kind == J_STRING && out.dict->keys[i].string->n &&
            out.dict->keys[i].string->at[0] == '_')
            jinja_fail(j, "members of a namespace must not begin with '_'");
    return out;
}

METHOD_FN(raise_exception) {
    UNUSED;
    const jinja_string *s = jinja_str(j, a[0]);
    j->error->raised = true;
    j->error->message = hd_strndup(j->arena, s->at, s->n);
    jinja_fail(j, "raised");
}

METHOD_FN(strftime_now) {
    UNUSED;
    const jinja_string *format_of = string_at(j, a[0], "the format of a time");
    char text[1024];
    if (!j->in->now) jinja_fail(j, "there is no clock here");
    if (format_of->n > 200) jinja_fail(j, "the format of a time has more than 200 bytes");
    const size_t n = strftime(text, sizeof text, jinja_chars(j, format_of), j->in->now);
    return jinja_text(j, text, n, jinja_content(format_of));
}

METHOD_FN(joined_after) { /* the call of a joiner: nothing the first time */
    UNUSED;
    jinja_value *state = v.sequence->at;
    if (state[0].truth) return state[1];
    state[0] = jinja_bool(true);
    return jinja_literal(j, "");
}

METHOD_FN(joiner) {
    UNUSED;
    static const jinja_builtin after = {"joiner", joined_after, ""};
    jinja_callable *f = jinja_alloc(j, 1, sizeof *f);
    *f = (jinja_callable){.builtin = &after, .self = jinja_list(j, SEQ_LIST, 2)};
    f->self.sequence->at[0] = jinja_bool(false);
    f->self.sequence->at[1] = a[0].kind == J_ABSENT ? jinja_literal(j, ", ") : a[0];
    return (jinja_value){.kind = J_CALLABLE, .callable = f};
}

static const jinja_builtin functions[] = {
    {"dict", dict, "*"},
    {"joiner", joiner, "sep"},
    {"namespace", namespace_, "*"},
    {"raise_exception", raise_exception, "message!"},
    {"range", range, "start! stop step"},
    {"strftime_now", strftime_now, "format!"},
};

const jinja_builtin *jinja_global(const jinja_string *name) {
    return jinja_find_builtin(IN(functions));
}
