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

enum { MACHINE_PROMPT = 512, MACHINE_TOKENS = 640 }; /* of a prompt; of a session at most */

typedef struct machine_model {
    hadal_session *s; /* its own session: what fails in it is no failure of the command */
    api_library library;
    const hcg_program *program;
    bool rounds_int8, rounds_bf16; /* are activations rounded to these, where the matrix allows? */
} machine_model;

/* Compiles the model for `cpu` ("native", or a level), fills its weights with noise, and opens it.
 * False: m->s has the reason. The files are removed from `folder` before it returns. */
bool machine_model_open(machine_model *m, machine_model_id id, const char *cpu, const char *folder,
                        int threads);
void machine_model_close(machine_model *m);
const char *machine_model_failure(const machine_model *m, hd_arena *a);

#endif
