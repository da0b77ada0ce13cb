/* q8 without an instruction that adds four products of bytes (int8/group.h): products of 16 bits.
 *
 * vpmaddubsw of q8 needs |q|, and the sign of q on x, and its sums have no space for another
 * product: four instructions for 32 products, three of which only two ports of a CPU take. Pairs of
 * 16 bits (vpmaddwd) need two instructions for 16 products, one of which any port takes, but bytes
 * have to be widened: x once for all panels, and panels once for all rows of a block, as many
 * groups at a time as stay in the L1 with the x that they are multiplied with. Of four elements of
 * a row q0 .. q3, q0 and q2 are a word and q1 and q3 the next one, as shifts make them.
 *
 * There are registers for integers alone: sums of floats lie in the block of sums. */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backends/int8/group.h"
#include "codegen/matmul/tile.h"

enum {
    WORD = 4,
    STEPS = HIR_GROUP / WORD,                /* of a group, two words of pairs each */
    GROUP_BYTES = 2 * HIR_GROUP * HIR_PANEL, /* of a widened panel */
    MOST_VECTORS = 2,                        /* of a tile */
};

/* ---- panels ---------------------------------------------------------------------------------- */
/* Groups that are widened together: they take half of the L1. */
static int64_t most_groups(const hcg_emit *e) {
    const int64_t n = e->level->machine.l1 / 2 / (GROUP_BYTES * hcg_int8_panels(e));
    return n > 1 ? n : 1;
}

uint64_t hcg_int8_words_bytes(const hcg_emit *e) {
    return (uint64_t)(most_groups(e) * GROUP_BYTES) * hcg_int8_panels(e);
}

static unsigned vectors_of(const hcg_emit *e, unsigned panels) {
    return panels * HIR_PANEL / e->level->lanes;
}

/* Where a word of a group begins, with the vectors of all panels side by side. */
static LLVMValueRef words_at(hcg_emit *e, LLVMValueRef widened, LLVMValueRef group, unsigned panels,
                             unsigned word) {
    widened = hcg_at(e, e->i8, widened, hcg_mul_const(e, group, (int64_t)panels * GROUP_BYTES));
    return hcg_at_byte(e, widened, (int64_t)word * panels * HIR_PANEL * WORD);
}

static LLVMTypeRef halves_type(hcg_emit *e) {
    return LLVMVectorType(e->i16, 2 * e->level->lanes);
}

/* The four numbers of each output that step s multiplies, in two words of 16 bits. */
static void widen_step(hcg_emit *e, LLVMValueRef group, unsigned s, unsigned v,
                       LLVMValueRef words[2]) {
    LLVMTypeRef halves = halves_type(e);
    LLVMValueRef q = hcg_quant_block(e, HIR_Q8, group, s, v), by = hcg_int_like(halves, 8);
    LLVMValueRef added = hcg_int_like(halves, 128);
    q = LLVMBuildBitCast(e->b, q, halves, "");
    words[0] = LLVMBuildAnd(e->b, q, hcg_int_like(halves, UINT8_MAX), "");
    words[1] = LLVMBuildLShr(e->b, q, by, "");
    for (unsigned i = 0; i < 2; i++)
        words[i] = LLVMBuildSub(e->b, words[i], added, "");
}

/* widen(b, panel_bytes, groups, out): out[groups][STEPS][2][vectors] */
static hcg_shared widen_function(hcg_emit *e, unsigned panels) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr};
    hcg_shared f;
    const char *name = hd_printf(e->arena, "widen_words_%u", panels * HIR_PANEL);
    if (!hcg_shared_begin(e, name, params, 4, &f)) return f;
    const unsigned lanes = e->level->lanes, per_panel = HIR_PANEL / lanes;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), f.param[2], hcg_i64(e, 1), "group", 0, NULL);
    LLVMValueRef b = hcg_mul_const(e, l.index, (int64_t)hcg_group_bytes(HIR_Q8));
    b = hcg_at(e, e->i8, f.param[0], b);
    for (unsigned v = 0; v < vectors_of(e, panels); v++) {
        LLVMValueRef group = hcg_mul_const(e, f.param[1], v / per_panel), words[2];
        group = hcg_at(e, e->i8, b, group);
        for (unsigned s = 0; s < STEPS; s++) {
            widen_step(e, group, s, v % per_panel, words);
            for (unsigned i = 0; i < 2; i++) {
                LLVMValueRef to = words_at(e, f.param[3], l.index, panels, 2 * s + i);
                to = hcg_at_byte(e, to, (int64_t)v * lanes * WORD);
                LLVMSetAlignment(LLVMBuildStore(e->b, words[i], to), WORD);
            }
        }
    }
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &f);
    return f;
}

/* ---- a tile ---------------------------------------------------------------------------------- */
enum { SLAB_X, SLAB_WIDENED, SLAB_B, SLAB_PANEL_BYTES, SLAB_GROUPS, SLAB_C, SLAB_LDC, SLAB_PARAMS };

typedef struct tile {
    const hcg_int8_instructions *with;
    hcg_int8_form form;
    unsigned rows, panels, vectors;
    LLVMValueRef group, x; /* the number of the group, and where that of x is */
} tile;

/* sum + more, or more. The fence keeps additions in order: LLVM would add sums of steps in pairs,
 * for which there are no registers. */
static LLVMValueRef add_in_order(hcg_emit *e, LLVMValueRef sum, LLVMValueRef more) {
    LLVMTypeRef ints = LLVMTypeOf(more);
    if (sum) more = LLVMBuildAdd(e->b, sum, more, "");
    more = LLVMBuildBitCast(e->b, more, e->vec, "");
    more = hcg_intrinsic(e, "llvm.arithmetic.fence", &e->vec, 1, &more, 1);
    return LLVMBuildBitCast(e->b, more, ints, "");
}

/* Vector v of a word of the panels. */
static LLVMValueRef word_of_panel(hcg_emit *e, const tile *t, const LLVMValueRef *param,
                                  unsigned word, unsigned v) {
    LLVMValueRef at = words_at(e, param[SLAB_WIDENED], t->group, t->panels, word);
    at = hcg_at_byte(e, at, (int64_t)v * e->level->lanes * WORD);
    LLVMValueRef w = LLVMBuildLoad2(e->b, halves_type(e), at, "");
    LLVMSetAlignment(w, WORD);
    return w;
}

static LLVMValueRef word_of_x(hcg_emit *e, const tile *t, unsigned word, unsigned row) {
    const int64_t step = (int64_t)(word / 2) * t->form.width + row;
    const int64_t at = hcg_int8_before_words(t->form) + (2 * step + word % 2) * WORD;
    return LLVMBuildBitCast(e->b, hcg_int8_for_all(e, t->x, at, e->i32), halves_type(e), "");
}

/* sums += those of a word; of word 0: sums = those. Of a group they are at most 32 * 128 * 127. */
static void add_word(hcg_emit *e, const tile *t, const LLVMValueRef *param, unsigned word,
                     LLVMValueRef *sums) {
    LLVMValueRef w[MOST_VECTORS];
    hcg_keep_order(e);
    for (unsigned v = 0; v < t->vectors; v++)
        w[v] = word_of_panel(e, t, param, word, v);
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef x = word_of_x(e, t, word, r);
        for (unsigned v = 0; v < t->vectors; v++) {
            LLVMValueRef args[] = {x, w[v]}, *sum = &sums[r * t->vectors + v];
            LLVMValueRef two = hcg_intrinsic(e, t->with->maddwd, NULL, 0, args, 2);
            *sum = add_in_order(e, word ? *sum : NULL, two);
        }
    }
}

/* c += t s sums, in the order of all back ends of bytes. One scale after the other: beside the sums
 * there are registers for one. */
static void add_to_floats(hcg_emit *e, const tile *t, const LLVMValueRef *param,
                          const LLVMValueRef *sums) {
    const unsigned lanes = e->level->lanes, per_panel = HIR_PANEL / lanes;
    LLVMValueRef b = hcg_mul_const(e, t->group, (int64_t)hcg_group_bytes(HIR_Q8));
    b = hcg_at(e, e->i8, param[SLAB_B], b);
    for (unsigned v = 0; v < t->vectors; v++) {
        LLVMValueRef panel = hcg_mul_const(e, param[SLAB_PANEL_BYTES], v / per_panel);
        hcg_keep_order(e);
        LLVMValueRef scale =
            hcg_quant_scale(e, HIR_Q8, hcg_at(e, e->i8, b, panel), v % per_panel, 0);
        for (unsigned r = 0; r < t->rows; r++) {
            const int64_t of_row = hcg_int8_before_tables(t->form) + (int64_t)r * 4;
            LLVMValueRef at = hcg_mul_const(e, param[SLAB_LDC], r);
            at = hcg_at(e, e->f32, param[SLAB_C], hcg_add(e, at, hcg_i64(e, v * lanes)));
            LLVMValueRef y = LLVMBuildSIToFP(e->b, sums[r * t->vectors + v], e->vec, "");
            y = hcg_fmul(e, y, hcg_int8_for_all(e, t->x, of_row, e->f32));
            hcg_store(e, at, hcg_fma(e, y, scale, hcg_load(e, HIR_F32, at, NULL)), NULL);
        }
    }
}

/* tile(x, widened, b, panel_bytes, groups, c, ldc): c[rows][panels * 16] += one slab times panels;
 * b: the panels, for their scales */
static hcg_shared tile_function(hcg_emit *e, const void *of, unsigned rows, unsigned panels) {
    LLVMTypeRef params[SLAB_PARAMS] = {e->ptr, e->ptr, e->ptr, e->i64, e->i64, e->ptr, e->i64};
    tile t = *(const tile *)of;
    hcg_shared f;
    const int64_t x_bytes = hcg_int8_slab_group(t.form);
    const char *name =
        hd_printf(e->arena, "tile_words_%ux%u_of%ld", rows, panels * HIR_PANEL, (long)x_bytes);
    if (!hcg_shared_begin(e, name, params, SLAB_PARAMS, &f)) return f;
    t.rows = rows, t.panels = panels, t.vectors = vectors_of(e, panels);
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    hcg_loop l = hcg_loop_begin(e, zero, f.param[SLAB_GROUPS], one, "group", 0, NULL);
    t.group = l.index;
    t.x = hcg_at(e, e->i8, f.param[SLAB_X], hcg_mul_const(e, l.index, x_bytes));
    LLVMValueRef sums[HCG_INT8_ROWS * MOST_VECTORS];
    for (unsigned word = 0; word < 2 * STEPS; word++)
        add_word(e, &t, f.param, word, sums);
    add_to_floats(e, &t, f.param, sums);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &f);
    return f;
}

/* ---- blocks ---------------------------------------------------------------------------------- */
enum {
    GEMM_X,
    GEMM_ROWS,
    GEMM_GROUPS,
    GEMM_B,
    GEMM_PANELS,
    GEMM_C,
    GEMM_LDC,
    GEMM_WIDENED,
    GEMM_NEXT,
    GEMM_TOUCHED,
    GEMM_LD_TOUCHED = GEMM_TOUCHED + HCG_TOUCHED,
    GEMM_PARAMS
};

/* Some groups of the panels of a tile. */
typedef struct block {
    LLVMValueRef panel, panels, panel_bytes;
    LLVMValueRef group, groups, last; /* last: are these the last groups? */
    LLVMValueRef b, next, c;          /* the first group; what is read next; sums of row 0 */
} block;

static void clear(hcg_emit *e, const LLVMValueRef *g, const block *b) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), rows = g[GEMM_ROWS];
    rows = hcg_divide_up(e, rows, hcg_i64(e, HCG_INT8_ROWS));
    rows = hcg_mul_const(e, rows, HCG_INT8_ROWS); /* as tiles write them */
    hcg_loop l = hcg_loop_begin(e, zero, rows, one, "clear", 0, NULL);
    LLVMValueRef row = hcg_at(e, e->f32, b->c, hcg_mul(e, l.index, g[GEMM_LDC]));
    LLVMValueRef columns = hcg_mul_const(e, b->panels, HIR_PANEL);
    LLVMValueRef step = hcg_i64(e, e->level->lanes);
    hcg_loop lc = hcg_loop_begin(e, zero, columns, step, "column", 0, NULL);
    hcg_store(e, hcg_at(e, e->f32, row, lc.index), hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &lc, NULL);
    hcg_loop_end(e, &l, NULL);
}

/* Prefetches a slab's share of the block that is read next, which has as many groups or less. */
static void prefetch_share(hcg_emit *e, const block *b, LLVMValueRef slab, LLVMValueRef slabs) {
    LLVMValueRef bytes = hcg_mul_const(e, b->groups, (int64_t)hcg_group_bytes(HIR_Q8));
    LLVMValueRef share = hcg_divide_up(e, bytes, slabs), line = hcg_i64(e, e->level->machine.line);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), share, line, "ahead", 0, NULL);
    LLVMValueRef at = hcg_add(e, hcg_mul(e, slab, share), l.index);
    for (unsigned p = 0; p < hcg_int8_panels(e); p++) {
        LLVMValueRef panel = hcg_at(e, e->i8, b->next, hcg_mul_const(e, b->panel_bytes, p));
        hcg_prefetch_l2(e, hcg_at(e, e->i8, panel, at), 0);
    }
    hcg_loop_end(e, &l, NULL);
}

static void widen_block(hcg_emit *e, const LLVMValueRef *g, const block *b) {
    LLVMValueRef args[] = {b->b, b->panel_bytes, b->groups, g[GEMM_WIDENED]};
    const unsigned most = hcg_int8_panels(e);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "widened");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, b->panels, done, most);
    for (unsigned p = 1; p <= most; p++) {
        LLVMBasicBlockRef here = LLVMAppendBasicBlockInContext(e->cx, e->fn, "widen");
        LLVMAddCase(choice, hcg_i64(e, p), here);
        LLVMPositionBuilderAtEnd(e->b, here);
        hcg_shared f = widen_function(e, p);
        hcg_shared_call(e, &f, args, 4);
        LLVMBuildBr(e->b, done);
    }
    LLVMPositionBuilderAtEnd(e->b, done);
}

static void multiply_block(hcg_emit *e, const LLVMValueRef *g, const tile *t, const block *b) {
    const int64_t x_bytes = hcg_int8_slab_group(t->form);
    LLVMValueRef height = hcg_i64(e, HCG_INT8_ROWS), zero = hcg_i64(e, 0);
    LLVMValueRef slabs = hcg_divide_up(e, g[GEMM_ROWS], height);
    hcg_loop l = hcg_loop_begin(e, zero, slabs, hcg_i64(e, 1), "slab", 0, NULL);
    LLVMValueRef row = hcg_mul(e, l.index, height), rows = hcg_sub(e, g[GEMM_ROWS], row);
    prefetch_share(e, b, l.index, slabs);
    LLVMValueRef touched = LLVMBuildSelect(e->b, b->last, rows, zero, "");
    hcg_int8_prefetch_touched(e, g + GEMM_TOUCHED, row, touched, b->panel);
    LLVMValueRef x = hcg_add(e, hcg_mul(e, l.index, g[GEMM_GROUPS]), b->group);
    LLVMValueRef args[SLAB_PARAMS] = {
        hcg_at(e, e->i8, g[GEMM_X], hcg_mul_const(e, x, x_bytes)),
        g[GEMM_WIDENED],
        b->b,
        b->panel_bytes,
        b->groups,
        hcg_at(e, e->f32, b->c, hcg_mul(e, row, g[GEMM_LDC])),
        g[GEMM_LDC],
    };
    hcg_int8_dispatch(e, tile_function, t, rows, b->panels, args, SLAB_PARAMS);
    hcg_loop_end(e, &l, NULL);
}

/* All groups of the panels of a tile. next: the panels of the next tile. */
static void multiply_panels(hcg_emit *e, const LLVMValueRef *g, const tile *t, block b,
                            LLVMValueRef first, LLVMValueRef next) {
    const int64_t group_bytes = (int64_t)hcg_group_bytes(HIR_Q8);
    const tile_split parts = tile_divide(e, g[GEMM_GROUPS], most_groups(e));
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    clear(e, g, &b);
    hcg_loop l = hcg_loop_begin(e, zero, parts.count, one, "groups", 0, NULL);
    b.group = tile_split_start(e, &parts, l.index), b.groups = tile_split_size(e, &parts, l.index);
    b.last = LLVMBuildICmp(e->b, LLVMIntEQ, hcg_add(e, l.index, one), parts.count, "last");
    b.b = hcg_at(e, e->i8, first, hcg_mul_const(e, b.group, group_bytes));
    b.next = hcg_at(e, e->i8, b.b, hcg_mul_const(e, b.groups, group_bytes));
    b.next = LLVMBuildSelect(e->b, b.last, next, b.next, "");
    widen_block(e, g, &b);
    multiply_block(e, g, t, &b);
    hcg_loop_end(e, &l, NULL);
}

/* gemm(x, rows, groups, b, panels, c, ldc, widened, next, touched.., ld_touched) */
static hcg_shared gemm_function(hcg_emit *e, const tile *t) {
    LLVMTypeRef params[GEMM_PARAMS];
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_WIDENED] = params[GEMM_NEXT] =
        e->ptr;
    for (int i = 0; i < HCG_TOUCHED; i++)
        params[GEMM_TOUCHED + i] = e->ptr;
    hcg_shared f;
    const char *name = hd_printf(e->arena, "gemm_words_of%ld", (long)hcg_int8_slab_group(t->form));
    if (!hcg_shared_begin(e, name, params, GEMM_PARAMS, &f)) return f;
    const LLVMValueRef *g = f.param;
    LLVMValueRef most = hcg_i64(e, hcg_int8_panels(e));
    block b = {.panel_bytes = hcg_mul_const(e, g[GEMM_GROUPS], (int64_t)hcg_group_bytes(HIR_Q8))};
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), g[GEMM_PANELS], most, "panel", 0, NULL);
    LLVMValueRef end = hcg_add(e, l.index, most);
    b.panel = l.index, b.panels = hcg_smaller(e, hcg_sub(e, g[GEMM_PANELS], l.index), most);
    b.c = hcg_at(e, e->f32, g[GEMM_C], hcg_mul_const(e, l.index, HIR_PANEL));
    LLVMValueRef first = hcg_at(e, e->i8, g[GEMM_B], hcg_mul(e, l.index, b.panel_bytes));
    LLVMValueRef next = hcg_at(e, e->i8, g[GEMM_B], hcg_mul(e, end, b.panel_bytes));
    LLVMValueRef more = LLVMBuildICmp(e->b, LLVMIntSLT, end, g[GEMM_PANELS], "");
    next = LLVMBuildSelect(e->b, more, next, g[GEMM_NEXT], "");
    multiply_panels(e, g, t, b, first, next);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &f);
    return f;
}

void hcg_int8_words_gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b, hcg_int8_form f) {
    const tile t = {.with = p->backend->instructions, .form = f};
    hcg_shared gemm = gemm_function(e, &t);
    LLVMValueRef after = hcg_mul_const(e, b->n, hcg_panel_bytes(b->dtype, p->k));
    LLVMValueRef args[GEMM_PARAMS] = {p->x_workspace,
                                      p->n_rows,
                                      hcg_i64(e, hcg_groups(p->k)),
                                      b->w,
                                      b->n,
                                      b->sums,
                                      b->ld,
                                      p->panel_workspace,
                                      b->next ? b->next : hcg_at(e, e->i8, b->w, after)};
    for (int i = 0; i < HCG_TOUCHED; i++)
        args[GEMM_TOUCHED + i] = b->touched[i] ? b->touched[i] : LLVMConstNull(e->ptr);
    args[GEMM_LD_TOUCHED] = b->ld_touched ? b->ld_touched : hcg_i64(e, 0);
    hcg_shared_call(e, &gemm, args, GEMM_PARAMS);
}
