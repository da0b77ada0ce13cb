/* Functions that the kernels of a variant share: emitted once, on first use, under a name that
 * states all that their code depends on. */
#ifndef HCG_SHARED_H
#define HCG_SHARED_H

#include "codegen/emit/emit.h"

enum { HCG_SHARED_PARAMS = 16 };
typedef struct hcg_shared {
    LLVMValueRef fn, param[HCG_SHARED_PARAMS];
    LLVMValueRef outer_fn; /* the function that was being emitted */
    LLVMBasicBlockRef outer_block;
    LLVMMetadataRef outer_loc;
} hcg_shared;
/* Is the function `name` (without the level) that of another level? */
bool hcg_has_same_code(const hcg_same_code *same, const char *name);
/* The symbol of a function: its name and the level whose code it is, with underscores for the
 * dashes in names of CPUs. */
const char *hcg_symbol(hd_arena *a, const hcg_level *level, const hcg_same_code *same,
                       const char *name);
/* The function `name` of the variant: true if it has to be emitted (the builder is in its entry
 * block until hcg_shared_end), false if it exists already, is emitted in another module of the
 * variant (hcg_emit.shared_elsewhere) or is that of another level (hcg_emit.same). The name states all that its code depends on. */
bool hcg_shared_begin(hcg_emit *e, const char *name, const LLVMTypeRef *params, unsigned n,
                      hcg_shared *s);
/* The same, where the caller knows whether this module holds it. */
bool hcg_shared_begin_if(hcg_emit *e, bool here, const char *name, const LLVMTypeRef *params,
                         unsigned n, hcg_shared *s);
/* The name of the shared function that LLVM's module has as `symbol`; NULL: it is no shared one. */
const char *hcg_shared_name(const char *symbol);
void hcg_shared_end(hcg_emit *e, hcg_shared *s); /* adds the return instruction */
void hcg_shared_call(hcg_emit *e, const hcg_shared *s, const LLVMValueRef *args, unsigned n);

#endif
