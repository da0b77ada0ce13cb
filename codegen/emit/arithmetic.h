/* Arithmetic without names for its results: of i64 (sizes, indices and offsets, which never
 * overflow) and of floats, scalars or vectors. */
#ifndef HCG_ARITHMETIC_H
#define HCG_ARITHMETIC_H

#include "codegen/emit/emit.h"

static inline LLVMValueRef hcg_add(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWAdd(e->b, a, b, "");
}

static inline LLVMValueRef hcg_sub(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWSub(e->b, a, b, "");
}

static inline LLVMValueRef hcg_mul(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildNSWMul(e->b, a, b, "");
}

static inline LLVMValueRef hcg_mul_const(hcg_emit *e, LLVMValueRef a, int64_t n) {
    return LLVMBuildNSWMul(e->b, a, hcg_i64(e, n), "");
}

/* a / b rounded up, for a >= 0 and b > 0. */
static inline LLVMValueRef hcg_divide_up(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildUDiv(e->b, hcg_add(e, a, hcg_sub(e, b, hcg_i64(e, 1))), b, "");
}

/* The address `bytes` after p. */
static inline LLVMValueRef hcg_at_byte(hcg_emit *e, LLVMValueRef p, int64_t bytes) {
    return hcg_at(e, e->i8, p, hcg_i64(e, bytes));
}

static inline LLVMValueRef hcg_fadd(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFAdd(e->b, a, b, "");
}

static inline LLVMValueRef hcg_fsub(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFSub(e->b, a, b, "");
}

static inline LLVMValueRef hcg_fmul(hcg_emit *e, LLVMValueRef a, LLVMValueRef b) {
    return LLVMBuildFMul(e->b, a, b, "");
}

#endif
