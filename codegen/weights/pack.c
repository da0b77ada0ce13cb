/* The packer: a checkpoint to a .weights file in the layout of the kernels (docs/formats.md).
 *
 *     hrt_weights_header | zeros to 4096 | each weight at its offset, zeros between
 *
 * The file is written front to back from the mapped checkpoint, a few MiB at a time, so that
 * packing needs little memory however large the model is; the digest of the content is put into the
 * header at the end. The same checkpoint and program give the same bytes. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "codegen/program/program.h"
#include "codegen/weights/convert.h"
#include "codegen/weights/made.h"
#include "codegen/weights/panels.h"
#include "codegen/weights/shares.h"
#include "support/packed.h"
#include "support/workers.h"

enum {
    CHUNK = 1 << 16,          /* bytes that a thread makes at a time */
    AHEAD = 24,               /* chunks for each thread; fewer of long rows, for less memory */
    LEAST_AHEAD = 8,          /* at least so many chunks for each thread */
    ROWS_BYTES = 4 << 20,     /* of rows that must be computed, made at once */
    PROGRESS_STEP = 64 << 20, /* bytes between two reports */
    BATCH = 256,              /* tensors between two synchronisations of the threads */
};
_Static_assert(HCG_MOST_PLACES / HCG_MOST_WORKERS >= AHEAD, "each has a place");

static bool is_panel(const hir_weight *w) {
    return w->layout != HIR_LAYOUT_ROWS && hir_has_matrices(w->type);
}

typedef struct part { /* one tensor of a batch */
    const hir_weight *w;
    hd_tensor t;
    uint64_t begin; /* its offset in the file, after zeros; 0: it follows the part before it */
    bool in_panels;
    hcg_panel_form form;
    uint64_t units, size; /* units are panels or elements; size: bytes of each */
    uint64_t each;        /* units in a chunk */
    size_t first, n;      /* chunks */
} part;

typedef struct batch {
    HD_VEC(part) parts;
    size_t chunks;
    atomic_size_t
        failed; /* the first part that has a number which cannot be stored; parts.n: none */
} batch;

typedef struct packer {
    hd_diags *d;
    hd_output *out;
    XXH3_state_t *hash; /* of the data so far */
    int64_t rank;       /* the rank whose share is packed */
    uint64_t at, total; /* bytes of the data */
    uint64_t reported;
    uint8_t to[HRT_WEIGHTS_DATA];
    uint64_t chunk_size;
    size_t n_workers, n_chunks;
    uint8_t **rows;  /* for each thread: rows of a panel */
    uint8_t **chunk; /* each a part of the file */
    batch waiting;   /* tensors that wait to be packed */
    hd_arena *of_waiting;
} packer;

static void free_hash(void *what) {
    packer *p = what;
    XXH3_freeState(p->hash);
}

static void free_waiting(void *what) {
    packer *p = what;
    hd_arena_free(p->of_waiting);
}

static void put(packer *p, const void *data, size_t n) {
    hd_output_write(p->out, data, n);
    XXH3_128bits_update(p->hash, data, n);
    p->at += n;
    if (p->at - p->reported < PROGRESS_STEP && p->at != p->total) return;
    p->reported = p->at;
    hd_progress(p->d, "packing", p->at, p->total);
}

static void put_zeros_to(packer *p, uint64_t offset) {
    memset(p->to, 0, sizeof p->to);
    while (p->at < offset) {
        uint64_t n = offset - p->at;
        put(p, p->to, n < sizeof p->to ? (size_t)n : sizeof p->to);
    }
}

/* ---- matrices and rows -------------------------------------------------------------------------
 *
 * Tensors are made in independent chunks. Threads make them, and one thread at a time appends
 * finished chunks to the file, in order, while the others make the next ones, also those of the
 * next tensors: most tensors have only a few chunks, and threads that waited for each other after
 * every tensor would wait for whichever writes its last chunk. The file is written when a block of
 * 2 MB is full, which takes as long as making many chunks: with many small chunks for each thread
 * the others can continue meanwhile, and small chunks stay in the caches for longer than a few
 * large ones.
 */
static size_t part_of(const batch *b, size_t chunk) {
    size_t low = 0, high = b->parts.n - 1;
    while (low < high) {
        const size_t mid = low + (high - low + 1) / 2;
        if (b->parts.at[mid].first <= chunk)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

static uint64_t units_of(const part *c, uint64_t first) {
    return c->units - first < c->each ? c->units - first : c->each;
}

static void note_failure(batch *b, size_t which) {
    size_t known = b->failed;
    while (which < known && !atomic_compare_exchange_weak(&b->failed, &known, which))
        ;
}

typedef struct putting { /* shared by all threads */
    packer *p;
    batch *b;
} putting;

static void make_chunk(void *context, size_t worker, size_t place, size_t item) {
    const putting *all = context;
    batch *b = all->b;
    const size_t which = part_of(b, item);
    const part *c = &b->parts.at[which];
    const uint64_t first = (item - c->first) * c->each, n = units_of(c, first);
    uint8_t *chunk = all->p->chunk[place], *rows = all->p->rows[worker];
    bool ok = true;
    if (which > b->failed) return;
    if (!c->in_panels) ok = hcg_convert(&c->t, first, n, c->form.dtype, chunk);
    for (uint64_t i = 0; c->in_panels && ok && i < n; i++)
        ok = hcg_make_panel(&c->t, &c->form, (first + i) * c->form.rows, rows, chunk + i * c->size);
    if (!ok) note_failure(b, which);
}

static void put_chunk(void *context, size_t place, size_t item) {
    const putting *all = context;
    const batch *b = all->b;
    const part *c = &b->parts.at[part_of(b, item)];
    const uint64_t first = (item - c->first) * c->each;
    if (b->failed < b->parts.n) return;
    if (first == 0 && c->begin) put_zeros_to(all->p, c->begin);
    put(all->p, all->p->chunk[place], (size_t)(units_of(c, first) * c->size));
}

static void add_part(const packer *p, hd_arena *a, batch *b, const hir_weight *w,
                     const hd_tensor *t, uint64_t begin) {
    part c = {.w = w,
              .t = *t,
              .begin = begin,
              .in_panels = is_panel(w),
              .form = hcg_panel_form_of(w),
              .first = b->chunks};
    c.units = t->elements, c.size = hir_dtype_bytes(w->type.dtype);
    if (c.in_panels) {
        c.units = ((uint64_t)t->shape[0] + c.form.rows - 1) / c.form.rows;
        c.size = hcg_bytes_of_panel(&c.form, (uint64_t)t->shape[1]);
    }
    const uint64_t most = p->chunk_size / c.size;
    c.each = (c.units + p->n_workers - 1) / p->n_workers; /* at least one chunk for each thread */
    if (c.each > most) c.each = most;
    if (c.units == 0) return;
    c.n = (size_t)((c.units + c.each - 1) / c.each);
    b->chunks += c.n;
    hd_push(a, &b->parts, c);
}

/* Packs a batch. Returns NULL, or the part with a number that cannot be stored. */
static const part *put_batch(packer *p, batch *b) {
    putting all = {p, b};
    b->failed = b->parts.n;
    hcg_each_in_order(&(hcg_in_order){.workers = p->n_workers,
                                      .places = p->n_chunks,
                                      .n = b->chunks,
                                      .make = make_chunk,
                                      .put = put_chunk,
                                      .context = &all});
    return b->failed < b->parts.n ? &b->parts.at[b->failed] : NULL;
}

/* Packs a tensor. As in all functions that pack, false means: a number cannot be stored in this
 * type. */
static bool put_tensor(packer *p, hd_arena *a, const hir_weight *w, const hd_tensor *t) {
    batch b = {0};
    add_part(p, a, &b, w, t, 0);
    return b.parts.n == 0 || !put_batch(p, &b);
}

typedef struct slot {
    uint64_t offset;
    const hir_weight *w;
} slot;

/* Allocates the chunks and each thread's workspace; a chunk holds at least one panel of the longest
 * rows. */
static void allocate_chunks(packer *p, hd_arena *a, const slot *slots, size_t n) {
    p->chunk_size = CHUNK;
    for (size_t i = 0; i < n; i++) {
        const hir_weight *w = slots[i].w;
        if (!is_panel(w)) continue;
        const hcg_panel_form f = hcg_panel_form_of(w);
        const uint64_t bytes = hcg_bytes_of_panel(&f, (uint64_t)w->type.dim[w->type.rank - 1]);
        if (bytes > p->chunk_size) p->chunk_size = bytes;
    }
    const size_t ahead = AHEAD * CHUNK / p->chunk_size;
    p->n_chunks = (ahead > LEAST_AHEAD ? ahead : LEAST_AHEAD) * p->n_workers;
    p->chunk = hd_new_array(a, uint8_t *, p->n_chunks);
    p->rows = hd_new_array(a, uint8_t *, p->n_workers);
    for (size_t i = 0; i < p->n_chunks; i++)
        p->chunk[i] = hd_alloc(a, p->chunk_size / HRT_ALIGN + 1, HRT_ALIGN);
    for (size_t i = 0; i < p->n_workers; i++)
        p->rows[i] = hd_alloc(a, HCG_PANEL_WORKSPACE / HRT_ALIGN, HRT_ALIGN);
}

/* ---- the file -------------------------------------------------------------------------------- */

static int by_offset(const void *x, const void *y) {
    const slot *a = x, *b = y;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return strcmp(a->w->name, b->w->name);
}

/* Is the weight a range of rows of another weight, and so already in the file? */
static bool is_held(const hcg_program *p, size_t weight) {
    return weight < p->weight_holders.n && p->weight_holders.at[weight] != HIR_NONE;
}

/* Lists the weights in the order of the file; false if the program's offsets contradict their
 * sizes. */
static bool plan(const hcg_program *p, hd_diags *d, slot *slots, size_t *n) {
    uint64_t end = 0;
    *n = 0;
    for (size_t i = 0; i < p->m->weights.n; i++)
        if (!p->m->weights.at[i].unused && p->weight_offsets.at[i] != HCG_UNREAD && !is_held(p, i))
            slots[(*n)++] = (slot){p->weight_offsets.at[i], &p->m->weights.at[i]};
    if (*n) qsort(slots, *n, sizeof *slots, by_offset);
    for (size_t i = 0; i < *n; i++) {
        uint64_t bytes;
        if (slots[i].offset < end || !hir_weight_bytes(slots[i].w, &bytes) ||
            hd_add_overflow(slots[i].offset, bytes, &end)) {
            hd_err(d, HD_E_INTERNAL, HD_NOWHERE, "the place of weight '%s' overlaps another",
                   slots[i].w->name);
            return false;
        }
    }
    if (end <= p->weights_bytes) return true;
    hd_err(d, HD_E_INTERNAL, HD_NOWHERE, "the weights take %llu bytes, %llu were planned",
           (unsigned long long)end, (unsigned long long)p->weights_bytes);
    return false;
}

/* A digest that distinguishes a checkpoint from others of its shape but reads little of it: both
 * ends of each tensor. Pipeline stages are packed one by one, perhaps on different machines, and
 * all must be packed from the same checkpoint. */
static void tell_source(const hd_tensors *weights, XXH3_state_t *hash, uint8_t out[16]) {
    enum { END = 64 };
    XXH3_128bits_reset(hash);
    for (size_t i = 0; i < weights->list.n; i++) {
        const hd_tensor *t = &weights->list.at[i], *at = t->packed ? t->packed->codes : t;
        const uint64_t n = at->bytes < END ? at->bytes : END;
        XXH3_128bits_update(hash, t->name, strlen(t->name) + 1);
        XXH3_128bits_update(hash, t->shape, t->rank * sizeof *t->shape);
        XXH3_128bits_update(hash, &t->dtype, sizeof t->dtype);
        XXH3_128bits_update(hash, at->data, n);
        XXH3_128bits_update(hash, at->data + at->bytes - n, n);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash));
    memcpy(out, canonical.digest, sizeof canonical.digest);
}

static hrt_weights_header make_header(const packer *p, const hcg_program *program,
                                      const hd_tensors *weights) {
    hrt_weights_header h = {.version = HRT_VERSION,
                            .rank = (uint32_t)p->rank,
                            .data_offset = HRT_WEIGHTS_DATA,
                            .data_bytes = program->weights_bytes};
    memcpy(h.magic, HRT_WEIGHTS_MAGIC, sizeof h.magic);
    memcpy(h.digest, program->digest, sizeof h.digest);
    memcpy(h.program, program->id, sizeof h.program);
    if (hcg_stages(program) > 1) tell_source(weights, p->hash, h.source);
    return h;
}

/* ---- weights --------------------------------------------------------------------------------- */
/* ---- shares of ranks ------------------------------------------------------------------------- */
static hd_tensor rows_tensor(const hir_weight *w, uint64_t n, uint64_t row, const float *rows) {
    hd_tensor t = {
        .name = w->name, .dtype = HD_T_F32, .rank = 2, .shape = {(int64_t)n, (int64_t)row}};
    hd_tensor_measure(&t);
    t.data = (const uint8_t *)rows;
    return t;
}

static bool reject_rows(packer *p, const hir_weight *w, const hd_tensor *t, uint64_t first) {
    hd_tensor whole = {.rank = w->type.rank};
    memcpy(whole.shape, w->type.dim, w->type.rank * sizeof *w->type.dim);
    return hcg_reject_part(p->d, w, t, &whole, first);
}

/* Packs the rank's share, matrix after matrix, whole panels of rows at a time: in f32, or as the
 * integers of the checkpoint. */
static bool put_share_rows(packer *p, hcg_share_reader *r, const hir_weight *w, hd_arena *a) {
    const uint64_t row = (uint64_t)w->type.dim[w->type.rank - 1];
    const uint64_t all = (uint64_t)hir_type_row_elements(w->type) / row;
    const uint64_t matrix = w->type.rank == 3 ? (uint64_t)w->type.dim[1] : all;
    uint64_t most = ROWS_BYTES / sizeof(float) / row / HIR_PANEL * HIR_PANEL;
    if (most < HIR_PANEL) most = HIR_PANEL;
    if (most > matrix) most = matrix;
    const bool keeps = hcg_share_keeps(r, most);
    float *rows = keeps ? NULL : hd_new_array(a, float, most *row);
    for (uint64_t first = 0, n; first < all; first += n) {
        n = matrix - first % matrix < most ? matrix - first % matrix : most;
        if (keeps) {
            const hd_tensor codes = hcg_read_share_codes(r, first, n);
            if (put_tensor(p, a, w, &codes)) continue;
            rows = hd_new_array(a, float, n *row); /* to find the number that is rejected */
        }
        hcg_read_share(r, first * row, n * row, rows);
        const hd_tensor t = rows_tensor(w, n, row, rows);
        if (keeps || !put_tensor(p, a, w, &t)) return reject_rows(p, w, &t, first * row);
    }
    return true;
}

static bool put_share(packer *p, const hir_module *whole, const hir_weight *w,
                      const hd_tensors *weights) {
    if (w->type.dtype == HIR_I32) {
        hd_err(p->d, HD_E_UNSUPPORTED, w->loc, "weight '%s' of whole numbers cannot be shared out",
               w->name);
        return false;
    }
    hd_arena *a = hd_arena_new(); /* freed when the weight is packed */
    if (!a) return !hd_err(p->d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
    hcg_share_reader *r = hcg_share_reader_new(a, whole, w, weights, p->rank, p->n_workers);
    const hd_tensor *fault = hcg_share_fault(r);
    const bool ok = fault ? hcg_reject_values(p->d, w, fault) : put_share_rows(p, r, w, a);
    hd_arena_free(a);
    return ok;
}

/* Rows of a derived weight, from `first` on, as a tensor. */
static hd_tensor made_rows(hcg_maker *k, const hir_weight *w, uint64_t first, uint64_t n,
                           float *to) {
    hcg_make_rows(k, first, n, to);
    return rows_tensor(w, n, (uint64_t)hir_derived_row_elements(w->type), to);
}

/* Packs a derived weight, matrix after matrix: as it is stored if the checkpoint has the matrix,
 * else some rows at a time. A panel consists of adjacent rows, so the panels of some rows have the
 * same bytes as in the whole. */
static bool put_made(packer *p, hcg_maker *k, const hir_weight *w, const hd_tensors *weights,
                     hd_arena *a) {
    const uint64_t row = (uint64_t)hir_derived_row_elements(w->type);
    const uint64_t all = (uint64_t)hir_type_row_elements(w->type) / row;
    const uint64_t matrix = w->type.rank == 3 ? (uint64_t)w->type.dim[1] : all;
    const uint64_t most = hcg_made_rows(k, ROWS_BYTES, HIR_PANEL);
    float *rows = NULL;
    hd_tensor stored;
    for (uint64_t first = 0, n; first < all; first += n) {
        if (first % matrix == 0 && hcg_made_as_stored(k, first, matrix, &stored)) {
            n = matrix;
            if (put_tensor(p, a, w, &stored)) continue;
            return hcg_reject_values(p->d, w, hd_tensors_find(weights, stored.name));
        }
        if (!rows) rows = hd_new_array(a, float, (most < matrix ? most : matrix) * row);
        n = matrix - first % matrix < most ? matrix - first % matrix : most;
        const hd_tensor t = made_rows(k, w, first, n, rows);
        if (!put_tensor(p, a, w, &t)) return reject_rows(p, w, &t, first * row);
    }
    return true;
}

static bool make_and_put(packer *p, const hir_module *m, const hir_weight *w,
                         const hd_tensors *weights) {
    hd_arena *a = hd_arena_new(); /* freed when the weight is packed */
    if (!a) return !hd_err(p->d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
    hcg_maker *k = hcg_maker_new(a, m, w, weights, p->n_workers);
    const hd_tensor *fault = hcg_made_of_fault(k);
    const bool ok = fault ? hcg_reject_values(p->d, w, fault) : put_made(p, k, w, weights, a);
    hd_arena_free(a);
    return ok;
}

/* Packs the tensors that wait. */
static bool flush(packer *p) {
    const part *fault = p->waiting.parts.n ? put_batch(p, &p->waiting) : NULL;
    const bool ok = !fault || hcg_reject_values(p->d, fault->w, &fault->t);
    hd_arena_free(p->of_waiting);
    p->of_waiting = NULL;
    p->waiting = (batch){0};
    return ok;
}

/* Adds matrix `i` of a weight, or all of it, at offset `begin` if that is not 0. */
static bool add_tensor(packer *p, const slot *s, const hd_tensors *weights, int64_t i, bool all,
                       uint64_t begin) {
    if (p->waiting.parts.n >= BATCH && !flush(p)) return false;
    if (!p->of_waiting) p->of_waiting = hd_arena_new();
    hd_arena *a = p->of_waiting;
    if (!a) return !hd_err(p->d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
    const hd_tensor t =
        all ? *hd_tensors_find(weights, s->w->name) : hcg_find_matrix(a, weights, s->w, i);
    add_part(p, a, &p->waiting, s->w, &t, begin);
    return true;
}

/* Adds a weight of one tensor, or matrices of experts one after the other, which are in one tensor
 * or in a tensor each. */
static bool add_tensors(packer *p, const slot *s, const hd_tensors *weights) {
    if (!s->w->stacked && !(is_panel(s->w) && s->w->type.rank == 3))
        return add_tensor(p, s, weights, 0, true, s->offset);
    for (int64_t i = 0; i < hcg_matrices(s->w); i++)
        if (!add_tensor(p, s, weights, i, false, i == 0 ? s->offset : 0)) return false;
    return true;
}

static bool put_slot(packer *p, const hir_module *m, const slot *s, const hd_tensors *weights) {
    if (!s->w->share.on && !hir_is_derived(s->w)) return add_tensors(p, s, weights);
    if (!flush(p)) return false;
    put_zeros_to(p, s->offset);
    return s->w->share.on ? put_share(p, m, s->w, weights) : make_and_put(p, m, s->w, weights);
}

static bool put_weights(packer *p, const hir_module *m, const slot *slots, size_t n,
                        const hd_tensors *weights) {
    for (size_t i = 0; i < n; i++)
        if (!put_slot(p, m, &slots[i], weights)) return false;
    if (!flush(p)) return false;
    put_zeros_to(p, p->total);
    return true;
}

typedef struct file { /* a file that is being written */
    hd_output *out;
    hrt_weights_header header;
} file;

/* Writes a file except for what depends on the other files of the set. `a`: an arena of this file
 * alone. */
static bool write_file(hcg_program *program, hd_diags *d, const hd_tensors *weights, int64_t rank,
                       const char *path, hd_arena *a, file *out) {
    const hir_module *m = program->m;
    const hir_module *whole = hir_with_whole_weights(m, a);
    size_t n;
    slot *slots = hd_new_array(a, slot, m->weights.n + 1);
    if (!plan(program, d, slots, &n)) return false;
    packer *p = hd_new(a, packer);
    p->d = d;
    p->rank = rank;
    p->total = program->weights_bytes;
    hd_arena_defer(a, free_hash, p);
    hd_arena_defer(a, free_waiting, p);
    p->hash = XXH3_createState();
    if (!p->hash) {
        hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
        return false;
    }
    p->out = out->out = hd_output_open(program->arena, d, path);
    if (!p->out) return false;
    hd_output_is_large(p->out);

    out->header = make_header(p, program, weights);
    XXH3_128bits_reset(p->hash);
    memcpy(p->to, &out->header, sizeof out->header);
    hd_output_write(p->out, p->to, HRT_WEIGHTS_DATA);
    p->n_workers = hcg_workers(program->options.threads);
    allocate_chunks(p, a, slots, n);
    if (!put_weights(p, whole, slots, n, weights)) return false;
    XXH128_canonical_t content;
    XXH128_canonicalFromHash(&content, XXH3_128bits_digest(p->hash));
    memcpy(out->header.content, content.digest, sizeof out->header.content);
    return true;
}

static bool pack_file(hcg_program *program, hd_diags *d, const hd_tensors *weights, int64_t rank,
                      const char *path, file *out) {
    hd_arena *a = hd_arena_new();
    if (!a) return !hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
    jmp_buf here;
    hd_arena_guard(a, &here);
    if (setjmp(here)) {
        hd_arena_free(a);
        return !hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
    }
    const bool ok = write_file(program, d, weights, rank, path, a, out);
    hd_arena_free(a);
    return ok;
}

/* Completes the headers of the shares with what they have in common since they were packed
 * together. */
static void bind_files(hd_arena *a, file *files, int64_t n) {
    enum { SIZE = sizeof files->header.content };
    uint8_t *all = hd_alloc(a, (size_t)n, SIZE);
    XXH128_canonical_t set;
    for (int64_t i = 0; i < n; i++)
        memcpy(all + i * SIZE, files[i].header.content, SIZE);
    XXH128_canonicalFromHash(&set, XXH3_128bits(all, (size_t)n * SIZE));
    for (int64_t i = 0; i < n; i++)
        memcpy(files[i].header.set, set.digest, sizeof files[i].header.set);
}

const char *hcg_share_path(hd_arena *a, const char *path, int64_t rank, int64_t ranks) {
    static const char suffix[] = ".weights";
    size_t stem = strlen(path), end = strlen(suffix);
    const bool named = stem > end && strcmp(path + stem - end, suffix) == 0;
    if (named) stem -= end;
    return hd_printf(a, "%.*s.r%lldof%lld%s", (int)stem, path, (long long)rank, (long long)ranks,
                     named ? suffix : "");
}

/* The path of the file of rank `i` of the module's group. */
static const char *file_path(const hcg_program *p, const char *path, int64_t i) {
    const int64_t ranks = hcg_ranks(p);
    if (ranks == 0) return path;
    return hcg_share_path(p->arena, path, p->options.compile.stage * ranks + i,
                          hcg_stages(p) * ranks);
}

/* The digest that identifies the values of all files. */
static const uint8_t *values_of(const hcg_program *p, const hrt_weights_header *h) {
    return hcg_ranks(p) > 0 ? h->set : h->content;
}

/* Writes one file, or one for each rank of the group: none appears unless all are complete. */
bool hcg_pack(hcg_program *program, hd_diags *d, const hd_tensors *weights, const char *path) {
    hd_arena *a = program->arena;
    const hir_module *whole = hir_with_whole_weights(program->m, a);
    const int64_t n = hcg_ranks(program) ? (int64_t)hcg_ranks(program) : 1;
    file *files = hd_new_array(a, file, (size_t)n);
    if (!hcg_check_weights(whole, d, weights)) return false;
    bool ok = true;
    for (int64_t i = 0; ok && i < n; i++)
        ok = pack_file(program, d, weights, i, file_path(program, path, i), &files[i]);
    if (ok && hcg_ranks(program) > 0) bind_files(a, files, n);
    for (int64_t i = 0; i < n; i++) {
        if (!files[i].out) continue;
        if (ok) hd_output_rewrite(files[i].out, 0, &files[i].header, sizeof files[i].header);
        if (ok)
            ok = hd_output_commit(files[i].out);
        else
            hd_output_discard(files[i].out);
    }
    program->packed = ok;
    if (ok) memcpy(program->values, values_of(program, &files[0].header), sizeof program->values);
    return ok;
}
