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
LLVMValueRef hcg_amx_truncated(hcg_emit *e, LLVMValueRef x) {
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
LLVMValueRef hcg_amx_remainder(hcg_emit *e, LLVMValueRef x, LLVMValueRef part) {
    LLVMValueRef all = LLVMBuildFCmp(e->b, LLVMRealOEQ, x, part, "");
    return LLVMBuildSelect(e->b, all, LLVMConstNull(e->vec), hcg_fsub(e, x, part), "");
}

/* Takes part i of `parts`, a bf16, away from x. */
static LLVMValueRef take_part(hcg_emit *e, const hcg_amx_parts *p, unsigned i, unsigned parts,
                              LLVMValueRef *x) {
    LLVMValueRef part;
    if (i + 1 == parts) return *x; /* the last part: at most 8 bits are left */
    if (p->w == 1) {
        part = hcg_amx_truncated(e, *x);
        *x = hcg_amx_remainder(e, *x, part);
    } else {
        part = nearest(e, *x);
        *x = hcg_fsub(e, *x, part);
    }
    return part;
}

/* ---- x --------------------------------------------------------------------------------------- */
/* The upper halves of 32 f32, side by side. */
LLVMValueRef hcg_amx_line(hcg_emit *e, const LLVMValueRef x[2]) {
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

static void store_line(hcg_emit *e, LLVMValueRef line, LLVMValueRef p) {
    LLVMSetAlignment(LLVMBuildStore(e->b, line, p), HCG_AMX_LINE);
}

/* Writes 32 elements of a row to their places in a tile of each part. */
static void store_row(hcg_emit *e, const hcg_amx_parts *p, LLVMValueRef x[2], LLVMValueRef out) {
    if (p->x == 1) store_line(e, rounded(e, x), out);
    for (unsigned i = 0; i < p->x && p->x > 1; i++) {
        LLVMValueRef part[] = {take_part(e, p, i, p->x, &x[0]), take_part(e, p, i, p->x, &x[1])};
        store_line(e, hcg_amx_line(e, part), hcg_at_byte(e, out, i * HCG_AMX_TILE));
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

enum { SPLIT_X, SPLIT_LDX, SPLIT_ROWS, SPLIT_K, SPLIT_OUT, SPLIT_MOST, SPLIT_PARAMS };

/* Writes `steps` steps of one row to `out`. */
static void split_row(hcg_emit *e, const hcg_amx_parts *p, const LLVMValueRef *s, LLVMValueRef row,
                      LLVMValueRef steps, LLVMValueRef out) {
    LLVMValueRef zero = hcg_i64(e, 0), one = hcg_i64(e, 1), v[2];
    LLVMValueRef x = hcg_at(e, e->f32, s[SPLIT_X], hcg_mul(e, row, s[SPLIT_LDX]));
    LLVMValueRef most = LLVMConstNull(ints_like(e));
    const unsigned carried = p->w > 1;
    hcg_loop l = hcg_loop_begin(e, zero, steps, one, "step", carried, &most);
    LLVMValueRef at = hcg_mul_const(e, l.index, HCG_AMX_STEP);
    if (carried) most = l.carried[0];
    for (unsigned i = 0; i < 2; i++) {
        LLVMValueRef from = hcg_add(e, at, hcg_i64(e, i * (HCG_AMX_STEP / 2)));
        v[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, from), hcg_sub(e, s[SPLIT_K], from));
        if (carried) most = larger_size(e, most, v[i]);
    }
    store_row(e, p, v, hcg_at(e, e->i8, out, hcg_mul_const(e, l.index, p->x * HCG_AMX_TILE)));
    hcg_loop_end(e, &l, &most);
    if (carried) store_most(e, hcg_at(e, e->i32, s[SPLIT_MOST], row), l.carried[0]);
}

/* amx_x(x, ldx, rows, k, out, most) */
static hcg_shared rows_function(hcg_emit *e, const hcg_amx_parts *p) {
    LLVMTypeRef params[SPLIT_PARAMS] = {e->ptr, e->i64, e->i64, e->i64, e->ptr, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "amx_x_%s", p->name);
    if (!hcg_shared_begin(e, name, params, SPLIT_PARAMS, &s)) return s;
    LLVMValueRef steps = hcg_divide_up(e, s.param[SPLIT_K], hcg_i64(e, HCG_AMX_STEP));
    LLVMValueRef tile_row = hcg_mul_const(e, steps, p->x * HCG_AMX_TILE);
    hcg_loop rows =
        hcg_loop_begin(e, hcg_i64(e, 0), s.param[SPLIT_ROWS], hcg_i64(e, 1), "row", 0, NULL);
    LLVMValueRef tile = LLVMBuildUDiv(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef line = LLVMBuildURem(e->b, rows.index, hcg_i64(e, HCG_AMX_LINES), "");
    LLVMValueRef out = hcg_add(e, hcg_mul(e, tile, tile_row), hcg_mul_const(e, line, HCG_AMX_LINE));
    split_row(e, p, s.param, rows.index, steps, hcg_at(e, e->i8, s.param[SPLIT_OUT], out));
    hcg_loop_end(e, &rows, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_amx_split_rows(hcg_emit *e, const hcg_amx_parts *p, LLVMValueRef x, LLVMValueRef ldx,
                        LLVMValueRef rows, LLVMValueRef k, LLVMValueRef out, LLVMValueRef most) {
    hcg_shared f = rows_function(e, p);
    LLVMValueRef args[SPLIT_PARAMS] = {x, ldx, rows, k, out, most};
    hcg_shared_call(e, &f, args, SPLIT_PARAMS);
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
static void store_pair(hcg_emit *e, const hcg_amx_parts *p, LLVMValueRef v[2], LLVMValueRef out) {
    if (p->w == 1) store_line(e, rounded_pair(e, v), out);
    for (unsigned i = 0; i < p->w && p->w > 1; i++) {
        LLVMValueRef low = take_part(e, p, i, p->w, &v[0]), high = take_part(e, p, i, p->w, &v[1]);
        store_line(e, hcg_amx_pair_line(e, low, high), hcg_at_byte(e, out, i * HCG_AMX_TILE));
    }
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
