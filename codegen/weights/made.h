/* Derived weights, computed for the packer some rows at a time: products of a few vectors, or a
 * stack of matrices that takes gigabytes. */
#ifndef HCG_MADE_H
#define HCG_MADE_H

#include "ir/ir.h"
#include "support/tensorfile.h"

typedef struct hcg_maker hcg_maker;
/* `workers` threads compute rows. */
hcg_maker *hcg_maker_new(hd_arena *a, const hir_module *m, const hir_weight *w,
                         const hd_tensors *weights, size_t workers);

/* A tensor of the checkpoint with numbers that are not finite, from which the weight is computed.
 * The result may be finite all the same, but the evaluator rejects such tensors. NULL: there is
 * none. Tensors that are packed as they are stored are not checked here. */
const hd_tensor *hcg_made_of_fault(hcg_maker *k);

/* Are rows first .. first + n - 1 a matrix as stored in the checkpoint? Then *out is that matrix as
 * a tensor, [n, row], with the name of the tensor that it is a part of. */
bool hcg_made_as_stored(const hcg_maker *k, uint64_t first, uint64_t n, hd_tensor *out);

/* The number of rows to compute at a time: as many as `bytes` of f32 hold, in multiples of `step`,
 * at least one `step`. The rows of a vector have one element. */
uint64_t hcg_made_rows(const hcg_maker *k, uint64_t bytes, uint64_t step);
/* Computes rows first .. first + n - 1, counted through all matrices, in f32: the product is
 * computed in f64 and rounded once. */
void hcg_make_rows(hcg_maker *k, uint64_t first, uint64_t n, float *out);

#endif
