/* Where weights lie in the file of a program, in the order of the table, those that some kernel
 * reads; and the digest of all that decides where a kernel looks for what. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codegen/program/lowering.h"
#include "ir/text/text.h"

/* ---- places ---------------------------------------------------------------------------------- */
static void mark_read(lowering *l, const hir_op *kernel) {
    HIR_EACH(l->m, id, kernel->body_first) {
        const hir_op *op = hir_op_at(l->m, id);
        for (uint32_t i = 0; i < op->n_args; i++)
            if (op->args[i].kind == HIR_REF_WEIGHT) l->p->weight_offsets.at[op->args[i].index] = 0;
    }
}

/* Are the rows of w those of `in` from one of them on? Its number. */
static bool find_rows(const lowering *l, const hir_weight *w, const hir_weight *in, uint64_t *row) {
    *row = 0;
    for (uint32_t r = 0; r + w->n_rows <= in->n_rows; r++) {
        uint32_t same = 0;
        while (same < w->n_rows && hir_same_derived_row(&w->rows[same], &in->rows[r + same]))
            same++;
        if (same == w->n_rows) return true;
        *row += (uint64_t)hir_derived_rows(l->m, &in->rows[r], hir_derived_row_elements(in->type));
    }
    return false;
}

/* Parts of a vector are no rows. */
static bool is_derived_rows(const hir_weight *w) {
    return hir_is_derived(w) && !w->share.on && w->layout == HIR_LAYOUT_ROWS &&
           w->type.dtype == HIR_F32 && (w->type.rank == 2 || w->n_rows == 1);
}

/* The query that a sublayer reads by itself is a row of the table that phase 1 of its block has
 * read: it is stored once, and found in the caches. */
static void find_holder(lowering *l, uint32_t weight) {
    hcg_program *p = l->p;
    const hir_weight *w = &l->m->weights.at[weight];
    if (!is_derived_rows(w) || p->weight_offsets.at[weight] == HCG_UNREAD) return;
    const int64_t k = w->type.dim[w->type.rank - 1];
    const uint64_t bytes = (uint64_t)k * sizeof(float);
    uint64_t row;
    for (uint32_t i = 0; i < l->m->weights.n && bytes % HRT_ALIGN == 0; i++) {
        const hir_weight *in = &l->m->weights.at[i];
        if (!is_derived_rows(in) || in->n_rows <= w->n_rows || in->type.dim[in->type.rank - 1] != k)
            continue;
        if (p->weight_offsets.at[i] == HCG_UNREAD || p->weight_holders.at[i] != HIR_NONE) continue;
        if (!find_rows(l, w, in, &row)) continue;
        p->weight_holders.at[weight] = i;
        p->weight_offsets.at[weight] = row * bytes; /* from there on */
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
    p->weights_bytes = (end + HRT_ALIGN - 1) / HRT_ALIGN * HRT_ALIGN;
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
    for (uint32_t i = 0; i < n; i++)
        find_holder(l, i);
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
static void add_factor(hd_text *table, const hir_derived_factor *f) {
    hd_text_quoted(table, f->name);
    if (f->by) hd_text_f(table, " %s", hir_derived_by_name(f->by));
    if (f->n) hd_text_f(table, " %lld %lld", (long long)f->first, (long long)f->n);
}

/* Which part of it the ranks have. */
static void add_share(hd_text *table, const hir_weight *w) {
    const hd_share *s = &w->share.share;
    if (w->share.on)
        hd_text_f(table, " shard %u %lld %lld %lld %lld %d", w->share.dim, (long long)s->ranks,
                  (long long)s->whole, (long long)s->groups, (long long)s->units, s->repeat);
}

/* Of all that decides where in the file a kernel looks for what. */
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
        for (uint32_t r = 0; r < w->n_rows; r++)
            for (uint32_t k = 0; k < w->rows[r].n; k++) {
                hd_text_add(&table, k ? " * " : r ? ", " : " = ");
                add_factor(&table, &w->rows[r].factor[k]);
            }
        hd_text_f(&table, " %d %llu\n", w->layout, (unsigned long long)l->p->weight_offsets.at[i]);
    }
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(table.at, table.n));
    memcpy(l->p->digest, canonical.digest, sizeof l->p->digest);
}
