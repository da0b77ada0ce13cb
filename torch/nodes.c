/* The graph as nodes: what outputs need, without what Python has no use for. A cache of a row for
 * each position is what was appended to it, since a call begins at position 0; so is every state
 * empty before, and it vanishes. Numbers ([] constants) are operands, not nodes. */
#include <string.h>

#include "torch/program.h"

static const hpt_python table[HIR_OPCODE_COUNT] = {
#define P(id, form, noun, text) [HIR_##id##_OP] = {HPT_##form, noun, text},
#include "torch/python.def"
#undef P
};

/* Each graph op has a row: this does not compile where one is missing. */
enum {
#define P(id, form, noun, text) IS_IN_PYTHON_DEF_##id,
#include "torch/python.def"
#undef P
};
#define CHECK_GRAPH(id)  (1 + IS_IN_PYTHON_DEF_##id)
#define CHECK_DEPTH(id)  0
#define CHECK_KERNEL(id) 0
static const int has_row[HIR_OPCODE_COUNT] = {
#define OP(id, name, stage, traits, operands, attrs, rule, doc) [HIR_##id##_OP] = CHECK_##stage(id),
#include "ir/ops.def"
#undef OP
};

const hpt_python *hpt_python_of(hir_opcode code) {
    return has_row[code] ? &table[code] : NULL;
}

/* ---- names and numbers ----------------------------------------------------------------------- */

bool hpt_is_whole(double x) {
    return x > -0x1p53 && x < 0x1p53 && x == (double)(int64_t)x;
}

bool hpt_same_number(hpt_number a, hpt_number b) {
    if (a.text || b.text) return a.text && b.text && strcmp(a.text, b.text) == 0;
    return a.n == b.n && (a.n ? memcmp(a.many, b.many, a.n * sizeof *a.many) == 0 : a.at == b.at);
}

static bool is_number(const char *at, size_t n) {
    return n > 0 && n < 10 && strspn(at, "0123456789") >= n && (n == 1 || *at != '0');
}

void hpt_add_in_name(hd_text *out, char c, bool formatted) {
    if (formatted && (c == '{' || c == '}'))
        hd_text_f(out, "%c%c", c, c);
    else if (c == '"' || c == '\\')
        hd_text_f(out, "\\%c", c);
    else if ((unsigned char)c < ' ' || c == 0x7f)
        hd_text_f(out, "\\x%02x", c);
    else
        hd_text_add_n(out, &c, 1);
}

hpt_name hpt_make_name(hd_arena *a, const char *dotted) {
    hd_text pattern;
    hd_text_init(&pattern, a);
    hpt_name name = {.number = hd_new_array(a, hpt_number, strlen(dotted) / 2 + 1)};
    for (const char *at = dotted;; at++) {
        const size_t n = strcspn(at, ".");
        if (is_number(at, n)) {
            for (size_t i = 0; i < n; i++)
                name.number[name.n].at = name.number[name.n].at * 10 + (at[i] - '0');
            name.n++;
        }
        hd_text_add_n(&pattern, is_number(at, n) ? "#" : at, is_number(at, n) ? 1 : n);
        at += n;
        if (!*at) break;
        hd_text_add(&pattern, ".");
    }
    name.pattern = pattern.at ? pattern.at : "";
    return name;
}

bool hpt_within(hd_arena *a, const hpt_name *name, const hpt_name *scope, hpt_name *out) {
    const size_t n = strlen(scope->pattern);
    if (strncmp(name->pattern, scope->pattern, n) != 0 || name->pattern[n] != '.') return false;
    for (uint32_t i = 0; i < scope->n; i++)
        if (!hpt_same_number(name->number[i], scope->number[i])) return false;
    out->pattern = name->pattern + n + 1;
    out->n = name->n - scope->n;
    out->number = hd_new_array(a, hpt_number, out->n + 1);
    memcpy(out->number, name->number + scope->n, out->n * sizeof *out->number);
    return true;
}

static bool same_name(const hpt_name *a, const hpt_name *b) {
    if (strcmp(a->pattern, b->pattern) != 0) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (!hpt_same_number(a->number[i], b->number[i])) return false;
    return true;
}

bool hpt_same_ref(const hpt_ref *a, const hpt_ref *b) {
    if (a->kind != b->kind) return false;
    switch (a->kind) {
    case HPT_NONE: return true;
    case HPT_VARIABLE: return a->variable == b->variable;
    case HPT_LIST:
    case HPT_ELEMENT: return a->variable == b->variable && hpt_same_number(a->number, b->number);
    case HPT_WEIGHT:
    case HPT_SCOPE: return a->parts == b->parts && same_name(&a->name, &b->name);
    case HPT_NUMBER: return hpt_same_number(a->number, b->number);
    }
    return false;
}

/* a * counter + b, in the shortest form. */
const char *hpt_linear(hd_arena *a, const char *counter, const double *at, const double *number,
                       uint32_t n) {
    uint32_t other = 1;
    while (other < n && at[other] == at[0])
        other++;
    if (other >= n) return NULL;
    const double by = (number[other] - number[0]) / (at[other] - at[0]);
    const double rest = number[0] - by * at[0];
    for (uint32_t i = 0; i < n; i++)
        if (by * at[i] + rest != number[i]) return NULL;
    if (!hpt_is_whole(by) || !hpt_is_whole(rest) || by == 0 || by > 64 || by < -64) return NULL;
    const char *product = by == 1    ? counter
                          : by == -1 ? hd_printf(a, "-%s", counter)
                                     : hd_printf(a, "%lld * %s", (long long)by, counter);
    if (rest == 0) return product;
    return hd_printf(a, "%s %c %lld", product, rest > 0 ? '+' : '-',
                     (long long)(rest > 0 ? rest : -rest));
}

bool hpt_is_taken(const char *name) {
    static const char *const words[] = {
        "False",   "None",     "True",     "and",       "as",    "assert",  "async",  "await",
        "break",   "class",    "continue", "def",       "del",   "elif",    "else",   "except",
        "finally", "for",      "from",     "global",    "if",    "import",  "in",     "is",
        "lambda",  "nonlocal", "not",      "or",        "pass",  "raise",   "return", "try",
        "while",   "with",     "yield", /* and the file's own */
        "F",       "torch",    "nn",       "len",       "range", "float",   "w",      "self",
        "like",    "l",        "i",        "struct",    "json",  "math",    "os",     "ctypes",
        "fnmatch", "stacked",  "attend",   "distances", "names", "files_of"};
    hir_opcode code;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], name) == 0) return true;
    return hir_opcode_by_name(name, &code);
}

uint32_t hpt_add_variable(hpt_program *p, hir_type type, const char *noun) {
    hd_push(p->a, &p->variables, ((hpt_variable){.type = type, .noun = noun}));
    return (uint32_t)p->variables.n - 1;
}

static hpt_operand copy_operand(hd_arena *a, const hpt_operand *from) {
    hpt_operand o = *from;
    o.at = hd_new_array(a, hpt_ref, o.n + 1);
    if (o.n) memcpy(o.at, from->at, o.n * sizeof *o.at);
    for (uint32_t i = 0; i < o.n; i++) {
        const hpt_name *name = &from->at[i].name;
        if (!name->n) continue;
        o.at[i].name.number = hd_new_array(a, hpt_number, name->n);
        memcpy(o.at[i].name.number, name->number, name->n * sizeof *name->number);
    }
    return o;
}

hpt_node hpt_copy_node(hd_arena *a, const hpt_node *n) {
    hpt_node copy = *n;
    copy.in = hd_new_array(a, hpt_operand, n->n_in + 1);
    for (uint32_t i = 0; i < n->n_in; i++)
        copy.in[i] = copy_operand(a, &n->in[i]);
    copy.number = hd_new_array(a, hpt_number, n->n_numbers + 1);
    if (n->n_numbers) memcpy(copy.number, n->number, n->n_numbers * sizeof *n->number);
    copy.out = hd_new_array(a, uint32_t, n->n_out + 1);
    if (n->n_out) memcpy(copy.out, n->out, n->n_out * sizeof *n->out);
    return copy;
}

/* ---- what has no form ------------------------------------------------------------------------ */

static bool reject(hpt_program *p, hd_loc loc, const char *message, const char *cause,
                   const char *hint) {
    hd_diag *e = hd_err(p->d, HD_E_UNSUPPORTED, loc, "%s", message);
    e->cause = cause;
    e->hint = hint;
    return false;
}

static bool has_number_sign(const char *name) {
    for (const char *at = name; *at; at++)
        if (*at == '#' && (at == name || at[-1] == '.') && (!at[1] || at[1] == '.')) return true;
    return false;
}

static bool check_module(hpt_program *p) {
    const hir_module *m = p->m;
    if (m->stage != HIR_STAGE_GRAPH || m->ranks)
        return reject(p, HD_NOWHERE, "PyTorch is written from the graph, and this is no longer one",
                      "passes have rewritten this module for the code that is generated from it",
                      "emit it from the spec or the folder, or from what --emit=graph has written");
    for (size_t i = 0; i < m->weights.n; i++)
        if (has_number_sign(m->weights.at[i].name))
            return reject(
                p, m->weights.at[i].loc,
                hd_printf(p->a, "weight %s has a # as a part of its name", m->weights.at[i].name),
                "it stands for numbers where names are compared", "rename the weight");
    for (size_t i = 0; i < m->states.n; i++)
        if (m->states.at[i].type.dtype != HIR_F32)
            return reject(p, m->states.at[i].loc,
                          hd_printf(p->a, "state %s is %s: what is stored in it is rounded",
                                    m->states.at[i].name,
                                    hir_dtype_name(m->states.at[i].type.dtype)),
                          "rounding has no gradient",
                          "make it f32; --cache-dtype rounds it where it is compiled");
    return true;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

typedef struct lifting {
    hpt_program *p;
    bool *live;    /* by op */
    hir_ref *same; /* by value: what it is another name of */
} lifting;

static void mark_live(lifting *l) {
    const hir_module *m = l->p->m;
    for (hir_id op = m->last; op != HIR_NONE; op = hir_op_at(m, op)->prev) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP) l->live[op] = true;
        if (!l->live[op]) continue;
        for (uint32_t i = 0; i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) {
                const hir_id by = hir_value_at(m, o->args[i].index)->op;
                if (by != HIR_NONE) l->live[by] = true;
            }
    }
}

static bool is_scalar_const(const hir_module *m, hir_ref r) {
    if (r.kind != HIR_REF_VALUE || hir_value_at(m, r.index)->op == HIR_NONE) return false;
    const hir_op *op = hir_op_at(m, hir_value_at(m, r.index)->op);
    return op->code == HIR_CONST_OP && hir_ref_type(m, r).rank == 0;
}

static hpt_ref make_ref(const lifting *l, hir_ref r) {
    const hir_module *m = l->p->m;
    while (r.kind == HIR_REF_VALUE && l->same[r.index].kind != HIR_REF_NONE)
        r = l->same[r.index];
    if (r.kind == HIR_REF_WEIGHT) {
        const hir_weight *w = &m->weights.at[r.index];
        if (hir_is_derived(w)) return l->p->property[r.index];
        return (hpt_ref){.kind = HPT_WEIGHT,
                         .name = hpt_make_name(l->p->a, w->name),
                         .parts = w->stacked ? w->type.dim[0] : 0};
    }
    if (r.kind != HIR_REF_VALUE) return (hpt_ref){.kind = HPT_NONE};
    if (!is_scalar_const(m, r)) return (hpt_ref){.kind = HPT_VARIABLE, .variable = r.index};
    const hir_op *c = hir_op_at(m, hir_value_at(m, r.index)->op);
    return (hpt_ref){.kind = HPT_NUMBER, .number = {.at = hir_attr_float(c, HIR_A_VALUE, 0)}};
}

/* The r of C/r of what an op that looks along the sequence reads or writes; 1: all rows are of one
 * position. */
static int64_t rate_of(const hir_module *m, const hir_op *op) {
    int64_t rate = 1;
    for (uint32_t i = 0; i < op->n_args; i++) {
        const hir_type t = hir_ref_type(m, op->args[i]);
        if (op->args[i].kind != HIR_REF_NONE && hir_type_has_c(t) && hir_rate(t.dim[0]) > rate)
            rate = hir_rate(t.dim[0]);
    }
    const bool looks = op->code == HIR_CACHE_APPEND_OP || hir_has_trait(op->code, HIR_SEQUENCE);
    return looks ? rate : 1;
}

/* The numbers of an op, its texts in `shape`; after them the rate, if it is not 1. */
static void take_numbers(hpt_program *p, const hir_op *op, hpt_node *node, hd_text *shape) {
    HD_VEC(hpt_number) all = {0};
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        const hir_attr *a = &op->attrs[i];
        hd_text_f(shape, "|%s", hir_attr_name(a->id));
        switch (hir_attr_kind_of(a->id)) {
        case HIR_ATTR_INT: hd_push(p->a, &all, ((hpt_number){.at = (double)a->i})); break;
        case HIR_ATTR_FLOAT: hd_push(p->a, &all, ((hpt_number){.at = a->f})); break;
        case HIR_ATTR_STRING: hd_text_quoted(shape, a->s); break;
        case HIR_ATTR_INTS:
            hd_text_f(shape, "%u", a->n);
            for (uint32_t k = 0; k < a->n; k++)
                hd_push(p->a, &all, ((hpt_number){.at = (double)a->ints[k]}));
            break;
        case HIR_ATTR_FLOATS:
            hd_text_f(shape, "%u", a->n);
            for (uint32_t k = 0; k < a->n; k++)
                hd_push(p->a, &all, ((hpt_number){.at = a->floats[k]}));
        }
    }
    const int64_t rate = rate_of(p->m, op);
    if (rate > 1) hd_push(p->a, &all, ((hpt_number){.at = (double)rate}));
    if (rate > 1) hd_text_add(shape, "|rate");
    node->number = all.at;
    node->n_numbers = (uint32_t)all.n;
}

static void take_operands(const lifting *l, const hir_op *op, hpt_node *node, hd_text *shape) {
    const char *names = hir_info(op->code)->operands;
    const bool rest = strchr(names, '*') != NULL;
    uint32_t fixed = 0;
    for (const char *c = names; *c; c++)
        fixed += *c == ' ';
    fixed = rest ? fixed : op->n_args;
    node->n_in = fixed + rest;
    node->in = hd_new_array(l->p->a, hpt_operand, node->n_in + 1);
    for (uint32_t i = 0; i < node->n_in; i++) {
        hpt_operand *o = &node->in[i];
        o->many = i == fixed;
        o->n = o->many ? op->n_args - fixed : 1;
        o->at = hd_new_array(l->p->a, hpt_ref, o->n + 1);
        for (uint32_t k = 0; k < o->n; k++)
            o->at[k] = make_ref(l, op->args[i + k]);
        hd_text_add(shape, o->many ? "*" : o->at[0].kind == HPT_NONE ? "_" : ".");
    }
}

static const hir_op *one_number(const hir_module *m, hir_ref r) {
    if (r.kind != HIR_REF_VALUE || hir_value_at(m, r.index)->op == HIR_NONE) return NULL;
    const hir_op *op = hir_op_at(m, hir_value_at(m, r.index)->op);
    return op->code == HIR_CONST_OP && hir_type_row_elements(hir_ref_type(m, r)) == 1 ? op : NULL;
}

/* Constants of one element side by side become one operand. */
static void join_numbers(hpt_program *p, const hir_op *op, hpt_node *node, hd_text *shape) {
    hpt_operand *o = &node->in[0];
    double *many = hd_new_array(p->a, double, o->n + 1);
    for (uint32_t i = 0; i < o->n; i++) {
        const hir_op *c = one_number(p->m, op->args[i]);
        if (!c) return;
        many[i] = hir_attr_float(c, HIR_A_VALUE, 0);
    }
    o->at[0] = (hpt_ref){.kind = HPT_NUMBER, .number = {.many = many, .n = o->n}};
    hd_text_f(shape, "numbers%u", o->n);
    o->many = false;
    o->n = 1;
}

static void add_node(const lifting *l, const hir_op *op) {
    hpt_program *p = l->p;
    hpt_node node = {.code = op->code, .op = op, .n_out = op->n_results};
    hd_text shape;
    hd_text_init(&shape, p->a);
    hd_text_add(&shape, hir_info(op->code)->name);
    take_operands(l, op, &node, &shape);
    if (op->code == HIR_STACK_OP || op->code == HIR_CONCAT_OP) join_numbers(p, op, &node, &shape);
    take_numbers(p, op, &node, &shape);
    node.shape = shape.at;
    node.out = hd_new_array(p->a, uint32_t, node.n_out + 1);
    for (uint32_t i = 0; i < node.n_out; i++)
        node.out[i] = op->results[i];
    hd_push(p->a, &p->body, node);
}

/* Of a contraction, the last word of its matrix's name: "q_proj" of "layers.0.q_proj.weight". */
static const char *noun_of_weight(const hpt_program *p, const hir_op *op) {
    const bool contracts = op->code == HIR_LINEAR_OP || op->code == HIR_BLOCK_LINEAR_OP ||
                           op->code == HIR_EXPERT_LINEAR_OP;
    if (!contracts || op->args[1].kind != HIR_REF_WEIGHT) return NULL;
    const char *word = NULL;
    for (const char *at = p->m->weights.at[op->args[1].index].name; *at;) {
        const size_t n = strcspn(at, ".");
        const bool plain = strspn(at, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                      "0123456789") >= n;
        const bool says = n != strlen("weight") || strncmp(at, "weight", n) != 0;
        if (n && plain && says && !(*at >= '0' && *at <= '9')) word = hd_strndup(p->a, at, n);
        at += n + (at[n] == '.');
    }
    return word;
}

static bool is_word(const char *name) {
    return *name && !(*name >= '0' && *name <= '9') &&
           !name[strspn(name, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")];
}

static const char *noun_of(const hpt_program *p, hir_id value) {
    const hir_value *v = hir_value_at(p->m, value);
    if (v->op == HIR_NONE) return v->name && is_word(v->name) ? v->name : "x";
    const hir_op *op = hir_op_at(p->m, v->op);
    const hpt_python *how = hpt_python_of(op->code);
    const char *word = noun_of_weight(p, op);
    if (word) return word;
    if (!how || *how->noun) return how ? how->noun : "x";
    if (op->n_args && op->args[0].kind == HIR_REF_VALUE) /* it is made before, so it has a noun */
        return p->variables.at[op->args[0].index].noun;
    return "x";
}

/* Constants that have become numbers of others. */
static void drop_unread(hpt_program *p) {
    bool *read = hd_new_array(p->a, bool, p->variables.n + 1);
    hpt_body kept = {0};
    for (size_t i = 0; i < p->body.n; i++)
        for (uint32_t k = 0; k < p->body.at[i].n_in; k++)
            for (uint32_t e = 0; e < p->body.at[i].in[k].n; e++)
                if (p->body.at[i].in[k].at[e].kind == HPT_VARIABLE)
                    read[p->body.at[i].in[k].at[e].variable] = true;
    for (size_t i = 0; i < p->outputs.n; i++)
        if (p->outputs.at[i].at.kind == HPT_VARIABLE) read[p->outputs.at[i].at.variable] = true;
    for (size_t i = 0; i < p->body.n; i++)
        if (p->body.at[i].code != HIR_CONST_OP || read[p->body.at[i].out[0]])
            hd_push(p->a, &kept, p->body.at[i]);
    p->body = kept;
}

bool hpt_make_nodes(hpt_program *p) {
    const hir_module *m = p->m;
    if (!check_module(p)) return false;
    hpt_derive_weights(p);
    lifting l = {.p = p,
                 .live = hd_new_array(p->a, bool, m->ops.n + 1),
                 .same = hd_new_array(p->a, hir_ref, m->values.n + 1)};
    for (hir_id v = 0; v < m->values.n; v++)
        hpt_add_variable(p, hir_value_at(m, v)->type, noun_of(p, v));
    mark_live(&l);
    HIR_EACH(m, id, m->first) {
        const hir_op *op = hir_op_at(m, id);
        if (!l.live[id]) continue;
        const hpt_python *how = hpt_python_of(op->code);
        if (!how)
            return reject(p, hir_place_of(m, id),
                          hd_printf(p->a, "%s is not written in PyTorch", hir_info(op->code)->name),
                          "it is an op that passes introduce",
                          "emit it from the spec or the folder");
        if (op->code == HIR_OUTPUT_OP) {
            const hpt_output y = {hir_attr_string(op, HIR_A_NAME, "y"), make_ref(&l, op->args[0])};
            hd_push(p->a, &p->outputs, y);
        } else if (op->code == HIR_CACHE_APPEND_OP && rate_of(m, op) == 1) {
            l.same[op->results[0]] = op->args[0];
        } else if (op->n_results && !is_scalar_const(m, hir_value_ref(op->results[0]))) {
            add_node(&l, op);
        }
    }
    drop_unread(p);
    return true;
}

bool hpt_needs_rows(const hpt_node *n) {
    if (n->call) return n->call->takes_rows;
    const hpt_python *how = hpt_python_of(n->code);
    if (how->form == HPT_TOKENS || strstr(how->text, "{like}")) return true;
    const hir_attr *shape = n->op ? hir_find_attr(n->op, HIR_A_SHAPE) : NULL;
    if (n->code == HIR_BROADCAST_OP && shape && shape->n && shape->ints[0] == HIR_T) return true;
    for (uint32_t i = 0; i < n->n_in; i++)
        for (uint32_t k = 0; k < n->in[i].n; k++)
            if (n->in[i].at[k].kind == HPT_NUMBER && how->form != HPT_SUM &&
                how->form != HPT_PRODUCT)
                return true;
    return false;
}

const char *hpt_number_name(const hpt_node *n, uint32_t i) {
    if (n->call) return n->call->numbers.at[i];
    for (uint32_t k = 0; k < n->op->n_attrs; k++) {
        const hir_attr *a = &n->op->attrs[k];
        const hir_attr_kind kind = hir_attr_kind_of(a->id);
        const uint32_t width = kind == HIR_ATTR_STRING                            ? 0
                               : kind == HIR_ATTR_INTS || kind == HIR_ATTR_FLOATS ? a->n
                                                                                  : 1;
        if (i < width) return kind == HIR_ATTR_INTS ? "n" : hir_attr_name(a->id);
        i -= width;
    }
    return "rate";
}
