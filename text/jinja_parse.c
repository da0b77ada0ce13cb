/* The syntax of templates, as the parser of Jinja has it: tokens in, a tree out. */
#include <string.h>

#include "text/jinja_tree.h"

typedef struct parser {
    jinja_syntax syntax;
    hd_arena *arena;
    jinja_template *t;
    const token *at;
    int depth, loops; /* loops: how many loops surround the place */
} parser;

static jinja_node *expression(parser *p);
static jinja_node *condition_free(parser *p);
static jinja_node *unary(parser *p, bool with_filters);
static void statements(parser *p, const char *ends, node_list *out);
static jinja_node *tuple(parser *p, bool simple, bool conditional, const char *end);

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool is_op(const parser *p, unsigned op) {
    return p->at->kind == TOKEN_OPERATOR && p->at->op == op;
}

static bool is_word(const token *t, const char *word) {
    return t->kind == TOKEN_NAME && t->text.n == strlen(word) &&
           memcmp(t->text.at, word, t->text.n) == 0;
}

/* Is the token one of the words, which have spaces between them? */
static bool is_one_of(const token *t, const char *words) {
    for (size_t n; *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        if (t->kind == TOKEN_NAME && t->text.n == n && memcmp(t->text.at, words, n) == 0)
            return true;
    }
    return false;
}

static const token *next(parser *p) {
    return p->at->kind == TOKEN_END ? p->at : p->at++;
}

static bool skip_op(parser *p, char c) {
    if (!is_op(p, OPERATOR(c, 0))) return false;
    next(p);
    return true;
}

static bool skip_word(parser *p, const char *word) {
    if (!is_word(p->at, word)) return false;
    next(p);
    return true;
}

static const char *shown(parser *p, const token *t) {
    switch (t->kind) {
    case TOKEN_END: return "the end of the template";
    case TOKEN_TEXT: return "text";
    case TOKEN_BLOCK_BEGIN: return "'{%'";
    case TOKEN_BLOCK_END: return "'%}'";
    case TOKEN_OUTPUT_BEGIN: return "'{{'";
    case TOKEN_OUTPUT_END: return "'}}'";
    case TOKEN_NAME:
        return hd_printf(p->arena, "'%.*s'", (int)(t->text.n < 40 ? t->text.n : 40), t->text.at);
    case TOKEN_STRING: return "a string";
    case TOKEN_INT:
    case TOKEN_FLOAT: return "a number";
    case TOKEN_OPERATOR:
        return hd_printf(p->arena, "'%c%.1s'", (char)t->op, (char[]){(char)(t->op >> 8), 0});
    }
    return "";
}

static _Noreturn void unexpected(parser *p, const char *wanted) {
    jinja_reject(&p->syntax, p->at->line, "expected %s, not %s", wanted, shown(p, p->at));
}

static void expect_op(parser *p, char c) {
    if (!skip_op(p, c)) unexpected(p, hd_printf(p->arena, "'%c'", c));
}

static void expect_word(parser *p, const char *word) {
    if (!skip_word(p, word)) unexpected(p, hd_printf(p->arena, "'%s'", word));
}

static const token *expect(parser *p, token_kind kind, const char *what) {
    if (p->at->kind != kind) unexpected(p, what);
    return next(p);
}

static void enter(parser *p) {
    if (++p->depth > JINJA_MOST_NESTING)
        jinja_reject(&p->syntax, p->at->line, "more than %d expressions and blocks in each other",
                     JINJA_MOST_NESTING);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static jinja_node *node(parser *p, node_kind kind, unsigned line) {
    jinja_node *n = hd_new(p->arena, jinja_node);
    n->kind = kind, n->line = line, n->name = -1;
    return n;
}

static jinja_node *of_two(parser *p, node_kind kind, jinja_node *a, jinja_node *b) {
    jinja_node *n = node(p, kind, a->line);
    n->a = a, n->b = b;
    return n;
}

static const jinja_string *kept(parser *p, string s) {
    jinja_string *out = hd_new(p->arena, jinja_string);
    *out = (jinja_string){s.at, s.n, NULL, false};
    return out;
}

static int32_t name_id(parser *p, string s) {
    jinja_template *t = p->t;
    const int32_t old = string_map_find(&t->ids, s.at, s.n);
    if (old >= 0) return old;
    const int32_t id = (int32_t)t->names.n;
    hd_push(p->arena, &t->names, kept(p, s));
    string_map_add(&t->ids, s.at, s.n, id);
    return id;
}

static void add(parser *p, node_list *list, jinja_node *n) {
    hd_push(p->arena, list, n);
}

static jinja_node *constant(parser *p, jinja_value v, unsigned line) {
    jinja_node *n = node(p, N_CONST, line);
    n->value = v;
    return n;
}

static jinja_node *string_constant(parser *p, string s, unsigned line) {
    hd_push(p->arena, &p->t->literals, s);
    return constant(p, jinja_of(kept(p, s)), line);
}

/* ---- primaries ------------------------------------------------------------------------------- */

/* Strings next to each other are one. */
static jinja_node *strings(parser *p) {
    const token *first = next(p);
    if (p->at->kind != TOKEN_STRING) return string_constant(p, first->text, first->line);
    hd_text all;
    hd_text_init(&all, p->arena);
    hd_text_add_n(&all, first->text.at, first->text.n);
    while (p->at->kind == TOKEN_STRING) {
        hd_text_add_n(&all, p->at->text.at, p->at->text.n);
        next(p);
    }
    return string_constant(p, (string){all.at, all.n}, first->line);
}

static jinja_node *list_literal(parser *p) {
    jinja_node *n = node(p, N_LIST, p->at->line);
    while (!skip_op(p, ']')) {
        if (n->list.n) {
            expect_op(p, ',');
            if (skip_op(p, ']')) break;
        }
        add(p, &n->list, expression(p));
    }
    return n;
}

static jinja_node *dict_literal(parser *p) {
    jinja_node *n = node(p, N_DICT, p->at->line);
    while (!skip_op(p, '}')) {
        if (n->list.n) {
            expect_op(p, ',');
            if (skip_op(p, '}')) break;
        }
        add(p, &n->list, expression(p));
        expect_op(p, ':');
        add(p, &n->list, expression(p));
    }
    return n;
}

static jinja_node *name_or_constant(parser *p) {
    const token *t = next(p);
    if (is_one_of(t, "true True")) return constant(p, jinja_bool(true), t->line);
    if (is_one_of(t, "false False")) return constant(p, jinja_bool(false), t->line);
    if (is_one_of(t, "none None")) return constant(p, jinja_none(), t->line);
    jinja_node *n = node(p, N_NAME, t->line);
    n->name = name_id(p, t->text);
    return n;
}

static jinja_node *parenthesised(parser *p) {
    next(p);
    if (is_op(p, OPERATOR(')', 0))) {
        next(p);
        return node(p, N_TUPLE, p->at->line);
    }
    jinja_node *n = tuple(p, false, true, ")");
    expect_op(p, ')');
    return n;
}

static jinja_node *primary(parser *p) {
    const token *t = p->at;
    switch (t->kind) {
    case TOKEN_NAME: return name_or_constant(p);
    case TOKEN_STRING: return strings(p);
    case TOKEN_INT: next(p); return constant(p, jinja_int(t->number), t->line);
    case TOKEN_FLOAT: next(p); return constant(p, jinja_real(t->real), t->line);
    default: break;
    }
    if (is_op(p, OPERATOR('(', 0))) return parenthesised(p);
    if (skip_op(p, '[')) return list_literal(p);
    if (skip_op(p, '{')) return dict_literal(p);
    unexpected(p, "an expression");
}

/* ---- what follows a primary ------------------------------------------------------------------ */

static bool ends_slice(const parser *p) {
    return is_op(p, OPERATOR(':', 0)) || is_op(p, OPERATOR(']', 0)) || is_op(p, OPERATOR(',', 0));
}

/* An index, or a slice. */
static jinja_node *subscript(parser *p) {
    jinja_node *slice = node(p, N_SLICE, p->at->line),
               **parts[] = {&slice->a, &slice->b, &slice->c};
    if (!is_op(p, OPERATOR(':', 0))) {
        jinja_node *first = expression(p);
        if (!is_op(p, OPERATOR(':', 0))) return first;
        slice->a = first;
    }
    for (int i = 1; i < 3 && skip_op(p, ':'); i++)
        if (!ends_slice(p)) *parts[i] = expression(p);
    return slice;
}

static jinja_node *member(parser *p, jinja_node *of) {
    const token *t = next(p); /* . or [ */
    if (t->op == OPERATOR('.', 0)) {
        const token *name = next(p);
        if (name->kind == TOKEN_INT)
            return of_two(p, N_ITEM, of, constant(p, jinja_int(name->number), name->line));
        if (name->kind != TOKEN_NAME) {
            p->at = name;
            unexpected(p, "a name or a number after '.'");
        }
        jinja_node *n = of_two(p, N_ATTRIBUTE, of, NULL);
        n->text = kept(p, name->text), n->line = name->line;
        return n;
    }
    jinja_node *n = of_two(p, N_ITEM, of, subscript(p));
    n->line = t->line;
    if (is_op(p, OPERATOR(',', 0))) {
        jinja_node *all = node(p, N_TUPLE, t->line);
        add(p, &all->list, n->b);
        while (skip_op(p, ','))
            add(p, &all->list, subscript(p));
        n->b = all;
    }
    expect_op(p, ']');
    return n;
}

static void arguments(parser *p, node_list *out) {
    bool by_name = false, any = false;
    expect_op(p, '(');
    while (!skip_op(p, ')')) {
        if (any) {
            expect_op(p, ',');
            if (skip_op(p, ')')) return;
        }
        any = true;
        if (is_op(p, OPERATOR('*', '*')))
            jinja_reject(&p->syntax, p->at->line, "arguments by ** are not known here");
        const bool star = skip_op(p, '*');
        if (p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR &&
            p->at[1].op == OPERATOR('=', 0)) {
            jinja_node *n = node(p, N_KEYWORD, p->at->line);
            n->text = kept(p, next(p)->text);
            n->name = name_id(p, (string){n->text->at, n->text->n});
            next(p);
            n->a = expression(p);
            add(p, out, n);
            by_name = true;
            continue;
        }
        if (by_name && !star)
            jinja_reject(&p->syntax, p->at->line,
                         "an argument without a name after one with a name");
        jinja_node *value = expression(p);
        add(p, out, star ? of_two(p, N_STAR, value, NULL) : value);
    }
}

static jinja_node *call(parser *p, jinja_node *of) {
    jinja_node *n = of_two(p, N_CALL, of, NULL);
    n->line = p->at->line;
    arguments(p, &n->list);
    return n;
}

static jinja_node *postfix(parser *p, jinja_node *n) {
    for (;;) {
        if (is_op(p, OPERATOR('.', 0)) || is_op(p, OPERATOR('[', 0)))
            n = member(p, n);
        else if (is_op(p, OPERATOR('(', 0)))
            n = call(p, n);
        else
            return n;
    }
}

static const jinja_string *dotted(parser *p) {
    hd_text name;
    const token *t = expect(p, TOKEN_NAME, "a name");
    hd_text_init(&name, p->arena);
    hd_text_add_n(&name, t->text.at, t->text.n);
    while (skip_op(p, '.')) {
        t = expect(p, TOKEN_NAME, "a name");
        hd_text_add(&name, ".");
        hd_text_add_n(&name, t->text.at, t->text.n);
    }
    return kept(p, (string){name.at, name.n});
}

/* Filters, each after a bar; the first one may come without it. */
static jinja_node *filters(parser *p, jinja_node *n, bool begun) {
    while (begun || skip_op(p, '|')) {
        jinja_node *f = node(p, N_FILTER, p->at->line);
        f->a = n;
        f->text = dotted(p);
        if (is_op(p, OPERATOR('(', 0))) arguments(p, &f->list);
        n = f;
        begun = false;
    }
    return n;
}

static bool begins_argument(const parser *p) {
    const token *t = p->at;
    if (is_one_of(t, "else or and")) return false;
    return t->kind == TOKEN_NAME || t->kind == TOKEN_STRING || t->kind == TOKEN_INT ||
           t->kind == TOKEN_FLOAT || is_op(p, OPERATOR('(', 0)) || is_op(p, OPERATOR('[', 0)) ||
           is_op(p, OPERATOR('{', 0));
}

static jinja_node *test(parser *p, jinja_node *of) {
    jinja_node *n = of_two(p, N_TEST, of, NULL);
    n->line = p->at->line;
    next(p);
    n->flag = skip_word(p, "not");
    n->text = dotted(p);
    if (is_op(p, OPERATOR('(', 0))) {
        arguments(p, &n->list);
    } else if (begins_argument(p)) {
        if (is_word(p->at, "is"))
            jinja_reject(&p->syntax, p->at->line, "a test of a test needs brackets");
        add(p, &n->list, postfix(p, primary(p)));
    }
    return n;
}

static jinja_node *filters_and_tests(parser *p, jinja_node *n) {
    for (;;) {
        if (is_op(p, OPERATOR('|', 0)))
            n = filters(p, n, false);
        else if (is_word(p->at, "is"))
            n = test(p, n);
        else if (is_op(p, OPERATOR('(', 0)))
            n = call(p, n);
        else
            return n;
    }
}

/* ---- operators, the tightest first ----------------------------------------------------------- */

static jinja_node *unary(parser *p, bool with_filters) {
    jinja_node *n;
    const unsigned line = p->at->line;
    enter(p);
    if (is_op(p, OPERATOR('-', 0)) || is_op(p, OPERATOR('+', 0))) {
        n = node(p, next(p)->op == OPERATOR('-', 0) ? N_MINUS : N_PLUS, line);
        n->a = unary(p, false);
    } else {
        n = postfix(p, primary(p));
    }
    if (with_filters) n = filters_and_tests(p, n);
    p->depth--;
    return n;
}

static jinja_node *binary(parser *p, jinja_node *a, jinja_node *(*right)(parser *)) {
    const token *t = next(p);
    jinja_node *n = of_two(p, N_BINARY, a, right(p));
    n->op = t->op, n->line = t->line;
    return n;
}

static jinja_node *filtered_unary(parser *p) {
    return unary(p, true);
}

static jinja_node *power(parser *p) {
    jinja_node *n = unary(p, true);
    while (is_op(p, OPERATOR('*', '*')))
        n = binary(p, n, filtered_unary);
    return n;
}

static jinja_node *product(parser *p) {
    jinja_node *n = power(p);
    while (is_op(p, OPERATOR('*', 0)) || is_op(p, OPERATOR('/', 0)) ||
           is_op(p, OPERATOR('/', '/')) || is_op(p, OPERATOR('%', 0)))
        n = binary(p, n, power);
    return n;
}

static jinja_node *concatenation(parser *p) {
    jinja_node *first = product(p);
    if (!is_op(p, OPERATOR('~', 0))) return first;
    jinja_node *n = node(p, N_CONCAT, first->line);
    add(p, &n->list, first);
    while (skip_op(p, '~'))
        add(p, &n->list, product(p));
    return n;
}

static jinja_node *sum(parser *p) {
    jinja_node *n = concatenation(p);
    while (is_op(p, OPERATOR('+', 0)) || is_op(p, OPERATOR('-', 0)))
        n = binary(p, n, concatenation);
    return n;
}

/* Returns the comparison at the place, and skips it; 0: there is none. */
static unsigned comparison_op(parser *p) {
    static const unsigned ops[] = {OPERATOR('=', '='), OPERATOR('!', '='), OPERATOR('<', 0),
                                   OPERATOR('<', '='), OPERATOR('>', 0),   OPERATOR('>', '=')};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (is_op(p, ops[i])) {
            next(p);
            return ops[i];
        }
    if (skip_word(p, "in")) return 'i';
    if (is_word(p->at, "not") && is_word(&p->at[1], "in")) {
        next(p), next(p);
        return 'n';
    }
    return 0;
}

static jinja_node *comparison(parser *p) {
    jinja_node *n = sum(p);
    unsigned line = p->at->line, op = comparison_op(p);
    if (!op) return n;
    n = of_two(p, N_COMPARE, n, NULL);
    for (; op; line = p->at->line, op = comparison_op(p)) {
        jinja_node *right = node(p, N_OPERAND, line);
        right->op = op, right->a = sum(p);
        add(p, &n->list, right);
    }
    return n;
}

static jinja_node *negation(parser *p) {
    if (!is_word(p->at, "not")) return comparison(p);
    enter(p);
    jinja_node *n = node(p, N_NOT, next(p)->line);
    n->a = negation(p);
    p->depth--;
    return n;
}

static jinja_node *conjunction(parser *p) {
    jinja_node *n = negation(p);
    while (skip_word(p, "and"))
        n = of_two(p, N_AND, n, negation(p));
    return n;
}

static jinja_node *condition_free(parser *p) {
    jinja_node *n = conjunction(p);
    while (skip_word(p, "or"))
        n = of_two(p, N_OR, n, conjunction(p));
    return n;
}

static jinja_node *expression(parser *p) {
    enter(p);
    jinja_node *n = condition_free(p);
    while (skip_word(p, "if")) {
        jinja_node *c = node(p, N_COND, n->line);
        c->a = n, c->b = condition_free(p);
        if (skip_word(p, "else")) c->c = expression(p);
        n = c;
    }
    p->depth--;
    return n;
}

/* ---- tuples and targets ---------------------------------------------------------------------- */

/* Can no further element of a tuple begin here? `end`: words or brackets that end it as well. */
static bool ends_tuple(const parser *p, const char *end) {
    if (p->at->kind == TOKEN_OUTPUT_END || p->at->kind == TOKEN_BLOCK_END ||
        p->at->kind == TOKEN_END || is_op(p, OPERATOR(')', 0)))
        return true;
    return end && is_one_of(p->at, end);
}

static jinja_node *tuple(parser *p, bool simple, bool conditional, const char *end) {
    jinja_node *all = node(p, N_TUPLE, p->at->line);
    bool comma = false;
    while (!ends_tuple(p, end)) {
        add(p, &all->list, simple ? primary(p) : conditional ? expression(p) : condition_free(p));
        if (!skip_op(p, ',')) break;
        comma = true;
    }
    if (!all->list.n) unexpected(p, "an expression");
    return comma ? all : all->list.at[0];
}

static void check_target(parser *p, const jinja_node *n) {
    for (size_t i = 0; n->kind == N_TUPLE && i < n->list.n; i++)
        if (n->list.at[i]->kind != N_NAME) n = n->list.at[i];
    if (n->kind != N_NAME && n->kind != N_TUPLE)
        jinja_reject(&p->syntax, n->line, "a value can be given to a name only");
}

static jinja_node *target(parser *p, bool members, const char *end) {
    if (members && p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_OPERATOR &&
        p->at[1].op == OPERATOR('.', 0)) {
        jinja_node *n = node(p, N_MEMBER, p->at->line);
        n->a = name_or_constant(p);
        next(p);
        n->text = kept(p, expect(p, TOKEN_NAME, "a name")->text);
        if (n->a->kind != N_NAME) check_target(p, n->a);
        return n;
    }
    jinja_node *n = tuple(p, true, false, end);
    check_target(p, n);
    return n;
}

/* ---- statements ------------------------------------------------------------------------------ */

static void end_block(parser *p) {
    (void)expect(p, TOKEN_BLOCK_END, "'%}'");
}

/* The statements of a block, and the word that ends it, whose tag is left open. */
static const token *body(parser *p, const char *ends, node_list *out) {
    end_block(p);
    statements(p, ends, out);
    return next(p);
}

static jinja_node *if_block(parser *p, unsigned line) {
    jinja_node *n = node(p, N_IF, line);
    for (;;) {
        jinja_node *then = node(p, N_BODY, line);
        add(p, &n->list, tuple(p, false, false, NULL));
        const token *end = body(p, "elif else endif", &then->list);
        add(p, &n->list, then);
        if (is_word(end, "elif")) continue;
        if (is_word(end, "else")) {
            n->b = node(p, N_BODY, line);
            (void)body(p, "endif", &n->b->list);
        }
        end_block(p);
        return n;
    }
}

static jinja_node *for_block(parser *p, unsigned line) {
    jinja_node *n = node(p, N_FOR, line);
    n->a = target(p, false, "in");
    expect_word(p, "in");
    n->b = tuple(p, false, false, "recursive");
    if (skip_word(p, "if")) n->c = expression(p);
    n->flag = skip_word(p, "recursive");
    p->loops++;
    const token *end = body(p, "endfor else", &n->list);
    p->loops--;
    if (is_word(end, "else")) {
        n->d = node(p, N_BODY, line);
        (void)body(p, "endfor", &n->d->list);
    }
    end_block(p);
    return n;
}

/* The statements of a block in which loops outside of it cannot be left. */
static void own_body(parser *p, const char *end, node_list *out) {
    const int loops = p->loops;
    p->loops = 0;
    (void)body(p, end, out);
    p->loops = loops;
    end_block(p);
}

static jinja_node *set_block(parser *p, unsigned line) {
    jinja_node *to = target(p, true, NULL);
    if (skip_op(p, '=')) {
        jinja_node *n = of_two(p, N_SET, to, tuple(p, false, true, NULL));
        n->line = line;
        end_block(p);
        return n;
    }
    jinja_node *n = of_two(p, N_CAPTURE, to, filters(p, NULL, false));
    n->line = line;
    own_body(p, "endset", &n->list);
    return n;
}

static void parameters(parser *p, node_list *out) {
    bool defaults = false;
    expect_op(p, '(');
    while (!skip_op(p, ')')) {
        if (out->n) expect_op(p, ',');
        jinja_node *n = node(p, N_KEYWORD, p->at->line);
        n->text = kept(p, expect(p, TOKEN_NAME, "the name of a parameter")->text);
        n->name = name_id(p, (string){n->text->at, n->text->n});
        if (skip_op(p, '='))
            n->a = expression(p), defaults = true;
        else if (defaults)
            jinja_reject(&p->syntax, n->line,
                         "a parameter without a default after one with a default");
        add(p, out, n);
    }
}

static jinja_node *macro(parser *p, unsigned line) {
    jinja_node *n = node(p, N_MACRO, line);
    n->text = kept(p, expect(p, TOKEN_NAME, "the name of the macro")->text);
    n->name = name_id(p, (string){n->text->at, n->text->n});
    parameters(p, &n->parameters);
    own_body(p, "endmacro", &n->list);
    return n;
}

static jinja_node *call_block(parser *p, unsigned line) {
    jinja_node *caller = node(p, N_MACRO, line), *n = node(p, N_CALLER, line);
    caller->name = p->t->caller;
    caller->text = p->t->names.at[p->t->caller];
    if (is_op(p, OPERATOR('(', 0))) parameters(p, &caller->parameters);
    n->a = expression(p), n->b = caller;
    if (n->a->kind != N_CALL) jinja_reject(&p->syntax, line, "{%% call %%} must call a macro");
    own_body(p, "endcall", &caller->list);
    return n;
}

static jinja_node *with_block(parser *p, unsigned line) {
    jinja_node *n = node(p, N_WITH, line);
    while (p->at->kind != TOKEN_BLOCK_END) {
        if (n->parameters.n) expect_op(p, ',');
        jinja_node *to = target(p, false, NULL);
        expect_op(p, '=');
        add(p, &n->parameters, of_two(p, N_SET, to, expression(p)));
    }
    (void)body(p, "endwith", &n->list);
    end_block(p);
    return n;
}

static jinja_node *leave_loop(parser *p, node_kind kind, unsigned line) {
    if (!p->loops) jinja_reject(&p->syntax, line, "there is no loop to leave here");
    end_block(p);
    return node(p, kind, line);
}

static jinja_node *statement(parser *p) {
    const token *t = expect(p, TOKEN_NAME, "the name of a tag");
    if (is_word(t, "if")) return if_block(p, t->line);
    if (is_word(t, "for")) return for_block(p, t->line);
    if (is_word(t, "set")) return set_block(p, t->line);
    if (is_word(t, "macro")) return macro(p, t->line);
    if (is_word(t, "call")) return call_block(p, t->line);
    if (is_word(t, "with")) return with_block(p, t->line);
    if (is_word(t, "break")) return leave_loop(p, N_BREAK, t->line);
    if (is_word(t, "continue")) return leave_loop(p, N_CONTINUE, t->line);
    if (is_word(t, "filter")) {
        jinja_node *n = node(p, N_FILTERED, t->line);
        n->b = filters(p, NULL, true);
        own_body(p, "endfilter", &n->list);
        return n;
    }
    if (is_word(t, "generation")) {
        jinja_node *n = node(p, N_SCOPE, t->line);
        own_body(p, "endgeneration", &n->list);
        return n;
    }
    if (is_one_of(t, "include import from extends block autoescape print"))
        jinja_reject(&p->syntax, t->line, "the tag '%.*s' is not known in chat templates",
                     (int)t->text.n, t->text.at);
    p->at = t;
    unexpected(p, "the name of a tag");
}

/* Everything up to a tag whose name is in `ends` (NULL: the end of the template). */
static void statements(parser *p, const char *ends, node_list *out) {
    enter(p);
    for (;;) {
        const token *t = p->at;
        if (t->kind == TOKEN_END) {
            if (ends) unexpected(p, hd_printf(p->arena, "a tag '%s'", ends));
            break;
        }
        next(p);
        if (t->kind == TOKEN_TEXT) {
            jinja_node *n = node(p, N_TEXT, t->line);
            n->text = kept(p, t->text);
            hd_push(p->arena, &p->t->literals, t->text);
            add(p, out, n);
        } else if (t->kind == TOKEN_OUTPUT_BEGIN) {
            jinja_node *n = node(p, N_OUTPUT, t->line);
            n->a = tuple(p, false, true, NULL);
            (void)expect(p, TOKEN_OUTPUT_END, "'}}'");
            add(p, out, n);
        } else {
            if (ends && is_one_of(p->at, ends)) break;
            add(p, out, statement(p));
        }
    }
    p->depth--;
}

const jinja_template *jinja_parse(hd_arena *a, const char *source, size_t n, jinja_error *error) {
    static const string loop = {"loop", 4}, caller = {"caller", 6};
    parser p = {.arena = a, .syntax = {.arena = a, .error = error}};
    token_list tokens = {0};
    *error = (jinja_error){0};
    if (setjmp(p.syntax.entry)) return NULL;
    if (n > JINJA_MOST_SOURCE)
        jinja_reject(&p.syntax, 0, "the template has more than %d bytes", JINJA_MOST_SOURCE);
    jinja_lex(&p.syntax, source, n, &tokens);
    p.t = hd_new(a, jinja_template);
    p.t->arena = a;
    string_map_init(&p.t->ids, a, tokens.n + 2);
    p.t->loop = name_id(&p, loop), p.t->caller = name_id(&p, caller);
    p.at = tokens.at;
    statements(&p, NULL, &p.t->body);
    return p.t;
}

bool jinja_mentions(const jinja_template *t, const char *text, size_t n) {
    for (size_t i = 0; i < t->literals.n; i++)
        if (memmem(t->literals.at[i].at, t->literals.at[i].n, text, n)) return true;
    return false;
}
