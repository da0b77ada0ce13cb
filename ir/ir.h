/* The intermediate representation: one module, three stages (graph, depth, kernel), one text form.
 *
 * A module is tables of weights and of state, and one function: SSA values of tensor type, made by
 * ops in a list. Kernel ops hold a body of graph ops, whose meaning is exactly that of the same ops
 * written inline: a kernel is a grouping, so the evaluator needs no second set of rules.
 *
 * Handles instead of pointers: values, ops, weights and states are indices into the module's
 * tables; tables only grow. Everything lives in the module's arena.
 */
#ifndef HIR_IR_H
#define HIR_IR_H

#include "ir/names.h"
#include "support/diag.h"
#include "support/latent_costs.h"
#include "support/share.h"

/* ---- limits -------------------------------------------------------------------------------- */
enum {
    HIR_MAX_RANK = 6,
    HIR_MAX_ATTR_FLOATS = 4096, /* entries of a list of numbers */
    HIR_MAX_OPS = 1 << 22,
    HIR_MAX_DIM = INT32_MAX, /* of one dim; element counts are int64 and checked */
};

/* ---- types --------------------------------------------------------------------------------- */
typedef enum hir_dtype {
#define D(id, ...) HIR_##id,
#include "ir/dtypes.def"
#undef D
    HIR_DTYPE_COUNT
} hir_dtype;

/* A dim is a positive integer or a symbol: T (tokens), C (cache length), C/r (one for each r whole
 * positions), or T/P (the rows of one of P ranks, support/share.h). */
enum { HIR_T = -1 /* tokens of this call */, HIR_C = -2 /* cache length after this call */ };
enum { HIR_MAX_RATE = 1 << 20 };                /* the largest r of C/r */
enum { HIR_MAX_SELECT = 1 << 20 };              /* the most entries of a list of rows */
static inline bool hir_is_length(int64_t dim) { /* C or C/r */
    return dim <= HIR_C && dim >= -1 - HIR_MAX_RATE;
}
static inline int64_t hir_over_rate(int64_t rate) { /* C/rate; C for 1 */
    return -1 - rate;
}
static inline int64_t hir_rate(int64_t dim) { /* r of C/r; 1 of C */
    return -1 - dim;
}
enum { HIR_MAX_RANKS = 4096 };                    /* the largest P of T/P */
static inline int64_t hir_t_over(int64_t ranks) { /* T/ranks; T for 1 */
    return ranks > 1 ? -2 * HIR_MAX_RATE - ranks : HIR_T;
}
static inline bool hir_is_row_share(int64_t dim) { /* T/P */
    return dim < -2 * HIR_MAX_RATE;
}
static inline int64_t hir_row_ranks(int64_t dim) { /* P of T/P; 1 of T */
    return hir_is_row_share(dim) ? -2 * HIR_MAX_RATE - dim : 1;
}
static inline bool hir_is_tokens(int64_t dim) { /* T or T/P */
    return dim == HIR_T || hir_is_row_share(dim);
}

typedef struct hir_type {
    hir_dtype dtype;
    uint32_t rank;
    int64_t dim[HIR_MAX_RANK];
} hir_type;

hir_type hir_make_type(hir_dtype dtype, uint32_t rank, const int64_t *dims);
bool hir_type_equal(hir_type a, hir_type b);
bool hir_type_has_t(hir_type t);           /* dim 0 is T or T/P */
bool hir_type_has_c(hir_type t);           /* dim 0 is C or C/r */
int64_t hir_type_row_elements(hir_type t); /* product of the integer dims; -1 on overflow */
size_t hir_dtype_bytes(hir_dtype t);   /* of one element; 0 where elements are stored in groups */
bool hir_is_quantised(hir_dtype t);    /* stored in groups of HIR_GROUP elements */
unsigned hir_panel_depth(hir_dtype t); /* consecutive elements along K stored together in a panel */
enum { HIR_GROUP = 32 };
const char *hir_dtype_name(hir_dtype t);
bool hir_stores_values(hir_dtype t); /* values and state may be stored so */
/* The type called `name`, if values and state may be stored so. */
bool hir_value_dtype_by_name(const char *name, hir_dtype *out);
/* x rounded once, to nearest even, to an element of such a type; for f32 and quantised types x
 * itself, since the evaluator computes in f64. */
double hir_rounded(hir_dtype t, double x);
void hir_print_type(hd_text *out, hir_type t); /* f32[T, 4, 32] */
/* The same as a text of its own, in `a`. */
const char *hir_type_string(hd_arena *a, hir_type t);

/* ---- handles ------------------------------------------------------------------------------- */
typedef uint32_t hir_id; /* index of an op or a value */
#define HIR_NONE UINT32_MAX

typedef enum hir_ref_kind {
    HIR_REF_NONE,
    HIR_REF_VALUE,
    HIR_REF_WEIGHT,
    HIR_REF_STATE
} hir_ref_kind;
typedef struct hir_ref { /* an operand: %value, @weight, $state, or none (`_`) */
    uint32_t kind : 2;
    uint32_t index : 30;
} hir_ref;

static inline hir_ref hir_value_ref(hir_id v) {
    return (hir_ref){HIR_REF_VALUE, v & 0x3fffffff};
}
static inline hir_ref hir_weight_ref(uint32_t w) {
    return (hir_ref){HIR_REF_WEIGHT, w & 0x3fffffff};
}
static inline hir_ref hir_state_ref(uint32_t s) {
    return (hir_ref){HIR_REF_STATE, s & 0x3fffffff};
}
static inline hir_ref hir_no_ref(void) {
    return (hir_ref){HIR_REF_NONE, 0};
}
static inline bool hir_ref_equal(hir_ref a, hir_ref b) {
    return a.kind == b.kind && a.index == b.index;
}

/* ---- tables -------------------------------------------------------------------------------- */
/* Layout of a weight in the .weights file; chosen by the layout pass, printed unless it is rows.
 *   rows    row-major, as in the checkpoint
 *   panel   [N, K] as ceil(N/16) panels of [K][16]: element (n, k) at ((n/16)*K + k)*16 + n%16,
 *           rows beyond N are zero. One layout for every CPU level.
 *           bf16: panels of [ceil(K/2)][16][2], (n, k) at ((n/16)*ceil(K/2) + k/2)*32 + n%16*2 +
 *           k%2; elements beyond K are zero.
 *           q8, q4 and mxfp4: ceil(N/16) panels of ceil(K/32) groups of [32][16], each with the
 *           scales of its 16 rows (codegen/weights/quant.h). These types have no other layout.
 *   narrow  f32[N, K], K even, as ceil(N/8) panels of [K/2][8][2]: element (n, k) at
 *           ((n/8)*(K/2) + k/2)*16 + n%8*2 + k%2, rows beyond N are zero. For few outputs of many
 *           inputs (hir_fits_narrow).
 * [E, N, K] in panels is E such matrices, one after the other. */
typedef enum hir_layout { HIR_LAYOUT_ROWS, HIR_LAYOUT_PANEL, HIR_LAYOUT_NARROW } hir_layout;
enum { HIR_LAYOUTS = HIR_LAYOUT_NARROW + 1 };
const char *hir_layout_name(hir_layout l); /* "rows", "panel", "narrow" */
enum { HIR_PANEL = 16 };

/* A derived weight is computed from other weights when weights are packed; the checkpoint holds
 * those, not the derived one. It is a list of blocks of rows (a vector's rows have one element),
 * printed as `= @a * @b, softmax(@c)[0:3]`. Each block is the elementwise product of its factors; a
 * factor has the elements of the whole block, of one row, or one element, and is broadcast. */
typedef enum hir_derived_by { /* function applied to a factor: derived.def */
#define M(id, name, meaning) HIR_DERIVED_##id,
#include "ir/derived.def"
#undef M
                              HIR_DERIVED_BYS
} hir_derived_by;
const char *hir_derived_by_name(hir_derived_by by); /* "softmax"; "" for none */

typedef struct hir_derived_factor {
    const char *name;  /* of a weight that is not derived itself */
    hir_derived_by by; /* applied to all its elements, before the slice; TRANSPOSED: to the slice */
    int64_t first, n;  /* slice: elements first .. first + n - 1; n == 0: all */
} hir_derived_factor;

typedef struct hir_derived_row { /* one block of rows: the product of its factors */
    uint32_t n;
    hir_derived_factor *factor;
} hir_derived_row;

/* A weight that is divided over ranks, along one dim. The weight's type is that of one rank's
 * share, which is what ops read and what is packed; `share.whole` is the size of the dim in the
 * checkpoint. */
typedef struct hir_weight_share {
    bool on;
    uint32_t dim;
    hd_share share;
} hir_weight_share;

/* How the numbers of a weight begin where a model is trained from nothing: INIT(ENUM, word,
 * number).
 * RANDOM ones are drawn (codegen/weights/init_weights.c). */
#define HIR_INITS(INIT)                                                                            \
    INIT(RANDOM, "random", 0)                                                                      \
    INIT(ZERO, "zero", 0)                                                                          \
    INIT(ONE, "one", 1)

typedef enum hir_init_kind {
#define INIT(id, word, number) HIR_INIT_##id,
    HIR_INITS(INIT)
#undef INIT
        HIR_INIT_COUNT
} hir_init_kind;
typedef struct hir_init {
    hir_init_kind kind;
    double deviation; /* RANDOM: that of a normal distribution around 0; 0: as init_weights.c draws
                         it where nothing is said */
    uint32_t n;       /* > 0: it begins as these numbers, row by row; one number is that of all */
    const double *numbers;
} hir_init;
const char *hir_init_word(hir_init_kind kind);
double hir_init_number(hir_init_kind kind);            /* not of RANDOM */
const char *hir_init_text(hd_arena *a, hir_init init); /* "zero", "0.02", "[1, 0]" */
bool hir_same_init(hir_init x, hir_init y);
hir_init hir_copy_init(hd_arena *a, hir_init init);
/* Deviations are numbers that f32 has, above 0. */
bool hir_is_deviation(double x);
/* Weights begin as numbers that f32 has. */
bool hir_is_initial(double x);

typedef struct hir_weight {
    const char *name;       /* as in the checkpoint; a derived weight: one that it lacks */
    hir_init init;          /* printed as `init zero`, `init 0.02`, `init [1, 0]` */
    hir_type type;          /* integer dims only; dtype is the storage dtype */
    hir_weight_share share; /* of sharded modules; printed as `shard {..}` after the whole type */
    hir_layout layout;
    bool stacked; /* entry e of the first dim is a tensor of its own in the checkpoint: the one with
                     e in place of the `*` of the name (printed as `stacked`) */
    bool unused;  /* no op reads it: if the checkpoint has it, its type is checked, it is never
                     packed (printed as `unused`) */
    uint32_t n_rows; /* entries of `rows`; 0: the weight is in the checkpoint */
    const hir_derived_row *rows;
    hd_loc loc;
} hir_weight;

/* Kinds of state: states.def. */
typedef enum hir_state_kind {
#define S(id, word, rows, rewind, dims, growth, rewinding, saved, address, doc) HIR_STATE_##id,
#include "ir/states.def"
#undef S
    HIR_STATE_KINDS
} hir_state_kind;
typedef enum hir_state_rows {
    HIR_ROWS_PER_POSITION,
    HIR_ROWS_FIRST_DIM,
    HIR_ROWS_ONE,
    HIR_ROWS_PER_PAIR
} hir_state_rows;
typedef enum hir_rewind { HIR_REWIND_SHORTEN, HIR_REWIND_CLEAR } hir_rewind;

typedef struct hir_state_kind_info {
    const char *word;
    hir_state_rows rows;
    hir_rewind rewind;
    const char *dims, *growth, *rewinding, *saved, *address, *doc; /* for people */
} hir_state_kind_info;
const hir_state_kind_info *hir_state_kind_of(hir_state_kind kind);
bool hir_state_kind_by_word(const char *word, hir_state_kind *out);
/* Why a state of that kind cannot have the type; NULL: it can. */
const char *hir_why_no_state(hir_state_kind kind, hir_type type);

typedef struct hir_state {
    const char *name;
    hir_state_kind kind;
    hir_type type; /* f32, bf16 or f16; C is the first dim of caches and scores */
    hd_loc loc;
} hir_state;

/* The layout of a state in memory: `heads` parts one after the other, each of `rows` rows of
 * `width` elements. */
typedef struct hir_state_shape {
    int64_t rate; /* positions that a row of a cache stands for; of other states 1 */
    int64_t rows; /* 0: as many as the session has positions, over the rate */
    int64_t heads, width;
} hir_state_shape;
hir_state_shape hir_shape_of_state(const hir_state *s);
/* Does the state hold something within a call only, for the tokens of the call? */
bool hir_is_of_call(const hir_state *s);
/* The bytes of a cache for each position, rounded up; of scores for each position and token of a
 * call; of other states all bytes. */
uint64_t hir_state_bytes(const hir_state *s);

/* Where a value is stored; set by plan-memory. */
typedef enum hir_place {
    HIR_PLACE_NONE,   /* not decided, or inside a kernel */
    HIR_PLACE_ARENA,  /* offset * T bytes into the arena: the rows of one call, T times the row size
                       */
    HIR_PLACE_LOCAL,  /* the same in the arena of the rows of this rank */
    HIR_PLACE_TILE,   /* the same in that of the rows of a tile (ir/kernel/tiled.h) */
    HIR_PLACE_FIXED,  /* offset bytes into the fixed area: values without T */
    HIR_PLACE_INPUT,  /* the caller's input number `offset` */
    HIR_PLACE_OUTPUT, /* the caller's output number `offset` */
    HIR_PLACE_GRADIENT, /* the same of an output grad.NAME: the kernel adds its result to what is
                         * there */
    HIR_PLACE_STATE,    /* state number `offset` */
} hir_place;

typedef struct hir_value {
    hir_type type;
    const char *name; /* NULL: printed as its number in order of definition */
    hir_id op;        /* the op that makes it, HIR_NONE for an input */
    hir_place place;
    uint64_t offset;
} hir_value;

/* ---- attributes ---------------------------------------------------------------------------- */
typedef enum hir_attr_kind {
    HIR_ATTR_INT,
    HIR_ATTR_FLOAT,
    HIR_ATTR_STRING,
    HIR_ATTR_INTS,
    HIR_ATTR_FLOATS
} hir_attr_kind;
typedef enum hir_attr_id {
#define A(id, name, kind) HIR_A_##id,
#include "ir/attrs.def"
#undef A
    HIR_A_COUNT
} hir_attr_id;

typedef struct hir_attr {
    hir_attr_id id;
    uint32_t n; /* of ints, of floats */
    union {     /* by the kind of the id */
        int64_t i;
        double f;
        const char *s;
        const int64_t *ints; /* shape and perm; T is HIR_T */
        const double *floats;
    };
} hir_attr;

const char *hir_attr_name(hir_attr_id id);
hir_attr_kind hir_attr_kind_of(hir_attr_id id);

/* ---- ops ----------------------------------------------------------------------------------- */
/* S(ENUM, its name, where an op that begins there is legal) */
#define HIR_STAGES(S)                                                                              \
    S(GRAPH, "graph", "at every stage")                                                            \
    S(DEPTH, "depth", "from the depth stage on")                                                   \
    S(KERNEL, "kernel", "in kernel IR only")

typedef enum hir_stage {
#define S(id, name, legal) HIR_STAGE_##id,
    HIR_STAGES(S)
#undef S
        HIR_STAGE_COUNT
} hir_stage;

const char *hir_stage_name(hir_stage stage);
const char *hir_stage_legal(hir_stage stage);

typedef enum hir_opcode {
#define OP(id, name, stage, traits, operands, attrs, rule, doc) HIR_##id##_OP,
#include "ir/ops.def"
#undef OP
    HIR_OPCODE_COUNT
} hir_opcode;

enum hir_trait {
    HIR_ELEMENTWISE = 1,
    HIR_REDUCE = 2,
    HIR_MOVE = 4,
    HIR_LOCAL = 8,
    HIR_EFFECT = 16,
    HIR_PURE_CONST = 32,
    HIR_REGION = 64,
    HIR_COMPOSITE = 128,
    HIR_POSITION = 256,
    HIR_VIEW = 512,
    HIR_SEQUENCE = 1024,
    HIR_WRITES_STATE = 2048,
    HIR_COMM = 4096,
    HIR_REDUCES_TOKENS = 8192,
};

typedef struct hir_op_info {
    const char *name;
    hir_stage stage;
    unsigned traits;
    const char *operands, *attrs, *doc;
} hir_op_info;
const hir_op_info *hir_info(hir_opcode code);
bool hir_opcode_by_name(const char *name, hir_opcode *out);
static inline bool hir_has_trait(hir_opcode code, unsigned trait) {
    return (hir_info(code)->traits & trait) != 0;
}
/* Which operand of such ops is a state; HIR_NONE: none is. */
uint32_t hir_state_operand(hir_opcode code);

/* An op takes one line of a cache: what limits passes over a model of many layers is memory. */
typedef struct hir_op {
    hir_opcode code : 16;
    uint32_t n_attrs : 15;
    bool erased : 1;
    uint32_t n_args, n_results;
    hir_id prev, next;            /* in the same list, HIR_NONE at the ends */
    hir_id parent;                /* kernel op whose body this is in, HIR_NONE at the top */
    hir_id body_first, body_last; /* HIR_NONE when empty or no region */
    hir_ref *args;                /* optional operands that are absent are none refs */
    hir_id *results;              /* values */
    hir_attr *attrs;              /* sorted by id */
    const hd_loc *loc;            /* place in the spec, which ops share; file NULL when unknown */
} hir_op;
_Static_assert(sizeof(void *) > 8 || sizeof(hir_op) <= 64, "an op takes one line of a cache");

/* ---- module -------------------------------------------------------------------------------- */
typedef struct hir_option {
    const char *key, *value;
} hir_option; /* parameters it was built with */

typedef struct hir_module {
    hd_arena *arena;
    const char *name; /* a C identifier: prefix of the generated symbols */
    hir_stage stage;
    HD_VEC(hir_option) options;
    HD_VEC(hir_weight) weights;
    hir_names weight_names; /* their numbers, of all or (weights were dropped) of none */
    /* Prefixes of names: tensors of other parts of the checkpoint (another tower of a multimodal
     * model), which are neither checked nor packed (printed as `weights "vision." unused`) */
    HD_VEC(const char *) unused_below;
    HD_VEC(hir_state) states;
    HD_VEC(hir_id) inputs; /* values */
    HD_VEC(hir_value) values;
    HD_VEC(hir_op) ops;
    hir_id first, last; /* top-level op list */
    /* Of a sharded module, one for all ranks of a group: how many ranks there are, and from how
     * many tokens on the rows are divided, so that a rank has T/P of them; in calls of fewer tokens
     * every rank has all rows, and T/P is T. Printed as `ranks 4, rows divided from 16 tokens`; 0
     * ranks: not sharded. */
    uint32_t ranks;
    int64_t divide_from;
    /* set by plan-memory, printed as `arena 1536 per token` / `fixed 64` when stage is kernel */
    uint64_t arena_per_token, fixed_bytes;
    uint64_t local_per_token; /* the arena of the rows of a rank; `local 512 per token` */
    uint64_t tile_per_token;  /* that of the rows of a tile; `tile 4096 per token` */
    /* of both, the bytes at the beginning that each chunk in flight has for itself
     * (ir/kernel/layer_ranges.h): `arena 1536 per token, 256 kept` */
    uint64_t arena_kept, local_kept;
    const hd_loc *kept_locs[64]; /* some that ops have (hir_keep_loc) */
    /* by op: its location in the text that the module was parsed from; for messages only */
    const hd_loc *text_locs;
    uint32_t n_text_locs;
} hir_module;

hir_module *hir_module_new(hd_arena *a, const char *name);
/* Sets the element type of all states of a kind, and of the values that are such a state: those
 * that cache_append makes. */
void hir_set_state_dtype(hir_module *m, hir_state_kind kind, hir_dtype dtype);
hir_module *hir_module_clone(const hir_module *m, hd_arena *a);
/* A model takes one i32[T], the tokens, and runs as NAME_forward; other modules are plain functions.
 * A model with a loss (hir_has_loss) takes a second i32[T], the targets. */
bool hir_is_model(const hir_module *m);

/* ---- the loss of a model ----
 * It is an input i32[T] after the tokens, and an output after the first, [T]: what cross_entropy
 * makes of the logits and that input. */
#define HIR_TARGETS "targets"
#define HIR_LOSSES  "losses"
/* Outputs of a module with gradients: the sum of the losses; what stands before the name of a
 * weight, and before that of an output of which the gradient is wanted. */
#define HIR_LOSS        "loss"
#define HIR_GRADIENT    "grad."
#define HIR_GRADIENT_AT "grad_at."
/* The output op of the losses; HIR_NONE: the model has none, or the module is no model. */
hir_id hir_loss_output(const hir_module *m);
/* The output op of the sum of the losses, the first output of a model with its gradients: tokens and
 * targets to that sum and to gradients (differentiate). HIR_NONE: the module is none. */
hir_id hir_loss_sum_output(const hir_module *m);
static inline bool hir_has_gradients(const hir_module *m) {
    return hir_loss_sum_output(m) != HIR_NONE;
}
/* Does the op give out a gradient, grad.NAME? Several outputs of one gradient are its summands. */
bool hir_is_gradient(const hir_op *output);
/* Has the model a loss, or, of a pipeline stage before the last, the model that it was cut from? */
bool hir_has_loss(const hir_module *m);
/* Adds input, op and output. The logits are the first output, [T, V]. False, and a diagnostic, if
 * they are not, or the module cannot have a loss. */
bool hir_add_loss(hir_module *m, hd_diags *d);
/* Is the op's second operand targets? */
bool hir_takes_targets(hir_opcode code);
/* Rows of what cross_entropy.parts gives of each part of a row of logits. */
enum { HIR_LOSS_MOST, HIR_LOSS_SUM, HIR_LOSS_TARGET, HIR_LOSS_COUNTED, HIR_LOSS_PARTS };

static inline hir_op *hir_op_at(const hir_module *m, hir_id op) {
    return &m->ops.at[op];
}
static inline bool hir_is_kernel(const hir_op *op) { /* has a body */
    return hir_has_trait(op->code, HIR_REGION);
}
static inline hir_value *hir_value_at(const hir_module *m, hir_id v) {
    return &m->values.at[v];
}
hir_type hir_ref_type(const hir_module *m, hir_ref r); /* of a value, weight or state */
static inline hir_type hir_arg_type(const hir_module *m, hir_id op, uint32_t i) {
    return hir_ref_type(m, hir_op_at(m, op)->args[i]);
}
static inline hir_id hir_result(const hir_module *m, hir_id op) {
    return hir_op_at(m, op)->results[0];
}
/* `r` without the reshapes that made it, which move no data. */
hir_ref hir_through_reshapes(const hir_module *m, hir_ref r);

/* for (hir_id op = m->first; op != HIR_NONE; op = hir_op_at(m, op)->next); the same with a body */
#define HIR_EACH(m, op, from)                                                                      \
    for (hir_id op = (from), op##_next;                                                            \
         op != HIR_NONE && (op##_next = hir_op_at((m), op)->next, true); op = op##_next)

/* ---- what an op or a kernel does to state ----
 * The op table answers this, so that it holds for every op that is added to it. */
/* The state that an op changes; HIR_NONE: none. */
uint32_t hir_written_state(const hir_module *m, hir_id op);
/* The state that a value is: the result of an op that gives back the state which it has written
 * (cache_append), in whose memory it lies; HIR_NONE: it is no state. */
uint32_t hir_state_of_value(const hir_module *m, hir_ref value);
bool hir_writes_state(const hir_module *m, hir_id kernel); /* does an op of its body? */
/* Does an op of the kernel's body sum over the tokens of the call? */
bool hir_reduces_tokens(const hir_module *m, hir_id kernel);
/* Does the kernel neither make a row for each token, nor read the rows of all, nor change a state?
 * Then it runs once for all tokens. */
bool hir_runs_once(const hir_module *m, hir_id kernel);
/* May the kernel skip all tokens but those whose rows the caller wants, where nobody else reads the
 * results? Not if it changes a state, which every token has to do whatever reads the kernel's
 * results, and not if it sends to another pipeline stage or receives from one. */
bool hir_may_skip_rows(const hir_module *m, hir_id kernel);

/* ---- work ----
 * FLOPs of an op: for each row that it computes, and for each pair of a row and a position of the
 * sequence that the row attends to. */
typedef struct hir_op_work {
    uint64_t row_flops, pair_flops;
    int64_t rows_together; /* rows that share what they read of the sequence, at least 1 */
} hir_op_work;
hir_op_work hir_work_of(const hir_module *m, hir_id op);
/* How many rows of a cache, which is an operand of the op, a token reads at most; 0: all before it.
 */
typedef struct hir_row_limit {
    int64_t rows;
    bool chosen; /* the rows of a list; else the last ones */
} hir_row_limit;
hir_row_limit hir_rows_read(const hir_module *m, const hir_op *op, uint32_t operand);

/* The costs of the two ways to compute an attention.expanded, of which the first is `otherwise`. */
hd_latent_costs hir_forms_of(const hir_module *m, hir_id op);

/* ---- in place ----
 * The result of a row program may alias a value whose last reader is that row program: row t of the
 * result is stored where row t of the value was. So may the result of a contraction that reads the
 * value only in elementwise ops of its epilogue, as when a sublayer's output is added to a running
 * sum. The result of an attention.expanded has the memory of `otherwise`, which is its value where
 * the kernel is left out. hir_may_be_in_place looks at the kernel's kind and body alone, not at
 * liveness. */
/* The value whose memory a kernel's result must have; HIR_NONE: it may have its own. */
hir_id hir_otherwise(const hir_module *m, hir_id kernel);
bool hir_may_be_in_place(const hir_module *m, hir_id kernel, hir_id value);
/* By result of `kernel`: the value that it aliases in this way, by the planned places; HIR_NONE: it
 * is not in place. */
const hir_id *hir_in_place(const hir_module *m, hir_id kernel, hd_arena *a);
/* The same of result number `i` alone. */
hir_id hir_in_place_of(const hir_module *m, hir_id kernel, uint32_t i);

/* ---- heads ----
 * A row of [T, heads, n] is its heads one after the other, the same memory as [T, heads n]. Ops
 * that work on each head by itself can be a per-head epilogue of the contraction that computes the
 * heads (passes/kernels/fuse.c). */
bool hir_is_by_heads(hir_type t, int64_t heads); /* [T, heads, x, ..] */
/* NULL if head i of the op's result needs only head i of its operands; else the reason why it needs
 * more. inner[i]: operand i has heads; all others are the same for every head. */
const char *hir_why_not_by_heads(const hir_module *m, hir_id op, int64_t heads, const bool *inner);
/* The fewest panels that hold a whole number of heads of n columns: lcm(n, HIR_PANEL) / HIR_PANEL.
 * A thread computes that many together; heads that need more than HIR_HEAD_PANELS cannot have a
 * per-head epilogue. */
enum { HIR_HEAD_PANELS = 16 };
int64_t hir_head_panels(int64_t n);

typedef struct hir_head_op {
    hir_id value;  /* in a contraction's body, */
    hir_id root;   /* computed from the result of this linear op, */
    int64_t heads; /* for each of so many heads; 0: no heads */
} hir_head_op;
typedef struct hir_head_epilogue {
    HD_VEC(hir_head_op) values; /* results of linear ops, views of them, and of head ops */
    HD_VEC(hir_head_op) roots;  /* linear ops with a per-head epilogue; `value` is unset */
    hir_id rejected;            /* op that cannot be in an epilogue, and why */
    const char *why;
} hir_head_epilogue;
/* Finds the per-head epilogues of a kernel.contract; false: op `rejected` cannot be in one. */
bool hir_find_head_epilogue(const hir_module *m, hd_arena *a, hir_id kernel,
                            hir_head_epilogue *out);
const hir_head_op *hir_find_head_op(const hir_head_epilogue *r,
                                    hir_ref value);                    /* NULL: not found */
int64_t hir_epilogue_heads(const hir_head_epilogue *r, hir_id linear); /* 0: no per-head epilogue */

/* The location to show for an op: in the text it was parsed from, else in the spec. */
hd_loc hir_place_of(const hir_module *m, hir_id op);
/* A location for hir_op.loc: equal ones share memory, if not all. */
const hd_loc *hir_keep_loc(hir_module *m, hd_loc loc);

/* attributes: `missing` is returned when the op lacks the attribute */
const hir_attr *hir_find_attr(const hir_op *op, hir_attr_id id);
int64_t hir_attr_int(const hir_op *op, hir_attr_id id, int64_t missing);
double hir_attr_float(const hir_op *op, hir_attr_id id, double missing);
const char *hir_attr_string(const hir_op *op, hir_attr_id id, const char *missing);
/* Of a delta_rule: is what it stores added as it is, and not corrected by what the state returns
 * already? */
bool hir_is_additive(const hir_op *op);
static inline hir_attr hir_int(hir_attr_id id, int64_t v) {
    return (hir_attr){.id = id, .i = v};
}
static inline hir_attr hir_float(hir_attr_id id, double v) {
    return (hir_attr){.id = id, .f = v};
}
static inline hir_attr hir_string(hir_attr_id id, const char *v) {
    return (hir_attr){.id = id, .s = v};
}
static inline hir_attr hir_ints(hir_attr_id id, const int64_t *v, uint32_t n) {
    return (hir_attr){.id = id, .ints = v, .n = n};
}
static inline hir_attr hir_floats(hir_attr_id id, const double *v, uint32_t n) {
    return (hir_attr){.id = id, .floats = v, .n = n};
}
void hir_set_attr(hir_module *m, hir_id op, hir_attr attr); /* adds or replaces */
bool hir_same_attr(const hir_attr *a, const hir_attr *b);
bool hir_same_slice(const hir_op *a, const hir_op *b); /* same axis, start and length */

/* shards: ir/weights.c */
/* The type of a weight in the checkpoint. */
hir_type hir_whole_type(const hir_weight *w);
/* Makes a weight of the whole type a share of its dim. The share must be legal. */
/* Why a weight cannot begin as its list of numbers; NULL: it can, or has none. */
const char *hir_why_no_init(const hir_weight *w);
void hir_shard_weight(hir_weight *w, uint32_t dim, hd_share share);
/* Why a dim of so many elements cannot be divided so; NULL: it can. */
const char *hir_why_no_share(const hd_share *share);
/* The module as code that reads a checkpoint needs it: with whole weights. Ops are shared with `m`.
 */
const hir_module *hir_with_whole_weights(const hir_module *m, hd_arena *a);
/* Copies the share of a rank out of a whole weight, row-major, elements of `size` bytes; padding is
 * zeros or repeated units. */
void hir_take_share(const hir_weight *w, int64_t rank, size_t size, const void *whole, void *part);
/* The share that the attributes of a comm op specify (axis, groups, units, pad, and the length of
 * the whole dim); false: they specify none, and the op works on rows. */
bool hir_share_of_op(const hir_module *m, const hir_op *op, int64_t whole, hd_share *out);

/* tables */
uint32_t hir_add_weight(hir_module *m, const char *name, hir_type type, hd_loc loc);
/* The name of tensor `part` of a stacked weight. Its part before the `*`, the number, the rest. */
const char *hir_part_name(hd_arena *a, const hir_weight *w, int64_t part);
/* Is there one `*` in the name, where the number of a part stands? */
bool hir_is_part_pattern(const char *name);
/* The tensors of which a weight consists in the checkpoint: one, or one for each entry of the first
 * dim of a stacked weight. A weight that is one tensor has that tensor's name and type. */
int64_t hir_parts(const hir_weight *w);
hir_weight hir_part_of(hd_arena *a, const hir_weight *w, int64_t part);
/* All tensors of the model's checkpoint, in the order of its weights. Derived weights have none. */
typedef HD_VEC(hir_weight) hir_weight_list;
hir_weight_list hir_checkpoint_tensors(hd_arena *a, const hir_module *m);
static inline bool hir_is_derived(const hir_weight *w) {
    return w->n_rows > 0;
}
/* Elements in a row of a derived weight: the last dim of matrices, 1 for a vector. */
int64_t hir_derived_row_elements(hir_type t);
/* Rows (of `row` elements) in a block: those of its longest factor. Factors that name no weight are
 * ignored. */
int64_t hir_derived_rows(const hir_module *m, const hir_derived_row *block, int64_t row);
/* Elements of a factor whose weight has `all`. */
static inline int64_t hir_factor_elements(const hir_derived_factor *f, int64_t all) {
    return f->n ? f->n : all;
}
bool hir_same_derived_row(const hir_derived_row *a, const hir_derived_row *b);
/* The weight whose matrices, each transposed, are all of a derived weight; HIR_NONE: there is none.
 */
hir_id hir_transposed_source(const hir_module *m, const hir_weight *w);
/* Applies `by` to all elements of a factor's weight, in place. */
void hir_derive_elements(hir_derived_by by, double *x, int64_t n);
/* TRANSPOSED: y[row][n / row] of x[n / row][row]. */
void hir_transpose_rows(const double *x, int64_t n, int64_t row, double *y);
const hir_derived_row *hir_copy_derived_rows(hd_arena *a, const hir_derived_row *rows, uint32_t n);
/* Adds a derived weight; `rows` are copied. */
uint32_t hir_add_derived_weight(hir_module *m, const char *name, hir_type type,
                                const hir_derived_row *rows, uint32_t n_rows, hd_loc loc);
uint32_t hir_find_weight(const hir_module *m, const char *name); /* HIR_NONE if absent */
/* Names that begin with `prefix` belong to other parts of the checkpoint. */
void hir_add_unused_below(hir_module *m, const char *prefix);
/* The rest of a name after a prefix in which * stands for a number; NULL: it does not begin with
 * the prefix. */
const char *hir_behind_match(const char *name, const char *pattern);
/* The first entry of `unused_below` that is a prefix of a name, where * stands for a number;
 * unused_below.n: none is. */
size_t hir_unused_below(const hir_module *m, const char *name);
/* Bytes of a weight as stored, in its layout and padded to whole panels and groups; false on
 * overflow. */
bool hir_weight_bytes(const hir_weight *w, uint64_t *bytes);
/* A matrix [N, K], or matrices of experts [E, N, K], one after the other. */
static inline bool hir_has_matrices(hir_type t) {
    return t.rank == 2 || t.rank == 3;
}
/* Rows of a panel: a matrix is padded to a multiple of 1, 16 or 8 rows. */
int64_t hir_panel_rows(hir_layout l);
/* Is the narrow layout better for a contraction with this matrix? It is where panels of 16 rows
 * would be half empty, or too few to occupy all accumulators; and only for long rows, as the sums
 * of even and of odd elements have to be added in the end. */
bool hir_fits_narrow(hir_type t);
uint32_t hir_add_state(hir_module *m, const char *name, hir_state_kind kind, hir_type type,
                       hd_loc loc);
uint32_t hir_find_state(const hir_module *m, const char *name);
/* Bytes of all caches together for each position (`grow`), or of all other states but those of a
 * call. */
uint64_t hir_all_state_bytes(const hir_module *m, bool grow);
hir_id hir_add_input(hir_module *m, const char *name, hir_type type);
void hir_set_option(hir_module *m, const char *key, const char *value);

/* ---- building ------------------------------------------------------------------------------ */
/* The position in an op list where new ops are inserted. */
typedef struct hir_builder {
    hir_module *m;
    hd_diags *diags;
    hir_id parent; /* HIR_NONE: top level */
    hir_id before; /* insert before this op; HIR_NONE: at the end */
    hd_loc loc;    /* given to every op built */
} hir_builder;

hir_builder hir_at_end(hir_module *m, hd_diags *d);
hir_builder hir_before(hir_module *m, hd_diags *d, hir_id op);
hir_builder hir_in_body(hir_module *m, hd_diags *d, hir_id kernel);

/* Builds an op, infers its result type and checks it. On an illegal op: a diagnostic at b->loc and
 * HIR_NONE. args and attrs are copied. One result, except `output`, `trace` and `yield` (none). */
hir_id hir_build(hir_builder *b, hir_opcode code, const hir_ref *args, uint32_t n_args,
                 const hir_attr *attrs, uint32_t n_attrs);
/* The same, giving the result as an operand (none ref on failure). */
hir_ref hir_emit(hir_builder *b, hir_opcode code, const hir_ref *args, uint32_t n_args,
                 const hir_attr *attrs, uint32_t n_attrs);
#define hir_emit1(b, code, x)    hir_emit((b), (code), (hir_ref[]){(x)}, 1, NULL, 0)
#define hir_emit2(b, code, x, y) hir_emit((b), (code), (hir_ref[]){(x), (y)}, 2, NULL, 0)
hir_ref hir_emit_const(hir_builder *b, double value);
/* A kernel op with results of the given types and an empty body. */
hir_id hir_build_kernel(hir_builder *b, hir_opcode code, const hir_attr *attrs, uint32_t n_attrs,
                        const hir_type *types, uint32_t n_types);

/* ---- changing ------------------------------------------------------------------------------ */
void hir_erase(hir_module *m, hir_id op); /* with its body; results must have no uses left */
void hir_move_before(hir_module *m, hir_id op, hir_id parent,
                     hir_id before); /* HIR_NONE: end of list */

/* Uses, computed on request and valid until the module changes. */
typedef struct hir_uses {
    uint32_t *count; /* [values] */
    uint32_t *first; /* [values] index into `user`, count[v] entries */
    hir_id *user;    /* ops, in program order; an op that uses a value twice is listed twice */
} hir_uses;
hir_uses hir_compute_uses(const hir_module *m, hd_arena *scratch);

/* ---- legality ------------------------------------------------------------------------------ */
/* Result type of an op with these operands; false and a diagnostic if it is illegal. */
bool hir_infer(const hir_module *m, const hir_op *op, hd_diags *d, hir_type *out);
/* The whole module: definitions before uses, types, attributes, stage, kernels, states, buffers.
 * O(ops). */
bool hir_verify(const hir_module *m, hd_diags *d);
/* Can code generation emit the kernels of a verified module: the ops in each kind of
 * kernel, rows, threads, and (once memory is planned) that no two live values overlap. */
bool hir_verify_kernels(const hir_module *m, hd_diags *d);

/* ---- text ---------------------------------------------------------------------------------- */
typedef struct hir_print_options {
    bool locations; /* ` loc "file":line:column` after ops that have one */
    /* An extract for reading: only the ops that `want` accepts, with the kernels around them; a
     * kernel that it accepts is printed with its whole body. NULL: the whole module. */
    bool (*want)(const void *context, const hir_op *op);
    const void *context;
} hir_print_options;
void hir_print(const hir_module *m, hir_print_options options, hd_text *out);
void hir_print_op(const hir_module *m, hir_id op, hd_text *out); /* one line, for messages */
/* Parses and verifies. `file` names the text in diagnostics. NULL on error. */
hir_module *hir_parse(hd_arena *a, hd_diags *d, const char *file, const char *text);

/* The op reference (docs/ops.md and `hadal ops`), from the table. `only`: one op, or NULL. */
bool hir_print_reference(hd_text *out, bool markdown, const char *only);

#endif
