/* What a kernel reads from outside of it, each value once, for the ledgers: the forward and the
 * backward one walk over bodies in ways of their own, and charge what they have noted here.
 */
#ifndef HIR_PASSES_KERNEL_READS_H
#define HIR_PASSES_KERNEL_READS_H

#include "ir/ir.h"

typedef struct hir_kernel_read { /* of one value */
    hir_id value;
    unsigned bits;   /* of the ledger: what it is read for */
    bool whole;      /* not in slices alone */
    uint64_t sliced; /* elements of distinct slices */
    HD_VEC(const hir_op *) slices;
} hir_kernel_read;

typedef struct hir_kernel_reads {
    const hir_module *m;
    hd_arena *arena;
    uint32_t *number; /* by value: 1 + index into list */
    HD_VEC(hir_kernel_read) list;
} hir_kernel_reads;

hir_kernel_reads hir_kernel_reads_new(const hir_module *m, hd_arena *a);
/* The value is read by op o: as a slice, if that is what o is; else, and if o is NULL, as a whole. */
void hir_note_read(hir_kernel_reads *all, hir_id value, const hir_op *o, unsigned bits);
/* Elements of a token that the read takes from memory. */
uint64_t hir_elements_read(const hir_kernel_reads *all, const hir_kernel_read *r);
void hir_forget_reads(hir_kernel_reads *all); /* before the next kernel */

/* The value from outside of the kernel that a value is, looking through reshapes in the body;
 * HIR_NONE: the body computes it. */
hir_id hir_outer_value(const hir_module *m, hir_id kernel, hir_id v);

#endif
