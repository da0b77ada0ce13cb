/* What the rules of `differentiate` share: building the ops of gradients, and saying whose gradient
 * they are.
 *
 * dx is the gradient of the loss with respect to x: it has the shape of x, in f32.
 */
#ifndef HIR_GRADIENT_H
#define HIR_GRADIENT_H

#include "passes/util.h"

/* One summand of a gradient. The list of a value begins with the summand that was made last. */
typedef struct grad_part {
    hir_ref x;
    struct grad_part *next;
} grad_part;

typedef struct gradient {
    hir_pass_context *c;
    hir_module *m;
    hir_builder b;        /* at the end of the module */
    bool *depends;        /* by value: does it depend on a weight? */
    grad_part **of_value; /* by value of the forward pass */
    grad_part **of_weight;
    hir_ref *sum;      /* by value of the forward pass: its gradient; the none ref: it has none */
    uint32_t n_values; /* of the forward pass */
    struct phase1_grads *phases; /* by value of the forward pass: the mixes with its elements as
                                    weights; NULL: it is no table of weights (rules_depth.c) */
    bool failed;                 /* an op could not be built; a diagnostic was added */
} gradient;

/* Gives the operands of `op` their gradients, from dy, that of its result. False: a diagnostic was
 * added. */
typedef bool grad_rule(gradient *g, hir_id op, hir_ref dy);
#define V(id, rule) grad_rule vjp_##rule;
#define STOP(id)
#define NONE(id, why)
#include "passes/gradient/rules.def"
#undef V
#undef STOP
#undef NONE

/* ---- operands -------------------------------------------------------------------------------- */
/* Does operand i depend on a weight, so that its gradient is wanted? */
bool grad_wants(const gradient *g, hir_id op, uint32_t i);
bool grad_wants_of(const gradient *g, hir_ref x);
/* dx is a summand of the gradient of operand i. Where the operand was broadcast, dx is summed over
 * the rows and elements that read the same one. */
void grad_give(gradient *g, hir_id op, uint32_t i, hir_ref dx);
void grad_give_to(gradient *g, hir_ref x, hir_ref dx);
hir_ref grad_result(const gradient *g, hir_id op);
static inline hir_type grad_type(const gradient *g, hir_ref x) {
    return hir_ref_type(g->m, x);
}

/* ---- building -------------------------------------------------------------------------------- */
/* The none ref once an op could not be built. */
hir_ref grad_op(gradient *g, hir_opcode code, const hir_ref *args, uint32_t n_args,
                const hir_attr *attrs, uint32_t n_attrs);
hir_ref grad_const(gradient *g, double x);
hir_ref grad_zeros(gradient *g, hir_type t); /* not of a cache */
hir_ref grad_1(gradient *g, hir_opcode code, hir_ref x);
hir_ref grad_2(gradient *g, hir_opcode code, hir_ref a, hir_ref b);
static inline hir_ref grad_add(gradient *g, hir_ref a, hir_ref b) {
    return grad_2(g, HIR_ADD_OP, a, b);
}
static inline hir_ref grad_sub(gradient *g, hir_ref a, hir_ref b) {
    return grad_2(g, HIR_SUB_OP, a, b);
}
static inline hir_ref grad_mul(gradient *g, hir_ref a, hir_ref b) {
    return grad_2(g, HIR_MUL_OP, a, b);
}
static inline hir_ref grad_neg(gradient *g, hir_ref a) {
    return grad_1(g, HIR_NEG_OP, a);
}
hir_ref grad_times(gradient *g, hir_ref x, double by);
hir_ref grad_plus(gradient *g, hir_ref x, double c);
/* A reduction over an axis, which stays with one element. */
hir_ref grad_reduce(gradient *g, hir_opcode code, hir_ref x, uint32_t axis);
hir_ref grad_reshape(gradient *g, hir_ref x, hir_type t);
hir_ref grad_transpose(gradient *g, hir_ref x, uint32_t a,
                       uint32_t b); /* dims a and b change places */
hir_ref grad_slice(gradient *g, hir_ref x, uint32_t axis, int64_t start, int64_t length);
/* x, summed to the shape of t, which broadcasts to that of x. */
hir_ref grad_sum_to(gradient *g, hir_ref x, hir_type t);

/* ---- attention over depth (rules_depth.c) ----------------------------------------------------- */
/* Before the walk: finds the mixes of phases 1. */
void grad_find_phases(gradient *g);
/* After the walk has been through `op`: where that is the first mix of a phase 1, gives the sources
 * and weights of all its mixes their gradients. */
bool grad_end_phase(gradient *g, hir_id op);

#endif
