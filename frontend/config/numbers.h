/* Whole numbers that published programs draw or look for when they make a model, and that configs
 * do not state. */
#ifndef HFE_NUMBERS_H
#define HFE_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* out = numpy.random.default_rng(seed).integers(0, below, n, dtype=int64); below >= 1 */
void hfe_draw_integers(uint64_t seed, int64_t below, size_t n, int64_t *out);

/* The least prime greater than n, 0 <= n < 2^62. */
int64_t hfe_prime_after(int64_t n);

#endif
