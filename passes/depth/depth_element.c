/* Elements: the part of one source in a value that was computed from a stack of sources.
 *
 *     u = rmsnorm(stack(x_0, x_1, ..))        element i of u is rmsnorm(x_i)
 *
 * A norm, an elementwise op or a reduction over other dims treats each element of a stack
 * separately, so element i can be computed from x_i alone. `depth_is_element` says whether a view
 * is such an element; `depth_build_element` builds each element only once. What is computed from
 * x_i and from another value of the token, as a stream that each sublayer moves towards its output,
 * is no element: streams that are stored as one value stay one.
 */
#include <string.h>

#include "passes/depth/depth.h"

enum {
    DEEPEST = 8, /* ops between an element and its source: shared values make exponential trees */
    BUCKETS = 1 << 12,
};

static bool same_float(double a, double b) {
    return memcmp(&a, &b, sizeof a) == 0;
}

static bool is_norm(hir_opcode code) {
    return code == HIR_RMSNORM_OP || code == HIR_LAYERNORM_OP;
}

/* Does the op treat each element along `axis` of its result separately, so that an op of the same
 * kind computes one element when the dim is dropped? */
static bool is_local(const hir_module *m, hir_id op, int axis) {
    const hir_op *o = hir_op_at(m, op);
    const int last = (int)pass_result_type(m, op).rank - 1;
    if (is_norm(o->code)) return axis < last;
    return hir_has_trait(o->code, HIR_ELEMENTWISE) || hir_has_trait(o->code, HIR_REDUCE);
}

/* The view of operand k from which the element v is computed. */
static depth_view operand_of(const hir_module *m, depth_view v, uint32_t k) {
    const hir_id op = pass_def(m, v.v);
    const hir_opcode code = hir_op_at(m, op)->code;
    depth_view x = {pass_arg(m, op, k), v.axis, v.i};
    if (hir_has_trait(code, HIR_ELEMENTWISE)) return depth_operand(m, v, k);
    if (is_norm(code) && k > 0) x.axis = -1; /* gain and bias */
    if (hir_has_trait(code, HIR_REDUCE)) (void)depth_reduced(m, v, &x);
    return x;
}

static bool is_element(const hir_module *m, depth_view v, int depth) {
    v = depth_through(m, v);
    if (v.axis < 0 || !depth_view_has_t(m, v)) return true;
    const hir_id op = pass_def(m, v.v);
    if (op == HIR_NONE || depth == DEEPEST || !is_local(m, op, v.axis)) return false;
    for (uint32_t k = 0; k < hir_op_at(m, op)->n_args; k++) {
        if (pass_arg(m, op, k).kind == HIR_REF_NONE) continue;
        const depth_view x = operand_of(m, v, k);
        if (x.axis < 0 ? depth_view_has_t(m, x) : !is_element(m, x, depth + 1)) return false;
    }
    return true;
}

bool depth_is_element(const hir_module *m, depth_view v) {
    return is_element(m, v, 0);
}

/* ---- comparing elements ---------------------------------------------------------------------- */
static bool same(const hir_module *m, depth_view a, depth_view b, int depth) {
    a = depth_through(m, a);
    b = depth_through(m, b);
    if (hir_ref_equal(a.v, b.v) && a.axis == b.axis && (a.axis < 0 || a.i == b.i)) return true;
    const hir_id x = pass_def(m, a.v), y = pass_def(m, b.v);
    if (x == HIR_NONE || y == HIR_NONE || depth == DEEPEST) return false;
    const hir_op *p = hir_op_at(m, x), *q = hir_op_at(m, y);
    if (p->code != HIR_RMSNORM_OP || q->code != HIR_RMSNORM_OP) return false;
    if (!same_float(hir_attr_float(p, HIR_A_EPS, 0), hir_attr_float(q, HIR_A_EPS, 0)) ||
        !hir_ref_equal(p->args[1], q->args[1]))
        return false;
    const int last_a = (int)pass_result_type(m, x).rank - 1,
              last_b = (int)pass_result_type(m, y).rank - 1;
    if (a.axis == last_a || b.axis == last_b ||
        pass_result_type(m, x).dim[last_a] != pass_result_type(m, y).dim[last_b])
        return false;
    return same(m, operand_of(m, a, 0), operand_of(m, b, 0), depth + 1);
}

bool depth_same_element(const hir_module *m, depth_view a, depth_view b) {
    return same(m, a, b, 0);
}

/* ---- building -------------------------------------------------------------------------------- */
struct depth_known {
    hir_id op;
    uint32_t place; /* its place in the program */
    struct depth_known *next;
};

void depth_elements_start(depth_elements *e, hir_module *m, hd_arena *a) {
    uint32_t at = 1;
    *e = (depth_elements){.m = m, .arena = a, .n_ops = m->ops.n};
    e->place = hd_new_array(a, uint32_t, e->n_ops + 1);
    e->known = hd_new_array(a, struct depth_known *, BUCKETS);
    HIR_EACH(m, op, m->first) e->place[op] = at++;
}

static struct depth_known **bucket(const depth_elements *e, const hir_op *o) {
    uint32_t h = o->code;
    for (uint32_t k = 0; k < o->n_args; k++)
        h = (h ^ o->args[k].index) * 0x9e3779b1u + o->args[k].kind;
    return &e->known[(h ^ h >> 15) % BUCKETS];
}

static void note(depth_elements *e, hir_id op, uint32_t place) {
    struct depth_known **first = bucket(e, hir_op_at(e->m, op));
    struct depth_known *k = hd_new(e->arena, struct depth_known);
    *k = (struct depth_known){op, place, *first};
    *first = k;
}

void depth_note_element(depth_elements *e, hir_id op) {
    const hir_op *o = hir_op_at(e->m, op);
    if (is_norm(o->code)) note(e, op, e->place[op]);
}

/* eps and axis are the only attributes that ops of elements have. */
static bool equal(const hir_op *a, hir_opcode code, const hir_ref *args, uint32_t n, double eps,
                  int64_t axis) {
    if (a->code != code || a->n_args != n || hir_attr_int(a, HIR_A_AXIS, 0) != axis ||
        !same_float(hir_attr_float(a, HIR_A_EPS, 0), eps))
        return false;
    for (uint32_t k = 0; k < n; k++)
        if (!hir_ref_equal(a->args[k], args[k])) return false;
    return true;
}

static hir_ref once(depth_elements *e, hir_builder *b, const hir_op *like, hir_opcode code,
                    const hir_ref *args, uint32_t n, int64_t axis) {
    const uint32_t place = b->before < e->n_ops ? e->place[b->before] : 0;
    const double eps = hir_attr_float(like, HIR_A_EPS, 0);
    hir_attr attrs[2];
    uint32_t n_attrs = 0;
    if (hir_find_attr(like, HIR_A_EPS)) attrs[n_attrs++] = hir_float(HIR_A_EPS, eps);
    if (hir_find_attr(like, HIR_A_AXIS)) attrs[n_attrs++] = hir_int(HIR_A_AXIS, axis);
    hir_op probe = {.code = code, .args = (hir_ref *)args, .n_args = n};
    for (const struct depth_known *k = *bucket(e, &probe); k; k = k->next)
        if (k->place <= place && equal(hir_op_at(e->m, k->op), code, args, n, eps, axis))
            return hir_value_ref(hir_result(e->m, k->op));
    const hir_id op = hir_build(b, code, args, n, attrs, n_attrs);
    if (op == HIR_NONE) return hir_no_ref();
    note(e, op, place);
    return hir_value_ref(hir_result(e->m, op));
}

static hir_ref reshaped(depth_elements *e, hir_builder *b, hir_ref x, hir_type t) {
    const uint32_t place = b->before < e->n_ops ? e->place[b->before] : 0;
    const hir_op probe = {.code = HIR_RESHAPE_OP, .args = &x, .n_args = 1};
    if (x.kind == HIR_REF_NONE || hir_type_equal(hir_ref_type(e->m, x), t)) return x;
    for (const struct depth_known *k = *bucket(e, &probe); k; k = k->next) {
        const hir_op *o = hir_op_at(e->m, k->op);
        if (k->place <= place && o->code == HIR_RESHAPE_OP && hir_ref_equal(o->args[0], x) &&
            hir_type_equal(pass_result_type(e->m, k->op), t))
            return hir_value_ref(o->results[0]);
    }
    const hir_ref y = pass_reshape(b, x, t);
    if (y.kind == HIR_REF_VALUE) note(e, pass_def(e->m, y), place);
    return y;
}

/* x without dim `axis` of `whole`, the type to which x broadcasts (dims are aligned from the
 * right). */
static hir_ref without_dim(depth_elements *e, hir_builder *b, hir_ref x, hir_type whole, int axis) {
    hir_type t = hir_ref_type(b->m, x);
    const int at = axis - ((int)whole.rank - (int)t.rank);
    if (at < 0 || t.dim[at] != 1) return x;
    for (uint32_t i = (uint32_t)at; i + 1 < t.rank; i++)
        t.dim[i] = t.dim[i + 1];
    t.rank--;
    return reshaped(e, b, x, t);
}

hir_ref depth_build_element(depth_elements *e, hir_builder *b, depth_view v) {
    v = depth_through(e->m, v);
    if (v.axis < 0) return v.v;
    if (!depth_view_has_t(e->m, v)) return depth_element(b, v.v, (uint32_t)v.axis, v.i);
    const hir_id op = pass_def(e->m, v.v);
    const hir_op *o = hir_op_at(e->m, op);
    const hir_opcode code = o->code;
    const uint32_t n = o->n_args;
    int64_t axis = hir_attr_int(o, HIR_A_AXIS, 0);
    hir_ref *args = hd_new_array(e->arena, hir_ref, n);
    for (uint32_t k = 0; k < n; k++) {
        args[k] = pass_arg(e->m, op, k);
        if (args[k].kind == HIR_REF_NONE) continue;
        const depth_view x = operand_of(e->m, v, k);
        hir_type t = hir_ref_type(e->m, args[k]);
        if (x.axis < 0) {
            if (!is_norm(code))
                args[k] = without_dim(e, b, x.v, pass_result_type(e->m, op), v.axis);
            continue;
        }
        if (hir_has_trait(code, HIR_REDUCE) && axis > x.axis) axis--;
        for (uint32_t i = (uint32_t)x.axis; i + 1 < t.rank; i++)
            t.dim[i] = t.dim[i + 1];
        t.rank--;
        args[k] = depth_build_element(e, b, x);
        args[k] = reshaped(e, b, args[k], t);
        if (args[k].kind == HIR_REF_NONE) return args[k];
    }
    return once(e, b, hir_op_at(e->m, op), code, args, n, axis);
}
