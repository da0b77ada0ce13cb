/* The program as Python. What is read once, and is short, is written where it is read. */
#include <string.h>

#include "torch/program.h"

enum { SUM = 1, PRODUCT = 2, ATOM = 3 }; /* how tightly an expression binds */
enum { LONGEST_INLINE = 64, LINE = 100 };

typedef struct expression {
    const char *text;
    int binds;
} expression;

typedef struct printer {
    const hpt_program *p;
    hd_text *out;
    const char *scope; /* the weights that names are in: "w", "self" */
    const char *like;  /* a tensor with a row for each token */
    int indent;
    bool last;  /* is it the last node of a function, which may be its result? */
    uint32_t n; /* variables */
    const char **name;
    uint32_t *reads;
    expression *waiting; /* written where the variable is read; text NULL: not so */
    HD_VEC(uint32_t) all_waiting;
    HD_VEC(const char *) used;
} printer;

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_reserved(const printer *t, const char *name) {
    if (hpt_is_taken(name)) return true;
    for (size_t i = 0; i < t->p->functions.n; i++)
        if (strcmp(t->p->functions.at[i]->name, name) == 0) return true;
    for (size_t i = 0; i < t->used.n; i++)
        if (strcmp(t->used.at[i], name) == 0) return true;
    return false;
}

static const char *name_variable(printer *t, uint32_t v) {
    const char *noun = t->p->variables.at[v].noun, *name = noun;
    for (int number = 1; is_reserved(t, name); number++)
        name = hd_printf(t->p->a, "%s%d", noun, number);
    hd_push(t->p->a, &t->used, name);
    return t->name[v] = name;
}

/* ---- numbers, weights ------------------------------------------------------------------------ */

static void print_double(double x, hd_text *out) {
    if (x != x || x - x != 0)
        hd_text_f(out, "float(\"%s\")", x != x ? "nan" : x > 0 ? "inf" : "-inf");
    else
        hd_text_double(out, x);
}

void hpt_print_number(hpt_number n, hd_text *out) {
    if (n.text) {
        hd_text_add(out, n.text);
    } else if (!n.n) {
        print_double(n.at, out);
    } else {
        for (uint32_t i = 0; i < n.n; i++) {
            hd_text_add(out, i ? ", " : "(");
            print_double(n.many[i], out);
        }
        hd_text_add(out, n.n == 1 ? ",)" : ")");
    }
}

static const char *number_text(const printer *t, hpt_number n) {
    hd_text out;
    hd_text_init(&out, t->p->a);
    hpt_print_number(n, &out);
    return out.at;
}

static expression number(const printer *t, hpt_number n) {
    const char *text = number_text(t, n);
    const bool table = text[strlen(text) - 1] == ']'; /* the entry of one */
    return (expression){text, strchr(text, ' ') && !table ? SUM : ATOM};
}

/* A name in quotes; it is an f-string where it has a number that is not known here. */
static const char *quoted_name(const printer *t, const hpt_name *name) {
    hd_text out;
    hd_text_init(&out, t->p->a);
    bool computed = false;
    for (uint32_t i = 0; i < name->n; i++)
        computed = computed || name->number[i].text;
    uint32_t number = 0;
    for (const char *at = name->pattern; *at; at++) {
        if (*at == '#' && (at == name->pattern || at[-1] == '.') && (!at[1] || at[1] == '.')) {
            const hpt_number n = name->number[number++];
            hd_text_f(&out, n.text ? "{%s}" : "%s", number_text(t, n));
        } else {
            hpt_add_in_name(&out, *at, computed);
        }
    }
    return hd_printf(t->p->a, "%s\"%s\"", computed ? "f" : "", out.at ? out.at : "");
}

/* w["self_attn"].derived_A_log */
static const char *property_text(const printer *t, const hpt_name *name) {
    const char *dot = strrchr(name->pattern, '.');
    if (!dot) return hd_printf(t->p->a, "%s.%s", t->scope, name->pattern);
    hpt_name scope = *name;
    scope.pattern = hd_strndup(t->p->a, name->pattern, (size_t)(dot - name->pattern));
    return hd_printf(t->p->a, "%s[%s].%s", t->scope, quoted_name(t, &scope), dot + 1);
}

static const char *weight_text(const printer *t, const hpt_ref *ref) {
    if (ref->kind == HPT_SCOPE && !*ref->name.pattern) return t->scope;
    if (ref->derived) return property_text(t, &ref->name);
    const char *name = quoted_name(t, &ref->name);
    if (ref->parts)
        return hd_printf(t->p->a, "stacked(%s, %s, %lld)", t->scope, name, (long long)ref->parts);
    return hd_printf(t->p->a, "%s[%s]", t->scope, name);
}

const char *hpt_weight_text(const hpt_program *p, const hpt_ref *ref) {
    const printer t = {.p = p, .scope = "w"};
    return weight_text(&t, ref);
}

/* ---- operands -------------------------------------------------------------------------------- */

static expression variable(printer *t, uint32_t v) {
    if (t->waiting[v].text) {
        const expression e = t->waiting[v];
        t->waiting[v].text = NULL;
        return e;
    }
    return (expression){t->name[v] ? t->name[v] : name_variable(t, v), ATOM};
}

/* `bare`: numbers stand as numbers, and not as tensors. */
static expression operand(printer *t, const hpt_ref *ref, bool bare) {
    hd_arena *a = t->p->a;
    switch (ref->kind) {
    case HPT_NONE: return (expression){"None", ATOM};
    case HPT_VARIABLE: return variable(t, ref->variable);
    case HPT_WEIGHT:
    case HPT_SCOPE: return (expression){weight_text(t, ref), ATOM};
    case HPT_NUMBER:
        if (bare) return number(t, ref->number);
        return (expression){hd_printf(a, "%s.new_tensor(%s)", t->like, number_text(t, ref->number)),
                            ATOM};
    case HPT_LIST:
        if (ref->number.at == 0) return variable(t, ref->variable);
        return (expression){
            hd_printf(a, "%s[:%.0f]", variable(t, ref->variable).text, ref->number.at), ATOM};
    case HPT_ELEMENT:
        return (expression){
            hd_printf(a, "%s[%.0f]", variable(t, ref->variable).text, ref->number.at), ATOM};
    }
    return (expression){"None", ATOM};
}

static expression list_text(printer *t, const hpt_operand *o) {
    hd_text out;
    hd_text_init(&out, t->p->a);
    if (!o->n) return (expression){"[]", ATOM};
    bool open = false;
    int terms = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        const bool whole = o->at[i].kind == HPT_LIST;
        if (whole || !open) {
            if (open) hd_text_add(&out, "]");
            if (i) hd_text_add(&out, " + ");
            if (!whole) hd_text_add(&out, "[");
            open = !whole;
            terms++;
        } else {
            hd_text_add(&out, ", ");
        }
        hd_text_add(&out, operand(t, &o->at[i], false).text);
    }
    if (open) hd_text_add(&out, "]");
    return (expression){out.at, terms > 1 ? SUM : ATOM};
}

static expression any_operand(printer *t, const hpt_operand *o, bool bare) {
    return o->many ? list_text(t, o) : operand(t, &o->at[0], bare);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* The numbers of a node that an attribute has. */
static const hpt_number *numbers_of(const hpt_node *n, hir_attr_id id, uint32_t *width) {
    uint32_t at = 0;
    for (uint32_t k = 0; k < n->op->n_attrs; k++) {
        const hir_attr *a = &n->op->attrs[k];
        const hir_attr_kind kind = hir_attr_kind_of(a->id);
        *width = kind == HIR_ATTR_STRING                            ? 0
                 : kind == HIR_ATTR_INTS || kind == HIR_ATTR_FLOATS ? a->n
                                                                    : 1;
        if (a->id == id) return n->number + at;
        at += *width;
    }
    *width = n->n_numbers - at; /* the rate, which is after the attributes */
    return n->number + at;
}

static void add_numbers(const printer *t, hd_text *out, const hpt_node *n, hir_attr_id id) {
    uint32_t width = 0;
    const hpt_number *at = numbers_of(n, id, &width);
    for (uint32_t i = 0; i < width; i++) {
        if (i) hd_text_add(out, ", ");
        const bool dim = id == HIR_A_SHAPE && !at[i].text && at[i].at < 0;
        if (!dim)
            hd_text_add(out, number_text(t, at[i]));
        else if (n->code == HIR_RESHAPE_OP || at[i].at != HIR_T)
            hd_text_add(out, "-1");
        else
            hd_text_f(out, "len(%s)", t->like);
    }
    if (!width) hd_text_add(out, "()");
}

static void add_attributes(const printer *t, hd_text *out, const hpt_node *n) {
    for (uint32_t k = 0; k < n->op->n_attrs; k++) {
        const hir_attr *a = &n->op->attrs[k];
        const hir_attr_kind kind = hir_attr_kind_of(a->id);
        const bool many = kind == HIR_ATTR_INTS || kind == HIR_ATTR_FLOATS;
        hd_text_f(out, ", %s=", hir_attr_name(a->id));
        if (kind == HIR_ATTR_STRING) {
            hd_text_quoted(out, a->s);
            continue;
        }
        if (many) hd_text_add(out, "(");
        add_numbers(t, out, n, a->id);
        if (many) hd_text_add(out, a->n == 1 ? ",)" : ")");
    }
    uint32_t width = 0;
    const hpt_number *rate = numbers_of(n, HIR_A_COUNT, &width);
    if (width) hd_text_f(out, ", rate=%s", number_text(t, *rate));
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void add_wrapped(hd_text *out, expression e, int least) {
    hd_text_f(out, e.binds < least ? "(%s)" : "%s", e.text);
}

static bool attribute_by_name(const char *name, size_t n, hir_attr_id *out) {
    for (int i = 0; i < HIR_A_COUNT; i++)
        if (strlen(hir_attr_name((hir_attr_id)i)) == n &&
            strncmp(hir_attr_name((hir_attr_id)i), name, n) == 0)
            return *out = (hir_attr_id)i, true;
    return false;
}

/* Constants of one element side by side. */
static expression vector_text(printer *t, const hpt_node *n) {
    const hir_type *type = &t->p->variables.at[n->out[0]].type;
    hd_text out;
    hd_text_init(&out, t->p->a);
    hd_text_add(&out, operand(t, &n->in[0].at[0], false).text);
    for (uint32_t d = 0; type->rank > 1 && d < type->rank; d++)
        hd_text_f(&out, "%s%lld%s", d ? ", " : ".reshape(", (long long)type->dim[d],
                  d + 1 == type->rank ? ")" : "");
    return (expression){out.at, ATOM};
}

static expression template_text(printer *t, const hpt_node *n, const hpt_python *how) {
    hd_text out;
    hd_text_init(&out, t->p->a);
    const bool numbers = n->code == HIR_STACK_OP || n->code == HIR_CONCAT_OP;
    if (numbers && !n->in[0].many) return vector_text(t, n);
    const int own = how->form == HPT_SUM ? SUM : how->form == HPT_PRODUCT ? PRODUCT : ATOM;
    for (const char *at = how->text; *at; at++) {
        if (*at != '{') {
            hd_text_add_n(&out, at, 1);
            continue;
        }
        const char *end = strchr(at, '}');
        hir_attr_id id;
        if (at[1] >= '0' && at[1] <= '9') {
            const bool tight = own == ATOM && end[1] == '.';
            const int least = tight ? ATOM : own == ATOM ? 0 : at == how->text ? own : own + 1;
            add_wrapped(&out, any_operand(t, &n->in[at[1] - '0'], own != ATOM), least);
        } else if (strncmp(at, "{like}", 6) == 0) {
            hd_text_add(&out, t->like);
        } else if (attribute_by_name(at + 1, (size_t)(end - at - 1), &id)) {
            add_numbers(t, &out, n, id);
        }
        at = end;
    }
    return (expression){out.at, own};
}

static expression op_call(printer *t, const hpt_node *n, const hpt_python *how) {
    hd_text out;
    hd_text_init(&out, t->p->a);
    uint32_t given = n->n_in;
    while (given && !n->in[given - 1].many && n->in[given - 1].at[0].kind == HPT_NONE)
        given--;
    hd_text_f(&out, "%s(", hir_info(n->code)->name);
    if (how->form == HPT_TOKENS) hd_text_add(&out, t->like);
    for (uint32_t k = 0; k < given; k++) {
        if (k || how->form == HPT_TOKENS) hd_text_add(&out, ", ");
        hd_text_add(&out, any_operand(t, &n->in[k], false).text);
    }
    add_attributes(t, &out, n);
    hd_text_add(&out, ")");
    return (expression){out.at, ATOM};
}

static expression call_text(printer *t, const hpt_node *n) {
    hd_text out;
    hd_text_init(&out, t->p->a);
    hd_text_f(&out, "%s(", n->call->name);
    const char *comma = "";
    for (uint32_t k = 0; k < n->n_in; k++) {
        hd_text_f(&out, "%s%s", comma, any_operand(t, &n->in[k], true).text);
        comma = ", ";
    }
    for (uint32_t k = 0; k < n->n_numbers; k++) {
        hd_text_f(&out, "%s%s", comma, number_text(t, n->number[k]));
        comma = ", ";
    }
    if (n->call->takes_rows) hd_text_f(&out, "%s%s", comma, t->like);
    hd_text_add(&out, ")");
    return (expression){out.at, ATOM};
}

static expression node_text(printer *t, const hpt_node *n) {
    if (n->call) return call_text(t, n);
    const hpt_python *how = hpt_python_of(n->code);
    const bool calls = how->form == HPT_CALL || how->form == HPT_TOKENS;
    return calls ? op_call(t, n, how) : template_text(t, n, how);
}

/* Where a text may go on in the next line so that it ends before column `width`: after a comma in
 * as few brackets as possible; `under`: the column of what these hold. `depth` brackets are open at
 * the beginning, at column 0. 0: nowhere. */
static size_t find_break(const char *text, size_t width, size_t depth, size_t *under) {
    size_t open[64] = {0}, best = 0, shallowest = SIZE_MAX;
    bool quoted = false;
    for (size_t i = 0; text[i] && i < width; i++) {
        if (text[i] == '"') quoted = !quoted;
        if (quoted) continue;
        if (strchr("([{", text[i]) && depth < 64) open[depth++] = i + 1;
        if (strchr(")]}", text[i]) && depth) depth--;
        if (text[i] != ',' || text[i + 1] != ' ' || !depth || depth > shallowest) continue;
        shallowest = depth;
        best = i + 2;
        *under = open[depth - 1];
    }
    return best;
}

static void line(printer *t, const char *text) {
    const size_t begin = 4 * (size_t)t->indent;
    size_t indent = begin, under = 0;
    for (size_t depth = 0; indent + strlen(text) > LINE; depth = 1) {
        const size_t n = find_break(text, LINE - indent, depth, &under);
        if (!n) break;
        hd_text_f(t->out, "%*s%.*s\n", (int)indent, "", (int)n - 1, text);
        text += n;
        if (under) indent = indent + under > 60 ? begin + 8 : indent + under;
    }
    hd_text_f(t->out, "%*s%s\n", (int)indent, "", text);
}

/* Writes what waits: what it reads may change. */
static void flush(printer *t) {
    for (size_t i = 0; i < t->all_waiting.n; i++) {
        const uint32_t v = t->all_waiting.at[i];
        if (!t->waiting[v].text) continue;
        const char *text = t->waiting[v].text;
        t->waiting[v].text = NULL;
        line(t, hd_printf(t->p->a, "%s = %s", name_variable(t, v), text));
    }
    t->all_waiting.n = 0;
}

static void print_node(printer *t, const hpt_node *n) {
    const expression e = node_text(t, n);
    const uint32_t v = n->n_out == 1 ? n->out[0] : HIR_NONE;
    const size_t longest = t->last ? LINE - 20 : LONGEST_INLINE;
    if (v != HIR_NONE && !t->name[v] && t->reads[v] == 1 && strlen(e.text) <= longest && !n->call) {
        t->waiting[v] = e;
        hd_push(t->p->a, &t->all_waiting, v);
        return;
    }
    hd_text to;
    hd_text_init(&to, t->p->a);
    bool takes_name = false;
    for (uint32_t k = 0; k < n->n_out; k++) {
        takes_name = takes_name || (n->out[k] != HIR_NONE && t->name[n->out[k]]);
        hd_text_f(&to, "%s%s", k ? ", " : "",
                  n->out[k] == HIR_NONE ? "_"
                  : t->name[n->out[k]]  ? t->name[n->out[k]]
                                        : name_variable(t, n->out[k]));
    }
    if (takes_name) flush(t);
    line(t, hd_printf(t->p->a, "%s = %s", to.at ? to.at : "_", e.text));
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void count(printer *t, const hpt_operand *o, uint32_t by) {
    for (uint32_t i = 0; i < o->n; i++)
        if (o->at[i].kind == HPT_VARIABLE) t->reads[o->at[i].variable] += by;
}

static void count_body(printer *t, const hpt_body *b);

static void count_loop(printer *t, const hpt_loop *l) {
    for (size_t i = 0; i < l->body.n; i++)
        for (uint32_t k = 0; k < l->body.at[i].n_in; k++)
            count(t, &l->body.at[i].in[k], 1);
    /* what comes from outside is not written in the loop, nor what outlives a iteration inside */
    for (size_t i = 0; i < l->body.n; i++)
        for (uint32_t k = 0; k < l->body.at[i].n_in; k++)
            for (uint32_t e = 0; e < l->body.at[i].in[k].n; e++) {
                const hpt_ref *ref = &l->body.at[i].in[k].at[e];
                bool own = false;
                for (size_t j = 0; j < l->body.n && !own; j++)
                    for (uint32_t o = 0; o < l->body.at[j].n_out; o++)
                        own = own || l->body.at[j].out[o] == ref->variable;
                if (ref->kind == HPT_VARIABLE && !own) t->reads[ref->variable] += 2;
            }
    for (size_t i = 0; i < l->carried.n; i++) {
        const hpt_operand first = {.n = 1, .at = (hpt_ref *)&l->carried.at[i].first};
        const hpt_operand next = {.n = 1, .at = (hpt_ref *)&l->carried.at[i].next};
        count(t, &first, 2);
        count(t, &next, 2);
    }
    for (size_t i = 0; i < l->lists.n; i++) {
        count(t, &l->lists.at[i].first, 2);
        count(t, &l->lists.at[i].push, 2);
    }
}

static void count_body(printer *t, const hpt_body *b) {
    for (size_t i = 0; i < b->n; i++) {
        if (b->at[i].loop) count_loop(t, b->at[i].loop);
        for (uint32_t k = 0; k < b->at[i].n_in; k++)
            count(t, &b->at[i].in[k], 1);
    }
}

static void print_ends(printer *t, const hpt_loop *l) {
    hd_text to, from;
    hd_text_init(&to, t->p->a);
    hd_text_init(&from, t->p->a);
    const char *comma = "";
    for (size_t i = 0; i < l->carried.n; i++) {
        if (l->carried.at[i].is_next) continue;
        hd_text_f(&to, "%s%s", comma, t->name[l->carried.at[i].variable]);
        hd_text_f(&from, "%s%s", comma, operand(t, &l->carried.at[i].next, true).text);
        comma = ", ";
    }
    for (size_t i = 0; i < l->lists.n; i++) {
        const char *name = t->name[l->lists.at[i].list];
        hd_text_f(&to, "%s%s", comma, name);
        hd_text_f(&from, "%s%s", comma, name);
        if (l->lists.at[i].drop) hd_text_f(&from, "[:-%u]", l->lists.at[i].drop);
        hd_text_f(&from, " + %s", list_text(t, &l->lists.at[i].push).text);
        comma = ", ";
    }
    if (*comma) line(t, hd_printf(t->p->a, "%s = %s", to.at, from.at));
}

static void print_loop(printer *t, const hpt_loop *l) {
    hd_arena *a = t->p->a;
    flush(t);
    for (size_t i = 0; i < l->carried.n; i++) {
        const uint32_t v = l->carried.at[i].variable;
        const char *first = operand(t, &l->carried.at[i].first, true).text;
        if (l->carried.at[i].is_first)
            t->name[v] = first;
        else
            line(t, hd_printf(a, "%s = %s", name_variable(t, v), first));
        if (l->carried.at[i].is_next) t->name[l->carried.at[i].next.variable] = t->name[v];
    }
    for (size_t i = 0; i < l->lists.n; i++) {
        const char *first = list_text(t, &l->lists.at[i].first).text;
        line(t, hd_printf(a, "%s = %s", name_variable(t, l->lists.at[i].list), first));
    }
    const long long end = l->first + l->step * (l->times - 1) + 1;
    if (l->step != 1)
        line(t, hd_printf(a, "for %s in range(%lld, %lld, %lld):", l->counter, (long long)l->first,
                          end, (long long)l->step));
    else if (l->first)
        line(t, hd_printf(a, "for %s in range(%lld, %lld):", l->counter, (long long)l->first, end));
    else
        line(t, hd_printf(a, "for %s in range(%lld):", l->counter, end));
    t->indent++;
    t->last = false;
    for (size_t i = 0; i < l->body.n; i++)
        print_node(t, &l->body.at[i]);
    flush(t);
    print_ends(t, l);
    t->indent--;
}

static printer new_printer(const hpt_program *p, hd_text *out) {
    const uint32_t n = (uint32_t)p->variables.n;
    return (printer){.p = p,
                     .out = out,
                     .n = n,
                     .name = hd_new_array(p->a, const char *, n + 1),
                     .reads = hd_new_array(p->a, uint32_t, n + 1),
                     .waiting = hd_new_array(p->a, expression, n + 1)};
}

static void print_body(printer *t, const hpt_body *b) {
    for (size_t i = 0; i < b->n; i++) {
        t->last = i + 1 == b->n;
        if (b->at[i].loop)
            print_loop(t, b->at[i].loop);
        else
            print_node(t, &b->at[i]);
    }
}

void hpt_print_function(const hpt_program *p, const hpt_function *f, hd_text *out) {
    printer t = new_printer(p, out);
    t.scope = "w";
    if (f->about) hd_text_f(out, "# %s\n", f->about);
    hd_text_f(out, "def %s(", f->name);
    const char *comma = "";
    if (f->scoped) hd_text_add(out, "w"), comma = ", ";
    for (size_t i = 0; i < f->numbers.n; i++)
        hd_push(p->a, &t.used, f->numbers.at[i]);
    for (size_t i = 0; i < f->in.n; i++) {
        t.name[f->in.at[i]] = p->variables.at[f->in.at[i]].noun;
        hd_push(p->a, &t.used, t.name[f->in.at[i]]);
        hd_text_f(out, "%s%s", comma, t.name[f->in.at[i]]);
        comma = ", ";
    }
    for (size_t i = 0; i < f->numbers.n; i++) {
        hd_text_f(out, "%s%s", comma, f->numbers.at[i]);
        comma = ", ";
    }
    if (f->takes_rows) hd_text_f(out, "%slike", comma);
    hd_text_add(out, "):\n");
    t.like = f->rows.kind == HPT_NONE ? "like" : operand(&t, &f->rows, true).text;
    t.indent = 1;
    count_body(&t, &f->body);
    for (size_t i = 0; i < f->out.n; i++) {
        const hpt_operand o = {.n = 1, .at = &f->out.at[i]};
        count(&t, &o, f->out.n > 1 ? 2 : 1);
    }
    print_body(&t, &f->body);
    hd_text result;
    hd_text_init(&result, p->a);
    for (size_t i = 0; i < f->out.n; i++)
        hd_text_f(&result, "%s%s", i ? ", " : "", operand(&t, &f->out.at[i], true).text);
    line(&t, hd_printf(p->a, "return %s", result.at ? result.at : "None"));
}

static bool needs_rows(const hpt_body *b) {
    for (size_t i = 0; i < b->n; i++)
        if (b->at[i].loop ? needs_rows(&b->at[i].loop->body) : hpt_needs_rows(&b->at[i]))
            return true;
    return false;
}

void hpt_print_sequence(const hpt_program *p, hd_text *out) {
    printer t = new_printer(p, out);
    const hir_module *m = p->m;
    t.scope = "self", t.like = "like", t.indent = 2;
    hd_text_add(out, "    def sequence(self");
    for (size_t i = 0; i < m->inputs.n; i++)
        hd_text_f(out, ", %s", name_variable(&t, m->inputs.at[i]));
    hd_text_add(out, "):\n");
    count_body(&t, &p->body);
    for (size_t i = 0; i < p->outputs.n; i++) {
        const hpt_operand o = {.n = 1, .at = &p->outputs.at[i].at};
        count(&t, &o, 1);
    }
    if (needs_rows(&p->body) && m->inputs.n)
        line(&t, hd_printf(p->a, "like = next(self.parameters()).new_zeros(len(%s))",
                           t.name[m->inputs.at[0]]));
    print_body(&t, &p->body);
    hd_text result;
    hd_text_init(&result, p->a);
    for (size_t i = 0; i < p->outputs.n; i++) {
        const char *text = operand(&t, &p->outputs.at[i].at, true).text;
        if (p->outputs.n > 1) {
            hd_text_add(&result, i ? ", " : "{");
            hd_text_quoted(&result, p->outputs.at[i].name);
            hd_text_add(&result, ": ");
        }
        hd_text_add(&result, text);
    }
    if (p->outputs.n > 1) hd_text_add(&result, "}");
    line(&t, hd_printf(p->a, "return %s", result.at));
}

static void mark_body(const hpt_body *b, bool called[HIR_OPCODE_COUNT]) {
    for (size_t i = 0; i < b->n; i++) {
        const hpt_node *n = &b->at[i];
        if (n->loop) mark_body(&n->loop->body, called);
        if (n->loop || n->call) continue;
        const hpt_form form = hpt_python_of(n->code)->form;
        if (form == HPT_CALL || form == HPT_TOKENS) called[n->code] = true;
    }
}

void hpt_mark_called(const hpt_program *p, bool called[HIR_OPCODE_COUNT]) {
    for (size_t i = 0; i < p->functions.n; i++)
        mark_body(&p->functions.at[i]->body, called);
    for (size_t i = 0; i < p->derived.n; i++)
        mark_body(&p->derived.at[i]->body, called);
    mark_body(&p->body, called);
}
