/* Elementwise ops of a kernel's body on one vector of a row [T, .., N]: the epilogues of
 * contractions and of sequence kernels. Operands are values that the kernel has just made,
 * constants, and tiles, rows of columns or numbers in memory. */
#ifndef HCG_VECTOR_OPS_H
#define HCG_VECTOR_OPS_H

#include "codegen/emit/emit.h"
#include "codegen/program/contraction.h"

typedef struct hcg_known_value {
    hir_ref ref; /* a body value, or an operand that is the same for all elements */
    LLVMValueRef v;
} hcg_known_value;

typedef struct hcg_vector_ops {
    hcg_emit *e;
    const hcg_kernel *k;
    const hir_id *ops; /* ops of the body, in order */
    size_t n_ops;
    const hcg_yield *yields; /* yields of those ops, and of given values */
    size_t n_yields;
    LLVMValueRef n; /* elements of a row */
    /* The fields of the present vector: */
    LLVMValueRef row, column; /* its row, and its first element there */
    LLVMValueRef valid;       /* lanes, NULL: all */
    HD_VEC(hcg_known_value) known;
    size_t n_constant; /* how many of `known` hold for all vectors */
} hcg_vector_ops;

/* Reads what holds for all vectors, at a place that dominates them. */
void hcg_vector_ops_begin(hcg_vector_ops *p);
/* Begins a new vector: row, column and valid are set, nothing is known of it. */
void hcg_vector_ops_next(hcg_vector_ops *p);
/* Sets a value that the kernel has made itself. */
void hcg_vector_ops_give(hcg_vector_ops *p, hir_id value, LLVMValueRef v);
/* Emits all ops, and the stores of what is yielded. */
void hcg_vector_ops_emit(hcg_vector_ops *p);
/* The present vector of a value that was set or emitted. */
LLVMValueRef hcg_vector_ops_value(const hcg_vector_ops *p, hir_ref r);

/* The present vector of an operand in memory, stretched as its type says. */
LLVMValueRef hcg_vector_operand(hcg_vector_ops *p, hir_ref r);

#endif
