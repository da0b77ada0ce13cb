/* Floats of 16 bits (halves.h), converted in vectors by GCC's vector extension (narrow.h). On x86
 * each loop is compiled for AVX2 as well. */
#include "support/halves.h"

#include <string.h>

enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t words __attribute__((vector_size(4 * LANES)));
typedef int16_t halves __attribute__((vector_size(2 * LANES)));
typedef uint16_t bits __attribute__((vector_size(2 * LANES)));
typedef double wide __attribute__((vector_size(8 * LANES)));

#include "support/narrow.h"

#define INLINE static inline __attribute__((always_inline))

/* NAME_of rounds or widens a vector, in -> out. Both are passed by pointer: functions compiled for
 * different CPUs cannot pass vectors to each other by value. */
#define RUN(NAME, IN, OUT)                                                                         \
    INLINE void NAME##_run(const uint8_t *x, uint64_t n, uint8_t *out) {                           \
        enum { FROM = sizeof(IN) / LANES, TO = sizeof(OUT) / LANES };                              \
        IN in;                                                                                     \
        OUT to;                                                                                    \
        for (; n >= LANES; n -= LANES, x += sizeof in, out += sizeof to) {                         \
            memcpy(&in, x, sizeof in);                                                             \
            NAME##_of(&in, &to);                                                                   \
            memcpy(out, &to, sizeof to);                                                           \
        }                                                                                          \
        if (n == 0) return;                                                                        \
        memset(&in, 0, sizeof in);                                                                 \
        memcpy(&in, x, n *FROM);                                                                   \
        NAME##_of(&in, &to);                                                                       \
        memcpy(out, &to, n *TO);                                                                   \
    }

#if defined(__x86_64__)
#define FORMS(NAME)                                                                                \
    __attribute__((target("avx2"))) static void NAME##_avx2(const uint8_t *x, uint64_t n,          \
                                                            uint8_t *out) {                        \
        NAME##_run(x, n, out);                                                                     \
    }                                                                                              \
    static void NAME##_any(const uint8_t *x, uint64_t n, uint8_t *out) {                           \
        __builtin_cpu_supports("avx2") ? NAME##_avx2(x, n, out) : NAME##_run(x, n, out);           \
    }
#else
#define FORMS(NAME)                                                                                \
    static void NAME##_any(const uint8_t *x, uint64_t n, uint8_t *out) {                           \
        NAME##_run(x, n, out);                                                                     \
    }
#endif

/* ---- one vector ------------------------------------------------------------------------------ */
INLINE void widen_f16_of(const bits *x, lanes *out) {
    const words h = __builtin_convertvector(*x, words);
    hd_lanes_from_f16(&h, out);
}

INLINE void to_f16_of(const lanes *x, halves *out) {
    words h;
    hd_lanes_to_f16(x, &h);
    *out = __builtin_convertvector(h, halves);
}

INLINE void widen_bf16_of(const bits *x, lanes *out) {
    *out = (lanes)(__builtin_convertvector(*x, words) << 16);
}

INLINE void to_bf16_of(const lanes *x, halves *out) {
    const words b = (words)*x, none = (b & INT32_MAX) > 0x7f800000;
    const words up = (b & ~none) + (0x7fff + (b >> 16 & 1));
    *out = __builtin_convertvector(HD_CHOOSE(none, b >> 16 | 0x40, up >> 16), halves);
}

INLINE void odd_of(const wide *x, lanes *out) {
    typedef int64_t longs __attribute__((vector_size(8 * LANES)));
    const lanes f = __builtin_convertvector(*x, lanes);
    const wide back = __builtin_convertvector(f, wide);
    const wide size = (wide)((longs)*x & INT64_MAX), of_back = (wide)((longs)back & INT64_MAX);
    const words same = __builtin_convertvector(back == *x, words);
    const words above = __builtin_convertvector(of_back > size, words);
    *out = (lanes)(((words)f + above) | (~same & 1));
}

RUN(widen_f16, bits, lanes)
RUN(widen_bf16, bits, lanes)
RUN(to_f16, lanes, halves)
RUN(to_bf16, lanes, halves)
RUN(odd, wide, lanes)
FORMS(widen_f16)
FORMS(widen_bf16)
FORMS(to_f16)
FORMS(to_bf16)
FORMS(odd)

void hd_f16s_to_f32(const uint8_t *x, uint64_t n, float *out) {
    widen_f16_any(x, n, (uint8_t *)out);
}

void hd_bf16s_to_f32(const uint8_t *x, uint64_t n, float *out) {
    widen_bf16_any(x, n, (uint8_t *)out);
}

void hd_f16s_from_f32(const float *x, uint64_t n, uint16_t *out) {
    to_f16_any((const uint8_t *)x, n, (uint8_t *)out);
}

void hd_bf16s_from_f32(const float *x, uint64_t n, uint16_t *out) {
    to_bf16_any((const uint8_t *)x, n, (uint8_t *)out);
}

void hd_odd_f32s(const double *x, uint64_t n, float *out) {
    odd_any((const uint8_t *)x, n, (uint8_t *)out);
}
