/* Quantised formats, which store weights in groups: q8, q4, mxfp4 and nvfp4.
 *
 * HIR_GROUP adjacent elements along K of one row share the factors of small integers:
 *
 *     q8   w = s q         q in -127 .. 127, s in f16                       8.5 bits a weight
 *     q4   w = s q + m     q in 0 .. 15, s and m in f16                     5 bits a weight
 *     mxfp4  w = 2^(s - 127) E2M1(q)   s in 0 .. 254, q a code of 4 bits     4.25 bits a weight
 *     nvfp4  w = f E5M3(s) E2M1(q)     s for 16 elements, f in f32 for a row   4.5 bits a weight
 *
 * mxfp4 and nvfp4 are those of published checkpoints (support/packed/mxfp4.c and nvfp4.c). Every
 * number of MXFP4 is stored exactly, and of NVFP4 every code and scale (E5M3: program/packed.h);
 * its factor is rounded to f32 where it is a quotient. Rows of other numbers have the factor 1.
 *
 * The value of a quantised weight, for the evaluator and for the kernels, is w computed exactly
 * from s and m as stored. program/packed.h has their places in a panel. */
#ifndef HCG_QUANT_H
#define HCG_QUANT_H

#include "codegen/program/packed.h"
#include "support/tensorfile.h"

typedef struct hcg_group { /* a group of one row */
    uint16_t scale, least; /* s and m in f16; q8: m is 0; mxfp4: the byte s, and 0; nvfp4: the two
                              bytes s */
    uint8_t q[HIR_GROUP];  /* as in the file: in q8, 128 is added */
    double factor;         /* of the row, which the group itself does not hold; 1 */
} hcg_group;

/* Rows of numbers as in a checkpoint, each of HIR_GROUP or more numbers, at any address. */
typedef struct hcg_rows {
    const uint8_t *at;
    uint64_t stride;       /* bytes from one row to the next */
    hd_tensor_dtype dtype; /* F32, BF16, F16, or F8_E4M3 */
    const float *scale;    /* of E4M3: the scale of each row's codes; else NULL */
} hcg_rows;
hcg_rows hcg_rows_of(const float *x, uint64_t stride); /* stride in elements */
/* Prefetches for the next panel. The rows of a panel are as many memory streams as it has rows,
 * each read a few bytes at a time, which hardware prefetchers do not follow. While a group of one
 * panel is made, this prefetches `n` bytes of each row of the next panel, which lie after it. */
static inline void hcg_ask_for_next_panel(const uint8_t *at, uint64_t stride, uint64_t n) {
    enum { LINE = 64 };
    for (unsigned row = HIR_PANEL; row < 2 * HIR_PANEL; row++)
        for (uint64_t i = 0; i < n; i += LINE)
            __builtin_prefetch(at + row * stride + i, 0, 2);
}

/* Rounds the groups of n rows, at most HIR_PANEL, to a group of a panel. Rows from n on become zero
 * bytes. Numbers are rounded to nearest. q8: s = max |x| / 127. q4: the s and m of least squared
 * error among those tried: the range of x, improved twice, and the middle 93 % of it, improved
 * once; improving means moving to the least squares line through the q, and two fifths further.
 * mxfp4: the one of two powers of two with the smaller squared error: that which brings max |x|
 * between 4 and 8, and the next one. nvfp4: for each half of the group the one of two scales with
 * the smaller squared error: those nearest to max |x| / 6 and max |x| / 4. A group depends on its
 * own numbers alone. False: a number is not finite, or too large for f16, or for scales of nvfp4.
 */
typedef bool hcg_quantiser(hir_dtype dtype, const hcg_rows *x, unsigned n, uint8_t *out);
hcg_quantiser hcg_quantise_rows;
/* Variant i of the code that this CPU can run; the first is the one that hcg_quantise_rows uses;
 * NULL: no more. All give the same bytes. */
hcg_quantiser *hcg_quantiser_of(size_t i, const char **name);

/* Rounds one group, or the groups of a row of k elements, ceil(k / HIR_GROUP) of them. */
bool hcg_quantise(hir_dtype dtype, const float x[HIR_GROUP], hcg_group *out);
bool hcg_quantise_row(hir_dtype dtype, const float *x, uint64_t k, hcg_group *out);
/* Fills up the last group of a row, of which n elements exist. */
void hcg_fill_group(const float *x, unsigned n, float out[HIR_GROUP]);
/* Element k of a group; exact. */
double hcg_group_at(hir_dtype dtype, const hcg_group *g, unsigned k);

/* The byte of a scale of nvfp4 that is this number of E4M3, positive. */
uint8_t hcg_small_scale(float scale);
/* Writes the factors of a panel's rows after its groups, if the type has any; `each` NULL: 1. */
void hcg_put_factors(hir_dtype dtype, const float each[HIR_PANEL], uint8_t *end);
/* The group of one row of a panel. */
void hcg_get_group(hir_dtype dtype, const uint8_t *panel_group, unsigned row, hcg_group *out);

#endif
