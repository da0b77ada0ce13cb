/* Elementwise ops of a kernel's body on one vector (emit/vector_ops.h). */
#include "codegen/emit/vector_ops.h"

#include "codegen/emit/arithmetic.h"

static LLVMValueRef find_known(const hcg_vector_ops *p, hir_ref r) {
    for (size_t i = p->known.n; i-- > 0;)
        if (hir_ref_equal(p->known.at[i].ref, r)) return p->known.at[i].v;
    return NULL;
}

static void set_known(hcg_vector_ops *p, hir_ref r, LLVMValueRef v) {
    hd_push(p->e->arena, &p->known, ((hcg_known_value){r, v}));
}

static bool varies_by_row(hir_type t) {
    return t.rank >= 2 && hir_is_tokens(t.dim[0]);
}

static bool varies_by_column(hir_type t) {
    return t.rank > 0 && t.dim[t.rank - 1] != 1;
}

static const hir_op *made_by(const hir_module *m, hir_ref r) {
    hir_id op = r.kind == HIR_REF_VALUE ? hir_value_at(m, r.index)->op : HIR_NONE;
    return op == HIR_NONE ? NULL : hir_op_at(m, op);
}

/* Constants, and outer operands of one element, are splat once. */
static void prepare_operand(hcg_vector_ops *p, hir_ref r) {
    const hir_module *m = p->e->p->m;
    hir_type type = hir_ref_type(m, r);
    const hir_op *op = made_by(m, hir_through_reshapes(m, r));
    r = hir_through_reshapes(m, r);
    if (find_known(p, r)) return;
    if (op && op->code == HIR_CONST_OP)
        set_known(p, r, hcg_splat(p->e, hir_attr_float(op, HIR_A_VALUE, 0)));
    else if (!varies_by_row(type) && !varies_by_column(type) && (!op || op->parent != p->k->op))
        set_known(p, r,
                  hcg_splat_value(p->e, hcg_load_scalar(p->e, HIR_F32, hcg_arg(p->e, p->k, r))));
}

void hcg_vector_ops_begin(hcg_vector_ops *p) {
    for (size_t i = 0; i < p->n_ops; i++) {
        const hir_op *op = hir_op_at(p->e->p->m, p->ops[i]);
        for (uint32_t a = 0; a < op->n_args; a++)
            prepare_operand(p, op->args[a]);
    }
    p->n_constant = p->known.n;
}

void hcg_vector_ops_next(hcg_vector_ops *p) {
    p->known.n = p->n_constant;
}

void hcg_vector_ops_give(hcg_vector_ops *p, hir_id value, LLVMValueRef v) {
    set_known(p, hir_value_ref(value), v);
}

LLVMValueRef hcg_vector_operand(hcg_vector_ops *p, hir_ref r) {
    hcg_emit *e = p->e;
    const hir_type type = hir_ref_type(e->p->m, r);
    LLVMValueRef at = hcg_i64(e, 0), base = hcg_arg(e, p->k, hir_through_reshapes(e->p->m, r));
    LLVMValueRef width = varies_by_column(type) ? p->n : hcg_i64(e, 1);
    if (varies_by_row(type)) at = hcg_mul(e, p->row, width);
    if (!varies_by_column(type))
        return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, base, at)));
    at = hcg_add(e, at, p->column);
    return hcg_load(e, HIR_F32, hcg_at(e, e->f32, base, at), p->valid);
}

LLVMValueRef hcg_vector_ops_value(const hcg_vector_ops *p, hir_ref r) {
    return find_known(p, hir_through_reshapes(p->e->p->m, r));
}

static LLVMValueRef operand(hcg_vector_ops *p, hir_ref r) {
    LLVMValueRef v = find_known(p, hir_through_reshapes(p->e->p->m, r));
    return v ? v : hcg_vector_operand(p, r);
}

void hcg_vector_ops_emit(hcg_vector_ops *p) {
    hcg_emit *e = p->e;
    for (size_t i = 0; i < p->n_ops; i++) {
        const hir_op *op = hir_op_at(e->p->m, p->ops[i]);
        hcg_at_op(e, p->ops[i]);
        LLVMValueRef x = operand(p, op->args[0]);
        LLVMValueRef y = op->n_args > 1 ? operand(p, op->args[1]) : NULL;
        set_known(p, hir_value_ref(op->results[0]), hcg_elementwise(e, op, x, y));
    }
    LLVMValueRef place = hcg_mul(e, p->row, p->n);
    place = hcg_add(e, place, p->column);
    for (size_t i = 0; i < p->n_yields; i++) {
        const hir_dtype dtype = hir_value_at(e->p->m, p->yields[i].result)->type.dtype;
        LLVMValueRef base = hcg_arg(e, p->k, hir_value_ref(p->yields[i].result));
        hcg_store_as(e, dtype, hcg_at(e, hcg_element(e, dtype), base, place),
                     find_known(p, hir_value_ref(p->yields[i].value)), p->valid);
    }
}
