/* Running a config on an object of JSON (config.h). */
#include "frontend/config/config.h"

#include <string.h>

/* ---- fields that nothing knows -------------------------------------------------------------- */

static void refuse_unknown_fields(hfe_elab *e, const hfe_def *config, const hfe_field *object,
                                  const char *also) {
    enum { SLIPS = 2 }; /* of the keyboard: hidden_bias is no hidden_size */
    hfe_json *j = e->import->json;
    hfe_known_fields known;
    hfe_candidates names = {0};
    hfe_list_fields(e->arena, config, &known);
    for (size_t i = 0; i < known.list.n; i++) {
        hd_push(e->arena, &names.list, known.list.at[i].name);
    }
    if (also != NULL) {
        hd_push(e->arena, &names.list, also);
    }
    const char *name;
    json_t *value;
    json_object_foreach(hfe_json_get(j, object), name, value) {
        bool found = false;
        for (size_t i = 0; i < names.list.n && !found; i++) {
            found = strcmp(names.list.at[i], name) == 0;
        }
        if (found) {
            continue;
        }
        const hfe_field f = {object, name};
        hd_diag *g = hd_err(j->diags, HD_E_CONFIG, hfe_json_key(j, &f), "unknown field '%s'",
                            hfe_json_path(j, &f));
        const char *near = hd_nearest_within(name, names.list.at, names.list.n, SLIPS);
        g->hint = near != NULL ? hd_printf(e->arena, "did you mean '%s'?", near) : NULL;
        if (g->hint == NULL) {
            g->cause = "what it changes is not known, so it cannot be left out of account";
        }
    }
}

/* ---- running ------------------------------------------------------------------------------- */

/* What a config takes is taken by name from the variables of whoever reads it. */
static void take_params(hfe_elab *e, const hfe_def *config, hfe_value *locals) {
    for (size_t i = 0; i < config->params.n; i++) {
        const hfe_value *v = e->frame != NULL ? hfe_variable(e, config->params.at[i].name) : NULL;
        locals[i] = v != NULL ? *v : (hfe_value){.type = HFE_UNSET};
    }
}

/* Runs the body in a frame of its own, after the defaults of what has not been given. */
static void run_body(hfe_elab *e, const hfe_def *config, hfe_value *locals) {
    hfe_frame frame = {.def = config, .locals = locals, .up = e->frame};
    e->frame = &frame;
    for (size_t i = 0; i < config->params.n; i++) {
        const hfe_param *param = &config->params.at[i];
        if (!hfe_is(locals[i], HFE_UNSET)) {
            continue;
        }
        locals[i] = param->otherwise != NULL
                        ? hfe_eval(e, param->otherwise)
                        : hfe_fail(e, HD_E_TYPE, param->loc, NULL, NULL,
                                   "the config '%s' needs '%s'", config->name, param->name);
    }
    hfe_run_block(e, &config->body);
    e->frame = frame.up;
}

hfe_value hfe_run_config(hfe_elab *e, const hfe_def *config, hfe_field *object,
                         const char *selector) {
    hfe_reading *im = e->import;
    if (e->calls >= HFE_MAX_CALLS) {
        return hfe_halt(e, config->loc, "a circle of configs?", "more than %d configs are open",
                        HFE_MAX_CALLS);
    }
    refuse_unknown_fields(e, config, object, selector);
    hfe_object *made = hd_new(e->arena, hfe_object);
    made->def = config;
    made->fields = hd_new_array(e->arena, hfe_value, config->n_locals);
    for (size_t i = 0; i < config->n_locals; i++) {
        made->fields[i] = (hfe_value){.type = HFE_UNSET};
    }
    take_params(e, config, made->fields);
    hfe_field *outer = im->object;
    hfe_object *outer_config = im->config;
    im->object = object;
    im->config = made;
    e->calls++;
    run_body(e, config, made->fields);
    e->calls--;
    im->object = outer;
    im->config = outer_config != NULL ? outer_config : made;
    return e->stop ? hfe_poison() : (hfe_value){.type = HFE_OBJECT, .object = made};
}

/* Arguments of an inclusion to the parameters of the config, evaluated in the frame at hand. */
static bool bind_arguments(hfe_elab *e, const hfe_expr *x, const hfe_def *config,
                           hfe_value *locals) {
    for (size_t i = 0; x->kind == HFE_X_CALL && i < x->call.args.n; i++) {
        const hfe_arg *arg = &x->call.args.at[i];
        size_t k = 0;
        while (k < config->params.n && config->params.at[k].name != arg->name) {
            k++;
        }
        if (arg->name == NULL || k == config->params.n) {
            hfe_fail(e, HD_E_NAME, arg->value->loc, NULL, NULL,
                     "the config '%s' takes named arguments, and none of this name", config->name);
            return false;
        }
        locals[k] = hfe_eval(e, arg->value);
    }
    return true;
}

/* The object that `use NAME in "field"` is for. False, with the fault reported: it is not there. */
static bool enter_object(hfe_elab *e, const hfe_stmt *s, const hfe_def *config) {
    hfe_reading *im = e->import;
    hfe_field *f = hd_new(e->arena, hfe_field);
    *f = (hfe_field){im->object, hfe_literal(s->name)};
    const json_t *v = hfe_json_get(im->json, f);
    if (json_is_object(v)) {
        refuse_unknown_fields(e, config, f, "model_type");
        im->object = f;
        return true;
    }
    if (v != NULL) {
        hfe_field_error(im->json, f, "must be an object, not %s", hfe_json_show(im->json, v));
    } else {
        hd_err(im->json->diags, HD_E_CONFIG, (hd_loc){.file = im->json->file},
               "the field '%s' is missing: an object with the fields of %s",
               hfe_json_path(im->json, f), config->name);
    }
    return false;
}

/* Variables of the included config become those of the including one; what could not be read is
 * poison, so that nothing more is said of it. */
static void take_variables(hfe_elab *e, const hfe_def *config, const hfe_value *locals) {
    for (size_t i = 0; i < config->n_locals; i++) {
        hfe_value *to = hfe_variable(e, config->locals[i].name);
        if (to != NULL) {
            *to = locals != NULL ? locals[i] : hfe_poison();
        }
    }
}

/* The included config runs on the same object, or on one that is a field of it; then its variables
 * are those of the including one. */
void hfe_run_include(hfe_elab *e, const hfe_stmt *s) {
    const hfe_expr *x = s->value;
    const hfe_expr *name = x->kind == HFE_X_CALL ? x->call.callee : x;
    const hfe_def *config = hfe_find_config(e->frame->def->file, name->name);
    if (config == NULL || e->calls >= HFE_MAX_CALLS) {
        hfe_halt(e, s->loc, "a circle of configs?", "this config cannot be included");
        return;
    }
    hfe_value *locals = hd_new_array(e->arena, hfe_value, config->n_locals + 1);
    for (size_t i = 0; i < config->n_locals; i++) {
        locals[i] = (hfe_value){.type = HFE_UNSET};
    }
    take_params(e, config, locals);
    if (!bind_arguments(e, x, config, locals)) {
        return;
    }
    hfe_field *outer = e->import->object;
    if (s->name != NULL && !enter_object(e, s, config)) {
        take_variables(e, config, NULL);
        return;
    }
    e->calls++;
    run_body(e, config, locals);
    e->calls--;
    e->import->object = outer;
    take_variables(e, config, locals);
}

static void add_parameter(hfe_elab *e, const char *name) {
    hfe_reading *im = e->import;
    for (size_t i = 0; i < im->params.n; i++) {
        if (im->params.at[i].of == im->config && im->params.at[i].name == name) {
            return;
        }
    }
    hfe_parameter p = {.of = im->config, .name = name};
    hd_push(e->arena, &im->params, p);
}

/* The field, by its name or by the other one that it has in some files. */
static hfe_value read_declared(hfe_elab *e, const hfe_declaration *d, hfe_field *f) {
    hfe_json *j = e->import->json;
    const char *also = hfe_literal(d->aspect[HFE_ASPECT_also]);
    hfe_field *other = hd_new(e->arena, hfe_field);
    *other = (hfe_field){f->object, also};
    if (also == NULL || hfe_json_get(j, other) == NULL) {
        return hfe_read_value(e, d, f);
    }
    if (hfe_json_get(j, f) == NULL) {
        hd_push(e->arena, &e->import->aliases, ((hfe_alias){f, other}));
        return hfe_read_value(e, d, other);
    }
    const hfe_value v = hfe_read_value(e, d, f), w = hfe_read_value(e, d, other);
    if (!hfe_is(v, HFE_POISON) && !hfe_is(w, HFE_POISON) &&
        !json_equal(hfe_json_get(j, f), hfe_json_get(j, other))) {
        hfe_field_error(j, other, "contradicts %s", hfe_json_path(j, f))->cause =
            "both are names of one field";
        return hfe_poison();
    }
    return v;
}

hfe_value hfe_run_marked(hfe_elab *e, const hfe_stmt *s) {
    hfe_declaration d;
    hfe_value v, otherwise = hfe_poison();
    if (hfe_is_declaration(NULL, s, &d)) {
        hfe_field *f = hd_new(e->arena, hfe_field);
        *f = (hfe_field){e->import->object, d.name};
        v = read_declared(e, &d, f);
        if (s->mark == HFE_OPTION && d.aspect[HFE_ASPECT_default] != NULL) {
            otherwise = hfe_eval(e, d.aspect[HFE_ASPECT_default]);
        }
    } else {
        v = hfe_eval(e, s->value);
    }
    const bool shown = s->mark == HFE_PARAM || (s->mark == HFE_OPTION && !hfe_equal(v, otherwise));
    if (shown) {
        add_parameter(e, s->targets.at[0].name);
    }
    return v;
}

/* ---- rules --------------------------------------------------------------------------------- */

/* A message of a page with strings of the file in it: bytes that a terminal would obey are shown
 * as they are written in JSON. */
static const char *harmless(hfe_elab *e, const char *s) {
    hd_text t;
    hd_text_init(&t, e->arena);
    for (; *s != '\0'; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f) {
            hd_text_f(&t, "\\x%02x", c);
        } else {
            hd_text_add_n(&t, s, 1);
        }
    }
    return t.at != NULL ? t.at : "";
}

static const char *text_argument(hfe_elab *e, const hfe_expr *call, size_t i) {
    if (i >= call->call.args.n) {
        return NULL;
    }
    const hfe_value v = hfe_eval(e, call->call.args.at[i].value);
    return hfe_is(v, HFE_STRING) ? harmless(e, v.string) : NULL;
}

static bool has_spoken(hfe_elab *e, const hfe_expr *call) {
    for (size_t i = 0; i < e->import->refused.n; i++) {
        if (e->import->refused.at[i] == call) {
            return true;
        }
    }
    hd_push(e->arena, &e->import->refused, call);
    return false;
}

/* The field, by the name that it has in the file. */
static const hfe_field *as_written(const hfe_reading *im, const hfe_field *f) {
    for (size_t i = 0; i < im->aliases.n; i++) {
        const hfe_alias *a = &im->aliases.at[i];
        if (a->field->object == f->object && strcmp(a->field->name, f->name) == 0) {
            return a->other;
        }
    }
    return f;
}

/* NAME, or OBJECT.NAME, of the object that is being read. */
static const hfe_field *find_field(hfe_elab *e, const char *path) {
    const hfe_field *object = e->import->object;
    const char *dot = strchr(path, '.');
    while (dot != NULL) {
        hfe_field *f = hd_new(e->arena, hfe_field);
        *f = (hfe_field){object, hd_strndup(e->arena, path, (size_t)(dot - path))};
        object = f;
        path = dot + 1;
        dot = strchr(path, '.');
    }
    hfe_field *f = hd_new(e->arena, hfe_field);
    *f = (hfe_field){object, path};
    return as_written(e->import, f);
}

static hfe_value refuse(hfe_elab *e, const hfe_expr *call) {
    const char *name = text_argument(e, call, 0), *message = text_argument(e, call, 1);
    if (name == NULL || message == NULL || has_spoken(e, call)) {
        return hfe_poison();
    }
    const hfe_field *f =
        *name == '\0' && e->import->object != NULL ? e->import->object : find_field(e, name);
    hd_diag *g = hfe_field_error(e->import->json, f, "%s", message);
    g->cause = text_argument(e, call, 2);
    g->hint = text_argument(e, call, 3);
    return hfe_poison();
}

static hfe_value missing(hfe_elab *e, const hfe_expr *call) {
    hfe_json *j = e->import->json;
    const char *name = text_argument(e, call, 0), *why = text_argument(e, call, 1);
    if (name == NULL || has_spoken(e, call)) {
        return hfe_poison();
    }
    const char *what = hd_printf(e->arena, "the field '%s' is missing%s%s", name,
                                 why != NULL ? ": " : "", why != NULL ? why : "");
    if (e->import->object != NULL) {
        hfe_field_error(j, e->import->object, "%s", what);
    } else {
        hd_err(j->diags, HD_E_CONFIG, (hd_loc){.file = j->file}, "%s", what);
    }
    return hfe_poison();
}

/* One JSON value, and a value of the language. */
static bool same(const json_t *j, hfe_value v) {
    switch (v.type) {
    case HFE_NONE: return json_is_null(j);
    case HFE_BOOL: return json_is_boolean(j) && json_is_true(j) == v.boolean;
    case HFE_INT:
    case HFE_FLOAT: return json_is_number(j) && json_number_value(j) == hfe_as_number(v);
    case HFE_STRING: return json_is_string(j) && strcmp(json_string_value(j), v.string) == 0;
    case HFE_LIST: /* the empty list stands for the empty object as well */
        return v.list->n == 0 && ((json_is_object(j) && json_object_size(j) == 0) ||
                                  (json_is_array(j) && json_array_size(j) == 0));
    default: return false;
    }
}

static void only(hfe_elab *e, const hfe_expr *call) {
    hfe_json *j = e->import->json;
    const hfe_field f = {e->import->object, hfe_literal(call->call.args.at[0].value)};
    const json_t *v = hfe_json_get(j, &f);
    hd_text allowed;
    hd_text_init(&allowed, e->arena);
    for (size_t i = 2; v != NULL && i < call->call.args.n; i++) {
        const hfe_value want = hfe_eval(e, call->call.args.at[i].value);
        if (same(v, want) || hfe_is(want, HFE_POISON)) {
            return;
        }
        hd_text_add(&allowed, i > 2 ? ", " : "");
        if (hfe_is(want, HFE_NONE)) {
            hd_text_add(&allowed, "null");
        } else {
            hfe_show(want, &allowed);
        }
    }
    if (v != NULL) {
        hfe_field_error(j, &f, "%s cannot be honoured by this version", hfe_json_show(j, v))
            ->cause = hd_printf(e->arena, "%s; allowed: %s",
                                hfe_literal(call->call.args.at[1].value), allowed.at);
    }
}

static void remark(hfe_elab *e, const hfe_expr *call) {
    const char *text = text_argument(e, call, 0);
    if (text != NULL && !has_spoken(e, call)) {
        hd_push(e->arena, &e->import->remarks, text);
        hd_note(e->diags, (hd_loc){.file = e->import->json->file}, "%s", text);
    }
}

hfe_value hfe_run_rule(hfe_elab *e, const hfe_expr *call, hfe_rule rule) {
    switch (rule) {
    case HFE_RULE_REFUSE: return refuse(e, call);
    case HFE_RULE_MISSING: return missing(e, call);
    case HFE_RULE_REMARK: remark(e, call); break;
    case HFE_RULE_ONLY: only(e, call); break;
    case HFE_RULE_STORED: {
        const char *name = text_argument(e, call, 0);
        return name != NULL ? hfe_stored_shape(e, name) : hfe_poison();
    }
    case HFE_RULE_STORED_NUMBERS: {
        const char *name = text_argument(e, call, 0);
        return name != NULL ? hfe_stored_numbers(e, name) : hfe_poison();
    }
    case HFE_RULE_EACH_ONCE: return hfe_each_once(e, call);
    case HFE_RULE_GIVEN: {
        const hfe_field f = {e->import->object, hfe_literal(call->call.args.at[0].value)};
        return hfe_bool(hfe_json_get(e->import->json, &f) != NULL);
    }
    default: break;
    }
    return hfe_none();
}
