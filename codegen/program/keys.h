/* When are two kernels the same function? */
#ifndef HCG_KEYS_H
#define HCG_KEYS_H

#include "codegen/program/program.h"
#include "ir/kernel/canonical.h"

/* Each of these functions leaves a canonical form in `c` (ir/kernel/canonical.h): kernels with
 * equal forms share a function. */

/* The form of a whole kernel, with its operands and results. */
void hcg_kernel_key(hir_canonical *c, hir_id kernel);

/* The same without sizes: kernels with equal forms have code that differs in `size` alone. False:
 * this kernel has no such form. The form exists for a contraction of one group of linears, without
 * reshapes, with weights of f32 or f16; its sizes are N and, where x comes from outside, K. */
bool hcg_family_key(hir_canonical *c, hir_id kernel, const hcg_contraction *of,
                    int64_t size[HCG_SIZES]);

/* The form of a contraction's prologue, which computes x. Its operands are the first ones of the
 * kernel. False: x comes from outside. */
bool hcg_prologue_key(hir_canonical *c, hir_id kernel, const hcg_contraction *of);
/* The form of the linear ops on x and of what follows them, with operands numbered from *first on:
 * the operands before *first belong to the prologue. False: it reads other values of the prologue
 * than x. */
bool hcg_epilogue_key(hir_canonical *c, hir_id kernel, uint32_t *first);

/* The functions that a kernel calls, and their arguments. */
typedef struct hcg_use {
    uint32_t function[HIR_KERNEL_PHASES]; /* indices into program.kernels */
    hir_operands operands;
    int64_t size[HCG_SIZES]; /* the function's n_sizes arguments, after the operands */
    HD_VEC(hir_ref) runs;    /* operands after the sizes (hcg_run) */
} hcg_use;
/* Fills p->kernels with the functions that the module's kernels need. Returns what each kernel
 * calls, indexed by its op. */
const hcg_use *hcg_share_kernels(hcg_program *p);

#endif
