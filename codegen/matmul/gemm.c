/* The loops that run register tiles over a block: products with panels of weights, and the products
 * of attention (matmul/matrix.h).
 *
 * gemm walks blocks of B, a number of steps of one group of panels (hcg_block_steps), and runs all
 * rows over one before it goes to the next: the block stays in the L1 alongside the rows in use. B
 * comes from memory once per call, and while the rows of one block are computed the next one is
 * prefetched, a share of it with each slab of rows: loads from memory are spread evenly over the
 * arithmetic, however few rows there are. (With prefetching a fixed distance ahead, the first slab
 * would wait for all of the block and the other slabs for nothing.)
 *
 * With few rows, weights come from memory about as fast as they can. Then the next block is
 * prefetched into the L2, which can wait for more lines at once than the L1 can; and the pages of
 * the next group of panels are translated ahead, all at once, since a prefetch whose page is unknown
 * holds up what follows it until it is found. With TILE_NEAR_ROWS or fewer, the hardware finds the
 * stream by itself: f32 panels are prefetched a fixed distance ahead (HCG_PREFETCH_SLAB), into the
 * L1.
 */
#include <string.h>

#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/matrix.h"
#include "codegen/matmul/tile.h"
#include "codegen/target/prefetch_distance.h"
#include "support/known.h"

/* ---- sizes of blocks ------------------------------------------------------------------------- */
enum {
    MOST_BLOCK_ROWS =
        128, /* with more rows, reading panels less often gains nothing next to the arithmetic */
    FEWEST_BLOCK_ROWS = 32, /* however long rows are: panels are read once for each block; rounded
                               up to whole tiles */
    MOST_STEPS = 128,       /* a sum's rounding error grows with the steps of a block, not with K */
    FEWEST_STEPS = 16,      /* each block reads and writes all sums */
    FEW_ROWS = 18, /* with more, a line is in use for so long that the L1 can wait for the next */
    FEW_ROWS_OF_PANEL = 36, /* ... and pages are found in time: those of several panels at once, or
                               those of one */
    LINE = HIR_PANEL * (int)sizeof(float), /* of a panel: a step, or a row's sums */
};

static int64_t most_of(uint32_t cache) {
    return (int64_t)cache / 4 * 3;
}

static int64_t clamp(int64_t n, int64_t low, int64_t high) {
    return n < low ? low : n > high ? high : n;
}

int64_t hcg_block_rows(const hcg_level *level, int64_t row_bytes, int64_t panels) {
    const int64_t in_l2 = most_of(level->machine.l2) / row_bytes;
    const int64_t in_l1 = most_of(level->machine.l1) / (LINE * panels);
    const int64_t tile = hcg_tile_of(level)->rows;
    const int64_t fewest = (FEWEST_BLOCK_ROWS + tile - 1) / tile * tile;
    return clamp(in_l2 < in_l1 ? in_l2 : in_l1, fewest, MOST_BLOCK_ROWS);
}

int64_t hcg_block_steps(const hcg_level *level, int64_t panels) {
    return clamp(most_of(level->machine.l1) / (LINE * panels), FEWEST_STEPS, MOST_STEPS);
}

/* ---- ranges ---------------------------------------------------------------------------------- */
tile_split tile_divide(hcg_emit *e, LLVMValueRef n, int64_t most) {
    tile_split p = {.count = hcg_divide_up(e, n, hcg_i64(e, most))};
    p.each = LLVMBuildUDiv(e->b, n, p.count, "each");
    p.more = hcg_sub(e, n, hcg_mul(e, p.each, p.count));
    return p;
}

LLVMValueRef tile_split_start(hcg_emit *e, const tile_split *p, LLVMValueRef i) {
    return hcg_add(e, hcg_mul(e, i, p->each), hcg_smaller(e, i, p->more));
}

LLVMValueRef tile_split_size(hcg_emit *e, const tile_split *p, LLVMValueRef i) {
    LLVMValueRef one_more = LLVMBuildICmp(e->b, LLVMIntSLT, i, p->more, "");
    return hcg_add(e, p->each, LLVMBuildZExt(e->b, one_more, e->i64, ""));
}

/* ---- panels of weights ----------------------------------------------------------------------- */
typedef struct block { /* a block of b, and what is prefetched while it is in use */
    tile_kind d;
    LLVMValueRef from, k;       /* steps of k: the first, and how many */
    LLVMValueRef panel, panels; /* panels: the first, and how many */
    LLVMValueRef row;           /* where slabs begin; NULL: at the first row */
    LLVMValueRef b, next, accumulate;
    LLVMValueRef pace; /* bytes that a slab prefetches in a step */
    unsigned least;    /* rows of the lowest slab, where slabs are whole tiles or nearly; 0: any */
    LLVMValueRef last; /* of k */
    LLVMValueRef widened; /* workspace for b in f32; NULL: there is none */
} block;

enum {
    GEMM_X,
    GEMM_LDX,
    GEMM_ROWS,
    GEMM_K, /* steps */
    GEMM_B,
    GEMM_PANELS,
    GEMM_C,
    GEMM_LDC,
    GEMM_ADD,
    GEMM_NEXT,
    GEMM_TOUCHED,
    GEMM_LD_TOUCHED = GEMM_TOUCHED + HCG_TOUCHED,
    GEMM_WIDENED,
    GEMM_PARAMS
};
uint64_t hcg_widened_bytes(const hcg_level *level, hir_dtype dtype) {
    const hcg_tile *tile = hcg_tile_of(level);
    const uint64_t of_panel =
        (uint64_t)(hcg_block_steps(level, tile->panels) * (int64_t)hir_panel_depth(dtype) * LINE);
    if (tile->panels > 1 || (dtype == HIR_BF16 && !tile->wide_rows)) return 0;
    return tile->wide_rows ? of_panel * HCG_WIDE_PANELS / 2 : of_panel;
}

void hcg_prefetch_rows(hcg_emit *e, LLVMValueRef from, LLVMValueRef ld, LLVMValueRef row,
                       LLVMValueRef n, LLVMValueRef column, unsigned bytes) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), n, hcg_i64(e, 1), "touched", 0, NULL);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, hcg_add(e, row, l.index), ld), column);
    for (unsigned line = 0; line < bytes; line += e->level->machine.line)
        hcg_prefetch(e, hcg_at(e, e->f32, from, at), line);
    hcg_loop_end(e, &l, NULL);
}

/* During the last steps of a slab, prefetches the lines of its rows that the epilogue will read or
 * write: each row is in another page, so that its lines would arrive late otherwise. */
static void prefetch_touched(hcg_emit *e, const LLVMValueRef *g, const block *b, LLVMValueRef row,
                             LLVMValueRef rows) {
    LLVMValueRef zero = hcg_i64(e, 0), column = hcg_mul_const(e, b->panel, b->d.outputs);
    for (int i = 0; i < HCG_TOUCHED; i++) {
        LLVMValueRef place = g[GEMM_TOUCHED + i], any = LLVMBuildIsNotNull(e->b, place, "");
        LLVMValueRef n =
            LLVMBuildSelect(e->b, LLVMBuildAnd(e->b, any, b->last, ""), rows, zero, "");
        hcg_prefetch_rows(e, place, g[GEMM_LD_TOUCHED], row, n, column,
                          tile_own_panels(&b->d) * b->d.outputs * 4);
    }
}

/* Whether all rows are few. */
static LLVMValueRef is_few(hcg_emit *e, const LLVMValueRef *g, int64_t most) {
    return LLVMBuildICmp(e->b, LLVMIntSLE, g[GEMM_ROWS], hcg_i64(e, most), "few");
}

/* The height of the lowest slab that more than FEW_ROWS rows may be cut into. */
static unsigned least_of_many(unsigned height) {
    hd_known(height > 0); /* a tile has rows */
    const unsigned rows = FEW_ROWS + 1, slabs = (rows + height - 1) / height;
    const unsigned least = rows / slabs, of_more = (height * slabs + 1) / (slabs + 1);
    return least < of_more ? least : of_more;
}

/* Of tiles of this height, so many slabs or more are many: the first keeps what it widens. */
static unsigned fewest_keeping(unsigned height) {
    return height - 1;
}

/* Few rows and many have tiles of their own, which differ in where they prefetch to. Where many
 * slabs are multiplied with a block of 16 bits, the first one keeps what it widens, and the others read
 * that. Slabs are many if all have the height of the level's tile or one row less. */
static void dispatch_slab(hcg_emit *e, const LLVMValueRef *g, const block *b,
                          const tile_split *slabs, LLVMValueRef slab, LLVMValueRef rows,
                          LLVMValueRef args[TILE_PARAMS]) {
    enum { FEW, MANY, NEXT, PATHS };
    static const char *const names[PATHS] = {"few_rows", "slab", "next_slab"};
    const bool wide = b->d.vectors > 0;
    const unsigned from = b->d.keeps && wide ? MANY : FEW; /* few rows are not wide then */
    const unsigned n = b->d.keeps ? PATHS : NEXT, height = b->d.rows;
    tile_kind kind[PATHS] = {b->d, b->d, b->d};
    kind[FEW].keeps = kind[NEXT].keeps = false, kind[FEW].far = true;
    if (wide || b->d.depth > 1)
        kind[NEXT].kept = true;
    else
        kind[NEXT].b = HIR_F32;
    if (b->d.narrow) { /* a row of x is read once, with all panels */
        tile_dispatch(e, b->d, 1, rows, b->panels, args);
        return;
    }
    LLVMBasicBlockRef path[PATHS];
    for (unsigned i = from; i < n; i++)
        path[i] = LLVMAppendBasicBlockInContext(e->cx, e->fn, names[i]);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "slab_done");
    LLVMValueRef few = is_few(e, g, FEW_ROWS), key = hcg_i64(e, MANY);
    if (b->d.keeps) {
        few = LLVMBuildICmp(e->b, LLVMIntSLT, slabs->count, hcg_i64(e, fewest_keeping(height)),
                            "few_slabs");
        LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, slab, hcg_i64(e, 0), "");
        key = LLVMBuildSelect(e->b, first, key, hcg_i64(e, NEXT), "");
        args[TILE_KEEP] = b->widened;
    }
    if (from == FEW) key = LLVMBuildSelect(e->b, few, hcg_i64(e, FEW), key, "");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, path[from], n - 1 - from);
    for (unsigned i = from + 1; i < n; i++)
        LLVMAddCase(choice, hcg_i64(e, i), path[i]);
    for (unsigned i = from; i < n; i++) {
        LLVMPositionBuilderAtEnd(e->b, path[i]);
        if (i == NEXT) args[2] = b->widened;
        const unsigned least = b->least     ? b->least
                               : i == FEW   ? 1
                               : b->d.keeps ? height - 1
                                            : least_of_many(height);
        tile_dispatch(e, kind[i], least, rows, b->panels, args);
        LLVMBuildBr(e->b, done);
    }
    LLVMPositionBuilderAtEnd(e->b, done);
}

static LLVMValueRef pace_of(hcg_emit *e, const tile_kind *d, const tile_split *slabs) {
    return hcg_divide_up(e, hcg_i64(e, tile_line_bytes(d)), slabs->count);
}

/* Multiplies the rows of some slabs with one block of b. */
static void emit_block(hcg_emit *e, const LLVMValueRef *g, const tile_split *slabs,
                       const block *b) {
    LLVMValueRef share = hcg_mul(e, b->k, b->pace), k = g[GEMM_K];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), slabs->count, hcg_i64(e, 1), "slab", 0, NULL);
    LLVMValueRef row = tile_split_start(e, slabs, l.index),
                 rows = tile_split_size(e, slabs, l.index);
    if (b->row) row = hcg_add(e, row, b->row);
    prefetch_touched(e, g, b, row, rows);
    LLVMValueRef x =
        hcg_add(e, hcg_mul(e, row, g[GEMM_LDX]), hcg_mul_const(e, b->from, b->d.depth));
    LLVMValueRef c =
        hcg_add(e, hcg_mul(e, row, g[GEMM_LDC]), hcg_mul_const(e, b->panel, b->d.outputs));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, hcg_element(e, b->d.x), g[GEMM_X], x),
        g[GEMM_LDX],
        b->b,
        hcg_mul_const(e, k, tile_line(&b->d)),
        b->k,
        hcg_at(e, e->f32, g[GEMM_C], c),
        g[GEMM_LDC],
        b->accumulate,
        hcg_at(e, e->i8, b->next, hcg_mul(e, l.index, share)),
        b->pace,
    };
    dispatch_slab(e, g, b, slabs, l.index, rows, args);
    hcg_loop_end(e, &l, NULL);
}

/* Where to prefetch: with TILE_NEAR_ROWS or fewer, or if a narrow matrix has one slab, a little ahead
 * in the same panels. This is done for f32 only: bf16 is 5 % slower with it. */
static LLVMValueRef near_if_lone(hcg_emit *e, const LLVMValueRef *g, const tile_split *slabs,
                                 const block *b) {
    LLVMValueRef one = LLVMBuildICmp(e->b, LLVMIntEQ, slabs->count, hcg_i64(e, 1), "one_slab");
    if (!b->d.narrow) one = is_few(e, g, TILE_NEAR_ROWS);
    const int64_t ahead = hcg_prefetch_distance(&e->level->machine, HCG_PREFETCH_SLAB);
    return LLVMBuildSelect(e->b, one, hcg_at_byte(e, b->b, ahead), b->next, "");
}

/* ---- wide tiles ------------------------------------------------------------------------------ */
/* Where a vector holds half a line of a panel, a tile of 4 rows x 24 outputs needs 7 loads for 12
 * multiply-adds, and one of 6 x 16 needs 8. Two such tiles cover a group of three panels:
 *
 *     panel        0       1       2
 *     first tile   0 1     0
 *     second tile            1     0 1       vectors
 *
 * All rows are multiplied with one and a half panels of a block, then with the others. The last
 * rows, which would make a lower tile, are left to the level's tiles, panel by panel; so are the
 * last panels. Which tile makes a sum does not change it. Of 16 bits the first tile of either kind keeps
 * in f32 what it widens, its vectors side by side, and the others of its kind read that. */
enum {
    FEWEST_WIDE = 2, /* tiles: with one, a step would prefetch a line of each panel */
    TIMES_REST = 6,  /* times as many rows as the rest has, since they alone prefetch */
};

typedef struct wide_rows {
    tile_split slabs, rest;
    LLVMValueRef row;       /* the first of the rest */
    LLVMValueRef any, left; /* i1: are there whole wide tiles, and a rest? */
} wide_rows;

/* The fewest rows of which wide tiles of `wide` rows leave `over`, and which are cut into tiles of
 * `height` rows or one less. */
static int64_t rest_of(int64_t over, int64_t wide, int64_t height) {
    int64_t n = over;
    while (n && n / ((n + height - 1) / height) < height - 1)
        n += wide;
    return n;
}

/* In wide tiles are at least so many rows: where the first one keeps what it widens, more than the
 * slabs have that all widen. */
static int64_t fewest_wide(const hcg_emit *e, const tile_kind *d) {
    return d->keeps ? (fewest_keeping(d->rows) - 1) * (int64_t)d->rows + 1
                    : FEWEST_WIDE * (int64_t)hcg_tile_of(e->level)->wide_rows;
}

static wide_rows cut_rows(hcg_emit *e, const tile_kind *d, LLVMValueRef rows) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    LLVMValueRef zero = hcg_i64(e, 0), wide = hcg_i64(e, tile->wide_rows), rest = zero;
    LLVMValueRef over = LLVMBuildURem(e->b, rows, wide, "");
    for (unsigned i = 1; i < tile->wide_rows; i++)
        rest = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, over, hcg_i64(e, i), ""),
                               hcg_i64(e, rest_of(i, tile->wide_rows, tile->rows)), rest, "");
    wide_rows w = {.row = hcg_sub(e, rows, rest)};
    w.slabs = (tile_split){LLVMBuildUDiv(e->b, w.row, wide, ""), wide, zero};
    LLVMValueRef fewest =
        hcg_larger(e, hcg_i64(e, fewest_wide(e, d)), hcg_mul_const(e, rest, TIMES_REST));
    w.any = LLVMBuildICmp(e->b, LLVMIntSGE, w.row, fewest, "wide");
    w.left = LLVMBuildICmp(e->b, LLVMIntNE, rest, zero, "");
    w.rest = tile_divide(e, hcg_larger(e, rest, hcg_i64(e, 1)), tile->rows);
    return w;
}

static void move_panels(hcg_emit *e, const LLVMValueRef *g, block *b, LLVMValueRef n) {
    LLVMValueRef stride = hcg_mul(e, n, hcg_mul_const(e, g[GEMM_K], tile_line(&b->d)));
    b->b = hcg_at(e, hcg_element(e, b->d.b), b->b, stride);
    b->next = hcg_at(e, hcg_element(e, b->d.b), b->next, stride);
    b->panel = hcg_add(e, b->panel, n);
}

/* Multiplies all rows with one block of three panels. */
static void emit_wide_block(hcg_emit *e, const LLVMValueRef *g, const wide_rows *w,
                            const block *b) {
    const unsigned vectors = HCG_WIDE_PANELS * HIR_PANEL / e->level->lanes;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    block of_rest = *b, tile = *b;
    tile.d.rows = tile.least = hcg_tile_of(e->level)->wide_rows;
    tile.d.vectors = vectors / 2, tile.d.panels = tile.d.least_panels = 2;
    tile.panels = hcg_i64(e, 2);
    tile.pace = pace_of(e, &b->d, &w->slabs);
    emit_block(e, g, &w->slabs, &tile);
    tile.d.first = vectors / 2 % (HIR_PANEL / e->level->lanes);
    move_panels(e, g, &tile, one);
    emit_block(e, g, &w->slabs, &tile);
    of_rest.row = w->row, of_rest.panels = one, of_rest.pace = zero, of_rest.least = b->d.rows - 1;
    LLVMValueRef n = LLVMBuildSelect(e->b, w->left, hcg_i64(e, HCG_WIDE_PANELS), zero, "");
    hcg_loop l = hcg_loop_begin(e, zero, n, one, "of_rest", 0, NULL);
    move_panels(e, g, &of_rest, l.index);
    emit_block(e, g, &w->rest, &of_rest);
    hcg_loop_end(e, &l, NULL);
}

/* ---- panels past rows ------------------------------------------------------------------------ */
/* Translates the pages of the panels that come next, if rows are few. */
static void translate_next(hcg_emit *e, const LLVMValueRef *g, const tile_kind *d,
                           LLVMValueRef next, LLVMValueRef panels) {
    const int64_t most = d->panels > 1 ? FEW_ROWS : FEW_ROWS_OF_PANEL;
    LLVMValueRef bytes = hcg_mul_const(e, hcg_mul(e, panels, g[GEMM_K]), tile_line_bytes(d));
    bytes = LLVMBuildSelect(e->b, is_few(e, g, most), bytes, hcg_i64(e, 0), "");
    hcg_translate_pages(e, next, bytes);
}

/* gemm(x, ldx, rows, k, b, panels, c, ldc, accumulate, next, touched.., ld_touched[, widened]) */
static hcg_shared gemm_function(hcg_emit *e, tile_kind d) {
    LLVMTypeRef elem = hcg_element(e, d.b), params[GEMM_PARAMS];
    hcg_shared s;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_NEXT] = e->ptr;
    for (int i = 0; i < HCG_TOUCHED; i++)
        params[GEMM_TOUCHED + i] = e->ptr;
    params[GEMM_WIDENED] = e->ptr;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemm_%s", tile_kind_name(e, &d)), params,
                          d.keeps ? GEMM_PARAMS : GEMM_WIDENED, &s))
        return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), wide = hcg_i64(e, d.panels);
    LLVMValueRef panel_stride = hcg_mul_const(e, g[GEMM_K], tile_line(&d));
    tile_split slabs = tile_divide(e, g[GEMM_ROWS], d.rows),
               steps = tile_divide(e, g[GEMM_K], tile_k_block(e));
    block b = {.d = d, .widened = d.keeps ? g[GEMM_WIDENED] : NULL};
    const bool has_wide =
        (d.b == HIR_F32 || d.keeps) && !d.narrow && hcg_tile_of(e->level)->wide_rows;
    const wide_rows w = has_wide ? cut_rows(e, &d, g[GEMM_ROWS]) : (wide_rows){.any = NULL};
    LLVMValueRef is_wide = NULL;
    hcg_loop lp = hcg_loop_begin(e, zero, g[GEMM_PANELS], wide, "panel", 0, NULL);
    if (has_wide) {
        LLVMValueRef group = hcg_i64(e, HCG_WIDE_PANELS);
        LLVMValueRef left = hcg_sub(e, g[GEMM_PANELS], lp.index);
        is_wide = LLVMBuildAnd(e->b, w.any, LLVMBuildICmp(e->b, LLVMIntSGE, left, group, ""), "");
        lp.step = wide = LLVMBuildSelect(e->b, is_wide, group, wide, "");
    }
    b.panel = lp.index, b.panels = hcg_smaller(e, wide, hcg_sub(e, g[GEMM_PANELS], lp.index));
    LLVMValueRef first = hcg_at(e, elem, g[GEMM_B], hcg_mul(e, lp.index, panel_stride));
    LLVMValueRef end = hcg_add(e, lp.index, wide);
    LLVMValueRef following = LLVMBuildSelect(
        e->b, LLVMBuildICmp(e->b, LLVMIntSLT, end, g[GEMM_PANELS], ""),
        hcg_at(e, elem, g[GEMM_B], hcg_mul(e, end, panel_stride)), g[GEMM_NEXT], "");
    if (!d.narrow) translate_next(e, g, &d, following, b.panels);
    hcg_loop lk = hcg_loop_begin(e, zero, steps.count, one, "k_block", 0, NULL);
    b.from = tile_split_start(e, &steps, lk.index), b.k = tile_split_size(e, &steps, lk.index);
    b.b = hcg_at(e, elem, first, hcg_mul_const(e, b.from, tile_line(&d)));
    b.last = LLVMBuildICmp(e->b, LLVMIntEQ, hcg_add(e, lk.index, one), steps.count, "");
    b.next = LLVMBuildSelect(e->b, b.last, following,
                             hcg_at(e, elem, b.b, hcg_mul_const(e, b.k, tile_line(&d))), "");
    b.accumulate = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, lk.index, zero, ""),
                                   g[GEMM_ADD], one, "");
    hcg_either either;
    if (has_wide) {
        either = hcg_either_begin(e, is_wide, "three_panels", "one_panel");
        emit_wide_block(e, g, &w, &b);
        hcg_either_other(e, &either);
    }
    if (d.b == HIR_F32) b.next = near_if_lone(e, g, &slabs, &b);
    b.pace = pace_of(e, &d, &slabs);
    emit_block(e, g, &slabs, &b);
    if (has_wide) hcg_either_end(e, &either);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemm(hcg_emit *e, const hcg_gemm *g) {
    tile_kind d = tile_kind_of(e, g);
    tile_choose_squares(e, &d);
    hcg_shared f = gemm_function(e, d);
    LLVMValueRef panel_stride = hcg_mul_const(e, g->k, d.outputs), next = g->next;
    LLVMValueRef steps = LLVMBuildUDiv(e->b, g->k, hcg_i64(e, d.depth), "");
    if (!next)
        next = hcg_at(e, hcg_element(e, g->dtype), g->b, hcg_mul(e, g->panels, panel_stride));
    LLVMValueRef args[GEMM_PARAMS] = {
        g->x, g->ldx, g->rows, steps, g->b, g->panels, g->c, g->ldc, hcg_i64(e, g->accumulate),
        next};
    for (int i = 0; i < HCG_TOUCHED; i++)
        args[GEMM_TOUCHED + i] = g->touched[i] ? g->touched[i] : LLVMConstNull(e->ptr);
    args[GEMM_LD_TOUCHED] = g->ld_touched ? g->ld_touched : hcg_i64(e, 0);
    args[GEMM_WIDENED] = g->widened;
    hcg_shared_call(e, &f, args, d.keeps ? GEMM_PARAMS : GEMM_WIDENED);
}

/* ---- strips ---------------------------------------------------------------------------------- */
enum {
    STRIP_X,
    STRIP_LDX,
    STRIP_ROWS,
    STRIP_K,
    STRIP_B,
    STRIP_LDB,
    STRIP_PANELS,
    STRIP_C,
    STRIP_LDC,
    STRIP_ADD,
    STRIP_NEXT,
    STRIP_PARAMS
};

unsigned hcg_strip_panels(const hcg_level *level) {
    return hcg_tile_of(level)->panels;
}

/* A wide tile has as many vectors as a group of panels has panels; strips have them side by side. */
static bool has_wide_strips(const hcg_level *level) {
    return hcg_tile_of(level)->wide_rows > 0;
}

unsigned hcg_query_width(const hcg_level *level) {
    return has_wide_strips(level) ? level->lanes : HIR_PANEL;
}

unsigned hcg_query_panels(const hcg_level *level) {
    return has_wide_strips(level) ? HCG_WIDE_PANELS : hcg_strip_panels(level);
}

/* Multiplies all rows over the steps k .. k + n - 1: rows of x in whole tiles, which may repeat
 * the last row; columns of x, whose number is known, in tiles of nearly equal size. */
static void emit_slabs(hcg_emit *e, const tile_kind *d, const LLVMValueRef *g, LLVMValueRef k,
                       LLVMValueRef n, LLVMValueRef accumulate) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), height = hcg_i64(e, d->rows);
    tile_split slabs = {
        .count = hcg_divide_up(e, g[STRIP_ROWS], height), .each = height, .more = zero};
    unsigned least = d->rows;
    if (d->across) {
        slabs = tile_divide(e, hcg_i64(e, d->across), d->rows);
        least = (unsigned)LLVMConstIntGetSExtValue(slabs.each);
    }
    hcg_loop l = hcg_loop_begin(e, zero, slabs.count, one, "slab", 0, NULL);
    LLVMValueRef row = tile_split_start(e, &slabs, l.index),
                 rows = tile_split_size(e, &slabs, l.index);
    LLVMValueRef x = d->across ? hcg_add(e, hcg_mul_const(e, k, d->stride), row)
                               : hcg_add(e, hcg_mul(e, row, g[STRIP_LDX]), k);
    LLVMValueRef last = hcg_sub(e, hcg_sub(e, g[STRIP_ROWS], row), one);
    LLVMValueRef ahead =
        d->across ? x : hcg_add(e, hcg_mul(e, row, g[STRIP_LDX]), hcg_mul_const(e, k, d->rows));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, e->f32, g[STRIP_X], x),
        g[STRIP_LDX],
        hcg_at(e, e->f32, g[STRIP_B], hcg_mul_const(e, k, d->outputs)),
        g[STRIP_LDB],
        n,
        hcg_at(e, e->f32, g[STRIP_C], hcg_mul_const(e, row, d->outputs)),
        g[STRIP_LDC],
        accumulate,
        hcg_at(e, e->f32, g[STRIP_NEXT], ahead),
        last,
    };
    tile_dispatch(e, *d, least, rows, g[STRIP_PANELS], args);
    hcg_loop_end(e, &l, NULL);
}

/* product(x, ldx, rows, k, b, ldb, panels, c, ldc, accumulate, next) */
static hcg_shared strip_function(hcg_emit *e, const tile_kind *d) {
    LLVMTypeRef params[STRIP_PARAMS];
    hcg_shared s;
    for (int i = 0; i < STRIP_PARAMS; i++)
        params[i] =
            i == STRIP_X || i == STRIP_B || i == STRIP_C || i == STRIP_NEXT ? e->ptr : e->i64;
    const char *name = hd_printf(e->arena, "product_%s", tile_kind_name(e, d));
    if (!hcg_shared_begin(e, name, params, STRIP_PARAMS, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    tile_split steps = tile_divide(e, s.param[STRIP_K], tile_k_block(e));
    hcg_loop l = hcg_loop_begin(e, zero, steps.count, one, "k_block", 0, NULL);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, l.index, zero, "");
    emit_slabs(e, d, s.param, tile_split_start(e, &steps, l.index),
               tile_split_size(e, &steps, l.index),
               LLVMBuildSelect(e->b, first, s.param[STRIP_ADD], one, ""));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

static void call_strip(hcg_emit *e, const tile_kind *d, const hcg_strip *s) {
    hcg_shared f = strip_function(e, d);
    LLVMValueRef args[STRIP_PARAMS] = {s->x,      s->ldx, s->rows, s->k,          s->b,   s->ldb,
                                       s->panels, s->c,   s->ldc,  s->accumulate, s->next};
    hcg_shared_call(e, &f, args, STRIP_PARAMS);
}

void hcg_call_strip(hcg_emit *e, const hcg_strip *s) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    tile_kind d = {.b = HIR_F32, .x = HIR_F32, .depth = 1, .outputs = HIR_PANEL};
    d.rows = tile->rows, d.panels = tile->panels, d.strip = true, d.across = s->across;
    d.stride = s->stride ? s->stride : s->across;
    if (!s->of_queries || !has_wide_strips(e->level)) {
        call_strip(e, &d, s);
        return;
    }
    d.outputs = hcg_query_width(e->level), d.panels = HCG_WIDE_PANELS - 1;
    tile_kind wide = d;
    wide.panels = wide.least_panels = HCG_WIDE_PANELS, wide.rows = tile->wide_rows;
    LLVMValueRef is_wide =
        LLVMBuildICmp(e->b, LLVMIntEQ, s->panels, hcg_i64(e, HCG_WIDE_PANELS), "wide");
    const hcg_either w = hcg_either_begin(e, is_wide, "wide_strip", "narrow_strip");
    call_strip(e, &wide, s);
    hcg_either_other(e, &w);
    call_strip(e, &d, s);
    hcg_either_end(e, &w);
}

/* ---- matrix times vector --------------------------------------------------------------------- */
/* Matrix times vector: panels as a stream that is read once (matmul/matrix.h). */

enum { MOST_CHAINS = 16 };

/* acc[chain][v] += x[k] b[k][v], chain = offset: `steps` of k, each its own chain of adds. */
static void gemv_steps(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef b,
                       LLVMValueRef index, unsigned steps, LLVMValueRef *acc) {
    unsigned per_panel = HIR_PANEL / e->level->lanes, bytes = tile_line_bytes(d);
    LLVMValueRef first = tile_step_place(e, d, b, index, 0);
    const hd_machine *m = &e->level->machine;
    const int64_t ahead = hcg_prefetch_distance(m, HCG_PREFETCH_PANELS);
    for (unsigned u = 0; u < steps; u++) {
        if (u * bytes % m->line == 0 && steps > 1) hcg_prefetch(e, first, u * bytes + ahead);
        for (unsigned round = 0; round < tile_rounds(d); round++) {
            LLVMValueRef xs = tile_load_x(e, d, x, index, u, round);
            for (unsigned v = 0; v < per_panel; v++) {
                LLVMValueRef place = hcg_at_byte(e, first, u * bytes + v * (bytes / per_panel));
                LLVMValueRef *sum = &acc[u * per_panel + v];
                *sum = tile_multiply_add(e, d, xs, tile_load_b(e, d, place, round), *sum);
            }
        }
    }
}

/* Multiplies one panel: `steps` steps of k at a time, then the rest one by one. */
static void gemv_panel(hcg_emit *e, const tile_kind *d, LLVMValueRef x, LLVMValueRef k,
                       LLVMValueRef b, LLVMValueRef out) {
    unsigned per_panel = HIR_PANEL / e->level->lanes;
    unsigned steps = hcg_tile_of(e->level)->chains / per_panel;
    LLVMValueRef acc[MOST_CHAINS];
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = LLVMConstNull(e->vec);
    LLVMValueRef whole = LLVMBuildAnd(e->b, k, hcg_i64(e, -(int64_t)steps), "");
    const hcg_streamed w = {.from = b, .steps = whole, .each = steps, .bytes = tile_line_bytes(d)};
    hcg_stream l = hcg_stream_begin(e, &w, "k", steps * per_panel, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.step.carried[i];
    gemv_steps(e, d, x, b, l.step.index, steps, acc);
    hcg_stream_end(e, &l, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.page.carried[i];
    for (unsigned half = steps / 2; half; half /= 2)
        for (unsigned i = 0; i < half * per_panel; i++)
            acc[i] = hcg_fadd(e, acc[i], acc[i + half * per_panel]);
    hcg_loop rest = hcg_loop_begin(e, whole, k, hcg_i64(e, 1), "k_rest", per_panel, acc);
    for (unsigned i = 0; i < per_panel; i++)
        acc[i] = rest.carried[i];
    gemv_steps(e, d, x, b, rest.index, 1, acc);
    hcg_loop_end(e, &rest, acc);
    const unsigned n = d->narrow ? tile_join_sums(e, rest.carried, per_panel) : per_panel;
    for (unsigned v = 0; v < n; v++)
        hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, v * e->level->lanes)), rest.carried[v],
                  NULL);
}

/* gemv(x, steps of k, b, panels, out) */
static hcg_shared gemv_function(hcg_emit *e, const tile_kind *d) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemv_%s", tile_panel_name(e, d)), params, 5, &s))
        return s;
    LLVMValueRef x = s.param[0], k = s.param[1], b = s.param[2], panels = s.param[3];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), panels, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef at = hcg_mul(e, l.index, hcg_mul_const(e, k, tile_line(d)));
    gemv_panel(e, d, x, k, hcg_at(e, hcg_element(e, d->b), b, at),
               hcg_at(e, e->f32, s.param[4], hcg_mul_const(e, l.index, d->outputs)));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemv(hcg_emit *e, const hcg_gemm *g) {
    tile_kind d = tile_kind_of(e, g);
    hcg_shared f = gemv_function(e, &d);
    LLVMValueRef steps = LLVMBuildUDiv(e->b, g->k, hcg_i64(e, d.depth), "");
    LLVMValueRef args[] = {g->x, steps, g->b, g->panels, g->c};
    hcg_shared_call(e, &f, args, 5);
}

/* ---- which functions these are --------------------------------------------------------------- */
bool hcg_multiplies(const char *name) {
    static const char *const begin[] = {"tile_", "gemm_", "gemv_", "pack_", "unpack_", "outer"};
    static const char *const of_attention[] = {"tile_strip_", "tile_across"};
    for (size_t i = 0; i < sizeof of_attention / sizeof *of_attention; i++)
        if (strncmp(name, of_attention[i], strlen(of_attention[i])) == 0) return false;
    for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
        if (strncmp(name, begin[i], strlen(begin[i])) == 0) return true;
    return false;
}
