/* Rounding of weights to groups (quant.h), and their places in a panel. */
#include "codegen/weights/quant.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "support/packed.h"

enum { LANES = 8 }; /* partial sums of each sum, so that the compiler vectorises the loops */

/* What takes time is compiled twice: vectors of eight where the CPU has them halve it. There is no
 * fused multiply-add in either, and sums have the same LANES parts: the results are the same. */
#define EACH_CPU static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(LANES * 4)));
typedef int32_t masks __attribute__((vector_size(LANES * 4)));

/* Macros, since functions do not give vectors that the CPU may not have. */
#define CHOOSE(which, yes, no) ((lanes)(((which) & (masks)(yes)) | (~(which) & (masks)(no))))
/* to nearest, ties to even, of numbers below 2^22 */
#define NEAREST(x) (((x) + 0x1.8p23f) - 0x1.8p23f)

EACH_CPU float sum(const lanes *all) {
    float part[LANES];
    memcpy(part, all, sizeof part);
    return ((part[0] + part[4]) + (part[2] + part[6])) +
           ((part[1] + part[5]) + (part[3] + part[7]));
}

/* Whole numbers that are small enough for the bytes of a group. */
EACH_CPU void put_bytes(const masks *from, uint8_t *to) {
    int32_t each[LANES];
    memcpy(each, from, sizeof each);
    for (int i = 0; i < LANES; i++)
        to[i] = (uint8_t)each[i];
}

/* `name` for the CPU that it runs on. */
#if defined(__x86_64__)
#define FOR_THIS_CPU(name)                                                                         \
    static bool name##_plain(const float *x, hcg_group *g) {                                       \
        return name##_here(x, g);                                                                  \
    }                                                                                              \
    __attribute__((target("avx2"))) static bool name##_avx2(const float *x, hcg_group *g) {        \
        return name##_here(x, g);                                                                  \
    }                                                                                              \
    static bool name(const float *x, hcg_group *g) {                                               \
        return __builtin_cpu_supports("avx2") ? name##_avx2(x, g) : name##_plain(x, g);            \
    }
#else
#define FOR_THIS_CPU(name)                                                                         \
    static bool name(const float *x, hcg_group *g) {                                               \
        return name##_here(x, g);                                                                  \
    }
#endif

static float as_f16(float x) {
    return hd_f16_to_f32(hd_f16_from_f32(x));
}

EACH_CPU void range_of(const float *x, float *least, float *most) {
    lanes low, high, at;
    memcpy(&low, x, sizeof low);
    high = low;
    for (int i = LANES; i < HIR_GROUP; i += LANES) {
        memcpy(&at, x + i, sizeof at);
        low = CHOOSE(at < low, at, low);
        high = CHOOSE(at > high, at, high);
    }
    *least = low[0], *most = high[0];
    for (int i = 1; i < LANES; i++) {
        *least = low[i] < *least ? low[i] : *least;
        *most = high[i] > *most ? high[i] : *most;
    }
}

/* ---- q8 ---------------------------------------------------------------------------------------
 */
EACH_CPU bool quantise_q8_here(const float *x, hcg_group *g) {
    float least, top;
    range_of(x, &least, &top);
    if (-least > top) top = -least;
    const float s = as_f16(top / 127), inverse = s > 0 ? 1 / s : 0;
    if (!isfinite(s)) return false;
    g->scale = hd_f16_from_f32(s), g->least = 0;
    const lanes most = (lanes){0} + 127;
    for (int i = 0; i < HIR_GROUP; i += LANES) {
        lanes q;
        memcpy(&q, x + i, sizeof q);
        q = NEAREST(q * inverse);
        q = CHOOSE(q > most, most, q);
        q = CHOOSE(q < -most, -most, q);
        const masks bytes = __builtin_convertvector(q + 128, masks);
        put_bytes(&bytes, g->q + i);
    }
    return true;
}

FOR_THIS_CPU(quantise_q8)

/* ---- q4 ---------------------------------------------------------------------------------------
 */
typedef struct trial {
    float s, m; /* values of f16 */
    float q[HIR_GROUP];
    float error; /* sum of squares */
} trial;

/* Vectors by name: comparisons of floats keep compilers from making them out of a loop. A choice is
 * made with the bits of what a comparison gives, 0 or all ones; NaN becomes 0. */
EACH_CPU void try_line(const float *x, float s, float m, trial *t) {
    t->s = as_f16(s), t->m = as_f16(m);
    const lanes zero = {0}, most = zero + 15;
    const float inverse = t->s > 0 ? 1 / t->s : 0;
    lanes errors = zero;
    for (int i = 0; i < HIR_GROUP; i += LANES) {
        lanes at, q;
        memcpy(&at, x + i, sizeof at);
        q = (at - t->m) * inverse;
        q = (lanes)((masks)q & (q > zero));
        q = NEAREST(CHOOSE(q < most, q, most));
        const lanes d = t->s * q + t->m - at;
        memcpy(t->q + i, &q, sizeof q);
        errors += d * d;
    }
    t->error = sum(&errors);
}

/* The line s q + m of least squares through the points (q, x); sx: the sum of x. */
EACH_CPU bool fit_line(const float *x, const float *q, float sx, float *s, float *m) {
    const lanes zero = {0};
    lanes q1 = zero, q2 = zero, qx = zero;
    for (int i = 0; i < HIR_GROUP; i += LANES) {
        lanes at, to;
        memcpy(&at, x + i, sizeof at);
        memcpy(&to, q + i, sizeof to);
        q1 += to, q2 += to * to, qx += to * at;
    }
    const float n = HIR_GROUP, sq = sum(&q1), spread = n * sum(&q2) - sq * sq;
    if (!(spread > 0)) return false; /* all q are one number */
    *s = (n * sum(&qx) - sq * sx) / spread;
    *m = (sx - *s * sq) / n;
    return *s > 0;
}

EACH_CPU float sum_of(const float *x) {
    lanes all = {0}, at;
    for (int i = 0; i < HIR_GROUP; i += LANES) {
        memcpy(&at, x + i, sizeof at);
        all += at;
    }
    return sum(&all);
}

EACH_CPU void try_range(const float *x, float sx, float least, float width, trial *best) {
    enum { ROUNDS = 3 };
    float s = width / 15, m = least;
    for (int round = 0; round < ROUNDS; round++) {
        trial t;
        try_line(x, s, m, &t);
        if (t.error < best->error) *best = t;
        if (round + 1 == ROUNDS || !fit_line(x, t.q, sx, &s, &m)) return;
    }
}

EACH_CPU bool quantise_q4_here(const float *x, hcg_group *g) {
    float least, most, sx = sum_of(x);
    trial best = {.error = INFINITY};
    range_of(x, &least, &most);
    float width = most - least;
    if (!isfinite(as_f16(width / 15)) || !isfinite(as_f16(least))) return false;
    try_range(x, sx, least, width, &best);
    try_range(x, sx, least + width / 20, width * 0.9f, &best);
    if (!isfinite(best.error)) return false;
    g->scale = hd_f16_from_f32(best.s), g->least = hd_f16_from_f32(best.m);
    for (int i = 0; i < HIR_GROUP; i++)
        g->q[i] = (uint8_t)best.q[i];
    return true;
}

FOR_THIS_CPU(quantise_q4)

/* ---- mxfp4 -------------------------------------------------------------------------------------
 */
/* One step up the numbers of E2M1: sizes above `middle`, and those at it if `with` is set, which
 * makes ties go to the even code. */
EACH_CPU void step_up(const lanes *size, float middle, bool with, float by, masks *code,
                      lanes *value) {
    const masks up = with ? *size >= middle : *size > middle;
    *code -= up;
    *value += (lanes)(up & (masks)((lanes){0} + by));
}

/* The nearest codes of x / 2^exponent, beyond 6 that of 6. Gives the sum of squared errors, in
 * units. */
EACH_CPU float round_to(const float *x, int exponent, hcg_group *g) {
    const float inverse = ldexpf(1, -exponent);
    const masks sign = (masks){0} + INT32_MIN;
    lanes errors = {0};
    g->scale = (uint16_t)(exponent + 127), g->least = 0;
    for (int i = 0; i < HIR_GROUP; i += LANES) {
        lanes y, value = {0};
        masks code = {0};
        memcpy(&y, x + i, sizeof y);
        y *= inverse;
        const lanes size = (lanes)((masks)y & ~sign);
        step_up(&size, .25f, false, .5f, &code, &value);
        step_up(&size, .75f, true, .5f, &code, &value);
        step_up(&size, 1.25f, false, .5f, &code, &value);
        step_up(&size, 1.75f, true, .5f, &code, &value);
        step_up(&size, 2.5f, false, 1, &code, &value);
        step_up(&size, 3.5f, true, 1, &code, &value);
        step_up(&size, 5, false, 2, &code, &value);
        const lanes d = size - value;
        errors += d * d;
        code |= ((masks)y < 0) & 8;
        put_bytes(&code, g->q + i);
    }
    return sum(&errors);
}

/* What is exact with some scale is exact with the first that is tried: numbers that are at most 3
 * in units of a scale are codes in units of half of it. A group of zeros has the scale 1. */
EACH_CPU bool quantise_mxfp4_here(const float *x, hcg_group *g) {
    float least, most;
    range_of(x, &least, &most);
    if (-least > most) most = -least;
    hcg_group next;
    int exponent = most > 0 ? ilogbf(most) - 2 : 0;
    if (exponent < -127) exponent = -127;
    const float error = round_to(x, exponent, g);
    /* units of the next are twice as large */
    if (error > 0 && exponent < 127 && 4 * round_to(x, exponent + 1, &next) < error) *g = next;
    return true;
}

FOR_THIS_CPU(quantise_mxfp4)

/* ---- groups -----------------------------------------------------------------------------------
 */

bool hcg_quantise(hir_dtype dtype, const float x[HIR_GROUP], hcg_group *out) {
    bool finite = true; /* a loop without a way out of it, which compilers turn into vectors */
    for (int i = 0; i < HIR_GROUP; i++)
        finite &= fabsf(x[i]) <= FLT_MAX;
    if (!finite) return false;
    if (dtype == HIR_MXFP4) return quantise_mxfp4(x, out);
    return dtype == HIR_Q8 ? quantise_q8(x, out) : quantise_q4(x, out);
}

bool hcg_quantise_row(hir_dtype dtype, const float *x, uint64_t k, hcg_group *out) {
    uint64_t first = 0, rest = k % HIR_GROUP;
    for (; first + HIR_GROUP <= k; first += HIR_GROUP)
        if (!hcg_quantise(dtype, x + first, out++)) return false;
    float part[HIR_GROUP];
    for (uint64_t i = 0; rest > 0 && i < HIR_GROUP; i++)
        part[i] = x[first + i % rest];
    return rest == 0 || hcg_quantise(dtype, part, out);
}

double hcg_group_at(hir_dtype dtype, const hcg_group *g, unsigned k) {
    if (dtype == HIR_MXFP4)
        return (double)hd_from_e2m1(g->q[k]) * (double)hd_from_e8m0((uint8_t)g->scale);
    double s = (double)hd_f16_to_f32(g->scale), m = (double)hd_f16_to_f32(g->least);
    return dtype == HIR_Q8 ? s * (g->q[k] - 128) : s * g->q[k] + m;
}

uint64_t hcg_group_bytes(hir_dtype dtype) {
    return dtype == HIR_Q8 ? HCG_Q8_GROUP : dtype == HIR_Q4 ? HCG_Q4_GROUP : HCG_MXFP4_GROUP;
}

uint64_t hcg_group_first(hir_dtype dtype) {
    return dtype == HIR_Q8 ? HCG_Q8_FIRST : dtype == HIR_Q4 ? HCG_Q4_FIRST : HCG_MXFP4_FIRST;
}

unsigned hcg_group_per_block(hir_dtype dtype) {
    return dtype == HIR_Q8 ? 4 : 8;
}

/* Byte and shift of element k of a row in the integers of a panel's group. */
static size_t place_of(hir_dtype dtype, unsigned row, unsigned k, unsigned *shift) {
    unsigned per_block = hcg_group_per_block(dtype);
    *shift = per_block == 8 && k % 8 >= 4 ? 4 : 0;
    return hcg_group_first(dtype) + (k / per_block) * 64 + row * 4 + k % 4;
}

void hcg_put_group(hir_dtype dtype, const hcg_group *g, unsigned row, uint8_t *out) {
    if (dtype == HIR_MXFP4)
        out[row] = (uint8_t)g->scale;
    else
        memcpy(out + 2 * row, &g->scale, 2);
    if (dtype == HIR_Q4) memcpy(out + 2 * (HIR_PANEL + row), &g->least, 2);
    const unsigned per_block = hcg_group_per_block(dtype);
    for (unsigned k = 0; k < HIR_GROUP; k += per_block) { /* four bytes at a time, side by side */
        unsigned shift;
        uint32_t low, high = 0;
        memcpy(&low, g->q + k, sizeof low);
        if (per_block == 8) memcpy(&high, g->q + k + 4, sizeof high);
        low |= high << 4; /* halves of bytes: nothing leaves its byte */
        memcpy(out + place_of(dtype, row, k, &shift), &low, sizeof low);
    }
}

void hcg_get_group(hir_dtype dtype, const uint8_t *panel_group, unsigned row, hcg_group *out) {
    out->scale = panel_group[row];
    if (dtype != HIR_MXFP4) memcpy(&out->scale, panel_group + 2 * row, 2);
    out->least = 0;
    if (dtype == HIR_Q4) memcpy(&out->least, panel_group + 2 * (HIR_PANEL + row), 2);
    for (unsigned k = 0; k < HIR_GROUP; k++) {
        unsigned shift;
        size_t at = place_of(dtype, row, k, &shift);
        out->q[k] = dtype == HIR_Q8 ? panel_group[at] : panel_group[at] >> shift & 15;
    }
}
