/* Weights in MXFP4: E2M1 (a sign, 2 bits of exponent, 1 of mantissa), two in a byte, the even
 * column in its low half; 32 columns of a row share a power of two, E8M0. Stored in three ways:
 *
 *     NAME.weight_packed U8 [out, in/2]          compressed-tensors, "mxfp4-pack-quantized"
 *     NAME.weight_scale  U8 [out, in/32]
 *
 *     P_blocks U8 [E, out, in/32, 16]            gpt_oss, "mxfp4"
 *     P_scales U8 [E, out, in/32]
 *
 *     NAME.weight I8 or U8 [out, in/2]           DeepSeek-V4, next to fp8
 *     NAME.scale  F8_E8M0 or U8 [out, in/32]
 *
 * All three lay out their bytes in the same way. An unquantised checkpoint has the second as P [E,
 * in, out]: its matrices are transposed here, so that a name has the same shape in both. */
#include "support/packed/reader.h"

enum { GROUP = 32 };

/* The size of a code with exponent e and mantissa m: m / 2 where e is 0, else (2 + m) 2^(e - 2). */
#define EXPONENT(c) ((c) >> 1 & 3)
#define MANTISSA(c) ((c)&1)
#define SIZE(c)     ((float)(EXPONENT(c) ? (2 + MANTISSA(c)) << EXPONENT(c) : 2 * MANTISSA(c)) / 4)
#define NUMBER(c)   ((c)&8 ? -SIZE(c) : SIZE(c))
#define PAIR(c)     HD_PAIR(NUMBER, c)

static const float numbers[16] = {HD_TABLE_16(NUMBER)};
static const float pairs[256][2] = {HD_TABLE_256(PAIR)};

float hd_from_e2m1(uint8_t code) {
    return numbers[code & 15];
}

void hd_codes_mxfp4(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float scale,
                    float *out) {
    hd_codes_of_halves(p->codes->data + row * (p->cols / 2), col, n, pairs, out);
    for (uint64_t i = 0; i < n; i++)
        out[i] *= scale;
}

/* The part that all readers share; the codes have `leading` dims before the matrix. */
static void add(hd_unpacking *u, hd_packed *p, const char *name, const char *module,
                uint32_t leading) {
    const hd_quant_group *group;
    p->packing = HD_PACKING_MXFP4;
    p->tile = (hd_tile){1, GROUP};
    if (!hd_ask_config(u, p->codes, module, p->packing, &group)) return;
    if (!hd_is_e8m0(p->scales)) {
        hd_part_fault(u, p->scales, "is %s; scales of MXFP4 are U8 or F8_E8M0",
                      hd_type_text(u, p->scales));
    } else if (p->cols % GROUP) {
        hd_part_fault(u, p->codes, "has rows of %llu weights, which is no multiple of 32",
                      (unsigned long long)p->cols);
    } else if (hd_check_scales(u, p, leading)) {
        hd_add_packed(u, name, p, leading, HD_T_F32);
    }
}

/* ---- compressed-tensors -------------------------------------------------------------------- */

bool hd_check_halves(hd_unpacking *u, const hd_packed *p, const hd_tensor *shape) {
    if (!shape) return true;
    const bool numbers_ = shape->dtype == HD_T_I64 || shape->dtype == HD_T_I32;
    if (numbers_ && shape->rank == 1 && shape->shape[0] == 2 &&
        hd_tensor_get(shape, 0) == (double)p->rows && hd_tensor_get(shape, 1) == (double)p->cols)
        return true;
    hd_part_fault(u, shape, "contradicts the shape of the codes")->cause =
        hd_printf(u->a, "they are %s: two weights in a byte", hd_type_text(u, p->codes));
    return false;
}

bool hd_read_mxfp4(hd_unpacking *u, const hd_tensor *t) {
    const char *end = ".weight_packed";
    if (t->dtype != HD_T_U8 || !hd_has_suffix(t->name, end)) return false;
    const char *module = hd_stem(u, t, end);
    hd_packed p = {.codes = t, .scales = hd_part(u, module, ".weight_scale")};
    const hd_tensor *shape = hd_part(u, module, ".weight_shape");
    hd_drop_activations(u, module);
    if (!p.scales) return hd_reject_missing(u, t, "its scales", module, ".weight_scale");
    if (t->rank != 2 || t->shape[1] > INT64_MAX / 2) {
        hd_part_fault(u, t, "is %s; packed weights are a matrix", hd_type_text(u, t));
        return true;
    }
    p.rows = (uint64_t)t->shape[0], p.cols = (uint64_t)t->shape[1] * 2;
    if (hd_check_halves(u, &p, shape)) add(u, &p, hd_printf(u->a, "%s.weight", module), module, 0);
    return true;
}

/* ---- DeepSeek-V4 --------------------------------------------------------------------------- */

/* Bytes under the name of a weight hold two weights each if the module has a .scale. Where the
 * config says that weights are quantised, a matrix of bytes without scales is rejected. */
bool hd_read_mxfp4_pairs(hd_unpacking *u, const hd_tensor *t) {
    const char *end = ".weight";
    if ((t->dtype != HD_T_I8 && t->dtype != HD_T_U8) || !hd_has_suffix(t->name, end)) return false;
    const char *module = hd_stem(u, t, end);
    hd_packed p = {.codes = t, .scales = hd_part(u, module, ".scale")};
    hd_drop_activations(u, module);
    if (!p.scales)
        return t->rank == 2 && u->config->given &&
               hd_reject_missing(u, t, "its scales", module, ".scale");
    if (t->rank != 2 || t->shape[1] > INT64_MAX / 2) {
        hd_part_fault(u, t, "is %s; packed weights are a matrix", hd_type_text(u, t));
        return true;
    }
    p.rows = (uint64_t)t->shape[0], p.cols = (uint64_t)t->shape[1] * 2;
    add(u, &p, t->name, module, 0);
    return true;
}

/* ---- gpt_oss ------------------------------------------------------------------------------- */

bool hd_read_mxfp4_blocks(hd_unpacking *u, const hd_tensor *t) {
    const char *end = "_blocks";
    if (t->dtype != HD_T_U8 || !hd_has_suffix(t->name, end)) return false;
    const char *name = hd_stem(u, t, end);
    hd_packed p = {.codes = t, .transposed = true, .scales = hd_part(u, name, "_scales")};
    if (!p.scales) return hd_reject_missing(u, t, "its scales", name, "_scales");
    if (t->rank != 4 || t->shape[3] != GROUP / 2 || t->shape[2] > INT64_MAX / GROUP) {
        hd_part_fault(u, t, "is %s; blocks of MXFP4 are [experts, out, in / 32, 16]",
                      hd_type_text(u, t));
        return true;
    }
    p.rows = (uint64_t)t->shape[1], p.cols = (uint64_t)t->shape[2] * GROUP;
    add(u, &p, name, name, 1);
    return true;
}
