/* Shrinking a module while something stays true of it: proposals, which the caller takes or
 * refuses. Deterministic; every module taken is smaller than the one before, so that it ends. */
#ifndef HIR_REDUCE_H
#define HIR_REDUCE_H

#include "ir/ir.h"

typedef struct hir_reducer hir_reducer;

/* Works on a copy. NULL and a diagnostic when there is no memory. Everything is freed with `owner`,
 * whose guard receives exhaustion. */
hir_reducer *hir_reducer_new(const hir_module *m, hd_arena *owner, hd_diags *d);
/* The next proposal, legal and smaller than the best; NULL: there is none left. Valid until the
 * next call. */
const hir_module *hir_reducer_next(hir_reducer *r);
/* What became of the last proposal: taken, it is the best from now on. */
void hir_reducer_answer(hir_reducer *r, bool taken);
const hir_module *hir_reducer_best(const hir_reducer *r);

#endif
