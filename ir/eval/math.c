/* Evaluator rules that compute: constants, elementwise ops, reductions, normalisation. */
#include <math.h>

#include "ir/eval/private.h"
#include "support/codes.h"
#include "support/tensorfile.h"

#define SQRT_HALF       0.70710678118654752440 /* 1 / sqrt 2 */
#define SQRT_TWO_BY_PI  0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_TANH_CUBIC 0.044715

bool eval_const(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)x;
    double value = hir_attr_float(op, HIR_A_VALUE, 0);
    for (int64_t i = 0; i < y->n; i++)
        y->at[i] = value;
    return true;
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static double same(double x) {
    return x;
}
static double neg(double x) {
    return -x;
}
static double rsqrt(double x) {
    return 1 / sqrt(x);
}
static double recip(double x) {
    return 1 / x;
}
static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double silu(double x) {
    return x / (1 + exp(-x));
}
static double gelu(double x) {
    return x / 2 * (1 + erf(x * SQRT_HALF));
}
static double gelu_tanh(double x) {
    return x / 2 * (1 + tanh(SQRT_TWO_BY_PI * (x + GELU_TANH_CUBIC * x * x * x)));
}
/* max(x, 0) is factored out, as e^x overflows for large x, where the result is x to the last
 * bit. */
static double softplus(double x) {
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double add(double a, double b) {
    return a + b;
}
static double sub(double a, double b) {
    return a - b;
}
static double mul(double a, double b) {
    return a * b;
}
static double quotient(double a, double b) {
    return a / b;
}
/* Unlike fmax and fmin these propagate NaN: a reference must not hide one. */
static double larger(double a, double b) {
    return a > b || isnan(a) ? a : b;
}
static double smaller(double a, double b) {
    return a < b || isnan(a) ? a : b;
}
static double when(double c, double x) {
    return c > 0 ? x : 0;
}
static double relu(double x) {
    return larger(x, 0);
}

static double (*const unary[HIR_OPCODE_COUNT])(double) = {
    [HIR_NEG_OP] = neg,
    [HIR_ABS_OP] = fabs,
    [HIR_SQRT_OP] = sqrt,
    [HIR_RSQRT_OP] = rsqrt,
    [HIR_RECIP_OP] = recip,
    [HIR_EXP_OP] = exp,
    [HIR_LOG_OP] = log,
    [HIR_TANH_OP] = tanh,
    [HIR_SIGMOID_OP] = sigmoid,
    [HIR_SILU_OP] = silu,
    [HIR_GELU_OP] = gelu,
    [HIR_GELU_TANH_OP] = gelu_tanh,
    [HIR_RELU_OP] = relu,
    [HIR_SOFTPLUS_OP] = softplus,
    [HIR_ERF_OP] = erf,
    [HIR_SIGN_OP] = hd_sign,
    [HIR_ROUND_E4M3_OP] = hd_round_e4m3,
    [HIR_ROUND_E2M1_OP] = hd_round_e2m1,
    [HIR_POWER_ABOVE_OP] = hd_power_above,
    [HIR_DETACH_OP] = same,
};

static double (*const binary[HIR_OPCODE_COUNT])(double, double) = {
    [HIR_ADD_OP] = add,    [HIR_SUB_OP] = sub,     [HIR_MUL_OP] = mul,   [HIR_DIV_OP] = quotient,
    [HIR_MAX_OP] = larger, [HIR_MIN_OP] = smaller, [HIR_WHEN_OP] = when,
};

/* For an op that was added to the table but not to the tables above. */
static bool no_rule(eval_call *c, const hir_op *op) {
    hd_err(c->d, HD_E_INTERNAL, *op->loc, "the evaluator has no formula for %s",
           hir_info(op->code)->name);
    return false;
}

bool eval_unary(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    double (*f)(double) = unary[op->code];
    if (!f) return no_rule(c, op);
    for (int64_t i = 0; i < y->n; i++)
        y->at[i] = f(x[0]->at[i]);
    return true;
}

bool eval_convert(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c, (void)op;
    for (int64_t i = 0; i < y->n; i++)
        y->at[i] = hir_rounded(y->type.dtype, x[0]->at[i]);
    return true;
}

bool eval_binary(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    double (*f)(double, double) = binary[op->code];
    if (!f) return no_rule(c, op);
    int64_t sa[HIR_MAX_RANK], sb[HIR_MAX_RANK], index[HIR_MAX_RANK] = {0};
    eval_stretched_strides(x[0]->type, y->type, sa);
    eval_stretched_strides(x[1]->type, y->type, sb);
    const double *a = x[0]->at, *b = x[1]->at;
    for (int64_t i = 0; i < y->n; i++) {
        y->at[i] = f(*a, *b);
        for (uint32_t k = y->type.rank; k-- > 0;) { /* the next index, last dim fastest */
            a += sa[k];
            b += sb[k];
            if (++index[k] < y->type.dim[k]) break;
            a -= sa[k] * index[k];
            b -= sb[k] * index[k];
            index[k] = 0;
        }
    }
    return true;
}

/* ---- over an axis ---------------------------------------------------------------------------- */

static double reduce_one(hir_opcode code, const double *x, int64_t n, int64_t stride) {
    double y = code == HIR_REDUCE_MAX_OP ? x[0] : 0;
    for (int64_t i = 0; i < n; i++)
        y = code == HIR_REDUCE_MAX_OP ? larger(y, x[i * stride]) : y + x[i * stride];
    return code == HIR_REDUCE_MEAN_OP ? y / (double)n : y;
}

/* max + ln sum e^(x - max) */
static double logsumexp(const double *x, int64_t n, int64_t stride) {
    double max = reduce_one(HIR_REDUCE_MAX_OP, x, n, stride), sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i * stride] - max);
    return max + log(sum);
}

bool eval_reduce(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    eval_cut cut = eval_cut_at(x[0]->type, hir_attr_int(op, HIR_A_AXIS, 0));
    for (int64_t o = 0; o < cut.outer; o++)
        for (int64_t i = 0; i < cut.inner; i++) {
            const double *from = x[0]->at + o * cut.n * cut.inner + i;
            y->at[o * cut.inner + i] = op->code == HIR_LOGSUMEXP_OP
                                           ? logsumexp(from, cut.n, cut.inner)
                                           : reduce_one(op->code, from, cut.n, cut.inner);
        }
    return true;
}

bool eval_softmax(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    eval_cut cut = eval_cut_at(x[0]->type, hir_attr_int(op, HIR_A_AXIS, 0));
    for (int64_t o = 0; o < cut.outer; o++)
        for (int64_t i = 0; i < cut.inner; i++) {
            const double *from = x[0]->at + o * cut.n * cut.inner + i;
            double *to = y->at + o * cut.n * cut.inner + i;
            double max = reduce_one(HIR_REDUCE_MAX_OP, from, cut.n, cut.inner), sum = 0;
            for (int64_t k = 0; k < cut.n; k++)
                sum += to[k * cut.inner] = exp(from[k * cut.inner] - max);
            for (int64_t k = 0; k < cut.n; k++)
                to[k * cut.inner] /= sum;
        }
    return true;
}

/* ---- normalisation over the last axis -------------------------------------------------------- */

static double gain_at(const hir_array *gain, int64_t i) {
    return gain ? gain->at[i] : 1;
}

bool eval_rmsnorm(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    double eps = hir_attr_float(op, HIR_A_EPS, 0);
    int64_t n = x[0]->type.dim[x[0]->type.rank - 1];
    for (int64_t row = 0; row < y->n; row += n) {
        const double *from = x[0]->at + row;
        double scale = 1 / sqrt(eval_dot(from, from, n) / (double)n + eps);
        for (int64_t i = 0; i < n; i++)
            y->at[row + i] = from[i] * scale * gain_at(x[1], i);
    }
    return true;
}

bool eval_layernorm(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y) {
    (void)c;
    double eps = hir_attr_float(op, HIR_A_EPS, 0);
    int64_t n = x[0]->type.dim[x[0]->type.rank - 1];
    for (int64_t row = 0; row < y->n; row += n) {
        const double *from = x[0]->at + row;
        double mean = reduce_one(HIR_REDUCE_MEAN_OP, from, n, 1), var = 0;
        for (int64_t i = 0; i < n; i++)
            var += (from[i] - mean) * (from[i] - mean);
        double scale = 1 / sqrt(var / (double)n + eps);
        for (int64_t i = 0; i < n; i++)
            y->at[row + i] = (from[i] - mean) * scale * gain_at(x[1], i) + (x[2] ? x[2]->at[i] : 0);
    }
    return true;
}
