/* What the steps of a compiled model took in the calls of a run, prefill and decode apart. */
#ifndef API_PROFILE_H
#define API_PROFILE_H

#include "api/library.h"

typedef enum profile_phase_id { PROFILE_PREFILL, PROFILE_DECODE, PROFILE_PHASES } profile_phase_id;

typedef struct profile_phase { /* calls of more than one token; of one */
    uint64_t calls, tokens;
    double seconds;          /* on the wall, of all calls */
    api_profile_step *steps; /* [n_steps] */
    api_work *work;          /* [n_steps], of all calls */
} profile_phase;

typedef struct api_profile {
    const char *model, *cpu, *machine; /* machine: its facts as the library sees them, JSON */
    int threads;                       /* 0: the default */
    size_t n_steps, max_chunk;
    const api_step *steps; /* a copy: the library may be closed */
    profile_phase phases[PROFILE_PHASES];
} api_profile;

/* For the open session of a library. */
api_profile *api_profile_new(hd_arena *a, const api_library *l, int threads);
/* Before and after a call of n tokens behind `past` others, n rows of logits wanted. */
bool api_profile_start(api_profile *p, api_library *l, int64_t n);
void api_profile_end(api_profile *p, int64_t n, int64_t past);

typedef enum profile_form { PROFILE_TEXT, PROFILE_JSON, PROFILE_FOLDED } profile_form;
void api_profile_print(const api_profile *p, profile_form form, hd_text *out);

#endif
