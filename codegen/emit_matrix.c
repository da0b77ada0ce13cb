/* The matrix kernels of a level (matrix.h): micro-kernels on register tiles, the loops that run
 * them over a block, and the matrix-vector kernel.
 *
 * gemm keeps k blocks of K_BLOCK steps: a tile's panels (K_BLOCK * panels * 64 bytes) then stay in
 * the second level cache while all rows pass, and a slab of x in the first.
 */
#include "codegen/emit_math.h"
#include "codegen/matrix.h"

enum {
    K_BLOCK = 256,
    MOST_CHAINS = 16,
    GEMV_AHEAD = 2048,    /* bytes that panels are prefetched ahead of their use */
    GEMM_AHEAD = 48 * 16, /* elements of each panel: a memory latency of micro-kernel steps */
};

static const hcg_tile tiles[] = {
#define TILE(arch, lanes, fma, rows, panels, unroll, chains)                                       \
    {arch, lanes, fma, rows, panels, unroll, chains},
#include "codegen/tiles.def"
#undef TILE
};

const hcg_tile *hcg_tile_of(const hcg_level *level) {
    const hcg_tile *best = &tiles[0];
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++) {
        if (tiles[i].lanes != level->lanes) continue;
        if (best->lanes != level->lanes || tiles[i].fma == level->fma) best = &tiles[i];
    }
    return best;
}

uint64_t hcg_slab_rows(const hcg_tile *t, uint64_t rows) {
    return (rows + t->rows - 1) / t->rows * t->rows;
}

static LLVMValueRef multiply(hcg_emit *e, LLVMValueRef a, uint64_t n) {
    return LLVMBuildNSWMul(e->b, a, hcg_i64(e, (int64_t)n), "");
}

static LLVMValueRef add(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWAdd(e->b, a, b, "");
}

static LLVMValueRef smaller(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, b, ""), a, b, "");
}

void hcg_prefetch(hcg_emit *e, LLVMValueRef p, int64_t bytes_ahead) {
    LLVMValueRef args[] = {hcg_at(e, e->i8, p, hcg_i64(e, bytes_ahead)),
                           LLVMConstInt(e->i32, 0, false), LLVMConstInt(e->i32, 3, false),
                           LLVMConstInt(e->i32, 1, false)};
    hcg_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
}

/* ---- micro-kernel ------------------------------------------------------------------------------
 */

typedef struct micro {
    hir_dtype dtype;
    unsigned rows, panels; /* of this variant, at most those of the level's tile */
    unsigned per_panel;    /* vectors */
    LLVMValueRef a, b, panel_stride, k, c, ldc, accumulate;
    LLVMValueRef panel[8]; /* first element of each panel */
} micro;

static unsigned accumulators(const micro *t) {
    return t->rows * t->panels * t->per_panel;
}

/* &c[row][vector v] */
static LLVMValueRef tile_place(hcg_emit *e, const micro *t, unsigned row, unsigned v) {
    LLVMValueRef at = multiply(e, t->ldc, row);
    return hcg_at(e, e->f32, t->c, add(e, at, hcg_i64(e, v * e->level->lanes)));
}

/* acc = accumulate ? c + acc : acc. Adding at the end keeps the sums of k blocks apart: rounding
 * grows with the length of a block, not of k. */
static void finish_tile(hcg_emit *e, const micro *t, LLVMValueRef *acc) {
    unsigned width = t->panels * t->per_panel;
    LLVMValueRef sum[HCG_CARRY];
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef add_to = LLVMAppendBasicBlockInContext(e->cx, e->fn, "add_to");
    LLVMBasicBlockRef finish = LLVMAppendBasicBlockInContext(e->cx, e->fn, "finish");
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntNE, t->accumulate, hcg_i64(e, 0), "");
    LLVMBuildCondBr(e->b, more, add_to, finish);
    LLVMPositionBuilderAtEnd(e->b, add_to);
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned v = 0; v < width; v++) {
            LLVMValueRef c = hcg_load(e, HIR_F32, tile_place(e, t, r, v), NULL);
            sum[r * width + v] = LLVMBuildFAdd(e->b, c, acc[r * width + v], "");
        }
    LLVMBuildBr(e->b, finish);
    LLVMPositionBuilderAtEnd(e->b, finish);
    for (unsigned i = 0; i < accumulators(t); i++) {
        LLVMValueRef phi = LLVMBuildPhi(e->b, e->vec, "");
        LLVMAddIncoming(phi, (LLVMValueRef[]){acc[i], sum[i]}, (LLVMBasicBlockRef[]){here, add_to},
                        2);
        acc[i] = phi;
    }
}

/* acc[r][:] += a[k][r] b[k][:] for one k = index + offset. `slab` is the height a is packed to. */
static void step_tile(hcg_emit *e, const micro *t, unsigned slab, LLVMValueRef index,
                      unsigned offset, bool prefetched, LLVMValueRef *acc) {
    unsigned width = t->panels * t->per_panel;
    LLVMValueRef b[32];
    LLVMValueRef a = hcg_at(e, e->f32, t->a, multiply(e, index, slab));
    for (unsigned p = 0; p < t->panels; p++) {
        LLVMTypeRef elem = hcg_element(e, t->dtype);
        LLVMValueRef row = hcg_at(e, elem, t->panel[p], multiply(e, index, HIR_PANEL));
        int64_t bytes = (int64_t)hir_dtype_bytes(t->dtype);
        if (prefetched && offset * HIR_PANEL * bytes % 64 == 0)
            hcg_prefetch(e, row, (offset * HIR_PANEL + GEMM_AHEAD) * bytes);
        for (unsigned v = 0; v < t->per_panel; v++) {
            int64_t at = (int64_t)offset * HIR_PANEL + v * e->level->lanes;
            b[p * t->per_panel + v] =
                hcg_load(e, t->dtype, hcg_at(e, elem, row, hcg_i64(e, at)), NULL);
        }
    }
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef at = hcg_at(e, e->f32, a, hcg_i64(e, (int64_t)offset * slab + r));
        LLVMValueRef x = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
        for (unsigned v = 0; v < width; v++)
            acc[r * width + v] = hcg_fma(e, x, b[v], acc[r * width + v]);
    }
}

/* k from `from` in steps of `unroll` while that many are left; gives the k it got to. */
static LLVMValueRef run_tile(hcg_emit *e, const micro *t, LLVMValueRef from, unsigned unroll,
                             LLVMValueRef *acc) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    unsigned n = accumulators(t);
    LLVMValueRef to = add(e, t->k, hcg_i64(e, 1 - (int64_t)unroll));
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, unroll), "k", n, acc);
    for (unsigned i = 0; i < n; i++)
        acc[i] = l.carried[i];
    for (unsigned u = 0; u < unroll; u++)
        step_tile(e, t, tile->rows, l.index, u, unroll > 1, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < n; i++)
        acc[i] = l.carried[i];
    return l.index;
}

/* tile(a, b, panel_stride, k, c, ldc, accumulate): c[rows][panels * 16] (+)= a[k][rows] b[k][..] */
static hcg_shared tile_function(hcg_emit *e, hir_dtype dtype, unsigned rows, unsigned panels) {
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->i64, e->i64, e->ptr, e->i64, e->i64};
    char *name =
        hd_printf(e->arena, "tile_%s_%ux%u", hir_dtype_name(dtype), rows, panels * HIR_PANEL);
    hcg_shared s;
    if (!hcg_shared_begin(e, name, params, 7, &s)) return s;
    micro t = {.dtype = dtype, .rows = rows, .panels = panels};
    t.per_panel = HIR_PANEL / e->level->lanes;
    t.a = s.param[0], t.b = s.param[1], t.panel_stride = s.param[2], t.k = s.param[3];
    t.c = s.param[4], t.ldc = s.param[5], t.accumulate = s.param[6];
    for (unsigned p = 0; p < panels; p++)
        t.panel[p] = hcg_at(e, hcg_element(e, dtype), t.b, multiply(e, t.panel_stride, p));
    LLVMValueRef acc[HCG_CARRY];
    for (unsigned i = 0; i < accumulators(&t); i++)
        acc[i] = LLVMConstNull(e->vec);
    LLVMValueRef k = run_tile(e, &t, hcg_i64(e, 0), hcg_tile_of(e->level)->unroll, acc);
    run_tile(e, &t, k, 1, acc);
    finish_tile(e, &t, acc);
    unsigned width = panels * t.per_panel;
    for (unsigned r = 0; r < rows; r++)
        for (unsigned v = 0; v < width; v++)
            hcg_store(e, tile_place(e, &t, r, v), acc[r * width + v], NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- block -------------------------------------------------------------------------------------
 */

/* Heights of the micro-kernels: the tile's rows halved down to 1. A block's last rows take the
 * smallest that holds them: running a few rows too many is cheaper than reading b once more. */
static unsigned heights(const hcg_tile *t, unsigned out[8]) {
    unsigned n = 0;
    for (unsigned h = t->rows; n < 8; h = (h + 1) / 2) {
        out[n++] = h;
        if (h == 1) break;
    }
    return n;
}

/* Calls the micro-kernel for `rows` <= tile rows and `panels` <= tile panels, both only known at
 * run time. */
static void dispatch_tile(hcg_emit *e, hir_dtype dtype, LLVMValueRef rows, LLVMValueRef panels,
                          const LLVMValueRef args[7]) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    unsigned height[8], n = heights(tile, height);
    LLVMValueRef chosen = hcg_i64(e, height[0]);
    for (unsigned i = 1; i < n; i++) {
        LLVMValueRef holds = LLVMBuildICmp(e->b, LLVMIntSLE, rows, hcg_i64(e, height[i]), "");
        chosen = LLVMBuildSelect(e->b, holds, hcg_i64(e, height[i]), chosen, "");
    }
    LLVMValueRef key = add(e, multiply(e, chosen, tile->panels + 1), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiled");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, n * tile->panels);
    for (unsigned i = 0; i < n; i++)
        for (unsigned w = 1; w <= tile->panels; w++) {
            LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tile");
            LLVMAddCase(choice, hcg_i64(e, height[i] * (tile->panels + 1) + w), block);
            LLVMPositionBuilderAtEnd(e->b, block);
            hcg_shared f = tile_function(e, dtype, height[i], w);
            hcg_shared_call(e, &f, args, 7);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}

/* gemm(a, rows, k, b, panels, c, ldc, accumulate) */
static hcg_shared gemm_function(hcg_emit *e, hir_dtype dtype) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr, e->i64, e->ptr, e->i64, e->i64};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemm_%s", hir_dtype_name(dtype)), params, 8, &s))
        return s;
    LLVMValueRef a = s.param[0], rows = s.param[1], k = s.param[2], b = s.param[3];
    LLVMValueRef panels = s.param[4], c = s.param[5], ldc = s.param[6], accumulate = s.param[7];
    LLVMValueRef panel_stride = multiply(e, k, HIR_PANEL), zero = hcg_i64(e, 0);
    hcg_loop lk = hcg_loop_begin(e, zero, k, hcg_i64(e, K_BLOCK), "k_block", 0, NULL);
    LLVMValueRef kn = smaller(e, hcg_i64(e, K_BLOCK), LLVMBuildNSWSub(e->b, k, lk.index, "k_left"));
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, lk.index, zero, "");
    LLVMValueRef add_to = LLVMBuildSelect(e->b, first, accumulate, hcg_i64(e, 1), "");
    hcg_loop lp = hcg_loop_begin(e, zero, panels, hcg_i64(e, tile->panels), "panel", 0, NULL);
    LLVMValueRef wide =
        smaller(e, hcg_i64(e, tile->panels), LLVMBuildNSWSub(e->b, panels, lp.index, ""));
    LLVMValueRef bk =
        add(e, LLVMBuildNSWMul(e->b, lp.index, panel_stride, ""), multiply(e, lk.index, HIR_PANEL));
    LLVMValueRef bt = hcg_at(e, hcg_element(e, dtype), b, bk);
    hcg_loop lr = hcg_loop_begin(e, zero, rows, hcg_i64(e, tile->rows), "row", 0, NULL);
    LLVMValueRef high = LLVMBuildNSWSub(e->b, rows, lr.index, "");
    LLVMValueRef ak =
        add(e, LLVMBuildNSWMul(e->b, lr.index, k, ""), multiply(e, lk.index, tile->rows));
    LLVMValueRef ct =
        add(e, LLVMBuildNSWMul(e->b, lr.index, ldc, ""), multiply(e, lp.index, HIR_PANEL));
    LLVMValueRef args[] = {hcg_at(e, e->f32, a, ak), bt,  panel_stride, kn,
                           hcg_at(e, e->f32, c, ct), ldc, add_to};
    dispatch_tile(e, dtype, high, wide, args);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_loop_end(e, &lk, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemm(hcg_emit *e, const hcg_gemm *g) {
    hcg_shared f = gemm_function(e, g->dtype);
    LLVMValueRef args[] = {g->a,      g->rows, g->k,   g->b,
                           g->panels, g->c,    g->ldc, hcg_i64(e, g->accumulate)};
    hcg_shared_call(e, &f, args, 8);
}

/* ---- matrix times vector -----------------------------------------------------------------------
 */

/* acc[chain][v] += x[k] b[k][v], chain = offset: `steps` of k, each its own chain of adds. */
static void gemv_steps(hcg_emit *e, hir_dtype dtype, LLVMValueRef x, LLVMValueRef b,
                       LLVMValueRef index, unsigned steps, LLVMValueRef *acc) {
    unsigned per_panel = HIR_PANEL / e->level->lanes;
    LLVMTypeRef elem = hcg_element(e, dtype);
    LLVMValueRef xk = hcg_at(e, e->f32, x, index);
    LLVMValueRef bk = hcg_at(e, elem, b, multiply(e, index, HIR_PANEL));
    unsigned line = 64 / (unsigned)hir_dtype_bytes(dtype) / HIR_PANEL; /* steps per cache line */
    for (unsigned u = 0; u < steps; u++) {
        LLVMValueRef row = hcg_at(e, elem, bk, hcg_i64(e, (int64_t)u * HIR_PANEL));
        LLVMValueRef at = hcg_at(e, e->f32, xk, hcg_i64(e, u));
        LLVMValueRef xs = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
        if (u % line == 0 && steps > 1) hcg_prefetch(e, row, GEMV_AHEAD);
        for (unsigned v = 0; v < per_panel; v++) {
            LLVMValueRef place = hcg_at(e, elem, row, hcg_i64(e, v * e->level->lanes));
            LLVMValueRef *sum = &acc[u * per_panel + v];
            *sum = hcg_fma(e, xs, hcg_load(e, dtype, place, NULL), *sum);
        }
    }
}

/* One panel: `steps` values of k at a time, then the rest one by one. */
static void gemv_panel(hcg_emit *e, hir_dtype dtype, LLVMValueRef x, LLVMValueRef k, LLVMValueRef b,
                       LLVMValueRef out) {
    unsigned per_panel = HIR_PANEL / e->level->lanes;
    unsigned steps = hcg_tile_of(e->level)->chains / per_panel;
    LLVMValueRef acc[MOST_CHAINS];
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = LLVMConstNull(e->vec);
    LLVMValueRef to = add(e, k, hcg_i64(e, 1 - (int64_t)steps));
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), to, hcg_i64(e, steps), "k", steps * per_panel, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.carried[i];
    gemv_steps(e, dtype, x, b, l.index, steps, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.carried[i];
    for (unsigned half = steps / 2; half; half /= 2)
        for (unsigned i = 0; i < half * per_panel; i++)
            acc[i] = LLVMBuildFAdd(e->b, acc[i], acc[i + half * per_panel], "");
    hcg_loop rest = hcg_loop_begin(e, l.index, k, hcg_i64(e, 1), "k_rest", per_panel, acc);
    for (unsigned i = 0; i < per_panel; i++)
        acc[i] = rest.carried[i];
    gemv_steps(e, dtype, x, b, rest.index, 1, acc);
    hcg_loop_end(e, &rest, acc);
    for (unsigned v = 0; v < per_panel; v++)
        hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, v * e->level->lanes)), rest.carried[v],
                  NULL);
}

/* gemv(x, k, b, panels, out) */
static hcg_shared gemv_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemv_%s", hir_dtype_name(dtype)), params, 5, &s))
        return s;
    LLVMValueRef x = s.param[0], k = s.param[1], b = s.param[2], panels = s.param[3];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), panels, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef at = LLVMBuildNSWMul(e->b, l.index, multiply(e, k, HIR_PANEL), "");
    gemv_panel(e, dtype, x, k, hcg_at(e, hcg_element(e, dtype), b, at),
               hcg_at(e, e->f32, s.param[4], multiply(e, l.index, HIR_PANEL)));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemv(hcg_emit *e, hir_dtype dtype, LLVMValueRef x, LLVMValueRef k, LLVMValueRef b,
                   LLVMValueRef panels, LLVMValueRef out) {
    hcg_shared f = gemv_function(e, dtype);
    LLVMValueRef args[] = {x, k, b, panels, out};
    hcg_shared_call(e, &f, args, 5);
}
