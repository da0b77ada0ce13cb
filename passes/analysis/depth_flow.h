/* The residual mechanism of a module, found by data-flow analysis: where the residual stream
 * begins, what each sublayer adds to it, and which of these values each sublayer's input is
 * computed from.
 *
 * The analysis works at any IR stage, before and after any pass, and needs no annotations by
 * passes: it looks through kernels, and the result does not depend on whether a computation is one
 * op or twenty. The ledger and the depth map are built on it.
 *
 * Of a module with gradients the mechanism is that of the forward half, which the loss needs;
 * depth_backward.h has the other.
 *
 * Contractions (linear with a large weight, experts), top-k selections, attention and caches are
 * the borders of sublayers. Values computed token by token from the embedding without passing a
 * border belong to the mechanism (they are its members); a value from beyond a border that is
 * combined with them is a sublayer's output. A mix (depth mix) is a weighted sum of earlier
 * outputs, such as attention over depth; its sources are the outputs and sums that it reads.
 */
#ifndef HIR_PASSES_DEPTH_FLOW_H
#define HIR_PASSES_DEPTH_FLOW_H

#include "ir/ir.h"

typedef enum hir_flow_kind {
    HIR_FLOW_NONE,      /* inside a sublayer, or the same for every token */
    HIR_FLOW_EMBEDDING, /* where the stream begins */
    HIR_FLOW_OUTPUT,    /* the output of a sublayer */
    HIR_FLOW_SUM,       /* a sum of the embedding and outputs */
    HIR_FLOW_MIX,       /* anything else computed from them, at least as wide as the stream */
    HIR_FLOW_NUMBERS,   /* narrower than the stream: scores, weights of mixes, norms */
} hir_flow_kind;

/* A source, and which values it is the sum of: `count` of the outputs of sublayers `first` to
 * `last` (counted from 1; 0 is the embedding). It is the sum of all of them if count is last -
 * first + 1. */
typedef struct hir_source {
    hir_id value;
    uint32_t first, last, count;
} hir_source;

/* Instead of a sublayer: the program's output; several sublayers. */
enum { HIR_FLOW_RESULT = UINT32_MAX - 1, HIR_FLOW_MANY = UINT32_MAX };

/* A value that a sublayer or the head reads. */
typedef struct hir_flow_input {
    hir_id value;      /* as in hir_flow.origin */
    uint32_t sublayer; /* from 1, or HIR_FLOW_RESULT */
    uint32_t block;    /* from 1 */
    hd_loc loc;
    HD_VEC(hir_source) sources; /* in order of definition; inputs may share a list */
    HD_VEC(hir_source) own;     /* a few others, which no list has and no other input reads */
    uint32_t shared; /* the first `shared` sources are read by all inputs of the block (phase 1) */
} hir_flow_input;

/* How many sources an input has, and source number i. */
static inline size_t hir_flow_sources(const hir_flow_input *x) {
    return x->sources.n + x->own.n;
}
static inline const hir_source *hir_flow_source(const hir_flow_input *x, size_t i) {
    return i < x->sources.n ? &x->sources.at[i] : &x->own.at[i - x->sources.n];
}

typedef struct hir_flow {
    const hir_module *m;
    uint64_t width;         /* elements of a row of the stream; 0: there is no stream */
    hir_id *origin;         /* by value: the value of which it is a view, yield or conversion */
    hir_id *root;           /* by value: the value of which it is a multiple, or itself */
    hir_flow_kind *kind;    /* by value */
    bool *varies;           /* by value: depends on tokens */
    bool *member;           /* by value: of the mechanism, or made for it inside a sublayer */
    bool *inside;           /* by value: computed inside a sublayer, or its output */
    bool *own;              /* by value: of these what leads to a sublayer's output; others are made
                             * for the mechanism, such as the query of a mix */
    uint32_t *input;        /* by value: index into inputs, HIR_NONE */
    uint32_t *readers;      /* by value: which sublayer reads what is made of it, through sums and
                             * mixes but not through the input of a sublayer; 0: none; HIR_FLOW_MANY */
    HD_VEC(hir_id) program; /* ops in order; those of kernel bodies in place of the kernels */
    HD_VEC(hir_id) outputs; /* values, by sublayer - 1 */
    HD_VEC(hir_flow_input) inputs;
    uint32_t blocks, longest_block; /* blocks: their number; longest_block: in sublayers */
} hir_flow;

void hir_flow_find(const hir_module *m, hd_arena *a, hir_flow *out);
/* The same without blocks, and with at most two sources of each input, whose contents are not
 * known. It takes a time that grows with the operands of the program. */
void hir_flow_find_brief(const hir_module *m, hd_arena *a, hir_flow *out);

/* Is the op a border of sublayers, so that its operands are inputs of a sublayer? */
bool hir_flow_is_border(const hir_flow *f, const hir_op *op);
/* Does the op select, by scores or a table? Its result is no part of the mechanism. */
bool hir_flow_is_choice(const hir_module *m, const hir_op *op);
/* Is the result the operand, as far as traffic goes? */
bool hir_flow_is_view(const hir_op *op);
/* Is it a value of the stream itself, not something computed from it? */
bool hir_flow_is_stream(hir_flow_kind k);
const char *hir_flow_kind_name(hir_flow_kind k); /* "embedding", "sum", ... */
/* A sublayer for people. */
typedef struct hir_flow_label {
    const char *name; /* the weight of its last contraction, or the common prefix of several; with
                       * the pass where there is one: "layers.7.mlp.down_proj, pass 2" */
    uint32_t pass;    /* of a layer that runs several times, from 1; 0: the layer runs once */
} hir_flow_label;
/* "NAME, pass 2"; the name alone if pass is 0. */
const char *hir_with_pass(hd_arena *a, const char *name, uint32_t pass);
const hir_flow_label *hir_flow_labels(const hir_flow *f, hd_arena *a); /* by sublayer - 1 */
/* "pass 1: 5-12, pass 2: 13-20", numbers of sublayers; NULL: all layers run once. */
const char *hir_flow_passes(const hir_flow_label *labels, size_t n, hd_arena *a);
/* The sublayers of values that are not part of the residual mechanism. By value: the sublayer (from
 * 1) whose output the value leads to; 0 for all values outside of sublayers. `crosses`, by
 * sublayer: it reads values from the inside of an earlier sublayer, bypassing the stream. */
uint32_t *hir_flow_homes(const hir_flow *f, hd_arena *a, bool *crosses);
/* "e", "3", "1-2", "e-4" */
void hir_flow_print_source(const hir_source *s, hd_text *out);

/* By value: a mix that goes on past a sublayer, since several sublayers read what is made of it, or
 * since it is made of a sublayer's input. For values that are no inputs themselves. */
bool *hir_flow_find_carried(const hir_flow *f, hd_arena *a);

/* Reads of sources by mixes (inputs of at least two sources). */
typedef struct hir_flow_reads {
    uint32_t mixes, direct_mixes; /* others read earlier mixes that go on, such as streams */
    uint64_t naive, direct;       /* each mix reads its own sources; of direct_mixes alone */
    /* in two phases. bank: shared sources, once per block; live: sources that one mix reads;
     * output: sources of the output's mix */
    uint64_t bank, live, output;
} hir_flow_reads;
hir_flow_reads hir_flow_count_reads(const hir_flow *f, hd_arena *a);

#endif
