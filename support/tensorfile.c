/* Tensors in memory as the file formats hold them: sizes, look-up by name, and conversion of their
 * elements. Every widening is exact; every narrowing rounds once, to nearest even. */
#include "support/halves.h"
#include "support/packed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
#define T(id, name, bits, npy) {name, bits},
    HD_TENSOR_DTYPES(T)
#undef T
};

const char *hd_tensor_dtype_name(hd_tensor_dtype t) {
    return dtypes[t].name;
}

unsigned hd_tensor_dtype_bits(hd_tensor_dtype t) {
    return dtypes[t].bits;
}

bool hd_tensor_measure(hd_tensor *t) {
    uint64_t elements = 1;
    bool zero = false, overflow = false;
    for (uint32_t i = 0; i < t->rank; i++) {
        if (t->shape[i] < 0) return false;
        zero |= t->shape[i] == 0;
        overflow |= hd_mul_overflow(elements, (uint64_t)t->shape[i], &elements);
    }
    if (zero) elements = 0;
    t->elements = elements;
    if ((overflow && !zero) || elements > INT64_MAX / 8) return false;
    t->bytes = elements * (dtypes[t->dtype].bits / 8);
    return true;
}

hd_tensor hd_tensor_at(const hd_tensor *t, int64_t i) {
    hd_tensor at = *t;
    at.rank--;
    memmove(at.shape, at.shape + 1, at.rank * sizeof *at.shape);
    hd_tensor_measure(&at);
    if (t->packed)
        at.packed_first += (uint64_t)i * at.elements;
    else
        at.data += (uint64_t)i * at.bytes;
    return at;
}

void hd_tensor_print_type(hd_text *out, const hd_tensor *t) {
    hd_text_f(out, "%s [", t->packed ? hd_packing_name(t->packed->packing) : dtypes[t->dtype].name);
    for (uint32_t i = 0; i < t->rank; i++)
        hd_text_f(out, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    hd_text_add(out, "]");
}

const hd_tensor *hd_tensors_find(const hd_tensors *t, const char *name) {
    size_t low = 0, high = t->list.n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(name, t->list.at[mid].name);
        if (order == 0) return &t->list.at[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

/* ---- 16-bit floats ------------------------------------------------------------------------- */

static uint32_t bits_of(float x) {
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float float_of(uint32_t b) {
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* The same as hd_odd_f32s, for one number. */
static float odd_float(double x) {
    float f = (float)x;
    if (isnan(x) || (double)f == x) return f;
    uint32_t b = bits_of(f);
    if (fabs((double)f) > fabs(x)) b--; /* magnitude bits count up with the magnitude */
    return float_of(b | 1);
}

uint16_t hd_bf16_from_f64(double x) {
    return hd_bf16_from_f32(odd_float(x));
}

float hd_f16_to_f32(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 1023;
    if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float f = (float)fraction * 0x1p-24f; /* subnormal: exact */
    return sign ? -f : f;
}

/* Adding half a unit of the last kept bit, less one if that bit is even, carries as rounding to
 * nearest even does. Below the smallest normal number a unit is 2^-24, the same as that of a float
 * in [1/2, 1): so adding 1/2 does the rounding. */
uint16_t hd_f16_from_f32(float x) {
    const uint32_t b = bits_of(x), a = b & 0x7fffffff;
    const uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    if (a > 0x7f800000) return sign | 0x7e00;
    if (a >= 0x477ff000) return sign | 0x7c00; /* 65520: half way beyond the largest */
    if (a < 0x38800000) return (uint16_t)(sign + (bits_of(float_of(a) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign + ((a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13));
}

uint16_t hd_f16_from_f64(double x) {
    return hd_f16_from_f32(odd_float(x));
}

/* ---- elements ------------------------------------------------------------------------------ */

#define LOAD(type, at, i)                                                                          \
    ({                                                                                             \
        type loaded_;                                                                              \
        memcpy(&loaded_, (at) + (i) * sizeof(type), sizeof loaded_);                               \
        loaded_;                                                                                   \
    })

bool hd_tensor_is_number(const hd_tensor *t) {
    const int64_t limit = INT64_C(1) << 53;
    if (t->dtype == HD_T_F8_E4M3 || t->dtype == HD_T_F8_E5M2 || t->dtype == HD_T_F8_E8M0)
        return false;
    if (t->dtype != HD_T_I64 && t->dtype != HD_T_U64) return true;
    for (uint64_t i = 0; i < t->elements; i++) {
        int64_t v = LOAD(int64_t, t->data, i);
        if (v > limit || v < (t->dtype == HD_T_I64 ? -limit : 0)) return false;
    }
    return true;
}

double hd_tensor_get(const hd_tensor *t, uint64_t i) {
    const uint8_t *at = t->data;
    if (t->packed) {
        double x;
        hd_packed_to_f64(t, i, 1, &x);
        return x;
    }
    switch (t->dtype) {
    case HD_T_BOOL: return at[i] != 0;
    case HD_T_U8: return at[i];
    case HD_T_I8: return (int8_t)at[i];
    case HD_T_I16: return LOAD(int16_t, at, i);
    case HD_T_U16: return LOAD(uint16_t, at, i);
    case HD_T_I32: return LOAD(int32_t, at, i);
    case HD_T_U32: return LOAD(uint32_t, at, i);
    case HD_T_I64: return (double)LOAD(int64_t, at, i);
    case HD_T_U64: return (double)LOAD(uint64_t, at, i);
    case HD_T_F16: return hd_f16_to_f32(LOAD(uint16_t, at, i));
    case HD_T_BF16: return hd_bf16_to_f32(LOAD(uint16_t, at, i));
    case HD_T_F32: return LOAD(float, at, i);
    case HD_T_F64: return LOAD(double, at, i);
    case HD_T_F8_E4M3:
    case HD_T_F8_E5M2:
    case HD_T_F8_E8M0:
    case HD_T_COUNT: break;
    }
    return NAN;
}

void hd_tensor_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out) {
    const uint8_t *at = t->data;
    if (t->packed) {
        hd_packed_to_f32(t, first, n, out);
        return;
    }
    switch (t->dtype) {
    case HD_T_F32:
        if (n) memcpy(out, at + first * 4, n * 4);
        break;
    case HD_T_BF16: hd_bf16s_to_f32(at + first * 2, n, out); break;
    case HD_T_F16: hd_f16s_to_f32(at + first * 2, n, out); break;
    default:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)hd_tensor_get(t, first + i);
    }
}

void hd_tensor_to_f64(const hd_tensor *t, uint64_t first, uint64_t n, double *out) {
    if (t->packed) {
        hd_packed_to_f64(t, first, n, out);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        out[i] = hd_tensor_get(t, first + i);
}
