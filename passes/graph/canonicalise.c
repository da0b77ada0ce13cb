/* canonicalise: one form for expressions that can be written in several.
 *
 * Needs    a graph.
 * Does     removes ops that compute nothing (x * 1, x + 0, x / 1, --x, reshape, transpose,
 *          broadcast and slice to the same shape, stack or concat of one), shortens chains (reshape
 *          of reshape, slice of slice, transpose of transpose, slice of a stack), makes the
 *          constant the right operand of a commutative op, and writes x - c, x + (-y) and x / 2^k
 *          as one op. A stack is written as such (parts laid end to end and reshaped, a stack that
 *          is transposed), a sum over an axis that a transpose has moved without the transpose, and
 *          a stack of equal norms as the norm of a stack.
 *          A softmax over one element is 1, as an op or written out (e^s / e^s,
 *          e^(s - s)), so that a mix of one source is that source, and its scores are not computed.
 *          Norms, softmax and sigmoid that are written out become ops (written.h), the gain that is
 *          multiplied with a norm becomes the norm's, and a sum of all slices along an axis a sum
 *          over it (slices.h). Only these may differ by a rounding from what they replace, and they
 *          do not overflow where what is written out does.
 * Leaves   everything else whose result could differ by a rounding: x / 3 stays a division.
 *          Contractions are not touched.
 *
 * One walk in program order. Rules are applied to an op until none fits; its operands are canonical
 * by then, so one walk reaches the fixpoint. Of users a rule asks only how many there were at the
 * beginning, and only for gains of norms. Each rule removes an op,
 * shortens a chain or moves to a form that no rule leaves: O(ops).
 */
#include <math.h>

#include "passes/graph/slices.h"
#include "passes/graph/written.h"

typedef struct canon {
    hir_pass_context *c;
    hir_module *m;
    pass_forward forward;
    hir_builder b; /* before the op that is rewritten */
    hir_uses uses; /* of the program as it was */
    size_t n_values;
    HD_VEC(uint32_t) readers; /* by value: of it, or of what it has replaced */
} canon;

/* The result of a rule. */
typedef enum outcome { NOTHING, AGAIN, REPLACED } outcome;

static outcome visit(canon *c, hir_id op);

static uint32_t *readers(canon *c, hir_id value) {
    while (c->readers.n <= value) {
        const size_t v = c->readers.n;
        hd_push(c->c->scratch, &c->readers, v < c->n_values ? c->uses.count[v] : 0);
    }
    return &c->readers.at[value];
}

/* Replaces op's result by `with`, unless `with` is a weight: outputs and writes to state take
 * values only. */
static outcome replace(canon *c, hir_id op, hir_ref with) {
    if (with.kind != HIR_REF_VALUE) return NOTHING; /* none: reported by the builder */
    *readers(c, with.index) += *readers(c, hir_result(c->m, op));
    pass_forward_op(&c->forward, c->m, op, with);
    c->c->changed = true;
    return REPLACED;
}

/* The same, also by a weight. */
static outcome replace_by_any(canon *c, hir_id op, hir_ref with) {
    if (with.kind != HIR_REF_WEIGHT) return replace(c, op, with);
    pass_forward_op(&c->forward, c->m, op, with);
    c->c->changed = true;
    return REPLACED;
}

static bool same_type(const canon *c, hir_id op, hir_ref r) {
    return hir_type_equal(hir_ref_type(c->m, r), pass_result_type(c->m, op));
}

/* Builds an op before the current one; the new op is canonicalised, too. */
static hir_ref emit(canon *c, hir_opcode code, const hir_ref *args, uint32_t n,
                    const hir_attr *attrs, uint32_t n_attrs) {
    hir_id op = hir_build(&c->b, code, args, n, attrs, n_attrs);
    if (op == HIR_NONE) return hir_no_ref();
    visit(c, op);
    return pass_forward_get(&c->forward, hir_value_ref(hir_result(c->m, op)));
}

static hir_ref reshape_to(canon *c, hir_ref x, hir_type t) {
    hir_attr shape = hir_ints(HIR_A_SHAPE, t.dim, t.rank);
    return emit(c, HIR_RESHAPE_OP, &x, 1, &shape, 1);
}

static outcome set_arg(canon *c, hir_id op, uint32_t i, hir_ref r) {
    hir_op_at(c->m, op)->args[i] = r;
    c->c->changed = true;
    return AGAIN;
}

static outcome set_code(canon *c, hir_id op, hir_opcode code, hir_ref second) {
    hir_op_at(c->m, op)->code = code;
    return set_arg(c, op, 1, second);
}

/* ---- one element ---------------------------------------------------------------------------- */
/* Replaces op by a constant with the shape of its result. */
static outcome constant(canon *c, hir_id op, double value) {
    const hir_type t = pass_result_type(c->m, op);
    const hir_attr attrs[] = {hir_ints(HIR_A_SHAPE, t.dim, t.rank), hir_float(HIR_A_VALUE, value)};
    if (pass_type_has_c(t) || t.dtype != HIR_F32) return NOTHING;
    return replace(c, op, hir_emit(&c->b, HIR_CONST_OP, NULL, 0, attrs, 2));
}

static hir_ref behind_reshape(const canon *c, hir_ref x) {
    const hir_id op = pass_def_if(c->m, x, HIR_RESHAPE_OP);
    return op == HIR_NONE ? x : pass_arg(c->m, op, 0);
}

/* Do a and b have the same elements, with the elements of one token in the same order? */
static bool same_elements(const canon *c, hir_id op, hir_ref a, hir_ref b) {
    const hir_ref x = behind_reshape(c, a);
    const int64_t n = pass_elements(pass_result_type(c->m, op));
    return x.kind == HIR_REF_VALUE && hir_ref_equal(x, behind_reshape(c, b)) &&
           pass_elements(hir_ref_type(c->m, a)) == n;
}

static bool is_one(const canon *c, hir_ref x) {
    double value;
    return pass_const(c->m, x, &value) && value == 1;
}

/* Is it e^s / e^s or e^s (1 / e^s)? */
static bool is_exp_over_itself(const canon *c, hir_id op) {
    const hir_opcode code = hir_op_at(c->m, op)->code;
    if (is_one(c, pass_arg(c->m, op, 0)) && is_one(c, pass_arg(c->m, op, 1))) return true;
    for (uint32_t i = 0; i < 2; i++) {
        const hir_ref above = pass_arg(c->m, op, i);
        hir_ref below = behind_reshape(c, pass_arg(c->m, op, 1 - i));
        if (code == HIR_DIV_OP && i == 1) return false;
        if (code == HIR_MUL_OP) {
            const hir_id recip = pass_def_if(c->m, below, HIR_RECIP_OP);
            if (recip == HIR_NONE) continue;
            below = pass_arg(c->m, recip, 0);
        }
        if (pass_def_if(c->m, behind_reshape(c, above), HIR_EXP_OP) != HIR_NONE &&
            same_elements(c, op, above, below))
            return true;
    }
    return false;
}

/* Is it e^(s - s)? */
static bool is_exp_of_nothing(const canon *c, hir_id op) {
    const hir_id sub = pass_def_if(c->m, behind_reshape(c, pass_arg(c->m, op, 0)), HIR_SUB_OP);
    return sub != HIR_NONE && same_elements(c, op, pass_arg(c->m, sub, 0), pass_arg(c->m, sub, 1));
}

static outcome softmax(canon *c, hir_id op) {
    const hir_op *o = hir_op_at(c->m, op);
    const hir_type t = hir_ref_type(c->m, o->args[0]);
    return t.dim[hir_attr_int(o, HIR_A_AXIS, 0)] == 1 ? constant(c, op, 1) : NOTHING;
}

/* An op that only moves the elements of a constant gives a constant. */
static outcome moved_constant(canon *c, hir_id op) {
    double value;
    const bool alone = hir_op_at(c->m, op)->n_args == 1;
    return alone && pass_const(c->m, pass_arg(c->m, op, 0), &value) ? constant(c, op, value)
                                                                    : NOTHING;
}

/* ---- elementwise ops ----------------------------------------------------------------------- */
/* May operand i of the op be replaced by x without changing the type of the result? */
static bool may_stand_in(const canon *c, hir_id op, uint32_t i, hir_ref x) {
    hir_type t, other = hir_ref_type(c->m, pass_arg(c->m, op, 1 - i));
    t = hir_ref_type(c->m, x);
    if (t.dtype != HIR_F32 && x.kind == HIR_REF_VALUE) return false;
    return pass_broadcast(t, other, &t) && hir_type_equal(t, pass_result_type(c->m, op));
}

/* Removes broadcasts that an elementwise op does implicitly, and makes constants scalars. */
static outcome shrink_operands(canon *c, hir_id op) {
    for (uint32_t i = 0; i < 2; i++) {
        hir_ref r = pass_arg(c->m, op, i);
        hir_id wide = pass_def_if(c->m, r, HIR_BROADCAST_OP);
        if (wide != HIR_NONE && may_stand_in(c, op, i, pass_arg(c->m, wide, 0)))
            return set_arg(c, op, i, pass_arg(c->m, wide, 0));
        double value;
        if (!pass_const(c->m, r, &value) || hir_ref_type(c->m, r).rank == 0) continue;
        if (!hir_type_equal(hir_ref_type(c->m, pass_arg(c->m, op, 1 - i)),
                            pass_result_type(c->m, op)))
            continue;
        return set_arg(c, op, i, hir_emit_const(&c->b, value));
    }
    return NOTHING;
}

static outcome constant_to_the_right(canon *c, hir_id op) {
    double value;
    hir_ref a = pass_arg(c->m, op, 0), b = pass_arg(c->m, op, 1);
    if (!pass_is_commutative(hir_op_at(c->m, op)->code) || !pass_const(c->m, a, &value) ||
        pass_const(c->m, b, &value))
        return NOTHING;
    set_arg(c, op, 0, b);
    return set_arg(c, op, 1, a);
}

/* Is 1/v exact: is v a power of two whose reciprocal is a normal float? */
static bool reciprocal_is_exact(double v) {
    int exponent;
    return isfinite(v) && fabs(frexp(v, &exponent)) == 0.5 && exponent > -120 && exponent < 120;
}

static outcome with_constant(canon *c, hir_id op) {
    double v;
    if (!pass_const(c->m, pass_arg(c->m, op, 1), &v)) return NOTHING;
    hir_ref x = pass_arg(c->m, op, 0);
    bool same = same_type(c, op, x);
    switch ((int)hir_op_at(c->m, op)->code) {
    case HIR_ADD_OP: return same && v == 0 ? replace(c, op, x) : NOTHING;
    case HIR_MUL_OP: return same && v == 1 ? replace(c, op, x) : NOTHING;
    case HIR_SUB_OP:
        if (same && v == 0) return replace(c, op, x);
        if (hir_ref_type(c->m, pass_arg(c->m, op, 1)).rank) return NOTHING;
        return set_code(c, op, HIR_ADD_OP, hir_emit_const(&c->b, -v));
    case HIR_DIV_OP:
        if (same && v == 1) return replace(c, op, x);
        if (hir_ref_type(c->m, pass_arg(c->m, op, 1)).rank || !reciprocal_is_exact(v))
            return NOTHING;
        return set_code(c, op, HIR_MUL_OP, hir_emit_const(&c->b, 1 / v));
    default: return NOTHING;
    }
}

/* x + (-y) = x - y, x - (-y) = x + y */
static outcome with_negated(canon *c, hir_id op) {
    hir_opcode code = hir_op_at(c->m, op)->code;
    hir_id minus = pass_def_if(c->m, pass_arg(c->m, op, 1), HIR_NEG_OP);
    if (minus == HIR_NONE || (code != HIR_ADD_OP && code != HIR_SUB_OP)) return NOTHING;
    return set_code(c, op, code == HIR_ADD_OP ? HIR_SUB_OP : HIR_ADD_OP, pass_arg(c->m, minus, 0));
}

/* ---- functions that are written out ---------------------------------------------------------- */
static outcome written(canon *c, hir_id op) {
    const hir_ref y = pass_written_function(&c->b, op);
    if (y.kind == HIR_REF_NONE || !same_type(c, op, y)) return NOTHING;
    return replace(c, op, y);
}

/* Is the product summed over its last axis, so that the other operand is a query and no gain? */
static bool is_query_product(const canon *c, hir_id op) {
    const hir_id y = hir_result(c->m, op);
    for (uint32_t i = 0; y < c->n_values && i < c->uses.count[y]; i++) {
        const hir_op *user = hir_op_at(c->m, c->uses.user[c->uses.first[y] + i]);
        if (hir_has_trait(user->code, HIR_REDUCE) || user->code == HIR_RESHAPE_OP) return true;
    }
    return false;
}

/* A norm without a gain that nothing else reads, times a vector that is the same for every token, is
 * a norm with that gain. */
static outcome gain_of_norm(canon *c, hir_id op) {
    if (hir_op_at(c->m, op)->code != HIR_MUL_OP || is_query_product(c, op)) return NOTHING;
    for (uint32_t i = 0; i < 2; i++) {
        const hir_ref y = pass_arg(c->m, op, i), gain = pass_arg(c->m, op, 1 - i);
        const hir_id bare = pass_def_if(c->m, y, HIR_RMSNORM_OP);
        const hir_type g = hir_ref_type(c->m, gain), t = hir_ref_type(c->m, y);
        if (bare == HIR_NONE || pass_arg(c->m, bare, 1).kind != HIR_REF_NONE ||
            *readers(c, y.index) != 1 || g.rank != 1 || hir_type_has_t(g) ||
            g.dim[0] != t.dim[t.rank - 1])
            continue;
        const double eps = hir_attr_float(hir_op_at(c->m, bare), HIR_A_EPS, 0);
        const hir_attr attr = hir_float(HIR_A_EPS, eps);
        const hir_ref x = pass_arg(c->m, bare, 0);
        return replace(c, op, emit(c, HIR_RMSNORM_OP, (hir_ref[]){x, gain}, 2, &attr, 1));
    }
    return NOTHING;
}

static hir_ref factor_of(canon *c, const slice_sum *s, const slice_factor *f) {
    const hir_attr at = hir_int(HIR_A_AXIS, f->part_axis);
    if (f->part_axis >= 0) return emit(c, HIR_STACK_OP, f->parts, s->n, &at, 1);
    return hir_type_equal(hir_ref_type(c->m, f->whole), f->type) ? f->whole
                                                                 : reshape_to(c, f->whole, f->type);
}

/* A sum of all slices along an axis is a sum over that axis. */
static outcome sum_of_slices(canon *c, hir_id op) {
    slice_sum s;
    if (hir_op_at(c->m, op)->code != HIR_ADD_OP ||
        !pass_find_slice_sum(c->m, c->c->scratch, op, &s))
        return NOTHING;
    hir_ref x = factor_of(c, &s, &s.factor[0]);
    if (s.n_factors == 2 && x.kind != HIR_REF_NONE) {
        const hir_ref y = factor_of(c, &s, &s.factor[1]);
        x = y.kind == HIR_REF_NONE ? y : emit(c, HIR_MUL_OP, (hir_ref[]){x, y}, 2, NULL, 0);
    }
    const hir_attr axis = hir_int(HIR_A_AXIS, s.axis);
    if (x.kind != HIR_REF_NONE) x = emit(c, HIR_REDUCE_SUM_OP, &x, 1, &axis, 1);
    if (x.kind == HIR_REF_NONE) return NOTHING;
    return replace(c, op, reshape_to(c, x, pass_result_type(c->m, op)));
}

static outcome binary(canon *c, hir_id op) {
    const hir_opcode code = hir_op_at(c->m, op)->code;
    if ((code == HIR_DIV_OP || code == HIR_MUL_OP) && is_exp_over_itself(c, op))
        return constant(c, op, 1);
    outcome (*const rules[])(canon *, hir_id) = {
        shrink_operands, constant_to_the_right, with_constant, with_negated,
        written,         gain_of_norm,          sum_of_slices};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        outcome o = rules[i](c, op);
        if (o != NOTHING) return o;
    }
    return NOTHING;
}

/* --x = x; | |x| | = |x|, |-x| = |x|; relu relu x = relu x */
static outcome unary(canon *c, hir_id op) {
    hir_opcode code = hir_op_at(c->m, op)->code;
    hir_ref x = pass_arg(c->m, op, 0);
    if (code == HIR_EXP_OP && is_exp_of_nothing(c, op)) return constant(c, op, 1);
    if (code == HIR_RECIP_OP && is_one(c, x)) return constant(c, op, 1);
    if (code == HIR_EXP_OP || code == HIR_RECIP_OP) return written(c, op);
    hir_id again = pass_def_if(c->m, x, code);
    if (again != HIR_NONE && code == HIR_NEG_OP) return replace(c, op, pass_arg(c->m, again, 0));
    if (again != HIR_NONE && (code == HIR_ABS_OP || code == HIR_RELU_OP)) return replace(c, op, x);
    hir_id minus = pass_def_if(c->m, x, HIR_NEG_OP);
    if (code == HIR_ABS_OP && minus != HIR_NONE) return set_arg(c, op, 0, pass_arg(c->m, minus, 0));
    return NOTHING;
}

/* ---- moves --------------------------------------------------------------------------------- */
static hir_ref stack_of(canon *c, hir_id like, int64_t axis) {
    const hir_op *o = hir_op_at(c->m, like);
    const hir_attr at = hir_int(HIR_A_AXIS, axis);
    return emit(c, HIR_STACK_OP, o->args, o->n_args, &at, 1);
}

/* Equal parts that are laid end to end along an axis, which a reshape then divides into their
 * number and what one has, are a stack. */
static outcome reshape_of_concat(canon *c, hir_id op, hir_id concat) {
    const hir_op *o = hir_op_at(c->m, concat);
    const hir_type y = pass_result_type(c->m, op), part = hir_ref_type(c->m, o->args[0]);
    const uint32_t axis = (uint32_t)hir_attr_int(o, HIR_A_AXIS, 0);
    if (o->n_args < 2 || y.rank <= axis + 1 || y.dim[axis] != o->n_args) return NOTHING;
    for (uint32_t i = 0; i < axis; i++)
        if (y.dim[i] != part.dim[i]) return NOTHING;
    for (uint32_t i = 1; i < o->n_args; i++)
        if (!hir_type_equal(hir_ref_type(c->m, o->args[i]), part)) return NOTHING;
    const hir_ref stack = stack_of(c, concat, axis);
    return replace(c, op, stack.kind != HIR_REF_NONE ? reshape_to(c, stack, y) : stack);
}

static outcome reshape(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    if (same_type(c, op, x)) return replace(c, op, x);
    hir_id inner = pass_def_if(c->m, x, HIR_CONCAT_OP);
    if (inner != HIR_NONE && reshape_of_concat(c, op, inner) == REPLACED) return REPLACED;
    inner = pass_def_if(c->m, x, HIR_RESHAPE_OP);
    return inner == HIR_NONE ? NOTHING : set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

static outcome broadcast(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    if (same_type(c, op, x)) return replace(c, op, x);
    hir_id inner = pass_def_if(c->m, x, HIR_BROADCAST_OP);
    return inner == HIR_NONE ? NOTHING : set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

/* Does a permutation move one axis, to `to`, and leave the others in their order? */
static bool moves_one(const hir_attr *perm, uint32_t to) {
    int64_t last = -1;
    for (uint32_t i = 0; i < perm->n; i++) {
        if (i == to) continue;
        if (perm->ints[i] < last) return false;
        last = perm->ints[i];
    }
    return true;
}

/* A stack along an axis that a transpose moves is a stack along another axis. */
static outcome transpose_of_stack(canon *c, hir_id op, hir_id stack) {
    const hir_attr *perm = hir_find_attr(hir_op_at(c->m, op), HIR_A_PERM);
    const int64_t axis = hir_attr_int(hir_op_at(c->m, stack), HIR_A_AXIS, 0);
    for (uint32_t to = 0; to < perm->n; to++)
        if (perm->ints[to] == axis && moves_one(perm, to))
            return replace(c, op, stack_of(c, stack, to));
    return NOTHING;
}

/* Do the axes of more than one element keep their order, so that no element moves? T and C are such
 * axes. */
static bool moves_nothing(hir_type x, const hir_attr *perm) {
    int64_t last = -1;
    for (uint32_t i = 0; i < perm->n; i++) {
        if (x.dim[perm->ints[i]] == 1) continue;
        if (perm->ints[i] < last) return false;
        last = perm->ints[i];
    }
    return true;
}

static outcome transpose(canon *c, hir_id op) {
    const hir_attr *perm = hir_find_attr(hir_op_at(c->m, op), HIR_A_PERM);
    hir_ref x = pass_arg(c->m, op, 0);
    const hir_id stack = pass_def_if(c->m, x, HIR_STACK_OP);
    if (stack != HIR_NONE && transpose_of_stack(c, op, stack) == REPLACED) return REPLACED;
    bool identity = true;
    for (uint32_t i = 0; i < perm->n; i++)
        identity &= perm->ints[i] == (int64_t)i;
    if (identity) return replace(c, op, x);
    if (moves_nothing(hir_ref_type(c->m, x), perm))
        return replace(c, op, reshape_to(c, x, pass_result_type(c->m, op)));
    hir_id inner = pass_def_if(c->m, x, HIR_TRANSPOSE_OP);
    if (inner == HIR_NONE) return NOTHING;
    /* y's dim i is x's dim p[i], which is z's dim q[p[i]] */
    const hir_attr *q = hir_find_attr(hir_op_at(c->m, inner), HIR_A_PERM);
    int64_t both[HIR_MAX_RANK];
    identity = true;
    for (uint32_t i = 0; i < perm->n; i++) {
        both[i] = q->ints[perm->ints[i]];
        identity &= both[i] == (int64_t)i;
    }
    if (identity) return replace_by_any(c, op, pass_arg(c->m, inner, 0));
    hir_set_attr(c->m, op, hir_ints(HIR_A_PERM, both, perm->n));
    return set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

/* Is x a norm as `like` is, of another value? */
static bool is_same_norm(const canon *c, hir_ref x, hir_id like) {
    const hir_op *a = hir_op_at(c->m, like);
    const hir_id norm = pass_def_if(c->m, x, a->code);
    if (norm == HIR_NONE) return false;
    const hir_op *b = hir_op_at(c->m, norm);
    for (uint32_t i = 1; i < a->n_args; i++)
        if (!hir_ref_equal(a->args[i], b->args[i])) return false;
    return hir_attr_float(a, HIR_A_EPS, 0) == hir_attr_float(b, HIR_A_EPS, 0);
}

/* A stack of equal norms is the norm of a stack. */
static outcome stack_of_norms(canon *c, hir_id op) {
    const hir_op *o = hir_op_at(c->m, op);
    const hir_id first = pass_def(c->m, o->args[0]);
    const hir_opcode code = first == HIR_NONE ? HIR_OPCODE_COUNT : hir_op_at(c->m, first)->code;
    const int64_t axis = hir_attr_int(o, HIR_A_AXIS, 0);
    if ((code != HIR_RMSNORM_OP && code != HIR_LAYERNORM_OP) ||
        axis + 1 == pass_result_type(c->m, op).rank)
        return NOTHING;
    const uint32_t n = o->n_args;
    hir_ref *of = hd_new_array(c->c->scratch, hir_ref, n);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_same_norm(c, o->args[i], first)) return NOTHING;
        of[i] = pass_arg(c->m, pass_def(c->m, o->args[i]), 0);
    }
    const hir_attr at = hir_int(HIR_A_AXIS, axis);
    const hir_ref stack = emit(c, HIR_STACK_OP, of, n, &at, 1);
    if (stack.kind == HIR_REF_NONE) return NOTHING;
    const hir_op *norm = hir_op_at(c->m, first);
    hir_ref args[] = {stack, norm->args[1],
                      code == HIR_LAYERNORM_OP ? norm->args[2] : hir_no_ref()};
    const hir_attr eps = hir_float(HIR_A_EPS, hir_attr_float(norm, HIR_A_EPS, 0));
    return replace(c, op, emit(c, code, args, norm->n_args, &eps, 1));
}

/* A stack of one operand is a reshape that adds a dim of 1; a concat of one is its operand. */
static outcome join(canon *c, hir_id op) {
    const hir_op *o = hir_op_at(c->m, op);
    if (o->n_args != 1) return o->code == HIR_STACK_OP ? stack_of_norms(c, op) : NOTHING;
    hir_ref x = o->args[0];
    if (o->code == HIR_CONCAT_OP) return replace(c, op, x);
    return replace(c, op, reshape_to(c, x, pass_result_type(c->m, op)));
}

/* A slice of length 1 along the axis of a stack is an operand of the stack, reshaped. */
static outcome slice_of_stack(canon *c, hir_id op, hir_id stack) {
    const hir_op *o = hir_op_at(c->m, op), *s = hir_op_at(c->m, stack);
    int64_t start = hir_attr_int(o, HIR_A_START, 0);
    if (hir_attr_int(o, HIR_A_LENGTH, 0) != 1 || start < 0 || start >= s->n_args ||
        hir_attr_int(o, HIR_A_AXIS, 0) != hir_attr_int(s, HIR_A_AXIS, 0))
        return NOTHING;
    return replace(c, op, reshape_to(c, s->args[start], pass_result_type(c->m, op)));
}

/* A slice that is exactly one operand of a concat is that operand. */
static outcome slice_of_concat(canon *c, hir_id op, hir_id concat) {
    const hir_op *o = hir_op_at(c->m, op), *s = hir_op_at(c->m, concat);
    int64_t axis = hir_attr_int(o, HIR_A_AXIS, 0), start = hir_attr_int(o, HIR_A_START, 0), at = 0;
    if (axis != hir_attr_int(s, HIR_A_AXIS, 0)) return NOTHING;
    for (uint32_t i = 0; i < s->n_args && at <= start; i++) {
        int64_t n = hir_ref_type(c->m, s->args[i]).dim[axis];
        if (at == start && n == hir_attr_int(o, HIR_A_LENGTH, 0)) return replace(c, op, s->args[i]);
        at += n;
    }
    return NOTHING;
}

static outcome slice_of_slice(canon *c, hir_id op, hir_id inner) {
    const hir_op *o = hir_op_at(c->m, op), *s = hir_op_at(c->m, inner);
    if (hir_attr_int(o, HIR_A_AXIS, 0) != hir_attr_int(s, HIR_A_AXIS, 0)) return NOTHING;
    int64_t start = hir_attr_int(o, HIR_A_START, 0) + hir_attr_int(s, HIR_A_START, 0);
    hir_set_attr(c->m, op, hir_int(HIR_A_START, start));
    return set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

static outcome slice(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    if (same_type(c, op, x)) return replace(c, op, x);
    hir_id def = pass_def(c->m, x);
    if (def == HIR_NONE) return NOTHING;
    switch ((int)hir_op_at(c->m, def)->code) {
    case HIR_STACK_OP: return slice_of_stack(c, op, def);
    case HIR_CONCAT_OP: return slice_of_concat(c, op, def);
    case HIR_SLICE_OP: return slice_of_slice(c, op, def);
    default: return NOTHING;
    }
}

/* A reduction over an axis of one element is a reshape; one over an axis that a transpose has moved
 * is a reduction over that axis where it was. */
static outcome reduce(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    const int64_t axis = hir_attr_int(hir_op_at(c->m, op), HIR_A_AXIS, 0);
    if (hir_ref_type(c->m, x).dim[axis] == 1)
        return replace(c, op, reshape_to(c, x, pass_result_type(c->m, op)));
    const hir_id turned = pass_def_if(c->m, x, HIR_TRANSPOSE_OP);
    if (turned == HIR_NONE) return NOTHING;
    const hir_attr *perm = hir_find_attr(hir_op_at(c->m, turned), HIR_A_PERM);
    if (!moves_one(perm, (uint32_t)axis)) return NOTHING;
    hir_set_attr(c->m, op, hir_int(HIR_A_AXIS, perm->ints[axis]));
    return set_arg(c, op, 0, pass_arg(c->m, turned, 0));
}

/* ---- the walk ------------------------------------------------------------------------------ */
static outcome apply(canon *c, hir_id op) {
    hir_opcode code = hir_op_at(c->m, op)->code;
    if (hir_has_trait(code, HIR_ELEMENTWISE))
        return hir_op_at(c->m, op)->n_args == 2 ? binary(c, op) : unary(c, op);
    if (hir_has_trait(code, HIR_REDUCE)) return reduce(c, op);
    if (hir_has_trait(code, HIR_MOVE) && moved_constant(c, op) == REPLACED) return REPLACED;
    switch ((int)code) {
    case HIR_SOFTMAX_OP: return softmax(c, op);
    case HIR_LOGSUMEXP_OP: return reduce(c, op);
    case HIR_RESHAPE_OP: return reshape(c, op);
    case HIR_BROADCAST_OP: return broadcast(c, op);
    case HIR_TRANSPOSE_OP: return transpose(c, op);
    case HIR_STACK_OP:
    case HIR_CONCAT_OP: return join(c, op);
    case HIR_SLICE_OP: return slice(c, op);
    default: return NOTHING;
    }
}

static outcome visit(canon *c, hir_id op) {
    pass_forward_args(&c->forward, c->m, op);
    hir_builder outer = c->b;
    c->b = hir_before(c->m, c->c->diags, op);
    outcome o;
    do
        o = apply(c, op);
    while (o == AGAIN);
    c->b = outer;
    return o;
}

bool pass_canonicalise(hir_pass_context *context) {
    canon c = {.c = context, .m = context->m, .forward = {.arena = context->scratch}};
    c.uses = hir_compute_uses(c.m, context->scratch);
    c.n_values = c.m->values.n;
    size_t errors = context->diags->errors;
    HIR_EACH(c.m, op, c.m->first) visit(&c, op);
    pass_forward_finish(&c.forward, c.m);
    return context->diags->errors == errors;
}
