/* Derived weights: what the model computes of its weights alone, such as the softmax of mixing logits
 * or the exponential of a decay, becomes a property of the scope that has these weights, so that it
 * has a name, and gradients run through it to the parameters. What only moves elements stays where it
 * is read. Expressions that are the same but for their scope are one property; those that differ in a
 * number from layer to layer stay in their layers, which would otherwise be different functions.
 *
 * Weights that a pass has derived from others (ir.h) become properties as well. */
#include <string.h>

#include "torch/program.h"

typedef struct expression {
    uint32_t root;           /* the node whose result it is */
    HD_VEC(uint32_t) nodes;  /* in their order */
    hpt_name scope;          /* of all its weights */
    const char *form, *rest; /* what it is but for its scope and its numbers; the numbers */
    const char *first;       /* its first weight, within the scope */
} expression;

typedef struct deriving {
    hpt_program *p;
    uint32_t *definer; /* by variable: the node that makes it; HIR_NONE: none does */
    bool *free;        /* by node: it is made of weights and numbers alone, */
    bool *weights;     /* and there are weights among them */
    bool *read;        /* by node: something else than such a computation reads it */
    HD_VEC(expression) all;
} deriving;

/* ---- which nodes ----------------------------------------------------------------------------- */
static bool only_moves(const hpt_node *n) {
    return n->code == HIR_CONST_OP || hir_has_trait(n->code, HIR_MOVE);
}

static bool is_free(deriving *d, const hpt_node *n, bool *weights) {
    const hir_type t = n->n_out == 1 ? d->p->variables.at[n->out[0]].type : (hir_type){0};
    if (n->n_out != 1 || hir_type_has_t(t) || hir_type_has_c(t) ||
        hpt_python_of(n->code)->form == HPT_TOKENS || hir_has_trait(n->code, HIR_EFFECT))
        return false;
    for (uint32_t k = 0; k < n->n_in; k++)
        for (uint32_t e = 0; e < n->in[k].n; e++) {
            const hpt_ref *ref = &n->in[k].at[e];
            *weights |= ref->kind == HPT_WEIGHT;
            if (ref->kind != HPT_VARIABLE) continue;
            const uint32_t by = d->definer[ref->variable];
            if (by == HIR_NONE || !d->free[by]) return false;
            *weights |= d->weights[by];
        }
    return true;
}

static void find_free(deriving *d) {
    const hpt_body *b = &d->p->body;
    d->definer = hd_new_array(d->p->a, uint32_t, d->p->variables.n + 1);
    memset(d->definer, 0xff, d->p->variables.n * sizeof *d->definer);
    d->free = hd_new_array(d->p->a, bool, b->n + 1);
    d->weights = hd_new_array(d->p->a, bool, b->n + 1);
    for (uint32_t i = 0; i < b->n; i++) {
        d->free[i] = is_free(d, &b->at[i], &d->weights[i]);
        for (uint32_t k = 0; k < b->at[i].n_out; k++)
            d->definer[b->at[i].out[k]] = i;
    }
}

static void mark_read(deriving *d, const hpt_ref *ref) {
    if (ref->kind == HPT_VARIABLE && d->definer[ref->variable] != HIR_NONE)
        d->read[d->definer[ref->variable]] = true;
}

static void find_read(deriving *d) {
    const hpt_body *b = &d->p->body;
    d->read = hd_new_array(d->p->a, bool, b->n + 1);
    for (size_t i = 0; i < d->p->outputs.n; i++)
        mark_read(d, &d->p->outputs.at[i].at);
    for (uint32_t i = (uint32_t)b->n; i-- > 0;) {
        const hpt_node *n = &b->at[i];
        if (d->free[i] && !(only_moves(n) && d->read[i])) continue;
        for (uint32_t k = 0; k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                mark_read(d, &n->in[k].at[e]);
    }
}

/* ---- one expression -------------------------------------------------------------------------- */
static void collect(const deriving *d, expression *x) {
    bool *in = hd_new_array(d->p->a, bool, x->root + 1);
    in[x->root] = true;
    for (uint32_t i = x->root + 1; i-- > 0;) {
        const hpt_node *n = &d->p->body.at[i];
        for (uint32_t k = 0; in[i] && k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                if (n->in[k].at[e].kind == HPT_VARIABLE)
                    in[d->definer[n->in[k].at[e].variable]] = true;
    }
    for (uint32_t i = 0; i <= x->root; i++)
        if (in[i]) hd_push(d->p->a, &x->nodes, i);
}

/* Shortens `scope` to what the name has in front, component by component, numbers included. */
static void share_scope(hd_arena *a, hpt_name *scope, const hpt_name *name) {
    hpt_name rest;
    while (*scope->pattern && !hpt_within(a, name, scope, &rest)) {
        const char *dot = strrchr(scope->pattern, '.'), *last = dot ? dot + 1 : scope->pattern;
        scope->n -= strcmp(last, "#") == 0;
        scope->pattern = hd_strndup(a, scope->pattern, dot ? (size_t)(dot - scope->pattern) : 0);
    }
}

/* The name within the scope, which may be the whole model. */
static hpt_name within(hd_arena *a, const hpt_name *name, const hpt_name *scope) {
    hpt_name rest = *name;
    if (*scope->pattern) hpt_within(a, name, scope, &rest);
    return rest;
}

static void find_scope(const deriving *d, expression *x) {
    bool any = false;
    for (size_t i = 0; i < x->nodes.n; i++) {
        const hpt_node *n = &d->p->body.at[x->nodes.at[i]];
        for (uint32_t k = 0; k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++) {
                if (n->in[k].at[e].kind != HPT_WEIGHT) continue;
                const hpt_name *name = &n->in[k].at[e].name;
                if (!any) x->scope = *name;
                any = true;
                share_scope(d->p->a, &x->scope, name);
            }
    }
}

static void describe_number(hd_text *rest, hpt_number n) {
    hd_text_add(rest, " ");
    hpt_print_number(n, rest);
}

static void describe_ref(const deriving *d, expression *x, const hpt_ref *ref, hd_text *form,
                         hd_text *rest) {
    if (ref->kind == HPT_NUMBER) {
        hd_text_add(form, " number");
        describe_number(rest, ref->number);
    } else if (ref->kind == HPT_WEIGHT) {
        const hpt_name name = within(d->p->a, &ref->name, &x->scope);
        hd_text_f(form, " %lld@%s", (long long)ref->parts, name.pattern);
        for (uint32_t i = 0; i < name.n; i++)
            describe_number(rest, name.number[i]);
        if (!x->first) x->first = name.pattern;
    } else if (ref->kind == HPT_VARIABLE) {
        size_t at = 0;
        while (x->nodes.at[at] != d->definer[ref->variable])
            at++;
        hd_text_f(form, " %zu", at);
    } else {
        hd_text_add(form, " _");
    }
}

static void describe(const deriving *d, expression *x) {
    hd_text form, rest;
    hd_text_init(&form, d->p->a);
    hd_text_init(&rest, d->p->a);
    for (size_t i = 0; i < x->nodes.n; i++) {
        const hpt_node *n = &d->p->body.at[x->nodes.at[i]];
        hd_text_f(&form, "\n%s", n->shape);
        for (uint32_t k = 0; k < n->n_numbers; k++)
            describe_number(&rest, n->number[k]);
        for (uint32_t k = 0; k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                describe_ref(d, x, &n->in[k].at[e], &form, &rest);
    }
    x->form = form.at;
    x->rest = rest.at ? rest.at : "";
}

static void find_expressions(deriving *d) {
    for (uint32_t i = 0; i < d->p->body.n; i++) {
        if (!d->free[i] || !d->weights[i] || !d->read[i] || only_moves(&d->p->body.at[i])) continue;
        expression x = {.root = i};
        collect(d, &x);
        find_scope(d, &x);
        describe(d, &x);
        hd_push(d->p->a, &d->all, x);
    }
}

/* ---- properties ------------------------------------------------------------------------------ */
static bool is_component(const hpt_program *p, const char *word) {
    const size_t n = strlen(word);
    for (size_t i = 0; i < p->m->weights.n; i++)
        for (const char *at = p->m->weights.at[i].name; (at = strstr(at, word)); at += n)
            if ((at == p->m->weights.at[i].name || at[-1] == '.') && (!at[n] || at[n] == '.'))
                return true;
    for (size_t i = 0; i < p->derived.n; i++)
        if (strcmp(p->derived.at[i]->name, word) == 0) return true;
    return hpt_is_taken(word);
}

/* "derived_A_log" of "A_log". */
static const char *property_name(hpt_program *p, const char *weight) {
    char *word = hd_printf(p->a, "derived_%s", weight);
    char *to = word;
    for (const char *at = word; *at; at++) {
        const bool plain =
            (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        if (plain || (to > word && to[-1] != '_')) *to++ = plain ? *at : '_';
    }
    while (to[-1] == '_')
        to--;
    *to = 0;
    const char *name = word;
    for (int number = 2; is_component(p, name); number++)
        name = hd_printf(p->a, "%s_%d", word, number);
    return name;
}

static hpt_ref property_ref(hpt_program *p, const hpt_name *scope, const char *property) {
    hpt_ref ref = {.kind = HPT_WEIGHT, .name = *scope, .derived = true};
    ref.name.pattern =
        *scope->pattern ? hd_printf(p->a, "%s.%s", scope->pattern, property) : property;
    return ref;
}

static bool is_like(const expression *x, const expression *y) {
    return strcmp(x->form, y->form) == 0 && strcmp(x->rest, y->rest) == 0;
}

/* "model.layers.*.self_attn"; NULL: it does not stand in a comment of one line. */
static const char *scope_text(hd_arena *a, const char *pattern) {
    char *text = hd_strdup(a, *pattern ? pattern : "the model");
    for (char *at = text; *at; at++) {
        if ((unsigned char)*at < ' ') return NULL;
        if (*at == '#') *at = '*';
    }
    return text;
}

/* The scopes that have the property: "model.layers.*.self_attn, model.norm". */
static const char *about(const deriving *d, const expression *x) {
    hd_text out;
    hd_text_init(&out, d->p->a);
    for (size_t i = 0; i < d->all.n; i++) {
        const char *scope = d->all.at[i].scope.pattern;
        bool known = !is_like(&d->all.at[i], x);
        for (size_t k = 0; k < i && !known; k++)
            known = is_like(&d->all.at[k], x) && strcmp(d->all.at[k].scope.pattern, scope) == 0;
        if (known) continue;
        if (out.n && out.n + strlen(scope) > 90) return hd_text_add(&out, ", .."), out.at;
        const char *text = scope_text(d->p->a, scope);
        if (!text) return NULL;
        hd_text_f(&out, "%s%s", out.n ? ", " : "", text);
    }
    return out.at;
}

static hpt_function *make_property(deriving *d, const expression *x) {
    hpt_program *p = d->p;
    hpt_function *f = hd_new(p->a, hpt_function);
    f->name = property_name(p, x->first);
    f->about = about(d, x);
    f->scoped = true;
    for (size_t i = 0; i < x->nodes.n; i++) {
        hpt_node n = hpt_copy_node(p->a, &p->body.at[x->nodes.at[i]]);
        for (uint32_t k = 0; k < n.n_in; k++)
            for (uint32_t e = 0; e < n.in[k].n; e++) {
                hpt_ref *ref = &n.in[k].at[e];
                if (ref->kind != HPT_WEIGHT) continue;
                ref->name = within(p->a, &ref->name, &x->scope);
                if (f->rows.kind == HPT_NONE && !ref->parts) f->rows = *ref;
            }
        hd_push(p->a, &f->body, n);
    }
    if (f->rows.kind == HPT_NONE) { /* nothing but stacked weights */
        f->rows = (hpt_ref){.kind = HPT_SCOPE, .name = {.pattern = ""}};
    }
    const uint32_t out = p->body.at[x->root].out[0];
    hd_push(p->a, &f->out, ((hpt_ref){.kind = HPT_VARIABLE, .variable = out}));
    hd_push(p->a, &p->derived, f);
    return f;
}

/* ---- weights that passes have derived -------------------------------------------------------- */
/* Elements side by side or, of a product, rows of the block. */
static void print_factor(const hpt_program *p, const hpt_name *scope, const hir_derived_factor *f,
                         int64_t row, bool product, hd_text *out) {
    const hir_weight *w = &p->m->weights.at[hir_find_weight(p->m, f->name)];
    static const char *const before[HIR_DERIVED_BYS] = {[HIR_DERIVED_EXP] = "torch.exp(",
                                                        [HIR_DERIVED_NEG] = "(-",
                                                        [HIR_DERIVED_NEG_EXP] = "(-torch.exp(",
                                                        [HIR_DERIVED_SIGMOID] = "torch.sigmoid("};
    static const char *const after[HIR_DERIVED_BYS] = {[HIR_DERIVED_EXP] = ")",
                                                       [HIR_DERIVED_NEG] = ")",
                                                       [HIR_DERIVED_NEG_EXP] = "))",
                                                       [HIR_DERIVED_SIGMOID] = ")",
                                                       [HIR_DERIVED_SOFTMAX] = ".softmax(0)"};
    const hpt_name whole = hpt_make_name(p->a, w->name);
    const hpt_ref ref = {.kind = HPT_WEIGHT,
                         .name = within(p->a, &whole, scope),
                         .parts = w->stacked ? w->type.dim[0] : 0};
    const int64_t all = hir_type_row_elements(w->type), n = hir_factor_elements(f, all);
    hd_text_f(out, "%s%s.flatten()%s", before[f->by] ? before[f->by] : "", hpt_weight_text(p, &ref),
              after[f->by] ? after[f->by] : "");
    if (f->n) hd_text_f(out, "[%lld:%lld]", (long long)f->first, (long long)(f->first + f->n));
    if (f->by == HIR_DERIVED_TRANSPOSED) hd_text_f(out, ".reshape(-1, %lld).T", (long long)(n / row));
    if (product)
        hd_text_f(out, n < row ? ".reshape(1, 1)" : ".reshape(-1, %lld)", (long long)row);
    else if (f->by == HIR_DERIVED_TRANSPOSED)
        hd_text_add(out, ".flatten()");
}

/* torch.cat([the product of the factors, for each block of rows]).reshape(its dims) */
static const char *derived_text(const hpt_program *p, const hpt_name *scope, const hir_weight *w) {
    const int64_t row = hir_derived_row_elements(w->type);
    hd_text out;
    hd_text_init(&out, p->a);
    if (w->n_rows > 1) hd_text_add(&out, "torch.cat([");
    for (uint32_t i = 0; i < w->n_rows; i++) {
        if (i) hd_text_add(&out, ",\n                      ");
        const bool product = w->rows[i].n > 1;
        if (product) hd_text_add(&out, "(");
        for (uint32_t k = 0; k < w->rows[i].n; k++) {
            if (k) hd_text_add(&out, " * ");
            print_factor(p, scope, &w->rows[i].factor[k], row, product, &out);
        }
        if (product) hd_text_add(&out, w->n_rows > 1 ? ").flatten()" : ")");
    }
    hd_text_add(&out, w->n_rows > 1 ? "]).reshape(" : ".reshape(");
    for (uint32_t d = 0; d < w->type.rank; d++)
        hd_text_f(&out, "%s%lld", d ? ", " : "", (long long)w->type.dim[d]);
    hd_text_add(&out, ")");
    return out.at;
}

static hpt_ref derive_weight(hpt_program *p, const hir_weight *w) {
    hpt_name scope = hpt_make_name(p->a, w->rows[0].factor[0].name);
    for (uint32_t i = 0; i < w->n_rows; i++)
        for (uint32_t k = 0; k < w->rows[i].n; k++) {
            const hpt_name name = hpt_make_name(p->a, w->rows[i].factor[k].name);
            share_scope(p->a, &scope, &name);
        }
    hpt_function *f = hd_new(p->a, hpt_function);
    const char *text = derived_text(p, &scope, w), *about = scope_text(p->a, scope.pattern);
    const char *last = strrchr(w->name, '.');
    for (size_t i = 0; i < p->derived.n; i++) /* of another layer, with the same text */
        if (strcmp(p->derived.at[i]->text, text) == 0)
            return property_ref(p, &scope, p->derived.at[i]->name);
    *f = (hpt_function){.name = property_name(p, last ? last + 1 : w->name),
                        .about = about ? about : "of the model",
                        .scoped = true,
                        .text = text};
    hd_push(p->a, &p->derived, f);
    return property_ref(p, &scope, f->name);
}

void hpt_derive_weights(hpt_program *p) {
    hpt_ref *property = hd_new_array(p->a, hpt_ref, p->m->weights.n + 1);
    for (size_t i = 0; i < p->m->weights.n; i++)
        if (hir_is_derived(&p->m->weights.at[i]))
            property[i] = derive_weight(p, &p->m->weights.at[i]);
    p->property = property;
}

/* ---- all expressions ------------------------------------------------------------------------- */
static void replace(hpt_program *p, uint32_t variable, const hpt_ref *with) {
    for (size_t i = 0; i < p->body.n; i++)
        for (uint32_t k = 0; k < p->body.at[i].n_in; k++)
            for (uint32_t e = 0; e < p->body.at[i].in[k].n; e++) {
                hpt_ref *ref = &p->body.at[i].in[k].at[e];
                if (ref->kind == HPT_VARIABLE && ref->variable == variable) *ref = *with;
            }
    for (size_t i = 0; i < p->outputs.n; i++) {
        hpt_ref *ref = &p->outputs.at[i].at;
        if (ref->kind == HPT_VARIABLE && ref->variable == variable) *ref = *with;
    }
}

/* Nodes of expressions that nobody reads any more. */
static void drop_unread(deriving *d) {
    hpt_program *p = d->p;
    bool *kept = hd_new_array(p->a, bool, p->body.n + 1);
    bool *read = hd_new_array(p->a, bool, p->variables.n + 1);
    hpt_body body = {0};
    for (size_t i = 0; i < p->outputs.n; i++)
        if (p->outputs.at[i].at.kind == HPT_VARIABLE) read[p->outputs.at[i].at.variable] = true;
    for (size_t i = p->body.n; i-- > 0;) {
        const hpt_node *n = &p->body.at[i];
        kept[i] = !d->free[i] || read[n->out[0]];
        for (uint32_t k = 0; kept[i] && k < n->n_in; k++)
            for (uint32_t e = 0; e < n->in[k].n; e++)
                if (n->in[k].at[e].kind == HPT_VARIABLE) read[n->in[k].at[e].variable] = true;
    }
    for (size_t i = 0; i < p->body.n; i++)
        if (kept[i]) hd_push(p->a, &body, p->body.at[i]);
    p->body = body;
}

/* Has it the same numbers wherever its scope occurs? */
static bool is_uniform(const deriving *d, const expression *x) {
    for (size_t i = 0; i < d->all.n; i++) {
        const expression *y = &d->all.at[i];
        if (strcmp(x->form, y->form) == 0 && strcmp(x->rest, y->rest) != 0 &&
            strcmp(x->scope.pattern, y->scope.pattern) == 0)
            return false;
    }
    return true;
}

void hpt_derive(hpt_program *p) {
    deriving d = {.p = p};
    find_free(&d);
    find_read(&d);
    find_expressions(&d);
    const hpt_function **made = hd_new_array(p->a, const hpt_function *, d.all.n + 1);
    for (size_t i = 0; i < d.all.n; i++) {
        if (!is_uniform(&d, &d.all.at[i])) continue;
        size_t k = 0;
        while (k < i && !(made[k] && is_like(&d.all.at[k], &d.all.at[i])))
            k++;
        made[i] = k < i ? made[k] : make_property(&d, &d.all.at[i]);
    }
    for (size_t i = 0; i < d.all.n; i++) {
        if (!made[i]) continue;
        const hpt_ref with = property_ref(p, &d.all.at[i].scope, made[i]->name);
        replace(p, p->body.at[d.all.at[i].root].out[0], &with);
    }
    drop_unread(&d);
}
