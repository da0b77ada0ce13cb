/* Four rows of four units of 4 bytes, transposed in registers of 16 bytes. */
#ifndef HCG_LANES_TRANSPOSE_H
#define HCG_LANES_TRANSPOSE_H

#include <stdint.h>

typedef uint32_t hcg_quad __attribute__((vector_size(16)));

static inline void hcg_transpose(hcg_quad r[4]) {
    const hcg_quad a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const hcg_quad b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const hcg_quad c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const hcg_quad d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

#endif
