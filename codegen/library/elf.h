/* Several relocatable objects into one, without a linker. */
#ifndef HCG_ELF_H
#define HCG_ELF_H

#include "support/file.h"

/* The sections of all parts stand one after the other, under their own names; symbols of one name
 * are one. Only what LLVM writes for this compiler is understood: 64-bit little-endian ELF without
 * groups. Anything else is a diagnostic (a defect). The result lives in the arena. */
bool hcg_merge_objects(hd_arena *a, hd_diags *d, const hd_bytes *parts, size_t n, hd_bytes *out);

#endif
