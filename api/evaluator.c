/* Evaluators of the loaded model (evaluator.h). */
#include "api/evaluator.h"

#include "api/hidden.h"
#include "api/taps.h"

bool api_add_outputs(hadal_session *s, hir_module *m, api_added added) {
    return (!added.hidden || api_add_hidden(m, &s->diags)) && api_add_taps(s, m) &&
           (!added.loss || hir_add_loss(m, &s->diags));
}

hir_eval *api_evaluator_of_graph(hadal_session *s, api_added added) {
    hir_module *m = hir_module_clone(s->graph, s->arena);
    if (!api_add_outputs(s, m, added)) return NULL;
    api_recast_states(s, m);
    for (size_t i = 0; i < m->weights.n; i++) {
        const uint32_t packed = hir_find_weight(s->m, m->weights.at[i].name);
        if (packed == HIR_NONE) continue;
        m->weights.at[i].type.dtype = s->m->weights.at[packed].type.dtype;
        m->weights.at[i].layout = s->m->weights.at[packed].layout;
    }
    hcg_rounded_weights *weights = hd_new(s->arena, hcg_rounded_weights);
    *weights = (hcg_rounded_weights){&s->weights, s->m};
    return hir_eval_new(s->arena, m, hcg_rounded_source, weights);
}
