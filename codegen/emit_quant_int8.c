/* Contractions of bytes (emit_quant.h): rows of x rounded group by group, register tiles of dot
 * products of four bytes, and the same with one row.
 *
 * A tile keeps sums of integers for a group, and sums of floats for all groups:
 *
 *     i[r][n] = -128 sum p  (q8)  or 0,   i += q p over the group,   f += s t i  (+ m t sum p)
 *
 * q8 stands in memory with 128 added, as the instruction multiplies unsigned by signed bytes; the
 * start of i takes that away again. Sums of integers are exact: 32 * 255 * 127 < 2^21.
 */
#include "codegen/emit_math.h"
#include "codegen/emit_quant.h"
#include "codegen/matrix.h"
#include "codegen/quant.h"

enum {
    WORD = 4,
    STEPS = HIR_GROUP / WORD, /* of a group */
    ROWS = 6,                 /* of a tile: ROWS * PANELS sums of either sort fit 32 registers */
    PANELS = 2,
    CHAINS = 4, /* independent sums that hide the latency of a dot product */
};
static const unsigned heights[] = {6, 4, 2, 1}; /* of tiles, for last rows */
enum { HEIGHTS = sizeof heights / sizeof *heights };

bool hcg_quant_int8(const hcg_emit *e) {
    return !(e->p->options.exact & HCG_DOTS_INT8) && e->level->lanes == HIR_PANEL &&
           hcg_has_feature(e->level, "avx512vnni");
}

unsigned hcg_int8_width(const hcg_emit *e, uint64_t rows) {
    (void)e;
    return rows == 1 ? 1 : ROWS;
}

/* t, t sum p, -128 sum p; then the bytes */
uint64_t hcg_int8_group_bytes(unsigned width) {
    return width * (3 * 4 + (uint64_t)HIR_GROUP);
}

static LLVMValueRef add(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWAdd(e->b, a, b, "");
}

static LLVMValueRef scaled(hcg_emit *e, LLVMValueRef a, uint64_t n) {
    return LLVMBuildNSWMul(e->b, a, hcg_i64(e, (int64_t)n), "");
}

static LLVMValueRef bytes_at(hcg_emit *e, LLVMValueRef p, int64_t bytes) {
    return hcg_at(e, e->i8, p, hcg_i64(e, bytes));
}

/* ---- x ----------------------------------------------------------------------------------------
 */
static void store4(hcg_emit *e, LLVMValueRef v, LLVMValueRef p) {
    LLVMSetAlignment(LLVMBuildStore(e->b, v, p), 4);
}

/* y to the nearest integer, |y| < 2^22: adding 1.5 2^23 leaves it in the low bits. */
static LLVMValueRef nearest(hcg_emit *e, LLVMValueRef y) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef shifted = LLVMBuildFAdd(e->b, y, hcg_splat(e, 0x1.8p23), "");
    shifted = LLVMBuildBitCast(e->b, shifted, ints, "");
    return LLVMBuildSub(e->b, shifted, hcg_int_like(ints, 0x4b400000), "");
}

/* Largest |x|, NaN if there is one. */
static LLVMValueRef largest(hcg_emit *e, const LLVMValueRef *x, unsigned n) {
    LLVMValueRef most = hcg_abs(e, x[0]);
    for (unsigned i = 1; i < n; i++)
        most = hcg_max(e, most, hcg_abs(e, x[i]));
    return hcg_max_lanes(e, most);
}

/* One group of one row: x of n elements (more than a group: whole) to `out`, the place of its row.
 */
static void take_group(hcg_emit *e, unsigned width, LLVMValueRef x, LLVMValueRef n,
                       LLVMValueRef out) {
    unsigned lanes = e->level->lanes, parts = HIR_GROUP / lanes;
    LLVMValueRef v[HIR_GROUP], sum = NULL;
    for (unsigned i = 0; i < parts; i++) {
        LLVMValueRef left = LLVMBuildNSWSub(e->b, n, hcg_i64(e, i * lanes), "");
        v[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, hcg_i64(e, i * lanes)), left);
    }
    LLVMValueRef most = largest(e, v, parts), zero = LLVMConstReal(e->f32, 0);
    /* below, the inverse would not be finite; NaN is not below */
    LLVMValueRef small = LLVMBuildFCmp(e->b, LLVMRealOLT, most, LLVMConstReal(e->f32, 1e-30), "");
    LLVMValueRef t = LLVMBuildFMul(e->b, most, LLVMConstReal(e->f32, 1.0 / 127), "");
    LLVMValueRef inverse = LLVMBuildFDiv(e->b, LLVMConstReal(e->f32, 127), most, "");
    t = LLVMBuildSelect(e->b, small, zero, t, "t");
    inverse = hcg_splat_value(e, LLVMBuildSelect(e->b, small, zero, inverse, ""));
    for (unsigned i = 0; i < parts; i++) {
        LLVMValueRef p = nearest(e, LLVMBuildFMul(e->b, v[i], inverse, ""));
        sum = sum ? LLVMBuildAdd(e->b, sum, p, "") : p;
        p = LLVMBuildTrunc(e->b, p, LLVMVectorType(e->i8, lanes), "");
        p = LLVMBuildBitCast(e->b, p, LLVMVectorType(e->i32, lanes / WORD), "");
        for (unsigned j = 0; j < lanes / WORD; j++) {
            int64_t at = (3 + i * lanes / WORD + j) * (int64_t)width * 4;
            LLVMValueRef lane = LLVMConstInt(e->i32, j, false);
            store4(e, LLVMBuildExtractElement(e->b, p, lane, ""), bytes_at(e, out, at));
        }
    }
    LLVMTypeRef ints = LLVMTypeOf(sum);
    sum = hcg_intrinsic(e, "llvm.vector.reduce.add", &ints, 1, &sum, 1);
    LLVMValueRef of_x = LLVMBuildFMul(e->b, LLVMBuildSIToFP(e->b, sum, e->f32, ""), t, "");
    LLVMValueRef start = LLVMBuildNSWMul(e->b, sum, LLVMConstInt(e->i32, (uint64_t)-128, true), "");
    store4(e, t, out);
    store4(e, of_x, bytes_at(e, out, (int64_t)width * 4));
    store4(e, start, bytes_at(e, out, (int64_t)width * 8));
}

/* take_W(x, ldx, rows, k, out); rows missing in the last slab repeat the last row */
static hcg_shared take_function(hcg_emit *e, unsigned width) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, hd_printf(e->arena, "take_%u", width), params, 5, &s)) return s;
    LLVMValueRef x = s.param[0], ldx = s.param[1], rows = s.param[2], k = s.param[3];
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1);
    LLVMValueRef last = LLVMBuildNSWSub(e->b, rows, one, "last");
    LLVMValueRef groups =
        LLVMBuildUDiv(e->b, add(e, k, hcg_i64(e, HIR_GROUP - 1)), hcg_i64(e, HIR_GROUP), "");
    LLVMValueRef slab_bytes = scaled(e, groups, hcg_int8_group_bytes(width));
    LLVMValueRef slabs =
        LLVMBuildUDiv(e->b, add(e, rows, hcg_i64(e, width - 1)), hcg_i64(e, width), "");
    hcg_loop lr = hcg_loop_begin(e, zero, scaled(e, slabs, width), one, "row", 0, NULL);
    LLVMValueRef in = LLVMBuildICmp(e->b, LLVMIntSLT, lr.index, last, "");
    LLVMValueRef row = LLVMBuildSelect(e->b, in, lr.index, last, "");
    LLVMValueRef slab = LLVMBuildUDiv(e->b, lr.index, hcg_i64(e, width), "");
    LLVMValueRef within = LLVMBuildURem(e->b, lr.index, hcg_i64(e, width), "");
    LLVMValueRef out = add(e, LLVMBuildNSWMul(e->b, slab, slab_bytes, ""), scaled(e, within, 4));
    out = hcg_at(e, e->i8, s.param[4], out);
    x = hcg_at(e, e->f32, x, LLVMBuildNSWMul(e->b, row, ldx, ""));
    hcg_loop lg = hcg_loop_begin(e, zero, groups, one, "group", 0, NULL);
    LLVMValueRef at = scaled(e, lg.index, HIR_GROUP);
    take_group(e, width, hcg_at(e, e->f32, x, at), LLVMBuildNSWSub(e->b, k, at, ""),
               hcg_at(e, e->i8, out, scaled(e, lg.index, hcg_int8_group_bytes(width))));
    hcg_loop_end(e, &lg, NULL);
    hcg_loop_end(e, &lr, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_int8_take(hcg_emit *e, const hcg_quant_x *q) {
    hcg_shared f = take_function(e, q->width);
    LLVMValueRef args[] = {q->x, q->ldx, q->rows, hcg_i64(e, q->k), q->packed};
    hcg_shared_call(e, &f, args, 5);
}

/* ---- a tile ------------------------------------------------------------------------------------
 */
typedef struct tile {
    hir_dtype dtype;
    unsigned width, rows, panels;  /* of the slab; of this variant */
    unsigned chains;               /* sums of integers for each row and panel */
    LLVMValueRef x, group[PANELS]; /* at this group */
    LLVMValueRef ints[ROWS * PANELS * CHAINS], floats[ROWS * PANELS];
} tile;

/* One of the slab's tables of 4 bytes a row, for all lanes. */
static LLVMValueRef of_row(hcg_emit *e, const tile *t, unsigned table, unsigned row,
                           LLVMTypeRef type) {
    int64_t at = ((int64_t)table * t->width + row) * 4;
    LLVMValueRef v = LLVMBuildLoad2(e->b, type, bytes_at(e, t->x, at), "");
    LLVMSetAlignment(v, 4);
    LLVMTypeRef wide = LLVMVectorType(type, e->level->lanes);
    LLVMValueRef one =
        LLVMBuildInsertElement(e->b, LLVMGetPoison(wide), v, LLVMConstInt(e->i32, 0, false), "");
    LLVMTypeRef mask = LLVMVectorType(e->i32, e->level->lanes);
    return LLVMBuildShuffleVector(e->b, one, LLVMGetPoison(wide), LLVMConstNull(mask), "");
}

static LLVMValueRef dot(hcg_emit *e, LLVMValueRef sum, LLVMValueRef q, LLVMValueRef p) {
    LLVMValueRef args[] = {sum, q, p};
    return hcg_intrinsic(e, "llvm.x86.avx512.vpdpbusd.512", NULL, 0, args, 3);
}

/* The four bytes of each row that step `s` multiplies. */
static LLVMValueRef step_words(hcg_emit *e, const tile *t, unsigned panel, unsigned s) {
    if (t->dtype == HIR_Q8) return hcg_quant_block(e, t->dtype, t->group[panel], s, 0);
    LLVMValueRef words = hcg_quant_block(e, t->dtype, t->group[panel], s / 2, 0);
    LLVMTypeRef type = LLVMTypeOf(words);
    if (s % 2) words = LLVMBuildLShr(e->b, words, hcg_int_like(type, 4), "");
    return LLVMBuildAnd(e->b, words, hcg_int_like(type, 0x0f0f0f0f), "");
}

static void sum_integers(hcg_emit *e, tile *t) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    unsigned n = t->rows * t->panels;
    for (unsigned i = 0; i < n * t->chains; i++)
        t->ints[i] = t->dtype == HIR_Q8 && i < n ? of_row(e, t, 2, i / t->panels, e->i32)
                                                 : LLVMConstNull(ints);
    for (unsigned s = 0; s < STEPS; s++) {
        LLVMValueRef q[PANELS];
        for (unsigned p = 0; p < t->panels; p++)
            q[p] = step_words(e, t, p, s);
        for (unsigned r = 0; r < t->rows; r++) {
            LLVMValueRef x = of_row(e, t, 3 + s, r, e->i32);
            for (unsigned p = 0; p < t->panels; p++) {
                LLVMValueRef *sum = &t->ints[s % t->chains * n + r * t->panels + p];
                *sum = dot(e, *sum, q[p], x);
            }
        }
    }
    for (unsigned half = t->chains / 2; half; half /= 2)
        for (unsigned i = 0; i < half * n; i++)
            t->ints[i] = LLVMBuildAdd(e->b, t->ints[i], t->ints[i + half * n], "");
}

static void add_to_floats(hcg_emit *e, tile *t) {
    LLVMValueRef scale[PANELS], least[PANELS];
    for (unsigned p = 0; p < t->panels; p++) {
        scale[p] = hcg_quant_scale(e, t->group[p], 0);
        least[p] = t->dtype == HIR_Q4 ? hcg_quant_least(e, t->group[p], 0) : NULL;
    }
    for (unsigned r = 0; r < t->rows; r++) {
        LLVMValueRef of_x = t->dtype == HIR_Q4 ? of_row(e, t, 1, r, e->f32) : NULL;
        LLVMValueRef step = of_row(e, t, 0, r, e->f32);
        for (unsigned p = 0; p < t->panels; p++) {
            unsigned i = r * t->panels + p;
            LLVMValueRef y = LLVMBuildSIToFP(e->b, t->ints[i], e->vec, "");
            y = LLVMBuildFMul(e->b, y, step, "");
            t->floats[i] = hcg_fma(e, y, scale[p], t->floats[i]);
            if (of_x) t->floats[i] = hcg_fma(e, of_x, least[p], t->floats[i]);
        }
    }
}

/* tile(x, b, panel_bytes, groups, c, ldc): c[rows][panels * 16] = one slab times panels */
static hcg_shared tile_function(hcg_emit *e, hir_dtype dtype, unsigned width, unsigned rows,
                                unsigned panels) {
    LLVMTypeRef params[] = {e->ptr, e->ptr, e->i64, e->i64, e->ptr, e->i64};
    const char *name = hd_printf(e->arena, "dots_%s_%u_%ux%u", hir_dtype_name(dtype), width, rows,
                                 panels * HIR_PANEL);
    hcg_shared s;
    if (!hcg_shared_begin(e, name, params, 6, &s)) return s;
    unsigned n = rows * panels;
    tile t = {.dtype = dtype, .width = width, .rows = rows, .panels = panels};
    t.chains = n >= CHAINS ? 1 : CHAINS / n;
    for (unsigned i = 0; i < n; i++)
        t.floats[i] = LLVMConstNull(e->vec);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[3], hcg_i64(e, 1), "group", n, t.floats);
    t.x = hcg_at(e, e->i8, s.param[0], scaled(e, l.index, hcg_int8_group_bytes(width)));
    LLVMValueRef group = hcg_at(e, e->i8, s.param[1], scaled(e, l.index, hcg_group_bytes(dtype)));
    for (unsigned p = 0; p < panels; p++) {
        t.group[p] = hcg_at(e, e->i8, group, scaled(e, s.param[2], p));
        hcg_quant_fetch(e, dtype, t.group[p]);
    }
    for (unsigned i = 0; i < n; i++)
        t.floats[i] = l.carried[i];
    sum_integers(e, &t);
    add_to_floats(e, &t);
    hcg_loop_end(e, &l, t.floats);
    for (unsigned i = 0; i < n; i++) {
        LLVMValueRef at = scaled(e, s.param[5], i / panels);
        at = add(e, at, hcg_i64(e, (int64_t)(i % panels) * HIR_PANEL));
        hcg_store(e, hcg_at(e, e->f32, s.param[4], at), l.carried[i], NULL);
    }
    hcg_shared_end(e, &s);
    return s;
}

/* ---- blocks ------------------------------------------------------------------------------------
 */
static LLVMValueRef smaller(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, LLVMBuildICmp(e->b, LLVMIntSLT, a, b, ""), a, b, "");
}

/* The smallest tile that holds `rows` <= ROWS rows and `panels` <= PANELS panels. */
static void dispatch(hcg_emit *e, hir_dtype dtype, LLVMValueRef rows, LLVMValueRef panels,
                     const LLVMValueRef args[6]) {
    LLVMValueRef height = hcg_i64(e, heights[0]);
    for (unsigned i = 1; i < HEIGHTS; i++) {
        LLVMValueRef holds = LLVMBuildICmp(e->b, LLVMIntSLE, rows, hcg_i64(e, heights[i]), "");
        height = LLVMBuildSelect(e->b, holds, hcg_i64(e, heights[i]), height, "");
    }
    LLVMValueRef key = add(e, scaled(e, height, PANELS + 1), panels);
    LLVMBasicBlockRef done = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tiled");
    LLVMValueRef choice = LLVMBuildSwitch(e->b, key, done, HEIGHTS * PANELS);
    for (unsigned i = 0; i < HEIGHTS; i++)
        for (unsigned p = 1; p <= PANELS; p++) {
            LLVMBasicBlockRef block = LLVMAppendBasicBlockInContext(e->cx, e->fn, "tile");
            LLVMAddCase(choice, hcg_i64(e, heights[i] * (PANELS + 1) + p), block);
            LLVMPositionBuilderAtEnd(e->b, block);
            hcg_shared f = tile_function(e, dtype, ROWS, heights[i], p);
            hcg_shared_call(e, &f, args, 6);
            LLVMBuildBr(e->b, done);
        }
    LLVMPositionBuilderAtEnd(e->b, done);
}

/* gemm(x, rows, groups, b, panels, c, ldc): a pair of panels stays in the second level cache while
 * all slabs pass */
static hcg_shared gemm_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr, e->i64, e->ptr, e->i64};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "dots_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 7, &s)) return s;
    LLVMValueRef x = s.param[0], rows = s.param[1], groups = s.param[2], b = s.param[3];
    LLVMValueRef panels = s.param[4], c = s.param[5], ldc = s.param[6], zero = hcg_i64(e, 0);
    LLVMValueRef panel_bytes = scaled(e, groups, hcg_group_bytes(dtype));
    LLVMValueRef row_bytes = scaled(e, groups, hcg_int8_group_bytes(1));
    hcg_loop lp = hcg_loop_begin(e, zero, panels, hcg_i64(e, PANELS), "panel", 0, NULL);
    LLVMValueRef wide = LLVMBuildNSWSub(e->b, panels, lp.index, "");
    wide = smaller(e, wide, hcg_i64(e, PANELS));
    LLVMValueRef bp = hcg_at(e, e->i8, b, LLVMBuildNSWMul(e->b, lp.index, panel_bytes, ""));
    hcg_loop lr = hcg_loop_begin(e, zero, rows, hcg_i64(e, ROWS), "row", 0, NULL);
    LLVMValueRef high = LLVMBuildNSWSub(e->b, rows, lr.index, "");
    LLVMValueRef at = LLVMBuildNSWMul(e->b, lr.index, ldc, "");
    at = add(e, at, scaled(e, lp.index, HIR_PANEL));
    LLVMValueRef xr = hcg_at(e, e->i8, x, LLVMBuildNSWMul(e->b, lr.index, row_bytes, ""));
    LLVMValueRef args[] = {xr, bp, panel_bytes, groups, hcg_at(e, e->f32, c, at), ldc};
    dispatch(e, dtype, high, wide, args);
    hcg_loop_end(e, &lr, NULL);
    hcg_loop_end(e, &lp, NULL);
    hcg_shared_end(e, &s);
    return s;
}

static LLVMValueRef groups_of(hcg_emit *e, const hcg_quant_x *q) {
    return hcg_i64(e, (q->k + HIR_GROUP - 1) / HIR_GROUP);
}

void hcg_int8_gemm(hcg_emit *e, const hcg_quant_x *q, hir_dtype dtype, LLVMValueRef b,
                   LLVMValueRef panels, LLVMValueRef c, LLVMValueRef ldc) {
    hcg_shared f = gemm_function(e, dtype);
    LLVMValueRef args[] = {q->packed, q->rows, groups_of(e, q), b, panels, c, ldc};
    hcg_shared_call(e, &f, args, 7);
}

/* One panel after the other: a stream that is read once. */
void hcg_int8_gemv(hcg_emit *e, const hcg_quant_x *q, hir_dtype dtype, LLVMValueRef b,
                   LLVMValueRef panels, LLVMValueRef out) {
    LLVMValueRef panel_bytes = hcg_i64(e, hcg_panel_bytes(dtype, q->k));
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), panels, hcg_i64(e, 1), "panel", 0, NULL);
    LLVMValueRef bp = hcg_at(e, e->i8, b, LLVMBuildNSWMul(e->b, l.index, panel_bytes, ""));
    LLVMValueRef at = hcg_at(e, e->f32, out, scaled(e, l.index, HIR_PANEL));
    LLVMValueRef args[] = {q->packed, bp, panel_bytes, groups_of(e, q), at, hcg_i64(e, HIR_PANEL)};
    hcg_shared f = tile_function(e, dtype, 1, 1, 1);
    hcg_shared_call(e, &f, args, 6);
    hcg_loop_end(e, &l, NULL);
}
