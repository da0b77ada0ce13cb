/* The kernel form sum_tokens of kernel.sequence: y = sum over tokens of x.
 *
 * Columns are groups of 16 elements of a row; a thread goes through all tokens for its own columns,
 * several vectors at once. Sums are in f32: those of blocks of 64 tokens are added in their order, so
 * that the error of a long sequence is that of T / 64 additions.
 */
#include "codegen/gradient/gradient.h"

enum { COLUMN = 16, BLOCK = 64, MOST_VECTORS = 4 };

typedef struct summing {
    LLVMValueRef x;
    hcg_gradient_result y;
    int64_t width;
} summing;

/* `count` vectors from element `at` on, the last of `valid` lanes (NULL: all), of tokens from .. to
 * - 1: their sums are added to sum[]. */
static void add_tokens(hcg_emit *e, const summing *s, LLVMValueRef at, int count,
                       LLVMValueRef valid, LLVMValueRef from, LLVMValueRef to, LLVMValueRef *sum) {
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, 1), "token", (unsigned)count, sum);
    LLVMValueRef row = hcg_add(e, hcg_mul_const(e, l.index, s->width), at);
    for (int i = 0; i < count; i++) {
        LLVMValueRef p = hcg_at(e, e->f32, s->x, hcg_add(e, row, hcg_i64(e, i * e->level->lanes)));
        LLVMValueRef n = i == count - 1 ? valid : NULL;
        sum[i] = hcg_fadd(e, l.carried[i], hcg_load(e, HIR_F32, p, n));
    }
    hcg_loop_end(e, &l, sum);
    for (int i = 0; i < count; i++)
        sum[i] = l.carried[i];
}

static void sum_vectors(hcg_emit *e, const summing *s, LLVMValueRef at, int count,
                        LLVMValueRef valid) {
    LLVMValueRef sum[MOST_VECTORS], block[MOST_VECTORS], to[MOST_VECTORS];
    for (int i = 0; i < count; i++) {
        to[i] = hcg_at(e, e->f32, s->y.at, hcg_add(e, at, hcg_i64(e, i * e->level->lanes)));
        sum[i] = hcg_sum_begins(e, &s->y, to[i], i == count - 1 ? valid : NULL);
    }
    hcg_loop l = hcg_loop_begin(e, e->r0, e->r1, hcg_i64(e, BLOCK), "block", (unsigned)count, sum);
    for (int i = 0; i < count; i++)
        block[i] = hcg_splat(e, 0);
    LLVMValueRef end = hcg_smaller(e, hcg_add(e, l.index, hcg_i64(e, BLOCK)), e->r1);
    add_tokens(e, s, at, count, valid, l.index, end, block);
    for (int i = 0; i < count; i++)
        block[i] = hcg_fadd(e, l.carried[i], block[i]);
    hcg_loop_end(e, &l, block);
    for (int i = 0; i < count; i++)
        hcg_store(e, to[i], l.carried[i], i == count - 1 ? valid : NULL);
}

/* Whole groups of vectors, then single ones, then what is left of a row. */
static void sum_columns(hcg_emit *e, const summing *s) {
    const int64_t lanes = e->level->lanes, rest = s->width % lanes;
    LLVMValueRef from = hcg_mul_const(e, e->c0, COLUMN);
    LLVMValueRef to = hcg_smaller(e, hcg_mul_const(e, e->c1, COLUMN), hcg_i64(e, s->width));
    for (int count = MOST_VECTORS; count >= 1; count -= MOST_VECTORS - 1) {
        LLVMValueRef whole = hcg_sub(e, to, hcg_i64(e, count * lanes - 1));
        hcg_loop l = hcg_loop_begin(e, from, whole, hcg_i64(e, count * lanes), "columns", 0, NULL);
        sum_vectors(e, s, l.index, count, NULL);
        hcg_loop_end(e, &l, NULL);
        from = l.index;
    }
    if (!rest) return;
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, lanes), "rest", 0, NULL);
    sum_vectors(e, s, l.index, 1, hcg_i64(e, rest));
    hcg_loop_end(e, &l, NULL);
}

static bool emit_sum_tokens(hcg_emit *e, const hcg_kernel *k) {
    const hir_module *m = e->p->m;
    const hir_id id = hir_form_op(m, k->op);
    const hir_op *op = hir_op_at(m, id);
    const size_t errors = e->diags->errors;
    summing s = {.width = hir_type_row_elements(hir_arg_type(m, id, 0))};
    s.x = hcg_gradient_operand(e, k, op, 0);
    s.y = hcg_find_gradient(e, k, id);
    if (e->diags->errors != errors) return false;
    hcg_at_op(e, id);
    sum_columns(e, &s);
    return true;
}

static int64_t columns(const hir_module *m, hir_id kernel) {
    const int64_t width = hir_type_row_elements(hir_arg_type(m, hir_form_op(m, kernel), 0));
    return (width + COLUMN - 1) / COLUMN;
}

const hcg_form hcg_form_sum_tokens = {.emit = emit_sum_tokens, .columns = columns};
