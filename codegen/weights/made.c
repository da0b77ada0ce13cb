/* Computes derived weights (ir/derived.def), row by row.
 *
 * Element e of a block is the product of element e mod n of each factor, where n is the number of
 * elements of the factor: those of the block, of a row of it, or one. A factor is read as it is
 * needed, so that memory does not grow with the weight; only a softmax needs all of its weight, a
 * vector of logits. */
#include "codegen/weights/made.h"

#include <math.h>
#include <string.h>

#include "support/packed.h"
#include "support/workers.h"

enum {
    PIECE = 1 << 16, /* elements that a thread computes at a time; or one row */
    BLOCK = 2048,    /* elements that are checked at a time */
};

typedef struct block { /* some rows of the weight */
    const hir_derived_row *of;
    uint64_t first, rows;
} block;

typedef struct workspace { /* of one thread: elements of a piece */
    double *factor, *product;
    float *read;
} workspace;

typedef struct softmax { /* of all elements of a weight */
    const hd_tensor *of;
    double *at;
} softmax;

struct hcg_maker {
    hd_arena *arena;
    const hd_tensors *weights;
    uint64_t row; /* elements */
    size_t n_blocks;
    block *blocks;
    uint64_t piece; /* rows */
    HD_VEC(softmax) softmaxes;
    size_t n_workers;
    workspace *workers;
};

static const double *softmax_of(const hcg_maker *k, const hd_tensor *t) {
    for (size_t i = 0; i < k->softmaxes.n; i++)
        if (k->softmaxes.at[i].of == t) return k->softmaxes.at[i].at;
    return NULL;
}

static void add_softmax(hcg_maker *k, const hir_derived_factor *f) {
    const hd_tensor *t = hd_tensors_find(k->weights, f->name);
    if (f->by != HIR_DERIVED_SOFTMAX || softmax_of(k, t)) return;
    softmax s = {t, hd_new_array(k->arena, double, t->elements + 1)};
    for (uint64_t i = 0; i < t->elements; i++)
        s.at[i] = hd_tensor_get(t, i);
    hir_derive_elements(f->by, s.at, (int64_t)t->elements);
    hd_push(k->arena, &k->softmaxes, s);
}

static void add_block(hcg_maker *k, const hir_module *m, const hir_derived_row *of) {
    const block *before = k->n_blocks ? &k->blocks[k->n_blocks - 1] : NULL;
    hd_known(k->blocks);
    k->blocks[k->n_blocks++] = (block){.of = of,
                                       .first = before ? before->first + before->rows : 0,
                                       .rows = (uint64_t)hir_derived_rows(m, of, (int64_t)k->row)};
    for (uint32_t f = 0; f < of->n; f++)
        add_softmax(k, &of->factor[f]);
}

hcg_maker *hcg_maker_new(hd_arena *a, const hir_module *m, const hir_weight *w,
                         const hd_tensors *weights, size_t workers) {
    hcg_maker *k = hd_new(a, hcg_maker);
    *k = (hcg_maker){.arena = a, .weights = weights, .n_workers = workers};
    k->row = (uint64_t)hir_derived_row_elements(w->type);
    k->piece = k->row < PIECE ? PIECE / k->row : 1;
    k->blocks = hd_new_array(a, block, w->n_rows + 1);
    for (uint32_t i = 0; i < w->n_rows; i++)
        add_block(k, m, &w->rows[i]);
    const uint64_t n = k->piece * k->row;
    k->workers = hd_new_array(a, workspace, workers);
    for (size_t i = 0; i < workers; i++)
        k->workers[i] = (workspace){hd_new_array(a, double, n), hd_new_array(a, double, n),
                                    hd_new_array(a, float, n)};
    return k;
}

uint64_t hcg_made_rows(const hcg_maker *k, uint64_t bytes, uint64_t step) {
    const uint64_t steps = bytes / sizeof(float) / k->row / step;
    return (steps ? steps : 1) * step;
}

/* ---- tensors that are stored transposed ------------------------------------------------------ */
/* Is the slice a matrix of a tensor whose transpose the file holds, with rows of `row` elements? */
static bool is_as_stored(const hd_tensor *t, const hir_derived_factor *f, uint64_t row) {
    if (t->rank < 2 || !t->packed || !t->packed->transposed) return false;
    if ((uint64_t)t->shape[t->rank - 2] != row) return false;
    const uint64_t matrix = (uint64_t)t->shape[t->rank - 1] * (uint64_t)t->shape[t->rank - 2];
    return matrix && (uint64_t)hir_factor_elements(f, (int64_t)t->elements) == matrix &&
           (t->packed_first + (uint64_t)f->first) % matrix == 0;
}

/* The same elements in the order of the file, matrix by matrix. */
static hd_tensor in_file_order(const hd_tensor *t, hd_packed *packed) {
    hd_tensor there = *t;
    if (!t->packed) return there;
    *packed = *t->packed;
    packed->transposed = false;
    there.packed = packed;
    return there;
}

static bool is_block_as_stored(const hcg_maker *k, const block *b) {
    const hir_derived_factor *f = b->of->factor;
    const hd_tensor *t = hd_tensors_find(k->weights, f->name);
    return b->of->n == 1 && f->by == HIR_DERIVED_TRANSPOSED && is_as_stored(t, f, k->row) &&
           t->packed->cols == k->row && t->packed->rows == b->rows;
}

bool hcg_made_as_stored(const hcg_maker *k, uint64_t first, uint64_t n, hd_tensor *out) {
    size_t i = 0;
    while (i < k->n_blocks && k->blocks[i].first != first)
        i++;
    if (i == k->n_blocks || k->blocks[i].rows != n || !is_block_as_stored(k, &k->blocks[i]))
        return false;
    const hir_derived_factor *f = k->blocks[i].of->factor;
    *out = in_file_order(hd_tensors_find(k->weights, f->name), hd_new(k->arena, hd_packed));
    out->packed_first += (uint64_t)f->first;
    out->rank = 2, out->shape[0] = (int64_t)n, out->shape[1] = (int64_t)k->row;
    hd_tensor_measure(out);
    return true;
}

/* ---- numbers that are not finite ------------------------------------------------------------- */
static bool is_finite(const hd_tensor *whole) {
    hd_packed packed;
    const hd_tensor there = in_file_order(whole, &packed), *t = &there;
    double x[BLOCK];
    for (uint64_t i = 0; i < t->elements; i += BLOCK) {
        const uint64_t n = t->elements - i < BLOCK ? t->elements - i : BLOCK;
        hd_tensor_to_f64(t, i, n, x);
        for (uint64_t j = 0; j < n; j++)
            if (!isfinite(x[j])) return false;
    }
    return true;
}

const hd_tensor *hcg_made_of_fault(hcg_maker *k) {
    HD_VEC(const hd_tensor *) seen = {0};
    for (size_t b = 0; b < k->n_blocks; b++)
        for (uint32_t f = 0; f < k->blocks[b].of->n; f++) {
            if (is_block_as_stored(k, &k->blocks[b])) continue; /* packing the tensor checks it */
            const hd_tensor *t = hd_tensors_find(k->weights, k->blocks[b].of->factor[f].name);
            size_t i = 0;
            while (i < seen.n && seen.at[i] != t)
                i++;
            if (i < seen.n) continue;
            if (!is_finite(t)) return t;
            hd_push(k->arena, &seen, t);
        }
    return NULL;
}

/* ---- factors --------------------------------------------------------------------------------- */
static void read_as_is(const workspace *own, const hd_tensor *t, uint64_t first, uint64_t n,
                       double *out) {
    hd_tensor_to_f32(t, first, n, own->read);
    for (uint64_t i = 0; i < n; i++)
        out[i] = (double)own->read[i];
}

/* y[k][i] = x[i][k] for the rows that the slice holds. Reads n elements of y, which are rows of y,
 * from contiguous ranges of the rows of x. */
static void read_transposed(const hcg_maker *k, const workspace *own, const hd_tensor *t,
                            const hir_derived_factor *f, uint64_t at, uint64_t n, double *out) {
    const uint64_t all = (uint64_t)hir_factor_elements(f, (int64_t)t->elements);
    const uint64_t down = k->row, across = all / down;
    const uint64_t from = at / down, end = (at + n + down - 1) / down; /* rows of y */
    for (uint64_t i = 0; i < down; i++) {
        hd_tensor_to_f32(t, (uint64_t)f->first + i * across + from, end - from, own->read);
        for (uint64_t r = from; r < end; r++) {
            const uint64_t y = r * down + i;
            if (y >= at && y < at + n) out[y - at] = (double)own->read[r - from];
        }
    }
}

/* Reads elements in the order of the file. */
static void read_stored(const workspace *own, const hd_tensor *t, uint64_t first, uint64_t n,
                        double *out) {
    hd_packed packed;
    const hd_tensor there = in_file_order(t, &packed);
    read_as_is(own, &there, first, n, out);
}

/* Reads elements at .. at + n - 1 of a factor, all of which exist. */
static void read_factor(const hcg_maker *k, const workspace *own, const hir_derived_factor *f,
                        uint64_t at, uint64_t n, double *out) {
    const hd_tensor *t = hd_tensors_find(k->weights, f->name);
    const uint64_t first = (uint64_t)f->first + at;
    if (f->by == HIR_DERIVED_TRANSPOSED && is_as_stored(t, f, k->row)) {
        read_stored(own, t, first, n, out);
    } else if (f->by == HIR_DERIVED_TRANSPOSED) {
        read_transposed(k, own, t, f, at, n, out);
    } else if (f->by == HIR_DERIVED_SOFTMAX) {
        memcpy(out, softmax_of(k, t) + first, n * sizeof *out);
    } else {
        read_as_is(own, t, first, n, out);
        hir_derive_elements(f->by, out, (int64_t)n);
    }
}

/* Multiplies elements at .. at + n - 1 of the block by those of a factor. */
static void multiply(const hcg_maker *k, const workspace *own, const hir_derived_factor *f,
                     uint64_t at, uint64_t n) {
    const hd_tensor *t = hd_tensors_find(k->weights, f->name);
    const uint64_t all = (uint64_t)hir_factor_elements(f, (int64_t)t->elements);
    if (all == 1) {
        read_factor(k, own, f, 0, 1, own->factor);
        for (uint64_t i = 0; i < n; i++)
            own->product[i] *= own->factor[0];
        return;
    }
    for (uint64_t done = 0, some; done < n; done += some) {
        const uint64_t here = (at + done) % all;
        some = n - done < all - here ? n - done : all - here;
        read_factor(k, own, f, here, some, own->factor);
        for (uint64_t i = 0; i < some; i++)
            own->product[done + i] *= own->factor[i];
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */
/* Computes rows first .. first + n - 1 of a block, at most one piece. */
static void make_piece(const hcg_maker *k, const workspace *own, const block *b, uint64_t first,
                       uint64_t n, float *out) {
    const uint64_t elements = n * k->row;
    for (uint64_t i = 0; i < elements; i++)
        own->product[i] = 1;
    for (uint32_t f = 0; f < b->of->n; f++)
        multiply(k, own, &b->of->factor[f], first * k->row, elements);
    for (uint64_t i = 0; i < elements; i++)
        out[i] = (float)own->product[i];
}

typedef struct batch { /* some rows, cut into pieces */
    const hcg_maker *k;
    uint64_t first, n;
    float *out;
} batch;

/* Computes the rows of one piece, which may belong to several blocks. */
static void make_rows(void *context, size_t worker, size_t item) {
    const batch *all = context;
    const hcg_maker *k = all->k;
    uint64_t row = all->first + item * k->piece;
    const uint64_t last = all->first + all->n, end = row + k->piece < last ? row + k->piece : last;
    for (size_t i = 0; i < k->n_blocks && row < end; i++) {
        const block *b = &k->blocks[i];
        if (row >= b->first + b->rows) continue;
        const uint64_t here = b->first + b->rows < end ? b->first + b->rows : end;
        make_piece(k, &k->workers[worker], b, row - b->first, here - row,
                   all->out + (row - all->first) * k->row);
        row = here;
    }
}

void hcg_make_rows(hcg_maker *k, uint64_t first, uint64_t n, float *out) {
    batch b = {k, first, n, out};
    hcg_each_item(k->n_workers, (size_t)((n + k->piece - 1) / k->piece), make_rows, &b);
}
