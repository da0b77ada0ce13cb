/* From text to tokens. */
#ifndef HFE_LEXER_H
#define HFE_LEXER_H

#include "frontend/language/ast.h"

/* K(enum, "word"), in alphabetical order */
#define HFE_KEYWORDS(K)                                                                            \
    K(AND, "and")                                                                                  \
    K(AT, "at")                                                                                    \
    K(ELSE, "else")                                                                                \
    K(FALSE, "false")                                                                              \
    K(FN, "fn")                                                                                    \
    K(FOR, "for")                                                                                  \
    K(IF, "if")                                                                                    \
    K(IN, "in")                                                                                    \
    K(MODEL, "model")                                                                              \
    K(NONE, "none")                                                                                \
    K(NOT, "not")                                                                                  \
    K(OBJECT, "object")                                                                            \
    K(OP, "op")                                                                                    \
    K(OR, "or")                                                                                    \
    K(OUTPUT, "output")                                                                            \
    K(RETURN, "return")                                                                            \
    K(TRUE, "true")                                                                                \
    K(USE, "use")

/* P(enum, "text"), longer ones before their prefixes */
#define HFE_PUNCTUATION(P)                                                                         \
    P(RANGE, "..")                                                                                 \
    P(OR_ELSE, "??")                                                                               \
    P(EQ, "==")                                                                                    \
    P(NE, "!=")                                                                                    \
    P(LE, "<=")                                                                                    \
    P(GE, ">=")                                                                                    \
    P(FLOOR_DIV, "//")                                                                             \
    P(LT, "<")                                                                                     \
    P(GT, ">")                                                                                     \
    P(ASSIGN, "=")                                                                                 \
    P(PLUS, "+")                                                                                   \
    P(MINUS, "-")                                                                                  \
    P(STAR, "*")                                                                                   \
    P(SLASH, "/")                                                                                  \
    P(PERCENT, "%")                                                                                \
    P(LPAREN, "(")                                                                                 \
    P(RPAREN, ")")                                                                                 \
    P(LBRACKET, "[")                                                                               \
    P(RBRACKET, "]")                                                                               \
    P(LBRACE, "{")                                                                                 \
    P(RBRACE, "}")                                                                                 \
    P(COMMA, ",")                                                                                  \
    P(COLON, ":")                                                                                  \
    P(DOT, ".")

typedef enum hfe_token_kind {
    HFE_T_END,  /* end of the text */
    HFE_T_LINE, /* end of a statement: newline or `;` */
    HFE_T_NAME,
    HFE_T_INT,
    HFE_T_FLOAT,
    HFE_T_STRING, /* `begin`..`end` between the quotes, escapes not yet read */
    HFE_T_BAD,    /* the lexer has reported it */
#define K(id, word) HFE_K_##id,
    HFE_KEYWORDS(K)
#undef K
#define P(id, text) HFE_P_##id,
        HFE_PUNCTUATION(P)
#undef P
            HFE_TOKEN_COUNT
} hfe_token_kind;

typedef struct hfe_token {
    hfe_token_kind kind;
    hd_loc loc;
    const char *begin, *end;
    const char *name; /* NAME, and keywords: interned */
    int64_t integer;
    double number;
} hfe_token;

typedef struct hfe_tokens {
    HD_VEC(hfe_token) list; /* the last token is END */
} hfe_tokens;

/* Lists the tokens of `begin`..`end`, whose first byte is at `start`. An error is reported, and
 * becomes a token BAD. */
void hfe_lex(hfe_program *p, hd_loc start, const char *begin, const char *end, hfe_tokens *out);

/* Return what to write instead of a word of other languages, or of a sign of other languages that
 * at..end begins with, as static text. NULL: any other word (or NULL) or sign. */
const char *hfe_foreign_word(const char *word);
const char *hfe_foreign_sign(const char *at, const char *end);

/* Returns a token's description for messages: "a name", "'=='", "the end of the line". */
const char *hfe_token_name(hfe_token_kind kind);

#endif
