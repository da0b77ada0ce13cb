/* Evaluators of the loaded model (evaluator.h). */
#include "api/evaluator.h"

#include "api/hidden.h"
#include "api/taps.h"

bool api_add_outputs(hadal_session *s, hir_module *m, api_added added) {
    return (!added.hidden || api_add_hidden(m, &s->diags)) && api_add_taps(s, m) &&
           (!added.loss || hir_add_loss(m, &s->diags));
}

/* Of the graph as loaded, which no pass has touched. The passes only say how weights are rounded. */
static hir_eval *evaluator_of_graph(hadal_session *s, api_added added) {
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

/* One pipeline stage of a divided model, after the passes that divide it and set types. */
static const hir_module *divided_stage(hadal_session *s, api_added added, int64_t stage) {
    hir_compile_options options = s->pass_options;
    const size_t n = hir_pipeline_length();
    const hir_run passes = {.passes = hir_pipeline(), .n_passes = n, .stop_after = HIR_PASS_LAYOUT};
    hir_module *m = hir_module_clone(s->graph, s->arena);
    options.stage = stage;
    if (!api_add_outputs(s, m, added)) return NULL;
    api_recast_states(s, m);
    return hir_run_passes(m, &passes, &options, NULL, &s->diags) ? m : NULL;
}

/* Of what exists only after passes have divided the model: all ranks of each pipeline stage, side
 * by side. */
static hir_eval *evaluator_of_ranks(hadal_session *s, api_added added) {
    const int64_t stages = s->pass_options.stages > 1 ? s->pass_options.stages : 1;
    const hir_module **all = hd_new_array(s->arena, const hir_module *, (size_t)stages);
    for (int64_t i = 0; i < stages; i++) {
        all[i] = divided_stage(s, added, i);
        if (!all[i]) return NULL;
    }
    return hir_eval_new_pipeline(s->arena, all, (size_t)stages, hcg_weight_source, &s->weights);
}

hir_eval *api_evaluator(hadal_session *s, api_added added) {
    const bool divided = s->pass_options.ranks > 1 || s->pass_options.stages > 1;
    return divided ? evaluator_of_ranks(s, added) : evaluator_of_graph(s, added);
}
