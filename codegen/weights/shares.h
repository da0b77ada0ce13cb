/* The share of a weight that a rank has (support/share.h), read from the checkpoint some rows at a
 * time; the shares of other ranks are not read. */
#ifndef HCG_SHARES_H
#define HCG_SHARES_H

#include "ir/ir.h"
#include "support/tensorfile.h"

typedef struct hcg_share_reader hcg_share_reader;
/* `w`: a weight that is divided into shares; `whole`: its module with whole weights
 * (hir_with_whole_weights). */
hcg_share_reader *hcg_share_reader_new(hd_arena *a, const hir_module *whole, const hir_weight *w,
                                       const hd_tensors *weights, int64_t rank, size_t workers);
/* A tensor with numbers that are not finite, from which a derived weight is computed; NULL: none.
 */
const hd_tensor *hcg_share_fault(hcg_share_reader *r);
/* Reads elements first .. first + n - 1 of the rank's share, row-major, in f32. */
void hcg_read_share(hcg_share_reader *r, uint64_t first, uint64_t n, float *out);

/* May integers or NVFP4 of the checkpoint keep their codes (kept.h) in the rank's share as in the
 * whole: is the weight divided along groups? `most`: rows that are read at a time. */
bool hcg_share_keeps(hcg_share_reader *r, uint64_t most);
/* Rows first .. first + n - 1 of such a share, counted through all matrices, as a tensor of
 * integers or NVFP4, [n, K]; valid until the next call. */
hd_tensor hcg_read_share_codes(hcg_share_reader *r, uint64_t first, uint64_t n);

#endif
