/* Views: the elements of a value that belong to one source.
 *
 * Attention over depth, written naively, stacks its sources, works on the stack, and sums over it;
 * or works on each source; or alternates. A view means "element i of dim `axis`", so that one
 * matcher handles all of these ways: it resolves stacks and slices on the path.
 */
#include "passes/depth/depth.h"

static depth_view whole(hir_ref v) {
    return (depth_view){v, -1, 0};
}

/* The product of the dims before `axis`, T not counted. */
static int64_t elements_before(hir_type t, uint32_t axis) {
    int64_t n = 1;
    for (uint32_t i = 0; i < axis; i++)
        if (t.dim[i] > 0)
            n *= t.dim[i]; /* cannot overflow: it divides a row size that was checked */
    return n;
}

/* The dim of x that corresponds to dim `axis` of its reshape y; -1: none. */
static int axis_before_reshape(hir_type x, hir_type y, uint32_t axis) {
    int64_t before = elements_before(y, axis);
    for (uint32_t i = 0; i < x.rank; i++)
        if (x.dim[i] == y.dim[axis] && elements_before(x, i) == before) return (int)i;
    return -1;
}

/* Do all dims except `axis` keep their order? */
static bool only_moves(const hir_attr *perm, uint32_t axis) {
    int64_t last = -1;
    for (uint32_t i = 0; i < perm->n; i++) {
        if (i == axis) continue;
        if (perm->ints[i] < last) return false;
        last = perm->ints[i];
    }
    return true;
}

static bool through_reshape(const hir_module *m, hir_id op, depth_view *v) {
    hir_ref x = pass_arg(m, op, 0);
    if (v->axis >= 0) {
        int axis =
            axis_before_reshape(hir_ref_type(m, x), pass_result_type(m, op), (uint32_t)v->axis);
        if (axis < 0) return false;
        v->axis = axis;
    }
    v->v = x;
    return true;
}

static bool through_transpose(const hir_module *m, hir_id op, depth_view *v) {
    const hir_attr *perm = hir_find_attr(hir_op_at(m, op), HIR_A_PERM);
    if (v->axis < 0 || !only_moves(perm, (uint32_t)v->axis)) return false;
    *v = (depth_view){pass_arg(m, op, 0), (int)perm->ints[v->axis], v->i};
    return true;
}

static bool through_concat(const hir_module *m, hir_id op, depth_view *v) {
    const hir_op *o = hir_op_at(m, op);
    if (v->axis < 0 || v->axis != hir_attr_int(o, HIR_A_AXIS, 0)) return false;
    for (uint32_t k = 0; k < o->n_args; k++) {
        uint32_t n = (uint32_t)hir_ref_type(m, o->args[k]).dim[v->axis];
        if (v->i < n) {
            *v = n == 1 ? whole(o->args[k]) : (depth_view){o->args[k], v->axis, v->i};
            return true;
        }
        v->i -= n;
    }
    return false;
}

static bool through_slice(const hir_module *m, hir_id op, depth_view *v) {
    const hir_op *o = hir_op_at(m, op);
    int axis = (int)hir_attr_int(o, HIR_A_AXIS, 0);
    bool single = hir_attr_int(o, HIR_A_LENGTH, 0) == 1;
    if (v->axis < 0 ? !single : axis != v->axis) return false;
    uint32_t start = (uint32_t)hir_attr_int(o, HIR_A_START, 0);
    *v = (depth_view){o->args[0], axis, start + (v->axis < 0 ? 0 : v->i)};
    return true;
}

static bool through(const hir_module *m, depth_view *v) {
    hir_id op = pass_def(m, v->v);
    if (op == HIR_NONE) return false;
    const hir_op *o = hir_op_at(m, op);
    switch ((int)o->code) {
    case HIR_RESHAPE_OP: return through_reshape(m, op, v);
    case HIR_TRANSPOSE_OP: return through_transpose(m, op, v);
    case HIR_CONCAT_OP: return through_concat(m, op, v);
    case HIR_SLICE_OP: return through_slice(m, op, v);
    case HIR_BROADCAST_OP: *v = depth_operand(m, *v, 0); return true;
    case HIR_STACK_OP:
        if (v->axis < 0 || v->axis != hir_attr_int(o, HIR_A_AXIS, 0)) return false;
        *v = whole(o->args[v->i]);
        return true;
    default: return false;
    }
}

depth_view depth_through(const hir_module *m, depth_view v) {
    while (through(m, &v)) {
    }
    return v;
}

depth_view depth_operand(const hir_module *m, depth_view v, uint32_t arg) {
    hir_id op = pass_def(m, v.v);
    hir_ref x = pass_arg(m, op, arg);
    hir_type t = hir_ref_type(m, x);
    int axis = v.axis - ((int)pass_result_type(m, op).rank - (int)t.rank);
    if (v.axis < 0 || axis < 0 || t.dim[axis] == 1) return whole(x);
    return (depth_view){x, axis, v.i};
}

bool depth_reduced(const hir_module *m, depth_view v, depth_view *x) {
    hir_id op = pass_def(m, v.v);
    int axis = (int)hir_attr_int(hir_op_at(m, op), HIR_A_AXIS, 0);
    *x = (depth_view){pass_arg(m, op, 0), v.axis, v.i};
    if (v.axis >= axis) x->axis++;
    return true;
}

int64_t depth_view_elements(const hir_module *m, depth_view v) {
    hir_type t = hir_ref_type(m, v.v);
    int64_t n = pass_elements(t);
    return v.axis < 0 ? n : n / t.dim[v.axis];
}

bool depth_view_has_t(const hir_module *m, depth_view v) {
    return hir_type_has_t(hir_ref_type(m, v.v));
}
