/* The back ends of a matrix unit by products of bf16 (amx/tiles.h), for many tokens. x, and weights
 * of other types, are brought into tiles of bf16 (amx/parts.h):
 *
 *   amx_rounded   x is rounded to bf16, as for bf16_dots; weights are bf16
 *   amx_exact     x is the sum of three bf16, weights are bf16, mxfp4 or nvfp4, which bf16 holds
 *                 exactly (of nvfp4 without the factors of rows, by which sums are multiplied in
 *                 the end): three products go to one sum
 *   amx_f32       x and weights are sums of three bf16 each: six of nine products go to one sum
 *   amx_f16       x is three bf16, weights are f16, two bf16: five of six products go to one sum
 *   amx_groups    x and weights of q8, q4, mxfp4 and nvfp4 are rounded to bf16 (below)
 *
 * A tile of bf16 weights is 16 lines of a panel, as it lies (backends/bf16.c). Tiles of other
 * types are made for a slice of two panels at a time and used for all rows of the block: the
 * .weights file holds the weights in their own type.
 *
 * Products of bf16 are exact in f32. Of 16 pairs along K, TDPBF16PS adds the even and the odd
 * products in a chain each, both chains, and the sum so far; each addition rounds to nearest,
 * numbers below 2^-126 count as zeros on the way in and out. With u = 2^-24 and S = sum |x w|
 *
 *     |error| <= u S (P K / 32 + 18) + 2^-126 sum |w|         P products, to first order in u
 *
 * since a chain's additions round what is in it only, and the parts beyond the first are small.
 * Where weights have parts too, the second and third ones are at most 2^-8 and 2^-16 of the whole,
 * so that the three products that are left out amount to u S (2 + 2^-8) at most (of f16 one, u S),
 * and parts below 2^-126 to 2^-126 sum |x|. Sums of f32 multiply-adds may be off by u S K. A row
 * of x that holds an infinity or NaN is multiplied by vectors, as one token is: an infinity times a
 * part that is zero would give NaN instead of an infinity.
 *
 * Blocks, as in Goto and van de Geijn's "Anatomy of high-performance matrix multiplication", except
 * that the sums are what stays in the cache: the sums of a block of rows and some panels are in the
 * L2 while slices of K stream past. x is prepared for each slice, and each slice of the panels is
 * read once. Within a slice, two panels stay in the L1 while all rows are multiplied with them; the
 * next two panels are prefetched meanwhile, a share of them with each step.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backends/amx/parts.h"
#include "codegen/matmul/backends/amx/small_m.h"
#include "codegen/matmul/matrix.h"

enum {
    STEP = HCG_AMX_STEP,
    SLAB = HCG_AMX_ACROSS * HCG_AMX_LINES, /* rows that are multiplied together */
    MOST_ROWS = 256, /* rows of a block: more would not gain by reading weights less often */
    INFINITE = 0x7f800000,
};

typedef hcg_amx_parts parts;

extern const hcg_backend hcg_int8_vnni_512, hcg_multiply_add;

static const parts *parts_of(const hcg_product *p) {
    return p->backend->instructions;
}

/* Are weights several parts each? */
static bool splits_weights(const parts *p) {
    return p->w > 1;
}

/* ---- a block of tiles --------------------------------------------------------------------------
 * c[rows * 16][panels * 16] (+)= x w over some steps; the weights of the last step may lie
 * elsewhere
 */
typedef struct block {
    const parts *of;
    hcg_amx_sums sums; /* [rows][panels] */
} block;

enum {
    BLOCK_X,
    BLOCK_X_STRIDE, /* bytes to the next tile of rows */
    BLOCK_B,
    BLOCK_B_STRIDE, /* bytes to the next panel */
    BLOCK_STEPS,    /* whole steps */
    BLOCK_LAST,     /* weights of one more step, 1 KB for each panel; */
    BLOCK_HAS_LAST, /* 1: there is one */
    BLOCK_C,
    BLOCK_LDC, /* bytes */
    BLOCK_ADD,
    BLOCK_NEXT,        /* the panels that follow, which are prefetched meanwhile: */
    BLOCK_NEXT_STRIDE, /* bytes from one panel to the other, */
    BLOCK_PACE,        /* bytes of each panel with each step */
    BLOCK_PARAMS
};

static LLVMValueRef place(hcg_emit *e, LLVMValueRef p, LLVMValueRef stride, unsigned i) {
    return i ? hcg_at(e, e->i8, p, stride) : p;
}

/* The products of a step. A part of x or of weights that the previous product used is still in its
 * registers. */
static void multiply_step(hcg_emit *e, const block *d, LLVMValueRef x, LLVMValueRef x_stride,
                          LLVMValueRef b, LLVMValueRef b_stride) {
    LLVMValueRef line = hcg_i64(e, HCG_AMX_LINE);
    const parts *p = d->of;
    for (unsigned n = 0; n < p->n; n++) {
        const bool new_w = !n || p->of[n].w != p->of[n - 1].w;
        const bool new_x = !n || p->of[n].x != p->of[n - 1].x;
        for (unsigned j = 0; j < d->sums.columns && new_w; j++)
            hcg_amx_load(e, hcg_amx_w(j),
                         hcg_at_byte(e, place(e, b, b_stride, j), p->of[n].w * HCG_AMX_TILE), line,
                         false);
        for (unsigned i = 0; i < d->sums.rows; i++) {
            LLVMValueRef from = place(e, x, x_stride, i);
            if (new_x)
                hcg_amx_load(e, hcg_amx_x(i), hcg_at_byte(e, from, p->of[n].x * HCG_AMX_TILE), line,
                             true);
            hcg_amx_add_row(e, &d->sums, "llvm.x86.tdpbf16ps", i);
        }
    }
}

/* Prefetches a share of the panels that follow, into the L2: the L1 is needed for what is in
 * use. */
static void prefetch_share(hcg_emit *e, const block *d, const LLVMValueRef *g, LLVMValueRef step) {
    LLVMValueRef from = hcg_at(e, e->i8, g[BLOCK_NEXT], hcg_mul(e, step, g[BLOCK_PACE]));
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), g[BLOCK_PACE], hcg_i64(e, HCG_AMX_LINE), "ahead", 0, NULL);
    for (unsigned j = 0; j < d->sums.columns; j++) {
        LLVMValueRef line = hcg_at(e, e->i8, place(e, from, g[BLOCK_NEXT_STRIDE], j), l.index);
        hcg_prefetch_l2(e, line, 0);
    }
    hcg_loop_end(e, &l, NULL);
}

static hcg_shared block_function(hcg_emit *e, block *d) {
    LLVMTypeRef params[BLOCK_PARAMS];
    hcg_shared s;
    for (int i = 0; i < BLOCK_PARAMS; i++)
        params[i] = e->i64;
    params[BLOCK_X] = params[BLOCK_B] = params[BLOCK_LAST] = params[BLOCK_C] = params[BLOCK_NEXT] =
        e->ptr;
    const char *name =
        hd_printf(e->arena, "amx_%s_%ux%u", d->of->name, d->sums.rows * HCG_AMX_LINES,
                  d->sums.columns * (unsigned)HIR_PANEL);
    if (!hcg_shared_begin(e, name, params, BLOCK_PARAMS, &s)) return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    d->sums.c = g[BLOCK_C], d->sums.line = g[BLOCK_LDC];
    hcg_amx_begin_sums(e, &d->sums, g[BLOCK_ADD]);
    hcg_loop l = hcg_loop_begin(e, zero, g[BLOCK_STEPS], one, "step", 0, NULL);
    prefetch_share(e, d, g, l.index);
    LLVMValueRef x = hcg_mul_const(e, l.index, d->of->x * HCG_AMX_TILE);
    LLVMValueRef b = hcg_mul_const(e, l.index, d->of->w * HCG_AMX_TILE);
    multiply_step(e, d, hcg_at(e, e->i8, g[BLOCK_X], x), g[BLOCK_X_STRIDE],
                  hcg_at(e, e->i8, g[BLOCK_B], b), g[BLOCK_B_STRIDE]);
    hcg_loop_end(e, &l, NULL);
    hcg_loop last = hcg_loop_begin(e, zero, g[BLOCK_HAS_LAST], one, "last", 0, NULL);
    x = hcg_mul_const(e, g[BLOCK_STEPS], d->of->x * HCG_AMX_TILE);
    multiply_step(e, d, hcg_at(e, e->i8, g[BLOCK_X], x), g[BLOCK_X_STRIDE], g[BLOCK_LAST],
                  hcg_i64(e, HCG_AMX_TILE));
    hcg_loop_end(e, &last, NULL);
    hcg_amx_leave_sums(e, &d->sums);
    hcg_shared_end(e, &s);
    return s;
}

typedef struct block_call {
    const parts *of;
    const LLVMValueRef *args; /* BLOCK_PARAMS of them */
} block_call;

static void call_block(hcg_emit *e, void *of, unsigned rows, unsigned panels) {
    const block_call *call = of;
    block d = {call->of, {.rows = rows, .columns = panels}};
    hcg_shared f = block_function(e, &d);
    hcg_shared_call(e, &f, call->args, BLOCK_PARAMS);
}

/* ---- slices of K ----------------------------------------------------------------------------- */
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
    GEMM_OWN,   /* and for the last step of two panels, and the tiles of their slice; */
    GEMM_MOST,  /* the largest |x| of each row, where weights are split */
    GEMM_PARAMS
};

/* Steps of a slice: those of two panels fill half of the L1, or a third where three tiles of x
 * stream past each tile of weights. */
static int64_t slice_steps(const hcg_level *level, const parts *of) {
    const int64_t share = level->machine.l1 / (of->x > of->w ? 3 : 2);
    const int64_t steps = share / (HCG_AMX_ACROSS * of->w * HCG_AMX_TILE);
    return steps < 1 ? 1 : steps;
}

/* Bytes of the tiles that are made of a panel's slice. */
static int64_t made_bytes(const hcg_level *level, const parts *of) {
    return slice_steps(level, of) * of->w * HCG_AMX_TILE;
}

/* Bytes of the copied end of a panel. Groups are never cut short. */
static int64_t end_bytes(hir_dtype dtype) {
    return hir_is_quantised(dtype) ? 0 : hcg_amx_step_bytes(dtype);
}

typedef struct slice {
    const parts *of;
    hir_dtype dtype; /* of weights */
    const LLVMValueRef *g;
    LLVMValueRef panel_bytes, tile_rows, slabs, pace;
    LLVMValueRef from, steps; /* the first step, and how many whole ones */
    LLVMValueRef has_last, x_stride, add;
} slice;

/* Where tiles of a panel's slice are made, after the ends of two panels. */
static LLVMValueRef made_place(hcg_emit *e, const slice *s, LLVMValueRef panel) {
    LLVMValueRef at = hcg_mul_const(e, panel, made_bytes(e->level, s->of));
    at = hcg_add(e, at, hcg_i64(e, HCG_AMX_ACROSS * end_bytes(s->dtype)));
    return hcg_at(e, e->i8, s->g[GEMM_OWN], at);
}

static void store_row(hcg_emit *e, LLVMValueRef v, LLVMValueRef to, int64_t bytes) {
    LLVMSetAlignment(LLVMBuildStore(e->b, v, to), (unsigned)bytes);
}

/* Where K ends inside a tile, copies its lines with zeros after them, since panels may end there
 * and what follows may be no number. */
static void copy_last(hcg_emit *e, const slice *s, LLVMValueRef b, LLVMValueRef panels) {
    const int64_t step = hcg_amx_step_bytes(s->dtype);
    const int64_t row = hcg_panel_bytes(s->dtype, hir_panel_depth(s->dtype));
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), line = hcg_i64(e, row);
    LLVMValueRef whole = hcg_mul_const(e, hcg_add(e, s->from, s->steps), step);
    LLVMTypeRef bytes = LLVMVectorType(e->i32, (unsigned)row / 4);
    hcg_loop lp = hcg_loop_begin(e, zero, panels, one, "panel", 0, NULL);
    LLVMValueRef from = hcg_at(e, e->i8, b, hcg_mul(e, lp.index, s->panel_bytes));
    LLVMValueRef to = hcg_at(e, e->i8, s->g[GEMM_OWN], hcg_mul_const(e, lp.index, step));
    LLVMValueRef n = hcg_sub(e, s->panel_bytes, whole);
    hcg_loop l = hcg_loop_begin(e, zero, n, line, "line", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->i8, from, hcg_add(e, whole, l.index));
    LLVMValueRef v = LLVMBuildLoad2(e->b, bytes, at, "");
    LLVMSetAlignment(v, (unsigned)row);
    store_row(e, v, hcg_at(e, e->i8, to, l.index), row);
    hcg_loop_end(e, &l, NULL);
    hcg_loop rest = hcg_loop_begin(e, l.index, hcg_i64(e, step), line, "zero", 0, NULL);
    store_row(e, LLVMConstNull(bytes), hcg_at(e, e->i8, to, rest.index), row);
    hcg_loop_end(e, &rest, NULL);
    hcg_loop_end(e, &lp, NULL);
}

/* Makes the tiles of the slice of two panels, or one. b: where the slice begins in the first
 * panel; its last step has been copied if it is not whole. */
static void make_tiles(hcg_emit *e, const slice *s, LLVMValueRef b, LLVMValueRef panels) {
    const int64_t step = hcg_amx_step_bytes(s->dtype);
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, zero, panels, one, "split", 0, NULL);
    LLVMValueRef to = made_place(e, s, l.index);
    LLVMValueRef from = hcg_at(e, e->i8, b, hcg_mul(e, l.index, s->panel_bytes));
    hcg_amx_split_panel(e, s->of, s->dtype, from, s->steps, to);
    if (end_bytes(s->dtype)) {
        from = hcg_at(e, e->i8, s->g[GEMM_OWN], hcg_mul_const(e, l.index, step));
        to = hcg_at(e, e->i8, to, hcg_mul_const(e, s->steps, s->of->w * HCG_AMX_TILE));
        hcg_amx_split_panel(e, s->of, s->dtype, from, s->has_last, to);
    }
    hcg_loop_end(e, &l, NULL);
}

/* The weights of a slice as blocks read them: in place, with the last step where it was copied; or
 * as tiles that were made, the last step among them. */
static void set_weights(hcg_emit *e, const slice *s, LLVMValueRef b, LLVMValueRef *args) {
    args[BLOCK_B] = b, args[BLOCK_B_STRIDE] = s->panel_bytes;
    args[BLOCK_STEPS] = s->steps;
    args[BLOCK_LAST] = s->g[GEMM_OWN], args[BLOCK_HAS_LAST] = s->has_last;
    if (!hcg_amx_makes_tiles(s->dtype)) return;
    args[BLOCK_B] = made_place(e, s, hcg_i64(e, 0));
    args[BLOCK_B_STRIDE] = hcg_i64(e, made_bytes(e->level, s->of));
    args[BLOCK_STEPS] = hcg_add(e, s->steps, s->has_last);
    args[BLOCK_HAS_LAST] = hcg_i64(e, 0);
}

/* Multiplies all rows with the slice of two panels, or one. */
static void emit_slabs(hcg_emit *e, const slice *s, LLVMValueRef b, LLVMValueRef panel,
                       LLVMValueRef panels, LLVMValueRef next) {
    LLVMValueRef across = hcg_i64(e, HCG_AMX_ACROSS), slab = hcg_i64(e, 0), args[BLOCK_PARAMS];
    hcg_loop l = hcg_loop_begin(e, slab, s->tile_rows, across, "slab", 1, &slab);
    LLVMValueRef rows = hcg_smaller(e, across, hcg_sub(e, s->tile_rows, l.index));
    LLVMValueRef c = hcg_mul(e, hcg_mul_const(e, l.index, HCG_AMX_LINES), s->g[GEMM_LDC]);
    c = hcg_add(e, c, hcg_mul_const(e, panel, HIR_PANEL));
    slab = l.carried[0];
    LLVMValueRef share = hcg_mul(e, hcg_mul(e, slab, s->steps), s->pace);
    set_weights(e, s, b, args);
    args[BLOCK_X] = hcg_at(e, e->i8, s->g[GEMM_TILES], hcg_mul(e, l.index, s->x_stride));
    args[BLOCK_X_STRIDE] = s->x_stride;
    args[BLOCK_C] = hcg_at(e, e->f32, s->g[GEMM_C], c);
    args[BLOCK_LDC] = hcg_mul_const(e, s->g[GEMM_LDC], 4);
    args[BLOCK_ADD] = s->add;
    args[BLOCK_NEXT] = hcg_at(e, e->i8, next, share);
    args[BLOCK_NEXT_STRIDE] = s->panel_bytes, args[BLOCK_PACE] = s->pace;
    hcg_amx_for_size(e, rows, panels, call_block, &(block_call){s->of, args});
    slab = hcg_add(e, slab, hcg_i64(e, 1));
    hcg_loop_end(e, &l, &slab);
}

/* What is read after two panels of the slice: the next two, or the first two of the next slice;
 * after the last slice, the panels of the next product. */
static LLVMValueRef following(hcg_emit *e, const slice *s, LLVMValueRef end, LLVMValueRef behind,
                              LLVMValueRef last) {
    LLVMValueRef start = hcg_mul_const(e, s->from, hcg_amx_step_bytes(s->dtype));
    LLVMValueRef here = hcg_add(e, hcg_mul(e, end, s->panel_bytes), start);
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, end, s->g[GEMM_PANELS], "");
    LLVMValueRef there = hcg_mul_const(e, behind, hcg_amx_step_bytes(s->dtype));
    LLVMValueRef other =
        LLVMBuildSelect(e->b, last, s->g[GEMM_NEXT], hcg_at(e, e->i8, s->g[GEMM_B], there), "");
    return LLVMBuildSelect(e->b, more, hcg_at(e, e->i8, s->g[GEMM_B], here), other, "");
}

/* Multiplies all panels over one slice. */
static void emit_panels(hcg_emit *e, const slice *s, LLVMValueRef behind, LLVMValueRef last) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), across = hcg_i64(e, HCG_AMX_ACROSS);
    hcg_loop l = hcg_loop_begin(e, zero, s->g[GEMM_PANELS], across, "panel", 0, NULL);
    LLVMValueRef panels = hcg_smaller(e, across, hcg_sub(e, s->g[GEMM_PANELS], l.index));
    LLVMValueRef b = hcg_at(e, e->i8, s->g[GEMM_B], hcg_mul(e, l.index, s->panel_bytes));
    LLVMValueRef next = following(e, s, hcg_add(e, l.index, across), behind, last);
    if (end_bytes(s->dtype)) {
        hcg_loop cut = hcg_loop_begin(e, zero, s->has_last, one, "cut", 0, NULL); /* or not */
        copy_last(e, s, b, panels);
        hcg_loop_end(e, &cut, NULL);
    }
    b = hcg_at(e, e->i8, b, hcg_mul_const(e, s->from, hcg_amx_step_bytes(s->dtype)));
    if (hcg_amx_makes_tiles(s->dtype)) make_tiles(e, s, b, panels);
    emit_slabs(e, s, b, l.index, panels, next);
    hcg_loop_end(e, &l, NULL);
}

/* ---- rows that are not finite ---------------------------------------------------------------- */
static LLVMValueRef most_at(hcg_emit *e, const LLVMValueRef *g, LLVMValueRef row) {
    return hcg_at(e, e->i32, g[GEMM_MOST], row);
}

static void clear_most(hcg_emit *e, const LLVMValueRef *g) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), g[GEMM_ROWS], hcg_i64(e, 1), "clear", 0, NULL);
    LLVMValueRef zero = LLVMConstInt(e->i32, 0, false);
    LLVMSetAlignment(LLVMBuildStore(e->b, zero, most_at(e, g, l.index)), 4);
    hcg_loop_end(e, &l, NULL);
}

/* Computes the sums of rows with an infinity or NaN once more, by vectors. */
static void multiply_infinite(hcg_emit *e, hir_dtype dtype, const LLVMValueRef *g) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, zero, g[GEMM_ROWS], one, "row", 0, NULL);
    LLVMValueRef most = LLVMBuildLoad2(e->b, e->i32, most_at(e, g, l.index), "");
    LLVMSetAlignment(most, 4);
    LLVMValueRef bound = LLVMConstInt(e->i32, INFINITE, false);
    LLVMValueRef is = LLVMBuildICmp(e->b, LLVMIntUGE, most, bound, "");
    hcg_loop once =
        hcg_loop_begin(e, zero, LLVMBuildZExt(e->b, is, e->i64, ""), one, "infinite", 0, NULL);
    hcg_gemm row = {.dtype = dtype, .x_dtype = HIR_F32, .k = g[GEMM_K], .b = g[GEMM_B]};
    row.x = hcg_at(e, e->f32, g[GEMM_X], hcg_mul(e, l.index, g[GEMM_LDX]));
    row.c = hcg_at(e, e->f32, g[GEMM_C], hcg_mul(e, l.index, g[GEMM_LDC]));
    row.panels = g[GEMM_PANELS];
    hcg_call_gemv(e, &row);
    hcg_loop_end(e, &once, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* ---- factors of rows ------------------------------------------------------------------------- */
/* Multiplies the sums with the factors of their outputs, after all slices: without them numbers of
 * nvfp4 are bf16. */
static void multiply_factors(hcg_emit *e, const slice *s) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    const int64_t bytes = hcg_panel_end(s->dtype);
    if (!bytes) return;
    hcg_loop lp = hcg_loop_begin(e, zero, s->g[GEMM_PANELS], one, "panel", 0, NULL);
    LLVMValueRef next = hcg_mul(e, hcg_add(e, lp.index, one), s->panel_bytes);
    LLVMValueRef end = hcg_at_byte(e, hcg_at(e, e->i8, s->g[GEMM_B], next), -bytes);
    LLVMValueRef factor = hcg_quant_factor(e, s->dtype, end, 0);
    LLVMValueRef c = hcg_at(e, e->f32, s->g[GEMM_C], hcg_mul_const(e, lp.index, HIR_PANEL));
    hcg_loop l = hcg_loop_begin(e, zero, s->g[GEMM_ROWS], one, "row", 0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, c, hcg_mul(e, l.index, s->g[GEMM_LDC]));
    hcg_store(e, at, hcg_fmul(e, hcg_load(e, HIR_F32, at, NULL), factor), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &lp, NULL);
}

/* ---- all slices ------------------------------------------------------------------------------ */
/* What no slice changes of the rows. */
static slice begin_slices(hcg_emit *e, const parts *of, hir_dtype dtype, const LLVMValueRef *g) {
    slice s = {.of = of, .dtype = dtype, .g = g};
    const int64_t depth = hir_is_quantised(dtype) ? HIR_GROUP : hir_panel_depth(dtype);
    const int64_t end = hcg_panel_end(dtype);
    LLVMValueRef deep = hcg_divide_up(e, g[GEMM_K], hcg_i64(e, depth));
    s.panel_bytes = hcg_mul_const(e, deep, hcg_panel_bytes(dtype, depth) - end);
    s.panel_bytes = hcg_add(e, s.panel_bytes, hcg_i64(e, end));
    s.tile_rows = hcg_divide_up(e, g[GEMM_ROWS], hcg_i64(e, HCG_AMX_LINES));
    s.slabs = hcg_divide_up(e, s.tile_rows, hcg_i64(e, HCG_AMX_ACROSS));
    const unsigned step = hcg_amx_step_bytes(dtype);
    LLVMValueRef lines = hcg_i64(e, (step + HCG_AMX_LINE - 1) / HCG_AMX_LINE);
    s.pace = hcg_mul_const(e, hcg_divide_up(e, lines, s.slabs), HCG_AMX_LINE);
    return s;
}

/* gemm(x, ldx, rows, k, b, panels, c, ldc, next, tiles, own, most) */
static hcg_shared gemm_function(hcg_emit *e, const parts *of, hir_dtype dtype) {
    LLVMTypeRef params[GEMM_PARAMS];
    hcg_shared f;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_NEXT] = params[GEMM_TILES] =
        params[GEMM_OWN] = params[GEMM_MOST] = e->ptr;
    const char *name = hd_printf(e->arena, "amx_%s_%s", of->name, hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, GEMM_PARAMS, &f)) return f;
    const LLVMValueRef *g = f.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), step = hcg_i64(e, STEP), k = g[GEMM_K];
    LLVMValueRef all = hcg_divide_up(e, k, step);
    LLVMValueRef whole = end_bytes(dtype) ? LLVMBuildUDiv(e->b, k, step, "whole") : all;
    LLVMValueRef most = hcg_i64(e, slice_steps(e->level, of));
    slice s = begin_slices(e, of, dtype, g);
    if (splits_weights(of)) clear_most(e, g);
    hcg_loop l = hcg_loop_begin(e, zero, all, most, "slice", 0, NULL);
    LLVMValueRef behind = hcg_smaller(e, hcg_add(e, l.index, most), all);
    LLVMValueRef is_last = LLVMBuildICmp(e->b, LLVMIntEQ, behind, all, "");
    s.from = l.index, s.steps = hcg_sub(e, hcg_smaller(e, behind, whole), l.index);
    LLVMValueRef n = hcg_sub(e, behind, l.index);
    s.has_last = hcg_sub(e, n, s.steps), s.x_stride = hcg_mul_const(e, n, of->x * HCG_AMX_TILE);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, l.index, zero, "");
    s.add = LLVMBuildSelect(e->b, first, zero, one, "");
    LLVMValueRef at = hcg_mul_const(e, l.index, STEP);
    LLVMValueRef x = hcg_at(e, e->f32, g[GEMM_X], at);
    LLVMValueRef width = hcg_smaller(e, hcg_sub(e, k, at), hcg_mul_const(e, n, STEP));
    hcg_amx_split_rows(e, of, x, g[GEMM_LDX], g[GEMM_ROWS], width, g[GEMM_TILES], g[GEMM_MOST]);
    emit_panels(e, &s, behind, is_last);
    hcg_loop_end(e, &l, NULL);
    multiply_factors(e, &s);
    if (splits_weights(of)) multiply_infinite(e, dtype, g);
    hcg_shared_end(e, &f);
    return f;
}

/* ---- the back ends --------------------------------------------------------------------------- */
/* Sums of a block take a quarter of the L2. Few rows go by vectors, which compute `vectors` panels
 * together. */
static int64_t panels_of_sums(const hcg_level *level, int64_t vectors) {
    const int64_t panels = level->machine.l2 / 4 / (MOST_ROWS * HCG_AMX_LINE);
    int64_t together = HCG_AMX_ACROSS;
    while (together % vectors != 0)
        together += HCG_AMX_ACROSS;
    return panels < together ? together : panels / together * together;
}

static int64_t tile_panels(const hcg_level *level) {
    return panels_of_sums(level, 1);
}

/* More rows read panels less often. What a prologue makes of them is in memory that each thread
 * has for itself: four times the L2 at most. */
static int64_t block_rows(const hcg_level *level, int64_t k) {
    const int64_t rows = 4 * (int64_t)level->machine.l2 / (4 * k) / SLAB * SLAB;
    return rows < SLAB ? SLAB : rows > MOST_ROWS ? MOST_ROWS : rows;
}

/* Workspace for the ends of two panels of any type that the product has, and for the tiles that
 * are made. */
static uint64_t panel_bytes(const hcg_level *level, const hcg_product *p) {
    int64_t end = 0, made = 0;
    for (int i = 0; i < HIR_DTYPE_COUNT; i++) {
        if (!(p->weights >> i & 1)) continue;
        if (end_bytes((hir_dtype)i) > end) end = end_bytes((hir_dtype)i);
        if (hcg_amx_makes_tiles((hir_dtype)i)) made = made_bytes(level, parts_of(p));
    }
    return HCG_AMX_ACROSS * (uint64_t)(end + made);
}

static void begin(hcg_emit *e, hcg_product *p) {
    const parts *of = parts_of(p);
    const uint64_t tile_rows = (p->rows + HCG_AMX_LINES - 1) / HCG_AMX_LINES;
    const uint64_t steps = (uint64_t)slice_steps(e->level, of);
    const uint64_t most = splits_weights(of) ? p->rows * 4 : 0;
    p->x_workspace = hcg_scratch(e, tile_rows * steps * of->x * HCG_AMX_TILE + most);
    p->panel_workspace = hcg_scratch(e, panel_bytes(e->level, p));
}

/* It lies after the tiles of x. */
static LLVMValueRef most_workspace(hcg_emit *e, const hcg_product *p) {
    const parts *of = parts_of(p);
    const uint64_t tile_rows = (p->rows + HCG_AMX_LINES - 1) / HCG_AMX_LINES;
    const uint64_t steps = (uint64_t)slice_steps(e->level, of);
    return hcg_at_byte(e, p->x_workspace, (int64_t)(tile_rows * steps * of->x * HCG_AMX_TILE));
}

static void gemm_many(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_amx_configure(e, HCG_AMX_LINE);
    hcg_shared f = gemm_function(e, parts_of(p), b->dtype);
    LLVMValueRef args[GEMM_PARAMS] = {
        p->x,
        p->ldx,
        p->n_rows,
        p->length,
        b->w,
        b->n,
        b->sums,
        b->ld,
        b->next,
        p->x_workspace,
        p->panel_workspace,
        most_workspace(e, p),
    };
    hcg_shared_call(e, &f, args, GEMM_PARAMS);
}

static void end(hcg_emit *e, hcg_product *p) {
    (void)p;
    hcg_amx_release(e);
}

/* ---- few tokens --------------------------------------------------------------------------------
 * A tile takes as long for one row as for 16, and weights that are made into tiles are made for each
 * block of rows: so few tokens go by vectors. The least that the unit multiplies are the machine
 * model's `unit_rows` for each matrix where weights are one part. Splitting weights into n parts
 * takes as long as the unit takes for n times as many: f32 from 64 tokens on, f16 from 48, where
 * the two were as fast on an Emerald Rapids (64 to 96, and 32 to 48); 16 and 4 tokens take 0.5 to
 * 0.7 of the unit's time.
 *
 * The tokens of the call are counted, not those of a block of rows or of an expert, so that a
 * token's bits do not depend on what other tokens choose or on how threads share the rows.
 */
static int64_t least_tokens(const hcg_level *level, const hcg_product *p) {
    const int64_t parts_made = splits_weights(parts_of(p)) ? parts_of(p)->w + 1 : 1;
    return parts_made * level->machine.unit_rows * (p->of_tokens ? p->of_tokens : 1);
}

static LLVMValueRef is_few(hcg_emit *e, const hcg_product *p) {
    LLVMValueRef least = hcg_i64(e, least_tokens(e->level, p));
    return LLVMBuildICmp(e->b, LLVMIntSLT, hcg_frame_t(e), least, "is_few");
}

/* begin, where back end `vectors` multiplies few rows. */
static void begin_both(hcg_emit *e, hcg_product *p, const hcg_backend *vectors) {
    const uint64_t least = (uint64_t)least_tokens(e->level, p);
    begin(e, p);
    if (least < 2) return;
    /* all tokens of a call may choose one expert, and several times */
    hcg_small_m_begin(e, p, vectors, p->of_tokens ? p->rows : least - 1);
}

static void prepare_few(hcg_emit *e, hcg_product *p) {
    if (p->few) hcg_small_m_prepare(e, p, is_few(e, p), NULL);
}

static void gemm_both(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    if (p->few)
        hcg_small_m_gemm(e, p, b, is_few(e, p), gemm_many);
    else
        gemm_many(e, p, b);
}

/* ---- the back ends of one type of numbers ---------------------------------------------------- */
static int64_t split_tile_panels(const hcg_level *level) {
    return panels_of_sums(level, hcg_multiply_add.tile_panels(level));
}

static void begin_split(hcg_emit *e, hcg_product *p) {
    begin_both(e, p, &hcg_multiply_add);
}

#define BACKEND(id, panels, start, before, multiply, ...)                                          \
    const hcg_backend hcg_##id = {                                                                 \
        .name = #id,                                                                               \
        .instructions = &(const parts){__VA_ARGS__},                                               \
        .tile_panels = panels,                                                                     \
        .block_rows = block_rows,                                                                  \
        .tile_rows = HCG_AMX_LINES,                                                                \
        .prefetches = true,                                                                        \
        .begin = start,                                                                            \
        .prepare = before,                                                                         \
        .gemm = multiply,                                                                          \
        .end = end,                                                                                \
    }
#define WHOLE(id, ...) BACKEND(id, tile_panels, begin, NULL, gemm_many, __VA_ARGS__)
#define SPLIT(id, ...)                                                                             \
    BACKEND(id, split_tile_panels, begin_split, prepare_few, gemm_both, __VA_ARGS__)
WHOLE(amx_exact, "exact", .x = 3, .w = 1, .n = 3, .of = {{0, 0}, {1, 0}, {2, 0}});
WHOLE(amx_rounded, "rounded", .x = 1, .w = 1, .n = 1);
/* The smallest products first; in this order, seven parts are loaded in place of twelve. */
SPLIT(amx_f32, "f32", .x = 3, .w = 3, .n = 6,
      .of = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {0, 0}, {2, 0}});
SPLIT(amx_f16, "f16", .x = 3, .w = 2, .n = 5, .of = {{1, 1}, {0, 1}, {0, 0}, {1, 0}, {2, 0}});
#undef SPLIT
#undef WHOLE
#undef BACKEND

/* ---- amx_groups ------------------------------------------------------------------------------ */
/* For q8, q4, mxfp4 and nvfp4 weights where activations may be rounded to bytes: x and w = s q + m
 * are rounded to bf16, and multiplied as such.
 *
 * The error is within that of rounding x to bytes. With t = max |x| / 127 of a group, an element
 * rounded to a byte is off by up to t / 2, so that a product is off by
 *
 *     |w| max |x| / 254                                                         int8/group.h
 *
 * Here each of the two factors is off by up to 2^-9 of itself, and a product by |w| |x| (2^-8 +
 * 2^-18), which is less even for the largest |x| of the group. Numbers of mxfp4 and nvfp4 are bf16
 * already.
 *
 * Why not products of bytes (amx/int8.c): the sum of a group of bytes has to leave the unit to be
 * scaled, 16 lines through memory for each 16 cycles of the unit, and half of a tile is idle, since
 * a group is 32 bytes. Sums of bf16 stay in tiles over a slice of K. Counted for a group of 16
 * outputs: some 96 cycles to bring it into a tile, once for a block of rows, and 16 for each 16
 * rows, where bytes take 24 and more. This is not measured: the machine model's `unit_bytes`
 * selects bytes.
 *
 * Few tokens go by vectors of VNNI, which take 5.5 cycles a row and 8.
 */
static const parts groups = {.name = "groups", .x = 1, .w = 1, .n = 1};

static int64_t groups_tile_panels(const hcg_level *level) {
    return panels_of_sums(level, hcg_int8_vnni_512.tile_panels(level));
}

static void begin_groups(hcg_emit *e, hcg_product *p) {
    begin_both(e, p, &hcg_int8_vnni_512);
}

const hcg_backend hcg_amx_groups = {
    .name = "amx_groups",
    .instructions = &groups,
    .tile_panels = groups_tile_panels,
    .block_rows = block_rows,
    .tile_rows = HCG_AMX_LINES,
    .prefetches = true,
    .begin = begin_groups,
    .prepare = prepare_few,
    .gemm = gemm_both,
    .end = end,
};
