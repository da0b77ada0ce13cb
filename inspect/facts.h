/* Facts about a module, from its IR alone: sizes, work, op counts, and the memory plan in short. */
#ifndef INSPECT_FACTS_H
#define INSPECT_FACTS_H

#include "inspect/layers.h"
#include "inspect/memory_plan.h"

typedef struct module_facts {
    uint64_t parameters; /* elements of the weights that ops read */
    uint64_t active;  /* of them, those of the experts that no choice of a token takes left out */
    uint32_t tensors; /* such weights */
    uint32_t unused;  /* weights that a checkpoint may hold and no op reads */
    uint64_t weight_bytes; /* as stored: dtype, and panels filled up to whole ones */
    uint64_t dtype_bytes[HIR_DTYPE_COUNT]; /* the same for each type of storage */
    uint64_t state_bytes;                  /* per position, all caches */
    uint64_t fixed_state_bytes;            /* windows and carries */
    double linear_flops;                   /* per token: 2 N K for each row of each linear */
    double attention_flops;                /* per token and position it looks at: 2 H (n + m) */
    uint32_t ops[HIR_OPCODE_COUNT];        /* those in kernel bodies counted too */
    uint32_t total_ops;                    /* without the kernels themselves */
} module_facts;
void facts_count(const hir_module *m, module_facts *out);

typedef struct facts_value { /* an input or an output */
    const char *name;
    hir_type type;
} facts_value;
typedef struct facts_work { /* of a token behind so many positions */
    int positions;
    double flops;
} facts_work;
enum { FACTS_POSITIONS = 5 };

/* A model as loaded and as it stands; storage and the plan are those of the latter. */
typedef struct facts {
    const hir_module *graph, *now;
    HD_VEC(facts_value) inputs, outputs;
    module_facts as_loaded, as_now;
    bool lowered; /* passes have brought it to another stage */
    facts_work work[FACTS_POSITIONS];
    layers layers; /* as it stands */
    memory_plan plan;
} facts;
bool facts_collect(const inspect_subject *s, facts *out);
void facts_text(const facts *x, hd_text *out);
void facts_json(const facts *x, hd_text *out);

#endif
