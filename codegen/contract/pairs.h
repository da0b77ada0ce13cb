/* Contractions with bf16 weights: how x is prepared for them. Their panels hold pairs along K
 * (hir_layout in ir/ir.h), so that x is read two elements at a time too, and K is filled up to an
 * even number with zeros.
 *
 * Two ways, decided by the level and by options.exact:
 *
 *   float   weights become f32 in registers; x is read where it lies, or copied where K is odd
 *   dots    where the CPU has dot products of pairs (vdpbf16ps) x is rounded to bf16 once per row:
 *
 *               x ~ x (1 + d),   |d| <= 2^-8,   to nearest even
 *
 *           Products of bf16 are exact in f32. An instruction adds two of them to a sum and rounds
 *           once or twice, to nearest; numbers below 2^-126 count as zeros, on the way in and out,
 *           whatever the thread's mode is. So a sum of K products is off by what f32 makes of it in
 *           any order, and the error of x is all that is new.
 */
#ifndef HCG_EMIT_PAIRS_H
#define HCG_EMIT_PAIRS_H

#include "codegen/emit/emit.h"

typedef struct hcg_pair_x {
    hir_dtype dtype;    /* of x as kernels shall read it: f32 or bf16 */
    int64_t k, even;    /* K, and K filled up */
    LLVMValueRef room;  /* scratch for rows of x, NULL: it is read in place */
    LLVMValueRef x, ld; /* what was prepared; elements from row to row, i64 */
} hcg_pair_x;

/* Whether the kernels of this level take x as bf16. */
bool hcg_pair_dots(const hcg_emit *e);
/* Scratch for x of at most `rows` rows. */
hcg_pair_x hcg_pair_room(hcg_emit *e, int64_t k, uint64_t rows);
/* Prepares x[rows][k], rows k apart; rows > 0. */
void hcg_pair_take(hcg_emit *e, hcg_pair_x *p, LLVMValueRef x, LLVMValueRef rows);
/* out[k] in f32 = row `row` (i64) of a table in panels of pairs. */
void hcg_pair_row(hcg_emit *e, LLVMValueRef table, LLVMValueRef row, int64_t k, LLVMValueRef out);

#endif
