/* Decodes elements of packed tensors to numbers (support/packed.h). The reader of the format
 * decodes the codes, a part of a row within one tile at a time; scales and column order are handled
 * here for all formats. */
#include <math.h>
#include <string.h>

#include "support/packed/reader.h"

enum { SOME = 256 }; /* codes decoded at a time on the way to f64 */

static hd_codes *const codes_of[HD_N_PACKINGS] = {
#define P(id, name, codes, ...) hd_codes_##codes,
    HD_PACKINGS(P)
#undef P
};

static uint64_t tiles(uint64_t n, uint64_t tile) {
    return (n + tile - 1) / tile;
}

uint64_t hd_packed_groups(const hd_packed *p) {
    return tiles(p->cols, p->tile.cols);
}

uint64_t hd_packed_group(const hd_packed *p, uint64_t col) {
    int32_t group;
    if (!p->order) return col / p->tile.cols;
    memcpy(&group, p->order->data + col * sizeof group, sizeof group);
    return (uint64_t)group;
}

uint64_t hd_packed_scale_of(const hd_packed *p, uint64_t row, uint64_t group) {
    const uint64_t matrix = row / p->rows;
    const uint64_t down = matrix * tiles(p->rows, p->tile.rows) + row % p->rows / p->tile.rows;
    return p->down ? group * p->rows + row : down * hd_packed_groups(p) + group;
}

uint64_t hd_packed_scale_step(const hd_packed *p) {
    return p->down ? p->rows : 1;
}

uint64_t hd_packed_scale_index(const hd_packed *p, uint64_t row, uint64_t col) {
    return hd_packed_scale_of(p, row, hd_packed_group(p, col));
}

/* Every scale is exact in f32. Those of NVFP4 have no sign: one that has it is no scale. */
float hd_packed_scale(const hd_packed *p, uint64_t i) {
    if (p->packing == HD_PACKING_NVFP4)
        return p->scales->data[i] & 0x80 ? NAN : hd_from_e4m3(p->scales->data[i]);
    return hd_is_e8m0(p->scales) ? hd_from_e8m0(p->scales->data[i])
                                 : (float)hd_tensor_get(p->scales, i);
}

static double of_matrix(const hd_tensor *t, uint64_t matrix) {
    return t ? hd_tensor_get(t, t->elements > 1 ? matrix : 0) : 1;
}

double hd_packed_factor(const hd_packed *p, uint64_t matrix) {
    return of_matrix(p->factor, matrix) / of_matrix(p->divisor, matrix);
}

bool hd_packed_in_rows(const hd_tensor *t) {
    const hd_packed *p = t->packed;
    return p && !p->transposed && t->packed_first % p->cols == 0 && t->rank >= 2 &&
           (uint64_t)t->shape[t->rank - 1] == p->cols;
}

void hd_codes_of_halves(const uint8_t *row, uint64_t col, uint64_t n, const float pairs[256][2],
                        float *out) {
    row += col / 2;
    if (n > 0 && col % 2) *out++ = pairs[*row++][1], n--;
    for (; n >= 2; n -= 2, out += 2)
        memcpy(out, pairs[*row++], 2 * sizeof *out);
    if (n > 0) *out = pairs[*row][0];
}

/* Where an element of the tensor lies in the file: row, counted through all matrices, column, and
 * index of its scale. */
typedef struct place {
    uint64_t row, col, scale;
} place;

static place place_of(const hd_packed *p, uint64_t i) {
    place at = {.row = i / p->cols, .col = i % p->cols};
    if (p->transposed) {
        const uint64_t matrix = i / (p->rows * p->cols), inside = i % (p->rows * p->cols);
        at.row = matrix * p->rows + inside % p->rows, at.col = inside / p->rows;
    }
    at.scale = hd_packed_scale_index(p, at.row, at.col);
    return at;
}

/* How many elements from `at` on are contiguous and in one tile, at most n. */
static uint64_t side_by_side(const hd_packed *p, const place *at, uint64_t n) {
    uint64_t most = p->tile.cols - at->col % p->tile.cols;
    if (most > p->cols - at->col) most = p->cols - at->col;
    if (p->transposed) most = 1;
    return n < most ? n : most;
}

/* Advances `at` to element i, after n contiguous elements. */
static void go_on(const hd_packed *p, place *at, uint64_t n, uint64_t i) {
    if (p->transposed || at->col + n == p->cols) {
        *at = place_of(p, i);
        return;
    }
    at->col += n;
    if (at->col % p->tile.cols == 0) at->scale += hd_packed_scale_step(p);
}

/* Decodes elements of a tensor whose columns have an explicit order of groups (p->order): SOME at a
 * time, at most n. Returns how many. */
static uint64_t ordered(const hd_packed *p, uint64_t i, uint64_t n, float codes[SOME],
                        float scales[SOME]) {
    const uint64_t row = i / p->cols, col = i % p->cols;
    if (n > SOME) n = SOME;
    if (n > p->cols - col) n = p->cols - col;
    hd_ordered_integers(p, row, col, n, codes, scales);
    return n;
}

/* Products with a factor do not fit f32: they are rounded once, from f64. */
static void rounded_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out) {
    double exact[SOME];
    for (uint64_t some; n > 0; n -= some, first += some, out += some) {
        some = n < SOME ? n : SOME;
        hd_packed_to_f64(t, first, some, exact);
        for (uint64_t i = 0; i < some; i++)
            out[i] = (float)exact[i];
    }
}

void hd_packed_to_f32(const hd_tensor *t, uint64_t first, uint64_t n, float *out) {
    const hd_packed *p = t->packed;
    float codes[SOME], scales[SOME];
    if (n == 0) return;
    if (p->factor || p->divisor) {
        rounded_to_f32(t, first, n, out);
        return;
    }
    place at = place_of(p, t->packed_first + first);
    for (uint64_t done = 0, some; done < n; done += some, out += some) {
        if (p->order) {
            some = ordered(p, t->packed_first + first + done, n - done, codes, scales);
            for (uint64_t i = 0; i < some; i++)
                out[i] = codes[i] * scales[i];
            continue;
        }
        if (done > 0) go_on(p, &at, some, t->packed_first + first + done);
        some = side_by_side(p, &at, n - done);
        codes_of[p->packing](p, at.row, at.col, some, hd_packed_scale(p, at.scale), out);
    }
}

/* A product of code, scale and factor is exact in f64; then it is divided. */
static void times_factor(const hd_packed *p, uint64_t matrix, uint64_t n, double *x) {
    const double factor = of_matrix(p->factor, matrix), divisor = of_matrix(p->divisor, matrix);
    for (uint64_t i = 0; i < n; i++)
        x[i] = x[i] * factor / divisor;
}

void hd_packed_to_f64(const hd_tensor *t, uint64_t first, uint64_t n, double *out) {
    const hd_packed *p = t->packed;
    float codes[SOME], scales[SOME];
    if (n == 0) return;
    place at = place_of(p, t->packed_first + first);
    for (uint64_t done = 0, some; done < n; done += some, out += some) {
        if (p->order) {
            some = ordered(p, t->packed_first + first + done, n - done, codes, scales);
            for (uint64_t i = 0; i < some; i++)
                out[i] = (double)codes[i] * (double)scales[i];
            continue;
        }
        if (done > 0) go_on(p, &at, some, t->packed_first + first + done);
        some = side_by_side(p, &at, n - done < SOME ? n - done : SOME);
        const float scale = hd_packed_scale(p, at.scale);
        codes_of[p->packing](p, at.row, at.col, some, 1, codes);
        for (uint64_t i = 0; i < some; i++)
            out[i] = (double)codes[i] * (double)scale;
        if (p->factor || p->divisor) times_factor(p, at.row / p->rows, some, out);
    }
}

const char *hd_packed_fault(hd_arena *a, const hd_tensor *t, uint64_t i) {
    const hd_packed *p = t->packed;
    const place at = place_of(p, t->packed_first + i);
    const float scale = hd_packed_scale(p, at.scale);
    hd_text name;
    hd_text_init(&name, a);
    hd_text_quoted(&name, isfinite(scale) ? p->codes->name : p->scales->name);
    if (hd_has_no_zero(p, at.row, at.col))
        return "its zero point is stored as all ones, which programs read as 0 or as 2^bits: "
               "GPTQ's first format has one code for both";
    if (isfinite(scale)) return hd_printf(a, "its code in %s is no number", name.at);
    const bool negative =
        p->packing == HD_PACKING_NVFP4 && !isnan(hd_from_e4m3(p->scales->data[at.scale]));
    return hd_printf(a, "its scale, element %llu of %s, is %s", (unsigned long long)at.scale,
                     name.at,
                     negative       ? "negative, which no scale of NVFP4 is"
                     : isnan(scale) ? "not a number"
                                    : "infinite");
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
