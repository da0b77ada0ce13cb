/* Functions that are written out in elementary ops and are ops of their own: norms, softmax,
 * sigmoid. A model that a user has written by the formula then compiles to what the same model
 * compiles to with the ops. */
#ifndef HIR_PASSES_WRITTEN_H
#define HIR_PASSES_WRITTEN_H

#include "passes/util.h"

/* The value of `op` by an op of its own, built at b:
 *
 *     rmsnorm   x * rsqrt(mean(x^2) + eps), with the root, the reciprocal and the mean as ops or
 *               written out, x divided or multiplied
 *     softmax   e^s / sum e^s, also of s - max s, by a division or a product; e^(s - ln sum e^s)
 *     sigmoid   1 / (1 + e^-s) and e^s / (1 + e^s)
 *
 * The operands of `op` are canonical. The none ref: it is none of these. */
hir_ref pass_written_function(hir_builder *b, hir_id op);

#endif
