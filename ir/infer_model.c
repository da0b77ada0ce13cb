/* Type rules of contractions, token ops, state, outputs and kernels. */
#include <string.h>

#include "ir/kernels.h"
#include "ir/rules.h"

static bool without_tokens(hir_check *c, uint32_t i) {
    hir_type t = hir_arg(c, i);
    return (!hir_type_has_t(t) && !hir_type_has_c(t)) ||
           hir_refuse(c, HD_E_TYPE, NULL, "operand %s must be the same for every token, not %s",
                      hir_arg_name(c, i), hir_type_text(c, t));
}

/* ---- contractions -------------------------------------------------------------------------- */
bool hir_rule_linear(hir_check *c, hir_type *y) {
    int64_t k;
    if (!hir_all_plain(c) || !hir_last_dim(c, 0, &k) || !hir_rank_is(c, 1, 2, "[N, K]") ||
        !without_tokens(c, 1))
        return false;
    hir_type x = hir_arg(c, 0), w = hir_arg(c, 1);
    if (w.dim[1] != k)
        return hir_refuse(c, HD_E_TYPE,
                          w.dim[0] == k ? "weights are [outputs, inputs], as in checkpoints" : NULL,
                          "x is %s, so w must be [N, %lld], not %s", hir_type_text(c, x),
                          (long long)k, hir_type_text(c, w));
    if (!hir_vector_of(c, 2, w.dim[0])) return false;
    *y = x;
    y->dtype = HIR_F32;
    y->dim[y->rank - 1] = w.dim[0];
    return true;
}

bool hir_rule_block_linear(hir_check *c, hir_type *y) {
    if (!hir_all_plain(c) || !hir_rank_is(c, 0, 3, "[T, G, K]") ||
        !hir_rank_is(c, 1, 3, "[G, N, K]") || !without_tokens(c, 1))
        return false;
    hir_type x = hir_arg(c, 0), w = hir_arg(c, 1);
    if (x.dim[0] > 0)
        return hir_refuse(c, HD_E_TYPE, NULL, "operand x must be [T, G, K], not %s",
                          hir_type_text(c, x));
    if (x.dim[1] != w.dim[0] || x.dim[2] != w.dim[2])
        return hir_refuse(c, HD_E_TYPE,
                          x.dim[1] == w.dim[0] && x.dim[2] == w.dim[1]
                              ? "weights are [groups, outputs, inputs]"
                              : NULL,
                          "x is %s, so w must be [%lld, N, %lld], not %s", hir_type_text(c, x),
                          (long long)x.dim[1], (long long)x.dim[2], hir_type_text(c, w));
    *y = x;
    y->dtype = HIR_F32;
    y->dim[2] = w.dim[1];
    return true;
}

/* ---- tokens and positions ------------------------------------------------------------------ */
bool hir_rule_gather(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0) || !hir_rank_is(c, 0, 2, "[rows, n]") || !without_tokens(c, 0) ||
        !hir_is_value(c, 1))
        return false;
    hir_type ids = hir_arg(c, 1);
    if (ids.dtype != HIR_I32 || ids.rank != 1 || ids.dim[0] != HIR_T)
        return hir_refuse(c, HD_E_TYPE, NULL, "operand ids must be i32[T], not %s",
                          hir_type_text(c, ids));
    y->rank = 2;
    y->dim[0] = HIR_T;
    y->dim[1] = hir_arg(c, 0).dim[1];
    return true;
}

static bool needs(hir_check *c, const char *scaling, hir_attr_id id) {
    return hir_find_attr(c->op, id) ||
           hir_refuse(c, HD_E_TYPE, NULL, "scaling \"%s\" needs the attribute '%s'", scaling,
                      hir_attr_name(id));
}

static bool has_no_use(hir_check *c, hir_attr_id id, const char *with) {
    return !hir_find_attr(c->op, id) ||
           hir_refuse(c, HD_E_TYPE, NULL, "attribute '%s' means nothing %s", hir_attr_name(id),
                      with);
}

static bool llama3_fits(hir_check *c) {
    if (!needs(c, "llama3", HIR_A_FACTOR) || !needs(c, "llama3", HIR_A_LOW_FREQ) ||
        !needs(c, "llama3", HIR_A_HIGH_FREQ) || !needs(c, "llama3", HIR_A_ORIGINAL) ||
        !hir_finite(c, HIR_A_LOW_FREQ, true) || !hir_finite(c, HIR_A_HIGH_FREQ, true))
        return false;
    if (hir_attr_float(c->op, HIR_A_LOW_FREQ, 0) >= hir_attr_float(c->op, HIR_A_HIGH_FREQ, 0))
        return hir_refuse(c, HD_E_VALUE, NULL,
                          "'low_freq_factor' must be less than 'high_freq_factor'");
    return hir_attr_int(c->op, HIR_A_ORIGINAL, 0) > 0 ||
           hir_refuse(c, HD_E_VALUE, NULL, "'original_positions' must be more than 0");
}

static bool scaling_fits(hir_check *c) {
    const char *scaling = hir_attr_string(c->op, HIR_A_SCALING, NULL);
    if (!hir_finite(c, HIR_A_FACTOR, true)) return false;
    if (scaling && strcmp(scaling, "llama3") == 0) return llama3_fits(c);
    bool linear = scaling && strcmp(scaling, "linear") == 0;
    if (scaling && !linear)
        return hir_refuse(c, HD_E_VALUE, "the scalings are \"linear\" and \"llama3\"",
                          "scaling \"%s\" is not known", scaling);
    const char *with = linear ? "with scaling \"linear\"" : "without a scaling";
    return has_no_use(c, HIR_A_LOW_FREQ, with) && has_no_use(c, HIR_A_HIGH_FREQ, with) &&
           has_no_use(c, HIR_A_ORIGINAL, with) &&
           (linear ? needs(c, "linear", HIR_A_FACTOR) : has_no_use(c, HIR_A_FACTOR, with));
}

bool hir_rule_rope_table(hir_check *c, hir_type *y) {
    int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    if (length < 2 || length % 2 || length > HIR_MAX_DIM)
        return hir_refuse(c, HD_E_VALUE, NULL, "'length' is %lld; it must be even and at least 2",
                          (long long)length);
    y->rank = 2;
    y->dim[0] = HIR_T;
    y->dim[1] = length;
    return hir_finite(c, HIR_A_THETA, true) && scaling_fits(c);
}

bool hir_rule_rope(hir_check *c, hir_type *y) {
    if (!hir_rule_unary(c, y) || !hir_plain(c, 1) || !hir_rank_is(c, 0, 3, "[T, H, n]"))
        return false;
    hir_type x = hir_arg(c, 0), table = hir_arg(c, 1);
    if (!hir_type_has_t(x) || x.dim[2] % 2)
        return hir_refuse(c, HD_E_TYPE, NULL, "operand x must be [T, H, n] with even n, not %s",
                          hir_type_text(c, x));
    if (table.rank != 2 || table.dim[0] != HIR_T || table.dim[1] != x.dim[2])
        return hir_refuse(c, HD_E_TYPE, NULL, "operand table must be [T, %lld], not %s",
                          (long long)x.dim[2], hir_type_text(c, table));
    return true;
}

/* ---- state over time ----------------------------------------------------------------------- */
bool hir_rule_cache_append(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0) || !hir_is_value(c, 0) || !hir_rank_is(c, 0, 3, "[T, G, n]")) return false;
    hir_type x = hir_arg(c, 0), like;
    if (!hir_type_has_t(x))
        return hir_refuse(c, HD_E_TYPE, NULL, "operand x must be [T, G, n], not %s",
                          hir_type_text(c, x));
    *y = hir_arg(c, 1);
    like = x;
    like.dim[0] = HIR_C;
    like.dtype = y->dtype; /* cache_append rounds x to the state's type */
    return hir_type_equal(like, *y) ||
           hir_refuse(c, HD_E_TYPE, NULL, "x is %s, so the state must be %s, not %s",
                      hir_type_text(c, x), hir_type_text(c, like), hir_type_text(c, *y));
}

static bool is_cache(hir_check *c, uint32_t i) {
    hir_type t = hir_arg(c, i);
    if (!hir_is_value(c, i)) return false;
    return (t.rank == 3 && t.dim[0] == HIR_C) ||
           hir_refuse(c, HD_E_TYPE, "cache_append makes such a value from rows [T, G, n]",
                      "operand %s must be [C, G, n], not %s", hir_arg_name(c, i),
                      hir_type_text(c, t));
}

bool hir_rule_attention(hir_check *c, hir_type *y) {
    if (!hir_rule_unary(c, y) || !hir_rank_is(c, 0, 3, "[T, H, n]") || !is_cache(c, 1) ||
        !is_cache(c, 2) || !hir_finite(c, HIR_A_SCALE, false))
        return false;
    hir_type q = hir_arg(c, 0), k = hir_arg(c, 1), v = hir_arg(c, 2);
    if (!hir_type_has_t(q))
        return hir_refuse(c, HD_E_TYPE, NULL, "operand q must be [T, H, n], not %s",
                          hir_type_text(c, q));
    if (q.dim[2] != k.dim[2])
        return hir_refuse(c, HD_E_TYPE, NULL, "q is %s and k is %s: the head sizes differ",
                          hir_type_text(c, q), hir_type_text(c, k));
    if (k.dim[1] != v.dim[1])
        return hir_refuse(c, HD_E_TYPE, NULL, "k is %s and v is %s: the head counts differ",
                          hir_type_text(c, k), hir_type_text(c, v));
    if (q.dim[1] % k.dim[1])
        return hir_refuse(c, HD_E_TYPE, NULL, "%lld key/value heads do not divide %lld heads",
                          (long long)k.dim[1], (long long)q.dim[1]);
    y->dim[2] = v.dim[2];
    return true;
}

/* A row for all heads; `i`: of the operand. */
static bool is_shared_cache(hir_check *c, uint32_t i) {
    return is_cache(c, i) && (hir_arg(c, i).dim[1] == 1 ||
                              hir_refuse(c, HD_E_TYPE, NULL, "operand %s must be [C, 1, n], not %s",
                                         hir_arg_name(c, i), hir_type_text(c, hir_arg(c, i))));
}

static bool is_query(hir_check *c, uint32_t i) {
    hir_type q = hir_arg(c, i);
    return (hir_plain(c, i) && q.rank == 3 && hir_type_has_t(q)) ||
           hir_refuse(c, HD_E_TYPE, NULL, "operand %s must be [T, H, n], not %s",
                      hir_arg_name(c, i), hir_type_text(c, q));
}

/* q_shared and what it meets: `left` elements of a row, or rows of their own. */
static bool shared_part_fits(hir_check *c, int64_t left) {
    const hir_type q = hir_arg(c, 0);
    const bool own = hir_has_arg(c, 3);
    if (own && left)
        return hir_refuse(c, HD_E_TYPE, NULL, "q is %s, so rows must be [C, 1, %lld], not %s",
                          hir_type_text(c, q), (long long)q.dim[2],
                          hir_type_text(c, hir_arg(c, 1)));
    if (own && !is_shared_cache(c, 3)) return false;
    const int64_t m = own ? hir_arg(c, 3).dim[2] : left;
    if (!m)
        return !hir_has_arg(c, 2) ||
               hir_refuse(c, HD_E_TYPE, NULL, "operand q_shared has nothing to meet");
    if (!hir_has_arg(c, 2)) return hir_refuse(c, HD_E_TYPE, NULL, "operand q_shared is missing");
    if (!is_query(c, 2)) return false;
    const hir_type p = hir_arg(c, 2);
    return (p.dim[1] == q.dim[1] && p.dim[2] == m) ||
           hir_refuse(c, HD_E_TYPE, NULL, "operand q_shared must be [T, %lld, %lld], not %s",
                      (long long)q.dim[1], (long long)m, hir_type_text(c, p));
}

bool hir_rule_attention_latent(hir_check *c, hir_type *y) {
    if (!is_query(c, 0) || !is_shared_cache(c, 1) || !hir_finite(c, HIR_A_SCALE, false))
        return false;
    const hir_type q = hir_arg(c, 0);
    const int64_t n = hir_arg(c, 1).dim[2], start = hir_attr_int(c->op, HIR_A_START, 0);
    const int64_t left = n - q.dim[2];
    if (left < 0 || (start != 0 && start != left))
        return hir_refuse(c, HD_E_VALUE, "the latent is the first or the last elements of a row",
                          "%lld elements from %lld are not at an end of %s", (long long)q.dim[2],
                          (long long)start, hir_type_text(c, hir_arg(c, 1)));
    *y = q;
    y->dtype = HIR_F32;
    return shared_part_fits(c, left);
}

/* ---- what leaves --------------------------------------------------------------------------- */
bool hir_rule_output(hir_check *c, hir_type *y) {
    const char *name = hir_attr_string(c->op, HIR_A_NAME, "");
    (void)y;
    if (c->op->args[0].kind == HIR_REF_WEIGHT)
        return hir_refuse(c, HD_E_TYPE, "reshape makes a value of a weight",
                          "operand x must be a value (%%), not a weight (@)");
    return hir_is_value(c, 0) && hir_plain(c, 0) &&
           (*name || hir_refuse(c, HD_E_VALUE, NULL, "'name' is empty"));
}

bool hir_rule_yield(hir_check *c, hir_type *y) {
    (void)y;
    for (uint32_t i = 0; i < c->op->n_args; i++) {
        const hir_type t = hir_arg(c, i);
        if (!hir_is_value(c, i)) return false;
        if (t.dtype == HIR_I32 && t.rank == 1)
            return hir_refuse(c, HD_E_TYPE, NULL, "operand %s is token ids", hir_arg_name(c, i));
    }
    return true;
}

/* ---- kernels ------------------------------------------------------------------------------- */
static bool refuse_word(hir_check *c, hir_attr_id id, const char *const *words, size_t n) {
    const char *word = hir_attr_string(c->op, id, "");
    hd_text list;
    hd_text_init(&list, c->d->arena);
    for (size_t i = 0; i < n; i++)
        hd_text_f(&list, "%s\"%s\"", i ? ", " : "", words[i]);
    const char *near = hd_nearest(word, words, n);
    return hir_refuse(c, HD_E_VALUE,
                      near ? hd_printf(c->d->arena, "did you mean \"%s\"?", near) : NULL,
                      "'%s' is \"%s\"; it is one of %s", hir_attr_name(id), word, list.at);
}

static bool check_split_name(hir_check *c, hir_attr_id id) {
    const char *words[HIR_SPLITS];
    hir_split split;
    if (hir_split_by_name(hir_attr_string(c->op, id, ""), &split)) return true;
    for (int i = 0; i < HIR_SPLITS; i++)
        words[i] = hir_split_name((hir_split)i);
    return refuse_word(c, id, words, HIR_SPLITS);
}

static bool check_rows_name(hir_check *c) {
    const char *words[HIR_ROWS];
    hir_rows rows;
    if (hir_rows_by_name(hir_attr_string(c->op, HIR_A_ROWS, ""), &rows)) return true;
    for (int i = 0; i < HIR_ROWS; i++)
        words[i] = hir_rows_name((hir_rows)i);
    return refuse_word(c, HIR_A_ROWS, words, HIR_ROWS);
}

bool hir_rule_kernel(hir_check *c, hir_type *y) {
    (void)y;
    return check_rows_name(c) && check_split_name(c, HIR_A_SPLIT_DECODE) &&
           check_split_name(c, HIR_A_SPLIT_PREFILL) &&
           (hir_attr_int(c->op, HIR_A_GRAIN, 1) > 0 ||
            hir_refuse(c, HD_E_VALUE, NULL, "'grain' must be more than 0")) &&
           (*hir_attr_string(c->op, HIR_A_NAME, "") ||
            hir_refuse(c, HD_E_VALUE, NULL, "'name' is empty"));
}
