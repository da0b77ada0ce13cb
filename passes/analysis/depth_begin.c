/* Where the residual stream begins, if that is behind the embedding: at a value that all which is made
 * of the embedding goes through before the first sublayer.
 *
 *   later    what is made of embeddings token by token: a norm, a sum of two
 *   joints   what is made of them in any way: a projection and the embedding of the position added up, the
 *            product of two projections
 *
 * In both, one walk in reverse finds for each value the next one that all ways from it lead to.
 */
#include "ir/kernel/kernels.h"
#include "passes/analysis/depth_flow_private.h"

static bool is_effect(const hir_op *o) {
    return hir_has_trait(o->code, HIR_EFFECT) || o->n_results == 0;
}

/* What is made of embeddings alone, token by token: the embedding itself, its norm, a sum of two. */
typedef struct early_values {
    HD_VEC(hir_id) at; /* in program order */
    HD_VEC(uint32_t)
    next;                   /* by place in `at`: the place of the first value that all which is made
                             * of this one goes through; at.n: there is none */
    HD_VEC(uint32_t) left;  /* by place: how many values a way goes through from there */
    HD_VEC(uint32_t) far;   /* and one of these (end_way) */
    HD_VEC(hir_id) readers; /* ops that read one, in program order */
    HD_VEC(bool) weighed;   /* by place: weights have a part in it, other than the embedding */
    uint32_t *place;        /* by value: 1 + its place in `at`; 0: it has none */
    bool joints;            /* ops of all kinds make some */
} early_values;

static bool is_start(const flow_finder *f, const hir_op *o) {
    return flow_is_embedding(f, o) ||
           (f->begin != HIR_NONE && o->n_results && o->results[0] == f->begin);
}

/* The operands of an op that are early values, and others. */
typedef struct operand_counts {
    uint32_t early, others;
    bool first; /* the first of all is one of them */
} operand_counts;

static operand_counts count_operands(const flow_finder *f, const early_values *e, const hir_op *o) {
    operand_counts n = {0};
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id x = flow_operand(f, o, i);
        if (x == HIR_NONE) continue;
        n.early += e->place[x] != 0;
        n.others += e->place[x] == 0;
        n.first |= e->place[x] == 1;
    }
    return n;
}

static bool is_early(const flow_finder *f, const early_values *e, const hir_op *o,
                     const operand_counts *n) {
    if (e->joints) return o->n_results && (is_start(f, o) || n->early);
    if (is_effect(o) || o->n_results != 1 || hir_flow_is_choice(f->out->m, o)) return false;
    return is_start(f, o) || (n->early && !n->others && !hir_flow_is_border(f->out, o));
}

/* Have weights a part in the result of an op, other than the embedding itself? */
static bool uses_weights(const flow_finder *f, const early_values *e, const hir_op *o) {
    bool any = false;
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_id x = flow_operand(f, o, i);
        any |= o->args[i].kind == HIR_REF_WEIGHT ||
               (x != HIR_NONE && e->place[x] && e->weighed.at[e->place[x] - 1]);
    }
    return any && !is_start(f, o);
}

/* Of the first n ops of the program. False: the first of them goes into something else. */
static bool list_early(const flow_finder *f, early_values *e, size_t n_ops) {
    const hir_flow *out = f->out;
    e->place = hd_new_array(f->arena, uint32_t, out->m->values.n);
    for (size_t k = 0; k < n_ops; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        const operand_counts n = count_operands(f, e, o);
        if (o->code == HIR_TRACE_OP) continue;
        if (n.early) hd_push(f->arena, &e->readers, out->program.at[k]);
        if (is_early(f, e, o, &n)) {
            hd_push(f->arena, &e->at, o->results[0]);
            hd_push(f->arena, &e->weighed, uses_weights(f, e, o));
            for (uint32_t i = 0; i < o->n_results; i++)
                e->place[o->results[i]] = (uint32_t)e->at.n;
        } else if (n.first && f->begin == HIR_NONE && !e->joints) {
            return false;
        }
    }
    return true;
}

/* Where the ways from two values meet, by places: the next of each lies behind it. */
static uint32_t meet(const early_values *e, uint32_t a, uint32_t b) {
    while (a != b) {
        uint32_t *first = a < b ? &a : &b;
        const uint32_t far = e->far.at[*first];
        *first = far <= (a < b ? b : a) ? far : e->next.at[*first];
    }
    return a;
}

/* A value with its next, which is the final one: how far it is from the end of all ways, and the
 * value that `meet` may go on with if that is not too far. Distances of these grow as those of skew
 * binary numbers do, so that a way takes steps by the logarithm of its length: a value that each
 * layer reads, such as the first layer's v, has a way from each of them. */
static void end_way(early_values *e, uint32_t k) {
    const uint32_t next = e->next.at[k], far = e->far.at[next], farther = e->far.at[far];
    const uint32_t *left = e->left.at;
    e->left.at[k] = left[next] + 1;
    e->far.at[k] = left[next] - left[far] == left[far] - left[farther] ? farther : next;
}

/* From the last op to the first: all that reads a value is known before it is. */
static void find_next(const flow_finder *f, early_values *e) {
    enum { UNREAD = UINT32_MAX };
    const uint32_t end = (uint32_t)e->at.n;
    for (uint32_t k = 0; k <= end; k++) {
        hd_push(f->arena, &e->next, UNREAD);
        hd_push(f->arena, &e->far, end);
        hd_push(f->arena, &e->left, 0);
    }
    for (size_t k = e->readers.n; k-- > 0;) {
        const hir_op *o = hir_op_at(f->out->m, e->readers.at[k]);
        const uint32_t made = o->n_results ? e->place[o->results[0]] : 0;
        if (made && e->next.at[made - 1] == UNREAD) continue;
        const uint32_t to = made ? made - 1 : end;
        if (made) end_way(e, to);
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id x = flow_operand(f, o, i);
            if (x == HIR_NONE || !e->place[x]) continue;
            uint32_t *next = &e->next.at[e->place[x] - 1];
            *next = *next == UNREAD ? to : meet(e, *next, to);
        }
    }
}

/* Does all that the value is made of go nowhere else? */
static bool has_all_of_its_own(const flow_finder *f, const early_values *e, uint32_t at) {
    bool *of = hd_new_array(f->arena, bool, at + 1);
    of[at] = true;
    for (uint32_t k = at + 1; k-- > 0;) {
        if (!of[k]) continue;
        if (k < at && e->next.at[k] > at) return false;
        const hir_op *o = hir_op_at(f->out->m, hir_value_at(f->out->m, e->at.at[k])->op);
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id x = flow_operand(f, o, i);
            if (x != HIR_NONE && e->place[x]) of[e->place[x] - 1] = true;
        }
    }
    return true;
}

static bool is_of_received(const flow_finder *f) {
    bool received = false;
    for (size_t k = 0; k < f->starts.n && f->begin == HIR_NONE; k++)
        received |= flow_is_received(f, hir_op_at(f->out->m, f->starts.at[k]));
    return received;
}

/* The stream begins at the last value, as wide as it is, that all which is made of the embedding
 * goes through, such as its norm, or its sum with that of the position. HIR_NONE: at the embedding
 * itself, or a multiple of it, or at what a pipeline stage receives. */
hir_id flow_later_beginning(const flow_finder *f) {
    const hir_flow *out = f->out;
    early_values e = {0};
    if (is_of_received(f) || !list_early(f, &e, out->program.n)) return HIR_NONE;
    find_next(f, &e);
    uint32_t k = f->begin == HIR_NONE ? 0 : e.place[f->begin] - 1, last = UINT32_MAX;
    for (; k < e.at.n; k = e.next.at[k])
        if (flow_row(f, e.at.at[k]) == out->width && has_all_of_its_own(f, &e, k)) last = k;
    if (last == UINT32_MAX) return HIR_NONE;
    const hir_id v = e.at.at[last];
    return v == f->begin || out->kind[v] == HIR_FLOW_EMBEDDING ? HIR_NONE : v;
}

/* ---- joints ----------------------------------------------------------------------------------- */

/* How values lead to the joint. */
enum {
    STRAIGHT = 1, /* as terms, with factors or not */
    CHANGED = 2,  /* token by token: as a norm, an activation, a coefficient */
    THROUGH = 4,  /* through a contraction */
    ALONG = 8,    /* through what looks along the sequence, which no beginning is made with */
};

/* Is the row, operand i of a product or quotient, multiplied with a statistic of rows, as a norm that
 * is written out does it? Other coefficients are made with weights. */
static bool is_normed(const flow_finder *f, const early_values *e, const hir_op *o, uint32_t i) {
    const hir_id other = flow_operand(f, o, 1 - i);
    return other != HIR_NONE && e->place[other] && !e->weighed.at[e->place[other] - 1] &&
           flow_row(f, other) < flow_row(f, o->results[0]);
}

/* Is operand i of an op no longer part of the result as it is, but for terms and factors? */
static bool is_changed(const flow_finder *f, const early_values *e, const hir_op *o, uint32_t i) {
    switch (o->code) {
    case HIR_NEG_OP: return false;
    case HIR_RMSNORM_OP:
    case HIR_LAYERNORM_OP: return true;
    case HIR_DIV_OP: return i == 1 || is_normed(f, e, o, i);
    case HIR_MUL_OP: return is_normed(f, e, o, i);
    default: return o->n_args == 1 && hir_has_trait(o->code, HIR_ELEMENTWISE);
    }
}

/* How operand i of an op leads to the joint, whose result leads to it in some ways. */
static uint8_t ways_of_operand(const flow_finder *f, const early_values *e, const hir_op *o,
                               uint32_t i, uint8_t ways) {
    if (hir_flow_is_border(f->out, o))
        return hir_is_linear(o->code) && !(ways & ALONG) ? THROUGH : ALONG;
    if (!(ways & STRAIGHT) || !is_changed(f, e, o, i)) return ways;
    return (uint8_t)((ways & ~STRAIGHT) | CHANGED);
}

typedef enum joint_kind {
    NO_JOINT, /* something goes on around a sublayer, comes from elsewhere or goes there */
    JOINT,
    CHANGED_JOINT, /* what goes around a contraction is no longer the value itself, as in
                    * norm(e) + W e */
} joint_kind;

/* How the value in place `from` leads to that in place `to`, without being read elsewhere. */
static joint_kind joint_of(const flow_finder *f, const early_values *e, uint32_t from,
                           uint32_t to) {
    uint8_t *ways = hd_new_array(f->arena, uint8_t, to + 1);
    joint_kind kind = JOINT;
    ways[to] = STRAIGHT;
    for (uint32_t k = to + 1; k-- > 0;) {
        const uint8_t way = ways[k];
        if (!way) continue;
        if (way & (THROUGH | ALONG) && way & STRAIGHT) return NO_JOINT;
        if (way & ALONG && way & CHANGED) return NO_JOINT;
        if (way & THROUGH && way & CHANGED) kind = CHANGED_JOINT;
        if (k < to && e->next.n && e->next.at[k] > to) return NO_JOINT;
        const hir_op *o = hir_op_at(f->out->m, hir_value_at(f->out->m, e->at.at[k])->op);
        if (k == from || is_start(f, o)) continue;
        for (uint32_t i = 0; i < o->n_args; i++) {
            const hir_id x = flow_operand(f, o, i);
            if (x == HIR_NONE) continue;
            if (!e->place[x]) return NO_JOINT;
            ways[e->place[x] - 1] |= ways_of_operand(f, e, o, i, way);
        }
    }
    return ways[from] ? kind : NO_JOINT;
}

/* Where one joint of this kind follows another, sublayers are added to what is made of the stream:
 * none of them is its beginning. */
static joint_kind next_joint(const flow_finder *f, const early_values *e, uint32_t from) {
    const uint32_t to = e->next.at[from];
    const joint_kind kind = to < e->at.n ? joint_of(f, e, from, to) : NO_JOINT;
    if (kind != CHANGED_JOINT || e->next.at[to] >= e->at.n) return kind;
    return joint_of(f, e, to, e->next.at[to]) == CHANGED_JOINT ? NO_JOINT : kind;
}

size_t flow_list_joints(const flow_finder *f, hir_id *out, size_t most) {
    early_values e = {.joints = true};
    HD_VEC(hir_id) all = {0};
    size_t n = 0;
    if (is_of_received(f) || !list_early(f, &e, f->out->program.n)) return 0;
    find_next(f, &e);
    for (uint32_t k = 0; k < e.at.n && next_joint(f, &e, k) != NO_JOINT; k = e.next.at[k]) {
        const hir_id v = e.at.at[e.next.at[k]];
        if (hir_type_has_t(hir_value_at(f->out->m, v)->type)) hd_push(f->arena, &all, v);
    }
    while (n < most && n < all.n) {
        out[n] = all.at[all.n - 1 - n];
        n++;
    }
    return n;
}

/* The number of ops up to the first that combines a row of the first sublayer's output with another row;
 * 0: none does. */
static size_t first_combined(const flow_finder *f) {
    const hir_flow *out = f->out;
    hir_id made = out->outputs.at[0]; /* of the output alone, times coefficients */
    for (size_t k = 0; k < out->program.n; k++) {
        const hir_op *o = hir_op_at(out->m, out->program.at[k]);
        bool reads = false, others = false;
        for (uint32_t i = 0; i < o->n_args && o->n_results; i++) {
            const hir_id x = flow_operand(f, o, i);
            reads |= x == made;
            others |= x != HIR_NONE && x != made && out->kind[x] != HIR_FLOW_NUMBERS;
        }
        if (reads && others) return k + 1;
        if (reads && !hir_flow_is_border(out, o)) made = o->results[0];
    }
    return 0;
}

bool flow_begins_changed(const flow_finder *f) {
    early_values e = {.joints = true};
    const size_t n = f->out->outputs.n ? first_combined(f) : 0;
    return n && list_early(f, &e, n) && e.at.n &&
           joint_of(f, &e, 0, (uint32_t)e.at.n - 1) == CHANGED_JOINT;
}
