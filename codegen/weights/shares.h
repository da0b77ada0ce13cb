/* The part of a weight that a rank has (support/share.h), read out of the checkpoint some rows at a
 * time: what other ranks have is not read. */
#ifndef HCG_SHARES_H
#define HCG_SHARES_H

#include "ir/ir.h"
#include "support/tensorfile.h"

typedef struct hcg_share_reader hcg_share_reader;
/* `w`: a weight with a share; `whole`: its module with whole weights (hir_with_whole_weights). */
hcg_share_reader *hcg_share_reader_new(hd_arena *a, const hir_module *whole, const hir_weight *w,
                                       const hd_tensors *weights, int64_t rank, size_t workers);
/* A tensor of numbers that are not finite, of which a derived weight is made; NULL: none. */
const hd_tensor *hcg_share_fault(hcg_share_reader *r);
/* Elements first .. first + n - 1 of the rank's part, row-major, in f32. */
void hcg_read_share(hcg_share_reader *r, uint64_t first, uint64_t n, float *out);

/* Integers of the checkpoint that keep their codes (kept.h) in the rank's part as in the whole: is
 * the part cut along groups? `most`: rows that are read at a time. */
bool hcg_share_keeps(hcg_share_reader *r, uint64_t most);
/* Rows first .. first + n - 1 of such a part, those of all matrices counted through, as a tensor of
 * integers, [n, K]; until the next call. */
hd_tensor hcg_read_share_codes(hcg_share_reader *r, uint64_t first, uint64_t n);

#endif
