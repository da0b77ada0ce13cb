/* Numbers of packed weights (program/packed.h) in registers, and single rows of tables of them.
 *
 * Numbers of mxfp4 and nvfp4 have 4 bits, E2M1: halves of the whole numbers 0 1 2 3 4 6 8 12 and
 * their negatives. All code computes with these whole numbers, and with scales that are halved
 * instead. Both are exact. */
#ifndef HCG_EMIT_PACKED_H
#define HCG_EMIT_PACKED_H

#include "codegen/emit/emit.h"
#include "codegen/program/packed.h"

/* ---- groups ---------------------------------------------------------------------------------- */
/* The words of block `block` of a group, for rows v * lanes ..: <lanes x i32>. */
LLVMValueRef hcg_quant_block(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned block,
                             unsigned v);
/* s of rows v * lanes .., scale `part` of each (half of it for mxfp4 and nvfp4), and m (q4 only).
 */
LLVMValueRef hcg_quant_scale(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                             unsigned part);
LLVMValueRef hcg_quant_least(hcg_emit *e, LLVMValueRef group, unsigned v);
/* q[k] of rows v * lanes .. as f32; for mxfp4 and nvfp4 twice the number. */
void hcg_quant_integers(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                        LLVMValueRef q[HIR_GROUP]);
/* w[k] of rows v * lanes .. of a group, in f32, rounded once. `factor`: of these rows, by which
 * scales are multiplied before; NULL: of nvfp4, w[k] is the number without it. */
void hcg_quant_numbers(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                       LLVMValueRef factor, LLVMValueRef w[HIR_GROUP]);
/* The factors of rows v * lanes .. of a panel whose groups end at `end`; NULL: the type has none.
 */
LLVMValueRef hcg_quant_factor(hcg_emit *e, hir_dtype dtype, LLVMValueRef end, unsigned v);
/* Sums of products with the numbers of such a panel, times the factors of its rows. */
LLVMValueRef hcg_quant_times_factor(hcg_emit *e, hir_dtype dtype, LLVMValueRef end, unsigned v,
                                    LLVMValueRef sums);
/* Prefetches the group that lies a few KiB after this one. */
void hcg_quant_prefetch(hcg_emit *e, hir_dtype dtype, LLVMValueRef group);

/* ---- numbers of 4 bits ----------------------------------------------------------------------- */
enum { HCG_FP4_ADDED = 12 }; /* added to the bytes, so that none is negative */

/* Twice the number of the code in bits shift .. shift + 3 of each i32 of a vector, or of one
 * i32. */
LLVMValueRef hcg_fp4_number(hcg_emit *e, LLVMValueRef words, unsigned shift);
/* Twice the numbers of codes in bytes, plus HCG_FP4_ADDED; `lookup` as in int8/group.h. Codes come
 * in words of four bytes. */
LLVMValueRef hcg_fp4_bytes(hcg_emit *e, const char *lookup, LLVMValueRef words);

/* ---- rows of tables -------------------------------------------------------------------------- */
/* out[k] in f32 = row `row` (i64) of a table in panels of groups. */
void hcg_quant_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef table, LLVMValueRef row, int64_t k,
                   LLVMValueRef out);
/* The same for a table in panels of pairs. */
void hcg_pair_row(hcg_emit *e, LLVMValueRef table, LLVMValueRef row, int64_t k, LLVMValueRef out);

#endif
