/* Building the ops of gradients. */
#include "passes/gradient/gradient.h"

/* ---- operands -------------------------------------------------------------------------------- */

bool grad_wants(const gradient *g, hir_id op, uint32_t i) {
    return grad_wants_of(g, pass_arg(g->m, op, i));
}

bool grad_wants_of(const gradient *g, hir_ref x) {
    return x.kind == HIR_REF_WEIGHT || (x.kind == HIR_REF_VALUE && g->depends[x.index]);
}

void grad_give(gradient *g, hir_id op, uint32_t i, hir_ref dx) {
    grad_give_to(g, pass_arg(g->m, op, i), dx);
}

void grad_give_to(gradient *g, hir_ref x, hir_ref dx) {
    if (g->failed) return;
    dx = grad_sum_to(g, dx, grad_type(g, x));
    if (g->failed) return;
    grad_part **parts = x.kind == HIR_REF_WEIGHT ? &g->of_weight[x.index] : &g->of_value[x.index];
    grad_part *part = hd_new(g->c->scratch, grad_part);
    *part = (grad_part){dx, *parts};
    *parts = part;
}

hir_ref grad_result(const gradient *g, hir_id op) {
    return hir_value_ref(hir_result(g->m, op));
}

/* ---- building -------------------------------------------------------------------------------- */

hir_ref grad_op(gradient *g, hir_opcode code, const hir_ref *args, uint32_t n_args,
                const hir_attr *attrs, uint32_t n_attrs) {
    if (g->failed) return hir_no_ref();
    const hir_ref y = hir_emit(&g->b, code, args, n_args, attrs, n_attrs);
    g->failed = y.kind == HIR_REF_NONE;
    return y;
}

hir_ref grad_zeros(gradient *g, hir_type t) {
    const hir_attr attrs[] = {hir_float(HIR_A_VALUE, 0), hir_ints(HIR_A_SHAPE, t.dim, t.rank)};
    return grad_op(g, HIR_CONST_OP, NULL, 0, attrs, 2);
}

hir_ref grad_const(gradient *g, double x) {
    if (g->failed) return hir_no_ref();
    return hir_emit_const(&g->b, x);
}

hir_ref grad_1(gradient *g, hir_opcode code, hir_ref x) {
    return grad_op(g, code, &x, 1, NULL, 0);
}

hir_ref grad_2(gradient *g, hir_opcode code, hir_ref a, hir_ref b) {
    return grad_op(g, code, (hir_ref[]){a, b}, 2, NULL, 0);
}

hir_ref grad_times(gradient *g, hir_ref x, double by) {
    return grad_mul(g, x, grad_const(g, by));
}

hir_ref grad_plus(gradient *g, hir_ref x, double c) {
    return grad_add(g, x, grad_const(g, c));
}

hir_ref grad_reshape(gradient *g, hir_ref x, hir_type t) {
    if (g->failed) return hir_no_ref();
    const hir_ref y = pass_reshape(&g->b, x, t);
    g->failed = y.kind == HIR_REF_NONE;
    return y;
}

hir_ref grad_reduce(gradient *g, hir_opcode code, hir_ref x, uint32_t axis) {
    if (g->failed) return hir_no_ref();
    const hir_type kept = pass_keep_one(grad_type(g, x), axis);
    const hir_attr attr = hir_int(HIR_A_AXIS, axis);
    return grad_reshape(g, grad_op(g, code, &x, 1, &attr, 1), kept);
}

hir_ref grad_transpose(gradient *g, hir_ref x, uint32_t a, uint32_t b) {
    if (g->failed) return hir_no_ref();
    int64_t perm[HIR_MAX_RANK];
    const uint32_t rank = grad_type(g, x).rank;
    for (uint32_t i = 0; i < rank; i++)
        perm[i] = i == a ? b : i == b ? a : i;
    const hir_attr attr = hir_ints(HIR_A_PERM, perm, rank);
    return grad_op(g, HIR_TRANSPOSE_OP, &x, 1, &attr, 1);
}

hir_ref grad_slice(gradient *g, hir_ref x, uint32_t axis, int64_t start, int64_t length) {
    const hir_attr attrs[] = {hir_int(HIR_A_AXIS, axis), hir_int(HIR_A_START, start),
                              hir_int(HIR_A_LENGTH, length)};
    return grad_op(g, HIR_SLICE_OP, &x, 1, attrs, 3);
}

/* x without its dim `axis`, over which it is summed. */
static hir_ref without_dim(gradient *g, hir_ref x, uint32_t axis) {
    const hir_attr attr = hir_int(HIR_A_AXIS, axis);
    return grad_op(g, HIR_REDUCE_SUM_OP, &x, 1, &attr, 1);
}

hir_ref grad_sum_to(gradient *g, hir_ref x, hir_type t) {
    if (g->failed) return hir_no_ref();
    const hir_type from = grad_type(g, x);
    const uint32_t lead = from.rank - t.rank; /* dims that t does not have */
    t.dtype = HIR_F32;
    if (hir_type_equal(from, t)) return x;
    for (uint32_t i = from.rank; i-- > 0 && !g->failed;) {
        const bool same = i >= lead && from.dim[i] == t.dim[i - lead];
        if (same || from.dim[i] == 1) continue;
        x = from.dim[i] < 0 ? grad_1(g, HIR_SUM_TOKENS_OP, x) : without_dim(g, x, i);
    }
    return grad_reshape(g, x, t);
}
