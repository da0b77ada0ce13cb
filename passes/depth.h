/* What the depth passes share: reading the naive pattern, and the operands of depth.attend. */
#ifndef HIR_PASSES_DEPTH_H
#define HIR_PASSES_DEPTH_H

#include "passes/util.h"

/* ---- depth.attend -------------------------------------------------------------------------- */
enum { ATTEND_QUERY, ATTEND_BIAS, ATTEND_INVERSE, ATTEND_PARTIAL, ATTEND_LSE, ATTEND_SOURCES };

static inline bool depth_is_given(hir_ref r) {
    return r.kind != HIR_REF_NONE;
}
static inline uint32_t depth_sources(const hir_module *m, hir_id attend) {
    return hir_op_at(m, attend)->n_args - ATTEND_SOURCES;
}
static inline hir_ref depth_source(const hir_module *m, hir_id attend, uint32_t i) {
    return hir_op_at(m, attend)->args[ATTEND_SOURCES + i];
}
bool depth_is_softmax(const hir_module *m, hir_id attend);
/* A query that each token makes for itself cannot be known before the token is there. */
bool depth_query_has_t(const hir_module *m, hir_id attend);
/* Apart from query, bias and sources they are the same: one phase 1 can serve both. */
bool depth_same_kind(const hir_module *m, hir_id a, hir_id b);
/* Both have the same query and the same bias. */
static inline bool depth_same_query(const hir_module *m, hir_id a, hir_id b) {
    const hir_op *x = hir_op_at(m, a), *y = hir_op_at(m, b);
    return hir_ref_equal(x->args[ATTEND_QUERY], y->args[ATTEND_QUERY]) &&
           hir_ref_equal(x->args[ATTEND_BIAS], y->args[ATTEND_BIAS]);
}
/* scale and heads, as far as the attend has them; how many that is. */
uint32_t depth_copy_attrs(const hir_module *m, hir_id attend, hir_attr out[2]);
/* x[.., i] along `axis`, which goes; x itself under another shape if there is but one. */
hir_ref depth_element(hir_builder *b, hir_ref x, uint32_t axis, int64_t i);

/* ---- cost ---------------------------------------------------------------------------------- */
/* Bytes per token that mixes move, as the ledger will charge them once there are kernels: the one
 * cost by which the depth passes decide. All mixes of a group are of one kind. */
typedef struct depth_cost {
    int64_t live;   /* read a source that nobody else reads, */
    int64_t banked; /* one that several mixes read, with its inverse norm, */
    int64_t norm;   /* write that norm, once, */
    int64_t result; /* write a result of phase 1 with its log-sum-exp, and read it */
} depth_cost;

depth_cost depth_cost_of(const hir_module *m, hir_id attend, const hir_pass_options *o);
/* What one phase 1 for `members` mixes with `shared` sources saves over mixing each alone. The
 * first member uses its result where it is made. `own` of the sources are read by nobody else:
 * their norms are not written, for they are read where they are made. */
static inline int64_t depth_saved(const depth_cost *c, int64_t members, int64_t shared,
                                  int64_t own) {
    return (members - 1) * (shared * c->banked - c->result) + own * c->norm;
}

/* ---- views --------------------------------------------------------------------------------- */
/* What belongs to one source: element i of dim `axis` of a value; all of it if axis < 0. */
typedef struct depth_view {
    hir_ref v;
    int axis;
    uint32_t i;
} depth_view;

/* Through ops that move elements without changing their order, as far as they go. */
depth_view depth_through(const hir_module *m, depth_view v);
/* Operand `arg` of an elementwise op, which broadcasts. */
depth_view depth_operand(const hir_module *m, depth_view v, uint32_t arg);
/* The only operand of a reduction over another axis than the view's. */
bool depth_reduced(const hir_module *m, depth_view v, depth_view *x);
/* Elements for each token (and source). */
int64_t depth_view_elements(const hir_module *m, depth_view v);
bool depth_view_has_t(const hir_module *m, depth_view v);

/* ---- weights ------------------------------------------------------------------------------- */
/* What a sum of e^s x is divided by as a whole, `op` with its operand `side`: the sum of e^s. */
typedef struct depth_divisor {
    hir_ref exps; /* all of them in one value, over `axis`; none: they stand one by one */
    int axis;
    depth_view sum; /* one by one */
    double times;   /* it is their mean, this many of them; 1: their sum */
} depth_divisor;

typedef enum depth_weight_kind {
    DEPTH_SOFTMAX, /* of logits in one value, over the axis of the weight's view */
    DEPTH_APART,   /* a softmax of exponentials that stand one by one */
    DEPTH_SIGMOID,
} depth_weight_kind;

typedef struct depth_weight {
    depth_weight_kind kind;
    hir_ref logits;      /* softmax */
    depth_view exp, sum; /* apart: e^s, and the sum that divides it */
    depth_view score;    /* sigmoid; apart once it has been matched */
    double sign;         /* of the score: -1 for sigmoid(-s) */
    double factor;       /* the weight is so many times softmax or sigmoid */
} depth_weight;

bool depth_read_divisor(const hir_module *m, hir_id op, uint32_t side, depth_divisor *out);
/* The weight `w`; d: what it is divided by when all is summed, or NULL. */
bool depth_read_weight(const hir_module *m, depth_view w, const depth_divisor *d,
                       depth_weight *out);
/* Weights that stand apart: they are one softmax, each its own summand of what divides them. Finds
 * their scores. NULL, or why not. */
const char *depth_match_apart(const hir_module *m, hd_arena *a, depth_weight *const *w, size_t n);

/* ---- scores -------------------------------------------------------------------------------- */
enum { DEPTH_FACTORS = 6, DEPTH_BIASES = 4 };

/* s = scale (factor[0] factor[1] .. x) / sqrt(mean(x^2) + eps) + bias[0] + ..: of one source x */
typedef struct depth_score {
    depth_view factor[DEPTH_FACTORS]; /* vectors [d], one of them with T perhaps, and numbers */
    uint32_t n_factors;
    double scale, eps;
    bool is_product, has_norm;
    int64_t group; /* channels that are summed: d, or those of a head */
    depth_view bias[DEPTH_BIASES];
    double sign[DEPTH_BIASES];
    uint32_t n_biases;
    const char *why; /* it is no score; NULL: it is */
} depth_score;

/* The score `v` of source x [T, d]. */
depth_score depth_read_score(const hir_module *m, depth_view v, hir_ref x, int64_t d);
/* The same up to the bias. */
bool depth_same_score(const depth_score *a, const depth_score *b);

/* ---- row operations ------------------------------------------------------------------------ */
/* depth.scores, depth.mix or depth.merge as primitives, built at b; none ref on failure.
 * Up to `one_by_one` sources, at most DEPTH_FEW, are taken one by one. */
enum { DEPTH_FEW = 8 };
hir_ref depth_expand(hir_builder *b, hd_arena *scratch, hir_id op, uint32_t one_by_one);

#endif
