/* Parameters of the model: defaults, and -D name=value in the type of the default. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "frontend/language/lexer.h"
#include "frontend/language/value.h"

static const hfe_define *find_define(const hfe_options *o, const char *name) {
    const hfe_define *found = NULL;
    for (size_t i = 0; i < o->n_defines; i++) { /* the last one counts, as with compilers */
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

/* What the text looks like. */
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

/* A list: [1, 2, 3] of what its elements look like. */
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

static void refuse_unknown(hfe_elab *e, const hfe_def *model) {
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

void hfe_set_params(hfe_elab *e, const hfe_def *model) {
    refuse_unknown(e, model);
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
