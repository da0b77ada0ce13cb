/* Functions for what occurs more than once: the layers, which differ by a number in the names of
 * their weights ("model.layers.3.norm.weight"), and within layers what one call of the spec has
 * made (the ops that it makes have its place in the spec).
 *
 * Two ranges of nodes become one function if they are the same node by node but for numbers, for
 * the scope of their weights, and for what they read from outside. What operands of stack and concat
 * come from outside is one argument, a list, so that a mix of all earlier sublayers is the same in
 * each layer. Numbers that differ are computed from the length of such a list, or are arguments. */
#include <string.h>

#include "support/known.h"
#include "torch/program.h"

enum { LEAST_NODES = 5, MOST_NUMBERS = 16 };

typedef struct range { /* nodes from .. to - 1 */
    uint32_t from, to;
    hpt_name scope;
    bool scoped;
} range;
typedef HD_VEC(range) ranges;

typedef struct outlining {
    hpt_program *p;
    uint32_t *definer; /* by variable: the node that makes it */
    uint32_t *last;    /* by variable: the last node that reads it; UINT32_MAX: an output does */
} outlining;

/* ---- where variables are made and read ------------------------------------------------------- */

static void find_uses(outlining *o) {
    hpt_program *p = o->p;
    o->definer = hd_new_array(p->a, uint32_t, p->variables.n + 1);
    o->last = hd_new_array(p->a, uint32_t, p->variables.n + 1);
    memset(o->definer, 0xff, p->variables.n * sizeof *o->definer);
    for (uint32_t i = 0; i < p->body.n; i++) {
        const hpt_node *n = &p->body.at[i];
        for (uint32_t k = 0; k < n->n_out; k++)
            if (n->out[k] != HIR_NONE) o->definer[n->out[k]] = i;
        for (uint32_t k = 0; k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                if (n->in[k].at[e].kind == HPT_VARIABLE) o->last[n->in[k].at[e].variable] = i;
    }
    for (size_t i = 0; i < p->outputs.n; i++)
        if (p->outputs.at[i].at.kind == HPT_VARIABLE)
            o->last[p->outputs.at[i].at.variable] = UINT32_MAX;
}

static bool is_inside(const outlining *o, const range *r, uint32_t variable) {
    return o->definer[variable] >= r->from && o->definer[variable] < r->to;
}

/* ---- what a range reads, and what it has in common with others -------------------------------- */

typedef struct list {
    const hpt_ref *at;
    uint32_t n;
} list;

typedef struct reading { /* of one range */
    hd_text signature;   /* of ranges that are the same but for numbers: the same text */
    HD_VEC(hpt_ref) in;  /* single operands from outside */
    HD_VEC(list) lists;  /* operands of stack and concat from outside, side by side */
    HD_VEC(hpt_number) number;
    HD_VEC(const char *) number_name;
} reading;

/* How the operands of a function's nodes are written: by its arguments. */
typedef struct rewriting {
    const uint32_t *in, *lists; /* variables */
    const bool *single;         /* by list: it has one element in every range */
} rewriting;

typedef struct walk {
    const outlining *o;
    const range *r;
    reading *to;
    const rewriting *write; /* NULL: only read */
} walk;

static uint32_t find_in(walk *w, const hpt_ref *ref) {
    for (uint32_t i = 0; i < w->to->in.n; i++)
        if (hpt_same_ref(&w->to->in.at[i], ref)) return i;
    hd_push(w->o->p->a, &w->to->in, *ref);
    return (uint32_t)w->to->in.n - 1;
}

static uint32_t find_list(walk *w, const hpt_ref *at, uint32_t n) {
    for (uint32_t i = 0; i < w->to->lists.n; i++) {
        const list *l = &w->to->lists.at[i];
        uint32_t same = 0;
        while (l->n == n && same < n && hpt_same_ref(&l->at[same], &at[same]))
            same++;
        if (l->n == n && same == n) return i;
    }
    hpt_ref *own = hd_new_array(w->o->p->a, hpt_ref, n);
    memcpy(own, at, n * sizeof *own);
    hd_push(w->o->p->a, &w->to->lists, ((list){own, n}));
    return (uint32_t)w->to->lists.n - 1;
}

static void print_name(hd_text *out, const hpt_name *name) {
    hd_text_add(out, name->pattern);
    for (uint32_t i = 0; i < name->n; i++)
        hd_text_f(out, ",%.0f", name->number[i].at);
}

/* Of a weight or a scope: its name within the scope of the range. */
static bool take_name(const walk *w, hpt_ref *ref) {
    hpt_name rest = {.pattern = ""};
    if (!w->r->scoped) return false;
    const hpt_ref scope = {.kind = HPT_SCOPE, .name = w->r->scope};
    if (ref->kind == HPT_SCOPE && hpt_same_ref(ref, &scope)) {
        hd_text_add(&w->to->signature, " scope");
    } else if (hpt_within(w->o->p->a, &ref->name, &w->r->scope, &rest)) {
        hd_text_f(&w->to->signature, " %lld@", (long long)ref->parts);
        print_name(&w->to->signature, &rest);
    } else {
        return false;
    }
    if (w->write) ref->name = rest;
    return true;
}

/* A single operand. True: it is the range's own, or a number. */
static bool take_own(walk *w, hpt_ref *ref, uint32_t node) {
    hd_text *out = &w->to->signature;
    if (ref->kind == HPT_NONE) return hd_text_add(out, " _"), true;
    if (ref->kind == HPT_NUMBER) {
        hd_text_add(out, " number");
        hd_push(w->o->p->a, &w->to->number, ref->number);
        hd_push(w->o->p->a, &w->to->number_name, "c");
        return true;
    }
    if (ref->kind == HPT_WEIGHT || ref->kind == HPT_SCOPE) return take_name(w, ref);
    if (!is_inside(w->o, w->r, ref->variable)) return false;
    const uint32_t by = w->o->definer[ref->variable];
    const hpt_node *n = &w->o->p->body.at[by];
    uint32_t number = 0;
    while (n->out[number] != ref->variable)
        number++;
    hd_text_f(out, " %u.%u", node - by, number);
    return true;
}

static void take_one(walk *w, hpt_ref *ref, uint32_t node) {
    if (take_own(w, ref, node)) return;
    const uint32_t i = find_in(w, ref);
    hd_text_f(&w->to->signature, " in%u", i);
    if (w->write) *ref = (hpt_ref){.kind = HPT_VARIABLE, .variable = w->write->in[i]};
}

/* A list: what comes from outside side by side is one argument. */
static void take_many(walk *w, hpt_operand *o, uint32_t node) {
    uint32_t n = 0;
    hd_text_add(&w->to->signature, " [");
    for (uint32_t i = 0; i < o->n;) {
        if (take_own(w, &o->at[i], node)) {
            o->at[n++] = o->at[i++];
            continue;
        }
        uint32_t end = i;
        walk silent = *w;
        reading nowhere = {0};
        hd_text_init(&nowhere.signature, w->o->p->a);
        silent.to = &nowhere, silent.write = NULL;
        while (end < o->n && !take_own(&silent, &o->at[end], node))
            end++;
        const uint32_t list = find_list(w, o->at + i, end - i);
        hd_text_f(&w->to->signature, " list%u", list);
        if (w->write)
            o->at[n++] = (hpt_ref){.kind = w->write->single[list] ? HPT_VARIABLE : HPT_LIST,
                                   .variable = w->write->lists[list]};
        i = end;
    }
    if (w->write) o->n = n;
    hd_text_add(&w->to->signature, " ]");
}

/* Reads a range; with `write` and `nodes`, a copy of its nodes, it also rewrites their operands. */
static void read_range(const outlining *o, const range *r, reading *to, const rewriting *write,
                       hpt_body *nodes) {
    hd_arena *a = o->p->a;
    walk w = {o, r, to, write};
    hd_text_init(&to->signature, a);
    for (uint32_t i = r->from; i < r->to; i++) {
        hpt_node n = hpt_copy_node(a, &o->p->body.at[i]);
        hd_text_f(&to->signature, "\n%s %u", n.shape, n.n_out);
        for (uint32_t k = 0; k < n.n_numbers; k++) {
            hd_push(a, &to->number, n.number[k]);
            hd_push(a, &to->number_name, hpt_number_name(&n, k));
        }
        for (uint32_t k = 0; k < n.n_in; k++) {
            if (n.in[k].many)
                take_many(&w, &n.in[k], i);
            else
                take_one(&w, &n.in[k].at[0], i);
        }
        if (nodes) hd_push(a, nodes, n);
    }
}

/* ---- a function of ranges that are the same --------------------------------------------------- */

typedef struct group { /* ranges with one signature */
    HD_VEC(uint32_t) range;
    reading **read; /* by number of a range */
    hpt_function *f;
    bool *single;    /* by list: it has one element in every range */
    uint32_t *as_in; /* by list: the single operand that it is in every range; HIR_NONE: none */
    uint32_t *outs;  /* node and number of result, two for each result of the function */
    hpt_number *arguments; /* of range i those from i MOST_NUMBERS on */
} group;

static bool is_function(const hpt_program *p, const char *name);

static const char *unique_in(hpt_program *p, const uint32_t *in, size_t n, const char *noun) {
    const char *name = noun;
    for (int number = 1;; number++) {
        size_t i = 0;
        while (i < n && strcmp(p->variables.at[in[i]].noun, name) != 0)
            i++;
        if (i == n && !is_function(p, name)) return name;
        name = hd_printf(p->a, "%s%d", noun, number);
    }
}

static const char *argument_noun(const hpt_program *p, const hpt_ref *ref, bool is_list) {
    const char *noun = ref->kind == HPT_VARIABLE ? p->variables.at[ref->variable].noun : "weight";
    if (!*noun || strcmp(noun, "y") == 0) noun = "x";
    return is_list ? hd_printf(p->a, "%ss", noun) : noun;
}

static hir_type type_of(const hpt_program *p, const hpt_ref *ref) {
    if (ref->kind == HPT_VARIABLE) return p->variables.at[ref->variable].type;
    return (hir_type){0};
}

static void make_arguments(hpt_program *p, group *y, uint32_t *in, uint32_t *lists) {
    const reading *first = y->read[y->range.at[0]];
    hpt_function *f = y->f;
    for (size_t i = 0; i < first->in.n + first->lists.n; i++) {
        const bool single = i < first->in.n;
        const size_t k = single ? i : i - first->in.n;
        if (!single && y->as_in[k] != HIR_NONE) {
            lists[k] = in[y->as_in[k]];
            continue;
        }
        const hpt_ref *ref = single ? &first->in.at[k] : first->lists.at[k].at;
        const bool is_list = !single && !y->single[k];
        const char *noun = argument_noun(p, ref, is_list);
        const hir_type type = type_of(p, ref);
        const uint32_t v = hpt_add_variable(p, type, unique_in(p, f->in.at, f->in.n, noun));
        p->variables.at[v].list = is_list;
        hd_push(p->a, &f->in, v);
        *(single ? &in[k] : &lists[k]) = v;
        if (f->rows.kind != HPT_NONE || !hir_type_has_t(type) || type.dtype != HIR_F32) continue;
        f->rows = (hpt_ref){.kind = is_list ? HPT_ELEMENT : HPT_VARIABLE, .variable = v};
    }
}

/* An expression for numbers that differ among the ranges; NULL: it is an argument. */
static const char *expression(hpt_program *p, const group *y, const range *all, uint32_t slot,
                              const uint32_t *lists) {
    const size_t n = y->range.n;
    double *number = hd_new_array(p->a, double, n), *at = hd_new_array(p->a, double, n);
    bool same = true;
    for (size_t i = 0; i < n; i++) {
        number[i] = y->read[y->range.at[i]]->number.at[slot].at;
        same = same && hpt_same_number(y->read[y->range.at[i]]->number.at[slot],
                                       y->read[y->range.at[0]]->number.at[slot]);
    }
    if (same) return "";
    if (y->read[y->range.at[0]]->number.at[slot].n) return NULL;
    const reading *first = y->read[y->range.at[0]];
    for (size_t k = 0; k < first->lists.n; k++) {
        for (size_t i = 0; i < n; i++)
            at[i] = y->read[y->range.at[i]]->lists.at[k].n;
        const char *name = hd_printf(p->a, "len(%s)", p->variables.at[lists[k]].noun);
        const char *text = y->single[k] ? NULL : hpt_linear(p->a, name, at, number, (uint32_t)n);
        if (text && n >= 3) return text;
    }
    /* numbers that arguments already give, or one of them and a constant */
    hpt_function *f = y->f;
    (void)all;
    for (size_t k = 0; k < f->numbers.n; k++) {
        const double rest = number[0] - y->arguments[k].at;
        size_t i = 0;
        while (i < n && !y->arguments[k].n &&
               number[i] - y->arguments[i * MOST_NUMBERS + k].at == rest)
            i++;
        if (i < n || !hpt_is_whole(rest)) continue;
        if (rest == 0) return f->numbers.at[k];
        return hd_printf(p->a, "%s %c %.0f", f->numbers.at[k], rest > 0 ? '+' : '-',
                         rest > 0 ? rest : -rest);
    }
    return NULL;
}

static const char *number_name(hpt_program *p, const hpt_function *f, const char *name) {
    for (int number = 0;; number++) {
        const char *tried = number ? hd_printf(p->a, "%s%d", name, number) : name;
        bool taken = is_function(p, tried);
        for (size_t i = 0; i < f->numbers.n; i++)
            taken = taken || strcmp(f->numbers.at[i], tried) == 0;
        for (size_t i = 0; i < f->in.n; i++)
            taken = taken || strcmp(p->variables.at[f->in.at[i]].noun, tried) == 0;
        if (!taken) return tried;
    }
}

/* Makes differing numbers expressions or arguments; false: there would be too many arguments. */
static bool make_numbers(hpt_program *p, group *y, const range *all, const uint32_t *lists,
                         const char **text) {
    hpt_function *f = y->f;
    const reading *first = y->read[y->range.at[0]];
    y->arguments = hd_new_array(p->a, hpt_number, y->range.n * MOST_NUMBERS + 1);
    for (uint32_t s = 0; s < first->number.n; s++) {
        text[s] = expression(p, y, all, s, lists);
        if (text[s]) continue;
        if (f->numbers.n == MOST_NUMBERS) return false;
        text[s] = number_name(p, f, first->number_name.at[s]);
        for (size_t i = 0; i < y->range.n; i++)
            y->arguments[i * MOST_NUMBERS + f->numbers.n] = y->read[y->range.at[i]]->number.at[s];
        hd_push(p->a, &f->numbers, text[s]);
    }
    return true;
}

static void set_number(hpt_number *n, const char *text) {
    if (*text) n->text = text;
}

/* In the order in which read_range has found them. */
static void set_numbers(hpt_body *body, const char **text) {
    uint32_t slot = 0;
    for (size_t i = 0; i < body->n; i++) {
        hpt_node *n = &body->at[i];
        for (uint32_t k = 0; k < n->n_numbers; k++)
            set_number(&n->number[k], text[slot++]);
        for (uint32_t k = 0; k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                if (n->in[k].at[e].kind == HPT_NUMBER)
                    set_number(&n->in[k].at[e].number, text[slot++]);
    }
}

/* The result of a node in the first range that has it: ranges may leave out what calls return. */
static uint32_t result_of_any(const outlining *o, const group *y, const range *all, uint32_t node,
                              uint32_t k) {
    uint32_t v = HIR_NONE;
    for (size_t i = 0; i < y->range.n && v == HIR_NONE; i++)
        v = o->p->body.at[all[y->range.at[i]].from + node].out[k];
    return v;
}

/* Results that some range's outside reads. */
static void find_outs(const outlining *o, group *y, const range *all) {
    HD_VEC(uint32_t) outs = {0};
    for (uint32_t i = 0; i < y->f->body.n; i++)
        for (uint32_t k = 0; k < y->f->body.at[i].n_out; k++) {
            bool read = false;
            for (size_t r = 0; r < y->range.n; r++) {
                const range *at = &all[y->range.at[r]];
                const uint32_t v = o->p->body.at[at->from + i].out[k];
                read = read || (v != HIR_NONE && o->last[v] >= at->to);
            }
            if (!read) continue;
            hd_push(o->p->a, &outs, i);
            hd_push(o->p->a, &outs, k);
            uint32_t *v = &y->f->body.at[i].out[k];
            if (*v == HIR_NONE) *v = result_of_any(o, y, all, i, k);
            hd_push(o->p->a, &y->f->out, ((hpt_ref){.kind = HPT_VARIABLE, .variable = *v}));
        }
    y->outs = outs.at;
}

/* Lists that have one element in every range are arguments as single operands are, and if they are
 * the same as one of those in every range, they are that argument. */
static void find_singles(hpt_program *p, group *y) {
    const reading *first = y->read[y->range.at[0]];
    y->single = hd_new_array(p->a, bool, first->lists.n + 1);
    y->as_in = hd_new_array(p->a, uint32_t, first->lists.n + 1);
    for (size_t k = 0; k < first->lists.n; k++) {
        y->single[k] = true;
        y->as_in[k] = HIR_NONE;
        for (size_t i = 0; i < y->range.n; i++)
            y->single[k] = y->single[k] && y->read[y->range.at[i]]->lists.at[k].n == 1;
        for (uint32_t e = 0; y->single[k] && e < first->in.n; e++) {
            size_t i = 0;
            while (i < y->range.n && hpt_same_ref(&y->read[y->range.at[i]]->in.at[e],
                                                  y->read[y->range.at[i]]->lists.at[k].at))
                i++;
            if (i == y->range.n) y->as_in[k] = e;
        }
    }
}

static bool make_function(const outlining *o, group *y, const range *all) {
    hpt_program *p = o->p;
    const range *first = &all[y->range.at[0]];
    const reading *read = y->read[y->range.at[0]];
    hpt_function *f = y->f = hd_new(p->a, hpt_function);
    f->scoped = first->scoped;
    uint32_t *in = hd_new_array(p->a, uint32_t, read->in.n + 1);
    uint32_t *lists = hd_new_array(p->a, uint32_t, read->lists.n + 1);
    const char **text = hd_new_array(p->a, const char *, read->number.n + 1);
    find_singles(p, y);
    make_arguments(p, y, in, lists);
    if (!make_numbers(p, y, all, lists, text)) return false;
    reading again = {0};
    const rewriting write = {in, lists, y->single};
    read_range(o, first, &again, &write, &f->body);
    set_numbers(&f->body, text);
    find_outs(o, y, all);
    for (size_t i = 0; i < f->body.n; i++)
        f->takes_rows = f->takes_rows || hpt_needs_rows(&f->body.at[i]);
    f->takes_rows = f->takes_rows && f->rows.kind == HPT_NONE;
    return true;
}

/* The call that stands for a range; `i` counts the ranges of the group. */
static hpt_node make_call(const outlining *o, const group *y, const range *all, size_t i) {
    hpt_program *p = o->p;
    const range *r = &all[y->range.at[i]];
    const reading *read = y->read[y->range.at[i]];
    hpt_node call = {.call = y->f, .n_numbers = (uint32_t)y->f->numbers.n};
    call.in = hd_new_array(p->a, hpt_operand, 2 + read->in.n + read->lists.n);
    hpt_ref *single = hd_new_array(p->a, hpt_ref, 2 + read->in.n);
    if (r->scoped) {
        single[0] = (hpt_ref){.kind = HPT_SCOPE, .name = r->scope};
        call.in[call.n_in++] = (hpt_operand){.n = 1, .at = &single[0]};
    }
    for (size_t k = 0; k < read->in.n; k++) {
        single[k + 1] = read->in.at[k];
        call.in[call.n_in++] = (hpt_operand){.n = 1, .at = &single[k + 1]};
    }
    for (size_t k = 0; k < read->lists.n; k++)
        if (y->as_in[k] == HIR_NONE)
            call.in[call.n_in++] = (hpt_operand){.many = !y->single[k],
                                                 .n = read->lists.at[k].n,
                                                 .at = (hpt_ref *)read->lists.at[k].at};
    call.number = hd_new_array(p->a, hpt_number, call.n_numbers + 1);
    for (uint32_t k = 0; k < call.n_numbers; k++)
        call.number[k] = y->arguments[i * MOST_NUMBERS + k];
    call.n_out = (uint32_t)y->f->out.n;
    call.out = hd_new_array(p->a, uint32_t, call.n_out + 1);
    hd_known(y->outs || !call.n_out);
    for (uint32_t k = 0; k < call.n_out; k++) {
        const uint32_t v = p->body.at[r->from + y->outs[2 * k]].out[y->outs[2 * k + 1]];
        call.out[k] = v != HIR_NONE && o->last[v] >= r->to ? v : HIR_NONE;
    }
    call.shape = hd_printf(p->a, "call %p", (void *)y->f);
    return call;
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool is_function(const hpt_program *p, const char *name) {
    if (hpt_is_taken(name)) return true;
    for (size_t i = 0; i < p->functions.n; i++)
        if (strcmp(p->functions.at[i]->name, name) == 0) return true;
    return false;
}

static bool is_word(const char *at, size_t n) {
    return n && !(*at >= '0' && *at <= '9') &&
           strspn(at, "abcdefghijklmnopqrstuvwxyz_ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") >= n;
}

/* What the names of all weights that a range reads in its scope begin with: "mlp_res" of
 * "mlp_res_norm.weight" and "mlp_res_proj.weight". */
static const char *shared_beginning(const outlining *o, const range *r) {
    hpt_name first = {0}, name;
    size_t n = 0;
    for (uint32_t i = r->from; i < r->to; i++)
        for (uint32_t k = 0; k < o->p->body.at[i].n_in; k++)
            for (uint32_t e = 0; e < o->p->body.at[i].in[k].n; e++) {
                const hpt_ref *ref = &o->p->body.at[i].in[k].at[e];
                if (ref->kind != HPT_WEIGHT || !hpt_within(o->p->a, &ref->name, &r->scope, &name))
                    continue;
                if (!first.pattern) first = name, n = strcspn(name.pattern, ".");
                while (strncmp(first.pattern, name.pattern, n) != 0)
                    n--;
            }
    while (n && first.pattern[n - 1] == '_')
        n--;
    return n > 2 && is_word(first.pattern, n) ? hd_strndup(o->p->a, first.pattern, n) : NULL;
}

/* Of a sublayer the last word of its scope, or what is common to its weights. */
static const char *function_name(const outlining *o, const range *r, bool layer) {
    hpt_program *p = o->p;
    const char *noun = layer ? "layer" : "part", *word = NULL;
    const char *pattern = r->scoped && !layer ? r->scope.pattern : "";
    for (const char *at = pattern; *at;) {
        const size_t n = strcspn(at, ".");
        if (is_word(at, n)) word = hd_strndup(p->a, at, n);
        if (*at == '#') word = NULL;
        at += n + (at[n] == '.');
    }
    if (r->scoped && !layer && !word) word = shared_beginning(o, r);
    if (word) noun = word;
    const char *name = noun;
    if (hpt_is_taken(name)) name = noun = hd_printf(p->a, "%s_part", noun);
    for (int number = 2; is_function(p, name); number++)
        name = hd_printf(p->a, "%s_%d", noun, number);
    return name;
}

/* The numbers that scopes with one pattern have: "{0..5,7}". */
static void print_numbers(const group *y, const range *all, const char *pattern, hd_text *out) {
    const char *comma = "{";
    for (size_t i = 0; i < y->range.n; i++) {
        const hpt_name *scope = &all[y->range.at[i]].scope;
        if (strcmp(scope->pattern, pattern) != 0) continue;
        const double first = scope->number[0].at;
        double last = first;
        for (; i + 1 < y->range.n; i++) {
            const hpt_name *next = &all[y->range.at[i + 1]].scope;
            if (strcmp(next->pattern, pattern) == 0 && next->number[0].at != last + 1) break;
            last += strcmp(next->pattern, pattern) == 0;
        }
        hd_text_f(out, "%s%.0f", comma, first);
        if (last > first) hd_text_f(out, last > first + 1 ? "..%.0f" : ",%.0f", last);
        comma = ",";
    }
    hd_text_add(out, "}");
}

/* The scopes that a function is for: "model.layers.{0..5}.mlp". */
static const char *about(hpt_program *p, const group *y, const range *all) {
    hd_text out;
    hd_text_init(&out, p->a);
    for (size_t i = 0; i < y->range.n; i++) {
        const hpt_name *scope = &all[y->range.at[i]].scope;
        if (!all[y->range.at[i]].scoped || scope->n != 1) return NULL;
        bool known = false;
        for (size_t k = 0; k < i; k++)
            known = known || strcmp(scope->pattern, all[y->range.at[k]].scope.pattern) == 0;
        if (known) continue;
        const size_t n = strcspn(scope->pattern, "#");
        if (out.n) hd_text_add(&out, ", ");
        hd_text_add_n(&out, scope->pattern, n);
        print_numbers(y, all, scope->pattern, &out);
        hd_text_add(&out, scope->pattern + n + 1);
    }
    for (size_t i = 0; i < out.n; i++) /* it is a comment of one line */
        if ((unsigned char)out.at[i] < ' ') return NULL;
    return out.at;
}

/* ---- replacing ranges by calls ---------------------------------------------------------------- */

static bool same_numbers(const reading *a, const reading *b) {
    for (size_t i = 0; i < a->number.n; i++)
        if (!hpt_same_number(a->number.at[i], b->number.at[i])) return false;
    return true;
}

/* Makes a function of the ranges with the signature of range `first` that have none yet, and writes
 * their calls. */
static void make_group(const outlining *o, const ranges *all, reading **read, uint32_t first,
                       size_t least, bool *done, hpt_node *calls) {
    hpt_program *p = o->p;
    for (int exact = 0; exact < 2; exact++) {
        group y = {.read = read};
        for (uint32_t i = first; i < all->n; i++)
            if (!done[i] && strcmp(read[i]->signature.at, read[first]->signature.at) == 0 &&
                (!exact || same_numbers(read[i], read[first])))
                hd_push(p->a, &y.range, i);
        done[first] = true;
        if (y.range.n < least) return;
        if (!make_function(o, &y, all->at)) {
            done[first] = false;
            continue;
        }
        y.f->name = function_name(o, &all->at[first], least == 1);
        y.f->about = about(p, &y, all->at);
        hd_push(p->a, &p->functions, y.f);
        for (size_t i = 0; i < y.range.n; i++) {
            done[y.range.at[i]] = true;
            calls[y.range.at[i]] = make_call(o, &y, all->at, i);
        }
        return;
    }
}

/* Replaces ranges, which are in order and disjoint, by calls of functions where there are at least
 * so many of a kind. `others` are ranges of the same body, whose bounds follow. */
static void replace_ranges(outlining *o, const ranges *all, size_t least, ranges *others) {
    hpt_program *p = o->p;
    find_uses(o);
    reading **read = hd_new_array(p->a, reading *, all->n + 1);
    hpt_node *calls = hd_new_array(p->a, hpt_node, all->n + 1);
    bool *done = hd_new_array(p->a, bool, all->n + 1);
    for (size_t i = 0; i < all->n; i++) {
        read[i] = hd_new(p->a, reading);
        read_range(o, &all->at[i], read[i], NULL, NULL);
    }
    for (uint32_t i = 0; i < all->n; i++)
        if (!done[i]) make_group(o, all, read, i, least, done, calls);
    uint32_t *moved = hd_new_array(p->a, uint32_t, p->body.n + 1);
    hpt_body body = {0};
    for (uint32_t i = 0, r = 0; i < p->body.n;) {
        while (r < all->n && all->at[r].to <= i)
            r++;
        const bool call = r < all->n && all->at[r].from == i && calls[r].call;
        moved[i] = (uint32_t)body.n;
        hd_push(p->a, &body, call ? calls[r] : p->body.at[i]);
        i = call ? all->at[r].to : i + 1;
        moved[i] = (uint32_t)body.n;
    }
    for (size_t i = 0; others && i < others->n; i++) {
        others->at[i].from = moved[others->at[i].from];
        others->at[i].to = moved[others->at[i].to];
    }
    p->body = body;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* "model.layers.#" of "model.layers.#.norm.weight", with its number; false: no number in it. */
static bool layer_scope(hd_arena *a, const hpt_name *name, hpt_name *out) {
    const char *number = strchr(name->pattern, '#');
    if (!number || !number[1]) return false;
    *out = (hpt_name){hd_strndup(a, name->pattern, (size_t)(number + 1 - name->pattern)),
                      name->number, 1};
    return true;
}

typedef struct labels { /* by node */
    hpt_name *scope;
    enum { NO_WEIGHTS, OTHER_WEIGHTS, LAYER } * kind;
} labels;

/* How many different names there are within scopes that differ in the number alone, at most
 * `enough`: a stack of matrices is no layer. */
static size_t count_names(const hpt_program *p, const hpt_name *scope, size_t enough) {
    const char *seen[8];
    size_t n = 0;
    const size_t length = strlen(scope->pattern);
    for (size_t i = 0; i < p->m->weights.n && n < enough; i++) {
        const hpt_name name = hpt_make_name(p->a, p->m->weights.at[i].name);
        if (strncmp(name.pattern, scope->pattern, length) != 0) continue;
        size_t k = 0;
        while (k < n && strcmp(seen[k], name.pattern) != 0)
            k++;
        if (k == n) seen[n++] = name.pattern;
    }
    return n;
}

static bool is_layer(const hpt_program *p, const hpt_name *scope) {
    static const size_t enough = 4;
    return count_names(p, scope, enough) == enough;
}

static labels label_nodes(hpt_program *p) {
    labels l = {.scope = hd_new_array(p->a, hpt_name, p->body.n + 1)};
    l.kind = hd_alloc(p->a, p->body.n + 1, sizeof *l.kind);
    HD_VEC(hpt_name) known = {0};
    HD_VEC(bool) is = {0};
    for (size_t i = 0; i < p->body.n; i++)
        for (uint32_t k = 0; k < p->body.at[i].n_in; k++)
            for (uint32_t e = 0; e < p->body.at[i].in[k].n; e++) {
                const hpt_ref *ref = &p->body.at[i].in[k].at[e];
                hpt_name scope;
                if (ref->kind != HPT_WEIGHT || l.kind[i] == LAYER) continue;
                l.kind[i] = OTHER_WEIGHTS;
                if (!layer_scope(p->a, &ref->name, &scope)) continue;
                size_t s = 0;
                while (s < known.n && strcmp(known.at[s].pattern, scope.pattern) != 0)
                    s++;
                if (s == known.n) {
                    hd_push(p->a, &known, scope);
                    hd_push(p->a, &is, is_layer(p, &scope));
                }
                if (!is.at[s]) continue;
                l.kind[i] = LAYER;
                l.scope[i] = scope;
            }
    return l;
}

static bool same_place(const hpt_node *a, const hpt_node *b) {
    const hd_loc x = *a->op->loc, y = *b->op->loc;
    return x.file && y.file && x.line == y.line && x.column == y.column &&
           strcmp(x.file, y.file) == 0;
}

/* Between node from - 1 of one layer and node `to` of what follows: where the first ends. What has
 * the place of either belongs to it; of the rest so much that few variables are handed on. */
static uint32_t cut(const outlining *o, uint32_t from, uint32_t to) {
    const hpt_node *n = o->p->body.at;
    while (from && from < to && same_place(&n[from - 1], &n[from]))
        from++;
    while (to < o->p->body.n && to > from && same_place(&n[to - 1], &n[to]))
        to--;
    uint32_t best = from, fewest = UINT32_MAX;
    for (uint32_t at = from; at <= to; at++) {
        uint32_t live = 0;
        for (uint32_t v = 0; v < o->p->variables.n; v++)
            live += o->definer[v] < at && o->last[v] >= at && o->last[v] != 0;
        if (live <= fewest) best = at, fewest = live;
    }
    return best;
}

static bool same_scope(const labels *l, uint32_t a, uint32_t b) {
    const hpt_ref x = {.kind = HPT_SCOPE, .name = l->scope[a]};
    const hpt_ref y = {.kind = HPT_SCOPE, .name = l->scope[b]};
    return hpt_same_ref(&x, &y);
}

/* The ranges of nodes that are layers. */
static ranges find_layers(const outlining *o) {
    hpt_program *p = o->p;
    const labels l = label_nodes(p);
    ranges all = {0};
    uint32_t last_other = 0, i = 0;
    uint32_t end = 0; /* of the last layer */
    for (; i < p->body.n; i++) {
        if (l.kind[i] == OTHER_WEIGHTS) last_other = i + 1;
        if (l.kind[i] != LAYER) continue;
        uint32_t to = i; /* the last node with weights of this layer */
        uint32_t next = i + 1;
        while (next < p->body.n && (l.kind[next] != LAYER || same_scope(&l, i, next))) {
            if (l.kind[next] == LAYER) to = next;
            next++;
        }
        if (next == p->body.n) { /* the last one ends before what reads other weights */
            next = to + 1;
            while (next < p->body.n && l.kind[next] != OTHER_WEIGHTS)
                next++;
        }
        const uint32_t from = all.n ? end : cut(o, last_other, i);
        end = cut(o, to + 1, next);
        hd_push(p->a, &all,
                ((range){.from = from, .to = end, .scope = l.scope[i], .scoped = true}));
        i = to;
    }
    return all;
}

/* ---- sublayers ------------------------------------------------------------------------------- */

static size_t shared_components(const char *a, size_t n, const char *b) {
    size_t shared = 0;
    for (size_t i = 0; i < n && a[i] == b[i]; i++)
        if (a[i + 1] == '.' && b[i + 1] == '.' && i + 1 < n + 1) shared = i + 1;
    return shared;
}

/* The scope of all weights of nodes from .. to - 1 that are in `layer`. */
static void find_scope(hpt_program *p, range *r, const hpt_name *layer) {
    const hpt_name *first = NULL;
    size_t n = 0;
    for (uint32_t i = r->from; i < r->to; i++)
        for (uint32_t k = 0; k < p->body.at[i].n_in; k++)
            for (uint32_t e = 0; e < p->body.at[i].in[k].n; e++) {
                const hpt_ref *ref = &p->body.at[i].in[k].at[e];
                hpt_name rest;
                if (ref->kind != HPT_WEIGHT || !hpt_within(p->a, &ref->name, layer, &rest))
                    continue;
                if (!first) {
                    first = &ref->name;
                    n = (size_t)(strrchr(first->pattern, '.') - first->pattern);
                }
                n = shared_components(first->pattern, n, ref->name.pattern);
                for (;;) { /* numbers must be the same as well */
                    uint32_t numbers = 0;
                    for (size_t c = 0; c < n; c++)
                        numbers += first->pattern[c] == '#';
                    uint32_t same = 0;
                    while (same < numbers &&
                           hpt_same_number(first->number[same], ref->name.number[same]))
                        same++;
                    if (same == numbers) break;
                    for (n -= n > 0; n && first->pattern[n] != '.'; n--) {
                    }
                }
            }
    if (!first) return;
    r->scope = (hpt_name){hd_strndup(p->a, first->pattern, n), first->number, 0};
    for (size_t c = 0; c < n; c++)
        r->scope.n += first->pattern[c] == '#';
    r->scoped = true;
}

static ranges find_sublayers(const outlining *o, const ranges *layers) {
    hpt_program *p = o->p;
    ranges all = {0};
    for (size_t l = 0; l < layers->n; l++)
        for (uint32_t i = layers->at[l].from; i < layers->at[l].to;) {
            uint32_t to = i + 1;
            while (to < layers->at[l].to && same_place(&p->body.at[i], &p->body.at[to]))
                to++;
            range r = {.from = i, .to = to};
            i = to;
            if (r.to - r.from < LEAST_NODES) continue;
            find_scope(p, &r, &layers->at[l].scope);
            hd_push(p->a, &all, r);
        }
    return all;
}

void hpt_outline(hpt_program *p) {
    outlining o = {.p = p};
    find_uses(&o);
    ranges layers = find_layers(&o);
    const ranges sublayers = find_sublayers(&o, &layers);
    replace_ranges(&o, &sublayers, 2, &layers);
    if (layers.n > 1) replace_ranges(&o, &layers, 1, NULL);
}
