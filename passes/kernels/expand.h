/* Private to expand*.c: the row program that is being expanded, and squares that several of its
 * norms need. Functions return a none ref after a diagnostic.
 */
#ifndef HIR_PASSES_EXPAND_H
#define HIR_PASSES_EXPAND_H

#include "passes/depth/depth.h"

/* x is multiplied with this before it is squared: a power of two, so that nothing is rounded.
 * Squares do not overflow for |x| sqrt(d) up to 1e26, and what underflows is far below
 * expand_least_eps, the smallest eps this is used with. */
static const double expand_scale = 0x1p-24, expand_least_eps = 1e-12;

typedef struct expand_square { /* for a row x, with the last axis reduced to 1; none: not computed
                                  yet */
    hir_ref x, scaled, mean;   /* x expand_scale, and the mean of its square */
    hir_ref plain;             /* the mean of its square, which may overflow */
} expand_square;

typedef struct expand_powers { /* for x over an axis: its maximum, exp(x - max), the sum of these */
    hir_ref x;
    uint32_t axis;
    hir_ref max, power, sum; /* max, sum: without the axis */
} expand_powers;

typedef struct expander {
    hir_pass_context *c;
    hir_module *m;
    hir_builder b; /* before the op that is expanded */
    pass_forward forward;
    HD_VEC(expand_square) squares; /* computed so far in this kernel */
    HD_VEC(expand_powers) powers;
    /* The most sources that are unrolled: with one query, with several, */
    uint32_t most_one_by_one[2];
    uint32_t one_by_one; /* and in this kernel */
} expander;

/* Reduction over the axis, which becomes 1. */
hir_ref expand_reduce(expander *e, hir_opcode code, hir_ref x, uint32_t axis);
/* mean(a b) over the last axis. */
hir_ref expand_mean_product(expander *e, hir_ref a, hir_ref b);
/* x expand_scale; and the mean of x^2, which overflows from |x| sqrt(d) = 1e19 on. Each is computed
 * once in a kernel. */
hir_ref expand_scaled(expander *e, hir_ref x);
hir_ref expand_mean_square(expander *e, hir_ref x);
/* 1 / sqrt(mean + eps) of the mean of a square; of what has been scaled by expand_scale; and that
 * of `scaled` where c > 0, else 0, so that no token with c <= 0 is summed. */
hir_ref expand_inverse_root(expander *e, hir_ref mean, double eps);
hir_ref expand_inverse_scaled(expander *e, hir_ref mean, double eps);
hir_ref expand_inverse_where(expander *e, hir_ref c, hir_ref scaled, double eps);

/* ---- expand_blend.c -------------------------------------------------------------------------- */
/* For `op`, the rmsnorm of a blend a + w (b - a) that has no other reader: 1 / sqrt(mean + eps)
 * from dot products of a and b. A none ref without a diagnostic: it has to be computed from the
 * blend. */
hir_ref expand_norm_of_blend(expander *e, hir_id op);

#endif
