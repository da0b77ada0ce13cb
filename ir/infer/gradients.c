/* Type rules of gradients: of the ops that `differentiate` makes besides those of every model. */
#include <string.h>

#include "ir/infer/rules.h"

/* Numbers for tokens, for positions of a cache, or for neither. */
static bool are_numbers(hir_check *c, uint32_t i) {
    const hir_type t = hir_arg(c, i);
    if (t.dtype != HIR_I32 && c->op->args[i].kind != HIR_REF_STATE) return true;
    return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be numbers, not %s", hir_arg_name(c, i),
                      t.dtype == HIR_I32 ? hir_type_text(c, t) : "a state");
}

static bool has_rows(hir_check *c, uint32_t i) {
    const hir_type t = hir_arg(c, i);
    return hir_type_has_t(t) || hir_type_has_c(t) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [T, ..] or [C, ..], not %s",
                      hir_arg_name(c, i), hir_type_text(c, t));
}

/* Operand i has the type of operand `like`, or of a result. */
static bool is_like(hir_check *c, uint32_t i, hir_type want) {
    hir_type t = hir_arg(c, i);
    if (!are_numbers(c, i)) return false;
    t.dtype = want.dtype = HIR_F32;
    return hir_type_equal(t, want) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be %s, not %s", hir_arg_name(c, i),
                      hir_type_text(c, want), hir_type_text(c, hir_arg(c, i)));
}

static bool length_fits(hir_check *c, int64_t *length) {
    *length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    return (*length >= 1 && *length <= HIR_MAX_DIM) ||
           hir_reject(c, HD_E_VALUE, NULL, "'length' is %lld; it must be from 1 to %d",
                      (long long)*length, HIR_MAX_DIM);
}

/* Do a and b have the same dims before the last one? */
static bool same_rows(hir_check *c, uint32_t a, uint32_t b) {
    hir_type x = hir_arg(c, a), y = hir_arg(c, b);
    bool same = x.rank == y.rank && x.rank > 0;
    for (uint32_t i = 0; same && i + 1 < x.rank; i++)
        same = x.dim[i] == y.dim[i];
    return same || hir_reject(c, HD_E_TYPE, NULL, "%s is %s and %s is %s: they have other rows",
                              hir_arg_name(c, a), hir_type_text(c, x), hir_arg_name(c, b),
                              hir_type_text(c, y));
}

static bool are_ids(hir_check *c, uint32_t i) {
    return hir_arg(c, i).dtype == HIR_I32 ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be i32, not %s", hir_arg_name(c, i),
                      hir_type_text(c, hir_arg(c, i)));
}

/* ---- moving ---------------------------------------------------------------------------------- */

bool hir_rule_pad(hir_check *c, hir_type *y) {
    uint32_t axis;
    int64_t length;
    if (!are_numbers(c, 0)) return false;
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    if (!hir_axis(c, *y, y->rank, &axis) || !length_fits(c, &length)) return false;
    const int64_t start = hir_attr_int(c->op, HIR_A_START, 0);
    if (start < 0 || length < y->dim[axis] || start > length - y->dim[axis])
        return hir_reject(c, HD_E_VALUE, NULL, "%lld elements from %lld on are not in %lld",
                          (long long)y->dim[axis], (long long)start, (long long)length);
    y->dim[axis] = length;
    return true;
}

bool hir_rule_scatter(hir_check *c, hir_type *y) {
    int64_t length;
    if (!are_numbers(c, 0) || !are_ids(c, 1) || !length_fits(c, &length)) return false;
    const hir_type ids = hir_arg(c, 1);
    if (!ids.rank || ids.dim[ids.rank - 1] < 0)
        return hir_reject(c, HD_E_TYPE, "topk and to_ids make such indices",
                          "operand ids must be i32[.., k], not %s", hir_type_text(c, ids));
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    if (!is_like(c, 0, ids)) return false;
    y->dim[y->rank - 1] = length;
    return true;
}

bool hir_rule_cache_rows(hir_check *c, hir_type *y) {
    const hir_type x = hir_arg(c, 0);
    if (!are_numbers(c, 0) || !hir_is_value(c, 0)) return false;
    if (!hir_type_has_c(x))
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [C, ..] or [C/r, ..], not %s",
                          hir_type_text(c, x));
    *y = x;
    y->dtype = HIR_F32;
    y->dim[0] = HIR_T;
    return true;
}

bool hir_rule_after(hir_check *c, hir_type *y) {
    *y = hir_arg(c, 0);
    if (!hir_is_value(c, 0) || !hir_is_value(c, 1)) return false;
    return hir_type_has_t(*y) || hir_reject(c, HD_E_TYPE, NULL, "operand x must be [T, ..], not %s",
                                            hir_type_text(c, *y));
}

/* ---- sums over tokens ------------------------------------------------------------------------ */

bool hir_rule_sum_tokens(hir_check *c, hir_type *y) {
    if (!are_numbers(c, 0) || !has_rows(c, 0)) return false;
    const hir_type x = hir_arg(c, 0);
    *y = hir_make_type(HIR_F32, x.rank - 1, x.dim + 1);
    return true;
}

bool hir_rule_scatter_rows(hir_check *c, hir_type *y) {
    int64_t length;
    if (!are_numbers(c, 0) || !has_rows(c, 0) || !are_ids(c, 1) || !length_fits(c, &length))
        return false;
    const hir_type x = hir_arg(c, 0), ids = hir_arg(c, 1);
    bool rows = x.rank >= ids.rank;
    for (uint32_t i = 0; rows && i < ids.rank; i++)
        rows = x.dim[i] == ids.dim[i];
    if (!rows)
        return hir_reject(c, HD_E_TYPE, NULL, "x is %s and ids is %s: each id has a row of x",
                          hir_type_text(c, x), hir_type_text(c, ids));
    const int64_t beyond = hir_attr_int(c->op, HIR_A_BEYOND, 0);
    if (beyond < 0 || beyond >= length)
        return hir_reject(c, HD_E_VALUE, NULL, "'beyond' is %lld; it must be from 0 to %lld",
                          (long long)beyond, (long long)length - 1);
    *y = (hir_type){.dtype = HIR_F32, .rank = 1 + x.rank - ids.rank, .dim = {length}};
    for (uint32_t i = ids.rank; i < x.rank; i++)
        y->dim[1 + i - ids.rank] = x.dim[i];
    return true;
}

bool hir_rule_linear_grad(hir_check *c, hir_type *y) {
    int64_t n, k;
    if (!are_numbers(c, 0) || !are_numbers(c, 1) || !same_rows(c, 0, 1) ||
        !hir_last_dim(c, 0, &n) || !hir_last_dim(c, 1, &k))
        return false;
    *y = hir_make_type(HIR_F32, 2, (int64_t[]){n, k});
    return true;
}

bool hir_rule_block_linear_grad(hir_check *c, hir_type *y) {
    const hir_type dy = hir_arg(c, 0), x = hir_arg(c, 1);
    if (!are_numbers(c, 0) || !are_numbers(c, 1) || !has_rows(c, 0) || !same_rows(c, 0, 1) ||
        !hir_rank_is(c, 0, 3, "[T, G, N]"))
        return false;
    *y = hir_make_type(HIR_F32, 3, (int64_t[]){dy.dim[1], dy.dim[2], x.dim[2]});
    return true;
}

bool hir_rule_expert_linear_grad(hir_check *c, hir_type *y) {
    const hir_type dy = hir_arg(c, 0), x = hir_arg(c, 1), ids = hir_arg(c, 2);
    int64_t length;
    if (!are_numbers(c, 0) || !are_numbers(c, 1) || !are_ids(c, 2) || !length_fits(c, &length) ||
        !hir_rank_is(c, 0, 3, "[T, k, N]") || !hir_rank_is(c, 2, 2, "i32[T, k]"))
        return false;
    const bool rows = dy.dim[0] == ids.dim[0] && dy.dim[1] == ids.dim[1] &&
                      (x.rank == 2 || (x.rank == 3 && x.dim[1] == ids.dim[1])) &&
                      x.dim[0] == ids.dim[0];
    if (!rows)
        return hir_reject(c, HD_E_TYPE, NULL, "dy is %s, x %s and ids %s: they have other rows",
                          hir_type_text(c, dy), hir_type_text(c, x), hir_type_text(c, ids));
    *y = hir_make_type(HIR_F32, 3, (int64_t[]){length, dy.dim[2], x.dim[x.rank - 1]});
    return true;
}

bool hir_rule_cross_entropy_grad(hir_check *c, hir_type *y) {
    hir_type losses;
    if (!hir_rule_cross_entropy(c, &losses) || !is_like(c, 2, losses)) return false;
    *y = hir_arg(c, 0);
    y->dtype = HIR_F32;
    return true;
}

/* ---- ops along the sequence ------------------------------------------------------------------ */

/* The type of the operand that attribute `of` names, one of `words`; `dy`, the last operand, has
 * the type of the op's result. */
static bool gradient_of(hir_check *c, const char *const *words, hir_type result, hir_type *y) {
    const char *of = hir_attr_string(c->op, HIR_A_OF, "");
    hd_text known;
    hd_text_init(&known, c->d->arena);
    if (!is_like(c, c->op->n_args - 1, result)) return false;
    for (; *words; words++) {
        uint32_t i = 0;
        while (strcmp(c->signature.operands[i].name, *words))
            i++;
        if (!hir_has_arg(c, i)) continue;
        *y = hir_arg(c, i);
        y->dtype = HIR_F32;
        if (strcmp(of, *words) == 0) return true;
        hd_text_f(&known, "%s\"%s\"", known.n ? ", " : "", *words);
    }
    return hir_reject(c, HD_E_VALUE, NULL, "'of' is \"%s\"; it is one of %s", of, known.at);
}

bool hir_rule_attention_grad(hir_check *c, hir_type *y) {
    static const char *const words[] = {"q", "k", "v", "sink", "bias", NULL};
    hir_type o;
    return hir_rule_attention(c, &o) && gradient_of(c, words, o, y);
}

bool hir_rule_attention_selected_grad(hir_check *c, hir_type *y) {
    static const char *const words[] = {"q", "k", "v", "sink", "entries", NULL};
    hir_type o;
    return hir_rule_attention_selected(c, &o) && gradient_of(c, words, o, y);
}

bool hir_rule_pool_grad(hir_check *c, hir_type *y) {
    static const char *const words[] = {"x", "gate", "place", NULL};
    hir_type o;
    return hir_pool_fits(c, &o) && gradient_of(c, words, o, y);
}

bool hir_rule_short_conv_grad(hir_check *c, hir_type *y) {
    static const char *const words[] = {"x", "taps", NULL};
    hir_type o;
    int64_t n;
    return hir_conv_fits(c, &n, &o) && gradient_of(c, words, o, y);
}

bool hir_rule_ngram_gather_grad(hir_check *c, hir_type *y) {
    hir_type rows;
    return hir_shape(c, y) && hir_ngram_fits(c, *y, &rows) && is_like(c, 1, rows);
}

bool hir_rule_delta_rule_grad(hir_check *c, hir_type *y) {
    static const char *const words[] = {"q", "k", "v", "decay", "beta", NULL};
    hir_type o;
    return hir_delta_fits(c, &o) && gradient_of(c, words, o, y);
}
