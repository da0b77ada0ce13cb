/* Elements of packed tensors as numbers (support/packed.h). Codes come from the reader of the
 * format, some of a row and of one tile at a time; scales and order are the same for all. */
#include <math.h>
#include <string.h>

#include "support/packed/reader.h"

enum { SOME = 256 }; /* codes decoded at a time */

static hd_codes *const codes_of[HD_N_PACKINGS] = {
    [HD_PACKING_E4M3] = hd_codes_e4m3,
    [HD_PACKING_MXFP4] = hd_codes_mxfp4,
    [HD_PACKING_INT4] = hd_codes_integers,
    [HD_PACKING_INT8] = hd_codes_integers,
};

static uint64_t tiles(uint64_t n, uint64_t tile) {
    return (n + tile - 1) / tile;
}

/* Index of the scale of a column of a row, counted through all matrices. */
static uint64_t scale_index(const hd_packed *p, uint64_t row, uint64_t col) {
    const uint64_t matrix = row / p->rows, across = tiles(p->cols, p->tile.cols);
    const uint64_t down = matrix * tiles(p->rows, p->tile.rows) + row % p->rows / p->tile.rows;
    return down * across + col / p->tile.cols;
}

/* Scales are at most f32 wide. */
static float scale_at(const hd_packed *p, uint64_t row, uint64_t col) {
    const uint64_t i = scale_index(p, row, col);
    return hd_is_e8m0(p->scales) ? hd_from_e8m0(p->scales->data[i])
                                 : (float)hd_tensor_get(p->scales, i);
}

/* Where element i of the tensor lies in the file: row, counted through all matrices, and column. */
static void place_of(const hd_packed *p, uint64_t i, uint64_t *row, uint64_t *col) {
    if (!p->transposed) {
        *row = i / p->cols, *col = i % p->cols;
        return;
    }
    const uint64_t matrix = i / (p->rows * p->cols), at = i % (p->rows * p->cols);
    *row = matrix * p->rows + at % p->rows, *col = at / p->rows;
}

/* Codes and scale from element i of the packed tensor on, as far as they lie side by side in one
 * tile, at most n of them: how many. */
static uint64_t some_codes(const hd_packed *p, uint64_t i, uint64_t n, float *codes, float *scale) {
    uint64_t row, col;
    place_of(p, i, &row, &col);
    uint64_t most = p->tile.cols - col % p->tile.cols;
    if (most > p->cols - col) most = p->cols - col;
    if (p->transposed) most = 1;
    if (n > most) n = most;
    if (n > SOME) n = SOME;
    codes_of[p->packing](p, row, col, n, codes);
    *scale = scale_at(p, row, col);
    return n;
}

void hd_packed_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out) {
    float codes[SOME], scale;
    for (uint64_t done = 0, some; done < n; done += some) {
        some = some_codes(t->packed, t->packed_first + first + done, n - done, codes, &scale);
        for (uint64_t i = 0; i < some; i++)
            out[done + i] = codes[i] * scale;
    }
}

void hd_packed_to_f64(const hd_tensor *t, uint64_t first, uint64_t n, double *out) {
    float codes[SOME], scale;
    for (uint64_t done = 0, some; done < n; done += some) {
        some = some_codes(t->packed, t->packed_first + first + done, n - done, codes, &scale);
        for (uint64_t i = 0; i < some; i++)
            out[done + i] = (double)codes[i] * (double)scale;
    }
}

const char *hd_packed_fault(hd_arena *a, const hd_tensor *t, uint64_t i) {
    const hd_packed *p = t->packed;
    uint64_t row, col;
    place_of(p, t->packed_first + i, &row, &col);
    const float scale = scale_at(p, row, col);
    hd_text name;
    hd_text_init(&name, a);
    hd_text_quoted(&name, isfinite(scale) ? p->codes->name : p->scales->name);
    if (isfinite(scale)) return hd_printf(a, "its code in %s is no number", name.at);
    return hd_printf(a, "its scale, element %llu of %s, is %s",
                     (unsigned long long)scale_index(p, row, col), name.at,
                     isnan(scale) ? "not a number" : "infinite");
}

/* ---- numbers in few bits ------------------------------------------------------------------- */

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float hd_from_e8m0(uint8_t code) {
    if (code == 255) return NAN;
    return code == 0 ? 0x1p-127f : float_of((uint32_t)code << 23);
}
