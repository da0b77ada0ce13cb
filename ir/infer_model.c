/* Type rules of contractions, tokens, outputs and kernels. */
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

/* ---- tokens -------------------------------------------------------------------------------- */
bool hir_rule_gather(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0) || !hir_rank_is(c, 0, 2, "[rows, n]") || !without_tokens(c, 0) ||
        !hir_is_value(c, 1))
        return false;
    hir_type ids = hir_arg(c, 1);
    if (ids.dtype != HIR_I32 || ids.rank != 1 || !hir_type_has_t(ids))
        return hir_refuse(c, HD_E_TYPE, NULL, "operand ids must be i32[T], not %s",
                          hir_type_text(c, ids));
    const int64_t rows = hir_arg(c, 0).dim[0], beyond = hir_attr_int(c->op, HIR_A_BEYOND, 0);
    if (beyond < 0 || beyond >= rows)
        return hir_refuse(c, HD_E_VALUE, NULL, "'beyond' is no row of the table: %lld of %lld",
                          (long long)beyond, (long long)rows);
    y->rank = 2;
    y->dim[0] = ids.dim[0];
    y->dim[1] = hir_arg(c, 0).dim[1];
    return true;
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
        if (t.dtype == HIR_I32 && t.rank == 1 && t.dim[0] == HIR_T)
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
