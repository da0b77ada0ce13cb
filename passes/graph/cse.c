/* cse: common subexpression elimination.
 *
 * Needs    a graph.
 * Does     Of ops with the same code, operands (either order where the op commutes) and attributes
 *          the first stays and the others' results are replaced by its result. One walk with a hash
 *          table; operands are replaced before an op is looked up, so that equal trees fold.
 * Leaves   ops with effects: outputs, traces, writes to state. depth.inverse_rms: batch-queries has
 *          shared those that are worth storing; a mix that reads its sources anyway computes their
 *          norms in passing. Ops that read state take the value written to it as an operand, so
 *          equal ops read the same state.
 */
#include <string.h>

#include "passes/util.h"

/* The hash stands beside the op, so that a search looks at no op that differs: these lie anywhere in
 * a module of many layers. */
typedef struct slot {
    hir_id op; /* HIR_NONE: free */
    uint32_t hash;
} slot;

typedef struct table {
    hir_module *m;
    slot *slot;
    size_t mask;
} table;

static uint64_t mix(uint64_t h, uint64_t x) {
    h ^= x + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdu;
}

static uint64_t hash_bytes(uint64_t h, const void *at, size_t n) {
    const unsigned char *p = at;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

static uint64_t hash_attr(uint64_t h, const hir_attr *a) {
    h = mix(h, a->id);
    switch (hir_attr_kind_of(a->id)) {
    case HIR_ATTR_INT: return mix(h, (uint64_t)a->i);
    case HIR_ATTR_FLOAT: return hash_bytes(h, &a->f, sizeof a->f);
    case HIR_ATTR_STRING: return hash_bytes(h, a->s, strlen(a->s));
    case HIR_ATTR_INTS: return hash_bytes(h, a->ints, a->n * sizeof *a->ints);
    case HIR_ATTR_FLOATS: return hash_bytes(h, a->floats, a->n * sizeof *a->floats);
    }
    return h;
}

static uint64_t hash_ref(hir_ref r) {
    return (uint64_t)r.kind << 32 | r.index;
}

/* Sums of these differ where the numbers of the values have the same sum. */
static uint64_t scattered(uint64_t x) {
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return x ^ x >> 32;
}

static uint64_t hash_op(const hir_op *o) {
    uint64_t h = mix(17, o->code);
    if (pass_is_commutative(o->code)) /* the hash must not depend on the order */
        h = mix(h, scattered(hash_ref(o->args[0])) + scattered(hash_ref(o->args[1])));
    else
        for (uint32_t i = 0; i < o->n_args; i++)
            h = mix(h, hash_ref(o->args[i]));
    for (uint32_t i = 0; i < o->n_attrs; i++)
        h = hash_attr(h, &o->attrs[i]);
    return scattered(h);
}

static bool equal_args(const hir_op *a, const hir_op *b) {
    if (a->n_args != b->n_args) return false;
    bool equal = true;
    for (uint32_t i = 0; i < a->n_args; i++)
        equal &= hir_ref_equal(a->args[i], b->args[i]);
    if (equal || !pass_is_commutative(a->code)) return equal;
    return hir_ref_equal(a->args[0], b->args[1]) && hir_ref_equal(a->args[1], b->args[0]);
}

static bool equal_op(const hir_op *a, const hir_op *b) {
    if (a->code != b->code || a->n_attrs != b->n_attrs || !equal_args(a, b)) return false;
    for (uint32_t i = 0; i < a->n_attrs; i++)
        if (!hir_same_attr(&a->attrs[i], &b->attrs[i])) return false;
    return true;
}

/* The equal op in the table, or `op` itself after adding it. */
static hir_id look_up(table *t, hir_id op) {
    const hir_op *o = hir_op_at(t->m, op);
    const uint64_t hash = hash_op(o);
    const slot new = {op, (uint32_t)(hash >> 32)};
    for (size_t i = (size_t)hash & t->mask;; i = (i + 1) & t->mask) {
        slot *s = &t->slot[i];
        if (s->op == HIR_NONE) *s = new;
        if (s->op == op || (s->hash == new.hash &&equal_op(hir_op_at(t->m, s->op), o)))
            return s->op;
    }
}

static table new_table(hir_module *m, hd_arena *a) {
    size_t size = 64;
    while (size < 2 * m->ops.n)
        size *= 2;
    table t = {.m = m, .slot = hd_new_array(a, slot, size), .mask = size - 1};
    memset(t.slot, 0xff, size * sizeof *t.slot); /* HIR_NONE */
    return t;
}

bool pass_cse(hir_pass_context *c) {
    hir_module *m = c->m;
    table t = new_table(m, c->scratch);
    pass_forward forward = {.arena = c->scratch};
    HIR_EACH(m, op, m->first) {
        pass_forward_args(&forward, m, op);
        const hir_op *o = hir_op_at(m, op);
        if (hir_has_trait(o->code, HIR_EFFECT | HIR_REGION) || o->n_results != 1) continue;
        if (o->code == HIR_DEPTH_INVERSE_RMS_OP) continue;
        hir_id first = look_up(&t, op);
        if (first == op) continue;
        hir_value *kept = hir_value_at(m, hir_result(m, first));
        if (!kept->name) kept->name = hir_value_at(m, o->results[0])->name;
        pass_forward_op(&forward, m, op, hir_value_ref(hir_result(m, first)));
        c->changed = true;
    }
    if (forward.dead.n)
        hir_remark_add(c, true, HIR_NONE, "%zu op%s had been computed before", forward.dead.n,
                       hd_s(forward.dead.n));
    pass_forward_finish(&forward, m);
    return true;
}
