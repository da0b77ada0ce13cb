/* Elements of a checkpoint in the storage dtype of a weight. */
#ifndef HCG_CONVERT_H
#define HCG_CONVERT_H

#include "ir/ir.h"
#include "support/tensorfile.h"

/* The tensors that a weight is in the checkpoint: one, or one for each entry of the first dim of a
 * stacked weight. A weight of one of them has its name and type. */
bool hcg_is_head(const char *name); /* is it what a head is called? */
int64_t hcg_parts(const hir_weight *w);
hir_weight hcg_part_of(hd_arena *a, const hir_weight *w, int64_t part);
/* Matrix `i` of a weight [.., N, K] as a tensor [N, K], which is a tensor of the checkpoint or some
 * rows of one. */
int64_t hcg_matrices(const hir_weight *w);
hd_tensor hcg_find_matrix(hd_arena *a, const hd_tensors *weights, const hir_weight *w, int64_t i);

/* Adds the error of a weight whose numbers, those of t, its storage cannot hold: which is the
 * first, and where. Gives false. */
bool hcg_reject_values(hd_diags *d, const hir_weight *w, const hd_tensor *t);

/* The same for a part of a tensor, whose element 0 is element `first` of the whole. */
bool hcg_reject_part(hd_diags *d, const hir_weight *w, const hd_tensor *t, const hd_tensor *whole,
                     uint64_t first);

/* Elements first .. first+n-1, rounded once to nearest even. The dtype was checked before. False:
 * one of them is not finite, in the checkpoint already or for being too large for `to`. */
bool hcg_convert(const hd_tensor *t, uint64_t first, uint64_t n, hir_dtype to, void *out);

#endif
