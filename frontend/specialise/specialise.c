/* Statements and parameters of a specialised model; expressions are in expression.c. */
#include "frontend/specialise/specialise.h"

#include <string.h>

#include "frontend/specialise/expression.h"

enum { WIDTH = 120, STEP = 4 };

/* ---- which variables may become values ------------------------------------------------------ */

static bool sets(const hfe_block *b, const char *name) {
    for (size_t i = 0; i < b->list.n; i++) {
        const hfe_stmt *s = b->list.at[i];
        for (size_t k = 0; k < s->targets.n; k++)
            if (s->targets.at[k].name == name) return true;
        if (sets(&s->body, name) || sets(&s->otherwise, name)) return true;
    }
    return false;
}

/* A variable that is set in a loop, or under a condition which the model evaluates, has no single
 * value. */
static void forget_all_set_in(hfe_special *sp, const hfe_block *b) {
    for (size_t i = 0; i < sp->e->frame->def->n_locals; i++)
        if (sets(b, sp->e->frame->def->locals[i].name)) {
            sp->loose[i] = true;
            sp->e->frame->locals[i] = (hfe_value){.type = HFE_UNSET};
        }
}

static size_t local_of(const hfe_special *sp, const char *name) {
    size_t i = 0;
    while (i < sp->e->frame->def->n_locals && sp->e->frame->def->locals[i].name != name)
        i++;
    return i;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void add_indent(hfe_special *sp, int indent) {
    hd_text_f(&sp->out, "%*s", indent, "");
}

/* Writes a line; a call that is longer than a line is broken between its arguments. */
static void add_line(hfe_special *sp, int indent, const char *head, const hfe_expr *x) {
    const size_t start = sp->out.n;
    add_indent(sp, indent);
    hd_text_add(&sp->out, head);
    hfe_add_wrapped(sp, x, start, indent + STEP, WIDTH);
    hd_text_add(&sp->out, "\n");
}

static void add_block(hfe_special *sp, const hfe_block *b, int indent);

static void add_body(hfe_special *sp, const hfe_block *b, int indent) {
    hd_text_add(&sp->out, " {\n");
    add_block(sp, b, indent + STEP);
    add_indent(sp, indent);
    hd_text_add(&sp->out, "}");
}

/* ---- statements ----------------------------------------------------------------------------- */

static void add_assign(hfe_special *sp, const hfe_stmt *s, int indent) {
    const size_t i = local_of(sp, s->targets.at[0].name);
    const hfe_value v = hfe_static(sp, s->value, false);
    if (!hfe_is(v, HFE_UNSET) && !sp->loose[i]) {
        sp->e->frame->locals[i] = v; /* the value replaces the variable in the spec */
        return;
    }
    add_line(sp, indent, hd_printf(sp->e->arena, "%s = ", s->targets.at[0].name), s->value);
    sp->e->frame->locals[i] = (hfe_value){.type = HFE_UNSET};
}

static void add_unpack(hfe_special *sp, const hfe_stmt *s, int indent) {
    hd_text head;
    hd_text_init(&head, sp->e->arena);
    for (size_t i = 0; i < s->targets.n; i++) {
        hd_text_f(&head, "%s%s", i > 0 ? ", " : "", s->targets.at[i].name);
        sp->e->frame->locals[local_of(sp, s->targets.at[i].name)] = (hfe_value){.type = HFE_UNSET};
    }
    hd_text_add(&head, " = ");
    add_line(sp, indent, head.at, s->value);
}

static void add_if(hfe_special *sp, const hfe_stmt *s, int indent) {
    const hfe_value c = hfe_static(sp, s->value, true);
    if (hfe_is(c, HFE_BOOL)) {
        add_block(sp, c.boolean ? &s->body : &s->otherwise, indent);
        return;
    }
    forget_all_set_in(sp, &s->body);
    forget_all_set_in(sp, &s->otherwise);
    add_indent(sp, indent);
    hd_text_add(&sp->out, "if ");
    hfe_add_expr(sp, s->value);
    add_body(sp, &s->body, indent);
    if (s->otherwise.list.n > 0) {
        hd_text_add(&sp->out, " else");
        add_body(sp, &s->otherwise, indent);
    }
    hd_text_add(&sp->out, "\n");
}

/* A loop, with states of its rounds or not, over a list that the config decides is written without a loop if the list has one element,
 * and left out if it has none. */
static bool add_single_round(hfe_special *sp, const hfe_stmt *s, int indent) {
    const hfe_value over = hfe_static(sp, s->value, false);
    if (!hfe_is(over, HFE_LIST) || over.list->n > 1 || s->targets.n != 1) return false;
    if (over.list->n == 0) return true;
    const size_t i = local_of(sp, s->targets.at[0].name);
    sp->e->frame->locals[i] = hfe_item(over.list, 0);
    add_block(sp, &s->body, indent);
    sp->e->frame->locals[i] = (hfe_value){.type = HFE_UNSET};
    return true;
}

static void add_for(hfe_special *sp, const hfe_stmt *s, int indent) {
    if (add_single_round(sp, s, indent)) return;
    forget_all_set_in(sp, &s->body);
    add_indent(sp, indent);
    hd_text_add(&sp->out, s->kind == HFE_S_LOOP ? "loop " : "for ");
    for (size_t i = 0; i < s->targets.n; i++)
        hd_text_f(&sp->out, "%s%s", i > 0 ? ", " : "", s->targets.at[i].name);
    hd_text_add(&sp->out, " in ");
    hfe_add_expr(sp, s->value);
    add_body(sp, &s->body, indent);
    hd_text_add(&sp->out, "\n");
}

/* A scope whose name turns out to be empty is left out. */
static void add_at(hfe_special *sp, const hfe_stmt *s, int indent) {
    const hfe_value scope = hfe_static(sp, s->value, true);
    if (hfe_is(scope, HFE_STRING) && !*scope.string) {
        add_block(sp, &s->body, indent);
        return;
    }
    add_indent(sp, indent);
    hd_text_add(&sp->out, "at ");
    hfe_add_expr(sp, s->value);
    add_body(sp, &s->body, indent);
    hd_text_add(&sp->out, "\n");
}

static void add_statement(hfe_special *sp, const hfe_stmt *s, int indent) {
    switch (s->kind) {
    case HFE_S_EXPR: add_line(sp, indent, "", s->value); break;
    case HFE_S_ASSIGN: add_assign(sp, s, indent); break;
    case HFE_S_UNPACK: add_unpack(sp, s, indent); break;
    case HFE_S_FOR:
    case HFE_S_LOOP: add_for(sp, s, indent); break;
    case HFE_S_IF: add_if(sp, s, indent); break;
    case HFE_S_AT: add_at(sp, s, indent); break;
    case HFE_S_OUTPUT:
        add_line(sp, indent,
                 hd_printf(sp->e->arena,
                           "output %s = ", hfe_literal(s->name) ? hfe_literal(s->name) : "logits"),
                 s->value);
        break;
    default:
        hfe_fail(sp->e, HD_E_TYPE, s->loc, "the model of a family is written out for its config",
                 NULL, "this statement cannot stand in the model of a family");
    }
}

static void add_block(hfe_special *sp, const hfe_block *b, int indent) {
    for (size_t i = 0; i < b->list.n && !sp->e->stop; i++)
        add_statement(sp, b->list.at[i], indent);
}

/* ---- the spec ------------------------------------------------------------------------------- */

static const char *text_variable(hfe_elab *e, const char *name) {
    const hfe_value *v = hfe_variable(e, hfe_intern(e->p, name, strlen(name)));
    return v && hfe_is(*v, HFE_STRING) ? v->string : NULL;
}

static void add_title(hfe_special *sp, hd_text *out) {
    const char *title = text_variable(sp->e, "title"), *with = text_variable(sp->e, "with");
    const char *name = title ? title : sp->bound->config->def->name;
    hd_text_f(out, "# %s %s model%s%s, from its config.json.\n",
              strchr("AEIOUaeiou", name[0]) ? "An" : "A", name, with && *with ? " with " : "",
              with ? with : "");
    hd_text_add(out, "# Weights are named as in the checkpoint.\n");
    for (size_t i = 0; i < sp->bound->remarks.n; i++)
        hd_text_f(out, "# %s.\n", sp->bound->remarks.at[i]);
    hd_text_add(out, "\n");
}

/* Writes `use` for "layers" first, and for the other pages in the order of their first use. */
static void add_uses(hfe_special *sp, hd_text *out) {
    hd_text rest;
    hd_text_init(&rest, sp->e->arena);
    for (size_t i = 0; i < sp->used.n; i++) {
        hd_text *to = strcmp(sp->used.at[i], "layers") == 0 ? out : &rest;
        hd_text_f(to, "use \"%s\"\n", sp->used.at[i]);
    }
    hd_text_add(out, rest.at ? rest.at : "");
    hd_text_add(out, "\n");
}

static const hfe_value *field_of(const hfe_object *o, const char *name) {
    for (size_t i = 0; i < o->def->n_locals; i++)
        if (o->def->locals[i].name == name) return &o->fields[i];
    return NULL;
}

static void add_parameters(hfe_special *sp, hd_text *out) {
    const hfe_bindings *b = sp->bound;
    for (size_t i = 0; i < b->params.n; i++) {
        const hfe_parameter *p = &b->params.at[i];
        if (!p->used) continue;
        for (size_t k = 0; k < i; k++)
            if (b->params.at[k].used && b->params.at[k].name == p->name)
                hfe_fail(sp->e, HD_E_NAME, p->of->def->loc, NULL, NULL,
                         "two configs have a parameter '%s'", p->name);
        hd_text_f(out, "    %s = ", p->name);
        hfe_add_value(*field_of(p->of, p->name), out);
        hd_text_add(out, ",\n");
    }
}

char *hfe_specialise(hfe_elab *e, const hfe_def *model, hfe_bindings *bound, const char *name) {
    hfe_frame frame = {.def = model,
                       .locals = hd_new_array(e->arena, hfe_value, model->n_locals + 1),
                       .self = bound->config};
    hfe_special sp = {
        .e = e, .bound = bound, .loose = hd_new_array(e->arena, bool, model->n_locals + 1)};
    hd_text out;
    const size_t errors = e->diags->errors;
    e->frame = &frame;
    hd_text_init(&sp.out, e->arena);
    hd_text_init(&out, e->arena);
    for (size_t i = 0; i < model->n_locals; i++)
        frame.locals[i] = (hfe_value){.type = HFE_UNSET};
    add_block(&sp, &model->body, STEP);
    add_title(&sp, &out);
    add_uses(&sp, &out);
    hd_text_f(&out, "model %s(\n", name);
    add_parameters(&sp, &out);
    hd_text_f(&out, ") {\n%s}\n", sp.out.at ? sp.out.at : "");
    e->frame = NULL;
    return e->diags->errors > errors ? NULL : out.at;
}
