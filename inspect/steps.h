/* The steps of a compiled model: the time that they took, and the work that they do. */
#ifndef INSPECT_STEPS_H
#define INSPECT_STEPS_H

#include "support/library_info.h"

typedef struct step_time { /* hadal_profile_step */
    uint64_t calls, work_ns, wait_ns;
} step_time;

typedef struct step_work {
    double flops, bytes;
    double state_bytes;        /* of these: states read, and those of fixed size left */
    double touched, untouched; /* experts: of these, and what no row is expected to choose */
} step_work;
/* Of the experts, the share that one of the rows has chosen: expected, if all are chosen alike. */
double step_share_touched(uint64_t experts, uint64_t chosen, int64_t rows);
void step_work_add(step_work *sum, step_work w);
/* One step in one pass of T tokens behind `past` others, the last `asked` rows of logits wanted. */
step_work step_work_of(const hd_info_step *k, int64_t T, int64_t past, int64_t asked);

#endif
