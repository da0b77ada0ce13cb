#include "passes/graph/written.h"

#include <math.h>

/* ---- reading --------------------------------------------------------------------------------- */
static hir_opcode code_of(const hir_module *m, hir_ref x) {
    const hir_id op = pass_def(m, x);
    return op == HIR_NONE ? HIR_OPCODE_COUNT : hir_op_at(m, op)->code;
}

static hir_ref operand(const hir_module *m, hir_ref x, uint32_t i) {
    return hir_through_reshapes(m, pass_arg(m, pass_def(m, x), i));
}

static bool is_number(const hir_module *m, hir_ref x, double value) {
    double c;
    return pass_const(m, x, &c) && c == value;
}

/* Has x the shape of `of`, but one element along `axis`? */
static bool keeps_one(const hir_module *m, hir_ref x, hir_ref of, uint32_t axis) {
    return hir_type_equal(hir_ref_type(m, x), pass_keep_one(hir_ref_type(m, of), axis));
}

/* Numerator and divisor of a quotient, as a division, or as a product whose operand `side` is
 * multiplied with a reciprocal. `wide`: the divisor in the shape in which it divides. */
static bool quotient(const hir_module *m, hir_id op, uint32_t side, hir_ref *above, hir_ref *below,
                     hir_ref *wide) {
    const hir_opcode code = hir_op_at(m, op)->code;
    if (code != HIR_MUL_OP && (code != HIR_DIV_OP || side == 1)) return false;
    *above = pass_arg(m, op, side);
    *wide = pass_arg(m, op, 1 - side);
    *below = hir_through_reshapes(m, *wide);
    if (code == HIR_DIV_OP) return true;
    if (code_of(m, *below) != HIR_RECIP_OP) return false;
    *below = operand(m, *below, 0);
    return true;
}

/* ---- norms ----------------------------------------------------------------------------------- */
/* Is v the sum of the squares of x along its last axis, times *factor? */
static bool is_sum_of_squares(const hir_module *m, hir_ref v, hir_ref x, double *factor) {
    const hir_opcode code = code_of(m, v);
    const hir_type t = hir_ref_type(m, x);
    if (code != HIR_REDUCE_SUM_OP && code != HIR_REDUCE_MEAN_OP) return false;
    const hir_id op = pass_def(m, v), square = pass_def_if(m, pass_arg(m, op, 0), HIR_MUL_OP);
    *factor = code == HIR_REDUCE_MEAN_OP ? 1 / (double)t.dim[t.rank - 1] : 1;
    return square != HIR_NONE && hir_ref_equal(pass_arg(m, square, 0), x) &&
           hir_ref_equal(pass_arg(m, square, 1), x) &&
           hir_attr_int(hir_op_at(m, op), HIR_A_AXIS, 0) == t.rank - 1;
}

static bool is_mean_of_squares(const hir_module *m, hir_ref v, hir_ref x) {
    double factor = 0, c = 1;
    const hir_type t = hir_ref_type(m, x);
    const hir_opcode code = code_of(m, v);
    if (code == HIR_MUL_OP || code == HIR_DIV_OP) {
        if (!pass_const(m, operand(m, v, 1), &c)) return false;
        if (code == HIR_DIV_OP) c = 1 / c;
        v = operand(m, v, 0);
    }
    return is_sum_of_squares(m, v, x, &factor) &&
           fabs(factor * c * (double)t.dim[t.rank - 1] - 1) < 1e-12;
}

/* Finds eps of mean(x^2) + eps. */
static bool read_raised_mean(const hir_module *m, hir_ref v, hir_ref x, double *eps) {
    for (uint32_t i = 0; code_of(m, v) == HIR_ADD_OP && i < 2; i++)
        if (pass_const(m, operand(m, v, i), eps) && *eps >= 0 && isfinite(*eps))
            return is_mean_of_squares(m, operand(m, v, 1 - i), x);
    return false;
}

static bool read_rms(const hir_module *m, hir_ref v, hir_ref x, double *eps) {
    return code_of(m, v) == HIR_SQRT_OP && read_raised_mean(m, operand(m, v, 0), x, eps);
}

static bool read_inverse_rms(const hir_module *m, hir_ref v, hir_ref x, double *eps) {
    switch ((int)code_of(m, v)) {
    case HIR_RSQRT_OP: return read_raised_mean(m, operand(m, v, 0), x, eps);
    case HIR_RECIP_OP: return read_rms(m, operand(m, v, 0), x, eps);
    case HIR_DIV_OP:
        return is_number(m, operand(m, v, 0), 1) && read_rms(m, operand(m, v, 1), x, eps);
    default: return false;
    }
}

static hir_ref norm(hir_builder *b, hir_id op) {
    const hir_module *m = b->m;
    const hir_opcode code = hir_op_at(m, op)->code;
    for (uint32_t i = 0; i < (code == HIR_MUL_OP ? 2u : 1u); i++) {
        const hir_ref x = pass_arg(m, op, i), wide = pass_arg(m, op, 1 - i);
        const uint32_t rank = hir_ref_type(m, x).rank;
        double eps;
        if (rank < 2 || !keeps_one(m, wide, x, rank - 1)) continue;
        const hir_ref by = hir_through_reshapes(m, wide);
        if (code == HIR_MUL_OP ? !read_inverse_rms(m, by, x, &eps) : !read_rms(m, by, x, &eps))
            continue;
        const hir_attr attr = hir_float(HIR_A_EPS, eps);
        return hir_emit(b, HIR_RMSNORM_OP, (hir_ref[]){x, hir_no_ref()}, 2, &attr, 1);
    }
    return hir_no_ref();
}

/* ---- softmax --------------------------------------------------------------------------------- */
static hir_ref along(hir_builder *b, hir_opcode code, hir_ref x, uint32_t axis) {
    const hir_attr at = hir_int(HIR_A_AXIS, axis);
    return hir_emit(b, code, &x, 1, &at, 1);
}

/* s of s - max s along the axis; s itself if nothing is subtracted. */
static hir_ref unshifted(const hir_module *m, hir_ref s, uint32_t axis) {
    const hir_id sub = pass_def_if(m, s, HIR_SUB_OP);
    if (sub == HIR_NONE) return s;
    const hir_ref of = pass_arg(m, sub, 0), wide = pass_arg(m, sub, 1);
    const hir_id most = pass_def_if(m, hir_through_reshapes(m, wide), HIR_REDUCE_MAX_OP);
    return most != HIR_NONE && hir_ref_equal(pass_arg(m, most, 0), of) &&
                   hir_attr_int(hir_op_at(m, most), HIR_A_AXIS, 0) == axis &&
                   keeps_one(m, wide, of, axis)
               ? of
               : s;
}

static hir_ref softmax(hir_builder *b, hir_id op) {
    const hir_module *m = b->m;
    hir_ref e, below, wide;
    for (uint32_t side = 0; side < 2; side++) {
        if (!quotient(m, op, side, &e, &below, &wide)) continue;
        const hir_id sum = pass_def_if(m, below, HIR_REDUCE_SUM_OP),
                     exp = pass_def_if(m, e, HIR_EXP_OP);
        if (sum == HIR_NONE || exp == HIR_NONE || !hir_ref_equal(pass_arg(m, sum, 0), e)) continue;
        const uint32_t axis = (uint32_t)hir_attr_int(hir_op_at(m, sum), HIR_A_AXIS, 0);
        if (!keeps_one(m, wide, e, axis)) continue;
        return along(b, HIR_SOFTMAX_OP, unshifted(m, pass_arg(m, exp, 0), axis), axis);
    }
    return hir_no_ref();
}

/* e^(s - ln sum e^s) */
static hir_ref softmax_of_logsumexp(hir_builder *b, hir_id op) {
    const hir_module *m = b->m;
    const hir_id sub = pass_def_if(m, pass_arg(m, op, 0), HIR_SUB_OP);
    if (sub == HIR_NONE) return hir_no_ref();
    const hir_ref s = pass_arg(m, sub, 0), wide = pass_arg(m, sub, 1);
    const hir_id sum = pass_def_if(m, hir_through_reshapes(m, wide), HIR_LOGSUMEXP_OP);
    if (sum == HIR_NONE || !hir_ref_equal(pass_arg(m, sum, 0), s)) return hir_no_ref();
    const uint32_t axis = (uint32_t)hir_attr_int(hir_op_at(m, sum), HIR_A_AXIS, 0);
    return keeps_one(m, wide, s, axis) ? along(b, HIR_SOFTMAX_OP, s, axis) : hir_no_ref();
}

/* ---- sigmoid --------------------------------------------------------------------------------- */
/* e of 1 + e, where e is an exponential; the none ref: v is no such sum. */
static hir_ref exp_and_one(const hir_module *m, hir_ref v) {
    for (uint32_t i = 0; code_of(m, v) == HIR_ADD_OP && i < 2; i++) {
        const hir_ref e = pass_arg(m, pass_def(m, v), i);
        if (code_of(m, e) == HIR_EXP_OP && is_number(m, operand(m, v, 1 - i), 1)) return e;
    }
    return hir_no_ref();
}

static hir_ref sigmoid(hir_builder *b, hir_id op) {
    const hir_module *m = b->m;
    hir_ref above, below, wide, e = hir_no_ref();
    bool same = false; /* e^s over 1 + e^s */
    if (hir_op_at(m, op)->code == HIR_RECIP_OP) e = exp_and_one(m, pass_arg(m, op, 0));
    for (uint32_t side = 0; e.kind == HIR_REF_NONE && side < 2; side++) {
        if (!quotient(m, op, side, &above, &below, &wide)) continue;
        e = exp_and_one(m, below);
        same = hir_ref_equal(above, e);
        if (!same && !is_number(m, above, 1)) e = hir_no_ref();
    }
    if (e.kind == HIR_REF_NONE || !hir_type_equal(hir_ref_type(m, e), pass_result_type(m, op)))
        return hir_no_ref();
    hir_ref s = pass_arg(m, pass_def(m, e), 0);
    const hir_id minus = pass_def_if(m, s, HIR_NEG_OP);
    if (!same) s = minus == HIR_NONE ? hir_emit1(b, HIR_NEG_OP, s) : pass_arg(m, minus, 0);
    return hir_emit1(b, HIR_SIGMOID_OP, s);
}

/* ---- any function ---------------------------------------------------------------------------- */
hir_ref pass_written_function(hir_builder *b, hir_id op) {
    hir_ref y = hir_no_ref();
    switch ((int)hir_op_at(b->m, op)->code) {
    case HIR_EXP_OP: return softmax_of_logsumexp(b, op);
    case HIR_RECIP_OP: return sigmoid(b, op);
    case HIR_MUL_OP:
    case HIR_DIV_OP:
        y = sigmoid(b, op);
        if (y.kind == HIR_REF_NONE) y = softmax(b, op);
        return y.kind == HIR_REF_NONE ? norm(b, op) : y;
    default: return y;
    }
}
