/* Reading latent attention: keys and values as linear maps of the rows of a cache.
 *
 *     c    = columns of cached rows
 *     k[h] = W_k[h] c, next to a part p of the rows that all heads share
 *     v[h] = W_v[h] c
 *
 * A position may have G rows, [C, G, width], each for its share of the heads, in order: c and p of
 * a head are then those of its row. The maps of all rows are one matrix (linear), or each row has
 * its own (block_linear).
 *
 * Ops that move elements in between (reshape, slice, transpose, broadcast) are followed as strides,
 * so that any cut of one matrix into heads, keys and values is found. */
#ifndef HIR_PASSES_LATENT_VIEW_H
#define HIR_PASSES_LATENT_VIEW_H

#include "passes/util.h"

typedef struct latent_columns { /* columns start .. start+n-1 of a state's rows [C, G, width] */
    hir_ref rows;
    int64_t start, n;
} latent_columns;

/* Entry j of head h, the i-th head of cached row g, is c times row first + g group_stride + i
 * stride + j of w. */
typedef struct latent_map {
    hir_ref w;
    int64_t first, stride, group_stride, n;
    latent_columns c;
} latent_map;

typedef struct latent_view {
    int64_t heads, groups; /* heads of k and v; G, the cached rows of a position */
    latent_map k, v;
    int64_t k_at;    /* where in a head of q and k the mapped part begins */
    bool has_shared; /* the rest of a head is a shared part: */
    latent_columns shared;
    int64_t shared_at;
} latent_view;

/* Reads attention op `op`. NULL: it is latent attention; otherwise the reason why it is not. */
const char *latent_find(const hir_module *m, hir_id op, hd_arena *a, latent_view *out);

#endif
