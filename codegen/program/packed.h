/* The layout of quantised weights in panels, for the code that writes them and the code that reads
 * them (hir_layout in ir/ir.h; weights/quant.h defines q8, q4, mxfp4 and nvfp4).
 *
 * A panel holds HIR_PANEL rows, group after group along K. Elements beyond K repeat earlier ones
 * and are never used; rows beyond N are 0:
 *
 *     q8   544 bytes: s[16] in f16, then 8 blocks of 64 bytes
 *     q4   320 bytes: s[16] and m[16] in f16, then 4 blocks of 64 bytes
 *     mxfp4  272 bytes: s[16], a byte each, then 4 blocks of 64 bytes
 *     nvfp4  288 bytes: s[2][16], a byte each, for elements 0 .. 15 and 16 .. 31, then 4 blocks of
 *            64 bytes; after the last group of a panel, f[16] in f32, the factors of its rows
 *
 * A block is 4 bytes for each of the 16 rows: a row's 32-bit lane holds four adjacent elements
 * along K, as dot products of bytes read them. Shifts and masks of lanes give single elements:
 *
 *     q8   byte (n, i) of block j: q + 128 of k = 4 j + i
 *     q4   byte (n, i) of block j: q of k = 8 j + i in the low half, 8 j + 4 + i in the high half;
 *          mxfp4, nvfp4: the same
 */
#ifndef HCG_PACKED_H
#define HCG_PACKED_H

#include "ir/ir.h"

/* G(dtype, bytes, first, per_block, scales, end)
 *   bytes      of one group of one panel
 *   first      offset of its integers
 *   per_block  elements of one row in a block
 *   scales     of one row, each for as many elements
 *   end        bytes of a panel after its groups */
#define HCG_GROUPED(G)                                                                             \
    G(Q8, 544, 32, 4, 1, 0)                                                                        \
    G(Q4, 320, 64, 8, 1, 0)                                                                        \
    G(MXFP4, 272, 16, 8, 1, 0)                                                                     \
    G(NVFP4, 288, 32, 8, 2, 64)
enum {
#define G(id, bytes, first, ...) HCG_##id##_GROUP = bytes, HCG_##id##_FIRST = first,
    HCG_GROUPED(G)
#undef G
        HCG_MOST_GROUP = HCG_Q8_GROUP,
};

typedef struct hcg_grouped {
    unsigned bytes, first, per_block, scales, end;
} hcg_grouped;
static inline hcg_grouped hcg_grouped_of(hir_dtype dtype) {
    switch (dtype) {
#define G(id, ...)                                                                                 \
    case HIR_##id: return (hcg_grouped){__VA_ARGS__};
        HCG_GROUPED(G)
#undef G
    default: return (hcg_grouped){0};
    }
}

static inline uint64_t hcg_group_bytes(hir_dtype dtype) {
    return hcg_grouped_of(dtype).bytes;
}
static inline uint64_t hcg_group_first(hir_dtype dtype) {
    return hcg_grouped_of(dtype).first;
}
static inline unsigned hcg_group_per_block(hir_dtype dtype) {
    const unsigned per_block = hcg_grouped_of(dtype).per_block;
    hd_known(per_block > 0); /* for types of HCG_GROUPED alone */
    return per_block;
}
static inline unsigned hcg_group_scales(hir_dtype dtype) {
    const unsigned scales = hcg_grouped_of(dtype).scales;
    hd_known(scales > 0); /* likewise */
    return scales;
}
static inline int64_t hcg_panel_end(hir_dtype dtype) {
    return hcg_grouped_of(dtype).end;
}
static inline bool hcg_is_fp4(hir_dtype dtype) { /* are its numbers E2M1? */
    return dtype == HIR_MXFP4 || dtype == HIR_NVFP4;
}
static inline int64_t hcg_groups(int64_t k) { /* along a row of k elements */
    return (k + HIR_GROUP - 1) / HIR_GROUP;
}
/* Bytes of one panel whose rows have k elements, in any dtype. */
static inline int64_t hcg_panel_bytes(hir_dtype dtype, int64_t k) {
    const int64_t depth = hir_panel_depth(dtype), along_k = (k + depth - 1) / depth * depth;
    if (!hir_is_quantised(dtype)) return along_k * HIR_PANEL * (int64_t)hir_dtype_bytes(dtype);
    return hcg_groups(k) * (int64_t)hcg_group_bytes(dtype) + hcg_panel_end(dtype);
}

/* Scales of nvfp4: a byte u without a sign stands for (1 + u % 8 / 8) 2^(u / 8 - 18), which has all
 * positive numbers of E4M3, 2^-9 to 448. As f32 it is u in the upper bits of the significand and
 * the lower ones of the exponent, which begins at `HCG_E5M3_LEAST`. */
enum { HCG_E5M3_LEAST = 127 - 18, HCG_E5M3_ONE = 18 << 3, HCG_E5M3_SHIFT = 20 };

#endif
