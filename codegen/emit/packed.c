/* Numbers of packed weights in registers (packed.h). */
#include "codegen/emit/packed.h"

#include <string.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"
#include "codegen/emit/shared.h"
#include "codegen/emit/stream.h"
#include "codegen/target/prefetch_distance.h"

/* ---- numbers of 4 bits ----------------------------------------------------------------------- */
enum {
    CODES = 16,
    TABLE_LANES = 16, /* bytes in a table of a byte look-up */
};
static const int doubled[CODES] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* ---- scales ---------------------------------------------------------------------------------- */

/* The byte is the exponent of an f32; 0 stands for 2^-127, a denormal, half of the least normal
 * number. */
static LLVMValueRef power(hcg_emit *e, LLVMValueRef exponent, LLVMTypeRef floats) {
    LLVMTypeRef ints = LLVMTypeOf(exponent);
    LLVMValueRef bits = LLVMBuildShl(e->b, exponent, hcg_int_like(ints, 23), "");
    LLVMValueRef least = hcg_int_like(ints, 0x00400000);
    LLVMValueRef below = LLVMBuildICmp(e->b, LLVMIntULT, bits, least, "");
    bits = LLVMBuildSelect(e->b, below, least, bits, "");
    LLVMValueRef s = LLVMBuildBitCast(e->b, bits, floats, "");
    LLVMValueRef half = LLVMConstReal(e->f32, 0.5);
    if (floats != e->f32) half = hcg_splat(e, 0.5);
    return hcg_fmul(e, s, half);
}

/* Half of the scale of nvfp4 whose byte this is. */
static LLVMValueRef small_scale(hcg_emit *e, LLVMValueRef byte, LLVMTypeRef floats) {
    LLVMTypeRef ints = LLVMTypeOf(byte);
    LLVMValueRef bits = LLVMBuildShl(e->b, byte, hcg_int_like(ints, HCG_E5M3_SHIFT), "");
    LLVMValueRef least = hcg_int_like(ints, (uint64_t)(HCG_E5M3_LEAST - 1) << 23);
    return LLVMBuildBitCast(e->b, LLVMBuildAdd(e->b, bits, least, ""), floats, "");
}

static LLVMValueRef scale_of(hcg_emit *e, hir_dtype dtype, LLVMValueRef byte, LLVMTypeRef floats) {
    return dtype == HIR_MXFP4 ? power(e, byte, floats) : small_scale(e, byte, floats);
}

/* Half of scale `part` of rows v * lanes .. */
static LLVMValueRef fp4_scale(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                              unsigned part) {
    const unsigned lanes = e->level->lanes;
    LLVMTypeRef bytes = LLVMVectorType(e->i8, lanes);
    LLVMValueRef at = hcg_at_byte(e, group, (int64_t)part * HIR_PANEL + (int64_t)v * lanes);
    LLVMValueRef s = LLVMBuildLoad2(e->b, bytes, at, "");
    LLVMSetAlignment(s, lanes);
    return scale_of(e, dtype, LLVMBuildZExt(e->b, s, LLVMVectorType(e->i32, lanes), ""), e->vec);
}

/* The same of one row, whose byte is at `at`. */
static LLVMValueRef fp4_scale_at(hcg_emit *e, hir_dtype dtype, LLVMValueRef at) {
    LLVMValueRef s = LLVMBuildLoad2(e->b, e->i8, at, "");
    LLVMSetAlignment(s, 1);
    return scale_of(e, dtype, LLVMBuildZExt(e->b, s, e->i32, ""), e->f32);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* A table of the first `n` numbers, as a vector of f32. */
static LLVMValueRef table(hcg_emit *e, unsigned n) {
    LLVMValueRef all[CODES];
    for (unsigned i = 0; i < n; i++)
        all[i] = LLVMConstReal(e->f32, doubled[i]);
    return LLVMConstVector(all, n);
}

/* The sign of a code whose bit 3 is bit `shift` + 3, put on f. */
static LLVMValueRef with_sign(hcg_emit *e, LLVMValueRef f, LLVMValueRef words, unsigned shift) {
    LLVMTypeRef ints = LLVMTypeOf(words);
    LLVMValueRef sign = LLVMBuildShl(e->b, words, hcg_int_like(ints, 28 - shift), "");
    sign = LLVMBuildAnd(e->b, sign, hcg_int_like(ints, 0x80000000u), "");
    LLVMValueRef bits = LLVMBuildBitCast(e->b, f, ints, "");
    return LLVMBuildBitCast(e->b, LLVMBuildOr(e->b, bits, sign, ""), LLVMTypeOf(f), "");
}

/* Without a look-up: the magnitude is 4 bits of a constant that holds all eight magnitudes. */
static LLVMValueRef by_shifts(hcg_emit *e, LLVMValueRef words, unsigned shift) {
    LLVMTypeRef ints = LLVMTypeOf(words);
    LLVMTypeRef floats = ints == e->i32 ? e->f32 : e->vec;
    LLVMValueRef code = LLVMBuildLShr(e->b, words, hcg_int_like(ints, shift), "");
    code = LLVMBuildAnd(e->b, code, hcg_int_like(ints, 7), "");
    code = LLVMBuildShl(e->b, code, hcg_int_like(ints, 2), "");
    LLVMValueRef size = LLVMBuildLShr(e->b, hcg_int_like(ints, 0xc8643210u), code, "");
    size = LLVMBuildAnd(e->b, size, hcg_int_like(ints, 15), "");
    return with_sign(e, LLVMBuildSIToFP(e->b, size, floats, ""), words, shift);
}

/* vpermps reads only the low bits of an index: four with 16 lanes, three with 8. */
LLVMValueRef hcg_fp4_number(hcg_emit *e, LLVMValueRef words, unsigned shift) {
    const unsigned lanes = e->level->lanes;
    const bool x86 = strcmp(e->level->arch, "x86_64") == 0;
    LLVMTypeRef ints = LLVMTypeOf(words);
    if (ints == e->i32 || !x86 || lanes < 8) return by_shifts(e, words, shift);
    LLVMValueRef args[] = {table(e, lanes), words};
    if (shift) args[1] = LLVMBuildLShr(e->b, words, hcg_int_like(ints, shift), "");
    if (lanes == 16) return hcg_intrinsic(e, "llvm.x86.avx512.permvar.sf.512", NULL, 0, args, 2);
    LLVMValueRef size = hcg_intrinsic(e, "llvm.x86.avx2.permps", NULL, 0, args, 2);
    return with_sign(e, size, words, shift);
}

LLVMValueRef hcg_fp4_bytes(hcg_emit *e, const char *lookup, LLVMValueRef words) {
    const unsigned n = 4 * e->level->lanes;
    LLVMValueRef all[64];
    for (unsigned i = 0; i < n; i++)
        all[i] = LLVMConstInt(e->i8, (unsigned)(doubled[i % TABLE_LANES] + HCG_FP4_ADDED), false);
    LLVMTypeRef bytes = LLVMVectorType(e->i8, n);
    LLVMValueRef args[] = {LLVMConstVector(all, n), LLVMBuildBitCast(e->b, words, bytes, "")};
    const bool overloaded = n == TABLE_LANES; /* aarch64's look-up, for vectors of either length */
    LLVMValueRef u = hcg_intrinsic(e, lookup, &bytes, overloaded, args, 2);
    return LLVMBuildBitCast(e->b, u, LLVMTypeOf(words), "");
}

/* ---- groups ---------------------------------------------------------------------------------- */
enum {
    WORD = 4,         /* elements of a row that lie side by side */
    BLOCK_BYTES = 64, /* bytes of a group of a panel */
};

static LLVMValueRef half_at(hcg_emit *e, LLVMValueRef group, unsigned v) {
    return hcg_load(e, HIR_F16, hcg_at_byte(e, group, 2 * (int64_t)(v * e->level->lanes)), NULL);
}

LLVMValueRef hcg_quant_scale(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                             unsigned part) {
    return hcg_is_fp4(dtype) ? fp4_scale(e, dtype, group, v, part) : half_at(e, group, v);
}

LLVMValueRef hcg_quant_least(hcg_emit *e, LLVMValueRef group, unsigned v) {
    return half_at(e, hcg_at_byte(e, group, 2 * HIR_PANEL), v);
}

LLVMValueRef hcg_quant_block(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned block,
                             unsigned v) {
    int64_t at = (int64_t)hcg_group_first(dtype) + block * BLOCK_BYTES + v * e->level->lanes * WORD;
    LLVMTypeRef type = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef words = LLVMBuildLoad2(e->b, type, hcg_at_byte(e, group, at), "");
    LLVMSetAlignment(words, 16);
    return words;
}

void hcg_quant_prefetch(hcg_emit *e, hir_dtype dtype, LLVMValueRef group) {
    const hd_machine *m = &e->level->machine;
    for (int64_t at = 0; at < (int64_t)hcg_group_bytes(dtype); at += m->line)
        hcg_prefetch(e, group, hcg_prefetch_distance(m, HCG_PREFETCH_GROUPS) + at);
}

/* q of element k (0 .. 31) of vector v as f32, with its sign for q8; for fp4 twice the number.
 * `words` are those of k's block. */
static LLVMValueRef element(hcg_emit *e, hir_dtype dtype, LLVMValueRef words, unsigned k) {
    LLVMTypeRef type = LLVMTypeOf(words);
    LLVMValueRef q;
    if (hcg_is_fp4(dtype)) return hcg_fp4_number(e, words, 8 * (k % WORD) + k % 8 / WORD * 4);
    if (dtype == HIR_Q8) { /* the byte to the top, its lowest sign bit back down */
        q = LLVMBuildXor(e->b, words, hcg_int_like(type, 0x80808080), "");
        q = LLVMBuildShl(e->b, q, hcg_int_like(type, 24 - 8 * (k % WORD)), "");
        q = LLVMBuildAShr(e->b, q, hcg_int_like(type, 24), "");
    } else {
        q = LLVMBuildLShr(e->b, words, hcg_int_like(type, 8 * (k % WORD) + k % 8 / WORD * 4), "");
        q = LLVMBuildAnd(e->b, q, hcg_int_like(type, 15), "");
    }
    return LLVMBuildSIToFP(e->b, q, e->vec, "");
}

static unsigned block_of(hir_dtype dtype, unsigned k) {
    return k / hcg_group_per_block(dtype);
}

/* q[k] for all k of a group, vector v. */
void hcg_quant_integers(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                        LLVMValueRef q[HIR_GROUP]) {
    LLVMValueRef words = NULL;
    for (unsigned k = 0; k < HIR_GROUP; k++) {
        unsigned block = block_of(dtype, k);
        if (!k || block != block_of(dtype, k - 1))
            words = hcg_quant_block(e, dtype, group, block, v);
        q[k] = element(e, dtype, words, k);
    }
}

/* w = s q (+ m); s q is exact, so that both formulas round once. */
static LLVMValueRef number(hcg_emit *e, hir_dtype dtype, LLVMValueRef q, LLVMValueRef scale,
                           LLVMValueRef least) {
    return dtype == HIR_Q4 ? hcg_fma(e, q, scale, least) : hcg_fmul(e, q, scale);
}

void hcg_quant_numbers(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, unsigned v,
                       LLVMValueRef factor, LLVMValueRef w[HIR_GROUP]) {
    const unsigned parts = hcg_group_scales(dtype), each = HIR_GROUP / parts;
    LLVMValueRef least = dtype == HIR_Q4 ? hcg_quant_least(e, group, v) : NULL;
    hcg_quant_integers(e, dtype, group, v, w);
    for (unsigned part = 0; part < parts; part++) {
        LLVMValueRef scale = hcg_quant_scale(e, dtype, group, v, part);
        if (factor) scale = hcg_fmul(e, scale, factor);
        for (unsigned k = part * each; k < (part + 1) * each; k++)
            w[k] = number(e, dtype, w[k], scale, least);
    }
}

LLVMValueRef hcg_quant_factor(hcg_emit *e, hir_dtype dtype, LLVMValueRef end, unsigned v) {
    if (!hcg_panel_end(dtype)) return NULL;
    return hcg_load(e, HIR_F32, hcg_at_byte(e, end, (int64_t)v * e->level->lanes * 4), NULL);
}

LLVMValueRef hcg_quant_times_factor(hcg_emit *e, hir_dtype dtype, LLVMValueRef end, unsigned v,
                                    LLVMValueRef sums) {
    LLVMValueRef factor = hcg_quant_factor(e, dtype, end, v);
    return factor ? hcg_fmul(e, sums, factor) : sums;
}

/* ---- rows of tables -------------------------------------------------------------------------- */
/* The factor of a row of a panel whose rows have k elements; NULL: the type has none. */
static LLVMValueRef factor_of_row(hcg_emit *e, hir_dtype dtype, const LLVMValueRef param[3]) {
    if (!hcg_panel_end(dtype)) return NULL;
    LLVMValueRef groups = hcg_divide_up(e, param[2], hcg_i64(e, HIR_GROUP));
    LLVMValueRef bytes = hcg_mul_const(e, groups, (int64_t)hcg_group_bytes(dtype));
    LLVMValueRef end = hcg_at(e, e->i8, param[0], bytes);
    return hcg_load_scalar(e, HIR_F32, hcg_at(e, e->f32, end, param[1]));
}

/* Half of the scale of element `within` of a row of a group. */
static LLVMValueRef row_scale(hcg_emit *e, hir_dtype dtype, LLVMValueRef group, LLVMValueRef row,
                              LLVMValueRef within) {
    if (hcg_group_scales(dtype) > 1) { /* two, HIR_PANEL elements each: bytes HIR_PANEL apart */
        _Static_assert(HIR_GROUP == 2 * HIR_PANEL, "elements of a scale are rows of a panel");
        row = hcg_add(e, row, LLVMBuildAnd(e->b, within, hcg_i64(e, HIR_PANEL), ""));
    }
    return fp4_scale_at(e, dtype, hcg_at(e, e->i8, group, row));
}

/* row(panel, row in it, k, out): element by element, since a call reads only one row a token */
static hcg_shared row_function(hcg_emit *e, hir_dtype dtype) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr};
    hcg_shared s;
    const char *name = hd_printf(e->arena, "row_%s", hir_dtype_name(dtype));
    if (!hcg_shared_begin(e, name, params, 4, &s)) return s;
    LLVMValueRef row = s.param[1], at_half = LLVMBuildShl(e->b, row, hcg_i64(e, 1), "");
    int64_t bytes = (int64_t)hcg_group_bytes(dtype);
    LLVMValueRef factor = factor_of_row(e, dtype, s.param);
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), s.param[2], hcg_i64(e, 1), "k", 0, NULL);
    LLVMValueRef k = l.index, within = LLVMBuildAnd(e->b, k, hcg_i64(e, HIR_GROUP - 1), "");
    LLVMValueRef g = LLVMBuildLShr(e->b, k, hcg_i64(e, 5), "");
    LLVMValueRef group = hcg_at(e, e->i8, s.param[0], hcg_mul_const(e, g, bytes));
    LLVMValueRef halves = hcg_at(e, e->i8, group, at_half);
    LLVMValueRef scale = hcg_is_fp4(dtype) ? row_scale(e, dtype, group, row, within)
                                           : hcg_load_scalar(e, HIR_F16, halves);
    if (factor) scale = hcg_fmul(e, scale, factor);
    const int64_t per_block = hcg_group_per_block(dtype);
    LLVMValueRef block = LLVMBuildUDiv(e->b, within, hcg_i64(e, per_block), "");
    LLVMValueRef at = LLVMBuildShl(e->b, block, hcg_i64(e, 6), "");
    at = LLVMBuildAdd(e->b, at, LLVMBuildShl(e->b, row, hcg_i64(e, 2), ""), "");
    at = LLVMBuildAdd(e->b, at, LLVMBuildAnd(e->b, k, hcg_i64(e, WORD - 1), ""), "");
    at = LLVMBuildAdd(e->b, at, hcg_i64(e, (int64_t)hcg_group_first(dtype)), "");
    LLVMValueRef q = LLVMBuildLoad2(e->b, e->i8, hcg_at(e, e->i8, group, at), "q");
    q = LLVMBuildZExt(e->b, q, e->i32, "");
    LLVMValueRef least = NULL;
    if (dtype == HIR_Q8) {
        q = hcg_sub(e, q, LLVMConstInt(e->i32, 128, false));
    } else {
        LLVMValueRef half = LLVMBuildAnd(e->b, k, hcg_i64(e, WORD), ""); /* 4: the high half */
        q = LLVMBuildLShr(e->b, q, LLVMBuildTrunc(e->b, half, e->i32, ""), "");
        q = LLVMBuildAnd(e->b, q, LLVMConstInt(e->i32, 15, false), "");
    }
    if (dtype == HIR_Q4) least = hcg_load_scalar(e, HIR_F16, hcg_at_byte(e, halves, 2 * HIR_PANEL));
    q = hcg_is_fp4(dtype) ? hcg_fp4_number(e, q, 0) : LLVMBuildSIToFP(e->b, q, e->f32, "");
    hcg_store(e, hcg_at(e, e->f32, s.param[3], k), number(e, dtype, q, scale, least), NULL);
    hcg_loop_end(e, &l, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_quant_row(hcg_emit *e, hir_dtype dtype, LLVMValueRef table, LLVMValueRef row, int64_t k,
                   LLVMValueRef out) {
    LLVMValueRef panel = LLVMBuildLShr(e->b, row, hcg_i64(e, 4), "");
    panel = hcg_mul_const(e, panel, hcg_panel_bytes(dtype, k));
    LLVMValueRef within = LLVMBuildAnd(e->b, row, hcg_i64(e, HIR_PANEL - 1), "");
    LLVMValueRef args[] = {hcg_at(e, e->i8, table, panel), within, hcg_i64(e, k), out};
    hcg_shared f = row_function(e, dtype);
    hcg_shared_call(e, &f, args, 4);
}

/* row(panel, row in it, k, out), a pair at a time */
static hcg_shared pair_row_function(hcg_emit *e) {
    LLVMTypeRef params[] = {e->ptr, e->i64, e->i64, e->ptr};
    hcg_shared s;
    if (!hcg_shared_begin(e, "pair_row", params, 4, &s)) return s;
    LLVMValueRef one = hcg_i64(e, 1), panel = hcg_at(e, e->i32, s.param[0], s.param[1]);
    LLVMValueRef pairs = LLVMBuildLShr(e->b, s.param[2], one, ""), bits[2];
    hcg_loop l = hcg_loop_begin(e, hcg_i64(e, 0), pairs, one, "pair", 0, NULL);
    LLVMValueRef at = hcg_mul_const(e, l.index, HIR_PANEL);
    LLVMValueRef both = LLVMBuildLoad2(e->b, e->i32, hcg_at(e, e->i32, panel, at), "");
    LLVMValueRef out = hcg_at(e, e->i64, s.param[3], l.index);
    bits[0] = LLVMBuildShl(e->b, both, LLVMConstInt(e->i32, 16, false), "");
    bits[1] = LLVMBuildAnd(e->b, both, LLVMConstInt(e->i32, 0xffff0000, false), "");
    for (int i = 0; i < 2; i++)
        LLVMSetAlignment(LLVMBuildStore(e->b, bits[i], hcg_at(e, e->i32, out, hcg_i64(e, i))), 4);
    hcg_loop_end(e, &l, NULL);
    LLVMValueRef done = LLVMBuildShl(e->b, pairs, one, ""); /* an odd row's last pair: the first
                                                               half */
    hcg_loop rest = hcg_loop_begin(e, done, s.param[2], one, "odd", 0, NULL);
    at = hcg_mul_const(e, rest.index, HIR_PANEL / 2);
    LLVMValueRef x = hcg_load_scalar(e, HIR_BF16, hcg_at(e, e->i32, panel, at));
    hcg_store(e, hcg_at(e, e->f32, s.param[3], rest.index), x, NULL);
    hcg_loop_end(e, &rest, NULL);
    hcg_shared_end(e, &s);
    return s;
}

void hcg_pair_row(hcg_emit *e, LLVMValueRef table, LLVMValueRef row, int64_t k, LLVMValueRef out) {
    LLVMValueRef panel = LLVMBuildLShr(e->b, row, hcg_i64(e, 4), "");
    panel = hcg_mul_const(e, panel, (k + 1) / 2 * HIR_PANEL);
    LLVMValueRef within = LLVMBuildAnd(e->b, row, hcg_i64(e, HIR_PANEL - 1), "");
    LLVMValueRef args[] = {hcg_at(e, e->i32, table, panel), within, hcg_i64(e, k), out};
    hcg_shared f = pair_row_function(e);
    hcg_shared_call(e, &f, args, 4);
}
