/* Seeded random numbers that are the same on every machine: integer arithmetic and exact scaling
 * only, no libm. Streams are named, so that what one consumer draws does not depend on what others
 * draw.
 */
#ifndef HIR_RANDOM_H
#define HIR_RANDOM_H

#include <stdint.h>

typedef struct hir_random {
    uint64_t s[4]; /* xoshiro256** */
} hir_random;

hir_random hir_random_stream(uint64_t seed, const char *name);
uint64_t hir_random_next(hir_random *r);
/* Spreads any 64 bits over all bits: different x give different results. */
uint64_t hir_random_mix(uint64_t x);
/* Mean 0, variance 1, within 4.9: the scaled sum of eight 16-bit uniforms. */
double hir_random_normal(hir_random *r);
/* Uniform in [0, n); n at least 1. */
uint64_t hir_random_below(hir_random *r, uint64_t n);

#endif
