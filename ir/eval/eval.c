/* The evaluator's driver: inputs, weights and state become arrays; ops run in order, each by the
 * rule that the op table names; results are copied out.
 *
 * A kernel's body runs in place: its ops mean what they mean inline, and its results are what its
 * `yield` names.
 */
#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

/* ---- making one ------------------------------------------------------------------------------ */

static hir_eval *new_rank(hd_arena *a, const hir_module *m, hir_weight_source source,
                          void *context) {
    hir_eval *e = hd_new(a, hir_eval);
    *e = (hir_eval){.arena = a, .m = m, .source = source, .context = context};
    e->weights = hd_new_array(a, double *, m->weights.n);
    eval_new_states(e);
    eval_find_lives(e);
    return e;
}

hir_eval *hir_eval_new_pipeline(hd_arena *a, const hir_module *const *stages, size_t n,
                                hir_weight_source source, void *context) {
    hir_eval *first = NULL, **stage = &first;
    for (size_t s = 0; s < n; s++, stage = &(*stage)->next_stage) {
        const hir_module *m = stages[s], *with_whole = hir_with_whole_weights(m, a);
        double **whole = hd_new_array(a, double *, m->weights.n);
        hir_eval **rank = stage;
        for (uint32_t r = 0; r < (m->ranks ? m->ranks : 1); r++, rank = &(*rank)->next_rank) {
            *rank = new_rank(a, m, source, context);
            (*rank)->with_whole = with_whole;
            (*rank)->whole = whole;
            (*rank)->rank = r;
            (*rank)->stage = (int64_t)s;
        }
    }
    return first;
}

hir_eval *hir_eval_new(hd_arena *a, const hir_module *m, hir_weight_source source, void *context) {
    return hir_eval_new_pipeline(a, &m, 1, source, context);
}

void hir_eval_alone(hir_eval *e) {
    for (hir_eval *r = e; r; r = r->next_rank)
        r->alone = true;
}

int64_t hir_eval_length(const hir_eval *e) {
    return e->length;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

static int64_t local_rows(const eval_call *c) {
    const int64_t from = c->m->divide_from, ranks = c->m->ranks;
    return hd_end_row(c->T, c->e->rank, ranks, from) - hd_first_row(c->T, c->e->rank, ranks, from);
}

/* The type with T and C as numbers. */
hir_type eval_concrete(const eval_call *c, hir_type t) {
    for (uint32_t i = 0; i < t.rank; i++) {
        if (t.dim[i] == HIR_T) t.dim[i] = c->T;
        if (hir_is_row_share(t.dim[i])) t.dim[i] = local_rows(c);
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
    hd_diag *diag = hd_err(c->d, HD_E_LIMIT, loc, "%s is too large to evaluate: %s", what,
                           hir_type_string(c->scratch, t));
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

static bool whole_weight(eval_call *c, uint32_t w, hir_array *out);

/* The elements of a factor: its weight, with the factor's function applied, sliced. `row`: elements of
 * a row of the derived weight. */
static bool factor_array(eval_call *c, const hir_derived_factor *f, int64_t row, hir_array *out) {
    if (!whole_weight(c, hir_find_weight(c->m, f->name), out)) return false;
    if (f->by == HIR_DERIVED_TRANSPOSED) {
        const int64_t n = hir_factor_elements(f, out->n);
        double *y = hd_new_array(c->scratch, double, (size_t)n);
        hir_transpose_rows(out->at + f->first, n, n / row, y);
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
        const int64_t block = hir_derived_rows(c->e->with_whole, &w->rows[r], row) * row;
        for (uint32_t k = 0; k < w->rows[r].n; k++) {
            hir_array f;
            if (!factor_array(c, &w->rows[r].factor[k], row, &f)) return false;
            for (int64_t i = 0; i < block; i++)
                at[i] *= f.at[i % f.n];
        }
        for (int64_t i = 0; i < block; i++)
            at[i] = hir_rounded(w->type.dtype, at[i]);
        at += block;
    }
    return true;
}

/* The weight as the checkpoint has it. */
static bool whole_weight(eval_call *c, uint32_t w, hir_array *out) {
    hir_eval *e = c->e;
    const hir_weight *weight = &e->with_whole->weights.at[w];
    *out = (hir_array){.name = weight->name, .type = weight->type};
    if (!count_elements(weight->type, &out->n) || out->n > HIR_EVAL_MAX_ELEMENTS)
        return eval_too_large(c, weight->loc, hd_printf(c->scratch, "weight @%s", weight->name),
                              weight->type);
    if (!e->whole[w]) {
        double *at = hd_new_array(e->arena, double, (size_t)out->n);
        const bool derived = hir_is_derived(weight),
                   asked = !derived || hir_is_quantised(weight->type.dtype);
        if (derived && !derive_weight(c, weight, out->n, at)) return false;
        if (asked && !e->source(e->context, e->with_whole, w, at, c->d)) return false;
        e->whole[w] = at;
    }
    out->at = e->whole[w];
    return true;
}

/* The weight as this rank has it. */
bool eval_weight_array(eval_call *c, uint32_t w, hir_array *out) {
    hir_eval *e = c->e;
    const hir_weight *weight = &c->m->weights.at[w];
    if (!weight->share.on) return whole_weight(c, w, out);
    *out = (hir_array){.name = weight->name, .type = weight->type};
    if (!count_elements(weight->type, &out->n) || out->n > HIR_EVAL_MAX_ELEMENTS)
        return eval_too_large(c, weight->loc, hd_printf(c->scratch, "weight @%s", weight->name),
                              weight->type);
    if (!e->weights[w]) {
        hir_array whole;
        if (!whole_weight(c, w, &whole)) return false;
        e->weights[w] = hd_new_array(e->arena, double, (size_t)out->n);
        hir_take_share(weight, e->rank, sizeof(double), whole.at, e->weights[w]);
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
        hd_err(c->d, HD_E_INTERNAL, *op->loc, "%s reads a value that nothing has made",
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
    if (!eval_shape_array(c, *op->loc, name, value->type, y)) return false;
    if (hir_has_trait(op->code, HIR_VIEW)) return true;
    y->at = eval_take(c, y->n);
    return y->at || eval_too_large(c, *op->loc, name, y->type);
}

/* Operands and result of an op, of one rank. */
typedef struct prepared {
    const hir_array **x;
    hir_array *y;
} prepared;

static bool prepare(eval_call *c, const hir_op *op, prepared *out) {
    hir_array *operands = hd_new_array(c->scratch, hir_array, op->n_args);
    out->x = hd_new_array(c->scratch, const hir_array *, op->n_args);
    out->y = NULL;
    for (uint32_t i = 0; i < op->n_args; i++) {
        if (op->args[i].kind == HIR_REF_NONE) continue;
        if (!read_operand(c, op, op->args[i], &operands[i])) return false;
        out->x[i] = &operands[i];
    }
    if (op->n_args && out->x[0]) c->operand = *out->x[0];
    if (!op->n_results || hir_is_kernel(op)) return true;
    out->y = &c->values[op->results[0]];
    return make_room(c, op, out->y);
}

static void finish(eval_call *c, hir_id id, uint32_t step) {
    const hir_op *op = hir_op_at(c->m, id);
    if (c->observe)
        for (uint32_t i = 0; i < op->n_results; i++)
            c->observe(c->observe_context, c->m, id, op->results[i], &c->values[op->results[i]]);
    eval_give_dead(c, op, step);
}

/* The calls of all ranks. They run each op together, so that the operands of a collective exist on
 * all ranks when the first of them runs it. */
typedef struct eval_group {
    eval_call *at;
    uint32_t n;
} eval_group;

static bool run_list(eval_group g, hir_id first);

static bool run_op(eval_group g, hir_id id) {
    const hir_op *op = hir_op_at(g.at->m, id);
    const uint32_t step = g.at->step;
    prepared *of = hd_new_array(g.at->scratch, prepared, g.n);
    for (uint32_t r = 0; r < g.n; r++) {
        g.at[r].step++;
        if (!prepare(&g.at[r], op, &of[r])) return false;
    }
    if (hir_is_kernel(op) && !run_list(g, op->body_first)) return false;
    for (uint32_t r = 0; r < g.n; r++)
        if (!rules[op->code](&g.at[r], op, of[r].x, of[r].y)) return false;
    for (uint32_t r = 0; r < g.n; r++)
        finish(&g.at[r], id, step);
    return true;
}

static bool run_list(eval_group g, hir_id first) {
    HIR_EACH(g.at->m, op, first)
    if (!run_op(g, op)) return false;
    return true;
}

/* ---- kernels and results --------------------------------------------------------------------- */

/* The body has already run (run_op), and its yield has set the results. */
bool eval_kernel(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op, (void)x, (void)y;
    return true;
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

const hir_array *hir_find_output(const hir_results *results, const char *name) {
    for (size_t i = 0; i < results->outputs.n; i++)
        if (!strcmp(results->outputs.at[i].name, name)) return &results->outputs.at[i];
    return NULL;
}

/* name.M, M counting the traces of that name in this call */
static const char *trace_name(eval_call *c, const char *name) {
    for (size_t i = 0; i < c->traces.n; i++)
        if (!strcmp(c->traces.at[i].name, name))
            return hd_printf(c->scratch, "%s.%lld", name, (long long)c->traces.at[i].n++);
    hd_push(c->scratch, &c->traces, ((eval_count){name, 1}));
    return hd_printf(c->scratch, "%s.0", name);
}

/* Outputs of one gradient are its summands. */
static bool add_to_gradient(eval_call *c, const hir_op *op, const hir_array *x) {
    const char *name = hir_attr_string(op, HIR_A_NAME, "");
    for (size_t i = 0; i < c->out->outputs.n && hir_is_gradient(op); i++) {
        const hir_array *sum = &c->out->outputs.at[i];
        if (strcmp(sum->name, name) != 0) continue;
        for (int64_t k = 0; k < sum->n && k < x->n; k++)
            sum->at[k] += x->at[k];
        return true;
    }
    return false;
}

/* Results are copied, as state and the caller's inputs change after the call. */
bool eval_output(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)y;
    if (add_to_gradient(c, op, x[0])) return true;
    const char *name = hir_attr_string(op, HIR_A_NAME, "");
    hir_array result = *x[0];
    result.at = eval_take(c, result.n);
    if (!result.at)
        return eval_too_large(c, *op->loc, hd_printf(c->scratch, "output '%s'", name), result.type);
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

/* ---- ranks and stages ------------------------------------------------------------------------ */

static bool begin_call(eval_call *c, const eval_call *like, hir_eval *e, hir_results *out) {
    *c = *like;
    c->e = e;
    c->m = e->m;
    c->values = hd_new_array(c->scratch, hir_array, e->m->values.n);
    c->out = out;
    if (e->rank || e->stage) c->observe = NULL;
    return eval_begin_states(c);
}

/* Begins the calls of all ranks of a stage. */
static bool begin_group(const eval_call *like, hir_eval *stage, eval_group *g) {
    *g = (eval_group){NULL, 0};
    for (const hir_eval *e = stage; e; e = e->next_rank)
        g->n++;
    g->at = hd_new_array(like->scratch, eval_call, g->n);
    hir_results *results = hd_new_array(like->scratch, hir_results, g->n);
    uint32_t r = 0;
    for (hir_eval *e = stage; e; e = e->next_rank, r++) {
        if (!begin_call(&g->at[r], like, e, &results[r])) return false;
        g->at[r].group = g->at;
    }
    return true;
}

/* Does the op, or one in its body, wait for a message that another stage has not sent yet? */
static bool must_wait(const eval_group *g, hir_id id) {
    const hir_op *op = hir_op_at(g->at->m, id);
    HIR_EACH(g->at->m, inner, op->body_first)
    if (must_wait(g, inner)) return true;
    if (op->code != HIR_COMM_RECV_OP) return false;
    for (uint32_t r = 0; r < g->n; r++)
        if (!eval_message_waits(&g->at[r], hir_attr_int(op, HIR_A_FROM, 0))) return true;
    return false;
}

/* Runs the stages in turns, each until it has to wait. */
static bool run_stages(eval_group *g, size_t n, hd_diags *d) {
    hd_arena *scratch = g->at->scratch;
    hir_id *next = hd_new_array(scratch, hir_id, n);
    for (size_t s = 0; s < n; s++)
        next[s] = g[s].at->m->first;
    for (bool moved = true, left = true; left;) {
        if (!moved) {
            hd_err(d, HD_E_VALUE, HD_NOWHERE,
                   "every stage waits for another: what is received is never sent");
            return false;
        }
        moved = left = false;
        for (size_t s = 0; s < n; s++)
            for (; next[s] != HIR_NONE; moved = true) {
                left = true;
                if (n > 1 && must_wait(&g[s], next[s])) break;
                if (!run_op(g[s], next[s])) return false;
                next[s] = hir_op_at(g[s].at->m, next[s])->next;
            }
    }
    return true;
}

static bool same_on_all_ranks(const eval_group *g, hd_diags *d) {
    const hir_results *first = g->at[0].out;
    for (uint32_t r = 1; r < g->n; r++)
        for (size_t i = 0; i < first->outputs.n; i++) {
            const hir_array *a = &first->outputs.at[i], *b = &g->at[r].out->outputs.at[i];
            for (int64_t k = 0; k < a->n; k++) {
                if (a->at[k] == b->at[k] || (isnan(a->at[k]) && isnan(b->at[k]))) continue;
                hd_err(d, HD_E_VALUE, HD_NOWHERE,
                       "output '%s' differs between ranks: element %lld is %g on rank 0 and %g on "
                       "rank %u",
                       a->name, (long long)k, a->at[k], b->at[k], r);
                return false;
            }
        }
    return true;
}

static bool run_call(const eval_call *like, hir_eval *e, const double *const *inputs) {
    size_t n = 0;
    for (const hir_eval *s = e; s; s = s->next_stage)
        n++;
    eval_mail mail = {.stages = (int64_t)n};
    eval_call call = *like;
    call.mail = n > 1 ? &mail : NULL;
    eval_group *g = hd_new_array(like->scratch, eval_group, n);
    size_t k = 0;
    for (hir_eval *s = e; s; s = s->next_stage, k++) {
        if (!begin_group(&call, s, &g[k])) return false;
        for (uint32_t r = 0; r < g[k].n; r++)
            if (!take_inputs(&g[k].at[r], inputs)) return false;
    }
    if (!run_stages(g, n, like->d)) return false;
    for (size_t s = 0; s < n; s++) {
        const hir_results *of = g[s].at[0].out;
        if (!same_on_all_ranks(&g[s], like->d)) return false;
        for (size_t i = 0; i < of->outputs.n; i++)
            hd_push(like->scratch, &like->out->outputs, of->outputs.at[i]);
        for (size_t i = 0; i < of->traces.n; i++)
            hd_push(like->scratch, &like->out->traces, of->traces.at[i]);
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
        .out = out,
        .observe = observe,
        .observe_context = observe_context,
    };
    const bool ok = run_call(&c, e, inputs);
    if (!ok) *out = (hir_results){0};
    for (hir_eval *s = e; s; s = s->next_stage)
        for (hir_eval *r = s; r; r = r->next_rank) {
            if (ok)
                r->length += tokens;
            else
                eval_undo_states(r);
        }
    return ok;
}
