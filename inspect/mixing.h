/* The depth mixing matrix of a model (Attention Residuals paper, section 6.2): h_l = sum_i M_{i->l}
 * v_i, where v_i is the output of sublayer i (v_0 the embedding) and h_l the input of sublayer l
 * before its norm. The last row is the input of the head. */
#ifndef INSPECT_MIXING_H
#define INSPECT_MIXING_H

#include "inspect/views.h"
#include "ir/eval/unroll.h"
#include "passes/analysis/depth_flow.h"

/* Two float64 rows count as equal if they differ by less than this, relative to the row: some
 * hundred roundings of 1e-16 along a deep model. */
#define MIXING_TOLERANCE 1e-9

/* What kind of map J_{i->l} from an output to an input is, for every token and pair (i, l). */
typedef enum mixing_kind {
    MIXING_NUMBER,   /* a number: J = M */
    MIXING_CHANNELS, /* a number for each channel */
    MIXING_MAP,      /* a general map: channels are mixed */
} mixing_kind;

typedef struct mixing_row {
    uint32_t sublayer; /* counted from 1; the head is the number of sublayers + 1 */
    const char *label; /* "5", "5 (2)", "out" */
    hir_id value;      /* h_l */
} mixing_row;

enum { MIXING_TOKENS = 16, MIXING_SAMPLE = 8 }; /* whose rank is computed */

typedef struct mixing {
    const char *name;
    const char *passes; /* sublayers by pass; NULL: every layer runs once */
    hd_arena *arena;
    int64_t tokens;
    uint32_t sublayers, starts; /* `starts`: embeddings, which come first among the sources */
    HD_VEC(mixing_row) rows;
    HD_VEC(hir_id) sources;
    const char **source_labels;
    /* [tokens, rows, sources]: <v_i, J v_i> / <v_i, v_i>, which is M where J is a number */
    double *at;
    double *mean; /* [rows, sources], over tokens */
    mixing_kind kind;
    double error;         /* largest error of sum_i J_i v_i + constant, relative to h_l */
    double numbers_error; /* the same for sum_i M_i v_i + constant */
    double constant;      /* the largest part of h_l that is made of no source */
    uint32_t norms;       /* norms that lie on the linear paths */
    uint32_t inside;      /* sublayers that read values from inside earlier ones, past the stream */
    int channels;         /* channels sampled, if kind is MIXING_CHANNELS */
    double *channel_at;   /* [at most MIXING_TOKENS, channels, rows, sources] */
    uint32_t rank;        /* semiseparable rank: the largest of all blocks rows >= l, columns < l */
    uint32_t full_rank;   /* the largest rank that such a block could have */
    int64_t rank_tokens;
} mixing;

/* Finds rows and sources of the graph. NULL, and a diagnostic, if the model has no residual stream,
 * or one that has no matrix. */
hir_unroll *mixing_plan(hd_arena *a, hd_diags *d, const hir_module *graph, mixing *out);
/* Computes the whole matrix for these tokens, and checks that sum_i J_i v_i = h_l holds. */
bool mixing_find(hir_unroll *u, hd_diags *d, hir_weight_source source, void *context,
                 const double *ids, int64_t tokens, mixing *out);
void mixing_find_rank(mixing *x); /* fills `rank` and `full_rank` from the samples taken */
/* Numerical rank of a [rows, columns] matrix: the number of pivots of a QR decomposition above 1e-9
 * of the largest. `m` is overwritten. */
uint32_t mixing_rank_of(double *m, size_t rows, size_t columns);

/* Finds sources, matrix and rank for the subject's graph, weights and tokens; false and a
 * diagnostic on failure. */
bool mixing_collect(const inspect_subject *s, mixing *out);
void mixing_text(const mixing *x, hd_text *out);
void mixing_svg(const mixing *x, hd_text *out);
void mixing_json(const mixing *x, hd_text *out);
inspect_numbers mixing_numbers(const mixing *x); /* [tokens, rows, sources] */

/* Is the source made before the row? If not, its entry is 0. */
static inline bool mixing_is_below(const mixing *x, size_t row, size_t source) {
    return source < (size_t)x->starts + x->rows.at[row].sublayer - 1;
}

#endif
