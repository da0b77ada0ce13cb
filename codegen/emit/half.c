/* 16-bit floats (emit.h): bf16 and f16 to f32 and back, on every CPU level.
 *
 * bf16 is the upper half of f32. f16 has instructions on ARM and, with F16C, on x86; elsewhere it
 * is integer arithmetic on the bits, which also holds where denormals are taken for zero: nothing
 * here reads or makes a denormal f32 that is not one already.
 */
#include "codegen/emit/arithmetic.h"
#include "codegen/emit/emit.h"
#include "codegen/emit/math.h"

LLVMTypeRef hcg_element(hcg_emit *e, hir_dtype dtype) {
    if (dtype == HIR_I32) return e->i32;
    return dtype == HIR_BF16 || dtype == HIR_F16 ? e->i16 : e->f32;
}

/* ---- small builders over any width ----------------------------------------------------------- */
static LLVMValueRef ints(LLVMValueRef like, uint64_t value) {
    return hcg_int_like(LLVMTypeOf(like), value);
}

static LLVMValueRef and_with(hcg_emit *e, LLVMValueRef x, uint64_t mask) {
    return LLVMBuildAnd(e->b, x, ints(x, mask), "");
}

static LLVMValueRef plus(hcg_emit *e, LLVMValueRef x, uint64_t n) {
    return LLVMBuildAdd(e->b, x, ints(x, n), "");
}

static LLVMValueRef up(hcg_emit *e, LLVMValueRef x, unsigned by) {
    return LLVMBuildShl(e->b, x, ints(x, by), "");
}

static LLVMValueRef down(hcg_emit *e, LLVMValueRef x, unsigned by) {
    return LLVMBuildLShr(e->b, x, ints(x, by), "");
}

static LLVMValueRef as_float(hcg_emit *e, LLVMValueRef bits) {
    return LLVMBuildBitCast(e->b, bits, hcg_like(LLVMTypeOf(bits), e->f32), "");
}

static LLVMValueRef as_bits(hcg_emit *e, LLVMValueRef x) {
    return LLVMBuildBitCast(e->b, x, hcg_like(LLVMTypeOf(x), e->i32), "");
}

static LLVMValueRef less(hcg_emit *e, LLVMValueRef x, uint64_t than) {
    return LLVMBuildICmp(e->b, LLVMIntULT, x, ints(x, than), "");
}

static LLVMValueRef choose(hcg_emit *e, LLVMValueRef test, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildSelect(e->b, test, a, b, "");
}

static LLVMValueRef to_i16(hcg_emit *e, LLVMValueRef x) {
    return LLVMBuildTrunc(e->b, x, hcg_like(LLVMTypeOf(x), e->i16), "");
}

/* ---- f16 by integers ------------------------------------------------------------------------- */
enum { REBIAS = (127 - 15) << 23, F16_INFINITY = 31 << 23 };

/* The bits moved to where f32 has them, the exponent's bias corrected; the exponent of infinity and
 * NaN twice. A denormal m 2^-24 reads as 2^-14 (1 + m / 2^10) with an exponent of one: 2^-14 less,
 * which subtracts exactly. */
static LLVMValueRef widen_by_bits(hcg_emit *e, LLVMValueRef stored) {
    LLVMTypeRef wide = hcg_like(LLVMTypeOf(stored), e->i32);
    LLVMValueRef x = LLVMBuildZExt(e->b, stored, wide, "");
    LLVMValueRef m = up(e, and_with(e, x, 0x7fff), 13), normal = plus(e, m, REBIAS);
    LLVMValueRef whole = as_float(e, plus(e, m, REBIAS + (1 << 23)));
    LLVMValueRef small = hcg_fsub(e, whole, hcg_real_like(LLVMTypeOf(whole), 0x1p-14));
    LLVMValueRef y = choose(e, less(e, m, F16_INFINITY), normal, plus(e, normal, REBIAS));
    y = choose(e, less(e, m, 1 << 23), as_bits(e, small), y);
    LLVMValueRef sign = up(e, and_with(e, x, 0x8000), 16);
    return as_float(e, LLVMBuildOr(e->b, y, sign, ""));
}

/* Magnitudes in three ranges. Below 2^-14 (a denormal f16): adding 1/2, whose last place is 2^-24,
 * lets the float unit round. Below 2^16: half of the last place less one, plus the last kept bit,
 * carries where rounding to even goes up, into infinity too. Above: infinity, or a quiet NaN. */
static LLVMValueRef narrow_by_bits(hcg_emit *e, LLVMValueRef x) {
    const uint64_t half = 126u << 23, normal = 113u << 23, over = 143u << 23;
    LLVMValueRef bits = as_bits(e, x), m = and_with(e, bits, 0x7fffffff);
    LLVMValueRef shifted = hcg_fadd(e, as_float(e, m), hcg_real_like(LLVMTypeOf(x), 0.5));
    LLVMValueRef small = LLVMBuildSub(e->b, as_bits(e, shifted), ints(m, half), "");
    LLVMValueRef odd = and_with(e, down(e, m, 13), 1);
    LLVMValueRef rounded =
        down(e, LLVMBuildAdd(e->b, plus(e, m, (uint64_t)0xfff - REBIAS), odd, ""), 13);
    LLVMValueRef finite = less(e, m, 0x7f800001);
    LLVMValueRef large = choose(e, finite, ints(m, 0x7c00), ints(m, 0x7e00));
    LLVMValueRef y = choose(e, less(e, m, over), rounded, large);
    y = choose(e, less(e, m, normal), small, y);
    LLVMValueRef sign = and_with(e, down(e, bits, 16), 0x8000);
    return to_i16(e, LLVMBuildOr(e->b, y, sign, ""));
}

/* ---- bf16 ------------------------------------------------------------------------------------ */
static LLVMValueRef widen_bf16(hcg_emit *e, LLVMValueRef stored) {
    LLVMTypeRef wide = hcg_like(LLVMTypeOf(stored), e->i32);
    return as_float(e, up(e, LLVMBuildZExt(e->b, stored, wide, ""), 16));
}

/* What x was widened from, which needs no rounding; NULL if it was not widened. */
static LLVMValueRef widened_from(LLVMValueRef x) {
    LLVMValueRef shift = LLVMIsABitCastInst(x) ? LLVMGetOperand(x, 0) : NULL;
    if (!shift || !LLVMIsAInstruction(shift) || LLVMGetInstructionOpcode(shift) != LLVMShl)
        return NULL;
    LLVMValueRef whole = LLVMGetOperand(shift, 0);
    if (!LLVMIsAZExtInst(whole) || LLVMGetOperand(shift, 1) != ints(whole, 16)) return NULL;
    return LLVMGetOperand(whole, 0);
}

/* Vectors are rounded by one instruction, which takes denormals for zero, as kernels may. */
static bool has_bf16(const hcg_emit *e, LLVMTypeRef type) {
    return hcg_lanes(type) &&
           (hcg_has_feature(e->level, "avx512bf16") || hcg_has_feature(e->level, "bf16"));
}

/* 0x7fff plus the last kept bit carries exactly where rounding to even goes up. */
static LLVMValueRef narrow_bf16(hcg_emit *e, LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x);
    LLVMValueRef stored = widened_from(x);
    if (stored && LLVMTypeOf(stored) == hcg_like(type, e->i16)) return stored;
    if (has_bf16(e, type)) {
        LLVMTypeRef half = hcg_like(type, LLVMBFloatTypeInContext(e->cx));
        x = LLVMBuildFPTrunc(e->b, x, half, "");
        return LLVMBuildBitCast(e->b, x, hcg_like(type, e->i16), "");
    }
    LLVMValueRef bits = as_bits(e, x), odd = and_with(e, down(e, bits, 16), 1);
    LLVMValueRef rounded = down(e, LLVMBuildAdd(e->b, plus(e, bits, 0x7fff), odd, ""), 16);
    LLVMValueRef quiet = LLVMBuildOr(e->b, down(e, bits, 16), ints(bits, 0x40), "");
    LLVMValueRef number = less(e, and_with(e, bits, 0x7fffffff), 0x7f800001);
    return to_i16(e, choose(e, number, rounded, quiet));
}

/* ---- any dtype ------------------------------------------------------------------------------- */

LLVMValueRef hcg_widen(hcg_emit *e, hir_dtype dtype, LLVMValueRef stored) {
    LLVMTypeRef type = LLVMTypeOf(stored);
    if (dtype == HIR_BF16) return widen_bf16(e, stored);
    if (dtype == HIR_I32) return LLVMBuildSIToFP(e->b, stored, hcg_like(type, e->f32), "");
    if (dtype != HIR_F16) return stored;
    if (!hcg_has_f16(e->level)) return widen_by_bits(e, stored);
    LLVMTypeRef half = hcg_like(type, LLVMHalfTypeInContext(e->cx));
    stored = LLVMBuildBitCast(e->b, stored, half, "");
    return LLVMBuildFPExt(e->b, stored, hcg_like(type, e->f32), "");
}

LLVMValueRef hcg_narrow(hcg_emit *e, hir_dtype dtype, LLVMValueRef x) {
    LLVMTypeRef type = LLVMTypeOf(x);
    if (dtype == HIR_BF16) return narrow_bf16(e, x);
    if (dtype == HIR_I32) return LLVMBuildFPToSI(e->b, x, hcg_like(type, e->i32), "");
    if (dtype != HIR_F16) return x;
    if (!hcg_has_f16(e->level)) return narrow_by_bits(e, x);
    LLVMTypeRef half = hcg_like(type, LLVMHalfTypeInContext(e->cx));
    return LLVMBuildBitCast(e->b, LLVMBuildFPTrunc(e->b, x, half, ""), hcg_like(type, e->i16), "");
}
