/* Rules of configs that look at lists as a whole, and at the tensors beside the config. */
#include <string.h>

#include "frontend/config/config.h"
#include "frontend/config/quantisation.h"

/* ---- lists that share out numbers ----------------------------------------------------------- */

typedef struct sharing { /* of the numbers first .. first + count - 1 among lists */
    hfe_elab *e;
    const char *noun;
    int64_t first, count;
    const hfe_field **holder; /* by number: the list in which it stands, or NULL */
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
    if (*holder == list) {
        element_error(s, list, i, hd_printf(e->arena, "%s %lld stands here twice", s->noun, n));
    } else if (*holder != NULL) {
        element_error(s, list, i,
                      hd_printf(e->arena, "%s %lld stands in %s, too", s->noun, n, (*holder)->name))
            ->cause = hd_printf(e->arena, "every %s is of one kind", s->noun);
    }
    *holder = list;
}

/* The numbers in no list, in one error: "layers 3, 7 and 2 more". */
static void report_missing(sharing *s) {
    enum { NAMED = 10 };
    hfe_elab *e = s->e;
    hfe_json *j = e->import->json;
    hd_text names, lists;
    int64_t missing = 0;
    hd_text_init(&names, e->arena);
    hd_text_init(&lists, e->arena);
    for (int64_t i = 0; i < s->count; i++) {
        if (s->holder[i] == NULL && missing++ < NAMED) {
            hd_text_f(&names, "%s%lld", missing > 1 ? ", " : "", (long long)(s->first + i));
        }
    }
    for (size_t i = 0; i < s->n_lists; i++) {
        hd_text_f(&lists, "%s%s",
                  i == 0               ? ""
                  : i + 1 < s->n_lists ? ", "
                                       : " and ",
                  s->lists[i].name);
    }
    if (missing == 0) {
        return;
    }
    if (missing > NAMED) {
        hd_text_f(&names, " and %lld more", (long long)(missing - NAMED));
    }
    s->fault = true;
    hd_err(j->diags, HD_E_CONFIG, hfe_json_value(j, &s->lists[0]), "%s: %s%s %s missing",
           hfe_json_path(j, &s->lists[0]), s->noun,
           missing == 1 ? hd_printf(e->arena, " %s", names.at)
                        : hd_printf(e->arena, "s %s", names.at),
           missing == 1 ? "is" : "are")
        ->cause = hd_printf(e->arena, "%s name every %s from %lld to %lld once", lists.at, s->noun,
                            (long long)s->first, (long long)(s->first + s->count - 1));
}

hfe_value hfe_each_once(hfe_elab *e, const hfe_expr *call) {
    enum { MOST = 1 << 20 };
    const hfe_value noun = hfe_eval(e, call->call.args.at[0].value);
    const hfe_value first = hfe_eval(e, call->call.args.at[1].value);
    const hfe_value count = hfe_eval(e, call->call.args.at[2].value);
    if (!hfe_is(noun, HFE_STRING) || !hfe_is(first, HFE_INT) || !hfe_is(count, HFE_INT) ||
        count.integer < 0 || count.integer > MOST) {
        return hfe_poison();
    }
    const size_t n_lists = call->call.args.n - 3;
    hfe_field *lists = hd_new_array(e->arena, hfe_field, n_lists);
    sharing s = {e, noun.string, first.integer, count.integer, NULL, lists, n_lists, false};
    s.holder = hd_new_array(e->arena, const hfe_field *, (size_t)count.integer + 1);
    for (size_t k = 0; k < n_lists; k++) {
        lists[k] = (hfe_field){e->import->object, hfe_literal(call->call.args.at[k + 3].value)};
        const json_t *v = hfe_json_get(e->import->json, &lists[k]);
        if (!json_is_array(v)) { /* its declaration has said so */
            return hfe_poison();
        }
    }
    for (size_t k = 0; k < n_lists; k++) {
        const json_t *v = hfe_json_get(e->import->json, &lists[k]);
        for (size_t i = 0; i < json_array_size(v); i++) {
            place_element(&s, &lists[k], i, json_array_get(v, i));
        }
    }
    report_missing(&s);
    return s.fault ? hfe_poison() : hfe_bool(true);
}

/* ---- tensors of the folder ------------------------------------------------------------------ */

/* Opened once. */
static const hd_tensors *tensors_of(hfe_elab *e) {
    hfe_reading *im = e->import;
    if (im->tensors == NULL) {
        im->tensors = hd_new(e->arena, hd_tensors);
        *im->tensors = hfe_tensors_beside(e->arena, im->json->file);
    }
    return im->tensors;
}

hfe_value hfe_stored_shape(hfe_elab *e, const char *name) {
    const hd_tensor *t = hd_tensors_find(tensors_of(e), name);
    hfe_value dims[HD_TENSOR_MAX_RANK];
    for (uint32_t i = 0; t != NULL && i < t->rank; i++) {
        dims[i] = hfe_int(t->shape[i]);
    }
    return t != NULL ? hfe_new_list(e, HD_NOWHERE, dims, t->rank) : hfe_none();
}

/* Element i of a tensor of whole numbers, which keep all their bits. */
static bool whole_number(const hd_tensor *t, uint64_t i, int64_t *out) {
    if (t->packed != NULL) {
        return false;
    }
    if (t->dtype == HD_T_I64) {
        memcpy(out, t->data + i * sizeof *out, sizeof *out);
        return true;
    }
    if (t->dtype != HD_T_I32) {
        return false;
    }
    *out = (int64_t)hd_tensor_get(t, i);
    return true;
}

hfe_value hfe_stored_numbers(hfe_elab *e, const char *name) {
    const hd_tensor *t = hd_tensors_find(tensors_of(e), name);
    if (t == NULL || t->elements > HIR_MAX_ATTR_FLOATS) {
        return hfe_none();
    }
    hfe_value *numbers = hd_new_array(e->arena, hfe_value, (size_t)t->elements + 1);
    for (uint64_t i = 0; i < t->elements; i++) {
        int64_t n;
        if (!whole_number(t, i, &n)) {
            return hfe_none();
        }
        numbers[i] = hfe_int(n);
    }
    return hfe_new_list(e, HD_NOWHERE, numbers, (size_t)t->elements);
}
