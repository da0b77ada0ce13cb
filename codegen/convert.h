/* Elements of a checkpoint in the storage dtype of a weight. */
#ifndef HCG_CONVERT_H
#define HCG_CONVERT_H

#include "ir/ir.h"
#include "support/tensorfile.h"

/* Adds the error of a weight whose numbers do not fit its storage; gives false. */
bool hcg_refuse_values(hd_diags *d, const hir_weight *w);

/* Elements first .. first+n-1, rounded once to nearest even. The dtype was checked before. */
void hcg_convert(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, void *out);

#endif
