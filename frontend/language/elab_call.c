/* Names and calls: variables, functions, objects and their methods. */
#include <string.h>

#include "frontend/language/elaborate.h"

/* ---- names --------------------------------------------------------------------------------- */
static hfe_locals_chunk *new_chunk(hfe_elab *e, hfe_locals_chunk *before, size_t least) {
    hfe_locals_chunk *c = hd_new(e->arena, hfe_locals_chunk);
    c->cap = least > 1024 ? least : 1024;
    c->at = hd_new_array(e->arena, hfe_value, c->cap);
    c->before = before;
    if (before) before->after = c;
    return c;
}

hfe_value *hfe_take_locals(hfe_elab *e, const hfe_def *def) {
    hfe_locals_chunk *c = e->locals;
    if (!c || c->cap - c->n < def->n_locals) {
        bool next = c && c->after && c->after->cap >= def->n_locals;
        c = next ? c->after : new_chunk(e, c, def->n_locals);
        c->n = 0;
        e->locals = c;
    }
    hfe_value *locals = c->at + c->n;
    for (size_t i = 0; i < def->n_locals; i++)
        locals[i] = (hfe_value){.type = HFE_UNSET};
    c->n += def->n_locals;
    return locals;
}

void hfe_give_locals(hfe_elab *e, const hfe_def *def) {
    e->locals->n -= def->n_locals;
    if (e->locals->n == 0 && e->locals->before) e->locals = e->locals->before;
}

static hfe_value *find_local(const hfe_def *def, hfe_value *locals, const char *name) {
    for (size_t i = 0; i < def->n_locals; i++)
        if (def->locals[i].name == name) return &locals[i];
    return NULL;
}

hfe_value *hfe_variable(hfe_elab *e, const char *name) {
    hfe_frame *f = e->frame;
    hfe_value *v = find_local(f->def, f->locals, name);
    if (!v && f->self) v = find_local(f->self->def, f->self->fields, name);
    return v;
}

static hfe_value function_value(hfe_elab *e, hfe_function f) {
    hfe_function *kept = hd_new(e->arena, hfe_function);
    *kept = f;
    return (hfe_value){.type = HFE_FUNCTION, .function = kept};
}

static bool find_method(hfe_object *self, const char *name, hfe_function *out) {
    for (size_t i = 0; self && i < self->def->methods.n; i++) {
        const hfe_def *method = self->def->methods.at[i];
        if (method->name == name) {
            *out = (hfe_function){.def = method, .self = self, .name = name};
            return true;
        }
    }
    return false;
}

/* Finds the function that a name means here, and returns FUNCTION without making a value of it;
 * returns none if the name means something else. */
static hfe_value find_function(hfe_elab *e, const char *name, hfe_function *out) {
    hfe_value found = {.type = HFE_FUNCTION};
    if (hfe_variable(e, name)) return hfe_none();
    if (find_method(e->frame->self, name, out)) return found;
    const hfe_def *def = hfe_find_def(e->frame->def->file, name);
    if (def) {
        *out = (hfe_function){.def = def, .name = name};
        return def->kind == HFE_D_CONSTANT ? hfe_none() : found;
    }
    *out = (hfe_function){.builtin = hfe_find_builtin(name), .name = name};
    if (!out->builtin) out->is_op = hfe_find_op(name, &out->op);
    return out->builtin || out->is_op ? found : hfe_none();
}

static hfe_value unset_variable(hfe_elab *e, const hfe_expr *x) {
    const hfe_def *def = hfe_find_def(e->frame->def->file, x->name);
    const char *cause = "no statement that was run before this one sets it";
    if (def && def->kind != HFE_D_CONSTANT)
        cause = "it is a variable here, because this function sets it, and hides the function";
    return hfe_fail(e, HD_E_NAME, x->loc, cause, NULL, "'%s' has no value yet", x->name);
}

hfe_value hfe_lookup(hfe_elab *e, const hfe_expr *x) {
    if (x->kind == HFE_X_OP_NAME) {
        hir_opcode op;
        return hfe_find_op(x->name, &op)
                   ? function_value(e, (hfe_function){.is_op = true, .op = op, .name = x->name})
                   : hfe_poison();
    }
    const hfe_value *v = hfe_variable(e, x->name);
    if (v) return hfe_is(*v, HFE_UNSET) ? unset_variable(e, x) : *v;
    hfe_function f;
    if (hfe_is(find_function(e, x->name, &f), HFE_FUNCTION)) return function_value(e, f);
    const hfe_def *def = hfe_find_def(e->frame->def->file, x->name);
    if (def && def->kind == HFE_D_CONSTANT) return hfe_constant(e, def, x->loc);
    if (strcmp(x->name, "T") == 0 || strcmp(x->name, "C") == 0)
        return hfe_dim(x->name[0] == 'T' ? HIR_T : HIR_C);
    return hfe_poison(); /* resolve.c has reported that the name is unknown */
}

/* Returns the value of a constant, which is computed at its first use, in a frame of its own. */
hfe_value hfe_constant(hfe_elab *e, const hfe_def *def, hd_loc loc) {
    for (size_t i = 0; i < e->constants.n; i++) {
        const hfe_known_constant *c = &e->constants.at[i];
        if (c->def == def)
            return c->busy ? hfe_fail(e, HD_E_NAME, loc, NULL, NULL,
                                      "the constant '%s' is defined by itself", def->name)
                           : c->value;
    }
    size_t slot = e->constants.n;
    hfe_known_constant fresh = {def, hfe_poison(), true};
    hd_push(e->arena, &e->constants, fresh);
    hfe_frame frame = {.def = def, .locals = hfe_take_locals(e, def), .call = loc, .up = e->frame};
    bool in_model = e->in_model;
    e->frame = &frame;
    /* A constant makes no tensors: it must not matter when it is computed. */
    e->in_model = false;
    hfe_value v = hfe_eval(e, def->value);
    e->in_model = in_model;
    e->frame = frame.up;
    hfe_give_locals(e, def);
    e->constants.at[slot].value = v;
    e->constants.at[slot].busy = false;
    return v;
}

/* ---- arguments ----------------------------------------------------------------------------- */
static void show_default(const hfe_expr *x, hd_text *out) {
    switch (x->kind) {
    case HFE_X_NONE: hd_text_add(out, "none"); break;
    case HFE_X_BOOL: hd_text_add(out, x->boolean ? "true" : "false"); break;
    case HFE_X_INT: hd_text_f(out, "%lld", (long long)x->integer); break;
    case HFE_X_FLOAT: hd_text_double(out, x->number); break;
    case HFE_X_NAME: hd_text_add(out, x->name); break;
    case HFE_X_STRING:
        if (x->string.pieces.n == 1 && !x->string.pieces.at[0].value) {
            hd_text_quoted(out, x->string.pieces.at[0].text);
            break;
        }
        /* fall through */
    default: hd_text_add(out, "..."); break;
    }
}

/* Returns the signature, as name(a, b = 1). */
static const char *signature_of(hfe_elab *e, const hfe_def *def) {
    hd_text out;
    hd_text_init(&out, e->arena);
    hd_text_f(&out, "it is %s(", def->name);
    for (size_t i = 0; i < def->params.n; i++) {
        const hfe_param *param = &def->params.at[i];
        hd_text_f(&out, "%s%s", i > 0 ? ", " : "", param->name);
        if (param->otherwise) {
            hd_text_add(&out, " = ");
            show_default(param->otherwise, &out);
        }
    }
    hd_text_add(&out, ")");
    return out.at;
}

static bool reject_argument(hfe_elab *e, const hfe_def *def, const hfe_passed *arg) {
    hfe_candidates names = {0};
    for (size_t i = 0; i < def->params.n; i++)
        hd_push(e->arena, &names.list, def->params.at[i].name);
    hfe_fail(e, HD_E_NAME, arg->loc, signature_of(e, def), hfe_did_you_mean(e, arg->name, &names),
             "'%s' has no parameter '%s'", def->name, arg->name);
    return false;
}

/* Binds the arguments to the parameters of the definition, which are its first locals. */
static bool bind_given(hfe_elab *e, const hfe_def *def, const hfe_call *call, hfe_value *locals) {
    size_t position = 0;
    for (size_t i = 0; i < call->n_args; i++) {
        const hfe_passed *arg = &call->args[i];
        size_t k = position;
        if (arg->name) {
            for (k = 0; k < def->params.n && def->params.at[k].name != arg->name; k++) {
            }
            if (k == def->params.n) return reject_argument(e, def, arg);
        } else if (position++ >= def->params.n) {
            hfe_fail(e, HD_E_TYPE, arg->loc, signature_of(e, def), NULL,
                     "too many arguments for '%s'", def->name);
            return false;
        }
        if (!hfe_is(locals[k], HFE_UNSET)) {
            hfe_fail(e, HD_E_TYPE, arg->loc, signature_of(e, def), NULL,
                     "'%s' is given twice to '%s'", def->params.at[k].name, def->name);
            return false;
        }
        locals[k] = arg->value;
    }
    return true;
}

/* Checks that all parameters without a default are given, before anything is evaluated. */
static bool all_given(hfe_elab *e, const hfe_def *def, const hfe_call *call,
                      const hfe_value *locals) {
    for (size_t i = 0; i < def->params.n; i++)
        if (hfe_is(locals[i], HFE_UNSET) && !def->params.at[i].otherwise) {
            hfe_fail(e, HD_E_TYPE, call->loc, signature_of(e, def), NULL,
                     "'%s' needs its argument '%s'", def->name, def->params.at[i].name);
            return false;
        }
    return true;
}

static void fill_defaults(hfe_elab *e, const hfe_def *def, hfe_value *locals) {
    for (size_t i = 0; i < def->params.n; i++)
        if (hfe_is(locals[i], HFE_UNSET)) locals[i] = hfe_eval(e, def->params.at[i].otherwise);
}

/* ---- calls --------------------------------------------------------------------------------- */
static hfe_value run_body(hfe_elab *e, const hfe_def *def, hfe_object *self, const hfe_call *call,
                          hfe_value *locals) {
    hfe_frame frame = {.def = def,
                       .locals = locals,
                       .self = self,
                       .call = call->loc,
                       .up = e->frame,
                       .result = hfe_none()};
    e->frame = &frame;
    e->calls++;
    fill_defaults(e, def, locals);
    hfe_run_block(e, &def->body);
    e->calls--;
    e->frame = frame.up;
    if (e->raised || e->stop) {
        e->raised = false;
        if (self) self->broken = true;
        return hfe_poison();
    }
    return frame.result;
}

static hfe_value make_object(hfe_elab *e, const hfe_def *def, const hfe_call *call,
                             hfe_value *fields) {
    hfe_object *object = hd_new(e->arena, hfe_object);
    object->def = def;
    object->fields = fields;
    hfe_value made = run_body(e, def, object, call, fields);
    return hfe_is(made, HFE_POISON) ? made : (hfe_value){.type = HFE_OBJECT, .object = object};
}

static hfe_value call_def(hfe_elab *e, const hfe_function *f, const hfe_call *call) {
    const hfe_def *def = f->def;
    if (e->calls >= HFE_MAX_CALLS)
        return hfe_halt(e, call->loc, "a recursion without end?", "more than %d calls are open",
                        HFE_MAX_CALLS);
    if (f->self && f->self->broken) return hfe_poison();
    bool is_object = def->kind == HFE_D_OBJECT;
    hfe_value *locals =
        is_object ? hd_new_array(e->arena, hfe_value, def->n_locals) : hfe_take_locals(e, def);
    hfe_value result = hfe_poison();
    if (!bind_given(e, def, call, locals) || !all_given(e, def, call, locals)) {
        if (f->self) f->self->broken = true;
    } else if (is_object) {
        result = make_object(e, def, call, locals);
    } else {
        result = run_body(e, def, f->self, call, locals);
    }
    if (!is_object) hfe_give_locals(e, def);
    return result;
}

/* True if parameter i of `name(a, b, c)` has this name. The last parameters, which are optional,
 * can also be given by their names. */
static bool is_parameter(const hfe_builtin *b, size_t i, const char *name) {
    const char *at = strchr(b->signature, '(') + 1;
    for (; i > 0 && at; i--) {
        at = strchr(at, ',');
        at = at ? at + 2 : NULL;
    }
    return at && strcspn(at, ",)") == strlen(name) && strncmp(at, name, strlen(name)) == 0;
}

static hfe_value call_builtin(hfe_elab *e, const hfe_builtin *b, const hfe_call *call) {
    for (size_t i = 0; i < call->n_args; i++) {
        const char *name = call->args[i].name;
        if (name && b->least == b->most)
            return hfe_fail(e, HD_E_NAME, call->args[i].loc,
                            hd_printf(e->arena, "it is %s", b->signature), NULL,
                            "'%s' has no named arguments", b->name);
        if (name && (i < b->least || !is_parameter(b, i, name)))
            return hfe_fail(e, HD_E_NAME, call->args[i].loc,
                            hd_printf(e->arena, "it is %s", b->signature), NULL,
                            "argument %zu of '%s' cannot be named '%s'", i + 1, b->name, name);
    }
    if (call->n_args < b->least || call->n_args > b->most)
        return hfe_fail(e, HD_E_TYPE, call->loc, hd_printf(e->arena, "it is %s", b->signature),
                        NULL, "too %s arguments for '%s'", call->n_args < b->least ? "few" : "many",
                        b->name);
    return call->poisoned ? hfe_poison() : b->run(e, call);
}

/* Evaluates what a call names. Most calls name a function, for which no value is made. */
static hfe_value eval_callee(hfe_elab *e, const hfe_expr *x, hfe_function *out) {
    hfe_value v = x->kind == HFE_X_NAME ? find_function(e, x->name, out) : hfe_none();
    if (hfe_is(v, HFE_FUNCTION)) return v;
    v = hfe_eval(e, x);
    if (hfe_is(v, HFE_FUNCTION))
        *out = *v.function;
    else if (!hfe_is(v, HFE_POISON))
        v = hfe_fail(e, HD_E_TYPE, x->loc, NULL, NULL, "%s cannot be called",
                     hfe_type_with_article(v.type));
    return v;
}

hfe_value hfe_eval_call(hfe_elab *e, const hfe_expr *x) {
    enum { FEW = 8 };
    hfe_passed few[FEW];
    hfe_function f = {0};
    hfe_value of_rule;
    if (e->frame->def->kind == HFE_D_CONFIG && e->p->words->run_rule(e, x, &of_rule))
        return of_rule;
    size_t n = x->call.args.n;
    hfe_value callee = eval_callee(e, x->call.callee, &f);
    hfe_call call = {.loc = x->loc, .n_args = n, .name = f.name};
    call.args = n <= FEW ? few : hd_new_array(e->arena, hfe_passed, n);
    for (size_t i = 0; i < n; i++) {
        const hfe_arg *arg = &x->call.args.at[i];
        call.args[i] = (hfe_passed){arg->name, arg->name ? arg->name_loc : arg->value->loc,
                                    arg->value->loc, hfe_eval(e, arg->value)};
        call.poisoned |= hfe_is(call.args[i].value, HFE_POISON);
    }
    if (hfe_is(callee, HFE_POISON)) return callee;
    if (f.builtin) return call_builtin(e, f.builtin, &call);
    return f.def ? call_def(e, &f, &call) : hfe_call_op(e, f.op, &call);
}

/* ---- fields -------------------------------------------------------------------------------- */
hfe_value hfe_eval_field(hfe_elab *e, const hfe_expr *x) {
    hfe_value base = hfe_eval(e, x->field.base);
    if (hfe_is(base, HFE_POISON)) return base;
    if (!hfe_is(base, HFE_OBJECT))
        return hfe_fail(e, HD_E_TYPE, x->field.name_loc, NULL,
                        hfe_is(base, HFE_TENSOR) ? "dims of tensors: dim(x, i), shape(x)" : NULL,
                        "%s has no members", hfe_type_with_article(base.type));
    hfe_object *object = base.object;
    if (object->broken) return hfe_poison();
    const hfe_value *field = find_local(object->def, object->fields, x->field.name);
    if (field)
        return hfe_is(*field, HFE_UNSET) ? hfe_fail(e, HD_E_NAME, x->field.name_loc, NULL, NULL,
                                                    "field '%s' has no value yet", x->field.name)
                                         : *field;
    hfe_function method;
    if (find_method(object, x->field.name, &method)) return function_value(e, method);
    hfe_candidates members = {0};
    for (size_t i = 0; i < object->def->n_locals; i++)
        hd_push(e->arena, &members.list, object->def->locals[i].name);
    for (size_t i = 0; i < object->def->methods.n; i++)
        hd_push(e->arena, &members.list, object->def->methods.at[i]->name);
    return hfe_fail(e, HD_E_NAME, x->field.name_loc, NULL,
                    hfe_did_you_mean(e, x->field.name, &members), "'%s' has no member '%s'",
                    object->def->name, x->field.name);
}
