/* Integers of 4 or 8 bits: what their codes mean and where they lie. Groups of columns of a row
 * share a scale, and a zero point if they are asymmetric: W[r, c] = (q - z) scale. q and z are from
 * 0 to 2^bits - 1 here, whatever the file stores; without zero points z is in the middle,
 * 2^(bits-1). compressed.c and gptq.c find these tensors in a checkpoint.
 *
 *     packing   codes                       codes lie        zero points
 *     INT4, 8   I32 [out, ceil(in/n)]       ROWS             I32 [ceil(out/n), groups]
 *     PLAIN8    I8 [out, in], q - 128       ROWS             I8 as the scales, z - 128
 *     GPTQ4, 8  I32 [in/n, out]             INPUTS           I32 [groups, out/n], perhaps z - 1
 *     AWQ       I32 [in, out/8]             OUTPUTS          I32 [groups, out/8]
 *
 * A word holds n = 32 / bits codes, the first in its lowest bits; AWQ orders its rows differently.
 * The product takes at most 9 bits more than the scale, which has 8 or 11: it is exact in f32 for
 * scales of 16 bits. */
#include <math.h>
#include <string.h>

#include "support/packed/reader.h"

#define NUMBER(c) ((float)(c))
#define PAIR(c)   HD_PAIR(NUMBER, c)

static const float pairs[256][2] = {HD_TABLE_256(PAIR)}; /* the two integers of each byte */

enum { WORD = 32, SOME = 256, SIGN = 128, NO_ZERO = INT32_MIN, FEW_GROUPS = 512 };

typedef enum lie {
    ROWS,    /* codes of a row are contiguous, row after row */
    INPUTS,  /* n columns of a row in a word; words of consecutive rows adjacent */
    OUTPUTS, /* n rows of a column in a word; words of a column contiguous */
} lie;

static const struct form {
    uint32_t bits;
    lie lie;
} forms[HD_N_PACKINGS] = {
#define P(id, name, codes, bits, lie) {bits, lie},
    HD_PACKINGS(P)
#undef P
};

const uint8_t hd_awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

uint32_t hd_integer_bits(hd_packing packing) {
    return forms[packing].bits;
}

uint64_t hd_words_for(uint64_t n, uint32_t bits) {
    const uint64_t in_a_word = WORD / bits;
    return n / in_a_word + (n % in_a_word != 0);
}

static uint32_t word_at(const hd_tensor *t, uint64_t i) {
    uint32_t word;
    memcpy(&word, t->data + 4 * i, sizeof word);
    return word;
}

static uint32_t field_of(uint32_t word, uint64_t place, uint32_t bits) {
    return word >> bits * place & ((1u << bits) - 1);
}

/* ---- zero points --------------------------------------------------------------------------- */

/* The zero point of a group of a row. GPTQ's first format stores z - 1, so that 0 and 2^bits have
 * the same code. Programs read this code differently (as 2^bits, or as 0 with a carry into the next
 * row): it is rejected as no zero point. */
static int32_t zero_at(const hd_packed *p, uint64_t row, uint64_t group) {
    const struct form f = forms[p->packing];
    const uint64_t n = WORD / f.bits;
    if (!p->zeros) return 1 << (f.bits - 1);
    if (p->packing == HD_PACKING_PLAIN8)
        return SIGN + (int8_t)p->zeros->data[hd_packed_scale_of(p, row, group)];
    if (f.lie == ROWS) {
        const uint64_t groups = (uint64_t)p->zeros->shape[1];
        return (int32_t)field_of(word_at(p->zeros, row / n * groups + group), row % n, f.bits);
    }
    const uint32_t word = word_at(p->zeros, group * (p->rows / n) + row / n);
    const uint64_t place = f.lie == OUTPUTS ? hd_awq_place[row % n] : row % n;
    const int32_t z = (int32_t)field_of(word, place, f.bits);
    if (!p->zeros_less_one) return z;
    return z + 1 < 1 << f.bits ? z + 1 : NO_ZERO;
}

bool hd_has_no_zero(const hd_packed *p, uint64_t row, uint64_t col) {
    return forms[p->packing].bits && zero_at(p, row, hd_packed_group(p, col)) == NO_ZERO;
}

/* ---- codes --------------------------------------------------------------------------------- */

/* Stores the codes of a whole word, lowest bits first, one in each byte: bytes as they are, half
 * bytes spread out. */
static inline void put_all(uint32_t word, uint32_t bits, uint8_t *out) {
    uint64_t x = word;
    if (bits == 8) {
        memcpy(out, &word, sizeof word);
        return;
    }
    x = (x | x << 16) & 0x0000ffff0000ffff;
    x = (x | x << 8) & 0x00ff00ff00ff00ff;
    x = (x | x << 4) & 0x0f0f0f0f0f0f0f0f;
    memcpy(out, &x, sizeof x);
}

/* Codes of columns col .. col+n-1 of a row, a byte for each. Where codes of a row are not
 * contiguous, each word holds only some of them. `in_a_word` is a constant after inlining in each
 * of these functions, which keeps divisions out of the loops. */
static inline void take_inputs(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n,
                               uint32_t bits, uint8_t *out) {
    const uint64_t in_a_word = WORD / bits;
    for (uint64_t some; n > 0; n -= some, col += some, out += some) {
        const uint32_t word = word_at(p->codes, col / in_a_word * p->rows + row);
        const uint64_t from = col % in_a_word;
        some = in_a_word - from < n ? in_a_word - from : n;
        if (some == in_a_word) {
            put_all(word, bits, out);
            continue;
        }
        for (uint64_t i = 0; i < some; i++)
            out[i] = (uint8_t)field_of(word, from + i, bits);
    }
}

static inline void take_outputs(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n,
                                uint8_t *out) {
    enum { IN_A_WORD = 8 };
    const uint64_t across = p->rows / IN_A_WORD * sizeof(uint32_t);
    const uint8_t place = hd_awq_place[row % IN_A_WORD];
    const uint8_t *at =
        p->codes->data + col * across + row / IN_A_WORD * sizeof(uint32_t) + place / 2;
    for (uint64_t i = 0; i < n; i++)
        out[i] = at[i * across] >> place % 2 * 4 & 15;
}

static void raw_codes(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, uint8_t *out) {
    const struct form f = forms[p->packing];
    const uint8_t *data = p->codes->data;
    if (f.lie == OUTPUTS) {
        take_outputs(p, row, col, n, out);
    } else if (f.lie == INPUTS) {
        if (f.bits == 4)
            take_inputs(p, row, col, n, 4, out);
        else
            take_inputs(p, row, col, n, 8, out);
    } else if (p->packing == HD_PACKING_PLAIN8) {
        for (uint64_t i = 0; i < n; i++)
            out[i] = data[row * p->cols + col + i] ^ SIGN;
    } else {
        data += row * hd_words_for(p->cols, f.bits) * sizeof(uint32_t);
        for (uint64_t k = 0; k < n; k++) {
            const uint64_t i = col + k;
            out[k] = f.bits == 8 ? data[i] : data[i / 2] >> i % 2 * 4 & 15;
        }
    }
}

void hd_packed_codes(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, uint8_t *out) {
    uint8_t raw[SOME];
    const bool halves = forms[p->packing].bits == 4;
    for (uint64_t some; n > 0; n -= some, col += some) {
        some = n < SOME ? n : SOME;
        raw_codes(p, row, col, some, raw);
        for (uint64_t i = 0; i < some; i += 1 + halves)
            *out++ = halves ? (uint8_t)(raw[i] | raw[i + 1] << 4) : raw[i];
    }
}

/* Tensors of integers hold one matrix, so `row` is a row of it. Words are little endian: the bytes
 * of a row hold its columns in order. */
hd_integers hd_integers_at(const hd_packed *p, uint64_t row, uint64_t col) {
    const struct form f = forms[p->packing];
    hd_integers in = {.bits = f.bits, .zero = zero_at(p, row, hd_packed_group(p, col))};
    if (p->packing == HD_PACKING_PLAIN8) {
        in.codes = p->codes->data + row * p->cols + col;
        in.flip = SIGN;
    } else if (f.lie == ROWS) {
        in.codes = p->codes->data + row * hd_words_for(p->cols, f.bits) * sizeof(uint32_t) +
                   col * f.bits / 8;
    }
    return in;
}

hd_integers hd_packed_integers(const hd_packed *p, uint64_t row, uint64_t col) {
    hd_integers in = hd_integers_at(p, row, col);
    in.scale = hd_packed_scale(p, hd_packed_scale_index(p, row, col));
    if (in.zero == NO_ZERO) in.zero = 0, in.scale = NAN;
    return in;
}

/* ---- numbers ------------------------------------------------------------------------------- */

void hd_codes_integers(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float scale,
                       float *out) {
    const hd_integers in = hd_integers_at(p, row, col);
    const float zero = in.zero == NO_ZERO ? NAN : (float)in.zero;
    uint8_t raw[SOME];
    if (in.codes && in.bits == 4) {
        hd_codes_of_halves(in.codes, col % 2, n, pairs, out);
    } else if (in.codes) {
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)(in.codes[i] ^ in.flip);
    } else {
        for (uint64_t at = 0, some; at < n; at += some) {
            some = n - at < SOME ? n - at : SOME;
            raw_codes(p, row, col + at, some, raw);
            for (uint64_t i = 0; i < some; i++)
                out[at + i] = (float)raw[i];
        }
    }
    for (uint64_t i = 0; i < n; i++)
        out[i] = (out[i] - zero) * scale;
}

/* Scales and zero points of all groups of a row, for tensors with an explicit order. */
typedef struct groups {
    float scale[FEW_GROUPS], zero[FEW_GROUPS];
} groups;

static void find_group(const hd_packed *p, uint64_t row, uint64_t group, float *scale,
                       float *zero) {
    const int32_t z = zero_at(p, row, group);
    *scale = hd_packed_scale(p, hd_packed_scale_of(p, row, group));
    *zero = z == NO_ZERO ? NAN : (float)z;
}

void hd_ordered_integers(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float *codes,
                         float *scales) {
    const uint64_t all = hd_packed_groups(p);
    const bool table = all <= FEW_GROUPS && all <= n;
    groups g;
    uint8_t raw[SOME];
    float zero;
    for (uint64_t i = 0; table && i < all; i++)
        find_group(p, row, i, &g.scale[i], &g.zero[i]);
    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < SOME ? n - at : SOME;
        raw_codes(p, row, col + at, some, raw);
        for (uint64_t i = at; i < at + some; i++) {
            const uint64_t group = hd_packed_group(p, col + i);
            if (table)
                scales[i] = g.scale[group], zero = g.zero[group];
            else
                find_group(p, row, group, &scales[i], &zero);
            codes[i] = (float)raw[i - at] - zero;
        }
    }
}
