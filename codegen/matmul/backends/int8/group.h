/* Dot products of bytes for weights in groups: what one group adds to the sums of a tile, with the
 * instructions that a level has. All of them give the exact sum of integers.
 *
 *   VNNI      vpdpbusd: unsigned times signed bytes, four products to a sum of 32 bits
 *   sdot      (aarch64) signed times signed bytes, the same: q itself is multiplied, not u
 *   maddubs   vpmaddubsw adds two products to 16 bits and would saturate, vpmaddwd adds pairs of
 *             those to 32 bits. Where it is used, a comment says why it never saturates.
 *
 * Prepared x lies group after group along K, rows of a slab side by side (`width` of them). A
 * group of a slab has 8 words of 4 bytes for each row. Then come three tables of 4 bytes a row: t
 * in f32, t sum p in f32, and -128 sum p in i32, where the sum of u p starts if u = q + 128 stands
 * for q. Numbers of mxfp4 and nvfp4 are halves of whole ones: u is twice the number, with 12
 * added. A lane of 16 bits of maddubs sums every other pair of a group: the third table holds
 * -12 sum p of either half of the pairs, in i16, where these sums of mxfp4 start. For nvfp4, where
 * the two halves of a group have a scale each, two more tables come after the first three, of each
 * half in i32: -12 sum p, plus the bits of the f32 1.5 2^23. A sum i of integers that starts there
 * is 1.5 2^23 + i as f32, from which fma(.., s, -1.5 2^23 s) makes s i, exactly: no conversion,
 * which two sums for a group would need twice. For products of 16 bits (int8/words.c) two words
 * stand for four elements p0 .. p3: p0 and p2 side by side, then p1 and p3. They come last; where
 * nothing else is read, the bytes and the last two tables are not there.
 */
#ifndef HCG_INT8_GROUP_H
#define HCG_INT8_GROUP_H

#include "codegen/emit/shared.h"
#include "codegen/matmul/backend.h"

/* Tables of a group of x, and with those for halves of groups. */
enum { HCG_INT8_TABLES = 3, HCG_INT8_ALL_TABLES = 5 };
enum { HCG_INT8_ROWS = 6, HCG_INT8_VECTORS = 2, HCG_INT8_CHAINS = 4 };

/* Names of LLVM's intrinsics, for vectors of the level's width. */
typedef struct hcg_int8_instructions {
    const char *dot;     /* VNNI or sdot; NULL: maddubs, by the three below */
    bool is_signed;      /* sdot */
    const char *maddubs; /* unsigned times signed bytes, sums of two in 16 bits, saturated */
    const char *maddwd;  /* sums of two products of 16 bits, in 32 */
    const char *sign;    /* bytes with the signs of others; NULL: by compare and select */
    const char *lookup;  /* bytes of a table of 16, repeated in every 16 bytes */
} hcg_int8_instructions;

/* How x is prepared: rows of a slab, tables of each of its groups, and whether it has bytes, words
 * of 16 bits, or both. Without bytes the first table is the only one. */
typedef struct hcg_int8_form {
    unsigned width, tables;
    bool pairs; /* the third table has what pairs of mxfp4 start from */
    bool bytes, words;
} hcg_int8_form;
/* Bytes of a group of a slab before its tables, before its words of 16 bits, and all. */
static inline int64_t hcg_int8_before_tables(hcg_int8_form f) {
    return f.bytes ? (int64_t)f.width * HIR_GROUP : 0;
}
static inline int64_t hcg_int8_before_words(hcg_int8_form f) {
    return hcg_int8_before_tables(f) + (int64_t)f.width * f.tables * 4;
}
static inline int64_t hcg_int8_slab_group(hcg_int8_form f) {
    return hcg_int8_before_words(f) + (f.words ? (int64_t)f.width * HIR_GROUP * 2 : 0);
}

typedef struct hcg_int8_tile {
    const hcg_int8_instructions *with;
    hir_dtype dtype;
    hcg_int8_form form;                   /* of x */
    unsigned rows;                        /* of this tile, of a slab of form.width */
    unsigned first, vectors;              /* vectors of `lanes` columns each, within the tile's
                                             panels: the first, and how many */
    LLVMValueRef x;                       /* the slab's group */
    LLVMValueRef group[HCG_INT8_VECTORS]; /* the panel's group for each vector */
    LLVMValueRef floats[HCG_INT8_ROWS * HCG_INT8_VECTORS]; /* [row][vector] */
} hcg_int8_tile;

/* How many of a tile's `all` vectors are computed together: as many as fit the registers. */
unsigned hcg_int8_vectors(const hcg_emit *e, const hcg_int8_tile *t, unsigned all);
/* floats += what this group adds */
void hcg_int8_group(hcg_emit *e, hcg_int8_tile *t);
/* The 4 bytes of type `type` at byte `at` of p, for all lanes. */
LLVMValueRef hcg_int8_for_all(hcg_emit *e, LLVMValueRef p, int64_t at, LLVMTypeRef type);

/* ---- tiles for last rows (int8/dots.c) ------------------------------------------------------- */
/* Panels of a tile. */
unsigned hcg_int8_panels(const hcg_emit *e);
/* The function of a tile of so many rows and panels, at most HCG_INT8_ROWS and hcg_int8_panels. */
typedef hcg_shared hcg_int8_tile_function(hcg_emit *e, const void *of, unsigned rows,
                                          unsigned panels);
/* Calls that of the smallest tile that holds the rows and panels. */
void hcg_int8_dispatch(hcg_emit *e, hcg_int8_tile_function *function, const void *of,
                       LLVMValueRef rows, LLVMValueRef panels, const LLVMValueRef *args,
                       unsigned n);
/* Prefetches what the epilogue will touch of the rows of a slab, at most HCG_INT8_ROWS, from a
 * panel on. of: hcg_panels.touched, then ld_touched. */
void hcg_int8_prefetch_touched(hcg_emit *e, const LLVMValueRef *of, LLVMValueRef row,
                               LLVMValueRef rows, LLVMValueRef panel);

/* ---- q8 by products of 16 bits (int8/words.c) ------------------------------------------------ */
/* To widen panels takes as long as three slabs save or so. */
enum { HCG_INT8_FEW_SLABS = 4 };
/* Workspace for widened panels. */
uint64_t hcg_int8_words_bytes(const hcg_emit *e);
/* The sums of all rows that were prepared in this form. */
void hcg_int8_words_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b, hcg_int8_form f);

/* ---- x --------------------------------------------------------------------------------------- */
/* Rounds a group of x to bytes, x ~ t p:
 *
 *     t = max |x| / 127,   p in -127 .. 127, to nearest
 *
 * and a group of weights adds   s t sum q p  +  m t sum p   to a sum (of nvfp4, each half of it).
 * Sums of integers are exact. The error of x is at most t / 2 an element; a group that holds a NaN
 * gives NaN. All back ends that multiply bytes round alike, so that they give the same bits. */
typedef struct hcg_int8_x {
    LLVMValueRef step, of_x, start; /* f32 t; f32 t sum p; i32 -128 sum p */
    LLVMValueRef half_start[2];     /* where sums of each half start, i32; NULL: not requested */
    LLVMValueRef pair_start;   /* -12 sum p of two pairs out of four, i16 each; NULL: likewise */
    LLVMValueRef p[HIR_GROUP]; /* <lanes x i32>, in order */
} hcg_int8_x;
/* Reads n elements at x; n more than a group, or NULL: all of the group. Elements beyond count as
 * zeros. */
enum { HCG_INT8_HALVES = 1, HCG_INT8_PAIRS = 2 }; /* a set: what is requested besides */
hcg_int8_x hcg_int8_round(hcg_emit *e, LLVMValueRef x, LLVMValueRef n, unsigned with);

#endif
