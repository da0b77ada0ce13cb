/* Making panels (panels.h), some columns of all rows at a time, which stay in the nearest caches.
 */
#include "codegen/weights/panels.h"

#include <string.h>

#include "codegen/weights/convert.h"
#include "codegen/weights/kept.h"
#include "codegen/weights/lanes/transpose.h"
#include "codegen/weights/quant.h"

enum { DEPTH = HCG_PANEL_DEPTH };

hcg_panel_form hcg_panel_form_of(const hir_weight *w) {
    hcg_panel_form f = {.dtype = w->type.dtype, .rows = (uint64_t)hir_panel_rows(w->layout)};
    f.depth = w->layout == HIR_LAYOUT_NARROW ? 2 : hir_panel_depth(f.dtype);
    return f;
}

uint64_t hcg_bytes_of_panel(const hcg_panel_form *f, uint64_t k) {
    const uint64_t filled = (k + f->depth - 1) / f->depth * f->depth;
    if (!hir_is_quantised(f->dtype)) return filled * f->rows * hir_dtype_bytes(f->dtype);
    return (k + HIR_GROUP - 1) / HIR_GROUP * hcg_group_bytes(f->dtype);
}

/* ---- element by element ------------------------------------------------------------------------
 *
 * `depth` elements of a row are a unit of 2, 4 or 8 bytes, and a panel of units is a transposed
 * matrix of them: to[n][rows] = from[rows][n], whose rows are `stride` bytes apart. */
static void transpose_four(const uint8_t *from, size_t stride, uint8_t *to, size_t line) {
    hcg_quad r[4];
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], from + (size_t)i * stride, sizeof r[i]);
    hcg_transpose(r);
    for (int i = 0; i < 4; i++)
        memcpy(to + (size_t)i * line, &r[i], sizeof r[i]);
}

/* Units first .. n - 1 of all rows, one by one; `unit` is a constant where this is inlined. */
static inline void transpose_units(const uint8_t *from, size_t stride, uint64_t rows,
                                   uint64_t first, uint64_t n, size_t unit, uint8_t *to) {
    for (uint64_t k = first; k < n; k++)
        for (uint64_t row = 0; row < rows; row++)
            memcpy(to + (k * rows + row) * unit, from + row * stride + k * unit, unit);
}

static void transpose(const uint8_t *from, size_t stride, uint64_t rows, uint64_t n, size_t unit,
                      uint8_t *to) {
    if (unit == 2) transpose_units(from, stride, rows, 0, n, 2, to);
    if (unit == 8) transpose_units(from, stride, rows, 0, n, 8, to);
    if (unit != 4) return;
    for (uint64_t k = 0; k + 4 <= n; k += 4)
        for (uint64_t row = 0; row < rows; row += 4)
            transpose_four(from + row * stride + k * 4, stride, to + (k * rows + row) * 4,
                           rows * 4);
    transpose_units(from, stride, rows, n / 4 * 4, n, 4, to);
}

static bool make_elements(const hd_tensor *t, const hcg_panel_form *f, uint64_t first,
                          uint8_t *rows, uint8_t *out) {
    const uint64_t N = (uint64_t)t->shape[0], K = (uint64_t)t->shape[1];
    const uint64_t there = N - first < f->rows ? N - first : f->rows;
    const size_t size = hir_dtype_bytes(f->dtype), stride = DEPTH * size;
    bool ok = true;
    for (uint64_t k = 0; ok && k < K; k += DEPTH) {
        const uint64_t n = K - k < DEPTH ? K - k : DEPTH, units = (n + f->depth - 1) / f->depth;
        if (there < f->rows || n % f->depth) memset(rows, 0, f->rows * stride);
        for (uint64_t row = 0; row < there; row++)
            ok &= hcg_convert(t, (first + row) * K + k, n, f->dtype, rows + row * stride);
        transpose(rows, stride, f->rows, units, f->depth * size, out + k * f->rows * size);
    }
    return ok;
}

/* ---- in groups (quant.h) ------------------------------------------------------------------------
 */
/* The groups of n columns of the rows. */
static bool put_groups(hir_dtype dtype, const float *rows, unsigned there, uint64_t n,
                       uint8_t *out) {
    const uint64_t whole = n / HIR_GROUP, size = hcg_group_bytes(dtype);
    float last[HIR_PANEL * HIR_GROUP];
    bool ok = true;
    for (uint64_t g = 0; g < whole; g++)
        ok &= hcg_quantise_rows(dtype, rows + g * HIR_GROUP, DEPTH, there, out + g * size);
    if (n % HIR_GROUP == 0) return ok;
    for (unsigned i = 0; i < there; i++)
        hcg_fill_group(rows + i * DEPTH + whole * HIR_GROUP, (unsigned)(n % HIR_GROUP),
                       last + i * HIR_GROUP);
    return ok & hcg_quantise_rows(dtype, last, HIR_GROUP, there, out + whole * size);
}

static bool make_groups(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows,
                        uint8_t *out) {
    const uint64_t N = (uint64_t)t->shape[0], K = (uint64_t)t->shape[1];
    const uint64_t there = N - first < HIR_PANEL ? N - first : HIR_PANEL;
    bool ok = true;
    for (uint64_t k = 0; ok && k < K; k += DEPTH) {
        const uint64_t n = K - k < DEPTH ? K - k : DEPTH;
        for (uint64_t row = 0; row < there; row++)
            hd_tensor_to_f32(t, (first + row) * K + k, n, rows + row * DEPTH);
        ok = put_groups(dtype, rows, (unsigned)there, n,
                        out + k / HIR_GROUP * hcg_group_bytes(dtype));
    }
    return ok;
}

bool hcg_make_panel(const hd_tensor *t, const hcg_panel_form *f, uint64_t first, void *workspace,
                    uint8_t *out) {
    if (!hir_is_quantised(f->dtype)) return make_elements(t, f, first, workspace, out);
    if (hcg_may_keep(t, f->dtype)) {
        const bool ok = hcg_make_kept(t, f->dtype, first, workspace, out);
        if (ok || f->dtype != HIR_MXFP4) return ok;
    }
    return make_groups(t, f->dtype, first, workspace, out);
}
