/* The backward direction of the ledger: reads and writes of the residual mechanism in the
 * backward half of a step, per token, counted from the IR itself by the rules of ledger.h. What
 * the loss does not need is of the backward half, wherever it is computed: rows that a kernel of
 * the forward half stores for it are charged as well. Layer inputs' gradients as contractions
 * write them, and gradients of outputs as contractions and sublayers read them, are the
 * sublayers' own traffic. */
#ifndef HIR_PASSES_BACKWARD_LEDGER_H
#define HIR_PASSES_BACKWARD_LEDGER_H

#include "passes/analysis/depth_backward.h"
#include "passes/analysis/ledger.h"

typedef enum hir_back_phase {
#define L(id, name, counted, meaning) HIR_BACK_PHASE_##id,
#include "passes/analysis/backward_phases.def"
#undef L
    HIR_BACK_PHASE_COUNT
} hir_back_phase;
const char *hir_back_phase_name(hir_back_phase p);
bool hir_back_phase_is_charged(hir_back_phase p);
bool hir_back_phase_is_counted(hir_back_phase p); /* the closed forms count it */

typedef struct hir_back_access {
    hir_id op; /* a kernel, or before the kernel stage an op */
    hir_id value;
    bool write;
    hir_back_phase phase;
    uint64_t bytes; /* per token */
} hir_back_access;

typedef struct hir_kept { /* bytes per token of what the backward half reads of the forward half */
    uint64_t sources;     /* the embedding, outputs and sums */
    uint64_t mixes;       /* mixes, or stacks of sources */
    uint64_t inputs;      /* of sublayers */
    uint64_t again;       /* rows that the forward half stores for the backward half alone */
    uint64_t numbers;
} hir_kept;

typedef struct hir_back_ledger {
    hir_backward back;
    HD_VEC(hir_back_access) accesses;
    hir_traffic phase[HIR_BACK_PHASE_COUNT];
    hir_traffic total;   /* all that is charged */
    hir_traffic counted; /* what the closed forms count */
    hir_kept kept;       /* in kernel IR */
} hir_back_ledger;

/* `l`: the ledger of the same module, whose data flow is that of the forward half. */
void hir_back_ledger_find(const hir_module *m, const hir_ledger *l, hd_arena *a,
                          hir_back_ledger *out);

#endif
