/* What the files of the parser share. */
#ifndef HFE_PARSER_H
#define HFE_PARSER_H

#include "frontend/language/lexer.h"

typedef struct hfe_parser {
    hfe_program *p;
    hfe_file *file;
    const hfe_token *at;   /* the next token; the list ends with END */
    const hfe_token *last; /* the token before it, or NULL */
    uint32_t depth;        /* nesting depth so far */
    bool panic;            /* an error was reported, tokens are being skipped */
    bool failed, too_deep;
    const hfe_token *unclosed; /* a definition found where a block should have ended */
    bool in_string;            /* the tokens are those of an expression in a string */
    const hfe_def *in;         /* the definition whose body is being read */
} hfe_parser;

static inline bool hfe_at(const hfe_parser *ps, hfe_token_kind kind) {
    return ps->at->kind == kind;
}
const hfe_token *hfe_next(hfe_parser *ps);
bool hfe_accept(hfe_parser *ps, hfe_token_kind kind);
/* Reads a token of this kind, or reports that `what` requires it. */
const hfe_token *hfe_expect(hfe_parser *ps, hfe_token_kind kind, const char *what);
/* Reads the closing bracket of the one opened at `open`. */
bool hfe_close(hfe_parser *ps, hfe_token_kind kind, hd_loc open);
void hfe_skip_lines(hfe_parser *ps);
/* Reports an error at a place; returns NULL, without a report, while tokens are skipped after an
 * earlier error. */
hd_diag *hfe_trouble(hfe_parser *ps, hd_loc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Reports "expected ..., found ..." at the next token. */
hd_diag *hfe_expected(hfe_parser *ps, const char *what);
bool hfe_enter(hfe_parser *ps); /* one level deeper; false, after an error, at the limit */
void hfe_leave(hfe_parser *ps);
/* True for a definition that begins a line. In the middle of a block it means that the block was
 * not closed. */
bool hfe_at_definition(const hfe_parser *ps);
/* True for a word of configs where no variable can be meant. For `config` itself there is
 * hfe_at_config. */
bool hfe_at_word(const hfe_parser *ps, const char *word);
bool hfe_at_config(const hfe_parser *ps);
/* Skips to the end of the statement: the end of a line, or a closing brace, of this block. */
void hfe_recover(hfe_parser *ps);
/* Returns the range from the start of `from` to the end of the last token read. */
hd_loc hfe_span(const hfe_parser *ps, hd_loc from);

hfe_expr *hfe_parse_expr(hfe_parser *ps);
hfe_expr *hfe_parse_string(hfe_parser *ps);    /* at a STRING token */
hfe_stmt *hfe_parse_statement(hfe_parser *ps); /* NULL after an error */
void hfe_end_statement(hfe_parser *ps);        /* reads its end; on error, skips to it */
void hfe_parse_block(hfe_parser *ps, hfe_block *out);

#endif
