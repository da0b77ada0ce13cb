/* How much arithmetic an op does, and how many rows it does together, by formula. Ops without a
 * formula count as free in comparison, and do one row at a time. */
#include <string.h>

#include "ir/kernel/kernels.h"

static uint64_t row_elements(hir_type t) {
    const int64_t n = hir_type_row_elements(t);
    return n < 0 ? 0 : (uint64_t)n;
}

/* 2 N K for each row of x; x has row_elements / K of them per token. */
static hir_op_work linear(const hir_module *m, hir_id op) {
    const hir_type x = hir_arg_type(m, op, 0), w = hir_arg_type(m, op, 1);
    if (!hir_type_has_t(x)) return (hir_op_work){0};
    return (hir_op_work){.row_flops = 2 * (uint64_t)w.dim[0] * row_elements(x)};
}

/* 2 N K for each group of a row. */
static hir_op_work block_linear(const hir_module *m, hir_id op) {
    const hir_type x = hir_arg_type(m, op, 0), w = hir_arg_type(m, op, 1);
    if (!hir_type_has_t(x)) return (hir_op_work){0};
    return (hir_op_work){.row_flops = 2 * row_elements(w)};
}

/* The same for each of the k matrices that a token has selected. */
static hir_op_work expert_linear(const hir_module *m, hir_id op) {
    const hir_type w = hir_arg_type(m, op, 1), ids = hir_arg_type(m, op, 2);
    return (hir_op_work){.row_flops = 2 * (uint64_t)(ids.dim[1] * w.dim[1]) * (uint64_t)w.dim[2]};
}

/* The gradient of a matrix has as many products as the product with it. */
static hir_op_work linear_grad(const hir_module *m, hir_id op) {
    const hir_type dy = hir_arg_type(m, op, 0), x = hir_arg_type(m, op, 1);
    if (!hir_type_has_t(dy)) return (hir_op_work){0};
    const uint64_t k = (uint64_t)x.dim[x.rank - 1];
    return (hir_op_work){.row_flops = 2 * row_elements(dy) * k};
}

/* For each head and position n products with the key and m with the value. The tokens' queries of
 * one key/value head fill a tile. */
static hir_op_work attention(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), v = hir_arg_type(m, op, 2);
    return (hir_op_work){.pair_flops = 2 * (uint64_t)q.dim[1] * (uint64_t)(q.dim[2] + v.dim[2]),
                         .rows_together = HIR_QUERY_TILE / (q.dim[1] / v.dim[1])};
}

/* As attention, and a sum with what is carried. */
static hir_op_work carried(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), v = hir_arg_type(m, op, 2);
    hir_op_work work = attention(m, op);
    work.pair_flops += 2 * (uint64_t)q.dim[1];
    work.rows_together = hir_carried_tokens(q.dim[1] / v.dim[1]);
    return work;
}

/* For each head and row of keys a product of n, its weight and sum; a row stands for `rate`
 * positions. */
static hir_op_work selection(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), keys = hir_arg_type(m, op, 1);
    const uint64_t each = 2 * (uint64_t)q.dim[1] * (uint64_t)(q.dim[2] + 1);
    return (hir_op_work){.pair_flops = each / (uint64_t)hir_rate(keys.dim[0])};
}

/* As attention, for as many rows as a list and a window can hold; if there is no limit, for each
 * position. */
static hir_op_work attention_selected(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), v = hir_arg_type(m, op, 2);
    const hir_ref list = hir_op_at(m, op)->args[3], entries = hir_op_at(m, op)->args[5];
    const uint64_t each = 2 * (uint64_t)q.dim[1] * (uint64_t)(q.dim[2] + v.dim[2]);
    hir_op_work work = {0};
    if (list.kind != HIR_REF_NONE)
        work.row_flops = each * (uint64_t)hir_ref_type(m, list).dim[2];
    else
        work.pair_flops = each / (uint64_t)hir_rate(hir_ref_type(m, entries).dim[0]);
    const int64_t window = hir_attr_int(hir_op_at(m, op), HIR_A_WINDOW, 0);
    if (entries.kind != HIR_REF_NONE)
        *(window ? &work.row_flops : &work.pair_flops) += each * (uint64_t)(window ? window : 1);
    return work;
}

/* Of the five products of a kernel with the gradients of q, k and v, that of q counts for scores,
 * that of v for their slopes dy . v. */
static hir_op_work attention_grad(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), v = hir_arg_type(m, op, 2);
    const char *of = hir_attr_string(hir_op_at(m, op), HIR_A_OF, "");
    int64_t n = 0;
    if (strcmp(of, "q") == 0) n = 2 * q.dim[2];
    if (strcmp(of, "k") == 0) n = q.dim[2];
    if (strcmp(of, "v") == 0) n = 2 * v.dim[2];
    return (hir_op_work){.pair_flops = 2 * (uint64_t)(q.dim[1] * n)};
}

/* Likewise: q and v count for the two products of attention each, k for one of them. */
static hir_op_work attention_selected_grad(const hir_module *m, hir_id op) {
    const char *of = hir_attr_string(hir_op_at(m, op), HIR_A_OF, "");
    hir_op_work work = {0};
    if (strcmp(of, "q") == 0 || strcmp(of, "v") == 0) return attention_selected(m, op);
    if (strcmp(of, "k") != 0) return work;
    work = attention_selected(m, op);
    work.row_flops /= 2, work.pair_flops /= 2;
    return work;
}

/* For each channel of the rows that one row is made of: an exponential, counted as one, and a
 * multiply and two adds; once for `length` rows. */
static hir_op_work pool(const hir_module *m, hir_id op) {
    return (hir_op_work){.row_flops = 4 * row_elements(hir_arg_type(m, op, 0))};
}

/* A multiply and an add for each tap and channel. */
static hir_op_work short_conv(const hir_module *m, hir_id op) {
    const hir_type taps = hir_arg_type(m, op, 1);
    return (hir_op_work){.row_flops = 2 * row_elements(hir_arg_type(m, op, 0)) *
                                      (uint64_t)taps.dim[taps.rank - 1]};
}

/* For each element of S: the product with its decay, and a multiply and an add in S^T k, where v is
 * corrected by it, in S^T q and where S is changed. */
static hir_op_work delta_rule(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), v = hir_arg_type(m, op, 2);
    const uint64_t decay = hir_op_at(m, op)->args[3].kind == HIR_REF_NONE ? 0 : 1;
    const uint64_t each = (hir_is_additive(hir_op_at(m, op)) ? 4 : 6) + decay;
    return (hir_op_work){.row_flops = each * (uint64_t)q.dim[2] * row_elements(v)};
}

/* Entries of a head that are multiplied with the part of a cached row that heads share. */
static int64_t shared_entries(const hir_module *m, hir_id op, uint32_t q_shared) {
    const bool there = hir_op_at(m, op)->args[q_shared].kind != HIR_REF_NONE;
    return there ? hir_arg_type(m, op, q_shared).dim[2] : 0;
}

/* r + m products with the key, r with the value; the heads of a group see the same row. */
static hir_op_work latent(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 0), rows = hir_arg_type(m, op, 1);
    const int64_t n = 2 * q.dim[2] + shared_entries(m, op, 2);
    return (hir_op_work){.pair_flops = 2 * (uint64_t)q.dim[1] * (uint64_t)n,
                         .rows_together = HIR_QUERY_TILE / (q.dim[1] / rows.dim[1])};
}

/* The same with keys of n + m entries and values of their own size. Keys and values are computed
 * for each position that is read, not for each row of the call. */
static hir_op_work expanded(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 1), v = hir_arg_type(m, op, 6);
    const int64_t n = q.dim[2] + shared_entries(m, op, 3) + v.dim[1];
    return (hir_op_work){.pair_flops = 2 * (uint64_t)q.dim[1] * (uint64_t)n,
                         .rows_together = HIR_QUERY_TILE};
}

hd_latent_costs hir_forms_of(const hir_module *m, hir_id op) {
    const hir_type q = hir_arg_type(m, op, 1), k = hir_arg_type(m, op, 5);
    const hir_type v = hir_arg_type(m, op, 6);
    const int64_t r = k.dim[2], n = k.dim[1], w = v.dim[1], shared = shared_entries(m, op, 3);
    return (hd_latent_costs){.few_pair = q.dim[1] * (2 * r + shared),
                             .many_pair = q.dim[1] * (n + shared + w),
                             .few_row = q.dim[1] * r * (n + w),
                             .many_position = k.dim[0] * r * (n + w),
                             .window = hir_attr_int(hir_op_at(m, op), HIR_A_WINDOW, 0),
                             .most = hir_attr_int(hir_op_at(m, op), HIR_A_MOST, 0)};
}

static hir_op_work (*const formulas[HIR_OPCODE_COUNT])(const hir_module *m, hir_id op) = {
    [HIR_LINEAR_OP] = linear,
    [HIR_BLOCK_LINEAR_OP] = block_linear,
    [HIR_EXPERT_LINEAR_OP] = expert_linear,
    [HIR_LINEAR_GRAD_OP] = linear_grad,
    [HIR_BLOCK_LINEAR_GRAD_OP] = linear_grad,
    [HIR_EXPERT_LINEAR_GRAD_OP] = linear_grad,
    [HIR_ATTENTION_OP] = attention,
    [HIR_ATTENTION_CARRIED_OP] = carried,
    [HIR_ATTENTION_GRAD_OP] = attention_grad,
    [HIR_ATTENTION_SELECTED_GRAD_OP] = attention_selected_grad,
    [HIR_SELECT_OP] = selection,
    [HIR_ATTENTION_SELECTED_OP] = attention_selected,
    [HIR_POOL_OP] = pool,
    [HIR_SHORT_CONV_OP] = short_conv,
    [HIR_DELTA_RULE_OP] = delta_rule,
    [HIR_ATTENTION_LATENT_OP] = latent,
    [HIR_ATTENTION_EXPANDED_OP] = expanded,
};

/* attention_selected reads the rows of its list: rows of k and v, or of its entries; in the latter
 * case k and v also have a window. */
hir_row_limit hir_rows_read(const hir_module *m, const hir_op *o, uint32_t operand) {
    enum { LIST = 3, ENTRIES = 5 };
    const int64_t window = hir_attr_int(o, HIR_A_WINDOW, 0);
    if (o->code != HIR_ATTENTION_SELECTED_OP) return (hir_row_limit){.rows = window};
    const bool entries = o->args[ENTRIES].kind != HIR_REF_NONE;
    if (entries != (operand == ENTRIES)) return (hir_row_limit){.rows = window};
    if (o->args[LIST].kind == HIR_REF_NONE) return (hir_row_limit){0};
    return (hir_row_limit){.rows = hir_ref_type(m, o->args[LIST]).dim[2], .chosen = true};
}

hir_op_work hir_work_of(const hir_module *m, hir_id op) {
    const hir_opcode code = hir_op_at(m, op)->code;
    hir_op_work work = formulas[code] ? formulas[code](m, op) : (hir_op_work){0};
    if (work.rows_together < 1) work.rows_together = 1;
    return work;
}
