/* Numbers of 4 bits in vectors (matmul/fp4.h). */
#include "codegen/matmul/fp4.h"

#include <string.h>

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

enum {
    CODES = 16,
    TABLE_LANES = 16, /* bytes that a look-up of bytes chooses from */
};
static const int doubled[CODES] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* ---- scales ---------------------------------------------------------------------------------- */

/* The byte is the exponent of an f32, and 0 the one of 2^-127, a denormal: half of the least. */
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

LLVMValueRef hcg_fp4_scale(hcg_emit *e, LLVMValueRef group, unsigned v) {
    const unsigned lanes = e->level->lanes;
    LLVMTypeRef bytes = LLVMVectorType(e->i8, lanes);
    LLVMValueRef at = hcg_at_byte(e, group, (int64_t)v * lanes);
    LLVMValueRef s = LLVMBuildLoad2(e->b, bytes, at, "");
    LLVMSetAlignment(s, lanes);
    return power(e, LLVMBuildZExt(e->b, s, LLVMVectorType(e->i32, lanes), ""), e->vec);
}

LLVMValueRef hcg_fp4_scale_at(hcg_emit *e, LLVMValueRef at) {
    LLVMValueRef s = LLVMBuildLoad2(e->b, e->i8, at, "");
    LLVMSetAlignment(s, 1);
    return power(e, LLVMBuildZExt(e->b, s, e->i32, ""), e->f32);
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

/* Without a look-up: the size is 4 bits of a constant, which holds those of all eight. */
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

/* vpermps takes of an index the low bits alone: four with 16 lanes, three with 8. */
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
    const bool overloaded = n == TABLE_LANES; /* aarch64's: of either length */
    LLVMValueRef u = hcg_intrinsic(e, lookup, &bytes, overloaded, args, 2);
    return LLVMBuildBitCast(e->b, u, LLVMTypeOf(words), "");
}
