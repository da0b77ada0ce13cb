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

/* A non-temporal store, where the CPU has one: `to` is a multiple of 16 bytes. Other threads see it after
 * hrt_end_streams. */
static inline void hrt_stream(float *to, hrt_lanes x) {
#if defined(__x86_64__)
    _mm_stream_ps(to, (__m128)x);
#else
    hrt_put(to, x);
#endif
}

static inline void hrt_end_streams(void) {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* x[i][k] and x[k][i] change places. */
static inline void hrt_transpose(hrt_lanes x[HRT_LANES]) {
#if defined(__x86_64__)
    const __m128 low[] = {_mm_unpacklo_ps((__m128)x[0], (__m128)x[1]),
                          _mm_unpacklo_ps((__m128)x[2], (__m128)x[3])};
    const __m128 high[] = {_mm_unpackhi_ps((__m128)x[0], (__m128)x[1]),
                           _mm_unpackhi_ps((__m128)x[2], (__m128)x[3])};
    x[0] = (hrt_lanes)_mm_movelh_ps(low[0], low[1]);
    x[1] = (hrt_lanes)_mm_movehl_ps(low[1], low[0]);
    x[2] = (hrt_lanes)_mm_movelh_ps(high[0], high[1]);
    x[3] = (hrt_lanes)_mm_movehl_ps(high[1], high[0]);
#else
    const float64x2_t even[] = {
        vreinterpretq_f64_f32(vtrn1q_f32((float32x4_t)x[0], (float32x4_t)x[1])),
        vreinterpretq_f64_f32(vtrn1q_f32((float32x4_t)x[2], (float32x4_t)x[3]))};
    const float64x2_t odd[] = {
        vreinterpretq_f64_f32(vtrn2q_f32((float32x4_t)x[0], (float32x4_t)x[1])),
        vreinterpretq_f64_f32(vtrn2q_f32((float32x4_t)x[2], (float32x4_t)x[3]))};
    x[0] = (hrt_lanes)vtrn1q_f64(even[0], even[1]);
    x[1] = (hrt_lanes)vtrn1q_f64(odd[0], odd[1]);
    x[2] = (hrt_lanes)vtrn2q_f64(even[0], even[1]);
    x[3] = (hrt_lanes)vtrn2q_f64(odd[0], odd[1]);
#endif
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
