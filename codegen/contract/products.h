/* The back ends at work in one kernel: one for each row of matmul/backends.def that multiplies
 * one of its matrices. */
#ifndef HCG_PRODUCTS_H
#define HCG_PRODUCTS_H

#include "codegen/matmul/backend.h"
#include "codegen/program/contraction.h"

enum { HCG_MOST_PRODUCTS = 4 };

typedef struct hcg_products {
    hcg_product at[HCG_MOST_PRODUCTS]; /* in the order of the table */
    unsigned n, *of;                   /* of: by linear */
    bool decode;
    int64_t k;           /* the largest of all kernels that share the function */
    int64_t of_tokens;   /* as in hcg_product */
    int64_t tile_panels; /* that are computed together: the most that a back end wants */
} hcg_products;

/* False, with a diagnostic: no back end multiplies one of the matrices. */
bool hcg_choose_products(hcg_emit *e, const hcg_kernel *k, const hcg_contraction *c,
                         hcg_products *out);
/* Rows of a block: the least of what the back ends want. Sets tile_panels. */
int64_t hcg_block_of_products(const hcg_emit *e, hcg_products *p);
/* Workspace for blocks of at most `rows` rows. */
void hcg_begin_products(hcg_emit *e, hcg_products *p, uint64_t rows);
/* Brings n_rows rows of x, f32, `k` from one to the next, into the forms that back ends read. */
void hcg_prepare_products(hcg_emit *e, hcg_products *p, LLVMValueRef x, LLVMValueRef k,
                          LLVMValueRef n_rows);
void hcg_end_products(hcg_emit *e, hcg_products *p);
/* Rows of sums that back ends write for `rows` rows of x. */
uint64_t hcg_rows_of_sums(const hcg_products *p, uint64_t rows);

#endif
