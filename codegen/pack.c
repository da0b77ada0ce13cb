/* The packer: a checkpoint to a .weights file in the layout of the kernels (docs/formats.md).
 *
 *     hrt_weights_header | zeros to 4096 | each weight at its offset, zeros between
 *
 * The file is made front to back from the mapped checkpoint, a few KiB at a time, so that packing
 * takes no memory to speak of, however large the model; the digest of the content is put into the
 * header at the end. The same checkpoint and program give the same bytes.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "codegen/convert.h"
#include "codegen/program.h"
#include "codegen/quant.h"

enum {
    BLOCK = 2048,             /* elements converted at a time */
    PROGRESS_STEP = 64 << 20, /* bytes between two reports */
};

static bool is_panel(const hir_weight *w) {
    return w->layout == HIR_LAYOUT_PANEL && w->type.rank == 2;
}

typedef struct packer {
    hd_diags *d;
    hd_output *out;
    XXH3_state_t *hash; /* of the data so far */
    uint64_t at, total; /* bytes of the data */
    uint64_t reported;
    uint8_t from[BLOCK * 4], to[HIR_PANEL * BLOCK * 4];
    float *row; /* for weights in groups: a row, its groups, and a panel */
    hcg_group *groups;
    uint8_t *panel;
} packer;

static void free_hash(void *what) {
    packer *p = what;
    XXH3_freeState(p->hash);
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

static void put_rows(packer *p, const hd_tensor *t, hir_dtype dtype) {
    for (uint64_t i = 0; i < t->elements; i += BLOCK) {
        uint64_t n = t->elements - i < BLOCK ? t->elements - i : BLOCK;
        hcg_convert(t, i, n, dtype, p->to);
        put(p, p->to, (size_t)n * hir_dtype_bytes(dtype));
    }
}

/* Column `row` of a panel block: to[k * 16 + row] = from[k]; in pairs: to[k / 2 * 32 + row * 2 + k
 * % 2].
 */
static void scatter(packer *p, uint64_t row, uint64_t n, hir_dtype dtype) {
    if (hir_panel_depth(dtype) == 2) {
        uint16_t *to = (uint16_t *)p->to, *from = (uint16_t *)p->from;
        for (uint64_t k = 0; k < n; k++)
            to[k / 2 * 2 * HIR_PANEL + row * 2 + k % 2] = from[k];
    } else if (hir_dtype_bytes(dtype) == 4) {
        uint32_t *to = (uint32_t *)p->to, *from = (uint32_t *)p->from;
        for (uint64_t k = 0; k < n; k++)
            to[k * HIR_PANEL + row] = from[k];
    } else {
        uint16_t *to = (uint16_t *)p->to, *from = (uint16_t *)p->from;
        for (uint64_t k = 0; k < n; k++)
            to[k * HIR_PANEL + row] = from[k];
    }
}

/* [N, K] as panels of 16 rows, as hir_layout in ir.h has them. */
static void put_panels(packer *p, const hd_tensor *t, hir_dtype dtype) {
    uint64_t N = (uint64_t)t->shape[0], K = (uint64_t)t->shape[1];
    size_t bytes = hir_dtype_bytes(dtype), depth = hir_panel_depth(dtype);
    for (uint64_t first = 0; first < N; first += HIR_PANEL) {
        uint64_t rows = N - first < HIR_PANEL ? N - first : HIR_PANEL;
        for (uint64_t k = 0; k < K; k += BLOCK) {
            uint64_t n = K - k < BLOCK ? K - k : BLOCK;
            uint64_t filled = (n + depth - 1) / depth * depth;
            if (rows < HIR_PANEL || filled > n) memset(p->to, 0, sizeof p->to);
            for (uint64_t row = 0; row < rows; row++) {
                hcg_convert(t, (first + row) * K + k, n, dtype, p->from);
                scatter(p, row, n, dtype);
            }
            put(p, p->to, (size_t)filled * HIR_PANEL * bytes);
        }
    }
}

typedef struct slot {
    uint64_t offset;
    const hir_weight *w;
} slot;

/* The same in groups (quant.h), row by row: bytes of a group's panel are put one on the other. */
static bool put_groups(packer *p, const hir_weight *w, const hd_tensor *t) {
    hir_dtype dtype = w->type.dtype;
    uint64_t N = (uint64_t)t->shape[0], K = (uint64_t)t->shape[1];
    uint64_t groups = (K + HIR_GROUP - 1) / HIR_GROUP, size = hcg_group_bytes(dtype);
    for (uint64_t n = 0; n < N; n++) {
        if (n % HIR_PANEL == 0) memset(p->panel, 0, groups * size);
        hd_tensor_to_f32(t, n * K, K, p->row);
        if (!hcg_quantise_row(dtype, p->row, K, p->groups)) return hcg_refuse_values(p->d, w);
        for (uint64_t i = 0; i < groups; i++)
            hcg_put_group(dtype, &p->groups[i], n % HIR_PANEL, p->panel + i * size);
        if (n % HIR_PANEL == HIR_PANEL - 1 || n + 1 == N) put(p, p->panel, groups * size);
    }
    return true;
}

/* Room for the longest row that is stored in groups. */
static void make_room(packer *p, hd_arena *a, const slot *slots, size_t n) {
    uint64_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const hir_weight *w = slots[i].w;
        if (hir_is_quantised(w->type.dtype) && (uint64_t)w->type.dim[1] > most)
            most = (uint64_t)w->type.dim[1];
    }
    uint64_t groups = (most + HIR_GROUP - 1) / HIR_GROUP;
    p->row = hd_new_array(a, float, most + 1);
    p->groups = hd_new_array(a, hcg_group, groups + 1);
    p->panel = hd_alloc(a, groups + 1, HCG_Q8_GROUP);
}

/* ---- the file ------------------------------------------------------------------------------ */

static int by_offset(const void *x, const void *y) {
    const slot *a = x, *b = y;
    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    return strcmp(a->w->name, b->w->name);
}

/* The weights in the order of the file; false if the program's offsets contradict their sizes. */
static bool plan(const hcg_program *p, hd_diags *d, slot *slots, size_t *n) {
    uint64_t end = 0;
    *n = 0;
    for (size_t i = 0; i < p->m->weights.n; i++)
        if (!p->m->weights.at[i].unused && p->weight_offsets.at[i] != HCG_UNREAD)
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

static hrt_weights_header make_header(const hcg_program *p) {
    hrt_weights_header h = {
        .version = HRT_VERSION, .data_offset = HRT_WEIGHTS_DATA, .data_bytes = p->weights_bytes};
    memcpy(h.magic, HRT_WEIGHTS_MAGIC, sizeof h.magic);
    memcpy(h.digest, p->digest, sizeof h.digest);
    return h;
}

/* A weight that is made of others, as a tensor of f32: products in f64, rounded once. */
static const hd_tensor *make_tensor(hd_arena *a, const hir_weight *w, const hd_tensors *weights) {
    hd_tensor *made = hd_new(a, hd_tensor);
    *made = (hd_tensor){.name = w->name, .dtype = HD_T_F32, .rank = w->type.rank};
    memcpy(made->shape, w->type.dim, w->type.rank * sizeof *w->type.dim);
    made->elements = (uint64_t)hir_type_row_elements(w->type);
    made->bytes = made->elements * sizeof(float);
    uint64_t row = made->elements / w->n_rows;
    float *out = hd_new_array(a, float, made->elements);
    for (uint64_t i = 0; i < made->elements; i++) {
        const hir_made_row *r = &w->rows[i / row];
        double x = 1;
        for (uint32_t k = 0; k < r->n; k++) {
            const hd_tensor *f = hd_tensors_find(weights, r->factor[k]);
            x *= (float)hd_tensor_get(f, f->elements == 1 ? 0 : i % row);
        }
        out[i] = (float)x;
    }
    made->data = (const uint8_t *)out;
    return made;
}

static bool put_weights(packer *p, const slot *slots, size_t n, const hd_tensors *weights) {
    for (size_t i = 0; i < n; i++) {
        const hir_weight *w = slots[i].w;
        const hd_tensor *t = hir_is_made(w) ? make_tensor(p->d->arena, w, weights)
                                            : hd_tensors_find(weights, w->name);
        put_zeros_to(p, slots[i].offset);
        if (hir_is_quantised(w->type.dtype)) {
            if (!put_groups(p, w, t)) return false;
        } else if (is_panel(w)) {
            put_panels(p, t, w->type.dtype);
        } else {
            put_rows(p, t, w->type.dtype);
        }
    }
    put_zeros_to(p, p->total);
    return true;
}

bool hcg_pack(hcg_program *program, hd_diags *d, const hd_tensors *weights, const char *path) {
    hd_arena *a = program->arena;
    size_t n;
    slot *slots = hd_new_array(a, slot, program->m->weights.n + 1);
    if (!hcg_check_weights(program->m, d, weights) || !plan(program, d, slots, &n)) return false;

    packer *p = hd_new(a, packer);
    p->d = d;
    p->total = program->weights_bytes;
    hd_arena_defer(a, free_hash, p);
    p->hash = XXH3_createState();
    if (!p->hash) {
        hd_err(d, HD_E_MEMORY, HD_NOWHERE, "out of memory");
        return false;
    }
    XXH3_128bits_reset(p->hash);
    p->out = hd_output_open(a, d, path);
    if (!p->out) return false;

    hrt_weights_header header = make_header(program);
    memcpy(p->to, &header, sizeof header);
    hd_output_write(p->out, p->to, HRT_WEIGHTS_DATA);
    make_room(p, a, slots, n);
    if (!put_weights(p, slots, n, weights)) {
        hd_output_discard(p->out);
        return false;
    }

    XXH128_canonical_t content;
    XXH128_canonicalFromHash(&content, XXH3_128bits_digest(p->hash));
    memcpy(header.content, content.digest, sizeof header.content);
    hd_output_rewrite(p->out, 0, &header, sizeof header);
    return hd_output_commit(p->out);
}
