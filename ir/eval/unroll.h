/* A graph unrolled along its linear paths: how chosen values (targets) depend on others (sources)
 * when everything nonlinear on the way is fixed to its value for a token.
 *
 *   target = sum_i J_i source_i + constant
 *
 * A path runs through sums, differences, moves of elements, sums over axes, small matrices, and
 * products and quotients with a fixed value: a gate, a weight, a scalar of the token. A norm on a
 * path is a multiplication by its inverse norm (and gain), both fixed. Where both factors of a
 * product depend linearly on sources, the narrower one is fixed (in deep delta learning, the
 * component of the stream along a write); if neither is narrower, the graph cannot be unrolled.
 * Everything else that is added to a path (biases, outputs of other functions) is the constant.
 *
 * J_i is never formed as a matrix: a row is put in place of a source, and J_i times that row is
 * computed at the targets. Token by token, in float64, by the rules of the evaluator.
 */
#ifndef HIR_UNROLL_H
#define HIR_UNROLL_H

#include "ir/eval/eval.h"

typedef struct hir_unroll hir_unroll;

/* Sources and targets are values f32[T, ...] of a verified module of the graph stage; a path ends
 * at the first source. NULL: a product on a path is not linear (diagnostic). */
hir_unroll *hir_unroll_new(hd_arena *a, hd_diags *d, const hir_module *m, const hir_id *sources,
                           size_t n_sources, const hir_id *targets, size_t n_targets);
/* Whether v is on a path from a source to a target (a target only if another target depends on
 * it). */
bool hir_unroll_passes(const hir_unroll *u, hir_id v);

/* Evaluates the module on one call, which fixes its values. ids: of the one i32[T] input.
 */
bool hir_unroll_evaluate(hir_unroll *u, hir_weight_source source, void *context, int64_t tokens,
                         const double *ids);
/* Row of a source or target for token t, and how many elements it has. */
const double *hir_unroll_row(const hir_unroll *u, hir_id v, int64_t t, int64_t *n);

enum { HIR_UNROLL_CONSTANT = -1 };
/* Computes the targets for token t with `row` in place of source i and all other sources 0.
 * HIR_UNROLL_CONSTANT: all sources are 0, and the constants are added (row is not read). */
bool hir_unroll_push(hir_unroll *u, int64_t t, ptrdiff_t source, const double *row);
/* The row at target k; NULL: it is 0. Valid until the next push. */
const double *hir_unroll_pushed(const hir_unroll *u, size_t target);

#endif
