/* From a parsed program to graph IR: the entry, errors with the calls that led to them, and the
 * model itself with its parameters. Elaboration continues after an error with poison values, so
 * that one compilation reports what is wrong in several places. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/language/elaborate.h"

/* ---- errors -------------------------------------------------------------------------------- */
static bool same_place(hd_loc a, hd_loc b) {
    return a.file == b.file && a.line == b.line && a.column == b.column;
}

static bool reported_before(hfe_elab *e, hd_loc loc) {
    for (size_t i = 0; i < e->reported.n; i++)
        if (same_place(e->reported.at[i], loc)) return true;
    hd_push(e->arena, &e->reported, loc);
    return false;
}

/* Notes the calls that led to an error, innermost first; recursive calls from one place are noted
 * once. */
static void note_calls(hfe_elab *e) {
    enum { SHOWN = 6 };
    int shown = 0, hidden = 0;
    hd_loc last = HD_NOWHERE;
    for (const hfe_frame *f = e->frame; f; f = f->up) {
        if (!f->call.file) continue;
        if (shown < SHOWN && !same_place(f->call, last)) {
            hd_note(e->diags, f->call, "in '%s', called from here", f->def->name);
            shown++;
        } else {
            hidden++;
        }
        last = f->call;
    }
    if (hidden > 0) hd_note(e->diags, HD_NOWHERE, "and %d more calls", hidden);
}

hfe_value hfe_fail(hfe_elab *e, hd_error code, hd_loc loc, const char *cause, const char *hint,
                   const char *format, ...) {
    if (e->stop || reported_before(e, loc)) return hfe_poison();
    va_list args;
    va_start(args, format);
    const char *message = hd_vprintf(e->arena, format, args);
    va_end(args);
    size_t kept = e->diags->list.n;
    hd_diag *d = hd_err(e->diags, code, loc, "%s", message);
    d->cause = cause;
    d->hint = hint;
    if (e->diags->list.n > kept) note_calls(e);
    return hfe_poison();
}

hfe_value hfe_halt(hfe_elab *e, hd_loc loc, const char *cause, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *message = hd_vprintf(e->arena, format, args);
    va_end(args);
    hfe_fail(e, HD_E_LIMIT, loc, cause, NULL, "%s", message);
    e->stop = true;
    return hfe_poison();
}

const char *hfe_did_you_mean(hfe_elab *e, const char *word, const hfe_candidates *among) {
    const char *near = hd_nearest(word, among->list.at, among->list.n);
    return near ? hd_printf(e->arena, "did you mean '%s'?", near) : NULL;
}

/* ---- places -------------------------------------------------------------------------------- */
/* Returns the place of an op for people: in the model, or in a page of their own with the call in
 * the model that led there. Pages of the library are passed over. */
hd_loc hfe_place_of_op(hfe_elab *e, hd_loc loc) {
    const hfe_frame *f = e->frame;
    for (; f && f->def->file != e->spec && hfe_is_library(e->p, f->def->file); f = f->up)
        loc = f->call;
    if (!f || f->def->file == e->spec) return loc;
    hd_loc call = loc;
    for (; f && f->def->file != e->spec; f = f->up)
        call = f->call;
    loc.call = e->call = hd_kept_call(e->arena, e->call, call);
    return loc;
}

/* ---- parameters: defaults, and -D name=value in the type of the default --------------------- */
static const hfe_define *find_define(const hfe_options *o, const char *name) {
    const hfe_define *found = NULL;
    for (size_t i = 0; i < o->n_defines; i++) { /* the last one counts, as in compilers */
        if (strcmp(o->defines[i].name, name) == 0) found = &o->defines[i];
    }
    return found;
}

static bool read_int(const char *s, int64_t *out) {
    char *end;
    errno = 0;
    *out = strtoll(s, &end, 10);
    return *s && !*end && errno == 0 && !strchr(" \t\n\r\v\f", *s);
}

static bool read_float(const char *s, double *out) {
    const size_t n = strlen(s);
    errno = 0;
    return strspn(s, "+-.0123456789eE") == n && hd_read_double(s, n, out) && errno == 0;
}

static bool read_bool(const char *s, bool *out) {
    *out = strcmp(s, "true") == 0;
    return *out || strcmp(s, "false") == 0;
}

/* Returns the value that a text without a declared type looks like. */
static hfe_value guess(hfe_elab *e, const char *s) {
    int64_t i;
    double f;
    bool b;
    if (strcmp(s, "none") == 0) return hfe_none();
    if (read_int(s, &i)) return hfe_int(i);
    if (read_float(s, &f)) return hfe_float(f);
    if (read_bool(s, &b)) return hfe_bool(b);
    return hfe_new_string(e, HD_NOWHERE, s, strlen(s));
}

/* Reads a list such as [1, 2, 3], each element as the value that it looks like. */
static bool read_list(hfe_elab *e, const char *s, hfe_value *out) {
    size_t n = strlen(s);
    if (n < 2 || s[0] != '[' || s[n - 1] != ']') return false;
    const char *at = s + 1, *end = s + n - 1;
    *out = hfe_new_list(e, HD_NOWHERE, NULL, 0);
    at += strspn(at, " ");
    while (at < end && hfe_is(*out, HFE_LIST)) {
        size_t length = strcspn(at, ",]");
        const char *next = at + length + 1;
        while (length > 0 && at[length - 1] == ' ')
            length--;
        if (length == 0 || memchr(at, '[', length)) return false;
        *out = hfe_append(e, HD_NOWHERE, out->list, guess(e, hd_strndup(e->arena, at, length)));
        at = next;
        at += at < end ? strspn(at, " ") : 0;
    }
    return true;
}

static bool read_as(hfe_elab *e, hfe_type type, const char *s, hfe_value *out) {
    *out = (hfe_value){.type = type};
    switch (type) {
    case HFE_INT: return read_int(s, &out->integer);
    case HFE_FLOAT: return read_float(s, &out->number);
    case HFE_BOOL: return read_bool(s, &out->boolean);
    case HFE_LIST: return read_list(e, s, out);
    case HFE_STRING: *out = hfe_new_string(e, HD_NOWHERE, s, strlen(s)); return true;
    case HFE_NONE:
    case HFE_UNSET: *out = guess(e, s); return true;
    default: return false;
    }
}

static const char *how_to_write(hfe_type type) {
    switch (type) {
    case HFE_INT: return "ints are whole numbers of 64 bits, written in digits";
    case HFE_FLOAT: return "floats are written 2, 0.5 or 1e-6";
    case HFE_BOOL: return "write true or false";
    case HFE_LIST: return "lists are written [1, 2]";
    default: return NULL;
    }
}

static hfe_value from_define(hfe_elab *e, const hfe_param *param, hfe_value otherwise,
                             const hfe_define *define) {
    hfe_value v;
    if (hfe_is(otherwise, HFE_POISON)) return otherwise;
    if (read_as(e, otherwise.type, define->value, &v)) return v;
    hd_text shown;
    hd_text_init(&shown, e->arena);
    hfe_show(otherwise, &shown);
    hd_diag *d = hd_err(e->diags, HD_E_VALUE, HD_NOWHERE, "-D %s=%s: this is not %s", param->name,
                        define->value, hfe_type_with_article(otherwise.type));
    d->cause =
        hd_printf(e->arena, "the default of '%s' is %s", param->name, shown.at ? shown.at : "");
    d->hint = how_to_write(otherwise.type);
    return hfe_poison();
}

static void reject_unknown(hfe_elab *e, const hfe_def *model) {
    for (size_t i = 0; i < e->p->options->n_defines; i++) {
        const char *name = e->p->options->defines[i].name;
        hfe_candidates names = {0};
        bool known = false;
        for (size_t k = 0; k < model->params.n; k++) {
            known |= strcmp(model->params.at[k].name, name) == 0;
            hd_push(e->arena, &names.list, model->params.at[k].name);
        }
        if (!known)
            hd_err(e->diags, HD_E_NAME, HD_NOWHERE, "-D %s: the model '%s' has no such parameter",
                   name, model->name)
                ->hint = hfe_did_you_mean(e, name, &names);
    }
}

static void remember(hfe_elab *e, const char *name, hfe_value v) {
    hd_text text;
    hd_text_init(&text, e->arena);
    if (hfe_show(v, &text)) hir_set_option(e->m, name, text.at ? text.at : "");
}

static void set_params(hfe_elab *e, const hfe_def *model) {
    reject_unknown(e, model);
    for (size_t i = 0; i < model->params.n; i++) {
        const hfe_param *param = &model->params.at[i];
        const hfe_define *define = find_define(e->p->options, param->name);
        hfe_value v = {.type = HFE_UNSET};
        if (param->otherwise) v = hfe_eval(e, param->otherwise);
        if (define)
            v = from_define(e, param, v, define);
        else if (!param->otherwise)
            v = hfe_fail(e, HD_E_VALUE, param->loc, NULL,
                         hd_printf(e->arena, "give it with -D %s=...", param->name),
                         "the parameter '%s' has no value", param->name);
        e->frame->locals[i] = v;
        remember(e, param->name, v);
    }
}

/* ---- the model ----------------------------------------------------------------------------- */
/* True for a file with a family: names in its model are fields of a config.json. */
static bool is_family(hfe_program *p, const hfe_file *file) {
    for (size_t i = 0; i < file->defs.n; i++) {
        const hfe_def *def = file->defs.at[i];
        if (def->kind == HFE_D_CONFIG) {
            hd_err(p->diags, HD_E_NAME, def->loc, "this is the page of a family, not a model")
                ->hint = "it is taken when a folder with a config.json is compiled or imported";
            return true;
        }
    }
    return false;
}

static hfe_def *find_model(hfe_program *p, const hfe_file *file) {
    if (is_family(p, file)) return NULL;
    for (size_t i = 0; i < file->defs.n; i++)
        if (file->defs.at[i]->kind == HFE_D_MODEL) return file->defs.at[i];
    hd_loc loc = {.file = file->path};
    hd_err(p->diags, HD_E_NAME, loc, "there is no model in this file")->hint =
        "a model is written: model NAME(parameter = value) { ... }";
    return NULL;
}

static bool is_identifier(const char *s) {
    bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_';
    return letter &&
           !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")];
}

hir_ref hfe_find_input(const hfe_elab *e, const char *name) {
    for (size_t i = 0; i < e->m->inputs.n; i++) {
        hir_id v = e->m->inputs.at[i];
        if (strcmp(hir_value_at(e->m, v)->name, name) == 0) return hir_value_ref(v);
    }
    return hir_no_ref();
}

static void add_input(hfe_elab *e, const char *name, hir_type type) {
    hir_id v = hir_add_input(e->m, name, type);
    *hfe_variable(e, name) = hfe_tensor(hir_value_ref(v));
}

static void add_inputs(hfe_elab *e, const hfe_def *model) {
    if (!model->has_inputs) {
        int64_t dims[] = {HIR_T};
        add_input(e, hfe_intern(e->p, "tokens", 6), hir_make_type(HIR_I32, 1, dims));
    }
    for (size_t i = 0; i < model->inputs.n; i++) {
        const hfe_input *in = &model->inputs.at[i];
        HD_VEC(hfe_value) dims = {0};
        for (size_t k = 0; k < in->dims.list.n; k++)
            hd_push(e->arena, &dims, hfe_eval(e, in->dims.list.at[k]));
        hir_type type;
        hfe_value shape = hfe_new_list(e, in->loc, dims.at, dims.n);
        *hfe_variable(e, in->name) = hfe_poison();
        if (!hfe_shape(e, in->loc, shape, HIR_T, "the shape of an input", &type)) continue;
        type.dtype = in->dtype;
        if (in->dtype == HIR_I32 && (type.rank != 1 || type.dim[0] != HIR_T)) {
            hfe_fail(e, HD_E_TYPE, in->loc, NULL, "ids are i32[T]",
                     "an input of ints has one dim, the tokens");
            continue;
        }
        add_input(e, in->name, type);
    }
}

static bool has_output(const hir_module *m) {
    HIR_EACH(m, op, m->first)
    if (hir_op_at(m, op)->code == HIR_OUTPUT_OP) return true;
    return false;
}

static void run_model(hfe_elab *e, const hfe_def *model) {
    hfe_frame frame = {.def = model, .locals = hfe_take_locals(e, model)};
    e->frame = &frame;
    set_params(e, model);
    e->in_model = true;
    add_inputs(e, model);
    hfe_run_block(e, &model->body);
    e->in_model = false;
    if (e->diags->errors == e->p->errors && !has_output(e->m))
        hfe_fail(e, HD_E_TYPE, model->loc, "nothing that it computes leaves it",
                 "write: output logits = ...", "the model '%s' has no output", model->name);
    e->frame = NULL;
}

static hir_module *elaborate(hfe_program *p, hfe_file *spec, const hfe_def *model) {
    const char *name = p->options->name ? p->options->name : model->name;
    if (!is_identifier(name)) {
        hd_err(p->diags, HD_E_VALUE, HD_NOWHERE, "'%s' cannot be the name of a module", name)
            ->cause = "it becomes the prefix of C names: letters, digits and '_'";
        return NULL;
    }
    hfe_elab e = {.p = p, .arena = p->arena, .diags = p->diags, .spec = spec, .scope = ""};
    hd_diags_init(&e.trial, p->arena);
    e.m = hir_module_new(p->arena, hd_strdup(p->arena, name));
    e.b = hir_at_end(e.m, &e.trial);
    run_model(&e, model);
    return p->diags->errors > p->errors || !hir_verify(e.m, p->diags) ? NULL : e.m;
}

/* Warns of variables that are never read, since a typing error on the left of `=` makes a new
 * variable. */
static void warn_unread(hfe_program *p) {
    for (size_t i = 0; i < p->unread.n; i++) {
        const hfe_unread *u = &p->unread.at[i];
        hd_warn(p->diags, HD_E_NAME, u->target.loc, "'%s' is set and never read", u->target.name)
            ->hint = u->hint;
    }
}

/* ---- order of errors ----------------------------------------------------------------------- */
/* Orders errors in the spec before those in the files it uses, and errors in one file from top to
 * bottom. */
static bool comes_before(const hfe_program *p, const hd_diag *a, const hd_diag *b) {
    size_t file_a = 0, file_b = 0;
    for (size_t i = 0; i < p->files.n; i++) {
        file_a = p->files.at[i]->path == a->loc.file ? i + 1 : file_a;
        file_b = p->files.at[i]->path == b->loc.file ? i + 1 : file_b;
    }
    if (file_a != file_b) return file_a < file_b;
    return a->loc.line != b->loc.line ? a->loc.line < b->loc.line : a->loc.column < b->loc.column;
}

/* Sorts by insertion; an error moves together with the notes after it. */
static void sort_diags(const hfe_program *p, size_t from) {
    __typeof__(p->diags->list) *list = &p->diags->list;
    __typeof__(*list) sorted = {0};
    for (size_t i = from, n; i < list->n; i += n) {
        for (n = 1; i + n < list->n && list->at[i + n].severity == HD_NOTE; n++) {
        }
        size_t at = sorted.n;
        for (size_t k = 0; k < sorted.n && at == sorted.n; k++) {
            bool heads = sorted.at[k].severity != HD_NOTE;
            at = heads && comes_before(p, &list->at[i], &sorted.at[k]) ? k : at;
        }
        for (size_t k = 0; k < n; k++)
            hd_push(p->arena, &sorted, list->at[i + k]);
        memmove(&sorted.at[at + n], &sorted.at[at], (sorted.n - n - at) * sizeof *sorted.at);
        memcpy(&sorted.at[at], &list->at[i], n * sizeof *sorted.at);
    }
    if (sorted.n > 0) memcpy(&list->at[from], sorted.at, sorted.n * sizeof *sorted.at);
}

/* ---- the entry ------------------------------------------------------------------------------ */
static hir_module *load_program(hfe_program *p, const char *path, const char *text) {
    hfe_file *spec = hfe_read_program(p, path, text);
    if (!spec) return NULL;
    for (size_t i = 0; i < p->files.n; i++)
        hfe_resolve(p, p->files.at[i]);
    hfe_def *model = find_model(p, spec);
    hir_module *m = model ? elaborate(p, spec, model) : NULL;
    if (p->diags->errors > p->errors) return NULL;
    warn_unread(p);
    return m;
}

hir_module *hfe_load(hfe_program *p, const char *path, const char *text) {
    const size_t listed = p->diags->list.n;
    hir_module *m = load_program(p, path, text);
    sort_diags(p, listed);
    return m;
}
