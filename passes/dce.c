/* dce: what nobody reads goes.
 *
 * Needs    a graph.
 * Does     Ops without effect whose results no live op reads are erased, in one walk backwards.
 *          Then the tables: states no op names go. A weight whose last reader went with a dead op
 *          is kept and marked `unused`, because the checkpoint will hold it all the same; a weight
 *          that nothing ever read goes, unless it was marked `unused` already.
 * Leaves   outputs, traces, writes to state and what they need; inputs, which are the caller's.
 */
#include "passes/util.h"

typedef struct sweep {
    hir_pass_context *c;
    hir_module *m;
    bool *read_before, *read_after; /* weights, by index */
    bool *state_read;
} sweep;

static void note_reads(const hir_op *o, bool *weights, bool *states) {
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind == HIR_REF_WEIGHT) weights[o->args[i].index] = true;
        if (o->args[i].kind == HIR_REF_STATE && states) states[o->args[i].index] = true;
    }
}

static bool is_live(const hir_op *o, const bool *value_live) {
    if (hir_has_trait(o->code, HIR_EFFECT)) return true;
    for (uint32_t i = 0; i < o->n_results; i++)
        if (value_live[o->results[i]]) return true;
    return false;
}

static void sweep_ops(sweep *s) {
    hir_module *m = s->m;
    bool *live = hd_new_array(s->c->scratch, bool, m->values.n);
    size_t erased = 0;
    for (hir_id op = m->last, prev; op != HIR_NONE; op = prev) {
        const hir_op *o = hir_op_at(m, op);
        prev = o->prev;
        note_reads(o, s->read_before, NULL);
        if (is_live(o, live)) {
            for (uint32_t i = 0; i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_VALUE) live[o->args[i].index] = true;
            note_reads(o, s->read_after, s->state_read);
            continue;
        }
        hir_erase(m, op);
        erased++;
    }
    if (!erased) return;
    s->c->changed = true;
    hir_remark_add(s->c, true, HIR_NONE, "%zu ops whose results nobody reads are gone", erased);
}

/* ---- the tables ---------------------------------------------------------------------------- */
/* Packs a table; map[i]: new index of item i. */
static void renumber(hir_module *m, hir_ref_kind kind, const uint32_t *map) {
    for (size_t op = 0; op < m->ops.n; op++) {
        hir_op *o = &m->ops.at[op];
        for (uint32_t i = 0; !o->erased && i < o->n_args; i++)
            if (o->args[i].kind == kind) o->args[i].index = map[o->args[i].index] & 0x3fffffff;
    }
}

static void sweep_weights(sweep *s) {
    hir_module *m = s->m;
    uint32_t *map = hd_new_array(s->c->scratch, uint32_t, m->weights.n), kept = 0;
    for (uint32_t i = 0; i < m->weights.n; i++) {
        hir_weight w = m->weights.at[i];
        if (s->read_before[i] && !s->read_after[i]) {
            w.unused = true;
            s->c->changed = true;
            hir_remark_add(s->c, true, HIR_NONE, "weight '%s' is not read any more: unused",
                           w.name);
        }
        map[i] = kept;
        if (s->read_after[i] || w.unused) m->weights.at[kept++] = w;
    }
    if (kept == m->weights.n) return;
    hir_remark_add(s->c, true, HIR_NONE, "%zu weights that no op names are gone",
                   m->weights.n - kept);
    m->weights.n = kept;
    renumber(m, HIR_REF_WEIGHT, map);
    s->c->changed = true;
}

static void sweep_states(sweep *s) {
    hir_module *m = s->m;
    uint32_t *map = hd_new_array(s->c->scratch, uint32_t, m->states.n), kept = 0;
    for (uint32_t i = 0; i < m->states.n; i++) {
        map[i] = kept;
        if (s->state_read[i]) m->states.at[kept++] = m->states.at[i];
    }
    if (kept == m->states.n) return;
    hir_remark_add(s->c, true, HIR_NONE, "%zu states that no op names are gone",
                   m->states.n - kept);
    m->states.n = kept;
    renumber(m, HIR_REF_STATE, map);
    s->c->changed = true;
}

bool pass_dce(hir_pass_context *c) {
    sweep s = {
        .c = c,
        .m = c->m,
        .read_before = hd_new_array(c->scratch, bool, c->m->weights.n),
        .read_after = hd_new_array(c->scratch, bool, c->m->weights.n),
        .state_read = hd_new_array(c->scratch, bool, c->m->states.n),
    };
    sweep_ops(&s);
    sweep_weights(&s);
    sweep_states(&s);
    return true;
}
