/* Type rules of attention over depth. */
#include <string.h>

#include "ir/infer/rules.h"

/* Common to all these ops: n sources [T, d], and H groups of channels. */
typedef struct mixing {
    uint32_t first, n; /* operands that are sources */
    int64_t d, heads;
    hir_type row; /* [T, d] */
} mixing;

static bool sources_fit(hir_check *c, uint32_t first, uint32_t n, mixing *x) {
    *x = (mixing){.first = first, .n = n};
    x->heads = hir_attr_int(c->op, HIR_A_HEADS, 1);
    for (uint32_t i = first; i < first + n; i++) {
        hir_type t = hir_arg(c, i);
        if (!hir_is_value(c, i) || !hir_rank_is(c, i, 2, "[T, d]")) return false;
        if (!hir_type_has_t(t))
            return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [T, d], not %s",
                              hir_arg_name(c, i), hir_type_text(c, t));
        if (i == first) x->row = t;
        if (t.dim[0] != x->row.dim[0] || t.dim[1] != x->row.dim[1])
            return hir_reject(c, HD_E_TYPE, NULL, "operand %s is %s, but the first source is %s",
                              hir_arg_name(c, i), hir_type_text(c, t), hir_type_text(c, x->row));
    }
    x->row.dtype = HIR_F32;
    x->d = x->row.dim[1];
    return (x->heads >= 1 && x->d % x->heads == 0) ||
           hir_reject(c, HD_E_VALUE, "a head has as many channels as any other",
                      "'heads' is %lld, which does not divide %lld channel%s", (long long)x->heads,
                      (long long)x->d, hd_s((uint64_t)x->d));
}

static bool wrong_type(hir_check *c, uint32_t i, const char *form) {
    return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be %s, not %s", hir_arg_name(c, i), form,
                      hir_type_text(c, hir_arg(c, i)));
}

/* Checks that operand i, if present, is [dims..] (if `without_t`) or [T, dims..] (if `with_t`),
 * with the rows of the sources. */
static bool is_shaped(hir_check *c, uint32_t i, const mixing *x, bool with_t, bool without_t,
                      uint32_t rank, const int64_t *dims) {
    if (!hir_has_arg(c, i)) return true;
    hir_type t = hir_arg(c, i);
    bool has_t = hir_type_has_t(t);
    hir_type want = {.dtype = t.dtype, .rank = rank + has_t};
    if (has_t) want.dim[0] = x->row.dim[0];
    for (uint32_t k = 0; k < rank; k++)
        want.dim[k + has_t] = dims[k];
    if ((has_t ? with_t : without_t) && hir_type_equal(t, want)) return true;
    if (!has_t && with_t && !without_t) { /* for the message: the type expected */
        for (uint32_t k = rank; k > 0; k--)
            want.dim[k] = want.dim[k - 1];
        want.dim[0] = x->row.dim[0];
        want.rank = rank + 1;
    }
    return wrong_type(c, i, hir_type_text(c, want));
}

static bool eps_is_sound(hir_check *c) {
    return hir_finite(c, HIR_A_EPS, false) &&
           (hir_attr_float(c->op, HIR_A_EPS, 0) >= 0 ||
            hir_reject(c, HD_E_VALUE, NULL, "'eps' is negative"));
}

/* ---- attend -------------------------------------------------------------------------------- */
enum { QUERY, BIAS, INVERSE, PARTIAL, LSE, SOURCES };

/* Without a query the weights are the same for all tokens and already normalised. */
static bool normalization_fits(hir_check *c, bool *softmax) {
    const char *kind = hir_attr_string(c->op, HIR_A_NORMALIZATION, "");
    *softmax = !strcmp(kind, "softmax");
    if (!hir_has_arg(c, QUERY) && strcmp(kind, "none"))
        return hir_reject(c, HD_E_VALUE, "bias holds the weights themselves",
                          "without a query 'normalization' is \"none\", not \"%s\"", kind);
    return *softmax || !strcmp(kind, "sigmoid") || !strcmp(kind, "none") ||
           hir_reject(c, HD_E_VALUE, "the normalizations are \"softmax\", \"sigmoid\" and \"none\"",
                      "'normalization' is \"%s\"", kind);
}

static bool block_fits(hir_check *c, uint32_t n) {
    const hir_attr *shared = hir_find_attr(c->op, HIR_A_SHARED);
    if (!shared != !hir_find_attr(c->op, HIR_A_BLOCK))
        return hir_reject(c, HD_E_TYPE, NULL, "'block' and 'shared' go together");
    return !shared || (shared->i >= 1 && shared->i <= n) ||
           hir_reject(c, HD_E_VALUE, "it is how many of the first sources the block shares",
                      "'shared' is %lld; it must be from 1 to %u, the number of sources",
                      (long long)shared->i, n);
}

static bool attend_fits(hir_check *c, mixing *out, bool *is_softmax) {
    mixing x;
    bool softmax;
    if (!hir_all_plain(c) || !sources_fit(c, SOURCES, c->op->n_args - SOURCES, &x)) return false;
    int64_t n = x.n, d = x.d, h = x.heads;
    if (!is_shaped(c, QUERY, &x, true, true, 1, &d) ||
        !is_shaped(c, BIAS, &x, false, true, 1, &n) ||
        !is_shaped(c, INVERSE, &x, true, false, 1, &n) ||
        !is_shaped(c, PARTIAL, &x, true, false, 1, &d) ||
        !is_shaped(c, LSE, &x, true, false, 1, &h) || !normalization_fits(c, &softmax) ||
        !eps_is_sound(c) || !hir_finite(c, HIR_A_SCALE, false) || !block_fits(c, x.n))
        return false;
    if (!hir_has_arg(c, QUERY) && !hir_has_arg(c, BIAS))
        return hir_reject(c, HD_E_TYPE, NULL, "without a query there must be a bias");
    if (!hir_has_arg(c, QUERY) && h > 1)
        return hir_reject(c, HD_E_TYPE, NULL, "heads are those of a query, and there is none");
    if (hir_has_arg(c, INVERSE) && hir_find_attr(c->op, HIR_A_EPS))
        return hir_reject(c, HD_E_TYPE, NULL, "either 'inverse' or 'eps' norms the keys, not both");
    *out = x;
    *is_softmax = softmax;
    return true;
}

bool hir_rule_depth_attend(hir_check *c, hir_type *y) {
    mixing x = {0};
    bool softmax = false;
    if (!attend_fits(c, &x, &softmax)) return false;
    *y = x.row;
    return hir_has_arg(c, LSE) == (softmax && hir_has_arg(c, PARTIAL)) ||
           hir_reject(c, HD_E_TYPE, NULL, "lse goes with partial under softmax, and only then");
}

bool hir_rule_depth_weights(hir_check *c, hir_type *y) {
    mixing x = {0};
    bool softmax = false;
    if (!attend_fits(c, &x, &softmax)) return false;
    *y = hir_make_type(HIR_F32, x.heads > 1 ? 3 : 2, (int64_t[]){x.row.dim[0], x.n, x.heads});
    if (hir_has_arg(c, LSE) && !softmax)
        return hir_reject(c, HD_E_TYPE, NULL, "lse goes with softmax");
    return !hir_has_arg(c, PARTIAL) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand partial is for depth.attend");
}

/* ---- inverse RMS, scores, mix, merge --------------------------------------------------------- */
bool hir_rule_depth_inverse_rms(hir_check *c, hir_type *y) {
    mixing x;
    if (!hir_all_plain(c) || !sources_fit(c, 0, 1, &x) || !eps_is_sound(c)) return false;
    *y = hir_make_type(HIR_F32, 2, (int64_t[]){x.row.dim[0], 1});
    return true;
}

bool hir_rule_depth_scores(hir_check *c, hir_type *y) {
    enum { QUERIES, BIAS, INVERSE, SOURCES };
    mixing x;
    if (!hir_all_plain(c) || !hir_rank_is(c, QUERIES, 2, "[S, d] or [T, d]") ||
        !sources_fit(c, SOURCES, c->op->n_args - SOURCES, &x) || !hir_finite(c, HIR_A_SCALE, false))
        return false;
    hir_type q = hir_arg(c, QUERIES);
    int64_t s = hir_type_has_t(q) ? 1 : q.dim[0], n = x.n, bias[] = {n, s};
    if (q.dim[1] != x.d) return wrong_type(c, QUERIES, "as wide as the sources");
    if (!is_shaped(c, BIAS, &x, false, true, 2, bias) ||
        !is_shaped(c, INVERSE, &x, true, false, 1, &n))
        return false;
    *y = hir_make_type(HIR_F32, x.heads > 1 ? 4 : 3, (int64_t[]){x.row.dim[0], n, s, x.heads});
    return true;
}

bool hir_rule_depth_mix(hir_check *c, hir_type *y) {
    mixing x;
    if (!hir_all_plain(c) || !sources_fit(c, 1, c->op->n_args - 1, &x)) return false;
    int64_t dims[] = {x.n, x.heads};
    *y = x.row;
    return is_shaped(c, 0, &x, true, true, x.heads > 1 ? 2 : 1, dims);
}

bool hir_rule_depth_merge(hir_check *c, hir_type *y) {
    enum { PARTIAL, LSE, LIVE, SCORE };
    mixing partial, x;
    if (!hir_all_plain(c) || !sources_fit(c, PARTIAL, 1, &partial) || !sources_fit(c, LIVE, 1, &x))
        return false;
    if (partial.d != x.d) return wrong_type(c, PARTIAL, "as wide as live");
    if (partial.row.dim[0] != x.row.dim[0])
        return wrong_type(c, PARTIAL, "of the same rows as live");
    *y = x.row;
    return is_shaped(c, LSE, &x, true, true, 1, &x.heads) &&
           is_shaped(c, SCORE, &x, true, true, 1, &x.heads);
}
