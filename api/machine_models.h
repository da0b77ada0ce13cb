/* Models that kernels are measured with, compiled for this machine. */
#ifndef API_MACHINE_MODELS_H
#define API_MACHINE_MODELS_H

#include "api/library.h"

typedef enum machine_model_id {
#define MODEL(id, name, hidden, ff, plain, attends, activations) MACHINE_MODEL_##id,
#include "api/machine_models.def"
#undef MODEL
    MACHINE_MODELS
} machine_model_id;

enum { MACHINE_PROMPT = 512, MACHINE_TOKENS = 640 }; /* of a prompt; that a session has room for */

typedef struct machine_model {
    hadal_session *s; /* of its own: what fails there is no failure of the command's */
    api_library library;
    const hcg_program *program;
    bool rounds_int8, rounds_bf16; /* activations, where the matrix allows it */
} machine_model;

/* Compiles, fills its weights with noise, and opens it. False: in m->s is why. The files are gone
 * from `folder` when it returns. */
bool machine_model_open(machine_model *m, machine_model_id id, const char *folder, int threads);
void machine_model_close(machine_model *m);
const char *machine_model_failure(const machine_model *m, hd_arena *a);

#endif
