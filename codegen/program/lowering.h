/* The parts of hcg_lower (private to lower.c, ports.c, weights.c, steps.c, collectives.c). A
 * function that returns bool returns false after it has reported a diagnostic. */
#ifndef HCG_LOWERING_H
#define HCG_LOWERING_H

#include "codegen/program/keys.h"
#include "ir/kernel/kernels.h"
#include "passes/analysis/layer_passes.h"

typedef struct lowering {
    hd_arena *a;
    hd_diags *d;
    const hir_module *m;
    hcg_program *p;
    const hcg_use *uses;             /* by op */
    const hrt_condition *conditions; /* by op */
    const hir_layer_passes *passes;  /* NULL: no layer runs several times */
    hir_id loss_output;              /* HIR_NONE: there are no losses */
    uint64_t losses; /* number of the output that is the losses, which NAME_forward does not have;
                      * UINT64_MAX: there is none */
    uint64_t *parameter_offsets; /* with gradients: by weight */
    hrt_update *updates;         /* the same */
    hir_id matrix;               /* a kernel that makes the gradient of a matrix; HIR_NONE: none */
    bool *not_in_loss;           /* by op: kernels that do not run in calls for losses alone */
} lowering;

enum { LOWER_GRAIN = 16 }; /* rows of a chunk, where a kernel has no attribute for it */

/* The number that an output of the module has among those of NAME_forward. */
static inline uint64_t lower_output_number(const lowering *l, uint64_t number) {
    return number - (number > l->losses);
}

/* ---- lower.c --------------------------------------------------------------------------------- */
/* Bytes of one token's row, or of the whole tensor if there is no T. Returns false without a
 * diagnostic if the number overflows. */
bool lower_row_bytes(hir_type t, uint64_t *bytes);
hd_loc lower_place(const lowering *l, const hir_op *op);
bool lower_reject(lowering *l, hd_error code, hd_loc loc, const char *message,
                  const char *hint); /* always false */

/* ---- ports.c --------------------------------------------------------------------------------- */
bool lower_name(lowering *l);
bool lower_inputs(lowering *l);
bool lower_outputs(lowering *l);

/* ---- weights.c ------------------------------------------------------------------------------- */
bool lower_weights(lowering *l);
void lower_digest(lowering *l); /* after all weights are placed */

/* ---- parameters.c ---------------------------------------------------------------------------- */
/* The same for a program with gradients. */
bool lower_parameters(lowering *l);
void lower_gradients(lowering *l); /* where the outputs are added to */

/* ---- updates.c ------------------------------------------------------------------------------- */
void lower_choose_updates(lowering *l); /* before parameters have their places */
bool lower_updates(lowering *l);        /* after them, and after the kernels of steps */

/* ---- joined.c -------------------------------------------------------------------------------- */
/* Which rows of a parameter of Muon are a matrix of their own. */
void lower_joined(lowering *l);

/* ---- steps.c --------------------------------------------------------------------------------- */
bool lower_steps(lowering *l);
void lower_tiled(lowering *l); /* which of them go tile by tile */
/* In which calls a step runs, if not in all (hrt_condition.when): a kernel of the loss in those of
 * NAME_loss, what works for the logits alone in all others. */
uint32_t lower_calls_of(const lowering *l, hir_id kernel);
/* Finds the place of an operand of a step. c: the contraction that reads it, NULL: none does. */
bool lower_operand(lowering *l, hd_loc loc, hir_ref r, const hcg_contraction *c);

/* ---- conditions.c ---------------------------------------------------------------------------- */
/* The conditions of steps that run in some calls only, by the op of the kernel; zero for all other
 * ops. The module must be kernel IR whose memory is planned. */
const hrt_condition *hcg_find_conditions(hd_arena *a, const hir_module *m);

/* ---- collectives.c --------------------------------------------------------------------------- */
/* Is the kernel a step in which the runtime communicates with other ranks: no code, but a row of
 * hrt_model.collectives? */
static inline bool hcg_is_collective(const hir_module *m, hir_id kernel) {
    return hir_kind_of(hir_op_at(m, kernel)->code) == HIR_KERNEL_COMM;
}
/* Does the kernel run over the rows of this rank only? */
bool hcg_is_local(const hir_module *m, hir_id kernel);
bool lower_collective(lowering *l, hir_id kernel);
void lower_overlaps(lowering *l);
void lower_runs(lowering *l);

#endif
