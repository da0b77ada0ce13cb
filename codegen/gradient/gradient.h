/* What the kernels of gradients share.
 *
 * The tokens of a call are one sequence, T = C. What is summed over tokens is summed in their order
 * by the one thread that has the column, so that results do not depend on how many threads there
 * are. A result that is a gradient of the model (HIR_PLACE_GRADIENT) is added to what is there. */
#ifndef HCG_GRADIENT_H
#define HCG_GRADIENT_H

#include "codegen/emit/arithmetic.h"
#include "codegen/emit/emit.h"
#include "codegen/program/contraction.h"
#include "codegen/program/forms.h"

/* Where a gradient op of the kernel's body leaves its result. */
typedef struct hcg_gradient_result {
    LLVMValueRef at; /* NULL: nobody reads it */
    bool adds;       /* to what is there */
} hcg_gradient_result;
hcg_gradient_result hcg_find_gradient(hcg_emit *e, const hcg_kernel *k, hir_id op);
/* The gradient op of the kernel's body for operand `of`; HIR_NONE: there is none. And where it leaves
 * its result. */
hir_id hcg_gradient_of(const hir_module *m, hir_id kernel, const char *of);
hcg_gradient_result hcg_take_gradient(hcg_emit *e, const hcg_kernel *k, const char *of);
/* An operand of the op that was perhaps reshaped; NULL: it is left out. */
LLVMValueRef hcg_gradient_operand(hcg_emit *e, const hcg_kernel *k, const hir_op *op, uint32_t i);
/* A vector of elements that are summed, before the first token: what is at `p`, or zeros. n NULL: all
 * lanes. */
LLVMValueRef hcg_sum_begins(hcg_emit *e, const hcg_gradient_result *r, LLVMValueRef p,
                            LLVMValueRef n);

#endif
