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

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t words __attribute__((vector_size(4 * LANES)));
typedef float quad __attribute__((vector_size(16)));

#define ALL(x)                 ((lanes){0} + (x))
#define CHOOSE(which, yes, no) ((lanes)(((which) & (words)(yes)) | (~(which) & (words)(no))))
#define MAGIC                                                                                      \
    0x1.8p23f /* added to a number below 2^22, leaves the nearest whole one, ties to even */
#define NEAREST(x) (((x) + MAGIC) - MAGIC)

/* a < b ? a : b, and a > b ? a : b: b where one of them is no number. Compilers do not make one
 * instruction of the choice. */
#if defined(__x86_64__) && LANES == 16
#define LESS(a, b) ((lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MORE(a, b) ((lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#elif defined(__x86_64__) && LANES == 8
#define LESS(a, b) ((lanes)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MORE(a, b) ((lanes)_mm256_max_ps((__m256)(a), (__m256)(b)))
#elif defined(__x86_64__)
#define LESS(a, b) ((lanes)_mm_min_ps((__m128)(a), (__m128)(b)))
#define MORE(a, b) ((lanes)_mm_max_ps((__m128)(a), (__m128)(b)))
#else
#define LESS(a, b) CHOOSE((a) < (b), a, b)
#define MORE(a, b) CHOOSE((a) > (b), a, b)
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
    quad r[4];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], row[i] + k, sizeof r[i]);
    const quad a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    const quad b = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    const quad c = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    const quad d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
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
typedef struct line { /* s q + m */
    lanes s, m;
} line;

typedef struct line_as_stored { /* in f16 */
    words s, m;
} line_as_stored;

/* Sums over the elements of a group: of q, and of the errors d = s q + m - x. */
typedef struct sums {
    lanes q, qq, d, qd, dd;
} sums;

/* The q of x that is nearest to the line. */
static inline lanes nearest_on(lanes x, line l, lanes inverse) {
    const lanes q = (x - l.m) * inverse;
    return NEAREST(LESS(MORE(q, ALL(0)), ALL(15)));
}

static inline sums try_line(const lanes x[HIR_GROUP], line l) {
    const lanes inverse = inverse_of(l.s);
    sums all = {0};
    for (int k = 0; k < HIR_GROUP; k++) {
        const lanes q = nearest_on(x[k], l, inverse), d = (l.s * q + l.m) - x[k];
        all.q += q, all.qq += q * q;
        all.d += d, all.qd += q * d, all.dd += d * d;
    }
    return all;
}

/* The line of least squares through the points (q, x). It is found from the errors of the one that
 * gave the q: these are small, and so is what is lost in their sums. A line without a slope above 0
 * is none; neither is one through a single q. */
static inline line fit_line(line l, const sums *all) {
    const lanes n = ALL(HIR_GROUP), spread = n * all->qq - all->q * all->q;
    const lanes s = (n * all->qd - all->q * all->d) / spread;
    const lanes m = (all->d - s * all->q) / n;
    const line fit = {l.s - s, l.m - m};
    const words good = (spread > 0) & (fit.s > 0);
    return (line){CHOOSE(good, fit.s, l.s), CHOOSE(good, fit.m, l.m)};
}

typedef struct best {
    line_as_stored line;
    lanes error; /* sum of squares */
} best;

static inline void try_range(const lanes x[HIR_GROUP], line l, best *b) {
    enum { ROUNDS = 3 };
    for (int round = 0; round < ROUNDS; round++) {
        const line_as_stored h = {to_f16(l.s), to_f16(l.m)};
        l = (line){from_f16(h.s), from_f16(h.m)};
        const sums all = try_line(x, l);
        const words better = all.dd < b->error;
        b->line.s = (better & h.s) | (~better & b->line.s);
        b->line.m = (better & h.m) | (~better & b->line.m);
        b->error = CHOOSE(better, all.dd, b->error);
        l = fit_line(l, &all);
    }
}

static bool quantise_q4(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    lanes low = x[0], high = x[0];
    for (int k = 1; k < HIR_GROUP; k++)
        low = LESS(x[k], low), high = MORE(x[k], high);
    const lanes width = high - low;
    if (any(is_infinite(to_f16(width / 15)) | is_infinite(to_f16(low)))) return false;
    best b = {.error = ALL(INFINITY)};
    try_range(x, (line){width / 15, low}, &b);
    try_range(x, (line){width * .9f / 15, low + width / 20}, &b);
    if (any(b.error == INFINITY)) return false;
    put_halves(b.line.s, there, out + 2 * row);
    put_halves(b.line.m, there, out + 2 * (HIR_PANEL + row));
    const line l = {from_f16(b.line.s), from_f16(b.line.m)};
    const lanes inverse = inverse_of(l.s);
    words code[HIR_GROUP];
    for (int k = 0; k < HIR_GROUP; k++)
        code[k] = __builtin_convertvector(nearest_on(x[k], l, inverse), words);
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
    for (unsigned row = 0; row < HIR_PANEL; row += LANES) {
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
