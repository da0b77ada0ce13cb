/* Tokens of the text form. */
#ifndef HIR_LEX_H
#define HIR_LEX_H

#include "support/diag.h"

typedef enum hir_token_kind {
    HIR_TOK_END,
    HIR_TOK_LINE,   /* end of a line, which ends a statement */
    HIR_TOK_WORD,   /* kernel.row, f32, loc, _ */
    HIR_TOK_NUMBER, /* as written; converted where its type is known */
    HIR_TOK_STRING,
    HIR_TOK_VALUE,  /* %name */
    HIR_TOK_WEIGHT, /* @name */
    HIR_TOK_STATE,  /* $name */
    HIR_TOK_PUNCT,
    HIR_TOK_BAD, /* a diagnostic was added */
} hir_token_kind;

typedef struct hir_token {
    hir_token_kind kind;
    char punct;       /* of a punctuation token, else 0 */
    bool quoted;      /* a name in quotes */
    const char *text; /* name, word, number as written, or string with escapes resolved */
    hd_loc loc;
} hir_token;

typedef struct hir_lexer {
    hd_arena *arena;
    hd_diags *d;
    const char *file;
    const char *p, *line_start;
    uint32_t line;
    bool quiet; /* skipping after an error: report no bad tokens */
} hir_lexer;

hir_lexer hir_lexer_on(hd_arena *a, hd_diags *d, const char *file, const char *text);
hir_token hir_next_token(hir_lexer *lx);

#endif
