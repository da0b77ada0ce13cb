/* Shared by the depth passes: matching the naive pattern of attention over depth, and the operands
 * of depth.attend. A mix is a weighted sum of sources; sources are outputs of earlier sublayers, or
 * sums of them. */
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
/* The code of the op that defines a value; HIR_OPCODE_COUNT: no op does. */
hir_opcode depth_code(const hir_module *m, hir_ref r);
const char *depth_normalization(const hir_module *m, hir_id attend);
bool depth_is_softmax(const hir_module *m, hir_id attend);
/* Does the query depend on the token? If so, its scores cannot be computed ahead of the sublayer
 * that makes the query. */
bool depth_query_has_t(const hir_module *m, hir_id attend);
/* Are both attends equal except for query, bias and sources, so that one phase 1 can serve both? */
bool depth_same_kind(const hir_module *m, hir_id a, hir_id b);
/* Same query and same bias? */
static inline bool depth_same_query(const hir_module *m, hir_id a, hir_id b) {
    const hir_op *x = hir_op_at(m, a), *y = hir_op_at(m, b);
    return hir_ref_equal(x->args[ATTEND_QUERY], y->args[ATTEND_QUERY]) &&
           hir_ref_equal(x->args[ATTEND_BIAS], y->args[ATTEND_BIAS]);
}
/* Copies the attributes scale and heads, where present; returns their number. */
uint32_t depth_copy_attrs(const hir_module *m, hir_id attend, hir_attr out[2]);
/* Element i of x along `axis`; the axis is dropped. A reshape of x if the axis has one element. */
hir_ref depth_element(hir_builder *b, hir_ref x, uint32_t axis, int64_t i);

/* ---- cost ---------------------------------------------------------------------------------- */
/* Bytes per token that mixes move, as the ledger will charge them once there are kernels: the cost
 * model of all depth passes. All mixes of a block are of one kind. In a model with gradients what the
 * backward half moves is in it: a mix reads a source again, and again for the gradient of a query,
 * and adds to the source's gradient; of phase 1 the gradient of a result is written and read. */
typedef struct depth_cost {
    int64_t row;    /* d numbers */
    int64_t live;   /* to read a source with no other reader */
    int64_t banked; /* to read a source that several mixes read, and its inverse norm */
    int64_t norm;   /* to write that norm, once */
    int64_t result; /* to write a result of phase 1 and its log-sum-exp, and to read both */
} depth_cost;

depth_cost depth_cost_of(const hir_module *m, hir_id attend, const hir_compile_options *o);
/* Bytes that one phase 1 for `members` mixes with `shared` sources saves, compared with mixing each
 * alone. The first member is in the kernel of phase 1 and does not load its result from memory.
 * `own` of the sources have no other readers: their norms are used where they are computed, and are
 * not stored. */
static inline int64_t depth_saved(const depth_cost *c, int64_t members, int64_t shared,
                                  int64_t own) {
    return (members - 1) * (shared * c->banked - c->result) + own * c->norm;
}

/* ---- views --------------------------------------------------------------------------------- */
/* The elements of one source in a value: element i of dim `axis`; the whole value if axis < 0. */
typedef struct depth_view {
    hir_ref v;
    int axis;
    uint32_t i;
} depth_view;

/* Looks through ops that move elements without changing their order. */
depth_view depth_through(const hir_module *m, depth_view v);
/* The view of operand `arg` of an elementwise op, through its broadcast. */
depth_view depth_operand(const hir_module *m, depth_view v, uint32_t arg);
/* The view of the operand of a reduction over another axis than the view's. */
bool depth_reduced(const hir_module *m, depth_view v, depth_view *x);
/* Number of elements per token (and source). */
int64_t depth_view_elements(const hir_module *m, depth_view v);
bool depth_view_has_t(const hir_module *m, depth_view v);

/* ---- elements ------------------------------------------------------------------------------ */
/* Can the viewed element be computed without the stack that it was computed from? */
bool depth_is_element(const hir_module *m, depth_view v);
/* Are both elements the same, even if one was normed in a stack and the other alone? */
bool depth_same_element(const hir_module *m, depth_view a, depth_view b);

typedef struct depth_elements { /* elements that exist: built here, or noted from the program */
    hir_module *m;
    hd_arena *arena;
    size_t n_ops;
    uint32_t *place; /* by op */
    struct depth_known **known;
} depth_elements;

void depth_elements_start(depth_elements *e, hir_module *m, hd_arena *a);
/* Notes an op of the program, so that an equal element need not be built. */
void depth_note_element(depth_elements *e, hir_id op);
/* Builds the viewed element as a separate value at b; the none ref on failure. */
hir_ref depth_build_element(depth_elements *e, hir_builder *b, depth_view v);

/* ---- weights ------------------------------------------------------------------------------- */
/* The divisor where a sum of e^s x is divided as a whole: operand `side` of `op`, which is the sum
 * of e^s. */
typedef struct depth_divisor {
    hir_ref exps; /* all exponentials as one value, summed over `axis`; none ref: they are separate
                     values */
    int axis;
    depth_view sum; /* their sum, if they are separate */
    double times;   /* the number of exponentials if it is their mean; 1: it is their sum */
} depth_divisor;

typedef enum depth_weight_kind {
    DEPTH_SOFTMAX,  /* over logits in one value, along the axis of the weight's view */
    DEPTH_QUOTIENT, /* a softmax of exponentials in separate values */
    DEPTH_SIGMOID,
} depth_weight_kind;

typedef struct depth_weight {
    depth_weight_kind kind;
    hir_ref logits;      /* softmax */
    depth_view exp, sum; /* DEPTH_QUOTIENT: e^s, and the sum that divides it */
    depth_view score;    /* of a sigmoid; of DEPTH_QUOTIENT after depth_match_quotients */
    double sign;         /* of the score: -1 for sigmoid(-s) */
    double factor;       /* multiplied with softmax or sigmoid */
} depth_weight;

bool depth_read_divisor(const hir_module *m, hir_id op, uint32_t side, depth_divisor *out);
/* Reads the weight `w`; d: the divisor of the whole sum, or NULL. */
bool depth_read_weight(const hir_module *m, depth_view w, const depth_divisor *d,
                       depth_weight *out);
/* Are weights of kind DEPTH_QUOTIENT one softmax, each a distinct summand of their common divisor? If
 * so, finds their scores and returns NULL; otherwise returns the reason. `is_part`: the divisor has
 * further summands. */
const char *depth_match_quotients(const hir_module *m, hd_arena *a, depth_weight *const *w,
                                  size_t n, bool *is_part);

/* ---- scores -------------------------------------------------------------------------------- */
enum { DEPTH_FACTORS = 6, DEPTH_BIASES = 4 };

/* s = scale (factor[0] factor[1] .. x) / sqrt(mean(x^2) + eps) + times[0] bias[0] + ..: for one
 * source x */
typedef struct depth_score {
    depth_view factor[DEPTH_FACTORS]; /* vectors [d], at most one with T, and scalars */
    uint32_t n_factors;
    double scale, eps;
    bool is_product, has_norm;
    int64_t group; /* channels of one dot product: d, or those of a head */
    depth_view bias[DEPTH_BIASES];
    double times[DEPTH_BIASES]; /* factor of a bias */
    uint32_t n_biases;
    const char *why; /* why it is not a score; NULL: it is */
} depth_score;

/* Reads the score `v` of source x, of d channels. */
depth_score depth_read_score(const hir_module *m, depth_view v, depth_view x, int64_t d);
/* Are both scores equal except for the bias? */
bool depth_same_score(const depth_score *a, const depth_score *b);

/* ---- several queries in one product (depth_queries.c) ---------------------------------------- */
bool depth_separate_queries(hir_pass_context *c);

/* ---- row operations ------------------------------------------------------------------------ */
/* Builds depth.scores, depth.mix or depth.merge from primitive ops at b; the none ref on failure.
 * Up to `one_by_one` sources, at most DEPTH_FEW, are unrolled; more are stacked. */
enum { DEPTH_FEW = 8 };
hir_ref depth_expand(hir_builder *b, hd_arena *scratch, hir_id op, uint32_t one_by_one);

#endif
