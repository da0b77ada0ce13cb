/* Structural difference of two modules: by op, not by line, whatever the values are called or
 * numbered. Kernels are groupings: ops are matched as if there were none, then kernels by the ops
 * that they share. */
#ifndef HIR_DIFF_H
#define HIR_DIFF_H

#include "ir/ir.h"

/* Where a value comes from, seen through kernels. */
typedef enum hir_diff_origin_kind {
    HIR_FROM_NOTHING,
    HIR_FROM_OP, /* index into side.op; result number `result` */
    HIR_FROM_INPUT,
    HIR_FROM_WEIGHT,
    HIR_FROM_STATE
} hir_diff_origin_kind;
typedef struct hir_diff_origin {
    hir_diff_origin_kind kind;
    uint32_t index, result;
} hir_diff_origin;

typedef struct hir_diff_user {
    uint32_t op, operand; /* index into side.op */
} hir_diff_user;

/* One of the two modules, flattened. */
typedef struct hir_diff_side {
    const hir_module *m;
    uint32_t n;             /* ops other than kernels and yields, in program order */
    hir_id *op;             /* [n] */
    uint64_t *deep;         /* [n] hash of the whole expression, down to inputs and weights */
    uint32_t *match;        /* [n] index in the other side, or HIR_NONE */
    hir_diff_origin *value; /* [values] */
    uint32_t *user_first, *user_count; /* [n] into `user`: who reads the results */
    hir_diff_user *user;
    HD_VEC(hir_id) kernels;
    uint32_t *kernel_match; /* [ops] kernel of the other side, or HIR_NONE */
} hir_diff_side;

void hir_diff_match(const hir_module *a, const hir_module *b, hd_arena *arena, hir_diff_side *sa,
                    hir_diff_side *sb);
hir_diff_origin hir_diff_source(const hir_diff_side *s, hir_ref r);

typedef struct hir_diff_counts {
    size_t same, changed, moved, added,
        removed; /* ops, kernels, weights, states, inputs, options */
} hir_diff_counts;
static inline bool hir_diff_any(const hir_diff_counts *c) {
    return c->changed || c->moved || c->added || c->removed;
}

/* The changes that turn `a` into `b`, as text; nothing is written where there are none. */
hir_diff_counts hir_diff(const hir_module *a, const hir_module *b, hd_text *out);

/* How an op or a kernel has changed. */
typedef enum hir_diff_mark {
    HIR_DIFF_SAME,
    HIR_DIFF_CHANGED,
    HIR_DIFF_MOVED,
    HIR_DIFF_ADDED,
    HIR_DIFF_REMOVED
} hir_diff_mark;

/* The difference as data: the matching, and a mark for each op of the two modules, by its id. */
typedef struct hir_diff_found {
    hir_diff_side a, b;
    uint8_t *mark_a, *mark_b; /* hir_diff_mark: REMOVED or SAME in `a`, all others in `b` */
    hir_diff_counts counts;
} hir_diff_found;
/* Writes the text that hir_diff writes, too. */
void hir_diff_find(const hir_module *a, const hir_module *b, hd_text *out, hir_diff_found *found);

#endif
