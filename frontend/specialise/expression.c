/* Expressions of a specialised model: what the config decides becomes a value, and the rest is
 * written as it stands in the page (specialise.h). */
#include "frontend/specialise/expression.h"

#include <string.h>

/* ---- what names mean ------------------------------------------------------------------------ */

static hfe_value unset(void) {
    return (hfe_value){.type = HFE_UNSET};
}

static const hfe_file *file_of(const hfe_special *sp) {
    return sp->inlined ? sp->inlined->def->file : sp->e->frame->def->file;
}

/* Returns the parameter of the spec that a variable of a config becomes, or NULL. */
static hfe_parameter *parameter_of(const hfe_special *sp, const hfe_object *of, const char *name) {
    hfe_bindings *b = sp->bound;
    for (size_t i = 0; i < b->params.n; i++)
        if (b->params.at[i].of == of && b->params.at[i].name == name) return &b->params.at[i];
    return NULL;
}

static const hfe_value *variable_of(const hfe_object *o, const char *name) {
    for (size_t i = 0; o && i < o->def->n_locals; i++)
        if (o->def->locals[i].name == name) return &o->fields[i];
    return NULL;
}

/* Returns the config, whose variables can be named without an object. */
static hfe_object *self_of(const hfe_special *sp) {
    return sp->inlined ? sp->inlined->self : sp->e->frame->self;
}

static const hfe_value *local_value(const hfe_special *sp, const char *name) {
    const hfe_frame *f = sp->e->frame;
    for (size_t i = 0; !sp->inlined && i < f->def->n_locals; i++)
        if (f->def->locals[i].name == name) return &f->locals[i];
    return NULL;
}

/* Returns the argument for a parameter of the function that is being written out, or NULL if `name`
 * is no such parameter. */
static const hfe_expr *argument_of(const hfe_special *sp, const char *name) {
    const hfe_inlined *in = sp->inlined;
    for (size_t k = 0; in && k < in->def->params.n; k++) {
        if (in->def->params.at[k].name != name) continue;
        for (size_t i = 0; i < in->call->call.args.n; i++) {
            const hfe_arg *arg = &in->call->call.args.at[i];
            if (arg->name ? arg->name == name : i == k) return arg->value;
        }
    }
    return NULL;
}

/* Returns the function of a config that a call names, which is then written out in place of the
 * call; NULL for any other call. */
static const hfe_def *inlined_function(hfe_special *sp, const hfe_expr *x, hfe_object **self) {
    if (x->kind == HFE_X_CALL && x->call.callee->kind == HFE_X_NAME &&
        !local_value(sp, x->call.callee->name) && self_of(sp)) {
        *self = self_of(sp);
        return hfe_config_function((*self)->def, x->call.callee->name);
    }
    if (x->kind != HFE_X_CALL || x->call.callee->kind != HFE_X_FIELD) return NULL;
    const hfe_value base = hfe_static(sp, x->call.callee->field.base, true);
    if (!hfe_is(base, HFE_OBJECT)) return NULL;
    *self = base.object;
    return hfe_config_function(base.object->def, x->call.callee->field.name);
}

/* Returns how many functions of configs are being written out, one within the other. */
static int inlined_depth(const hfe_special *sp) {
    int depth = 0;
    for (const hfe_inlined *in = sp->inlined; in; in = in->outer)
        depth++;
    return depth;
}

static const hfe_expr *body_of(hfe_special *sp, const hfe_def *def) {
    enum { DEEPEST = 20 };
    if (inlined_depth(sp) > DEEPEST) {
        hfe_fail(sp->e, HD_E_TYPE, def->loc, "it is written out where it is called", NULL,
                 "a function of a config that calls itself has no end");
        return NULL;
    }
    if (def->body.list.n == 1 && def->body.list.at[0]->kind == HFE_S_RETURN &&
        def->body.list.at[0]->value)
        return def->body.list.at[0]->value;
    hfe_fail(sp->e, HD_E_TYPE, def->loc, "it is written out where it is called", NULL,
             "a function of a config is one return");
    return NULL;
}

/* ---- what the config decides ---------------------------------------------------------------- */

static hfe_value static_name(hfe_special *sp, const hfe_expr *x, bool condition) {
    const hfe_expr *argument = argument_of(sp, x->name);
    if (argument) {
        hfe_inlined *in = sp->inlined;
        sp->inlined = in->outer;
        const hfe_value v = hfe_static(sp, argument, condition);
        sp->inlined = in;
        return v;
    }
    const hfe_value *v = local_value(sp, x->name);
    if (v) return *v;
    hfe_object *self = self_of(sp);
    v = variable_of(self, x->name);
    if (v) return !condition && parameter_of(sp, self, x->name) ? unset() : *v;
    const hfe_def *def = hfe_find_def(file_of(sp), x->name);
    return def && def->kind == HFE_D_CONSTANT ? hfe_constant(sp->e, def, x->loc) : unset();
}

static hfe_value static_string(hfe_special *sp, const hfe_expr *x) {
    hd_text out;
    hd_text_init(&out, sp->e->arena);
    for (size_t i = 0; i < x->string.pieces.n; i++) {
        const hfe_piece *piece = &x->string.pieces.at[i];
        const hfe_value v =
            piece->value ? hfe_static(sp, piece->value, false) : hfe_string(piece->text);
        if (hfe_is(v, HFE_UNSET) || hfe_is(v, HFE_NONE) || !hfe_show(v, &out)) return unset();
    }
    return hfe_new_string(sp->e, x->loc, out.at ? out.at : "", out.n);
}

static hfe_value static_list(hfe_special *sp, const hfe_expr *x, bool condition) {
    hfe_value list = hfe_new_list(sp->e, x->loc, NULL, 0);
    for (size_t i = 0; i < x->list.list.n && hfe_is(list, HFE_LIST); i++) {
        const hfe_value v = hfe_static(sp, x->list.list.at[i], condition);
        list = hfe_is(v, HFE_UNSET) ? v : hfe_append(sp->e, x->loc, list.list, v);
    }
    return list;
}

static hfe_value static_binary(hfe_special *sp, const hfe_expr *x, bool condition) {
    const hfe_binary op = x->binary.op;
    const hfe_value a = hfe_static(sp, x->binary.left, condition);
    if (hfe_is(a, HFE_UNSET)) return a;
    if (op == HFE_OR_ELSE)
        return hfe_is(a, HFE_NONE) ? hfe_static(sp, x->binary.right, condition) : a;
    const bool decided = (op == HFE_AND || op == HFE_OR) && hfe_is(a, HFE_BOOL);
    if (decided && a.boolean == (op == HFE_OR)) return a;
    const hfe_value b = hfe_static(sp, x->binary.right, condition);
    return hfe_is(b, HFE_UNSET) || decided ? b : hfe_binary_value(sp->e, x->loc, op, a, b);
}

static hfe_value static_field(hfe_special *sp, const hfe_expr *x, bool condition) {
    const hfe_value base = hfe_static(sp, x->field.base, condition);
    if (!hfe_is(base, HFE_OBJECT)) return unset();
    const hfe_value *v = variable_of(base.object, x->field.name);
    if (!v || hfe_is(*v, HFE_UNSET))
        return hfe_fail(sp->e, HD_E_NAME, x->field.name_loc, NULL, NULL,
                        "the config '%s' has no variable '%s'", base.object->def->name,
                        x->field.name);
    return !condition && parameter_of(sp, base.object, x->field.name) ? unset() : *v;
}

static hfe_value static_index(hfe_special *sp, const hfe_expr *x, bool condition) {
    const hfe_value base = hfe_static(sp, x->index.base, condition);
    const hfe_value i = hfe_static(sp, x->index.index, condition);
    if (!hfe_is(base, HFE_LIST) || !hfe_is(i, HFE_INT)) return unset();
    const int64_t n = (int64_t)base.list->n, at = i.integer < 0 ? i.integer + n : i.integer;
    return at >= 0 && at < n
               ? hfe_item(base.list, (size_t)at)
               : hfe_fail(sp->e, HD_E_VALUE, x->loc, NULL, NULL, "this index is outside the list");
}

/* True for functions whose result depends on their arguments only. */
static bool is_pure(const char *name) {
    static const char *const names[] = {"len", "float", "int", "sum"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

static hfe_value static_call(hfe_special *sp, const hfe_expr *x, bool condition) {
    hfe_object *self = NULL;
    const hfe_def *def = inlined_function(sp, x, &self);
    if (def) {
        hfe_inlined in = {def, self, x, sp->inlined};
        const hfe_expr *body = body_of(sp, def);
        sp->inlined = &in;
        const hfe_value v = body ? hfe_static(sp, body, condition) : hfe_poison();
        sp->inlined = in.outer;
        return v;
    }
    hir_opcode code;
    const char *name = x->call.callee->kind == HFE_X_NAME ? x->call.callee->name : "";
    const bool pure = is_pure(name), op = hfe_find_op(name, &code);
    if ((!pure && !op) || hfe_find_def(file_of(sp), x->call.callee->name)) return unset();
    hfe_call call = {.loc = x->loc, .name = name, .n_args = x->call.args.n};
    call.args = hd_new_array(sp->e->arena, hfe_passed, call.n_args + 1);
    for (size_t i = 0; i < call.n_args; i++) {
        const hfe_arg *arg = &x->call.args.at[i];
        const hfe_value v = hfe_static(sp, arg->value, condition);
        if (hfe_is(v, HFE_UNSET) || hfe_is(v, HFE_POISON) || arg->name || (op && !hfe_is_number(v)))
            return unset();
        call.args[i] = (hfe_passed){NULL, arg->value->loc, arg->value->loc, v};
    }
    return pure ? hfe_find_builtin(name)->run(sp->e, &call) : hfe_call_op(sp->e, code, &call);
}

hfe_value hfe_static(hfe_special *sp, const hfe_expr *x, bool condition) {
    hfe_value v;
    switch (x->kind) {
    case HFE_X_NONE: return hfe_none();
    case HFE_X_BOOL: return hfe_bool(x->boolean);
    case HFE_X_INT: return hfe_int(x->integer);
    case HFE_X_FLOAT: return hfe_float(x->number);
    case HFE_X_STRING: return static_string(sp, x);
    case HFE_X_NAME: return static_name(sp, x, condition);
    case HFE_X_LIST: return static_list(sp, x, condition);
    case HFE_X_NEG:
        v = hfe_static(sp, x->operand, condition);
        return hfe_is_number(v) ? hfe_binary_value(sp->e, x->loc, HFE_SUB, hfe_int(0), v) : unset();
    case HFE_X_NOT:
        v = hfe_static(sp, x->operand, condition);
        return hfe_is(v, HFE_BOOL) ? hfe_bool(!v.boolean) : unset();
    case HFE_X_BINARY: return static_binary(sp, x, condition);
    case HFE_X_IF:
        v = hfe_static(sp, x->choice.condition, true);
        return hfe_is(v, HFE_BOOL)
                   ? hfe_static(sp, v.boolean ? x->choice.yes : x->choice.no, condition)
                   : unset();
    case HFE_X_CALL: return static_call(sp, x, condition);
    case HFE_X_FIELD: return static_field(sp, x, condition);
    case HFE_X_INDEX: return static_index(sp, x, condition);
    default: return unset();
    }
}

/* ---- values as text ------------------------------------------------------------------------- */

/* Writes text between quotes; braces are doubled, so that none begins an expression. */
static void add_quoted_text(const char *s, hd_text *out) {
    for (; *s; s++) {
        switch (*s) {
        case '"': hd_text_add(out, "\\\""); break;
        case '\\': hd_text_add(out, "\\\\"); break;
        case '\n': hd_text_add(out, "\\n"); break;
        case '\t': hd_text_add(out, "\\t"); break;
        case '{': hd_text_add(out, "{{"); break;
        case '}': hd_text_add(out, "}}"); break;
        default: hd_text_add_n(out, s, 1);
        }
    }
}

void hfe_add_value(hfe_value v, hd_text *out) {
    const size_t before = out->n;
    switch (v.type) {
    case HFE_FLOAT: /* the text has a point or an exponent */
        hd_text_double(out, v.number);
        if (!strpbrk(out->at + before, ".e")) hd_text_add(out, ".0");
        break;
    case HFE_STRING:
        hd_text_add(out, "\"");
        add_quoted_text(v.string, out);
        hd_text_add(out, "\"");
        break;
    case HFE_LIST:
        hd_text_add(out, "[");
        for (size_t i = 0; i < v.list->n; i++) {
            hd_text_add(out, i > 0 ? ", " : "");
            hfe_add_value(hfe_item(v.list, i), out);
        }
        hd_text_add(out, "]");
        break;
    case HFE_FUNCTION: hd_text_add(out, v.function->name); break;
    default: hfe_show(v, out);
    }
}

/* ---- expressions as text -------------------------------------------------------------------- */

/* Notes the page that defines a function which the spec calls. */
static void note_page(hfe_special *sp, const hfe_def *def) {
    const hfe_file *file = file_of(sp);
    const char *path = def->file == file ? file->page : NULL;
    for (size_t i = 0; i < file->uses.n && !path; i++)
        path = file->uses.at[i].file == def->file ? file->uses.at[i].path : NULL;
    for (size_t i = 0; i < sp->used.n; i++)
        if (!path || strcmp(sp->used.at[i], path) == 0) return;
    if (path) hd_push(sp->e->arena, &sp->used, path);
}

static void add_name(hfe_special *sp, const hfe_expr *x) {
    const hfe_expr *argument = argument_of(sp, x->name);
    if (argument) {
        hfe_inlined *in = sp->inlined;
        sp->inlined = in->outer;
        hfe_add_expr(sp, argument);
        sp->inlined = in;
        return;
    }
    hfe_parameter *p = !local_value(sp, x->name) ? parameter_of(sp, self_of(sp), x->name) : NULL;
    const hfe_def *def = hfe_find_def(file_of(sp), x->name);
    if (p)
        p->used = true;
    else if (!local_value(sp, x->name) && def)
        note_page(sp, def);
    hd_text_add(&sp->out, x->name);
}

static void add_string(hfe_special *sp, const hfe_expr *x) {
    hd_text_add(&sp->out, "\"");
    for (size_t i = 0; i < x->string.pieces.n; i++) {
        const hfe_piece *piece = &x->string.pieces.at[i];
        const hfe_value v =
            piece->value ? hfe_static(sp, piece->value, false) : hfe_string(piece->text);
        if (hfe_is(v, HFE_UNSET)) {
            hd_text_add(&sp->out, "{");
            hfe_add_expr(sp, piece->value);
            hd_text_add(&sp->out, "}");
        } else {
            hd_text shown;
            hd_text_init(&shown, sp->e->arena);
            hfe_show(v, &shown);
            add_quoted_text(shown.at ? shown.at : "", &sp->out);
        }
    }
    hd_text_add(&sp->out, "\"");
}

static void add_items(hfe_special *sp, const hfe_exprs *items) {
    hd_text_add(&sp->out, "[");
    for (size_t i = 0; i < items->list.n; i++) {
        hd_text_add(&sp->out, i > 0 ? ", " : "");
        hfe_add_expr(sp, items->list.at[i]);
    }
    hd_text_add(&sp->out, "]");
}

/* Returns the precedence of an operator; the higher, the tighter (docs/language.md,
 * "Operators"). */
static int tightness(const hfe_expr *x) {
    if (x->kind == HFE_X_NEG) return 8;
    if (x->kind == HFE_X_NOT) return 4;
    if (x->kind != HFE_X_BINARY) return 9;
    switch (x->binary.op) {
    case HFE_OR_ELSE: return 1;
    case HFE_OR: return 2;
    case HFE_AND: return 3;
    case HFE_RANGE: return 6;
    case HFE_ADD:
    case HFE_SUB: return 7;
    case HFE_MUL:
    case HFE_DIV:
    case HFE_FLOOR_DIV:
    case HFE_MOD: return 8;
    default: return 5;
    }
}

static void add_operand(hfe_special *sp, const hfe_expr *x, int least) {
    const bool loose = hfe_is(hfe_static(sp, x, false), HFE_UNSET) && tightness(x) < least;
    hd_text_add(&sp->out, loose ? "(" : "");
    hfe_add_expr(sp, x);
    hd_text_add(&sp->out, loose ? ")" : "");
}

static void add_binary(hfe_special *sp, const hfe_expr *x) {
    const int own = tightness(x);
    const bool range = x->binary.op == HFE_RANGE;
    add_operand(sp, x->binary.left, own);
    hd_text_f(&sp->out, range ? "%s" : " %s ", hfe_binary_text(x->binary.op));
    add_operand(sp, x->binary.right, own + 1);
}

static void add_choice(hfe_special *sp, const hfe_expr *x) {
    const hfe_value c = hfe_static(sp, x->choice.condition, true);
    if (hfe_is(c, HFE_BOOL)) {
        hfe_add_expr(sp, c.boolean ? x->choice.yes : x->choice.no);
        return;
    }
    hd_text_add(&sp->out, "if ");
    hfe_add_expr(sp, x->choice.condition);
    hd_text_add(&sp->out, " { ");
    hfe_add_expr(sp, x->choice.yes);
    hd_text_add(&sp->out, " } else { ");
    hfe_add_expr(sp, x->choice.no);
    hd_text_add(&sp->out, " }");
}

static void add_comprehension(hfe_special *sp, const hfe_expr *x) {
    hd_text_add(&sp->out, "[");
    hfe_add_expr(sp, x->each.value);
    hd_text_add(&sp->out, " for ");
    if (x->each.index_name) hd_text_f(&sp->out, "%s, ", x->each.index_name);
    hd_text_f(&sp->out, "%s in ", x->each.name);
    hfe_add_expr(sp, x->each.over);
    if (x->each.condition) {
        hd_text_add(&sp->out, " if ");
        hfe_add_expr(sp, x->each.condition);
    }
    hd_text_add(&sp->out, "]");
}

static void add_field(hfe_special *sp, const hfe_expr *x) {
    const hfe_value base = hfe_static(sp, x->field.base, true);
    hfe_parameter *p =
        hfe_is(base, HFE_OBJECT) ? parameter_of(sp, base.object, x->field.name) : NULL;
    if (p) {
        p->used = true;
        hd_text_add(&sp->out, p->name);
        return;
    }
    add_operand(sp, x->field.base, 9);
    hd_text_f(&sp->out, ".%s", x->field.name);
}

static void add_slice(hfe_special *sp, const hfe_expr *x) {
    add_operand(sp, x->slice.base, 9);
    hd_text_add(&sp->out, "[");
    if (x->slice.from) hfe_add_expr(sp, x->slice.from);
    hd_text_add(&sp->out, "..");
    if (x->slice.to) hfe_add_expr(sp, x->slice.to);
    hd_text_add(&sp->out, "]");
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* True if an argument is `absent`, directly, in the branch that a condition selects, or as the
 * result of a config's function. Such an argument is left out. */
static bool is_absent(hfe_special *sp, const hfe_expr *x) {
    if (x->kind == HFE_X_IF) {
        const hfe_value c = hfe_static(sp, x->choice.condition, true);
        return hfe_is(c, HFE_BOOL) && is_absent(sp, c.boolean ? x->choice.yes : x->choice.no);
    }
    hfe_object *self = NULL;
    const hfe_def *def = inlined_function(sp, x, &self);
    if (def) {
        hfe_inlined in = {def, self, x, sp->inlined};
        const hfe_expr *body = body_of(sp, def);
        sp->inlined = &in;
        const bool absent = body && is_absent(sp, body);
        sp->inlined = in.outer;
        return absent;
    }
    const hfe_expr *argument = x->kind == HFE_X_NAME ? argument_of(sp, x->name) : NULL;
    if (argument) {
        hfe_inlined *in = sp->inlined;
        sp->inlined = in->outer;
        const bool absent = is_absent(sp, argument);
        sp->inlined = in;
        return absent;
    }
    return x->kind == HFE_X_NAME && strcmp(x->name, "absent") == 0;
}

/* True for defaults that are written as a literal. */
static bool has_literal_default(const hfe_param *param) {
    switch (param->otherwise ? param->otherwise->kind : HFE_X_ERROR) {
    case HFE_X_NONE:
    case HFE_X_BOOL:
    case HFE_X_INT:
    case HFE_X_FLOAT: return true;
    case HFE_X_STRING: return hfe_literal(param->otherwise);
    default: return false;
    }
}

static bool is_default(hfe_special *sp, const hfe_def *def, const hfe_arg *arg) {
    for (size_t i = 0; def && arg->name && i < def->params.n; i++) {
        const hfe_param *param = &def->params.at[i];
        if (param->name == arg->name && has_literal_default(param)) {
            const hfe_value v = hfe_static(sp, arg->value, false);
            return !hfe_is(v, HFE_UNSET) && !hfe_is(v, HFE_OBJECT) &&
                   hfe_equal(v, hfe_static(sp, param->otherwise, false));
        }
    }
    return false;
}

/* True for the last argument none of a method, such as the name of a system without one: it is left
 * out, r.read(). */
static bool is_unsaid(hfe_special *sp, const hfe_expr *call, size_t i) {
    const hfe_arg *arg = &call->call.args.at[i];
    return call->call.callee->kind == HFE_X_FIELD && !arg->name && i + 1 == call->call.args.n &&
           hfe_is(hfe_static(sp, arg->value, false), HFE_NONE);
}

/* Returns an argument as text of its own, so that lines can be broken between arguments. */
static const char *argument_text(hfe_special *sp, const hfe_arg *arg) {
    const hd_text outer = sp->out;
    hd_text_init(&sp->out, sp->e->arena);
    if (arg->name) hd_text_f(&sp->out, "%s: ", arg->name);
    hfe_add_expr(sp, arg->value);
    const char *text = sp->out.at;
    sp->out = outer;
    return text;
}

static void add_call(hfe_special *sp, const hfe_expr *x, size_t line, int indent, int width) {
    const hfe_expr *callee = x->call.callee;
    const hfe_def *def = callee->kind == HFE_X_NAME && !local_value(sp, callee->name)
                             ? hfe_find_def(file_of(sp), callee->name)
                             : NULL;
    bool first = true;
    const hfe_value named = hfe_static(sp, callee, true);
    if (callee->kind == HFE_X_NAME && !hfe_is(named, HFE_UNSET) && !hfe_is(named, HFE_FUNCTION)) {
        hfe_fail(sp->e, HD_E_NAME, callee->loc,
                 "it is a variable of the config, and hides the function",
                 "take another name for one of them", "'%s' is %s here, and cannot be called",
                 callee->name, hfe_type_with_article(named.type));
    }
    hfe_add_expr(sp, callee);
    hd_text_add(&sp->out, "(");
    for (size_t i = 0; i < x->call.args.n; i++) {
        const hfe_arg *arg = &x->call.args.at[i];
        if (is_absent(sp, arg->value) || is_default(sp, def, arg) || is_unsaid(sp, x, i)) continue;
        const char *text = argument_text(sp, arg);
        const bool fits = sp->out.n - line + strlen(text) + strlen(", ),") <= (size_t)width;
        hd_text_add(&sp->out, first ? "" : fits ? ", " : ",\n");
        if (!first && !fits) {
            line = sp->out.n;
            hd_text_f(&sp->out, "%*s", indent, "");
        }
        hd_text_add(&sp->out, text);
        first = false;
    }
    hd_text_add(&sp->out, ")");
}

void hfe_add_wrapped(hfe_special *sp, const hfe_expr *x, size_t start, int indent, int width) {
    hfe_object *self = NULL;
    const hfe_value c = x->kind == HFE_X_IF ? hfe_static(sp, x->choice.condition, true) : unset();
    const hfe_def *def = inlined_function(sp, x, &self);
    if (hfe_is(c, HFE_BOOL)) {
        hfe_add_wrapped(sp, c.boolean ? x->choice.yes : x->choice.no, start, indent, width);
    } else if (def) {
        hfe_inlined in = {def, self, x, sp->inlined};
        const hfe_expr *body = body_of(sp, def);
        sp->inlined = &in;
        if (body) hfe_add_wrapped(sp, body, start, indent, width);
        sp->inlined = in.outer;
    } else if (x->kind == HFE_X_CALL && hfe_is(hfe_static(sp, x, false), HFE_UNSET)) {
        add_call(sp, x, start, indent, width);
    } else {
        hfe_add_expr(sp, x);
    }
}

void hfe_add_expr(hfe_special *sp, const hfe_expr *x) {
    enum { ANY_WIDTH = 1 << 30 };
    const hfe_value v = hfe_static(sp, x, false);
    if (!hfe_is(v, HFE_UNSET) && !hfe_is(v, HFE_OBJECT)) {
        if (hfe_is(v, HFE_FUNCTION) && v.function->def) note_page(sp, v.function->def);
        hfe_add_value(v, &sp->out);
        return;
    }
    switch (x->kind) {
    case HFE_X_NAME: add_name(sp, x); break;
    case HFE_X_OP_NAME: hd_text_f(&sp->out, "op.%s", x->name); break;
    case HFE_X_STRING: add_string(sp, x); break;
    case HFE_X_LIST: add_items(sp, &x->list); break;
    case HFE_X_COMPREHENSION: add_comprehension(sp, x); break;
    case HFE_X_NEG:
        hd_text_add(&sp->out, "-");
        add_operand(sp, x->operand, 8);
        break;
    case HFE_X_NOT:
        hd_text_add(&sp->out, "not ");
        add_operand(sp, x->operand, 4);
        break;
    case HFE_X_BINARY: add_binary(sp, x); break;
    case HFE_X_IF: add_choice(sp, x); break;
    case HFE_X_CALL: hfe_add_wrapped(sp, x, 0, 0, ANY_WIDTH); break;
    case HFE_X_INDEX:
        add_operand(sp, x->index.base, 9);
        hd_text_add(&sp->out, "[");
        hfe_add_expr(sp, x->index.index);
        hd_text_add(&sp->out, "]");
        break;
    case HFE_X_SLICE: add_slice(sp, x); break;
    case HFE_X_FIELD: add_field(sp, x); break;
    default: break;
    }
}
