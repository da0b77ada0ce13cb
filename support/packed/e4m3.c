/* Weights in FP8 E4M3: a sign, 4 bits of exponent, 3 of mantissa; a scale for each tile of a
 * matrix.
 *
 *     NAME         F8_E4M3 [(E,) out, in]
 *     NAME_scale_inv, or NAME_scale: a scale for each tile, the last ones cut off by the matrix; of
 * a NAME that is MODULE.weight also MODULE.scale
 *
 *     tile         dtype of scales       written by
 *     128 x 128    F32, BF16, E8M0       DeepSeek and many after it ("fp8", weight_block_size)
 *     1 x 32       E8M0, as F8_E8M0 or   MXFP8
 *                  U8
 *     1 x in       F32, BF16             compressed-tensors, "float-quantized" by channel
 *     out x in     F32, BF16             the same by tensor
 *
 * W[r, c] = E4M3(NAME[r, c]) scale[r / tile rows, c / tile columns]. "inv" is in the name only: the
 * scale is a factor. The product of a code and an f32 scale takes 28 bits, more than f32 has; with
 * scales of 16 bits, and powers of two, it is exact there. */
#include <string.h>

#include "support/packed/reader.h"

enum { LANES = 8 };
typedef float lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t words __attribute__((vector_size(4 * LANES)));
typedef uint32_t bits __attribute__((vector_size(4 * LANES)));

#include "support/narrow.h"

/* Codes are shifted out of two words: compilers would widen bytes to words one by one. */
static inline __attribute__((always_inline)) void numbers_of(const uint8_t *at, lanes *out) {
    uint32_t x[2];
    memcpy(x, at, sizeof x);
    const bits all = {x[0], x[0], x[0], x[0], x[1], x[1], x[1], x[1]};
    const words code = (words)(all >> (bits){0, 8, 16, 24, 0, 8, 16, 24}) & 255;
    hd_lanes_from_e4m3(&code, out);
}

/* Only the last multiplication rounds: whatever the width of vectors, results are the same. */
static inline __attribute__((always_inline)) void decode(const uint8_t *at, uint64_t n, float scale,
                                                         float *out) {
    lanes x;
    for (; n >= LANES; n -= LANES, at += LANES, out += LANES) {
        numbers_of(at, &x);
        x *= scale;
        memcpy(out, &x, sizeof x);
    }
    uint8_t last[LANES] = {0};
    for (uint64_t i = 0; i < n; i++)
        last[i] = at[i];
    numbers_of(last, &x);
    x *= scale;
    for (uint64_t i = 0; i < n; i++)
        out[i] = x[i];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void decode_avx2(const uint8_t *at, uint64_t n, float scale,
                                                        float *out) {
    decode(at, n, scale, out);
}
#endif

float hd_from_e4m3(uint8_t code) {
    float x;
    decode(&code, 1, 1, &x);
    return x;
}

void hd_codes_e4m3(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float scale,
                   float *out) {
    const uint8_t *at = p->codes->data + row * p->cols + col;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        decode_avx2(at, n, scale, out);
        return;
    }
#endif
    decode(at, n, scale, out);
}

/* ---- finding ------------------------------------------------------------------------------- */

/* Does the scale tensor have one scale for each of these tiles? */
static bool fits(const hd_packed *p, hd_tile tile) {
    const hd_tensor *s = p->scales;
    const uint64_t rows = (p->rows + tile.rows - 1) / tile.rows,
                   cols = (p->cols + tile.cols - 1) / tile.cols;
    return s->rank >= 2 && (uint64_t)s->shape[s->rank - 2] == rows &&
           (uint64_t)s->shape[s->rank - 1] == cols;
}

/* The tile is the config's, or else the first of the usual ones that matches the shape of the
 * scales. A table whose rows are looked up may have lines beside the tiles of matrices
 * (DeepSeek-V4.1). */
static hd_tile choose_tile(const hd_packed *p, const hd_quant_group *group) {
    const hd_tile block = {128, 128}, line = {1, 32}, channel = {1, p->cols};
    if (group && group->tile_known) {
        const hd_tile own = {group->tile.rows ? group->tile.rows : p->rows,
                             group->tile.cols ? group->tile.cols : p->cols};
        const bool in_lines = !fits(p, own) && fits(p, line) && hd_is_e8m0(p->scales);
        return in_lines ? line : own;
    }
    if (fits(p, block)) return block;
    if (fits(p, line)) return line;
    if (hd_is_e8m0(p->scales)) return line; /* no program writes E8M0 scales for whole rows */
    return fits(p, channel) ? channel : block;
}

static bool check_dtype(hd_unpacking *u, const hd_tensor *s) {
    if (s->dtype == HD_T_F32 || s->dtype == HD_T_BF16 || s->dtype == HD_T_F16 || hd_is_e8m0(s))
        return true;
    hd_part_fault(u, s, "is %s; scales of E4M3 are F32, BF16, F16, F8_E8M0 or U8",
                  hd_type_text(u, s));
    return false;
}

/* Scales of NVFP4 are E4M3, too, next to codes in bytes. */
static bool is_scale(hd_unpacking *u, const hd_tensor *t) {
    if (!hd_has_suffix(t->name, "_scale")) return false;
    const hd_tensor *codes = hd_tensors_find(u->stored, hd_stem(u, t, "_scale"));
    return hd_has_suffix(t->name, ".weight_scale") || (codes && codes->dtype == HD_T_U8);
}

bool hd_read_e4m3(hd_unpacking *u, const hd_tensor *t) {
    if (t->dtype != HD_T_F8_E4M3 || is_scale(u, t)) return false;
    const char *end = "_scale_inv";
    const char *end_of_weight = hd_has_suffix(t->name, ".weight") ? ".weight" : "";
    const char *module = hd_stem(u, t, end_of_weight);
    const hd_tensor *scales[] = {hd_part(u, t->name, end), hd_part(u, t->name, "_scale"),
                                 *end_of_weight ? hd_part(u, module, ".scale") : NULL};
    const hd_tensor *found = NULL;
    for (int i = 0; i < 3; i++) {
        if (found && scales[i]) {
            hd_part_fault(u, t, "has scales twice: _scale_inv, _scale or .scale");
            return true;
        }
        if (scales[i]) found = scales[i];
    }
    if (!found) return hd_reject_missing(u, t, "its scales", t->name, end);
    if ((t->rank != 2 && t->rank != 3) || t->elements == 0) {
        hd_part_fault(u, t, "is %s; what is read quantised are matrices, or stacks of them",
                      hd_type_text(u, t));
        return true;
    }
    const hd_quant_group *group;
    hd_packed p = {.packing = HD_PACKING_E4M3, .codes = t, .scales = found};
    p.rows = (uint64_t)t->shape[t->rank - 2], p.cols = (uint64_t)t->shape[t->rank - 1];
    hd_drop_activations(u, module);
    if (!check_dtype(u, p.scales) || !hd_ask_config(u, t, module, p.packing, &group)) return true;
    if (t->rank == 2 && hd_is_single(p.scales, group))
        p.tile = (hd_tile){p.rows, p.cols};
    else
        p.tile = choose_tile(&p, group);
    if ((t->rank == 2 && hd_is_single(p.scales, group)) || hd_check_scales(u, &p, t->rank - 2))
        hd_add_packed(u, t->name, &p, t->rank - 2,
                      p.scales->dtype == HD_T_F32 ? HD_T_F64 : HD_T_F32);
    return true;
}
