/* Sums of outer products (matmul/matrix.h), the third form of a contraction: of y = x W^T it is the
 * gradient of W, dy^T x.
 *
 * Both factors have rows of tokens, and a product of one token is a row of one times a row of the
 * other. The register tile is that of all contractions (tile.c): it broadcasts numbers of a and
 * loads vectors of b, token after token. Each token's row is in another page, and rows a multiple
 * of 4 KB apart share few sets of the L1. So a block of tokens is copied first, in panels
 * [token][16] of b, and of a [token][rows of some tiles], in whole vectors and without transposing.
 *
 *     for some blocks of rows of y
 *       for each block of tokens               hcg_block_steps: the level's panels of b fit the L1
 *         copy b
 *         for each of those blocks of rows     as many as stay in the L2 together with the copies
 *           copy a
 *           for each tile's panels of b        they stay in the L1
 *             for each tile's rows of a        sums += tile; with the last tokens y (+)= sums
 *
 * Sums stand in workspace, tile by tile. In y their rows, too, may be a multiple of 4 KB apart: a
 * block of y would have as small a part of the L2 as its columns are of a page. So y is read and
 * written once, whatever the number of tokens.
 *
 * A number of b is copied once for as many rows of y as share the copy. Where blocks have few rows,
 * since the L2 is small, several share it; their sums then come from the L3, in the order in which
 * they lie, a tile's while the one before it is made.
 *
 * Rounded factors are copied as pairs of tokens, which are one step of the tile: a dot product of two
 * bf16. A matrix unit has blocks of its own (backends/amx/outer.c).
 */
#include "codegen/matmul/backends/amx/outer.h"
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/matrix.h"
#include "codegen/matmul/tile.h"

enum {
    LINE = 16,        /* floats between panels, so that they do not begin in one set of the L1 */
    FEWEST_ROWS = 48, /* of a block of y, however small the L2 is */
    AHEAD = 4, /* rows, of which each begins in another page, between a prefetch and a copy */
    SHARING_ROWS = 576, /* of y, that share a copy of b */
};

/* The blocks of a level. Panels and parts of the workspace are counted in floats, which pairs of
 * tokens are as large as. */
typedef struct blocks {
    int64_t rows, steps;      /* a step: a token, or a pair */
    int64_t together;         /* blocks of rows that share a copy of b */
    int64_t tiles;            /* of a panel of a: together they are whole vectors */
    int64_t a_panel, b_panel; /* from one panel to the next */
    int64_t b, sums;          /* where the copy of b and the sums begin; a's begins at 0 */
} blocks;

/* rows y of HCG_OUTER_COLUMNS, and `steps` rows of a and b, take three quarters of the L2. */
static blocks blocks_of(const hcg_level *level) {
    const hcg_tile *tile = hcg_tile_of(level);
    const int64_t wide = HCG_OUTER_COLUMNS, height = tile->rows;
    blocks z = {.steps = hcg_block_steps(level, tile->panels)};
    const int64_t floats = (int64_t)level->machine.l2 / 4 * 3 / (int64_t)sizeof(float);
    z.rows = (floats - z.steps * wide) / (wide + z.steps);
    if (z.rows < FEWEST_ROWS) z.rows = FEWEST_ROWS;
    z.tiles = 1;
    while (z.tiles * height % level->lanes)
        z.tiles++;
    const int64_t a_wide = z.tiles * height;
    z.rows = z.rows / a_wide * a_wide;
    z.together = z.rows < SHARING_ROWS ? SHARING_ROWS / z.rows : 1;
    z.a_panel = z.steps * a_wide + LINE, z.b_panel = z.steps * HIR_PANEL + LINE;
    z.b = z.rows / a_wide * z.a_panel;
    z.sums = z.b + wide / HIR_PANEL * z.b_panel;
    return z;
}

static bool has_tiles(const hcg_level *level) {
    return level->lanes == HIR_PANEL && hcg_has_features(level, "amx-tile amx-bf16");
}

uint64_t hcg_outer_bytes(const hcg_level *level, bool rounds, int64_t n) {
    if (rounds && has_tiles(level)) return hcg_amx_outer_bytes(level, n);
    const blocks z = blocks_of(level);
    const int64_t height = hcg_tile_of(level)->rows, tiles = (n + height - 1) / height;
    const int64_t most = z.rows * z.together;
    const int64_t rows = tiles * height < most ? tiles * height : most;
    return (uint64_t)(z.sums + rows * HCG_OUTER_COLUMNS) * sizeof(float);
}

/* ---- copies ---------------------------------------------------------------------------------- */
enum { FROM, LD, COLUMNS, ROWS_OF, EACH, COUNT, OUT, COPY_PARAMS };

/* Where row `row` begins; of a list, the row that entry `row` names. */
static LLVMValueRef row_at(hcg_emit *e, const LLVMValueRef *g, LLVMValueRef row, bool listed) {
    if (listed) {
        row = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, g[ROWS_OF], row), "");
        LLVMSetAlignment(row, 4);
        row = LLVMBuildSExt(e->b, row, e->i64, "");
        row = LLVMBuildUDiv(e->b, row, g[EACH], "");
    }
    return hcg_at(e, e->f32, g[FROM], hcg_mul(e, row, g[LD]));
}

/* The rows of a step. */
typedef struct lines {
    unsigned n;
    LLVMValueRef from[2], ahead[2];
    LLVMValueRef all; /* i1: the second row exists */
} lines;

/* Rows of a and of b become words: the first in the lower halves. */
static LLVMValueRef rounded_pair(hcg_emit *e, const LLVMValueRef x[2]) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef half[2];
    for (unsigned i = 0; i < 2; i++)
        half[i] = LLVMBuildZExt(e->b, hcg_narrow(e, HIR_BF16, x[i]), ints, "");
    half[1] = LLVMBuildShl(e->b, half[1], hcg_int_like(ints, 16), "");
    return LLVMBuildBitCast(e->b, LLVMBuildOr(e->b, half[0], half[1], ""), e->vec, "");
}

/* One row of a panel, whose last columns may not exist. */
static void copy_line(hcg_emit *e, unsigned width, const lines *l, LLVMValueRef column,
                      LLVMValueRef left, LLVMValueRef to) {
    for (unsigned v = 0; v < width; v += e->level->lanes) {
        LLVMValueRef at = hcg_i64(e, v), n = left && v ? hcg_sub(e, left, at) : left, x[2];
        LLVMValueRef from = hcg_add(e, column, at);
        for (unsigned i = 0; i < l->n; i++)
            x[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, l->from[i], from), n);
        if (l->n > 1) {
            x[1] = LLVMBuildSelect(e->b, l->all, x[1], LLVMConstNull(e->vec), "");
            x[0] = rounded_pair(e, x);
        }
        hcg_store(e, hcg_at(e, e->f32, to, at), x[0], NULL);
    }
}

/* The rows of a step, and those of a later one; `row`: its first. Rows after the last are the last. */
static lines lines_at(hcg_emit *e, const LLVMValueRef *g, LLVMValueRef row, unsigned n,
                      bool listed) {
    LLVMValueRef last = hcg_sub(e, g[COUNT], hcg_i64(e, 1));
    lines l = {.n = n};
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef at = hcg_add(e, row, hcg_i64(e, i));
        LLVMValueRef ahead = hcg_smaller(e, hcg_add(e, at, hcg_i64(e, AHEAD)), last);
        if (i) {
            l.all = LLVMBuildICmp(e->b, LLVMIntSLE, at, last, "");
            at = hcg_smaller(e, at, last);
        }
        l.from[i] = row_at(e, g, at, listed);
        l.ahead[i] = row_at(e, g, ahead, listed);
    }
    return l;
}

static hcg_shared copy_function(hcg_emit *e, const hcg_column_copy *c) {
    LLVMTypeRef params[COPY_PARAMS] = {e->ptr, e->i64, e->i64, e->ptr, e->i64, e->i64, e->ptr};
    const unsigned width = c->width, n = c->pairs ? 2 : 1;
    hcg_shared s;
    const char *name = hd_printf(e->arena, "pack_%s_%u_%lld%s", c->pairs ? "pairs" : "columns",
                                 width, (long long)c->panel, c->list ? "_of_list" : "");
    if (!hcg_shared_begin(e, name, params, COPY_PARAMS, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), step = hcg_i64(e, width), rows = hcg_i64(e, n);
    LLVMValueRef columns = s.param[COLUMNS], whole = hcg_sub(e, columns, hcg_i64(e, width - 1));
    hcg_loop lr = hcg_loop_begin(e, zero, s.param[COUNT], rows, "row", 0, NULL);
    const lines line = lines_at(e, s.param, lr.index, n, c->list != NULL);
    LLVMValueRef to[] = {hcg_mul(e, LLVMBuildUDiv(e->b, lr.index, rows, ""), step)}, at = zero;
    for (int last = 0; last < 2; last++) {
        LLVMValueRef end = last ? columns : whole;
        hcg_loop l = hcg_loop_begin(e, at, end, step, last ? "last" : "column", 1, to);
        for (unsigned k = 0; k < n; k++)
            for (unsigned i = 0; i < width * sizeof(float); i += e->level->machine.line)
                hcg_prefetch(e, hcg_at(e, e->f32, line.ahead[k], l.index), i);
        copy_line(e, width, &line, l.index, last ? hcg_sub(e, columns, l.index) : NULL,
                  hcg_at(e, e->f32, s.param[OUT], l.carried[0]));
        to[0] = hcg_add(e, l.carried[0], hcg_i64(e, c->panel));
        hcg_loop_end(e, &l, to);
        at = l.index, to[0] = l.carried[0];
    }
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_pack_columns(hcg_emit *e, const hcg_column_copy *c) {
    hcg_shared f = copy_function(e, c);
    LLVMValueRef one = hcg_i64(e, 1), none = LLVMConstNull(e->ptr);
    LLVMValueRef args[COPY_PARAMS] = {
        c->x,    c->ld, c->columns, c->list ? c->list : none, c->list ? c->each : one,
        c->rows, c->out};
    hcg_shared_call(e, &f, args, COPY_PARAMS);
}

/* ---- products -------------------------------------------------------------------------------- */
enum { A, LDA, A_EACH, N, B, LDB, B_EACH, K, LIST, ROWS, Y, LDY, ADD, BELOW, SPACE, OUTER_PARAMS };

typedef struct outer {
    tile_kind d;
    blocks z;
    const LLVMValueRef *g; /* the function's parameters */
    bool listed;
    LLVMValueRef a, b, sums;    /* in the workspace */
    LLVMValueRef row, rows;     /* of y, in the block */
    LLVMValueRef step, steps;   /* of the block */
    LLVMValueRef panel, panels; /* of b, of a tile */
    LLVMValueRef tiles;         /* of a panel, in the block */
    LLVMValueRef first, last;   /* is the block the first, and the last? */
} outer;

/* Copies the block's tokens of a (columns `first` on, `n` of them) or b. */
static void copy_block(hcg_emit *e, const outer *o, bool of_a, LLVMValueRef first, LLVMValueRef n) {
    const LLVMValueRef *g = o->g + (of_a ? 0 : B);
    LLVMValueRef token = hcg_mul_const(e, o->step, o->d.depth);
    LLVMValueRef tokens = hcg_mul_const(e, o->steps, o->d.depth);
    if (!o->listed) first = hcg_add(e, first, hcg_mul(e, token, g[LDA]));
    hcg_column_copy c = {
        .pairs = tile_is_dot(&o->d), .ld = g[LDA], .columns = n, .each = g[A_EACH]};
    c.width = of_a ? (unsigned)o->d.stride : HIR_PANEL;
    c.panel = of_a ? o->z.a_panel : o->z.b_panel;
    c.x = hcg_at(e, e->f32, g[A], first);
    c.list = o->listed ? hcg_at(e, e->i32, o->g[LIST], token) : NULL;
    c.rows = hcg_smaller(e, tokens, hcg_sub(e, o->g[ROWS], token));
    c.out = of_a ? o->a : o->b;
    hcg_pack_columns(e, &c);
}

/* One row of y (+)= sums, `n` columns from `from` on, in steps of vectors that are whole or not. */
static LLVMValueRef leave_row(hcg_emit *e, const outer *o, LLVMValueRef sums, LLVMValueRef y,
                              LLVMValueRef from, LLVMValueRef n, bool whole) {
    LLVMValueRef lanes = hcg_i64(e, e->level->lanes), one = hcg_i64(e, 1);
    LLVMValueRef end = whole ? hcg_sub(e, n, hcg_sub(e, lanes, one)) : n;
    LLVMValueRef adds = LLVMBuildICmp(e->b, LLVMIntNE, o->g[ADD], hcg_i64(e, 0), "");
    hcg_loop l = hcg_loop_begin(e, from, end, lanes, "column", 0, NULL);
    LLVMValueRef left = whole ? NULL : hcg_sub(e, n, l.index), at = hcg_at(e, e->f32, y, l.index);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->f32, sums, l.index), NULL);
    LLVMValueRef sum = hcg_fadd(e, hcg_load(e, HIR_F32, at, left), v);
    hcg_store(e, at, LLVMBuildSelect(e->b, adds, sum, v, ""), left);
    hcg_loop_end(e, &l, NULL);
    return l.index;
}

/* y (+)= the sums of a tile, `rows` rows of the `n` columns that there are. */
static void leave_tile(hcg_emit *e, const outer *o, LLVMValueRef sums, LLVMValueRef y,
                       LLVMValueRef rows, LLVMValueRef n) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), rows, hcg_i64(e, 1), "leave", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, l.index, o->d.panels * HIR_PANEL);
    LLVMValueRef to = hcg_at(e, e->f32, y, hcg_mul(e, l.index, o->g[LDY]));
    from = hcg_at(e, e->f32, sums, from);
    LLVMValueRef at = leave_row(e, o, from, to, hcg_i64(e, 0), n, true);
    leave_row(e, o, from, to, at, n, false);
    hcg_loop_end(e, &l, NULL);
}

/* One tile: number `down` of the block's rows and number `across` of its columns. */
static void emit_tile(hcg_emit *e, const outer *o, LLVMValueRef down, LLVMValueRef across) {
    const int64_t height = o->d.rows, wide = o->d.panels * HIR_PANEL;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), row = hcg_mul_const(e, down, height);
    LLVMValueRef rows = hcg_smaller(e, hcg_sub(e, o->rows, row), hcg_i64(e, height));
    LLVMValueRef column = hcg_mul_const(e, o->panel, HIR_PANEL);
    LLVMValueRef n =
        hcg_smaller(e, hcg_sub(e, o->g[K], column), hcg_mul_const(e, o->panels, HIR_PANEL));
    /* with one block of tokens, all tiles have the place of the first */
    LLVMValueRef place = hcg_add(e, hcg_mul(e, across, o->tiles), down);
    place = LLVMBuildSelect(e->b, LLVMBuildAnd(e->b, o->first, o->last, ""), zero, place, "");
    LLVMValueRef sums = hcg_at(e, e->f32, o->sums, hcg_mul_const(e, place, height * wide));
    for (int64_t at = height * wide; at < 2 * height * wide && o->z.together > 1; at += LINE)
        hcg_prefetch(e, sums, at * 4); /* those of the next tile */
    LLVMValueRef left = LLVMBuildSelect(e->b, o->last, rows, zero, "");
    LLVMValueRef first = hcg_add(e, o->row, row);
    hcg_prefetch_rows(e, o->g[Y], o->g[LDY], first, left, column, (unsigned)wide * 4);
    LLVMValueRef panel = LLVMBuildUDiv(e->b, down, hcg_i64(e, o->z.tiles), "");
    LLVMValueRef in_panel = hcg_sub(e, down, hcg_mul_const(e, panel, o->z.tiles));
    LLVMValueRef a =
        hcg_add(e, hcg_mul_const(e, panel, o->z.a_panel), hcg_mul_const(e, in_panel, height));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, e->f32, o->a, a),
        zero,
        hcg_at(e, e->f32, o->b, hcg_mul_const(e, o->panel, o->z.b_panel)),
        hcg_i64(e, o->z.b_panel * o->d.depth),
        o->steps,
        sums,
        hcg_i64(e, wide),
        LLVMBuildSelect(e->b, o->first, zero, one, ""),
        sums,
        zero,
    };
    tile_dispatch(e, o->d, 1, rows, o->panels, args);
    LLVMValueRef y = hcg_add(e, hcg_mul(e, first, o->g[LDY]), column);
    leave_tile(e, o, sums, hcg_at(e, e->f32, o->g[Y], y), left, n);
}

/* The tiles of the block's rows that are made of the panels at hand. */
static LLVMValueRef wanted_tiles(hcg_emit *e, const outer *o) {
    LLVMValueRef end = hcg_mul_const(e, hcg_add(e, o->panel, o->panels), HIR_PANEL);
    end = hcg_add(e, hcg_smaller(e, end, o->g[K]), o->g[BELOW]);
    LLVMValueRef rows = hcg_smaller(e, hcg_sub(e, end, o->row), o->rows);
    return hcg_divide_up(e, hcg_larger(e, rows, hcg_i64(e, 0)), hcg_i64(e, o->d.rows));
}

/* Adds the block's tokens to the block's rows of sums. */
static void emit_tiles(hcg_emit *e, outer *o, const tile_split *groups) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    o->tiles = hcg_divide_up(e, o->rows, hcg_i64(e, o->d.rows));
    hcg_loop lp = hcg_loop_begin(e, zero, groups->count, one, "panels", 0, NULL);
    o->panel = tile_split_start(e, groups, lp.index);
    o->panels = tile_split_size(e, groups, lp.index);
    hcg_loop lr = hcg_loop_begin(e, zero, wanted_tiles(e, o), one, "tile", 0, NULL);
    emit_tile(e, o, lr.index, lp.index);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lp, NULL);
}

/* outer(a, lda, a_each, n, b, ldb, b_each, k, list, rows, y, ldy, add, below, space) */
static hcg_shared outer_function(hcg_emit *e, bool rounds, bool listed) {
    LLVMTypeRef params[OUTER_PARAMS];
    hcg_shared s;
    for (int i = 0; i < OUTER_PARAMS; i++)
        params[i] = i == A || i == B || i == LIST || i == Y || i == SPACE ? e->ptr : e->i64;
    const char *name =
        hd_printf(e->arena, "outer%s%s", rounds ? "_bf16" : "", listed ? "_of_list" : "");
    if (!hcg_shared_begin(e, name, params, OUTER_PARAMS, &s)) return s;
    const hcg_tile *tile = hcg_tile_of(e->level);
    outer o = {.z = blocks_of(e->level), .g = s.param, .listed = listed};
    o.d = (tile_kind){.b = HIR_F32, .x = HIR_F32, .depth = 1, .outputs = HIR_PANEL};
    if (rounds) o.d.b = o.d.x = HIR_BF16, o.d.depth = 2;
    o.d.rows = tile->rows, o.d.panels = tile->panels, o.d.across = tile->rows;
    o.d.stride = o.z.tiles * tile->rows;
    o.a = s.param[SPACE];
    o.b = hcg_at(e, e->f32, o.a, hcg_i64(e, o.z.b));
    o.sums = hcg_at(e, e->f32, o.a, hcg_i64(e, o.z.sums));
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), most = hcg_i64(e, o.z.rows);
    LLVMValueRef most_together = hcg_i64(e, o.z.rows * o.z.together), all_sums = o.sums;
    LLVMValueRef panels = hcg_divide_up(e, s.param[K], hcg_i64(e, HIR_PANEL));
    const tile_split groups = tile_divide(e, panels, o.d.panels),
                     blocks = tile_divide(e, hcg_divide_up(e, s.param[ROWS], hcg_i64(e, o.d.depth)),
                                          o.z.steps);
    hcg_loop ls = hcg_loop_begin(e, zero, s.param[N], most_together, "together", 0, NULL);
    LLVMValueRef end = hcg_smaller(e, s.param[N], hcg_add(e, ls.index, most_together));
    hcg_loop lt = hcg_loop_begin(e, zero, blocks.count, one, "tokens", 0, NULL);
    o.step = tile_split_start(e, &blocks, lt.index);
    o.steps = tile_split_size(e, &blocks, lt.index);
    o.first = LLVMBuildICmp(e->b, LLVMIntEQ, lt.index, zero, "");
    o.last = LLVMBuildICmp(e->b, LLVMIntEQ, hcg_add(e, lt.index, one), blocks.count, "");
    copy_block(e, &o, false, zero, s.param[K]);
    hcg_loop lr = hcg_loop_begin(e, ls.index, end, most, "block", 0, NULL);
    o.row = lr.index, o.rows = hcg_smaller(e, hcg_sub(e, end, lr.index), most);
    o.sums = hcg_at(e, e->f32, all_sums,
                    hcg_mul_const(e, hcg_sub(e, lr.index, ls.index), HCG_OUTER_COLUMNS));
    copy_block(e, &o, true, o.row, o.rows);
    emit_tiles(e, &o, &groups);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lt, NULL);
    hcg_loop_end(e, &ls, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_call_outer(hcg_emit *e, const hcg_outer *o) {
    if (o->rounds && has_tiles(e->level)) {
        hcg_amx_outer(e, o);
        return;
    }
    hcg_shared f = outer_function(e, o->rounds, o->list != NULL);
    LLVMValueRef one = hcg_i64(e, 1), args[OUTER_PARAMS] = {
                                          o->a,
                                          o->lda,
                                          o->list ? o->a_each : one,
                                          o->n,
                                          o->b,
                                          o->ldb,
                                          o->list ? o->b_each : one,
                                          o->k,
                                          o->list ? o->list : LLVMConstNull(e->ptr),
                                          o->rows,
                                          o->y,
                                          o->ldy,
                                          o->add,
                                          o->below ? o->below : hcg_i64(e, INT64_MAX / 2),
                                          o->space,
                                      };
    hcg_shared_call(e, &f, args, OUTER_PARAMS);
}
