/* When are two kernels the same function? */
#ifndef HCG_KEYS_H
#define HCG_KEYS_H

#include "codegen/program/program.h"
#include "ir/kernel/canonical.h"

/* Each of these leaves its form in `c` (ir/kernel/canonical.h): equal forms, one function. */

/* Of a whole kernel, with its operands and results. */
void hcg_kernel_key(hir_canonical *c, hir_id kernel);

/* The same with sizes left out: equal forms, code that differs in `size` alone. False: this kernel
 * has no such form. A contraction of one group of linears, without reshapes, in weights of f32 or
 * f16: N and, where x comes from outside, K. */
bool hcg_family_key(hir_canonical *c, hir_id kernel, const hcg_contraction *of,
                    int64_t size[HCG_SIZES]);

/* What makes x of a contraction. Its operands are the first of the kernel's. False: x comes from
 * outside. */
bool hcg_prologue_key(hir_canonical *c, hir_id kernel, const hcg_contraction *of);
/* What becomes of x, the linear ops and what follows, with operands numbered from *first on:
 * whatever makes x reads those before. False: it reads more than x of what is made in front. */
bool hcg_epilogue_key(hir_canonical *c, hir_id kernel, uint32_t *first);

/* What a kernel calls. */
typedef struct hcg_use {
    uint32_t function[HIR_KERNEL_PHASES]; /* indices into program.kernels */
    hir_operands operands;
    int64_t size[HCG_SIZES]; /* the function's n_sizes, behind the operands */
    HD_VEC(hir_ref) runs;    /* operands behind the sizes (hcg_run) */
} hcg_use;
/* Fills p->kernels with the functions that the module's kernels need; what each calls, by the id of
 * its op. */
const hcg_use *hcg_share_kernels(hcg_program *p);

#endif
