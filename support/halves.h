/* Floats of 16 bits from and to f32. One by one: bf16, the upper half of an f32, here, the same for
 * compiler, runtime and transports; f16 in tensorfile.h. Several at a time: both. */
#ifndef HD_HALVES_H
#define HD_HALVES_H

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

/* The numbers that hd_f16_from_f32 and its relatives give one by one: 2 bytes an element, at
 * any address. */
void hd_f16s_to_f32(const uint8_t *x, uint64_t n, float *out);
void hd_bf16s_to_f32(const uint8_t *x, uint64_t n, float *out);
void hd_f16s_from_f32(const float *x, uint64_t n, uint16_t *out);
void hd_bf16s_from_f32(const float *x, uint64_t n, uint16_t *out);
/* A float that keeps for a later rounding what this one drops (round to odd): the nearest float
 * towards zero, its last bit set if anything was cut off. */
void hd_odd_f32s(const double *x, uint64_t n, float *out);

#endif
