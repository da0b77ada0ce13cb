/* Matrix kernels that every contraction and attention of a level shares: emitted once per module,
 * on first use, as internal functions that kernels call. Everything about speed on one CPU level
 * (register tiles, unrolling, prefetch) is inside these functions and in matmul/tiles.def.
 *
 *   gemm   C = X B, X row-major in place, B in panels [K][16], bf16: [K/2][16][2], narrow:
 *          [K/2][8][2]
 *   gemv   y = x B for one row, B in panels
 *   pack   rows of x  ->  panels [K][width]: element (r, k) at ((r / width) K + k) width + r %
 * width
 *
 * Pointers are to f32 except panels, which are of any storage dtype, and x against bf16 panels,
 * which may be bf16; counts and strides are i64 in elements. For bf16 and narrow panels k is even
 * (backends/bf16.c).
 */
#ifndef HCG_MATRIX_H
#define HCG_MATRIX_H

#include "codegen/matmul/backend.h"

typedef struct hcg_tile {
    const char *arch;
    unsigned lanes;
    bool fma;
    unsigned rows, panels, unroll, chains, wide_rows;
} hcg_tile;
const hcg_tile *hcg_tile_of(const hcg_level *level);
/* Panels that two wide tiles cover. */
enum { HCG_WIDE_PANELS = 3 };

/* out[slabs][k][width] of x[rows][k] with rows `ldx` apart, rows > 0. Rows missing in the last slab
 * repeat the last row. */
void hcg_pack_rows(hcg_emit *e, unsigned width, LLVMValueRef x, LLVMValueRef ldx, LLVMValueRef rows,
                   LLVMValueRef k, LLVMValueRef out);
/* out[width][k] of a panel [k][width], k > 0 */
void hcg_unpack_panel(hcg_emit *e, unsigned width, LLVMValueRef panel, LLVMValueRef k,
                      LLVMValueRef out);

/* Counts may be anything but 0. Rows are not padded: nothing of x and c beyond `rows` is
 * touched. */
typedef struct hcg_gemm {
    hir_dtype dtype;     /* of b */
    hir_dtype x_dtype;   /* of x: f32; b is bf16 and the level has dot products of pairs: bf16 */
    unsigned narrow;     /* b is f32 in panels of 8 outputs, at most so many; 0: it is not */
    LLVMValueRef x, ldx; /* x[rows][k], rows ldx apart */
    LLVMValueRef rows, k;
    LLVMValueRef b;       /* the first panel; panels are k * 16 elements apart, or k * 8 */
    LLVMValueRef panels;  /* how many */
    LLVMValueRef c, ldc;  /* c[r][panel * 16 + j], or panel * 8 */
    bool accumulate;      /* add to c instead of setting it */
    LLVMValueRef widened; /* workspace for a block of b in f32 (hcg_widened_bytes); NULL: rows load
                             what b holds */
    LLVMValueRef next;    /* panels of the call that follows, of the same k, which are prefetched
                            meanwhile; NULL: those after b's */
    LLVMValueRef touched[HCG_TOUCHED]; /* prefetched: hcg_panels in matmul/backend.h */
    LLVMValueRef ld_touched;
} hcg_gemm;
void hcg_call_gemm(hcg_emit *e, const hcg_gemm *g);
/* 0: blocks are not widened, since panels lie side by side in a tile, or since bf16, which is widened
 * by a shift, gains by wide tiles alone. */
uint64_t hcg_widened_bytes(const hcg_level *level, hir_dtype dtype);
/* The most narrow panels for which each row of x is read once. */
unsigned hcg_narrow_panels(const hcg_level *level);

/* The same for one row, c = x B: the strides, rows, accumulate and next are not read. */
void hcg_call_gemv(hcg_emit *e, const hcg_gemm *g);

/* The products of attention. B is a strip, a few panels [..][16], or [..][hcg_query_width], side by
 * side, and so is C: one product's C is the next one's B.
 *
 *   across 0   C[r] (+)= sum_k x[r][k] B[k]    rows ldx apart, of which the last may be repeated: C
 *                                              has space for HCG_TILE_ROWS more lines
 *   across m   C[r] (+)= sum_k x[k][r] B[k]    r < m, which is also rows; `stride` is ldx
 */
enum { HCG_TILE_ROWS = 8 };
typedef struct hcg_strip {
    int64_t across, stride; /* stride 0: m */
    LLVMValueRef x, ldx;
    LLVMValueRef rows, k; /* any counts but 0 */
    bool of_queries;      /* panels have hcg_query_width lanes in place of 16 */
    LLVMValueRef panels;  /* at most hcg_strip_panels, or hcg_query_panels */
    LLVMValueRef b, ldb;  /* ldb and ldc floats from panel to panel */
    LLVMValueRef c, ldc;
    LLVMValueRef accumulate; /* i64: add to c instead of setting it */
    LLVMValueRef next;       /* the next x, of the same ldx, which is prefetched meanwhile */
} hcg_strip;
void hcg_call_strip(hcg_emit *e, const hcg_strip *s);
unsigned hcg_strip_panels(const hcg_level *level);
/* The same for panels of as many lanes as suit the level best. */
unsigned hcg_query_panels(const hcg_level *level);
unsigned hcg_query_width(const hcg_level *level);

/* Rows side by side in panels: out[column / width][r][width] of x[r][columns], zeros after the last
 * column. Pairs: [column / width][r / 2][width] words of x[r] and x[r + 1], both rounded to bf16; a
 * row without another one is paired with zeros. */
typedef struct hcg_column_copy {
    unsigned width;
    int64_t panel; /* words from panel to panel */
    bool pairs;
    LLVMValueRef x, ld, columns;
    LLVMValueRef list, each; /* as in hcg_outer */
    LLVMValueRef rows, out;  /* how many, not 0 */
} hcg_column_copy;
void hcg_pack_columns(hcg_emit *e, const hcg_column_copy *c);

/* Sums of outer products, the gradient of a matrix: y[i][j] (+)= sum_r a[r][i] b[r][j], i < n, j <
 * k. Rows are added in order, in blocks whose sums are added up, and then to y: a sum's bits depend
 * on `rows` and on nothing else. Nothing of a, b and y beyond n and k is touched. `rounds`: a and b
 * are rounded to bf16, on a level that multiplies it (hcg_multiplies_bf16). */
enum { HCG_OUTER_COLUMNS = 288 }; /* the most of k: whole tiles of all levels */
typedef struct hcg_outer {
    bool rounds;
    LLVMValueRef a, lda, n;            /* a[r][n], rows lda apart */
    LLVMValueRef b, ldb, k;            /* b[r][k] */
    LLVMValueRef rows;                 /* how many; none of the counts is 0 */
    LLVMValueRef list, a_each, b_each; /* row r is row list[r] / each; list NULL: it is row r */
    LLVMValueRef y, ldy, add;          /* add: i64, add to y instead of setting it */
    LLVMValueRef
        below; /* y[i][j] need not be made where i >= below + j; NULL: all are made, as they
                           are where factors are rounded */
    LLVMValueRef space; /* hcg_outer_bytes */
} hcg_outer;
void hcg_call_outer(hcg_emit *e, const hcg_outer *o);
/* For at most n rows of y. */
uint64_t hcg_outer_bytes(const hcg_level *level, bool rounds, int64_t n);

/* Prefetches from[row .. row + n - 1][column ..] (f32, rows `ld` apart), `bytes` of each row. */
void hcg_prefetch_rows(hcg_emit *e, LLVMValueRef from, LLVMValueRef ld, LLVMValueRef row,
                       LLVMValueRef n, LLVMValueRef column, unsigned bytes);

/* Whether a shared function (emit/shared.h) of this name multiplies for contractions: its code
 * depends on types and levels alone, not on the model. */
bool hcg_multiplies(const char *name);

/* ---- sizes of blocks ------------------------------------------------------------------------- */
/* They follow from the sizes of the caches that a level may count on (hcg_level.machine). A block
 * gets three quarters of a cache, data that is used once the rest. */
/* Rows of x in a block: rows of `row_bytes` stay in the L2 while panels are streamed past them, and
 * the sums of `panels` panels in the L1. */
int64_t hcg_block_rows(const hcg_level *level, int64_t row_bytes, int64_t panels);
/* Steps of k, of 64 bytes in each of `panels` panels, over which all rows of a block run before the
 * next: those panels stay in the L1. */
int64_t hcg_block_steps(const hcg_level *level, int64_t panels);

#endif
