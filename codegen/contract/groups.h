/* Contractions with weights in groups (quant.h): how x is prepared for them, and the kernels.
 *
 * Two ways, decided by the level and by options.exact:
 *
 *   float   integers become f32 in registers. T > 1: panels become f32 in scratch, for gemm.
 *   int8    where the CPU has dot products of bytes: each group of x gets integers of its own,
 *
 *               x ~ t p,   t = max |x| / 127,   p in -127 .. 127, to nearest
 *
 *           and a group's part of a sum is   s t sum q p  +  m t sum p,   its sums of integers
 * exact. The error of x is at most t / 2 an element; a group that holds a NaN gives NaN.
 *
 * Packed x, group after group along K, rows of a slab side by side (`width` of them):
 *
 *   float   sum x, then x[HIR_GROUP]: one row, zeros beyond K
 *   int8    t[width] in f32, t sum p [width] in f32, -128 sum p [width] in i32, then 8 blocks of
 *           4 bytes for each row
 */
#ifndef HCG_EMIT_QUANT_H
#define HCG_EMIT_QUANT_H

#include "codegen/emit/emit.h"

typedef struct hcg_quant_x {
    bool int8;
    unsigned width; /* rows of a slab */
    int64_t k;
    LLVMValueRef x, ldx, rows; /* what was prepared; rows: i64 */
    LLVMValueRef packed;       /* scratch */
    LLVMValueRef panels;       /* scratch for panels as f32, float with T > 1 only */
} hcg_quant_x;

/* Whether the kernels of this level take x as bytes. */
bool hcg_quant_int8(const hcg_emit *e);
/* Scratch for x of at most `rows` rows (1: gemv) against at most `panels` panels at once. */
hcg_quant_x hcg_quant_room(hcg_emit *e, int64_t k, uint64_t rows, int64_t panels);
/* Prepares x[rows][k], rows `ldx` apart; rows > 0. */
void hcg_quant_take(hcg_emit *e, hcg_quant_x *q, LLVMValueRef x, LLVMValueRef ldx,
                    LLVMValueRef rows);
/* c[rows][panels * 16] = x B, B in panels of groups. int8: c is written up to whole slabs. */
void hcg_quant_gemm(hcg_emit *e, const hcg_quant_x *q, hir_dtype dtype, LLVMValueRef b,
                    LLVMValueRef panels, LLVMValueRef c, LLVMValueRef ldc);
/* out[panels * 16] = x B for the one row. */
void hcg_quant_gemv(hcg_emit *e, const hcg_quant_x *q, hir_dtype dtype, LLVMValueRef b,
                    LLVMValueRef panels, LLVMValueRef out);
/* Rows that c needs for `rows` of x. */
uint64_t hcg_quant_rows(const hcg_emit *e, uint64_t rows);
/* out[k] in f32 = row `row` (i64) of a table in panels of groups. */
void hcg_quant_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef table, LLVMValueRef row, int64_t k,
                   LLVMValueRef out);

/* ---- between contract/groups.c and contract/bytes.c
 * ------------------------------------------------
 */
int64_t hcg_panel_bytes(hir_dtype dtype, int64_t k); /* of one panel, any dtype */
/* The words of block `block` of a group, those of rows v * lanes ..: <lanes x i32>. */
LLVMValueRef hcg_quant_block(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned block,
                             unsigned v);
/* s of rows v * lanes ..; and m (q4 only). */
LLVMValueRef hcg_quant_scale(hcg_emit *e, LLVMValueRef group, unsigned v);
LLVMValueRef hcg_quant_least(hcg_emit *e, LLVMValueRef group, unsigned v);
/* Fetches the group that lies a few KiB behind this one. */
void hcg_quant_fetch(hcg_emit *e, hir_dtype dtype, LLVMValueRef group);

unsigned hcg_int8_width(const hcg_emit *e, uint64_t rows);
uint64_t hcg_int8_group_bytes(unsigned width); /* of a slab */
void hcg_int8_take(hcg_emit *e, const hcg_quant_x *q);
void hcg_int8_gemm(hcg_emit *e, const hcg_quant_x *q, hir_dtype dtype, LLVMValueRef b,
                   LLVMValueRef panels, LLVMValueRef c, LLVMValueRef ldc);
void hcg_int8_gemv(hcg_emit *e, const hcg_quant_x *q, hir_dtype dtype, LLVMValueRef b,
                   LLVMValueRef panels, LLVMValueRef out);

#endif
