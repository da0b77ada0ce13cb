/* Panels of groups that keep their codes (kept.h): a row's codes become the words that it has in a
 * panel, and those of 16 rows are transposed. */
#include "codegen/weights/kept.h"

#include <math.h>
#include <string.h>

#include "codegen/weights/lanes/transpose.h"
#include "support/packed.h"

enum { MOST_WORDS = HIR_GROUP / 4 }; /* of a row in a group */

bool hcg_may_keep(const hd_tensor *t, hir_dtype dtype) {
    if (!hd_packed_in_rows(t) || t->packed->cols % HIR_GROUP) return false;
    const hd_packing packing = t->packed->packing;
    if (dtype == HIR_MXFP4) return packing == HD_PACKING_MXFP4;
    if (t->packed->tile.cols % HIR_GROUP) return false;
    if (dtype == HIR_Q4) return packing == HD_PACKING_INT4;
    return dtype == HIR_Q8 && (packing == HD_PACKING_INT4 || packing == HD_PACKING_INT8);
}

/* ---- words of a row ---------------------------------------------------------------------------
 */
/* Eight codes of four bits, in the order of the file (the first in the lowest bits), as a word of a
 * panel: byte i has code i in its low half, code 4 + i in its high half. */
static inline uint32_t spread(uint32_t x) {
    x = (x | x << 8) & 0x00ff00ff;
    return (x | x << 4) & 0x0f0f0f0f;
}

static inline uint32_t word_of_panel(uint32_t codes) {
    return spread(codes & 0xffff) | spread(codes >> 16) << 4;
}

static inline void words_of_halves(const uint8_t *codes, uint32_t *words) {
    uint32_t x[HIR_GROUP / 8];
    memcpy(x, codes, sizeof x);
    for (int j = 0; j < HIR_GROUP / 8; j++)
        words[j] = word_of_panel(x[j]);
}

/* Words of 16 rows, the n of each, into their lanes. */
static inline void put_lanes(uint32_t (*words)[MOST_WORDS], int n, uint8_t *out) {
    hcg_quad r[4];
    for (int j = 0; j < n; j += 4)
        for (int row = 0; row < HIR_PANEL; row += 4) {
            for (int i = 0; i < 4; i++)
                memcpy(&r[i], &words[row + i][j], sizeof r[i]);
            hcg_transpose(r);
            for (int i = 0; i < 4; i++)
                memcpy(out + ((j + i) * HIR_PANEL + row) * 4, &r[i], sizeof r[i]);
        }
}

/* ---- MXFP4 ------------------------------------------------------------------------------------
 */
/* False where a scale is so large that f32 does not hold all codes with it, or is no number. */
static bool copy_mxfp4(const hd_tensor *t, uint64_t first, uint8_t *out) {
    enum { LARGEST = 252 }; /* 6 2^125 is below 2^128 */
    const uint64_t N = (uint64_t)t->shape[0], groups = t->packed->cols / HIR_GROUP;
    const uint64_t there = N - first < HIR_PANEL ? N - first : HIR_PANEL;
    const uint64_t at = (t->packed_first / t->packed->cols + first) * groups;
    const uint8_t *codes = t->packed->codes->data + at * HIR_GROUP / 2;
    const uint8_t *scales = t->packed->scales->data + at;
    uint32_t words[HIR_PANEL][MOST_WORDS] = {0};
    bool ok = true;
    for (uint64_t g = 0; g < groups; g++, out += HCG_MXFP4_GROUP) {
        memset(out, 0, HIR_PANEL);
        for (uint64_t row = 0; row < there; row++) {
            out[row] = scales[row * groups + g];
            ok &= out[row] <= LARGEST;
            words_of_halves(codes + (row * groups + g) * HIR_GROUP / 2, words[row]);
        }
        put_lanes(words, HIR_GROUP / 8, out + HCG_MXFP4_FIRST);
    }
    return ok;
}

/* ---- integers ---------------------------------------------------------------------------------
 */
typedef struct line { /* what the groups of a tile share */
    hd_integers in;
    uint16_t s, m;
    bool kept; /* whatever the codes are */
} line;

static line line_of(const hd_packed *p, hir_dtype dtype, uint64_t row, uint64_t col) {
    line l = {.in = hd_packed_integers(p, row, col)};
    const double s = (double)l.in.scale, m = dtype == HIR_Q4 ? -l.in.zero * s : 0;
    const double most = dtype == HIR_Q4 ? 15 : 127;
    l.s = hd_f16_from_f64(s), l.m = hd_f16_from_f64(m);
    const double moved =
        most * fabs((double)hd_f16_to_f32(l.s) - s) + fabs((double)hd_f16_to_f32(l.m) - m);
    l.kept = s >= 0 && moved <= s / 16; /* neither is so where one is no number */
    return l;
}

/* q8 has code - zero + 128 from 1 to 255. */
static bool codes_fit_q8(const hd_integers *in) {
    uint8_t beyond = 0;
    const int32_t least = in->zero - 127, most = in->zero + 127;
    const uint8_t low = (uint8_t)(least < 0 ? 0 : least), high = (uint8_t)(most > 255 ? 255 : most);
    if (in->bits == 4) return true; /* at most 15 from each other */
    for (int k = 0; k < HIR_GROUP; k++)
        beyond |= (in->codes[k] < low) | (in->codes[k] > high);
    return !beyond;
}

static void words_of_q8(const hd_integers *in, uint32_t *words) {
    uint8_t q[HIR_GROUP];
    const uint8_t shift = (uint8_t)(128 - in->zero);
    if (in->bits == 8)
        for (int k = 0; k < HIR_GROUP; k++)
            q[k] = (uint8_t)(in->codes[k] + shift);
    else
        for (int k = 0; k < HIR_GROUP; k++)
            q[k] = (uint8_t)((in->codes[k / 2] >> k % 2 * 4 & 15) + shift);
    memcpy(words, q, sizeof q);
}

static bool keeps(const line *l, hir_dtype dtype) {
    return l->kept && (dtype == HIR_Q4 || codes_fit_q8(&l->in));
}

static void words_of(const line *l, hir_dtype dtype, uint32_t *words) {
    if (dtype == HIR_Q4)
        words_of_halves(l->in.codes, words);
    else
        words_of_q8(&l->in, words);
}

static void put_scale(const line *l, hir_dtype dtype, unsigned row, uint8_t *out) {
    memcpy(out + 2 * row, &l->s, 2);
    if (dtype == HIR_Q4) memcpy(out + 2 * (HIR_PANEL + row), &l->m, 2);
}

/* A panel's group, of the rows that are there; what it has for those that do not keep their codes
 * means nothing. */
static void put_codes(const line *lines, hir_dtype dtype, unsigned there, uint8_t *out) {
    uint32_t words[HIR_PANEL][MOST_WORDS];
    memset(out, 0, hcg_group_first(dtype));
    for (unsigned row = 0; row < HIR_PANEL; row++) {
        memset(words[row], 0, sizeof words[row]);
        if (row >= there) continue;
        put_scale(&lines[row], dtype, row, out);
        words_of(&lines[row], dtype, words[row]);
    }
    put_lanes(words, (int)(HIR_GROUP / hcg_group_per_block(dtype)), out + hcg_group_first(dtype));
}

bool hcg_keep_group(const hd_tensor *t, hir_dtype dtype, uint64_t first, hcg_group *out) {
    const hd_packed *p = t->packed;
    const uint64_t at = t->packed_first + first;
    const line l = line_of(p, dtype, at / p->cols, at % p->cols);
    if (!keeps(&l, dtype)) return false;
    uint8_t panel[HCG_MOST_GROUP];
    put_codes(&l, dtype, 1, panel);
    hcg_get_group(dtype, panel, 0, out);
    return true;
}

/* The group of a row of one panel as that of a row of another. */
static void copy_lane(hir_dtype dtype, const uint8_t *from, unsigned i, uint8_t *to, unsigned row) {
    const uint64_t first = hcg_group_first(dtype), size = hcg_group_bytes(dtype);
    for (uint64_t at = 0; at < first; at += 2 * HIR_PANEL)
        memcpy(to + at + 2 * row, from + at + 2 * i, 2);
    for (uint64_t at = first; at < size; at += 4 * HIR_PANEL)
        memcpy(to + at + 4 * row, from + at + 4 * i, 4);
}

/* Rounds the rows that do not keep their codes, a bit of `others` each. `first`: element of t. */
static bool round_others(const hd_tensor *t, hir_dtype dtype, uint32_t others, uint64_t first,
                         float *rows, uint8_t *out) {
    uint8_t panel[HCG_MOST_GROUP];
    unsigned n = 0;
    for (unsigned row = 0; row < HIR_PANEL; row++)
        if (others >> row & 1)
            hd_tensor_to_f32(t, first + row * t->packed->cols, HIR_GROUP, rows + n++ * HIR_GROUP);
    const hcg_rows numbers = hcg_rows_of(rows, HIR_GROUP);
    if (!hcg_quantise_rows(dtype, &numbers, n, panel)) return false;
    for (unsigned row = 0, i = 0; row < HIR_PANEL; row++)
        if (others >> row & 1) copy_lane(dtype, panel, i++, out, row);
    return true;
}

static bool make_integers(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows,
                          uint8_t *out) {
    const hd_packed *p = t->packed;
    const uint64_t left = (uint64_t)t->shape[0] - first, in_file = t->packed_first / p->cols;
    const unsigned there = left < HIR_PANEL ? (unsigned)left : HIR_PANEL;
    const uint64_t size = hcg_group_bytes(dtype);
    line lines[HIR_PANEL];
    bool ok = true;
    for (uint64_t k = 0; ok && k < p->cols; k += HIR_GROUP, out += size) {
        uint32_t others = 0;
        for (unsigned row = 0; row < there; row++) {
            if (k % p->tile.cols == 0)
                lines[row] = line_of(p, dtype, in_file + first + row, k);
            else
                lines[row].in.codes += HIR_GROUP * lines[row].in.bits / 8;
            others |= (uint32_t)!keeps(&lines[row], dtype) << row;
        }
        put_codes(lines, dtype, there, out);
        if (others) ok = round_others(t, dtype, others, first * p->cols + k, rows, out);
    }
    return ok;
}

bool hcg_make_kept(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows, uint8_t *out) {
    if (dtype == HIR_MXFP4) return copy_mxfp4(t, first, out);
    return make_integers(t, dtype, first, rows, out);
}
