/* Sums of outer products by the matrix unit (amx/outer.h).
 *
 *     for each block of rows of y              as many as stay in the L2 together with the tiles
 *       for each block of TOKENS tokens
 *         a becomes left operands, b right ones
 *         sums += products of tiles
 *       y (+)= sums
 *
 * 16 columns of pairs of tokens, 16 pairs to a tile, are a right operand as they are packed; turned,
 * they are a left one. Pairs after the last token are zeros in both. TDPBF16PS adds the products of 32
 * tokens to a sum as amx/bf16.c says. */
#include "codegen/matmul/backends/amx/outer.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/matmul/backends/amx/products.h"

enum {
    TOKENS = 256, /* of a block */
    AHEAD = 4,    /* rows of y between a prefetch and a sum */
    ACROSS = HCG_OUTER_COLUMNS / HCG_AMX_LINES,
    LINES_OF_PANEL =
        TOKENS / 2 + 1, /* one more, so that panels do not begin in one set of the L1 */
    PANEL = LINES_OF_PANEL * HCG_AMX_LINE, /* bytes */
    SUMS = ACROSS * HCG_AMX_TILE,          /* of 16 rows of y */
};

/* Rows of a block of y: their sums and tiles, and those of b, take three quarters of the L2. */
static int64_t block_rows(const hcg_level *level) {
    const int64_t left = (int64_t)level->machine.l2 / 4 * 3 - ACROSS * PANEL;
    const int64_t tiles = left / (SUMS + PANEL);
    return (tiles < HCG_AMX_ACROSS ? HCG_AMX_ACROSS : tiles) * HCG_AMX_LINES;
}

uint64_t hcg_amx_outer_bytes(const hcg_level *level, int64_t n) {
    const int64_t all = block_rows(level), rows = n < all ? n : all;
    const uint64_t tiles = (uint64_t)(rows + HCG_AMX_LINES - 1) / HCG_AMX_LINES;
    return ACROSS * PANEL + tiles * (SUMS + PANEL);
}

enum { A, LDA, A_EACH, N, B, LDB, B_EACH, K, LIST, ROWS, Y, LDY, ADD, SPACE, PARAMS };

typedef struct outer {
    const LLVMValueRef *g; /* the function's parameters */
    bool listed;
    LLVMValueRef a, b, sums;    /* in the workspace */
    LLVMValueRef row, rows;     /* of y, in the block */
    LLVMValueRef token, tokens; /* of the block */
    LLVMValueRef steps;         /* of its tokens */
} outer;

static LLVMValueRef tiles_of(hcg_emit *e, LLVMValueRef n) {
    return hcg_divide_up(e, n, hcg_i64(e, HCG_AMX_LINES));
}

/* ---- operands -------------------------------------------------------------------------------- */
/* Zeros after the last pair up to a whole step. */
static void fill_steps(hcg_emit *e, const outer *o, LLVMValueRef panel) {
    LLVMValueRef pairs = hcg_divide_up(e, o->tokens, hcg_i64(e, 2));
    LLVMValueRef end = hcg_mul_const(e, o->steps, HCG_AMX_LINES);
    hcg_loop l = hcg_loop_begin(e, pairs, end, hcg_i64(e, 1), "no_token", 0, NULL);
    LLVMValueRef line = hcg_at(e, e->i8, panel, hcg_mul_const(e, l.index, HCG_AMX_LINE));
    hcg_store(e, line, hcg_splat(e, 0), NULL);
    hcg_loop_end(e, &l, NULL);
}

static void turn_panel(hcg_emit *e, const outer *o, LLVMValueRef panel) {
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), o->steps, hcg_i64(e, 1), "turn", 0, NULL);
    hcg_amx_turn_tile(e, hcg_at(e, e->i8, panel, hcg_mul_const(e, l.index, HCG_AMX_TILE)));
    hcg_loop_end(e, &l, NULL);
}

/* The operands of columns `first` .. first + n - 1 of a, left ones, or b. */
static void make_operands(hcg_emit *e, const outer *o, bool of_a, LLVMValueRef first,
                          LLVMValueRef n) {
    const LLVMValueRef *g = o->g + (of_a ? A : B);
    LLVMValueRef to = of_a ? o->a : o->b;
    hcg_column_copy c = {.pairs = true, .ld = g[LDA], .columns = n, .each = g[A_EACH]};
    if (!o->listed) first = hcg_add(e, first, hcg_mul(e, o->token, g[LDA]));
    c.width = HIR_PANEL, c.panel = PANEL / (int64_t)sizeof(float);
    c.x = hcg_at(e, e->f32, g[A], first);
    c.list = o->listed ? hcg_at(e, e->i32, o->g[LIST], o->token) : NULL;
    c.rows = o->tokens, c.out = to;
    hcg_pack_columns(e, &c);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), tiles_of(e, n), hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef panel = hcg_at(e, e->i8, to, hcg_mul_const(e, l.index, PANEL));
    fill_steps(e, o, panel);
    if (of_a) turn_panel(e, o, panel);
    hcg_loop_end(e, &l, NULL);
}

/* ---- products -------------------------------------------------------------------------------- */
static void multiply(hcg_emit *e, const outer *o, LLVMValueRef add) {
    LLVMValueRef panel = hcg_i64(e, PANEL), line = hcg_i64(e, HCG_AMX_LINE);
    const hcg_amx_product p = {.a_parts = 1,
                               .b_parts = 1,
                               .a = o->a,
                               .a_line = line,
                               .a_tile = panel,
                               .a_step = hcg_i64(e, HCG_AMX_TILE),
                               .a_tiles = tiles_of(e, o->rows),
                               .b = o->b,
                               .b_tile = panel,
                               .b_tiles = tiles_of(e, o->g[K]),
                               .steps = o->steps,
                               .c = o->sums,
                               .c_line = line,
                               .c_a = hcg_i64(e, SUMS),
                               .c_b = hcg_i64(e, HCG_AMX_TILE),
                               .add = add,
                               .next = o->b,
                               .ahead = hcg_i64(e, 0)};
    hcg_amx_multiply_tiles(e, &p);
}

/* y (+)= the sums of the block's rows. */
static void leave(hcg_emit *e, const outer *o) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), lanes = hcg_i64(e, HCG_AMX_LINES);
    LLVMValueRef adds = LLVMBuildICmp(e->b, LLVMIntNE, o->g[ADD], zero, "");
    hcg_loop r = hcg_loop_begin(e, zero, o->rows, one, "row", 0, NULL);
    LLVMValueRef y = hcg_at(e, e->f32, o->g[Y], hcg_mul(e, hcg_add(e, o->row, r.index), o->g[LDY]));
    LLVMValueRef at = hcg_mul_const(e, LLVMBuildUDiv(e->b, r.index, lanes, ""), SUMS);
    at = hcg_add(e, at, hcg_mul_const(e, LLVMBuildURem(e->b, r.index, lanes, ""), HCG_AMX_LINE));
    LLVMValueRef sums = hcg_at(e, e->i8, o->sums, at);
    hcg_loop l = hcg_loop_begin(e, zero, o->g[K], lanes, "column", 0, NULL);
    LLVMValueRef left = hcg_sub(e, o->g[K], l.index), to = hcg_at(e, e->f32, y, l.index);
    LLVMValueRef from = hcg_mul_const(e, l.index, HCG_AMX_TILE / HCG_AMX_LINES);
    hcg_prefetch(e, hcg_at(e, e->f32, to, hcg_mul_const(e, o->g[LDY], AHEAD)), 0);
    LLVMValueRef v = hcg_load(e, HIR_F32, hcg_at(e, e->i8, sums, from), NULL);
    LLVMValueRef sum = hcg_fadd(e, hcg_load(e, HIR_F32, to, left), v);
    hcg_store(e, to, LLVMBuildSelect(e->b, adds, sum, v, ""), left);
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &r, NULL);
}

/* amx_outer(a, lda, a_each, n, b, ldb, b_each, k, list, rows, y, ldy, add, space) */
static hcg_shared outer_function(hcg_emit *e, bool listed) {
    LLVMTypeRef params[PARAMS];
    hcg_shared s;
    for (int i = 0; i < PARAMS; i++)
        params[i] = i == A || i == B || i == LIST || i == Y || i == SPACE ? e->ptr : e->i64;
    if (!hcg_shared_begin(e, listed ? "amx_outer_of_list" : "amx_outer", params, PARAMS, &s))
        return s;
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef most = hcg_i64(e, block_rows(e->level)), block = hcg_i64(e, TOKENS);
    outer o = {.g = s.param, .listed = listed, .b = s.param[SPACE]};
    o.a = hcg_at_byte(e, o.b, ACROSS * PANEL);
    hcg_loop lr = hcg_loop_begin(e, zero, s.param[N], most, "block", 0, NULL);
    o.row = lr.index, o.rows = hcg_smaller(e, hcg_sub(e, s.param[N], lr.index), most);
    o.sums = hcg_at(e, e->i8, o.a, hcg_mul_const(e, tiles_of(e, o.rows), PANEL));
    hcg_loop lt = hcg_loop_begin(e, zero, s.param[ROWS], block, "tokens", 0, NULL);
    o.token = lt.index, o.tokens = hcg_smaller(e, hcg_sub(e, s.param[ROWS], lt.index), block);
    o.steps = hcg_divide_up(e, o.tokens, hcg_i64(e, HCG_AMX_STEP));
    LLVMValueRef first = LLVMBuildICmp(e->b, LLVMIntEQ, lt.index, zero, "");
    make_operands(e, &o, true, o.row, o.rows);
    make_operands(e, &o, false, zero, s.param[K]);
    multiply(e, &o, LLVMBuildSelect(e->b, first, zero, one, ""));
    hcg_loop_end(e, &lt, NULL);
    leave(e, &o);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_amx_outer(hcg_emit *e, const hcg_outer *o) {
    hcg_shared f = outer_function(e, o->list != NULL);
    LLVMValueRef one = hcg_i64(e, 1), none = LLVMConstNull(e->ptr);
    LLVMValueRef args[PARAMS] = {o->a,
                                 o->lda,
                                 o->list ? o->a_each : one,
                                 o->n,
                                 o->b,
                                 o->ldb,
                                 o->list ? o->b_each : one,
                                 o->k,
                                 o->list ? o->list : none,
                                 o->rows,
                                 o->y,
                                 o->ldy,
                                 o->add,
                                 o->space};
    hcg_amx_configure(e, HCG_AMX_LINE);
    hcg_shared_call(e, &f, args, PARAMS);
    hcg_amx_release(e);
}
