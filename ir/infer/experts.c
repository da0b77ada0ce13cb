/* Type rules of selection (topk, to_ids, pick, mark) and of contractions with selected matrices. */
#include "ir/infer/rules.h"

/* Is operand i the indices of a selection: i32 [.., k], made by topk? Token ids, i32[T], are not:
 * they have no last axis besides tokens. */
static bool is_choice(hir_check *c, uint32_t i) {
    const hir_type t = hir_arg(c, i);
    if (!hir_is_value(c, i)) return false;
    return (t.dtype == HIR_I32 && t.rank > 0 && t.dim[t.rank - 1] > 0) ||
           hir_reject(c, HD_E_TYPE, "topk and to_ids make such indices",
                      "operand %s must be i32[.., k], not %s", hir_arg_name(c, i),
                      hir_type_text(c, t));
}

bool hir_rule_topk(hir_check *c, hir_type *y) {
    const int64_t k = hir_attr_int(c->op, HIR_A_K, 0);
    int64_t n;
    if (!hir_plain(c, 0) || !hir_last_dim(c, 0, &n)) return false;
    if (k < 1 || k > n)
        return hir_reject(
            c, HD_E_VALUE, NULL,
            "'k' is %lld; it must be from 1 to %lld, the length of the last axis of %s",
            (long long)k, (long long)n, hir_type_text(c, hir_arg(c, 0)));
    *y = hir_arg(c, 0);
    y->dtype = HIR_I32;
    y->dim[y->rank - 1] = k;
    return true;
}

bool hir_rule_to_ids(hir_check *c, hir_type *y) {
    int64_t n;
    if (!hir_plain(c, 0) || !hir_last_dim(c, 0, &n)) return false;
    *y = hir_arg(c, 0);
    y->dtype = HIR_I32;
    return true;
}

bool hir_rule_pick(hir_check *c, hir_type *y) {
    int64_t n;
    if (!hir_plain(c, 0) || !hir_last_dim(c, 0, &n) || !is_choice(c, 1)) return false;
    const hir_type x = hir_arg(c, 0), ids = hir_arg(c, 1);
    hir_type front = ids, of_x = x;
    *y = ids;
    y->dtype = HIR_F32;
    front.dtype = HIR_F32;
    front.rank--, of_x.rank--;
    front.dim[front.rank] = 0;
    hir_type both = front;
    return (hir_broadcast(&both, of_x) && hir_type_equal(both, front)) ||
           hir_reject(c, HD_E_TYPE, "the dims of x in front of its last stretch to those of ids",
                      "x is %s and ids %s: they choose from other rows", hir_type_text(c, x),
                      hir_type_text(c, ids));
}

bool hir_rule_mark(hir_check *c, hir_type *y) {
    const int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    if (!is_choice(c, 0)) return false;
    if (length < 1 || length > HIR_MAX_DIM)
        return hir_reject(c, HD_E_VALUE, NULL, "'length' is %lld; it must be from 1 to %d",
                          (long long)length, HIR_MAX_DIM);
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    y->dim[y->rank - 1] = length;
    return true;
}

/* ---- contractions with selected matrices ----------------------------------------------------- */
static bool same_for_all(hir_check *c, uint32_t i) {
    const hir_type t = hir_arg(c, i);
    return !hir_type_has_t(t) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be the same for every token, not %s",
                      hir_arg_name(c, i), hir_type_text(c, t));
}

static bool chosen_rows_fit(hir_check *c) {
    const hir_type x = hir_arg(c, 0), ids = hir_arg(c, 2);
    if (!is_choice(c, 2) || !hir_rank_is(c, 2, 2, "i32[T, k]")) return false;
    if (!hir_type_has_t(ids))
        return hir_reject(c, HD_E_TYPE, NULL, "operand ids must be i32[T, k], not %s",
                          hir_type_text(c, ids));
    if (!hir_type_has_t(x) || x.rank < 2 || x.rank > 3)
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [T, K] or [T, k, K], not %s",
                          hir_type_text(c, x));
    return (x.dim[0] == ids.dim[0] && (x.rank == 2 || x.dim[1] == ids.dim[1])) ||
           hir_reject(c, HD_E_TYPE, NULL,
                      "x is %s and ids %s: each id has a row of x, or all have one",
                      hir_type_text(c, x), hir_type_text(c, ids));
}

bool hir_rule_expert_linear(hir_check *c, hir_type *y) {
    int64_t k;
    if (!hir_plain(c, 0) || !hir_plain(c, 1) || !hir_last_dim(c, 0, &k) ||
        !hir_rank_is(c, 1, 3, "[E, N, K]") || !same_for_all(c, 1) || !chosen_rows_fit(c))
        return false;
    const hir_type x = hir_arg(c, 0), w = hir_arg(c, 1), ids = hir_arg(c, 2);
    if (w.dim[2] != k)
        return hir_reject(c, HD_E_TYPE,
                          w.dim[1] == k ? "weights are [experts, outputs, inputs]" : NULL,
                          "x is %s, so w must be [E, N, %lld], not %s", hir_type_text(c, x),
                          (long long)k, hir_type_text(c, w));
    if (hir_has_arg(c, 3)) {
        const hir_type bias = hir_arg(c, 3);
        if (!hir_plain(c, 3)) return false;
        if (bias.rank != 2 || bias.dim[0] != w.dim[0] || bias.dim[1] != w.dim[1])
            return hir_reject(c, HD_E_TYPE, NULL, "operand bias must be [%lld, %lld], not %s",
                              (long long)w.dim[0], (long long)w.dim[1], hir_type_text(c, bias));
    }
    *y = hir_make_type(HIR_F32, 3, (const int64_t[]){ids.dim[0], ids.dim[1], w.dim[1]});
    return true;
}
