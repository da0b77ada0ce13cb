/* Integers as compressed-tensors stores them.
 *
 * "pack-quantized": n = 32 / bits codes in a word, the first column in its lowest bits; the last
 * word of a row is padded. Zero points of n rows are packed in a word.
 *
 *     NAME.weight_packed      I32 [out, ceil(in/n)]
 *     NAME.weight_scale       BF16, F16 or F32 [out, groups]
 *     NAME.weight_zero_point  I32 [ceil(out/n), groups], if there are any
 *     NAME.weight_shape       I64 [2]: out, in
 *     NAME.weight_g_idx       I32 [in], the group of each column, if they are not in order
 *
 * Both q and z are from 0 to 2^bits - 1. Bits after the last column or row are ignored.
 *
 * "int-quantized": one byte for each code, from -128 to 127, whatever num_bits says.
 *
 *     NAME.weight             I8 [out, in]
 *     NAME.weight_scale       BF16, F16 or F32 [tiles down, tiles across], or one for all
 *     NAME.weight_zero_point  I8, as many, if there are any
 *     NAME.weight_g_idx       as above
 *
 * W[r, c] = (q - z) scale (integers.c). */
#include <string.h>

#include "support/packed/reader.h"

static const hd_packing widths[] = {HD_PACKING_INT4, HD_PACKING_INT8};
enum { N_WIDTHS = sizeof widths / sizeof *widths, WORD = 32 };

/* ---- shared by all integer formats ---------------------------------------------------------- */

bool hd_check_integer_scales(hd_unpacking *u, const hd_tensor *s) {
    if (s->dtype == HD_T_BF16 || s->dtype == HD_T_F16 || s->dtype == HD_T_F32) return true;
    hd_part_fault(u, s, "is %s; scales of integers are BF16, F16 or F32", hd_type_text(u, s));
    return false;
}

hd_tile hd_row_tile(const hd_packed *p, const hd_quant_group *group, uint64_t groups) {
    if (group && group->tile_known)
        return (hd_tile){1, group->tile.cols ? group->tile.cols : p->cols};
    return (hd_tile){1, groups && p->cols % groups == 0 ? p->cols / groups : p->cols};
}

bool hd_are_zeros(const hd_tensor *t) {
    for (uint64_t i = 0; i < t->bytes; i++)
        if (t->data[i]) return false;
    return true;
}

static int64_t group_at(const hd_tensor *order, uint64_t col) {
    int32_t group;
    memcpy(&group, order->data + col * sizeof group, sizeof group);
    return group;
}

bool hd_check_order(hd_unpacking *u, hd_packed *p, const hd_tensor *order) {
    if (!order) return true;
    if (order->dtype != HD_T_I32 || order->rank != 1 || (uint64_t)order->shape[0] != p->cols) {
        hd_part_fault(u, order, "is %s, not I32 [%llu]: the group of each column",
                      hd_type_text(u, order), (unsigned long long)p->cols);
        return false;
    }
    const int64_t groups = (int64_t)hd_packed_groups(p);
    bool in_order = true;
    for (uint64_t c = 0; c < p->cols; c++) {
        const int64_t group = group_at(order, c);
        if (group < 0 || group >= groups) {
            hd_part_fault(u, order, "has group %lld for column %llu, and there are %lld",
                          (long long)group, (unsigned long long)c, (long long)groups);
            return false;
        }
        in_order &= (uint64_t)group == c / p->tile.cols;
    }
    if (!in_order) p->order = order;
    return true;
}

hd_tensor_dtype hd_integers_dtype(const hd_packed *p) {
    return p->scales->dtype == HD_T_F32 ? HD_T_F64 : HD_T_F32;
}

/* ---- pack-quantized ------------------------------------------------------------------------- */

/* Reads the shape. The codes do not determine it, since the last word of a row may be padded. */
static bool read_shape(hd_packed *p, const hd_tensor *shape) {
    const hd_tensor *t = p->codes;
    if ((shape->dtype != HD_T_I64 && shape->dtype != HD_T_I32) || shape->rank != 1 ||
        shape->shape[0] != 2 || t->rank != 2)
        return false;
    const double rows = hd_tensor_get(shape, 0), cols = hd_tensor_get(shape, 1);
    if (rows < 1 || cols < 1 || rows != (double)t->shape[0] || cols > WORD * (double)t->shape[1])
        return false;
    p->rows = (uint64_t)rows, p->cols = (uint64_t)cols;
    return true;
}

/* Finds the width of codes from the number of words in a row. Where both widths fit (one word is
 * enough for either), the config decides; without a config the narrower width is taken. */
static bool find_width(hd_unpacking *u, hd_packed *p, const char *module) {
    bool found = false;
    for (int i = 0; i < N_WIDTHS; i++) {
        const bool fits =
            hd_words_for(p->cols, hd_integer_bits(widths[i])) == (uint64_t)p->codes->shape[1];
        const bool said = fits && hd_find_group(u->config, widths[i], module);
        if (said || (fits && !found)) p->packing = widths[i];
        if (said) return true;
        found |= fits;
    }
    return found;
}

static bool find_size(hd_unpacking *u, hd_packed *p, const char *module, const hd_tensor *shape) {
    if (read_shape(p, shape) && find_width(u, p, module)) return true;
    hd_diag *g = hd_part_fault(u, p->codes, "is %s, which does not go with its shape",
                               hd_type_text(u, p->codes));
    g->cause = shape->rank == 1 && shape->shape[0] == 2 &&
                       (shape->dtype == HD_T_I64 || shape->dtype == HD_T_I32)
                   ? hd_printf(u->a,
                               "'weight_shape' is [%.0f, %.0f], and a word holds eight weights of "
                               "4 bits or four of 8",
                               hd_tensor_get(shape, 0), hd_tensor_get(shape, 1))
                   : hd_printf(u->a, "'weight_shape' is %s, not I64 [2]", hd_type_text(u, shape));
    g->hint = "integers of other widths than 4 and 8 bits are not read";
    return false;
}

/* Finds how many columns share a scale, and checks the number of groups that follows. */
static bool find_groups(hd_unpacking *u, hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *s = p->scales;
    const uint64_t groups = s->rank == 2 ? (uint64_t)s->shape[1] : 0;
    if (!hd_check_integer_scales(u, s)) return false;
    p->tile = hd_row_tile(p, group, groups);
    if (p->cols % p->tile.cols) {
        hd_part_fault(u, p->codes, "has rows of %llu weights, no multiple of the groups of %llu",
                      (unsigned long long)p->cols, (unsigned long long)p->tile.cols);
        return false;
    }
    return hd_check_scales(u, p, 0);
}

/* Are there zero points exactly where the config does not say 'symmetric'? */
static bool check_symmetric(hd_unpacking *u, const hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *z = p->zeros;
    if (!group || group->symmetric == (z == NULL)) return true;
    hd_part_fault(u, z ? z : p->codes,
                  z ? "holds zero points, and the config says 'symmetric'"
                    : "has no zero points (weight_zero_point), and the config does not say "
                      "'symmetric'");
    return false;
}

static bool check_zeros(hd_unpacking *u, const hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *z = p->zeros;
    const uint32_t bits = hd_integer_bits(p->packing);
    const int64_t rows = (int64_t)hd_words_for(p->rows, bits),
                  groups = (int64_t)(p->cols / p->tile.cols);
    if (!check_symmetric(u, p, group)) return false;
    if (!z ||
        (z->dtype == HD_T_I32 && z->rank == 2 && z->shape[0] == rows && z->shape[1] == groups))
        return true;
    hd_part_fault(u, z, "is %s, not I32 [%lld, %lld]", hd_type_text(u, z), (long long)rows,
                  (long long)groups)
        ->cause =
        hd_printf(u->a, "zero points are packed along the rows, %u in a word", WORD / bits);
    return false;
}

bool hd_read_integers(hd_unpacking *u, const hd_tensor *t) {
    const char *end = ".weight_packed";
    if (t->dtype != HD_T_I32 || !hd_has_suffix(t->name, end)) return false;
    const char *module = hd_stem(u, t, end);
    hd_packed p = {.codes = t};
    p.scales = hd_part(u, module, ".weight_scale");
    p.zeros = hd_part(u, module, ".weight_zero_point");
    const hd_tensor *shape = hd_part(u, module, ".weight_shape");
    const hd_tensor *order = hd_part(u, module, ".weight_g_idx");
    const hd_quant_group *group;
    hd_drop_activations(u, module);
    if (!p.scales) return hd_reject_missing(u, t, "its scales", module, ".weight_scale");
    if (!shape) return hd_reject_missing(u, t, "its rows and columns", module, ".weight_shape");
    if (find_size(u, &p, module, shape) && hd_ask_config(u, t, module, p.packing, &group) &&
        find_groups(u, &p, group) && check_zeros(u, &p, group) && hd_check_order(u, &p, order))
        hd_add_packed(u, hd_printf(u->a, "%s.weight", module), &p, 0, hd_integers_dtype(&p));
    return true;
}

/* ---- int-quantized -------------------------------------------------------------------------- */

/* The tile that the config states, or that follows from the shape of the scales: one scale for the
 * whole matrix, for a row, or for a group of columns of a row. */
static hd_tile plain_tile(const hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *s = p->scales;
    const uint64_t groups = s->rank == 2 ? (uint64_t)s->shape[1] : 0;
    if (group && group->tile_known)
        return (hd_tile){group->tile.rows ? group->tile.rows : p->rows,
                         group->tile.cols ? group->tile.cols : p->cols};
    if (s->elements == 1) return (hd_tile){p->rows, p->cols};
    return hd_row_tile(p, NULL, groups);
}

static bool check_plain_zeros(hd_unpacking *u, hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *z = p->zeros, *s = p->scales;
    bool fits = z && z->dtype == HD_T_I8 && z->rank == s->rank;
    for (uint32_t i = 0; fits && i < z->rank; i++)
        fits = z->shape[i] == s->shape[i];
    if (z && !fits) {
        hd_part_fault(u, z, "is %s, not I8 and as many as the scales, %s", hd_type_text(u, z),
                      hd_type_text(u, s));
        return false;
    }
    /* some programs write zero points of 0 for symmetric weights, too */
    if (z && (!group || group->symmetric) && hd_are_zeros(z)) p->zeros = NULL;
    return check_symmetric(u, p, group);
}

/* A matrix of bytes whose scales are MODULE.weight_scale. Bytes with a MODULE.scale hold two
 * weights each (mxfp4.c). */
bool hd_read_plain_integers(hd_unpacking *u, const hd_tensor *t) {
    const char *end = ".weight";
    const hd_quant_group *group;
    if (t->dtype != HD_T_I8 || !hd_has_suffix(t->name, end)) return false;
    const char *module = hd_stem(u, t, end);
    hd_packed p = {.packing = HD_PACKING_PLAIN8, .codes = t};
    p.scales = hd_part(u, module, ".weight_scale");
    if (!p.scales)
        return hd_find_group(u->config, p.packing, module) &&
               hd_reject_missing(u, t, "its scales", module, ".weight_scale");
    p.zeros = hd_part(u, module, ".weight_zero_point");
    const hd_tensor *order = hd_part(u, module, ".weight_g_idx");
    hd_drop_activations(u, module);
    if (t->rank != 2 || t->elements == 0) {
        hd_part_fault(u, t, "is %s; what is read quantised so are matrices", hd_type_text(u, t));
        return true;
    }
    p.rows = (uint64_t)t->shape[0], p.cols = (uint64_t)t->shape[1];
    if (!hd_check_integer_scales(u, p.scales) || !hd_ask_config(u, t, module, p.packing, &group))
        return true;
    p.tile = plain_tile(&p, group);
    const bool single = hd_is_single(p.scales, group);
    if (single) p.tile = (hd_tile){p.rows, p.cols};
    if ((single || hd_check_scales(u, &p, 0)) && check_plain_zeros(u, &p, group) &&
        hd_check_order(u, &p, order))
        hd_add_packed(u, t->name, &p, 0, hd_integers_dtype(&p));
    return true;
}
