/* From data flow to memory accesses in the backward half: which values of the residual mechanism
 * and which of their gradients each kernel (or op) reads and writes, and for which phase
 * (backward_phases.def). The phase follows from what a value is: the gradient of a sublayer's
 * input, of a source, a source itself. */
#include "passes/analysis/backward_ledger.h"

#include "passes/analysis/kernel_reads.h"
#include "passes/util.h"

static const struct {
    const char *name;
    bool counted;
} phases[HIR_BACK_PHASE_COUNT] = {
#define L(id, name, counted, meaning) {name, counted},
#include "passes/analysis/backward_phases.def"
#undef L
};

const char *hir_back_phase_name(hir_back_phase p) {
    return phases[p].name;
}

bool hir_back_phase_is_charged(hir_back_phase p) {
    return p != HIR_BACK_PHASE_OWN;
}

bool hir_back_phase_is_counted(hir_back_phase p) {
    return phases[p].counted;
}

typedef enum purpose { /* of a read or a write: a bit for each */
                       FOR_GRADIENTS = 1,
                       FOR_GAINS = 2,   /* sums over tokens */
                       FOR_WEIGHTS = 4, /* others */
} purpose;

typedef struct clerk {
    hir_back_ledger *l;
    const hir_backward *b;
    const hir_flow *flow;
    const hir_module *m;
    hd_arena *arena;
    bool *carried; /* by value: a mix that goes on past a sublayer */
    bool streams;  /* there are such mixes */
    hir_kernel_reads reads;
    uint32_t *stamp;     /* by value: 1 + the last kernel whose forward half reads it */
    bool *made_of_entry; /* by value of a body: an entry that its kernel does not store, or as wide
                          * and made of one */
    bool *kept;          /* by value: it is in l->kept */
    bool *goes_forward;  /* by op, of kernels: some op in it is of the forward half */
} clerk;

static hir_id origin(const clerk *c, hir_id v) {
    return c->flow->origin[v];
}

static uint64_t row_elements(const clerk *c, hir_id v) {
    return (uint64_t)pass_elements(hir_value_at(c->m, v)->type);
}

static uint64_t row_bytes(const clerk *c, hir_id v, uint64_t elements) {
    return hd_capped_mul(elements, hir_dtype_bytes(hir_value_at(c->m, v)->type.dtype));
}

/* A value of the mechanism, in either half. */
static bool is_mine(const clerk *c, hir_id v) {
    const hir_id x = origin(c, v);
    const hir_type t = hir_value_at(c->m, v)->type;
    if (t.dtype == HIR_I32 || !(hir_type_has_t(t) || hir_type_has_c(t))) return false;
    return c->b->forward[x] ? c->flow->kind[x] != HIR_FLOW_NONE && c->flow->member[x]
                            : c->b->kind[x] != HIR_BACK_NONE;
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* The sublayers whose inputs' gradients an op or a kernel has: none (0), one, or HIR_FLOW_MANY. The
 * output counts where there is no other. */
static uint32_t with_home(const clerk *c, uint32_t home, hir_id v) {
    const hir_id x = origin(c, v);
    const hir_back_kind kind = c->b->kind[x];
    if (kind != HIR_BACK_ENTRY && kind != HIR_BACK_INPUT) return home;
    const uint32_t of = c->b->home[x];
    if (!of || home == of || (home && of == HIR_FLOW_RESULT)) return home;
    return home && home != HIR_FLOW_RESULT ? HIR_FLOW_MANY : of;
}

static hir_back_phase phase_in_forward(const clerk *c, hir_id x) {
    if (c->b->normed[x]) return HIR_BACK_PHASE_NORM;
    if (c->flow->kind[x] == HIR_FLOW_NUMBERS) return HIR_BACK_PHASE_COEFFICIENTS;
    return c->carried[x] ? HIR_BACK_PHASE_STREAMS : HIR_BACK_PHASE_SOURCES;
}

static hir_back_phase phase_of_value(const clerk *c, hir_id v) {
    const hir_id x = origin(c, v);
    if (c->b->forward[x]) return phase_in_forward(c, x);
    const bool wide = row_elements(c, x) > c->flow->width;
    switch (c->b->kind[x]) {
    case HIR_BACK_NONE: break;
    case HIR_BACK_ENTRY:
    case HIR_BACK_INPUT: return HIR_BACK_PHASE_INPUTS;
    case HIR_BACK_ROW: return wide && c->streams ? HIR_BACK_PHASE_STREAMS : HIR_BACK_PHASE_SUMS;
    case HIR_BACK_NUMBERS:
        return c->b->normed[x] ? HIR_BACK_PHASE_NORM : HIR_BACK_PHASE_COEFFICIENTS;
    case HIR_BACK_AGAIN:
        if (c->b->normed[x]) return HIR_BACK_PHASE_NORM;
        return row_elements(c, x) < c->flow->width ? HIR_BACK_PHASE_COEFFICIENTS
                                                   : HIR_BACK_PHASE_SOURCES;
    }
    return HIR_BACK_PHASE_SUMS;
}

/* `home`: of the op or kernel that reads or writes. */
static hir_back_phase phase_of(const clerk *c, hir_id v, unsigned purposes, uint32_t home) {
    if (!(purposes & FOR_GRADIENTS))
        return purposes & FOR_WEIGHTS ? HIR_BACK_PHASE_WEIGHTS : HIR_BACK_PHASE_GAINS;
    if (home == HIR_FLOW_RESULT) return HIR_BACK_PHASE_OUTPUT;
    const hir_back_phase p = phase_of_value(c, v);
    const bool once =
        p == HIR_BACK_PHASE_INPUTS || p == HIR_BACK_PHASE_SOURCES || p == HIR_BACK_PHASE_SUMS;
    return once && home == HIR_FLOW_MANY ? HIR_BACK_PHASE_BLOCKS : p;
}

/* What an op is for, or one that makes a value. */
static unsigned purpose_of(const clerk *c, const hir_op *o) {
    const hir_back_kind kind = c->b->kind[o->results[0]];
    if (kind == HIR_BACK_NONE) return hir_backward_sums_gain(c->b, o) ? FOR_GAINS : FOR_WEIGHTS;
    if (!c->b->for_weights[o->results[0]]) return FOR_GRADIENTS;
    return kind == HIR_BACK_INPUT ? FOR_GAINS : FOR_WEIGHTS;
}

static unsigned purpose_of_value(const clerk *c, hir_id v) {
    const hir_id op = hir_value_at(c->m, origin(c, v))->op;
    return op == HIR_NONE ? FOR_GRADIENTS : purpose_of(c, hir_op_at(c->m, op));
}

static void add(uint64_t *sum, uint64_t n) {
    if (hd_add_overflow(*sum, n, sum)) *sum = UINT64_MAX;
}

static void enter(clerk *c, hir_back_access a) {
    hir_back_ledger *l = c->l;
    hd_push(c->arena, &l->accesses, a);
    hir_traffic *const sums[] = {&l->phase[a.phase],
                                 hir_back_phase_is_charged(a.phase) ? &l->total : NULL,
                                 hir_back_phase_is_counted(a.phase) ? &l->counted : NULL};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        if (sums[i]) add(a.write ? &sums[i]->written : &sums[i]->read, a.bytes);
}

/* ---- ops one at a time ----------------------------------------------------------------------- */

/* Ops of a norm move what the norm moves, whatever they read. */
static bool is_of_norm(const clerk *c, hir_id y) {
    const hir_back_kind kind = c->b->kind[y];
    return kind == HIR_BACK_INPUT || (c->b->normed[y] && kind != HIR_BACK_ROW);
}

static void charge_op(clerk *c, hir_id op) {
    const hir_op *o = hir_op_at(c->m, op);
    const hir_id y = o->results[0];
    const bool sums = c->b->kind[y] == HIR_BACK_NONE;
    uint32_t home = sums ? 0 : with_home(c, 0, y);
    for (uint32_t i = 0; i < o->n_args; i++)
        if (o->args[i].kind == HIR_REF_VALUE) home = with_home(c, home, o->args[i].index);
    const unsigned purpose = purpose_of(c, o);
    const bool norm = is_of_norm(c, y) && purpose == FOR_GRADIENTS && home != HIR_FLOW_RESULT;
    hir_back_access a = {.op = op};
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE || !is_mine(c, o->args[i].index)) continue;
        const hir_id v = o->args[i].index, read = o->code == HIR_SLICE_OP ? y : v;
        a.value = v;
        a.phase = norm ? HIR_BACK_PHASE_NORM : phase_of(c, v, purpose, home);
        a.bytes = row_bytes(c, v, row_elements(c, read));
        enter(c, a);
    }
    if (sums) return;
    a.write = true;
    a.value = y;
    a.phase = norm ? HIR_BACK_PHASE_NORM : phase_of(c, y, purpose, home);
    a.bytes = row_bytes(c, y, row_elements(c, y));
    enter(c, a);
}

static void charge_ops(clerk *c) {
    for (size_t k = 0; k < c->b->program.n; k++) {
        const hir_id op = c->b->program.at[k];
        if (hir_backward_has(c->b, hir_op_at(c->m, op))) charge_op(c, op);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void note_reads(clerk *c, hir_id kernel, const hir_op *o) {
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE || !is_mine(c, o->args[i].index)) continue;
        const hir_id outer = hir_outer_value(c->m, kernel, o->args[i].index);
        if (outer != HIR_NONE) hir_note_read(&c->reads, outer, o, purpose_of(c, o));
    }
}

/* What the forward half of a kernel reads is charged there. */
static bool mark_forward_reads(clerk *c, hir_id kernel) {
    bool any = false;
    HIR_EACH(c->m, op, hir_op_at(c->m, kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (o->n_results != 1 || !c->b->forward[o->results[0]]) continue;
        any = true;
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id outer = hir_outer_value(c->m, kernel, o->args[i].index);
            if (outer != HIR_NONE) c->stamp[outer] = kernel + 1;
        }
    }
    return any;
}

static bool is_stored(const clerk *c, const hir_op *kernel, hir_id v) {
    for (uint32_t i = 0; i < kernel->n_results; i++)
        if (origin(c, kernel->results[i]) == v) return true;
    return false;
}

static bool is_made_in(const clerk *c, hir_id kernel, hir_id v) {
    const hir_id op = hir_value_at(c->m, v)->op;
    return op != HIR_NONE && hir_op_at(c->m, op)->parent == kernel;
}

/* The entry that an operand is, if the kernel makes it and does not store it; else HIR_NONE. */
static hir_id passing_entry(const clerk *c, hir_id kernel, hir_ref operand) {
    if (operand.kind != HIR_REF_VALUE) return HIR_NONE;
    const hir_id x = origin(c, operand.index);
    const bool passes = c->b->kind[x] == HIR_BACK_ENTRY && is_made_in(c, kernel, x);
    return passes && !is_stored(c, hir_op_at(c->m, kernel), x) ? x : HIR_NONE;
}

/* Marks what a kernel makes of entries that it does not store, as long as it is as wide. Returns
 * the number of these entries: each has one of those written in its place. */
static uint32_t mark_made_of_entries(clerk *c, hir_id kernel) {
    uint32_t n = 0;
    HIR_EACH(c->m, op, hir_op_at(c->m, kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (!hir_backward_has(c->b, o) || c->b->kind[o->results[0]] == HIR_BACK_NONE) continue;
        const hir_id y = o->results[0];
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id entry = passing_entry(c, kernel, o->args[i]);
            if (entry != HIR_NONE && !c->made_of_entry[entry]) {
                c->made_of_entry[entry] = true;
                n++;
            }
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id x = origin(c, o->args[i].index);
            const bool of = c->made_of_entry[x] && is_made_in(c, kernel, x);
            if (of && row_elements(c, x) == row_elements(c, y)) c->made_of_entry[y] = true;
        }
    }
    return n;
}

static bool writes_mine(const clerk *c, hir_id v) {
    return !c->b->forward[origin(c, v)] && is_mine(c, v);
}

static void charge_writes(clerk *c, hir_id kernel, uint32_t home) {
    const hir_op *k = hir_op_at(c->m, kernel);
    uint32_t own = mark_made_of_entries(c, kernel);
    for (uint32_t i = 0; i < k->n_results; i++) {
        const hir_id v = k->results[i];
        if (!writes_mine(c, v)) continue;
        const hir_id x = origin(c, v);
        hir_back_access a = {.op = kernel, .value = v, .write = true};
        a.phase = phase_of(c, v, purpose_of_value(c, v), home);
        if (c->b->kind[x] == HIR_BACK_ENTRY || hir_backward_repeats_inside(c->b, x)) {
            a.phase = HIR_BACK_PHASE_OWN;
        } else if (own && c->made_of_entry[x] && !c->b->for_weights[x]) {
            a.phase = HIR_BACK_PHASE_OWN;
            own--;
        }
        a.bytes = row_bytes(c, v, row_elements(c, v));
        enter(c, a);
    }
}

static void charge_kernel(clerk *c, hir_id kernel) {
    const hir_op *k = hir_op_at(c->m, kernel);
    mark_forward_reads(c, kernel);
    hir_forget_reads(&c->reads);
    uint32_t home = 0;
    HIR_EACH(c->m, op, k->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (hir_backward_has(c->b, o)) note_reads(c, kernel, o);
        if (o->n_results == 1) home = with_home(c, home, o->results[0]);
    }
    for (size_t i = 0; i < c->reads.list.n; i++)
        home = with_home(c, home, c->reads.list.at[i].value);
    for (size_t i = 0; i < c->reads.list.n; i++) {
        const hir_kernel_read *r = &c->reads.list.at[i];
        if (c->stamp[r->value] == kernel + 1) continue;
        hir_back_access a = {.op = kernel, .value = r->value};
        a.phase = phase_of(c, r->value, r->bits, home);
        a.bytes = row_bytes(c, r->value, hir_elements_read(&c->reads, r));
        enter(c, a);
    }
    charge_writes(c, kernel, home);
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void keep(clerk *c, hir_id v) {
    const hir_id x = origin(c, v);
    const bool forward = c->b->forward[x];
    if (c->kept[v] || !is_mine(c, v)) return;
    if (!forward && c->b->kind[x] != HIR_BACK_AGAIN) return;
    c->kept[v] = true;
    hir_kept *k = &c->l->kept;
    const hir_flow_kind kind = c->flow->kind[x];
    uint64_t *of = row_elements(c, v) < c->flow->width ? &k->numbers
                   : !forward                          ? &k->again
                   : c->flow->input[x] != HIR_NONE     ? &k->inputs
                   : hir_flow_is_stream(kind)          ? &k->sources
                                                       : &k->mixes;
    add(of, row_bytes(c, v, row_elements(c, v)));
}

/* A kernel without an op of the forward half reads of those with one what was kept for it. */
static void keep_for(clerk *c, hir_id kernel) {
    HIR_EACH(c->m, op, hir_op_at(c->m, kernel)->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id outer = hir_outer_value(c->m, kernel, o->args[i].index);
            const hir_id made = outer == HIR_NONE ? HIR_NONE : hir_value_at(c->m, outer)->op;
            if (made != HIR_NONE && made != kernel && c->goes_forward[made]) keep(c, outer);
        }
    }
}

static void charge_kernels(clerk *c) {
    HIR_EACH(c->m, op, c->m->first) {
        if (!hir_is_kernel(hir_op_at(c->m, op))) continue;
        charge_kernel(c, op);
        c->goes_forward[op] = mark_forward_reads(c, op);
        if (!c->goes_forward[op]) keep_for(c, op);
    }
}

void hir_back_ledger_find(const hir_module *m, const hir_ledger *l, hd_arena *a,
                          hir_back_ledger *out) {
    *out = (hir_back_ledger){0};
    hir_backward_find(m, &l->flow, a, &out->back);
    if (!l->flow.width) return;
    clerk c = {.l = out,
               .b = &out->back,
               .flow = &l->flow,
               .m = m,
               .arena = a,
               .carried = hir_flow_find_carried(&l->flow, a),
               .reads = hir_kernel_reads_new(m, a),
               .stamp = hd_new_array(a, uint32_t, m->values.n + 1),
               .made_of_entry = hd_new_array(a, bool, m->values.n + 1),
               .goes_forward = hd_new_array(a, bool, m->ops.n + 1),
               .kept = hd_new_array(a, bool, m->values.n + 1)};
    for (size_t v = 0; v < m->values.n; v++)
        c.streams |= c.carried[v];
    if (m->stage == HIR_STAGE_KERNEL)
        charge_kernels(&c);
    else
        charge_ops(&c);
}
