/* Rounds LANES groups at a time, one group in each lane of a vector: the sums and decisions of a
 * group are made in its own lane, in one order, whatever the vector's width. Each file in this
 * directory includes it for one CPU; all of them are compiled without fused multiply-adds and give
 * the same bytes (tests/unit/codegen/weights/test_quant.c).
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

#include "support/narrow.h"

#define ALL(x)                 ((lanes){0} + (x))
#define CHOOSE(which, yes, no) ((lanes)(((which) & (words)(yes)) | (~(which) & (words)(no))))
/* LESS: a < b ? a : b, MORE: a > b ? a : b; both give b where one is NaN. NEAREST: the nearest
 * whole number, for values below 2^22, ties to even; WHOLE_WORD: the same as an integer. WORD_LESS,
 * WORD_MORE: the same as LESS and MORE for integers. Compilers do not make one instruction of the C
 * expressions. */
#if defined(__x86_64__) && LANES == 16
#define LESS(a, b)      ((lanes)_mm512_min_ps((__m512)(a), (__m512)(b)))
#define MORE(a, b)      ((lanes)_mm512_max_ps((__m512)(a), (__m512)(b)))
#define NEAREST(x)      ((lanes)_mm512_roundscale_ps((__m512)(x), 0))
#define WHOLE_WORD(x)   ((words)_mm512_cvtps_epi32((__m512)(x)))
#define WORD_LESS(a, b) ((words)_mm512_min_epi32((__m512i)(a), (__m512i)(b)))
#define WORD_MORE(a, b) ((words)_mm512_max_epi32((__m512i)(a), (__m512i)(b)))
#elif defined(__x86_64__) && LANES == 8
#define LESS(a, b)      ((lanes)_mm256_min_ps((__m256)(a), (__m256)(b)))
#define MORE(a, b)      ((lanes)_mm256_max_ps((__m256)(a), (__m256)(b)))
#define NEAREST(x)      ((lanes)_mm256_round_ps((__m256)(x), _MM_FROUND_TO_NEAREST_INT))
#define WHOLE_WORD(x)   ((words)_mm256_cvtps_epi32((__m256)(x)))
#define WORD_LESS(a, b) ((words)_mm256_min_epi32((__m256i)(a), (__m256i)(b)))
#define WORD_MORE(a, b) ((words)_mm256_max_epi32((__m256i)(a), (__m256i)(b)))
#elif defined(__x86_64__)
#define LESS(a, b)    ((lanes)_mm_min_ps((__m128)(a), (__m128)(b)))
#define MORE(a, b)    ((lanes)_mm_max_ps((__m128)(a), (__m128)(b)))
#define WHOLE_WORD(x) ((words)_mm_cvtps_epi32((__m128)(x)))
#else
#define LESS(a, b) CHOOSE((a) < (b), a, b)
#define MORE(a, b) CHOOSE((a) > (b), a, b)
#endif
#ifndef NEAREST
#define NEAREST(x) (((x) + 0x1.8p23f) - 0x1.8p23f)
#endif
#ifndef WHOLE_WORD
#define WHOLE_WORD(x) __builtin_convertvector(NEAREST(x), words)
#endif
#ifndef WORD_LESS
#define WORD_LESS(a, b) ((words)CHOOSE((a) < (b), a, b))
#define WORD_MORE(a, b) ((words)CHOOSE((a) > (b), a, b))
#endif
/* Sums and differences computed by the multipliers. On many CPUs the units that add also compare
 * and round, and the search would wait for them. A fused multiply-add by 1 rounds as a sum does,
 * and WHOLE, a b + c of small whole numbers, is exact, so that all CPUs get the same numbers. */
#if defined(__x86_64__) && LANES == 16
#define FUSED(a, b, c) ((lanes)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))
#elif defined(__x86_64__) && LANES == 8
#define FUSED(a, b, c) ((lanes)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))
#endif
#ifdef FUSED
/* Hides the value of a constant from the compiler, which would otherwise use an addition. */
static inline lanes hidden(float x) {
    lanes all = ALL(x);
    __asm__("" : "+v"(all));
    return all;
}
#define SUM(a, b)        FUSED(a, hidden(1), b)
#define DIFFERENCE(a, b) FUSED(b, hidden(-1), a)
#define WHOLE(a, b, c)   FUSED(a, b, c)
#else
#define SUM(a, b)        ((a) + (b))
#define DIFFERENCE(a, b) ((a) - (b))
#define WHOLE(a, b, c)   ((a) * (b) + (c))
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

/* ---- f16, as in hd_f16_from_f32 and hd_f16_to_f32 -------------------------------------------- */
static inline words to_f16(lanes x) {
    words h;
    hd_lanes_to_f16(&x, &h);
    return h;
}

static inline lanes from_f16(words h) {
    lanes x;
#if defined(__x86_64__) && LANES == 16
    x = (lanes)_mm512_cvtph_ps(_mm512_cvtepi32_epi16((__m512i)h));
#else
    hd_lanes_from_f16(&h, &x);
#endif
    return x;
}

/* The nearest f16, as bits and as a number. */
static inline lanes rounded_to_f16(lanes x, words *h) {
#if defined(__x86_64__) && LANES == 16
    const __m256i half = _mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT);
    *h = (words)_mm512_cvtepu16_epi32(half);
    return (lanes)_mm512_cvtph_ps(half);
#elif defined(__F16C__) && LANES == 8
    const __m128i half = _mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT);
    *h = (words)_mm256_cvtepu16_epi32(half);
    return (lanes)_mm256_cvtph_ps(half);
#else
    *h = to_f16(x);
    return from_f16(*h);
#endif
}

static inline words is_infinite(words h) {
    return (h & 0x7c00) == 0x7c00;
}

/* ---- groups in, words out -------------------------------------------------------------------- */
/* Bytes `at` .. `at` + 15 of every fourth row from `row` on, one row after the other. */
static inline words every_fourth(const uint8_t *const *row, size_t at) {
#define QUAD(i) _mm_loadu_si128((const __m128i *)(const void *)(row[4 * (i)] + at))
#if defined(__x86_64__) && LANES == 16
    __m512i x = _mm512_castsi128_si512(QUAD(0));
    x = _mm512_inserti32x4(x, QUAD(1), 1);
    x = _mm512_inserti32x4(x, QUAD(2), 2);
    return (words)_mm512_inserti32x4(x, QUAD(3), 3);
#elif defined(__x86_64__) && LANES == 8
    return (words)_mm256_inserti128_si256(_mm256_castsi128_si256(QUAD(0)), QUAD(1), 1);
#else
    words x;
    memcpy(&x, row[0] + at, sizeof x);
    return x;
#endif
#undef QUAD
}

/* Four words of each row, from byte `at` on: word i of all rows in to[i]. */
static inline void load_words(const uint8_t *const row[LANES], size_t at, words to[4]) {
#define LOW(q)       4 * (q), LANES + 4 * (q), 4 * (q) + 1, LANES + 4 * (q) + 1
#define HIGH(q)      4 * (q) + 2, LANES + 4 * (q) + 2, 4 * (q) + 3, LANES + 4 * (q) + 3
#define LOW_PAIR(q)  4 * (q), 4 * (q) + 1, LANES + 4 * (q), LANES + 4 * (q) + 1
#define HIGH_PAIR(q) 4 * (q) + 2, 4 * (q) + 3, LANES + 4 * (q) + 2, LANES + 4 * (q) + 3
#if LANES == 16
#define EACH(F) F(0), F(1), F(2), F(3)
#elif LANES == 8
#define EACH(F) F(0), F(1)
#else
#define EACH(F) F(0)
#endif
    words r[4];
    for (int i = 0; i < 4; i++)
        r[i] = every_fourth(row + i, at);
    const words a = __builtin_shufflevector(r[0], r[1], EACH(LOW));
    const words b = __builtin_shufflevector(r[0], r[1], EACH(HIGH));
    const words c = __builtin_shufflevector(r[2], r[3], EACH(LOW));
    const words d = __builtin_shufflevector(r[2], r[3], EACH(HIGH));
    to[0] = __builtin_shufflevector(a, c, EACH(LOW_PAIR));
    to[1] = __builtin_shufflevector(a, c, EACH(HIGH_PAIR));
    to[2] = __builtin_shufflevector(b, d, EACH(LOW_PAIR));
    to[3] = __builtin_shufflevector(b, d, EACH(HIGH_PAIR));
#undef LOW
#undef HIGH
#undef LOW_PAIR
#undef HIGH_PAIR
#undef EACH
}

/* Converts words of the rows to numbers, in the order of the row. */
static inline void widen(hd_tensor_dtype dtype, const words r[4], lanes scale, lanes *to) {
    for (int i = 0; i < 4; i++) {
        if (dtype == HD_T_F32) to[i] = (lanes)r[i];
        if (dtype == HD_T_BF16) {
            to[2 * i] = (lanes)(r[i] << 16);
            to[2 * i + 1] = (lanes)(r[i] & (words)((words){0} + (int32_t)0xffff0000));
        }
        if (dtype == HD_T_F16) {
            to[2 * i] = from_f16(r[i] & 0xffff);
            to[2 * i + 1] = from_f16(r[i] >> 16 & 0xffff);
        }
        if (dtype == HD_T_F8_E4M3)
            for (int j = 0; j < 4; j++) {
                const words code = r[i] >> 8 * j & 255;
                hd_lanes_from_e4m3(&code, &to[4 * i + j]);
                to[4 * i + j] *= scale;
            }
    }
}

/* Both `dtype` and `size`, its bytes, are constants where this is inlined. */
static inline __attribute__((always_inline)) void load_all(hd_tensor_dtype dtype, int size,
                                                           const uint8_t *const row[LANES],
                                                           lanes scale, lanes to[HIR_GROUP]) {
    words r[4];
    for (int at = 0; at < HIR_GROUP * size; at += 16) {
        load_words(row, (size_t)at, r);
        widen(dtype, r, scale, to + at / size);
    }
}

/* Loads groups first .. first + LANES - 1; groups from number `n` on are zeros. */
static inline void load_groups(const hcg_rows *x, unsigned first, unsigned n, lanes to[HIR_GROUP]) {
    static const uint8_t zeros[HIR_GROUP * sizeof(float)];
    const uint8_t *row[LANES];
    lanes scale = ALL(1);
    for (unsigned i = 0; i < LANES; i++)
        row[i] = first + i < n ? x->at + (first + i) * x->stride : zeros;
    for (unsigned i = 0; x->scale && i < LANES && first + i < n; i++)
        scale[i] = x->scale[first + i];
    switch (x->dtype) {
    case HD_T_F32: load_all(HD_T_F32, 4, row, scale, to); break;
    case HD_T_BF16: load_all(HD_T_BF16, 2, row, scale, to); break;
    case HD_T_F16: load_all(HD_T_F16, 2, row, scale, to); break;
    default: load_all(HD_T_F8_E4M3, 1, row, scale, to);
    }
}

static inline bool all_finite(const lanes x[HIR_GROUP]) {
    words bad = {0};
    for (int k = 0; k < HIR_GROUP; k++)
        bad |= ((words)x[k] & 0x7f800000) == 0x7f800000;
    return !any(bad);
}

/* All ones in the lanes of groups first .. that are below n. */
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

/* The inverse of a scale; 0 for a scale of 0, which makes every q 0. */
static inline lanes inverse_of(lanes s) {
    return CHOOSE(s > 0, 1 / s, ALL(0));
}

/* ---- q8 -------------------------------------------------------------------------------------- */
static bool quantise_q8(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    const words h = to_f16(largest(x) / 127);
    const lanes s = from_f16(h);
    const words most = (words){0} + 127;
    if (any(is_infinite(h))) return false;
    const lanes inverse = inverse_of(s);
    put_halves(h, there, out + 2 * row);
    out += HCG_Q8_FIRST + 4 * row;
    for (int j = 0; j < HIR_GROUP / 4; j++) {
        words block = {0};
        for (int i = 0; i < 4; i++) {
            const words q = WHOLE_WORD(x[4 * j + i] * inverse); /* at most 254, as f16 is near s */
            block |= (WORD_MORE(WORD_LESS(q, most), -most) + 128) << 8 * i;
        }
        put_words(block, there, out + (size_t)j * 4 * HIR_PANEL);
    }
    return true;
}

/* ---- q4 -------------------------------------------------------------------------------------- */
/* x minus the least element of its group, `low`: sums of products have the size of the range, and
 * lose no precision where weights are far from 0. */
typedef struct from_low {
    lanes x[HIR_GROUP], low, sum;
} from_low;

static inline void count_from(from_low *all, const lanes x[HIR_GROUP], lanes low) {
    all->low = low, all->sum = ALL(0);
    for (int k = 0; k < HIR_GROUP; k++)
        all->x[k] = x[k] - low, all->sum += all->x[k];
}

/* The position of x on the line, in steps. */
static inline lanes place_on(lanes x, lanes m, lanes inverse) {
    return DIFFERENCE(x, m) * inverse;
}

/* The position clamped to the range of q; the nearest integer is the q of x. */
static inline lanes within(lanes at) {
    return LESS(MORE(at, ALL(0)), ALL(15));
}

typedef struct best_line { /* in f16 */
    words s, m;
    lanes error; /* sum of squared errors */
} best_line;

typedef struct trial { /* a line s q + m to try, m relative to low */
    lanes s, m, inverse;
    best_line as_stored;
    lanes q, qq, qx; /* sums over the elements of the group */
} trial;

/* Begins with the line rounded to f16. */
static inline void begin(const from_low *all, trial *t) {
    t->as_stored.error = ALL(0);
    t->s = rounded_to_f16(t->s, &t->as_stored.s);
    t->m = rounded_to_f16(all->low + t->m, &t->as_stored.m) - all->low;
    t->inverse = inverse_of(t->s);
    t->q = t->qq = t->qx = ALL(0);
}

/* `next` is a constant: true where the sums for the next line are needed. */
static inline __attribute__((always_inline)) void add_element(trial *t, lanes x, bool next) {
    const lanes at = place_on(x, t->m, t->inverse), q = NEAREST(within(at)), d = q - at;
    t->as_stored.error += d * d;
    if (next) t->q = SUM(q, t->q), t->qq = WHOLE(q, q, t->qq), t->qx += q * x;
}

static inline void take_better(best_line *best, const best_line *other) {
    const words better = other->error < best->error;
    best->s = (better & other->s) | (~better & best->s);
    best->m = (better & other->m) | (~better & best->m);
    best->error = CHOOSE(better, other->error, best->error);
}

static inline void end(trial *t, best_line *best) {
    t->as_stored.error *= t->s * t->s;
    take_better(best, &t->as_stored);
}

/* Moves from the line s q + m towards the least squares line through the points (q, x), and two
 * fifths further: the nearest q of the least squares line would move it on in the same direction. A
 * least squares line without a positive slope, or through a single q, is not used. */
static inline void go_beyond_fit(const from_low *all, trial *t) {
    const lanes n = ALL(HIR_GROUP), spread = n * t->qq - t->q * t->q;
    const lanes fit_s = (n * t->qx - t->q * all->sum) / spread;
    const lanes fit_m = (all->sum - fit_s * t->q) / n;
    const lanes next_s = t->s + 1.4f * (fit_s - t->s), next_m = t->m + 1.4f * (fit_m - t->m);
    const words good = (spread > 0) & (next_s > 0);
    t->s = CHOOSE(good, next_s, t->s);
    t->m = CHOOSE(good, next_m, t->m);
}

/* Tries the whole range of x, improved twice, and the middle of it, improved once. Both searches
 * are interleaved: while one waits for the divisions of its next line, the other can continue. */
static inline best_line search(const from_low *all, lanes width) {
    best_line best = {.error = ALL(INFINITY)}, of_middle = best;
    trial whole = {.s = width / 15}, middle = {.s = width * .93f / 15, .m = width * .035f};
    begin(all, &whole), begin(all, &middle);
    for (int k = 0; k < HIR_GROUP; k++)
        add_element(&whole, all->x[k], true), add_element(&middle, all->x[k], true);
    end(&whole, &best), end(&middle, &of_middle);
    go_beyond_fit(all, &whole), go_beyond_fit(all, &middle);
    begin(all, &whole), begin(all, &middle);
    for (int k = 0; k < HIR_GROUP; k++)
        add_element(&whole, all->x[k], true), add_element(&middle, all->x[k], false);
    end(&whole, &best), end(&middle, &of_middle);
    go_beyond_fit(all, &whole);
    begin(all, &whole);
    for (int k = 0; k < HIR_GROUP; k++)
        add_element(&whole, all->x[k], false);
    end(&whole, &best);
    take_better(&best, &of_middle);
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
    for (int k = 0; k < HIR_GROUP; k++)
        code[k] = WHOLE_WORD(within(place_on(all.x[k], m, inverse)));
    put_four_bits(code, there, out + HCG_Q4_FIRST + 4 * row);
    return true;
}

/* ---- mxfp4 ----------------------------------------------------------------------------------- */
/* One step up through the numbers of E2M1, for sizes above `middle`, and for sizes equal to it if
 * `with` is set, which makes ties go to the even code. */
static inline void step_up(lanes size, float middle, bool with, float by, words *code,
                           lanes *value) {
    const words up = with ? size >= middle : size > middle;
    *code -= up;
    *value += (lanes)(up & (words)ALL(by));
}

/* The nearest code; the code of 6 for larger numbers. `error`: the distance to its number. */
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

/* Numbers that are exact with some scale are exact with the first one that is tried: numbers of at
 * most 3 in units of a scale are codes in units of half of it. A group of zeros has the scale 1. */
static bool quantise_mxfp4(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    const lanes top = largest(x);
    words e = ((words)top >> 23) - 127 - 2;
    e = (e & (e > -127)) | (-127 & (e <= -127));
    e &= top > 0;
    /* units of the next scale are twice as large */
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

/* ---- nvfp4 ----------------------------------------------------------------------------------- */
/* The nearest scale, as its byte (program/packed.h); what is less than the least one becomes it. */
static inline words nearest_scale(lanes s) {
    const words bits = (words)s;
    const words half = (1 << (HCG_E5M3_SHIFT - 1)) - 1 + (bits >> HCG_E5M3_SHIFT & 1);
    const words byte = ((bits + half) >> HCG_E5M3_SHIFT) - (HCG_E5M3_LEAST << 3);
    return WORD_MORE(byte, (words){0});
}

static inline lanes scale_of(words byte) {
    return (lanes)((byte + (HCG_E5M3_LEAST << 3)) << HCG_E5M3_SHIFT);
}

/* Sum of squared errors of n numbers with a scale. */
static inline lanes error_with(const lanes *x, int n, lanes scale) {
    const lanes inverse = 1 / scale;
    lanes all = {0}, d;
    for (int k = 0; k < n; k++) {
        nearest_code(x[k] * inverse, &d);
        all += d * d;
    }
    return all * scale * scale;
}

/* Numbers that are exact with some scale are exact with one of the two that are tried: the largest,
 * 6, 3 or 1.5 of its units, is 6 units of a sixth of it, and 4, 2, 1 or 0.5 are 4 units of a
 * quarter. Zeros have the scale 1. */
static bool quantise_nvfp4(const lanes x[HIR_GROUP], words there, unsigned row, uint8_t *out) {
    enum { HALF = HIR_GROUP / 2 };
    words code[HIR_GROUP];
    for (int half = 0; half < 2; half++) {
        const lanes *at = x + half * HALF;
        lanes top = {0}, d;
        for (int k = 0; k < HALF; k++)
            top = MORE(size_of(at[k]), top);
        const words six = nearest_scale(top / 6);
        const words four = WORD_LESS(nearest_scale(top / 4), (words){0} + 255);
        if (any((six > 255) & there)) return false;
        const words better =
            error_with(at, HALF, scale_of(four)) < error_with(at, HALF, scale_of(six));
        words scale = (better & four) | (~better & six);
        scale = (scale & (top > 0)) | (HCG_E5M3_ONE & ~(top > 0));
        const lanes inverse = 1 / scale_of(scale);
        for (int k = 0; k < HALF; k++)
            code[half * HALF + k] = nearest_code(at[k] * inverse, &d);
        for (int i = 0; i < LANES; i++)
            out[half * HIR_PANEL + (int)row + i] = (uint8_t)(scale[i] & there[i]);
    }
    put_four_bits(code, there, out + HCG_NVFP4_FIRST + 4 * row);
    return true;
}

bool FORM(hir_dtype dtype, const hcg_rows *x, unsigned n, uint8_t *out) {
    if (n + LANES <= HIR_PANEL) memset(out, 0, hcg_group_bytes(dtype));
    for (unsigned row = 0; row < n; row += LANES) {
        const words there = present(row, n);
        lanes at[HIR_GROUP];
        load_groups(x, row, n, at);
        if (!all_finite(at)) return false;
        const bool ok = dtype == HIR_Q8      ? quantise_q8(at, there, row, out)
                        : dtype == HIR_Q4    ? quantise_q4(at, there, row, out)
                        : dtype == HIR_MXFP4 ? quantise_mxfp4(at, there, row, out)
                                             : quantise_nvfp4(at, there, row, out);
        if (!ok) return false;
    }
    return true;
}
