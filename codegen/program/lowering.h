/* hcg_lower in its parts (private to lower.c, ports.c, weights.c, steps.c, exchanges.c). What returns
 * bool returns false after a diagnostic. */
#ifndef HCG_LOWERING_H
#define HCG_LOWERING_H

#include "codegen/program/keys.h"
#include "ir/kernel/kernels.h"

typedef struct lowering {
    hd_arena *a;
    hd_diags *d;
    const hir_module *m;
    hcg_program *p;
    const hcg_use *uses;          /* per op */
    const hrt_condition *choices; /* likewise */
} lowering;

enum { LOWER_GRAIN = 16 }; /* rows, where a kernel does not say */

/* ---- lower.c --------------------------------------------------------------------------------- */
/* Bytes of one token's row; of everything where there is no T. False without one: they are too
 * many. */
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
void lower_digest(lowering *l); /* when all are placed */

/* ---- steps.c --------------------------------------------------------------------------------- */
bool lower_steps(lowering *l);
/* Where a step finds an operand; c: the contraction that reads it, NULL: none. */
bool lower_operand(lowering *l, hd_loc loc, hir_ref r, const hcg_contraction *c);

/* ---- choices.c ------------------------------------------------------------------------------- */
/* Steps that run in some calls only, by op: of kernels, those of other ops are zero. The module is
 * planned kernel IR. */
const hrt_condition *hcg_find_conditions(hd_arena *a, const hir_module *m);

/* ---- exchanges.c ----------------------------------------------------------------------------- */
/* Is the kernel a step of the runtime that exchanges values between ranks: no code, but a row of a
 * table? */
static inline bool hcg_is_collective(const hir_module *m, hir_id kernel) {
    return hir_kind_of(hir_op_at(m, kernel)->code) == HIR_KERNEL_COMM;
}
/* Does the kernel go over the rows of a rank? */
bool hcg_is_local(const hir_module *m, hir_id kernel);
bool lower_collective(lowering *l, hir_id kernel);
void lower_overlaps(lowering *l);
void lower_runs(lowering *l);

#endif
