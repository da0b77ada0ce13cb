/* Units that were translated before, in the folder that HADAL_CODE_CACHE names; none without it. */
#ifndef HCG_CODE_CACHE_H
#define HCG_CODE_CACHE_H

#include "codegen/module/module.h"

typedef struct hcg_cached {
    const char *path; /* of the entry; NULL: there is no cache */
} hcg_cached;

/* The entry for the module, which is finished. False and a diagnostic: the folder is no cache. */
bool hcg_cache_entry(hcg_llvm *l, hcg_cached *out);
/* Its object; NULL: there is none yet, or what is there is damaged. */
LLVMMemoryBufferRef hcg_cache_read(const hcg_cached *e);
/* Adds it. False and a diagnostic: it cannot be written. */
bool hcg_cache_write(hcg_llvm *l, const hcg_cached *e, LLVMMemoryBufferRef object);

#endif
