/* How the gradients of attention are divided among threads.
 *
 * Columns are parts of key/value heads: some consecutive tokens of the queries of a head, about
 * equal work for all parts. How many parts a head has follows from the number of heads alone, so
 * that many threads have something to do and results do not depend on how many there are.
 *
 * What a key has gathers over queries. The first part of a head adds it up in the results, each
 * other part in memory that threads share, and the thread that finishes the last part of a head
 * adds those to the results, in the order of the parts. */
#ifndef HCG_ATTENTION_PARTS_H
#define HCG_ATTENTION_PARTS_H

#include "codegen/attention/attention.h"
#include "codegen/gradient/gradient.h"

/* A gradient that gathers over queries: a row of n numbers for each token and group. */
typedef struct hcg_gathered {
    LLVMValueRef result; /* [T][G][n]; NULL: not wanted */
    int64_t n;
    LLVMValueRef at, stride; /* of the present part: the row of token 0, and from row to row */
} hcg_gathered;

enum { HCG_GATHERED = 3 };
typedef struct hcg_attention_parts hcg_attention_parts;
struct hcg_attention_parts {
    const hcg_attention *a;
    int64_t tokens;   /* parts begin at multiples of this number */
    bool even;        /* all tokens have about as much to do, not later ones more */
    bool only_window; /* queries add to the rows of their window, not to any before them */
    hcg_gathered of[HCG_GATHERED]; /* n of all are set, wanted or not */
    hcg_gradient_result sink;      /* gathers, too, if it is by head */
    /* Emits a part: the tokens from .. to - 1 of `group`. */
    void (*emit)(hcg_emit *e, hcg_attention_parts *p, LLVMValueRef from, LLVMValueRef to);
    void *with; /* for emit */
    /* Of the present part: */
    LLVMValueRef group;
    LLVMValueRef sinks; /* where gradients of sinks go: [T][H], or those of the group's heads, which
                           are added to; NULL: not wanted */
};
void hcg_emit_parts(hcg_emit *e, hcg_attention_parts *p);
/* The row of a token. */
LLVMValueRef hcg_gathered_at(hcg_emit *e, const hcg_gathered *g, LLVMValueRef token);

/* Columns of a kernel whose form op has keys as operand 1, and its memory that threads share, for
 * rows of `floats` numbers. */
int64_t hcg_count_parts(const hir_module *m, hir_id kernel);
void hcg_count_parts_shared(const hir_module *m, hir_id kernel, int64_t floats, uint64_t *counters,
                            uint64_t *range);

#endif
