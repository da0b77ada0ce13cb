/* The work and memory of the ops of a graph, for cutting it into pipeline stages.
 *
 * The call is a prompt of STAGE_PROMPT tokens in chunks of STAGE_CHUNK, of which the last token's
 * logits are wanted. The work consists of the operations of contractions, attention and
 * recurrences, the weights that each chunk reads (of experts, the share that its tokens are
 * expected to select), and rows: between two contractions there is a row program, which reads once
 * what is computed elsewhere and writes what is read elsewhere. A byte costs as many operations as
 * are done in the time that it takes to read it.
 *
 * Caches are left out, since a chunk reads far fewer bytes of them than it computes with them. */
#include <string.h>

#include "ir/kernel/kernels.h"
#include "passes/shard/stage_cuts.h"

enum { CHUNKS = STAGE_PROMPT / STAGE_CHUNK };

typedef struct counter {
    hir_pass_context *c;
    const hir_module *m;
    const hir_id *program;
    uint32_t n;
    const bool *free;  /* by op */
    stage_cost *cost;  /* by number */
    bool at_end;       /* as in the last range; other ranges send the rows of all tokens */
    bool *last;        /* by number: done only for the last token of the prompt */
    hir_dtype *dtype;  /* by weight, plus 1: its storage type; 0: not known yet */
    uint32_t *made_of; /* by value, plus 1: a weight that the expression reads; 0: none */
    bool *state_seen;  /* by state */
    /* By value of the rows of a call: the stretch of the program that makes it, and the last
     * stretch that reads it; 0: none. A contraction is a stretch of its own. */
    uint32_t *made_in, *read_in, *made_at;
} counter;

static bool is_contracted(const hir_module *m, hir_id op) {
    const hir_op_work w = hir_work_of(m, op);
    return w.row_flops || w.pair_flops;
}

static uint64_t row_elements(hir_type t) {
    const int64_t n = hir_type_row_elements(t);
    return n < 0 ? UINT64_MAX : (uint64_t)n;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Walks backwards: only the last row of what is read for the first output alone is wanted. */
static void find_last(counter *k) {
    bool *all = hd_new_array(k->c->scratch, bool, k->m->values.n);
    bool first = hir_is_model(k->m);
    const hir_id losses = hir_loss_output(k->m);
    for (uint32_t i = 0; i < k->n; i++) { /* the first output of a model has its logits */
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        if (o->code != HIR_OUTPUT_OP || k->program[i] == losses) continue;
        if (!first && o->args[0].kind == HIR_REF_VALUE) all[o->args[0].index] = true;
        first = false;
    }
    for (uint32_t i = k->n; i-- > 0;) {
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        if (o->code == HIR_OUTPUT_OP) continue;
        k->last[i] = !hir_has_trait(o->code, HIR_EFFECT | HIR_COMM);
        for (uint32_t r = 0; r < o->n_results; r++)
            if (all[o->results[r]]) k->last[i] = false;
        for (uint32_t j = 0; j < o->n_args && !k->last[i]; j++)
            if (o->args[j].kind == HIR_REF_VALUE) all[o->args[j].index] = true;
    }
}

static uint64_t rows_of(const counter *k, uint32_t i) {
    return k->last[i] ? 1 : STAGE_PROMPT;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The number of positions that the rows attend to, each as far as a window reaches; 0: all before
 * it. */
static uint64_t positions_seen(const counter *k, uint32_t i) {
    const hir_op *o = hir_op_at(k->m, k->program[i]);
    const int64_t given =
        o->code == HIR_ATTENTION_SELECTED_OP ? 0 : hir_attr_int(o, HIR_A_WINDOW, 0);
    const uint64_t window = given > 0 && given < STAGE_PROMPT ? (uint64_t)given : STAGE_PROMPT;
    return k->last[i] ? window : window * (window + 1) / 2 + (STAGE_PROMPT - window) * window;
}

/* A matrix times the rows of a cache, for each position in each chunk. */
static uint64_t work_on_cache(const counter *k, uint32_t i) {
    const hir_id op = k->program[i];
    const hir_opcode code = hir_op_at(k->m, op)->code;
    if (code != HIR_LINEAR_OP && code != HIR_BLOCK_LINEAR_OP) return 0;
    const hir_type x = hir_arg_type(k->m, op, 0), w = hir_arg_type(k->m, op, 1);
    if (!hir_type_has_c(x)) return 0;
    const uint64_t each = code == HIR_LINEAR_OP ? hd_capped_mul((uint64_t)w.dim[0], row_elements(x))
                                                : row_elements(w);
    const uint64_t positions = k->last[i] ? STAGE_PROMPT : STAGE_PROMPT * (CHUNKS + 1) / 2;
    return hd_capped_mul(2 * each, positions / (uint64_t)hir_rate(x.dim[0]));
}

static uint64_t operations(const counter *k, uint32_t i) {
    const hir_op_work w = hir_work_of(k->m, k->program[i]);
    const uint64_t rows = hd_capped_mul(w.row_flops, rows_of(k, i));
    const uint64_t pairs = hd_capped_mul(w.pair_flops, positions_seen(k, i));
    return hd_capped_add(hd_capped_add(rows, pairs), work_on_cache(k, i));
}

/* ---- weights --------------------------------------------------------------------------------- */

/* The type that the options request for a matrix: by the last rule that matches it, else the type
 * for all. */
static hir_dtype asked_dtype(const hir_compile_options *o, const hir_weight *w) {
    for (size_t i = o->n_weight_rules; i-- > 0;) {
        const hir_weight_rule *rule = &o->weight_rules[i];
        if (!rule->of_transposed && hir_rule_matches(rule, w->name)) return rule->dtype;
    }
    return o->matrix_dtype;
}

/* A weight, or an expression of weights that every stage computes when weights are packed. */
typedef struct matrix {
    uint32_t weight; /* the weight that it is or is computed from; HIR_NONE: the operand is
                      * something else */
    hir_type type;
} matrix;

static matrix matrix_of(const counter *k, hir_ref r) {
    if (r.kind == HIR_REF_WEIGHT) return (matrix){r.index, k->m->weights.at[r.index].type};
    if (r.kind == HIR_REF_VALUE && k->made_of[r.index] > 0)
        return (matrix){k->made_of[r.index] - 1, hir_ref_type(k->m, r)};
    return (matrix){.weight = HIR_NONE};
}

/* Finds results of ops that every stage does and that read weights alone. */
static void find_expressions(counter *k) {
    for (uint32_t i = 0; i < k->n; i++) {
        const hir_op *o = hir_op_at(k->m, k->program[i]);
        for (uint32_t j = 0; j < o->n_args && k->free[k->program[i]]; j++) {
            const matrix x = matrix_of(k, o->args[j]);
            for (uint32_t r = 0; r < o->n_results && x.weight != HIR_NONE; r++)
                k->made_of[o->results[r]] = x.weight + 1;
        }
    }
}

static hir_dtype dtype_of(const counter *k, uint32_t weight) {
    if (!k->dtype[weight])
        k->dtype[weight] = 1 + asked_dtype(k->c->options, &k->m->weights.at[weight]);
    return k->dtype[weight] - 1;
}

/* Bytes of the matrix in the type that the options request; what a row program reads is small, and
 * f32. */
static uint64_t stored_bytes(const counter *k, matrix x) {
    const hir_dtype dtype = dtype_of(k, x.weight);
    hir_weight w = {.type = x.type};
    if (w.type.rank >= 2 && (hir_has_matrices(w.type) || !hir_is_quantised(dtype)))
        w.type.dtype = dtype;
    if (hir_is_quantised(w.type.dtype)) w.layout = HIR_LAYOUT_PANEL;
    uint64_t bytes;
    return hir_weight_bytes(&w, &bytes) ? bytes : UINT64_MAX;
}

/* Of `bytes` of experts, those that some of the rows have selected, if all are equally likely: all
 * but (1 - chosen / experts) ^ rows, in parts of 2^32. */
static uint64_t chosen_bytes(uint64_t bytes, uint64_t experts, uint64_t chosen, uint64_t rows) {
    if (experts == 0 || chosen >= experts) return bytes;
    const uint64_t one = (uint64_t)1 << 32;
    uint64_t base = (experts - chosen) * one / experts, untouched = one - 1;
    for (uint64_t left = rows; left > 0; left /= 2) {
        if (left % 2) untouched = (untouched * base) >> 32;
        base = (base * base) >> 32;
    }
    return bytes - (bytes >> 16) * (untouched >> 16);
}

/* The bytes that all chunks read of a matrix that is operand j. */
static uint64_t bytes_read(const counter *k, uint32_t i, uint32_t j, matrix x) {
    const hir_op *o = hir_op_at(k->m, k->program[i]);
    const uint64_t bytes = stored_bytes(k, x), passes = k->last[i] ? 1 : CHUNKS;
    const uint64_t dim = x.type.rank && x.type.dim[0] > 0 ? (uint64_t)x.type.dim[0] : 1;
    if (o->code == HIR_GATHER_OP && j == 0) return hd_capped_mul(bytes / dim, rows_of(k, i));
    if (o->code != HIR_EXPERT_LINEAR_OP || j != 1) return hd_capped_mul(bytes, passes);
    const hir_type ids = hir_arg_type(k->m, k->program[i], 2);
    const uint64_t rows = k->last[i] ? 1 : STAGE_CHUNK;
    return hd_capped_mul(chosen_bytes(bytes, dim, (uint64_t)ids.dim[ids.rank - 1], rows), passes);
}

/* ---- states ---------------------------------------------------------------------------------- */

static uint64_t state_bytes(const hir_state *s) {
    const bool grows = hir_shape_of_state(s).rows == 0;
    return hd_capped_mul(hir_state_bytes(s), grows ? STAGE_PROMPT : 1);
}

/* ---- an op ----------------------------------------------------------------------------------- */

static void charge(uint64_t *sum, uint64_t bytes) {
    *sum = hd_capped_add(*sum, hd_capped_mul(bytes, STAGE_OPERATIONS_PER_BYTE));
}

static uint64_t *work_of(counter *k, uint32_t i) {
    return k->at_end ? &k->cost[i].at_end : &k->cost[i].work;
}

/* Charges a row that is made in another stretch: it is read here, and written by the op that makes
 * it. */
static void charge_row(counter *k, uint32_t i, uint32_t value, uint32_t stretch) {
    const hir_type t = hir_value_at(k->m, value)->type;
    const uint32_t made = k->made_in[value];
    if (!made || made == stretch || k->read_in[value] == stretch) return;
    const uint64_t row = hd_capped_mul(row_elements(t), hir_dtype_bytes(t.dtype));
    const uint64_t bytes = hd_capped_mul(row, rows_of(k, i));
    if (!k->read_in[value]) charge(work_of(k, k->made_at[value]), bytes);
    k->read_in[value] = stretch;
    charge(work_of(k, i), bytes);
}

static void charge_operand(counter *k, uint32_t i, uint32_t j, uint32_t stretch) {
    const hir_op *o = hir_op_at(k->m, k->program[i]);
    const hir_ref r = o->args[j];
    stage_cost *cost = &k->cost[i];
    if (r.kind == HIR_REF_VALUE && hir_type_has_t(hir_ref_type(k->m, r)))
        charge_row(k, i, r.index, stretch);
    const matrix x = matrix_of(k, r);
    if (x.weight != HIR_NONE) {
        charge(work_of(k, i), bytes_read(k, i, j, x));
        if (!k->at_end) cost->held = hd_capped_add(cost->held, stored_bytes(k, x));
        cost->layer |= o->code != HIR_GATHER_OP || j > 0;
    }
    if (r.kind == HIR_REF_STATE && !k->state_seen[r.index]) {
        k->state_seen[r.index] = true;
        cost->held = hd_capped_add(cost->held, state_bytes(&k->m->states.at[r.index]));
    }
}

static void charge_op(counter *k, uint32_t i, uint32_t stretch) {
    const hir_op *o = hir_op_at(k->m, k->program[i]);
    uint64_t *work = work_of(k, i);
    *work = hd_capped_add(*work, operations(k, i));
    for (uint32_t j = 0; j < o->n_args; j++)
        charge_operand(k, i, j, stretch);
    for (uint32_t r = 0; r < o->n_results; r++) {
        k->made_in[o->results[r]] = stretch;
        k->made_at[o->results[r]] = i;
    }
}

static void charge_program(counter *k) {
    hd_arena *a = k->c->scratch;
    const size_t values = k->m->values.n;
    k->made_in = hd_new_array(a, uint32_t, values);
    k->read_in = hd_new_array(a, uint32_t, values);
    k->made_at = hd_new_array(a, uint32_t, values);
    uint32_t stretch = 1;
    for (uint32_t i = 0; i < k->n; i++) {
        const hir_opcode code = hir_op_at(k->m, k->program[i])->code;
        if (code == HIR_OUTPUT_OP || k->free[k->program[i]])
            continue;                          /* results are written where they belong */
        if (hir_takes_targets(code)) continue; /* a model with a loss is cut as without one */
        const bool contracted = is_contracted(k->m, k->program[i]);
        stretch += contracted;
        k->cost[i].contracted = contracted;
        charge_op(k, i, stretch);
        stretch += contracted;
    }
}

stage_cost *stage_costs(hir_pass_context *c, const hir_id *program, uint32_t n, const bool *free) {
    hd_arena *a = c->scratch;
    counter k = {.c = c, .m = c->m, .program = program, .n = n, .free = free};
    k.cost = hd_new_array(a, stage_cost, n);
    k.last = hd_new_array(a, bool, n);
    k.dtype = hd_new_array(a, hir_dtype, c->m->weights.n);
    k.made_of = hd_new_array(a, uint32_t, c->m->values.n);
    k.state_seen = hd_new_array(a, bool, c->m->states.n);
    find_expressions(&k);
    charge_program(&k);
    k.at_end = true;
    find_last(&k);
    charge_program(&k);
    return k.cost;
}
