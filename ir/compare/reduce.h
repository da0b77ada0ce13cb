/* Shrinking a module while a property holds (delta debugging): this makes proposals, the caller
 * tests each and accepts or rejects it. Deterministic; every accepted module is smaller than the
 * one before, so it terminates. */
#ifndef HIR_REDUCE_H
#define HIR_REDUCE_H

#include "ir/ir.h"

typedef struct hir_reducer hir_reducer;

/* Works on a copy. NULL and a diagnostic when memory runs out; later exhaustion goes to the guard
 * of `owner`. Everything is freed with `owner`. */
hir_reducer *hir_reducer_new(const hir_module *m, hd_arena *owner, hd_diags *d);
/* The next proposal, legal and smaller than the best so far; NULL: none left. Valid until the next
 * call. */
const hir_module *hir_reducer_next(hir_reducer *r);
/* Reports whether the last proposal has the property; if so it is the best from now on. */
void hir_reducer_answer(hir_reducer *r, bool taken);
const hir_module *hir_reducer_best(const hir_reducer *r);

#endif
