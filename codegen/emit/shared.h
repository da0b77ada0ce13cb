/* Functions that the kernels of a variant share: emitted once, on first use, under a name that says
 * all that their code depends on. */
#ifndef HCG_SHARED_H
#define HCG_SHARED_H

#include "codegen/emit/emit.h"

enum { HCG_SHARED_PARAMS = 16 };
typedef struct hcg_shared {
    LLVMValueRef fn, param[HCG_SHARED_PARAMS];
    LLVMValueRef outer_fn; /* what was being emitted */
    LLVMBasicBlockRef outer_block;
    LLVMMetadataRef outer_loc;
} hcg_shared;
/* The function `name` of the variant: true if it has to be written (the builder is in its entry
 * block until hcg_shared_end), false if it is there already, or made in another module of it
 * (hcg_emit.shared_elsewhere). The name says all that its code depends on. */
bool hcg_shared_begin(hcg_emit *e, const char *name, const LLVMTypeRef *params, unsigned n,
                      hcg_shared *s);
/* The same, where the caller knows whether this module holds it. */
bool hcg_shared_begin_if(hcg_emit *e, bool here, const char *name, const LLVMTypeRef *params,
                         unsigned n, hcg_shared *s);
/* Of the name of a function in LLVM's module: whether it is one of these, and of those one that
 * multiplies for contractions: these depend on types and levels alone, not on the model. */
bool hcg_is_shared(const char *symbol);
bool hcg_is_tile(const char *symbol);
/* Whether the code of such an op, in a row program or a prologue, may call one. */
bool hcg_op_calls_shared(hir_opcode code);
void hcg_shared_end(hcg_emit *e, hcg_shared *s); /* adds the return */
void hcg_shared_call(hcg_emit *e, const hcg_shared *s, const LLVMValueRef *args, unsigned n);

#endif
