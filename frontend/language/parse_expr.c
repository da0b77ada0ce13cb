/* Expressions: precedence climbing over the table of operators in docs/language.md. */
#include "frontend/language/parser.h"

#include <string.h>

enum { OR_ELSE = 1, OR, AND, NOT, COMPARE, RANGE, SUM, PRODUCT };

static const struct {
    hfe_token_kind token;
    hfe_binary op;
    int level;
    const char *text;
} operators[] = {
    {HFE_P_OR_ELSE, HFE_OR_ELSE, OR_ELSE, "??"},
    {HFE_K_OR, HFE_OR, OR, "or"},
    {HFE_K_AND, HFE_AND, AND, "and"},
    {HFE_P_EQ, HFE_EQ, COMPARE, "=="},
    {HFE_P_NE, HFE_NE, COMPARE, "!="},
    {HFE_P_LT, HFE_LT, COMPARE, "<"},
    {HFE_P_LE, HFE_LE, COMPARE, "<="},
    {HFE_P_GT, HFE_GT, COMPARE, ">"},
    {HFE_P_GE, HFE_GE, COMPARE, ">="},
    {HFE_P_RANGE, HFE_RANGE, RANGE, ".."},
    {HFE_P_PLUS, HFE_ADD, SUM, "+"},
    {HFE_P_MINUS, HFE_SUB, SUM, "-"},
    {HFE_P_STAR, HFE_MUL, PRODUCT, "*"},
    {HFE_P_SLASH, HFE_DIV, PRODUCT, "/"},
    {HFE_P_FLOOR_DIV, HFE_FLOOR_DIV, PRODUCT, "//"},
    {HFE_P_PERCENT, HFE_MOD, PRODUCT, "%"},
};
enum { N_OPERATORS = sizeof operators / sizeof *operators };

const char *hfe_binary_text(hfe_binary op) {
    for (int i = 0; i < N_OPERATORS; i++)
        if (operators[i].op == op) return operators[i].text;
    return "?";
}

static hfe_expr *new_expr(hfe_parser *ps, hfe_expr_kind kind, hd_loc loc) {
    hfe_expr *e = hd_new(ps->p->arena, hfe_expr);
    e->kind = kind;
    e->loc = loc;
    e->depth = 1;
    return e;
}

/* Counts the depth of the tree, which bounds the recursion of all code that walks it. */
static void add_child(hfe_parser *ps, hfe_expr *e, const hfe_expr *child) {
    if (child && child->depth >= e->depth) e->depth = child->depth + 1;
    if (e->depth > HFE_MAX_NESTING && !ps->too_deep) {
        ps->too_deep = true;
        hd_diag *d = hd_err(ps->p->diags, HD_E_LIMIT, e->loc, "this expression nests too deeply");
        d->cause = hd_printf(ps->p->arena, "at most %d levels are read", HFE_MAX_NESTING);
        d->hint = "name a part of it: part = ...";
        ps->panic = ps->failed = true;
    }
}

static hfe_expr *binary(hfe_parser *ps, hfe_binary op, hfe_expr *left, hfe_expr *right) {
    hfe_expr *e = new_expr(ps, HFE_X_BINARY, hfe_span(ps, left->loc));
    e->binary.op = op;
    e->binary.left = left;
    e->binary.right = right;
    add_child(ps, e, left);
    add_child(ps, e, right);
    return e;
}

/* ---- strings ------------------------------------------------------------------------------- */
static void add_text(hfe_parser *ps, hfe_expr *e, hd_text *text) {
    if (text->n > 0) {
        hfe_piece piece = {.text = hd_strndup(ps->p->arena, text->at, text->n)};
        hd_push(ps->p->arena, &e->string.pieces, piece);
        hd_text_init(text, ps->p->arena);
    }
}

/* Parses {expr} between `from` and `to`, with its own tokens and its own recovery from errors. */
static void add_expression(hfe_parser *ps, hfe_expr *e, hd_loc loc, const char *from,
                           const char *to) {
    hfe_tokens tokens = {0};
    size_t errors = ps->p->diags->errors;
    hfe_lex(ps->p, loc, from, to, &tokens);
    hfe_parser inner = *ps;
    inner.at = tokens.list.at;
    inner.last = NULL;
    inner.in_string = true;
    hfe_piece piece = {.value = hfe_parse_expr(&inner)};
    if (!hfe_at(&inner, HFE_T_END) && !hfe_at(&inner, HFE_T_LINE)) hfe_expected(&inner, "'}'");
    ps->failed |= inner.failed || ps->p->diags->errors > errors;
    ps->too_deep |= inner.too_deep;
    hd_push(ps->p->arena, &e->string.pieces, piece);
    add_child(ps, e, piece.value);
}

static const char *closing_brace(const char *at, const char *end) {
    for (int open = 0; at < end; at++) {
        if (*at == '{')
            open++;
        else if (*at == '}' && open-- == 0)
            return at;
    }
    return NULL;
}

static char escape_of(char c) {
    switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case '"':
    case '\\': return c;
    default: return 0;
    }
}

hfe_expr *hfe_parse_string(hfe_parser *ps) {
    const hfe_token *t = hfe_next(ps);
    hfe_expr *e = new_expr(ps, HFE_X_STRING, t->loc);
    hd_text text;
    hd_text_init(&text, ps->p->arena);
    for (const char *c = t->begin; c < t->end; c++) {
        hd_loc here = t->loc;
        here.column = t->loc.column + 1 + (uint32_t)(c - t->begin);
        here.end_column = here.column + 1;
        bool doubled = t->end - c > 1 && c[1] == c[0];
        if (*c == '\\') {
            char escape = escape_of(c[1]);
            here.end_column++;
            if (escape == 0) {
                hd_diag *d = hfe_trouble(ps, here, "unknown escape '\\%c'", c[1]);
                if (d) d->hint = "the escapes are \\\" \\\\ \\n \\t";
            }
            hd_text_add_n(&text, escape != 0 ? &escape : "?", 1);
            c++;
        } else if ((*c == '{' || *c == '}') && doubled) {
            hd_text_add_n(&text, c++, 1);
        } else if (*c == '{') {
            const char *close = closing_brace(c + 1, t->end);
            if (!close) {
                hd_diag *d = hfe_trouble(ps, here, "'{' without '}' in a string");
                if (d) d->hint = "a brace as such is written '{{'";
                break;
            }
            add_text(ps, e, &text);
            here.column++;
            add_expression(ps, e, here, c + 1, close);
            c = close;
        } else if (*c == '}') {
            hd_diag *d = hfe_trouble(ps, here, "'}' without '{' in a string");
            if (d) d->hint = "a brace as such is written '}}'";
            break;
        } else {
            hd_text_add_n(&text, c, 1);
        }
    }
    add_text(ps, e, &text);
    return e;
}

/* ---- lists --------------------------------------------------------------------------------- */
/* Parses a comprehension after `[ value for`. */
static hfe_expr *parse_comprehension(hfe_parser *ps, hd_loc open, hfe_expr *value) {
    hfe_expr *e = new_expr(ps, HFE_X_COMPREHENSION, open);
    e->each.value = value;
    const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "a list made with 'for'");
    if (name && hfe_accept(ps, HFE_P_COMMA)) {
        e->each.index_name = name->name;
        name = hfe_expect(ps, HFE_T_NAME, "a list made with 'for'");
    }
    e->each.name = name ? name->name : NULL;
    hfe_expect(ps, HFE_K_IN, "a list made with 'for'");
    e->each.over = hfe_parse_expr(ps);
    if (hfe_accept(ps, HFE_K_IF)) e->each.condition = hfe_parse_expr(ps);
    hfe_close(ps, HFE_P_RBRACKET, open);
    e->loc = hfe_span(ps, open);
    add_child(ps, e, value);
    add_child(ps, e, e->each.over);
    add_child(ps, e, e->each.condition);
    return e;
}

static hfe_expr *parse_list(hfe_parser *ps) {
    hd_loc open = hfe_next(ps)->loc;
    hfe_expr *e = new_expr(ps, HFE_X_LIST, open);
    while (!hfe_at(ps, HFE_P_RBRACKET) && !ps->panic) {
        hfe_expr *item = hfe_parse_expr(ps);
        if (e->list.list.n == 0 && hfe_accept(ps, HFE_K_FOR))
            return parse_comprehension(ps, open, item);
        hd_push(ps->p->arena, &e->list.list, item);
        add_child(ps, e, item);
        if (!hfe_accept(ps, HFE_P_COMMA)) break;
    }
    hfe_close(ps, HFE_P_RBRACKET, open);
    e->loc = hfe_span(ps, open);
    return e;
}

/* ---- primary and postfix ------------------------------------------------------------------- */
/* Parses { expr } of an if-expression. */
static hfe_expr *parse_branch(hfe_parser *ps) {
    const hfe_token *open = hfe_expect(ps, HFE_P_LBRACE, "an 'if' expression");
    if (!open) return new_expr(ps, HFE_X_ERROR, ps->at->loc);
    hfe_skip_lines(ps);
    hfe_expr *e = hfe_parse_expr(ps);
    hfe_skip_lines(ps);
    hfe_close(ps, HFE_P_RBRACE, open->loc);
    return e;
}

static hfe_expr *parse_if(hfe_parser *ps) {
    hd_loc from = hfe_next(ps)->loc;
    hfe_expr *e = new_expr(ps, HFE_X_IF, from);
    if (!hfe_enter(ps)) return e;
    e->choice.condition = hfe_parse_expr(ps);
    e->choice.yes = parse_branch(ps);
    if (hfe_at(ps, HFE_T_LINE) && ps->at[1].kind == HFE_K_ELSE) hfe_next(ps);
    if (!hfe_accept(ps, HFE_K_ELSE)) {
        hd_diag *d = hfe_expected(ps, "'else'");
        if (d) d->cause = "an 'if' that stands for a value needs one on both sides";
        e->choice.no = new_expr(ps, HFE_X_ERROR, from);
    } else {
        e->choice.no = hfe_at(ps, HFE_K_IF) ? parse_if(ps) : parse_branch(ps);
    }
    e->loc = hfe_span(ps, from);
    add_child(ps, e, e->choice.condition);
    add_child(ps, e, e->choice.yes);
    add_child(ps, e, e->choice.no);
    hfe_leave(ps);
    return e;
}

static hfe_expr *parse_parenthesis(hfe_parser *ps) {
    hd_loc open = hfe_next(ps)->loc;
    hfe_expr *e = hfe_parse_expr(ps);
    hfe_close(ps, HFE_P_RPAREN, open);
    return e;
}

static hfe_expr *parse_op_name(hfe_parser *ps) {
    hd_loc from = hfe_next(ps)->loc;
    hfe_expect(ps, HFE_P_DOT, "'op'");
    const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'op.'");
    if (!name) return new_expr(ps, HFE_X_ERROR, from);
    hfe_expr *e = new_expr(ps, HFE_X_OP_NAME, hfe_span(ps, from));
    e->name = name->name;
    return e;
}

static hfe_expr *parse_primary(hfe_parser *ps) {
    const hfe_token *t = ps->at;
    hfe_expr *e;
    switch (t->kind) {
    case HFE_T_INT:
        e = new_expr(ps, HFE_X_INT, hfe_next(ps)->loc);
        e->integer = t->integer;
        return e;
    case HFE_T_FLOAT:
        e = new_expr(ps, HFE_X_FLOAT, hfe_next(ps)->loc);
        e->number = t->number;
        return e;
    case HFE_K_TRUE:
    case HFE_K_FALSE:
        e = new_expr(ps, HFE_X_BOOL, hfe_next(ps)->loc);
        e->boolean = t->kind == HFE_K_TRUE;
        return e;
    case HFE_K_NONE: return new_expr(ps, HFE_X_NONE, hfe_next(ps)->loc);
    case HFE_T_NAME:
        e = new_expr(ps, HFE_X_NAME, hfe_next(ps)->loc);
        e->name = t->name;
        return e;
    case HFE_T_STRING: return hfe_parse_string(ps);
    case HFE_K_OP: return parse_op_name(ps);
    case HFE_P_LPAREN: return parse_parenthesis(ps);
    case HFE_P_LBRACKET: return parse_list(ps);
    case HFE_K_IF: return parse_if(ps);
    default: {
        hd_diag *d = hfe_expected(ps, "a value");
        if (d && t->name)
            d->hint = hd_printf(ps->p->arena, "'%s' is a word of the language", t->name);
        return new_expr(ps, HFE_X_ERROR, t->loc);
    }
    }
}

static void parse_argument(hfe_parser *ps, hfe_expr *call) {
    hfe_arg arg = {0};
    bool equals = hfe_at(ps, HFE_T_NAME) && ps->at[1].kind == HFE_P_ASSIGN;
    if (equals) {
        hd_diag *d = hfe_trouble(ps, ps->at[1].loc, "'=' does not name an argument");
        if (d) d->hint = hd_printf(ps->p->arena, "write '%s: value'", ps->at->name);
        return;
    }
    bool keyword = ps->at->name && ps->at[1].kind == HFE_P_COLON;
    if (keyword) {
        const hfe_token *name = hfe_next(ps);
        arg.name = name->name;
        arg.name_loc = name->loc;
        hfe_next(ps);
    }
    arg.value = hfe_parse_expr(ps);
    hd_push(ps->p->arena, &call->call.args, arg);
    add_child(ps, call, arg.value);
}

static hfe_expr *parse_call(hfe_parser *ps, hfe_expr *callee) {
    hd_loc open = hfe_next(ps)->loc;
    hfe_expr *e = new_expr(ps, HFE_X_CALL, callee->loc);
    e->call.callee = callee;
    add_child(ps, e, callee);
    while (!hfe_at(ps, HFE_P_RPAREN) && !ps->panic) {
        parse_argument(ps, e);
        if (!hfe_accept(ps, HFE_P_COMMA)) break;
    }
    hfe_close(ps, HFE_P_RPAREN, open);
    e->loc = hfe_span(ps, callee->loc);
    return e;
}

/* Parses [i] and [a..b]; either end of a slice may be missing. */
static hfe_expr *parse_index(hfe_parser *ps, hfe_expr *base) {
    hd_loc open = hfe_next(ps)->loc;
    hfe_expr *from = hfe_at(ps, HFE_P_RANGE) ? NULL : hfe_parse_expr(ps);
    hfe_expr *e = new_expr(ps, HFE_X_INDEX, base->loc);
    add_child(ps, e, base);
    if (from && from->kind == HFE_X_BINARY && from->binary.op == HFE_RANGE) {
        e->kind = HFE_X_SLICE;
        e->slice.base = base;
        e->slice.from = from->binary.left;
        e->slice.to = from->binary.right;
    } else if (hfe_accept(ps, HFE_P_RANGE)) {
        e->kind = HFE_X_SLICE;
        e->slice.base = base;
        e->slice.from = from;
        e->slice.to = hfe_at(ps, HFE_P_RBRACKET) ? NULL : hfe_parse_expr(ps);
        add_child(ps, e, e->slice.to);
    } else {
        e->index.base = base;
        e->index.index = from;
    }
    add_child(ps, e, from);
    hfe_close(ps, HFE_P_RBRACKET, open);
    e->loc = hfe_span(ps, base->loc);
    return e;
}

static hfe_expr *parse_field(hfe_parser *ps, hfe_expr *base) {
    hfe_next(ps);
    const hfe_token *name = hfe_expect(ps, HFE_T_NAME, "'.'");
    if (!name) return base;
    hfe_expr *e = new_expr(ps, HFE_X_FIELD, hfe_span(ps, base->loc));
    e->field.base = base;
    e->field.name = name->name;
    e->field.name_loc = name->loc;
    add_child(ps, e, base);
    return e;
}

static hfe_expr *parse_postfix(hfe_parser *ps) {
    hfe_expr *e = parse_primary(ps);
    while (!ps->panic) {
        if (hfe_at(ps, HFE_P_LPAREN))
            e = parse_call(ps, e);
        else if (hfe_at(ps, HFE_P_LBRACKET))
            e = parse_index(ps, e);
        else if (hfe_at(ps, HFE_P_DOT))
            e = parse_field(ps, e);
        else
            break;
    }
    return e;
}

/* ---- operators ----------------------------------------------------------------------------- */
static hfe_expr *parse_level(hfe_parser *ps, int level);

static hfe_expr *parse_prefix(hfe_parser *ps, int level) {
    bool negated = hfe_at(ps, HFE_K_NOT) && level <= NOT;
    if (!negated && !hfe_at(ps, HFE_P_MINUS)) return parse_postfix(ps);
    hd_loc from = hfe_next(ps)->loc;
    if (!hfe_enter(ps)) return new_expr(ps, HFE_X_ERROR, from);
    hfe_expr *operand = negated ? parse_level(ps, NOT) : parse_prefix(ps, PRODUCT + 1);
    hfe_leave(ps);
    hfe_expr *e = new_expr(ps, negated ? HFE_X_NOT : HFE_X_NEG, hfe_span(ps, from));
    e->operand = operand;
    add_child(ps, e, operand);
    return e;
}

static int operator_at(const hfe_parser *ps) {
    for (int i = 0; i < N_OPERATORS; i++)
        if (operators[i].token == ps->at->kind) return i;
    return -1;
}

static hfe_expr *parse_level(hfe_parser *ps, int level) {
    hfe_expr *left = parse_prefix(ps, level);
    int before = 0; /* level of the previous operator, for operators that do not chain */
    while (!ps->panic) {
        int i = operator_at(ps);
        if (i < 0 || operators[i].level < level ||
            (operators[i].op == HFE_RANGE && ps->at[1].kind == HFE_P_RBRACKET))
            break;
        bool chains = operators[i].level != COMPARE && operators[i].level != RANGE;
        if (!chains && before == operators[i].level) {
            hd_diag *d =
                hfe_trouble(ps, ps->at->loc, "'%s' cannot follow another one", operators[i].text);
            if (d && before == COMPARE) d->hint = "write 'a < b and b < c'";
            break;
        }
        before = operators[i].level;
        hfe_next(ps);
        hfe_expr *right = parse_level(ps, before + 1);
        left = binary(ps, operators[i].op, left, right);
    }
    return left;
}

hfe_expr *hfe_parse_expr(hfe_parser *ps) {
    if (!hfe_enter(ps)) return new_expr(ps, HFE_X_ERROR, ps->at->loc);
    hfe_expr *e = parse_level(ps, OR_ELSE);
    hfe_leave(ps);
    return e;
}
