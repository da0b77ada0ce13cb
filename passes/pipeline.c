/* The pipeline, top to bottom. */
#include "passes/pass.h"

static const hir_pass_id default_pipeline[] = {
    HIR_PASS_LOWER_TRACES,
    HIR_PASS_CANONICALISE,
    HIR_PASS_FOLD_CONSTANTS,
    HIR_PASS_CSE,
    HIR_PASS_DCE,
    /* The depth passes stand here: recognise-depth-attention, form-blocks, batch-queries,
     * split-merge. They take the graph to the depth stage. */
    HIR_PASS_SPLIT_SMALL,
    HIR_PASS_FUSE,
    HIR_PASS_EXPAND,
    HIR_PASS_LAYOUT,
    HIR_PASS_SCHEDULE,
    HIR_PASS_PLAN_MEMORY,
    HIR_PASS_COUNT,
};

const hir_pass_id *hir_pipeline(void) {
    return default_pipeline;
}
