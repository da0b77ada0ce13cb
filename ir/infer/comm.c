/* Type rules of communication between the ranks of a sharded module. */
#include <string.h>

#include "ir/infer/rules.h"

static bool for_ranks(hir_check *c) {
    return c->m->ranks > 1 ||
           hir_reject(c, HD_E_TYPE,
                      "a module for 4 ranks says so: ranks 4, rows divided from 16 tokens",
                      "the module is for one machine");
}

/* Checks the type to which values are rounded before they are sent. */
static bool dtype_fits(hir_check *c) {
    const char *name = hir_attr_string(c->op, HIR_A_DTYPE, "f32");
    return !strcmp(name, "f32") || !strcmp(name, "bf16") ||
           hir_reject(c, HD_E_VALUE, "what crosses is f32 or bf16", "'dtype' is \"%s\"", name);
}

/* Checks operand x, whose rows are all rows of the call (`all`) or those of one rank. */
static bool has_rows(hir_check *c, bool all, hir_type *y) {
    const hir_type x = hir_arg(c, 0);
    const int64_t rows = all ? HIR_T : hir_t_over(c->m->ranks);
    if (!for_ranks(c) || !dtype_fits(c) || !hir_is_value(c, 0)) return false;
    if (x.rank == 0 || x.dim[0] != rows)
        return hir_reject(c, HD_E_TYPE, NULL, "operand x must be [%s, ..], not %s",
                          all ? "T" : hd_printf(c->d->arena, "T/%u", c->m->ranks),
                          hir_type_text(c, x));
    *y = x;
    return true;
}

static bool only_with_axis(hir_check *c) {
    static const hir_attr_id ids[] = {HIR_A_GROUPS, HIR_A_UNITS, HIR_A_LENGTH, HIR_A_PAD};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        if (hir_find_attr(c->op, ids[i]))
            return hir_reject(c, HD_E_TYPE, "without an axis it is rows that ranks share",
                              "attribute '%s' means nothing without 'axis'", hir_attr_name(ids[i]));
    return true;
}

static bool pad_fits(hir_check *c) {
    const char *pad = hir_attr_string(c->op, HIR_A_PAD, "zero");
    return !strcmp(pad, "zero") || !strcmp(pad, "repeat") ||
           hir_reject(c, HD_E_VALUE, NULL, "'pad' is \"%s\"; it is \"zero\" or \"repeat\"", pad);
}

static bool share_fits(hir_check *c, int64_t whole, hd_share *s) {
    hir_share_of_op(c->m, c->op, whole, s);
    const char *why = hir_why_no_share(s);
    return !why || hir_reject(c, HD_E_VALUE, NULL,
                              "'groups' is %lld and 'units' %lld for a dim of %lld: %s",
                              (long long)s->groups, (long long)s->units, (long long)whole, why);
}

/* Checks that partial sums are f32: a sum in a narrower type would be rounded once for each rank.
 */
static bool are_sums(hir_check *c, hir_type *y) {
    if (!has_rows(c, true, y)) return false;
    return y->dtype == HIR_F32 ||
           hir_reject(c, HD_E_TYPE, NULL, "operand x must be f32, not %s", hir_type_text(c, *y));
}

bool hir_rule_comm_all_reduce(hir_check *c, hir_type *y) {
    return are_sums(c, y);
}

bool hir_rule_comm_reduce_scatter(hir_check *c, hir_type *y) {
    if (!are_sums(c, y)) return false;
    y->dim[0] = hir_t_over(c->m->ranks);
    return true;
}

bool hir_rule_comm_all_gather(hir_check *c, hir_type *y) {
    uint32_t axis;
    hd_share s;
    if (!hir_find_attr(c->op, HIR_A_AXIS)) {
        if (!only_with_axis(c) || !has_rows(c, false, y)) return false;
        y->dim[0] = HIR_T;
        return true;
    }
    if (!has_rows(c, true, y) || !pad_fits(c) || !hir_axis(c, *y, y->rank, &axis) ||
        !share_fits(c, hir_attr_int(c->op, HIR_A_LENGTH, 0), &s))
        return false;
    if (y->dim[axis] != hd_local_elements(&s))
        return hir_reject(c, HD_E_TYPE, NULL, "a rank's share of %lld is %lld, so x is not %s",
                          (long long)s.whole, (long long)hd_local_elements(&s),
                          hir_type_text(c, *y));
    y->dim[axis] = s.whole;
    return true;
}

bool hir_rule_comm_part(hir_check *c, hir_type *y) {
    uint32_t axis;
    hd_share s;
    if (!hir_find_attr(c->op, HIR_A_AXIS)) {
        if (!only_with_axis(c) || !has_rows(c, true, y)) return false;
        y->dim[0] = hir_t_over(c->m->ranks);
        return true;
    }
    *y = hir_arg(c, 0);
    if (!for_ranks(c) || !hir_is_value(c, 0) || !pad_fits(c) || !hir_axis(c, *y, y->rank, &axis) ||
        !share_fits(c, y->dim[axis], &s))
        return false;
    y->dim[axis] = hd_local_elements(&s);
    return true;
}

/* ---- between pipeline stages ----------------------------------------------------------------- */
static bool stage_fits(hir_check *c, hir_attr_id id) {
    const int64_t stage = hir_attr_int(c->op, id, 0);
    return (stage >= 0 && stage < HIR_MAX_RANKS) ||
           hir_reject(c, HD_E_VALUE, NULL, "'%s' is %lld; stages are 0 to %d", hir_attr_name(id),
                      (long long)stage, HIR_MAX_RANKS - 1);
}

bool hir_rule_comm_send(hir_check *c, hir_type *y) {
    *y = hir_arg(c, 0);
    return dtype_fits(c) && stage_fits(c, HIR_A_TO) && hir_is_value(c, 0) &&
           (hir_type_has_t(hir_arg(c, 0)) ||
            hir_reject(c, HD_E_TYPE, "what is the same for every token each stage can make",
                       "operand x must be [T, ..], not %s", hir_type_text(c, hir_arg(c, 0))));
}

bool hir_rule_comm_recv(hir_check *c, hir_type *y) {
    if (!dtype_fits(c) || !stage_fits(c, HIR_A_FROM) || !hir_shape(c, y)) return false;
    return hir_type_has_t(*y) || hir_reject(c, HD_E_TYPE, NULL, "'shape' must begin with T");
}
