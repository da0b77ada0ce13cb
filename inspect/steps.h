/* The steps of a compiled model: the time that they took, and the work that they do. */
#ifndef INSPECT_STEPS_H
#define INSPECT_STEPS_H

#include "support/library_info.h"

typedef struct step_time { /* as hadal_profile_step */
    uint64_t calls, work_ns, wait_ns;
} step_time;

typedef struct step_work {
    double flops, bytes;
    double state_bytes;        /* part of `bytes`: states read, and states of fixed size written */
    double touched, untouched; /* experts: part of `bytes`; bytes of those that no row uses */
} step_work;
/* The share of the experts that at least one of the rows is expected to use, if all experts are
 * equally likely. */
double step_share_touched(uint64_t experts, uint64_t chosen, int64_t rows);
void step_work_add(step_work *sum, step_work w);
/* The work of one step in one pass of T tokens with `past` before them; the last `asked` rows of
 * logits are requested. */
step_work step_work_of(const hd_info_step *k, int64_t T, int64_t past, int64_t asked);

#endif
