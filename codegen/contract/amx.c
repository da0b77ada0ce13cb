/* The back ends of a matrix unit for bf16 weights (contract/amx_tiles.h), for many tokens. A tile
 * of weights is 16 lines of a panel, as it lies (contract/pairs.h). x is brought into tiles of
 * bf16:
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
 * Blocks, as in Goto and van de Geijn's "Anatomy of high-performance matrix multiplication", but
 * that sums are what stays: those of a block of rows and some panels are in the L2 while slices of
 * K pass by, of x, prepared for each slice, and of the panels, each read once. Within a slice, two
 * panels stay in the L1 while all rows are multiplied with them; the next two are prefetched
 * meanwhile, a share of them with each step.
 */
#include "codegen/contract/amx_tiles.h"
#include "codegen/contract/blocking.h"
#include "codegen/contract/groups.h"
#include "codegen/contract/matrix.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

enum {
    STEP = HCG_AMX_LINE / 2,               /* elements of K in a tile */
    SLAB = HCG_AMX_ACROSS * HCG_AMX_LINES, /* rows that are multiplied together */
    MOST_ROWS = 256, /* of a block: beyond, weights are read often enough for what they take */
    INTO_L2 = 2,     /* of llvm.prefetch */
};

/* How a back end sees x. */
typedef struct parts {
    unsigned n;
    const char *name;
} parts;

static const parts *parts_of(const hcg_product *p) {
    return p->backend->instructions;
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
    BLOCK_NEXT, /* the panels that follow, as far apart: prefetched meanwhile, */
    BLOCK_PACE, /* bytes of each with each step */
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

/* The share of the panels that follow, into the L2: what is in use needs the L1. */
static void prefetch_share(hcg_emit *e, const block *d, const LLVMValueRef *g, LLVMValueRef step) {
    LLVMValueRef from = hcg_at(e, e->i8, g[BLOCK_NEXT], hcg_mul(e, step, g[BLOCK_PACE]));
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), g[BLOCK_PACE], hcg_i64(e, HCG_AMX_LINE), "ahead", 0, NULL);
    for (unsigned j = 0; j < d->panels; j++) {
        LLVMValueRef line = hcg_at(e, e->i8, place(e, from, g[BLOCK_B_STRIDE], j), l.index);
        LLVMValueRef args[] = {line, LLVMConstInt(e->i32, 0, false),
                               LLVMConstInt(e->i32, INTO_L2, false),
                               LLVMConstInt(e->i32, 1, false)};
        hcg_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
    }
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
    prefetch_share(e, d, g, l.index);
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

/* ---- slices of K -------------------------------------------------------------------------------
 */
enum {
    GEMM_X,
    GEMM_LDX,
    GEMM_ROWS,
    GEMM_K,
    GEMM_B,
    GEMM_PANELS,
    GEMM_C,
    GEMM_LDC,
    GEMM_NEXT,
    GEMM_TILES, /* workspace for x of a slice, */
    GEMM_LAST,  /* and for the last step of two panels */
    GEMM_PARAMS
};

/* Steps of a slice: of two panels they fill half of the L1, or a third where three tiles of x
 * stream past each of weights. */
static int64_t slice_steps(const hcg_level *level, unsigned n) {
    const int64_t steps = level->machine.l1 / (n == 1 ? 2 : 3) / (HCG_AMX_ACROSS * HCG_AMX_TILE);
    return steps < 1 ? 1 : steps;
}

typedef struct slice {
    const parts *of;
    const LLVMValueRef *g;
    LLVMValueRef panel_bytes, tile_rows, slabs, pace;
    LLVMValueRef from, steps; /* the first, and whole ones */
    LLVMValueRef has_last, x_stride, add;
} slice;

/* Where K ends inside a tile: its lines, and zeros behind them, since panels may end there and what
 * follows may be no number. */
static void copy_last(hcg_emit *e, const slice *s, LLVMValueRef b, LLVMValueRef panels) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), line = hcg_i64(e, HCG_AMX_LINE);
    LLVMValueRef whole = hcg_mul_const(e, hcg_add(e, s->from, s->steps), HCG_AMX_TILE);
    LLVMTypeRef bytes = LLVMVectorType(e->i32, HCG_AMX_LINE / 4);
    hcg_loop lp = hcg_loop_begin(e, zero, panels, one, "panel", 0, NULL);
    LLVMValueRef from = hcg_at(e, e->i8, b, hcg_mul(e, lp.index, s->panel_bytes));
    LLVMValueRef to = hcg_at(e, e->i8, s->g[GEMM_LAST], hcg_mul_const(e, lp.index, HCG_AMX_TILE));
    LLVMValueRef n = hcg_sub(e, s->panel_bytes, whole);
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

/* All rows over the slice of two panels, or one. */
static void emit_slabs(hcg_emit *e, const slice *s, LLVMValueRef b, LLVMValueRef panel,
                       LLVMValueRef panels, LLVMValueRef next) {
    LLVMValueRef across = hcg_i64(e, HCG_AMX_ACROSS), slab = hcg_i64(e, 0);
    hcg_loop l = hcg_loop_begin(e, slab, s->tile_rows, across, "slab", 1, &slab);
    LLVMValueRef rows = hcg_smaller(e, across, hcg_sub(e, s->tile_rows, l.index));
    LLVMValueRef c = hcg_mul(e, hcg_mul_const(e, l.index, HCG_AMX_LINES), s->g[GEMM_LDC]);
    c = hcg_add(e, c, hcg_mul_const(e, panel, HIR_PANEL));
    slab = l.carried[0];
    LLVMValueRef share = hcg_mul(e, hcg_mul(e, slab, s->steps), s->pace);
    LLVMValueRef args[BLOCK_PARAMS] = {
        hcg_at(e, e->i8, s->g[GEMM_TILES], hcg_mul(e, l.index, s->x_stride)),
        s->x_stride,
        b,
        s->panel_bytes,
        s->steps,
        s->g[GEMM_LAST],
        s->has_last,
        hcg_at(e, e->f32, s->g[GEMM_C], c),
        hcg_mul_const(e, s->g[GEMM_LDC], 4),
        s->add,
        hcg_at(e, e->i8, next, share),
        s->pace,
    };
    call_block(e, s->of, rows, panels, args);
    slab = hcg_add(e, slab, hcg_i64(e, 1));
    hcg_loop_end(e, &l, &slab);
}

/* What is read after two panels of the slice: the next two, or the first two of the next slice;
 * behind the last one, those of the next product. */
static LLVMValueRef following(hcg_emit *e, const slice *s, LLVMValueRef end, LLVMValueRef behind,
                              LLVMValueRef last) {
    LLVMValueRef start = hcg_mul_const(e, s->from, HCG_AMX_TILE);
    LLVMValueRef here = hcg_add(e, hcg_mul(e, end, s->panel_bytes), start);
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, end, s->g[GEMM_PANELS], "");
    LLVMValueRef there = hcg_mul_const(e, behind, HCG_AMX_TILE);
    LLVMValueRef other =
        LLVMBuildSelect(e->b, last, s->g[GEMM_NEXT], hcg_at(e, e->i8, s->g[GEMM_B], there), "");
    return LLVMBuildSelect(e->b, more, hcg_at(e, e->i8, s->g[GEMM_B], here), other, "");
}

/* All panels over one slice. */
static void emit_panels(hcg_emit *e, const slice *s, LLVMValueRef behind, LLVMValueRef last) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), across = hcg_i64(e, HCG_AMX_ACROSS);
    hcg_loop l = hcg_loop_begin(e, zero, s->g[GEMM_PANELS], across, "panel", 0, NULL);
    LLVMValueRef panels = hcg_smaller(e, across, hcg_sub(e, s->g[GEMM_PANELS], l.index));
    LLVMValueRef b = hcg_at(e, e->i8, s->g[GEMM_B], hcg_mul(e, l.index, s->panel_bytes));
    LLVMValueRef next = following(e, s, hcg_add(e, l.index, across), behind, last);
    hcg_loop cut = hcg_loop_begin(e, zero, s->has_last, one, "cut", 0, NULL); /* once or never */
    copy_last(e, s, b, panels);
    hcg_loop_end(e, &cut, NULL);
    b = hcg_at(e, e->i8, b, hcg_mul_const(e, s->from, HCG_AMX_TILE));
    emit_slabs(e, s, b, l.index, panels, next);
    hcg_loop_end(e, &l, NULL);
}

/* gemm(x, ldx, rows, k, b, panels, c, ldc, next, tiles, last) */
static hcg_shared gemm_function(hcg_emit *e, const parts *of) {
    LLVMTypeRef params[GEMM_PARAMS];
    hcg_shared f;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_NEXT] = params[GEMM_TILES] =
        params[GEMM_LAST] = e->ptr;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "amx_%s", of->name), params, GEMM_PARAMS, &f))
        return f;
    const LLVMValueRef *g = f.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), step = hcg_i64(e, STEP), k = g[GEMM_K];
    LLVMValueRef whole = LLVMBuildUDiv(e->b, k, step, "whole"), all = hcg_divide_up(e, k, step);
    LLVMValueRef most = hcg_i64(e, slice_steps(e->level, of->n));
    LLVMValueRef pairs = LLVMBuildLShr(e->b, hcg_add(e, k, one), one, "");
    slice s = {.of = of, .g = g, .panel_bytes = hcg_mul_const(e, pairs, HIR_PANEL * 4)};
    s.tile_rows = hcg_divide_up(e, g[GEMM_ROWS], hcg_i64(e, HCG_AMX_LINES));
    s.slabs = hcg_divide_up(e, s.tile_rows, hcg_i64(e, HCG_AMX_ACROSS));
    LLVMValueRef lines = hcg_divide_up(e, hcg_i64(e, HCG_AMX_LINES), s.slabs);
    s.pace = hcg_mul_const(e, lines, HCG_AMX_LINE);
    hcg_loop l = hcg_loop_begin(e, zero, all, most, "slice", 0, NULL);
    LLVMValueRef behind = hcg_smaller(e, hcg_add(e, l.index, most), all);
    LLVMValueRef is_last = LLVMBuildICmp(e->b, LLVMIntEQ, behind, all, "");
    s.from = l.index, s.steps = hcg_sub(e, hcg_smaller(e, behind, whole), l.index);
    LLVMValueRef n = hcg_sub(e, behind, l.index);
    s.has_last = hcg_sub(e, n, s.steps), s.x_stride = hcg_mul_const(e, n, of->n * HCG_AMX_TILE);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, l.index, zero, "");
    s.add = LLVMBuildSelect(e->b, first, zero, one, "");
    LLVMValueRef at = hcg_mul_const(e, l.index, STEP);
    LLVMValueRef x = hcg_at(e, e->f32, g[GEMM_X], at);
    LLVMValueRef width = hcg_smaller(e, hcg_sub(e, k, at), hcg_mul_const(e, n, STEP));
    hcg_shared prepare = prepare_function(e, of);
    LLVMValueRef args[] = {x, g[GEMM_LDX], g[GEMM_ROWS], width, g[GEMM_TILES]};
    hcg_shared_call(e, &prepare, args, 5);
    emit_panels(e, &s, behind, is_last);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &f);
    return f;
}

/* ---- the back ends -----------------------------------------------------------------------------
 */
/* Sums of a block take a quarter of the L2. */
static int64_t tile_panels(const hcg_level *level) {
    const int64_t panels = level->machine.l2 / 4 / (MOST_ROWS * HCG_AMX_LINE);
    return panels < HCG_AMX_ACROSS ? HCG_AMX_ACROSS : panels / HCG_AMX_ACROSS * HCG_AMX_ACROSS;
}

/* More rows read panels less often. What a prologue makes of them is in memory that each thread
 * has for itself: four times the L2 at most. */
static int64_t block_rows(const hcg_level *level, int64_t k) {
    const int64_t rows = 4 * (int64_t)level->machine.l2 / (4 * k) / SLAB * SLAB;
    return rows < SLAB ? SLAB : rows > MOST_ROWS ? MOST_ROWS : rows;
}

static void begin(hcg_emit *e, hcg_product *p) {
    const uint64_t tile_rows = (p->rows + HCG_AMX_LINES - 1) / HCG_AMX_LINES;
    const uint64_t steps = (uint64_t)slice_steps(e->level, parts_of(p)->n);
    p->x_workspace = hcg_scratch(e, tile_rows * steps * parts_of(p)->n * HCG_AMX_TILE);
    p->panel_workspace = hcg_scratch(e, HCG_AMX_ACROSS * HCG_AMX_TILE);
}

static void gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_amx_configure(e, HCG_AMX_LINE);
    hcg_shared f = gemm_function(e, parts_of(p));
    LLVMValueRef args[GEMM_PARAMS] = {
        p->x,  p->ldx,  p->n_rows,      p->length,          b->w, b->n, b->sums,
        b->ld, b->next, p->x_workspace, p->panel_workspace,
    };
    hcg_shared_call(e, &f, args, GEMM_PARAMS);
}

static void end(hcg_emit *e, hcg_product *p) {
    (void)p;
    hcg_amx_release(e);
}

#define BACKEND(id, parts_n, word)                                                                 \
    const hcg_backend hcg_##id = {                                                                 \
        .name = #id,                                                                               \
        .instructions = &(const parts){parts_n, word},                                             \
        .tile_panels = tile_panels,                                                                \
        .block_rows = block_rows,                                                                  \
        .tile_rows = HCG_AMX_LINES,                                                                \
        .prefetches = true,                                                                        \
        .begin = begin,                                                                            \
        .gemm = gemm,                                                                              \
        .end = end,                                                                                \
    }
BACKEND(amx_exact, 3, "exact");
BACKEND(amx_rounded, 1, "rounded");
#undef BACKEND
