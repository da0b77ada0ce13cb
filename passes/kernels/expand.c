/* expand: composite ops in row programs and in per-head epilogues become primitives.
 *
 * Needs    kernels.
 * Does     in kernels, with 1/sqrt, reductions and elementwise ops only:
 *            rmsnorm    y = x * rsqrt(mean(x^2) + eps) * gain, with x scaled where it is squared;
 *                       of a blend of two rows: see expand_blend.c
 *            layernorm  c = x - mean x; y = c * rsqrt(mean(c^2) + eps) * gain + bias
 *            softmax    e = exp(x - max x); y = e * (1 / sum e)
 *            logsumexp  max x + log(sum exp(x - max x))
 *            pad        zeros, x and zeros in a row
 *            linear     y = sum over k of x[.., 1, k] * w[n, k] (+ bias)
 *            depth.*    see expand_depth.c
 *          A reduction removes its axis; a reshape restores it as a 1 for the broadcast.
 * Leaves   linear ops of contractions; sequence kernels, which contain no composites.
 *
 * Numbers. softmax subtracts the maximum first: exponents are at most 0, the sum is at least 1 and
 * never overflows; -inf logits give exact zeros if another is finite. Norms add eps under the root,
 * as the definition does: x = 0 gives 0, and norms below sqrt(eps) need no special case. The
 * variance of layernorm is the mean of squared differences and not mean(x^2) - mean(x)^2, which
 * suffers from cancellation when the mean is large.
 */
#include <float.h>
#include <math.h>

#include "passes/kernels/expand.h"

static bool is_given(hir_ref r) {
    return r.kind != HIR_REF_NONE;
}

hir_ref expand_reduce(expander *e, hir_opcode code, hir_ref x, uint32_t axis) {
    hir_type t = pass_keep_one(hir_ref_type(e->m, x), axis);
    hir_ref r = pass_reduce(&e->b, code, x, axis);
    t.dtype = HIR_F32;
    return is_given(r) ? pass_reshape(&e->b, r, t) : r;
}

/* ---- norms --------------------------------------------------------------------------------- */
hir_ref expand_mean_product(expander *e, hir_ref a, hir_ref b) {
    hir_ref products = hir_emit2(&e->b, HIR_MUL_OP, a, b);
    if (!is_given(products)) return products;
    return expand_reduce(e, HIR_REDUCE_MEAN_OP, products, hir_ref_type(e->m, products).rank - 1);
}

static expand_square *square_of(expander *e, hir_ref x) {
    for (size_t i = 0; i < e->squares.n; i++)
        if (hir_ref_equal(e->squares.at[i].x, x)) return &e->squares.at[i];
    hd_push(e->c->scratch, &e->squares, ((expand_square){.x = x}));
    return &e->squares.at[e->squares.n - 1];
}

hir_ref expand_scaled(expander *e, hir_ref x) {
    expand_square *s = square_of(e, x);
    if (!is_given(s->scaled))
        s->scaled = hir_emit2(&e->b, HIR_MUL_OP, x, hir_emit_const(&e->b, expand_scale));
    return s->scaled;
}

hir_ref expand_mean_square(expander *e, hir_ref x) {
    expand_square *s = square_of(e, x);
    if (!is_given(s->plain)) s->plain = expand_mean_product(e, x, x);
    return s->plain;
}

static hir_ref scaled_mean_square(expander *e, hir_ref x) {
    hir_ref scaled = expand_scaled(e, x);
    expand_square *s = square_of(e, x);
    if (is_given(scaled) && !is_given(s->mean)) s->mean = expand_mean_product(e, scaled, scaled);
    return s->mean;
}

static hir_ref inverse_root(expander *e, hir_ref mean, hir_ref eps) {
    if (is_given(mean)) mean = hir_emit2(&e->b, HIR_ADD_OP, mean, eps);
    return is_given(mean) ? hir_emit1(&e->b, HIR_RSQRT_OP, mean) : mean;
}

/* s rsqrt(mean + eps), where the mean is that of a value scaled by s */
static hir_ref inverse_of_scaled(expander *e, hir_ref mean, hir_ref eps, hir_ref s) {
    hir_ref r = inverse_root(e, mean, eps);
    return is_given(r) ? hir_emit2(&e->b, HIR_MUL_OP, r, s) : r;
}

hir_ref expand_inverse_root(expander *e, hir_ref mean, double eps) {
    return inverse_root(e, mean, hir_emit_const(&e->b, eps));
}

hir_ref expand_inverse_scaled(expander *e, hir_ref mean, double eps) {
    const double s = expand_scale;
    return inverse_of_scaled(e, mean, hir_emit_const(&e->b, eps * s * s), hir_emit_const(&e->b, s));
}

hir_ref expand_inverse_where(expander *e, hir_ref c, hir_ref scaled, double eps) {
    hir_ref square = hir_emit2(&e->b, HIR_MUL_OP, scaled, scaled);
    if (is_given(square)) square = hir_emit2(&e->b, HIR_WHEN_OP, c, square);
    if (!is_given(square)) return square;
    hir_ref mean =
        expand_reduce(e, HIR_REDUCE_MEAN_OP, square, hir_ref_type(e->m, square).rank - 1);
    hir_ref r = expand_inverse_scaled(e, mean, eps);
    return is_given(r) ? hir_emit2(&e->b, HIR_WHEN_OP, c, r) : r;
}

/* rsqrt(mean(x^2) + eps) from the squares of the unscaled x, which saves a multiplication per
 * element; where the mean overflows (mean - FLT_MAX is above 0), from x scaled. Terms that
 * underflow are below 2^-126, far below any eps. */
static hir_ref inverse_of_plain(expander *e, hir_ref x, double eps) {
    hir_builder *b = &e->b;
    hir_ref mean = expand_mean_square(e, x), scaled = expand_scaled(e, x);
    if (!is_given(mean) || !is_given(scaled)) return hir_no_ref();
    hir_ref one = hir_emit_const(b, 1);
    hir_ref over = hir_emit2(b, HIR_SUB_OP, mean, hir_emit_const(b, FLT_MAX));
    if (is_given(over)) over = hir_emit2(b, HIR_WHEN_OP, over, one);
    hir_ref fits = is_given(over) ? hir_emit2(b, HIR_SUB_OP, one, over) : over;
    hir_ref r = expand_inverse_root(e, mean, eps);
    if (!is_given(fits) || !is_given(r)) return hir_no_ref();
    r = hir_emit2(b, HIR_WHEN_OP, fits, r);
    hir_ref again = expand_inverse_where(e, over, scaled, eps);
    return is_given(r) && is_given(again) ? hir_emit2(b, HIR_ADD_OP, r, again) : hir_no_ref();
}

/* Is inverse_of_plain worth it, with an extra loop that is skipped for almost all tokens? Where the
 * mean is a scalar of the token, so that the loop can be skipped, and the main loop is bound by
 * arithmetic: for scores of sources. */
static bool is_summed_plain(expander *e, hir_id op, hir_ref x) {
    const hir_op *o = hir_op_at(e->m, op);
    hir_type t = hir_ref_type(e->m, x);
    return o->code == HIR_DEPTH_INVERSE_RMS_OP && t.rank == 2 && hir_type_has_t(t) &&
           hir_op_at(e->m, o->parent)->code == HIR_KERNEL_ROW_OP &&
           !is_given(square_of(e, x)->mean);
}

/* rsqrt(mean(x^2) + eps) over the last axis, which becomes 1, for x of any size, as the elements of
 * a residual stream may be large. x is scaled down by expand_scale; for an eps so small that
 * underflow would matter, x is divided by its largest element, or by sqrt(eps) if that is
 * larger. */
static hir_ref inverse_rms(expander *e, hir_id op, hir_ref x, double eps) {
    const double least = 0x1p-100;
    hir_builder *b = &e->b;
    if (eps >= expand_least_eps)
        return is_summed_plain(e, op, x) ? inverse_of_plain(e, x, eps)
                                         : expand_inverse_scaled(e, scaled_mean_square(e, x), eps);
    hir_ref size = hir_emit1(b, HIR_ABS_OP, x);
    if (!is_given(size)) return size;
    size = expand_reduce(e, HIR_REDUCE_MAX_OP, size, hir_ref_type(e->m, x).rank - 1);
    if (!is_given(size)) return size;
    size = hir_emit2(b, HIR_MAX_OP, size, hir_emit_const(b, fmax(sqrt(eps), least)));
    hir_ref scale = hir_emit1(b, HIR_RECIP_OP, size);
    hir_ref root = hir_emit2(b, HIR_MUL_OP, scale, hir_emit_const(b, sqrt(eps)));
    hir_ref y = is_given(root) ? hir_emit2(b, HIR_MUL_OP, x, scale) : root;
    hir_ref mean = is_given(y) ? expand_mean_product(e, y, y) : y;
    return is_given(mean) ? inverse_of_scaled(e, mean, hir_emit2(b, HIR_MUL_OP, root, root), scale)
                          : mean;
}

static hir_ref times(expander *e, hir_ref x, hir_ref gain) {
    return is_given(gain) ? hir_emit2(&e->b, HIR_MUL_OP, x, gain) : x;
}

static double eps_of(const expander *e, hir_id op) {
    return hir_attr_float(hir_op_at(e->m, op), HIR_A_EPS, 0);
}

static hir_ref rmsnorm(expander *e, hir_id op) {
    hir_ref x = pass_arg(e->m, op, 0);
    size_t errors = e->c->diags->errors;
    hir_ref r = expand_norm_of_blend(e, op);
    if (!is_given(r) && e->c->diags->errors == errors) r = inverse_rms(e, op, x, eps_of(e, op));
    hir_ref y = hir_emit2(&e->b, HIR_MUL_OP, x, r);
    return times(e, y, pass_arg(e->m, op, 1));
}

static hir_ref layernorm(expander *e, hir_id op) {
    hir_ref x = pass_arg(e->m, op, 0), bias = pass_arg(e->m, op, 2);
    uint32_t last = hir_ref_type(e->m, x).rank - 1;
    hir_ref centred =
        hir_emit2(&e->b, HIR_SUB_OP, x, expand_reduce(e, HIR_REDUCE_MEAN_OP, x, last));
    if (!is_given(centred)) return centred;
    hir_ref y = hir_emit2(&e->b, HIR_MUL_OP, centred, inverse_rms(e, op, centred, eps_of(e, op)));
    y = times(e, y, pass_arg(e->m, op, 1));
    return is_given(bias) ? hir_emit2(&e->b, HIR_ADD_OP, y, bias) : y;
}

/* exp(x - max x) over `axis`; computed once for softmax and logsumexp of the same x, which phase 1
 * has. NULL after a diagnostic. */
static const expand_powers *powers_of(expander *e, hir_ref x, uint32_t axis) {
    for (size_t i = 0; i < e->powers.n; i++)
        if (hir_ref_equal(e->powers.at[i].x, x) && e->powers.at[i].axis == axis)
            return &e->powers.at[i];
    expand_powers p = {.x = x, .axis = axis};
    p.max = pass_reduce(&e->b, HIR_REDUCE_MAX_OP, x, axis);
    if (!is_given(p.max)) return NULL;
    hir_type keep = pass_keep_one(hir_ref_type(e->m, x), axis);
    hir_ref below = hir_emit2(&e->b, HIR_SUB_OP, x, pass_reshape(&e->b, p.max, keep));
    p.power = hir_emit1(&e->b, HIR_EXP_OP, below);
    if (is_given(p.power)) p.sum = pass_reduce(&e->b, HIR_REDUCE_SUM_OP, p.power, axis);
    if (!is_given(p.power) || !is_given(p.sum)) return NULL;
    hd_push(e->c->scratch, &e->powers, p);
    return &e->powers.at[e->powers.n - 1];
}

static hir_ref softmax(expander *e, hir_id op) {
    const hir_ref x = pass_arg(e->m, op, 0);
    const uint32_t axis = (uint32_t)hir_attr_int(hir_op_at(e->m, op), HIR_A_AXIS, 0);
    const expand_powers *p = powers_of(e, x, axis);
    if (!p) return hir_no_ref();
    hir_ref factor = hir_emit1(&e->b, HIR_RECIP_OP, p->sum);
    hir_type keep = pass_keep_one(hir_ref_type(e->m, p->power), axis);
    return hir_emit2(&e->b, HIR_MUL_OP, p->power, pass_reshape(&e->b, factor, keep));
}

/* max x + ln sum e^(x - max x) */
static hir_ref logsumexp(expander *e, hir_id op) {
    const hir_ref x = pass_arg(e->m, op, 0);
    const uint32_t axis = (uint32_t)hir_attr_int(hir_op_at(e->m, op), HIR_A_AXIS, 0);
    const expand_powers *p = powers_of(e, x, axis);
    if (!p) return hir_no_ref();
    return hir_emit2(&e->b, HIR_ADD_OP, p->max, hir_emit1(&e->b, HIR_LOG_OP, p->sum));
}

/* 1 at the target of each row of logits, [T, V]; all 0 where none counts. */
static hir_ref marked(expander *e, hir_ref ids, hir_type logits) {
    hir_type one = pass_keep_one(logits, 1);
    one.dtype = HIR_I32;
    const hir_ref id = pass_reshape(&e->b, ids, one);
    const hir_attr length = hir_int(HIR_A_LENGTH, logits.dim[1]);
    return is_given(id) ? hir_emit(&e->b, HIR_MARK_OP, &id, 1, &length, 1) : id;
}

/* ln sum e^logits - the logit of the target, which is what is left of the row where ids are
 * marked; 0 where no id is. */
static hir_ref cross_entropy(expander *e, hir_id op) {
    const hir_ref x = pass_arg(e->m, op, 0), ids = pass_arg(e->m, op, 1);
    const hir_type t = hir_ref_type(e->m, x);
    const expand_powers *p = powers_of(e, x, 1);
    if (!p) return hir_no_ref();
    const hir_ref mark = marked(e, ids, t);
    if (!is_given(mark)) return mark;
    const hir_ref target =
        pass_reduce(&e->b, HIR_REDUCE_SUM_OP, hir_emit2(&e->b, HIR_WHEN_OP, mark, x), 1);
    const hir_ref below = hir_emit2(&e->b, HIR_SUB_OP, p->max, target);
    const hir_ref y = hir_emit2(&e->b, HIR_ADD_OP, hir_emit1(&e->b, HIR_LOG_OP, p->sum), below);
    return hir_emit2(&e->b, HIR_WHEN_OP, pass_reduce(&e->b, HIR_REDUCE_MAX_OP, mark, 1), y);
}

/* dy (softmax(logits) - onehot), 0 where no id is marked. */
static hir_ref cross_entropy_grad(expander *e, hir_id op) {
    const hir_ref x = pass_arg(e->m, op, 0), ids = pass_arg(e->m, op, 1);
    const expand_powers *p = powers_of(e, x, 1);
    if (!p) return hir_no_ref();
    const hir_type t = hir_ref_type(e->m, x);
    const hir_type one = pass_keep_one(t, 1);
    const hir_ref mark = marked(e, ids, t);
    if (!is_given(mark)) return mark;
    const hir_ref counted = pass_reduce(&e->b, HIR_REDUCE_MAX_OP, mark, 1);
    hir_ref by = hir_emit2(&e->b, HIR_WHEN_OP, counted, pass_arg(e->m, op, 2));
    by = is_given(by) ? pass_reshape(&e->b, by, one) : by;
    const hir_ref sum = pass_reshape(&e->b, hir_emit1(&e->b, HIR_RECIP_OP, p->sum), one);
    hir_ref y = hir_emit2(&e->b, HIR_MUL_OP, p->power, sum);
    y = is_given(y) ? hir_emit2(&e->b, HIR_SUB_OP, y, mark) : y;
    return is_given(y) && is_given(by) ? hir_emit2(&e->b, HIR_MUL_OP, y, by) : hir_no_ref();
}

/* Value `i` of all parts, [T, n]. */
static hir_ref loss_part(expander *e, hir_ref parts, int64_t i) {
    const hir_attr attrs[] = {hir_int(HIR_A_AXIS, 1), hir_int(HIR_A_START, i),
                              hir_int(HIR_A_LENGTH, 1)};
    hir_type t = hir_ref_type(e->m, parts);
    const hir_ref x = hir_emit(&e->b, HIR_SLICE_OP, &parts, 1, attrs, 3);
    t.dim[1] = t.dim[2], t.rank = 2;
    return is_given(x) ? pass_reshape(&e->b, x, t) : x;
}

static hir_ref sum_of_parts(expander *e, hir_ref x) {
    return is_given(x) ? pass_reduce(&e->b, HIR_REDUCE_SUM_OP, x, 1) : x;
}

static hir_ref cross_entropy_merge(expander *e, hir_id op) {
    const hir_ref parts = pass_arg(e->m, op, 0);
    const hir_ref m = loss_part(e, parts, HIR_LOSS_MOST), s = loss_part(e, parts, HIR_LOSS_SUM);
    if (!is_given(m) || !is_given(s)) return hir_no_ref();
    const hir_ref most = pass_reduce(&e->b, HIR_REDUCE_MAX_OP, m, 1);
    if (!is_given(most)) return most;
    const hir_type keep = pass_keep_one(hir_ref_type(e->m, m), 1);
    hir_ref below = hir_emit2(&e->b, HIR_SUB_OP, m, pass_reshape(&e->b, most, keep));
    const hir_ref powers = hir_emit2(&e->b, HIR_MUL_OP, s, hir_emit1(&e->b, HIR_EXP_OP, below));
    const hir_ref all = hir_emit1(&e->b, HIR_LOG_OP, sum_of_parts(e, powers));
    const hir_ref target = sum_of_parts(e, loss_part(e, parts, HIR_LOSS_TARGET));
    const hir_ref counted = sum_of_parts(e, loss_part(e, parts, HIR_LOSS_COUNTED));
    below = hir_emit2(&e->b, HIR_SUB_OP, most, target);
    return hir_emit2(&e->b, HIR_WHEN_OP, counted, hir_emit2(&e->b, HIR_ADD_OP, all, below));
}

/* Zeros of the type of x, but `length` long. */
static hir_ref zeros(expander *e, hir_type t, uint32_t axis, int64_t length) {
    t.dim[axis] = length;
    const hir_attr attrs[] = {hir_float(HIR_A_VALUE, 0), hir_ints(HIR_A_SHAPE, t.dim, t.rank)};
    return hir_emit(&e->b, HIR_CONST_OP, NULL, 0, attrs, 2);
}

static hir_ref pad(expander *e, hir_id op) {
    const hir_op o = *hir_op_at(e->m, op);
    const uint32_t axis = (uint32_t)hir_attr_int(&o, HIR_A_AXIS, 0);
    const hir_type t = hir_ref_type(e->m, o.args[0]);
    const int64_t before = hir_attr_int(&o, HIR_A_START, 0);
    const int64_t after = hir_attr_int(&o, HIR_A_LENGTH, 0) - before - t.dim[axis];
    hir_ref parts[3];
    uint32_t n = 0;
    if (before) parts[n++] = zeros(e, t, axis, before);
    parts[n++] = o.args[0];
    if (after) parts[n++] = zeros(e, t, axis, after);
    for (uint32_t i = 0; i < n; i++)
        if (!is_given(parts[i])) return hir_no_ref();
    const hir_attr attr = hir_int(HIR_A_AXIS, axis);
    return n == 1 ? parts[0] : hir_emit(&e->b, HIR_CONCAT_OP, parts, n, &attr, 1);
}

static hir_ref depth_inverse_rms(expander *e, hir_id op) {
    return inverse_rms(e, op, pass_arg(e->m, op, 0), eps_of(e, op));
}

static hir_ref depth_op(expander *e, hir_id op) {
    return depth_expand(&e->b, e->c->scratch, op, e->one_by_one);
}

static hir_ref linear(expander *e, hir_id op) {
    return pass_linear_as_rows(&e->b, pass_arg(e->m, op, 0), pass_arg(e->m, op, 1),
                               pass_arg(e->m, op, 2));
}

/* The expansion of an op; none if it is a primitive. */
static hir_ref (*expansion(hir_opcode code))(expander *, hir_id) {
    switch ((int)code) {
    case HIR_RMSNORM_OP: return rmsnorm;
    case HIR_LAYERNORM_OP: return layernorm;
    case HIR_SOFTMAX_OP: return softmax;
    case HIR_LINEAR_OP: return linear;
    case HIR_PAD_OP: return pad;
    case HIR_LOGSUMEXP_OP: return logsumexp;
    case HIR_CROSS_ENTROPY_OP: return cross_entropy;
    case HIR_CROSS_ENTROPY_GRAD_OP: return cross_entropy_grad;
    case HIR_CROSS_ENTROPY_MERGE_OP: return cross_entropy_merge;
    case HIR_DEPTH_INVERSE_RMS_OP: return depth_inverse_rms;
    case HIR_DEPTH_SCORES_OP:
    case HIR_DEPTH_MIX_OP:
    case HIR_DEPTH_MERGE_OP: return depth_op;
    default: return NULL;
    }
}

/* ---- unrolling over sources ------------------------------------------------------------------ */
/* The number of sources that a kernel scores; `several`: against more than one query, as in phase
 * 1. Scores are [T, n, S(, H)]. */
static int64_t scored_sources(const hir_module *m, hir_id kernel, bool *several) {
    *several = false;
    if (!hir_is_kernel(hir_op_at(m, kernel))) return 0;
    HIR_EACH(m, op, hir_op_at(m, kernel)->body_first) {
        if (hir_op_at(m, op)->code != HIR_DEPTH_SCORES_OP) continue;
        const hir_type t = pass_result_type(m, op);
        *several = t.dim[2] > 1;
        return t.dim[1];
    }
    return 0;
}

/* The most sources that are unrolled. Every number of unrolled sources is a function of its own in
 * the generated code, so if phase 1 has more than FORMS different numbers of sources, all of them
 * use the loop form. With one query, few sources are faster unrolled even if there are more than
 * FORMS_OF_ONE numbers of them. */
static uint32_t most_one_by_one(const hir_module *m, bool of_several) {
    enum { FORMS = 4, FORMS_OF_ONE = 6, FEW_OF_MANY = 4 };
    const uint32_t forms = of_several ? FORMS : FORMS_OF_ONE;
    int64_t seen[FORMS_OF_ONE];
    uint32_t n = 0;
    HIR_EACH(m, kernel, m->first) {
        bool several;
        const int64_t sources = scored_sources(m, kernel, &several);
        uint32_t i = 0;
        while (i < n && seen[i] != sources)
            i++;
        if (sources < 2 || several != of_several || i < n) continue;
        if (n == forms) return of_several ? 1 : FEW_OF_MANY;
        seen[n++] = sources;
    }
    return DEPTH_FEW;
}

static bool expand_body(expander *e, hir_id kernel) {
    e->squares.n = e->powers.n = 0;
    bool several;
    scored_sources(e->m, kernel, &several);
    e->one_by_one = e->most_one_by_one[several];
    bool contract = hir_op_at(e->m, kernel)->code == HIR_KERNEL_CONTRACT_OP;
    HIR_EACH(e->m, op, hir_op_at(e->m, kernel)->body_first) {
        pass_forward_args(&e->forward, e->m, op);
        hir_opcode code = hir_op_at(e->m, op)->code;
        hir_ref (*make)(expander *, hir_id) = expansion(code);
        if (!make || (contract && code == HIR_LINEAR_OP)) continue;
        e->b = hir_before(e->m, e->c->diags, op);
        hir_ref y = make(e, op);
        if (!is_given(y)) return false;
        hir_id result = hir_result(e->m, op);
        if (y.kind == HIR_REF_VALUE && hir_value_at(e->m, result)->name) { /* keeps its name */
            hir_value_at(e->m, y.index)->name = hir_value_at(e->m, result)->name;
            hir_value_at(e->m, result)->name = NULL;
        }
        pass_forward_op(&e->forward, e->m, op, y);
        e->c->changed = true;
    }
    return true;
}

bool pass_expand(hir_pass_context *c) {
    expander e = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    for (int several = 0; several < 2; several++)
        e.most_one_by_one[several] = most_one_by_one(e.m, several);
    HIR_EACH(e.m, op, e.m->first)
    if (hir_is_kernel(hir_op_at(e.m, op)) && !expand_body(&e, op)) return false;
    pass_forward_finish(&e.forward, e.m);
    return true;
}
