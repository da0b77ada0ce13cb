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
    const hcg_contraction *const *contractions; /* hcg_program has them */
    hir_id *owner;      /* per value: the key whose arguments it was last seen in */
    uint32_t *local;    /* ... and its number there, or in the body */
    hir_id *seen_by[2]; /* the same for weights and for states: argument numbers */
    uint32_t *number[2];
    hir_id call;                     /* number of the key that is being made */
    bool without_sizes;              /* it leaves out N and K */
    uint32_t first_arg, first_value; /* of the part that it is of; 0: of all */
} hcg_keys;
hcg_keys *hcg_keys_new(hd_arena *a, const hir_module *m,
                       const hcg_contraction *const *contractions);

/* Finds the operands of a kernel and writes its body in canonical bytes: equal bytes, equal code.
 */
void hcg_kernel_key(hcg_keys *k, hir_id kernel, hcg_operands *operands, hd_text *key);

/* The same with sizes left out: equal bytes, code that differs in `size` alone. False: this kernel
 * has no such form. A contraction of one group of linears, without reshapes, in weights of f32 or
 * f16: N and, where x comes from outside, K. */
bool hcg_family_key(hcg_keys *k, hir_id kernel, hd_text *key, int64_t size[HCG_SIZES]);

/* What makes x of a contraction, in the same way: equal bytes, one function. Its operands are the
 * first of the kernel's. False: x comes from outside. */
bool hcg_prologue_key(hcg_keys *k, hir_id kernel, hd_text *key);
/* What becomes of x, the linear ops and what follows, with operands numbered from *first on:
 * whatever makes x reads those before. */
bool hcg_epilogue_key(hcg_keys *k, hir_id kernel, uint32_t *first, hd_text *key);

/* What a kernel calls. */
typedef struct hcg_use {
    uint32_t one, few, many; /* indices into program.kernels, for T = 1, a few and more */
    hcg_operands operands;
    int64_t size[HCG_SIZES]; /* the function's n_sizes, behind the operands */
    HD_VEC(hir_ref) runs;    /* operands behind the sizes (hcg_run) */
} hcg_use;
/* Fills p->kernels with the functions that the module's kernels need; what each calls, by the id of
 * its op. */
const hcg_use *hcg_share_kernels(hcg_program *p);

#endif
