/* What the backward half of a module computes again of the forward half, as rematerialise has it
 * do: values that are made by the same ops of the same values. */
#ifndef HIR_PASSES_COPIES_H
#define HIR_PASSES_COPIES_H

#include "passes/analysis/depth_flow.h"

/* By value: of those that the ops in `backward` make, the value of the forward half that is
 * computed again; HIR_NONE: there is none. */
hir_id *hir_find_copies(const hir_flow *forward, const hir_id *backward, size_t n, hd_arena *a);

#endif
