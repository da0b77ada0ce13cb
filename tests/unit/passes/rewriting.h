/* Ways in which a user may write the same formula, as rewritings of single ops of a graph: each is
 * a function that builds what an op computes from other ops. The table below has all of them; a
 * rewriting that does not apply to an op leaves it. Nothing here knows a residual system. */
#ifndef TEST_REWRITING_H
#define TEST_REWRITING_H

#include <string.h>

#include "ir/eval/random.h"
#include "passes/util.h"

/* clang-format off */
#define REWRITINGS(R)                                                                              \
    R(commuted,        "a + b as b + a, a b as b a")                                               \
    R(sums_right,      "(a + b) + c as a + (b + c)")                                               \
    R(products_right,  "(a b) c as a (b c)")                                                       \
    R(distributed,     "(a + b) c as a c + b c, where c is the same for every token")              \
    R(factored,        "a c + b c as (a + b) c")                                                   \
    R(blend_expanded,  "a + g (b - a) as (1 - g) a + g b")                                         \
    R(minus_negated,   "a - b as a + -b, a + b as a - -b")                                         \
    R(one_over,        "a / b as a (1 / b)")                                                       \
    R(constant_under,  "c a as a / (1 / c)")                                                       \
    R(root_under,      "1 / sqrt a as a division")                                                 \
    R(softmax_shifted, "softmax as e^(s - max s) over its sum")                                    \
    R(softmax_bare,    "softmax as e^s over its sum")                                              \
    R(softmax_logsum,  "softmax as e^(s - ln sum e^s)")                                            \
    R(softmax_row,     "softmax without the axes that have one element")                           \
    R(sigmoid_written, "sigmoid as 1 / (1 + e^-s)")                                                \
    R(sigmoid_over,    "sigmoid as e^s / (1 + e^s)")                                               \
    R(silu_gated,      "silu x as x sigmoid x")                                                    \
    R(norm_written,    "a norm as x times the inverse root of the mean of squares")                \
    R(norm_divided,    "a norm as x over the root of a sum of squares by its length")              \
    R(gain_outside,    "a norm with a gain as a norm without, times the gain")                     \
    R(gain_in_matrix,  "the gain of a norm in the few rows of the matrix that reads it")           \
    R(norms_of_each,   "the norm of a stack as a stack of norms")                                  \
    R(norm_of_stack,   "a stack of equal norms as the norm of a stack")                            \
    R(stack_joined,    "a stack as rows laid end to end and reshaped")                             \
    R(stack_turned,    "a stack along the last axis, transposed")                                  \
    R(concat_stacked,  "single elements laid end to end as a stack")                               \
    R(few_as_rows,     "a product with a matrix of few rows as products and sums")                 \
    R(dots_as_matrix,  "a sum of products with a vector as a product with a matrix of one row")    \
    R(sum_by_mean,     "a sum as a mean times the number of its summands")                         \
    R(mean_by_sum,     "a mean as a sum over the number of its summands")                          \
    R(sum_of_parts,    "a sum along an axis as a sum of slices")                                   \
    R(sum_turned,      "a sum along another axis, after a transpose")                              \
    R(products_apart,  "a sum of products of two stacks as a sum of products of slices")           \
    R(stretched,       "operands stretched to the shape of the result")                            \
    R(detour,          "a value reshaped to one row and back")
/* clang-format on */

typedef struct rewriter {
    hir_module *m;
    hir_builder b; /* before the op */
    hir_id op;
    hir_type type; /* of its result */
    hir_uses uses;
    size_t n_values; /* of which there are uses */
    hd_arena *a;
} rewriter;

/* ---- short ways to build --------------------------------------------------------------------- */
static inline hir_ref rw_arg(const rewriter *w, uint32_t i) {
    return pass_arg(w->m, w->op, i);
}
static inline hir_opcode rw_code(const rewriter *w, hir_ref x) {
    const hir_id op = pass_def(w->m, x);
    return op == HIR_NONE ? HIR_OPCODE_COUNT : hir_op_at(w->m, op)->code;
}
static inline bool rw_is(const rewriter *w, hir_opcode code) {
    return hir_op_at(w->m, w->op)->code == code;
}
static inline hir_type rw_type(const rewriter *w, hir_ref x) {
    return hir_ref_type(w->m, x);
}
static inline bool rw_has_t(const rewriter *w, hir_ref x) {
    return hir_type_has_t(rw_type(w, x));
}
static inline bool rw_used_once(const rewriter *w, hir_ref x) {
    return x.kind == HIR_REF_VALUE && x.index < w->n_values && w->uses.count[x.index] == 1;
}
static inline uint32_t rw_axis(const rewriter *w) {
    return (uint32_t)hir_attr_int(hir_op_at(w->m, w->op), HIR_A_AXIS, 0);
}
static inline double rw_eps(const rewriter *w) {
    return hir_attr_float(hir_op_at(w->m, w->op), HIR_A_EPS, 0);
}
static inline hir_ref rw_two(rewriter *w, hir_opcode code, hir_ref x, hir_ref y) {
    return hir_emit2(&w->b, code, x, y);
}
static inline hir_ref rw_one(rewriter *w, hir_opcode code, hir_ref x) {
    return hir_emit1(&w->b, code, x);
}
static inline hir_ref rw_number(rewriter *w, double value) {
    return hir_emit_const(&w->b, value);
}
static inline hir_ref rw_along(rewriter *w, hir_opcode code, hir_ref x, uint32_t axis) {
    return pass_reduce(&w->b, code, x, axis);
}
/* The sum or so of x along an axis, which stays with one element. */
static inline hir_ref rw_kept(rewriter *w, hir_opcode code, hir_ref x, uint32_t axis) {
    const hir_type t = rw_type(w, x);
    return pass_reshape(&w->b, rw_along(w, code, x, axis), pass_keep_one(t, axis));
}
static inline hir_ref rw_norm(rewriter *w, hir_ref x, hir_ref gain) {
    const hir_attr eps = hir_float(HIR_A_EPS, rw_eps(w));
    return hir_emit(&w->b, HIR_RMSNORM_OP, (hir_ref[]){x, gain}, 2, &eps, 1);
}
static inline hir_ref rw_join(rewriter *w, hir_opcode code, const hir_ref *x, uint32_t n,
                              uint32_t axis) {
    const hir_attr at = hir_int(HIR_A_AXIS, axis);
    return hir_emit(&w->b, code, x, n, &at, 1);
}
/* Element i along an axis, which disappears; x itself where that axis of it has one element and is
 * only stretched. */
static inline hir_ref rw_element(rewriter *w, hir_ref x, uint32_t axis, int64_t i) {
    hir_type t = rw_type(w, x);
    if (t.dim[axis] != 1) {
        const hir_attr attrs[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, i),
                                  hir_int(HIR_A_LENGTH, 1)};
        x = hir_emit(&w->b, HIR_SLICE_OP, &x, 1, attrs, 3);
    }
    for (uint32_t k = axis; k + 1 < t.rank; k++)
        t.dim[k] = t.dim[k + 1];
    t.rank--;
    return pass_reshape(&w->b, x, t);
}
static inline hir_ref rw_turned(rewriter *w, hir_ref x, const int64_t *perm) {
    const hir_attr attr = hir_ints(HIR_A_PERM, perm, rw_type(w, x).rank);
    return hir_emit(&w->b, HIR_TRANSPOSE_OP, &x, 1, &attr, 1);
}
static inline bool rw_same_type(const rewriter *w, hir_ref x) {
    return hir_type_equal(rw_type(w, x), w->type);
}

/* ---- sums and products ------------------------------------------------------------------------ */
static inline hir_ref rw_commuted(rewriter *w) {
    if (!rw_is(w, HIR_ADD_OP) && !rw_is(w, HIR_MUL_OP)) return hir_no_ref();
    return rw_two(w, hir_op_at(w->m, w->op)->code, rw_arg(w, 1), rw_arg(w, 0));
}

static inline hir_ref rw_to_the_right(rewriter *w, hir_opcode code) {
    const hir_ref inner = rw_arg(w, 0);
    if (!rw_is(w, code) || rw_code(w, inner) != code || !rw_used_once(w, inner))
        return hir_no_ref();
    const hir_ref a = pass_arg(w->m, pass_def(w->m, inner), 0),
                  b = pass_arg(w->m, pass_def(w->m, inner), 1);
    hir_type t;
    if (!pass_broadcast(rw_type(w, b), rw_type(w, rw_arg(w, 1)), &t)) return hir_no_ref();
    return rw_two(w, code, a, rw_two(w, code, b, rw_arg(w, 1)));
}
static inline hir_ref rw_sums_right(rewriter *w) {
    return rw_to_the_right(w, HIR_ADD_OP);
}
static inline hir_ref rw_products_right(rewriter *w) {
    return rw_to_the_right(w, HIR_MUL_OP);
}

static inline hir_ref rw_distributed(rewriter *w) {
    for (uint32_t i = 0; rw_is(w, HIR_MUL_OP) && i < 2; i++) {
        const hir_ref sum = rw_arg(w, i), c = rw_arg(w, 1 - i);
        if (rw_code(w, sum) != HIR_ADD_OP || !rw_used_once(w, sum) || rw_has_t(w, c) ||
            !rw_same_type(w, sum))
            continue;
        const hir_ref a = pass_arg(w->m, pass_def(w->m, sum), 0),
                      b = pass_arg(w->m, pass_def(w->m, sum), 1);
        if (!rw_same_type(w, a) || !rw_same_type(w, b)) continue;
        return rw_two(w, HIR_ADD_OP, rw_two(w, HIR_MUL_OP, a, c), rw_two(w, HIR_MUL_OP, b, c));
    }
    return hir_no_ref();
}

static inline hir_ref rw_factored(rewriter *w) {
    const hir_ref p = rw_arg(w, 0), q = rw_arg(w, 1);
    if (!rw_is(w, HIR_ADD_OP) || rw_code(w, p) != HIR_MUL_OP || rw_code(w, q) != HIR_MUL_OP ||
        !rw_used_once(w, p) || !rw_used_once(w, q))
        return hir_no_ref();
    for (uint32_t i = 0; i < 4; i++) {
        const hir_ref a = pass_arg(w->m, pass_def(w->m, p), i & 1),
                      c = pass_arg(w->m, pass_def(w->m, p), 1 - (i & 1)),
                      b = pass_arg(w->m, pass_def(w->m, q), i >> 1),
                      d = pass_arg(w->m, pass_def(w->m, q), 1 - (i >> 1));
        if (hir_ref_equal(c, d) && rw_same_type(w, a) && rw_same_type(w, b))
            return rw_two(w, HIR_MUL_OP, rw_two(w, HIR_ADD_OP, a, b), c);
    }
    return hir_no_ref();
}

static inline hir_ref rw_blend_expanded(rewriter *w) {
    for (uint32_t i = 0; rw_is(w, HIR_ADD_OP) && i < 2; i++) {
        const hir_ref a = rw_arg(w, i), product = rw_arg(w, 1 - i);
        for (uint32_t k = 0; rw_code(w, product) == HIR_MUL_OP && k < 2; k++) {
            const hir_ref g = pass_arg(w->m, pass_def(w->m, product), k),
                          change = pass_arg(w->m, pass_def(w->m, product), 1 - k);
            if (rw_code(w, change) != HIR_SUB_OP || !rw_used_once(w, change)) continue;
            const hir_ref b = pass_arg(w->m, pass_def(w->m, change), 0);
            if (!hir_ref_equal(pass_arg(w->m, pass_def(w->m, change), 1), a)) continue;
            return rw_two(w, HIR_ADD_OP,
                          rw_two(w, HIR_MUL_OP, rw_two(w, HIR_SUB_OP, rw_number(w, 1), g), a),
                          rw_two(w, HIR_MUL_OP, g, b));
        }
    }
    return hir_no_ref();
}

static inline hir_ref rw_minus_negated(rewriter *w) {
    if (!rw_is(w, HIR_ADD_OP) && !rw_is(w, HIR_SUB_OP)) return hir_no_ref();
    return rw_two(w, rw_is(w, HIR_ADD_OP) ? HIR_SUB_OP : HIR_ADD_OP, rw_arg(w, 0),
                  rw_one(w, HIR_NEG_OP, rw_arg(w, 1)));
}

static inline hir_ref rw_one_over(rewriter *w) {
    if (!rw_is(w, HIR_DIV_OP)) return hir_no_ref();
    return rw_two(w, HIR_MUL_OP, rw_arg(w, 0), rw_one(w, HIR_RECIP_OP, rw_arg(w, 1)));
}

static inline hir_ref rw_constant_under(rewriter *w) {
    double c;
    for (uint32_t i = 0; rw_is(w, HIR_MUL_OP) && i < 2; i++)
        if (pass_const(w->m, rw_arg(w, i), &c) && c != 0 && rw_same_type(w, rw_arg(w, 1 - i)))
            return rw_two(w, HIR_DIV_OP, rw_arg(w, 1 - i), rw_number(w, 1 / c));
    return hir_no_ref();
}

static inline hir_ref rw_root_under(rewriter *w) {
    if (!rw_is(w, HIR_RSQRT_OP)) return hir_no_ref();
    return rw_two(w, HIR_DIV_OP, rw_number(w, 1), rw_one(w, HIR_SQRT_OP, rw_arg(w, 0)));
}

/* ---- functions -------------------------------------------------------------------------------- */
static inline hir_ref rw_over_sum(rewriter *w, hir_ref logits) {
    const hir_ref e = rw_one(w, HIR_EXP_OP, logits);
    return rw_two(w, HIR_DIV_OP, e, rw_kept(w, HIR_REDUCE_SUM_OP, e, rw_axis(w)));
}
static inline hir_ref rw_softmax_shifted(rewriter *w) {
    if (!rw_is(w, HIR_SOFTMAX_OP)) return hir_no_ref();
    return rw_over_sum(w, rw_two(w, HIR_SUB_OP, rw_arg(w, 0),
                                 rw_kept(w, HIR_REDUCE_MAX_OP, rw_arg(w, 0), rw_axis(w))));
}
static inline hir_ref rw_softmax_bare(rewriter *w) {
    return rw_is(w, HIR_SOFTMAX_OP) ? rw_over_sum(w, rw_arg(w, 0)) : hir_no_ref();
}
static inline hir_ref rw_softmax_logsum(rewriter *w) {
    if (!rw_is(w, HIR_SOFTMAX_OP)) return hir_no_ref();
    return rw_one(w, HIR_EXP_OP,
                  rw_two(w, HIR_SUB_OP, rw_arg(w, 0),
                         rw_kept(w, HIR_LOGSUMEXP_OP, rw_arg(w, 0), rw_axis(w))));
}
static inline hir_ref rw_softmax_row(rewriter *w) {
    if (!rw_is(w, HIR_SOFTMAX_OP)) return hir_no_ref();
    hir_type t = {.dtype = w->type.dtype};
    uint32_t axis = 0;
    for (uint32_t i = 0; i < w->type.rank; i++) {
        if (i == rw_axis(w)) axis = t.rank;
        if (i == rw_axis(w) || w->type.dim[i] != 1) t.dim[t.rank++] = w->type.dim[i];
    }
    if (t.rank == w->type.rank) return hir_no_ref();
    return pass_reshape(
        &w->b, rw_along(w, HIR_SOFTMAX_OP, pass_reshape(&w->b, rw_arg(w, 0), t), axis), w->type);
}

static inline hir_ref rw_sigmoid_written(rewriter *w) {
    if (!rw_is(w, HIR_SIGMOID_OP)) return hir_no_ref();
    const hir_ref e = rw_one(w, HIR_EXP_OP, rw_one(w, HIR_NEG_OP, rw_arg(w, 0)));
    return rw_two(w, HIR_DIV_OP, rw_number(w, 1), rw_two(w, HIR_ADD_OP, rw_number(w, 1), e));
}
static inline hir_ref rw_sigmoid_over(rewriter *w) {
    if (!rw_is(w, HIR_SIGMOID_OP)) return hir_no_ref();
    const hir_ref e = rw_one(w, HIR_EXP_OP, rw_arg(w, 0));
    return rw_two(w, HIR_DIV_OP, e, rw_two(w, HIR_ADD_OP, rw_number(w, 1), e));
}
static inline hir_ref rw_silu_gated(rewriter *w) {
    if (!rw_is(w, HIR_SILU_OP)) return hir_no_ref();
    return rw_two(w, HIR_MUL_OP, rw_arg(w, 0), rw_one(w, HIR_SIGMOID_OP, rw_arg(w, 0)));
}

/* ---- norms ------------------------------------------------------------------------------------ */
static inline hir_ref rw_gained(rewriter *w, hir_ref y) {
    const hir_ref gain = rw_arg(w, 1);
    return gain.kind == HIR_REF_NONE ? y : rw_two(w, HIR_MUL_OP, y, gain);
}
static inline hir_ref rw_norm_written(rewriter *w) {
    if (!rw_is(w, HIR_RMSNORM_OP)) return hir_no_ref();
    const hir_ref x = rw_arg(w, 0);
    const hir_ref mean =
        rw_kept(w, HIR_REDUCE_MEAN_OP, rw_two(w, HIR_MUL_OP, x, x), w->type.rank - 1);
    const hir_ref inverse =
        rw_one(w, HIR_RSQRT_OP, rw_two(w, HIR_ADD_OP, mean, rw_number(w, rw_eps(w))));
    return rw_gained(w, rw_two(w, HIR_MUL_OP, x, inverse));
}
static inline hir_ref rw_norm_divided(rewriter *w) {
    if (!rw_is(w, HIR_RMSNORM_OP)) return hir_no_ref();
    const hir_ref x = rw_arg(w, 0), n = rw_number(w, (double)w->type.dim[w->type.rank - 1]);
    const hir_ref sum =
        rw_kept(w, HIR_REDUCE_SUM_OP, rw_two(w, HIR_MUL_OP, x, x), w->type.rank - 1);
    const hir_ref raised =
        rw_two(w, HIR_ADD_OP, rw_number(w, rw_eps(w)), rw_two(w, HIR_DIV_OP, sum, n));
    return rw_gained(w, rw_two(w, HIR_DIV_OP, x, rw_one(w, HIR_SQRT_OP, raised)));
}
static inline hir_ref rw_gain_outside(rewriter *w) {
    if (!rw_is(w, HIR_RMSNORM_OP) || rw_arg(w, 1).kind == HIR_REF_NONE) return hir_no_ref();
    return rw_two(w, HIR_MUL_OP, rw_arg(w, 1), rw_norm(w, rw_arg(w, 0), hir_no_ref()));
}
enum { RW_FEW = 8 };
static inline bool rw_is_few(const rewriter *w, hir_ref matrix) {
    return rw_type(w, matrix).rank == 2 && rw_type(w, matrix).dim[0] <= RW_FEW &&
           !rw_has_t(w, matrix);
}
static inline hir_ref rw_gain_in_matrix(rewriter *w) {
    const hir_ref x = rw_arg(w, 0);
    if (!rw_is(w, HIR_LINEAR_OP) || rw_code(w, x) != HIR_RMSNORM_OP || !rw_used_once(w, x) ||
        !rw_is_few(w, rw_arg(w, 1)))
        return hir_no_ref();
    const hir_id norm = pass_def(w->m, x);
    const hir_ref gain = pass_arg(w->m, norm, 1);
    if (gain.kind == HIR_REF_NONE) return gain;
    const hir_attr eps = hir_float(HIR_A_EPS, hir_attr_float(hir_op_at(w->m, norm), HIR_A_EPS, 0));
    const hir_ref bare = hir_emit(&w->b, HIR_RMSNORM_OP,
                                  (hir_ref[]){pass_arg(w->m, norm, 0), hir_no_ref()}, 2, &eps, 1);
    return hir_emit(&w->b, HIR_LINEAR_OP,
                    (hir_ref[]){bare, rw_two(w, HIR_MUL_OP, rw_arg(w, 1), gain), rw_arg(w, 2)}, 3,
                    NULL, 0);
}

/* ---- stacks ----------------------------------------------------------------------------------- */
static inline hir_ref rw_norms_of_each(rewriter *w) {
    const hir_id stack =
        rw_is(w, HIR_RMSNORM_OP) ? pass_def_if(w->m, rw_arg(w, 0), HIR_STACK_OP) : HIR_NONE;
    if (stack == HIR_NONE) return hir_no_ref();
    const uint32_t n = hir_op_at(w->m, stack)->n_args,
                   axis = (uint32_t)hir_attr_int(hir_op_at(w->m, stack), HIR_A_AXIS, 0);
    if (axis + 1 == w->type.rank) return hir_no_ref();
    hir_ref *x = hd_new_array(w->a, hir_ref, n);
    for (uint32_t i = 0; i < n; i++)
        x[i] = rw_norm(w, pass_arg(w->m, stack, i), rw_arg(w, 1));
    return rw_join(w, HIR_STACK_OP, x, n, axis);
}
static inline hir_ref rw_norm_of_stack(rewriter *w) {
    const hir_id first =
        rw_is(w, HIR_STACK_OP) ? pass_def_if(w->m, rw_arg(w, 0), HIR_RMSNORM_OP) : HIR_NONE;
    if (first == HIR_NONE || rw_axis(w) + 1 == w->type.rank) return hir_no_ref();
    const uint32_t n = hir_op_at(w->m, w->op)->n_args;
    hir_ref *x = hd_new_array(w->a, hir_ref, n);
    const hir_attr eps = hir_float(HIR_A_EPS, hir_attr_float(hir_op_at(w->m, first), HIR_A_EPS, 0));
    for (uint32_t i = 0; i < n; i++) {
        const hir_id norm = pass_def_if(w->m, rw_arg(w, i), HIR_RMSNORM_OP);
        if (norm == HIR_NONE || !hir_ref_equal(pass_arg(w->m, norm, 1), pass_arg(w->m, first, 1)) ||
            hir_attr_float(hir_op_at(w->m, norm), HIR_A_EPS, 0) != eps.f)
            return hir_no_ref();
        x[i] = pass_arg(w->m, norm, 0);
    }
    const hir_ref stack = rw_join(w, HIR_STACK_OP, x, n, rw_axis(w));
    return hir_emit(&w->b, HIR_RMSNORM_OP, (hir_ref[]){stack, pass_arg(w->m, first, 1)}, 2, &eps,
                    1);
}
static inline hir_ref rw_stack_joined(rewriter *w) {
    if (!rw_is(w, HIR_STACK_OP) || rw_axis(w) + 1 == w->type.rank || rw_axis(w) == 0)
        return hir_no_ref();
    return pass_reshape(&w->b,
                        rw_join(w, HIR_CONCAT_OP, hir_op_at(w->m, w->op)->args,
                                hir_op_at(w->m, w->op)->n_args, rw_axis(w)),
                        w->type);
}
static inline hir_ref rw_stack_turned(rewriter *w) {
    if (!rw_is(w, HIR_STACK_OP) || rw_axis(w) + 1 == w->type.rank || rw_axis(w) == 0)
        return hir_no_ref();
    const hir_op *o = hir_op_at(w->m, w->op);
    int64_t perm[HIR_MAX_RANK];
    for (uint32_t i = 0, k = 0; i < w->type.rank; i++)
        perm[i] = i == rw_axis(w) ? (int64_t)w->type.rank - 1 : (int64_t)k++;
    return rw_turned(w, rw_join(w, HIR_STACK_OP, o->args, o->n_args, w->type.rank - 1), perm);
}
static inline hir_ref rw_concat_stacked(rewriter *w) {
    if (!rw_is(w, HIR_CONCAT_OP) || w->type.rank < 2 || rw_axis(w) + 1 != w->type.rank)
        return hir_no_ref();
    const hir_op *o = hir_op_at(w->m, w->op);
    const uint32_t n = o->n_args;
    hir_ref *x = hd_new_array(w->a, hir_ref, n);
    for (uint32_t i = 0; i < n; i++) {
        hir_type t = rw_type(w, rw_arg(w, i));
        if (t.dim[rw_axis(w)] != 1) return hir_no_ref();
        t.rank--;
        x[i] = pass_reshape(&w->b, rw_arg(w, i), t);
    }
    return rw_join(w, HIR_STACK_OP, x, n, rw_axis(w));
}

/* ---- products with matrices, and sums --------------------------------------------------------- */
static inline hir_ref rw_few_as_rows(rewriter *w) {
    if (!rw_is(w, HIR_LINEAR_OP) || !rw_is_few(w, rw_arg(w, 1))) return hir_no_ref();
    return pass_linear_as_rows(&w->b, rw_arg(w, 0), rw_arg(w, 1), rw_arg(w, 2));
}
static inline hir_ref rw_dots_as_matrix(rewriter *w) {
    const hir_id product =
        rw_is(w, HIR_REDUCE_SUM_OP) ? pass_def_if(w->m, rw_arg(w, 0), HIR_MUL_OP) : HIR_NONE;
    for (uint32_t i = 0; product != HIR_NONE && i < 2; i++) {
        const hir_ref x = pass_arg(w->m, product, i), q = pass_arg(w->m, product, 1 - i);
        const hir_type t = rw_type(w, x), v = rw_type(w, q);
        if (rw_has_t(w, q) || v.rank < 1 || pass_elements(v) != v.dim[v.rank - 1] ||
            v.dim[v.rank - 1] != t.dim[t.rank - 1] || t.rank < 2 || rw_axis(w) + 1 != t.rank ||
            !hir_type_equal(t, pass_result_type(w->m, product)))
            continue;
        const hir_ref row =
            pass_reshape(&w->b, q, hir_make_type(HIR_F32, 2, (int64_t[]){1, v.dim[v.rank - 1]}));
        return pass_reshape(
            &w->b, hir_emit(&w->b, HIR_LINEAR_OP, (hir_ref[]){x, row, hir_no_ref()}, 3, NULL, 0),
            w->type);
    }
    return hir_no_ref();
}
static inline double rw_length(const rewriter *w) {
    return (double)rw_type(w, rw_arg(w, 0)).dim[rw_axis(w)];
}
static inline hir_ref rw_sum_by_mean(rewriter *w) {
    if (!rw_is(w, HIR_REDUCE_SUM_OP)) return hir_no_ref();
    return rw_two(w, HIR_MUL_OP, rw_along(w, HIR_REDUCE_MEAN_OP, rw_arg(w, 0), rw_axis(w)),
                  rw_number(w, rw_length(w)));
}
static inline hir_ref rw_mean_by_sum(rewriter *w) {
    if (!rw_is(w, HIR_REDUCE_MEAN_OP)) return hir_no_ref();
    return rw_two(w, HIR_DIV_OP, rw_along(w, HIR_REDUCE_SUM_OP, rw_arg(w, 0), rw_axis(w)),
                  rw_number(w, rw_length(w)));
}
/* Not of long axes, and not of the last one, along which nobody writes a sum so. */
static inline bool rw_is_short_sum(const rewriter *w) {
    return rw_is(w, HIR_REDUCE_SUM_OP) && rw_length(w) <= 16 &&
           rw_axis(w) + 1 < rw_type(w, rw_arg(w, 0)).rank;
}
static inline hir_ref rw_sum_of_parts(rewriter *w) {
    if (!rw_is_short_sum(w)) return hir_no_ref();
    hir_ref y = hir_no_ref();
    for (int64_t i = 0; i < (int64_t)rw_length(w); i++) {
        const hir_ref x = rw_element(w, rw_arg(w, 0), rw_axis(w), i);
        y = i ? rw_two(w, HIR_ADD_OP, y, x) : x;
    }
    return y;
}
/* Several streams that begin as one row. */
static inline bool rw_is_copies(const rewriter *w, hir_ref x) {
    for (hir_id op; (op = pass_def_if(w->m, x, HIR_RESHAPE_OP)) != HIR_NONE;)
        x = pass_arg(w->m, op, 0);
    const hir_id stack = pass_def_if(w->m, x, HIR_STACK_OP);
    bool same = stack != HIR_NONE;
    for (uint32_t i = 1; same && i < hir_op_at(w->m, stack)->n_args; i++)
        same = hir_ref_equal(pass_arg(w->m, stack, i), pass_arg(w->m, stack, 0));
    return same;
}
/* Of copies there are no slices: the sum of products of one row makes no copy, and moves less. */
static inline hir_ref rw_products_apart(rewriter *w) {
    const hir_id product =
        rw_is_short_sum(w) ? pass_def_if(w->m, rw_arg(w, 0), HIR_MUL_OP) : HIR_NONE;
    if (product == HIR_NONE || rw_is_copies(w, pass_arg(w->m, product, 0)) ||
        rw_is_copies(w, pass_arg(w->m, product, 1)))
        return hir_no_ref();
    const hir_type t = pass_result_type(w->m, product);
    hir_ref y = hir_no_ref();
    for (int64_t i = 0; i < (int64_t)rw_length(w); i++) {
        hir_ref side[2];
        for (uint32_t k = 0; k < 2; k++) {
            const hir_ref x = pass_arg(w->m, product, k);
            const uint32_t missing = t.rank - rw_type(w, x).rank;
            side[k] = rw_axis(w) < missing ? x : rw_element(w, x, rw_axis(w) - missing, i);
        }
        const hir_ref each = rw_two(w, HIR_MUL_OP, side[0], side[1]);
        y = i ? rw_two(w, HIR_ADD_OP, y, each) : each;
    }
    return pass_reshape(&w->b, y, w->type);
}
static inline hir_ref rw_sum_turned(rewriter *w) {
    const hir_type t = rw_type(w, rw_arg(w, 0));
    if (!rw_is(w, HIR_REDUCE_SUM_OP) || t.rank < 3 || rw_axis(w) == 0) return hir_no_ref();
    const uint32_t other = rw_axis(w) + 1 == t.rank ? rw_axis(w) - 1 : t.rank - 1;
    if (other == 0) return hir_no_ref();
    int64_t perm[HIR_MAX_RANK];
    uint32_t k = 0;
    for (uint32_t i = 0; i < t.rank; i++)
        if (i != rw_axis(w)) perm[k + (k >= other)] = i, k++;
    perm[other] = rw_axis(w);
    return rw_along(w, HIR_REDUCE_SUM_OP, rw_turned(w, rw_arg(w, 0), perm), other);
}

/* ---- shapes ----------------------------------------------------------------------------------- */
static inline hir_ref rw_stretched(rewriter *w) {
    if (!hir_has_trait(hir_op_at(w->m, w->op)->code, HIR_ELEMENTWISE) ||
        hir_op_at(w->m, w->op)->n_args != 2)
        return hir_no_ref();
    hir_ref x[2];
    for (uint32_t i = 0; i < 2; i++) {
        x[i] = rw_arg(w, i);
        const hir_attr shape = hir_ints(HIR_A_SHAPE, w->type.dim, w->type.rank);
        if (!rw_same_type(w, x[i])) x[i] = hir_emit(&w->b, HIR_BROADCAST_OP, &x[i], 1, &shape, 1);
    }
    return rw_two(w, hir_op_at(w->m, w->op)->code, x[0], x[1]);
}
static inline hir_ref rw_detour(rewriter *w) {
    if (!rw_is(w, HIR_REDUCE_SUM_OP) && !rw_is(w, HIR_STACK_OP) && !rw_is(w, HIR_ADD_OP))
        return hir_no_ref();
    const hir_op *o = hir_op_at(w->m, w->op);
    const bool has_t = hir_type_has_t(w->type);
    const hir_ref y = hir_emit(&w->b, o->code, o->args, o->n_args, o->attrs, o->n_attrs);
    const hir_type flat =
        has_t ? hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, pass_elements(w->type)})
              : hir_make_type(HIR_F32, 1, (int64_t[]){pass_elements(w->type)});
    return hir_type_equal(flat, w->type)
               ? hir_no_ref()
               : pass_reshape(&w->b, pass_reshape(&w->b, y, flat), w->type);
}

/* ---- the table -------------------------------------------------------------------------------- */
typedef struct rewriting {
    const char *what;
    hir_ref (*build)(rewriter *w); /* the none ref: it does not apply */
    bool other_sums;               /* values of the stream are other sums than before */
} rewriting;

static const rewriting rewritings[] = {
#define R(name, what) {what, rw_##name, rw_##name == rw_sums_right},
    REWRITINGS(R)
#undef R
};
enum { N_REWRITINGS = sizeof rewritings / sizeof *rewritings };

/* A number that is drawn for an op, the same for ops of one kind and type: what is written twice is
 * written in the same way, so that it is found to be the same. */
static inline uint64_t drawn_for(const hir_module *m, hir_id op, size_t number) {
    const hir_op *o = hir_op_at(m, op);
    const hir_type t = pass_result_type(m, op);
    uint64_t seed = number * 64 + o->code;
    for (uint32_t i = 0; i < t.rank; i++)
        seed = seed * 131 + (uint64_t)t.dim[i];
    hir_random draw = hir_random_stream(seed, hir_info(o->code)->name);
    return hir_random_next(&draw) >> 16;
}

/* Applies to each op the rewriting of this number; from N_REWRITINGS on to each op one that is
 * drawn, and to a third of them none. Returns how many ops became others. */
static inline size_t rewrite(hir_module *m, size_t number, hd_diags *d, hd_arena *a) {
    pass_forward forward = {.arena = a};
    const hir_uses uses = hir_compute_uses(m, a);
    const size_t n_values = m->values.n;
    size_t n = 0;
    HIR_EACH(m, op, m->first) {
        const hir_op *o = hir_op_at(m, op);
        pass_forward_args(&forward, m, op);
        if (!hir_has_trait(o->code, HIR_LOCAL) || o->n_results != 1) continue;
        rewriter w = {m, hir_before(m, d, op), op, pass_result_type(m, op), uses, n_values, a};
        if (w.type.dtype != HIR_F32) continue;
        const bool all = number < N_REWRITINGS;
        const uint64_t drawn = all ? number : drawn_for(m, op, number);
        if (!all && drawn % 3 == 0) continue;
        hir_ref y = hir_no_ref();
        for (size_t k = 0; y.kind == HIR_REF_NONE && k < (all ? 1 : N_REWRITINGS); k++)
            y = rewritings[(drawn + k) % N_REWRITINGS].build(&w);
        if (y.kind == HIR_REF_NONE) continue;
        pass_forward_op(&forward, m, op, y);
        n++;
    }
    pass_forward_finish(&forward, m);
    return n;
}

#endif
