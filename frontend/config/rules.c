/* Rules of configs: the calls that stand between declarations (config.def). */
#include <string.h>

#include "frontend/config/config.h"
#include "frontend/config/numbers.h"
#include "frontend/config/quantisation.h"
#include "support/file.h"
#include "text/folded.h"

/* ---- rules on one field ---------------------------------------------------------------------- */

/* Returns a page's message, which may contain strings of the file, with control bytes escaped as in
 * JSON: a terminal would obey them. */
static const char *harmless(hfe_elab *e, const char *s) {
    hd_text t;
    hd_text_init(&t, e->arena);
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f)
            hd_text_f(&t, "\\x%02x", c);
        else
            hd_text_add_n(&t, s, 1);
    }
    return t.at ? t.at : "";
}

static const char *text_argument(hfe_elab *e, const hfe_expr *call, size_t i) {
    if (i >= call->call.args.n) return NULL;
    const hfe_value v = hfe_eval(e, call->call.args.at[i].value);
    return hfe_is(v, HFE_STRING) ? harmless(e, v.string) : NULL;
}

static bool has_spoken(hfe_elab *e, const hfe_expr *call) {
    for (size_t i = 0; i < e->import->rejected.n; i++)
        if (e->import->rejected.at[i] == call) return true;
    hd_push(e->arena, &e->import->rejected, call);
    return false;
}

/* Returns the field under the name that it has in the file. */
static const hfe_field *as_written(const hfe_reading *im, const hfe_field *f) {
    for (size_t i = 0; i < im->aliases.n; i++) {
        const hfe_alias *a = &im->aliases.at[i];
        if (a->field->object == f->object && strcmp(a->field->name, f->name) == 0) return a->other;
    }
    return f;
}

/* Finds NAME, or OBJECT.NAME, in the object that is being read. */
static const hfe_field *find_field(hfe_elab *e, const char *path) {
    const hfe_field *object = e->import->object;
    const char *dot = strchr(path, '.');
    while (dot) {
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

static hfe_value reject(hfe_elab *e, const hfe_expr *call) {
    const char *name = text_argument(e, call, 0), *message = text_argument(e, call, 1);
    if (!name || !message || has_spoken(e, call)) return hfe_poison();
    const hfe_field *f = !*name && e->import->object ? e->import->object : find_field(e, name);
    hd_diag *g = hfe_field_error(e->import->json, f, "%s", message);
    g->cause = text_argument(e, call, 2);
    g->hint = text_argument(e, call, 3);
    return hfe_poison();
}

static hfe_value missing(hfe_elab *e, const hfe_expr *call) {
    hfe_json *j = e->import->json;
    const char *name = text_argument(e, call, 0), *why = text_argument(e, call, 1);
    if (!name || has_spoken(e, call)) return hfe_poison();
    const char *what =
        hd_printf(e->arena, "the field '%s' is missing%s%s", name, why ? ": " : "", why ? why : "");
    if (e->import->object)
        hfe_field_error(j, e->import->object, "%s", what);
    else
        hd_err(j->diags, HD_E_CONFIG, (hd_loc){.file = j->file}, "%s", what);
    return hfe_poison();
}

/* True if a JSON value equals a value of the language. */
static bool same(const json_t *j, hfe_value v) {
    switch (v.type) {
    case HFE_NONE: return json_is_null(j);
    case HFE_BOOL: return json_is_boolean(j) && json_is_true(j) == v.boolean;
    case HFE_INT:
    case HFE_FLOAT: return json_is_number(j) && json_number_value(j) == hfe_as_number(v);
    case HFE_STRING: return json_is_string(j) && strcmp(json_string_value(j), v.string) == 0;
    case HFE_LIST: /* an empty list also equals an empty object */
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
    for (size_t i = 2; v && i < call->call.args.n; i++) {
        const hfe_value want = hfe_eval(e, call->call.args.at[i].value);
        if (same(v, want) || hfe_is(want, HFE_POISON)) return;
        hd_text_add(&allowed, i > 2 ? ", " : "");
        if (hfe_is(want, HFE_NONE))
            hd_text_add(&allowed, "null");
        else
            hfe_show(want, &allowed);
    }
    if (v)
        hfe_field_error(j, &f, "%s cannot be honoured by this version", hfe_json_show(j, v))
            ->cause = hd_printf(e->arena, "%s; allowed: %s",
                                hfe_literal(call->call.args.at[1].value), allowed.at);
}

static void remark(hfe_elab *e, const hfe_expr *call) {
    const char *text = text_argument(e, call, 0);
    if (text && !has_spoken(e, call)) {
        hd_push(e->arena, &e->import->bound.remarks, text);
        hd_note(e->diags, (hd_loc){.file = e->import->json->file}, "%s", text);
    }
}

/* ---- lists that divide numbers among them --------------------------------------------------- */

/* Each of the numbers first .. first + count - 1 must be in exactly one of the lists. */
typedef struct sharing {
    hfe_elab *e;
    const char *noun;
    int64_t first, count;
    const hfe_field **holder; /* by number: the list that has it, or NULL */
    const hfe_field *lists;
    size_t n_lists;
    bool fault;
} sharing;

static hd_diag *element_error(sharing *s, const hfe_field *list, size_t i, const char *what) {
    hfe_json *j = s->e->import->json;
    s->fault = true;
    return hd_err(j->diags, HD_E_CONFIG, hfe_json_element(j, list, i), "%s: %s",
                  hfe_json_path(j, list), what);
}

static void place_element(sharing *s, const hfe_field *list, size_t i, const json_t *v) {
    hfe_elab *e = s->e;
    if (!json_is_integer(v)) {
        element_error(s, list, i,
                      hd_printf(e->arena, "must be the number of a %s, not %s", s->noun,
                                hfe_json_show(e->import->json, v)));
        return;
    }
    const long long n = json_integer_value(v);
    if (n < s->first || n - s->first >= s->count) {
        element_error(s, list, i, hd_printf(e->arena, "there is no %s %lld", s->noun, n))->cause =
            hd_printf(e->arena, "they count from %lld to %lld here", (long long)s->first,
                      (long long)(s->first + s->count - 1));
        return;
    }
    const hfe_field **holder = &s->holder[n - s->first];
    if (*holder == list)
        element_error(s, list, i, hd_printf(e->arena, "%s %lld stands here twice", s->noun, n));
    else if (*holder)
        element_error(s, list, i,
                      hd_printf(e->arena, "%s %lld stands in %s, too", s->noun, n, (*holder)->name))
            ->cause = hd_printf(e->arena, "every %s is of one kind", s->noun);
    *holder = list;
}

/* Reports the numbers that are in no list in one error: "layers 3, 7 and 2 more". */
static void report_missing(sharing *s) {
    enum { NAMED = 10 };
    hfe_elab *e = s->e;
    hfe_json *j = e->import->json;
    hd_text names, lists;
    int64_t missing = 0;
    hd_text_init(&names, e->arena);
    hd_text_init(&lists, e->arena);
    for (int64_t i = 0; i < s->count; i++)
        if (!s->holder[i] && missing++ < NAMED)
            hd_text_f(&names, "%s%lld", missing > 1 ? ", " : "", (long long)(s->first + i));
    for (size_t i = 0; i < s->n_lists; i++) {
        hd_text_f(&lists, "%s%s",
                  i == 0               ? ""
                  : i + 1 < s->n_lists ? ", "
                                       : " and ",
                  s->lists[i].name);
    }
    if (missing == 0) return;
    if (missing > NAMED) hd_text_f(&names, " and %lld more", (long long)(missing - NAMED));
    s->fault = true;
    hd_err(j->diags, HD_E_CONFIG, hfe_json_value(j, &s->lists[0]), "%s: %s%s %s missing",
           hfe_json_path(j, &s->lists[0]), s->noun,
           missing == 1 ? hd_printf(e->arena, " %s", names.at)
                        : hd_printf(e->arena, "s %s", names.at),
           missing == 1 ? "is" : "are")
        ->cause = hd_printf(e->arena, "%s name every %s from %lld to %lld once", lists.at, s->noun,
                            (long long)s->first, (long long)(s->first + s->count - 1));
}

static hfe_value each_once(hfe_elab *e, const hfe_expr *call) {
    enum { MOST = 1 << 20 };
    const hfe_value noun = hfe_eval(e, call->call.args.at[0].value);
    const hfe_value first = hfe_eval(e, call->call.args.at[1].value);
    const hfe_value count = hfe_eval(e, call->call.args.at[2].value);
    if (!hfe_is(noun, HFE_STRING) || !hfe_is(first, HFE_INT) || !hfe_is(count, HFE_INT) ||
        count.integer < 0 || count.integer > MOST)
        return hfe_poison();
    const size_t n_lists = call->call.args.n - 3;
    hfe_field *lists = hd_new_array(e->arena, hfe_field, n_lists);
    sharing s = {e, noun.string, first.integer, count.integer, NULL, lists, n_lists, false};
    s.holder = hd_new_array(e->arena, const hfe_field *, (size_t)count.integer + 1);
    for (size_t k = 0; k < n_lists; k++) {
        lists[k] = (hfe_field){e->import->object, hfe_literal(call->call.args.at[k + 3].value)};
        const json_t *v = hfe_json_get(e->import->json, &lists[k]);
        if (!json_is_array(v)) { /* reading the declaration has reported it */
            return hfe_poison();
        }
    }
    for (size_t k = 0; k < n_lists; k++) {
        const json_t *v = hfe_json_get(e->import->json, &lists[k]);
        for (size_t i = 0; i < json_array_size(v); i++)
            place_element(&s, &lists[k], i, json_array_get(v, i));
    }
    report_missing(&s);
    return s.fault ? hfe_poison() : hfe_bool(true);
}

/* ---- tensors of the folder ------------------------------------------------------------------ */

/* Returns the tensors of the folder, which are opened once. */
static const hd_tensors *tensors_of(hfe_elab *e) {
    hfe_reading *im = e->import;
    if (!im->tensors) {
        im->tensors = hd_new(e->arena, hd_tensors);
        *im->tensors = hfe_tensors_beside(e->arena, im->json->file);
    }
    return im->tensors;
}

static hfe_value stored_shape(hfe_elab *e, const char *name) {
    const hd_tensor *t = hd_tensors_find(tensors_of(e), name);
    hfe_value dims[HD_TENSOR_MAX_RANK];
    for (uint32_t i = 0; t && i < t->rank; i++)
        dims[i] = hfe_int(t->shape[i]);
    return t ? hfe_new_list(e, HD_NOWHERE, dims, t->rank) : hfe_none();
}

/* Reads element i of a tensor of integers with all its bits. */
static bool whole_number(const hd_tensor *t, uint64_t i, int64_t *out) {
    if (t->packed) return false;
    if (t->dtype == HD_T_I64) {
        memcpy(out, t->data + i * sizeof *out, sizeof *out);
        return true;
    }
    if (t->dtype != HD_T_I32) return false;
    *out = (int64_t)hd_tensor_get(t, i);
    return true;
}

static hfe_value stored_numbers(hfe_elab *e, const char *name) {
    const hd_tensor *t = hd_tensors_find(tensors_of(e), name);
    if (!t || t->elements > HIR_MAX_ATTR_FLOATS) return hfe_none();
    hfe_value *numbers = hd_new_array(e->arena, hfe_value, (size_t)t->elements + 1);
    for (uint64_t i = 0; i < t->elements; i++) {
        int64_t n;
        if (!whole_number(t, i, &n)) return hfe_none();
        numbers[i] = hfe_int(n);
    }
    return hfe_new_list(e, HD_NOWHERE, numbers, (size_t)t->elements);
}

/* ---- what a checkpoint is made with, and does not state --------------------------------------- */

enum { MOST_NUMBERS = HIR_MAX_ATTR_FLOATS };

/* Argument i of a call, an int from `least` to `most`; false: it is none, as after an error. */
static bool int_argument(hfe_elab *e, const hfe_expr *call, size_t i, int64_t least, int64_t most,
                         int64_t *out) {
    const hfe_value v = hfe_eval(e, call->call.args.at[i].value);
    if (!hfe_is(v, HFE_INT) || v.integer < least || v.integer > most) return false;
    *out = v.integer;
    return true;
}

static hfe_value drawn(hfe_elab *e, const hfe_expr *call) {
    int64_t seed, below, n, at[MOST_NUMBERS];
    if (!int_argument(e, call, 0, 0, INT64_MAX, &seed) ||
        !int_argument(e, call, 1, 1, INT64_MAX, &below) ||
        !int_argument(e, call, 2, 0, MOST_NUMBERS, &n))
        return hfe_poison();
    hfe_value *list = hd_new_array(e->arena, hfe_value, (size_t)n + 1);
    hfe_draw_integers((uint64_t)seed, below, (size_t)n, at);
    for (int64_t i = 0; i < n; i++)
        list[i] = hfe_int(at[i]);
    return hfe_new_list(e, HD_NOWHERE, list, (size_t)n);
}

static bool stands_in(const hfe_list *list, int64_t n) {
    for (size_t i = 0; i < list->n; i++)
        if (hfe_is(hfe_item(list, i), HFE_INT) && hfe_item(list, i).integer == n) return true;
    return false;
}

/* The least primes above a number that do not stand in a list. */
static hfe_value primes(hfe_elab *e, const hfe_expr *call) {
    int64_t after, n;
    const hfe_value but = hfe_eval(e, call->call.args.at[2].value);
    if (!int_argument(e, call, 0, 0, INT64_MAX / 2, &after) ||
        !int_argument(e, call, 1, 0, MOST_NUMBERS, &n) || !hfe_is(but, HFE_LIST))
        return hfe_poison();
    hfe_value *list = hd_new_array(e->arena, hfe_value, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        do
            after = hfe_prime_after(after);
        while (stands_in(but.list, after));
        list[i] = hfe_int(after);
    }
    return hfe_new_list(e, HD_NOWHERE, list, (size_t)n);
}

/* [how many numbers tokens have, the number of a token]; none: there is no tokenizer.json, or no
 * such token. */
static hfe_value folded_tokens(hfe_elab *e, const hfe_expr *call) {
    const char *folder = hd_path_dir(e->arena, e->import->json->file);
    text_folds folds;
    int64_t id;
    if (!int_argument(e, call, 0, 0, INT32_MAX, &id)) return hfe_poison();
    if (!hd_exists(hd_path_join(e->arena, folder, "tokenizer.json"))) return hfe_none();
    if (!text_fold_tokens(e->arena, e->diags, folder, &folds)) return hfe_poison();
    if (id >= folds.ids) return hfe_none();
    const hfe_value both[] = {hfe_int(folds.numbers), hfe_int(folds.of[id])};
    return hfe_new_list(e, HD_NOWHERE, both, 2);
}

/* ---- all rules ------------------------------------------------------------------------------ */

static hfe_value run_rule(hfe_elab *e, const hfe_expr *call, hfe_rule rule) {
    switch (rule) {
    case HFE_RULE_REFUSE: return reject(e, call);
    case HFE_RULE_MISSING: return missing(e, call);
    case HFE_RULE_REMARK: remark(e, call); break;
    case HFE_RULE_ONLY: only(e, call); break;
    case HFE_RULE_STORED: {
        const char *name = text_argument(e, call, 0);
        return name ? stored_shape(e, name) : hfe_poison();
    }
    case HFE_RULE_STORED_NUMBERS: {
        const char *name = text_argument(e, call, 0);
        return name ? stored_numbers(e, name) : hfe_poison();
    }
    case HFE_RULE_DRAWN: return drawn(e, call);
    case HFE_RULE_PRIMES: return primes(e, call);
    case HFE_RULE_FOLDED_TOKENS: return folded_tokens(e, call);
    case HFE_RULE_EACH_ONCE: return each_once(e, call);
    case HFE_RULE_GIVEN: {
        const hfe_field f = {e->import->object, hfe_literal(call->call.args.at[0].value)};
        return hfe_bool(hfe_json_get(e->import->json, &f));
    }
    default: break;
    }
    return hfe_none();
}

bool hfe_run_rule(hfe_elab *e, const hfe_expr *x, hfe_value *out) {
    hfe_rule rule;
    if (!hfe_is_rule(x, &rule)) return false;
    *out = run_rule(e, x, rule);
    return true;
}
