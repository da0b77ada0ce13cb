/* Unrolling along linear paths. The plan (the ops on a path, and the operands through which it
 * runs) is made once; a push runs these ops on one token's rows.
 */
#include "ir/eval/unroll.h"

#include <math.h>
#include <string.h>

#include "ir/eval/private.h"

typedef struct step { /* an op on a path */
    hir_id op;
    uint32_t carriers; /* bit i: the path runs through operand i */
} step;

struct hir_unroll {
    hd_arena *arena, *values; /* of the plan; of the evaluated call */
    hd_diags *d;
    const hir_module *m;
    const hir_id *sources, *targets;
    size_t n_sources, n_targets;
    bool *is_source, *carries, *on_path; /* by value */
    HD_VEC(step) steps;                  /* in program order */

    hir_eval *eval;
    int64_t tokens;
    hir_array *known;  /* by value: of the call */
    hir_array *pushed; /* by value: of the push; `at` NULL: 0 */
    double **buffer;   /* by value on a path */
    const double *zeros;
    int64_t most; /* elements of the widest row */
};

/* ---- operands on a path ------------------------------------------------------------- */

static bool carries(const hir_unroll *u, hir_ref r) {
    return r.kind == HIR_REF_VALUE && u->carries[r.index];
}

static int64_t elements(const hir_unroll *u, hir_ref r) {
    return hir_type_row_elements(hir_ref_type(u->m, r));
}

/* If both factors depend on sources the path runs through the wider one. 3: they are of one
 * width. */
static uint32_t product_carriers(const hir_unroll *u, const hir_op *o) {
    const bool a = carries(u, o->args[0]), b = carries(u, o->args[1]);
    if (!a || !b) return a ? 1 : b ? 2 : 0;
    const int64_t n = elements(u, o->args[0]), k = elements(u, o->args[1]);
    return n > k ? 1 : n < k ? 2 : 3;
}

/* As bits, the operands that depend on sources and in which the op is linear. Stack and concat,
 * which have any number of operands, give bit 0 for all of them. */
static uint32_t carriers_of(const hir_unroll *u, const hir_op *o) {
    switch (o->code) {
    case HIR_ADD_OP:
    case HIR_SUB_OP: return (carries(u, o->args[0]) ? 1u : 0) | (carries(u, o->args[1]) ? 2u : 0);
    case HIR_MUL_OP: return product_carriers(u, o);
    case HIR_STACK_OP:
    case HIR_CONCAT_OP:
        for (uint32_t i = 0; i < o->n_args; i++)
            if (carries(u, o->args[i])) return 1;
        return 0;
    case HIR_NEG_OP:
    case HIR_DIV_OP:
    case HIR_REDUCE_SUM_OP:
    case HIR_REDUCE_MEAN_OP:
    case HIR_RESHAPE_OP:
    case HIR_TRANSPOSE_OP:
    case HIR_BROADCAST_OP:
    case HIR_SLICE_OP:
    case HIR_LINEAR_OP:
    case HIR_ROPE_OP:
    case HIR_RMSNORM_OP:
    case HIR_LAYERNORM_OP: return carries(u, o->args[0]) ? 1 : 0;
    default: return 0;
    }
}

static bool is_carrier(const hir_op *o, uint32_t carriers, uint32_t i) {
    if (o->code == HIR_STACK_OP || o->code == HIR_CONCAT_OP) return true;
    return i < 2 && (carriers >> i & 1);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static void spread_forward(hir_unroll *u) {
    for (size_t i = 0; i < u->n_sources; i++)
        u->carries[u->sources[i]] = u->is_source[u->sources[i]] = true;
    HIR_EACH(u->m, op, u->m->first) {
        const hir_op *o = hir_op_at(u->m, op);
        if (o->n_results == 1 && carriers_of(u, o)) u->carries[o->results[0]] = true;
    }
}

static bool reject_product(hir_unroll *u, hir_id op) {
    hd_diag *e = hd_err(u->d, HD_E_UNSUPPORTED, hir_place_of(u->m, op),
                        "there is a product of two values of the stream between sublayers");
    e->cause = "both are as wide, so neither is a weight of the other: no matrix of numbers says "
               "how much of each arrives";
    return false;
}

/* Walks back from the targets; a path ends at a source, so a target that is a source has no
 * path. */
static bool walk_back(hir_unroll *u) {
    bool *needed = hd_new_array(u->arena, bool, u->m->values.n);
    for (size_t i = 0; i < u->n_targets; i++)
        needed[u->targets[i]] = true;
    for (hir_id op = u->m->last; op != HIR_NONE; op = hir_op_at(u->m, op)->prev) {
        const hir_op *o = hir_op_at(u->m, op);
        if (o->n_results != 1 || !needed[o->results[0]] || u->is_source[o->results[0]]) continue;
        const uint32_t carriers = carriers_of(u, o);
        if (!carriers) continue;
        if (o->code == HIR_MUL_OP && carriers == 3) return reject_product(u, op);
        for (uint32_t i = 0; i < o->n_args; i++)
            if (is_carrier(o, carriers, i) && carries(u, o->args[i]))
                needed[o->args[i].index] = u->on_path[o->args[i].index] = true;
        hd_push(u->arena, &u->steps, ((step){op, carriers}));
    }
    for (size_t i = 0, n = u->steps.n; i < n / 2; i++) { /* reverse into program order */
        step first = u->steps.at[i];
        u->steps.at[i] = u->steps.at[n - 1 - i];
        u->steps.at[n - 1 - i] = first;
    }
    return true;
}

static void free_values(void *u) {
    hd_arena_free(((hir_unroll *)u)->values);
}

hir_unroll *hir_unroll_new(hd_arena *a, hd_diags *d, const hir_module *m, const hir_id *sources,
                           size_t n_sources, const hir_id *targets, size_t n_targets) {
    const size_t n = m->values.n;
    hir_unroll *u = hd_new(a, hir_unroll);
    *u = (hir_unroll){.arena = a, .d = d, .m = m, .sources = sources, .targets = targets};
    u->n_sources = n_sources;
    u->n_targets = n_targets;
    u->is_source = hd_new_array(a, bool, n);
    u->carries = hd_new_array(a, bool, n);
    u->on_path = hd_new_array(a, bool, n);
    hd_arena_defer(a, free_values, u);
    spread_forward(u);
    return walk_back(u) ? u : NULL;
}

bool hir_unroll_passes(const hir_unroll *u, hir_id v) {
    return u->on_path[v];
}

/* ---- the call -------------------------------------------------------------------------------- */

static void remember(void *context, const hir_module *m, hir_id op, hir_id value,
                     const hir_array *a) {
    (void)m, (void)op;
    ((hir_unroll *)context)->known[value] = *a;
}

/* Row t of a value, with T = 1 in its type; the whole value if it has no T. */
static hir_array row_of(const hir_unroll *u, hir_id v, int64_t t) {
    hir_array x = u->known[v];
    if (!hir_type_has_t(hir_value_at(u->m, v)->type)) return x;
    x.n /= u->tokens;
    x.type.dim[0] = 1;
    if (x.at) x.at += t * x.n;
    return x;
}

static void allocate_buffers(hir_unroll *u) {
    for (size_t k = 0; k < u->steps.n; k++) {
        const hir_op *o = hir_op_at(u->m, u->steps.at[k].op);
        const hir_array y = row_of(u, o->results[0], 0);
        if (o->code != HIR_RESHAPE_OP)
            u->buffer[o->results[0]] = hd_new_array(u->arena, double, (size_t)y.n);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const int64_t n = row_of(u, o->args[i].index, 0).n;
            if (n > u->most) u->most = n;
        }
    }
    u->zeros = hd_new_array(u->arena, double, (size_t)u->most);
}

bool hir_unroll_evaluate(hir_unroll *u, hir_weight_source source, void *context, int64_t tokens,
                         const double *ids) {
    const size_t n = u->m->values.n;
    u->tokens = tokens;
    u->known = hd_new_array(u->arena, hir_array, n);
    u->pushed = hd_new_array(u->arena, hir_array, n);
    u->buffer = hd_new_array(u->arena, double *, n);
    u->eval = hir_eval_new(u->arena, u->m, source, context);
    u->values = hd_arena_new();
    jmp_buf here;
    if (u->values) hd_arena_guard(u->values, &here);
    if (!u->values || setjmp(here)) {
        hd_err(u->d, HD_E_MEMORY, HD_NOWHERE, "no memory for a call of the evaluator")->hint =
            "give fewer tokens";
        return false;
    }
    hir_results results;
    if (!hir_eval_call(u->eval, u->values, u->d, tokens, (const double *const[]){ids}, &results,
                       remember, u))
        return false;
    hd_arena_guard(u->values, NULL);
    allocate_buffers(u);
    return true;
}

const double *hir_unroll_row(const hir_unroll *u, hir_id v, int64_t t, int64_t *n) {
    const hir_array row = row_of(u, v, t);
    *n = row.n;
    return row.at;
}

/* ---- a push ---------------------------------------------------------------------------------- */

/* (x - mean) gain / norm, with the norm of the evaluated call; for constants, the bias of a
 * layernorm too. */
static void push_norm(const hir_op *o, const hir_array *was, const hir_array *x,
                      const hir_array *gain, const hir_array *bias, double *y) {
    const bool centred = o->code == HIR_LAYERNORM_OP;
    const int64_t d = was->type.dim[was->type.rank - 1];
    for (int64_t r = 0; r < was->n; r += d) {
        double mean = 0, mean_was = 0, square = 0;
        for (int64_t i = 0; centred && i < d; i++) {
            mean += x->at[r + i] / (double)d;
            mean_was += was->at[r + i] / (double)d;
        }
        for (int64_t i = 0; i < d; i++)
            square += (was->at[r + i] - mean_was) * (was->at[r + i] - mean_was);
        const double factor = 1 / sqrt(square / (double)d + hir_attr_float(o, HIR_A_EPS, 0));
        for (int64_t i = 0; i < d; i++) {
            y[r + i] = (x->at[r + i] - mean) * factor * (gain ? gain->at[i] : 1);
            if (bias) y[r + i] += bias->at[i];
        }
    }
}

typedef struct operands {
    hir_array *value;          /* operands in this push */
    const hir_array **address; /* the same, NULL: absent */
    bool any;                  /* some operand is not 0 */
} operands;

/* A weight, or a value of the evaluated call. False: a diagnostic was added. */
static bool known_operand(eval_call *c, const hir_unroll *u, hir_ref r, int64_t t, hir_array *out) {
    if (r.kind == HIR_REF_WEIGHT) return eval_weight_array(c, r.index, out);
    *out = row_of(u, r.index, t);
    return true;
}

/* Is operand i added to the path? One that depends on no source is 0 in a push, or itself in a push
 * of constants. */
static bool is_term(const hir_op *o, uint32_t i) {
    const bool sum = o->code == HIR_ADD_OP || o->code == HIR_SUB_OP || o->code == HIR_STACK_OP ||
                     o->code == HIR_CONCAT_OP;
    return sum || (o->code == HIR_LINEAR_OP && i == 2) || (o->code == HIR_LAYERNORM_OP && i == 2);
}

static bool collect(hir_unroll *u, eval_call *c, const step *s, int64_t t, bool constants,
                    operands *x) {
    const hir_op *o = hir_op_at(u->m, s->op);
    for (uint32_t i = 0; i < o->n_args; i++) {
        hir_array *value = &x->value[i];
        const hir_ref r = o->args[i];
        x->address[i] = r.kind == HIR_REF_NONE ? NULL : value;
        if (r.kind == HIR_REF_NONE) continue;
        if (!known_operand(c, u, r, t, value)) return false;
        const bool carrier = is_carrier(o, s->carriers, i) && carries(u, r);
        if (carrier) {
            value->at = u->pushed[r.index].at;
            x->any |= value->at != NULL;
            if (!value->at) value->at = (double *)u->zeros;
        } else if (is_term(o, i)) {
            x->any |= constants;
            const bool optional = o->code == HIR_LINEAR_OP || o->code == HIR_LAYERNORM_OP;
            if (!constants && optional) x->address[i] = NULL;
            if (!constants && !optional) value->at = (double *)u->zeros;
        }
    }
    return true;
}

static bool run_step(hir_unroll *u, eval_call *c, const step *s, int64_t t, bool constants) {
    const hir_op *o = hir_op_at(u->m, s->op);
    operands x = {hd_new_array(c->scratch, hir_array, o->n_args),
                  hd_new_array(c->scratch, const hir_array *, o->n_args), false};
    if (!collect(u, c, s, t, constants, &x)) return false;
    hir_array *y = &u->pushed[o->results[0]];
    y->at = NULL;
    if (!x.any) return true;
    *y = row_of(u, o->results[0], t);
    y->at = u->buffer[o->results[0]];
    if (y->at) memset(y->at, 0, (size_t)y->n * sizeof *y->at);
    if (o->code == HIR_RMSNORM_OP || o->code == HIR_LAYERNORM_OP) {
        const hir_array was = row_of(u, o->args[0].index, t);
        push_norm(o, &was, &x.value[0], o->n_args > 1 ? x.address[1] : NULL,
                  o->n_args > 2 ? x.address[2] : NULL, y->at);
        return true;
    }
    return eval_rule_of(o->code)(c, o, x.address, y);
}

bool hir_unroll_push(hir_unroll *u, int64_t t, ptrdiff_t source, const double *row) {
    for (size_t i = 0; i < u->n_sources; i++)
        u->pushed[u->sources[i]].at = (ptrdiff_t)i == source ? (double *)row : NULL;
    hd_arena *scratch = hd_arena_new();
    jmp_buf here;
    if (scratch) hd_arena_guard(scratch, &here);
    if (!scratch || setjmp(here)) {
        hd_arena_free(scratch);
        hd_err(u->d, HD_E_MEMORY, HD_NOWHERE, "no memory to unroll the model");
        return false;
    }
    eval_call c = {
        .e = u->eval, .m = u->m, .scratch = scratch, .d = u->d, .T = 1, .C = 1, .values = u->known};
    bool ok = true;
    for (size_t k = 0; ok && k < u->steps.n; k++)
        ok = run_step(u, &c, &u->steps.at[k], t, source == HIR_UNROLL_CONSTANT);
    hd_arena_free(scratch);
    return ok;
}

const double *hir_unroll_pushed(const hir_unroll *u, size_t target) {
    return u->pushed[u->targets[target]].at;
}
