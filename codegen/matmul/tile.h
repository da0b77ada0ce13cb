/* Between the files of the matrix kernels (matmul/matrix.h): one step of k (step.c), the register
 * tile that runs along k (tile.c), the blocks that tiles go over, and one row (gemm.c). */
#ifndef HCG_CONTRACT_TILE_H
#define HCG_CONTRACT_TILE_H

#include "codegen/emit/arithmetic.h"
#include "codegen/matmul/matrix.h"

/* ---- step.c: one step of k ------------------------------------------------------------------- */
/* What a step multiplies: `outputs` elements of b for each of `depth` adjacent elements along k,
 * with `depth` elements of x. */
typedef struct tile_kind {
    hir_dtype b, x;
    unsigned depth, outputs;
    unsigned rows, panels;   /* of a tile */
    unsigned least_panels;   /* of a product; 0: any */
    unsigned vectors, first; /* a wide tile has so many vectors of its panels, from vector `first`
                              * on; vectors 0: a tile has all */
    bool narrow;
    bool squares;   /* two steps are one product of 2 x 4 and 4 x 2 bf16 (step.c) */
    bool keeps;     /* what is loaded of b is stored in f32, for the slabs that follow (gemm.c) */
    bool kept;      /* b is what a wide tile has stored so: the vectors of a step side by side */
    bool far;       /* the next block of b goes to the L2, not to the L1 (gemm.c) */
    bool strip;     /* c stands in panels as b does (hcg_strip) */
    int64_t across; /* x[k][r], r < across; 0: x[r][k]. Without `strip` b is packed alongside x, and
                     * c is prefetched instead of the next panels (outer.c) */
    int64_t stride; /* across: from step to step of x, in elements or, of dot products, in pairs */
} tile_kind;

tile_kind tile_kind_of(const hcg_emit *e, const hcg_gemm *g);
/* Elements of a panel per step of k, their bytes, and the vectors of sums of a row and a panel. */
unsigned tile_line(const tile_kind *d);
unsigned tile_line_bytes(const tile_kind *d);
unsigned tile_panel_vectors(const hcg_emit *e, const tile_kind *d);
/* The panels of a tile of which it prefetches what comes next: the middle one of a group of three is
 * read by two wide tiles, of which the second does it. */
unsigned tile_own_panels(const tile_kind *d);
/* For names of functions: a name for what is multiplied with a panel, whatever the number of
 * panels; and a name for narrow matrices, which have a gemm for each number of panels. */
const char *tile_panel_name(hcg_emit *e, const tile_kind *d);
const char *tile_kind_name(hcg_emit *e, const tile_kind *d);
/* Does a product take two bf16 of x and two of b? */
bool tile_is_dot(const tile_kind *d);
/* The rounds of multiply-adds of a step. */
unsigned tile_rounds(const tile_kind *d);
/* &b[step][vector v] */
LLVMValueRef tile_step_place(hcg_emit *e, const tile_kind *d, LLVMValueRef b, LLVMValueRef step,
                             unsigned v);
/* A vector of b for one round: in pairs, the lower or the upper half of each word, or both. */
LLVMValueRef tile_load_b(hcg_emit *e, const tile_kind *d, LLVMValueRef p, unsigned round);
/* The element, or pair, of the row x that it is multiplied with, in all lanes. */
LLVMValueRef tile_load_x(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef step,
                         unsigned offset, unsigned round);
LLVMValueRef tile_multiply_add(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef b,
                               LLVMValueRef sum);
/* Adds sums of even and of odd elements, side by side in n vectors, which gives half as many
 * vectors; a vector left over gives half a vector. Returns how many there are. */
unsigned tile_join_sums(hcg_emit *e, LLVMValueRef *acc, unsigned n);
/* Steps of k in a block of b. */
int64_t tile_k_block(const hcg_emit *e);

/* Two rows of x and two outputs at a time. Sums of a pair of rows stand side by side, two outputs
 * of both rows in a vector: width vectors of a row are 2 width vectors of a pair. */
void tile_choose_squares(const hcg_emit *e, tile_kind *d); /* if the level has the instruction */
unsigned tile_square_sums(unsigned rows, unsigned width);
/* Adds a step and the next one to the sums of a tile. x[r]: where row r is at the step; b, next_b:
 * the vectors of the two steps. next_b NULL: there is no other step. */
void tile_add_squares(hcg_emit *e, unsigned rows, unsigned width, const LLVMValueRef *x,
                      const LLVMValueRef *b, const LLVMValueRef *next_b, LLVMValueRef *acc);
/* Turns the sums of pairs into sums of rows, width vectors each, in place. */
void tile_part_squares(hcg_emit *e, unsigned rows, unsigned width, LLVMValueRef *acc);

/* ---- gemm.c: ranges -------------------------------------------------------------------------- */
/* n items in as few ranges of at most `most` as possible, of nearly equal size: range i holds
 * each + (i < more) items and begins at i * each + min(i, more). 17 rows on tiles of 8 are 6 + 6 +
 * 5, since a range of one row would load as much of b as one of eight. */
typedef struct tile_split {
    LLVMValueRef count, each, more;
} tile_split;
tile_split tile_divide(hcg_emit *e, LLVMValueRef n, int64_t most); /* n > 0 */
LLVMValueRef tile_split_start(hcg_emit *e, const tile_split *p, LLVMValueRef i);
LLVMValueRef tile_split_size(hcg_emit *e, const tile_split *p, LLVMValueRef i);

/* So many rows or fewer of f32 prefetch a little ahead, into the L1. */
enum { TILE_NEAR_ROWS = 3 };

/* ---- tile.c: the micro-kernel ------------------------------------------------------------------
 * tile(x, ldx, b, panel_stride, k, c, ldc, accumulate, next, pace[, keep]):
 * c[rows][panels * outputs] (+)= x[rows][k] b[k][..]; next: what to prefetch meanwhile, `pace`
 * bytes for each step; keep[k][outputs]: where a kind that keeps b stores it, of one panel */
enum { TILE_KEEP = 10, TILE_PARAMS };
/* Calls the micro-kernel for `rows` (`least` or more, at most those of a tile) and `panels` <=
 * tile panels, both known only at run time. */
void tile_dispatch(hcg_emit *e, tile_kind d, unsigned least, LLVMValueRef rows, LLVMValueRef panels,
                   const LLVMValueRef args[TILE_PARAMS]);

#endif
