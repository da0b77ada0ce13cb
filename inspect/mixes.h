/* The depth mixes of a model whose weights the spec traces: which sublayer reads each mix, and the
 * stack of sources that its weights belong to. */
#ifndef INSPECT_MIXES_H
#define INSPECT_MIXES_H

#include "passes/analysis/depth_flow.h"

typedef struct depth_mix {
    hir_ref weights;     /* what the trace shows, [.., sources] */
    const hir_op *stack; /* of the sources; NULL: it was not found */
    uint32_t sublayer;   /* that reads the mix, from 1; 0: the head reads it, or nobody */
} depth_mix;

typedef struct depth_mixes {
    HD_VEC(depth_mix) list; /* in the order of execution */
} depth_mixes;

/* `home`: as hir_flow_homes gives it. */
void depth_mixes_find(const hir_flow *f, const uint32_t *home, hd_arena *a, depth_mixes *out);

#endif
