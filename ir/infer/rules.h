/* Type rules: one function per `rule` column of ops.def.
 *
 * A rule is called when the common checks have passed (number of operands, kinds of attributes,
 * nothing required missing); it makes the op's own checks and returns the result type. A new op is
 * a row in ops.def and, unless an existing rule fits, one function here.
 */
#ifndef HIR_RULES_H
#define HIR_RULES_H

#include "ir/signature.h"

typedef struct hir_check {
    const hir_module *m;
    const hir_op *op;
    hd_diags *d;
    const char *name; /* of the op, for messages */
    hir_signature signature;
} hir_check;

#define OP(id, name, stage, traits, operands, attrs, rule, doc)                                    \
    bool hir_rule_##rule(hir_check *c, hir_type *y);
#include "ir/ops.def"
#undef OP

/* Adds a diagnostic "op: message" at the op; always false. `hint` may be NULL. */
bool hir_reject(hir_check *c, hd_error code, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
const char *hir_type_text(const hir_check *c, hir_type t);
const char *hir_arg_name(const hir_check *c, uint32_t i);

static inline hir_type hir_arg(const hir_check *c, uint32_t i) {
    return hir_ref_type(c->m, c->op->args[i]);
}
static inline bool hir_has_arg(const hir_check *c, uint32_t i) {
    return c->op->args[i].kind != HIR_REF_NONE;
}

/* A value or weight of floating type, as all arithmetic ops take; with C only for graph ops that
 * are local to a row. */
bool hir_plain(hir_check *c, uint32_t i);
bool hir_all_plain(hir_check *c);
bool hir_is_value(hir_check *c, uint32_t i);
bool hir_rank_is(hir_check *c, uint32_t i, uint32_t rank, const char *form);
/* A vector [n] without T, such as a gain or a bias; an absent operand is fine. */
bool hir_vector_of(hir_check *c, uint32_t i, int64_t n);
/* The last dim of operand i, which must be an integer. */
bool hir_last_dim(hir_check *c, uint32_t i, int64_t *n);
/* Attribute `axis` as an index below `limit`, not the first dim of a type that has T or C. */
bool hir_axis(hir_check *c, hir_type t, uint32_t limit, uint32_t *axis);
/* Attribute `shape`: positive integers, T or C at the front only. */
bool hir_shape(hir_check *c, hir_type *y);
/* A float attribute (absent: fine) that must be finite and, if `positive`, more than 0. */
bool hir_finite(hir_check *c, hir_attr_id id, bool positive);
/* Operand i is a state of this kind, of these dims and any type that a state may have. */
bool hir_takes_state(hir_check *c, uint32_t i, hir_state_kind kind, uint32_t rank,
                     const int64_t *dims);
/* What the ops of these names take besides their state, which the ops of their gradients take, too;
 * y is the result. n: taps. */
bool hir_conv_fits(hir_check *c, int64_t *n, hir_type *y);
bool hir_delta_fits(hir_check *c, hir_type *y);
bool hir_pool_fits(hir_check *c, hir_type *y);
bool hir_ngram_fits(hir_check *c, hir_type table, hir_type *y);
/* dst = the broadcast of dst and t; false, without a message, if they do not fit. */
bool hir_broadcast(hir_type *dst, hir_type t);

#endif
