/* Matches a score of attention over depth:
 *
 *     s = scale (q . RMSNorm(x) gain) + bias
 *
 * with its factors in any order: the gain on the query or on the keys, the norm as an op or written
 * out, before or after the dot product, the scale anywhere. The matcher walks from the score to x
 * and collects factors on the way; where it fails it gives the reason.
 */
#include <math.h>

#include "passes/depth/depth.h"

enum { MOST_STEPS = 1000 }; /* steps of one match: values are shared, so trees can be exponential */

typedef struct reader {
    const hir_module *m;
    uint32_t steps;
    depth_view x; /* the source */
    int64_t d;
    depth_score *s;
} reader;

/* Rejects with a reason. A plain `false` only means that this path does not lead to x; another path
 * may. */
static bool no(reader *r, const char *why) {
    if (!r->s->why) r->s->why = why;
    return false;
}

static bool goes_on(reader *r) {
    return r->steps++ < MOST_STEPS || no(r, "the scores are too large to be read");
}

static hir_opcode code_of(const reader *r, depth_view v) {
    return depth_code(r->m, v.v);
}

static depth_view operand(const reader *r, depth_view v, uint32_t arg) {
    return depth_through(r->m, depth_operand(r->m, v, arg));
}

static bool is_source(const reader *r, depth_view v) {
    return depth_same_element(r->m, v, r->x);
}

/* Is v one number, the same for every token and source? */
static bool is_const(const reader *r, depth_view v, double *value) {
    return pass_const(r->m, v.v, value);
}

/* ---- the inverse RMS, written out ---------------------------------------------------------- */
static bool is_square(const reader *r, depth_view v) {
    return code_of(r, v) == HIR_MUL_OP && is_source(r, operand(r, v, 0)) &&
           is_source(r, operand(r, v, 1));
}

/* Is v sum(x^2) over all channels, times *factor? */
static bool is_sum_of_squares(const reader *r, depth_view v, double *factor) {
    hir_opcode code = code_of(r, v);
    depth_view x;
    if (code != HIR_REDUCE_SUM_OP && code != HIR_REDUCE_MEAN_OP) return false;
    if (!depth_reduced(r->m, v, &x)) return false;
    hir_id op = pass_def(r->m, v.v);
    int64_t axis = hir_attr_int(hir_op_at(r->m, op), HIR_A_AXIS, 0);
    if (hir_ref_type(r->m, x.v).dim[axis] != r->d) return false;
    *factor = code == HIR_REDUCE_MEAN_OP ? 1 / (double)r->d : 1;
    return is_square(r, depth_through(r->m, x));
}

static bool is_mean_square(const reader *r, depth_view v) {
    double factor = 0, c = 0;
    bool is = is_sum_of_squares(r, v, &factor);
    if (!is && code_of(r, v) == HIR_MUL_OP)
        for (uint32_t i = 0; i < 2 && !is; i++) {
            is = is_const(r, operand(r, v, i), &c) &&
                 is_sum_of_squares(r, operand(r, v, 1 - i), &factor);
            factor = is ? factor * c : 0;
        }
    if (!is && code_of(r, v) == HIR_DIV_OP) {
        is = is_const(r, operand(r, v, 1), &c) && is_sum_of_squares(r, operand(r, v, 0), &factor);
        factor = is ? factor / c : 0;
    }
    double error = factor * (double)r->d - 1;
    return is && error > -1e-12 && error < 1e-12;
}

/* Is v mean(x^2) + eps? */
static bool is_raised_mean_square(const reader *r, depth_view v, double *eps) {
    *eps = 0;
    if (is_mean_square(r, v)) return true;
    if (code_of(r, v) != HIR_ADD_OP) return false;
    for (uint32_t i = 0; i < 2; i++)
        if (is_const(r, operand(r, v, i), eps) && *eps >= 0 &&
            is_mean_square(r, operand(r, v, 1 - i)))
            return true;
    return false;
}

static bool is_rms(const reader *r, depth_view v, double *eps) {
    return code_of(r, v) == HIR_SQRT_OP && is_raised_mean_square(r, operand(r, v, 0), eps);
}

static bool is_inverse_rms(const reader *r, depth_view v, double *eps) {
    double one;
    switch ((int)code_of(r, v)) {
    case HIR_RSQRT_OP: return is_raised_mean_square(r, operand(r, v, 0), eps);
    case HIR_RECIP_OP: return is_rms(r, operand(r, v, 0), eps);
    case HIR_DIV_OP:
        return is_const(r, operand(r, v, 0), &one) && one == 1 && is_rms(r, operand(r, v, 1), eps);
    default: return false;
    }
}

/* ---- factors ------------------------------------------------------------------------------- */
static bool add_norm(reader *r, double eps) {
    if (r->s->has_norm) return no(r, "its keys are normalised twice");
    r->s->has_norm = true;
    r->s->eps = eps;
    return true;
}

static bool add_factor(reader *r, depth_view v) {
    double c;
    if (is_const(r, v, &c)) {
        r->s->scale *= c;
        return true;
    }
    int64_t n = depth_view_elements(r->m, v);
    if (n != r->d && n != 1) return no(r, "a factor of the keys is neither a vector nor a number");
    if (r->s->n_factors == DEPTH_FACTORS) return no(r, "the keys have too many factors");
    r->s->factor[r->s->n_factors++] = v;
    return true;
}

static bool read_keys(reader *r, depth_view v);

/* Does v lead to x through products with factors? On success the factors are in r->s. */
static bool try_keys(reader *r, depth_view v) {
    depth_score before = *r->s;
    if (depth_view_has_t(r->m, v) && read_keys(r, v)) return true;
    before.why = r->s->why;
    *r->s = before;
    return false;
}

static bool read_key_product(reader *r, depth_view v) {
    depth_view side[2] = {operand(r, v, 0), operand(r, v, 1)};
    double eps;
    for (uint32_t i = 0; i < 2; i++) {
        if (!try_keys(r, side[i])) continue;
        depth_view other = side[1 - i];
        if (is_inverse_rms(r, other, &eps)) return add_norm(r, eps);
        return add_factor(r, other);
    }
    return false;
}

static bool read_key_norm(reader *r, depth_view v) {
    const hir_op *o = hir_op_at(r->m, pass_def(r->m, v.v));
    hir_type t = hir_ref_type(r->m, v.v);
    depth_view x = depth_through(r->m, (depth_view){o->args[0], v.axis, v.i});
    if (!is_source(r, x)) return false;
    if (t.dim[t.rank - 1] != r->d) return no(r, "the key norm is over some of the channels only");
    if (!add_norm(r, hir_attr_float(o, HIR_A_EPS, 0))) return false;
    return o->args[1].kind == HIR_REF_NONE ||
           add_factor(r, depth_through(r->m, (depth_view){o->args[1], -1, 0}));
}

/* Reads x times factors, channel by channel. */
static bool read_keys(reader *r, depth_view v) {
    double eps, c;
    v = depth_through(r->m, v);
    if (is_source(r, v)) return true;
    if (!goes_on(r)) return false;
    switch ((int)code_of(r, v)) {
    case HIR_RMSNORM_OP: return read_key_norm(r, v);
    case HIR_MUL_OP: return read_key_product(r, v);
    case HIR_DIV_OP:
        if (!read_keys(r, operand(r, v, 0))) return false;
        if (is_rms(r, operand(r, v, 1), &eps)) return add_norm(r, eps);
        if (!is_const(r, operand(r, v, 1), &c)) return no(r, "the keys are divided by a value");
        r->s->scale /= c;
        return true;
    case HIR_NEG_OP: r->s->scale = -r->s->scale; return read_keys(r, operand(r, v, 0));
    default: return false;
    }
}

/* ---- the dot product ----------------------------------------------------------------------- */
static bool add_bias(reader *r, depth_view v, double times) {
    if (depth_view_elements(r->m, v) != 1) return no(r, "a bias differs between the heads");
    if (r->s->n_biases == DEPTH_BIASES) return no(r, "the scores have too many biases");
    r->s->times[r->s->n_biases] = times;
    r->s->bias[r->s->n_biases++] = v;
    return true;
}

static bool read_dot(reader *r, depth_view v);

static bool read_linear(reader *r, depth_view v) {
    const hir_op *o = hir_op_at(r->m, pass_def(r->m, v.v));
    hir_type w = hir_ref_type(r->m, o->args[1]);
    if (w.dim[0] != 1) return no(r, "one score each is a product with one query, not with several");
    if (w.dim[1] != r->d) return no(r, "the query is not as wide as the sources");
    depth_view x = {o->args[0], v.axis, v.i};
    r->s->group = r->d;
    if (!read_keys(r, x)) return false;
    if (o->args[2].kind != HIR_REF_NONE && !add_bias(r, (depth_view){o->args[2], -1, 0}, 1))
        return false;
    return add_factor(r, depth_through(r->m, (depth_view){o->args[1], -1, 0}));
}

static bool read_sum(reader *r, depth_view v) {
    depth_view x;
    if (!depth_reduced(r->m, v, &x)) return false;
    hir_id op = pass_def(r->m, v.v);
    hir_type t = hir_ref_type(r->m, x.v);
    uint32_t axis = (uint32_t)hir_attr_int(hir_op_at(r->m, op), HIR_A_AXIS, 0);
    for (uint32_t i = axis + 1; i < t.rank; i++)
        if ((int)i != x.axis && t.dim[i] != 1)
            return no(r, "it sums channels that are not consecutive");
    r->s->group = t.dim[axis];
    if (hir_op_at(r->m, op)->code == HIR_REDUCE_MEAN_OP) r->s->scale /= (double)r->s->group;
    return read_keys(r, x);
}

/* A score times a value, which a bias of it would have to be multiplied with, too. */
static bool read_scaled(reader *r, depth_view v) {
    return read_dot(r, v) && (!r->s->n_biases || no(r, "a biased score is scaled by a value"));
}

/* A score, with the biases that it has, times a constant. */
static bool read_multiple(reader *r, depth_view v, double c) {
    if (!read_dot(r, v)) return false;
    r->s->scale *= c;
    for (uint32_t i = 0; i < r->s->n_biases; i++)
        r->s->times[i] *= c;
    return true;
}

/* A factor after the dot product: the norm, or a scalar common to all sources. */
static bool read_dot_product(reader *r, depth_view v) {
    depth_view side[2] = {operand(r, v, 0), operand(r, v, 1)};
    double eps, c;
    for (uint32_t i = 0; i < 2; i++) {
        depth_view other = side[1 - i];
        if (is_const(r, other, &c)) return read_multiple(r, side[i], c);
        if (is_inverse_rms(r, other, &eps)) return read_scaled(r, side[i]) && add_norm(r, eps);
        if (!depth_view_has_t(r->m, other) && depth_view_elements(r->m, other) == 1)
            return read_scaled(r, side[i]) && add_factor(r, other);
    }
    return false;
}

static bool read_quotient(reader *r, depth_view v) {
    depth_view below = operand(r, v, 1);
    double eps, c;
    if (is_rms(r, below, &eps)) return read_scaled(r, operand(r, v, 0)) && add_norm(r, eps);
    if (!is_const(r, below, &c)) return no(r, "a score is divided by a value");
    return read_multiple(r, operand(r, v, 0), 1 / c);
}

static bool read_biased(reader *r, depth_view v, bool minus) {
    depth_view side[2] = {operand(r, v, 0), operand(r, v, 1)};
    for (uint32_t i = 0; i < 2 - (uint32_t)minus; i++) {
        depth_view other = side[1 - i];
        if (!depth_view_has_t(r->m, other))
            return read_dot(r, side[i]) && add_bias(r, other, minus ? -1 : 1);
    }
    return no(r, "a term of the scores depends on the token and is no product with the source");
}

static bool read_dot(reader *r, depth_view v) {
    v = depth_through(r->m, v);
    if (!depth_view_has_t(r->m, v)) return add_bias(r, v, 1); /* static logits */
    if (!goes_on(r)) return false;
    r->s->is_product = true;
    switch ((int)code_of(r, v)) {
    case HIR_ADD_OP: return read_biased(r, v, false);
    case HIR_SUB_OP: return read_biased(r, v, true);
    case HIR_MUL_OP: return read_dot_product(r, v);
    case HIR_DIV_OP: return read_quotient(r, v);
    case HIR_LINEAR_OP: return read_linear(r, v);
    case HIR_NEG_OP: return read_multiple(r, operand(r, v, 0), -1);
    case HIR_REDUCE_SUM_OP:
    case HIR_REDUCE_MEAN_OP: return read_sum(r, v);
    default: return false;
    }
}

depth_score depth_read_score(const hir_module *m, depth_view v, depth_view x, int64_t d) {
    depth_score s = {.scale = 1, .group = d};
    reader r = {.m = m, .x = x, .d = d, .s = &s};
    if (!read_dot(&r, v))
        no(&r, "the scores are not of the sources that are mixed");
    else if (s.is_product && !s.n_factors)
        no(&r, "there is no query");
    else if (!isfinite(s.scale) || !isfinite(s.eps))
        no(&r, "the scale or eps is not finite");
    else
        s.why = NULL; /* a reason may be left by a path that did not lead to x */
    return s;
}

bool depth_same_score(const depth_score *a, const depth_score *b) {
    if (a->n_factors != b->n_factors || a->scale != b->scale || a->eps != b->eps ||
        a->has_norm != b->has_norm || a->group != b->group || a->is_product != b->is_product)
        return false;
    for (uint32_t i = 0; i < a->n_factors; i++)
        if (!hir_ref_equal(a->factor[i].v, b->factor[i].v) ||
            a->factor[i].axis != b->factor[i].axis || a->factor[i].i != b->factor[i].i)
            return false;
    return true;
}
