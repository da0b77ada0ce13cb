/* The back end of a matrix unit for q8, q4 and mxfp4 weights, for many tokens: the numbers of
 * int8/dots.c, by products of tiles of bytes (amx/tiles.h).
 *
 * A tile has one group along K: TDPBSSD gives the 16 x 16 exact sums of integers of a group, which
 * go through memory to vectors,
 *
 *     f += s (t i)    and, q4,    f += (t sum p) m
 *
 * in the order and with the roundings of int8/group.c: the same bits. The sums f of a tile stay in
 * registers over all groups. Two groups are multiplied while the two before them are added.
 *
 * Weights of a panel are brought into signed bytes, and their factors to f32, once for a block of
 * rows; there each group is
 *
 *     8 lines of 64 bytes | s[16] | m[16]      f32; m for q4 only
 *
 * mxfp4: the bytes are twice the numbers, -12 .. 12, and s is halved (emit/packed.h). nvfp4, whose
 * scales are for 16 elements, would fill a quarter of a tile: it goes by bf16 (amx/bf16.c).
 *
 * A tile takes as long for one row as for 16. Counted in cycles for a group of 16 outputs: about 45
 * for the unit (bytes and factors made and stored once, 16 rows of integers through memory), 5.5
 * for each row and 8 for vectors of VNNI, whose sums are the same bits. So a few rows, as experts
 * have that few tokens choose, go by vectors: fewer than the machine model's `unit_rows`.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/shared.h"
#include "codegen/matmul/backends/amx/small_m.h"
#include "codegen/matmul/backends/amx/tiles.h"
#include "codegen/matmul/backends/int8/group.h"
#include "codegen/matmul/matrix.h"
#include "codegen/program/packed.h"

extern const hcg_backend hcg_int8_vnni_512;

enum {
    WORD = 4,
    LINES = HIR_GROUP / WORD, /* lines of a tile of weights */
    FACTORS = LINES * HCG_AMX_LINE,
    MOST_ROWS = 256, /* of a block */
    /* bytes of a group of 16 rows of x: t, t sum p, then the bytes */
    X_TABLE = HCG_AMX_LINES * 4,
    X_BYTES = 2 * X_TABLE,
    X_GROUP = X_BYTES + HCG_AMX_LINES * HIR_GROUP,
    AT_ONCE = 2, /* tiles of integers that are being multiplied, */
    SLOTS = 4,   /* and tiles that are in memory */
};

/* Bytes of a group of a panel in workspace. */
static int64_t group_bytes(hir_dtype dtype) {
    return FACTORS + (dtype == HIR_Q4 ? 2 : 1) * HIR_PANEL * 4;
}

/* ---- x --------------------------------------------------------------------------------------- */
/* amx_x_int8(x, ldx, rows, k, out): [row / 16][group]. Rows beyond the last one are left as they
 * are: the sums made of them are never read. */
static hcg_shared prepare_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "amx_x_int8", params, 5, &s)) return s;
    LLVMValueRef k = s.param[3], zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef groups = hcg_divide_up(e, k, hcg_i64(e, HIR_GROUP));
    hcg_loop rows = hcg_loop_begin(e, zero, s.param[2], one, "row", 0, NULL);
    LLVMValueRef x = hcg_at(e, e->f32, s.param[0], hcg_mul(e, rows.index, s.param[1]));
    LLVMValueRef tile = LLVMBuildUDiv(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef line = LLVMBuildURem(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef out = hcg_mul(e, tile, hcg_mul_const(e, groups, X_GROUP));
    out = hcg_at(e, e->i8, s.param[4], out);
    hcg_loop l = hcg_loop_begin(e, zero, groups, one, "group", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, l.index, HIR_GROUP);
    const hcg_int8_x g = hcg_int8_round(e, hcg_at(e, e->f32, x, at), hcg_sub(e, k, at), 0);
    LLVMValueRef group = hcg_at(e, e->i8, out, hcg_mul_const(e, l.index, X_GROUP));
    LLVMValueRef table = hcg_at(e, e->f32, group, line);
    LLVMSetAlignment(LLVMBuildStore(e->b, g.step, table), 4);
    LLVMSetAlignment(LLVMBuildStore(e->b, g.of_x, hcg_at_byte(e, table, X_TABLE)), 4);
    LLVMValueRef to = hcg_at(e, e->i8, group, hcg_mul_const(e, line, HIR_GROUP));
    for (unsigned i = 0; i < HIR_GROUP / e->level->lanes; i++) {
        LLVMValueRef place = hcg_at_byte(e, to, X_BYTES + i * e->level->lanes);
        LLVMTypeRef bytes = LLVMVectorType(e->i8, e->level->lanes);
        LLVMValueRef p = LLVMBuildTrunc(e->b, g.p[i], bytes, "");
        LLVMSetAlignment(LLVMBuildStore(e->b, p, place), e->level->lanes);
    }
    hcg_loop_end(e, &l, NULL);
    hcg_loop_end(e, &rows, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- panels ---------------------------------------------------------------------------------- */
static void store_words(hcg_emit *e, LLVMValueRef v, LLVMValueRef out, unsigned line) {
    LLVMValueRef to = hcg_at_byte(e, out, line * HCG_AMX_LINE);
    LLVMSetAlignment(LLVMBuildStore(e->b, v, to), HCG_AMX_LINE);
}

/* Twice the numbers of codes in bytes. */
static LLVMValueRef doubled_numbers(hcg_emit *e, LLVMValueRef codes) {
    LLVMTypeRef bytes = LLVMVectorType(e->i8, WORD * HIR_PANEL), type = LLVMTypeOf(codes);
    LLVMValueRef u = hcg_fp4_bytes(e, "llvm.x86.avx512.pshuf.b.512", codes);
    u = LLVMBuildBitCast(e->b, u, bytes, "");
    u = LLVMBuildSub(e->b, u, hcg_int_like(bytes, HCG_FP4_ADDED), "");
    return LLVMBuildBitCast(e->b, u, type, "");
}

/* Makes the lines of one group, as signed bytes. */
static void unpack_group(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, LLVMValueRef out) {
    for (unsigned line = 0; line < LINES; line++) {
        LLVMValueRef words = hcg_quant_block(e, dtype, group, dtype == HIR_Q8 ? line : line / 2, 0);
        LLVMTypeRef type = LLVMTypeOf(words);
        if (dtype == HIR_Q8) { /* q + 128 */
            words = LLVMBuildXor(e->b, words, hcg_int_like(type, 0x80808080), "");
        } else {
            if (line % 2) words = LLVMBuildLShr(e->b, words, hcg_int_like(type, 4), "");
            words = LLVMBuildAnd(e->b, words, hcg_int_like(type, 0x0f0f0f0f), "");
        }
        if (dtype == HIR_MXFP4) words = doubled_numbers(e, words);
        store_words(e, words, out, line);
    }
    store_words(e, hcg_quant_scale(e, dtype, group, 0, 0), out, LINES);
    if (dtype == HIR_Q4) store_words(e, hcg_quant_least(e, group, 0), out, LINES + 1);
}

/* amx_unpack(panel, groups, out) */
static hcg_shared unpack_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "amx_unpack_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 3, &s)) return s;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[1], hcg_i64(e, 1), "group", 0, NULL);
    LLVMValueRef from = hcg_mul_const(e, l.index, (int64_t)hcg_group_bytes(dtype));
    LLVMValueRef group = hcg_at(e, e->i8, s.param[0], from);
    LLVMValueRef to = hcg_mul_const(e, l.index, group_bytes(dtype));
    hcg_quant_prefetch(e, dtype, group);
    unpack_group(e, dtype, group, hcg_at(e, e->i8, s.param[2], to));
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- a tile ---------------------------------------------------------------------------------- */
enum { TILE_X, TILE_B, TILE_GROUPS, TILE_INTS, TILE_C, TILE_LDC, TILE_PARAMS };

/* The sums of integers of one group, to ints[16][16]. */
static void multiply_group(hcg_emit *e, LLVMValueRef x, LLVMValueRef b, LLVMValueRef ints,
                           unsigned i) {
    LLVMValueRef line = hcg_i64(e, HCG_AMX_LINE);
    hcg_amx_zero(e, hcg_amx_sum(0, i));
    hcg_amx_load(e, hcg_amx_x(i), hcg_at_byte(e, x, X_BYTES), hcg_i64(e, HIR_GROUP), false);
    hcg_amx_load(e, hcg_amx_w(i), b, line, false);
    hcg_amx_multiply(e, "llvm.x86.tdpbssd", hcg_amx_sum(0, i), hcg_amx_x(i), hcg_amx_w(i));
    hcg_amx_store(e, hcg_amx_sum(0, i), ints, line);
}

static LLVMValueRef of_row(hcg_emit *e, LLVMValueRef x, unsigned table, unsigned row) {
    LLVMValueRef at = hcg_at_byte(e, x, table * X_TABLE + row * 4);
    return hcg_splat_value(e, hcg_load_scalar(e, HIR_F32, at));
}

static LLVMValueRef factor(hcg_emit *e, LLVMValueRef b, unsigned line) {
    return hcg_load(e, HIR_F32, hcg_at_byte(e, b, FACTORS + line * HCG_AMX_LINE), NULL);
}

static void add_group(hcg_emit *e, hir_dtype dtype, LLVMValueRef x, LLVMValueRef b,
                      LLVMValueRef ints, LLVMValueRef *floats) {
    LLVMTypeRef words = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef scale = factor(e, b, 0), least = dtype == HIR_Q4 ? factor(e, b, 1) : NULL;
    for (unsigned row = 0; row < HCG_AMX_LINES; row++) {
        LLVMValueRef i = LLVMBuildLoad2(e->b, words, hcg_at_byte(e, ints, row * HCG_AMX_LINE), "");
        LLVMSetAlignment(i, HCG_AMX_LINE);
        LLVMValueRef y = hcg_fmul(e, LLVMBuildSIToFP(e->b, i, e->vec, ""), of_row(e, x, 0, row));
        floats[row] = hcg_fma(e, y, scale, floats[row]);
        if (least) floats[row] = hcg_fma(e, of_row(e, x, 1, row), least, floats[row]);
    }
}

typedef struct place { /* of a group */
    LLVMValueRef x, b, ints;
} place;

/* Group `group`, whose integers go to tile `slot` of workspace. */
static place place_of(hcg_emit *e, hir_dtype dtype, const LLVMValueRef *g, LLVMValueRef group,
                      LLVMValueRef slot) {
    return (place){
        hcg_at(e, e->i8, g[TILE_X], hcg_mul_const(e, group, X_GROUP)),
        hcg_at(e, e->i8, g[TILE_B], hcg_mul_const(e, group, group_bytes(dtype))),
        hcg_at(e, e->i8, g[TILE_INTS], hcg_mul_const(e, slot, HCG_AMX_TILE)),
    };
}

/* Multiplies two groups from `from` on; beyond the last group, the last one again. Their integers
 * go to one half of the workspace or the other, in turn. */
static void multiply_two(hcg_emit *e, hir_dtype dtype, const LLVMValueRef *g, LLVMValueRef from) {
    LLVMValueRef last = hcg_sub(e, g[TILE_GROUPS], hcg_i64(e, 1));
    for (unsigned i = 0; i < AT_ONCE; i++) {
        LLVMValueRef group = hcg_add(e, from, hcg_i64(e, i));
        LLVMValueRef slot = LLVMBuildAnd(e->b, group, hcg_i64(e, SLOTS - 1), "");
        const place p = place_of(e, dtype, g, hcg_smaller(e, group, last), slot);
        multiply_group(e, p.x, p.b, p.ints, i);
    }
}

/* Adds the integers of group `group`, which was multiplied before, to the sums. */
static void add_one(hcg_emit *e, hir_dtype dtype, const LLVMValueRef *g, LLVMValueRef group,
                    LLVMValueRef *floats) {
    LLVMValueRef slot = LLVMBuildAnd(e->b, group, hcg_i64(e, SLOTS - 1), "");
    const place p = place_of(e, dtype, g, group, slot);
    add_group(e, dtype, p.x, p.b, p.ints, floats);
}

/* Goes over all groups, two at a time; the next two are multiplied before these are added, since
 * the way of integers through memory is long. Then one, if there is one left. */
static void run_groups(hcg_emit *e, hir_dtype dtype, const LLVMValueRef *g, LLVMValueRef *floats) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), two = hcg_i64(e, AT_ONCE);
    multiply_two(e, dtype, g, zero);
    hcg_loop l = hcg_loop_begin(e, zero, hcg_sub(e, g[TILE_GROUPS], one), two, "groups",
                                HCG_AMX_LINES, floats);
    multiply_two(e, dtype, g, hcg_add(e, l.index, two));
    for (unsigned row = 0; row < HCG_AMX_LINES; row++)
        floats[row] = l.carried[row];
    for (unsigned i = 0; i < AT_ONCE; i++)
        add_one(e, dtype, g, hcg_add(e, l.index, hcg_i64(e, i)), floats);
    hcg_loop_end(e, &l, floats);
    hcg_loop rest = hcg_loop_begin(e, l.index, g[TILE_GROUPS], one, "odd", HCG_AMX_LINES,
                                   l.carried); /* one iteration, or none */
    for (unsigned row = 0; row < HCG_AMX_LINES; row++)
        floats[row] = rest.carried[row];
    add_one(e, dtype, g, rest.index, floats);
    hcg_loop_end(e, &rest, floats);
    for (unsigned row = 0; row < HCG_AMX_LINES; row++)
        floats[row] = rest.carried[row];
}

/* tile(x, b, groups, ints, c, ldc): c[16][16] = x b */
static hcg_shared tile_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[TILE_PARAMS] = {e->ptr, e->ptr, e->i64, e->ptr, e->ptr, e->i64};
    LLVMValueRef floats[HCG_AMX_LINES];
    hcg_shared s;
    const char *name = hd_printf(e->arena, "amx_%s_16x16", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, TILE_PARAMS, &s)) return s;
    for (unsigned row = 0; row < HCG_AMX_LINES; row++)
        floats[row] = LLVMConstNull(e->vec);
    run_groups(e, dtype, s.param, floats);
    for (unsigned row = 0; row < HCG_AMX_LINES; row++) {
        LLVMValueRef at = hcg_mul_const(e, s.param[TILE_LDC], row);
        hcg_store(e, hcg_at(e, e->f32, s.param[TILE_C], at), floats[row], NULL);
    }
    hcg_shared_end(e, &s);
    return s;
}

/* ---- all rows and some panels ---------------------------------------------------------------- */
enum {
    GEMM_X,
    GEMM_ROWS,
    GEMM_GROUPS,
    GEMM_B,
    GEMM_PANELS,
    GEMM_C,
    GEMM_LDC,
    GEMM_PANEL, /* workspace for a panel, */
    GEMM_INTS,  /* and for tiles of integers */
    GEMM_PARAMS
};

static hcg_shared gemm_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[GEMM_PARAMS];
    hcg_shared s;
    for (int i = 0; i < GEMM_PARAMS; i++)
        params[i] = e->i64;
    params[GEMM_X] = params[GEMM_B] = params[GEMM_C] = params[GEMM_PANEL] = params[GEMM_INTS] =
        e->ptr;
    const char *name = hd_printf(e->arena, "amx_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, GEMM_PARAMS, &s)) return s;
    const LLVMValueRef *g = s.param;
    LLVMValueRef zero = hcg_i64(e, 0), lines = hcg_i64(e, HCG_AMX_LINES);
    LLVMValueRef panel_bytes = hcg_mul_const(e, g[GEMM_GROUPS], (int64_t)hcg_group_bytes(dtype));
    LLVMValueRef row_bytes = hcg_mul_const(e, g[GEMM_GROUPS], X_GROUP / HCG_AMX_LINES);
    hcg_loop lp = hcg_loop_begin(e, zero, g[GEMM_PANELS], hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef b = hcg_at(e, e->i8, g[GEMM_B], hcg_mul(e, lp.index, panel_bytes));
    hcg_shared unpack = unpack_function(e, dtype);
    hcg_shared_call(e, &unpack, (LLVMValueRef[]){b, g[GEMM_GROUPS], g[GEMM_PANEL]}, 3);
    hcg_loop lr = hcg_loop_begin(e, zero, g[GEMM_ROWS], lines, "row", 0, NULL);
    LLVMValueRef c =
        hcg_add(e, hcg_mul(e, lr.index, g[GEMM_LDC]), hcg_mul_const(e, lp.index, HIR_PANEL));
    LLVMValueRef args[TILE_PARAMS] = {
        hcg_at(e, e->i8, g[GEMM_X], hcg_mul(e, lr.index, row_bytes)),
        g[GEMM_PANEL],
        g[GEMM_GROUPS],
        g[GEMM_INTS],
        hcg_at(e, e->f32, g[GEMM_C], c),
        g[GEMM_LDC],
    };
    hcg_shared tile = tile_function(e, dtype);
    hcg_shared_call(e, &tile, args, TILE_PARAMS);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

/* ---- the back end ---------------------------------------------------------------------------- */
enum { PANELS = 4 };

/* This is also a multiple of the panels that vectors compute together. */
static int64_t tile_panels(const hcg_level *level) {
    const int64_t vectors = hcg_int8_vnni_512.tile_panels(level);
    return PANELS % vectors == 0 ? PANELS : PANELS * vectors;
}

/* Prepared rows take half of the L2. */
static int64_t block_rows(const hcg_level *level, int64_t k) {
    const int64_t tile_row = hcg_groups(k) * X_GROUP;
    const int64_t rows = level->machine.l2 / 2 / tile_row * HCG_AMX_LINES;
    return rows < HCG_AMX_LINES ? HCG_AMX_LINES : rows > MOST_ROWS ? MOST_ROWS : rows;
}

static void begin(hcg_emit *e, hcg_product *p) {
    const uint64_t tiles = (p->rows + HCG_AMX_LINES - 1) / HCG_AMX_LINES;
    const uint64_t groups = (uint64_t)hcg_groups(p->k);
    p->x_workspace = hcg_scratch(e, tiles * groups * X_GROUP);
    p->panel_workspace =
        hcg_scratch(e, SLOTS * HCG_AMX_TILE + groups * (uint64_t)group_bytes(HIR_Q4));
    const uint64_t rows = e->level->machine.unit_rows;
    hcg_small_m_begin(e, p, &hcg_int8_vnni_512, rows ? rows - 1 : 0);
}

static LLVMValueRef is_few(hcg_emit *e, const hcg_product *p) {
    LLVMValueRef least = hcg_i64(e, e->level->machine.unit_rows);
    return LLVMBuildICmp(e->b, LLVMIntSLT, p->n_rows, least, "is_few");
}

static void prepare_many(hcg_emit *e, hcg_product *p) {
    hcg_shared f = prepare_function(e);
    LLVMValueRef args[] = {p->x, p->ldx, p->n_rows, p->length, p->x_workspace};
    hcg_shared_call(e, &f, args, 5);
}

static void prepare(hcg_emit *e, hcg_product *p) {
    if (p->few)
        hcg_small_m_prepare(e, p, is_few(e, p), prepare_many);
    else
        prepare_many(e, p);
}

static void gemm_many(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    hcg_shared f = gemm_function(e, b->dtype);
    LLVMValueRef args[GEMM_PARAMS] = {
        p->x_workspace,
        p->n_rows,
        hcg_divide_up(e, p->length, hcg_i64(e, HIR_GROUP)),
        b->w,
        b->n,
        b->sums,
        b->ld,
        hcg_at_byte(e, p->panel_workspace, SLOTS * HCG_AMX_TILE),
        p->panel_workspace,
    };
    hcg_amx_configure(e, HIR_GROUP);
    hcg_shared_call(e, &f, args, GEMM_PARAMS);
}

static void gemm(hcg_emit *e, const hcg_product *p, const hcg_panels *b) {
    if (p->few)
        hcg_small_m_gemm(e, p, b, is_few(e, p), gemm_many);
    else
        gemm_many(e, p, b);
}

static void end(hcg_emit *e, hcg_product *p) {
    (void)p;
    hcg_amx_release(e);
}

const hcg_backend hcg_amx_int8 = {
    .name = "amx_int8",
    .tile_panels = tile_panels,
    .block_rows = block_rows,
    .tile_rows = HCG_AMX_LINES,
    .begin = begin,
    .prepare = prepare,
    .gemm = gemm,
    .end = end,
};
