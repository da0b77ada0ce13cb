/* A graph unrolled along its linear paths: how chosen values (targets) depend on others (sources)
 * once all that is not linear on the way is known for a token.
 *
 *   target = sum_i J_i source_i + constant
 *
 * A path goes through sums, differences, moves of elements, sums over axes, small matrices, and
 * products and quotients with something that is known: a gate, a weight, a number of the token. A
 * norm on a path is the multiplication with the inverse norm (and gain) that it had. Of a product
 * of two values that both depend linearly on sources the narrower one is taken as known (in deep
 * delta learning, what the stream holds in the direction of a write); if neither is narrower there
 * is no unrolling. Whatever else meets a path (biases, outputs of other functions) is the constant.
 *
 * J_i is never written down as a matrix: a row is put in the place of a source, and what arrives at
 * the targets is J_i times that row. Token by token, in float64, by the rules of the evaluator.
 */
#ifndef HIR_UNROLL_H
#define HIR_UNROLL_H

#include "ir/eval.h"

typedef struct hir_unroll hir_unroll;

/* Sources and targets are values f32[T, ...] of a verified module of the graph stage; a path ends
 * at the first source that it meets. NULL: a product on a path is not linear (diagnostic). */
hir_unroll *hir_unroll_new(hd_arena *a, hd_diags *d, const hir_module *m, const hir_id *sources,
                           size_t n_sources, const hir_id *targets, size_t n_targets);
/* Whether v lies on a path from a source to a target (a target does if something is made of it). */
bool hir_unroll_passes(const hir_unroll *u, hir_id v);

/* Evaluates the module on one call; afterwards its values are known. ids: of the one i32[T] input.
 */
bool hir_unroll_evaluate(hir_unroll *u, hir_weight_source source, void *context, int64_t tokens,
                         const double *ids);
/* Row of a source or target for token t, and how many elements it has. */
const double *hir_unroll_row(const hir_unroll *u, hir_id v, int64_t t, int64_t *n);

enum { HIR_UNROLL_CONSTANT = -1 };
/* `row` in the place of source i, all other sources 0: what arrives at the targets for token t.
 * HIR_UNROLL_CONSTANT: all sources 0, and only constants (row is not read). */
bool hir_unroll_push(hir_unroll *u, int64_t t, ptrdiff_t source, const double *row);
/* At target k; NULL: nothing arrives. Valid until the next push. */
const double *hir_unroll_part(const hir_unroll *u, size_t target);

#endif
