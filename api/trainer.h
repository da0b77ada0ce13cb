/* A trainer of a compiled library with gradients, opened with dlopen: its functions, and a trainer in
 * memory of its own. Failures are diagnostics in the compiler's session. */
#ifndef API_TRAINER_H
#define API_TRAINER_H

#include "api/session.h"
#include "hadal/hadal_comm.h"

typedef struct api_parameter { /* hadal_parameter of a generated header */
    const char *name, *type;
    float *values, *gradient;
    size_t elements;
    const char *update; /* how a step changes it, as runtime/hadal_rt.h has it */
} api_parameter;

typedef struct api_step_options { /* those of NAME_trainer_step */
    int64_t step;
#define O(name, value, least, most, meaning) double name;
#include "runtime/step_options.def"
#undef O
} api_step_options;

struct step_time; /* inspect/steps.h */

/* The functions of a generated library, whose names have the model's prefix. */
#define API_TRAINER_FUNCTIONS(F)                                                                   \
    F(trainer_size, size_t, (int64_t max_tokens))                                                  \
    F(trainer_init, int, (void *memory, size_t size, int64_t max_tokens, void **out))              \
    F(trainer_size_on, size_t, (int64_t max_tokens, const hadal_comm *comm))                       \
    F(trainer_init_on, int,                                                                        \
      (void *memory, size_t size, int64_t max_tokens, const hadal_comm *comm, int64_t timeout_ns,  \
       void **out))                                                                                \
    F(trainer_parameters, const api_parameter *, (void *t, size_t *n))                             \
    F(trainer_set_threads, int, (void *t, int threads))                                            \
    F(trainer_set_cpu, int, (void *t, const char *level))                                          \
    F(trainer_cpu, const char *, (const void *t))                                                  \
    F(trainer_machine, const char *, (const void *t))                                              \
    F(trainer_message, const char *, (const void *t))                                              \
    F(trainer_profile, int, (void *t, struct step_time *steps, size_t n))                          \
    F(gradients, int,                                                                              \
      (void *t, const int32_t *tokens, const int32_t *targets, const int64_t *lengths,             \
       int64_t sequences, double *sum, int64_t *count))                                            \
    F(trainer_loss, int,                                                                           \
      (void *t, const int32_t *tokens, const int32_t *targets, const int64_t *lengths,             \
       int64_t sequences, double *sum, int64_t *count))                                            \
    F(trainer_step, int, (void *t, const api_step_options *options, float *norm))                  \
    F(trainer_steps, int64_t, (const void *t))                                                     \
    F(trainer_clear, int, (void *t))                                                               \
    F(trainer_save_size, size_t, (const void *t))                                                  \
    F(trainer_save, int, (void *t, void *memory, size_t size))                                     \
    F(trainer_restore, int, (void *t, const void *memory, size_t size))                            \
    F(strerror, const char *, (int code))

typedef struct api_trainer {
    hadal_session *s;
    const char *path, *cpu_level; /* cpu_level: that is asked for; NULL: the best */
    void *handle, *memory, *at;
    size_t bytes, n;
    const api_parameter *parameters;
    size_t next; /* where the search for a name begins */
#define F(name, result, arguments) result(*name) arguments;
    API_TRAINER_FUNCTIONS(F)
#undef F
} api_trainer;

/* Opens the library at `path`, and makes a trainer for sequences of up to max_tokens tokens in fresh
 * memory. `threads` 0: default; `cpu_level` NULL: the best one. What is open is closed with the
 * session, or by api_trainer_close. Ranks of the session (hadal_use_ranks) share the trainer; a rank
 * without a library, `path` NULL, opens none, and neither do the others. */
bool api_trainer_open(api_trainer *t, hadal_session *s, const char *path, int64_t max_tokens,
                      int threads, const char *cpu_level);
/* The same of a trainer that is this rank's alone. */
bool api_trainer_open_alone(api_trainer *t, hadal_session *s, const char *path, int64_t max_tokens,
                            int threads, const char *cpu_level);
void api_trainer_close(api_trainer *t);
/* False, and a diagnostic, if `code` is an error of the library. */
bool api_trainer_ok(const api_trainer *t, int code, const char *what);
/* The parameter of that name; NULL: there is none. It is found at once where names are asked for in
 * the order of the parameters. */
const api_parameter *api_trainer_find(api_trainer *t, const char *name);
/* The parameters take the values of the session's weights, which fit the model. */
bool api_trainer_load(api_trainer *t);

#endif
