/* From text to tokens.
 *
 * Ends of lines are tokens only where a statement can end: not inside ( ) and [ ], and not after an
 * operator, a comma or an opening brace. A string is one token; the parser reads its escapes and
 * the expressions in it. */
#include "frontend/language/lexer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
    hfe_program *p;
    const char *at, *end, *line_start;
    hd_loc loc; /* file and line; columns are counted from line_start */
    uint32_t first_column;
    hfe_tokens *out;
    HD_VEC(char) open; /* brackets that are still open */
} lexer;

static const struct {
    const char *word;
    hfe_token_kind kind;
} keywords[] = {
#define K(id, word) {word, HFE_K_##id},
    HFE_KEYWORDS(K)
#undef K
};

static const struct {
    const char *text;
    hfe_token_kind kind;
} punctuation[] = {
#define P(id, text) {text, HFE_P_##id},
    HFE_PUNCTUATION(P)
#undef P
};

const char *hfe_token_name(hfe_token_kind kind) {
    switch (kind) {
    case HFE_T_END: return "the end of the file";
    case HFE_T_LINE: return "the end of the line";
    case HFE_T_NAME: return "a name";
    case HFE_T_INT:
    case HFE_T_FLOAT: return "a number";
    case HFE_T_STRING: return "a string";
#define K(id, word)                                                                                \
    case HFE_K_##id: return "'" word "'";
        HFE_KEYWORDS(K)
#undef K
#define P(id, text)                                                                                \
    case HFE_P_##id: return "'" text "'";
        HFE_PUNCTUATION(P)
#undef P
    default: return "this";
    }
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static uint32_t column_of(const lexer *l, const char *at) {
    return l->first_column + (uint32_t)(at - l->line_start);
}

static hd_loc range(const lexer *l, const char *from, const char *to) {
    hd_loc loc = l->loc;
    loc.column = column_of(l, from);
    loc.end_column = column_of(l, to);
    return loc;
}

static hfe_token *emit(lexer *l, hfe_token_kind kind, const char *from) {
    hfe_token t = {.kind = kind, .loc = range(l, from, l->at), .begin = from, .end = l->at};
    hd_push(l->p->arena, &l->out->list, t);
    return &l->out->list.at[l->out->list.n - 1];
}

/* True if a statement can end after this token. */
static bool ends_statement(hfe_token_kind kind) {
    switch (kind) {
    case HFE_T_NAME:
    case HFE_T_INT:
    case HFE_T_FLOAT:
    case HFE_T_STRING:
    case HFE_T_BAD:
    case HFE_K_TRUE:
    case HFE_K_FALSE:
    case HFE_K_NONE:
    case HFE_K_RETURN:
    case HFE_K_OUTPUT:
    case HFE_P_RPAREN:
    case HFE_P_RBRACKET:
    case HFE_P_RBRACE: return true;
    default: return false;
    }
}

static void end_line(lexer *l, const char *from) {
    bool inside = l->open.n > 0 && l->open.at[l->open.n - 1] != '{';
    if (!inside && l->out->list.n > 0 && ends_statement(l->out->list.at[l->out->list.n - 1].kind))
        emit(l, HFE_T_LINE, from);
}

static void lex_name(lexer *l) {
    const char *from = l->at;
    while (l->at < l->end && (is_letter(*l->at) || is_digit(*l->at)))
        l->at++;
    size_t n = (size_t)(l->at - from);
    hfe_token_kind kind = HFE_T_NAME;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (strlen(keywords[i].word) == n && memcmp(keywords[i].word, from, n) == 0)
            kind = keywords[i].kind;
    emit(l, kind, from)->name = hfe_intern(l->p, from, n);
}

static void skip_digits(lexer *l) {
    while (l->at < l->end && (is_digit(*l->at) || *l->at == '_'))
        l->at++;
}

/* Reads digits [. digits] [e [+-] digits]; `0..n` is a number and a range. */
static void lex_number(lexer *l) {
    const char *from = l->at;
    bool real = false;
    skip_digits(l);
    if (l->end - l->at >= 2 && l->at[0] == '.' && is_digit(l->at[1])) {
        real = true;
        l->at++;
        skip_digits(l);
    }
    if (l->at < l->end && (*l->at == 'e' || *l->at == 'E')) {
        const char *digits = l->at + 1;
        digits += digits < l->end && (*digits == '+' || *digits == '-');
        if (digits < l->end && is_digit(*digits)) {
            real = true;
            l->at = digits;
            skip_digits(l);
        }
    }
    if (l->at < l->end && is_letter(*l->at)) {
        while (l->at < l->end && (is_letter(*l->at) || is_digit(*l->at)))
            l->at++;
        hfe_token *bad = emit(l, HFE_T_BAD, from);
        hd_err(l->p->diags, HD_E_SYNTAX, bad->loc, "a number runs into letters");
        return;
    }
    hd_text digits;
    hd_text_init(&digits, l->p->arena);
    for (const char *c = from; c < l->at; c++)
        if (*c != '_') hd_text_add_n(&digits, c, 1);
    hfe_token *t = emit(l, real ? HFE_T_FLOAT : HFE_T_INT, from);
    errno = 0;
    if (!real) {
        t->integer = strtoll(digits.at, NULL, 10);
    } else if (!hd_read_double(digits.at, digits.n, &t->number)) {
        hd_err(l->p->diags, HD_E_SYNTAX, t->loc, "this number has too many digits")->hint =
            "17 digits distinguish all floats";
        t->kind = HFE_T_BAD;
    }
    if (errno == ERANGE && (!real || t->number > 1 || t->number < -1)) {
        hd_diag *e = hd_err(l->p->diags, HD_E_VALUE, t->loc, "this number is too large");
        e->cause = real ? "floats go up to about 1.8e308" : "ints have 64 bits";
        t->kind = HFE_T_BAD;
    }
}

/* Reads from quote to quote. Quotes are not allowed in the expressions of a string, so the next
 * quote that is not escaped closes it. */
static void lex_string(lexer *l) {
    const char *from = l->at++;
    while (l->at < l->end && *l->at != '"' && *l->at != '\n')
        l->at += *l->at == '\\' && l->end - l->at > 1 && l->at[1] != '\n' ? 2 : 1;
    if (l->at >= l->end || *l->at == '\n') {
        hfe_token *bad = emit(l, HFE_T_BAD, from);
        hd_diag *e = hd_err(l->p->diags, HD_E_SYNTAX, bad->loc, "this string has no end");
        e->hint = "close it with '\"' on the same line";
        return;
    }
    l->at++;
    hfe_token *t = emit(l, HFE_T_STRING, from);
    t->begin++;
    t->end--;
}

static void track_brackets(lexer *l, hfe_token_kind kind, char c) {
    if (kind == HFE_P_LPAREN || kind == HFE_P_LBRACKET || kind == HFE_P_LBRACE) {
        hd_push(l->p->arena, &l->open, c);
    } else if (kind == HFE_P_RPAREN || kind == HFE_P_RBRACKET || kind == HFE_P_RBRACE) {
        char match = kind == HFE_P_RPAREN ? '(' : kind == HFE_P_RBRACKET ? '[' : '{';
        if (c == '}') { /* also closes open brackets inside it, so that errors stay near */
            while (l->open.n > 0 && l->open.at[l->open.n - 1] != '{')
                l->open.n--;
        }
        if (l->open.n > 0 && l->open.at[l->open.n - 1] == match) l->open.n--;
    }
}

static void lex_other(lexer *l) {
    const char *from = l->at;
    for (size_t i = 0; i < sizeof punctuation / sizeof *punctuation; i++) {
        size_t n = strlen(punctuation[i].text);
        if ((size_t)(l->end - l->at) >= n && memcmp(punctuation[i].text, l->at, n) == 0) {
            l->at += n;
            emit(l, punctuation[i].kind, from);
            track_brackets(l, punctuation[i].kind, *from);
            return;
        }
    }
    const char *close = *from == '\'' ? strpbrk(from + 1, "'\n") : NULL;
    l->at = close && *close == '\'' && close < l->end ? close + 1 : l->at + 1;
    while (l->at < l->end && (*l->at & 0xc0) == 0x80) { /* skip the rest of a UTF-8 sequence */
        l->at++;
    }
    hfe_token *bad = emit(l, HFE_T_BAD, from);
    unsigned char c = (unsigned char)*from;
    hd_diag *e;
    if (c < 0x20 || c == 0x7f)
        e = hd_err(l->p->diags, HD_E_SYNTAX, bad->loc, "unexpected byte 0x%02x", c);
    else
        e = hd_err(l->p->diags, HD_E_SYNTAX, bad->loc, "unexpected character '%.*s'",
                   (int)(l->at - from), from);
    e->hint = hfe_foreign_sign(from, l->end);
}

void hfe_lex(hfe_program *p, hd_loc start, const char *begin, const char *end, hfe_tokens *out) {
    lexer l = {.p = p, .at = begin, .end = end, .line_start = begin, .loc = start, .out = out};
    l.first_column = start.column;
    while (l.at < end) {
        char c = *l.at;
        if (c == '\n' || c == ';') {
            const char *from = l.at++;
            end_line(&l, from);
            if (c == '\n') {
                l.loc.line++;
                l.line_start = l.at;
                l.first_column = 1;
            }
        } else if (c == ' ' || c == '\t' || c == '\r') {
            l.at++;
        } else if (c == '#') {
            while (l.at < end && *l.at != '\n')
                l.at++;
        } else if (is_letter(c)) {
            lex_name(&l);
        } else if (is_digit(c)) {
            lex_number(&l);
        } else if (c == '"') {
            lex_string(&l);
        } else {
            lex_other(&l);
        }
    }
    end_line(&l, l.at);
    emit(&l, HFE_T_END, l.at);
}

/* ---- words and signs of other languages ------------------------------------------------------
 *
 * These tables map what users of other languages write by habit to a hint on what is written here
 * in its place. The lexer and the parser look here only after an error. */

#define VARIABLES "variables are set without a word: x = value"
#define LOOPS     "loops run over lists: for i in 0..n { ... }"
#define TO_ENDS                                                                                    \
    "a loop runs to its end; what it runs over may be chosen before: [x for x in xs if condition]"
#define CHOICES   "a conditional value is written: if condition { a } else { b }"
#define FUNCTIONS "functions are written: fn name(a, b) { ... }"
#define FILES     "other files are made known at the top of a file: use \"path\""
#define CHANGES   "a variable is changed in full words: x = x + 1"
#define BOOLEANS  "boolean operators are the words 'and', 'or' and 'not'"
#define COMMENTS  "a comment runs from '#' to the end of the line"

static const struct foreign {
    const char *text, *hint;
} words[] = {
    {"let", VARIABLES},
    {"var", VARIABLES},
    {"const", VARIABLES},
    {"while", LOOPS},
    {"break", TO_ENDS},
    {"continue", TO_ENDS},
    {"elif", "write 'else if'"},
    {"if", CHOICES}, /* after a value, the only place where `if` is not expected */
    {"def", FUNCTIONS},
    {"func", FUNCTIONS},
    {"function", FUNCTIONS},
    {"class", "objects are written: object name(a, b) { ... }"},
    {"import", FILES},
    {"include", FILES},
};

/* A sign stands before those that are its beginnings. */
static const struct foreign signs[] = {
    {"++", CHANGES},
    {"--", CHANGES},
    {"+=", CHANGES},
    {"-=", CHANGES},
    {"*=", CHANGES},
    {"/=", CHANGES},
    {"//", COMMENTS},
    {"/*", COMMENTS},
    {"&", BOOLEANS},
    {"|", BOOLEANS},
    {"!", BOOLEANS},
    {"?", CHOICES},
    {"'", "strings are written in double quotes"},
    {"**", "powers are products: x * x"},
    {"@", "matrices are multiplied by linear(x, w)"},
};

const char *hfe_foreign_word(const char *word) {
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(word, words[i].text) == 0) return words[i].hint;
    return NULL;
}

const char *hfe_foreign_sign(const char *at, const char *end) {
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        const size_t n = strlen(signs[i].text);
        if ((size_t)(end - at) >= n && memcmp(at, signs[i].text, n) == 0) return signs[i].hint;
    }
    return NULL;
}
