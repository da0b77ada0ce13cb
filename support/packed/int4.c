/* Integers of 4 bits, as compressed-tensors packs them ("pack-quantized"): eight in a word, the
 * first column in its lowest bits. Groups of columns of a row (one group: the whole row) share a
 * scale, and a zero point if they are asymmetric; zero points are packed along the rows.
 *
 *     NAME.weight_packed      I32 [out, ceil(in/8)]
 *     NAME.weight_scale       BF16, F16 or F32 [out, groups]
 *     NAME.weight_zero_point  I32 [ceil(out/8), groups], if there are any
 *     NAME.weight_shape       I64 [2]: out, in
 *
 * W[r, c] = (q - z) scale, q and z from 0 to 15, z = 8 without zero points. Bits behind the last
 * column or row mean nothing. The product takes 5 bits more than the scale: it is exact in f32 for
 * scales of 16 bits. */
#include <string.h>

#include "support/packed/reader.h"
#include "support/packed/tables.h"

enum { IN_A_WORD = 8, MIDDLE = 8 };

static uint32_t word_at(const hd_tensor *t, uint64_t i) {
    uint32_t word;
    memcpy(&word, t->data + 4 * i, sizeof word);
    return word;
}

static uint32_t four_bits(uint32_t word, uint64_t which) {
    return word >> 4 * (which % IN_A_WORD) & 15;
}

#define NUMBER(c) ((float)(c))
#define PAIR(c)   HD_PAIR(NUMBER, c)

static const float pairs[256][2] = {HD_TABLE_256(PAIR)};

/* There is one matrix: `row` is its row. Words are little endian: the bytes of a row hold its
 * columns in order, two in each. */
void hd_codes_int4(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float *out) {
    const uint64_t words = (p->cols + IN_A_WORD - 1) / IN_A_WORD;
    float zero = MIDDLE;
    if (p->zeros) {
        const uint64_t groups = (uint64_t)p->zeros->shape[1];
        zero =
            (float)four_bits(word_at(p->zeros, row / IN_A_WORD * groups + col / p->tile.cols), row);
    }
    hd_codes_of_halves(p->codes->data + row * words * sizeof(uint32_t), col, n, pairs, out);
    for (uint64_t i = 0; i < n; i++)
        out[i] -= zero;
}

/* ---- finding ------------------------------------------------------------------------------- */

/* The shape, which the codes do not give: a row's last word may hold fewer than eight. */
static bool read_shape(hd_unpacking *u, hd_packed *p, const hd_tensor *shape) {
    const hd_tensor *t = p->codes;
    const bool good = (shape->dtype == HD_T_I64 || shape->dtype == HD_T_I32) && shape->rank == 1 &&
                      shape->shape[0] == 2;
    const double rows = good ? hd_tensor_get(shape, 0) : 0,
                 cols = good ? hd_tensor_get(shape, 1) : 0;
    if (t->rank == 2 && good && rows >= 1 && cols >= 1 && rows == (double)t->shape[0] &&
        cols <= 8.0 * (double)t->shape[1] && cols > 8.0 * (double)t->shape[1] - 8) {
        p->rows = (uint64_t)rows, p->cols = (uint64_t)cols;
        return true;
    }
    hd_diag *g = hd_part_fault(u, t, "is %s, which does not go with its shape", hd_type_text(u, t));
    g->cause = good ? hd_printf(u->a,
                                "'weight_shape' is [%.0f, %.0f], and eight weights of 4 bits "
                                "are in a word",
                                rows, cols)
                    : hd_printf(u->a, "'weight_shape' is %s, not I64 [2]", hd_type_text(u, shape));
    g->hint = "integers of other widths than 4 bits are not read";
    return false;
}

/* Columns that share a scale: they say how many groups there are. */
static bool find_groups(hd_unpacking *u, hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *s = p->scales;
    const uint64_t groups = s->rank == 2 ? (uint64_t)s->shape[1] : 0;
    if (s->dtype != HD_T_BF16 && s->dtype != HD_T_F16 && s->dtype != HD_T_F32) {
        hd_part_fault(u, s, "is %s; scales of integers are BF16, F16 or F32", hd_type_text(u, s));
        return false;
    }
    if (group && group->tile_known)
        p->tile = (hd_tile){1, group->tile.cols ? group->tile.cols : p->cols};
    else
        p->tile = (hd_tile){1, groups && p->cols % groups == 0 ? p->cols / groups : p->cols};
    if (p->cols % p->tile.cols) {
        hd_part_fault(u, p->codes, "has rows of %llu weights, no multiple of the groups of %llu",
                      (unsigned long long)p->cols, (unsigned long long)p->tile.cols);
        return false;
    }
    return hd_check_scales(u, p, 0);
}

static bool check_zeros(hd_unpacking *u, const hd_packed *p, const hd_quant_group *group) {
    const hd_tensor *z = p->zeros;
    const int64_t rows = (int64_t)((p->rows + IN_A_WORD - 1) / IN_A_WORD),
                  groups = (int64_t)(p->cols / p->tile.cols);
    if (group && group->symmetric == (z != NULL)) {
        hd_part_fault(u, z ? z : p->codes,
                      z ? "holds zero points, and the config says 'symmetric'"
                        : "has no zero points (weight_zero_point), and the "
                          "config does not say 'symmetric'");
        return false;
    }
    if (!z ||
        (z->dtype == HD_T_I32 && z->rank == 2 && z->shape[0] == rows && z->shape[1] == groups))
        return true;
    hd_part_fault(u, z, "is %s, not I32 [%lld, %lld]", hd_type_text(u, z), (long long)rows,
                  (long long)groups)
        ->cause = "zero points are packed along the rows, eight in a word";
    return false;
}

bool hd_read_int4(hd_unpacking *u, const hd_tensor *t) {
    const char *end = ".weight_packed";
    if (t->dtype != HD_T_I32 || !hd_has_suffix(t->name, end)) return false;
    const char *module = hd_stem(u, t, end);
    hd_packed p = {.packing = HD_PACKING_INT4, .codes = t};
    p.scales = hd_part(u, module, ".weight_scale");
    p.zeros = hd_part(u, module, ".weight_zero_point");
    const hd_tensor *shape = hd_part(u, module, ".weight_shape");
    const hd_tensor *order = hd_part(u, module, ".weight_g_idx");
    const hd_quant_group *group;
    hd_drop(u, module, ".input_scale");
    hd_drop(u, module, ".input_zero_point");
    if (!p.scales) return hd_refuse_missing(u, t, "its scales", module, ".weight_scale");
    if (!shape) return hd_refuse_missing(u, t, "its rows and columns", module, ".weight_shape");
    if (order) {
        hd_part_fault(u, order,
                      "puts columns into groups in an order of its own (actorder), which "
                      "is not read");
        return true;
    }
    if (read_shape(u, &p, shape) && hd_ask_config(u, t, module, p.packing, &group) &&
        find_groups(u, &p, group) && check_zeros(u, &p, group))
        hd_add_packed(u, hd_printf(u->a, "%s.weight", module), &p, 0,
                      p.scales->dtype == HD_T_F32 ? HD_T_F64 : HD_T_F32);
    return true;
}
