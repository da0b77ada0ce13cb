/* Weights in NVFP4: codes in E2M1, two in a byte as in MXFP4 (mxfp4.c), a scale in E4M3 for 16
 * columns of a row, and a factor for the whole matrix. Stored in three ways; [E] stands before the
 * dims of stacked matrices, which have a factor each or one for all:
 *
 *     codes             U8 [out, in/2]     NAME.weight_packed   NAME.weight      P_weight
 *     scales       F8_E4M3 [out, in/16]    NAME.weight_scale    .weight_scale    P_weight_scale
 *     factor           F32 [], [1], [E]                         .weight_scale_2  P_weight_amax
 *     divisor          F32 [], [1], [E]    .weight_global_scale
 *                                                         P_weight_outer_scale_denominator
 *
 * They are those of compressed-tensors ("nvfp4-pack-quantized"), of ModelOpt, and of Inkling 2
 * Mini, which has MXFP8 in other tensors (e4m3.c).
 *
 *     W[r, c] = E2M1(code) E4M3(scale[r, c/16]) factor / divisor
 *
 * The product of a code and a scale has six significant bits, and the factor 24: that of all three
 * is exact in f64. */
#include <math.h>

#include "support/packed/reader.h"

enum { GROUP = 16 };

static const struct form {
    const char *codes, *factor, *divisor; /* suffixes; NULL: it has none */
    bool renamed;                         /* the weight is called MODULE.weight */
} forms[] = {
    {".weight_packed", NULL, ".weight_global_scale", true},
    {".weight", ".weight_scale_2", NULL, false},
    {"_weight", "_weight_amax", "_weight_outer_scale_denominator", false},
};

/* ---- what makes it another format ---------------------------------------------------------- */

/* Tensors of a module with which its weight would be another number, or its inputs. */
static const struct {
    const char *suffix, *why;
} foreign[] = {
    {".weight_zero_point", "NVFP4 has no zero points"},
    {".weight_g_idx", "columns of NVFP4 lie in the order of their groups"},
    {".pre_quant_scale", "inputs would be scaled channel by channel (NVFP4_AWQ)"},
    {".svdquant_lora_a", "a part of the weight would be a product of two matrices (NVFP4_SVD)"},
    {".svdquant_lora_b", "a part of the weight would be a product of two matrices (NVFP4_SVD)"},
};

static bool check_module(hd_unpacking *u, const char *module) {
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        const hd_tensor *t = hd_part(u, module, foreign[i].suffix);
        if (!t) continue;
        hd_part_fault(u, t, "belongs to a weight in NVFP4, where it cannot be honoured")->cause =
            foreign[i].why;
        return false;
    }
    return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Factors of matrices: one for all, or one for each. They are not negative, and what divides is not
 * zero. */
static bool check_factor(hd_unpacking *u, const hd_packed *p, const hd_tensor *f, bool divides) {
    const uint64_t matrices = p->codes->rank == 3 ? (uint64_t)p->codes->shape[0] : 1;
    if (!f) return true;
    if (f->dtype != HD_T_F32 || f->rank > 1 || (f->elements != 1 && f->elements != matrices)) {
        hd_part_fault(u, f, "is %s, not F32 with one number%s", hd_type_text(u, f),
                      matrices > 1 ? ", or one for each matrix" : "");
        return false;
    }
    for (uint64_t i = 0; i < f->elements; i++) {
        const double x = hd_tensor_get(f, i);
        if (isfinite(x) && (divides ? x > 0 : x >= 0)) continue;
        hd_part_fault(u, f, "holds %g, and NVFP4 is %s a positive number", x,
                      divides ? "divided by" : "multiplied by");
        return false;
    }
    return true;
}

static bool check_parts(hd_unpacking *u, hd_packed *p) {
    const hd_tensor *t = p->codes;
    const uint32_t leading = t->rank == 3;
    if ((t->rank != 2 && t->rank != 3) || t->elements == 0 ||
        t->shape[t->rank - 1] > INT64_MAX / 2) {
        hd_part_fault(u, t, "is %s; what is read quantised are matrices, or stacks of them",
                      hd_type_text(u, t));
        return false;
    }
    p->rows = (uint64_t)t->shape[leading], p->cols = (uint64_t)t->shape[leading + 1] * 2;
    if (p->scales->dtype != HD_T_F8_E4M3) {
        hd_part_fault(u, p->scales, "is %s; scales of NVFP4 are F8_E4M3",
                      hd_type_text(u, p->scales));
        return false;
    }
    if (p->cols % GROUP) {
        hd_part_fault(u, t, "has rows of %llu weights, which is no multiple of 16",
                      (unsigned long long)p->cols);
        return false;
    }
    return hd_check_scales(u, p, leading) && check_factor(u, p, p->factor, false) &&
           check_factor(u, p, p->divisor, true);
}

/* Is there a part of the tensor, one that is none of MXFP4's? */
static bool is_nvfp4(const hd_packed *p) {
    return p->factor || p->divisor || (p->scales && p->scales->dtype == HD_T_F8_E4M3);
}

static bool read_as(hd_unpacking *u, const hd_tensor *t, const struct form *f) {
    const hd_quant_group *group;
    hd_packed p = {.packing = HD_PACKING_NVFP4, .codes = t, .tile = {1, GROUP}};
    const char *stem = hd_stem(u, t, f->codes), *scales = f->renamed ? ".weight" : f->codes;
    scales = hd_printf(u->a, "%s_scale", scales);
    p.scales = hd_tensors_find(u->stored, hd_printf(u->a, "%s%s", stem, scales));
    if (f->factor) p.factor = hd_tensors_find(u->stored, hd_printf(u->a, "%s%s", stem, f->factor));
    if (f->divisor)
        p.divisor = hd_tensors_find(u->stored, hd_printf(u->a, "%s%s", stem, f->divisor));
    if (!is_nvfp4(&p)) return false;
    hd_part(u, stem, scales);
    if (p.factor) hd_part(u, stem, f->factor);
    if (p.divisor) hd_part(u, stem, f->divisor);
    if (!p.scales) return hd_reject_missing(u, t, "its scales", stem, scales);
    if (f->factor && !p.factor) return hd_reject_missing(u, t, "its factors", stem, f->factor);
    if (f->divisor && !p.divisor) return hd_reject_missing(u, t, "its factors", stem, f->divisor);
    const bool in_module = *f->codes == '.';
    const char *module = in_module ? stem : t->name;
    const hd_tensor *shape = in_module ? hd_part(u, stem, ".weight_shape") : NULL;
    if (in_module) hd_drop_activations(u, module);
    if (hd_ask_config(u, t, module, p.packing, &group) && (!in_module || check_module(u, module)) &&
        check_parts(u, &p) && hd_check_halves(u, &p, shape))
        hd_add_packed(u, f->renamed ? hd_printf(u->a, "%s.weight", stem) : t->name, &p,
                      t->rank == 3, HD_T_F64);
    return true;
}

bool hd_read_nvfp4(hd_unpacking *u, const hd_tensor *t) {
    for (size_t i = 0; t->dtype == HD_T_U8 && i < sizeof forms / sizeof *forms; i++)
        if (hd_has_suffix(t->name, forms[i].codes) && read_as(u, t, &forms[i])) return true;
    return false;
}
