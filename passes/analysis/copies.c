/* Numbers values so that equal numbers are equal values: one walk over both halves, in order, with
 * a hash table of ops by code, attributes, and the numbers and types of their operands. */
#include "passes/analysis/copies.h"

#include "ir/kernel/kernels.h"

typedef struct numberer {
    const hir_flow *flow;
    const hir_module *m;
    hir_id *number; /* by value (origins): the first that is equal */
    hir_id *slot;   /* ops; HIR_NONE: free */
    size_t mask;
} numberer;

static uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

static hir_ref numbered(const numberer *n, hir_ref r) {
    return r.kind == HIR_REF_VALUE ? hir_value_ref(n->number[n->flow->origin[r.index]]) : r;
}

static uint64_t hash(const numberer *n, const hir_op *o) {
    uint64_t h = mix(o->code, o->n_args);
    for (uint32_t i = 0; i < o->n_args; i++) {
        const hir_ref r = numbered(n, o->args[i]);
        h = mix(h, (uint64_t)r.kind << 32 | r.index);
    }
    const hir_type t = hir_value_at(n->m, o->results[0])->type;
    for (uint32_t i = 0; i < t.rank; i++)
        h = mix(h, (uint64_t)t.dim[i]);
    return h;
}

static bool same_type(const numberer *n, hir_ref a, hir_ref b) {
    if (a.kind == HIR_REF_NONE) return true;
    return hir_type_equal(hir_ref_type(n->m, a), hir_ref_type(n->m, b));
}

static bool is_equal(const numberer *n, const hir_op *a, const hir_op *b) {
    bool same = a->code == b->code && a->n_args == b->n_args && a->n_attrs == b->n_attrs &&
                same_type(n, hir_value_ref(a->results[0]), hir_value_ref(b->results[0]));
    for (uint32_t i = 0; same && i < a->n_args; i++)
        same = hir_ref_equal(numbered(n, a->args[i]), numbered(n, b->args[i])) &&
               same_type(n, a->args[i], b->args[i]);
    for (uint32_t i = 0; same && i < a->n_attrs; i++)
        same = hir_same_attr(&a->attrs[i], &b->attrs[i]);
    return same;
}

/* The number of an op's result: that of an equal one, or a new one if `forward`. */
static hir_id find(numberer *n, hir_id op, bool forward) {
    const hir_op *o = hir_op_at(n->m, op);
    for (size_t at = hash(n, o) & n->mask;; at = (at + 1) & n->mask) {
        if (n->slot[at] == HIR_NONE) {
            if (forward) n->slot[at] = op;
            return HIR_NONE;
        }
        const hir_op *known = hir_op_at(n->m, n->slot[at]);
        if (is_equal(n, known, o)) return known->results[0];
    }
}

enum { SEVERAL = HIR_NONE - 1 };

/* The result of the only contraction of the forward half with the weight of o. What it reads is not
 * compared: the mix and the norm in it may have been expanded in another way for the copy. */
static hir_id by_weight(const numberer *n, const hir_id *products, const hir_op *o) {
    if (!hir_is_linear(o->code) || o->args[1].kind != HIR_REF_WEIGHT) return HIR_NONE;
    const hir_id v = products[o->args[1].index];
    const bool only = v != HIR_NONE && v != SEVERAL;
    return only && hir_op_at(n->m, hir_value_at(n->m, v)->op)->code == o->code ? v : HIR_NONE;
}

hir_id *hir_find_copies(const hir_flow *forward, const hir_id *backward, size_t n_backward,
                        hd_arena *a) {
    const size_t n_values = forward->m->values.n + 1;
    numberer n = {.flow = forward, .m = forward->m, .mask = 15};
    while (n.mask < 2 * forward->program.n)
        n.mask = 2 * n.mask + 1;
    n.number = hd_new_array(a, hir_id, n_values);
    n.slot = hd_new_array(a, hir_id, n.mask + 1);
    hir_id *copies = hd_new_array(a, hir_id, n_values);
    for (size_t v = 0; v < n_values; v++) {
        n.number[v] = (hir_id)v;
        copies[v] = HIR_NONE;
    }
    for (size_t i = 0; i <= n.mask; i++)
        n.slot[i] = HIR_NONE;
    hir_id *products = hd_new_array(a, hir_id, n.m->weights.n + 1); /* by weight */
    for (size_t w = 0; w < n.m->weights.n; w++)
        products[w] = HIR_NONE;
    for (size_t k = 0; k < forward->program.n; k++) {
        const hir_op *o = hir_op_at(n.m, forward->program.at[k]);
        if (o->n_results != 1) continue;
        const hir_id equal = find(&n, forward->program.at[k], true);
        if (equal != HIR_NONE) n.number[o->results[0]] = equal;
        if (!hir_is_linear(o->code) || o->args[1].kind != HIR_REF_WEIGHT) continue;
        hir_id *product = &products[o->args[1].index];
        *product = *product == HIR_NONE ? o->results[0] : SEVERAL;
    }
    for (size_t k = 0; k < n_backward; k++) {
        const hir_op *o = hir_op_at(n.m, backward[k]);
        if (o->n_results != 1) continue;
        hir_id original = find(&n, backward[k], false);
        if (original == HIR_NONE) original = by_weight(&n, products, o);
        if (original != HIR_NONE) n.number[o->results[0]] = copies[o->results[0]] = original;
    }
    return copies;
}
