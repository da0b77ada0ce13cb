/* The back ends of a matrix unit for bf16 weights (contract/amx_tiles.h), for many tokens. A tile
 * of weights is 16 lines of a panel, as it lies (contract/pairs.h). x is prepared once for a block
 * of rows:
 *
 *   amx_rounded   x is rounded to bf16, as for bf16_dots
 *   amx_exact     x = a + b + c, three bf16, exactly: a is the upper 8 of the 24 bits of x's
 *                 significand, b the upper 8 of what is left, c the rest. Three products go to one
 *                 sum:   x w = a w + b w + c w
 *
 * Products of bf16 are exact in f32. Of 16 pairs along K, TDPBF16PS adds the even and the odd
 * products in a chain each, both chains, and the sum so far; each addition rounds to nearest,
 * numbers below 2^-126 count as zeros on the way in and out. With u = 2^-24 and S = sum |x w|
 *
 *     |error| <= u S (P K / 32 + 18) + 2^-126 sum |w|         P parts, to first order in u
 *
 * since a chain's additions round what is in it only, and a, b and c have one sign. Sums of f32
 * multiply-adds may be off by u S K. An infinity keeps its sign: its b and c are zeros.
 *
 * Blocks: x of a block of rows stays in the L2, two panels pass by it, of which as many steps stay
 * in the L1 as it holds while all rows are multiplied with them. The panels that follow are
 * prefetched meanwhile, a share of them with each step.
 */
#include "codegen/contract/amx_tiles.h"
#include "codegen/contract/blocking.h"
#include "codegen/contract/groups.h"
#include "codegen/contract/matrix.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

enum {
    STEP = HCG_AMX_LINE / 2, /* elements of K in a tile */
    MOST_PARTS = 3,
};

/* How a back end sees x. */
typedef struct parts {
    unsigned n;
    const char *name;
} parts;

static const parts *parts_of(const hcg_product *p) {
    return p->backend->instructions;
}

static int64_t steps_of(int64_t k) {
    return (k + STEP - 1) / STEP;
}

/* ---- x -----------------------------------------------------------------------------------------
 * [row / 16][step][part][row % 16][32] in bf16, zeros beyond K. Rows beyond the last one are left
 * as they are: only sums that nobody reads come of them.
 */
static LLVMValueRef masked(hcg_emit *e, LLVMValueRef x, uint64_t mask) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef bits = LLVMBuildBitCast(e->b, x, ints, "");
    bits = LLVMBuildAnd(e->b, bits, hcg_int_like(ints, mask), "");
    return LLVMBuildBitCast(e->b, bits, e->vec, "");
}

/* The upper halves of 32 f32, side by side. */
static LLVMValueRef upper_halves(hcg_emit *e, const LLVMValueRef x[2]) {
    LLVMTypeRef halves = LLVMVectorType(e->i16, STEP);
    LLVMValueRef low = LLVMBuildBitCast(e->b, x[0], halves, "");
    LLVMValueRef high = LLVMBuildBitCast(e->b, x[1], halves, ""), lane[STEP];
    for (unsigned i = 0; i < STEP; i++)
        lane[i] = LLVMConstInt(e->i32, 2 * i + 1, false);
    return LLVMBuildShuffleVector(e->b, low, high, LLVMConstVector(lane, STEP), "");
}

static LLVMValueRef rounded(hcg_emit *e, const LLVMValueRef x[2]) {
    LLVMValueRef half[2], lane[STEP];
    for (unsigned i = 0; i < 2; i++)
        half[i] = hcg_narrow(e, HIR_BF16, x[i]);
    for (unsigned i = 0; i < STEP; i++)
        lane[i] = LLVMConstInt(e->i32, i, false);
    return LLVMBuildShuffleVector(e->b, half[0], half[1], LLVMConstVector(lane, STEP), "");
}

/* x less what its upper half has; an infinity has all of itself there. */
static LLVMValueRef remainder_of(hcg_emit *e, LLVMValueRef x) {
    LLVMValueRef whole = masked(e, x, 0xffff0000);
    LLVMValueRef all = LLVMBuildFCmp(e->b, LLVMRealOEQ, x, whole, "");
    return LLVMBuildSelect(e->b, all, LLVMConstNull(e->vec), hcg_fsub(e, x, whole), "");
}

/* 32 elements of a row to their place in a tile of each part. */
static void store_parts(hcg_emit *e, const parts *p, LLVMValueRef x[2], LLVMValueRef out) {
    for (unsigned i = 0; i < p->n; i++) {
        LLVMValueRef part = p->n == 1 ? rounded(e, x) : upper_halves(e, x);
        LLVMSetAlignment(LLVMBuildStore(e->b, part, hcg_at_byte(e, out, i * HCG_AMX_TILE)), 64);
        for (unsigned j = 0; j < 2 && i + 1 < p->n; j++)
            x[j] = remainder_of(e, x[j]);
    }
}

/* x_parts(x, ldx, rows, k, out) */
static hcg_shared prepare_function(hcg_emit *e, const parts *p) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "amx_x_%s", p->name), params, 5, &s)) return s;
    LLVMValueRef k = s.param[3], zero = hcg_i64(e, 0), one = hcg_i64(e, 1), v[2];
    LLVMValueRef steps = hcg_divide_up(e, k, hcg_i64(e, STEP));
    LLVMValueRef tile_row = hcg_mul_const(e, steps, p->n * HCG_AMX_TILE);
    hcg_loop rows = hcg_loop_begin(e, zero, s.param[2], one, "row", 0, NULL);
    LLVMValueRef x = hcg_at(e, e->f32, s.param[0], hcg_mul(e, rows.index, s.param[1]));
    LLVMValueRef tile = LLVMBuildUDiv(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef line = LLVMBuildURem(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef out = hcg_add(e, hcg_mul(e, tile, tile_row), hcg_mul_const(e, line, HCG_AMX_LINE));
    out = hcg_at(e, e->i8, s.param[4], out);
    hcg_loop l = hcg_loop_begin(e, zero, steps, one, "step", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, l.index, STEP);
    for (unsigned i = 0; i < 2; i++) {
        LLVMValueRef from = hcg_add(e, at, hcg_i64(e, i * (STEP / 2)));
        v[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, from), hcg_sub(e, k, from));
    }
    LLVMValueRef to = hcg_at(e, e->i8, out, hcg_mul_const(e, l.index, p->n * HCG_AMX_TILE));
    store_parts(e, p, v, to);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &rows, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- a block of tiles --------------------------------------------------------------------------
 * c[rows * 16][panels * 16] (+)= x w over some steps, of which the last may have weights of its own
 */
typedef struct block {
    const parts *of;
    unsigned rows, panels; /* tiles */
} block;

enum {
    BLOCK_X,
    BLOCK_X_STRIDE, /* bytes to the next tile of rows */
    BLOCK_B,
    BLOCK_B_STRIDE, /* bytes to the next panel */
    BLOCK_STEPS,    /* whole ones */
    BLOCK_LAST,     /* weights of one more step, 1 KB for each panel; */
    BLOCK_HAS_LAST, /* 1: there is one */
    BLOCK_C,
    BLOCK_LDC, /* bytes */
    BLOCK_ADD,
    BLOCK_NEXT, /* prefetched meanwhile, */
    BLOCK_PACE, /* bytes with each step */
    BLOCK_PARAMS
};

static LLVMValueRef place(hcg_emit *e, LLVMValueRef p, LLVMValueRef stride, unsigned i) {
    return i ? hcg_at(e, e->i8, p, stride) : p;
}

static void multiply_step(hcg_emit *e, const block *d, LLVMValueRef x, LLVMValueRef x_stride,
                          LLVMValueRef b, LLVMValueRef b_stride) {
    LLVMValueRef line = hcg_i64(e, HCG_AMX_LINE);
    for (unsigned j = 0; j < d->panels; j++)
        hcg_amx_load(e, hcg_amx_w(j), place(e, b, b_stride, j), line, false);
    for (unsigned part = 0; part < d->of->n; part++)
        for (unsigned i = 0; i < d->rows; i++) {
            LLVMValueRef from = place(e, x, x_stride, i);
            hcg_amx_load(e, hcg_amx_x(i), hcg_at_byte(e, from, part * HCG_AMX_TILE), line, true);
            for (unsigned j = 0; j < d->panels; j++)
                hcg_amx_multiply(e, "llvm.x86.tdpbf16ps", hcg_amx_sum(i, j), hcg_amx_x(i),
                                 hcg_amx_w(j));
        }
}

/* f(tile, its place in c) for all sums */
static void each_sum(hcg_emit *e, const block *d, const LLVMValueRef *g, bool store) {
    LLVMValueRef row = hcg_mul_const(e, g[BLOCK_LDC], HCG_AMX_LINES);
    for (unsigned i = 0; i < d->rows; i++)
        for (unsigned j = 0; j < d->panels; j++) {
            LLVMValueRef at = hcg_at_byte(e, place(e, g[BLOCK_C], row, i), j * HCG_AMX_LINE);
            if (store)
                hcg_amx_store(e, hcg_amx_sum(i, j), at, g[BLOCK_LDC]);
            else
                hcg_amx_load(e, hcg_amx_sum(i, j), at, g[BLOCK_LDC], false);
        }
}

/* Sums so far: zeros, or what is in c. */
static void begin_sums(hcg_emit *e, const block *d, const LLVMValueRef *g) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), add = g[BLOCK_ADD];
    hcg_loop fresh = hcg_loop_begin(e, add, one, one, "fresh", 0, NULL); /* once or never */
    for (unsigned i = 0; i < d->rows; i++)
        for (unsigned j = 0; j < d->panels; j++)
            hcg_amx_zero(e, hcg_amx_sum(i, j));
    hcg_loop_end(e, &fresh, NULL);
    hcg_loop more = hcg_loop_begin(e, zero, add, one, "more", 0, NULL);
    each_sum(e, d, g, false);
    hcg_loop_end(e, &more, NULL);
}

static void prefetch_share(hcg_emit *e, const LLVMValueRef *g, LLVMValueRef step) {
    LLVMValueRef from = hcg_at(e, e->i8, g[BLOCK_NEXT], hcg_mul(e, step, g[BLOCK_PACE]));
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), g[BLOCK_PACE], hcg_i64(e, HCG_AMX_LINE), "ahead", 0, NULL);
    hcg_prefetch(e, hcg_at(e, e->i8, from, l.index), 0);
    hcg_loop_end(e, &l, NULL);
}

static hcg_shared block_function(hcg_emit *e, const block *d) {
    LLVMTypeRef params[BLOCK_PARAMS];
    hcg_shared s;
    for (int i = 0; i < BLOCK_PARAMS; i++)
        params[i] = e->i64;
    params[BLOCK_X] = params[BLOCK_B] = params[BLOCK_LAST] = params[BLOCK_C] = params[BLOCK_NEXT] =
        e->ptr;
    const char *name = hd_printf(e->arena, "amx_%s_%ux%u", d->of->name, d->rows * HCG_AMX_LINES,
                                 d->panels * (unsigned)HIR_PANEL);
    if (!hcg_shared_begin(e, name, params, BLOCK_PARAMS, &s)) return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    begin_sums(e, d, g);
    hcg_loop l = hcg_loop_begin(e, zero, g[BLOCK_STEPS], one, "step", 0, NULL);
    prefetch_share(e, g, l.index);
    LLVMValueRef x = hcg_mul_const(e, l.index, d->of->n * HCG_AMX_TILE);
    LLVMValueRef b = hcg_mul_const(e, l.index, HCG_AMX_TILE);
    multiply_step(e, d, hcg_at(e, e->i8, g[BLOCK_X], x), g[BLOCK_X_STRIDE],
                  hcg_at(e, e->i8, g[BLOCK_B], b), g[BLOCK_B_STRIDE]);
    hcg_loop_end(e, &l, NULL);
    hcg_loop last = hcg_loop_begin(e, zero, g[BLOCK_HAS_LAST], one, "last", 0, NULL);
    x = hcg_mul_const(e, g[BLOCK_STEPS], d->of->n * HCG_AMX_TILE);
    multiply_step(e, d, hcg_at(e, e->i8, g[BLOCK_X], x), g[BLOCK_X_STRIDE], g[BLOCK_LAST],
                  hcg_i64(e, HCG_AMX_TILE));
    hcg_loop_end(e, &last, NULL);
    each_sum(e, d, g, true);
    hcg_shared_end(e, &s);
    return s;
}

/* The block for as many tiles of rows and panels, 1 or 2 of each. */
static void call_block(hcg_emit *e, const parts *of, LLVMValueRef rows, LLVMValueRef panels,
                       const LLVMValueRef args[BLOCK_PARAMS]) {
    LLVMValueRef key = hcg_add(e, hcg_mul_const(e, rows, HCG_AMX_ACROSS), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "multiplied");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, HCG_AMX_ACROSS * HCG_AMX_ACROSS);
    for (unsigned i = 1; i <= HCG_AMX_ACROSS; i++)
        for (unsigned j = 1; j <= HCG_AMX_ACROSS; j++) {
            LLVMBasicBlockRef at = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiles");
            LLVMAddCase(choice, hcg_i64(e, i * HCG_AMX_ACROSS + j), at);
            LLVMPositionBuilderAtEnd(e->b, at);
            hcg_shared f = block_function(e, &(block){of, i, j});
            hcg_shared_call(e, &f, args, BLOCK_PARAMS);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}

/* ---- all rows and some panels ------------------------------------------------------------------
 */
enum {
    GEMM_X,
    GEMM_ROWS, /* tiles */
    GEMM_K,
    GEMM_B,
    GEMM_PANELS,
    GEMM_C,
    GEMM_LDC,
    GEMM_NEXT,
    GEMM_LAST, /* workspace for the last step of two panels */
    GEMM_PARAMS
};

/* Steps of two panels that stay in the L1 beside what streams by. */
static int64_t block_steps(const hcg_emit *e) {
    const int64_t steps = e->level->machine.l1 / 3 * 2 / (HCG_AMX_ACROSS * HCG_AMX_TILE);
    return steps < 1 ? 1 : steps;
}

/* Where K ends inside a tile: its lines, and zeros behind them, since panels may end there and what
 * follows may be no number. */
static void copy_last(hcg_emit *e, const LLVMValueRef *g, LLVMValueRef b, LLVMValueRef panel_bytes,
                      LLVMValueRef panels, LLVMValueRef steps) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), line = hcg_i64(e, HCG_AMX_LINE);
    LLVMValueRef whole = hcg_mul_const(e, steps, HCG_AMX_TILE);
    LLVMTypeRef bytes = LLVMVectorType(e->i32, HCG_AMX_LINE / 4);
    hcg_loop lp = hcg_loop_begin(e, zero, panels, one, "panel", 0, NULL);
    LLVMValueRef from = hcg_at(e, e->i8, b, hcg_mul(e, lp.index, panel_bytes));
    LLVMValueRef to = hcg_at(e, e->i8, g[GEMM_LAST], hcg_mul_const(e, lp.index, HCG_AMX_TILE));
    LLVMValueRef n = hcg_sub(e, panel_bytes, whole);
    hcg_loop l = hcg_loop_begin(e, zero, n, line, "line", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->i8, from, hcg_add(e, whole, l.index));
    LLVMValueRef v = LLVMBuildLoad2(e->b, bytes, at, "");
    LLVMSetAlignment(v, HCG_AMX_LINE);
    LLVMSetAlignment(LLVMBuildStore(e->b, v, hcg_at(e, e->i8, to, l.index)), HCG_AMX_LINE);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, hcg_i64(e, HCG_AMX_TILE), line, "zero", 0, NULL);
    v = LLVMConstNull(bytes);
    LLVMSetAlignment(LLVMBuildStore(e->b, v, hcg_at(e, e->i8, to, rest.index)), HCG_AMX_LINE);
    hcg_loop_end(e, &rest, NULL);
    hcg_loop_end(e, &lp, NULL);
}

/* gemm(x, tiles of rows, k, b, panels, c, ldc, next, last) */
static hcg_shared gemm_function(hcg_emit *e, const parts *of) {
    LLVMTypeRef params[GEMM_PARAMS];
    hcg_shared s;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_NEXT] = params[GEMM_LAST] =
        e->ptr;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "amx_%s", of->name), params, GEMM_PARAMS, &s))
        return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), across = hcg_i64(e, HCG_AMX_ACROSS);
    LLVMValueRef k = g[GEMM_K], steps = LLVMBuildUDiv(e->b, k, hcg_i64(e, STEP), "steps");
    LLVMValueRef all = hcg_divide_up(e, k, hcg_i64(e, STEP)), has_last = hcg_sub(e, all, steps);
    LLVMValueRef x_stride = hcg_mul_const(e, all, of->n * HCG_AMX_TILE);
    LLVMValueRef pairs = LLVMBuildLShr(e->b, hcg_add(e, k, one), one, "");
    LLVMValueRef panel_bytes = hcg_mul_const(e, pairs, HIR_PANEL * 4);
    LLVMValueRef most = hcg_i64(e, block_steps(e));
    LLVMValueRef slabs = hcg_divide_up(e, g[GEMM_ROWS], across);
    LLVMValueRef lines = hcg_divide_up(e, hcg_i64(e, HCG_AMX_ACROSS * HCG_AMX_LINES), slabs);
    LLVMValueRef pace = hcg_mul_const(e, lines, HCG_AMX_LINE);
    hcg_loop lp = hcg_loop_begin(e, zero, g[GEMM_PANELS], across, "panel", 0, NULL);
    LLVMValueRef panels = hcg_smaller(e, across, hcg_sub(e, g[GEMM_PANELS], lp.index));
    LLVMValueRef b = hcg_at(e, e->i8, g[GEMM_B], hcg_mul(e, lp.index, panel_bytes));
    LLVMValueRef end = hcg_add(e, lp.index, across);
    LLVMValueRef next = LLVMBuildSelect(
        e->b, LLVMBuildICmp(e->b, LLVMIntSLT, end, g[GEMM_PANELS], ""),
        hcg_at(e, e->i8, g[GEMM_B], hcg_mul(e, end, panel_bytes)), g[GEMM_NEXT], "");
    hcg_loop cut = hcg_loop_begin(e, zero, has_last, one, "cut", 0, NULL); /* once or never */
    copy_last(e, g, b, panel_bytes, panels, steps);
    hcg_loop_end(e, &cut, NULL);
    /* at least once: K may be less than a step */
    hcg_loop lk = hcg_loop_begin(e, zero, hcg_larger(e, steps, one), most, "k_block", 0, NULL);
    LLVMValueRef n = hcg_smaller(e, most, hcg_sub(e, steps, lk.index));
    LLVMValueRef behind = hcg_add(e, lk.index, n);
    LLVMValueRef at_end = LLVMBuildICmp(e->b, LLVMIntEQ, behind, steps, "");
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, lk.index, zero, "");
    hcg_loop lr = hcg_loop_begin(e, zero, g[GEMM_ROWS], across, "slab", 0, NULL);
    LLVMValueRef rows = hcg_smaller(e, across, hcg_sub(e, g[GEMM_ROWS], lr.index));
    LLVMValueRef x = hcg_add(e, hcg_mul(e, lr.index, x_stride),
                             hcg_mul_const(e, lk.index, of->n * HCG_AMX_TILE));
    LLVMValueRef c = hcg_mul(e, hcg_mul_const(e, lr.index, HCG_AMX_LINES), g[GEMM_LDC]);
    c = hcg_add(e, c, hcg_mul_const(e, lp.index, HIR_PANEL));
    LLVMValueRef slab = LLVMBuildUDiv(e->b, lr.index, across, "");
    LLVMValueRef share = hcg_add(e, hcg_mul(e, lk.index, slabs), hcg_mul(e, slab, n));
    LLVMValueRef args[BLOCK_PARAMS] = {
        hcg_at(e, e->i8, g[GEMM_X], x),
        x_stride,
        hcg_at(e, e->i8, b, hcg_mul_const(e, lk.index, HCG_AMX_TILE)),
        panel_bytes,
        n,
        g[GEMM_LAST],
        LLVMBuildSelect(e->b, at_end, has_last, zero, ""),
        hcg_at(e, e->f32, g[GEMM_C], c),
        hcg_mul_const(e, g[GEMM_LDC], 4),
        LLVMBuildSelect(e->b, first, zero, one, ""),
        hcg_at(e, e->i8, next, hcg_mul(e, share, pace)),
        pace,
    };
    call_block(e, of, rows, panels, args);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- the back ends -----------------------------------------------------------------------------
 */
static int64_t tile_panels(const hcg_level *level) {
    (void)level;
    return 2 * HCG_AMX_ACROSS;
}

static int64_t rows_of(const hcg_level *level, int64_t k, unsigned n) {
    const int64_t tile_row = steps_of(k) * n * HCG_AMX_TILE;
    int64_t tiles = level->machine.l2 / 2 / tile_row;
    if (tiles < 2) tiles = 2;
    if (tiles > 32) tiles = 32;
    return tiles * HCG_AMX_LINES;
}

static int64_t exact_rows(const hcg_level *level, int64_t k) {
    return rows_of(level, k, MOST_PARTS);
}

static int64_t rounded_rows(const hcg_level *level, int64_t k) {
    return rows_of(level, k, 1);
}

static void begin(hcg_emit *e, hcg_product *p) {
    const uint64_t tile_rows = (p->rows + HCG_AMX_LINES - 1) / HCG_AMX_LINES;
    const uint64_t tiles = tile_rows * (uint64_t)steps_of(p->k) * parts_of(p)->n;
    p->x_workspace = hcg_scratch(e, tiles * HCG_AMX_TILE);
    p->panel_workspace = hcg_scratch(e, HCG_AMX_ACROSS * HCG_AMX_TILE);
    hcg_amx_configure(e);
}

static void prepare(hcg_emit *e, hcg_product *p) {
    hcg_shared f = prepare_function(e, parts_of(p));
    LLVMValueRef args[] = {p->x, p->ldx, p->n_rows, p->length, p->x_workspace};
    hcg_shared_call(e, &f, args, 5);
}

static void gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_shared f = gemm_function(e, parts_of(p));
    LLVMValueRef args[] = {
        p->x_workspace,
        hcg_divide_up(e, p->n_rows, hcg_i64(e, HCG_AMX_LINES)),
        p->length,
        b->w,
        b->n,
        b->sums,
        b->ld,
        b->next,
        p->panel_workspace,
    };
    hcg_shared_call(e, &f, args, GEMM_PARAMS);
}

static void end(hcg_emit *e, hcg_product *p) {
    (void)p;
    hcg_amx_release(e);
}

#define BACKEND(id, parts_n, word, rows_fn)                                                        \
    const hcg_backend hcg_##id = {                                                                 \
        .name = #id,                                                                               \
        .instructions = &(const parts){parts_n, word},                                             \
        .tile_panels = tile_panels,                                                                \
        .block_rows = rows_fn,                                                                     \
        .tile_rows = HCG_AMX_LINES,                                                                \
        .prefetches = true,                                                                        \
        .begin = begin,                                                                            \
        .prepare = prepare,                                                                        \
        .gemm = gemm,                                                                              \
        .end = end,                                                                                \
    }
BACKEND(amx_exact, MOST_PARTS, "exact", exact_rows);
BACKEND(amx_rounded, 1, "rounded", rounded_rows);
#undef BACKEND
