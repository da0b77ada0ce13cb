#include "inspect/sublayers.h"

/* Made inside a sublayer, of what the sublayer reads: not a position, not a layer input. */
static bool is_inside(const hir_flow *f, hir_id v) {
    const hir_value *value = hir_value_at(f->m, v);
    if (value->op == HIR_NONE || f->input[v] != HIR_NONE || !hir_type_has_t(value->type))
        return false;
    if (f->kind[v] != HIR_FLOW_NONE && !f->inside[v]) return false;
    return !hir_has_trait(hir_op_at(f->m, value->op)->code, HIR_PURE_CONST);
}

/* The caches of attention have C and no T: what is appended to them goes through. */
static bool is_state(const hir_flow *f, hir_id v) {
    return hir_state_of_value(f->m, hir_value_ref(v)) != HIR_NONE;
}

/* Backwards from the outputs; what several sublayers read belongs to the first of them. */
uint32_t *sublayer_of_values(const hir_flow *f, hd_arena *a, bool *crosses) {
    uint32_t *home = hd_new_array(a, uint32_t, f->m->values.n);
    for (size_t i = 0; i < f->outputs.n; i++)
        home[f->outputs.at[i]] = (uint32_t)i + 1;
    for (size_t k = f->program.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->m, f->program.at[k]);
        const uint32_t to = o->n_results ? home[o->results[0]] : 0;
        for (uint32_t i = 0; to && i < o->n_args; i++) {
            if (o->args[i].kind != HIR_REF_VALUE) continue;
            const hir_id v = f->origin[o->args[i].index];
            if (!is_inside(f, v) && !is_state(f, v)) continue;
            if (home[v] && home[v] != to) crosses[home[v] > to ? home[v] : to] = true;
            if (!home[v] || to < home[v]) home[v] = to;
        }
    }
    return home;
}
