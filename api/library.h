/* A compiled model, opened with dlopen: its functions, the facts that it states about itself, and a
 * session in memory of its own. Failures are diagnostics in the compiler's session. */
#ifndef API_LIBRARY_H
#define API_LIBRARY_H

#include "api/session.h"
#include "hadal/hadal_comm.h"
#include "inspect/steps.h"

/* The work of a step, and of all steps, in a whole call of n tokens, summed over its passes. */
step_work api_step_work(const hd_info *i, size_t step, int64_t n, int64_t past, int64_t asked);
step_work api_call_work(const hd_info *i, int64_t n, int64_t past, int64_t asked);

/* The functions of a generated library, whose names have the model's prefix. */
#define API_LIBRARY_FUNCTIONS(F)                                                                   \
    F(weights_open, int, (const char *path, void **out))                                           \
    F(weights_read, int, (const char *path, void **out))                                           \
    F(weights_close, void, (void *w))                                                              \
    F(session_size, size_t, (int64_t max_tokens))                                                  \
    F(session_set_threads, int, (void *s, int threads))                                            \
    F(session_set_cpu, int, (void *s, const char *level))                                          \
    F(session_rewind, int, (void *s, int64_t length))                                              \
    F(session_save_size, size_t, (const void *s))                                                  \
    F(session_save, int, (void *s, void *memory, size_t size))                                     \
    F(session_restore, int, (void *s, const void *memory, size_t size))                            \
    F(session_cpu, const char *, (const void *s))                                                  \
    F(session_machine, const char *, (const void *s))                                              \
    F(session_message, const char *, (const void *s))                                              \
    F(session_profile, int, (void *s, step_time *steps, size_t n))                                 \
    F(forward, int, (void *s, const int32_t *tokens, int64_t n, float *logits, int64_t rows))      \
    F(strerror, const char *, (int code))

typedef struct api_library {
    hadal_session *s;
    const char *path;
    const hd_info *info;
    void *handle, *weights, *session, *memory;
    size_t memory_bytes;
    /* The session may hold far fewer tokens than it has room for. Otherwise its memory lies in huge
     * pages, each of which is resident as a whole. */
    bool room_to_spare;
    /* One of the two is NULL: session_init_on is that of a library divided over ranks. */
    int (*session_init)(void *mem, size_t size, const void *w, int64_t max, void **out);
    int (*session_init_on)(void *mem, size_t size, const void *w, int64_t max,
                           const struct hadal_comm *comm, int64_t timeout_ns, void **out);
    int (*forward_outputs)(void *s, const int32_t *tokens, int64_t n, float *const *outs,
                           int64_t rows); /* NULL: the model has one output */
    int (*loss)(void *s, const int32_t *tokens, const int32_t *targets, int64_t n,
                float *losses); /* NULL: the library was compiled without --loss */
#define F(name, result, arguments) result(*name) arguments;
    API_LIBRARY_FUNCTIONS(F)
#undef F
} api_library;

/* The name of the model in DIR/libNAME.so; NULL, and a diagnostic, if the file is called
 * otherwise. */
const char *api_library_model(hadal_session *s, const char *path);
size_t api_logits_row(const hd_info *i); /* floats of the first output per token */

/* Opens the library at `path`, of a model called `model`. */
bool api_library_open(api_library *l, hadal_session *s, const char *path, const char *model);
/* How the build id of a file of weights relates to that of the library. */
typedef enum api_kinship {
    API_SAME_BUILD,
    API_OTHER_VALUES, /* packed for the same program from other values, perhaps by hadal pack */
    API_OTHER_BUILD,
    API_UNKNOWN_BUILD /* from an older Hadal, or damaged */
} api_kinship;
/* Is it the name of a CPU level of the architecture? False: there is a diagnostic. */
bool api_is_level_of(hadal_session *s, const char *level, const char *arch);
/* "level amx: the CPU lacks amx-tile"; NULL: the machine lacks nothing, or there is no such level. */
const char *api_what_level_lacks(hd_arena *a, const char *level);
/* The build id of a file of weights; "" if the file has none. NULL, and a diagnostic, if it cannot
 * be read. */
const char *api_weights_build_id(hadal_session *s, const char *path);
api_kinship api_library_kinship(const api_library *l, const char *build_id);
/* Maps or reads the weights (hadal_weights_load), or this rank's share of them, and says so if they
 * were not made with the library. */
bool api_library_weights(api_library *l, const char *path);
/* Makes a session of up to max_tokens tokens in fresh memory, in huge pages unless there is
 * room_to_spare; pages that are not used are never touched. */
bool api_library_session(api_library *l, int64_t max_tokens);
/* Sets the session's CPU level; NULL: leaves it. A level that the library does not have is a usage
 * error; one that this machine cannot run is a runtime error. */
bool api_library_level(api_library *l, const char *level);
/* Opens weights and session, with the requested threads (0: default) and CPU level (NULL: best). */
bool api_library_start(api_library *l, const char *packed, int64_t max_tokens, int threads,
                       const char *cpu_level);
/* Frees session, weights and library, as far as they are open. */
void api_library_end_session(api_library *l);
void api_library_close(api_library *l);
/* False, and a diagnostic, if `code` is an error of the library. */
bool api_library_ok(api_library *l, int code, const char *what);
/* The same of a file of weights: why it cannot be opened, and what makes one that can. */
bool api_weights_ok(api_library *l, int code, const char *path);

#endif
