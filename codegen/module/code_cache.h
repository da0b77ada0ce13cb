/* A cache of units that were translated before, in the directory that HADAL_CODE_CACHE names; there
 * is no cache without it. */
#ifndef HCG_CODE_CACHE_H
#define HCG_CODE_CACHE_H

#include "codegen/module/module.h"

typedef struct hcg_cached {
    const char *path; /* of the entry; NULL: there is no cache */
} hcg_cached;

/* Finds the entry for a finished module. False, with a diagnostic: the directory cannot be a cache.
 */
bool hcg_cache_entry(hcg_llvm *l, hcg_cached *out);
/* The object of the entry; NULL: there is none yet, or it is damaged. */
LLVMMemoryBufferRef hcg_cache_read(const hcg_cached *e);
/* Adds the object as this entry. False, with a diagnostic: it cannot be written. */
bool hcg_cache_write(hcg_llvm *l, const hcg_cached *e, LLVMMemoryBufferRef object);

#endif
