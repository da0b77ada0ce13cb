/* What a trainer of a model with gradients has in memory, by the plan, before anything runs. */
#ifndef INSPECT_TRAINER_MEMORY_H
#define INSPECT_TRAINER_MEMORY_H

#include "codegen/program/program.h"

typedef struct trainer_memory {
    int64_t tokens;                 /* of the longest sequence */
    uint64_t parameters, gradients; /* in bytes, as all that follows */
    uint64_t moments;               /* of steps */
    uint64_t panels; /* what kernels read in another layout, made of the parameters */
    uint64_t states; /* keys and values, windows, carries */
    uint64_t arena;  /* values of a sequence, at most so many at once, */
    uint64_t kept;   /* and those of them that the backward half reads */
    uint64_t rest;   /* values without tokens, tables, what threads share */
    uint64_t all;    /* of the above */
    uint64_t thread; /* beside that, for each thread; 0 before code is generated */
} trainer_memory;

void trainer_memory_find(const hcg_program *p, int64_t tokens, hd_arena *a, trainer_memory *out);
/* "parameters 19.8 MiB, gradients 19.8 MiB, ..", and the members of a JSON object. */
const char *trainer_memory_text(const trainer_memory *x, hd_arena *a);
void trainer_memory_json(const trainer_memory *x, hd_text *out);

#endif
