/* Layers that run several times: which time it is, for any op. The table is that of the sublayers'
 * labels (depth_flow.h); between them weights tell, each of which is read in every pass. Gradients go
 * through the passes backwards. */
#ifndef HIR_LAYER_PASSES_H
#define HIR_LAYER_PASSES_H

#include "passes/analysis/depth_flow.h"

typedef struct hir_layer_passes hir_layer_passes;

/* NULL: no layer runs several times. That is found without looking at the residual stream where each
 * matrix is multiplied by once. */
const hir_layer_passes *hir_layer_passes_find(const hir_module *m, hd_arena *a);
/* The pass of an op, or of a kernel, in the layer that a weight, a state or a scope is named after;
 * from 1. 0: it is none of a layer that runs several times, or passes share it. `x` may be NULL. */
uint32_t hir_layer_pass(const hir_layer_passes *x, hir_id op, const char *name);

#endif
