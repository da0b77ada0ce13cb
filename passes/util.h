/* Helpers of the passes: reading constants and types, building ops, replacing many values at once.
 */
#ifndef HIR_PASSES_UTIL_H
#define HIR_PASSES_UTIL_H

#include "ir/kernel/kernels.h"
#include "passes/pass.h"

/* ---- reading ------------------------------------------------------------------------------- */
/* The op that defines a ref's value; HIR_NONE for inputs, weights, states and none refs. */
hir_id pass_def(const hir_module *m, hir_ref r);
/* The op if it has this code, else HIR_NONE. */
hir_id pass_def_if(const hir_module *m, hir_ref r, hir_opcode code);
/* A `const` op's value. */
bool pass_const(const hir_module *m, hir_ref r, double *value);
static inline hir_ref pass_arg(const hir_module *m, hir_id op, uint32_t i) {
    const hir_op *o = hir_op_at(m, op);
    return i < o->n_args ? o->args[i] : hir_no_ref();
}
static inline hir_type pass_result_type(const hir_module *m, hir_id op) {
    return hir_value_at(m, hir_result(m, op))->type;
}
bool pass_type_has_c(hir_type t);          /* a dim is C */
int64_t pass_elements(hir_type t);         /* elements of one row; INT64_MAX on overflow */
bool pass_is_scalar(hir_type t);           /* [] or [1] */
bool pass_is_commutative(hir_opcode code); /* add, mul, max, min */
/* Type of an elementwise op on a and b; false if they do not broadcast. */
bool pass_broadcast(hir_type a, hir_type b, hir_type *out);
/* "%3" or "%name", for messages; in `a`. */
const char *pass_value_name(const hir_module *m, hir_id value, hd_arena *a);
const char *pass_op_text(const hir_module *m, hir_id op, hd_arena *a);

/* ---- building ------------------------------------------------------------------------------ */
/* Attributes of a kernel before the schedule pass: all rows, one thread. */
enum { PASS_KERNEL_ATTRS = 4 };
void pass_kernel_attrs(const char *name, hir_attr attrs[PASS_KERNEL_ATTRS]);
/* A reshape of x to the dims of t; x itself if it has that shape. */
hir_ref pass_reshape(hir_builder *b, hir_ref x, hir_type t);
hir_ref pass_reduce(hir_builder *b, hir_opcode code, hir_ref x, uint32_t axis);
/* pass_with_one: the type with a dim of 1 inserted at `axis`. pass_keep_one: with dim `axis` set to
 * 1. */
hir_type pass_with_one(hir_type t, uint32_t axis);
hir_type pass_keep_one(hir_type t, uint32_t axis);
/* Builds linear from row operations, at the builder:
 *     y[.., n] = sum_k x[.., k] w[n, k] (+ bias[n])
 * i.e. x as [.., 1, K] times w, summed over the last axis. Returns the none ref on failure. */
hir_ref pass_linear_as_rows(hir_builder *b, hir_ref x, hir_ref w, hir_ref bias);

/* ---- derived weights ------------------------------------------------------------------------- */
/* Adds the weight of type t that is derived by `rows` (hir_add_derived_weight), or returns an equal
 * one that exists. */
uint32_t pass_derived_weight(hir_pass_context *c, hir_type t, const hir_derived_row *rows,
                             uint32_t n, hd_loc loc);

/* ---- replacing many values at once --------------------------------------------------------- */
/* A map from values to their replacements; chains of replacements are followed. Passes fill it in
 * one walk over the ops and apply it to each op they reach, so that n replacements cost O(n) and
 * not O(n * ops). */
typedef struct pass_forward {
    hd_arena *arena;
    HD_VEC(hir_ref) to;  /* by value; the none ref: not replaced */
    HD_VEC(hir_id) dead; /* ops to erase once nothing refers to them */
} pass_forward;

void pass_forward_set(pass_forward *f, hir_id value, hir_ref with);
hir_ref pass_forward_get(const pass_forward *f, hir_ref r);
void pass_forward_args(const pass_forward *f, hir_module *m, hir_id op);
/* Replaces op's only result by `with`; pass_forward_finish erases op. */
void pass_forward_op(pass_forward *f, hir_module *m, hir_id op, hir_ref with);
/* Rewrites the operands of all other ops and erases the replaced ones. */
void pass_forward_finish(pass_forward *f, hir_module *m);

/* By weight: is it the matrix of a router, whose products decide a top-k selection? For kernel IR.
 */
bool *pass_find_routers(hir_pass_context *c);

#endif
