/* Elements of a checkpoint in the storage dtype of a weight. */
#ifndef HCG_CONVERT_H
#define HCG_CONVERT_H

#include "ir/ir.h"
#include "support/tensorfile.h"

bool hcg_is_head(const char *name); /* is `name` a usual name of an output head? */
/* Matrix `i` of a weight [.., N, K] as a tensor [N, K], which is a whole tensor of the checkpoint
 * or some rows of one. */
int64_t hcg_matrices(const hir_weight *w);
hd_tensor hcg_find_matrix(hd_arena *a, const hd_tensors *weights, const hir_weight *w, int64_t i);

/* Reports a weight of which the storage type cannot hold some number of t: which is the first, and
 * where. Returns false. */
bool hcg_reject_values(hd_diags *d, const hir_weight *w, const hd_tensor *t);

/* The same for a part of a tensor, whose element 0 is element `first` of `whole`. */
bool hcg_reject_part(hd_diags *d, const hir_weight *w, const hd_tensor *t, const hd_tensor *whole,
                     uint64_t first);

/* Converts elements first .. first+n-1, rounded once to nearest even. The dtype was checked before.
 * False: one of them is not finite, already in the checkpoint or because it is too large for `to`.
 */
bool hcg_convert(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, void *out);

#endif
