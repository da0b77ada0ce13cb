/* The two kernel forms of latent attention (latent.c, latent_expanded.c): what they read of an
 * op. */
#ifndef HCG_LATENT_H
#define HCG_LATENT_H

#include "codegen/attention/query_tile.h"

typedef struct hcg_latent {
    hcg_attention a;           /* heads, options and result; its k and v are not set */
    hcg_cache state[2];        /* the state of the latent; that of the part that heads share, which
                                  may be the same */
    bool shared;               /* is there a part that heads share? */
    LLVMValueRef q_shared;     /* [T][H][m] */
    int64_t r, m;              /* elements of both */
    int64_t start;             /* the latent's first in a row of its state */
    int64_t groups, shared_at; /* latents of a position; where the other part begins */
    unsigned shared_state;     /* number in `state` */
} hcg_latent;

/* q, rows, q_shared and shared are the operands of op `id` from `first` on; `sink` and the bias
 * are operands from `sink` on. False, with a diagnostic, where an operand is not where it should
 * be. */
bool hcg_find_latent(hcg_emit *e, const hcg_kernel *k, hir_id id, uint32_t first, uint32_t sink,
                     int64_t r, hcg_latent *out);

#endif
