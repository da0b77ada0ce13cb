/* The functions of the language that are not ops of ir/ops.def. */
#include <math.h>
#include <string.h>

#include "frontend/language/elaborate.h"

static hfe_value arg(const hfe_call *call, size_t i) {
    return i < call->n_args ? call->args[i].value : hfe_none();
}

/* Reports an argument of the wrong type. */
static hfe_value reject(hfe_elab *e, const hfe_call *call, size_t i, const char *want) {
    return hfe_fail(e, HD_E_TYPE, call->args[i].loc, NULL, NULL, "'%s' takes %s, not %s",
                    call->name, want, hfe_type_with_article(arg(call, i).type));
}

/* ---- lists --------------------------------------------------------------------------------- */
static hfe_value run_len(hfe_elab *e, const hfe_call *call) {
    hfe_value v = arg(call, 0);
    if (hfe_is(v, HFE_STRING)) return hfe_int((int64_t)strlen(v.string));
    return hfe_is(v, HFE_LIST) ? hfe_int((int64_t)v.list->n)
                               : reject(e, call, 0, "a list or a string");
}

/* A list of the characters of a text, which is UTF-8. */
static hfe_value run_characters(hfe_elab *e, const hfe_call *call) {
    if (!hfe_is(arg(call, 0), HFE_STRING)) return reject(e, call, 0, "a string");
    HD_VEC(hfe_value) all = {0};
    for (const char *c = arg(call, 0).string, *next; *c; c = next) {
        next = c + 1;
        while (((unsigned char)*next & 0xc0) == 0x80)
            next++;
        hd_push(e->arena, &all, hfe_new_string(e, call->loc, c, (size_t)(next - c)));
    }
    return hfe_new_list(e, call->loc, all.at, all.n);
}

static hfe_value run_append(hfe_elab *e, const hfe_call *call) {
    return hfe_is(arg(call, 0), HFE_LIST)
               ? hfe_append(e, call->loc, arg(call, 0).list, arg(call, 1))
               : reject(e, call, 0, "a list");
}

static hfe_value run_sum(hfe_elab *e, const hfe_call *call) {
    if (!hfe_is(arg(call, 0), HFE_LIST)) return reject(e, call, 0, "a list");
    const hfe_list *l = arg(call, 0).list;
    hfe_value total = l->n > 0 ? hfe_item(l, 0) : hfe_int(0);
    if (!hfe_is_number(total) && !hfe_is(total, HFE_TENSOR) && !hfe_is(total, HFE_POISON))
        return hfe_fail(e, HD_E_TYPE, call->loc, NULL, NULL,
                        "'sum' adds numbers or tensors, not %s", hfe_type_with_article(total.type));
    for (size_t i = 1; i < l->n; i++)
        total = hfe_binary_value(e, call->loc, HFE_ADD, total, hfe_item(l, i));
    return total;
}

/* ---- tensors ------------------------------------------------------------------------------- */
static hfe_value run_shape(hfe_elab *e, const hfe_call *call) {
    if (!hfe_is(arg(call, 0), HFE_TENSOR)) return reject(e, call, 0, "a tensor");
    hir_type t = hir_ref_type(e->m, arg(call, 0).tensor);
    hfe_value dims[HIR_MAX_RANK];
    for (uint32_t i = 0; i < t.rank; i++)
        dims[i] = hfe_dim(t.dim[i]);
    return hfe_new_list(e, call->loc, dims, t.rank);
}

static hfe_value run_dim(hfe_elab *e, const hfe_call *call) {
    hfe_value i = arg(call, 1);
    if (!hfe_is(arg(call, 0), HFE_TENSOR)) return reject(e, call, 0, "a tensor");
    if (!hfe_is(i, HFE_INT)) return reject(e, call, 1, "an int");
    hir_type t = hir_ref_type(e->m, arg(call, 0).tensor);
    int64_t at = i.integer < 0 ? i.integer + (int64_t)t.rank : i.integer;
    if (at < 0 || at >= (int64_t)t.rank)
        return hfe_fail(e, HD_E_VALUE, call->loc,
                        hd_printf(e->arena, "the tensor is %s", hir_type_string(e->arena, t)), NULL,
                        "there is no dim %lld", (long long)i.integer);
    return hfe_dim(t.dim[at]);
}

static hfe_value run_rank(hfe_elab *e, const hfe_call *call) {
    return hfe_is(arg(call, 0), HFE_TENSOR) ? hfe_int(hir_ref_type(e->m, arg(call, 0).tensor).rank)
                                            : reject(e, call, 0, "a tensor");
}

static bool init_of_word(hfe_elab *e, const hfe_call *call, size_t i, hir_init *out) {
    hfe_candidates words = {0};
    hd_text list;
    hd_text_init(&list, e->arena);
    for (int k = 0; k < HIR_INIT_COUNT; k++) {
        const char *word = hir_init_word((hir_init_kind)k);
        if (strcmp(arg(call, i).string, word) == 0) {
            out->kind = (hir_init_kind)k;
            return true;
        }
        hd_push(e->arena, &words.list, word);
        hd_text_f(&list, "%s\"%s\"", k ? ", " : "", word);
    }
    const char *near = hfe_did_you_mean(e, arg(call, i).string, &words);
    hfe_fail(
        e, HD_E_VALUE, call->args[i].value_loc,
        hd_printf(e->arena,
                  "it is one of %s, the deviation of a normal distribution, or a list of numbers",
                  list.at),
        near, "weights do not begin as \"%s\"", arg(call, i).string);
    return false;
}

typedef HD_VEC(double) number_vec;

/* The weight that a list of numbers begins: what messages about the list say of it. */
typedef struct begun {
    hfe_elab *e;
    hd_loc loc; /* of the list */
    hir_type type;
} begun;

#define FAIL_LIST(b, kind, ...)                                                                    \
    hfe_fail(                                                                                      \
        (b)->e, kind, (b)->loc,                                                                    \
        hd_printf((b)->e->arena, "the weight is %s", hir_type_string((b)->e->arena, (b)->type)),   \
        (b)->type.rank > 1 ? "the numbers of a matrix are a list of rows, [[1, 0], [0, 1]]; "      \
                             "[x] is the number x for all entries"                                 \
                           : "[x] is the number x for all entries",                                \
        __VA_ARGS__)

static bool add_number(const begun *b, hfe_value v, number_vec *out) {
    if (hfe_is(v, HFE_POISON)) return false;
    if (!hfe_is_number(v)) {
        FAIL_LIST(b, HD_E_TYPE, "%s in the list where a number is needed",
                  hfe_type_with_article(v.type));
        return false;
    }
    const double x = hfe_as_number(v);
    if (hir_is_initial(x))
        hd_push(b->e->m->arena, out, x);
    else
        hfe_fail(b->e, HD_E_VALUE, b->loc, "weights are f32, which goes up to about 3.4e38", NULL,
                 "a weight cannot begin as %g", x);
    return hir_is_initial(x);
}

/* Adds the numbers of `v`, which begin the entries of the weight from dim `k` on: for each dim a list
 * as long as it. */
static bool add_numbers(const begun *b, hfe_value v, uint32_t k, number_vec *out) {
    if (k == b->type.rank) return add_number(b, v, out);
    if (hfe_is(v, HFE_POISON)) return false;
    if (!hfe_is(v, HFE_LIST)) {
        FAIL_LIST(b, HD_E_TYPE, "%s in the list where a list is needed",
                  hfe_type_with_article(v.type));
        return false;
    }
    if ((int64_t)v.list->n != b->type.dim[k]) {
        FAIL_LIST(b, HD_E_VALUE, "a list of %zu where the weight has %lld", v.list->n,
                  (long long)b->type.dim[k]);
        return false;
    }
    for (size_t i = 0; i < v.list->n; i++)
        if (!add_numbers(b, hfe_item(v.list, i), k + 1, out)) return false;
    return true;
}

/* A list of one thing that is no list is the number of all entries. */
static bool init_of_list(hfe_elab *e, const hfe_call *call, size_t i, hir_type type,
                         hir_init *out) {
    const begun b = {e, call->args[i].value_loc, type};
    const hfe_value v = arg(call, i);
    number_vec numbers = {0};
    const bool all = v.list->n == 1 && !hfe_is(hfe_item(v.list, 0), HFE_LIST);
    if (all ? !add_number(&b, hfe_item(v.list, 0), &numbers) : !add_numbers(&b, v, 0, &numbers))
        return false;
    *out = (hir_init){.n = (uint32_t)numbers.n, .numbers = numbers.at};
    return true;
}

/* How a weight of the type begins; false after an error. */
static bool init_of(hfe_elab *e, const hfe_call *call, size_t i, hir_type type, hir_init *out) {
    *out = (hir_init){0};
    if (hfe_is(arg(call, i), HFE_STRING)) return init_of_word(e, call, i, out);
    if (hfe_is(arg(call, i), HFE_LIST)) return init_of_list(e, call, i, type, out);
    if (!hfe_is_number(arg(call, i))) {
        reject(e, call, i,
               "how a weight begins, \"zero\", \"one\", a deviation or a list of numbers");
        return false;
    }
    out->deviation = hfe_as_number(arg(call, i));
    if (hir_is_deviation(out->deviation)) return true;
    hfe_fail(e, HD_E_VALUE, call->args[i].value_loc, NULL,
             "a weight of zeros begins as \"zero\", one of all x as [x]",
             "the deviation of a normal distribution is above 0 and a number that f32 has, not %g",
             out->deviation);
    return false;
}

static hfe_value run_weight(hfe_elab *e, const hfe_call *call) {
    hir_init init;
    if (!hfe_is(arg(call, 0), HFE_STRING)) return reject(e, call, 0, "a name");
    const hfe_value w = hfe_declare_weight(e, call->loc, arg(call, 0).string, arg(call, 1), false);
    if (call->n_args < 3 || !hfe_is(w, HFE_TENSOR)) return w;
    return init_of(e, call, 2, hir_ref_type(e->m, w.tensor), &init)
               ? hfe_begin_weight(e, call->loc, w, init)
               : hfe_poison();
}

static hfe_value run_unused_weight(hfe_elab *e, const hfe_call *call) {
    return hfe_is(arg(call, 0), HFE_STRING)
               ? hfe_declare_weight(e, call->loc, arg(call, 0).string, arg(call, 1), true)
               : reject(e, call, 0, "a name");
}

/* Declares that the model does not use tensors whose names begin with a string, or with one of a
 * list of strings, in the current scope. */
static hfe_value run_unused_weights(hfe_elab *e, const hfe_call *call) {
    const hfe_value v = arg(call, 0);
    if (hfe_is(v, HFE_STRING)) return hfe_declare_unused_below(e, call->loc, v.string);
    if (!hfe_is(v, HFE_LIST))
        return reject(e, call, 0, "the beginning of names, or a list of such");
    for (size_t i = 0; i < v.list->n; i++) {
        if (!hfe_is(hfe_item(v.list, i), HFE_STRING))
            return reject(e, call, 0, "a list of strings");
        hfe_declare_unused_below(e, call->loc, hfe_item(v.list, i).string);
    }
    return hfe_none();
}

/* States that live for a call are made by passes; a model declares those of a session. */
static bool is_declared(hir_state_kind kind) {
    return hir_state_kind_of(kind)->rows != HIR_ROWS_PER_PAIR;
}

/* Returns the kind of state with the name in argument i, or HIR_STATE_KINDS after an error. */
static hir_state_kind state_kind(hfe_elab *e, const hfe_call *call, size_t i) {
    hfe_candidates words = {0};
    hir_state_kind kind = HIR_STATE_CACHE;
    if (!hfe_is(arg(call, i), HFE_STRING)) {
        reject(e, call, i, "a kind of state");
        return HIR_STATE_KINDS;
    }
    if (hir_state_kind_by_word(arg(call, i).string, &kind) && is_declared(kind)) return kind;
    hd_text list;
    hd_text_init(&list, e->arena);
    for (int k = 0; k < HIR_STATE_KINDS; k++) {
        const char *word = hir_state_kind_of((hir_state_kind)k)->word;
        if (!is_declared((hir_state_kind)k)) continue;
        hd_push(e->arena, &words.list, word);
        hd_text_f(&list, "%s\"%s\"", k ? ", " : "the kinds are ", word);
    }
    const char *hint = hfe_did_you_mean(e, arg(call, i).string, &words);
    hfe_fail(e, HD_E_NAME, call->args[i].loc, list.at, hint, "there is no kind of state '%s'",
             arg(call, i).string);
    return HIR_STATE_KINDS;
}

static hfe_value run_stacked_weight(hfe_elab *e, const hfe_call *call) {
    return hfe_is(arg(call, 0), HFE_STRING)
               ? hfe_declare_stacked(e, call->loc, arg(call, 0).string, arg(call, 1))
               : reject(e, call, 0, "a name");
}

static hfe_value run_state(hfe_elab *e, const hfe_call *call) {
    const hir_state_kind kind = call->n_args > 2 ? state_kind(e, call, 2) : HIR_STATE_CACHE;
    if (kind == HIR_STATE_KINDS) return hfe_poison();
    return hfe_is(arg(call, 0), HFE_STRING)
               ? hfe_declare_state(e, call->loc, arg(call, 0).string, arg(call, 1), kind)
               : reject(e, call, 0, "a name");
}

static hfe_value run_input(hfe_elab *e, const hfe_call *call) {
    if (!hfe_is(arg(call, 0), HFE_STRING)) return reject(e, call, 0, "a name");
    hir_ref r = hfe_find_input(e, arg(call, 0).string);
    if (r.kind != HIR_REF_NONE) return hfe_tensor(r);
    hfe_candidates names = {0};
    for (size_t i = 0; i < e->m->inputs.n; i++)
        hd_push(e->arena, &names.list, hir_value_at(e->m, e->m->inputs.at[i])->name);
    return hfe_fail(e, HD_E_NAME, call->loc, NULL, hfe_did_you_mean(e, arg(call, 0).string, &names),
                    "the model has no input '%s'", arg(call, 0).string);
}

/* ---- conversions --------------------------------------------------------------------------- */
static hfe_value run_float(hfe_elab *e, const hfe_call *call) {
    return hfe_is_number(arg(call, 0)) ? hfe_float(hfe_as_number(arg(call, 0)))
                                       : reject(e, call, 0, "a number");
}

static hfe_value run_int(hfe_elab *e, const hfe_call *call) {
    hfe_value v = arg(call, 0);
    if (!hfe_is_number(v)) return reject(e, call, 0, "a number");
    if (hfe_is(v, HFE_INT)) return v;
    bool whole = v.number == floor(v.number) && fabs(v.number) < 9.2e18;
    hd_text text;
    hd_text_init(&text, e->arena);
    hfe_show(v, &text);
    return whole ? hfe_int((int64_t)v.number)
                 : hfe_fail(e, HD_E_VALUE, call->loc, NULL, NULL, "%s is not a whole number",
                            text.at);
}

/* Only numbers have a cosine: there is no such op. Angles of tokens are computed by the op
 * rope_table. */
static hfe_value run_cos(hfe_elab *e, const hfe_call *call) {
    return hfe_is_number(arg(call, 0)) ? hfe_float(cos(hfe_as_number(arg(call, 0))))
                                       : reject(e, call, 0, "a number");
}

static hfe_value run_sin(hfe_elab *e, const hfe_call *call) {
    return hfe_is_number(arg(call, 0)) ? hfe_float(sin(hfe_as_number(arg(call, 0))))
                                       : reject(e, call, 0, "a number");
}

static hfe_value run_type(hfe_elab *e, const hfe_call *call) {
    (void)e;
    return hfe_string(hfe_type_name(arg(call, 0).type));
}

static hfe_value run_scope(hfe_elab *e, const hfe_call *call) {
    (void)call;
    return hfe_string(e->scope);
}

/* ---- errors that programs raise ------------------------------------------------------------ */
/* Reports an error where the function that raises it was called, since the caller gave the wrong
 * value. */
static hfe_value raise(hfe_elab *e, const hfe_call *call, const char *message) {
    hfe_frame *here = e->frame;
    bool called = here->call.file;
    if (called) e->frame = here->up;
    hfe_fail(e, HD_E_VALUE, called ? here->call : call->loc,
             called ? hd_printf(e->arena, "checked by '%s', %s:%u", here->def->name, call->loc.file,
                                call->loc.line)
                    : NULL,
             NULL, "%s", message);
    e->frame = here;
    e->raised = true;
    return hfe_poison();
}

static hfe_value run_error(hfe_elab *e, const hfe_call *call) {
    return hfe_is(arg(call, 0), HFE_STRING) ? raise(e, call, arg(call, 0).string)
                                            : reject(e, call, 0, "a string");
}

static hfe_value run_assert(hfe_elab *e, const hfe_call *call) {
    if (!hfe_is(arg(call, 0), HFE_BOOL)) return reject(e, call, 0, "a bool");
    if (!hfe_is(arg(call, 1), HFE_STRING)) return reject(e, call, 1, "a string");
    return arg(call, 0).boolean ? hfe_none() : raise(e, call, arg(call, 1).string);
}

/* ---- table --------------------------------------------------------------------------------- */
#define BUILTINS(B)                                                                                \
    B(len, 1, 1, "len(list or string)")                                                            \
    B(characters, 1, 1, "characters(string)")                                                      \
    B(append, 2, 2, "append(list, value)")                                                         \
    B(sum, 1, 1, "sum(list)")                                                                      \
    B(shape, 1, 1, "shape(x)")                                                                     \
    B(dim, 2, 2, "dim(x, i)")                                                                      \
    B(rank, 1, 1, "rank(x)")                                                                       \
    B(weight, 2, 3, "weight(name, shape, init)")                                                   \
    B(unused_weight, 2, 2, "unused_weight(name, shape)")                                           \
    B(unused_weights, 1, 1, "unused_weights(beginning of names)")                                  \
    B(state, 2, 3, "state(name, shape, kind)")                                                     \
    B(stacked_weight, 2, 2, "stacked_weight(name, shape)")                                         \
    B(input, 1, 1, "input(name)")                                                                  \
    B(float, 1, 1, "float(n)")                                                                     \
    B(int, 1, 1, "int(x)")                                                                         \
    B(cos, 1, 1, "cos(x)")                                                                         \
    B(sin, 1, 1, "sin(x)")                                                                         \
    B(type, 1, 1, "type(value)")                                                                   \
    B(scope, 0, 0, "scope()")                                                                      \
    B(error, 1, 1, "error(message)")                                                               \
    B(assert, 2, 2, "assert(condition, message)")

static const hfe_builtin builtins[] = {
#define B(name, least, most, signature) {#name, least, most, signature, run_##name},
    BUILTINS(B)
#undef B
};

const char *const hfe_builtin_names[] = {
#define B(name, least, most, signature) #name,
    BUILTINS(B)
#undef B
        NULL};

const hfe_builtin *hfe_find_builtin(const char *name) {
    for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
        if (strcmp(builtins[i].name, name) == 0) return &builtins[i];
    return NULL;
}
