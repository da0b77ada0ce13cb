/* Several queries in one product, as people write them in batches:
 *
 *     a = softmax(linear(keys [T, n, d], queries [m, d]), axis: 1)      [T, n, m]
 *     each sum_i a[:, i, j] v_i by itself, or all of them as one sum [T, m, d]
 *
 * with the axes of sources and queries in this order or, after a transpose of the product, in the
 * other, become m products with one query each, and m sums, which are mixes as others are:
 * form-blocks and batch-queries put them together again where that saves something. The keys are a
 * stack of sources, normed or not. */
#include "passes/depth/depth.h"

typedef struct separator {
    hir_pass_context *c;
    hir_module *m;
    hir_uses uses;
    pass_forward forward;
} separator;

/* A softmax over the sources of the scores of several queries. */
typedef struct batch {
    hir_id softmax;
    hir_ref keys, queries, factor; /* factor: of the scores; none ref: there is none */
    int64_t n, m;
    bool divides;
    uint32_t sources, of_queries; /* axes of the weights */
    hir_ref *weights;             /* by query: [T, n, 1] */
} batch;

static bool is_scalar(const hir_module *m, hir_ref r) {
    const hir_type t = hir_ref_type(m, r);
    return !hir_type_has_t(t) && pass_elements(t) == 1;
}

/* Is x a stack of sources along axis 1, or its norm, or a product of it with what is the same for
 * all tokens? */
static bool is_stack_of_sources(const hir_module *m, hir_ref x) {
    for (int depth = 0; depth < 4; depth++) {
        const hir_id op = pass_def(m, x);
        const hir_op *o = op == HIR_NONE ? NULL : hir_op_at(m, op);
        if (!o) return false;
        if (o->code == HIR_STACK_OP) return hir_attr_int(o, HIR_A_AXIS, 0) == 1 && o->n_args > 1;
        const bool scaled = o->code == HIR_MUL_OP && !hir_type_has_t(hir_ref_type(m, o->args[1]));
        if (o->code != HIR_RMSNORM_OP && !scaled) return false;
        x = o->args[0];
    }
    return false;
}

/* Takes a factor from the scores. */
static void read_factor(const separator *s, hir_ref *scores, batch *b) {
    const hir_opcode code = depth_code(s->m, *scores);
    const hir_id op = pass_def(s->m, *scores);
    if ((code != HIR_MUL_OP && code != HIR_DIV_OP) || depth_is_given(b->factor)) return;
    const uint32_t side = code == HIR_MUL_OP && is_scalar(s->m, pass_arg(s->m, op, 0)) ? 0 : 1;
    if (!is_scalar(s->m, pass_arg(s->m, op, side))) return;
    b->factor = pass_arg(s->m, op, side);
    b->divides = code == HIR_DIV_OP;
    *scores = pass_arg(s->m, op, 1 - side);
}

/* Looks through an exchange of the axes of sources and queries. */
static bool read_transpose(const separator *s, hir_ref *scores) {
    const hir_id op = pass_def_if(s->m, *scores, HIR_TRANSPOSE_OP);
    const hir_attr *perm = op == HIR_NONE ? NULL : hir_find_attr(hir_op_at(s->m, op), HIR_A_PERM);
    if (!perm || perm->n != 3 || perm->ints[0] != 0 || perm->ints[1] != 2) return false;
    *scores = pass_arg(s->m, op, 0);
    return true;
}

static bool read_batch(const separator *s, hir_id softmax, batch *b) {
    const hir_type t = pass_result_type(s->m, softmax);
    const int64_t axis = hir_attr_int(hir_op_at(s->m, softmax), HIR_A_AXIS, 0);
    *b = (batch){.softmax = softmax, .factor = hir_no_ref()};
    if (t.rank != 3 || axis < 1) return false;
    b->sources = (uint32_t)axis;
    b->of_queries = 3 - b->sources;
    b->n = t.dim[b->sources];
    b->m = t.dim[b->of_queries];
    hir_ref scores = pass_arg(s->m, softmax, 0);
    read_factor(s, &scores, b);
    if (read_transpose(s, &scores) != (b->sources == 2)) return false;
    read_factor(s, &scores, b);
    const hir_id product = pass_def_if(s->m, scores, HIR_LINEAR_OP);
    if (b->n < 2 || b->m < 2 || product == HIR_NONE) return false;
    b->keys = pass_arg(s->m, product, 0);
    b->queries = pass_arg(s->m, product, 1);
    return !depth_is_given(pass_arg(s->m, product, 2)) &&
           !hir_type_has_t(hir_ref_type(s->m, b->queries)) && is_stack_of_sources(s->m, b->keys);
}

static hir_ref part(hir_builder *b, hir_ref x, int64_t axis, int64_t i) {
    const hir_attr attrs[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, i),
                              hir_int(HIR_A_LENGTH, 1)};
    return hir_emit(b, HIR_SLICE_OP, &x, 1, attrs, 3);
}

/* The weights of query j. */
static hir_ref weights_of(const separator *s, batch *b, int64_t j) {
    if (depth_is_given(b->weights[j])) return b->weights[j];
    hir_builder at = hir_before(s->m, s->c->diags, b->softmax);
    const hir_attr axis = hir_int(HIR_A_AXIS, 1);
    hir_ref q = part(&at, b->queries, 0, j);
    if (!depth_is_given(q)) return q;
    hir_ref y = hir_emit(&at, HIR_LINEAR_OP, (hir_ref[]){b->keys, q, hir_no_ref()}, 3, NULL, 0);
    if (depth_is_given(y) && depth_is_given(b->factor))
        y = hir_emit2(&at, b->divides ? HIR_DIV_OP : HIR_MUL_OP, y, b->factor);
    if (depth_is_given(y)) y = hir_emit(&at, HIR_SOFTMAX_OP, &y, 1, &axis, 1);
    return b->weights[j] = y;
}

/* Is `side` of the product the weights, as [T, n, m, 1] or [T, m, n, 1], and the other side the
 * sources, as [T, n, 1, d] or [T, 1, n, d]? */
static bool is_batched_product(const separator *s, hir_id product, uint32_t side, const batch *b) {
    const hir_type w = hir_ref_type(s->m, pass_arg(s->m, product, side)),
                   v = hir_ref_type(s->m, pass_arg(s->m, product, 1 - side));
    return w.rank == 4 && v.rank == 4 && w.dim[b->sources] == b->n &&
           w.dim[b->of_queries] == b->m && w.dim[3] == 1 && v.dim[b->sources] == b->n &&
           v.dim[b->of_queries] == 1;
}

/* All sums as one, [T, m, d]: a stack of one for each query. */
static bool separate_sums(separator *s, batch *b, hir_id reshape) {
    if (s->uses.count[hir_result(s->m, reshape)] != 1) return true;
    const hir_id product = s->uses.user[s->uses.first[hir_result(s->m, reshape)]];
    if (hir_op_at(s->m, product)->code != HIR_MUL_OP ||
        s->uses.count[hir_result(s->m, product)] != 1)
        return true;
    const uint32_t side =
        hir_ref_equal(pass_arg(s->m, product, 0), hir_value_ref(hir_result(s->m, reshape))) ? 0 : 1;
    const hir_id sum = s->uses.user[s->uses.first[hir_result(s->m, product)]];
    if (hir_op_at(s->m, sum)->code != HIR_REDUCE_SUM_OP ||
        hir_attr_int(hir_op_at(s->m, sum), HIR_A_AXIS, 0) != b->sources ||
        !is_batched_product(s, product, side, b))
        return true;
    hir_builder at = hir_before(s->m, s->c->diags, sum);
    const hir_attr axis = hir_int(HIR_A_AXIS, 1);
    const hir_ref wide = pass_arg(s->m, product, 1 - side);
    const int64_t d = hir_ref_type(s->m, wide).dim[3];
    const hir_ref v =
        pass_reshape(&at, wide, hir_make_type(HIR_F32, 3, (int64_t[]){HIR_T, b->n, d}));
    hir_ref *mixes = hd_new_array(s->c->scratch, hir_ref, (size_t)b->m);
    for (int64_t j = 0; j < b->m; j++) {
        const hir_ref a = weights_of(s, b, j);
        if (!depth_is_given(a) || !depth_is_given(v)) return false;
        const hir_ref each = hir_emit2(&at, HIR_MUL_OP, v, a);
        mixes[j] = hir_emit(&at, HIR_REDUCE_SUM_OP, &each, 1, &axis, 1);
        if (!depth_is_given(mixes[j])) return false;
    }
    const hir_ref all = hir_emit(&at, HIR_STACK_OP, mixes, (uint32_t)b->m, &axis, 1);
    if (!depth_is_given(all)) return false;
    const hir_id y = hir_result(s->m, sum);
    for (uint32_t i = 0; i < s->uses.count[y]; i++) { /* each mix goes where it is read alone */
        const hir_id user = s->uses.user[s->uses.first[y] + i];
        const hir_op *o = hir_op_at(s->m, user);
        if (o->code != HIR_SLICE_OP || hir_attr_int(o, HIR_A_AXIS, 0) != 1 ||
            hir_attr_int(o, HIR_A_LENGTH, 0) != 1)
            continue;
        hir_builder here = hir_before(s->m, s->c->diags, user);
        const hir_ref one = pass_reshape(&here, mixes[hir_attr_int(o, HIR_A_START, 0)],
                                         pass_result_type(s->m, user));
        if (!depth_is_given(one)) return false;
        pass_forward_op(&s->forward, s->m, user, one);
    }
    pass_forward_op(&s->forward, s->m, sum, all);
    return true;
}

static bool separate(separator *s, batch *b) {
    const hir_id a = hir_result(s->m, b->softmax);
    b->weights = hd_new_array(s->c->scratch, hir_ref, (size_t)b->m);
    for (uint32_t i = 0; i < s->uses.count[a]; i++) {
        const hir_id user = s->uses.user[s->uses.first[a] + i];
        const hir_op *o = hir_op_at(s->m, user);
        if (o->code == HIR_RESHAPE_OP && !separate_sums(s, b, user)) return false;
        if (o->code != HIR_SLICE_OP || hir_attr_int(o, HIR_A_AXIS, 0) != b->of_queries ||
            hir_attr_int(o, HIR_A_LENGTH, 0) != 1)
            continue;
        hir_ref w = weights_of(s, b, hir_attr_int(o, HIR_A_START, 0));
        if (!depth_is_given(w)) return false;
        hir_builder here = hir_before(s->m, s->c->diags, user);
        w = pass_reshape(&here, w, pass_result_type(s->m, user));
        if (!depth_is_given(w)) return false;
        pass_forward_op(&s->forward, s->m, user, w);
    }
    int64_t made = 0;
    for (int64_t j = 0; j < b->m; j++)
        made += depth_is_given(b->weights[j]);
    if (!made) {
        hir_remark_add(s->c, false, b->softmax,
                       "%lld queries in one product over %lld sources stay together, and are no "
                       "attention over depth: their weights are neither taken one by one nor "
                       "multiplied with the sources as [T, n, m, 1] or [T, m, n, 1]",
                       (long long)b->m, (long long)b->n);
        return true;
    }
    s->c->changed = true;
    hir_remark_add(s->c, true, b->softmax,
                   "%lld of %lld queries in one product over %lld sources: a product for each",
                   (long long)made, (long long)b->m, (long long)b->n);
    return true;
}

bool depth_separate_queries(hir_pass_context *c) {
    separator s = {.c = c, .m = c->m, .forward = {.arena = c->scratch}};
    s.uses = hir_compute_uses(c->m, c->scratch);
    HIR_EACH(c->m, op, c->m->first) {
        batch b;
        if (hir_op_at(c->m, op)->code == HIR_SOFTMAX_OP && read_batch(&s, op, &b) &&
            !separate(&s, &b))
            return false;
    }
    pass_forward_finish(&s.forward, c->m);
    return true;
}
