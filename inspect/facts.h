/* Facts about a module, from its IR alone: sizes, work, op counts, and a summary of the memory
 * plan. */
#ifndef INSPECT_FACTS_H
#define INSPECT_FACTS_H

#include "inspect/layers.h"
#include "inspect/memory_plan.h"

typedef struct module_facts {
    uint64_t parameters; /* elements of the weights that ops read */
    uint64_t active;  /* of these, elements that one token reads: of experts only those it uses */
    uint32_t tensors; /* number of such weights */
    uint32_t unused;  /* weights that a checkpoint may hold and no op reads */
    uint64_t weight_bytes; /* as stored: in their dtype, with panels padded to whole ones */
    uint64_t dtype_bytes[HIR_DTYPE_COUNT]; /* weight_bytes by dtype */
    uint64_t state_bytes;                  /* per position, of all caches */
    uint64_t fixed_state_bytes;            /* of windows and carries: independent of the length */
    double linear_flops;                   /* per token: 2 N K for each row of each linear */
    double attention_flops;                /* per token and position attended to: 2 H (n + m) */
    uint32_t ops[HIR_OPCODE_COUNT];        /* by opcode; ops in kernel bodies are counted too */
    uint32_t total_ops;                    /* the kernels themselves are not counted */
} module_facts;
void facts_count(const hir_module *m, module_facts *out);

typedef struct facts_value { /* an input or an output */
    const char *name;
    hir_type type;
} facts_value;
typedef struct facts_work { /* of one token with so many positions before it */
    int positions;
    double flops;
} facts_work;
enum { FACTS_POSITIONS = 5 };

/* A model as loaded and as it stands now. Storage and the memory plan are those of the module as it
 * stands. */
typedef struct facts {
    const hir_module *graph, *now;
    HD_VEC(facts_value) inputs, outputs;
    module_facts as_loaded, as_now;
    bool lowered; /* passes have brought the module to a later IR stage than that of the model */
    facts_work work[FACTS_POSITIONS];
    layers layers; /* of the module as it stands */
    memory_plan plan;
} facts;
bool facts_collect(const inspect_subject *s, facts *out);
void facts_text(const facts *x, hd_text *out);
void facts_json(const facts *x, hd_text *out);

#endif
