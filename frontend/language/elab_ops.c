/* Ops of ir/ops.def as functions of the language. The operands and attributes of an op are read
 * from its row there, so that a new op can be called without a change here. */
#include <math.h>
#include <string.h>

#include "frontend/language/elaborate.h"
#include "ir/signature.h"
#include "support/codes.h"

bool hfe_find_op(const char *name, hir_opcode *out) {
    return hir_opcode_by_name(name, out) && hir_info(*out)->stage == HIR_STAGE_GRAPH &&
           !hir_has_trait(*out, HIR_REGION) && *out != HIR_OUTPUT_OP;
}

/* ---- building ------------------------------------------------------------------------------ */
hfe_value hfe_emit(hfe_elab *e, hd_loc loc, hir_opcode code, const hir_ref *args, uint32_t n_args,
                   const hir_attr *attrs, uint32_t n_attrs) {
    if (!e->in_model)
        return hfe_fail(e, HD_E_TYPE, loc, NULL, "make it a function",
                        "tensors exist only while a model is built");
    e->operands += n_args;
    if (e->m->ops.n >= HFE_MAX_OPS || e->operands > HFE_MAX_OPERANDS) {
        hfe_fail(e, HD_E_LIMIT, loc,
                 hd_printf(e->arena, "loops are unrolled, and a spec may make %d ops", HFE_MAX_OPS),
                 "is a number of layers, streams or rounds larger than was meant?",
                 "the graph grows too large");
        e->stop = true;
        return hfe_poison();
    }
    e->b.loc = loc;
    hir_id id = hir_build(&e->b, code, args, n_args, attrs, n_attrs);
    if (id == HIR_NONE) {
        const hd_diag *d = e->trial.list.n > 0 ? &e->trial.list.at[e->trial.list.n - 1] : NULL;
        hfe_value v =
            hfe_fail(e, d ? d->code : HD_E_TYPE, loc, d ? d->cause : NULL, d ? d->hint : NULL, "%s",
                     d ? d->message : "this op cannot be built");
        e->trial.list.n = e->trial.errors = 0;
        return v;
    }
    hir_op *op = hir_op_at(e->m, id);
    op->loc = hir_keep_loc(e->m, hfe_place_of_op(e, loc));
    return op->n_results > 0 ? hfe_tensor(hir_value_ref(op->results[0])) : hfe_none();
}

static bool emit_constant(hfe_elab *e, hd_loc loc, double number, hir_ref *out) {
    hir_attr attrs[] = {hir_float(HIR_A_VALUE, number), hir_ints(HIR_A_SHAPE, NULL, 0)};
    hfe_value v = hfe_emit(e, loc, HIR_CONST_OP, NULL, 0, attrs, 2);
    *out = v.tensor;
    return hfe_is(v, HFE_TENSOR);
}

/* Returns a hint if the library has a layer with the op's name, since the layer was probably meant:
 * layers take names of weights, and more arguments. Returns NULL if there is none. */
static const char *layer_hint(hfe_elab *e, const char *op) {
    const char *page = hfe_library_page(e->p, op);
    return page
               ? hd_printf(e->arena, "this is the op; the layer '%s' is in the library: use \"%s\"",
                           op, page)
               : NULL;
}

bool hfe_operand(hfe_elab *e, hd_loc loc, hfe_value v, const char *what, hir_ref *out) {
    if (hfe_is(v, HFE_TENSOR)) {
        *out = v.tensor;
        return true;
    }
    if (hfe_is_number(v)) return emit_constant(e, loc, hfe_as_number(v), out);
    if (!hfe_is(v, HFE_POISON))
        hfe_fail(e, HD_E_TYPE, loc, NULL, NULL, "%s must be a tensor, not %s", what,
                 hfe_type_with_article(v.type));
    return false;
}

/* ---- numbers only -------------------------------------------------------------------------- */
static bool int_result(hir_opcode code, int64_t a, int64_t b, hfe_value *out) {
    int64_t y = 0;
    bool wrong = false;
    switch (code) {
    case HIR_NEG_OP: wrong = __builtin_sub_overflow((int64_t)0, a, &y); break;
    case HIR_ABS_OP:
        wrong = a < 0 && __builtin_sub_overflow((int64_t)0, a, &y);
        y = a < 0 ? y : a;
        break;
    case HIR_ADD_OP: wrong = hd_add_overflow(a, b, &y); break;
    case HIR_SUB_OP: wrong = __builtin_sub_overflow(a, b, &y); break;
    case HIR_MUL_OP: wrong = hd_mul_overflow(a, b, &y); break;
    case HIR_MAX_OP: y = a > b ? a : b; break;
    case HIR_MIN_OP: y = a < b ? a : b; break;
    default: return false;
    }
    *out = wrong ? hfe_poison() : hfe_int(y);
    return true;
}

/* Computes an op on numbers. Returns false for an op that is not known here, which is then built on
 * constants. */
static bool float_result(hir_opcode code, double a, double b, double *y) {
    switch (code) {
    case HIR_NEG_OP: *y = -a; return true;
    case HIR_ABS_OP: *y = fabs(a); return true;
    case HIR_SQRT_OP: *y = sqrt(a); return true;
    case HIR_RSQRT_OP: *y = 1 / sqrt(a); return true;
    case HIR_RECIP_OP: *y = 1 / a; return true;
    case HIR_EXP_OP: *y = exp(a); return true;
    case HIR_LOG_OP: *y = log(a); return true;
    case HIR_TANH_OP: *y = tanh(a); return true;
    case HIR_SIGMOID_OP: *y = 1 / (1 + exp(-a)); return true;
    case HIR_SOFTPLUS_OP: *y = a > 0 ? a + log1p(exp(-a)) : log1p(exp(a)); return true;
    case HIR_RELU_OP: *y = a > 0 ? a : 0; return true;
    case HIR_ERF_OP: *y = erf(a); return true;
    case HIR_SIGN_OP: *y = hd_sign(a); return true;
    case HIR_ROUND_E4M3_OP: *y = hd_round_e4m3(a); return true;
    case HIR_ROUND_E2M1_OP: *y = hd_round_e2m1(a); return true;
    case HIR_POWER_ABOVE_OP: *y = hd_power_above(a); return true;
    case HIR_ADD_OP: *y = a + b; return true;
    case HIR_SUB_OP: *y = a - b; return true;
    case HIR_MUL_OP: *y = a * b; return true;
    case HIR_DIV_OP: *y = a / b; return true;
    case HIR_MAX_OP: *y = fmax(a, b); return true;
    case HIR_MIN_OP: *y = fmin(a, b); return true;
    case HIR_WHEN_OP: *y = a > 0 ? b : 0; return true;
    default: return false;
    }
}

/* Evaluates an elementwise op whose arguments are all numbers to a number. */
static bool fold(hfe_elab *e, hir_opcode code, const hfe_call *call, const hfe_value *args,
                 uint32_t n, hfe_value *out) {
    bool ints = true;
    for (uint32_t i = 0; i < n; i++) {
        if (!hfe_is_number(args[i])) return false;
        ints &= hfe_is(args[i], HFE_INT);
    }
    if (n == 0 || n > 2 || !hir_has_trait(code, HIR_ELEMENTWISE)) return false;
    if (ints && int_result(code, args[0].integer, args[n - 1].integer, out)) {
        if (hfe_is(*out, HFE_POISON))
            hfe_fail(e, HD_E_VALUE, call->loc, "ints have 64 bits", NULL, "'%s' overflows",
                     call->name);
        return true;
    }
    double y;
    if (!float_result(code, hfe_as_number(args[0]), hfe_as_number(args[n - 1]), &y)) return false;
    *out = isfinite(y) ? hfe_float(y)
                       : hfe_fail(e, HD_E_VALUE, call->loc, NULL, NULL,
                                  "the result of '%s' is not a finite number", call->name);
    return true;
}

/* ---- shapes -------------------------------------------------------------------------------- */
static const char *shown(hfe_elab *e, hfe_value v) {
    hd_text text;
    hd_text_init(&text, e->arena);
    if (hfe_is(v, HFE_STRING)) return "a string";
    return hfe_show(v, &text) && text.n < 200 ? text.at : hfe_type_with_article(v.type);
}

bool hfe_shape(hfe_elab *e, hd_loc loc, hfe_value v, int64_t symbol, const char *what,
               hir_type *out) {
    if (hfe_is(v, HFE_POISON)) return false;
    if (!hfe_is(v, HFE_LIST) || v.list->n > HIR_MAX_RANK) {
        hfe_fail(e, HD_E_TYPE, loc, NULL, NULL, "%s is a list of at most %d dims, not %s", what,
                 HIR_MAX_RANK, shown(e, v));
        return false;
    }
    hir_type t = {.dtype = HIR_F32, .rank = (uint32_t)v.list->n};
    for (uint32_t i = 0; i < t.rank; i++) {
        hfe_value dim = hfe_item(v.list, i);
        bool is_symbol = hfe_is(dim, HFE_DIM) && i == 0 &&
                         (dim.integer == symbol || (symbol == HIR_C && hir_is_length(dim.integer)));
        if (hfe_is(dim, HFE_POISON)) return false;
        if (!is_symbol && !hfe_is(dim, HFE_INT)) {
            hfe_fail(e, HD_E_TYPE, loc, hd_printf(e->arena, "%s is %s", what, shown(e, v)), NULL,
                     "dim %u must be an int, not %s", i, shown(e, dim));
            return false;
        }
        if (!is_symbol && (dim.integer < 1 || dim.integer > HIR_MAX_DIM)) {
            hfe_fail(e, HD_E_VALUE, loc, hd_printf(e->arena, "%s is %s", what, shown(e, v)), NULL,
                     "dim %u is %lld; dims are from 1 to %d", i, (long long)dim.integer,
                     HIR_MAX_DIM);
            return false;
        }
        t.dim[i] = dim.integer;
    }
    int64_t elements = hir_type_row_elements(t), bytes;
    if (elements < 0 || hd_mul_overflow(elements, (int64_t)sizeof(double), &bytes)) {
        hfe_fail(e, HD_E_LIMIT, loc, hd_printf(e->arena, "%s is %s", what, shown(e, v)), NULL,
                 "this tensor has more elements than can be counted");
        return false;
    }
    *out = t;
    return true;
}

/* ---- attributes ---------------------------------------------------------------------------- */
static bool reject_attribute(hfe_elab *e, hd_loc loc, hir_attr_id id, const char *want,
                             const char *hint, hfe_value v) {
    hfe_fail(e, HD_E_TYPE, loc, NULL, hint, "'%s' is %s, not %s", hir_attr_name(id), want,
             shown(e, v));
    return false;
}

static bool ints_attribute(hfe_elab *e, hd_loc loc, hir_attr_id id, hfe_value v, hir_attr *out) {
    const char *want = "a list of ints";
    if (!hfe_is(v, HFE_LIST) || v.list->n > HIR_MAX_RANK)
        return reject_attribute(
            e, loc, id, hd_printf(e->arena, "a list of at most %d ints", HIR_MAX_RANK), NULL, v);
    int64_t *ints = hd_new_array(e->arena, int64_t, v.list->n);
    for (size_t i = 0; i < v.list->n; i++) {
        hfe_value item = hfe_item(v.list, i);
        if (hfe_is(item, HFE_POISON)) return false;
        if (!(hfe_is(item, HFE_INT) && item.integer >= 0) && !hfe_is(item, HFE_DIM)) {
            const char *hint = hfe_is(item, HFE_INT)
                                   ? "negative numbers mean nothing here; the tokens are written T"
                                   : NULL;
            return reject_attribute(e, loc, id, want, hint, v);
        }
        ints[i] = item.integer;
    }
    *out = hir_ints(id, ints, (uint32_t)v.list->n);
    return true;
}

static bool floats_attribute(hfe_elab *e, hd_loc loc, hir_attr_id id, hfe_value v, hir_attr *out) {
    const char *want = hd_printf(e->arena, "a list of at most %d numbers", HIR_MAX_ATTR_FLOATS);
    if (!hfe_is(v, HFE_LIST) || v.list->n > HIR_MAX_ATTR_FLOATS)
        return reject_attribute(e, loc, id, want, NULL, v);
    double *floats = hd_new_array(e->arena, double, v.list->n);
    for (size_t i = 0; i < v.list->n; i++) {
        hfe_value item = hfe_item(v.list, i);
        if (hfe_is(item, HFE_POISON)) return false;
        if (!hfe_is_number(item)) return reject_attribute(e, loc, id, want, NULL, v);
        floats[i] = hfe_as_number(item);
    }
    *out = hir_floats(id, floats, (uint32_t)v.list->n);
    return true;
}

static bool make_attribute(hfe_elab *e, hd_loc loc, hir_attr_id id, hfe_value v, hir_attr *out) {
    switch (hir_attr_kind_of(id)) {
    case HIR_ATTR_INT:
        *out = hir_int(id, v.integer);
        return hfe_is(v, HFE_INT) || reject_attribute(e, loc, id, "an int", NULL, v);
    case HIR_ATTR_FLOAT:
        if (!hfe_is_number(v)) return reject_attribute(e, loc, id, "a number", NULL, v);
        *out = hir_float(id, hfe_as_number(v));
        return true;
    case HIR_ATTR_STRING:
        *out = hir_string(id, v.string);
        return hfe_is(v, HFE_STRING) || reject_attribute(e, loc, id, "a string", NULL, v);
    case HIR_ATTR_FLOATS: return floats_attribute(e, loc, id, v, out);
    default: return ints_attribute(e, loc, id, v, out);
    }
}

/* ---- calls --------------------------------------------------------------------------------- */
/* The arguments of a call: one slot per operand and attribute of the op. */
typedef struct op_call {
    const hir_signature *s;
    hfe_value value[HIR_MAX_OPERANDS + HIR_MAX_OP_ATTRS]; /* UNSET: not given */
    hd_loc loc[HIR_MAX_OPERANDS + HIR_MAX_OP_ATTRS];
} op_call;

static const char *slot_name(const hir_signature *s, uint32_t slot) {
    return slot < s->n_operands ? s->operands[slot].name
                                : hir_attr_name(s->attrs[slot - s->n_operands].id);
}

static const char *op_signature(hfe_elab *e, const hir_signature *s, const char *name) {
    hd_text out;
    hd_text_init(&out, e->arena);
    hd_text_f(&out, "it is %s(", name);
    for (uint32_t i = 0; i < s->n_operands + s->n_attrs; i++) {
        bool optional =
            i < s->n_operands ? s->operands[i].optional : s->attrs[i - s->n_operands].optional;
        hd_text_f(&out, "%s%s%s", i > 0 ? ", " : "", slot_name(s, i), optional ? " = none" : "");
    }
    hd_text_add(&out, ")");
    return out.at;
}

static bool slot_by_name(hfe_elab *e, const hfe_call *call, const hfe_passed *arg,
                         const hir_signature *s, uint32_t *slot) {
    hfe_candidates names = {0};
    for (*slot = 0; *slot < s->n_operands + s->n_attrs; ++*slot) {
        if (strcmp(slot_name(s, *slot), arg->name) == 0) return true;
        hd_push(e->arena, &names.list, slot_name(s, *slot));
    }
    hfe_fail(e, HD_E_NAME, arg->loc, op_signature(e, s, call->name),
             hfe_did_you_mean(e, arg->name, &names), "the op '%s' has no operand or attribute '%s'",
             call->name, arg->name);
    return false;
}

static bool bind(hfe_elab *e, const hfe_call *call, op_call *c) {
    uint32_t position = 0, slots = c->s->n_operands + c->s->n_attrs;
    for (size_t i = 0; i < call->n_args; i++) {
        const hfe_passed *arg = &call->args[i];
        uint32_t slot = position;
        if (arg->name) {
            if (!slot_by_name(e, call, arg, c->s, &slot)) return false;
        } else if (position++ >= slots) {
            hfe_fail(e, HD_E_TYPE, arg->loc, op_signature(e, c->s, call->name),
                     layer_hint(e, call->name), "too many arguments for the op '%s'", call->name);
            return false;
        }
        if (!hfe_is(c->value[slot], HFE_UNSET)) {
            hfe_fail(e, HD_E_TYPE, arg->loc, op_signature(e, c->s, call->name), NULL,
                     "'%s' is given twice to the op '%s'", slot_name(c->s, slot), call->name);
            return false;
        }
        c->value[slot] = arg->value;
        c->loc[slot] = arg->value_loc;
    }
    return true;
}

static bool is_left_out(hfe_value v) {
    return hfe_is(v, HFE_UNSET) || hfe_is(v, HFE_NONE);
}

typedef struct operands {
    HD_VEC(hir_ref) list;
} operands;

static bool add_operand(hfe_elab *e, const hfe_call *call, hd_loc loc, hfe_value v,
                        const char *name, operands *out) {
    hir_ref ref;
    if (hfe_is(v, HFE_STRING)) {
        hfe_fail(e, HD_E_TYPE, loc, NULL, layer_hint(e, call->name),
                 "%s: operand %s must be a tensor, not a string", call->name, name);
        return false;
    }
    if (!hfe_operand(e, loc, v, hd_printf(e->arena, "%s: operand %s", call->name, name), &ref))
        return false;
    hd_push(e->arena, &out->list, ref);
    return true;
}

/* Adds the list of operands which stands for the repeated operand of an op. */
static bool add_rest(hfe_elab *e, const hfe_call *call, hd_loc loc, hfe_value v, const char *name,
                     operands *out) {
    if (!hfe_is(v, HFE_LIST)) {
        hfe_fail(e, HD_E_TYPE, loc, NULL, NULL, "%s: operand %s must be a list of tensors, not %s",
                 call->name, name, hfe_type_with_article(v.type));
        return false;
    }
    for (size_t k = 0; k < v.list->n; k++)
        if (!add_operand(e, call, loc, hfe_item(v.list, k), name, out)) return false;
    return true;
}

static bool gather_operands(hfe_elab *e, const hfe_call *call, const op_call *c, operands *out) {
    for (uint32_t i = 0; i < c->s->n_operands; i++) {
        const hir_operand_spec *spec = &c->s->operands[i];
        bool ok = true;
        if (!is_left_out(c->value[i])) {
            ok = spec->rest ? add_rest(e, call, c->loc[i], c->value[i], spec->name, out)
                            : add_operand(e, call, c->loc[i], c->value[i], spec->name, out);
        } else if (spec->optional) {
            hd_push(e->arena, &out->list, hir_no_ref());
        } else {
            hfe_fail(e, HD_E_TYPE, call->loc, op_signature(e, c->s, call->name), NULL,
                     "the op '%s' needs its operand '%s'", call->name, spec->name);
            ok = false;
        }
        if (!ok) return false;
    }
    return true;
}

/* Makes a negative axis positive: it counts from the last axis of the first operand, or, for
 * `stack`, of the result. */
static void normalise_axis(hfe_elab *e, hir_opcode code, const operands *args, hir_attr *attr) {
    if (attr->id == HIR_A_AXIS && attr->i < 0 && args->list.n > 0) {
        int64_t rank = hir_ref_type(e->m, args->list.at[0]).rank + (code == HIR_STACK_OP);
        attr->i = attr->i >= -rank ? attr->i + rank : attr->i;
    }
}

static bool gather_attributes(hfe_elab *e, hir_opcode code, const hfe_call *call, const op_call *c,
                              const operands *args, hir_attr *attrs, uint32_t *n) {
    for (uint32_t i = 0; i < c->s->n_attrs; i++) {
        const hir_attr_spec *spec = &c->s->attrs[i];
        uint32_t slot = c->s->n_operands + i;
        if (is_left_out(c->value[slot])) {
            if (!spec->optional) {
                hfe_fail(e, HD_E_TYPE, call->loc, op_signature(e, c->s, call->name), NULL,
                         "the op '%s' needs its attribute '%s'", call->name,
                         hir_attr_name(spec->id));
                return false;
            }
            continue;
        }
        if (!make_attribute(e, c->loc[slot], spec->id, c->value[slot], &attrs[*n])) return false;
        normalise_axis(e, code, args, &attrs[(*n)++]);
    }
    return true;
}

hfe_value hfe_call_op(hfe_elab *e, hir_opcode code, const hfe_call *call) {
    hir_signature s = hir_signature_of(code);
    op_call c = {.s = &s};
    hfe_value folded;
    operands args = {0};
    hir_attr attrs[HIR_MAX_OP_ATTRS];
    uint32_t n_attrs = 0;
    if (!bind(e, call, &c) || call->poisoned) return hfe_poison();
    if (fold(e, code, call, c.value, s.n_operands, &folded)) return folded;
    if (!gather_operands(e, call, &c, &args) ||
        !gather_attributes(e, code, call, &c, &args, attrs, &n_attrs))
        return hfe_poison();
    return hfe_emit(e, call->loc, code, args.list.at, (uint32_t)args.list.n, attrs, n_attrs);
}
