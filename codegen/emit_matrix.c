/* The matrix kernels of a level (matrix.h): micro-kernels on register tiles, the loops that run
 * them over a block, and the matrix-vector kernel.
 *
 * gemm walks blocks of B, at most K_BLOCK steps of one group of panels, and runs all rows over one
 * before it goes to the next: the block (K_BLOCK * panels * 64 bytes) stays in the first level
 * cache beside the rows in use. B comes from memory once per call, and while the rows of one block
 * are computed the next one is fetched, each slab of rows asking for its share of it: loads from
 * memory are spread evenly over the arithmetic, however few rows there are. (Prefetching a fixed
 * distance ahead instead, the first slab waits for all of the block and the others for nothing.)
 * Where one slab holds all rows there are no others: then it asks, for f32, for what is SLAB_AHEAD
 * bytes on in each panel.
 */
#include "codegen/emit_math.h"
#include "codegen/matrix.h"

enum {
    K_BLOCK = 128,
    SLAB_AHEAD = 2048,
    MOST_CHAINS = 16,
    MOST_ROWS = 16,    /* of a tile */
    GEMV_AHEAD = 2048, /* bytes that panels are prefetched ahead of their use */
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

static LLVMValueRef multiply(hcg_emit *e, LLVMValueRef a, uint64_t n) {
    return LLVMBuildNSWMul(e->b, a, hcg_i64(e, (int64_t)n), "");
}

static LLVMValueRef add(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWAdd(e->b, a, b, "");
}

static LLVMValueRef times(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWMul(e->b, a, b, "");
}

static LLVMValueRef minus(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWSub(e->b, a, b, "");
}

static LLVMValueRef smaller(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, b, ""), a, b, "");
}

static LLVMValueRef divide_up(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildUDiv(e->b, add(e, a, minus(e, b, hcg_i64(e, 1))), b, "");
}

void hcg_prefetch(hcg_emit *e, LLVMValueRef p, int64_t bytes_ahead) {
    LLVMValueRef args[] = {hcg_at(e, e->i8, p, hcg_i64(e, bytes_ahead)),
                           LLVMConstInt(e->i32, 0, false), LLVMConstInt(e->i32, 3, false),
                           LLVMConstInt(e->i32, 1, false)};
    hcg_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
}

/* ---- micro-kernel ------------------------------------------------------------------------------
 */

enum { TILE_PARAMS = 10 };
typedef struct micro {
    hir_dtype dtype;
    unsigned rows, panels; /* of this variant, at most those of the level's tile */
    unsigned per_panel;    /* vectors */
    LLVMValueRef panel_stride, k, c, ldc, accumulate;
    LLVMValueRef next, pace;     /* to fetch for the next block: where, and bytes per step */
    LLVMValueRef row[MOST_ROWS]; /* first element of each row of x */
    LLVMValueRef panel[8];       /* and of each panel */
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

/* acc[r][:] += x[r][k] b[k][:] for one k = index + offset. */
static void step_tile(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset,
                      LLVMValueRef *acc) {
    unsigned width = t->panels * t->per_panel, bytes = (unsigned)hir_dtype_bytes(t->dtype);
    LLVMTypeRef elem = hcg_element(e, t->dtype);
    LLVMValueRef b[32], fetch = hcg_at(e, e->i8, t->next, times(e, index, t->pace));
    for (unsigned p = 0; p < t->panels; p++) {
        LLVMValueRef row = hcg_at(e, elem, t->panel[p], multiply(e, index, HIR_PANEL));
        hcg_prefetch(e, hcg_at(e, elem, fetch, multiply(e, t->panel_stride, p)),
                     (int64_t)offset * HIR_PANEL * bytes);
        for (unsigned v = 0; v < t->per_panel; v++) {
            int64_t at = (int64_t)offset * HIR_PANEL + v * e->level->lanes;
            b[p * t->per_panel + v] =
                hcg_load(e, t->dtype, hcg_at(e, elem, row, hcg_i64(e, at)), NULL);
        }
    }
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef at =
            hcg_at(e, e->f32, hcg_at(e, e->f32, t->row[r], index), hcg_i64(e, offset));
        LLVMValueRef x = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
        for (unsigned v = 0; v < width; v++)
            acc[r * width + v] = hcg_fma(e, x, b[v], acc[r * width + v]);
    }
}

/* k from `from` in steps of `unroll` while that many are left; gives the k it got to. */
static LLVMValueRef run_tile(hcg_emit *e, const micro *t, LLVMValueRef from, unsigned unroll,
                             LLVMValueRef *acc) {
    unsigned n = accumulators(t);
    LLVMValueRef to = add(e, t->k, hcg_i64(e, 1 - (int64_t)unroll));
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, unroll), "k", n, acc);
    for (unsigned i = 0; i < n; i++)
        acc[i] = l.carried[i];
    for (unsigned u = 0; u < unroll; u++)
        step_tile(e, t, l.index, u, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < n; i++)
        acc[i] = l.carried[i];
    return l.index;
}

/* p itself, without saying so: that rows lie one distance apart makes LLVM's loop strength
 * reduction keep multiples of the distance, and there are not enough registers for them. */
static LLVMValueRef opaque(hcg_emit *e, LLVMValueRef p) {
    return hcg_intrinsic(e, "llvm.launder.invariant.group", &e->ptr, 1, &p, 1);
}

/* tile(x, ldx, b, panel_stride, k, c, ldc, accumulate, next, pace):
 * c[rows][panels * 16] (+)= x[rows][k] b[k][..] */
static hcg_shared tile_function(hcg_emit *e, hir_dtype dtype, unsigned rows, unsigned panels) {
    LLVMTypeRef params[TILE_PARAMS] = {e->ptr, e->i64, e->ptr, e->i64, e->i64,
                                       e->ptr, e->i64, e->i64, e->ptr, e->i64};
    char *name =
        hd_printf(e->arena, "tile_%s_%ux%u", hir_dtype_name(dtype), rows, panels * HIR_PANEL);
    hcg_shared s;
    if (!hcg_shared_begin(e, name, params, TILE_PARAMS, &s)) return s;
    const hcg_tile *tile = hcg_tile_of(e->level);
    micro t = {.dtype = dtype, .rows = rows, .panels = panels};
    t.per_panel = HIR_PANEL / e->level->lanes;
    t.panel_stride = s.param[3], t.k = s.param[4];
    t.c = s.param[5], t.ldc = s.param[6], t.accumulate = s.param[7];
    t.next = s.param[8], t.pace = s.param[9];
    for (unsigned r = 0; r < rows; r++)
        t.row[r] = opaque(e, hcg_at(e, e->f32, s.param[0], multiply(e, s.param[1], r)));
    for (unsigned p = 0; p < panels; p++)
        t.panel[p] = hcg_at(e, hcg_element(e, dtype), s.param[2], multiply(e, t.panel_stride, p));
    LLVMValueRef acc[HCG_CARRY], k = hcg_i64(e, 0);
    for (unsigned i = 0; i < accumulators(&t); i++)
        acc[i] = LLVMConstNull(e->vec);
    bool full = rows == tile->rows && panels == tile->panels;
    if (full && tile->unroll > 1) k = run_tile(e, &t, k, tile->unroll, acc);
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

/* Calls the micro-kernel for `rows` <= tile rows and `panels` <= tile panels, both only known at
 * run time. */
static void dispatch_tile(hcg_emit *e, hir_dtype dtype, LLVMValueRef rows, LLVMValueRef panels,
                          const LLVMValueRef args[TILE_PARAMS]) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    LLVMValueRef key = add(e, multiply(e, rows, tile->panels + 1), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiled");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, tile->rows * tile->panels);
    for (unsigned h = 1; h <= tile->rows; h++)
        for (unsigned w = 1; w <= tile->panels; w++) {
            LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tile");
            LLVMAddCase(choice, hcg_i64(e, h * (tile->panels + 1) + w), block);
            LLVMPositionBuilderAtEnd(e->b, block);
            hcg_shared f = tile_function(e, dtype, h, w);
            hcg_shared_call(e, &f, args, TILE_PARAMS);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}

/* n things in parts of at most `most`, as equal as can be: part i holds each + (i < more) of them
 * and begins at i * each + min(i, more). 17 rows on tiles of 8 are 6 + 6 + 5: a part of one row
 * would load as much of b as one of eight. */
typedef struct parts {
    LLVMValueRef count, each, more;
} parts;

static parts divide(hcg_emit *e, LLVMValueRef n, int64_t most) {
    parts p = {.count = divide_up(e, n, hcg_i64(e, most))};
    p.each = LLVMBuildUDiv(e->b, n, p.count, "each");
    p.more = minus(e, n, times(e, p.each, p.count));
    return p;
}

static LLVMValueRef part_start(hcg_emit *e, const parts *p, LLVMValueRef i) {
    return add(e, times(e, i, p->each), smaller(e, i, p->more));
}

static LLVMValueRef part_size(hcg_emit *e, const parts *p, LLVMValueRef i) {
    LLVMValueRef one_more = LLVMBuildICmp(e->b, LLVMIntSLT, i, p->more, "");
    return add(e, p->each, LLVMBuildZExt(e->b, one_more, e->i64, ""));
}

typedef struct block { /* of b, and what is fetched while it is in use */
    hir_dtype dtype;
    LLVMValueRef from, k;       /* steps of k: the first, and how many */
    LLVMValueRef panel, panels; /* the same of panels */
    LLVMValueRef b, next, accumulate;
} block;

enum {
    GEMM_X,
    GEMM_LDX,
    GEMM_ROWS,
    GEMM_K,
    GEMM_B,
    GEMM_PANELS,
    GEMM_C,
    GEMM_LDC,
    GEMM_ADD,
    GEMM_NEXT,
    GEMM_PARAMS
};

/* All rows over one block of b. */
static void emit_block(hcg_emit *e, const LLVMValueRef *g, const parts *slabs, const block *b) {
    int64_t line = HIR_PANEL * (int64_t)hir_dtype_bytes(b->dtype); /* of a panel, per step */
    LLVMValueRef pace = divide_up(e, hcg_i64(e, line), slabs->count);
    LLVMValueRef share = times(e, b->k, pace), k = g[GEMM_K];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), slabs->count, hcg_i64(e, 1), "slab", 0, NULL);
    LLVMValueRef row = part_start(e, slabs, l.index), rows = part_size(e, slabs, l.index);
    LLVMValueRef x = add(e, times(e, row, g[GEMM_LDX]), b->from);
    LLVMValueRef c = add(e, times(e, row, g[GEMM_LDC]), multiply(e, b->panel, HIR_PANEL));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, e->f32, g[GEMM_X], x),
        g[GEMM_LDX],
        b->b,
        multiply(e, k, HIR_PANEL),
        b->k,
        hcg_at(e, e->f32, g[GEMM_C], c),
        g[GEMM_LDC],
        b->accumulate,
        hcg_at(e, e->i8, b->next, times(e, l.index, share)),
        pace,
    };
    dispatch_tile(e, b->dtype, rows, b->panels, args);
    hcg_loop_end(e, &l, NULL);
}

/* What f32 panels ask for where one slab holds all rows. (bf16 loses a twentieth by it.) */
static LLVMValueRef near_if_one(hcg_emit *e, const parts *slabs, const block *b) {
    LLVMValueRef one = LLVMBuildICmp(e->b, LLVMIntEQ, slabs->count, hcg_i64(e, 1), "one_slab");
    return LLVMBuildSelect(e->b, one, hcg_at(e, e->i8, b->b, hcg_i64(e, SLAB_AHEAD)), b->next, "");
}

/* gemm(x, ldx, rows, k, b, panels, c, ldc, accumulate, next) */
static hcg_shared gemm_function(hcg_emit *e, hir_dtype dtype) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    LLVMTypeRef elem = hcg_element(e, dtype), params[GEMM_PARAMS];
    hcg_shared s;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = i == GEMM_X || i == GEMM_B || i == GEMM_C || i == GEMM_NEXT ? e->ptr : e->i64;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemm_%s", hir_dtype_name(dtype)), params,
                          GEMM_PARAMS, &s))
        return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), wide = hcg_i64(e, tile->panels);
    LLVMValueRef panel_stride = multiply(e, g[GEMM_K], HIR_PANEL);
    parts slabs = divide(e, g[GEMM_ROWS], tile->rows), steps = divide(e, g[GEMM_K], K_BLOCK);
    block b = {.dtype = dtype};
    hcg_loop lp = hcg_loop_begin(e, zero, g[GEMM_PANELS], wide, "panel", 0, NULL);
    b.panel = lp.index, b.panels = smaller(e, wide, minus(e, g[GEMM_PANELS], lp.index));
    LLVMValueRef first = hcg_at(e, elem, g[GEMM_B], times(e, lp.index, panel_stride));
    LLVMValueRef end = add(e, lp.index, wide);
    LLVMValueRef following =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, end, g[GEMM_PANELS], ""),
                        hcg_at(e, elem, g[GEMM_B], times(e, end, panel_stride)), g[GEMM_NEXT], "");
    hcg_loop lk = hcg_loop_begin(e, zero, steps.count, one, "k_block", 0, NULL);
    b.from = part_start(e, &steps, lk.index), b.k = part_size(e, &steps, lk.index);
    b.b = hcg_at(e, elem, first, multiply(e, b.from, HIR_PANEL));
    LLVMValueRef last = LLVMBuildICmp(e->b, LLVMIntEQ, add(e, lk.index, one), steps.count, "");
    b.next = LLVMBuildSelect(e->b, last, following,
                             hcg_at(e, elem, b.b, multiply(e, b.k, HIR_PANEL)), "");
    b.accumulate = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, lk.index, zero, ""),
                                   g[GEMM_ADD], one, "");
    if (dtype == HIR_F32) b.next = near_if_one(e, &slabs, &b);
    emit_block(e, g, &slabs, &b);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemm(hcg_emit *e, const hcg_gemm *g) {
    hcg_shared f = gemm_function(e, g->dtype);
    LLVMValueRef panel_stride = multiply(e, g->k, HIR_PANEL), next = g->next;
    if (!next) next = hcg_at(e, hcg_element(e, g->dtype), g->b, times(e, g->panels, panel_stride));
    LLVMValueRef args[GEMM_PARAMS] = {
        g->x, g->ldx, g->rows, g->k, g->b, g->panels, g->c, g->ldc, hcg_i64(e, g->accumulate),
        next};
    hcg_shared_call(e, &f, args, GEMM_PARAMS);
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
