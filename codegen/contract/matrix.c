/* The matrix kernels of a level (matrix.h): micro-kernels on register tiles, the loops that run
 * them over a block, and the matrix-vector kernel.
 *
 * gemm walks blocks of B, a number of steps of one group of panels (hcg_block_steps), and runs all
 * rows over one before it goes to the next: the block stays in the L1 beside the rows in use. B
 * comes from memory once per call, and while the rows of one block are computed the next one is
 * fetched, each slab of rows its share of it: loads from memory are spread evenly over
 * the arithmetic, however few rows there are. (Prefetching a fixed distance ahead instead, the
 * first slab waits for all of the block and the others for nothing.) Where one slab holds all rows
 * there are no others: then f32 panels are prefetched SLAB_AHEAD bytes ahead.
 *
 * A narrow panel has 8 outputs and meets two elements of x at once: a broadcast of both stands
 * where that of one does, and the sums of even and of odd elements are added at the end of a block.
 * 24 outputs then fill the registers that 48 do, and no lane of them with zeros; tiles are as wide
 * as the matrix, up to 40 outputs, and less high if need be. Such matrices are one group
 * of panels, so that each row of x passes once, a kilobyte per block, which is too little for
 * hardware to look ahead: each step prefetches a line of the next block of x.
 */
#include "codegen/contract/matrix.h"

#include "codegen/contract/blocking.h"
#include "codegen/emit/math.h"

enum {
    SLAB_AHEAD = 2048, /* bytes that f32 panels are prefetched ahead, where one slab has all rows */
    MOST_CHAINS = 16,
    MOST_ROWS = 16,    /* of a tile */
    NARROW_UNROLL = 8, /* steps in which a line of each row of x is read */
    MOST_NARROW = 5,   /* panels of a tile: 40 outputs */
    GEMV_AHEAD = 4096, /* bytes that panels are prefetched ahead of their use */
};

static const hcg_tile tiles[] = {
#define TILE(arch, lanes, fma, rows, panels, unroll, chains)                                       \
    {arch, lanes, fma, rows, panels, unroll, chains},
#include "codegen/contract/tiles.def"
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

/* Steps of k in a block of B. */
static int64_t k_block(const hcg_emit *e) {
    return hcg_block_steps(e->level, hcg_tile_of(e->level)->panels);
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

static LLVMValueRef divide_up(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildUDiv(e->b, add(e, a, minus(e, b, hcg_i64(e, 1))), b, "");
}

static LLVMValueRef bytes_at(hcg_emit *e, LLVMValueRef p, int64_t bytes) {
    return hcg_at(e, e->i8, p, hcg_i64(e, bytes));
}

void hcg_prefetch(hcg_emit *e, LLVMValueRef p, int64_t bytes_ahead) {
    LLVMValueRef args[] = {hcg_at(e, e->i8, p, hcg_i64(e, bytes_ahead)),
                           LLVMConstInt(e->i32, 0, false), LLVMConstInt(e->i32, 3, false),
                           LLVMConstInt(e->i32, 1, false)};
    hcg_intrinsic(e, "llvm.prefetch", &e->ptr, 1, args, 4);
}

/* ---- one step of k ------------------------------------------------------------------------------
 */
/* What meets in a step: `outputs` elements of b for each of `depth` adjacent elements along k, that
 * many of x. */
typedef struct kinds {
    hir_dtype b, x;
    unsigned depth, outputs;
    unsigned rows, panels; /* of a tile */
    bool narrow;
    bool strip;     /* c stands in panels as b does (hcg_strip) */
    int64_t across; /* x[k][r], rows of x so long; 0: x[r][k] */
} kinds;

unsigned hcg_narrow_panels(const hcg_level *level) {
    const hcg_tile *tile = hcg_tile_of(level);
    return tile->panels > 1 ? MOST_NARROW : tile->panels;
}

/* At most as many sums as the level's tile has; of a narrow matrix, all panels side by side if they
 * fit. No more rows: each has an address in a register. */
static void choose_tile(kinds *d, const hcg_level *level, unsigned panels) {
    const hcg_tile *tile = hcg_tile_of(level);
    const unsigned most = hcg_narrow_panels(level), sums = tile->rows * tile->panels;
    d->panels = !d->narrow ? tile->panels : panels < most ? panels : most;
    d->rows = sums / d->panels < tile->rows ? sums / d->panels : tile->rows;
}

static kinds kinds_of(const hcg_emit *e, const hcg_gemm *g) {
    kinds d = {.b = g->dtype, .x = g->x_dtype, .narrow = g->narrow};
    d.depth = g->narrow ? 2 : hir_panel_depth(g->dtype);
    d.outputs = (unsigned)hir_panel_rows(g->narrow ? HIR_LAYOUT_NARROW : HIR_LAYOUT_PANEL);
    choose_tile(&d, e->level, g->narrow);
    return d;
}

/* Elements of a panel per step of k, and their bytes. */
static unsigned line(const kinds *d) {
    return d->outputs * d->depth;
}

static unsigned line_bytes(const kinds *d) {
    return line(d) * (unsigned)hir_dtype_bytes(d->b);
}

/* Of what meets a panel, whatever stands beside it. */
static const char *panel_name(hcg_emit *e, const kinds *d) {
    const char *b = hir_dtype_name(d->b);
    if (d->across) return hd_printf(e->arena, "across%lld", (long long)d->across);
    if (d->strip) return "strip";
    if (d->narrow) return hd_printf(e->arena, "%s_narrow", b);
    return d->x == HIR_F32 ? b : hd_printf(e->arena, "%s_%s", b, hir_dtype_name(d->x));
}

/* Of narrow matrices those of each number of panels have a gemm of their own. */
static const char *kinds_name(hcg_emit *e, const kinds *d) {
    const char *name = panel_name(e, d);
    return d->narrow ? hd_printf(e->arena, "%s%u", name, d->panels) : name;
}

static bool is_dot(const kinds *d) {
    return d->x == HIR_BF16;
}

/* Rounds of multiply-adds that a step takes. */
static unsigned rounds(const kinds *d) {
    return is_dot(d) || d->narrow ? 1 : d->depth;
}

/* &b[step][vector v] */
static LLVMValueRef step_place(hcg_emit *e, const kinds *d, LLVMValueRef b, LLVMValueRef step,
                               unsigned v) {
    const unsigned per_panel = HIR_PANEL / e->level->lanes;
    LLVMValueRef at = hcg_at(e, hcg_element(e, d->b), b, multiply(e, step, line(d)));
    return hcg_at(e, hcg_element(e, d->b), at, hcg_i64(e, v * (line(d) / per_panel)));
}

/* A vector of b for one round: in pairs, the lower or the upper half of each word, or both. */
static LLVMValueRef load_b(hcg_emit *e, const kinds *d, LLVMValueRef p, unsigned round) {
    if (d->depth == 1 || d->narrow) return hcg_load(e, d->b, p, NULL);
    LLVMTypeRef type = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef words = LLVMBuildLoad2(e->b, type, p, "");
    LLVMSetAlignment(words, 4);
    if (is_dot(d)) return words;
    if (round)
        words = LLVMBuildAnd(e->b, words, hcg_int_like(type, 0xffff0000), "");
    else
        words = LLVMBuildShl(e->b, words, hcg_int_like(type, 16), "");
    return LLVMBuildBitCast(e->b, words, e->vec, "");
}

/* Two floats in even and in odd lanes. */
static LLVMValueRef splat_two(hcg_emit *e, LLVMValueRef p) {
    LLVMTypeRef type = LLVMVectorType(e->f64, e->level->lanes / 2);
    LLVMTypeRef lanes = LLVMVectorType(e->i32, e->level->lanes / 2);
    LLVMValueRef both = LLVMBuildLoad2(e->b, e->f64, p, "");
    LLVMSetAlignment(both, 4);
    LLVMValueRef none = LLVMGetPoison(type), first = LLVMConstInt(e->i32, 0, false);
    LLVMValueRef v = LLVMBuildInsertElement(e->b, none, both, first, "");
    v = LLVMBuildShuffleVector(e->b, v, none, LLVMConstNull(lanes), "");
    return LLVMBuildBitCast(e->b, v, e->vec, "");
}

/* The element, or pair, of the row x that meets it, in all lanes. */
static LLVMValueRef load_x(hcg_emit *e, const kinds *d, LLVMValueRef x, LLVMValueRef step,
                           unsigned offset, unsigned round) {
    const int64_t stride = d->across ? d->across : d->depth;
    LLVMValueRef at = hcg_at(e, hcg_element(e, d->x), x, multiply(e, step, (uint64_t)stride));
    at = hcg_at(e, hcg_element(e, d->x), at, hcg_i64(e, offset * stride + round));
    if (d->narrow) return splat_two(e, at);
    LLVMValueRef one =
        is_dot(d) ? LLVMBuildLoad2(e->b, e->f32, at, "") : hcg_load_scalar(e, HIR_F32, at);
    LLVMSetAlignment(one, 4);
    return hcg_splat_value(e, one);
}

static LLVMValueRef multiply_add(hcg_emit *e, const kinds *d, LLVMValueRef x, LLVMValueRef b,
                                 LLVMValueRef sum) {
    if (!is_dot(d)) return hcg_fma(e, x, b, sum);
    LLVMTypeRef pairs = LLVMVectorType(LLVMBFloatTypeInContext(e->cx), 2 * e->level->lanes);
    LLVMValueRef args[] = {sum, LLVMBuildBitCast(e->b, b, pairs, ""),
                           LLVMBuildBitCast(e->b, x, pairs, "")};
    return hcg_intrinsic(e, "llvm.x86.avx512bf16.dpbf16ps.512", NULL, 0, args, 3);
}

/* Sums of even and of odd elements, side by side in n vectors, become sums of both in half as many;
 * that of one vector left over is half a vector. Gives how many there are. */
static unsigned join_sums(hcg_emit *e, LLVMValueRef *acc, unsigned n) {
    for (unsigned i = 0; i < n; i += 2) {
        LLVMValueRef v[2], other = acc[i + 1 < n ? i + 1 : i], lane[HIR_PANEL];
        const unsigned lanes = e->level->lanes / (i + 1 < n ? 1 : 2);
        for (unsigned odd = 0; odd < 2; odd++) {
            for (unsigned j = 0; j < lanes; j++)
                lane[j] = LLVMConstInt(e->i32, 2 * j + odd, false);
            v[odd] = LLVMBuildShuffleVector(e->b, acc[i], other, LLVMConstVector(lane, lanes), "");
        }
        acc[i / 2] = LLVMBuildFAdd(e->b, v[0], v[1], "");
    }
    return (n + 1) / 2;
}

/* ---- micro-kernel ------------------------------------------------------------------------------
 */

enum { TILE_PARAMS = 10 };
typedef struct micro {
    kinds d;
    unsigned rows, panels; /* of this variant, at most those of the level's tile */
    unsigned per_panel;    /* vectors */
    bool prefetch_x;       /* steps prefetch the next block of x */
    LLVMValueRef panel_stride, k, c, ldc, accumulate; /* k: steps */
    LLVMValueRef next, pace;     /* to prefetch for the next block: where, and bytes per step; of a
                                    strip: where, and the last row that there is */
    LLVMValueRef row[MOST_ROWS]; /* first element of each row of x */
    LLVMValueRef panel[8];       /* and of each panel */
} micro;

static unsigned accumulators(const micro *t) {
    return t->rows * t->panels * t->per_panel;
}

/* &c[row][vector v] */
static LLVMValueRef tile_place(hcg_emit *e, const micro *t, unsigned row, unsigned v) {
    if (t->d.strip) {
        LLVMValueRef panel = hcg_at(e, e->f32, t->c, multiply(e, t->ldc, v / t->per_panel));
        unsigned within = row * HIR_PANEL + v % t->per_panel * e->level->lanes;
        return hcg_at(e, e->f32, panel, hcg_i64(e, within));
    }
    LLVMValueRef at = multiply(e, t->ldc, row);
    return hcg_at(e, e->f32, t->c, add(e, at, hcg_i64(e, v * e->level->lanes)));
}

static LLVMValueRef load_like(hcg_emit *e, LLVMValueRef p, LLVMValueRef v) {
    LLVMValueRef c = LLVMBuildLoad2(e->b, LLVMTypeOf(v), p, "");
    LLVMSetAlignment(c, 4);
    return c;
}

/* c = accumulate ? c + acc : acc, `width` vectors a row. Adding at the end keeps the sums of k
 * blocks apart: rounding grows with the length of a block, not of k. */
static void finish_tile(hcg_emit *e, const micro *t, LLVMValueRef *acc, unsigned width) {
    LLVMValueRef sum[HCG_CARRY];
    LLVMBasicBlockRef here = LLVMGetInsertBlock(e->b);
    LLVMBasicBlockRef add_to = LLVMAppendBasicBlockInContext(e->cx, e->fn, "add_to");
    LLVMBasicBlockRef finish = LLVMAppendBasicBlockInContext(e->cx, e->fn, "finish");
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntNE, t->accumulate, hcg_i64(e, 0), "");
    LLVMBuildCondBr(e->b, more, add_to, finish);
    LLVMPositionBuilderAtEnd(e->b, add_to);
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned v = 0; v < width; v++) {
            LLVMValueRef c = load_like(e, tile_place(e, t, r, v), acc[r * width + v]);
            sum[r * width + v] = LLVMBuildFAdd(e->b, c, acc[r * width + v], "");
        }
    LLVMBuildBr(e->b, finish);
    LLVMPositionBuilderAtEnd(e->b, finish);
    for (unsigned i = 0; i < t->rows * width; i++)
        acc[i] = hcg_phi(e, acc[i], sum[i], (LLVMBasicBlockRef[]){here, add_to});
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned v = 0; v < width; v++)
            hcg_store(e, tile_place(e, t, r, v), acc[r * width + v], NULL);
}

/* The sums of the tile, row by row; gives how many vectors a row has. */
static unsigned join_tile(hcg_emit *e, const micro *t, LLVMValueRef *acc) {
    const unsigned width = t->panels * t->per_panel, joined = (width + 1) / 2;
    if (!t->d.narrow) return width;
    for (unsigned r = 0; r < t->rows; r++) {
        join_sums(e, &acc[r * width], width);
        for (unsigned v = 0; v < joined; v++)
            acc[r * joined + v] = acc[r * width + v];
    }
    return joined;
}

/* What step index + offset prefetches: of each panel this slab's share of the next block; of the
 * next x of a strip as much as a step reads: some of a row, or an equal share of all rows. */
static void prefetch_ahead(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset) {
    const unsigned bytes = line_bytes(&t->d);
    if (t->d.strip) {
        const int64_t step = 4 * (t->d.across ? t->d.across : (int64_t)t->d.rows);
        hcg_prefetch(e, hcg_at(e, e->i8, t->next, multiply(e, index, (uint64_t)step)),
                     offset * step);
        return;
    }
    LLVMValueRef line_at = hcg_at(e, e->i8, t->next, times(e, index, t->pace));
    for (unsigned p = 0; p < t->panels; p++)
        hcg_prefetch(e, hcg_at(e, hcg_element(e, t->d.b), line_at, multiply(e, t->panel_stride, p)),
                     (int64_t)offset * bytes);
}

/* acc[r][:] += x[r][k] b[k][:] for one step k = index + offset. */
static void step_tile(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset,
                      LLVMValueRef *acc) {
    unsigned width = t->panels * t->per_panel, bytes = line_bytes(&t->d);
    LLVMValueRef b[32];
    prefetch_ahead(e, t, index, offset);
    if (t->prefetch_x &&
        offset < t->rows) /* one row a step: an iteration of NARROW_UNROLL steps prefetches all */
        hcg_prefetch(e, hcg_at(e, e->f64, t->row[offset], index), k_block(e) * 8);
    for (unsigned round = 0; round < rounds(&t->d); round++) {
        for (unsigned v = 0; v < width; v++) {
            LLVMValueRef p =
                step_place(e, &t->d, t->panel[v / t->per_panel], index, v % t->per_panel);
            b[v] = load_b(e, &t->d, bytes_at(e, p, (int64_t)offset * bytes), round);
        }
        for (unsigned r = 0; r < t->rows; r++) {
            LLVMValueRef x = load_x(e, &t->d, t->row[r], index, offset, round);
            for (unsigned v = 0; v < width; v++)
                acc[r * width + v] = multiply_add(e, &t->d, x, b[v], acc[r * width + v]);
        }
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

/* Matrices of different numbers of narrow panels have tiles in common, but for the largest. */
static const char *tile_name(hcg_emit *e, const kinds *d, unsigned rows, unsigned panels,
                             bool ahead) {
    return hd_printf(e->arena, "tile_%s_%ux%u%s", panel_name(e, d), rows, panels * d->outputs,
                     ahead ? "_ahead" : "");
}

/* First element of row r of x. */
static LLVMValueRef row_place(hcg_emit *e, const kinds *d, const LLVMValueRef *param, unsigned r) {
    if (d->across) return hcg_at(e, e->f32, param[0], hcg_i64(e, r));
    LLVMValueRef number = hcg_i64(e, r);
    if (d->strip) number = hcg_smaller(e, number, param[9]);
    return opaque(e, hcg_at(e, hcg_element(e, d->x), param[0], times(e, param[1], number)));
}

/* Of the long loop. Strips come in all widths, and are as fast with one step an iteration. */
static unsigned unroll_of(hcg_emit *e, const micro *t) {
    bool full = t->rows == t->d.rows && t->panels == t->d.panels && !t->d.strip;
    return t->prefetch_x ? NARROW_UNROLL : full ? hcg_tile_of(e->level)->unroll : 1;
}

/* tile(x, ldx, b, panel_stride, k, c, ldc, accumulate, next, pace):
 * c[rows][panels * outputs] (+)= x[rows][k] b[k][..] */
static hcg_shared tile_function(hcg_emit *e, kinds d, unsigned rows, unsigned panels) {
    LLVMTypeRef params[TILE_PARAMS] = {e->ptr, e->i64, e->ptr, e->i64, e->i64,
                                       e->ptr, e->i64, e->i64, e->ptr, e->i64};
    /* many rows are cut into slabs so high, and panels only for other threads */
    const bool ahead = d.narrow && rows + 1 >= d.rows && panels == d.panels;
    hcg_shared s;
    const char *name = tile_name(e, &d, rows, panels, ahead);
    if (!hcg_shared_begin(e, name, params, TILE_PARAMS, &s)) return s;
    micro t = {.d = d, .rows = rows, .panels = panels};
    t.per_panel = HIR_PANEL / e->level->lanes;
    t.panel_stride = s.param[3], t.k = s.param[4];
    t.c = s.param[5], t.ldc = s.param[6], t.accumulate = s.param[7];
    t.next = s.param[8], t.pace = s.param[9];
    for (unsigned r = 0; r < rows; r++)
        t.row[r] = row_place(e, &d, s.param, r);
    for (unsigned p = 0; p < panels; p++)
        t.panel[p] = hcg_at(e, hcg_element(e, d.b), s.param[2], multiply(e, t.panel_stride, p));
    LLVMValueRef acc[HCG_CARRY], k = hcg_i64(e, 0);
    for (unsigned i = 0; i < accumulators(&t); i++)
        acc[i] = LLVMConstNull(e->vec);
    t.prefetch_x = ahead;
    const unsigned unroll = unroll_of(e, &t);
    if (unroll > 1) k = run_tile(e, &t, k, unroll, acc);
    t.prefetch_x = false;
    run_tile(e, &t, k, 1, acc);
    finish_tile(e, &t, acc, join_tile(e, &t, acc));
    hcg_shared_end(e, &s);
    return s;
}

/* ---- block -------------------------------------------------------------------------------------
 */

/* Calls the micro-kernel for `rows` (`least` or more, at most those of a tile) and `panels` <= tile
 * panels, both only known at run time. */
static void dispatch_tile(hcg_emit *e, kinds d, unsigned least, LLVMValueRef rows,
                          LLVMValueRef panels, const LLVMValueRef args[TILE_PARAMS]) {
    LLVMValueRef key = add(e, multiply(e, rows, d.panels + 1), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiled");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, d.rows * d.panels);
    for (unsigned h = least; h <= d.rows; h++)
        for (unsigned w = 1; w <= d.panels; w++) {
            LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tile");
            LLVMAddCase(choice, hcg_i64(e, h * (d.panels + 1) + w), block);
            LLVMPositionBuilderAtEnd(e->b, block);
            hcg_shared f = tile_function(e, d, h, w);
            hcg_shared_call(e, &f, args, TILE_PARAMS);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}

/* n things in ranges of at most `most`, as equal as can be: range i holds each + (i < more) of them
 * and begins at i * each + min(i, more). 17 rows on tiles of 8 are 6 + 6 + 5: a range of one row
 * would load as much of b as one of eight. */
typedef struct split {
    LLVMValueRef count, each, more;
} split;

static split divide(hcg_emit *e, LLVMValueRef n, int64_t most) {
    split p = {.count = divide_up(e, n, hcg_i64(e, most))};
    p.each = LLVMBuildUDiv(e->b, n, p.count, "each");
    p.more = minus(e, n, times(e, p.each, p.count));
    return p;
}

static LLVMValueRef split_start(hcg_emit *e, const split *p, LLVMValueRef i) {
    return add(e, times(e, i, p->each), hcg_smaller(e, i, p->more));
}

static LLVMValueRef split_size(hcg_emit *e, const split *p, LLVMValueRef i) {
    LLVMValueRef one_more = LLVMBuildICmp(e->b, LLVMIntSLT, i, p->more, "");
    return add(e, p->each, LLVMBuildZExt(e->b, one_more, e->i64, ""));
}

typedef struct block { /* of b, and what is prefetched while it is in use */
    kinds d;
    LLVMValueRef from, k;       /* steps of k: the first, and how many */
    LLVMValueRef panel, panels; /* the same of panels */
    LLVMValueRef b, next, accumulate;
    LLVMValueRef last; /* of k */
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
    GEMM_PARAMS
};

/* With the last steps of a slab: its lines of what is done with the sums when all rows have theirs.
 * Rows of results are pages of their own, and come too slowly when they are first needed. */
static void prefetch_touched(hcg_emit *e, const LLVMValueRef *g, const block *b, LLVMValueRef row,
                             LLVMValueRef rows) {
    LLVMValueRef zero = hcg_i64(e, 0), column = multiply(e, b->panel, b->d.outputs);
    for (int i = 0; i < HCG_TOUCHED; i++) {
        LLVMValueRef place = g[GEMM_TOUCHED + i], any = LLVMBuildIsNotNull(e->b, place, "");
        LLVMValueRef n =
            LLVMBuildSelect(e->b, LLVMBuildAnd(e->b, any, b->last, ""), rows, zero, "");
        hcg_loop l = hcg_loop_begin(e, zero, n, hcg_i64(e, 1), "touched", 0, NULL);
        LLVMValueRef at = add(e, times(e, add(e, row, l.index), g[GEMM_LD_TOUCHED]), column);
        for (unsigned bytes = 0; bytes < b->d.panels * b->d.outputs * 4; bytes += 64)
            hcg_prefetch(e, hcg_at(e, e->f32, place, at), bytes);
        hcg_loop_end(e, &l, NULL);
    }
}

/* All rows over one block of b. */
static void emit_block(hcg_emit *e, const LLVMValueRef *g, const split *slabs, const block *b) {
    LLVMValueRef pace = divide_up(e, hcg_i64(e, line_bytes(&b->d)), slabs->count);
    LLVMValueRef share = times(e, b->k, pace), k = g[GEMM_K];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), slabs->count, hcg_i64(e, 1), "slab", 0, NULL);
    LLVMValueRef row = split_start(e, slabs, l.index), rows = split_size(e, slabs, l.index);
    prefetch_touched(e, g, b, row, rows);
    LLVMValueRef x = add(e, times(e, row, g[GEMM_LDX]), multiply(e, b->from, b->d.depth));
    LLVMValueRef c = add(e, times(e, row, g[GEMM_LDC]), multiply(e, b->panel, b->d.outputs));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, hcg_element(e, b->d.x), g[GEMM_X], x),
        g[GEMM_LDX],
        b->b,
        multiply(e, k, line(&b->d)),
        b->k,
        hcg_at(e, e->f32, g[GEMM_C], c),
        g[GEMM_LDC],
        b->accumulate,
        hcg_at(e, e->i8, b->next, times(e, l.index, share)),
        pace,
    };
    dispatch_tile(e, b->d, 1, rows, b->panels, args);
    hcg_loop_end(e, &l, NULL);
}

/* What is prefetched: where one slab holds all rows, panels near ahead. For f32 only: bf16 loses a
 * twentieth by it. */
static LLVMValueRef near_if_one(hcg_emit *e, const split *slabs, const block *b) {
    LLVMValueRef one = LLVMBuildICmp(e->b, LLVMIntEQ, slabs->count, hcg_i64(e, 1), "one_slab");
    return LLVMBuildSelect(
        e->b, one, hcg_at(e, e->i8, b->b, hcg_i64(e, hcg_prefetch_distance(e->level, SLAB_AHEAD))),
        b->next, "");
}

/* gemm(x, ldx, rows, k, b, panels, c, ldc, accumulate, next, touched.., ld_touched) */
static hcg_shared gemm_function(hcg_emit *e, kinds d) {
    LLVMTypeRef elem = hcg_element(e, d.b), params[GEMM_PARAMS];
    hcg_shared s;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_NEXT] = e->ptr;
    for (int i = 0; i < HCG_TOUCHED; i++)
        params[GEMM_TOUCHED + i] = e->ptr;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemm_%s", kinds_name(e, &d)), params, GEMM_PARAMS,
                          &s))
        return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), wide = hcg_i64(e, d.panels);
    LLVMValueRef panel_stride = multiply(e, g[GEMM_K], line(&d));
    split slabs = divide(e, g[GEMM_ROWS], d.rows), steps = divide(e, g[GEMM_K], k_block(e));
    block b = {.d = d};
    hcg_loop lp = hcg_loop_begin(e, zero, g[GEMM_PANELS], wide, "panel", 0, NULL);
    b.panel = lp.index, b.panels = hcg_smaller(e, wide, minus(e, g[GEMM_PANELS], lp.index));
    LLVMValueRef first = hcg_at(e, elem, g[GEMM_B], times(e, lp.index, panel_stride));
    LLVMValueRef end = add(e, lp.index, wide);
    LLVMValueRef following =
        LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, end, g[GEMM_PANELS], ""),
                        hcg_at(e, elem, g[GEMM_B], times(e, end, panel_stride)), g[GEMM_NEXT], "");
    hcg_loop lk = hcg_loop_begin(e, zero, steps.count, one, "k_block", 0, NULL);
    b.from = split_start(e, &steps, lk.index), b.k = split_size(e, &steps, lk.index);
    b.b = hcg_at(e, elem, first, multiply(e, b.from, line(&d)));
    b.last = LLVMBuildICmp(e->b, LLVMIntEQ, add(e, lk.index, one), steps.count, "");
    b.next = LLVMBuildSelect(e->b, b.last, following,
                             hcg_at(e, elem, b.b, multiply(e, b.k, line(&d))), "");
    b.accumulate = LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntEQ, lk.index, zero, ""),
                                   g[GEMM_ADD], one, "");
    if (d.b == HIR_F32) b.next = near_if_one(e, &slabs, &b);
    emit_block(e, g, &slabs, &b);
    hcg_loop_end(e, &lk, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemm(hcg_emit *e, const hcg_gemm *g) {
    kinds d = kinds_of(e, g);
    hcg_shared f = gemm_function(e, d);
    LLVMValueRef panel_stride = multiply(e, g->k, d.outputs), next = g->next;
    LLVMValueRef steps = LLVMBuildUDiv(e->b, g->k, hcg_i64(e, d.depth), "");
    if (!next) next = hcg_at(e, hcg_element(e, g->dtype), g->b, times(e, g->panels, panel_stride));
    LLVMValueRef args[GEMM_PARAMS] = {
        g->x, g->ldx, g->rows, steps, g->b, g->panels, g->c, g->ldc, hcg_i64(e, g->accumulate),
        next};
    for (int i = 0; i < HCG_TOUCHED; i++)
        args[GEMM_TOUCHED + i] = g->touched[i] ? g->touched[i] : LLVMConstNull(e->ptr);
    args[GEMM_LD_TOUCHED] = g->ld_touched ? g->ld_touched : hcg_i64(e, 0);
    hcg_shared_call(e, &f, args, GEMM_PARAMS);
}

/* ---- strips ------------------------------------------------------------------------------------
 */
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

/* All rows over the steps k .. k + n - 1: rows of x in whole tiles, which may repeat the last one;
 * columns of x, of a number that is known, in tiles as equal as can be. */
static void emit_slabs(hcg_emit *e, const kinds *d, const LLVMValueRef *g, LLVMValueRef k,
                       LLVMValueRef n, LLVMValueRef accumulate) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), height = hcg_i64(e, d->rows);
    split slabs = {.count = divide_up(e, g[STRIP_ROWS], height), .each = height, .more = zero};
    unsigned least = d->rows;
    if (d->across) {
        slabs = divide(e, hcg_i64(e, d->across), d->rows);
        least = (unsigned)LLVMConstIntGetSExtValue(slabs.each);
    }
    hcg_loop l = hcg_loop_begin(e, zero, slabs.count, one, "slab", 0, NULL);
    LLVMValueRef row = split_start(e, &slabs, l.index), rows = split_size(e, &slabs, l.index);
    LLVMValueRef x = d->across ? add(e, multiply(e, k, (uint64_t)d->across), row)
                               : add(e, times(e, row, g[STRIP_LDX]), k);
    LLVMValueRef last = minus(e, minus(e, g[STRIP_ROWS], row), one);
    LLVMValueRef ahead =
        d->across ? x : add(e, times(e, row, g[STRIP_LDX]), multiply(e, k, d->rows));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, e->f32, g[STRIP_X], x),
        g[STRIP_LDX],
        hcg_at(e, e->f32, g[STRIP_B], multiply(e, k, HIR_PANEL)),
        g[STRIP_LDB],
        n,
        hcg_at(e, e->f32, g[STRIP_C], multiply(e, row, HIR_PANEL)),
        g[STRIP_LDC],
        accumulate,
        hcg_at(e, e->f32, g[STRIP_NEXT], ahead),
        last,
    };
    dispatch_tile(e, *d, least, rows, g[STRIP_PANELS], args);
    hcg_loop_end(e, &l, NULL);
}

/* product(x, ldx, rows, k, b, ldb, panels, c, ldc, accumulate, next) */
static hcg_shared strip_function(hcg_emit *e, const kinds *d) {
    LLVMTypeRef params[STRIP_PARAMS];
    hcg_shared s;
    for (int i = 0; i < STRIP_PARAMS; i++)
        params[i] =
            i == STRIP_X || i == STRIP_B || i == STRIP_C || i == STRIP_NEXT ? e->ptr : e->i64;
    const char *name = hd_printf(e->arena, "product_%s", kinds_name(e, d));
    if (!hcg_shared_begin(e, name, params, STRIP_PARAMS, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    split steps = divide(e, s.param[STRIP_K], k_block(e));
    hcg_loop l = hcg_loop_begin(e, zero, steps.count, one, "k_block", 0, NULL);
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, l.index, zero, "");
    emit_slabs(e, d, s.param, split_start(e, &steps, l.index), split_size(e, &steps, l.index),
               LLVMBuildSelect(e->b, first, s.param[STRIP_ADD], one, ""));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_strip(hcg_emit *e, const hcg_strip *s) {
    const hcg_tile *tile = hcg_tile_of(e->level);
    kinds d = {.b = HIR_F32, .x = HIR_F32, .depth = 1, .outputs = HIR_PANEL};
    d.rows = tile->rows, d.panels = tile->panels, d.strip = true, d.across = s->across;
    hcg_shared f = strip_function(e, &d);
    LLVMValueRef args[STRIP_PARAMS] = {s->x,      s->ldx, s->rows, s->k,          s->b,   s->ldb,
                                       s->panels, s->c,   s->ldc,  s->accumulate, s->next};
    hcg_shared_call(e, &f, args, STRIP_PARAMS);
}

/* ---- matrix times vector -----------------------------------------------------------------------
 */

/* acc[chain][v] += x[k] b[k][v], chain = offset: `steps` of k, each its own chain of adds. */
static void gemv_steps(hcg_emit *e, const kinds *d, LLVMValueRef x, LLVMValueRef b,
                       LLVMValueRef index, unsigned steps, LLVMValueRef *acc) {
    unsigned per_panel = HIR_PANEL / e->level->lanes, bytes = line_bytes(d);
    LLVMValueRef first = step_place(e, d, b, index, 0);
    for (unsigned u = 0; u < steps; u++) {
        if (u * bytes % 64 == 0 && steps > 1)
            hcg_prefetch(e, first, u * bytes + hcg_prefetch_distance(e->level, GEMV_AHEAD));
        for (unsigned round = 0; round < rounds(d); round++) {
            LLVMValueRef xs = load_x(e, d, x, index, u, round);
            for (unsigned v = 0; v < per_panel; v++) {
                LLVMValueRef place = bytes_at(e, first, u * bytes + v * (bytes / per_panel));
                LLVMValueRef *sum = &acc[u * per_panel + v];
                *sum = multiply_add(e, d, xs, load_b(e, d, place, round), *sum);
            }
        }
    }
}

/* One panel: `steps` steps of k at a time, then the rest one by one. */
static void gemv_panel(hcg_emit *e, const kinds *d, LLVMValueRef x, LLVMValueRef k, LLVMValueRef b,
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
    gemv_steps(e, d, x, b, l.index, steps, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < steps * per_panel; i++)
        acc[i] = l.carried[i];
    for (unsigned half = steps / 2; half; half /= 2)
        for (unsigned i = 0; i < half * per_panel; i++)
            acc[i] = LLVMBuildFAdd(e->b, acc[i], acc[i + half * per_panel], "");
    hcg_loop rest = hcg_loop_begin(e, l.index, k, hcg_i64(e, 1), "k_rest", per_panel, acc);
    for (unsigned i = 0; i < per_panel; i++)
        acc[i] = rest.carried[i];
    gemv_steps(e, d, x, b, rest.index, 1, acc);
    hcg_loop_end(e, &rest, acc);
    const unsigned n = d->narrow ? join_sums(e, rest.carried, per_panel) : per_panel;
    for (unsigned v = 0; v < n; v++)
        hcg_store(e, hcg_at(e, e->f32, out, hcg_i64(e, v * e->level->lanes)), rest.carried[v],
                  NULL);
}

/* gemv(x, steps of k, b, panels, out) */
static hcg_shared gemv_function(hcg_emit *e, const kinds *d) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "gemv_%s", panel_name(e, d)), params, 5, &s))
        return s;
    LLVMValueRef x = s.param[0], k = s.param[1], b = s.param[2], panels = s.param[3];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), panels, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef at = times(e, l.index, multiply(e, k, line(d)));
    gemv_panel(e, d, x, k, hcg_at(e, hcg_element(e, d->b), b, at),
               hcg_at(e, e->f32, s.param[4], multiply(e, l.index, d->outputs)));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_gemv(hcg_emit *e, const hcg_gemm *g) {
    kinds d = kinds_of(e, g);
    hcg_shared f = gemv_function(e, &d);
    LLVMValueRef steps = LLVMBuildUDiv(e->b, g->k, hcg_i64(e, d.depth), "");
    LLVMValueRef args[] = {g->x, steps, g->b, g->panels, g->c};
    hcg_shared_call(e, &f, args, 5);
}
