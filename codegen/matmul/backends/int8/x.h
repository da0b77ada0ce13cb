/* A group of x as bytes, for the back ends that multiply bytes (matmul/groups.h): x ~ t p. All
 * round alike, so that they give the same bits. */
#ifndef HCG_INT8_X_H
#define HCG_INT8_X_H

#include "codegen/emit/emit.h"

typedef struct hcg_int8_x {
    LLVMValueRef step, of_x, start; /* f32 t; f32 t sum p; i32 -128 sum p */
    LLVMValueRef p[HIR_GROUP];      /* <lanes x i8>, in order */
} hcg_int8_x;
/* Of n elements at x; more than a group: whole. Elements beyond count as zeros. */
hcg_int8_x hcg_int8_round(hcg_emit *e, LLVMValueRef x, LLVMValueRef n);

#endif
