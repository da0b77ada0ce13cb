/* Elements of a checkpoint in the storage dtype of a weight. */
#ifndef HCG_CONVERT_H
#define HCG_CONVERT_H

#include "ir/ir.h"
#include "support/tensorfile.h"

/* Adds the error of a weight whose numbers, those of t, its storage cannot hold: which is the
 * first, and where. Gives false. */
bool hcg_refuse_values(hd_diags *d, const hir_weight *w, const hd_tensor *t);

/* Elements first .. first+n-1, rounded once to nearest even. The dtype was checked before. False:
 * one of them is not finite, in the checkpoint already or for being too large for `to`. */
bool hcg_convert(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, void *out);

#endif
