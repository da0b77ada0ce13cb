/* Statements and blocks. */
#include <string.h>

#include "frontend/language/parser.h"

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

static hfe_stmt *parse_for(hfe_parser *ps, hfe_stmt_kind kind) {
    const char *word = kind == HFE_S_FOR ? "'for'" : "'loop'";
    hfe_stmt *s = new_stmt(ps, kind, hfe_next(ps)->loc);
    do {
        const hfe_token *name = hfe_expect(ps, HFE_T_NAME, word);
        if (!name) return s;
        add_target(ps, s, name->name, name->loc);
    } while (s->targets.n < 2 && hfe_accept(ps, HFE_P_COMMA));
    hfe_expect(ps, HFE_K_IN, word);
    s->value = hfe_parse_expr(ps);
    hfe_parse_block(ps, &s->body);
    return s;
}

static hfe_stmt *parse_if(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_IF, hfe_next(ps)->loc);
    if (!hfe_enter(ps)) return s;
    s->value = hfe_parse_expr(ps);
    hfe_parse_block(ps, &s->body);
    const hfe_token *after = ps->at;
    while (after->kind == HFE_T_LINE)
        after++;
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
        if (d && ps->in->kind == HFE_D_MODEL)
            d->hint = "a model names its results: output logits = ...";
        return s;
    }
    if (!at_statement_end(ps)) s->value = hfe_parse_expr(ps);
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
        if (!name) return s;
        s->name = hd_new(ps->p->arena, hfe_expr);
        *s->name = (hfe_expr){.kind = HFE_X_STRING, .depth = 1, .loc = name->loc};
        hfe_piece piece = {.text = name->name};
        hd_push(ps->p->arena, &s->name->string.pieces, piece);
        if (!hfe_accept(ps, HFE_P_ASSIGN)) { /* output x: the value is the variable x */
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

/* Checks the left side `x` of `x = ...`: it may be a name, or an element of a named list. */
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
    if (d && e->kind == HFE_X_FIELD)
        d->cause = "fields of an object are set by its own methods only";
    else if (d)
        d->cause = "only variables, and elements of lists in variables, can be set";
    return false;
}

/* Reports a word of another language that begins a statement, as in "while x < 3 { ... }". */
static hfe_stmt *foreign_statement(hfe_parser *ps, const hfe_token *word) {
    hd_diag *d = hfe_trouble(ps, word->loc, "'%s' is not a word of the language", word->name);
    if (d) d->hint = hfe_foreign_word(word->name);
    return NULL;
}

/* True for a token that can begin a value or a block, but cannot continue an expression after a
 * name (as brackets, operators and a dot can). */
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
    const bool foreign = first->kind == HFE_T_NAME && hfe_foreign_word(first->name);
    if (foreign && begins_value(ps->at[1].kind)) return foreign_statement(ps, first);
    hfe_stmt *s = new_stmt(ps, HFE_S_EXPR, first->loc);
    hfe_expr *e = hfe_parse_expr(ps);
    s->value = e;
    if (foreign && hfe_at(ps, HFE_P_LBRACE)) { /* while (condition) { */
        return foreign_statement(ps, first);
    }
    if (ps->panic || (!hfe_at(ps, HFE_P_ASSIGN) && !hfe_at(ps, HFE_P_COMMA))) return s;
    s->kind = HFE_S_ASSIGN;
    while (hfe_accept(ps, HFE_P_COMMA)) {
        s->kind = HFE_S_UNPACK;
        if (!add_left_side(ps, s, e)) return s;
        e = hfe_parse_expr(ps);
    }
    if (!add_left_side(ps, s, e)) return s;
    if (hfe_expect(ps, HFE_P_ASSIGN, "setting variables")) s->value = hfe_parse_expr(ps);
    return s;
}

/* Parses use NAME or use NAME(name: value, ...), optionally with: in "field" */
static hfe_stmt *parse_include(hfe_parser *ps) {
    hfe_stmt *s = new_stmt(ps, HFE_S_INCLUDE, hfe_next(ps)->loc);
    if (hfe_at(ps, HFE_T_STRING)) {
        hd_diag *d = hfe_trouble(ps, ps->at->loc, "'use' in a config names another config");
        if (d) d->hint = "files are used at the top of a file";
        return NULL;
    }
    s->value = hfe_parse_expr(ps);
    const hfe_expr *x = s->value;
    const bool call = x->kind == HFE_X_CALL && x->call.callee->kind == HFE_X_NAME;
    if (!ps->panic && !call && x->kind != HFE_X_NAME)
        hfe_trouble(ps, x->loc, "'use' in a config names another config");
    if (hfe_accept(ps, HFE_K_IN)) s->name = hfe_parse_expr(ps);
    return s;
}

/* Reads the mark of field name = ..., param name = ..., or option name = ... */
static hfe_mark take_mark(hfe_parser *ps) {
    static const char *const words[] = {
        [HFE_FIELD] = "field", [HFE_PARAM] = "param", [HFE_OPTION] = "option"};
    for (int i = HFE_FIELD; i <= HFE_OPTION; i++)
        if (hfe_at_word(ps, words[i])) {
            hfe_next(ps);
            return (hfe_mark)i;
        }
    return HFE_PLAIN;
}

static hfe_stmt *parse_config_statement(hfe_parser *ps) {
    const hd_loc loc = ps->at->loc;
    const hfe_mark mark = take_mark(ps);
    hfe_stmt *s = mark == HFE_PLAIN && hfe_at(ps, HFE_K_USE) ? parse_include(ps) : parse_simple(ps);
    if (!s || mark == HFE_PLAIN) return s;
    s->mark = mark;
    if (!ps->panic && s->kind != HFE_S_ASSIGN)
        hfe_trouble(ps, loc, "one variable is declared: name = ...");
    return s;
}

hfe_stmt *hfe_parse_statement(hfe_parser *ps) {
    if (ps->in->kind == HFE_D_CONFIG && (hfe_at(ps, HFE_T_NAME) || hfe_at(ps, HFE_K_USE)))
        return parse_config_statement(ps);
    if (hfe_at_word(ps, "loop")) return parse_for(ps, HFE_S_LOOP);
    switch (ps->at->kind) {
    case HFE_K_FOR: return parse_for(ps, HFE_S_FOR);
    case HFE_K_IF: return parse_if(ps);
    case HFE_K_AT: return parse_at(ps);
    case HFE_K_RETURN: return parse_return(ps);
    case HFE_K_OUTPUT: return parse_output(ps);
    case HFE_K_FN: {
        hd_diag *d = hfe_trouble(ps, ps->at->loc, "a function cannot stand here");
        if (d) d->hint = "functions stand at the top of a file or in an object";
        return NULL;
    }
    default: return parse_simple(ps);
    }
}

void hfe_end_statement(hfe_parser *ps) {
    if (!ps->panic && !at_statement_end(ps)) hfe_expected(ps, "the end of the statement");
    if (ps->panic) hfe_recover(ps);
}

void hfe_parse_block(hfe_parser *ps, hfe_block *out) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LBRACE, "a block");
    if (!open || !hfe_enter(ps)) return;
    hfe_skip_lines(ps);
    while (!hfe_at(ps, HFE_P_RBRACE) && !hfe_at(ps, HFE_T_END) && !hfe_at_definition(ps)) {
        hfe_stmt *s = hfe_parse_statement(ps);
        hfe_end_statement(ps);
        if (s) hd_push(ps->p->arena, &out->list, s);
        hfe_skip_lines(ps);
    }
    hfe_leave(ps);
    hfe_close(ps, HFE_P_RBRACE, open->loc);
}
