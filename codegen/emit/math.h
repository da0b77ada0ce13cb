/* Functions of one f32 argument as polynomials, for vectors and scalars alike, and the small LLVM
 * builders they are made of. Each states its error against the exact function;
 * tests/unit/codegen/emit/test_emit_math.c measures the bounds at every CPU level.
 *
 * x may be float or a vector of floats of any length; the result has its type.
 */
#ifndef HCG_EMIT_MATH_H
#define HCG_EMIT_MATH_H

#include "codegen/emit/emit.h"

#define HCG_LOG2_E 1.4426950408889634 /* 1 / ln 2 */

/* ---- builders over any width ----------------------------------------------------------------- */
/* Number of lanes of a vector type, 0 for a scalar. */
unsigned hcg_lanes(LLVMTypeRef type);
/* The type `elem` as a scalar, or as a vector as long as `like` is. */
LLVMTypeRef hcg_like(LLVMTypeRef like, LLVMTypeRef elem);
/* The floating or integer constant of (vector) type `type`. */
LLVMValueRef hcg_real_like(LLVMTypeRef type, double value);
LLVMValueRef hcg_int_like(LLVMTypeRef type, uint64_t value);
/* Calls the intrinsic `name` overloaded on `overloads`; only for intrinsics that the level has as
 * instructions or that the code generator expands without a call. */
LLVMValueRef hcg_intrinsic(hcg_emit *e, const char *name, const LLVMTypeRef *overloads, unsigned n,
                           const LLVMValueRef *args, unsigned n_args);
LLVMValueRef hcg_abs(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_sqrt(hcg_emit *e, LLVMValueRef x);
/* max and min that give NaN when either operand is NaN. */
LLVMValueRef hcg_max(hcg_emit *e, LLVMValueRef a, LLVMValueRef b);
LLVMValueRef hcg_min(hcg_emit *e, LLVMValueRef a, LLVMValueRef b);

/* ---- functions ------------------------------------------------------------------------------- */
/* hcg_exp is in emit.h */
/* e^x for x <= 0, error at most 2 ulp; 0 where e^x is no normal number; NaN for NaN. For x > 0 the
 * result is undefined. Two thirds of the work of hcg_exp. */
LLVMValueRef hcg_exp_not_positive(hcg_emit *e, LLVMValueRef x);
/* The same with less work and an error of at most 2 ulp and |x| 2^-23 of the result, so that it is
 * never off by more than 2^-23: for weights that are added to a weight of 1. */
LLVMValueRef hcg_exp_weight(hcg_emit *e, LLVMValueRef x);
/* 2^-w for w >= 0 of n vectors, in place and step by step: the latencies of one are filled with the
 * others. Never off by more than 2^-23; 0 where w > 126.5; NaN for NaN. */
enum { HCG_MOST_WEIGHTS = 4 };
void hcg_half_to_the(hcg_emit *e, LLVMValueRef *w, unsigned n);
LLVMValueRef hcg_log(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_tanh(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_sigmoid(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_silu(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_erf(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_gelu(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_gelu_tanh(hcg_emit *e, LLVMValueRef x);
LLVMValueRef hcg_softplus(hcg_emit *e, LLVMValueRef x);
/* sin and cos of an angle in f64 (scalar or vector of doubles), as f64. */
void hcg_sincos(hcg_emit *e, LLVMValueRef angle, LLVMValueRef *sine, LLVMValueRef *cosine);

#endif
