/* Rows of x for weights in pairs, and single rows of such weights (bf16/pairs.h). The products
 * themselves are in matmul/gemm.c: a step of a tile is all that differs from other weights. */
#include "codegen/matmul/backends/bf16/pairs.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"

/* Where x is rounded to bf16 there is an instruction for it: numbers below 2^-126 become zeros,
 * which is what the products make of them. */
static void store_whole(hcg_emit *e, hir_dtype dtype, LLVMValueRef p, LLVMValueRef v) {
    LLVMSetAlignment(LLVMBuildStore(e->b, hcg_narrow(e, dtype, v), p),
                     (unsigned)hir_dtype_bytes(dtype));
}

/* prepare(x, rows, k, out): out[r][0 .. even), zeros beyond k */
static hcg_shared prepare_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr}, elem = hcg_element(e, dtype);
    hcg_shared s;
    const char *name = hd_printf(e->arena, "pairs_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 4, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), lanes = hcg_i64(e, e->level->lanes);
    LLVMValueRef k = s.param[2], odd = LLVMBuildAnd(e->b, k, one, "");
    LLVMValueRef even = hcg_add(e, k, odd);
    hcg_loop rows = hcg_loop_begin(e, zero, s.param[1], one, "row", 0, NULL);
    LLVMValueRef x = hcg_at(e, e->f32, s.param[0], hcg_mul(e, rows.index, k));
    LLVMValueRef out = hcg_at(e, elem, s.param[3], hcg_mul(e, rows.index, even));
    LLVMValueRef whole = hcg_sub(e, k, hcg_i64(e, (int64_t)e->level->lanes - 1));
    hcg_loop l = hcg_loop_begin(e, zero, whole, lanes, "k", 0, NULL);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, l.index), NULL);
    store_whole(e, dtype, hcg_at(e, elem, out, l.index), v);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, even, lanes, "k_rest", 0, NULL); /* once or never */
    LLVMValueRef in = hcg_sub(e, k, rest.index);
    v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, rest.index), in);
    hcg_store_as(e, dtype, hcg_at(e, elem, out, rest.index), v, hcg_sub(e, even, rest.index));
    hcg_loop_end(e, &rest, NULL);
    hcg_loop_end(e, &rows, NULL);
    hcg_shared_end(e, &s);
    return s;
}

static int64_t even(int64_t k) {
    return k + k % 2;
}

void hcg_pair_begin(hcg_emit *e, hcg_product *p, hir_dtype dtype) {
    if (dtype == HIR_BF16 || p->k % 2)
        p->x_workspace = hcg_scratch(e, p->rows * (uint64_t)even(p->k) * hir_dtype_bytes(dtype));
}

void hcg_pair_prepare(hcg_emit *e, hcg_product *p, hir_dtype dtype) {
    p->length = p->ldx = hcg_i64(e, even(p->k));
    if (!p->x_workspace) return;
    hcg_shared f = prepare_function(e, dtype);
    LLVMValueRef args[] = {p->x, p->n_rows, hcg_i64(e, p->k), p->x_workspace};
    hcg_shared_call(e, &f, args, 4);
    p->x = p->x_workspace;
}

/* row(panel, row in it, k, out), a pair at a time */
static hcg_shared row_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "pair_row", params, 4, &s)) return s;
    LLVMValueRef one = hcg_i64(e, 1), panel = hcg_at(e, e->i32, s.param[0], s.param[1]);
    LLVMValueRef pairs = LLVMBuildLShr(e->b, s.param[2], one, ""), bits[2];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), pairs, one, "pair", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, l.index, HIR_PANEL);
    LLVMValueRef both = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, panel, at), "");
    LLVMValueRef out = hcg_at(e, e->i64, s.param[3], l.index);
    bits[0] = LLVMBuildShl(e->b, both, LLVMConstInt(e->i32, 16, false), "");
    bits[1] = LLVMBuildAnd(e->b, both, LLVMConstInt(e->i32, 0xffff0000, false), "");
    for (int i = 0; i < 2; i++)
        LLVMSetAlignment(LLVMBuildStore(e->b, bits[i], hcg_at(e, e->i32, out, hcg_i64(e, i))), 4);
    hcg_loop_end(e, &l, NULL);
    LLVMValueRef done = LLVMBuildShl(e->b, pairs, one, ""); /* of the odd one: the first half */
    hcg_loop rest = hcg_loop_begin(e, done, s.param[2], one, "odd", 0, NULL);
    at = hcg_mul_const(e, rest.index, HIR_PANEL / 2);
    LLVMValueRef x = hcg_load_scalar(e, HIR_BF16, hcg_at(e, e->i32, panel, at));
    hcg_store(e, hcg_at(e, e->f32, s.param[3], rest.index), x, NULL);
    hcg_loop_end(e, &rest, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_pair_row(hcg_emit *e, LLVMValueRef table, LLVMValueRef row, int64_t k, LLVMValueRef out) {
    LLVMValueRef panel = LLVMBuildLShr(e->b, row, hcg_i64(e, 4), "");
    panel = hcg_mul_const(e, panel, (k + 1) / 2 * HIR_PANEL);
    LLVMValueRef within = LLVMBuildAnd(e->b, row, hcg_i64(e, HIR_PANEL - 1), "");
    LLVMValueRef args[] = {hcg_at(e, e->i32, table, panel), within, hcg_i64(e, k), out};
    hcg_shared f = row_function(e);
    hcg_shared_call(e, &f, args, 4);
}
