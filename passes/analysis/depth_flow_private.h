/* Declarations shared by the files that find the residual mechanism. */
#ifndef HIR_PASSES_DEPTH_FLOW_PRIVATE_H
#define HIR_PASSES_DEPTH_FLOW_PRIVATE_H

#include "passes/analysis/depth_flow.h"

typedef struct flow_finder {
    hir_flow *out;
    hd_arena *arena;
    bool brief;                      /* of sources only whether an input has several */
    bool grown;                      /* a member was found in this round */
    HD_VEC(hir_id) pending, outputs; /* work lists of claim */
    HD_VEC(hir_id) starts;           /* ops of the program that look up, receive or gather values */
    uint32_t *first;         /* by op: 1 + where its operands begin; 0: not in the program */
    HD_VEC(hir_id) operands; /* as flow_operand gives them */
    /* by value (of origins): */
    const bool *needed; /* of the forward half */
    bool *varies;       /* depends on tokens */
    bool *member;
    hir_id *into; /* the sublayer output that it leads to, or HIR_NONE */
    bool *factor; /* its only use: multiplied with a value as wide as the stream */
    bool *row;    /* read by a contraction, or part of that other than as a coefficient */
    hir_id begin; /* where the stream begins; HIR_NONE: at the embedding */
    bool *before; /* by value: the beginning is made of it; where there is one */
    hir_id kept;  /* an output that nothing is added to; HIR_NONE: outputs follow from the stream */
} flow_finder;

/* The origin of operand i of an op of the program if it is a float value with T that depends on tokens,
 * else HIR_NONE. They are listed once: all walks of the analysis read these. */
static inline hir_id flow_operand(const flow_finder *f, const hir_op *o, uint32_t i) {
    const uint32_t first = f->first[o - f->out->m->ops.at];
    return first ? f->operands.at[first - 1 + i] : HIR_NONE;
}
uint64_t flow_row(const flow_finder *f, hir_id v); /* elements of a row */

bool flow_is_embedding(const flow_finder *f, const hir_op *o);
bool flow_is_received(const flow_finder *f, const hir_op *o);

/* ---- depth_begin.c: after an analysis from f->begin ---- */
/* The value behind where the stream begins now, made of it token by token, where it begins if nothing
 * else reads what it is made of. HIR_NONE: there is none. */
hir_id flow_later_beginning(const flow_finder *f);
/* Values that all which is made of the embeddings comes together in, before the first sublayer: the
 * last of them, first the last one. */
size_t flow_list_joints(const flow_finder *f, hir_id *out, size_t most);
/* Is what looks like the first sublayer's output, such as W e, combined with the norm of the embedding
 * or the like, and not with the embedding itself? */
bool flow_begins_changed(const flow_finder *f);

void flow_find_inputs(flow_finder *f); /* outputs, inputs and their sources */
void flow_find_blocks(flow_finder *f);
void flow_find_readers(hir_flow *f, hd_arena *a); /* hir_flow.readers; after the inputs */

#endif
