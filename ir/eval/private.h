/* Shared by the files of the evaluator. Each rule of ops.def is a function eval_<rule>; the driver
 * in eval.c passes it the operands and memory for the result, so that a rule holds only its
 * formula.
 */
#ifndef HIR_EVAL_PRIVATE_H
#define HIR_EVAL_PRIVATE_H

#include "ir/eval/eval.h"

/* One state over time, row-major. Rows 0 .. length-1 of a cache are valid. In a window, position p
 * has row p mod n. */
typedef struct eval_state {
    double *at;
    int64_t row;  /* of a cache: elements in a row */
    int64_t rate; /* of a cache: positions in a row */
    int64_t cap;  /* of a cache: positions for which memory is allocated */
    double *kept; /* of other states: a copy from before the call, restored if the call fails */
} eval_state;

struct hir_eval {
    hd_arena *arena;
    const hir_module *m;
    hir_weight_source source;
    void *context;
    double **weights; /* NULL: not read yet; of a sharded module, the share of this rank */
    const hir_module *with_whole; /* the module as its checkpoint has it, and */
    double **whole;               /* its weights, which all ranks share; NULL: not read yet */
    int64_t rank, stage;
    bool alone;                       /* a single pipeline stage: what it receives is random */
    hir_eval *next_rank, *next_stage; /* of a sharded module, and of a pipeline; NULL: the last */
    eval_state *states;
    int64_t length; /* positions all states hold */
    hir_id
        *memory; /* by value: the value whose memory it shares; HIR_NONE: memory not of the call */
    uint32_t *last; /* by such value: number of the op that reads its memory last */
};

typedef struct eval_count { /* traces seen of one name */
    const char *name;
    int64_t n;
} eval_count;

typedef struct eval_pool { /* freed buffers of n elements, for reuse */
    int64_t n;
    HD_VEC(double *) free;
} eval_pool;

typedef struct eval_message { /* what one stage has sent to another */
    int64_t from, to, rank, n;
    double *at;
    bool taken;
} eval_message;

typedef struct eval_mail {
    int64_t stages;
    HD_VEC(eval_message) messages;
} eval_mail;

typedef struct eval_call {
    hir_eval *e;
    const hir_module *m;
    hd_arena *scratch;
    hd_diags *d;
    int64_t T, C;      /* tokens of this call; cache length after it */
    int64_t elements;  /* allocated so far, of HIR_EVAL_MAX_ELEMENTS */
    hir_array *values; /* by value; `at` NULL: not computed yet */
    hir_results *out;
    HD_VEC(eval_count) traces;
    HD_VEC(eval_pool) pools;
    uint32_t step;           /* number of the next op */
    struct eval_call *group; /* the calls of all ranks, by rank */
    hir_array operand;       /* first operand of a comm op, for the other ranks */
    eval_mail *mail;         /* NULL: no pipeline */
    uint32_t received, sent; /* counted by a stage that is evaluated alone */
    hir_observer observe;
    void *observe_context;
} eval_call;

/* x[i] is operand i (NULL: a none ref); y is the result (NULL: the op has none), with its type set
 * and, unless the rule makes a view, zeroed memory. False: a diagnostic was added. */
typedef bool eval_rule(eval_call *c, const hir_op *op, const hir_array *const *x, hir_array *y);

/* math.c, move.c, depth.c, model.c, eval.c: one function per rule of ops.def */
#define OP(id, name, stage, traits, operands, attrs, rule, doc) eval_rule eval_##rule;
#include "ir/ops.def"
#undef OP

eval_rule *eval_rule_of(hir_opcode code);
/* Has stage `from` sent something to this rank that no recv has received yet? */
bool eval_message_waits(const eval_call *c, int64_t from);
/* All elements of a weight, read at the first use. */
bool eval_weight_array(eval_call *c, uint32_t w, hir_array *out);

hir_type eval_concrete(const eval_call *c, hir_type t); /* with T and C as numbers */
/* Sets y->type and y->n from a type of the module. */
bool eval_shape_array(eval_call *c, hd_loc loc, const char *what, hir_type t, hir_array *y);
bool eval_too_large(eval_call *c, hd_loc loc, const char *what, hir_type t); /* false */

/* state.c */
void eval_new_states(hir_eval *e);
/* Allocates what the call will write: rows of its positions in caches, zeros until written. */
bool eval_begin_states(eval_call *c);
void eval_undo_states(hir_eval *e); /* the call has failed */
void eval_state_array(const eval_call *c, uint32_t s, hir_array *out);

/* memory.c */
void eval_find_lives(hir_eval *e);
/* Zeroed memory for n elements; NULL: over HIR_EVAL_MAX_ELEMENTS. */
double *eval_take(eval_call *c, int64_t n);
/* Frees the values whose last use is op number `step`. */
void eval_give_dead(eval_call *c, const hir_op *op, uint32_t step);

/* gradients.c */
/* A gradient says what the tokens of a call add to it, and nothing of those of earlier calls: is it
 * the first call? False: a diagnostic was added. */
bool eval_from_the_start(eval_call *c, const hir_op *op);
/* The memory of the result of an op that computes the gradient of this operand; NULL: of another. */
double *eval_wanted(const hir_op *op, const char *operand, const hir_array *y);

/* sum of a[i] b[i]. Eight partial sums hide the latency of the additions. */
double eval_dot(const double *a, const double *b, int64_t n);

/* Strides of a row-major `x`, in elements. */
void eval_strides(hir_type x, int64_t stride[HIR_MAX_RANK]);
/* Strides for reading `x` broadcast to the shape of `y`: 0 along broadcast dims.
 */
void eval_stretched_strides(hir_type x, hir_type y, int64_t stride[HIR_MAX_RANK]);
/* y[i, j, ...] = x[i stride[0] + j stride[1] + ...] */
void eval_copy_strided(const double *x, const int64_t *stride, hir_array *y);

/* A shape cut at an axis: [outer, n, inner]. */
typedef struct eval_cut {
    int64_t outer, n, inner;
} eval_cut;
eval_cut eval_cut_at(hir_type t, int64_t axis);

#endif
