/* recognise-depth-attention: the naive pattern becomes depth.attend.
 *
 * Needs    a graph.
 * Does     finds sums of sources weighted by a softmax or sigmoid of their scores, written in any
 *          of these ways:
 *            - the sum as reduce_sum over a stack, or as adds of products in any association,
 *              alone or with other terms; both, some sources in a stack and others alone; as a
 *              mean, which is the mix divided by a constant;
 *            - the mixed values as the sources themselves, or as values computed from each of them
 *              alone, such as its norm, even if the norm was applied to a stack (depth_element.c);
 *              times a gain that all have in common, which is then applied to the mix;
 *            - weights as read by depth_weight.c: softmax and sigmoid as ops or written out, also
 *              source by source, or with the whole sum of e^s x divided at the end;
 *            - several queries in one product, each then a mix of its own (depth_queries.c);
 *            - scores as read by depth_score.c: with or without key norm, gain, scale, bias, per
 *              head; or none at all, only logits.
 *          The query of depth.attend is the product of all vectors that the keys are multiplied
 *          with: the gain of the key norm folds into the pseudo-query, q . (x r g) = (q g) . x r.
 * Leaves   sums that do not match, with a remark that says why; and the replaced ops, which dce
 *          removes.
 */
#include "passes/depth/depth.h"

enum {
    DEEPEST_SUM = 1000,
    DEEPEST_PRODUCT = 8,
    MOST_GAINS = 4,
};

/* One summand of the weighted sum: weight times source. */
typedef struct term {
    bool has_weight, has_source;
    depth_view weight;           /* result of the softmax or sigmoid */
    depth_weight of;             /* how it is computed */
    depth_view source;           /* [T, d] in any shape */
    depth_view gain[MOST_GAINS]; /* factors that are the same for every token */
    uint32_t n_gains;
    int64_t heads, d;
} term;

typedef struct candidate {
    HD_VEC(term) terms;
    HD_VEC(hir_ref) rest; /* summands of other kinds */
    HD_VEC(hir_id) parts; /* sums over a stack among the summands */
    bool softmax;         /* or sigmoid */
    hir_ref logits;       /* softmax: its operand; none ref: every term has its own score */
    int axis;             /* axis of the sources in logits */
    double divisor;       /* n if the sum is a mean of n summands, otherwise 1 */
    bool is_part;         /* the softmax is over further sources, too */
    const char *why;
} candidate;

typedef struct recogniser {
    hir_pass_context *c;
    hir_module *m;
    hir_uses uses;
    size_t n_values; /* when `uses` was computed */
    bool *is_part;   /* by value: a sum over some of the sources of a softmax */
    depth_elements elements;
    pass_forward forward;
    /* set if the current op divides a sum of e^s x as a whole */
    const depth_divisor *divisor;
} recogniser;

/* ---- summands ------------------------------------------------------------------------------ */
/* Is it one weight per token and head, [.., H, 1] times [.., H, d/H], or a scalar? */
static bool weight_fits(const hir_module *m, depth_view product, uint32_t side, term *t) {
    hir_id op = pass_def(m, product.v);
    hir_type w = hir_ref_type(m, pass_arg(m, op, side)),
             x = hir_ref_type(m, pass_arg(m, op, 1 - side));
    t->heads = depth_view_elements(m, t->weight);
    if (t->heads == 1) return true;
    if (w.rank < 2 || x.rank < 2 || w.dim[w.rank - 1] != 1) return false;
    return w.dim[w.rank - 2] == t->heads && x.dim[x.rank - 2] == t->heads;
}

static bool add_gain(term *t, depth_view v) {
    if (t->n_gains == MOST_GAINS) return false;
    t->gain[t->n_gains++] = v;
    return true;
}

/* Reads the other side of a weight's product: the source and gains. */
static bool read_rest(const hir_module *m, depth_view v, term *t, uint32_t depth) {
    v = depth_through(m, v);
    if (!depth_view_has_t(m, v)) return add_gain(t, v);
    if (depth_code(m, v.v) == HIR_MUL_OP && depth < DEEPEST_PRODUCT)
        for (uint32_t side = 0; side < 2; side++) {
            const depth_view gain = depth_through(m, depth_operand(m, v, side));
            if (depth_view_has_t(m, gain)) continue;
            return add_gain(t, gain) && read_rest(m, depth_operand(m, v, 1 - side), t, depth + 1);
        }
    if (t->has_source) return false;
    t->source = v;
    return t->has_source = true;
}

/* Finds weight, source and gains in a product, in any order. */
static bool read_product(const recogniser *r, depth_view product, term *t, uint32_t depth) {
    const hir_module *m = r->m;
    const term before = *t;
    if (depth_code(m, product.v) != HIR_MUL_OP || depth == DEEPEST_PRODUCT) return false;
    for (uint32_t side = 0; side < 2; side++) {
        *t = before;
        t->weight = depth_through(m, depth_operand(m, product, side));
        if (!depth_read_weight(m, t->weight, r->divisor, &t->of)) continue;
        const depth_view x = depth_through(m, depth_operand(m, product, 1 - side));
        if (depth == 0 && !depth_view_has_t(m, x)) break; /* a weight times a gain */
        if (!weight_fits(m, product, side, t)) continue;
        return t->has_weight = read_rest(m, x, t, depth);
    }
    for (uint32_t side = 0; side < 2; side++) {
        const depth_view inner = depth_through(m, depth_operand(m, product, side));
        *t = before;
        if (!read_product(r, inner, t, depth + 1)) continue;
        return read_rest(m, depth_operand(m, product, 1 - side), t, depth);
    }
    return false;
}

/* Matches weight * source. */
static bool read_term(const recogniser *r, depth_view product, term *t) {
    *t = (term){0};
    product = depth_through(r->m, product);
    if (!read_product(r, product, t, 0) || !t->has_source) return false;
    t->d = depth_view_elements(r->m, t->source);
    return t->d % t->heads == 0;
}

/* Matches the sum or mean over `axis` of a product of stacks. */
static bool read_reduction(recogniser *r, hir_id op, candidate *c) {
    const hir_ref product = pass_arg(r->m, op, 0);
    int axis = (int)hir_attr_int(hir_op_at(r->m, op), HIR_A_AXIS, 0);
    int64_t n = hir_ref_type(r->m, product).dim[axis];
    term t;
    if (n < 1 || n > UINT32_MAX) return false;
    const size_t before = c->terms.n;
    for (uint32_t i = 0; i < n; i++) {
        if (!read_term(r, (depth_view){product, axis, i}, &t)) {
            c->terms.n = before;
            return false;
        }
        hd_push(r->c->scratch, &c->terms, t);
    }
    c->divisor = hir_op_at(r->m, op)->code == HIR_REDUCE_MEAN_OP ? (double)n : 1;
    return true;
}

/* The sum over some of the sources of which a summand is a view; HIR_NONE: the summand is not such
 * a sum. */
static hir_id part_of(const recogniser *r, hir_ref x) {
    const hir_ref sum = depth_through(r->m, (depth_view){x, -1, 0}).v;
    if (sum.kind != HIR_REF_VALUE || sum.index >= r->n_values) return HIR_NONE;
    const bool whole = r->divisor && r->uses.count[sum.index] == 1;
    const hir_id op = pass_def_if(r->m, sum, HIR_REDUCE_SUM_OP);
    return whole || r->is_part[sum.index] ? op : HIR_NONE;
}

static void read_sum(recogniser *r, hir_id op, candidate *c, uint32_t depth);

/* A sum in which there is no weighted source stays one summand, as it is written: taken apart, it
 * would no longer be made where its own summands are. */
static void read_inner_sum(recogniser *r, hir_ref x, candidate *c, uint32_t depth) {
    const size_t terms = c->terms.n, rest = c->rest.n;
    read_sum(r, pass_def(r->m, x), c, depth);
    if (c->terms.n > terms) return;
    c->rest.n = rest;
    hd_push(r->c->scratch, &c->rest, x);
}

/* Collects the leaves of a tree of adds whose inner sums have no other users, to a limited
 * depth. */
static void read_sum(recogniser *r, hir_id op, candidate *c, uint32_t depth) {
    for (uint32_t i = 0; i < 2; i++) {
        hir_ref x = pass_arg(r->m, op, i);
        hir_id add = pass_def_if(r->m, x, HIR_ADD_OP);
        term t;
        if (add != HIR_NONE && r->uses.count[x.index] == 1 && depth < DEEPEST_SUM)
            read_inner_sum(r, x, c, depth + 1);
        else if (part_of(r, x) != HIR_NONE && read_reduction(r, part_of(r, x), c))
            hd_push(r->c->scratch, &c->parts, part_of(r, x));
        else if (read_term(r, (depth_view){x, -1, 0}, &t))
            hd_push(r->c->scratch, &c->terms, t);
        else
            hd_push(r->c->scratch, &c->rest, x);
    }
}

/* Matches sum(e^s x) / sum(e^s), a softmax that is normalised after the weighted sum. */
static bool read_quotient(recogniser *r, hir_id op, candidate *c) {
    depth_divisor *divisor = hd_new(r->c->scratch, depth_divisor);
    for (uint32_t i = 0; i < 2; i++) {
        if (!depth_read_divisor(r->m, op, 1 - i, divisor)) continue;
        r->divisor = divisor;
        hir_ref y = depth_through(r->m, (depth_view){pass_arg(r->m, op, i), -1, 0}).v;
        hir_id sum = pass_def(r->m, y);
        if (depth_code(r->m, y) == HIR_REDUCE_SUM_OP || depth_code(r->m, y) == HIR_REDUCE_MEAN_OP)
            (void)read_reduction(r, sum, c);
        else if (depth_code(r->m, y) == HIR_ADD_OP)
            read_sum(r, sum, c, 0);
        depth_view quotient = {hir_value_ref(hir_result(r->m, op)), -1, 0};
        return c->terms.n > 0 && c->rest.n == 0 &&
               weight_fits(r->m, quotient, 1 - i, &c->terms.at[0]);
    }
    return false;
}

/* ---- is it attention over depth? ------------------------------------------------------------ */
static bool no(candidate *c, const char *why) {
    c->why = why;
    return false;
}

static bool same_gains(const term *a, const term *b) {
    if (a->n_gains != b->n_gains) return false;
    for (uint32_t k = 0; k < a->n_gains; k++)
        if (!hir_ref_equal(a->gain[k].v, b->gain[k].v) || a->gain[k].axis != b->gain[k].axis ||
            (a->gain[k].axis >= 0 && a->gain[k].i != b->gain[k].i))
            return false;
    return true;
}

static bool check_sources(const hir_module *m, candidate *c) {
    for (size_t i = 0; i < c->terms.n; i++) {
        const term *t = &c->terms.at[i];
        const term *first = c->terms.at;
        if (!depth_is_element(m, t->source)) return no(c, "the values are not a stack of sources");
        if (t->d != first->d || t->heads != first->heads)
            return no(c, "the sources have different sizes");
        if (!same_gains(t, first)) return no(c, "the values have gains that differ");
        for (uint32_t k = 0; k < t->n_gains; k++) {
            const int64_t n = depth_view_elements(m, t->gain[k]);
            if (n != 1 && n != t->d) return no(c, "a gain is neither a vector nor a number");
        }
    }
    return true;
}

/* Checks that the weights are those of one softmax over all sources, each used once. */
static bool check_softmax(recogniser *r, candidate *c) {
    hir_ref of = c->terms.at[0].weight.v;
    hir_type t = hir_ref_type(r->m, of);
    int axis = c->terms.at[0].weight.axis;
    if (t.dim[axis] != (int64_t)c->terms.n) {
        c->is_part = t.dim[axis] > (int64_t)c->terms.n;
        return no(c, "the softmax is over more than the sources");
    }
    bool *seen = hd_new_array(r->c->scratch, bool, c->terms.n);
    for (size_t i = 0; i < c->terms.n; i++) {
        const depth_view *w = &c->terms.at[i].weight;
        if (!hir_ref_equal(w->v, of) || w->axis != axis)
            return no(c, "the weights come from different softmaxes");
        if (seen[w->i]) return no(c, "a weight is used twice");
        seen[w->i] = true;
    }
    c->logits = c->terms.at[0].of.logits;
    c->axis = axis;
    return true;
}

static bool check_quotients(recogniser *r, candidate *c) {
    depth_weight **w = hd_new_array(r->c->scratch, depth_weight *, c->terms.n);
    for (size_t i = 0; i < c->terms.n; i++)
        w[i] = &c->terms.at[i].of;
    c->why = depth_match_quotients(r->m, r->c->scratch, w, c->terms.n, &c->is_part);
    return !c->why;
}

static bool check_weights(recogniser *r, candidate *c) {
    const depth_weight *first = &c->terms.at[0].of;
    c->softmax = first->kind != DEPTH_SIGMOID;
    for (size_t i = 0; i < c->terms.n; i++) {
        const depth_weight *w = &c->terms.at[i].of;
        if ((w->kind == DEPTH_SIGMOID) == c->softmax)
            return no(c, "some weights come from a softmax, some from a sigmoid");
        if (w->kind != first->kind) return no(c, "the weights come from different softmaxes");
        if (w->factor != first->factor) return no(c, "the weights are scaled differently");
    }
    if (!c->softmax) return true;
    return first->kind == DEPTH_QUOTIENT ? check_quotients(r, c) : check_softmax(r, c);
}

/* Sorts terms by the index of their weight. */
static void sort_terms(recogniser *r, candidate *c) {
    term *sorted = hd_new_array(r->c->scratch, term, c->terms.n);
    for (size_t i = 0; i < c->terms.n; i++)
        sorted[c->terms.at[i].weight.i] = c->terms.at[i];
    c->terms.at = sorted;
}

static depth_view score_view(const candidate *c, const term *t) {
    if (c->logits.kind != HIR_REF_NONE) return (depth_view){c->logits, c->axis, t->weight.i};
    return t->of.score;
}

/* Turns the score s into -s. */
static void negate_score(depth_score *s) {
    s->scale = -s->scale;
    for (uint32_t i = 0; i < s->n_biases; i++)
        s->times[i] = -s->times[i];
}

static bool read_scores(recogniser *r, candidate *c, depth_score *s) {
    const term *t = c->terms.at;
    for (size_t i = 0; i < c->terms.n; i++) {
        s[i] = depth_read_score(r->m, score_view(c, &t[i]), t[i].source, t[i].d);
        if (s[i].why) return no(c, s[i].why);
        if (t[i].of.sign < 0) negate_score(&s[i]);
        if (!depth_same_score(&s[i], &s[0]))
            return no(c, "a factor of the keys differs between the sources");
        if (s[i].is_product && s[i].group * t[i].heads != t[i].d)
            return no(c, "scores and weights have different heads");
    }
    return true;
}

/* ---- building ------------------------------------------------------------------------------ */
/* The product of all factors as one vector: [d], or [T, d] if one of them depends on the token. */
static hir_ref build_query(recogniser *r, hir_builder *b, const depth_score *s, int64_t d) {
    hir_ref q = hir_no_ref();
    for (uint32_t i = 0; i < s->n_factors; i++) {
        depth_view v = s->factor[i];
        hir_ref f = v.axis < 0 ? v.v : depth_element(b, v.v, (uint32_t)v.axis, v.i);
        bool has_t = hir_type_has_t(hir_ref_type(r->m, f));
        int64_t n = pass_elements(hir_ref_type(r->m, f));
        hir_type t = has_t ? hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, n})
                           : hir_make_type(HIR_F32, 1, (int64_t[]){n});
        f = pass_reshape(b, f, t);
        q = i == 0 ? f : hir_emit2(b, HIR_MUL_OP, q, f);
    }
    hir_type t = hir_ref_type(r->m, q);
    if (t.dim[t.rank - 1] == d) return q;
    t.dim[t.rank - 1] = d; /* scalar factors only */
    hir_attr shape = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    return hir_emit(b, HIR_BROADCAST_OP, &q, 1, &shape, 1);
}

static hir_ref times(hir_builder *b, hir_ref x, double c) {
    if (c == -1) return hir_emit1(b, HIR_NEG_OP, x);
    return c == 1 ? x : hir_emit2(b, HIR_MUL_OP, x, hir_emit_const(b, c));
}

/* The bias of one source as [1]. */
static hir_ref bias_element(hir_builder *b, const depth_score *s) {
    static const int64_t one[] = {1};
    hir_attr zero[] = {hir_ints(HIR_A_SHAPE, one, 1), hir_float(HIR_A_VALUE, 0)};
    hir_ref sum = hir_no_ref();
    for (uint32_t k = 0; k < s->n_biases; k++) {
        depth_view v = s->bias[k];
        hir_ref x = v.axis < 0 ? v.v : depth_element(b, v.v, (uint32_t)v.axis, v.i);
        x = pass_reshape(b, x, hir_make_type(HIR_F32, 1, one));
        x = times(b, x, s->times[k]);
        sum = k == 0 ? x : hir_emit2(b, HIR_ADD_OP, sum, x);
    }
    return s->n_biases ? sum : hir_emit(b, HIR_CONST_OP, NULL, 0, zero, 2);
}

/* Are the biases of the sources the elements, in order, of an existing vector, or of a multiple of
 * it? */
static bool is_one_vector(const recogniser *r, const depth_score *s, size_t n) {
    const depth_view *first = &s[0].bias[0];
    for (size_t i = 0; i < n; i++)
        if (s[i].n_biases != 1 || s[i].times[0] != s[0].times[0] ||
            !hir_ref_equal(s[i].bias[0].v, first->v) || s[i].bias[0].axis != first->axis ||
            s[i].bias[0].i != i || first->axis < 0)
            return false;
    return pass_elements(hir_ref_type(r->m, first->v)) == (int64_t)n;
}

static hir_ref build_bias(recogniser *r, hir_builder *b, const depth_score *s, size_t n) {
    size_t biases = 0;
    for (size_t i = 0; i < n; i++)
        biases += s[i].n_biases;
    if (!biases) return hir_no_ref();
    hir_type vector = hir_make_type(HIR_F32, 1, (int64_t[]){(int64_t)n});
    if (is_one_vector(r, s, n)) {
        const hir_ref bias = pass_reshape(b, s[0].bias[0].v, vector);
        return times(b, bias, s[0].times[0]);
    }
    hir_ref *elements = hd_new_array(r->c->scratch, hir_ref, n);
    for (size_t i = 0; i < n; i++)
        elements[i] = bias_element(b, &s[i]);
    hir_attr axis = hir_int(HIR_A_AXIS, 0);
    return hir_emit(b, HIR_CONCAT_OP, elements, (uint32_t)n, &axis, 1);
}

/* The weights for logits without a query: the same for every token. */
static hir_ref normalised(hir_builder *b, hir_ref logits, bool softmax) {
    hir_attr axis = hir_int(HIR_A_AXIS, 0);
    return softmax ? hir_emit(b, HIR_SOFTMAX_OP, &logits, 1, &axis, 1)
                   : hir_emit1(b, HIR_SIGMOID_OP, logits);
}

/* The operands of depth.attend or depth.weights. */
typedef struct attend {
    hir_ref *args;
    uint32_t n_args, n_attrs;
    hir_attr attrs[4];
} attend;

static attend operands(recogniser *r, hir_builder *b, const candidate *c, const depth_score *s) {
    const term *first = c->terms.at;
    uint32_t n = (uint32_t)c->terms.n;
    attend a = {.n_args = ATTEND_SOURCES + n};
    const char *by = !s->is_product ? "none" : c->softmax ? "softmax" : "sigmoid";
    a.attrs[a.n_attrs++] = hir_string(HIR_A_NORMALIZATION, by);
    if (s->has_norm) a.attrs[a.n_attrs++] = hir_float(HIR_A_EPS, s->eps);
    if (s->is_product && s->scale != 1) a.attrs[a.n_attrs++] = hir_float(HIR_A_SCALE, s->scale);
    if (first->heads > 1) a.attrs[a.n_attrs++] = hir_int(HIR_A_HEADS, first->heads);
    a.args = hd_new_array(r->c->scratch, hir_ref, a.n_args);
    a.args[ATTEND_QUERY] = s->n_factors ? build_query(r, b, s, first->d) : hir_no_ref();
    a.args[ATTEND_BIAS] = build_bias(r, b, s, n);
    if (!s->is_product) a.args[ATTEND_BIAS] = normalised(b, a.args[ATTEND_BIAS], c->softmax);
    hir_type row = hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, first->d});
    for (uint32_t i = 0; i < n; i++)
        a.args[ATTEND_SOURCES + i] =
            pass_reshape(b, depth_build_element(&r->elements, b, c->terms.at[i].source), row);
    return a;
}

static hir_ref build(hir_builder *b, hir_opcode code, const attend *a) {
    return hir_emit(b, code, a->args, a->n_args, a->attrs, a->n_attrs);
}

/* ---- traced weights ------------------------------------------------------------- */
static bool is_shown(const recogniser *r, hir_id value, int depth) {
    for (uint32_t i = 0; value < r->n_values && i < r->uses.count[value]; i++) {
        const hir_op *user = hir_op_at(r->m, r->uses.user[r->uses.first[value] + i]);
        if (user->code == HIR_OUTPUT_OP || user->code == HIR_TRACE_OP) return true;
        if (user->code == HIR_RESHAPE_OP && depth > 0 && is_shown(r, user->results[0], depth - 1))
            return true;
    }
    return false;
}

/* Are the weights the elements of one value, in order? */
static bool weights_in_order(const candidate *c) {
    const depth_view *first = &c->terms.at[0].weight;
    for (size_t i = 0; i < c->terms.n; i++) {
        const depth_view *w = &c->terms.at[i].weight;
        if (!hir_ref_equal(w->v, first->v) || w->axis != first->axis || w->axis < 0 || w->i != i)
            return false;
    }
    return true;
}

/* Permutes y [T, n, H] to the dims of t, in which `axis` is the dim of the sources. */
static hir_ref arranged(hir_builder *b, hir_ref y, hir_type t, int axis) {
    hir_attr perm = hir_ints(HIR_A_PERM, (int64_t[]){0, 2, 1}, 3);
    bool heads_first = false;
    for (int i = 1; i < axis; i++)
        heads_first |= t.dim[i] != 1;
    if (heads_first) y = hir_emit(b, HIR_TRANSPOSE_OP, &y, 1, &perm, 1);
    return y.kind == HIR_REF_NONE ? y : pass_reshape(b, y, t);
}

/* Does an output or trace read the weights? It then gets a depth.weights with the operands of the
 * mix, so that the weights are not computed separately. */
static bool shows_weights(const recogniser *r, const candidate *c, const depth_score *s) {
    depth_view w = c->terms.at[0].weight;
    bool replaced = !hir_ref_equal(pass_forward_get(&r->forward, w.v), w.v);
    return !r->divisor && c->terms.at[0].of.factor == 1 && s->is_product && !replaced &&
           weights_in_order(c) && is_shown(r, w.v.index, 2) &&
           hir_ref_type(r->m, w.v).dim[w.axis] == (int64_t)c->terms.n;
}

static bool replace_weights(recogniser *r, hir_builder *b, const candidate *c, const attend *a) {
    depth_view w = c->terms.at[0].weight;
    hir_ref y = build(b, HIR_DEPTH_WEIGHTS_OP, a);
    if (y.kind == HIR_REF_NONE) return false;
    y = arranged(b, y, hir_ref_type(r->m, w.v), w.axis);
    if (y.kind == HIR_REF_NONE) return false;
    pass_forward_op(&r->forward, r->m, pass_def(r->m, w.v), y);
    return true;
}

static hir_ref scaled(hir_builder *b, hir_ref y, double factor) {
    const hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, NULL, 0), hir_float(HIR_A_VALUE, factor)};
    if (factor == 1 || y.kind == HIR_REF_NONE) return y;
    return hir_emit2(b, HIR_MUL_OP, y, hir_emit(b, HIR_CONST_OP, NULL, 0, attrs, 2));
}

static hir_ref with_gains(hir_builder *b, hir_ref y, const term *t) {
    for (uint32_t k = 0; k < t->n_gains && y.kind != HIR_REF_NONE; k++) {
        hir_type row = hir_ref_type(b->m, y);
        hir_ref g = t->gain[k].v;
        if (t->gain[k].axis >= 0) g = depth_element(b, g, (uint32_t)t->gain[k].axis, t->gain[k].i);
        if (pass_elements(hir_ref_type(b->m, g)) == 1) row.rank = 1;
        for (uint32_t i = 0; i + 1 < row.rank; i++)
            row.dim[i] = row.dim[i + 1];
        row.rank--;
        row.dtype = HIR_F32;
        y = hir_emit2(b, HIR_MUL_OP, y, pass_reshape(b, g, row));
    }
    return y;
}

static void remark_taken(recogniser *r, hir_id op, const candidate *c, const depth_score *s) {
    bool biased = false;
    for (size_t i = 0; i < c->terms.n; i++)
        biased |= s[i].n_biases > 0;
    const char *heads = c->terms.at->heads == 1 ? ""
                                                : hd_printf(r->c->scratch, ", %lld heads",
                                                            (long long)c->terms.at->heads);
    hir_remark_add(r->c, true, op, "attention over %zu sources: %s%s%s%s", c->terms.n,
                   c->softmax ? "softmax" : "sigmoid",
                   !s->is_product ? " of logits"
                   : s->has_norm  ? ", key norm"
                                  : ", no key norm",
                   s->is_product && biased ? ", bias" : "", heads);
}

/* For the remark: the most that attention over depth would have saved. Outside of a block a mix
 * reads as many rows as the sum does, but in the prologue of a contraction its result is not
 * written; in a block a result of phase 1, written and read, can replace all sources but the mix's
 * own. */
static const char *gain(const recogniser *r, const candidate *c) {
    enum { LEFT = 3 }; /* rows that remain: its own source, and the result twice */
    const int64_t n = (int64_t)c->terms.n, row = c->terms.at[0].d * (int64_t)sizeof(float);
    const int64_t less = 1 + (n > LEFT ? n - LEFT : 0);
    return hd_printf(r->c->scratch,
                     "; it reads %lld rows of %lld bytes for each token and writes one, recognised "
                     "it would have moved up to %lld bytes less",
                     (long long)n, (long long)row, (long long)(less * row));
}

static bool replace(recogniser *r, hir_id op, const candidate *c, const depth_score *s) {
    hir_builder b = hir_before(r->m, r->c->diags, op);
    hir_type result = pass_result_type(r->m, op);
    bool shown = shows_weights(r, c, s);
    hir_id weights = shown ? pass_def(r->m, c->terms.at[0].weight.v) : op;
    hir_builder earlier = hir_before(r->m, r->c->diags, weights);
    attend a = operands(r, &earlier, c, s);
    if (shown && !replace_weights(r, &earlier, c, &a)) return false;
    hir_ref y = build(&b, HIR_DEPTH_ATTEND_OP, &a);
    if (y.kind == HIR_REF_NONE) return false;
    y = scaled(&b, pass_reshape(&b, y, result), c->terms.at[0].of.factor / c->divisor);
    y = with_gains(&b, y, c->terms.at);
    for (size_t i = 0; i < c->rest.n; i++)
        y = hir_emit2(&b, HIR_ADD_OP, y, c->rest.at[i]);
    if (y.kind == HIR_REF_NONE) return false;
    remark_taken(r, op, c, s);
    pass_forward_op(&r->forward, r->m, op, y);
    r->c->changed = true;
    return true;
}

/* ---- the pass ------------------------------------------------------------------------------ */
/* Is it worth a decision? It needs more than one source, and all other summands must have the shape
 * of the mix. */
static bool is_candidate(const recogniser *r, hir_id op, const candidate *c) {
    hir_type y = pass_result_type(r->m, op);
    if (c->terms.n < 2) return false;
    if (pass_elements(y) != c->terms.at[0].d || !hir_type_has_t(y)) return false;
    for (size_t i = 0; i < c->rest.n; i++)
        if (!hir_type_equal(hir_ref_type(r->m, c->rest.at[i]), y)) return false;
    return true;
}

/* Is it an inner node of a sum, an add whose only user is another add? */
static bool is_inner(const recogniser *r, hir_id op) {
    hir_id v = hir_result(r->m, op);
    return v < r->n_values && r->uses.count[v] == 1 &&
           hir_op_at(r->m, r->uses.user[r->uses.first[v]])->code == HIR_ADD_OP;
}

/* Is the only use of v, possibly through a view, an addition? */
static bool is_inner_view(const recogniser *r, hir_id v, int depth) {
    if (v >= r->n_values || r->uses.count[v] != 1) return false;
    const hir_op *user = hir_op_at(r->m, r->uses.user[r->uses.first[v]]);
    if (user->code == HIR_RESHAPE_OP && depth > 0)
        return is_inner_view(r, user->results[0], depth - 1);
    return user->code == HIR_ADD_OP;
}

/* May this sum over a stack be a part of a larger sum? It is then first considered together with
 * the other summands. */
static bool may_be_part(recogniser *r, hir_id op, const candidate *c) {
    const bool more = c->is_part || c->terms.at[0].of.kind == DEPTH_SIGMOID;
    return more && hir_op_at(r->m, op)->code == HIR_REDUCE_SUM_OP &&
           is_inner_view(r, hir_result(r->m, op), 2);
}

/* The decision on a sum: NONE leaves it as it is, with a remark. */
typedef enum decision { NONE, TAKEN, FAILED } decision;

static decision decide(recogniser *r, hir_id op, candidate *c, bool alone) {
    depth_score *s = hd_new_array(r->c->scratch, depth_score, c->terms.n);
    bool taken = check_weights(r, c) && check_sources(r->m, c);
    if (!alone && may_be_part(r, op, c)) {
        r->is_part[hir_result(r->m, op)] = true;
        return NONE;
    }
    if (taken && c->logits.kind != HIR_REF_NONE) sort_terms(r, c);
    if (taken && read_scores(r, c, s)) return replace(r, op, c, s) ? TAKEN : FAILED;
    hir_remark_add(r->c, false, op,
                   "a weighted sum of %zu values, but no attention over depth: %s%s", c->terms.n,
                   c->why, gain(r, c));
    return NONE;
}

/* Visits sums over a stack that were postponed and turned out not to be parts of a larger mix. */
static bool visit_parts(recogniser *r, const candidate *whole) {
    for (size_t i = 0; i < whole->parts.n; i++) {
        candidate c = {.logits = hir_no_ref(), .divisor = 1};
        const hir_id op = whole->parts.at[i];
        r->is_part[hir_result(r->m, op)] = false;
        if (!read_reduction(r, op, &c) || !is_candidate(r, op, &c)) continue;
        if (decide(r, op, &c, true) == FAILED) return false;
    }
    return true;
}

static bool visit(recogniser *r, hir_id op) {
    candidate c = {.logits = hir_no_ref(), .divisor = 1};
    hir_opcode code = hir_op_at(r->m, op)->code;
    r->divisor = NULL;
    if (code == HIR_REDUCE_SUM_OP || code == HIR_REDUCE_MEAN_OP) {
        if (!read_reduction(r, op, &c)) return true;
    } else if (code == HIR_ADD_OP && !is_inner(r, op))
        read_sum(r, op, &c, 0);
    else if (code == HIR_DIV_OP || code == HIR_MUL_OP) {
        if (!read_quotient(r, op, &c)) return true;
    } else
        return true;
    const decision d = is_candidate(r, op, &c) ? decide(r, op, &c, false) : NONE;
    if (d == FAILED) return false;
    r->divisor = NULL;
    return d == TAKEN || visit_parts(r, &c);
}

bool pass_recognise_depth(hir_pass_context *c) {
    if (!depth_separate_queries(c)) return false;
    recogniser r = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    r.uses = hir_compute_uses(c->m, c->scratch);
    r.n_values = c->m->values.n;
    r.is_part = hd_new_array(c->scratch, bool, r.n_values);
    depth_elements_start(&r.elements, c->m, c->scratch);
    HIR_EACH(r.m, op, r.m->first) {
        if (op < r.elements.n_ops) depth_note_element(&r.elements, op);
        if (!visit(&r, op)) return false;
    }
    pass_forward_finish(&r.forward, r.m);
    return true;
}
