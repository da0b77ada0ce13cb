/* Tiles of numbers and their products for attention (amx/products.h). */
#include "codegen/matmul/backends/amx/products.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"

enum {
    LINES = HCG_AMX_LINES,
    LINE = HCG_AMX_LINE,
    TILE = HCG_AMX_TILE,
    STEP = HCG_AMX_STEP,
    PARTS = HCG_AMX_MOST_PARTS,
};

unsigned hcg_amx_parts_of(hir_dtype dtype, bool exact) {
    if (!exact || dtype == HIR_BF16) return 1;
    return dtype == HIR_F16 ? 2 : PARTS;
}

static LLVMValueRef steps_of(hcg_emit *e, LLVMValueRef n) {
    return hcg_divide_up(e, n, hcg_i64(e, STEP));
}

static const char *name_of(hcg_emit *e, const char *what, hir_dtype dtype, unsigned parts) {
    return hd_printf(e->arena, "amx_%s_%s_%u", what, hir_dtype_name(dtype), parts);
}

/* ---- lines ----------------------------------------------------------------------------------- */
void hcg_amx_left_operands(hcg_emit *e, const hcg_amx_rows *r, LLVMValueRef out) {
    const hcg_amx_lines a = {.name = name_of(e, "lines", r->dtype, r->parts),
                             .dtype = r->dtype,
                             .parts = r->parts,
                             .x = r->x,
                             .ld = hcg_i64(e, r->ld),
                             .rows = r->end,
                             .n = hcg_i64(e, r->n),
                             .out = out};
    hcg_amx_make_lines(e, &a);
}

/* ---- pairs ----------------------------------------------------------------------------------- */
enum { PAIRS_X, PAIRS_LD, PAIRS_FIRST, PAIRS_END, PAIRS_N, PAIRS_APART, PAIRS_OUT, PAIRS_PARAMS };

/* Where some 32 rows and 16 columns lie, and which of them exist. */
typedef struct square {
    hir_dtype dtype;
    unsigned parts;
    LLVMValueRef x, ld;      /* of its first row and column */
    LLVMValueRef row;        /* its first row */
    LLVMValueRef first, end; /* rows that exist; NULL: all */
    LLVMValueRef columns;    /* columns that exist; NULL: all 16 */
    LLVMValueRef out;
} square;

static LLVMValueRef load_row(hcg_emit *e, const square *s, LLVMValueRef i) {
    LLVMTypeRef elem = hcg_element(e, s->dtype);
    LLVMValueRef at = hcg_at(e, elem, s->x, hcg_mul(e, i, s->ld)), n = s->columns;
    if (s->first) {
        LLVMValueRef row = hcg_add(e, s->row, i);
        LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSGE, row, s->first, "");
        in = LLVMBuildAnd(e->b, in, LLVMBuildICmp(e->b, LLVMIntSLT, row, s->end, ""), "");
        n = LLVMBuildSelect(e->b, in, n, hcg_i64(e, 0), "");
    }
    return hcg_load(e, s->dtype, at, n);
}

static void store_pair(hcg_emit *e, const square *s, LLVMValueRef pair) {
    LLVMValueRef part[2][PARTS], two = hcg_mul_const(e, pair, 2);
    for (unsigned i = 0; i < 2; i++)
        hcg_amx_split(e, HCG_AMX_UPPER, s->dtype, s->parts,
                      load_row(e, s, hcg_add(e, two, hcg_i64(e, i))), part[i]);
    LLVMValueRef out = hcg_at(e, e->i8, s->out, hcg_mul_const(e, pair, LINE));
    for (unsigned i = 0; i < s->parts; i++)
        hcg_amx_store_line(e, hcg_amx_pair_line(e, part[0][i], part[1][i]),
                           hcg_at_byte(e, out, i * TILE));
}

/* Most squares are whole: for those there is code without masks, line by line. */
static void store_square(hcg_emit *e, const square *s, LLVMValueRef whole) {
    LLVMBasicBlockRef all = LLVMAppendBasicBlockInContext(e->cx, e->fn, "whole");
    LLVMBasicBlockRef some = LLVMAppendBasicBlockInContext(e->cx, e->fn, "some");
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "square");
    LLVMBuildCondBr(e->b, whole, all, some);
    LLVMPositionBuilderAtEnd(e->b, all);
    square plain = *s;
    plain.first = plain.end = plain.columns = NULL;
    for (unsigned i = 0; i < LINES; i++)
        store_pair(e, &plain, hcg_i64(e, i));
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, some);
    hcg_loop l =
        hcg_loop_begin(e, hcg_i64(e, 0), hcg_i64(e, LINES), hcg_i64(e, 1), "pair", 0, NULL);
    store_pair(e, s, l.index);
    hcg_loop_end(e, &l, NULL);
    LLVMBuildBr(e->b, done);
    LLVMPositionBuilderAtEnd(e->b, done);
}

static hcg_shared pairs_function(hcg_emit *e, hir_dtype dtype, unsigned parts) {
    LLVMTypeRef params[PAIRS_PARAMS], elem = hcg_element(e, dtype);
    hcg_shared f;
    for (int i = 0; i < PAIRS_PARAMS; i++)
        params[i] = i == PAIRS_X || i == PAIRS_OUT ? e->ptr : e->i64;
    if (!hcg_shared_begin(e, name_of(e, "pairs", dtype, parts), params, PAIRS_PARAMS, &f)) return f;
    const LLVMValueRef *g = f.param;
    LLVMValueRef sixteen = hcg_i64(e, LINES), zero = hcg_i64(e, 0);
    square s = {.dtype = dtype, .parts = parts, .ld = g[PAIRS_LD]};
    s.first = g[PAIRS_FIRST], s.end = g[PAIRS_END];
    hcg_loop rows = hcg_loop_begin(e, zero, s.end, hcg_i64(e, STEP), "rows", 0, NULL);
    s.row = rows.index;
    LLVMValueRef behind = hcg_add(e, s.row, hcg_i64(e, STEP));
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLE, behind, s.end, "");
    in = LLVMBuildAnd(e->b, in, LLVMBuildICmp(e->b, LLVMIntSGE, s.row, s.first, ""), "");
    LLVMValueRef x = hcg_at(e, elem, g[PAIRS_X], hcg_mul(e, s.row, s.ld));
    LLVMValueRef step = LLVMBuildUDiv(e->b, s.row, hcg_i64(e, STEP), "");
    LLVMValueRef out = hcg_at(e, e->i8, g[PAIRS_OUT], hcg_mul_const(e, step, parts * TILE));
    hcg_loop l = hcg_loop_begin(e, zero, g[PAIRS_N], sixteen, "columns", 0, NULL);
    LLVMValueRef left = hcg_sub(e, g[PAIRS_N], l.index);
    LLVMValueRef tile = LLVMBuildUDiv(e->b, l.index, sixteen, "");
    s.x = hcg_at(e, elem, x, l.index), s.columns = hcg_smaller(e, left, sixteen);
    s.out = hcg_at(e, e->i8, out, hcg_mul(e, tile, g[PAIRS_APART]));
    LLVMValueRef wide = LLVMBuildICmp(e->b, LLVMIntSGE, left, sixteen, "");
    store_square(e, &s, LLVMBuildAnd(e->b, in, wide, ""));
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &rows, NULL);
    hcg_shared_end(e, &f);
    return f;
}

void hcg_amx_pairs(hcg_emit *e, const hcg_amx_rows *r, int64_t apart, LLVMValueRef out) {
    hcg_shared f = pairs_function(e, r->dtype, r->parts);
    LLVMValueRef args[PAIRS_PARAMS] = {
        r->x, hcg_i64(e, r->ld), r->first, r->end, hcg_i64(e, r->n), hcg_i64(e, apart), out};
    hcg_shared_call(e, &f, args, PAIRS_PARAMS);
}

/* ---- probabilities --------------------------------------------------------------------------- */
/* The lanes of a and b that `of` names: numbers below 16 are lanes of a. */
static LLVMValueRef shuffled(hcg_emit *e, LLVMValueRef a, LLVMValueRef b,
                             unsigned (*of)(unsigned lane, unsigned high), unsigned high) {
    LLVMValueRef lane[LINES];
    for (unsigned i = 0; i < LINES; i++)
        lane[i] = LLVMConstInt(e->i32, of(i, high), false);
    return LLVMBuildShuffleVector(e->b, a, b, LLVMConstVector(lane, LINES), "");
}

/* Interleaves the lower or upper two words of each 128 bits of a and b: unpcklps, unpckhps. */
static unsigned by_words(unsigned lane, unsigned high) {
    return lane / 4 * 4 + 2 * high + lane % 4 / 2 + LINES * (lane % 2);
}

/* The same with two words at a time: unpcklpd, unpckhpd. */
static unsigned by_pairs(unsigned lane, unsigned high) {
    return lane / 4 * 4 + 2 * high + lane % 2 + LINES * (lane % 4 / 2);
}

/* The even or odd 128 bits of a, then of b: vshuff32x4. */
static unsigned by_quarters(unsigned lane, unsigned high) {
    return lane / 4 % 2 * 8 + 4 * high + lane % 4 + LINES * (lane / 8);
}

/* Rows become columns: blocks of 4 x 4 within 128 bits, then the 4 x 4 blocks. */
static void transpose(hcg_emit *e, LLVMValueRef v[LINES]) {
    LLVMValueRef w[LINES];
    for (unsigned i = 0; i < LINES; i += 2)
        for (unsigned high = 0; high < 2; high++)
            w[i + high] = shuffled(e, v[i], v[i + 1], by_words, high);
    for (unsigned i = 0; i < LINES; i += 4)
        for (unsigned j = 0; j < 2; j++)
            for (unsigned high = 0; high < 2; high++) /* columns 2 j + high of each four */
                v[i + 2 * j + high] = shuffled(e, w[i + j], w[i + 2 + j], by_pairs, high);
    for (unsigned j = 0; j < 4; j++) /* even and odd quarters of two fours of rows */
        for (unsigned i = 0; i < LINES; i += 8)
            for (unsigned high = 0; high < 2; high++)
                w[i + j + 4 * high] = shuffled(e, v[i + j], v[i + 4 + j], by_quarters, high);
    for (unsigned j = 0; j < 4; j++)
        for (unsigned odd = 0; odd < 2; odd++) /* and of all four */
            for (unsigned high = 0; high < 2; high++)
                v[8 * high + 4 * odd + j] =
                    shuffled(e, w[j + 4 * odd], w[8 + j + 4 * odd], by_quarters, high);
}

void hcg_amx_turn_tile(hcg_emit *e, LLVMValueRef tile) {
    LLVMTypeRef params[] = {e->ptr};
    LLVMValueRef v[LINES];
    hcg_shared s;
    if (hcg_shared_begin(e, "amx_turn_tile", params, 1, &s)) {
        for (unsigned i = 0; i < LINES; i++)
            v[i] = hcg_load(e, HIR_F32, hcg_at_byte(e, s.param[0], i * LINE), NULL);
        transpose(e, v);
        for (unsigned i = 0; i < LINES; i++)
            hcg_amx_store_line(e, v[i], hcg_at_byte(e, s.param[0], i * LINE));
        hcg_shared_end(e, &s);
    }
    hcg_shared_call(e, &s, &tile, 1);
}

enum { PROBS_P, PROBS_KEYS, PROBS_OUT, PROBS_PARAMS };

/* Writes zeros after the last key up to a whole step. */
static void fill_step(hcg_emit *e, LLVMValueRef p, LLVMValueRef keys) {
    LLVMValueRef end = hcg_mul_const(e, steps_of(e, keys), STEP);
    hcg_loop l = hcg_loop_begin(e, keys, end, hcg_i64(e, 1), "no_key", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, p, hcg_mul_const(e, l.index, HIR_PANEL)), hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

/* The lines are frozen, which makes no instruction: to choose instructions, LLVM otherwise looks
 * through the four steps of a transpose into what each line is made of, over and over. */
static hcg_shared probabilities_function(hcg_emit *e, unsigned parts) {
    LLVMTypeRef params[PROBS_PARAMS] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "amx_probabilities_%u", parts);
    if (!hcg_shared_begin(e, name, params, PROBS_PARAMS, &s)) return s;
    LLVMValueRef keys = s.param[PROBS_KEYS], v[PARTS][LINES], part[2][PARTS];
    fill_step(e, s.param[PROBS_P], keys);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), keys, hcg_i64(e, STEP), "step", 0, NULL);
    LLVMValueRef p = hcg_at(e, e->f32, s.param[PROBS_P], hcg_mul_const(e, l.index, HIR_PANEL));
    for (unsigned i = 0; i < STEP; i++) {
        LLVMValueRef at = hcg_at_byte(e, p, i * LINE);
        hcg_amx_split(e, HCG_AMX_FINITE, HIR_F32, parts, hcg_load(e, HIR_F32, at, NULL),
                      part[i % 2]);
        for (unsigned j = 0; j < parts && i % 2; j++)
            v[j][i / 2] = LLVMBuildFreeze(e->b, hcg_amx_pair_line(e, part[0][j], part[1][j]), "");
    }
    LLVMValueRef step = LLVMBuildUDiv(e->b, l.index, hcg_i64(e, STEP), "");
    LLVMValueRef out = hcg_at(e, e->i8, s.param[PROBS_OUT], hcg_mul_const(e, step, parts * TILE));
    for (unsigned j = 0; j < parts; j++) {
        transpose(e, v[j]);
        for (unsigned i = 0; i < LINES; i++)
            hcg_amx_store_line(e, v[j][i], hcg_at_byte(e, out, j * TILE + i * LINE));
    }
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_amx_probabilities(hcg_emit *e, unsigned parts, LLVMValueRef p, LLVMValueRef keys,
                           LLVMValueRef out) {
    hcg_shared f = probabilities_function(e, parts);
    LLVMValueRef args[PROBS_PARAMS] = {p, keys, out};
    hcg_shared_call(e, &f, args, PROBS_PARAMS);
}

/* ---- products -------------------------------------------------------------------------------- */
enum {
    MUL_A,
    MUL_A_LINE,
    MUL_A_TILE,
    MUL_A_STEP,
    MUL_A_TILES,
    MUL_B,
    MUL_B_TILE,
    MUL_B_TILES,
    MUL_STEPS,
    MUL_C,
    MUL_C_LINE,
    MUL_C_A,
    MUL_C_B,
    MUL_ADD,
    MUL_NEXT,
    MUL_AHEAD,
    MUL_PARAMS
};

typedef struct block { /* tiles of c that are in registers */
    unsigned a_parts, b_parts;
    const LLVMValueRef *g;
    LLVMValueRef a, b, c, next, pace; /* its first tiles; bytes to prefetch with each step */
    hcg_amx_sums sums;
} block;

static LLVMValueRef moved(hcg_emit *e, LLVMValueRef p, LLVMValueRef stride, unsigned i) {
    return i ? hcg_at(e, e->i8, p, stride) : p;
}

static void load_a(hcg_emit *e, const block *d, LLVMValueRef a, unsigned part) {
    for (unsigned i = 0; i < d->sums.rows; i++)
        hcg_amx_load(e, hcg_amx_x(i), hcg_at_byte(e, moved(e, a, d->g[MUL_A_TILE], i), part * TILE),
                     d->g[MUL_A_LINE], false);
}

static void load_b(hcg_emit *e, const block *d, LLVMValueRef b, unsigned part) {
    for (unsigned j = 0; j < d->sums.columns; j++)
        hcg_amx_load(e, hcg_amx_w(j), hcg_at_byte(e, moved(e, b, d->g[MUL_B_TILE], j), part * TILE),
                     hcg_i64(e, LINE), false);
}

/* The products of a step; the operand of fewer parts stays in its registers. */
static void multiply_step(hcg_emit *e, const block *d, LLVMValueRef a, LLVMValueRef b) {
    const bool keeps_a = d->a_parts <= d->b_parts;
    const unsigned outer = keeps_a ? d->a_parts : d->b_parts;
    const unsigned inner = keeps_a ? d->b_parts : d->a_parts;
    for (unsigned o = 0; o < outer; o++) {
        keeps_a ? load_a(e, d, a, o) : load_b(e, d, b, o);
        for (unsigned n = 0; n < inner && o + n < PARTS; n++) {
            keeps_a ? load_b(e, d, b, n) : load_a(e, d, a, n);
            for (unsigned i = 0; i < d->sums.rows; i++)
                hcg_amx_add_row(e, &d->sums, "llvm.x86.tdpbf16ps", i);
        }
    }
}

static void prefetch_lines(hcg_emit *e, LLVMValueRef from, LLVMValueRef bytes) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), bytes, hcg_i64(e, LINE), "ahead", 0, NULL);
    hcg_prefetch_l2(e, hcg_at(e, e->i8, from, l.index), 0);
    hcg_loop_end(e, &l, NULL);
}

static void emit_block(hcg_emit *e, void *of, unsigned rows, unsigned columns) {
    block *d = of;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    d->sums = (hcg_amx_sums){rows, columns, d->c, d->g[MUL_C_LINE], d->g[MUL_C_A], d->g[MUL_C_B]};
    hcg_amx_begin_sums(e, &d->sums, d->g[MUL_ADD]);
    hcg_loop l = hcg_loop_begin(e, zero, d->g[MUL_STEPS], one, "step", 0, NULL);
    prefetch_lines(e, hcg_at(e, e->i8, d->next, hcg_mul(e, l.index, d->pace)), d->pace);
    LLVMValueRef a = hcg_at(e, e->i8, d->a, hcg_mul(e, l.index, d->g[MUL_A_STEP]));
    LLVMValueRef b = hcg_at(e, e->i8, d->b, hcg_mul_const(e, l.index, d->b_parts * TILE));
    multiply_step(e, d, a, b);
    hcg_loop_end(e, &l, NULL);
    hcg_amx_leave_sums(e, &d->sums);
}

/* Bytes to prefetch with each step of a block, in whole lines. */
static LLVMValueRef pace_of(hcg_emit *e, const LLVMValueRef *g) {
    LLVMValueRef across = hcg_i64(e, HCG_AMX_ACROSS);
    LLVMValueRef blocks = hcg_mul(e, hcg_divide_up(e, g[MUL_A_TILES], across),
                                  hcg_divide_up(e, g[MUL_B_TILES], across));
    LLVMValueRef lines = hcg_divide_up(e, g[MUL_AHEAD], hcg_i64(e, LINE));
    return hcg_mul_const(e, hcg_divide_up(e, lines, hcg_mul(e, blocks, g[MUL_STEPS])), LINE);
}

static hcg_shared multiply_function(hcg_emit *e, unsigned a_parts, unsigned b_parts) {
    LLVMTypeRef params[MUL_PARAMS];
    hcg_shared f;
    for (int i = 0; i < MUL_PARAMS; i++)
        params[i] = i == MUL_A || i == MUL_B || i == MUL_C || i == MUL_NEXT ? e->ptr : e->i64;
    const char *name = hd_printf(e->arena, "amx_multiply_%ux%u", a_parts, b_parts);
    if (!hcg_shared_begin(e, name, params, MUL_PARAMS, &f)) return f;
    const LLVMValueRef *g = f.param;
    LLVMValueRef zero = hcg_i64(e, 0), across = hcg_i64(e, HCG_AMX_ACROSS);
    block d = {.a_parts = a_parts, .b_parts = b_parts, .g = g, .pace = pace_of(e, g)};
    LLVMValueRef each = hcg_mul(e, d.pace, g[MUL_STEPS]), next = g[MUL_NEXT];
    hcg_loop lb = hcg_loop_begin(e, zero, g[MUL_B_TILES], across, "column", 1, &next);
    d.b = hcg_at(e, e->i8, g[MUL_B], hcg_mul(e, lb.index, g[MUL_B_TILE]));
    LLVMValueRef c = hcg_at(e, e->i8, g[MUL_C], hcg_mul(e, lb.index, g[MUL_C_B]));
    hcg_loop la = hcg_loop_begin(e, zero, g[MUL_A_TILES], across, "row", 1, lb.carried);
    d.a = hcg_at(e, e->i8, g[MUL_A], hcg_mul(e, la.index, g[MUL_A_TILE]));
    d.c = hcg_at(e, e->i8, c, hcg_mul(e, la.index, g[MUL_C_A]));
    d.next = la.carried[0];
    hcg_amx_for_size(e, hcg_smaller(e, hcg_sub(e, g[MUL_A_TILES], la.index), across),
                     hcg_smaller(e, hcg_sub(e, g[MUL_B_TILES], lb.index), across), emit_block, &d);
    next = hcg_at(e, e->i8, d.next, each);
    hcg_loop_end(e, &la, &next);
    hcg_loop_end(e, &lb, la.carried);
    hcg_shared_end(e, &f);
    return f;
}

void hcg_amx_multiply_tiles(hcg_emit *e, const hcg_amx_product *p) {
    hcg_shared f = multiply_function(e, p->a_parts, p->b_parts);
    LLVMValueRef args[MUL_PARAMS] = {
        p->a,     p->a_line, p->a_tile, p->a_step, p->a_tiles, p->b,   p->b_tile, p->b_tiles,
        p->steps, p->c,      p->c_line, p->c_a,    p->c_b,     p->add, p->next,   p->ahead};
    hcg_shared_call(e, &f, args, MUL_PARAMS);
}

/* ---- sums so far ----------------------------------------------------------------------------- */
enum { SCALE_O, SCALE_LD, SCALE_WIDTH, SCALE_BEFORE, SCALE_NOW, SCALE_PARAMS };

static hcg_shared rescale_function(hcg_emit *e) {
    LLVMTypeRef params[SCALE_PARAMS] = {e->ptr, e->i64, e->i64, e->ptr, e->ptr};
    LLVMTypeRef mask = LLVMIntTypeInContext(e->cx, e->level->lanes);
    hcg_shared s;
    if (!hcg_shared_begin(e, "amx_rescale", params, SCALE_PARAMS, &s)) return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef before = hcg_load(e, HIR_F32, s.param[SCALE_BEFORE], NULL);
    LLVMValueRef now = hcg_load(e, HIR_F32, s.param[SCALE_NOW], NULL);
    LLVMValueRef by = hcg_fsub(e, now, before);
    hcg_half_to_the(e, &by, 1);
    hcg_store(e, s.param[SCALE_BEFORE], by, NULL);
    LLVMValueRef grew = LLVMBuildFCmp(e->b, LLVMRealUNE, now, before, "");
    grew = LLVMBuildBitCast(e->b, grew, mask, "");
    grew = LLVMBuildICmp(e->b, LLVMIntNE, grew, LLVMConstNull(mask), "grew");
    LLVMValueRef rows = LLVMBuildSelect(e->b, grew, hcg_i64(e, LINES), zero, "");
    hcg_loop r = hcg_loop_begin(e, zero, rows, one, "row", 0, NULL);
    LLVMValueRef o = hcg_at(e, e->f32, s.param[SCALE_O], hcg_mul(e, r.index, s.param[SCALE_LD]));
    LLVMValueRef factor = hcg_at(e, e->f32, s.param[SCALE_BEFORE], r.index);
    factor = hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, factor));
    hcg_loop l = hcg_loop_begin(e, zero, s.param[SCALE_WIDTH], hcg_i64(e, e->level->lanes), "scale",
                                0, NULL);
    LLVMValueRef at = hcg_at(e, e->f32, o, l.index);
    hcg_store(e, at, hcg_fmul(e, hcg_load(e, HIR_F32, at, NULL), factor), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &r, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_amx_rescale(hcg_emit *e, LLVMValueRef o, int64_t ld, int64_t width, LLVMValueRef before,
                     LLVMValueRef now) {
    hcg_shared f = rescale_function(e);
    LLVMValueRef args[SCALE_PARAMS] = {o, hcg_i64(e, ld), hcg_i64(e, width), before, now};
    hcg_shared_call(e, &f, args, SCALE_PARAMS);
}
