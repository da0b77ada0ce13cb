/* The evaluator's driver: inputs, weights and state become arrays; ops run in order, each by the
 * rule that the op table names; results are copied out.
 *
 * A kernel's body runs in place: its ops mean what they mean inline, and its results are what its
 * `yield` names.
 */
#include <math.h>
#include <string.h>

#include "ir/eval_private.h"

/* ---- making one ------------------------------------------------------------------------------ */

hir_eval *hir_eval_new(hd_arena *a, const hir_module *m, hir_weight_source source, void *context) {
    hir_eval *e = hd_new(a, hir_eval);
    *e = (hir_eval){.arena = a, .m = m, .source = source, .context = context};
    e->weights = hd_new_array(a, double *, m->weights.n);
    eval_new_states(e);
    eval_find_lives(e);
    return e;
}

int64_t hir_eval_length(const hir_eval *e) {
    return e->length;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The type with T and C as numbers. */
hir_type eval_concrete(const eval_call *c, hir_type t) {
    for (uint32_t i = 0; i < t.rank; i++) {
        if (t.dim[i] == HIR_T) t.dim[i] = c->T;
        if (hir_is_length(t.dim[i])) t.dim[i] = c->C / hir_rate(t.dim[i]);
    }
    return t;
}

static bool count_elements(hir_type t, int64_t *n) {
    *n = 1;
    for (uint32_t i = 0; i < t.rank; i++)
        if (hd_mul_overflow(*n, t.dim[i], n)) return false;
    return true;
}

bool eval_too_large(eval_call *c, hd_loc loc, const char *what, hir_type t) {
    hd_text type;
    hd_text_init(&type, c->scratch);
    hir_print_type(&type, t);
    hd_diag *diag = hd_err(c->d, HD_E_LIMIT, loc, "%s is too large to evaluate: %s", what, type.at);
    diag->cause = hd_printf(c->d->arena, "the values of one call may have %lld elements in all",
                            (long long)HIR_EVAL_MAX_ELEMENTS);
    diag->hint = "evaluate fewer tokens in one call, or a smaller model";
    return false;
}

bool eval_shape_array(eval_call *c, hd_loc loc, const char *what, hir_type t, hir_array *y) {
    y->type = eval_concrete(c, t);
    if (!count_elements(y->type, &y->n) || y->n > HIR_EVAL_MAX_ELEMENTS)
        return eval_too_large(c, loc, what, y->type);
    return true;
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The elements of a factor: its weight, with the factor's function applied, sliced. */
static bool factor_array(eval_call *c, const hir_derived_factor *f, hir_array *out) {
    if (!eval_weight_array(c, hir_find_weight(c->m, f->name), out)) return false;
    if (f->by == HIR_DERIVED_TRANSPOSED) {
        const int64_t n = hir_factor_elements(f, out->n);
        double *y = hd_new_array(c->scratch, double, (size_t)n);
        hir_transpose_rows(out->at + f->first, n, out->type.dim[out->type.rank - 1], y);
        out->at = y, out->n = n;
        return true;
    }
    if (f->by) {
        const size_t bytes = (size_t)out->n * sizeof(double);
        out->at = memcpy(hd_new_array(c->scratch, double, (size_t)out->n), out->at, bytes);
        hir_derive_elements(f->by, out->at, out->n);
    }
    out->at += f->first;
    out->n = hir_factor_elements(f, out->n);
    return true;
}

/* Computes the n elements of a derived weight. Each block of rows is the elementwise product of its
 * factors; a factor with fewer elements (one row, or one element) is repeated. */
static bool derive_weight(eval_call *c, const hir_weight *w, int64_t n, double *at) {
    const int64_t row = hir_derived_row_elements(w->type);
    for (int64_t i = 0; i < n; i++)
        at[i] = 1;
    for (uint32_t r = 0; r < w->n_rows; r++) {
        const int64_t block = hir_derived_rows(c->m, &w->rows[r], row) * row;
        for (uint32_t k = 0; k < w->rows[r].n; k++) {
            hir_array f;
            if (!factor_array(c, &w->rows[r].factor[k], &f)) return false;
            for (int64_t i = 0; i < block; i++)
                at[i] *= f.at[i % f.n];
        }
        for (int64_t i = 0; i < block; i++)
            at[i] = hir_rounded(w->type.dtype, at[i]);
        at += block;
    }
    return true;
}

bool eval_weight_array(eval_call *c, uint32_t w, hir_array *out) {
    hir_eval *e = c->e;
    const hir_weight *weight = &c->m->weights.at[w];
    *out = (hir_array){.name = weight->name, .type = weight->type};
    if (!count_elements(weight->type, &out->n) || out->n > HIR_EVAL_MAX_ELEMENTS)
        return eval_too_large(c, weight->loc, hd_printf(c->scratch, "weight @%s", weight->name),
                              weight->type);
    if (!e->weights[w]) {
        double *at = hd_new_array(e->arena, double, (size_t)out->n);
        const bool derived = hir_is_derived(weight),
                   asked = !derived || hir_is_quantised(weight->type.dtype);
        if (derived && !derive_weight(c, weight, out->n, at)) return false;
        if (asked && !e->source(e->context, c->m, w, at, c->d)) return false;
        e->weights[w] = at;
    }
    out->at = e->weights[w];
    return true;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool check_ids(eval_call *c, const hir_array *a) {
    for (int64_t i = 0; i < a->n; i++) {
        double x = a->at[i];
        if (x == floor(x) && x >= INT32_MIN && x <= INT32_MAX) continue;
        hd_err(c->d, HD_E_VALUE, HD_NOWHERE, "element %lld of input '%s' is %g, no i32",
               (long long)i, a->name ? a->name : "", x);
        return false;
    }
    return true;
}

static bool take_inputs(eval_call *c, const double *const *inputs) {
    for (size_t i = 0; i < c->m->inputs.n; i++) {
        hir_id v = c->m->inputs.at[i];
        const hir_value *value = hir_value_at(c->m, v);
        hir_array *a = &c->values[v];
        a->name = value->name;
        if (!eval_shape_array(c, HD_NOWHERE, hd_printf(c->scratch, "input %zu", i), value->type, a))
            return false;
        if (!inputs || !inputs[i]) {
            hd_err(c->d, HD_E_VALUE, HD_NOWHERE, "input %zu is missing", i);
            return false;
        }
        /* only read: no rule writes to its operands, except to state */
        a->at = (double *)inputs[i];
        if (value->type.dtype == HIR_I32 && !check_ids(c, a)) return false;
    }
    return true;
}

/* ---- running ops ----------------------------------------------------------------------------- */

static eval_rule *const rules[HIR_OPCODE_COUNT] = {
#define OP(id, name, stage, traits, operands, attrs, rule, doc) [HIR_##id##_OP] = eval_##rule,
#include "ir/ops.def"
#undef OP
};

eval_rule *eval_rule_of(hir_opcode code) {
    return rules[code];
}

static bool read_operand(eval_call *c, const hir_op *op, hir_ref ref, hir_array *out) {
    switch ((hir_ref_kind)ref.kind) {
    case HIR_REF_WEIGHT: return eval_weight_array(c, ref.index, out);
    case HIR_REF_STATE: eval_state_array(c, ref.index, out); return true;
    case HIR_REF_VALUE:
        *out = c->values[ref.index];
        if (out->at) return true;
        hd_err(c->d, HD_E_INTERNAL, op->loc, "%s reads a value that nothing has made",
               hir_info(op->code)->name);
        return false;
    case HIR_REF_NONE: break;
    }
    return false;
}

/* Gives the result of an op its name, type and, unless the op makes a view, memory. */
static bool make_room(eval_call *c, const hir_op *op, hir_array *y) {
    const hir_value *value = hir_value_at(c->m, op->results[0]);
    const char *name = hir_info(op->code)->name;
    y->name = value->name;
    if (!eval_shape_array(c, op->loc, name, value->type, y)) return false;
    if (hir_has_trait(op->code, HIR_VIEW)) return true;
    y->at = eval_take(c, y->n);
    return y->at || eval_too_large(c, op->loc, name, y->type);
}

static bool run_op(eval_call *c, hir_id id) {
    const hir_op *op = hir_op_at(c->m, id);
    uint32_t step = c->step++;
    hir_array *operands = hd_new_array(c->scratch, hir_array, op->n_args);
    const hir_array **x = hd_new_array(c->scratch, const hir_array *, op->n_args);
    for (uint32_t i = 0; i < op->n_args; i++) {
        if (op->args[i].kind == HIR_REF_NONE) continue;
        if (!read_operand(c, op, op->args[i], &operands[i])) return false;
        x[i] = &operands[i];
    }

    bool region = hir_has_trait(op->code, HIR_REGION);
    hir_array *y = NULL;
    if (op->n_results && !region) {
        y = &c->values[op->results[0]];
        if (!make_room(c, op, y)) return false;
    }
    if (!rules[op->code](c, op, x, y)) return false;
    if (c->observe)
        for (uint32_t i = 0; i < op->n_results; i++)
            c->observe(c->observe_context, c->m, id, op->results[i], &c->values[op->results[i]]);
    eval_give_dead(c, op, step);
    return true;
}

static bool run_list(eval_call *c, hir_id first) {
    HIR_EACH(c->m, op, first)
    if (!run_op(c, op)) return false;
    return true;
}

/* ---- kernels and results --------------------------------------------------------------------- */

bool eval_kernel(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)x, (void)y;
    return run_list(c, op->body_first);
}

bool eval_yield(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)y;
    const hir_op *kernel = hir_op_at(c->m, op->parent);
    for (uint32_t i = 0; i < op->n_args && i < kernel->n_results; i++) {
        hir_id v = kernel->results[i];
        c->values[v] = *x[i];
        c->values[v].name = hir_value_at(c->m, v)->name;
    }
    return true;
}

/* name.M, M counting the traces of that name in this call */
static const char *trace_name(eval_call *c, const char *name) {
    for (size_t i = 0; i < c->traces.n; i++)
        if (!strcmp(c->traces.at[i].name, name))
            return hd_printf(c->scratch, "%s.%lld", name, (long long)c->traces.at[i].n++);
    hd_push(c->scratch, &c->traces, ((eval_count){name, 1}));
    return hd_printf(c->scratch, "%s.0", name);
}

/* Results are copied, as state and the caller's inputs change after the call. */
bool eval_output(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)y;
    const char *name = hir_attr_string(op, HIR_A_NAME, "");
    hir_array result = *x[0];
    result.at = eval_take(c, result.n);
    if (!result.at)
        return eval_too_large(c, op->loc, hd_printf(c->scratch, "output '%s'", name), result.type);
    memcpy(result.at, x[0]->at, (size_t)result.n * sizeof *result.at);
    if (op->code == HIR_TRACE_OP) {
        result.name = trace_name(c, name);
        hd_push(c->scratch, &c->out->traces, result);
    } else {
        result.name = name;
        hd_push(c->scratch, &c->out->outputs, result);
    }
    return true;
}

bool hir_eval_call(hir_eval *e, hd_arena *scratch, hd_diags *d, int64_t tokens,
                   const double *const *inputs, hir_results *out, hir_observer observe,
                   void *observe_context) {
    *out = (hir_results){0};
    if (tokens < 1) {
        hd_err(d, HD_E_VALUE, HD_NOWHERE, "a call needs at least one token, not %lld",
               (long long)tokens);
        return false;
    }
    if (tokens > HIR_MAX_DIM - e->length) {
        hd_diag *diag =
            hd_err(d, HD_E_LIMIT, HD_NOWHERE, "%lld tokens are too many", (long long)tokens);
        diag->cause = hd_printf(d->arena, "state holds %lld already and at most %d in all",
                                (long long)e->length, (int)HIR_MAX_DIM);
        return false;
    }
    eval_call c = {
        .e = e,
        .m = e->m,
        .scratch = scratch,
        .d = d,
        .T = tokens,
        .C = e->length + tokens,
        .values = hd_new_array(scratch, hir_array, e->m->values.n),
        .out = out,
        .observe = observe,
        .observe_context = observe_context,
    };
    if (!eval_begin_states(&c)) return false;
    if (!take_inputs(&c, inputs) || !run_list(&c, e->m->first)) {
        eval_undo_states(e);
        *out = (hir_results){0};
        return false;
    }
    e->length += tokens;
    return true;
}
