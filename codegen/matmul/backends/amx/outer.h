/* Sums of outer products (hcg_outer of matmul/matrix.h) by the matrix unit, both factors rounded to
 * bf16. */
#ifndef HCG_AMX_OUTER_H
#define HCG_AMX_OUTER_H

#include "codegen/matmul/matrix.h"

void hcg_amx_outer(hcg_emit *e, const hcg_outer *o);
uint64_t hcg_amx_outer_bytes(const hcg_level *level, int64_t n); /* for at most n rows of y */

#endif
