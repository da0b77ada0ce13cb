/* The default pipeline: passes run in this order. */
#include "passes/pass.h"

static const hir_pass_id default_pipeline[] = {
    HIR_PASS_LOWER_TRACES,  HIR_PASS_CANONICALISE,  HIR_PASS_FOLD_CONSTANTS,
    HIR_PASS_CSE,           HIR_PASS_DCE,           HIR_PASS_SHARD_PIPELINE,
    HIR_PASS_ABSORB_LATENT, HIR_PASS_DCE,           HIR_PASS_RECOGNISE_DEPTH,
    HIR_PASS_FORM_BLOCKS,   HIR_PASS_BATCH_QUERIES, HIR_PASS_NARROW_DEPTH,
    HIR_PASS_SPLIT_MERGE,   HIR_PASS_CSE, /* merges scores shared by a mix and its traced weights */
    HIR_PASS_DEFER_NORMS,   HIR_PASS_FOLD_WEIGHTS,  HIR_PASS_DCE,
    HIR_PASS_SHARD_TENSOR,  HIR_PASS_SPLIT_SMALL,   HIR_PASS_CARRY_SCORES,
    HIR_PASS_FUSE,          HIR_PASS_EXPAND,        HIR_PASS_LAYOUT,
    HIR_PASS_SCHEDULE,      HIR_PASS_PLAN_MEMORY,   HIR_PASS_COUNT,
};

/* Of a model with gradients. They are made when attention over depth is in two phases, so that both
 * directions have the same blocks. absorb-latent, and what stores values as narrow types, have no
 * gradients. */
static const hir_pass_id gradient_pipeline[] = {
    HIR_PASS_CANONICALISE,
    HIR_PASS_FOLD_CONSTANTS,
    HIR_PASS_CSE,
    HIR_PASS_DCE,
    HIR_PASS_CACHE_MADE,
    HIR_PASS_DCE,
    HIR_PASS_RECOGNISE_DEPTH,
    HIR_PASS_FORM_BLOCKS,
    HIR_PASS_BATCH_QUERIES,
    HIR_PASS_SPLIT_MERGE,
    HIR_PASS_CSE,
    HIR_PASS_DCE,
    HIR_PASS_DIFFERENTIATE,
    HIR_PASS_LOWER_TRACES,
    HIR_PASS_CANONICALISE,
    HIR_PASS_CSE,
    HIR_PASS_FOLD_WEIGHTS,
    HIR_PASS_DCE,
    HIR_PASS_SPLIT_SMALL,
    HIR_PASS_REMATERIALISE,
    HIR_PASS_FUSE,
    HIR_PASS_EXPAND,
    HIR_PASS_LAYOUT,
    HIR_PASS_SCHEDULE,
    HIR_PASS_TILE_LOGITS,
    HIR_PASS_PLAN_MEMORY,
    HIR_PASS_COUNT,
};

const hir_pass_id *hir_gradient_pipeline(void) {
    return gradient_pipeline;
}

const hir_pass_id *hir_pipeline(void) {
    return default_pipeline;
}

size_t hir_pipeline_length(void) {
    return sizeof default_pipeline / sizeof *default_pipeline - 1;
}

hir_run hir_run_of(const hir_pass_id *passes) {
    hir_run run = {.passes = passes, .stop_after = HIR_PASS_COUNT};
    while (passes[run.n_passes] != HIR_PASS_COUNT)
        run.n_passes++;
    return run;
}
