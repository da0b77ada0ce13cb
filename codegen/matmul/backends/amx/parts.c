/* f32 as sums of bf16 (amx/parts.h). */
#include "codegen/matmul/backends/amx/parts.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/packed.h"
#include "codegen/emit/shared.h"

/* Bits of an f32: those that bf16 has, all but the sign, those of the largest number. */
static const uint64_t UPPER_HALF = 0xffff0000, SIZE = 0x7fffffff, LARGEST = 0x7f7fffff;

_Static_assert((int)HCG_AMX_STEP == (int)HIR_GROUP, "a step of K is a group");

bool hcg_amx_makes_tiles(hir_dtype dtype) {
    return dtype != HIR_BF16;
}

unsigned hcg_amx_step_bytes(hir_dtype dtype) {
    if (hir_is_quantised(dtype)) return (unsigned)hcg_group_bytes(dtype);
    return (unsigned)hcg_panel_bytes(dtype, HCG_AMX_STEP);
}

/* ---- a part ---------------------------------------------------------------------------------- */
static LLVMTypeRef ints_like(hcg_emit *e) {
    return LLVMVectorType(e->i32, e->level->lanes);
}

static LLVMValueRef bits_of(hcg_emit *e, LLVMValueRef x) {
    return LLVMBuildBitCast(e->b, x, ints_like(e), "");
}

static LLVMValueRef masked(hcg_emit *e, LLVMValueRef bits, uint64_t mask) {
    return LLVMBuildAnd(e->b, bits, hcg_int_like(ints_like(e), mask), "");
}

/* x without its lower half. */
static LLVMValueRef truncated(hcg_emit *e, LLVMValueRef x) {
    return LLVMBuildBitCast(e->b, masked(e, bits_of(e, x), UPPER_HALF), e->vec, "");
}

/* The nearest bf16, of two equally near the larger one; the largest finite one where rounding
 * would give an infinity. */
static LLVMValueRef nearest(hcg_emit *e, LLVMValueRef x) {
    LLVMTypeRef ints = ints_like(e);
    LLVMValueRef bits = bits_of(e, x), sign = masked(e, bits, (uint64_t)SIZE + 1);
    LLVMValueRef size = masked(e, bits, SIZE);
    size = LLVMBuildAdd(e->b, size, hcg_int_like(ints, 0x8000), "");
    LLVMValueRef args[] = {size, hcg_int_like(ints, LARGEST)};
    size = hcg_intrinsic(e, "llvm.umin", &ints, 1, args, 2);
    size = LLVMBuildOr(e->b, masked(e, size, UPPER_HALF), sign, "");
    return LLVMBuildBitCast(e->b, size, e->vec, "");
}

/* x less its truncated part; of an infinity nothing is left. */
static LLVMValueRef remainder_of(hcg_emit *e, LLVMValueRef x, LLVMValueRef part) {
    LLVMValueRef all = LLVMBuildFCmp(e->b, LLVMRealOEQ, x, part, "");
    return LLVMBuildSelect(e->b, all, LLVMConstNull(e->vec), hcg_fsub(e, x, part), "");
}

void hcg_amx_split(hcg_emit *e, hcg_amx_cut cut, hir_dtype dtype, unsigned parts, LLVMValueRef x,
                   LLVMValueRef *part) {
    if (parts == 1) {
        LLVMValueRef half = dtype == HIR_BF16 ? NULL : hcg_narrow(e, HIR_BF16, x);
        part[0] = half ? hcg_widen(e, HIR_BF16, half) : x;
        return;
    }
    for (unsigned i = 0; i + 1 < parts; i++) {
        part[i] = cut == HCG_AMX_NEAREST ? nearest(e, x) : truncated(e, x);
        x = cut == HCG_AMX_UPPER ? remainder_of(e, x, part[i]) : hcg_fsub(e, x, part[i]);
    }
    part[parts - 1] = x; /* at most 8 bits are left */
}

void hcg_amx_store_line(hcg_emit *e, LLVMValueRef line, LLVMValueRef at) {
    LLVMSetAlignment(LLVMBuildStore(e->b, line, at), HCG_AMX_LINE);
}

/* ---- lines ----------------------------------------------------------------------------------- */
/* The upper halves of 32 f32, side by side. */
static LLVMValueRef line_of(hcg_emit *e, const LLVMValueRef x[2]) {
    LLVMTypeRef halves = LLVMVectorType(e->i16, HCG_AMX_STEP);
    LLVMValueRef low = LLVMBuildBitCast(e->b, x[0], halves, "");
    LLVMValueRef high = LLVMBuildBitCast(e->b, x[1], halves, ""), lane[HCG_AMX_STEP];
    for (unsigned i = 0; i < HCG_AMX_STEP; i++)
        lane[i] = LLVMConstInt(e->i32, 2 * i + 1, false);
    return LLVMBuildShuffleVector(e->b, low, high, LLVMConstVector(lane, HCG_AMX_STEP), "");
}

static LLVMValueRef rounded(hcg_emit *e, const LLVMValueRef x[2]) {
    LLVMValueRef half[2], lane[HCG_AMX_STEP];
    for (unsigned i = 0; i < 2; i++)
        half[i] = hcg_narrow(e, HIR_BF16, x[i]);
    for (unsigned i = 0; i < HCG_AMX_STEP; i++)
        lane[i] = LLVMConstInt(e->i32, i, false);
    return LLVMBuildShuffleVector(e->b, half[0], half[1], LLVMConstVector(lane, HCG_AMX_STEP), "");
}

/* Writes 32 elements of a row to their places in a tile of each part. */
static void store_row(hcg_emit *e, const hcg_amx_lines *a, const LLVMValueRef x[2],
                      LLVMValueRef out) {
    LLVMValueRef part[2][HCG_AMX_MOST_PARTS];
    if (a->parts == 1 && a->dtype != HIR_BF16) {
        hcg_amx_store_line(e, rounded(e, x), out);
        return;
    }
    for (unsigned i = 0; i < 2; i++)
        hcg_amx_split(e, a->cut, a->dtype, a->parts, x[i], part[i]);
    for (unsigned i = 0; i < a->parts; i++) {
        LLVMValueRef both[] = {part[0][i], part[1][i]};
        hcg_amx_store_line(e, line_of(e, both), hcg_at_byte(e, out, i * HCG_AMX_TILE));
    }
}

/* The larger of `most` and |x|, as bits. */
static LLVMValueRef larger_size(hcg_emit *e, LLVMValueRef most, LLVMValueRef x) {
    LLVMTypeRef ints = ints_like(e);
    LLVMValueRef args[] = {most, masked(e, bits_of(e, x), SIZE)};
    return hcg_intrinsic(e, "llvm.umax", &ints, 1, args, 2);
}

static void store_most(hcg_emit *e, LLVMValueRef at, LLVMValueRef most) {
    LLVMTypeRef ints = ints_like(e);
    LLVMValueRef before = LLVMBuildLoad2(e->b, e->i32, at, "");
    LLVMValueRef args[] = {before, hcg_intrinsic(e, "llvm.vector.reduce.umax", &ints, 1, &most, 1)};
    LLVMValueRef larger = hcg_intrinsic(e, "llvm.umax", &e->i32, 1, args, 2);
    LLVMSetAlignment(LLVMBuildStore(e->b, larger, at), 4);
}

enum { LINES_X, LINES_LD, LINES_ROWS, LINES_N, LINES_OUT, LINES_MOST, LINES_PARAMS };

/* Writes `steps` steps of one row to `out`. */
static void make_row(hcg_emit *e, const hcg_amx_lines *a, const LLVMValueRef *s, LLVMValueRef row,
                     LLVMValueRef steps, LLVMValueRef out) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), v[2];
    LLVMTypeRef elem = hcg_element(e, a->dtype);
    LLVMValueRef x = hcg_at(e, elem, s[LINES_X], hcg_mul(e, row, s[LINES_LD]));
    LLVMValueRef most = LLVMConstNull(ints_like(e));
    const unsigned carried = a->most != NULL;
    hcg_loop l = hcg_loop_begin(e, zero, steps, one, "step", carried, &most);
    LLVMValueRef at = hcg_mul_const(e, l.index, HCG_AMX_STEP);
    if (carried) most = l.carried[0];
    for (unsigned i = 0; i < 2; i++) {
        LLVMValueRef from = hcg_add(e, at, hcg_i64(e, i * (HCG_AMX_STEP / 2)));
        v[i] = hcg_load(e, a->dtype, hcg_at(e, elem, x, from), hcg_sub(e, s[LINES_N], from));
        if (carried) most = larger_size(e, most, v[i]);
    }
    store_row(e, a, v, hcg_at(e, e->i8, out, hcg_mul_const(e, l.index, a->parts * HCG_AMX_TILE)));
    hcg_loop_end(e, &l, &most);
    if (carried) store_most(e, hcg_at(e, e->i32, s[LINES_MOST], row), l.carried[0]);
}

/* name(x, ld, rows, n, out, most) */
static hcg_shared lines_function(hcg_emit *e, const hcg_amx_lines *a) {
    LLVMTypeRef params[LINES_PARAMS] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, a->name, params, LINES_PARAMS - !a->most, &s)) return s;
    LLVMValueRef steps = hcg_divide_up(e, s.param[LINES_N], hcg_i64(e, HCG_AMX_STEP));
    LLVMValueRef tile_row = hcg_mul_const(e, steps, a->parts * HCG_AMX_TILE);
    hcg_loop rows =
        hcg_loop_begin(e, hcg_i64(e, 0), s.param[LINES_ROWS], hcg_i64(e, 1), "row", 0, NULL);
    LLVMValueRef tile = LLVMBuildUDiv(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef line = LLVMBuildURem(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef out = hcg_add(e, hcg_mul(e, tile, tile_row), hcg_mul_const(e, line, HCG_AMX_LINE));
    make_row(e, a, s.param, rows.index, steps, hcg_at(e, e->i8, s.param[LINES_OUT], out));
    hcg_loop_end(e, &rows, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_amx_make_lines(hcg_emit *e, const hcg_amx_lines *a) {
    hcg_shared f = lines_function(e, a);
    LLVMValueRef args[LINES_PARAMS] = {a->x, a->ld, a->rows, a->n, a->out, a->most};
    hcg_shared_call(e, &f, args, LINES_PARAMS - !a->most);
}

/* Parts of x, and of weights that have several (parts.h). */
static hcg_amx_cut cut_of(const hcg_amx_parts *p) {
    return p->w == 1 ? HCG_AMX_UPPER : HCG_AMX_NEAREST;
}

void hcg_amx_split_rows(hcg_emit *e, const hcg_amx_parts *p, LLVMValueRef x, LLVMValueRef ldx,
                        LLVMValueRef rows, LLVMValueRef k, LLVMValueRef out, LLVMValueRef most) {
    const hcg_amx_lines a = {.name = hd_printf(e->arena, "amx_x_%s", p->name),
                             .dtype = HIR_F32,
                             .cut = cut_of(p),
                             .parts = p->x,
                             .x = x,
                             .ld = ldx,
                             .rows = rows,
                             .n = k,
                             .out = out,
                             .most = p->w > 1 ? most : NULL};
    hcg_amx_make_lines(e, &a);
}

LLVMValueRef hcg_amx_pair_line(hcg_emit *e, LLVMValueRef low, LLVMValueRef high) {
    LLVMTypeRef ints = ints_like(e);
    low = LLVMBuildLShr(e->b, bits_of(e, low), hcg_int_like(ints, 16), "");
    return LLVMBuildOr(e->b, low, masked(e, bits_of(e, high), UPPER_HALF), "");
}

/* ---- weights --------------------------------------------------------------------------------- */
/* Rounds to the nearest bf16, of two equally near the larger one: half of the last place is added
 * before the pair's bits are cut off. No weight is so large that it would become infinite. */
static LLVMValueRef rounded_pair(hcg_emit *e, const LLVMValueRef v[2]) {
    LLVMValueRef half = hcg_int_like(ints_like(e), 0x8000), sum[2];
    for (unsigned j = 0; j < 2; j++)
        sum[j] = LLVMBuildBitCast(e->b, LLVMBuildAdd(e->b, bits_of(e, v[j]), half, ""), e->vec, "");
    return hcg_amx_pair_line(e, sum[0], sum[1]);
}

/* Writes two elements of K of 16 outputs to a line of each part's tile. */
static void store_pair(hcg_emit *e, const hcg_amx_parts *p, const LLVMValueRef v[2],
                       LLVMValueRef out) {
    LLVMValueRef part[2][HCG_AMX_MOST_PARTS];
    if (p->w == 1) {
        hcg_amx_store_line(e, rounded_pair(e, v), out);
        return;
    }
    for (unsigned i = 0; i < 2; i++)
        hcg_amx_split(e, cut_of(p), HIR_F32, p->w, v[i], part[i]);
    for (unsigned i = 0; i < p->w; i++)
        hcg_amx_store_line(e, hcg_amx_pair_line(e, part[0][i], part[1][i]),
                           hcg_at_byte(e, out, i * HCG_AMX_TILE));
}

/* Makes a step of f32 or f16 weights. */
static void split_floats(hcg_emit *e, const hcg_amx_parts *p, hir_dtype dtype, LLVMValueRef w,
                         LLVMValueRef out) {
    const int64_t row = hcg_panel_bytes(dtype, 1);
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), v[2];
    hcg_loop l = hcg_loop_begin(e, zero, hcg_i64(e, HCG_AMX_LINES), one, "pair", 0, NULL);
    LLVMValueRef from = hcg_at(e, e->i8, w, hcg_mul_const(e, l.index, 2 * row));
    for (unsigned j = 0; j < 2; j++)
        v[j] = hcg_load(e, dtype, hcg_at_byte(e, from, j * row), NULL);
    store_pair(e, p, v, hcg_at(e, e->i8, out, hcg_mul_const(e, l.index, HCG_AMX_LINE)));
    hcg_loop_end(e, &l, NULL);
}

static void split_group(hcg_emit *e, const hcg_amx_parts *p, hir_dtype dtype, LLVMValueRef group,
                        LLVMValueRef out) {
    LLVMValueRef w[HIR_GROUP];
    hcg_quant_numbers(e, dtype, group, 0, NULL, w); /* factors: amx/bf16.c */
    for (unsigned k = 0; k < HIR_GROUP; k += 2)
        store_pair(e, p, w + k, hcg_at_byte(e, out, k / 2 * HCG_AMX_LINE));
}

/* amx_w(w, steps, out) */
static hcg_shared panel_function(hcg_emit *e, const hcg_amx_parts *p, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "amx_w_%s_%s", p->name, hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 3, &s)) return s;
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[1], hcg_i64(e, 1), "step", 0, NULL);
    LLVMValueRef w = hcg_mul_const(e, l.index, hcg_amx_step_bytes(dtype));
    LLVMValueRef out = hcg_mul_const(e, l.index, p->w * HCG_AMX_TILE);
    w = hcg_at(e, e->i8, s.param[0], w), out = hcg_at(e, e->i8, s.param[2], out);
    if (hir_is_quantised(dtype))
        split_group(e, p, dtype, w, out);
    else
        split_floats(e, p, dtype, w, out);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_amx_split_panel(hcg_emit *e, const hcg_amx_parts *p, hir_dtype dtype, LLVMValueRef w,
                         LLVMValueRef steps, LLVMValueRef out) {
    hcg_shared f = panel_function(e, p, dtype);
    LLVMValueRef args[] = {w, steps, out};
    hcg_shared_call(e, &f, args, 3);
}
