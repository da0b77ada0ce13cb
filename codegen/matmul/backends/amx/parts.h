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
enum { HCG_AMX_MOST_PARTS = 3 };

typedef enum hcg_amx_cut {
    HCG_AMX_UPPER,   /* each part is the upper 8 bits of what is left; an infinity is the first */
    HCG_AMX_FINITE,  /* the same of numbers that are never infinite */
    HCG_AMX_NEAREST, /* each part is the nearest bf16 to what is left */
} hcg_amx_cut;

/* x as the sum of `parts` parts, of each of which the upper half counts. A single part is the nearest
 * bf16; where x is stored as bf16, x itself. */
void hcg_amx_split(hcg_emit *e, hcg_amx_cut cut, hir_dtype dtype, unsigned parts, LLVMValueRef x,
                   LLVMValueRef *part);
/* A line of a tile of 16 pairs of numbers. */
LLVMValueRef hcg_amx_pair_line(hcg_emit *e, LLVMValueRef low, LLVMValueRef high);
void hcg_amx_store_line(hcg_emit *e, LLVMValueRef line, LLVMValueRef at);

/* ---- rows as lines of tiles ------------------------------------------------------------------ */
typedef struct hcg_amx_lines {
    const char *name; /* of the function */
    hir_dtype dtype;
    hcg_amx_cut cut;
    unsigned parts;
    LLVMValueRef x, ld, rows, n; /* x[rows][n], rows ld elements apart */
    LLVMValueRef out;
    LLVMValueRef
        most; /* NULL, or for each row the greater of its former value and the row's largest
                          |x|, as bits of f32 (so that NaN and infinities are the largest) */
} hcg_amx_lines;

/* Brings rows into tiles [row / 16][step][part][row % 16][32], zeros beyond `n`. Rows beyond the last
 * one are left as they are: the sums made of them are never read. */
void hcg_amx_make_lines(hcg_emit *e, const hcg_amx_lines *l);

/* ---- x and weights --------------------------------------------------------------------------- */
/* Are tiles made of weights of this type? Those of bf16 are read where they lie. */
bool hcg_amx_makes_tiles(hir_dtype dtype);
/* Bytes of a panel for a step of K, as it is stored. */
unsigned hcg_amx_step_bytes(hir_dtype dtype);

/* Brings rows of x, f32, into tiles; most[row] where weights have parts. */
void hcg_amx_split_rows(hcg_emit *e, const hcg_amx_parts *p, LLVMValueRef x, LLVMValueRef ldx,
                        LLVMValueRef rows, LLVMValueRef k, LLVMValueRef out, LLVMValueRef most);

/* Brings `steps` steps of a panel, f32 or f16 [K][16], or groups (weights/quant.h), into tiles
 * [step][part], in pairs along K. A single part is the nearest bf16. */
void hcg_amx_split_panel(hcg_emit *e, const hcg_amx_parts *p, hir_dtype dtype, LLVMValueRef w,
                         LLVMValueRef steps, LLVMValueRef out);

#endif
