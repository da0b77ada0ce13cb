/* The passes that divide a module over machines. shard_pipeline.c divides layers over pipeline
 * stages. shard-tensor divides axes of values over ranks:
 *
 * shard_axes.c  how an axis of an op's result lies in its operands: the one table of ops
 * shard_find.c  parts: all values, weights and states whose axes must be divided together
 * shard_tensor.c  what becomes of everything else, and the rewriting
 */
#ifndef HIR_PASSES_SHARD_H
#define HIR_PASSES_SHARD_H

#include "passes/util.h"

/* How operand i of an op is divided when an axis of the result is divided. */
typedef struct shard_axis {
    int axis;     /* of the operand; -1: the operand is needed whole, or is the same for all */
    bool grouped; /* it has fewer entries: each serves a group of entries of the result's axis */
} shard_axis;
enum { SHARD_MAX_ARGS = 64 };

/* Fills `of` for each operand if axis r of the op's result can be divided, and the ranks compute
 * their shares from shares of the operands. */
bool shard_axes(const hir_module *m, hir_id op, uint32_t r, shard_axis *of);
/* Is axis r of the result the outputs of a contraction: is its weight divided, and x needed whole?
 */
bool shard_begins(const hir_module *m, hir_id op, uint32_t r);
/* Are the entries of axis `axis` of operand i summed up in a product with a weight? */
bool shard_ends(const hir_module *m, hir_id op, uint32_t i, uint32_t axis);

/* An axis of a value, weight or state that is divided together with others. */
typedef struct shard_slot {
    hir_ref ref;
    uint32_t axis, class; /* axes of a class have corresponding entries */
    hir_id op;            /* of a weight: the op that reads it, */
    uint32_t arg;         /* as which operand */
    bool zero;            /* of a weight: padded with zeros, since its entries are summed */
    bool whole;           /* a value that is gathered, and of which a rank then takes its share */
} shard_slot;

/* Values, weights and states that must be divided together. */
typedef struct shard_part {
    HD_VEC(shard_slot) slots;
    HD_VEC(uint32_t) classes; /* by class: the class it was joined with */
    HD_VEC(hd_share) shares;  /* by class */
    HD_VEC(hir_id) ends;      /* contractions whose results are partial sums */
    HD_VEC(hir_id) begins;    /* contractions whose outputs are divided */
    bool sequence;            /* contains an op that keeps a state or reads other tokens of the
                               * sequence */
    bool given_out;           /* an output reads one of its values */
    uint32_t borders;         /* values on its border, which are divided or gathered there */
    const char *rejected;     /* why it is not divided; NULL: it is */
    hir_id rejected_at;
    int64_t crossing; /* elements per token that ranks send because of it */
    uint64_t saved;   /* bytes of weights that a rank does not have */
} shard_part;

typedef struct shard {
    hir_pass_context *c;
    hir_module *m;
    hir_uses uses;
    HD_VEC(shard_part *) parts; /* those that are divided */
    shard_part **part_of;       /* by value: its part, divided or rejected; NULL: none */
    uint32_t *slot_of;          /* by value: its slot there */
    bool *is_end, *is_begin;    /* by op, of parts that are divided */
} shard;

/* shard_split.c: splits contractions whose slices are divided differently into several. False: a
 * diagnostic was added. */
bool shard_split_contractions(hir_pass_context *c);

/* Finds the parts that are divided. */
void shard_find_parts(shard *s);
/* Runs shard-pipeline for every stage of a graph; `stages` has room for all of them. For checks. */
bool pass_shard_pipeline(hir_pass_context *c);
bool shard_all_stages(const hir_module *graph, const hir_compile_options *options, hd_diags *d,
                      hd_arena *a, const hir_module **stages);

/* The slot of a value that is divided; NULL: it is not. */
static inline const shard_slot *shard_slot_of(const shard *s, hir_id value) {
    const shard_part *p = s->part_of[value];
    const shard_slot *slot = p && !p->rejected ? &p->slots.at[s->slot_of[value]] : NULL;
    return slot && !slot->whole ? slot : NULL;
}
uint32_t shard_class(const shard_part *p, uint32_t class);
static inline hd_share shard_share(const shard_part *p, const shard_slot *slot) {
    return p->shares.at[shard_class(p, slot->class)];
}

#endif
