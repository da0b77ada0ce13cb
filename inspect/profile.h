/* What the steps of a compiled model took in the calls of a run, for prefill and decode separately.
 *
 * A step is one line of the kernel IR. Steps of one name share their code: they are one kernel.
 * Time is that which passed on the first thread: its own share of the work and the wait for the
 * other threads. The rest of a call's time (checks, starting threads) is shown as such. */
#ifndef INSPECT_PROFILE_H
#define INSPECT_PROFILE_H

#include "inspect/steps.h"
#include "inspect/views.h"

#define PROFILE_SCHEMA "hadal-profile-1" /* of its JSON */

typedef enum profile_phase_id { PROFILE_PREFILL, PROFILE_DECODE, PROFILE_PHASES } profile_phase_id;

typedef struct profile_phase { /* calls of more than one token, or calls of one */
    uint64_t calls, tokens;
    double seconds;   /* wall-clock time of all calls */
    step_time *steps; /* [n_steps] */
    step_work *work;  /* [n_steps], summed over all calls */
} profile_phase;

typedef struct profile {               /* filled during a run */
    const char *model, *cpu, *machine; /* machine: its facts as the library detected them, JSON */
    int threads;                       /* 0: the default */
    bool training; /* of a trainer: its steps are those of PROFILE_PREFILL, with their sequences */
    size_t n_steps, max_chunk;
    const hd_info_step *steps; /* a copy, since the library may be closed */
    profile_phase phases[PROFILE_PHASES];
} profile;

typedef struct profile_entry { /* one step, or all steps of one kernel */
    const hd_info_step *step;
    uint64_t calls, work_ns, wait_ns;
    step_work work;
} profile_entry;

typedef struct profile_table { /* of one phase; the longest entry first */
    const char *name;
    const profile_phase *phase;
    profile_entry *kernels, *lines;
    size_t n_kernels, n_lines;
    profile_entry total;
} profile_table;

typedef struct profile_tables {
    const profile *of;
    profile_table phases[PROFILE_PHASES];
} profile_tables;

double profile_nanoseconds(const profile_entry *e); /* work and wait */
/* Fills the tables from s->profile, which must be set, in the subject's arena. The result is always
 * true; the table of views wants one. */
bool profile_collect(const inspect_subject *s, profile_tables *out);
void profile_text(const profile_tables *x, hd_text *out);
void profile_json(const profile_tables *x, hd_text *out);
void profile_folded(const profile_tables *x, hd_text *out); /* stacks for flame graphs */

#endif
