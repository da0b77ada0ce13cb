/* f32 and bf16, its upper half: the same for compiler, runtime and transports. */
#ifndef HD_BF16_H
#define HD_BF16_H

#include <stdint.h>
#include <string.h>

/* To the nearest, ties to even; what is not a number stays so. Adding 0x7fff plus the lowest kept
 * bit carries into that bit exactly when the lower half is above one half, or is one half and the
 * kept part is odd. */
static inline uint16_t hd_bf16_from_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

static inline float hd_bf16_to_f32(uint16_t x) {
    const uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

#endif
