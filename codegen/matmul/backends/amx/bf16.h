/* Products of bf16 on a matrix unit (amx/bf16.c), for back ends that are not these alone.
 * `instructions` of the back end: its hcg_amx_parts. */
#ifndef HCG_AMX_H
#define HCG_AMX_H

#include "codegen/matmul/backends/amx/parts.h"

/* As in hcg_backend. */
int64_t hcg_amx_tile_panels(const hcg_level *level);
int64_t hcg_amx_block_rows(const hcg_level *level, int64_t k);
void hcg_amx_begin(hcg_emit *e, hcg_product *p);
void hcg_amx_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b);
void hcg_amx_end(hcg_emit *e, hcg_product *p);

#endif
