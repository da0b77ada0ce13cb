/* canonicalise: one form for expressions that can be written in several.
 *
 * Needs    a graph.
 * Does     removes ops that compute nothing (x * 1, x + 0, x / 1, --x, reshape, transpose,
 *          broadcast and slice to the same shape, stack or concat of one), shortens chains (reshape
 *          of reshape, slice of slice, transpose of transpose, slice of a stack), makes the
 *          constant the right operand of a commutative op, and writes x - c, x + (-y) and x / 2^k
 *          as one op. A softmax over one element is 1, as an op or written out (e^s / e^s,
 *          e^(s - s)), so that a mix of one source is that source, and its scores are not computed.
 * Leaves   everything whose result could differ by a rounding: x / 3 stays a division. Norms,
 *          softmax over several elements and contractions are not touched.
 *
 * One walk in program order. Rules are applied to an op until none fits; its operands are canonical
 * by then and no rule looks at users, so one walk reaches the fixpoint. Each rule removes an op,
 * shortens a chain or moves to a form that no rule leaves: O(ops).
 */
#include <math.h>

#include "passes/util.h"

typedef struct canon {
    hir_pass_context *c;
    hir_module *m;
    pass_forward forward;
    hir_builder b; /* before the op that is rewritten */
} canon;

/* The result of a rule. */
typedef enum outcome { NOTHING, AGAIN, REPLACED } outcome;

static outcome visit(canon *c, hir_id op);

/* Replaces op's result by `with`, unless `with` is a weight: outputs and writes to state take
 * values only. */
static outcome replace(canon *c, hir_id op, hir_ref with) {
    if (with.kind != HIR_REF_VALUE) return NOTHING; /* none: reported by the builder */
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

static outcome binary(canon *c, hir_id op) {
    const hir_opcode code = hir_op_at(c->m, op)->code;
    if ((code == HIR_DIV_OP || code == HIR_MUL_OP) && is_exp_over_itself(c, op))
        return constant(c, op, 1);
    outcome (*const rules[])(canon *, hir_id) = {shrink_operands, constant_to_the_right,
                                                 with_constant, with_negated};
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
    hir_id again = pass_def_if(c->m, x, code);
    if (again != HIR_NONE && code == HIR_NEG_OP) return replace(c, op, pass_arg(c->m, again, 0));
    if (again != HIR_NONE && (code == HIR_ABS_OP || code == HIR_RELU_OP)) return replace(c, op, x);
    hir_id minus = pass_def_if(c->m, x, HIR_NEG_OP);
    if (code == HIR_ABS_OP && minus != HIR_NONE) return set_arg(c, op, 0, pass_arg(c->m, minus, 0));
    return NOTHING;
}

/* ---- moves --------------------------------------------------------------------------------- */
static outcome reshape(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    if (same_type(c, op, x)) return replace(c, op, x);
    hir_id inner = pass_def_if(c->m, x, HIR_RESHAPE_OP);
    return inner == HIR_NONE ? NOTHING : set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

static outcome broadcast(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    if (same_type(c, op, x)) return replace(c, op, x);
    hir_id inner = pass_def_if(c->m, x, HIR_BROADCAST_OP);
    return inner == HIR_NONE ? NOTHING : set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

static outcome transpose(canon *c, hir_id op) {
    const hir_attr *perm = hir_find_attr(hir_op_at(c->m, op), HIR_A_PERM);
    hir_ref x = pass_arg(c->m, op, 0);
    bool identity = true;
    for (uint32_t i = 0; i < perm->n; i++)
        identity &= perm->ints[i] == (int64_t)i;
    if (identity) return replace(c, op, x);
    hir_id inner = pass_def_if(c->m, x, HIR_TRANSPOSE_OP);
    if (inner == HIR_NONE) return NOTHING;
    /* y's dim i is x's dim p[i], which is z's dim q[p[i]] */
    const hir_attr *q = hir_find_attr(hir_op_at(c->m, inner), HIR_A_PERM);
    int64_t both[HIR_MAX_RANK];
    for (uint32_t i = 0; i < perm->n; i++)
        both[i] = q->ints[perm->ints[i]];
    hir_set_attr(c->m, op, hir_ints(HIR_A_PERM, both, perm->n));
    return set_arg(c, op, 0, pass_arg(c->m, inner, 0));
}

/* A stack of one operand is a reshape that adds a dim of 1; a concat of one is its operand. */
static outcome join(canon *c, hir_id op) {
    const hir_op *o = hir_op_at(c->m, op);
    if (o->n_args != 1) return NOTHING;
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

/* A reduction over an axis of one element is a reshape. */
static outcome reduce(canon *c, hir_id op) {
    hir_ref x = pass_arg(c->m, op, 0);
    if (hir_ref_type(c->m, x).dim[hir_attr_int(hir_op_at(c->m, op), HIR_A_AXIS, 0)] != 1)
        return NOTHING;
    return replace(c, op, reshape_to(c, x, pass_result_type(c->m, op)));
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
    size_t errors = context->diags->errors;
    HIR_EACH(c.m, op, c.m->first) visit(&c, op);
    pass_forward_finish(&c.forward, c.m);
    return context->diags->errors == errors;
}
