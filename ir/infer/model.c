/* Type rules of contractions, tokens, outputs and kernels. */
#include <math.h>
#include <string.h>

#include "ir/infer/rules.h"
#include "ir/kernel/kernels.h"

static bool without_tokens(hir_check *c, uint32_t i) {
    hir_type t = hir_arg(c, i);
    return (!hir_type_has_t(t) && !hir_type_has_c(t)) ||
           hir_reject(c, HD_E_TYPE, NULL, "operand %s must be the same for every token, not %s",
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
        return hir_reject(c, HD_E_TYPE,
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
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [T, G, K], not %s",
                          hir_type_text(c, x));
    if (x.dim[1] != w.dim[0] || x.dim[2] != w.dim[2])
        return hir_reject(c, HD_E_TYPE,
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
        return hir_reject(c, HD_E_TYPE, NULL, "operand ids must be i32[T], not %s",
                          hir_type_text(c, ids));
    const int64_t rows = hir_arg(c, 0).dim[0], beyond = hir_attr_int(c->op, HIR_A_BEYOND, 0);
    if (beyond < 0 || beyond >= rows)
        return hir_reject(c, HD_E_VALUE, NULL, "'beyond' is no row of the table: %lld of %lld",
                          (long long)beyond, (long long)rows);
    y->rank = 2;
    y->dim[0] = ids.dim[0];
    y->dim[1] = hir_arg(c, 0).dim[1];
    return true;
}

/* ---- outputs --------------------------------------------------------------------------------- */
bool hir_rule_output(hir_check *c, hir_type *y) {
    const char *name = hir_attr_string(c->op, HIR_A_NAME, "");
    (void)y;
    if (c->op->args[0].kind == HIR_REF_WEIGHT)
        return hir_reject(c, HD_E_TYPE, "reshape makes a value of a weight",
                          "operand x must be a value (%%), not a weight (@)");
    return hir_is_value(c, 0) && hir_plain(c, 0) &&
           (*name || hir_reject(c, HD_E_VALUE, NULL, "'name' is empty"));
}

bool hir_rule_yield(hir_check *c, hir_type *y) {
    (void)y;
    for (uint32_t i = 0; i < c->op->n_args; i++) {
        const hir_type t = hir_arg(c, i);
        if (!hir_is_value(c, i)) return false;
        if (t.dtype == HIR_I32 && t.rank == 1 && t.dim[0] == HIR_T)
            return hir_reject(c, HD_E_TYPE, NULL, "operand %s is token ids", hir_arg_name(c, i));
    }
    return true;
}

/* ---- kernels ------------------------------------------------------------------------------- */
static bool reject_word(hir_check *c, hir_attr_id id, const char *const *words, size_t n) {
    const char *word = hir_attr_string(c->op, id, "");
    hd_text list;
    hd_text_init(&list, c->d->arena);
    for (size_t i = 0; i < n; i++)
        hd_text_f(&list, "%s\"%s\"", i ? ", " : "", words[i]);
    const char *near = hd_nearest(word, words, n);
    return hir_reject(c, HD_E_VALUE,
                      near ? hd_printf(c->d->arena, "did you mean \"%s\"?", near) : NULL,
                      "'%s' is \"%s\"; it is one of %s", hir_attr_name(id), word, list.at);
}

static bool check_split_name(hir_check *c, hir_attr_id id) {
    const char *words[HIR_SPLITS];
    hir_split split;
    if (hir_split_by_name(hir_attr_string(c->op, id, ""), &split)) return true;
    for (int i = 0; i < HIR_SPLITS; i++)
        words[i] = hir_split_name((hir_split)i);
    return reject_word(c, id, words, HIR_SPLITS);
}

static bool check_rows_name(hir_check *c) {
    const char *words[HIR_ROWS];
    hir_rows rows;
    if (hir_rows_by_name(hir_attr_string(c->op, HIR_A_ROWS, ""), &rows)) return true;
    for (int i = 0; i < HIR_ROWS; i++)
        words[i] = hir_rows_name((hir_rows)i);
    return reject_word(c, HIR_A_ROWS, words, HIR_ROWS);
}

bool hir_rule_kernel(hir_check *c, hir_type *y) {
    (void)y;
    return check_rows_name(c) && check_split_name(c, HIR_A_SPLIT_DECODE) &&
           check_split_name(c, HIR_A_SPLIT_PREFILL) &&
           (hir_attr_int(c->op, HIR_A_GRAIN, 1) > 0 ||
            hir_reject(c, HD_E_VALUE, NULL, "'grain' must be more than 0")) &&
           (hir_attr_int(c->op, HIR_A_TILE, 1) > 0 ||
            hir_reject(c, HD_E_VALUE, NULL, "'tile' must be more than 0")) &&
           (*hir_attr_string(c->op, HIR_A_NAME, "") ||
            hir_reject(c, HD_E_VALUE, NULL, "'name' is empty"));
}

/* ---- ngram_gather: its lists of numbers must make every hash a valid row --------------------- */

enum { MOST_IDS = 16 /* of a context, and so of what is unrolled in code */ };

static const hir_attr *list(hir_check *c, hir_attr_id id) {
    return hir_find_attr(c->op, id);
}

/* Whole numbers from `least` to `most`. */
static bool are_whole(hir_check *c, hir_attr_id id, double least, double most) {
    const hir_attr *a = list(c, id);
    for (uint32_t i = 0; i < a->n; i++)
        if (!(a->floats[i] >= least && a->floats[i] <= most) || a->floats[i] != floor(a->floats[i]))
            return hir_reject(c, HD_E_VALUE, NULL,
                              "entry %u of '%s' is %g; it must be a whole number from %.0f to %.0f",
                              i, hir_attr_name(id), a->floats[i], least, most);
    return true;
}

static bool hashes_fit(hir_check *c, int64_t rows) {
    const hir_attr *sizes = list(c, HIR_A_SIZES), *offsets = list(c, HIR_A_OFFSETS);
    if (!are_whole(c, HIR_A_SIZES, 1, 0x1p53) || !are_whole(c, HIR_A_OFFSETS, 0, 0x1p53))
        return false;
    if (offsets->n != sizes->n)
        return hir_reject(c, HD_E_VALUE, NULL, "there are %u 'sizes' and %u 'offsets'", sizes->n,
                          offsets->n);
    for (uint32_t i = 0; i < sizes->n; i++)
        if (sizes->floats[i] + offsets->floats[i] > (double)rows)
            return hir_reject(c, HD_E_VALUE, NULL,
                              "entry %u of 'sizes' and 'offsets', %.0f and %.0f, goes beyond the "
                              "end of the table, which has %lld row%s",
                              i, sizes->floats[i], offsets->floats[i], (long long)rows,
                              hd_s((uint64_t)rows));
    return true;
}

/* Multipliers are given as halves of 64 bits, low and high; sizes are divided evenly. */
static bool contexts_fit(hir_check *c) {
    const uint32_t ids = list(c, HIR_A_MULTIPLIERS)->n / 2, heads = list(c, HIR_A_SIZES)->n;
    if (list(c, HIR_A_MULTIPLIERS)->n % 2 || ids < 2 || ids > MOST_IDS)
        return hir_reject(c, HD_E_VALUE, "two for each id, the low 32 bits first",
                          "'multipliers' has %u entries; it must have from 4 to %d, two by two",
                          list(c, HIR_A_MULTIPLIERS)->n, 2 * MOST_IDS);
    if (heads == 0 || heads % (ids - 1))
        return hir_reject(c, HD_E_VALUE, NULL,
                          "'sizes' has %u entr%s, not as many for each length of context, 2 to %u",
                          heads, heads == 1 ? "y" : "ies", ids);
    return are_whole(c, HIR_A_MULTIPLIERS, -0x1p31, 0x1p32 - 1);
}

/* What stands in the place of ids that are not seen. */
static bool ends_fit(hir_check *c) {
    const bool eos = list(c, HIR_A_EOS), before = list(c, HIR_A_BEFORE);
    return eos != before || hir_reject(c, HD_E_VALUE, "one says what is seen before the start",
                                       "one of 'eos' and 'before' must be there");
}

bool hir_ngram_fits(hir_check *c, hir_type table, hir_type *y) {
    const hir_type ids = hir_arg(c, 0);
    if (!hir_is_value(c, 0)) return false;
    const bool one = ids.rank == 1 || (ids.rank == 2 && ids.dim[1] == 1); /* of each token */
    if (ids.dtype != HIR_I32 || !one || ids.dim[0] != HIR_T)
        return hir_reject(c, HD_E_TYPE, NULL, "operand ids must be i32[T] or i32[T, 1], not %s",
                          hir_type_text(c, ids));
    if (table.rank < 2 || table.rank > 3 || table.dim[0] < 0)
        return hir_reject(c, HD_E_TYPE, NULL,
                          "the table must be [rows, n] or [parts, rows, n], not %s",
                          hir_type_text(c, table));
    const int64_t rows = table.rank == 3 ? table.dim[0] * table.dim[1] : table.dim[0];
    if (!ends_fit(c) || !contexts_fit(c) || !hashes_fit(c, rows)) return false;
    *y = hir_make_type(HIR_F32, 3,
                       (int64_t[]){HIR_T, list(c, HIR_A_SIZES)->n, table.dim[table.rank - 1]});
    return true;
}

bool hir_rule_ngram_gather(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 1) || !hir_ngram_fits(c, hir_arg(c, 1), y)) return false;
    const int64_t kept = list(c, HIR_A_MULTIPLIERS)->n / 2 - 1;
    if (!hir_takes_state(c, 2, HIR_STATE_WINDOW, 2, (int64_t[]){kept, 1})) return false;
    return hir_arg(c, 2).dtype == HIR_F32 ||
           hir_reject(c, HD_E_TYPE, NULL, "the window of ids is f32, not %s",
                      hir_type_text(c, hir_arg(c, 2)));
}
