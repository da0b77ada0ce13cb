/* Splits contractions that the checkpoint stores side by side, such as q, k and v in one matrix: an
 * axis of their outputs has parts that are divided differently. Where all users read slices of the
 * outputs, each slice becomes a contraction with its own rows of the matrix, which are a derived
 * weight. They share their x, so that fuse puts them into one kernel again. */
#include "passes/shard/shard.h"

typedef struct taker {
    hir_pass_context *c;
    hir_module *m;
    hir_uses uses;
    pass_forward forward;
    HD_VEC(hir_id) dead;
    bool failed;
} taker;

/* May rows of the weight be used as a weight of their own? It must be a weight of the checkpoint.
 * Matrices of experts would become derived weights, which are not stored in groups: those that are
 * to be stored in groups stay as they are. */
static bool may_slice(const taker *t, hir_ref r) {
    if (r.kind == HIR_REF_NONE) return true;
    if (r.kind != HIR_REF_WEIGHT) return false;
    const hir_weight *w = &t->m->weights.at[r.index];
    const bool groups =
        hir_is_quantised(w->type.dtype) || hir_is_quantised(t->c->options->matrix_dtype);
    return !hir_is_derived(w) && !w->stacked && w->type.rank <= 3 && (w->type.rank < 3 || !groups);
}

static bool is_slice(const taker *t, hir_id op, uint32_t axis) {
    const hir_op *o = hir_op_at(t->m, op);
    return o->code == HIR_SLICE_OP && hir_attr_int(o, HIR_A_AXIS, 0) == axis;
}

/* Calls `visit` for each slice of a value's axis; false: it has other users, or none. */
static bool each_slice(taker *t, hir_id v, uint32_t axis, void (*visit)(taker *, hir_id, hir_id),
                       hir_id product) {
    for (uint32_t i = 0; i < t->uses.count[v]; i++) {
        const hir_id user = t->uses.user[t->uses.first[v] + i];
        if (!is_slice(t, user, axis)) return false;
        if (visit) visit(t, product, user);
    }
    return t->uses.count[v] > 0;
}

/* Slices of the last axis, or of a reshape that makes two of it, as the heads of q, k and v. */
static bool each_slice_of(taker *t, hir_id op, void (*visit)(taker *, hir_id, hir_id)) {
    const hir_id v = hir_result(t->m, op);
    const hir_type y = hir_value_at(t->m, v)->type;
    if (t->uses.count[v] != 1) return each_slice(t, v, y.rank - 1, visit, op);
    const hir_id only = t->uses.user[t->uses.first[v]];
    if (hir_op_at(t->m, only)->code != HIR_RESHAPE_OP)
        return each_slice(t, v, y.rank - 1, visit, op);
    const hir_type heads = pass_result_type(t->m, only);
    return y.rank == 2 && heads.rank == 3 && each_slice(t, hir_result(t->m, only), 1, visit, op);
}

/* Rows start .. start + length - 1 of each matrix, or elements of each vector, as a weight of their
 * own. */
static hir_ref rows_of_weight(taker *t, hir_ref r, int64_t start, int64_t length, bool experts) {
    if (r.kind == HIR_REF_NONE) return r;
    const hir_weight from = t->m->weights.at[r.index];
    const uint32_t axis = experts;
    const int64_t blocks = experts ? from.type.dim[0] : 1;
    const int64_t row = from.type.rank > axis + 1 ? from.type.dim[axis + 1] : 1;
    hir_derived_row *rows = hd_new_array(t->c->scratch, hir_derived_row, (size_t)blocks);
    hir_derived_factor *factors = hd_new_array(t->c->scratch, hir_derived_factor, (size_t)blocks);
    for (int64_t e = 0; e < blocks; e++) {
        factors[e] = (hir_derived_factor){
            .name = from.name, .first = (e * from.type.dim[axis] + start) * row, .n = length * row};
        rows[e] = (hir_derived_row){1, &factors[e]};
    }
    hir_type type = from.type;
    type.dim[axis] = length;
    const char *name = hd_printf(t->c->scratch, "%s.rows%lld", from.name, (long long)start);
    for (int i = 2; hir_find_weight(t->m, name) != HIR_NONE; i++)
        name = hd_printf(t->c->scratch, "%s.rows%lld.%d", from.name, (long long)start, i);
    return hir_weight_ref(
        hir_add_derived_weight(t->m, name, type, rows, (uint32_t)blocks, from.loc));
}

/* Replaces a slice of the outputs by a product with its rows. */
static void replace_slice(taker *t, hir_id product, hir_id slice) {
    const hir_op *o = hir_op_at(t->m, product), *s = hir_op_at(t->m, slice);
    const hir_type of = hir_arg_type(t->m, slice, 0), to = pass_result_type(t->m, slice);
    const bool experts = o->code == HIR_EXPERT_LINEAR_OP;
    const bool heads = hir_attr_int(s, HIR_A_AXIS, 0) + 1 < of.rank;
    const int64_t each = heads ? of.dim[of.rank - 1] : 1;
    const int64_t start = hir_attr_int(s, HIR_A_START, 0) * each;
    const int64_t length = hir_attr_int(s, HIR_A_LENGTH, 0) * each;
    hir_builder b = hir_before(t->m, t->c->diags, product);
    const hir_opcode code = o->code;
    const uint32_t bias = hir_bias_of(code);
    hir_ref args[4] = {o->args[0]};
    args[1] = rows_of_weight(t, pass_arg(t->m, product, 1), start, length, experts);
    if (experts) args[2] = pass_arg(t->m, product, 2);
    args[bias] = rows_of_weight(t, pass_arg(t->m, product, bias), start, length, experts);
    hir_ref y = hir_emit(&b, code, args, bias + 1, NULL, 0);
    if (y.kind != HIR_REF_NONE) y = pass_reshape(&b, y, to);
    t->failed |= y.kind == HIR_REF_NONE;
    if (!t->failed) pass_forward_op(&t->forward, t->m, slice, y);
}

static void split_contraction(taker *t, hir_id op) {
    const hir_id v = hir_result(t->m, op);
    const hir_id only = t->uses.user[t->uses.first[v]];
    each_slice_of(t, op, replace_slice);
    if (hir_op_at(t->m, only)->code == HIR_RESHAPE_OP) hd_push(t->c->scratch, &t->dead, only);
    hd_push(t->c->scratch, &t->dead, op);
    hir_remark_add(t->c, true, op,
                   "is replaced by its parts: slices of its outputs divide by themselves");
}

bool shard_split_contractions(hir_pass_context *c) {
    taker t = {.c = c,
               .m = c->m,
               .uses = hir_compute_uses(c->m, c->scratch),
               .forward = {.arena = c->scratch}};
    HIR_EACH(c->m, op, c->m->first) {
        const hir_op *o = hir_op_at(c->m, op);
        if (!hir_is_linear(o->code) || !hir_type_has_t(hir_arg_type(c->m, op, 0))) continue;
        if (o->args[1].kind != HIR_REF_WEIGHT || !may_slice(&t, o->args[1]) ||
            !may_slice(&t, o->args[hir_bias_of(o->code)]) || !each_slice_of(&t, op, NULL))
            continue;
        split_contraction(&t, op);
    }
    if (t.failed) return false;
    pass_forward_finish(&t.forward, c->m);
    for (size_t i = 0; i < t.dead.n; i++)
        hir_erase(c->m, t.dead.at[i]);
    return true;
}
