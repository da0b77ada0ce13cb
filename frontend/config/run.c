/* Runs a config on an object of JSON (config.h). */
#include "frontend/config/config.h"

#include <string.h>

/* ---- unknown fields ------------------------------------------------------------------------- */

static void reject_unknown_fields(hfe_elab *e, const hfe_def *config, const hfe_field *object,
                                  const char *also) {
    enum { SLIPS = 2 }; /* typing errors; with more, hidden_bias would be hidden_size */
    hfe_json *j = e->import->json;
    hfe_known_fields known;
    hfe_candidates names = {0};
    hfe_list_fields(e->arena, config, &known);
    for (size_t i = 0; i < known.list.n; i++)
        hd_push(e->arena, &names.list, known.list.at[i].name);
    if (also) hd_push(e->arena, &names.list, also);
    const char *name;
    json_t *value;
    json_object_foreach(hfe_json_get(j, object), name, value) {
        bool found = false;
        for (size_t i = 0; i < names.list.n && !found; i++)
            found = strcmp(names.list.at[i], name) == 0;
        if (found) continue;
        const hfe_field f = {object, name};
        hd_diag *g = hd_err(j->diags, HD_E_CONFIG, hfe_json_key(j, &f), "unknown field '%s'",
                            hfe_json_path(j, &f));
        const char *near = hd_nearest_within(name, names.list.at, names.list.n, SLIPS);
        g->hint = near ? hd_printf(e->arena, "did you mean '%s'?", near) : NULL;
        if (!g->hint)
            g->cause = "what it changes is not known, so it cannot be left out of account";
    }
}

/* ---- running ------------------------------------------------------------------------------- */

/* The parameters of a config get their values by name from the variables of the frame that reads
 * it. */
static void take_params(hfe_elab *e, const hfe_def *config, hfe_value *locals) {
    for (size_t i = 0; i < config->params.n; i++) {
        const hfe_value *v = e->frame ? hfe_variable(e, config->params.at[i].name) : NULL;
        locals[i] = v ? *v : (hfe_value){.type = HFE_UNSET};
    }
}

/* Runs the body in a frame of its own, after the parameters without a value have got their
 * defaults. */
static void run_body(hfe_elab *e, const hfe_def *config, hfe_value *locals) {
    hfe_frame frame = {.def = config, .locals = locals, .up = e->frame};
    e->frame = &frame;
    for (size_t i = 0; i < config->params.n; i++) {
        const hfe_param *param = &config->params.at[i];
        if (!hfe_is(locals[i], HFE_UNSET)) continue;
        locals[i] = param->otherwise
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
    if (e->calls >= HFE_MAX_CALLS)
        return hfe_halt(e, config->loc, "a circle of configs?", "more than %d configs are open",
                        HFE_MAX_CALLS);
    reject_unknown_fields(e, config, object, selector);
    hfe_object *made = hd_new(e->arena, hfe_object);
    made->def = config;
    made->fields = hd_new_array(e->arena, hfe_value, config->n_locals);
    for (size_t i = 0; i < config->n_locals; i++)
        made->fields[i] = (hfe_value){.type = HFE_UNSET};
    take_params(e, config, made->fields);
    hfe_field *outer = im->object;
    hfe_object *outer_config = im->bound.config;
    im->object = object;
    im->bound.config = made;
    e->calls++;
    run_body(e, config, made->fields);
    e->calls--;
    im->object = outer;
    im->bound.config = outer_config ? outer_config : made;
    return e->stop ? hfe_poison() : (hfe_value){.type = HFE_OBJECT, .object = made};
}

/* Binds the arguments of an inclusion to the parameters of the config; they are evaluated in the
 * current frame. */
static bool bind_arguments(hfe_elab *e, const hfe_expr *x, const hfe_def *config,
                           hfe_value *locals) {
    for (size_t i = 0; x->kind == HFE_X_CALL && i < x->call.args.n; i++) {
        const hfe_arg *arg = &x->call.args.at[i];
        size_t k = 0;
        while (k < config->params.n && config->params.at[k].name != arg->name)
            k++;
        if (!arg->name || k == config->params.n) {
            hfe_fail(e, HD_E_NAME, arg->value->loc, NULL, NULL,
                     "the config '%s' takes named arguments, and none of this name", config->name);
            return false;
        }
        locals[k] = hfe_eval(e, arg->value);
    }
    return true;
}

/* Enters the object that `use NAME in "field"` names. Returns false after an error if the object is
 * absent. */
static bool enter_object(hfe_elab *e, const hfe_stmt *s, const hfe_def *config) {
    hfe_reading *im = e->import;
    hfe_field *f = hd_new(e->arena, hfe_field);
    *f = (hfe_field){im->object, hfe_literal(s->name)};
    const json_t *v = hfe_json_get(im->json, f);
    if (json_is_object(v)) {
        reject_unknown_fields(e, config, f, "model_type");
        im->object = f;
        return true;
    }
    if (v)
        hfe_field_error(im->json, f, "must be an object, not %s", hfe_json_show(im->json, v));
    else
        hd_err(im->json->diags, HD_E_CONFIG, (hd_loc){.file = im->json->file},
               "the field '%s' is missing: an object with the fields of %s",
               hfe_json_path(im->json, f), config->name);
    return false;
}

/* The variables of the included config become variables of the including one. Those that could not
 * be read are poison, so that no later error follows from them. */
static void take_variables(hfe_elab *e, const hfe_def *config, const hfe_value *locals) {
    for (size_t i = 0; i < config->n_locals; i++) {
        hfe_value *to = hfe_variable(e, config->locals[i].name);
        if (to) *to = locals ? locals[i] : hfe_poison();
    }
}

/* Runs the included config on the same object, or on a field of it; afterwards the including config
 * has its variables. */
static void run_include(hfe_elab *e, const hfe_stmt *s) {
    const hfe_expr *x = s->value;
    const hfe_expr *name = x->kind == HFE_X_CALL ? x->call.callee : x;
    const hfe_def *config = hfe_find_config(e->frame->def->file, name->name);
    if (!config || e->calls >= HFE_MAX_CALLS) {
        hfe_halt(e, s->loc, "a circle of configs?", "this config cannot be included");
        return;
    }
    hfe_value *locals = hd_new_array(e->arena, hfe_value, config->n_locals + 1);
    for (size_t i = 0; i < config->n_locals; i++)
        locals[i] = (hfe_value){.type = HFE_UNSET};
    take_params(e, config, locals);
    if (!bind_arguments(e, x, config, locals)) return;
    hfe_field *outer = e->import->object;
    if (s->name && !enter_object(e, s, config)) {
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
    for (size_t i = 0; i < im->bound.params.n; i++)
        if (im->bound.params.at[i].of == im->bound.config && im->bound.params.at[i].name == name)
            return;
    hfe_parameter p = {.of = im->bound.config, .name = name};
    hd_push(e->arena, &im->bound.params, p);
}

/* Reads a field by its name, or by the other name that it has in some files. */
static hfe_value read_declared(hfe_elab *e, const hfe_declaration *d, hfe_field *f) {
    hfe_json *j = e->import->json;
    const char *also = hfe_literal(d->aspect[HFE_ASPECT_also]);
    hfe_field *other = hd_new(e->arena, hfe_field);
    *other = (hfe_field){f->object, also};
    if (!also || !hfe_json_get(j, other)) return hfe_read_value(e, d, f);
    if (!hfe_json_get(j, f)) {
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

static hfe_value run_marked(hfe_elab *e, const hfe_stmt *s) {
    hfe_declaration d;
    hfe_value v, otherwise = hfe_poison();
    if (hfe_is_declaration(NULL, s, &d)) {
        hfe_field *f = hd_new(e->arena, hfe_field);
        *f = (hfe_field){e->import->object, d.name};
        v = read_declared(e, &d, f);
        if (s->mark == HFE_OPTION && d.aspect[HFE_ASPECT_default])
            otherwise = hfe_eval(e, d.aspect[HFE_ASPECT_default]);
    } else {
        v = hfe_eval(e, s->value);
    }
    const bool shown = s->mark == HFE_PARAM || (s->mark == HFE_OPTION && !hfe_equal(v, otherwise));
    if (shown) add_parameter(e, s->targets.at[0].name);
    return v;
}

const hfe_config_words hfe_words_of_configs = {
    .check_rule = hfe_check_rule,
    .check_declaration = hfe_check_declaration,
    .run_rule = hfe_run_rule,
    .run_marked = run_marked,
    .run_include = run_include,
};
