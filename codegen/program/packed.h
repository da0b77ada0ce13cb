/* The layout of quantised weights in panels, for the code that writes them and the code that reads
 * them (hir_layout in ir/ir.h; weights/quant.h defines q8, q4 and mxfp4).
 *
 * A panel holds HIR_PANEL rows, group after group along K. Elements beyond K repeat earlier ones
 * and are never used; rows beyond N are 0:
 *
 *     q8   544 bytes: s[16] in f16, then 8 blocks of 64 bytes
 *     q4   320 bytes: s[16] and m[16] in f16, then 4 blocks of 64 bytes
 *     mxfp4  272 bytes: s[16], a byte each, then 4 blocks of 64 bytes
 *
 * A block is 4 bytes for each of the 16 rows: a row's 32-bit lane holds four adjacent elements
 * along K, as dot products of bytes read them. Shifts and masks of lanes give single elements:
 *
 *     q8   byte (n, i) of block j: q + 128 of k = 4 j + i
 *     q4   byte (n, i) of block j: q of k = 8 j + i in the low half, 8 j + 4 + i in the high half;
 *          mxfp4: the same
 */
#ifndef HCG_PACKED_H
#define HCG_PACKED_H

#include "ir/ir.h"

enum {
    HCG_Q8_GROUP = 544, /* bytes of one group of one panel */
    HCG_Q4_GROUP = 320,
    HCG_MXFP4_GROUP = 272,
    HCG_MOST_GROUP = HCG_Q8_GROUP,
    HCG_Q8_FIRST = 32, /* offset of its integers */
    HCG_Q4_FIRST = 64,
    HCG_MXFP4_FIRST = 16,
};

static inline uint64_t hcg_group_bytes(hir_dtype dtype) { /* bytes of one group of one panel */
    return dtype == HIR_Q8 ? HCG_Q8_GROUP : dtype == HIR_Q4 ? HCG_Q4_GROUP : HCG_MXFP4_GROUP;
}
static inline uint64_t hcg_group_first(hir_dtype dtype) { /* offset of its integers */
    return dtype == HIR_Q8 ? HCG_Q8_FIRST : dtype == HIR_Q4 ? HCG_Q4_FIRST : HCG_MXFP4_FIRST;
}
static inline unsigned hcg_group_per_block(hir_dtype dtype) { /* elements of one row in a block */
    return dtype == HIR_Q8 ? 4 : 8;
}
static inline int64_t hcg_groups(int64_t k) { /* along a row of k elements */
    return (k + HIR_GROUP - 1) / HIR_GROUP;
}
/* Bytes of one panel whose rows have k elements, in any dtype. */
static inline int64_t hcg_panel_bytes(hir_dtype dtype, int64_t k) {
    const int64_t depth = hir_panel_depth(dtype), along_k = (k + depth - 1) / depth * depth;
    if (!hir_is_quantised(dtype)) return along_k * HIR_PANEL * (int64_t)hir_dtype_bytes(dtype);
    return hcg_groups(k) * (int64_t)hcg_group_bytes(dtype);
}

#endif
