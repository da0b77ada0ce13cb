/* From data flow to memory accesses: which values of the residual mechanism each kernel (or op)
 * reads and writes, and for which phase (ledger_phases.def).
 *
 * The phase of a read follows from what the value flows into. Walking backwards through a kernel's
 * body, every value gets the set of kinds of results that it flows into: sums (only along
 * additions), layer inputs, partial mixes, numbers, the program's output. A source that flows into
 * a partial mix is read for phase 1, one that flows into a layer input in which a partial mix is
 * merged is the live source of phase 2 (the one that only this mix reads), and so on:
 * `phase_of_read`.
 */
#include "passes/analysis/ledger.h"

#include "passes/analysis/kernel_reads.h"
#include "passes/util.h"

static const struct {
    const char *name;
    bool charged, paper;
} phases[HIR_PHASE_COUNT] = {
#define L(id, name, charged, paper, meaning) {name, charged, paper},
#include "passes/analysis/ledger_phases.def"
#undef L
};

const char *hir_phase_name(hir_phase p) {
    return phases[p].name;
}

bool hir_phase_is_charged(hir_phase p) {
    return phases[p].charged;
}

bool hir_phase_is_in_paper(hir_phase p) {
    return phases[p].paper;
}

enum reach { /* kinds of results that a value of a body flows into */
             INTO_SUM = 1,
             INTO_INPUT = 2,
             INTO_OUTPUT = 4,
             INTO_PARTIAL = 8,
             INTO_NUMBERS = 16,
             INTO_NORM = 32,   /* a layer input of one source */
             INTO_STREAM = 64, /* a mix that goes on past a sublayer */
};

typedef struct clerk {
    hir_ledger *l;
    const hir_module *m;
    hd_arena *arena;
    uint8_t *reach; /* by value of a body */
    hir_kernel_reads reads;
    bool *goes_on;     /* by value, of origins: a mix that several sublayers read */
    uint32_t *blocks;  /* by sublayer: the block of the first input that it or a later one has */
    bool two_phases;   /* some mix is made in two phases */
    bool *weight_seen; /* by weight */
    uint32_t *output_number; /* by value: the sublayer whose output it is, from 1; 0: none */
    bool *made_of_output;    /* by value of a body */
    bool *embedding_written; /* by value: one of its scaled forms was written */
    bool in_front;           /* true while the prologue of a contraction is walked */
} clerk;

/* ---- kinds of values ------------------------------------------------------------------------- */

static hir_id origin(const clerk *c, hir_id v) {
    return c->l->flow.origin[v];
}

static hir_flow_kind kind_of(const clerk *c, hir_id v) {
    return c->l->flow.kind[origin(c, v)];
}

static bool is_sublayer_output(const clerk *c, hir_id v) {
    return c->output_number[origin(c, v)] != 0;
}

static const hir_flow_input *input_of(const clerk *c, hir_id v) {
    uint32_t i = c->l->flow.input[origin(c, v)];
    return i == HIR_NONE ? NULL : &c->l->flow.inputs.at[i];
}

/* Is it a row of which coefficients alone are made, such as streams that are laid side by side for a
 * contraction? No sublayer reads what is made of it. */
static bool is_for_coefficients(const clerk *c, hir_id v) {
    return kind_of(c, v) == HIR_FLOW_MIX && !c->goes_on[v] && !c->l->flow.readers[v] &&
           c->l->flow.input[v] == HIR_NONE;
}

/* Is v a mix that a later one continues, but for those that go on past a sublayer? */
static bool is_unfinished(const clerk *c, hir_id v) {
    return kind_of(c, v) == HIR_FLOW_MIX && !c->goes_on[v] && !is_for_coefficients(c, v);
}

/* Is v a result of phase 1? In modules in which nothing is mixed in two phases it is none. */
static bool is_partial(const clerk *c, hir_id v) {
    return c->two_phases && is_unfinished(c, origin(c, v));
}

/* Is some mix made in two phases: is a partial mix stored, in a module in which inputs share sources? */
static bool has_two_phases(const clerk *c) {
    const hir_flow *f = &c->l->flow;
    bool partial = false, shares = false;
    HIR_EACH(c->m, op, c->m->first) {
        const hir_op *o = hir_op_at(c->m, op);
        for (uint32_t i = 0; hir_is_kernel(o) && i < o->n_results; i++) {
            const hir_id v = origin(c, o->results[i]);
            partial |= f->input[v] == HIR_NONE && is_unfinished(c, v);
        }
    }
    for (size_t i = 0; i < f->inputs.n; i++)
        shares |= f->inputs.at[i].sublayer != HIR_FLOW_RESULT &&
                  hir_flow_sources(&f->inputs.at[i]) > 1 && f->inputs.at[i].shared > 0;
    return partial && shares;
}

/* The reach of a value that flows into result v of a kernel. */
static unsigned reach_of_result(const clerk *c, hir_id v) {
    hir_flow_kind kind = kind_of(c, v);
    const hir_flow_input *input = input_of(c, v);
    unsigned reach = 0;
    if (input && input->sublayer == HIR_FLOW_RESULT)
        reach = INTO_OUTPUT;
    else if (input)
        reach = hir_flow_sources(input) > 1 ? INTO_INPUT : INTO_NORM;
    if (hir_flow_is_stream(kind)) return reach | INTO_SUM;
    if (reach) return reach;
    if (kind == HIR_FLOW_NUMBERS) return INTO_NUMBERS;
    return kind != HIR_FLOW_MIX ? 0 : is_partial(c, v) ? INTO_PARTIAL : INTO_STREAM;
}

static hir_phase phase_of_write(const clerk *c, hir_id v) {
    const hir_flow_input *input = input_of(c, v);
    hir_flow_kind kind = kind_of(c, v);
    if (kind == HIR_FLOW_EMBEDDING) return HIR_PHASE_OWN;
    if (hir_flow_is_stream(kind)) return HIR_PHASE_ACCUMULATE;
    if (!input && (kind == HIR_FLOW_NUMBERS || is_for_coefficients(c, origin(c, v))))
        return c->two_phases ? HIR_PHASE_PHASE_1 : HIR_PHASE_COEFFICIENTS;
    if (!input) return is_partial(c, v) ? HIR_PHASE_PHASE_1 : HIR_PHASE_STREAMS;
    return input->sublayer == HIR_FLOW_RESULT ? HIR_PHASE_OUTPUT : HIR_PHASE_LAYER_INPUT;
}

/* `merges`: the kernel also reads a partial mix. */
static hir_phase phase_of_read(const clerk *c, const hir_kernel_read *r, bool merges) {
    hir_flow_kind kind = kind_of(c, r->value);
    const hir_phase mixed = merges ? HIR_PHASE_PHASE_2 : HIR_PHASE_MIX;
    const bool numbers = kind == HIR_FLOW_NUMBERS && !(r->bits & (INTO_INPUT | INTO_NORM));
    if (r->bits == INTO_OUTPUT) return HIR_PHASE_OUTPUT;
    if (numbers && !c->two_phases) return HIR_PHASE_COEFFICIENTS;
    if (kind == HIR_FLOW_MIX)
        return is_partial(c, r->value) ? HIR_PHASE_PHASE_2 : HIR_PHASE_STREAMS;
    if (r->bits & INTO_SUM) return HIR_PHASE_ACCUMULATE;
    if (r->bits & INTO_STREAM) return HIR_PHASE_STREAMS;
    if (r->bits & INTO_PARTIAL) return HIR_PHASE_PHASE_1;
    if (r->bits & INTO_INPUT) return mixed;
    if (r->bits & INTO_NORM) return HIR_PHASE_NORM;
    /* only statistics are computed from the value */
    return c->two_phases ? HIR_PHASE_PHASE_1 : HIR_PHASE_COEFFICIENTS;
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Bytes on all ranks together: a row that is divided among the ranks is on one of them, any other
 * row on each of them. */
static uint64_t row_bytes(const clerk *c, hir_id v, uint64_t elements) {
    const hir_type t = hir_value_at(c->m, v)->type;
    const bool on_each = c->m->ranks > 1 && !(t.rank > 0 && hir_is_row_share(t.dim[0]));
    const uint64_t bytes = hd_capped_mul(elements, hir_dtype_bytes(t.dtype));
    return on_each ? hd_capped_mul(bytes, (uint64_t)c->m->ranks) : bytes;
}

static uint64_t row_elements(const clerk *c, hir_id v) {
    return (uint64_t)pass_elements(hir_value_at(c->m, v)->type);
}

static void add(uint64_t *sum, uint64_t n) {
    if (hd_add_overflow(*sum, n, sum)) *sum = UINT64_MAX;
}

static void enter(clerk *c, hir_access a) {
    hir_ledger *l = c->l;
    a.kind = kind_of(c, a.value);
    a.dtype = hir_value_at(c->m, a.value)->type.dtype;
    hd_push(c->arena, &l->accesses, a);
    hir_traffic *t = &l->phase[a.phase];
    add(a.write ? &t->written : &t->read, a.bytes);
    if (phases[a.phase].charged) add(a.write ? &l->total.written : &l->total.read, a.bytes);
    if (phases[a.phase].paper) add(a.write ? &l->paper.written : &l->paper.read, a.bytes);
}

/* Weights that ops of the mechanism read: charged once per call, as all tokens share them. */
static void note_weights(clerk *c, const hir_op *o) {
    if (o->code == HIR_GATHER_OP) return;
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_WEIGHT || c->weight_seen[o->args[i].index]) continue;
        const hir_weight *w = &c->m->weights.at[o->args[i].index];
        c->weight_seen[o->args[i].index] = true;
        uint64_t bytes;
        if (!hir_weight_bytes(w, &bytes)) bytes = UINT64_MAX;
        add(&c->l->fixed_bytes, bytes);
    }
}

static bool belongs(const clerk *c, const hir_op *o) {
    return o->n_results == 1 && o->code != HIR_RESHAPE_OP &&
           kind_of(c, o->results[0]) != HIR_FLOW_NONE && !hir_flow_is_border(&c->l->flow, o);
}

/* ---- ops one at a time ----------------------------------------------------------------------- */

/* The output counts as the sublayer after the last. */
static size_t place_in_order(const hir_flow *f, uint32_t sublayer) {
    return sublayer <= f->outputs.n ? sublayer : f->outputs.n + 1;
}

static void find_blocks(clerk *c) {
    const hir_flow *f = &c->l->flow;
    const size_t n = f->outputs.n + 2;
    c->blocks = hd_new_array(c->arena, uint32_t, n);
    size_t next = 0;
    for (size_t i = 0; i < f->inputs.n; i++)
        for (; next <= place_in_order(f, f->inputs.at[i].sublayer); next++)
            c->blocks[next] = f->inputs.at[i].block;
    for (; next < n; next++)
        c->blocks[next] = f->blocks;
}

static uint32_t block_of(const clerk *c, uint32_t sublayer) {
    return c->blocks[place_in_order(&c->l->flow, sublayer)];
}

static hir_phase phase_of_depth_op(hir_opcode code) {
    bool phase_1 = code == HIR_DEPTH_SCORES_OP || code == HIR_DEPTH_MIX_OP;
    return phase_1                      ? HIR_PHASE_PHASE_1
           : code == HIR_DEPTH_MERGE_OP ? HIR_PHASE_PHASE_2
                                        : HIR_PHASE_MIX;
}

static hir_phase phase_of_op(const clerk *c, const hir_op *o) {
    hir_flow_kind kind = kind_of(c, o->results[0]);
    if (kind == HIR_FLOW_EMBEDDING) return HIR_PHASE_OWN;
    if (hir_flow_is_stream(kind)) return HIR_PHASE_ACCUMULATE;
    const hir_flow_input *input = input_of(c, o->results[0]);
    if (!input) return phase_of_depth_op(o->code);
    return input->sublayer == HIR_FLOW_RESULT ? HIR_PHASE_OUTPUT : HIR_PHASE_LAYER_INPUT;
}

static void charge_op(clerk *c, hir_id op, uint32_t sublayer) {
    const hir_op *o = hir_op_at(c->m, op);
    hir_access a = {.op = op, .phase = phase_of_op(c, o), .sublayer = sublayer};
    a.block = block_of(c, sublayer);
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        hir_id v = o->args[i].index;
        bool again = kind_of(c, v) == HIR_FLOW_NONE;
        for (uint32_t k = 0; k < i; k++)
            again |= o->args[k].kind == HIR_REF_VALUE && o->args[k].index == v;
        if (again) continue;
        hir_id read = o->code == HIR_SLICE_OP ? o->results[0] : v;
        a.value = v;
        a.bytes = row_bytes(c, v, row_elements(c, read));
        enter(c, a);
    }
    a.write = true;
    a.value = o->results[0];
    a.bytes = row_bytes(c, a.value, row_elements(c, a.value));
    enter(c, a);
    note_weights(c, o);
}

/* Finds live ops: passes leave dead ops in the module. */
static bool *live_ops(const clerk *c) {
    const hir_flow *f = &c->l->flow;
    bool *live = hd_new_array(c->arena, bool, f->program.n + 1);
    bool *needed = hd_new_array(c->arena, bool, c->m->values.n);
    for (size_t k = f->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(c->m, f->program.at[k]);
        live[k] = hir_has_trait(o->code, HIR_EFFECT) || (o->n_results && needed[o->results[0]]);
        for (uint32_t i = 0; live[k] && i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_VALUE) needed[origin(c, o->args[i].index)] = true;
    }
    return live;
}

/* Charges ops to the sublayer of the next input in program order. */
static void charge_ops(clerk *c) {
    const hir_flow *f = &c->l->flow;
    uint32_t sublayer = HIR_FLOW_RESULT;
    uint32_t *of_op = hd_new_array(c->arena, uint32_t, f->program.n + 1);
    for (size_t k = f->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(c->m, f->program.at[k]);
        const hir_flow_input *input = o->n_results ? input_of(c, o->results[0]) : NULL;
        if (input) sublayer = input->sublayer;
        of_op[k] = sublayer;
    }
    const bool *live = live_ops(c);
    for (size_t k = 0; k < f->program.n; k++) {
        hir_id op = f->program.at[k];
        const hir_op *o = hir_op_at(c->m, op);
        if (!live[k] || !belongs(c, o) || f->inside[o->results[0]]) continue;
        charge_op(c, op, of_op[k]);
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* Propagates the reach of an op's result to its operands. */
static void spread(clerk *c, hir_id kernel, const hir_op *o) {
    hir_id y = o->results[0];
    bool view = o->code == HIR_RESHAPE_OP;
    bool rows = hir_op_at(c->m, kernel)->code == HIR_KERNEL_ROW_OP;
    bool inside = !rows && !c->in_front && c->l->flow.inside[origin(c, y)];
    if (!view && (!belongs(c, o) || inside)) return;
    unsigned reach = c->reach[y];
    if (!reach) return;
    if (!hir_flow_is_stream(kind_of(c, y))) reach &= ~(unsigned)INTO_SUM;
    if (!reach) reach = INTO_NUMBERS; /* the weight of a summand */
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        hir_id v = o->args[i].index;
        if (kind_of(c, v) == HIR_FLOW_NONE) continue;
        c->reach[v] |= (uint8_t)reach;
        hir_id outer = view ? HIR_NONE : hir_outer_value(c->m, kernel, v);
        if (outer == HIR_NONE) continue;
        hir_note_read(&c->reads, outer, o, reach);
    }
    if (!view) note_weights(c, o);
}

/* Sets the reach of yielded values. A kernel that copies a value yields it, or a view of it,
 * directly. */
static void spread_yield(clerk *c, hir_id kernel, const hir_op *k, const hir_op *yield) {
    for (uint32_t i = 0; i < yield->n_args; i++) {
        if (yield->args[i].kind != HIR_REF_VALUE) continue;
        hir_id v = yield->args[i].index;
        if (kind_of(c, k->results[i]) == HIR_FLOW_NONE) continue;
        unsigned reach = reach_of_result(c, k->results[i]);
        c->reach[v] |= (uint8_t)reach;
        hir_id outer = hir_outer_value(c->m, kernel, v);
        if (outer != HIR_NONE) hir_note_read(&c->reads, outer, NULL, reach);
    }
}

/* Marks the values that a kernel makes of the outputs of sublayers that end in it, as long as they
 * are as wide: sums and mixes with the output in them. Returns how many outputs it does not store
 * as they are; each has one of these written in its place. */
static uint32_t mark_made_of_outputs(clerk *c, const hir_op *kernel) {
    uint32_t n = 0;
    HIR_EACH(c->m, op, kernel->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (o->n_results != 1) continue;
        const hir_id y = o->results[0];
        bool made = is_sublayer_output(c, y);
        n += made && origin(c, y) == y;
        for (uint32_t i = 0; !made && hir_has_trait(o->code, HIR_LOCAL) && i < o->n_args; i++)
            made = o->args[i].kind == HIR_REF_VALUE && c->made_of_output[o->args[i].index] &&
                   row_elements(c, o->args[i].index) == row_elements(c, y);
        c->made_of_output[y] = made;
    }
    for (uint32_t i = 0; n && i < kernel->n_results; i++)
        n -= is_sublayer_output(c, kernel->results[i]);
    return n;
}

static bool is_made_of_output(const clerk *c, const hir_op *kernel, uint32_t result) {
    const hir_ref yielded = hir_op_at(c->m, kernel->body_last)->args[result];
    return yielded.kind == HIR_REF_VALUE && c->made_of_output[yielded.index];
}

/* The first copy that is written of the embedding, scaled or not, is its own write. */
static bool is_first_embedding(const clerk *c, hir_id v) {
    bool *written = &c->embedding_written[c->l->flow.root[origin(c, v)]];
    const bool first = !*written;
    *written = true;
    return first;
}

/* In which order the writes of a kernel are the own ones of its sublayers: outputs, sums, mixes. */
enum { AS_OUTPUT, AS_SUM, AS_MIX, AS_INPUT, ORDERS };

static int order_of_write(const clerk *c, hir_id v) {
    const hir_flow_kind kind = kind_of(c, v);
    if (kind == HIR_FLOW_OUTPUT) return AS_OUTPUT;
    return hir_flow_is_stream(kind) ? AS_SUM : input_of(c, v) ? AS_INPUT : AS_MIX;
}

static void charge_writes(clerk *c, hir_access a) {
    const hir_op *kernel = hir_op_at(c->m, a.op);
    const bool rows = kernel->code == HIR_KERNEL_ROW_OP;
    uint32_t own = rows ? 0 : mark_made_of_outputs(c, kernel);
    a.write = true;
    for (int order = 0; order < ORDERS; order++)
        for (uint32_t i = 0; i < kernel->n_results; i++) {
            a.value = kernel->results[i];
            hir_flow_kind kind = kind_of(c, a.value);
            if (kind == HIR_FLOW_NONE || order_of_write(c, a.value) != order) continue;
            a.phase = phase_of_write(c, a.value);
            if (kind == HIR_FLOW_EMBEDDING) {
                if (!is_first_embedding(c, a.value)) a.phase = HIR_PHASE_ACCUMULATE;
            } else if (!rows && c->l->flow.own[origin(c, a.value)]) {
                a.phase = HIR_PHASE_OWN;
            } else if (own && is_made_of_output(c, kernel, i)) {
                a.phase = HIR_PHASE_OWN_SUM;
                own--;
            }
            a.bytes = row_bytes(c, a.value, row_elements(c, a.value));
            enter(c, a);
        }
}

static void charge_reads(clerk *c, hir_access a) {
    bool merges = false;
    for (size_t i = 0; i < c->reads.list.n; i++)
        merges |= is_partial(c, c->reads.list.at[i].value);
    for (size_t i = c->reads.list.n; i-- > 0;) { /* collected in reverse order */
        const hir_kernel_read *r = &c->reads.list.at[i];
        a.value = r->value;
        a.phase = phase_of_read(c, r, merges);
        a.bytes = row_bytes(c, r->value, hir_elements_read(&c->reads, r));
        enter(c, a);
    }
    hir_forget_reads(&c->reads);
}

/* The sublayer whose input (the first, if several) or output a kernel computes; 0: unknown. */
static uint32_t sublayer_of(const clerk *c, const hir_op *kernel) {
    uint32_t least = HIR_NONE;
    for (uint32_t i = 0; i < kernel->n_results; i++) {
        const hir_flow_input *input = input_of(c, kernel->results[i]);
        if (input && input->sublayer < least) least = input->sublayer;
    }
    if (least != HIR_NONE) return least;
    HIR_EACH(c->m, op, kernel->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        const uint32_t ended = o->n_results == 1 ? c->output_number[o->results[0]] : 0;
        if (ended) return ended;
    }
    return 0;
}

/* What a kernel computes and multiplies, chooses by or puts in a cache itself is not stored: the
 * input of a sublayer, or of a contraction that makes coefficients of the mechanism. */
static void spread_borders(clerk *c, const hir_op *kernel) {
    HIR_EACH(c->m, op, kernel->body_first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (!hir_flow_is_border(&c->l->flow, o) && !hir_flow_is_choice(c->m, o)) continue;
        for (uint32_t i = 0; i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id x = o->args[i].index;
            if (kind_of(c, x) == HIR_FLOW_NONE || c->l->flow.inside[origin(c, x)]) continue;
            c->reach[x] |= (uint8_t)(input_of(c, x) ? reach_of_result(c, x) : INTO_NORM);
        }
    }
}

static void charge_kernel(clerk *c, hir_id op, uint32_t sublayer) {
    const hir_op *kernel = hir_op_at(c->m, op);
    hir_id last = kernel->body_last;
    if (last == HIR_NONE) return;
    const hir_op *yield = hir_op_at(c->m, last);
    if (yield->code == HIR_YIELD_OP) spread_yield(c, op, kernel, yield);
    spread_borders(c, kernel);
    hir_access a = {.op = op, .sublayer = sublayer, .block = block_of(c, sublayer)};
    c->in_front = false;
    for (hir_id at = last; at != HIR_NONE; at = hir_op_at(c->m, at)->prev) {
        const hir_op *o = hir_op_at(c->m, at);
        if (!c->in_front && o->code != HIR_LINEAR_OP && o->next != HIR_NONE &&
            hir_op_at(c->m, o->next)->code == HIR_LINEAR_OP) {
            c->in_front = true; /* a value that both prologue and epilogue read is read twice */
            charge_reads(c, a);
        }
        if (o->n_results == 1) spread(c, op, o);
    }
    charge_reads(c, a);
    c->in_front = false;
    charge_writes(c, a);
}

static void charge_kernels(clerk *c) {
    HD_VEC(hir_id) kernels = {0};
    HIR_EACH(c->m, op, c->m->first)
    if (hir_is_kernel(hir_op_at(c->m, op))) hd_push(c->arena, &kernels, op);
    uint32_t *of = hd_new_array(c->arena, uint32_t, kernels.n + 1), next = HIR_FLOW_RESULT;
    for (size_t k = kernels.n; k-- > 0;) {
        uint32_t own = sublayer_of(c, hir_op_at(c->m, kernels.at[k]));
        if (own) next = own;
        of[k] = next;
    }
    for (size_t k = 0; k < kernels.n; k++)
        charge_kernel(c, kernels.at[k], of[k]);
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static void find(const hir_module *m, hd_arena *a, bool brief, hir_ledger *out) {
    *out = (hir_ledger){0};
    if (brief)
        hir_flow_find_brief(m, a, &out->flow);
    else
        hir_flow_find(m, a, &out->flow);
    out->sublayers = (uint32_t)out->flow.outputs.n;
    if (hd_mul_overflow(out->flow.width, hir_dtype_bytes(HIR_F32), &out->unit))
        out->unit = UINT64_MAX;
    if (!out->flow.width) return;
    clerk c = {
        .l = out,
        .m = m,
        .arena = a,
        .reach = hd_new_array(a, uint8_t, m->values.n),
        .reads = hir_kernel_reads_new(m, a),
        .weight_seen = hd_new_array(a, bool, m->weights.n + 1),
        .output_number = hd_new_array(a, uint32_t, m->values.n),
        .made_of_output = hd_new_array(a, bool, m->values.n),
        .embedding_written = hd_new_array(a, bool, m->values.n),
    };
    for (size_t k = 0; k < out->flow.outputs.n; k++)
        c.output_number[out->flow.outputs.at[k]] = (uint32_t)k + 1;
    find_blocks(&c);
    c.goes_on = hir_flow_find_carried(&out->flow, a);
    c.two_phases = has_two_phases(&c);
    if (m->stage == HIR_STAGE_KERNEL)
        charge_kernels(&c);
    else
        charge_ops(&c);
}

void hir_ledger_find(const hir_module *m, hd_arena *a, hir_ledger *out) {
    find(m, a, false, out);
}

void hir_ledger_find_totals(const hir_module *m, hd_arena *a, hir_ledger *out) {
    find(m, a, true, out);
}

void hir_ledger_count_as(hir_ledger *l, const hir_ledger *loaded) {
    if (!loaded->sublayers || !loaded->unit) return;
    l->sublayers = loaded->sublayers;
    l->unit = loaded->unit;
}

double hir_ledger_units(const hir_ledger *l, uint64_t bytes) {
    uint32_t n = l->sublayers ? l->sublayers : 1;
    return l->unit ? (double)bytes / (double)l->unit / n : 0;
}
