/* How an axis of an op's result lies in its operands, that is what ranks can compute from shares of
 * the operands alone. An op that is not listed here is not divided; its operands are made whole. */
#include <string.h>

#include "passes/shard/shard.h"

static hir_type type_of(const hir_module *m, hir_id op, uint32_t i) {
    return hir_arg_type(m, op, i);
}
static bool has_arg(const hir_module *m, hir_id op, uint32_t i) {
    return pass_arg(m, op, i).kind != HIR_REF_NONE;
}

/* Dims are aligned at the right; a dim of 1, or none, is the same for all entries. */
static int stretched(hir_type x, hir_type y, uint32_t r) {
    const int axis = (int)r - (int)(y.rank - x.rank);
    return axis >= 0 && x.dim[axis] == y.dim[r] ? axis : -1;
}

/* Elements of a row in front of an axis. */
static int64_t before(hir_type t, uint32_t axis) {
    int64_t n = 1;
    for (uint32_t i = 0; i < axis; i++)
        if (t.dim[i] > 0) n *= t.dim[i];
    return n;
}

/* The axis of x that begins where axis r of y does, in row-major order, where one is made of whole
 * entries of the other. */
static int reshaped(hir_type x, hir_type y, uint32_t r) {
    for (uint32_t a = 0; a < x.rank; a++) {
        if (x.dim[a] < 2 || before(x, a) != before(y, r)) continue;
        const int64_t big = x.dim[a] > y.dim[r] ? x.dim[a] : y.dim[r];
        const int64_t small = x.dim[a] > y.dim[r] ? y.dim[r] : x.dim[a];
        return big % small ? -1 : (int)a;
    }
    return -1;
}

static uint32_t attr_axis(const hir_module *m, hir_id op) {
    return (uint32_t)hir_attr_int(hir_op_at(m, op), HIR_A_AXIS, 0);
}

static bool all_at(const hir_module *m, hir_id op, int axis, shard_axis *of) {
    for (uint32_t i = 0; i < hir_op_at(m, op)->n_args; i++)
        of[i].axis = axis;
    return true;
}

static bool move_axes(const hir_module *m, hir_id op, uint32_t r, shard_axis *of) {
    const hir_op *o = hir_op_at(m, op);
    const hir_type x = type_of(m, op, 0), y = pass_result_type(m, op);
    const uint32_t axis = attr_axis(m, op);
    switch ((int)o->code) {
    case HIR_RESHAPE_OP: of[0].axis = reshaped(x, y, r); return of[0].axis >= 0;
    case HIR_TRANSPOSE_OP: of[0].axis = (int)hir_find_attr(o, HIR_A_PERM)->ints[r]; return true;
    case HIR_BROADCAST_OP: of[0].axis = stretched(x, y, r); return true;
    case HIR_STACK_OP: return r != axis && all_at(m, op, r < axis ? (int)r : (int)r - 1, of);
    case HIR_CONCAT_OP: return r != axis && all_at(m, op, (int)r, of);
    case HIR_SLICE_OP: return r != axis && all_at(m, op, (int)r, of);
    default: return false;
    }
}

/* Divides the heads of cached rows. Rows of a single head are read by all heads, and are not
 * divided. */
static void divide_heads(const hir_module *m, hir_id op, uint32_t i, uint32_t axis, int64_t heads,
                         shard_axis *of) {
    if (!has_arg(m, op, i)) return;
    const int64_t own = type_of(m, op, i).dim[axis];
    if (own > 1) of[i] = (shard_axis){(int)axis, own != heads};
}

/* sink [H] or [T, H], bias [T, H, extent] */
static void divide_options(const hir_module *m, hir_id op, uint32_t sink, bool bias,
                           shard_axis *of) {
    if (has_arg(m, op, sink)) of[sink].axis = hir_type_has_t(type_of(m, op, sink)) ? 1 : 0;
    if (bias && has_arg(m, op, sink + 1)) of[sink + 1].axis = 1;
}

/* ---- ops whose results are [T, heads, n] or [T, channels], divided by heads or channels --------
 * `n` of them. */

static void rope(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    (void)m, (void)op, (void)n;
    of[0].axis = 1;
}

static void cache_append(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    (void)m, (void)op, (void)n;
    of[0].axis = of[1].axis = 1;
}

static void attention(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    of[0].axis = 1;
    for (uint32_t i = 1; i < 3; i++)
        divide_heads(m, op, i, 1, n, of);
    divide_options(m, op, 3, true, of);
}

static void attention_selected(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    of[0].axis = 1;
    for (uint32_t i = 1; i < 4; i++)
        divide_heads(m, op, i, 1, n, of);
    divide_options(m, op, 4, false, of);
    divide_heads(m, op, 5, 1, n, of);
}

static void attention_latent(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    of[0].axis = 1;
    divide_heads(m, op, 1, 1, n, of);
    if (has_arg(m, op, 2)) of[2].axis = 1;
    divide_heads(m, op, 3, 1, n, of);
    divide_options(m, op, 4, true, of);
}

static void attention_expanded(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    of[0].axis = of[1].axis = 1;
    divide_heads(m, op, 2, 1, n, of);
    if (has_arg(m, op, 3)) of[3].axis = 1;
    divide_heads(m, op, 4, 1, n, of);
    divide_heads(m, op, 5, 0, n, of);
    divide_heads(m, op, 6, 0, n, of);
    divide_options(m, op, 7, true, of);
}

static void delta_rule(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    for (uint32_t i = 0; i < 2; i++)
        of[i] = (shard_axis){1, type_of(m, op, i).dim[1] != n};
    of[2].axis = 1;
    for (uint32_t i = 3; i < 5; i++)
        if (has_arg(m, op, i)) of[i].axis = 1;
    of[5].axis = 0;
}

static void short_conv(const hir_module *m, hir_id op, int64_t n, shard_axis *of) {
    const hir_type taps = type_of(m, op, 1);
    const uint32_t axis = hir_type_has_t(taps);
    of[0].axis = of[3].axis = 1;
    of[1] = (shard_axis){(int)axis, taps.dim[axis] != n};
    if (has_arg(m, op, 2)) of[2].axis = 0;
}

typedef void heads_rule(const hir_module *m, hir_id op, int64_t n, shard_axis *of);
static heads_rule *const by_heads[HIR_OPCODE_COUNT] = {
    [HIR_ROPE_OP] = rope,
    [HIR_CACHE_APPEND_OP] = cache_append,
    [HIR_ATTENTION_OP] = attention,
    [HIR_ATTENTION_SELECTED_OP] = attention_selected,
    [HIR_ATTENTION_LATENT_OP] = attention_latent,
    [HIR_ATTENTION_EXPANDED_OP] = attention_expanded,
    [HIR_DELTA_RULE_OP] = delta_rule,
    [HIR_SHORT_CONV_OP] = short_conv,
};

static bool sequence_axes(const hir_module *m, hir_id op, uint32_t r, shard_axis *of) {
    heads_rule *rule = by_heads[hir_op_at(m, op)->code];
    if (r != 1 || !rule) return false;
    rule(m, op, pass_result_type(m, op).dim[1], of);
    return true;
}

/* ---- all ops --------------------------------------------------------------------------------- */

bool shard_axes(const hir_module *m, hir_id op, uint32_t r, shard_axis *of) {
    const hir_op *o = hir_op_at(m, op);
    if (o->n_results != 1 || o->n_args > SHARD_MAX_ARGS) return false;
    const hir_type y = pass_result_type(m, op);
    for (uint32_t i = 0; i < o->n_args; i++)
        of[i] = (shard_axis){-1, false};
    if (r >= y.rank || y.dim[r] < 2) return false;
    if (hir_has_trait(o->code, HIR_ELEMENTWISE)) {
        for (uint32_t i = 0; i < o->n_args; i++)
            of[i].axis = stretched(type_of(m, op, i), y, r);
        return true;
    }
    if (hir_has_trait(o->code, HIR_MOVE)) return move_axes(m, op, r, of);
    switch ((int)o->code) {
    case HIR_CONST_OP: return true;
    case HIR_REDUCE_SUM_OP:
    case HIR_REDUCE_MEAN_OP:
    case HIR_REDUCE_MAX_OP:
    case HIR_LOGSUMEXP_OP: of[0].axis = r < attr_axis(m, op) ? (int)r : (int)r + 1; return true;
    case HIR_SOFTMAX_OP: of[0].axis = (int)r; return r != attr_axis(m, op);
    case HIR_RMSNORM_OP:
    case HIR_LAYERNORM_OP:
    case HIR_LINEAR_OP: of[0].axis = (int)r; return r + 1 < y.rank;
    case HIR_BLOCK_LINEAR_OP: of[0].axis = 1, of[1].axis = 0; return r == 1;
    default: return sequence_axes(m, op, r, of);
    }
}

bool shard_begins(const hir_module *m, hir_id op, uint32_t r) {
    const hir_op *o = hir_op_at(m, op);
    if (!hir_is_linear(o->code) || o->args[1].kind != HIR_REF_WEIGHT ||
        !hir_type_has_t(type_of(m, op, 0)))
        return false;
    return r + 1 == pass_result_type(m, op).rank &&
           o->args[hir_bias_of(o->code)].kind != HIR_REF_VALUE;
}

bool shard_ends(const hir_module *m, hir_id op, uint32_t i, uint32_t axis) {
    const hir_op *o = hir_op_at(m, op);
    if (!hir_is_matrix(o->code, 1) || i != 0 || o->args[1].kind != HIR_REF_WEIGHT) return false;
    const hir_type x = type_of(m, op, 0);
    return axis + 1 == x.rank && hir_type_has_t(x) &&
           (!hir_is_linear(o->code) || pass_arg(m, op, hir_bias_of(o->code)).kind != HIR_REF_VALUE);
}
