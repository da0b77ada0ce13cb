/* Back ends for bf16 weights, by vectors. Panels hold pairs along K (hir_layout in ir/ir.h), so that
 * x is read two elements at a time too, and K is filled up to an even number with zeros.
 *
 *   pairs_as_f32   weights become f32 in registers, or once for many slabs of rows (gemm.c); x is read
 *                  in place, or copied where K is odd
 *   bf16_dots      by dot products of pairs (vdpbf16ps, bfdot): x is rounded to bf16 once per row,
 *
 *               x ~ x (1 + d),   |d| <= 2^-8,   to nearest even
 *
 *           Products of bf16 are exact in f32. An instruction adds two of them to a sum and rounds
 *           once or twice, to nearest; numbers below 2^-126 count as zeros, on the way in and out,
 *           whatever the thread's mode is. So a sum of K products is off by what f32 makes of it in
 *           any order, and the error of x is all that is new.
 *   bfmmla         by products of 2 x 4 and 4 x 2 (matmul/step.c), x rounded alike
 *
 * The products themselves are in matmul/gemm.c: a step of a tile is all that differs from other
 * weights. */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"
#include "codegen/matmul/backends/vector.h"

/* ---- x --------------------------------------------------------------------------------------- */
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

/* ---- the back ends --------------------------------------------------------------------------- */
/* What x is multiplied as: all that they differ in here. */
static hir_dtype x_dtype(const hcg_product *p) {
    return *(const hir_dtype *)p->backend->instructions;
}

static void begin(hcg_emit *e, hcg_product *p) {
    const hir_dtype dtype = x_dtype(p);
    const uint64_t bytes =
        dtype == HIR_F32 && !p->decode ? hcg_widened_bytes(e->level, HIR_BF16) : 0;
    if (bytes) p->panel_workspace = hcg_scratch(e, bytes);
    if (dtype == HIR_BF16 || p->k % 2)
        p->x_workspace = hcg_scratch(e, p->rows * (uint64_t)even(p->k) * hir_dtype_bytes(dtype));
}

static void prepare(hcg_emit *e, hcg_product *p) {
    p->length = p->ldx = hcg_i64(e, even(p->k));
    if (!p->x_workspace) return;
    hcg_shared f = prepare_function(e, x_dtype(p));
    LLVMValueRef args[] = {p->x, p->n_rows, hcg_i64(e, p->k), p->x_workspace};
    hcg_shared_call(e, &f, args, 4);
    p->x = p->x_workspace;
}

static void gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, x_dtype(p));
    g.widened = p->panel_workspace;
    hcg_call_gemm(e, &g);
}

static void gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, x_dtype(p));
    hcg_call_gemv(e, &g);
}

#define BACKEND(id, of, x)                                                                         \
    const hcg_backend hcg_##id = {                                                                 \
        .name = of,                                                                                \
        .instructions = &(const hir_dtype){x},                                                     \
        .tile_panels = hcg_wide_panels,                                                            \
        .row_unit = hcg_wide_unit,                                                                 \
        .block_rows = hcg_vector_rows,                                                             \
        .tile_rows = 1,                                                                            \
        .prefetches = true,                                                                        \
        .begin = begin,                                                                            \
        .prepare = prepare,                                                                        \
        .gemm = gemm,                                                                              \
        .gemv = gemv,                                                                              \
    }
BACKEND(pairs_as_f32, "pairs_as_f32", HIR_F32);
BACKEND(bf16_dots_512, "bf16_dots", HIR_BF16);
BACKEND(bf16_dots_128, "bf16_dots", HIR_BF16);
BACKEND(bfmmla, "bfmmla", HIR_BF16);
#undef BACKEND
