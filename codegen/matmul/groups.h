/* Weights in groups, q8, q4 and mxfp4 (weights/quant.h): what the back ends for them have in
 * common, and the form of x that each reads.
 *
 *   groups_as_f32   (matmul/groups.c) one token: integers become f32 in registers; many: panels
 *                   become f32 in workspace, for gemm
 *   int8            (int8/dots.c) where the CPU has products of bytes: each group of x
 *                   is rounded to integers,
 *
 *                       x ~ t p,   t = max |x| / 127,   p in -127 .. 127, to nearest
 *
 *                   and a group adds   s t sum q p  +  m t sum p   to a sum. Sums of integers are
 *                   exact. The error of x is at most t / 2 an element; a group that holds a NaN
 *                   gives NaN.
 *
 * Prepared x, group after group along K, rows of a slab side by side (`width` of them):
 *
 *   groups_as_f32   one token: sum x, then x[HIR_GROUP], zeros beyond K; many: x where it lies
 *   int8            t[width] in f32, t sum p [width] in f32, -128 sum p [width] in i32, then 8
 *                   blocks of 4 bytes for each row
 */
#ifndef HCG_GROUPS_H
#define HCG_GROUPS_H

#include "codegen/matmul/backend.h"

/* out[k] in f32 = row `row` (i64) of a table in panels of groups. */
void hcg_quant_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef table, LLVMValueRef row, int64_t k,
                   LLVMValueRef out);

int64_t hcg_panel_bytes(hir_dtype dtype, int64_t k); /* of one panel, any dtype */
/* The words of block `block` of a group, those of rows v * lanes ..: <lanes x i32>. */
LLVMValueRef hcg_quant_block(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned block,
                             unsigned v);
/* s of rows v * lanes .., mxfp4: half of it; and m (q4 only). */
LLVMValueRef hcg_quant_scale(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v);
LLVMValueRef hcg_quant_least(hcg_emit *e, LLVMValueRef group, unsigned v);
/* w[k] of rows v * lanes .. of a group, in f32: rounded once. */
void hcg_quant_numbers(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                       LLVMValueRef w[HIR_GROUP]);
/* Prefetches the group that lies a few KiB behind this one. */
void hcg_quant_prefetch(hcg_emit *e, hir_dtype dtype, LLVMValueRef group);
/* Groups along a row of x. */
int64_t hcg_groups(int64_t k);

#endif
