/* Integers of 4 or 8 bits, as compressed-tensors packs them ("pack-quantized"): as many as go into
 * a word, the first column in its lowest bits. Groups of columns of a row (one group: the whole
 * row) share a scale, and a zero point if they are asymmetric; zero points are packed along the
 * rows. With n = 32 / bits:
 *
 *     NAME.weight_packed      I32 [out, ceil(in/n)]
 *     NAME.weight_scale       BF16, F16 or F32 [out, groups]
 *     NAME.weight_zero_point  I32 [ceil(out/n), groups], if there are any
 *     NAME.weight_shape       I64 [2]: out, in
 *
 * W[r, c] = (q - z) scale, q and z from 0 to 2^bits - 1, z in the middle, 2^(bits-1), without zero
 * points. Bits behind the last column or row mean nothing. The product takes at most 9 bits more
 * than the scale, which has 8 or 11: it is exact in f32 for scales of 16 bits. */
#include <string.h>

#include "support/packed/reader.h"
#include "support/packed/tables.h"

#define NUMBER(c) ((float)(c))
#define PAIR(c)   HD_PAIR(NUMBER, c)

static const float pairs[256][2] = {HD_TABLE_256(PAIR)}; /* of each byte of two integers */

static const struct width {
    hd_packing packing;
    uint32_t bits;
} widths[] = {{HD_PACKING_INT4, 4}, {HD_PACKING_INT8, 8}};
enum { N_WIDTHS = sizeof widths / sizeof *widths, WORD = 32 };

static uint32_t bits_of(hd_packing packing) {
    for (int i = 0; i < N_WIDTHS; i++)
        if (widths[i].packing == packing) return widths[i].bits;
    return 0;
}

static uint64_t words_for(uint64_t n, uint32_t bits) {
    const uint64_t in_a_word = WORD / bits;
    return n / in_a_word + (n % in_a_word != 0);
}

static uint32_t word_at(const hd_tensor *t, uint64_t i) {
    uint32_t word;
    memcpy(&word, t->data + 4 * i, sizeof word);
    return word;
}

/* Integer `which` of those that lie side by side from `word` on. */
static int32_t integer_at(const hd_tensor *t, uint64_t word, uint64_t which, uint32_t bits) {
    const uint32_t in_a_word = WORD / bits;
    const uint32_t w = word_at(t, word + which / in_a_word);
    return (int32_t)(w >> bits * (which % in_a_word) & ((1u << bits) - 1));
}

/* There is one matrix: `row` is its row. Words are little endian: the bytes of a row hold its
 * columns in order. Zero points lie along the rows: word row / n, column by column, has that of row
 * in place row mod n. */
hd_integers hd_integers_at(const hd_packed *p, uint64_t row, uint64_t col) {
    const uint32_t bits = bits_of(p->packing), in_a_word = WORD / bits;
    const uint8_t *bytes = p->codes->data + row * words_for(p->cols, bits) * sizeof(uint32_t);
    hd_integers in = {.codes = bytes + col * bits / 8, .bits = bits, .zero = 1 << (bits - 1)};
    if (p->zeros) {
        const uint64_t groups = (uint64_t)p->zeros->shape[1];
        in.zero = integer_at(p->zeros, row / in_a_word * groups + col / p->tile.cols,
                             row % in_a_word, bits);
    }
    return in;
}

void hd_codes_integers(const hd_packed *p, uint64_t row, uint64_t col, uint64_t n, float scale,
                       float *out) {
    const hd_integers in = hd_integers_at(p, row, col);
    const float zero = (float)in.zero;
    if (in.bits == 4)
        hd_codes_of_halves(in.codes, col % 2, n, pairs, out);
    else
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)in.codes[i];
    for (uint64_t i = 0; i < n; i++)
        out[i] = (out[i] - zero) * scale;
}

/* ---- finding ------------------------------------------------------------------------------- */

/* The shape, which the codes do not give: a row's last word may have room for more. */
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

/* The width in which the rows have as many words as they have. Where two have (a word is enough for
 * either), that of the config, and without one the narrower. */
static bool find_width(hd_unpacking *u, hd_packed *p, const char *module) {
    bool found = false;
    for (int i = 0; i < N_WIDTHS; i++) {
        const bool fits = words_for(p->cols, widths[i].bits) == (uint64_t)p->codes->shape[1];
        const bool said = fits && hd_find_group(u->config, widths[i].packing, module);
        if (said || (fits && !found)) p->packing = widths[i].packing;
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
    const uint32_t bits = bits_of(p->packing);
    const int64_t rows = (int64_t)words_for(p->rows, bits),
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
    if (find_size(u, &p, module, shape) && hd_ask_config(u, t, module, p.packing, &group) &&
        find_groups(u, &p, group) && check_zeros(u, &p, group))
        hd_add_packed(u, hd_printf(u->a, "%s.weight", module), &p, 0,
                      p.scales->dtype == HD_T_F32 ? HD_T_F64 : HD_T_F32);
    return true;
}
