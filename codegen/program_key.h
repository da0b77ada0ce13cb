/* When are two kernels the same function? */
#ifndef HCG_PROGRAM_KEY_H
#define HCG_PROGRAM_KEY_H

#include "codegen/program.h"

typedef struct hcg_operands {
    HD_VEC(hir_ref) list; /* in argument order (program.h: hcg_kernel.operands) */
    uint32_t n_inputs;
} hcg_operands;

/* Numbers values inside kernels and kernels' operands; one for a whole module. */
typedef struct hcg_keys {
    hd_arena *arena;
    const hir_module *m;
    hir_id *owner;      /* per value: the kernel whose body or arguments it was last seen in */
    uint32_t *local;    /* ... and its number there */
    hir_id *seen_by[2]; /* the same for weights and for states: argument numbers */
    uint32_t *number[2];
} hcg_keys;
hcg_keys *hcg_keys_new(hd_arena *a, const hir_module *m);

/* Finds the operands of a kernel and writes its body in canonical bytes: equal bytes, equal code.
 */
void hcg_kernel_key(hcg_keys *k, hir_id kernel, hcg_operands *operands, hd_text *key);

#endif
