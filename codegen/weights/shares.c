/* Reading a rank's part of a weight: its units, one after the other, each a run of elements of the
 * whole weight, which is one tensor, several, or made of others. */
#include "codegen/weights/shares.h"

#include <string.h>

#include "codegen/weights/convert.h"
#include "codegen/weights/made.h"

enum {
    BAND = 64
}; /* rows of a derived weight that are made at once where a part of each is read */

struct hcg_share_reader {
    hd_arena *arena;
    const hir_weight *w;
    hir_weight whole;
    const hd_tensors *weights;
    int64_t rank;
    uint64_t run;                /* elements of a unit */
    uint64_t whole_units, units; /* of a row of units: in all, and of the rank */
    /* of a derived weight: */
    hcg_maker *maker;
    uint64_t row, rows; /* elements of a row, and rows */
    uint64_t band;      /* first row that is in `made`; rows: none is */
    float *made;
};

static uint64_t elements_behind(hir_type t, uint32_t dim) {
    uint64_t n = 1;
    for (uint32_t i = dim + 1; i < t.rank; i++)
        n *= (uint64_t)t.dim[i];
    return n;
}

hcg_share_reader *hcg_share_reader_new(hd_arena *a, const hir_module *whole, const hir_weight *w,
                                       const hd_tensors *weights, int64_t rank, size_t workers) {
    const hd_share *s = &w->share.share;
    hcg_share_reader *r = hd_new(a, hcg_share_reader);
    *r = (hcg_share_reader){.arena = a, .w = w, .whole = *w, .weights = weights, .rank = rank};
    r->whole.type = hir_whole_type(w);
    r->whole.share.on = false;
    r->run = (uint64_t)hd_unit_elements(s) * elements_behind(w->type, w->share.dim);
    r->whole_units = (uint64_t)(s->groups * s->units);
    r->units = (uint64_t)(hd_local_groups(s) * hd_local_units(s));
    if (!hir_is_derived(w)) return r;
    r->maker = hcg_maker_new(a, whole, &r->whole, weights, workers);
    r->row = (uint64_t)hir_derived_row_elements(r->whole.type);
    r->rows = (uint64_t)hir_type_row_elements(r->whole.type) / r->row;
    r->band = r->rows;
    r->made = hd_new_array(a, float, BAND * r->row);
    return r;
}

const hd_tensor *hcg_share_fault(hcg_share_reader *r) {
    return r->maker ? hcg_made_of_fault(r->maker) : NULL;
}

/* Of a derived weight: whole rows straight to where they belong, parts of rows by way of a band. */
static void read_made(hcg_share_reader *r, uint64_t first, uint64_t n, float *out) {
    while (n > 0) {
        const uint64_t row = first / r->row, inside = first % r->row;
        if (inside == 0 && n >= r->row) {
            const uint64_t rows = n / r->row;
            hcg_make_rows(r->maker, row, rows, out);
            first += rows * r->row, out += rows * r->row, n -= rows * r->row;
            continue;
        }
        if (row < r->band || row >= r->band + BAND || r->band == r->rows) {
            const uint64_t left = r->rows - row;
            hcg_make_rows(r->maker, row, left < BAND ? left : BAND, r->made);
            r->band = row;
        }
        const uint64_t some = r->row - inside < n ? r->row - inside : n;
        memcpy(out, r->made + (row - r->band) * r->row + inside, (size_t)some * sizeof *out);
        first += some, out += some, n -= some;
    }
}

/* Of tensors of the checkpoint, matrix by matrix where there are several. */
static void read_stored(hcg_share_reader *r, uint64_t first, uint64_t n, float *out) {
    const uint64_t all = (uint64_t)hir_type_row_elements(r->whole.type);
    const uint64_t matrix = all / (uint64_t)hcg_matrices(&r->whole);
    while (n > 0) {
        const uint64_t inside = first % matrix, left = matrix - inside, some = n < left ? n : left;
        const hd_tensor t =
            hcg_find_matrix(r->arena, r->weights, &r->whole, (int64_t)(first / matrix));
        hd_tensor_to_f32(&t, inside, some, out);
        first += some, out += some, n -= some;
    }
}

/* A run inside one unit. */
static void read_run(hcg_share_reader *r, uint64_t row, uint64_t unit, uint64_t inside, uint64_t n,
                     float *out) {
    const int64_t from = hd_unit_of(&r->w->share.share, r->rank, (int64_t)unit);
    if (from < 0) {
        memset(out, 0, (size_t)n * sizeof *out);
        return;
    }
    const uint64_t first = (row * r->whole_units + (uint64_t)from) * r->run + inside;
    r->maker ? read_made(r, first, n, out) : read_stored(r, first, n, out);
}

void hcg_read_share(hcg_share_reader *r, uint64_t first, uint64_t n, float *out) {
    const uint64_t row = r->units * r->run;
    while (n > 0) {
        const uint64_t unit = first % row / r->run, inside = first % r->run;
        const uint64_t some = r->run - inside < n ? r->run - inside : n;
        read_run(r, first / row, unit, inside, some, out);
        first += some, out += some, n -= some;
    }
}
