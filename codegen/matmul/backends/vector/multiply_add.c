/* Back ends of vector multiply-adds: weights become f32 in registers, x is f32 (matmul/matrix.h).
 *
 *   multiply_add   f32 and f16, x where it lies
 *   pairs_as_f32   bf16, whose panels hold pairs along K (bf16/pairs.h)
 *   bf16_dots      the same panels by dot products of pairs, x rounded to bf16
 *   bfmmla         likewise, two rows of x and two outputs at a time (matmul/bfmmla.c)
 */
#include "codegen/matmul/backends/vector/multiply_add.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/matmul/backends/bf16/pairs.h"
#include "codegen/matmul/blocking.h"

int64_t hcg_vector_panels(const hcg_level *level) {
    return hcg_tile_of(level)->panels;
}

int64_t hcg_vector_rows(const hcg_level *level, int64_t k) {
    return hcg_block_rows(level, (int64_t)sizeof(float) * k, hcg_vector_panels(level));
}

hcg_gemm hcg_vector_product(const hcg_product *p, const hcg_panels *b, hir_dtype x_dtype) {
    hcg_gemm g = {.dtype = b->dtype, .x_dtype = x_dtype, .narrow = b->narrow};
    g.x = p->x, g.ldx = p->ldx, g.rows = p->n_rows, g.k = p->length;
    g.b = b->w, g.panels = b->n, g.c = b->sums, g.ldc = b->ld, g.next = b->next;
    g.ld_touched = b->ld_touched;
    for (int i = 0; i < HCG_TOUCHED; i++)
        g.touched[i] = b->touched[i];
    return g;
}

/* ---- multiply_add ---------------------------------------------------------------------------- */
/* Without an instruction for it, widening f16 takes some 20: then panels are widened once per block
 * of rows, not once per tile. */
static bool widens_ahead(const hcg_emit *e, const hcg_product *p, hir_dtype dtype) {
    return dtype == HIR_F16 && !p->decode && !hcg_has_f16(e->level);
}

static void begin_multiply_add(hcg_emit *e, hcg_product *p) {
    if (p->weights & 1u << HIR_F16 && widens_ahead(e, p, HIR_F16))
        p->panel_workspace = hcg_scratch(e, (uint64_t)(p->panels * p->k * HIR_PANEL) * 4);
}

/* The panels as f32, in workspace. */
static LLVMValueRef widen_panels(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    LLVMValueRef n = hcg_mul_const(e, p->length, HIR_PANEL);
    n = hcg_mul(e, b->n, n);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, e->level->lanes), "widen", 0, NULL);
    LLVMValueRef from = hcg_at(e, hcg_element(e, b->dtype), b->w, l.index);
    LLVMValueRef v = hcg_load(e, b->dtype, from, NULL);
    hcg_store(e, hcg_at(e, e->f32, p->panel_workspace, l.index), v, NULL);
    hcg_loop_end(e, &l, NULL);
    return p->panel_workspace;
}

static void multiply_add_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, HIR_F32);
    if (widens_ahead(e, p, b->dtype)) {
        g.b = widen_panels(e, p, b);
        g.dtype = HIR_F32;
    }
    hcg_call_gemm(e, &g);
}

static void multiply_add_gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, HIR_F32);
    hcg_call_gemv(e, &g);
}

const hcg_backend hcg_multiply_add = {
    .name = "multiply_add",
    .tile_panels = hcg_vector_panels,
    .block_rows = hcg_vector_rows,
    .tile_rows = 1,
    .prefetches = true,
    .begin = begin_multiply_add,
    .gemm = multiply_add_gemm,
    .gemv = multiply_add_gemv,
};

/* ---- pairs_as_f32 ---------------------------------------------------------------------------- */
static void begin_pairs(hcg_emit *e, hcg_product *p) {
    hcg_pair_begin(e, p, HIR_F32);
}

static void prepare_pairs(hcg_emit *e, hcg_product *p) {
    hcg_pair_prepare(e, p, HIR_F32);
}

const hcg_backend hcg_pairs_as_f32 = {
    .name = "pairs_as_f32",
    .tile_panels = hcg_vector_panels,
    .block_rows = hcg_vector_rows,
    .tile_rows = 1,
    .prefetches = true,
    .begin = begin_pairs,
    .prepare = prepare_pairs,
    .gemm = multiply_add_gemm,
    .gemv = multiply_add_gemv,
};

/* ---- bf16_dots ------------------------------------------------------------------------------- */
static void begin_bf16(hcg_emit *e, hcg_product *p) {
    hcg_pair_begin(e, p, HIR_BF16);
}

static void prepare_bf16(hcg_emit *e, hcg_product *p) {
    hcg_pair_prepare(e, p, HIR_BF16);
}

static void bf16_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, HIR_BF16);
    hcg_call_gemm(e, &g);
}

static void bf16_gemv(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_gemm g = hcg_vector_product(p, b, HIR_BF16);
    hcg_call_gemv(e, &g);
}

#define DOTS(id, of)                                                                               \
    const hcg_backend hcg_##id = {                                                                 \
        .name = of,                                                                                \
        .tile_panels = hcg_vector_panels,                                                          \
        .block_rows = hcg_vector_rows,                                                             \
        .tile_rows = 1,                                                                            \
        .prefetches = true,                                                                        \
        .begin = begin_bf16,                                                                       \
        .prepare = prepare_bf16,                                                                   \
        .gemm = bf16_gemm,                                                                         \
        .gemv = bf16_gemv,                                                                         \
    }
DOTS(bf16_dots_512, "bf16_dots");
DOTS(bf16_dots_128, "bf16_dots");
DOTS(bfmmla, "bfmmla");
#undef DOTS
