/* The residual mechanism of a module, found by data-flow analysis: where the stream begins, what
 * each sublayer adds to it, and which of these values each sublayer's input is computed from.
 *
 * It works on any stage, before and after any pass, and needs no marks left by passes: it looks
 * through kernels, and the result does not depend on whether a computation is one op or twenty. The
 * ledger and the depth map are built on it.
 *
 * Sublayers are delimited by contractions (linear with a large weight, experts), choices, attention
 * and caches.
 * Values computed token by token from the embedding without passing through one of these belong to
 * the mechanism; a value from beyond that is combined with them is a sublayer's output.
 */
#ifndef HIR_PASSES_DEPTH_FLOW_H
#define HIR_PASSES_DEPTH_FLOW_H

#include "ir/ir.h"

typedef enum hir_flow_kind {
    HIR_FLOW_NONE,      /* inside a sublayer, or the same for every token */
    HIR_FLOW_EMBEDDING, /* where the stream begins */
    HIR_FLOW_OUTPUT,    /* of a sublayer */
    HIR_FLOW_SUM,       /* of embedding and outputs */
    HIR_FLOW_MIX,       /* anything else computed from them, at least as wide as the stream */
    HIR_FLOW_NUMBERS,   /* narrower: scores, weights of mixes, norms */
} hir_flow_kind;

/* What a source is the sum of: `count` of the outputs of sublayers `first` to `last` (counted from
 * 1; 0 is the embedding); all of them if count is last - first + 1. */
typedef struct hir_source {
    hir_id value;
    uint32_t first, last, count;
} hir_source;

enum { HIR_FLOW_RESULT = UINT32_MAX - 1 }; /* instead of a sublayer: the program's output */

/* A value that a sublayer or the head reads. */
typedef struct hir_flow_input {
    hir_id value;      /* as in hir_flow.origin */
    uint32_t sublayer; /* from 1, or HIR_FLOW_RESULT */
    uint32_t block;    /* from 1 */
    hd_loc loc;
    HD_VEC(hir_source) sources; /* in order of definition */
    uint32_t shared; /* the first `shared` of them are read by all inputs of the block (phase 1) */
} hir_flow_input;

typedef struct hir_flow {
    const hir_module *m;
    uint64_t width;         /* elements of a row of the stream; 0: there is no stream */
    hir_id *origin;         /* by value: the value that it is a view, yield or conversion of */
    hir_flow_kind *kind;    /* by value */
    bool *inside;           /* by value: computed inside a sublayer, or its output */
    uint32_t *input;        /* by value: index into inputs, HIR_NONE */
    HD_VEC(hir_id) program; /* ops except kernels, in order, with those of bodies */
    HD_VEC(hir_id) outputs; /* values, by sublayer - 1 */
    HD_VEC(hir_flow_input) inputs;
    uint32_t blocks, longest_block; /* in sublayers */
} hir_flow;

void hir_flow_find(const hir_module *m, hd_arena *a, hir_flow *out);

/* Is the op at the border of a sublayer, so that its operands are inputs? */
bool hir_flow_is_border(const hir_module *m, const hir_op *op);
/* Is it the stream itself, and not something made of it? */
bool hir_flow_is_stream(hir_flow_kind k);
const char *hir_flow_kind_name(hir_flow_kind k); /* "embedding", "sum", ... */
/* Name of a sublayer for people: that of the weight of its last contraction, or what the names of
 * its last ones have in common. */
const char *hir_flow_sublayer_name(const hir_flow *f, uint32_t sublayer, hd_arena *a);
/* Which sublayer a value belongs to that is no part of the residual mechanism. By value: the
 * sublayer (from 1) that a value inside one ends in, 0 for all others. `crosses`, by sublayer: it
 * reads what an earlier one has made inside, past the stream. */
uint32_t *hir_flow_homes(const hir_flow *f, hd_arena *a, bool *crosses);
/* "e", "3", "1-2", "e-4" */
void hir_flow_print_source(const hir_source *s, hd_text *out);

/* Reads of sources by mixes (inputs of at least two sources). */
typedef struct hir_flow_reads {
    uint32_t mixes;
    uint64_t naive; /* each mix reads its own sources */
    /* in two phases: shared ones once per block; live ones; those of the output's mix */
    uint64_t bank, live, output;
} hir_flow_reads;
hir_flow_reads hir_flow_count_reads(const hir_flow *f);

#endif
