/* What filters and methods do with strings. */
#include "text/jinja_text.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* ---- upper and lower case -------------------------------------------------------------------- */

static bool is_letter(uint32_t c) {
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c) != c ||
           (uint32_t)utf8proc_tolower((utf8proc_int32_t)c) != c;
}

static uint32_t upper(uint32_t c) {
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)c);
}

static uint32_t lower(uint32_t c) {
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
}

static bool begins_word(jinja_case to, uint32_t before) {
    if (to == CASE_TITLE) return !is_letter(before);
    return jinja_is_space(before) || before == '-' || before == '(' || before == '{' ||
           before == '[' || before == '<';
}

static uint32_t cased(jinja_case to, uint32_t c, uint32_t before, bool first) {
    switch (to) {
    case CASE_UPPER: return upper(c);
    case CASE_LOWER: return lower(c);
    case CASE_SWAPPED: return upper(c) == c ? lower(c) : upper(c);
    case CASE_CAPITAL: return first ? upper(c) : lower(c);
    default: return first || begins_word(to, before) ? upper(c) : lower(c);
    }
}

jinja_value jinja_cased(jinja *j, const jinja_string *s, jinja_case to) {
    jinja_output out = {0};
    uint32_t before = ' ';
    char text[8];
    jinja_step(j, s->n / 8);
    for (size_t i = 0, n; i < s->n; i += n) {
        const uint32_t c = hd_utf8_code(s->at + i), new = cased(to, c, before, i == 0);
        n = (size_t)hd_utf8(s->at + i, s->n - i);
        jinja_string one = jinja_part(s, i, i + n);
        const bool content = jinja_content(&one);
        if (c == 0xdf && new != c) /* the one common letter whose capital is two */
            jinja_put_text(j, &out, to == CASE_UPPER || to == CASE_SWAPPED ? "SS" : "Ss", 2,
                           content);
        else
            jinja_put_text(j, &out, text, hd_utf8_put(new, text), content);
        before = c;
    }
    return jinja_of(jinja_taken(j, &out));
}

/* ---- replacing and lines --------------------------------------------------------------------- */

jinja_value jinja_replaced(jinja *j, const jinja_string *s, const jinja_string *old,
                           const jinja_string *by, int64_t most) {
    jinja_output out = {0};
    size_t from = 0;
    jinja_step(j, s->n / 64);
    for (; most != 0; most--) {
        jinja_step(j, 1);
        if (old->n == 0) { /* between all characters */
            if (from > s->n) break;
            jinja_put(j, &out, by);
            const size_t n = from < s->n ? (size_t)hd_utf8(s->at + from, s->n - from) : 1;
            if (from < s->n) {
                const jinja_string one = jinja_part(s, from, from + n);
                jinja_put(j, &out, &one);
            }
            from += n;
            continue;
        }
        const int64_t at = jinja_search(s, old, from);
        if (at < 0) break;
        const jinja_string kept = jinja_part(s, from, (size_t)at);
        jinja_put(j, &out, &kept);
        jinja_put(j, &out, by);
        from = (size_t)at + old->n;
    }
    if (from < s->n) {
        const jinja_string rest = jinja_part(s, from, s->n);
        jinja_put(j, &out, &rest);
    }
    return jinja_of(jinja_taken(j, &out));
}

static bool ends_line(uint32_t c) {
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

jinja_value jinja_lines(jinja *j, const jinja_string *s, bool with_ends) {
    jinja_value out = jinja_list(j, SEQ_LIST, 0);
    size_t capacity = 0, begin = 0;
    jinja_step(j, s->n / 8);
    for (size_t i = 0; i < s->n;) {
        const size_t n = (size_t)hd_utf8(s->at + i, s->n - i);
        if (!ends_line(hd_utf8_code(s->at + i))) {
            i += n;
            continue;
        }
        const size_t both = s->at[i] == '\r' && i + 1 < s->n && s->at[i + 1] == '\n';
        jinja_append(j, out.sequence, &capacity,
                     jinja_part_value(j, s, begin, with_ends ? i + n + both : i));
        i += n + both;
        begin = i;
    }
    if (begin < s->n) jinja_append(j, out.sequence, &capacity, jinja_part_value(j, s, begin, s->n));
    return out;
}

/* ---- numbers --------------------------------------------------------------------------------- */

const char *jinja_chars(jinja *j, const jinja_string *s) {
    return jinja_text(j, s->at, s->n, false).string->at;
}

/* The base that 0b, 0o or 0x at i names; 0: there is no such prefix. */
static int64_t base_of_prefix(const jinja_string *s, size_t i) {
    if (s->n < i + 2 || s->at[i] != '0') return 0;
    switch (s->at[i + 1] | 0x20) {
    case 'b': return 2;
    case 'o': return 8;
    case 'x': return 16;
    default: return 0;
    }
}

static int64_t digit_of(char c) {
    const char letter = (char)(c | 0x20);
    if (c >= '0' && c <= '9') return c - '0';
    return letter >= 'a' && letter <= 'z' ? letter - 'a' + 10 : 99;
}

/* As int of Python: a sign, the prefix of the base, digits with single underscores between them. */
bool jinja_read_int(const jinja_string *s, int64_t base, int64_t *out) {
    const jinja_string bare = jinja_strip(s, NULL, true, true);
    size_t i = bare.n && (bare.at[0] == '-' || bare.at[0] == '+');
    if (base < 2 || base > 36) return false;
    if (base_of_prefix(&bare, i) == base) {
        i += 2;
        i += i < bare.n && bare.at[i] == '_';
    }
    int64_t value = 0;
    bool after_digit = false;
    for (; i < bare.n; i++) {
        const int64_t digit = digit_of(bare.at[i]);
        if (bare.at[i] == '_' && after_digit) {
            after_digit = false;
            continue;
        }
        if (digit >= base || __builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
        after_digit = true;
    }
    *out = bare.n && bare.at[0] == '-' ? -value : value;
    return after_digit;
}

static bool is_decimal(const jinja_string *s, size_t i) {
    return i < s->n && s->at[i] >= '0' && s->at[i] <= '9';
}

/* Copies at most `most` characters of a number, without single underscores between digits. 0, and an
 * empty text: it is no number. */
static size_t copy_number(const jinja_string *s, char *out, size_t most) {
    const jinja_string bare = jinja_strip(s, NULL, true, true);
    size_t n = 0;
    for (size_t i = 0; i < bare.n; i++) {
        const char c = bare.at[i];
        if (c == '_' && i > 0 && is_decimal(&bare, i - 1) && is_decimal(&bare, i + 1)) continue;
        if (n == most || c == '_' || c == 0) {
            n = 0;
            break;
        }
        out[n++] = c;
    }
    out[n] = 0;
    return n;
}

bool jinja_read_real(const jinja_string *s, double *out) {
    static const char *const words[] = {"inf", "infinity", "nan"};
    char text[512];
    const size_t n = copy_number(s, text, sizeof text - 1), sign = text[0] == '+' || text[0] == '-';
    if (n == 0 || n == sign) return false;
    for (size_t i = sign; i < n; i++)
        if (text[i] >= 'A' && text[i] <= 'Z') text[i] |= 0x20;
    for (size_t i = 0; i < 3; i++)
        if (strcmp(text + sign, words[i]) == 0) {
            *out = strtod(text, NULL);
            return true;
        }
    if (strspn(text + sign, "0123456789.e+-") != n - sign) return false;
    char *end;
    *out = strtod(text, &end);
    return *end == 0;
}
