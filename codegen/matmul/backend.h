/* The interface of a contraction back end: what multiplies x with a matrix of weights.
 *
 * contract/kernel.c cuts a contraction into blocks (rows of x times panels of weights), has the
 * prologue make x and the epilogue store results. In between a back end computes the sums of a
 * block: it brings x into its own storage form, and leaves
 *
 *     sums[r][16 p + j] = sum_k x[r][k] w[16 p + j][k]        f32, rows `ld` apart, in scratch
 *
 * which is all that the epilogue knows of it. Where a back end keeps sums meanwhile (vector
 * registers, tiles of a matrix unit, workspace of its own) is its own matter, and so are its cache
 * blocks. A kernel calls, for each back end that multiplies one of its matrices:
 *
 *     begin                                once, before all loops: workspace, configuration
 *       prepare                            for each block of rows, before its first product
 *         gemm or gemv                     for each block of panels of each matrix
 *     end                                  once, after all loops
 *
 * Which back end multiplies what, on which CPU level, is matmul/backends.def. Weights lie in panels
 * (hir_layout in ir/ir.h), the same for all CPUs; a back end that needs another order makes it in
 * workspace, or requests a layout of its own.
 */
#ifndef HCG_BACKEND_H
#define HCG_BACKEND_H

#include "codegen/emit/emit.h"
#include "codegen/program/contraction.h"

typedef struct hcg_backend hcg_backend;

/* A back end at work in one kernel. One prepared x serves all matrices that it multiplies. */
typedef struct hcg_product {
    const hcg_backend *backend;
    /* The kernel sets these fields before begin: */
    unsigned weights;  /* types of the matrices, a bit each: 1 << hir_dtype */
    bool decode;       /* the kernel is for one token: rows are multiplied by gemv, one at a time */
    int64_t k;         /* the greatest length of a row of x */
    uint64_t rows;     /* the most rows of a block */
    int64_t panels;    /* the most panels of a product */
    int64_t of_tokens; /* on average one token in so many is multiplied with a matrix (experts); 0:
                          every token is */
    /* The kernel sets these before each prepare, which may replace x, ldx and length by its
     * own: */
    LLVMValueRef x, ldx; /* f32 x[n_rows][length], rows ldx apart; i64 */
    LLVMValueRef n_rows, length;
    /* Which rows of x are prepared (backends that gather): row r is row list[r] / each; NULL: r. */
    LLVMValueRef list; /* i32 */
    int64_t each;
    /* These belong to the back end, from begin on: */
    LLVMValueRef x_workspace;     /* workspace for prepared x; NULL: x is read where it lies */
    LLVMValueRef panel_workspace; /* workspace for prepared panels; NULL: they are read in place */
    struct hcg_product *few; /* another back end's product, for few rows; NULL: there is none */
} hcg_product;

/* The most arrays of rows, which an epilogue reads or writes besides the sums, that are
 * prefetched. */
enum { HCG_TOUCHED = 2 };

/* Some panels of a matrix, and where their sums go. Counts may be anything but 0. */
typedef struct hcg_panels {
    hir_dtype dtype;
    unsigned narrow;       /* panels have 8 outputs, and are at most so many; 0: they have 16 */
    LLVMValueRef w;        /* the first panel; panels follow each other */
    LLVMValueRef n;        /* how many */
    LLVMValueRef sums, ld; /* f32; ldc: elements from row to row */
    /* These are read only by back ends that prefetch, and not by gemv: */
    LLVMValueRef next;                 /* the panels that the next product reads */
    LLVMValueRef touched[HCG_TOUCHED]; /* what the epilogue will read or write at these rows and
                                          columns, f32; NULL: nothing */
    LLVMValueRef ld_touched;
} hcg_panels;

struct hcg_backend {
    const char *name;
    const void *instructions; /* the row of the table, for back ends that have several */
    /* How many panels are computed together: the sums of a block have columns for a multiple of
     * them. */
    int64_t (*tile_panels)(const hcg_level *level);
    /* The most rows of a block where rows of x have k elements: as many prepared rows as caches
     * hold. */
    int64_t (*block_rows)(const hcg_level *level, int64_t k);
    /* Blocks of many rows should have a multiple of so many; NULL: any number. */
    int64_t (*row_unit)(const hcg_level *level);
    unsigned tile_rows; /* gemm writes sums up to a whole multiple of this number of rows */
    bool prefetches;    /* gemm prefetches what is needed next (see hcg_panels) */
    bool gathers;       /* prepare reads the rows of a list */
    /* Takes workspace (hcg_scratch) for the whole kernel; NULL: it needs none. */
    void (*begin)(hcg_emit *e, hcg_product *p);
    /* Brings n_rows > 0 rows of x into the form that gemm or gemv reads; NULL: it reads x. */
    void (*prepare)(hcg_emit *e, hcg_product *p);
    /* Compute the sums of all rows that were prepared, or of the one row. */
    void (*gemm)(hcg_emit *e, const hcg_product *p, const hcg_panels *b);
    void (*gemv)(hcg_emit *e, const hcg_product *p, const hcg_panels *b);
    /* Gives back what begin has taken from the CPU; NULL: nothing. */
    void (*end)(hcg_emit *e, hcg_product *p);
};

/* ---- the table ------------------------------------------------------------------------------- */
enum { HCG_FOR_DECODE = 1, HCG_FOR_PREFILL = 2 };

typedef struct hcg_backend_row { /* a row of matmul/backends.def */
    const hcg_backend *backend;
    unsigned rounds;                   /* HCG_ROUND_*; 0: x stays f32 */
    unsigned weights, layouts, tokens; /* sets: bits of hir_dtype, hir_layout, HCG_FOR_* */
    unsigned lanes;                    /* 0: any */
    const char *features;              /* " " between; "": none */
    struct {
        size_t fact; /* offset of a rate (u32) in hd_machine, which has to be at */
        uint32_t least;
    } needs; /* least so much; 0: nothing is needed */
} hcg_backend_row;
size_t hcg_backend_rows(const hcg_backend_row **out);

/* The row that multiplies such a matrix; `exact` as in hcg_options. NULL: there is none. */
const hcg_backend_row *hcg_choose_backend(const hcg_level *level, unsigned exact, hir_dtype dtype,
                                          hir_layout layout, unsigned tokens);

/* What activations are rounded to for a set of matrices (hcg_matrix) on a level: HCG_ROUND_*. */
unsigned hcg_roundings_on(const hcg_level *level, uint32_t matrices, unsigned exact);

/* Whether a level can round both operands of all products of gradients to bf16, and gains by it. */
bool hcg_multiplies_bf16(const hcg_level *level);

/* Whether two levels multiply all matrices of a set (hcg_matrix) by the same rows. */
bool hcg_same_backends(const hcg_level *a, const hcg_level *b, unsigned exact, uint32_t matrices);

/* ---- the back ends at work in one kernel ----------------------------------------------------- */
/* One for each row of the table that multiplies one of its matrices. */
enum { HCG_MOST_PRODUCTS = 4 };

typedef struct hcg_products {
    hcg_product at[HCG_MOST_PRODUCTS]; /* in the order of the table */
    unsigned n, *of;                   /* of[i]: the product of linear i */
    bool decode;
    int64_t k;           /* the greatest of all kernels that share the function */
    int64_t of_tokens;   /* as in hcg_product */
    int64_t tile_panels; /* panels that are computed together: the most that a back end wants */
    int64_t row_unit;    /* blocks should have a multiple of so many rows: the same */
} hcg_products;

/* False, with a diagnostic: no back end multiplies one of the matrices. */
bool hcg_choose_products(hcg_emit *e, const hcg_kernel *k, const hcg_contraction *c,
                         hcg_products *out);
/* Rows of a block: the least that one of the back ends wants. Sets tile_panels and row_unit. */
int64_t hcg_block_of_products(const hcg_emit *e, hcg_products *p);
/* Workspace for blocks of at most `rows` rows. */
void hcg_begin_products(hcg_emit *e, hcg_products *p, uint64_t rows);
/* Brings n_rows rows of x, f32, `k` from one to the next, into the forms that back ends read. */
void hcg_prepare_products(hcg_emit *e, hcg_products *p, LLVMValueRef x, LLVMValueRef k,
                          LLVMValueRef n_rows);
/* Whether all back ends read rows of a list, and the same with such rows. */
bool hcg_products_gather(const hcg_products *p);
void hcg_prepare_listed(hcg_emit *e, hcg_products *p, LLVMValueRef x, LLVMValueRef k,
                        LLVMValueRef n_rows, LLVMValueRef list, int64_t each);
void hcg_end_products(hcg_emit *e, hcg_products *p);
/* Rows of sums that back ends write for `rows` rows of x. */
uint64_t hcg_rows_of_sums(const hcg_products *p, uint64_t rows);

#endif
