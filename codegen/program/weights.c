/* The places of weights in the file of a program: those that some kernel reads, in the order of the
 * table of weights; and the digest of everything that decides where a kernel finds its weights. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/program/lowering.h"
#include "ir/text/text.h"

/* ---- texts of rows --------------------------------------------------------------------------- */
static void add_factor(hd_text *table, const hir_derived_factor *f) {
    hd_text_quoted(table, f->name);
    if (f->by) hd_text_f(table, " %s", hir_derived_by_name(f->by));
    if (f->n) hd_text_f(table, " %lld %lld", (long long)f->first, (long long)f->n);
}

static void add_row(hd_text *table, const hir_derived_row *row) {
    for (uint32_t k = 0; k < row->n; k++) {
        if (k) hd_text_add(table, " * ");
        add_factor(table, &row->factor[k]);
    }
}

static const char *row_text(hd_arena *a, const hir_derived_row *row) {
    hd_text text;
    hd_text_init(&text, a);
    add_row(&text, row);
    return text.at;
}

/* ---- places ---------------------------------------------------------------------------------- */
static void mark_read(lowering *l, const hir_op *kernel) {
    HIR_EACH(l->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(l->m, id);
        for (uint32_t i = 0; i < op->n_args; i++)
            if (op->args[i].kind == HIR_REF_WEIGHT) l->p->weight_offsets.at[op->args[i].index] = 0;
    }
}

/* Does the weight consist of derived rows that another weight may hold? Parts of a vector are not
 * rows. */
static bool is_derived_rows(const hir_weight *w) {
    return hir_is_derived(w) && !w->share.on && w->layout == HIR_LAYOUT_ROWS &&
           w->type.dtype == HIR_F32 && (w->type.rank == 2 || w->n_rows == 1);
}

/* A row of a derived weight that may hold another. */
typedef struct held_row {
    uint32_t weight, row;
    uint64_t before; /* rows of elements of the weight before this one */
    uint32_t next;   /* the next row with the same factors in table order, or HIR_NONE */
} held_row;

typedef struct holders {
    HD_VEC(held_row) rows;
    hir_names first;       /* by the text of a row: the first row with this text */
    HD_VEC(uint32_t) last; /* by first row: the last row with the same text */
} holders;

/* Collects all rows that find_holder searches, indexed by their text. */
static void collect_rows(lowering *l, holders *h) {
    hir_names_init(&h->first, l->a);
    for (uint32_t i = 0; i < l->m->weights.n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        if (!is_derived_rows(w) || w->n_rows < 2 || l->p->weight_offsets.at[i] == HCG_UNREAD)
            continue;
        uint64_t before = 0;
        for (uint32_t r = 0; r < w->n_rows; r++) {
            const uint32_t at = (uint32_t)h->rows.n;
            const held_row row = {i, r, before, HIR_NONE};
            hd_push(l->a, &h->rows, row);
            hd_push(l->a, &h->last, at);
            const uint32_t *first = hir_names_add(&h->first, row_text(l->a, &w->rows[r]), at);
            if (first) {
                h->rows.at[h->last.at[*first]].next = at;
                h->last.at[*first] = at;
            }
            before +=
                (uint64_t)hir_derived_rows(l->m, &w->rows[r], hir_derived_row_elements(w->type));
        }
    }
}

/* Are the rows of w the rows of `in` from row `from` on? */
static bool are_rows_from(const hir_weight *w, const hir_weight *in, uint32_t from) {
    if (w->n_rows > in->n_rows - from) return false;
    for (uint32_t r = 0; r < w->n_rows; r++)
        if (!hir_same_derived_row(&w->rows[r], &in->rows[from + r])) return false;
    return true;
}

/* Finds a weight that contains this one. The query that a sublayer reads alone is a row of the
 * table that phase 1 of its block has read: it is stored once, and is still in the CPU's caches. */
static void find_holder(lowering *l, const holders *h, uint32_t weight) {
    hcg_program *p = l->p;
    const hir_weight *w = &l->m->weights.at[weight];
    if (!is_derived_rows(w) || p->weight_offsets.at[weight] == HCG_UNREAD) return;
    const int64_t k = w->type.dim[w->type.rank - 1];
    const uint64_t bytes = (uint64_t)k * sizeof(float);
    const uint32_t *first = hir_names_find(&h->first, row_text(l->a, &w->rows[0]));
    if (!first || bytes % HRT_ALIGN != 0) return;
    for (uint32_t i = *first; i != HIR_NONE; i = h->rows.at[i].next) {
        const held_row *row = &h->rows.at[i];
        const hir_weight *in = &l->m->weights.at[row->weight];
        if (in->n_rows <= w->n_rows || in->type.dim[in->type.rank - 1] != k) continue;
        if (p->weight_holders.at[row->weight] != HIR_NONE || !are_rows_from(w, in, row->row))
            continue;
        p->weight_holders.at[weight] = row->weight;
        p->weight_offsets.at[weight] = row->before * bytes; /* offset inside the holder */
        return;
    }
}

static bool place_weight(lowering *l, uint32_t weight) {
    hcg_program *p = l->p;
    const hir_weight *w = &l->m->weights.at[weight];
    uint64_t bytes, end;
    p->weight_offsets.at[weight] = p->weights_bytes;
    if (!hir_weight_bytes(w, &bytes) || hd_add_overflow(p->weights_bytes, bytes, &end) ||
        end > INT64_MAX - HRT_WEIGHTS_DATA - HRT_ALIGN)
        return hd_err(l->d, HD_E_LIMIT, w->loc, "the weights up to @%s take more than 2^63 bytes",
                      w->name) == NULL;
    p->weights_bytes = hrt_aligned(end);
    return true;
}

bool lower_weights(lowering *l) {
    hcg_program *p = l->p;
    const uint32_t n = (uint32_t)l->m->weights.n;
    for (uint32_t i = 0; i < n; i++) {
        hd_push(l->a, &p->weight_offsets, HCG_UNREAD);
        hd_push(l->a, &p->weight_holders, HIR_NONE);
    }
    HIR_EACH(l->m, id, l->m->first) {
        if (hir_is_kernel(hir_op_at(l->m, id))) mark_read(l, hir_op_at(l->m, id));
    }
    if (hcg_has_gradients(p)) return lower_parameters(l);
    holders h = {0};
    collect_rows(l, &h);
    for (uint32_t i = 0; i < n; i++)
        find_holder(l, &h, i);
    for (uint32_t i = 0; i < n; i++) {
        const bool own = p->weight_offsets.at[i] != HCG_UNREAD;
        if (own && p->weight_holders.at[i] == HIR_NONE && !place_weight(l, i)) return false;
    }
    for (uint32_t i = 0; i < n; i++)
        if (p->weight_holders.at[i] != HIR_NONE)
            p->weight_offsets.at[i] += p->weight_offsets.at[p->weight_holders.at[i]];
    return true;
}

/* ---- digest ---------------------------------------------------------------------------------- */
/* The part of a weight that each rank has. */
static void add_share(hd_text *table, const hir_weight *w) {
    const hd_share *s = &w->share.share;
    if (w->share.on)
        hd_text_f(table, " shard %u %lld %lld %lld %lld %d", w->share.dim, (long long)s->ranks,
                  (long long)s->whole, (long long)s->groups, (long long)s->units, s->repeat);
}

/* Computes the digest of everything that decides where in the file a kernel finds its weights. */
void lower_digest(lowering *l) {
    hd_text table;
    hd_text_init(&table, l->a);
    hd_text_f(&table, "hadal weights %u\n", HRT_VERSION);
    for (size_t i = 0; i < l->m->weights.n; i++) {
        const hir_weight *w = &l->m->weights.at[i];
        if (l->p->weight_offsets.at[i] == HCG_UNREAD) continue;
        hd_text_quoted(&table, w->name);
        hd_text_add(&table, " ");
        hir_print_type(&table, w->type);
        add_share(&table, w);
        for (uint32_t r = 0; r < w->n_rows; r++) {
            hd_text_add(&table, r ? ", " : " = ");
            add_row(&table, &w->rows[r]);
        }
        hd_text_f(&table, " %d %llu\n", w->layout, (unsigned long long)l->p->weight_offsets.at[i]);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(table.at, table.n));
    memcpy(l->p->digest, canonical.digest, sizeof l->p->digest);
}
