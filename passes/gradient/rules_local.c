/* Gradients of ops that are local to a row: elementwise ops, reductions, norms, moving elements. */
#include <math.h>

#include "passes/gradient/gradient.h"

static hir_ref arg(const gradient *g, hir_id op, uint32_t i) {
    return pass_arg(g->m, op, i);
}
static uint32_t axis_of(const gradient *g, hir_id op) {
    return (uint32_t)hir_attr_int(hir_op_at(g->m, op), HIR_A_AXIS, 0);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* 1 - y^2 */
static hir_ref one_less_square(gradient *g, hir_ref y) {
    return grad_plus(g, grad_neg(g, grad_mul(g, y, y)), 1);
}

/* gelu(x) = x F(x), F(x) = (1 + erf(x / sqrt 2)) / 2: F(x) + x e^(-x^2 / 2) / sqrt(2 pi) */
static hir_ref slope_of_gelu(gradient *g, hir_ref x) {
    const hir_ref erf = grad_1(g, HIR_ERF_OP, grad_times(g, x, 1 / sqrt(2.0)));
    const hir_ref bell = grad_1(g, HIR_EXP_OP, grad_times(g, grad_mul(g, x, x), -0.5));
    return grad_add(g, grad_times(g, grad_plus(g, erf, 1), 0.5),
                    grad_times(g, grad_mul(g, x, bell), 1 / sqrt(2 * M_PI)));
}

/* y = x (1 + t) / 2, t = tanh(c (x + a x^3)): (1 + t) / 2 + x (1 - t^2) c (1 + 3 a x^2) / 2 */
static hir_ref slope_of_gelu_tanh(gradient *g, hir_ref x) {
    const double c = sqrt(2 / M_PI), a = 0.044715;
    const hir_ref square = grad_mul(g, x, x);
    const hir_ref inner = grad_mul(g, x, grad_plus(g, grad_times(g, square, a * c), c));
    const hir_ref t = grad_1(g, HIR_TANH_OP, inner);
    const hir_ref slope = grad_plus(g, grad_times(g, square, 3 * a * c), c);
    const hir_ref second = grad_mul(g, grad_mul(g, x, one_less_square(g, t)), slope);
    return grad_times(g, grad_add(g, grad_plus(g, t, 1), second), 0.5);
}

/* y = x s, s = sigmoid(x): s (1 + x (1 - s)) */
static hir_ref slope_of_silu(gradient *g, hir_ref x) {
    const hir_ref s = grad_1(g, HIR_SIGMOID_OP, x);
    const hir_ref rest = grad_plus(g, grad_neg(g, s), 1);
    return grad_mul(g, s, grad_plus(g, grad_mul(g, x, rest), 1));
}

/* dx = dy f'(x); y = f(x) */
static hir_ref through_unary(gradient *g, hir_opcode code, hir_ref x, hir_ref y, hir_ref dy) {
    switch ((int)code) {
    case HIR_NEG_OP: return grad_neg(g, dy);
    case HIR_ABS_OP:
        return grad_sub(g, grad_2(g, HIR_WHEN_OP, x, dy),
                        grad_2(g, HIR_WHEN_OP, grad_neg(g, x), dy));
    case HIR_SQRT_OP: return grad_2(g, HIR_DIV_OP, grad_times(g, dy, 0.5), y);
    case HIR_RSQRT_OP: /* -x^(-3/2) / 2 */
        return grad_mul(g, dy, grad_times(g, grad_mul(g, y, grad_mul(g, y, y)), -0.5));
    case HIR_RECIP_OP: return grad_neg(g, grad_mul(g, dy, grad_mul(g, y, y)));
    case HIR_EXP_OP: return grad_mul(g, dy, y);
    case HIR_LOG_OP: return grad_2(g, HIR_DIV_OP, dy, x);
    case HIR_TANH_OP: return grad_mul(g, dy, one_less_square(g, y));
    case HIR_SIGMOID_OP: return grad_mul(g, dy, grad_mul(g, y, grad_plus(g, grad_neg(g, y), 1)));
    case HIR_SILU_OP: return grad_mul(g, dy, slope_of_silu(g, x));
    case HIR_GELU_OP: return grad_mul(g, dy, slope_of_gelu(g, x));
    case HIR_GELU_TANH_OP: return grad_mul(g, dy, slope_of_gelu_tanh(g, x));
    case HIR_RELU_OP: return grad_2(g, HIR_WHEN_OP, x, dy);
    case HIR_SOFTPLUS_OP: return grad_mul(g, dy, grad_1(g, HIR_SIGMOID_OP, x));
    case HIR_ERF_OP: { /* 2 / sqrt(pi) e^(-x^2) */
        const hir_ref bell = grad_1(g, HIR_EXP_OP, grad_neg(g, grad_mul(g, x, x)));
        return grad_mul(g, dy, grad_times(g, bell, 2 / sqrt(M_PI)));
    }
    default: return hir_no_ref();
    }
}

bool vjp_unary(gradient *g, hir_id op, hir_ref dy) {
    const hir_opcode code = hir_op_at(g->m, op)->code;
    grad_give(g, op, 0, through_unary(g, code, arg(g, op, 0), grad_result(g, op), dy));
    return true;
}

bool vjp_add(gradient *g, hir_id op, hir_ref dy) {
    for (uint32_t i = 0; i < 2; i++)
        if (grad_wants(g, op, i)) grad_give(g, op, i, dy);
    return true;
}

bool vjp_sub(gradient *g, hir_id op, hir_ref dy) {
    if (grad_wants(g, op, 0)) grad_give(g, op, 0, dy);
    if (grad_wants(g, op, 1)) grad_give(g, op, 1, grad_neg(g, dy));
    return true;
}

bool vjp_mul(gradient *g, hir_id op, hir_ref dy) {
    for (uint32_t i = 0; i < 2; i++)
        if (grad_wants(g, op, i)) grad_give(g, op, i, grad_mul(g, dy, arg(g, op, 1 - i)));
    return true;
}

/* y = a / b: da = dy / b, db = -dy y / b */
bool vjp_div(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref da = grad_2(g, HIR_DIV_OP, dy, arg(g, op, 1));
    if (grad_wants(g, op, 0)) grad_give(g, op, 0, da);
    if (grad_wants(g, op, 1)) grad_give(g, op, 1, grad_neg(g, grad_mul(g, da, grad_result(g, op))));
    return true;
}

/* The larger one, of min the smaller one, has the gradient; where a and b are equal, each has half. */
bool vjp_larger(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t min = hir_op_at(g->m, op)->code == HIR_MIN_OP;
    const hir_ref a = arg(g, op, min), b = arg(g, op, 1 - min); /* operand 0 has dy where a > b */
    const hir_ref more = grad_sub(g, grad_2(g, HIR_WHEN_OP, grad_sub(g, a, b), dy),
                                  grad_2(g, HIR_WHEN_OP, grad_sub(g, b, a), dy));
    if (grad_wants(g, op, 0)) grad_give(g, op, 0, grad_times(g, grad_add(g, dy, more), 0.5));
    if (grad_wants(g, op, 1)) grad_give(g, op, 1, grad_times(g, grad_sub(g, dy, more), 0.5));
    return true;
}

/* The condition is a step, whose gradient is 0. */
bool vjp_when(gradient *g, hir_id op, hir_ref dy) {
    if (grad_wants(g, op, 1)) grad_give(g, op, 1, grad_2(g, HIR_WHEN_OP, arg(g, op, 0), dy));
    return true;
}

/* ---- over an axis ---------------------------------------------------------------------------- */

static hir_ref stretch(gradient *g, hir_ref x, hir_type t) {
    const hir_attr attr = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    return grad_op(g, HIR_BROADCAST_OP, &x, 1, &attr, 1);
}

/* x, which lacks the axis, with one element there. */
static hir_ref with_axis(gradient *g, hir_ref x, hir_type t, uint32_t axis) {
    return grad_reshape(g, x, pass_keep_one(t, axis));
}

bool vjp_reduce_sum(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t axis = axis_of(g, op);
    const hir_type t = grad_type(g, arg(g, op, 0));
    if (hir_op_at(g->m, op)->code == HIR_REDUCE_MEAN_OP)
        dy = grad_times(g, dy, 1 / (double)t.dim[axis]);
    grad_give(g, op, 0, stretch(g, with_axis(g, dy, t, axis), t));
    return true;
}

/* The largest elements share the gradient. */
bool vjp_reduce_max(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t axis = axis_of(g, op);
    const hir_ref x = arg(g, op, 0);
    const hir_type t = grad_type(g, x);
    const hir_ref most = with_axis(g, grad_result(g, op), t, axis);
    const hir_ref less = grad_2(g, HIR_WHEN_OP, grad_sub(g, most, x), grad_const(g, 1));
    const hir_ref is_most = grad_plus(g, grad_neg(g, less), 1);
    const hir_ref count = grad_reduce(g, HIR_REDUCE_SUM_OP, is_most, axis);
    const hir_ref share = grad_2(g, HIR_DIV_OP, with_axis(g, dy, t, axis), count);
    grad_give(g, op, 0, grad_mul(g, is_most, share));
    return true;
}

/* y = softmax x: dx = y (dy - sum y dy) */
bool vjp_softmax(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref y = grad_result(g, op);
    const hir_ref dot = grad_reduce(g, HIR_REDUCE_SUM_OP, grad_mul(g, y, dy), axis_of(g, op));
    grad_give(g, op, 0, grad_mul(g, y, grad_sub(g, dy, dot)));
    return true;
}

/* y = ln sum e^x: dx = dy softmax x, which often exists already */
bool vjp_logsumexp(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t axis = axis_of(g, op);
    const hir_ref x = arg(g, op, 0);
    const hir_attr attr = hir_int(HIR_A_AXIS, axis);
    const hir_ref weight = grad_op(g, HIR_SOFTMAX_OP, &x, 1, &attr, 1);
    grad_give(g, op, 0, grad_mul(g, weight, with_axis(g, dy, grad_type(g, x), axis)));
    return true;
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* r = (mean x^2 + eps)^-1/2, with one element in the last axis. */
static hir_ref inverse_rms(gradient *g, hir_ref x, double eps, uint32_t last) {
    const hir_ref mean = grad_reduce(g, HIR_REDUCE_MEAN_OP, grad_mul(g, x, x), last);
    return grad_1(g, HIR_RSQRT_OP, grad_plus(g, mean, eps));
}

/* y = gain r x, n = r x, u = gain dy: dx = r (u - n mean(u n)), dgain = sum dy n. With `centred`, x
 * is less its mean, and so is u. */
static void through_norm(gradient *g, hir_id op, hir_ref x, hir_ref dy, bool centred) {
    const double eps = hir_attr_float(hir_op_at(g->m, op), HIR_A_EPS, 0);
    const uint32_t last = grad_type(g, dy).rank - 1;
    const hir_ref r = inverse_rms(g, x, eps, last), n = grad_mul(g, x, r), gain = arg(g, op, 1);
    if (gain.kind != HIR_REF_NONE && grad_wants(g, op, 1)) grad_give(g, op, 1, grad_mul(g, dy, n));
    if (!grad_wants(g, op, 0)) return;
    hir_ref u = gain.kind == HIR_REF_NONE ? dy : grad_mul(g, dy, gain);
    const hir_ref dot = grad_reduce(g, HIR_REDUCE_MEAN_OP, grad_mul(g, u, n), last);
    if (centred) u = grad_sub(g, u, grad_reduce(g, HIR_REDUCE_MEAN_OP, u, last));
    grad_give(g, op, 0, grad_mul(g, r, grad_sub(g, u, grad_mul(g, n, dot))));
}

bool vjp_rmsnorm(gradient *g, hir_id op, hir_ref dy) {
    through_norm(g, op, arg(g, op, 0), dy, false);
    return true;
}

bool vjp_layernorm(gradient *g, hir_id op, hir_ref dy) {
    const hir_ref x = arg(g, op, 0);
    const uint32_t last = grad_type(g, dy).rank - 1;
    through_norm(g, op, grad_sub(g, x, grad_reduce(g, HIR_REDUCE_MEAN_OP, x, last)), dy, true);
    if (arg(g, op, 2).kind != HIR_REF_NONE && grad_wants(g, op, 2)) grad_give(g, op, 2, dy);
    return true;
}

/* ---- moving elements ------------------------------------------------------------------------- */

bool vjp_reshape(gradient *g, hir_id op, hir_ref dy) {
    grad_give(g, op, 0, grad_reshape(g, dy, grad_type(g, arg(g, op, 0))));
    return true;
}

bool vjp_transpose(gradient *g, hir_id op, hir_ref dy) {
    const hir_attr *perm = hir_find_attr(hir_op_at(g->m, op), HIR_A_PERM);
    int64_t back[HIR_MAX_RANK];
    for (uint32_t i = 0; i < perm->n; i++)
        back[perm->ints[i]] = i;
    const hir_attr attr = hir_ints(HIR_A_PERM, back, perm->n);
    grad_give(g, op, 0, grad_op(g, HIR_TRANSPOSE_OP, &dy, 1, &attr, 1));
    return true;
}

bool vjp_broadcast(gradient *g, hir_id op, hir_ref dy) {
    grad_give(g, op, 0, dy);
    return true;
}

bool vjp_stack(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t axis = axis_of(g, op), n = hir_op_at(g->m, op)->n_args;
    for (uint32_t i = 0; i < n; i++)
        if (grad_wants(g, op, i))
            grad_give(g, op, i,
                      grad_reshape(g, grad_slice(g, dy, axis, i, 1), grad_type(g, arg(g, op, i))));
    return true;
}

bool vjp_concat(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t axis = axis_of(g, op), n = hir_op_at(g->m, op)->n_args;
    int64_t start = 0;
    for (uint32_t i = 0; i < n; i++) {
        const int64_t length = grad_type(g, arg(g, op, i)).dim[axis];
        if (grad_wants(g, op, i)) grad_give(g, op, i, grad_slice(g, dy, axis, start, length));
        start += length;
    }
    return true;
}

bool vjp_slice(gradient *g, hir_id op, hir_ref dy) {
    const uint32_t axis = axis_of(g, op);
    const hir_attr attrs[] = {
        hir_int(HIR_A_AXIS, axis),
        hir_int(HIR_A_START, hir_attr_int(hir_op_at(g->m, op), HIR_A_START, 0)),
        hir_int(HIR_A_LENGTH, grad_type(g, arg(g, op, 0)).dim[axis])};
    grad_give(g, op, 0, grad_op(g, HIR_PAD_OP, &dy, 1, attrs, 3));
    return true;
}

/* Models that round in training take what is rounded for what it was (straight-through). */
bool vjp_rounded(gradient *g, hir_id op, hir_ref dy) {
    grad_give(g, op, 0, dy);
    return true;
}

/* Storage in a narrower type rounds, and a step has no gradient. */
bool vjp_convert(gradient *g, hir_id op, hir_ref dy) {
    const hir_op *o = hir_op_at(g->m, op);
    if (pass_result_type(g->m, op).dtype == HIR_F32) return grad_give(g, op, 0, dy), true;
    hd_err(g->c->diags, HD_E_UNSUPPORTED, *o->loc,
           "convert rounds: there is no gradient through it")
        ->hint = "store values as f32";
    return false;
}
