/* Numbers of 4 bits, E2M1, of weights in mxfp4 (weights/quant.h): as f32 and as bytes. They are
 * halves of whole numbers, 0 1 2 3 4 6 8 12 and their negatives: all that is computed with are
 * these, and scales are halved for it. Both are exact. */
#ifndef HCG_FP4_H
#define HCG_FP4_H

#include "codegen/emit/emit.h"

enum { HCG_FP4_ADDED = 12 }; /* to the bytes, so that none is negative */

/* 2^(s - 128) of rows v * lanes ..; of the row whose byte is at `at`, as a scalar. */
LLVMValueRef hcg_fp4_scale(hcg_emit *e, LLVMValueRef group, unsigned v);
LLVMValueRef hcg_fp4_scale_at(hcg_emit *e, LLVMValueRef at);
/* Twice the number of the code in bits shift .. shift + 3 of each i32; of one i32 as well. */
LLVMValueRef hcg_fp4_number(hcg_emit *e, LLVMValueRef words, unsigned shift);
/* Twice the numbers of codes in bytes, HCG_FP4_ADDED added; `lookup` as in int8/group.h.
 * Words of four bytes. */
LLVMValueRef hcg_fp4_bytes(hcg_emit *e, const char *lookup, LLVMValueRef words);

#endif
