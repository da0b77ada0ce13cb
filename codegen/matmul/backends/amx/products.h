/* The building blocks of attention on the matrix unit (amx/tiles.h): tiles of bf16 made of numbers
 * of any type, and sums of products of such tiles.
 *
 * A number is one bf16 or the sum of several:
 *
 *     f32, exact     three: the upper, middle and lower 8 of its 24 bits
 *     f16, exact     two: the upper 8 of its 11 bits, and the rest
 *     bf16           itself
 *     rounded        one, the nearest bf16
 *
 * Parts are cut off, not rounded, so that all have one sign: a product that overflows stays an
 * infinity. Of the products of parts i and j those with i + j <= 2 are taken. For f32 by f32 that
 * is six of nine; with u = 2^-24 the parts are at most 1, 2^-7 and 2^-15 of a number, and what is
 * left out at most 2^-7 2^-15 2 + 2^-30 < 8.1 u of each |x y|. With bf16 or f16 on one side nothing
 * is left out but the products of f32's last part with f16's second, at most 2^-22. Sums are those
 * of amx/bf16.c: fewer roundings than a chain of multiply-adds has. Numbers below 2^-126 count as
 * zeros. An infinite key or value gives NaN, since it is multiplied by parts that are zero.
 */
#ifndef HCG_AMX_PRODUCTS_H
#define HCG_AMX_PRODUCTS_H

#include "codegen/matmul/backends/amx/parts.h"

/* The number of parts of a number of this type. */
unsigned hcg_amx_parts_of(hir_dtype dtype, bool exact);

/* Rows of a matrix in memory: rows first .. end - 1 are read, the others are not read and count as
 * zeros. */
typedef struct hcg_amx_rows {
    LLVMValueRef x; /* row 0 */
    hir_dtype dtype;
    unsigned parts;
    int64_t ld, n; /* elements from row to row; of a row */
    LLVMValueRef first, end;
} hcg_amx_rows;

/* Makes rows lines of left operands (hcg_amx_make_lines); `first` is 0. */
void hcg_amx_left_operands(hcg_emit *e, const hcg_amx_rows *r, LLVMValueRef out);
/* Makes right operands of rows, over which the products sum: pairs of rows, 16 columns to a tile,
 * out[column / 16][step][part][row / 2 % 16][16][2], for the `steps` steps that rows `first` .. end
 * - 1 need; tiles of columns are `apart` bytes apart. */
void hcg_amx_pairs(hcg_emit *e, const hcg_amx_rows *r, int64_t apart, LLVMValueRef out);
/* Makes probabilities [key][16] of 16 queries left operands: out[step][part][query][32], zeros
 * from key `keys` on. */
void hcg_amx_probabilities(hcg_emit *e, unsigned parts, LLVMValueRef p, LLVMValueRef keys,
                           LLVMValueRef out);

/* Makes a tile of pairs of 16 rows, a right operand, the left operand whose lines are its columns. */
void hcg_amx_turn_tile(hcg_emit *e, LLVMValueRef tile);

/* C[i][j] (+)= sum of A[i][step] B[j][step], where all of them are tiles; the numbers of i, j and
 * steps may be anything but 0. Parts of a step of A, and of B, are a tile apart. */
typedef struct hcg_amx_product {
    unsigned a_parts, b_parts;
    LLVMValueRef a, a_line, a_tile, a_step, a_tiles; /* strides in bytes */
    LLVMValueRef b, b_tile, b_tiles;                 /* steps of b, each a tile for each part */
    LLVMValueRef steps;
    LLVMValueRef c, c_line, c_a, c_b; /* bytes from line to line, and for each i and j */
    LLVMValueRef add;                 /* i64: 1 to add to c, 0 to set it */
    LLVMValueRef next, ahead; /* memory that is read soon, and how many bytes of it are prefetched
                                 meanwhile */
} hcg_amx_product;
void hcg_amx_multiply_tiles(hcg_emit *e, const hcg_amx_product *p);

/* Where a query's maximum has changed, multiplies its row of o, `width` floats, by 2^(before -
 * now). `before` and `now` hold the maxima of 16 queries; `before` is overwritten. */
void hcg_amx_rescale(hcg_emit *e, LLVMValueRef o, int64_t ld, int64_t width, LLVMValueRef before,
                     LLVMValueRef now);

#endif
