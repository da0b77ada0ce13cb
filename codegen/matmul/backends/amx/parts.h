/* How the matrix unit sees numbers of f32: as sums of bf16 (amx/bf16.c multiplies them).
 *
 *   rounded   x is rounded to bf16; weights are bf16
 *   exact     x = a + b + c, exactly: a is the upper 8 of the 24 bits of x's significand, b the
 *             upper 8 of what is left, c the rest; weights are bf16. An infinity is its a alone.
 *   f16       x has the same three parts; weights are two parts, which hold the 11 bits of f16
 *             exactly. Of six products the five largest are taken
 *   groups    x and weights, s q + m, are rounded to bf16
 *   f32       x and weights are three parts each, exactly, each part the nearest bf16 to what is
 *             left. Of nine products the six largest are taken. An infinity would be multiplied by
 *             zeros among the parts of weights, so rows of x that have one are reported.
 */
#ifndef HCG_AMX_PARTS_H
#define HCG_AMX_PARTS_H

#include "codegen/matmul/backends/amx/tiles.h"

enum {
    HCG_AMX_STEP = HCG_AMX_LINE / 2,
    /* elements of K in a tile of bf16 */ HCG_AMX_PRODUCTS = 6
};

typedef struct hcg_amx_parts {
    const char *name;
    unsigned x, w; /* parts of x, and of weights */
    unsigned n;    /* products: x part of[i].x with weights part of[i].w, in this order */
    struct {
        unsigned x, w;
    } of[HCG_AMX_PRODUCTS];
} hcg_amx_parts;

/* ---- parts of a vector of numbers ------------------------------------------------------------ */
/* The upper 8 bits of each significand; and what is left of x without them, which is nothing of an
 * infinity: its first part holds all of it. */
LLVMValueRef hcg_amx_truncated(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_amx_remainder(hcg_emit *e, LLVMValueRef x, LLVMValueRef part);
/* A line of a tile: parts of 32 numbers side by side, or of 16 pairs. */
LLVMValueRef hcg_amx_line(hcg_emit *e, const LLVMValueRef part[2]);
LLVMValueRef hcg_amx_pair_line(hcg_emit *e, LLVMValueRef low, LLVMValueRef high);

/* ---- x and weights --------------------------------------------------------------------------- */
/* Are tiles made of weights of this type? Those of bf16 are read where they lie. */
bool hcg_amx_makes_tiles(hir_dtype dtype);
/* Bytes of a panel for a step of K, as it is stored. */
unsigned hcg_amx_step_bytes(hir_dtype dtype);

/* Brings rows of x, f32 and `ldx` apart, into tiles [row / 16][step][part][row % 16][32], zeros
 * beyond `k`. Rows beyond the last one are left as they are: the sums made of them are never read.
 * most[row], where weights have parts: the greater of its former value and the row's largest |x|,
 * as bits of f32 (so that NaN and infinities are the largest). */
void hcg_amx_split_rows(hcg_emit *e, const hcg_amx_parts *p, LLVMValueRef x, LLVMValueRef ldx,
                        LLVMValueRef rows, LLVMValueRef k, LLVMValueRef out, LLVMValueRef most);

/* Brings `steps` steps of a panel, f32 or f16 [K][16], or groups (weights/quant.h), into tiles
 * [step][part], in pairs along K. A single part is the nearest bf16. */
void hcg_amx_split_panel(hcg_emit *e, const hcg_amx_parts *p, hir_dtype dtype, LLVMValueRef w,
                         LLVMValueRef steps, LLVMValueRef out);

#endif
