/* What back ends of vector multiply-adds have in common: products by the matrix kernels of the
 * level (matmul/matrix.h). */
#ifndef HCG_VECTOR_H
#define HCG_VECTOR_H

#include "codegen/matmul/matrix.h"

int64_t hcg_vector_panels(const hcg_level *level); /* panels of a register tile */
/* Panels that are multiplied together, and what rows of a block should be a multiple of. */
int64_t hcg_wide_panels(const hcg_level *level);
int64_t hcg_wide_unit(const hcg_level *level);
int64_t hcg_vector_rows(const hcg_level *level, int64_t k);
/* The product as gemm and gemv take it, with x as `x_dtype`. */
hcg_gemm hcg_vector_product(const hcg_product *p, const hcg_panels *b, hir_dtype x_dtype);

#endif
