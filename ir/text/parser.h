/* Shared by the files of the parser of the text form.
 *
 * Every statement is one line; after an error the parser continues with the next line. A name whose
 * definition failed is kept as broken: statements that use it are dropped without another error.
 * Bodies do not nest, so nothing here is recursive.
 */
#ifndef HIR_PARSER_H
#define HIR_PARSER_H

#include "ir/names.h"
#include "ir/signature.h"
#include "ir/text/lex.h"

typedef struct hir_symbol {
    hir_id value; /* HIR_NONE: its definition failed */
    hir_id scope; /* kernel in whose body it is, HIR_NONE at the top */
    uint32_t line;
} hir_symbol;

typedef struct hir_parser {
    hd_arena *arena;
    hd_diags *d;
    hir_lexer lx;
    hir_token t; /* the token to be looked at */
    hd_loc last; /* of the token before it */
    char last_punct;
    hir_module *m;
    size_t first_error, error_limit;
    hir_names values, numbers, weights, states; /* names and numbers of values → symbols */
    HD_VEC(hir_symbol) symbols;
    HD_VEC(hd_loc) op_locs;
    HD_VEC(hd_loc) input_locs;
    HD_VEC(hd_loc) weight_locs;
    HD_VEC(hd_loc) state_locs;
    hd_loc module_loc;
    hir_id kernel;       /* the kernel whose body is open, or HIR_NONE */
    bool inputs_unclear; /* the signature failed: do not report unknown values */
    bool may_open;       /* the op that failed may have opened a body */
    bool arena_given, local_given, tile_given, fixed_given;
    const char *loc_file;  /* file name of the last `loc`, reused if the next is the same */
    const char *call_file; /* the same of what follows `from` */
    const hd_loc *last_call;
} hir_parser;

/* Adds a syntax or other error; always false. */
bool hir_parse_error(hir_parser *p, hd_error code, hd_loc loc, const char *hint, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));
bool hir_too_many_errors(const hir_parser *p);

void hir_advance(hir_parser *p);
bool hir_at_punct(const hir_parser *p, char c);
bool hir_at_word(const hir_parser *p, const char *word);
bool hir_accept(hir_parser *p, char c);
bool hir_expect(hir_parser *p, char c);
/* "expected X, found Y" at the token; silent if the lexer has reported an error. */
bool hir_expected(hir_parser *p, const char *what);
const char *hir_nearest_hint(hir_parser *p, const char *word, const char *const *words, size_t n);

bool hir_parse_i64(const char *s, int64_t *out);
bool hir_parse_double(hir_parser *p, double *out); /* the next token */
bool hir_parse_u64(hir_parser *p, uint64_t *out); /* takes a number token */
bool hir_parse_type(hir_parser *p, hir_type *out);
bool hir_parse_place(hir_parser *p, hir_place *place, uint64_t *offset); /* none: fine */
bool hir_parse_loc(hir_parser *p, hd_loc *out);                          /* none: fine */
bool hir_parse_attrs(hir_parser *p, hir_opcode code, hir_attr **out, uint32_t *n);

/* Operands. `*broken` is set for a name whose definition failed. */
bool hir_parse_ref(hir_parser *p, hir_ref *out, bool *broken);
/* Binds `name` to a value (HIR_NONE: broken), and sets the value's name. */
void hir_define(hir_parser *p, const hir_token *name, hir_id value);

/* A statement that begins with results or an op name; at a body's start, p->kernel is set. */
bool hir_parse_op(hir_parser *p);

#endif
