/* The tokens of a template: text, and between {{ }} and {% %} names, strings, numbers and
 * operators. White space around tags goes as by trim_blocks and lstrip_blocks of Jinja: the newline
 * after a block tag, and blanks before one that begins its line; with a minus sign all of it. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja_tree.h"

typedef struct lexer {
    jinja_syntax *syntax;
    token_list *out;
    const char *at; /* newlines are \n alone */
    size_t n, i;
    unsigned line;
    bool starts_line; /* the last tag ended in a newline, or there was none */
} lexer;

void jinja_reject(jinja_syntax *s, unsigned line, const char *format, ...) {
    va_list args;
    va_start(args, format);
    *s->error = (jinja_error){hd_vprintf(s->arena, format, args), line, false, false};
    va_end(args);
    longjmp(s->entry, 1);
}

/* ---- white space ----------------------------------------------------------------------------- */

static size_t space_at(const lexer *l, size_t i) {
    if (i >= l->n || !jinja_is_space(hd_utf8_code(l->at + i))) return 0;
    return (size_t)hd_utf8(l->at + i, l->n - i);
}

static void skip_space(lexer *l) {
    for (size_t k; (k = space_at(l, l->i)); l->i += k)
        l->line += l->at[l->i] == '\n';
}

static size_t stripped_end(const lexer *l, size_t begin, size_t end) {
    size_t before;
    while (end > begin && jinja_is_space(jinja_before(l->at, end, &before)))
        end = before;
    return end;
}

/* Where the text before a block tag ends: blanks of the tag's own line do not count. */
static size_t text_end(const lexer *l, size_t begin, size_t end) {
    size_t line = end;
    while (line > begin && l->at[line - 1] != '\n')
        line--;
    if (line == begin && !l->starts_line) return end;
    return stripped_end(l, line, end) == line ? line : end;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static token *push(lexer *l, token_kind kind) {
    hd_push(l->syntax->arena, l->out, ((token){.kind = kind, .line = l->line}));
    return &l->out->at[l->out->n - 1];
}

static void push_text(lexer *l, size_t begin, size_t end) {
    if (end > begin) push(l, TOKEN_TEXT)->text = (string){l->at + begin, end - begin};
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' ||
           (uint8_t)c >= 0x80;
}

static char peek(const lexer *l, size_t ahead) {
    return l->i + ahead < l->n ? l->at[l->i + ahead] : 0;
}

/* Copies digits, which may have single underscores between them. */
static void take_digits(lexer *l, hd_text *out) {
    while (is_digit(peek(l, 0)) || (peek(l, 0) == '_' && is_digit(peek(l, 1)))) {
        if (peek(l, 0) != '_') hd_text_add_n(out, l->at + l->i, 1);
        l->i++;
    }
}

static void take_number(lexer *l) {
    hd_text digits;
    hd_text_init(&digits, l->syntax->arena);
    token *t = push(l, TOKEN_INT);
    char *end;
    int base = 10;
    const char kind = peek(l, 0) == '0' ? (char)(peek(l, 1) | 0x20) : 0;
    if (kind == 'x' || kind == 'o' || kind == 'b') {
        base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
        for (l->i += 2; is_name(peek(l, 0)); l->i++)
            if (peek(l, 0) != '_') hd_text_add_n(&digits, l->at + l->i, 1);
    } else {
        take_digits(l, &digits);
    }
    if (base == 10 && peek(l, 0) == '.' && is_digit(peek(l, 1))) {
        t->kind = TOKEN_FLOAT;
        hd_text_add(&digits, ".");
        l->i++;
        take_digits(l, &digits);
    }
    const size_t far = peek(l, 1) == '+' || peek(l, 1) == '-' ? 2 : 1; /* to an exponent */
    if (base == 10 && (peek(l, 0) | 0x20) == 'e' && is_digit(peek(l, far))) {
        t->kind = TOKEN_FLOAT;
        hd_text_add_n(&digits, l->at + l->i, far);
        l->i += far;
        take_digits(l, &digits);
    }
    const char *text = digits.n ? digits.at : "";
    if (t->kind == TOKEN_FLOAT) {
        if (!hd_read_double(text, digits.n, &t->real))
            jinja_reject(l->syntax, l->line, "not a number: %.40s", text);
        return;
    }
    const unsigned long long value = strtoull(text, &end, base);
    if (!digits.n || *end || value > INT64_MAX)
        jinja_reject(l->syntax, l->line, "not a whole number, or too large: %.40s", text);
    t->number = (int64_t)value;
}

/* Reads `least` to `most` digits of a base; -1: there are not as many. */
static long escape_digits(const char *at, size_t n, size_t least, size_t most, long base,
                          size_t *used) {
    long v = 0;
    for (*used = 0; *used < n && *used < most; ++*used) {
        const char c = at[*used];
        const long digit = is_digit(c)                              ? c - '0'
                           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                    : 16;
        if (digit >= base) break;
        v = v * base + digit;
    }
    return *used < least ? -1 : v;
}

/* Writes what a backslash at s[0] stands for, and returns how many bytes it has. */
static size_t unescape(lexer *l, const char *s, size_t n, hd_text *out) {
    static const char plain[][2] = {"\\\\", "''",  "\"\"", "a\a", "b\b",
                                    "f\f",  "n\n", "r\r",  "t\t", "v\v"};
    const char c = n > 1 ? s[1] : 0;
    size_t used = 0;
    char code[4];
    if (c == '\n') return 2;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i][0] == c) {
            hd_text_add_n(out, &plain[i][1], 1);
            return 2;
        }
    const size_t hex = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const size_t skip = hex ? 2 : 1;
    const long v = hex ? escape_digits(s + 2, n - 2, hex, hex, 16, &used)
                       : escape_digits(s + 1, n - 1, 1, 3, 8, &used);
    if (hex && (v < 0 || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)))
        jinja_reject(l->syntax, l->line, "a string has an escape that stands for no character");
    if (c == 'N')
        jinja_reject(l->syntax, l->line, "characters by name, \\N{..}, are not known here");
    if (v < 0) {
        hd_text_add(out, "\\");
        return 1;
    }
    if (v == 0) jinja_reject(l->syntax, l->line, "a string has the character 0");
    hd_text_add_n(out, code, hd_utf8_put((uint32_t)v, code));
    return skip + used;
}

static void take_string(lexer *l) {
    const char quote = peek(l, 0);
    const size_t begin = l->i + 1;
    token *t = push(l, TOKEN_STRING);
    hd_text text;
    size_t end = begin;
    while (end < l->n && l->at[end] != quote)
        end += l->at[end] == '\\' ? 2 : 1;
    if (end >= l->n) jinja_reject(l->syntax, l->line, "a string does not end");
    hd_text_init(&text, l->syntax->arena);
    hd_text_add(&text, "");
    for (size_t i = begin; i < end;) {
        if (l->at[i] == '\\') {
            l->line += l->at[i + 1] == '\n';
            i += unescape(l, l->at + i, end - i, &text);
            continue;
        }
        l->line += l->at[i] == '\n';
        hd_text_add_n(&text, l->at + i++, 1);
    }
    t->text = (string){text.at, text.n};
    l->i = end + 1;
}

static void take_operator(lexer *l, char *brackets, size_t *depth) {
    static const char twice[][3] = {"//", "**", "==", "!=", ">=", "<="};
    const char c = peek(l, 0);
    unsigned op = strchr("+-/*%~[](){}><=.:|,;", c) && c ? OPERATOR(c, 0) : 0;
    for (size_t i = 0; i < sizeof twice / sizeof *twice; i++)
        if (twice[i][0] == c && twice[i][1] == peek(l, 1)) op = OPERATOR(c, peek(l, 1));
    if (!op)
        jinja_reject(l->syntax, l->line, "unexpected character '%c' in a tag", c < ' ' ? '?' : c);
    if (strchr("([{", c)) {
        if (*depth == JINJA_MOST_NESTING)
            jinja_reject(l->syntax, l->line, "more than %d brackets in each other",
                         JINJA_MOST_NESTING);
        brackets[(*depth)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (strchr(")]}", c)) {
        if (*depth == 0) jinja_reject(l->syntax, l->line, "unexpected '%c'", c);
        if (brackets[--*depth] != c)
            jinja_reject(l->syntax, l->line, "expected '%c', not '%c'", brackets[*depth], c);
    }
    push(l, TOKEN_OPERATOR)->op = op;
    l->i += op > 0xff ? 2 : 1;
}

/* ---- tags ------------------------------------------------------------------------------------ */

static bool looking_at(const lexer *l, size_t i, const char *text) {
    const size_t n = strlen(text);
    return i + n <= l->n && memcmp(l->at + i, text, n) == 0;
}

/* Skips what ends a tag, "%}" say, with its sign and the white space that goes with it. False: the
 * tag does not end here. */
static bool take_end(lexer *l, const char *end, bool block) {
    const char sign = peek(l, 0);
    const bool minus = sign == '-' && looking_at(l, l->i + 1, end),
               plus = block && sign == '+' && looking_at(l, l->i + 1, end);
    if (!minus && !plus && !looking_at(l, l->i, end)) return false;
    l->i += minus || plus ? 3 : 2;
    if (minus)
        skip_space(l);
    else if (block && !plus && peek(l, 0) == '\n')
        l->i++, l->line++;
    l->starts_line = l->at[l->i - 1] == '\n';
    return true;
}

/* The tokens of a tag up to its end. */
static void take_tag(lexer *l, bool block) {
    char brackets[JINJA_MOST_NESTING];
    size_t depth = 0;
    while (l->i < l->n) {
        if (depth == 0 && take_end(l, block ? "%}" : "}}", block)) {
            push(l, block ? TOKEN_BLOCK_END : TOKEN_OUTPUT_END);
            return;
        }
        const char c = peek(l, 0);
        if (space_at(l, l->i)) {
            skip_space(l);
        } else if (is_digit(c)) {
            take_number(l);
        } else if (is_name(c)) {
            const size_t begin = l->i;
            token *t = push(l, TOKEN_NAME);
            while (is_name(peek(l, 0)))
                l->i++;
            t->text = (string){l->at + begin, l->i - begin};
        } else if (c == '"' || c == '\'') {
            take_string(l);
        } else {
            take_operator(l, brackets, &depth);
        }
    }
    jinja_reject(l->syntax, l->line, "the template ends within a tag");
}

static void take_comment(lexer *l) {
    const unsigned line = l->line;
    for (; l->i < l->n; l->i++) {
        if (take_end(l, "#}", true)) return;
        l->line += l->at[l->i] == '\n';
    }
    jinja_reject(l->syntax, line, "a comment does not end");
}

/* Does a tag of one word begin at i? Returns the place after the word; 0: it does not. */
static size_t word_tag(const lexer *l, size_t i, const char *word) {
    if (!looking_at(l, i, "{%")) return 0;
    i += 2;
    i += i < l->n && (l->at[i] == '-' || l->at[i] == '+');
    for (size_t k; (k = space_at(l, i));)
        i += k;
    if (!looking_at(l, i, word)) return 0;
    i += strlen(word);
    for (size_t k; (k = space_at(l, i));)
        i += k;
    const size_t sign = i < l->n && (l->at[i] == '-' || l->at[i] == '+');
    return looking_at(l, i + sign, "%}") ? i : 0;
}

/* The text of {% raw %}, after its first tag. */
static void take_raw(lexer *l) {
    const unsigned line = l->line;
    const size_t begin = l->i;
    size_t end = l->i, after = 0;
    while (end < l->n && !(after = word_tag(l, end, "endraw")))
        end++;
    if (!after) jinja_reject(l->syntax, line, "{%% raw %%} does not end");
    const char sign = l->at[end + 2];
    push_text(l, begin,
              sign == '-'   ? stripped_end(l, begin, end)
              : sign == '+' ? end
                            : text_end(l, begin, end));
    for (size_t i = begin; i < after; i++)
        l->line += l->at[i] == '\n';
    l->i = after;
    (void)take_end(l, "%}", true);
}

static void take_all(lexer *l) {
    while (l->i < l->n) {
        const size_t begin = l->i;
        size_t tag = begin;
        while (tag < l->n && !looking_at(l, tag, "{{") && !looking_at(l, tag, "{%") &&
               !looking_at(l, tag, "{#"))
            tag++;
        for (size_t i = begin; i < tag; i++)
            l->line += l->at[i] == '\n';
        if (tag == l->n) {
            push_text(l, begin, l->n);
            return;
        }
        const char kind = l->at[tag + 1], sign = tag + 2 < l->n ? l->at[tag + 2] : 0;
        const size_t raw = word_tag(l, tag, "raw");
        push_text(l, begin,
                  sign == '-'                  ? stripped_end(l, begin, tag)
                  : sign == '+' || kind == '{' ? tag
                                               : text_end(l, begin, tag));
        l->i = tag + 2 + (sign == '-' || sign == '+');
        if (kind == '#') {
            take_comment(l);
        } else if (raw) {
            for (size_t i = tag; i < raw; i++)
                l->line += l->at[i] == '\n';
            l->i = raw + (l->at[raw] != '%') + 2;
            if (l->at[raw] == '-') skip_space(l);
            l->starts_line = l->at[l->i - 1] == '\n';
            take_raw(l);
        } else {
            push(l, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_OUTPUT_BEGIN);
            take_tag(l, kind == '%');
        }
    }
}

/* Copies the source with \n for \r\n and \r, and without a newline at its end. */
static string plain_newlines(hd_arena *a, const char *source, size_t n) {
    char *out = hd_alloc(a, n + 1, 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (source[i] == '\r' && i + 1 < n && source[i + 1] == '\n') continue;
        out[k++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (k && out[k - 1] == '\n') k--;
    out[k] = 0;
    return (string){out, k};
}

void jinja_lex(jinja_syntax *s, const char *source, size_t n, token_list *out) {
    const string text = plain_newlines(s->arena, source, n);
    lexer l = {.syntax = s, .out = out, .at = text.at, .n = text.n, .line = 1, .starts_line = true};
    take_all(&l);
    push(&l, TOKEN_END);
}
