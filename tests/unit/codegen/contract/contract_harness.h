/* For tests of contractions: x as the back end of a matrix rounds it, written a second time. */
#ifndef CONTRACT_HARNESS_H
#define CONTRACT_HARNESS_H

#include <math.h>

#include "codegen/matmul/backend.h"
#include "tests/unit/codegen/emit_harness.h"

/* What a level's back end rounds x to: HCG_ROUND_*. The same for one token and for many. */
static inline unsigned rounds_of(const hcg_level *level, unsigned exact, hir_dtype dtype,
                                 hir_layout layout) {
    const hcg_backend_row *one = hcg_choose_backend(level, exact, dtype, layout, HCG_FOR_DECODE);
    const hcg_backend_row *many = hcg_choose_backend(level, exact, dtype, layout, HCG_FOR_PREFILL);
    if (one && many && one->rounds == many->rounds) return one->rounds;
    fprintf(stderr, "%s: prefill and decode of %s mean different things\n", level->name,
            hir_dtype_name(dtype));
    exit(1);
}

/* A group of a row, rounded to bytes with a scale of its own. */
static inline void group_as_int8(const float *x, int64_t n, double *out) {
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < n; i++)
        out[i] = most < 1e-30f
                     ? 0
                     : (double)(most * (float)(1.0 / 127)) * (double)rintf(x[i] * (127 / most));
}

/* What a back end makes of numbers. */
typedef struct seen_as {
    unsigned x;        /* what it rounds x to: HCG_ROUND_* */
    bool weights_bf16; /* the weights are rounded to bf16 (matmul/backends/amx/bf16.c) */
} seen_as;

/* In a call of so many tokens. */
static inline seen_as seen_by(const hcg_level *level, unsigned exact, hir_dtype dtype,
                              hir_layout layout, int64_t tokens) {
    const hcg_backend_row *many = hcg_choose_backend(level, exact, dtype, layout, HCG_FOR_PREFILL);
    const seen_as plain = {rounds_of(level, exact, dtype, layout), false};
    const bool pairs = strcmp(many->backend->name, "amx_groups") == 0;
    if (!pairs || tokens < (int64_t)level->machine.unit_rows) return plain;
    /* nvfp4: codes times scales are bf16, and sums are multiplied by the factors of rows */
    return (seen_as){HCG_ROUND_BF16, dtype != HIR_NVFP4};
}

/* A row of x as it is multiplied. */
static inline void round_row(seen_as s, const float *row, int64_t k, double *out) {
    if (s.x == HCG_ROUND_INT8) {
        for (int64_t i = 0; i < k; i += HIR_GROUP)
            group_as_int8(row + i, k - i < HIR_GROUP ? k - i : HIR_GROUP, out + i);
        return;
    }
    const bool bf16 = s.x == HCG_ROUND_BF16;
    for (int64_t i = 0; i < k; i++)
        out[i] = (double)(bf16 ? hd_bf16_to_f32(hd_bf16_from_f32(row[i])) : row[i]);
}

/* To nearest, of two the larger one. */
static inline double rounded_w(seen_as s, float w) {
    uint32_t bits;
    if (!s.weights_bf16) return (double)w;
    memcpy(&bits, &w, sizeof bits);
    bits = (bits + 0x8000) & 0xffff0000;
    memcpy(&w, &bits, sizeof bits);
    return (double)w;
}

#endif
