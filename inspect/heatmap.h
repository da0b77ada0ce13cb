/* Weights of the depth mixes of a model (weighted sums of earlier outputs), averaged over tokens:
 * figure 8 of the Attention Residuals paper. A tensor counts if the model traces it as
 * depth_weights, as all residual systems of the library do. */
#ifndef INSPECT_HEATMAP_H
#define INSPECT_HEATMAP_H

#include "inspect/views.h"
#include "passes/analysis/depth_flow.h"

typedef struct depth_source { /* the source that one weight of a mix belongs to */
    uint32_t key;             /* its column: its first sublayer; its last if it holds "e" */
    const char *label;        /* "e", "5", "1-4" */
    size_t column;
} depth_source;

typedef struct depth_row { /* one mix; rows are in the order of execution */
    uint32_t sublayer;     /* that reads the mix; the number of sublayers + 1: the head */
    const char *label;
    bool attention;
    uint32_t block;
    hir_ref weights; /* [.., n], in the graph */
    int64_t n, ways; /* number of sources; number of heads or inputs that were averaged over */
    depth_source *sources;
    double *mean; /* [n] */
} depth_row;

typedef struct depth_weights {
    const char *name;
    hd_arena *arena;
    int64_t tokens;
    uint32_t sublayers;
    bool has_attention;
    bool has_blocks; /* a block is of two sublayers or more, on average */
    bool normalized; /* the weights of every mix add up to 1 */
    HD_VEC(depth_row) rows;
    HD_VEC(depth_source) columns; /* sorted by key */
    double *at;                   /* [rows, columns]; NaN where a mix has no such source */
} depth_weights;

/* Finds the mixes and what they read, without numbers. False: there are none. */
bool heatmap_plan(const hir_module *graph, hd_arena *a, depth_weights *out);
/* False and a diagnostic: the model has no mixes, or cannot be evaluated. */
bool heatmap_find(const hir_module *graph, hd_arena *a, hd_diags *d, hir_weight_source source,
                  void *context, const double *ids, int64_t tokens, depth_weights *out);
bool heatmap_collect(const inspect_subject *s, depth_weights *out);
void heatmap_text(const depth_weights *x, hd_text *out);
void heatmap_svg(const depth_weights *x, hd_text *out);
void heatmap_json(const depth_weights *x, hd_text *out);
inspect_numbers heatmap_numbers(const depth_weights *x); /* [mixes, columns]; NaN: no such source */

#endif
