/* Type rules of sparse attention: selection of rows of a cache, attention to selected rows, and the
 * pooling of positions that makes such rows. */
#include <string.h>

#include "ir/infer/rules.h"

/* Operand i is a value or state [C, G, n] or, where any rate will do, [C/r, G, n]. */
static bool is_rows(hir_check *c, uint32_t i, bool any_rate) {
    const hir_type t = hir_arg(c, i);
    if (!hir_is_value(c, i)) return false;
    const bool fits = t.rank == 3 && hir_type_has_c(t) && (any_rate || t.dim[0] == HIR_C);
    return fits ||
           hir_reject(c, HD_E_TYPE, "cache_append makes such a value from rows [T, G, n]",
                      "operand %s must be %s, not %s", hir_arg_name(c, i),
                      any_rate ? "[C, G, n] or [C/r, G, n]" : "[C, G, n]", hir_type_text(c, t));
}

static bool is_query(hir_check *c, uint32_t i) {
    return hir_plain(c, i) && hir_is_value(c, i) && hir_rank_is(c, i, 3, "[T, H, n]") &&
           (hir_type_has_t(hir_arg(c, i)) ||
            hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [T, H, n], not %s",
                       hir_arg_name(c, i), hir_type_text(c, hir_arg(c, i))));
}

/* Do q's heads read the groups of rows, operands 0 and 1? */
static bool heads_fit(hir_check *c) {
    const hir_type q = hir_arg(c, 0), k = hir_arg(c, 1);
    if (q.dim[2] != k.dim[2])
        return hir_reject(c, HD_E_TYPE, NULL, "q is %s and %s is %s: the head sizes differ",
                          hir_type_text(c, q), hir_arg_name(c, 1), hir_type_text(c, k));
    return q.dim[1] % k.dim[1] == 0 ||
           hir_reject(c, HD_E_TYPE, "each of its heads serves as many heads of q as any other",
                      "q is %s and %s is %s: the heads of %s do not divide those of q",
                      hir_type_text(c, q), hir_arg_name(c, 1), hir_type_text(c, k),
                      hir_arg_name(c, 1));
}

/* A number for each head, the same for all tokens (where it may be) or not. */
static bool heads_have_one(hir_check *c, uint32_t i, bool may_be_fixed) {
    const int64_t heads = hir_arg(c, 0).dim[1];
    if (!hir_has_arg(c, i)) return true;
    if (!hir_plain(c, i)) return false;
    const hir_type t = hir_arg(c, i);
    const bool fixed = may_be_fixed && t.rank == 1 && t.dim[0] == heads;
    const bool by_token = t.rank == 2 && hir_type_has_t(t) && t.dim[1] == heads;
    return fixed || by_token ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be %s[T, %lld], not %s",
                      hir_arg_name(c, i), may_be_fixed ? "[H] or " : "", (long long)heads,
                      hir_type_text(c, t));
}

static bool window_fits(hir_check *c, bool may) {
    const hir_attr *a = hir_find_attr(c->op, HIR_A_WINDOW);
    if (!a) return true;
    const int64_t window = hir_attr_int(c->op, HIR_A_WINDOW, 1);
    if (!may)
        return hir_reject(c, HD_E_TYPE, "a list says itself which positions are seen",
                          "'window' means nothing here");
    return (window >= 1 && window <= HIR_MAX_DIM) ||
           hir_reject(c, HD_E_VALUE, "it counts the positions seen, with that of the token itself",
                      "'window' is %lld; it must be from 1 to %d", (long long)window, HIR_MAX_DIM);
}

/* One of two words; `missing` without the attribute. */
static bool is_word(hir_check *c, hir_attr_id id, const char *one, const char *other) {
    const char *word = hir_attr_string(c->op, id, one);
    return strcmp(word, one) == 0 || strcmp(word, other) == 0 ||
           hir_reject(c, HD_E_VALUE, NULL, "'%s' is \"%s\"; it is one of \"%s\", \"%s\"",
                      hir_attr_name(id), word, one, other);
}

/* One of three words; the first without the attribute. */
static bool chooses(hir_check *c, const char *what) {
    return strcmp(hir_attr_string(c->op, HIR_A_OF, "rows"), what) == 0;
}

/* Blocks of rows are chosen, or chosen from; `block` says how many rows one has. */
static bool blocks_fit(hir_check *c) {
    const bool listed = hir_has_arg(c, 3), chosen = chooses(c, "blocks");
    const hir_type keys = hir_arg(c, 1);
    const int64_t block = hir_attr_int(c->op, HIR_A_BLOCK, 0);
    if (!listed && !chosen)
        return !hir_find_attr(c->op, HIR_A_BLOCK) ||
               hir_reject(c, HD_E_VALUE, "no blocks are chosen, nor chosen from",
                          "'block' means nothing here");
    if (listed && chosen)
        return hir_reject(
            c, HD_E_VALUE, NULL,
            "blocks are chosen from all rows: 'of' is \"blocks\", and operand blocks is there");
    if (block < 1 || block > HIR_MAX_DIM)
        return hir_reject(c, HD_E_VALUE, "it is the number of rows of a block",
                          "'block' is %lld; it must be from 1 to %d", (long long)block,
                          HIR_MAX_DIM);
    if (hir_find_attr(c->op, HIR_A_WINDOW))
        return hir_reject(c, HD_E_VALUE, NULL, "'window' and blocks do not go together");
    if (!listed) return true;
    const hir_type t = hir_arg(c, 3);
    const bool fits = hir_is_value(c, 3) && t.dtype == HIR_I32 && t.rank == 3 &&
                      hir_type_has_t(t) && (t.dim[1] == 1 || t.dim[1] == keys.dim[1]);
    return fits || hir_reject(c, HD_E_TYPE, "select of \"blocks\" makes such a list",
                              "operand blocks must be i32[T, %lld, B] or i32[T, 1, B], not %s",
                              (long long)keys.dim[1], hir_type_text(c, t));
}

/* ---- select ---------------------------------------------------------------------------------- */
bool hir_rule_select(hir_check *c, hir_type *y) {
    if (!is_query(c, 0) || !is_rows(c, 1, true) || !heads_fit(c) || !heads_have_one(c, 2, false))
        return false;
    const hir_type keys = hir_arg(c, 1);
    const int64_t rate = hir_rate(keys.dim[0]), k = hir_attr_int(c->op, HIR_A_K, 0);
    const bool positions = chooses(c, "positions");
    if (!is_word(c, HIR_A_ACTIVATION, "none", "relu")) return false;
    if (!positions && !chooses(c, "rows") && !chooses(c, "blocks"))
        return hir_reject(c, HD_E_VALUE, NULL,
                          "'of' is \"%s\"; it is one of \"rows\", \"positions\", \"blocks\"",
                          hir_attr_string(c->op, HIR_A_OF, ""));
    if (!blocks_fit(c)) return false;
    if (positions && rate == 1)
        return hir_reject(c, HD_E_VALUE, NULL,
                          "rows of %s are positions: 'of' \"positions\" means nothing",
                          hir_type_text(c, keys));
    const int64_t most = positions ? (HIR_MAX_SELECT - rate + 1) / rate : HIR_MAX_SELECT;
    if (k < 1 || k > most)
        return hir_reject(c, HD_E_VALUE, NULL, "'k' is %lld; it must be from 1 to %lld",
                          (long long)k, (long long)most);
    const int64_t dims[] = {HIR_T, keys.dim[1], positions ? k * rate + rate - 1 : k};
    *y = hir_make_type(HIR_I32, 3, dims);
    return window_fits(c, rate == 1);
}

/* ---- attention to selected rows -------------------------------------------------------------- */
static bool list_fits(hir_check *c) {
    if (!hir_has_arg(c, 3)) return true;
    const hir_type t = hir_arg(c, 3), k = hir_arg(c, 1);
    const bool fits = hir_is_value(c, 3) && t.dtype == HIR_I32 && t.rank == 3 &&
                      hir_type_has_t(t) && (t.dim[1] == 1 || t.dim[1] == k.dim[1]);
    return fits || hir_reject(c, HD_E_TYPE, "select makes such a list",
                              "operand select must be i32[T, %lld, K] or i32[T, 1, K], not %s",
                              (long long)k.dim[1], hir_type_text(c, t));
}

static bool entries_fit(hir_check *c) {
    if (!hir_has_arg(c, 5))
        return hir_has_arg(c, 3) || hir_reject(c, HD_E_TYPE, "attention sees all positions",
                                               "one of select and entries must be there");
    if (!is_rows(c, 5, true)) return false;
    const hir_type k = hir_arg(c, 1), v = hir_arg(c, 2), t = hir_arg(c, 5);
    const bool alike = t.dtype == k.dtype && t.dtype == v.dtype;
    return (alike && t.dim[1] == k.dim[1] && t.dim[2] == k.dim[2] && t.dim[2] == v.dim[2]) ||
           hir_reject(
               c, HD_E_TYPE, "an entry is key and value, like k and v",
               "entries is %s, k is %s and v is %s: they must have the same heads, sizes and types",
               hir_type_text(c, t), hir_type_text(c, k), hir_type_text(c, v));
}

bool hir_rule_attention_selected(hir_check *c, hir_type *y) {
    if (!is_query(c, 0) || !is_rows(c, 1, false) || !is_rows(c, 2, false) || !heads_fit(c) ||
        !hir_finite(c, HIR_A_SCALE, false) || !hir_finite(c, HIR_A_SOFTCAP, true))
        return false;
    const hir_type q = hir_arg(c, 0), k = hir_arg(c, 1), v = hir_arg(c, 2);
    if (k.dim[1] != v.dim[1])
        return hir_reject(c, HD_E_TYPE, NULL, "k is %s and v is %s: the head counts differ",
                          hir_type_text(c, k), hir_type_text(c, v));
    *y = q;
    y->dtype = HIR_F32;
    y->dim[2] = v.dim[2];
    return list_fits(c) && heads_have_one(c, 4, true) && entries_fit(c) &&
           window_fits(c, hir_has_arg(c, 5));
}

/* ---- pool ------------------------------------------------------------------------------------ */
bool hir_pool_fits(hir_check *c, hir_type *y) {
    const int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    const int64_t halves = hir_attr_int(c->op, HIR_A_HALVES, 0);
    if (!hir_plain(c, 0) || !hir_is_value(c, 0) || !hir_rank_is(c, 0, 2, "[T, c]")) return false;
    const hir_type x = hir_arg(c, 0), gate = hir_arg(c, 1), place = hir_arg(c, 2);
    if (!hir_type_has_t(x))
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [T, c], not %s",
                          hir_type_text(c, x));
    if (length < 2 || length > HIR_MAX_RATE)
        return hir_reject(c, HD_E_VALUE, NULL, "'length' is %lld; it must be from 2 to %d",
                          (long long)length, HIR_MAX_RATE);
    if (halves != 0 && halves != 1)
        return hir_reject(c, HD_E_VALUE, NULL, "'halves' is %lld; it must be 0 or 1",
                          (long long)halves);
    if (halves && x.dim[1] % 2)
        return hir_reject(c, HD_E_TYPE, NULL, "%s has no two halves", hir_type_text(c, x));
    if (!hir_plain(c, 1) || !hir_is_value(c, 1)) return false;
    if (!hir_type_equal(gate, x))
        return hir_reject(c, HD_E_TYPE, NULL, "operand gate must be %s like x, not %s",
                          hir_type_text(c, x), hir_type_text(c, gate));
    if (hir_has_arg(c, 2) &&
        !(hir_plain(c, 2) && place.rank == 2 && place.dim[0] == length && place.dim[1] == x.dim[1]))
        return hir_reject(c, HD_E_TYPE, NULL, "operand place must be [%lld, %lld], not %s",
                          (long long)length, (long long)x.dim[1], hir_type_text(c, place));
    *y = x;
    y->dtype = HIR_F32;
    if (halves) y->dim[1] /= 2;
    return true;
}

bool hir_rule_pool_rows(hir_check *c, hir_type *y) {
    if (!hir_pool_fits(c, y)) return false;
    const int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    const int64_t halves = hir_attr_int(c->op, HIR_A_HALVES, 0);
    const int64_t dims[] = {(1 + halves) * length - 1, 2 * hir_arg(c, 0).dim[1]};
    return hir_takes_state(c, 3, HIR_STATE_WINDOW, 2, dims);
}
