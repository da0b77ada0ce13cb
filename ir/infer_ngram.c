/* Type rule of ngram_gather: what its lists of numbers must be for every hash to name a row. */
#include <math.h>

#include "ir/rules.h"

enum { MOST_IDS = 16 /* of a context, and so of what is unrolled in code */ };

static const hir_attr *list(hir_check *c, hir_attr_id id) {
    return hir_find_attr(c->op, id);
}

/* Whole numbers from `least` to `most`. */
static bool are_whole(hir_check *c, hir_attr_id id, double least, double most) {
    const hir_attr *a = list(c, id);
    for (uint32_t i = 0; i < a->n; i++)
        if (!(a->floats[i] >= least && a->floats[i] <= most) || a->floats[i] != floor(a->floats[i]))
            return hir_refuse(c, HD_E_VALUE, NULL,
                              "entry %u of '%s' is %g; it must be a whole number from %.0f to %.0f",
                              i, hir_attr_name(id), a->floats[i], least, most);
    return true;
}

static bool hashes_fit(hir_check *c, int64_t rows) {
    const hir_attr *sizes = list(c, HIR_A_SIZES), *offsets = list(c, HIR_A_OFFSETS);
    if (!are_whole(c, HIR_A_SIZES, 1, 0x1p53) || !are_whole(c, HIR_A_OFFSETS, 0, 0x1p53))
        return false;
    if (offsets->n != sizes->n)
        return hir_refuse(c, HD_E_VALUE, NULL, "there are %u 'sizes' and %u 'offsets'", sizes->n,
                          offsets->n);
    for (uint32_t i = 0; i < sizes->n; i++)
        if (sizes->floats[i] + offsets->floats[i] > (double)rows)
            return hir_refuse(c, HD_E_VALUE, NULL,
                              "entry %u of 'sizes' and 'offsets', %.0f and %.0f, goes beyond the "
                              "%lld rows of the table",
                              i, sizes->floats[i], offsets->floats[i], (long long)rows);
    return true;
}

/* Multipliers are halves of 64 bits, low and high; sizes are shared out evenly. */
static bool contexts_fit(hir_check *c) {
    const uint32_t ids = list(c, HIR_A_MULTIPLIERS)->n / 2, heads = list(c, HIR_A_SIZES)->n;
    if (list(c, HIR_A_MULTIPLIERS)->n % 2 || ids < 2 || ids > MOST_IDS)
        return hir_refuse(c, HD_E_VALUE, "two for each id, the low 32 bits first",
                          "'multipliers' has %u entries; it must have from 4 to %d, two by two",
                          list(c, HIR_A_MULTIPLIERS)->n, 2 * MOST_IDS);
    if (heads == 0 || heads % (ids - 1))
        return hir_refuse(c, HD_E_VALUE, NULL,
                          "%u 'sizes' cannot be shared out among contexts of 2 to %u ids", heads,
                          ids);
    return are_whole(c, HIR_A_MULTIPLIERS, -0x1p31, 0x1p32 - 1);
}

bool hir_rule_ngram_gather(hir_check *c, hir_type *y) {
    const hir_type ids = hir_arg(c, 0), table = hir_arg(c, 1);
    if (!hir_is_value(c, 0)) return false;
    if (ids.dtype != HIR_I32 || ids.rank != 1 || ids.dim[0] != HIR_T)
        return hir_refuse(c, HD_E_TYPE, NULL, "operand ids must be i32[T], not %s",
                          hir_type_text(c, ids));
    if (!hir_plain(c, 1)) return false;
    if (hir_type_has_t(table) || table.rank < 2 || table.rank > 3)
        return hir_refuse(c, HD_E_TYPE, NULL,
                          "operand table must be [rows, n] or [parts, rows, n], not %s",
                          hir_type_text(c, table));
    const int64_t rows = table.rank == 3 ? table.dim[0] * table.dim[1] : table.dim[0];
    if (!contexts_fit(c) || !hashes_fit(c, rows)) return false;
    const int64_t kept = list(c, HIR_A_MULTIPLIERS)->n / 2 - 1;
    if (!hir_takes_state(c, 2, HIR_STATE_WINDOW, 2, (int64_t[]){kept, 1})) return false;
    if (hir_arg(c, 2).dtype != HIR_F32)
        return hir_refuse(c, HD_E_TYPE, NULL, "the window of ids is f32, not %s",
                          hir_type_text(c, hir_arg(c, 2)));
    *y = hir_make_type(HIR_F32, 3,
                       (int64_t[]){HIR_T, list(c, HIR_A_SIZES)->n, table.dim[table.rank - 1]});
    return true;
}
