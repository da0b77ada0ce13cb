/* Type rules of constants, elementwise ops, reductions, norms, and ops that move elements. */
#include <string.h>

#include "ir/infer/rules.h"

/* ---- constants and elementwise ops --------------------------------------------------------- */
bool hir_rule_const(hir_check *c, hir_type *y) {
    if (!hir_shape(c, y)) return false;
    return !hir_type_has_c(*y) || hir_reject(c, HD_E_TYPE, "it is broadcast where it meets a cache",
                                             "there are no constants with C");
}

bool hir_rule_unary(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0)) return false;
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    return true;
}

bool hir_rule_binary(hir_check *c, hir_type *y) {
    if (!hir_all_plain(c)) return false;
    hir_type a = hir_arg(c, 0), b = hir_arg(c, 1);
    *y = a;
    y->dtype = HIR_F32;
    if (hir_broadcast(y, b)) return true;
    return hir_reject(c, HD_E_TYPE,
                      "dims are aligned at the right and 1 stretches; T meets only T, in front",
                      "%s and %s do not broadcast", hir_type_text(c, a), hir_type_text(c, b));
}

bool hir_rule_convert(hir_check *c, hir_type *y) {
    const char *name = hir_attr_string(c->op, HIR_A_DTYPE, "");
    if (!hir_rule_unary(c, y)) return false;
    if (hir_value_dtype_by_name(name, &y->dtype)) return true;
    return hir_reject(c, HD_E_VALUE, "values are stored as f32, bf16 or f16", "'dtype' is \"%s\"",
                      name);
}

/* ---- reductions and norms ------------------------------------------------------------------ */
static void remove_dim(hir_type *t, uint32_t axis) {
    t->rank--;
    for (uint32_t i = axis; i < t->rank; i++)
        t->dim[i] = t->dim[i + 1];
    t->dim[t->rank] = 0;
}

bool hir_rule_reduce(hir_check *c, hir_type *y) {
    uint32_t axis;
    if (!hir_rule_unary(c, y) || !hir_axis(c, *y, y->rank, &axis)) return false;
    remove_dim(y, axis);
    return true;
}

bool hir_rule_softmax(hir_check *c, hir_type *y) {
    uint32_t axis;
    return hir_rule_unary(c, y) && hir_axis(c, *y, y->rank, &axis);
}

static bool eps_fits(hir_check *c) {
    if (!hir_finite(c, HIR_A_EPS, false)) return false;
    return hir_attr_float(c->op, HIR_A_EPS, 0) >= 0 ||
           hir_reject(c, HD_E_VALUE, NULL, "'eps' is negative");
}

bool hir_rule_rmsnorm(hir_check *c, hir_type *y) {
    int64_t n;
    return hir_all_plain(c) && hir_rule_unary(c, y) && hir_last_dim(c, 0, &n) &&
           hir_vector_of(c, 1, n) && eps_fits(c);
}

bool hir_rule_layernorm(hir_check *c, hir_type *y) {
    int64_t n;
    return hir_rule_rmsnorm(c, y) && hir_last_dim(c, 0, &n) && hir_vector_of(c, 2, n);
}

/* ---- moving elements ----------------------------------------------------------------------- */
bool hir_rule_reshape(hir_check *c, hir_type *y) {
    hir_type x = hir_arg(c, 0);
    const bool ids = x.dtype == HIR_I32 && x.rank == 1 && hir_is_tokens(x.dim[0]);
    if ((!ids && !hir_plain(c, 0)) || !hir_shape(c, y)) return false;
    if (ids) y->dtype = HIR_I32; /* token ids, each as a choice of one: i32[T, 1] */
    if (hir_type_has_t(x) != hir_type_has_t(*y))
        return hir_reject(c, HD_E_TYPE, NULL,
                          hir_type_has_t(x) ? "%s has tokens, so 'shape' must begin with T"
                                            : "%s has no tokens, so 'shape' cannot have T",
                          hir_type_text(c, x));
    if (hir_type_has_t(x) && x.dim[0] != y->dim[0])
        return hir_reject(c, HD_E_TYPE, NULL, "%s and %s have the rows of different ranks",
                          hir_type_text(c, x), hir_type_text(c, *y));
    if (hir_type_has_c(x) != hir_type_has_c(*y))
        return hir_reject(c, HD_E_TYPE, NULL,
                          hir_type_has_c(x) ? "%s is rows of a cache, so 'shape' must begin with C"
                                            : "%s is no cache, so 'shape' cannot have C",
                          hir_type_text(c, x));
    int64_t before = hir_type_row_elements(x), after = hir_type_row_elements(*y);
    if (before < 0 || before != after)
        return hir_reject(c, HD_E_TYPE, NULL, "%s does not have the elements of %s",
                          hir_type_text(c, x), hir_type_text(c, *y));
    return true;
}

bool hir_rule_transpose(hir_check *c, hir_type *y) {
    const hir_attr *perm = hir_find_attr(c->op, HIR_A_PERM);
    if (!hir_rule_unary(c, y)) return false;
    hir_type x = hir_arg(c, 0);
    unsigned seen = 0;
    if (perm->n != x.rank)
        return hir_reject(c, HD_E_TYPE, NULL, "'perm' has %u entr%s for %s", perm->n,
                          perm->n == 1 ? "y" : "ies", hir_type_text(c, x));
    for (uint32_t i = 0; i < x.rank; i++) {
        int64_t from = perm->ints[i];
        if (from < 0 || from >= x.rank || (seen >> from & 1))
            return hir_reject(c, HD_E_VALUE, NULL, "'perm' must hold each of 0 .. %u once",
                              x.rank - 1);
        seen |= 1u << from;
        y->dim[i] = x.dim[from];
    }
    if ((hir_type_has_t(x) || hir_type_has_c(x)) && perm->ints[0] != 0)
        return hir_reject(c, HD_E_TYPE, NULL, "the %s stays in front: 'perm' begins with 0",
                          hir_type_has_t(x) ? "token dim" : "dim of positions");
    return true;
}

bool hir_rule_broadcast(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0) || !hir_shape(c, y)) return false;
    hir_type x = hir_arg(c, 0), stretched = *y;
    if (!hir_broadcast(&stretched, x) || !hir_type_equal(stretched, *y))
        return hir_reject(c, HD_E_TYPE, NULL, "%s does not stretch to %s", hir_type_text(c, x),
                          hir_type_text(c, *y));
    return true;
}

bool hir_rule_stack(hir_check *c, hir_type *y) {
    uint32_t axis;
    if (!hir_all_plain(c)) return false;
    hir_type x = hir_arg(c, 0);
    if (x.rank == HIR_MAX_RANK)
        return hir_reject(c, HD_E_LIMIT, NULL, "the result would have %d dims; %d is the most",
                          HIR_MAX_RANK + 1, HIR_MAX_RANK);
    if (!hir_axis(c, x, x.rank + 1, &axis)) return false;
    x.dtype = HIR_F32;
    for (uint32_t i = 1; i < c->op->n_args; i++) {
        hir_type other = hir_arg(c, i);
        other.dtype = HIR_F32;
        if (!hir_type_equal(other, x))
            return hir_reject(c, HD_E_TYPE, NULL, "operand %s is %s, operand %s is %s",
                              hir_arg_name(c, i), hir_type_text(c, other), hir_arg_name(c, 0),
                              hir_type_text(c, x));
    }
    *y = x;
    y->rank++;
    for (uint32_t i = y->rank - 1; i > axis; i--)
        y->dim[i] = y->dim[i - 1];
    y->dim[axis] = c->op->n_args;
    return true;
}

bool hir_rule_concat(hir_check *c, hir_type *y) {
    uint32_t axis;
    if (!hir_all_plain(c)) return false;
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    if (!hir_axis(c, *y, y->rank, &axis)) return false;
    for (uint32_t i = 1; i < c->op->n_args; i++) {
        hir_type other = hir_arg(c, i), like = other;
        like.dtype = HIR_F32;
        if (like.rank == y->rank) like.dim[axis] = y->dim[axis];
        if (!hir_type_equal(like, *y))
            return hir_reject(
                c, HD_E_TYPE, NULL, "operand %s is %s, which differs from %s beside axis %u",
                hir_arg_name(c, i), hir_type_text(c, other), hir_type_text(c, hir_arg(c, 0)), axis);
        if (hd_add_overflow(y->dim[axis], other.dim[axis], &y->dim[axis]))
            return hir_reject(c, HD_E_LIMIT, NULL, "axis %u becomes too long", axis);
    }
    return true;
}

bool hir_rule_slice(hir_check *c, hir_type *y) {
    uint32_t axis;
    if (!hir_rule_unary(c, y) || !hir_axis(c, *y, y->rank, &axis)) return false;
    int64_t start = hir_attr_int(c->op, HIR_A_START, 0);
    int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0), n = y->dim[axis];
    if (start < 0 || length < 1 || start >= n || length > n - start)
        return hir_reject(c, HD_E_VALUE, NULL,
                          "start %lld and length %lld lie outside axis %u of %s", (long long)start,
                          (long long)length, axis, hir_type_text(c, *y));
    y->dim[axis] = length;
    return true;
}
