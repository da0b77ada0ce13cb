/* Sums over an axis that are written as sums of slices. A model whose user adds up streams one by
 * one then compiles to what the same model compiles to with one sum. */
#ifndef HIR_PASSES_SLICES_H
#define HIR_PASSES_SLICES_H

#include "passes/util.h"

/* What the summands are slices of, or a factor of them. */
typedef struct slice_factor {
    hir_ref whole;     /* of which summand i has slice i; or what all summands have; or none: */
    hir_ref *parts;    /* by summand: values of one type, which are no slices */
    hir_type type;     /* of `whole` in the product, or of a part */
    int64_t part_axis; /* of the stack of parts; below 0: there are none */
} slice_factor;

/* The sum over `axis` of one value, or of a product of two. */
typedef struct slice_sum {
    uint32_t n, axis;
    uint32_t n_factors;
    slice_factor factor[2];
} slice_sum;

/* Is `add` a sum, in any association, of all slices of a value along an axis, or of the products of
 * these with other slices or values? Operands are canonical. */
bool pass_find_slice_sum(const hir_module *m, hd_arena *a, hir_id add, slice_sum *out);

#endif
