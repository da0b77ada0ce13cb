/* Quantised checkpoints in memory, for tests of their readers: tensors of seeded bytes, and the
 * numbers that they are, computed from the rule of each format as it is written in
 * docs/quantised-checkpoints.md, without any code of the readers. */
#ifndef PACKED_FIXTURE_H
#define PACKED_FIXTURE_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ir/eval/random.h"
#include "support/packed.h"
#include "tests/unit/arena_fixture.h"

/* ---- the rules ----------------------------------------------------------------------------- */

static inline double e4m3(uint8_t u) {
    const int s = u / 128, e = u / 8 % 16, m = u % 8;
    if (u % 128 == 127) return NAN;
    return (s ? -1 : 1) * (e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m / 8.0, -6));
}

static inline double e2m1(unsigned n) {
    const int s = n / 8, e = n / 2 % 4, m = n % 2;
    return (s ? -1 : 1) * (e ? ldexp(1 + m / 2.0, e - 1) : m / 2.0);
}

static inline double e8m0(uint8_t b) {
    return b == 255 ? NAN : ldexp(1, b - 127);
}

static inline unsigned half_of(uint8_t byte, uint64_t which) {
    return which % 2 ? byte / 16 : byte % 16;
}

/* ---- tensors ------------------------------------------------------------------------------- */

#define SHAPE(...)                                                                                 \
    (sizeof((int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]) {                                    \
        __VA_ARGS__                                                                                \
    }

static inline int tensor_order(const void *x, const void *y) {
    return strcmp(((const hd_tensor *)x)->name, ((const hd_tensor *)y)->name);
}

/* A new tensor of zeros; its bytes. */
static inline uint8_t *put(hd_tensors *t, const char *name, hd_tensor_dtype dtype, size_t rank,
                           const int64_t *shape) {
    hd_tensor x = {.name = name, .dtype = dtype, .rank = (uint32_t)rank, .file = "x.safetensors"};
    memcpy(x.shape, shape, rank * sizeof *shape);
    cr_assert(hd_tensor_measure(&x));
    uint8_t *data = hd_alloc(arena, x.bytes + 8, 1);
    x.data = data;
    hd_push(arena, &t->list, x);
    qsort(t->list.at, t->list.n, sizeof *t->list.at, tensor_order);
    return data;
}

static inline uint8_t *put_bytes(hd_tensors *t, const char *name, hd_tensor_dtype dtype,
                                 size_t rank, const int64_t *shape) {
    uint8_t *data = put(t, name, dtype, rank, shape);
    const uint64_t n = hd_tensors_find(t, name)->bytes;
    hir_random r = hir_random_stream(7, name);
    for (uint64_t i = 0; i < n; i++)
        data[i] = (uint8_t)hir_random_next(&r);
    return data;
}

/* Codes without the two that are no numbers. */
static inline uint8_t *put_e4m3(hd_tensors *t, const char *name, size_t rank,
                                const int64_t *shape) {
    uint8_t *data = put_bytes(t, name, HD_T_F8_E4M3, rank, shape);
    for (uint64_t i = 0; i < hd_tensors_find(t, name)->bytes; i++)
        if (data[i] % 128 == 127) data[i] = 126;
    return data;
}

/* Exponents around one, and the extremes that f32 holds. */
static inline uint8_t *put_e8m0(hd_tensors *t, const char *name, hd_tensor_dtype dtype, size_t rank,
                                const int64_t *shape) {
    static const uint8_t odd[] = {0, 1, 12, 200, 230, 127, 126, 128};
    uint8_t *data = put_bytes(t, name, dtype, rank, shape);
    for (uint64_t i = 0; i < hd_tensors_find(t, name)->bytes; i++)
        data[i] = i % 3 ? (uint8_t)(110 + data[i] % 24) : odd[data[i] % 8];
    return data;
}

static inline float *put_f32(hd_tensors *t, const char *name, size_t rank, const int64_t *shape) {
    float *data = (float *)(void *)put(t, name, HD_T_F32, rank, shape);
    hir_random r = hir_random_stream(11, name);
    for (uint64_t i = 0; i < hd_tensors_find(t, name)->elements; i++)
        data[i] = (float)((double)(hir_random_next(&r) >> 40) / 0x1p24 - 0.3) * 1e-3f;
    return data;
}

static inline uint16_t *put_bf16(hd_tensors *t, const char *name, size_t rank,
                                 const int64_t *shape) {
    uint16_t *data = (uint16_t *)(void *)put(t, name, HD_T_BF16, rank, shape);
    hir_random r = hir_random_stream(13, name);
    for (uint64_t i = 0; i < hd_tensors_find(t, name)->elements; i++)
        data[i] = hd_bf16_from_f64((double)(hir_random_next(&r) >> 40) / 0x1p24 * 0.1 + 1e-4);
    return data;
}

static const hd_quantisation no_config = {0};

/* What the stored tensors are; they are in order. */
static inline hd_tensors unpacked(const hd_tensors *stored) {
    hd_tensors out;
    cr_assert(hd_unpack(arena, &diags, stored, &no_config, &out), "%s", said());
    return out;
}

static inline const hd_tensor *the(const hd_tensors *t, const char *name) {
    const hd_tensor *x = hd_tensors_find(t, name);
    cr_assert(x, "%s is not there", name);
    return x;
}

#endif
