/* fold-constants: ops on constants are evaluated.
 *
 * Needs    a graph.
 * Does     An op all of whose operands are `const` (one number, whatever the shape) and whose
 *          result is one number again becomes a `const`: elementwise ops, reductions, moves. Values
 *          are computed in float64, as in the evaluator. Also x * c1 * c2 where both constants are
 *          powers of two becomes one product, so that nothing is rounded twice. A `const` with
 *          dims becomes a scalar where the other operand has the shape of the result: kernels
 *          splat a number, and have no memory for rows of equal ones.
 * Leaves   weights (nothing large is ever folded) and results that are not finite.
 */
#include <math.h>

#include "passes/util.h"
#include "support/codes.h"

typedef struct folder {
    hir_pass_context *c;
    hir_module *m;
    pass_forward forward;
} folder;

static double unary_value(hir_opcode code, double x) {
    switch ((int)code) {
    case HIR_NEG_OP: return -x;
    case HIR_ABS_OP: return fabs(x);
    case HIR_SQRT_OP: return sqrt(x);
    case HIR_RSQRT_OP: return 1 / sqrt(x);
    case HIR_RECIP_OP: return 1 / x;
    case HIR_EXP_OP: return exp(x);
    case HIR_LOG_OP: return log(x);
    case HIR_TANH_OP: return tanh(x);
    case HIR_SIGMOID_OP: return 1 / (1 + exp(-x));
    case HIR_SILU_OP: return x / (1 + exp(-x));
    case HIR_GELU_OP: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case HIR_GELU_TANH_OP: return 0.5 * x * (1 + tanh(sqrt(M_2_PI) * (x + 0.044715 * x * x * x)));
    case HIR_RELU_OP: return x > 0 ? x : 0;
    case HIR_SOFTPLUS_OP: return fmax(x, 0) + log1p(exp(-fabs(x)));
    case HIR_ERF_OP: return erf(x);
    case HIR_SIGN_OP: return hd_sign(x);
    case HIR_ROUND_E4M3_OP: return hd_round_e4m3(x);
    case HIR_ROUND_E2M1_OP: return hd_round_e2m1(x);
    case HIR_POWER_ABOVE_OP: return hd_power_above(x);
    default: return NAN;
    }
}

static double binary_value(hir_opcode code, double a, double b) {
    switch ((int)code) {
    case HIR_ADD_OP: return a + b;
    case HIR_SUB_OP: return a - b;
    case HIR_MUL_OP: return a * b;
    case HIR_DIV_OP: return a / b;
    case HIR_MAX_OP: return fmax(a, b);
    case HIR_MIN_OP: return fmin(a, b);
    case HIR_WHEN_OP: return a > 0 ? b : 0;
    default: return NAN;
    }
}

static double reduced_value(const folder *f, hir_id op, double x) {
    const hir_op *o = hir_op_at(f->m, op);
    int64_t n = hir_arg_type(f->m, op, 0).dim[hir_attr_int(o, HIR_A_AXIS, 0)];
    return o->code == HIR_REDUCE_SUM_OP ? x * (double)n : x;
}

/* The value that all elements of op's result have; NaN: it is not known, or not to be folded. */
static double value_of(const folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    double x[2] = {NAN, NAN};
    for (uint32_t i = 0; i < o->n_args; i++) {
        double v;
        if (!pass_const(f->m, o->args[i], &v)) return NAN;
        x[i ? 1 : 0] = v;
        if (i && o->code == HIR_CONCAT_OP && v != x[0]) return NAN;
        if (i && o->code == HIR_STACK_OP && v != x[0]) return NAN;
    }
    if (!o->n_args || o->code == HIR_CONVERT_OP) return NAN; /* constants are f32 */
    if (hir_has_trait(o->code, HIR_ELEMENTWISE))
        return o->n_args == 1 ? unary_value(o->code, x[0]) : binary_value(o->code, x[0], x[1]);
    if (hir_has_trait(o->code, HIR_REDUCE)) return reduced_value(f, op, x[0]);
    return hir_has_trait(o->code, HIR_MOVE) ? x[0] : NAN;
}

/* A result is only folded if it is finite in f32, too. */
static bool is_sound(double v) {
    return isfinite(v) && fabs(v) <= 3.4028234e38;
}

static bool fold(folder *f, hir_id op) {
    double v = value_of(f, op);
    if (!is_sound(v)) return true;
    hir_type t = pass_result_type(f->m, op);
    hir_builder b = hir_before(f->m, f->c->diags, op);
    hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, t.dim, t.rank), hir_float(HIR_A_VALUE, v)};
    hir_ref r = hir_emit(&b, HIR_CONST_OP, NULL, 0, attrs, 2);
    if (r.kind == HIR_REF_NONE) return false;
    pass_forward_op(&f->forward, f->m, op, r);
    f->c->changed = true;
    return true;
}

/* ---- chains of two constants ---------------------------------------------------------------- */
static bool is_power_of_two(double v) {
    int exponent;
    return isfinite(v) && fabs(frexp(v, &exponent)) == 0.5;
}

/* x c1 c2 = x (c1 c2) without a second rounding: only for factors that are powers of two. */
static bool merge(folder *f, hir_id op) {
    hir_op *o = hir_op_at(f->m, op);
    double outer, inner;
    if (o->code != HIR_MUL_OP || !pass_const(f->m, o->args[1], &outer)) return true;
    hir_id first = pass_def_if(f->m, o->args[0], HIR_MUL_OP);
    if (first == HIR_NONE || !pass_const(f->m, pass_arg(f->m, first, 1), &inner)) return true;
    hir_ref x = pass_arg(f->m, first, 0);
    if (!is_power_of_two(outer) || !is_power_of_two(inner) || !is_sound(outer * inner) ||
        !hir_type_equal(hir_ref_type(f->m, x), pass_result_type(f->m, op)))
        return true;
    hir_builder b = hir_before(f->m, f->c->diags, op);
    hir_ref both = hir_emit_const(&b, outer * inner);
    if (both.kind == HIR_REF_NONE) return false;
    o = hir_op_at(f->m, op);
    o->args[0] = x;
    o->args[1] = both;
    f->c->changed = true;
    return true;
}

/* ---- constants with dims that are not needed ------------------------------------------------- */
static bool make_scalar(folder *f, hir_id op, uint32_t operand) {
    const hir_op *o = hir_op_at(f->m, op);
    double v;
    if (!pass_const(f->m, o->args[operand], &v) || hir_ref_type(f->m, o->args[operand]).rank == 0 ||
        !hir_type_equal(hir_ref_type(f->m, o->args[1 - operand]), pass_result_type(f->m, op)))
        return true;
    hir_builder b = hir_before(f->m, f->c->diags, op);
    hir_ref number = hir_emit_const(&b, v);
    if (number.kind == HIR_REF_NONE) return false;
    hir_op_at(f->m, op)->args[operand] = number;
    f->c->changed = true;
    return true;
}

static bool drop_shapes(folder *f, hir_id op) {
    const hir_op *o = hir_op_at(f->m, op);
    if (!hir_has_trait(o->code, HIR_ELEMENTWISE) || o->n_args != 2) return true;
    return make_scalar(f, op, 0) && make_scalar(f, op, 1);
}

bool pass_fold_constants(hir_pass_context *c) {
    folder f = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    HIR_EACH(f.m, op, f.m->first) {
        pass_forward_args(&f.forward, f.m, op);
        if (!fold(&f, op) || !merge(&f, op) || !drop_shapes(&f, op)) return false;
    }
    pass_forward_finish(&f.forward, f.m);
    return true;
}
