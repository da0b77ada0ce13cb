/* Which mixes carry the stream on past a sublayer, as the streams of hyper-connections do, and which
 * are read by one input alone, as a partial mix of phase 1 is. And how many sources mixes read:
 * those that are made of a mix that is carried read that, not the outputs in it. */
#include "ir/kernel/kernels.h"
#include "passes/analysis/depth_flow_private.h"
#include "support/known.h"

/* ---- carried mixes --------------------------------------------------------------------------- */

static void add_reader(uint32_t *readers, uint32_t sublayer) {
    if (sublayer && *readers != sublayer) *readers = *readers ? HIR_FLOW_MANY : sublayer;
}

void flow_find_readers(hir_flow *f, hd_arena *a) {
    uint32_t *readers = hd_new_array(a, uint32_t, f->m->values.n);
    for (size_t i = 0; i < f->inputs.n; i++)
        readers[f->inputs.at[i].value] = f->inputs.at[i].sublayer;
    for (size_t k = f->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        const hir_id y = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (y == HIR_NONE || f->inside[y] || hir_flow_is_border(f, o)) continue;
        if (f->kind[y] != HIR_FLOW_MIX && !hir_flow_is_stream(f->kind[y])) continue;
        const uint32_t i = f->input[y];
        for (uint32_t n = 0; n < o->n_args; n++)
            if (o->args[n].kind == HIR_REF_VALUE)
                add_reader(&readers[f->origin[o->args[n].index]],
                           i == HIR_NONE ? readers[y] : f->inputs.at[i].sublayer);
    }
    f->readers = readers;
}

/* A mix that is made of a sublayer's input goes on past that sublayer, too. */
bool *hir_flow_find_carried(const hir_flow *f, hd_arena *a) {
    bool *carried = hd_new_array(a, bool, f->m->values.n);
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        const hir_id y = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (y == HIR_NONE || f->kind[y] != HIR_FLOW_MIX) continue;
        carried[y] = f->readers[y] == HIR_FLOW_MANY;
        for (uint32_t i = 0; i < o->n_args && f->input[y] == HIR_NONE; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id x = f->origin[o->args[i].index];
            carried[y] |= f->kind[x] == HIR_FLOW_MIX && (f->input[x] != HIR_NONE || carried[x]);
        }
    }
    return carried;
}

/* ---- reads of sources ------------------------------------------------------------------------ */

typedef struct made_of { /* by value: arrays */
    const hir_flow *f;
    hir_id *source; /* the only one, HIR_NONE: none, SEVERAL */
    bool *joined;   /* a sum in which several sources have come together */
    bool *on;       /* such a sum that goes on */
    bool *indirect; /* one of those, or a sublayer's input, is among what it is made of */
} made_of;

enum { SEVERAL = HIR_NONE - 1 };

/* Does the op join its operands, or the rows of one, in one row? */
static bool joins(const hir_op *o) {
    switch (o->code) {
    case HIR_ADD_OP:
    case HIR_SUB_OP:
    case HIR_DEPTH_ATTEND_OP:
    case HIR_DEPTH_MIX_OP:
    case HIR_DEPTH_MERGE_OP: return true;
    default: return hir_is_linear(o->code) || hir_has_trait(o->code, HIR_REDUCE);
    }
}

static void follow(made_of *m, const hir_op *o, hir_id y) {
    const hir_flow *f = m->f;
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind != HIR_REF_VALUE) continue;
        const hir_id x = f->origin[o->args[i].index];
        if (f->kind[x] == HIR_FLOW_NONE || f->kind[x] == HIR_FLOW_NUMBERS) continue;
        const hir_id of = hir_flow_is_stream(f->kind[x]) ? f->root[x] : m->source[x];
        const bool earlier = m->on[x] || (m->joined[x] && f->input[x] != HIR_NONE);
        if (of != HIR_NONE && of != m->source[y])
            m->source[y] = m->source[y] == HIR_NONE ? of : SEVERAL;
        m->joined[y] |= m->joined[x];
        m->indirect[y] |= m->indirect[x] || earlier;
        m->on[y] |= earlier && f->input[y] == HIR_NONE;
    }
    m->joined[y] |= m->source[y] == SEVERAL && joins(o);
    m->on[y] |= m->joined[y] && m->f->readers[y] == HIR_FLOW_MANY;
}

/* By value: is it a mix that reads earlier mixes, in which sources have been mixed before? */
static const bool *find_indirect(const hir_flow *f, hd_arena *a) {
    const size_t n = f->m->values.n;
    made_of m = {.f = f};
    m.source = hd_new_array(a, hir_id, n);
    m.joined = hd_new_array(a, bool, n);
    m.on = hd_new_array(a, bool, n);
    m.indirect = hd_new_array(a, bool, n);
    for (size_t v = 0; v < n; v++)
        m.source[v] = HIR_NONE;
    for (size_t k = 0; k < f->program.n; k++) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        const hir_id y = o->n_results == 1 ? o->results[0] : HIR_NONE;
        if (y != HIR_NONE && f->kind[y] == HIR_FLOW_MIX) follow(&m, o, y);
    }
    return m.indirect;
}

hir_flow_reads hir_flow_count_reads(const hir_flow *f, hd_arena *a) {
    const bool *indirect = f->width ? find_indirect(f, a) : NULL;
    hir_flow_reads r = {0};
    uint32_t counted = 0; /* blocks whose finished sources are in `bank` */
    for (size_t i = 0; i < f->inputs.n; i++) {
        const hir_flow_input *x = &f->inputs.at[i];
        const size_t sources = hir_flow_sources(x);
        if (sources < 2) continue;
        hd_known(indirect); /* without a width there are no inputs */
        r.mixes++;
        r.naive += sources;
        r.direct_mixes += !indirect[x->value];
        r.direct += indirect[x->value] ? 0 : sources;
        if (x->sublayer == HIR_FLOW_RESULT) {
            r.output += sources;
            continue;
        }
        r.live += sources - x->shared;
        if (x->block == counted) continue;
        r.bank += x->shared;
        counted = x->block;
    }
    return r;
}
