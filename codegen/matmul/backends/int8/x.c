/* How the back ends that multiply bytes round a group of x (int8/x.h). */
#include "codegen/matmul/backends/int8/x.h"

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/math.h"

/* y to the nearest integer, |y| < 2^22: adding 1.5 2^23 leaves it in the low bits. */
static LLVMValueRef nearest(hcg_emit *e, LLVMValueRef y) {
    LLVMTypeRef ints = LLVMVectorType(e->i32, e->level->lanes);
    LLVMValueRef shifted = hcg_fadd(e, y, hcg_splat(e, 0x1.8p23));
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

hcg_int8_x hcg_int8_round(hcg_emit *e, LLVMValueRef x, LLVMValueRef n) {
    const unsigned lanes = e->level->lanes, vectors = HIR_GROUP / lanes;
    LLVMValueRef v[HIR_GROUP] = {NULL}, sum = NULL;
    hcg_int8_x g = {0};
    for (unsigned i = 0; i < vectors; i++) {
        LLVMValueRef left = hcg_sub(e, n, hcg_i64(e, i * lanes));
        v[i] = hcg_load(e, HIR_F32, hcg_at(e, e->f32, x, hcg_i64(e, i * lanes)), left);
    }
    LLVMValueRef most = largest(e, v, vectors), zero = LLVMConstReal(e->f32, 0);
    /* below, the inverse would not be finite; NaN is not below */
    LLVMValueRef small = LLVMBuildFCmp(e->b, LLVMRealOLT, most, LLVMConstReal(e->f32, 1e-30), "");
    LLVMValueRef t = hcg_fmul(e, most, LLVMConstReal(e->f32, 1.0 / 127));
    LLVMValueRef inverse = LLVMBuildFDiv(e->b, LLVMConstReal(e->f32, 127), most, "");
    g.step = LLVMBuildSelect(e->b, small, zero, t, "t");
    inverse = hcg_splat_value(e, LLVMBuildSelect(e->b, small, zero, inverse, ""));
    for (unsigned i = 0; i < vectors; i++) {
        LLVMValueRef p = nearest(e, hcg_fmul(e, v[i], inverse));
        sum = sum ? LLVMBuildAdd(e->b, sum, p, "") : p;
        g.p[i] = LLVMBuildTrunc(e->b, p, LLVMVectorType(e->i8, lanes), "");
    }
    LLVMTypeRef ints = LLVMTypeOf(sum);
    sum = hcg_intrinsic(e, "llvm.vector.reduce.add", &ints, 1, &sum, 1);
    g.of_x = hcg_fmul(e, LLVMBuildSIToFP(e->b, sum, e->f32, ""), g.step);
    g.start = hcg_mul(e, sum, LLVMConstInt(e->i32, (uint64_t)-128, true));
    return g;
}
