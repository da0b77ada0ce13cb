/* dce: dead code elimination.
 *
 * Needs    a graph.
 * Does     erases ops without effect whose results no live op uses, in one walk backwards. Then
 *          removes states that no op uses, and marks weights that no op reads as `unused`. These
 *          stay declared, so that a checkpoint may still hold them.
 * Leaves   outputs, traces, writes to state and what they depend on; inputs, which belong to the
 *          caller.
 */
#include "passes/util.h"

typedef struct sweep {
    hir_pass_context *c;
    hir_module *m;
    bool *weight_read, *state_read; /* by index */
} sweep;

static void note_reads(sweep *s, const hir_op *o) {
    for (uint32_t i = 0; i < o->n_args; i++) {
        if (o->args[i].kind == HIR_REF_WEIGHT) s->weight_read[o->args[i].index] = true;
        if (o->args[i].kind == HIR_REF_STATE) s->state_read[o->args[i].index] = true;
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
        if (is_live(o, live)) {
            for (uint32_t i = 0; i < o->n_args; i++)
                if (o->args[i].kind == HIR_REF_VALUE) live[o->args[i].index] = true;
            note_reads(s, o);
            continue;
        }
        hir_erase(m, op);
        erased++;
    }
    if (!erased) return;
    s->c->changed = true;
    hir_remark_add(s->c, true, HIR_NONE,
                   erased == 1 ? "%zu op whose result is not used is removed"
                               : "%zu ops whose results are not used are removed",
                   erased);
}

/* ---- the tables ---------------------------------------------------------------------------- */
static void mark_weights(sweep *s) {
    for (size_t i = 0; i < s->m->weights.n; i++) {
        const hir_weight *w = &s->m->weights.at[i];
        for (uint32_t r = 0; r < w->n_rows; r++)
            for (uint32_t k = 0; k < w->rows[r].n; k++)
                s->weight_read[hir_find_weight(s->m, w->rows[r].factor[k].name)] = true;
    }
    for (size_t i = 0; i < s->m->weights.n; i++) {
        hir_weight *w = &s->m->weights.at[i];
        if (s->weight_read[i] || w->unused || hir_is_derived(w)) continue;
        w->unused = true;
        s->c->changed = true;
        hir_remark_add(s->c, true, HIR_NONE, "weight '%s' is read by no op: unused", w->name);
    }
}

/* map[i]: new index of state i. */
static void renumber_states(hir_module *m, const uint32_t *map) {
    for (size_t op = 0; op < m->ops.n; op++) {
        hir_op *o = &m->ops.at[op];
        for (uint32_t i = 0; !o->erased && i < o->n_args; i++)
            if (o->args[i].kind == HIR_REF_STATE) o->args[i] = hir_state_ref(map[o->args[i].index]);
    }
}

static void sweep_states(sweep *s) {
    hir_module *m = s->m;
    uint32_t *map = hd_new_array(s->c->scratch, uint32_t, m->states.n), kept = 0;
    for (uint32_t i = 0; i < m->states.n; i++) {
        map[i] = kept;
        if (s->state_read[i]) m->states.at[kept++] = m->states.at[i];
    }
    const size_t removed = m->states.n - kept;
    if (!removed) return;
    hir_remark_add(s->c, true, HIR_NONE,
                   removed == 1 ? "%zu state that no op uses is removed"
                                : "%zu states that no op uses are removed",
                   removed);
    m->states.n = kept;
    renumber_states(m, map);
    s->c->changed = true;
}

bool pass_dce(hir_pass_context *c) {
    sweep s = {
        .c = c,
        .m = c->m,
        .weight_read = hd_new_array(c->scratch, bool, c->m->weights.n),
        .state_read = hd_new_array(c->scratch, bool, c->m->states.n),
    };
    sweep_ops(&s);
    mark_weights(&s);
    sweep_states(&s);
    return true;
}
