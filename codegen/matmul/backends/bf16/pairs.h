/* Contractions with bf16 weights: how x is prepared for them. Their panels hold pairs along K
 * (hir_layout in ir/ir.h), so that x is read two elements at a time too, and K is filled up to an
 * even number with zeros.
 *
 * Three back ends (matmul/backends.def):
 *
 *   pairs_as_f32   weights become f32 in registers; x is read in place, or copied where K is odd
 *   bf16_dots      by dot products of pairs (vdpbf16ps, bfdot): x is rounded to bf16 once per row,
 *
 *               x ~ x (1 + d),   |d| <= 2^-8,   to nearest even
 *
 *           Products of bf16 are exact in f32. An instruction adds two of them to a sum and rounds
 *           once or twice, to nearest; numbers below 2^-126 count as zeros, on the way in and out,
 *           whatever the thread's mode is. So a sum of K products is off by what f32 makes of it in
 *           any order, and the error of x is all that is new.
 *   bfmmla         by products of 2 x 4 and 4 x 2 (matmul/bfmmla.c), x rounded alike
 */
#ifndef HCG_PAIRS_H
#define HCG_PAIRS_H

#include "codegen/matmul/backend.h"

/* Of a back end whose x has pairs: `dtype` is what its elements become. */
void hcg_pair_begin(hcg_emit *e, hcg_product *p, hir_dtype dtype);
void hcg_pair_prepare(hcg_emit *e, hcg_product *p, hir_dtype dtype);
/* out[k] in f32 = row `row` (i64) of a table in panels of pairs. */
void hcg_pair_row(hcg_emit *e, LLVMValueRef table, LLVMValueRef row, int64_t k, LLVMValueRef out);

#endif
