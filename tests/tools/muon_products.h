/* The kernel of products of a step of Muon, in plain C, for trainers that are made by hand. */
#ifndef TEST_TOOLS_MUON_PRODUCTS_H
#define TEST_TOOLS_MUON_PRODUCTS_H

#include "runtime/hadal_rt.h"

/* y[n, k] = sum_t a[t, n] b[t, k], of a step of Muon; a has as many columns as are asked for. */
static inline void muon_products(const hrt_frame *f, void *const *args, int64_t r0, int64_t r1,
                                 int64_t c0, int64_t c1) {
    const float *a = args[0], *b = args[1];
    float *y = args[2];
    const int64_t columns = (int64_t)(uintptr_t)args[3];
    (void)f;
    for (int64_t n = c0; n < c1; n++)
        for (int64_t k = 0; k < columns; k++) {
            y[n * columns + k] = 0;
            for (int64_t t = r0; t < r1; t++)
                y[n * columns + k] += a[t * c1 + n] * b[t * columns + k];
        }
}

#endif
