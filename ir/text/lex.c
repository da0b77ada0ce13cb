/* Characters to tokens. Comments run from `;` to the end of the line. */
#include "ir/text/lex.h"

#include <string.h>

#include "ir/text/text.h"

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

hir_lexer hir_lexer_on(hd_arena *a, hd_diags *d, const char *file, const char *text) {
    return (hir_lexer){a, d, file, text, text, 1, false};
}

static hd_loc loc_from(const hir_lexer *lx, const char *start) {
    return (hd_loc){lx->file, lx->line, (uint32_t)(start - lx->line_start) + 1,
                    (uint32_t)(lx->p - lx->line_start) + 1, NULL};
}

static hir_token token(const hir_lexer *lx, hir_token_kind kind, const char *start,
                       const char *text) {
    return (hir_token){.kind = kind, .text = text, .loc = loc_from(lx, start)};
}

static hir_token text_token(hir_lexer *lx, hir_token_kind kind, const char *start,
                            const char *from) {
    return token(lx, kind, start, hd_strndup(lx->arena, from, (size_t)(lx->p - from)));
}

static hir_token bad(hir_lexer *lx, const char *start, const char *message, const char *hint) {
    hir_token t = token(lx, HIR_TOK_BAD, start, "");
    if (!lx->quiet) hd_err(lx->d, HD_E_SYNTAX, t.loc, "%s", message)->hint = hint;
    return t;
}

static int hex_value(char c) {
    if (is_digit(c)) return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The character that an escape stands for, after the backslash; 0 if it is not an escape. */
static char escape(hir_lexer *lx) {
    char c = *lx->p;
    if (c) lx->p++;
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case '"':
    case '\\': return c;
    case 'x': {
        int high = hex_value(lx->p[0]), low = high < 0 ? -1 : hex_value(lx->p[1]);
        if (low < 0) return 0;
        lx->p += 2;
        return (char)(high * 16 + low);
    }
    default: return 0;
    }
}

/* "..." with escapes; lx->p is at the opening quote, `start` at the token's first byte. */
static hir_token string(hir_lexer *lx, hir_token_kind kind, const char *start) {
    hd_text out;
    hd_text_init(&out, lx->arena);
    hd_text_add(&out, "");
    lx->p++;
    while (*lx->p != '"') {
        if (!*lx->p || *lx->p == '\n')
            return bad(lx, start, "the string does not end on its line", NULL);
        char c = *lx->p++;
        if (c == '\\') {
            const char *from = lx->p - 1;
            c = escape(lx);
            if (!c)
                return bad(lx, from, "this is no escape",
                           "the escapes are \\\" \\\\ \\n \\t and \\x01 to \\xff");
        }
        hd_text_add_n(&out, &c, 1);
    }
    lx->p++;
    return token(lx, kind, start, out.at);
}

static hir_token name(hir_lexer *lx, hir_token_kind kind) {
    const char *start = lx->p++;
    if (*lx->p == '"') {
        hir_token t = string(lx, kind, start);
        t.quoted = true;
        return t;
    }
    const char *from = lx->p;
    while (hir_plain_name_char(*lx->p))
        lx->p++;
    if (lx->p == from) return bad(lx, start, "a name must follow %, @ or $", NULL);
    return text_token(lx, kind, start, from);
}

static hir_token number(hir_lexer *lx) {
    const char *start = lx->p++;
    while (is_digit(*lx->p) || is_letter(*lx->p) || *lx->p == '.' ||
           ((*lx->p == '-' || *lx->p == '+') && (lx->p[-1] | 0x20) == 'e'))
        lx->p++;
    return text_token(lx, HIR_TOK_NUMBER, start, start);
}

static hir_token word(hir_lexer *lx) {
    const char *start = lx->p;
    while (is_letter(*lx->p) || is_digit(*lx->p) || *lx->p == '.')
        lx->p++;
    return text_token(lx, HIR_TOK_WORD, start, start);
}

static void skip_blank(hir_lexer *lx) {
    lx->p += strspn(lx->p, " \t\r");
    if (*lx->p == ';') lx->p += strcspn(lx->p, "\n");
}

hir_token hir_next_token(hir_lexer *lx) {
    skip_blank(lx);
    const char *start = lx->p;
    char c = *start;
    if (!c) return token(lx, HIR_TOK_END, start, "");
    if (c == '\n') {
        hir_token t = token(lx, HIR_TOK_LINE, start, "");
        lx->line_start = ++lx->p;
        lx->line++;
        return t;
    }
    if (c == '"') return string(lx, HIR_TOK_STRING, start);
    if (c == '%' || c == '@' || c == '$')
        return name(lx, c == '%' ? HIR_TOK_VALUE : c == '@' ? HIR_TOK_WEIGHT : HIR_TOK_STATE);
    if (is_digit(c) || c == '-' || c == '+') return number(lx);
    if (is_letter(c)) return word(lx);
    lx->p++;
    if (strchr("()[]{}=,:*/", c)) {
        hir_token t = token(lx, HIR_TOK_PUNCT, start, hd_strndup(lx->arena, start, 1));
        t.punct = c;
        return t;
    }
    while (((unsigned char)*lx->p & 0xc0) == 0x80) /* the rest of a UTF-8 character */
        lx->p++;
    return bad(lx, start, "this character has no meaning here", NULL);
}
