/* Conversion of 16-bit floats from and to f32. Single numbers: bf16, the upper half of an f32, is
 * converted here, the same for compiler, runtime and transports; f16 in tensorfile.h. Arrays: both
 * are converted here. */
#ifndef HD_HALVES_H
#define HD_HALVES_H

#include <stdint.h>
#include <string.h>

/* Rounds to nearest, ties to even; a NaN stays a NaN. Adding 0x7fff plus the lowest kept bit
 * carries into that bit exactly when the lower half is above one half, or is one half and the kept
 * part is odd. */
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

/* The same results as hd_f16_from_f32 and its relatives give for single numbers. 16-bit elements
 * take 2 bytes each and may be at any address. */
void hd_f16s_to_f32(const uint8_t *x, uint64_t n, float *out);
void hd_bf16s_to_f32(const uint8_t *x, uint64_t n, float *out);
void hd_f16s_from_f32(const float *x, uint64_t n, uint16_t *out);
void hd_bf16s_from_f32(const float *x, uint64_t n, uint16_t *out);
/* Rounds to odd, so that a later rounding to fewer bits is correct: the nearest float towards zero,
 * with its last bit set if anything was cut off. */
void hd_odd_f32s(const double *x, uint64_t n, float *out);

#endif
