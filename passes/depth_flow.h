/* The residual mechanism of a module, found in its data flow: where the stream begins, what each
 * sublayer puts into it, and which of these each sublayer's input is made of.
 *
 * It reads any stage, before and after any pass, and needs no marks left by a pass: kernels are
 * looked through, and what was written in one op or in twenty gives the same answer. The ledger and
 * the depth map are built on it.
 *
 * A sublayer is what lies between contractions (linear with a large weight), attention and caches.
 * All that is computed token by token from the embedding without crossing one belongs to the
 * mechanism, and what meets it from the other side is an output.
 */
#ifndef HIR_PASSES_DEPTH_FLOW_H
#define HIR_PASSES_DEPTH_FLOW_H

#include "ir/ir.h"

typedef enum hir_flow_kind {
    HIR_FLOW_NONE,      /* inside a sublayer, or the same for every token */
    HIR_FLOW_EMBEDDING, /* where the stream begins */
    HIR_FLOW_OUTPUT,    /* of a sublayer */
    HIR_FLOW_SUM,       /* of embedding and outputs */
    HIR_FLOW_MIX,       /* anything else made of them, at least as wide as the stream */
    HIR_FLOW_NUMBERS,   /* narrower: scores, weights of mixes, norms */
} hir_flow_kind;

/* What a source holds: the embedding, and outputs of sublayers from `first` to `last` (from 1; 0 is
 * the embedding). `count` of them; fewer than last - first + 1: not all. */
typedef struct hir_source {
    hir_id value;
    uint32_t first, last, count;
} hir_source;

enum { HIR_FLOW_RESULT = UINT32_MAX - 1 }; /* instead of a sublayer: the program's output */

/* A value that sublayers, or the head, read. */
typedef struct hir_flow_input {
    hir_id value;      /* as in hir_flow.origin */
    uint32_t sublayer; /* from 1, or HIR_FLOW_RESULT */
    uint32_t block;    /* from 1 */
    hd_loc loc;
    HD_VEC(hir_source) sources; /* in order of making */
    uint32_t shared; /* the first `shared` of them are what all of the block read; phase 1 */
} hir_flow_input;

typedef struct hir_flow {
    const hir_module *m;
    uint64_t width;      /* elements of a row of the stream; 0: there is no stream */
    hir_id *origin;      /* by value: the value whose elements it holds, through views, yields and
                            conversions */
    hir_flow_kind *kind; /* by value */
    bool *inside;        /* by value: made by a sublayer: its output, or what that is made of */
    uint32_t *input;     /* by value: index into inputs, HIR_NONE */
    HD_VEC(hir_id) program; /* ops but kernels, in order; bodies inline */
    HD_VEC(hir_id) outputs; /* values, by sublayer - 1 */
    HD_VEC(hir_flow_input) inputs;
    uint32_t blocks, longest_block; /* in sublayers */
} hir_flow;

void hir_flow_find(const hir_module *m, hd_arena *a, hir_flow *out);

/* The op crosses from the mechanism into a sublayer: its operands are inputs. */
bool hir_flow_is_border(const hir_module *m, const hir_op *op);
const char *hir_flow_kind_name(hir_flow_kind k); /* "embedding", "sum", ... */
/* Name of a sublayer for people: of the weight that makes its output. */
const char *hir_flow_sublayer_name(const hir_flow *f, uint32_t sublayer, hd_arena *a);
/* "e", "3", "1-2", "e-4": what a source holds. */
void hir_flow_print_source(const hir_source *s, hd_text *out);

/* Reads of sources by mixes (inputs of at least two sources). */
typedef struct hir_flow_reads {
    uint32_t mixes;
    uint64_t naive; /* each mix reads its own sources */
    /* two phases: those shared in a block once, then the live ones, then all of the output's */
    uint64_t bank, live, output;
} hir_flow_reads;
hir_flow_reads hir_flow_count_reads(const hir_flow *f);

#endif
