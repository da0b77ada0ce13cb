/* Comparing two modules: the same seeded weights and inputs, three calls, outputs and traces by
 * name. If a result differs, values with the same number in both modules are compared too, to name
 * the first that differs.
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "ir/eval/eval.h"
#include "ir/eval/random.h"

/* Tokens of the calls: a prefill, one decoded token, and another chunk that begins at an odd cache
 * length. */
static const int64_t call_tokens[] = {5, 1, 3};
enum { CALLS = sizeof call_tokens / sizeof *call_tokens };

typedef struct side {                /* one of the two modules */
    const hir_module *m;             /* of a pipeline the last stage, which has the outputs */
    const hir_module *const *stages; /* of a pipeline all, else NULL */
    size_t n_stages;
    hir_eval *eval;
    hir_results results;
    hir_array *values; /* by value; `at` NULL: not made in this call */
    HD_VEC(hir_id) order;
    hd_arena *scratch;
} side;

typedef struct comparison {
    side before, after;
    double tolerance;
    uint64_t seed;
    hd_diags *d;
    hir_difference *out;
} comparison;

/* ---- distance --------------------------------------------------------------------------- */

typedef struct distance {
    double error; /* max |a-b| / max |a| */
    int64_t at;   /* where |a-b| is largest */
} distance;

/* Two infinities of one sign, or two NaNs, count as equal; NaN in only one is an infinite
 * difference. */
static double difference_of(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    double difference = fabs(a - b);
    return isnan(difference) ? INFINITY : difference;
}

static distance measure(const hir_array *a, const hir_array *b) {
    double scale = 0, worst = 0;
    distance result = {0, 0};
    for (int64_t i = 0; i < a->n; i++) {
        double difference = difference_of(a->at[i], b->at[i]);
        if (difference > worst) {
            worst = difference;
            result.at = i;
        }
        if (isfinite(a->at[i]) && fabs(a->at[i]) > scale) scale = fabs(a->at[i]);
    }
    if (worst > 0) result.error = scale > 0 ? worst / scale : INFINITY;
    return result;
}

/* ---- random inputs --------------------------------------------------------------------------- */

/* How many rows op selects from with the ids `input`; 0: it selects none with them. */
static int64_t rows_chosen_from(const hir_module *m, hir_id op, hir_ref input) {
    const hir_op *o = hir_op_at(m, op);
    const uint32_t at = o->code == HIR_EXPERT_LINEAR_OP ? 2 : o->code == HIR_MARK_OP ? 0 : 1;
    const bool chooses = o->code == HIR_GATHER_OP || o->code == HIR_PICK_OP ||
                         o->code == HIR_MARK_OP || o->code == HIR_EXPERT_LINEAR_OP ||
                         hir_takes_targets(o->code);
    if (!chooses || !hir_ref_equal(o->args[at], input)) return 0;
    if (o->code == HIR_MARK_OP) return hir_attr_int(o, HIR_A_LENGTH, 0);
    if (hir_find_attr(o, HIR_A_WHOLE)) return hir_attr_int(o, HIR_A_WHOLE, 0);
    const hir_type from = hir_arg_type(m, op, o->code == HIR_EXPERT_LINEAR_OP);
    const bool last = o->code == HIR_PICK_OP || hir_takes_targets(o->code);
    return from.dim[last ? from.rank - 1 : 0];
}

/* The fewest rows of any table that is indexed by the ids of `input`, by ops from `first` on. */
static int64_t fewest_rows(const hir_module *m, hir_id first, hir_id input, int64_t fewest) {
    HIR_EACH(m, op, first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->body_first != HIR_NONE) fewest = fewest_rows(m, o->body_first, input, fewest);
        if (o->code == HIR_COMM_PART_OP && hir_ref_equal(o->args[0], hir_value_ref(input))) {
            const hir_id kernel = o->parent; /* a rank's ids are ids of the same table */
            const hir_op *makes = kernel == HIR_NONE ? o : hir_op_at(m, kernel);
            fewest = fewest_rows(m, m->first, makes->results[0], fewest);
        }
        if (o->code == HIR_RESHAPE_OP && hir_ref_equal(o->args[0], hir_value_ref(input)))
            fewest = fewest_rows(m, op, o->results[0], fewest); /* read in the same body */
        const int64_t rows = rows_chosen_from(m, op, hir_value_ref(input));
        if (rows > 0 && rows < fewest) fewest = rows;
    }
    return fewest;
}

int64_t hir_fewest_ids(const hir_module *m, size_t i) {
    return fewest_rows(m, m->first, m->inputs.at[i], HIR_MAX_DIM);
}

static bool input_elements(hir_type t, int64_t tokens, int64_t length, int64_t *n) {
    *n = 1;
    for (uint32_t i = 0; i < t.rank; i++) {
        int64_t dim = t.dim[i];
        if (dim == HIR_T) dim = tokens;
        if (hir_is_length(dim)) dim = length / hir_rate(dim);
        if (hd_mul_overflow(*n, dim, n)) return false;
    }
    return *n <= HIR_EVAL_MAX_ELEMENTS;
}

/* Random ids for i32, normal numbers for other types; determined by the seed, the call and the
 * position of the input. */
static bool random_input(const comparison *c, const hir_eval *e, size_t i, int call,
                         hd_arena *scratch, const double **out) {
    const hir_module *m = c->before.m;
    hir_id v = m->inputs.at[i];
    hir_type type = hir_value_at(m, v)->type;
    int64_t tokens = call_tokens[call], n;
    if (!input_elements(type, tokens, hir_eval_length(e) + tokens, &n)) {
        hd_err(c->d, HD_E_LIMIT, HD_NOWHERE, "input %zu is too large to evaluate", i);
        return false;
    }
    hir_random r = hir_random_stream(c->seed, hd_printf(scratch, "input %zu call %d", i, call));
    int64_t ids = type.dtype == HIR_I32 ? hir_fewest_ids(m, i) : 0;
    double *at = hd_new_array(scratch, double, (size_t)n);
    for (int64_t k = 0; k < n; k++)
        at[k] = ids ? (double)hir_random_below(&r, (uint64_t)ids) : hir_random_normal(&r);
    *out = at;
    return true;
}

/* Those of a call; NULL, and a diagnostic: one is too large. */
static const double **random_inputs(const comparison *c, const hir_eval *e, int call,
                                    hd_arena *scratch) {
    const size_t n = c->before.m->inputs.n;
    const double **inputs = hd_new_array(scratch, const double *, n + 1);
    for (size_t i = 0; i < n; i++)
        if (!random_input(c, e, i, call, scratch, &inputs[i])) return NULL;
    return inputs;
}

static bool same_inputs(const hir_module *a, const hir_module *b, hd_diags *d) {
    bool same = a->inputs.n == b->inputs.n;
    for (size_t i = 0; same && i < a->inputs.n; i++)
        same = hir_type_equal(hir_value_at(a, a->inputs.at[i])->type,
                              hir_value_at(b, b->inputs.at[i])->type);
    if (!same) hd_err(d, HD_E_PASS, HD_NOWHERE, "the two modules do not take the same inputs");
    return same;
}

/* ---- one call -------------------------------------------------------------------------------- */

static void record(void *context, const hir_module *m, hir_id op, hir_id value,
                   const hir_array *a) {
    (void)m, (void)op;
    side *s = context;
    s->values[value] = *a;
    hd_push(s->scratch, &s->order, value);
}

static bool run_side(comparison *c, side *s, hd_arena *scratch, int64_t tokens,
                     const double *const *inputs) {
    s->scratch = scratch;
    s->values = hd_new_array(scratch, hir_array, s->m->values.n);
    memset(&s->order, 0, sizeof s->order);
    return hir_eval_call(s->eval, scratch, c->d, tokens, inputs, &s->results,
                         s->stages ? NULL : record, s);
}

static const hir_array *find_result(const hir_results *r, const char *name) {
    const hir_array *output = hir_find_output(r, name);
    if (output) return output;
    for (size_t i = 0; i < r->traces.n; i++)
        if (!strcmp(r->traces.at[i].name, name)) return &r->traces.at[i];
    return NULL;
}

/* The op that makes the result `name`: an output, or the M-th trace of a name. */
static hir_id find_output_op(const hir_module *m, hd_arena *scratch, const char *name) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code == HIR_OUTPUT_OP && !strcmp(hir_attr_string(o, HIR_A_NAME, ""), name))
            return op;
    }
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (o->code != HIR_TRACE_OP) continue;
        int64_t before = 0;
        const char *base = hir_attr_string(o, HIR_A_NAME, "");
        for (hir_id p = o->prev; p != HIR_NONE; p = hir_op_at(m, p)->prev)
            before += hir_op_at(m, p)->code == HIR_TRACE_OP &&
                      !strcmp(hir_attr_string(hir_op_at(m, p), HIR_A_NAME, ""), base);
        if (!strcmp(hd_printf(scratch, "%s.%lld", base, (long long)before), name)) return op;
    }
    return HIR_NONE;
}

/* ---- what the last digit changes ------------------------------------------------------------- */
/* Some results are sums whose terms cancel, as the gradient of a factor before a norm, which is 0 but
 * for the norm's eps; some depend on softmaxes of scores of some thousands. There two evaluations
 * that differ by rounding alone differ by far more than rounding. How much more is known by moving
 * each weight by its last digit: a result may change by MANY times that, since a pass changes the
 * rounding of many ops. */
enum { MANY = 16, DRAWS = 4 };

typedef struct moved { /* seeds of weights, and of how they are moved */
    uint64_t seed, direction;
} moved;

static bool moved_weights(void *context, const hir_module *m, uint32_t w, double *out,
                          hd_diags *d) {
    moved *move = context;
    const hir_weight *weight = &m->weights.at[w];
    if (!hir_random_weights(&move->seed, m, w, out, d)) return false;
    hir_random r = hir_random_stream(move->direction, weight->name);
    for (int64_t i = 0; i < hir_type_row_elements(weight->type) && !hir_is_derived(weight); i++)
        out[i] *= hir_random_below(&r, 2) ? 1 + DBL_EPSILON : 1 - DBL_EPSILON;
    return true;
}

/* Gradients are those of whole sequences: each call begins one. */
static bool has_gradients(const hir_module *m) {
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        if (hir_has_trait(o->code, HIR_REDUCES_TOKENS)) return true;
        if (hir_is_kernel(o) && hir_reduces_tokens(m, op)) return true;
    }
    return false;
}

/* By how much a result of the call is another one with moved weights. */
static double change_of(comparison *c, const hir_array *result, int call, uint64_t seed) {
    hd_arena *scratch = c->before.scratch;
    moved move = {c->seed, seed};
    hir_eval *e = hir_eval_new(scratch, c->before.m, moved_weights, &move);
    hir_results out = {0};
    if (!c->after.stages) hir_eval_alone(e);
    for (int i = 0; i <= call && i < CALLS; i++) {
        if (has_gradients(c->before.m)) (void)hir_eval_rewind(e, 0);
        const double **inputs = random_inputs(c, e, i, scratch);
        if (!inputs || !hir_eval_call(e, scratch, c->d, call_tokens[i], inputs, &out, NULL, NULL))
            return 0;
    }
    const hir_array *other = find_result(&out, result->name);
    return other ? measure(result, other).error : 0;
}

static bool is_rounding(comparison *c, const hir_array *result, double error, int call) {
    bool may = error <= c->tolerance;
    for (uint64_t draw = 1; draw <= DRAWS && !may; draw++)
        may = error <= MANY * change_of(c, result, call, c->seed + draw);
    return may;
}

/* ---- differences ----------------------------------------------------------------------------- */

static bool comparable(const hir_module *a, const hir_module *b, hir_id value, hir_id op) {
    if (value >= a->values.n || op >= a->ops.n) return false;
    const hir_op *x = hir_op_at(a, op), *y = hir_op_at(b, op);
    return hir_value_at(a, value)->op == op && x->code == y->code &&
           hir_type_equal(hir_value_at(a, value)->type, hir_value_at(b, value)->type);
}

/* Finds the first value of `after` that `before` has too, but with other elements. */
static void find_first_value(comparison *c) {
    hir_difference *out = c->out;
    out->first_value = out->first_op = HIR_NONE;
    for (size_t i = 0; i < c->after.order.n; i++) {
        hir_id v = c->after.order.at[i], op = hir_value_at(c->after.m, v)->op;
        if (!comparable(c->before.m, c->after.m, v, op)) continue;
        const hir_array *a = &c->before.values[v], *b = &c->after.values[v];
        if (!a->at || a->n != b->n) continue;
        double error = measure(a, b).error;
        if (error <= c->tolerance) continue;
        out->first_value = v;
        out->first_op = op;
        out->first_error = error;
        return;
    }
}

static bool wrong_shape(comparison *c, const hir_array *a, const hir_array *b, hir_id op) {
    if (a->type.rank == b->type.rank &&
        !memcmp(a->type.dim, b->type.dim, a->type.rank * sizeof *a->type.dim))
        return false;
    hd_loc loc = op == HIR_NONE ? HD_NOWHERE : *hir_op_at(c->after.m, op)->loc;
    hd_err(c->d, HD_E_PASS, loc, "result '%s' has another shape than before", a->name);
    return true;
}

/* Compares a result that both modules have; true: continue with the next. */
static bool compare_result(comparison *c, const hir_array *a, const hir_array *b, int call) {
    hir_id op = find_output_op(c->after.m, c->after.scratch, b->name);
    if (wrong_shape(c, a, b, op)) return false;
    distance found = measure(a, b);
    if (is_rounding(c, a, found.error, call)) return true;
    *c->out = (hir_difference){
        .found = true,
        .call = call,
        .tokens = call_tokens[call],
        .name = hd_strdup(c->d->arena, a->name),
        .output = op,
        .error = found.error,
        .before = a->at[found.at],
        .after = b->at[found.at],
        .at = found.at,
    };
    find_first_value(c);
    return false;
}

static bool compare_results(comparison *c, int call) {
    const hir_results *a = &c->before.results, *b = &c->after.results;
    for (size_t i = 0; i < a->outputs.n; i++) {
        const hir_array *other = find_result(b, a->outputs.at[i].name);
        if (!other) {
            hd_err(c->d, HD_E_PASS, HD_NOWHERE, "output '%s' is gone", a->outputs.at[i].name);
            return false;
        }
        if (!compare_result(c, &a->outputs.at[i], other, call)) return false;
    }
    for (size_t i = 0; i < a->traces.n; i++) { /* traces may be dropped */
        const hir_array *other = find_result(b, a->traces.at[i].name);
        if (other && !compare_result(c, &a->traces.at[i], other, call)) return false;
    }
    for (size_t i = 0; i < b->outputs.n; i++)
        if (!find_result(a, b->outputs.at[i].name)) {
            hd_err(c->d, HD_E_PASS, HD_NOWHERE, "output '%s' was not there before",
                   b->outputs.at[i].name);
            return false;
        }
    return true;
}

/* ---- all calls ------------------------------------------------------------------------------- */

static bool run_call(comparison *c, int call, hd_arena *scratch) {
    if (has_gradients(c->before.m) &&
        (!hir_eval_rewind(c->before.eval, 0) || !hir_eval_rewind(c->after.eval, 0)))
        return false;
    const double **inputs = random_inputs(c, c->before.eval, call, scratch);
    return inputs && run_side(c, &c->before, scratch, call_tokens[call], inputs) &&
           run_side(c, &c->after, scratch, call_tokens[call], inputs) && compare_results(c, call);
}

/* A separate arena, so that the pass's own does not grow. The diagnostics' arena frees it too, for
 * the case that control never returns here because that arena ran out of memory. */
typedef struct own_arena {
    hd_arena *arena;
} own_arena;

static void drop_arena(void *what) {
    own_arena *own = what;
    hd_arena_free(own->arena);
    own->arena = NULL;
}

static own_arena *new_arena(hd_diags *d) {
    own_arena *own = hd_new(d->arena, own_arena);
    hd_arena_defer(d->arena, drop_arena, own);
    own->arena = hd_arena_new();
    return own;
}

static bool out_of_memory(hd_diags *d) {
    hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory while evaluating");
    return false;
}

static bool run_guarded_call(comparison *c, int call) {
    own_arena *scratch = new_arena(c->d);
    if (!scratch->arena) return out_of_memory(c->d);
    jmp_buf here;
    hd_arena_guard(scratch->arena, &here);
    if (setjmp(here)) {
        drop_arena(scratch);
        return out_of_memory(c->d);
    }
    bool ok = run_call(c, call, scratch->arena);
    drop_arena(scratch);
    return ok;
}

static bool run_calls(comparison *c, hd_arena *a) {
    c->before.eval = hir_eval_new(a, c->before.m, hir_random_weights, &c->seed);
    if (c->after.stages) {
        c->after.eval = hir_eval_new_pipeline(a, c->after.stages, c->after.n_stages,
                                              hir_random_weights, &c->seed);
    } else {
        c->after.eval = hir_eval_new(a, c->after.m, hir_random_weights, &c->seed);
        hir_eval_alone(c->before.eval);
        hir_eval_alone(c->after.eval);
    }
    for (int call = 0; call < CALLS; call++)
        if (!run_guarded_call(c, call)) return c->out->found;
    return true;
}

static bool first_difference(const hir_module *before, side after, double tolerance, uint64_t seed,
                             hd_diags *d, hir_difference *out) {
    *out = (hir_difference){.output = HIR_NONE, .first_value = HIR_NONE, .first_op = HIR_NONE};
    if (!same_inputs(before, after.m, d)) return false;
    comparison c = {
        .before = {.m = before},
        .after = after,
        .tolerance = tolerance,
        .seed = seed,
        .d = d,
        .out = out,
    };
    own_arena *own = new_arena(d);
    if (!own->arena) return out_of_memory(d);
    jmp_buf here;
    hd_arena_guard(own->arena, &here);
    if (setjmp(here)) {
        drop_arena(own);
        return out_of_memory(d);
    }
    bool ok = run_calls(&c, own->arena);
    drop_arena(own);
    return ok;
}

bool hir_first_difference(const hir_module *before, const hir_module *after, double tolerance,
                          uint64_t seed, hd_diags *d, hir_difference *out) {
    return first_difference(before, (side){.m = after}, tolerance, seed, d, out);
}

/* ---- the result as diagnostics -------------------------------------------------------------- */

static const char *op_text(const hir_module *m, hir_id op, hd_arena *a) {
    hd_text text;
    hd_text_init(&text, a);
    hir_print_op(m, op, &text);
    return text.at;
}

/* The op that computes the operand of output op `op`; for an input, the output op itself. */
static hir_id producer(const hir_module *m, hir_id op) {
    hir_ref x = hir_op_at(m, op)->args[0];
    if (x.kind != HIR_REF_VALUE || hir_value_at(m, x.index)->op == HIR_NONE) return op;
    return hir_value_at(m, x.index)->op;
}

static bool same_answer(const hir_module *before, side other, double tolerance, uint64_t seed,
                        hd_diags *d) {
    const hir_module *after = other.m;
    hir_difference x;
    if (!first_difference(before, other, tolerance, seed, d, &x)) return false;
    if (!x.found) return true;
    hd_loc loc = HD_NOWHERE;
    hir_id op = x.output == HIR_NONE ? HIR_NONE : producer(after, x.output);
    if (op != HIR_NONE) loc = *hir_op_at(after, op)->loc;
    hd_diag *diag = hd_err(
        d, HD_E_PASS, loc, "output '%s' differs by %.3g (limit %.3g) in call %d of %lld token%s",
        x.name, x.error, tolerance, x.call, (long long)x.tokens, x.tokens == 1 ? "" : "s");
    diag->cause = hd_printf(d->arena, "element %lld was %.9g and is %.9g%s%s", (long long)x.at,
                            x.before, x.after, op == HIR_NONE ? "" : "; it comes from ",
                            op == HIR_NONE ? "" : op_text(after, op, d->arena));
    if (x.first_op != HIR_NONE) {
        hd_note(d, *hir_op_at(after, x.first_op)->loc,
                "the earliest value that is not as before, by %.3g: %s", x.first_error,
                op_text(after, x.first_op, d->arena));
    }
    return false;
}

bool hir_same_answer(const hir_module *before, const hir_module *after, double tolerance,
                     uint64_t seed, hd_diags *d) {
    return same_answer(before, (side){.m = after}, tolerance, seed, d);
}

bool hir_same_answer_of_stages(const hir_module *before, const hir_module *const *stages, size_t n,
                               double tolerance, uint64_t seed, hd_diags *d) {
    const side after = {.m = stages[n - 1], .stages = stages, .n_stages = n};
    return same_answer(before, after, tolerance, seed, d);
}
