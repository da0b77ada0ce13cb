/* Which sublayer a value belongs to that is no part of the residual mechanism. */
#ifndef INSPECT_SUBLAYERS_H
#define INSPECT_SUBLAYERS_H

#include "passes/analysis/depth_flow.h"

/* By value: the sublayer (from 1) that a value inside one ends in, 0 for all others. `crosses`, by
 * sublayer: it reads what an earlier one has made inside, past the stream. */
uint32_t *sublayer_of_values(const hir_flow *f, hd_arena *a, bool *crosses);

#endif
