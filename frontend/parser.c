/* Statements and definitions. After an error the rest of the statement is skipped, so that one
 * slip is one message and later statements are still read. */
#include "frontend/parser.h"

#include <string.h>

/* ---- tokens and errors --------------------------------------------------------------------- */
const hfe_token *hfe_next(hfe_parser *ps) {
    ps->last = ps->at;
    if (ps->at->kind != HFE_T_END) {
        ps->at++;
    }
    return ps->last;
}

bool hfe_accept(hfe_parser *ps, hfe_token_kind kind) {
    if (!hfe_at(ps, kind)) {
        return false;
    }
    hfe_next(ps);
    return true;
}

void hfe_skip_lines(hfe_parser *ps) {
    while (hfe_accept(ps, HFE_T_LINE)) {
    }
}

hd_diag *hfe_trouble(hfe_parser *ps, hd_loc loc, const char *format, ...) {
    ps->failed = true;
    if (ps->panic) {
        return NULL;
    }
    ps->panic = true;
    va_list args;
    va_start(args, format);
    const char *message = hd_vprintf(ps->p->arena, format, args);
    va_end(args);
    return hd_err(ps->p->diags, HD_E_SYNTAX, loc, "%s", message);
}

/* just behind the last token, where something is missing */
static hd_loc behind(const hfe_parser *ps) {
    hd_known(ps->last);
    hd_loc loc = ps->last->loc;
    loc.column = loc.end_column;
    loc.end_column = loc.column + 1;
    return loc;
}

/* A hint where the next token is a word or sign of another language, or completes one, as '=' does
 * in "x += 1"; NULL: neither. */
static const char *foreign_hint(const hfe_parser *ps) {
    const hfe_token *t = ps->at, *before = ps->last;
    const bool joined = t->kind != HFE_T_END && t[1].begin == t->end; /* to the next token */
    const char *end = joined ? t[1].end : t->end;
    const char *hint = hfe_foreign_word(t->name);
    if (hint == NULL && before != NULL && before->end == t->begin) {
        hint = hfe_foreign_sign(before->begin, t->end);
    }
    return hint != NULL ? hint : hfe_foreign_sign(t->begin, end);
}

hd_diag *hfe_expected(hfe_parser *ps, const char *what) {
    if (hfe_at(ps, HFE_T_BAD)) { /* the lexer has said what is wrong */
        ps->panic = ps->failed = true;
        return NULL;
    }
    if (ps->in_string && hfe_at(ps, HFE_T_END)) {
        return hfe_trouble(ps, ps->at->loc, "expected %s before '}'", what);
    }
    bool name = hfe_at(ps, HFE_T_NAME);
    bool next_line = ps->last != NULL && ps->at->loc.line != ps->last->loc.line;
    if ((ps->last != NULL && hfe_at(ps, HFE_T_LINE)) || (next_line && hfe_at(ps, HFE_T_END))) {
        return hfe_trouble(ps, behind(ps), "expected %s before %s", what,
                           hfe_token_name(ps->at->kind));
    }
    hd_diag *d =
        hfe_trouble(ps, ps->at->loc, name ? "expected %s, found '%s'" : "expected %s, found %s",
                    what, name ? ps->at->name : hfe_token_name(ps->at->kind));
    if (d != NULL) {
        d->hint = foreign_hint(ps);
    }
    return d;
}

const hfe_token *hfe_expect(hfe_parser *ps, hfe_token_kind kind, const char *what) {
    if (hfe_at(ps, kind)) {
        return hfe_next(ps);
    }
    hd_diag *d = hfe_expected(
        ps, hd_printf(ps->p->arena, "%s %s %s", hfe_token_name(kind),
                      kind == HFE_T_NAME || kind == HFE_T_STRING ? "after" : "for", what));
    if (d != NULL && kind == HFE_T_NAME && ps->at->name != NULL && !hfe_at(ps, HFE_T_NAME)) {
        d->hint = hd_printf(ps->p->arena, "'%s' is a word of the language, take another name",
                            ps->at->name);
    }
    return NULL;
}

/* Words of configs are words only where no variable can be meant. */
static bool at_word(const hfe_parser *ps, const char *word) {
    return hfe_at(ps, HFE_T_NAME) && ps->at[1].kind == HFE_T_NAME &&
           strcmp(ps->at->name, word) == 0;
}

static bool at_config(const hfe_parser *ps) {
    return at_word(ps, "config");
}

/* A definition, at the start of a line, in the middle of a block: the block was not closed. */
static bool at_definition(const hfe_parser *ps) {
    return ps->at->loc.column == 1 &&
           (hfe_at(ps, HFE_K_FN) || hfe_at(ps, HFE_K_OBJECT) || hfe_at(ps, HFE_K_MODEL) ||
            hfe_at(ps, HFE_K_USE) || at_config(ps));
}

bool hfe_close(hfe_parser *ps, hfe_token_kind kind, hd_loc open) {
    if (hfe_accept(ps, kind)) {
        return true;
    }
    if (hfe_at(ps, HFE_T_BAD)) {
        ps->panic = ps->failed = true;
        return false;
    }
    if (ps->unclosed == ps->at) { /* the inner blocks have said so */
        ps->panic = ps->failed = true;
        return false;
    }
    if (kind == HFE_P_RBRACE && at_definition(ps)) {
        ps->unclosed = ps->at;
        hd_diag *d = hfe_trouble(ps, open, "this '{' is not closed");
        if (d != NULL) {
            d->cause = hd_printf(ps->p->arena, "%s follows in line %u",
                                 hfe_token_name(ps->at->kind), ps->at->loc.line);
        }
        return false;
    }
    bool same_line = ps->last == NULL || ps->at->loc.line == ps->last->loc.line;
    hd_loc loc =
        same_line && !hfe_at(ps, HFE_T_LINE) && !hfe_at(ps, HFE_T_END) ? ps->at->loc : behind(ps);
    hd_diag *d = hfe_trouble(ps, loc, kind == HFE_P_RBRACE ? "expected %s" : "expected ',' or %s",
                             hfe_token_name(kind));
    if (d != NULL && open.line != loc.line) {
        d->cause = hd_printf(ps->p->arena, "the bracket opened in line %u, column %u is not closed",
                             open.line, open.column);
    }
    return false;
}

bool hfe_enter(hfe_parser *ps) {
    if (ps->depth >= HFE_MAX_NESTING) {
        if (!ps->too_deep) {
            ps->too_deep = true;
            hd_diag *d = hd_err(ps->p->diags, HD_E_LIMIT, ps->at->loc, "this nests too deeply");
            d->cause = hd_printf(ps->p->arena, "at most %d levels are read", HFE_MAX_NESTING);
        }
        ps->panic = ps->failed = true;
        return false;
    }
    ps->depth++;
    return true;
}

void hfe_leave(hfe_parser *ps) {
    ps->depth--;
}

hd_loc hfe_span(const hfe_parser *ps, hd_loc from) {
    if (ps->last != NULL && ps->last->loc.line == from.line) {
        from.end_column = ps->last->loc.end_column;
    }
    return from;
}

/* Skips to the end of the statement: a line's end, or a closing brace, of this block. */
static void recover(hfe_parser *ps) {
    int open = 0;
    while (!hfe_at(ps, HFE_T_END)) {
        if ((open == 0 && (hfe_at(ps, HFE_T_LINE) || hfe_at(ps, HFE_P_RBRACE))) ||
            at_definition(ps)) {
            break;
        }
        open += hfe_at(ps, HFE_P_LBRACE) - hfe_at(ps, HFE_P_RBRACE);
        hfe_next(ps);
    }
    ps->panic = false;
}

/* ---- statements ---------------------------------------------------------------------------- */
static hfe_stmt *new_stmt(hfe_parser *ps, hfe_stmt_kind kind, hd_loc loc) {
    hfe_stmt *s = hd_new(ps->p->arena, hfe_stmt);
    s->kind = kind;
    s->loc = loc;
    return s;
}

static void add_target(hfe_parser *ps, hfe_stmt *s, const char *name, hd_loc loc) {
    hfe_target target = {name, loc};
    hd_push(ps->p->arena, &s->targets, target);
}

static hfe_stmt *parse_for(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_FOR, hfe_next(ps)->loc);
    do {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'for'");
        if (name == NULL) {
            return s;
        }
        add_target(ps, s, name->name, name->loc);
    } while (s->targets.n < 2 && hfe_accept(ps, HFE_P_COMMA));
    hfe_expect(ps, HFE_K_IN, "'for'");
    s->value = hfe_parse_expr(ps);
    hfe_parse_block(ps, &s->body);
    return s;
}

static hfe_stmt *parse_if(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_IF, hfe_next(ps)->loc);
    if (!hfe_enter(ps)) {
        return s;
    }
    s->value = hfe_parse_expr(ps);
    hfe_parse_block(ps, &s->body);
    const hfe_token *after = ps->at;
    while (after->kind == HFE_T_LINE) {
        after++;
    }
    if (!ps->panic && after->kind == HFE_K_ELSE) {
        hfe_skip_lines(ps);
        hfe_next(ps);
        if (hfe_at(ps, HFE_K_IF)) {
            hfe_stmt *chained = parse_if(ps);
            hd_push(ps->p->arena, &s->otherwise.list, chained);
        } else {
            hfe_parse_block(ps, &s->otherwise);
        }
    }
    hfe_leave(ps);
    return s;
}

static hfe_stmt *parse_at(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_AT, hfe_next(ps)->loc);
    s->value = hfe_parse_expr(ps);
    hfe_parse_block(ps, &s->body);
    return s;
}

static bool at_statement_end(const hfe_parser *ps) {
    return hfe_at(ps, HFE_T_LINE) || hfe_at(ps, HFE_P_RBRACE) || hfe_at(ps, HFE_T_END);
}

static hfe_stmt *parse_return(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_RETURN, hfe_next(ps)->loc);
    if (ps->in->kind != HFE_D_FN) {
        hd_diag *d = hfe_trouble(ps, s->loc, "'return' outside of a function");
        if (d != NULL && ps->in->kind == HFE_D_MODEL) {
            d->hint = "a model names its results: output logits = ...";
        }
        return s;
    }
    if (!at_statement_end(ps)) {
        s->value = hfe_parse_expr(ps);
    }
    return s;
}

static hfe_stmt *parse_output(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_OUTPUT, hfe_next(ps)->loc);
    if (ps->in->kind != HFE_D_MODEL) {
        hfe_trouble(ps, s->loc, "'output' outside of the model");
        return s;
    }
    if (hfe_at(ps, HFE_T_STRING)) {
        s->name = hfe_parse_string(ps);
        hfe_expect(ps, HFE_P_ASSIGN, "an output named by a string");
    } else {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'output'");
        if (name == NULL) {
            return s;
        }
        s->name = hd_new(ps->p->arena, hfe_expr);
        *s->name = (hfe_expr){.kind = HFE_X_STRING, .depth = 1, .loc = name->loc};
        hfe_piece piece = {.text = name->name};
        hd_push(ps->p->arena, &s->name->string.pieces, piece);
        if (!hfe_accept(ps, HFE_P_ASSIGN)) { /* output x: the variable x */
            s->value = hd_new(ps->p->arena, hfe_expr);
            *s->value = (hfe_expr){.kind = HFE_X_NAME, .depth = 1, .loc = name->loc};
            s->value->name = name->name;
            return s;
        }
        add_target(ps, s, name->name, name->loc);
    }
    s->value = hfe_parse_expr(ps);
    return s;
}

/* What `x` in `x = ...` may be: a name, or an element of a named list. */
static bool add_left_side(hfe_parser *ps, hfe_stmt *s, const hfe_expr *e) {
    if (e->kind == HFE_X_NAME) {
        add_target(ps, s, e->name, e->loc);
        return true;
    }
    if (e->kind == HFE_X_INDEX && e->index.base->kind == HFE_X_NAME && s->kind == HFE_S_ASSIGN) {
        s->kind = HFE_S_ASSIGN_INDEX;
        add_target(ps, s, e->index.base->name, e->index.base->loc);
        s->index = e->index.index;
        return true;
    }
    hd_diag *d = hfe_trouble(ps, e->loc, "this cannot be set");
    if (d != NULL && e->kind == HFE_X_FIELD) {
        d->cause = "fields of an object are set by its own methods only";
    } else if (d != NULL) {
        d->cause = "only variables, and elements of lists in variables, can be set";
    }
    return false;
}

/* Trouble at a word of another language that begins a statement, "while x < 3 { ... }". */
static hfe_stmt *foreign_statement(hfe_parser *ps, const hfe_token *word) {
    hd_diag *d = hfe_trouble(ps, word->loc, "'%s' is not a word of the language", word->name);
    if (d != NULL) {
        d->hint = hfe_foreign_word(word->name);
    }
    return NULL;
}

/* Could a value begin here, or a block? Not what goes on behind a name: brackets, operators, a dot.
 */
static bool begins_value(hfe_token_kind kind) {
    switch (kind) {
    case HFE_T_NAME:
    case HFE_T_INT:
    case HFE_T_FLOAT:
    case HFE_T_STRING:
    case HFE_K_TRUE:
    case HFE_K_FALSE:
    case HFE_K_NONE:
    case HFE_K_NOT:
    case HFE_P_LBRACE: return true;
    default: return false;
    }
}

static hfe_stmt *parse_simple(hfe_parser *ps) {
    const hfe_token *first = ps->at;
    const bool foreign = first->kind == HFE_T_NAME && hfe_foreign_word(first->name) != NULL;
    if (foreign && begins_value(ps->at[1].kind)) {
        return foreign_statement(ps, first);
    }
    hfe_stmt *s = new_stmt(ps, HFE_S_EXPR, first->loc);
    hfe_expr *e = hfe_parse_expr(ps);
    s->value = e;
    if (foreign && hfe_at(ps, HFE_P_LBRACE)) { /* while (condition) { */
        return foreign_statement(ps, first);
    }
    if (ps->panic || (!hfe_at(ps, HFE_P_ASSIGN) && !hfe_at(ps, HFE_P_COMMA))) {
        return s;
    }
    s->kind = HFE_S_ASSIGN;
    while (hfe_accept(ps, HFE_P_COMMA)) {
        s->kind = HFE_S_UNPACK;
        if (!add_left_side(ps, s, e)) {
            return s;
        }
        e = hfe_parse_expr(ps);
    }
    if (!add_left_side(ps, s, e)) {
        return s;
    }
    if (hfe_expect(ps, HFE_P_ASSIGN, "setting variables") != NULL) {
        s->value = hfe_parse_expr(ps);
    }
    return s;
}

/* use NAME or use NAME(name: value, ...), and perhaps: in "field" */
static hfe_stmt *parse_include(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_INCLUDE, hfe_next(ps)->loc);
    if (hfe_at(ps, HFE_T_STRING)) {
        hd_diag *d = hfe_trouble(ps, ps->at->loc, "'use' in a config names another config");
        if (d != NULL) {
            d->hint = "files are used at the top of a file";
        }
        return NULL;
    }
    s->value = hfe_parse_expr(ps);
    const hfe_expr *x = s->value;
    const bool call = x->kind == HFE_X_CALL && x->call.callee->kind == HFE_X_NAME;
    if (!ps->panic && !call && x->kind != HFE_X_NAME) {
        hfe_trouble(ps, x->loc, "'use' in a config names another config");
    }
    if (hfe_accept(ps, HFE_K_IN)) {
        s->name = hfe_parse_expr(ps);
    }
    return s;
}

/* field name = ..., param name = ..., option name = ... */
static hfe_mark take_mark(hfe_parser *ps) {
    static const char *const words[] = {
        [HFE_FIELD] = "field", [HFE_PARAM] = "param", [HFE_OPTION] = "option"};
    for (int i = HFE_FIELD; i <= HFE_OPTION; i++) {
        if (at_word(ps, words[i])) {
            hfe_next(ps);
            return (hfe_mark)i;
        }
    }
    return HFE_PLAIN;
}

static hfe_stmt *parse_config_statement(hfe_parser *ps) {
    const hd_loc loc = ps->at->loc;
    const hfe_mark mark = take_mark(ps);
    hfe_stmt *s = mark == HFE_PLAIN && hfe_at(ps, HFE_K_USE) ? parse_include(ps) : parse_simple(ps);
    if (s == NULL || mark == HFE_PLAIN) {
        return s;
    }
    s->mark = mark;
    if (!ps->panic && s->kind != HFE_S_ASSIGN) {
        hfe_trouble(ps, loc, "one variable is declared: name = ...");
    }
    return s;
}

static hfe_stmt *parse_statement(hfe_parser *ps) {
    if (ps->in->kind == HFE_D_CONFIG && (hfe_at(ps, HFE_T_NAME) || hfe_at(ps, HFE_K_USE))) {
        return parse_config_statement(ps);
    }
    switch (ps->at->kind) {
    case HFE_K_FOR: return parse_for(ps);
    case HFE_K_IF: return parse_if(ps);
    case HFE_K_AT: return parse_at(ps);
    case HFE_K_RETURN: return parse_return(ps);
    case HFE_K_OUTPUT: return parse_output(ps);
    case HFE_K_FN: {
        hd_diag *d = hfe_trouble(ps, ps->at->loc, "a function cannot stand here");
        if (d != NULL) {
            d->hint = "functions stand at the top of a file or in an object";
        }
        return NULL;
    }
    default: return parse_simple(ps);
    }
}

static void end_statement(hfe_parser *ps) {
    if (!ps->panic && !at_statement_end(ps)) {
        hfe_expected(ps, "the end of the statement");
    }
    if (ps->panic) {
        recover(ps);
    }
}

void hfe_parse_block(hfe_parser *ps, hfe_block *out) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LBRACE, "a block");
    if (open == NULL || !hfe_enter(ps)) {
        return;
    }
    hfe_skip_lines(ps);
    while (!hfe_at(ps, HFE_P_RBRACE) && !hfe_at(ps, HFE_T_END) && !at_definition(ps)) {
        hfe_stmt *s = parse_statement(ps);
        end_statement(ps);
        if (s != NULL) {
            hd_push(ps->p->arena, &out->list, s);
        }
        hfe_skip_lines(ps);
    }
    hfe_leave(ps);
    hfe_close(ps, HFE_P_RBRACE, open->loc);
}

/* ---- definitions --------------------------------------------------------------------------- */
static bool is_taken(const hfe_def *def, const char *name) {
    for (size_t i = 0; i < def->params.n; i++) {
        if (def->params.at[i].name == name) {
            return true;
        }
    }
    for (size_t i = 0; i < def->inputs.n; i++) {
        if (def->inputs.at[i].name == name) {
            return true;
        }
    }
    return false;
}

static void parse_params(hfe_parser *ps, hfe_def *def) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LPAREN, "parameters");
    if (open == NULL) {
        return;
    }
    while (!hfe_at(ps, HFE_P_RPAREN) && !ps->panic) {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'('");
        if (name == NULL) {
            return;
        }
        hfe_param param = {.name = name->name, .loc = name->loc};
        if (is_taken(def, param.name)) {
            hfe_trouble(ps, param.loc, "'%s' is named twice", param.name);
            return;
        }
        if (hfe_accept(ps, HFE_P_ASSIGN)) {
            param.otherwise = hfe_parse_expr(ps);
        } else if (def->params.n > 0 && def->params.at[def->params.n - 1].otherwise != NULL) {
            hd_diag *d = hfe_trouble(ps, param.loc, "'%s' has no default, the one before it has",
                                     param.name);
            if (d != NULL) {
                d->hint = "parameters with defaults come last";
            }
        }
        hd_push(ps->p->arena, &def->params, param);
        if (!hfe_accept(ps, HFE_P_COMMA)) {
            break;
        }
    }
    hfe_close(ps, HFE_P_RPAREN, open->loc);
}

static bool dtype_by_name(const char *name, hir_dtype *out) {
    for (int i = 0; i < HIR_DTYPE_COUNT; i++) {
        if (strcmp(hir_dtype_name((hir_dtype)i), name) == 0) {
            *out = (hir_dtype)i;
            return *out == HIR_F32 || *out == HIR_I32;
        }
    }
    return false;
}

/* (x: f32[T, 64], ids: i32[T]) */
static void parse_inputs(hfe_parser *ps, hfe_def *def) {
    hd_loc open = hfe_next(ps)->loc;
    def->has_inputs = true;
    while (!hfe_at(ps, HFE_P_RPAREN) && !ps->panic) {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'('");
        const hfe_token *colon = hfe_expect(ps, HFE_P_COLON, "the type of an input");
        const hfe_token *dtype = hfe_expect(ps, HFE_T_NAME, "':'");
        if (name == NULL || colon == NULL || dtype == NULL) {
            return;
        }
        hfe_input input = {.name = name->name, .loc = name->loc};
        if (is_taken(def, input.name)) {
            hfe_trouble(ps, input.loc, "'%s' is named twice", input.name);
            return;
        }
        if (!dtype_by_name(dtype->name, &input.dtype)) {
            hd_diag *d =
                hfe_trouble(ps, dtype->loc, "'%s' is not the type of an input", dtype->name);
            if (d != NULL) {
                d->hint = "inputs are f32[T, ...] or i32[T]";
            }
            return;
        }
        const hfe_token *bracket = hfe_expect(ps, HFE_P_LBRACKET, "the shape of an input");
        while (bracket != NULL && !hfe_at(ps, HFE_P_RBRACKET) && !ps->panic) {
            hfe_expr *dim = hfe_parse_expr(ps);
            hd_push(ps->p->arena, &input.dims.list, dim);
            if (!hfe_accept(ps, HFE_P_COMMA)) {
                break;
            }
        }
        if (bracket != NULL) {
            hfe_close(ps, HFE_P_RBRACKET, bracket->loc);
        }
        hd_push(ps->p->arena, &def->inputs, input);
        if (!hfe_accept(ps, HFE_P_COMMA)) {
            break;
        }
    }
    hfe_close(ps, HFE_P_RPAREN, open);
}

static hfe_def *new_def(hfe_parser *ps, hfe_def_kind kind, const hfe_token *name) {
    hfe_def *def = hd_new(ps->p->arena, hfe_def);
    def->kind = kind;
    def->name = name->name;
    def->loc = name->loc;
    def->file = ps->file;
    return def;
}

static hfe_def *parse_fn(hfe_parser *ps) {
    hfe_next(ps);
    const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'fn'");
    if (name == NULL) {
        return NULL;
    }
    hfe_def *def = new_def(ps, HFE_D_FN, name);
    parse_params(ps, def);
    const hfe_def *outer = ps->in;
    ps->in = def;
    if (!ps->panic) {
        hfe_parse_block(ps, &def->body);
    }
    ps->in = outer;
    return def;
}

/* The body of an object: statements that fill its fields, and methods. */
static void parse_members(hfe_parser *ps, hfe_def *def) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LBRACE, "the body of an object");
    if (open == NULL) {
        return;
    }
    hfe_skip_lines(ps);
    while (!hfe_at(ps, HFE_P_RBRACE) && !hfe_at(ps, HFE_T_END) &&
           (hfe_at(ps, HFE_K_FN) || !at_definition(ps))) {
        if (hfe_at(ps, HFE_K_FN)) {
            hfe_def *method = parse_fn(ps);
            if (method != NULL) {
                method->object = def;
                hd_push(ps->p->arena, &def->methods, method);
            }
            end_statement(ps);
        } else {
            hfe_stmt *s = parse_statement(ps);
            end_statement(ps);
            if (s != NULL) {
                hd_push(ps->p->arena, &def->body.list, s);
            }
        }
        hfe_skip_lines(ps);
    }
    hfe_close(ps, HFE_P_RBRACE, open->loc);
}

static hfe_def *parse_object_or_model(hfe_parser *ps, hfe_def_kind kind) {
    hfe_next(ps);
    const hfe_token *name =
        hfe_expect(ps, HFE_T_NAME, kind == HFE_D_MODEL ? "'model'" : "'object'");
    if (name == NULL) {
        return NULL;
    }
    hfe_def *def = new_def(ps, kind, name);
    if (kind != HFE_D_CONFIG || hfe_at(ps, HFE_P_LPAREN)) {
        parse_params(ps, def);
    }
    ps->in = def;
    if (kind == HFE_D_MODEL && hfe_at(ps, HFE_P_LPAREN) && !ps->panic) {
        parse_inputs(ps, def);
    }
    if (kind == HFE_D_MODEL && !ps->panic) {
        hfe_parse_block(ps, &def->body);
    } else if (!ps->panic) {
        parse_members(ps, def);
    }
    ps->in = NULL;
    return def;
}

static void parse_use(hfe_parser *ps) {
    hfe_next(ps);
    const hfe_token *path = hfe_expect(ps, HFE_T_STRING, "'use'");
    if (path == NULL) {
        return;
    }
    if (ps->file->defs.n > 0) {
        hfe_trouble(ps, path->loc, "'use' comes before the definitions of a file");
        return;
    }
    hfe_use use = {.path = hd_strndup(ps->p->arena, path->begin, (size_t)(path->end - path->begin)),
                   .loc = path->loc};
    if (use.path[0] == '\0' || strpbrk(use.path, "\\{}") != NULL) {
        hfe_trouble(ps, path->loc, "this is not a path");
        return;
    }
    hd_push(ps->p->arena, &ps->file->uses, use);
}

static hfe_def *parse_constant(hfe_parser *ps) {
    const hfe_token *name = ps->at;
    if (name->kind != HFE_T_NAME || ps->at[1].kind != HFE_P_ASSIGN) {
        hd_diag *d = hfe_expected(ps, "a definition");
        if (d != NULL && (d->hint == NULL || name->kind == HFE_K_IF)) {
            d->hint = "a file holds use, fn, object, model, config and NAME = value";
        }
        return NULL;
    }
    hfe_next(ps);
    hfe_next(ps);
    hfe_def *def = new_def(ps, HFE_D_CONSTANT, name);
    def->value = hfe_parse_expr(ps);
    return def;
}

static void check_twice(hfe_parser *ps, const hfe_def *def) {
    for (size_t i = 0; i < ps->file->defs.n; i++) {
        const hfe_def *other = ps->file->defs.at[i];
        if ((other->kind == HFE_D_CONFIG) != (def->kind == HFE_D_CONFIG)) {
            continue;
        }
        if (other->name == def->name || (other->kind == HFE_D_MODEL && def->kind == HFE_D_MODEL)) {
            bool same = other->name == def->name;
            hd_diag *d =
                same ? hd_err(ps->p->diags, HD_E_NAME, def->loc, "'%s' is defined twice", def->name)
                     : hd_err(ps->p->diags, HD_E_NAME, def->loc, "this file has a second model");
            d->cause =
                hd_printf(ps->p->arena, "'%s' stands in line %u", other->name, other->loc.line);
            ps->failed = true;
            return;
        }
    }
}

bool hfe_parse(hfe_program *p, hfe_file *file) {
    hfe_tokens tokens = {0};
    size_t errors = p->diags->errors;
    hfe_lex(p, (hd_loc){file->path, 1, 1, 1}, file->text, file->text + strlen(file->text), &tokens);
    hfe_parser ps = {.p = p, .file = file, .at = tokens.list.at};
    hfe_skip_lines(&ps);
    while (!hfe_at(&ps, HFE_T_END)) {
        hfe_def *def = NULL;
        switch (ps.at->kind) {
        case HFE_K_USE: parse_use(&ps); break;
        case HFE_K_FN: def = parse_fn(&ps); break;
        case HFE_K_OBJECT: def = parse_object_or_model(&ps, HFE_D_OBJECT); break;
        case HFE_K_MODEL: def = parse_object_or_model(&ps, HFE_D_MODEL); break;
        default:
            def = at_config(&ps) ? parse_object_or_model(&ps, HFE_D_CONFIG) : parse_constant(&ps);
            break;
        }
        if (def != NULL) {
            check_twice(&ps, def);
            hd_push(p->arena, &file->defs, def);
        }
        ps.in = NULL;
        end_statement(&ps);
        while (hfe_at(&ps, HFE_T_LINE) || (ps.failed && hfe_at(&ps, HFE_P_RBRACE))) {
            hfe_next(&ps); /* braces too many are the trace of an error that was reported */
        }
        if (hfe_at(&ps, HFE_P_RBRACE)) {
            hfe_trouble(&ps, ps.at->loc, "'}' closes nothing");
            recover(&ps);
            hfe_next(&ps);
            hfe_skip_lines(&ps);
        }
    }
    return !ps.failed && p->diags->errors == errors;
}
