/* The kernel form ngram_grad of kernel.sequence: the gradient of a table whose rows hashes of the
 * last tokens name: dtable[row(t, j)] += dy[t, j], token by token.
 *
 * Columns are groups of 16 elements of a row; a thread goes through all tokens for its own columns
 * and finds their rows itself, which takes some integer arithmetic. A row that several tokens or
 * several hashes name is added to in their order.
 */
#include "codegen/gradient/gradient.h"
#include "codegen/recurrence/ngram.h"

enum { COLUMN = 16 };

typedef struct adding {
    hcg_ngram g;
    LLVMValueRef dy;
    hcg_gradient_result table;
    int64_t rows, width;
    const LLVMValueRef *with; /* the row that is cleared; or a token, then its rows */
} adding;

/* For all vectors of the thread's columns. */
static void for_vectors(hcg_emit *e, adding *a, hcg_vector_fn *each, const LLVMValueRef *with) {
    LLVMValueRef to = hcg_smaller(e, hcg_mul_const(e, e->c1, COLUMN), hcg_i64(e, a->width));
    a->with = with;
    hcg_each_vector(e, hcg_mul_const(e, e->c0, COLUMN), to, a->width, each, a);
}

static LLVMValueRef row_at(hcg_emit *e, const adding *a, LLVMValueRef base, LLVMValueRef row,
                           LLVMValueRef at) {
    return hcg_at(e, e->f32, base, hcg_add(e, hcg_mul_const(e, row, a->width), at));
}

static void clear_vector(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef valid) {
    const adding *a = context;
    hcg_store(e, row_at(e, a, a->table.at, a->with[0], at), hcg_splat(e, 0), valid);
}

static void clear_table(hcg_emit *e, adding *a) {
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, a->rows), hcg_i64(e, 1), "clear", 0, NULL);
    for_vectors(e, a, clear_vector, &l.index);
    hcg_loop_end(e, &l, NULL);
}

static void add_vector(hcg_emit *e, const void *context, LLVMValueRef at, LLVMValueRef valid) {
    const adding *a = context;
    LLVMValueRef token = hcg_mul_const(e, a->with[0], a->g.heads);
    for (int64_t j = 0; j < a->g.heads; j++) {
        LLVMValueRef from = row_at(e, a, a->dy, hcg_add(e, token, hcg_i64(e, j)), at);
        LLVMValueRef to = row_at(e, a, a->table.at, a->with[1 + j], at), x;
        x = hcg_fadd(e, hcg_load(e, HIR_F32, to, valid), hcg_load(e, HIR_F32, from, valid));
        hcg_store(e, to, x, valid);
    }
}

static bool emit_ngram_grad(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const hir_type table = hir_value_at(m, op->results[0])->type;
    const size_t errors = e->diags->errors;
    adding a = {.g = hcg_ngram_of(e, op), .width = table.dim[table.rank - 1]};
    a.rows = table.rank == 3 ? table.dim[0] * table.dim[1] : table.dim[0];
    a.g.ids = hcg_gradient_operand(e, k, op, 0);
    a.dy = hcg_gradient_operand(e, k, op, 1);
    a.table = hcg_find_gradient(e, k, id);
    if (e->diags->errors != errors) return false;
    LLVMValueRef *with = hd_new_array(e->arena, LLVMValueRef, (size_t)a.g.heads + 1);
    hcg_at_op(e, id);
    if (!a.table.adds) clear_table(e, &a);
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, 1), "token", 0, NULL);
    with[0] = l.index;
    hcg_ngram_rows(e, &a.g, l.index, with + 1);
    for_vectors(e, &a, add_vector, with);
    hcg_loop_end(e, &l, NULL);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    const hir_type dy = hir_arg_type(m, hir_form_op(m, kernel), 1);
    return (dy.dim[2] + COLUMN - 1) / COLUMN;
}

const hcg_form hcg_form_ngram_grad = {.emit = emit_ngram_grad, .columns = columns};
