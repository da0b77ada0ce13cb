/* Weights in groups (codegen/weights/quant.h): how near they stay, where they lie, what is refused.
 * Values of every size by theories. */
#include <criterion/criterion.h>
#include <criterion/theories.h>
#include <math.h>
#include <string.h>

#include "codegen/weights/quant.h"
#include "ir/eval/random.h"
#include "support/packed.h"

static void draw(uint64_t seed, double mean, double deviation, float x[HIR_GROUP]) {
    hir_random r = hir_random_stream(seed, "group");
    for (int i = 0; i < HIR_GROUP; i++)
        x[i] = (float)(mean + deviation * hir_random_normal(&r));
}

static double largest(const float *x) {
    double most = 0;
    for (int i = 0; i < HIR_GROUP; i++)
        most = fmax(most, fabs((double)x[i]));
    return most;
}

static double squares(hir_dtype dtype, const hcg_group *g, const float *x) {
    double sum = 0;
    for (unsigned i = 0; i < HIR_GROUP; i++)
        sum += pow(hcg_group_at(dtype, g, i) - (double)x[i], 2);
    return sum;
}

TheoryDataPoints(quant, q8_is_near) = {
    DataPoints(int, 1, 2, 3, 4, 5, 6, 7),
    DataPoints(double, 0, 0.1, -3),
    DataPoints(double, 1e-5, 0.02, 1, 1000),
};

/* Half a step; where f16 rounds the step down, the largest is cut by up to 2^-11 of it; a step that
 * is a denormal of f16 has an error of up to 2^-25, 127 times. */
Theory((int seed, double mean, double deviation), quant, q8_is_near) {
    float x[HIR_GROUP];
    hcg_group g;
    draw((uint64_t)seed, mean, deviation, x);
    cr_assert(hcg_quantise(HIR_Q8, x, &g));
    double most = largest(x), bound = most / 127 * 0.501 + most * 0x1p-11 + 127 * 0x1p-25;
    for (unsigned i = 0; i < HIR_GROUP; i++)
        cr_assert_leq(fabs(hcg_group_at(HIR_Q8, &g, i) - (double)x[i]), bound);
}

TheoryDataPoints(quant, q4_is_no_worse_than_its_range) = {
    DataPoints(int, 1, 2, 3, 4, 5, 6, 7),
    DataPoints(double, 0, 0.1, -3),
    DataPoints(double, 1e-3, 0.02, 1, 1000),
};

/* The group of the range of x, rounded as the file rounds it, is among those tried. */
Theory((int seed, double mean, double deviation), quant, q4_is_no_worse_than_its_range) {
    float x[HIR_GROUP], least = INFINITY, most = -INFINITY;
    hcg_group g, plain;
    draw((uint64_t)seed, mean, deviation, x);
    cr_assert(hcg_quantise(HIR_Q4, x, &g));
    for (int i = 0; i < HIR_GROUP; i++)
        least = fminf(least, x[i]), most = fmaxf(most, x[i]);
    plain.scale = hd_f16_from_f64((double)((most - least) / 15));
    plain.least = hd_f16_from_f64((double)least);
    double s = (double)hd_f16_to_f32(plain.scale), m = (double)hd_f16_to_f32(plain.least);
    for (int i = 0; i < HIR_GROUP; i++)
        plain.q[i] = s > 0 ? (uint8_t)fmin(15, fmax(0, nearbyint(((double)x[i] - m) / s))) : 0;
    /* the search works in f32 */
    cr_assert_leq(squares(HIR_Q4, &g, x), squares(HIR_Q4, &plain, x) * (1 + 1e-5));
}

enum distribution { NORMAL, LAPLACE, UNIFORM, OUTLIERS, DISTRIBUTIONS };

static double number_from(enum distribution of, int i, hir_random *r) {
    const double even = (double)(hir_random_next(r) >> 12) * 0x1p-52 + 0x1p-53; /* in 0 .. 1 */
    switch (of) {
    case LAPLACE: return copysign(log(1 - 2 * fabs(even - 0.5)), even - 0.5);
    case UNIFORM: return even;
    case OUTLIERS: return hir_random_normal(r) * (i % 97 == 0 ? 20 : 1);
    default: return hir_random_normal(r);
    }
}

/* Root mean square of the error over that of the weights. */
static double error_of(hir_dtype dtype, enum distribution of) {
    double error = 0, all = 0;
    hir_random r = hir_random_stream(of, "errors");
    for (int group = 0; group < 4000; group++) {
        float x[HIR_GROUP];
        hcg_group g;
        for (int i = 0; i < HIR_GROUP; i++) {
            x[i] = (float)(0.03 * number_from(of, HIR_GROUP * group + i, &r));
            all += (double)x[i] * (double)x[i];
        }
        cr_assert(hcg_quantise(dtype, x, &g));
        error += squares(dtype, &g, x);
    }
    return sqrt(error / all);
}

/* Bounds are some 1 % above what is measured: an error that grows is seen. */
Test(quant, error_by_distribution) {
    static const struct {
        const char *of;
        double q8, q4, mxfp4, nvfp4;
    } bounds[DISTRIBUTIONS] = {[NORMAL] = {"normal", 0.0053, 0.0716, 0.1127, 0.0879},
                               [LAPLACE] = {"laplace", 0.0068, 0.0856, 0.1234, 0.0879},
                               [UNIFORM] = {"uniform", 0.0038, 0.0279, 0.1056, 0.0872},
                               [OUTLIERS] = {"outliers", 0.0117, 0.0970, 0.1673, 0.0899}};
    for (int of = NORMAL; of < DISTRIBUTIONS; of++) {
        const double most[] = {[HIR_Q8] = bounds[of].q8,
                               [HIR_Q4] = bounds[of].q4,
                               [HIR_MXFP4] = bounds[of].mxfp4,
                               [HIR_NVFP4] = bounds[of].nvfp4};
        for (int d = HIR_Q8; d <= HIR_NVFP4; d++) {
            const double found = error_of((hir_dtype)d, (enum distribution)of);
            cr_expect_leq(found, most[d], "%s, %s: %g", bounds[of].of, hir_dtype_name((hir_dtype)d),
                          found);
        }
    }
}

/* Everything that MXFP4 has is exact in it: every scale that f32 holds the numbers of, and groups
 * of any of the codes, the large ones left out as well. */
Test(quant, mxfp4_is_exact) {
    for (int scale = 0; scale <= 252; scale++)
        for (unsigned most = 0; most < 8; most++) {
            float x[HIR_GROUP];
            hcg_group g;
            for (unsigned i = 0; i < HIR_GROUP; i++) {
                const unsigned code = i * 5 % (most + 1) + i / 3 % 2 * 8;
                x[i] = hd_from_e2m1((uint8_t)code) * hd_from_e8m0((uint8_t)scale);
            }
            cr_assert(hcg_quantise(HIR_MXFP4, x, &g));
            for (unsigned i = 0; i < HIR_GROUP; i++)
                cr_assert_eq(hcg_group_at(HIR_MXFP4, &g, i), (double)x[i], "scale %d", scale);
        }
}

/* Everything that NVFP4 has is exact in nvfp4: every scale of E4M3, with groups of any of the
 * codes, and two halves that differ. */
Test(quant, nvfp4_is_exact) {
    for (unsigned scale = 1; scale < 127; scale++)
        for (unsigned most = 0; most < 8; most++) {
            float x[HIR_GROUP];
            hcg_group g;
            for (unsigned i = 0; i < HIR_GROUP; i++) {
                const unsigned code = i * 5 % (most + 1) + i / 3 % 2 * 8;
                const unsigned of = i < HIR_GROUP / 2 ? scale : 127 - scale;
                x[i] = hd_from_e2m1((uint8_t)code) * hd_from_e4m3((uint8_t)of);
            }
            cr_assert(hcg_quantise(HIR_NVFP4, x, &g));
            for (unsigned i = 0; i < HIR_GROUP; i++)
                cr_assert_eq(hcg_group_at(HIR_NVFP4, &g, i), (double)x[i], "scale %u", scale);
        }
    for (unsigned scale = 1; scale < 127; scale++) {
        const hcg_group g = {
            .scale = hcg_small_scale(hd_from_e4m3((uint8_t)scale)), .q = {2}, .factor = 0.3};
        cr_expect_eq(hcg_group_at(HIR_NVFP4, &g, 0), (double)hd_from_e4m3((uint8_t)scale) * 0.3,
                     "scale %u", scale);
    }
}

/* The largest number that nvfp4 holds without a factor, and numbers below the least scale. */
Test(quant, ends_of_nvfp4) {
    float x[HIR_GROUP] = {92160, [20] = 0x1p-30f};
    hcg_group g;
    cr_assert(hcg_quantise(HIR_NVFP4, x, &g));
    cr_expect_eq(hcg_group_at(HIR_NVFP4, &g, 0), 92160);
    cr_expect_eq(hcg_group_at(HIR_NVFP4, &g, 20), 0);
    x[20] = 0x1p-18f;
    cr_assert(hcg_quantise(HIR_NVFP4, x, &g));
    cr_expect_eq(hcg_group_at(HIR_NVFP4, &g, 20), 0x1p-18);
    x[0] = 1e5f;
    cr_expect_not(hcg_quantise(HIR_NVFP4, x, &g));
    x[0] = NAN;
    cr_expect_not(hcg_quantise(HIR_NVFP4, x, &g));
}

/* Nearest of the numbers there are, where one scale serves: 6 is there, so that units are 1. */
Test(quant, mxfp4_rounds_to_nearest_even) {
    static const float cases[][2] = {
        {0.25f, 0}, {0.26f, .5f}, {0.75f, 1}, {1.25f, 1}, {1.26f, 1.5f}, {1.75f, 2},   {2.5f, 2},
        {2.51f, 3}, {3.5f, 4},    {5, 4},     {5.1f, 6},  {-5.1f, -6},   {-0.75f, -1}, {-2.5f, -2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float x[HIR_GROUP] = {6, cases[c][0]};
        hcg_group g;
        cr_assert(hcg_quantise(HIR_MXFP4, x, &g));
        cr_expect_eq(hcg_group_at(HIR_MXFP4, &g, 1), (double)cases[c][1], "%g",
                     (double)cases[c][0]);
    }
}

Test(quant, groups_of_one_number) {
    static const float values[] = {0, -0.0f, 1, -2.5f, 1024};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        float x[HIR_GROUP];
        hcg_group g;
        for (int i = 0; i < HIR_GROUP; i++)
            x[i] = values[v];
        cr_assert(hcg_quantise(HIR_Q4, x, &g));
        for (unsigned i = 0; i < HIR_GROUP; i++)
            cr_assert_eq(hcg_group_at(HIR_Q4, &g, i), (double)values[v]);
        cr_assert(hcg_quantise(HIR_Q8, x, &g));
        for (unsigned i = 0; i < HIR_GROUP; i++)
            cr_assert(fabs(hcg_group_at(HIR_Q8, &g, i) - (double)values[v]) <=
                      fabs((double)values[v]) * 0x1p-11);
    }
}

Test(quant, numbers_that_do_not_fit_are_rejected) {
    static const struct {
        float value;
        bool q8, q4;
    } cases[] = {{NAN, false, false},   {INFINITY, false, false}, {-INFINITY, false, false},
                 {1e30f, false, false}, {9e6f, false, false},     {8e6f, true, true},
                 {-8e6f, true, false},  {65000, true, true},      {-65000, true, true}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float x[HIR_GROUP] = {[7] = cases[c].value};
        hcg_group g;
        bool q4_range = cases[c].value <= 65504 * 15.0f; /* its step must be an f16 too */
        cr_expect_eq(hcg_quantise(HIR_Q8, x, &g), cases[c].q8, "%g", (double)cases[c].value);
        cr_expect_eq(hcg_quantise(HIR_Q4, x, &g), cases[c].q4 && q4_range, "%g",
                     (double)cases[c].value);
    }
}

/* A row whose end is no whole group: what is beyond is nobody's, and does not spoil what is not. */
Test(quant, rows_of_any_length) {
    static const float five[] = {0.5f, -0.25f, 0.75f, 0.5f, -1};
    hcg_group g[3];
    for (int d = HIR_Q8; d <= HIR_NVFP4; d++) {
        float x[65];
        for (int i = 0; i < 65; i++)
            x[i] = 10 + five[i % 5]; /* far from 0, which would widen the range */
        for (uint64_t k = 1; k <= 65; k++) {
            cr_assert(hcg_quantise_row((hir_dtype)d, x, k, g));
            for (uint64_t i = 0; i < k; i++) {
                double w = hcg_group_at((hir_dtype)d, &g[i / HIR_GROUP], i % HIR_GROUP);
                cr_assert(fabs(w - (double)x[i]) < (hcg_is_fp4((hir_dtype)d) ? 2 : 0.08),
                          "%lu of %lu: %g", i, k, w);
            }
        }
    }
}

/* ---- places ---------------------------------------------------------------------------------- */
/* By the words of quant.h, not by the code of quant.c. */
static unsigned stored(hir_dtype dtype, const uint8_t *group, unsigned n, unsigned k) {
    if (dtype == HIR_Q8) return group[32 + k / 4 * 64 + n * 4 + k % 4];
    unsigned byte = group[(dtype == HIR_Q4      ? 64
                           : dtype == HIR_NVFP4 ? 32
                                                : 16) +
                          k / 8 * 64 + n * 4 + k % 4];
    return k % 8 < 4 ? byte & 15 : byte >> 4;
}

Test(quant, places_in_a_panel) {
    cr_expect_eq(hcg_group_bytes(HIR_Q8), 32 + 16 * 32);
    cr_expect_eq(hcg_group_bytes(HIR_Q4), 64 + 16 * 32 / 2);
    cr_expect_eq(hcg_group_bytes(HIR_MXFP4), 16 + 16 * 32 / 2);
    cr_expect_eq(hcg_group_bytes(HIR_NVFP4), 2 * 16 + 16 * 32 / 2);
    for (int d = HIR_Q8; d <= HIR_NVFP4; d++) {
        hir_dtype dtype = (hir_dtype)d;
        uint8_t panel[HCG_Q8_GROUP + 1] = {[HCG_Q8_GROUP] = 77};
        panel[hcg_group_bytes(dtype)] = 77;
        hcg_group g[HIR_PANEL], back;
        float x[HIR_PANEL][HIR_GROUP];
        for (unsigned n = 0; n < HIR_PANEL; n++) {
            draw(n + 9, 0.01, 0.1, x[n]);
            cr_assert(hcg_quantise(dtype, x[n], &g[n]));
        }
        const hcg_rows rows = hcg_rows_of(*x, HIR_GROUP);
        cr_assert(hcg_quantise_rows(dtype, &rows, HIR_PANEL, panel));
        cr_expect_eq(panel[hcg_group_bytes(dtype)], 77);
        for (unsigned n = 0; n < HIR_PANEL; n++) {
            hcg_get_group(dtype, panel, n, &back);
            cr_expect_eq(memcmp(back.q, g[n].q, sizeof back.q), 0);
            cr_expect(back.scale == g[n].scale && back.least == g[n].least);
            const unsigned size = hcg_is_fp4(dtype) ? 1 : 2;
            cr_expect_eq(memcmp(panel + size * n, &g[n].scale, size), 0);
            if (dtype == HIR_NVFP4) cr_expect_eq(panel[HIR_PANEL + n], g[n].least);
            for (unsigned k = 0; k < HIR_GROUP; k++)
                cr_assert_eq(stored(dtype, panel, n, k), g[n].q[k]);
        }
    }
}

/* ---- forms ----------------------------------------------------------------------------------- */
/* Rows of every kind: of one number, near nothing, near the ends of f16, of a few large numbers,
 * far from 0, denormal. */
static float number_of(unsigned kind, hir_random *r) {
    const double x = hir_random_normal(r);
    switch (kind) {
    case 0: return (float)(0.03 * x);
    case 1: return (float)(0.5 + 1e-4 * x);
    case 2: return -3;
    case 3: return (float)(1e-8 * x);
    case 4: return (float)(x > 1.5 ? 100 * x : 0.02 * x);
    case 5: return (float)(1e4 * x);
    case 6: return (float)(1e-40 * x);
    case 7: return x < 0 ? -0.0f : 0;
    default: return (float)(rint(4 * x) / 4); /* ties */
    }
}

static void compare_forms(hcg_quantiser *form, const char *name, hir_dtype dtype, const hcg_rows *x,
                          unsigned rows) {
    uint8_t one[HCG_MOST_GROUP], other[HCG_MOST_GROUP];
    memset(one, 1, sizeof one), memset(other, 2, sizeof other);
    cr_assert(hcg_quantise_rows(dtype, x, rows, one));
    cr_assert(form(dtype, x, rows, other));
    cr_assert_eq(memcmp(one, other, hcg_group_bytes(dtype)), 0, "%s, %s, %u rows", name,
                 hir_dtype_name(dtype), rows);
    for (unsigned n = rows; n < HIR_PANEL; n++)
        for (unsigned k = 0; k < HIR_GROUP; k++)
            cr_assert_eq(stored(dtype, other, n, k), 0, "%s: row %u of %u", name, n, rows);
}

Test(quant, all_forms_give_the_same_bytes) {
    enum { STRIDE = HIR_GROUP + 3, KINDS = 9, TRIES = 200 };
    hir_random r = hir_random_stream(3, "forms");
    hcg_quantiser *form;
    const char *name;
    for (unsigned i = 0; i < TRIES; i++) {
        float x[HIR_PANEL * STRIDE];
        for (unsigned n = 0; n < HIR_PANEL; n++)
            for (unsigned k = 0; k < STRIDE; k++)
                x[n * STRIDE + k] = k < HIR_GROUP ? number_of((i + n) % KINDS, &r) : NAN;
        const hcg_rows rows = hcg_rows_of(x, STRIDE);
        for (size_t f = 0; (form = hcg_quantiser_of(f, &name)); f++)
            for (int d = HIR_Q8; d <= HIR_NVFP4; d++)
                compare_forms(form, name, (hir_dtype)d, &rows, i % HIR_PANEL + 1);
    }
}

/* Rows as a checkpoint has them, at any address: the bytes are those of the same numbers in f32. */
enum { BYTES = 2 * HIR_GROUP + 3 }; /* of a row, and three that are none of it */

static float widened(hd_tensor_dtype dtype, const uint8_t *at, unsigned k) {
    uint16_t half;
    memcpy(&half, at + 2 * k, sizeof half);
    if (dtype == HD_T_F8_E4M3) return hd_from_e4m3(at[k]);
    return dtype == HD_T_BF16 ? hd_bf16_to_f32(half) : hd_f16_to_f32(half);
}

static void compare_stored(hd_tensor_dtype dtype, const uint8_t *at, const float *scale,
                           unsigned n) {
    hcg_quantiser *form;
    const char *name;
    float x[HIR_PANEL * HIR_GROUP];
    uint8_t one[HCG_MOST_GROUP], other[HCG_MOST_GROUP];
    for (unsigned i = 0; i < n * HIR_GROUP; i++)
        x[i] = widened(dtype, at + i / HIR_GROUP * BYTES, i % HIR_GROUP) *
               (scale ? scale[i / HIR_GROUP] : 1);
    const hcg_rows stored = {.at = at, .stride = BYTES, .dtype = dtype, .scale = scale};
    const hcg_rows wide = hcg_rows_of(x, HIR_GROUP);
    for (int d = HIR_Q8; d <= HIR_NVFP4; d++) {
        const bool ok = hcg_quantise_rows((hir_dtype)d, &wide, n, one);
        for (size_t f = 0; (form = hcg_quantiser_of(f, &name)); f++) {
            cr_assert_eq(form((hir_dtype)d, &stored, n, other), ok, "%s from %s", name,
                         hd_tensor_dtype_name(dtype));
            if (ok)
                cr_assert_eq(memcmp(one, other, hcg_group_bytes((hir_dtype)d)), 0,
                             "%s from %s to %s", name, hd_tensor_dtype_name(dtype),
                             hir_dtype_name((hir_dtype)d));
        }
    }
}

/* Numbers of every size, denormal ones as well; bits at random, of which some are no numbers. */
Test(quant, rows_as_they_are_stored) {
    static const hd_tensor_dtype dtypes[] = {HD_T_BF16, HD_T_F16, HD_T_F8_E4M3};
    hir_random r = hir_random_stream(5, "stored rows");
    for (unsigned i = 0; i < 600; i++) {
        const hd_tensor_dtype dtype = dtypes[i % 3];
        uint8_t at[1 + HIR_PANEL * BYTES];
        float scale[HIR_PANEL];
        for (unsigned b = 0; b < sizeof at; b++)
            at[b] = (uint8_t)(hir_random_next(&r) >> 40);
        for (unsigned n = 0; n < HIR_PANEL; n++) {
            uint8_t *row = at + 1 + n * BYTES;
            scale[n] = (float)(0.01 * hir_random_normal(&r));
            for (unsigned k = 0; k < HIR_GROUP && i % 5; k++) {
                const float x = number_of((i / 15 + n) % 9, &r);
                const uint16_t half = dtype == HD_T_F16 ? hd_f16_from_f32(x) : hd_bf16_from_f32(x);
                if (dtype == HD_T_F8_E4M3)
                    row[k] &= (uint8_t)(k % 7 ? 0xfe : 0x87); /* no NaN; some are denormal */
                else
                    memcpy(row + 2 * k, &half, sizeof half);
            }
        }
        compare_stored(dtype, at + 1, dtype == HD_T_F8_E4M3 ? scale : NULL, i % HIR_PANEL + 1);
    }
}

/* A number that is none, in any row and place, is seen by each form; beyond the rows it is not. */
Test(quant, all_forms_reject) {
    hcg_quantiser *form;
    const char *name;
    for (size_t f = 0; (form = hcg_quantiser_of(f, &name)); f++)
        for (int d = HIR_Q8; d <= HIR_NVFP4; d++)
            for (unsigned at = 0; at < HIR_PANEL * HIR_GROUP; at++) {
                float x[HIR_PANEL * HIR_GROUP] = {0};
                uint8_t out[HCG_MOST_GROUP];
                const unsigned row = at / HIR_GROUP;
                x[at] = at % 3 == 0 ? NAN : at % 3 == 1 ? INFINITY : -INFINITY;
                const hcg_rows rows = hcg_rows_of(x, HIR_GROUP);
                cr_assert_not(form((hir_dtype)d, &rows, row + 1, out), "%s at %u", name, at);
                cr_assert(form((hir_dtype)d, &rows, row, out), "%s at %u", name, at);
            }
}
