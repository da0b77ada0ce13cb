/* Few rows by vectors, in a back end of a matrix unit: a tile takes as long for one row as for 16.
 * The kernel holds code for both and decides at run time which of them multiplies. */
#ifndef HCG_SMALL_M_H
#define HCG_SMALL_M_H

#include "codegen/matmul/backend.h"

/* Starts back end `by` for blocks of at most `rows` rows, as p->few; rows 0: no block has so
 * few. */
void hcg_small_m_begin(hcg_emit *e, hcg_product *p, const hcg_backend *by, uint64_t rows);

/* Calls `prepare` and `gemm` of p (NULL: nothing), or those of p->few where `is_few` (i1) is
 * true. */
void hcg_small_m_prepare(hcg_emit *e, hcg_product *p, LLVMValueRef is_few,
                         void (*prepare)(hcg_emit *e, hcg_product *p));
void hcg_small_m_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b, LLVMValueRef is_few,
                      void (*gemm)(hcg_emit *e, const hcg_product *p, const hcg_panels *b));

#endif
