/* Type rules of the loss: cross_entropy, and the part of it that a contraction does. */
#include "ir/infer/rules.h"

/* Operand i is one token id for each row: an input, i32[T]. */
static bool is_target(hir_check *c, uint32_t i, hir_type rows) {
    const hir_type t = hir_arg(c, i);
    return hir_is_value(c, i) &&
           ((t.dtype == HIR_I32 && t.rank == 1 && t.dim[0] == rows.dim[0]) ||
            hir_reject(c, HD_E_TYPE, NULL, "operand %s must be i32[T], not %s", hir_arg_name(c, i),
                       hir_type_text(c, t)));
}

static bool check_operands(hir_check *c) {
    const hir_type logits = hir_arg(c, 0);
    if (!hir_plain(c, 0) || !hir_rank_is(c, 0, 2, "[T, V]")) return false;
    if (!hir_is_tokens(logits.dim[0]))
        return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [T, V], not %s",
                          hir_arg_name(c, 0), hir_type_text(c, logits));
    return is_target(c, 1, logits);
}

bool hir_rule_cross_entropy(hir_check *c, hir_type *y) {
    if (!check_operands(c)) return false;
    *y = hir_make_type(HIR_F32, 1, hir_arg(c, 0).dim);
    return true;
}

bool hir_rule_cross_entropy_parts(hir_check *c, hir_type *y) {
    const int64_t length = hir_attr_int(c->op, HIR_A_LENGTH, 0);
    if (!check_operands(c)) return false;
    const hir_type logits = hir_arg(c, 0);
    const hir_attr *whole = hir_find_attr(c->op, HIR_A_WHOLE);
    if (whole && c->m->ranks < 2)
        return hir_reject(c, HD_E_TYPE,
                          "a module for 4 ranks says so: ranks 4, rows divided from 16 tokens",
                          "the module is for one machine");
    if (whole && (whole->i < 1 || whole->i > logits.dim[1] * (int64_t)c->m->ranks))
        return hir_reject(c, HD_E_VALUE, NULL,
                          "'whole' is %lld, of which %u ranks cannot have %lld each",
                          (long long)whole->i, c->m->ranks, (long long)logits.dim[1]);
    if (length < HIR_PANEL || length % HIR_PANEL)
        return hir_reject(c, HD_E_VALUE, NULL, "'length' is %lld; it must be a multiple of %d",
                          (long long)length, HIR_PANEL);
    const int64_t parts = (logits.dim[1] + length - 1) / length;
    *y = hir_make_type(HIR_F32, 3, (const int64_t[]){logits.dim[0], HIR_LOSS_PARTS, parts});
    return true;
}

bool hir_rule_cross_entropy_merge(hir_check *c, hir_type *y) {
    if (!hir_plain(c, 0) || !hir_rank_is(c, 0, 3, "[T, 4, n]")) return false;
    const hir_type parts = hir_arg(c, 0);
    if (!hir_is_tokens(parts.dim[0]) || parts.dim[1] != HIR_LOSS_PARTS)
        return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [T, 4, n], not %s",
                          hir_arg_name(c, 0), hir_type_text(c, parts));
    *y = hir_make_type(HIR_F32, 1, parts.dim);
    return true;
}
