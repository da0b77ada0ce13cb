/* Matches a weight of attention over depth, with its softmax or sigmoid written in any of these
 * ways:
 *
 *     softmax   the op; e^s / sum e^s of a stack, by a division or a product with the reciprocal;
 *               the same for each source, e_i / (e_0 + e_1 + ..); or e^s alone, where the whole sum
 *               of e^s x is divided. A mean in place of the sum gives a constant factor.
 *     sigmoid   the op; 1 / (1 + e^-s); e^s / (1 + e^s); and 1 / (1 + e^s), the sigmoid of -s.
 */
#include "passes/depth/depth.h"

static depth_view operand(const hir_module *m, depth_view v, uint32_t arg) {
    return depth_through(m, depth_operand(m, v, arg));
}

static bool same_view(depth_view a, depth_view b) {
    return hir_ref_equal(a.v, b.v) && a.axis == b.axis && a.i == b.i;
}

/* ---- sums of exponentials ------------------------------------------------------------------- */
/* Is v the sum or the mean of a value over one dim? */
static bool reduced(const hir_module *m, depth_view v, hir_ref *of, int *axis, double *times) {
    const hir_opcode code = depth_code(m, v.v);
    if (v.axis >= 0 || (code != HIR_REDUCE_SUM_OP && code != HIR_REDUCE_MEAN_OP)) return false;
    const hir_id op = pass_def(m, v.v);
    *of = pass_arg(m, op, 0);
    *axis = (int)hir_attr_int(hir_op_at(m, op), HIR_A_AXIS, 0);
    *times = code == HIR_REDUCE_MEAN_OP ? (double)hir_ref_type(m, *of).dim[*axis] : 1;
    return true;
}

/* Finds x of e^(x - max x) or e^x. */
static bool exponent(const hir_module *m, hir_ref e, int axis, hir_ref *x) {
    hir_id exp = pass_def_if(m, e, HIR_EXP_OP);
    if (exp == HIR_NONE) return false;
    *x = pass_arg(m, exp, 0);
    hir_id sub = pass_def_if(m, *x, HIR_SUB_OP);
    if (sub == HIR_NONE) return true;
    depth_view max = depth_through(m, (depth_view){pass_arg(m, sub, 1), -1, 0});
    hir_id reduce = pass_def_if(m, max.v, HIR_REDUCE_MAX_OP);
    if (reduce != HIR_NONE && hir_ref_equal(pass_arg(m, reduce, 0), pass_arg(m, sub, 0)) &&
        hir_attr_int(hir_op_at(m, reduce), HIR_A_AXIS, 0) == axis)
        *x = pass_arg(m, sub, 0);
    return true;
}

/* The logits of the exponentials e, in the same shape. */
static bool logits_of(const hir_module *m, hir_ref e, int axis, hir_ref *logits) {
    return exponent(m, e, axis, logits) && hir_ref_type(m, *logits).rank == hir_ref_type(m, e).rank;
}

/* Is any summand of an addition, or the first element of a summed stack, an exponential? The other
 * summands are checked later. */
static bool has_exp(const hir_module *m, depth_view sum) {
    hir_ref of;
    int axis;
    double times;
    for (; depth_code(m, sum.v) == HIR_ADD_OP; sum = operand(m, sum, 0))
        for (uint32_t i = 0; i < 2; i++)
            if (depth_code(m, operand(m, sum, i).v) == HIR_EXP_OP) return true;
    return reduced(m, sum, &of, &axis, &times) &&
           depth_code(m, depth_through(m, (depth_view){of, axis, 0}).v) == HIR_EXP_OP;
}

typedef HD_VEC(depth_view) views;

enum { MOST_SUMMANDS = 1 << 16 }; /* values are shared, so trees can be exponential */

static void collect(const hir_module *m, hd_arena *a, depth_view v, views *out) {
    views left = {0};
    hd_push(a, &left, v);
    while (left.n && out->n + left.n < MOST_SUMMANDS) {
        v = left.at[--left.n];
        if (depth_code(m, v.v) != HIR_ADD_OP) {
            hd_push(a, out, v);
            continue;
        }
        for (uint32_t i = 2; i-- > 0;)
            hd_push(a, &left, operand(m, v, i));
    }
}

static views summands(const hir_module *m, hd_arena *a, depth_view sum) {
    views out = {0};
    hir_ref of;
    int axis;
    double times;
    if (!reduced(m, sum, &of, &axis, &times)) {
        collect(m, a, sum, &out);
        return out;
    }
    for (int64_t i = 0; i < hir_ref_type(m, of).dim[axis] && i < MOST_SUMMANDS; i++)
        hd_push(a, &out, depth_through(m, (depth_view){of, axis, (uint32_t)i}));
    return out;
}

/* ---- softmax -------------------------------------------------------------------------------- */
/* Numerator and denominator of y / d or y * recip(d), as views. */
static bool quotient_of(const hir_module *m, depth_view w, uint32_t side, depth_view *above,
                        depth_view *below) {
    const hir_opcode code = depth_code(m, w.v);
    if (code != HIR_MUL_OP && (code != HIR_DIV_OP || side == 1)) return false;
    *above = depth_operand(m, w, side);
    *below = operand(m, w, 1 - side);
    if (code == HIR_DIV_OP) return true;
    if (depth_code(m, below->v) != HIR_RECIP_OP) return false;
    *below = operand(m, *below, 0);
    return true;
}

/* Reads e / sum e, where e is one value with all exponentials. */
static bool read_stacked(const hir_module *m, depth_view w, depth_view above, depth_view below,
                         depth_weight *out) {
    hir_ref of;
    int axis;
    if (w.axis < 0 || !reduced(m, below, &of, &axis, &out->factor)) return false;
    if (axis != w.axis || !hir_ref_equal(of, above.v) || !logits_of(m, of, axis, &out->logits))
        return false;
    out->kind = DEPTH_SOFTMAX;
    return hir_ref_type(m, out->logits).rank == hir_ref_type(m, w.v).rank;
}

/* Reads e_i / (e_0 + e_1 + ..). Whether e_i is one of the summands is checked when all weights are
 * known. */
static bool read_quotient(const hir_module *m, depth_view above, depth_view below,
                          depth_weight *out) {
    hir_ref of;
    int axis;
    above = depth_through(m, above);
    if (depth_code(m, above.v) != HIR_EXP_OP || !has_exp(m, below)) return false;
    out->kind = DEPTH_QUOTIENT;
    out->exp = above;
    out->sum = below;
    if (!reduced(m, below, &of, &axis, &out->factor)) out->factor = 1;
    return true;
}

/* Reads e^(s - ln sum e^s). */
static bool read_logsumexp(const hir_module *m, depth_view w, depth_weight *out) {
    const hir_id sub = pass_def_if(m, pass_arg(m, pass_def(m, w.v), 0), HIR_SUB_OP);
    if (sub == HIR_NONE || w.axis < 0) return false;
    const depth_view below = depth_through(m, (depth_view){pass_arg(m, sub, 1), -1, 0});
    const hir_id sum = pass_def_if(m, below.v, HIR_LOGSUMEXP_OP);
    if (sum == HIR_NONE || below.axis >= 0) return false;
    out->kind = DEPTH_SOFTMAX;
    out->logits = pass_arg(m, sub, 0);
    return hir_ref_equal(pass_arg(m, sum, 0), out->logits) &&
           hir_attr_int(hir_op_at(m, sum), HIR_A_AXIS, 0) == w.axis &&
           hir_ref_type(m, out->logits).rank == hir_ref_type(m, w.v).rank;
}

static bool read_softmax(const hir_module *m, depth_view w, depth_weight *out) {
    const hir_id op = pass_def(m, w.v);
    depth_view above, below;
    if (op == HIR_NONE) return false;
    const hir_op *o = hir_op_at(m, op);
    if (o->code == HIR_EXP_OP) return read_logsumexp(m, w, out);
    if (o->code == HIR_SOFTMAX_OP) {
        *out = (depth_weight){.kind = DEPTH_SOFTMAX, .logits = o->args[0], .factor = 1};
        return w.axis >= 0 && hir_attr_int(o, HIR_A_AXIS, 0) == w.axis;
    }
    for (uint32_t side = 0; side < 2; side++)
        if (quotient_of(m, w, side, &above, &below) && read_stacked(m, w, above, below, out))
            return true;
    for (uint32_t side = 0; side < 2; side++)
        if (quotient_of(m, w, side, &above, &below) && read_quotient(m, above, below, out))
            return true;
    return false;
}

/* Reads e^s, where the sum of e^s x is divided as a whole. */
static bool read_undivided(const hir_module *m, depth_view w, const depth_divisor *d,
                           depth_weight *out) {
    if (depth_code(m, w.v) != HIR_EXP_OP) return false;
    out->factor = d->times;
    if (d->exps.kind == HIR_REF_NONE) {
        out->kind = DEPTH_QUOTIENT;
        out->exp = w;
        out->sum = d->sum;
        return true;
    }
    out->kind = DEPTH_SOFTMAX;
    return hir_ref_equal(w.v, d->exps) && w.axis == d->axis &&
           logits_of(m, w.v, w.axis, &out->logits);
}

bool depth_read_divisor(const hir_module *m, hir_id op, uint32_t side, depth_divisor *out) {
    const depth_view quotient = {hir_value_ref(hir_result(m, op)), -1, 0};
    depth_view above, below;
    *out = (depth_divisor){.exps = hir_no_ref(), .times = 1};
    if (!quotient_of(m, quotient, 1 - side, &above, &below)) return false;
    if (reduced(m, below, &out->exps, &out->axis, &out->times) &&
        depth_code(m, out->exps) == HIR_EXP_OP)
        return true;
    out->exps = hir_no_ref();
    out->sum = below;
    return has_exp(m, below);
}

const char *depth_match_quotients(const hir_module *m, hd_arena *a, depth_weight *const *w,
                                  size_t n, bool *is_part) {
    const views all = summands(m, a, w[0]->sum);
    bool *seen = hd_new_array(a, bool, all.n + 1);
    bool shifted = true;
    depth_view shift = {0};
    for (size_t i = 0; i < all.n; i++)
        if (depth_code(m, all.at[i].v) != HIR_EXP_OP)
            return "the divisor of the weights is not only a sum of exponentials";
    *is_part = all.n > n;
    if (all.n != n) return "the softmax is over more than the sources";
    for (size_t k = 0; k < n; k++) {
        size_t i = 0;
        if (!same_view(w[k]->sum, w[0]->sum)) return "the weights come from different softmaxes";
        while (i < n && (seen[i] || !same_view(all.at[i], w[k]->exp)))
            i++;
        if (i == n)
            return "a weight is used twice, or is not among the exponentials of its divisor";
        seen[i] = true;
        w[k]->score = operand(m, w[k]->exp, 0);
        const bool sub = depth_code(m, w[k]->score.v) == HIR_SUB_OP;
        const depth_view by = sub ? operand(m, w[k]->score, 1) : (depth_view){0};
        if (k == 0) shift = by;
        shifted &= sub && same_view(by, shift);
    }
    for (size_t k = 0; shifted && k < n; k++) /* e^(s - m) with one m for all is the same softmax */
        w[k]->score = operand(m, w[k]->score, 0);
    return NULL;
}

/* ---- sigmoid -------------------------------------------------------------------------------- */
static bool is_one(const hir_module *m, depth_view v) {
    double c;
    return pass_const(m, v.v, &c) && c == 1;
}

/* Finds e of 1 + e, where e is an exponential. */
static bool is_one_and_exp(const hir_module *m, depth_view v, depth_view *e) {
    v = depth_through(m, v);
    if (depth_code(m, v.v) != HIR_ADD_OP) return false;
    for (uint32_t i = 0; i < 2; i++) {
        *e = operand(m, v, i);
        if (depth_code(m, e->v) == HIR_EXP_OP && is_one(m, operand(m, v, 1 - i))) return true;
    }
    return false;
}

static bool read_sigmoid(const hir_module *m, depth_view w, depth_weight *out) {
    const hir_opcode code = depth_code(m, w.v);
    depth_view e;
    *out = (depth_weight){.kind = DEPTH_SIGMOID, .sign = 1, .factor = 1};
    if (code == HIR_SIGMOID_OP) {
        out->score = depth_operand(m, w, 0);
        return true;
    }
    if (code != HIR_RECIP_OP && code != HIR_DIV_OP) return false;
    if (!is_one_and_exp(m, depth_operand(m, w, code == HIR_DIV_OP), &e)) return false;
    out->score = depth_operand(m, e, 0);
    if (code == HIR_DIV_OP) {
        const depth_view over = operand(m, w, 0);
        if (same_view(over, e)) return true;
        if (!is_one(m, over)) return false;
    }
    const depth_view minus = depth_through(m, out->score);
    if (depth_code(m, minus.v) == HIR_NEG_OP)
        out->score = depth_operand(m, minus, 0);
    else
        out->sign = -1;
    return true;
}

/* ---- any weight ----------------------------------------------------------------------------- */
bool depth_read_weight(const hir_module *m, depth_view w, const depth_divisor *d,
                       depth_weight *out) {
    *out = (depth_weight){.logits = hir_no_ref(), .sign = 1, .factor = 1};
    if (d) return read_undivided(m, w, d, out);
    return read_sigmoid(m, w, out) || read_softmax(m, w, out);
}
