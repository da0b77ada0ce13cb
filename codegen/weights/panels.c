/* Making panels (panels.h), some columns of all rows at a time, which stay in the nearest caches.
 */
#include "codegen/weights/panels.h"

#include <string.h>

#include "codegen/weights/convert.h"
#include "codegen/weights/kept.h"
#include "codegen/weights/lanes/transpose.h"
#include "codegen/weights/quant.h"
#include "support/packed.h"

enum { DEPTH = HCG_PANEL_DEPTH };

hcg_panel_form hcg_panel_form_of(const hir_weight *w) {
    hcg_panel_form f = {.dtype = w->type.dtype, .rows = (uint64_t)hir_panel_rows(w->layout)};
    f.depth = w->layout == HIR_LAYOUT_NARROW ? 2 : hir_panel_depth(f.dtype);
    return f;
}

uint64_t hcg_bytes_of_panel(const hcg_panel_form *f, uint64_t k) {
    const uint64_t filled = (k + f->depth - 1) / f->depth * f->depth;
    if (!hir_is_quantised(f->dtype)) return filled * f->rows * hir_dtype_bytes(f->dtype);
    return (uint64_t)hcg_panel_bytes(f->dtype, (int64_t)k);
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

/* Transposes units first .. n - 1 of all rows, one by one; `unit` is a constant where this is
 * inlined. */
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

/* ---- in groups (quant.h) --------------------------------------------------------------------- */
/* Rounds whole groups of n columns of rows in f32. */
static bool round_block(hir_dtype dtype, const float *rows, unsigned there, uint64_t n,
                        uint8_t *out) {
    bool ok = true;
    for (uint64_t k = 0; k < n; k += HIR_GROUP, out += hcg_group_bytes(dtype)) {
        const hcg_rows x = hcg_rows_of(rows + k, DEPTH);
        ok &= hcg_quantise_rows(dtype, &x, there, out);
    }
    return ok;
}

/* Rounds columns 0 .. end - 1 of the rows from `row` on, widened some at a time. */
static bool round_widened(const hd_tensor *t, hir_dtype dtype, uint64_t row, unsigned there,
                          uint64_t end, float *rows, uint8_t *out) {
    const uint64_t K = (uint64_t)t->shape[1], size = hcg_group_bytes(dtype);
    bool ok = true;
    for (uint64_t k = 0; ok && k < end; k += DEPTH) {
        const uint64_t n = end - k < DEPTH ? end - k : DEPTH;
        for (uint64_t i = 0; i < there; i++)
            hd_tensor_to_f32(t, (row + i) * K + k, n, rows + i * DEPTH);
        ok = round_block(dtype, rows, there, n, out + k / HIR_GROUP * size);
    }
    return ok;
}

/* Rounds the n last columns, which do not fill a group. */
static bool round_last(const hd_tensor *t, hir_dtype dtype, uint64_t row, unsigned there,
                       uint64_t n, uint8_t *out) {
    const uint64_t K = (uint64_t)t->shape[1];
    float part[HIR_GROUP], last[HIR_PANEL * HIR_GROUP];
    for (uint64_t i = 0; i < there; i++) {
        hd_tensor_to_f32(t, (row + i) * K + K - n, n, part);
        hcg_fill_group(part, (unsigned)n, last + i * HIR_GROUP);
    }
    const hcg_rows x = hcg_rows_of(last, HIR_GROUP);
    return hcg_quantise_rows(dtype, &x, there, out);
}

/* Are the rows rounded directly from the file? */
static bool is_read_there(const hd_tensor *t) {
    if (t->packed)
        return t->packed->packing == HD_PACKING_E4M3 && hd_packed_in_rows(t) &&
               t->packed->tile.cols % HIR_GROUP == 0;
    return t->dtype == HD_T_F32 || t->dtype == HD_T_BF16 || t->dtype == HD_T_F16;
}

/* The rows from `row` on in the file, and for E4M3 the address of the first scale of each. */
static hcg_rows rows_there(const hd_tensor *t, uint64_t row, unsigned there,
                           uint64_t scales[HIR_PANEL]) {
    const uint64_t K = (uint64_t)t->shape[1], size = hd_tensor_dtype_bits(t->dtype) / 8;
    const hd_packed *p = t->packed;
    if (!p)
        return (hcg_rows){.at = t->data + row * K * size, .stride = K * size, .dtype = t->dtype};
    const uint64_t in_file = t->packed_first / K + row;
    for (unsigned i = 0; i < there; i++)
        scales[i] = hd_packed_scale_index(p, in_file + i, 0);
    return (hcg_rows){.at = p->codes->data + in_file * K, .stride = K, .dtype = HD_T_F8_E4M3};
}

static bool round_there(const hd_tensor *t, hir_dtype dtype, uint64_t row, unsigned there,
                        uint64_t end, uint8_t *out) {
    uint64_t at[HIR_PANEL];
    float scale[HIR_PANEL];
    hcg_rows x = rows_there(t, row, there, at);
    const uint64_t step = hd_tensor_dtype_bits(x.dtype) / 8 * HIR_GROUP;
    bool ok = true;
    if (t->packed) x.scale = scale;
    for (uint64_t k = 0; ok && k < end; k += HIR_GROUP, x.at += step) {
        hcg_ask_for_next_panel(x.at, x.stride, step);
        for (unsigned i = 0; x.scale && k % t->packed->tile.cols == 0 && i < there; i++)
            scale[i] = hd_packed_scale(t->packed, at[i]++);
        ok = hcg_quantise_rows(dtype, &x, there, out);
        out += hcg_group_bytes(dtype);
    }
    return ok;
}

static bool make_groups(const hd_tensor *t, hir_dtype dtype, uint64_t first, float *rows,
                        uint8_t *out) {
    const uint64_t left = (uint64_t)t->shape[0] - first, K = (uint64_t)t->shape[1];
    const unsigned there = left < HIR_PANEL ? (unsigned)left : HIR_PANEL;
    const uint64_t last = K % HIR_GROUP, end = K - last;
    const bool ok = is_read_there(t) ? round_there(t, dtype, first, there, end, out)
                                     : round_widened(t, dtype, first, there, end, rows, out);
    out += end / HIR_GROUP * hcg_group_bytes(dtype);
    hcg_put_factors(dtype, NULL, out + (last ? hcg_group_bytes(dtype) : 0));
    return ok && (last == 0 || round_last(t, dtype, first, there, last, out));
}

bool hcg_make_panel(const hd_tensor *t, const hcg_panel_form *f, uint64_t first, void *workspace,
                    uint8_t *out) {
    if (!hir_is_quantised(f->dtype)) return make_elements(t, f, first, workspace, out);
    if (hcg_may_keep(t, f->dtype)) {
        const bool ok = hcg_make_kept(t, f->dtype, first, workspace, out);
        if (ok || !hcg_is_fp4(f->dtype)) return ok;
    }
    return make_groups(t, f->dtype, first, workspace, out);
}
