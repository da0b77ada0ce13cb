/* The RMS of a blend of two rows, from their dot products.
 *
 *     h = u a + w b
 *
 * is what phase 2 of attention over depth computes: a is the result of phase 1, b the newest source
 * (the running sum of the present residual block), w its weight and u = 1 - w (depth.merge, as a +
 * w (b - a)); and in the first residual block, where a is the only finished source (depth.mix of
 * two). Whatever u and w are,
 *
 *     mean h^2 = u^2 mean a^2 + 2 u w mean ab + w^2 mean b^2
 *
 * The three means can be computed in the loop over b that computes its score, before w is known, so
 * that only one loop over h is needed, the one that computes h / rms, and h is not stored.
 *
 * The guard. Let A = u^2 mean a^2 + w^2 mean b^2 and n the number of terms that one lane sums. Each
 * mean is off by at most g = (n + 2) 2^-24 of the mean of the absolute products, which for ab is at
 * most sqrt(mean a^2 mean b^2), so that the sum is off by g (A + 2 u w sqrt(..)) <= 2 g A. Where a
 * and b nearly cancel, the error may be as large as the result. So the sum is used only where
 *
 *     mean h^2 + eps > A / 4,
 *
 * which makes it good to 8 g, and the norm, its root, to 4 g; the sum over h itself is good to g,
 * its root to g / 2. Otherwise (a and b point in nearly opposite directions) the mean is computed
 * from the row h as usual, in a loop that other tokens skip (`when`, which is 0 also if the
 * comparison is with NaN, as after a square has overflowed).
 *
 * Sizes. Rows are squared unscaled, unlike in other norms: where a sum overflows, the row form is
 * used, which scales. u and w are multiplied one after the other, as they may be so small that
 * their squares underflow where the products do not. Terms that underflow are below 2^-126, and
 * an eps below 1e-12 is rejected.
 *
 * With gradients the form is not used: whether the blend is stored depends on --memory, which changes
 * no bits.
 */
#include <float.h>

#include "passes/kernels/expand.h"

typedef struct blend {
    hir_ref h, a, b, u, w;
    bool merge; /* u is 1 - w, and not a value of its own */
} blend;

static bool given(hir_ref r) {
    return depth_is_given(r);
}

static bool is_row(const hir_module *m, hir_ref x) {
    hir_type t = hir_ref_type(m, x);
    return x.kind == HIR_REF_VALUE && t.rank == 2 && hir_type_has_t(t);
}

/* Matches (b - a) w, with the factors in either order. */
static bool read_step(const hir_module *m, hir_ref step, blend *x) {
    hir_id mul = pass_def_if(m, step, HIR_MUL_OP);
    for (uint32_t i = 0; mul != HIR_NONE && i < 2; i++) {
        hir_id sub = pass_def_if(m, pass_arg(m, mul, i), HIR_SUB_OP);
        x->w = pass_arg(m, mul, 1 - i);
        if (sub == HIR_NONE || !hir_ref_equal(pass_arg(m, sub, 1), x->a)) continue;
        if (pass_elements(hir_ref_type(m, x->w)) != 1) continue;
        x->b = pass_arg(m, sub, 0);
        return is_row(m, x->a) && is_row(m, x->b);
    }
    return false;
}

/* Matches a row times a scalar of the token, in either order. */
static bool read_part(const hir_module *m, hir_ref product, hir_ref *row, hir_ref *number) {
    hir_id mul = pass_def_if(m, product, HIR_MUL_OP);
    for (uint32_t i = 0; mul != HIR_NONE && i < 2; i++) {
        *row = pass_arg(m, mul, i), *number = pass_arg(m, mul, 1 - i);
        hir_type t = hir_ref_type(m, *number);
        if (hir_type_has_t(t) && pass_elements(t) == 1 && is_row(m, *row)) return true;
    }
    return false;
}

static bool read_blend(const hir_module *m, hir_ref h, blend *x) {
    hir_id add = pass_def_if(m, h, HIR_ADD_OP);
    for (uint32_t i = 0; add != HIR_NONE && i < 2; i++) {
        *x = (blend){.h = h, .a = pass_arg(m, add, i), .merge = true};
        if (read_step(m, pass_arg(m, add, 1 - i), x)) return true;
    }
    *x = (blend){.h = h};
    return add != HIR_NONE && read_part(m, pass_arg(m, add, 0), &x->a, &x->u) &&
           read_part(m, pass_arg(m, add, 1), &x->b, &x->w);
}

/* Is the blend also read by other ops? Then it is stored, so its squares can be summed from there.
 */
static bool is_read_by_others(const expander *e, hir_ref h, hir_id norm) {
    HIR_EACH(e->m, op, hir_op_at(e->m, hir_op_at(e->m, norm)->parent)->body_first) {
        const hir_op *o = hir_op_at(e->m, op);
        for (uint32_t i = 0; op != norm && i < o->n_args; i++)
            if (hir_ref_equal(pass_forward_get(&e->forward, o->args[i]), h)) return true;
    }
    return false;
}

static hir_ref number(expander *e, double value) {
    return hir_emit_const(&e->b, value);
}

static hir_ref op2(expander *e, hir_opcode code, hir_ref a, hir_ref b) {
    return given(a) && given(b) ? hir_emit2(&e->b, code, a, b) : hir_no_ref();
}

/* f (f mean) */
static hir_ref twice(expander *e, hir_ref f, hir_ref mean) {
    return op2(e, HIR_MUL_OP, f, op2(e, HIR_MUL_OP, f, mean));
}

/* 1 / rms from the row, for tokens whose `again` is above 0; 0 for others. The blend is computed
 * once more here: a loop that most tokens skip cannot store it for other loops. */
static hir_ref of_row(expander *e, const blend *x, hir_ref again, double eps) {
    hir_ref a = x->merge ? x->a : op2(e, HIR_MUL_OP, x->a, x->u);
    hir_ref b = x->merge ? op2(e, HIR_SUB_OP, x->b, x->a) : x->b;
    hir_ref h = op2(e, HIR_ADD_OP, a, op2(e, HIR_MUL_OP, b, x->w));
    hir_ref scaled = op2(e, HIR_MUL_OP, h, number(e, expand_scale));
    return given(scaled) && given(again) ? expand_inverse_where(e, again, scaled, eps)
                                         : hir_no_ref();
}

static hir_ref inverse_rms(expander *e, const blend *x, double eps) {
    hir_ref u = x->merge ? op2(e, HIR_SUB_OP, number(e, 1), x->w) : x->u;
    hir_ref aa = twice(e, u, expand_mean_square(e, x->a));
    hir_ref bb = twice(e, x->w, expand_mean_square(e, x->b));
    hir_ref ab = op2(e, HIR_MUL_OP, x->w, expand_mean_product(e, x->a, x->b));
    ab = op2(e, HIR_MUL_OP, op2(e, HIR_ADD_OP, u, u), ab);
    hir_ref parts = op2(e, HIR_ADD_OP, aa, bb), sum = op2(e, HIR_ADD_OP, parts, ab);

    hir_ref least = number(e, eps);
    hir_ref margin = op2(e, HIR_SUB_OP, op2(e, HIR_ADD_OP, sum, least),
                         op2(e, HIR_MUL_OP, parts, number(e, 0.25)));
    margin = op2(e, HIR_MIN_OP, margin, op2(e, HIR_SUB_OP, number(e, FLT_MAX), sum));
    hir_ref sound = op2(e, HIR_WHEN_OP, margin, number(e, 1));
    hir_ref row = of_row(e, x, op2(e, HIR_SUB_OP, number(e, 1), sound), eps);
    hir_ref root = expand_inverse_root(e, sum, eps);
    return op2(e, HIR_ADD_OP, op2(e, HIR_WHEN_OP, sound, root), row);
}

hir_ref expand_norm_of_blend(expander *e, hir_id op) {
    blend x;
    const double eps = hir_attr_float(hir_op_at(e->m, op), HIR_A_EPS, 0);
    if (hir_has_gradients(e->m) || e->c->options->merge_norm == HIR_NORM_OF_ROW ||
        !read_blend(e->m, pass_arg(e->m, op, 0), &x))
        return hir_no_ref();
    if (is_read_by_others(e, x.h, op)) {
        hir_remark_add(e->c, false, op,
                       "norm of a blend from its row: the blend is stored for others, so that "
                       "nothing would have been gained");
        return hir_no_ref();
    }
    if (eps < expand_least_eps) {
        hir_remark_add(e->c, false, op,
                       "norm of a blend from its row: eps is below 1e-12; %lld bytes of each token "
                       "are kept for a second loop over it",
                       (long long)pass_elements(hir_ref_type(e->m, x.h)) *
                           (long long)sizeof(float));
        return hir_no_ref();
    }
    hir_ref y = inverse_rms(e, &x, eps);
    if (given(y))
        hir_remark_add(e->c, true, op,
                       "norm of a blend from three dot products; where they cancel, from its row");
    return y;
}
