/* Groups of weights in a panel (quant.h): which code rounds them, and where their parts lie. */
#include "codegen/weights/quant.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "codegen/weights/lanes/forms.h"
#include "runtime/detect.h"
#include "runtime/hadal_rt.h"
#include "support/packed.h"

/* ---- rounding -------------------------------------------------------------------------------- */
#if defined(__x86_64__)
/* CPUID is executed once: under a hypervisor it takes microseconds. */
static uint64_t features_here(void) {
    static atomic_uint_least64_t known;
    const uint64_t asked = UINT64_C(1) << 63;
    if (!(known & asked)) known = hrt_detect(hrt_cpuid_here()).features | asked;
    return known;
}

static bool has(uint64_t features) {
    return (features_here() & features) == features;
}
#endif

hcg_quantiser *hcg_quantiser_of(size_t i, const char **name) {
    const struct {
        const char *name;
        hcg_quantiser *quantise;
        bool runs;
    } forms[] = {
#define F(name, runs) {#name, hcg_quantise_##name, runs},
#include "codegen/weights/lanes/forms.def"
#undef F
    };
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        if (!forms[f].runs || i-- > 0) continue;
        if (name) *name = forms[f].name;
        return forms[f].quantise;
    }
    return NULL;
}

bool hcg_quantise_rows(hir_dtype dtype, const hcg_rows *x, unsigned n, uint8_t *out) {
    return hcg_quantiser_of(0, NULL)(dtype, x, n, out);
}

hcg_rows hcg_rows_of(const float *x, uint64_t stride) {
    return (hcg_rows){.at = (const uint8_t *)x, .stride = stride * sizeof *x, .dtype = HD_T_F32};
}

bool hcg_quantise(hir_dtype dtype, const float x[HIR_GROUP], hcg_group *out) {
    uint8_t panel[HCG_MOST_GROUP];
    const hcg_rows row = hcg_rows_of(x, HIR_GROUP);
    if (!hcg_quantise_rows(dtype, &row, 1, panel)) return false;
    hcg_get_group(dtype, panel, 0, out);
    return true;
}

/* Rounds as many groups of the row at a time as a panel has rows. */
bool hcg_quantise_row(hir_dtype dtype, const float *x, uint64_t k, hcg_group *out) {
    uint8_t panel[HCG_MOST_GROUP];
    for (uint64_t groups = k / HIR_GROUP, n; groups > 0; groups -= n) {
        n = groups < HIR_PANEL ? groups : HIR_PANEL;
        const hcg_rows some = hcg_rows_of(x, HIR_GROUP);
        if (!hcg_quantise_rows(dtype, &some, (unsigned)n, panel)) return false;
        for (unsigned i = 0; i < n; i++)
            hcg_get_group(dtype, panel, i, out++);
        x += n * HIR_GROUP;
    }
    if (k % HIR_GROUP == 0) return true;
    float part[HIR_GROUP];
    hcg_fill_group(x, (unsigned)(k % HIR_GROUP), part);
    return hcg_quantise(dtype, part, out);
}

void hcg_fill_group(const float *x, unsigned n, float out[HIR_GROUP]) {
    for (unsigned i = 0; i < HIR_GROUP; i++)
        out[i] = x[i % n];
}

/* ---- places ---------------------------------------------------------------------------------- */
/* The number of such a byte (program/packed.h). */
static double small_scale(unsigned byte) {
    return ldexp(8 + byte % 8, (int)byte / 8 - (HCG_E5M3_ONE >> 3) - 3);
}

uint8_t hcg_small_scale(float scale) {
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    return (uint8_t)((bits >> HCG_E5M3_SHIFT) - (HCG_E5M3_LEAST << 3));
}

void hcg_put_factors(hir_dtype dtype, const float each[HIR_PANEL], uint8_t *end) {
    for (unsigned row = 0; row < HIR_PANEL && hcg_panel_end(dtype); row++) {
        const float f = each ? each[row] : 1;
        memcpy(end + row * sizeof f, &f, sizeof f);
    }
}

double hcg_group_at(hir_dtype dtype, const hcg_group *g, unsigned k) {
    if (dtype == HIR_NVFP4)
        return (double)hd_from_e2m1(g->q[k]) *
               small_scale(k < HIR_GROUP / 2 ? g->scale : g->least) * g->factor;
    if (dtype == HIR_MXFP4)
        return (double)hd_from_e2m1(g->q[k]) * (double)hd_from_e8m0((uint8_t)g->scale);
    double s = (double)hd_f16_to_f32(g->scale), m = (double)hd_f16_to_f32(g->least);
    return dtype == HIR_Q8 ? s * (g->q[k] - 128) : s * g->q[k] + m;
}

/* Byte and shift of element k of a row in the integers of a panel's group. */
static size_t place_of(hir_dtype dtype, unsigned row, unsigned k, unsigned *shift) {
    unsigned per_block = hcg_group_per_block(dtype);
    *shift = per_block == 8 && k % 8 >= 4 ? 4 : 0;
    return hcg_group_first(dtype) + (k / per_block) * 64 + row * 4 + k % 4;
}

void hcg_get_group(hir_dtype dtype, const uint8_t *panel_group, unsigned row, hcg_group *out) {
    out->scale = panel_group[row];
    if (!hcg_is_fp4(dtype)) memcpy(&out->scale, panel_group + 2 * row, 2);
    out->least = dtype == HIR_NVFP4 ? panel_group[HIR_PANEL + row] : 0;
    out->factor = 1;
    if (dtype == HIR_Q4) memcpy(&out->least, panel_group + 2 * (HIR_PANEL + row), 2);
    for (unsigned k = 0; k < HIR_GROUP; k++) {
        unsigned shift;
        size_t at = place_of(dtype, row, k, &shift);
        out->q[k] = dtype == HIR_Q8 ? panel_group[at] : panel_group[at] >> shift & 15;
    }
}
