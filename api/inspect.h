/* Facts about a module, worked out from its IR alone, and the memory plan as a table. */
#ifndef HADAL_INSPECT_H
#define HADAL_INSPECT_H

#include "ir/ir.h"

typedef struct hir_facts {
    uint64_t parameters;   /* elements of the weights that ops read */
    uint32_t tensors;      /* such weights */
    uint32_t unused;       /* weights that a checkpoint may hold and no op reads */
    uint64_t weight_bytes; /* as stored: dtype, and panels filled up to whole ones */
    uint64_t dtype_bytes[HIR_DTYPE_COUNT]; /* the same for each type of storage */
    uint64_t state_bytes;                  /* per position, all caches */
    uint64_t fixed_state_bytes;            /* windows and carries */
    double linear_flops;                   /* per token: 2 N K for each row of each linear */
    double attention_flops;                /* per token and position it looks at: 2 H (n + m) */
    uint32_t ops[HIR_OPCODE_COUNT];        /* those in kernel bodies counted too */
    uint32_t total_ops;                    /* without the kernels themselves */
} hir_facts;
void hir_collect_facts(const hir_module *m, hir_facts *out);

/* What occupies the arena and the fixed area of a module that plan-memory has seen. */
typedef struct hir_plan_row {
    hir_id value;
    uint32_t number; /* as the printer numbers it */
    const char *kernel;
    uint64_t bytes;       /* of one token, or of all for a value without T */
    uint32_t first, last; /* kernel that makes it, last kernel that reads it; counted from 0 */
    bool leaves;          /* an output of the program, or state: outlives the call */
    bool in_place;        /* over a value that its own kernel reads */
    hir_id over; /* the value made last before this one whose bytes it takes over, or HIR_NONE */
} hir_plan_row;
typedef struct hir_plan {
    HD_VEC(hir_plan_row) rows; /* in order of making */
    uint32_t kernels;
    uint64_t unshared; /* bytes per token that the arena would have if nothing were reused */
    bool placed;       /* plan-memory has run */
} hir_plan;
void hir_collect_plan(const hir_module *m, hd_arena *a, hir_plan *out);

/* `graph`: the module as loaded. `now`: as it stands after passes (NULL or the same module: none
 * have run); storage and the plan are read off it. `json`: one object, else text for people. */
void hir_inspect_text(const hir_module *graph, const hir_module *now, bool json, hd_text *out);

const char *inspect_bytes(hd_arena *a, uint64_t bytes); /* "1.50 MiB" */

/* Table of all that kernels leave behind: place, size, life, and what it is laid over. */
void hir_plan_text(const hir_module *m, hd_text *out);

#endif
