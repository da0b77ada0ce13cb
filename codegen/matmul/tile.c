/* The micro-kernel of matrix kernels: a register tile of sums, rows of x times panels of b, run
 * along k (matmul/tile.h). */
#include "codegen/matmul/tile.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"

enum {
    MOST_ROWS = 16,    /* of a tile */
    NARROW_UNROLL = 8, /* steps in which a line of each row of x is read */
};

typedef struct micro {
    tile_kind d;
    unsigned rows, panels; /* rows and panels of this variant, at most those of the level's tile */
    unsigned per_panel;    /* vectors */
    unsigned width;        /* vectors of the tile */
    bool prefetch_x;       /* whether steps prefetch the next block of x */
    bool sparse;           /* whether two steps prefetch a line together */
    LLVMValueRef panel_stride, k, c, ldc, accumulate; /* k: steps */
    LLVMValueRef next, pace;     /* to prefetch for the next block: where, and bytes per step; of a
                                    strip: where, and its last row */
    LLVMValueRef keep;           /* where b is kept in f32; NULL: nowhere */
    LLVMValueRef row[MOST_ROWS]; /* first element of each row of x */
    LLVMValueRef panel[8];       /* and of each panel */
} micro;

static unsigned accumulators(const micro *t) {
    return t->d.squares ? tile_square_sums(t->rows, t->width) : t->rows * t->width;
}

/* &c[row][vector v] */
static LLVMValueRef tile_place(hcg_emit *e, const micro *t, unsigned row, unsigned v) {
    if (t->d.strip) {
        LLVMValueRef panel = hcg_at(e, e->f32, t->c, hcg_mul_const(e, t->ldc, v / t->per_panel));
        unsigned within = row * t->d.outputs + v % t->per_panel * e->level->lanes;
        return hcg_at(e, e->f32, panel, hcg_i64(e, within));
    }
    LLVMValueRef at = hcg_mul_const(e, t->ldc, row);
    const unsigned column = (t->d.first + v) * e->level->lanes;
    return hcg_at(e, e->f32, t->c, hcg_add(e, at, hcg_i64(e, column)));
}

static LLVMValueRef load_like(hcg_emit *e, LLVMValueRef p, LLVMValueRef v) {
    LLVMValueRef c = LLVMBuildLoad2(e->b, LLVMTypeOf(v), p, "");
    LLVMSetAlignment(c, 4);
    return c;
}

/* c = accumulate ? c + acc : acc, `width` vectors a row. Adding at the end keeps the sums of k
 * blocks separate: rounding grows with the length of a block, not of k. */
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
            sum[r * width + v] = hcg_fadd(e, c, acc[r * width + v]);
        }
    LLVMBuildBr(e->b, finish);
    LLVMPositionBuilderAtEnd(e->b, finish);
    for (unsigned i = 0; i < t->rows * width; i++)
        acc[i] = hcg_phi(e, acc[i], sum[i], (LLVMBasicBlockRef[]){here, add_to});
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned v = 0; v < width; v++)
            hcg_store(e, tile_place(e, t, r, v), acc[r * width + v], NULL);
}

/* Brings the sums of the tile into order, row by row; returns how many vectors a row has. */
static unsigned join_tile(hcg_emit *e, const micro *t, LLVMValueRef *acc) {
    const unsigned width = t->width, joined = (width + 1) / 2;
    if (t->d.squares) tile_part_squares(e, t->rows, width, acc);
    if (!t->d.narrow) return width;
    for (unsigned r = 0; r < t->rows; r++) {
        tile_join_sums(e, &acc[r * width], width);
        for (unsigned v = 0; v < joined; v++)
            acc[r * joined + v] = acc[r * width + v];
    }
    return joined;
}

/* Prefetches of step index + offset: this slab's share of each panel's next block; or, for a
 * strip, as much of the next x as a step reads: part of a row, or an equal share of all rows. Other
 * strips read this x before the next one, which stays out of the L1 until then. */
static void prefetch_ahead(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset) {
    const unsigned bytes = tile_line_bytes(&t->d);
    if (t->d.across && !t->d.strip) {
        hcg_keep_order(e);
        return;
    }
    if (t->d.strip) {
        const int64_t step = 4 * (t->d.across ? t->d.across : (int64_t)t->d.rows);
        const int64_t steps = t->d.across ? 1 : e->level->machine.line / step; /* in a line */
        if (steps > 1 && offset % steps) {
            hcg_keep_order(e);
            return;
        }
        LLVMValueRef from = hcg_at(e, e->i8, t->next, hcg_mul_const(e, index, step));
        hcg_prefetch_l2(e, from, offset * step);
        return;
    }
    if (t->sparse && offset % 2) {
        hcg_keep_order(e);
        return;
    }
    LLVMValueRef line_at = hcg_at(e, e->i8, t->next, hcg_mul(e, index, t->pace));
    const int64_t at = (int64_t)offset * (t->sparse ? e->level->machine.line / 2 : bytes);
    const bool near = !t->d.far || (t->d.b == HIR_F32 && t->rows <= TILE_NEAR_ROWS);
    const unsigned panels = t->d.vectors ? tile_own_panels(&t->d) : t->panels;
    for (unsigned p = 0; p < panels; p++) {
        LLVMValueRef panel = hcg_mul_const(e, t->panel_stride, p);
        LLVMValueRef from = hcg_at(e, hcg_element(e, t->d.b), line_at, panel);
        (near ? hcg_prefetch : hcg_prefetch_l2)(e, from, at);
    }
}

/* &b[index + offset][vector v of the tile] */
static LLVMValueRef step_place(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset,
                               unsigned v) {
    const unsigned of_panels = t->d.first + v;
    LLVMValueRef p = tile_step_place(e, &t->d, t->panel[of_panels / t->per_panel], index,
                                     of_panels % t->per_panel);
    return hcg_at_byte(e, p, (int64_t)offset * tile_line_bytes(&t->d));
}

/* Where that vector is kept in f32, of pairs one element of each. */
static LLVMValueRef kept_place(hcg_emit *e, const micro *t, LLVMValueRef kept, LLVMValueRef index,
                               unsigned offset, unsigned v, unsigned round) {
    const int64_t line = (int64_t)t->width * e->level->lanes, each = line * tile_rounds(&t->d);
    LLVMValueRef at = hcg_at(e, e->f32, kept, hcg_mul_const(e, index, each));
    return hcg_at(e, e->f32, at, hcg_i64(e, offset * each + round * line + v * e->level->lanes));
}

static LLVMValueRef load_b(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset,
                           unsigned v, unsigned round) {
    if (t->d.kept)
        return hcg_load(e, HIR_F32, kept_place(e, t, t->panel[0], index, offset, v, round), NULL);
    LLVMValueRef b = tile_load_b(e, &t->d, step_place(e, t, index, offset, v), round);
    if (t->keep) hcg_store(e, kept_place(e, t, t->keep, index, offset, v, round), b, NULL);
    return b;
}

/* acc[r][:] += x[r][k] b[k][:] for one step k = index + offset. */
static void step_tile(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset,
                      LLVMValueRef *acc) {
    const unsigned width = t->width;
    LLVMValueRef b[32];
    prefetch_ahead(e, t, index, offset);
    if (t->prefetch_x &&
        offset < t->rows) /* one row a step: an iteration of NARROW_UNROLL steps prefetches all */
        hcg_prefetch(e, hcg_at(e, e->f64, t->row[offset], index), tile_k_block(e) * 8);
    for (unsigned round = 0; round < tile_rounds(&t->d); round++) {
        if (round) hcg_keep_order(e);
        for (unsigned v = 0; v < width; v++)
            b[v] = load_b(e, t, index, offset, v, round);
        for (unsigned r = 0; r < t->rows; r++) {
            LLVMValueRef x = tile_load_x(e, &t->d, t->row[r], index, offset, round);
            for (unsigned v = 0; v < width; v++)
                acc[r * width + v] = tile_multiply_add(e, &t->d, x, b[v], acc[r * width + v]);
        }
    }
}

/* The same for two steps, or for the one that `steps` says is left. */
static void step_squares(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned offset,
                         unsigned steps, LLVMValueRef *acc) {
    const unsigned width = t->width;
    LLVMValueRef x[MOST_ROWS], b[2][32];
    for (unsigned s = 0; s < steps; s++) {
        prefetch_ahead(e, t, index, offset + s);
        for (unsigned v = 0; v < width; v++)
            b[s][v] = tile_load_b(e, &t->d, step_place(e, t, index, offset + s, v), 0);
    }
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef at = hcg_at(e, e->i32, t->row[r], index);
        x[r] = hcg_at_byte(e, at, (int64_t)offset * 4);
    }
    tile_add_squares(e, t->rows, width, x, b[0], steps > 1 ? b[1] : NULL, acc);
}

/* Prefetches the sums that the tile is added to: each row is in another page. */
static void prefetch_sums(hcg_emit *e, const micro *t) {
    const unsigned floats = e->level->machine.line / (unsigned)sizeof(float);
    for (unsigned r = 0; r < t->rows; r++)
        for (unsigned i = 0; i < t->panels * HIR_PANEL; i += floats)
            hcg_prefetch(e, tile_place(e, t, r, i / e->level->lanes), 0);
}

static void take_steps(hcg_emit *e, const micro *t, LLVMValueRef index, unsigned steps,
                       LLVMValueRef *acc) {
    for (unsigned u = 0; u < steps; u += t->d.squares ? 2 : 1) {
        if (t->d.squares)
            step_squares(e, t, index, u, steps - u > 1 ? 2 : 1, acc);
        else
            step_tile(e, t, index, u, acc);
    }
}

/* Goes on from k = `from` in steps of `unroll` while that many are left; returns the k that it
 * reached. Where prefetches are sparse and the share of two steps is more than a line, as that of
 * one slab alone is, the loop of single steps does all. */
static LLVMValueRef run_tile(hcg_emit *e, const micro *t, LLVMValueRef from, unsigned unroll,
                             LLVMValueRef *acc) {
    unsigned n = accumulators(t);
    LLVMValueRef to = hcg_add(e, t->k, hcg_i64(e, 1 - (int64_t)unroll));
    if (t->sparse) {
        LLVMValueRef most = hcg_i64(e, e->level->machine.line / 2);
        LLVMValueRef dense = LLVMBuildICmp(e->b, LLVMIntSGT, t->pace, most, "dense");
        to = LLVMBuildSelect(e->b, dense, from, to, "");
    }
    hcg_loop l = hcg_loop_begin(e, from, to, hcg_i64(e, unroll), "k", n, acc);
    for (unsigned i = 0; i < n; i++)
        acc[i] = l.carried[i];
    take_steps(e, t, l.index, unroll, acc);
    hcg_loop_end(e, &l, acc);
    for (unsigned i = 0; i < n; i++)
        acc[i] = l.carried[i];
    return l.index;
}

/* p, in a way that LLVM cannot see through. If LLVM knew that rows are a constant distance apart,
 * its loop strength reduction would keep multiples of it, for which there are not enough registers.
 */
static LLVMValueRef opaque(hcg_emit *e, LLVMValueRef p) {
    return hcg_intrinsic(e, "llvm.launder.invariant.group", &e->ptr, 1, &p, 1);
}

/* Matrices with different numbers of narrow panels share all tiles but the largest. */
static const char *tile_name(hcg_emit *e, const tile_kind *d, unsigned rows, unsigned panels,
                             bool ahead) {
    const unsigned outputs = d->vectors ? d->vectors * e->level->lanes : panels * d->outputs;
    return hd_printf(e->arena, "tile_%s_%ux%u%s%s", tile_panel_name(e, d), rows, outputs,
                     d->first ? "_second" : "",
                     ahead    ? "_ahead"
                     : d->far ? "_far"
                              : "");
}

/* First element of row r of x. */
static LLVMValueRef row_place(hcg_emit *e, const tile_kind *d, const LLVMValueRef *param,
                              unsigned r) {
    if (d->across) return hcg_at(e, e->f32, param[0], hcg_i64(e, r));
    LLVMValueRef number = hcg_i64(e, r);
    if (d->strip) number = hcg_smaller(e, number, param[9]);
    return opaque(e, hcg_at(e, hcg_element(e, d->x), param[0], hcg_mul(e, param[1], number)));
}

/* Steps per iteration of the main loop. Many rows are cut into slabs of a tile's height and of one
 * row less (gemm.c). Strips, of which there are many widths, are as fast with one step where a vector
 * holds a line of a panel. With two vectors for a line a step is 25 instructions, of which 12
 * multiply. A wide tile that keeps b takes one step, too: LLVM loads what the next one multiplies
 * before this one is done, for which there is no register. */
static unsigned unroll_of(hcg_emit *e, const micro *t) {
    const bool halves = e->level->lanes == HIR_PANEL / 2;
    const bool full = t->rows + 1 >= t->d.rows && t->panels == t->d.panels;
    const unsigned least = t->d.squares ? 2 : 1;
    if ((t->d.strip && !halves) || (t->d.keeps && t->d.vectors)) return least;
    return t->prefetch_x ? NARROW_UNROLL : full ? hcg_tile_of(e->level)->unroll : least;
}

static unsigned params_of(const tile_kind *d) {
    return d->keeps ? TILE_PARAMS : TILE_KEEP;
}

/* tile(x, ldx, b, panel_stride, k, c, ldc, accumulate, next, pace[, keep]):
 * c[rows][panels * outputs] (+)= x[rows][k] b[k][..] */
static hcg_shared tile_function(hcg_emit *e, tile_kind d, unsigned rows, unsigned panels) {
    LLVMTypeRef params[TILE_PARAMS] = {e->ptr, e->i64, e->ptr, e->i64, e->i64, e->ptr,
                                       e->i64, e->i64, e->ptr, e->i64, e->ptr};
    /* many rows are cut into slabs of this height; panels are cut only for other threads */
    const bool ahead = d.narrow && rows + 1 >= d.rows && panels == d.panels;
    hcg_shared s;
    const char *name = tile_name(e, &d, rows, panels, ahead);
    if (!hcg_shared_begin(e, name, params, params_of(&d), &s)) return s;
    micro t = {.d = d, .rows = rows, .panels = panels};
    t.per_panel = tile_panel_vectors(e, &d);
    t.width = d.vectors ? d.vectors : panels * t.per_panel;
    t.panel_stride = s.param[3], t.k = s.param[4];
    t.c = s.param[5], t.ldc = s.param[6], t.accumulate = s.param[7];
    t.next = s.param[8], t.pace = s.param[9];
    if (d.keeps) t.keep = s.param[TILE_KEEP];
    for (unsigned r = 0; r < rows; r++)
        t.row[r] = row_place(e, &d, s.param, r);
    for (unsigned p = 0; p < panels; p++)
        t.panel[p] =
            hcg_at(e, hcg_element(e, d.b), s.param[2], hcg_mul_const(e, t.panel_stride, p));
    LLVMValueRef acc[HCG_CARRY], k = hcg_i64(e, 0);
    for (unsigned i = 0; i < accumulators(&t); i++)
        acc[i] = LLVMConstNull(e->vec);
    if (d.across && !d.strip) prefetch_sums(e, &t);
    t.prefetch_x = ahead;
    const unsigned unroll = unroll_of(e, &t);
    t.sparse = unroll > 1 && !d.narrow && !d.strip && !d.across && !d.squares;
    if (unroll > 1) k = run_tile(e, &t, k, unroll, acc);
    t.prefetch_x = t.sparse = false;
    run_tile(e, &t, k, 1, acc);
    finish_tile(e, &t, acc, join_tile(e, &t, acc));
    hcg_shared_end(e, &s);
    return s;
}

/* Calls the micro-kernel for `rows` (`least` or more, at most those of a tile) and `panels` <= tile
 * panels, both only known at run time. */
void tile_dispatch(hcg_emit *e, tile_kind d, unsigned least, LLVMValueRef rows, LLVMValueRef panels,
                   const LLVMValueRef args[TILE_PARAMS]) {
    LLVMValueRef key = hcg_add(e, hcg_mul_const(e, rows, d.panels + 1), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiled");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, d.rows * d.panels);
    for (unsigned h = least; h <= d.rows; h++)
        for (unsigned w = d.least_panels ? d.least_panels : 1; w <= d.panels; w++) {
            LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tile");
            LLVMAddCase(choice, hcg_i64(e, h * (d.panels + 1) + w), block);
            LLVMPositionBuilderAtEnd(e->b, block);
            hcg_shared f = tile_function(e, d, h, w);
            hcg_shared_call(e, &f, args, params_of(&d));
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}
