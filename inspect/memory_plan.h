/* The memory plan of a module that plan-memory has seen: which value occupies which bytes of the
 * arena and of the fixed area. */
#ifndef INSPECT_MEMORY_PLAN_H
#define INSPECT_MEMORY_PLAN_H

#include "inspect/views.h"

typedef struct memory_plan_row {
    hir_id value;
    uint32_t number; /* as the printer numbers it */
    const char *kernel;
    uint64_t bytes;       /* per token, or in total for a value without dimension T */
    uint32_t first, last; /* kernel that makes the value, last one that reads it; counted from 0 */
    bool leaves;          /* an output of the program, or a state: it outlives the call */
    bool in_place;        /* aliases a value that its own kernel reads */
    hir_id over; /* the most recent earlier value whose bytes this one reuses, or HIR_NONE */
} memory_plan_row;

typedef struct memory_plan {
    const hir_module *m;
    HD_VEC(memory_plan_row) rows; /* in the order in which the values are made */
    uint32_t kernels;
    uint64_t unshared; /* bytes per token of an arena in which no bytes are reused */
    bool placed;       /* plan-memory has run */
} memory_plan;
void memory_plan_find(const hir_module *m, hd_arena *a, memory_plan *out);
bool memory_plan_collect(const inspect_subject *s, memory_plan *out);
void memory_plan_text(const memory_plan *plan, hd_text *out);
void memory_plan_json(const memory_plan *plan, hd_text *out);

#endif
