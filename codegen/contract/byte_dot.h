/* Dot products of bytes for weights in groups: what one group adds to the sums of a tile, with the
 * instructions that a level has. Every way gives the exact sum of integers.
 *
 *   VNNI      vpdpbusd: unsigned times signed bytes, four products to a sum of 32 bits
 *   maddubs   vpmaddubsw adds two products to 16 bits and would saturate, vpmaddwd adds pairs of
 *             those to 32 bits. Why it never saturates is said where it is used.
 *
 * A slab of packed x (contract/groups.h) has three tables of 4 bytes a row in front of its words: t
 * in f32, t sum p in f32, and -128 sum p in i32, where the sum of u p starts if u = q + 128 stands
 * for q.
 */
#ifndef HCG_EMIT_QUANT_DOT_H
#define HCG_EMIT_QUANT_DOT_H

#include "codegen/emit/emit.h"

enum { HCG_BYTE_ROWS = 6, HCG_BYTE_VECTORS = 2, HCG_BYTE_CHAINS = 4 };

typedef struct hcg_byte_tile {
    hir_dtype dtype;
    unsigned width, rows;                 /* of the slab; of this tile */
    unsigned first, vectors;              /* of the columns: `lanes` each, of those of its panels */
    LLVMValueRef x;                       /* the slab's group */
    LLVMValueRef group[HCG_BYTE_VECTORS]; /* the panel's group for each vector */
    LLVMValueRef floats[HCG_BYTE_ROWS * HCG_BYTE_VECTORS]; /* [row][vector] */
} hcg_byte_tile;

/* How many of a tile's `all` vectors go together: what registers hold. */
unsigned hcg_byte_vectors(const hcg_emit *e, hir_dtype dtype, unsigned rows, unsigned all);
/* Whether the level has dot products of bytes. */
bool hcg_byte_dots(const hcg_level *level);
/* floats += what this group adds */
void hcg_byte_group(hcg_emit *e, hcg_byte_tile *t);

#endif
