/* The kernel form scatter_rows of kernel.sequence: y[e] = sum of the rows of x whose id is e.
 *
 * Columns are groups of 16 elements of a row. A thread goes through the rows of x in their order and
 * adds its own columns of each to the row of y that the id names: no row of y has to be sorted or
 * shared, and sums do not depend on the threads. Ids outside of y name no row; with `beyond`, those
 * after the last row name row `beyond`.
 */
#include "codegen/gradient/gradient.h"

enum { COLUMN = 16 };

typedef struct scattering {
    LLVMValueRef x, ids;
    hcg_gradient_result y;
    int64_t width, slots, length; /* slots: ids of a token */
    int64_t beyond;               /* -1: none */
    LLVMValueRef from, to;        /* the thread's elements of a row */
    LLVMValueRef row, of;         /* the row of y that is written, and that of x that is added */
} scattering;

static void clear(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef n) {
    const scattering *s = context;
    hcg_store(e, hcg_at(e, e->f32, s->row, at), hcg_splat(e, 0), n);
}

static void add(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef n) {
    const scattering *s = context;
    LLVMValueRef to = hcg_at(e, e->f32, s->row, at);
    LLVMValueRef sum = hcg_fadd(e, hcg_load(e, HIR_F32, to, n),
                                hcg_load(e, HIR_F32, hcg_at(e, e->f32, s->of, at), n));
    hcg_store(e, to, sum, n);
}

static LLVMValueRef row_of(hcg_emit *e, const scattering *s, LLVMValueRef base, LLVMValueRef i) {
    return hcg_at(e, e->f32, base, hcg_mul_const(e, i, s->width));
}

static void clear_rows(hcg_emit *e, scattering *s) {
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, s->length), hcg_i64(e, 1), "clear", 0, NULL);
    s->row = row_of(e, s, s->y.at, l.index);
    hcg_each_vector(e, s->from, s->to, s->width, clear, s);
    hcg_loop_end(e, &l, NULL);
}

/* The row of y that row i of x is added to, and *n, 1, or 0 where there is none. */
static LLVMValueRef find_row(hcg_emit *e, const scattering *s, LLVMValueRef i, LLVMValueRef *n) {
    LLVMValueRef id = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, s->ids, i), "id");
    LLVMSetAlignment(id, 4);
    id = LLVMBuildSExt(e->b, id, e->i64, "");
    LLVMValueRef length = hcg_i64(e, s->length);
    if (s->beyond >= 0)
        id = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSGE, id, length, ""),
                             hcg_i64(e, s->beyond), id, "");
    LLVMValueRef there = LLVMBuildICmp(e->b, LLVMIntULT, id, length, "there");
    *n = LLVMBuildZExt(e->b, there, e->i64, "");
    return id;
}

static void add_rows(hcg_emit *e, scattering *s) {
    LLVMValueRef first = hcg_mul_const(e, e->r0, s->slots), end = hcg_mul_const(e, e->r1, s->slots);
    hcg_loop l = hcg_loop_begin(e, first, end, hcg_i64(e, 1), "row", 0, NULL);
    LLVMValueRef n, id = find_row(e, s, l.index, &n);
    hcg_loop once = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "there", 0, NULL);
    s->row = row_of(e, s, s->y.at, id), s->of = row_of(e, s, s->x, l.index);
    hcg_each_vector(e, s->from, s->to, s->width, add, s);
    hcg_loop_end(e, &once, NULL);
    hcg_loop_end(e, &l, NULL);
}

static int64_t width_of(const hir_module *m, hir_id op) {
    return hir_type_row_elements(hir_value_at(m, hir_result(m, op))->type) /
           hir_attr_int(hir_op_at(m, op), HIR_A_LENGTH, 1);
}

static bool emit_scatter_rows(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const size_t errors = e->diags->errors;
    scattering s = {
        .width = width_of(m, id),
        .slots = hir_type_row_elements(hir_arg_type(m, id, 1)),
        .length = hir_attr_int(op, HIR_A_LENGTH, 1),
        .beyond = hir_attr_int(op, HIR_A_BEYOND, -1),
    };
    s.x = hcg_gradient_operand(e, k, op, 0);
    s.ids = hcg_gradient_operand(e, k, op, 1);
    s.y = hcg_find_gradient(e, k, id);
    if (e->diags->errors != errors) return false;
    s.from = hcg_mul_const(e, e->c0, COLUMN);
    s.to = hcg_smaller(e, hcg_mul_const(e, e->c1, COLUMN), hcg_i64(e, s.width));
    hcg_at_op(e, id);
    if (!s.y.adds) clear_rows(e, &s);
    add_rows(e, &s);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    return (width_of(m, hir_form_op(m, kernel)) + COLUMN - 1) / COLUMN;
}

const hcg_form hcg_form_scatter_rows = {.emit = emit_scatter_rows, .columns = columns};
