/* Derived weights, made for the packer some rows at a time: products of a few vectors, or a stack
 * of matrices that takes gigabytes. */
#ifndef HCG_MADE_H
#define HCG_MADE_H

#include "ir/ir.h"
#include "support/tensorfile.h"

typedef struct hcg_maker hcg_maker;
/* `workers` threads make rows. */
hcg_maker *hcg_maker_new(hd_arena *a, const hir_module *m, const hir_weight *w,
                         const hd_tensors *weights, size_t workers);

/* A tensor of the checkpoint with numbers that are not finite, of which the weight is made: what
 * comes of them may be finite, but the evaluator does not read them. NULL: there is none. Tensors
 * that are packed as they are stored are not looked at. */
const hd_tensor *hcg_made_of_fault(hcg_maker *k);

/* Are rows first .. first + n - 1 a matrix as it lies in the checkpoint? Then it is given as a
 * tensor, [n, row], with the name of that which it is a part of. */
bool hcg_made_as_stored(const hcg_maker *k, uint64_t first, uint64_t n, hd_tensor *out);

/* Rows that are worth making at a time: as many as `bytes` of f32 hold, whole multiples of `step`
 * of them, at least one of these. A vector's rows have one element. */
uint64_t hcg_made_rows(const hcg_maker *k, uint64_t bytes, uint64_t step);
/* Rows first .. first + n - 1, those of all matrices counted through, in f32: the product in f64,
 * rounded once. */
void hcg_make_rows(hcg_maker *k, uint64_t first, uint64_t n, float *out);

#endif
