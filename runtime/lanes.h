/* Four floats at a time, on every CPU of the architecture. */
#ifndef HRT_LANES_H
#define HRT_LANES_H

#include <stddef.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { HRT_LANES = 4 };
typedef float hrt_lanes __attribute__((vector_size(HRT_LANES * sizeof(float))));

static inline hrt_lanes hrt_get(const float *from) { /* of any alignment */
    hrt_lanes x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void hrt_put(float *to, hrt_lanes x) {
    memcpy(to, &x, sizeof x);
}

/* Square roots without the C library, which generated libraries are not linked with. */
static inline hrt_lanes hrt_root(hrt_lanes x) {
#if defined(__x86_64__)
    return (hrt_lanes)_mm_sqrt_ps((__m128)x);
#else
    return (hrt_lanes)vsqrtq_f32((float32x4_t)x);
#endif
}

static inline double hrt_root_of(double x) {
#if defined(__x86_64__)
    return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(x)));
#else
    return vget_lane_f64(vsqrt_f64(vdup_n_f64(x)), 0);
#endif
}

#endif
