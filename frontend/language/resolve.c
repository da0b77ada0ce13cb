/* Resolves names before anything runs: the variables of each definition, names without a meaning,
 * names with two meanings, and variables that are set and never read.
 *
 * Variables belong to the whole function, so one walk over its statements finds them. A name that a
 * method sets is a field if the object has a field of that name, and otherwise a variable of the
 * method. */
#include <string.h>

#include "frontend/language/elaborate.h"
#include "frontend/language/lexer.h"
#include "ir/signature.h"

typedef struct resolver {
    hfe_program *p;
    hfe_file *file;
    hfe_def *def;
    int included; /* depth of included configs */
    HD_VEC(hfe_target) locals;
    const hfe_expr *called;        /* the callee of the most recent call */
    HD_VEC(const char *) read;     /* names that some expression uses */
    HD_VEC(const char *) reported; /* unknown names: each is reported once per definition */
} resolver;

/* ---- which variables there are ------------------------------------------------------------- */
static bool has_local(const hfe_def *def, const char *name) {
    for (size_t i = 0; i < def->n_locals; i++)
        if (def->locals[i].name == name) return true;
    return false;
}

static void add_local(resolver *r, const char *name, hd_loc loc) {
    if (!name || (r->def->object && has_local(r->def->object, name))) return;
    for (size_t i = 0; i < r->locals.n; i++)
        if (r->locals.at[i].name == name) return;
    hfe_target target = {name, loc};
    hd_push(r->p->arena, &r->locals, target);
}

static void collect_expr(resolver *r, const hfe_expr *x);

static void collect_exprs(resolver *r, const hfe_exprs *list) {
    for (size_t i = 0; i < list->list.n; i++)
        collect_expr(r, list->list.at[i]);
}

/* Visits every child of an expression once. */
static void each_child(resolver *r, const hfe_expr *x,
                       void (*visit)(resolver *, const hfe_expr *)) {
    switch (x->kind) {
    case HFE_X_STRING:
        for (size_t i = 0; i < x->string.pieces.n; i++)
            visit(r, x->string.pieces.at[i].value);
        break;
    case HFE_X_LIST:
        for (size_t i = 0; i < x->list.list.n; i++)
            visit(r, x->list.list.at[i]);
        break;
    case HFE_X_COMPREHENSION:
        visit(r, x->each.over);
        visit(r, x->each.condition);
        visit(r, x->each.value);
        break;
    case HFE_X_NEG:
    case HFE_X_NOT: visit(r, x->operand); break;
    case HFE_X_BINARY:
        visit(r, x->binary.left);
        visit(r, x->binary.right);
        break;
    case HFE_X_IF:
        visit(r, x->choice.condition);
        visit(r, x->choice.yes);
        visit(r, x->choice.no);
        break;
    case HFE_X_CALL:
        visit(r, x->call.callee);
        for (size_t i = 0; i < x->call.args.n; i++)
            visit(r, x->call.args.at[i].value);
        break;
    case HFE_X_INDEX:
        visit(r, x->index.base);
        visit(r, x->index.index);
        break;
    case HFE_X_SLICE:
        visit(r, x->slice.base);
        visit(r, x->slice.from);
        visit(r, x->slice.to);
        break;
    case HFE_X_FIELD: visit(r, x->field.base); break;
    default: break;
    }
}

static void collect_expr(resolver *r, const hfe_expr *x) {
    if (!x) return;
    if (x->kind == HFE_X_COMPREHENSION) {
        add_local(r, x->each.index_name, x->loc);
        add_local(r, x->each.name, x->loc);
    }
    each_child(r, x, collect_expr);
}

static void collect_block(resolver *r, const hfe_block *b);

/* A config has the variables of the configs that it includes. */
static void collect_included(resolver *r, const hfe_stmt *s) {
    hfe_file *file = r->file;
    const hfe_def *config = hfe_included_config(file, s);
    if (config && r->included < HFE_MAX_INCLUDED) {
        r->included++;
        r->file = config->file;
        for (size_t i = 0; i < config->params.n; i++)
            add_local(r, config->params.at[i].name, config->params.at[i].loc);
        collect_block(r, &config->body);
        r->file = file;
        r->included--;
    }
}

static void collect_block(resolver *r, const hfe_block *b) {
    for (size_t i = 0; i < b->list.n; i++) {
        const hfe_stmt *s = b->list.at[i];
        if (s->kind == HFE_S_INCLUDE) collect_included(r, s);
        for (size_t k = 0; k < s->targets.n; k++)
            add_local(r, s->targets.at[k].name, s->targets.at[k].loc);
        collect_expr(r, s->index);
        collect_expr(r, s->name);
        collect_expr(r, s->value);
        collect_block(r, &s->body);
        collect_block(r, &s->otherwise);
    }
}

static void collect_locals(resolver *r, hfe_def *def) {
    r->def = def;
    r->locals.at = NULL; /* the definition keeps the list */
    r->locals.n = r->locals.cap = 0;
    for (size_t i = 0; i < def->params.n; i++) {
        hfe_target target = {def->params.at[i].name, def->params.at[i].loc};
        hd_push(r->p->arena, &r->locals, target);
        collect_expr(r, def->params.at[i].otherwise);
    }
    for (size_t i = 0; i < def->inputs.n; i++) {
        add_local(r, def->inputs.at[i].name, def->inputs.at[i].loc);
        collect_exprs(r, &def->inputs.at[i].dims);
    }
    if (def->kind == HFE_D_MODEL && !def->has_inputs)
        add_local(r, hfe_intern(r->p, "tokens", 6), def->loc);
    collect_expr(r, def->value);
    collect_block(r, &def->body);
    def->locals = r->locals.at;
    def->n_locals = r->locals.n;
}

/* ---- what names mean ----------------------------------------------------------------------- */
static hfe_def *find_method(const hfe_def *object, const char *name) {
    for (size_t i = 0; object && i < object->methods.n; i++)
        if (object->methods.at[i]->name == name) return object->methods.at[i];
    return NULL;
}

static const hfe_def *object_of(const hfe_def *def) {
    return def->kind == HFE_D_OBJECT || def->kind == HFE_D_CONFIG ? def : def->object;
}

/* True for names known in the model of a family: the variables of its config, and `absent` for an
 * argument that is left out. */
static bool is_known_to_family(const resolver *r, const char *name) {
    bool config = false, found = false;
    for (size_t i = 0; i < r->file->defs.n; i++) {
        const hfe_def *def = r->file->defs.at[i];
        config |= def->kind == HFE_D_CONFIG;
        found |=
            def->kind == HFE_D_CONFIG && (has_local(def, name) || hfe_config_function(def, name));
    }
    const bool inlined = r->def->object && r->def->object->kind == HFE_D_CONFIG;
    return (r->def->kind == HFE_D_MODEL && (found || (config && strcmp(name, "absent") == 0))) ||
           (inlined && (strcmp(name, "absent") == 0 || hfe_config_function(r->def->object, name)));
}

static bool is_known(const resolver *r, const char *name) {
    hir_opcode code;
    const hfe_def *object = object_of(r->def);
    const hfe_def *def = hfe_find_def(r->file, name);
    return has_local(r->def, name) || (object && has_local(object, name)) ||
           find_method(object, name) || def || is_known_to_family(r, name) ||
           hfe_find_builtin(name) || hfe_find_op(name, &code) || strcmp(name, "T") == 0 ||
           strcmp(name, "C") == 0;
}

static void add_candidate(hfe_program *p, hfe_candidates *out, const char *name) {
    hd_push(p->arena, &out->list, name);
}

static void add_locals(hfe_program *p, const hfe_def *def, hfe_candidates *out) {
    for (size_t i = 0; i < def->n_locals; i++)
        add_candidate(p, out, def->locals[i].name);
    for (size_t i = 0; i < def->methods.n; i++)
        add_candidate(p, out, def->methods.at[i]->name);
}

static void add_defs(hfe_program *p, const hfe_file *file, hfe_candidates *out) {
    for (size_t i = 0; file && i < file->defs.n; i++)
        if (file->defs.at[i]->kind != HFE_D_MODEL && file->defs.at[i]->kind != HFE_D_CONFIG)
            add_candidate(p, out, file->defs.at[i]->name);
}

void hfe_visible_names(hfe_program *p, const hfe_file *file, const hfe_def *def,
                       hfe_candidates *out) {
    if (def) add_locals(p, def, out);
    if (def && def->object) add_locals(p, def->object, out);
    add_defs(p, file, out);
    for (size_t i = 0; i < file->uses.n; i++)
        add_defs(p, file->uses.at[i].file, out);
    for (size_t i = 0; hfe_builtin_names[i]; i++)
        add_candidate(p, out, hfe_builtin_names[i]);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++) {
        hir_opcode found;
        if (hfe_find_op(hir_info((hir_opcode)code)->name, &found))
            add_candidate(p, out, hir_info((hir_opcode)code)->name);
    }
}

static bool first_time(resolver *r, const char *name) {
    for (size_t i = 0; i < r->reported.n; i++)
        if (r->reported.at[i] == name) return false;
    hd_push(r->p->arena, &r->reported, name);
    return true;
}

static void reject_name(resolver *r, const hfe_expr *x, const char *name) {
    hfe_candidates candidates = {0};
    hfe_visible_names(r->p, r->file, r->def, &candidates);
    hd_diag *d = hd_err(r->p->diags, HD_E_NAME, x->loc, "unknown name '%s'", name);
    const char *page = hfe_library_page(r->p, name);
    const char *near = hd_nearest(name, candidates.list.at, candidates.list.n);
    const char *foreign = hfe_foreign_word(name);
    if (page)
        d->hint = hd_printf(r->p->arena, "it is in the library: use \"%s\"", page);
    else if (foreign)
        d->hint = foreign;
    else if (near)
        d->hint = hd_printf(r->p->arena, "did you mean '%s'?", near);
    else if (x == r->called)
        d->hint = "'hadal ops' lists the ops, docs/language.md the functions of the library";
}

static void check_op_name(resolver *r, const hfe_expr *x) {
    hir_opcode code;
    if (hfe_find_op(x->name, &code)) return;
    hfe_candidates ops = {0};
    for (int i = 0; i < HIR_OPCODE_COUNT; i++) {
        const char *name = hir_info((hir_opcode)i)->name;
        if (hfe_find_op(name, &code)) add_candidate(r->p, &ops, name);
    }
    hd_diag *d = hd_err(r->p->diags, HD_E_NAME, x->loc, "there is no op '%s'", x->name);
    const char *near = hd_nearest(x->name, ops.list.at, ops.list.n);
    d->hint =
        near ? hd_printf(r->p->arena, "did you mean 'op.%s'?", near) : "'hadal ops' lists them";
}

static void check_expr(resolver *r, const hfe_expr *x);

static void check_arguments(resolver *r, const hfe_expr *call) {
    for (size_t i = 0; i < call->call.args.n; i++)
        check_expr(r, call->call.args.at[i].value);
}

static void check_expr(resolver *r, const hfe_expr *x) {
    if (!x) return;
    if (r->def->kind == HFE_D_CONFIG && r->p->words->check_rule(r->p, x)) {
        check_arguments(r, x);
        return;
    }
    if (x->kind == HFE_X_NAME) {
        hd_push(r->p->arena, &r->read, x->name);
        if (!is_known(r, x->name) && first_time(r, x->name)) reject_name(r, x, x->name);
    } else if (x->kind == HFE_X_OP_NAME) {
        check_op_name(r, x);
    }
    if (x->kind == HFE_X_CALL) r->called = x->call.callee;
    each_child(r, x, check_expr);
}

static void check_config_name(resolver *r, const hfe_expr *x) {
    if (!hfe_find_config(r->file, x->name))
        hd_err(r->p->diags, HD_E_NAME, x->loc, "there is no config '%s'", x->name)->hint =
            "configs are known from this file and from those it uses";
}

/* Checks the declaration of a field, where the kind is no function, and the aspect `of` names a
 * config. */
static bool check_declaration(resolver *r, const hfe_stmt *s) {
    hfe_parts parts = {0};
    if (!r->p->words->check_declaration(r->p, s, &parts)) return false;
    for (size_t i = 0; i < parts.list.n; i++)
        if (parts.list.at[i] == parts.config)
            check_config_name(r, parts.config);
        else
            check_expr(r, parts.list.at[i]);
    return true;
}

/* Returns true if the statement needs no further check. */
static bool check_config_statement(resolver *r, const hfe_stmt *s) {
    if (s->kind == HFE_S_INCLUDE) {
        const hfe_expr *x = s->value;
        check_config_name(r, x->kind == HFE_X_CALL ? x->call.callee : x);
        if (x->kind == HFE_X_CALL) check_arguments(r, x);
        if (s->name && !hfe_literal(s->name))
            hd_err(r->p->diags, HD_E_TYPE, s->name->loc,
                   "the object that a config is for is named by a plain string");
        return true;
    }
    if (s->mark == HFE_PLAIN) return false;
    return check_declaration(r, s) || s->mark == HFE_FIELD; /* the declaration has reported it */
}

static void check_block(resolver *r, const hfe_block *b) {
    for (size_t i = 0; i < b->list.n; i++) {
        const hfe_stmt *s = b->list.at[i];
        if (check_config_statement(r, s)) continue;
        if (s->kind == HFE_S_ASSIGN_INDEX) { /* it needs the old list */
            hd_push(r->p->arena, &r->read, s->targets.at[0].name);
        }
        const bool loop = s->kind == HFE_S_FOR || s->kind == HFE_S_LOOP;
        if (loop || s->kind == HFE_S_OUTPUT) { /* these need not be read */
            for (size_t k = 0; k < s->targets.n; k++)
                hd_push(r->p->arena, &r->read, s->targets.at[k].name);
        }
        check_expr(r, s->index);
        check_expr(r, s->name);
        check_expr(r, s->value);
        check_block(r, &s->body);
        check_block(r, &s->otherwise);
    }
}

/* ---- variables that are never read --------------------------------------------------------- */
static bool is_read(const resolver *r, const char *name) {
    for (size_t i = 0; i < r->read.n; i++)
        if (r->read.at[i] == name) return true;
    return false;
}

/* Lists variables that are set and never read: a typing error on the left of `=` makes such a
 * variable. */
static void note_unread(resolver *r) {
    const hfe_def *def = r->def;
    if (def->kind == HFE_D_OBJECT || def->kind == HFE_D_CONFIG) { /* fields are read from outside */
        return;
    }
    size_t given = def->params.n + (def->kind != HFE_D_MODEL ? 0
                                    : def->has_inputs        ? def->inputs.n
                                                             : 1 /* tokens */);
    for (size_t i = given; i < def->n_locals; i++) {
        const hfe_target *t = &def->locals[i];
        if (is_read(r, t->name) || t->name[0] == '_') continue;
        hfe_candidates others = {0};
        for (size_t k = 0; k < def->n_locals; k++)
            if (k != i) add_candidate(r->p, &others, def->locals[k].name);
        if (def->object) add_locals(r->p, def->object, &others);
        const char *near = hd_nearest(t->name, others.list.at, others.list.n);
        hfe_unread unread = {*t, near ? hd_printf(r->p->arena, "did you mean '%s'?", near)
                                      : "a name that starts with '_' may stay unread"};
        hd_push(r->p->arena, &r->p->unread, unread);
    }
}

/* ---- definitions --------------------------------------------------------------------------- */
static void check_def(resolver *r, hfe_def *def) {
    r->def = def;
    r->read.n = r->reported.n = 0;
    for (size_t i = 0; i < def->params.n; i++)
        check_expr(r, def->params.at[i].otherwise);
    for (size_t i = 0; i < def->inputs.n; i++)
        for (size_t k = 0; k < def->inputs.at[i].dims.list.n; k++)
            check_expr(r, def->inputs.at[i].dims.list.at[k]);
    check_expr(r, def->value);
    check_block(r, &def->body);
    note_unread(r);
    for (size_t i = 0; i < def->methods.n; i++)
        check_def(r, def->methods.at[i]);
}

static void check_methods(resolver *r, const hfe_def *def) {
    for (size_t i = 0; i < def->methods.n; i++) {
        const hfe_def *method = def->methods.at[i];
        const hfe_def *first = find_method(def, method->name);
        bool field = has_local(def, method->name);
        if (first != method || field) {
            hd_diag *d = hd_err(r->p->diags, HD_E_NAME, method->loc, "'%s' has two members '%s'",
                                def->name, method->name);
            d->cause = field
                           ? "one is a field, the other a method"
                           : hd_printf(r->p->arena, "the first stands in line %u", first->loc.line);
        }
    }
}

/* Reports a name that two used files define, unless the file defines it itself. */
static void check_clashes(resolver *r) {
    const hfe_file *f = r->file;
    for (size_t i = 0; i < f->uses.n; i++) {
        const hfe_use *use = &f->uses.at[i];
        for (size_t k = 0; use->file && k < use->file->defs.n; k++) {
            const hfe_def *def = use->file->defs.at[k];
            const hfe_def *meant = hfe_find_def(f, def->name);
            if (def->kind != HFE_D_MODEL && def->kind != HFE_D_CONFIG && meant->file != f &&
                meant != def) {
                hd_diag *d = hd_err(r->p->diags, HD_E_NAME, use->loc,
                                    "'%s' is defined in two of the used files", def->name);
                d->cause =
                    hd_printf(r->p->arena, "in %s and in %s", meant->file->path, use->file->path);
            }
        }
    }
}

void hfe_resolve(hfe_program *p, hfe_file *file) {
    resolver r = {.p = p, .file = file};
    check_clashes(&r);
    for (size_t i = 0; i < file->defs.n; i++) {
        hfe_def *def = file->defs.at[i];
        collect_locals(&r, def);
        for (size_t k = 0; k < def->methods.n; k++)
            collect_locals(&r, def->methods.at[k]);
        check_methods(&r, def);
    }
    for (size_t i = 0; i < file->defs.n; i++)
        check_def(&r, file->defs.at[i]);
}
