/* Reads a rank's share of a weight: its units one after the other, each a contiguous range of
 * elements of the whole weight, which is one tensor, several, or derived from others. */
#include "codegen/weights/shares.h"

#include <string.h>

#include "codegen/weights/convert.h"
#include "codegen/weights/kept.h"
#include "codegen/weights/made.h"
#include "support/known.h"
#include "support/packed.h"

enum {
    BAND = 64
}; /* rows of a derived weight that are made at once where a part of each is read */

typedef struct kept_rows { /* rows of the share as integers or NVFP4 of the checkpoint */
    hd_packed packed;
    hd_tensor codes, scales, zeros, factors;
    uint64_t cols;  /* of the share */
    uint32_t bits;  /* of one code */
    uint8_t *bytes; /* of the codes */
    float *scale;   /* of integers: of each tile; of NVFP4: the factor of each row */
    uint32_t *zero; /* of integers: several in a word, along the rows */
    uint8_t *small; /* of NVFP4: the scales */
} kept_rows;

struct hcg_share_reader {
    hd_arena *arena;
    const hir_weight *w;
    hir_weight whole;
    const hd_tensors *weights;
    int64_t rank;
    uint64_t run;                /* elements of a unit */
    uint64_t whole_units, units; /* units in a row: in all, and of the rank */
    /* of a derived weight: */
    hcg_maker *maker;
    uint64_t row, rows; /* elements of a row; rows computed at once */
    uint64_t band;      /* first row in `made`; rows: none is */
    float *made;
    /* of rows that keep their codes: */
    kept_rows kept;
    int64_t matrix; /* the matrix of the whole that `found` holds; -1: none */
    hd_tensor found;
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
    *r = (hcg_share_reader){
        .arena = a, .w = w, .whole = *w, .weights = weights, .rank = rank, .matrix = -1};
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

/* Reads a share of a derived weight: whole rows directly to their place, parts of rows through a
 * band of rows. */
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

/* Reads a share of tensors of the checkpoint, matrix by matrix where there are several. */
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

/* Reads a contiguous range inside one unit. */
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

/* ---- codes ----------------------------------------------------------------------------------- */
/* Are all matrices integers of one kind, with equal groups and tiles? */
static bool are_alike(hcg_share_reader *r, hd_packed *of) {
    for (int64_t i = 0; i < hcg_matrices(&r->whole); i++) {
        const hd_tensor t = hcg_find_matrix(r->arena, r->weights, &r->whole, i);
        if (!hcg_may_keep(&t, r->w->type.dtype)) return false;
        if (i == 0) *of = *t.packed;
        if (t.packed->packing != of->packing || t.packed->tile.cols != of->tile.cols) return false;
    }
    return hd_integer_bits(of->packing) > 0;
}

/* The number of columns of the share that have a common scale: no such group mixes units that exist
 * with a unit of zeros. */
static uint64_t tile_of_part(const hcg_share_reader *r, const hd_packed *whole, uint64_t cols) {
    if (cols == whole->cols) return whole->tile.cols;
    if (whole->tile.cols == whole->cols) return r->run;
    return r->run % whole->tile.cols == 0 ? whole->tile.cols : HIR_GROUP;
}

/* The same for NVFP4, whose matrices may have any factors: each row is a matrix of its own. */
static bool keeps_nvfp4(hcg_share_reader *r, uint64_t most) {
    enum { HALF = HIR_GROUP / 2 }; /* numbers with a common scale */
    const hir_type type = r->w->type;
    const uint64_t cols = (uint64_t)type.dim[type.rank - 1];
    kept_rows *k = &r->kept;
    if (r->maker || type.rank < 2 || r->run % HALF || cols % HALF) return false;
    for (int64_t i = 0; i < hcg_matrices(&r->whole); i++) {
        const hd_tensor t = hcg_find_matrix(r->arena, r->weights, &r->whole, i);
        if (!hcg_may_keep(&t, HIR_NVFP4)) return false;
    }
    *k = (kept_rows){.cols = cols, .bits = 4};
    k->packed = (hd_packed){.packing = HD_PACKING_NVFP4,
                            .codes = &k->codes,
                            .scales = &k->scales,
                            .factor = &k->factors,
                            .rows = 1,
                            .cols = cols,
                            .tile = {1, HALF}};
    k->bytes = hd_new_array(r->arena, uint8_t, most * cols / 2);
    k->small = hd_new_array(r->arena, uint8_t, most * cols / HALF);
    k->scale = hd_new_array(r->arena, float, most);
    return true;
}

bool hcg_share_keeps(hcg_share_reader *r, uint64_t most) {
    const hir_type type = r->w->type;
    const uint64_t cols = (uint64_t)type.dim[type.rank - 1];
    hd_packed whole = {0};
    if (type.dtype == HIR_NVFP4) return keeps_nvfp4(r, most);
    if (r->maker || type.rank < 2 || r->run % HIR_GROUP || cols % HIR_GROUP) return false;
    if (!hir_is_quantised(type.dtype) || !are_alike(r, &whole)) return false;
    kept_rows *k = &r->kept;
    const uint64_t tile = tile_of_part(r, &whole, cols);
    hd_known(tile > 0);
    const uint64_t tiles = cols / tile;
    *k = (kept_rows){.cols = cols, .bits = hd_integer_bits(whole.packing)};
    k->packed = (hd_packed){.packing = k->bits == 4 ? HD_PACKING_INT4 : HD_PACKING_INT8,
                            .codes = &k->codes,
                            .scales = &k->scales,
                            .zeros = &k->zeros,
                            .cols = cols,
                            .tile = {1, tile}};
    k->bytes = hd_new_array(r->arena, uint8_t, most * cols * k->bits / 8);
    k->scale = hd_new_array(r->arena, float, most *tiles);
    k->zero = hd_new_array(r->arena, uint32_t, (most + 7) / 8 * 8 * tiles); /* large enough for both
                                                                             * layouts */
    return true;
}

static void put_zero(kept_rows *k, uint64_t row, uint64_t tile, uint32_t zero) {
    const uint64_t in_a_word = 32 / k->bits, tiles = k->cols / k->packed.tile.cols;
    k->zero[row / in_a_word * tiles + tile] |= zero << k->bits * (row % in_a_word);
}

/* Reads codes and scales of NVFP4 as read_codes does. */
static void read_nvfp4(kept_rows *k, const hd_tensor *t, uint64_t first, uint64_t row, uint64_t col,
                       uint64_t n) {
    const uint64_t to = row * k->cols + col, in_scale = k->packed.tile.cols;
    if (!t) {
        memset(k->bytes + to / 2, 0, (size_t)n / 2);
        memset(k->small + to / in_scale, 0, (size_t)(n / in_scale));
        return;
    }
    const hd_packed *p = t->packed;
    const uint64_t at = t->packed_first + first;
    memcpy(k->bytes + to / 2, p->codes->data + at / 2, (size_t)n / 2);
    memcpy(k->small + to / in_scale, p->scales->data + at / in_scale, (size_t)(n / in_scale));
    k->scale[row] = (float)hd_packed_factor(p, at / p->cols / p->rows);
}

/* Reads codes for the columns from `col` on of a row of the share: those of the whole tensor from
 * element `first` on, or zeros if there is no tensor. */
static void read_codes(kept_rows *k, const hd_tensor *t, uint64_t first, uint64_t row, uint64_t col,
                       uint64_t n) {
    if (k->packed.packing == HD_PACKING_NVFP4) {
        read_nvfp4(k, t, first, row, col, n);
        return;
    }
    const uint64_t tile = k->packed.tile.cols, tiles = k->cols / tile;
    uint8_t *to = k->bytes + (row * k->cols + col) * k->bits / 8;
    if (!t) { /* their scale stays 0 */
        memset(to, 0, (size_t)(n * k->bits / 8));
        return;
    }
    for (uint64_t done = 0; done < n; done += tile - (col + done) % tile) {
        const uint64_t at = t->packed_first + first + done, cols = t->packed->cols;
        const hd_integers in = hd_packed_integers(t->packed, at / cols, at % cols);
        if (done == 0) hd_packed_codes(t->packed, at / cols, at % cols, n, to);
        if ((col + done) % tile) continue; /* its first column has set it */
        k->scale[row * tiles + (col + done) / tile] = in.scale;
        put_zero(k, row, (col + done) / tile, (uint32_t)in.zero);
    }
}

/* Finds the tensor of a matrix. Since rows are read one by one, the last one is kept: names of
 * matrices are not formatted for each row. */
static const hd_tensor *find_once(hcg_share_reader *r, int64_t matrix) {
    if (r->matrix != matrix) r->found = hcg_find_matrix(r->arena, r->weights, &r->whole, matrix);
    r->matrix = matrix;
    return &r->found;
}

/* Reads the codes of one row of the share, unit by unit; no unit continues in another row of the
 * whole. */
static void read_row_codes(hcg_share_reader *r, uint64_t row, uint64_t to) {
    const uint64_t all = (uint64_t)hir_type_row_elements(r->whole.type);
    const uint64_t matrix = all / (uint64_t)hcg_matrices(&r->whole), units = r->units * r->run;
    for (uint64_t col = 0, n; col < r->kept.cols; col += n) {
        const uint64_t at = row * r->kept.cols + col, inside = at % r->run;
        n = r->run - inside < r->kept.cols - col ? r->run - inside : r->kept.cols - col;
        const int64_t from =
            hd_unit_of(&r->w->share.share, r->rank, (int64_t)(at % units / r->run));
        if (from < 0) {
            read_codes(&r->kept, NULL, 0, to, col, n);
            continue;
        }
        const uint64_t first = (at / units * r->whole_units + (uint64_t)from) * r->run + inside;
        const hd_tensor *t = find_once(r, (int64_t)(first / matrix));
        read_codes(&r->kept, t, first % matrix, to, col, n);
    }
}

static hd_tensor part_of_codes(const hcg_share_reader *r, hd_tensor_dtype dtype, uint64_t rows,
                               uint64_t cols, const void *data) {
    hd_tensor t = {.name = r->w->name, .dtype = dtype, .rank = 2, .data = data};
    t.shape[0] = (int64_t)rows, t.shape[1] = (int64_t)cols;
    hd_tensor_measure(&t);
    return t;
}

static hd_tensor read_rows_of_nvfp4(hcg_share_reader *r, uint64_t first, uint64_t n) {
    kept_rows *k = &r->kept;
    memset(k->scale, 0, (size_t)n * sizeof *k->scale);
    for (uint64_t row = 0; row < n; row++)
        read_row_codes(r, first + row, row);
    k->codes = part_of_codes(r, HD_T_U8, n, k->cols / 2, k->bytes);
    k->scales = part_of_codes(r, HD_T_F8_E4M3, n, k->cols / k->packed.tile.cols, k->small);
    k->factors = part_of_codes(r, HD_T_F32, n, 1, k->scale);
    hd_tensor t = part_of_codes(r, HD_T_F64, n, k->cols, NULL);
    t.packed = &k->packed;
    return t;
}

hd_tensor hcg_read_share_codes(hcg_share_reader *r, uint64_t first, uint64_t n) {
    kept_rows *k = &r->kept;
    if (k->packed.packing == HD_PACKING_NVFP4) return read_rows_of_nvfp4(r, first, n);
    const uint64_t tiles = k->cols / k->packed.tile.cols, in_a_word = 32 / k->bits;
    const uint64_t words = (n + in_a_word - 1) / in_a_word;
    memset(k->scale, 0, (size_t)(n * tiles) * sizeof *k->scale);
    memset(k->zero, 0, (size_t)(words * tiles) * sizeof *k->zero);
    for (uint64_t row = 0; row < n; row++)
        read_row_codes(r, first + row, row);
    k->packed.rows = n;
    k->codes = part_of_codes(r, HD_T_I32, n, k->cols / in_a_word, k->bytes);
    k->scales = part_of_codes(r, HD_T_F32, n, tiles, k->scale);
    k->zeros = part_of_codes(r, HD_T_I32, words, tiles, k->zero);
    hd_tensor t = part_of_codes(r, HD_T_F64, n, k->cols, NULL);
    t.packed = &k->packed;
    return t;
}
