/* Rounding LANES groups at a time, a group in each lane of a vector: the sums and choices of a
 * group are those of its own lane, in one order, whatever the vector's width. The files beside this
 * one include it for a CPU each; all of them are compiled without fused multiply-adds and give the
 * same bytes (tests/unit/test_quant.c).
 *
 * A lane is a row of a panel, and four elements of a row are a 32-bit word of the panel (quant.h):
 * what is stored is whole vectors. */
#include <math.h>
#include <string.h>

#include "codegen/weights/lanes/forms.h"
#include "codegen/weights/lanes/transpose.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t words __attribute__((vector_size(4 * LANES)));

#define ALL(x)                 ((lanes){0} + (x))
#define CHOOSE(which, yes, no) ((lanes)(((which) & (words)(yes)) | (~(which) & (words)(no))))
/* LESS: a < b ? a : b, MORE: a > b ? a : b; b where one of them is no number. NEAREST: the whole
 * number next to one below 2^22, ties to even. Compilers do not make one instruction of them. */
#if defined(__x86_64__) && LANES == 16
#define LESS(a, b) ((lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MORE(a, b) ((lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define NEAREST(x) ((lanes)_mm512_roundscale_ps((__m512)(x), 0))
#elif defined(__x86_64__) && LANES == 8
#define LESS(a, b) ((lanes)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MORE(a, b) ((lanes)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define NEAREST(x) ((lanes)_mm256_round_ps((__m256)(x), _MM_FROUND_TO_NEAREST_INT))
#elif defined(__x86_64__)
#define LESS(a, b) ((lanes)_mm_min_ps((__m128)(a), (__m128)(b)))
#define MORE(a, b) ((lanes)_mm_max_ps((__m128)(a), (__m128)(b)))
#else
#define LESS(a, b) CHOOSE((a) < (b), a, b)
#define MORE(a, b) CHOOSE((a) > (b), a, b)
#endif
#ifndef NEAREST
#define NEAREST(x) (((x) + 0x1.8p23f) - 0x1.8p23f)
#endif

static inline bool any(words which) {
    int32_t all = 0;
    for (int i = 0; i < LANES; i++)
        all |= which[i];
    return all != 0;
}

static inline lanes size_of(lanes x) {
    return (lanes)((words)x & INT32_MAX);
}

/* ---- f16, as hd_f16_from_f32 and hd_f16_to_f32 have it ------------------------------------------
 */
static inline words to_f16(lanes x) {
    const words sign = (words)x >> 16 & 0x8000, a = (words)x & INT32_MAX;
    const words small = (words)((lanes)a + .5f) - 0x3f000000;
    words h = (a + 0xfff + (a >> 13 & 1) - 0x38000000) >> 13;
    h = (words)CHOOSE(a < 0x38800000, small, h);
    h = (words)CHOOSE(a >= 0x477ff000, (words){0} + 0x7c00, h);
    return h | sign;
}

static inline lanes from_f16(words h) {
    const words exponent = h & 0x7c00, fraction = h & 0x3ff;
    const lanes small = __builtin_convertvector(fraction, lanes) * 0x1p-24f;
    words x = ((h & 0x7fff) << 13) + (112 << 23);
    x = (words)CHOOSE(exponent == 0, small, x);
    x = (words)CHOOSE(exponent == 0x7c00, (words){0} + 0x7f800000, x);
    return (lanes)(x | (h & 0x8000) << 16);
}

static inline words is_infinite(words h) {
    return (h & 0x7c00) == 0x7c00;
}

/* ---- groups in, words out -----------------------------------------------------------------------
 */
static inline void transpose(const float *const row[4], int k, float to[][LANES], int lane) {
    hcg_quad r[4];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], row[i] + k, sizeof r[i]);
    hcg_transpose(r);
    for (int i = 0; i < 4; i++)
        memcpy(&to[k + i][lane], &r[i], sizeof r[i]);
}

/* Groups first .. first + LANES - 1; those beyond the `n` that there are hold zeros. */
static void load_groups(const float *x, size_t stride, unsigned first, unsigned n,
                        lanes to[HIR_GROUP]) {
    static const float zeros[HIR_GROUP];
    float part[HIR_GROUP][LANES];
    for (int lane = 0; lane < LANES; lane += 4) {
        const float *row[4];
        for (unsigned i = 0, at = first + (unsigned)lane; i < 4; i++, at++)
            row[i] = at < n ? x + at * stride : zeros;
        for (int k = 0; k < HIR_GROUP; k += 4)
            transpose(row, k, part, lane);
    }
    memcpy(to, part, sizeof part);
}

static inline bool all_finite(const lanes x[HIR_GROUP]) {
    words bad = {0};
    for (int k = 0; k < HIR_GROUP; k++)
        bad |= ((words)x[k] & 0x7f800000) == 0x7f800000;
    return !any(bad);
}

/* All ones in the lanes of groups first .. that are among n. */
static inline words present(unsigned first, unsigned n) {
    words number;
    for (int i = 0; i < LANES; i++)
        number[i] = (int32_t)first + i;
    return number < (int32_t)n;
}

static inline void put_words(words x, words there, uint8_t *out) {
    x &= there;
    memcpy(out, &x, sizeof x);
}

static inline void put_halves(words h, words there, uint8_t *out) {
    h &= there;
    for (int i = 0; i < LANES; i++) {
        const uint16_t one = (uint16_t)h[i];
        memcpy(out + 2 * i, &one, sizeof one);
    }
}

static inline void put_four_bits(const words code[HIR_GROUP], words there, uint8_t *out) {
    for (int j = 0; j < HIR_GROUP; j += 8) {
        words block = {0};
        for (int i = 0; i < 4; i++)
            block |= code[j + i] << 8 * i | code[j + 4 + i] << (8 * i + 4);
        put_words(block, there, out + (size_t)j / 8 * 4 * HIR_PANEL);
    }
}

static inline lanes largest(const lanes x[HIR_GROUP]) {
    lanes top = {0};
    for (int k = 0; k < HIR_GROUP; k++)
        top = MORE(size_of(x[k]), top);
    return top;
}

/* Of a scale; 0 of 0, which makes every q 0. */
static inline lanes inverse_of(lanes s) {
    return CHOOSE(s > 0, 1 / s, ALL(0));
}

/* ---- q8 -----------------------------------------------------------------------------------------
 */
static bool quantise_q8(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    const words h = to_f16(largest(x) / 127);
    const lanes s = from_f16(h), most = ALL(127), least = ALL(-127);
    if (any(is_infinite(h))) return false;
    const lanes inverse = inverse_of(s);
    put_halves(h, there, out + 2 * row);
    out += HCG_Q8_FIRST + 4 * row;
    for (int j = 0; j < HIR_GROUP / 4; j++) {
        words block = {0};
        for (int i = 0; i < 4; i++) {
            const lanes q = MORE(LESS(NEAREST(x[4 * j + i] * inverse), most), least);
            block |= __builtin_convertvector(q + 128, words) << 8 * i;
        }
        put_words(block, there, out + (size_t)j * 4 * HIR_PANEL);
    }
    return true;
}

/* ---- q4 -----------------------------------------------------------------------------------------
 */
/* x counted from the least of its group, `low`: sums of products are of the size of the range, and
 * lose nothing where weights are far from 0. */
typedef struct from_low {
    lanes x[HIR_GROUP], low, sum;
} from_low;

static inline void count_from(from_low *all, const lanes x[HIR_GROUP], lanes low) {
    all->low = low, all->sum = ALL(0);
    for (int k = 0; k < HIR_GROUP; k++)
        all->x[k] = x[k] - low, all->sum += all->x[k];
}

/* The q of x that is nearest to the line, and where the line has x, in steps. */
static inline lanes nearest_on(lanes x, lanes m, lanes inverse, lanes *at) {
    *at = (x - m) * inverse;
    return NEAREST(LESS(MORE(*at, ALL(0)), ALL(15)));
}

typedef struct sums { /* over the elements of a group */
    lanes q, qq, qx;
} sums;

/* From the line s q + m to that of least squares through the points (q, x), and two fifths as far
 * again: the q that are nearest to that one would move it on in the same direction. A line without
 * a slope above 0 is none, nor is one through a single q. */
static inline void go_beyond_fit(const from_low *all, const sums *sum, lanes *s, lanes *m) {
    const lanes n = ALL(HIR_GROUP), spread = n * sum->qq - sum->q * sum->q;
    const lanes fit_s = (n * sum->qx - sum->q * all->sum) / spread;
    const lanes fit_m = (all->sum - fit_s * sum->q) / n;
    const lanes next_s = *s + 1.4f * (fit_s - *s), next_m = *m + 1.4f * (fit_m - *m);
    const words good = (spread > 0) & (next_s > 0);
    *s = CHOOSE(good, next_s, *s);
    *m = CHOOSE(good, next_m, *m);
}

typedef struct best_line { /* in f16 */
    words s, m;
    lanes error; /* sum of squares */
} best_line;

/* Tries the line s q + m, m from low, as f16 has it; then, if there is a next one, goes on to that.
 * `next` is a constant: without it the sums are not made. */
static inline __attribute__((always_inline)) void try_line(const from_low *all, lanes *s, lanes *m,
                                                           bool next, best_line *best) {
    const words hs = to_f16(*s), hm = to_f16(all->low + *m);
    *s = from_f16(hs), *m = from_f16(hm) - all->low;
    const lanes inverse = inverse_of(*s);
    sums sum = {0};
    lanes error = {0};
    for (int k = 0; k < HIR_GROUP; k++) {
        lanes at;
        const lanes q = nearest_on(all->x[k], *m, inverse, &at), d = q - at;
        error += d * d;
        sum.q += q, sum.qq += q * q, sum.qx += q * all->x[k];
    }
    error *= *s * *s;
    const words better = error < best->error;
    best->s = (better & hs) | (~better & best->s);
    best->m = (better & hm) | (~better & best->m);
    best->error = CHOOSE(better, error, best->error);
    if (next) go_beyond_fit(all, &sum, s, m);
}

/* The whole range of x, then the middle of it. */
static inline best_line search(const from_low *all, lanes width) {
    best_line best = {.error = ALL(INFINITY)};
    lanes s = width / 15, m = ALL(0);
    try_line(all, &s, &m, true, &best);
    try_line(all, &s, &m, true, &best);
    try_line(all, &s, &m, false, &best);
    s = width * .93f / 15, m = width * .035f;
    try_line(all, &s, &m, true, &best);
    try_line(all, &s, &m, false, &best);
    return best;
}

static bool quantise_q4(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    lanes low = x[0], high = x[0];
    for (int k = 1; k < HIR_GROUP; k++)
        low = LESS(x[k], low), high = MORE(x[k], high);
    const lanes width = high - low;
    if (any(is_infinite(to_f16(width / 15)) | is_infinite(to_f16(low)))) return false;
    from_low all;
    count_from(&all, x, low);
    const best_line best = search(&all, width);
    if (any(best.error == INFINITY)) return false;
    put_halves(best.s, there, out + 2 * row);
    put_halves(best.m, there, out + 2 * (HIR_PANEL + row));
    const lanes m = from_f16(best.m) - low, inverse = inverse_of(from_f16(best.s));
    words code[HIR_GROUP];
    lanes at;
    for (int k = 0; k < HIR_GROUP; k++)
        code[k] = __builtin_convertvector(nearest_on(all.x[k], m, inverse, &at), words);
    put_four_bits(code, there, out + HCG_Q4_FIRST + 4 * row);
    return true;
}

/* ---- mxfp4 --------------------------------------------------------------------------------------
 */
/* One step up the numbers of E2M1: sizes above `middle`, and those at it if `with` is set, which
 * makes ties go to the even code. */
static inline void step_up(lanes size, float middle, bool with, float by, words *code,
                           lanes *value) {
    const words up = with ? size >= middle : size > middle;
    *code -= up;
    *value += (lanes)(up & (words)ALL(by));
}

/* The nearest code, beyond 6 that of 6; `error`: how far its number is. */
static inline words nearest_code(lanes x, lanes *error) {
    const lanes size = size_of(x);
    lanes value = {0};
    words code = {0};
    step_up(size, .25f, false, .5f, &code, &value);
    step_up(size, .75f, true, .5f, &code, &value);
    step_up(size, 1.25f, false, .5f, &code, &value);
    step_up(size, 1.75f, true, .5f, &code, &value);
    step_up(size, 2.5f, false, 1, &code, &value);
    step_up(size, 3.5f, true, 1, &code, &value);
    step_up(size, 5, false, 2, &code, &value);
    *error = size - value;
    return code | (((words)x >> 31) & 8);
}

/* 2^-e, e from -127 to 126 */
static inline lanes power_of_minus(words e) {
    return (lanes)((127 - e) << 23);
}

/* Sum of squared errors, in units of 2^e. */
static inline lanes error_in_units(const lanes x[HIR_GROUP], words e) {
    const lanes inverse = power_of_minus(e);
    lanes all = {0}, d;
    for (int k = 0; k < HIR_GROUP; k++) {
        nearest_code(x[k] * inverse, &d);
        all += d * d;
    }
    return all;
}

/* What is exact with some scale is exact with the first that is tried: numbers that are at most 3
 * in units of a scale are codes in units of half of it. A group of zeros has the scale 1. */
static bool quantise_mxfp4(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    const lanes top = largest(x);
    words e = ((words)top >> 23) - 127 - 2;
    e = (e & (e > -127)) | (-127 & (e <= -127));
    e &= top > 0;
    /* units of the next are twice as large */
    e -= 4 * error_in_units(x, e + 1) < error_in_units(x, e);
    const words scale = (e + 127) & there;
    for (int i = 0; i < LANES; i++)
        out[row + (unsigned)i] = (uint8_t)scale[i];
    const lanes inverse = power_of_minus(e);
    words code[HIR_GROUP];
    lanes d;
    for (int k = 0; k < HIR_GROUP; k++)
        code[k] = nearest_code(x[k] * inverse, &d);
    put_four_bits(code, there, out + HCG_MXFP4_FIRST + 4 * row);
    return true;
}

bool FORM(hir_dtype dtype, const float *x, size_t stride, unsigned n, uint8_t *out) {
    if (n + LANES <= HIR_PANEL) memset(out, 0, hcg_group_bytes(dtype));
    for (unsigned row = 0; row < n; row += LANES) {
        const words there = present(row, n);
        lanes at[HIR_GROUP];
        load_groups(x, stride, row, n, at);
        if (!all_finite(at)) return false;
        const bool ok = dtype == HIR_Q8   ? quantise_q8(at, there, row, out)
                        : dtype == HIR_Q4 ? quantise_q4(at, there, row, out)
                                          : quantise_mxfp4(at, there, row, out);
        if (!ok) return false;
    }
    return true;
}
