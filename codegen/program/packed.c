/* How packed weights lie in panels (packed.h). */
#include "codegen/program/packed.h"

uint64_t hcg_group_bytes(hir_dtype dtype) {
    return dtype == HIR_Q8 ? HCG_Q8_GROUP : dtype == HIR_Q4 ? HCG_Q4_GROUP : HCG_MXFP4_GROUP;
}

uint64_t hcg_group_first(hir_dtype dtype) {
    return dtype == HIR_Q8 ? HCG_Q8_FIRST : dtype == HIR_Q4 ? HCG_Q4_FIRST : HCG_MXFP4_FIRST;
}

unsigned hcg_group_per_block(hir_dtype dtype) {
    return dtype == HIR_Q8 ? 4 : 8;
}

int64_t hcg_groups(int64_t k) {
    return (k + HIR_GROUP - 1) / HIR_GROUP;
}

int64_t hcg_panel_bytes(hir_dtype dtype, int64_t k) {
    int64_t depth = hir_panel_depth(dtype), along_k = (k + depth - 1) / depth * depth;
    if (!hir_is_quantised(dtype)) return along_k * HIR_PANEL * (int64_t)hir_dtype_bytes(dtype);
    return hcg_groups(k) * (int64_t)hcg_group_bytes(dtype);
}
