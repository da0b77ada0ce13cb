/* Growing text, shortest decimals, quoting, and the nearest of several words. */
#include "support/text.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hd_text_init(hd_text *t, hd_arena *a) {
    *t = (hd_text){.arena = a};
}

/* Makes space for n more bytes and a NUL. */
static char *reserve(hd_text *t, size_t n) {
    size_t wanted;
    if (hd_add_overflow(t->n, n, &wanted) || hd_add_overflow(wanted, (size_t)1, &wanted))
        wanted = SIZE_MAX; /* hd_alloc rejects this size */
    if (wanted > t->cap) {
        size_t cap = t->cap ? t->cap : 64;
        while (cap < wanted)
            cap = cap > SIZE_MAX / 2 ? SIZE_MAX : cap * 2;
        char *grown = hd_alloc(t->arena, cap, 1);
        if (t->n) memcpy(grown, t->at, t->n);
        t->at = grown;
        t->cap = cap;
    }
    return t->at + t->n;
}

void hd_text_add_n(hd_text *t, const char *s, size_t n) {
    char *to = reserve(t, n);
    if (n) memcpy(to, s, n);
    to[n] = '\0';
    t->n += n;
}

void hd_text_add(hd_text *t, const char *s) {
    hd_text_add_n(t, s, strlen(s));
}

/* Bytes that are not UTF-8, which a path may contain, are replaced as decoders replace them: by
 * U+FFFD. */
void hd_text_add_json(hd_text *t, const char *s) {
    size_t left = strlen(s);
    hd_text_add(t, "\"");
    while (left > 0) {
        const int bytes = hd_utf8(s, left);
        const size_t n = bytes > 0 ? (size_t)bytes : bytes < 0 ? (size_t)-bytes : left;
        if (bytes <= 0)
            hd_text_add(t, "\\ufffd");
        else if (*s == '"' || *s == '\\')
            hd_text_f(t, "\\%c", *s);
        else if ((unsigned char)*s < 0x20)
            hd_text_f(t, "\\u%04x", (unsigned)*s);
        else
            hd_text_add_n(t, s, n);
        s += n, left -= n;
    }
    hd_text_add(t, "\"");
}

void hd_text_f(hd_text *t, const char *format, ...) {
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format ? format : "(null)", args);
    if (n >= 0) {
        vsnprintf(reserve(t, (size_t)n), (size_t)n + 1, format, again);
        t->n += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

/* ---- UTF-8 ----------------------------------------------------------------------------------- */

uint32_t hd_utf8_code(const char *text) {
    const uint8_t c = (uint8_t)text[0];
    if (c < 0x80) return c;
    const int bytes = c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    uint32_t code = c & (0xffu >> (bytes + 1));
    for (int i = 1; i < bytes; i++)
        code = code << 6 | ((uint8_t)text[i] & 0x3f);
    return code;
}

size_t hd_utf8_put(uint32_t code, char *out) {
    const size_t bytes = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = bytes; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(marks[bytes] | code);
    return bytes;
}

/* ---- numbers ------------------------------------------------------------------------------- */
/* The C locale object costs nothing in glibc and musl; if it is not available, the thread's own
 * locale is used, which differs in the decimal point at most. */
static locale_t c_locale(void) {
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static void drop_locale(locale_t c) {
    if (c) freelocale(c);
}

bool hd_read_double(const char *s, size_t n, double *out) {
    char copy[512], *end;
    if (n == 0 || n >= sizeof copy) return false;
    memcpy(copy, s, n);
    copy[n] = '\0';
    locale_t c = c_locale();
    *out = c ? strtod_l(copy, &end, c) : strtod(copy, &end);
    drop_locale(c);
    return end == copy + n;
}

/* The shortest digits d and the exponent e with value = 0.d * 10^(e+1) = d[0].d[1].. * 10^e. */
static int shortest_digits(double value, char digits[32], int *exponent) {
    char buffer[64];
    for (int precision = 0; precision <= 16; precision++) {
        snprintf(buffer, sizeof buffer, "%.*e", precision, value);
        if (precision == 16 || strtod(buffer, NULL) == value) break;
    }
    int n = 0;
    const char *p = buffer;
    for (; *p && *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    *exponent = *p ? (int)strtol(p + 1, NULL, 10) : 0;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = '\0';
    return n;
}

/* Without an exponent for 1e-4 <= |value| < 1e16; elsewhere with one of at least two digits: 1e-06.
 */
void hd_text_double(hd_text *t, double value) {
    if (isnan(value)) {
        hd_text_add(t, "nan");
        return;
    }
    if (signbit(value)) {
        hd_text_add(t, "-");
        value = -value;
    }
    if (isinf(value) || value == 0) {
        hd_text_add(t, value == 0 ? "0" : "inf");
        return;
    }
    char digits[32];
    int exponent;
    locale_t c = c_locale(), outer = uselocale(c);
    int n = shortest_digits(value, digits, &exponent);
    uselocale(outer);
    drop_locale(c);
    if (exponent < -4 || exponent >= 16) {
        hd_text_add_n(t, digits, 1);
        if (n > 1) hd_text_f(t, ".%s", digits + 1);
        hd_text_f(t, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        hd_text_f(t, "0.%.*s%s", -exponent - 1, "0000", digits);
    } else if (n <= exponent + 1) {
        hd_text_f(t, "%s%.*s", digits, exponent + 1 - n, "0000000000000000");
    } else {
        hd_text_f(t, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    }
}

/* ---- strings ------------------------------------------------------------------------------- */
void hd_text_quoted(hd_text *t, const char *s) {
    hd_text_add(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            hd_text_f(t, "\\%c", c);
        else if (c == '\n')
            hd_text_add(t, "\\n");
        else if (c == '\t')
            hd_text_add(t, "\\t");
        else if (c < 0x20 || c == 0x7f)
            hd_text_f(t, "\\x%02x", c);
        else
            hd_text_add_n(t, s, 1);
    }
    hd_text_add(t, "\"");
}

enum { LONGEST_WORD = 63 };

/* Optimal string alignment distance: insertions, deletions, substitutions, swaps of neighbours. */
static size_t edit_distance(const char *x, size_t nx, const char *y, size_t ny) {
    size_t rows[3][LONGEST_WORD + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    for (size_t j = 0; j <= ny; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= nx; i++) {
        row[0] = i;
        for (size_t j = 1; j <= ny; j++) {
            size_t best = last[j - 1] +
                          (tolower((unsigned char)x[i - 1]) != tolower((unsigned char)y[j - 1]));
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            if (i > 1 && j > 1 && x[i - 1] == y[j - 2] && x[i - 2] == y[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        size_t *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[ny];
}

const char *hd_nearest(const char *word, const char *const *candidates, size_t n) {
    return hd_nearest_within(word, candidates, n, SIZE_MAX);
}

const char *hd_nearest_within(const char *word, const char *const *candidates, size_t n,
                              size_t most) {
    size_t length = strlen(word), best = (length / 3 < most ? length / 3 : most) + 1;
    const char *nearest = NULL;
    if (length > LONGEST_WORD) return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t other = candidates[i] ? strlen(candidates[i]) : SIZE_MAX;
        if (other > LONGEST_WORD || strcmp(word, candidates[i]) == 0) continue;
        size_t distance = edit_distance(word, length, candidates[i], other);
        if (distance < best) {
            best = distance;
            nearest = candidates[i];
        }
    }
    return nearest;
}

bool hd_begins_with(const char *text, const char *beginning) {
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

bool hd_ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

size_t hd_shared_components(const char *a, size_t n, const char *b) {
    size_t end = 0, i = 0;
    for (; i < n && a[i] == b[i] && b[i]; i++)
        if (a[i] == '.') end = i;
    if (i == n && (b[i] == '.' || !b[i])) end = n;
    return end;
}

size_t hd_layer_length(const char *name) {
    for (const char *at = name; *at;) {
        const size_t n = strcspn(at, ".,"); /* a pass follows after a comma */
        if (*at >= '0' && *at <= '9') return (size_t)(at - name) + n;
        at += n;
        if (*at == ',') break;
        at += *at == '.';
    }
    return 0;
}

/* ---- sizes ----------------------------------------------------------------------------------- */
uint64_t hd_read_size(const char *text, size_t n) {
    static const char units[] = "KMG";
    const char *unit = n > 1 ? memchr(units, text[n - 1], 3) : NULL;
    uint64_t value = 0;
    if (unit) n--;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9') return 0;
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value))
            return 0;
    }
    const int shift = unit ? 10 * (int)(unit - units + 1) : 0;
    return value > UINT64_MAX >> shift ? 0 : value << shift;
}

void hd_text_add_size(hd_text *out, uint64_t size) {
    static const char *const units[] = {"", "K", "M", "G"};
    size_t unit = 0;
    while (unit < 3 && size >= 1024 && size % 1024 == 0)
        size /= 1024, unit++;
    hd_text_f(out, "%llu%s", (unsigned long long)size, units[unit]);
}
