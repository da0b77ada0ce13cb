/* Reading latent attention: keys and values as linear maps of the rows of a cache.
 *
 *     c = columns of cached rows        k[h] = W_k[h] c, beside a part p of the rows that all heads
 * share v[h] = W_v[h] c
 *
 * A position may have G rows, [C, G, width], each for its share of the heads, in their order: then
 * c and p of a head are those of its row. The maps of all rows are one matrix (linear) or have one
 * each (block_linear).
 *
 * Whatever moves elements in between (reshape, slice, transpose, broadcast) is followed as strides,
 * so that any cut of one matrix into heads, keys and values is found. */
#ifndef HIR_PASSES_LATENT_VIEW_H
#define HIR_PASSES_LATENT_VIEW_H

#include "passes/util.h"

typedef struct latent_columns { /* of a state's rows [C, G, width] */
    hir_ref rows;
    int64_t start, n;
} latent_columns;

/* Entry j of head h, which is number i of the heads of cached row g, is row
 * first + g group_stride + i stride + j of w, times c. */
typedef struct latent_map {
    hir_ref w;
    int64_t first, stride, group_stride, n;
    latent_columns c;
} latent_map;

typedef struct latent_view {
    int64_t heads, groups; /* of k and v; G */
    latent_map k, v;
    int64_t k_at;    /* where in a head of q and k the mapped part begins */
    bool has_shared; /* the rest of a head: */
    latent_columns shared;
    int64_t shared_at;
} latent_view;

/* NULL: attention op `op` is latent attention; else why it is not. */
const char *latent_find(const hir_module *m, hir_id op, hd_arena *a, latent_view *out);

#endif
