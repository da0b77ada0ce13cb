/* Runs of floats of 16 bits from and to f32: the numbers that hd_f16_from_f32 and its relatives
 * give one by one (bf16.h, tensorfile.h), several at a time. */
#ifndef HD_HALVES_H
#define HD_HALVES_H

#include <stdint.h>

/* 2 bytes an element, at any address. */
void hd_f16s_to_f32(const uint8_t *x, uint64_t n, float *out);
void hd_bf16s_to_f32(const uint8_t *x, uint64_t n, float *out);
void hd_f16s_from_f32(const float *x, uint64_t n, uint16_t *out);
void hd_bf16s_from_f32(const float *x, uint64_t n, uint16_t *out);
/* A float that keeps for a later rounding what this one drops (round to odd): the nearest float
 * towards zero, its last bit set if anything was cut off. */
void hd_odd_f32s(const double *x, uint64_t n, float *out);

#endif
