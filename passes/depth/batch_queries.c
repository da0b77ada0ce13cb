/* batch-queries: the mixes of a block become one phase 1 and a phase 2 each.
 *
 * Needs    depth.attend with `block` and `shared` (form-blocks); others pass through.
 * Does     before the first member of a block with the shared sources x_1 .. x_s and the queries of
 *          its members as rows of one table Q [S, d]:
 *              scores  = Q . x_i, all at once                   [T, s, S]
 *              weights = softmax or sigmoid over the sources
 *              lse     = ln sum_i e^score                       [T, S], softmax only
 *              o_k     = sum_i weights[i, k] x_i                for each member k
 *          and member k becomes an attend over its own sources that takes (o_k, lse_k) as a partial
 *          mix; a member without sources of its own becomes o_k. Mixes without a query have their
 *          weights already; the weights of all members form one table, too.
 *          The inverse RMS of a source is computed once for all its users: every attend with a key
 *          norm takes it as operand `inverse`, except attends whose query depends on the token.
 *          depth.weights of a member, for traces, are computed from both phases.
 * Leaves   phase 2 as a depth.attend, which split-merge lowers.
 */
#include <stdlib.h>
#include <string.h>

#include "passes/depth/depth.h"

typedef HD_VEC(hir_id) id_list;

typedef struct known_norm { /* the known inverse RMS of a value */
    hir_ref r;
    double eps;
    uint32_t place; /* place of the op that it was inserted before */
} known_norm;

typedef struct batcher {
    hir_pass_context *c;
    hir_module *m;
    uint32_t *place; /* by op, before the pass: its position in the program */
    size_t n_ops, n_values;
    known_norm *norms; /* by value */
    id_list shown;     /* depth.weights */
    pass_forward forward;
} batcher;

typedef struct hoisted {
    hir_id op;
    uint32_t place; /* place of the op before it was moved */
} hoisted;

typedef struct block {
    id_list members;
    uint32_t shared;
    hir_id anchor; /* the op before which phase 1 is inserted */
} block;

static hir_ref concat(hir_builder *b, const hir_ref *parts, uint32_t n, int64_t axis) {
    hir_attr at = hir_int(HIR_A_AXIS, axis);
    return n == 1 ? parts[0] : hir_emit(b, HIR_CONCAT_OP, parts, n, &at, 1);
}

/* ---- inverse RMS --------------------------------------------------------------------------- */
static hir_ref inverse_rms(batcher *t, hir_builder *b, hir_ref x, double eps) {
    known_norm *known = &t->norms[x.index];
    uint32_t place = t->place[b->before];
    if (depth_is_given(known->r) && known->eps == eps && known->place <= place) return known->r;
    hir_attr attr = hir_float(HIR_A_EPS, eps);
    *known = (known_norm){hir_emit(b, HIR_DEPTH_INVERSE_RMS_OP, &x, 1, &attr, 1), eps, place};
    return known->r;
}

/* Inverse RMS [T, n] of sources first .. first+n-1 of the attend; the none ref if its keys are not
 * normed. */
static hir_ref inverses(batcher *t, hir_builder *b, hir_id attend, uint32_t first, uint32_t n) {
    const hir_attr *eps = hir_find_attr(hir_op_at(t->m, attend), HIR_A_EPS);
    if (!eps) return hir_no_ref();
    double value = eps->f;
    hir_ref *r = hd_new_array(t->c->scratch, hir_ref, n);
    for (uint32_t i = 0; i < n; i++)
        r[i] = inverse_rms(t, b, depth_source(t->m, attend, first + i), value);
    return concat(b, r, n, 1);
}

/* ---- hoisting queries ------------------------------------------------------------------- */
static int by_place(const void *x, const void *y) {
    const hoisted *a = x, *b = y;
    return a->place < b->place ? -1 : a->place > b->place;
}

/* Moves the ops that compute a value without T to before `anchor`, keeping their order. */
static void hoist(batcher *t, hir_ref r, hir_id anchor) {
    HD_VEC(hoisted) ops = {0};
    HD_VEC(hir_ref) open = {0};
    uint32_t limit = t->place[anchor];
    hd_push(t->c->scratch, &open, r);
    while (open.n) {
        hir_id op = pass_def(t->m, open.at[--open.n]);
        if (op == HIR_NONE || op >= t->n_ops || t->place[op] < limit) continue;
        hd_push(t->c->scratch, &ops, ((hoisted){op, t->place[op]}));
        t->place[op] = 0;
        for (uint32_t i = 0; i < hir_op_at(t->m, op)->n_args; i++)
            hd_push(t->c->scratch, &open, pass_arg(t->m, op, i));
    }
    if (ops.n) qsort(ops.at, ops.n, sizeof *ops.at, by_place);
    for (size_t i = 0; i < ops.n; i++)
        hir_move_before(t->m, ops.at[i].op, HIR_NONE, anchor);
}

/* ---- phase 1 -------------------------------------------------------------------------------- */
typedef struct phase1 {
    hir_ref weights, lse; /* [T, s, S(, H)] and [T, S(, H)]; without queries [S, s] */
    uint32_t member;      /* the axis of members in weights */
} phase1;

static hir_ref stack(hir_builder *b, const hir_ref *x, uint32_t n, int64_t axis) {
    hir_attr at = hir_int(HIR_A_AXIS, axis);
    return hir_emit(b, HIR_STACK_OP, x, n, &at, 1);
}

static hir_ref query_table(batcher *t, hir_builder *b, const block *k) {
    hir_ref *q = hd_new_array(t->c->scratch, hir_ref, k->members.n);
    for (size_t i = 0; i < k->members.n; i++) {
        q[i] = pass_arg(t->m, k->members.at[i], ATTEND_QUERY);
        hoist(t, q[i], k->anchor);
    }
    return stack(b, q, (uint32_t)k->members.n, 0);
}

static hir_ref slice_of_bias(hir_builder *b, hir_ref bias, uint32_t start, uint32_t n) {
    hir_attr at[] = {hir_int(HIR_A_AXIS, 0), hir_int(HIR_A_START, start), hir_int(HIR_A_LENGTH, n)};
    if (!depth_is_given(bias) || hir_ref_type(b->m, bias).dim[0] == n) return bias;
    return hir_emit(b, HIR_SLICE_OP, &bias, 1, at, 3);
}

/* The biases of the shared sources for all members, stacked along `axis`: [s, S] or [S, s]; the
 * none ref if no member has a bias. */
static hir_ref bias_table(batcher *t, hir_builder *b, const block *k, int64_t axis) {
    hir_attr zero[] = {hir_ints(HIR_A_SHAPE, (int64_t[]){k->shared}, 1), hir_float(HIR_A_VALUE, 0)};
    hir_ref *parts = hd_new_array(t->c->scratch, hir_ref, k->members.n);
    bool any = false;
    for (size_t i = 0; i < k->members.n; i++) {
        hir_ref bias = pass_arg(t->m, k->members.at[i], ATTEND_BIAS);
        any |= depth_is_given(bias);
        hoist(t, bias, k->anchor);
        parts[i] = slice_of_bias(b, bias, 0, k->shared);
    }
    for (size_t i = 0; any && i < k->members.n; i++)
        if (!depth_is_given(parts[i])) parts[i] = hir_emit(b, HIR_CONST_OP, NULL, 0, zero, 2);
    return any ? stack(b, parts, (uint32_t)k->members.n, axis) : hir_no_ref();
}

static hir_ref block_scores(batcher *t, hir_builder *b, const block *k) {
    hir_id first = k->members.at[0];
    hir_ref *args = hd_new_array(t->c->scratch, hir_ref, 3 + k->shared);
    args[0] = query_table(t, b, k);
    args[1] = bias_table(t, b, k, 1);
    args[2] = inverses(t, b, first, 0, k->shared);
    for (uint32_t i = 0; i < k->shared; i++)
        args[3 + i] = depth_source(t->m, first, i);
    hir_attr attrs[2];
    uint32_t n = depth_copy_attrs(t->m, first, attrs);
    return hir_emit(b, HIR_DEPTH_SCORES_OP, args, 3 + k->shared, attrs, n);
}

static bool build_phase1(batcher *t, hir_builder *b, const block *k, phase1 *p) {
    const hir_id first = k->members.at[0];
    const hir_attr axis = hir_int(HIR_A_AXIS, 1);
    *p = (phase1){.lse = hir_no_ref(), .member = 2};
    if (!depth_is_given(pass_arg(t->m, first, ATTEND_QUERY))) {
        p->member = 0;
        p->weights = bias_table(t, b, k, 0);
        return depth_is_given(p->weights);
    }
    hir_ref scores = block_scores(t, b, k);
    if (!depth_is_given(scores)) return false;
    if (!depth_is_softmax(t->m, first)) {
        const bool sigmoid = !strcmp(depth_normalization(t->m, first), "sigmoid");
        p->weights = sigmoid ? hir_emit1(b, HIR_SIGMOID_OP, scores) : scores;
        return depth_is_given(p->weights);
    }
    p->weights = hir_emit(b, HIR_SOFTMAX_OP, &scores, 1, &axis, 1);
    p->lse = hir_emit(b, HIR_LOGSUMEXP_OP, &scores, 1, &axis, 1);
    return depth_is_given(p->weights) && depth_is_given(p->lse);
}

/* Builds the partial mix o_k of member i. */
static hir_ref build_mix(batcher *t, hir_builder *b, const block *k, const phase1 *p, uint32_t i) {
    hir_id first = k->members.at[0];
    int64_t heads = hir_attr_int(hir_op_at(t->m, first), HIR_A_HEADS, 1);
    hir_attr attr = hir_int(HIR_A_HEADS, heads);
    hir_ref *args = hd_new_array(t->c->scratch, hir_ref, 1 + k->shared);
    args[0] = depth_element(b, p->weights, p->member, i);
    for (uint32_t j = 0; j < k->shared; j++)
        args[1 + j] = depth_source(t->m, first, j);
    return hir_emit(b, HIR_DEPTH_MIX_OP, args, 1 + k->shared, &attr, heads > 1);
}

/* ---- phase 2 of a member ---------------------------------------------------------------- */
/* Builds the log-sum-exp lse_k of member i, as [T, H]. */
static hir_ref build_lse(batcher *t, hir_builder *b, hir_id member, const phase1 *p, uint32_t i) {
    if (!depth_is_given(p->lse)) return p->lse;
    int64_t heads = hir_attr_int(hir_op_at(t->m, member), HIR_A_HEADS, 1);
    hir_ref lse = depth_element(b, p->lse, 1, i);
    if (!depth_is_given(lse)) return lse;
    return pass_reshape(b, lse, hir_make_type(HIR_F32, 2, (int64_t[]){HIR_T, heads}));
}

static hir_ref build_rest(batcher *t, hir_builder *b, hir_opcode code, hir_id member,
                          uint32_t shared, hir_ref o, hir_ref lse) {
    uint32_t n = depth_sources(t->m, member) - shared;
    hir_ref *args = hd_new_array(t->c->scratch, hir_ref, ATTEND_SOURCES + n);
    args[ATTEND_QUERY] = pass_arg(t->m, member, ATTEND_QUERY);
    args[ATTEND_BIAS] = slice_of_bias(b, pass_arg(t->m, member, ATTEND_BIAS), shared, n);
    args[ATTEND_INVERSE] = inverses(t, b, member, shared, n);
    args[ATTEND_PARTIAL] = o;
    args[ATTEND_LSE] = lse;
    for (uint32_t i = 0; i < n; i++)
        args[ATTEND_SOURCES + i] = depth_source(t->m, member, shared + i);
    hir_attr attrs[3] = {hir_string(HIR_A_NORMALIZATION, depth_normalization(t->m, member))};
    uint32_t n_attrs = 1 + depth_copy_attrs(t->m, member, attrs + 1);
    return hir_emit(b, code, args, ATTEND_SOURCES + n, attrs, n_attrs);
}

/* ---- traced weights ------------------------------------------------------------------ */
static bool reads(const batcher *t, hir_id op, hir_ref x) {
    for (uint32_t i = 0; i < depth_sources(t->m, op); i++)
        if (hir_ref_equal(depth_source(t->m, op, i), x)) return true;
    return false;
}

static bool same_sources(const batcher *t, hir_id a, hir_id b) {
    uint32_t n = depth_sources(t->m, a);
    if (n != depth_sources(t->m, b)) return false;
    bool in_order = depth_is_given(pass_arg(t->m, a, ATTEND_BIAS)); /* a bias is by source */
    for (uint32_t i = 0; i < n; i++) {
        hir_ref x = depth_source(t->m, a, i);
        if (in_order ? !hir_ref_equal(depth_source(t->m, b, i), x) : !reads(t, b, x)) return false;
    }
    return true;
}

/* Finds a depth.weights, not rewritten yet, with the query and the sources of an attend. */
static hir_id *weights_of(const batcher *t, hir_id attend) {
    for (size_t i = 0; i < t->shown.n; i++) {
        hir_id *op = &t->shown.at[i];
        if (*op != HIR_NONE && depth_same_query(t->m, *op, attend) &&
            depth_same_kind(t->m, *op, attend) && same_sources(t, *op, attend))
            return op;
    }
    return NULL;
}

/* 1 - sum_i y_i: the weight of phase 1, given the weights y of the sources of phase 2; [T, 1(, H)]
 * for y [T, n(, H)] */
static hir_ref rest_of(hir_builder *b, hir_ref y) {
    hir_type t = pass_keep_one(hir_ref_type(b->m, y), 1);
    hir_ref sum = pass_reduce(b, HIR_REDUCE_SUM_OP, y, 1);
    if (!depth_is_given(sum)) return sum;
    return hir_emit2(b, HIR_SUB_OP, hir_emit_const(b, 1), pass_reshape(b, sum, t));
}

/* Permutes weights from the source order of the attend to that of `shown`. */
static hir_ref in_order_of(batcher *t, hir_builder *b, hir_ref a, hir_id attend, hir_id shown) {
    uint32_t n = depth_sources(t->m, attend);
    hir_ref *parts = hd_new_array(t->c->scratch, hir_ref, n);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t j = 0;
        while (j < n && !hir_ref_equal(depth_source(t->m, attend, j), depth_source(t->m, shown, i)))
            j++;
        hir_attr at[] = {hir_int(HIR_A_AXIS, 1), hir_int(HIR_A_START, j < n ? j : i),
                         hir_int(HIR_A_LENGTH, 1)};
        parts[i] = hir_emit(b, HIR_SLICE_OP, &a, 1, at, 3);
        if (!depth_is_given(parts[i])) return parts[i];
    }
    return concat(b, parts, n, 1);
}

/* The weights of phase 1 and, for a member with sources of its own, those of phase 2, scaled so
 * that all of them sum to 1. */
static hir_ref both_phases(batcher *t, hir_builder *b, hir_id member, const block *k,
                           const phase1 *p, uint32_t i) {
    hir_ref one = depth_element(b, p->weights, p->member, i);
    if (!depth_is_given(one) || depth_sources(t->m, member) == k->shared) return one;
    hir_ref lse = build_lse(t, b, member, p, i);
    hir_ref two = build_rest(t, b, HIR_DEPTH_WEIGHTS_OP, member, k->shared, hir_no_ref(), lse);
    if (!depth_is_given(two)) return two;
    if (depth_is_given(lse)) one = hir_emit2(b, HIR_MUL_OP, one, rest_of(b, two));
    return depth_is_given(one) ? concat(b, (hir_ref[]){one, two}, 2, 1) : one;
}

static bool show_weights(batcher *t, hir_id member, const block *k, const phase1 *p, uint32_t i) {
    hir_id *taken = weights_of(t, member), shown = taken ? *taken : HIR_NONE;
    if (shown == HIR_NONE) return true;
    *taken = HIR_NONE;
    hir_builder b = hir_before(t->m, t->c->diags, shown);
    hir_ref a = both_phases(t, &b, member, k, p, i);
    if (depth_is_given(a)) a = in_order_of(t, &b, a, member, shown);
    if (!depth_is_given(a)) return false;
    pass_forward_op(&t->forward, t->m, shown, a);
    return true;
}

/* The first op that needs phase 1: a member, or its depth.weights. All of them read the shared
 * sources.
 */
static hir_id first_reader(const batcher *t, const block *k) {
    hir_id first = k->members.at[0];
    for (size_t i = 0; i < k->members.n; i++) {
        const hir_id *shown = weights_of(t, k->members.at[i]);
        if (shown && t->place[*shown] < t->place[first]) first = *shown;
    }
    return first;
}

static bool split_block(batcher *t, block *k) {
    hd_known(k->members.at);
    hir_id first = k->members.at[0];
    k->anchor = first_reader(t, k);
    hir_builder b = hir_before(t->m, t->c->diags, k->anchor);
    phase1 p;
    if (!build_phase1(t, &b, k, &p)) return false;
    for (uint32_t i = 0; i < k->members.n; i++) {
        hir_id member = k->members.at[i];
        b.loc = *hir_op_at(t->m, member)->loc;
        if (!show_weights(t, member, k, &p, i)) return false;
        hir_ref o = build_mix(t, &b, k, &p, i), lse = build_lse(t, &b, member, &p, i);
        if (!depth_is_given(o)) return false;
        hir_builder own = hir_before(t->m, t->c->diags, member);
        if (depth_sources(t->m, member) > k->shared)
            o = build_rest(t, &own, HIR_DEPTH_ATTEND_OP, member, k->shared, o, lse);
        if (!depth_is_given(o)) return false;
        pass_forward_op(&t->forward, t->m, member, o);
    }
    hir_remark_add(t->c, true, first, "%zu queries against %u source%s in one phase 1",
                   k->members.n, k->shared, hd_s(k->shared));
    return true;
}

/* ---- the pass ------------------------------------------------------------------------------- */
/* Gives an attend outside of blocks its `inverse` operands, so that norms of its sources are shared
 * with other attends. An attend whose query depends on the token is skipped.
 */
static bool norm_alone(batcher *t, hir_id op) {
    if (!hir_find_attr(hir_op_at(t->m, op), HIR_A_EPS)) return true;
    hir_ref query = pass_arg(t->m, op, ATTEND_QUERY);
    if (depth_is_given(query) && depth_query_has_t(t->m, op)) return true;
    hir_ref partial = pass_arg(t->m, op, ATTEND_PARTIAL), lse = pass_arg(t->m, op, ATTEND_LSE);
    hir_builder b = hir_before(t->m, t->c->diags, op);
    hir_ref y = build_rest(t, &b, hir_op_at(t->m, op)->code, op, 0, partial, lse);
    if (!depth_is_given(y)) return false;
    pass_forward_op(&t->forward, t->m, op, y);
    t->c->changed = true;
    return true;
}

/* Handles a mix outside of blocks. Its traced weights come first, so that the mix reuses the norms
 * computed for them. */
static bool mix_alone(batcher *t, hir_id op) {
    hir_id *taken = weights_of(t, op), shown = taken ? *taken : HIR_NONE;
    if (taken) *taken = HIR_NONE;
    return (shown == HIR_NONE || norm_alone(t, shown)) && norm_alone(t, op);
}

/* Why a block is not valid, or NULL. Attributes of blocks may come from an edited file, so they are
 * checked. */
static const char *block_fault(const batcher *t, const block *k) {
    hd_known(k->members.at);
    const hir_op *first = hir_op_at(t->m, k->members.at[0]);
    for (size_t i = 0; i < k->members.n; i++) {
        hir_id op = k->members.at[i];
        const hir_op *o = hir_op_at(t->m, op);
        if (!depth_same_kind(t->m, k->members.at[0], op)) return "its members differ in kind";
        if (depth_is_given(o->args[ATTEND_QUERY]) && depth_query_has_t(t->m, op))
            return "a query depends on the token";
        if (depth_is_given(o->args[ATTEND_PARTIAL]) || depth_is_given(o->args[ATTEND_INVERSE]))
            return "a member is in two phases already";
        if (hir_attr_int(o, HIR_A_SHARED, 0) != k->shared)
            return "its members do not share the same number of sources";
        for (uint32_t j = 0; j < k->shared; j++)
            if (!hir_ref_equal(o->args[ATTEND_SOURCES + j], first->args[ATTEND_SOURCES + j]))
                return "the first `shared` sources of its members differ";
    }
    return NULL;
}

static bool check_block(const batcher *t, const block *k) {
    const char *fault = block_fault(t, k);
    if (!fault) return true;
    hir_id first = k->members.at[0];
    hd_diag *e = hd_err(t->c->diags, HD_E_VALUE, *hir_op_at(t->m, first)->loc,
                        "block %lld of depth.attend is not valid: %s",
                        (long long)hir_attr_int(hir_op_at(t->m, first), HIR_A_BLOCK, 0), fault);
    e->cause = pass_op_text(t->m, first, t->c->diags->arena);
    e->hint = "form-blocks sets `block` and `shared`";
    return false;
}

static batcher new_batcher(hir_pass_context *c) {
    batcher t = {.c = c, .m = c->m, .n_ops = c->m->ops.n, .n_values = c->m->values.n};
    uint32_t at = 1;
    t.place = hd_new_array(c->scratch, uint32_t, t.n_ops);
    t.norms = hd_new_array(c->scratch, known_norm, t.n_values);
    t.forward = (pass_forward){.arena = c->scratch};
    HIR_EACH(t.m, op, t.m->first) t.place[op] = at++;
    return t;
}

/* An attend, by number of its block. */
typedef struct place_in_block {
    int64_t block; /* -1: in no block */
    size_t at;     /* index into the attends of the program */
} place_in_block;

static int by_block(const void *x, const void *y) {
    const place_in_block *a = x, *b = y;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The members of the block that begins with attend `i`, in the order of the program; others may
 * stand between them. None: the attend is not the first of a block. */
static block members_from(const batcher *t, const id_list *attends, const place_in_block *sorted,
                          const size_t *where, size_t i) {
    const hir_id first = attends->at[i];
    block k = {.shared = (uint32_t)hir_attr_int(hir_op_at(t->m, first), HIR_A_SHARED, 1)};
    const size_t from = where[i];
    if (from > 0 && sorted[from - 1].block == sorted[from].block) return k;
    for (size_t j = from; j < attends->n && sorted[j].block == sorted[from].block; j++)
        hd_push(t->c->scratch, &k.members, attends->at[sorted[j].at]);
    return k;
}

bool pass_batch_queries(hir_pass_context *c) {
    batcher t = new_batcher(c);
    id_list attends = {0};
    HIR_EACH(t.m, op, t.m->first) {
        hir_opcode code = hir_op_at(t.m, op)->code;
        if (code == HIR_DEPTH_ATTEND_OP) hd_push(c->scratch, &attends, op);
        if (code == HIR_DEPTH_WEIGHTS_OP) hd_push(c->scratch, &t.shown, op);
    }
    place_in_block *sorted = hd_new_array(c->scratch, place_in_block, attends.n + 1);
    size_t *where = hd_new_array(c->scratch, size_t, attends.n + 1); /* by attend: in `sorted` */
    for (size_t i = 0; i < attends.n; i++)
        sorted[i] =
            (place_in_block){hir_attr_int(hir_op_at(t.m, attends.at[i]), HIR_A_BLOCK, -1), i};
    qsort(sorted, attends.n, sizeof *sorted, by_block);
    for (size_t i = 0; i < attends.n; i++)
        where[sorted[i].at] = i;
    for (size_t i = 0; i < attends.n; i++) {
        if (sorted[where[i]].block < 0) {
            if (!mix_alone(&t, attends.at[i])) return false;
            continue;
        }
        block k = members_from(&t, &attends, sorted, where, i);
        if (!k.members.n) continue;
        if (!check_block(&t, &k) || !split_block(&t, &k)) return false;
        c->changed = true;
    }
    pass_forward_finish(&t.forward, t.m);
    return true;
}
