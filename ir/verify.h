/* Verification with the locations of a text that was just parsed. */
#ifndef HIR_VERIFY_H
#define HIR_VERIFY_H

#include "ir/signature.h"

/* hir_verify, with errors at locs[op] instead of the op's own location (NULL: its own). */
bool hir_verify_at(const hir_module *m, hd_diags *d, const hd_loc *locs);

#endif
