/* Rounding of weights to groups (quant.h), and their places in a panel. */
#include "codegen/weights/quant.h"

#include <math.h>
#include <string.h>

#include "support/packed.h"

enum { LANES = 8 }; /* partial sums of each sum, so that the compiler vectorises the loops */

static float as_f16(float x) {
    return hd_f16_to_f32(hd_f16_from_f32(x));
}

static void range_of(const float *x, float *least, float *most) {
    *least = *most = x[0];
    for (int i = 1; i < HIR_GROUP; i++) {
        *least = x[i] < *least ? x[i] : *least;
        *most = x[i] > *most ? x[i] : *most;
    }
}

/* ---- q8 ---------------------------------------------------------------------------------------
 */
static bool quantise_q8(const float *x, hcg_group *g) {
    float least, most;
    range_of(x, &least, &most);
    if (-least > most) most = -least;
    float s = as_f16(most / 127), inverse = s > 0 ? 1 / s : 0;
    if (!isfinite(s)) return false;
    g->scale = hd_f16_from_f32(s), g->least = 0;
    for (int i = 0; i < HIR_GROUP; i++) {
        float q = rintf(x[i] * inverse);
        q = q > 127 ? 127 : q < -127 ? -127 : q;
        g->q[i] = (uint8_t)(128 + (int)q);
    }
    return true;
}

/* ---- q4 ---------------------------------------------------------------------------------------
 *
 * Compiled twice: vectors of eight where the CPU has them halve the time. There is no fused
 * multiply-add in either, and sums have the same LANES parts: the results are the same. */
#define EACH_CPU static inline __attribute__((always_inline))

typedef float lanes __attribute__((vector_size(LANES * 4)));
typedef int32_t masks __attribute__((vector_size(LANES * 4)));

typedef struct trial {
    float s, m; /* values of f16 */
    float q[HIR_GROUP];
    float error; /* sum of squares */
} trial;

EACH_CPU float sum(const lanes *all) {
    float part[LANES];
    memcpy(part, all, sizeof part);
    return ((part[0] + part[4]) + (part[2] + part[6])) +
           ((part[1] + part[5]) + (part[3] + part[7]));
}

/* Vectors by name: comparisons of floats keep compilers from making them out of a loop. A choice is
 * made with the bits of what a comparison gives, 0 or all ones; NaN becomes 0. */
EACH_CPU void try_line(const float *x, float s, float m, trial *t) {
    t->s = as_f16(s), t->m = as_f16(m);
    const lanes zero = {0}, most = zero + 15, magic = zero + 0x1.8p23f;
    const float inverse = t->s > 0 ? 1 / t->s : 0;
    lanes errors = zero;
    for (int i = 0; i < HIR_GROUP; i += LANES) {
        lanes at, q;
        memcpy(&at, x + i, sizeof at);
        q = (at - t->m) * inverse;
        q = (lanes)((masks)q & (q > zero));
        const masks low = q < most;
        q = (lanes)(((masks)q & low) | ((masks)most & ~low));
        q = (q + magic) - magic; /* to nearest, ties to even */
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

static bool quantise_q4_plain(const float *x, hcg_group *g) {
    return quantise_q4_here(x, g);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static bool quantise_q4_avx2(const float *x, hcg_group *g) {
    return quantise_q4_here(x, g);
}

static bool quantise_q4(const float *x, hcg_group *g) {
    return __builtin_cpu_supports("avx2") ? quantise_q4_avx2(x, g) : quantise_q4_plain(x, g);
}
#else
static bool quantise_q4(const float *x, hcg_group *g) {
    return quantise_q4_plain(x, g);
}
#endif

/* ---- mxfp4 -------------------------------------------------------------------------------------
 */
/* The nearest code, ties to the even one; y in units of the scale. Beyond 6 is 6. */
static uint8_t nearest_e2m1(float y) {
    static const float middles[] = {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};
    const float size = fabsf(y);
    uint8_t code = 0;
    while (code < 7 && (size > middles[code] || (size == middles[code] && code % 2)))
        code++;
    return (uint8_t)(code | (signbit(y) ? 8 : 0));
}

static double round_to(const float *x, int exponent, hcg_group *g) {
    double error = 0;
    const double s = ldexp(1, exponent);
    *g = (hcg_group){.scale = (uint16_t)(exponent + 127)};
    for (int i = 0; i < HIR_GROUP; i++) {
        g->q[i] = nearest_e2m1((float)((double)x[i] / s));
        const double d = (double)hd_from_e2m1(g->q[i]) * s - (double)x[i];
        error += d * d;
    }
    return error;
}

/* What is exact with some scale is exact with the first that is tried: numbers that are at most 3
 * in units of a scale are codes in units of half of it. A group of zeros has the scale 1. */
static bool quantise_mxfp4(const float *x, hcg_group *g) {
    float least, most;
    range_of(x, &least, &most);
    if (-least > most) most = -least;
    hcg_group next;
    int exponent = most > 0 ? ilogbf(most) - 2 : 0;
    if (exponent < -127) exponent = -127;
    const double error = round_to(x, exponent, g);
    if (error > 0 && exponent < 127 && round_to(x, exponent + 1, &next) < error) *g = next;
    return true;
}

/* ---- groups -----------------------------------------------------------------------------------
 */

bool hcg_quantise(hir_dtype dtype, const float x[HIR_GROUP], hcg_group *out) {
    for (int i = 0; i < HIR_GROUP; i++)
        if (!isfinite(x[i])) return false;
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
    for (unsigned k = 0; k < HIR_GROUP; k++) {
        unsigned shift;
        uint8_t *at = out + place_of(dtype, row, k, &shift);
        *at = (uint8_t)(*at | g->q[k] << shift);
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
