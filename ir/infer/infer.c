/* Type inference: the checks common to all ops, then the op's own rule. */
#include <math.h>

#include "ir/infer/rules.h"

static bool (*const rules[])(hir_check *, hir_type *) = {
#define OP(id, name, stage, traits, operands, attrs, rule, doc) hir_rule_##rule,
#include "ir/ops.def"
#undef OP
};

/* ---- messages ------------------------------------------------------------------------------ */
bool hir_reject(hir_check *c, hd_error code, const char *hint, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *message = hd_vprintf(c->d->arena, format, args);
    va_end(args);
    hd_err(c->d, code, *c->op->loc, "%s: %s", c->name, message)->hint = hint;
    return false;
}

const char *hir_type_text(const hir_check *c, hir_type t) {
    return hir_type_string(c->d->arena, t);
}

const char *hir_arg_name(const hir_check *c, uint32_t i) {
    return hir_operand_name(&c->signature, i, c->d->arena);
}

/* ---- operands and attributes in general ---------------------------------------------------- */
static bool count_fits(hir_check *c) {
    const hir_signature *s = &c->signature;
    uint32_t n = c->op->n_args;
    bool rest = s->n_operands && s->operands[s->n_operands - 1].rest;
    if (rest ? n >= s->n_operands : n == s->n_operands) return true;
    const char *operands = hir_info(c->op->code)->operands;
    if (!s->n_operands) return hir_reject(c, HD_E_TYPE, NULL, "takes no operands, but has %u", n);
    return hir_reject(c, HD_E_TYPE, NULL, "has %u operand%s, but takes (%s)", n, n == 1 ? "" : "s",
                      operands);
}

static bool ref_exists(hir_check *c, uint32_t i) {
    hir_ref r = c->op->args[i];
    size_t n = 0;
    switch ((hir_ref_kind)r.kind) {
    case HIR_REF_VALUE: n = c->m->values.n; break;
    case HIR_REF_WEIGHT: n = c->m->weights.n; break;
    case HIR_REF_STATE: n = c->m->states.n; break;
    case HIR_REF_NONE: return true;
    }
    return r.index < n || hir_reject(c, HD_E_INTERNAL, NULL, "operand %s points outside the module",
                                     hir_arg_name(c, i));
}

static bool operands_complete(hir_check *c) {
    const hir_signature *s = &c->signature;
    if (!count_fits(c)) return false;
    for (uint32_t i = 0; i < c->op->n_args; i++) {
        const hir_operand_spec *spec = &s->operands[i < s->n_operands ? i : s->n_operands - 1];
        if (!ref_exists(c, i)) return false;
        if (!hir_has_arg(c, i) && !spec->optional)
            return hir_reject(c, HD_E_TYPE, NULL, "operand %s is missing", hir_arg_name(c, i));
        if (hir_has_arg(c, i) && spec->state && c->op->args[i].kind != HIR_REF_STATE)
            return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be a state ($)",
                              hir_arg_name(c, i));
    }
    return true;
}

static const char *attr_hint(hir_check *c, const char *name) {
    const char *known[HIR_MAX_OP_ATTRS];
    for (uint32_t i = 0; i < c->signature.n_attrs; i++)
        known[i] = hir_attr_name(c->signature.attrs[i].id);
    const char *near = hd_nearest(name, known, c->signature.n_attrs);
    if (near) return hd_printf(c->d->arena, "did you mean '%s'?", near);
    return c->signature.n_attrs == 0 ? "it has no attributes at all" : NULL;
}

static bool attr_fits(hir_check *c, const hir_attr *a) {
    if ((unsigned)a->id >= HIR_A_COUNT)
        return hir_reject(c, HD_E_INTERNAL, NULL, "attribute number %d does not exist", (int)a->id);
    const char *name = hir_attr_name(a->id);
    if (!hir_signature_attr(&c->signature, a->id))
        return hir_reject(c, HD_E_TYPE, attr_hint(c, name), "there is no attribute '%s'", name);
    if (hir_attr_kind_of(a->id) == HIR_ATTR_STRING && !a->s)
        return hir_reject(c, HD_E_INTERNAL, NULL, "attribute '%s' holds no string", name);
    if (hir_attr_kind_of(a->id) == HIR_ATTR_INTS && (a->n > HIR_MAX_RANK || (a->n && !a->ints)))
        return hir_reject(c, HD_E_LIMIT, NULL, "'%s' has %u entries, tensors have at most %d dims",
                          name, a->n, HIR_MAX_RANK);
    if (hir_attr_kind_of(a->id) == HIR_ATTR_FLOATS &&
        (a->n > HIR_MAX_ATTR_FLOATS || (a->n && !a->floats)))
        return hir_reject(c, HD_E_LIMIT, NULL, "'%s' has %u entries, a list has at most %d", name,
                          a->n, HIR_MAX_ATTR_FLOATS);
    return true;
}

static bool attrs_complete(hir_check *c) {
    const hir_op *op = c->op;
    for (uint32_t i = 0; i < op->n_attrs; i++) {
        if (!attr_fits(c, &op->attrs[i])) return false;
        if (i && op->attrs[i].id == op->attrs[i - 1].id)
            return hir_reject(c, HD_E_TYPE, NULL, "attribute '%s' is given twice",
                              hir_attr_name(op->attrs[i].id));
        if (i && op->attrs[i].id < op->attrs[i - 1].id)
            return hir_reject(c, HD_E_INTERNAL, NULL, "attributes are not sorted");
    }
    for (uint32_t i = 0; i < c->signature.n_attrs; i++) {
        const hir_attr_spec *spec = &c->signature.attrs[i];
        if (!spec->optional && !hir_find_attr(op, spec->id))
            return hir_reject(c, HD_E_TYPE, NULL, "attribute '%s' is missing",
                              hir_attr_name(spec->id));
    }
    return true;
}

/* The bytes of one row of the result, even as doubles, must be countable. */
static bool size_fits(hir_check *c, hir_type t) {
    int64_t elements, bytes;
    for (uint32_t i = 0; i < t.rank; i++)
        if (t.dim[i] > HIR_MAX_DIM)
            return hir_reject(c, HD_E_LIMIT, NULL, "dim %u of the result, %lld, is over %d", i,
                              (long long)t.dim[i], HIR_MAX_DIM);
    elements = hir_type_row_elements(t);
    if (elements < 0 || hd_mul_overflow(elements, (int64_t)sizeof(double), &bytes))
        return hir_reject(c, HD_E_LIMIT, NULL, "%s has more elements than can be counted",
                          hir_type_text(c, t));
    return true;
}

/* An op that reads other tokens of the sequence, or makes a state longer, needs all rows. */
static bool has_all_rows(hir_check *c) {
    if (!hir_has_trait(c->op->code, HIR_POSITION)) return true;
    for (uint32_t i = 0; i < c->op->n_args; i++)
        if (hir_has_arg(c, i) && hir_arg(c, i).rank && hir_is_row_share(hir_arg(c, i).dim[0]))
            return hir_reject(c, HD_E_TYPE, "comm.all_gather makes all rows of them",
                              "operand %s is %s, the rows of one rank", hir_arg_name(c, i),
                              hir_type_text(c, hir_arg(c, i)));
    return true;
}

bool hir_infer(const hir_module *m, const hir_op *op, hd_diags *d, hir_type *out) {
    hir_check c = {m, op, d, hir_info(op->code)->name, hir_signature_of(op->code)};
    hir_type y = {.dtype = HIR_F32};
    if (!operands_complete(&c) || !attrs_complete(&c) || !has_all_rows(&c) ||
        !rules[op->code](&c, &y) || !size_fits(&c, y))
        return false;
    *out = y;
    return true;
}

/* ---- helpers of the rules -------------------------------------------------------------------- */
bool hir_is_value(hir_check *c, uint32_t i) {
    if (c->op->args[i].kind == HIR_REF_VALUE) return true;
    return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be a value (%%), not a %s",
                      hir_arg_name(c, i),
                      c->op->args[i].kind == HIR_REF_WEIGHT ? "weight (@)" : "state ($)");
}

/* "a, b, c": the ops that take a state. */
static const char *ops_with_state(const hir_check *c) {
    hd_text text;
    hd_text_init(&text, c->d->arena);
    for (int code = 0; code < HIR_OPCODE_COUNT; code++)
        if (hir_state_operand((hir_opcode)code) != HIR_NONE &&
            hir_info((hir_opcode)code)->stage <= c->m->stage)
            hd_text_f(&text, "%s%s", text.n ? ", " : "", hir_info((hir_opcode)code)->name);
    return text.at;
}

/* Graph ops that compute each row from the same row of their operands do so for the rows of a
 * cache, [C, ..], too: k and v may be computed from what is cached. Results of the program have
 * tokens. */
static bool works_on_cached_rows(hir_opcode code) {
    const unsigned by_row = HIR_ELEMENTWISE | HIR_REDUCE | HIR_MOVE | HIR_COMPOSITE;
    return hir_info(code)->stage == HIR_STAGE_GRAPH &&
           (hir_has_trait(code, by_row) || code == HIR_LINEAR_OP || code == HIR_BLOCK_LINEAR_OP);
}

bool hir_plain(hir_check *c, uint32_t i) {
    hir_type t = hir_arg(c, i);
    if (c->op->args[i].kind == HIR_REF_STATE)
        return hir_reject(c, HD_E_TYPE, "cache_append writes a state and gives it as a value",
                          "operand %s is a state ($), which is for %s", hir_arg_name(c, i),
                          ops_with_state(c));
    if (t.dtype == HIR_I32)
        return hir_reject(c, HD_E_TYPE, "ids are for gather, pick, mark and expert_linear",
                          "operand %s is %s", hir_arg_name(c, i), hir_type_text(c, t));
    if (hir_type_has_c(t) && !works_on_cached_rows(c->op->code))
        return hir_reject(c, HD_E_TYPE,
                          "attention, and graph ops that are local to a row, read a cache",
                          "operand %s is %s, a cache", hir_arg_name(c, i), hir_type_text(c, t));
    return true;
}

bool hir_all_plain(hir_check *c) {
    for (uint32_t i = 0; i < c->op->n_args; i++)
        if (hir_has_arg(c, i) && !hir_plain(c, i)) return false;
    return true;
}

bool hir_rank_is(hir_check *c, uint32_t i, uint32_t rank, const char *form) {
    hir_type t = hir_arg(c, i);
    return t.rank == rank || hir_reject(c, HD_E_TYPE, NULL, "operand %s must be %s, not %s",
                                        hir_arg_name(c, i), form, hir_type_text(c, t));
}

bool hir_vector_of(hir_check *c, uint32_t i, int64_t n) {
    hir_type t = hir_arg(c, i);
    if (!hir_has_arg(c, i) || (t.rank == 1 && t.dim[0] == n)) return true;
    return hir_reject(c, HD_E_TYPE, NULL, "operand %s must be [%lld], not %s", hir_arg_name(c, i),
                      (long long)n, hir_type_text(c, t));
}

bool hir_last_dim(hir_check *c, uint32_t i, int64_t *n) {
    hir_type t = hir_arg(c, i);
    if (t.rank == 0 || t.dim[t.rank - 1] < 0)
        return hir_reject(c, HD_E_TYPE, NULL, "operand %s, %s, has no last axis besides tokens",
                          hir_arg_name(c, i), hir_type_text(c, t));
    *n = t.dim[t.rank - 1];
    return true;
}

bool hir_axis(hir_check *c, hir_type t, uint32_t limit, uint32_t *axis) {
    int64_t a = hir_attr_int(c->op, HIR_A_AXIS, 0);
    if (a < 0 || a >= limit)
        return hir_reject(c, HD_E_VALUE, "axes count from 0 and include the token dim",
                          "axis %lld is outside 0 .. %lld for %s", (long long)a,
                          (long long)limit - 1, hir_type_text(c, t));
    if (a == 0 && hir_type_has_t(t))
        return hir_reject(c, HD_E_VALUE, NULL, "axis 0 of %s is the token dim, which stays",
                          hir_type_text(c, t));
    if (a == 0 && hir_type_has_c(t))
        return hir_reject(c, HD_E_VALUE, NULL, "axis 0 of %s is that of positions, which stays",
                          hir_type_text(c, t));
    *axis = (uint32_t)a;
    return true;
}

bool hir_shape(hir_check *c, hir_type *y) {
    const hir_attr *a = hir_find_attr(c->op, HIR_A_SHAPE);
    y->rank = a->n;
    for (uint32_t i = 0; i < a->n; i++) {
        int64_t dim = a->ints[i];
        const bool symbol = hir_is_tokens(dim) || hir_is_length(dim);
        if (symbol && i != 0)
            return hir_reject(c, HD_E_TYPE, NULL, "%s can only be the first dim of 'shape'",
                              hir_is_tokens(dim) ? "T" : "C");
        if (hir_is_row_share(dim) && hir_row_ranks(dim) != (int64_t)c->m->ranks)
            return hir_reject(c, HD_E_TYPE, NULL,
                              "'shape' has rows of a rank of %lld, but the module is for %u",
                              (long long)hir_row_ranks(dim), c->m->ranks ? c->m->ranks : 1);
        if (!symbol && (dim < 1 || dim > HIR_MAX_DIM))
            return hir_reject(c, HD_E_VALUE, NULL,
                              "dim %u of 'shape' is %lld; dims are from 1 to %d", i, (long long)dim,
                              HIR_MAX_DIM);
        y->dim[i] = dim;
    }
    return true;
}

bool hir_finite(hir_check *c, hir_attr_id id, bool positive) {
    const hir_attr *a = hir_find_attr(c->op, id);
    if (!a || (isfinite(a->f) && (!positive || a->f > 0))) return true;
    hd_text value;
    hd_text_init(&value, c->d->arena);
    hd_text_double(&value, a->f);
    return hir_reject(c, HD_E_VALUE, NULL, "'%s' is %s; it must be finite%s", hir_attr_name(id),
                      value.at, positive ? " and more than 0" : "");
}

/* Dims are aligned at the right; 1 broadcasts; T matches T, 1 or an absent dim, and stays dim 0. So
 * does C. */
bool hir_broadcast(hir_type *dst, hir_type t) {
    uint32_t rank = dst->rank > t.rank ? dst->rank : t.rank;
    hir_type y = {.dtype = HIR_F32, .rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        int64_t a = i + dst->rank >= rank ? dst->dim[i + dst->rank - rank] : 1;
        int64_t b = i + t.rank >= rank ? t.dim[i + t.rank - rank] : 1;
        if (a != b && a != 1 && b != 1) return false;
        y.dim[i] = a == 1 ? b : a;
        if (y.dim[i] < 0 && i != 0) return false;
    }
    *dst = y;
    return true;
}

bool hir_takes_state(hir_check *c, uint32_t i, hir_state_kind kind, uint32_t rank,
                     const int64_t *dims) {
    const hir_state *s = &c->m->states.at[c->op->args[i].index];
    const hir_type want = hir_make_type(s->type.dtype, rank, dims);
    if (s->kind == kind && hir_type_equal(s->type, want)) return true;
    return hir_reject(c, HD_E_TYPE, NULL, "the state must be a %s %s, not a %s %s",
                      hir_state_kind_of(kind)->word, hir_type_text(c, want),
                      hir_state_kind_of(s->kind)->word, hir_type_text(c, s->type));
}
