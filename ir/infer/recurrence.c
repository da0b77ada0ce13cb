/* Type rules of ops that pass a state of fixed size from token to token: their operands, and the
 * kind of their state. */
#include <string.h>

#include "ir/infer/rules.h"

/* Operand i is a value [T, ..] of this rank. */
static bool has_tokens(hir_check *c, uint32_t i, uint32_t rank, const char *form) {
    if (!hir_plain(c, i) || !hir_is_value(c, i) || !hir_rank_is(c, i, rank, form)) return false;
    return hir_type_has_t(hir_arg(c, i)) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be %s, not %s", hir_arg_name(c, i), form,
                      hir_type_text(c, hir_arg(c, i)));
}

/* ---- short convolution --------------------------------------------------------------------- */
/* [G, n] or [T, G, n] for x [T, G c']. */
static bool taps_fit(hir_check *c, int64_t channels, int64_t *n) {
    const hir_type taps = hir_arg(c, 1);
    const bool own = hir_type_has_t(taps);
    if (!hir_plain(c, 1)) return false;
    if (own && !hir_is_value(c, 1)) return false;
    if (taps.rank != (own ? 3u : 2u))
        return hir_reject(c, HD_E_TYPE, "a checkpoint's [c, 1, n] needs a reshape",
                          "operand taps must be [c, n] or [T, c, n], not %s",
                          hir_type_text(c, taps));
    const int64_t groups = taps.dim[taps.rank - 2];
    *n = taps.dim[taps.rank - 1];
    if (channels % groups)
        return hir_reject(c, HD_E_TYPE, "each group of taps serves as many channels as any other",
                          "taps are %s, but x has %lld channel%s, no multiple of %lld",
                          hir_type_text(c, taps), (long long)channels, hd_s((uint64_t)channels),
                          (long long)groups);
    return *n >= 2 ||
           hir_reject(c, HD_E_TYPE, "one tap is a product: mul",
                      "operand taps, %s, has fewer than two taps", hir_type_text(c, taps));
}

static bool dilation_fits(hir_check *c, int64_t n) {
    const int64_t d = hir_attr_int(c->op, HIR_A_DILATION, 1);
    return (d >= 1 && d <= HIR_MAX_DIM / (n - 1)) ||
           hir_reject(c, HD_E_VALUE, "it is how many positions lie from tap to tap",
                      "'dilation' is %lld; it must be from 1 to %lld", (long long)d,
                      (long long)(HIR_MAX_DIM / (n - 1)));
}

bool hir_conv_fits(hir_check *c, int64_t *n, hir_type *y) {
    if (!has_tokens(c, 0, 2, "[T, c]")) return false;
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    return taps_fit(c, y->dim[1], n) && dilation_fits(c, *n);
}

bool hir_rule_short_conv(hir_check *c, hir_type *y) {
    int64_t n = 0;
    if (!hir_conv_fits(c, &n, y)) return false;
    if (hir_has_arg(c, 2) && !hir_plain(c, 2)) return false;
    return hir_vector_of(c, 2, y->dim[1]) &&
           hir_takes_state(
               c, 3, HIR_STATE_WINDOW, 2,
               (int64_t[]){(n - 1) * hir_attr_int(c->op, HIR_A_DILATION, 1), y->dim[1]});
}

/* ---- delta rule ---------------------------------------------------------------------------- */
/* Operand i is [T, heads] or, with `last`, [T, heads, last]. */
static bool by_heads(hir_check *c, uint32_t i, int64_t heads, int64_t last) {
    const hir_type want = hir_make_type(HIR_F32, last ? 3 : 2, (int64_t[]){HIR_T, heads, last});
    hir_type t = hir_arg(c, i);
    if (!hir_plain(c, i) || !hir_is_value(c, i)) return false;
    t.dtype = HIR_F32;
    return hir_type_equal(t, want) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be %s, not %s", hir_arg_name(c, i),
                      hir_type_text(c, want), hir_type_text(c, hir_arg(c, i)));
}

/* A decay for each key channel, [T, H, n], or one for all of a head, [T, H, 1]. */
static bool decay_fits(hir_check *c, int64_t heads, int64_t n) {
    if (!hir_has_arg(c, 3)) return true;
    const hir_type decay = hir_arg(c, 3);
    return by_heads(c, 3, heads, decay.rank == 3 && decay.dim[2] == 1 ? 1 : n);
}

bool hir_is_additive(const hir_op *op) {
    return strcmp(hir_attr_string(op, HIR_A_RULE, "delta"), "additive") == 0;
}

static bool rule_fits(hir_check *c) {
    const char *rule = hir_attr_string(c->op, HIR_A_RULE, "delta");
    return strcmp(rule, "delta") == 0 || strcmp(rule, "additive") == 0 ||
           hir_reject(c, HD_E_VALUE, NULL, "'rule' is \"%s\"; it must be \"delta\" or \"additive\"",
                      rule);
}

bool hir_delta_fits(hir_check *c, hir_type *y) {
    if (!has_tokens(c, 0, 3, "[T, G, n]") || !has_tokens(c, 2, 3, "[T, H, m]")) return false;
    const hir_type q = hir_arg(c, 0), v = hir_arg(c, 2);
    const int64_t heads = v.dim[1], n = q.dim[2];
    if (!by_heads(c, 1, q.dim[1], n)) return false;
    if (heads % q.dim[1])
        return hir_reject(c, HD_E_TYPE, "each head of q serves as many heads of v as any other",
                          "q is %s and v is %s: the heads of q do not divide those of v",
                          hir_type_text(c, q), hir_type_text(c, v));
    *y = v;
    y->dtype = HIR_F32;
    return decay_fits(c, heads, n) && (!hir_has_arg(c, 4) || by_heads(c, 4, heads, 0)) &&
           rule_fits(c) && hir_finite(c, HIR_A_SCALE, false);
}

bool hir_rule_delta_rule(hir_check *c, hir_type *y) {
    if (!hir_delta_fits(c, y)) return false;
    const int64_t dims[] = {y->dim[1], hir_arg(c, 0).dim[2], y->dim[2]};
    return hir_takes_state(c, 5, HIR_STATE_CARRY, 3, dims);
}
