/* Shards: the part of a weight that a rank has, and the share that a comm op names. The arithmetic
 * is in support/share.h. */
#include <string.h>

#include "ir/ir.h"

const char *hir_why_no_share(const hd_share *s) {
    int64_t units;
    if (s->ranks < 2 || s->ranks > HIR_MAX_RANKS) return "there is one rank, or there are too many";
    if (s->groups < 1 || s->units < 1) return "groups and units count from 1";
    if (hd_mul_overflow(s->groups, s->units, &units) || s->whole < units || s->whole % units)
        return "the units of all groups do not divide the dim";
    return NULL;
}

hir_type hir_whole_type(const hir_weight *w) {
    hir_type t = w->type;
    if (w->share.on) t.dim[w->share.dim] = w->share.share.whole;
    return t;
}

void hir_shard_weight(hir_weight *w, uint32_t dim, hd_share share) {
    w->share = (hir_weight_share){.on = true, .dim = dim, .share = share};
    w->type.dim[dim] = hd_local_elements(&share);
}

const hir_module *hir_with_whole_weights(const hir_module *m, hd_arena *a) {
    if (!m->ranks) return m;
    hir_module *whole = hd_new(a, hir_module);
    *whole = *m;
    whole->weights.at = hd_new_array(a, hir_weight, m->weights.n);
    for (size_t i = 0; i < m->weights.n; i++) {
        whole->weights.at[i] = m->weights.at[i];
        whole->weights.at[i].type = hir_whole_type(&m->weights.at[i]);
        whole->weights.at[i].share.on = false;
    }
    return whole;
}

void hir_take_share(const hir_weight *w, int64_t rank, size_t size, const void *whole, void *part) {
    const hd_share *s = &w->share.share;
    size_t outer = 1, inner = size * (size_t)hd_unit_elements(s);
    for (uint32_t i = 0; i < w->type.rank; i++) {
        if (i < w->share.dim) outer *= (size_t)w->type.dim[i];
        if (i > w->share.dim) inner *= (size_t)w->type.dim[i];
    }
    const size_t units = (size_t)(s->groups * s->units);
    const size_t local = (size_t)(hd_local_groups(s) * hd_local_units(s));
    for (size_t o = 0; o < outer; o++)
        for (size_t i = 0; i < local; i++) {
            const int64_t unit = hd_unit_of(s, rank, (int64_t)i);
            unsigned char *to = (unsigned char *)part + (o * local + i) * inner;
            if (unit < 0)
                memset(to, 0, inner);
            else
                memcpy(to, (const unsigned char *)whole + (o * units + (size_t)unit) * inner,
                       inner);
        }
}

bool hir_share_of_op(const hir_module *m, const hir_op *op, int64_t whole, hd_share *out) {
    *out = (hd_share){.ranks = m->ranks,
                      .whole = whole,
                      .groups = hir_attr_int(op, HIR_A_GROUPS, 1),
                      .units = hir_attr_int(op, HIR_A_UNITS, 1),
                      .repeat = strcmp(hir_attr_string(op, HIR_A_PAD, "zero"), "repeat") == 0};
    return hir_find_attr(op, HIR_A_AXIS) != NULL;
}
