/* The depth mixing matrix of a model (Attention Residuals, section 6.2): h_l = sum_i M_{i->l} v_i,
 * with v_i the output of sublayer i (v_0 the embedding) and h_l what sublayer l reads, before its
 * norm; last comes what the head reads.
 */
#ifndef INSPECT_MIXING_H
#define INSPECT_MIXING_H

#include "inspect/views.h"
#include "ir/eval/unroll.h"
#include "passes/analysis/depth_flow.h"

/* Two float64 values of the size of a row count as one below this, relative to the row: some
 * hundred roundings of 1e-16 along a deep model. */
#define MIXING_TOLERANCE 1e-9

/* What the map J_{i->l} from an output to an input is, for every token and pair. */
typedef enum mixing_kind {
    MIXING_NUMBER,   /* a number: J = M */
    MIXING_CHANNELS, /* a number for each channel */
    MIXING_MAP,      /* more than that: channels are mixed */
} mixing_kind;

typedef struct mixing_row {
    uint32_t sublayer; /* from 1; that of the head is the number of sublayers + 1 */
    const char *label; /* "5", "5 (2)", "out" */
    hir_id value;      /* h_l */
} mixing_row;

enum { MIXING_TOKENS = 16, MIXING_SAMPLE = 8 }; /* tokens and channels whose rank is taken */

typedef struct mixing {
    const char *name;
    hd_arena *arena;
    int64_t tokens;
    uint32_t sublayers, starts; /* `starts` embeddings come first among the sources */
    HD_VEC(mixing_row) rows;
    HD_VEC(hir_id) sources;
    const char **source_labels;
    /* [tokens, rows, sources]: <v_i, J v_i> / <v_i, v_i>, which is M where J is a number */
    double *at;
    double *mean; /* [rows, sources], over tokens */
    mixing_kind kind;
    double error;         /* of sum_i J_i v_i + constant, relative to h_l: the largest */
    double numbers_error; /* the same of sum_i M_i v_i + constant */
    double constant;      /* largest part of h_l that is made of no source */
    uint32_t norms;       /* norms that lie on paths */
    uint32_t inside;      /* sublayers that read values made inside earlier ones, past the stream */
    int channels;         /* sampled, if kind is MIXING_CHANNELS */
    double *channel_at;   /* [at most MIXING_TOKENS, channels, rows, sources] */
    uint32_t rank;        /* semiseparable: of any block rows >= l, columns < l; the largest */
    uint32_t full_rank;   /* that such a block could have */
    int64_t rank_tokens;
} mixing;

/* Rows and sources of the graph; NULL and a diagnostic: there is no stream, or no matrix of it. */
hir_unroll *mixing_plan(hd_arena *a, hd_diags *d, const hir_module *graph, mixing *out);
/* All of the matrix, for these tokens. The check sum_i J_i v_i = h_l must hold. */
bool mixing_find(hir_unroll *u, hd_diags *d, hir_weight_source source, void *context,
                 const double *ids, int64_t tokens, mixing *out);
void mixing_find_rank(mixing *x); /* `rank` and `full_rank`, of the samples that are there */
/* Numerical rank of a [rows, columns] matrix: pivots of a QR decomposition above 1e-9 of the
 * largest. `m` is overwritten. */
uint32_t mixing_rank_of(double *m, size_t rows, size_t columns);

/* Plan, matrix and rank of the subject's graph, weights and tokens; false and a diagnostic. */
bool mixing_collect(const inspect_subject *s, mixing *out);
void mixing_text(const mixing *x, hd_text *out);
void mixing_svg(const mixing *x, hd_text *out);
void mixing_json(const mixing *x, hd_text *out);
inspect_numbers mixing_numbers(const mixing *x); /* [tokens, rows, sources] */

/* The source was made before the row: its entry need not be 0. */
static inline bool mixing_is_below(const mixing *x, size_t row, size_t source) {
    return source < (size_t)x->starts + x->rows.at[row].sublayer - 1;
}

#endif
