/* What the files of the expand pass share (private to expand*.c): the row program that is being
 * expanded, and squares that several norms of it need. Functions give a none ref after a
 * diagnostic.
 */
#ifndef HIR_PASSES_EXPAND_H
#define HIR_PASSES_EXPAND_H

#include "passes/depth.h"

/* x is scaled by this where it is squared: a power of two, which costs no digit. Squares do not
 * overflow before |x| sqrt(d) is 1e26, and what underflows is far below any eps from
 * expand_least_eps on. */
static const double expand_scale = 0x1p-24, expand_least_eps = 1e-12;

typedef struct expand_square { /* of a row x, with the last axis as a 1 */
    hir_ref x, scaled, mean;   /* x expand_scale, and the mean of its square; none: not yet made */
} expand_square;

typedef struct expander {
    hir_pass_context *c;
    hir_module *m;
    hir_builder b; /* before the op that is expanded */
    pass_forward forward;
    HD_VEC(expand_square) squares; /* made so far in this kernel */
    /* Sources that are taken one by one, at most: scored with one query, and with several ... */
    uint32_t most_one_by_one[2];
    uint32_t one_by_one; /* ... and in this kernel */
} expander;

/* Reduction over the axis, with a 1 in its place. */
hir_ref expand_reduce(expander *e, hir_opcode code, hir_ref x, uint32_t axis);
/* mean(a b) over the last axis. */
hir_ref expand_mean_product(expander *e, hir_ref a, hir_ref b);
/* x expand_scale, and the mean of its square; each is made once in a kernel. */
hir_ref expand_scaled(expander *e, hir_ref x);
hir_ref expand_mean_square(expander *e, hir_ref x);

/* ---- expand_blend.c -------------------------------------------------------------------------- */
/* For `op`, the rmsnorm of a blend a + w (b - a) that nobody else reads: 1 / sqrt(mean + eps) of it
 * from dot products of a and b. None without a diagnostic: it is to be taken of the blend. */
hir_ref expand_norm_of_blend(expander *e, hir_id op);

#endif
