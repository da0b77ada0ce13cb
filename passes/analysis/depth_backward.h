/* The backward half of a module with gradients: which of its values are gradients of the residual
 * mechanism, found by data-flow analysis at any IR stage, as the mechanism itself is
 * (depth_flow.h).
 *
 * The forward half is what the loss needs, the backward half all else. The mechanism's part of it
 * is what is computed token by token between two borders: it begins where a contraction or
 * attention of a sublayer gives the gradient of what the sublayer has read, and ends in the
 * gradients of the outputs of sublayers, of the embedding, and of the mechanism's own weights.
 * Which contraction reads the mechanism is known from the forward half: dx = dy W belongs to the
 * contraction with W.
 */
#ifndef HIR_PASSES_DEPTH_BACKWARD_H
#define HIR_PASSES_DEPTH_BACKWARD_H

#include "passes/analysis/depth_flow.h"

typedef enum hir_back_kind {
    HIR_BACK_NONE,    /* of the forward half, inside a sublayer, or the same for every token */
    HIR_BACK_ENTRY,   /* the gradient of what a sublayer reads, as its contractions leave it, or a
                       * sum of such */
    HIR_BACK_INPUT,   /* made of that and a norm: the gradient of the mix that the sublayer reads */
    HIR_BACK_ROW,     /* another gradient, at least as wide as the stream */
    HIR_BACK_NUMBERS, /* a narrower one */
    HIR_BACK_AGAIN,   /* made of values of the forward half alone, and not needed by the loss */
} hir_back_kind;

typedef struct hir_backward {
    const hir_flow *flow; /* of the forward half */
    bool *forward;        /* by value: the loss needs it */
    hir_back_kind *kind;  /* by value (origins) */
    hir_id *original;     /* by value: what it computes again (copies.h) */
    bool *normed;      /* by value, of both halves: made of a sublayer's input and its norm alone */
    bool *for_weights; /* by value: only sums over tokens read it, for the mechanism's weights */
    uint64_t *contracted; /* by value of the forward half: the fewest columns of a contraction that
                             * reads it; 0: none does */
    bool *gives;          /* by value: the gradient of what a contraction of a sublayer makes */
    bool *biased;         /* by value: the gradient of what a contraction makes with a bias */
    uint32_t *home;       /* by value, of entries and what is made of them: the sublayer, or
                             * HIR_FLOW_MANY; 0: none */
    HD_VEC(hir_id) program; /* ops of the backward half in order */
} hir_backward;

/* By value: does the sum of the losses depend on it? Of a module without gradients all true. */
bool *hir_needed_by_loss(const hir_module *m, hd_arena *a);

void hir_backward_find(const hir_module *m, const hir_flow *f, hd_arena *a, hir_backward *out);

/* Does an op of the backward half belong to the mechanism: does it make a gradient of it, other
 * than an entry, or sum one over tokens for a weight of the mechanism? */
bool hir_backward_has(const hir_backward *b, const hir_op *o);
/* Does it compute again what a sublayer has made for the mechanism, such as its output? */
bool hir_backward_repeats_inside(const hir_backward *b, hir_id v);
/* Does it sum one for the gain of a norm in front of a sublayer? */
bool hir_backward_sums_gain(const hir_backward *b, const hir_op *o);

#endif
